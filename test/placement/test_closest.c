/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/closest.h"

#include "domain/objects.h"

static struct arena arena;
static struct ledger *ledger;

/* A node with cards of 16000 MiB, the first ones with so much promised; -1 ends them. */
static void see(const char *name, int cards, const int *promised)
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
#define SEE(name, cards, ...) see(name, cards, (const int[]){__VA_ARGS__, -1})

static void start(void)
{
    struct ledger_settings s = {.unit_mib = 1, .external_tolerance_mib = 1024};
    ledger = ledger_new(&s, 1);
    SEE("n1", 2, 12000, 9000);  /* free: 4000, 7000 */
    SEE("n2", 2, 10000, 10000); /* 6000, 6000 */
    SEE("n3", 1, 16000);
}

static struct closest look(struct request r)
{
    static struct request kept;
    struct closest n;
    kept = r;
    closest_init(&n, &kept, 0, SPAN("me"));
    for (uint32_t i = 0; i < ledger_node_slots(ledger); i++)
        if (ledger_node_at(ledger, i))
            closest_visit(&n, ledger_node_at(ledger, i));
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

static void assert_nearest(struct request r, const char *node, uint32_t fits,
                           int64_t missing)
{
    struct closest n = look(r);
    ck_assert_uint_eq(n.seen, ledger_node_slots(ledger));
    ck_assert_span_eq(n.node->name, node);
    ck_assert_uint_eq(n.fits, fits);
    ck_assert_int_eq(n.missing, missing);
}

START_TEST(the_node_where_least_is_missing)
{
    start();
    assert_nearest(memory(8000, 1), "n1", 0, 1000);
    assert_nearest(memory(7000, 1), "n1", 1, 0);
    assert_nearest(memory(7000, 2), "n2", 0, 2000); /* n1: 3000 */
    assert_nearest(memory(6500, 2), "n2", 0, 1000);
    assert_nearest(memory(6000, 1), "n1", 2, 0);    /* of equals the first by name */
    assert_nearest(memory(7000, 3), "n2", 0, 9000); /* no node has three */
    assert_nearest(memory(20000, 1), "n1", 0, 13000);
    assert_nearest(whole(2), "n1", 0, 2);
    SEE("n0", 2, 1);
    assert_nearest(whole(2), "n0", 0, 1);
    assert_nearest(whole(1), "n0", 1, 0);
    ledger_free(ledger);
}
END_TEST

START_TEST(not_now_is_nearer_than_never)
{
    start();
    struct scv scv = object_scv_even(&arena, "a", 1, 7900);
    ledger_scv_seen(ledger, &scv, 0);
    /* Of the free memory more is missing on n1, but there it is a matter of time. */
    assert_nearest(memory(8000, 1), "n1", 0, 1000);
    ck_assert_int_eq(look(memory(8000, 1)).fit, FIT_LATER);
    ck_assert_int_eq(look(memory(16001, 1)).fit, FIT_NEVER);
    assert_nearest(memory(16001, 1), "a", 0, 8101);
    ledger_free(ledger);
}
END_TEST

START_TEST(a_node_that_gives_nothing_out_is_last)
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
    ck_assert_int_eq(closest_shortfall(ledger_node_find(ledger, SPAN("a")), &r),
                     INT64_MAX);
    ck_assert_int_eq(closest_shortfall(ledger_node_find(ledger, SPAN("a")), &two), 0);
    ck_assert_int_eq(closest_shortfall(ledger_node_find(ledger, SPAN("b")), &two),
                     INT64_MAX);
    assert_nearest(r, "n1", 0, 1000);
    ledger_free(ledger);
}
END_TEST

START_TEST(what_is_kept_for_others_does_not_fit)
{
    start();
    struct pod pod = object_pod_mem(&arena, "first", 7000);
    pod.priority = 5;
    pod.nominated_node = SPAN("n1");
    struct request r = object_request(&arena, &pod, 1);
    ledger_pod_add(ledger, &pod, &r, NULL);
    assert_nearest(memory(7000, 1), "n1", 0, 0);
    ck_assert_int_eq(look(memory(7000, 1)).fit, FIT_LATER);
    struct closest own;
    closest_init(&own, &r, 5, SPAN("first"));
    closest_visit(&own, ledger_node_find(ledger, SPAN("n1")));
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

static void assert_offered(const char *name, struct request r, const char *why)
{
    cleanup_buf struct buf out = {0};
    reason_add_schedulable(&out, ledger_node_find(ledger, span_of(name)), &r, 0,
                             SPAN("me"));
    ck_assert_str_eq(out.p ? out.p : "", why);
}

/* Where kube-scheduler leaves a node out, nothing fits, and others are nearer. */
START_TEST(a_cordoned_node_is_not_offered)
{
    start();
    assert_nearest(memory(6500, 1), "n1", 1, 0);
    cordon("n1", true);
    ck_assert_int_eq(look(memory(6500, 1)).fit, FIT_LATER);
    assert_nearest(memory(6500, 1), "n2", 0, 500);
    assert_nearest(memory(6000, 1), "n2", 1, 0);
    struct request large = memory(15000, 1);
    assert_nearest(large, "n2", 0, 9000);
    assert_offered("n1", memory(6500, 1),
                   "cordoned: kube-scheduler offers it only to pods that tolerate the taint");
    assert_offered("n1", large,
                   "cordoned: kube-scheduler offers it only to pods that tolerate the taint; "
                   "needs 15000 MiB on one card; most free: 7000 of 16000 MiB on GPU1");
    assert_offered("n2", memory(6000, 1), "");
    /* Only cordoned ones: the one where least is missing. */
    cordon("n2", true);
    cordon("n3", true);
    assert_nearest(memory(6500, 1), "n1", 0, 0);
    cordon("n1", false);
    assert_nearest(memory(6500, 1), "n1", 1, 0);
    ledger_free(ledger);
}
END_TEST

START_TEST(without_nodes_there_is_none)
{
    struct ledger_settings s = {.unit_mib = 1};
    ledger = ledger_new(&s, 1);
    ck_assert_ptr_null(look(memory(1, 1)).node);
    ck_assert_uint_eq(look(memory(1, 1)).seen, 0);
    ledger_free(ledger);
}
END_TEST

UNIT_MAIN("nearest", the_node_where_least_is_missing, not_now_is_nearer_than_never,
          a_node_that_gives_nothing_out_is_last, what_is_kept_for_others_does_not_fit,
          a_cordoned_node_is_not_offered, without_nodes_there_is_none)
