/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "placement/select.h"

/* The selections of placement/select.h, as tests ask for them. */

/* The set of one or two cards. */
#define CARD(i)     (UINT64_C(1) << (i))
#define CARDS(i, k) (CARD(i) | CARD(k))

/* The cards that the request gets on the node as it is; 0: none. */
static inline uint64_t chosen_cards(const struct ledger_node *node,
                                    const struct request *request)
{
    struct select_view view;
    uint64_t chosen;
    select_view(&view, node, NULL, SELECT_AS_IS);
    select_cards(&view, request, SELECT_ALL_CARDS, &chosen);
    return chosen;
}

/* The cards that the pod would be bound to; 0: none. */
static inline uint64_t bind_cards(const struct ledger_node *node,
                                  const struct request *request, int64_t priority,
                                  struct span uid)
{
    uint64_t chosen;
    select_bind(node, &(struct select_pod){request, priority, uid, NULL}, &chosen);
    return chosen;
}

/* Whether the pod fits, as filter asks. */
static inline enum fit fit_of_pod(const struct ledger_node *node,
                                  const struct request *request, int64_t priority,
                                  struct span uid)
{
    return select_fit_pod(node, &(struct select_pod){request, priority, uid, NULL});
}
