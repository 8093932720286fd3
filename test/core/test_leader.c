/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rig.h"

static struct rig r;

static void start(void)
{
    rig_new(&r, (struct core_settings){0});
}

static void lists_end(void)
{
    for (int kind = 0; kind < CORE_KINDS; kind++)
        rig_list_end(&r, (enum core_kind)kind);
}

static bool may_bind(void)
{
    return core_may_bind(r.core, r.now, NULL) == 0;
}

START_TEST(a_free_lease_is_taken_before_the_pods_are_listed)
{
    start();
    ck_assert_uint_eq(rig_count(&r, CORE_LIST), CORE_KINDS - 1);
    struct core_output get = rig_take(&r, CORE_CALL_LEASE_GET);
    ck_assert_str_eq(get.ns, "kube-system");
    ck_assert_str_eq(get.name, "gpushare-extender");
    rig_answer_lease(&r, get.call, "", "1");
    struct core_output put = rig_take(&r, CORE_CALL_LEASE_WRITE);
    ck_assert(!put.create);
    struct lease written = object_lease(&r.arena, span_of(put.body));
    ck_assert_span_eq(written.holder, "me");
    ck_assert_span_eq(written.meta.version, "1");
    ck_assert_int_eq(written.duration_s, 5);
    ck_assert_uint_eq(rig_count(&r, CORE_LIST), CORE_KINDS - 1);
    rig_answer_lease(&r, put.call, "me", "2");
    ck_assert_uint_eq(rig_count(&r, CORE_LIST), CORE_KINDS); /* once */
    ck_assert(core_is_leader(r.core));
    ck_assert(!may_bind());
    lists_end();
    ck_assert(may_bind());
    rig_free(&r);
}
END_TEST

START_TEST(a_held_lease_is_waited_for_and_the_pods_listed_again)
{
    start();
    rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, "other", "1");
    ck_assert_uint_eq(rig_count(&r, CORE_LIST), CORE_KINDS);
    lists_end();
    struct err err = {0};
    ck_assert_int_eq(core_ready(r.core, r.now, &err), 0); /* filters at once */
    ck_assert_int_eq(core_may_bind(r.core, r.now, &err), -1);
    ck_assert_ptr_nonnull(strstr(err.msg, "held by \"other\""));
    core_outputs_reset(&r.out);

    /* Looked at twice a second; not taken before its time is over. */
    int64_t seen = r.now.mono_ms;
    while (r.now.mono_ms < seen + CORE_LEASE_MS - 100) {
        rig_tick(&r, 100);
        if (rig_count(&r, CORE_CALL_LEASE_GET))
            rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, "other", "1");
        ck_assert_uint_eq(rig_count(&r, CORE_CALL_LEASE_WRITE), 0);
    }
    rig_tick(&r, 100);
    rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, "other", "1");
    rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_WRITE).call, "me", "2");
    ck_assert(core_is_leader(r.core));
    ck_assert(!may_bind());
    ck_assert_int_eq(rig_take(&r, CORE_LIST).kind, CORE_PODS);
    rig_list_end(&r, CORE_PODS);
    ck_assert(may_bind());
    rig_free(&r);
}
END_TEST

START_TEST(when_another_was_seen_to_lead_can_be_asked)
{
    start();
    ck_assert_int_eq(core_other_leader_ms(r.core), 0);
    rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, "other", "1");
    int64_t seen = r.now.mono_ms;
    ck_assert_int_eq(core_other_leader_ms(r.core), seen);
    rig_tick(&r, 500);
    rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, "other", "1");
    ck_assert_int_eq(core_other_leader_ms(r.core), seen); /* not renewed */
    rig_tick(&r, 500);
    rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, "other", "2");
    ck_assert_int_eq(core_other_leader_ms(r.core), seen + 1000);
    rig_tick(&r, 500);
    rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, "",
                     "3"); /* given back */
    ck_assert_int_eq(core_other_leader_ms(r.core), 0);
    rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_WRITE).call, "me", "4");
    ck_assert_int_eq(core_other_leader_ms(r.core), 0);
    rig_free(&r);
}
END_TEST

START_TEST(a_failure_that_lasts_is_told_once_a_minute)
{
    start();
    size_t told = rig_count(&r, CORE_LOG), failed = 0;
    for (int64_t ms = 0; ms < 125 * 1000; ms += 100) {
        if (rig_count(&r, CORE_CALL_LEASE_GET)) {
            rig_answer(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, ERR_UNAVAILABLE);
            failed++;
        }
        rig_tick(&r, 100);
    }
    ck_assert_uint_ge(failed, 200);
    ck_assert_uint_eq(rig_count(&r, CORE_LOG) - told, 3);
    rig_free(&r);
}
END_TEST

/* It may be read but not written: that is said to who wants to bind, and told once. */
static void cannot_write(const char *holder, size_t notes)
{
    struct err err = {0};
    start();
    for (int i = 0; i < 200; i++, rig_tick(&r, 100)) {
        if (rig_count(&r, CORE_CALL_LEASE_GET))
            rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, holder, "1");
        if (rig_count(&r, CORE_CALL_LEASE_WRITE))
            rig_answer(&r, rig_take(&r, CORE_CALL_LEASE_WRITE).call, ERR_FORBIDDEN);
        if (i == 60)
            lists_end();
        if (i < 60)
            continue;
        ck_assert_int_eq(core_may_bind(r.core, r.now, &err), -1);
        ck_assert_str_eq(
            err.msg, "the lease kube-system/gpushare-extender cannot be had: forbidden");
    }
    ck_assert_uint_eq(rig_count(&r, CORE_LOG), notes);
    rig_free(&r);
}

START_TEST(who_cannot_write_the_lease_says_why)
{
    cannot_write("", 1);
    cannot_write("one-that-is-gone", 2); /* it is waited for at first */
}
END_TEST

START_TEST(who_cannot_renew_the_lease_says_why)
{
    struct err err = {0};
    start();
    rig_lead(&r);
    for (int i = 0; i < 60; i++, rig_tick(&r, 100)) {
        if (rig_count(&r, CORE_CALL_LEASE_GET))
            rig_answer(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, ERR_UNAUTHORIZED);
        if (rig_count(&r, CORE_CALL_LEASE_WRITE))
            rig_answer(&r, rig_take(&r, CORE_CALL_LEASE_WRITE).call, ERR_UNAUTHORIZED);
        if (i == 30) {
            core_may_bind(r.core, r.now, &err);
            ck_assert_str_eq(err.msg, "the lease kube-system/gpushare-extender could not "
                                      "be renewed in time: unauthorized");
        }
    }
    core_may_bind(r.core, r.now, &err);
    ck_assert_str_eq(
        err.msg, "the lease kube-system/gpushare-extender cannot be had: unauthorized");
    rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, "other", "7");
    core_may_bind(r.core, r.now, &err);
    ck_assert_ptr_nonnull(strstr(err.msg, "is held by \"other\""));
    rig_free(&r);
}
END_TEST

START_TEST(a_renewed_lease_is_held_longer)
{
    start();
    char version[16] = "0";
    for (int i = 0; i < 200; i++) { /* the other renews every second */
        rig_tick(&r, 100);
        snprintf(version, sizeof version, "%d", i / 10);
        if (rig_count(&r, CORE_CALL_LEASE_GET))
            rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, "other",
                             version);
        ck_assert_uint_eq(rig_count(&r, CORE_CALL_LEASE_WRITE), 0);
    }
    rig_free(&r);
}
END_TEST

/* Renews what it holds for so long; what it writes is not answered by itself. */
static void hold(int64_t ms, const char *uid)
{
    static int version = 100;
    for (int64_t end = r.now.mono_ms + ms; r.now.mono_ms < end; rig_tick(&r, 1)) {
        char text[16];
        snprintf(text, sizeof text, "%d", ++version);
        if (rig_count(&r, CORE_CALL_LEASE_WRITE))
            rig_answer_lease_of(&r, rig_take(&r, CORE_CALL_LEASE_WRITE).call, "me", text,
                                uid);
    }
}

START_TEST(an_absent_lease_is_made_but_somebody_may_hold_it_for_its_time)
{
    start();
    rig_answer(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, ERR_NOT_FOUND);
    struct core_output put = rig_take(&r, CORE_CALL_LEASE_WRITE);
    ck_assert(put.create);
    ck_assert_span_eq(object_lease(&r.arena, span_of(put.body)).meta.version, "");
    rig_answer_lease_of(&r, put.call, "me", "1", "uid-1");
    ck_assert_uint_eq(rig_count(&r, CORE_LIST), CORE_KINDS); /* filters soon */
    lists_end();
    hold(CORE_LEASE_MS - 1, "uid-1");
    struct err err = {0};
    ck_assert_int_eq(core_may_bind(r.core, r.now, &err), -1);
    ck_assert_ptr_nonnull(strstr(err.msg, "made anew"));
    hold(2, "uid-1");
    ck_assert(core_is_leader(r.core));
    rig_list_end(&r, CORE_PODS);
    ck_assert(may_bind());
    rig_free(&r);
}
END_TEST

START_TEST(a_lease_that_was_made_and_deleted_between_two_looks_may_be_somebodys)
{
    start();
    rig_answer(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, ERR_NOT_FOUND);
    rig_answer_lease_of(&r, rig_take(&r, CORE_CALL_LEASE_WRITE).call, "me", "1", "uid-1");
    hold(CORE_LEASE_MS - 100, "uid-1");
    rig_tick(&r, CORE_RENEW_MS);
    rig_answer(&r, rig_take(&r, CORE_CALL_LEASE_WRITE).call, ERR_CONFLICT);
    /* Somebody has put an empty one there. */
    rig_answer_lease_of(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, "", "7", "uid-2");
    rig_answer_lease_of(&r, rig_take(&r, CORE_CALL_LEASE_WRITE).call, "me", "8", "uid-2");
    hold(CORE_LEASE_MS - 1, "uid-2");
    ck_assert(!core_is_leader(r.core));
    hold(2, "uid-2");
    ck_assert(core_is_leader(r.core));
    rig_free(&r);
}
END_TEST

START_TEST(binds_stop_before_the_lease_can_be_over)
{
    start();
    rig_lead(&r);
    int64_t renewed = r.now.mono_ms;
    int64_t last = renewed + CORE_LEASE_MS - CORE_BIND_LIMIT_MS - CORE_SLACK_MS;
    while (r.now.mono_ms <= last) {
        ck_assert(may_bind());
        rig_tick(&r, 50);
        core_outputs_reset(&r.out); /* renewals get no answer */
    }
    /* One that leaves now can end at the very moment at which another gets the lease. */
    struct err err = {0};
    ck_assert_int_eq(core_may_bind(r.core, r.now, &err), -1);
    ck_assert_ptr_nonnull(strstr(err.msg, "could not be renewed in time"));
    rig_free(&r);
}
END_TEST

START_TEST(clocks_that_disagree_stop_binds_until_the_lease_is_renewed)
{
    static const int64_t apart_ms[] = {6000, -3600 * 1000, CLOCK_APART_MS + 1};
    for (size_t i = 0; i < ARRAY_LEN(apart_ms); i++) {
        start();
        rig_lead(&r);
        r.now.wall_ns += CLOCK_APART_MS * 1000000;
        ck_assert(may_bind()); /* as much is rounding */
        r.now.wall_ns += (apart_ms[i] - CLOCK_APART_MS) * 1000000;
        struct err err = {0};
        ck_assert_int_eq(core_may_bind(r.core, r.now, &err), -1);
        ck_assert_ptr_nonnull(strstr(err.msg, "stood still"));
        rig_tick(&r, CORE_RENEW_MS);
        rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_WRITE).call, "me", "3");
        ck_assert(may_bind());
        rig_free(&r);
    }
}
END_TEST

START_TEST(a_binding_must_leave_while_the_lease_allows_it)
{
    start();
    rig_lead(&r);
    int64_t renewed = r.now.mono_ms;
    rig_scv(&r, object_scv_even(&r.arena, "n1", 1, 16000));
    rig_pod(&r, object_pod_mem(&r.arena, "a", 100), false);
    rig_tick(&r, 1300);
    rig_bind(&r, 1, "a", "n1");
    ck_assert_int_eq(rig_take(&r, CORE_CALL_BIND).send_by.mono_ms,
                     renewed + CORE_LEASE_MS - CORE_BIND_LIMIT_MS - CORE_SLACK_MS);
    rig_free(&r);
}
END_TEST

START_TEST(the_lease_is_renewed_with_its_version)
{
    start();
    rig_lead(&r);
    rig_tick(&r, CORE_RENEW_MS);
    struct core_output put = rig_take(&r, CORE_CALL_LEASE_WRITE);
    struct lease lease = object_lease(&r.arena, span_of(put.body));
    ck_assert_span_eq(lease.meta.version, "2");
    ck_assert_span_eq(lease.holder, "me");
    rig_answer_lease(&r, put.call, "me", "3");
    rig_tick(&r, CORE_RENEW_MS);
    put = rig_take(&r, CORE_CALL_LEASE_WRITE);
    ck_assert_span_eq(object_lease(&r.arena, span_of(put.body)).meta.version, "3");
    rig_free(&r);
}
END_TEST

START_TEST(a_lost_renewal_is_looked_into_and_made_again)
{
    start();
    rig_lead(&r);
    rig_tick(&r, CORE_RENEW_MS);
    rig_answer(&r, rig_take(&r, CORE_CALL_LEASE_WRITE).call, ERR_TIMEOUT);
    rig_tick(&r, 500);
    rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, "me", "9");
    struct core_output put = rig_take(&r, CORE_CALL_LEASE_WRITE);
    ck_assert_span_eq(object_lease(&r.arena, span_of(put.body)).meta.version, "9");
    rig_answer_lease(&r, put.call, "me", "10");
    ck_assert(may_bind());
    ck_assert_uint_eq(rig_count(&r, CORE_LIST), 0); /* it was ours all the time */
    rig_free(&r);
}
END_TEST

START_TEST(who_lost_the_lease_binds_no_more)
{
    start();
    rig_lead(&r);
    rig_tick(&r, CORE_RENEW_MS);
    rig_answer(&r, rig_take(&r, CORE_CALL_LEASE_WRITE).call, ERR_CONFLICT);
    rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, "other", "9");
    ck_assert(!core_is_leader(r.core));
    ck_assert(!may_bind());
    rig_free(&r);
}
END_TEST

START_TEST(a_deleted_lease_is_made_again_by_its_holder)
{
    start();
    rig_lead(&r);
    rig_tick(&r, CORE_RENEW_MS);
    rig_answer(&r, rig_take(&r, CORE_CALL_LEASE_WRITE).call, ERR_NOT_FOUND);
    rig_tick(&r, 500);
    rig_answer(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, ERR_NOT_FOUND);
    struct core_output put = rig_take(&r, CORE_CALL_LEASE_WRITE);
    ck_assert(put.create);
    rig_answer_lease(&r, put.call, "me", "1");
    ck_assert(may_bind());
    rig_free(&r);
}
END_TEST

START_TEST(who_could_not_renew_in_time_and_makes_it_anew_does_not_lead)
{
    start();
    rig_lead(&r);
    rig_tick(&r, CORE_RENEW_MS);
    struct core_output put = rig_take(&r, CORE_CALL_LEASE_WRITE);
    rig_tick(&r, CORE_LEASE_MS); /* paused; somebody else held it and it was deleted */
    rig_answer(&r, put.call, ERR_TIMEOUT);
    ck_assert(!core_is_leader(r.core));
    rig_tick(&r, 500);
    rig_answer(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, ERR_NOT_FOUND);
    rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_WRITE).call, "me", "1");
    ck_assert(!core_is_leader(r.core));
    hold(CORE_LEASE_MS - 1, "");
    ck_assert(!core_is_leader(r.core));
    hold(2, "");
    ck_assert(core_is_leader(r.core));
    rig_free(&r);
}
END_TEST

START_TEST(a_clean_stop_gives_the_lease_back_when_no_bind_is_in_flight)
{
    start();
    rig_lead(&r);
    rig_scv(&r, object_scv_even(&r.arena, "n1", 1, 16000));
    rig_pod(&r, object_pod_mem(&r.arena, "a", 100), false);
    rig_bind(&r, 1, "a", "n1");
    struct core_output bind = rig_take(&r, CORE_CALL_BIND);
    rig_step(&r, (struct core_input){.type = CORE_STOP});
    ck_assert(!core_stopped(r.core));
    ck_assert_uint_eq(rig_count(&r, CORE_CALL_LEASE_WRITE), 0);
    rig_bind(&r, 2, "b", "n1");
    ck_assert_int_eq(rig_take(&r, CORE_REPLY).code, ERR_UNAVAILABLE);
    rig_answer(&r, bind.call, ERR_NONE);
    struct core_output put = rig_take(&r, CORE_CALL_LEASE_WRITE);
    ck_assert_span_eq(object_lease(&r.arena, span_of(put.body)).holder, "");
    ck_assert(!core_stopped(r.core));
    rig_answer_lease(&r, put.call, "", "9");
    ck_assert(core_stopped(r.core));
    /* It looks who holds it next, and takes it no more. */
    for (int i = 0; i < 20; i++) {
        rig_tick(&r, 500);
        rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, "", "9");
        ck_assert_uint_eq(rig_count(&r, CORE_CALL_LEASE_WRITE), 0);
        ck_assert(core_stopped(r.core));
    }
    rig_tick(&r, 500);
    rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, "o@10.0.0.2:1", "10");
    struct bind_route way = core_bind_route(r.core, r.now, false, NULL);
    ck_assert_int_eq(way.route, BIND_ROUTE_FORWARD);
    ck_assert_span_eq(way.address, "10.0.0.2:1");
    rig_free(&r);
}
END_TEST

START_TEST(a_give_back_that_fails_is_made_again)
{
    start();
    rig_lead(&r);
    rig_step(&r, (struct core_input){.type = CORE_STOP});
    rig_answer(&r, rig_take(&r, CORE_CALL_LEASE_WRITE).call, ERR_UNAVAILABLE);
    ck_assert(!core_stopped(r.core));
    rig_tick(&r, 500);
    rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, "me", "2");
    struct core_output put = rig_take(&r, CORE_CALL_LEASE_WRITE);
    ck_assert_span_eq(object_lease(&r.arena, span_of(put.body)).holder, "");
    rig_answer_lease(&r, put.call, "", "3");
    ck_assert(core_stopped(r.core));
    rig_free(&r);
}
END_TEST

static enum bind_route_kind route(bool forwarded)
{
    return core_bind_route(r.core, r.now, forwarded, NULL).route;
}

START_TEST(a_bind_goes_to_the_holder_as_long_as_it_may_be_one)
{
    start();
    for (int kind = 0; kind < CORE_KINDS; kind++)
        if (kind != CORE_PODS)
            rig_list_end(&r, (enum core_kind)kind);
    ck_assert_int_eq(route(false), BIND_ROUTE_WAIT);
    rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, "h_1@10.0.0.9:12345",
                     "1");
    rig_list_end(&r, CORE_PODS);
    ck_assert_int_eq(core_ready(r.core, r.now, NULL), 0);
    struct bind_route way = core_bind_route(r.core, r.now, false, NULL);
    ck_assert_int_eq(way.route, BIND_ROUTE_FORWARD);
    ck_assert_span_eq(way.address, "10.0.0.9:12345");
    ck_assert_int_eq(way.until_ms, r.now.mono_ms + CORE_LEASE_MS);
    ck_assert_int_eq(route(true), BIND_ROUTE_REJECT);
    r.now.mono_ms += CORE_LEASE_MS - 1;
    ck_assert_int_eq(route(false), BIND_ROUTE_FORWARD);
    r.now.mono_ms++;
    ck_assert_int_eq(route(false), BIND_ROUTE_WAIT);
    rig_tick(&r, 0);
    rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, "h_1@10.0.0.9:12345",
                     "1");
    rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_WRITE).call, "me", "2");
    ck_assert(core_is_leader(r.core));
    ck_assert_int_eq(route(false), BIND_ROUTE_WAIT); /* the pods are listed first */
    ck_assert_int_eq(route(true), BIND_ROUTE_WAIT);
    rig_list_end(&r, CORE_PODS);
    ck_assert_int_eq(route(false), BIND_ROUTE_LOCAL);
    ck_assert_int_eq(route(true), BIND_ROUTE_LOCAL);
    rig_step(&r, (struct core_input){.type = CORE_STOP});
    ck_assert_int_eq(route(false), BIND_ROUTE_WAIT);
    ck_assert_int_eq(route(true), BIND_ROUTE_REJECT);
    rig_free(&r);
}
END_TEST

START_TEST(who_cannot_ask_for_the_lease_asks_the_last_holder)
{
    start();
    rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, "h_1@10.0.0.9:1", "1");
    for (int kind = 0; kind < CORE_KINDS; kind++)
        rig_list_end(&r, (enum core_kind)kind);
    for (int i = 0; i < 20; i++) {
        rig_tick(&r, 500);
        rig_answer(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, ERR_UNAVAILABLE);
        ck_assert_int_eq(route(false), BIND_ROUTE_FORWARD);
        ck_assert_int_eq(route(true), BIND_ROUTE_REJECT);
    }
    /* It answers again, and nobody has renewed: ours soon. */
    rig_tick(&r, 500);
    rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, "h_1@10.0.0.9:1", "1");
    rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_WRITE).call, "me", "2");
    ck_assert_int_eq(route(false), BIND_ROUTE_WAIT);
    rig_free(&r);
}
END_TEST

/* Who may write the Lease must not be able to send binds to any URL. */
START_TEST(an_address_that_is_none_is_not_gone_to)
{
    static const char *const holders[] = {
        "nobody", "x@", "x@a b", "x@10.0.0.1:1/../x", "x@u%40h:1", "x@h:1?a", "x@h:1#",
    };
    for (size_t i = 0; i < ARRAY_LEN(holders); i++) {
        start();
        rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, holders[i], "1");
        for (int kind = 0; kind < CORE_KINDS; kind++)
            rig_list_end(&r, (enum core_kind)kind);
        ck_assert_msg(route(false) == BIND_ROUTE_WAIT, "%s", holders[i]);
        rig_free(&r);
    }
}
END_TEST

START_TEST(who_asks_for_a_look_gets_one_soon)
{
    start();
    rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, "other", "1");
    for (int i = 0; i < 10; i++) {
        rig_tick(&r, 1);
        rig_step(&r, (struct core_input){.type = CORE_REFRESH_LEASE});
    }
    ck_assert_uint_eq(rig_count(&r, CORE_CALL_LEASE_GET), 0);
    rig_tick(&r, 40);
    rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, "", "2");
    rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_WRITE).call, "me", "3");
    ck_assert(core_is_leader(r.core));
    rig_step(&r, (struct core_input){.type = CORE_REFRESH_LEASE});
    rig_tick(&r, 100);
    ck_assert_uint_eq(rig_count(&r, CORE_CALL_LEASE_GET), 0);
    rig_free(&r);
}
END_TEST

START_TEST(the_address_is_told_in_the_lease)
{
    struct core_settings settings = {.identity = "me",
                                     .ledger.unit_mib = 1,
                                     .lease_namespace = "n",
                                     .lease_name = "l"};
    struct core_outputs out = {0};
    struct core *core = core_new(&settings);
    struct lease lease = {.meta = {.version = SPAN("1")}};
    core_advertise(core, "10.1.2.3:4");
    core_step(core, (struct core_time){1000, 0}, &(struct core_input){.type = CORE_TICK},
              &out);
    struct core_input answer = {.type = CORE_ANSWER, .lease = &lease};
    for (size_t i = 0; i < out.n; i++)
        if (out.items[i].type == CORE_CALL_LEASE_GET)
            answer.call = out.items[i].call;
    core_outputs_reset(&out);
    core_step(core, (struct core_time){1000, 0}, &answer, &out);
    ck_assert_ptr_nonnull(
        strstr(out.items[0].body, "\"holderIdentity\":\"me@10.1.2.3:4\""));
    core_outputs_fini(&out);
    core_free(core);
}
END_TEST

/* A process that came anew on the same machine has the address of the one before. */
START_TEST(nobody_hands_binds_on_to_itself)
{
    start();
    core_advertise(r.core, "10.0.0.9:1");
    rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, "before@10.0.0.9:1",
                     "1");
    for (int kind = 0; kind < CORE_KINDS; kind++)
        rig_list_end(&r, (enum core_kind)kind);
    ck_assert_int_eq(route(false), BIND_ROUTE_WAIT);
    rig_free(&r);
    start();
    core_advertise(r.core, "10.0.0.9:1");
    rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, "other@10.0.0.9:12",
                     "1");
    for (int kind = 0; kind < CORE_KINDS; kind++)
        rig_list_end(&r, (enum core_kind)kind);
    ck_assert_int_eq(route(false), BIND_ROUTE_FORWARD);
    rig_free(&r);
}
END_TEST

START_TEST(who_never_held_it_has_nothing_to_give_back)
{
    start();
    rig_answer_lease(&r, rig_take(&r, CORE_CALL_LEASE_GET).call, "other", "1");
    rig_step(&r, (struct core_input){.type = CORE_STOP});
    ck_assert(core_stopped(r.core));
    ck_assert_uint_eq(rig_count(&r, CORE_CALL_LEASE_WRITE), 0);
    rig_free(&r);
}
END_TEST

UNIT_MAIN("lease", a_free_lease_is_taken_before_the_pods_are_listed,
          a_held_lease_is_waited_for_and_the_pods_listed_again,
          when_another_was_seen_to_lead_can_be_asked,
          a_failure_that_lasts_is_told_once_a_minute, who_cannot_write_the_lease_says_why,
          who_cannot_renew_the_lease_says_why, a_renewed_lease_is_held_longer,
          an_absent_lease_is_made_but_somebody_may_hold_it_for_its_time,
          a_lease_that_was_made_and_deleted_between_two_looks_may_be_somebodys,
          binds_stop_before_the_lease_can_be_over,
          clocks_that_disagree_stop_binds_until_the_lease_is_renewed,
          a_binding_must_leave_while_the_lease_allows_it,
          the_lease_is_renewed_with_its_version,
          a_lost_renewal_is_looked_into_and_made_again, who_lost_the_lease_binds_no_more,
          a_deleted_lease_is_made_again_by_its_holder,
          who_could_not_renew_in_time_and_makes_it_anew_does_not_lead,
          a_clean_stop_gives_the_lease_back_when_no_bind_is_in_flight,
          a_give_back_that_fails_is_made_again,
          a_bind_goes_to_the_holder_as_long_as_it_may_be_one,
          who_cannot_ask_for_the_lease_asks_the_last_holder,
          an_address_that_is_none_is_not_gone_to, who_asks_for_a_look_gets_one_soon,
          the_address_is_told_in_the_lease, nobody_hands_binds_on_to_itself,
          who_never_held_it_has_nothing_to_give_back)
