/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "limit/account.h"

/*
 * Allocation nodes of graphs. The driver takes their memory at a launch, where the library does
 * not look: an allocation node counts from the moment it is made. It counts until its graph and
 * all executable graphs made of it are destroyed and the driver returned the memory of graphs
 * (cuDeviceGraphMemTrim, which the library calls before it refuses an allocation).
 */

/* Ends the allocation of a node, as account_end. */
CUresult graph_end(struct account *a, CUresult rc, CUgraph graph,
                   const CUdeviceptr *pointer);

/* Returns the unused memory of graphs on a card. */
void graph_trim(struct process *p, int card);
