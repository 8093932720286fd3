/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/defrag.h"

#include "base/rng.h"
#include "placement/fixture.h"

/*
 * Small clusters: the plan is compared with every set of pods of every node and every place
 * of these pods. The oracle keeps free memory in plain arrays and shares no code with
 * placement.
 */

enum { NODES_MAX = 5, CARDS_MAX = 3, PODS_MAX = 14, CARD_MIB = 16 };

struct test_pod {
    int node, mib[CARDS_MAX]; /* 0: not on the card */
    int cpu;
    bool whole, movable;
    int excluded; /* a node that does not take it; -1: none */
};

static struct {
    int nodes, cards, pods;
    int cpu[NODES_MAX]; /* free */
    struct test_pod pod[PODS_MAX];
    int target_cpu, target_excluded;
} w;

static int index_of(struct span name)
{
    return name.p[1] - 'a';
}

static bool may_move(void *ctx, const struct ledger_pod *pod)
{
    (void)ctx;
    return w.pod[index_of(pod->uid)].movable;
}

static bool may_run(void *ctx, const struct ledger_pod *pod,
                    const struct ledger_node *node)
{
    (void)ctx;
    int excluded = pod ? w.pod[index_of(pod->uid)].excluded : w.target_excluded;
    return excluded != index_of(node->name);
}

static struct resources node_room(void *ctx, const struct ledger_node *node)
{
    (void)ctx;
    return (struct resources){.cpu_milli = w.cpu[index_of(node->name)]};
}

static struct resources pod_room(void *ctx, const struct ledger_pod *pod)
{
    (void)ctx;
    return (struct resources){.cpu_milli = w.pod[index_of(pod->uid)].cpu};
}

static const char *name_of(char kind, int i)
{
    static char names[4][4];
    static int next;
    char *name = names[next++ % 4];
    snprintf(name, sizeof names[0], "%c%c", kind, 'a' + i);
    return name;
}

static void start(int nodes, int cards)
{
    memset(&w, 0, sizeof w);
    restart();
    w.nodes = nodes;
    w.cards = cards;
    w.target_excluded = -1;
    for (int n = 0; n < nodes; n++)
        even_node(name_of('n', n), cards, CARD_MIB);
}

static void add_pod(struct test_pod p)
{
    int i = w.pods++;
    struct ledger_share shares[CARDS_MAX];
    struct request r = {.kind = p.whole ? REQUEST_CARDS : REQUEST_MEMORY};
    for (int c = 0; c < w.cards; c++)
        if (p.mib[c]) {
            shares[r.cards++] = (struct ledger_share){.card = c, .mib = p.mib[c]};
            r.mib_per_card = p.whole ? 0 : p.mib[c];
        }
    r.units = r.mib_per_card * r.cards;
    w.pod[i] = p;
    const char *node = name_of('n', p.node);
    ledger_pod_place(ledger, bound_pod(node, name_of('p', i), r, -1), span_of(node),
                     shares, r.cards);
}

static bool find(const struct request *r, const char *node, struct defrag_plan *plan)
{
    const struct defrag_world world = {ledger,  NULL,      may_move,
                                       may_run, node_room, pod_room};
    const struct defrag_target target = {
        .pod.request = r, .room = {.cpu_milli = w.target_cpu}, .node = span_of(node)};
    return defrag_find(&world, &target, &arena, plan);
}

#define ADD(on, ...)                                                                     \
    add_pod((struct test_pod){                                                           \
        .node = (on), .mib = __VA_ARGS__, .movable = true, .excluded = -1})

TEST(one_node_can_be_asked_for)
{
    struct defrag_plan plan;
    struct request r = whole(1);
    start(3, 1);
    ADD(0, {8});
    ADD(1, {2});
    ck_assert(find(&r, "na", &plan));
    ck_assert_uint_eq(plan.n, 1);
    ck_assert_span_eq(plan.node->name, "na");
    ck_assert_span_eq(plan.moves[0].to->name, "nb");
    ck_assert(!find(&r, "nz", &plan));
    ck_assert(!plan.bounded);
}

/* A node with thousands of pods, of which hundreds have to leave: the search ends. */
TEST(the_search_is_bounded)
{
    enum { PODS = 4000 };
    start(2, 1);
    for (int n = 0; n < 2; n++)
        even_node(name_of('n', n), 8, 1 << 20);
    w.pod[0] = (struct test_pod){.movable = true, .excluded = -1};
    for (int i = 0; i < PODS; i++) /* index_of is 0 */
        bound_pod(name_of('n', i % 2), quoted(&arena, "pa%d", i).p, memory(1 + i % 97, 1),
                  i % 8);
    struct defrag_plan plan;
    struct request r = memory((1 << 20) - 20000, 8);
    bool found = find(&r, NULL, &plan);
    ck_assert(found || plan.bounded);
    r = whole(8);
    ck_assert(find(&r, "na", &plan) || plan.bounded);
}

/* -- The oracle -- */

struct oracle {
    int free[NODES_MAX][CARDS_MAX], pods[NODES_MAX][CARDS_MAX], cpu[NODES_MAX];
};

static int cards_of(const struct test_pod *p)
{
    int n = 0;
    for (int c = 0; c < w.cards; c++)
        n += p->mib[c] > 0;
    return n;
}

static int memory_of(const struct test_pod *p)
{
    int mib = 0;
    for (int c = 0; c < w.cards; c++)
        mib += p->mib[c];
    return mib;
}

/* Takes the fullest cards that fit. */
static bool oracle_take(struct oracle *o, int node, int cards, int mib, bool whole,
                        int cpu)
{
    if (o->cpu[node] < cpu)
        return false;
    bool used[CARDS_MAX] = {false};
    for (int k = 0; k < cards; k++) {
        int best = -1;
        for (int c = 0; c < w.cards; c++) {
            bool good = whole ? !o->pods[node][c] : o->free[node][c] >= mib;
            if (good && !used[c] && (best < 0 || o->free[node][c] < o->free[node][best]))
                best = c;
        }
        if (best < 0)
            return false;
        used[best] = true;
        o->free[node][best] -= whole ? CARD_MIB : mib;
        o->pods[node][best]++;
    }
    o->cpu[node] -= cpu;
    return true;
}

static void oracle_read(struct oracle *o, unsigned removed)
{
    memset(o, 0, sizeof *o);
    for (int n = 0; n < w.nodes; n++) {
        o->cpu[n] = w.cpu[n];
        for (int c = 0; c < w.cards; c++)
            o->free[n][c] = CARD_MIB;
    }
    for (int i = 0; i < w.pods; i++) {
        const struct test_pod *p = &w.pod[i];
        if (removed >> i & 1) {
            o->cpu[p->node] += p->cpu;
            continue;
        }
        for (int c = 0; c < w.cards; c++)
            if (p->mib[c]) {
                o->free[p->node][c] -= p->mib[c];
                o->pods[p->node][c]++;
            }
    }
}

/* Places the pods of order[k..] in that order. */
static bool oracle_place(const struct oracle *o, const int *order, int n, int k, int own)
{
    if (k == n)
        return true;
    const struct test_pod *p = &w.pod[order[k]];
    int cards = cards_of(p);
    for (int node = 0; node < w.nodes; node++) {
        struct oracle next = *o;
        if (node != own && node != p->excluded &&
            oracle_take(&next, node, cards, memory_of(p) / cards, p->whole, p->cpu) &&
            oracle_place(&next, order, n, k + 1, own))
            return true;
    }
    return false;
}

/* The order in which the moves happen: most memory first, then most CPU, then by name. */
static int list_removed(unsigned removed, int *order)
{
    int n = 0;
    for (int i = 0; i < w.pods; i++) {
        if (!(removed >> i & 1))
            continue;
        int k = n++;
        for (; k > 0; k--) {
            const struct test_pod *a = &w.pod[order[k - 1]], *b = &w.pod[i];
            if (memory_of(a) > memory_of(b) ||
                (memory_of(a) == memory_of(b) && a->cpu >= b->cpu))
                break;
            order[k] = order[k - 1];
        }
        order[k] = i;
    }
    return n;
}

/* The cost of the best plan: moves * 1000 + MiB; -1: there is none. */
static int oracle_best(const struct request *r)
{
    int best = -1;
    for (unsigned set = 0; set < 1U << w.pods; set++) {
        int order[PODS_MAX], n = list_removed(set, order), mib = 0, own = -1;
        bool valid = true;
        for (int i = 0; i < n; i++) {
            const struct test_pod *p = &w.pod[order[i]];
            valid = valid && p->movable && (own < 0 || own == p->node);
            own = p->node;
            mib += memory_of(p);
        }
        if (!valid || (best >= 0 && n * 1000 + mib >= best))
            continue;
        for (int node = 0; node < w.nodes && valid; node++) {
            struct oracle o;
            oracle_read(&o, set);
            if (node == w.target_excluded || (n && node != own) ||
                !oracle_take(&o, node, (int)r->cards, (int)r->mib_per_card,
                             r->kind == REQUEST_CARDS, w.target_cpu) ||
                !oracle_place(&o, order, n, 0, node))
                continue;
            best = n * 1000 + mib;
            break;
        }
    }
    return best;
}

/* A random pod where it fits; as on real nodes, it takes the fullest cards. */
static void add_random_pod(struct rng *rng)
{
    struct oracle before, after;
    struct test_pod p = {.node = (int)rng_below(rng, (uint64_t)w.nodes), .excluded = -1};
    int cards = rng_below(rng, 4) ? 1 : 1 + (int)rng_below(rng, (uint64_t)w.cards);
    int mib = 1 + (int)rng_below(rng, 12);
    p.whole = rng_below(rng, 4) == 0;
    p.cpu = (int)rng_below(rng, 4);
    p.movable = rng_below(rng, 6) != 0;
    if (rng_below(rng, 4) == 0)
        p.excluded = (int)rng_below(rng, (uint64_t)w.nodes);
    oracle_read(&before, 0);
    after = before;
    w.cpu[p.node] += p.cpu; /* free CPU is what remains beside all pods */
    after.cpu[p.node] = p.cpu;
    if (!oracle_take(&after, p.node, cards, mib, p.whole, p.cpu)) {
        w.cpu[p.node] -= p.cpu;
        return;
    }
    w.cpu[p.node] -= p.cpu;
    for (int c = 0; c < w.cards; c++)
        p.mib[c] = before.free[p.node][c] - after.free[p.node][c];
    add_pod(p);
}

static void check_plan(const struct request *r, const struct defrag_plan *plan)
{
    struct oracle o;
    unsigned set = 0;
    int own = index_of(plan->node->name);
    for (size_t i = 0; i < plan->n; i++) {
        int pod = index_of(plan->moves[i].pod->uid);
        ck_assert(w.pod[pod].movable);
        ck_assert_int_eq(w.pod[pod].node, own);
        set |= 1U << pod;
    }
    oracle_read(&o, set);
    ck_assert(oracle_take(&o, own, (int)r->cards, (int)r->mib_per_card,
                          r->kind == REQUEST_CARDS, w.target_cpu));
    for (size_t i = 0; i < plan->n; i++) {
        const struct test_pod *p = &w.pod[index_of(plan->moves[i].pod->uid)];
        int to = index_of(plan->moves[i].to->name), cards = cards_of(p);
        ck_assert(to != own && to != p->excluded);
        uint64_t chosen = plan->moves[i].cards;
        ck_assert_int_eq(__builtin_popcountll(chosen), cards);
        for (; chosen; chosen &= chosen - 1) {
            int pick = __builtin_ctzll(chosen);
            ck_assert_int_ge(o.free[to][pick],
                             p->whole ? CARD_MIB : memory_of(p) / cards);
        }
        ck_assert(oracle_take(&o, to, cards, memory_of(p) / cards, p->whole, p->cpu));
    }
}

TEST_LOOP(plans_are_the_shortest, 5)
{
    enum { ROUNDS = 400 };
    struct rng rng;
    int found = 0, moved = 0;
    rng_init(&rng, (uint64_t)_i + 1);
    for (int round = 0; round < ROUNDS; round++) {
        start(2 + (int)rng_below(&rng, NODES_MAX - 1),
              1 + (int)rng_below(&rng, CARDS_MAX));
        for (int n = 0; n < w.nodes; n++)
            w.cpu[n] = (int)rng_below(&rng, 6);
        for (int i = 0; i < 24 && w.pods < 11; i++)
            add_random_pod(&rng);
        w.target_cpu = (int)rng_below(&rng, 6);
        w.target_excluded = rng_below(&rng, 3) ? -1 : 0;
        int cards = 1 + (int)rng_below(&rng, (uint64_t)w.cards);
        struct request r = rng_below(&rng, 2) ? whole((uint32_t)cards)
                                              : memory(1 + (int)rng_below(&rng, CARD_MIB),
                                                       (uint32_t)cards);
        struct defrag_plan plan;
        bool got = find(&r, NULL, &plan);
        ck_assert(!plan.bounded);
        int cost = got ? (int)plan.n * 1000 + (int)plan.mib : -1;
        ck_assert_msg(cost == oracle_best(&r), "round %d: %d, the oracle has %d", round,
                      cost, oracle_best(&r));
        if (got)
            check_plan(&r, &plan);
        found += got;
        moved += got && plan.n > 0;
    }
    ck_assert_int_gt(found, ROUNDS / 4);
    ck_assert_int_gt(moved, ROUNDS / 20);
}
