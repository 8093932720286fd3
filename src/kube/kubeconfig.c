/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/kubeconfig_priv.h"

#include <stdlib.h>

#include "base/file.h"
#include "base/jwrite.h"
#include "base/mem.h"
#include "domain/object.h"
#include "wire/base64.h"

/* The address of the API server and the credentials for it, from kubeconfig files or the
 * service account. */

/* The files of a list, and what is read from them. */
struct kubeconfig {
    struct kubeconfig_file {
        const char *path;
        struct yaml *yaml;
    } * files;
    size_t n, cap;
    const char *list;           /* as configured */
    struct kube_config *config; /* its arena has the strings */
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

int kube_read_pem(const char *path, struct span *pem, struct err *err)
{
    cleanup_buf_wipe struct buf bytes = {0};
    if (file_read(path, KUBE_FILE_MAX, &bytes, err))
        return -1;
    if (!kube_is_pem(buf_span(&bytes)))
        return err_set(err, ERR_INVALID, "%s: expected a PEM file", path);
    *pem = kube_span_copy(buf_span(&bytes));
    return 0;
}

/* The PEM text of "KEY-data", or of the file named by KEY. */
static int get_pem(const struct entry *e, const char *key, struct span *pem,
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
    cleanup_buf_wipe struct buf bytes = {0};
    if (!base64_decode(span_of(data), &bytes))
        return entry_fail(e, data_key, "invalid base64", err);
    if (!kube_is_pem(buf_span(&bytes)))
        return entry_fail(e, data_key, "expected base64 of a PEM text", err);
    *pem = kube_span_copy(buf_span(&bytes));
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
    static const char *const keys[] = {"auth-provider", "username",  "password",     "as",
                                       "as-uid",        "as-groups", "as-user-extra"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const struct yaml_node *value = yaml_get(e->body, keys[i]);
        bool empty = yaml_is_null(value) ||
                     (value->type == YAML_SCALAR ? !value->text.n : !value->n);
        if (!empty)
            return entry_fail(e, keys[i], "not supported", err);
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

/* The field `exec` of a kubeconfig user. */

#define EXEC_GROUP "client.authentication.k8s.io/"

/* The scalar as a string; NULL if the node is not a scalar. */
static char *word_of(const struct entry *e, const struct yaml_node *node)
{
    if (!node || node->type != YAML_SCALAR || memchr(node->text.p, '\0', node->text.n))
        return NULL;
    return (char *)arena_copy(&e->config->arena, node->text).p;
}

static char **words_new(const struct entry *e, size_t n)
{
    return arena_zalloc(&e->config->arena, (n + 1) * sizeof(char *));
}

/* A command with a slash is relative to the kubeconfig file; one without is searched in
 * PATH. */
static int read_argv(const struct entry *e, struct kube_exec *exec, struct err *err)
{
    const struct yaml_node *args = yaml_get(e->body, "args");
    const char *command;
    if (get(e, "command", &command, err))
        return -1;
    if (!command)
        return entry_fail(e, "command", "missing", err);
    if (!yaml_is_null(args) && args->type != YAML_SEQUENCE)
        return entry_fail(e, "args", "expected a list of strings", err);
    size_t n = yaml_is_null(args) ? 0 : args->n;
    exec->argv = words_new(e, n + 1);
    exec->argv[0] = (char *)(strchr(command, '/') ? entry_path(e, command) : command);
    for (size_t i = 0; i < n; i++) {
        exec->argv[i + 1] = word_of(e, args->items[i]);
        if (!exec->argv[i + 1])
            return entry_fail(e, "args", "expected a list of strings", err);
    }
    return 0;
}

static int read_env(const struct entry *e, struct kube_exec *exec, struct err *err)
{
    const struct yaml_node *env = yaml_get(e->body, "env");
    if (!yaml_is_null(env) && env->type != YAML_SEQUENCE)
        return entry_fail(e, "env", "expected a list of name and value", err);
    size_t n = yaml_is_null(env) ? 0 : env->n;
    exec->env = words_new(e, n);
    for (size_t i = 0; i < n; i++) {
        const char *name = word_of(e, yaml_get(env->items[i], "name"));
        const char *value = word_of(e, yaml_get(env->items[i], "value"));
        if (!name || !*name || strchr(name, '=') || !value)
            return entry_fail(e, "env", "expected a list of name and value", err);
        exec->env[i] = (char *)arena_printf(&e->config->arena, "%s=%s", name, value);
    }
    return 0;
}

static int read_version(const struct entry *e, struct kube_exec *exec, struct err *err)
{
    if (get(e, "apiVersion", &exec->api_version, err))
        return -1;
    if (!exec->api_version || (strcmp(exec->api_version, EXEC_GROUP "v1") &&
                               strcmp(exec->api_version, EXEC_GROUP "v1beta1")))
        return entry_fail(e, "apiVersion",
                          "expected " EXEC_GROUP "v1 or " EXEC_GROUP "v1beta1", err);
    return 0;
}

/* A plugin has no terminal: its standard input is /dev/null. */
static int check_mode(const struct entry *e, struct err *err)
{
    struct span mode;
    if (yaml_text(e->body, "interactiveMode", &mode, err))
        return entry_wrap(e, err);
    if (span_eq(mode, SPAN("Always")))
        return entry_fail(e, "interactiveMode",
                          "Always is not supported: there is no terminal", err);
    if (mode.n && !span_eq(mode, SPAN("Never")) && !span_eq(mode, SPAN("IfAvailable")))
        return entry_fail(e, "interactiveMode", "expected Never, IfAvailable or Always",
                          err);
    return 0;
}

/* KUBERNETES_EXEC_INFO. `cluster`: NULL: without. */
static const char *info_of(const struct kube_exec *exec, struct kube_config *config,
                           const struct entry *cluster)
{
    cleanup_buf struct buf out = {0}, text = {0};
    struct jwrite w = {.out = &out};
    jwrite_object(&w, NULL);
    jwrite_str(&w, "kind", SPAN("ExecCredential"));
    jwrite_str(&w, "apiVersion", span_of(exec->api_version));
    jwrite_object(&w, "spec");
    jwrite_bool(&w, "interactive", false);
    if (cluster) {
        const struct yaml_node *list = yaml_get(cluster->body, "extensions");
        buf_printf(&text, "%s%s", config->server, config->path_prefix);
        jwrite_object(&w, "cluster");
        jwrite_str(&w, "server", buf_span(&text));
        jwrite_str_set(&w, "tls-server-name", span_of(config->server_name));
        jwrite_str_set(&w, "proxy-url", span_of(config->proxy));
        buf_clear(&text);
        base64_encode(config->ca_pem, &text);
        jwrite_str_set(&w, "certificate-authority-data", buf_span(&text));
        if (config->insecure)
            jwrite_bool(&w, "insecure-skip-tls-verify", true);
        /* The cluster's extension for exec plugins: any value. */
        for (size_t i = 0; list && list->type == YAML_SEQUENCE && i < list->n; i++) {
            const struct yaml_node *name = yaml_get(list->items[i], "name");
            if (!name || !span_eq(name->text, SPAN(EXEC_GROUP "exec")))
                continue;
            buf_clear(&text);
            yaml_json(yaml_get(list->items[i], "extension"), &text);
            jwrite_raw(&w, "config", buf_span(&text));
            break;
        }
        jwrite_object_end(&w);
    }
    jwrite_object_end(&w);
    jwrite_object_end(&w);
    return arena_copy(&config->arena, buf_span(&out)).p;
}

/* Reads the exec plugin of the user e; apply_cluster must have filled the config.
 */
static int apply_exec(const struct entry *user, const struct entry *cluster,
                      struct err *err)
{
    struct kube_config *config = user->config;
    const struct yaml_node *body = yaml_get(user->body, "exec");
    if (yaml_is_null(body))
        return 0;
    if (body->type != YAML_MAPPING)
        return entry_fail(user, "exec", "expected a mapping", err);
    struct entry e = {"exec plugin of user", user->name, body, user->path, config};
    struct kube_exec *exec = config->exec = arena_zalloc(&config->arena, sizeof *exec);
    bool with_cluster = false;
    exec->user = user->name;
    if (read_version(&e, exec, err) || read_argv(&e, exec, err) ||
        read_env(&e, exec, err) || check_mode(&e, err) ||
        entry_bool(&e, "provideClusterInfo", &with_cluster, err) ||
        get(&e, "installHint", &exec->install_hint, err))
        return -1;
    exec->info = info_of(exec, config, with_cluster ? cluster : NULL);
    return 0;
}

/*
 * Lookup in several kubeconfig files. They are not merged into one tree: a lookup
 * searches the files in order, so that the first entry of a name wins.
 */

static int load_file(struct kubeconfig *k, struct span one, struct err *err)
{
    const char *path = arena_copy(&k->config->arena, one).p;
    struct err why = {0};
    cleanup_yaml struct yaml *y = yaml_load(path, &why);
    if (!y && why.code == ERR_NOT_FOUND)
        return 0;
    if (!y)
        return err_set(err, why.code, "%s", why.msg);
    if (yaml_count(y) > 1)
        return err_set(err, ERR_INVALID, "%s: expected one YAML document", path);
    const struct yaml_node *root = yaml_document(y, 0);
    if (root && root->type != YAML_MAPPING)
        return err_set(err, ERR_INVALID, "%s:%u: not a kubeconfig: expected a mapping",
                       path, root->line);
    MEM_GROW(k->files, k->cap, k->n + 1);
    k->files[k->n++] = (struct kubeconfig_file){path, steal(&y)};
    return 0;
}

static const struct yaml_node *root_of(const struct kubeconfig *k, size_t i)
{
    return yaml_document(k->files[i].yaml, 0);
}

/* The list "contexts", "clusters" or "users" of a file; NULL if absent. */
static int section(const struct kubeconfig *k, size_t i, const char *what,
                   const struct yaml_node **out, struct err *err)
{
    const char *key = arena_printf(&k->config->arena, "%ss", what);
    const struct yaml_node *list = yaml_get(root_of(k, i), key);
    *out = NULL;
    if (yaml_is_null(list))
        return 0;
    if (list->type != YAML_SEQUENCE)
        return err_set(err, ERR_INVALID, "%s:%u: %s: expected a list", list->file,
                       list->line, key);
    for (size_t n = 0; n < list->n; n++)
        if (list->items[n]->type != YAML_MAPPING)
            return err_set(err, ERR_INVALID, "%s:%u: %s: expected a mapping", list->file,
                           list->items[n]->line, what);
    *out = list;
    return 0;
}

/* The item with this name, or NULL; two items are an error. */
static int find_in(const struct yaml_node *list, const char *what, const char *name,
                   const struct yaml_node **out, struct err *err)
{
    *out = NULL;
    for (size_t i = 0; list && i < list->n; i++) {
        struct span text;
        if (yaml_text(list->items[i], "name", &text, err))
            return -1;
        if (!span_eq(text, span_of(name)))
            continue;
        if (*out)
            return err_set(err, ERR_INVALID, "%s:%u: duplicate %s \"%s\"", list->file,
                           list->items[i]->line, what, name);
        *out = list->items[i];
    }
    return 0;
}

/* The names of all entries, "a, b, c", for an error message. */
static const char *names_of(const struct kubeconfig *k, const char *what)
{
    enum { ENOUGH = 300 };
    cleanup_buf struct buf out = {0};
    for (size_t i = 0; i < k->n; i++) {
        const struct yaml_node *list;
        struct span name;
        if (section(k, i, what, &list, NULL) || !list)
            continue;
        for (size_t n = 0; n < list->n && out.n < ENOUGH; n++) {
            if (yaml_text(list->items[n], "name", &name, NULL) || !name.n)
                continue;
            buf_adds(&out, out.n ? ", " : "");
            buf_add_span(&out, name);
        }
    }
    if (out.n >= ENOUGH)
        buf_adds(&out, ", ...");
    return out.n ? arena_copy(&k->config->arena, buf_span(&out)).p : "(none)";
}

/* Finds the entry in the first file that has it. */
static int find_entry(const struct kubeconfig *k, const char *what, const char *name,
                      struct entry *e, struct err *err)
{
    for (size_t i = 0; i < k->n; i++) {
        const struct yaml_node *list, *item;
        if (section(k, i, what, &list, err) || find_in(list, what, name, &item, err))
            return -1;
        if (!item)
            continue;
        const struct yaml_node *body = yaml_get(item, what);
        *e = (struct entry){what, name, yaml_is_null(body) ? NULL : body,
                            k->files[i].path, k->config};
        if (e->body && e->body->type != YAML_MAPPING)
            return err_set(err, ERR_INVALID, "%s:%u: %s \"%s\": expected a mapping",
                           e->path, body->line, what, name);
        return 0;
    }
    return err_set(err, ERR_NOT_FOUND, "%s \"%s\" not found in %s; expected one of: %s",
                   what, name, k->list, names_of(k, what));
}

/* The first file that sets it. */
static int current_context(const struct kubeconfig *k, const char **out, struct err *err)
{
    for (size_t i = 0; i < k->n; i++) {
        struct span name;
        if (yaml_text(root_of(k, i), "current-context", &name, err))
            return -1;
        if (name.n) {
            *out = arena_copy(&k->config->arena, name).p;
            return 0;
        }
    }
    return err_set(err, ERR_INVALID, "no current-context in %s; contexts: %s", k->list,
                   names_of(k, "context"));
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
    if ((!name && current_context(k, &name, err)) ||
        find_entry(k, "context", name, &context, err) ||
        follow(k, &context, "cluster", &cluster, err) ||
        follow(k, &context, "user", &user, err) ||
        get(&context, "namespace", &config->ns, err))
        return -1;
    if (!config->ns)
        config->ns = "default";
    if (!object_is_namespace(config->ns))
        return entry_fail(&context, "namespace", "invalid namespace name", err);
    if (apply_cluster(&cluster, err) || apply_user(&user, err) ||
        apply_exec(&user, &cluster, err))
        return -1;
    config->source = arena_printf(&config->arena, "context %s of %s", name, context.path);
    return 0;
}

/* Missing files are skipped. */
static int load_files(const char *list, const char *context, struct kube_config *config,
                      struct err *err)
{
    struct kubeconfig k = {.list = list, .config = config};
    struct span rest = span_of(list);
    int rc = 0;
    while (rest.p && !rc) {
        struct span path = span_cut(&rest, ':');
        rc = path.n ? load_file(&k, path, err) : 0;
    }
    if (!rc && !k.n)
        rc = err_set(err, ERR_NOT_FOUND, "kubeconfig %s does not exist", list);
    if (!rc)
        rc = apply(&k, context, err);
    for (size_t i = 0; i < k.n; i++)
        yaml_close(k.files[i].yaml);
    free(k.files);
    return rc;
}

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
    cleanup_buf struct buf bytes = {0};
    struct err why = {0};
    return !file_read(path, KUBE_FILE_MAX, &bytes, &why) || why.code != ERR_NOT_FOUND;
}

int kube_config_load(const struct kube_config_sources *sources,
                     struct kube_config *config, struct err *err)
{
    if (sources->kubeconfig && *sources->kubeconfig)
        return load_files(sources->kubeconfig, sources->context, config, err);
    const char *token = arena_printf(&config->arena, "%s/token", account_dir(sources));
    if (is_in_cluster(sources) && exists(token))
        return load_account(sources, config, err);
    const char *file = arena_printf(&config->arena, "%s/.kube/config",
                                    sources->home ? sources->home : "");
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
    kube_span_free(&config->ca_pem);
    kube_span_free(&config->cert_pem);
    kube_span_free(&config->key_pem);
    arena_wipe(&config->arena);
    *config = (struct kube_config){0};
}
