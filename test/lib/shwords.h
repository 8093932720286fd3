/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/str.h"

/* Splits shell text into commands and words. */

struct shwords {
    struct span rest;
    unsigned line; /* line in the text, from 0 */
    char *until;   /* end mark of the here-document that starts on the next line */
    bool list;     /* inside the list of `for x in ...` */
};

enum { SHWORDS_MAX = 128 };
struct shcommand {
    unsigned line;
    size_t n;
    char *words[SHWORDS_MAX]; /* unquoted; the first is the program */
};

void shwords_init(struct shwords *s, const char *text);
void shwords_fini(struct shwords *s);
/* Reads the next command with a program. False: the end. Skips assignments, redirections
 * and words before the program (sudo, if, ...). */
bool shwords_next(struct shwords *s, struct shcommand *c);
void shcommand_fini(struct shcommand *c);
