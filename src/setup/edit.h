/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "base/str.h"
#include "kube/jpath.h"

/*
 * Minimal changes to YAML files that users wrote: lines are inserted or removed, or one
 * value is replaced, and every other byte stays. The new text is parsed and compared with
 * the old values plus this change; if they differ, the text stays as it was, and no further
 * edit may follow. An edit therefore may fail (a list in brackets, a value of several lines,
 * CRLF), but never does anything else.
 *
 * Paths are those of kube/jpath.h. All errors are ERR_INVALID.
 */

struct yaml;

/* A text of one document. */
struct edit {
    const char *name; /* of the file, for messages; borrowed */
    struct buf text;
    struct yaml *yaml;
    json_t *json; /* its values */
};

int edit_open(const char *name, struct span text, struct edit *e, struct err *err);
void edit_close(struct edit *e);
#define cleanup_edit __attribute__((cleanup(edit_close)))
/* Only the values. New. */
json_t *edit_parse(const char *name, struct span text, struct err *err);

/* Appends an item to the list `key` of the mapping at `parent`, and creates the list if it
 * is missing. `item` has the item's lines, from "- " at the left margin. */
int edit_add_item(struct edit *e, const char *parent, const char *key, const char *item,
                  struct err *err);
/* Appends the lines of a key, at the left margin, to the mapping at `path`. */
int edit_add_key(struct edit *e, const char *path, const char *entry, struct err *err);
/* Sets the key to `value`, a text on one line without escapes; adds a missing key. */
int edit_set(struct edit *e, const char *parent, const char *key, const char *value,
             struct err *err);
/* Removes the lines of the value at `path` and of its key, or of its place in a list; and of the
 * mappings and lists that would be empty then. */
int edit_remove(struct edit *e, const char *path, struct err *err);
