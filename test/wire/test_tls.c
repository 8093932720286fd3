/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/tls.h"

#include "lib/temp.h"
#include "lib/tls.h"
#include "wire/httpc.h"
#include "wire/httpd_fixture.h"

/*
 * A server whose files change, and clients with different certificates.
 */

static struct {
    char *dir;
    struct tls *tls;       /* of the server; NULL: nothing is served */
    char *cert, *key, *ca; /* paths of its files */
    struct tls_config config;
} w;

static void on_client_name(void *ctx, const struct httpd_request *req,
                           struct httpd_reply *reply)
{
    static const char *const titles[TLS_GROUPS] = {"", ", secondary ", ", own "};
    bool is_trusted = false;
    (void)ctx;
    reply->content_type = "text/plain";
    if (!httpd_client_name(req, TLS_CLIENTS))
        buf_adds(&reply->body, "(unknown)");
    for (int i = 0; i < TLS_GROUPS; i++) {
        const char *name = httpd_client_name(req, (enum tls_group)i);
        is_trusted |= name != NULL;
        if (name)
            buf_printf(&reply->body, "%s%s", titles[i], name);
    }
    if (!is_trusted && httpd_client_name(req, TLS_ANY))
        buf_printf(&reply->body, ", not allowed %s", httpd_client_name(req, TLS_ANY));
}

static const struct httpd_route routes[] = {{"GET", "/who", on_client_name}, {0}};

/* Replaces the files of the server. NULL: no such file. */
static void publish(const char *cert, const char *key, const char *ca)
{
    const char *from[] = {cert, key, ca}, *to[] = {w.cert, w.key, w.ca};
    array_indices(i, from) {
        cleanup_free char *text = from[i] ? temp_read(w.dir, from[i]) : NULL;
        if (text)
            temp_write(w.dir, strrchr(to[i], '/') + 1, text);
        else
            unlink(to[i]);
    }
}

static void tls_fixture_begin(void)
{
    w.dir = temp_dir();
    tls_make_ca(w.dir, "ca");
    tls_make_ca(w.dir, "other");
    tls_make_cert(w.dir, "ca", "server", "IP:127.0.0.1");
    tls_make_cert(w.dir, "ca", "friend", "DNS:friend.test,IP:192.0.2.7");
    tls_make_cert(w.dir, "other", "foreign", "DNS:friend");
    tls_make_expired_cert(w.dir, "ca", "late", "IP:127.0.0.1");
    w.cert = temp_path(w.dir, "live.crt");
    w.key = temp_path(w.dir, "live.key");
    w.ca = temp_path(w.dir, "live-ca.crt");
    publish("server.crt", "server.key", "ca.crt");
    w.config = (struct tls_config){.name = "test",
                                   .cert_file = w.cert,
                                   .key_file = w.key,
                                   .groups[TLS_CLIENTS].ca_file = w.ca};
}

static void tls_fixture_close(void)
{
    if (!w.tls)
        return;
    lib_wait(fixture_is_empty());
    fixture_fini();
    tls_free(w.tls);
    w.tls = NULL;
}

/* Serves in place of the server before. */
static void tls_fixture_serve(enum httpd_mode mode)
{
    struct err err = {0};
    tls_fixture_close();
    w.tls = tls_new(&w.config, &err);
    ck_assert_msg(w.tls, "%s", err.msg);
    fixture_start(mode, &(struct httpd_limits){.first_request_ms = 3 * LIB_WAIT_MS},
                  .routes = routes, .tls = w.tls);
}

static void tls_fixture_end(void)
{
    tls_fixture_close();
    temp_dir_remove(w.dir);
    free(w.dir);
    free(w.cert);
    free(w.key);
    free(w.ca);
}

/* A client with the certificate NAME.crt (NULL: none) that trusts `ca`. */
static struct httpc *client(const char *name, const char *ca)
{
    cleanup_free char *url = xasprintf("https://127.0.0.1:%u", kit.port),
                      *ca_crt = xasprintf("%s.crt", ca),
                      *crt = name ? xasprintf("%s.crt", name) : NULL,
                      *key = name ? xasprintf("%s.key", name) : NULL,
                      *ca_pem = temp_read(w.dir, ca_crt),
                      *cert_pem = crt ? temp_read(w.dir, crt) : NULL,
                      *key_pem = key ? temp_read(w.dir, key) : NULL;
    struct httpc_config config = {.url = url,
                                  .ca_pem = span_of(ca_pem),
                                  .cert_pem = span_of(cert_pem),
                                  .key_pem = span_of(key_pem),
                                  .user_agent = "test",
                                  .connect_ms = LIB_WAIT_MS};
    struct err err = {0};
    struct httpc *c = httpc_new(&config, &err);
    ck_assert_msg(c, "%s", err.msg);
    return c;
}

/* The status, 0 without a response; `said` is set to the body, or to the error. */
static unsigned ask(struct httpc *c, struct buf *said)
{
    struct httpc_request req = {
        .method = "GET", .path = "/who", .timeout_ms = LIB_WAIT_MS};
    struct httpc_reply reply;
    struct err err = {0};
    int rc = httpc_call(c, &req, 65536, &reply, &err);
    unsigned status = rc ? 0 : reply.status;
    buf_clear(said);
    buf_add_span(said, rc ? span_of(err.msg) : buf_span(&reply.body));
    httpc_reply_fini(&reply);
    return status;
}

static unsigned get_as(const char *name, const char *ca, struct buf *said)
{
    struct httpc *c = client(name, ca);
    unsigned status = ask(c, said);
    httpc_free(c);
    return status;
}

/* The server calls the client NAME of `ca` so; NULL: the client gets no response. */
static void ck_client_name(const char *name, const char *ca, const char *want)
{
    cleanup_buf struct buf said = {0};
    ck_assert_uint_eq(get_as(name, ca, &said), want ? 200 : 0);
    if (want)
        ck_assert_span_eq(buf_span(&said), want);
}

static void assert_reports(const char *text)
{
    cleanup_buf struct buf out = {0};
    tls_report(w.tls, &out);
    if (text)
        ck_assert_msg(out.p && strstr(out.p, text), "no \"%s\" in: %s", text, out.p);
    else
        ck_assert_msg(out.n == 0, "%s", out.p);
}

/* Publishes the files, and reads them. */
static void reload(const char *cert, const char *key, const char *ca)
{
    publish(cert, key, ca);
    tls_refresh(w.tls);
}

/* The server has the certificate of this file. */
static void ck_server_cert(const char *file)
{
    cleanup_buf struct buf cert = {0};
    struct buf key = {0};
    cleanup_free char *want = temp_read(w.dir, file);
    tls_copy_pair(w.tls, &cert, &key);
    ck_assert_str_eq(cert.p, want);
    buf_wipe(&key);
}

/* Clients without a valid certificate complete the handshake, and are unauthenticated. */
TEST(only_a_client_of_the_ca_is_authenticated)
{
    tls_make_server_cert(w.dir, "ca", "serving", "DNS:serving.test");
    FOR_BOTH_MODES(mode)
    {
        tls_fixture_serve(mode);
        ck_client_name("friend", "ca", "friend");
        const char *unknown[] = {NULL, "foreign", "late", "serving"};
        array_items(u, unknown)
            ck_client_name(*u, "ca", "(unknown)");
        ck_client_name("friend", "ca", "friend");
    }
}

TEST(only_listed_names_are_allowed)
{
    static const struct {
        const char *name;
        bool common_only, allowed;
    } cases[] = {
        {"friend", false, true},      {"friend", true, true},
        {"friend.test", false, true}, {"friend.test", true, false},
        {"192.0.2.7", false, true},   {"192.0.2.8", false, false},
        {"frien", false, false},      {"friend2", false, false},
        {"", false, false},
    };
    array_items(c, cases) {
        const char *names[] = {"somebody", c->name};
        w.config.groups[TLS_CLIENTS] = (struct tls_names){w.ca, names, 2, c->common_only};
        tls_fixture_serve(HTTPD_THREADS);
        ck_client_name("friend", "ca",
                       c->allowed ? "friend" : "(unknown), not allowed friend");
    }
}

/* A client of the secondary CA is none of client_ca_file, whatever its name is. */
TEST(clients_of_the_secondary_ca_are_distinguished)
{
    const char *names[] = {"friend"};
    tls_make_ca(w.dir, "third");
    tls_make_cert(w.dir, "third", "nobody", "DNS:friend");
    tls_make_server_cert(w.dir, "other", "no-client", "DNS:friend");
    tls_make_expired_cert(w.dir, "other", "lately", "DNS:friend");
    cleanup_free char *ca = temp_path(w.dir, "ca.crt");
    publish("server.crt", "server.key", "other.crt");
    w.config.groups[TLS_CLIENTS] = (struct tls_names){ca, names, 1, false};
    w.config.groups[TLS_SECONDARY].ca_file = w.ca;
    tls_fixture_serve(HTTPD_EVENTS);
    ck_client_name(NULL, "ca", "(unknown)");
    ck_client_name("friend", "ca", "friend");
    ck_client_name("server", "ca", "(unknown), not allowed server");
    ck_client_name("foreign", "ca", "(unknown), secondary foreign");
    ck_client_name("nobody", "ca", "(unknown)");
    ck_client_name("no-client", "ca", "(unknown)");
    ck_client_name("lately", "ca", "(unknown)");

    reload("server.crt", "server.key", "third.crt");
    ck_client_name("foreign", "ca", "(unknown)");
    ck_client_name("nobody", "ca", "(unknown), secondary nobody");
    reload("server.crt", "server.key", NULL);
    tls_refresh(w.tls);
    assert_reports("live-ca.crt: No such file");
    ck_client_name("nobody", "ca", "(unknown), secondary nobody");

    /* Both CA files may contain the same CA. */
    reload("server.crt", "server.key", "ca.crt");
    assert_reports(NULL);
    ck_client_name("friend", "ca", "friend, secondary friend");
    ck_client_name("server", "ca", "(unknown), secondary server");

    w.config.groups[TLS_CLIENTS] = (struct tls_names){0}; /* only a secondary CA */
    tls_fixture_serve(HTTPD_EVENTS);
    ck_client_name("friend", "ca", "(unknown), secondary friend");
    ck_client_name("foreign", "ca", "(unknown)");
}

TEST(a_reload_applies_to_later_connections)
{
    tls_make_cert(w.dir, "other", "server2", "IP:127.0.0.1");
    tls_make_cert(w.dir, "other", "friend2", "DNS:friend.test");
    tls_fixture_serve(HTTPD_THREADS);
    cleanup_buf struct buf said = {0};
    struct httpc *old = client("friend", "ca");
    ck_assert_uint_eq(ask(old, &said), 200);
    tls_refresh(w.tls); /* no change */
    ck_client_name("friend", "ca", "friend");

    reload("server2.crt", "server2.key", "ca.crt");
    ck_client_name("friend", "other", "friend");
    ck_client_name("friend", "ca", NULL); /* another server now */
    ck_server_cert("server2.crt");

    reload("server2.crt", "server2.key", "other.crt");
    ck_client_name("friend2", "other", "friend2");
    ck_client_name("friend", "other", "(unknown)");

    ck_assert_int_ge(metric("connections"), 1);
    ck_assert_uint_eq(ask(old, &said), 200); /* on its old connection */
    httpc_free(old);
    assert_reports(NULL);
}

static int set_from(const char *cert, const char *key, const char *ca, struct err *err)
{
    cleanup_free char *cert_pem = temp_read(w.dir, cert),
                      *key_pem = temp_read(w.dir, key),
                      *ca_pem = ca ? temp_read(w.dir, ca) : NULL;
    return tls_set(w.tls, span_of(cert_pem), span_of(key_pem), span_of(ca_pem), err);
}

TEST(certificates_in_memory_are_replaced)
{
    struct err err = {0};
    const char *names[] = {"friend", "server"};
    tls_make_cert(w.dir, "other", "server2", "IP:127.0.0.1");
    cleanup_free char *cert = temp_read(w.dir, "server.crt"),
                      *key = temp_read(w.dir, "server.key"),
                      *ca = temp_path(w.dir, "ca.crt");
    w.config = (struct tls_config){.name = "test",
                                   .cert_pem = span_of(cert),
                                   .key_pem = span_of(key),
                                   .groups[TLS_OWN] = {NULL, names, 2, true}};
    FOR_BOTH_MODES(mode)
    {
        tls_fixture_serve(mode);
        ck_client_name("friend", "ca", "(unknown)"); /* no authority yet */
        ck_assert_int_eq(set_from("server.crt", "server.key", "ca.crt", &err), 0);
        ck_client_name("friend", "ca", "(unknown), own friend");
        ck_client_name("server", "ca", "(unknown), own server");
        ck_client_name("foreign", "ca", "(unknown)");
        tls_refresh(w.tls); /* there is no file to read */
        assert_reports(NULL);

        ck_assert_int_eq(set_from("server2.crt", "server.key", "ca.crt", &err), -1);
        ck_assert_contains(err.msg, "certificate in memory with key in memory");
        ck_assert_int_eq(set_from("server.key", "server.key", "ca.crt", &err), -1);
        ck_assert_int_eq(set_from("server2.crt", "server2.key", "ca.key", &err), -1);
        ck_client_name("friend", "ca", "(unknown), own friend"); /* as before */

        ck_assert_int_eq(set_from("server2.crt", "server2.key", "other.crt", &err), 0);
        /* Only the common name counts, which is "foreign". */
        ck_client_name("foreign", "other", "(unknown), not allowed foreign");
        ck_client_name("friend", "ca", NULL);
    }
    /* Beside the authorities of a file: each group has its own names. */
    w.config.groups[TLS_CLIENTS] = (struct tls_names){ca, names, 1, false};
    tls_fixture_serve(HTTPD_THREADS);
    ck_assert_int_eq(set_from("server.crt", "server.key", "other.crt", &err), 0);
    ck_client_name("friend", "ca", "friend");
    ck_client_name("server", "ca", "(unknown), not allowed server");
    ck_client_name("foreign", "ca", "(unknown), not allowed foreign");
}

TEST(bad_files_are_rejected_and_reported)
{
    temp_write(w.dir, "nonsense.crt", "-----BEGIN CERTIFICATE-----\nno\n");
    temp_write(w.dir, "empty.crt", "");
    tls_make_cert(w.dir, "ca", "server2", "IP:127.0.0.1");
    static const struct {
        const char *cert, *key, *ca, *says;
    } cases[] = {
        {"server2.crt", "server.key", "ca.crt", "live.crt with key "},
        {"nonsense.crt", "server.key", "ca.crt", "certificate "},
        {"empty.crt", "server.key", "ca.crt", "certificate "},
        {"late.crt", "late.key", "ca.crt", "has expired"},
        {NULL, "server.key", "ca.crt", "live.crt"},
        {"server.crt", NULL, "ca.crt", "live.key"},
        {"server.crt", "server.key", "nonsense.crt", "CA file "},
        {"server.crt", "server.key", "empty.crt", "CA file "},
        {"server.crt", "server.key", NULL, "live-ca.crt"},
    };
    tls_fixture_serve(HTTPD_THREADS);
    array_items(c, cases) {
        reload(c->cert, c->key, c->ca);
        assert_reports(NULL); /* the other file may follow */
        tls_refresh(w.tls);
        assert_reports(c->says);
        assert_reports("tls of test: ");
        ck_client_name("friend", "ca", "friend");
        reload("server.crt", "server.key", "ca.crt");
        assert_reports(NULL);
    }
    /* A valid certificate is loaded although the CA file is invalid. */
    reload("server2.crt", "server2.key", "nonsense.crt");
    tls_refresh(w.tls);
    assert_reports("CA file ");
    ck_server_cert("server2.crt");
}

TEST(bad_files_at_the_start_are_an_error)
{
    struct err err = {0};
    w.config.groups[TLS_CLIENTS].ca_file = "/no/such/ca.crt";
    ck_assert_ptr_null(tls_new(&w.config, &err));
    ck_assert_contains(err.msg, "/no/such/ca.crt");
    w.config.groups[TLS_CLIENTS].ca_file = w.key;
    ck_assert_ptr_null(tls_new(&w.config, &err));
    ck_assert_int_eq(strncmp(err.msg, "CA file ", 8), 0);
    w.config.groups[TLS_CLIENTS].ca_file = NULL;
    w.config.cert_file = w.ca;
    ck_assert_ptr_null(tls_new(&w.config, &err));
    ck_assert_contains(err.msg, w.key);
    /* An expired certificate is accepted at the start. */
    publish("late.crt", "late.key", NULL);
    w.config.cert_file = w.cert;
    w.tls = tls_new(&w.config, &err);
    ck_assert_msg(w.tls, "%s", err.msg);
    assert_reports("the certificate has expired at ");
    reload("server.crt", "server.key", NULL);
    assert_reports(NULL);
    tls_free(w.tls);
    w.tls = NULL;
}

struct load {
    atomic_bool stop;
    atomic_int calls, failed;
};

/* Every call has a connection of its own, and one more stays open. */
static void *call_on(void *arg)
{
    struct load *load = arg;
    cleanup_buf struct buf said = {0};
    struct httpc *kept = client("friend", "ca");
    while (!atomic_load(&load->stop)) {
        if (get_as("friend", "ca", &said) != 200 || ask(kept, &said) != 200)
            atomic_fetch_add(&load->failed, 1);
        atomic_fetch_add(&load->calls, 1);
    }
    httpc_free(kept);
    return NULL;
}

TEST(no_call_fails_during_reloads)
{
    enum { CALLERS = 3, ROUNDS = 20 };
    tls_make_cert(w.dir, "ca", "server2", "IP:127.0.0.1");
    FOR_BOTH_MODES(mode)
    {
        tls_fixture_serve(mode);
        struct load load = {0};
        pthread_t callers[CALLERS];
        for (int i = 0; i < CALLERS; i++)
            pthread_create(&callers[i], NULL, call_on, &load);
        for (int i = 0; i < ROUNDS; i++) {
            bool second = i % 2 == 0;
            reload(second ? "server2.crt" : "server.crt",
                   second ? "server2.key" : "server.key", "ca.crt");
            atomic_store(&load.calls, 0);
            lib_wait(atomic_load(&load.calls) >= 3);
        }
        atomic_store(&load.stop, true);
        for (int i = 0; i < CALLERS; i++)
            pthread_join(callers[i], NULL);
        ck_assert_int_eq(atomic_load(&load.failed), 0);
    }
}

UNIT_MAIN_AROUND(tls_fixture_begin, tls_fixture_end)
