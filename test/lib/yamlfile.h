/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/lib.h"
#include "wire/yaml.h"

/* Appends the documents of a YAML file to the array; each must be an object. */
static inline void yamlfile_read(json_t *out, const char *path)
{
    struct err err = {0};
    cleanup_yaml struct yaml *y = yaml_load(path, &err);
    ck_assert_msg(y != NULL, "%s", err.msg);
    for (size_t i = 0; i < yaml_count(y); i++) {
        cleanup_buf struct buf text = {0};
        yaml_json(yaml_document(y, i), &text);
        json_t *j = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES, NULL);
        ck_assert_msg(json_is_object(j), "%s, document %zu: not an object", path, i + 1);
        json_array_append_new(out, j);
    }
}

/* The documents of the files that match (lib_glob); kept. */
static inline json_t *yamlfile_all(const char *pattern)
{
    json_t *all = lib_own(json_array());
    for (const char *const *file = lib_glob(pattern); *file; file++)
        yamlfile_read(all, *file);
    return all;
}

/* The only document of a file; kept. */
static inline json_t *yamlfile_one(const char *path)
{
    json_t *all = yamlfile_all(path);
    ck_assert_uint_eq(json_array_size(all), 1);
    return json_array_get(all, 0);
}

/* The first document of the kind; fails the test if there is none. */
static inline json_t *of_kind(const json_t *all, const char *kind)
{
    json_t *j = lib_find(all, "kind", kind);
    ck_assert_msg(j != NULL, "no document of kind %s", kind);
    return j;
}
