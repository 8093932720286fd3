/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "base/str.h"

/*
 * Values of a JSON document by path: "spec.containers.0.command" has keys, and indexes of
 * lists; "" is the document. A key with a dot in it has no path. Everything returned is
 * borrowed.
 */

/* NULL: there is none. NULL has no members. */
const json_t *jpath(const json_t *j, const char *path);
/* "": no string, or one with a NUL in it. */
const char *jpath_string(const json_t *j, const char *path);
/* With its NULs, which span_eq compares, too. {NULL, 0}: no string. */
struct span jpath_text(const json_t *j, const char *path);
int64_t jpath_number(const json_t *j, const char *path); /* 0: no integer */

/* The document. New. NULL: the text is none. A string in it can have a NUL, as in the API
 * server. */
json_t *jpath_read(struct span text, struct err *err);
