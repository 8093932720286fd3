/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "base/str.h"

/*
 * Changes to YAML that people wrote: lines are put in, or one value is replaced, and
 * every other byte stays. What comes out is parsed again: unless it is what went in with
 * just this change, nothing comes out. So an edit may fail (a list in brackets, a value
 * over several lines, lines that end in CR), and never does something else.
 *
 * `name` stands for the file in messages. A path is "spec.containers.0.command": keys,
 * and places in lists from 0; "" is the whole. Errors are ERR_INVALID.
 */

/* Adds an item at the end of the list at `path`. `item` are its lines, the first with "-
 * " in front, as if it began at the left margin; they get the list's own indent. */
int edit_append(const char *name, struct span text, const char *path, const char *item,
                struct buf *out, struct err *err);
/* Adds a key at the end of the mapping at `path`; `entry` are its lines, as above. */
int edit_add_key(const char *name, struct span text, const char *path, const char *entry,
                 struct buf *out, struct err *err);
/* Puts another text in the place of the value at `path`, which stands on one line and has
 * no escapes. */
int edit_set(const char *name, struct span text, const char *path, const char *value,
             struct buf *out, struct err *err);
/* The lines of the value at `path`, a list that does not begin on its key's line, without
 * its indent. */
int edit_lines(const char *name, struct span text, const char *path, struct buf *out,
               struct err *err);
