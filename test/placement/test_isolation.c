/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/defrag.h"
#include "placement/gang.h"
#include "placement/preempt.h"
#include "placement/score.h"

#include "placement/fixture.h"

/* What the pod says of its isolation is a condition on the node, wherever something asks what
 * fits. */

enum {
    DRIVER = SCV_ISOLATION_DRIVER,
    LIBRARY = SCV_ISOLATION_LIBRARY,
    MPS = SCV_ISOLATION_MPS,
    KNOWN = SCV_ISOLATION_KNOWN,
};

/* A node of n free cards of 16000 MiB, whose Scv lists these; 0: nothing about it. */
static const struct ledger_node *isolating(const char *name, int n, uint8_t isolation)
{
    struct scv scv = object_scv_even(&arena, name, n, 16000);
    scv.isolation = isolation;
    ledger_scv_seen(ledger, &scv, 0);
    return node_of(name);
}

static struct request isolated(struct request r, uint8_t isolation)
{
    r.isolation = isolation;
    return r;
}

TEST(a_node_takes_what_it_can_enforce)
{
    static const struct {
        uint8_t node, asks;
        bool fits;
        const char *why;
    } cases[] = {
        {KNOWN | DRIVER, DRIVER, true, ""},
        {KNOWN | DRIVER, DRIVER | LIBRARY, true, ""},
        {KNOWN | LIBRARY, DRIVER | LIBRARY, true, ""},
        {KNOWN | DRIVER | LIBRARY | MPS, MPS, true, ""},
        {KNOWN, 0, true, ""},
        {KNOWN | LIBRARY, DRIVER, false,
         "needs memory isolation by the driver; this node can enforce: library"},
        {KNOWN | LIBRARY | MPS, DRIVER, false,
         "needs memory isolation by the driver; this node can enforce: library, mps"},
        {KNOWN | DRIVER, LIBRARY, false,
         "needs memory isolation by the library; this node can enforce: driver"},
        {KNOWN | MPS, DRIVER | LIBRARY, false,
         "needs memory isolation by the driver or library; this node can enforce: mps"},
        {KNOWN, MPS, false,
         "needs memory isolation by mps; this node can enforce: nothing"},
        /* As with version 1.0, which has no driver. */
        {0, DRIVER, false,
         "needs memory isolation by the driver; what this node can enforce is unknown"},
        {0, DRIVER | LIBRARY, true, ""},
        {0, LIBRARY, true, ""},
        {0, MPS, true, ""},
    };
    array_items(c, cases) {
        restart();
        const struct ledger_node *n = isolating("n1", 2, c->node);
        /* By the sums, by the cards, and by the selection of several. */
        const struct request each[] = {
            isolated(memory(8000, 1), c->asks), isolated(memory(8000, 2), c->asks),
            isolated(of_model(memory(8000, 1), "Tesla T4"), c->asks)};
        array_items(r, each) {
            const struct select_pod pod = {r, 0, SPAN("me"), NULL};
            uint64_t chosen;
            enum fit fit = c->fits ? FIT_YES : FIT_NEVER;
            if (c->fits)
                expect_fit(n, *r, fit);
            else
                expect_reason(n, *r, fit, c->why);
            ck_assert_int_eq(select_fit_pod(n, &pod), fit);
            ck_assert_uint_eq(select_bind(n, &pod, &chosen), c->fits);
            ck_assert(select_rows(n, r, &chosen) <= c->fits);
            if (c->asks) /* not decided by the first cache line */
                ck_assert_int_eq(select_fit_one(n, select_least_mib(r)), FIT_ASK);
            if (!c->fits) {
                ck_assert_int_eq(reason_class_of(n, r, fit), REASON_ISOLATION);
                ck_assert_int_eq(nearest_node_shortfall(n, r), INT64_MAX);
            }
        }
    }
}

#define OFFERS "{'aliyun.com/gpu-mem':'16000','aliyun.com/gpu-count':'1'}"

TEST(a_node_without_an_scv_cannot_enforce_the_drivers_limit)
{
    struct node node = object_node(
        &arena, quoted(&arena, "{'metadata':{'name':'n1'},'status':{'capacity':" OFFERS
                               ",'allocatable':" OFFERS "}}"));
    ledger_node_seen(ledger, &node, 0);
    expect_fit(node_of("n1"), isolated(memory(8000, 1), DRIVER | LIBRARY), FIT_YES);
    expect_reason(
        node_of("n1"), isolated(memory(8000, 1), DRIVER), FIT_NEVER,
        "needs memory isolation by the driver; what this node can enforce is unknown");
}

/* A state of the node, and its label, come first; then what it can enforce; then its cards. */
TEST(the_isolation_comes_before_the_cards)
{
    const struct ledger_node *n = isolating("n1", 1, KNOWN);
    struct node node =
        object_node(&arena, quoted(&arena, "{'metadata':{'name':'n1','labels':{'" KEY_MODE
                                           "':'card'}}}"));
    expect_reason(n, isolated(memory(99999, 1), MPS), FIT_NEVER,
                  "needs memory isolation by mps; this node can enforce: nothing");
    ledger_node_seen(ledger, &node, 0);
    expect_reason(n, isolated(memory(99999, 1), MPS), FIT_NEVER,
                  "node label gpushare/mode=card: whole cards only");
}

TEST(no_eviction_helps_where_the_node_cannot_enforce_it)
{
    struct request r = isolated(memory(12000, 1), DRIVER);
    const struct preemptor preemptor = {.pod = {&r, 9, SPAN("me"), NULL}};
    struct preempt_victims victims;
    isolating("n1", 1, KNOWN | LIBRARY);
    isolating("n2", 1, KNOWN | DRIVER);
    bound_pod("n1", "a", memory(8000, 1), 0);
    bound_pod("n2", "b", memory(8000, 1), 0);
    ck_assert(!preempt_could_help(&preemptor, node_of("n1"), &arena));
    ck_assert(!preempt_select(&preemptor, node_of("n1"), NULL, 0, &arena, &victims));
    ck_assert(preempt_could_help(&preemptor, node_of("n2"), &arena));
    ck_assert(preempt_select(&preemptor, node_of("n2"), NULL, 0, &arena, &victims));
    ck_assert_uint_eq(victims.n, 1);
}

TEST(a_gang_is_placed_where_its_members_can_be_isolated)
{
    const struct ledger_node *nodes[] = {isolating("n1", 2, KNOWN | LIBRARY),
                                         isolating("n2", 2, KNOWN | DRIVER)};
    const struct request plain = memory(9000, 1), strict = isolated(plain, DRIVER);
    struct gang_plan_member members[] = {{.request = &plain, .uid = SPAN("a")},
                                         {.request = &strict, .uid = SPAN("b")},
                                         {.request = &strict, .uid = SPAN("c")},
                                         {.request = &strict, .uid = SPAN("d")}};
    const struct gang_plan plan = {.nodes = nodes, .n_nodes = 2, .pod.uid = SPAN("a")};
    bool too_large;
    /* The members differ in nothing but this. */
    ck_assert_uint_eq(gang_plan_place(&plan, members, 3, &arena, &too_large), 3);
    ck_assert_ptr_eq(members[0].node, nodes[0]);
    ck_assert_ptr_eq(members[1].node, nodes[1]);
    ck_assert_ptr_eq(members[2].node, nodes[1]);
    ck_assert_uint_eq(gang_plan_place(&plan, members, 4, &arena, &too_large), 3);
}

TEST(a_reservation_ends_when_the_node_can_no_longer_enforce_it)
{
    const struct request r = isolated(memory(8000, 1), DRIVER);
    struct ledger_share share = {.card = 0, .mib = 8000};
    const struct ledger_reservation own = {.uid = SPAN("me"),
                                           .ns = SPAN("ns"),
                                           .name = SPAN("me"),
                                           .request = &r,
                                           .shares = &share,
                                           .n_shares = 1,
                                           .until_ms = 1000};
    isolating("n1", 1, KNOWN | DRIVER);
    ledger_reserve(ledger, &own, SPAN("n1"));
    ck_assert_ptr_null(select_reservation_lost(ledger, node_of("n1")));
    isolating("n1", 1, KNOWN | LIBRARY);
    ck_assert_ptr_nonnull(select_reservation_lost(ledger, node_of("n1")));
}

static bool may_move(void *ctx, const struct ledger_pod *pod)
{
    (void)ctx;
    return !span_eq(pod->uid, SPAN("me"));
}

static bool may_run(void *ctx, const struct ledger_pod *pod,
                    const struct ledger_node *node)
{
    (void)ctx, (void)pod, (void)node;
    return true;
}

static struct resources room_of_node(void *ctx, const struct ledger_node *node)
{
    (void)ctx, (void)node;
    return (struct resources){.cpu_milli = 1000};
}

static struct resources room_of_pod(void *ctx, const struct ledger_pod *pod)
{
    (void)ctx, (void)pod;
    return (struct resources){.cpu_milli = 1};
}

/* A pod that was bound with it keeps the condition: it would start again elsewhere. */
TEST(defrag_moves_a_pod_only_where_it_can_be_isolated)
{
    const struct defrag_world world = {ledger,  NULL,         may_move,
                                       may_run, room_of_node, room_of_pod};
    /* Both nodes would be as good without it. */
    const struct request target = memory(16000, 1);
    struct defrag_plan plan;
    isolating("n1", 1, KNOWN | DRIVER);
    isolating("n2", 1, KNOWN | LIBRARY);
    bound_pod("n1", "a", isolated(memory(4000, 1), DRIVER), 0);
    bound_pod("n2", "b", memory(4000, 1), 0);
    const struct defrag_target wanted = {.pod = {&target, 0, SPAN("me"), NULL}};
    ck_assert(defrag_find(&world, &wanted, &arena, &plan));
    ck_assert_uint_eq(plan.n, 1);
    ck_assert_span_eq(plan.moves[0].pod->uid, "b");
}

UNIT_MAIN_AROUND(begin, end)
