/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

/*
 * Members of JSON objects by path: "spec.template.spec". A NULL object has no members.
 */

const json_t *jsonpath_at(const json_t *j, const char *path); /* NULL: not found */
const char *jsonpath_str(const json_t *j, const char *path);  /* "": not a string */
