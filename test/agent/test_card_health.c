/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/cards.h"
#include "agent/card_health.h"

static const struct card_health_settings settings = {.recover_ms = 30000, .hold_ms = 600000};
static struct card_health *health;
static const char *why;

#define FINE(n)    "{'uuid':'GPU-" #n "','memoryTotal':9}"
#define LOST(n)    "{'uuid':'GPU-" #n "','state':'lost','why':'fell off the bus'}"
#define NAMELESS   "{'memoryTotal':9}"
#define NO_NAME(s) "{'state':'" s "'}"

/* The healthy ones of the cards after that sample: "+-" is the first. */
static const char *look(int64_t now_ms, const char *cards)
{
    static char said[GPU_MAX_CARDS + 1];
    const struct gpu_sample *s = cards_of(cards);
    card_health_sample(health, now_ms, s);
    for (size_t i = 0; i < s->n_cards; i++)
        said[i] = card_health_is_good(health, &s->cards[i], &why) ? '+' : '-';
    said[s->n_cards] = '\0';
    return said;
}

static bool told(int64_t now_ms, int64_t xid, const char *uuid)
{
    struct gpu_event e = {
        .kind = xid ? GPU_EVENT_XID : GPU_EVENT_ECC, .xid = xid, .index = -1};
    memcpy(e.uuid, uuid, strlen(uuid) + 1);
    return card_health_event(health, now_ms, &e);
}

static void begin(void)
{
    health = card_health_new(&settings);
}

static void end(void)
{
    card_health_free(health);
}

START_TEST(a_card_is_ill_at_once_and_healthy_after_a_while)
{
    ck_assert_str_eq(look(0, FINE(0) "," FINE(1)), "++");
    ck_assert_str_eq(look(1000, FINE(0) "," LOST(1)), "+-");
    ck_assert_str_eq(why, "fell off the bus");
    ck_assert_str_eq(look(2000, FINE(0) "," FINE(1)), "+-");
    ck_assert_str_eq(why, "fell off the bus");
    ck_assert_str_eq(look(31999, FINE(0) "," FINE(1)), "+-");
    ck_assert_str_eq(look(32000, FINE(0) "," FINE(1)), "++");
}
END_TEST

START_TEST(a_card_that_flickers_stays_out)
{
    look(0, FINE(0));
    for (int64_t t = 1000; t < 200000; t += 20000) {
        ck_assert_str_eq(look(t, LOST(0)), "-");
        ck_assert_str_eq(look(t + 1000, FINE(0)), "-");
    }
    ck_assert_str_eq(look(211999, FINE(0)), "-");
    ck_assert_str_eq(look(212000, FINE(0)), "+");
}
END_TEST

START_TEST(a_card_that_is_ill_from_the_beginning)
{
    ck_assert_str_eq(look(5, LOST(0) "," FINE(1)), "-+");
    ck_assert_str_eq(look(10, FINE(0) "," FINE(1)), "-+");
    /* It is known by its name, wherever it moves. */
    ck_assert_str_eq(look(11, FINE(1) "," FINE(0)), "+-");
    ck_assert_str_eq(look(12, FINE(1)), "+");
    ck_assert_str_eq(look(13, FINE(1) "," FINE(0)), "+-");
    ck_assert_str_eq(look(30010, FINE(1) "," FINE(0)), "++");
}
END_TEST

START_TEST(cards_without_a_name_are_known_by_their_index)
{
    ck_assert_str_eq(look(0, NAMELESS "," NAMELESS), "++");
    ck_assert_str_eq(look(1, NAMELESS "," NO_NAME("ecc")), "+-");
    ck_assert_str_eq(look(2, NAMELESS "," NAMELESS), "+-");
}
END_TEST

START_TEST(an_xid_makes_a_card_ill)
{
    look(0, FINE(0) "," FINE(1));
    ck_assert(!told(1, 31, "GPU-0"));
    ck_assert(!told(1, 79, "GPU-9"));
    ck_assert_str_eq(look(2, FINE(0) "," FINE(1)), "++");
    ck_assert(told(1000, 79, "GPU-1"));
    ck_assert_str_eq(look(1000, FINE(0) "," FINE(1)), "+-");
    ck_assert_str_eq(why, "XID 79 was told");
    ck_assert(told(400000, 0, "GPU-1"));
    ck_assert_str_eq(look(601000, FINE(0) "," FINE(1)), "+-");
    ck_assert_str_eq(why, "an error of its memory could not be corrected");
    ck_assert_str_eq(look(999999, FINE(0) "," FINE(1)), "+-");
    ck_assert_str_eq(look(1000000, FINE(0) "," FINE(1)), "++");
}
END_TEST

START_TEST(an_event_of_nobody_is_of_all)
{
    look(0, FINE(0) "," FINE(1) "," NAMELESS);
    ck_assert(told(1, 48, ""));
    ck_assert_str_eq(look(2, FINE(0) "," FINE(1) "," NAMELESS), "---");
    ck_assert(!card_health_event(health, 3, &(struct gpu_event){.index = -1}));
    /* Of a card without a name, by its index. */
    struct card_health *other = card_health_new(&settings);
    const struct gpu_sample *s = cards_of(NAMELESS "," NAMELESS);
    card_health_sample(other, 0, s);
    ck_assert(
        card_health_event(other, 1, &(struct gpu_event){.kind = GPU_EVENT_ECC, .index = 1}));
    ck_assert(card_health_is_good(other, &s->cards[0], NULL));
    ck_assert(!card_health_is_good(other, &s->cards[1], NULL));
    card_health_free(other);
}
END_TEST

START_TEST(for_ever_is_long)
{
    struct card_health_settings forever = {.recover_ms = 0, .hold_ms = INT64_MAX};
    card_health_free(health);
    health = card_health_new(&forever);
    look(-5, FINE(0) "," FINE(1));
    ck_assert(told(-3, 79, "GPU-0"));
    ck_assert_str_eq(look(INT64_MAX / 2, FINE(0) "," FINE(1)), "-+");
    ck_assert_str_eq(look(INT64_MAX / 2 + 1, FINE(0) "," LOST(1)), "--");
    ck_assert_str_eq(look(INT64_MAX / 2 + 1, FINE(0) "," FINE(1)), "-+");
}
END_TEST

/* More cards than are remembered come and go; the last ones are. */
START_TEST(cards_that_are_gone_are_forgotten_at_last)
{
    cleanup_buf struct buf card = {0};
    look(1, FINE(0));
    for (int i = 1; i <= 1000; i++) {
        buf_clear(&card);
        buf_printf(&card,
                   "{'uuid':'GPU-x%d','state':'ecc'},{'index':9,'uuid':'GPU-0',"
                   "'memoryTotal':9}",
                   i);
        ck_assert_str_eq(look(1 + i, card.p), "-+");
    }
    ck_assert_str_eq(look(1002, "{'uuid':'GPU-x1000','memoryTotal':9}"), "-");
    ck_assert_str_eq(look(1003, "{'uuid':'GPU-x1','memoryTotal':9}"), "+");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        a_card_is_ill_at_once_and_healthy_after_a_while,
        a_card_that_flickers_stays_out,
        a_card_that_is_ill_from_the_beginning,
        cards_without_a_name_are_known_by_their_index,
        an_xid_makes_a_card_ill,
        an_event_of_nobody_is_of_all,
        for_ever_is_long,
        cards_that_are_gone_are_forgotten_at_last,
    };
    return unit_run_with("health", tests, ARRAY_LEN(tests), 60,
                         &(struct unit_fixtures){.begin = begin, .end = end});
}
