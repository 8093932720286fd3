/* SPDX-License-Identifier: Apache-2.0 */
#include "limit/account.h"
#include "limit/graph.h"
#include "limit/pool.h"

void account_trim(struct process *p, int card)
{
    pool_trim(p, card);
    graph_trim(p, card);
}
