/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/doc.h"

/*
 * Somebody who reads a document and types what it says: its blocks, one after the other,
 * in one shell (bash -eu -o pipefail), so that variables and programs in the background
 * stay. The working directory looks like the checkout, but files that are made there are
 * gone after the document, and so is a cluster that it left. PATH begins with our
 * programs.
 */

struct session {
    enum doc_use use;       /* of the blocks that are run */
    const char *objects;    /* what takes the file of a YAML block, a command; or NULL */
    const char *const *env; /* further variables, "NAME=value", ending with NULL */
    int64_t limit_ms;       /* of the whole document */
};

/* How many blocks of the document it would run. */
size_t session_blocks(const struct session *s, const struct doc *d);
/* Runs them. The one that fails, or is not done in time, is told in `faults`, with what
 * it said. */
void session_run(const struct session *s, const struct doc *d, struct buf *faults);
