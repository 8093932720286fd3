/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/mem.h"
#include "kube/config_priv.h"

/*
 * Lookup in several kubeconfig files. They are not merged into one tree: a lookup
 * searches the files in order, so that the first entry of a name wins.
 */

void kubeconfig_fini(struct kubeconfig *k)
{
    for (size_t i = 0; i < k->n; i++) {
        free(k->files[i].path);
        yaml_close(k->files[i].yaml);
    }
    free(k->files);
    *k = (struct kubeconfig){0};
}

static int load_file(struct kubeconfig *k, const char *path, struct err *err)
{
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
    k->files[k->n++] = (struct kubeconfig_file){xstrdup(path), steal(&y)};
    return 0;
}

int kubeconfig_load(struct kubeconfig *k, const char *list, struct err *err)
{
    struct span rest = span_of(list);
    *k = (struct kubeconfig){.list = list};
    while (rest.p) {
        struct span one = span_cut(&rest, ':');
        cleanup_free char *path = xmemdup0(one.p, one.n);
        if (one.n && load_file(k, path, err))
            return -1;
    }
    if (!k->n)
        return err_set(err, ERR_NOT_FOUND, "kubeconfig %s does not exist", list);
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
    cleanup_free char *key = xasprintf("%ss", what);
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

static bool is_named_before(const struct kubeconfig *k, size_t file, size_t item,
                            const char *what, struct span name)
{
    for (size_t i = 0; i <= file; i++) {
        const struct yaml_node *list;
        struct span other;
        if (section(k, i, what, &list, NULL) || !list)
            continue;
        for (size_t n = 0; n < list->n && (i < file || n < item); n++)
            if (!yaml_text(list->items[n], "name", &other, NULL) && span_eq(other, name))
                return true;
    }
    return false;
}

/* The names of all entries, "a, b, c", for an error message. */
static char *names_of(const struct kubeconfig *k, const char *what)
{
    enum { ENOUGH = 300 };
    struct buf out = {0};
    for (size_t i = 0; i < k->n; i++) {
        const struct yaml_node *list;
        struct span name;
        if (section(k, i, what, &list, NULL) || !list)
            continue;
        for (size_t n = 0; n < list->n && out.n < ENOUGH; n++) {
            if (yaml_text(list->items[n], "name", &name, NULL) || !name.n ||
                is_named_before(k, i, n, what, name))
                continue;
            buf_adds(&out, out.n ? ", " : "");
            buf_add_span(&out, name);
        }
    }
    if (out.n >= ENOUGH)
        buf_adds(&out, ", ...");
    return buf_take(&out);
}

int kubeconfig_find(const struct kubeconfig *k, const char *what, const char *name,
                    struct kube_entry *e, struct err *err)
{
    for (size_t i = 0; i < k->n; i++) {
        const struct yaml_node *list, *item;
        if (section(k, i, what, &list, err) || find_in(list, what, name, &item, err))
            return -1;
        if (!item)
            continue;
        const struct yaml_node *body = yaml_get(item, what);
        *e = (struct kube_entry){what, name, yaml_is_null(body) ? NULL : body,
                                 k->files[i].path};
        if (e->body && e->body->type != YAML_MAPPING)
            return err_set(err, ERR_INVALID, "%s:%u: %s \"%s\": expected a mapping",
                           e->path, body->line, what, name);
        return 0;
    }
    cleanup_free char *names = names_of(k, what);
    return err_set(err, ERR_NOT_FOUND, "%s \"%s\" not found in %s; expected one of: %s",
                   what, name, k->list, *names ? names : "(none)");
}

/* The first file that sets it. */
static int current_context(const struct kubeconfig *k, char **out, struct err *err)
{
    for (size_t i = 0; i < k->n; i++) {
        cleanup_free char *name = NULL;
        if (yaml_string(root_of(k, i), "current-context", &name, err))
            return -1;
        if (name && *name) {
            *out = steal(&name);
            return 0;
        }
    }
    cleanup_free char *names = names_of(k, "context");
    return err_set(err, ERR_INVALID, "no current-context in %s; contexts: %s", k->list,
                   *names ? names : "(none)");
}

/* Resolves the reference of a context to a cluster or user. */
static int follow(const struct kubeconfig *k, const struct kube_entry *context,
                  const char *what, char **name, struct kube_entry *e, struct err *err)
{
    if (yaml_string(context->body, what, name, err))
        return kube_entry_wrap(context, err);
    if (!*name || !**name)
        return err_set(err, ERR_INVALID, "%s: context \"%s\" has no %s", context->path,
                       context->name, what);
    if (kubeconfig_find(k, what, *name, e, err))
        return kube_entry_wrap(context, err);
    return 0;
}

static int apply_namespace(const struct kube_entry *context, struct kube_config *config,
                           struct err *err)
{
    if (yaml_string(context->body, "namespace", &config->ns, err))
        return kube_entry_wrap(context, err);
    if (!config->ns || !*config->ns) {
        free(config->ns);
        config->ns = xstrdup("default");
    }
    if (!kube_namespace_ok(config->ns))
        return kube_entry_fail(context, "namespace", "invalid namespace name", err);
    return 0;
}

int kubeconfig_apply(const struct kubeconfig *k, const char *wanted,
                     struct kube_config *config, struct err *err)
{
    cleanup_free char *name = wanted ? xstrdup(wanted) : NULL, *cluster_name = NULL,
                      *user_name = NULL;
    struct kube_entry context, cluster, user;
    if (!name && current_context(k, &name, err))
        return -1;
    if (kubeconfig_find(k, "context", name, &context, err) ||
        follow(k, &context, "cluster", &cluster_name, &cluster, err) ||
        follow(k, &context, "user", &user_name, &user, err) ||
        apply_namespace(&context, config, err))
        return -1;
    if (kube_config_cluster(&cluster, config, err) ||
        kube_config_user(&user, config, err) ||
        kube_config_exec(&user, &cluster, config, err))
        return -1;
    config->source = xasprintf("context %s of %s", name, context.path);
    return 0;
}
