/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/certs.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/ticker.h"

enum { REFRESH_MS = 1000 };

struct certs {
    struct tls *verbs, *observers; /* both or none */
    bool has_front_proxy;
    struct ticker *ticker;
};

static void refresh(void *ctx)
{
    struct certs *c = ctx;
    tls_refresh(c->verbs);
    tls_refresh(c->observers);
}

static int64_t next_refresh(void *ctx)
{
    (void)ctx;
    return clock_mono_ms() + REFRESH_MS;
}

static const struct ticker_fns ticker_fns = {refresh, next_refresh};

static int check(const struct certs_config *config, struct err *err)
{
    if (!config->cert_file != !config->key_file)
        return err_set(err, ERR_INVALID, "--tls-cert and --tls-key must be set together");
    if (config->client_ca_file && !config->cert_file)
        return err_set(err, ERR_INVALID, "--client-ca needs --tls-cert and --tls-key");
    if (config->client_names->n && !config->client_ca_file)
        return err_set(err, ERR_INVALID, "--client-name needs --client-ca");
    if (config->front_ca_file && !config->cert_file)
        return err_set(err, ERR_INVALID,
                       "--requestheader-client-ca needs --tls-cert and --tls-key");
    if (config->front_names->n && !config->front_ca_file)
        return err_set(err, ERR_INVALID,
                       "--requestheader-allowed-names needs "
                       "--requestheader-client-ca");
    if (config->observe_ca_file && !config->client_ca_file)
        return err_set(err, ERR_INVALID,
                       "--observe-client-ca needs --client-ca, because the main port "
                       "serves the same views");
    return 0;
}

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

static int start(struct certs *c, const struct certs_config *config, struct err *err)
{
    cleanup_arena struct arena a = {0};
    const char **names;
    struct tls_config verbs = {
        .name = "verbs",
        .cert_file = config->cert_file,
        .key_file = config->key_file,
        .client_ca_file = config->client_ca_file,
        .n_client_names = split(config->client_names, &a, &names),
    };
    verbs.client_names = names;
    struct tls_config observers = {
        .name = "observers",
        .cert_file = config->cert_file,
        .key_file = config->key_file,
        .client_ca_file = config->front_ca_file,
        .optional = true,
        .n_client_names = split(config->front_names, &a, &names),
        .common_name_only = true, /* as in k8s.io/apiserver */
        .secondary_ca_file = config->observe_ca_file,
    };
    observers.client_names = names;
    c->verbs = tls_new(&verbs, err);
    c->observers = c->verbs ? tls_new(&observers, err) : NULL;
    return c->observers ? 0 : -1;
}

struct certs *certs_start(const struct certs_config *config, struct err *err)
{
    struct certs *c = xcalloc(1, sizeof *c);
    if (check(config, err) || (config->cert_file && start(c, config, err))) {
        certs_stop(c);
        return NULL;
    }
    c->has_front_proxy = config->front_ca_file;
    if (c->verbs) {
        c->ticker = ticker_new();
        ticker_start(c->ticker, &ticker_fns, c);
    }
    return c;
}

void certs_stop(struct certs *c)
{
    if (!c)
        return;
    if (c->ticker)
        ticker_stop(c->ticker);
    ticker_free(c->ticker);
    tls_free(c->verbs);
    tls_free(c->observers);
    free(c);
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

void certs_report(struct certs *c, struct buf *out)
{
    if (c && c->verbs) {
        tls_report(c->verbs, out);
        tls_report(c->observers, out);
    }
}
