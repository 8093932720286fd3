/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/enroll.h"

#include "lib/unit.h"

static struct enroll e;

/* Up to the open stream. */
static void up(void)
{
    enroll_init(&e);
    ck_assert_int_eq(enroll_next(&e, 0), ENROLL_NOTHING);
    enroll_want(&e, true);
    ck_assert_int_eq(enroll_next(&e, 0), ENROLL_NOTHING); /* there is no kubelet */
    ck_assert(enroll_due(&e) == INT64_MAX);
    enroll_kubelet(&e, 0, 7);
    ck_assert_int_eq(enroll_next(&e, 0), ENROLL_SERVE);
    enroll_served(&e, 0, true);
    ck_assert_int_eq(enroll_next(&e, 0), ENROLL_REGISTER);
    ck_assert_int_eq(enroll_next(&e, 0), ENROLL_NOTHING);
    enroll_answered(&e, 10, true);
    enroll_stream(&e, 20, true, false);
    ck_assert_int_eq(e.state, ENROLL_UP);
    ck_assert_int_eq(enroll_next(&e, 100000), ENROLL_NOTHING);
}

START_TEST(it_serves_and_then_registers)
{
    up();
    ck_assert_uint_eq(e.registered, 1);
}
END_TEST

START_TEST(the_stream_may_come_before_the_answer)
{
    enroll_init(&e);
    enroll_want(&e, true);
    enroll_kubelet(&e, 0, 7);
    enroll_next(&e, 0);
    enroll_served(&e, 0, true);
    enroll_next(&e, 0);
    enroll_stream(&e, 5, true, false);
    enroll_answered(&e, 10, true);
    ck_assert_int_eq(e.state, ENROLL_UP);
}
END_TEST

START_TEST(a_refusal_is_tried_again_with_patience)
{
    enroll_init(&e);
    enroll_want(&e, true);
    enroll_kubelet(&e, 0, 7);
    enroll_served(&e, 0, true);
    int64_t now = 0, wait = ENROLL_FIRST_RETRY_MS;
    for (int i = 0; i < 12; i++) {
        ck_assert_int_eq(enroll_next(&e, now), ENROLL_REGISTER);
        enroll_answered(&e, now, false);
        ck_assert_int_eq(enroll_next(&e, now + wait - 1), ENROLL_NOTHING);
        ck_assert_int_eq(enroll_due(&e), now + wait);
        now += wait;
        wait = wait * 2 > ENROLL_LAST_RETRY_MS ? ENROLL_LAST_RETRY_MS : wait * 2;
    }
    ck_assert_int_eq(wait, ENROLL_LAST_RETRY_MS);
    ck_assert_uint_eq(e.failed, 12);
}
END_TEST

START_TEST(without_a_stream_it_does_not_count)
{
    enroll_init(&e);
    enroll_want(&e, true);
    enroll_kubelet(&e, 0, 7);
    enroll_served(&e, 0, true);
    enroll_next(&e, 0);
    enroll_answered(&e, 0, true);
    ck_assert_int_eq(enroll_due(&e), ENROLL_STREAM_MS);
    ck_assert_int_eq(enroll_next(&e, ENROLL_STREAM_MS), ENROLL_NOTHING);
    ck_assert_int_eq(enroll_next(&e, ENROLL_STREAM_MS + ENROLL_FIRST_RETRY_MS),
                     ENROLL_REGISTER);
}
END_TEST

START_TEST(a_stream_that_ends_is_waited_out)
{
    up();
    enroll_stream(&e, 1000, false, false);
    ck_assert_int_eq(enroll_next(&e, 1000 + ENROLL_SETTLE_MS - 1), ENROLL_NOTHING);
    ck_assert_int_eq(enroll_next(&e, 1000 + ENROLL_SETTLE_MS), ENROLL_REGISTER);
    ck_assert_uint_eq(e.lost, 1);
}
END_TEST

START_TEST(a_second_stream_keeps_it_up)
{
    up();
    enroll_stream(&e, 1000, true, false);
    enroll_stream(&e, 1001, false, false);
    ck_assert_int_eq(e.state, ENROLL_UP);
}
END_TEST

START_TEST(a_new_kubelet_gets_a_new_socket)
{
    up();
    enroll_kubelet(&e, 1000, 0); /* it stops */
    enroll_stream(&e, 1001, false, false);
    enroll_served(&e, 1002, false); /* and removes our socket when it starts */
    ck_assert_int_eq(enroll_next(&e, 60000), ENROLL_NOTHING);
    enroll_kubelet(&e, 60000, 8);
    ck_assert_int_eq(enroll_next(&e, 60000), ENROLL_SERVE);
    enroll_served(&e, 60000, true);
    ck_assert_int_eq(enroll_next(&e, 60000), ENROLL_REGISTER);
}
END_TEST

START_TEST(a_socket_that_was_removed_is_made_anew)
{
    up();
    enroll_served(&e, 1000, false);
    ck_assert_int_eq(enroll_next(&e, 1000), ENROLL_SERVE);
    enroll_served(&e, 1000, false); /* it cannot be made */
    ck_assert_int_eq(enroll_next(&e, 1000), ENROLL_NOTHING);
    ck_assert_int_eq(enroll_next(&e, 1000 + ENROLL_FIRST_RETRY_MS), ENROLL_SERVE);
}
END_TEST

START_TEST(a_newer_plugin_goes_before)
{
    up();
    enroll_stream(&e, 1000, false, true);
    ck_assert_int_eq(enroll_next(&e, 100000), ENROLL_NOTHING);
    ck_assert(!enroll_looks_for_rival(&e, 1999));
    ck_assert(enroll_looks_for_rival(&e, 2000));
    enroll_rival(&e, 2000, true);
    ck_assert(!enroll_looks_for_rival(&e, 2001));
    ck_assert(enroll_looks_for_rival(&e, 3000));
    enroll_rival(&e, 3000, false);
    ck_assert_int_eq(enroll_next(&e, 3000), ENROLL_REGISTER);
    /* A new kubelet begins anew for both. */
    up();
    enroll_stream(&e, 1000, false, true);
    enroll_kubelet(&e, 1500, 9);
    ck_assert_int_eq(enroll_next(&e, 1500), ENROLL_REGISTER);
}
END_TEST

START_TEST(a_kubelet_that_changes_during_the_call)
{
    enroll_init(&e);
    enroll_want(&e, true);
    enroll_kubelet(&e, 0, 7);
    enroll_served(&e, 0, true);
    enroll_next(&e, 0);
    enroll_kubelet(&e, 5, 8);
    enroll_answered(&e, 6, false);
    ck_assert_int_eq(enroll_next(&e, 6 + ENROLL_FIRST_RETRY_MS), ENROLL_REGISTER);
}
END_TEST

START_TEST(what_is_missing_is_said)
{
    enroll_init(&e);
    enroll_want(&e, true);
    ck_assert_str_eq(enroll_waits_for(&e), "waiting for the kubelet");
    enroll_kubelet(&e, 0, 7);
    ck_assert_str_eq(enroll_waits_for(&e), "trying again soon");
    enroll_served(&e, 0, true);
    enroll_next(&e, 0);
    ck_assert_str_eq(enroll_waits_for(&e), "the kubelet has not answered yet");
    enroll_answered(&e, 10, true);
    ck_assert_str_eq(enroll_waits_for(&e), "the kubelet has not asked for the list yet");
    enroll_stream(&e, 20, true, false);
    ck_assert_ptr_null(enroll_waits_for(&e));
    enroll_stream(&e, 1000, false, true);
    ck_assert_str_eq(enroll_waits_for(&e), "a newer plugin of this node serves it");
}
END_TEST

UNIT_MAIN("enroll", it_serves_and_then_registers, the_stream_may_come_before_the_answer,
          a_refusal_is_tried_again_with_patience, without_a_stream_it_does_not_count,
          a_stream_that_ends_is_waited_out, a_second_stream_keeps_it_up,
          a_new_kubelet_gets_a_new_socket, a_socket_that_was_removed_is_made_anew,
          a_newer_plugin_goes_before, a_kubelet_that_changes_during_the_call,
          what_is_missing_is_said)
