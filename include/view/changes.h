/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "view/inspect.h"

/*
 * The nodes of inspect as JSON lines for one reader: first all of them, then each one
 * that has changed since it was sent to this reader.
 *
 *     {"Node":<object as in inspect>,"Type":"SYNCED"}
 *     {"Node":{"name":"n1"},"Type":"DELETED"}
 *
 * The reader scans the ledger itself. So the cost does not depend on the rate of changes,
 * and several changes between two scans are one line. Not thread-safe.
 */

struct view_changes;

/* New. The source is copied. */
struct view_changes *view_changes_new(const struct view_source *source);
void view_changes_free(struct view_changes *c); /* NULL is accepted */

/* Continues the scan and appends lines until it is complete or `out` has at least `chunk`
 * bytes. The lock is taken for a bounded number of nodes at a time. True: the scan is
 * complete; the next call begins another one. */
bool view_changes_write(struct view_changes *c, size_t chunk, struct buf *out);
