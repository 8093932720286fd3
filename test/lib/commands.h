/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/doc.h"

/*
 * Static checks of the commands in documents: everything that they name must exist. Splits
 * words like a shell, as far as documents need it: quotes, comments, continued lines,
 * here-documents, pipes and lists, $( ), the keywords of if and loops.
 */

/* Adds to `faults`: missing programs, scripts, options, Makefile targets and variables, and
 * files of the repository, and unknown programs. With `seen_in` (a list of files, "A,B"),
 * one of these files must name each of our programs and scripts. */
void commands_check(struct buf *faults, const struct doc *d, unsigned line,
                    const char *text, const char *seen_in);

/* The --help of a program that `make install` installs; NULL: not such a program. New. */
char *commands_help(const char *program);
/* All options, from the --help of our programs and the texts of the scripts. New. */
char *commands_options(void);
/* commands_check of inline code: a command, a path, or an option of any program, which
 * must be in `options`. */
void commands_check_code(struct buf *faults, const struct doc *d,
                         const struct doc_word *code, const char *options);
