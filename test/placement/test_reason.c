/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "placement/fixture.h"

/* The list of what stands between a pending pod and a node. */

static struct obstacle list[OBSTACLES_MAX];

/* "CARD:OBSTACLE NEEDED/THERE", in one line. */
static void assert_list(const struct ledger_node *node, const struct reason_ask *ask,
                        const char *expected)
{
    cleanup_buf struct buf out = {0};
    size_t n = reason_list(node, ask, list);
    buf_adds(&out, "");
    for (size_t i = 0; i < n; i++) {
        buf_adds(&out, i ? ", " : "");
        if (list[i].card)
            buf_printf(&out, "GPU%d:", list[i].card->index);
        buf_printf(&out, "%s %lld/%lld", obstacle_words[list[i].kind].word,
                   (long long)list[i].needed, (long long)list[i].there);
    }
    ck_assert_str_eq(out.p, expected);
}

static void assert_sentence(const struct ledger_node *node, const struct reason_ask *ask,
                            const char *expected)
{
    cleanup_buf struct buf out = {0};
    buf_adds(&out, "");
    reason_write(&out, node, ask->pod.request, list, reason_list(node, ask, list));
    ck_assert_str_eq(out.p, expected);
}

TEST(amounts_of_the_node_and_its_cards)
{
    const struct ledger_node *n =
        node_with_free_of("n", 16000, (const int[]){4000, 16000, 7000, -1});
    struct request r = memory(8000, 2);
    struct reason_ask ask = {.pod = {&r, 0, SPAN("me"), NULL}};
    assert_list(n, &ask, "cards 2/1, GPU0:memory 8000/4000, GPU2:memory 8000/7000");
    r = memory(6000, 1); /* it fits: only of cards */
    assert_list(n, &ask, "GPU0:memory 6000/4000");
    assert_sentence(n, &ask, "");
    r = memory(20000, 1);
    assert_list(n, &ask,
                "cards 1/0, GPU0:size 20000/16000, GPU1:size 20000/16000, "
                "GPU2:size 20000/16000");
    r = whole(2);
    assert_list(n, &ask, "cards 2/1, GPU0:promised 16000/4000, GPU2:promised 16000/7000");
    r = of_model(memory(1, 1), "V100");
    assert_list(n, &ask, "cards 1/0, GPU0:model 1/0, GPU1:model 1/0, GPU2:model 1/0");
    r = memory(1, 1);
    r.min_link = LINK_NV; /* no Scv has links */
    assert_list(n, &ask, "links-unknown 1/0");
    r = memory(6000, 1);
    nominated_pod("n", "first", memory(16000, 1), 5);
    nominated_pod("n", "second", memory(7000, 1), 5);
    assert_list(n, &ask, "nominated 1/0, GPU0:memory 6000/4000");
}

/* What the pod's own terms say of the node is no other kind of obstacle. */
TEST(terms_of_the_pod_come_first)
{
    struct node node = object_node(
        &arena,
        quoted(&arena, "{'metadata':{'name':'n'},'spec':{'unschedulable':true}}"));
    const struct ledger_node *n = node_with_free_of("n", 16000, (const int[]){4000, -1});
    ledger_node_seen(ledger, &node, 0);
    struct request r = memory(8000, 1);
    struct reason_ask ask = {.pod = {&r, 0, SPAN("me"), NULL}, .terms = OBSTACLE_TAINTS};
    assert_list(n, &ask, "taints 1/0, cordoned 1/0, cards 1/0, GPU0:memory 8000/4000");
    assert_sentence(n, &ask,
                    "the pod does not tolerate the node's taints; cordoned: "
                    "kube-scheduler offers it only to pods that tolerate the taint; "
                    "needs 8000 MiB on one card; most free: 4000 of 16000 MiB on GPU0");
    ask.tolerates = true;
    ask.terms = OBSTACLE_SELECTOR;
    r = memory(1, 1);
    assert_list(n, &ask, "node-affinity 1/0");
    ask.terms = OBSTACLE_NONE;
    assert_list(n, &ask, "");
}

TEST(the_rest_of_the_pod)
{
    struct node node = object_node(
        &arena, quoted(&arena, "{'metadata':{'name':'n'},'status':{'allocatable':{"
                               "'cpu':'1500m','memory':'1Gi','pods':'1'}}}"));
    const struct ledger_node *n = node_with_free_of("n", 16000, (const int[]){4000, -1});
    ledger_node_seen(ledger, &node, 0);
    struct request r = memory(1, 1);
    const struct resources wants = {2000, INT64_C(1) << 31, 1};
    struct reason_ask ask = {.pod = {&r, 0, SPAN("me"), NULL}};
    assert_list(n, &ask, "");
    ask.requests = &wants;
    assert_list(n, &ask,
                "not-offered 1/0, cpu 2000/1500, node-memory 2147483648/1073741824, "
                "pod-slots 2/1");
    assert_sentence(n, &ask,
                    "lacks aliyun.com/gpu-mem: no device plugin offers it on this node; "
                    "lacks CPU: the pod requests 2, free are 1.5; lacks node memory: the "
                    "pod requests 2048 MiB, free are 1024 MiB; no pod slot is free: 1 of "
                    "1 are taken");
}

/* A card has an obstacle just if select gives nothing of it. */
TEST(cards_without_an_obstacle_are_those_of_select)
{
    enum { ROUNDS = 20000, CARDS = 8, MIB = 100 };
    struct card_kind kinds[] = {
        {.model = SPAN("T4"), .total_mib = MIB},
        {.model = SPAN("V100"), .total_mib = MIB},
        {.model = SPAN("A100"), .profile = SPAN("1g.5gb"), .total_mib = MIB}};
    struct ledger_node node = *even_node("n", CARDS, MIB);
    struct card cards[CARDS];
    struct rng rng;
    uint64_t seed = rng_entropy(), taken = 0;
    rng_init(&rng, seed);
    node.cards = cards;
    node.rows.valid = false;
    for (int round = 0; round < ROUNDS; round++) {
        struct request r = {.kind = REQUEST_MEMORY + rng_below(&rng, 3),
                            .cards = 1 + (uint32_t)rng_below(&rng, 3),
                            .models = rng_below(&rng, 3) ? SPAN("") : SPAN("T4,1g.5gb")};
        if (r.kind == REQUEST_MEMORY && !rng_below(&rng, 3)) {
            r.slots = 1 + (uint32_t)rng_below(&rng, 3);
            r.percent =
                (uint32_t)rng_below(&rng, 2) * (1 + (uint32_t)rng_below(&rng, 99));
        }
        r.mib_per_card = r.percent ? 0 : (int64_t)rng_below(&rng, MIB + 10);
        r.compute_percent = r.kind == REQUEST_MEMORY ? (uint8_t)rng_below(&rng, 100) : 0;
        for (int i = 0; i < CARDS; i++) {
            struct card *c = &cards[i];
            *c = (struct card){.index = i,
                               .state = rng_below(&rng, 3) ? CARD_AVAILABLE
                                                           : rng_below(&rng, CARD_STATES),
                               .total_mib = rng_below(&rng, 9) ? MIB : 0,
                               .promised_mib = (int64_t)rng_below(&rng, MIB),
                               .slots_left = (int32_t)rng_below(&rng, 5) - 1,
                               .compute_promised = (uint16_t)rng_below(&rng, 120),
                               .kind = &kinds[rng_below(&rng, ARRAY_LEN(kinds))]};
            c->promised_mib *= (int64_t)rng_below(&rng, 2);
            c->pods = c->promised_mib > 0 || !rng_below(&rng, 9); /* 0 MiB, too */
            c->whole = c->pods && !rng_below(&rng, 4);
            c->withheld_mib = rng_below(&rng, 3) ? 0 : (int64_t)rng_below(&rng, MIB);
            c->reserved_mib = rng_below(&rng, 3) ? 0 : (int64_t)rng_below(&rng, MIB);
            c->free_mib = card_left_mib(c);
        }
        struct select_view view;
        select_view_cards(&view, &node, cards, 0);
        uint64_t mask = select_mask(&view, &r), without = ledger_all_cards(&node);
        const struct reason_ask ask = {.pod = {&r, 0, SPAN("me"), NULL}};
        for (size_t i = 0, n = reason_list(&node, &ask, list); i < n; i++)
            if (list[i].card) {
                without &= ~CARD(list[i].card - cards);
                ck_assert_int_gt(list[i].needed, list[i].there);
            }
        ck_assert_msg(mask == without, "seed %llu, round %d: select has %llx, not %llx",
                      (unsigned long long)seed, round, (unsigned long long)mask,
                      (unsigned long long)without);
        taken += mask != 0;
    }
    ck_assert_uint_gt(taken, ROUNDS / 100);
}

UNIT_MAIN_AROUND(begin, end)
