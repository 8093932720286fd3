/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "domain/pod.h"
#include "domain/scv.h"

/*
 * The raw limits of a pod: the amount of each resource in its spec, without any
 * validation. Labels and annotations are ignored. This is the minimum that a bound pod
 * counts for.
 *
 * Containers add up as in Kubernetes (k8s.io/component-helpers/resource, PodRequests):
 * app containers and sidecars run concurrently; a plain init container runs only beside
 * the sidecars that started before it; the larger sum counts. Pod-level resources
 * (spec.resources) are ignored: the API server accepts only cpu, memory and hugepages
 * there.
 *
 * A fraction is rounded up, as in Quantity.Value(). A sum is never above LIMITS_MAX,
 * which is far above any node. An invalid quantity also counts as LIMITS_MAX: no API
 * server stores one, and too much is safe.
 */

#define LIMITS_MAX ((int64_t)1 << 40)

struct limits {
    union {
        int64_t of[POD_LIMITS];
        struct {
            int64_t mem;             /* units of aliyun.com/gpu-mem */
            int64_t cards;           /* whole cards: aliyun.com/gpu-count */
            int64_t devices;         /* nvidia.com/gpu */
            int64_t slots;           /* aliyun.com/gpu-share */
            int64_t compute_percent; /* aliyun.com/gpu-core.percentage */
        };
    };
    bool mem_in_init; /* a plain init container requests gpu-mem */
};

struct limits limits_of(const struct pod *pod);
/* Units of gpu-mem as the Go extender and its plugin count them: of app containers alone, and
 * nothing for a quantity that is invalid. */
int64_t limits_of_go(const struct pod *pod);

/* Compute alone is not a limit: it is a share of the cards that the others give. */
static inline bool limits_any(const struct limits *l)
{
    return l->mem || l->cards || l->devices || l->slots;
}

/*
 * The request of a pod, from its container limits, labels and annotations.
 *
 *   gpu-mem: n              n units of memory on one card, shared with other pods
 *   ... and gpu-count: k    (label or annotation) the n units evenly over k cards
 *   gpu-share: k            (limit) one slot on each of k different cards, for each container
 *   ... and gpushare/memory (annotation) "6Gi", "6144Mi", or "50%" of what a card can promise:
 *                           what the pod has of each card. Its containers get even parts, in
 *                           whole MiB: that of as many containers as run concurrently
 *   gpu-count: k            (limit) k whole cards
 *   nvidia.com/gpu: k       (limit) k whole cards that NVIDIA's device plugin chooses
 *   scv/number, scv/memory  (labels; no limit) so many cards, MiB on each
 *   gpu-core.percentage: n  (beside gpu-mem or gpu-share, in the same containers) n percent of the
 *                           compute of a card, evenly over the cards of the memory
 *
 * The annotation gpu.model and the label scv/clock restrict any of these to matching
 * cards, gpushare/min-link all but nvidia.com/gpu to connected ones. Labels beside a limit must
 * not request more than the limit.
 *
 * Limits of several containers add up as in Kubernetes (limits_of).
 *
 * With rules->dialect, a pod with limits of that system (domain/dialect.h) asks for what its table
 * says, on nodes of that dialect. nvidia.com/gpu alone has a meaning on other nodes, too, so such a
 * pod has two requests: request_on chooses. Once it is bound it has one promise.
 */

enum request_kind {
    REQUEST_NONE,    /* no GPU */
    REQUEST_MEMORY,  /* memory on shared cards */
    REQUEST_CARDS,   /* whole cards, exclusive */
    REQUEST_DEVICES, /* nvidia.com/gpu: the kubelet chooses the cards */
};

/* How to interpret requests; options of the extender. */
struct request_rules {
    int64_t unit_mib;   /* of aliyun.com/gpu-mem */
    bool clock_exact;   /* scv/clock is the exact clock, as for Yoda; else the minimum */
    bool number_shares; /* scv/number without scv/memory: so many healthy cards without
                           a reservation, as for Yoda; else whole cards */
    bool ignore_links;  /* as if each pod had gpushare/topology: none */
    const struct dialect *dialect; /* read as well; NULL: none */
};

/* The part of an app container or sidecar, for the allocation annotation. A request in a dialect
 * has parts of plain init containers, too, which that annotation lacks. */
struct request_part {
    uint32_t index;
    uint8_t role; /* enum container_role */
    uint8_t
        percent; /* in a dialect: of what a card can promise, until request_settle; 0: MiB */
    bool by_default; /* in a dialect: no limit says how much memory */
    bool
        alone; /* ... and it leaves its cards to no other pod, whatever the defaults are */
    int64_t
        amount; /* units of memory (of slots: MiB), or cards; in a dialect MiB of each card */
    struct span name; /* of the container; lives as long as the part */
};

/* A kind of card: all that a request can select cards by. {0}: nothing is known of the card. */
struct card_kind {
    struct span model;
    struct span profile; /* of an instance of a card in MIG mode; empty: a full card */
    struct scv_spec spec;
    int64_t total_mib; /* that can be promised */
    int64_t kept_mib;  /* by the driver, beside the total */
    uint8_t id; /* in struct requests; 0: one of those that it does not distinguish */
};
static const struct card_kind card_kind_unknown;

/* Requests are compared byte by byte, so no comparison can forget a member. So the struct has no
 * padding, which the compiler checks: one-byte members come in eights. Texts and parts are compared
 * by request_equal and write_key (requests.c), and copied there and by
 * request_copy_without_parts. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"
struct request {
    enum request_kind kind : 16;
    /* For nodes of that dialect only. Until request_settle, `units` are 0 and the parts say what it
     * takes of a card; `percent` and mib_per_card are for display. Kind NONE: it is invalid there,
     * and `words` say why. */
    enum scv_dialect dialect : 16;
    enum request_placement placement;
    uint32_t cards;   /* different cards, at least 1 unless NONE */
    uint32_t devices; /* of nvidia.com/gpu beside another kind: only in a bound pod whose
                         request is invalid */
    uint32_t
        slots; /* MEMORY by gpu-share or in a dialect: on each card; 0: by gpu-mem or labels */
    /* MEMORY of slots: of what a card can promise, until request_settle; all cards have one size.
     * Then units, mib_per_card and the parts are 0. 0: in MiB. */
    uint32_t percent;
    int64_t units; /* MEMORY: of the whole pod; a multiple of cards. Of slots: MiB */
    int64_t mib_per_card; /* MEMORY; for CARDS, DEVICES: minimum size of a card, or 0 */
    bool by_label;        /* from labels: the MiB need not be a multiple of the unit;
                             `units` are rounded up */
    /* Of a bound pod: from the annotations of its Binding, because its labels ask for less now, or
     * gpushare/memory for another amount. */
    bool recorded;
    bool clock_exact;
    bool ignores_links; /* in the choice of the cards; not with min_link */
    bool near_gang;     /* its gang wants one node, and connected cards there */
    uint8_t min_link;   /* each two cards are so connected at least (links.h); 0: any */
    uint8_t
        isolation; /* MEMORY: SCV_ISOLATION_ bits, one of which the node needs; 0: none */
    uint8_t
        compute_percent; /* MEMORY: percent of the compute of each card; 0: no share */
    size_t n_parts;
    int64_t clock_mhz;          /* minimum memory clock; 0: any */
    struct span models;         /* comma-separated; empty: any model */
    struct span rules, words;   /* in a dialect: of request_rules_accept; dialect_write */
    struct request_part *parts; /* app containers and sidecars with a limit */
    const struct request
        *hami; /* on nodes of that dialect; NULL: the same. It has none itself */
};
#pragma GCC diagnostic pop

/* The request of a pod on a node of that dialect. */
static inline const struct request *request_on(const struct request *r,
                                               enum scv_dialect dialect)
{
    return r->hami && dialect != SCV_DIALECT_NONE ? r->hami : r;
}

/* Computes the request. -1 when it is invalid; the message is for the pod's owner. `parts`
 * and `models` are in the arena. What a pod that is not bound says of its isolation and of its
 * gang (gang_check) must be readable, too. */
int request_of(const struct pod *pod, const struct request_rules *rules, struct arena *a,
               struct request *request, struct err *err);

/* The request of the limits alone, without validation of the pod: memory of one card, or
 * whole cards. A bound pod with an invalid request counts for this. */
void request_of_limits(const struct limits *limits, const struct request_rules *rules,
                       struct request *request);

/* The number of nvidia.com/gpu devices, for any kind of request. */
static inline uint32_t request_devices(const struct request *r)
{
    return r->kind == REQUEST_DEVICES ? r->cards : r->devices;
}

/* Percent of a card's compute, if the whole request were on that card. */
static inline uint32_t request_full_core(const struct request *r)
{
    uint32_t all = r->compute_percent * r->cards;
    return all < REQUEST_CORE ? all : REQUEST_CORE;
}

/* Do the annotations of a request in a dialect accept a card of that model, of that UUID? NULL:
 * any. */
bool request_rules_accept(const struct request *r, const struct span *model,
                          const struct span *uuid);

/* Does the list of models, which is not empty, name this one? */
bool request_names_model(const struct request *r, struct span model);

/* Does it accept an instance of a card in MIG mode? Memory on one card can be on any; else the
 * list of models names its profile or model, and nothing else if the request is for several
 * cards: these are of one kind, and no full cards. */
bool request_accepts_instance(const struct request *r, const struct card_kind *kind);

/* Does it accept a card of that kind: by its clock, its model, and the rules of a dialect? Nothing
 * else decides on what a card is. A new condition is one more term, and one more member that
 * request_of_any_card below clears. */
static inline bool request_accepts_card(const struct request *r,
                                        const struct card_kind *kind)
{
    const int64_t mhz = kind->spec.clock_mhz;
    return (!r->clock_mhz ||
            (r->clock_exact ? mhz == r->clock_mhz : mhz >= r->clock_mhz)) &&
           (kind->profile.n ? request_accepts_instance(r, kind)
                            : !r->models.n || request_names_model(r, kind->model)) &&
           (!r->rules.n || request_rules_accept(r, &kind->model, NULL));
}

/* Does it set a condition, so that it does not accept a card of which nothing is known? */
static inline bool request_is_selective(const struct request *r)
{
    return r->rules.n || !request_accepts_card(r, &card_kind_unknown);
}

/* The request without these conditions. */
static inline struct request request_of_any_card(const struct request *r)
{
    struct request any = *r;
    any.models = any.rules = (struct span){0};
    any.clock_mhz = 0;
    return any;
}

/* request_mib of one in a dialect that is not settled. */
int64_t request_mib_of_parts(const struct request *r, int64_t total_mib,
                             int64_t kept_mib);
/* What a bound pod in a dialect has at least of a card, whatever its record says: what its limits
 * ask for without what defaults add, at most all of it; of a percentage one MiB less. 0: another
 * request. */
int64_t request_mib_of_limits(const struct request *r, int64_t total_mib);
/* What a container in a dialect has of a card. */
int64_t request_part_mib(const struct request_part *part, int64_t total_mib,
                         int64_t kept_mib);

static inline bool request_is_unsettled(const struct request *r)
{
    return r->dialect && !r->units;
}

/* Is what it takes a part of the card? The cards of a node are beyond its first cache
 * lines. */
static inline bool request_is_of_card(const struct request *r)
{
    return r->kind == REQUEST_MEMORY && (r->percent || request_is_unsettled(r));
}

/* MiB that it takes of a card that can promise total_mib, where the driver keeps kept_mib more; of
 * whole cards the size that it asks for at least. */
static inline int64_t request_mib(const struct request *r, int64_t total_mib,
                                  int64_t kept_mib)
{
    return request_is_unsettled(r) ? request_mib_of_parts(r, total_mib, kept_mib)
           : r->percent            ? total_mib * r->percent / 100
                                   : r->mib_per_card;
}

/* Makes a request of slots or in a dialect one of so many MiB on each card, which changes the parts
 * in place. A card can promise total_mib. */
void request_settle(struct request *r, int64_t mib, int64_t total_mib);

/* MiB that it takes of a card of that kind; of whole cards the size that it asks for at least.
 * -1: it does not accept the card. */
int64_t request_amount(const struct request *r, const struct card_kind *kind);

/* Does it need nothing of ours, on a node where it has this meaning? */
static inline bool request_needs_nothing(const struct request *r)
{
    return (r->kind == REQUEST_NONE && !r->dialect) ||
           (r->kind == REQUEST_DEVICES && !request_is_selective(r) &&
            r->mib_per_card == 0);
}

/* Does it fit every node? */
static inline bool request_fits_anywhere(const struct request *r)
{
    return request_needs_nothing(r) && !r->hami;
}

/* Are cards of ours for it, on some nodes? */
static inline bool request_takes_cards(const struct request *r)
{
    return r->kind == REQUEST_MEMORY || r->kind == REQUEST_CARDS ||
           (r->hami && r->hami->kind != REQUEST_NONE);
}

/* The request without its parts, unless these are what it asks for. */
static inline struct request request_without_parts(const struct request *r)
{
    struct request whole = *r;
    if (r->dialect)
        return whole;
    whole.parts = NULL;
    whole.n_parts = 0;
    return whole;
}
/* The same, with copies of its texts and of what remains of the parts. */
struct request request_copy_without_parts(const struct request *r, struct arena *a);
/* Are the requests the same, apart from these parts? */
bool request_equal(const struct request *a, const struct request *b);

/* Appends what it says of a card, each behind a comma: ", model T4, memory clock at least
 * 5001 MHz". */
void request_write_card(struct buf *out, const struct request *r);
/* Appends what a card is, as far as the request says something of it: "T4", "T4 (5001 MHz)". Cards
 * with the same text are counted as one kind. */
void request_write_kind(struct buf *out, const struct request *r,
                        const struct card_kind *kind);
/* A short form for messages: "8 GiB", "8 GiB on 2 cards", "2 whole cards". */
void request_write(struct buf *out, const struct request *request, int64_t unit_mib);
