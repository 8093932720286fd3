/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/httpc.h"

#include <microhttpd.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/mem.h"
#include "lib/stub.h"
#include "lib/temp.h"
#include "lib/tls.h"

/* One directory of certificates for a test, and what the client is made of. */
struct fixture {
    char *dir;
    struct tls_server *server;
    struct httpc_config config;
    char *ca, *cert, *key, *url;
};

/* The CA "ca" and the server's certificate for 127.0.0.1 and api.test. */
static struct fixture *fixture_new(void)
{
    struct fixture *w = xcalloc(1, sizeof *w);
    w->dir = temp_dir();
    tls_make_ca(w->dir, "ca");
    tls_make_cert(w->dir, "ca", "server", "IP:127.0.0.1,DNS:api.test");
    w->ca = temp_read(w->dir, "ca.crt");
    return w;
}

#define SERVER "-cert", "server.crt", "-key", "server.key"

static void fixture_serve(struct fixture *w, const char *const *args)
{
    w->server = tls_server_start(w->dir, 0, args);
    w->url = xasprintf("https://127.0.0.1:%u", tls_server_port(w->server));
    w->config = (struct httpc_config){
        .url = w->url, .connect_ms = 10000, .ca_pem = span_of(w->ca)};
}

static void fixture_free(struct fixture *w)
{
    if (w->server)
        tls_server_stop(w->server);
    temp_dir_remove(w->dir);
    free(w->dir);
    free(w->ca);
    free(w->cert);
    free(w->key);
    free(w->url);
    free(w);
}

static void show(struct fixture *w, const char *name)
{
    cleanup_free char *crt = xasprintf("%s.crt", name), *key = xasprintf("%s.key", name);
    free(w->cert);
    free(w->key);
    w->cert = temp_read(w->dir, crt);
    w->key = temp_read(w->dir, key);
    w->config.cert_pem = span_of(w->cert);
    w->config.key_pem = span_of(w->key);
}

/* GET /; the body, new. NULL without a response. */
static char *ask(const struct fixture *w, struct err *err, bool *sent)
{
    struct httpc_request req = {.method = "GET", .path = "/", .timeout_ms = 20000};
    struct httpc_reply reply;
    struct httpc *c = httpc_new(&w->config, err);
    if (!c)
        return NULL;
    int rc = httpc_call(c, &req, 1 << 20, &reply, err);
    char *page = rc ? NULL : buf_take(&reply.body);
    *sent = reply.sent;
    httpc_reply_fini(&reply);
    httpc_free(c);
    return page;
}

static void get_ok(const struct fixture *w, const char *want)
{
    struct err err = {0};
    bool sent = false;
    cleanup_free char *page = ask(w, &err, &sent);
    ck_assert_msg(page != NULL, "%s", err.msg);
    ck_assert(sent);
    ck_assert_msg(strstr(page, want) != NULL, "%s", page);
}

/* The handshake must fail before anything is sent. */
static void get_fails(const struct fixture *w)
{
    struct err err = {0};
    bool sent = true;
    cleanup_free char *page = ask(w, &err, &sent);
    ck_assert_ptr_null(page);
    ck_assert_int_eq(err.code, ERR_UNAVAILABLE);
    ck_assert(!sent);
}

START_TEST(the_server_must_have_a_certificate_of_the_ca)
{
    struct fixture *w = fixture_new();
    fixture_serve(w, (const char *[]){SERVER, NULL});
    get_ok(w, "s_server");
    tls_make_ca(w->dir, "other");
    cleanup_free char *other = temp_read(w->dir, "other.crt");
    w->config.ca_pem = span_of(other);
    get_fails(w);
    cleanup_free char *both = xasprintf("%s%s", other, w->ca);
    w->config.ca_pem = span_of(both);
    get_ok(w, "s_server");
    w->config.ca_pem = (struct span){0}; /* the system's */
    get_fails(w);
    w->config.ca_pem = SPAN("this is no certificate");
    get_fails(w);
    w->config.insecure = true;
    w->config.ca_pem = (struct span){0};
    get_ok(w, "s_server");
    fixture_free(w);
}
END_TEST

/* The server sends the certificate "fallback", except for SNI api.test. */
START_TEST(the_server_name_replaces_the_host_in_sni_and_verification)
{
    static const struct {
        const char *server_name; /* NULL: the host, which no certificate contains */
        bool ok;
    } cases[] = {
        {NULL, false},         {"api.test", true}, {"fallback.test", true},
        {"wrong.test", false}, {"10.1.2.3", true}, {"fd00::1", true},
        {"fd00::2", false},
    };
    struct fixture *w = fixture_new();
    tls_make_cert(w->dir, "ca", "named", "DNS:api.test");
    tls_make_cert(w->dir, "ca", "fallback", "DNS:fallback.test,IP:10.1.2.3,IP:fd00::1");
    fixture_serve(w, (const char *[]){"-cert", "fallback.crt", "-key", "fallback.key",
                                      "-servername", "api.test", "-cert2", "named.crt",
                                      "-key2", "named.key", NULL});
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        w->config.server_name = cases[i].server_name;
        if (cases[i].ok)
            get_ok(w, "s_server");
        else
            get_fails(w);
    }
    fixture_free(w);
}
END_TEST

START_TEST(a_client_certificate_is_sent_when_required)
{
    struct fixture *w = fixture_new();
    tls_make_cert(w->dir, "ca", "client", "DNS:client");
    tls_make_ca(w->dir, "rogue-ca");
    tls_make_cert(w->dir, "rogue-ca", "rogue", "DNS:client");
    fixture_serve(w, (const char *[]){SERVER, "-Verify", "1", "-verify_return_error",
                                      "-CAfile", "ca.crt", "-tls1_2", NULL});
    get_fails(w);
    show(w, "rogue");
    get_fails(w);
    show(w, "client");
    get_ok(w, "Client certificate");
    fixture_free(w);
}
END_TEST

START_TEST(a_key_that_does_not_match_is_an_error)
{
    struct fixture *w = fixture_new();
    tls_make_cert(w->dir, "ca", "client", "DNS:client");
    tls_make_cert(w->dir, "ca", "second", "DNS:client");
    fixture_serve(w, (const char *[]){SERVER, NULL});
    show(w, "client");
    cleanup_free char *other = temp_read(w->dir, "second.key");
    w->config.key_pem = span_of(other);
    get_fails(w);
    w->config.key_pem = SPAN("this is no key");
    get_fails(w);
    fixture_free(w);
}
END_TEST

START_TEST(tls_below_1_2_is_not_supported)
{
    struct fixture *w = fixture_new();
    fixture_serve(
        w, (const char *[]){SERVER, "-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0", NULL});
    get_fails(w);
    fixture_free(w);
}
END_TEST

enum { CALLS_OF_CONNECTION = 3 };

/* A TLS server with keep-alive that answers with the Host header. The answer to each third request begins the limit after which
 * the server closes its connection, so that no request of a slow client meets that limit. */
static enum MHD_Result serve_kept(void *ctx, struct MHD_Connection *conn, const char *url,
                                  const char *method, const char *version,
                                  const char *data, size_t *n, void **state)
{
    static int begun;
    unsigned *calls = ctx;
    (void)url;
    (void)method;
    (void)version;
    (void)data;
    if (!*state) {
        *state = &begun;
        return MHD_YES;
    }
    if (*n) {
        *n = 0;
        return MHD_YES;
    }
    if (++*calls % CALLS_OF_CONNECTION == 0)
        MHD_set_connection_option(conn, MHD_CONNECTION_OPTION_TIMEOUT, 1U);
    const char *host = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "Host");
    struct MHD_Response *r = MHD_create_response_from_buffer(strlen(host), (void *)host,
                                                             MHD_RESPMEM_MUST_COPY);
    enum MHD_Result rc = MHD_queue_response(conn, 200, r);
    MHD_destroy_response(r);
    return rc;
}

static void count_connection(void *ctx, struct MHD_Connection *conn, void **socket_ctx,
                             enum MHD_ConnectionNotificationCode code)
{
    atomic_uint *counts = ctx;
    (void)conn;
    (void)socket_ctx;
    atomic_fetch_add(&counts[code == MHD_CONNECTION_NOTIFY_CLOSED], 1);
}

START_TEST(a_connection_closed_by_the_server_is_not_reused)
{
    struct fixture *w = fixture_new();
    cleanup_free char *crt = temp_read(w->dir, "server.crt");
    cleanup_free char *key = temp_read(w->dir, "server.key");
    atomic_uint counts[2] = {0}; /* connections opened, and closed */
    unsigned calls = 0;
    struct MHD_Daemon *d = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_TLS, 0, NULL, NULL, serve_kept, &calls,
        MHD_OPTION_HTTPS_MEM_CERT, crt, MHD_OPTION_HTTPS_MEM_KEY, key,
        MHD_OPTION_NOTIFY_CONNECTION, count_connection, counts, MHD_OPTION_END);
    ck_assert_ptr_nonnull(d);
    unsigned port = MHD_get_daemon_info(d, MHD_DAEMON_INFO_BIND_PORT)->port;
    cleanup_free char *host = xasprintf("127.0.0.1:%u", port);
    cleanup_free char *url = xasprintf("https://%s", host);
    struct httpc_config config = {
        .url = url, .ca_pem = span_of(w->ca), .server_name = "api.test"};
    struct httpc_request req = {
        .method = "POST", .path = "/", .body = SPAN("{}"), .timeout_ms = 20000};
    struct err err = {0};
    struct httpc *c = httpc_new(&config, &err);
    for (unsigned round = 1; round <= 2; round++) {
        for (int i = 0; i < CALLS_OF_CONNECTION; i++) {
            struct httpc_reply reply;
            ck_assert_done(httpc_call(c, &req, 100, &reply, &err), err);
            ck_assert_span_eq(buf_span(&reply.body), host); /* not api.test */
            httpc_reply_fini(&reply);
        }
        ck_assert_uint_eq(atomic_load(&counts[0]), round);
        lib_wait(atomic_load(&counts[1]) == round); /* expired */
    }
    httpc_free(c);
    MHD_stop_daemon(d);
    fixture_free(w);
}
END_TEST

UNIT_MAIN("httpc_tls", the_server_must_have_a_certificate_of_the_ca,
          the_server_name_replaces_the_host_in_sni_and_verification,
          a_client_certificate_is_sent_when_required,
          a_key_that_does_not_match_is_an_error, tls_below_1_2_is_not_supported,
          a_connection_closed_by_the_server_is_not_reused)
