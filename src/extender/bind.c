/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/verbs_priv.h"

#include "base/log.h"

/*
 * bind. kube-scheduler sends names and a UID, not the pod; what the pod asks for is known
 * from the watch. When no card fits any more, nothing is bound and Error says why. (The
 * Go extender's design has bind end silently then, and the scheduler's assumption time
 * out; since Kubernetes 1.23 an assumed pod never times out, so silence would strand the
 * pod.)
 */

static int read_args(struct span body, struct arena *a, struct store_bind *bind,
                     struct err *err)
{
    struct jread j;
    struct jread_str key;
    jread_init(&j, body.p, body.n);
    jread_object(&j, "body");
    while (jread_member(&j, &key)) {
        if (jread_str_eq_nocase(key, SPAN("PodName")))
            jread_text(&j, "PodName", a, &bind->name);
        else if (jread_str_eq_nocase(key, SPAN("PodNamespace")))
            jread_text(&j, "PodNamespace", a, &bind->ns);
        else if (jread_str_eq_nocase(key, SPAN("PodUID")))
            jread_text(&j, "PodUID", a, &bind->uid);
        else if (jread_str_eq_nocase(key, SPAN("Node")))
            jread_text(&j, "Node", a, &bind->node);
        else
            jread_skip(&j);
    }
    return jread_finish(&j, err);
}

/* These go into paths of the API: nothing but what a name can have. */
static bool is_name(struct span s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
              (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_'))
            return false;
    }
    return s.n > 0 && s.n <= 253 && s.p[0] != '.';
}

static int check_args(const struct store_bind *bind, struct err *err)
{
    if (!is_name(bind->name))
        return err_set(err, ERR_INVALID, "PodName is missing or no name");
    if (!is_name(bind->ns))
        return err_set(err, ERR_INVALID, "PodNamespace is missing or no name");
    if (!is_name(bind->uid))
        return err_set(err, ERR_INVALID, "PodUID is missing or no UID");
    if (!is_name(bind->node))
        return err_set(err, ERR_INVALID, "Node is missing or no name");
    return 0;
}

unsigned verb_bind(struct verbs *v, struct span body, struct buf *reply)
{
    struct store_bind bind = {0};
    struct err err;
    bool ready = true;
    cleanup_arena struct arena a = {0};
    if (read_args(body, &a, &bind, &err) || check_args(&bind, &err))
        return reply_error(reply, 400, &err);
    if (store_bind(verbs_store(v), &bind, &ready, &err) == 0) {
        log_info("bind", "bound", LOG_SPAN("namespace", bind.ns),
                 LOG_SPAN("pod", bind.name), LOG_SPAN("node", bind.node));
        buf_adds(reply, "{\"Error\":\"\"}");
        return 200;
    }
    log_info("bind", "not bound", LOG_SPAN("namespace", bind.ns),
             LOG_SPAN("pod", bind.name), LOG_SPAN("node", bind.node), LOG_ERR(&err));
    return reply_error(reply, ready ? 200 : 503, &err);
}
