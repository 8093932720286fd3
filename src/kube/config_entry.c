/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "kube/base64_priv.h"
#include "kube/config_priv.h"

/* Clusters and users of a kubeconfig. */

int kube_entry_fail(const struct kube_entry *e, const char *key, const char *why,
                    struct err *err)
{
    const struct yaml_node *value = yaml_get(e->body, key);
    unsigned line = value ? value->line : e->body ? e->body->line : 0;
    if (!line)
        return err_set(err, ERR_INVALID, "%s: %s \"%s\": %s: %s", e->path, e->what,
                       e->name, key, why);
    return err_set(err, ERR_INVALID, "%s:%u: %s \"%s\": %s: %s", e->path, line, e->what,
                   e->name, key, why);
}

int kube_entry_wrap(const struct kube_entry *e, struct err *err)
{
    return err_wrap(err, "%s \"%s\"", e->what, e->name);
}

int kube_entry_bool(const struct kube_entry *e, const char *key, bool *out,
                    struct err *err)
{
    struct span text;
    if (yaml_text(e->body, key, &text, err))
        return kube_entry_wrap(e, err);
    if (!text.p)
        return 0;
    if (!span_eq(text, SPAN("true")) && !span_eq(text, SPAN("false")))
        return kube_entry_fail(e, key, "expected true or false", err);
    *out = text.n == strlen("true");
    return 0;
}

char *kube_entry_path(const struct kube_entry *e, const char *path)
{
    const char *slash = strrchr(e->path, '/');
    if (*path == '/' || !slash)
        return xstrdup(path);
    return xasprintf("%.*s/%s", (int)(slash - e->path), e->path, path);
}

/* The string of a key, new; NULL if absent or empty. */
static int get(const struct kube_entry *e, const char *key, char **out, struct err *err)
{
    cleanup_wipe char *s = NULL;
    if (yaml_string(e->body, key, &s, err))
        return kube_entry_wrap(e, err);
    *out = s && *s ? steal(&s) : NULL;
    return 0;
}

static int read_pem_file(const struct kube_entry *e, const char *key, const char *path,
                         struct span *pem, struct err *err)
{
    cleanup_buf_wipe struct buf bytes = {0};
    struct err why = {0};
    if (file_read(path, KUBE_FILE_MAX, &bytes, &why)) {
        kube_entry_fail(e, key, why.msg, err);
        if (err)
            err->code = why.code;
        return -1;
    }
    if (!kube_is_pem(buf_span(&bytes)))
        return kube_entry_fail(e, key, "expected a PEM file", err);
    *pem = kube_span_copy(buf_span(&bytes));
    return 0;
}

/* The PEM text of "KEY-data", or of the file named by KEY. */
static int get_pem(const struct kube_entry *e, const char *key, struct span *pem,
                   char **file, struct err *err)
{
    cleanup_free char *data_key = xasprintf("%s-data", key), *name = NULL;
    cleanup_wipe char *data = NULL;
    if (get(e, data_key, &data, err) || get(e, key, &name, err))
        return -1;
    if (!data && name) {
        *file = kube_entry_path(e, name);
        return read_pem_file(e, key, *file, pem, err);
    }
    if (!data)
        return 0;
    cleanup_buf_wipe struct buf bytes = {0};
    if (!base64_decode(span_of(data), &bytes))
        return kube_entry_fail(e, data_key, "invalid base64", err);
    if (!kube_is_pem(buf_span(&bytes)))
        return kube_entry_fail(e, data_key, "expected base64 of a PEM text", err);
    *pem = kube_span_copy(buf_span(&bytes));
    return 0;
}

static int read_server(const struct kube_entry *e, struct kube_config *config,
                       struct err *err)
{
    cleanup_free char *url = NULL;
    struct err why = {0};
    if (get(e, "server", &url, err))
        return -1;
    if (!url)
        return kube_entry_fail(e, "server", "missing", err);
    if (kube_config_server(config, span_of(url), &why))
        return kube_entry_fail(e, "server", why.msg, err);
    return 0;
}

static bool proxy_is_known(const char *url)
{
    static const char *const schemes[] = {"http://", "https://", "socks5://",
                                          "socks5h://"};
    for (size_t i = 0; i < ARRAY_LEN(schemes); i++)
        if (span_starts(span_of(url), span_of(schemes[i])))
            return true;
    return false;
}

int kube_config_cluster(const struct kube_entry *e, struct kube_config *config,
                        struct err *err)
{
    if (read_server(e, config, err) ||
        get_pem(e, "certificate-authority", &config->ca_pem, &config->ca_file, err) ||
        get(e, "tls-server-name", &config->server_name, err) ||
        get(e, "proxy-url", &config->proxy, err) ||
        kube_entry_bool(e, "insecure-skip-tls-verify", &config->insecure, err))
        return -1;
    if (config->insecure && config->ca_pem.n)
        return kube_entry_fail(e, "insecure-skip-tls-verify",
                               "conflicts with certificate-authority", err);
    if (config->proxy && !proxy_is_known(config->proxy))
        return kube_entry_fail(e, "proxy-url",
                               "expected an http, https, socks5 or socks5h URL", err);
    return 0;
}

static int reject_unsupported(const struct kube_entry *e, struct err *err)
{
    static const char *const keys[] = {"auth-provider", "username",  "password",     "as",
                                       "as-uid",        "as-groups", "as-user-extra"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const struct yaml_node *value = yaml_get(e->body, keys[i]);
        bool empty = yaml_is_null(value) ||
                     (value->type == YAML_SCALAR ? !value->text.n : !value->n);
        if (!empty)
            return kube_entry_fail(e, keys[i], "not supported", err);
    }
    return 0;
}

/* A token becomes part of a header: no white space, no control characters. */
static int check_token(const struct kube_entry *e, char **token, struct err *err)
{
    if (!*token)
        return 0;
    struct span s = span_trim(span_of(*token));
    if (!kube_token_ok(s))
        return kube_entry_fail(e, "token", "expected printable ASCII without spaces",
                               err);
    char *trimmed = xmemdup0(s.p, s.n);
    mem_wipe(*token);
    *token = trimmed;
    return 0;
}

int kube_config_user(const struct kube_entry *e, struct kube_config *config,
                     struct err *err)
{
    cleanup_free char *token_file = NULL;
    if (reject_unsupported(e, err) ||
        get_pem(e, "client-certificate", &config->cert_pem, &config->cert_file, err) ||
        get_pem(e, "client-key", &config->key_pem, &config->key_file, err) ||
        get(e, "token", &config->token, err) || check_token(e, &config->token, err) ||
        get(e, "tokenFile", &token_file, err))
        return -1;
    if (config->cert_pem.n && !config->key_pem.n)
        return kube_entry_fail(e, "client-key", "missing", err);
    if (config->key_pem.n && !config->cert_pem.n)
        return kube_entry_fail(e, "client-certificate", "missing", err);
    if (token_file)
        config->token_file = kube_entry_path(e, token_file);
    return 0;
}
