/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include <zlib.h>

#include "base/mem.h"
#include "lib/raw.h"
#include "lib/unit.h"

/* Which replies are compressed, and that their content is the same. The rules are those of
 * k8s.io/apiserver (endpoints/handlers/responsewriters). */

#define MAPS "/api/v1/namespaces/default/configmaps"

struct front {
    struct api *api;
    struct sim_server *server;
    struct raw c;
};

static void start(struct front *f)
{
    struct err err = {0};
    unsigned port;
    struct api_config ac = {.seed = 1};
    struct sim_server_config config = {.address = "127.0.0.1"};
    f->api = api_new(&ac);
    f->server = sim_server_start(f->api, &config, &port, &err);
    ck_assert_msg(f->server != NULL, "%s", err.msg);
    raw_open(&f->c, port);
}

static void stop(struct front *f)
{
    raw_close(&f->c);
    sim_server_stop(f->server);
    api_free(f->api);
}

static unsigned ask(struct front *f, const char *method, const char *path,
                    const char *accept_encoding, const char *body,
                    struct raw_reply *reply)
{
    cleanup_buf struct buf text = {0};
    buf_printf(&text, "%s %s HTTP/1.1\r\nHost: x\r\n", method, path);
    if (accept_encoding)
        buf_printf(&text, "Accept-Encoding: %s\r\n", accept_encoding);
    if (body)
        buf_printf(&text, "Content-Type: application/json\r\n");
    buf_printf(&text, "Content-Length: %zu\r\n\r\n%s", body ? strlen(body) : 0,
               body ? body : "");
    ck_assert(raw_send(&f->c, text.p, text.n));
    ck_assert_int_eq(raw_read(&f->c, reply), RAW_OK);
    return reply->status;
}

/* A ConfigMap with n bytes of moderately compressible text. */
static void add_map(struct front *f, const char *name, size_t n, const char *encoding,
                    struct raw_reply *reply)
{
    cleanup_buf struct buf body = {0};
    buf_printf(&body, "{\"metadata\":{\"name\":\"%s\"},\"data\":{\"k\":\"", name);
    for (size_t i = 0; i < n; i++)
        buf_addc(&body, (char)('a' + (i * i / 7 + i) % 26));
    buf_adds(&body, "\"}}");
    ck_assert_uint_eq(ask(f, "POST", MAPS, encoding, body.p, reply), 201);
}

static bool is_gzip(const struct raw_reply *reply)
{
    bool gzip = span_eq(raw_header(reply, "Content-Encoding"), SPAN("gzip"));
    /* A reply that can be compressed has Vary, so that caches keep both forms apart. */
    ck_assert(gzip == span_eq(raw_header(reply, "Vary"), SPAN("Accept-Encoding")));
    return gzip;
}

static void unpack(const struct raw_reply *reply, struct buf *out)
{
    z_stream z = {.next_in = (Bytef *)reply->body.p, .avail_in = (uInt)reply->body.n};
    ck_assert_int_eq(inflateInit2(&z, 15 + 16), Z_OK);
    int rc;
    buf_clear(out);
    do {
        buf_reserve(out, 1 << 20);
        z.next_out = (Bytef *)out->p + out->n;
        z.avail_out = 1 << 20;
        rc = inflate(&z, Z_NO_FLUSH);
        out->n += (1 << 20) - z.avail_out;
    } while (rc == Z_OK);
    ck_assert_int_eq(rc, Z_STREAM_END);
    ck_assert_uint_eq(z.avail_in, 0);
    inflateEnd(&z);
}

/* Is the reply compressed? Checks that its content equals the plain reply. */
static bool comes_packed(struct front *f, const char *path, const char *accept_encoding)
{
    struct raw_reply plain = {0}, reply = {0};
    cleanup_buf struct buf text = {0};
    ck_assert_uint_eq(ask(f, "GET", path, NULL, NULL, &plain), 200);
    ck_assert(!is_gzip(&plain));
    ck_assert_uint_eq(ask(f, "GET", path, accept_encoding, NULL, &reply), 200);
    bool packed = is_gzip(&reply);
    if (packed) {
        ck_assert_uint_lt(reply.body.n, plain.body.n);
        unpack(&reply, &text);
    } else {
        buf_add_span(&text, buf_span(&reply.body));
    }
    ck_assert(span_eq(buf_span(&text), buf_span(&plain.body)));
    raw_reply_fini(&plain);
    raw_reply_fini(&reply);
    return packed;
}

START_TEST(a_client_that_accepts_gzip_gets_gzip)
{
    static const struct {
        const char *header;
        bool wanted;
    } cases[] = {
        {"gzip", true},         {"deflate, gzip", true}, {"gzip,deflate", true},
        {"  gzip\t, br", true}, {NULL, false},           {"", false},
        {"identity", false},    {"deflate, br", false},  {"*", false},
        {"x-gzip", false},      {"GZIP", false},         {"gzip;q=1.0", false},
        {"gzip;q=0", false},    {"gzip deflate", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        ck_assert_msg(sim_gzip_wanted(cases[i].header) == cases[i].wanted, "%s",
                      cases[i].header);
}

START_TEST(nothing_up_to_128_kib_is_compressed)
{
    struct front f;
    struct raw_reply reply = {0};
    start(&f);
    add_map(&f, "m", 1000, NULL, &reply);
    ck_assert_uint_eq(ask(&f, "GET", MAPS "/m", NULL, NULL, &reply), 200);
    size_t envelope = reply.body.n - 1000;
    add_map(&f, "x", SIM_GZIP_ABOVE - envelope, NULL, &reply);
    add_map(&f, "y", SIM_GZIP_ABOVE - envelope + 1, NULL, &reply);
    ck_assert(!comes_packed(&f, MAPS "/x", "gzip"));
    ck_assert(comes_packed(&f, MAPS "/y", "gzip"));
    raw_reply_fini(&reply);
    stop(&f);
}

START_TEST(lists_of_any_length_are_compressed)
{
    struct front f;
    struct raw_reply reply = {0};
    start(&f);
    for (int i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof name, "m%02d", i);
        add_map(&f, name, 60000, NULL, &reply);
    }
    raw_reply_fini(&reply);
    ck_assert(!comes_packed(&f, MAPS "?limit=2", "gzip"));
    ck_assert(comes_packed(&f, MAPS "?limit=3", "gzip")); /* one piece */
    ck_assert(comes_packed(&f, MAPS "?limit=5", "gzip")); /* and a little more */
    ck_assert(comes_packed(&f, MAPS, "deflate, gzip"));   /* many */
    ck_assert(!comes_packed(&f, MAPS, "deflate, gzip;q=1"));
    stop(&f);
}

START_TEST(replies_to_writes_are_compressed_too)
{
    struct front f;
    struct raw_reply reply = {0};
    cleanup_buf struct buf text = {0};
    start(&f);
    add_map(&f, "m", 200000, "gzip", &reply);
    ck_assert(is_gzip(&reply));
    unpack(&reply, &text);
    ck_assert_uint_gt(text.n, 200000);
    raw_reply_fini(&reply);
    stop(&f);
}

START_TEST(watches_are_not_compressed)
{
    struct front f;
    struct raw_reply reply = {0};
    start(&f);
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "m%d", i);
        add_map(&f, name, 60000, NULL, &reply);
    }
    ck_assert_uint_eq(
        ask(&f, "GET", MAPS "?watch=1&timeoutSeconds=1", "gzip", NULL, &reply), 200);
    ck_assert(!is_gzip(&reply));
    ck_assert_uint_gt(reply.body.n, 240000);
    ck_assert(span_starts(buf_span(&reply.body), SPAN("{\"type\":\"ADDED\"")));
    raw_reply_fini(&reply);
    stop(&f);
}

UNIT_MAIN("gzip", a_client_that_accepts_gzip_gets_gzip,
          nothing_up_to_128_kib_is_compressed, lists_of_any_length_are_compressed,
          replies_to_writes_are_compressed_too, watches_are_not_compressed)
