/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/jread.h"

/* jread_scalar.c parses strings, numbers and literals for jread.c, which parses arrays
 * and objects, and for jread_strings.c, which parses long lists of names. */

/* Set the state; the first call wins. jread_set_truncated: the input ends inside a value,
 * which is JREAD_BAD unless more bytes may follow. */
void jread_set_bad(struct jread *j, const char *why);
void jread_set_truncated(struct jread *j);

/* Whether c is the next byte. */
static inline bool jread_at(const struct jread *j, char c)
{
    return j->pos < j->n && j->data[j->pos] == c;
}

/* Is the innermost level an object? Not for depth 0. */
static inline bool jread_in_object(const struct jread *j)
{
    unsigned d = (unsigned)j->depth - 1;
    return j->objects[d / 64] >> (d % 64) & 1;
}

/* Each consumes one value that begins at pos; false if it set the state. */
bool jread_pass_string(struct jread *j, struct jread_str *out); /* at the quote */
bool jread_pass_number(struct jread *j, struct span *out);      /* at '-' or a digit */
bool jread_pass_word(struct jread *j, struct span word);
