/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/change_plan.h"

#include <stdlib.h>

#include "base/mem.h"
#include "setup/change_plan_priv.h"
#include "setup/edit.h"
#include "wire/tls.h"

#define POLICY_AT "/etc/kubernetes/scheduler-policy-config.json"

enum { MINOR_CONFIG_FIRST = 19, MINOR_POLICY_LAST = 22 };

void change_plan_fini(struct change_plan *p)
{
    for (int i = 0; i < CHANGE_PLAN_FILES; i++) {
        free(p->changes[i].path);
        tls_wipe(&p->changes[i].bytes); /* one of them is a private key */
    }
    buf_fini(&p->by_hand);
    *p = (struct change_plan){0};
}

void change_plan_keep(struct change_plan *plan, enum change_plan_kind kind,
                      const char *path, struct buf *bytes)
{
    struct change_plan_file *c = &plan->changes[kind];
    if (!c->path)
        c->path = xstrdup(path);
    buf_fini(&c->bytes);
    c->bytes = *bytes;
    *bytes = (struct buf){0};
}

/* Replaces one value in `text`. */
static int set(struct change_plan_work *w, const char *path, const char *value,
               struct err *err)
{
    cleanup_buf struct buf old = w->text;
    w->text = (struct buf){0};
    return edit_set(w->name, buf_span(&old), path, value, &w->text, err);
}

static int set_url(struct change_plan_work *w, struct err *err)
{
    const char *address = w->in->address;
    if (!address && !w->in->insecure)
        return 0;
    cleanup_free char *url =
        xasprintf("http%s://%s/gpushare-scheduler", w->in->insecure ? "" : "s",
                  address ? address : "127.0.0.1:32766");
    return set(w, "extenders.0.urlPrefix", url, err);
}

/* Plain HTTP. kube-scheduler would read the files of tlsConfig also for http://. */
static int remove_tls(struct change_plan_work *w, struct err *err)
{
    if (set(w, w->policy ? "extenders.0.enableHttps" : "extenders.0.enableHTTPS", "false",
            err))
        return -1;
    cleanup_buf struct buf old = w->text;
    w->text = (struct buf){0};
    return edit_remove(w->name, buf_span(&old), "extenders.0.tlsConfig", &w->text, err);
}

/* The file of policy/ with the address, kubeconfig and API version of this node. */
static int make_text(struct change_plan_work *w, struct err *err)
{
    const char *kubeconfig = scheduler_pod_option(&w->pod, "kubeconfig");
    struct span from = w->policy ? w->in->policy : w->in->config;
    w->name = w->policy ? "policy/scheduler-policy-config.json"
                        : "policy/kube-scheduler-config.yaml";
    buf_add_span(&w->text, from);
    cleanup_free char *server = facts_server_name(w->in->facts);
    if (set_url(w, err) ||
        (w->in->insecure ? remove_tls(w, err)
                         : set(w, "extenders.0.tlsConfig.serverName", server, err)))
        return -1;
    if (w->policy)
        return 0;
    if (kubeconfig && *kubeconfig == '/' &&
        set(w, "clientConnection.kubeconfig", kubeconfig, err))
        return -1;
    return set(w, "apiVersion",
               extender_entry_newest_api(facts_minor(w->in->facts, &w->pod)), err);
}

/* The path of the configuration file on the node. Adds the mount if it is missing. */
static int find_host_path(struct change_plan_work *w, struct buf *path, struct err *err)
{
    buf_adds(path, w->in->root);
    if (scheduler_pod_host_path(&w->pod, w->inside, path))
        return 0;
    buf_adds(path, w->inside);
    return change_plan_manifest_mount_config(w, err);
}

/* Writes the whole file. An existing file that the manifest names, but does not mount, is
 * the user's: it stays, and is checked once kube-scheduler reads it. */
static int write_config(struct change_plan_work *w, const char *path, bool named,
                        struct err *err)
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
        change_plan_keep(w->out, CHANGE_PLAN_CONFIG, path, &w->text);
    w->tls = !w->in->insecure;
    return 0;
}

static int change_config(struct change_plan_work *w, const char *path, struct err *err)
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
        return change_plan_entry_set(w, path, ours, err);
    if (extender_entry_count_binders(file->json))
        return err_set(
            err, ERR_INVALID,
            "%s: another extender has a bindVerb, and kube-scheduler allows only "
            "one. Remove one of them",
            path);
    return change_plan_entry_add(w, path, err);
}

/* Determines the configuration file and the option that names it. */
static int choose(struct change_plan_work *w, bool *named, struct err *err)
{
    const char *option = scheduler_pod_config_option(&w->pod, &w->policy);
    int minor = facts_minor(w->in->facts, &w->pod);
    const char *path = w->manifest->path;
    *named = *option != '\0';
    if (!minor && !w->in->facts->platform) /* k3s and RKE2 are newer than a Policy */
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
    if (*named && !w->policy && minor && minor < MINOR_CONFIG_FIRST)
        return err_set(
            err, ERR_INVALID,
            "%s has --config, but kube-scheduler 1.%d reads extenders only from "
            "a Policy",
            path, minor);
    if (!*named)
        w->policy = minor <= MINOR_POLICY_LAST && !w->in->facts->platform;
    w->inside = *named ? option : w->policy ? POLICY_AT : CHANGE_PLAN_CONFIG_AT;
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

static int make(struct change_plan_work *w, struct err *err)
{
    cleanup_buf struct buf path = {0};
    bool named;
    if (choose(w, &named, err) || make_text(w, err))
        return -1;
    if ((!named && change_plan_manifest_option(w, err)) || find_host_path(w, &path, err))
        return -1;
    if (named ? change_config(w, path.p, err) : write_config(w, path.p, false, err))
        return -1;
    if (w->tls && change_plan_tls(w, true, err))
        return -1;
    return w->in->facts->platform ? change_plan_dropin(w, err) : 0;
}

/* An unreadable manifest, or a second one of the same pod, may be the one that the
 * kubelet runs. */
static bool is_ambiguous(const struct change_plan_work *w, struct err *err)
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

/* Finds the manifest. */
static int begin(struct change_plan_work *w, struct err *err)
{
    const struct facts *f = w->in->facts;
    if (change_plan_platform(w, err))
        return -1;
    if (f->manifests_why.code != ERR_NONE) {
        *err = f->manifests_why;
        return -1;
    }
    w->manifest = facts_manifest(f, &w->pod);
    if (is_ambiguous(w, err))
        return -1;
    if (!w->manifest)
        return err_set(err, ERR_NOT_FOUND, "%s has no static pod of kube-scheduler",
                       f->manifests ? f->manifests : "the node");
    return 0;
}

int change_plan_make(const struct change_plan_input *in, struct change_plan *out,
                     struct err *err)
{
    struct change_plan_work w = {.in = in, .out = out};
    if (begin(&w, err) || change_plan_service(&w, err))
        return -1;
    cleanup_free char *container = container_path(&w.pod);
    w.container = container;
    int rc = make(&w, err);
    buf_fini(&w.text);
    return rc;
}

int change_plan_renew(const struct change_plan_input *in, struct change_plan *out,
                      struct err *err)
{
    struct change_plan_work w = {.in = in, .out = out};
    if (begin(&w, err))
        return -1;
    if (!change_plan_tls_is_ours(extender_entry_find(in->facts->config.json)))
        return err_set(err, ERR_NOT_FOUND,
                       "kube-scheduler does not use the certificate in " CLIENT_SECRET_DIR
                       "; run scripts/install first");
    /* Renewal runs unattended: silence would last until the certificate expires. */
    const struct err *why =
        in->facts->secret_read ? &in->facts->secret_why : &in->facts->cluster_why;
    if (why->code != ERR_NONE)
        return err_set(err, why->code, "Secret %s/" CLIENT_SECRET_NAME ": %s",
                       facts_namespace(in->facts), why->msg);
    return change_plan_tls(&w, false, err);
}
