/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of a set of connected cards: all sets of k cards, or those of a greedy search. */
#include "placement/card_set.h"

/* Calls visit for the sets of k of these cards, as the header says, in order of their lowest
 * cards. */
static void visit_sets(const struct links *links, uint32_t fit, unsigned k,
                       void (*visit)(void *arg, uint32_t set), void *arg)
{
    uint8_t card[LINKS_MAX_CARDS];
    unsigned n = 0;
    for (uint32_t left = fit; left; left &= left - 1)
        card[n++] = (uint8_t)__builtin_ctz(left);
    for (unsigned i = 0; i < n && n > LINKS_EXACT; i++) {
        uint32_t set = UINT32_C(1) << card[i];
        for (unsigned taken = 1; taken < k; taken++) {
            uint32_t best = 0, most = 0;
            for (uint32_t left = fit & ~set; left; left &= left - 1) {
                uint32_t sum = links_sum(links, set | (left & -left));
                if (!best || sum > most) {
                    best = left & -left;
                    most = sum;
                }
            }
            set |= best;
        }
        visit(arg, set);
    }
    if (n > LINKS_EXACT)
        return;
    /* at[i]: the position of the i-th card of the set. */
    uint8_t at[LINKS_EXACT];
    for (unsigned i = 0; i < k; i++)
        at[i] = (uint8_t)i;
    for (unsigned i = k; k <= n;) {
        uint32_t set = 0;
        for (i = 0; i < k; i++)
            set |= UINT32_C(1) << card[at[i]];
        visit(arg, set);
        for (i = k; i && at[i - 1] == n - k + i - 1; i--)
            ;
        if (!i)
            return;
        at[i - 1]++;
        for (; i < k; i++)
            at[i] = (uint8_t)(at[i - 1] + 1);
    }
}

struct choice {
    const struct card_set_ask *ask;
    uint32_t set; /* 0: none yet */
    uint8_t ring;
    uint32_t sum, worth;
    int64_t mib;
};

/* What the choice loses is the same for the smallest loss and for the largest rest. */
static void judge(void *arg, uint32_t set)
{
    struct choice *best = arg;
    const struct card_set_ask *ask = best->ask;
    struct choice c = {.ask = ask, .set = set};
    bool several = ask->k > 1;
    c.ring = several ? links_ring(ask->links, set) : 0;
    if (best->set && c.ring < best->ring)
        return;
    c.sum = several ? links_sum(ask->links, set) : 0;
    c.worth = links_worth(ask->links, ask->free & ~set);
    for (uint32_t left = set; left; left &= left - 1)
        c.mib += ask->free_mib[__builtin_ctz(left)];
    c.mib = ask->spread ? -c.mib : c.mib;
    int64_t by_worth = (int64_t)c.worth - best->worth;
    int64_t by_mib = best->mib - c.mib;
    int64_t order = !best->set ? 1
                               : (int64_t)c.ring - best->ring
                                     ?: (int64_t)c.sum - best->sum
                                     ?: (several ? by_worth : by_mib)
                                     ?: (several ? by_mib : by_worth);
    if (order > 0)
        *best = c;
}

uint32_t card_set_choose(const struct card_set_ask *ask)
{
    struct choice best = {.ask = ask};
    visit_sets(ask->links, ask->fit, ask->k, judge, &best);
    return best.set;
}

struct widest {
    const struct links *links;
    uint8_t ring;
};

static void see_ring(void *arg, uint32_t set)
{
    struct widest *w = arg;
    uint8_t ring = links_ring(w->links, set);
    w->ring = ring > w->ring ? ring : w->ring;
}

uint8_t card_set_ring(const struct links *links, uint32_t fit, unsigned k)
{
    struct widest w = {.links = links};
    visit_sets(links, fit, k, see_ring, &w);
    return w.ring;
}
