/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/doc.h"

/*
 * Runs the command blocks of a document one after the other in one shell (bash -eu -o
 * pipefail), so that variables and background programs persist between blocks. The working
 * directory contains links to the checkout; files that the blocks create there, and a
 * cluster that they start, are removed afterwards. PATH begins with our programs.
 */

struct session {
    enum doc_use use;       /* which blocks to run */
    const char *objects;    /* command that gets the file of a YAML block; or NULL */
    const char *const *env; /* further variables, "NAME=value", ending with NULL */
    int64_t limit_ms;       /* of the whole document */
};

/* Number of blocks of the document that session_run runs. */
size_t session_blocks(const struct session *s, const struct doc *d);
/* Runs the blocks. Adds a block that fails or exceeds the time limit to `faults`, with its
 * output. */
void session_run(const struct session *s, const struct doc *d, struct buf *faults);
