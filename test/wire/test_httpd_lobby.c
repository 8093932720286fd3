/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/httpd_lobby.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "lib/unit.h"

enum { MAX = 64 };

static struct httpd_address at(unsigned n)
{
    struct httpd_address a = {0};
    memcpy(a.bytes, &n, sizeof n);
    return a;
}

static void add(struct httpd_lobby *l, struct httpd_guest *g, unsigned address,
                int64_t now_ms, bool ready)
{
    struct httpd_address a = at(address);
    httpd_lobby_add(l, g, &a, now_ms);
    if (ready)
        httpd_lobby_ready(l, g);
}

static bool is_of(const struct httpd_guest *g, unsigned address)
{
    struct httpd_address a = at(address);
    return memcmp(&g->address, &a, sizeof a) == 0;
}

START_TEST(addresses_take_turns_and_each_keeps_its_order)
{
    struct httpd_lobby l = {.max = MAX};
    struct httpd_guest a[3], b[2], c;
    for (int i = 0; i < 3; i++)
        add(&l, &a[i], 1, i, true);
    for (int i = 0; i < 2; i++)
        add(&l, &b[i], 2, 3 + i, true);
    ck_assert_ptr_eq(httpd_lobby_next(&l), &a[0]);
    ck_assert_ptr_eq(httpd_lobby_next(&l), &b[0]);
    add(&l, &c, 3, 6, true); /* it has missed no turn */
    ck_assert_ptr_eq(httpd_lobby_next(&l), &a[1]);
    ck_assert_ptr_eq(httpd_lobby_next(&l), &b[1]);
    ck_assert_ptr_eq(httpd_lobby_next(&l), &c);
    ck_assert_ptr_eq(httpd_lobby_next(&l), &a[2]);
    ck_assert_ptr_null(httpd_lobby_next(&l));
    ck_assert_uint_eq(l.n, 0);
    ck_assert_uint_eq(l.ready, 0);
}
END_TEST

START_TEST(a_guest_waits_behind_one_of_each_other_address)
{
    struct httpd_lobby l = {.max = 1024};
    struct httpd_guest *flood = xcalloc(500, sizeof *flood), honest;
    for (int i = 0; i < 500; i++)
        add(&l, &flood[i], (unsigned)i % 5, i, true);
    for (int i = 0; i < 100; i++)
        ck_assert_ptr_eq(httpd_lobby_next(&l), &flood[i]);
    add(&l, &honest, 9, 500, true);
    int before = 0;
    while (httpd_lobby_next(&l) != &honest)
        before++;
    ck_assert_int_le(before, 5);
    free(flood);
}
END_TEST

START_TEST(only_ready_guests_have_a_turn)
{
    struct httpd_lobby l = {.max = MAX};
    struct httpd_guest silent, other;
    add(&l, &silent, 1, 0, false);
    add(&l, &other, 2, 1, true);
    ck_assert_ptr_eq(httpd_lobby_next(&l), &other);
    ck_assert_ptr_null(httpd_lobby_next(&l));
    httpd_lobby_ready(&l, &silent);
    httpd_lobby_ready(&l, &silent);
    ck_assert_uint_eq(l.ready, 1);
    ck_assert_ptr_eq(httpd_lobby_next(&l), &silent);
}
END_TEST

START_TEST(a_guest_expires)
{
    struct httpd_lobby l = {.max = MAX};
    struct httpd_guest a, b;
    add(&l, &a, 1, 100, false);
    add(&l, &b, 1, 200, true);
    ck_assert_ptr_null(httpd_lobby_expired(&l, 150, 50));
    ck_assert_ptr_eq(httpd_lobby_expired(&l, 151, 50), &a);
    ck_assert_ptr_null(httpd_lobby_expired(&l, 151, 50));
    ck_assert_ptr_eq(httpd_lobby_expired(&l, 1000, 50), &b);
    ck_assert_ptr_null(httpd_lobby_expired(&l, 1000, 50));
    ck_assert_uint_eq(l.ready, 0);
}
END_TEST

START_TEST(a_full_lobby_takes_from_the_busiest_address_the_silent_first)
{
    struct httpd_lobby l = {.max = MAX};
    struct httpd_guest busy[MAX], honest[2];
    ck_assert_ptr_null(httpd_lobby_excess(&l));
    add(&l, &honest[0], 9, 0, false);
    add(&l, &honest[1], 8, 0, true);
    for (int i = 0; i < MAX - 2; i++)
        add(&l, &busy[i], 1, 1 + i, i != 7 && i != 5);
    ck_assert_ptr_null(httpd_lobby_excess(&l));
    add(&l, &busy[MAX - 2], 1, 1 + MAX, true);
    bool gone[MAX] = {0};
    size_t n = 0;
    for (struct httpd_guest *g = httpd_lobby_excess(&l); g; g = g->next, n++) {
        ck_assert(is_of(g, 1));
        gone[g - busy] = true;
    }
    /* A thirty-second more than necessary: those that were silent, and the youngest. */
    ck_assert_uint_eq(n, 3);
    ck_assert(gone[5] && gone[7] && gone[MAX - 2]);
    ck_assert_uint_eq(l.n, MAX - 2);
    ck_assert_ptr_null(httpd_lobby_excess(&l));
}
END_TEST

/* Against a model: every guest that enters leaves once, in one of the three ways, and no
 * address overtakes another by more than one turn. */
START_TEST(nobody_is_lost_or_overtaken)
{
    enum { GUESTS = 4000, ADDRESSES = 6 };
    struct httpd_lobby l = {.max = MAX};
    struct httpd_guest *guests = xcalloc(GUESTS, sizeof *guests);
    char *left = xcalloc(GUESTS, 1);
    unsigned in = 0, out = 0, excess = 0;
    struct rng rng;
    rng_init(&rng, 7);
    for (int64_t now = 0; out < GUESTS; now++) {
        struct httpd_guest *g = NULL;
        if (in < GUESTS && rng_next(&rng) % 5 < 3) {
            unsigned address = (unsigned)(rng_next(&rng) % ADDRESSES);
            add(&l, &guests[in++], address, now, rng_next(&rng) % 4 > 0);
        } else if (rng_next(&rng) % 8 == 0 || in == GUESTS) {
            g = httpd_lobby_expired(&l, now, 200);
        } else {
            g = httpd_lobby_next(&l);
            for (const struct httpd_guest *q = l.first; g && q; q = q->next) {
                ck_assert(!q->tag || q->tag >= g->tag);
                ck_assert(!q->tag || q->since_ms >= g->since_ms ||
                          memcmp(&q->address, &g->address, sizeof g->address) != 0);
            }
        }
        if (g) {
            ck_assert(!left[g - guests]);
            left[g - guests] = 1;
            out++;
        }
        for (g = httpd_lobby_excess(&l); g; g = g->next) {
            ck_assert(!left[g - guests]);
            left[g - guests] = 1;
            out++;
            excess++;
        }
        ck_assert_uint_le(l.n, MAX);
        ck_assert_uint_eq(l.n, in - out);
    }
    ck_assert_uint_gt(excess, 0);
    ck_assert_uint_eq(l.ready, 0);
    free(guests);
    free(left);
}
END_TEST

UNIT_MAIN("httpd_lobby", addresses_take_turns_and_each_keeps_its_order,
          a_guest_waits_behind_one_of_each_other_address, only_ready_guests_have_a_turn,
          a_guest_expires, a_full_lobby_takes_from_the_busiest_address_the_silent_first,
          nobody_is_lost_or_overtaken)
