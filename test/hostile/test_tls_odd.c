/* SPDX-License-Identifier: Apache-2.0 */
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <signal.h>
#include <sys/socket.h>

#include "hostile/tls_world.h"
#include "lib/agent.h"
#include "lib/raw.h"

/*
 * What a client can do with TLS before it has shown who it is: old versions, a second
 * handshake, early data, floods of records, huge certificates; and what it can make the
 * programs write into their log.
 */

enum {
    LOG_LINES = 40, /* more than a flood may cause */
    FLOOD = 400,
    TIMES = 1000,
};

static void begin(struct world *w)
{
    signal(SIGPIPE, SIG_IGN);
    tls_world_start(w);
    tls_make_ca(lib_dir, "unknown");
}

/* kube-scheduler is served as before. */
static void end(struct world *w)
{
    ck_assert_int_eq(extender_filter(&w->extender, 4, "n1", NULL), FITS);
    ck_assert_uint_eq(peer_status(&w->extender.observers, "/healthz"), 200);
    world_stop(w);
}

/* -- a client -- */

struct client {
    struct raw raw;
    gnutls_session_t tls;
    gnutls_certificate_credentials_t cred;
    int handshake; /* its result */
};

static int shake(struct client *c)
{
    int rc;
    do
        rc = gnutls_handshake(c->tls);
    while (rc < 0 && !gnutls_error_is_fatal(rc));
    return rc;
}

/* `cert` of lib_dir, or NULL; `session` to resume, or NULL. */
static void dial(struct client *c, unsigned port, const char *priorities,
                 const char *cert, const gnutls_datum_t *session)
{
    raw_open(&c->raw, port);
    gnutls_certificate_allocate_credentials(&c->cred);
    if (cert) {
        cleanup_free char *crt = xasprintf("%s/%s.crt", lib_dir, cert),
                          *key = xasprintf("%s/%s.key", lib_dir, cert);
        ck_assert_int_eq(
            gnutls_certificate_set_x509_key_file(c->cred, crt, key, GNUTLS_X509_FMT_PEM),
            0);
        gnutls_certificate_set_flags(c->cred, GNUTLS_CERTIFICATE_SKIP_KEY_CERT_MATCH);
    }
    gnutls_init(&c->tls, GNUTLS_CLIENT | GNUTLS_FORCE_CLIENT_CERT);
    ck_assert_int_eq(gnutls_priority_set_direct(c->tls, priorities, NULL), 0);
    gnutls_credentials_set(c->tls, GNUTLS_CRD_CERTIFICATE, c->cred);
    gnutls_transport_set_int(c->tls, c->raw.fd);
    if (session)
        ck_assert_int_eq(gnutls_session_set_data(c->tls, session->data, session->size),
                         0);
    c->handshake = shake(c);
}

static void dial_well(struct client *c, unsigned port, const char *priorities)
{
    dial(c, port, priorities, NULL, NULL);
    ck_assert_int_eq(c->handshake, 0);
}

static void hang_up(struct client *c)
{
    gnutls_deinit(c->tls);
    gnutls_certificate_free_credentials(c->cred);
    raw_close(&c->raw);
}

/* The status of a GET; 0: the server has closed the connection. */
static unsigned get(struct client *c, const char *path)
{
    char reply[4096] = "";
    unsigned status = 0;
    cleanup_free char *request = xasprintf("GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path);
    if (gnutls_record_send(c->tls, request, strlen(request)) < 0)
        return 0;
    ssize_t n;
    do
        n = gnutls_record_recv(c->tls, reply, sizeof reply - 1);
    while (n == GNUTLS_E_AGAIN || n == GNUTLS_E_INTERRUPTED);
    if (n > 0)
        sscanf(reply, "HTTP/1.1 %u", &status);
    return status;
}

static const unsigned *ports_of(const struct world *w)
{
    static unsigned ports[2];
    ports[0] = w->extender.verbs.port;
    ports[1] = w->extender.observers.port;
    return ports;
}

static size_t log_lines(struct world *w)
{
    const char *text = program_output(&w->extender.program);
    size_t n = 0;
    while ((text = strchr(text, '\n'))) {
        text++;
        n++;
    }
    return n;
}

/* -- tests -- */

TEST(only_tls_1_2_and_1_3_are_spoken)
{
    static const struct {
        const char *priorities;
        bool spoken;
    } versions[] = {
        {"NORMAL:-VERS-ALL:+VERS-TLS1.0:%COMPAT", false},
        {"NORMAL:-VERS-ALL:+VERS-TLS1.1:%COMPAT", false},
        {"NORMAL:-VERS-ALL:+VERS-TLS1.2", true},
        {"NORMAL:-VERS-ALL:+VERS-TLS1.3", true},
        {"NONE:+VERS-TLS1.2:+NULL:+SHA256:+SIGN-ALL:+RSA:+COMP-NULL", false},
        {"NORMAL:-VERS-ALL:+VERS-TLS1.2:-KX-ALL:+ANON-ECDH", false},
    };
    /* SSL 2.0 and 3.0, a record of an unknown type, one longer than allowed. */
    static const char *const bytes[] = {
        "\x80\x2e\x01\x03\x01\x20\x15\x20\x10\x20", "\x16\x03\x20\x20\x06\x01\x20\x20",
        "\x99\x03\x03\x20\x20", "\x16\x03\x03\xff\xff\x01"};
    struct world w;
    begin(&w);
    for (int port = 0; port < 2; port++) {
        array_items(version, versions) {
            struct client c;
            dial(&c, ports_of(&w)[port], version->priorities, NULL, NULL);
            ck_assert_msg((c.handshake == 0) == version->spoken, "%s: %s",
                          version->priorities, gnutls_strerror(c.handshake));
            ck_assert_uint_eq(c.handshake ? 200 : get(&c, "/healthz"), 200);
            hang_up(&c);
        }
        array_items(byte, bytes) {
            struct raw c;
            cleanup_buf struct buf rest = {0};
            raw_open(&c, ports_of(&w)[port]);
            raw_send(&c, *byte, strlen(*byte));
            shutdown(c.fd, SHUT_WR);
            ck_assert_int_ne(raw_read_all(&c, &rest), RAW_TIMEOUT);
            ck_assert_uint_lt(rest.n, 16); /* an alert */
            raw_close(&c);
        }
    }
    end(&w);
}

/* A client cannot have one connection compute handshakes over and over. */
TEST(a_second_handshake_ends_the_connection)
{
    struct world w;
    begin(&w);
    for (int port = 0; port < 2; port++) {
        struct client c;
        dial_well(&c, ports_of(&w)[port], "NORMAL:-VERS-ALL:+VERS-TLS1.2");
        ck_assert_uint_eq(get(&c, "/healthz"), 200);
        ck_assert_int_ne(shake(&c), 0);
        ck_assert_uint_eq(get(&c, "/healthz"), 0);
        hang_up(&c);
    }
    end(&w);
}

/* A repeated bind in early data would need no certificate of its own. */
TEST(no_session_is_resumed_and_no_early_data_accepted)
{
    static const char *const versions[] = {"NORMAL:-VERS-ALL:+VERS-TLS1.2",
                                           "NORMAL:-VERS-ALL:+VERS-TLS1.3"};
    struct world w;
    begin(&w);
    for (size_t i = 0; i < 2 * ARRAY_LEN(versions); i++) {
        struct client first, next;
        gnutls_datum_t session = {0};
        unsigned port = ports_of(&w)[i % 2];
        dial(&first, port, versions[i / 2], "scheduler", NULL);
        ck_assert_int_eq(first.handshake, 0);
        ck_assert_uint_eq(get(&first, "/healthz"), 200);
        bool has = gnutls_session_get_data2(first.tls, &session) == 0 && session.size;
        dial(&next, port, versions[i / 2], NULL, has ? &session : NULL);
        ck_assert_int_eq(next.handshake, 0);
        ck_assert(!gnutls_session_is_resumed(next.tls));
        ck_assert(!(gnutls_session_get_flags(next.tls) & GNUTLS_SFLAGS_EARLY_DATA));
        ck_assert_uint_eq(get(&next, "/healthz"), 200);
        gnutls_free(session.data);
        hang_up(&first);
        hang_up(&next);
    }
    end(&w);
}

/* Each record costs a decryption; some that mean nothing, and those that ask for keys. */
TEST(floods_of_records_end_only_their_connection)
{
    struct world w;
    begin(&w);
    for (int port = 0; port < 2; port++) {
        struct client keys, bytes, alerts;
        dial_well(&keys, ports_of(&w)[port], "NORMAL:-VERS-ALL:+VERS-TLS1.3");
        for (int i = 0; i < TIMES; i++)
            if (gnutls_session_key_update(keys.tls, GNUTLS_KU_PEER) < 0)
                break;
        ck_assert_uint_eq(get(&keys, "/healthz"), 0); /* GnuTLS allows eight a second */
        dial_well(&bytes, ports_of(&w)[port], "NORMAL");
        for (const char *p = "GET /healthz HTTP/1.1\r\nHost: x\r\nA: "; *p; p++)
            ck_assert_int_eq(gnutls_record_send(bytes.tls, p, 1), 1);
        for (int i = 0; i < TIMES; i++)
            ck_assert_int_eq(gnutls_record_send(bytes.tls, "a", 1), 1);
        ck_assert_int_gt(gnutls_record_send(bytes.tls, "\r\n", 2), 0);
        ck_assert_uint_eq(get(&bytes, "/healthz"), 400); /* a GET instead of a header */
        dial_well(&alerts, ports_of(&w)[port], "NORMAL:-VERS-ALL:+VERS-TLS1.2");
        for (int i = 0; i < TIMES; i++)
            if (gnutls_alert_send(alerts.tls, GNUTLS_AL_WARNING, GNUTLS_A_USER_CANCELED) <
                0)
                break;
        hang_up(&keys);
        hang_up(&bytes);
        hang_up(&alerts);
    }
    end(&w);
}

/* Writes NAME.crt with `n` certificates of the authority `ca`, and the key of the first. */
static void make_chain(const char *ca, const char *name, const char *names, int n)
{
    tls_make_cert(lib_dir, ca, name, names);
    cleanup_free char *file = xasprintf("%s.crt", name),
                      *issuer = xasprintf("%s.crt", ca), *own = temp_read(lib_dir, file),
                      *above = temp_read(lib_dir, issuer);
    cleanup_buf struct buf chain = {0};
    buf_adds(&chain, own);
    for (int i = 1; i < n; i++)
        buf_adds(&chain, above);
    temp_write(lib_dir, file, chain.p);
}

TEST(huge_certificates_prove_nothing_and_cost_no_other_client)
{
    enum { NAMES = 1500, CHAIN = 150 };
    struct world w;
    begin(&w);
    cleanup_buf struct buf names = {0};
    for (int i = 0; i < NAMES; i++)
        buf_printf(&names, "%sDNS:a-name-of-a-certificate-%d.test", i ? "," : "", i);
    make_chain("unknown", "wide", names.p, 1);
    make_chain("unknown", "long", "DNS:scheduler.test", CHAIN);
    make_chain("ca", "extra", "DNS:scheduler.test", CHAIN);
    static const struct {
        const char *cert;
        bool is_ours;
    } certs[] = {{"wide", false}, {"long", false}, {"extra", true}};
    for (size_t i = 0; i < 2 * ARRAY_LEN(certs); i++) {
        struct client c;
        const char *cert = certs[i / 2].cert;
        dial(&c, ports_of(&w)[i % 2], "NORMAL", cert, NULL);
        unsigned status = c.handshake ? 0 : get(&c, "/inspect");
        /* A long chain may also end the handshake. */
        ck_assert_msg(status == 0 || status == 401 || status == 403 ||
                          (certs[i / 2].is_ours && status == 200),
                      "%s: %u", cert, status);
        hang_up(&c);
    }
    end(&w);
}

static void flood(const struct world *w, int port)
{
    static const char *const bad[] = {
        "\x01\xff garbage\r\n\r\n", "GET / HTTP/1.1\r\n\r\n",
        "POST /filter HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        "Content-Length: 2\r\n\r\n{}",
        "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer invented\r\n\r\n"};
    for (int i = 0; i < FLOOD; i++) {
        struct client c;
        char reply[512];
        dial(&c, ports_of(w)[port], "NORMAL", i % 8 == 0 ? "nobody" : NULL, NULL);
        if (c.handshake == 0) {
            const char *request = bad[(size_t)i % ARRAY_LEN(bad)];
            gnutls_record_send(c.tls, request, strlen(request));
            gnutls_record_recv(c.tls, reply, sizeof reply);
        }
        hang_up(&c);
    }
}

/* On stderr of a container, a line for each would fill the node's disk. */
TEST(bad_requests_do_not_fill_the_log)
{
    struct world w;
    begin(&w);
    tls_make_cert(lib_dir, "unknown", "nobody", "DNS:scheduler.test");
    size_t before = log_lines(&w);
    for (int port = 0; port < 2; port++) {
        flood(&w, port);
        for (int i = 0; i < FLOOD; i++) {
            struct raw c;
            raw_open(&c, ports_of(&w)[port]);
            raw_sendf(&c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
            raw_close(&c);
        }
    }
    size_t more = log_lines(&w) - before;
    ck_assert_msg(more < LOG_LINES, "%zu lines for %d requests: %s", more, 4 * FLOOD,
                  program_output(&w.extender.program));
    end(&w);
}

/* The ports of scv-agent: whatever arrives, one reply or none, and few lines. */
TEST(odd_bytes_at_scv_agent_are_answered_and_not_logged)
{
    static const char *const odd[] = {
        "\x16\x03\x01\x02\x01\x01\x01\x01\xfc\x03\x03\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n",
        "GET /metrics?%00 HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: "
        "chunked\r\n\r\n",
        "DELETE /livez HTTP/1.1\r\nHost: x\r\n\r\n",
        "\r\n\r\n\r\n\r\n"};
    struct sim sim;
    struct agent agent;
    signal(SIGPIPE, SIG_IGN);
    sim_start(&sim, ARGV(NULL));
    agent_setup(&sim);
    agent_cards("{'uuid':'GPU-0','model':'Tesla T4','memoryTotal':16106127360,"
                "'memoryUsed':1048576,'health':'Healthy'}");
    cleanup_free char *source = agent_file();
    agent_start(&agent, &sim, source, ARGV(NULL));
    lib_wait(peer_status(&agent.health, "/livez") == 200);
    for (int i = 0; i < FLOOD; i++) {
        struct raw c;
        cleanup_buf struct buf reply = {0};
        const char *text = odd[(size_t)i % ARRAY_LEN(odd)];
        raw_open(&c, agent.health.port);
        raw_send(&c, text, strlen(text));
        shutdown(c.fd, SHUT_WR);
        ck_assert_int_ne(raw_read_all(&c, &reply), RAW_TIMEOUT);
        ck_assert_msg(!reply.n || strncmp(reply.p, "HTTP/1.1 4", 10) == 0 ||
                          strncmp(reply.p, "HTTP/1.1 505", 12) == 0,
                      "%s: %s", text, reply.p);
        raw_close(&c);
    }
    ck_assert_uint_eq(peer_status(&agent.health, "/livez"), 200);
    ck_assert_lacks(program_output(&agent.program), "malformed");
    agent_stop(&agent);
    sim_stop(&sim);
}

LIB_MAIN(120)
