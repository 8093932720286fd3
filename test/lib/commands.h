/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/doc.h"

/*
 * Commands of documents, looked at without running them: is there what they name? Words
 * are taken apart as a shell does, as far as documents need it: quotes, comments,
 * continued lines, here-documents, pipes and lists, $( ), the words of if and loops.
 */

/* Our programs and scripts, their options, targets and variables of the Makefile, and
 * files of the repository that are not there, and programs that nobody knows, are added
 * to `faults`. With `seen_in` (a list of files, "A,B"), what is ours must be named in one
 * of these files. */
void commands_check(struct buf *faults, const struct doc *d, unsigned line,
                    const char *text, const char *seen_in);

/* What --help says of a program that `make install` installs; NULL: it is none. New. */
char *commands_help(const char *program);
/* The options that there are, by all --help of ours and the texts of scripts. New. */
char *commands_options(void);
/* The same of inline code, which may be a command of ours, a path, or an option of
 * whatever program (of `options`). */
void commands_check_code(struct buf *faults, const struct doc *d,
                         const struct doc_word *code, const char *options);
