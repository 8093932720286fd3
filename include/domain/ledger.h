/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/hash.h"
#include "domain/configmap.h"
#include "domain/lease.h"
#include "domain/mix.h"
#include "domain/node.h"
#include "domain/promise.h"
#include "domain/request.h"
#include "domain/scv.h"

/*
 * The ledger: every node, its cards, and what of each card is promised to which pod. MiB,
 * whole numbers.
 *
 * It is a function of the objects that it was told of, in whatever order they came; only
 * the mix of what pods ask for (domain/mix.h) remembers also those that have left. What
 * it derives (a card's free memory, a node's best card) is brought up to date when
 * something is written, so that reading is a look. It knows nothing of calls, time limits
 * or who may bind: that is core. It is not locked.
 *
 * What a node has comes from its Scv; without one, when scv-agent's Lease for the node
 * exists or `require_scv` is set, it has nothing; without either, the Node's capacity
 * counts. Promises are kept per pod and found again on the cards by UUID, or by index
 * where one side has no UUID. A promise on a card that is not (or not any more) there
 * stays: it counts again when the card comes back.
 *
 * Memory used from outside: what the Scv measured as used, less the promises of pods that
 * ran when it was measured, less the promises of pods that left after it, is withheld as
 * far as it exceeds a tolerance. A pod that does not run yet uses nothing of what was
 * measured, so its promise is not subtracted.
 *
 * Which came first is decided by the order in which this process saw them, because the
 * node's clock (updateTime) and that of this machine may differ by any amount. A new
 * updateTime of the node is a new sample. A pod counts in the samples that arrive after
 * it was seen running (in all, if it ran at the start of this process); a pod that left
 * counts until the next sample arrives.
 */

struct ledger_settings {
    int64_t unit_mib;               /* of aliyun.com/gpu-mem */
    int64_t external_tolerance_mib; /* per card */
    bool require_scv;
    bool require_node; /* an Scv without a Node object is of a deleted node; false: no
                          Nodes are read */
    bool clock_exact, number_shares; /* of struct request_rules */
};

static inline struct request_rules ledger_rules(const struct ledger_settings *s)
{
    return (struct request_rules){s->unit_mib, s->clock_exact, s->number_shares};
}

/* Why a card gets no new pods, whatever is free on it. */
enum card_state {
    CARD_AVAILABLE = 0,
    CARD_UNHEALTHY, /* its Scv does not say Healthy */
    CARD_LISTED,    /* the ConfigMap unhealthy-gpu-<node> names it */
    CARD_HELD, /* its Scv's podList: a container has it through nvidia.com/...; or pods
                  that the podList does not show yet must be about to get it */
    CARD_DUPLICATE, /* its Scv gives another card the same UUID: which of them a promise
                       or a container means cannot be known */
};

struct card {
    int32_t index;
    enum card_state state;
    int64_t total_mib;
    int64_t promised_mib;
    int64_t used_mib;           /* measured; -1 when not known */
    int64_t withheld_mib;       /* used from outside, beyond the tolerance */
    int64_t free_mib;           /* what a new pod can get: 0 when out or taken whole */
    uint32_t pods;              /* promises on it */
    bool whole;                 /* one of them is for the whole card */
    bool overcommitted;         /* more is promised of it than it has */
    struct span model, uuid;    /* owned by the node; empty when not known */
    const struct scv_card *scv; /* what its Scv says; NULL: the node has none */
};

/* Why a node gets no new pods at all. */
enum node_state {
    NODE_USABLE = 0,
    NODE_UNKNOWN,     /* no object tells what it has */
    NODE_SCV_MISSING, /* Lease or --require-scv, but no Scv */
    NODE_SCV_DAMAGED,
    NODE_SCV_EMPTY, /* the Scv lists no card (yet) */
    NODE_NO_GPU,    /* neither Scv nor capacity */
    NODE_NO_COUNT,  /* capacity in memory, but no number of cards to split it over */
    NODE_ALLOCATABLE_LOW, /* allocatable below capacity, and nobody says which card it is
                           */
    NODE_STALE,          /* scv-agent's heartbeat has stopped; the Scv may be old */
    NODE_LIST_DAMAGED,    /* the ConfigMap unhealthy-gpu-<node> cannot be read */
    NODE_MISSING,         /* an Scv, but no Node object: deleted, or not created yet */
};

enum node_source { SOURCE_NONE, SOURCE_SCV, SOURCE_CAPACITY };

struct ledger_pod;

/* Filter looks at thousands of nodes per call, and most of that is waiting for memory. So
 * the first cache line has all that decides about a request for one card, with the name
 * if it is short, and the second what a refusal says. */
struct ledger_node {
    struct span name;      /* NUL-terminated */
    int64_t best_free_mib; /* of any one card */
    int64_t largest_mib;   /* size of the largest card, also when it is out */
    enum node_state state : 8;
    enum node_mode mode : 8;
    bool has_nominated;
    bool all_available; /* no card is out, taken whole, or used from outside */
    uint32_t n_cards;
    char name_bytes[56]; /* a longer name is elsewhere */

    int64_t best_total_mib; /* of the healthy card with most free memory: its size ... */
    int32_t best_index;     /* ... and index; -1: none is healthy */
    uint32_t free_cards;    /* healthy and wholly free */
    struct card *cards;     /* by rising index */
    struct ledger_pod *nominated; /* waiting pods nominated to this node */

    struct ledger_pod *pods;         /* with a promise here, or bound here without one */
    struct ledger_node_facts *facts; /* what the objects said; NULL: the slot is free */
    uint64_t generation;             /* changes with what is promised and what can be */
    uint32_t id;                     /* place in the dense array of nodes */
    uint32_t healthy_cards;
    enum node_source source : 8;
    bool cordoned; /* spec.unschedulable of the Node. Decides about nothing here:
                      kube-scheduler leaves the node out before anybody is asked */
    int32_t
        unknown_listed_card; /* a card that the ConfigMap names and that is not there; -1 */
    int32_t stale_s;   /* for so long at least nothing was heard of it; 0: not silent */
    uint32_t claimed;   /* cards that pods here ask for through nvidia.com/gpu and that
                           the podList does not show as theirs yet */
};
enum { LEDGER_LINE = 64 };
_Static_assert(offsetof(struct ledger_node, name_bytes) < LEDGER_LINE - 16 &&
                   offsetof(struct ledger_node, pods) == 2 * LEDGER_LINE,
               "two cache lines, as said above");

/* A part of a promise: memory on one card. */
struct ledger_share {
    int32_t card;
    int64_t mib;
    struct span uuid;      /* owned; empty when not known */
    const struct card *on; /* where it counts now; NULL: that card is not there */
};

/* A pod that asks for GPU memory, bound or not. The strings are owned by the ledger. */
struct ledger_pod {
    struct span uid, ns, name;
    int64_t created_s; /* since 1970; 0: not said */
    int64_t priority;
    struct request request; /* bound: what it counts for, see domain/bound.h */
    struct span invalid_reason; /* why the request is invalid; NUL-terminated. A pending pod
                               then has a request of kind NONE */
    struct ledger_pod_edit *edit; /* edits of a pod whose Binding is in flight; or NULL */
    bool running;               /* has left Pending: may be using its memory */
    uint64_t first_sample;      /* of its node, counted from 1: the first that may show it */

    struct ledger_node *node; /* where it is bound or reserved; NULL: waiting */
    struct ledger_share *shares;
    uint32_t n_shares; /* 0 with a node: bound by somebody without a card */

    uint64_t seen;   /* for the owner: the list in which it was seen last */
    int64_t confirmed_ms; /* for the owner: when it was last certain to exist */
    bool unconfirmed;      /* for the owner: a list did not show it, which proves nothing */
    bool final;      /* for the owner: bound, and these shares are what it was promised */

    struct ledger_pod *next, *prev; /* on node, or among the waiting */
    struct ledger_node *nominated_node;
    struct ledger_pod *next_nominated, *prev_nominated;
    struct ledger_pod *next_all, *prev_all;
    char *strings;
};

/* Waiting pods that ask for the same. */
struct ledger_class {
    struct request request; /* without parts */
    size_t pods;
};

struct ledger;

/* New. `seed` keys the tables; it never changes a result. */
struct ledger *ledger_new(const struct ledger_settings *settings, uint64_t seed);
void ledger_free(struct ledger *l);
const struct ledger_settings *ledger_settings(const struct ledger *l);

/* Objects. Each call replaces what was known of the object with that name. `list` is
 * remembered for ledger_sweep. */
void ledger_node_seen(struct ledger *l, const struct node *node, uint64_t list);
void ledger_node_deleted(struct ledger *l, struct span name);
void ledger_scv_seen(struct ledger *l, const struct scv *scv, uint64_t list);
void ledger_scv_deleted(struct ledger *l, struct span name);
void ledger_lease_seen(struct ledger *l, const struct lease *lease, uint64_t list);
void ledger_lease_deleted(struct ledger *l, struct span name);
/* Nothing has been heard of scv-agent for so many seconds; 0: it is heard of again. Holds
 * as long as anything speaks of the node; a node that is not known is passed over. */
void ledger_node_set_stale(struct ledger *l, struct span name, int64_t seconds);
void ledger_unhealthy_seen(struct ledger *l, const struct unhealthy_cards *u,
                           uint64_t list);
void ledger_unhealthy_deleted(struct ledger *l, struct span node);

enum ledger_kind { LEDGER_NODE, LEDGER_SCV, LEDGER_LEASE, LEDGER_UNHEALTHY };
/* Forgets the objects of a kind that were not seen in the list. */
void ledger_sweep(struct ledger *l, enum ledger_kind kind, uint64_t list);

/* A heartbeat that is not scv-agent's: what somebody needs to know who finds that the
 * node is waited for in vain. */
struct ledger_foreign_lease {
    struct span holder, renewed; /* as the Lease has them, cut off; may be empty */
};

/* What the objects say of a node and nothing here depends on: for those who show it. */
struct ledger_node_info {
    bool has_scv, has_lease;
    const struct ledger_foreign_lease *foreign; /* NULL: no Lease, or scv-agent's */
    int64_t scv_created_s;                /* 0: not said */
    bool has_sample;
    int64_t sample_s; /* when the Scv's values were read */
    const struct scv_held
        *held; /* containers that hold cards, those of nvidia.com/... at least */
    size_t n_held;
};
struct ledger_node_info ledger_node_info(const struct ledger_node *node);
/* MiB of the card that are withheld because of something that nobody knows of: what a
 * container uses that has the card through nvidia.com/gpu is none of that. */
int64_t card_external_mib(const struct card *card);
/* Does the node's Scv give the UUID of cards[i] to another card, too? */
bool card_is_duplicate(const struct ledger_node *node, uint32_t i);
/* Is that capacity what the node's cards make, or what they make without those that are
 * ill? (scv-agent lists a card that is gone for another day, and the device plugin lists
 * what it has seen since it was started.) `mem` in units, 0 or less: not known. */
bool ledger_mem_matches(const struct ledger_node *node, int64_t unit_mib, int64_t mem);
bool ledger_count_matches(const struct ledger_node *node, int64_t cards);
/* Where what is known of a node does not agree with itself. */
enum ledger_drift {
    DRIFT_OVERCOMMITTED, /* cards of which more is promised than they have */
    DRIFT_OUTSIDE,       /* cards that something outside uses, beyond the tolerance */
    DRIFT_UNPLACED,      /* promises on cards that are not there */
    DRIFT_CARDLESS,      /* pods without a card, where there is not just one */
    DRIFT_WRONG_CARD, /* cards that the kubelet gave to containers of another promise */
    DRIFT_CAPACITY,   /* amounts of the Node's capacity that its cards do not make */
    DRIFT_LISTED,     /* ConfigMaps that name a card that is not there */
    DRIFT_DUPLICATE,  /* cards that have the UUID of another card of their Scv */
    DRIFTS,
};
/* Adds how many there are of each. */
void ledger_node_drift(const struct ledger *l, const struct ledger_node *node,
                       int64_t counts[DRIFTS]);
/* Changes whenever a node does: whoever saw it before has missed nothing. */
uint64_t ledger_generation(const struct ledger *l);

/* Pods. Adding finds the pod of that UID or makes a waiting one, and takes over what can
 * change on a waiting pod: request, priority, nomination. While cards are reserved for
 * the pod, a change is kept aside: ledger_pod_unplace applies it. */
struct ledger_pod *ledger_pod_add(struct ledger *l, const struct pod *pod,
                                  const struct request *request, const char *why_not);
struct ledger_pod *ledger_pod_find(const struct ledger *l, struct span uid);
/* Puts the pod on a node with these shares (copied), or moves it there. */
void ledger_pod_place(struct ledger *l, struct ledger_pod *pod, struct span node,
                      const struct ledger_share *shares, uint32_t n);
/* The containers of the placed pod have started. `before`: before this process did, so
 * that the newest sample shows them, too. */
void ledger_pod_running(struct ledger *l, struct ledger_pod *pod, bool before);
/* The bind has failed and the reservation ends: the pod is pending again, with the
 * request that was seen last. It never used the memory. */
void ledger_pod_unplace(struct ledger *l, struct ledger_pod *pod);
/* The pod has ended or was deleted. Frees it. */
void ledger_pod_remove(struct ledger *l, struct ledger_pod *pod);

/* Reading. */
/* Is there an object of that kind for the node? */
bool ledger_node_has(const struct ledger *l, struct span name, enum ledger_kind kind);
const struct ledger_node *ledger_node_find(const struct ledger *l, struct span name);
/* Many at once, faster than one by one: nodes[i] gets what names[i] has, or NULL. Their
 * first cache lines are there then, or on the way. */
void ledger_nodes_find(const struct ledger *l, const struct span *names, size_t n,
                       const struct ledger_node **nodes);
uint32_t ledger_node_slots(const struct ledger *l);
/* By slot; NULL: the slot is free. */
const struct ledger_node *ledger_node_at(const struct ledger *l, uint32_t slot);
/* Cards of which more is promised than they have (or that are whole, and others have a
 * part). While pods are being listed some of them may be gone already. */
size_t ledger_overcommitted(const struct ledger *l);
size_t ledger_pending(const struct ledger *l); /* how many pods wait */
struct ledger_pod *ledger_first_pending(const struct ledger *l);
/* What the waiting pods ask for, each different request once. `n` gets how many. */
const struct ledger_class *ledger_classes(const struct ledger *l, size_t *n);
/* What the pods ask for that are, and were, here. */
const struct mix *ledger_mix(const struct ledger *l);
struct ledger_pod *ledger_first_pod(const struct ledger *l); /* then ->next_all */
/* What the pod counts for on a card of the node that it is on, in MiB; -1: nothing. */
int64_t ledger_pod_mib(const struct ledger_pod *pod, const struct card *card);
/* Does the card have no promise and nothing withheld, and is it healthy? */
static inline bool card_is_free(const struct card *card)
{
    return card->state == CARD_AVAILABLE && card->pods == 0 && card->withheld_mib == 0 &&
           card->total_mib > 0;
}
