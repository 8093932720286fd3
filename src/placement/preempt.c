/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/preempt.h"

#include <stdlib.h>

#include "base/mutant.h"
#include "domain/quantity.h"
#include "placement/dry_run.h"

/*
 * The first step finds the lowest priority limit: if all pods up to it are removed, the
 * request fits. The second step frees one card after the other, the cheapest first. This
 * is exact as long as the removal of a pod changes at most one card.
 *
 * If pods have several cards, or pods are nominated to the node, the second step tries
 * every set while that is little work. Otherwise it removes all pods up to the limit and
 * restores those that can stay, as kube-scheduler does.
 */

/* The node as it would be without the victims and the pods that leave in any case. */
struct preempt_state {
    struct dry_run run;
    const struct preemptor *preemptor;
    const struct request *request;
    struct arena *arena;
    uint64_t held; /* bit c: the podList shows card c as allocated by nvidia.com/... */
};

/* Some pods of one card, and what removing them costs: their number, and the memory that
 * they free beyond what was missing on the card. */
struct preempt_choice {
    struct dry_pod **pods; /* in the arena */
    size_t n;
    int64_t beyond_mib;
};

enum {
    TRY_ALL_MAX = 10,       /* eligible pods */
    TRY_SETS_MAX = 128,     /* sets of connected cards: those of 8 cards */
    TRY_ALL_WORK = 1 << 18, /* visits of a pod on a card: about a millisecond */
};

/* -- Cards that NVIDIA's device plugin allocated --
 *
 * The podList names the pod of each, so the
 * cards that a pod frees are known. For a pod that the podList does not show, only the
 * number of its cards is known. A node is rejected only if certainly nothing helps, so
 * unknown cards count in favor of the request.
 */

static bool is_of_the_node(const struct dry_run *run, const struct scv_held *held)
{
    for (size_t i = 0; i < run->n; i++) {
        const struct ledger_pod *pod = run->pods[i].pod;
        if (span_eq(pod->name, held->pod) && span_eq(pod->ns, held->ns))
            return true;
    }
    return false;
}

/* Does the request fit when the removed pods have left? `chosen`: the cards that it gets, or
 * NULL. */
static bool fits_now(struct preempt_state *state, uint64_t *chosen)
{
    struct dry_run *run = &state->run;
    struct select_view view;
    dry_run_view(run, &state->preemptor->pod, &view);
    /* Of the cards that suit the request, other pods certainly get some through nvidia.com/gpu.
     * Nominated pods come first and count in full, as in filter. Pods that stay and that the
     * podList does not show get cards that are not allocated; cards that do not fit the request
     * count first. */
    if (state->request->kind == REQUEST_DEVICES) {
        int64_t claims = 0;
        for (size_t i = 0; i < run->n; i++)
            claims += run->pods[i].removed ? 0 : run->pods[i].claims;
        uint64_t taken = state->held | select_mask(&view, state->request);
        for (uint32_t c = 0; c < run->node->n_cards; c++)
            claims -= !(taken >> c & 1) && view.cards[c].state != CARD_UNHEALTHY;
        view.claimed += claims > 0 ? (uint64_t)claims : 0;
    }
    return select_cards(&view, state->request, SELECT_ALL_CARDS, chosen) == FIT_YES;
}

/* -- One card: the fewest pods whose memory on the card covers what is missing, and of
 * those sets the one that frees the least memory overall --
 *
 * The largest pods give the number
 * of victims. Which victims is a branch-and-bound search. Pods of equal size are tried
 * once, and there are few different sizes, so the search is short; CARD_STEPS_MAX bounds it.
 */

enum { CARD_STEPS_MAX = 5000 };

struct search {
    struct dry_pod *const *items; /* eligible pods on the card, largest first */
    size_t n, want;               /* number of items, and of victims */
    uint32_t card;
    int64_t missing_mib;
    int64_t *first_mib;   /* what the first i items have there together */
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
        const struct dry_pod *item = s->items[i],
                             *before = i > from ? s->items[i - 1] : NULL;
        int64_t mib = item->mib[s->card];
        if (here + s->first_mib[i + left] - s->first_mib[i] < s->missing_mib)
            return; /* the following items are even smaller */
        if (s->best_mib >= 0 && all + (int64_t)left * s->least_mib >= s->best_mib)
            return;
        if (before && mib == before->mib[s->card] && item->all_mib == before->all_mib)
            continue; /* equal to the item before, which was tried */
        if (++s->steps > CARD_STEPS_MAX)
            return; /* a set was found: the first one tried has the largest items */
        s->taken[n] = i;
        search_from(s, i + 1, n + 1, here + mib, all + item->all_mib);
    }
}

static int compare_items(const void *a, const void *b, void *card)
{
    const struct dry_pod *x = *(struct dry_pod *const *)a,
                         *y = *(struct dry_pod *const *)b;
    uint32_t c = *(const uint32_t *)card;
    return quantity_compare(y->mib[c], x->mib[c])
               ?: quantity_compare(x->all_mib, y->all_mib)
               ?: quantity_compare(x->pod->priority, y->pod->priority)
               ?: span_cmp(x->pod->uid, y->pod->uid);
}

/* The cheapest set of pods with priorities up to `limit` whose removal frees card c for the
 * request, which would take the empty card. False: no such set. n is 0 if the card has enough
 * free memory already. */
static bool select_for_card(struct preempt_state *state, uint32_t c, int64_t limit,
                            struct preempt_choice *choice)
{
    const struct dry_run *run = &state->run;
    const struct card *card = &run->cards[c], *after = &run->after[c];
    bool all = state->request->kind != REQUEST_MEMORY;
    struct dry_pod **items = arena_alloc(state->arena, run->n * sizeof(void *));
    struct search s = {.items = items, .card = c};
    *choice = (struct preempt_choice){
        .pods = arena_alloc(state->arena, run->n * sizeof(void *))};
    s.missing_mib = request_mib(state->request, card->total_mib, card->kind->kept_mib) -
                    (card->total_mib - card->withheld_mib - card->promised_mib -
                     card->reserved_mib - (card->free_mib - after->free_mib));
    for (size_t i = 0; i < run->n; i++) {
        struct dry_pod *p = &run->pods[i];
        if (p->removed || p->mib[c] < 0)
            continue;
        bool eligible = p->may_leave && p->pod->priority <= limit;
        if (!all && p->pod->request->kind != REQUEST_CARDS) {
            if (eligible)
                items[s.n++] = p;
            continue;
        }
        if (!eligible) /* it has to leave in any case */
            return false;
        choice->pods[choice->n++] = p;
        choice->beyond_mib += p->all_mib - p->mib[c];
        s.missing_mib -= p->mib[c];
    }
    if (all)
        return after->pods == card->pods;
    if (s.missing_mib <= 0) { /* the choice frees that much more than needed */
        choice->beyond_mib -= choice->n ? s.missing_mib : 0;
        return true;
    }
    qsort_r(items, s.n, sizeof *items, compare_items, &c);
    choice->beyond_mib -= s.missing_mib;
    s.first_mib = arena_zalloc(state->arena, (s.n + 1) * sizeof *s.first_mib);
    s.least_mib = INT64_MAX;
    for (size_t i = 0; i < s.n; i++) {
        s.first_mib[i + 1] = s.first_mib[i] + s.items[i]->mib[s.card];
        s.least_mib = quantity_at_most(s.items[i]->all_mib, s.least_mib);
    }
    /* So many of the largest items cover what is missing. */
    while (s.first_mib[s.want] < s.missing_mib)
        if (s.want++ == s.n)
            return false;
    s.taken = arena_alloc(state->arena, s.want * sizeof *s.taken);
    s.best = arena_alloc(state->arena, s.want * sizeof *s.best);
    s.best_mib = -1;
    search_from(&s, 0, 0, 0, 0);
    for (size_t i = 0; i < s.want; i++)
        choice->pods[choice->n++] = s.items[s.best[i]];
    choice->beyond_mib += s.best_mib;
    return true;
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

static void init_state(struct preempt_state *state, const struct preemptor *preemptor,
                       const struct ledger_node *node, const struct span *leaving,
                       size_t n_leaving, struct arena *a)
{
    const struct select_pod *me = &preemptor->pod;
    const struct request *request = request_on(me->request, node->dialect);
    bool devices = request->kind == REQUEST_DEVICES;
    size_t n_known = 0;
    *state =
        (struct preempt_state){.preemptor = preemptor, .request = request, .arena = a};
    dry_run_begin(&state->run, node, me, devices, a);
    for (size_t i = 0; i < state->run.n; i++) {
        struct dry_pod *p = &state->run.pods[i];
        const struct ledger_pod *pod = p->pod;
        bool known = is_among(pod, leaving, n_leaving);
        bool spared = preemptor->evicts &&
                      (pod->mirror || pod->daemon || pod->spared_ms > preemptor->now_ms);
        n_known += known;
        p->removed = known || (preemptor->evicts && pod->terminating);
        p->may_leave =
            p->cards && !p->removed && !spared &&
            pod->priority < me->priority + MUTANT(eviction_of_equal_priority) &&
            is_bound(pod) && !span_eq(pod->uid, me->uid);
    }
    if (!devices)
        return;
    /* A pod has the cards whole that the podList shows for it, a shared one as each of its pods.
     * They are not free before it leaves. Cards of pods that the ledger does not know stay held,
     * unless such a pod leaves. */
    struct dry_run *run = &state->run;
    struct ledger_node_info info = ledger_node_info(node);
    uint64_t of_others = 0;
    for (size_t i = 0; i < run->n; i++) {
        struct dry_pod *p = &run->pods[i];
        int64_t has, asked = ledger_pod_devices(node, p->pod);
        ledger_pod_holds(node, p->pod, &has);
        p->claims = asked > has ? asked - has : 0;
    }
    for (size_t i = 0; i < info.n_held; i++)
        if (!is_of_the_node(run, &info.held[i]))
            of_others |= ledger_held_cards(node, &info.held[i]);
    state->held = info.held_cards;
    for (uint32_t c = 0; c < node->n_cards; c++)
        if (run->empty[c].state == CARD_HELD &&
            (n_known < n_leaving || !(of_others >> c & 1)))
            run->empty[c].state = CARD_AVAILABLE;
}

static void set_victim(struct dry_pod *p, bool victim)
{
    p->removed = p->victim = victim;
}

/* Exactly the eligible pods up to that priority become victims. */
static void remove_up_to(struct preempt_state *state, int64_t limit)
{
    for (size_t i = 0; i < state->run.n; i++) {
        struct dry_pod *p = &state->run.pods[i];
        if (p->may_leave)
            set_victim(p, p->pod->priority <= limit);
    }
}

/* The lowest priority limit up to which removing all eligible pods helps. */
static bool find_limit(struct preempt_state *state, int64_t *limit)
{
    for (int64_t above = INT64_MIN;; above = *limit) {
        *limit = INT64_MAX; /* no pod has as much */
        for (size_t i = 0; i < state->run.n; i++) {
            const struct dry_pod *p = &state->run.pods[i];
            if (p->may_leave && p->pod->priority > above)
                *limit = quantity_at_most(p->pod->priority, *limit);
        }
        if (*limit == INT64_MAX)
            return false;
        remove_up_to(state, *limit);
        if (fits_now(state, NULL))
            return true;
    }
}

/* Frees card by card, of those in `within`. False: the request does not fit after that. */
static bool choose_by_cards(struct preempt_state *state, int64_t limit, uint64_t within)
{
    const struct dry_run *run = &state->run;
    struct select_view empty;
    select_view_cards(&empty, run->node, run->empty, 0);
    uint64_t left = select_mask(&empty, state->request) & within;
    remove_up_to(state, INT64_MIN);
    for (uint32_t k = 0; k < state->request->cards; k++) {
        struct preempt_choice best = {0}, choice;
        uint64_t taken = 0;
        fits_now(state, NULL); /* for run->cards */
        for (uint32_t c = 0; c < run->node->n_cards; c++) {
            if (!(left >> c & 1) || !select_for_card(state, c, limit, &choice) ||
                (taken && (choice.n > best.n ||
                           (choice.n == best.n && choice.beyond_mib >= best.beyond_mib))))
                continue;
            best = choice;
            taken = UINT64_C(1) << c;
        }
        if (!taken)
            return false;
        left &= ~taken;
        for (size_t i = 0; i < best.n; i++)
            set_victim(best.pods[i], true);
    }
    return fits_now(state, NULL);
}

/* Empties the connected cards that have the fewest pods. False: no such set becomes free, or the
 * node has too many sets to try. */
static bool choose_by_sets(struct preempt_state *state, int64_t limit)
{
    const struct dry_run *run = &state->run;
    const struct links *links = run->node->links;
    uint64_t best = 0;
    size_t least = SIZE_MAX;
    uint32_t n;
    const struct links_set *sets = links_sets(links, state->request->cards, &n);
    for (uint32_t i = 0; sets && n <= TRY_SETS_MAX && i < n; i++) {
        size_t victims = 0;
        bool possible = links_narrowest(links, sets[i].cards) >= state->request->min_link;
        for (size_t k = 0; k < run->n && possible && victims < least; k++) {
            const struct dry_pod *p = &run->pods[k];
            bool there = false;
            for (uint32_t left = sets[i].cards; left; left &= left - 1)
                there |= !p->removed && p->mib[__builtin_ctz(left)] >= 0;
            possible = !there || (p->may_leave && p->pod->priority <= limit);
            victims += there;
        }
        if (possible && victims < least) {
            best = sets[i].cards;
            least = victims;
        }
    }
    return best && choose_by_cards(state, limit, best);
}

/* The pod that is restored first comes first. */
static int compare_pods(const void *a, const void *b)
{
    const struct dry_pod *x = a, *y = b;
    return quantity_compare(y->pod->priority, x->pod->priority)
               ?: quantity_compare(y->all_mib, x->all_mib)
               ?: span_cmp(y->pod->uid, x->pod->uid);
}

/* Tries every set of eligible pods up to the limit and takes the best one. False: that is too
 * much work, because every set costs a dry run of the whole node. */
static bool try_all(struct preempt_state *state, int64_t limit)
{
    struct dry_pod *pods[TRY_ALL_MAX];
    size_t n = 0;
    int64_t missing[SCV_MAX_CARDS], best_mib = 0;
    unsigned best = 0;
    int best_n = TRY_ALL_MAX + 1;
    for (size_t i = 0; i < state->run.n; i++) {
        struct dry_pod *p = &state->run.pods[i];
        if (!p->may_leave || p->pod->priority > limit)
            continue;
        if (n == TRY_ALL_MAX)
            return false;
        pods[n++] = p;
    }
    if (state->run.n * state->run.node->n_cards > (size_t)TRY_ALL_WORK >> n)
        return false;
    const struct dry_run *run = &state->run;
    remove_up_to(state, INT64_MIN);
    fits_now(state, NULL); /* for run->cards */
    for (uint32_t c = 0; c < run->node->n_cards; c++) {
        const struct card *card = &run->cards[c];
        int64_t left = card->total_mib - card->withheld_mib - card->promised_mib -
                       (card->free_mib - run->after[c].free_mib);
        missing[c] =
            state->request->kind == REQUEST_MEMORY
                ? request_mib(state->request, card->total_mib, card->kind->kept_mib) -
                      left
                : card->promised_mib;
        missing[c] = missing[c] < 0 ? 0 : missing[c];
    }
    for (unsigned set = 1; set < 1U << n; set++) {
        int count = __builtin_popcount(set);
        if (count > best_n)
            continue;
        for (size_t k = 0; k < n; k++)
            set_victim(pods[k], set >> k & 1);
        if (!fits_now(state, NULL))
            continue;
        /* The memory that the victims free beyond what was missing on the cards that the
         * request gets. Of the cards that fit, those with the most missing count: that gives
         * the least. */
        struct select_view view;
        int64_t mib = 0;
        for (size_t i = 0; i < state->run.n; i++)
            mib += state->run.pods[i].victim ? state->run.pods[i].all_mib : 0;
        select_view_cards(&view, state->run.node, state->run.after, 0);
        uint64_t fit = select_mask(&view, state->request);
        for (uint32_t k = 0; fit && k < state->request->cards; k++) {
            int most = __builtin_ctzll(fit);
            for (uint64_t left = fit; left; left &= left - 1)
                if (missing[__builtin_ctzll(left)] > missing[most])
                    most = __builtin_ctzll(left);
            fit &= ~(UINT64_C(1) << most);
            mib -= missing[most];
        }
        if (count == best_n && mib >= best_mib)
            continue;
        best = set;
        best_n = count;
        best_mib = mib;
    }
    for (size_t k = 0; k < n; k++)
        set_victim(pods[k], best >> k & 1);
    return true;
}

/* Does the removal of any eligible pod change at most one card, and nothing else than
 * memory that the request needs? */
static bool is_simple(const struct preempt_state *state)
{
    bool simple = !state->run.node->nominated && !state->request->compute_percent &&
                  !state->request->min_link;
    for (size_t i = 0; i < state->run.n; i++) {
        const struct dry_pod *p = &state->run.pods[i];
        simple &= !p->claims && (!p->may_leave || p->cards <= 1);
    }
    return simple;
}

bool preempt_could_help(const struct preemptor *preemptor, const struct ledger_node *node,
                        struct arena *a)
{
    struct preempt_state state;
    const struct ledger_pod *pod = node->pods; /* one that certainly may have to leave */
    while (pod && (pod->priority >= preemptor->pod.priority || !is_bound(pod)))
        pod = pod->next;
    if (!pod || select_fit(node, preemptor->pod.request) == FIT_NEVER)
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
    int64_t limit;
    *victims = (struct preempt_victims){0};
    if (select_fit(node, preemptor->pod.request) == FIT_NEVER)
        return false;
    init_state(&state, preemptor, node, leaving, n_leaving, a);
    if (fits_now(&state, &victims->cards))
        return true;
    if (!find_limit(&state, &limit))
        return false;
    qsort(state.run.pods, state.run.n, sizeof *state.run.pods, compare_pods);
    bool simple = is_simple(&state);
    if (simple || !try_all(&state, limit)) {
        const struct request *r = state.request;
        bool done =
            !r->compute_percent &&
            (!r->min_link ? choose_by_cards(&state, limit, UINT64_MAX)
                          : r->kind == REQUEST_CARDS && choose_by_sets(&state, limit));
        if (!done)
            remove_up_to(&state, limit);
        /* Restores the victims that are not needed, the most important first: the pods are in
         * that order. */
        for (size_t i = 0; i < state.run.n && (!done || !simple); i++) {
            struct dry_pod *p = &state.run.pods[i];
            if (!p->victim)
                continue;
            set_victim(p, false);
            if (!fits_now(&state, NULL))
                set_victim(p, true);
        }
    }
    victims->pods = arena_alloc(a, state.run.n * sizeof(struct ledger_pod *));
    for (size_t i = 0; i < state.run.n; i++)
        if (state.run.pods[i].victim)
            victims->pods[victims->n++] = state.run.pods[i].pod;
    return fits_now(&state, &victims->cards);
}
