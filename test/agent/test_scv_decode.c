/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/scv_decode.h"

#include "base/mem.h"
#include "lib/unit.h"

static struct scv_decode feed;
static struct buf heard;

static void on_input(void *ctx, const struct publisher_input *in)
{
    (void)ctx;
    ck_assert_uint_eq(in->run, 7);
    if (in->type == PUBLISHER_OBJECT)
        buf_printf(&heard, "%s %.*s %zu\n", in->gone ? "gone" : "seen",
                   SPAN_ARG(in->object->meta.name), in->object->scv.n_cards);
    else if (in->type == PUBLISHER_WATCH_ALIVE)
        buf_printf(&heard, "alive %.*s\n", SPAN_ARG(in->version));
    else
        buf_printf(&heard, "ended %s %lld\n", err_code_name(in->err->code),
                   (long long)in->retry_after_ms);
}

/* All of a watch; the body in pieces of so many bytes. */
static void heard_is(unsigned status, const char *body, const struct err *why,
                     const char *want)
{
    for (size_t piece = 1; piece < 100; piece = piece * 3 + 1) {
        size_t n = strlen(body);
        bool go_on = true;
        buf_clear(&heard);
        scv_decode_init(&feed, on_input, NULL);
        scv_decode_start(&feed, 7);
        if (status)
            scv_decode_begin(&feed, status, status == 429 ? 100 : -1);
        for (size_t i = 0; i < n && status && go_on; i += piece)
            go_on = scv_decode_data(&feed, body + i, n - i < piece ? n - i : piece);
        scv_decode_end(&feed, why);
        scv_decode_fini(&feed);
        ck_assert_str_eq(heard.p, want);
    }
}

#define OBJECT "{\"metadata\":{\"name\":\"n1\"},\"spec\":{\"updateInterval\":9}}"

START_TEST(each_event_is_an_input)
{
    heard_is(200,
             "{\"type\":\"ADDED\",\"object\":" OBJECT "}\n"
             "{\"object\":" OBJECT ",\"type\":\"DELETED\"}\n"
             "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":"
             "\"8\"}}}\n",
             NULL, "alive \nseen n1 0\ngone n1 0\nalive 8\nended ok -1\n");
    heard_is(200, "{\"type\":\"NEWS\",\"object\":7}\n", NULL, "alive \nended ok -1\n");
}
END_TEST

START_TEST(what_cannot_be_understood_ends_the_watch)
{
    static const char *const bad[] = {
        "{\"type\":\"ADDED\",\"object\":{}}\n", /* it has no name */
        "{\"type\":7,\"object\":" OBJECT "}\n",
        "[]\n",
        "7\n",
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a/b\"}}}\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        cleanup_free char *body =
            xasprintf("%s{\"type\":\"ADDED\",\"object\":" OBJECT "}\n", bad[i]);
        heard_is(200, body, NULL, "alive \nended invalid -1\n");
    }
}
END_TEST

START_TEST(an_end_says_how)
{
    const struct err lost = {ERR_UNAVAILABLE, "the connection was lost"};
    heard_is(200,
             "{\"type\":\"ERROR\",\"object\":{\"code\":410,\"message\":\"too old\"}}\n",
             NULL, "alive \nended gone -1\n");
    heard_is(200, "{\"type\":\"ADDED\",\"obj", &lost, "alive \nended unavailable -1\n");
    heard_is(200, "{\"type\":\"ADDED\",\"obj", NULL, "alive \nended ok -1\n");
    heard_is(403, "{}", NULL, "ended forbidden -1\n");
    heard_is(429, "{}", NULL, "ended unavailable 60000\n");
    heard_is(0, "", &lost, "ended unavailable -1\n");
}
END_TEST

UNIT_MAIN("scv_decode", each_event_is_an_input, what_cannot_be_understood_ends_the_watch,
          an_end_says_how)
