/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A request: libmicrohttpd's callbacks, target and headers, routes,
 * authorization, how many handlers run at once, the call of the handler, and its reply.
 */

#include <assert.h>
#include <ctype.h>
#include <poll.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "wire/httpd_priv.h"

/* -- Target and headers -- */

/* Only the form of a path: absolute targets (RFC 9112, section 3.2.2) are for proxies. The
 * escape %00 is invalid. */
static bool is_target_valid(const char *s)
{
    if (*s != '/')
        return false;
    for (; *s; s++) {
        if ((unsigned char)*s <= ' ' || *s == 0x7f)
            return false;
        if (*s == '%' && (!isxdigit((unsigned char)s[1]) ||
                          !isxdigit((unsigned char)s[2]) || !strncmp(s + 1, "00", 2)))
            return false;
    }
    return true;
}

bool httpd_is_watch(const struct httpd_request *req)
{
    struct span rest = span_of(req->query);
    while (rest.n)
        if (span_eq(span_cut(&rest, '&'), SPAN("watch=true")))
            return true;
    return false;
}

const char *httpd_header(const struct httpd_request *req, const char *name)
{
    const char *value = NULL;
    if (MHD_lookup_connection_value_n(req->conn->mhd, MHD_HEADER_KIND, name, strlen(name),
                                      &value, NULL) != MHD_YES)
        return NULL;
    return value ? value : "";
}

const char *httpd_client_name(const struct httpd_request *req, enum tls_group group)
{
    const struct tls_client *client = &req->conn->client;
    return group == TLS_ANY || client->trusted[group] ? client->name : NULL;
}

void httpd_trust(const struct httpd_request *req)
{
    atomic_store(&req->conn->trusted, true);
}

/* -- Replies; a stream is in httpd_stream.c -- */

static const struct httpd_reply reply_new = {.status = MHD_HTTP_OK,
                                             .content_type = "application/json"};

/* For the reply of a connection that must leave. */
enum { LEAVE_MS = 1000 };

void httpd_add_header(struct httpd_reply *reply, const char *name, const char *value)
{
    size_t i = 0;
    while (reply->header[i][0])
        i++, assert(i < ARRAY_LEN(reply->header));
    reply->header[i][0] = name;
    reply->header[i][1] = value;
}

void httpd_version(void *ctx, const struct httpd_request *req, struct httpd_reply *reply)
{
    (void)ctx, (void)req;
    buf_adds(&reply->body, "{\"version\":\"" GPUSHARE_VERSION "\"}");
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
    if (status == MHD_HTTP_SERVICE_UNAVAILABLE)
        httpd_add_header(reply, MHD_HTTP_HEADER_RETRY_AFTER, "1");
}

/* Also when libmicrohttpd has sent the reply, or dropped it. */
static void reply_drop(void *cls)
{
    struct httpd_reply *reply = cls;
    buf_fini(&reply->body);
    if (reply->stream)
        reply->stream->close(reply->stream_ctx);
    budget_give(reply->budget, reply->charged);
    *reply = reply_new;
}

static struct MHD_Response *make_whole(struct httpd_conn *p, struct httpd_reply *reply)
{
    if (reply->fixed.n) {
        buf_fini(&reply->body);
        return MHD_create_response_from_buffer(reply->fixed.n, (void *)reply->fixed.p,
                                               MHD_RESPMEM_PERSISTENT);
    }
    p->sent = *reply;
    const struct buf *body = &p->sent.body;
    struct MHD_Response *r = MHD_create_response_from_buffer_with_free_callback_cls(
        body->n, body->p ? body->p : (char *)"", reply_drop, &p->sent);
    if (!r)
        reply_drop(&p->sent);
    return r;
}

/* Queues the reply, or returns MHD_NO to close the connection. Takes the body and the
 * stream. */
static enum MHD_Result reply_send(struct httpd_conn *p, struct httpd_reply *reply)
{
    int64_t now = clock_mono_ms();
    int64_t due = now + (atomic_load(&p->leaving) ? LEAVE_MS : p->listener->d->send_ms);
    if (reply->abort || !httpd_conn_enter(p, HTTPD_SEND, due)) {
        reply_drop(reply);
        return MHD_NO;
    }
    struct MHD_Response *r =
        reply->stream ? httpd_stream_new(p, reply) : make_whole(p, reply);
    if (!r)
        return MHD_NO;
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
    /* libmicrohttpd would send the last chunk also for a HEAD request, and the client
     * would take it for the next reply. Without chunks, the connection is closed instead.
     */
    if (reply->stream && strcmp(p->request.method, "HEAD") == 0)
        MHD_set_response_options(r, MHD_RF_HTTP_1_0_COMPATIBLE_STRICT, MHD_RO_END);
    enum MHD_Result queued = MHD_queue_response(p->mhd, reply->status, r);
    MHD_destroy_response(r);
    return queued;
}

/* -- Handlers that run at once -- */

/* Handlers that may block; further requests wait until fewer of them run. */
static bool is_limited(const struct httpd_conn *p)
{
    return p->listener->conf.mode == HTTPD_THREADS && !p->is_probe;
}

/* Whether a handler may run. Connections remain that are not in a handler, and that a full
 * listener can close in favor of a probe. Requires httpd.lock. */
static bool has_handler(const struct httpd_conn *p)
{
    const struct httpd_listener *listener = p->listener;
    unsigned handlers = listener->conf.handlers, connections = listener->conf.connections;
    unsigned reserved = atomic_load(&p->trusted) ? 0 : handlers / 4;
    unsigned most = connections - (connections + 7) / 8;
    if (most < handlers)
        most = handlers;
    return listener->running + reserved < handlers &&
           listener->running + listener->held + reserved < most;
}

/* False: the request is rejected. */
static bool take_handler(struct httpd_conn *p)
{
    struct httpd_listener *listener = p->listener;
    struct httpd *d = listener->d;
    if (!is_limited(p))
        return true;
    pthread_mutex_lock(&d->lock);
    p->queued = true;
    while (!has_handler(p) && !p->leaving && atomic_load(&d->state) != HTTPD_STOPPING)
        pthread_cond_wait(&listener->handed, &d->lock);
    p->queued = false;
    bool taken = !p->leaving && has_handler(p);
    listener->running += taken;
    pthread_mutex_unlock(&d->lock);
    return taken;
}

void httpd_hold(const struct httpd_request *req)
{
    struct httpd_conn *p = req->conn;
    struct httpd_listener *listener = p->listener;
    if (!is_limited(p) || p->held)
        return;
    p->held = true;
    pthread_mutex_lock(&listener->d->lock);
    listener->running--;
    listener->held++;
    pthread_cond_broadcast(&listener->handed);
    pthread_mutex_unlock(&listener->d->lock);
}

bool httpd_client_gone(const struct httpd_request *req)
{
    const struct httpd_conn *p = req->conn;
    struct pollfd at = {.fd = p->fd, .events = POLLRDHUP};
    return atomic_load(&p->listener->d->state) == HTTPD_STOPPING || poll(&at, 1, 0) > 0;
}

static void release_handler(struct httpd_conn *p)
{
    struct httpd_listener *listener = p->listener;
    if (!is_limited(p))
        return;
    pthread_mutex_lock(&listener->d->lock);
    *(p->held ? &listener->held : &listener->running) -= 1;
    p->held = false;
    pthread_cond_broadcast(&listener->handed);
    pthread_mutex_unlock(&listener->d->lock);
}

/* -- Routes and handlers -- */

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

/* The request gets this reply instead of its handler's. */
static void set_error(struct httpd_conn *p, unsigned status, const char *why)
{
    p->error_status = status;
    p->why = why;
}

/* Sets p->route, or p->error_status to 404 or 405. */
static void find_route(struct httpd_conn *p)
{
    bool known = false;
    for (const struct httpd_route *r = p->listener->conf.routes; r->handler; r++) {
        if (!path_matches(r, p->request.path))
            continue;
        known = true;
        if (!method_matches(r, p->request.method))
            continue;
        p->route = r;
        const char *const *probe = p->listener->conf.probes;
        for (; probe && *probe && !p->is_probe; probe++)
            p->is_probe = strcmp(*probe, r->path) == 0;
        return;
    }
    if (known)
        set_error(p, MHD_HTTP_METHOD_NOT_ALLOWED, "method not allowed");
    else
        set_error(p, MHD_HTTP_NOT_FOUND, "path not found");
}

static enum MHD_Result reject(struct httpd_conn *p)
{
    cleanup_buf struct buf allow = {0};
    struct httpd_reply reply = reply_new;
    httpd_fail(&reply, p->error_status, "%s", p->why);
    if (p->error_status == MHD_HTTP_METHOD_NOT_ALLOWED) {
        for (const struct httpd_route *r = p->listener->conf.routes; r->handler; r++)
            if (path_matches(r, p->request.path))
                buf_printf(&allow, "%s%s", allow.n ? ", " : "",
                           strcmp(r->method, "GET") == 0 ? "GET, HEAD" : r->method);
        httpd_add_header(&reply, MHD_HTTP_HEADER_ALLOW, allow.p);
    }
    return reply_send(p, &reply);
}

/* Calls `authorize`, unless it has allowed the request. False: *result is that of its
 * reply, or the request is deferred and its connection suspended. */
static bool authorize(struct httpd_conn *p, enum MHD_Result *result)
{
    const struct httpd_listener_config *conf = &p->listener->conf;
    if (p->authorized || !conf->authorize)
        return true;
    struct httpd_reply reply = reply_new;
    for (;;) {
        p->authorized = conf->authorize(conf->authorize_ctx, &p->request, &reply);
        if (!p->deferred)
            break;
        if (!httpd_deferred_wait(p)) {
            reply_drop(&reply);
            *result = MHD_YES;
            return false;
        }
        httpd_deferred_release(p);
        reply_drop(&reply);
        if (atomic_load(&p->listener->d->state) == HTTPD_STOPPING ||
            httpd_conn_is_closed(p)) {
            reply.abort = true;
            p->authorized = false;
            break;
        }
    }
    if (p->authorized) {
        reply_drop(&reply);
        return true;
    }
    p->must_linger = p->chunked || p->length;
    *result = reply_send(p, &reply);
    return false;
}

static enum MHD_Result handle_request(struct httpd_conn *p)
{
    enum MHD_Result rejected;
    httpd_deferred_release(p); /* resumed */
    if (!httpd_conn_enter(p, HTTPD_WORK, INT64_MAX))
        return MHD_NO;
    if (!authorize(p, &rejected))
        return rejected;
    if (!take_handler(p)) {
        set_error(p, MHD_HTTP_SERVICE_UNAVAILABLE, "too many requests are being handled");
        return reject(p);
    }
    struct httpd_reply reply = reply_new;
    if (p->body.n)
        p->request.body = buf_span(&p->body);
    p->route->handler(p->listener->conf.ctx, &p->request, &reply);
    release_handler(p);
    httpd_conn_uncharge(p);
    buf_fini(&p->body);
    return reply_send(p, &reply);
}

/* -- Callbacks of libmicrohttpd -- */

/*
 * libmicrohttpd calls httpd_on_line after the request line; then httpd_on_request once with
 * the headers, once per piece of the body and once at its end, unless a reply was queued
 * before; then httpd_on_completed, in any case.
 *
 * A reply can be queued with the headers, which closes the connection, or at the end of
 * the body, but not in between.
 */

enum { PRESIZE_MAX = 64 << 10 };

/* Copies the raw target, which libmicrohttpd is about to decode and split in place. The
 * query is hidden from libmicrohttpd: with very many parameters it would run out of its
 * buffer and never reply. */
void *httpd_on_line(void *cls, const char *uri, struct MHD_Connection *mhd)
{
    (void)cls;
    struct httpd_conn *p =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    httpd_conn_begin(p);
    buf_clear(&p->target);
    buf_adds(&p->target, uri);
    char *query = (char *)strchr(uri, '?');
    p->request.query = query ? strchr(p->target.p, '?') + 1 : "";
    p->request.body = SPAN("");
    if (query)
        query[1] = '\0';
    return p;
}

struct head {
    unsigned hosts;
    const char *wrong; /* why the request is malformed, or NULL */
    bool has_length, chunked;
    uint64_t length;
};

static bool is_header_sane(struct span name, struct span value)
{
    for (size_t i = 0; i < value.n; i++)
        if (((unsigned char)value.p[i] < ' ' && value.p[i] != '\t') || value.p[i] == 0x7f)
            return false;
    return name.n && span_has_only(name, "!#$%&'*+-.^_`|~"); /* RFC 9110, 5.6.2 */
}

static enum MHD_Result on_header(void *cls, enum MHD_ValueKind kind, const char *name,
                                 size_t name_n, const char *value, size_t value_n)
{
    (void)kind;
    struct head *head = cls;
    struct span k = {name, name_n}, v = {value ? value : "", value ? value_n : 0};
    if (!is_header_sane(k, v))
        head->wrong = "malformed header";
    if (span_eq_nocase(k, SPAN("Content-Length"))) {
        if (head->has_length)
            head->wrong = "more than one Content-Length";
        else if (!v.n || strspn(v.p, "0123456789") != v.n)
            head->wrong = "malformed Content-Length";
        head->has_length = true;
        head->length = strtoull(v.p, NULL, 10); /* the largest one if it does not fit */
    } else if (span_eq_nocase(k, SPAN("Transfer-Encoding"))) {
        if (head->chunked || !span_eq_nocase(v, SPAN("chunked")))
            head->wrong = "unsupported Transfer-Encoding";
        head->chunked = true;
    } else if (span_eq_nocase(k, SPAN("Host"))) {
        head->hosts++;
    } else if (span_eq_nocase(k, SPAN("Expect"))) {
        if (!span_eq_nocase(v, SPAN("100-continue")))
            head->wrong = "unsupported Expect";
    }
    return head->wrong ? MHD_NO : MHD_YES;
}

static const char *read_head(struct httpd_conn *p, struct head *head)
{
    MHD_get_connection_values_n(p->mhd, MHD_HEADER_KIND, on_header, head);
    if (head->wrong)
        return head->wrong;
    if (head->hosts != 1 && !(p->http_1_0 && head->hosts == 0)) /* RFC 9112, 3.2 */
        return "expected exactly one Host header";
    if (head->chunked && head->has_length)
        return "both Content-Length and Transfer-Encoding";
    if (head->chunked && p->http_1_0)
        return "Transfer-Encoding in HTTP/1.0";
    if (!is_target_valid(p->target.p))
        return "malformed request target";
    return NULL;
}

static enum MHD_Result reject_now(struct httpd_conn *p, unsigned status, const char *why)
{
    set_error(p, status, why);
    p->must_linger = true;
    return reject(p);
}

/* A GET has no use for a large body. */
static size_t max_body(const struct httpd_conn *p)
{
    size_t max = p->listener->conf.max_body;
    bool get = p->route && p->route->method && strcmp(p->route->method, "GET") == 0;
    return get && max > HTTPD_GET_BODY_MAX ? HTTPD_GET_BODY_MAX : max;
}

static enum MHD_Result on_head(struct httpd_conn *p, const char *version)
{
    struct head head = {0};
    p->http_1_0 = strcmp(version, "HTTP/1.0") == 0;
    const char *wrong = read_head(p, &head);
    if (wrong)
        return reject_now(p, MHD_HTTP_BAD_REQUEST, wrong);
    p->chunked = head.chunked;
    p->length = head.length;
    find_route(p);
    if (!p->chunked && !p->length)
        return MHD_YES;
    if (p->error_status)
        return reject_now(p, p->error_status, p->why);
    enum MHD_Result rejected;
    /* Without a thread the request may have to wait, which is possible only at the end of
     * the body: libmicrohttpd calls again for a header when the connection is resumed. */
    if (p->listener->conf.mode == HTTPD_THREADS && !authorize(p, &rejected))
        return rejected;
    if (p->length > max_body(p))
        return reject_now(p, MHD_HTTP_CONTENT_TOO_LARGE, "request body is too large");
    buf_reserve(&p->body, p->length < PRESIZE_MAX ? p->length : PRESIZE_MAX);
    return MHD_YES;
}

static enum MHD_Result on_body(struct httpd_conn *p, const char *data, size_t n)
{
    if (httpd_conn_is_closed(p))
        return MHD_NO;
    if (!p->error_status && n > max_body(p) - p->body.n)
        set_error(p, MHD_HTTP_CONTENT_TOO_LARGE, "request body is too large");
    if (!p->error_status && !httpd_conn_charge(p, n))
        set_error(p, MHD_HTTP_SERVICE_UNAVAILABLE,
                  "too many bytes of request bodies in memory");
    /* Discards the body without closing the connection, because a reply can only be queued at
     * the end of the body. One with a Content-Length is at most max_body long. */
    if (p->error_status) {
        buf_fini(&p->body);
        httpd_conn_uncharge(p);
        p->discarded += n;
        return p->chunked && p->discarded > HTTPD_DISCARD_MAX ? MHD_NO : MHD_YES;
    }
    /* Doubles the buffer, but not beyond Content-Length. */
    if (!p->chunked && p->body.cap - p->body.n <= n) {
        uint64_t left = p->length - p->body.n;
        buf_reserve(&p->body, left < p->body.n + n ? left : p->body.n + n);
    }
    buf_add(&p->body, data, n);
    return MHD_YES;
}

enum MHD_Result httpd_on_request(void *cls, struct MHD_Connection *mhd, const char *url,
                                 const char *method, const char *version,
                                 const char *data, size_t *data_n, void **ctx)
{
    (void)cls, (void)mhd;
    struct httpd_conn *p = *ctx;
    if (!p->seen_head) {
        p->seen_head = true;
        p->request.method = method;
        p->request.path = url;
        return on_head(p, version);
    }
    if (*data_n) {
        size_t n = *data_n;
        *data_n = 0;
        return on_body(p, data, n);
    }
    return p->error_status ? reject(p) : handle_request(p);
}

void httpd_on_completed(void *cls, struct MHD_Connection *mhd, void **ctx,
                        enum MHD_RequestTerminationCode why)
{
    (void)cls, (void)mhd, (void)why;
    struct httpd_conn *p = *ctx;
    if (p)
        httpd_conn_end(p);
    *ctx = NULL;
}
