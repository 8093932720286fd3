/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/certs.h"

#include <arpa/inet.h>
#include <gnutls/crypto.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "domain/keys.h"
#include "domain/object.h"
#include "kube/jpath.h"
#include "kube/secret.h"
#include "wire/base64.h"
#include "wire/x509.h"

enum {
    REFRESH_MS = 1000,
    POLL_MS = 5000,
    POLL_FIRST_MS = 500, /* while there is no certificate */
    CALL_MS = 3000,
    CAS_MAX = 12,              /* certificates in a ca.crt */
    LIFE_S = 10 * 365 * 86400, /* as kubeadm's CA */
    BACKDATE_S = 3600,         /* clocks of machines differ */
};

enum cert_secret { CA, SERVER, CLIENT, SECRETS };
static const char *const secret_names[SECRETS] = {
    "gpushare-extender-ca", "gpushare-extender-tls", "gpushare-scheduler-tls"};

struct certs {
    struct certs_info info;
    const struct certs_config *config;
    const char *ns;
    struct arena names; /* of clients */
    struct kube_client *client;
    struct core_driver *driver;
    struct forward *forward;
    struct counters *counters;
    struct worker *ticker;
    atomic_bool stopping;

    /* CERTS_SECRETS: */
    int64_t due_ms;              /* of the next read */
    struct secret seen[SECRETS]; /* by the current step */
    struct buf served;           /* what the listeners have: certificate and CAs */
    pthread_mutex_t lock;        /* protects the members below */
    bool ready;
    struct err problem;        /* ERR_NONE: none */
    struct buf scheduler_cert; /* of kube-scheduler, as last read */
};

/* -- Secrets -- */

/* Sends a request and reads the reply, which the caller releases. */
static int call_api(struct certs *c, const struct kube_request *request,
                    struct httpc_reply *reply, struct err *err)
{
    int rc = atomic_load(&c->stopping) ? err_set(err, ERR_UNAVAILABLE, "stopping")
                                       : kube_ask(c->client, request, reply, err);
    counters_api_call(c->counters, COUNTERS_API_SECRET,
                      rc && err->code != ERR_NOT_FOUND ? err->code : ERR_NONE);
    return rc;
}

/* Reads a Secret, which need not exist, or creates one from `body`, which it wipes.
 * ERR_CONFLICT: it exists by now. */
static int call_secret(struct certs *c, enum cert_secret secret, struct buf *body,
                       struct err *err)
{
    const char *name = secret_names[secret];
    cleanup_free char *path = xasprintf("/api/v1/namespaces/%s/secrets%s%s", c->ns,
                                        body ? "" : "/", body ? "" : name);
    const struct kube_request request = {.method = body ? "POST" : "GET",
                                         .path = path,
                                         .body = body ? buf_span(body) : SPAN(""),
                                         .timeout_ms = CALL_MS};
    struct httpc_reply reply = {0};
    struct err why = {0};
    int rc = call_api(c, &request, &reply, &why);
    if (rc == 0 && !body)
        rc = secret_decode(buf_span(&reply.body), &c->seen[secret], &why);
    buf_wipe(&reply.body); /* it contains private keys */
    if (body)
        buf_wipe(body);
    return !rc || (!body && why.code == ERR_NOT_FOUND)
               ? 0
               : err_set(err, why.code, "Secret %s/%s: cannot %s: %s", c->ns, name,
                         body ? "write" : "read", why.msg);
}

/* -- the leader: what is missing -- */

/* Makes a Secret, with a certificate of the CA; that of the CA signs itself. */
static int make_secret(struct certs *c, enum cert_secret secret, int64_t now_s,
                       int64_t until_s, struct err *err)
{
    const bool is_ca = secret == CA, server = secret == SERVER;
    cleanup_buf struct buf since = {0};
    clock_format_s(&since, now_s);
    /* Each CA has a name of its own, so that a verifier never takes one for another. */
    cleanup_free char *ca_name = xasprintf("gpushare-extender-ca %s", since.p),
                      *in_ns = xasprintf(CERTS_HOST ".%s", c->ns),
                      *service = xasprintf(CERTS_HOST ".%s.svc", c->ns),
                      /* manifests/apiservice.yaml.example */
                          *observe = xasprintf("gpushare-observe.%s.svc", c->ns);
    const char *const hosts[] = {CERTS_HOST,  in_ns,       service, observe,
                                 "localhost", "127.0.0.1", "::1",   NULL};
    const struct x509_spec spec = {.common_name = is_ca    ? ca_name
                                                  : server ? CERTS_SERVER_NAME
                                                           : CERTS_CLIENT_NAME,
                                   .names = server ? hosts : NULL,
                                   .ca = is_ca,
                                   .server = server,
                                   .client = !is_ca,
                                   .begins_s = now_s - BACKDATE_S,
                                   .expires_s = until_s};
    const struct buf *ca = c->seen[CA].data;
    const struct x509_pair issuer = {ca[SECRET_CERT], ca[SECRET_KEY]};
    struct x509_pair pair = {{0}, {0}};
    struct buf body = {0};
    if (x509_make(&spec, is_ca ? NULL : &issuer, &pair, err)) {
        x509_pair_fini(&pair);
        return -1;
    }
    struct secret made = {.exists = true, .data = {pair.cert, pair.key}};
    /* Its CA, and every CA that is found, so that those of lost Secrets stay trusted. */
    x509_add_cas(&made.data[SECRET_CA], buf_span(is_ca ? &pair.cert : &ca[SECRET_CERT]),
                 CAS_MAX);
    for (int i = 0; i < SECRETS; i++)
        x509_add_cas(&made.data[SECRET_CA], buf_span(&c->seen[i].data[SECRET_CA]),
                     CAS_MAX);
    secret_encode(&made, c->ns, secret_names[secret], &body);
    if (call_secret(c, secret, &body, err)) {
        secret_fini(&made);
        return -1;
    }
    c->seen[secret] = made;
    log_info("certs", "Secret: created", LOG_S("namespace", c->ns),
             LOG_S("name", secret_names[secret]));
    return 0;
}

/* Makes the server's and the client's Secret if they are missing, and before them the CA's. */
static int make_missing(struct certs *c, struct err *err)
{
    const int64_t now_s = clock_wall_ns() / 1000000000;
    const struct secret *ca = &c->seen[CA];
    int64_t until_s = now_s + LIFE_S;
    struct x509_info info;
    struct err why = {0};
    if (c->seen[SERVER].exists && c->seen[CLIENT].exists)
        return 0;
    if (call_secret(c, CA, NULL, err) ||
        (!ca->exists && make_secret(c, CA, now_s, until_s, err)))
        return -1;
    int rc = x509_read_pair(buf_span(&ca->data[SECRET_CERT]),
                            buf_span(&ca->data[SECRET_KEY]), &info, &why);
    if (rc == 0 && !info.ca)
        rc = err_set(&why, ERR_INVALID, "the certificate is of no authority");
    if (rc == 0 && (now_s < info.begins_s || now_s >= info.expires_s))
        rc = err_set(&why, ERR_INVALID, "the certificate is not valid now");
    if (rc)
        return err_set(
            err, ERR_INVALID,
            "Secret %s/%s: %s; the extender makes a new one when it is deleted", c->ns,
            secret_names[CA], why.msg);
    if (until_s > info.expires_s)
        until_s = info.expires_s;
    for (enum cert_secret i = SERVER; i < SECRETS && rc == 0; i++)
        if (!c->seen[i].exists)
            rc = make_secret(c, i, now_s, until_s, err);
    return rc;
}

/* -- every replica: what is served -- */

/* Hands the certificates to the listeners if they have changed. */
static int serve(struct certs *c, struct err *err)
{
    cleanup_buf struct buf ca = {0}, all = {0}, until = {0};
    const struct buf *data = c->seen[SERVER].data;
    struct span cert = buf_span(&data[SECRET_CERT]), key = buf_span(&data[SECRET_KEY]);
    cleanup_free char *from = xasprintf("Secret %s/%s", c->ns, secret_names[SERVER]);
    struct x509_info info;
    if (!c->seen[SERVER].exists)
        return err_set(err, ERR_NOT_FOUND, "waiting for %s", from);
    if (x509_read_pair(cert, key, &info, err))
        return err_wrap(err, "%s", from);
    if (c->served.n && info.expires_s <= clock_wall_ns() / 1000000000)
        return err_set(err, ERR_INVALID,
                       "%s: the certificate has expired; the extender keeps what it has",
                       from);
    for (enum cert_secret i = SERVER; i < SECRETS; i++)
        x509_add_cas(&ca, buf_span(&c->seen[i].data[SECRET_CA]), 2 * CAS_MAX);
    buf_add_span(&all, cert);
    buf_add_span(&all, buf_span(&ca));
    if (span_eq(buf_span(&all), buf_span(&c->served)))
        return 0;
    if (tls_set(c->info.verbs, cert, key, buf_span(&ca), err) ||
        tls_set(c->info.observers, cert, key, buf_span(&ca), err))
        return err_wrap(err, "%s", from);
    buf_set(&c->served, buf_span(&all));
    clock_format_s(&until, info.expires_s);
    log_info("certs", "verbs: client certificate required", LOG_S("certificates", from),
             LOG_SPAN("valid-until", buf_span(&until)));
    return 0;
}

/* -- objects that follow the CAs -- */

/* An object with a text that depends on the CAs. */
struct follower {
    const char *name;   /* for messages */
    const char *path;   /* of the API */
    const char *in;     /* what has the text: a path of kube/jpath.h */
    const char *key;    /* the text's key there, which can have dots */
    struct span wanted; /* the text */
    const char *patch_type;
    struct span patch; /* what sets it */
};

/* Writes the text unless the object has it, or does not exist. */
static void follow(struct certs *c, const struct follower *f, struct err *err)
{
    struct err why = {0};
    struct kube_request request = {
        .method = "GET", .path = f->path, .timeout_ms = CALL_MS};
    struct httpc_reply reply = {0};
    int rc = call_api(c, &request, &reply, &why);
    json_auto_t *object = rc ? NULL : jpath_read(buf_span(&reply.body), &why);
    httpc_reply_fini(&reply);
    if (!object)
        rc = -1;
    else if (!span_eq(jpath_text(json_object_get(jpath(object, f->in), f->key), ""),
                      f->wanted)) {
        request.method = "PATCH";
        request.content_type = f->patch_type;
        request.body = f->patch;
        rc = call_api(c, &request, &reply, &why);
        httpc_reply_fini(&reply);
        if (rc == 0)
            log_info("certs", "written for new CAs", LOG_S("object", f->name));
    }
    if (rc && why.code != ERR_NOT_FOUND)
        err_set(err, why.code, "%s: %s", f->name, why.msg);
}

/* Fails if ca.crt does not fit what is served: one of the two Secrets was kept. The leader makes
 * the Deployment of kube-scheduler, which reads its ca.crt only when it starts, replace its pods
 * if they started with another one: the pod template has its hash, which the chart writes, too. */
static void follow_ca(struct certs *c, bool leads, struct err *err)
{
    const struct buf *ca = &c->seen[CLIENT].data[SECRET_CA];
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf sum = {0};
    unsigned char hash[32];
    if (!c->seen[CLIENT].exists)
        return;
    if (!x509_is_issued_by(buf_span(&c->seen[SERVER].data[SECRET_CERT]), buf_span(ca))) {
        err_set(err, ERR_INVALID,
                "Secret %s/%s: its ca.crt has not issued the certificate of %s, which "
                "kube-scheduler rejects; the extender makes a new one when it is deleted",
                c->ns, secret_names[CLIENT], secret_names[SERVER]);
        return;
    }
    if (!leads || !c->config->scheduler_deployment)
        return;
    gnutls_hash_fast(GNUTLS_DIG_SHA256, ca->p, ca->n, hash);
    for (size_t i = 0; i < sizeof hash; i++)
        buf_printf(&sum, "%02x", hash[i]);
    const char *patch =
        arena_printf(&a,
                     "{\"spec\":{\"template\":{\"metadata\":{\"annotations\":{"
                     "\"" KEY_CA_CHECKSUM "\":\"%s\"}}}}}",
                     sum.p);
    follow(c,
           &(struct follower){
               .name = arena_printf(&a, "Deployment %s/%s", c->ns,
                                    c->config->scheduler_deployment),
               .path = arena_printf(&a, "/apis/apps/v1/namespaces/%s/deployments/%s",
                                    c->ns, c->config->scheduler_deployment),
               .in = "spec.template.metadata.annotations",
               .key = KEY_CA_CHECKSUM,
               .wanted = buf_span(&sum),
               .patch_type = "application/merge-patch+json",
               .patch = span_of(patch)},
           err);
}

/* The leader gives the API server the CAs by which it knows this server. */
static void follow_ca_bundle(struct certs *c, struct err *err)
{
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf bundle = {0};
    base64_encode(buf_span(&c->seen[SERVER].data[SECRET_CA]), &bundle);
    const char *patch =
        arena_printf(&a,
                     "[{\"op\":\"add\",\"path\":\"/webhooks/0/clientConfig/caBundle\","
                     "\"value\":\"%s\"}]",
                     bundle.p);
    follow(
        c,
        &(struct follower){.name = arena_printf(&a, "MutatingWebhookConfiguration %s",
                                                c->config->webhook),
                           .path = arena_printf(&a,
                                                "/apis/admissionregistration.k8s.io/v1/"
                                                "mutatingwebhookconfigurations/%s",
                                                c->config->webhook),
                           .in = "webhooks.0.clientConfig",
                           .key = "caBundle",
                           .wanted = buf_span(&bundle),
                           .patch_type = "application/json-patch+json",
                           .patch = span_of(patch)},
        err);
}

/* -- steps -- */

/* Reads the Secrets, makes missing ones if this process leads, and serves them. */
static void step(struct certs *c)
{
    struct err problem = {0}, why = {0};
    bool leads = core_is_leader(core_driver_read(c->driver));
    core_driver_read_end(c->driver);
    if (call_secret(c, SERVER, NULL, &problem) == 0 &&
        call_secret(c, CLIENT, NULL, &problem) == 0) {
        if (leads && make_missing(c, &why) && why.code != ERR_CONFLICT)
            problem = why;
        if (serve(c, &why)) {
            if (why.code != ERR_NOT_FOUND)
                problem = why;
        } else {
            follow_ca(c, leads, &problem);
            if (leads && c->config->webhook && c->seen[SERVER].data[SECRET_CA].n)
                follow_ca_bundle(c, &problem);
        }
    }
    pthread_mutex_lock(&c->lock);
    if (atomic_load(&c->stopping)) /* the calls failed for that */
        problem = c->problem;
    if (c->seen[CLIENT].exists)
        buf_set(&c->scheduler_cert, buf_span(&c->seen[CLIENT].data[SECRET_CERT]));
    bool is_new = problem.code != ERR_NONE && strcmp(problem.msg, c->problem.msg) != 0;
    c->problem = problem;
    c->ready = c->served.n;
    pthread_mutex_unlock(&c->lock);
    for (int i = 0; i < SECRETS; i++) /* their keys are needed for a moment only */
        secret_fini(&c->seen[i]);
    c->due_ms = clock_mono_ms() + (c->served.n ? POLL_MS : POLL_FIRST_MS);
    if (is_new)
        log_error("certs", "problem with the certificates", LOG_ERR(&problem));
}

static void refresh(void *ctx, void *job)
{
    struct certs *c = ctx;
    (void)job;
    tls_refresh(c->info.verbs);
    tls_refresh(c->info.observers);
    if (c->info.mode == CERTS_SECRETS && clock_mono_ms() >= c->due_ms)
        step(c);
    forward_refresh(c->forward);
}

static int64_t next_refresh(void *ctx)
{
    const struct certs *c = ctx;
    int64_t due = clock_mono_ms() + REFRESH_MS;
    return c->info.mode == CERTS_SECRETS && c->due_ms < due ? c->due_ms : due;
}

/* -- the mode -- */

bool certs_is_loopback(const char *address)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, address, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, address, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

static int check(const struct certs_config *config, enum certs_mode mode, struct err *err)
{
#define ASKS "--insecure=on asks no client for credentials, and "
    const bool insecure = mode == CERTS_INSECURE;
    const struct {
        bool wrong;
        const char *why;
    } rules[] = {
        {!config->cert_file != !config->key_file,
         "--tls-cert and --tls-key must be set together"},
        {config->client_names.n && !config->client_ca_file,
         "--client-name needs --client-ca"},
        {config->front_names.n && !config->front_ca_file,
         "--requestheader-allowed-names needs --requestheader-client-ca"},
        {mode == CERTS_FILES && !config->client_ca_file,
         "--tls-cert needs --client-ca, the CA of kube-scheduler's client certificate; "
         "--insecure=on asks no client for credentials"},
        {mode != CERTS_SECRETS && (config->scheduler_deployment || config->webhook),
         "--scheduler-deployment and --pod-webhook need certificates from Secrets: "
         "remove "
         "--tls-cert and --insecure"},
        {insecure && config->client_ca_file, ASKS "--client-ca does: remove one of them"},
        {insecure && config->observe_ca_file,
         ASKS "--observe-client-ca does: remove one of them"},
        {insecure && config->front_ca_file && !config->cert_file,
         "--requestheader-client-ca needs --tls-cert and --tls-key, or --insecure=off"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rules); i++)
        if (rules[i].wrong)
            return err_set(err, ERR_INVALID, "%s", rules[i].why);
    return 0;
}

static void log_mode(const struct certs *c, const struct certs_config *config,
                     const char *listen)
{
    cleanup_free char *from = xasprintf("Secret %s/%s", c->ns, secret_names[SERVER]);
    if (c->info.mode == CERTS_FILES)
        log_info("certs", "verbs: client certificate required",
                 LOG_S("certificates", config->cert_file),
                 LOG_S("client-ca", config->client_ca_file));
    else if (c->info.mode == CERTS_SECRETS)
        log_info("certs",
                 "verbs: client certificate required; not ready until the Secret is read",
                 LOG_S("certificates", from));
    else if (config->insecure == OPT_ON)
        log_warn("certs",
                 "verbs: no credentials; any client on the network may bind pods",
                 LOG_S("protocol", config->cert_file ? "HTTPS" : "plain HTTP"),
                 LOG_S("reason", "--insecure=on"));
    else
        log_info("certs", "verbs: plain HTTP, no credentials",
                 LOG_S("reason", "--listen is a loopback address"),
                 LOG_S("listen", listen));
}

/* -- the listeners -- */

/* The names of all items, each a comma list; in the arena, NUL-terminated. */
static size_t split(const struct opt_list *list, struct arena *a, const char ***names)
{
    size_t n = 0, most = 1;
    for (size_t i = 0; i < list->n; i++)
        most += strlen(list->items[i]);
    *names = arena_alloc(a, most * sizeof **names);
    for (size_t i = 0; i < list->n; i++)
        for (struct span rest = span_of(list->items[i]); rest.n;) {
            struct span name = span_trim(span_cut(&rest, ','));
            if (name.n)
                (*names)[n++] = arena_copy(a, name).p;
        }
    return n;
}

static int set_up(struct certs *c, const struct certs_config *config, struct err *err)
{
    static const char *const own_names[] = {CERTS_CLIENT_NAME, CERTS_SERVER_NAME},
                             *const local[] = {"localhost", NULL};
    const bool secrets = c->info.mode == CERTS_SECRETS;
    const int64_t now_s = clock_wall_ns() / 1000000000;
    /* A listener needs a certificate before any Secret is read: probes of the kubelet,
     * which verifies none, must be answered. */
    const struct x509_spec spec = {.common_name = "gpushare-extender: no certificate yet",
                                   .names = local,
                                   .server = true,
                                   .begins_s = now_s - BACKDATE_S,
                                   .expires_s = now_s + LIFE_S};
    struct x509_pair first = {{0}, {0}};
    const char **names, **front_names;
    size_t n = split(&config->client_names, &c->names, &names),
           n_front = split(&config->front_names, &c->names, &front_names);
    /* Without names any certificate of the CA may call: an empty variable must not say so. */
    if (config->client_names.n && !n)
        return err_set(err, ERR_INVALID, "--client-name: expected a name");
    if (config->front_names.n && !n_front)
        return err_set(err, ERR_INVALID,
                       "--requestheader-allowed-names: expected a name");
    if (!secrets && !config->cert_file)
        return 0;
    if (secrets && x509_make(&spec, NULL, &first, err))
        return -1;
    struct tls_config verbs = {
        .name = "verbs",
        .cert_file = config->cert_file,
        .key_file = config->key_file,
        .cert_pem = buf_span(&first.cert),
        .key_pem = buf_span(&first.key),
        .groups[TLS_CLIENTS] = {config->client_ca_file, names, n, false},
        .groups[TLS_SECONDARY] = {.ca_file = config->observe_ca_file},
    };
    if (secrets)
        verbs.groups[TLS_OWN] =
            (struct tls_names){NULL, own_names, ARRAY_LEN(own_names), true};
    struct tls_config observers = verbs;
    observers.name = "observers";
    /* The common name alone, as in k8s.io/apiserver. */
    observers.groups[TLS_CLIENTS] =
        (struct tls_names){config->front_ca_file, front_names, n_front, true};
    c->info.verbs = tls_new(&verbs, err);
    c->info.observers = c->info.verbs ? tls_new(&observers, err) : NULL;
    x509_pair_fini(&first);
    return c->info.observers ? 0 : -1;
}

struct certs *certs_new(const struct certs_config *config, const char *listen,
                        const char *ns, struct kube_client *client, struct err *err)
{
    struct certs *c = xcalloc(1, sizeof *c);
    c->client = client;
    pthread_mutex_init(&c->lock, NULL);
    c->config = config;
    c->ns = ns;
    bool has_options = config->cert_file || config->key_file || config->client_ca_file ||
                       config->front_ca_file || config->observe_ca_file;
    bool insecure =
        config->insecure == OPT_ON ||
        (config->insecure == OPT_UNSET && certs_is_loopback(listen) && !has_options);
    c->info.mode = insecure            ? CERTS_INSECURE
                   : config->cert_file ? CERTS_FILES
                                       : CERTS_SECRETS;
    c->info.has_front_proxy = config->front_ca_file;
    c->info.on_loopback =
        c->info.mode == CERTS_INSECURE && !config->cert_file && certs_is_loopback(listen);
    if (check(config, c->info.mode, err) || set_up(c, config, err)) {
        certs_free(c);
        return NULL;
    }
    log_mode(c, config, listen);
    return c;
}

void certs_start(struct certs *c, struct core_driver *driver, struct forward *forward,
                 struct counters *counters)
{
    if (!c->info.verbs)
        return;
    c->driver = driver;
    c->forward = forward;
    c->counters = counters;
    c->ticker = worker_start("ticker", refresh, c);
    worker_tick(c->ticker, next_refresh);
}

void certs_stop(struct certs *c)
{
    if (!c || !c->ticker || atomic_exchange(&c->stopping, true))
        return;
    worker_stop(c->ticker);
}

void certs_free(struct certs *c)
{
    if (!c)
        return;
    certs_stop(c);
    worker_free(c->ticker);
    tls_free(c->info.verbs);
    tls_free(c->info.observers);
    pthread_mutex_destroy(&c->lock);
    buf_fini(&c->served);
    buf_fini(&c->scheduler_cert);
    arena_fini(&c->names);
    free(c);
}

const struct certs_info *certs_info(const struct certs *c)
{
    static const struct certs_info insecure = {.mode = CERTS_INSECURE};
    return c ? &c->info : &insecure;
}

void certs_write(struct certs *c, struct buf *out)
{
    static const char *const verbs[1 + TLS_GROUPS] = {"serving", "client-ca",
                                                      "observe-client-ca", "secrets-ca"},
                                       *const observers[1 + TLS_GROUPS] = {
                                           NULL, "requestheader-client-ca"};
    if (!c)
        return;
    for (int i = 0; i < X509_N_METRICS; i++) {
        kube_client_family(c->client, i, out);
        if (!c->info.verbs)
            continue;
        tls_samples(c->info.verbs, i, verbs, out);
        tls_samples(c->info.observers, i, observers, out);
        pthread_mutex_lock(&c->lock);
        x509_sample(out, i, "scheduler-client", buf_span(&c->scheduler_cert), false);
        pthread_mutex_unlock(&c->lock);
    }
}

int certs_ready(struct certs *c, struct err *err)
{
    if (certs_info(c)->mode != CERTS_SECRETS)
        return 0;
    pthread_mutex_lock(&c->lock);
    bool ready = c->ready;
    if (!ready && c->problem.code != ERR_NONE)
        err_set(err, ERR_UNAVAILABLE, "no certificate: %s", c->problem.msg);
    else if (!ready)
        err_set(err, ERR_UNAVAILABLE, "no certificate: waiting for Secret %s/%s", c->ns,
                secret_names[SERVER]);
    pthread_mutex_unlock(&c->lock);
    return ready ? 0 : -1;
}

void certs_report(struct certs *c, struct buf *out)
{
    if (!certs_info(c)->verbs)
        return;
    tls_report(c->info.verbs, out);
    tls_report(c->info.observers, out);
    pthread_mutex_lock(&c->lock);
    if (c->problem.code != ERR_NONE)
        buf_printf(out, "%s\n", c->problem.msg);
    pthread_mutex_unlock(&c->lock);
}
