/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/linked.h"

#include "base/file.h"
#include "lib/unit.h"

/*
 * Whole cards on nodes with known links: the reader, the rules of others, and the four side by side on boxes of 8 × V100 (hybrid cube mesh), of 4 pairs with bridges, and of 8 cards behind NVSwitches.
 */

static const char *const boxes[] = {"v100", "bridges", "nvswitch"};

static struct buf text;
static struct trace nodes;

static void load(const char *box)
{
    struct err err = {0};
    cleanup_free char *path = xasprintf("test/replay/%s.csv", box);
    ck_assert_done(file_read(path, TRACE_MAX_BYTES, &text, &err), err);
    ck_assert_done(trace_links(&nodes, path, buf_span(&text), &err), err);
}

static void unload(void)
{
    trace_fini(&nodes);
    buf_fini(&text);
}

/* -- the reader -- */

#define HEAD "nodes,numa,links\n"

TEST(each_kind_of_node_has_its_cards)
{
    struct err err = {0};
    struct trace t = {0};
    static const char two[] = "links,nodes,numa\nX NV2,2,0\nNV2 X,2,1\nX PIX SYS,1,-1\n"
                              "PIX X SYS,1,-1\nSYS SYS X,1,-1\n";
    ck_assert_done(trace_links(&t, "two", span_of(two), &err), err);
    ck_assert_uint_eq(t.n_nodes, 3);
    ck_assert_uint_eq(t.nodes[1].cards, 2);
    ck_assert_int_eq(t.nodes[1].links[1].numa, 1);
    ck_assert(span_eq(t.nodes[2].links[2].row, SPAN("SYS SYS X")));
    ck_assert_int_eq(t.capacity, 7 * TRACE_CARD);
    ck_assert(!span_eq(t.nodes[0].name, t.nodes[1].name));
    trace_fini(&t);
}

TEST(malformed_files_are_refused)
{
    static const char *const cases[][2] = {
        {"", "f: the file is empty"},
        {HEAD, "f: contains no nodes"},
        {"nodes,links\n1,X SYS\n", "f:1: column numa is missing"},
        {HEAD "1,0,X NV0\n", "f:2: column links: word 2 is \"NV0\": expected NV#, PIX,"},
        {HEAD "1,0,SYS X\n", "f:2: column links: word 1 is \"SYS\": expected X"},
        {HEAD "1,0,X X\n", "f:2: column links: word 2 is \"X\": expected NV#"},
        {HEAD "1,0,X  SYS\n", "f:2: column links: word 2 is \"\": expected NV#"},
        {HEAD "1,0,\n", "f:2: column links: word 1 is \"\": expected X"},
        {HEAD "1,0,X\n", "f:2: column links: 1 words, expected 2 to 8"},
        {HEAD "1,0,X SYS SYS SYS SYS SYS SYS SYS SYS\n", "9 words, expected 2 to 8"},
        {HEAD "1,0,X SYS\n1,0,SYS X SYS\n", "f:3: column links: 3 words, expected 2"},
        {HEAD "1,0,X SYS\n", "f:2: column links: the last of 1 rows, expected 2"},
        {HEAD "1,0,X SYS\n2,0,SYS X\n",
         "f:3: column nodes: \"2\": expected a whole number"},
        {HEAD "0,0,X SYS\n0,0,SYS X\n", "f:2: column nodes: \"0\""},
        {HEAD "10001,0,X SYS\n", "f:2: column nodes: \"10001\""},
        {HEAD "6000,0,X SYS\n6000,0,SYS X\n5000,0,X SYS\n",
         "f:4: column nodes: \"5000\""},
        {HEAD "1,-2,X SYS\n", "f:2: column numa: \"-2\""},
    };
    array_indices(i, cases) {
        struct err err = {0};
        struct trace t = {0};
        ck_assert_msg(trace_links(&t, "f", span_of(cases[i][0]), &err) == -1, "case %zu",
                      i);
        ck_assert_msg(strstr(err.msg, cases[i][1]), "case %zu: %s", i, err.msg);
        trace_fini(&t);
    }
}

/* -- the rules of others -- */

static uint32_t cards_of(const char *rule, const char *box, uint32_t free, unsigned k)
{
    uint32_t set = 0;
    load(box);
    struct cluster *c = cluster_new(&nodes, SCORE_FGD, false);
    const struct trace_pod one = {.cards = 1, .gpu_milli = TRACE_CARD};
    struct rng rng;
    rng_init(&rng, 1);
    ck_assert(cluster_arrive(c, &one, &rng)); /* only to get at the links */
    const struct links *links = cluster_find(c, 1)->node->links;
    ck_assert_ptr_nonnull(links);
    for (size_t i = 0; i < LINKED_RULES; i++)
        if (!strcmp(linked_rules[i].name, rule))
            set = linked_rules[i].choose(links, free, k);
    cluster_free(c);
    unload();
    return set;
}

TEST(the_rules_of_others_are_those_that_they_publish)
{
    static const struct {
        const char *rule, *box;
        uint32_t free;
        unsigned k;
        uint32_t want;
    } cases[] = {
        /* Ties go to the lowest cards: NV2 connects 0 to 3 and to 4, and 1 to 2. */
        {"hami", "v100", 0xff, 2, 0x09},
        {"hami", "v100", 0xff, 4, 0x0f},
        {"hami", "v100", 0xff, 8, 0xff},
        {"hami", "v100", 0x3e, 3, 0x0e},
        {"hami", "v100", 0xf7, 4, 0xf0},
        /* One card: 4 has only SYS to the others; then the card whose bridge leads to a taken one. */
        {"hami", "v100", 0x1e, 1, 0x10},
        {"hami", "bridges", 0xf7, 1, 0x04},
        {"hami", "bridges", 0xff, 1, 0x10}, /* NODE is less than PXB */
        /* Of 0, 3 and 4 free, the pair with the most points. */
        {"nvidia", "v100", 0x19, 2, 0x09},
        {"nvidia", "v100", 0xff, 4, 0x0f},
        {"nvidia", "v100", 0xff, 1, 0x01},
        {"nvidia", "bridges", 0xfe, 2, 0x0c},
        /* The pairs {2, 3} and {1, 5} are worth more than {1, 2} and a rest without links. */
        {"nvidia", "v100", 0x2e, 2, 0x22},
        {"hami", "v100", 0x2e, 2, 0x06},
        /* The rest is a set of its own: never half of it in a set of 4. */
        {"nvidia", "v100", 0x3f, 4, 0x0f},
    };
    array_indices(i, cases) {
        uint32_t set = cards_of(cases[i].rule, cases[i].box, cases[i].free, cases[i].k);
        ck_assert_msg(set == cases[i].want, "case %zu: 0x%x, expected 0x%x", i, set,
                      cases[i].want);
    }
}

/* -- the four side by side -- */

/* Every rule gives each pod the cards that it asked for, on one node, and no card twice. */
TEST_LOOP(no_card_is_promised_twice, ARRAY_LEN(boxes))
{
    enum { PODS = 1500, STAY = 40 };
    load(boxes[_i]);
    for (size_t r = 0; r < LINKED_RULES; r++) {
        struct cluster *c = cluster_new(&nodes, SCORE_FGD, false);
        struct rng rng;
        uint32_t taken[64] = {0}, sets[PODS + 1] = {0}, at[PODS + 1] = {0};
        static struct trace_pod pods[PODS + 1];
        size_t rejected = 0, several = 0;
        cluster_set_rule(c, &linked_rules[r]);
        rng_init(&rng, 7);
        for (uint64_t n = 1; n <= PODS; n++) {
            pods[n] = (struct trace_pod){.cards = 1u << rng_below(&rng, 4),
                                         .gpu_milli = TRACE_CARD};
            uint64_t gone = n > STAY ? n - STAY : n;
            bool ran = cluster_find(c, gone);
            ck_assert(ran == (sets[gone] != 0));
            taken[at[gone]] &= ~sets[gone];
            sets[gone] = 0;
            cluster_leave_nth(c, gone);
            ck_assert_ptr_null(cluster_find(c, gone));
            bool placed = cluster_arrive(c, &pods[n], &rng);
            const struct ledger_pod *pod = cluster_find(c, n);
            ck_assert(placed == (pod != NULL));
            rejected += !placed;
            several += placed && pods[n].cards > 1;
            bool room = false;
            for (size_t i = 0; i < nodes.n_nodes; i++)
                room |= __builtin_popcount(~taken[i] & 0xff) >= (int)pods[n].cards;
            ck_assert(placed == room);
            if (!pod)
                continue;
            at[n] = pod->node->id;
            ck_assert_uint_lt(at[n], ARRAY_LEN(taken));
            for (unsigned i = 0; i < pod->n_shares; i++)
                sets[n] |= UINT32_C(1) << pod->shares[i].on;
            ck_assert_int_eq(__builtin_popcount(sets[n]), (int)pods[n].cards);
            ck_assert_msg(!(taken[at[n]] & sets[n]), "%s, pod %llu: a card is taken",
                          linked_rules[r].name, (unsigned long long)n);
            taken[at[n]] |= sets[n];
        }
        ck_assert_uint_gt(rejected, PODS / 20);
        ck_assert_uint_gt(several, PODS / 4);
        cluster_free(c);
    }
    unload();
}

struct line {
    char rule[16];
    double rings[3], all, nvlink, rejected, allocated;
};

static void play(uint64_t seed, struct line lines[LINKED_RULES])
{
    cleanup_buf struct buf out = {0};
    const struct replay_settings settings = {.policy = SCORE_FGD,
                                             .first_seed = seed,
                                             .seeds = 2,
                                             .churn = 90,
                                             .arrivals = 4000};
    linked_play(&nodes, &settings, &out);
    const char *at = out.p;
    for (size_t i = 0; i < LINKED_RULES; i++) {
        struct line *l = &lines[i];
        *l = (struct line){0};
        at = strchr(at, '\n') + 1;
        ck_assert_int_eq(sscanf(at, "fgd %15s %lf %lf %lf %lf %lf %lf %lf", l->rule,
                                &l->rings[0], &l->rings[1], &l->rings[2], &l->all,
                                &l->nvlink, &l->rejected, &l->allocated),
                         8);
        ck_assert_str_eq(l->rule, linked_rules[i].name);
        ck_assert(l->allocated > 70 && l->allocated < 90);
        ck_assert(l->nvlink >= 0 && l->nvlink <= 100);
        ck_assert(l->rejected > 0 && l->rejected < 100);
    }
}

TEST_LOOP(the_extender_has_the_widest_rings, ARRAY_LEN(boxes))
{
    struct line l[LINKED_RULES], again[LINKED_RULES], other[LINKED_RULES];
    load(boxes[_i]);
    play(1, l);
    play(1, again);
    play(2, other);
    ck_assert_int_eq(memcmp(l, again, sizeof l), 0);
    ck_assert_int_ne(memcmp(l, other, sizeof l), 0);
    for (size_t i = 1; i < LINKED_RULES; i++) {
        ck_assert(l[0].all >= l[i].all && l[0].nvlink >= l[i].nvlink);
        /* Their node is that of today, and so is what they reject. */
        ck_assert(l[i].rejected == l[1].rejected && l[i].allocated == l[1].allocated);
        ck_assert(strcmp(boxes[_i], "nvswitch") ? l[0].all > l[i].all + 0.3
                                                : l[i].all == LINK_NV + 18);
    }
    unload();
}
