/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/explain.h"
#include "cli/show.h"

/*
 *   explain.c          the pod, and a bound pod's cards
 *   explain_pending.c  why nodes reject a pending pod
 */

/* The text in progress and its sources. */
struct explain_page {
    struct buf *out;
    const struct cluster_state *cs;
    const struct ledger *l;
    const struct ledger_pod *pod;
    const struct explain_facts *facts;
    json_t *reservations; /* of the extender's view, by "NODE/CARD" */
    int64_t unit;
    bool tolerates; /* the pod tolerates cordoned nodes */
};

/* The string of a JSON object's member; empty if there is none. */
struct span explain_text_at(const json_t *o, const char *key);
/* Appends text of the cluster's objects without control characters. */
void explain_plain(struct explain_page *p, struct span text);
void explain_request(struct explain_page *p); /* of p->pod */
/* Appends the pods that have promises on the card. */
void explain_promises(struct buf *out, const struct ledger_node *node,
                      const struct card *card, int64_t unit, struct arena *a);
/* Appends why nodes and cards reject p->pod, and what would let it fit. */
void explain_pending(struct explain_page *p);
