/* SPDX-License-Identifier: Apache-2.0 */

/* The new content of a node's files: the manifest of the static pod, kube-scheduler's
 * configuration with the entry of the extender, and the files of its certificate. */

#include "setup/change.h"

#include <stdlib.h>

#include "base/mem.h"
#include "setup/edit.h"
#include "wire/tls.h"

#define CONFIG_AT  "/etc/kubernetes/kube-scheduler-config.yaml"
#define POLICY     "policy/kube-scheduler-config.yaml"
#define VOLUME     "gpushare-scheduler-config"
#define TLS_VOLUME "gpushare-scheduler-tls"

enum { MINOR_FIRST = 19 /* reads extenders from a KubeSchedulerConfiguration */ };

/* The changes in progress. */
struct work {
    const struct change_input *in;
    struct change *out;
    const struct facts_file *manifest;
    struct scheduler_config_pod pod;
    char *container;     /* path of kube-scheduler's container: "spec.containers.0" */
    const char *inside;  /* path of the configuration file in the container */
    struct buf text;     /* the file of policy/, adapted to this node */
    struct buf pod_text; /* the manifest, as far as it was changed */
    bool tls;            /* the new configuration names our files of the certificate */
};

void change_fini(struct change *c)
{
    for (int i = 0; i < CHANGE_FILES; i++) {
        free(c->files[i].path);
        tls_wipe(&c->files[i].bytes); /* one of them is a private key */
    }
    buf_fini(&c->by_hand);
    *c = (struct change){0};
}

/* Keeps the new content of a file; takes the bytes. */
static void keep_file(struct work *w, int kind, const char *path, struct buf *bytes)
{
    w->out->files[kind].path = xstrdup(path);
    w->out->files[kind].bytes = *bytes;
    *bytes = (struct buf){0};
}

/* Reads a file of the node. *why ERR_NOT_FOUND: no such file. -1: another error. */
static int read_file(const struct work *w, const char *path, struct buf *out,
                     struct err *why, struct err *err)
{
    if (w->in->read(w->in->ctx, path, out, why) == 0 || why->code == ERR_NOT_FOUND)
        return 0;
    return err_set(err, why->code, "%s", why->msg);
}

/* -- the certificate -- */

/* Does the entry name our files of the certificate? */
static bool is_our_certificate(const json_t *entry)
{
    for (int i = 0; i < FACTS_TLS_FILES; i++) {
        cleanup_free char *member = xasprintf("tlsConfig.%s", facts_tls_member(i));
        if (strcmp(edit_string(entry, member), facts_tls_path(i)))
            return false;
    }
    return true;
}

/* Appends tlsConfig with our files, as YAML. */
static void add_tls_config(const struct work *w, struct buf *out, int indent)
{
    cleanup_free char *server = facts_server_name(w->in->facts);
    buf_printf(out, "%*stlsConfig:\n", indent, "");
    for (int i = 0; i < FACTS_TLS_FILES; i++)
        buf_printf(out, "%*s  %s: %s\n", indent, "", facts_tls_member(i),
                   facts_tls_path(i));
    buf_printf(out, "%*s  serverName: %s\n", indent, "", server);
}

/* The files that differ from the Secret. Without a Secret the node must have them.
 * *mounted: kube-scheduler sees their folder. */
static int change_certificate(struct work *w, bool *mounted, struct err *err)
{
    const struct facts *f = w->in->facts;
    bool known = f->secret_read && f->secret_why.code == ERR_NONE;
    *mounted = true;
    for (int i = 0; i < FACTS_TLS_FILES; i++) {
        cleanup_buf struct buf path = {0}, old = {0}, now = {0};
        struct err why = {0};
        buf_adds(&path, w->in->root);
        if (!scheduler_config_host_path(&w->pod, facts_tls_path(i), &path)) {
            *mounted = false;
            buf_adds(&path, facts_tls_path(i));
        }
        if (read_file(w, path.p, &old, &why, err))
            return -1;
        bool there = why.code == ERR_NONE;
        if (!known && !there)
            return f->secret_read
                       ? err_set(err, f->secret_why.code,
                                 "the certificate of kube-scheduler: %s. The extender "
                                 "writes Secret %s/" FACTS_SECRET
                                 " when it starts; for an extender with --insecure, run "
                                 "scripts/install --insecure",
                                 f->secret_why.msg, facts_namespace(f))
                       : err_set(err, ERR_UNAVAILABLE,
                                 "%s: no such file, and the API server was not asked for "
                                 "Secret %s/" FACTS_SECRET ": %s",
                                 path.p, facts_namespace(f), f->cluster_why.msg);
        if (!known || (there && span_eq(buf_span(&old), buf_span(&f->secret[i]))))
            continue;
        buf_add_span(&now, buf_span(&f->secret[i]));
        keep_file(w, i, path.p, &now);
    }
    return 0;
}

/* -- the manifest -- */

static int add_mount(struct work *w, const char *path, const char *name, const char *type,
                     struct err *err)
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
    if (edit_add_item(w->manifest->path, &w->pod_text, w->container, "volumeMounts",
                      mount, err))
        return -1;
    return edit_add_item(w->manifest->path, &w->pod_text, "spec", "volumes", volume, err);
}

/* For a person: what could not be added to the manifest. */
static void describe_manifest(struct work *w)
{
    buf_printf(&w->out->by_hand,
               "in %s:\n"
               "  to the command:      - --config=%s\n"
               "  to volumeMounts:     - mountPath: %s\n"
               "                         name: " VOLUME "\n"
               "                         readOnly: true\n"
               "  to volumes:          - name: " VOLUME "\n"
               "                         hostPath:\n"
               "                           path: %s\n"
               "                           type: File\n",
               w->manifest->path, w->inside, w->inside, w->inside);
    if (!w->in->insecure)
        buf_adds(&w->out->by_hand, "  and the same for     " FACTS_TLS_DIR
                                   " (type: Directory, name: " TLS_VOLUME ")\n");
    buf_printf(&w->out->by_hand, "and %s%s:\n%s", w->in->root, w->inside, w->text.p);
}

/* To the list that has the other options. A new `command` would replace the image's
 * entrypoint. */
static int add_option(struct work *w, struct err *err)
{
    const json_t *c = w->pod.container;
    bool args = edit_value(c, "args") || !edit_value(c, "command");
    return edit_add_item(w->manifest->path, &w->pod_text, w->container,
                         args ? "args" : "command", "- --config=" CONFIG_AT "\n", err);
}

/* -- the configuration -- */

/* Sets plain HTTP or our certificate and an address in the entry of an extender. */
struct target {
    const char *entry; /* "extenders.0" */
    const char *url;   /* NULL: stays */
    bool https, certificate;
};

static int set_member(struct buf *text, const char *name, const struct target *t,
                      const char *member, const char *value, struct err *err)
{
    cleanup_free char *path = xasprintf("%s.%s", t->entry, member);
    return edit_set(name, text, path, value, err);
}

static int set_entry(struct work *w, struct buf *text, const char *name,
                     const struct target *t, const json_t *old, struct err *err)
{
    const json_t *tls = edit_value(old, "tlsConfig");
    cleanup_free char *server = facts_server_name(w->in->facts);
    bool on = json_is_true(edit_value(old, "enableHTTPS"));
    if (t->url && strcmp(edit_string(old, "urlPrefix"), t->url) &&
        set_member(text, name, t, "urlPrefix", t->url, err))
        return -1;
    if ((t->certificate || !t->https) && on != t->https &&
        set_member(text, name, t, "enableHTTPS", t->https ? "true" : "false", err))
        return -1;
    if (!t->certificate)
        return 0;
    if (!tls || json_is_null(tls)) {
        cleanup_buf struct buf lines = {0};
        add_tls_config(w, &lines, 0);
        return edit_add_key(name, text, t->entry, lines.p, err);
    }
    for (int i = 0; i < FACTS_TLS_FILES; i++) {
        cleanup_free char *member = xasprintf("tlsConfig.%s", facts_tls_member(i));
        if (strcmp(edit_string(old, member), facts_tls_path(i)) &&
            set_member(text, name, t, member, facts_tls_path(i), err))
            return -1;
    }
    if (strcmp(edit_string(tls, "serverName"), server) &&
        set_member(text, name, t, "tlsConfig.serverName", server, err))
        return -1;
    cleanup_free char *data = xasprintf("%s.tlsConfig.caData", t->entry);
    /* kube-scheduler prefers the data to a file. */
    if (edit_value(tls, "caData") && edit_remove(name, text, data, err))
        return -1;
    /* kube-scheduler exits if a caFile stands beside `insecure: true`. */
    return json_is_true(edit_value(tls, "insecure"))
               ? set_member(text, name, t, "tlsConfig.insecure", "false", err)
               : 0;
}

/* The file of policy/ with the address, kubeconfig and API version of this node. */
static int make_text(struct work *w, struct err *err)
{
    const char *kubeconfig = scheduler_config_option(&w->pod, "kubeconfig");
    const char *address = w->in->address ? w->in->address : "127.0.0.1:32766";
    cleanup_free char *server = facts_server_name(w->in->facts);
    cleanup_free char *url =
        xasprintf("http%s://%s/gpushare-scheduler", w->in->insecure ? "" : "s", address);
    buf_add_span(&w->text, w->in->config);
    if (edit_set(POLICY, &w->text, "extenders.0.urlPrefix", url, err))
        return -1;
    /* kube-scheduler would read the files of tlsConfig also for http://. */
    if (w->in->insecure
            ? edit_set(POLICY, &w->text, "extenders.0.enableHTTPS", "false", err) ||
                  edit_remove(POLICY, &w->text, "extenders.0.tlsConfig", err)
            : edit_set(POLICY, &w->text, "extenders.0.tlsConfig.serverName", server, err))
        return -1;
    if (kubeconfig && *kubeconfig == '/' &&
        edit_set(POLICY, &w->text, "clientConnection.kubeconfig", kubeconfig, err))
        return -1;
    return edit_set(POLICY, &w->text, "apiVersion",
                    scheduler_config_newest_api(facts_minor(w->in->facts, &w->pod)), err);
}

/* Our entry is not in the user's file: adds it. */
static int add_entry(struct work *w, const char *path, struct err *err)
{
    const struct facts_file *file = &w->in->facts->config;
    cleanup_buf struct buf item = {0}, text = {0};
    if (edit_lines(POLICY, buf_span(&w->text), "extenders", &item, err))
        return -1;
    if (scheduler_config_binders(file->json))
        return err_set(
            err, ERR_INVALID,
            "%s: another extender has a bindVerb, and kube-scheduler allows only "
            "one. Remove one of them",
            path);
    buf_add_span(&text, buf_span(&file->bytes));
    if (edit_add_item(path, &text, "", "extenders", item.p, err)) {
        buf_printf(&w->out->by_hand,
                   "in %s, add the extender of " POLICY ":\nextenders:\n%s", path,
                   item.p);
        return -1;
    }
    w->tls = !w->in->insecure;
    keep_file(w, CHANGE_CONFIG, path, &text);
    return 0;
}

/* Our entry is there: sets its address and TLS. A certificate of the administrator stays;
 * ours with another namespace's name, where --namespace asks for one, does not. */
static int change_entry(struct work *w, const char *path, const json_t *ours,
                        struct err *err)
{
    const struct facts *f = w->in->facts;
    const json_t *list = edit_value(f->config.json, "extenders");
    const char *old = edit_string(ours, "urlPrefix");
    cleanup_free char *server = facts_server_name(f);
    cleanup_buf struct buf base = {0}, text = {0};
    struct scheduler_config_url url;
    size_t i = 0;
    while (json_array_get(list, i) != ours)
        i++;
    bool known = scheduler_config_read_url(old, &url, NULL) == 0;
    bool moved = f->namespace && is_our_certificate(ours) &&
                 strcmp(edit_string(ours, "tlsConfig.serverName"), server) != 0;
    bool own = known && url.tls && !moved &&
               (*edit_string(ours, "tlsConfig.certFile") ||
                *edit_string(ours, "tlsConfig.certData"));
    bool same = known && url.tls == !w->in->insecure && !w->in->address;
    cleanup_free char *entry = xasprintf("extenders.%zu", i);
    struct target t = {.entry = entry,
                       .https = !w->in->insecure,
                       .certificate = !w->in->insecure && !own};
    url.tls = t.https;
    if (known && !w->in->address)
        scheduler_config_url_base(&url, &base);
    else
        buf_printf(&base, "http%s://%s", t.https ? "s" : "",
                   w->in->address ? w->in->address : "127.0.0.1:32766");
    buf_adds(&base, known && !w->in->address ? url.path : "/gpushare-scheduler");
    t.url = same ? NULL : base.p;
    w->tls = t.certificate || (t.https && is_our_certificate(ours));
    buf_add_span(&text, buf_span(&f->config.bytes));
    if (set_entry(w, &text, path, &t, ours, err)) {
        buf_printf(&w->out->by_hand,
                   "in %s, in the entry of the extender:\n  urlPrefix: %s\n"
                   "  enableHTTPS: %s\n",
                   path, base.p, t.https ? "true" : "false");
        if (t.certificate)
            add_tls_config(w, &w->out->by_hand, 2);
        return -1;
    }
    if (!span_eq(buf_span(&text), buf_span(&f->config.bytes)))
        keep_file(w, CHANGE_CONFIG, path, &text);
    return 0;
}

/* `named`: the manifest has --config. A file that it does not mount is the user's if it is
 * there: it stays, and is checked once kube-scheduler reads it. */
static int change_config(struct work *w, const char *path, bool named, struct err *err)
{
    const struct facts_file *file = &w->in->facts->config;
    const json_t *ours = scheduler_config_extender(file->json);
    cleanup_buf struct buf old = {0};
    struct err why = {0};
    if (!named || !w->in->facts->config_mounted || file->why.code == ERR_NOT_FOUND) {
        if (read_file(w, path, &old, &why, err))
            return -1;
        if (why.code == ERR_NONE && named)
            return 0;
        w->tls = !w->in->insecure;
        if (!span_eq(buf_span(&old), buf_span(&w->text)))
            keep_file(w, CHANGE_CONFIG, path, &w->text);
        return 0;
    }
    if (file->why.code != ERR_NONE)
        return err_set(err, file->why.code, "%s", file->why.msg);
    if (strcmp(edit_string(file->json, "kind"), "KubeSchedulerConfiguration"))
        return err_set(err, ERR_INVALID, "%s is not a KubeSchedulerConfiguration", path);
    return ours ? change_entry(w, path, ours, err) : add_entry(w, path, err);
}

/* -- all of it -- */

/* Finds the manifest. An unreadable one, or a second one of the same pod, may be the one
 * that the kubelet runs. */
static int find_manifest(struct work *w, struct err *err)
{
    const struct facts *f = w->in->facts;
    struct scheduler_config_pod other;
    if (f->distribution)
        return err_set(err, ERR_INVALID,
                       "a node of %s: only the static pod of kubeadm is changed. Install "
                       "the chart's own kube-scheduler instead: " FACTS_INSTEAD
                       ", or follow policy/README.md",
                       f->distribution);
    if (f->manifests_why.code != ERR_NONE)
        return err_set(err, f->manifests_why.code, "%s", f->manifests_why.msg);
    w->manifest = facts_manifest(f, &w->pod);
    for (size_t i = 0; i < f->n_files; i++) {
        const struct facts_file *file = &f->files[i];
        if (!file->json)
            return err_set(err, file->why.code, "%s", file->why.msg);
        if (file != w->manifest && scheduler_config_read_pod(file->json, &other) &&
            !strcmp(other.name, w->pod.name))
            return err_set(
                err, ERR_INVALID,
                "%s and %s are the same static pod: move one of them out of the folder",
                w->manifest->path, file->path);
    }
    if (!w->manifest)
        return err_set(err, ERR_NOT_FOUND, "%s has no static pod of kube-scheduler",
                       f->manifests ? f->manifests : "the node");
    return 0;
}

/* Determines the configuration file. */
static int choose_config(struct work *w, const char *option, struct err *err)
{
    const char *path = w->manifest->path;
    int minor = facts_minor(w->in->facts, &w->pod);
    w->inside = option ? option : CONFIG_AT;
    if (!minor)
        return err_set(
            err, ERR_INVALID,
            "%s: unknown version of Kubernetes: the image's tag is not a version, "
            "and the API server does not answer",
            path);
    if (scheduler_config_option(&w->pod, "policy-config-file") || minor < MINOR_FIRST)
        return err_set(err, ERR_INVALID,
                       "%s: kube-scheduler 1.%d with a Policy (--policy-config-file) is "
                       "configured by hand: see policy/README.md",
                       path, minor);
    if (*w->inside != '/')
        return err_set(err, ERR_INVALID, "%s: \"%s\" is not an absolute path", path,
                       w->inside);
    return 0;
}

static int make(struct work *w, struct err *err)
{
    const char *option = scheduler_config_option(&w->pod, "config");
    const json_t *all = edit_value(w->pod.pod, "spec.containers");
    cleanup_buf struct buf path = {0};
    size_t i = 0;
    bool visible = true;
    if (choose_config(w, option, err) || make_text(w, err))
        return -1;
    while (json_array_get(all, i) != w->pod.container)
        i++;
    w->container = xasprintf("spec.containers.%zu", i);
    buf_add_span(&w->pod_text, buf_span(&w->manifest->bytes));
    buf_adds(&path, w->in->root);
    bool mounted = scheduler_config_host_path(&w->pod, w->inside, &path);
    if (!mounted)
        buf_adds(&path, w->inside);
    if ((!option && add_option(w, err)) ||
        (!mounted && add_mount(w, w->inside, VOLUME, "File", err))) {
        describe_manifest(w);
        return -1;
    }
    if (change_config(w, path.p, option != NULL, err))
        return -1;
    if (w->tls && change_certificate(w, &visible, err))
        return -1;
    /* The folder, because the kubelet mounts single files by inode: a file that is replaced
     * would keep its old content in the container. */
    if (!visible && add_mount(w, FACTS_TLS_DIR, TLS_VOLUME, "Directory", err)) {
        describe_manifest(w);
        return -1;
    }
    if (!span_eq(buf_span(&w->pod_text), buf_span(&w->manifest->bytes)))
        keep_file(w, CHANGE_MANIFEST, w->manifest->path, &w->pod_text);
    return 0;
}

int change_make(const struct change_input *in, struct change *out, struct err *err)
{
    struct work w = {.in = in, .out = out};
    int rc = find_manifest(&w, err);
    if (rc == 0)
        rc = make(&w, err);
    buf_fini(&w.text);
    buf_fini(&w.pod_text);
    free(w.container);
    return rc;
}

int change_renew(const struct change_input *in, struct change *out, struct err *err)
{
    struct work w = {.in = in, .out = out};
    const struct facts *f = in->facts;
    bool mounted;
    if (find_manifest(&w, err))
        return -1;
    if (!is_our_certificate(scheduler_config_extender(f->config.json)))
        return err_set(err, ERR_NOT_FOUND,
                       "kube-scheduler does not use the certificate in " FACTS_TLS_DIR
                       "; run scripts/install first");
    /* Renewal runs unattended: silence would last until the certificate expires. */
    const struct err *why = f->secret_read ? &f->secret_why : &f->cluster_why;
    if (why->code != ERR_NONE)
        return err_set(err, why->code, "Secret %s/" FACTS_SECRET ": %s",
                       facts_namespace(f), why->msg);
    return change_certificate(&w, &mounted, err);
}
