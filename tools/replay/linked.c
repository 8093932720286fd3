/* SPDX-License-Identifier: Apache-2.0 */
/* Whole cards on nodes with known links: the rules of others, and the four side by side. */
#include "replay/linked.h"

#include "base/mem.h"

/* -- the rules of others -- */

static int points_of(const struct links *links, uint32_t set)
{
    int points = 0;
    for (; set; set &= set - 1)
        for (uint32_t rest = set & (set - 1); rest; rest &= rest - 1) {
            int width = links_pair(links, (unsigned)__builtin_ctz(set),
                                   (unsigned)__builtin_ctz(rest));
            points += width > LINK_NV ? 100 * (width - LINK_NV) : 10 * width;
        }
    return points;
}

/* More points, or the lowest card in which the sets differ. */
static bool is_better(int points, uint32_t set, int most, uint32_t best)
{
    uint32_t differ = set ^ best;
    return points > most || (points == most && set & differ & -differ);
}

/* The card with the least points to the others leaves the most. */
static uint32_t choose_hami(const struct links *links, uint32_t free, unsigned k)
{
    uint32_t best = 0;
    int most = 0;
    for (uint32_t set = free; set; set = (set - 1) & free) {
        if ((unsigned)__builtin_popcount(set) != k)
            continue;
        int points = points_of(links, k > 1 ? set : free & ~set);
        if (!is_better(points, set, most, best))
            continue;
        best = set;
        most = points;
    }
    return best;
}

/* The sum of the best partition; *best: its best set of k. */
static int best_partition(const struct links *links, uint32_t free, unsigned k,
                          uint32_t *best)
{
    unsigned rest = (unsigned)__builtin_popcount(free) % k;
    uint32_t others = free & (free - 1), most_with = 0;
    int most = -1;
    *best = 0;
    for (uint32_t sub = others; free; sub = (sub - 1) & others) {
        uint32_t with = sub | (free ^ others), later;
        unsigned size = (unsigned)__builtin_popcount(with);
        if (size == k || size == rest) {
            int own = points_of(links, with);
            int points = own + best_partition(links, free & ~with, k, &later);
            if (is_better(points, with, most, most_with)) {
                most = points;
                most_with = with;
                *best = size == k && is_better(own, with, points_of(links, later), later)
                            ? with
                            : later;
            }
        }
        if (!sub)
            break;
    }
    return free ? most : 0;
}

static uint32_t choose_nvidia(const struct links *links, uint32_t free, unsigned k)
{
    uint32_t best;
    best_partition(links, free, k, &best);
    return best;
}

const struct cluster_rule linked_rules[LINKED_RULES] = {
    {"gpushare", false, NULL},
    {"today", true, NULL},
    {"hami", true, choose_hami},
    {"nvidia", true, choose_nvidia},
};

/* -- arrivals and departures -- */

enum { SIZES = 4 };
static const struct trace_pod sizes[SIZES] = {{.cards = 1, .gpu_milli = TRACE_CARD},
                                              {.cards = 2, .gpu_milli = TRACE_CARD},
                                              {.cards = 4, .gpu_milli = TRACE_CARD},
                                              {.cards = 8, .gpu_milli = TRACE_CARD}};

/* What a rule reached. */
struct side {
    struct cluster *cluster;
    struct rng ties; /* between nodes */
    double pods[SIZES],
        rings[SIZES]; /* that were placed; the widths of their rings, added */
    double nvlink, rejected, allocated;
};

static void arrive(struct side *side, uint64_t n, size_t size)
{
    uint32_t set = 0;
    if (cluster_arrive(side->cluster, &sizes[size], &side->ties)) {
        const struct ledger_pod *pod = cluster_find(side->cluster, n);
        for (unsigned i = 0; i < pod->n_shares; i++)
            set |= UINT32_C(1) << pod->shares[i].on;
        uint8_t ring = links_ring(pod->node->links, set);
        side->pods[size]++;
        side->rings[size] += ring;
        side->nvlink += size && ring > LINK_NV;
    } else {
        side->rejected++;
    }
    side->allocated += (double)cluster_allocated(side->cluster);
}

static void run(const struct trace *nodes, const struct replay_settings *s, uint64_t seed,
                struct side sides[LINKED_RULES])
{
    struct pod {
        uint64_t n; /* the n-th that arrived */
        size_t size;
    };
    struct rng rng;
    cleanup_free struct pod *present = xcalloc(s->arrivals, sizeof *present);
    size_t n_present = 0;
    int64_t asked = 0; /* by those present, in thousandths of a card */
    rng_init(&rng, seed);
    for (int i = 0; i < LINKED_RULES; i++) {
        rng_init(&sides[i].ties, seed);
        sides[i].cluster = cluster_new(nodes, s->policy, false);
        cluster_set_rule(sides[i].cluster, &linked_rules[i]);
    }
    for (uint64_t n = 1; n <= s->arrivals; n++) {
        /* Of 15 pods, 8 have one card, 4 two, 2 four, and 1 eight. */
        size_t size = (size_t)__builtin_clzll(rng_below(&rng, 15) + 1) - 60;
        asked += TRACE_CARD << size;
        while (n_present && asked > nodes->capacity / 100 * s->churn) {
            struct pod *gone = &present[rng_below(&rng, n_present)];
            asked -= TRACE_CARD << gone->size;
            for (int i = 0; i < LINKED_RULES; i++)
                cluster_leave_nth(sides[i].cluster, gone->n);
            *gone = present[--n_present];
        }
        present[n_present++] = (struct pod){n, size};
        for (int i = 0; i < LINKED_RULES; i++)
            arrive(&sides[i], n, size);
    }
    for (int i = 0; i < LINKED_RULES; i++)
        cluster_free(sides[i].cluster);
}

void linked_play(const struct trace *nodes, const struct replay_settings *s,
                 struct buf *out)
{
    struct side sides[LINKED_RULES] = {0};
    for (uint64_t i = 0; i < s->seeds; i++)
        run(nodes, s, s->first_seed + i, sides);
    if (!out->n)
        buf_adds(out, "policy   rule      2 cards  4 cards  8 cards  all rings  NVLink %"
                      "  rejected  allocated %\n");
    for (int i = 0; i < LINKED_RULES; i++) {
        const struct side *side = &sides[i];
        double pods = 0, rings = 0, runs = (double)s->seeds;
        buf_printf(out, "%-8s %-8s", score_policy_name(s->policy), linked_rules[i].name);
        for (int k = 1; k < SIZES; k++) {
            pods += side->pods[k];
            rings += side->rings[k];
            buf_printf(out, " %8.2f", side->rings[k] / (side->pods[k] ?: 1));
        }
        buf_printf(out, " %10.2f %9.1f %9.1f %12.1f\n", rings / pods,
                   100 * side->nvlink / pods, side->rejected / runs,
                   100 * side->allocated / runs / (double)s->arrivals /
                       (double)nodes->capacity);
    }
}
