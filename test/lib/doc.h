/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/str.h"

/*
 * Reads Markdown: fenced blocks, links, inline code and headings; and runs the blocks of
 * commands of a document.
 */

enum doc_kind {
    DOC_BLOCK,  /* text: the lines between the fences; info: what follows the fence */
    DOC_LINK,   /* text: the target */
    DOC_CODE,   /* text: inline code, perhaps of two lines; line: where it ends */
    DOC_HEADING /* text: the anchor as GitHub makes it, without a number for duplicates */
};

struct doc_part {
    enum doc_kind kind;
    const char *path;
    unsigned line; /* of the fence, for a block */
    struct span text, info;
};

typedef void doc_fn(const struct doc_part *part, void *ctx);

/* Calls `each` for every part of a file. A block without an end fails the test. */
void doc_read(const char *path, doc_fn *each, void *ctx);
/* doc_read of every document in the repository, whose root is the working directory. */
void doc_each(doc_fn *each, void *ctx);

/*
 * Runs the blocks of a document whose info string is `info`, one after the other in one
 * bash (-eu -o pipefail), so that variables and background programs persist between blocks.
 * The working directory is a folder in `dir` with links to the checkout; PATH begins with
 * our programs. `objects`: a command that gets each `yaml` block with an apiVersion on its
 * standard input; or NULL. `env`: "NAME=value" and NULL. A block that fails, or a
 * document that takes longer than limit_ms, fails the test. Returns the number of blocks.
 */
unsigned doc_run(const char *path, const char *info, const char *objects, const char *dir,
                 const char *const *env, int64_t limit_ms);

/* The --help of a program that `make install` installs. Kept. */
char *doc_help(const char *program);
