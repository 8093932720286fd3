/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/ledger.h"

/* Bound pods that request no GPU. A cluster may have many, so each takes 24 bytes in a hash
 * table, of which at least 3/16 is used. A pod is identified by a 64-bit hash of its UID,
 * keyed with the ledger's seed. */
enum { NONGPU_BYTES = 24 };
struct nongpu_pods {
    struct nongpu_slot *slots;
    size_t n, cap; /* cap is a power of two, or 0 */
    uint64_t seed;
    uint64_t list; /* the list that the marks belong to */
};

/* Memory of a pod that left: the newest sample, which arrived before, still shows it as
 * used. */
struct departure {
    uint64_t pod, uuid; /* scv_hash; of a card without UUID: 0 */
    int32_t card;       /* its index */
    int64_t mib;        /* its promise if the sample includes the pod, else 0 */
    int64_t promised;   /* its promise */
};
bool ledger_departure_is_of(const struct departure *d, const struct card *card);

/* What a container or process uses of a card of the Scv. */
struct ledger_use_entry {
    uint64_t pod; /* as in struct scv_pod_use */
    int64_t used_mib;
    int16_t sm_percent;
    uint8_t card; /* position in scv_cards */
    enum scv_user user : 8;
    uint8_t enforced_by; /* SCV_ISOLATION_ bits */
};

/* The measured use of a card, by user. */
struct ledger_measured {
    bool exact;          /* false: unknown, and the rest is 0 */
    int64_t outside_mib; /* of no pod with a promise */
    int64_t overuse_mib; /* of pods with promises, beyond those on this card */
};

/* A card that the kubelet gave to a pod, by the podList. */
struct ledger_assignment {
    uint64_t pod, card; /* of scv_pod_hash and scv_hash */
    int32_t at;         /* position in scv_cards; -1: missing */
};

/* The decoded objects of a node. */
struct ledger_node_facts {
    bool has[4];      /* by enum ledger_kind */
    uint64_t seen[4]; /* the last list that had it */

    struct node_resources capacity, allocatable;
    int64_t memory; /* allocatable, bytes; 0: unknown */
    /* What the pods of the node request that request no GPU. */
    int64_t nongpu_cpu_milli, nongpu_memory;
    uint32_t nongpu_pods;
    uint32_t pod_slots; /* allocatable; 0: unknown */
    enum node_mode mode;

    /* owned, in one block with their models and strings */
    struct ledger_scv_card *scv_cards;
    size_t n_scv_cards;
    const struct links *links; /* of the ledger's pool; NULL: unknown */
    uint64_t links_hash;       /* of what they were made of */
    uint32_t links_changes;
    /* owned, in one block with their UUIDs and strings: containers in the podList that
     * hold cards of nvidia.com/... */
    struct scv_held *holders;
    size_t n_holders;
    /* owned: of the podList, for our resources. They stay when the Scv loses
     * its podList, because scv-agent omits it while the kubelet does not answer. */
    struct ledger_assignment *assignments; /* sorted by pod */
    size_t n_assignments;
    struct ledger_use_entry *uses; /* owned; sorted by pod */
    size_t n_uses;
    uint64_t held; /* bit i: scv_cards[i] is held through a resource of another plugin */
    uint64_t duplicates; /* bit i: another card has the UUID of scv_cards[i] */
    int64_t scv_created_s;
    bool scv_damaged, has_sample;
    uint8_t isolation; /* of the Scv */
    enum scv_dialect dialect : 8;
    bool assignments_kept; /* they are of a former Scv */
    int64_t sample_s;      /* when the Scv's values were measured, by the node's clock */
    uint32_t samples;      /* number of different samples so far */

    struct span cordon;  /* owned: hami.io/device-cordon */
    struct terms *terms; /* owned */
    bool cordoned, node_damaged, included;
    struct ledger_foreign_lease *foreign; /* owned, in one block; NULL: none */

    int32_t *listed; /* cards in the ConfigMap */
    size_t n_listed;
    bool list_damaged;

    struct departure *departures;
    size_t n_departures, departures_cap;
};

/* The newest state of an unbound pod while cards are reserved for it. */
struct ledger_pod_edit {
    const struct request *request; /* taken, like that of the pod */
    char *invalid_reason;          /* or NULL */
    struct span nominated;         /* owned: name of a node, or empty */
    int32_t priority;
};

/* Nodes are contiguous, or reading thousands of them would need a page walk for each. They
 * never move. */
enum { LEDGER_CHUNK = 64 };

struct ledger {
    struct ledger_settings settings;
    struct map nodes_by_name, pods_by_uid, reservations_by_uid;
    struct nongpu_pods nongpu;
    struct map gangs; /* by gang_key */
    struct quotas quotas;
    struct ledger_node **chunks; /* of LEDGER_CHUNK contiguous slots each */
    size_t n_chunks, chunks_cap;
    size_t n_nodes; /* slots ever used */
    uint32_t *free_slots;
    size_t n_free_slots, free_slots_cap;
    struct requests requests;
    struct ledger_pod *pending, *last_pending; /* newest first */
    size_t n_pending;
    struct list links; /* of the nodes */
    uint64_t generation;
    uint64_t pending_generation; /* changes with every pending pod */
    size_t n_overcommitted;      /* overcommitted cards */
    struct ledger_reservation *first_reservation, *last_reservation; /* by until_ms */
    size_t n_reservations;
    uint32_t *changed; /* slots of nodes, for ledger_next_changed */
    size_t n_changed, changed_cap;
};

static inline int32_t ledger_saturated(int64_t value)
{
    if (value > INT32_MAX)
        return INT32_MAX;
    return value < INT32_MIN ? INT32_MIN : (int32_t)value;
}

/* A list whose items know the pointer that points to them (`from`), so that any of them
 * leaves at once: lists of a gang, and of the nominated pods and reservations of a node, are as
 * long as tenants make them. */
#define LEDGER_LINK(head, item, next, from)                                              \
    do {                                                                                 \
        (item)->next = (head);                                                           \
        (item)->from = &(head);                                                          \
        if (head)                                                                        \
            (head)->from = &(item)->next;                                                \
        (head) = (item);                                                                 \
    } while (0)
#define LEDGER_UNLINK(item, next, from)                                                  \
    do {                                                                                 \
        *(item)->from = (item)->next;                                                    \
        if ((item)->next)                                                                \
            (item)->next->from = (item)->from;                                           \
    } while (0)

/* Of the pod's assignments. */
static inline uint64_t ledger_pod_hash(const struct ledger_pod *pod)
{
    return scv_pod_hash(pod->ns, pod->name);
}

/* As span_put, with a NUL. */
static inline struct span ledger_put_string(struct span text, char **at)
{
    struct span copy = span_put(text, at);
    *(*at)++ = '\0';
    return copy;
}

/* The cards of the node, whose kinds may end, no longer count; ledger_derive has to follow. */
void ledger_forget_cards(struct ledger *l, struct ledger_node *node);
/* Sets the request of the pod to what it asks for where it is, and counts that in the quotas. */
void ledger_pod_settle(struct ledger *l, struct ledger_pod *pod);
/* Recomputes all derived values of the node (ledger_derive.c). */
void ledger_derive(struct ledger *l, struct ledger_node *node);

/* Recomputes the node's free CPU (nongpu_pods.c). */
void ledger_requests_settle(struct ledger_node *node);

/* Replaces the copy of the Scv, or drops it (ledger_scv.c). */
void ledger_facts_copy_scv(struct ledger *l, struct ledger_node *node,
                           const struct scv *scv);
void ledger_facts_drop_scv(struct ledger *l, struct ledger_node *node);
/* The pod's assignments; *n gets their number. */
const struct ledger_assignment *ledger_facts_assigned(const struct ledger_node_facts *f,
                                                      const struct ledger_pod *pod,
                                                      size_t *n);
/* Sums up which cards containers hold, beside promises. */
void ledger_facts_sum_up_held(const struct ledger_node *node);
/* The pod leaves the node: what the sample shows of it, and its assignments. */
void ledger_facts_depart(struct ledger_node *node, const struct ledger_pod *pod);
/* The measured use of each card. Promises are charged to the cards already. */
void ledger_use_measure(const struct ledger_node *node,
                        struct ledger_measured measured[SCV_MAX_CARDS]);

struct ledger_node *ledger_node_slot(const struct ledger *l, size_t slot);
/* Finds or creates the node. */
struct ledger_node *ledger_node_need(struct ledger *l, struct span name);
/* Frees the node when it has no objects and no pods. */
void ledger_node_drop_if_unused(struct ledger *l, struct ledger_node *node);
/* Pods and gangs. */
void ledger_pods_init(struct ledger *l, uint64_t seed);
void ledger_pods_free(struct ledger *l);
void ledger_reservations_free(struct ledger *l);
/* New, in one block with the UUIDs; of no card. */
struct ledger_share *ledger_shares_copy(const struct ledger_share *shares, uint32_t n);
/* What it reserves on the card of its i-th share, which is not missing. */
int64_t ledger_reserved_mib(const struct ledger_reservation *r, uint32_t i);
/* Bits of the cards that the podList shows for the pod. */
uint64_t ledger_listed_cards(const struct ledger_node *node,
                             const struct ledger_pod *pod);
/* Bits of the cards whose newest sample includes the pod's memory. */
uint64_t ledger_pod_used_cards(const struct ledger_node *node,
                               const struct ledger_pod *pod);
