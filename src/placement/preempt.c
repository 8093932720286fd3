/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/preempt_priv.h"

#include <stdlib.h>

/*
 * First how high the priorities have to go: all up to there leave, and the request fits.
 * Then the cards one after the other, the cheapest first. That is exact as long as no
 * pod's leaving changes more than one card. Where one does, because pods hold several
 * cards or others are in line for the node, every set is tried while that is little work,
 * and otherwise all leave and those who can are put back. (As kube-scheduler does it.)
 */

enum {
    TRY_ALL_MAX = 10,       /* who may be taken */
    TRY_ALL_WORK = 1 << 18, /* looks at what a pod has on a card: about a millisecond */
};

static void put_tenant(struct card *card, uint32_t c, const struct tenant *t)
{
    card->promised_mib += t->mib[c];
    card->pods++;
    card->whole |= t->pod->request.kind == REQUEST_CARDS;
}

void look_again(struct look *look)
{
    struct card after[SCV_MAX_CARDS];
    const struct ledger_node *node = look->node;
    for (uint32_t c = 0; c < node->n_cards; c++) {
        struct card *card = &look->cards[c];
        *card = look->empty[c];
        for (size_t i = 0; i < look->n; i++)
            if (!look->tenants[i].gone && look->tenants[i].mib[c] >= 0)
                put_tenant(card, c, &look->tenants[i]);
        int64_t left = card->total_mib - card->withheld_mib - card->promised_mib;
        if (card->state == CARD_AVAILABLE && !card->whole && left > 0)
            card->free_mib = left;
        after[c] = *card;
    }
    if (node->nominated)
        look->line_claims =
            placement_line_takes(node, after, look->ask->priority, look->ask->uid);
    for (uint32_t c = 0; c < node->n_cards; c++) {
        look->line_mib[c] = look->cards[c].free_mib - after[c].free_mib;
        look->line_pods[c] = after[c].pods - look->cards[c].pods;
    }
}

static bool fits(struct look *look)
{
    struct card cards[SCV_MAX_CARDS];
    look_again(look);
    memcpy(cards, look->cards, look->node->n_cards * sizeof *cards);
    for (uint32_t c = 0; c < look->node->n_cards; c++) {
        cards[c].free_mib -= look->line_mib[c];
        cards[c].pods += look->line_pods[c];
    }
    return placement_fit_cards(look->node, cards, claims_on(look, cards),
                               look->ask->request) == FIT_YES;
}

static bool is_leaving(const struct ledger_pod *pod, const struct span *uids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (span_eq(pod->uid, uids[i]))
            return true;
    return false;
}

/* A promise whose Binding may not have taken effect is nobody whom kube-scheduler could
 * evict. */
static bool is_bound(const struct ledger_pod *pod)
{
    return pod->final || pod->n_shares == 0;
}

static void add_tenant(struct look *look, const struct ledger_pod *pod, bool leaving)
{
    const struct ledger_node *node = look->node;
    struct tenant *t = &look->tenants[look->n++];
    *t = (struct tenant){.pod = pod, .gone = leaving};
    t->mib = arena_alloc(look->arena, node->n_cards * sizeof *t->mib);
    for (uint32_t c = 0; c < node->n_cards; c++)
        t->mib[c] = ledger_pod_mib(pod, &node->cards[c]);
}

static void weigh_tenant(const struct look *look, struct tenant *t)
{
    const struct ledger_pod *pod = t->pod;
    bool any = false;
    for (uint32_t c = 0; c < look->node->n_cards; c++) {
        any |= t->mib[c] >= 0;
        t->all_mib += t->mib[c] > 0 ? t->mib[c] : 0;
    }
    t->may = any && !t->gone && pod->priority < look->ask->priority && is_bound(pod) &&
             !span_eq(pod->uid, look->ask->uid);
}

static void empty_cards(struct look *look)
{
    for (uint32_t c = 0; c < look->node->n_cards; c++) {
        struct card *card = &look->empty[c];
        *card = look->node->cards[c];
        card->promised_mib = card->free_mib = 0;
        card->pods = 0;
        card->whole = false;
    }
}

static void look_at(struct look *look, const struct preempt_ask *ask,
                    const struct ledger_node *node, const struct span *leaving,
                    size_t n_leaving, struct arena *a)
{
    size_t n = 0, n_known = 0;
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next)
        n++;
    *look = (struct look){.ask = ask, .node = node, .arena = a};
    look->tenants = arena_alloc(a, n * sizeof *look->tenants);
    look->cards = arena_alloc(a, node->n_cards * sizeof *look->cards);
    look->empty = arena_alloc(a, node->n_cards * sizeof *look->empty);
    empty_cards(look);
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next)
        add_tenant(look, pod, is_leaving(pod, leaving, n_leaving));
    for (size_t i = 0; i < look->n; i++)
        n_known += look->tenants[i].gone;
    if (ask->request->kind == REQUEST_DEVICES)
        look_at_holders(look, n_known < n_leaving);
    for (size_t i = 0; i < look->n; i++)
        weigh_tenant(look, &look->tenants[i]);
}

static void let_go(struct look *look, size_t i, bool gone)
{
    look->tenants[i].gone = look->tenants[i].chosen = gone;
}

/* Takes all up to that priority, and nobody else. */
static void take_up_to(struct look *look, int64_t limit)
{
    for (size_t i = 0; i < look->n; i++)
        if (look->tenants[i].may)
            let_go(look, i, look->tenants[i].pod->priority <= limit);
}

static void take_nobody(struct look *look)
{
    for (size_t i = 0; i < look->n; i++)
        if (look->tenants[i].may)
            let_go(look, i, false);
}

/* The lowest priority above `above` among those who may be taken; false: none is. */
static bool next_priority(const struct look *look, bool any, int64_t above,
                          int64_t *priority)
{
    bool found = false;
    for (size_t i = 0; i < look->n; i++) {
        const struct tenant *t = &look->tenants[i];
        if (!t->may || (!any && t->pod->priority <= above))
            continue;
        if (!found || t->pod->priority < *priority)
            *priority = t->pod->priority;
        found = true;
    }
    return found;
}

/* The lowest limit at which it helps that all up to it leave. */
static bool find_limit(struct look *look, int64_t *limit)
{
    bool any = true;
    while (next_priority(look, any, *limit, limit)) {
        any = false;
        take_up_to(look, *limit);
        if (fits(look))
            return true;
    }
    return false;
}

/* Card by card. False: that way it does not fit. */
static bool choose_by_cards(struct look *look, int64_t limit)
{
    const struct request *r = look->ask->request;
    bool used[SCV_MAX_CARDS] = {false};
    take_nobody(look);
    for (uint32_t k = 0; k < r->cards; k++) {
        struct choice best = {0}, choice;
        uint32_t card = look->node->n_cards;
        look_again(look);
        for (uint32_t c = 0; c < look->node->n_cards; c++) {
            if (used[c] || !card_choose(look, c, limit, &choice))
                continue;
            if (card < look->node->n_cards &&
                (choice.n > best.n ||
                 (choice.n == best.n && choice.beyond_mib >= best.beyond_mib)))
                continue;
            best = choice;
            card = c;
        }
        if (card == look->node->n_cards)
            return false;
        used[card] = true;
        for (size_t i = 0; i < best.n; i++)
            let_go(look, best.who[i], true);
    }
    return fits(look);
}

static bool goes_back_first(const struct tenant *a, const struct tenant *b)
{
    if (a->pod->priority != b->pod->priority)
        return a->pod->priority > b->pod->priority;
    if (a->all_mib != b->all_mib)
        return a->all_mib > b->all_mib;
    return span_cmp(a->pod->uid, b->pod->uid) > 0;
}

static int compare_tenants(const void *a, const void *b)
{
    return goes_back_first(a, b) ? -1 : 1;
}

/* Whoever can stay of those who were chosen is put back, the most important first.
 * look->tenants are in that order. */
static void put_back(struct look *look)
{
    for (size_t i = 0; i < look->n; i++) {
        if (!look->tenants[i].chosen)
            continue;
        let_go(look, i, false);
        if (!fits(look))
            let_go(look, i, true);
    }
}

/* What leaves beyond what was missing on the cards that the request gets: those on which
 * most was missing, because the sum is the same for all. */
static int64_t beyond(struct look *look, const int64_t *missing)
{
    const struct request *r = look->ask->request;
    bool used[SCV_MAX_CARDS] = {false};
    int64_t mib = 0;
    for (size_t i = 0; i < look->n; i++)
        mib += look->tenants[i].chosen ? look->tenants[i].all_mib : 0;
    for (uint32_t k = 0; k < r->cards; k++) {
        int best = -1;
        for (uint32_t c = 0; c < look->node->n_cards; c++) {
            struct card card = look->cards[c];
            card.free_mib -= look->line_mib[c];
            card.pods += look->line_pods[c];
            if (!used[c] && card_fits(&card, r) &&
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

static void find_missing(struct look *look, int64_t *missing)
{
    const struct request *r = look->ask->request;
    take_nobody(look);
    look_again(look);
    for (uint32_t c = 0; c < look->node->n_cards; c++) {
        const struct card *card = &look->cards[c];
        int64_t left =
            card->total_mib - card->withheld_mib - card->promised_mib - look->line_mib[c];
        missing[c] =
            r->kind == REQUEST_MEMORY ? r->mib_per_card - left : card->promised_mib;
        missing[c] = missing[c] < 0 ? 0 : missing[c];
    }
}

/* Every set of those up to the limit. The best found is taken. */
static void try_all(struct look *look, int64_t limit)
{
    size_t who[TRY_ALL_MAX], n = 0;
    int64_t missing[SCV_MAX_CARDS];
    unsigned best = 0;
    int best_n = TRY_ALL_MAX + 1;
    int64_t best_mib = 0;
    for (size_t i = 0; i < look->n; i++)
        if (look->tenants[i].may && look->tenants[i].pod->priority <= limit)
            who[n++] = i;
    find_missing(look, missing);
    for (unsigned set = 1; set < 1U << n; set++) {
        int count = __builtin_popcount(set);
        if (count > best_n)
            continue;
        for (size_t k = 0; k < n; k++)
            let_go(look, who[k], set >> k & 1);
        if (!fits(look))
            continue;
        int64_t mib = beyond(look, missing);
        if (count == best_n && mib >= best_mib)
            continue;
        best = set;
        best_n = count;
        best_mib = mib;
    }
    for (size_t k = 0; k < n; k++)
        let_go(look, who[k], best >> k & 1);
}

/* Does the leaving of each change one card at most, and nothing else? */
static bool is_simple(const struct look *look)
{
    if (look->node->nominated)
        return false;
    for (size_t i = 0; i < look->n; i++) {
        uint32_t cards = 0;
        for (uint32_t c = 0; c < look->node->n_cards; c++)
            cards += look->tenants[i].mib[c] >= 0;
        if (look->tenants[i].claims || (look->tenants[i].may && cards > 1))
            return false;
    }
    return true;
}

static size_t count_up_to(const struct look *look, int64_t limit)
{
    size_t n = 0;
    for (size_t i = 0; i < look->n; i++)
        n += look->tenants[i].may && look->tenants[i].pod->priority <= limit;
    return n;
}

/* Every set is a look at the whole node. */
static bool can_try_all(const struct look *look, int64_t limit)
{
    size_t n = count_up_to(look, limit);
    return n <= TRY_ALL_MAX && look->n * look->node->n_cards <= (size_t)TRY_ALL_WORK >> n;
}

static void choose(struct look *look, int64_t limit)
{
    bool simple = is_simple(look);
    if (!simple && can_try_all(look, limit)) {
        try_all(look, limit);
        return;
    }
    bool done = choose_by_cards(look, limit);
    if (!done)
        take_up_to(look, limit);
    if (!done || !simple)
        put_back(look);
}

bool preempt_choose(const struct preempt_ask *ask, const struct ledger_node *node,
                    const struct span *leaving, size_t n_leaving, struct arena *a,
                    struct preempt_set *set)
{
    struct look look;
    int64_t limit = 0;
    *set = (struct preempt_set){0};
    if (placement_fit(node, ask->request) == FIT_NEVER)
        return false;
    look_at(&look, ask, node, leaving, n_leaving, a);
    if (fits(&look))
        return true;
    if (!find_limit(&look, &limit))
        return false;
    if (look.n)
        qsort(look.tenants, look.n, sizeof *look.tenants, compare_tenants);
    choose(&look, limit);
    set->pods = arena_alloc(a, look.n * sizeof(struct ledger_pod *));
    for (size_t i = 0; i < look.n; i++)
        if (look.tenants[i].chosen)
            set->pods[set->n++] = look.tenants[i].pod;
    return true;
}
