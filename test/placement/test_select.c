/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/reason.h"

#include "placement/fixture.h"

#define NODE_WITH_FREE(name, ...)                                                        \
    node_with_free_of(name, 16276, (const int[]){__VA_ARGS__, -1})

static void set_mode(const char *name, const char *mode)
{
    struct node node = object_node(
        &arena,
        quoted(&arena, "{'metadata':{'name':'%s','labels':{'" KEY_MODE "':'%s'}}}", name,
               mode));
    ledger_node_seen(ledger, &node, 0);
}

TEST(mode_label_restricts_a_node)
{
    const struct ledger_node *n = NODE_WITH_FREE("n1", 16276);
    struct request mem = memory(1, 1), card = whole(1);
    set_mode("n1", "memory");
    expect_fit(n, mem, FIT_YES);
    expect_reason(n, card, FIT_NEVER, "node label gpushare/mode=memory: no whole cards");
    set_mode("n1", "card");
    expect_fit(n, mem, FIT_NEVER);
    expect_fit(n, card, FIT_YES);
    set_mode("n1", "both");
    expect_reason(n, mem, FIT_LATER,
                  "node label gpushare/mode is neither memory nor card");
}

TEST(reason_counts_cards_with_enough_memory)
{
    even_node("n1", 3, 9000);
    bound_pod("n1", "a", memory(6000, 1), 0);
    bound_pod("n1", "b", memory(7000, 1), 2);
    expect_reason(node_of("n1"), memory(4000, 2), FIT_LATER,
                  "needs 4000 MiB on each of 2 cards; cards with enough free memory: 1; "
                  "most free: 9000 of 9000 MiB on GPU1");
}

TEST(unusable_node_has_a_reason)
{
    struct request r = memory(1, 1);
    struct lease lease = {
        .meta.name = SPAN("n1"), .holder = SPAN("n1"), .node = SPAN("n1")};
    ledger_lease_seen(ledger, &lease, 0);
    const struct ledger_node *n = node_of("n1");
    expect_reason(n, r, FIT_LATER,
                  "the node's Scv object is missing, so its cards are unknown");
    lease.node = (struct span){0}; /* text of others is copied into JSON unescaped */
    lease.holder = SPAN("a\"\n\\b");
    lease.renew_time = SPAN("t1");
    ledger_lease_seen(ledger, &lease, 0);
    expect_reason(n, r, FIT_LATER,
                  "the node's Scv object is missing, so its cards are unknown; "
                  "Lease nvidia-gpu-scheduler-node-lease/n1 does not belong to "
                  "scv-agent (holder: a???b; last renewed: t1): delete it if another "
                  "system left it behind");
    struct scv damaged = object_scv_even(&arena, "n5", 1, 16276);
    damaged.damaged = true;
    ledger_scv_seen(ledger, &damaged, 0);
    expect_reason(node_of("n5"), r, FIT_LATER,
                  "the node's Scv object is invalid; see the extender's log");
    set_mode("n2", "memory");
    n = node_of("n2");
    expect_reason(n, r, FIT_NEVER,
                  "the node has no GPU memory (no Scv object, no capacity)");
    struct scv scv =
        object_scv(&arena, quoted(&arena, "{'metadata':{'name':'n3'},'status':{"
                                          "'cardList':[{'id':0,'totalMemory':9,"
                                          "'health':'Lost'}]}}"));
    ledger_scv_seen(ledger, &scv, 0);
    n = node_of("n3");
    expect_reason(n, r, FIT_LATER,
                  "needs 1 MiB on one card; no card is healthy; unhealthy: GPU0");
}

/* The emptiest card is the only one that the nominated pod can have. */
TEST(the_card_of_a_nominated_pod_is_the_last_choice)
{
    const struct ledger_node *n = NODE_WITH_FREE("n1", 5000, 10000);
    struct request r = memory(4000, 1);
    r.placement = PLACE_SPREAD;
    nominated_pod("n1", "x", memory(8000, 1), 5);
    expect_bind(n, &r, 5, "me", CARD(0));
    expect_bind(n, &r, 6, "me", CARD(0)); /* it comes first, but takes nothing in vain */
    r = memory(9000, 1);                  /* neither filter nor bind gives it away */
    expect_fit_of_pod(n, &r, 5, "me", FIT_LATER);
    expect_bind(n, &r, 5, "me", 0);
    expect_bind(n, &r, 6, "me", CARD(1));
}

static void terminate(const char *uid)
{
    struct pod pod = object_pod_mem(&arena, uid, 1);
    struct ledger_pod *p = ledger_pod_find(ledger, span_of(uid));
    struct request r = *p->request;
    pod.node = p->node->name;
    pod.meta.deleting = true;
    ledger_pod_add(ledger, &pod, &r, NULL);
}

static struct request with_core(struct request r, uint32_t percent)
{
    r.compute_percent = percent;
    return r;
}

/* The pods of `leave` terminate, and leave one after the other. Before each of them, and after the
 * last, `asks` gets the cards `gets`; 0: neither filter nor bind gives it any. */
struct nomination_case {
    const char *name;
    int cards;
    struct {
        const char *uid;
        struct request request;
        int on, priority;
    } pods[5];
    struct {
        const char *uid;
        struct request request;
        int priority;
    } nominated[3];
    const char *leave;
    struct request asks;
    int priority;
    uint64_t gets[5];
};

static void check_nomination(const struct nomination_case *c, const char *leave)
{
    restart();
    even_node("n1", c->cards, 16);
    for (size_t i = 0; i < ARRAY_LEN(c->pods) && c->pods[i].uid; i++)
        bound_pod("n1", c->pods[i].uid, c->pods[i].request, c->pods[i].on)->priority =
            c->pods[i].priority;
    for (size_t i = 0; i < ARRAY_LEN(c->nominated) && c->nominated[i].uid; i++)
        nominated_pod("n1", c->nominated[i].uid, c->nominated[i].request,
                      c->nominated[i].priority);
    for (const char *p = c->leave; *p; p++)
        terminate((const char[]){*p, 0});
    for (size_t i = 0;; i++) {
        const struct select_pod me = {&c->asks, c->priority, SPAN("me"), NULL};
        uint64_t chosen;
        bool fits = select_fit_pod(node_of("n1"), &me) == FIT_YES;
        select_bind(node_of("n1"), &me, &chosen);
        ck_assert_msg(chosen == c->gets[i] && fits == (chosen != 0),
                      "%s, %zu left in the order %s: fits %d, gets %lx", c->name, i,
                      leave, fits, (unsigned long)chosen);
        if (!leave[i])
            return;
        ledger_pod_remove(ledger, ledger_pod_find(ledger, (struct span){leave + i, 1}));
    }
}

TEST(a_nominated_pod_gets_what_terminating_pods_leave)
{
    const struct nomination_case cases[] = {
        {"whole cards",
         2,
         {{"a", whole(1), 0, 0}, {"b", whole(1), 1, 0}},
         {{"hi", whole(2), 100}},
         "ab",
         memory(4, 1),
         0,
         {0}},
        {"memory",
         3,
         {{"a", memory(8, 1), 0, 0},
          {"b", memory(8, 1), 0, 0},
          {"w", memory(10, 1), 1, 0},
          {"x", memory(10, 1), 2, 100}},
         {{"hi", memory(16, 1), 100}},
         "ab",
         memory(7, 1),
         100,
         {0}},
        {"another card is free",
         3,
         {{"a", memory(8, 1), 0, 0},
          {"b", memory(8, 1), 0, 0},
          {"x", memory(10, 1), 1, 0},
          {"y", memory(9, 1), 2, 0}},
         {{"hi", memory(16, 1), 100}},
         "ab",
         memory(4, 1),
         100,
         {CARD(1), CARD(1), CARD(1)}},
        {"beside it on the card",
         1,
         {{"a", memory(8, 1), 0, 0}, {"b", memory(6, 1), 0, 0}},
         {{"hi", memory(10, 1), 1}},
         "ab",
         memory(6, 1),
         0,
         {0, CARD(0), CARD(0)}},
        {"higher priority",
         2,
         {{"a", whole(1), 0, 0}, {"b", whole(1), 1, 0}},
         {{"hi", whole(2), 100}},
         "a",
         memory(4, 1),
         101,
         {0, CARD(0)}},
        {"a pod that stays",
         2,
         {{"a", whole(1), 0, 0}, {"b", whole(1), 1, 0}},
         {{"hi", whole(2), 100}},
         "a",
         memory(4, 1),
         0,
         {0, CARD(0)}},
        {"stale",
         2,
         {{"b", whole(1), 1, 0}},
         {{"hi", whole(2), 100}},
         "",
         memory(4, 1),
         0,
         {CARD(0)}},
        {"several",
         2,
         {{"a", whole(1), 0, 0}, {"b", whole(1), 1, 0}},
         {{"h1", whole(1), 100}, {"h2", memory(9, 1), 50}},
         "ab",
         memory(8, 1),
         0,
         {0}},
        {"several, one too many",
         2,
         {{"a", whole(1), 0, 0}, {"b", memory(8, 1), 1, 0}},
         {{"h1", whole(1), 100}, {"h2", whole(1), 50}},
         "a",
         memory(8, 1),
         0,
         {CARD(1), CARD(1)}},
        {"compute",
         1,
         {{"a", with_core(memory(4, 1), 60), 0, 0},
          {"b", with_core(memory(4, 1), 40), 0, 0}},
         {{"hi", with_core(memory(4, 1), 80), 100}},
         "ab",
         with_core(memory(2, 1), 30),
         0,
         {0}},
        {"compute beside it",
         1,
         {{"a", with_core(memory(4, 1), 60), 0, 0},
          {"b", with_core(memory(4, 1), 40), 0, 0}},
         {{"hi", with_core(memory(4, 1), 80), 100}},
         "ab",
         with_core(memory(2, 1), 20),
         0,
         {0, CARD(0), CARD(0)}},
        {"memory of a card whose compute is nominated",
         1,
         {{"a", with_core(memory(4, 1), 90), 0, 0}},
         {{"hi", with_core(memory(4, 1), 90), 100}},
         "a",
         memory(8, 1),
         0,
         {CARD(0), CARD(0)}},
    };
    array_items(c, cases) {
        check_nomination(c, c->leave);
        if (strcmp(c->leave, "ab") == 0)
            check_nomination(c, "ba");
    }
}

TEST(a_reserved_pod_and_an_equal_nominated_one_both_fit)
{
    struct request one = whole(1);
    struct ledger_share share = {.card = 0};
    const struct ledger_node *n = even_node("n1", 2, 16);
    bound_pod("n1", "v", one, 1);
    terminate("v");
    ledger_reserve(ledger,
                   &(struct ledger_reservation){.uid = SPAN("me"),
                                                .ns = SPAN("default"),
                                                .name = SPAN("me"),
                                                .request = &one,
                                                .shares = &share,
                                                .n_shares = 1,
                                                .until_ms = 1},
                   SPAN("n1"));
    nominated_pod("n1", "hi", one, 0);
    expect_bind(n, &one, 0, "me", CARD(0));
    nominated_pod("n1", "h2", one, 0);
    expect_bind(n, &one, 0, "me", 0);
    expect_bind(n, &one, 0, "lo", 0);
}

/* A reservation of lower priority does not hold back the nominated pod. */
TEST(a_nominated_pod_gets_cards_that_are_reserved_for_weaker_ones)
{
    struct request one = whole(1), both = whole(2);
    struct ledger_share share = {.card = 0};
    const struct ledger_node *n = even_node("n1", 2, 16);
    ledger_reserve(ledger,
                   &(struct ledger_reservation){.uid = SPAN("weak"),
                                                .ns = SPAN("default"),
                                                .name = SPAN("weak"),
                                                .request = &one,
                                                .shares = &share,
                                                .n_shares = 1,
                                                .until_ms = 1},
                   SPAN("n1"));
    nominated_pod("n1", "hi", both, 1);
    expect_bind(n, &one, 0, "me", 0);
    expect_bind(n, &one, 0, "weak", 0);
    expect_bind(n, &both, 1, "hi", CARDS(0, 1));
}

/* Each would wait for the other. */
TEST(one_of_two_equal_nominated_pods_precedes)
{
    struct request r = memory(10, 1);
    const struct ledger_node *n = even_node("n1", 1, 16);
    nominated_pod("n1", "a", r, 1);
    nominated_pod("n1", "b", r, 1);
    expect_bind(n, &r, 1, "a", CARD(0));
    expect_bind(n, &r, 1, "b", 0);
    expect_bind(n, &r, 1, "me", 0);
}

TEST(kept_cards_that_are_reserved_count_once)
{
    const struct ledger_node *n = NODE_WITH_FREE("n1", 10000);
    struct request r = memory(4000, 1);
    ledger_pod_keep(ledger, nominated_pod("n1", "k", memory(6000, 1), 5), SPAN("n1"), 1);
    struct ledger_share share = {.card = 0, .mib = 6000};
    ledger_reserve(ledger,
                   &(struct ledger_reservation){.uid = SPAN("k"),
                                                .ns = SPAN("default"),
                                                .name = SPAN("k"),
                                                .priority = 5,
                                                .request = &r,
                                                .shares = &share,
                                                .n_shares = 1,
                                                .until_ms = 1},
                   SPAN("n1"));
    ck_assert_uint_ne(bind_cards(n, &r, 5, SPAN("me")), 0);
    r = memory(4001, 1);
    expect_bind(n, &r, 5, "me", 0);
}

/* The text about the request is written into a buffer of fixed size. */
TEST(largest_request_has_a_reason)
{
    const struct ledger_node *n = NODE_WITH_FREE("n1", 5000);
    struct request r = {.kind = REQUEST_MEMORY,
                        .cards = UINT32_MAX,
                        .units = INT64_MAX,
                        .mib_per_card = INT64_MAX};
    expect_reason(n, r, FIT_NEVER,
                  "needs 9223372036854775807 MiB on each of 4294967295 "
                  "cards; the node has 1 card");
    expect_reason(n, whole(UINT32_MAX), FIT_NEVER,
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
    expect_reason(n, r, FIT_NEVER, want);
}

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
    return node_of("n1");
}

TEST(memory_and_clock_apply_to_the_same_card)
{
    const struct ledger_node *n = mixed_node("");
    struct request r = memory(20000, 1); /* the V100 has the memory ... */
    r.clock_mhz = 5001;                  /* ... and the T4 the clock */
    expect_reason(n, r, FIT_NEVER,
                  "needs 20000 MiB on one card, memory clock at least "
                  "5001 MHz; the largest such card has 16000 MiB");
    r.clock_mhz = 5002;
    expect_reason(n, r, FIT_NEVER,
                  "needs 20000 MiB on one card, memory clock at least 5002 MHz; the "
                  "node has 2 x Tesla T4 (5001 MHz), 1 x Tesla V100 (877 MHz)");
    r.clock_mhz = 800;
    expect_fit(n, r, FIT_YES);
    r.clock_exact = true;
    expect_reason(n, r, FIT_NEVER,
                  "needs 20000 MiB on one card, memory clock 800 MHz; the "
                  "node has 2 x Tesla T4 (5001 MHz), 1 x Tesla V100 (877 "
                  "MHz)");
}

TEST(whole_cards_can_have_a_minimum_size)
{
    const struct ledger_node *n = mixed_node("");
    struct request r = whole(1);
    r.mib_per_card = 16001;
    expect_choice(n, &r, CARD(1));
    r.cards = 2;
    expect_reason(n, r, FIT_NEVER,
                  "needs 2 whole cards of at least 16001 MiB; too few "
                  "cards of that size; the largest has 32000 MiB");
}

#define HELD(pod, n, cards)                                                              \
    ",'podList':[{'namespace':'default','name':'" pod "','container':'c','resource':"    \
    "'nvidia.com/gpu','units':" n ",'cards':[" cards "]}]"

TEST(claims_of_nvidias_plugin_count_before_the_pod_list_shows_them)
{
    struct request one = of_model(devices(1), "Tesla T4");
    const struct ledger_node *n = mixed_node("");
    bound_pod("n1", "a", one, -1);
    ck_assert_uint_eq(n->claimed, 1);
    expect_fit(n, one, FIT_YES);
    struct ledger_pod *b =
        bound_pod("n1", "b", devices(1), -1); /* it may get a T4 as well */
    ck_assert_uint_eq(n->claimed, 2);
    expect_reason(n, one, FIT_LATER,
                  "needs 1 card through nvidia.com/gpu, model Tesla T4; "
                  "free cards: 2 of 2; requested by pods whose cards are not "
                  "known yet: 2");
    /* The kubelet gave b the V100. */
    mixed_node(HELD("pod-b", "1", "'u1'"));
    ck_assert_uint_eq(n->claimed, 1);
    expect_fit(n, one, FIT_YES);
    /* The pod is deleted but still in the podList: the card stays allocated. */
    ledger_pod_remove(ledger, b);
    ck_assert_int_eq(n->cards[1].state, CARD_HELD);
    /* Pods claim all cards that are left, so none can be promised. */
    bound_pod("n1", "c", devices(1), -1);
    ck_assert_uint_eq(n->claimed, 2);
    struct request mem = memory(1, 1);
    expect_reason(n, mem, FIT_LATER,
                  "needs 1 MiB on one card; no card is available; "
                  "allocated through nvidia.com/gpu: GPU0,GPU1,GPU2");
}

TEST(nominated_pod_of_nvidias_plugin_comes_first)
{
    const struct ledger_node *n = mixed_node("");
    struct request one = of_model(devices(1), "Tesla V100");
    struct pod pod = {
        .meta = {.uid = SPAN("first")}, .priority = 5, .nominated_node = SPAN("n1")};
    ledger_pod_add(ledger, &pod, &one, NULL);
    expect_fit(n, one, FIT_YES);
    expect_fit_of_pod(n, &one, 5, "me", FIT_LATER);
    expect_fit_of_pod(n, &one, 6, "me", FIT_YES);
    struct request any = devices(9);
    expect_fit_of_pod(n, &any, 0, "me", FIT_YES);
}

TEST(models_are_unknown_without_an_scv)
{
    set_mode("n2", "card");
    const struct ledger_node *n = node_of("n2");
    struct request one = of_model(devices(1), "Tesla V100");
    expect_reason(n, one, FIT_LATER,
                  "needs 1 card through nvidia.com/gpu, model Tesla "
                  "V100; card models and clocks are unknown: "
                  "the node has no Scv object");
    /* The mode label does not concern nvidia.com/gpu. */
    mixed_node("");
    set_mode("n1", "memory");
    n = node_of("n1");
    expect_fit(n, one, FIT_YES);
}

/* On one node, too, cards that are reserved for pods of lower priority are the last choice. */
TEST(cards_that_are_reserved_for_weaker_pods_are_taken_last)
{
    const struct ledger_node *n = even_node("n1", 3, 16);
    const struct {
        struct request asks;
        int priority;
        uint64_t gets;
        bool takes;
    } cases[] = {
        {memory(10, 1), 1, CARD(1), false},
        {memory(6, 1), 1, CARD(0), false},
        {whole(1), 1, CARD(1), false},
        {whole(2), 1, CARDS(1, 2), false},
        {whole(3), 1, 7, true},
        {whole(3), 0, 0, false},
        {memory(10, 3), 1, 7, true},
        {whole(1), 0, CARD(1), false},
    };
    const struct request weak = memory(10, 1);
    struct ledger_share share = {.card = 0, .mib = 10};
    ledger_reserve(ledger,
                   &(struct ledger_reservation){.uid = SPAN("weak"),
                                                .ns = SPAN("default"),
                                                .name = SPAN("weak"),
                                                .request = &weak,
                                                .shares = &share,
                                                .n_shares = 1,
                                                .until_ms = 1},
                   SPAN("n1"));
    array_items(c, cases) {
        const struct select_pod me = {&c->asks, c->priority, SPAN("me"), NULL};
        expect_bind(n, &c->asks, c->priority, "me", c->gets);
        if (c->gets)
            ck_assert_int_eq(select_displaces(n, &me), c->takes);
    }
}

/* At most as many cards can be free as are without a promise, less the claims. */
TEST(claims_bound_what_whole_cards_and_shares_get)
{
    const struct {
        const char *name;
        int cards, claims, promised; /* the first cards have 4 of 16 promised */
        struct request asks;
        uint64_t gets;
    } cases[] = {
        {"one claim of two", 2, 1, 0, whole(1), CARD(0)},
        {"all but the claim", 2, 1, 0, whole(2), 0},
        {"no claim", 2, 0, 0, whole(2), CARDS(0, 1)},
        {"three", 3, 1, 0, whole(2), CARDS(0, 1)},
        {"three of three", 3, 1, 0, whole(3), 0},
        {"a share", 2, 1, 0, memory(16, 1), CARD(0)},
        {"the last card for shares", 2, 1, 1, memory(16, 1), 0},
        {"beside a share", 2, 1, 1, memory(4, 1), CARD(0)},
        {"the last card whole", 2, 1, 1, whole(1), 0},
        {"shares of two cards", 2, 1, 1, memory(4, 2), 0},
        {"shares of two of three", 3, 1, 1, memory(4, 2), CARDS(0, 2)},
        {"all claimed", 2, 2, 0, memory(1, 1), 0},
        {"all claimed, one shared", 2, 2, 1, memory(1, 1), 0},
    };
    array_items(c, cases) {
        restart();
        const struct ledger_node *n = even_node("n1", c->cards, 16);
        for (int i = 0; i < c->promised; i++)
            bound_pod("n1", quoted(&arena, "p%d", i).p, memory(4, 1), i);
        for (int i = 0; i < c->claims; i++)
            bound_pod("n1", quoted(&arena, "c%d", i).p, devices(1), -1);
        ck_assert_msg(bind_cards(n, &c->asks, 0, SPAN("me")) == c->gets, "%s: %lx",
                      c->name, (unsigned long)bind_cards(n, &c->asks, 0, SPAN("me")));
        ck_assert_msg((select_fit(n, &c->asks) == FIT_YES) == (c->gets != 0), "%s",
                      c->name);
    }
}

/* A claim holds the last card without a promise, and leaves a reservation to its pod and to those
 * of higher priority. */
TEST(a_claim_leaves_what_is_reserved)
{
    const struct ledger_node *n = even_node("n1", 2, 16);
    const struct request one = whole(1), two = whole(2);
    struct ledger_share share = {.card = 0, .mib = 16};
    bound_pod("n1", "claims", devices(1), -1);
    ledger_reserve(ledger,
                   &(struct ledger_reservation){.uid = SPAN("mine"),
                                                .ns = SPAN("default"),
                                                .name = SPAN("mine"),
                                                .request = &one,
                                                .shares = &share,
                                                .n_shares = 1,
                                                .until_ms = 1},
                   SPAN("n1"));
    expect_bind(n, &one, 0, "mine", CARD(0));
    expect_bind(n, &one, 0, "me", 0);
    expect_bind(n, &one, 1, "me", CARD(0));
    expect_bind(n, &two, 1, "me", 0);
    bound_pod("n1", "claims-too", devices(1), -1);
    expect_bind(n, &one, 0, "mine", 0);
}

UNIT_MAIN_AROUND(begin, end)
