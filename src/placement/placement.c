/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/placement_priv.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/mutant.h"

/* A policy orders cards: is a taken before b, regardless of their index? */
struct policy {
    bool (*before)(const struct card *a, const struct card *b);
};

static bool less_free(const struct card *a, const struct card *b)
{
    return a->free_mib < b->free_mib;
}

static bool more_free(const struct card *a, const struct card *b)
{
    return a->free_mib > b->free_mib;
}

static const struct policy policies[] = {
    [PLACE_BINPACK] = {less_free},
    [PLACE_SPREAD] = {more_free},
};

static bool has_capacity(const struct card *card, const struct request *r)
{
    if (r->kind == REQUEST_CARDS)
        return card_is_free(card) && card->total_mib >= r->mib_per_card;
    if (r->kind == REQUEST_DEVICES) /* memory used by other processes does not matter */
        return card->state == CARD_AVAILABLE && card->pods == 0 && card->total_mib > 0 &&
               card->reserved_mib == 0 && card->total_mib >= r->mib_per_card;
    return card->free_mib >= r->mib_per_card && card->free_mib > 0 &&
           (!r->core || card_core_left(card) >= r->core || MUTANT(compute_ignored));
}

bool placement_card_fits(const struct card *card, const struct request *r)
{
    return has_capacity(card, r) && (!request_is_selective(r) || MUTANT(model_ignored) ||
                                     placement_card_suits(card, r));
}

bool placement_card_suits(const struct card *card, const struct request *r)
{
    return request_accepts_card(r, card->model, card_clock_mhz(card));
}

bool placement_card_could_fit(const struct card *card, const struct request *r)
{
    return card->total_mib >= r->mib_per_card &&
           (r->kind == REQUEST_MEMORY || card->total_mib > 0) &&
           (!request_is_selective(r) || placement_card_suits(card, r));
}

/* Inline, so that the compiler also inlines the test. */
static inline uint32_t count(const struct card *cards, uint32_t n,
                             const struct request *r,
                             bool (*test)(const struct card *, const struct request *))
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < n; i++)
        found += test(&cards[i], r);
    return found;
}

uint32_t placement_count_cards(const struct card *cards, uint32_t n,
                               const struct request *r,
                               bool (*test)(const struct card *, const struct request *))
{
    return count(cards, n, r, test);
}

static bool mode_matches(enum node_mode mode, const struct request *r)
{
    return mode == NODE_ANY ||
           mode == (r->kind == REQUEST_CARDS ? NODE_CARDS : NODE_MEMORY);
}

/* Whether the state and the mode of the node allow the kind of request. */
static enum fit node_accepts(const struct ledger_node *node, const struct request *r)
{
    if (node->state == NODE_NO_GPU)
        return FIT_NEVER;
    if (node->state != NODE_USABLE || node->mode == NODE_MODE_WRONG)
        return FIT_LATER;
    return mode_matches(node->mode, r) ? FIT_YES : FIT_NEVER;
}

bool placement_mode_allows(const struct ledger_node *node, const struct request *r)
{
    return r->kind == REQUEST_DEVICES || mode_matches(node->mode, r);
}

/* The checks that need no cards; FIT_YES: the cards decide. */
static enum fit node_fits(const struct ledger_node *node, const struct request *r)
{
    bool devices = r->kind == REQUEST_DEVICES;
    if (devices && node->state != NODE_USABLE)
        return FIT_LATER;
    enum fit fit = devices ? FIT_YES : node_accepts(node, r);
    if (fit == FIT_YES && (devices || request_is_selective(r)) &&
        node->source != SOURCE_SCV)
        return FIT_LATER;
    return fit == FIT_YES && r->core && !node->has_core ? FIT_LATER : fit;
}

/* Memory on any one card, or any whole cards: decided by the sums of the node. */
static bool is_plain(const struct request *r)
{
    if (request_is_selective(r) || r->core)
        return false;
    return (r->kind == REQUEST_MEMORY && r->cards == 1) ||
           (r->kind == REQUEST_CARDS && r->mib_per_card == 0);
}

static enum fit plain_fit(const struct ledger_node *node, const struct request *r)
{
    enum fit fit = node_accepts(node, r);
    if (fit != FIT_YES)
        return fit;
    if (r->kind == REQUEST_CARDS) {
        if (node->free_cards >= r->cards)
            return FIT_YES;
        bool enough =
            node->n_cards >= r->cards &&
            count(node->cards, node->n_cards, r, placement_card_could_fit) >= r->cards;
        return enough ? FIT_LATER : FIT_NEVER;
    }
    if (node->best_free_mib >= r->mib_per_card && node->best_free_mib > 0)
        return FIT_YES;
    return node->largest_mib >= r->mib_per_card && node->n_cards ? FIT_LATER : FIT_NEVER;
}

struct placement_quick placement_quick(const struct request *r)
{
    bool one_card = r->kind == REQUEST_MEMORY && is_plain(r);
    int64_t least = r->mib_per_card > 0 ? r->mib_per_card : 1;
    return (struct placement_quick){one_card ? least : INT64_MAX};
}

/* Cards that the kubelet is about to allocate. Read only for requests that need it,
 * because it is not in the node's first cache lines. */
static uint64_t claimed_on(const struct ledger_node *node, const struct request *r)
{
    return r->kind == REQUEST_DEVICES ? node->claimed : 0;
}

static enum fit cards_fit(const struct ledger_node *node, const struct card *cards,
                          uint64_t claimed, const struct request *r)
{
    uint64_t need = r->cards + (r->kind == REQUEST_DEVICES ? claimed : 0);
    if (count(cards, node->n_cards, r, placement_card_fits) >= need)
        return FIT_YES;
    return count(cards, node->n_cards, r, placement_card_could_fit) >= r->cards
               ? FIT_LATER
               : FIT_NEVER;
}

enum fit placement_fit(const struct ledger_node *node, const struct request *r)
{
    if (is_plain(r))
        return plain_fit(node, r);
    if (request_fits_anywhere(r))
        return FIT_YES;
    enum fit fit = node_fits(node, r);
    return fit == FIT_YES ? cards_fit(node, node->cards, claimed_on(node, r), r) : fit;
}

static int compare_picks(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static bool choose(const struct card *cards, uint32_t n, const struct request *r,
                   uint32_t picks[REQUEST_MAX_CARDS])
{
    const struct policy *policy = &policies[r->placement];
    bool taken[SCV_MAX_CARDS] = {false};
    for (uint32_t k = 0; k < r->cards; k++) {
        uint32_t best = n;
        for (uint32_t i = 0; i < n; i++) {
            if (taken[i] || !placement_card_fits(&cards[i], r))
                continue;
            if (best == n || policy->before(&cards[i], &cards[best]) ||
                (MUTANT(tie_by_address) && !policy->before(&cards[best], &cards[i])))
                best = i; /* cards are by rising index: ties keep the first */
        }
        if (best == n)
            return false;
        taken[best] = true;
        picks[k] = best;
    }
    qsort(picks, r->cards, sizeof *picks, compare_picks);
    return true;
}

/* Can cards be chosen on the node at all? */
static bool may_choose(const struct ledger_node *node, const struct request *r)
{
    bool shared_or_whole = r->kind == REQUEST_MEMORY || r->kind == REQUEST_CARDS;
    return shared_or_whole && node_fits(node, r) == FIT_YES;
}

bool placement_choose_cards(const struct ledger_node *node, const struct card *cards,
                            const struct request *r, uint32_t picks[REQUEST_MAX_CARDS])
{
    return may_choose(node, r) && choose(cards, node->n_cards, r, picks);
}

bool placement_choose(const struct ledger_node *node, const struct request *r,
                      uint32_t picks[REQUEST_MAX_CARDS])
{
    return placement_choose_cards(node, node->cards, r, picks);
}

/* The reserved cards, as long as they suit the request. */
static bool choose_reserved(const struct ledger_node *node, const struct card *cards,
                            const struct request *r, struct span uid, uint32_t *picks)
{
    const struct ledger_reservation *own = ledger_reservation_on(node, uid);
    if (!own || own->n_shares != r->cards)
        return false;
    for (uint32_t i = 0; i < own->n_shares; i++) {
        const struct card *on = own->shares[i].on;
        if (!on || !placement_card_fits(&cards[on - node->cards], r))
            return false;
        picks[i] = (uint32_t)(on - node->cards);
        if (i > 0 && picks[i] <= picks[i - 1]) /* the cards have changed since */
            return false;
    }
    return true;
}

/* By falling priority, then those with kept cards, then by UID. */
static int compare_nominated(const void *a, const void *b)
{
    const struct ledger_pod *x = *(struct ledger_pod *const *)a;
    const struct ledger_pod *y = *(struct ledger_pod *const *)b;
    if (x->priority != y->priority)
        return x->priority > y->priority ? -1 : 1;
    if (!ledger_pod_kept(x) != !ledger_pod_kept(y))
        return ledger_pod_kept(x) ? -1 : 1;
    return span_cmp(x->uid, y->uid);
}

/* Does the nominated pod precede the pending pod `uid`? Not with a reservation on the node,
 * which counts already. */
static bool precedes(const struct ledger_node *node, const struct ledger_pod *pod,
                     int64_t priority, struct span uid)
{
    return pod->priority >= priority && !span_eq(pod->uid, uid) &&
           !ledger_reservation_on(node, pod->uid);
}

/* The nominated pods that precede the pending pod `uid`, except members of its gang; *list
 * is new. */
static size_t list_nominated(const struct ledger_node *node, int64_t priority,
                             struct span uid, const struct ledger_gang *gang,
                             struct ledger_pod ***list)
{
    size_t n = 0, cap = 0;
    *list = NULL;
    for (const struct ledger_nomination *m = node->nominated; m; m = m->next) {
        struct ledger_pod *pod = m->pod;
        if (!precedes(node, pod, priority, uid) || pod->request->kind == REQUEST_NONE ||
            (gang && pod->member && pod->member->gang == gang))
            continue;
        MEM_GROW(*list, cap, n + 1);
        (*list)[n++] = pod;
    }
    if (n)
        qsort(*list, n, sizeof **list, compare_nominated);
    return n;
}

static void take(struct card *cards, const struct request *r, const uint32_t *picks)
{
    for (uint32_t k = 0; k < r->cards; k++) {
        struct card *card = &cards[picks[k]];
        card->pods++;
        card->whole |= r->kind == REQUEST_CARDS;
        card->free_mib = r->kind == REQUEST_CARDS ? 0 : card->free_mib - r->mib_per_card;
        card_add_core(&card->core_promised, r->core);
    }
}

/* Takes the cards that are kept for a pod, whatever they have left now: pods that leave
 * still hold the rest. */
static void take_kept(const struct ledger_node *node, struct card *cards,
                      const struct ledger_pod *pod)
{
    for (uint32_t i = 0; i < node->n_cards; i++) {
        if (!(ledger_pod_kept(pod) >> i & 1))
            continue;
        take(cards,
             &(struct request){.kind = pod->request->kind,
                               .cards = 1,
                               .core = pod->request->core,
                               .mib_per_card = pod->request->mib_per_card},
             &i);
        if (cards[i].free_mib < 0)
            cards[i].free_mib = 0;
    }
}

bool placement_take(struct card *cards, uint32_t n, const struct request *r,
                    uint32_t picks[REQUEST_MAX_CARDS])
{
    if (!choose(cards, n, r, picks))
        return false;
    take(cards, r, picks);
    return true;
}

uint64_t placement_take_nominated(const struct ledger_node *node, struct card *cards,
                                  int64_t priority, struct span uid,
                                  const struct ledger_gang *gang)
{
    cleanup_free struct ledger_pod **list = NULL;
    size_t n = list_nominated(node, priority, uid, gang, &list);
    uint32_t picks[REQUEST_MAX_CARDS];
    uint64_t claimed = 0;
    for (size_t i = 0; i < n; i++) {
        const struct request *r = list[i]->request;
        if (r->kind == REQUEST_DEVICES)
            claimed += r->cards;
        else if (ledger_pod_kept(list[i]))
            take_kept(node, cards, list[i]);
        else if (mode_matches(node->mode, r) && choose(cards, node->n_cards, r, picks))
            take(cards, r, picks);
    }
    return claimed;
}

/* Takes the cards that are kept for other pods of at least this priority. */
static void take_all_kept(const struct ledger_node *node, struct card *cards,
                          int64_t priority, struct span uid)
{
    for (const struct ledger_nomination *m = node->nominated; m; m = m->next)
        if (m->kept && precedes(node, m->pod, priority, uid))
            take_kept(node, cards, m->pod);
}

/* Cards that are left when the nominated pods have theirs, kept ones included. */
static bool choose_beside_nominated(const struct ledger_node *node,
                                    const struct request *r, int64_t priority,
                                    struct span uid, uint32_t *picks)
{
    struct card cards[SCV_MAX_CARDS];
    if (!node->nominated)
        return false;
    ledger_cards_seen(node, priority, uid, cards);
    placement_take_nominated(node, cards, priority, uid, NULL);
    return choose(cards, node->n_cards, r, picks);
}

bool placement_choose_seen(const struct ledger_node *node, const struct request *r,
                           int64_t priority, struct span uid,
                           uint32_t picks[REQUEST_MAX_CARDS])
{
    struct card cards[SCV_MAX_CARDS];
    if (!may_choose(node, r))
        return false;
    if (!node->reserved && !node->nominated)
        return choose(node->cards, node->n_cards, r, picks);
    ledger_cards_seen(node, priority, uid, cards);
    if (!MUTANT(kept_cards_given_away))
        take_all_kept(node, cards, priority, uid);
    return choose_reserved(node, cards, r, uid, picks) ||
           choose_beside_nominated(node, r, priority, uid, picks) ||
           choose(cards, node->n_cards, r, picks);
}

enum fit placement_fit_nominated(const struct ledger_node *node, const struct request *r,
                                 int64_t priority, struct span uid)
{
    enum fit fit = placement_fit(node, r);
    uint64_t claimed = claimed_on(node, r);
    bool less = fit == FIT_YES && node->nominated,
         more = fit == FIT_LATER && node->reserved;
    if ((!less && !more) || request_fits_anywhere(r))
        return fit;
    struct card cards[SCV_MAX_CARDS];
    ledger_cards_seen(node, priority, uid, cards);
    claimed += placement_take_nominated(node, cards, priority, uid, NULL);
    return placement_fit_cards(node, cards, claimed, r);
}

enum fit placement_fit_schedulable(const struct ledger_node *node,
                                   const struct request *r, int64_t priority,
                                   struct span uid)
{
    enum fit fit = placement_fit_nominated(node, r, priority, uid);
    return node->cordoned && fit == FIT_YES ? FIT_LATER : fit;
}

enum fit placement_fit_cards(const struct ledger_node *node, const struct card *cards,
                             uint64_t claimed, const struct request *r)
{
    enum fit fit = node_fits(node, r);
    return fit == FIT_YES ? cards_fit(node, cards, claimed, r) : fit;
}
