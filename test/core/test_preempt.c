/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rig.h"

/*
 * Layout preemption. Unless a test says otherwise: node n1 has two cards of 16 MiB, each
 * with a pod of 10 MiB, a0 and a1. Pod p asks for 12 MiB with priority 10: the node has
 * 12 MiB free, but no card has.
 */

#define LEAVING ",'deletionTimestamp':'2026-01-01T00:00:00Z'"

enum { AFTER_MS = 10 * 1000, WAIT_MS = AFTER_MS + 2000 };

static struct pod make(const char *uid, int mib, int priority, const char *meta,
                       const char *spec)
{
    return rig_json("{'metadata':{'namespace':'default','name':'pod-%s','uid':'%s'"
                    "%s},'spec':{'priority':%d%s,'containers':[{'resources':{"
                    "'limits':{'" KEY_GPU_MEM "':'%d'}}}]}}",
                    uid, uid, meta, priority, spec, mib);
}

/* A pod that is bound to the card. */
static struct pod on_card(const char *uid, int mib, int priority, const char *node,
                          int card, const char *meta)
{
    char more[512];
    snprintf(more, sizeof more,
             "%s,'annotations':{'" KEY_MEM_IDX "':'%d','" KEY_MEM_POD
             "':'%d','" KEY_MEM_DEV "':'16'}",
             meta, card, mib);
    char spec[64];
    snprintf(spec, sizeof spec, ",'nodeName':'%s'", node);
    return make(uid, mib, priority, more, spec);
}

static void start_with(int64_t after_ms)
{
    rig_new(
        (struct core_settings){.preempt_after_ms = after_ms, .ledger = {.unit_mib = 1}});
    rig_lead();
    rig_cards("n1", 2, 16);
    rig_see(on_card("a0", 10, 0, "n1", 0, ""));
    rig_see(on_card("a1", 10, 5, "n1", 1, ""));
    rig_see(make("p", 12, 10, "", ""));
    rig_reset();
}

static void start(void)
{
    start_with(AFTER_MS);
}

/* Watches stay alive. */
static void pass(int64_t ms)
{
    for (int64_t t = 0; t < ms; t += 10 * 1000) {
        for (int kind = 0; kind < CORE_KINDS; kind++)
            rig_progress((enum core_kind)kind);
        rig_pass(ms - t < 10 * 1000 ? ms - t : 10 * 1000);
    }
}

static void rejected(const char *uid, const char *const *nodes, size_t n)
{
    struct span names[100];
    for (size_t i = 0; i < n; i++)
        names[i] = span_of(nodes[i]);
    rig_step((struct core_input){
        .type = CORE_REJECTED, .uid = span_of(uid), .nodes = names, .n_nodes = n});
}

static void rejected_on_n1(const char *uid)
{
    rejected(uid, (const char *const[]){"n1"}, 1);
}

static void nothing_happens(int64_t ms)
{
    pass(ms);
    ck_count(CORE_CALL_NOMINATE, 0);
    ck_count(CORE_CALL_EVICT, 0);
}

static struct core_output nomination(const char *uid, const char *node)
{
    pass(WAIT_MS);
    struct core_output o = rig_take(CORE_CALL_NOMINATE);
    ck_assert_str_eq(o.uid, uid);
    ck_assert_str_eq(o.node, node);
    return o;
}

static void nominated(const char *uid, const char *node)
{
    rig_answer(nomination(uid, node).call, ERR_NONE);
}

static struct core_output eviction(const char *uid)
{
    struct core_output o = rig_take(CORE_CALL_EVICT);
    ck_assert_str_eq(o.uid, uid);
    ck_count(CORE_CALL_EVICT, 0);
    return o;
}

/* Up to the eviction of a0. */
static struct core_output first_eviction(void)
{
    rejected_on_n1("p");
    nominated("p", "n1");
    struct core_output o = eviction("a0");
    ck_assert_str_eq(o.preemptor, "p");
    ck_assert_str_eq(o.ns, "default");
    ck_assert_str_eq(o.name, "pod-a0");
    return o;
}

static void refuse(uint64_t call)
{
    struct err err = {.code = ERR_UNAVAILABLE, .msg = "HTTP 429: budget"};
    rig_step((struct core_input){.type = CORE_ANSWER,
                                 .call = call,
                                 .err = &err,
                                 .retry_after_ms = -1,
                                 .disruption_budget = true});
}

static struct core_preemptions counts(void)
{
    return core_stats(r.core).preemptions;
}

/* Binds a pod to n1. Returns the call of its Binding, which names the card. */
static uint64_t ck_binds(uint64_t token, const char *uid, const char *card)
{
    char index[64];
    snprintf(index, sizeof index, "\"" KEY_MEM_IDX "\":\"%s\"", card);
    rig_bind(token, uid, "n1");
    struct core_output o = rig_take(CORE_CALL_BIND);
    ck_assert_contains(o.annotations, index);
    return o.call;
}

static void ck_conflict(uint64_t token, const char *uid)
{
    rig_bind(token, uid, "n1");
    ck_assert_int_eq(rig_take(CORE_REPLY).code, ERR_CONFLICT);
}

TEST(a_pod_of_lower_priority_leaves_for_a_pod_that_waits)
{
    start();
    rejected_on_n1("p");
    ck_assert_uint_eq(counts().waiting, 1);
    nothing_happens(AFTER_MS - 1000);
    nominated("p", "n1");
    rig_answer(eviction("a0").call, ERR_NONE);
    nothing_happens(1000);
    ck_assert_uint_eq(counts().evicted, 1);
    ck_assert_uint_eq(counts().kept, 1);
    rig_delete(on_card("a0", 10, 0, "n1", 0, ""));
    rig_answer(ck_binds(1, "p", "0"), ERR_NONE);
    pass(2000);
    ck_assert_uint_eq(counts().kept, 0);
}

static struct core_preempt_status status_of(const char *uid)
{
    struct core_preempt_status *list;
    size_t n = core_preempt_list(r.core, &r.arena, &list);
    for (size_t i = 0; i < n; i++)
        if (span_eq(list[i].uid, span_of(uid)))
            return list[i];
    ck_abort_msg("%s is not listed", uid);
}

static int64_t seconds_since(const struct core_preempt_status *status, int64_t ns)
{
    return (ns - status->since_ns) / 1000000000;
}

TEST(the_status_of_a_pod_follows_its_preemption)
{
    start();
    ck_assert_int_eq(core_stats(r.core).preempt_after_ms, AFTER_MS);
    int64_t start_ns = r.now.wall_ns;
    rejected("p", (const char *const[]){"n1", "unknown"}, 2);
    struct core_preempt_status now = status_of("p");
    ck_assert_int_eq(now.state, CORE_PREEMPT_WAITING);
    ck_assert_int_eq(now.found, CORE_PREEMPT_UNSEARCHED);
    ck_assert_int_eq(now.since_ns, start_ns);
    ck_assert_int_eq(seconds_since(&now, now.search_ns), AFTER_MS / 1000);
    ck_assert_uint_eq(now.candidates, 2);
    struct core_output o = nomination("p", "n1");
    now = status_of("p");
    ck_assert_int_eq(now.state, CORE_PREEMPT_NOMINATING);
    ck_assert_int_eq(now.found, CORE_PREEMPT_VICTIMS);
    ck_assert(span_eq(now.node, SPAN("n1")));
    ck_assert(now.victims == 1 && now.left == 1);
    rig_answer(o.call, ERR_NONE);
    ck_assert_int_eq(status_of("p").state, CORE_PREEMPT_EVICTING);
    int64_t before_ns = r.now.wall_ns;
    rig_answer(eviction("a0").call, ERR_NONE);
    now = status_of("p");
    ck_assert_int_eq(now.state, CORE_PREEMPT_DONE);
    ck_assert_uint_eq(now.left, 0);
    ck_assert_int_eq(now.until_ns - before_ns, CORE_PREEMPT_LIMIT_MS * 1000000LL);
}

TEST(the_status_says_that_no_node_has_victims_and_what_was_refused)
{
    start();
    rejected_on_n1("p");
    for (int i = 0; i < 2; i++) { /* budgets protect both pods */
        struct core_output o = i ? rig_take(CORE_CALL_NOMINATE) : nomination("p", "n1");
        rig_answer(o.call, ERR_NONE);
        refuse(rig_take(CORE_CALL_EVICT).call);
        rig_take(CORE_CALL_NOMINATE); /* retracted */
        pass(12 * 1000);
    }
    struct core_preempt_status now = status_of("p");
    ck_assert_int_eq(now.state, CORE_PREEMPT_WAITING);
    ck_assert_int_eq(now.found, CORE_PREEMPT_NO_VICTIMS);
    ck_assert_uint_eq(now.refused, 2);
    ck_assert(now.by_budget);
    ck_assert_int_gt(now.search_ns, r.now.wall_ns); /* a later search */
}

TEST(the_generation_changes_with_the_status)
{
    start();
    uint64_t seen[4] = {core_preempt_generation(r.core)};
    rejected_on_n1("p");
    seen[1] = core_preempt_generation(r.core);
    pass(1000);
    ck_assert_uint_eq(core_preempt_generation(r.core), seen[1]);
    struct core_output o = nomination("p", "n1");
    seen[2] = core_preempt_generation(r.core);
    rig_answer(o.call, ERR_NONE);
    rig_answer(eviction("a0").call, ERR_NONE);
    seen[3] = core_preempt_generation(r.core);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++)
            ck_assert_uint_ne(seen[i], seen[k]);
}

static void evicts_nobody(const char *uid)
{
    rejected_on_n1(uid);
    nothing_happens(60 * 1000);
}

TEST(some_pods_evict_nobody)
{
    start_with(0); /* disabled */
    rejected_on_n1("p");
    nothing_happens(CORE_PREEMPT_LIMIT_MS);
    start();
    rig_see(make("equal", 12, 0, "", ""));
    evicts_nobody("equal");
    start();
    rig_see(make("never", 12, 10, "", ",'preemptionPolicy':'Never'"));
    evicts_nobody("never");
    start();
    rejected_on_n1("p");
    struct pod p = make("p", 12, 10, "", "");
    p.nominated_node = SPAN("n1");
    rig_see(p);
    nothing_happens(60 * 1000);
}

TEST(some_pods_are_not_evicted)
{
    start();
    rig_see(on_card("a0", 10, 0, "n1", 0,
                    ",'ownerReferences':[{'kind':'DaemonSet','name':'d'}]"));
    rig_see(make("a1", 10, 5,
                 ",'annotations':{'" KEY_MIRROR "':'x','" KEY_MEM_IDX
                 "':'1','" KEY_MEM_POD "':'10','" KEY_MEM_DEV "':'16'}",
                 ",'nodeName':'n1'"));
    evicts_nobody("p");
    start();
    rig_see(on_card("a1", 10, 5, "n1", 1, LEAVING)); /* is waited for */
    evicts_nobody("p");
    ck_assert_int_eq(status_of("p").found, CORE_PREEMPT_NOT_NEEDED);
}

TEST(the_cheapest_node_is_chosen)
{
    start();
    rig_cards("n2", 1, 16);
    rig_cards("n3", 1, 16);
    rig_see(on_card("b", 10, -5, "n2", 0, ""));
    rig_see(on_card("c0", 5, -5, "n3", 0, ""));
    rig_see(on_card("c1", 5, -5, "n3", 0, ""));
    rejected("p", (const char *const[]){"n1", "n3", "n2", "unknown"}, 4);
    nominated("p", "n2");
    eviction("b");
}

/* Pods with 6 MiB each on both cards: two leave, one after the other. */
static void start_two_victims(void)
{
    start();
    rig_cards("n2", 1, 16);
    rig_see(on_card("c0", 7, 0, "n2", 0, ""));
    rig_see(on_card("c1", 7, 0, "n2", 0, ""));
    rig_see(make("q", 16, 10, "", ""));
    rejected("q", (const char *const[]){"n2"}, 1);
    nominated("q", "n2");
}

TEST(a_victim_that_left_by_itself_is_not_evicted)
{
    start_two_victims();
    struct core_output first = rig_take(CORE_CALL_EVICT);
    const char *other = strcmp(first.uid, "c0") == 0 ? "c1" : "c0";
    rig_delete(on_card(other, 7, 0, "n2", 0, ""));
    rig_answer(first.call, ERR_NONE);
    nothing_happens(20 * 1000);
}

TEST(an_eviction_of_a_missing_pod_counts_as_done)
{
    start_two_victims();
    rig_end(CORE_CALL_EVICT, ERR_NOT_FOUND);
    rig_end(CORE_CALL_EVICT, ERR_CONFLICT);
    nothing_happens(20 * 1000);
    ck_assert_uint_eq(counts().evicted, 0);
}

TEST(a_budget_ends_the_preemption_and_others_are_chosen)
{
    start();
    refuse(first_eviction().call);
    ck_assert_ptr_null(rig_take(CORE_CALL_NOMINATE).node); /* it is retracted */
    nothing_happens(9 * 1000);
    pass(3000);
    rig_end(CORE_CALL_NOMINATE, ERR_NONE);
    eviction("a1");
    ck_assert_uint_eq(counts().refused, 1);
}

TEST(a_budget_after_an_eviction_means_waiting_for_the_limit)
{
    start_two_victims();
    rig_end(CORE_CALL_EVICT, ERR_NONE);
    refuse(rig_take(CORE_CALL_EVICT).call);
    nothing_happens(CORE_PREEMPT_LIMIT_MS - 1000);
    ck_assert_uint_eq(counts().abandoned, 1);
}

TEST(an_unknown_outcome_is_retried_and_then_counts)
{
    start();
    struct core_output o = first_eviction();
    for (int i = 1; i < 5; i++) {
        rig_answer(o.call, i % 2 ? ERR_TIMEOUT : ERR_INTERNAL);
        ck_count(CORE_CALL_EVICT, 0);
        pass(2000);
        o = eviction("a0");
    }
    rig_answer(o.call, ERR_TIMEOUT);
    nothing_happens(CORE_PREEMPT_LIMIT_MS - 1000);
}

TEST(retry_after_is_respected)
{
    start();
    struct err err = {.code = ERR_UNAVAILABLE, .msg = "HTTP 429"};
    rig_step((struct core_input){.type = CORE_ANSWER,
                                 .call = first_eviction().call,
                                 .err = &err,
                                 .retry_after_ms = 7000});
    nothing_happens(6000);
    pass(3000);
    eviction("a0");
}

TEST(a_failed_nomination_evicts_nobody)
{
    start();
    rejected_on_n1("p");
    rig_answer(nomination("p", "n1").call, ERR_FORBIDDEN);
    rig_take(CORE_CALL_NOMINATE);
    nothing_happens(50 * 1000);
}

/* kube-scheduler counts two free cards: pods that share cards take none of its total. */
TEST(a_whole_card_is_freed_and_kept)
{
    start();
    rig_see(rig_json("{'metadata':{'namespace':'default','name':'pod-w','uid':'w'},"
                     "'spec':{'priority':10,'containers':[{'resources':{'limits':{'%s'"
                     ":'1'}}}]}}",
                     KEY_GPU_COUNT));
    rejected_on_n1("w");
    nominated("w", "n1");
    rig_answer(eviction("a0").call, ERR_NONE);
    rig_delete(on_card("a0", 10, 0, "n1", 0, ""));
    rig_see(make("low", 8, 0, "", "")); /* card 1 has 6 MiB free */
    ck_conflict(1, "low");
    ck_binds(2, "w", "0");
}

TEST(cards_stay_kept_when_kube_scheduler_clears_the_nomination)
{
    start();
    rig_answer(first_eviction().call, ERR_NONE);
    struct pod p = make("p", 12, 10, "", "");
    p.nominated_node = SPAN("n1");
    rig_see(p);
    p.nominated_node = (struct span){0};
    rig_see(p);
    const struct ledger_pod *pod = rig_ledger_pod("p");
    ck_assert_uint_eq(ledger_pod_kept(pod), 1);
    p.nominated_node = SPAN("n2"); /* kube-scheduler's own preemption */
    rig_see(p);
    ck_assert_uint_eq(ledger_pod_kept(pod), 0);
}

TEST(cards_are_released_at_the_limit)
{
    start();
    rig_answer(first_eviction().call, ERR_NONE);
    rig_see(make("low", 5, 0, "", ""));
    pass(CORE_PREEMPT_LIMIT_MS - 2000);
    const struct ledger_pod *p = rig_ledger_pod("p");
    ck_assert_uint_eq(ledger_pod_kept(p), 1);
    rig_reset();
    pass(4000);
    ck_assert_uint_eq(ledger_pod_kept(p), 0);
    ck_count(CORE_CALL_WAKEUP, 1);
}

/* The pod is deleted, nominated to another node, or bound there. Its victim stays. */
TEST(cards_are_released_when_the_pod_goes_elsewhere_and_wake_the_scheduler)
{
    for (int i = 0; i < 3; i++) {
        start();
        rig_cards("n2", 1, 12);
        rig_answer(first_eviction().call, ERR_NONE);
        rig_see(on_card("b1", 6, 5, "n1", 1, "")); /* card 0 has 6 MiB free */
        rig_see(make("low", 6, 0, "", ""));
        rig_reset();
        struct pod p = make("p", 12, 10, "", "");
        if (i == 0)
            rig_delete(p);
        p.nominated_node = SPAN("n2");
        if (i == 1)
            rig_see(p);
        if (i == 2)
            rig_bind(1, "p", "n2");
        pass(2000);
        ck_assert_uint_eq(counts().kept, i > 0);
        const struct ledger_node *n1 = rig_ledger_node("n1");
        ck_assert(!n1->has_nominated);
        ck_assert_str_eq(rig_take(CORE_CALL_WAKEUP).node, "n1");
        ck_count(CORE_CALL_WAKEUP, 0);
    }
}

TEST(a_follower_remembers_nothing)
{
    rig_new((struct core_settings){.preempt_after_ms = AFTER_MS});
    rig_lease_read("other", "1");
    rig_lists_end();
    rig_see(make("p", 12, 10, "", ""));
    rejected_on_n1("p");
    ck_assert_uint_eq(counts().waiting, 0);
}

TEST(a_stopping_leader_evicts_no_further_pod)
{
    start_two_victims();
    struct core_output first = rig_take(CORE_CALL_EVICT);
    rig_stop();
    rig_answer(first.call, ERR_NONE);
    ck_count(CORE_CALL_EVICT, 0);
    rig_tick(2000);
    ck_count(CORE_CALL_EVICT, 0);
}

TEST(the_number_of_remembered_pods_is_limited)
{
    start();
    for (int i = 0; i < CORE_PREEMPT_PODS + 10; i++) {
        char uid[16];
        snprintf(uid, sizeof uid, "w%d", i);
        rig_see(make(uid, 12, i == CORE_PREEMPT_PODS + 5 ? 100 : 1, "", ""));
        rejected_on_n1(uid);
    }
    ck_assert_uint_eq(counts().waiting, CORE_PREEMPT_PODS);
    nomination("w261", "n1"); /* the one of high priority is among them */
}

TEST(an_unknown_pod_is_not_remembered)
{
    start();
    rejected_on_n1("nobody");
    rejected_on_n1("a0"); /* bound */
    rejected("p", NULL, 0);
    ck_assert_uint_eq(counts().waiting, 0);
}

/* The pod fits on n2, which kube-scheduler never offers. */
TEST(evictions_wait_for_retries_but_both_times_begin_together)
{
    struct span n1 = SPAN("n1");
    int64_t from_ms;
    size_t woken = 0;
    start_with(60 * 1000);
    for (from_ms = r.now.mono_ms; !rig_count(CORE_CALL_NOMINATE); pass(100)) {
        rig_step((struct core_input){.type = CORE_REJECTED,
                                     .uid = SPAN("p"),
                                     .node_name = SPAN("n2"),
                                     .nodes = &n1,
                                     .n_nodes = 1});
        for (; rig_count(CORE_CALL_WAKEUP); woken++)
            rig_end(CORE_CALL_WAKEUP, ERR_NONE);
        ck_assert_int_lt(r.now.mono_ms - from_ms, 180 * 1000);
    }
    ck_assert_uint_eq(woken, CORE_RETRIES);
}
