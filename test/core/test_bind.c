/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rig.h"

/* A leader that knows node n1 with two cards of 16000 MiB and pending pods a, b, c. */
static void start(void)
{
    rig_start();
    rig_lead();
    rig_cards("n1", 2, 16000);
    rig_pending("a", 8000);
    rig_pending("b", 8000);
    rig_pending("c", 16000);
    rig_reset();
}

#define ck_free(card, mib) ck_assert_int_eq(rig_free_mib("n1", card), mib)

static void expect_reply(uint64_t token, enum err_code code, const char *part)
{
    struct core_output o = rig_take(CORE_REPLY);
    ck_assert_uint_eq(o.token, token);
    ck_assert_msg(o.code == code, "%s: %s", err_code_name(o.code), o.text);
    ck_assert_msg(strstr(o.text, part) != NULL, "\"%s\" has no \"%s\"", o.text, part);
}

/* A bind to n1 whose Binding has no outcome yet. */
static struct core_output bound(const char *uid)
{
    rig_bind(1, uid, "n1");
    return rig_take(CORE_CALL_BIND);
}

TEST(a_bind_reserves_sends_one_binding_and_answers)
{
    start();
    rig_bind(7, "a", "n1");
    ck_free(0, 8000);
    struct core_output o = rig_take(CORE_CALL_BIND);
    ck_assert_str_eq(o.ns, "default");
    ck_assert_str_eq(o.name, "pod-a");
    ck_assert_str_eq(o.uid, "a");
    ck_assert_str_eq(o.node, "n1");
    ck_noted(o, KEY_MEM_IDX, "0");
    ck_noted(o, KEY_CARD_UUID, "n1-u0");
    ck_noted(o, KEY_MEM_ASSUME_TIME, "1700000000000000000");
    ck_count(CORE_REPLY, 0);
    rig_answer(o.call, ERR_NONE);
    expect_reply(7, ERR_NONE, "");
    ck_assert_uint_eq(core_stats(r.core).binds_in_flight, 0);
    ck_free(0, 8000);
}

TEST(assume_times_of_one_process_differ)
{
    start();
    rig_bind(1, "a", "n1");
    rig_bind(2, "b", "n1");
    ck_assert_contains(rig_take(CORE_CALL_BIND).annotations, "\"1700000000000000000\"");
    ck_assert_contains(rig_take(CORE_CALL_BIND).annotations, "\"1700000000000000001\"");
}

TEST(a_lost_answer_keeps_the_reservation_until_a_get_after_the_limit)
{
    start();
    struct core_output bind = bound("a");
    rig_answer(bind.call, ERR_TIMEOUT);

    /* An early GET that shows the pod unbound proves nothing: the Binding may be late. */
    rig_show_pod(rig_mem("a", 8000));
    ck_free(0, 8000);
    ck_count(CORE_REPLY, 0);

    /* Nor does an event or a timeout. */
    rig_pending("a", 8000);
    int64_t limit = bind.send_by.mono_ms + CORE_BIND_LIMIT_MS + CORE_CHECK_AFTER_MS;
    rig_pass(limit - r.now.mono_ms);
    ck_count(CORE_CALL_GET_POD, 0);
    ck_free(0, 8000);

    /* A late GET may have overtaken it in a stalled database: the one that
     * is sent when that has been answered cannot. One that failed does not count. */
    rig_pass(1);
    rig_end(CORE_CALL_GET_POD, ERR_UNAVAILABLE);
    rig_pass(5000);
    rig_show_pod(rig_mem("a", 8000));
    ck_count(CORE_REPLY, 0);
    ck_free(0, 8000);
    rig_show_pod(rig_mem("a", 8000));
    expect_reply(1, ERR_TIMEOUT, "has not taken effect");
    ck_free(0, 16000);
    ck_assert_uint_eq(core_stats(r.core).binds_in_flight, 0);
}

TEST(a_rejection_is_replied_at_once_and_frees_memory_after_proof)
{
    start();
    struct core_output bind = bound("a");
    rig_answer(bind.call, ERR_FORBIDDEN);
    expect_reply(1, ERR_FORBIDDEN, "forbidden");
    ck_free(0, 8000);
    rig_pass(10000);
    for (int i = 0; i < 2; i++)
        rig_show_pod(rig_mem("a", 8000));
    ck_free(0, 16000);
}

TEST(a_second_bind_joins_the_first)
{
    start();
    rig_bind(1, "a", "n1");
    rig_bind(2, "a", "n1");
    rig_bind(3, "a", "n2");
    ck_count(CORE_CALL_BIND, 1);
    ck_free(0, 8000);
    rig_end(CORE_CALL_BIND, ERR_NONE);
    expect_reply(1, ERR_NONE, "");
    expect_reply(2, ERR_NONE, "");
    expect_reply(3, ERR_CONFLICT, "already bound to node n1");
    rig_bind(4, "a", "n1"); /* later ones ask the API server (test_restore.c) */
    rig_bind(5, "a", "n2");
    rig_show_pod(rig_bound_pod("a", 8000, "n1", "{}"));
    expect_reply(4, ERR_NONE, "");
    expect_reply(5, ERR_CONFLICT, "already bound to node n1");
    ck_count(CORE_CALL_BIND, 0);
}

static void list_pods_again(void)
{
    rig_watch_ended(CORE_PODS, ERR_GONE);
    while (!rig_count(CORE_LIST)) /* a second list in a row backs off */
        rig_pass(100);
    rig_take(CORE_LIST);
    rig_list_end(CORE_PODS);
}

TEST(a_bind_that_no_list_has_shown_is_checked)
{
    start();
    struct core_output bind = bound("a");
    list_pods_again();
    rig_answer(bind.call, ERR_NONE); /* bound, but no list has shown it */
    rig_show_pod(rig_bound_pod("a", 8000, "n1", bind.annotations));
    ck_free(0, 8000);
    ck_assert_uint_eq(core_stats(r.core).binds_in_flight, 0);
}

TEST(an_unsent_binding_of_a_pod_that_no_list_shows_removes_the_pod)
{
    start();
    struct core_output bind = bound("a");
    list_pods_again(); /* the pod is deleted, or newer than the list */
    rig_not_sent(bind.call);
    expect_reply(1, ERR_UNAVAILABLE, "connection refused");
    ck_free(0, 16000);
    ck_assert_ptr_null(rig_ledger_pod("a"));
}

/* Who decides that a pod is not bound says whether another process may bind it. */
TEST(a_pod_without_a_binding_goes_to_the_next_leader)
{
    for (int lost = 0; lost < 2; lost++) {
        enum core_bind_outcome want = lost ? CORE_BIND_NOT_NOW : CORE_BIND_REJECTED;
        start();
        struct core_output bind = bound("a");
        rig_bind(2, "new", "n1");
        rig_bind(3, "none", "n1");
        uint64_t get = rig_take(CORE_CALL_GET_POD).call;
        if (lost)
            rig_tick(20000); /* the lease was not renewed */
        rig_not_sent(bind.call);
        ck_assert_int_eq(rig_take(CORE_REPLY).bind, want);
        rig_answer(get, ERR_TIMEOUT);
        ck_assert_int_eq(rig_take(CORE_REPLY).bind, want);
        rig_end(CORE_CALL_GET_POD, ERR_NOT_FOUND);
        ck_assert_int_eq(rig_take(CORE_REPLY).bind, CORE_BIND_REJECTED);
        rig_bind(4, "b", "n1");
        ck_count(CORE_REPLY, lost);
        if (lost)
            ck_assert_int_eq(rig_take(CORE_REPLY).bind, CORE_BIND_NOT_NOW);
    }
}

static struct pod plain_pod(void)
{
    struct pod pod = rig_mem("plain", 0);
    pod.n_containers = 0; /* none of its containers has a limit of ours */
    return pod;
}

TEST(an_unknown_pod_is_fetched_first)
{
    start();
    rig_bind(1, "new", "n1");
    struct core_output get = rig_take(CORE_CALL_GET_POD);
    ck_assert_str_eq(get.name, "pod-new");
    rig_answer_pod(get.call, rig_mem("new", 100));
    struct core_output bind = rig_take(CORE_CALL_BIND);
    rig_answer(bind.call, ERR_NONE);
    expect_reply(1, ERR_NONE, "");
    ck_free(0, 15900);

    rig_bind(2, "none", "n1");
    rig_end(CORE_CALL_GET_POD, ERR_NOT_FOUND);
    expect_reply(2, ERR_NOT_FOUND, "pod not found");

    rig_bind(3, "replaced", "n1");
    rig_show_pod(rig_mem("successor", 100));
    expect_reply(3, ERR_NOT_FOUND, "another UID");

    rig_bind(4, "plain", "n1");
    rig_show_pod(plain_pod());
    expect_reply(4, ERR_INVALID, "--bind-any");
    ck_assert_uint_eq(core_stats(r.core).binds_in_flight, 0);
}

TEST(a_get_that_a_list_overtook_is_repeated)
{
    start();
    rig_bind(1, "new", "n1");
    struct core_output get = rig_take(CORE_CALL_GET_POD);
    list_pods_again(); /* the next watch never shows the pod */
    rig_answer_pod(get.call, rig_mem("new", 8000));
    ck_count(CORE_CALL_BIND, 0);
    rig_end(CORE_CALL_GET_POD, ERR_NOT_FOUND);
    expect_reply(1, ERR_NOT_FOUND, "pod not found");
    ck_total(pending, 0);

    rig_bind(2, "lost", "n1");
    rig_show_pod(rig_mem("lost", 8000));
    struct core_output bind = rig_take(CORE_CALL_BIND);
    rig_answer(bind.call, ERR_TIMEOUT);
    get = rig_take(CORE_CALL_GET_POD);
    list_pods_again();
    rig_answer_pod(get.call, rig_bound_pod("lost", 8000, "n1", bind.annotations));
    rig_end(CORE_CALL_GET_POD, ERR_NOT_FOUND);
    expect_reply(2, ERR_NOT_FOUND, "deleted");
    ck_free(0, 16000);
}

TEST(a_failed_fetch_removes_a_pod_that_a_list_lacks)
{
    start();
    rig_bind(1, "new", "n1");
    struct core_output get = rig_take(CORE_CALL_GET_POD);
    rig_pending("new", 100);
    list_pods_again();
    ck_total(pending, 1);
    rig_answer(get.call, ERR_UNAVAILABLE);
    expect_reply(1, ERR_UNAVAILABLE, "");
    ck_total(pending, 0);
}

TEST(bind_any_binds_without_annotations)
{
    rig_new((struct core_settings){.bind_any = true});
    rig_lead();
    rig_bind(1, "plain", "n1");
    rig_show_pod(plain_pod());
    struct core_output bind = rig_take(CORE_CALL_BIND);
    ck_assert_ptr_null(bind.annotations);
    rig_answer(bind.call, ERR_TIMEOUT);
    struct pod there = rig_bound_pod("plain", 0, "n1", "{}");
    rig_show_pod(there);
    expect_reply(1, ERR_NONE, "");
}

/* kube-scheduler looks only at the resource name in the limits, then lets the extender
 * bind. */
TEST(a_limit_of_zero_is_bound_without_a_card)
{
    start();
    rig_bind(1, "zero", "n1");
    rig_show_pod(rig_mem("zero", 0));
    struct core_output bind = rig_take(CORE_CALL_BIND);
    ck_assert_ptr_null(bind.annotations);
    rig_answer(bind.call, ERR_NONE);
    expect_reply(1, ERR_NONE, "");
    ck_assert_uint_eq(core_stats(r.core).binds_in_flight, 0);
}

TEST(invalid_requests_are_rejected)
{
    start();
    struct pod pod = rig_mem("odd", 5);
    pod.count_label = SPAN("2");
    rig_see(pod);
    rig_bind(1, "odd", "n1");
    expect_reply(1, ERR_INVALID, "cannot be split evenly over 2 cards");
    rig_bind(2, "a", "nowhere");
    expect_reply(2, ERR_CONFLICT, "node nowhere is unknown to the extender");
    rig_step((struct core_input){.type = CORE_BIND,
                                 .token = 3,
                                 .ns = SPAN("x"),
                                 .name = SPAN("pod-a"),
                                 .uid = SPAN("a"),
                                 .node_name = SPAN("n1")});
    expect_reply(3, ERR_INVALID, "UID a belongs to pod default/pod-a");
}

TEST(freed_memory_wakes_up_the_scheduler)
{
    start();
    rig_sick("n2", 1, 0);
    rig_tick(1);
    ck_count(CORE_CALL_WAKEUP, 0);
    rig_cards("n2", 1, 16000);
    rig_tick(1);
    struct core_output mark = rig_take(CORE_CALL_WAKEUP);
    ck_assert_str_eq(mark.node, "n2");
    ck_assert_str_eq(mark.value, "2023-11-14T22:13:20.002000Z");
    rig_answer(mark.call, ERR_NONE);

    /* At most once a second, but delayed, not dropped. */
    rig_sick("n2", 1, 0);
    rig_cards("n2", 1, 16000);
    rig_tick(500);
    ck_count(CORE_CALL_WAKEUP, 0);
    rig_pass(600);
    mark = rig_take(CORE_CALL_WAKEUP);
    rig_answer(mark.call, ERR_UNAVAILABLE);
    rig_pass(2100);
    rig_take(CORE_CALL_WAKEUP); /* retried after a failure */

    /* Memory that fits no pending pod wakes nobody. */
    rig_cards("n3", 1, 100);
    rig_pass(2000);
    ck_count(CORE_CALL_WAKEUP, 0);
}

enum { NODES = 40, CORDONED = 20, LARGE = 29 };

/* The pods are listed before the Scvs, whose nodes have room for all of them. */
static void list_nodes_after_pods(void)
{
    static char names[NODES][4];
    rig_pending("a", 8000);
    rig_pending("b", 8000);
    rig_pending("c", 20000);
    rig_pending("d", 64000); /* fits nowhere */
    for (int i = 0; i < NODES; i++) {
        snprintf(names[i], sizeof names[i], "n%02d", i);
        struct node node = {.meta.name = span_of(names[i]), .cordoned = i < CORDONED};
        rig_node(node);
        rig_cards(names[i], 1, i == LARGE ? 32000 : 16000);
    }
}

/* The number of wakeups, all answered; *large: one is for the large node. */
static size_t take_wakeups(bool *large)
{
    size_t n = rig_count(CORE_CALL_WAKEUP);
    *large = false;
    for (size_t i = 0; i < n; i++) {
        struct core_output o = rig_take(CORE_CALL_WAKEUP);
        *large |= !strcmp(o.node, "n29");
        rig_answer(o.call, ERR_NONE);
    }
    return n;
}

TEST(a_start_wakes_up_a_few_nodes_for_each_request)
{
    bool large;
    rig_start();
    rig_acquire();
    list_nodes_after_pods();
    rig_pass(3000);
    ck_assert_uint_eq(take_wakeups(&large), 0); /* not ready: filter says so */
    rig_lists_end();
    rig_pass(3000);
    size_t n = take_wakeups(&large);
    ck_assert_msg(n == 16 || n == 17, "%zu", n); /* eight of each kind, and for c */
    ck_assert(large);                            /* only there is room for c */
    rig_pass(3000);
    ck_assert_uint_eq(take_wakeups(&large), 0);
}

/* More requests than one step looks at, that fit nowhere, are older than that of c. */
TEST(a_start_wakes_up_for_the_last_of_many_requests)
{
    enum { MANY = 1000 };
    static char uids[MANY][8];
    bool large;
    rig_start();
    rig_acquire();
    for (int at = 0; at < MANY; at++) {
        snprintf(uids[at], sizeof uids[at], "x%d", at);
        rig_pending(uids[at], 100000 + at);
        if (at == MANY / 2)
            rig_pending("c", 20000);
    }
    rig_cards("n29", 1, 32000);
    rig_lists_end();
    rig_pass(3000);
    ck_assert_uint_eq(take_wakeups(&large), 1);
    ck_assert(large);
}

/* What the previous leader saw last, and woke nobody for, is not lost. */
TEST(a_new_leader_wakes_up_a_few_nodes_for_each_request)
{
    rig_start();
    rig_lease_read("other", "1");
    rig_lists_end();
    list_nodes_after_pods();
    rig_pass(3000);
    ck_count(CORE_CALL_WAKEUP, 0); /* another process leads */
    rig_lease_read("", "2");
    rig_lease_written("me", "3");
    rig_pass(500);
    ck_count(CORE_CALL_WAKEUP, 0); /* the pods are listed again */
    rig_pending("a", 8000);
    rig_list_end(CORE_PODS);
    ck_count(CORE_CALL_WAKEUP, 16);
}

TEST(a_wakeup_that_no_pod_needs_any_more_is_not_sent)
{
    start();
    rig_cards("n2", 1, 16000);
    rig_tick(1);
    rig_end(CORE_CALL_WAKEUP, ERR_NONE);
    rig_sick("n2", 1, 0);
    rig_cards("n2", 1, 16000);
    for (int i = 0; i < 3; i++)
        rig_delete(rig_mem((const char *const[]){"a", "b", "c"}[i], 8000));
    rig_pass(3000);
    ck_count(CORE_CALL_WAKEUP, 0);
}

/* filter rejected the pod, which fits on a node that was not offered. */
static void reject(const char *uid, const char *elsewhere)
{
    rig_step((struct core_input){
        .type = CORE_REJECTED, .uid = span_of(uid), .node_name = span_of(elsewhere)});
}

/* Rejections every tenth of a second, for so long; returns the number of wakeups. */
static size_t reject_for(int64_t ms)
{
    size_t n = 0;
    for (int64_t t = 0; t < ms; t += 100) {
        reject("a", "n1");
        rig_pass(100);
        for (; rig_count(CORE_CALL_WAKEUP); n++)
            rig_end(CORE_CALL_WAKEUP, ERR_NONE);
        rig_reset();
    }
    return n;
}

TEST(a_pod_that_fits_on_a_node_that_was_not_offered_is_retried)
{
    start();
    reject("a", "");
    reject("nobody", "n1");
    rig_pass(3000);
    ck_count(CORE_CALL_WAKEUP, 0);
    reject("a", "n1");
    rig_pass(300);
    struct core_output o = rig_take(CORE_CALL_WAKEUP);
    ck_assert_str_eq(o.node, "n1");
    rig_answer(o.call, ERR_NONE);
    rig_pass(5000);
    ck_count(CORE_CALL_WAKEUP, 0);
}

/* Of a node that kube-scheduler never offers, the pod is retried ever later, and a limited
 * number of times. The limit is of time: it does not end while retries go on. */
TEST(retries_for_a_pod_grow_rare_and_end)
{
    start();
    ck_assert_uint_eq(reject_for(4500), 4); /* after 0.25, 0.5, 1 and 2 s */
    ck_assert_uint_le(reject_for(30000), 6);
    ck_assert_uint_gt(reject_for(CORE_RETRIES_MS / 2), 4);
    ck_assert_uint_eq(reject_for(CORE_RETRIES_MS / 3), 0);
    ck_assert_uint_eq(reject_for(CORE_RETRIES_MS + 60000), CORE_RETRIES);
}

/* Neither a failed PATCH nor another pod that takes the place loses the retry. */
TEST(a_retry_is_not_lost)
{
    start();
    reject("a", "n1");
    rig_pass(300);
    struct core_output o = rig_take(CORE_CALL_WAKEUP);
    rig_sick("n1", 2, 0);
    rig_sick("n1", 1, 0);
    rig_answer(o.call, ERR_UNAVAILABLE);
    rig_pass(1900);
    ck_count(CORE_CALL_WAKEUP, 0);
    rig_pass(300);
    rig_end(CORE_CALL_WAKEUP, ERR_NONE);
    rig_pass(3000);
    ck_count(CORE_CALL_WAKEUP, 0);
}

TEST(a_retry_for_a_pod_that_is_bound_or_deleted_is_not_sent)
{
    start();
    rig_sick("n1", 1, 0);
    rig_pass(2000);
    for (int i = 0; i < 2; i++) {
        const char *uid = i ? "b" : "a";
        struct pod pod = rig_mem(uid, 8000);
        reject(uid, "n1");
        pod.node = i ? (struct span){0} : SPAN("n1");
        rig_pod(pod, i);
        rig_pass(3000);
        ck_count(CORE_CALL_WAKEUP, 0);
    }
}

/* Two pods fit on the node. What happens to one is nothing to the other. */
TEST(a_retry_is_for_all_pods_that_fit_on_the_node)
{
    start();
    for (int gone = 0; gone < 2; gone++) {
        reject("a", "n1");
        reject("b", "n1");
        rig_delete(rig_mem(gone ? "b" : "a", 8000));
        rig_pass(3000);
        rig_end(CORE_CALL_WAKEUP, ERR_NONE);
        rig_pass(3000);
        ck_count(CORE_CALL_WAKEUP, 0);
        rig_pending("a", 8000);
    }
}

/* kube-scheduler can be faster than the watch. */
TEST(a_pod_that_the_watch_shows_after_its_rejection_is_retried)
{
    start();
    reject("late", "n1");
    rig_pending("late", 8000);
    rig_pass(300);
    rig_end(CORE_CALL_WAKEUP, ERR_NONE);
    rig_pass(3000);
    ck_count(CORE_CALL_WAKEUP, 0);
}

/* A wakeup because of a change does not wait for a retry that is due later. */
TEST(a_retry_delays_no_other_wakeup)
{
    start();
    reject_for(8000);
    rig_sick("n1", 2, 0);
    rig_pass(1000);
    reject("a", "n1");
    rig_cards("n1", 2, 16000);
    rig_tick(1);
    ck_count(CORE_CALL_WAKEUP, 1);
}

TEST(a_failed_bind_wakes_up_the_scheduler)
{
    start();
    struct core_output first = bound("a");
    rig_bind(2, "b", "n1");
    rig_end(CORE_CALL_BIND, ERR_NONE);
    rig_pending("d", 16000);
    rig_bind(3, "d", "n1");
    rig_end(CORE_CALL_BIND, ERR_NONE);
    rig_not_sent(first.call);
    rig_tick(1);
    ck_count(CORE_CALL_WAKEUP, 0); /* no pending pod fits */

    first = bound("a");
    rig_pending("e", 7000);
    rig_not_sent(first.call);
    rig_tick(1);
    ck_assert_str_eq(rig_take(CORE_CALL_WAKEUP).node, "n1");
}

/* Another program binds the only pod of the first class: the last class takes its place in
 * the ledger's array, and is compared with itself. */
TEST(a_class_that_moves_in_the_array_wakes_nobody_up)
{
    rig_start();
    rig_lead();
    rig_cards("n1", 2, 16000);
    rig_pending("big", 20000); /* fits nowhere */
    rig_pending("a", 8000);
    rig_reset();
    struct pod bound = rig_mem("big", 20000);
    bound.node = SPAN("n1");
    bound.idx = SPAN("0");
    rig_see(bound);
    rig_pass(2000);
    ck_free(1, 16000); /* "a" fits there, as before */
    ck_count(CORE_CALL_WAKEUP, 0);

    /* The class at the new position still wakes up when its pods fit at last. */
    rig_sick("n1", 2, 1);
    rig_pass(2000);
    ck_count(CORE_CALL_WAKEUP, 0);
    rig_cards("n1", 2, 16000);
    rig_pass(2000);
    ck_count(CORE_CALL_WAKEUP, 1);
}

static uint64_t overcommits(void)
{
    return core_stats(r.core).overcommits;
}

TEST(an_overcommitted_card_is_reported_but_not_during_a_list)
{
    static const char gpu0[] =
        "{'ALIYUN_COM_GPU_MEM_IDX':'0','gpushare/memory-unit':'1'}";
    start();
    rig_cards("n9", 2, 16000);
    rig_see(rig_bound_pod("x", 9000, "n9", gpu0));
    ck_assert_uint_eq(overcommits(), 0);
    rig_reset();
    rig_see(rig_bound_pod("y", 9000, "n9", gpu0));
    ck_assert_uint_eq(overcommits(), 1);
    ck_assert_str_eq(rig_log(),
                     "node n9: GPU0 has 16000 MiB, but 18000 MiB are promised");
    rig_delete(rig_bound_pod("y", 9000, "n9", gpu0));
    rig_see(rig_bound_pod("z", 9000, "n9", gpu0));
    ck_assert_uint_eq(overcommits(), 2);
    rig_delete(rig_bound_pod("z", 9000, "n9", gpu0));
    /* u replaced x: the list shows u before it is known that x is deleted. */
    rig_watch_ended(CORE_PODS, ERR_GONE);
    rig_see(rig_bound_pod("u", 9000, "n9", gpu0));
    rig_tick(1);
    rig_list_end(CORE_PODS);
    ck_assert_uint_eq(overcommits(), 2);
}

/* Until the Scv says what the cards are, they have one size. */
TEST(no_card_is_overcommitted_before_the_scvs_are_listed)
{
    static const char gpu0[] =
        "{'ALIYUN_COM_GPU_MEM_IDX':'0','gpushare/memory-unit':'1'}";
    rig_start();
    rig_lease_read("other", "1");
    rig_node(object_node(
        &r.arena,
        rig_text("{'metadata':{'name':'n9'},'status':{'capacity':{"
                 "'aliyun.com/gpu-mem':'32000','aliyun.com/gpu-count':'2'}}}")));
    rig_see(rig_bound_pod("x", 18000, "n9", gpu0));
    rig_lists_end_but(CORE_SCVS);
    ck_assert_uint_eq(ledger_totals(core_ledger(r.core)).overcommitted, 1);
    ck_assert_uint_eq(overcommits(), 0);
    rig_cards("n9", 2, 20000);
    rig_list_end(CORE_SCVS);
    ck_assert_uint_eq(overcommits(), 0);
    rig_cards("n9", 2, 16000);
    ck_assert_uint_eq(overcommits(), 1);
}
