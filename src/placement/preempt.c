/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/preempt_priv.h"

#include <stdlib.h>

#include "base/mutant.h"

/*
 * The first step finds the lowest priority limit: if all pods up to it are removed, the
 * request fits. The second step frees one card after the other, the cheapest first. This
 * is exact as long as the removal of a pod changes at most one card.
 *
 * If pods have several cards, or pods are nominated to the node, the second step tries
 * every set while that is little work. Otherwise it removes all pods up to the limit and
 * restores those that can stay, as kube-scheduler does.
 */

enum {
    TRY_ALL_MAX = 10,       /* eligible pods */
    TRY_ALL_WORK = 1 << 18, /* visits of a pod on a card: about a millisecond */
};

static void add_promise(struct card *card, uint32_t c, const struct preempt_pod *p)
{
    card->promised_mib += p->mib[c];
    card_add_core(&card->core_promised, p->core[c]);
    card->pods++;
    card->whole |= p->pod->request->kind == REQUEST_CARDS;
}

void preempt_recompute(struct preempt_state *state)
{
    struct card after[SCV_MAX_CARDS];
    const struct ledger_node *node = state->node;
    for (uint32_t c = 0; c < node->n_cards; c++) {
        struct card *card = &state->cards[c];
        *card = state->empty[c];
        for (size_t i = 0; i < state->n; i++)
            if (!state->pods[i].removed && state->pods[i].mib[c] >= 0)
                add_promise(card, c, &state->pods[i]);
        card->free_mib = card_left_mib(card);
        after[c] = *card;
    }
    if (node->nominated)
        state->nominated_claims = placement_take_nominated(
            node, after, state->preemptor->priority, state->preemptor->uid, NULL);
    for (uint32_t c = 0; c < node->n_cards; c++) {
        state->nominated_mib[c] = state->cards[c].free_mib - after[c].free_mib;
        state->nominated_pods[c] = after[c].pods - state->cards[c].pods;
        state->nominated_core[c] = after[c].core_promised - state->cards[c].core_promised;
    }
}

/* The cards of the dry run, less what the nominated pods take. */
static void cards_after_nominated(const struct preempt_state *state, struct card *cards)
{
    memcpy(cards, state->cards, state->node->n_cards * sizeof *cards);
    for (uint32_t c = 0; c < state->node->n_cards; c++) {
        cards[c].free_mib -= state->nominated_mib[c];
        cards[c].pods += state->nominated_pods[c];
        card_add_core(&cards[c].core_promised, state->nominated_core[c]);
    }
}

static bool fits(struct preempt_state *state)
{
    struct card cards[SCV_MAX_CARDS];
    preempt_recompute(state);
    cards_after_nominated(state, cards);
    return placement_fit_cards(state->node, cards,
                               preempt_held_cards_claimed(state, cards),
                               state->preemptor->request) == FIT_YES;
}

static bool is_among(const struct ledger_pod *pod, const struct span *uids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (span_eq(pod->uid, uids[i]))
            return true;
    return false;
}

/* kube-scheduler can only evict pods that are certainly bound, so a promise with an
 * unconfirmed Binding is not eligible. */
static bool is_bound(const struct ledger_pod *pod)
{
    return pod->final || pod->n_shares == 0;
}

static void add_pod(struct preempt_state *state, const struct ledger_pod *pod,
                    bool leaving)
{
    const struct ledger_node *node = state->node;
    struct preempt_pod *p = &state->pods[state->n++];
    *p = (struct preempt_pod){.pod = pod, .removed = leaving};
    p->mib = arena_alloc(state->arena, node->n_cards * sizeof *p->mib);
    p->core = arena_alloc(state->arena, node->n_cards * sizeof *p->core);
    for (uint32_t c = 0; c < node->n_cards; c++) {
        p->mib[c] = ledger_pod_mib(pod, &node->cards[c]);
        p->core[c] = (uint16_t)ledger_pod_core(pod, &node->cards[c]);
    }
}

static void set_eligibility(const struct preempt_state *state, struct preempt_pod *p)
{
    const struct ledger_pod *pod = p->pod;
    bool any = false;
    for (uint32_t c = 0; c < state->node->n_cards; c++) {
        any |= p->mib[c] >= 0;
        p->all_mib += p->mib[c] > 0 ? p->mib[c] : 0;
    }
    bool spared = is_among(pod, state->preemptor->spared, state->preemptor->n_spared);
    p->eligible =
        any && !p->removed && !spared &&
        pod->priority < state->preemptor->priority + MUTANT(eviction_of_equal_priority) &&
        is_bound(pod) && !span_eq(pod->uid, state->preemptor->uid);
}

static void init_empty_cards(struct preempt_state *state)
{
    const struct preemptor *preemptor = state->preemptor;
    ledger_cards_seen(state->node, preemptor->priority, preemptor->uid, state->empty);
    for (uint32_t c = 0; c < state->node->n_cards; c++) {
        struct card *card = &state->empty[c];
        card->promised_mib = card->free_mib = 0;
        card->core_promised = 0;
        card->pods = 0;
        card->whole = false;
    }
}

static void init_state(struct preempt_state *state, const struct preemptor *preemptor,
                       const struct ledger_node *node, const struct span *leaving,
                       size_t n_leaving, struct arena *a)
{
    size_t n = 0, n_known = 0;
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next)
        n++;
    *state = (struct preempt_state){.preemptor = preemptor, .node = node, .arena = a};
    state->pods = arena_alloc(a, n * sizeof *state->pods);
    state->cards = arena_alloc(a, node->n_cards * sizeof *state->cards);
    state->empty = arena_alloc(a, node->n_cards * sizeof *state->empty);
    init_empty_cards(state);
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next)
        add_pod(state, pod, is_among(pod, leaving, n_leaving));
    for (size_t i = 0; i < state->n; i++)
        n_known += state->pods[i].removed;
    if (preemptor->request->kind == REQUEST_DEVICES)
        preempt_held_cards_read(state, n_known < n_leaving);
    for (size_t i = 0; i < state->n; i++)
        set_eligibility(state, &state->pods[i]);
}

static void set_victim(struct preempt_state *state, size_t i, bool victim)
{
    state->pods[i].removed = state->pods[i].victim = victim;
}

/* Exactly the eligible pods up to that priority become victims. */
static void remove_up_to(struct preempt_state *state, int64_t limit)
{
    for (size_t i = 0; i < state->n; i++)
        if (state->pods[i].eligible)
            set_victim(state, i, state->pods[i].pod->priority <= limit);
}

static void restore_all(struct preempt_state *state)
{
    for (size_t i = 0; i < state->n; i++)
        if (state->pods[i].eligible)
            set_victim(state, i, false);
}

/* The lowest priority of an eligible pod, if !any: above `above`. False: there is none. */
static bool next_priority(const struct preempt_state *state, bool any, int64_t above,
                          int64_t *priority)
{
    bool found = false;
    for (size_t i = 0; i < state->n; i++) {
        const struct preempt_pod *p = &state->pods[i];
        if (!p->eligible || (!any && p->pod->priority <= above))
            continue;
        if (!found || p->pod->priority < *priority)
            *priority = p->pod->priority;
        found = true;
    }
    return found;
}

/* The lowest priority limit up to which removing all eligible pods helps. */
static bool find_limit(struct preempt_state *state, int64_t *limit)
{
    bool any = true;
    while (next_priority(state, any, *limit, limit)) {
        any = false;
        remove_up_to(state, *limit);
        if (fits(state))
            return true;
    }
    return false;
}

/* Frees card by card. False: the request does not fit after that. */
static bool choose_by_cards(struct preempt_state *state, int64_t limit)
{
    const struct request *r = state->preemptor->request;
    bool used[SCV_MAX_CARDS] = {false};
    restore_all(state);
    for (uint32_t k = 0; k < r->cards; k++) {
        struct preempt_choice best = {0}, choice;
        uint32_t card = state->node->n_cards;
        preempt_recompute(state);
        for (uint32_t c = 0; c < state->node->n_cards; c++) {
            if (used[c] || !preempt_card_select(state, c, limit, &choice))
                continue;
            if (card < state->node->n_cards &&
                (choice.n > best.n ||
                 (choice.n == best.n && choice.beyond_mib >= best.beyond_mib)))
                continue;
            best = choice;
            card = c;
        }
        if (card == state->node->n_cards)
            return false;
        used[card] = true;
        for (size_t i = 0; i < best.n; i++)
            set_victim(state, best.indexes[i], true);
    }
    return fits(state);
}

static bool is_restored_first(const struct preempt_pod *a, const struct preempt_pod *b)
{
    if (a->pod->priority != b->pod->priority)
        return a->pod->priority > b->pod->priority;
    if (a->all_mib != b->all_mib)
        return a->all_mib > b->all_mib;
    return span_cmp(a->pod->uid, b->pod->uid) > 0;
}

static int compare_pods(const void *a, const void *b)
{
    return is_restored_first(a, b) ? -1 : 1;
}

/* Restores the victims that are not needed, the most important first: state->pods are in
 * that order. */
static void restore_unneeded(struct preempt_state *state)
{
    for (size_t i = 0; i < state->n; i++) {
        if (!state->pods[i].victim)
            continue;
        set_victim(state, i, false);
        if (!fits(state))
            set_victim(state, i, true);
    }
}

/* The memory that the victims free beyond what was missing on the cards that the request
 * gets. Of the cards that fit, those with the most missing count: that gives the least. */
static int64_t freed_beyond(struct preempt_state *state, const int64_t *missing)
{
    const struct request *r = state->preemptor->request;
    bool used[SCV_MAX_CARDS] = {false};
    int64_t mib = 0;
    for (size_t i = 0; i < state->n; i++)
        mib += state->pods[i].victim ? state->pods[i].all_mib : 0;
    for (uint32_t k = 0; k < r->cards; k++) {
        int best = -1;
        for (uint32_t c = 0; c < state->node->n_cards; c++) {
            struct card card = state->cards[c];
            card.free_mib -= state->nominated_mib[c];
            card.pods += state->nominated_pods[c];
            card_add_core(&card.core_promised, state->nominated_core[c]);
            if (!used[c] && placement_card_fits(&card, r) &&
                (best < 0 || missing[c] > missing[best]))
                best = (int)c;
        }
        if (best < 0)
            break;
        used[best] = true;
        mib -= missing[best];
    }
    return mib;
}

static void find_missing(struct preempt_state *state, int64_t *missing)
{
    const struct request *r = state->preemptor->request;
    restore_all(state);
    preempt_recompute(state);
    for (uint32_t c = 0; c < state->node->n_cards; c++) {
        const struct card *card = &state->cards[c];
        int64_t left = card->total_mib - card->withheld_mib - card->promised_mib -
                       state->nominated_mib[c];
        missing[c] =
            r->kind == REQUEST_MEMORY ? r->mib_per_card - left : card->promised_mib;
        missing[c] = missing[c] < 0 ? 0 : missing[c];
    }
}

/* Tries every set of eligible pods up to the limit and takes the best one. */
static void try_all(struct preempt_state *state, int64_t limit)
{
    size_t pods[TRY_ALL_MAX], n = 0;
    int64_t missing[SCV_MAX_CARDS];
    unsigned best = 0;
    int best_n = TRY_ALL_MAX + 1;
    int64_t best_mib = 0;
    for (size_t i = 0; i < state->n; i++)
        if (state->pods[i].eligible && state->pods[i].pod->priority <= limit)
            pods[n++] = i;
    find_missing(state, missing);
    for (unsigned set = 1; set < 1U << n; set++) {
        int count = __builtin_popcount(set);
        if (count > best_n)
            continue;
        for (size_t k = 0; k < n; k++)
            set_victim(state, pods[k], set >> k & 1);
        if (!fits(state))
            continue;
        int64_t mib = freed_beyond(state, missing);
        if (count == best_n && mib >= best_mib)
            continue;
        best = set;
        best_n = count;
        best_mib = mib;
    }
    for (size_t k = 0; k < n; k++)
        set_victim(state, pods[k], best >> k & 1);
}

/* Does the removal of any eligible pod change at most one card, and nothing else than
 * memory that the request needs? */
static bool is_simple(const struct preempt_state *state)
{
    if (state->node->nominated || state->preemptor->request->core)
        return false;
    for (size_t i = 0; i < state->n; i++) {
        uint32_t cards = 0;
        for (uint32_t c = 0; c < state->node->n_cards; c++)
            cards += state->pods[i].mib[c] >= 0;
        if (state->pods[i].claims || (state->pods[i].eligible && cards > 1))
            return false;
    }
    return true;
}

static size_t count_up_to(const struct preempt_state *state, int64_t limit)
{
    size_t n = 0;
    for (size_t i = 0; i < state->n; i++)
        n += state->pods[i].eligible && state->pods[i].pod->priority <= limit;
    return n;
}

/* Every set costs a dry run of the whole node. */
static bool can_try_all(const struct preempt_state *state, int64_t limit)
{
    size_t n = count_up_to(state, limit);
    return n <= TRY_ALL_MAX &&
           state->n * state->node->n_cards <= (size_t)TRY_ALL_WORK >> n;
}

static void choose(struct preempt_state *state, int64_t limit)
{
    bool simple = is_simple(state);
    if (!simple && can_try_all(state, limit)) {
        try_all(state, limit);
        return;
    }
    bool done = !state->preemptor->request->core && choose_by_cards(state, limit);
    if (!done)
        remove_up_to(state, limit);
    if (!done || !simple)
        restore_unneeded(state);
}

/* The cards that the request gets when the removed pods have left. */
static uint64_t cards_chosen(struct preempt_state *state)
{
    struct card cards[SCV_MAX_CARDS];
    uint32_t picks[REQUEST_MAX_CARDS];
    uint64_t chosen = 0;
    const struct request *r = state->preemptor->request;
    preempt_recompute(state);
    cards_after_nominated(state, cards);
    if (!placement_choose_cards(state->node, cards, r, picks))
        return 0;
    for (uint32_t k = 0; k < r->cards; k++)
        chosen |= 1ULL << picks[k];
    return chosen;
}

/* Is any pod of lower priority certainly bound to the node? */
static bool has_lower(const struct preemptor *preemptor, const struct ledger_node *node)
{
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next)
        if (pod->priority < preemptor->priority && is_bound(pod))
            return true;
    return false;
}

bool preempt_could_help(const struct preemptor *preemptor, const struct ledger_node *node,
                        struct arena *a)
{
    struct preempt_state state;
    if (!has_lower(preemptor, node) ||
        placement_fit(node, preemptor->request) == FIT_NEVER)
        return false;
    init_state(&state, preemptor, node, NULL, 0, a);
    remove_up_to(&state, INT64_MAX);
    return fits(&state);
}

bool preempt_select(const struct preemptor *preemptor, const struct ledger_node *node,
                    const struct span *leaving, size_t n_leaving, struct arena *a,
                    struct preempt_victims *victims)
{
    struct preempt_state state;
    int64_t limit = 0;
    *victims = (struct preempt_victims){0};
    if (placement_fit(node, preemptor->request) == FIT_NEVER)
        return false;
    init_state(&state, preemptor, node, leaving, n_leaving, a);
    if (fits(&state)) {
        victims->cards = cards_chosen(&state);
        return true;
    }
    if (!find_limit(&state, &limit))
        return false;
    if (state.n)
        qsort(state.pods, state.n, sizeof *state.pods, compare_pods);
    choose(&state, limit);
    victims->pods = arena_alloc(a, state.n * sizeof(struct ledger_pod *));
    for (size_t i = 0; i < state.n; i++)
        if (state.pods[i].victim)
            victims->pods[victims->n++] = state.pods[i].pod;
    victims->cards = cards_chosen(&state);
    return true;
}
