/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/config.h"

#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "kube/config_priv.h"

#define ACCOUNT_DIR "/var/run/secrets/kubernetes.io/serviceaccount"

struct span kube_span_copy(struct span s)
{
    return s.n ? (struct span){xmemdup0(s.p, s.n), s.n} : (struct span){NULL, 0};
}

void kube_span_free(struct span *s)
{
    if (s->p)
        explicit_bzero((char *)s->p, s->n);
    free((char *)s->p);
    *s = (struct span){NULL, 0};
}

bool kube_is_pem(struct span s)
{
    static const struct span mark = SPAN("-----BEGIN ");
    return s.n && memmem(s.p, s.n, mark.p, mark.n);
}

bool kube_namespace_ok(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");
    return n > 0 && n <= 63 && !name[n] && name[0] != '-' && name[n - 1] != '-';
}

static bool is_one_word(struct span s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] <= ' ' || (unsigned char)s.p[i] >= 0x7f)
            return false;
    return true;
}

bool kube_token_ok(struct span token)
{
    return token.n && is_one_word(token);
}

int kube_config_server(struct kube_config *config, struct span url, struct err *err)
{
    struct span rest = url, scheme = span_cut(&rest, ':');
    bool tls = span_eq_nocase(scheme, SPAN("https"));
    if ((!tls && !span_eq_nocase(scheme, SPAN("http"))) || !span_starts(rest, SPAN("//")))
        return err_set(err, ERR_INVALID, "expected a URL with https:// or http://");
    rest.p += 2;
    rest.n -= 2;
    if (!is_one_word(url) || memchr(rest.p, '?', rest.n) || memchr(rest.p, '#', rest.n))
        return err_set(err, ERR_INVALID, "expected the form https://host:port/path");
    struct span path = rest, host = span_cut(&path, '/');
    if (!host.n || memchr(host.p, '@', host.n))
        return err_set(err, ERR_INVALID, "expected the form https://host:port/path");
    while (path.n && path.p[path.n - 1] == '/')
        path.n--;
    config->server = xasprintf("%s://%.*s", tls ? "https" : "http", SPAN_ARG(host));
    config->path_prefix = path.n ? xasprintf("/%.*s", SPAN_ARG(path)) : xstrdup("");
    return 0;
}

static const char *account_dir(const struct kube_config_sources *sources)
{
    return sources->account_dir ? sources->account_dir : ACCOUNT_DIR;
}

static bool is_in_cluster(const struct kube_config_sources *sources)
{
    return sources->host && *sources->host && sources->port && *sources->port;
}

static int load_namespace(const char *dir, struct kube_config *config, struct err *err)
{
    cleanup_free char *path = xasprintf("%s/namespace", dir);
    cleanup_buf struct buf text = {0};
    struct err why = {0};
    if (file_read(path, KUBE_FILE_MAX, &text, &why)) {
        if (why.code != ERR_NOT_FOUND)
            return err_set(err, why.code, "%s", why.msg);
        config->ns = xstrdup("default");
        return 0;
    }
    struct span name = span_trim(buf_span(&text));
    config->ns = xmemdup0(name.p, name.n);
    if (!kube_namespace_ok(config->ns))
        return err_set(err, ERR_INVALID, "%s: invalid namespace name", path);
    return 0;
}

/* kube_credential reads the token file. */
static int load_account(const struct kube_config_sources *sources,
                        struct kube_config *config, struct err *err)
{
    const char *dir = account_dir(sources);
    bool is_v6 = strchr(sources->host, ':') && sources->host[0] != '[';
    cleanup_free char *url = xasprintf("https://%s%s%s:%s", is_v6 ? "[" : "",
                                       sources->host, is_v6 ? "]" : "", sources->port);
    if (kube_config_server(config, span_of(url), err))
        return err_wrap(err, "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT");
    config->token_file = xasprintf("%s/token", dir);
    config->ca_file = xasprintf("%s/ca.crt", dir);
    config->source = xasprintf("service account in %s", dir);
    cleanup_buf struct buf ca = {0};
    if (file_read(config->ca_file, KUBE_FILE_MAX, &ca, err))
        return -1;
    if (!kube_is_pem(buf_span(&ca)))
        return err_set(err, ERR_INVALID, "%s: expected a PEM certificate",
                       config->ca_file);
    config->ca_pem = kube_span_copy(buf_span(&ca));
    return load_namespace(dir, config, err);
}

static int load_files(const char *list, const char *context, struct kube_config *config,
                      struct err *err)
{
    struct kubeconfig k = {0};
    int rc = kubeconfig_load(&k, list, err);
    if (!rc)
        rc = kubeconfig_apply(&k, context, config, err);
    kubeconfig_fini(&k);
    return rc;
}

static bool exists(const char *path)
{
    cleanup_buf struct buf bytes = {0};
    struct err why = {0};
    return !file_read(path, KUBE_FILE_MAX, &bytes, &why) || why.code != ERR_NOT_FOUND;
}

int kube_config_load(const struct kube_config_sources *sources,
                     struct kube_config *config, struct err *err)
{
    if (sources->kubeconfig && *sources->kubeconfig)
        return load_files(sources->kubeconfig, sources->context, config, err);
    cleanup_free char *token = xasprintf("%s/token", account_dir(sources));
    if (is_in_cluster(sources) && exists(token))
        return load_account(sources, config, err);
    cleanup_free char *file =
        xasprintf("%s/.kube/config", sources->home ? sources->home : "");
    if (sources->home && *sources->home && exists(file))
        return load_files(file, sources->context, config, err);
    return err_set(err, ERR_NOT_FOUND,
                   "no API server configured: --kubeconfig and KUBECONFIG are not set, "
                   "%s%s, and %s%s",
                   is_in_cluster(sources) ? token : "not running in a pod",
                   is_in_cluster(sources) ? " does not exist" : "",
                   sources->home && *sources->home ? file : "HOME is not set",
                   sources->home && *sources->home ? " does not exist" : "");
}

void kube_config_fini(struct kube_config *config)
{
    free(config->server);
    free(config->path_prefix);
    free(config->server_name);
    free(config->proxy);
    kube_span_free(&config->ca_pem);
    free(config->ca_file);
    kube_span_free(&config->cert_pem);
    kube_span_free(&config->key_pem);
    free(config->cert_file);
    free(config->key_file);
    mem_wipe(config->token);
    free(config->token_file);
    kube_exec_free(config->exec);
    free(config->ns);
    free(config->source);
    *config = (struct kube_config){0};
}

static char *copy(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

void kube_config_copy(struct kube_config *to, const struct kube_config *from)
{
    *to = (struct kube_config){
        .server = copy(from->server),
        .path_prefix = copy(from->path_prefix),
        .server_name = copy(from->server_name),
        .proxy = copy(from->proxy),
        .insecure = from->insecure,
        .ca_pem = kube_span_copy(from->ca_pem),
        .ca_file = copy(from->ca_file),
        .cert_pem = kube_span_copy(from->cert_pem),
        .key_pem = kube_span_copy(from->key_pem),
        .cert_file = copy(from->cert_file),
        .key_file = copy(from->key_file),
        .token = copy(from->token),
        .token_file = copy(from->token_file),
        .exec = kube_exec_copy(from->exec),
        .ns = copy(from->ns),
        .source = copy(from->source),
    };
}
