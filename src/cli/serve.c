/* SPDX-License-Identifier: Apache-2.0 */

/* --serve: the web page on 127.0.0.1, and its stream of changes. */

#include "cli/serve.h"

#include <gnutls/gnutls.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"
#include "view/watch.h"
#include "view/web.h"
#include "wire/entry.h"
#include "wire/httpd.h"

enum {
    CONNECTIONS = 64, /* a browser opens six */
    SIGNAL_MS = 200,  /* between two looks for a signal */
};

struct serve {
    struct view_watch *inspect;
    char token[32 + 1]; /* 128 bits */
    const char *address;
    unsigned port;
};

/* `scheme`: what is in front of the host. */
static bool is_ours(const char *text, const char *scheme, const char *address,
                    unsigned port)
{
    cleanup_free char *name = xasprintf("%slocalhost:%u", scheme, port);
    cleanup_free char *number =
        xasprintf("%s" STR_HOST ":%u", scheme, STR_HOST_ARG(address), port);
    return !strcasecmp(text, name) || !strcasecmp(text, number);
}

const char *serve_check(const char *token, const char *address, unsigned port,
                        const char *host, const char *origin, const char *path,
                        struct err *err)
{
    size_t n = strlen(token);
    if (!host || !is_ours(host, "", address, port)) {
        err_set(err, ERR_FORBIDDEN, "Host must be " STR_HOST ":%u or localhost:%u",
                STR_HOST_ARG(address), port, port);
        return NULL;
    }
    if (origin && !is_ours(origin, "http://", address, port)) {
        err_set(err, ERR_FORBIDDEN, "requests of other origins are not answered");
        return NULL;
    }
    if (strlen(path) < n + 2 || path[0] != '/' || gnutls_memcmp(path + 1, token, n) ||
        path[n + 1] != '/') {
        err_set(err, ERR_FORBIDDEN,
                "open the URL that kubectl inspect gpushare --serve has printed");
        return NULL;
    }
    return path + n + 1;
}

static const char *checked(const struct serve *s, const struct httpd_request *req,
                           struct err *err)
{
    return serve_check(s->token, s->address, s->port, httpd_header(req, "Host"),
                       httpd_header(req, "Origin"), req->path, err);
}

static bool authorize(void *ctx, const struct httpd_request *req,
                      struct httpd_reply *reply)
{
    struct err err;
    if (checked(ctx, req, &err))
        return true;
    httpd_fail(reply, 403, "%s", err.msg);
    return false;
}

static void on_get(void *ctx, const struct httpd_request *req, struct httpd_reply *reply)
{
    const struct serve *s = ctx;
    struct err err;
    struct httpd_request inner = *req;
    inner.path = checked(s, req, &err);
    if (strcmp(inner.path, "/inspect") != 0) {
        view_web_answer(&inner, reply);
        return;
    }
    view_watch_answer(s->inspect, false, httpd_is_watch(req), INT64_MAX, reply);
    httpd_add_header(reply, "Cache-Control", "no-store");
}

int serve_run(struct session *session, struct err *err)
{
    static const struct httpd_route routes[] = {{"GET", "/*", on_get},
                                                {NULL, NULL, NULL}};
    static const struct timespec now = {0};
    struct view_source source = cluster_state_source(session->state);
    struct view_watch_limit limit = {.what = "replies", .most = CONNECTIONS};
    struct serve s = {.address = "127.0.0.1"};
    struct httpd_listener_config listener = {.name = "page",
                                             .address = s.address,
                                             .mode = HTTPD_EVENTS,
                                             .connections = CONNECTIONS,
                                             .authorize = authorize,
                                             .authorize_ctx = &s,
                                             .routes = routes,
                                             .ctx = &s};
    sigset_t signals = signals_block();
    snprintf(s.token, sizeof s.token, "%016" PRIx64 "%016" PRIx64, rng_entropy(),
             rng_entropy());
    s.inspect = view_watch_new(
        &(struct view_watch_config){.kind = &view_watch_inspect,
                                    .ctx = &source,
                                    .source = &source,
                                    .lists = &limit,
                                    .watches = &limit,
                                    .heartbeat_ms = VIEW_WATCH_HEARTBEAT_MS});
    struct httpd *d = httpd_new(NULL);
    int rc = httpd_listen(d, &listener, &s.port, err);
    if (rc) { /* the machine has no address of IPv4 */
        listener.address = s.address = "::1";
        rc = httpd_listen(d, &listener, &s.port, err);
    }
    if (rc == 0) {
        cleanup_buf struct buf text = {0};
        buf_printf(
            &text,
            "serving the page on http://" STR_HOST ":%u/%s/\n"
            "It shows the cluster with the rights of your kubeconfig to anyone with "
            "this URL; Ctrl-C ends it.\n",
            STR_HOST_ARG(s.address), s.port, s.token);
        rc = entry_print(&text, err);
        while (rc == 0 && sigtimedwait(&signals, NULL, &now) < 0) {
            session_wait(session, SIGNAL_MS);
            if (session_check_current(session, err) < 0 && err->code != ERR_UNAUTHORIZED)
                rc = -1; /* a new login may follow, but no new kubectl */
        }
    }
    httpd_free(d);
    view_watch_free(s.inspect);
    return rc;
}
