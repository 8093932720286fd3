/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rig.h"

#include "placement/select.h"

/*
 * Wakeups follow what filter would answer. Unless a test says otherwise: node n1 has one card
 * of 16000 MiB. Pod hi, of 8000 MiB and priority 100, is nominated to it. So pod w, of
 * 10000 MiB and priority 0, waits.
 */

static struct pod make(const char *uid, int mib, int64_t priority, const char *nominated)
{
    struct pod pod = rig_mem(uid, mib);
    pod.priority = priority;
    pod.nominated_node = span_of(nominated);
    return pod;
}

static struct pod on_card(const char *uid, int mib)
{
    const char *promise = rig_text("{'" KEY_MEM_IDX "':'0','" KEY_MEM_POD
                                   "':'%d','" KEY_MEM_DEV "':'16000'}",
                                   mib)
                              .p;
    return rig_bound_pod(uid, mib, "n1", promise);
}

static void start(void)
{
    rig_new((struct core_settings){.preempt_after_ms = 10 * 1000});
    rig_lead();
    rig_cards("n1", 1, 16000);
    rig_reset();
}

/* filter of the pod on n1. */
static bool fits(const char *uid)
{
    const struct select_pod pod = select_pod_of(rig_ledger_pod(uid));
    return select_fit_pod(rig_ledger_node("n1"), &pod) == FIT_YES;
}

/* So many wakeups of n1, all answered; and none of another node. */
static void ck_woken(size_t n)
{
    rig_pass(100);
    for (; n; n--) {
        struct core_output o = rig_take(CORE_CALL_WAKEUP);
        ck_assert_str_eq(o.node, "n1");
        rig_answer(o.call, ERR_NONE);
    }
    ck_count(CORE_CALL_WAKEUP, 0);
}

/* Nothing happens any more. */
static void ck_sleeps(void)
{
    for (int i = 0; i < 6; i++) {
        for (int kind = 0; kind < CORE_KINDS; kind++)
            rig_progress((enum core_kind)kind);
        rig_pass(10 * 1000);
    }
    ck_count(CORE_CALL_WAKEUP, 0);
}

static void deleted(void)
{
    rig_delete(make("hi", 8000, 100, "n1"));
}

static void cleared(void)
{
    rig_see(make("hi", 8000, 100, ""));
}

static void nominated_to_another_node(void)
{
    rig_see(make("hi", 8000, 100, "n2"));
}

static void failed(void)
{
    struct pod pod = make("hi", 8000, 100, "n1");
    pod.phase = POD_FAILED;
    rig_see(pod);
}

static void terminating(void)
{
    struct pod pod = make("hi", 8000, 100, "n1");
    pod.meta.deleting = true;
    rig_see(pod);
}

static void bound_elsewhere(void)
{
    struct pod pod = make("hi", 8000, 100, "n1");
    pod.node = SPAN("n2");
    pod.idx = SPAN("0");
    rig_see(pod);
}

static void bound_elsewhere_by_us(void)
{
    rig_bind(1, "hi", "n2");
    ck_count(CORE_CALL_BIND, 1);
}

static void shrunk(void)
{
    rig_see(make("hi", 6000, 100, "n1"));
}

static void asks_for_nothing(void)
{
    rig_see(rig_json("{'metadata':{'namespace':'default','name':'pod-hi','uid':'hi'}}"));
}

static void asks_for_the_impossible(void)
{
    rig_see(
        rig_json("{'metadata':{'namespace':'default','name':'pod-hi','uid':'hi'},'spec':{"
                 "'priority':100,'containers':[{'resources':{'limits':{'" KEY_GPU_MEM
                 "':'x'}}}]},'status':{'nominatedNodeName':'n1'}}"));
}

static void of_low_priority(void)
{
    rig_see(make("hi", 8000, -1, "n1"));
}

static void missing_in_a_list(void)
{
    rig_watch_ended(CORE_PODS, ERR_GONE);
    rig_tick(3000);
    rig_see(make("w", 10000, 0, ""));
    rig_list_end_at(CORE_PODS, "200");
}

static const struct way {
    void (*happens)(void);
    const char *name;
} ways[] = {
#define WAY(f)                                                                           \
    {                                                                                    \
        f, #f                                                                            \
    }
    WAY(deleted),
    WAY(cleared),
    WAY(nominated_to_another_node),
    WAY(failed),
    WAY(terminating),
    WAY(bound_elsewhere),
    WAY(bound_elsewhere_by_us),
    WAY(shrunk),
    WAY(asks_for_nothing),
    WAY(asks_for_the_impossible),
    WAY(of_low_priority),
    WAY(missing_in_a_list),
};

TEST(whatever_ends_a_nomination_wakes_what_waits_behind_it)
{
    ARRAY_EACH_ITEM(const struct way, way, ways, ARRAY_LEN(ways))
    {
        start();
        rig_cards("n2", 1, 9000);
        rig_see(make("hi", 8000, 100, "n1"));
        rig_see(make("w", 10000, 0, ""));
        ck_woken(0);
        ck_assert(!fits("w"));
        way->happens();
        ck_assert_msg(fits("w"), "%s", way->name);
        rig_pass(100);
        ck_assert_msg(rig_count(CORE_CALL_WAKEUP) == 1, "%s: %zu", way->name,
                      rig_count(CORE_CALL_WAKEUP));
        ck_woken(1);
        ck_sleeps();
    }
}

TEST(the_end_of_a_nomination_wakes_nobody_who_did_not_wait_for_it)
{
    for (int i = 0; i < 5; i++) {
        start();
        rig_see(make("hi", 8000, 100, "n1"));
        rig_see(i % 4 == 0 ? make("w", 17000, 0, "")   /* fits nowhere */
                : i == 1   ? make("w", 8000, 0, "")    /* fits beside it */
                : i == 2   ? make("w", 10000, 101, "") /* precedes it */
                           : make("w", 10000, 0, "n1")); /* behind it, and stays there */
        ck_woken(0);
        if (i == 3)
            rig_see(make("hi", 7000, 100, "n1"));
        else if (i ==
                 4) /* kube-scheduler's own retry of hi, which must not go on for ever */
            rig_see(make("hi", 8000, 100, ""));
        else
            rig_delete(make("hi", 8000, 100, "n1"));
        ck_woken(0);
        ck_sleeps();
    }
}

/* Where the pod is nominated next, nothing becomes free. */
TEST(the_beginning_of_a_nomination_wakes_nobody)
{
    start();
    rig_see(make("w", 10000, 0, ""));
    rig_see(make("hi", 8000, 100, "n2"));
    ck_woken(0);
    rig_see(make("hi", 8000, 100, "n1"));
    ck_woken(0);
    rig_see(make("w", 10000, 0, "n1"));
    ck_woken(0);
    ck_sleeps();
}

TEST(the_end_of_one_of_two_nominations_wakes)
{
    start();
    rig_see(make("hi", 8000, 100, "n1"));
    rig_see(make("two", 6000, 100, "n1"));
    rig_see(make("w", 10000, 0, ""));
    rig_delete(make("hi", 8000, 100, "n1"));
    ck_woken(1);
    rig_pass(1000);
    rig_see(make("hi", 8000, 100, "n1"));
    ck_woken(0);
    rig_delete(make("two", 6000, 100, "n1"));
    ck_assert(!fits("w"));
    ck_woken(0);
    ck_sleeps();
}

/* A class can have a pod whose own nomination is no obstacle, and one for which it is. */
TEST(a_pod_waits_behind_an_equal_one_that_is_nominated)
{
    start();
    rig_see(make("w", 10000, 0, "n1"));
    rig_see(make("x", 10000, 0, ""));
    ck_assert(fits("w") && !fits("x"));
    rig_see(make("w", 10000, 0, ""));
    ck_woken(1);
    ck_sleeps();
}

/* The nominated pod waits behind a nomination of higher priority. */
TEST(a_nominated_pod_is_woken_as_well)
{
    start();
    rig_see(make("hi", 8000, 100, "n1"));
    rig_see(make("w", 10000, 0, "n1"));
    ck_assert(!fits("w"));
    deleted();
    ck_assert(fits("w"));
    ck_woken(1);
    ck_sleeps();
}

/* The memory of the node suffices for the pod before and after, beside the nomination only
 * after. */
TEST(memory_that_becomes_free_beside_a_nomination_wakes)
{
    start();
    rig_see(on_card("a", 4000));
    rig_see(make("hi", 4000, 100, "n1"));
    rig_see(make("w", 10000, 0, ""));
    ck_woken(0);
    const struct request *wanted = rig_ledger_pod("w")->request;
    ck_assert(!fits("w") && select_fit(rig_ledger_node("n1"), wanted) == FIT_YES);
    rig_delete(on_card("a", 4000));
    ck_assert(fits("w"));
    ck_woken(1);
    ck_sleeps();
}

static void reserves(const char *uid, int mib, int64_t priority)
{
    struct pod pod = make(uid, mib, priority, "");
    ck_assert_int_eq(rig_reserve(pod, &SPAN("n1"), 1).reserve, CORE_RESERVE_DONE);
}

/* What is reserved for pods of lower priority is free for the pod, before and after. */
TEST(a_pod_of_higher_priority_is_woken_beside_a_reservation)
{
    for (int64_t priority = 0; priority <= 10; priority += 10) {
        start();
        rig_see(on_card("a", 8000));
        rig_see(make("w", 10000, priority, ""));
        reserves("low", 8000, 0);
        rig_delete(on_card("a", 8000));
        ck_assert_int_eq(fits("w"), priority > 0);
        ck_woken(priority > 0);
    }
}

TEST(the_end_of_a_stronger_reservation_wakes_beside_a_weaker_one)
{
    start();
    rig_see(make("w", 10000, 10, ""));
    reserves("hi", 8000, 100);
    rig_pass(15 * 1000);
    reserves("low", 8000, 0);
    ck_assert(!fits("w"));
    rig_pass(15 * 1000);
    ck_reserved(1);
    ck_assert(fits("w"));
    ck_woken(1);
    rig_pass(15 * 1000); /* the weaker one ends: nothing changes for w */
    ck_reserved(0);
    ck_woken(0);
    ck_sleeps();
}

/* A member fits before and after, two of them only after. */
TEST(a_gang_behind_a_nomination_is_woken)
{
    start();
    rig_see(make("hi", 8000, 100, "n1"));
    for (int i = 0; i < 2; i++)
        rig_see(rig_json("{'metadata':{'namespace':'default','name':'p%d','uid':'p%d',"
                         "'labels':{'pod-group.scheduling.sigs.k8s.io':'g'}},'spec':{"
                         "'containers':[{'resources':{'limits':{'" KEY_GPU_MEM
                         "':'8000'}}}]}}",
                         i, i));
    ck_assert(fits("p0"));
    ck_woken(0);
    deleted();
    ck_woken(1);
    ck_sleeps();
}

/* nvidia.com/gpu and whole cards, of which memory says nothing. */
TEST(a_nomination_for_whole_cards_wakes_when_it_ends)
{
    static const char *const keys[] = {KEY_GPU_COUNT, KEY_NVIDIA_GPU};
    for (size_t i = 0; i < 4; i++) {
        struct pod pods[2];
        start();
        for (size_t k = 0; k < 2; k++) {
            pods[k] = rig_json(
                "{'metadata':{'namespace':'default','name':'%s','uid':'%s'},"
                "'spec':{'priority':%d,'containers':[{'resources':{"
                "'limits':{'%s':'1'}}}]}}",
                k ? "w" : "hi", k ? "w" : "hi", k ? 0 : 100, keys[k ? i / 2 : i % 2]);
            pods[k].nominated_node = k ? (struct span){0} : SPAN("n1");
            rig_see(pods[k]);
        }
        if (fits("w")) /* only the kubelet knows which card nvidia.com/gpu takes */
            continue;
        rig_delete(pods[0]);
        ck_assert(fits("w"));
        ck_woken(1);
        ck_sleeps();
    }
}

/* On 40 nodes the memory suffices for w, but nominated pods precede it, of which one fits. w fits
 * on n1. */
TEST(a_start_wakes_where_filter_says_yes)
{
    rig_start();
    rig_acquire();
    rig_see(make("w", 10000, 0, ""));
    for (int i = 0; i < 40; i++) {
        const char *node = rig_text("a%d", i).p;
        rig_cards(node, 1, 16000);
        for (int k = 0; k < 2; k++)
            rig_see(make(rig_text("h%d-%d", i, k).p, 9000, 100, node));
    }
    rig_cards("n1", 1, 16000);
    rig_lists_end();
    rig_tick(0);
    bool woken = false;
    while (rig_count(CORE_CALL_WAKEUP))
        woken |= strcmp(rig_take(CORE_CALL_WAKEUP).node, "n1") == 0;
    ck_assert(woken);
}

TEST(a_start_wakes_a_nominated_pod_that_fits)
{
    rig_start();
    rig_acquire();
    rig_see(make("hi", 9000, 100, "n1"));
    rig_cards("n1", 1, 16000);
    rig_lists_end();
    ck_woken(1);
}

/* Its driver was replaced by a newer one. */
TEST(a_node_that_can_enforce_more_wakes_who_asked_for_it)
{
    start();
    rig_see(rig_json("{'metadata':{'namespace':'default','name':'pod-w','uid':'w',"
                     "'annotations':{'" KEY_ISOLATION "':'driver'}},'spec':{"
                     "'containers':[{'resources':{'limits':{'" KEY_GPU_MEM
                     "':'10000'}}}]}}"));
    ck_assert(!fits("w"));
    ck_woken(0);
    struct scv scv = object_scv_even(&r.arena, "n1", 1, 16000);
    scv.isolation = SCV_ISOLATION_KNOWN | SCV_ISOLATION_DRIVER;
    rig_scv(scv);
    ck_assert(fits("w"));
    ck_woken(1);
    ck_sleeps();
}

/* The ConfigMap that lists a sick card is deleted while the watch is down. */
TEST(an_object_that_a_list_lacks_wakes_as_its_deletion_does)
{
    start();
    struct unhealthy_cards sick = {.node = SPAN("n1"), .cards = (int32_t[]){0}, .n = 1};
    rig_step((struct core_input){.type = CORE_OBJECT,
                                 .kind = CORE_CONFIGMAPS,
                                 .run = r.runs[CORE_CONFIGMAPS],
                                 .unhealthy = &sick});
    rig_see(make("w", 10000, 0, ""));
    ck_assert(!fits("w"));
    rig_watch_ended(CORE_CONFIGMAPS, ERR_GONE);
    rig_tick(3000);
    rig_list_end_at(CORE_CONFIGMAPS, "200");
    ck_assert(fits("w"));
    ck_woken(1);
    ck_sleeps();
}
