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
        if (card_fits(&node->cards[i], r))
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
    /* Returns what the best has to be ahead by at least to have all points ahead. */
    int64_t (*judge)(const struct score_call *call, int64_t *values);
    bool are_points; /* the values are */
    bool may_spread; /* over nodes, if the pod asks for it */
} policies[] = {
    [SCORE_BINPACK] = {"binpack", binpack, true, true},
    [SCORE_SPREAD] = {"spread", spread, true, false},
    [SCORE_SCV] = {"scv", score_scv, false, false},
    [SCORE_FGD] = {"fgd", score_fgd, false, true},
};
_Static_assert(ARRAY_LEN(policies) == SCORE_POLICIES, "one for each name");

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
    return err_set(err, ERR_INVALID, "\"%.*s\" is neither binpack, spread, scv nor fgd",
                   SPAN_ARG(text));
}

void score_scratch_fini(struct score_scratch *room)
{
    free(room->values);
    frag_fini(&room->frag);
    *room = (struct score_scratch){0};
}

/* The best of those that fit has SCORE_MAX, and nobody but the best: who is below is
 * rounded down. The worst has 0, unless it is closer to the best than `least`. If all are
 * equal, all are the best. */
static void stretch(const int64_t *values, size_t n, int64_t least, int *points)
{
    int64_t low = INT64_MAX, high = INT64_MIN;
    for (size_t i = 0; i < n; i++) {
        if (values[i] == SCORE_UNFIT)
            continue;
        low = values[i] < low ? values[i] : low;
        high = values[i] > high ? values[i] : high;
    }
    wide range = (wide)high - low;
    range = range > least ? range : least;
    for (size_t i = 0; i < n; i++) {
        wide behind = (wide)high - values[i];
        if (values[i] == SCORE_UNFIT)
            points[i] = 0;
        else
            points[i] = SCORE_MAX -
                        (behind ? (int)((behind * SCORE_MAX + range - 1) / range) : 0);
    }
}

void score_nodes(enum score_policy policy, const struct score_pod *pod,
                 const struct mix *mix, const struct score_node *nodes, size_t n,
                 struct score_scratch *room, int *points)
{
    const struct score_call call = {pod, mix, nodes, n, &room->frag};
    if (policies[policy].may_spread && pod->request->placement == PLACE_SPREAD)
        policy = SCORE_SPREAD;
    MEM_GROW(room->values, room->cap, n);
    int64_t least = policies[policy].judge(&call, room->values);
    if (!policies[policy].are_points)
        stretch(room->values, n, least, points);
    for (size_t i = 0; i < n && policies[policy].are_points; i++)
        points[i] = room->values[i] == SCORE_UNFIT ? 0 : (int)room->values[i];
}
