/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/mem.h"
#include "kube/base64_priv.h"
#include "kube/config_priv.h"

/* The field `exec` of a kubeconfig user. */

#define EXEC_GROUP "client.authentication.k8s.io/"

/* The scalar as a new C string; NULL if the node is not a scalar. */
static char *word_of(const struct yaml_node *node)
{
    if (!node || node->type != YAML_SCALAR || memchr(node->text.p, '\0', node->text.n))
        return NULL;
    return xmemdup0(node->text.p, node->text.n);
}

static char **words_new(size_t n)
{
    return xcalloc(n + 1, sizeof(char *));
}

/* A command with a slash is relative to the kubeconfig file; one without is searched in
 * PATH. */
static int read_argv(const struct kube_entry *e, struct kube_exec *exec, struct err *err)
{
    const struct yaml_node *args = yaml_get(e->body, "args");
    cleanup_free char *command = NULL;
    if (yaml_string(e->body, "command", &command, err))
        return kube_entry_wrap(e, err);
    if (!command || !*command)
        return kube_entry_fail(e, "command", "missing", err);
    if (!yaml_is_null(args) && args->type != YAML_SEQUENCE)
        return kube_entry_fail(e, "args", "expected a list of strings", err);
    size_t n = yaml_is_null(args) ? 0 : args->n;
    exec->argv = words_new(n + 1);
    exec->argv[0] = strchr(command, '/') ? kube_entry_path(e, command) : xstrdup(command);
    for (size_t i = 0; i < n; i++) {
        exec->argv[i + 1] = word_of(args->items[i]);
        if (!exec->argv[i + 1])
            return kube_entry_fail(e, "args", "expected a list of strings", err);
    }
    return 0;
}

static int read_env(const struct kube_entry *e, struct kube_exec *exec, struct err *err)
{
    const struct yaml_node *env = yaml_get(e->body, "env");
    if (!yaml_is_null(env) && env->type != YAML_SEQUENCE)
        return kube_entry_fail(e, "env", "expected a list of name and value", err);
    size_t n = yaml_is_null(env) ? 0 : env->n;
    exec->env = words_new(n);
    for (size_t i = 0; i < n; i++) {
        cleanup_free char *name = word_of(yaml_get(env->items[i], "name"));
        cleanup_free char *value = word_of(yaml_get(env->items[i], "value"));
        if (!name || !*name || strchr(name, '=') || !value)
            return kube_entry_fail(e, "env", "expected a list of name and value", err);
        exec->env[i] = xasprintf("%s=%s", name, value);
    }
    return 0;
}

static int read_version(const struct kube_entry *e, struct kube_exec *exec,
                        struct err *err)
{
    if (yaml_string(e->body, "apiVersion", &exec->api_version, err))
        return kube_entry_wrap(e, err);
    if (!exec->api_version || (strcmp(exec->api_version, EXEC_GROUP "v1") &&
                               strcmp(exec->api_version, EXEC_GROUP "v1beta1")))
        return kube_entry_fail(e, "apiVersion",
                               "expected " EXEC_GROUP "v1 or " EXEC_GROUP "v1beta1", err);
    return 0;
}

/* A plugin has no terminal: its standard input is /dev/null. */
static int check_mode(const struct kube_entry *e, struct err *err)
{
    struct span mode;
    if (yaml_text(e->body, "interactiveMode", &mode, err))
        return kube_entry_wrap(e, err);
    if (span_eq(mode, SPAN("Always")))
        return kube_entry_fail(e, "interactiveMode",
                               "Always is not supported: there is no terminal", err);
    if (mode.n && !span_eq(mode, SPAN("Never")) && !span_eq(mode, SPAN("IfAvailable")))
        return kube_entry_fail(e, "interactiveMode",
                               "expected Never, IfAvailable or Always", err);
    return 0;
}

static void add_member(struct buf *out, const char *key, struct span text)
{
    if (!text.n)
        return;
    buf_printf(out, ",\"%s\":", key);
    buf_add_json(out, text);
}

/* The cluster's extension for exec plugins: any value, as JSON. */
static void add_extension(struct buf *out, const struct kube_entry *cluster)
{
    const struct yaml_node *list = yaml_get(cluster->body, "extensions");
    for (size_t i = 0; list && list->type == YAML_SEQUENCE && i < list->n; i++) {
        const struct yaml_node *name = yaml_get(list->items[i], "name");
        if (!name || !span_eq(name->text, SPAN(EXEC_GROUP "exec")))
            continue;
        buf_adds(out, ",\"config\":");
        yaml_json(yaml_get(list->items[i], "extension"), out);
        return;
    }
}

static char *info_of(const struct kube_exec *exec, const struct kube_config *config,
                     const struct kube_entry *cluster)
{
    struct buf out = {0};
    cleanup_buf struct buf ca = {0};
    buf_printf(&out, "{\"kind\":\"ExecCredential\",\"apiVersion\":\"%s\",",
               exec->api_version);
    buf_adds(&out, "\"spec\":{\"interactive\":false");
    if (cluster) {
        cleanup_free char *url = xasprintf("%s%s", config->server, config->path_prefix);
        base64_encode(config->ca_pem, &ca);
        buf_adds(&out, ",\"cluster\":{\"server\":");
        buf_add_json(&out, span_of(url));
        add_member(&out, "tls-server-name", span_of(config->server_name));
        add_member(&out, "proxy-url", span_of(config->proxy));
        add_member(&out, "certificate-authority-data", buf_span(&ca));
        if (config->insecure)
            buf_adds(&out, ",\"insecure-skip-tls-verify\":true");
        add_extension(&out, cluster);
        buf_addc(&out, '}');
    }
    buf_adds(&out, "}}");
    return buf_take(&out);
}

int kube_config_exec(const struct kube_entry *user, const struct kube_entry *cluster,
                     struct kube_config *config, struct err *err)
{
    const struct yaml_node *body = yaml_get(user->body, "exec");
    if (yaml_is_null(body))
        return 0;
    if (body->type != YAML_MAPPING)
        return kube_entry_fail(user, "exec", "expected a mapping", err);
    struct kube_entry e = {"exec plugin of user", user->name, body, user->path};
    struct kube_exec *exec = config->exec = xcalloc(1, sizeof *exec);
    bool with_cluster = false;
    exec->user = xstrdup(user->name);
    if (read_version(&e, exec, err) || read_argv(&e, exec, err) ||
        read_env(&e, exec, err) || check_mode(&e, err) ||
        kube_entry_bool(&e, "provideClusterInfo", &with_cluster, err))
        return -1;
    if (yaml_string(body, "installHint", &exec->install_hint, err))
        return kube_entry_wrap(&e, err);
    exec->info = info_of(exec, config, with_cluster ? cluster : NULL);
    return 0;
}

static void words_free(char **words)
{
    for (size_t i = 0; words && words[i]; i++)
        free(words[i]);
    free(words);
}

static char **words_copy(char *const *words)
{
    size_t n = 0;
    while (words && words[n])
        n++;
    char **copy = xcalloc(n + 1, sizeof *copy);
    for (size_t i = 0; i < n; i++)
        copy[i] = xstrdup(words[i]);
    return copy;
}

static char *copy_of(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

struct kube_exec *kube_exec_copy(const struct kube_exec *e)
{
    if (!e)
        return NULL;
    struct kube_exec *copy = xcalloc(1, sizeof *copy);
    *copy = (struct kube_exec){
        .user = copy_of(e->user),
        .api_version = copy_of(e->api_version),
        .argv = words_copy(e->argv),
        .env = words_copy(e->env),
        .install_hint = copy_of(e->install_hint),
        .info = copy_of(e->info),
    };
    return copy;
}

void kube_exec_free(struct kube_exec *e)
{
    if (!e)
        return;
    free(e->user);
    free(e->api_version);
    words_free(e->argv);
    words_free(e->env);
    free(e->install_hint);
    free(e->info);
    free(e);
}
