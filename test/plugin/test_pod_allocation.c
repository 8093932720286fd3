/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/pod_allocation.h"

#include "domain/objects.h"

static struct arena arena;

/* A pod of node n1 with these annotations, init containers and containers. */
static struct pod_allocation *planned(const char *annotations, const char *inits,
                                      const char *apps)
{
    struct span json = quoted(&arena,
                              "{'metadata':{'name':'p','namespace':'ns','uid':'u1',"
                              "'annotations':{%s}},'spec':{'nodeName':'n1',"
                              "'initContainers':[%s],'containers':[%s]},"
                              "'status':{'phase':'Pending'}}",
                              annotations, inits, apps);
    struct pod pod = object_pod(&arena, json);
    return pod_allocation_new(&pod, 1024);
}

#define MEM(name, n)                                                                     \
    "{'name':'" name "','resources':{'limits':{'" KEY_GPU_MEM "':'" #n "'}}}"
#define CARDS(name, n)                                                                   \
    "{'name':'" name "','resources':{'limits':{'" KEY_GPU_COUNT "':'" #n "'}}}"
#define SIDECAR(name, n)                                                                 \
    "{'name':'" name "','restartPolicy':'Always','resources':{'limits':{'" KEY_GPU_MEM   \
    "':'" #n "'}}}"
#define IDX(i)   "'" KEY_MEM_IDX "':'" i "'"
#define COUNT(n) "'" KEY_GPU_COUNT "':'" #n "',"
/* The allocation annotation. */
#define PARTS(text) ",'" KEY_ALLOCATION "':'{" text "}'"

/* "name:resource amount=card*units,... ..." */
static const char *text(struct pod_allocation *alloc)
{
    cleanup_buf struct buf b = {0};
    for (size_t i = 0; i < alloc->n_containers; i++) {
        const struct pod_allocation_container *c = &alloc->containers[i];
        buf_printf(&b, "%s%.*s:%s%lld", i ? " " : "", SPAN_ARG(c->name),
                   c->resource == IDS_MEM ? "mem" : "cards", (long long)c->amount);
        for (size_t k = 0; k < c->n_shares; k++)
            buf_printf(&b, "%c%d*%lld", k ? ',' : '=', c->shares[k].card,
                       (long long)c->shares[k].units);
    }
    if (alloc->why_not.n)
        buf_printf(&b, " [%.*s]", SPAN_ARG(alloc->why_not));
    pod_allocation_free(alloc);
    return arena_copy(&arena, buf_span(&b)).p;
}

static const struct {
    const char *annotations, *inits, *apps, *text;
} cases[] = {
    /* Containers are in the order of admission. */
    {IDX("2"), MEM("i", 4) "," SIDECAR("s", 1), MEM("a", 3) "," MEM("b", 2),
     "i:mem4=2*4 s:mem1=2*1 a:mem3=2*3 b:mem2=2*2"},
    /* Each gets its annotated share. A sidecar is indexed after the app containers. */
    {IDX("0,3") PARTS("\\'0\\':{\\'3\\':1},\\'1\\':{\\'0\\':1}"), "",
     CARDS("a", 1) "," CARDS("b", 1), "a:cards1=3*1 b:cards1=0*1"},
    {COUNT(2) IDX("0,3") PARTS("\\'0\\':{\\'0\\':2,\\'3\\':2},"
                               "\\'1\\':{\\'0\\':1,\\'3\\':1}"),
     "", MEM("a", 4) "," MEM("b", 2), "a:mem4=0*2,3*2 b:mem2=0*1,3*1"},
    {IDX("1") PARTS("\\'0\\':{\\'1\\':3},\\'1\\':{\\'1\\':2}"), SIDECAR("s", 2),
     MEM("a", 3), "s:mem2=1*2 a:mem3=1*3"},
    /* An annotation that covers one of two containers is ignored: the cards are shared out,
     * none twice. So is one that covers less than the limit. */
    {IDX("0,3") PARTS("\\'0\\':{\\'3\\':1}"), "", CARDS("a", 1) "," CARDS("b", 1),
     "a:cards1=3*1 b:cards1=0*1"},
    {IDX("1") PARTS("\\'0\\':{\\'1\\':3}"), "", MEM("a", 4), "a:mem4=1*4"},
    /* Whole cards are shared out in order. An init container runs alone and gets all, and the
     * containers after it can reuse any of them. */
    {IDX("1,4,6"), "", CARDS("a", 2) "," CARDS("b", 1), "a:cards2=1*1,4*1 b:cards1=6*1"},
    {IDX("1,4"), CARDS("i", 2), CARDS("a", 1) "," CARDS("b", 1),
     "i:cards2=1*1,4*1 a:cards1=1*1,4*1 b:cards1=1*1,4*1"},
    /* Contradictions are reported. */
    {IDX("1"), "", CARDS("a", 2),
     "a:cards2 [the promise has 1 cards, fewer than the containers request]"},
    {COUNT(3) IDX("1,2"), "", MEM("a", 3),
     "a:mem3 [the promise has 2 cards, and the 3 units of container a are not divisible "
     "by "
     "it]"},
    {IDX("1"), "", MEM("a", 3) "," CARDS("b", 1),
     "a:mem3 b:cards1 [limits of both aliyun.com/gpu-mem and aliyun.com/gpu-count in one "
     "pod]"},
    /* Annotations can be forged; limits cannot change. */
    {IDX("1,2"), "", MEM("a", 4),
     "a:mem4 [the annotations promise 2 cards, and the pod requests 1]"},
    {IDX("1") PARTS("\\'0\\':{\\'3\\':4}"), "", MEM("a", 4),
     "a:mem4 [the annotations promise 2 cards, and the pod requests 1]"},
    {IDX("0,1,2"), "", CARDS("a", 2),
     "a:cards2 [the annotations promise 3 cards, and the pod requests 2]"},
    {IDX("1") PARTS("\\'0\\':{\\'1\\':999999}"), "", MEM("a", 1),
     "a:mem1 [the annotation scheduler.framework.gpushare.allocation promises 999999 "
     "units, and the limits request 1]"},
    {IDX("1") PARTS("\\'0\\':{\\'1\\':3},\\'1\\':{\\'1\\':1}"), "",
     MEM("a", 3) ",{'name':'b'}", /* units for a container without a limit */
     "a:mem3 [the annotation scheduler.framework.gpushare.allocation promises 4 units, "
     "and "
     "the limits request 3]"},
    /* The ledger counts parts as annotated. A part that no container has would be divided
     * evenly, and one card would get more than it counts. With as many cards as requested,
     * the ledger counts the even part of each at least. */
    {COUNT(3) IDX("0,1") PARTS("\\'7\\':{\\'0\\':1,\\'1\\':5}"), "", MEM("a", 6),
     "a:mem6 [the annotation scheduler.framework.gpushare.allocation does not match the "
     "limits of the containers]"},
    {COUNT(2) IDX("0,1") PARTS("\\'7\\':{\\'0\\':1,\\'1\\':5}"), "", MEM("a", 6),
     "a:mem6=0*3,1*3"},
    /* The number of cards was a label, which was removed after the bind: an exact allocation
     * stays valid. An init container would get half of its limit on each card, and more than
     * the annotation has on one of them. */
    {IDX("0,3") PARTS("\\'0\\':{\\'0\\':2,\\'3\\':2},\\'1\\':{\\'0\\':1,\\'3\\':1}"), "",
     MEM("a", 4) "," MEM("b", 2), "a:mem4=0*2,3*2 b:mem2=0*1,3*1"},
    {IDX("0,3") PARTS("\\'0\\':{\\'0\\':1,\\'3\\':3}"), MEM("i", 4), MEM("a", 4),
     "i:mem4 a:mem4 [the annotations promise 2 cards, and the pod requests 1]"},
    /* An unpromised pod has no shares. */
    {"", "", MEM("a", 3), "a:mem3"},
    {IDX("1"), "", MEM("a", 0) ",{'name':'b'}", ""},
};

START_TEST(shares_of_containers)
{
    ck_assert_str_eq(
        text(planned(cases[_i].annotations, cases[_i].inits, cases[_i].apps)),
        cases[_i].text);
}

START_TEST(the_pod_is_identified)
{
    struct pod_allocation *alloc =
        planned(IDX("2") ",'" KEY_MEM_ASSIGNED "':'true','" KEY_MIRROR
                         "':'x','" KEY_ALLOCATION "':'{}','" KEY_CARD_UUID "':'GPU-c'",
                "", MEM("a", 3));
    ck_assert_span_eq(alloc->uid, "u1");
    ck_assert_span_eq(alloc->ns, "ns");
    ck_assert_span_eq(alloc->name, "p");
    ck_assert(alloc->assigned && alloc->mirror && !alloc->terminal && !alloc->started);
    ck_assert_int_eq(alloc->promise, POD_ALLOCATION_PROMISED);
    ck_assert_int_eq(alloc->request.units, 3);
    ck_assert_span_eq(alloc->containers[0].shares[0].uuid, "GPU-c");
    pod_allocation_free(alloc);
    pod_allocation_free(NULL);
}

START_TEST(a_rejected_promise_still_names_its_cards)
{
    struct pod_allocation *alloc = planned(IDX("1,2"), "", MEM("a", 4));
    ck_assert_int_eq(alloc->promise, POD_ALLOCATION_INVALID);
    ck_assert_uint_eq(alloc->n_cards, 2);
    pod_allocation_free(alloc);
}

START_TEST(a_pod_that_requests_nothing_has_no_cards)
{
    struct pod_allocation *alloc = planned(
        IDX("1") ",'" KEY_ALLOCATION "':'{\\'0\\':{\\'1\\':16}}'", "", "{'name':'a'}");
    ck_assert_int_eq(alloc->promise, POD_ALLOCATION_UNPROMISED);
    ck_assert_uint_eq(alloc->n_cards, 0);
    pod_allocation_free(alloc);
    alloc = planned(IDX("1") ",'" KEY_PLACEMENT "':'none such'", "", "{'name':'a'}");
    ck_assert_uint_eq(alloc->n_cards, 0);
    pod_allocation_free(alloc);
}

START_TEST(cards_can_be_assigned)
{
    struct pod_allocation *alloc = planned("", MEM("i", 2), MEM("a", 3));
    ck_assert_int_eq(alloc->promise, POD_ALLOCATION_UNPROMISED);
    const struct promise_share card = {.uuid = SPAN("GPU-x"), .card = 5, .units = 3};
    pod_allocation_assign(alloc, &card, 1);
    ck_assert_int_eq(alloc->promise, POD_ALLOCATION_PROMISED);
    ck_assert_span_eq(alloc->containers[1].shares[0].uuid, "GPU-x");
    ck_assert_str_eq(text(alloc), "i:mem2=5*2 a:mem3=5*3");
}

int main(void)
{
    const struct unit_loop tests[] = {{shares_of_containers, (int)ARRAY_LEN(cases)},
                                      {the_pod_is_identified, 1},
                                      {a_rejected_promise_still_names_its_cards, 1},
                                      {a_pod_that_requests_nothing_has_no_cards, 1},
                                      {cards_can_be_assigned, 1}};
    return unit_run_loops("pod_allocation", tests, ARRAY_LEN(tests), 60);
}
