/* SPDX-License-Identifier: Apache-2.0 */

/*
 * YAML as JSON: every document becomes JSON that jansson accepts, and since JSON is YAML,
 * reading that gives the same JSON again.
 *
 * The exceptions, because some JSON is not YAML 1.1: keys of more than 1024 bytes, and
 * characters that YAML treats as line breaks or rejects (U+007F to U+009F, U+2028,
 * U+2029, U+FEFF, U+FFFE, U+FFFF). Also a text that exceeds a limit when converted.
 */

#include "fuzz/fuzz.h"

#include "wire/yaml.h"

static bool has_long_key(const struct yaml_node *node)
{
    enum { LONG = 150 }; /* written as \u0001, six times as much */
    for (size_t i = 0; node && node->type != YAML_SCALAR && i < node->n; i++)
        if ((node->type == YAML_MAPPING && node->items[i]->key.n > LONG) ||
            has_long_key(node->items[i]))
            return true;
    return false;
}

static bool has_special_characters(const struct buf *json)
{
    static const char *const special[] = {"\x7f",         "\xe2\x80\xa8", "\xe2\x80\xa9",
                                          "\xef\xbb\xbf", "\xef\xbf\xbe", "\xef\xbf\xbf"};
    for (size_t i = 0; i < ARRAY_LEN(special); i++)
        if (memmem(json->p, json->n, special[i], strlen(special[i])))
            return true;
    for (size_t i = 1; i < json->n; i++)
        if ((unsigned char)json->p[i - 1] == 0xc2 && (unsigned char)json->p[i] < 0xa0)
            return true;
    return false;
}

static void check_again(const struct buf *json)
{
    struct err err = {0};
    cleanup_buf struct buf again = {0};
    cleanup_yaml struct yaml *y = yaml_parse("again", json->p, json->n, &err);
    if (!y && err.code == ERR_TOO_LARGE)
        return;
    fuzz_fail_if(!y || yaml_count(y) != 1, "the written JSON cannot be read");
    yaml_json(yaml_document(y, 0), &again);
    fuzz_check_same(json, &again, "the JSON changes when read again");
}

void fuzz_input(struct span in)
{
    struct err err = {0};
    cleanup_yaml struct yaml *y = yaml_parse("file", in.p, in.n, &err);
    fuzz_fail_if(!y && (err.code == ERR_NONE || !strstr(err.msg, "file")),
                 "an error that does not name the file");
    for (size_t i = 0; y && i < yaml_count(y); i++) {
        const struct yaml_node *node = yaml_document(y, i);
        cleanup_buf struct buf json = {0};
        json_error_t error;
        yaml_json(node, &json);
        json_t *j = json_loadb(json.p, json.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
        fuzz_fail_if(!j && !fuzz_is_unsupported(&error),
                     "a document does not give valid JSON");
        json_decref(j);
        if (!has_long_key(node) && !has_special_characters(&json))
            check_again(&json);
    }
}
