/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "node/allocation.h"

/* The state file (--state-file): the allocations of one node as JSON. The name is the
 * kubelet's for its own file of this kind. */

void checkpoint_write(struct buf *out, const struct allocation_set *set,
                      struct span node);
/* Adds the allocations in `text` that `set` does not have. On error `set` is unchanged.
 * ERR_INVALID: the text is damaged. ERR_CONFLICT: it belongs to another node. */
int checkpoint_read(struct allocation_set *set, struct span text, struct span node,
                    struct err *err);

/* Checks the head of a file that a program keeps for its node: its version, and the node `of`
 * that the file names. Errors: those of checkpoint_read. */
int checkpoint_check_head(int64_t version, int64_t expected, struct span of,
                          struct span node, struct err *err);
