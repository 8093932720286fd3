/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/score_priv.h"

#include <stdlib.h>

#include "base/mem.h"
#include "placement/placement_priv.h"

__extension__ typedef __int128 wide;

bool score_picks(const struct ledger_node *node, const struct request *r,
                 uint32_t picks[REQUEST_MAX_CARDS])
{
    uint32_t n = 0;
    if (r->kind != REQUEST_DEVICES)
        return r->kind != REQUEST_NONE && placement_choose(node, r, picks);
    if (placement_fit(node, r) != FIT_YES)
        return false;
    for (uint32_t i = 0; i < node->n_cards && n < r->cards; i++)
        if (placement_card_fits(&node->cards[i], r))
            picks[n++] = i;
    return n == r->cards;
}

static int64_t binpack(const struct score_call *call, int64_t *values)
{
    score_pack(call, false, values);
    return 0;
}

static int64_t spread(const struct score_call *call, int64_t *values)
{
    score_pack(call, true, values);
    return 0;
}

static const struct policy {
    const char *name;
    /* Fills the values. Returns the smallest range of values that is stretched over all
     * points. */
    int64_t (*score)(const struct score_call *call, int64_t *values);
    bool are_points; /* the values are points already */
    bool may_spread; /* a pod that says spread is spread over nodes */
} policies[] = {
    [SCORE_BINPACK] = {"binpack", binpack, true, true},
    [SCORE_SPREAD] = {"spread", spread, true, false},
    [SCORE_SCV] = {"scv", score_scv, false, false},
    [SCORE_FGD] = {"fgd", score_fgd, false, true},
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
    for (size_t i = 0; i < n; i++) {
        wide behind = (wide)high - values[i];
        if (values[i] == SCORE_NO_FIT)
            points[i] = 0;
        else
            points[i] = SCORE_MAX -
                        (behind ? (int)((behind * SCORE_MAX + range - 1) / range) : 0);
    }
}

void score_nodes(enum score_policy policy, const struct score_pod *pod,
                 const struct mix *mix, const struct score_node *nodes, size_t n,
                 struct score_scratch *scratch, int *points)
{
    const struct score_call call = {pod, mix, nodes, n, &scratch->frag};
    if (policies[policy].may_spread && pod->request->placement == PLACE_SPREAD)
        policy = SCORE_SPREAD;
    MEM_GROW(scratch->values, scratch->cap, n);
    int64_t least = policies[policy].score(&call, scratch->values);
    if (!policies[policy].are_points)
        stretch(scratch->values, n, least, points);
    for (size_t i = 0; i < n && policies[policy].are_points; i++)
        points[i] = scratch->values[i] == SCORE_NO_FIT ? 0 : (int)scratch->values[i];
}
