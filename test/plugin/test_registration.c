/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/registration.h"

#include "lib/unit.h"

static struct registration reg;

/* Registers, up to the open stream. */
static void up(void)
{
    registration_init(&reg);
    ck_assert_int_eq(registration_next(&reg, 0), REGISTRATION_NOTHING);
    reg.wanted = true;
    ck_assert_int_eq(registration_next(&reg, 0), REGISTRATION_NOTHING); /* no kubelet */
    ck_assert(registration_due(&reg) == INT64_MAX);
    registration_kubelet_socket(&reg, 0, 7);
    ck_assert_int_eq(registration_next(&reg, 0), REGISTRATION_SERVE);
    registration_serving(&reg, 0, true);
    ck_assert_int_eq(registration_next(&reg, 0), REGISTRATION_REGISTER);
    ck_assert_int_eq(registration_next(&reg, 0), REGISTRATION_NOTHING);
    registration_answered(&reg, 10, true);
    registration_stream(&reg, 20, true, false);
    ck_assert_int_eq(reg.state, REGISTRATION_REGISTERED);
    ck_assert_int_eq(registration_next(&reg, 100000), REGISTRATION_NOTHING);
}

START_TEST(the_endpoint_is_served_before_register)
{
    up();
    ck_assert_uint_eq(reg.registered, 1);
}
END_TEST

START_TEST(the_stream_can_open_before_the_answer)
{
    registration_init(&reg);
    reg.wanted = true;
    registration_kubelet_socket(&reg, 0, 7);
    registration_next(&reg, 0);
    registration_serving(&reg, 0, true);
    registration_next(&reg, 0);
    registration_stream(&reg, 5, true, false);
    registration_answered(&reg, 10, true);
    ck_assert_int_eq(reg.state, REGISTRATION_REGISTERED);
}
END_TEST

START_TEST(a_rejected_registration_is_retried_with_backoff)
{
    registration_init(&reg);
    reg.wanted = true;
    registration_kubelet_socket(&reg, 0, 7);
    registration_serving(&reg, 0, true);
    int64_t now = 0, wait = REGISTRATION_FIRST_RETRY_MS;
    for (int i = 0; i < 12; i++) {
        ck_assert_int_eq(registration_next(&reg, now), REGISTRATION_REGISTER);
        registration_answered(&reg, now, false);
        ck_assert_int_eq(registration_next(&reg, now + wait - 1), REGISTRATION_NOTHING);
        ck_assert_int_eq(registration_due(&reg), now + wait);
        now += wait;
        wait =
            wait * 2 > REGISTRATION_LAST_RETRY_MS ? REGISTRATION_LAST_RETRY_MS : wait * 2;
    }
    ck_assert_int_eq(wait, REGISTRATION_LAST_RETRY_MS);
    ck_assert_uint_eq(reg.failed, 12);
}
END_TEST

START_TEST(a_registration_without_a_stream_is_retried)
{
    registration_init(&reg);
    reg.wanted = true;
    registration_kubelet_socket(&reg, 0, 7);
    registration_serving(&reg, 0, true);
    registration_next(&reg, 0);
    registration_answered(&reg, 0, true);
    ck_assert_int_eq(registration_due(&reg), REGISTRATION_STREAM_MS);
    ck_assert_int_eq(registration_next(&reg, REGISTRATION_STREAM_MS),
                     REGISTRATION_NOTHING);
    ck_assert_int_eq(
        registration_next(&reg, REGISTRATION_STREAM_MS + REGISTRATION_FIRST_RETRY_MS),
        REGISTRATION_REGISTER);
}
END_TEST

START_TEST(a_closed_stream_is_followed_by_a_delayed_registration)
{
    up();
    registration_stream(&reg, 1000, false, false);
    ck_assert_int_eq(registration_next(&reg, 1000 + REGISTRATION_SETTLE_MS - 1),
                     REGISTRATION_NOTHING);
    ck_assert_int_eq(registration_next(&reg, 1000 + REGISTRATION_SETTLE_MS),
                     REGISTRATION_REGISTER);
    ck_assert_uint_eq(reg.lost, 1);
}
END_TEST

START_TEST(a_second_stream_keeps_it_up)
{
    up();
    registration_stream(&reg, 1000, true, false);
    registration_stream(&reg, 1001, false, false);
    ck_assert_int_eq(reg.state, REGISTRATION_REGISTERED);
}
END_TEST

START_TEST(a_new_kubelet_gets_a_new_endpoint)
{
    up();
    registration_kubelet_socket(&reg, 1000, 0); /* it stops */
    registration_stream(&reg, 1001, false, false);
    registration_serving(&reg, 1002,
                         false); /* a starting kubelet removes the endpoints */
    ck_assert_int_eq(registration_next(&reg, 60000), REGISTRATION_NOTHING);
    registration_kubelet_socket(&reg, 60000, 8);
    ck_assert_int_eq(registration_next(&reg, 60000), REGISTRATION_SERVE);
    registration_serving(&reg, 60000, true);
    ck_assert_int_eq(registration_next(&reg, 60000), REGISTRATION_REGISTER);
}
END_TEST

START_TEST(a_removed_endpoint_is_served_again)
{
    up();
    registration_serving(&reg, 1000, false);
    ck_assert_int_eq(registration_next(&reg, 1000), REGISTRATION_SERVE);
    registration_serving(&reg, 1000, false); /* serving fails */
    ck_assert_int_eq(registration_next(&reg, 1000), REGISTRATION_NOTHING);
    ck_assert_int_eq(registration_next(&reg, 1000 + REGISTRATION_FIRST_RETRY_MS),
                     REGISTRATION_SERVE);
}
END_TEST

START_TEST(an_older_plugin_yields_to_a_newer_one)
{
    up();
    registration_stream(&reg, 1000, false, true);
    ck_assert_int_eq(registration_next(&reg, 100000), REGISTRATION_NOTHING);
    ck_assert(!registration_checks_newer_plugin(&reg, 1999));
    ck_assert(registration_checks_newer_plugin(&reg, 2000));
    registration_newer_plugin(&reg, 2000, true);
    ck_assert(!registration_checks_newer_plugin(&reg, 2001));
    ck_assert(registration_checks_newer_plugin(&reg, 3000));
    registration_newer_plugin(&reg, 3000, false);
    ck_assert_int_eq(registration_next(&reg, 3000), REGISTRATION_REGISTER);
    /* A new kubelet ends the yielding. */
    up();
    registration_stream(&reg, 1000, false, true);
    registration_kubelet_socket(&reg, 1500, 9);
    ck_assert_int_eq(registration_next(&reg, 1500), REGISTRATION_REGISTER);
}
END_TEST

START_TEST(a_kubelet_restart_during_register_is_retried)
{
    registration_init(&reg);
    reg.wanted = true;
    registration_kubelet_socket(&reg, 0, 7);
    registration_serving(&reg, 0, true);
    registration_next(&reg, 0);
    registration_kubelet_socket(&reg, 5, 8);
    registration_answered(&reg, 6, false);
    ck_assert_int_eq(registration_next(&reg, 6 + REGISTRATION_FIRST_RETRY_MS),
                     REGISTRATION_REGISTER);
}
END_TEST

START_TEST(the_missing_step_is_named)
{
    registration_init(&reg);
    reg.wanted = true;
    ck_assert_str_eq(registration_missing(&reg), "waiting for the kubelet");
    registration_kubelet_socket(&reg, 0, 7);
    ck_assert_str_eq(registration_missing(&reg), "retrying");
    registration_serving(&reg, 0, true);
    registration_next(&reg, 0);
    ck_assert_str_eq(registration_missing(&reg),
                     "waiting for the kubelet to answer Register");
    registration_answered(&reg, 10, true);
    ck_assert_str_eq(registration_missing(&reg),
                     "waiting for the kubelet to open ListAndWatch");
    registration_stream(&reg, 20, true, false);
    ck_assert_ptr_null(registration_missing(&reg));
    registration_stream(&reg, 1000, false, true);
    ck_assert_str_eq(registration_missing(&reg), "a newer plugin of this node serves it");
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
