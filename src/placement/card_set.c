/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of a set of connected cards: the first ones of a sorted list, or a greedy search. */
#include "placement/card_set.h"

enum { TIES_MAX = 512 }; /* sets of equal rank that are compared */

struct choice {
    const struct card_set_ask *ask;
    struct links_set best; /* rank 0: none yet */
    uint32_t worth;
    int64_t mib;
};

/* Sets come in the order of their lowest cards. What the choice loses is the same for the smallest
 * loss and for the largest rest. */
static void judge(struct choice *c, struct links_set set)
{
    const struct card_set_ask *ask = c->ask;
    if (set.rank < c->best.rank ||
        (ask->min_link && links_narrowest(ask->links, set.cards) < ask->min_link))
        return;
    uint32_t worth = links_worth(ask->links, ask->free & ~set.cards);
    int64_t mib = 0;
    for (uint32_t left = set.cards; left; left &= left - 1)
        mib += ask->free_mib[__builtin_ctz(left)];
    mib = ask->spread ? -mib : mib;
    int64_t by_worth = (int64_t)worth - c->worth, by_mib = c->mib - mib;
    int64_t order = ask->k > 1 ? by_worth ?: by_mib : by_mib ?: by_worth;
    if (set.rank > c->best.rank || order > 0)
        *c = (struct choice){ask, set, worth, mib};
}

uint32_t card_set_choose(const struct card_set_ask *ask)
{
    struct choice c = {.ask = ask};
    uint32_t n, judged = 0;
    const struct links_set *sets = links_sets(ask->links, ask->k, &n);
    if (!sets) {
        /* From each card on, the card that is connected best to those taken, one after the
         * other. */
        for (uint32_t firsts = ask->fit; firsts; firsts &= firsts - 1) {
            uint32_t set = firsts & -firsts;
            for (unsigned taken = 1; taken < ask->k; taken++) {
                uint32_t best = 0, most = 0;
                for (uint32_t left = ask->fit & ~set; left; left &= left - 1) {
                    uint32_t with = set | (left & -left),
                             sum = links_sum(ask->links, with);
                    if (sum > most &&
                        links_narrowest(ask->links, with) >= ask->min_link) {
                        best = left & -left;
                        most = sum;
                    }
                }
                set |= best;
            }
            if ((unsigned)__builtin_popcount(set) == ask->k)
                judge(&c, (struct links_set){links_rank(ask->links, set), set});
        }
    }
    for (uint32_t i = 0; sets && i < n && sets[i].rank >= c.best.rank &&
                         links_ring(ask->links, sets[i].cards) >= ask->min_link &&
                         (judged < TIES_MAX || !c.best.rank);
         i++)
        if (!(sets[i].cards & ~ask->fit)) {
            judge(&c, sets[i]);
            judged++;
        }
    return c.best.cards;
}
