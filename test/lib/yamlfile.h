/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "lib/unit.h"
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
