/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/certs.h"

#include <arpa/inet.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "extender/cert_secrets.h"
#include "wire/x509.h"

enum { REFRESH_MS = 1000 };

struct certs {
    enum certs_mode mode;
    struct tls *verbs, *observers; /* both or none */
    bool has_front_proxy;
    struct cert_secrets *secrets; /* CERTS_SECRETS */
    struct ticker *ticker;
    bool stopped;
};

static void refresh(void *ctx)
{
    struct certs *c = ctx;
    tls_refresh(c->verbs);
    tls_refresh(c->observers);
    if (c->secrets)
        cert_secrets_step(c->secrets);
}

static int64_t next_refresh(void *ctx)
{
    struct certs *c = ctx;
    int64_t due = clock_mono_ms() + REFRESH_MS,
            first = c->secrets ? cert_secrets_due(c->secrets) : due;
    return first < due ? first : due;
}

static const struct ticker_fns ticker_fns = {refresh, next_refresh};

/* -- The mode -- */

static bool is_loopback(const char *address)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, address, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, address, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

static enum certs_mode mode_of(const struct certs_config *config)
{
    bool has_options = config->cert_file || config->key_file || config->client_ca_file ||
                       config->front_ca_file || config->observe_ca_file;
    bool insecure =
        config->insecure == OPT_ON ||
        (config->insecure == OPT_UNSET && is_loopback(config->listen) && !has_options);
    return insecure ? CERTS_INSECURE : config->cert_file ? CERTS_FILES : CERTS_SECRETS;
}

static int check(const struct certs_config *config, enum certs_mode mode, struct err *err)
{
    if (!config->cert_file != !config->key_file)
        return err_set(err, ERR_INVALID, "--tls-cert and --tls-key must be set together");
    if (config->client_names->n && !config->client_ca_file)
        return err_set(err, ERR_INVALID, "--client-name needs --client-ca");
    if (config->front_names->n && !config->front_ca_file)
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

static void log_mode(const struct certs_config *config, enum certs_mode mode)
{
    if (mode == CERTS_FILES) {
        log_info("certs", "verbs: client certificate required",
                 LOG_S("certificates", config->cert_file),
                 LOG_S("client-ca", config->client_ca_file));
    } else if (mode == CERTS_SECRETS) {
        cleanup_free char *from =
            xasprintf("Secret %s/%s", config->ns, CERT_SECRETS_SERVER);
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
                 LOG_S("listen", config->listen));
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

static const char *const own_names[] = {CERT_SECRETS_CLIENT_NAME,
                                        CERT_SECRETS_SERVER_NAME};

static int listen_with(struct certs *c, const struct certs_config *config,
                       const struct x509_pair *first, struct err *err)
{
    cleanup_arena struct arena a = {0};
    const char **names;
    bool secrets = c->mode == CERTS_SECRETS;
    struct tls_config verbs = {
        .name = "verbs",
        .cert_file = config->cert_file,
        .key_file = config->key_file,
        .cert_pem = buf_span(&first->cert),
        .key_pem = buf_span(&first->key),
        .client_ca_file = config->client_ca_file,
        .n_client_names = split(config->client_names, &a, &names),
        .secondary_ca_file = config->observe_ca_file,
        .own_names = own_names,
        .n_own_names = secrets ? ARRAY_LEN(own_names) : 0,
    };
    verbs.client_names = names;
    struct tls_config observers = verbs;
    observers.name = "observers";
    observers.client_ca_file = config->front_ca_file;
    observers.n_client_names = split(config->front_names, &a, &names);
    observers.client_names = names;
    observers.common_name_only = true; /* as in k8s.io/apiserver */
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
                             .begins_s = now_s - CERT_SECRETS_BACKDATE_S,
                             .expires_s = now_s + CERT_SECRETS_LIFE_S};
    return x509_make(&spec, NULL, pair, err);
}

static int set_up(struct certs *c, const struct certs_config *config, struct err *err)
{
    struct x509_pair first = {{0}, {0}};
    int rc = 0;
    if (c->mode == CERTS_SECRETS)
        rc = make_temporary(&first, err);
    if (rc == 0 && (c->mode == CERTS_SECRETS || config->cert_file))
        rc = listen_with(c, config, &first, err);
    if (rc == 0 && c->mode == CERTS_SECRETS)
        c->secrets =
            cert_secrets_new(config->ns, (struct tls *const[]){c->verbs, c->observers});
    x509_pair_fini(&first);
    return rc;
}

struct certs *certs_new(const struct certs_config *config, struct err *err)
{
    struct certs *c = xcalloc(1, sizeof *c);
    c->mode = mode_of(config);
    if (check(config, c->mode, err) || set_up(c, config, err)) {
        certs_free(c);
        return NULL;
    }
    c->has_front_proxy = config->front_ca_file;
    log_mode(config, c->mode);
    return c;
}

void certs_start(struct certs *c, struct kube_client *client, struct core_driver *driver,
                 struct counters *counters)
{
    if (!c->verbs)
        return;
    if (c->secrets)
        cert_secrets_connect(c->secrets, client, driver, counters);
    c->ticker = ticker_new();
    ticker_start(c->ticker, &ticker_fns, c);
}

void certs_stop(struct certs *c)
{
    if (!c || !c->ticker || c->stopped)
        return;
    if (c->secrets)
        cert_secrets_stop(c->secrets);
    ticker_stop(c->ticker);
    c->stopped = true;
}

void certs_free(struct certs *c)
{
    if (!c)
        return;
    certs_stop(c);
    ticker_free(c->ticker);
    cert_secrets_free(c->secrets);
    tls_free(c->verbs);
    tls_free(c->observers);
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
    return c && c->secrets ? cert_secrets_ready(c->secrets, err) : 0;
}

void certs_report(struct certs *c, struct buf *out)
{
    if (c && c->verbs) {
        tls_report(c->verbs, out);
        tls_report(c->observers, out);
    }
    if (c && c->secrets)
        cert_secrets_report(c->secrets, out);
}
