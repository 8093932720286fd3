/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/registration.h"

#include "support/unit.h"

static struct registration e;

/* Registers, up to the open stream. */
static void up(void)
{
    registration_init(&e);
    ck_assert_int_eq(registration_next(&e, 0), REGISTRATION_NOTHING);
    registration_set_wanted(&e, true);
    ck_assert_int_eq(registration_next(&e, 0), REGISTRATION_NOTHING); /* no kubelet */
    ck_assert(registration_due(&e) == INT64_MAX);
    registration_kubelet_socket(&e, 0, 7);
    ck_assert_int_eq(registration_next(&e, 0), REGISTRATION_SERVE);
    registration_serving(&e, 0, true);
    ck_assert_int_eq(registration_next(&e, 0), REGISTRATION_REGISTER);
    ck_assert_int_eq(registration_next(&e, 0), REGISTRATION_NOTHING);
    registration_answered(&e, 10, true);
    registration_stream(&e, 20, true, false);
    ck_assert_int_eq(e.state, REGISTRATION_REGISTERED);
    ck_assert_int_eq(registration_next(&e, 100000), REGISTRATION_NOTHING);
}

START_TEST(the_endpoint_is_served_before_register)
{
    up();
    ck_assert_uint_eq(e.registered, 1);
}
END_TEST

START_TEST(the_stream_can_open_before_the_answer)
{
    registration_init(&e);
    registration_set_wanted(&e, true);
    registration_kubelet_socket(&e, 0, 7);
    registration_next(&e, 0);
    registration_serving(&e, 0, true);
    registration_next(&e, 0);
    registration_stream(&e, 5, true, false);
    registration_answered(&e, 10, true);
    ck_assert_int_eq(e.state, REGISTRATION_REGISTERED);
}
END_TEST

START_TEST(a_rejected_registration_is_retried_with_backoff)
{
    registration_init(&e);
    registration_set_wanted(&e, true);
    registration_kubelet_socket(&e, 0, 7);
    registration_serving(&e, 0, true);
    int64_t now = 0, wait = REGISTRATION_FIRST_RETRY_MS;
    for (int i = 0; i < 12; i++) {
        ck_assert_int_eq(registration_next(&e, now), REGISTRATION_REGISTER);
        registration_answered(&e, now, false);
        ck_assert_int_eq(registration_next(&e, now + wait - 1), REGISTRATION_NOTHING);
        ck_assert_int_eq(registration_due(&e), now + wait);
        now += wait;
        wait =
            wait * 2 > REGISTRATION_LAST_RETRY_MS ? REGISTRATION_LAST_RETRY_MS : wait * 2;
    }
    ck_assert_int_eq(wait, REGISTRATION_LAST_RETRY_MS);
    ck_assert_uint_eq(e.failed, 12);
}
END_TEST

START_TEST(a_registration_without_a_stream_is_retried)
{
    registration_init(&e);
    registration_set_wanted(&e, true);
    registration_kubelet_socket(&e, 0, 7);
    registration_serving(&e, 0, true);
    registration_next(&e, 0);
    registration_answered(&e, 0, true);
    ck_assert_int_eq(registration_due(&e), REGISTRATION_STREAM_MS);
    ck_assert_int_eq(registration_next(&e, REGISTRATION_STREAM_MS), REGISTRATION_NOTHING);
    ck_assert_int_eq(
        registration_next(&e, REGISTRATION_STREAM_MS + REGISTRATION_FIRST_RETRY_MS),
        REGISTRATION_REGISTER);
}
END_TEST

START_TEST(a_closed_stream_is_followed_by_a_delayed_registration)
{
    up();
    registration_stream(&e, 1000, false, false);
    ck_assert_int_eq(registration_next(&e, 1000 + REGISTRATION_SETTLE_MS - 1),
                     REGISTRATION_NOTHING);
    ck_assert_int_eq(registration_next(&e, 1000 + REGISTRATION_SETTLE_MS),
                     REGISTRATION_REGISTER);
    ck_assert_uint_eq(e.lost, 1);
}
END_TEST

START_TEST(a_second_stream_keeps_it_up)
{
    up();
    registration_stream(&e, 1000, true, false);
    registration_stream(&e, 1001, false, false);
    ck_assert_int_eq(e.state, REGISTRATION_REGISTERED);
}
END_TEST

START_TEST(a_new_kubelet_gets_a_new_endpoint)
{
    up();
    registration_kubelet_socket(&e, 1000, 0); /* it stops */
    registration_stream(&e, 1001, false, false);
    registration_serving(&e, 1002, false); /* a starting kubelet removes the endpoints */
    ck_assert_int_eq(registration_next(&e, 60000), REGISTRATION_NOTHING);
    registration_kubelet_socket(&e, 60000, 8);
    ck_assert_int_eq(registration_next(&e, 60000), REGISTRATION_SERVE);
    registration_serving(&e, 60000, true);
    ck_assert_int_eq(registration_next(&e, 60000), REGISTRATION_REGISTER);
}
END_TEST

START_TEST(a_removed_endpoint_is_served_again)
{
    up();
    registration_serving(&e, 1000, false);
    ck_assert_int_eq(registration_next(&e, 1000), REGISTRATION_SERVE);
    registration_serving(&e, 1000, false); /* serving fails */
    ck_assert_int_eq(registration_next(&e, 1000), REGISTRATION_NOTHING);
    ck_assert_int_eq(registration_next(&e, 1000 + REGISTRATION_FIRST_RETRY_MS),
                     REGISTRATION_SERVE);
}
END_TEST

START_TEST(an_older_plugin_yields_to_a_newer_one)
{
    up();
    registration_stream(&e, 1000, false, true);
    ck_assert_int_eq(registration_next(&e, 100000), REGISTRATION_NOTHING);
    ck_assert(!registration_checks_newer_plugin(&e, 1999));
    ck_assert(registration_checks_newer_plugin(&e, 2000));
    registration_newer_plugin(&e, 2000, true);
    ck_assert(!registration_checks_newer_plugin(&e, 2001));
    ck_assert(registration_checks_newer_plugin(&e, 3000));
    registration_newer_plugin(&e, 3000, false);
    ck_assert_int_eq(registration_next(&e, 3000), REGISTRATION_REGISTER);
    /* A new kubelet ends the yielding. */
    up();
    registration_stream(&e, 1000, false, true);
    registration_kubelet_socket(&e, 1500, 9);
    ck_assert_int_eq(registration_next(&e, 1500), REGISTRATION_REGISTER);
}
END_TEST

START_TEST(a_kubelet_restart_during_register_is_retried)
{
    registration_init(&e);
    registration_set_wanted(&e, true);
    registration_kubelet_socket(&e, 0, 7);
    registration_serving(&e, 0, true);
    registration_next(&e, 0);
    registration_kubelet_socket(&e, 5, 8);
    registration_answered(&e, 6, false);
    ck_assert_int_eq(registration_next(&e, 6 + REGISTRATION_FIRST_RETRY_MS),
                     REGISTRATION_REGISTER);
}
END_TEST

START_TEST(the_missing_step_is_named)
{
    registration_init(&e);
    registration_set_wanted(&e, true);
    ck_assert_str_eq(registration_missing(&e), "waiting for the kubelet");
    registration_kubelet_socket(&e, 0, 7);
    ck_assert_str_eq(registration_missing(&e), "retrying");
    registration_serving(&e, 0, true);
    registration_next(&e, 0);
    ck_assert_str_eq(registration_missing(&e),
                     "waiting for the kubelet to answer Register");
    registration_answered(&e, 10, true);
    ck_assert_str_eq(registration_missing(&e),
                     "waiting for the kubelet to open ListAndWatch");
    registration_stream(&e, 20, true, false);
    ck_assert_ptr_null(registration_missing(&e));
    registration_stream(&e, 1000, false, true);
    ck_assert_str_eq(registration_missing(&e), "a newer plugin of this node serves it");
}
END_TEST

UNIT_MAIN("registration", the_endpoint_is_served_before_register,
          the_stream_can_open_before_the_answer,
          a_rejected_registration_is_retried_with_backoff,
          a_registration_without_a_stream_is_retried,
          a_closed_stream_is_followed_by_a_delayed_registration,
          a_second_stream_keeps_it_up, a_new_kubelet_gets_a_new_endpoint,
          a_removed_endpoint_is_served_again, an_older_plugin_yields_to_a_newer_one,
          a_kubelet_restart_during_register_is_retried, the_missing_step_is_named)
