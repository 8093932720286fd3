/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/httpc.h"

#include "lib/stub.h"
#include "lib/temp.h"
#include "lib/tls.h"
#include "wire/httpd.h"

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
    ck_assert_contains(page, want);
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

TEST(the_server_must_have_a_certificate_of_the_ca)
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

/* The server sends the certificate "fallback", except for SNI api.test. */
TEST(the_server_name_replaces_the_host_in_sni_and_verification)
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
    array_items(c, cases) {
        w->config.server_name = c->server_name;
        if (c->ok)
            get_ok(w, "s_server");
        else
            get_fails(w);
    }
    fixture_free(w);
}

TEST(a_client_certificate_is_sent_with_its_key)
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
    w->config.key_pem = SPAN("this is no key");
    get_fails(w);
    cleanup_free char *other = temp_read(w->dir, "rogue.key");
    w->config.key_pem = span_of(other);
    get_fails(w);
    fixture_free(w);
}

TEST(tls_below_1_2_is_not_supported)
{
    struct fixture *w = fixture_new();
    fixture_serve(
        w, (const char *[]){SERVER, "-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0", NULL});
    get_fails(w);
    fixture_free(w);
}

static void on_host(void *ctx, const struct httpd_request *req, struct httpd_reply *reply)
{
    (void)ctx;
    buf_adds(&reply->body, httpd_header(req, "Host"));
}

/* A write, which would not be sent again on another connection. The server says
 * close_notify, which libcurl alone takes for data. */
TEST(a_connection_closed_by_the_server_is_not_reused)
{
    static const struct httpd_route routes[] = {{"POST", "/", on_host}, {0}};
    struct fixture *w = fixture_new();
    struct err err = {0};
    cleanup_free char *crt = temp_read(w->dir, "server.crt"),
                      *key = temp_read(w->dir, "server.key"), *url = NULL;
    struct tls *tls = tls_new(&(struct tls_config){.name = "test",
                                                   .cert_pem = span_of(crt),
                                                   .key_pem = span_of(key)},
                              &err);
    struct httpd_listener_config listener = {
        .address = "127.0.0.1", .max_body = 100, .tls = tls, .routes = routes};
    const struct httpc_request req = {
        .method = "POST", .path = "/", .body = SPAN("{}"), .timeout_ms = LIB_WAIT_MS};
    struct httpc *c = NULL;
    for (int i = 0; i < 3; i++) {
        struct httpd *d = httpd_new(NULL);
        struct httpc_reply reply;
        ck_assert_done(httpd_listen(d, &listener, &listener.port, &err), err);
        if (!c) {
            url = xasprintf("https://127.0.0.1:%u", listener.port);
            c = httpc_new(&(struct httpc_config){.url = url,
                                                 .ca_pem = span_of(w->ca),
                                                 .server_name = "api.test"},
                          &err);
        }
        ck_assert_done(httpc_call(c, &req, 100, &reply, &err), err);
        ck_assert_span_eq(buf_span(&reply.body), strrchr(url, '/') + 1); /* no api.test */
        httpc_reply_fini(&reply);
        ck_assert(httpd_drain(d, LIB_WAIT_MS));
        httpd_free(d);
    }
    httpc_free(c);
    tls_free(tls);
    fixture_free(w);
}
