/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/certs.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "kube/secret.h"
#include "wire/x509.h"

enum {
    REFRESH_MS = 1000,
    POLL_MS = 5000,
    POLL_FIRST_MS = 500, /* while there is no certificate */
    POLL_AGAIN_MS = 200, /* after a write */
    CALL_MS = 3000,
    CAS_MAX = 12,              /* certificates in a ca.crt */
    LIFE_S = 10 * 365 * 86400, /* as kubeadm's CA */
    BACKDATE_S = 3600,         /* clocks of machines differ */
};

enum cert_secret { CA, SERVER, CLIENT, SECRETS };
static const char *const secret_names[SECRETS] = {
    "gpushare-extender-ca", "gpushare-extender-tls", "gpushare-scheduler-tls"};

struct certs {
    enum certs_mode mode;
    struct tls *verbs, *observers; /* both or none */
    bool has_front_proxy;
    char *ns;
    struct kube_client *client;
    struct core_driver *driver;
    struct counters *counters;
    struct ticker *ticker;
    atomic_bool stopping;

    /* CERTS_SECRETS: */
    int64_t due_ms;              /* of the next read */
    struct secret seen[SECRETS]; /* the last read of each */
    struct buf served;           /* what the listeners have: certificate and CAs */
    pthread_mutex_t lock;        /* protects the members below */
    bool ready;
    struct buf problem; /* lines */
};

/* -- calls -- */

static int call_api(struct certs *c, const struct kube_request *request,
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
    buf_wipe(&reply->body);
    httpc_reply_fini(reply);
}

static int read_secret(struct certs *c, enum cert_secret secret, struct err *err)
{
    const char *name = secret_names[secret];
    cleanup_free char *path = xasprintf("/api/v1/namespaces/%s/secrets/%s", c->ns, name);
    struct kube_request request = {.method = "GET", .path = path, .timeout_ms = CALL_MS};
    struct secret now = {0};
    struct httpc_reply reply;
    struct err why = {0};
    int rc = call_api(c, &request, &reply, &why);
    if (rc == 0)
        rc = secret_decode(buf_span(&reply.body), &now, &why);
    wipe_reply(&reply);
    if (rc && why.code != ERR_NOT_FOUND)
        return err_set(err, why.code, "Secret %s/%s: cannot read: %s", c->ns, name,
                       why.msg);
    secret_fini(&c->seen[secret]);
    c->seen[secret] = now;
    return 0;
}

/* ERR_CONFLICT: the Secret exists by now. */
static int create_secret(struct certs *c, enum cert_secret secret,
                         const struct x509_pair *pair, struct span ca, struct err *err)
{
    const char *name = secret_names[secret];
    cleanup_free char *path = xasprintf("/api/v1/namespaces/%s/secrets", c->ns);
    struct secret made = {.data = {[SECRET_CERT] = pair->cert, [SECRET_KEY] = pair->key}};
    struct buf body = {0};
    struct httpc_reply reply;
    struct err wrong = {0};
    buf_add_span(&made.data[SECRET_CA], ca);
    secret_encode(&made, c->ns, name, &body);
    buf_fini(&made.data[SECRET_CA]); /* the others belong to the pair */
    struct kube_request request = {
        .method = "POST", .path = path, .body = buf_span(&body), .timeout_ms = CALL_MS};
    int rc = call_api(c, &request, &reply, &wrong);
    buf_wipe(&body);
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
static void add_bundle(const struct certs *c, const struct x509_pair *ca, struct buf *out)
{
    x509_add_cas(out, buf_span(&ca->cert), CAS_MAX);
    for (int i = 0; i < SECRETS; i++)
        x509_add_cas(out, buf_span(&c->seen[i].data[SECRET_CA]), CAS_MAX);
}

/* The CA of its Secret, or a new one, which it writes there. */
static int get_ca(struct certs *c, int64_t now_s, struct x509_pair *ca,
                  struct x509_info *info, struct err *err)
{
    const struct secret *seen = &c->seen[CA];
    cleanup_buf struct buf all = {0}, since = {0};
    if (seen->exists) {
        struct err why = {0};
        struct span cert = buf_span(&seen->data[SECRET_CERT]),
                    key = buf_span(&seen->data[SECRET_KEY]);
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
                             .begins_s = now_s - BACKDATE_S,
                             .expires_s = now_s + LIFE_S};
    if (x509_make(&spec, NULL, ca, err) || x509_read(buf_span(&ca->cert), info, err))
        return -1;
    add_bundle(c, ca, &all);
    return create_secret(c, CA, ca, buf_span(&all), err);
}

static int sign(struct certs *c, enum cert_secret secret, int64_t now_s,
                const struct x509_pair *ca, const struct x509_info *ca_info,
                struct err *err)
{
    cleanup_free char *in_ns = xasprintf(CERTS_HOST ".%s", c->ns),
                      *service = xasprintf(CERTS_HOST ".%s.svc", c->ns);
    /* The second Service is that of the API server (manifests/apiservice.yaml.example). */
    cleanup_free char *observe = xasprintf("gpushare-observe.%s.svc", c->ns);
    const char *const hosts[] = {CERTS_HOST,  in_ns,       service, observe,
                                 "localhost", "127.0.0.1", NULL};
    const bool server = secret == SERVER;
    struct x509_spec spec = {.common_name =
                                 server ? CERTS_SERVER_NAME : CERTS_CLIENT_NAME,
                             .names = server ? hosts : NULL,
                             .server = server,
                             .client = true,
                             .begins_s = now_s - BACKDATE_S,
                             .expires_s = now_s + LIFE_S};
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
static bool make_missing(struct certs *c, struct buf *problem)
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
    for (enum cert_secret i = SERVER; i < SECRETS && rc == 0; i++)
        if (!c->seen[i].exists)
            rc = sign(c, i, now_s, &ca, &info, &err);
    x509_pair_fini(&ca);
    secret_fini(&c->seen[CA]); /* its key is needed for a moment only */
    if (rc && err.code != ERR_CONFLICT) {
        buf_printf(problem, "%s\n", err.msg);
        return false;
    }
    return true;
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
    if (tls_set(c->verbs, cert, key, buf_span(&ca), err) ||
        tls_set(c->observers, cert, key, buf_span(&ca), err))
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

static bool leads(struct certs *c)
{
    bool leader = core_is_leader(core_driver_read(c->driver));
    core_driver_read_end(c->driver);
    return leader;
}

/* Replaces what is reported, and logs new problems. */
static void set_problem(struct certs *c, struct span lines)
{
    pthread_mutex_lock(&c->lock);
    bool changed = !span_eq(buf_span(&c->problem), lines);
    if (changed) {
        buf_clear(&c->problem);
        buf_add_span(&c->problem, lines);
    }
    c->ready = c->served.n;
    pthread_mutex_unlock(&c->lock);
    for (struct span rest = changed ? lines : (struct span){0}; rest.n;) {
        struct span line = span_cut(&rest, '\n');
        log_error("certs", "problem with the Secrets of the certificates",
                  LOG_SPAN("problem", line));
    }
}

/* Reads the Secrets, and makes missing ones if this process leads. */
static void step(struct certs *c)
{
    cleanup_buf struct buf problem = {0};
    struct err err = {0};
    bool again = false;
    if (read_secret(c, SERVER, &err) || read_secret(c, CLIENT, &err)) {
        buf_printf(&problem, "%s\n", err.msg);
    } else {
        again = leads(c) && make_missing(c, &problem);
        if (!again && serve(c, &err) && err.code != ERR_NOT_FOUND)
            buf_printf(&problem, "%s\n", err.msg);
    }
    secret_fini(&c->seen[CLIENT]); /* only its ca.crt is needed */
    if (!atomic_load(&c->stopping))
        set_problem(c, buf_span(&problem));
    c->due_ms = clock_mono_ms() + (again         ? POLL_AGAIN_MS
                                   : c->served.n ? POLL_MS
                                                 : POLL_FIRST_MS);
}

static void refresh(void *ctx)
{
    struct certs *c = ctx;
    tls_refresh(c->verbs);
    tls_refresh(c->observers);
    if (c->mode == CERTS_SECRETS && clock_mono_ms() >= c->due_ms)
        step(c);
}

static int64_t next_refresh(void *ctx)
{
    const struct certs *c = ctx;
    int64_t due = clock_mono_ms() + REFRESH_MS;
    return c->mode == CERTS_SECRETS && c->due_ms < due ? c->due_ms : due;
}

/* -- The mode -- */

static bool is_loopback(const char *address)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, address, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, address, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

static enum certs_mode mode_of(const struct certs_config *config, const char *listen)
{
    bool has_options = config->cert_file || config->key_file || config->client_ca_file ||
                       config->front_ca_file || config->observe_ca_file;
    bool insecure = config->insecure == OPT_ON || (config->insecure == OPT_UNSET &&
                                                   is_loopback(listen) && !has_options);
    return insecure ? CERTS_INSECURE : config->cert_file ? CERTS_FILES : CERTS_SECRETS;
}

static int check(const struct certs_config *config, enum certs_mode mode, struct err *err)
{
    if (!config->cert_file != !config->key_file)
        return err_set(err, ERR_INVALID, "--tls-cert and --tls-key must be set together");
    if (config->client_names.n && !config->client_ca_file)
        return err_set(err, ERR_INVALID, "--client-name needs --client-ca");
    if (config->front_names.n && !config->front_ca_file)
        return err_set(err, ERR_INVALID,
                       "--requestheader-allowed-names needs "
                       "--requestheader-client-ca");
    if (mode == CERTS_FILES && !config->client_ca_file)
        return err_set(err, ERR_INVALID,
                       "--tls-cert needs --client-ca, the CA of kube-scheduler's client "
                       "certificate; --insecure=on asks no client for credentials");
    if (mode != CERTS_INSECURE)
        return 0;
    if (config->client_ca_file || config->observe_ca_file)
        return err_set(err, ERR_INVALID,
                       "--insecure=on asks no client for credentials, and %s does: "
                       "remove one of them",
                       config->client_ca_file ? "--client-ca" : "--observe-client-ca");
    if (config->front_ca_file && !config->cert_file)
        return err_set(err, ERR_INVALID,
                       "--requestheader-client-ca needs --tls-cert and --tls-key, or "
                       "--insecure=off");
    return 0;
}

static void log_mode(const struct certs *c, const struct certs_config *config,
                     const char *listen)
{
    if (c->mode == CERTS_FILES) {
        log_info("certs", "verbs: client certificate required",
                 LOG_S("certificates", config->cert_file),
                 LOG_S("client-ca", config->client_ca_file));
    } else if (c->mode == CERTS_SECRETS) {
        cleanup_free char *from = xasprintf("Secret %s/%s", c->ns, secret_names[SERVER]);
        log_info("certs",
                 "verbs: client certificate required; not ready until the Secret is read",
                 LOG_S("certificates", from));
    } else if (config->insecure == OPT_ON) {
        log_warn("certs",
                 "verbs: no credentials; any client on the network may bind pods",
                 LOG_S("protocol", config->cert_file ? "HTTPS" : "plain HTTP"),
                 LOG_S("reason", "--insecure=on"));
    } else {
        log_info("certs", "verbs: plain HTTP, no credentials",
                 LOG_S("reason", "--listen is a loopback address"),
                 LOG_S("listen", listen));
    }
}

/* -- The listeners -- */

/* The names of all items, each a comma list; in the arena, NUL-terminated. */
static size_t split(const struct opt_list *list, struct arena *a, const char ***names)
{
    size_t n = 0, most = 0;
    for (size_t i = 0; i < list->n; i++) {
        most++;
        for (const char *p = list->items[i]; *p; p++)
            most += *p == ',';
    }
    *names = arena_alloc(a, (most + 1) * sizeof **names);
    for (size_t i = 0; i < list->n; i++) {
        struct span rest = span_of(list->items[i]);
        while (rest.n) {
            struct span name = span_trim(span_cut(&rest, ','));
            if (name.n)
                (*names)[n++] = arena_copy(a, name).p;
        }
    }
    return n;
}

static const char *const own_names[] = {CERTS_CLIENT_NAME, CERTS_SERVER_NAME};

static int listen_with(struct certs *c, const struct certs_config *config,
                       const struct x509_pair *first, struct err *err)
{
    cleanup_arena struct arena a = {0};
    const char **names, **front_names;
    size_t n = split(&config->client_names, &a, &names),
           n_front = split(&config->front_names, &a, &front_names);
    struct tls_config verbs = {
        .name = "verbs",
        .cert_file = config->cert_file,
        .key_file = config->key_file,
        .cert_pem = buf_span(&first->cert),
        .key_pem = buf_span(&first->key),
        .groups[TLS_CLIENTS] = {config->client_ca_file, names, n, false},
        .groups[TLS_SECONDARY] = {.ca_file = config->observe_ca_file},
    };
    if (c->mode == CERTS_SECRETS)
        verbs.groups[TLS_OWN] =
            (struct tls_names){NULL, own_names, ARRAY_LEN(own_names), true};
    struct tls_config observers = verbs;
    observers.name = "observers";
    /* The common name alone, as in k8s.io/apiserver. */
    observers.groups[TLS_CLIENTS] =
        (struct tls_names){config->front_ca_file, front_names, n_front, true};
    c->verbs = tls_new(&verbs, err);
    c->observers = c->verbs ? tls_new(&observers, err) : NULL;
    return c->observers ? 0 : -1;
}

/* A listener needs a certificate before any Secret is read: probes of the kubelet, which
 * verifies none, must be answered. */
static int make_temporary(struct x509_pair *pair, struct err *err)
{
    const int64_t now_s = clock_wall_ns() / 1000000000;
    static const char *const names[] = {"localhost", NULL};
    struct x509_spec spec = {.common_name = "gpushare-extender: no certificate yet",
                             .names = names,
                             .server = true,
                             .begins_s = now_s - BACKDATE_S,
                             .expires_s = now_s + LIFE_S};
    return x509_make(&spec, NULL, pair, err);
}

static int set_up(struct certs *c, const struct certs_config *config, struct err *err)
{
    struct x509_pair first = {{0}, {0}};
    int rc = c->mode == CERTS_SECRETS ? make_temporary(&first, err) : 0;
    if (rc == 0 && (c->mode == CERTS_SECRETS || config->cert_file))
        rc = listen_with(c, config, &first, err);
    x509_pair_fini(&first);
    return rc;
}

struct certs *certs_new(const struct certs_config *config, const char *listen,
                        const char *ns, struct err *err)
{
    struct certs *c = xcalloc(1, sizeof *c);
    pthread_mutex_init(&c->lock, NULL);
    c->ns = xstrdup(ns);
    c->mode = mode_of(config, listen);
    if (check(config, c->mode, err) || set_up(c, config, err)) {
        certs_free(c);
        return NULL;
    }
    c->has_front_proxy = config->front_ca_file;
    log_mode(c, config, listen);
    return c;
}

void certs_start(struct certs *c, struct kube_client *client, struct core_driver *driver,
                 struct counters *counters)
{
    static const struct ticker_fns ticker_fns = {refresh, next_refresh};
    if (!c->verbs)
        return;
    c->client = client;
    c->driver = driver;
    c->counters = counters;
    c->ticker = ticker_new();
    ticker_start(c->ticker, &ticker_fns, c);
}

void certs_stop(struct certs *c)
{
    if (!c || !c->ticker || atomic_exchange(&c->stopping, true))
        return;
    ticker_stop(c->ticker);
}

void certs_free(struct certs *c)
{
    if (!c)
        return;
    certs_stop(c);
    ticker_free(c->ticker);
    tls_free(c->verbs);
    tls_free(c->observers);
    for (int i = 0; i < SECRETS; i++)
        secret_fini(&c->seen[i]);
    pthread_mutex_destroy(&c->lock);
    buf_fini(&c->served);
    buf_fini(&c->problem);
    free(c->ns);
    free(c);
}

/* -- Questions -- */

enum certs_mode certs_mode(const struct certs *c)
{
    return c ? c->mode : CERTS_INSECURE;
}

struct tls *certs_verbs(struct certs *c)
{
    return c ? c->verbs : NULL;
}

struct tls *certs_observers(struct certs *c)
{
    return c ? c->observers : NULL;
}

bool certs_has_front_proxy(const struct certs *c)
{
    return c && c->has_front_proxy;
}

int certs_ready(struct certs *c, struct err *err)
{
    if (certs_mode(c) != CERTS_SECRETS)
        return 0;
    pthread_mutex_lock(&c->lock);
    bool ready = c->ready;
    struct span first = buf_span(&c->problem);
    first = span_cut(&first, '\n');
    if (!ready && first.n)
        err_set(err, ERR_UNAVAILABLE, "no certificate: %.*s", SPAN_ARG(first));
    else if (!ready)
        err_set(err, ERR_UNAVAILABLE, "no certificate: waiting for Secret %s/%s", c->ns,
                secret_names[SERVER]);
    pthread_mutex_unlock(&c->lock);
    return ready ? 0 : -1;
}

void certs_report(struct certs *c, struct buf *out)
{
    if (!certs_verbs(c))
        return;
    tls_report(c->verbs, out);
    tls_report(c->observers, out);
    pthread_mutex_lock(&c->lock);
    buf_add_span(out, buf_span(&c->problem));
    pthread_mutex_unlock(&c->lock);
}
