/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "integration/suite.h"
#include "kube/secret.h"
#include "wire/x509.h"

/*
 * The certificates that the extender makes itself: from the first start and deleted Secrets to
 * those of other programs, which it never writes.
 */

#define CA         "gpushare-extender-ca"
#define SERVER     "gpushare-extender-tls"
#define CLIENT     "gpushare-scheduler-tls"
#define SECRETS    "/api/v1/namespaces/kube-system/secrets/"
#define DEPLOYMENT "gpushare-scheduler"
#define CHECKSUM   "gpushare/ca-checksum"

enum { DAY_S = 86400 };

/* -- Secrets -- */

static void release_secret(void *s)
{
    secret_fini(s);
    free(s);
}

/* The Secret, kept; NULL: there is none. */
static struct secret *get(const char *name)
{
    cleanup_buf struct buf json = {0};
    struct err err = {0};
    if (peer_call(&sim.api, "GET", lib_fmt(SECRETS "%s", name), NULL, &json) != 200)
        return NULL;
    struct secret *s = lib_keep(xcalloc(1, sizeof *s), release_secret);
    ck_assert_done(secret_decode(buf_span(&json), s, &err), err);
    return s;
}

/* Its certificate, kept; "" if there is none. */
static const char *cert(const char *name)
{
    const struct secret *s = get(name);
    return s ? lib_fmt("%.*s", SPAN_ARG(buf_span(&s->data[SECRET_CERT]))) : "";
}

static bool differs(const char *name, const char *from)
{
    const char *now = cert(name);
    return *now && strcmp(now, from) != 0;
}

static bool has_three(void)
{
    return get(CA) && get(SERVER) && get(CLIENT);
}

static void drop(const char *name)
{
    peer_do(&sim.api, "DELETE", lib_fmt(SECRETS "%s", name), NULL);
}

/* Deletes all, until all are new. */
static void replace_all(void)
{
    const char *ca = cert(CA);
    do { /* the first can be back before the last is deleted */
        if (get(CA))
            drop(CA);
        drop(SERVER);
        drop(CLIENT);
        lib_wait(has_three());
    } while (!differs(CA, ca));
}

static int64_t now_s(void)
{
    return clock_wall_ns() / 1000000000;
}

static void release_pair(void *pair)
{
    x509_pair_fini(pair);
    free(pair);
}

/* Kept. `issuer` NULL: an authority. */
static struct x509_pair *make(const struct x509_pair *issuer, const char *common_name,
                              int64_t age_s, int64_t life_s)
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
    struct x509_pair *out = lib_keep(xcalloc(1, sizeof *out), release_pair);
    ck_assert_done(x509_make(&spec, issuer, out, &err), err);
    return out;
}

static void put(const char *name, struct buf own, struct buf key,
                const struct x509_pair *ca)
{
    struct buf body = {0};
    struct secret to = {.data = {own, key, ca->cert}};
    secret_encode(&to, "kube-system", name, &body);
    sim_load(&sim, "%s", body.p);
    buf_wipe(&body);
}

/* -- Clients -- */

static const char *said; /* the body of the last reply, or the error */

/* On a new connection with the certificate and the CA of `id`, as kube-scheduler's files;
 * NULL: without a certificate, and any server is accepted. `flag`: a header, or NULL. Returns
 * the status, 0 without an answer. */
static unsigned call(unsigned port, const struct secret *id, const char *flag,
                     const char *path, const char *body)
{
    struct httpc_config config = {.url = lib_fmt("https://127.0.0.1:%u", port),
                                  .user_agent = "test",
                                  .connect_ms = 20000,
                                  .insecure = !id};
    struct httpc_request request = {.method = body ? "POST" : "GET",
                                    .path = path,
                                    .content_type = body ? "application/json" : NULL,
                                    .body = span_of(body),
                                    .flag_header = flag,
                                    .timeout_ms = 20000};
    struct httpc_reply reply;
    struct err err = {0};
    if (id) {
        config.ca_pem = buf_span(&id->data[SECRET_CA]);
        config.cert_pem = buf_span(&id->data[SECRET_CERT]);
        config.key_pem = buf_span(&id->data[SECRET_KEY]);
    }
    struct httpc *http = httpc_new(&config, &err);
    ck_assert_msg(http, "%s", err.msg);
    int rc = httpc_call(http, &request, 1 << 20, &reply, &err);
    said = rc ? lib_fmt("%s", err.msg) : lib_fmt("%.*s", SPAN_ARG(buf_span(&reply.body)));
    unsigned status = rc ? 0 : reply.status;
    httpc_reply_fini(&reply);
    httpc_free(http);
    return status;
}

static unsigned filter_at(const struct extender *e, const struct secret *id,
                          const char *flag)
{
    cleanup_buf struct buf body = {0};
    lib_filter_body(&body, "p", 1, ARGV("n1"));
    return call(e->verbs.port, id, flag, "/gpushare-scheduler/filter", body.p);
}

static unsigned filter(const struct secret *id)
{
    return filter_at(&extender, id, NULL);
}

static bool binds(const struct extender *e, const struct secret *id, const char *flag,
                  const char *pod)
{
    cleanup_buf struct buf body = {0};
    lib_bind_body(&body, pod, "n1");
    return call(e->verbs.port, id, flag, "/gpushare-scheduler/bind", body.p) == 200 &&
           strstr(said, "\"Error\":\"\"");
}

static unsigned verbs(const char *path)
{
    return call(extender.verbs.port, NULL, NULL, path, NULL);
}

static bool observers_say(const struct extender *e, const char *path, unsigned status,
                          const char *text)
{
    return call(e->observers.port, NULL, NULL, path, NULL) == status &&
           strstr(said, text);
}

static bool healthz_says(const char *text)
{
    return observers_say(&extender, "/healthz", 200, text);
}

static bool is_ready(const struct extender *e)
{
    return observers_say(e, "/readyz", 200, "ok");
}

static void start(struct extender *e)
{
    extender_begin(e, &sim, ARGV("--insecure=off"));
}

static void start_ready(struct extender *e)
{
    start(e);
    lib_wait(is_ready(e) && has_three()); /* the client's is the last */
}

static void begin(void)
{
    sim_add_node(&sim, "n1", 2, 16);
    sim_add_pod(&sim, "p", 1);
    sim_add_pod(&sim, "q", 1);
}

/* -- Tests -- */

TEST(a_fresh_start_makes_the_certificates)
{
    begin();
    sim_fault(&sim, "{\"verb\":\"create\",\"resource\":\"secrets\",\"action\":"
                    "\"answer\",\"status\":403}");
    start(&extender);
    /* Alive, and not ready: the permission is missing. */
    lib_wait(healthz_says("Secret kube-system/" CA ": cannot write: "));
    lib_wait(observers_say(&extender, "/readyz", 503, "no certificate: "));
    ck_assert_uint_eq(verbs("/healthz"), 200);
    ck_assert_uint_eq(verbs("/readyz"), 503);
    ck_assert_uint_eq(filter(NULL), 401);
    lib_wait(strstr(program_output(&extender.program), "cannot write: "));
    ck_assert_ptr_null(get(CA));
    sim_no_faults(&sim);
    lib_wait(is_ready(&extender) && has_three());
    lib_wait(healthz_says("ok\n"));

    const struct secret *scheduler = get(CLIENT), *replica = get(SERVER);
    ck_assert_msg(filter(scheduler) == 200, "%s", said);
    ck_assert_contains(said, "\"NodeNames\":[\"n1\"]");
    ck_assert_uint_eq(filter(NULL), 401);
    ck_assert_contains(said, "a client certificate is required");
    ck_assert_uint_eq(verbs("/readyz"), 200);
    ck_assert_uint_eq(verbs("/version"), 200);
    ck_assert_uint_eq(verbs("/inspect"), 401);
    ck_assert_msg(binds(&extender, scheduler, NULL, "p"), "%s", said);

    /* Only a replica may say that it forwards. */
    ck_assert(!binds(&extender, scheduler, "X-Gpushare-Forwarded", "q"));
    ck_assert_contains(said, "only a replica of the extender may forward a bind");
    ck_assert_msg(binds(&extender, replica, "X-Gpushare-Forwarded", "q"), "%s", said);
    ck_assert_uint_eq(filter_at(&extender, scheduler, "X-Gpushare-Report"), 403);
    ck_assert_msg(filter_at(&extender, replica, "X-Gpushare-Report") == 200, "%s", said);
}

TEST(replicas_share_the_certificates_and_a_restart_keeps_them)
{
    enum { REPLICAS = 3 };
    struct extender e[REPLICAS];
    int leader = -1;
    begin();
    for (int i = 0; i < REPLICAS; i++)
        start(&e[i]);
    for (int i = 0; i < REPLICAS; i++)
        lib_wait(is_ready(&e[i]));
    lib_wait(has_three());
    const struct secret *scheduler = get(CLIENT);
    const char *former = cert(SERVER);
    for (int i = 0; i < REPLICAS; i++) {
        ck_assert_msg(filter_at(&e[i], scheduler, NULL) == 200, "%d: %s", i, said);
        ck_assert_uint_eq(call(e[i].verbs.port, scheduler, NULL, "/inspect", NULL), 200);
        if (strstr(said, "\"leader\":true"))
            leader = i;
    }
    ck_assert_int_eq(sim_count(&sim, "create", "secrets", ""), 3);

    /* A follower forwards with the server's pair. */
    ck_assert_int_ge(leader, 0);
    const struct extender *follower = &e[(leader + 1) % REPLICAS];
    ck_assert_msg(binds(follower, scheduler, NULL, "p"), "%s", said);
    lib_wait(strstr(program_output(&e[leader].program), "pod=p"));

    /* The next leader finds nothing to do; so does a new process. */
    extender_stop(&e[leader]);
    ck_assert_msg(binds(follower, scheduler, NULL, "q"), "%s", said);
    start_ready(&e[leader]);
    ck_assert_msg(filter_at(&e[leader], scheduler, NULL) == 200, "%s", said);
    ck_assert_str_eq(cert(SERVER), former);
    ck_assert_int_eq(sim_count(&sim, "create", "secrets", ""), 3);
    ck_assert_int_eq(sim_count(&sim, "patch", "secrets", ""), 0);
    for (int i = 0; i < REPLICAS; i++)
        extender_stop(&e[i]);
}

TEST(deleted_secrets_are_made_again_without_an_outage)
{
    begin();
    start_ready(&extender);
    const struct secret *old = get(CLIENT);
    const char *server = cert(SERVER), *ca = cert(CA);
    struct x509_info info = {0}, ca_info = {0};
    ck_assert_int_eq(x509_read(span_of(server), &info, NULL), 0);
    ck_assert_int_eq(x509_read(span_of(ca), &ca_info, NULL), 0);
    ck_assert_int_gt(info.expires_s, now_s() + 3640LL * DAY_S);
    ck_assert_int_le(info.expires_s, ca_info.expires_s);

    /* Of the same CA: the clients of before go on. */
    drop(SERVER);
    while (!get(SERVER))
        ck_assert_msg(filter(old) == 200, "%s", said);
    lib_wait(differs(SERVER, server));
    ck_assert(!differs(CA, ca));
    ck_assert_msg(filter(old) == 200, "%s", said);

    /* The CA alone is missed when it has to sign: the former one stays trusted. */
    drop(CA);
    drop(CLIENT);
    lib_wait(has_three());
    ck_assert(differs(CA, ca));
    lib_wait(filter(get(CLIENT)) == 200);
    ck_assert_msg(filter(old) == 200, "%s", said);

    /* All of them: nothing of before is trusted any more. */
    replace_all();
    lib_wait(filter(get(CLIENT)) == 200);
}

TEST(a_secret_that_exists_is_served_or_reported_and_never_written)
{
    const struct x509_pair *ca = make(NULL, "corporate", 60, 30 * DAY_S),
                           *server = make(ca, "gpushare-extender", 60, 30 * DAY_S),
                           *client = make(ca, "gpushare-scheduler", 60, 30 * DAY_S);
    begin();
    /* A certificate that is no CA cannot sign what is missing. */
    put(CA, client->cert, client->key, ca);
    start(&extender);
    lib_wait(healthz_says("the certificate is of no authority"));
    lib_wait(observers_say(&extender, "/readyz", 503, "no certificate: "));
    ck_assert_ptr_null(get(SERVER));
    put(SERVER, server->cert, server->key, ca);
    put(CLIENT, client->cert, client->key, ca);
    struct secret scheduler = *get(CLIENT);
    lib_wait(filter(&scheduler) == 200);
    lib_wait(is_ready(&extender));

    /* One that nobody renews, and a damaged one: what was read before is used. */
    server = make(ca, "gpushare-extender", 20 * DAY_S, 19 * DAY_S);
    put(SERVER, server->cert, server->key, ca);
    lib_wait(healthz_says("Secret kube-system/" SERVER ": the certificate has expired"));
    char half[] = "half a key";
    put(SERVER, server->cert, (struct buf){.p = half, .n = strlen(half)}, ca);
    lib_wait(healthz_says(SERVER ": private key"));
    ck_assert_msg(filter(&scheduler) == 200, "%s", said);
    ck_assert_str_eq(cert(SERVER), server->cert.p);

    /* A renewal of another program, of a new CA, is used without a restart. */
    ca = make(NULL, "corporate 2", 60, 30 * DAY_S);
    server = make(ca, "gpushare-extender", 60, 30 * DAY_S);
    put(SERVER, server->cert, server->key, ca);
    scheduler.data[SECRET_CA] = ca->cert;
    lib_wait(filter(&scheduler) == 200);
    /* kube-scheduler rejects it until its own Secret is of the new CA, too. */
    lib_wait(healthz_says("Secret kube-system/" CLIENT ": its ca.crt has not issued"));
    client = make(ca, "gpushare-scheduler", 60, 30 * DAY_S);
    put(CLIENT, client->cert, client->key, ca);
    lib_wait(healthz_says("ok\n") && !strstr(said, "its ca.crt"));
    ck_assert_str_eq(cert(SERVER), server->cert.p);
    ck_assert_str_eq(cert(CLIENT), client->cert.p);
    ck_assert_int_eq(sim_count(&sim, "create", "secrets", ""), 0);
    ck_assert_int_eq(sim_count(&sim, "patch", "secrets", ""), 0);
}

TEST(conflicts_and_failures_are_retried)
{
    begin();
    /* Another writer is faster, an answer is lost, the API server is overloaded. */
    sim_fault(&sim, "[{\"verb\":\"create\",\"resource\":\"secrets\",\"nth\":1,"
                    "\"action\":\"answer\",\"status\":409},"
                    "{\"verb\":\"create\",\"resource\":\"secrets\",\"nth\":2,"
                    "\"action\":\"apply-cut\"},"
                    "{\"verb\":\"get\",\"resource\":\"secrets\",\"nth\":3,\"times\":4,"
                    "\"action\":\"answer\",\"status\":503}]");
    start_ready(&extender);
    const struct secret *scheduler = get(CLIENT);
    lib_wait(filter(scheduler) == 200);
    lib_wait(healthz_says("ok\n"));
    /* Without the API server, what was read is served. */
    sim_fault(&sim, "{\"verb\":\"get\",\"resource\":\"secrets\",\"action\":\"answer\","
                    "\"status\":403}");
    lib_wait(healthz_says("Secret kube-system/" SERVER ": cannot read: "));
    ck_assert_msg(filter(scheduler) == 200, "%s", said);
    ck_assert(is_ready(&extender));
}

/* -- the chart's kube-scheduler -- */

static json_t *deployment(const char *ns, const char *name)
{
    return peer_get(&sim.api,
                    lib_fmt("/apis/apps/v1/namespaces/%s/deployments/%s", ns, name));
}

static void add_deployment(const char *ns, const char *name)
{
    sim_load(&sim,
             "{\"apiVersion\":\"apps/v1\",\"kind\":\"Deployment\",\"metadata\":{"
             "\"name\":\"%s\",\"namespace\":\"%s\",\"annotations\":{\"" CHECKSUM
             "\":\"of the Deployment\"}},\"spec\":{\"template\":{\"metadata\":{"
             "\"annotations\":{\"mine\":\"kept\"}},\"spec\":{}}}}",
             name, ns);
}

static const char *annotation(const char *key)
{
    return lib_in(deployment("kube-system", DEPLOYMENT),
                  "spec.template.metadata.annotations", key);
}

/* As the chart computes it. */
static char *checksum_of(const struct secret *s)
{
    temp_write(lib_dir, "ca.crt",
               lib_fmt("%.*s", SPAN_ARG(buf_span(&s->data[SECRET_CA]))));
    return lib_fmt("%.64s", lib_output(0, ARGV("sha256sum", lib_path("ca.crt"))));
}

static bool restarted_for(const struct secret *s)
{
    return s && strcmp(annotation(CHECKSUM), checksum_of(s)) == 0;
}

static int patches(void)
{
    return sim_count(&sim, "patch", "deployments", "");
}

/* The leader has compared twice since, so once completely. */
static void compared_again(void)
{
    int before = sim_count(&sim, "get", "deployments", "");
    lib_wait(sim_count(&sim, "get", "deployments", "") >= before + 2);
}

static void start_with_deployment(void)
{
    extender_begin(&extender, &sim,
                   ARGV("--insecure=off", "--scheduler-deployment", DEPLOYMENT));
}

static int times_logged(const char *text)
{
    int n = 0;
    for (const char *p = program_output(&extender.program); (p = strstr(p, text)); p++)
        n++;
    return n;
}

TEST(a_new_ca_restarts_kube_scheduler_once)
{
    begin();
    add_deployment("kube-system", DEPLOYMENT);
    add_deployment("kube-system", "other");
    add_deployment("default", DEPLOYMENT);
    json_t *foreign[] = {deployment("kube-system", "other"),
                         deployment("default", DEPLOYMENT)};
    start_with_deployment();
    lib_wait(is_ready(&extender) && restarted_for(get(CLIENT)));
    compared_again();
    ck_assert_int_eq(patches(), 1);

    /* All of them. What kube-scheduler then reads is already served. */
    replace_all();
    lib_wait(restarted_for(get(CLIENT)));
    ck_assert_msg(filter(get(CLIENT)) == 200, "%s", said);
    int after = patches();

    /* A certificate of the same CA needs no restart, nor does a new leader. */
    drop(SERVER);
    lib_wait(has_three());
    compared_again();
    extender_stop(&extender);
    start_with_deployment();
    lib_wait(is_ready(&extender));
    compared_again();
    ck_assert_int_eq(patches(), after);
    ck_assert_str_eq(annotation("mine"), "kept");
    ck_assert(json_equal(deployment("kube-system", "other"), foreign[0]));
    ck_assert(json_equal(deployment("default", DEPLOYMENT), foreign[1]));
}

TEST(a_restart_that_fails_is_reported_once_and_retried)
{
    static const char why[] = "Deployment kube-system/" DEPLOYMENT ": ";
    begin();
    start_with_deployment();
    lib_wait(is_ready(&extender));
    compared_again(); /* there is none */
    lib_wait(healthz_says("ok\n"));
    ck_assert_lacks(said, why);

    sim_fault(&sim, "{\"verb\":\"patch\",\"resource\":\"deployments\",\"action\":"
                    "\"answer\",\"status\":403}");
    add_deployment("kube-system", DEPLOYMENT);
    lib_wait(healthz_says(why));
    compared_again();
    ck_assert_int_eq(times_logged(why), 1);
    ck_assert(is_ready(&extender));
    ck_assert_msg(filter(get(CLIENT)) == 200, "%s", said);
    sim_no_faults(&sim);
    lib_wait(restarted_for(get(CLIENT)));
    lib_wait(healthz_says("ok\n") && !strstr(said, why));
}

TEST(the_log_says_what_is_in_force)
{
    suite_extender(NULL);
    lib_wait(strstr(program_output(&extender.program),
                    "verbs: plain HTTP, no credentials\" reason=\"--listen is a"));
    ck_assert_int_eq(sim_count(&sim, "get", "secrets", ""), 0);
    suite_restart(ARGV("--insecure"));
    lib_wait(
        strstr(program_output(&extender.program), "any client on the network may bind"));
    extender_stop(&extender);
    start_ready(&extender);
    lib_wait(strstr(program_output(&extender.program),
                    "verbs: client certificate required\" certificates=\"Secret "
                    "kube-system/" SERVER "\" valid-until="));
    ck_assert_lacks(program_output(&extender.program), "PRIVATE KEY");
}

/* API servers have no certificate for the webhook. Its body is of a size that is named before. */
TEST(strangers_get_no_more_than_a_patch)
{
    static const char path[] = "/pod-defaults",
                      review[] =
                          "{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":"
                          "\"AdmissionReview\",\"request\":{\"uid\":\"u\",\"kind\":{"
                          "\"kind\":\"Pod\"},\"object\":{\"spec\":{}}}%*s}";
    extender_begin(&extender, &sim,
                   ARGV("--insecure=off", "--pod-scheduler=gpu", "--pod-runtime-class="));
    const unsigned port = extender.verbs.port;
    ck_assert_uint_eq(call(port, NULL, NULL, path, lib_fmt(review, 0, "")), 200);
    ck_assert_contains(said, "\"allowed\":true");
    /* A stranger has what processor time is left, and ten seconds. */
    lib_wait(call(port, NULL, NULL, path, lib_fmt(review, 3 << 20, "")) == 200);
    /* The answer can be lost: the server closes before it has read the body. */
    lib_wait(call(port, NULL, NULL, path, lib_fmt(review, 4 << 20, "")) == 413);
    ck_assert_contains(said, "Content-Length: expected at most 4194304 bytes");
    ck_assert_uint_eq(call(port, NULL, NULL, path, "{}"), 400);
    ck_assert_uint_eq(call(port, NULL, NULL, path, NULL), 405);
    ck_assert_uint_eq(call(port, NULL, NULL, "/pod-defaults/filter", "{}"), 404);
    ck_assert_uint_eq(call(extender.observers.port, NULL, NULL, path, "{}"), 404);
    /* No length, so no end. */
    ck_assert_contains(
        lib_output(0, ARGV("curl", "-sk", "--noproxy", "*", "--json",
                           lib_fmt(review, 0, ""), "-H", "Transfer-Encoding: chunked",
                           lib_fmt("https://127.0.0.1:%u%s", port, path))),
        "Content-Length: expected");
    extender_stop(&extender);
    /* The caBundle would be of no certificate that is served. */
    cleanup_free char *config = lib_kubeconfig("k", "http", sim.api.port, "", "");
    ck_assert_contains(lib_output(1, ARGV(lib_built("gpushare-extender"), "--kubeconfig",
                                          config, "--insecure", "--pod-webhook=w")),
                       "--pod-webhook need certificates from Secrets");
}

SUITE_MAIN(90, NULL)
