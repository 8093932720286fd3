/* SPDX-License-Identifier: Apache-2.0 */

/* --serve: the web page on 127.0.0.1, and its stream of changes. */

#include "cli/serve.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "view/changes.h"
#include "view/inspect.h"
#include "view/web.h"
#include "wire/entry.h"
#include "wire/httpd.h"

enum {
    CHUNK = 16 * 1024, /* bytes written at a time */
    ROUND_MS = 1000,   /* minimum between two scans of a reader */
    HEARTBEAT_MS = 15 * 1000,
};

struct reader {
    struct view_source source;
    struct view_changes *changes;
    struct buf state; /* of the last line about the cluster */
    int64_t next_ms, sent_ms;
    bool synced; /* the initial state is complete */
};

/* The reasons of pending pods take a scan of all nodes for each request. */
static void write_cluster(struct reader *r, struct buf *out)
{
    struct buf state = {0};
    view_inspect_state(&r->source, &state);
    if (!span_eq(buf_span(&state), buf_span(&r->state))) {
        buf_adds(out, "{\"Cluster\":{");
        view_inspect_write_cluster(&r->source, out);
        buf_adds(out, "},\"Type\":\"SYNCED\"}\n");
    }
    buf_fini(&r->state);
    r->state = state;
}

static enum httpd_stream_result reader_fill(void *ctx, struct httpd_open_stream *waker,
                                            struct buf *out)
{
    struct reader *r = ctx;
    (void)waker; /* the server's periodic poll is enough */
    int64_t now_ms = clock_mono_ms();
    if (now_ms < r->next_ms)
        return HTTPD_STREAM_WAIT;
    if (view_changes_write(r->changes, CHUNK, out)) {
        r->next_ms = now_ms + ROUND_MS;
        write_cluster(r, out);
        if (!r->synced || (!out->n && now_ms - r->sent_ms >= HEARTBEAT_MS))
            buf_addc(out, '\n');
        r->synced = true;
    }
    if (!out->n)
        return HTTPD_STREAM_WAIT;
    r->sent_ms = now_ms;
    return HTTPD_STREAM_MORE;
}

static void reader_close(void *ctx)
{
    struct reader *r = ctx;
    view_changes_free(r->changes);
    buf_fini(&r->state);
    free(r);
}

enum {
    TOKEN_BYTES = 16,
    CONNECTIONS = 64, /* a browser opens six */
    SIGNAL_MS = 200,  /* between two looks for a signal */
};

struct serve {
    struct view_source source;
    char token[2 * TOKEN_BYTES + 1];
    unsigned port;
};

static bool is_ours(struct span authority, unsigned port)
{
    cleanup_buf struct buf name = {0}, address = {0};
    buf_printf(&name, "localhost:%u", port);
    buf_printf(&address, "127.0.0.1:%u", port);
    return span_eq_nocase(authority, buf_span(&name)) ||
           span_eq_nocase(authority, buf_span(&address));
}

static bool is_our_origin(struct span origin, unsigned port)
{
    struct span scheme = SPAN("http://");
    if (!span_starts(origin, scheme))
        return false;
    return is_ours((struct span){origin.p + scheme.n, origin.n - scheme.n}, port);
}

/* Takes as long for every token of the same length. */
static bool is_token(const char *given, const char *token)
{
    unsigned char different = 0;
    for (size_t i = 0; token[i]; i++)
        different |= (unsigned char)(given[i] ^ token[i]);
    return !different;
}

const char *serve_check(const char *token, unsigned port, const char *host,
                        const char *origin, const char *path, struct err *err)
{
    size_t n = strlen(token);
    if (!host || !is_ours(span_of(host), port)) {
        err_set(err, ERR_FORBIDDEN, "Host must be 127.0.0.1:%u or localhost:%u", port,
                port);
        return NULL;
    }
    if (origin && !is_our_origin(span_of(origin), port)) {
        err_set(err, ERR_FORBIDDEN, "requests of other origins are not answered");
        return NULL;
    }
    if (strlen(path) < n + 2 || path[0] != '/' || !is_token(path + 1, token) ||
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
    return serve_check(s->token, s->port, httpd_header(req, "Host"),
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
    static const struct httpd_stream stream = {.fill = reader_fill,
                                               .close = reader_close};
    const struct serve *s = ctx;
    struct err err;
    struct httpd_request inner = *req;
    inner.path = checked(s, req, &err);
    if (strcmp(inner.path, "/inspect") != 0) {
        view_web_answer(&inner, reply);
        return;
    }
    if (httpd_is_watch(req)) {
        struct reader *r = xcalloc(1, sizeof *r);
        r->source = s->source;
        r->changes = view_changes_new(&s->source);
        reply->stream = &stream;
        reply->stream_ctx = r;
    } else {
        view_inspect_all(&s->source, &reply->body);
    }
    httpd_add_header(reply, "Cache-Control", "no-store");
}

int serve_run(struct session *session, struct err *err)
{
    static const struct httpd_route routes[] = {{"GET", "/*", on_get},
                                                {NULL, NULL, NULL}};
    static const struct timespec now = {0};
    struct serve s = {.source = cluster_state_source(session->state)};
    const struct httpd_listener_config listener = {.name = "page",
                                                   .address = "127.0.0.1",
                                                   .mode = HTTPD_EVENTS,
                                                   .connections = CONNECTIONS,
                                                   .authorize = authorize,
                                                   .authorize_ctx = &s,
                                                   .routes = routes,
                                                   .ctx = &s};
    unsigned char bytes[TOKEN_BYTES];
    sigset_t signals = signals_block();
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return err_set(err, ERR_UNAVAILABLE, "random numbers: %s", strerror(errno));
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(s.token + 2 * i, 3, "%02x", bytes[i]);
    struct httpd *d = httpd_new(NULL);
    int rc = httpd_listen(d, &listener, &s.port, err);
    if (rc == 0) {
        cleanup_buf struct buf text = {0};
        buf_printf(
            &text,
            "serving the page on http://127.0.0.1:%u/%s/\n"
            "It shows the cluster with the rights of your kubeconfig to anyone with "
            "this URL; Ctrl-C ends it.\n",
            s.port, s.token);
        rc = entry_print(&text, err);
        while (rc == 0 && sigtimedwait(&signals, NULL, &now) < 0)
            session_wait(session, SIGNAL_MS);
    }
    httpd_free(d);
    return rc;
}
