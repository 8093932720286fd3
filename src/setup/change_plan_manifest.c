/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "setup/change_plan_priv.h"
#include "setup/edit.h"

#define VOLUME     "gpushare-scheduler-config"
#define TLS_VOLUME "gpushare-scheduler-tls"

static struct span text_of(const struct change_plan_work *w)
{
    const struct change_plan_file *c = &w->out->changes[CHANGE_PLAN_MANIFEST];
    return c->path ? buf_span(&c->bytes) : buf_span(&w->manifest->bytes);
}

/* Is there a list of that name, perhaps added by this plan? Of the pod's spec, or of the
 * container. */
static bool has_list(const struct change_plan_work *w, bool of_spec, const char *list)
{
    struct facts_file now = {.path = xstrdup(w->manifest->path)};
    struct scheduler_pod pod;
    buf_add_span(&now.bytes, text_of(w));
    facts_file_parse(&now);
    bool there =
        now.json && scheduler_pod_read(now.json, &pod) &&
        jsonpath_at(of_spec ? jsonpath_at(pod.pod, "spec") : pod.container, list);
    facts_file_fini(&now);
    return there;
}

/* Appends to a list in the manifest, and creates the list if it is missing. */
static int add(struct change_plan_work *w, const char *parent, const char *list,
               const char *item, struct err *err)
{
    cleanup_buf struct buf bytes = {0};
    cleanup_free char *path = xasprintf("%s.%s", parent, list);
    cleanup_free char *entry = xasprintf("%s:\n%s", list, item);
    const char *name = w->manifest->path;
    bool there = has_list(w, !strcmp(parent, "spec"), list);
    int rc = there ? edit_append(name, text_of(w), path, item, &bytes, err)
                   : edit_add_key(name, text_of(w), parent, entry, &bytes, err);
    if (rc == 0)
        change_plan_keep(w->out, CHANGE_PLAN_MANIFEST, name, &bytes);
    return rc;
}

static void describe(struct change_plan_work *w)
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
    if (!w->in->insecure)
        buf_printf(&w->out->by_hand, "  and the same for     " CLIENT_SECRET_DIR
                                     " (type: Directory, name: " TLS_VOLUME ")\n");
    if (w->text.n)
        buf_printf(&w->out->by_hand, "and %s%s:\n%s", w->in->root, w->inside, w->text.p);
}

static int described(struct change_plan_work *w, int rc)
{
    if (rc && !w->out->by_hand.n)
        describe(w);
    return rc;
}

/* k3s and RKE2 make the pod from their settings: change_plan_dropin adds to these. */
static bool is_generated(const struct change_plan_work *w)
{
    return w->in->facts->platform != FACTS_KUBEADM;
}

int change_plan_manifest_option(struct change_plan_work *w, struct err *err)
{
    w->add_option = true;
    if (is_generated(w))
        return 0;
    cleanup_free char *item =
        xasprintf("- --%s=%s\n", w->policy ? "policy-config-file" : "config", w->inside);
    /* To the list that has the other options. A new `command` would replace the image's
     * entrypoint. */
    const json_t *c = w->pod.container;
    bool args = jsonpath_at(c, "args") || !jsonpath_at(c, "command");
    return described(w, add(w, w->container, args ? "args" : "command", item, err));
}

static int mount(struct change_plan_work *w, const char *path, const char *name,
                 const char *type, struct err *err)
{
    cleanup_free char *mount = xasprintf("- mountPath: %s\n"
                                         "  name: %s\n"
                                         "  readOnly: true\n",
                                         path, name);
    cleanup_free char *volume = xasprintf("- hostPath:\n"
                                          "    path: %s\n"
                                          "    type: %s\n"
                                          "  name: %s\n",
                                          path, type, name);
    if (add(w, w->container, "volumeMounts", mount, err))
        return -1;
    return add(w, "spec", "volumes", volume, err);
}

/* RKE2 mounts a file that an option names by itself. */
int change_plan_manifest_mount_config(struct change_plan_work *w, struct err *err)
{
    if (is_generated(w))
        return 0;
    return described(w, mount(w, w->inside, VOLUME, "File", err));
}

/* The folder, because the kubelet mounts single files by inode: a file that is replaced
 * would keep its old content in the container. */
int change_plan_manifest_mount_tls(struct change_plan_work *w, struct err *err)
{
    w->add_mount = true;
    if (is_generated(w))
        return 0;
    return described(w, mount(w, CLIENT_SECRET_DIR, TLS_VOLUME, "Directory", err));
}
