/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/cert_keeper.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "extender/cert_plan.h"
#include "wire/x509.h"

enum {
    POLL_MS = 5000,
    POLL_FIRST_MS = 500, /* while there is no certificate */
    POLL_AGAIN_MS = 200, /* after a write */
    CALL_MS = 3000,
};

struct cert_keeper {
    char *ns;
    struct tls *tls[2];
    struct kube_client *client;
    struct store *store;
    struct counters *counters;
    atomic_bool stopping;
    int64_t due_ms;
    struct kube_tls_secret seen[CERT_PLAN_SECRETS]; /* the last read of each */
    char served[X509_FINGERPRINT];                  /* hash of what the listeners have */

    pthread_mutex_t lock; /* protects the members below */
    bool ready;
    struct buf problem; /* lines */
};

struct cert_keeper *cert_keeper_new(const struct cert_keeper_config *config)
{
    struct cert_keeper *k = xcalloc(1, sizeof *k);
    k->ns = xstrdup(config->ns);
    k->tls[0] = config->tls[0];
    k->tls[1] = config->tls[1];
    pthread_mutex_init(&k->lock, NULL);
    return k;
}

void cert_keeper_connect(struct cert_keeper *k, struct kube_client *client,
                         struct store *store, struct counters *counters)
{
    k->client = client;
    k->store = store;
    k->counters = counters;
}

static void forget(struct cert_keeper *k, enum cert_plan_secret secret)
{
    kube_tls_secret_fini(&k->seen[secret]);
}

void cert_keeper_free(struct cert_keeper *k)
{
    if (!k)
        return;
    for (int i = 0; i < CERT_PLAN_SECRETS; i++)
        forget(k, i);
    pthread_mutex_destroy(&k->lock);
    buf_fini(&k->problem);
    free(k->ns);
    free(k);
}

void cert_keeper_stop(struct cert_keeper *k)
{
    atomic_store(&k->stopping, true);
}

/* Replaces the reported problem, and logs a new one. */
static void set_problem(struct cert_keeper *k, struct span lines)
{
    pthread_mutex_lock(&k->lock);
    bool changed = !span_eq(buf_span(&k->problem), lines);
    if (changed) {
        buf_clear(&k->problem);
        buf_add_span(&k->problem, lines);
    }
    pthread_mutex_unlock(&k->lock);
    for (struct span rest = changed ? lines : (struct span){0}; rest.n;) {
        struct span line = span_cut(&rest, '\n');
        log_error("certs", "problem with the Secrets of the certificates",
                  LOG_SPAN("problem", line));
    }
}

/* -- Calls -- */

static int call(struct cert_keeper *k, const struct kube_request *request,
                struct httpc_reply *reply, struct err *err)
{
    *reply = (struct httpc_reply){0};
    if (atomic_load(&k->stopping))
        return err_set(err, ERR_UNAVAILABLE, "stopping");
    struct err why = {0};
    int rc = kube_call(k->client, request, reply, &why);
    if (rc == 0)
        rc = kube_reply_check(reply->status, buf_span(&reply->body), &why);
    counters_api_call(k->counters, COUNTERS_API_SECRET,
                      why.code == ERR_NOT_FOUND ? ERR_NONE : why.code);
    return rc ? err_set(err, why.code, "%s", why.msg) : 0;
}

/* A Secret's content contains private keys. */
static void reply_fini(struct httpc_reply *reply)
{
    tls_wipe(&reply->body);
    httpc_reply_fini(reply);
}

static int read_secret(struct cert_keeper *k, enum cert_plan_secret secret,
                       struct err *err)
{
    cleanup_free char *path =
        xasprintf("/api/v1/namespaces/%s/secrets/%s", k->ns, cert_plan_name(secret));
    struct kube_request request = {.method = "GET", .path = path, .timeout_ms = CALL_MS};
    struct kube_tls_secret now = {0};
    struct httpc_reply reply;
    struct err why = {0};
    int rc = call(k, &request, &reply, &why);
    if (rc == 0)
        rc = kube_tls_secret_decode(buf_span(&reply.body), &now, &why);
    reply_fini(&reply);
    if (rc && why.code != ERR_NOT_FOUND)
        return err_set(err, why.code, "Secret %s/%s: cannot read: %s", k->ns,
                       cert_plan_name(secret), why.msg);
    forget(k, secret);
    k->seen[secret] = now;
    return 0;
}

static int write_secret(struct cert_keeper *k, enum cert_plan_secret secret,
                        const struct kube_tls_secret *to, const char *why,
                        struct err *err)
{
    bool create = !to->exists;
    const char *name = cert_plan_name(secret);
    cleanup_free char *path = xasprintf("/api/v1/namespaces/%s/secrets%s%s", k->ns,
                                        create ? "" : "/", create ? "" : name);
    struct buf body = {0};
    struct httpc_reply reply;
    struct err wrong = {0};
    kube_tls_secret_encode(to, k->ns, name, create, &body);
    struct kube_request request = {.method = create ? "POST" : "PATCH",
                                   .path = path,
                                   .content_type =
                                       create ? NULL : "application/merge-patch+json",
                                   .body = buf_span(&body),
                                   .timeout_ms = CALL_MS};
    int rc = call(k, &request, &reply, &wrong);
    tls_wipe(&body);
    reply_fini(&reply);
    if (rc)
        return err_set(err, wrong.code, "Secret %s/%s: cannot write: %s", k->ns, name,
                       wrong.msg);
    log_info("certs", "Secret: written", LOG_S("namespace", k->ns), LOG_S("name", name),
             LOG_S("reason", why));
    return 0;
}

/* -- Steps -- */

static bool leads(struct cert_keeper *k)
{
    bool leader = core_is_leader(store_read(k->store));
    store_read_end(k->store);
    return leader;
}

/* Writes what is missing. Returns whether something was written, so that the Secrets are
 * to be read again. */
static bool lead(struct cert_keeper *k, struct buf *problem)
{
    struct cert_plan plan = {0};
    struct err err = {0};
    bool wrote = false;
    if (read_secret(k, CERT_PLAN_CA, &err)) {
        buf_printf(problem, "%s\n", err.msg);
        return false;
    }
    cert_plan_make(k->seen, k->ns, clock_wall_ns() / 1000000000, &plan);
    buf_add_span(problem, buf_span(&plan.problem));
    int rc = 0;
    for (int i = 0; i < CERT_PLAN_SECRETS && rc == 0; i++) {
        if (!plan.secrets[i].write)
            continue;
        rc = write_secret(k, i, &plan.secrets[i].to, plan.secrets[i].why, &err);
        wrote |= rc == 0;
    }
    if (rc && err.code == ERR_CONFLICT) /* another writer was faster: read again */
        wrote = true;
    else if (rc)
        buf_printf(problem, "%s\n", err.msg);
    cert_plan_fini(&plan);
    forget(k, CERT_PLAN_CA); /* only the leader needs its key, and only for a moment */
    return wrote;
}

static void log_in_force(const struct cert_keeper *k, const struct x509_info *info)
{
    cleanup_buf struct buf until = {0};
    clock_format_s(&until, info->expires_s);
    cleanup_free char *from =
        xasprintf("Secret %s/%s", k->ns, cert_plan_name(CERT_PLAN_SERVER));
    log_info("certs", "verbs: client certificate required", LOG_S("certificates", from),
             LOG_SPAN("valid-until", buf_span(&until)));
}

/* Hands the certificates to the listeners if they have changed. */
static int serve(struct cert_keeper *k, struct err *err)
{
    cleanup_buf struct buf ca = {0}, all = {0};
    const struct buf *data = k->seen[CERT_PLAN_SERVER].data;
    struct span cert = buf_span(&data[KUBE_TLS_CERT]),
                key = buf_span(&data[KUBE_TLS_KEY]);
    char hash[X509_FINGERPRINT];
    struct x509_info info;
    if (!k->seen[CERT_PLAN_SERVER].exists)
        return err_set(err, ERR_NOT_FOUND, "waiting for Secret %s/%s", k->ns,
                       cert_plan_name(CERT_PLAN_SERVER));
    if (x509_read_pair(cert, key, &info, err))
        return err_wrap(err, "Secret %s/%s", k->ns, cert_plan_name(CERT_PLAN_SERVER));
    if (*k->served && info.expires_s <= clock_wall_ns() / 1000000000)
        return err_set(
            err, ERR_INVALID,
            "Secret %s/%s: the certificate has expired; still using the old one", k->ns,
            cert_plan_name(CERT_PLAN_SERVER));
    x509_add_cas(&ca, buf_span(&data[KUBE_TLS_CA]), 2 * CERT_PLAN_CAS_MAX);
    x509_add_cas(&ca, buf_span(&k->seen[CERT_PLAN_CLIENT].data[KUBE_TLS_CA]),
                 2 * CERT_PLAN_CAS_MAX);
    buf_add_span(&all, cert);
    buf_add_span(&all, buf_span(&ca));
    x509_fingerprint(buf_span(&all), hash);
    if (strcmp(hash, k->served) == 0)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(k->tls); i++)
        if (tls_set(k->tls[i], cert, key, buf_span(&ca), err))
            return err_wrap(err, "Secret %s/%s", k->ns, cert_plan_name(CERT_PLAN_SERVER));
    memcpy(k->served, hash, sizeof hash);
    log_in_force(k, &info);
    return 0;
}

static void count_newest_ca(const struct cert_keeper *k)
{
    const struct buf *ca = &k->seen[CERT_PLAN_CLIENT].data[KUBE_TLS_CA];
    counters_newest_ca(k->counters, x509_newest_ca_s(buf_span(ca)));
}

/* One round. Returns whether the Secrets have changed and the next one is due soon. */
static bool poll_secrets(struct cert_keeper *k)
{
    cleanup_buf struct buf problem = {0};
    struct err err = {0};
    bool wrote = false, both = read_secret(k, CERT_PLAN_SERVER, &err) == 0 &&
                               read_secret(k, CERT_PLAN_CLIENT, &err) == 0;
    if (!both)
        buf_printf(&problem, "%s\n", err.msg);
    else if (leads(k))
        wrote = lead(k, &problem);
    if (both && !wrote && serve(k, &err) && err.code != ERR_NOT_FOUND &&
        !strstr(problem.p ? problem.p : "", err.msg))
        buf_printf(&problem, "%s\n", err.msg);
    if (both)
        count_newest_ca(k);
    forget(k, CERT_PLAN_CLIENT);
    if (!atomic_load(&k->stopping))
        set_problem(k, buf_span(&problem));
    return wrote;
}

void cert_keeper_step(struct cert_keeper *k)
{
    if (clock_mono_ms() < k->due_ms)
        return;
    bool again = poll_secrets(k);
    bool ready = *k->served;
    pthread_mutex_lock(&k->lock);
    k->ready = ready;
    pthread_mutex_unlock(&k->lock);
    k->due_ms = clock_mono_ms() + (again   ? POLL_AGAIN_MS
                                   : ready ? POLL_MS
                                           : POLL_FIRST_MS);
}

int64_t cert_keeper_due(const struct cert_keeper *k)
{
    return k->due_ms;
}

int cert_keeper_ready(struct cert_keeper *k, struct err *err)
{
    pthread_mutex_lock(&k->lock);
    bool ready = k->ready;
    struct span first = buf_span(&k->problem);
    first = span_cut(&first, '\n');
    if (!ready && first.n)
        err_set(err, ERR_UNAVAILABLE, "no certificate: %.*s", SPAN_ARG(first));
    else if (!ready)
        err_set(err, ERR_UNAVAILABLE, "no certificate: waiting for Secret %s/%s", k->ns,
                cert_plan_name(CERT_PLAN_SERVER));
    pthread_mutex_unlock(&k->lock);
    return ready ? 0 : -1;
}

void cert_keeper_report(struct cert_keeper *k, struct buf *out)
{
    pthread_mutex_lock(&k->lock);
    buf_add_span(out, buf_span(&k->problem));
    pthread_mutex_unlock(&k->lock);
}
