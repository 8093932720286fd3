/* SPDX-License-Identifier: Apache-2.0 */

/*
 * base/jread against jansson: both must agree on which input is valid, and on every
 * string, key, integer and other number in it. The permitted differences:
 *   - jansson rejects a number that is too large for a double; jread checks only its
 *     syntax.
 *   - The depth limits differ (2048 and 256).
 *   - jansson cannot represent a NUL (\u0000) in a key.
 *   - jansson accepts a NUL byte directly after a number or a word, which is not JSON.
 * Also against itself: input in two parts, or as a list of the API, gives the same result.
 */

#include "fuzz/fuzz.h"

#include <jansson.h>
#include <stdlib.h>

#include "base/jread.h"
#include "base/mem.h"
#include "kube/list_watch.h"

static void compare(struct jread *j, json_t *want, struct arena *a);

/* Does the key occur again after this member? Then jansson has the later value. */
static bool is_repeated(struct jread j, struct span name, struct arena *a)
{
    struct jread_str key;
    jread_skip(&j);
    bool again = false;
    while (jread_member(&j, &key)) {
        again |= span_eq(jread_span(key, a), name);
        jread_skip(&j);
    }
    return again;
}

static void compare_object(struct jread *j, json_t *want, struct arena *a)
{
    struct jread_str key;
    size_t n = 0;
    jread_object(j, "object");
    while (jread_member(j, &key)) {
        struct span name = jread_span(key, a);
        json_t *value = json_object_getn(want, name.p, name.n);
        if (!value)
            fuzz_fail("a key that is unknown to jansson");
        if (is_repeated(*j, name, a)) {
            jread_skip(j);
            continue;
        }
        compare(j, value, a);
        n++;
    }
    if (n != json_object_size(want))
        fuzz_fail("a different number of members");
}

static void compare_array(struct jread *j, json_t *want, struct arena *a)
{
    size_t n = 0;
    jread_array(j, "array");
    while (jread_item(j)) {
        if (n >= json_array_size(want))
            fuzz_fail("more items than in jansson");
        compare(j, json_array_get(want, n++), a);
    }
    if (n != json_array_size(want))
        fuzz_fail("fewer items than in jansson");
}

/* The bytes that jread takes for a number have the value that jansson reads. */
static void compare_real(struct jread *j, double want)
{
    char text[64];
    struct span raw;
    if (jread_peek(j) != JREAD_NUMBER || !jread_raw(j, &raw))
        fuzz_fail("not a number");
    if (raw.n >= sizeof text)
        return;
    memcpy(text, raw.p, raw.n);
    text[raw.n] = '\0';
    if (strtod(text, NULL) != want)
        fuzz_fail("a different number");
}

static void compare_scalar(struct jread *j, json_t *want, struct arena *a)
{
    struct span text = {0};
    int64_t integer = 0;
    bool truth = false;
    if (json_is_string(want)) {
        struct span other = {json_string_value(want), json_string_length(want)};
        if (!jread_text(j, "string", a, &text) || !span_eq(text, other))
            fuzz_fail("a different string");
    } else if (json_is_integer(want)) {
        if (!jread_i64(j, "integer", &integer) || integer != json_integer_value(want))
            fuzz_fail("a different integer");
    } else if (json_is_boolean(want)) {
        if (!jread_bool(j, "bool", &truth) || truth != json_is_true(want))
            fuzz_fail("a different boolean");
    } else if (json_is_real(want)) {
        compare_real(j, json_real_value(want));
    } else if (jread_peek(j) != JREAD_NULL || !jread_skip(j)) {
        fuzz_fail("not null");
    }
}

static void compare(struct jread *j, json_t *want, struct arena *a)
{
    enum jread_type type = jread_peek(j);
    if ((type == JREAD_OBJECT) != json_is_object(want) ||
        (type == JREAD_ARRAY) != json_is_array(want))
        fuzz_fail("a different type");
    if (type == JREAD_OBJECT)
        compare_object(j, want, a);
    else if (type == JREAD_ARRAY)
        compare_array(j, want, a);
    else
        compare_scalar(j, want, a);
}

/* The first part of valid input must not be rejected. */
static void check_cut(const char *p, size_t n, size_t at)
{
    struct jread j, before;
    jread_init(&j, p, at);
    jread_continue(&j, p, at, false);
    before = j;
    jread_skip(&j);
    if (j.state == JREAD_BAD)
        fuzz_fail("the first part of a valid value is rejected");
    if (j.state == JREAD_TRUNCATED)
        j = before;
    bool again = j.pos == 0;
    jread_continue(&j, p, n, true);
    if (again)
        jread_skip(&j);
    if (jread_finish(&j, NULL))
        fuzz_fail("valid as a whole, rejected in two parts");
}

static void count_item(void *ctx, struct jread *j, bool deleted)
{
    (void)deleted;
    size_t *n = ctx;
    jread_skip(j);
    *n += jread_check(j, NULL) == 0;
}

/* {"items": [...]} as a list of the API, in three pieces, against the same read as a whole. */
static void check_list(const char *p, size_t n, bool valid, json_t *want)
{
    static const struct list_watch_handler handler = {.object = count_item};
    struct list_watch l;
    size_t items = 0, a = n / 3, b = n - n / 4;
    list_watch_init(&l, &handler, &items);
    list_watch_start(&l, false);
    list_watch_begin(&l, 200, -1);
    bool go_on = list_watch_data(&l, p, a) && list_watch_data(&l, p + a, b - a) &&
                 list_watch_data(&l, p + b, n - b);
    int rc = list_watch_end(&l, NULL);
    list_watch_fini(&l);
    json_t *list = json_object_get(want, "items");
    bool is_list = json_is_object(want) && (!list || json_is_array(list));
    if (!valid && !rc)
        fuzz_fail("an invalid list is accepted");
    if (is_list && !rc && (!go_on || items < json_array_size(list)))
        fuzz_fail("items are missing from a list");
}

enum verdict { VALID, TOO_DEEP, INVALID };

static enum verdict read_it(const char *p, size_t n)
{
    struct jread j;
    jread_init(&j, p, n);
    jread_skip(&j);
    if (jread_finish(&j, NULL) == 0)
        return VALID;
    return j.why && !strcmp(j.why, "nested too deeply") ? TOO_DEEP : INVALID;
}

/* The same, without the NUL bytes that jansson accepts. */
static enum verdict read_without_nuls(const char *p, size_t n)
{
    cleanup_buf struct buf b = {0};
    bool in_string = false;
    buf_reserve(&b, n);
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '"')
            in_string = !in_string;
        bool behind = i && ((p[i - 1] >= '0' && p[i - 1] <= '9') ||
                            (p[i - 1] >= 'a' && p[i - 1] <= 'z'));
        if (in_string && p[i] == '\\' && i + 1 < n)
            buf_addc(&b, p[i++]);
        else if (p[i] == '\0' && behind && !in_string)
            continue;
        buf_addc(&b, p[i]);
    }
    return read_it(b.p, b.n);
}

/* Returns the value that jansson reads, or NULL if it rejects the input. *unsupported:
 * jansson rejects it only because it cannot represent a number or a key. */
static json_t *load(const char *p, size_t n, bool *unsupported)
{
    const size_t flags = JSON_DECODE_ANY | JSON_ALLOW_NUL;
    json_error_t error;
    json_t *value = json_loadb(p, n, flags, &error);
    if (!value && json_error_code(&error) == json_error_numeric_overflow)
        value = json_loadb(p, n, flags | JSON_DECODE_INT_AS_REAL, &error);
    *unsupported = !value && (json_error_code(&error) == json_error_numeric_overflow ||
                              json_error_code(&error) == json_error_null_byte_in_key);
    return value;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *p = (const char *)data;
    struct jread j;
    bool unsupported;
    cleanup_arena struct arena a = {0};

    enum verdict verdict = read_it(p, size);
    bool valid = verdict == VALID;
    json_t *want = load(p, size, &unsupported);
    if (valid && !want && !unsupported)
        fuzz_fail("only jread accepts the input");
    if (verdict == INVALID && want && read_without_nuls(p, size) == INVALID)
        fuzz_fail("only jansson accepts the input");
    if (valid && want) {
        jread_init(&j, p, size);
        compare(&j, want, &a);
        check_cut(p, size, size / 2);
        check_cut(p, size, size > 3 ? size - 3 : 0);
    }
    if (verdict != TOO_DEEP && (valid || !want))
        check_list(p, size, valid, want);
    json_decref(want);
    return 0;
}
