/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/kubeconfig_priv.h"

#include <errno.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "domain/object.h"
#include "wire/base64.h"

/* The address of the API server and the credentials for it, from a kubeconfig file or the
 * service account. */

struct kubeconfig {
    const char *path;
    const struct yaml_node *root; /* NULL: empty */
    struct kube_config *config;   /* its arena has the strings */
};

/* A named entry. `what` is its type: "cluster" for an item of the list "clusters", whose
 * body is the value of the key "cluster". */
struct entry {
    const char *what, *name;
    const struct yaml_node *body; /* NULL: empty */
    const char *path;             /* of its file */
    struct kube_config *config;
};

/* -- clusters and users -- */

/* Sets an error about the value of `key`, with file and line. Returns -1. */
static int entry_fail(const struct entry *e, const char *key, const char *why,
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

/* Prepends the entry to a message that already has file and line. Returns -1. */
static int entry_wrap(const struct entry *e, struct err *err)
{
    return err_wrap(err, "%s \"%s\"", e->what, e->name);
}

/* The boolean of a key; *out is unchanged if the key is absent. */
static int entry_bool(const struct entry *e, const char *key, bool *out, struct err *err)
{
    struct span text;
    if (yaml_text(e->body, key, &text, err))
        return entry_wrap(e, err);
    if (!text.p)
        return 0;
    if (!span_eq(text, SPAN("true")) && !span_eq(text, SPAN("false")))
        return entry_fail(e, key, "expected true or false", err);
    *out = text.n == strlen("true");
    return 0;
}

/* The path, relative to the entry's file. */
static const char *entry_path(const struct entry *e, const char *path)
{
    const char *slash = strrchr(e->path, '/');
    if (*path == '/' || !slash)
        return path;
    return arena_printf(&e->config->arena, "%.*s/%s", (int)(slash - e->path), e->path,
                        path);
}

/* The string of a key; NULL if absent or empty. */
static int get(const struct entry *e, const char *key, const char **out, struct err *err)
{
    struct span text;
    if (yaml_text(e->body, key, &text, err))
        return entry_wrap(e, err);
    *out = text.n ? arena_copy(&e->config->arena, text).p : NULL;
    return 0;
}

/* Whether the text contains a PEM header; it is not decoded. */
static bool is_pem(const struct buf *b)
{
    static const struct span mark = SPAN("-----BEGIN ");
    return b->n && memmem(b->p, b->n, mark.p, mark.n);
}

int kube_read_pem(const char *path, struct buf *pem, struct err *err)
{
    int rc = file_read(path, KUBE_FILE_MAX, pem, err);
    if (!rc && !is_pem(pem))
        rc = err_set(err, ERR_INVALID, "%s: expected a PEM file", path);
    if (rc)
        buf_wipe(pem);
    return rc;
}

/* The PEM text of "KEY-data", or of the file named by KEY. */
static int get_pem(const struct entry *e, const char *key, struct buf *pem,
                   const char **file, struct err *err)
{
    const char *data_key = arena_printf(&e->config->arena, "%s-data", key), *name, *data;
    if (get(e, data_key, &data, err) || get(e, key, &name, err))
        return -1;
    if (!data && name) {
        struct err why = {0};
        *file = entry_path(e, name);
        if (!kube_read_pem(*file, pem, &why))
            return 0;
        entry_fail(e, key, why.msg, err);
        if (err)
            err->code = why.code;
        return -1;
    }
    if (!data)
        return 0;
    if (!base64_decode(span_of(data), pem))
        return entry_fail(e, data_key, "invalid base64", err);
    return is_pem(pem) ? 0
                       : entry_fail(e, data_key, "expected base64 of a PEM text", err);
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

/* Fill the config from the body of a cluster or user entry. */
static int apply_cluster(const struct entry *e, struct err *err)
{
    struct kube_config *config = e->config;
    struct err why = {0};
    const char *url;
    if (get(e, "server", &url, err))
        return -1;
    if (!url)
        return entry_fail(e, "server", "missing", err);
    if (kube_config_server(config, span_of(url), &why))
        return entry_fail(e, "server", why.msg, err);
    if (get_pem(e, "certificate-authority", &config->ca_pem, &config->ca_file, err) ||
        get(e, "tls-server-name", &config->server_name, err) ||
        get(e, "proxy-url", &config->proxy, err) ||
        entry_bool(e, "insecure-skip-tls-verify", &config->insecure, err))
        return -1;
    if (config->insecure && config->ca_pem.n)
        return entry_fail(e, "insecure-skip-tls-verify",
                          "conflicts with certificate-authority", err);
    if (config->proxy && !proxy_is_known(config->proxy))
        return entry_fail(e, "proxy-url",
                          "expected an http, https, socks5 or socks5h URL", err);
    return 0;
}

static int reject_unsupported(const struct entry *e, struct err *err)
{
    static const char *const keys[] = {
        "exec", "auth-provider", "username",  "password",
        "as",   "as-uid",        "as-groups", "as-user-extra"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const struct yaml_node *value = yaml_get(e->body, keys[i]);
        bool empty = yaml_is_null(value) ||
                     (value->type == YAML_SCALAR ? !value->text.n : !value->n);
        /* As for client-go, a token wins over a credential plugin. */
        if (!empty && (i || yaml_is_null(yaml_get(e->body, "token"))))
            return entry_fail(
                e, keys[i], i ? "not supported" : "only kubectl runs credential plugins",
                err);
    }
    return 0;
}

static int apply_user(const struct entry *e, struct err *err)
{
    struct kube_config *config = e->config;
    const char *token_file, *token;
    if (reject_unsupported(e, err) ||
        get_pem(e, "client-certificate", &config->cert_pem, &config->cert_file, err) ||
        get_pem(e, "client-key", &config->key_pem, &config->key_file, err) ||
        get(e, "token", &token, err) || get(e, "tokenFile", &token_file, err))
        return -1;
    /* It becomes part of a header: no white space, no control characters. */
    struct span trimmed = span_trim(span_of(token));
    if (token && !kube_token_ok(trimmed))
        return entry_fail(e, "token", "expected printable ASCII without spaces", err);
    config->token = token ? arena_copy(&config->arena, trimmed).p : NULL;
    if (config->cert_pem.n && !config->key_pem.n)
        return entry_fail(e, "client-key", "missing", err);
    if (config->key_pem.n && !config->cert_pem.n)
        return entry_fail(e, "client-certificate", "missing", err);
    if (token_file)
        config->token_file = entry_path(e, token_file);
    return 0;
}

/* -- lookup -- */

/* The list "contexts", "clusters" or "users"; NULL if absent. */
static int section(const struct kubeconfig *k, const char *what,
                   const struct yaml_node **out, struct err *err)
{
    const char *key = arena_printf(&k->config->arena, "%ss", what);
    const struct yaml_node *list = yaml_get(k->root, key);
    *out = NULL;
    if (yaml_is_null(list))
        return 0;
    if (list->type != YAML_SEQUENCE)
        return err_set(err, ERR_INVALID, "%s:%u: %s: expected a list", k->path,
                       list->line, key);
    for (size_t n = 0; n < list->n; n++)
        if (list->items[n]->type != YAML_MAPPING)
            return err_set(err, ERR_INVALID, "%s:%u: %s: expected a mapping", k->path,
                           list->items[n]->line, what);
    *out = list;
    return 0;
}

/* The names of all entries, "a, b, c", for an error message. */
static const char *names_of(const struct kubeconfig *k, const char *what)
{
    enum { ENOUGH = 300 };
    cleanup_buf struct buf out = {0};
    const struct yaml_node *list;
    struct span name;
    section(k, what, &list, NULL);
    for (size_t n = 0; list && n < list->n && out.n < ENOUGH; n++) {
        if (yaml_text(list->items[n], "name", &name, NULL) || !name.n)
            continue;
        buf_adds(&out, out.n ? ", " : "");
        buf_add_span(&out, name);
    }
    if (out.n >= ENOUGH)
        buf_adds(&out, ", ...");
    return out.n ? arena_copy(&k->config->arena, buf_span(&out)).p : "(none)";
}

static int find_entry(const struct kubeconfig *k, const char *what, const char *name,
                      struct entry *e, struct err *err)
{
    const struct yaml_node *list, *item = NULL;
    if (section(k, what, &list, err))
        return -1;
    for (size_t i = 0; list && i < list->n; i++) {
        struct span text;
        if (yaml_text(list->items[i], "name", &text, err))
            return -1;
        if (!span_eq(text, span_of(name)))
            continue;
        if (item)
            return err_set(err, ERR_INVALID, "%s:%u: duplicate %s \"%s\"", k->path,
                           list->items[i]->line, what, name);
        item = list->items[i];
    }
    if (!item)
        return err_set(err, ERR_NOT_FOUND,
                       "%s \"%s\" not found in %s; expected one of: %s", what, name,
                       k->path, names_of(k, what));
    const struct yaml_node *body = yaml_get(item, what);
    *e = (struct entry){what, name, yaml_is_null(body) ? NULL : body, k->path, k->config};
    if (e->body && e->body->type != YAML_MAPPING)
        return err_set(err, ERR_INVALID, "%s:%u: %s \"%s\": expected a mapping", e->path,
                       body->line, what, name);
    return 0;
}

/* Resolves the reference of a context to a cluster or user. */
static int follow(const struct kubeconfig *k, const struct entry *context,
                  const char *what, struct entry *e, struct err *err)
{
    const char *name;
    if (get(context, what, &name, err))
        return -1;
    if (!name)
        return err_set(err, ERR_INVALID, "%s: context \"%s\" has no %s", context->path,
                       context->name, what);
    if (find_entry(k, what, name, e, err))
        return entry_wrap(context, err);
    return 0;
}

/* Fills the config from the context of this name (NULL: the current one). */
static int apply(const struct kubeconfig *k, const char *name, struct err *err)
{
    struct kube_config *config = k->config;
    struct entry context, cluster, user;
    struct span current;
    if (yaml_text(k->root, "current-context", &current, err))
        return -1;
    if (!name && !current.n)
        return err_set(err, ERR_INVALID, "no current-context in %s; contexts: %s",
                       k->path, names_of(k, "context"));
    if (!name)
        name = arena_copy(&config->arena, current).p;
    if (find_entry(k, "context", name, &context, err) ||
        follow(k, &context, "cluster", &cluster, err) ||
        follow(k, &context, "user", &user, err) ||
        get(&context, "namespace", &config->ns, err))
        return -1;
    if (!config->ns)
        config->ns = "default";
    if (!object_is_namespace(config->ns))
        return entry_fail(&context, "namespace", "invalid namespace name", err);
    if (apply_cluster(&cluster, err) || apply_user(&user, err))
        return -1;
    config->source = arena_printf(&config->arena, "context %s of %s", name, k->path);
    return 0;
}

static int load_file(const char *path, const char *context, struct kube_config *config,
                     struct err *err)
{
    cleanup_yaml struct yaml *y = yaml_load(path, err);
    if (!y)
        return -1;
    if (yaml_count(y) > 1)
        return err_set(err, ERR_INVALID, "%s: expected one YAML document", path);
    const struct kubeconfig k = {path, yaml_document(y, 0), config};
    if (k.root && k.root->type != YAML_MAPPING)
        return err_set(err, ERR_INVALID, "%s:%u: not a kubeconfig: expected a mapping",
                       path, k.root->line);
    return apply(&k, context, err);
}

#define ACCOUNT_DIR "/var/run/secrets/kubernetes.io/serviceaccount"

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
    config->server =
        arena_printf(&config->arena, "%s://%.*s", tls ? "https" : "http", SPAN_ARG(host));
    config->path_prefix =
        path.n ? arena_printf(&config->arena, "/%.*s", SPAN_ARG(path)) : "";
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
    const char *path = arena_printf(&config->arena, "%s/namespace", dir);
    cleanup_buf struct buf text = {0};
    struct err why = {0};
    if (file_read(path, KUBE_FILE_MAX, &text, &why)) {
        if (why.code != ERR_NOT_FOUND)
            return err_set(err, why.code, "%s", why.msg);
        config->ns = "default";
        return 0;
    }
    config->ns = arena_copy(&config->arena, span_trim(buf_span(&text))).p;
    if (!object_is_namespace(config->ns))
        return err_set(err, ERR_INVALID, "%s: invalid namespace name", path);
    return 0;
}

/* kube_credential reads the token file. */
static int load_account(const struct kube_config_sources *sources,
                        struct kube_config *config, struct err *err)
{
    struct arena *a = &config->arena;
    const char *dir = account_dir(sources);
    bool is_v6 = strchr(sources->host, ':') && sources->host[0] != '[';
    const char *url = arena_printf(a, "https://%s%s%s:%s", is_v6 ? "[" : "",
                                   sources->host, is_v6 ? "]" : "", sources->port);
    if (kube_config_server(config, span_of(url), err))
        return err_wrap(err, "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT");
    config->token_file = arena_printf(a, "%s/token", dir);
    config->ca_file = arena_printf(a, "%s/ca.crt", dir);
    config->source = arena_printf(a, "service account in %s", dir);
    if (kube_read_pem(config->ca_file, &config->ca_pem, err))
        return -1;
    return load_namespace(dir, config, err);
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0 || errno != ENOENT; /* unreadable is not absent */
}

int kube_config_find(const struct kube_config_sources *sources, struct arena *a,
                     const char **files, struct err *err)
{
    const char *token = arena_printf(a, "%s/token", account_dir(sources));
    const char *home = sources->home && *sources->home
                           ? arena_printf(a, "%s/.kube/config", sources->home)
                           : NULL;
    *files = sources->kubeconfig;
    if (*files && **files) {
        const char *list = *files;
        size_t n = 0;
        for (struct span rest = span_of(list); rest.n;) {
            const char *path = arena_copy(a, span_cut(&rest, ':')).p;
            if (exists(path))
                *files = n++ ? list : path;
        }
        return n ? 0 : err_set(err, ERR_NOT_FOUND, "kubeconfig %s does not exist", list);
    }
    *files = NULL;
    if (is_in_cluster(sources) && exists(token))
        return 0;
    *files = home;
    if (home && exists(home))
        return 0;
    return err_set(err, ERR_NOT_FOUND,
                   "no API server configured: --kubeconfig and KUBECONFIG are not set, "
                   "%s%s, and %s%s",
                   is_in_cluster(sources) ? token : "not running in a pod",
                   is_in_cluster(sources) ? " does not exist" : "",
                   home ? home : "HOME is not set", home ? " does not exist" : "");
}

int kube_config_load(const struct kube_config_sources *sources,
                     struct kube_config *config, struct err *err)
{
    const char *file;
    if (kube_config_find(sources, &config->arena, &file, err))
        return -1;
    if (file && strchr(file, ':'))
        return err_set(err, ERR_INVALID, "kubeconfig %s: only kubectl merges files",
                       file);
    return file ? load_file(file, sources->context, config, err)
                : load_account(sources, config, err);
}

void kube_config_fini(struct kube_config *config)
{
    buf_wipe(&config->ca_pem);
    buf_wipe(&config->cert_pem);
    buf_wipe(&config->key_pem);
    arena_wipe(&config->arena);
    *config = (struct kube_config){0};
}
