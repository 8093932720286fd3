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
