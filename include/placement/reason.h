/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "placement/select.h"

/* Why a request does not fit on a node, and which node is nearest to fitting. */

/* The class of a reason, for metrics. */
enum reason_class {
    REASON_MEMORY,          /* cards suit, but have too little free memory */
    REASON_NOMINATED,       /* enough is free, but reserved for nominated pods */
    REASON_UNHEALTHY,       /* every card that suits is unhealthy or excluded */
    REASON_SIZE,            /* never: too few cards, or too small ones */
    REASON_MODEL,           /* other models or clocks, or unknown ones */
    REASON_MODE,            /* the label gpushare/mode excludes the request */
    REASON_NODE,            /* the node takes no pods: see enum node_state */
    REASON_PROMISED,        /* the pod has an unconfirmed promise on another node */
    REASON_GANG,            /* the other members of the pod's gang find no cards */
    REASON_INVALID_REQUEST, /* the request of the pod is invalid */
    REASON_COMPUTE,         /* memory is free, but too little compute beside it */
    REASON_LINKS,     /* cards suit, but are not connected as gpushare/min-link says */
    REASON_ISOLATION, /* the node cannot enforce what gpushare/isolation says */
    REASON_QUOTA,     /* a ResourceQuota of the pod's namespace; or these are not known */
    REASON_CLASSES
};

/*
 * One list says what stands between a pending pod and a node: sentences, the page of `explain` and
 * JSON are made of it.
 */
struct obstacle {
    const struct card *card; /* NULL: of the node */
    enum obstacle_kind kind;
    int64_t needed, there; /* without amounts 1 and 0 */
};

struct reason_ask {
    struct select_pod pod;
    /* SELECTOR or TAINTS: the pod's own terms exclude the node. */
    enum obstacle_kind terms;
    bool tolerates; /* cordoned nodes, or kube-scheduler offers the node */
    const struct resources *requests; /* of the pod; NULL: unknown */
};

enum { OBSTACLES_MAX = SCV_MAX_CARDS + 8 };
/* Lists what stands in the way: of the node, then of each card that cannot take its part, by
 * index. None of the node: the pod fits there. */
size_t reason_list(const struct ledger_node *node, const struct reason_ask *ask,
                   struct obstacle list[OBSTACLES_MAX]);
/* All words of an obstacle that do not depend on amounts or states. A kind is described here alone,
 * and reads so in sentences, in `explain`, in JSON and in metrics. Those of a card are of `explain`
 * alone: filter's sentence says by request_write_card what a card must be, and by
 * request_write_kind what the cards of the node are. */
struct obstacle_words {
    const char *word;        /* in JSON */
    enum reason_class class; /* up to CARDS */
    /* Of the node: its sentence, or what follows what the request needs. Of a card: what is
     * wrong with it. NULL: reason.c writes it by amounts and states. */
    const char *text;
    /* After "the pod fits on node n", or "... if GPU0", or of MODEL before it: the change
     * that removes it. NULL: explain tries others. */
    const char *change;
};
extern const struct obstacle_words obstacle_words[OBSTACLES];
/* Appends the obstacles of the node as one sentence; nothing if the pod fits. */
void reason_write(struct buf *out, const struct ledger_node *node,
                  const struct request *request, const struct obstacle *list, size_t n);

/* The reason for a node without heartbeat begins with this text; "N s" follows. */
#define REASON_NO_HEARTBEAT "no heartbeat from scv-agent on this node for "

/* Why a request does not fit, in terms of cards: what is requested, what is free on the
 * best card, which cards are excluded and why. The text about the request is written once
 * for all nodes. */
struct prepared_reason {
    const struct request *request; /* borrowed */
    char need[1024];
    size_t need_n;
    size_t
        plain_n; /* with what follows in the most frequent reason, of memory alone; or 0 */
};

void reason_prepare(struct prepared_reason *r, const struct request *request);
/* Appends the reason for a node. `alone` is the result of select_fit; FIT_YES: only
 * nominated pods prevent the placement. */
void reason_add_prepared(struct buf *out, const struct prepared_reason *r,
                         const struct ledger_node *node, enum fit alone);
/* The same for a single node. */
void reason_add(struct buf *out, const struct ledger_node *node,
                const struct request *request, enum fit alone);

/* Appends why the node takes no pods at all; nothing if it takes some. */
void reason_add_unusable(struct buf *out, const struct ledger_node *node);

/* Appends the holder of the node's Lease if that is not scv-agent, and what to do; else
 * nothing. Follows other text of the reason. */
void reason_add_foreign_lease(struct buf *out, const struct ledger_node *node);

const char *reason_class_name(enum reason_class reason); /* as in metrics */
/* The class of a rejection: up to REASON_NODE, or from REASON_COMPUTE to REASON_ISOLATION. `node`
 * NULL: the node is unknown. */
enum reason_class reason_class_of(const struct ledger_node *node,
                                  const struct request *request, enum fit alone);

/*
 * For a pending pod: on how many nodes its request fits, and which node is nearest to
 * fitting. Nodes are visited one after the other, each in constant memory. On a cordoned
 * node the request does not fit, whatever is free there, unless kube-scheduler offered
 * the node.
 */

struct nearest_node {
    struct select_pod pod; /* the caller's, as the next three */
    bool own_terms;        /* nodes that these exclude are no candidates */
    const struct terms *terms;
    bool offered; /* kube-scheduler offered every visited node */

    uint32_t seen, fits, excluded;  /* numbers of nodes */
    const struct ledger_node *node; /* the nearest. A node that fits precedes all others;
                                       ties go to the lowest name. NULL: none visited */
    enum fit fit;                   /* on that node */
    int64_t missing;                /* on that node, as of nearest_node_shortfall */
};

void nearest_node_visit(struct nearest_node *n, const struct ledger_node *node);

/* What the request lacks on the node: MiB, summed over the cards with most free memory,
 * or a number of whole cards. 0 or less: it fits, or no such cards are connected as it demands.
 * INT64_MAX: the node takes no such request, whatever is free there. */
int64_t nearest_node_shortfall(const struct ledger_node *node,
                               const struct request *request);
