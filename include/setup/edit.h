/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "base/str.h"

/*
 * Minimal changes to YAML files that users wrote: lines are inserted, or one value is
 * replaced, and every other byte stays. The result is parsed and compared with the input
 * plus this change; if they differ, nothing is returned. An edit therefore may fail (a
 * list in brackets, a value of several lines, CRLF), but never does anything else.
 *
 * `name` is the file's name for messages. A path is "spec.containers.0.command": keys,
 * and indexes of lists; "" is the whole document. All errors are ERR_INVALID.
 */

/* Appends an item to the list at `path`. `item` has the item's lines, from "- " at the
 * left margin; they are indented as the list. */
int edit_append(const char *name, struct span text, const char *path, const char *item,
                struct buf *out, struct err *err);
/* Appends a key to the mapping at `path`; `entry` has its lines, as above. */
int edit_add_key(const char *name, struct span text, const char *path, const char *entry,
                 struct buf *out, struct err *err);
/* Replaces the value at `path`, a text on one line without escapes; a boolean becomes
 * another boolean. */
int edit_set(const char *name, struct span text, const char *path, const char *value,
             struct buf *out, struct err *err);
/* Removes the lines of the key at `path`, and of its value. */
int edit_remove(const char *name, struct span text, const char *path, struct buf *out,
                struct err *err);
/* The lines of the list at `path`, without its indent. The list must begin on the line
 * after its key. */
int edit_lines(const char *name, struct span text, const char *path, struct buf *out,
               struct err *err);
