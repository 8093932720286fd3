/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/preempt.h"

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

/* A pod on the node. */
struct preempt_pod {
    const struct ledger_pod *pod;
    int64_t *mib;    /* on each card; -1: no promise there */
    uint16_t *core;  /* percent of the compute of each card */
    int64_t all_mib; /* on all cards of the node */
    int64_t claims;  /* cards that it gets through nvidia.com/gpu, unknown which */
    bool eligible;   /* may become a victim */
    bool removed;    /* a victim, or leaves in any case */
    bool victim;     /* selected by this module */
};

/* A dry run: the node as it would be without the removed pods. */
struct preempt_state {
    const struct preemptor *preemptor;
    const struct ledger_node *node;
    struct arena *arena;
    struct preempt_pod *pods;
    size_t n;
    struct card *empty; /* the cards without any pod */
    struct card *cards; /* before the nominated pods have taken their part */
    uint64_t held; /* bit c: the podList shows card c as allocated by nvidia.com/... */
    uint64_t nominated_claims; /* cards that nominated pods get through nvidia.com/gpu */
    int64_t nominated_mib[SCV_MAX_CARDS];
    uint32_t nominated_pods[SCV_MAX_CARDS];
    int32_t nominated_core[SCV_MAX_CARDS];
};

/* Some pods of one card, and what removing them costs: their number, and the memory that
 * they free beyond what was missing on the card. */
struct preempt_choice {
    size_t *indexes; /* into the state's pods; in the arena */
    size_t n;
    int64_t beyond_mib;
};

enum {
    TRY_ALL_MAX = 10,       /* eligible pods */
    TRY_ALL_WORK = 1 << 18, /* visits of a pod on a card: about a millisecond */
};

static void add_promise(struct card *card, uint32_t c, const struct preempt_pod *p)
{
    card->promised_mib += p->mib[c];
    card_add_core(&card->compute_promised, p->core[c]);
    card->pods++;
    card->whole |= p->pod->request->kind == REQUEST_CARDS;
}

static void remove_pods(struct card *card)
{
    card->promised_mib = card->free_mib = 0;
    card->compute_promised = 0;
    card->pods = 0;
    card->whole = false;
}

/* Computes cards and nominated_* for the pods that are removed now. */
static void recompute(struct preempt_state *state)
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
    struct select_view view;
    select_view_cards(&view, node, after, 0);
    select_take_nominated(&view, &state->preemptor->pod);
    state->nominated_claims = view.claimed;
    for (uint32_t c = 0; c < node->n_cards; c++) {
        state->nominated_mib[c] = state->cards[c].free_mib - after[c].free_mib;
        state->nominated_pods[c] = after[c].pods - state->cards[c].pods;
        state->nominated_core[c] =
            after[c].compute_promised - state->cards[c].compute_promised;
    }
}

/* -- Cards that NVIDIA's device plugin allocated --
 *
 * The podList names the pod of each, so the
 * cards that a pod frees are known. For a pod that the podList does not show, only the
 * number of its cards is known. A node is rejected only if certainly nothing helps, so
 * unknown cards count in favor of the request.
 */

static bool is_of_the_node(const struct preempt_state *state, const struct scv_held *held)
{
    for (size_t i = 0; i < state->n; i++) {
        const struct ledger_pod *pod = state->pods[i].pod;
        if (span_eq(pod->name, held->pod) && span_eq(pod->ns, held->ns))
            return true;
    }
    return false;
}

/* Assigns the cards that the podList shows as allocated to their pods, a shared one to each of
 * its pods. A pod counts as if it had these cards whole: they are not free before it leaves.
 * Cards of pods that the ledger does not know stay held, unless such a pod leaves (`unknown`). */
static void read_held_cards(struct preempt_state *state, bool unknown)
{
    struct ledger_node_info info = ledger_node_info(state->node);
    uint64_t of_others = 0;
    for (size_t i = 0; i < state->n; i++) {
        struct preempt_pod *p = &state->pods[i];
        int64_t devices, asked = request_devices(p->pod->request);
        uint64_t bits = ledger_pod_holds(state->node, p->pod, &devices);
        p->claims = asked > devices ? asked - devices : 0;
        for (; bits; bits &= bits - 1)
            p->mib[__builtin_ctzll(bits)] = state->empty[__builtin_ctzll(bits)].total_mib;
    }
    for (size_t i = 0; i < info.n_held; i++)
        if (!is_of_the_node(state, &info.held[i]))
            of_others |= ledger_held_cards(state->node, &info.held[i]);
    state->held = info.held_cards;
    for (uint32_t c = 0; c < state->node->n_cards; c++)
        if (state->empty[c].state == CARD_HELD && (unknown || !(of_others >> c & 1)))
            state->empty[c].state = CARD_AVAILABLE;
}

/* How many of the cards that suit the request other pods certainly get through nvidia.com/gpu.
 * Nominated pods come first and count in full, as in filter. Pods that stay and that the podList
 * does not show get cards that are not allocated; cards that do not fit the request count
 * first. */
static uint64_t claimed_cards(const struct preempt_state *state,
                              const struct select_view *view)
{
    const struct request *r = state->preemptor->pod.request;
    int64_t claims = 0;
    if (r->kind != REQUEST_DEVICES)
        return 0;
    for (size_t i = 0; i < state->n; i++)
        claims += state->pods[i].removed ? 0 : state->pods[i].claims;
    uint64_t fit = select_mask(view, r);
    for (uint32_t c = 0; c < state->node->n_cards; c++)
        claims -=
            !((state->held | fit) >> c & 1) && view->cards[c].state != CARD_UNHEALTHY;
    return state->nominated_claims + (claims > 0 ? (uint64_t)claims : 0);
}

/* The view of the dry run, less what the nominated pods take. `cards` is the view's. */
static void view_after_nominated(const struct preempt_state *state, struct card *cards,
                                 struct select_view *view)
{
    if (state->node->n_cards)
        memcpy(cards, state->cards, state->node->n_cards * sizeof *cards);
    for (uint32_t c = 0; c < state->node->n_cards; c++) {
        cards[c].free_mib -= state->nominated_mib[c];
        cards[c].pods += state->nominated_pods[c];
        card_add_core(&cards[c].compute_promised, state->nominated_core[c]);
    }
    select_view_cards(view, state->node, cards, 0);
    view->claimed = claimed_cards(state, view);
}

/* Does the request fit when the removed pods have left? `chosen`: the cards that it gets, or
 * NULL. */
static bool fits_now(struct preempt_state *state, uint64_t *chosen)
{
    struct card cards[SCV_MAX_CARDS];
    struct select_view view;
    recompute(state);
    view_after_nominated(state, cards, &view);
    return select_cards(&view, state->preemptor->pod.request, SELECT_ALL_CARDS, chosen) ==
           FIT_YES;
}

/* -- One card: the fewest pods whose memory on the card covers what is missing, and of
 * those sets the one that frees the least memory overall --
 *
 * The largest pods give the number
 * of victims. Which victims is a branch-and-bound search. Pods of equal size are tried
 * once, and there are few different sizes, so the search is short; CARD_STEPS_MAX bounds it.
 */

enum { CARD_STEPS_MAX = 5000 };

/* An eligible pod on the card. */
struct item {
    size_t index; /* into the state's pods */
    int64_t here_mib, all_mib;
};

struct search {
    const struct item *items; /* largest first */
    size_t n, want;           /* number of items, and of victims */
    int64_t missing_mib;
    int64_t *first_mib;   /* here_mib of the first i items together */
    size_t *taken, *best; /* the current and the best set */
    int64_t best_mib;     /* what the best set frees overall; -1: no set yet */
    int64_t least_mib;    /* the smallest all_mib of an item */
    unsigned steps;
};

static void search_from(struct search *s, size_t from, size_t n, int64_t here,
                        int64_t all)
{
    size_t left = s->want - n;
    if (left == 0) {
        if (here < s->missing_mib || (s->best_mib >= 0 && all >= s->best_mib))
            return;
        s->best_mib = all;
        memcpy(s->best, s->taken, n * sizeof *s->best);
        return;
    }
    for (size_t i = from; i + left <= s->n; i++) {
        const struct item *item = &s->items[i];
        if (here + s->first_mib[i + left] - s->first_mib[i] < s->missing_mib)
            return; /* the following items are even smaller */
        if (s->best_mib >= 0 && all + (int64_t)left * s->least_mib >= s->best_mib)
            return;
        if (i > from && item->here_mib == item[-1].here_mib &&
            item->all_mib == item[-1].all_mib)
            continue; /* equal to the item before, which was tried */
        if (++s->steps > CARD_STEPS_MAX)
            return; /* a set was found: the first one tried has the largest items */
        s->taken[n] = i;
        search_from(s, i + 1, n + 1, here + item->here_mib, all + item->all_mib);
    }
}

/* How many of the largest items cover what is missing; 0: not even all of them. */
static size_t fewest_items(const struct search *s)
{
    for (size_t n = 1; n <= s->n; n++)
        if (s->first_mib[n] >= s->missing_mib)
            return n;
    return 0;
}

static bool search_all(struct preempt_state *state, struct search *s,
                       struct preempt_choice *choice)
{
    s->first_mib = arena_alloc(state->arena, (s->n + 1) * sizeof *s->first_mib);
    s->first_mib[0] = 0;
    s->least_mib = s->n ? s->items[0].all_mib : 0;
    for (size_t i = 0; i < s->n; i++) {
        s->first_mib[i + 1] = s->first_mib[i] + s->items[i].here_mib;
        if (s->items[i].all_mib < s->least_mib)
            s->least_mib = s->items[i].all_mib;
    }
    s->want = fewest_items(s);
    if (!s->want)
        return false;
    s->taken = arena_alloc(state->arena, s->want * sizeof *s->taken);
    s->best = arena_alloc(state->arena, s->want * sizeof *s->best);
    s->best_mib = -1;
    search_from(s, 0, 0, 0, 0);
    for (size_t i = 0; i < s->want; i++)
        choice->indexes[choice->n++] = s->items[s->best[i]].index;
    choice->beyond_mib += s->best_mib;
    return true;
}

static int compare_items(const void *a, const void *b, void *ctx)
{
    const struct item *x = a, *y = b;
    const struct preempt_state *state = ctx;
    const struct ledger_pod *p = state->pods[x->index].pod;
    const struct ledger_pod *q = state->pods[y->index].pod;
    if (x->here_mib != y->here_mib)
        return x->here_mib > y->here_mib ? -1 : 1;
    if (x->all_mib != y->all_mib)
        return x->all_mib < y->all_mib ? -1 : 1;
    if (p->priority != q->priority)
        return p->priority < q->priority ? -1 : 1;
    return span_cmp(p->uid, q->uid);
}

/* Would the card fit the request if it were empty? */
static bool fits_when_empty(const struct preempt_state *state, uint32_t c)
{
    struct card card = state->cards[c];
    remove_pods(&card);
    card.free_mib = card_left_mib(&card);
    struct ledger_node node = {.n_cards = 1};
    struct select_view view;
    select_view_cards(&view, &node, &card, 0);
    return select_mask(&view, state->preemptor->pod.request);
}

/* Splits the pods of the card: those that must be removed in any case go into `choice`,
 * the other eligible pods into `items`. False: a pod that must be removed is not
 * eligible. */
static bool split_pods(struct preempt_state *state, uint32_t c, int64_t limit,
                       struct item *items, size_t *n, struct preempt_choice *choice)
{
    bool all = state->preemptor->pod.request->kind != REQUEST_MEMORY;
    for (size_t i = 0; i < state->n; i++) {
        const struct preempt_pod *p = &state->pods[i];
        if (p->removed || p->mib[c] < 0)
            continue;
        bool eligible = p->eligible && p->pod->priority <= limit;
        if (all || p->pod->request->kind == REQUEST_CARDS) {
            if (!eligible)
                return false;
            choice->indexes[choice->n++] = i;
            choice->beyond_mib += p->all_mib - p->mib[c];
        } else if (eligible) {
            items[(*n)++] = (struct item){i, p->mib[c], p->all_mib};
        }
    }
    return true;
}

/* The cheapest set of pods with priorities up to `limit` whose removal frees card c for the
 * request. False: no such set. n is 0 if the card has enough free memory already. */
static bool select_for_card(struct preempt_state *state, uint32_t c, int64_t limit,
                            struct preempt_choice *choice)
{
    const struct request *r = state->preemptor->pod.request;
    const struct card *card = &state->cards[c];
    struct item *items = arena_alloc(state->arena, state->n * sizeof *items);
    size_t n = 0;
    *choice = (struct preempt_choice){
        .indexes = arena_alloc(state->arena, state->n * sizeof(size_t))};
    if (!fits_when_empty(state, c) || !split_pods(state, c, limit, items, &n, choice))
        return false;
    if (r->kind != REQUEST_MEMORY)
        return state->nominated_pods[c] == 0;
    int64_t left = card->total_mib - card->withheld_mib - card->promised_mib -
                   card->reserved_mib - state->nominated_mib[c];
    int64_t missing = r->mib_per_card - left;
    for (size_t i = 0; i < choice->n; i++)
        missing -= state->pods[choice->indexes[i]].mib[c];
    if (missing <= 0) { /* the choice frees that much more than needed */
        choice->beyond_mib -= choice->n ? missing : 0;
        return true;
    }
    qsort_r(items, n, sizeof *items, compare_items, state);
    struct search s = {.items = items, .n = n, .missing_mib = missing};
    choice->beyond_mib -= missing;
    return search_all(state, &s, choice);
}

/* -- The victims of a node -- */

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
    p->eligible = any && !p->removed && !spared &&
                  pod->priority < state->preemptor->pod.priority +
                                      MUTANT(eviction_of_equal_priority) &&
                  is_bound(pod) && !span_eq(pod->uid, state->preemptor->pod.uid);
}

static void init_empty_cards(struct preempt_state *state)
{
    const struct preemptor *preemptor = state->preemptor;
    ledger_cards_seen(state->node, preemptor->pod.priority, preemptor->pod.uid,
                      state->empty);
    for (uint32_t c = 0; c < state->node->n_cards; c++)
        remove_pods(&state->empty[c]);
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
    if (preemptor->pod.request->kind == REQUEST_DEVICES)
        read_held_cards(state, n_known < n_leaving);
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

/* The lowest priority limit up to which removing all eligible pods helps. */
static bool find_limit(struct preempt_state *state, int64_t *limit)
{
    for (int64_t above = INT64_MIN;; above = *limit) {
        bool found = false;
        for (size_t i = 0; i < state->n; i++) {
            const struct preempt_pod *p = &state->pods[i];
            if (!p->eligible || p->pod->priority <= above ||
                (found && p->pod->priority >= *limit))
                continue;
            *limit = p->pod->priority;
            found = true;
        }
        if (!found)
            return false;
        remove_up_to(state, *limit);
        if (fits_now(state, NULL))
            return true;
    }
}

/* Frees card by card. False: the request does not fit after that. */
static bool choose_by_cards(struct preempt_state *state, int64_t limit)
{
    const struct request *r = state->preemptor->pod.request;
    bool used[SCV_MAX_CARDS] = {false};
    remove_up_to(state, INT64_MIN);
    for (uint32_t k = 0; k < r->cards; k++) {
        struct preempt_choice best = {0}, choice;
        uint32_t card = state->node->n_cards;
        recompute(state);
        for (uint32_t c = 0; c < state->node->n_cards; c++) {
            if (used[c] || !select_for_card(state, c, limit, &choice))
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
    return fits_now(state, NULL);
}

/* The pod that is restored first comes first. */
static int compare_pods(const void *a, const void *b)
{
    const struct preempt_pod *x = a, *y = b;
    if (x->pod->priority != y->pod->priority)
        return x->pod->priority > y->pod->priority ? -1 : 1;
    if (x->all_mib != y->all_mib)
        return x->all_mib > y->all_mib ? -1 : 1;
    return span_cmp(y->pod->uid, x->pod->uid);
}

/* Restores the victims that are not needed, the most important first: state->pods are in
 * that order. */
static void restore_unneeded(struct preempt_state *state)
{
    for (size_t i = 0; i < state->n; i++) {
        if (!state->pods[i].victim)
            continue;
        set_victim(state, i, false);
        if (!fits_now(state, NULL))
            set_victim(state, i, true);
    }
}

/* The memory that the victims free beyond what was missing on the cards that the request
 * gets. Of the cards that fit, those with the most missing count: that gives the least. */
static int64_t freed_beyond(struct preempt_state *state, const int64_t *missing)
{
    struct card cards[SCV_MAX_CARDS];
    struct select_view view;
    int64_t mib = 0;
    for (size_t i = 0; i < state->n; i++)
        mib += state->pods[i].victim ? state->pods[i].all_mib : 0;
    view_after_nominated(state, cards, &view);
    uint64_t fit = select_mask(&view, state->preemptor->pod.request);
    for (uint32_t k = 0; fit && k < state->preemptor->pod.request->cards; k++) {
        int best = __builtin_ctzll(fit);
        for (uint64_t left = fit; left; left &= left - 1)
            if (missing[__builtin_ctzll(left)] > missing[best])
                best = __builtin_ctzll(left);
        fit &= ~(UINT64_C(1) << best);
        mib -= missing[best];
    }
    return mib;
}

static void find_missing(struct preempt_state *state, int64_t *missing)
{
    const struct request *r = state->preemptor->pod.request;
    remove_up_to(state, INT64_MIN);
    recompute(state);
    for (uint32_t c = 0; c < state->node->n_cards; c++) {
        const struct card *card = &state->cards[c];
        int64_t left = card->total_mib - card->withheld_mib - card->promised_mib -
                       state->nominated_mib[c];
        missing[c] =
            r->kind == REQUEST_MEMORY ? r->mib_per_card - left : card->promised_mib;
        missing[c] = missing[c] < 0 ? 0 : missing[c];
    }
}

/* Tries every set of eligible pods up to the limit and takes the best one. False: that is too
 * much work, because every set costs a dry run of the whole node. */
static bool try_all(struct preempt_state *state, int64_t limit)
{
    size_t pods[TRY_ALL_MAX], n = 0;
    int64_t missing[SCV_MAX_CARDS], best_mib = 0;
    unsigned best = 0;
    int best_n = TRY_ALL_MAX + 1;
    for (size_t i = 0; i < state->n; i++) {
        if (!state->pods[i].eligible || state->pods[i].pod->priority > limit)
            continue;
        if (n == TRY_ALL_MAX)
            return false;
        pods[n++] = i;
    }
    if (state->n * state->node->n_cards > (size_t)TRY_ALL_WORK >> n)
        return false;
    find_missing(state, missing);
    for (unsigned set = 1; set < 1U << n; set++) {
        int count = __builtin_popcount(set);
        if (count > best_n)
            continue;
        for (size_t k = 0; k < n; k++)
            set_victim(state, pods[k], set >> k & 1);
        if (!fits_now(state, NULL))
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
    return true;
}

/* Does the removal of any eligible pod change at most one card, and nothing else than
 * memory that the request needs? */
static bool is_simple(const struct preempt_state *state)
{
    if (state->node->nominated || state->preemptor->pod.request->core)
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

static void choose(struct preempt_state *state, int64_t limit)
{
    bool simple = is_simple(state);
    if (!simple && try_all(state, limit))
        return;
    bool done = !state->preemptor->pod.request->core && choose_by_cards(state, limit);
    if (!done)
        remove_up_to(state, limit);
    if (!done || !simple)
        restore_unneeded(state);
}

/* Is any pod of lower priority certainly bound to the node? */
static bool has_lower(const struct preemptor *preemptor, const struct ledger_node *node)
{
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next)
        if (pod->priority < preemptor->pod.priority && is_bound(pod))
            return true;
    return false;
}

bool preempt_could_help(const struct preemptor *preemptor, const struct ledger_node *node,
                        struct arena *a)
{
    struct preempt_state state;
    if (!has_lower(preemptor, node) ||
        select_fit(node, preemptor->pod.request) == FIT_NEVER)
        return false;
    init_state(&state, preemptor, node, NULL, 0, a);
    remove_up_to(&state, INT64_MAX);
    return fits_now(&state, NULL);
}

bool preempt_select(const struct preemptor *preemptor, const struct ledger_node *node,
                    const struct span *leaving, size_t n_leaving, struct arena *a,
                    struct preempt_victims *victims)
{
    struct preempt_state state;
    int64_t limit = 0;
    *victims = (struct preempt_victims){0};
    if (select_fit(node, preemptor->pod.request) == FIT_NEVER)
        return false;
    init_state(&state, preemptor, node, leaving, n_leaving, a);
    if (fits_now(&state, &victims->cards))
        return true;
    if (!find_limit(&state, &limit))
        return false;
    if (state.n)
        qsort(state.pods, state.n, sizeof *state.pods, compare_pods);
    choose(&state, limit);
    victims->pods = arena_alloc(a, state.n * sizeof(struct ledger_pod *));
    for (size_t i = 0; i < state.n; i++)
        if (state.pods[i].victim)
            victims->pods[victims->n++] = state.pods[i].pod;
    fits_now(&state, &victims->cards);
    return true;
}
