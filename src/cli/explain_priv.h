/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/explain.h"
#include "cli/show.h"

/*
 *   explain.c          the pod, and why nodes reject a pending one
 *   explain_bound.c    a bound pod and its cards
 *   explain_preempt.c  what layout preemption does for a pending pod
 *   explain_reserved.c  cards that are reserved from filter to bind
 *   explain_space.c    CPU, memory and pod slots of a node
 */

/* The text in progress and its sources. */
struct explain_page {
    struct buf *out;
    const struct cluster_state *cs;
    const struct ledger *l;
    const struct ledger_pod *pod;
    const struct explain_facts *facts;
    json_t *reservations; /* of explain_reservations, for explain_reserved */
    int64_t unit;
    bool tolerates; /* the pod tolerates cordoned nodes */
};

/* The string of a JSON object's member; empty if there is none. */
struct span explain_text_at(const json_t *o, const char *key);
/* Appends text of the cluster's objects without control characters. */
void explain_plain(struct explain_page *p, struct span text);
void explain_request(struct explain_page *p); /* of p->pod */
void explain_amount(struct buf *out, int64_t mib, int64_t unit);
/* Appends the pods that have promises on the card. */
void explain_promises(struct buf *out, const struct ledger_node *node,
                      const struct card *card, int64_t unit, struct arena *a);

/* Appends what the pod lacks on the node besides GPUs: CPU, memory, a pod slot. Amounts
 * that the Node does not state are not judged. False: nothing. */
bool explain_space(struct buf *out, const struct ledger_node *node,
                   const struct ledger_pod *pod);

/* Is it in a gang whose members wait for each other? */
bool explain_waits_for_gang(const struct explain_page *p);

/* Appends what layout preemption does for the pod, by the extender's view, and, if no node
 * takes it now (`rejected`), what it would do on these nodes. Nothing if evictions do not
 * help, or if kube-scheduler's own preemption does it. */
void explain_preempt(struct explain_page *p, const struct ledger_node **nodes, size_t n,
                     bool rejected);

/* The reservations of the extender's view (NULL: none) by "NODE/CARD". New. */
json_t *explain_reservations(const json_t *view);
/* By the extender's view, nothing without one: appends for which pods the card is reserved,
 * and the cards that are reserved for p->pod. */
void explain_reserved(struct explain_page *p, struct buf *out,
                      const struct ledger_node *node, const struct card *card);
void explain_own_reservation(struct explain_page *p);

void explain_bound(struct explain_page *p, const struct cluster_state_pod *object);
