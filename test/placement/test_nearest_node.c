/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/fixture.h"

/* A node with cards of 16000 MiB with this much free memory. */
#define NODE(name, ...) node_with_free_of(name, 16000, (const int[]){__VA_ARGS__, -1})

static void start(void)
{
    begin();
    NODE("n1", 4000, 7000);
    NODE("n2", 6000, 6000);
    NODE("n3", 0);
}

static struct nearest_node find_closest(struct request r)
{
    static struct request kept;
    struct nearest_node n = {.pod = {&kept, 0, SPAN("me"), NULL}};
    kept = r;
    for (uint32_t i = 0; i < ledger_node_slots(ledger); i++)
        if (ledger_node_at(ledger, i))
            nearest_node_visit(&n, ledger_node_at(ledger, i));
    return n;
}

static void assert_closest(struct request r, const char *node, uint32_t fits,
                           int64_t missing)
{
    struct nearest_node n = find_closest(r);
    ck_assert_uint_eq(n.seen, ledger_node_slots(ledger));
    ck_assert_span_eq(n.node->name, node);
    ck_assert_uint_eq(n.fits, fits);
    ck_assert_int_eq(n.missing, missing);
}

TEST(closest_node_has_the_least_missing)
{
    assert_closest(memory(8000, 1), "n1", 0, 1000);
    assert_closest(memory(7000, 1), "n1", 1, 0);
    assert_closest(memory(7000, 2), "n2", 0, 2000); /* n1: 3000 */
    assert_closest(memory(6500, 2), "n2", 0, 1000);
    assert_closest(memory(6000, 1), "n1", 2, 0);    /* ties go to the lowest name */
    assert_closest(memory(7000, 3), "n2", 0, 9000); /* no node has three */
    assert_closest(memory(20000, 1), "n1", 0, 13000);
    assert_closest(whole(2), "n1", 0, 2);
    NODE("n0", 15999, 16000);
    assert_closest(whole(2), "n0", 0, 1);
    assert_closest(whole(1), "n0", 1, 0);
}

TEST(not_now_is_closer_than_never)
{
    even_node("a", 1, 7900);
    /* More memory is missing on n1, but there the request can fit later. */
    assert_closest(memory(8000, 1), "n1", 0, 1000);
    ck_assert_int_eq(find_closest(memory(8000, 1)).fit, FIT_LATER);
    ck_assert_int_eq(find_closest(memory(16001, 1)).fit, FIT_NEVER);
    assert_closest(memory(16001, 1), "a", 0, 8101);
}

TEST(unusable_node_comes_last)
{
    struct node mode = object_node(
        &arena,
        quoted(&arena, "{'metadata':{'name':'a','labels':{'gpushare/mode':'card'}}}"));
    struct node bare = object_node(&arena, quoted(&arena, "{'metadata':{'name':'b'}}"));
    even_node("a", 2, 16000);
    ledger_node_seen(ledger, &mode, 0);
    ledger_node_seen(ledger, &bare, 0);
    struct request r = memory(8000, 1), two = whole(2);
    ck_assert_int_eq(nearest_node_shortfall(node_of("a"), &r), INT64_MAX);
    ck_assert_int_eq(nearest_node_shortfall(node_of("a"), &two), 0);
    ck_assert_int_eq(nearest_node_shortfall(node_of("b"), &two), INT64_MAX);
    assert_closest(r, "n1", 0, 1000);
}

TEST(memory_reserved_for_nominated_pods_is_not_free)
{
    struct request r = memory(7000, 1);
    nominated_pod("n1", "first", r, 5);
    assert_closest(memory(7000, 1), "n1", 0, 0);
    ck_assert_int_eq(find_closest(memory(7000, 1)).fit, FIT_LATER);
    struct nearest_node own = {.pod = {&r, 5, SPAN("first"), NULL}};
    nearest_node_visit(&own, node_of("n1"));
    ck_assert_uint_eq(own.fits, 1);
}

static void cordon(const char *name, bool cordoned)
{
    struct node node =
        object_node(&arena, quoted(&arena, "{'metadata':{'name':'%s'}}", name));
    node.cordoned = cordoned;
    ledger_node_seen(ledger, &node, 0);
}

static void assert_reason(const char *name, struct request r, const char *why)
{
    cleanup_buf struct buf out = {0};
    struct obstacle list[OBSTACLES_MAX];
    const struct reason_ask ask = {.pod = {&r, 0, SPAN("me"), NULL}};
    reason_write(&out, node_of(name), &r, list, reason_list(node_of(name), &ask, list));
    ck_assert_str_eq(out.p ? out.p : "", why);
}

/* Nothing fits on a node that kube-scheduler does not offer, and other nodes are closer. */
TEST(cordoned_node_is_not_offered)
{
    assert_closest(memory(6500, 1), "n1", 1, 0);
    cordon("n1", true);
    ck_assert_int_eq(find_closest(memory(6500, 1)).fit, FIT_LATER);
    assert_closest(memory(6500, 1), "n2", 0, 500);
    assert_closest(memory(6000, 1), "n2", 1, 0);
    struct request large = memory(15000, 1);
    assert_closest(large, "n2", 0, 9000);
    assert_reason(
        "n1", memory(6500, 1),
        "cordoned: kube-scheduler offers it only to pods that tolerate the taint");
    assert_reason(
        "n1", large,
        "cordoned: kube-scheduler offers it only to pods that tolerate the taint; "
        "needs 15000 MiB on one card; most free: 7000 of 16000 MiB on GPU1");
    assert_reason("n2", memory(6000, 1), "");
    /* All nodes are cordoned: the one with the least missing is the closest. */
    cordon("n2", true);
    cordon("n3", true);
    assert_closest(memory(6500, 1), "n1", 0, 0);
    cordon("n1", false);
    assert_closest(memory(6500, 1), "n1", 1, 0);
}

TEST(no_nodes_no_closest_node)
{
    restart();
    ck_assert_ptr_null(find_closest(memory(1, 1)).node);
    ck_assert_uint_eq(find_closest(memory(1, 1)).seen, 0);
}

UNIT_MAIN_AROUND(start, end)
