/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "setup/change_plan_priv.h"

bool change_plan_tls_is_ours(const json_t *entry)
{
    for (int i = 0; i < CLIENT_SECRET_FILES; i++) {
        enum client_secret_file file = (enum client_secret_file)i;
        cleanup_free char *member = xasprintf("tlsConfig.%s", client_secret_member(file));
        if (strcmp(jsonpath_str(entry, member), client_secret_path(file)))
            return false;
    }
    return true;
}

void change_plan_tls_describe(const struct facts *f, struct buf *out, int indent)
{
    cleanup_free char *server = facts_server_name(f);
    buf_printf(out, "%*stlsConfig:\n", indent, "");
    for (int i = 0; i < CLIENT_SECRET_FILES; i++)
        buf_printf(out, "%*s  %s: %s\n", indent, "",
                   client_secret_member((enum client_secret_file)i),
                   client_secret_path((enum client_secret_file)i));
    buf_printf(out, "%*s  serverName: %s\n", indent, "", server);
}

/* Is the content of the Secret known? */
static bool has_secret(const struct facts *f)
{
    return f->secret_read && f->secret_why.code == ERR_NONE;
}

static int explain_absence(const struct facts *f, const char *path, struct err *err)
{
    if (!f->secret_read)
        return err_set(err, ERR_UNAVAILABLE,
                       "%s: no such file, and the API server was not asked for Secret "
                       "%s/" CLIENT_SECRET_NAME,
                       path, facts_namespace(f));
    return err_set(err, f->secret_why.code,
                   "the certificate of kube-scheduler: %s. The extender writes Secret "
                   "%s/" CLIENT_SECRET_NAME
                   " when it starts; for an extender with --insecure, run "
                   "scripts/install --insecure",
                   f->secret_why.msg, facts_namespace(f));
}

/* One of the files, if it differs from the Secret. */
static int plan_file(struct change_plan_work *w, enum client_secret_file file,
                     const char *path, struct err *err)
{
    const struct facts *f = w->in->facts;
    cleanup_buf struct buf old = {0}, now = {0};
    struct err why = {0};
    if (w->in->read(w->in->ctx, path, &old, &why) && why.code != ERR_NOT_FOUND) {
        *err = why;
        return -1;
    }
    if (!has_secret(f))
        return why.code == ERR_NONE ? 0 : explain_absence(f, path, err);
    if (why.code == ERR_NONE && span_eq(buf_span(&old), buf_span(&f->secret.pem[file])))
        return 0;
    buf_add_span(&now, buf_span(&f->secret.pem[file]));
    change_plan_keep(w->out, (enum change_plan_kind)file, path, &now);
    return 0;
}

int change_plan_tls(struct change_plan_work *w, bool mount, struct err *err)
{
    bool mounted = true;
    for (int i = 0; i < CLIENT_SECRET_FILES; i++) {
        enum client_secret_file file = (enum client_secret_file)i;
        cleanup_buf struct buf path = {0};
        buf_adds(&path, w->in->root);
        if (!scheduler_pod_host_path(&w->pod, client_secret_path(file), &path)) {
            mounted = false;
            buf_adds(&path, client_secret_path(file));
        }
        if (plan_file(w, file, path.p, err))
            return -1;
    }
    return mounted || !mount ? 0 : change_plan_manifest_mount_tls(w, err);
}
