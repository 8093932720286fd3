/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/defrag.h"
#include "placement/gang.h"
#include "placement/preempt.h"

#include "placement/fixture.h"
#include "placement/links_fixture.h"
#include "placement/score.h"

/* Nodes of which it is known what connects their cards: selection, reasons, scores. */

enum { V100, V100_QUAD, A100, A40, T4, L4, UNKNOWN };
enum { MIB = 16000 };
#define SET(...)                                                                         \
    set_of((const int[]){__VA_ARGS__}, ARRAY_LEN(((const int[]){__VA_ARGS__})))

static uint64_t set_of(const int *cards, size_t n)
{
    uint64_t set = 0;
    for (size_t i = 0; i < n; i++)
        set |= CARD(cards[i]);
    return set;
}

/* A free node of that machine; UNKNOWN: eight cards. */
static const struct ledger_node *free_node(const char *name, int kind)
{
    const struct machine *m = &machines[kind % UNKNOWN];
    struct scv scv = object_scv_even(&arena, name, (int)m->n, MIB);
    const char *p = m->rows;
    for (unsigned i = 0; i < m->n && kind != UNKNOWN; i++) {
        const char *from = p;
        for (unsigned word = 0; word < m->n; word++)
            p += strcspn(p, " ") + 1;
        scv.cards[i].links = (struct span){from, (size_t)(p - from) - 1};
        scv.cards[i].has_numa_node = m->numa[i] != '-';
        scv.cards[i].numa_node = m->numa[i] - '0';
    }
    ledger_scv_seen(ledger, &scv, 0);
    return node_of(name);
}

/* The same, but only these cards are free; the others are promised whole. */
static const struct ledger_node *linked(const char *name, int kind, uint64_t free)
{
    free_node(name, kind);
    for (int i = 0; i < 8; i++)
        if (!(free >> i & 1))
            bound_pod(name, quoted(&arena, "%s-%d", name, i).p, whole(1), i);
    return node_of(name);
}

static struct request at_least(struct request r, uint8_t min_link)
{
    r.min_link = min_link;
    return r;
}

TEST(several_cards_are_the_best_connected_ones)
{
    struct request four = whole(4), shared = memory(1000, 4), off = four;
    off.ignores_links = true;
    const struct ledger_node *n = linked("n1", V100, SET(0, 3, 4, 5, 6, 7));
    ck_assert(n->has_links);
    /* 0 and 3 are promised first otherwise. */
    expect_choice(n, &off, SET(0, 3, 4, 5));
    expect_choice(n, &four, SET(4, 5, 6, 7));
    expect_bind(n, &four, 0, "me", SET(4, 5, 6, 7));
    expect_choice(n, &shared, SET(4, 5, 6, 7));
    /* Without links nothing changes. */
    expect_choice(linked("n2", UNKNOWN, SET(0, 3, 4, 5, 6, 7)), &four, SET(0, 3, 4, 5));
    /* The bridges. */
    struct request two = whole(2);
    expect_choice(linked("n3", A40, SET(0, 2, 3, 5)), &two, SET(2, 3));
}

TEST(memory_decides_before_the_sets_for_one_card_only)
{
    const struct ledger_node *n = free_node("n1", A40);
    struct request one = memory(1000, 1);
    bound_pod("n1", "a", memory(4000, 1), 5);
    bound_pod("n1", "b", memory(4000, 1), 3);
    /* The fullest card, although 3 breaks a pair as well: the lower index. */
    expect_choice(n, &one, SET(3));
    restart();
    n = linked("n1", A40, SET(0, 1, 6));
    /* All are empty: 6 is in no pair. */
    expect_choice(n, &one, SET(6));
    one.placement = PLACE_SPREAD;
    expect_choice(n, &one, SET(6));
    one.ignores_links = true;
    expect_choice(n, &one, SET(0));
    one = whole(1);
    expect_choice(n, &one, SET(6));
    bound_pod("n1", "c", memory(1000, 1), 1);
    one = memory(1000, 1);
    expect_choice(n, &one, SET(1));
}

TEST(min_link_is_a_condition)
{
    struct request four = at_least(whole(4), LINK_NV), two = at_least(whole(2), LINK_NV);
    struct request shared = at_least(memory(1000, 2), LINK_PIX);
    const struct ledger_node *n = linked("n1", V100, SET(0, 1, 2, 4, 7));
    expect_reason(
        n, four, FIT_LATER,
        "needs 4 whole cards, each two connected by NV or better; free cards: 5 "
        "of 8; no 4 of them are so connected; promised as whole cards: "
        "GPU3,GPU5,GPU6");
    ck_assert_int_eq(reason_class_of(n, &four, FIT_LATER), REASON_LINKS);
    ck_assert_int_eq(nearest_node_shortfall(n, &four), -1);
    expect_choice(n, &four, 0);
    expect_bind(n, &four, 0, "me", 0);
    expect_choice(n, &two, SET(1, 2)); /* on one NUMA node; 0 and 4 remain */
    four = at_least(whole(8), LINK_NV);
    expect_reason(n, four, FIT_NEVER,
                  "needs 8 whole cards, each two connected by NV or better; no 8 such "
                  "cards of the node are so connected");
    ck_assert_int_eq(reason_class_of(n, &four, FIT_NEVER), REASON_LINKS);
    n = linked("n2", L4, SET(1, 2));
    expect_reason(n, shared, FIT_LATER,
                  "needs 1000 MiB on each of 2 cards, each two connected by PIX or "
                  "better; cards with enough free memory: 2; most free: 16000 of 16000 "
                  "MiB on GPU1; no 2 of them are so connected; promised as whole cards: "
                  "GPU0,GPU3,GPU4,GPU5,GPU6,GPU7");
    shared.min_link = LINK_PXB;
    expect_choice(n, &shared, SET(1, 2));
    /* Too few cards of any kind stay the first reason. */
    four = at_least(whole(9), LINK_NV);
    expect_reason(n, four, FIT_NEVER,
                  "needs 9 whole cards, each two connected by NV or better; the node has "
                  "8 cards");
    n = linked("n3", UNKNOWN, 0xff);
    expect_reason(
        n, two, FIT_LATER,
        "needs 2 whole cards, each two connected by NV or better; what connects "
        "the node's cards is unknown");
    ck_assert_int_eq(reason_class_of(n, &two, FIT_LATER), REASON_LINKS);
}

/* Filter, the bind beside nominated pods, and preemption ask the same function. */
TEST(nominated_pods_and_preemption_obey_min_link)
{
    struct request four = at_least(whole(4), LINK_NV);
    const struct ledger_node *n = free_node("n1", V100);
    nominated_pod("n1", "x", four, 5);
    expect_bind(n, &four, 5, "me", SET(4, 5, 6, 7));
    nominated_pod("n1", "y", at_least(memory(MIB, 2), LINK_NV), 5);
    expect_fit_of_pod(n, &four, 5, "me", FIT_LATER);
    expect_fit_of_pod(n, &four, 6, "me", FIT_YES);
    restart();
    /* 1, 2, 4 and 7 are free, but no four are connected before the pod on 0 and 3 leaves. */
    n = free_node("n1", V100);
    for (int i = 0; i < 8; i++)
        if (i == 3 || i == 5 || i == 6)
            bound_pod("n1", quoted(&arena, "p%d", i).p, whole(1), i);
    const struct preemptor preemptor = {.pod = {&four, 10, SPAN("me"), NULL}};
    struct preempt_victims victims;
    cleanup_arena struct arena scratch = {0};
    ck_assert(preempt_could_help(&preemptor, n, &scratch));
    ck_assert(preempt_select(&preemptor, n, NULL, 0, &scratch, &victims));
    ck_assert_uint_eq(victims.n, 1);
    ck_assert_str_eq(victims.pods[0]->uid.p, "p3");
    ck_assert_uint_eq(victims.cards, SET(0, 1, 2, 3));
}

/* More pods than sets of victims are tried: one of connected cards is emptied. */
TEST(victims_are_those_of_the_cheapest_connected_set)
{
    static const int pods[] = {1, 4, 1, 1, 2, 2, 2, 2};
    struct request four = at_least(whole(4), LINK_NV), any = whole(4);
    const struct ledger_node *n = free_node("n1", V100);
    for (int card = 0; card < 8; card++)
        for (int i = 0; i < pods[card]; i++)
            bound_pod("n1", quoted(&arena, "%s%d-%d", card == 1 ? "z" : "p", card, i).p,
                      memory(1000, 1), card);
    struct preemptor preemptor = {.pod = {&four, 10, SPAN("me"), NULL}};
    struct preempt_victims victims;
    cleanup_arena struct arena scratch = {0};
    ck_assert(preempt_select(&preemptor, n, NULL, 0, &scratch, &victims));
    ck_assert_uint_eq(victims.n, 7);
    ck_assert_uint_eq(victims.cards, SET(0, 1, 2, 3));
    preemptor.pod.request = &any;
    ck_assert(preempt_select(&preemptor, n, NULL, 0, &scratch, &victims));
    ck_assert_uint_eq(victims.n, 5);
}

static bool may_move(void *ctx, const struct ledger_pod *pod)
{
    return pod && !ctx;
}

static bool may_run(void *ctx, const struct ledger_pod *pod,
                    const struct ledger_node *node)
{
    return !ctx && (pod || node);
}

static struct resources node_room(void *ctx, const struct ledger_node *node)
{
    return (struct resources){.pods = !ctx && node ? 100 : 0};
}

static struct resources pod_room(void *ctx, const struct ledger_pod *pod)
{
    return (struct resources){.pods = !ctx && pod};
}

TEST(the_pods_that_move_leave_a_connected_set)
{
    static const int pods[] = {1, 2, 1, 1, 3, 0, 0, 0};
    struct request four = at_least(whole(4), LINK_NV);
    const struct defrag_world world = {.ledger = ledger,
                                       .may_move = may_move,
                                       .may_run = may_run,
                                       .node_room = node_room,
                                       .pod_room = pod_room};
    struct defrag_target target = {.pod = {.request = &four}};
    struct defrag_plan plan;
    cleanup_arena struct arena scratch = {0};
    free_node("n1", V100);
    linked("n2", V100, SET(7));
    for (int card = 0; card < 8; card++)
        for (int i = 0; i < pods[card]; i++)
            bound_pod("n1", quoted(&arena, "p%d-%d", card, i).p, memory(1000, 1), card);
    ck_assert(defrag_find(&world, &target, &scratch, &plan));
    ck_assert_uint_eq(plan.n, 3);
    ck_assert_uint_eq(plan.cards, SET(4, 5, 6, 7));
    four.min_link = 0; /* 0 or 2 or 3 beside the free ones */
    ck_assert(defrag_find(&world, &target, &scratch, &plan));
    ck_assert_uint_eq(plan.n, 1);
}

/* The greedy search of a large node can miss the only set: that is no proof. */
TEST(a_large_node_is_never_excluded_for_its_links)
{
    enum { N = 17 };
    struct scv scv = object_scv_even(&arena, "n1", N, MIB);
    struct request three = at_least(whole(3), LINK_NV);
    for (int i = 0; i < N; i++) {
        char *row = arena_alloc(&arena, N * 4);
        size_t at = 0;
        for (int k = 0; k < N; k++) {
            bool decoy = i - k == 3 || k - i == 3, clique = i < 3 && k < 3;
            at += (size_t)sprintf(row + at, "%s%s", k ? " " : "",
                                  i == k                      ? "X"
                                  : clique                    ? "NV1"
                                  : decoy && (i < 3 || k < 3) ? "NV8"
                                                              : "SYS");
        }
        scv.cards[i].links = (struct span){row, at};
    }
    ledger_scv_seen(ledger, &scv, 0);
    ck_assert(node_of("n1")->has_links);
    expect_fit(node_of("n1"), three, FIT_LATER);
    for (int i = 3; i < 6; i++)
        bound_pod("n1", quoted(&arena, "p%d", i).p, whole(1), i);
    expect_fit(node_of("n1"), three, FIT_YES);
}

/* Places members for one whole card. Returns the node of all, NULL: they have several. */
static const struct ledger_node *gang_node(const struct ledger_node *const *nodes,
                                           size_t n, size_t members,
                                           const struct ledger_node *beside,
                                           struct gang_plan_member *m)
{
    static char uids[8][8];
    static struct request r;
    cleanup_arena struct arena scratch = {0};
    bool too_large;
    const struct gang_plan plan = {
        .nodes = nodes, .n_nodes = n, .pod.uid = SPAN("m0"), .beside = beside};
    r = whole(1);
    r.near_gang = true;
    for (size_t i = 0; i < members; i++) {
        snprintf(uids[i], sizeof uids[i], "m%zu", i);
        m[i] = (struct gang_plan_member){.request = &r, .uid = span_of(uids[i])};
    }
    ck_assert_uint_eq(gang_plan_place(&plan, m, members, &scratch, &too_large), members);
    for (size_t i = 1; i < members; i++)
        if (m[i].node != m[0].node)
            return NULL;
    return m[0].node;
}

TEST(a_gang_that_wants_to_be_near_gets_one_set)
{
    struct gang_plan_member m[8];
    const struct ledger_node *nodes[] = {linked("full", V100, SET(0, 1, 6, 7)),
                                         linked("quad", V100, SET(0, 4, 5, 6, 7)),
                                         linked("unknown", UNKNOWN, 0xff)};
    ck_assert_ptr_eq(gang_node(nodes, 3, 4, NULL, m), nodes[1]);
    uint8_t order[4], narrowest = LINK_MAX;
    for (int i = 0; i < 4; i++) {
        ck_assert_uint_eq(m[i].cards & SET(4, 5, 6, 7), m[i].cards);
        order[i] = (uint8_t)__builtin_ctzll(m[i].cards);
    }
    for (int i = 0; i < 4; i++) {
        uint8_t pair = links_pair(nodes[1]->links, order[i], order[(i + 1) % 4]);
        narrowest = pair < narrowest ? pair : narrowest;
    }
    ck_assert_uint_eq(narrowest, links_ring(nodes[1]->links, SET(4, 5, 6, 7)));
    /* Where its other members are. */
    ck_assert_ptr_eq(gang_node(nodes, 3, 2, nodes[0], m), nodes[0]);
    /* Only one node has room for so many; none has: as other gangs. */
    ck_assert_ptr_eq(gang_node(nodes, 3, 7, NULL, m), nodes[2]);
    ck_assert_ptr_null(gang_node(nodes, 2, 7, NULL, m));
}

static int points[4];

static struct span name_at(const void *nodes, size_t i)
{
    return ((const struct ledger_node *const *)nodes)[i]->name;
}

/* Fills the points of the nodes. Returns the best of them. */
static size_t score(enum score_policy policy, struct request r,
                    const struct ledger_node *const *nodes, size_t n)
{
    struct score_scratch scratch = {0};
    const struct score_pod pod = {.pod.request = &r};
    cleanup_requests struct requests mix = {0};
    struct score_run run;
    size_t best;
    requests_weigh(&mix, &r, 0);
    score_nodes(policy, &pod, &mix, nodes, n, &scratch, points);
    score_begin(&run, policy, &pod, &mix, &scratch, n);
    do
        score_visit(&run, 0, nodes, n);
    while (score_again(&run));
    ck_assert_uint_eq(score_best(&run, n, name_at, nodes, &best, 1), 1);
    score_scratch_fini(&scratch);
    return best;
}

TEST(the_node_with_the_better_class_comes_first)
{
    /* The policies prefer the others: full, or empty. */
    const struct ledger_node *nodes[] = {
        linked("full", V100, SET(0, 1, 6, 7)), linked("nv", V100, SET(0, 1, 2, 3, 7)),
        linked("empty", T4, SET(0, 1, 2, 3)), linked("unknown", UNKNOWN, 0xff)};
    struct request four = whole(4), off = four;
    off.ignores_links = true;
    for (int policy = 0; policy < SCORE_POLICIES; policy++) {
        ck_assert_uint_eq(score((enum score_policy)policy, four, nodes, 4), 1);
        ck_assert_int_eq(points[1], SCORE_MAX);
        for (int i = 0; i < 4; i++)
            ck_assert(i == 1 || points[i] < SCORE_MAX - 4);
        ck_assert_uint_ne(score((enum score_policy)policy, off, nodes, 4), 1);
        /* Within a class the policy decides, by the same points. */
        const struct ledger_node *same[] = {linked("a", A100, SET(0, 1, 2, 3, 4)),
                                            linked("b", V100, SET(4, 5, 6, 7))};
        size_t best = score((enum score_policy)policy, four, same, 2);
        int first = points[0], second = points[1];
        ck_assert_uint_eq(score((enum score_policy)policy, off, same, 2), best);
        ck_assert_int_eq(points[0], first);
        ck_assert_int_eq(points[1], second);
    }
}

TEST(a_free_node_is_not_opened_for_a_better_ring)
{
    const struct ledger_node *full = linked("full", V100, SET(0, 1, 6, 7)),
                             *empty = linked("empty", V100, 0xff),
                             *other = linked("other", A100, 0xff);
    const struct ledger_node *t4 = linked("t4", T4, SET(0, 1, 2, 3));
    struct request four = whole(4);
    /* The other policies prefer the empty node by themselves. */
    static const enum score_policy policies[] = {SCORE_BINPACK, SCORE_FGD};
    array_items(policy, policies) {
        const struct ledger_node *same[] = {empty, full}, *kinds[] = {empty, full, other},
                                 *unused[] = {t4, empty};
        ck_assert_uint_eq(score(*policy, four, same, 2), 1);
        /* One of another kind is; and this one, where no node of its kind is in use. */
        ck_assert_uint_eq(score(*policy, four, kinds, 3), 2);
        ck_assert_uint_eq(score(*policy, four, unused, 2), 1);
    }
}

TEST(a_pod_without_cards_ignores_links)
{
    const struct ledger_node *nodes[] = {linked("n1", V100, 0xff),
                                         linked("n2", UNKNOWN, 0xff)};
    struct request none = {.kind = REQUEST_NONE};
    for (int i = 0; i < 2; i++) {
        ((struct ledger_node *)nodes[i])->cpu_milli = 1000;
        ((struct ledger_node *)nodes[i])->cpu_free = 1000;
    }
    ck_assert_uint_eq(score(SCORE_FGD, none, nodes, 2), 0);
    ck_assert_int_eq(points[0], SCORE_MAX);
    ck_assert_int_eq(points[1], SCORE_MAX);
}

TEST(one_card_is_taken_where_it_breaks_no_set)
{
    /* As full, but without the quad; and with a card beside a quad. */
    const struct ledger_node *nodes[] = {linked("a", V100, SET(0, 1, 2, 3)),
                                         linked("b", V100, SET(0, 3, 5, 6)),
                                         linked("c", V100, SET(0, 1, 2, 3, 6))};
    struct request one = whole(1), shared = memory(1000, 1), off = one;
    off.ignores_links = true;
    ck_assert_uint_eq(score(SCORE_FGD, one, nodes, 2), 1);
    ck_assert_uint_eq(score(SCORE_FGD, shared, nodes, 2), 1);
    ck_assert_uint_eq(score(SCORE_FGD, off, nodes, 2), 0);
    const struct ledger_node *beside[] = {nodes[0], nodes[2]};
    ck_assert_uint_eq(score(SCORE_FGD, shared, beside, 2), 1);
    /* A card that is in use breaks none. */
    bound_pod("a", "s", memory(1000, 1), 3);
    ck_assert_uint_eq(score(SCORE_FGD, shared, nodes, 2), 0);
}

UNIT_MAIN_AROUND(begin, end)
