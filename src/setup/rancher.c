/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/rancher.h"

#include <stdlib.h>
#include <strings.h>

#include "base/mem.h"

static const struct {
    const char *name, *config, *unit, *data_dir;
} kinds[] = {
    [FACTS_KUBEADM] = {"", "", "", ""},
    [FACTS_K3S] = {"k3s", "/etc/rancher/k3s/config.yaml", "k3s", "/var/lib/rancher/k3s"},
    [FACTS_RKE2] = {"RKE2", "/etc/rancher/rke2/config.yaml", "rke2-server",
                    "/var/lib/rancher/rke2"},
    [FACTS_OPENSHIFT] = {"", "", "", ""}};

const char *rancher_name(const struct facts *f)
{
    return kinds[f->platform].name;
}

const char *rancher_config(const struct facts *f)
{
    return kinds[f->platform].config;
}

const char *rancher_unit(const struct facts *f)
{
    return kinds[f->platform].unit;
}

char *rancher_data_dir(const struct facts *f)
{
    char *set = rancher_text(f, "data-dir");
    if (*set)
        return set;
    free(set);
    return xstrdup(kinds[f->platform].data_dir);
}

bool rancher_reads(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && (!strcasecmp(dot, ".yaml") || !strcasecmp(dot, ".yml"));
}

/* A scalar as k3s passes it on. NULL: a list, a mapping or null. New. */
static char *text_of(const json_t *value)
{
    if (json_is_string(value))
        return xstrdup(json_string_value(value));
    if (json_is_boolean(value))
        return xstrdup(json_is_true(value) ? "true" : "false");
    return json_is_number(value) ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
}

static void append(json_t *list, const json_t *value)
{
    cleanup_free char *text = text_of(value);
    if (text)
        json_array_append_new(list, json_string(text));
    for (size_t i = 0; i < json_array_size(value); i++) {
        cleanup_free char *item = text_of(json_array_get(value, i));
        if (item)
            json_array_append_new(list, json_string(item));
    }
}

/* Applies one file. Its keys count in their order, KEY and KEY+ alike. */
static void apply(json_t *list, const json_t *file, const char *key)
{
    size_t n = strlen(key);
    void *at = json_object_iter((json_t *)(uintptr_t)file);
    for (; at; at = json_object_iter_next((json_t *)(uintptr_t)file, at)) {
        const char *name = json_object_iter_key(at);
        if (strncmp(name, key, n) != 0 || (name[n] && strcmp(name + n, "+") != 0))
            continue;
        if (!name[n])
            json_array_clear(list);
        append(list, json_object_iter_value(at));
    }
}

json_t *rancher_list(const struct facts *f, const char *key)
{
    json_t *list = json_array();
    for (size_t i = 0; i < f->n_settings; i++)
        apply(list, f->settings[i].json, key);
    return list;
}

char *rancher_text(const struct facts *f, const char *key)
{
    json_t *list = rancher_list(f, key);
    size_t n = json_array_size(list);
    char *text = xstrdup(n ? json_string_value(json_array_get(list, n - 1)) : "");
    json_decref(list);
    return text;
}

/* -- the pod of the settings -- */

/* "config=/x", "--config=/x" or "config+=/x" as an option (k3s 1.34, pkg/util/args.go). */
static char *option_of(const char *arg)
{
    struct span rest = span_of(arg + (strncmp(arg, "--", 2) ? 0 : 2));
    struct span name = span_cut(&rest, '=');
    while (name.n && (name.p[name.n - 1] == '+' || name.p[name.n - 1] == '-'))
        name.n--;
    return rest.p ? xasprintf("--%.*s=%.*s", SPAN_ARG(name), SPAN_ARG(rest))
                  : xasprintf("--%.*s=true", SPAN_ARG(name));
}

static void add_mount(json_t *container, json_t *spec, struct span from, struct span to)
{
    json_t *mounts = json_object_get(container, "volumeMounts");
    json_t *volumes = json_object_get(spec, "volumes");
    cleanup_free char *name = xasprintf("m%zu", json_array_size(mounts));
    json_array_append_new(
        mounts, json_pack("{s:s%, s:s}", "mountPath", to.p, to.n, "name", name));
    json_array_append_new(volumes, json_pack("{s:s, s:{s:s%}}", "name", name, "hostPath",
                                             "path", from.p, from.n));
}

/* "FROM:TO" or "FROM:TO:ro". */
static void add_extra_mounts(const struct facts *f, json_t *container, json_t *spec)
{
    json_t *all = rancher_list(f, RANCHER_MOUNTS);
    for (size_t i = 0; i < json_array_size(all); i++) {
        struct span to = span_of(json_string_value(json_array_get(all, i)));
        struct span from = span_cut(&to, ':');
        to = to.p ? span_cut(&to, ':') : to;
        if (from.n && to.n)
            add_mount(container, spec, from, to);
    }
    json_decref(all);
}

/* RKE2 mounts the file that an option names, if the node has it under this path. */
static void add_file_mounts(json_t *pod, json_t *container, json_t *spec)
{
    const json_t *command = json_object_get(container, "command");
    struct scheduler_pod read;
    for (size_t i = 0; i < json_array_size(command); i++) {
        struct span file = span_of(json_string_value(json_array_get(command, i)));
        cleanup_buf struct buf path = {0};
        span_cut(&file, '=');
        cleanup_free char *text = xmemdup0(file.p ? file.p : "", file.n);
        if (*text == '/' && scheduler_pod_read(pod, &read) &&
            !scheduler_pod_host_path(&read, text, &path))
            add_mount(container, spec, file, file);
    }
}

/* Image and environment of the static pod, for version and proxy. */
static void copy_applied(const struct facts *f, json_t *container)
{
    static const char *const keys[] = {"image", "env"};
    struct scheduler_pod applied;
    if (!f->applied.json || !scheduler_pod_read(f->applied.json, &applied))
        return;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const json_t *value = jsonpath_at(applied.container, keys[i]);
        if (value)
            json_object_set_new(container, keys[i], json_deep_copy(value));
    }
}

static json_t *command_of(const struct facts *f)
{
    json_t *args = rancher_list(f, RANCHER_ARGS);
    cleanup_free char *data_dir = rancher_data_dir(f);
    cleanup_free char *kubeconfig =
        xasprintf("--kubeconfig=%s/server/cred/scheduler.kubeconfig", data_dir);
    json_t *command = json_pack("[s, s]", "kube-scheduler", kubeconfig);
    for (size_t i = 0; i < json_array_size(args); i++) {
        cleanup_free char *option = option_of(json_string_value(json_array_get(args, i)));
        json_array_append_new(command, json_string(option));
    }
    json_decref(args);
    return command;
}

json_t *rancher_pod(const struct facts *f)
{
    static const struct span root = {"/", 1}, here = {"", 0};
    json_t *container =
        json_pack("{s:o, s:[]}", "command", command_of(f), "volumeMounts");
    json_t *spec = json_pack("{s:[O], s:[]}", "containers", container, "volumes");
    json_t *pod =
        json_pack("{s:{s:s}, s:O}", "metadata", "name", "kube-scheduler", "spec", spec);
    copy_applied(f, container);
    if (f->platform == FACTS_K3S) {
        add_mount(container, spec, here, root); /* it sees the node's own files */
    } else {
        add_extra_mounts(f, container, spec);
        add_file_mounts(pod, container, spec);
    }
    json_decref(container);
    json_decref(spec);
    return pod;
}

/* -- what runs -- */

static bool has_setting(const json_t *file)
{
    static const char *const keys[] = {RANCHER_ARGS, RANCHER_ARGS "+", RANCHER_MOUNTS,
                                       RANCHER_MOUNTS "+"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (json_object_get(file, keys[i]))
            return true;
    return false;
}

const struct facts_file *rancher_newer_file(const struct facts *f,
                                            const struct facts_process *p)
{
    const struct facts_file *newer = facts_newer_file(f, p);
    if (newer || f->platform != FACTS_K3S)
        return newer;
    for (size_t i = 0; i < f->n_settings; i++)
        if (has_setting(f->settings[i].json) &&
            facts_process_is_older(p, &f->settings[i]))
            return &f->settings[i];
    const struct facts_file since = {.changed_ns = f->undone_since_ns};
    return facts_process_is_older(p, &f->undone) && !facts_process_is_older(p, &since)
               ? &f->undone
               : NULL;
}

bool rancher_is_applied(const struct facts *f)
{
    struct scheduler_pod want, is;
    cleanup_buf struct buf a = {0}, b = {0};
    bool policy;
    if (f->platform != FACTS_RKE2)
        return true;
    if (!facts_manifest(f, &want) || !f->applied.json ||
        !scheduler_pod_read(f->applied.json, &is))
        return false;
    bool mount = scheduler_pod_host_path(&want, CLIENT_SECRET_DIR, &a);
    return !strcmp(scheduler_pod_config_option(&want, &policy),
                   scheduler_pod_config_option(&is, &policy)) &&
           mount == scheduler_pod_host_path(&is, CLIENT_SECRET_DIR, &b);
}
