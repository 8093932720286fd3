/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/score.h"

#include <stdlib.h>

#include "base/mem.h"

/*
 * The policies. Each gives a node a value on a scale of its own, larger for a better node, from
 * the cards that the pod would get there (choose_cards); the last part of the file turns values
 * into points, for prioritize, or into an order (score_best), for filter.
 *
 * The default policy is fgd. A reader of filter's path skips the others, and links_of,
 * keep_nodes_free and sink_displacing, which few pods need.
 */

__extension__ typedef __int128 wide;

static const struct score_value no_fit = {.base = INT64_MIN};
/* Of binpack and spread: values from 0 to 1 << SHARE_SHIFT. */
enum { SHARE_SHIFT = 40 };
/* A pod leaves many cards of a node free if it leaves more than this part of them. */
enum { LEAVES_MANY = 8 };

/* The node as filter sees it for the pod, and the cards that the pod would get there: for
 * nvidia.com/gpu, where the kubelet chooses, the first ones that fit. False: the node is unknown,
 * the pod does not fit, or requests no GPU. A view with rows may lack the cards, which are the
 * node's then. */
static inline bool choose_cards(const struct score_run *run,
                                const struct ledger_node *node, struct select_view *view,
                                uint64_t *chosen)
{
    if (!node)
        return false;
    const struct request *r = request_on(run->pod->pod.request, node->dialect);
    if (r->kind == REQUEST_NONE)
        return false;
    view->node = node;
    view->rows = &node->rows;
    if (run->by_rows && select_rows(node, r, chosen))
        return true;
    select_view(view, node, &run->pod->pod, SELECT_ALL);
    if (r->kind != REQUEST_DEVICES)
        return select_cards(view, r, SELECT_ALL_CARDS, chosen) == FIT_YES;
    uint64_t left = select_mask(view, r);
    *chosen = 0;
    for (uint32_t k = 0; k < r->cards && left; k++, left &= left - 1)
        *chosen |= left & -left;
    return (uint32_t)__builtin_popcountll(*chosen) == r->cards &&
           select_fit_pod(node, &run->pod->pod) == FIT_YES;
}

/* For several cards: how those that were chosen are connected. The same for all nodes if that does
 * not matter. */
static struct score_links links_of(const struct score_run *run,
                                   const struct select_view *view, uint64_t chosen)
{
    const struct ledger_node *node = view->node;
    const struct request *r = request_on(run->pod->pod.request, node->dialect);
    const struct links **kinds = run->scratch->kinds;
    uint8_t kind = 0;
    bool displaces = r->kind != REQUEST_NONE && select_displaces(node, &run->pod->pod);
    if (r->cards <= 1 || r->kind == REQUEST_DEVICES || r->ignores_links ||
        !node->has_links)
        return (struct score_links){
            .class = LINK_SYS, .kind = SCORE_KINDS, .displaces = displaces};
    while (kind < SCORE_KINDS && kinds[kind] && kinds[kind] != node->links)
        kind++;
    if (kind < SCORE_KINDS)
        kinds[kind] = node->links;
    uint8_t ring = links_ring(node->links, (uint32_t)chosen);
    uint32_t left = (uint32_t)__builtin_popcountll(select_whole(view) & ~chosen);
    return (struct score_links){.class = ring < LINK_NV ? ring : LINK_NV,
                                .kind = kind,
                                .leaves_many = left > node->n_cards / LEAVES_MANY,
                                .displaces = displaces};
}

/* -- binpack and spread: how much is free on the cards of the pod after the placement -- */

/* Free memory relative to the size of the cards, rounded up: the points of a whole tenth must
 * not be less. For whole cards: the node's free cards, relative to all its cards. */
static struct score_value rate_spread(const struct score_run *run,
                                      const struct ledger_node *node)
{
    struct select_view view;
    uint64_t chosen;
    int64_t left = 0, total = 0;
    if (!choose_cards(run, node, &view, &chosen))
        return no_fit;
    const struct request *r = request_on(run->pod->pod.request, node->dialect);
    const struct card *cards = view.rows ? node->cards : view.cards;
    struct score_links links = links_of(run, &view, chosen);
    if (r->kind != REQUEST_MEMORY) {
        bool changed = cards != node->cards;
        left = changed ? 0 : node->free_cards;
        for (uint32_t c = 0; changed && c < node->n_cards; c++)
            left += card_is_free(&cards[c]) && !cards[c].kind->profile.n;
        left = left > r->cards ? left - r->cards : 0;
        total = node->n_cards;
    }
    for (; r->kind == REQUEST_MEMORY && chosen; chosen &= chosen - 1) {
        const struct card *card = &cards[__builtin_ctzll(chosen)];
        left += card->free_mib - request_mib(r, card->total_mib, card->kind->kept_mib);
        total += card->total_mib;
    }
    return (struct score_value){
        .base = (int64_t)((((wide)left << SHARE_SHIFT) + total - 1) / total),
        .links = links};
}

static struct score_value rate_binpack(const struct score_run *run,
                                       const struct ledger_node *node)
{
    struct score_value v = rate_spread(run, node);
    v.base = v.base == no_fit.base ? v.base : (INT64_C(1) << SHARE_SHIFT) - v.base;
    return v;
}

/* -- scv: Yoda-Scheduler's score of a node, with its weights --
 *
 *   bandwidth 1, memory clock 1, core clock 1, power limit 1, size 1, measured free 2
 *                       average over the cards that the pod would get
 *   measured free 2, not promised 3
 *                       sum over all healthy cards of the node
 *
 * Each term is a share from 0 to SCV_ONE. The first six are relative to the maximum over the
 * cards of all candidate nodes that fit the pod, the last two to the node's own size.
 * (Yoda divides the clock by the largest bandwidth, sums over all cards that fit instead
 * of the requested ones, and counts unhealthy cards.) An unknown value counts as 0 on
 * every node.
 */

enum { SCV_ONE = 1 << 20 };

enum scv_term { BANDWIDTH, CLOCK, CORE, POWER, SIZE, FREE, TERMS };
_Static_assert(TERMS == (int)SCORE_TERMS, "one maximum per term");
static const int scv_weights[TERMS] = {1, 1, 1, 1, 1, 2};
enum { NODE_FREE_WEIGHT = 2, NODE_LEFT_WEIGHT = 3 };

static int64_t measured_free(const struct card *card)
{
    if (card->used_mib < 0)
        return card->free_mib;
    return card->used_mib < card->total_mib ? card->total_mib - card->used_mib : 0;
}

static void terms_of(const struct card *card, int64_t terms[TERMS])
{
    const struct scv_spec *spec = &card->kind->spec;
    terms[BANDWIDTH] = spec->bandwidth;
    terms[CLOCK] = spec->clock_mhz;
    terms[CORE] = spec->sm_clock_mhz;
    terms[POWER] = spec->power_w;
    terms[SIZE] = card->total_mib;
    terms[FREE] = measured_free(card);
}

static int64_t scv_share(int64_t part, int64_t whole)
{
    return whole > 0 ? (int64_t)((wide)part * SCV_ONE / whole) : 0;
}

/* Raises the maximum of each term to that of the node's cards. */
static void survey_terms(struct score_run *run, const struct ledger_node *node)
{
    const struct request *r = run->pod->pod.request;
    struct select_view view;
    int64_t terms[TERMS];
    if (r->kind == REQUEST_NONE)
        return;
    select_view(&view, node, &run->pod->pod, SELECT_ALL);
    for (uint64_t fit = select_mask(&view, r); fit; fit &= fit - 1) {
        terms_of(&view.cards[__builtin_ctzll(fit)], terms);
        for (int t = 0; t < TERMS; t++)
            if (terms[t] > run->survey.most[t])
                run->survey.most[t] = terms[t];
    }
}

/* The value of the chosen cards, on average, and of the whole node. */
static int64_t scv_value(const struct card *cards, uint32_t n_cards, uint64_t chosen,
                         const int64_t most[TERMS])
{
    int64_t sum = 0, n = __builtin_popcountll(chosen), size = 0, free = 0, left = 0;
    for (; chosen; chosen &= chosen - 1) {
        int64_t terms[TERMS];
        terms_of(&cards[__builtin_ctzll(chosen)], terms);
        for (int t = 0; t < TERMS; t++)
            sum += scv_weights[t] * scv_share(terms[t], most[t]);
    }
    for (uint32_t i = 0; i < n_cards; i++) {
        const struct card *card = &cards[i];
        if (card->state != CARD_AVAILABLE)
            continue;
        int64_t unpromised = card->total_mib - card->promised_mib - card->reserved_mib;
        size += card->total_mib;
        free += measured_free(card);
        left += unpromised > 0 ? unpromised : 0;
    }
    return sum / n + NODE_FREE_WEIGHT * scv_share(free, size) +
           NODE_LEFT_WEIGHT * scv_share(left, size);
}

static struct score_value rate_scv(const struct score_run *run,
                                   const struct ledger_node *node)
{
    struct select_view view;
    uint64_t chosen;
    if (!choose_cards(run, node, &view, &chosen))
        return no_fit;
    return (struct score_value){.base =
                                    scv_value(view.rows ? node->cards : view.cards,
                                              node->n_cards, chosen, run->survey.most),
                                .links = links_of(run, &view, chosen)};
}

/* -- fgd: the fragmentation gradient --
 *
 * How much less of the node's memory the mix could use if the
 * pod were placed there. Alone it does not distinguish similar nodes and does not prefer
 * a node in use. So two more terms are added, both small compared to a card:
 *
 *   fullness  the share of the node that is in use after the placement
 *   balance   the difference between the free shares of CPU and memory, squared: a node
 *             without free CPU strands its memory, and vice versa (only if CPU is known).
 *             Pods that request no CPU do not use up that of a node, so they would be
 *             spread over empty nodes: for them CPU counts only in the fragmentation
 *
 * A pod of one card that breaks sets of connected cards fragments the node, too:
 *
 *   sets      the share that it takes of what all sets of the node are worth (links_worth)
 *
 * Their weights were measured (docs/benchmarks.md).
 */

enum {
    FULLNESS = 20, /* a full node gains 1/20 of a card over an empty one */
    BALANCE = 8,   /* a node with only memory or only CPU left loses 1/8 of a card, and so
                      does a node that loses all its sets */
};

/* part / whole, << FRAG_SHIFT. */
static int64_t frag_share(int64_t part, int64_t whole)
{
    return whole > 0 ? (part << FRAG_SHIFT) / whole : 0;
}

/* What a pod of one card takes of the worth of the node's sets; `before`, `after`: the cards that
 * are wholly free. */
static int64_t lost_sets(const struct ledger_node *node, const struct request *r,
                         uint64_t before, uint64_t after)
{
    if (!node->has_links || r->cards != 1 || r->ignores_links || before == after)
        return 0;
    uint64_t all = (UINT64_C(1) << node->n_cards) - 1;
    return frag_share(links_worth(node->links, (uint32_t)before) -
                          links_worth(node->links, (uint32_t)after),
                      links_worth(node->links, (uint32_t)all));
}

static void survey_cards(struct score_run *run, const struct ledger_node *node)
{
    if (node->largest_mib <= 0)
        return;
    run->survey.card_sum += frag_clamp(node->largest_mib);
    run->survey.cards++;
}

/* The mean over the candidate nodes of the size of the largest card. */
static int64_t mean_card(const struct score_survey *survey)
{
    return survey->cards ? survey->card_sum / survey->cards : 0;
}

static struct score_value rate_fgd(const struct score_run *run,
                                   const struct ledger_node *node)
{
    const struct request *r = run->pod->pod.request;
    struct select_view view;
    struct frag_node after;
    uint64_t chosen = 0;
    int64_t free = 0, cpu_free = FRAG_CPU_UNKNOWN;
    if (r->kind == REQUEST_NONE && node && node->cpu_milli)
        select_view(&view, node, &run->pod->pod, SELECT_ALL);
    else if (!choose_cards(run, node, &view, &chosen))
        return no_fit;
    if (node->cpu_milli) { /* a pod that is judged again does not count against itself */
        const struct ledger_reservation *own =
            node->has_reserved ? ledger_reservation_on(node, run->pod->pod.uid) : NULL;
        cpu_free = node->cpu_free + (own ? own->requests.cpu_milli : 0);
    }
    r = request_on(r, node->dialect);
    int64_t size = frag_read(&view, cpu_free, &after);
    int64_t mib = r->kind == REQUEST_MEMORY ? r->mib_per_card : INT64_MAX;
    if (chosen && request_is_of_card(r)) { /* of several cards: the same of each */
        const struct card *first = &node->cards[__builtin_ctzll(chosen)];
        mib = request_mib(r, first->total_mib, first->kind->kept_mib);
    }
    uint64_t whole = after.whole;
    int64_t drop = frag_take(&run->scratch->frag, &after, chosen, mib,
                             frag_clamp(run->pod->cpu_milli));
    for (uint32_t i = 0; i < after.n; i++)
        free += after.free_mib[i];
    int64_t memory = frag_share(free, size), cpu = memory;
    if (node->cpu_milli && run->pod->cpu_milli)
        cpu = frag_share(after.cpu_free, node->cpu_milli);
    int64_t apart = size > 0 ? cpu - memory : 0;
    return (struct score_value){
        drop, (int32_t)(cpu + memory),
        (int32_t)((apart * apart >> FRAG_SHIFT) + lost_sets(node, r, whole, after.whole)),
        links_of(run, &view, chosen)};
}

/* -- Values become points -- */

static const struct policy {
    const char *name;
    void (*survey)(struct score_run *run, const struct ledger_node *node); /* or NULL */
    unsigned visits; /* 2: the values depend on what the survey found on all nodes */
    struct score_value (*rate)(const struct score_run *run,
                               const struct ledger_node *node);
    enum { STRETCHED, EMPTY, FULL } points; /* how values become points */
    bool may_spread; /* a pod that says spread is spread over nodes */
} policies[] = {
    [SCORE_BINPACK] = {"binpack", NULL, 1, rate_binpack, FULL, true},
    [SCORE_SPREAD] = {"spread", NULL, 1, rate_spread, EMPTY, false},
    /* always stretched, as in Yoda */
    [SCORE_SCV] = {"scv", survey_terms, 2, rate_scv, STRETCHED, false},
    [SCORE_FGD] = {"fgd", survey_cards, 1, rate_fgd, STRETCHED, true},
};
_Static_assert(ARRAY_LEN(policies) == SCORE_POLICIES, "one policy per enum value");

const char *score_policy_name(enum score_policy policy)
{
    return policies[policy].name;
}

int score_policy_parse(struct span text, enum score_policy *policy, struct err *err)
{
    for (int i = 0; i < SCORE_POLICIES; i++) {
        if (!span_eq(text, span_of(policies[i].name)))
            continue;
        *policy = (enum score_policy)i;
        return 0;
    }
    return err_set(err, ERR_INVALID, "\"%.*s\" is not one of binpack|spread|scv|fgd",
                   SPAN_ARG(text));
}

void score_scratch_fini(struct score_scratch *scratch)
{
    free(scratch->values);
    frag_fini(&scratch->frag);
    *scratch = (struct score_scratch){0};
}

/* Only the best nodes get SCORE_MAX: points of all others are rounded down. The worst
 * node gets 0, unless it is closer to the best than `least`. If all values are equal, all
 * nodes are the best. */
static void stretch(const struct score_value *values, size_t n, int64_t least,
                    int *points)
{
    int64_t low = INT64_MAX, high = INT64_MIN;
    for (size_t i = 0; i < n; i++) {
        int64_t value = values[i].base;
        if (value == no_fit.base)
            continue;
        low = value < low ? value : low;
        high = value > high ? value : high;
    }
    wide range = (wide)high - low;
    range = range > least ? range : least;
    /* More than limits[k] behind the best costs more than k points. A division for each node
     * is slow, so the points are estimated and then corrected. */
    uint64_t limits[SCORE_MAX];
    for (int k = 0; k < SCORE_MAX; k++)
        limits[k] = (uint64_t)(range * k / SCORE_MAX);
    double each = range > 0 ? SCORE_MAX / (double)range : 0;
    for (size_t i = 0; i < n; i++) {
        bool fits = values[i].base != no_fit.base;
        uint64_t behind = fits ? (uint64_t)high - (uint64_t)values[i].base : 0;
        int lost = (int)((double)behind * each);
        while (lost > 0 && behind <= limits[lost - 1])
            lost--;
        while (lost < SCORE_MAX && behind > limits[lost])
            lost++;
        points[i] = fits ? SCORE_MAX - lost : 0;
    }
}

void score_begin(struct score_run *run, enum score_policy policy,
                 const struct score_pod *pod, const struct requests *mix,
                 struct score_scratch *scratch, size_t n)
{
    if (policies[policy].may_spread && pod->pod.request->placement == PLACE_SPREAD)
        policy = SCORE_SPREAD;
    *run = (struct score_run){.policy = policy,
                              .pod = pod,
                              .scratch = scratch,
                              .by_rows = select_needs_no_cards(pod->pod.request)};
    MEM_GROW(scratch->values, scratch->cap, n);
    memset(scratch->kinds, 0, sizeof scratch->kinds);
    if (policy == SCORE_FGD)
        frag_prepare(&scratch->frag, mix, true);
}

void score_visit(struct score_run *run, size_t at, const struct ledger_node *const *nodes,
                 size_t n)
{
    const struct policy *policy = &policies[run->policy];
    for (size_t i = 0; policy->survey && run->visits == 0 && i < n; i++)
        if (nodes[i])
            policy->survey(run, nodes[i]);
    for (size_t i = 0; run->visits + 1 == policy->visits && i < n; i++)
        run->scratch->values[at + i] = policy->rate(run, nodes[i]);
}

bool score_again(struct score_run *run)
{
    return ++run->visits < policies[run->policy].visits;
}

/* Differences of fgd smaller than that between a full and an empty node are not stretched over all
 * points: there, kube-scheduler's own plugins decide. */
static int64_t least_range(const struct score_run *run)
{
    return (mean_card(&run->survey) << FRAG_SHIFT) / FULLNESS;
}

/* Of nodes of one kind, one on which the pod leaves many cards free is not better connected than
 * the best of the others: it would be opened for a better ring, and no larger pod finds it free. */
static void keep_nodes_free(const struct score_scratch *scratch, size_t n)
{
    struct score_value *values = scratch->values;
    uint8_t others[SCORE_KINDS + 1] = {LINK_UNKNOWN}; /* the best class of each kind */
    if (!scratch->kinds[0])                           /* links matter on no node */
        return;
    for (size_t i = 0; i < n; i++) {
        const struct score_links *l = &values[i].links;
        if (values[i].base != no_fit.base && !l->leaves_many &&
            l->class > others[l->kind])
            others[l->kind] = l->class;
    }
    others[SCORE_KINDS] = LINK_UNKNOWN;
    for (size_t i = 0; i < n; i++) {
        struct score_links *l = &values[i].links;
        if (l->leaves_many && others[l->kind] && l->class > others[l->kind])
            l->class = others[l->kind];
    }
}

/* Some nodes are such where the pod takes from others. Puts these below all others. Returns
 * whether there are others. */
static bool sink_displacing(const struct score_run *run, size_t n)
{
    struct score_value *values = run->scratch->values;
    int64_t low = INT64_MAX, high = INT64_MIN;
    for (size_t i = 0; i < n; i++) {
        if (values[i].base == no_fit.base)
            continue;
        if (values[i].links.displaces) /* the best of these ... */
            high = values[i].base > high ? values[i].base : high;
        else /* ... and the worst of the others */
            low = values[i].base < low ? values[i].base : low;
    }
    if (low == INT64_MAX)
        return false;
    wide drop = (wide)high - low + least_range(run) + 1, most = INT64_MAX / 16;
    drop = drop > most ? most : drop;
    for (size_t i = 0; i < n; i++) {
        if (values[i].base != no_fit.base && values[i].links.displaces && drop > 0)
            values[i].base -= (int64_t)drop;
        values[i].links.displaces = false;
    }
    return true;
}

/* Completes the values, now that the mean card is known, and lifts those of a better class of
 * connections above all others; within a class the policy decides. Returns whether the classes
 * differ, or what the pod takes from others. */
static bool settle(const struct score_run *run, size_t n)
{
    struct score_value *values = run->scratch->values;
    int64_t card = mean_card(&run->survey), low = INT64_MAX, high = INT64_MIN;
    uint8_t worst = LINK_NV, best = LINK_UNKNOWN;
    bool displacing = false;
    keep_nodes_free(run->scratch, n);
    for (size_t i = 0; i < n; i++) {
        struct score_value *v = &values[i];
        if (v->base == no_fit.base)
            continue;
        v->base -= card * v->fullness / 2 / FULLNESS + card * v->balance / BALANCE;
        v->fullness = v->balance = 0;
        low = v->base < low ? v->base : low;
        high = v->base > high ? v->base : high;
        worst = v->links.class < worst ? v->links.class : worst;
        best = v->links.class > best ? v->links.class : best;
        displacing |= v->links.displaces;
    }
    /* Absurd sizes of cards do not overflow. */
    uint64_t step = (uint64_t)high - (uint64_t)low + 1, most = INT64_MAX / 16;
    step = step > (uint64_t)least_range(run) ? step : (uint64_t)least_range(run);
    for (size_t i = 0; i < n && best > worst; i++) {
        if (values[i].base != no_fit.base)
            values[i].base +=
                (values[i].links.class - worst) * (int64_t)(step < most ? step : most);
        values[i].links.class = worst;
    }
    return (displacing && sink_displacing(run, n)) || best > worst;
}

void score_end(struct score_run *run, size_t n, int *points)
{
    const struct policy *policy = &policies[run->policy];
    const struct score_value *values = run->scratch->values;
    bool stretched = settle(run, n) || policy->points == STRETCHED,
         full = policy->points == FULL;
    if (stretched)
        stretch(values, n, least_range(run), points);
    for (size_t i = 0; i < n && !stretched; i++) {
        const int64_t value = values[i].base;
        points[i] = 0;
        if (value == no_fit.base)
            continue;
        /* Tenths of the free share, rounded down; full nodes get the rest. */
        int64_t empty = full ? (INT64_C(1) << SHARE_SHIFT) - value : value;
        int tenths = (int)(empty * SCORE_MAX >> SHARE_SHIFT);
        points[i] = full ? SCORE_MAX - tenths : tenths;
    }
}

size_t score_best(const struct score_run *run, size_t n, score_name name, const void *ctx,
                  size_t *best, size_t most)
{
    const struct score_value *values = run->scratch->values;
    size_t found = 0;
    settle(run, n);
    for (size_t i = 0; i < n; i++) {
        size_t at = found;
        while (at > 0 && (values[i].base > values[best[at - 1]].base ||
                          (values[i].base == values[best[at - 1]].base &&
                           span_cmp(name(ctx, i), name(ctx, best[at - 1])) < 0)))
            at--;
        if (at == most)
            continue;
        found += found < most;
        memmove(best + at + 1, best + at, (found - at - 1) * sizeof *best);
        best[at] = i;
    }
    return found;
}

void score_nodes(enum score_policy policy, const struct score_pod *pod,
                 const struct requests *mix, const struct ledger_node *const *nodes,
                 size_t n, struct score_scratch *scratch, int *points)
{
    struct score_run run;
    score_begin(&run, policy, pod, mix, scratch, n);
    do
        score_visit(&run, 0, nodes, n);
    while (score_again(&run));
    score_end(&run, n, points);
}
