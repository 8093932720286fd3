/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rig.h"

/* The Lease that the call writes. */
static struct lease lease_of(struct core_output put)
{
    return object_lease(&r.arena, span_of(put.body));
}

static bool may_bind(void)
{
    return core_check_may_bind(r.core, r.now, NULL) == 0;
}

/* Why no pod can be bound. */
static const char *no_bind(void)
{
    static struct err err;
    ck_assert_int_eq(core_check_may_bind(r.core, r.now, &err), -1);
    return err.msg;
}

TEST(a_free_lease_is_acquired_before_the_pods_are_listed)
{
    rig_start();
    ck_count(CORE_LIST, CORE_KINDS - 1);
    struct core_output get = rig_take(CORE_CALL_LEASE_GET);
    ck_assert_str_eq(get.ns, "kube-system");
    ck_assert_str_eq(get.name, "gpushare-extender");
    rig_answer_lease(get.call, "", "1");
    struct core_output put = rig_take(CORE_CALL_LEASE_WRITE);
    ck_assert(!put.create);
    struct lease written = lease_of(put);
    ck_assert_span_eq(written.holder, "me");
    ck_assert_span_eq(written.meta.version, "1");
    ck_assert_int_eq(written.duration_s, 5);
    ck_count(CORE_LIST, CORE_KINDS - 1);
    rig_answer_lease(put.call, "me", "2");
    ck_count(CORE_LIST, CORE_KINDS); /* once */
    ck_assert(core_is_leader(r.core));
    ck_assert(!may_bind());
    rig_lists_end();
    ck_assert(may_bind());
}

TEST(the_time_of_the_last_other_leader_is_known)
{
    rig_start();
    ck_assert_int_eq(core_other_leader_ms(r.core), 0);
    rig_lease_read("other", "1");
    int64_t seen = r.now.mono_ms;
    ck_assert_int_eq(core_other_leader_ms(r.core), seen);
    rig_tick(500);
    rig_lease_read("other", "1");
    ck_assert_int_eq(core_other_leader_ms(r.core), seen); /* not renewed */
    rig_tick(500);
    rig_lease_read("other", "2");
    ck_assert_int_eq(core_other_leader_ms(r.core), seen + 1000);
    rig_tick(500);
    rig_lease_read("", "3"); /* released */
    ck_assert_int_eq(core_other_leader_ms(r.core), 0);
    rig_lease_written("me", "4");
    ck_assert_int_eq(core_other_leader_ms(r.core), 0);
}

/* The Lease can be read but not written: binds get the reason, and it is logged once. */
static void cannot_write(const char *holder, size_t notes)
{
    rig_start();
    for (int i = 0; i < 200; i++, rig_tick(100)) {
        if (rig_count(CORE_CALL_LEASE_GET))
            rig_lease_read(holder, "1");
        if (rig_count(CORE_CALL_LEASE_WRITE))
            rig_end(CORE_CALL_LEASE_WRITE, ERR_FORBIDDEN);
        if (i == 60)
            rig_lists_end();
        if (i < 60)
            continue;
        ck_assert_str_eq(no_bind(),
                         "cannot acquire lease kube-system/gpushare-extender: forbidden");
    }
    ck_assert_uint_eq(r.out.n_lines, notes);
}

TEST(a_process_that_cannot_write_the_lease_gives_the_reason)
{
    cannot_write("", 1);
    cannot_write("crashed", 2); /* waits for it at first */
}

TEST(a_leader_that_cannot_renew_gives_the_reason)
{
    rig_start();
    rig_lead();
    for (int i = 0; i < 60; i++, rig_tick(100)) {
        if (rig_count(CORE_CALL_LEASE_GET))
            rig_end(CORE_CALL_LEASE_GET, ERR_UNAUTHORIZED);
        if (rig_count(CORE_CALL_LEASE_WRITE))
            rig_end(CORE_CALL_LEASE_WRITE, ERR_UNAUTHORIZED);
        if (i == 30) {
            ck_assert_str_eq(no_bind(),
                             "lease kube-system/gpushare-extender was not renewed "
                             "in time: unauthorized");
        }
    }
    ck_assert_str_eq(no_bind(),
                     "cannot acquire lease kube-system/gpushare-extender: unauthorized");
    rig_lease_read("other", "7");
    ck_assert_contains(no_bind(), "is held by \"other\"");
}

/* Answers renewals for `ms`; other writes get no answer. */
static void hold(int64_t ms, const char *uid)
{
    static int version = 100;
    for (int64_t end = r.now.mono_ms + ms; r.now.mono_ms < end; rig_tick(1)) {
        char text[16];
        snprintf(text, sizeof text, "%d", ++version);
        if (rig_count(CORE_CALL_LEASE_WRITE))
            rig_answer_lease_of(rig_take(CORE_CALL_LEASE_WRITE).call, "me", text, uid);
    }
}

TEST(a_created_lease_leads_only_after_one_lease_duration)
{
    rig_start();
    rig_end(CORE_CALL_LEASE_GET, ERR_NOT_FOUND);
    struct core_output put = rig_take(CORE_CALL_LEASE_WRITE);
    ck_assert(put.create);
    ck_assert_span_eq(lease_of(put).meta.version, "");
    rig_answer_lease_of(put.call, "me", "1", "uid-1");
    ck_count(CORE_LIST, CORE_KINDS); /* filters soon */
    rig_lists_end();
    hold(CORE_LEASE_MS - 1, "uid-1");
    ck_assert_contains(no_bind(), "was recreated");
    hold(2, "uid-1");
    ck_assert(core_is_leader(r.core));
    rig_list_end(CORE_PODS);
    ck_assert(may_bind());
}

TEST(binds_stop_before_the_lease_can_expire)
{
    rig_start();
    rig_lead();
    int64_t renewed = r.now.mono_ms;
    int64_t last = renewed + CORE_LEASE_MS - CORE_BIND_LIMIT_MS - CORE_SLACK_MS;
    while (r.now.mono_ms <= last) {
        ck_assert(may_bind());
        rig_tick(50);
        rig_reset(); /* renewals get no answer */
    }
    /* A Binding sent now can end in the moment when another process acquires the lease. */
    ck_assert_contains(no_bind(), "was not renewed in time");
}

/* Answers the GET or the write with a Lease of that duration. */
static void answer_lease(enum core_output_type type, const char *holder,
                         const char *version, int64_t duration_s)
{
    struct lease lease = {.holder = span_of(holder),
                          .duration_s = duration_s,
                          .meta = {.version = span_of(version)}};
    rig_step((struct core_input){
        .type = CORE_ANSWER, .call = rig_take(type).call, .lease = &lease});
}

static const int64_t durations[] = {5, 6, 10, 15, 30, 60};

TEST(a_lease_lasts_as_long_as_its_holder_says)
{
    array_items(own, durations) {
        array_items(found, durations) {
            rig_new((struct core_settings){.lease_ms = *own * 1000});
            answer_lease(CORE_CALL_LEASE_GET, "o@h:1", "1", *found);
            rig_lists_end();
            int64_t end = r.now.mono_ms + *found * 1000;
            ck_assert_int_eq(core_bind_route(r.core, r.now, false, NULL).until_ms, end);
            while (!rig_count(CORE_CALL_LEASE_WRITE)) {
                ck_assert_int_le(r.now.mono_ms, end);
                if (rig_count(CORE_CALL_LEASE_GET))
                    answer_lease(CORE_CALL_LEASE_GET, "o@h:1", "1", *found);
                else
                    rig_tick(10);
            }
            ck_assert_int_eq(r.now.mono_ms, end);
            struct core_output put = rig_take(CORE_CALL_LEASE_WRITE);
            ck_assert_int_eq(lease_of(put).duration_s, *own);
            ck_assert_int_eq(put.limit_ms, *own * 500 - 500);
        }
    }
}

TEST(binds_stop_in_time_for_each_lease_duration)
{
    array_items(own, durations) {
        rig_new((struct core_settings){.lease_ms = *own * 1000});
        rig_lead();
        int64_t last = r.now.mono_ms + *own * 1000 - CORE_BIND_LIMIT_MS - CORE_SLACK_MS;
        rig_cards("n1", 1, 16000);
        rig_pending("a", 100);
        rig_tick(last - r.now.mono_ms);
        rig_reset();
        ck_assert(may_bind());
        rig_bind(1, "a", "n1");
        ck_assert_int_le(rig_take(CORE_CALL_BIND).send_by.mono_ms, last);
        rig_tick(1);
        ck_assert(!may_bind());
        ck_assert(core_is_leader(r.core));
        rig_tick(CORE_BIND_LIMIT_MS + CORE_SLACK_MS - 1);
        ck_assert(!core_is_leader(r.core));
    }
}

/* Its previous holder may not know that it was deleted, and had another duration. */
TEST(a_recreated_lease_is_waited_for_as_long_as_any_seen)
{
    static const struct {
        int64_t own, seen, wait;
    } cases[] = {{5, 30, 30}, {30, 5, 30}, {5, 3600, 60}, {5, 0, 5}, {10, -1, 10}};
    array_items(c, cases) {
        rig_new((struct core_settings){.lease_ms = c->own * 1000});
        answer_lease(CORE_CALL_LEASE_GET, "o@h:1", "1", c->seen);
        rig_lists_end();
        rig_tick(500);
        rig_end(CORE_CALL_LEASE_GET, ERR_NOT_FOUND);
        int64_t created = r.now.mono_ms;
        rig_answer_lease_of(rig_take(CORE_CALL_LEASE_WRITE).call, "me", "1", "uid-1");
        while (!core_is_leader(r.core)) {
            ck_assert_int_le(r.now.mono_ms, created + c->wait * 1000 + 500);
            hold(1, "uid-1");
        }
        ck_assert_int_ge(r.now.mono_ms, created + c->wait * 1000);
    }
}

/* Each request takes `ms`. Has the leader led for 140 s (CORE_STALE_MS is longer) without a
 * break, and could it bind in each three seconds? */
static bool bears(int64_t own_s, int64_t ms)
{
    static int version = 1000;
    rig_new((struct core_settings){.lease_ms = own_s * 1000});
    rig_lead();
    int64_t end = r.now.mono_ms + 140 * 1000, sent_ms = 0, could_ms = r.now.mono_ms;
    uint64_t call = 0;
    for (; r.now.mono_ms < end; rig_tick(10)) {
        if (rig_count(CORE_CALL_LEASE_WRITE)) {
            call = rig_take(CORE_CALL_LEASE_WRITE).call;
            sent_ms = r.now.mono_ms;
        }
        if (call && r.now.mono_ms >= sent_ms + ms) {
            char text[16];
            snprintf(text, sizeof text, "%d", ++version);
            uint64_t answered = call;
            call = 0;
            rig_answer_lease(answered, "me", text);
        }
        if (may_bind())
            could_ms = r.now.mono_ms;
        if (!core_is_leader(r.core) || r.now.mono_ms > could_ms + 3000)
            return false;
    }
    return true;
}

/* docs/operations.md has the table. */
TEST(a_leader_bears_requests_of_almost_half_its_lease)
{
    ck_assert(bears(5, 1340));
    ck_assert(!bears(5, 1360)); /* it has no time for a bind */
    ck_assert(bears(10, 4490));
    ck_assert(bears(15, 6990));
    ck_assert(bears(30, 14490));
    ck_assert(bears(60, 29490));
    ck_assert(!bears(60, 30010)); /* the lease expires */
}

TEST(a_clean_stop_releases_the_lease_when_no_bind_is_in_flight)
{
    rig_start();
    rig_lead();
    rig_cards("n1", 1, 16000);
    rig_pending("a", 100);
    rig_bind(1, "a", "n1");
    struct core_output bind = rig_take(CORE_CALL_BIND);
    rig_stop();
    ck_assert(!core_stopped(r.core));
    ck_count(CORE_CALL_LEASE_WRITE, 0);
    rig_bind(2, "b", "n1");
    ck_assert_int_eq(rig_take(CORE_REPLY).code, ERR_UNAVAILABLE);
    rig_answer(bind.call, ERR_NONE);
    struct core_output put = rig_take(CORE_CALL_LEASE_WRITE);
    ck_assert_span_eq(lease_of(put).holder, "");
    ck_assert(!core_stopped(r.core));
    rig_answer_lease(put.call, "", "9");
    ck_assert(core_stopped(r.core));
    /* It follows the next holder, and does not acquire it again. */
    for (int i = 0; i < 20; i++) {
        rig_tick(500);
        rig_lease_read("", "9");
        ck_count(CORE_CALL_LEASE_WRITE, 0);
        ck_assert(core_stopped(r.core));
    }
    rig_tick(500);
    rig_lease_read("o@10.0.0.2:1", "10");
    struct bind_route way = core_bind_route(r.core, r.now, false, NULL);
    ck_assert_int_eq(way.route, BIND_ROUTE_FORWARD);
    ck_assert_span_eq(way.address, "10.0.0.2:1");
}

TEST(a_failed_release_is_retried)
{
    rig_start();
    rig_lead();
    rig_stop();
    rig_end(CORE_CALL_LEASE_WRITE, ERR_UNAVAILABLE);
    ck_assert(!core_stopped(r.core));
    rig_tick(500);
    rig_lease_read("me", "2");
    struct core_output put = rig_take(CORE_CALL_LEASE_WRITE);
    ck_assert_span_eq(lease_of(put).holder, "");
    rig_answer_lease(put.call, "", "3");
    ck_assert(core_stopped(r.core));
}

static enum bind_route_kind route(bool forwarded)
{
    return core_bind_route(r.core, r.now, forwarded, NULL).route;
}

TEST(a_bind_is_forwarded_while_the_holders_lease_is_valid)
{
    rig_start();
    rig_lists_end_but(CORE_PODS);
    ck_assert_int_eq(route(false), BIND_ROUTE_WAIT);
    rig_lease_read("h_1@10.0.0.9:12345", "1");
    rig_list_end(CORE_PODS);
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
    rig_tick(0);
    rig_lease_read("h_1@10.0.0.9:12345", "1");
    rig_lease_written("me", "2");
    ck_assert(core_is_leader(r.core));
    ck_assert_int_eq(route(false), BIND_ROUTE_WAIT); /* the pods are listed first */
    ck_assert_int_eq(route(true), BIND_ROUTE_WAIT);
    rig_list_end(CORE_PODS);
    ck_assert_int_eq(route(false), BIND_ROUTE_LOCAL);
    ck_assert_int_eq(route(true), BIND_ROUTE_LOCAL);
    rig_stop();
    ck_assert_int_eq(route(false), BIND_ROUTE_WAIT);
    ck_assert_int_eq(route(true), BIND_ROUTE_REJECT);
}

TEST(without_api_server_binds_go_to_the_last_holder)
{
    rig_start();
    rig_lease_read("h_1@10.0.0.9:1", "1");
    rig_lists_end();
    for (int i = 0; i < 20; i++) {
        rig_tick(500);
        rig_end(CORE_CALL_LEASE_GET, ERR_UNAVAILABLE);
        ck_assert_int_eq(route(false), BIND_ROUTE_FORWARD);
        ck_assert_int_eq(route(true), BIND_ROUTE_REJECT);
    }
    /* It works again, and the lease was not renewed: acquired soon. */
    rig_tick(500);
    rig_lease_read("h_1@10.0.0.9:1", "1");
    rig_lease_written("me", "2");
    ck_assert_int_eq(route(false), BIND_ROUTE_WAIT);
}

/* A writer of the Lease must not be able to direct binds to any URL. */
TEST(an_invalid_address_is_not_used)
{
    static const char *const holders[] = {
        "nobody", "x@", "x@a b", "x@10.0.0.1:1/../x", "x@u%40h:1", "x@h:1?a", "x@h:1#",
    };
    array_items(holder, holders) {
        rig_start();
        rig_lease_read(*holder, "1");
        rig_lists_end();
        ck_assert_msg(route(false) == BIND_ROUTE_WAIT, "%s", *holder);
    }
}

TEST(a_refresh_sends_a_get_soon)
{
    rig_start();
    rig_lease_read("other", "1");
    for (int i = 0; i < 10; i++) {
        rig_tick(1);
        rig_step((struct core_input){.type = CORE_REFRESH_LEASE});
    }
    ck_count(CORE_CALL_LEASE_GET, 0);
    rig_tick(40);
    rig_lease_read("", "2");
    rig_lease_written("me", "3");
    ck_assert(core_is_leader(r.core));
    rig_step((struct core_input){.type = CORE_REFRESH_LEASE});
    rig_tick(100);
    ck_count(CORE_CALL_LEASE_GET, 0);
}

TEST(the_address_is_part_of_the_identity)
{
    rig_start();
    core_advertise(r.core, "10.1.2.3:4");
    rig_lease_read("", "1");
    ck_assert_span_eq(lease_of(rig_take(CORE_CALL_LEASE_WRITE)).holder, "me@10.1.2.3:4");
}

/* A restarted process on the same machine has the address of its predecessor. */
TEST(no_process_forwards_binds_to_itself)
{
    rig_start();
    core_advertise(r.core, "10.0.0.9:1");
    rig_lease_read("before@10.0.0.9:1", "1");
    rig_lists_end();
    ck_assert_int_eq(route(false), BIND_ROUTE_WAIT);
    rig_start();
    core_advertise(r.core, "10.0.0.9:1");
    rig_lease_read("other@10.0.0.9:12", "1");
    rig_lists_end();
    ck_assert_int_eq(route(false), BIND_ROUTE_FORWARD);
}

TEST(a_process_that_never_led_releases_nothing)
{
    rig_start();
    rig_lease_read("other", "1");
    rig_stop();
    ck_assert(core_stopped(r.core));
    ck_count(CORE_CALL_LEASE_WRITE, 0);
}
