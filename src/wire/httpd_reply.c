/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "wire/httpd_priv.h"

/* For the reply of a connection that must leave. */
enum { LEAVE_MS = 1000 };

static bool path_matches(const struct httpd_route *route, const char *path)
{
    size_t n = strlen(route->path);
    if (n && route->path[n - 1] == '*')
        return strncmp(route->path, path, n - 1) == 0;
    return strcmp(route->path, path) == 0;
}

static bool method_matches(const struct httpd_route *route, const char *method)
{
    return !route->method || strcmp(route->method, method) == 0 ||
           (strcmp(method, "HEAD") == 0 && strcmp(route->method, "GET") == 0);
}

void httpd_route(struct httpd_conn *p)
{
    bool known = false;
    for (const struct httpd_route *r = p->listener->conf.routes; r->handler; r++) {
        if (!path_matches(r, p->target.p))
            continue;
        known = true;
        if (!method_matches(r, p->method))
            continue;
        p->route = r;
        const char *const *probe = p->listener->conf.probes;
        for (; probe && *probe && !p->is_probe; probe++)
            p->is_probe = strcmp(*probe, r->path) == 0;
        return;
    }
    p->error_status = known ? MHD_HTTP_METHOD_NOT_ALLOWED : MHD_HTTP_NOT_FOUND;
    p->why = known ? "method not allowed" : "path not found";
}

/* The methods of all routes for the path, each once. */
static void allowed(const struct httpd_conn *p, struct buf *out)
{
    const struct httpd_route *routes = p->listener->conf.routes;
    for (const struct httpd_route *r = routes; r->handler; r++) {
        if (!path_matches(r, p->target.p))
            continue;
        bool seen = false;
        for (const struct httpd_route *q = routes; q < r && !seen; q++)
            seen = path_matches(q, p->target.p) && strcmp(q->method, r->method) == 0;
        if (seen)
            continue;
        buf_adds(out, out->n ? ", " : "");
        buf_adds(out, strcmp(r->method, "GET") == 0 ? "GET, HEAD" : r->method);
    }
}

void httpd_fail(struct httpd_reply *reply, unsigned status, const char *fmt, ...)
{
    cleanup_buf struct buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    reply->status = status;
    reply->content_type = "application/json";
    reply->gzip = false;
    buf_clear(&reply->body);
    buf_adds(&reply->body, "{\"error\":");
    buf_add_json(&reply->body, buf_span(&text));
    buf_adds(&reply->body, "}\n");
}

/* libmicrohttpd has sent the reply, or dropped it. */
static void on_sent(void *cls)
{
    struct httpd_conn *p = cls;
    buf_fini(&p->sent);
    budget_give(p->budget, p->budget_bytes);
    p->budget = NULL;
}

static struct MHD_Response *whole(struct httpd_conn *p, struct httpd_reply *reply)
{
    if (reply->fixed.n) {
        buf_fini(&reply->body);
        return MHD_create_response_from_buffer(reply->fixed.n, (void *)reply->fixed.p,
                                               MHD_RESPMEM_PERSISTENT);
    }
    p->sent = reply->body;
    p->budget = reply->budget;
    p->budget_bytes = reply->charged;
    reply->body = (struct buf){0};
    struct MHD_Response *r = MHD_create_response_from_buffer_with_free_callback_cls(
        p->sent.n, p->sent.p ? p->sent.p : (char *)"", on_sent, p);
    if (!r)
        on_sent(p);
    return r;
}

static void add_headers(const struct httpd_conn *p, struct MHD_Response *r,
                        const struct httpd_reply *reply)
{
    if (reply->content_type)
        MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, reply->content_type);
    if (reply->gzip)
        MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_ENCODING, "gzip");
    for (size_t i = 0; i < ARRAY_LEN(reply->header) && reply->header[i][0]; i++)
        if (MHD_add_response_header(r, reply->header[i][0], reply->header[i][1]) !=
            MHD_YES)
            log_warn("httpd", "reply header: rejected by libmicrohttpd; not sent",
                     LOG_S("header", reply->header[i][0]));
    if (atomic_load(&p->listener->d->state) != HTTPD_RUNNING || atomic_load(&p->leaving))
        MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION, "close");
}

static void discard(struct httpd_reply *reply)
{
    buf_fini(&reply->body);
    if (reply->stream)
        reply->stream->close(reply->stream_ctx);
    budget_give(reply->budget, reply->charged);
}

static enum MHD_Result send_reply(struct httpd_conn *p, struct httpd_reply *reply)
{
    int64_t now = clock_mono_ms();
    int64_t due = now + (atomic_load(&p->leaving) ? LEAVE_MS : p->listener->conf.idle_ms);
    if (reply->abort || !httpd_conn_enter(p, HTTPD_SEND, due)) {
        discard(reply);
        return MHD_NO;
    }
    struct MHD_Response *r = reply->stream ? httpd_stream_new(p, reply) : whole(p, reply);
    if (!r)
        return MHD_NO;
    add_headers(p, r, reply);
    /* libmicrohttpd would send the last chunk also for a HEAD request, and the client
     * would take it for the next reply. Without chunks, the connection is closed instead.
     */
    if (reply->stream && !reply->stream_length && strcmp(p->method, "HEAD") == 0)
        MHD_set_response_options(r, MHD_RF_HTTP_1_0_COMPATIBLE_STRICT, MHD_RO_END);
    enum MHD_Result queued = MHD_queue_response(p->mhd, reply->status, r);
    MHD_destroy_response(r);
    return queued;
}

static const struct httpd_reply new_reply = {.status = MHD_HTTP_OK,
                                             .content_type = "application/json"};

enum MHD_Result httpd_reject(struct httpd_conn *p)
{
    cleanup_buf struct buf allow = {0};
    struct httpd_reply reply = new_reply;
    httpd_fail(&reply, p->error_status, "%s", p->why);
    if (p->error_status == MHD_HTTP_METHOD_NOT_ALLOWED) {
        allowed(p, &allow);
        reply.header[0][0] = MHD_HTTP_HEADER_ALLOW;
        reply.header[0][1] = allow.p;
    } else if (p->error_status == MHD_HTTP_SERVICE_UNAVAILABLE) {
        reply.header[0][0] = MHD_HTTP_HEADER_RETRY_AFTER;
        reply.header[0][1] = "1";
    }
    return send_reply(p, &reply);
}

static struct httpd_request request_of(struct httpd_conn *p)
{
    return (struct httpd_request){.method = p->method,
                                  .path = p->target.p,
                                  .query = p->query,
                                  .body = p->body.n ? buf_span(&p->body) : SPAN(""),
                                  .conn = p};
}

bool httpd_authorize(struct httpd_conn *p, enum MHD_Result *result)
{
    const struct httpd_listener_config *conf = &p->listener->conf;
    if (p->authorized || !conf->authorize)
        return true;
    struct httpd_request req = request_of(p);
    struct httpd_reply reply = new_reply;
    req.body = SPAN("");
    for (;;) {
        p->authorized = conf->authorize(conf->authorize_ctx, &req, &reply);
        if (!p->waiter)
            break;
        if (!httpd_wait_block(p)) {
            discard(&reply);
            *result = MHD_YES;
            return false;
        }
        httpd_wait_end(p);
        discard(&reply);
        reply = new_reply;
        if (atomic_load(&p->listener->d->state) == HTTPD_STOPPING ||
            httpd_conn_is_closed(p)) {
            reply.abort = true;
            p->authorized = false;
            break;
        }
    }
    if (p->authorized) {
        discard(&reply);
        return true;
    }
    p->must_linger = p->chunked || p->length;
    *result = send_reply(p, &reply);
    return false;
}

enum MHD_Result httpd_handle(struct httpd_conn *p)
{
    enum MHD_Result rejected;
    httpd_wait_end(p); /* resumed */
    if (!httpd_conn_enter(p, HTTPD_WORK, INT64_MAX))
        return MHD_NO;
    if (!httpd_authorize(p, &rejected))
        return rejected;
    if (!httpd_slot_take(p)) {
        p->error_status = MHD_HTTP_SERVICE_UNAVAILABLE;
        p->why = "too many requests are being handled";
        return httpd_reject(p);
    }
    struct httpd_request req = request_of(p);
    struct httpd_reply reply = new_reply;
    p->route->handler(p->listener->conf.ctx, &req, &reply);
    httpd_slot_release(p);
    httpd_conn_uncharge(p);
    buf_fini(&p->body);
    return send_reply(p, &reply);
}
