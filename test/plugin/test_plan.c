/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/plan.h"

#include "domain/objects.h"

static struct arena arena;

/* A pod of node n1 with these annotations, init containers and containers. */
static struct plan *planned(const char *annotations, const char *inits, const char *apps)
{
    struct span json = quoted(&arena,
                              "{'metadata':{'name':'p','namespace':'ns','uid':'u1',"
                              "'annotations':{%s}},'spec':{'nodeName':'n1',"
                              "'initContainers':[%s],'containers':[%s]},"
                              "'status':{'phase':'Pending'}}",
                              annotations, inits, apps);
    struct pod pod = object_pod(&arena, json);
    return plan_new(&pod, 1024);
}

#define MEM(name, n)                                                                     \
    "{'name':'" name "','resources':{'limits':{'" KEY_GPU_MEM "':'" #n "'}}}"
#define CARDS(name, n)                                                                   \
    "{'name':'" name "','resources':{'limits':{'" KEY_GPU_COUNT "':'" #n "'}}}"
#define SIDECAR(name, n)                                                                 \
    "{'name':'" name "','restartPolicy':'Always','resources':{'limits':{'" KEY_GPU_MEM   \
    "':'" #n "'}}}"
#define IDX(i) "'" KEY_MEM_IDX "':'" i "'"

/* "name:resource amount=card*units,... ..." */
static const char *text(struct plan *plan)
{
    cleanup_buf struct buf b = {0};
    for (size_t i = 0; i < plan->n_containers; i++) {
        const struct plan_container *c = &plan->containers[i];
        buf_printf(&b, "%s%.*s:%s%lld", i ? " " : "", SPAN_ARG(c->name),
                   c->resource == IDS_MEM ? "mem" : "cards", (long long)c->amount);
        for (size_t k = 0; k < c->n_shares; k++)
            buf_printf(&b, "%c%d*%lld", k ? ',' : '=', c->shares[k].index,
                       (long long)c->shares[k].units);
    }
    if (plan->why_not.n)
        buf_printf(&b, " [%.*s]", SPAN_ARG(plan->why_not));
    plan_free(plan);
    return arena_copy(&arena, buf_span(&b)).p;
}

START_TEST(containers_stand_in_the_order_of_their_admission)
{
    const char *is = text(
        planned(IDX("2"), MEM("i", 4) "," SIDECAR("s", 1), MEM("a", 3) "," MEM("b", 2)));
    ck_assert_str_eq(is, "i:mem4=2*4 s:mem1=2*1 a:mem3=2*3 b:mem2=2*2");
}
END_TEST

START_TEST(the_pod_is_known)
{
    struct plan *plan =
        planned(IDX("2") ",'" KEY_MEM_ASSIGNED "':'true','" KEY_MIRROR
                         "':'x','" KEY_ALLOCATION "':'{}','" KEY_CARD_UUID "':'GPU-c'",
                "", MEM("a", 3));
    ck_assert_span_eq(plan->uid, "u1");
    ck_assert_span_eq(plan->ns, "ns");
    ck_assert_span_eq(plan->name, "p");
    ck_assert(plan->assigned && plan->mirror && !plan->over && !plan->started);
    ck_assert_int_eq(plan->promise, PLAN_PROMISED);
    ck_assert_int_eq(plan->request.units, 3);
    ck_assert_span_eq(plan->containers[0].shares[0].uuid, "GPU-c");
    plan_free(plan);
    plan_free(NULL);
}
END_TEST

START_TEST(each_container_gets_what_the_allocation_says)
{
    ck_assert_str_eq(
        text(planned(IDX("0,3") ",'" KEY_ALLOCATION
                                "':'{\\'0\\':{\\'3\\':1},\\'1\\':{\\'0\\':1}}'",
                     "", CARDS("a", 1) "," CARDS("b", 1))),
        "a:cards1=3*1 b:cards1=0*1");
    ck_assert_str_eq(text(planned("'" KEY_GPU_COUNT
                                  "':'2'," IDX("0,3") ",'" KEY_ALLOCATION
                                                      "':'{\\'0\\':{\\'0\\':2,\\'3\\':2},"
                                                      "\\'1\\':{\\'0\\':1,\\'3\\':1}}'",
                                  "", MEM("a", 4) "," MEM("b", 2))),
                     "a:mem4=0*2,3*2 b:mem2=0*1,3*1");
}
END_TEST

START_TEST(a_sidecar_has_its_index_behind_the_containers)
{
    ck_assert_str_eq(
        text(planned(IDX("1") ",'" KEY_ALLOCATION
                              "':'{\\'0\\':{\\'1\\':3},\\'1\\':{\\'1\\':2}}'",
                     SIDECAR("s", 2), MEM("a", 3))),
        "s:mem2=1*2 a:mem3=1*3");
}
END_TEST

START_TEST(an_allocation_that_is_not_of_all_is_not_gone_by)
{
    /* Of half of the containers: the cards in turn, none of them twice. */
    ck_assert_str_eq(
        text(planned(IDX("0,3") ",'" KEY_ALLOCATION "':'{\\'0\\':{\\'3\\':1}}'", "",
                     CARDS("a", 1) "," CARDS("b", 1))),
        "a:cards1=3*1 b:cards1=0*1");
    /* Of less than the limit. */
    ck_assert_str_eq(
        text(planned(IDX("1") ",'" KEY_ALLOCATION "':'{\\'0\\':{\\'1\\':3}}'", "",
                     MEM("a", 4))),
        "a:mem4=1*4");
}
END_TEST

START_TEST(whole_cards_are_taken_in_turn)
{
    ck_assert_str_eq(text(planned(IDX("1,4,6"), "", CARDS("a", 2) "," CARDS("b", 1))),
                     "a:cards2=1*1,4*1 b:cards1=6*1");
    /* An init container has them for itself. */
    ck_assert_str_eq(
        text(planned(IDX("1,4"), CARDS("i", 2), CARDS("a", 1) "," CARDS("b", 1))),
        "i:cards2=1*1,4*1 a:cards1=1*1 b:cards1=4*1");
}
END_TEST

START_TEST(what_does_not_go_together_is_said)
{
    ck_assert_str_eq(text(planned(IDX("1"), "", CARDS("a", 2))),
                     "a:cards2 [1 cards are promised, which is less than its containers "
                     "ask for]");
    ck_assert_str_eq(text(planned(IDX("1,2"), "", MEM("a", 3))),
                     "a:mem3 [2 cards are promised, and the 3 units of container a "
                     "cannot be split over them]");
    ck_assert_str_eq(
        text(planned(IDX("1"), "", MEM("a", 3) "," CARDS("b", 1))),
        "a:mem3 b:cards1 [limits of both aliyun.com/gpu-mem and aliyun.com/gpu-count in "
        "one pod]");
}
END_TEST

START_TEST(nothing_promised_nothing_shared)
{
    struct plan *plan = planned("", "", MEM("a", 3));
    ck_assert_int_eq(plan->promise, PLAN_NONE);
    ck_assert_str_eq(text(plan), "a:mem3");
    ck_assert_str_eq(text(planned(IDX("1"), "", MEM("a", 0) ",{'name':'b'}")), "");
}
END_TEST

START_TEST(cards_can_be_given)
{
    struct plan *plan = planned("", MEM("i", 2), MEM("a", 3));
    struct plan_share card = {SPAN("GPU-x"), 5, 3};
    plan_give(plan, &card, 1);
    ck_assert_int_eq(plan->promise, PLAN_PROMISED);
    ck_assert_span_eq(plan->containers[1].shares[0].uuid, "GPU-x");
    ck_assert_str_eq(text(plan), "i:mem2=5*2 a:mem3=5*3");
}
END_TEST

UNIT_MAIN("plan", containers_stand_in_the_order_of_their_admission, the_pod_is_known,
          each_container_gets_what_the_allocation_says,
          a_sidecar_has_its_index_behind_the_containers,
          an_allocation_that_is_not_of_all_is_not_gone_by, whole_cards_are_taken_in_turn,
          what_does_not_go_together_is_said, nothing_promised_nothing_shared,
          cards_can_be_given)
