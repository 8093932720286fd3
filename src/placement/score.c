/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/score_priv.h"

#include <stdlib.h>

#include "base/mem.h"
#include "placement/placement_priv.h"

__extension__ typedef __int128 wide;

/* Does the brief have all that decides which cards the request gets? */
static bool is_brief(const struct ledger_node *node, const struct request *r)
{
    return node->brief.valid && !request_is_selective(r) && !r->core &&
           (r->kind == REQUEST_MEMORY ||
            (r->kind == REQUEST_CARDS && r->mib_per_card == 0));
}

/* As placement_choose, from the brief. A rank orders cards by free memory, then by index. */
static bool pick_brief(const struct ledger_node *node, const struct request *r,
                       uint32_t picks[REQUEST_MAX_CARDS])
{
    const struct ledger_brief *b = &node->brief;
    const int64_t least = r->mib_per_card > 0 ? r->mib_per_card : 1;
    const int64_t sign = r->placement == PLACE_SPREAD ? -1 : 1;
    uint32_t taken = 0;
    for (uint32_t k = 0; k < r->cards; k++) {
        int64_t best = INT64_MAX;
        for (uint32_t i = 0; i < LEDGER_BRIEF_CARDS; i++) {
            bool fits = r->kind == REQUEST_CARDS ? b->whole[i] : b->free_mib[i] >= least;
            int64_t rank = sign * b->free_mib[i] * LEDGER_BRIEF_CARDS + i;
            rank = fits && !(taken >> i & 1) ? rank : INT64_MAX;
            best = rank < best ? rank : best;
        }
        if (best == INT64_MAX)
            return false;
        taken |= UINT32_C(1) << (best & (LEDGER_BRIEF_CARDS - 1));
    }
    for (uint32_t k = 0; taken; taken &= taken - 1)
        picks[k++] = (uint32_t)__builtin_ctz(taken);
    return true;
}

/* Four cards at once. */
typedef int32_t four __attribute__((vector_size(16)));

static four either(four a, four b, four first)
{
    return (a & first) | (b & ~first);
}

/* The ranks of the cards from the i-th on, as in pick_brief. */
static four ranks_of(const struct ledger_brief *b, int32_t i, int32_t least, bool spread)
{
    four free, index = {i, i + 1, i + 2, i + 3};
    memcpy(&free, b->free_mib + i, sizeof free);
    four rank = free * LEDGER_BRIEF_CARDS;
    four none = {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX};
    return either((spread ? -rank : rank) + index, none, free >= least);
}

uint32_t score_pick_one(const struct ledger_brief *b, const struct request *r)
{
    const int32_t least = r->mib_per_card > 0 ? (int32_t)r->mib_per_card : 1;
    const bool spread = r->placement == PLACE_SPREAD;
    four low = ranks_of(b, 0, least, spread), high = ranks_of(b, 4, least, spread);
    four rank = either(low, high, low < high);
    int32_t best = INT32_MAX;
    for (int k = 0; k < 4; k++)
        best = rank[k] < best ? rank[k] : best;
    return (uint32_t)best & (LEDGER_BRIEF_CARDS - 1);
}
_Static_assert(LEDGER_BRIEF_CARDS == 8, "two vectors");

bool score_picks(const struct ledger_node *node, const struct request *r,
                 uint32_t picks[REQUEST_MAX_CARDS])
{
    uint32_t n = 0;
    if (is_brief(node, r))
        return placement_fit(node, r) == FIT_YES && pick_brief(node, r, picks);
    if (r->kind != REQUEST_DEVICES)
        return r->kind != REQUEST_NONE && placement_choose(node, r, picks);
    if (placement_fit(node, r) != FIT_YES)
        return false;
    for (uint32_t i = 0; i < node->n_cards && n < r->cards; i++)
        if (placement_card_fits(&node->cards[i], r))
            picks[n++] = i;
    return n == r->cards;
}

static void binpack(const struct score_call *call, int64_t *values)
{
    score_pack(call, false, values);
}

static void spread(const struct score_call *call, int64_t *values)
{
    score_pack(call, true, values);
}

static const struct policy {
    const char *name;
    void (*survey)(const struct score_call *call,
                   struct score_survey *survey); /* or NULL */
    void (*rate)(const struct score_call *call, int64_t *values);
    /* The smallest range of values that is stretched over all points. NULL: 0. */
    int64_t (*least)(const struct score_survey *survey);
    enum { STRETCHED, EMPTY, FULL } points; /* how values become points */
    bool may_spread; /* a pod that says spread is spread over nodes */
} policies[] = {
    [SCORE_BINPACK] = {"binpack", NULL, binpack, NULL, FULL, true},
    [SCORE_SPREAD] = {"spread", NULL, spread, NULL, EMPTY, false},
    /* always stretched, as in Yoda */
    [SCORE_SCV] = {"scv", score_survey_terms, score_scv, NULL, STRETCHED, false},
    [SCORE_FGD] = {"fgd", score_survey_cards, score_fgd, score_fgd_least, STRETCHED,
                   true},
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
static void stretch(const int64_t *values, size_t n, int64_t least, int *points)
{
    int64_t low = INT64_MAX, high = INT64_MIN;
    for (size_t i = 0; i < n; i++) {
        if (values[i] == SCORE_NO_FIT)
            continue;
        low = values[i] < low ? values[i] : low;
        high = values[i] > high ? values[i] : high;
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
        bool fits = values[i] != SCORE_NO_FIT;
        uint64_t behind = fits ? (uint64_t)high - (uint64_t)values[i] : 0;
        int lost = (int)((double)behind * each);
        while (lost > 0 && behind <= limits[lost - 1])
            lost--;
        while (lost < SCORE_MAX && behind > limits[lost])
            lost++;
        points[i] = fits ? SCORE_MAX - lost : 0;
    }
}

/* Tenths of the free share, rounded down; full nodes get the rest. */
static int tenths(int64_t value, bool full)
{
    int64_t empty = full ? (INT64_C(1) << SCORE_SHIFT) - value : value;
    int points = (int)(empty * SCORE_MAX >> SCORE_SHIFT);
    return full ? SCORE_MAX - points : points;
}

void score_begin(struct score_run *run, enum score_policy policy,
                 const struct score_pod *pod, const struct mix *mix,
                 struct score_scratch *scratch, size_t n)
{
    if (policies[policy].may_spread && pod->request->placement == PLACE_SPREAD)
        policy = SCORE_SPREAD;
    *run = (struct score_run){.policy = policy, .pod = pod, .scratch = scratch};
    MEM_GROW(scratch->values, scratch->cap, n);
    if (policy == SCORE_FGD)
        frag_prepare_scarce(&scratch->frag, mix);
}

static struct score_call call_of(const struct score_run *run,
                                 const struct score_node *nodes, size_t n)
{
    return (struct score_call){run->pod, &run->survey, nodes, n, &run->scratch->frag};
}

void score_survey(struct score_run *run, const struct score_node *nodes, size_t n)
{
    const struct score_call call = call_of(run, nodes, n);
    if (policies[run->policy].survey)
        policies[run->policy].survey(&call, &run->survey);
}

void score_rate(struct score_run *run, const struct score_node *nodes, size_t at,
                size_t n)
{
    const struct score_call call = call_of(run, nodes, n);
    policies[run->policy].rate(&call, run->scratch->values + at);
}

void score_end(struct score_run *run, size_t n, int *points)
{
    const struct policy *policy = &policies[run->policy];
    const int64_t *values = run->scratch->values;
    if (policy->points == STRETCHED)
        stretch(values, n, policy->least ? policy->least(&run->survey) : 0, points);
    for (size_t i = 0; i < n && policy->points != STRETCHED; i++)
        points[i] =
            values[i] == SCORE_NO_FIT ? 0 : tenths(values[i], policy->points == FULL);
}

size_t score_best(const struct score_run *run, size_t n, const struct span *names,
                  size_t *best, size_t most)
{
    const int64_t *values = run->scratch->values;
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        size_t at = found;
        while (at > 0 && (values[i] > values[best[at - 1]] ||
                          (values[i] == values[best[at - 1]] &&
                           span_cmp(names[i], names[best[at - 1]]) < 0)))
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
                 const struct mix *mix, const struct score_node *nodes, size_t n,
                 struct score_scratch *scratch, int *points)
{
    struct score_run run;
    score_begin(&run, policy, pod, mix, scratch, n);
    score_survey(&run, nodes, n);
    score_rate(&run, nodes, 0, n);
    score_end(&run, n, points);
}
