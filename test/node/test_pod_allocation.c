/* SPDX-License-Identifier: Apache-2.0 */
#include "node/pod_allocation.h"

#include "node/rig.h"

/* Described by add_word. */
static struct pod_allocation *planned(const char *words)
{
    return pod_in_words(SPAN("p"), SPAN("u1"), span_of(words));
}

/* "name:resource amount=card*units,... ..." */
static const char *text(struct pod_allocation *alloc)
{
    cleanup_buf struct buf b = {0};
    for (size_t i = 0; i < alloc->n_containers; i++) {
        const struct pod_allocation_container *c = &alloc->containers[i];
        buf_printf(&b, "%s%.*s:%s%lld", i ? " " : "", SPAN_ARG(c->name),
                   resource_words[c->resource], (long long)c->amount);
        for (size_t k = 0; k < c->n_shares; k++)
            buf_printf(&b, "%c%d*%lld", k ? ',' : '=', c->shares[k].card,
                       (long long)c->shares[k].units);
    }
    if (alloc->why_not.n)
        buf_printf(&b, " [%.*s]", SPAN_ARG(alloc->why_not));
    pod_allocation_free(alloc);
    return arena_copy(&rig.arena, buf_span(&b)).p;
}

#define PROMISES "[the annotation scheduler.framework.gpushare.allocation "

#define OR_RECORD ", or gpushare/card-memory does not say how much memory of each]"
#define NO_RECORD "[the annotations promise 1 cards, and the pod has slots on 1" OR_RECORD

static const char *const cases[][2] = {
    /* Containers are in the order of admission. */
    {"index=2 i:init:mem4 s:side:mem1 a:mem3 b:mem2",
     "i:mem4=2*4 s:mem1=2*1 a:mem3=2*3 b:mem2=2*2"},
    /* Each gets its annotated share. A sidecar is indexed after the app containers. */
    {"index=0,3 parts={\\'0\\':{\\'3\\':1},\\'1\\':{\\'0\\':1}} a:cards1 b:cards1",
     "a:cards1=3*1 b:cards1=0*1"},
    {"count=2 index=0,3 "
     "parts={\\'0\\':{\\'0\\':2,\\'3\\':2},\\'1\\':{\\'0\\':1,\\'3\\':1}} a:mem4 b:mem2",
     "a:mem4=0*2,3*2 b:mem2=0*1,3*1"},
    {"index=1 parts={\\'0\\':{\\'1\\':3},\\'1\\':{\\'1\\':2}} s:side:mem2 a:mem3",
     "s:mem2=1*2 a:mem3=1*3"},
    /* An annotation that covers one of two containers is ignored: the cards are shared out,
     * none twice. So is one that covers less than the limit. */
    {"index=0,3 parts={\\'0\\':{\\'3\\':1}} a:cards1 b:cards1",
     "a:cards1=3*1 b:cards1=0*1"},
    {"index=1 parts={\\'0\\':{\\'1\\':3}} a:mem4", "a:mem4=1*4"},
    /* Whole cards are shared out in order. An init container runs alone and gets all, and the
     * containers after it can reuse any of them. */
    {"index=1,4,6 a:cards2 b:cards1", "a:cards2=1*1,4*1 b:cards1=6*1"},
    {"index=1,4 i:init:cards2 a:cards1 b:cards1",
     "i:cards2=1*1,4*1 a:cards1=1*1,4*1 b:cards1=1*1,4*1"},
    /* Contradictions are reported. */
    {"index=1 a:cards2",
     "a:cards2 [the promise has 1 cards, fewer than the containers request]"},
    {"count=3 index=1,2 a:mem3", "a:mem3 [the promise has 2 cards, and the 3 units of "
                                 "container a are not divisible by it]"},
    {"index=1 unit=1024 a:mem3", "a:mem3=1*3"},
    {"index=1 unit=1 a:mem3", "a:mem3 [the promise is in units of 1 MiB, and the device "
                              "plugin's unit is 1024 MiB (--memory-unit)]"},
    {"index=1 a:mem3 b:cards1", "a:mem3 b:cards1 [limits of both aliyun.com/gpu-mem and "
                                "aliyun.com/gpu-count in one pod]"},
    /* Annotations can be forged; limits cannot change. */
    {"index=1,2 a:mem4",
     "a:mem4 [the annotations promise 2 cards, and the pod requests 1]"},
    {"index=1 parts={\\'0\\':{\\'3\\':4}} a:mem4",
     "a:mem4 [the annotations promise 2 cards, and the pod requests 1]"},
    {"index=0,1,2 a:cards2",
     "a:cards2 [the annotations promise 3 cards, and the pod requests 2]"},
    {"index=1 parts={\\'0\\':{\\'1\\':999999}} a:mem1",
     "a:mem1 " PROMISES "promises 999999 units, and the limits request 1]"},
    /* Units for a container without a limit. */
    {"index=1 parts={\\'0\\':{\\'1\\':3},\\'1\\':{\\'1\\':1}} a:mem3 b:none",
     "a:mem3 " PROMISES "promises 4 units, and the limits request 3]"},
    /* The ledger counts parts as annotated. A part that no container has would be divided
     * evenly, and one card would get more than it counts. With as many cards as requested,
     * the ledger counts the even part of each at least. */
    {"count=3 index=0,1 parts={\\'7\\':{\\'0\\':1,\\'1\\':5}} a:mem6",
     "a:mem6 " PROMISES "does not match the limits of the containers]"},
    {"count=2 index=0,1 parts={\\'7\\':{\\'0\\':1,\\'1\\':5}} a:mem6", "a:mem6=0*3,1*3"},
    /* The number of cards was a label, which was removed after the bind: an exact allocation
     * stays valid. An init container would get half of its limit on each card, and more than
     * the annotation has on one of them. */
    {"index=0,3 parts={\\'0\\':{\\'0\\':2,\\'3\\':2},\\'1\\':{\\'0\\':1,\\'3\\':1}} "
     "a:mem4 b:mem2",
     "a:mem4=0*2,3*2 b:mem2=0*1,3*1"},
    {"index=0,3 parts={\\'0\\':{\\'0\\':1,\\'3\\':3}} i:init:mem4 a:mem4",
     "i:mem4 a:mem4 [the annotations promise 2 cards, and the pod requests 1]"},
    /* Slots: the record of the bind counts, in MiB, and not the annotation of today. Each
     * container has the same part of each card, also one of an init container. */
    {"index=1 memory=6Gi record=6144+u1 a:slots1", "a:slots1=1*6144"},
    {"index=1 memory=6Gi unit=1 record=2048+u1 a:slots1", "a:slots1=1*2048"},
    {"index=0,2 memory=50% record=8001+u1 i:init:slots2 a:slots2 b:slots2",
     "i:slots2=0*4000,2*4000 a:slots2=0*4000,2*4000 b:slots2=0*4000,2*4000"},
    {"index=0,2 memory=6Gi record=6144+u1 "
     "parts={\\'0\\':{\\'0\\':6144,\\'2\\':6144}} a:slots2",
     "a:slots2=0*6144,2*6144"},
    /* One of the two was edited since the bind. */
    {"index=0,2 memory=6Gi record=7000+u1 "
     "parts={\\'0\\':{\\'0\\':6144,\\'2\\':6144}} a:slots2",
     "a:slots2 [the annotations scheduler.framework.gpushare.allocation "
     "and gpushare/card-memory differ in the memory of a card]"},
    {"index=1 memory=6Gi a:slots1", "a:slots1 " NO_RECORD},
    {"index=1 memory=6Gi record=6144+u2 a:slots1", "a:slots1 " NO_RECORD},
    {"index=1 memory=6Gi record=6144+u1 a:slots2",
     "a:slots2 [the annotations promise 1 "
     "cards, and the pod has slots on 2" OR_RECORD},
    {"index=1,2 memory=6Gi record=6144+u1 a:slots1",
     "a:slots1 [the annotations promise 2 cards, and the pod has slots on 1" OR_RECORD},
    {"index=1 record=6144+u1 a:slots1",
     "a:slots1 [limit aliyun.com/gpu-share without annotation gpushare/memory]"},
    {"memory=6Gi a:slots1", "a:slots1"},
    /* An unpromised pod has no shares. */
    {"a:mem3", "a:mem3"},
    {"index=1 a:mem0 b:none", ""},
};

TEST(compute_has_the_name_that_the_cluster_gives_it)
{
    static const struct {
        const char *values;
        int64_t percent; /* of a container that asks for 30 in HAMi's own words */
    } values[] = {{NULL, 30}, {"resourceCores=example.com/cores", 100}};
    array_items(c, values) {
        struct dialect hami = dialect_hami;
        ck_assert_int_eq(dialect_configure(&hami, span_of(c->values), NULL), 0);
        rig.dialect = &hami;
        struct pod_allocation *alloc =
            planned("index=0 uuid=GPU-0 record=2000+u1 "
                    "parts={\\'0\\':{\\'0\\':2000}} a:cores30:gpus1");
        rig.dialect = NULL;
        ck_assert_int_eq(alloc->promise, POD_ALLOCATION_PROMISED);
        ck_assert_int_eq(alloc->containers[0].compute_percent, c->percent);
        pod_allocation_free(alloc);
    }
}

TEST(shares_of_containers)
{
    array_indices(i, cases)
        ck_assert_str_eq(text(planned(cases[i][0])), cases[i][1]);
}

TEST(the_pod_is_identified)
{
    struct pod_allocation *alloc =
        planned("index=2 assigned=true mirror=x parts={} uuid=GPU-c a:mem3");
    ck_assert_span_eq(alloc->uid, "u1");
    ck_assert_span_eq(alloc->ns, "default");
    ck_assert_span_eq(alloc->name, "p");
    ck_assert(alloc->assigned && alloc->mirror && !alloc->terminal && !alloc->started);
    ck_assert_int_eq(alloc->promise, POD_ALLOCATION_PROMISED);
    ck_assert_int_eq(alloc->request.units, 3);
    ck_assert_span_eq(alloc->containers[0].shares[0].uuid, "GPU-c");
    pod_allocation_free(alloc);
    pod_allocation_free(NULL);
}

/* A rejected promise still names its cards. A pod that requests nothing has none. */
TEST(cards_of_a_pod_without_a_valid_promise)
{
    static const struct {
        const char *words;
        enum pod_allocation_promise promise;
        size_t cards;
    } pods[] = {
        {"index=1,2 a:mem4", POD_ALLOCATION_INVALID, 2},
        {"index=1 parts={\\'0\\':{\\'1\\':16}} a:none", POD_ALLOCATION_UNPROMISED, 0},
        {"index=1 placement=none a:none", POD_ALLOCATION_UNPROMISED, 0},
    };
    array_items(pod, pods) {
        struct pod_allocation *alloc = planned(pod->words);
        ck_assert_int_eq(alloc->promise, pod->promise);
        ck_assert_uint_eq(alloc->n_cards, pod->cards);
        pod_allocation_free(alloc);
    }
}

TEST(cards_can_be_assigned)
{
    struct pod_allocation *alloc = planned("i:init:mem2 a:mem3");
    ck_assert_int_eq(alloc->promise, POD_ALLOCATION_UNPROMISED);
    const struct promise_share card = {.uuid = SPAN("GPU-x"), .card = 5, .units = 3};
    pod_allocation_assign(alloc, &card, 1);
    ck_assert_int_eq(alloc->promise, POD_ALLOCATION_PROMISED);
    ck_assert_span_eq(alloc->containers[1].shares[0].uuid, "GPU-x");
    ck_assert_str_eq(text(alloc), "i:mem2=5*2 a:mem3=5*3");
}

UNIT_MAIN_AROUND(NULL, end_alloc)
