/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "wire/tls.h"

/* HTTP in front of the API: threads, watches, compression. */

bool sim_gzip_wanted(const char *accept_encoding)
{
    struct span rest = span_of(accept_encoding);
    while (rest.n)
        if (span_eq(span_trim(span_cut(&rest, ',')), SPAN("gzip")))
            return true;
    return false;
}

static void compress_reply(struct sim_server *s, struct httpd_reply *reply)
{
    enum { LEVEL = 1, GZIP_WINDOW = 15 + 16, MEMORY = 8 /* zlib's default */ };
    if (reply->body.n <= SIM_GZIP_ABOVE)
        return; /* a watch has no body */
    cleanup_buf struct buf plain = reply->body;
    z_stream z = {.next_in = (Bytef *)plain.p, .avail_in = (uInt)plain.n};
    if (deflateInit2(&z, LEVEL, Z_DEFLATED, GZIP_WINDOW, MEMORY, Z_DEFAULT_STRATEGY) !=
        Z_OK)
        abort();
    reply->body = (struct buf){0};
    buf_reserve(&reply->body, deflateBound(&z, plain.n));
    z.next_out = (Bytef *)reply->body.p;
    z.avail_out = (uInt)reply->body.cap;
    deflate(&z, Z_FINISH); /* has room for all */
    reply->body.n = z.total_out;
    deflateEnd(&z);
    reply->gzip = true;
    httpd_add_header(reply, "Vary", "Accept-Encoding");
    pthread_mutex_lock(&s->lock);
    s->compressed++;
    pthread_mutex_unlock(&s->lock);
}

enum { PIECE = 64 * 1024 }; /* approximate bytes of events per call */

struct stream {
    struct sim_server *server;
    struct api_watch *watch;
    struct list link;
    struct httpd_open_stream *waker; /* NULL before the first fill */
    enum httpd_stream_result fate;   /* HTTPD_STREAM_MORE: the watch is open */
};

/* -- watches -- */

static void wake(void *ctx)
{
    struct stream *st = ctx;
    httpd_stream_wake(st->waker);
}

static enum httpd_stream_result take_events(struct stream *st, struct buf *out)
{
    if (st->fate != HTTPD_STREAM_MORE)
        return st->fate;
    struct span resource = span_of(api_watch_resource(st->watch));
    if (st->server->stalled[sim_kind_index(sim_kind_by_resource(resource))])
        return HTTPD_STREAM_WAIT;
    int64_t now_ms = front_now_ms();
    int rc = 1;
    while (rc > 0 && out->n < PIECE)
        rc = api_watch_next(st->watch, now_ms, out);
    return rc < 0 ? HTTPD_STREAM_END : rc == 0 ? HTTPD_STREAM_WAIT : HTTPD_STREAM_MORE;
}

static enum httpd_stream_result fill_watch(void *ctx, struct httpd_open_stream *waker,
                                           struct buf *out)
{
    struct stream *st = ctx;
    pthread_mutex_lock(&st->server->lock);
    bool first = !st->waker;
    st->waker = waker;
    if (first)
        api_watch_on_ready(st->watch, wake, st);
    enum httpd_stream_result more = take_events(st, out);
    pthread_mutex_unlock(&st->server->lock);
    return more;
}

static void close_watch(void *ctx)
{
    struct stream *st = ctx;
    pthread_mutex_lock(&st->server->lock);
    list_remove(&st->link);
    api_watch_free(st->watch);
    pthread_mutex_unlock(&st->server->lock);
    free(st);
}

static const struct httpd_stream watch_stream = {.fill = fill_watch,
                                                 .close = close_watch};

size_t sim_stream_order(struct sim_server *s, const char *resource,
                        enum stream_order order)
{
    size_t n = 0;
    LIST_EACH(struct stream, st, &s->streams, link)
    {
        if (resource && strcmp(resource, api_watch_resource(st->watch)) != 0)
            continue;
        n++;
        if (order == STREAM_COUNT)
            continue;
        if (order != STREAM_WAKE)
            st->fate = order == STREAM_CUT ? HTTPD_STREAM_ABORT : HTTPD_STREAM_END;
        if (st->waker)
            httpd_stream_wake(st->waker);
    }
    return n;
}

enum {
    REQUEST_MS = 60 * 1000, /* of requests without ?timeout */
    DRAIN_MS = 3000,
    MAX_BODY = 16 << 20, /* for /kube-sim/load; the API has a lower limit */
};

/* -- replies -- */

static void set_retry_after(struct sim_server *s, int64_t seconds,
                            struct httpd_reply *reply)
{
    if (seconds <= 0 || seconds > RETRY_AFTER_MAX)
        return;
    httpd_add_header(reply, "Retry-After", s->seconds[seconds]);
}

static void answer_timeout(struct httpd_reply *reply)
{
    reply->status = 504;
    reply->content_type = SIM_STATUS_TIMEOUT_TYPE;
    sim_status_write_timeout(&reply->body);
}

/* Moves the reply of the API. The lock is held until the watch is in the list of streams,
 * so that stream orders reach it. */
static void take_reply(struct sim_server *s, struct api_reply *from,
                       struct httpd_reply *to)
{
    to->status = from->status;
    if (from->content_type)
        to->content_type = from->content_type;
    set_retry_after(s, from->retry_after_s, to);
    struct buf spare = to->body; /* empty, but may own memory */
    to->body = from->body;
    from->body = spare;
    if (!from->watch)
        return;
    struct stream *st = xcalloc(1, sizeof *st);
    *st = (struct stream){
        .server = s, .watch = steal(&from->watch), .fate = HTTPD_STREAM_MORE};
    list_append(&s->streams, &st->link);
    to->stream = &watch_stream;
    to->stream_ctx = st;
}

static void apply(struct sim_server *s, const struct api_request *req,
                  struct httpd_reply *to)
{
    struct api_reply reply = {0};
    pthread_mutex_lock(&s->lock);
    api_handle(s->api, front_now_ms(), req, &reply);
    if (to)
        take_reply(s, &reply, to);
    api_watch_free(steal(&reply.watch)); /* the reply is dropped */
    pthread_mutex_unlock(&s->lock);
    api_reply_fini(&reply);
}

/* -- faults -- */

static int64_t time_limit_ms(const struct api_request *req)
{
    int64_t ms;
    cleanup_query struct query q;
    sim_query_init(&q, req->query);
    if (sim_query_timeout_ms(&q, &ms, NULL) || ms <= 0 || ms > REQUEST_MS)
        return REQUEST_MS;
    return ms;
}

/* A request that times out while it hangs is not executed: a real server passes the
 * deadline to etcd. */
static void hang(struct sim_server *s, const struct fault *fault,
                 const struct api_request *req, struct httpd_reply *reply)
{
    int64_t limit_ms = time_limit_ms(req);
    bool late = fault->hang_ms >= limit_ms;
    int64_t until_ms = clock_mono_ms() + (late ? limit_ms : fault->hang_ms);
    pthread_mutex_lock(&s->lock);
    while (!s->is_stopping && thread_wait_until(&s->stopped, &s->lock, until_ms))
        continue;
    pthread_mutex_unlock(&s->lock);
    if (late)
        answer_timeout(reply);
    else if (fault->action == FAULT_HANG_CUT)
        reply->abort = true;
    else
        apply(s, req, reply);
}

static void answer_fault(struct sim_server *s, const struct fault *fault,
                         struct httpd_reply *reply)
{
    reply->status = fault->status;
    set_retry_after(s, fault->retry_after_s, reply);
    faults_status(fault, &reply->body);
}

static void carry_out(struct sim_server *s, const struct fault *fault,
                      const struct api_request *req, struct httpd_reply *reply)
{
    enum fault_action action = fault->action;
    if (action == FAULT_APPLY_ANSWER || action == FAULT_APPLY_CUT)
        apply(s, req, NULL);
    if (action == FAULT_NONE)
        apply(s, req, reply);
    else if (action == FAULT_HANG || action == FAULT_HANG_CUT)
        hang(s, fault, req, reply);
    else if (action == FAULT_CUT || action == FAULT_APPLY_CUT)
        reply->abort = true;
    else
        answer_fault(s, fault, reply);
}

/* -- requests -- */

static bool is_allowed(const struct sim_server *s, const struct httpd_request *req)
{
    const char *given = httpd_header(req, "Authorization");
    return !s->authorization || (given && strcmp(given, s->authorization) == 0);
}

static void handle_api(struct sim_server *s, const struct httpd_request *req,
                       struct httpd_reply *reply)
{
    struct api_request r = {.method = req->method,
                            .path = req->path,
                            .query = req->query,
                            .content_type = httpd_header(req, "Content-Type"),
                            .body = req->body};
    struct api_target target;
    struct fault fault = {0};
    if (api_classify(&r, &target)) {
        pthread_mutex_lock(&s->lock);
        fault = faults_check(s->faults, req->method, &target);
        pthread_mutex_unlock(&s->lock);
    }
    carry_out(s, &fault, &r, reply);
    if (sim_gzip_wanted(httpd_header(req, "Accept-Encoding")))
        compress_reply(s, reply);
}

static void handle(void *ctx, const struct httpd_request *req, struct httpd_reply *reply)
{
    struct sim_server *s = ctx;
    if (!is_allowed(s, req)) {
        reply->status = 401;
        sim_status_write(&reply->body, 401, "Unauthorized", "Unauthorized", NULL);
    } else if (span_starts(span_of(req->path), SPAN("/kube-sim/"))) {
        sim_control_handle(s, req, reply);
    } else {
        handle_api(s, req, reply);
    }
    log_debug("server", "request", LOG_S("method", req->method), LOG_S("path", req->path),
              LOG_S("query", req->query),
              LOG_I("status", reply->abort ? 0 : reply->status));
}

/* -- start and stop -- */

static const struct httpd_route routes[] = {{NULL, "/*", handle}, {0}};

static void free_server(struct sim_server *s)
{
    httpd_free(s->httpd);
    tls_free(s->tls);
    faults_free(s->faults);
    pthread_cond_destroy(&s->stopped);
    pthread_mutex_destroy(&s->lock);
    free(s->authorization);
    free(s);
}

static struct sim_server *new_server(struct api *api,
                                     const struct sim_server_config *config)
{
    struct sim_server *s = xcalloc(1, sizeof *s);
    list_init(&s->streams);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->stopped, NULL);
    s->api = api;
    s->faults = faults_new();
    if (config->token)
        s->authorization = xasprintf("Bearer %s", config->token);
    for (int i = 0; i <= RETRY_AFTER_MAX; i++)
        snprintf(s->seconds[i], sizeof s->seconds[i], "%d", i);
    return s;
}

struct sim_server *sim_server_start(struct api *api,
                                    const struct sim_server_config *config,
                                    unsigned *port, struct err *err)
{
    struct sim_server *s = new_server(api, config);
    struct httpd_listener_config listener = {.name = "api",
                                             .address = config->address,
                                             .port = config->port,
                                             .mode = HTTPD_THREADS,
                                             .connections = config->connections,
                                             .max_body = MAX_BODY,
                                             .routes = routes,
                                             .ctx = s};
    s->httpd = httpd_new(NULL);
    const struct tls_config tls = {
        .name = "api", .cert_file = config->cert_file, .key_file = config->key_file};
    if (config->cert_file)
        listener.tls = s->tls = tls_new(&tls, err);
    if ((config->cert_file && !s->tls) || httpd_listen(s->httpd, &listener, port, err)) {
        free_server(s);
        return NULL;
    }
    return s;
}

void sim_server_tick(struct sim_server *s, int64_t now_ms)
{
    pthread_mutex_lock(&s->lock);
    api_tick(s->api, now_ms);
    pthread_mutex_unlock(&s->lock);
}

void sim_server_stop(struct sim_server *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->is_stopping = true;
    pthread_cond_broadcast(&s->stopped);
    pthread_mutex_unlock(&s->lock);
    httpd_drain(s->httpd, DRAIN_MS);
    free_server(s);
}
