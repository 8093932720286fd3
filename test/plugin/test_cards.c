/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/cards.h"

#include <stdio.h>

#include "base/mem.h"
#include "lib/unit.h"

enum { WELL_MS = 30 * 1000, HOLD_MS = 600 * 1000, SILENT_MS = 35 * 1000 };

static struct cards cards;
static struct err err;

static struct card_seen seen(const char *uuid, int32_t index, int64_t mib,
                             const char *ill)
{
    struct card_seen s = {.index = index, .mib = mib};
    snprintf(s.uuid, sizeof s.uuid, "%s", uuid);
    snprintf(s.ill, sizeof s.ill, "%s", ill);
    return s;
}

static bool see(int64_t now, struct card_seen s)
{
    return cards_seen(&cards, now, &s, 1, &err);
}

START_TEST(cards_are_listed_in_units_rounded_down)
{
    cards_init(&cards, 1024, WELL_MS, HOLD_MS, SILENT_MS);
    struct card_seen two[] = {seen("GPU-a", 0, 143771, ""), seen("GPU-b", 1, 1023, "")};
    ck_assert(cards_seen(&cards, 0, two, 2, &err));
    ck_assert_int_eq(err.code, ERR_NONE);
    ck_assert_uint_eq(cards.n, 2);
    ck_assert_int_eq(cards.items[0].units, 140);
    ck_assert_int_eq(cards.items[1].units, 0);
    ck_assert(cards.items[0].healthy && cards.items[1].healthy);
    ck_assert(!cards_seen(&cards, 1, two, 2, &err)); /* nothing new */
    ck_assert_ptr_eq(cards_by_uuid(&cards, SPAN("GPU-b")), &cards.items[1]);
    ck_assert_ptr_eq(cards_by_tag(&cards, &cards.items[1].tag), &cards.items[1]);
    ck_assert_ptr_eq(cards_by_index(&cards, 1), &cards.items[1]);
    ck_assert_ptr_null(cards_by_index(&cards, 2));
    ck_assert_ptr_null(cards_by_uuid(&cards, SPAN("GPU-c")));
}
END_TEST

START_TEST(a_card_falls_ill_at_once_and_recovers_slowly)
{
    cards_init(&cards, 1024, WELL_MS, HOLD_MS, SILENT_MS);
    struct card_seen well = seen("GPU-a", 0, 4096, "");
    ck_assert(see(0, well));
    ck_assert(see(1000, seen("GPU-a", 0, 4096, "row remapping failed")));
    ck_assert(!cards.items[0].healthy);
    ck_assert_str_eq(cards.items[0].why, "row remapping failed");
    ck_assert(!see(2000, well));
    ck_assert(!see(2000 + WELL_MS - 1, well));
    /* Ill in between: the time begins anew. */
    ck_assert(!see(2000 + WELL_MS, seen("GPU-a", 0, 4096, "again")));
    ck_assert(!see(3000 + WELL_MS, well));
    ck_assert(see(3000 + 2 * WELL_MS, well));
    ck_assert(cards.items[0].healthy);
    ck_assert_str_eq(cards.items[0].why, "");
}
END_TEST

START_TEST(a_lost_card_stays_on_the_list)
{
    cards_init(&cards, 1024, WELL_MS, HOLD_MS, SILENT_MS);
    struct card_seen two[] = {seen("GPU-a", 0, 4096, ""), seen("GPU-b", 1, 8192, "")};
    cards_seen(&cards, 0, two, 2, &err);
    /* The driver counts anew, and the one that is left has the other's index. */
    two[1].index = 0;
    ck_assert(cards_seen(&cards, 1, &two[1], 1, &err));
    ck_assert_uint_eq(cards.n, 2);
    ck_assert(!cards.items[0].healthy);
    ck_assert_int_eq(cards.items[0].most_units, 4);
    ck_assert(cards.items[1].healthy);
    ck_assert_ptr_eq(cards_by_index(&cards, 0), &cards.items[1]);
    /* Smaller than it was: its ids stay, all of them. */
    two[1].mib = 2048;
    ck_assert(cards_seen(&cards, 2, &two[1], 1, &err));
    ck_assert_int_eq(cards.items[1].units, 2);
    ck_assert_int_eq(cards.items[1].most_units, 8);
}
END_TEST

START_TEST(one_failed_look_is_no_illness)
{
    cards_init(&cards, 1024, WELL_MS, HOLD_MS, SILENT_MS);
    see(1000, seen("GPU-a", 0, 4096, ""));
    ck_assert(!cards_unseen(&cards, 2000, "no driver"));
    ck_assert(cards.items[0].healthy && !cards.blind);
    ck_assert(cards_unseen(&cards, 1000 + CARDS_BLIND_MS, "no driver"));
    ck_assert(cards.blind);
    ck_assert_str_eq(cards.items[0].why, "no driver");
}
END_TEST

START_TEST(a_driver_that_does_not_answer_makes_all_cards_ill)
{
    cards_init(&cards, 1024, WELL_MS, HOLD_MS, SILENT_MS);
    struct card_seen two[] = {seen("GPU-a", 0, 4096, ""), seen("GPU-b", 1, 8192, "")};
    cards_seen(&cards, 1000, two, 2, &err);
    ck_assert(!cards_waited(&cards, 999 + SILENT_MS, 0));
    ck_assert(!cards.blind);
    ck_assert(cards_waited(&cards, 1000 + SILENT_MS, 0));
    ck_assert(cards.blind && !cards.items[0].healthy && !cards.items[1].healthy);
    ck_assert_str_eq(cards.items[1].why, "the driver does not answer");
    ck_assert_int_eq(cards.trouble.since_ms, 1000);
    ck_assert(!cards_waited(&cards, 2000 + SILENT_MS, 0)); /* nothing new */
    /* It answers again. */
    ck_assert(!cards_seen(&cards, 50000, two, 2, &err));
    ck_assert(!cards.blind && !cards.trouble.since_ms);
    ck_assert(cards_seen(&cards, 50000 + WELL_MS, two, 2, &err));
    ck_assert(cards.items[0].healthy && cards.items[1].healthy);
}
END_TEST

START_TEST(what_is_wrong_with_them_is_said)
{
    cards_init(&cards, 1024, WELL_MS, HOLD_MS, SILENT_MS);
    ck_assert_int_eq(cards_check(&cards, 1, &err), -1);
    ck_assert_str_eq(err.msg, "none has been seen yet");
    cards_unseen(&cards, 2, "no driver");
    ck_assert_int_eq(cards_check(&cards, 3, &err), -1);
    ck_assert_str_eq(err.msg, "none has been seen yet: no driver");
    struct card_seen two[] = {seen("GPU-a", 0, 4096, ""), seen("GPU-b", 1, 8192, "")};
    cards_seen(&cards, 1000, two, 2, &err);
    ck_assert_done(cards_check(&cards, 1000, &err), err);
    cards_struck(&cards, 1000, SPAN("GPU-a"), "XID 79");
    ck_assert_done(cards_check(&cards, 1000, &err), err);
    cards_struck(&cards, 1000, SPAN("GPU-b"), "XID 48");
    ck_assert_int_eq(cards_check(&cards, 1000, &err), -1);
    ck_assert_str_eq(err.msg, "none of 2 is healthy; GPU-a: XID 79");
    cards_unseen(&cards, 2000, "no driver");
    cards_unseen(&cards, 22000, "no driver");
    ck_assert_int_eq(cards_check(&cards, 25000, &err), -1);
    ck_assert_str_eq(err.msg, "nothing is seen of them for 23 s: no driver");
}
END_TEST

START_TEST(an_answer_is_an_answer_even_if_it_is_an_error)
{
    cards_init(&cards, 1024, WELL_MS, HOLD_MS, SILENT_MS);
    see(1000, seen("GPU-a", 0, 4096, ""));
    cards_unseen(&cards, 10000, "no driver");
    ck_assert(!cards_waited(&cards, 9999 + SILENT_MS, 0));
    ck_assert_str_eq(cards.trouble.err.msg, "no driver");
    ck_assert_int_eq(cards.trouble.since_ms, 10000);
}
END_TEST

START_TEST(a_process_that_stood_still_has_not_waited)
{
    cards_init(&cards, 1024, WELL_MS, HOLD_MS, SILENT_MS);
    see(1000, seen("GPU-a", 0, 4096, ""));
    ck_assert(!cards_waited(&cards, 1000000, 998000));
    ck_assert(!cards_waited(&cards, 998999 + SILENT_MS, 0));
    ck_assert(cards_waited(&cards, 999000 + SILENT_MS, 0));
}
END_TEST

START_TEST(events_strike_one_card_or_all)
{
    cards_init(&cards, 1024, WELL_MS, HOLD_MS, SILENT_MS);
    struct card_seen two[] = {seen("GPU-a", 0, 4096, ""), seen("GPU-b", 1, 8192, "")};
    cards_seen(&cards, 0, two, 2, &err);
    ck_assert(cards_struck(&cards, 1, SPAN("GPU-b"), "XID 79"));
    ck_assert(cards.items[0].healthy && !cards.items[1].healthy);
    ck_assert(!cards_struck(&cards, 1, SPAN("GPU-b"), "XID 79"));
    ck_assert(cards_struck(&cards, 2, (struct span){0}, "XID 48"));
    ck_assert(!cards.items[0].healthy);
}
END_TEST

START_TEST(what_a_look_does_not_show_is_held_for_longer)
{
    struct card_seen well = seen("GPU-a", 0, 4096, "");
    cards_init(&cards, 1024, WELL_MS, HOLD_MS, SILENT_MS);
    see(0, well);
    cards_struck(&cards, 1000, SPAN("GPU-a"), "XID 79");
    ck_assert(!see(2000, well));
    ck_assert(!see(HOLD_MS + 999, well));
    cards_struck(&cards, HOLD_MS + 999, SPAN("GPU-a"), "XID 48"); /* again */
    ck_assert(!see(HOLD_MS + 2000, well));
    ck_assert_str_eq(cards.items[0].why, "XID 48");
    ck_assert(see(2 * HOLD_MS + 999, well));
}
END_TEST

START_TEST(without_a_uuid_the_index_counts)
{
    cards_init(&cards, 1024, WELL_MS, HOLD_MS, SILENT_MS);
    ck_assert(see(0, seen("", 3, 4096, "")));
    ck_assert_str_eq(cards.items[0].uuid, "index-3");
    ck_assert(!cards.items[0].has_uuid);
    /* One that was never seen well and has no name: nothing to list. */
    ck_assert(see(1, seen("", 4, 0, "lost")));
    ck_assert_uint_eq(cards.n, 1);
}
END_TEST

START_TEST(there_is_an_end_to_cards)
{
    struct card_seen many[CARDS_MAX + 1];
    char uuid[32];
    for (int i = 0; i <= CARDS_MAX; i++) {
        snprintf(uuid, sizeof uuid, "GPU-%d", i);
        many[i] = seen(uuid, i, 4096, "");
    }
    cards_init(&cards, 1024, WELL_MS, HOLD_MS, SILENT_MS);
    ck_assert(cards_seen(&cards, 0, many, CARDS_MAX + 1, &err));
    ck_assert_uint_eq(cards.n, CARDS_MAX);
    ck_assert_int_eq(err.code, ERR_TOO_LARGE);
}
END_TEST

START_TEST(a_unit_that_is_too_small_is_said)
{
    struct card_seen eight[8];
    char uuid[32];
    for (int i = 0; i < 8; i++) {
        snprintf(uuid, sizeof uuid, "GPU-%d", i);
        eight[i] = seen(uuid, i, 143771, "");
    }
    cards_init(&cards, 1024, WELL_MS, HOLD_MS, SILENT_MS);
    cards_seen(&cards, 0, eight, 8, &err);
    ck_assert_done(cards_fit(&cards, &err), err);
    cards_init(&cards, 1, WELL_MS, HOLD_MS, SILENT_MS);
    cards_seen(&cards, 0, eight, 8, &err);
    ck_assert_int_eq(cards_fit(&cards, &err), -1);
    ck_assert_msg(strstr(err.msg, "in units of MiB") &&
                      strstr(err.msg, "kubelet takes "
                                      "4194304") &&
                      strstr(err.msg, "--memory-unit=8MiB"),
                  "%s", err.msg);
}
END_TEST

UNIT_MAIN("cards", cards_are_listed_in_units_rounded_down,
          a_card_falls_ill_at_once_and_recovers_slowly, a_lost_card_stays_on_the_list,
          one_failed_look_is_no_illness,
          a_driver_that_does_not_answer_makes_all_cards_ill,
          what_is_wrong_with_them_is_said, an_answer_is_an_answer_even_if_it_is_an_error,
          a_process_that_stood_still_has_not_waited, events_strike_one_card_or_all,
          what_a_look_does_not_show_is_held_for_longer, without_a_uuid_the_index_counts,
          there_is_an_end_to_cards, a_unit_that_is_too_small_is_said)
