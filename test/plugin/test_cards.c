/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/cards.h"

#include <stdio.h>

#include "base/mem.h"
#include "lib/unit.h"

/* Health over time: test/node/test_card_health.c. */

enum {
    TOLERATED_MS = 3000,
    RECOVERY_MS = 30 * 1000,
    HOLD_MS = 600 * 1000,
    SILENT_MS = 35 * 1000
};

static struct cards cards;
static struct err err;

static void begin(int64_t unit_mib)
{
    cards_init(&cards,
               &(struct cards_settings){.unit_mib = unit_mib,
                                        .silent_ms = SILENT_MS,
                                        .health = {TOLERATED_MS, RECOVERY_MS, HOLD_MS}});
}

/* A card of a sample; failed if there is a reason. */
static struct card_seen seen(const char *uuid, int32_t index, int64_t mib,
                             const char *reason)
{
    struct card_seen s = {.index = index,
                          .mib = mib,
                          .reading = *reason ? CARD_HEALTH_FAILED : CARD_HEALTH_GOOD};
    snprintf(s.uuid, sizeof s.uuid, "%s", uuid);
    snprintf(s.reason, sizeof s.reason, "%s", reason);
    return s;
}

static bool sample(int64_t now, struct card_seen s)
{
    return cards_sampled(&cards, now, &s, 1, &err);
}

static bool xid(int64_t now, const char *uuid, int32_t index, int64_t number)
{
    struct gpu_event e = {.kind = GPU_EVENT_XID, .xid = number, .index = index};
    snprintf(e.uuid, sizeof e.uuid, "%s", uuid);
    return cards_event(&cards, now, &e);
}

START_TEST(cards_are_listed_in_units_rounded_down)
{
    begin(1024);
    struct card_seen two[] = {seen("GPU-a", 0, 143771, ""), seen("GPU-b", 1, 1023, "")};
    ck_assert(cards_sampled(&cards, 0, two, 2, &err));
    ck_assert_int_eq(err.code, ERR_NONE);
    ck_assert_uint_eq(cards.n, 2);
    ck_assert_int_eq(cards.items[0].units, 140);
    ck_assert_int_eq(cards.items[1].units, 0);
    ck_assert(cards.items[0].health.healthy && cards.items[1].health.healthy);
    ck_assert(!cards_sampled(&cards, 1, two, 2, &err)); /* nothing new */
    ck_assert_ptr_eq(cards_by_uuid(&cards, SPAN("GPU-b")), &cards.items[1]);
    ck_assert_ptr_eq(cards_by_tag(&cards, &cards.items[1].tag), &cards.items[1]);
    ck_assert_ptr_eq(cards_by_index(&cards, 1), &cards.items[1]);
    ck_assert_ptr_null(cards_by_index(&cards, 2));
    ck_assert_ptr_null(cards_by_uuid(&cards, SPAN("GPU-c")));
}
END_TEST

START_TEST(a_lost_card_stays_on_the_list)
{
    begin(1024);
    struct card_seen two[] = {seen("GPU-a", 0, 4096, ""), seen("GPU-b", 1, 8192, "")};
    cards_sampled(&cards, 0, two, 2, &err);
    /* The driver renumbers: the remaining card has the other one's index. */
    two[1].index = 0;
    ck_assert(cards_sampled(&cards, 1, &two[1], 1, &err));
    ck_assert_uint_eq(cards.n, 2);
    ck_assert(!cards.items[0].health.healthy);
    ck_assert_int_eq(cards.items[0].most_units, 4);
    ck_assert(cards.items[1].health.healthy);
    ck_assert_ptr_eq(cards_by_index(&cards, 0), &cards.items[1]);
    /* Smaller than before: all its ids stay listed. */
    two[1].mib = 2048;
    ck_assert(cards_sampled(&cards, 2, &two[1], 1, &err));
    ck_assert_int_eq(cards.items[1].units, 2);
    ck_assert_int_eq(cards.items[1].most_units, 8);
}
END_TEST

START_TEST(one_failed_sample_is_tolerated)
{
    begin(1024);
    sample(1000, seen("GPU-a", 0, 4096, ""));
    ck_assert(!cards_sample_failed(&cards, 2000, "no driver"));
    ck_assert(cards.items[0].health.healthy && !cards.failed);
    ck_assert(cards_sample_failed(&cards, 2000 + TOLERATED_MS, "no driver"));
    ck_assert(cards.failed);
    ck_assert_str_eq(cards.items[0].health.reason, "no driver");
}
END_TEST

START_TEST(a_driver_that_hangs_makes_all_cards_unhealthy)
{
    begin(1024);
    struct card_seen two[] = {seen("GPU-a", 0, 4096, ""), seen("GPU-b", 1, 8192, "")};
    cards_sampled(&cards, 1000, two, 2, &err);
    ck_assert(!cards_tick(&cards, 999 + SILENT_MS, 0));
    ck_assert(!cards.failed);
    ck_assert(cards_tick(&cards, 1000 + SILENT_MS, 0));
    ck_assert(cards.failed && !cards.items[0].health.healthy &&
              !cards.items[1].health.healthy);
    ck_assert_str_eq(cards.items[1].health.reason, "the driver does not respond");
    ck_assert_int_eq(cards.failure.since_ms, 1000);
    ck_assert(!cards_tick(&cards, 2000 + SILENT_MS, 0)); /* nothing new */
    /* The driver responds again. */
    ck_assert(!cards_sampled(&cards, 50000, two, 2, &err));
    ck_assert(!cards.failed && !cards.failure.since_ms);
    ck_assert(cards_sampled(&cards, 50000 + RECOVERY_MS, two, 2, &err));
    ck_assert(cards.items[0].health.healthy && cards.items[1].health.healthy);
}
END_TEST

START_TEST(the_check_gives_the_reason)
{
    begin(1024);
    ck_assert_int_eq(cards_check(&cards, 1, &err), -1);
    ck_assert_str_eq(err.msg, "no card was sampled yet");
    cards_sample_failed(&cards, 2, "no driver");
    ck_assert_int_eq(cards_check(&cards, 3, &err), -1);
    ck_assert_str_eq(err.msg, "no card was sampled yet: no driver");
    struct card_seen two[] = {seen("GPU-a", 0, 4096, ""), seen("GPU-b", 1, 8192, "")};
    cards_sampled(&cards, 1000, two, 2, &err);
    ck_assert_done(cards_check(&cards, 1000, &err), err);
    xid(1000, "GPU-a", -1, 79);
    ck_assert_done(cards_check(&cards, 1000, &err), err);
    xid(1000, "GPU-b", -1, 48);
    ck_assert_int_eq(cards_check(&cards, 1000, &err), -1);
    ck_assert_str_eq(err.msg, "none of 2 cards is healthy; GPU-a: XID 79");
    cards_sample_failed(&cards, 2000, "no driver");
    cards_sample_failed(&cards, 22000, "no driver");
    ck_assert_int_eq(cards_check(&cards, 25000, &err), -1);
    ck_assert_str_eq(err.msg, "no sample for 23s: no driver");
}
END_TEST

START_TEST(an_error_is_a_response_of_the_driver)
{
    begin(1024);
    sample(1000, seen("GPU-a", 0, 4096, ""));
    cards_sample_failed(&cards, 10000, "no driver");
    ck_assert(!cards_tick(&cards, 9999 + SILENT_MS, 0));
    ck_assert_str_eq(cards.failure.err.msg, "no driver");
    ck_assert_int_eq(cards.failure.since_ms, 10000);
}
END_TEST

START_TEST(a_suspended_process_has_not_waited)
{
    begin(1024);
    sample(1000, seen("GPU-a", 0, 4096, ""));
    ck_assert(!cards_tick(&cards, 1000000, 998000));
    ck_assert(!cards_tick(&cards, 998999 + SILENT_MS, 0));
    ck_assert(cards_tick(&cards, 999000 + SILENT_MS, 0));
}
END_TEST

START_TEST(events_concern_one_card_or_all)
{
    begin(1024);
    struct card_seen two[] = {seen("GPU-a", 0, 4096, ""), seen("GPU-b", 1, 8192, "")};
    cards_sampled(&cards, 0, two, 2, &err);
    ck_assert(xid(1, "GPU-b", -1, 79));
    ck_assert(cards.items[0].health.healthy && !cards.items[1].health.healthy);
    ck_assert(!xid(1, "GPU-b", -1, 79));
    ck_assert(xid(2, "", -1, 48));
    ck_assert(!cards.items[0].health.healthy);
    begin(1024);
    cards_sampled(&cards, 0, two, 2, &err);
    ck_assert(xid(1, "", 0, 79));
    ck_assert(!cards.items[0].health.healthy && cards.items[1].health.healthy);
}
END_TEST

START_TEST(the_index_identifies_a_card_without_uuid)
{
    begin(1024);
    ck_assert(sample(0, seen("", 3, 4096, "")));
    ck_assert_str_eq(cards.items[0].uuid, "index-3");
    ck_assert(!cards.items[0].has_uuid);
    /* A card that was never readable and has no UUID is not listed. */
    ck_assert(sample(1, seen("", 4, 0, "lost")));
    ck_assert_uint_eq(cards.n, 1);
}
END_TEST

START_TEST(a_card_that_cannot_be_opened_is_the_one_at_its_index)
{
    struct card_seen two[] = {seen("GPU-a", 0, 4096, ""), seen("GPU-b", 1, 8192, "")};
    begin(1024);
    cards_sampled(&cards, 0, two, 2, &err);
    two[1] = seen("", 1, 0, "");
    two[1].reading = CARD_HEALTH_UNREADABLE;
    ck_assert(!cards_sampled(&cards, 1000, two, 2, &err));
    ck_assert(cards_sampled(&cards, 1000 + TOLERATED_MS, two, 2, &err));
    ck_assert_uint_eq(cards.n, 2);
    ck_assert(cards.items[0].health.healthy && !cards.items[1].health.healthy);
}
END_TEST

START_TEST(the_number_of_cards_is_limited)
{
    struct card_seen many[CARDS_MAX + 1];
    char uuid[32];
    for (int i = 0; i <= CARDS_MAX; i++) {
        snprintf(uuid, sizeof uuid, "GPU-%d", i);
        many[i] = seen(uuid, i, 4096, "");
    }
    begin(1024);
    ck_assert(cards_sampled(&cards, 0, many, CARDS_MAX + 1, &err));
    ck_assert_uint_eq(cards.n, CARDS_MAX);
    ck_assert_int_eq(err.code, ERR_TOO_LARGE);
}
END_TEST

START_TEST(a_unit_that_is_too_small_is_reported)
{
    struct card_seen eight[8];
    char uuid[32];
    for (int i = 0; i < 8; i++) {
        snprintf(uuid, sizeof uuid, "GPU-%d", i);
        eight[i] = seen(uuid, i, 143771, "");
    }
    begin(1024);
    cards_sampled(&cards, 0, eight, 8, &err);
    ck_assert_done(cards_fit(&cards, &err), err);
    begin(1);
    cards_sampled(&cards, 0, eight, 8, &err);
    ck_assert_int_eq(cards_fit(&cards, &err), -1);
    ck_assert_msg(strstr(err.msg, "in units of MiB") &&
                      strstr(err.msg, "limit of "
                                      "4194304") &&
                      strstr(err.msg, "--memory-unit=8MiB"),
                  "%s", err.msg);
}
END_TEST

UNIT_MAIN("cards", cards_are_listed_in_units_rounded_down,
          a_lost_card_stays_on_the_list,
          one_failed_sample_is_tolerated, a_driver_that_hangs_makes_all_cards_unhealthy,
          the_check_gives_the_reason, an_error_is_a_response_of_the_driver,
          a_suspended_process_has_not_waited, events_concern_one_card_or_all,
          the_index_identifies_a_card_without_uuid,
          a_card_that_cannot_be_opened_is_the_one_at_its_index,
          the_number_of_cards_is_limited, a_unit_that_is_too_small_is_reported)
