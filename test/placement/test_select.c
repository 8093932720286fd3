/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/reason.h"

#include "domain/objects.h"
#include "placement/choose.h"

static struct arena arena;
static struct ledger *ledger;

static void start(void)
{
    struct ledger_settings s = {.unit_mib = 1, .external_tolerance_mib = 1024};
    ledger = ledger_new(&s, 1);
}

/* A node with cards of 16276 MiB with this much free memory; -1 ends the list. */
static const struct ledger_node *node_with_free(const char *name, const int *free_mib)
{
    int n = 0;
    while (free_mib[n] >= 0)
        n++;
    struct scv scv = object_scv_even(&arena, name, n, 16276);
    ledger_scv_seen(ledger, &scv, 0);
    for (int i = 0; i < n; i++) {
        if (free_mib[i] == 16276)
            continue;
        char uid[64];
        snprintf(uid, sizeof uid, "%s-%d", name, i);
        struct pod pod = object_pod_mem(&arena, uid, 16276 - free_mib[i]);
        struct request r = object_request(&arena, &pod, 1);
        struct ledger_share share = {.card = i, .mib = 16276 - free_mib[i]};
        ledger_pod_place(ledger, ledger_pod_add(ledger, &pod, &r, NULL), span_of(name),
                         &share, 1);
    }
    return ledger_node_find(ledger, span_of(name));
}
#define NODE_WITH_FREE(name, ...) node_with_free(name, (const int[]){__VA_ARGS__, -1})

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

static const char *reason(const struct ledger_node *node, struct request r)
{
    cleanup_buf struct buf b = {0};
    reason_add(&b, node, &r, select_fit(node, &r));
    return arena_copy(&arena, buf_span(&b)).p;
}

START_TEST(filter_rejects_nodes_without_enough_memory_on_one_card)
{
    start();
    struct request r = memory(8138, 1);
    const struct ledger_node *n1 = NODE_WITH_FREE("n1", 0, 4069);
    const struct ledger_node *n2 = NODE_WITH_FREE("n2", 4069, 4069);
    const struct ledger_node *n3 = NODE_WITH_FREE("n3", 8138, 0);
    ck_assert_int_eq(select_fit(n1, &r), FIT_LATER);
    ck_assert_int_eq(select_fit(n2, &r), FIT_LATER);
    ck_assert_int_eq(select_fit(n3, &r), FIT_YES);
    ck_assert_str_eq(reason(n2, r),
                     "needs 8138 MiB on one card; most free: 4069 of 16276 MiB on GPU0");
    ledger_free(ledger);
}
END_TEST

START_TEST(binpack_and_spread_choose_opposite_cards)
{
    start();
    struct request r = memory(8138, 1);
    const struct ledger_node *n = NODE_WITH_FREE("n1", 12207, 8138, 4069, 16276);
    ck_assert_uint_eq(chosen_cards(n, &r), CARD(1));
    r.placement = PLACE_SPREAD;
    ck_assert_uint_eq(chosen_cards(n, &r), CARD(3));
    ledger_free(ledger);
}
END_TEST

START_TEST(ties_go_to_the_lowest_index)
{
    start();
    const struct ledger_node *n = NODE_WITH_FREE("n1", 16276, 8000, 8000, 16276);
    struct request r = memory(1000, 1);
    ck_assert_uint_eq(chosen_cards(n, &r), CARD(1));
    r.placement = PLACE_SPREAD;
    ck_assert_uint_eq(chosen_cards(n, &r), CARD(0));
    ledger_free(ledger);
}
END_TEST

START_TEST(several_cards_are_distinct_and_sorted)
{
    start();
    const struct ledger_node *n = NODE_WITH_FREE("n1", 9000, 500, 8000, 16276);
    struct request r = memory(1000, 2);
    ck_assert_uint_eq(chosen_cards(n, &r), CARDS(0, 2));
    r = memory(1000, 4);
    ck_assert_uint_eq(chosen_cards(n, &r), 0);
    ck_assert_int_eq(select_fit(n, &r), FIT_LATER);
    ck_assert_str_eq(reason(n, r),
                     "needs 1000 MiB on each of 4 cards; cards with enough "
                     "free memory: 3; most free: 16276 of 16276 MiB on GPU3");
    r = memory(1000, 5);
    ck_assert_int_eq(select_fit(n, &r), FIT_NEVER);
    ck_assert_str_eq(reason(n, r),
                     "needs 1000 MiB on each of 5 cards; the node has 4 cards");
    ledger_free(ledger);
}
END_TEST

START_TEST(whole_cards_have_no_promises)
{
    start();
    const struct ledger_node *n = NODE_WITH_FREE("n1", 16275, 16276, 16276);
    struct request r = whole(2);
    ck_assert_uint_eq(chosen_cards(n, &r), CARDS(1, 2));
    r = whole(3);
    ck_assert_int_eq(select_fit(n, &r), FIT_LATER);
    ck_assert_str_eq(reason(n, r), "needs 3 whole cards; free cards: 2 of 3");
    r = whole(4);
    ck_assert_int_eq(select_fit(n, &r), FIT_NEVER);
    ck_assert_str_eq(reason(n, r), "needs 4 whole cards; the node has 3 cards");
    ledger_free(ledger);
}
END_TEST

START_TEST(too_large_requests_never_fit)
{
    start();
    const struct ledger_node *n = NODE_WITH_FREE("n1", 100, 100);
    ck_assert_int_eq(select_fit(n, &(struct request){.kind = REQUEST_MEMORY,
                                                     .cards = 1,
                                                     .mib_per_card = 16276}),
                     FIT_LATER);
    struct request r = memory(16277, 1);
    ck_assert_int_eq(select_fit(n, &r), FIT_NEVER);
    ck_assert_str_eq(reason(n, r),
                     "needs 16277 MiB on one card; the largest card has 16276 MiB");
    ledger_free(ledger);
}
END_TEST

static void set_mode(const char *name, const char *mode)
{
    struct node node = object_node(
        &arena,
        quoted(&arena, "{'metadata':{'name':'%s','labels':{'" KEY_MODE "':'%s'}}}", name,
               mode));
    ledger_node_seen(ledger, &node, 0);
}

START_TEST(mode_label_restricts_a_node)
{
    start();
    const struct ledger_node *n = NODE_WITH_FREE("n1", 16276);
    struct request mem = memory(1, 1), card = whole(1);
    set_mode("n1", "memory");
    ck_assert_int_eq(select_fit(n, &mem), FIT_YES);
    ck_assert_int_eq(select_fit(n, &card), FIT_NEVER);
    ck_assert_str_eq(reason(n, card), "node label gpushare/mode=memory: no whole cards");
    set_mode("n1", "card");
    ck_assert_int_eq(select_fit(n, &mem), FIT_NEVER);
    ck_assert_int_eq(select_fit(n, &card), FIT_YES);
    set_mode("n1", "both");
    ck_assert_int_eq(select_fit(n, &mem), FIT_LATER);
    ck_assert_str_eq(reason(n, mem),
                     "node label gpushare/mode is neither memory nor card");
    ledger_free(ledger);
}
END_TEST

START_TEST(reason_names_excluded_cards)
{
    start();
    struct scv scv = object_scv(
        &arena,
        quoted(&arena,
               "{'metadata':{'name':'n1'},'status':{'updateTime':'2026-11-21T09:00:00Z',"
               "'cardList':["
               "{'id':0,'health':'Healthy','totalMemory':1000,'freeMemory':1000},"
               "{'id':1,'health':'Unhealthy','totalMemory':9000,'freeMemory':9000},"
               "{'id':2,'health':'Unhealthy','totalMemory':9000,'freeMemory':9000},"
               "{'id':3,'health':'Healthy','totalMemory':9000,'freeMemory':9000},"
               "{'id':4,'health':'Healthy','totalMemory':9000,'freeMemory':2000}]}}"));
    ledger_scv_seen(ledger, &scv, 0);
    int32_t listed = 3;
    struct unhealthy_cards u = {.node = SPAN("n1"), .cards = &listed, .n = 1};
    ledger_unhealthy_seen(ledger, &u, 0);
    const struct ledger_node *n = ledger_node_find(ledger, SPAN("n1"));
    ck_assert_int_eq(select_fit(n, &(struct request){.kind = REQUEST_MEMORY,
                                                     .cards = 1,
                                                     .mib_per_card = 4000}),
                     FIT_LATER);
    ck_assert_str_eq(reason(n, memory(4000, 1)),
                     "needs 4000 MiB on one card; most free: 3024 of 9000 MiB on GPU4; "
                     "unhealthy: GPU1,GPU2; excluded by ConfigMap: GPU3; used outside "
                     "Kubernetes: 5976 MiB on GPU4");
    ledger_free(ledger);
}
END_TEST

START_TEST(unusable_node_has_a_reason)
{
    start();
    struct request r = memory(1, 1);
    struct lease lease = {
        .meta.name = SPAN("n1"), .holder = SPAN("n1"), .node = SPAN("n1")};
    ledger_lease_seen(ledger, &lease, 0);
    const struct ledger_node *n = ledger_node_find(ledger, SPAN("n1"));
    ck_assert_int_eq(select_fit(n, &r), FIT_LATER);
    ck_assert_str_eq(reason(n, r),
                     "the node's Scv object is missing, so its cards are unknown");
    lease.node = (struct span){0}; /* text of others is copied into JSON unescaped */
    lease.holder = SPAN("a\"\n\\b");
    lease.renew_time = SPAN("t1");
    ledger_lease_seen(ledger, &lease, 0);
    ck_assert_str_eq(reason(n, r),
                     "the node's Scv object is missing, so its cards are unknown; "
                     "Lease nvidia-gpu-scheduler-node-lease/n1 does not belong to "
                     "scv-agent (holder: a???b; last renewed: t1): delete it if another "
                     "system left it behind");
    struct scv damaged = object_scv_even(&arena, "n5", 1, 16276);
    damaged.damaged = true;
    ledger_scv_seen(ledger, &damaged, 0);
    ck_assert_str_eq(reason(ledger_node_find(ledger, SPAN("n5")), r),
                     "the node's Scv object is invalid; see the extender's log");
    set_mode("n2", "memory");
    n = ledger_node_find(ledger, SPAN("n2"));
    ck_assert_int_eq(select_fit(n, &r), FIT_NEVER);
    ck_assert_str_eq(reason(n, r),
                     "the node has no GPU memory (no Scv object, no capacity)");
    struct scv scv =
        object_scv(&arena, quoted(&arena, "{'metadata':{'name':'n3'},'status':{"
                                          "'cardList':[{'id':0,'totalMemory':9,"
                                          "'health':'Lost'}]}}"));
    ledger_scv_seen(ledger, &scv, 0);
    n = ledger_node_find(ledger, SPAN("n3"));
    ck_assert_str_eq(reason(n, r),
                     "needs 1 MiB on one card; no card is healthy; unhealthy: GPU0");
    ledger_free(ledger);
}
END_TEST

static struct ledger_pod *nominate_by(enum request_placement policy, const char *uid,
                                      int units, int priority, const char *to)
{
    struct pod pod = object_pod_mem(&arena, uid, units);
    pod.priority = priority;
    pod.nominated_node = span_of(to);
    struct request r = object_request(&arena, &pod, 1);
    r.placement = policy;
    return ledger_pod_add(ledger, &pod, &r, NULL);
}

static struct ledger_pod *nominate(const char *uid, int units, int priority,
                                   const char *to)
{
    return nominate_by(PLACE_BINPACK, uid, units, priority, to);
}

START_TEST(nominated_pods_of_equal_or_higher_priority_come_first)
{
    start();
    const struct ledger_node *n = NODE_WITH_FREE("n1", 10000, 5000);
    struct request r = memory(6000, 1);
    nominate("x", 5000, 5, "n1");
    /* binpack places it on the smaller card; the other one stays free */
    ck_assert_int_eq(fit_of_pod(n, &r, 5, SPAN("me")), FIT_YES);
    nominate("y", 5000, 5, "n1");
    ck_assert_int_eq(fit_of_pod(n, &r, 5, SPAN("me")), FIT_LATER);
    ck_assert_int_eq(fit_of_pod(n, &r, 6, SPAN("me")), FIT_YES);
    ck_assert_int_eq(fit_of_pod(n, &r, 5, SPAN("y")), FIT_YES);
    ck_assert_int_eq(select_fit(n, &r), FIT_YES);
    cleanup_buf struct buf b = {0};
    reason_add(&b, n, &r, FIT_YES);
    ck_assert_str_eq(
        b.p, "needs 6000 MiB on one card; free, but reserved for pods nominated to "
             "this node");
    ledger_free(ledger);
}
END_TEST

/* The emptiest card is the only one that the nominated pod can have. */
START_TEST(the_card_of_a_nominated_pod_is_the_last_choice)
{
    start();
    const struct ledger_node *n = NODE_WITH_FREE("n1", 5000, 10000);
    struct request r = memory(4000, 1);
    r.placement = PLACE_SPREAD;
    nominate("x", 8000, 5, "n1");
    ck_assert_uint_eq(bind_cards(n, &r, 5, SPAN("me")), CARD(0));
    ck_assert_uint_eq(bind_cards(n, &r, 6, SPAN("me")), CARD(1)); /* it comes first */
    r = memory(9000, 1); /* a bind is not refused for a nomination */
    ck_assert_uint_eq(bind_cards(n, &r, 5, SPAN("me")), CARD(1));
    ledger_free(ledger);
}
END_TEST

/* 10000 MiB are left on GPU0 beside the kept ones, so only GPU1 is left for the nominated
 * pod. Whichever of the two comes first by UID. */
START_TEST(kept_cards_count_once_beside_nominated_pods)
{
    struct request r = memory(8000, 1);
    r.placement = PLACE_SPREAD;
    for (int i = 0; i < 4; i++) {
        start();
        const struct ledger_node *n = NODE_WITH_FREE("n1", 16000, 12000);
        ledger_pod_keep(ledger, nominate("k", 6000, 5, "n1"), SPAN("n1"), 1);
        nominate_by(i & 1 ? PLACE_SPREAD : PLACE_BINPACK, i & 2 ? "a" : "z", 12000, 5,
                    "n1");
        ck_assert_uint_eq(bind_cards(n, &r, 5, SPAN("me")), CARD(0));
        ck_assert_int_eq(fit_of_pod(n, &r, 5, SPAN("me")), FIT_YES);
        ledger_free(ledger);
    }
}
END_TEST

START_TEST(kept_cards_that_are_reserved_count_once)
{
    start();
    const struct ledger_node *n = NODE_WITH_FREE("n1", 10000);
    struct request r = memory(4000, 1);
    ledger_pod_keep(ledger, nominate("k", 6000, 5, "n1"), SPAN("n1"), 1);
    struct ledger_share share = {.card = 0, .mib = 6000};
    ledger_reserve(ledger,
                   &(struct ledger_reservation){.uid = SPAN("k"),
                                                .ns = SPAN("default"),
                                                .name = SPAN("k"),
                                                .priority = 5,
                                                .shares = &share,
                                                .n_shares = 1,
                                                .until_ms = 1},
                   SPAN("n1"));
    ck_assert_uint_ne(bind_cards(n, &r, 5, SPAN("me")), 0);
    r = memory(4001, 1);
    ck_assert_uint_eq(bind_cards(n, &r, 5, SPAN("me")), 0);
    ledger_free(ledger);
}
END_TEST

/* The text about the request is written into a buffer of fixed size. */
START_TEST(largest_request_has_a_reason)
{
    start();
    const struct ledger_node *n = NODE_WITH_FREE("n1", 5000);
    struct request r = {.kind = REQUEST_MEMORY,
                        .cards = UINT32_MAX,
                        .units = INT64_MAX,
                        .mib_per_card = INT64_MAX};
    ck_assert_str_eq(reason(n, r), "needs 9223372036854775807 MiB on each of 4294967295 "
                                   "cards; the node has 1 card");
    ck_assert_str_eq(reason(n, whole(UINT32_MAX)),
                     "needs 4294967295 whole cards; the node has 1 card");
    char models[REQUEST_MAX_MODELS + 1] = "";
    memset(models, 'm', REQUEST_MAX_MODELS);
    r = (struct request){.kind = REQUEST_DEVICES,
                         .cards = UINT32_MAX,
                         .mib_per_card = INT64_MAX,
                         .models = span_of(models),
                         .clock_mhz = INT64_MAX};
    cleanup_free char *want = xasprintf(
        "needs 4294967295 cards through nvidia.com/gpu of at least 9223372036854775807 "
        "MiB, model %s, memory clock at least 9223372036854775807 MHz; the node has 1 x "
        "Tesla T4 (0 MHz)",
        models);
    ck_assert_str_eq(reason(n, r), want);
    ledger_free(ledger);
}
END_TEST

START_TEST(nominated_pod_that_does_not_fit_blocks_no_pod)
{
    start();
    const struct ledger_node *n = NODE_WITH_FREE("n1", 5000);
    struct request r = memory(5000, 1);
    nominate("big", 9000, 9, "n1");
    ck_assert_int_eq(fit_of_pod(n, &r, 0, SPAN("me")), FIT_YES);
    nominate("whole", 1, 9, "n1");
    ck_assert_int_eq(fit_of_pod(n, &r, 0, SPAN("me")), FIT_LATER);
    ledger_free(ledger);
}
END_TEST

/* Two T4 and a V100. `more`: further members of the Scv's status. */
static const struct ledger_node *mixed_node(const char *more)
{
    struct scv scv = object_scv(
        &arena,
        quoted(&arena,
               "{'metadata':{'name':'n1'},'status':{'cardList':["
               "{'id':0,'health':'Healthy','totalMemory':16000,'freeMemory':16000,"
               "'uuid':'u0','model':'Tesla T4','clock':5001},"
               "{'id':1,'health':'Healthy','totalMemory':32000,'freeMemory':32000,"
               "'uuid':'u1','model':'Tesla V100','clock':877},"
               "{'id':2,'health':'Healthy','totalMemory':15000,'freeMemory':15000,"
               "'uuid':'u2','model':'Tesla T4','clock':5001}]%s}}",
               more));
    ledger_scv_seen(ledger, &scv, 0);
    return ledger_node_find(ledger, SPAN("n1"));
}

static struct ledger_pod *add_pod(const char *uid, struct request r, int card,
                                  int64_t mib)
{
    struct pod pod = {.meta = {.uid = span_of(uid), .name = span_of(uid)}};
    struct ledger_share share = {.card = card, .mib = mib};
    struct ledger_pod *p = ledger_pod_add(ledger, &pod, &r, NULL);
    ledger_pod_place(ledger, p, SPAN("n1"), &share, card >= 0);
    return p;
}

static struct request of_model(struct request r, const char *models)
{
    r.models = span_of(models);
    return r;
}

START_TEST(card_of_another_model_does_not_fit)
{
    start();
    const struct ledger_node *n = mixed_node("");
    struct request t4 = of_model(memory(8000, 1), "tesla t4");
    ck_assert_uint_eq(chosen_cards(n, &t4), CARD(2)); /* binpack: the smaller one */
    t4 = of_model(memory(8000, 2), "tesla t4");
    ck_assert_uint_eq(chosen_cards(n, &t4), CARDS(0, 2));
    t4 = of_model(memory(20000, 1), "tesla t4");
    ck_assert_int_eq(select_fit(n, &t4), FIT_NEVER); /* the V100 would be large enough */
    ck_assert_str_eq(reason(n, t4), "needs 20000 MiB on one card, model tesla t4; the "
                                    "largest such card has 16000 MiB");
    add_pod("a", memory(10000, 1), 0, 10000);
    add_pod("b", memory(10000, 1), 2, 10000);
    t4 = of_model(memory(8000, 1), "tesla t4");
    ck_assert_int_eq(select_fit(n, &t4), FIT_LATER);
    ck_assert_str_eq(reason(n, t4), "needs 8000 MiB on one card, model tesla t4; most "
                                    "free: 6000 of 16000 MiB on GPU0");
    struct request any = of_model(memory(8000, 1), "Tesla T4, Tesla V100");
    ck_assert_int_eq(select_fit(n, &any), FIT_YES);
    ledger_free(ledger);
}
END_TEST

START_TEST(missing_model_never_fits)
{
    start();
    const struct ledger_node *n = mixed_node("");
    const struct request none[] = {of_model(memory(8000, 1), "A\"100\\\n"),
                                   of_model(whole(1), "A100"),
                                   of_model(whole(2), "Tesla V100")};
    static const char *const why[] = {
        "needs 8000 MiB on one card, model A?100??; the node has 2 x Tesla T4, 1 x Tesla "
        "V100",
        "needs 1 whole card, model A100; the node has 2 x Tesla T4, 1 x Tesla V100",
        "needs 2 whole cards, model Tesla V100; the node has 2 x Tesla T4, 1 x Tesla "
        "V100"};
    for (size_t i = 0; i < ARRAY_LEN(none); i++) {
        ck_assert_int_eq(select_fit(n, &none[i]), FIT_NEVER);
        ck_assert_str_eq(reason(n, none[i]), why[i]);
    }
    struct node node = object_node(
        &arena, quoted(&arena, "{'metadata':{'name':'n2'},'status':{'capacity':{"
                               "'" KEY_GPU_MEM "':'9999','" KEY_GPU_COUNT "':'1'}}}"));
    node.allocatable = node.capacity;
    ledger_node_seen(ledger, &node, 0);
    n = ledger_node_find(ledger, SPAN("n2"));
    ck_assert_int_eq(select_fit(n, &none[0]), FIT_LATER);
    ck_assert_str_eq(
        reason(n, none[1]),
        "needs 1 whole card, model A100; card models and clocks are unknown: "
        "the node has no Scv object");
    ledger_free(ledger);
}
END_TEST

START_TEST(memory_and_clock_apply_to_the_same_card)
{
    start();
    const struct ledger_node *n = mixed_node("");
    struct request r = memory(20000, 1); /* the V100 has the memory ... */
    r.clock_mhz = 5001;                  /* ... and the T4 the clock */
    ck_assert_int_eq(select_fit(n, &r), FIT_NEVER);
    ck_assert_str_eq(reason(n, r), "needs 20000 MiB on one card, memory clock at least "
                                   "5001 MHz; the largest such card has 16000 MiB");
    r.clock_mhz = 5002;
    ck_assert_str_eq(reason(n, r),
                     "needs 20000 MiB on one card, memory clock at least 5002 MHz; the "
                     "node has 2 x Tesla T4 (5001 MHz), 1 x Tesla V100 (877 MHz)");
    r.clock_mhz = 800;
    ck_assert_int_eq(select_fit(n, &r), FIT_YES);
    r.clock_exact = true;
    ck_assert_int_eq(select_fit(n, &r), FIT_NEVER);
    ck_assert_str_eq(reason(n, r),
                     "needs 20000 MiB on one card, memory clock 800 MHz; the "
                     "node has 2 x Tesla T4 (5001 MHz), 1 x Tesla V100 (877 "
                     "MHz)");
    ledger_free(ledger);
}
END_TEST

START_TEST(whole_cards_can_have_a_minimum_size)
{
    start();
    const struct ledger_node *n = mixed_node("");
    struct request r = whole(1);
    r.mib_per_card = 16001;
    ck_assert_uint_eq(chosen_cards(n, &r), CARD(1));
    r.cards = 2;
    ck_assert_int_eq(select_fit(n, &r), FIT_NEVER);
    ck_assert_str_eq(reason(n, r), "needs 2 whole cards of at least 16001 MiB; too few "
                                   "cards of that size; the largest has 32000 MiB");
    ledger_free(ledger);
}
END_TEST

#define HELD(pod, n, cards)                                                              \
    ",'podList':[{'namespace':'','name':'" pod "','container':'c','resource':"           \
    "'nvidia.com/gpu','units':" n ",'cards':[" cards "]}]"

static struct request devices(uint32_t n)
{
    return (struct request){.kind = REQUEST_DEVICES, .cards = n};
}

START_TEST(free_cards_of_nvidias_plugin_are_counted)
{
    start();
    struct request any = devices(99), two = of_model(devices(2), "Tesla T4");
    const struct ledger_node *n = mixed_node("");
    ck_assert_int_eq(select_fit(n, &any),
                     FIT_YES); /* without a model, the kubelet decides */
    ck_assert_int_eq(select_fit(n, &two), FIT_YES);
    ck_assert_uint_eq(chosen_cards(n, &two), 0);
    struct request three = of_model(devices(3), "Tesla T4");
    ck_assert_int_eq(select_fit(n, &three), FIT_NEVER);
    ck_assert_str_eq(reason(n, three),
                     "needs 3 cards through nvidia.com/gpu, model Tesla "
                     "T4; the node has 2 x Tesla T4, 1 x Tesla V100");
    /* A card with a promise is not free. */
    struct ledger_pod *p = add_pod("a", memory(1, 1), 0, 1);
    ck_assert_int_eq(select_fit(n, &two), FIT_LATER);
    ck_assert_str_eq(reason(n, two),
                     "needs 2 cards through nvidia.com/gpu, model Tesla T4; "
                     "free cards: 1 of 2; promised to pods: GPU0");
    ledger_pod_remove(ledger, p);
    /* A card that a container has through nvidia.com/gpu is not free either. */
    mixed_node(HELD("x", "1", "'u2'"));
    ck_assert_int_eq(select_fit(n, &two), FIT_LATER);
    ck_assert_str_eq(reason(n, two),
                     "needs 2 cards through nvidia.com/gpu, model Tesla T4; "
                     "free cards: 1 of 2; allocated through nvidia.com/gpu: GPU2");
    ck_assert_str_eq(reason(n, whole(3)), "needs 3 whole cards; free cards: 2 of 3; "
                                          "allocated through nvidia.com/gpu: GPU2");
    ledger_free(ledger);
}
END_TEST

START_TEST(claims_of_nvidias_plugin_count_before_the_pod_list_shows_them)
{
    start();
    struct request one = of_model(devices(1), "Tesla T4");
    const struct ledger_node *n = mixed_node("");
    add_pod("a", one, -1, 0);
    ck_assert_uint_eq(n->claimed, 1);
    ck_assert_int_eq(select_fit(n, &one), FIT_YES);
    struct ledger_pod *b = add_pod("b", devices(1), -1, 0); /* it may get a T4 as well */
    ck_assert_uint_eq(n->claimed, 2);
    ck_assert_int_eq(select_fit(n, &one), FIT_LATER);
    ck_assert_str_eq(reason(n, one),
                     "needs 1 card through nvidia.com/gpu, model Tesla T4; "
                     "free cards: 2 of 2; requested by pods whose cards are not "
                     "known yet: 2");
    /* The kubelet gave b the V100. */
    mixed_node(HELD("b", "1", "'u1'"));
    ck_assert_uint_eq(n->claimed, 1);
    ck_assert_int_eq(select_fit(n, &one), FIT_YES);
    /* The pod is deleted but still in the podList: the card stays allocated. */
    ledger_pod_remove(ledger, b);
    ck_assert_int_eq(n->cards[1].state, CARD_HELD);
    /* Pods claim all cards that are left, so none can be promised. */
    add_pod("c", devices(1), -1, 0);
    ck_assert_uint_eq(n->claimed, 2);
    struct request mem = memory(1, 1);
    ck_assert_int_eq(select_fit(n, &mem), FIT_LATER);
    ck_assert_str_eq(reason(n, mem), "needs 1 MiB on one card; no card is available; "
                                     "allocated through nvidia.com/gpu: GPU0,GPU1,GPU2");
    ledger_free(ledger);
}
END_TEST

START_TEST(nominated_pod_of_nvidias_plugin_comes_first)
{
    start();
    const struct ledger_node *n = mixed_node("");
    struct request one = of_model(devices(1), "Tesla V100");
    struct pod pod = {
        .meta = {.uid = SPAN("first")}, .priority = 5, .nominated_node = SPAN("n1")};
    ledger_pod_add(ledger, &pod, &one, NULL);
    ck_assert_int_eq(select_fit(n, &one), FIT_YES);
    ck_assert_int_eq(fit_of_pod(n, &one, 5, SPAN("me")), FIT_LATER);
    ck_assert_int_eq(fit_of_pod(n, &one, 6, SPAN("me")), FIT_YES);
    struct request any = devices(9);
    ck_assert_int_eq(fit_of_pod(n, &any, 0, SPAN("me")), FIT_YES);
    ledger_free(ledger);
}
END_TEST

START_TEST(models_are_unknown_without_an_scv)
{
    start();
    set_mode("n2", "card");
    const struct ledger_node *n = ledger_node_find(ledger, SPAN("n2"));
    struct request one = of_model(devices(1), "Tesla V100");
    ck_assert_int_eq(select_fit(n, &one), FIT_LATER);
    ck_assert_str_eq(reason(n, one), "needs 1 card through nvidia.com/gpu, model Tesla "
                                     "V100; card models and clocks are unknown: "
                                     "the node has no Scv object");
    /* The mode label does not concern nvidia.com/gpu. */
    mixed_node("");
    set_mode("n1", "memory");
    n = ledger_node_find(ledger, SPAN("n1"));
    ck_assert_int_eq(select_fit(n, &one), FIT_YES);
    ledger_free(ledger);
}
END_TEST

UNIT_MAIN("select", card_of_another_model_does_not_fit, missing_model_never_fits,
          memory_and_clock_apply_to_the_same_card, whole_cards_can_have_a_minimum_size,
          free_cards_of_nvidias_plugin_are_counted,
          claims_of_nvidias_plugin_count_before_the_pod_list_shows_them,
          nominated_pod_of_nvidias_plugin_comes_first, models_are_unknown_without_an_scv,
          filter_rejects_nodes_without_enough_memory_on_one_card,
          binpack_and_spread_choose_opposite_cards, ties_go_to_the_lowest_index,
          several_cards_are_distinct_and_sorted, whole_cards_have_no_promises,
          too_large_requests_never_fit, mode_label_restricts_a_node,
          reason_names_excluded_cards, unusable_node_has_a_reason,
          nominated_pods_of_equal_or_higher_priority_come_first,
          nominated_pod_that_does_not_fit_blocks_no_pod,
          the_card_of_a_nominated_pod_is_the_last_choice,
          kept_cards_count_once_beside_nominated_pods,
          kept_cards_that_are_reserved_count_once, largest_request_has_a_reason)
