/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/mutant.h"
#include "domain/ledger.h"

/*
 * Which cards of a node a request gets, and whether it fits there at all. Filter, score, bind,
 * reservations, gangs, preemption and defrag all ask here, so they cannot disagree.
 *
 * One place decides a condition that a request sets on a card: on what the card is,
 * request_accepts_card (domain/request.h); on what is left of it, card_fits in select.c. Which
 * requests the sums and rows of a node decide, without its cards, follows from these two. (Where
 * the condition is read and put into words: "Where would I add" in docs/architecture.md.) A
 * condition on the node belongs into select_obstacle there, and into select_least_mib. A reason why
 * a card takes no pod at all belongs into the state of the card (domain/ledger_derive.c).
 *
 * A request in a dialect has another meaning on nodes of that dialect: all functions here take the
 * request of the pod, and apply request_on, unless they say otherwise.
 *
 * A set of cards is a uint64_t: bit i is node->cards[i]. A request gets cards that fit, in the
 * order of the pod's policy:
 *   binpack  least free memory first (keeps large free blocks)
 *   spread   most free memory first
 * Ties go to the lowest index. Where it is known what connects the cards, a request of several
 * gets the set that card_set.h chooses, unless it ignores links. For nvidia.com/gpu the kubelet
 * chooses the cards: the node fits if enough cards suit, are neither allocated nor promised, and
 * are not claimed by pods that were bound earlier. Other requests get so many fewer of the cards
 * without a promise.
 */

enum fit {
    FIT_YES,
    FIT_LATER, /* not now: memory is taken, a card is unhealthy, an object is missing */
    FIT_NEVER, /* not even if all pods leave: too small, too few cards, wrong mode or isolation */
    FIT_ASK, /* of select_fit_one: ask select_fit_beside */
};

/* What stands between a pending pod and a node; placement/reason.h has its words. */
enum obstacle_kind {
    OBSTACLE_NONE,
    /* Of the node, for which kube-scheduler does not ask the extender. */
    OBSTACLE_SELECTOR, /* the pod's nodeSelector or required node affinity */
    OBSTACLE_TAINTS,   /* the pod does not tolerate them */
    OBSTACLE_CORDON,
    /* Of the node, for the request of GPUs: only the first of these. */
    OBSTACLE_NODE,    /* it takes no pods: see enum node_state */
    OBSTACLE_DIALECT, /* another one, or the request is invalid there */
    OBSTACLE_MODE,
    OBSTACLE_ISOLATION,
    OBSTACLE_NO_SCV, /* models and clocks are unknown */
    OBSTACLE_NO_LINKS,
    OBSTACLE_NO_COMPUTE,
    OBSTACLE_NO_SLOTS,
    OBSTACLE_NOMINATED, /* room is kept for nominated pods */
    OBSTACLE_LINKS,     /* cards, of which too few are connected as demanded */
    OBSTACLE_CARDS,     /* cards that take their part: needed, and there */
    /* Of the node, for the rest of the pod. */
    OBSTACLE_OFFER,       /* no device plugin offers the resource */
    OBSTACLE_CPU,         /* thousandths of a core */
    OBSTACLE_NODE_MEMORY, /* bytes */
    OBSTACLE_PODS,        /* pods with this one, and slots */
    /* Of a card: only the first of these. */
    OBSTACLE_MODEL,     /* or clock: request_accepts_card */
    OBSTACLE_SIZE,      /* MiB */
    OBSTACLE_UNHEALTHY, /* of enum card_state */
    OBSTACLE_EXCLUDED,
    OBSTACLE_HELD,
    OBSTACLE_DUPLICATE,
    OBSTACLE_WHOLE,  /* promised as a whole card */
    OBSTACLE_MEMORY, /* MiB that are free */
    OBSTACLE_SLOTS,
    OBSTACLE_COMPUTE, /* percent */
    OBSTACLE_SHARED,  /* MiB: the whole card is needed, and so much of it is free */
    OBSTACLES
};
_Static_assert(OBSTACLE_WHOLE - OBSTACLE_UNHEALTHY == CARD_STATES - CARD_UNHEALTHY,
               "a state without an obstacle");

#define SELECT_ALL_CARDS UINT64_MAX

/* The pending pod. Everything is borrowed. */
struct select_pod {
    const struct request *request;
    int64_t priority;
    struct span uid;
    const struct ledger_gang *gang; /* nominations of its members do not count; or NULL */
};

static inline struct select_pod select_pod_of(const struct ledger_pod *pod)
{
    return (struct select_pod){pod->request, pod->priority, pod->uid, NULL};
}

/*
 * The rule about reservations and nominated pods. A nominated pod precedes the pending pod if
 * its priority is equal or higher, as in kube-scheduler. It gets cards that fit once the pods
 * that terminate have left the node: the victims of its preemption leave in any order. If it
 * does not fit even then, it gets none.
 */
enum select_nominated {
    /* Filter and bind: the cards without the pod's own reservation and those of lower priority,
     * beside all nominated pods that precede it. */
    SELECT_ALL,
    /* The cards as they are: every reservation counts, no nominated pod does. */
    SELECT_AS_IS,
};

/* The cards of a node as a pending pod sees them. Valid while the ledger is unchanged. */
struct select_view {
    const struct ledger_node *node;
    struct card *cards; /* the node's, which do not change; or own; or given */
    const struct ledger_rows
        *rows;        /* of the node's cards, if they are seen as they are and
                                        the rows are valid; or NULL */
    uint64_t claimed; /* cards that other pods are about to get through nvidia.com/gpu */
    struct card own[SCV_MAX_CARDS];
};

/* `pod` may be NULL for SELECT_AS_IS. */
void select_view(struct select_view *view, const struct ledger_node *node,
                 const struct select_pod *pod, enum select_nominated nominated);
/* A dry run: the node with these node->n_cards cards instead of its own. The cards are
 * borrowed, and select_take and select_take_nominated change them. */
void select_view_cards(struct select_view *view, const struct ledger_node *node,
                       struct card *cards, uint64_t claimed);

/* The cards that can take their part of the request now, each on its own. */
uint64_t select_mask(const struct select_view *view, const struct request *request);

/* Whether the request fits on the node, on cards of `within`. `chosen`, unless NULL: the
 * cards; 0 if it does not fit, and for nvidia.com/gpu. */
enum fit select_cards(const struct select_view *view, const struct request *request,
                      uint64_t within, uint64_t *chosen);

/* The cards that are wholly free, as the view has them. */
static inline uint64_t select_whole(const struct select_view *view)
{
    uint64_t whole = view->rows ? view->rows->whole : 0;
    for (uint32_t i = 0; !view->rows && i < view->node->n_cards; i++)
        whole |= (uint64_t)card_is_free(&view->cards[i]) << i;
    return whole;
}

/* Takes the request's part of the chosen cards. */
void select_take(struct select_view *view, const struct request *request,
                 uint64_t chosen);
/* Takes what the nominated pods that precede `pod` will get. `later`: the same cards without the
 * pods that terminate. */
void select_take_nominated(struct select_view *view, const struct select_view *later,
                           const struct select_pod *pod);

/* select_cards of the view SELECT_AS_IS. Most requests are decided by the node's sums, without
 * reading its cards. */
enum fit select_fit(const struct ledger_node *node, const struct request *request);
/* The same of the view SELECT_ALL, in which the pod stands beside those that precede it.
 * *alone: select_fit, which reasons are made of. */
enum fit select_fit_beside(const struct ledger_node *node, const struct select_pod *pod,
                           enum fit *alone);
static inline enum fit select_fit_pod(const struct ledger_node *node,
                                      const struct select_pod *pod)
{
    enum fit alone;
    return select_fit_beside(node, pod, &alone);
}
/* Does the pod, which fits on the node as filter asks, fit there only on what is reserved for pods
 * of lower priority, or for such nominated ones? */
bool select_displaces(const struct ledger_node *node, const struct select_pod *pod);
/* The cards for the bind of the pod, beside all nominated pods: those that are reserved for it, as
 * long as they suit; else such that it takes from nobody; else others. 0: the kubelet chooses them
 * (nvidia.com/gpu). False: it does not fit, or requests no GPU there. */
bool select_bind(const struct ledger_node *node, const struct select_pod *pod,
                 uint64_t *chosen);

/* One of the reservations on the node that do not hold; NULL: all do. One holds while the node
 * takes pods (a cordoned one only a pod that was offered it so) and its pod would get just the
 * reserved cards by select_bind: they are there by UUID, healthy and not listed, large enough, of
 * the mode, model and links that the request needs, and given to nobody else, neither by
 * promises, external use and reservations nor by nominations. */
struct ledger_reservation *select_reservation_lost(const struct ledger *l,
                                                   const struct ledger_node *node);

/* select_fit_pod for thousands of nodes, by their first cache lines only. FIT_YES, and neither
 * nominated pods nor reservations change that. FIT_LATER: memory alone is missing. FIT_ASK:
 * select_fit_beside knows. `least_mib` is of select_least_mib. */
int64_t select_least_mib(const struct request *request);
static inline enum fit select_fit_one(const struct ledger_node *node, int64_t least_mib)
{
    if (node->state != NODE_USABLE || node->has_nominated ||
        (node->mode != NODE_ANY && node->mode != NODE_MEMORY))
        return FIT_ASK;
    if (node->best_free_mib >= least_mib)
        return FIT_YES;
    return node->best_total_mib >= least_mib && node->all_available && !node->has_reserved
               ? FIT_LATER
               : FIT_ASK;
}

/* Do the rows and sums of a node decide which of its cards can take the request, without the
 * cards? */
bool select_needs_no_cards(const struct request *request);
/* select_cards of the view SELECT_ALL for such a request, if the rows are all that it takes.
 * True: it fits. False: ask select_cards. */
bool select_rows(const struct ledger_node *node, const struct request *request,
                 uint64_t *chosen);

/* Has the card the model, clock and UUID that the request names? */
static inline bool select_card_suits(const struct card *card,
                                     const struct request *request)
{
    return MUTANT(model_ignored) ||
           (request_accepts_card(request, card->kind) &&
            (!request->rules.n || request_rules_accept(request, NULL, &card->uuid)));
}
/* Could the card take its part of the request if it were empty and healthy? */
bool select_card_could_fit(const struct card *card, const struct request *request);
/* Has the node the dialect of the request, which is valid there, or no other meaning of
 * nvidia.com/gpu? `request`: of request_on. */
static inline bool select_dialect_allows(const struct ledger_node *node,
                                         const struct request *request)
{
    if (request->kind == REQUEST_DEVICES)
        return node->dialect <= SCV_DIALECT_HAMI;
    return !request->dialect ||
           (request->dialect == node->dialect && request->kind != REQUEST_NONE);
}
/* Can the node hold the pod to the memory that it requests, as its gpushare/isolation says? */
static inline bool select_isolation_allows(const struct ledger_node *node,
                                           const struct request *request)
{
    return !request->isolation || (request->isolation & node->isolation) ||
           MUTANT(isolation_ignored);
}
/* What the node itself lacks for the request, whatever its cards are: up to NO_COMPUTE,
 * or OBSTACLE_NONE. `request`: of request_on. */
enum obstacle_kind select_obstacle(const struct ledger_node *node,
                                   const struct request *request);
