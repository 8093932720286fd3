/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/str.h"

/* The words of shell commands, one command after the other. */

struct shwords {
    struct span rest;
    unsigned line; /* of the text, from 0 */
    char *until;   /* the end of a here-document that begins with the next line */
    bool list;     /* inside of `for x in ...`, up to its end */
};

enum { SHWORDS_MAX = 128 };
struct shcommand {
    unsigned line;
    size_t n;
    char *words[SHWORDS_MAX]; /* without quotes; the first is the program */
};

void shwords_init(struct shwords *s, const char *text);
void shwords_fini(struct shwords *s);
/* The next command that has a program. False: there is none. Assignments, redirections,
 * and what only stands in front of a program (sudo, if, ...) are left out. */
bool shwords_next(struct shwords *s, struct shcommand *c);
void shcommand_fini(struct shcommand *c);
