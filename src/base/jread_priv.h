/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/jread.h"

/* Strings, numbers and words for the reader, which knows of arrays and objects. */

/* The first of these sets the state. jread_set_truncated: the input ended inside a value.
 */
void jread_set_bad(struct jread *j, const char *why);
void jread_set_truncated(struct jread *j);

/* Is this the next byte? */
static inline bool jread_at(const struct jread *j, char c)
{
    return j->pos < j->n && j->data[j->pos] == c;
}

/* Each passes one value that begins at pos; false when the state was set. */
bool jread_pass_string(struct jread *j, struct jread_str *out); /* at the quote */
bool jread_pass_number(struct jread *j, struct span *out);      /* at '-' or a digit */
bool jread_pass_word(struct jread *j, struct span word);
