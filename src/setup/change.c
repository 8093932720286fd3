/* SPDX-License-Identifier: Apache-2.0 */

/* The new content of a node's files: the manifest of the static pod, kube-scheduler's
 * configuration with the entry of the extender, and the files of its certificate. */

#include "setup/change.h"

#include "base/mem.h"
#include "setup/edit.h"

#define POLICY "policy/kube-scheduler-config.yaml"

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

/* The files that differ from the Secret. Without a Secret the node must have them, and no
 * namespace is named: the user expects one there. */
static int change_certificate(const struct facts *f, struct change *out, struct err *err)
{
    for (int i = 0; i < SECRET_KEYS; i++) {
        cleanup_buf struct buf now = {0};
        bool known = f->secret_why.code == ERR_NONE;
        bool none = f->namespace && f->secret_why.code == ERR_NOT_FOUND;
        if (!known && (none || f->tls[i].why.code != ERR_NONE))
            return err_set(err, f->secret_why.code,
                           "the certificate of kube-scheduler: %s. The extender writes "
                           "its Secret when it starts; for an extender with --insecure, "
                           "run scripts/install --insecure",
                           f->secret_why.msg);
        buf_add_span(&now, buf_span(&f->secret.data[i]));
        if (known)
            keep_file(out, i, &f->tls[i], &now);
    }
    return 0;
}

/* -- the configuration -- */

/* Sets address, TLS and certificate in the entry `at` ("extenders.0"). */
static int set_entry(const struct change_input *in, struct edit *e, const char *at,
                     struct err *err)
{
    const json_t *old = jpath(e->json, at);
    bool tls = jpath(old, "tlsConfig"), ours = facts_has_our_certificate(old);
    cleanup_free char *path = xasprintf("%s.tlsConfig", at);
    cleanup_free char *url = facts_planned_url(in->facts, in->address, in->insecure);
    cleanup_free char *server = facts_server_name(in->facts);
    cleanup_free char *lines = xasprintf(
        "tlsConfig:\n  caFile: " FACTS_TLS_DIR "/ca.crt\n  certFile: " FACTS_TLS_DIR
        "/client.crt\n  keyFile: " FACTS_TLS_DIR "/client.key\n  serverName: %s\n",
        server);
    if (edit_set(e, at, "urlPrefix", url, err) ||
        edit_set(e, at, "enableHTTPS", in->insecure ? "false" : "true", err))
        return -1;
    /* kube-scheduler would read the files of tlsConfig also for http://. */
    if (in->insecure)
        return tls ? edit_remove(e, path, err) : 0;
    if (!tls)
        return edit_add_key(e, at, lines, err);
    if (!ours)
        return err_set(err, ERR_INVALID,
                       "%s: the extender has a tlsConfig that does not name the files "
                       "in " FACTS_TLS_DIR ": remove it",
                       e->name);
    return in->facts->namespace ? edit_set(e, path, "serverName", server, err) : 0;
}

/* The file of policy/ with the address and kubeconfig of this node. */
static int make_policy(const struct change_input *in, struct edit *e, struct err *err)
{
    const char *kubeconfig = facts_option(in->facts, "kubeconfig");
    const char *image = jpath_string(in->facts->container, "image");
    if (facts_minor(in->facts) < 25)
        return err_set(err, ERR_INVALID,
                       "%s: the tag of image %s is not a version of Kubernetes from 1.25 "
                       "on: follow policy/README.md",
                       in->facts->manifest.path, image);
    if (edit_open(POLICY, in->config, e, err) || set_entry(in, e, "extenders.0", err))
        return -1;
    return kubeconfig && *kubeconfig == '/'
               ? edit_set(e, "clientConnection", "kubeconfig", kubeconfig, err)
               : 0;
}

/* Adds the entry to a configuration of the user, or changes the existing one. */
static int change_entry(const struct change_input *in, const char *policy, struct edit *e,
                        struct err *err)
{
    static const char key[] = "\nextenders:";
    const struct facts_file *file = &in->facts->config;
    const json_t *list = jpath(file->json, "extenders"), *entry;
    size_t i;
    if (edit_open(file->path, buf_span(&file->bytes), e, err))
        return -1;
    json_array_foreach(list, i, entry)
    {
        cleanup_free char *at = xasprintf("extenders.%zu", i);
        if (entry == in->facts->entry)
            return !facts_has_own_certificate(entry) ? set_entry(in, e, at, err)
                   : !in->address
                       ? 0
                       : err_set(err, ERR_INVALID,
                                 "%s: the extender has a certFile of its own: set its "
                                 "urlPrefix by hand",
                                 file->path);
        if (!in->facts->entry && *jpath_string(entry, "bindVerb"))
            return err_set(err, ERR_INVALID,
                           "%s: another extender has a bindVerb, and kube-scheduler "
                           "allows only one. Remove one of them",
                           file->path);
    }
    /* They are the last key of the file of policy/. */
    const char *item = strstr(policy, key);
    item = item ? strstr(item, "\n- ") : NULL;
    return item ? edit_add_item(e, "", "extenders", item + 1, err)
                : err_set(err, ERR_INVALID, POLICY ": no list of extenders");
}

/* -- the manifest -- */

static int add_mount(struct edit *e, const char *path, const char *name, const char *type,
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
    if (edit_add_item(e, CONTAINER, "volumeMounts", mount, err))
        return -1;
    return edit_add_item(e, "spec", "volumes", volume, err);
}

int change_kubeadm(const struct facts *f, const char *config, bool tls, struct edit *e,
                   struct err *err)
{
    static const char *const at[] = {"", "scheduler", "scheduler.extraArgs"};
    /* By what is missing, at each of these places; v1beta3 has a mapping. */
    static const char *const forms[][2] = {
        {"scheduler:\n  extraArgs:\n    config: ",
         "scheduler:\n  extraArgs:\n  - name: config\n    value: "},
        {"extraArgs:\n  config: ", "extraArgs:\n- name: config\n  value: "},
        {"config: ", "- name: config\n  value: "}};
    const char *name = f->kubeadm.path;
    const json_t *old = jpath(f->kubeadm.json, at[1]), *args = jpath(old, "extraArgs"),
                 *volumes = jpath(old, "extraVolumes"), *item;
    const char *version = jpath_string(f->kubeadm.json, "apiVersion");
    const char *now = jpath_string(args, "config");
    bool list = !strcmp(version, "kubeadm.k8s.io/v1beta4"), found;
    int depth = !json_object_size(old) ? 0 : args ? 2 : 1;
    size_t k;
    if (f->kubeadm.why.code != ERR_NONE)
        return err_set(err, f->kubeadm.why.code, "%s", f->kubeadm.why.msg);
    json_array_foreach(args, k, item)
    {
        if (!strcmp(jpath_string(item, "name"), "config"))
            now = jpath_string(item, "value");
    }
    if (!list && strcmp(version, "kubeadm.k8s.io/v1beta3"))
        return err_set(err, ERR_INVALID, "%s: unknown apiVersion \"%s\"", name, version);
    if (*now && strcmp(now, config))
        return err_set(err, ERR_INVALID, "%s: config is %s", name, now);
    /* kubeadm writes "scheduler: {}". */
    if (edit_open(name, buf_span(&f->kubeadm.bytes), e, err) ||
        (old && !depth && edit_remove(e, at[1], err)))
        return -1;
    cleanup_free char *entry = xasprintf("%s%s\n", forms[depth][list], config);
    if (!*now && (list && depth == 2 ? edit_add_item(e, at[1], "extraArgs", entry, err)
                                     : edit_add_key(e, at[depth], entry, err)))
        return -1;
    for (int i = 0; i < 1 + tls; i++) {
        const char *path = i ? FACTS_TLS_DIR : config;
        cleanup_free char *host = facts_path_on_node(f, "", path, &found);
        cleanup_free char *volume =
            xasprintf("- name: gpushare-scheduler-%s\n"
                      "  hostPath: %s\n"
                      "  mountPath: %s\n"
                      "  readOnly: true\n"
                      "  pathType: %s\n",
                      i ? "tls" : "config", host, path, i ? "Directory" : "File");
        found = false;
        json_array_foreach(volumes, k, item) found |=
            facts_below(path, jpath_string(item, "mountPath")) != NULL;
        if (!found && edit_add_item(e, at[1], "extraVolumes", volume, err))
            return -1;
    }
    return 0;
}

int change_make(const struct change_input *in, struct change *out, struct err *err)
{
    const struct facts *f = in->facts;
    const char *option = facts_option(f, "config"), *path = f->manifest.path;
    const char *file = option ? option : FACTS_CONFIG;
    bool tls = !in->insecure && !facts_has_own_certificate(f->entry);
    cleanup_edit struct edit policy = {0}, config = {0}, manifest = {0}, kubeadm = {0};
    if (f->manifest.why.code != ERR_NONE)
        return err_set(err, f->manifest.why.code,
                       "%s. Only kubeadm's static pod is changed; elsewhere install the "
                       "chart's own kube-scheduler (" FACTS_INSTEAD
                       "), or follow policy/README.md",
                       f->manifest.why.msg);
    cleanup_buf struct buf removed = {0};
    facts_add_removed(&removed, f);
    if (removed.n)
        return err_set(err, ERR_INVALID, "%s: %s: delete it first", path, removed.p);
    if (*file != '/')
        return err_set(err, ERR_INVALID, "%s: \"%s\" is not an absolute path", path,
                       file);
    if (f->config.why.code != ERR_NONE && f->config.why.code != ERR_NOT_FOUND &&
        (option || f->config.why.code != ERR_INVALID))
        return err_set(err, f->config.why.code, "%s", f->config.why.msg);
    if (make_policy(in, &policy, err) ||
        edit_open(path, buf_span(&f->manifest.bytes), &manifest, err))
        return -1;
    /* A new `command` would replace the image's entrypoint. */
    bool args = jpath(f->container, "args") || !jpath(f->container, "command");
    if (!option && edit_add_item(&manifest, CONTAINER, args ? "args" : "command",
                                 "- --config=" FACTS_CONFIG "\n", err))
        return -1;
    if (!f->config.mounted &&
        add_mount(&manifest, file, "gpushare-scheduler-config", "File", err))
        return -1;
    /* A file that no option names is replaced: kube-scheduler does not read it. */
    bool users = option && f->config.why.code == ERR_NONE;
    if (users && change_entry(in, policy.text.p, &config, err))
        return -1;
    keep_file(out, CHANGE_CONFIG, &f->config, users ? &config.text : &policy.text);
    if (tls && change_certificate(f, out, err))
        return -1;
    /* The folder, because the kubelet mounts single files by inode: a file that is
     * replaced would keep its old content in the container. */
    if (tls && !f->tls[SECRET_CERT].mounted &&
        add_mount(&manifest, FACTS_TLS_DIR, "gpushare-scheduler-tls", "Directory", err))
        return -1;
    if (f->kubeadm.path && change_kubeadm(f, file, tls, &kubeadm, &out->kubeadm_why) == 0)
        keep_file(out, CHANGE_KUBEADM, &f->kubeadm, &kubeadm.text);
    keep_file(out, CHANGE_MANIFEST, &f->manifest, &manifest.text);
    return 0;
}

int change_renew(const struct change_input *in, struct change *out, struct err *err)
{
    const struct facts *f = in->facts;
    if (!facts_has_our_certificate(f->entry))
        return err_set(err, ERR_NOT_FOUND,
                       "kube-scheduler does not use the certificate in " FACTS_TLS_DIR
                       "; run scripts/install first");
    /* Renewal runs unattended: silence would last until the certificate expires. */
    if (f->secret_why.code != ERR_NONE)
        return err_set(err, f->secret_why.code, "%s", f->secret_why.msg);
    return change_certificate(f, out, err);
}

/* -- back -- */

/* The items of a list; of a mapping of v1beta3, those to which `kubeadm upgrade` converts it.
 * New. */
static json_t *items_at(const json_t *j, const char *path)
{
    json_t *at = (json_t *)(uintptr_t)jpath(j, path), *items = json_array(), *value;
    const char *key;
    json_array_extend(items, at);
    json_object_foreach(at, key, value)
        json_array_append_new(items, json_pack("{sssO}", "name", key, "value", value));
    return items;
}

/* The length of the list: not found. */
static size_t find_item(const json_t *items, const json_t *item)
{
    size_t i = 0;
    while (i < json_array_size(items) && !json_equal(json_array_get(items, i), item))
        i++;
    return i;
}

int change_revert(struct span old, struct span with, struct edit *e, struct err *err)
{
    static const char *const lists[] = {"extenders",
                                        CONTAINER ".command",
                                        CONTAINER ".args",
                                        CONTAINER ".volumeMounts",
                                        "spec.volumes",
                                        "scheduler.extraArgs",
                                        "scheduler.extraVolumes"};
    json_auto_t *before = edit_parse(e->name, old, err);
    json_auto_t *after = edit_parse(e->name, with, err);
    size_t added = 0, removed = 0, k;
    bool replaced = !before || !after;
    json_t *item;
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        json_auto_t *was = items_at(before, lists[i]), *all = items_at(after, lists[i]);
        size_t kept = json_array_size(was);
        json_array_foreach(all, k, item)
        {
            if (find_item(was, item) < json_array_size(was)) {
                kept--;
                continue;
            }
            json_auto_t *now = items_at(e->json, lists[i]);
            size_t at = find_item(now, item);
            cleanup_free char *path =
                json_is_object(jpath(e->json, lists[i]))
                    ? xasprintf("%s.%s", lists[i], jpath_string(item, "name"))
                    : xasprintf("%s.%zu", lists[i], at);
            added++;
            if (at == json_array_size(now)) {
                /* Our entry with other values is no entry of another extender. */
                const json_t *entry = i ? NULL : facts_find_entry(e->json);
                replaced |= entry && find_item(was, entry) == json_array_size(was);
                continue;
            }
            removed++;
            if (edit_remove(e, path, err))
                return -1;
        }
        replaced |= kept;
    }
    if (replaced || !added || removed % added)
        return err_set(err, ERR_CONFLICT, "%s was changed since, and stays as it is",
                       e->name);
    return 0;
}
