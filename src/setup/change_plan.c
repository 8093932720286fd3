/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/change_plan.h"

#include <stdlib.h>

#include "base/mem.h"
#include "setup/edit.h"

#define CONFIG_AT "/etc/kubernetes/kube-scheduler-config.yaml"
#define POLICY_AT "/etc/kubernetes/scheduler-policy-config.json"
#define VOLUME    "gpushare-scheduler-config"

enum { MINOR_CONFIG_FIRST = 19, MINOR_POLICY_LAST = 22 };

/* A plan in progress. */
struct work {
    const struct change_plan_input *in;
    struct change_plan *out;
    const struct facts_file *manifest;
    struct scheduler_pod pod;
    const char *container; /* path of kube-scheduler's container in the manifest */
    bool policy;
    const char *inside; /* path of the configuration file in the container */
    struct buf text;    /* the file of policy/, adapted to this node */
    const char *name;   /* of that file, for messages */
};

void change_plan_fini(struct change_plan *p)
{
    for (int i = 0; i < CHANGE_PLAN_FILES; i++) {
        free(p->changes[i].path);
        buf_fini(&p->changes[i].bytes);
    }
    buf_fini(&p->by_hand);
    *p = (struct change_plan){0};
}

/* Replaces one value in `text`. */
static int set(struct work *w, const char *path, const char *value, struct err *err)
{
    cleanup_buf struct buf old = w->text;
    w->text = (struct buf){0};
    return edit_set(w->name, buf_span(&old), path, value, &w->text, err);
}

static int set_url(struct work *w, struct err *err)
{
    if (!w->in->address)
        return 0;
    cleanup_free char *url = xasprintf("http://%s/gpushare-scheduler", w->in->address);
    return set(w, "extenders.0.urlPrefix", url, err);
}

/* The file of policy/ with the address, kubeconfig and API version of this node. */
static int make_text(struct work *w, struct err *err)
{
    const char *kubeconfig = scheduler_pod_option(&w->pod, "kubeconfig");
    struct span from = w->policy ? w->in->policy : w->in->config;
    w->name = w->policy ? "policy/scheduler-policy-config.json"
                        : "policy/kube-scheduler-config.yaml";
    buf_add_span(&w->text, from);
    if (set_url(w, err))
        return -1;
    if (w->policy)
        return 0;
    if (kubeconfig && *kubeconfig == '/' &&
        set(w, "clientConnection.kubeconfig", kubeconfig, err))
        return -1;
    return set(w, "apiVersion",
               extender_entry_newest_api(facts_minor(w->in->facts, &w->pod)), err);
}

static struct span manifest_text(const struct work *w)
{
    const struct change_plan_file *c = &w->out->changes[CHANGE_PLAN_MANIFEST];
    return c->path ? buf_span(&c->bytes) : buf_span(&w->manifest->bytes);
}

/* Takes the bytes. */
static void keep(struct change_plan_file *c, const char *path, struct buf *bytes)
{
    if (!c->path)
        c->path = xstrdup(path);
    buf_fini(&c->bytes);
    c->bytes = *bytes;
    *bytes = (struct buf){0};
}

/* Appends to a list in the manifest, and creates the list if it is missing. */
static int add_to_manifest(struct work *w, const char *parent, const char *list,
                           const char *item, struct err *err)
{
    cleanup_buf struct buf bytes = {0};
    cleanup_free char *path = xasprintf("%s.%s", parent, list);
    cleanup_free char *entry = xasprintf("%s:\n%s", list, item);
    const char *name = w->manifest->path;
    bool there = jsonpath_at(!strcmp(parent, "spec") ? jsonpath_at(w->pod.pod, "spec")
                                                     : w->pod.container,
                             list) != NULL;
    int rc = there ? edit_append(name, manifest_text(w), path, item, &bytes, err)
                   : edit_add_key(name, manifest_text(w), parent, entry, &bytes, err);
    if (rc == 0)
        keep(&w->out->changes[CHANGE_PLAN_MANIFEST], name, &bytes);
    return rc;
}

static void describe_manifest(struct work *w)
{
    buf_printf(&w->out->by_hand,
               "in %s:\n"
               "  to the command:      - --%s=%s\n"
               "  to volumeMounts:     - mountPath: %s\n"
               "                         name: " VOLUME "\n"
               "                         readOnly: true\n"
               "  to volumes:          - name: " VOLUME "\n"
               "                         hostPath:\n"
               "                           path: %s\n"
               "                           type: File\n",
               w->manifest->path, w->policy ? "policy-config-file" : "config", w->inside,
               w->inside, w->inside);
    if (w->text.n)
        buf_printf(&w->out->by_hand, "and %s%s:\n%s", w->in->root, w->inside, w->text.p);
}

static int add_option(struct work *w, struct err *err)
{
    cleanup_free char *item =
        xasprintf("- --%s=%s\n", w->policy ? "policy-config-file" : "config", w->inside);
    /* To the list that has the other options. A new `command` would replace the image's
     * entrypoint. */
    const json_t *c = w->pod.container;
    bool args = jsonpath_at(c, "args") || !jsonpath_at(c, "command");
    const char *list = args ? "args" : "command";
    return add_to_manifest(w, w->container, list, item, err);
}

static int add_mount(struct work *w, struct err *err)
{
    cleanup_free char *mount = xasprintf("- mountPath: %s\n"
                                         "  name: " VOLUME "\n"
                                         "  readOnly: true\n",
                                         w->inside);
    cleanup_free char *volume = xasprintf("- hostPath:\n"
                                          "    path: %s\n"
                                          "    type: File\n"
                                          "  name: " VOLUME "\n",
                                          w->inside);
    if (add_to_manifest(w, w->container, "volumeMounts", mount, err))
        return -1;
    return add_to_manifest(w, "spec", "volumes", volume, err);
}

/* The path of the configuration file on the node. Adds the mount if it is missing. */
static int find_host_path(struct work *w, struct buf *path, struct err *err)
{
    buf_adds(path, w->in->root);
    if (scheduler_pod_host_path(&w->pod, w->inside, path))
        return 0;
    buf_adds(path, w->inside);
    if (add_mount(w, err)) {
        describe_manifest(w);
        return -1;
    }
    return 0;
}

/* Writes the whole file. An existing file that the manifest names, but does not mount, is
 * the user's: it stays, and is checked once kube-scheduler reads it. */
static int write_config(struct work *w, const char *path, bool named, struct err *err)
{
    cleanup_buf struct buf old = {0};
    struct err why = {0};
    if (w->in->read(w->in->ctx, path, &old, &why) && why.code != ERR_NOT_FOUND) {
        *err = why;
        return -1;
    }
    if (why.code == ERR_NONE && named)
        return 0;
    if (!span_eq(buf_span(&old), buf_span(&w->text)))
        keep(&w->out->changes[CHANGE_PLAN_CONFIG], path, &w->text);
    return 0;
}

/* Adds our entry to the user's file. */
static int add_entry(struct work *w, const char *path, struct err *err)
{
    const struct facts_file *file = &w->in->facts->config;
    cleanup_buf struct buf lines = {0}, entry = {0}, bytes = {0};
    bool there = extender_entry_list(file->json) != NULL;
    struct err why = {0};
    int rc =
        w->policy ? err_set(&why, ERR_INVALID, "%s: JSON files are not edited", path) : 0;
    if (rc == 0 && edit_lines(w->name, buf_span(&w->text), "extenders", &lines, err))
        return -1;
    buf_printf(&entry, "extenders:\n%s", lines.p ? lines.p : "");
    if (rc == 0)
        rc = there
                 ? edit_append(path, buf_span(&file->bytes), "extenders", lines.p, &bytes,
                               &why)
                 : edit_add_key(path, buf_span(&file->bytes), "", entry.p, &bytes, &why);
    if (rc == 0) {
        keep(&w->out->changes[CHANGE_PLAN_CONFIG], path, &bytes);
        return 0;
    }
    buf_printf(&w->out->by_hand, "in %s, add the extender of %s:\n%s", path, w->name,
               w->policy ? w->text.p : entry.p);
    *err = why;
    return -1;
}

/* Our entry exists: only its address may change. */
static int set_address(struct work *w, const char *path, const json_t *ours,
                       struct err *err)
{
    const struct facts_file *file = &w->in->facts->config;
    const json_t *list = extender_entry_list(file->json);
    struct extender_entry_url url;
    cleanup_buf struct buf bytes = {0};
    size_t i = 0;
    if (!w->in->address)
        return 0;
    while (json_array_get(list, i) != ours)
        i++;
    const char *old = jsonpath_str(ours, "urlPrefix");
    bool tls = extender_entry_read_url(old, &url, NULL) == 0 && url.tls;
    cleanup_free char *at = xasprintf("extenders.%zu.urlPrefix", i);
    cleanup_free char *text =
        xasprintf("http%s://%s/gpushare-scheduler", tls ? "s" : "", w->in->address);
    if (!strcmp(old, text))
        return 0;
    if (edit_set(path, buf_span(&file->bytes), at, text, &bytes, err)) {
        buf_printf(&w->out->by_hand, "in %s: urlPrefix: %s\n", path, text);
        return -1;
    }
    keep(&w->out->changes[CHANGE_PLAN_CONFIG], path, &bytes);
    return 0;
}

static int change_config(struct work *w, const char *path, struct err *err)
{
    const struct facts_file *file = &w->in->facts->config;
    const json_t *ours = extender_entry_find(file->json);
    if (!w->in->facts->config_mounted || file->why.code == ERR_NOT_FOUND)
        return write_config(w, path, true, err);
    if (file->why.code != ERR_NONE) {
        *err = file->why;
        return -1;
    }
    if (strcmp(jsonpath_str(file->json, "kind"),
               w->policy ? "Policy" : "KubeSchedulerConfiguration"))
        return err_set(err, ERR_INVALID, "%s is not a %s", path,
                       w->policy ? "Policy" : "KubeSchedulerConfiguration");
    if (ours)
        return set_address(w, path, ours, err);
    if (extender_entry_count_binders(file->json))
        return err_set(
            err, ERR_INVALID,
            "%s: another extender has a bindVerb, and kube-scheduler allows only "
            "one. Remove one of them",
            path);
    return add_entry(w, path, err);
}

/* Determines the configuration file and the option that names it. */
static int choose(struct work *w, bool *named, struct err *err)
{
    const char *option = scheduler_pod_config_option(&w->pod, &w->policy);
    int minor = facts_minor(w->in->facts, &w->pod);
    const char *path = w->manifest->path;
    *named = *option != '\0';
    if (!minor)
        return err_set(
            err, ERR_INVALID,
            "%s: unknown version of Kubernetes: the image's tag is not a version, "
            "and the API server does not answer",
            path);
    if (scheduler_pod_option(&w->pod, "config") &&
        scheduler_pod_option(&w->pod, "policy-config-file"))
        return err_set(
            err, ERR_INVALID,
            "%s has --config and --policy-config-file: remove one of them first", path);
    if (w->policy && minor > MINOR_POLICY_LAST)
        return err_set(err, ERR_INVALID,
                       "%s has --policy-config-file, which kube-scheduler 1.%d rejects: "
                       "remove it first",
                       path, minor);
    if (*named && *option != '/')
        return err_set(err, ERR_INVALID, "%s: \"%s\" is not an absolute path", path,
                       option);
    if (*named && !w->policy && minor < MINOR_CONFIG_FIRST)
        return err_set(
            err, ERR_INVALID,
            "%s has --config, but kube-scheduler 1.%d reads extenders only from "
            "a Policy",
            path, minor);
    if (!*named)
        w->policy = minor <= MINOR_POLICY_LAST;
    w->inside = *named ? option : w->policy ? POLICY_AT : CONFIG_AT;
    return 0;
}

/* "spec.containers.0" */
static char *container_path(const struct scheduler_pod *pod)
{
    const json_t *all = jsonpath_at(pod->pod, "spec.containers");
    size_t i = 0;
    while (json_array_get(all, i) != pod->container)
        i++;
    return xasprintf("spec.containers.%zu", i);
}

static int make(struct work *w, struct err *err)
{
    cleanup_buf struct buf path = {0};
    bool named;
    if (choose(w, &named, err) || make_text(w, err))
        return -1;
    if (!named && add_option(w, err)) {
        describe_manifest(w);
        return -1;
    }
    if (find_host_path(w, &path, err))
        return -1;
    return named ? change_config(w, path.p, err) : write_config(w, path.p, false, err);
}

/* An unreadable manifest, or a second one of the same pod, may be the one that the
 * kubelet runs. */
static bool is_ambiguous(const struct work *w, struct err *err)
{
    const struct facts *f = w->in->facts;
    for (size_t i = 0; i < f->n_files; i++) {
        const struct facts_file *file = &f->files[i];
        struct scheduler_pod other;
        if (!file->json) {
            *err = file->why;
            return true;
        }
        if (file != w->manifest && scheduler_pod_read(file->json, &other) &&
            !strcmp(other.name, w->pod.name)) {
            err_set(
                err, ERR_INVALID,
                "%s and %s are the same static pod: move one of them out of the folder",
                w->manifest->path, file->path);
            return true;
        }
    }
    return false;
}

int change_plan_make(const struct change_plan_input *in, struct change_plan *out,
                     struct err *err)
{
    const struct facts *f = in->facts;
    struct work w = {.in = in, .out = out};
    if (f->manifests_why.code != ERR_NONE) {
        *err = f->manifests_why;
        return -1;
    }
    w.manifest = facts_manifest(f, &w.pod);
    if (is_ambiguous(&w, err))
        return -1;
    if (!w.manifest)
        return err_set(err, ERR_NOT_FOUND, "%s has no static pod of kube-scheduler",
                       f->manifests ? f->manifests : "the node");
    cleanup_free char *container = container_path(&w.pod);
    w.container = container;
    int rc = make(&w, err);
    buf_fini(&w.text);
    return rc;
}
