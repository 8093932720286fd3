/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/cert_secrets.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "kube/tls_secret.h"
#include "wire/x509.h"

enum {
    POLL_MS = 5000,
    POLL_FIRST_MS = 500, /* while there is no certificate */
    POLL_AGAIN_MS = 200, /* after a write */
    CALL_MS = 3000,
    CAS_MAX = 12, /* certificates in a ca.crt */
};

enum secret { CA, SERVER, CLIENT, SECRETS };
static const char *const secret_names[SECRETS] = {
    "gpushare-extender-ca", CERT_SECRETS_SERVER, "gpushare-scheduler-tls"};

struct cert_secrets {
    char *ns;
    struct tls *tls[2];
    struct kube_client *client;
    struct core_driver *driver;
    struct counters *counters;
    atomic_bool stopping;
    int64_t due_ms;
    struct kube_tls_secret seen[SECRETS]; /* the last read of each */
    struct buf served; /* what the listeners have: certificate and CAs */

    pthread_mutex_t lock; /* protects the members below */
    bool ready;
    struct buf problem; /* lines */
};

struct cert_secrets *cert_secrets_new(const char *ns, struct tls *const tls[2])
{
    struct cert_secrets *c = xcalloc(1, sizeof *c);
    c->ns = xstrdup(ns);
    c->tls[0] = tls[0];
    c->tls[1] = tls[1];
    pthread_mutex_init(&c->lock, NULL);
    return c;
}

void cert_secrets_connect(struct cert_secrets *c, struct kube_client *client,
                          struct core_driver *driver, struct counters *counters)
{
    c->client = client;
    c->driver = driver;
    c->counters = counters;
}

void cert_secrets_free(struct cert_secrets *c)
{
    if (!c)
        return;
    for (int i = 0; i < SECRETS; i++)
        kube_tls_secret_fini(&c->seen[i]);
    pthread_mutex_destroy(&c->lock);
    buf_fini(&c->served);
    buf_fini(&c->problem);
    free(c->ns);
    free(c);
}

void cert_secrets_stop(struct cert_secrets *c)
{
    atomic_store(&c->stopping, true);
}

/* -- calls -- */

static int call_api(struct cert_secrets *c, const struct kube_request *request,
                    struct httpc_reply *reply, struct err *err)
{
    *reply = (struct httpc_reply){0};
    if (atomic_load(&c->stopping))
        return err_set(err, ERR_UNAVAILABLE, "stopping");
    struct err why = {0};
    int rc = kube_call(c->client, request, reply, &why);
    if (rc == 0)
        rc = kube_reply_check(reply->status, buf_span(&reply->body), &why);
    counters_api_call(c->counters, COUNTERS_API_SECRET,
                      why.code == ERR_NOT_FOUND ? ERR_NONE : why.code);
    return rc ? err_set(err, why.code, "%s", why.msg) : 0;
}

/* A Secret's content contains private keys. */
static void wipe_reply(struct httpc_reply *reply)
{
    tls_wipe(&reply->body);
    httpc_reply_fini(reply);
}

static int read_secret(struct cert_secrets *c, enum secret secret, struct err *err)
{
    const char *name = secret_names[secret];
    cleanup_free char *path = xasprintf("/api/v1/namespaces/%s/secrets/%s", c->ns, name);
    struct kube_request request = {.method = "GET", .path = path, .timeout_ms = CALL_MS};
    struct kube_tls_secret now = {0};
    struct httpc_reply reply;
    struct err why = {0};
    int rc = call_api(c, &request, &reply, &why);
    if (rc == 0)
        rc = kube_tls_secret_decode(buf_span(&reply.body), &now, &why);
    wipe_reply(&reply);
    if (rc && why.code != ERR_NOT_FOUND)
        return err_set(err, why.code, "Secret %s/%s: cannot read: %s", c->ns, name,
                       why.msg);
    kube_tls_secret_fini(&c->seen[secret]);
    c->seen[secret] = now;
    return 0;
}

/* ERR_CONFLICT: the Secret exists by now. */
static int create_secret(struct cert_secrets *c, enum secret secret,
                         const struct x509_pair *pair, struct span ca, struct err *err)
{
    const char *name = secret_names[secret];
    cleanup_free char *path = xasprintf("/api/v1/namespaces/%s/secrets", c->ns);
    struct kube_tls_secret made = {
        .data = {[KUBE_TLS_CERT] = pair->cert, [KUBE_TLS_KEY] = pair->key}};
    struct buf body = {0};
    struct httpc_reply reply;
    struct err wrong = {0};
    buf_add_span(&made.data[KUBE_TLS_CA], ca);
    kube_tls_secret_encode(&made, c->ns, name, &body);
    buf_fini(&made.data[KUBE_TLS_CA]); /* the others belong to the pair */
    struct kube_request request = {
        .method = "POST", .path = path, .body = buf_span(&body), .timeout_ms = CALL_MS};
    int rc = call_api(c, &request, &reply, &wrong);
    tls_wipe(&body);
    wipe_reply(&reply);
    if (rc)
        return err_set(err, wrong.code, "Secret %s/%s: cannot write: %s", c->ns, name,
                       wrong.msg);
    log_info("certs", "Secret: created", LOG_S("namespace", c->ns), LOG_S("name", name));
    return 0;
}

/* -- the leader: what is missing -- */

/* The ca.crt of a new Secret: its CA, and every CA that is found, so that those of lost Secrets
 * stay trusted. */
static void add_bundle(const struct cert_secrets *c, const struct x509_pair *ca,
                       struct buf *out)
{
    x509_add_cas(out, buf_span(&ca->cert), CAS_MAX);
    for (int i = 0; i < SECRETS; i++)
        x509_add_cas(out, buf_span(&c->seen[i].data[KUBE_TLS_CA]), CAS_MAX);
}

/* The CA of its Secret, or a new one, which it writes there. */
static int get_ca(struct cert_secrets *c, int64_t now_s, struct x509_pair *ca,
                  struct x509_info *info, struct err *err)
{
    const struct kube_tls_secret *seen = &c->seen[CA];
    cleanup_buf struct buf all = {0}, since = {0};
    if (seen->exists) {
        struct err why = {0};
        struct span cert = buf_span(&seen->data[KUBE_TLS_CERT]),
                    key = buf_span(&seen->data[KUBE_TLS_KEY]);
        int rc = x509_read_pair(cert, key, info, &why);
        if (rc == 0 && !info->ca)
            rc = err_set(&why, ERR_INVALID, "the certificate is of no authority");
        if (rc == 0 && (now_s < info->begins_s || now_s >= info->expires_s))
            rc = err_set(&why, ERR_INVALID, "the certificate is not valid now");
        if (rc)
            return err_set(err, ERR_INVALID,
                           "Secret %s/%s: %s; the extender makes a new one when it is "
                           "deleted",
                           c->ns, secret_names[CA], why.msg);
        buf_add_span(&ca->cert, cert);
        buf_reserve(&ca->key, key.n); /* a later realloc would leave a copy of the key */
        buf_add_span(&ca->key, key);
        return 0;
    }
    /* Each CA has a name of its own, so that a verifier never takes one for another. */
    clock_format_s(&since, now_s);
    cleanup_free char *name = xasprintf("gpushare-extender-ca %s", since.p);
    struct x509_spec spec = {.common_name = name,
                             .ca = true,
                             .begins_s = now_s - CERT_SECRETS_BACKDATE_S,
                             .expires_s = now_s + CERT_SECRETS_LIFE_S};
    if (x509_make(&spec, NULL, ca, err) || x509_read(buf_span(&ca->cert), info, err))
        return -1;
    add_bundle(c, ca, &all);
    return create_secret(c, CA, ca, buf_span(&all), err);
}

static int sign(struct cert_secrets *c, enum secret secret, int64_t now_s,
                const struct x509_pair *ca, const struct x509_info *ca_info,
                struct err *err)
{
    cleanup_free char *in_ns = xasprintf(CERT_SECRETS_HOST ".%s", c->ns),
                      *service = xasprintf(CERT_SECRETS_HOST ".%s.svc", c->ns);
    /* The second Service is that of the API server (manifests/apiservice.yaml.example). */
    cleanup_free char *observe = xasprintf("gpushare-observe.%s.svc", c->ns);
    const char *const hosts[] = {CERT_SECRETS_HOST, in_ns,       service, observe,
                                 "localhost",       "127.0.0.1", NULL};
    const bool server = secret == SERVER;
    struct x509_spec spec = {.common_name = server ? CERT_SECRETS_SERVER_NAME
                                                   : CERT_SECRETS_CLIENT_NAME,
                             .names = server ? hosts : NULL,
                             .server = server,
                             .client = true,
                             .begins_s = now_s - CERT_SECRETS_BACKDATE_S,
                             .expires_s = now_s + CERT_SECRETS_LIFE_S};
    struct x509_pair made = {{0}, {0}};
    cleanup_buf struct buf all = {0};
    if (spec.expires_s > ca_info->expires_s)
        spec.expires_s = ca_info->expires_s;
    add_bundle(c, ca, &all);
    int rc = x509_make(&spec, ca, &made, err);
    if (rc == 0)
        rc = create_secret(c, secret, &made, buf_span(&all), err);
    x509_pair_fini(&made);
    return rc;
}

/* Makes the server's and the client's Secret if they are missing. Returns whether the Secrets
 * are to be read again. */
static bool make_missing(struct cert_secrets *c, struct buf *problem)
{
    const int64_t now_s = clock_wall_ns() / 1000000000;
    struct x509_pair ca = {{0}, {0}};
    struct x509_info info;
    struct err err = {0};
    if (c->seen[SERVER].exists && c->seen[CLIENT].exists)
        return false;
    int rc = read_secret(c, CA, &err);
    if (rc == 0)
        rc = get_ca(c, now_s, &ca, &info, &err);
    for (enum secret i = SERVER; i < SECRETS && rc == 0; i++)
        if (!c->seen[i].exists)
            rc = sign(c, i, now_s, &ca, &info, &err);
    x509_pair_fini(&ca);
    kube_tls_secret_fini(&c->seen[CA]); /* its key is needed for a moment only */
    if (rc && err.code != ERR_CONFLICT) {
        buf_printf(problem, "%s\n", err.msg);
        return false;
    }
    return true;
}

/* -- every replica: what is served -- */

/* Hands the certificates to the listeners if they have changed. */
static int serve(struct cert_secrets *c, struct err *err)
{
    cleanup_buf struct buf ca = {0}, all = {0}, until = {0};
    const struct buf *data = c->seen[SERVER].data;
    struct span cert = buf_span(&data[KUBE_TLS_CERT]),
                key = buf_span(&data[KUBE_TLS_KEY]);
    cleanup_free char *from = xasprintf("Secret %s/%s", c->ns, CERT_SECRETS_SERVER);
    struct x509_info info;
    if (!c->seen[SERVER].exists)
        return err_set(err, ERR_NOT_FOUND, "waiting for %s", from);
    if (x509_read_pair(cert, key, &info, err))
        return err_wrap(err, "%s", from);
    if (c->served.n && info.expires_s <= clock_wall_ns() / 1000000000)
        return err_set(err, ERR_INVALID,
                       "%s: the certificate has expired; the extender keeps what it has",
                       from);
    for (enum secret i = SERVER; i < SECRETS; i++)
        x509_add_cas(&ca, buf_span(&c->seen[i].data[KUBE_TLS_CA]), 2 * CAS_MAX);
    buf_add_span(&all, cert);
    buf_add_span(&all, buf_span(&ca));
    if (span_eq(buf_span(&all), buf_span(&c->served)))
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(c->tls); i++)
        if (tls_set(c->tls[i], cert, key, buf_span(&ca), err))
            return err_wrap(err, "%s", from);
    buf_fini(&c->served);
    c->served = all;
    all = (struct buf){0};
    clock_format_s(&until, info.expires_s);
    log_info("certs", "verbs: client certificate required", LOG_S("certificates", from),
             LOG_SPAN("valid-until", buf_span(&until)));
    return 0;
}

/* -- steps -- */

static bool leads(struct cert_secrets *c)
{
    bool leader = core_is_leader(core_driver_read(c->driver));
    core_driver_read_end(c->driver);
    return leader;
}

/* Replaces the reported problems, and logs new ones. */
static void set_problem(struct cert_secrets *c, struct span lines)
{
    pthread_mutex_lock(&c->lock);
    bool changed = !span_eq(buf_span(&c->problem), lines);
    if (changed) {
        buf_clear(&c->problem);
        buf_add_span(&c->problem, lines);
    }
    pthread_mutex_unlock(&c->lock);
    for (struct span rest = changed ? lines : (struct span){0}; rest.n;) {
        struct span line = span_cut(&rest, '\n');
        log_error("certs", "problem with the Secrets of the certificates",
                  LOG_SPAN("problem", line));
    }
}

void cert_secrets_step(struct cert_secrets *c)
{
    cleanup_buf struct buf problem = {0};
    struct err err = {0};
    bool again = false;
    if (clock_mono_ms() < c->due_ms)
        return;
    if (read_secret(c, SERVER, &err) || read_secret(c, CLIENT, &err)) {
        buf_printf(&problem, "%s\n", err.msg);
    } else {
        again = leads(c) && make_missing(c, &problem);
        if (!again && serve(c, &err) && err.code != ERR_NOT_FOUND)
            buf_printf(&problem, "%s\n", err.msg);
    }
    kube_tls_secret_fini(&c->seen[CLIENT]); /* only its ca.crt is needed */
    if (!atomic_load(&c->stopping))
        set_problem(c, buf_span(&problem));
    bool ready = c->served.n;
    pthread_mutex_lock(&c->lock);
    c->ready = ready;
    pthread_mutex_unlock(&c->lock);
    c->due_ms = clock_mono_ms() + (again   ? POLL_AGAIN_MS
                                   : ready ? POLL_MS
                                           : POLL_FIRST_MS);
}

int64_t cert_secrets_due(const struct cert_secrets *c)
{
    return c->due_ms;
}

int cert_secrets_ready(struct cert_secrets *c, struct err *err)
{
    pthread_mutex_lock(&c->lock);
    bool ready = c->ready;
    struct span first = buf_span(&c->problem);
    first = span_cut(&first, '\n');
    if (!ready && first.n)
        err_set(err, ERR_UNAVAILABLE, "no certificate: %.*s", SPAN_ARG(first));
    else if (!ready)
        err_set(err, ERR_UNAVAILABLE, "no certificate: waiting for Secret %s/%s", c->ns,
                CERT_SECRETS_SERVER);
    pthread_mutex_unlock(&c->lock);
    return ready ? 0 : -1;
}

void cert_secrets_report(struct cert_secrets *c, struct buf *out)
{
    pthread_mutex_lock(&c->lock);
    buf_add_span(out, buf_span(&c->problem));
    pthread_mutex_unlock(&c->lock);
}
