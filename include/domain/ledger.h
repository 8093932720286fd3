/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/hash.h"
#include "domain/gang.h"
#include "domain/ids.h"
#include "domain/lease.h"
#include "domain/node.h"
#include "domain/promise.h"
#include "domain/quota.h"
#include "domain/request.h"
#include "domain/requests.h"
#include "domain/scv.h"
#include "domain/terms.h"

/*
 * The ledger: every node, its cards, and the promises of memory on each card to pods. MiB,
 * whole numbers. A pod can also have a share of the compute of its cards, in percent. Pods
 * without one claim no compute.
 *
 * It is a function of the current objects, whatever their order of arrival; only the
 * request mix (domain/requests.h) also remembers deleted pods. Derived values (a card's free
 * memory, a node's best card) are updated on every write, so reads are cheap. Calls,
 * timeouts and leader election belong to core. The ledger is not locked.
 *
 * The cards of a node come from its Scv. Without one, a node with scv-agent's Lease (or
 * any node, with `require_scv`) has no cards; for other nodes the Node's capacity counts.
 * A promise is kept with its pod and matched to a card by UUID, or by index if one side
 * has no UUID. A promise on a missing card stays and counts again when the card returns.
 *
 * Users can edit the annotations of a bound pod, and the podList of the Scv has what the
 * kubelet really gave. So a pod counts on the cards of its annotations and on those of the
 * podList, until they agree. A pod without a known card counts on the cards of the podList
 * once it runs, and on every card of its node before; if it asks by labels alone, nowhere.
 *
 * External use (memory used outside Kubernetes): where the Scv says that every process on
 * the card was measured with its memory, that of processes of no pod with a promise.
 * Overuse is then what pods use beyond their promises on the card. Memory that no process
 * is listed for fills unused promises of pods that use the card; the rest is external use.
 * A measurement that contradicts itself counts as none.
 *
 * Without a measurement, external use is an estimate: the used memory of the Scv, less the
 * promises of pods that ran at that time, less the promises of pods that left later. A pod
 * that has not started used nothing of what was measured, so its promise is not
 * subtracted. Overuse is part of the estimate.
 *
 * What exceeds a tolerance for both together is withheld.
 *
 * The order of events is the order of arrival in this process, because the clocks of node
 * (updateTime) and process may differ. A new updateTime is a new sample. A pod counts in
 * samples that arrive after it was seen running (in all, if it ran before this process
 * started); a pod that left counts until the next sample arrives.
 */

struct ledger_settings {
    int64_t unit_mib;               /* of aliyun.com/gpu-mem */
    int64_t external_tolerance_mib; /* per card */
    bool require_scv;
    bool require_node; /* an Scv without a Node belongs to a deleted node; false: Nodes
                          are not watched */
    bool clock_exact, number_shares, ignore_links; /* of struct request_rules */
    const struct dialect *dialect;
    bool keep_terms; /* also of bound pods */
};

static inline struct request_rules ledger_rules(const struct ledger_settings *s)
{
    return (struct request_rules){s->unit_mib, s->clock_exact, s->number_shares,
                                  s->ignore_links, s->dialect};
}

/* May a card get new pods, and if not, why? */
enum card_state {
    CARD_AVAILABLE = 0,
    CARD_UNHEALTHY, /* not Healthy in its Scv, or in MIG mode beside a healthy instance of it */
    CARD_EXCLUDED, /* listed in the ConfigMap unhealthy-gpu-<node> */
    CARD_HELD, /* a container in the Scv's podList has it through nvidia.com/..., or pods
                  that are not in the podList yet need all remaining cards, or all of those
                  without a promise */
    CARD_DUPLICATE, /* another card of its Scv has the same UUID: promises and containers
                       cannot be matched to one of them */
    CARD_STATES,    /* their number: the tables of metrics and view, and the obstacles of
                    placement/reason.h, have one for each, or do not compile */
};

/* A card as the Scv of its node has it. */
struct ledger_scv_card {
    struct span uuid, bus_id;
    const struct card_kind *kind; /* of the ledger's */
    int64_t used_mib;             /* scv_card_used */
    int32_t id;                   /* NVML index */
    bool healthy;
    bool use_complete; /* as in struct scv_card */
};

struct card {
    int32_t index;
    enum card_state state;
    int64_t total_mib;
    int64_t promised_mib;
    int64_t used_mib;     /* measured; -1: unknown */
    int64_t withheld_mib; /* external use and overuse, above the tolerance */
    int64_t reserved_mib; /* by reservations; not promised */
    int64_t free_mib;     /* for new pods: 0 if unavailable or promised whole */
    uint32_t pods;        /* promises on it */
    bool whole;           /* one promise is for the whole card */
    /* More memory or compute is promised than it has, without pods that have no card and have
     * not started. */
    bool overcommitted;
    bool use_known; /* whose memory is used is measured, not estimated */
    bool cordoned;  /* by hami.io/device-cordon: no request in a dialect gets it */
    uint16_t compute_promised; /* percent of its compute; saturated */
    uint16_t compute_reserved;
    int32_t slots_left;  /* neither promised nor reserved; below 0: too many are */
    int32_t overuse_mib; /* of withheld_mib; 0 unless use_known; saturated */
    struct span uuid;    /* owned by the node; empty: unknown */
    const struct card_kind *kind;
    const struct ledger_scv_card *scv; /* NULL: the node has no Scv */
};

/* May a node get new pods, and if not, why? */
enum node_state {
    NODE_USABLE = 0,
    NODE_UNKNOWN,     /* no object describes its cards */
    NODE_SCV_MISSING, /* Lease or --require-scv, but no Scv */
    NODE_SCV_DAMAGED,
    NODE_SCV_EMPTY,       /* the Scv lists no card (yet) */
    NODE_NO_GPU,          /* neither Scv nor capacity */
    NODE_NO_COUNT,        /* capacity has memory, but no number of cards */
    NODE_ALLOCATABLE_LOW, /* allocatable below capacity, and no ConfigMap lists the card */
    NODE_STALE,           /* the heartbeat is stale, so the Scv may be old */
    NODE_LIST_DAMAGED,    /* the ConfigMap unhealthy-gpu-<node> cannot be parsed */
    NODE_MISSING,         /* an Scv, but no Node: deleted, or not created yet */
    NODE_DAMAGED,         /* the Node object cannot be decoded */
};

enum node_source { SOURCE_NONE, SOURCE_SCV, SOURCE_CAPACITY };

struct ledger_pod;
struct ledger_reservation;

/* The cards of a node as selecting and scoring read them: a cache line instead of those of
 * all cards. It follows the cards of the ledger only; a caller that gives a copy of a node
 * other cards makes the copy's `valid` false. */
enum { LEDGER_ROWS = 8 };
struct ledger_rows {
    int32_t free_mib[LEDGER_ROWS]; /* of each card; 0 beyond n_cards */
    uint8_t kind[LEDGER_ROWS];
    int32_t available_mib; /* size of the cards that are CARD_AVAILABLE, in total */
    uint8_t whole;         /* bit i: card_is_free */
    bool valid; /* no instances, and no more or larger cards than this can hold */
};

/* Filter reads thousands of nodes per call and is bound by memory latency. So the first
 * cache line has all fields that decide about a request for one card or are in the reason of
 * its rejection, and a short name; the third has the values of a score. */
struct ledger_node {
    _Alignas(64) struct span name; /* NUL-terminated */
    int64_t best_free_mib;         /* of any one card */
    int64_t best_total_mib; /* size of the healthy card with most free memory ... */
    int32_t best_index;     /* ... and its index; -1: none is healthy */
    enum node_state state : 8;
    enum node_mode mode : 8;
    bool has_nominated : 1;
    bool has_reserved : 1;
    bool has_links : 1;     /* `links` is not NULL */
    bool has_core : 1;      /* its device plugin offers shares of compute */
    bool all_available : 1; /* no card is unavailable, promised whole, in external use, or
                               reserved */
    bool changed : 1;       /* for ledger_next_changed */
    enum scv_dialect dialect : 2; /* of its Scv; OTHER: or that is missing or damaged */
    uint8_t n_cards;
    uint8_t free_cards; /* healthy and completely free, without instances */
    uint8_t
        isolation;    /* SCV_ISOLATION_ bits that it can or, without KNOWN, may enforce */
    uint16_t claimed; /* cards that pods here request through nvidia.com/gpu and that are
                         not in the podList yet; saturated */
    char name_bytes[64]; /* a longer name is on the heap */
    enum node_source source : 8;
    bool cordoned;                   /* spec.unschedulable of the Node. Only for display:
                      kube-scheduler filters the node before it calls extenders */
    bool left_out;                   /* label gpushare=false of the Node */
    struct card *cards;              /* by index */
    struct ledger_node_facts *facts; /* from the objects; NULL: the slot is free */

    struct ledger_rows rows;
    /* Saturated at the limits of the type, which no machine reaches. */
    int32_t cpu_milli; /* allocatable; 0: unknown */
    int32_t cpu_free;  /* less what pods and reservations here request; may be below 0 */
    int64_t largest_mib; /* size of the largest card, available or not */

    struct ledger_nomination *nominated; /* of pending pods to this node */
    struct ledger_pod *pods;             /* bound or reserved here */
    struct ledger_reservation *reserved; /* on its cards */
    uint64_t generation;                 /* changes with every change of the node */
    const struct links *links;           /* between its cards; NULL: unknown */
    uint32_t id;                         /* slot in the dense array of nodes */
    /* listed in the ConfigMap, but not a card of the node; -1: none */
    int32_t unknown_listed_card;
    int32_t stale_s; /* minimum age of its heartbeat; 0: fresh */
};
enum { LEDGER_LINE = 64 };
_Static_assert(offsetof(struct ledger_node, name_bytes) < LEDGER_LINE - 16 &&
                   offsetof(struct ledger_node, rows) == 2 * LEDGER_LINE &&
                   offsetof(struct ledger_node, nominated) == 3 * LEDGER_LINE &&
                   sizeof(struct ledger_node) == 4 * LEDGER_LINE,
               "decision and score in one cache line each");

/* Part of a promise: memory on one card. */
struct ledger_share {
    int32_t card;
    int8_t on; /* position of the card where it counts on its node; -1: missing */
    uint8_t percent,
        compute_percent; /* taken over, whose card is -1: as in struct promise_share */
    int64_t mib;         /* in the unit of the ledger */
    /* As in the annotations (promise_unit_mib). */
    int32_t unit_mib, card_units;
    struct span uuid; /* empty: unknown */
};

/* The gang of pods in the ledger, which are those that request GPUs. */
struct ledger_gang {
    struct span key;               /* gang_key; owned */
    struct span ns, name;          /* to show; of the key */
    struct ledger_member *members; /* newest first, never NULL */
    int64_t left_ms;               /* for core: when a member last ended; 0: none did */
};
struct ledger_member {
    struct ledger_gang *gang;
    struct ledger_pod *pod;
    uint32_t minimum; /* as this pod says; 0: unknown */
    int64_t since_ms; /* for core: creation of the pod; INT64_MAX: unknown */
    struct ledger_member *next, **from; /* `from` points to this one */
};

/* The node to which a pending pod is nominated. */
struct ledger_nomination {
    struct ledger_pod *pod;
    struct ledger_node *node;
    /* Bit i: card i of the node is kept for the pod, although other pods may still hold it
     * (ledger_pod_keep). */
    uint64_t kept;
    bool kept_in_api; /* `kept`, and status.nominatedNodeName names the same node */
    struct ledger_nomination *next, **from; /* of the node */
};

/* A pod that requests GPUs, pending or bound. A large cluster has tens of thousands, so
 * what only few of them have is in a block of its own. The ledger owns the strings. */
struct ledger_pod {
    struct span uid, ns, name;
    /* Of GPUs; shared by the pods that make an equal request. Bound: what the pod counts
     * for, see domain/promise.h. */
    const struct request *request; /* of a placed pod: what it means on its node */
    const struct request
        *asks; /* what it means on each node: its own, or that of request_on */
    /* Why the request is invalid; NULL: it is valid. A pending pod then has kind NONE. */
    const char *invalid_reason;
    struct terms *terms;          /* of a pending pod, as its object says */
    struct ledger_pod_edit *edit; /* of a pod whose Binding is in flight; or NULL */
    /* How annotations and request differ (domain/promise.h); NULL: they agree. */
    const char *differences;

    struct ledger_node *node; /* where it is bound or reserved; NULL: pending */
    struct ledger_share *shares;
    uint32_t created_s;    /* since 1970; 0: unknown */
    uint32_t first_sample; /* of its node, from 1: the first sample that may show it */
    int32_t priority;      /* saturated; the API has no larger one */
    uint8_t n_shares;      /* 0 with a node: its annotations name no card */
    uint32_t scheduler;    /* hash of spec.schedulerName */
    bool running : 1;      /* it has left Pending and may use its memory */
    bool terminating : 1;  /* it has a deletionTimestamp */
    bool mirror : 1, daemon : 1, never_preempts : 1, gated : 1; /* as in struct pod */
    bool
        unconfirmed : 1; /* for core: a list lacked it, which does not prove a deletion */
    bool final : 1;      /* bound, and the shares are its promise */
    bool unseen : 1; /* created with nodeName, and its kubelet has reported nothing yet */
    /* Bit i: it counts in full on card i of its node, whatever its shares say. */
    uint64_t other_cards;
    struct quota_amounts quota; /* what it counts for in those of its namespace */

    uint64_t seen;        /* for core: the last list that had it */
    int64_t confirmed_ms; /* for core: when it was last known to exist */
    int64_t spared_ms;    /* for core: it is not evicted before */
    int64_t retry_ms;     /* for core: when its last retry is due; 0: there was none */
    uint32_t retries;     /* for core: of CORE_RETRIES */
    uint32_t class;       /* of a pending pod: see requests_pend */

    struct ledger_pod *next, *prev; /* in the list of its node, or of pending pods */
    struct ledger_member *member;   /* of its gang; NULL: in none */
    struct ledger_nomination *nomination; /* of a pending pod; or NULL */
    char strings[];
};

static inline uint64_t ledger_pod_kept(const struct ledger_pod *pod)
{
    return pod->nomination ? pod->nomination->kept : 0;
}

/* Cards that are kept for a pending pod from filter to bind, with the CPU, memory and slot
 * that the pod requests of the node. It counts as memory that is not free, but only for
 * other pods of the same or a lower priority (ledger_cards_seen, ledger_requests_seen), and
 * it is not a promise: nothing is written anywhere, and its end harms nobody. It is kept
 * beside the pods, because filter can see a pod before the watch does. */
struct ledger_reservation {
    struct span uid, ns, name; /* of the pod; the ledger owns the strings */
    int64_t priority;
    const struct request *request; /* of memory or whole cards; the ledger has a copy */
    bool joint;    /* for core: made with those of its gang, and ends with them */
    bool cordoned; /* its node was cordoned when it was made: the pod tolerates that */
    struct ledger_share *shares;
    uint32_t n_shares;
    struct resources requests; /* of the node */
    int64_t until_ms;          /* for core: its time limit */
    struct ledger_node *node;
    struct ledger_reservation *next, *prev; /* of all, soonest until_ms first */
    struct ledger_reservation *next_here, **from_here; /* of its node */
};

/* The card where the share counts, of a pod or a reservation on the node; NULL: missing. */
static inline const struct card *ledger_share_card(const struct ledger_node *node,
                                                   const struct ledger_share *share)
{
    return share->on < 0 ? NULL : &node->cards[share->on];
}

struct ledger;

/* New. `seed` keys the hash tables; no result depends on it. */
struct ledger *ledger_new(const struct ledger_settings *settings, uint64_t seed);
void ledger_free(struct ledger *l);
const struct ledger_settings *ledger_settings(const struct ledger *l);

/* Objects. Each call replaces the object of that name. `list` is stored for ledger_unlisted. */
void ledger_node_seen(struct ledger *l, const struct node *node, uint64_t list);
void ledger_scv_seen(struct ledger *l, const struct scv *scv, uint64_t list);
void ledger_lease_seen(struct ledger *l, const struct lease *lease, uint64_t list);
/* Sets the age of the heartbeat; 0: fresh. It is kept until the node is removed; an unknown
 * node is ignored. */
void ledger_node_set_stale(struct ledger *l, struct span name, int64_t seconds);
void ledger_unhealthy_seen(struct ledger *l, const struct unhealthy_cards *u,
                           uint64_t list);

enum ledger_kind { LEDGER_NODE, LEDGER_SCV, LEDGER_LEASE, LEDGER_UNHEALTHY };
/* The object of the node with this name. */
void ledger_object_deleted(struct ledger *l, enum ledger_kind kind, struct span node);
/* The next node, from slot *at on, with an object of the kind that the list lacked; NULL: none
 * is left. */
const struct ledger_node *ledger_unlisted(const struct ledger *l, enum ledger_kind kind,
                                          uint64_t list, size_t *at);

/* A heartbeat Lease of another program: it explains a stale node. */
struct ledger_foreign_lease {
    struct span holder, renewed; /* as in the Lease, truncated; may be empty */
};

/* Facts about a node that only displays need. */
struct ledger_node_info {
    bool has_scv, has_lease;
    const struct ledger_foreign_lease *foreign; /* NULL: no Lease, or scv-agent's */
    int64_t scv_created_s;                      /* 0: unknown */
    bool has_sample;
    int64_t sample_s;            /* when the Scv's values were measured */
    const struct scv_held *held; /* containers with cards of nvidia.com/..., at least */
    size_t n_held;
    uint64_t held_cards; /* bit i: one of them has card i */
};
struct ledger_node_info ledger_node_info(const struct ledger_node *node);
/* The cards that a container of ledger_node_info has through nvidia.com/..., as bits. */
uint64_t ledger_held_cards(const struct ledger_node *node, const struct scv_held *held);
/* The next container that has cards through nvidia.com/... and whose pod the ledger does not know
 * on this node: it may have ended, or was deleted while its container still runs. *at: 0 at first.
 * NULL: there are no more. */
const struct scv_held *ledger_unknown_holder(const struct ledger_node *node, size_t *at);
/* The API server shows that the pod with this name and UID, which was on the node, has ended:
 * its containers have no cards, until the podList lacks them or ledger_pod_is_there. */
void ledger_pod_ended(struct ledger *l, struct span node, struct span ns,
                      struct span name, struct span uid);
/* A pod with this name and UID is on the node: containers of its name can be its own. */
void ledger_pod_is_there(struct ledger *l, struct span node, struct span ns,
                         struct span name, struct span uid);
/* Devices of nvidia.com/gpu that a pod on the node asks the kubelet for. */
static inline uint32_t ledger_pod_devices(const struct ledger_node *node,
                                          const struct ledger_pod *pod)
{
    return request_devices(request_on(pod->asks, node->dialect));
}
/* The cards that containers of the pod have through nvidia.com/... by the podList, as bits.
 * *devices: of nvidia.com/gpu, if not NULL. */
uint64_t ledger_pod_holds(const struct ledger_node *node, const struct ledger_pod *pod,
                          int64_t *devices);
/* MiB withheld because of processes outside Kubernetes, so without overuse. */
static inline int64_t card_external_mib(const struct card *card)
{
    return card->withheld_mib - card->overuse_mib;
}
/* Changes whenever any node does. While it is the same, pointers to nodes stay valid. */
uint64_t ledger_generation(const struct ledger *l);
/* Changes whenever a pending pod comes, goes or is edited. */
uint64_t ledger_pending_generation(const struct ledger *l);

/* Pods that request GPUs. Finds or creates the pod of that UID. Updates a pending pod:
 * request, priority, nomination. While cards are reserved for the pod, the update is
 * stored and applied by ledger_pod_unplace. CPU and memory are always updated. */
struct ledger_pod *ledger_pod_add(struct ledger *l, const struct pod *pod,
                                  const struct request *request, const char *why_not);
struct ledger_pod *ledger_pod_find(const struct ledger *l, struct span uid);
/* `scheduler` of a pod with this spec.schedulerName. */
uint32_t ledger_scheduler(struct span name);
/* Replaces the request of a placed pod. */
void ledger_pod_set_request(struct ledger *l, struct ledger_pod *pod,
                            const struct request *request, const char *why_not);
/* Sets `differences` of a placed pod (copied). */
void ledger_pod_set_differences(struct ledger *l, struct ledger_pod *pod,
                                struct span text);
/* Places the pod on the node with these shares (copied), or moves it there. */
void ledger_pod_place(struct ledger *l, struct ledger_pod *pod, struct span node,
                      const struct ledger_share *shares, uint32_t n);
/* Nominates the pending pod to the node and keeps these cards of it for the pod: they
 * count as taken for pods of equal or lower priority, also while other pods still hold
 * them. That ends when the pod is placed, when the API nominates it to another node, or
 * with `cards` 0: then only the nomination of the API counts. */
void ledger_pod_keep(struct ledger *l, struct ledger_pod *pod, struct span node,
                     uint64_t cards);
/* The containers of the placed pod have started. `before`: before this process started, so
 * the newest sample shows them. */
void ledger_pod_running(struct ledger *l, struct ledger_pod *pod, bool before);
/* The bind failed: ends the reservation. The pod is pending again, with its newest request.
 * It never used the memory. */
void ledger_pod_unplace(struct ledger *l, struct ledger_pod *pod);
/* The pod has ended or was deleted. Frees it. */
void ledger_pod_remove(struct ledger *l, struct ledger_pod *pod);

/* Bound pods that request no GPU. Only their CPU, memory and slot count. A pod
 * that becomes known as one with GPU must be removed here. `list` is stored for
 * ledger_nongpu_sweep. */
void ledger_nongpu_seen(struct ledger *l, struct span uid, struct span node,
                        const struct resources *requests, uint64_t list);
/* The pod, if it is known, is in the list, but could not be decoded. */
void ledger_nongpu_exists(struct ledger *l, struct span uid, uint64_t list);
/* Returns the node that the pod has left, if that has cards; or NULL. */
const struct ledger_node *ledger_nongpu_deleted(struct ledger *l, struct span uid);
/* Removes one of the pods that the list lacked, from position *at on, which begins
 * with 0; *node gets the node as above. False: there is none left. */
bool ledger_nongpu_sweep(struct ledger *l, uint64_t list, size_t *at,
                         const struct ledger_node **node);

/* What the pod requests of its node, with its slot. */
struct resources ledger_pod_requests(const struct ledger_pod *pod);
/* What the node offers to pods; 0: unknown. */
struct resources ledger_node_allocatable(const struct ledger_node *node);
/* Which of the terms exclude the node? */
enum terms_verdict ledger_node_judge(const struct ledger_node *node,
                                     const struct terms *pod);
/* Does the Node offer any of the resource of this request (aliyun.com/gpu-mem, gpu-share,
 * gpu-count, nvidia.com/gpu)? False: no device plugin serves it there. True also if the Node is
 * unknown. */
bool ledger_node_offers(const struct ledger_node *node, const struct request *r);
/* What all pods request that are bound to the node or reserved there, as in
 * kube-scheduler's NodeInfo. Pods that kube-scheduler has assumed there and not bound yet
 * are missing, unless they request GPUs and their bind is in flight. */
struct resources ledger_node_requested(const struct ledger_node *node);
/* The same as the pod `uid` sees it: with what is reserved for other pods of that priority
 * or a higher one. */
struct resources ledger_requests_seen(const struct ledger_node *node, int64_t priority,
                                      struct span uid);
/* Does the node have `wanted` beside what is requested? Unknown amounts count as enough. */
bool ledger_requests_fit(const struct ledger_node *node,
                         const struct resources *requested,
                         const struct resources *wanted);

/* The gang that the pod names, or NULL: none, or the ledger has no pod of it. */
const struct ledger_gang *ledger_gang_find(const struct ledger *l, struct span ns,
                                           const struct gang *gang);
const struct ledger_gang *ledger_gang_at(const struct ledger *l, struct span key);
/* Reservations. Reserves the shares on the node for the pod `uid`, and ends an earlier
 * reservation of that pod. `r` is copied; its node, links and `cordoned` are ignored. */
void ledger_reserve(struct ledger *l, const struct ledger_reservation *r,
                    struct span node);
void ledger_reservation_end(struct ledger *l,
                            struct ledger_reservation *r); /* frees it */
struct ledger_reservation *ledger_reservation_find(const struct ledger *l,
                                                   struct span uid);
/* The one whose time limit passes first; then ->next. */
struct ledger_reservation *ledger_first_reservation(const struct ledger *l);
/* Of the reservations on the node with a priority below `priority` whose memory or compute
 * is promised or reserved twice: the one of lowest priority, of those the latest. NULL: none. */
struct ledger_reservation *ledger_reservation_lost(const struct ledger_node *node,
                                                   int64_t priority);
/* Removes and returns one of the nodes with reservations that changed since they were last
 * returned; NULL: none. What rests on such a node is to be judged again. */
const struct ledger_node *ledger_next_changed(struct ledger *l);
/* The reservation of the pod on this node, or NULL. */
const struct ledger_reservation *ledger_reservation_on(const struct ledger_node *node,
                                                       struct span uid);
/* Copies the node's cards as the pod `uid` sees them: without its own reservation and
 * those of lower priority. `cards` has node->n_cards members. */
void ledger_cards_seen(const struct ledger_node *node, int64_t priority, struct span uid,
                       struct card *cards);
/* Changes cards that the pod `uid` of priority `from` sees to those that one of priority `to`
 * sees. */
void ledger_cards_release(const struct ledger_node *node, int64_t from, int64_t to,
                          struct span uid, struct card *cards);
/* Changes cards of the node, as some pod sees them, to what they are once the pods that
 * terminate have left. Returns `claimed` of the node without those pods. */
uint64_t ledger_cards_left(const struct ledger_node *node, struct card *cards);
/* The bits of all cards of the node. */
static inline uint64_t ledger_all_cards(const struct ledger_node *node)
{
    return node->n_cards < SCV_MAX_CARDS ? (UINT64_C(1) << node->n_cards) - 1
                                         : UINT64_MAX;
}

/* The ResourceQuotas, for which the ledger counts what pods use by promises and reservations. The
 * caller adds and deletes the objects. */
struct quotas *ledger_quotas(struct ledger *l);
/* What shares count for in a quota: of a pod, by the cards of its node now, or of a reservation,
 * without the node. */
struct quota_amounts ledger_quota_amounts(const struct request *request,
                                          const struct ledger_share *shares, uint32_t n,
                                          const struct ledger_node *node);

/* Reading. */
/* Does the node have an object of that kind? */
bool ledger_node_has(const struct ledger *l, struct span name, enum ledger_kind kind);
/* NULL: no object and no pod with GPU names the node. */
const struct ledger_node *ledger_node_find(const struct ledger *l, struct span name);
/* Finds many nodes, faster than one by one: nodes[i] is the node names[i], or NULL. Also
 * prefetches their first cache lines. */
void ledger_nodes_find(const struct ledger *l, const struct span *names, size_t n,
                       const struct ledger_node **nodes);
uint32_t ledger_node_slots(const struct ledger *l);
/* By slot; NULL: the slot is free, or only pods without GPU name the node. */
const struct ledger_node *ledger_node_at(const struct ledger *l, uint32_t slot);
struct ledger_totals {
    size_t nodes;
    /* Overcommitted cards (also: promised whole and to another pod). While pods are being
     * listed, deleted pods may still count. */
    size_t overcommitted;
    size_t pending; /* pods */
    size_t nongpu_pods,
        nongpu_bytes; /* bound pods without GPU; the size of their table */
    size_t reservations;
};
struct ledger_totals ledger_totals(const struct ledger *l);
struct ledger_pod *ledger_first_pending(const struct ledger *l);
/* The pod that has been pending for longest; the next one is its `prev`. */
struct ledger_pod *ledger_last_pending(const struct ledger *l);
/* The classes of pending pods, the request mix of all pods so far, and the kinds of cards. */
const struct requests *ledger_requests(const struct ledger *l);
/* All pods, pending ones first. A pod may be removed after its next one is known. */
struct ledger_pod *ledger_first_pod(const struct ledger *l);
struct ledger_pod *ledger_next_pod(const struct ledger *l, const struct ledger_pod *pod);
/* MiB of the pod on a card of its node; -1: none. */
int64_t ledger_pod_mib(const struct ledger_pod *pod, const struct card *card);
/* The unit of the pod's promise on the first card that it has, in MiB, if that is not the
 * ledger's; or 0. */
int64_t ledger_pod_other_unit(const struct ledger_pod *pod);
/* Percent of the card's compute that the pod has; 0: none; above 100 where several of its
 * shares are on the card. A whole card counts by itself. */
uint32_t ledger_pod_core(const struct ledger_pod *pod, const struct card *card);

/* What the containers of a pod use of a card, by the node's Scv: measured, up to a minute
 * old. */
struct ledger_use {
    int64_t used_mib, sm_percent; /* -1: unknown */
    /* SCV_ISOLATION_ bits: what holds each of the containers; without KNOWN: unknown of one. */
    uint8_t enforced_by;
};
/* False: the Scv shows no use. The card is one of the node's. */
bool ledger_pod_use(const struct ledger_node *node, const struct ledger_pod *pod,
                    const struct card *card, struct ledger_use *use);
/* Is the card healthy, without promises, reservations and withheld memory? */
static inline bool card_is_free(const struct card *card)
{
    return card->state == CARD_AVAILABLE && card->pods == 0 && card->withheld_mib == 0 &&
           card->reserved_mib == 0 && card->total_mib > 0;
}
/* Has no pod a promise or a reservation on it? */
static inline bool card_is_unpromised(const struct card *card)
{
    return card->pods == 0 && card->reserved_mib == 0;
}
/* Adds to an amount of compute, or removes from it; saturated. */
static inline void card_add_core(uint16_t *sum, int64_t percent)
{
    int64_t value = *sum + percent;
    *sum = (uint16_t)(value > UINT16_MAX ? UINT16_MAX : value < 0 ? 0 : value);
}
/* Adds what the request has there of a pod; saturated, because annotations can claim anything. */
static inline void card_charge(struct card *card, const struct request *r, int64_t mib,
                               uint32_t core)
{
    card->promised_mib += card->promised_mib < (int64_t)1 << 60 ? mib : 0;
    card->pods++;
    card->whole |= r->kind == REQUEST_CARDS;
    card_add_core(&card->compute_promised, core);
    card->slots_left -= (int32_t)r->slots;
}
/* Removes what all pods have there, but for their slots. */
static inline void card_discharge(struct card *card)
{
    card->promised_mib = card->pods = card->compute_promised = 0;
    card->whole = false;
}
/* Percent of its compute that new pods can have. */
static inline uint32_t card_core_left(const struct card *card)
{
    uint32_t taken = (uint32_t)card->compute_promised + card->compute_reserved;
    return card->state == CARD_AVAILABLE && !card->whole && taken < REQUEST_CORE
               ? REQUEST_CORE - taken
               : 0;
}
/* What free_mib is derived from. */
static inline int64_t card_left_mib(const struct card *card)
{
    int64_t left =
        card->total_mib - card->promised_mib - card->withheld_mib - card->reserved_mib;
    return card->state == CARD_AVAILABLE && !card->whole && left > 0 ? left : 0;
}

/* Does the Node object have the key? If it cannot be decoded: no. */
bool ledger_is_template(struct span object);

/* New: a ledger that has the template Node alone, with the unit of `settings`. `cards`:
 * what the key names. NULL: the key is absent (ERR_NOT_FOUND) or malformed, or the object
 * cannot be decoded (ERR_INVALID). */
struct ledger *ledger_of_template(struct span object,
                                  const struct ledger_settings *settings,
                                  struct node_cards *cards, struct err *err);
/* Does the node have just these cards? */
bool ledger_matches_template(const struct node_cards *cards,
                             const struct ledger_node *node);
