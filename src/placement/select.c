/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/select.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/mutant.h"
#include "domain/quantity.h"
#include "placement/card_set.h"

/*
 * The selection of cards: the conditions on a card and on the node, the cards that fit, and the
 * choice among them. Filter asks select_fit_one (select.h), where that does not know
 * select_fit_beside, and from score.c select_rows or select_cards; bind asks select_bind.
 *
 * For few pods alone, and skipped otherwise: later_or_never tells LATER from NEVER once the pod
 * does not fit, choose_linked and cut_size choose several cards, less_claimed leaves cards to
 * nvidia.com/gpu, and what is below select_bind is of reservations that end and of nominated pods.
 */

/* -- the conditions that a request sets on a card -- */

/* Are so many MiB enough for its part of the card, which has some for each of its slots? */
static inline bool is_enough(int64_t mib, const struct card *card,
                             const struct request *r)
{
    int64_t part = request_mib(r, card->total_mib, card->kind->kept_mib);
    return part <= mib && part >= r->slots;
}

bool select_card_could_fit(const struct card *card, const struct request *r)
{
    return is_enough(card->total_mib, card, r) &&
           (r->kind == REQUEST_MEMORY || card->total_mib > 0) &&
           select_card_suits(card, r);
}

/* Can the card take its part of the request now? */
static inline bool card_fits(const struct card *card, const struct request *r)
{
    bool fits;
    if (r->kind == REQUEST_CARDS)
        fits = card_is_free(card) && is_enough(card->total_mib, card, r);
    else if (r->kind ==
             REQUEST_DEVICES) /* memory used by other processes does not matter */
        fits = card->state == CARD_AVAILABLE && card->pods == 0 && card->total_mib > 0 &&
               card->reserved_mib == 0 && card->total_mib >= r->mib_per_card;
    else
        fits = is_enough(card->free_mib, card, r) && card->free_mib > 0 &&
               (!r->slots || card->slots_left >= (int64_t)r->slots) &&
               (!r->compute_percent || card_core_left(card) >= r->compute_percent ||
                MUTANT(compute_ignored));
    return fits && !(r->dialect && card->cordoned) && select_card_suits(card, r);
}

/* The rows and sums know the free memory of a card, and whether it is wholly free. So they
 * decide if a card takes the request that has that and nothing else: no known size, model or
 * clock, and no compute left. */
bool select_needs_no_cards(const struct request *r)
{
    static const struct card bare = {.total_mib = 1,
                                     .free_mib = INT64_MAX,
                                     .compute_promised = REQUEST_CORE,
                                     .kind = &card_kind_unknown};
    return r->kind != REQUEST_DEVICES && !r->dialect && card_fits(&bare, r);
}

/* What is not in the node's first cache lines is read last: its source only for requests that
 * select cards. */
enum obstacle_kind select_obstacle(const struct ledger_node *node,
                                   const struct request *r)
{
    const bool devices = r->kind == REQUEST_DEVICES;
    const enum node_mode mode = r->kind == REQUEST_CARDS ? NODE_CARDS : NODE_MEMORY;
    /* Of a node without a valid Scv its state says more than its unknown dialect. */
    if (!select_dialect_allows(node, r) &&
        (node->dialect <= SCV_DIALECT_HAMI || node->state == NODE_USABLE))
        return OBSTACLE_DIALECT;
    if (devices && node->source != SOURCE_SCV)
        return OBSTACLE_NO_SCV;
    if (node->state != NODE_USABLE)
        return OBSTACLE_NODE;
    if (!devices && node->mode != NODE_ANY && node->mode != mode)
        return OBSTACLE_MODE;
    if (!select_isolation_allows(node, r))
        return OBSTACLE_ISOLATION;
    if (request_is_selective(r) && node->source != SOURCE_SCV)
        return OBSTACLE_NO_SCV;
    if (r->min_link && !node->has_links && !MUTANT(min_link_ignored))
        return OBSTACLE_NO_LINKS;
    if (r->compute_percent && !node->has_core && !r->dialect)
        return OBSTACLE_NO_COMPUTE;
    return OBSTACLE_NONE;
}

/* -- cards of a view -- */

static int64_t least_of(const struct request *r)
{
    return r->mib_per_card > 0 ? r->mib_per_card : 1;
}

/* select_mask for a request that the rows decide about. */
static uint64_t mask_of_rows(const struct ledger_rows *rows, const struct request *r)
{
    const int64_t least = least_of(r);
    uint64_t mask = 0;
    if (r->kind == REQUEST_CARDS)
        return rows->whole;
#pragma GCC unroll 8
    for (uint32_t i = 0; i < LEDGER_ROWS; i++)
        mask |= (uint64_t)(rows->free_mib[i] >= least) << i;
    return mask;
}

uint64_t select_mask(const struct select_view *view, const struct request *r)
{
    uint64_t mask = 0;
    r = request_on(r, view->node->dialect);
    if (view->rows && select_needs_no_cards(r))
        return mask_of_rows(view->rows, r);
    for (uint32_t i = 0; i < view->node->n_cards; i++)
        mask |= (uint64_t)card_fits(&view->cards[i], r) << i;
    return mask;
}

/* Of the cards of the mask, those that the policy takes first. Which card that is cannot be
 * predicted, so there is no branch on it: a rank has the free memory above the index, and the
 * lowest rank wins. */
static inline uint64_t choose_by_policy(const struct ledger_rows *rows,
                                        const struct card *cards, uint32_t n,
                                        const struct request *r, uint64_t mask)
{
    enum { INDEXES = SCV_MAX_CARDS };
    static const int64_t most = INT64_MAX / 2 / INDEXES;
    const int64_t flip =
        r->placement == PLACE_SPREAD ? -1 : 0; /* most free memory first */
    uint64_t chosen = 0;
    for (uint32_t k = 0; k < r->cards; k++, mask &= ~chosen) {
        int64_t best = INT64_MAX;
#pragma GCC unroll 8
        for (uint32_t i = 0; i < n; i++) {
            int64_t free = rows ? rows->free_mib[i] : cards[i].free_mib;
            int64_t rank = ((free < most ? free : most) ^ flip) * INDEXES +
                           (MUTANT(tie_by_address) ? INDEXES - 1 - i : i);
            rank = mask >> i & 1 ? rank : INT64_MAX;
            best = rank < best ? rank : best;
        }
        uint32_t index = (uint32_t)best & (INDEXES - 1);
        chosen |= UINT64_C(1) << (MUTANT(tie_by_address) ? INDEXES - 1 - index : index);
    }
    return chosen;
}

/* choose, on a node with known links. Of one card, only those matter that equal the policy's
 * choice, and only if that one is wholly free. */
static __attribute__((noinline)) uint64_t
choose_linked(const struct ledger_node *node, const struct ledger_rows *rows,
              const struct card *cards, const struct request *r, uint64_t mask)
{
    int64_t free_mib[LINKS_MAX_CARDS];
    struct card_set_ask ask = {.links = node->links,
                               .fit = (uint32_t)mask,
                               .k = r->cards,
                               .min_link = MUTANT(min_link_ignored) ? 0 : r->min_link,
                               .free_mib = free_mib,
                               .spread = r->placement == PLACE_SPREAD};
    for (uint32_t i = 0; i < node->n_cards; i++) {
        free_mib[i] = rows ? rows->free_mib[i] : cards[i].free_mib;
        ask.free |= (rows ? rows->whole >> i & 1u : card_is_free(&cards[i])) << i;
    }
    if (r->cards > 1)
        return card_set_choose(&ask);
    uint64_t first = choose_by_policy(rows, cards, node->n_cards, r, mask);
    for (uint32_t i = 0; first & ask.free && i < node->n_cards; i++)
        if (free_mib[i] != free_mib[__builtin_ctzll(first)])
            ask.fit &= ~(UINT32_C(1) << i);
    return first & ask.free && !MUTANT(set_broken_by_one_card) ? card_set_choose(&ask)
                                                               : first;
}

/* Of the cards of the mask, which are enough, those that the request gets. 0: none of them are
 * connected as it demands. */
static inline uint64_t choose(const struct ledger_node *node,
                              const struct ledger_rows *rows, const struct card *cards,
                              const struct request *r, uint64_t mask)
{
    return node->has_links && !r->ignores_links
               ? choose_linked(node, rows, cards, r, mask)
               : choose_by_policy(rows, cards, rows ? LEDGER_ROWS : node->n_cards, r,
                                  mask);
}

/* Has the set so many cards? */
static bool has_cards(uint64_t set, uint64_t n)
{
    return n == 1 ? set != 0 : (uint64_t)__builtin_popcountll(set) >= n;
}

/* Takes from *left, and returns, the cards that can be together in what the request gets: a
 * percentage of several cards is of cards of one size, in a dialect it is the same MiB of each; the
 * smallest first. */
static uint64_t cut_size(const struct card *cards, const struct request *r,
                         uint64_t *left)
{
    bool alike =
        (r->percent || r->dialect) && r->cards > 1 && !MUTANT(percent_of_mixed_cards);
    uint64_t size = alike ? 0 : *left;
    int64_t mib = INT64_MAX;
    for (uint64_t rest = alike ? *left : 0; rest; rest &= rest - 1) {
        const struct card *card = &cards[__builtin_ctzll(rest)];
        int64_t here = r->dialect ? request_mib(r, card->total_mib, card->kind->kept_mib)
                                  : card->total_mib;
        size = here < mib ? 0 : size;
        mib = here < mib ? here : mib;
        size |= here == mib ? rest & -rest : 0;
    }
    *left &= ~size;
    return size;
}

/* The checks that need no cards. FIT_YES: the cards decide. */
static enum fit node_fits(const struct ledger_node *node, const struct request *r)
{
    bool never = false;
    switch (select_obstacle(node, r)) {
    case OBSTACLE_NONE:
        return FIT_YES;
    case OBSTACLE_DIALECT:
        never = node->dialect <= SCV_DIALECT_HAMI;
        break;
    case OBSTACLE_NODE:
        never = node->state == NODE_NO_GPU && r->kind != REQUEST_DEVICES;
        break;
    case OBSTACLE_MODE:
        never = node->mode != NODE_MODE_WRONG;
        break;
    case OBSTACLE_ISOLATION:
        never = true;
        break;
    default:
        break;
    }
    return never ? FIT_NEVER : FIT_LATER;
}

/* Of a request that does not fit now: could so many cards take it when they are empty? If all
 * cards are available and of one size, as most are, that is known without reading them. */
static enum fit later_or_never(const struct ledger_node *node, const struct card *cards,
                               const struct request *r, uint64_t within)
{
    const struct ledger_rows *rows = node->rows.valid ? &node->rows : NULL;
    bool alike = rows && select_needs_no_cards(r) && node->largest_mib > 0 &&
                 rows->available_mib == node->largest_mib * node->n_cards;
    uint64_t possible = 0;
    for (uint32_t i = 0; i < node->n_cards && node->n_cards >= r->cards; i++) {
        bool could = alike ? node->largest_mib >= r->mib_per_card
                           : select_card_could_fit(&cards[i], r);
        possible |= (uint64_t)could << i & within;
    }
    while (possible) {
        uint64_t size = cut_size(cards, r, &possible);
        if (has_cards(size, r->cards) &&
            (!r->min_link || choose(node, rows, cards, r, size) ||
             !links_sets(node->links, r->cards, &(uint32_t){0}))) /* perhaps */
            return FIT_LATER;
    }
    return FIT_NEVER;
}

/* The cards of the mask without those that claims of nvidia.com/gpu leave for nobody: which of the
 * cards without a promise the kubelet allocates is unknown, but not how many. */
static uint64_t less_claimed(const struct select_view *view, const struct request *r,
                             uint64_t mask)
{
    uint64_t empty = 0, shown = ledger_node_info(view->node).held_cards;
    for (uint32_t i = 0; i < view->node->n_cards; i++) {
        const struct card *card = &view->cards[i];
        bool held = card->state == CARD_HELD && !(shown >> i & 1); /* by these claims */
        empty |= (uint64_t)((card->state == CARD_AVAILABLE || held) &&
                            !card->kind->profile.n && card_is_unpromised(card))
                 << i;
    }
    uint64_t n = (uint64_t)__builtin_popcountll(empty), taken = mask & empty;
    uint64_t spare = n > view->claimed ? n - view->claimed : 0;
    while (spare < r->cards && (uint64_t)__builtin_popcountll(taken) > spare)
        taken &= taken - 1;
    return (mask & ~empty) | taken;
}

enum fit select_cards(const struct select_view *view, const struct request *r,
                      uint64_t within, uint64_t *chosen)
{
    uint64_t set = 0;
    if (chosen)
        *chosen = 0;
    r = request_on(r, view->node->dialect);
    enum fit fit = node_fits(view->node, r);
    if (fit != FIT_YES)
        return fit;
    uint64_t mask = select_mask(view, r) & within;
    if (view->claimed && r->kind != REQUEST_DEVICES)
        mask = less_claimed(view, r, mask);
    uint64_t need = r->cards + (r->kind == REQUEST_DEVICES ? view->claimed : 0);
    bool fits = false;
    while (mask && !fits) {
        uint64_t size = cut_size(view->cards, r, &mask);
        bool enough = has_cards(size, need);
        if (enough && (chosen || r->min_link) && r->kind != REQUEST_DEVICES)
            set = choose(view->node, view->rows, view->cards, r, size);
        fits = enough && (set || !r->min_link);
    }
    if (chosen)
        *chosen = set;
    return fits ? FIT_YES : later_or_never(view->node, view->cards, r, within);
}

bool select_rows(const struct ledger_node *node, const struct request *r,
                 uint64_t *chosen)
{
    const struct ledger_rows *rows = &node->rows;
    if (!rows->valid || node->has_nominated || node->has_reserved || node->claimed ||
        node_fits(node, r) != FIT_YES)
        return false;
    uint64_t mask = mask_of_rows(rows, r);
    if (!has_cards(mask, r->cards))
        return false;
    *chosen = choose(node, rows, NULL, r, mask);
    return *chosen;
}

/* Makes the view's cards its own, so that they can change. */
static void own_cards(struct select_view *view)
{
    if (view->cards != view->node->cards)
        return;
    if (view->node->n_cards)
        memcpy(view->own, view->node->cards, view->node->n_cards * sizeof *view->own);
    view->cards = view->own;
    view->rows = NULL;
}

void select_take(struct select_view *view, const struct request *r, uint64_t chosen)
{
    own_cards(view);
    r = request_on(r, view->node->dialect);
    for (; chosen; chosen &= chosen - 1) {
        struct card *card = &view->cards[__builtin_ctzll(chosen)];
        card->pods++;
        card->whole |= r->kind == REQUEST_CARDS;
        card->free_mib =
            r->kind == REQUEST_CARDS
                ? 0
                : card->free_mib - request_mib(r, card->total_mib, card->kind->kept_mib);
        card_add_core(&card->compute_promised, r->compute_percent);
        card->slots_left -= (int32_t)r->slots;
    }
}

/* The cards that are reserved for the pod on the node; 0 unless they are as many as it
 * requests: cards may have left the node since. */
static uint64_t reserved_cards(const struct ledger_node *node,
                               const struct select_pod *pod)
{
    const struct ledger_reservation *own = ledger_reservation_on(node, pod->uid);
    uint64_t cards = 0;
    for (uint32_t i = 0; own && i < own->n_shares; i++)
        if (own->shares[i].on >= 0)
            cards |= UINT64_C(1) << own->shares[i].on;
    const struct request *r = request_on(pod->request, node->dialect);
    return (uint32_t)__builtin_popcountll(cards) == r->cards ? cards : 0;
}

void select_view_cards(struct select_view *view, const struct ledger_node *node,
                       struct card *cards, uint64_t claimed)
{
    view->node = node;
    view->cards = cards;
    view->rows = NULL;
    view->claimed = claimed;
}

void select_view(struct select_view *view, const struct ledger_node *node,
                 const struct select_pod *pod, enum select_nominated nominated)
{
    select_view_cards(view, node, node->cards, node->claimed);
    if (nominated == SELECT_AS_IS || (!node->has_reserved && !node->has_nominated)) {
        view->rows = node->rows.valid ? &node->rows : NULL;
        return;
    }
    ledger_cards_seen(node, pod->priority, pod->uid, view->own);
    view->cards = view->own;
    if (!node->has_nominated)
        return;
    struct select_view later;
    select_view_cards(&later, node, later.own, node->claimed);
    memcpy(later.own, view->own, node->n_cards * sizeof *later.own);
    later.claimed = ledger_cards_left(node, later.own);
    select_take_nominated(view, &later, pod);
}

int64_t select_least_mib(const struct request *r)
{
    bool one = r->kind == REQUEST_MEMORY && r->cards == 1 && !r->isolation &&
               select_needs_no_cards(r);
    return one ? least_of(r) : INT64_MAX;
}

/* Memory on any one card, or any whole cards: decided by the node's sums. */
static enum fit fit_by_sums(const struct ledger_node *node, const struct request *r)
{
    enum fit fit = node_fits(node, r);
    if (fit != FIT_YES)
        return fit;
    if (r->kind == REQUEST_MEMORY && node->best_free_mib >= least_of(r))
        return FIT_YES;
    if (r->kind == REQUEST_MEMORY)
        return node->n_cards && (node->best_total_mib >= r->mib_per_card ||
                                 node->largest_mib >= r->mib_per_card)
                   ? FIT_LATER
                   : FIT_NEVER;
    if (node->free_cards >= r->cards)
        return FIT_YES;
    return later_or_never(node, node->cards, r, SELECT_ALL_CARDS);
}

enum fit select_fit(const struct ledger_node *node, const struct request *r)
{
    r = request_on(r, node->dialect);
    if (select_needs_no_cards(r) && !r->min_link &&
        (r->kind == REQUEST_CARDS ? !node->claimed : r->cards == 1))
        return fit_by_sums(node, r);
    if (request_needs_nothing(r))
        return select_dialect_allows(node, r) ? FIT_YES : FIT_LATER;
    struct select_view view;
    select_view(&view, node, NULL, SELECT_AS_IS);
    return select_cards(&view, r, SELECT_ALL_CARDS, NULL);
}

enum fit select_fit_beside(const struct ledger_node *node, const struct select_pod *pod,
                           enum fit *alone)
{
    *alone = select_fit(node, pod->request);
    /* Nominated pods only take, and reservations that do not count only give back. */
    if ((!(*alone == FIT_YES && node->has_nominated) &&
         !(*alone == FIT_LATER && node->has_reserved)) ||
        request_needs_nothing(request_on(pod->request, node->dialect)))
        return *alone;
    struct select_view view;
    select_view(&view, node, pod, SELECT_ALL);
    return select_cards(&view, pod->request, SELECT_ALL_CARDS, NULL);
}

/* Are cards of the node reserved for a pod of lower priority, or is one nominated to it? */
static bool has_weaker(const struct ledger_node *node, const struct select_pod *pod)
{
    const struct ledger_reservation *r = node->reserved;
    const struct ledger_nomination *m = node->nominated;
    while (r && (r->priority >= pod->priority || span_eq(r->uid, pod->uid)))
        r = r->next_here;
    while (m && (m->pod->priority >= pod->priority || span_eq(m->pod->uid, pod->uid)))
        m = m->next;
    return r || m;
}

/* Does the pod fit beside all reservations and nominated pods of others? */
static bool fits_last(const struct ledger_node *node, const struct select_pod *pod,
                      uint64_t *chosen)
{
    struct select_pod last = *pod;
    struct select_view view;
    last.priority = INT64_MIN;
    select_view(&view, node, &last, SELECT_ALL);
    return select_cards(&view, pod->request, SELECT_ALL_CARDS, chosen) == FIT_YES;
}

bool select_displaces(const struct ledger_node *node, const struct select_pod *pod)
{
    return (node->has_reserved || node->has_nominated) && has_weaker(node, pod) &&
           !fits_last(node, pod, NULL);
}

bool select_bind(const struct ledger_node *node, const struct select_pod *pod,
                 uint64_t *chosen)
{
    const struct request *r = request_on(pod->request, node->dialect);
    struct select_view view;
    *chosen = 0;
    if (r->kind == REQUEST_DEVICES)
        return select_fit_pod(node, pod) == FIT_YES;
    if (r->kind == REQUEST_NONE)
        return false;
    struct request blind = *r;
    blind.ignores_links = true;
    r = MUTANT(set_ignored_by_bind) ? &blind : r;
    select_view(&view, node, pod, SELECT_ALL);
    if (MUTANT(kept_cards_given_away)) {
        ledger_cards_seen(node, pod->priority, pod->uid, view.own);
        view.cards = view.own;
    }
    return select_cards(&view, r, reserved_cards(node, pod), chosen) == FIT_YES ||
           (has_weaker(node, pod) && fits_last(node, pod, chosen)) ||
           select_cards(&view, r, SELECT_ALL_CARDS, chosen) == FIT_YES;
}

/* The cards are not given twice. Nominations and links between cards need the whole choice. */
static bool reservation_holds(const struct ledger *l, const struct ledger_node *node,
                              const struct ledger_reservation *own)
{
    const struct ledger_pod *of = ledger_pod_find(l, own->uid);
    const struct select_pod pod = {own->request, own->priority, own->uid,
                                   of && of->member ? of->member->gang : NULL};
    uint64_t chosen;
    if ((node->cordoned && !own->cordoned) || node_fits(node, own->request) != FIT_YES)
        return false;
    for (uint32_t i = 0; i < own->n_shares; i++) {
        const struct card *card = ledger_share_card(node, &own->shares[i]);
        if (!card || card->state != CARD_AVAILABLE ||
            !select_card_could_fit(card, own->request))
            return false;
    }
    if (!node->has_nominated && !own->request->min_link)
        return true;
    return select_bind(node, &pod, &chosen) && chosen == reserved_cards(node, &pod);
}

struct ledger_reservation *select_reservation_lost(const struct ledger *l,
                                                   const struct ledger_node *node)
{
    struct ledger_reservation *r = ledger_reservation_lost(node, INT64_MAX);
    if (MUTANT(stale_reservation_counts))
        return NULL;
    if (r)
        return r;
    for (r = node->reserved; r && reservation_holds(l, node, r);)
        r = r->next_here;
    return r;
}

/* -- beside pods that are nominated to the node -- */

/* A nominated pod that precedes the pending one, and the cards that it takes. */
struct nominee {
    const struct ledger_pod *pod;
    uint64_t cards;
};

/* By falling priority, then those with kept cards, then by UID. */
static int compare_nominated(const void *a, const void *b)
{
    const struct ledger_pod *x = ((const struct nominee *)a)->pod,
                            *y = ((const struct nominee *)b)->pod;
    return quantity_compare(y->priority, x->priority)
               ?: !ledger_pod_kept(x) - !ledger_pod_kept(y)
               ?: span_cmp(x->uid, y->uid);
}

/* Does the nominated pod precede the pending pod? Not with a reservation on the node, which
 * counts already, and not as a member of the same gang. `own`: the pending pod's nomination to the
 * node, or NULL. Of two nominated pods of one priority and without kept cards, one precedes the
 * other: else each would wait for the other. */
static bool precedes(const struct ledger_node *node, const struct ledger_pod *other,
                     const struct select_pod *pod, const struct ledger_nomination *own)
{
    if (other->priority < pod->priority || other->request->kind == REQUEST_NONE ||
        span_eq(other->uid, pod->uid) || ledger_reservation_on(node, other->uid) ||
        (pod->gang && other->member && other->member->gang == pod->gang))
        return false;
    return other->priority > pod->priority || !own || ledger_pod_kept(other) ||
           compare_nominated(&(struct nominee){.pod = other},
                             &(struct nominee){.pod = own->pod}) < 0;
}

static void take_nominee(struct select_view *view, const struct nominee *nominee)
{
    const struct request *r = request_on(nominee->pod->request, view->node->dialect);
    if (r->kind == REQUEST_DEVICES && nominee->cards)
        view->claimed += r->cards;
    else
        select_take(view, r, nominee->cards);
}

/* `then` becomes the cards `later` as a nominated pod of that priority sees them, beside those
 * that precede it. */
static void see_later(struct select_view *then, const struct select_view *later,
                      const struct select_pod *pod, int64_t priority,
                      const struct nominee *before, size_t n)
{
    select_view_cards(then, later->node, then->own, later->claimed);
    if (later->node->n_cards)
        memcpy(then->own, later->cards, later->node->n_cards * sizeof *then->own);
    if (later->node->has_reserved)
        ledger_cards_release(later->node, pod->priority, priority, pod->uid, then->own);
    for (size_t i = 0; i < n; i++)
        take_nominee(then, &before[i]);
}

/* The cards for a nominated pod when the pods that terminate have left, whatever cards others
 * still hold. Cards that no such pod is on are the first choice, because the nominated pod can
 * have them now, and those that are reserved for the pending pod (`own`) are the last. */
static uint64_t choose_later(const struct select_view *then, const struct request *r,
                             uint64_t settled, uint64_t own)
{
    const uint64_t within[] = {settled & ~own, ~own, SELECT_ALL_CARDS};
    r = request_on(r, then->node->dialect);
    for (size_t i = 0; i < ARRAY_LEN(within); i++) {
        uint64_t chosen;
        if (select_cards(then, r, within[i], &chosen) == FIT_YES)
            return r->kind == REQUEST_DEVICES ? SELECT_ALL_CARDS : chosen;
    }
    return 0;
}

void select_take_nominated(struct select_view *view, const struct select_view *later,
                           const struct select_pod *pod)
{
    const struct ledger_node *node = view->node;
    const struct ledger_nomination *mine = node->nominated;
    cleanup_free struct nominee *list = NULL;
    size_t n = 0, cap = 0;
    while (mine && !span_eq(mine->pod->uid, pod->uid))
        mine = mine->next;
    for (const struct ledger_nomination *m = node->nominated; m; m = m->next) {
        if (!precedes(node, m->pod, pod, mine))
            continue;
        MEM_GROW(list, cap, n + 1);
        list[n++] = (struct nominee){.pod = m->pod};
    }
    if (!n)
        return;
    own_cards(view);
    qsort(list, n, sizeof *list, compare_nominated);
    uint64_t all = ledger_all_cards(node), settled = 0, own = reserved_cards(node, pod);
    for (uint32_t i = 0; i < node->n_cards; i++)
        settled |= (uint64_t)(view->cards[i].pods == later->cards[i].pods) << i;
    struct select_view then;
    for (size_t i = 0; i < n; i++) {
        const struct ledger_pod *other = list[i].pod;
        if (!i || (node->has_reserved && other->priority != list[i - 1].pod->priority))
            see_later(&then, later, pod, other->priority, list, i);
        if (ledger_pod_kept(other)) { /* all of them, whatever they have left */
            list[i].cards = ledger_pod_kept(other) & all;
            take_nominee(view, &list[i]);
        } else {
            list[i].cards = choose_later(&then, other->request, settled, own);
        }
        take_nominee(&then, &list[i]);
    }
    /* The pending pod needs room both now and then. */
    see_later(&then, later, pod, pod->priority, list, n);
    for (uint32_t i = 0; i < node->n_cards; i++) {
        struct card *card = &view->cards[i], *left = &then.cards[i];
        card->free_mib = quantity_at_most(card->free_mib, left->free_mib);
        card->free_mib = card->free_mib < 0 ? 0 : card->free_mib;
        card->pods = card->pods > left->pods ? card->pods : left->pods;
        card->whole |= left->whole;
        if (card->compute_promised < left->compute_promised)
            card->compute_promised = left->compute_promised;
        if (card->slots_left > left->slots_left)
            card->slots_left = left->slots_left;
    }
    view->claimed += then.claimed - later->claimed;
}
