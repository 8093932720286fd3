/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"

/*
 * Additions to jansson: paths, release at the end of a scope, spans and buffers.
 */

void sim_jsonx_cleanup(json_t **j);
#define cleanup_json __attribute__((cleanup(sim_jsonx_cleanup)))

/* Parses exactly one JSON value. New; NULL on error. */
json_t *sim_jsonx_parse(struct span text, struct err *err);
/* Writes compact JSON, members in insertion order. */
void sim_jsonx_dump(struct buf *out, const json_t *j);

/* The value at a path of member names joined by dots ("spec.nodeName"); borrowed; NULL
 * when a step is missing, is no object, or the value is null. */
json_t *sim_jsonx_at(const json_t *j, const char *path);
/* The string at the path; {NULL, 0} when there is none. Borrowed. */
struct span sim_jsonx_span(const json_t *j, const char *path);
/* The string at the path, "" when there is none. Borrowed. */
const char *sim_jsonx_str(const json_t *j, const char *path);
int64_t sim_jsonx_int(const json_t *j, const char *path, int64_t otherwise);
struct span sim_jsonx_text(const json_t *string);

/* The object under the key; creates it, and replaces a value of another type. Borrowed. */
json_t *sim_jsonx_make(json_t *j, const char *key);
void sim_jsonx_set_str(json_t *object, const char *key, const char *value);
void sim_jsonx_set_int(json_t *object, const char *key, int64_t value);
/* Sets the string if there is nothing at the key. */
void sim_jsonx_default_str(json_t *object, const char *key, const char *value);

/* Removes members that are null, at every depth: absent and null mean the same. */
void sim_jsonx_strip_nulls(json_t *j);

/* "string", "number", ... for error messages. */
const char *sim_jsonx_type(const json_t *j);
