/* SPDX-License-Identifier: Apache-2.0 */
/* Requests on nodes with instances of cards in MIG mode. */
#include "placement/fixture.h"

#define FULL(id)                                                                         \
    "{'id':" id ",'uuid':'GPU-" id "','health':'Healthy','model':'A100',"                \
    "'totalMemory':40000,'freeMemory':40000}"
#define INSTANCE(id, profile)                                                            \
    "{'id':" id ",'uuid':'MIG-" id "','health':'Healthy','model':'A100 MIG " profile     \
    "','parentUUID':'GPU-1','migProfile':'" profile                                      \
    "','totalMemory':5000,'freeMemory':5000}"

static const struct ledger_node *node_with(const char *cards)
{
    const struct scv scv =
        object_scv(&arena, quoted(&arena,
                                  "{'metadata':{'name':'n1'},'status':{'updateTime':"
                                  "'2026-11-21T09:00:00Z','cardList':[%s]}}",
                                  cards));
    ledger_scv_seen(ledger, &scv, 0);
    return node_of("n1");
}

/* Two full cards, three instances of 1g.5gb, one of 2g.10gb. */
static const struct ledger_node *mixed(void)
{
    return node_with(FULL("0") "," FULL("2") "," INSTANCE("72", "1g.5gb") "," INSTANCE(
        "73", "1g.5gb") "," INSTANCE("74", "1g.5gb") "," INSTANCE("75", "2g.10gb"));
}

TEST(memory_on_one_card_is_on_any)
{
    const struct ledger_node *n = mixed();
    struct request r = memory(5000, 1);
    expect_choice(n, &r, CARD(2)); /* binpack */
    bound_pod("n1", "a", r, 72);
    expect_choice(n, &r, CARD(3));
    r = memory(5001, 1);
    expect_choice(n, &r, CARD(0));
}

/* A pod of nvidia.com/gpu whose card is not known yet can have the only full card, but no instance. */
TEST(an_unknown_card_of_the_kubelet_is_a_full_one)
{
    const struct ledger_node *n = node_with(FULL("0") "," INSTANCE("72", "1g.5gb"));
    bound_pod("n1", "a",
              (struct request){.kind = REQUEST_DEVICES, .cards = 1, .devices = 1}, -1);
    ck_assert_uint_eq(n->claimed, 1);
    ck_assert_int_eq(n->cards[0].state, CARD_HELD);
}

/* Planted: instance_is_a_whole_card. */
TEST(whole_cards_without_a_model_are_full_cards)
{
    const struct ledger_node *n = mixed();
    struct request r = whole(1);
    ck_assert_uint_eq(n->free_cards, 2);
    expect_choice(n, &r, CARD(0));
    r = whole(2);
    expect_choice(n, &r, CARDS(0, 1));
    expect_reason(n, whole(3), FIT_NEVER,
                  "needs 3 whole cards; the node has 2 x A100, 3 x A100 MIG 1g.5gb, 1 x "
                  "A100 MIG 2g.10gb; instances of cards in MIG mode are taken by their "
                  "profile (nvidia-gpu-scheduler/gpu.model)");
    bound_pod("n1", "a", whole(1), 0);
    bound_pod("n1", "b", whole(1), 2);
    expect_reason(n, whole(1), FIT_LATER,
                  "needs 1 whole card; free cards: 0 of 2; promised as whole cards: "
                  "GPU0,GPU2");
}

TEST(instances_are_whole_cards_by_name)
{
    const struct ledger_node *n = mixed();
    struct request r = of_model(whole(1), "1g.5gb");
    expect_choice(n, &r, CARD(2));
    r = of_model(whole(1), "a100 mig 2g.10gb");
    expect_choice(n, &r, CARD(5));
    r = of_model(whole(3), "1g.5gb");
    expect_choice(n, &r, CARDS(2, 3) | CARD(4));
    expect_fit(n, of_model(whole(4), "1g.5gb"), FIT_NEVER);
    expect_fit(n, of_model(whole(1), "3g.20gb"), FIT_NEVER);
    r = of_model(whole(2), "A100");
    expect_choice(n, &r, CARDS(0, 1));
    bound_pod("n1", "a", of_model(whole(3), "1g.5gb"), 72);
    expect_fit(n, of_model(whole(1), "1g.5gb"), FIT_LATER);
}

TEST(several_cards_are_of_one_kind)
{
    const struct ledger_node *n = mixed();
    struct request r = memory(1000, 2);
    expect_choice(n, &r, CARDS(0, 1));
    expect_fit(n, memory(1000, 3), FIT_NEVER);
    r = of_model(memory(1000, 2), "2g.10gb, 1g.5gb");
    expect_fit(n, r, FIT_NEVER);
    r = of_model(memory(1000, 2), "A100, 1g.5gb");
    expect_choice(n, &r, CARDS(0, 1));
    r = of_model(memory(1000, 2), "1g.5gb");
    expect_choice(n, &r, CARDS(2, 3));
}

TEST(a_node_of_instances_has_no_whole_card)
{
    const struct ledger_node *n = node_with(INSTANCE("64", "1g.5gb"));
    ck_assert_uint_eq(n->free_cards, 0);
    expect_reason(n, whole(1), FIT_NEVER,
                  "needs 1 whole card; the node has 1 x A100 MIG 1g.5gb; instances of "
                  "cards in MIG mode are taken by their profile "
                  "(nvidia-gpu-scheduler/gpu.model)");
    expect_fit(n, memory(5000, 1), FIT_YES);
    struct ledger_pod *nominated = nominated_pod("n1", "w", whole(1), 9);
    struct request r = memory(5000, 1);
    expect_fit_of_pod(n, &r, 0, "p", FIT_YES); /* w cannot get it */
    ck_assert_ptr_nonnull(nominated);
}

/* An Scv of a hostile node: a parent without a profile, a profile without a parent. */
TEST(half_an_instance_is_one)
{
    const struct ledger_node *n = node_with(
        "{'id':0,'uuid':'a','health':'Healthy','model':'A','parentUUID':'GPU-1',"
        "'totalMemory':9,'freeMemory':9},{'id':1,'uuid':'b','health':'Healthy',"
        "'model':'A','migProfile':'1g.5gb','totalMemory':9,'freeMemory':9},"
        "{'id':2,'uuid':'c','health':'Healthy','model':'A','totalMemory':9,"
        "'freeMemory':9}");
    struct request r = whole(1);
    expect_choice(n, &r, CARD(2));
    expect_fit(n, whole(2), FIT_NEVER);
}

UNIT_MAIN_AROUND(begin, end)
