/* SPDX-License-Identifier: Apache-2.0 */

/* The new content of a node's files: the manifest of the static pod, kube-scheduler's
 * configuration with the entry of the extender, and the files of its certificate. */

#include "setup/change.h"

#include <stdlib.h>

#include "base/mem.h"
#include "setup/edit.h"

#define POLICY "policy/kube-scheduler-config.yaml"
#define GROUP  "kubescheduler.config.k8s.io/"

/* The path of kube-scheduler's container in the manifest. */
#define CONTAINER "spec.containers.0"

void change_fini(struct change *c)
{
    for (int i = 0; i < CHANGE_FILES; i++)
        buf_wipe(&c->files[i].bytes); /* one of them is a private key */
    *c = (struct change){0};
}

/* Keeps the new content of a file if it differs; takes the bytes. */
static void keep_file(struct change *out, int kind, const struct facts_file *file,
                      struct buf *bytes)
{
    if (file->why.code == ERR_NONE && span_eq(buf_span(&file->bytes), buf_span(bytes)))
        return;
    out->files[kind].path = file->path;
    out->files[kind].bytes = *bytes;
    *bytes = (struct buf){0};
}

/* The files that differ from the Secret. Without a Secret the node must have them. */
static int change_certificate(const struct facts *f, struct change *out, struct err *err)
{
    for (int i = 0; i < FACTS_TLS_FILES; i++) {
        cleanup_buf struct buf now = {0};
        bool known = f->secret_why.code == ERR_NONE;
        if (!known && f->tls[i].why.code != ERR_NONE)
            return err_set(err, f->secret_why.code,
                           "the certificate of kube-scheduler: %s. The extender writes "
                           "its Secret when it starts; for an extender with --insecure, "
                           "run scripts/install --insecure",
                           f->secret_why.msg);
        buf_add_span(&now, buf_span(&f->secret[i]));
        if (known)
            keep_file(out, i, &f->tls[i], &now);
    }
    return 0;
}

/* -- the configuration -- */

/* Sets address, TLS and certificate in the entry `at` ("extenders.0") of a configuration
 * with these values. */
static int set_entry(const struct change_input *in, const char *name, struct buf *text,
                     const char *at, const json_t *old, struct err *err)
{
    cleanup_free char *url = facts_planned_url(in->facts, in->address, in->insecure);
    cleanup_free char *server = facts_server_name(in->facts);
    cleanup_free char *data = xasprintf("%s.tlsConfig.caData", at);
    cleanup_free char *tls = xasprintf("%s.tlsConfig", at);
    bool own = facts_has_own_certificate(in->facts);
    const struct {
        const char *member, *value;
        bool set;
    } members[] = {
        {"urlPrefix", url, true},
        {"enableHTTPS", in->insecure ? "false" : "true", in->insecure || !own},
        {facts_tls_names[FACTS_CA].member, facts_tls_names[FACTS_CA].path, !own},
        {facts_tls_names[FACTS_CERT].member, facts_tls_names[FACTS_CERT].path, !own},
        {facts_tls_names[FACTS_KEY].member, facts_tls_names[FACTS_KEY].path, !own},
        {"tlsConfig.serverName", server, !own},
        /* kube-scheduler exits if a caFile stands beside `insecure: true`. */
        {"tlsConfig.insecure", "false",
         !own && edit_value(old, "tlsConfig.insecure") != NULL}};
    for (size_t i = 0; i < (in->insecure ? 2 : ARRAY_LEN(members)); i++) {
        cleanup_free char *path = xasprintf("%s.%s", at, members[i].member);
        if (members[i].set && edit_set(name, text, path, members[i].value, err))
            return -1;
    }
    /* kube-scheduler would read the files of tlsConfig also for http://. */
    if (in->insecure)
        return edit_value(old, "tlsConfig") ? edit_remove(name, text, tls, err) : 0;
    /* kube-scheduler prefers the data to a file. */
    return !own && edit_value(old, "tlsConfig.caData")
               ? edit_remove(name, text, data, err)
               : 0;
}

/* The file of policy/ with the address, kubeconfig and API version of this node. */
static int make_policy(const struct change_input *in, struct buf *text, struct err *err)
{
    /* The last minor version of Kubernetes whose newest apiVersion is this one. */
    static const struct {
        int64_t last;
        const char *api;
    } apis[] = {{21, GROUP "v1beta1"},
                {22, GROUP "v1beta2"},
                {24, GROUP "v1beta3"},
                {INT64_MAX, GROUP "v1"}};
    const char *kubeconfig = facts_option(in->facts, "kubeconfig");
    const char *image = edit_string(in->facts->container, "image");
    const char *tag = strstr(image, ":v1."); /* "registry:5000/kube-scheduler:v1.31.0" */
    struct span rest = span_of(tag ? tag + 4 : "");
    int64_t minor = 0;
    size_t i = 0;
    if (!span_i64(span_cut(&rest, '.'), &minor) || minor < 19)
        return err_set(err, ERR_INVALID,
                       "%s: the tag of image %s is not a version of Kubernetes from 1.19 "
                       "on: follow policy/README.md",
                       in->facts->manifest.path, image);
    while (minor > apis[i].last)
        i++;
    buf_add_span(text, in->config);
    json_t *old = edit_parse(POLICY, in->config, NULL, err);
    int rc = old ? set_entry(in, POLICY, text, "extenders.0",
                             edit_value(old, "extenders.0"), err)
                 : -1;
    json_decref(old);
    if (rc == 0 && kubeconfig && *kubeconfig == '/')
        rc = edit_set(POLICY, text, "clientConnection.kubeconfig", kubeconfig, err);
    return rc ? rc : edit_set(POLICY, text, "apiVersion", apis[i].api, err);
}

/* Adds the entry to a configuration of the user, or changes the existing one. */
static int change_entry(const struct change_input *in, struct span policy,
                        struct buf *text, struct err *err)
{
    const struct facts_file *file = &in->facts->config;
    const json_t *list = edit_value(file->json, "extenders");
    cleanup_buf struct buf item = {0};
    size_t i = 0;
    if (strcmp(edit_string(file->json, "kind"), "KubeSchedulerConfiguration"))
        return err_set(err, ERR_INVALID, "%s is not a KubeSchedulerConfiguration",
                       file->path);
    buf_add_span(text, buf_span(&file->bytes));
    for (; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        if (entry == in->facts->entry) {
            cleanup_free char *at = xasprintf("extenders.%zu", i);
            return set_entry(in, file->path, text, at, entry, err);
        }
        if (!in->facts->entry && *edit_string(entry, "bindVerb"))
            return err_set(err, ERR_INVALID,
                           "%s: another extender has a bindVerb, and kube-scheduler "
                           "allows only one. Remove one of them",
                           file->path);
    }
    if (edit_lines(POLICY, policy, "extenders", &item, err))
        return -1;
    return edit_add_item(file->path, text, "", "extenders", item.p, err);
}

/* -- the manifest -- */

static int add_mount(const struct facts *f, struct buf *text, const char *path,
                     const char *name, const char *type, struct err *err)
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
    if (edit_add_item(f->manifest.path, text, CONTAINER, "volumeMounts", mount, err))
        return -1;
    return edit_add_item(f->manifest.path, text, "spec", "volumes", volume, err);
}

int change_make(const struct change_input *in, struct change *out, struct err *err)
{
    const struct facts *f = in->facts;
    const char *option = facts_option(f, "config"), *path = f->manifest.path;
    cleanup_buf struct buf policy = {0}, config = {0}, manifest = {0};
    if (f->manifest.why.code != ERR_NONE)
        return err_set(err, f->manifest.why.code,
                       "%s. Only kubeadm's static pod is changed; elsewhere install the "
                       "chart's own kube-scheduler (" FACTS_INSTEAD
                       "), or follow policy/README.md",
                       f->manifest.why.msg);
    if (facts_option(f, "policy-config-file"))
        return err_set(err, ERR_INVALID,
                       "%s: kube-scheduler with a Policy (--policy-config-file) is "
                       "configured by hand: see policy/README.md",
                       path);
    if (option && *option != '/')
        return err_set(err, ERR_INVALID, "%s: \"%s\" is not an absolute path", path,
                       option);
    if (f->config.why.code != ERR_NONE && f->config.why.code != ERR_NOT_FOUND &&
        (option || f->config.why.code != ERR_INVALID))
        return err_set(err, f->config.why.code, "%s", f->config.why.msg);
    if (make_policy(in, &policy, err))
        return -1;
    buf_add_span(&manifest, buf_span(&f->manifest.bytes));
    /* A new `command` would replace the image's entrypoint. */
    bool args = edit_value(f->container, "args") || !edit_value(f->container, "command");
    if (!option && edit_add_item(path, &manifest, CONTAINER, args ? "args" : "command",
                                 "- --config=" FACTS_CONFIG "\n", err))
        return -1;
    if (!f->config.mounted &&
        add_mount(f, &manifest, option ? option : FACTS_CONFIG,
                  "gpushare-scheduler-config", "File", err))
        return -1;
    /* A file that no option names is replaced: kube-scheduler does not read it. */
    if (option && f->config.why.code == ERR_NONE) {
        if (change_entry(in, buf_span(&policy), &config, err))
            return -1;
        keep_file(out, CHANGE_CONFIG, &f->config, &config);
    } else {
        keep_file(out, CHANGE_CONFIG, &f->config, &policy);
    }
    bool ours = !facts_has_own_certificate(f) || facts_has_our_certificate(f);
    if (!in->insecure && ours) {
        if (change_certificate(f, out, err))
            return -1;
        /* The folder, because the kubelet mounts single files by inode: a file that is
         * replaced would keep its old content in the container. */
        if (!f->tls[FACTS_CERT].mounted &&
            add_mount(f, &manifest, FACTS_TLS_DIR, "gpushare-scheduler-tls", "Directory",
                      err))
            return -1;
    }
    keep_file(out, CHANGE_MANIFEST, &f->manifest, &manifest);
    return 0;
}

int change_renew(const struct change_input *in, struct change *out, struct err *err)
{
    const struct facts *f = in->facts;
    if (!facts_has_our_certificate(f))
        return err_set(err, ERR_NOT_FOUND,
                       "kube-scheduler does not use the certificate in " FACTS_TLS_DIR
                       "; run scripts/install first");
    /* Renewal runs unattended: silence would last until the certificate expires. */
    if (f->secret_why.code != ERR_NONE)
        return err_set(err, f->secret_why.code, "%s", f->secret_why.msg);
    return change_certificate(f, out, err);
}
