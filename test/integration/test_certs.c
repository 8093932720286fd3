/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kube/secret.h"
#include "lib/sim.h"
#include "wire/httpc.h"
#include "wire/tls.h"
#include "wire/x509.h"

/*
 * The certificates that the extender makes itself: from the first start and deleted Secrets to
 * those of other programs, which it never writes.
 */

#define CA      "gpushare-extender-ca"
#define SERVER  "gpushare-extender-tls"
#define CLIENT  "gpushare-scheduler-tls"
#define SECRETS "/api/v1/namespaces/kube-system/secrets"
#define FILTER  "/gpushare-scheduler/filter"
#define BIND    "/gpushare-scheduler/bind"

enum { DAY_S = 86400 };

/* -- Secrets -- */

static bool has_secret(const struct sim *s, const char *name)
{
    return peer_status(&s->api, name) == 200;
}

/* The Secret, which must exist. Release with secret_fini. */
static void get(const struct sim *s, const char *name, struct secret *out)
{
    cleanup_free char *path = xasprintf(SECRETS "/%s", name);
    cleanup_buf struct buf json = {0};
    struct err err = {0};
    *out = (struct secret){0};
    ck_assert_msg(peer_call(&s->api, "GET", path, NULL, &json) == 200, "%s", json.p);
    ck_assert_msg(secret_decode(buf_span(&json), out, &err) == 0, "%s", err.msg);
}

static void put(const struct sim *s, const char *name, const struct secret *to)
{
    struct buf body = {0};
    secret_encode(to, "kube-system", name, &body);
    sim_load(s, "%s", body.p);
    buf_wipe(&body);
}

static void drop(const struct sim *s, const char *name)
{
    cleanup_free char *path = xasprintf(SECRETS "/%s", name);
    cleanup_buf struct buf said = {0};
    ck_assert_uint_eq(peer_call(&s->api, "DELETE", path, NULL, &said), 200);
}

/* One of the values of a Secret; new. "" if there is no Secret or value. */
static char *value(const struct sim *s, const char *name, enum secret_key key)
{
    cleanup_free char *path = xasprintf(SECRETS "/%s", name);
    struct secret got;
    if (!has_secret(s, path))
        return xstrdup("");
    get(s, name, &got);
    char *text = xmemdup0(got.data[key].p ? got.data[key].p : "", got.data[key].n);
    secret_fini(&got);
    return text;
}

static bool differs(const struct sim *s, const char *name, enum secret_key key,
                    const char *from)
{
    cleanup_free char *now = value(s, name, key);
    return *now && strcmp(now, from) != 0;
}

static bool has_three(const struct sim *s)
{
    return has_secret(s, SECRETS "/" CA) && has_secret(s, SECRETS "/" SERVER) &&
           has_secret(s, SECRETS "/" CLIENT);
}

static void set(struct secret *s, enum secret_key key, struct span bytes)
{
    buf_clear(&s->data[key]);
    buf_add_span(&s->data[key], bytes);
}

static int64_t now_s(void)
{
    return clock_wall_ns() / 1000000000;
}

static void make(struct x509_pair *out, const struct x509_pair *issuer,
                 const char *common_name, int64_t age_s, int64_t life_s)
{
    static const char *const names[] = {"gpushare-schd-extender",
                                        "gpushare-schd-extender.kube-system",
                                        "gpushare-schd-extender.kube-system.svc",
                                        "localhost",
                                        "127.0.0.1",
                                        NULL};
    bool server = strcmp(common_name, "gpushare-extender") == 0;
    struct x509_spec spec = {.common_name = common_name,
                             .names = server ? names : NULL,
                             .ca = !issuer,
                             .server = server,
                             .client = issuer,
                             .begins_s = now_s() - age_s,
                             .expires_s = now_s() - age_s + life_s};
    struct err err = {0};
    ck_assert_msg(x509_make(&spec, issuer, out, &err) == 0, "%s", err.msg);
}

static void put_pair(const struct sim *s, const char *name, const struct x509_pair *pair,
                     const struct x509_pair *ca)
{
    struct secret secret = {0};
    set(&secret, SECRET_CERT, buf_span(&pair->cert));
    set(&secret, SECRET_KEY, buf_span(&pair->key));
    set(&secret, SECRET_CA, buf_span(&ca->cert));
    put(s, name, &secret);
    secret_fini(&secret);
}

/* -- Clients -- */

/* What kube-scheduler has in its files: a copy of the Secret. */
struct identity {
    struct secret secret;
    const char *flag_header;
};

static void take(const struct sim *s, const char *name, struct identity *id)
{
    *id = (struct identity){0};
    get(s, name, &id->secret);
}

static void identity_fini(struct identity *id)
{
    secret_fini(&id->secret);
}

/* On a new connection, as `id`; NULL: without a certificate, and any server is accepted.
 * Returns the status, 0 without an answer. */
static unsigned call(unsigned port, const struct identity *id, const char *path,
                     const char *body, struct buf *said)
{
    cleanup_free char *url = xasprintf("https://127.0.0.1:%u", port);
    struct httpc_config config = {
        .url = url, .user_agent = "test", .connect_ms = 20000, .insecure = !id};
    struct httpc_request request = {.method = body ? "POST" : "GET",
                                    .path = path,
                                    .content_type = body ? "application/json" : NULL,
                                    .body = span_of(body),
                                    .flag_header = id ? id->flag_header : NULL,
                                    .timeout_ms = 20000};
    struct httpc_reply reply;
    struct err err = {0};
    if (id) {
        config.ca_pem = buf_span(&id->secret.data[SECRET_CA]);
        config.cert_pem = buf_span(&id->secret.data[SECRET_CERT]);
        config.key_pem = buf_span(&id->secret.data[SECRET_KEY]);
    }
    struct httpc *http = httpc_new(&config, &err);
    ck_assert_msg(http, "%s", err.msg);
    int rc = httpc_call(http, &request, 1 << 20, &reply, &err);
    unsigned status = rc ? 0 : reply.status;
    buf_clear(said);
    buf_add_span(said, rc ? span_of(err.msg) : buf_span(&reply.body));
    httpc_reply_fini(&reply);
    httpc_free(http);
    return status;
}

static unsigned filter(const struct extender *e, const struct identity *id,
                       struct buf *said)
{
    cleanup_buf struct buf body = {0};
    lib_filter_body(&body, "p", 1, ARGV("n1"));
    return call(e->verbs.port, id, FILTER, body.p, said);
}

static bool binds(const struct extender *e, const struct identity *id, const char *pod,
                  struct buf *said)
{
    cleanup_buf struct buf body = {0};
    lib_bind_body(&body, pod, "n1");
    return call(e->verbs.port, id, BIND, body.p, said) == 200 &&
           strstr(said->p, "\"Error\":\"\"");
}

static bool observers_say(const struct extender *e, const char *path, unsigned status,
                          const char *text)
{
    cleanup_buf struct buf said = {0};
    return call(e->observers.port, NULL, path, NULL, &said) == status &&
           strstr(said.p, text);
}

static bool is_ready(const struct extender *e)
{
    return observers_say(e, "/readyz", 200, "ok");
}

static bool is_leader(const struct extender *e, const struct identity *id)
{
    cleanup_buf struct buf said = {0};
    return call(e->verbs.port, id, "/inspect", NULL, &said) == 200 &&
           strstr(said.p, "\"leader\":true");
}

static void start(struct extender *e, const struct sim *s)
{
    cleanup_free char *path = lib_kubeconfig("kubeconfig", "http", s->api.port, "", "");
    extender_start_at(e, path, ARGV("--insecure=off"));
}

static void start_ready(struct extender *e, const struct sim *s)
{
    start(e, s);
    lib_wait(is_ready(e) && has_three(s)); /* the client's is the last */
}

static void begin(struct sim *s)
{
    sim_start(s, ARGV(NULL));
    sim_add_node(s, "n1", 2, 16);
    sim_add_pod(s, "p", 1);
    sim_add_pod(s, "q", 1);
}

/* -- Tests -- */

START_TEST(a_fresh_start_makes_the_certificates)
{
    struct sim s;
    struct extender e;
    struct identity scheduler, replica;
    cleanup_buf struct buf said = {0};
    begin(&s);
    sim_fault(&s, "{\"verb\":\"create\",\"resource\":\"secrets\",\"action\":\"answer\","
                  "\"status\":403}");
    start(&e, &s);
    /* Alive, and not ready: the permission is missing. */
    lib_wait(
        observers_say(&e, "/healthz", 200, "Secret kube-system/" CA ": cannot write: "));
    lib_wait(observers_say(&e, "/readyz", 503, "no certificate: "));
    ck_assert_uint_eq(call(e.verbs.port, NULL, "/healthz", NULL, &said), 200);
    ck_assert_uint_eq(call(e.verbs.port, NULL, "/readyz", NULL, &said), 503);
    ck_assert_uint_eq(filter(&e, NULL, &said), 401);
    lib_wait(strstr(program_output(&e.program), "cannot write: "));
    ck_assert(!has_secret(&s, SECRETS "/" CA));
    sim_no_faults(&s);
    lib_wait(is_ready(&e) && has_three(&s));
    lib_wait(observers_say(&e, "/healthz", 200, "ok\n"));

    take(&s, CLIENT, &scheduler);
    take(&s, SERVER, &replica);
    ck_assert_msg(filter(&e, &scheduler, &said) == 200, "%s", said.p);
    ck_assert_contains(said.p, "\"NodeNames\":[\"n1\"]");
    ck_assert_uint_eq(filter(&e, NULL, &said), 401);
    ck_assert_contains(said.p, "a client certificate is required");
    ck_assert_uint_eq(call(e.verbs.port, NULL, "/readyz", NULL, &said), 200);
    ck_assert_uint_eq(call(e.verbs.port, NULL, "/version", NULL, &said), 200);
    ck_assert_uint_eq(call(e.verbs.port, NULL, "/inspect", NULL, &said), 401);
    ck_assert_msg(binds(&e, &scheduler, "p", &said), "%s", said.p);

    /* Only a replica may say that it forwards. */
    scheduler.flag_header = replica.flag_header = "X-Gpushare-Forwarded";
    ck_assert(!binds(&e, &scheduler, "q", &said));
    ck_assert_contains(said.p, "only a replica of the extender may forward a bind");
    ck_assert_msg(binds(&e, &replica, "q", &said), "%s", said.p);
    scheduler.flag_header = replica.flag_header = "X-Gpushare-Report";
    ck_assert_uint_eq(filter(&e, &scheduler, &said), 403);
    ck_assert_msg(filter(&e, &replica, &said) == 200, "%s", said.p);
    identity_fini(&scheduler);
    identity_fini(&replica);
    extender_stop(&e);
    sim_stop(&s);
}
END_TEST

START_TEST(replicas_share_the_certificates_and_a_restart_keeps_them)
{
    enum { REPLICAS = 3 };
    struct sim s;
    struct extender e[REPLICAS];
    struct identity scheduler;
    cleanup_buf struct buf said = {0};
    begin(&s);
    for (int i = 0; i < REPLICAS; i++)
        start(&e[i], &s);
    for (int i = 0; i < REPLICAS; i++)
        lib_wait(is_ready(&e[i]));
    lib_wait(has_three(&s));
    take(&s, CLIENT, &scheduler);
    cleanup_free char *cert = value(&s, SERVER, SECRET_CERT);
    for (int i = 0; i < REPLICAS; i++)
        ck_assert_msg(filter(&e[i], &scheduler, &said) == 200, "%d: %s", i, said.p);
    ck_assert_int_eq(sim_count(&s, "create", "secrets", ""), 3);

    /* A follower forwards with the server's pair. */
    int leader = -1;
    for (int i = 0; i < REPLICAS; i++)
        if (is_leader(&e[i], &scheduler))
            leader = i;
    ck_assert_int_ge(leader, 0);
    int follower = (leader + 1) % REPLICAS;
    ck_assert_msg(binds(&e[follower], &scheduler, "p", &said), "%s", said.p);
    lib_wait(strstr(program_output(&e[leader].program), "pod=p"));

    /* The next leader finds nothing to do; so does a new process. */
    extender_stop(&e[leader]);
    ck_assert_msg(binds(&e[follower], &scheduler, "q", &said), "%s", said.p);
    start_ready(&e[leader], &s);
    ck_assert_msg(filter(&e[leader], &scheduler, &said) == 200, "%s", said.p);
    cleanup_free char *again = value(&s, SERVER, SECRET_CERT);
    ck_assert_str_eq(again, cert);
    ck_assert_int_eq(sim_count(&s, "create", "secrets", ""), 3);
    ck_assert_int_eq(sim_count(&s, "patch", "secrets", ""), 0);
    identity_fini(&scheduler);
    for (int i = 0; i < REPLICAS; i++)
        extender_stop(&e[i]);
    sim_stop(&s);
}
END_TEST

START_TEST(deleted_secrets_are_made_again_without_an_outage)
{
    struct sim s;
    struct extender e;
    struct identity old, new;
    cleanup_buf struct buf said = {0};
    begin(&s);
    start_ready(&e, &s);
    take(&s, CLIENT, &old);
    cleanup_free char *cert = value(&s, SERVER, SECRET_CERT),
                      *ca = value(&s, CA, SECRET_CERT);
    struct x509_info info = {0}, ca_info = {0};
    ck_assert_int_eq(x509_read(span_of(cert), &info, NULL), 0);
    ck_assert_int_eq(x509_read(span_of(ca), &ca_info, NULL), 0);
    ck_assert_int_gt(info.expires_s, now_s() + 3640LL * DAY_S);
    ck_assert_int_le(info.expires_s, ca_info.expires_s);

    /* Of the same CA: the clients of before go on. */
    drop(&s, SERVER);
    while (!has_secret(&s, SECRETS "/" SERVER))
        ck_assert_msg(filter(&e, &old, &said) == 200, "%s", said.p);
    lib_wait(differs(&s, SERVER, SECRET_CERT, cert));
    ck_assert(!differs(&s, CA, SECRET_CERT, ca));
    ck_assert_msg(filter(&e, &old, &said) == 200, "%s", said.p);

    /* The CA alone is missed when it has to sign: the former one stays trusted. */
    drop(&s, CA);
    drop(&s, CLIENT);
    lib_wait(has_three(&s));
    ck_assert(differs(&s, CA, SECRET_CERT, ca));
    take(&s, CLIENT, &new);
    lib_wait(filter(&e, &new, &said) == 200);
    ck_assert_msg(filter(&e, &old, &said) == 200, "%s", said.p);
    identity_fini(&new);

    /* All of them: nothing of before is trusted any more. */
    cleanup_free char *second = value(&s, CA, SECRET_CERT);
    do { /* the first can be back before the last is deleted */
        if (has_secret(&s, SECRETS "/" CA))
            drop(&s, CA);
        drop(&s, SERVER);
        drop(&s, CLIENT);
        lib_wait(has_three(&s));
    } while (!differs(&s, CA, SECRET_CERT, second));
    take(&s, CLIENT, &new);
    lib_wait(filter(&e, &new, &said) == 200);
    identity_fini(&old);
    identity_fini(&new);
    extender_stop(&e);
    sim_stop(&s);
}
END_TEST

START_TEST(a_secret_that_exists_is_served_or_reported_and_never_written)
{
    struct sim s;
    struct extender e;
    struct identity scheduler;
    struct x509_pair ca = {{0}, {0}}, server = {{0}, {0}}, client = {{0}, {0}};
    cleanup_buf struct buf said = {0};
    begin(&s);
    make(&ca, NULL, "corporate", 60, 30 * DAY_S);
    make(&server, &ca, "gpushare-extender", 60, 30 * DAY_S);
    make(&client, &ca, "gpushare-scheduler", 60, 30 * DAY_S);
    /* A certificate that is no CA cannot sign what is missing. */
    put_pair(&s, CA, &client, &ca);
    start(&e, &s);
    lib_wait(observers_say(&e, "/healthz", 200, "the certificate is of no authority"));
    lib_wait(observers_say(&e, "/readyz", 503, "no certificate: "));
    ck_assert(!has_secret(&s, SECRETS "/" SERVER));
    put_pair(&s, SERVER, &server, &ca);
    put_pair(&s, CLIENT, &client, &ca);
    take(&s, CLIENT, &scheduler);
    lib_wait(filter(&e, &scheduler, &said) == 200);
    lib_wait(is_ready(&e));

    /* One that nobody renews, and a damaged one: what was read before is used. */
    x509_pair_fini(&server);
    make(&server, &ca, "gpushare-extender", 20 * DAY_S, 19 * DAY_S);
    put_pair(&s, SERVER, &server, &ca);
    lib_wait(observers_say(&e, "/healthz", 200,
                           "Secret kube-system/" SERVER ": the certificate has expired"));
    buf_clear(&server.key);
    buf_adds(&server.key, "half a key");
    put_pair(&s, SERVER, &server, &ca);
    lib_wait(observers_say(&e, "/healthz", 200, SERVER ": private key"));
    ck_assert_msg(filter(&e, &scheduler, &said) == 200, "%s", said.p);
    ck_assert(!differs(&s, SERVER, SECRET_CERT, server.cert.p));

    /* A renewal of another program, of a new CA, is used without a restart. */
    x509_pair_fini(&server);
    x509_pair_fini(&ca);
    make(&ca, NULL, "corporate 2", 60, 30 * DAY_S);
    make(&server, &ca, "gpushare-extender", 60, 30 * DAY_S);
    put_pair(&s, SERVER, &server, &ca);
    set(&scheduler.secret, SECRET_CA, buf_span(&ca.cert));
    lib_wait(filter(&e, &scheduler, &said) == 200);
    lib_wait(observers_say(&e, "/healthz", 200, "ok\n"));
    ck_assert(!differs(&s, SERVER, SECRET_CERT, server.cert.p));
    ck_assert(!differs(&s, CLIENT, SECRET_CERT, client.cert.p));
    ck_assert_int_eq(sim_count(&s, "create", "secrets", ""), 0);
    ck_assert_int_eq(sim_count(&s, "patch", "secrets", ""), 0);
    identity_fini(&scheduler);
    x509_pair_fini(&ca);
    x509_pair_fini(&server);
    x509_pair_fini(&client);
    extender_stop(&e);
    sim_stop(&s);
}
END_TEST

START_TEST(conflicts_and_failures_are_retried)
{
    struct sim s;
    struct extender e;
    struct identity scheduler;
    cleanup_buf struct buf said = {0};
    begin(&s);
    /* Another writer is faster, an answer is lost, the API server is overloaded. */
    sim_fault(&s, "{\"verb\":\"create\",\"resource\":\"secrets\",\"nth\":1,"
                  "\"action\":\"answer\",\"status\":409}");
    sim_fault(&s, "{\"verb\":\"create\",\"resource\":\"secrets\",\"nth\":2,"
                  "\"action\":\"apply-cut\"}");
    sim_fault(&s, "{\"verb\":\"get\",\"resource\":\"secrets\",\"nth\":3,\"times\":4,"
                  "\"action\":\"answer\",\"status\":503}");
    start_ready(&e, &s);
    lib_wait(has_three(&s));
    take(&s, CLIENT, &scheduler);
    lib_wait(filter(&e, &scheduler, &said) == 200);
    lib_wait(observers_say(&e, "/healthz", 200, "ok\n"));
    /* Without the API server, what was read is served. */
    sim_fault(&s, "{\"verb\":\"get\",\"resource\":\"secrets\",\"action\":\"answer\","
                  "\"status\":403}");
    lib_wait(observers_say(&e, "/healthz", 200,
                           "Secret kube-system/" SERVER ": cannot read: "));
    ck_assert_msg(filter(&e, &scheduler, &said) == 200, "%s", said.p);
    ck_assert(is_ready(&e));
    identity_fini(&scheduler);
    extender_stop(&e);
    sim_stop(&s);
}
END_TEST

START_TEST(the_log_says_what_is_in_force)
{
    struct sim s;
    struct extender e;
    begin(&s);
    extender_start(&e, &s, ARGV(NULL));
    lib_wait(strstr(program_output(&e.program),
                    "verbs: plain HTTP, no credentials\" reason=\"--listen is a"));
    ck_assert_int_eq(sim_count(&s, "get", "secrets", ""), 0);
    extender_stop(&e);
    extender_start(&e, &s, ARGV("--insecure"));
    lib_wait(strstr(program_output(&e.program), "any client on the network may bind"));
    extender_stop(&e);
    start_ready(&e, &s);
    lib_wait(strstr(program_output(&e.program),
                    "verbs: client certificate required\" certificates=\"Secret "
                    "kube-system/" SERVER "\" valid-until="));
    ck_assert_ptr_null(strstr(program_output(&e.program), "PRIVATE KEY"));
    extender_stop(&e);
    sim_stop(&s);
}
END_TEST

LIB_MAIN("certs", 90, a_fresh_start_makes_the_certificates,
         replicas_share_the_certificates_and_a_restart_keeps_them,
         deleted_secrets_are_made_again_without_an_outage,
         a_secret_that_exists_is_served_or_reported_and_never_written,
         conflicts_and_failures_are_retried, the_log_says_what_is_in_force)
