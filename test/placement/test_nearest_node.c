/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/reason.h"

#include "domain/objects.h"

static struct arena arena;
static struct ledger *ledger;

/* Adds a node with cards of 16000 MiB. `promised`: MiB promised on the first cards; -1
 * ends the list. */
static void add_node(const char *name, int cards, const int *promised)
{
    struct scv scv = object_scv_even(&arena, name, cards, 16000);
    ledger_scv_seen(ledger, &scv, 0);
    for (int i = 0; promised[i] >= 0; i++) {
        char uid[64];
        snprintf(uid, sizeof uid, "%s-%d", name, i);
        struct pod pod = object_pod_mem(&arena, uid, promised[i]);
        struct request r = object_request(&arena, &pod, 1);
        struct ledger_share share = {.card = i, .mib = promised[i]};
        ledger_pod_place(ledger, ledger_pod_add(ledger, &pod, &r, NULL), span_of(name),
                         &share, 1);
    }
}
#define ADD_NODE(name, cards, ...) add_node(name, cards, (const int[]){__VA_ARGS__, -1})

static void start(void)
{
    struct ledger_settings s = {.unit_mib = 1, .external_tolerance_mib = 1024};
    ledger = ledger_new(&s, 1);
    ADD_NODE("n1", 2, 12000, 9000);  /* free: 4000, 7000 */
    ADD_NODE("n2", 2, 10000, 10000); /* 6000, 6000 */
    ADD_NODE("n3", 1, 16000);
}

static struct nearest_node find_closest(struct request r)
{
    static struct request kept;
    struct nearest_node n;
    kept = r;
    nearest_node_init(&n, &(struct select_pod){&kept, 0, SPAN("me"), NULL});
    for (uint32_t i = 0; i < ledger_node_slots(ledger); i++)
        if (ledger_node_at(ledger, i))
            nearest_node_visit(&n, ledger_node_at(ledger, i));
    return n;
}

static struct request memory(int64_t mib, uint32_t cards)
{
    return (struct request){.kind = REQUEST_MEMORY,
                            .cards = cards,
                            .units = mib * cards,
                            .mib_per_card = mib};
}

static struct request whole(uint32_t cards)
{
    return (struct request){.kind = REQUEST_CARDS, .cards = cards};
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

START_TEST(closest_node_has_the_least_missing)
{
    start();
    assert_closest(memory(8000, 1), "n1", 0, 1000);
    assert_closest(memory(7000, 1), "n1", 1, 0);
    assert_closest(memory(7000, 2), "n2", 0, 2000); /* n1: 3000 */
    assert_closest(memory(6500, 2), "n2", 0, 1000);
    assert_closest(memory(6000, 1), "n1", 2, 0);    /* ties go to the lowest name */
    assert_closest(memory(7000, 3), "n2", 0, 9000); /* no node has three */
    assert_closest(memory(20000, 1), "n1", 0, 13000);
    assert_closest(whole(2), "n1", 0, 2);
    ADD_NODE("n0", 2, 1);
    assert_closest(whole(2), "n0", 0, 1);
    assert_closest(whole(1), "n0", 1, 0);
    ledger_free(ledger);
}
END_TEST

START_TEST(not_now_is_closer_than_never)
{
    start();
    struct scv scv = object_scv_even(&arena, "a", 1, 7900);
    ledger_scv_seen(ledger, &scv, 0);
    /* More memory is missing on n1, but there the request can fit later. */
    assert_closest(memory(8000, 1), "n1", 0, 1000);
    ck_assert_int_eq(find_closest(memory(8000, 1)).fit, FIT_LATER);
    ck_assert_int_eq(find_closest(memory(16001, 1)).fit, FIT_NEVER);
    assert_closest(memory(16001, 1), "a", 0, 8101);
    ledger_free(ledger);
}
END_TEST

START_TEST(unusable_node_comes_last)
{
    start();
    struct node mode = object_node(
        &arena,
        quoted(&arena, "{'metadata':{'name':'a','labels':{'gpushare/mode':'card'}}}"));
    struct node bare = object_node(&arena, quoted(&arena, "{'metadata':{'name':'b'}}"));
    struct scv scv = object_scv_even(&arena, "a", 2, 16000);
    ledger_scv_seen(ledger, &scv, 0);
    ledger_node_seen(ledger, &mode, 0);
    ledger_node_seen(ledger, &bare, 0);
    struct request r = memory(8000, 1), two = whole(2);
    ck_assert_int_eq(nearest_node_shortfall(ledger_node_find(ledger, SPAN("a")), &r),
                     INT64_MAX);
    ck_assert_int_eq(nearest_node_shortfall(ledger_node_find(ledger, SPAN("a")), &two),
                     0);
    ck_assert_int_eq(nearest_node_shortfall(ledger_node_find(ledger, SPAN("b")), &two),
                     INT64_MAX);
    assert_closest(r, "n1", 0, 1000);
    ledger_free(ledger);
}
END_TEST

START_TEST(memory_reserved_for_nominated_pods_is_not_free)
{
    start();
    struct pod pod = object_pod_mem(&arena, "first", 7000);
    pod.priority = 5;
    pod.nominated_node = SPAN("n1");
    struct request r = object_request(&arena, &pod, 1);
    ledger_pod_add(ledger, &pod, &r, NULL);
    assert_closest(memory(7000, 1), "n1", 0, 0);
    ck_assert_int_eq(find_closest(memory(7000, 1)).fit, FIT_LATER);
    struct nearest_node own;
    nearest_node_init(&own, &(struct select_pod){&r, 5, SPAN("first"), NULL});
    nearest_node_visit(&own, ledger_node_find(ledger, SPAN("n1")));
    ck_assert_uint_eq(own.fits, 1);
    ledger_free(ledger);
}
END_TEST

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
    reason_add_schedulable(&out, ledger_node_find(ledger, span_of(name)),
                           &(struct select_pod){&r, 0, SPAN("me"), NULL});
    ck_assert_str_eq(out.p ? out.p : "", why);
}

/* Nothing fits on a node that kube-scheduler does not offer, and other nodes are closer. */
START_TEST(cordoned_node_is_not_offered)
{
    start();
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
    ledger_free(ledger);
}
END_TEST

START_TEST(no_nodes_no_closest_node)
{
    struct ledger_settings s = {.unit_mib = 1};
    ledger = ledger_new(&s, 1);
    ck_assert_ptr_null(find_closest(memory(1, 1)).node);
    ck_assert_uint_eq(find_closest(memory(1, 1)).seen, 0);
    ledger_free(ledger);
}
END_TEST

UNIT_MAIN("nearest_node", closest_node_has_the_least_missing, not_now_is_closer_than_never,
          unusable_node_comes_last, memory_reserved_for_nominated_pods_is_not_free,
          cordoned_node_is_not_offered, no_nodes_no_closest_node)
