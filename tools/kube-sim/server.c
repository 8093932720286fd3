/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

#include "base/log.h"
#include "base/mem.h"

/* HTTP in front of the API: threads, watches, compression. */

enum {
    LEVEL = 1,
    WINDOW = 15 + 16, /* 15: the largest; 16: gzip format */
    MEMORY = 8,       /* zlib's default */
    ROOM = 16 * 1024, /* output bytes reserved at a time */
    INPUT_MAX = 1 << 30,
};

struct gzip {
    z_stream z;
};

bool sim_gzip_wanted(const char *accept_encoding)
{
    struct span rest = span_of(accept_encoding);
    while (rest.n)
        if (span_eq(span_trim(span_cut(&rest, ',')), SPAN("gzip")))
            return true;
    return false;
}

static void *take(void *opaque, unsigned n, unsigned size)
{
    (void)opaque;
    return xcalloc(n, size);
}

static void give(void *opaque, void *p)
{
    (void)opaque;
    free(p);
}

static struct gzip *sim_gzip_new(void)
{
    struct gzip *z = xcalloc(1, sizeof *z);
    z->z.zalloc = take;
    z->z.zfree = give;
    /* Fails only if zlib's version differs from its header's. */
    if (deflateInit2(&z->z, LEVEL, Z_DEFLATED, WINDOW, MEMORY, Z_DEFAULT_STRATEGY) !=
        Z_OK)
        abort();
    return z;
}

static void add_some(struct gzip *z, struct span bytes, int flush, struct buf *out)
{
    z->z.next_in = (Bytef *)(uintptr_t)bytes.p;
    z->z.avail_in = (uInt)bytes.n;
    do {
        buf_reserve(out, ROOM);
        size_t room = out->cap - out->n - 1;
        z->z.next_out = (Bytef *)out->p + out->n;
        z->z.avail_out = room < INPUT_MAX ? (uInt)room : INPUT_MAX;
        uInt before = z->z.avail_out;
        deflate(&z->z, flush);
        out->n += before - z->z.avail_out;
    } while (z->z.avail_out == 0);
    out->p[out->n] = '\0';
}

static void sim_gzip_add(struct gzip *z, struct span bytes, bool last, struct buf *out)
{
    for (; bytes.n > INPUT_MAX; bytes.p += INPUT_MAX, bytes.n -= INPUT_MAX)
        add_some(z, (struct span){bytes.p, INPUT_MAX}, Z_NO_FLUSH, out);
    add_some(z, bytes, last ? Z_FINISH : Z_NO_FLUSH, out);
}

static void sim_gzip_free(struct gzip *z)
{
    if (z)
        deflateEnd(&z->z);
    free(z);
}

enum { PIECE = 64 * 1024 }; /* approximate bytes of events per call */

struct stream {
    struct sim_server *server;
    struct api_watch *watch;
    struct stream *next, **link;
    struct httpd_open_stream *waker; /* NULL before open */
    enum httpd_stream_result fate;   /* HTTPD_STREAM_MORE: the watch is open */
};

static size_t stall_index(const char *resource)
{
    return sim_kind_index(sim_kind_by_resource(span_of(resource)));
}

/* -- watches -- */

static void wake(void *ctx)
{
    struct stream *st = ctx;
    httpd_stream_wake(st->waker);
}

static void open_watch(void *ctx, struct httpd_open_stream *waker)
{
    struct stream *st = ctx;
    pthread_mutex_lock(&st->server->lock);
    st->waker = waker;
    api_watch_on_ready(st->watch, wake, st);
    pthread_mutex_unlock(&st->server->lock);
}

static enum httpd_stream_result take_events(struct stream *st, struct buf *out)
{
    if (st->fate != HTTPD_STREAM_MORE)
        return st->fate;
    if (st->server->stalled[stall_index(api_watch_resource(st->watch))])
        return HTTPD_STREAM_WAIT;
    int64_t now_ms = front_now_ms();
    int rc = 1;
    while (rc > 0 && out->n < PIECE)
        rc = api_watch_next(st->watch, now_ms, out);
    return rc < 0 ? HTTPD_STREAM_END : rc == 0 ? HTTPD_STREAM_WAIT : HTTPD_STREAM_MORE;
}

static enum httpd_stream_result fill_watch(void *ctx, struct buf *out)
{
    struct stream *st = ctx;
    pthread_mutex_lock(&st->server->lock);
    enum httpd_stream_result more = take_events(st, out);
    pthread_mutex_unlock(&st->server->lock);
    return more;
}

static void close_watch(void *ctx)
{
    struct stream *st = ctx;
    pthread_mutex_lock(&st->server->lock);
    *st->link = st->next;
    if (st->next)
        st->next->link = st->link;
    api_watch_free(st->watch);
    pthread_mutex_unlock(&st->server->lock);
    free(st);
}

static const struct httpd_stream watch_stream = {
    .open = open_watch, .fill = fill_watch, .close = close_watch};

static void sim_stream_watch(struct sim_server *s, struct api_watch *w,
                             struct httpd_reply *reply)
{
    struct stream *st = xcalloc(1, sizeof *st);
    *st = (struct stream){.server = s,
                          .watch = w,
                          .next = s->streams,
                          .link = &s->streams,
                          .fate = HTTPD_STREAM_MORE};
    if (st->next)
        st->next->link = &st->next;
    s->streams = st;
    reply->stream = &watch_stream;
    reply->stream_ctx = st;
}

size_t sim_stream_order(struct sim_server *s, const char *resource,
                        enum stream_order order)
{
    size_t n = 0;
    for (struct stream *st = s->streams; st; st = st->next) {
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

/* -- lists -- */

struct list {
    struct api_list *list;
    struct gzip *gzip; /* NULL: no compression */
    struct buf piece;  /* before it is compressed */
};

static void open_list(void *ctx, struct httpd_open_stream *waker)
{
    (void)ctx;
    (void)waker;
}

/* The compressor may keep a whole piece; then the next piece is added. */
static enum httpd_stream_result fill_list(void *ctx, struct buf *out)
{
    struct list *l = ctx;
    bool more = true;
    if (!l->gzip)
        return api_list_next(l->list, out) ? HTTPD_STREAM_MORE : HTTPD_STREAM_END;
    while (more && !out->n) {
        buf_clear(&l->piece);
        more = api_list_next(l->list, &l->piece);
        sim_gzip_add(l->gzip, buf_span(&l->piece), !more, out);
    }
    return more ? HTTPD_STREAM_MORE : HTTPD_STREAM_END;
}

static void close_list(void *ctx)
{
    struct list *l = ctx;
    api_list_free(l->list);
    sim_gzip_free(l->gzip);
    buf_fini(&l->piece);
    free(l);
}

static const struct httpd_stream list_stream = {
    .open = open_list, .fill = fill_list, .close = close_list};

/* A list that fits into one piece becomes an ordinary body. */
static void sim_stream_list(struct api_list *list, struct httpd_reply *reply)
{
    if (!api_list_next(list, &reply->body)) {
        api_list_free(list);
        return;
    }
    struct list *l = xcalloc(1, sizeof *l);
    l->list = list;
    reply->stream = &list_stream;
    reply->stream_ctx = l;
}

static void sim_stream_compress(struct sim_server *s, struct httpd_reply *reply)
{
    if (reply->body.n <= SIM_GZIP_ABOVE)
        return; /* the first piece of a streamed list is larger; a watch has no body */
    cleanup_buf struct buf plain = reply->body;
    struct list *l = reply->stream_ctx;
    struct gzip *z = sim_gzip_new();
    reply->body = (struct buf){0};
    sim_gzip_add(z, buf_span(&plain), !l, &reply->body);
    if (l)
        l->gzip = z;
    else
        sim_gzip_free(z);
    reply->gzip = true;
    size_t i = 0;
    while (reply->header[i][0])
        i++;
    reply->header[i][0] = "Vary";
    reply->header[i][1] = "Accept-Encoding";
    pthread_mutex_lock(&s->lock);
    s->compressed++;
    pthread_mutex_unlock(&s->lock);
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
    reply->header[0][0] = "Retry-After";
    reply->header[0][1] = s->seconds[seconds];
}

static void answer_status(unsigned code, const char *message, struct httpd_reply *reply)
{
    reply->status = code;
    sim_status_write(&reply->body, code, sim_status_reason(code), message, NULL);
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
    if (from->watch)
        sim_stream_watch(s, steal(&from->watch), to);
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
    if (to && reply.list)
        sim_stream_list(steal(&reply.list), to);
    api_reply_fini(&reply);
}

/* -- faults -- */

static int64_t time_limit_ms(const struct api_request *req)
{
    int64_t ns;
    cleanup_query struct query q;
    sim_query_init(&q, req->query);
    if (sim_query_timeout_ns(&q, &ns, NULL) || ns <= 0 || ns / 1000000 > REQUEST_MS)
        return REQUEST_MS;
    return ns / 1000000;
}

/* Waits; returns early when the server stops. */
static void wait_ms(struct sim_server *s, int64_t ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&s->lock);
    while (!s->stopping && pthread_cond_timedwait(&s->stop, &s->lock, &until) == 0)
        ;
    pthread_mutex_unlock(&s->lock);
}

/* A request that times out while it hangs is not executed: a real server passes the
 * deadline to etcd. */
static void hang(struct sim_server *s, const struct fault *fault,
                 const struct api_request *req, struct httpd_reply *reply)
{
    int64_t limit_ms = time_limit_ms(req);
    bool late = fault->hang_ms >= limit_ms;
    wait_ms(s, late ? limit_ms : fault->hang_ms);
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
    switch (fault->action) {
    case FAULT_NONE:
        apply(s, req, reply);
        break;
    case FAULT_APPLY_ANSWER:
        apply(s, req, NULL);
        answer_fault(s, fault, reply);
        break;
    case FAULT_ANSWER:
        answer_fault(s, fault, reply);
        break;
    case FAULT_APPLY_CUT:
        apply(s, req, NULL);
        reply->abort = true;
        break;
    case FAULT_CUT:
        reply->abort = true;
        break;
    case FAULT_HANG:
    case FAULT_HANG_CUT:
        hang(s, fault, req, reply);
        break;
    }
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
                            .accept = httpd_header(req, "Accept"),
                            .body = req->body,
                            .defer = true};
    struct api_target target;
    struct fault fault = {0};
    if (api_classify(&r, &target)) {
        pthread_mutex_lock(&s->lock);
        fault = faults_check(s->faults, req->method, &target);
        pthread_mutex_unlock(&s->lock);
    }
    carry_out(s, &fault, &r, reply);
    if (sim_gzip_wanted(httpd_header(req, "Accept-Encoding")))
        sim_stream_compress(s, reply);
}

static void handle(void *ctx, const struct httpd_request *req, struct httpd_reply *reply)
{
    struct sim_server *s = ctx;
    if (!is_allowed(s, req))
        answer_status(401, "Unauthorized", reply);
    else if (span_starts(span_of(req->path), SPAN("/kube-sim/")))
        sim_control_handle(s, req, reply);
    else
        handle_api(s, req, reply);
    log_debug("server", "request", LOG_S("method", req->method), LOG_S("path", req->path),
              LOG_S("query", req->query),
              LOG_I("status", reply->abort ? 0 : reply->status));
}

/* -- start and stop -- */

static const struct httpd_route routes[] = {{NULL, "/*", handle}, {0}};

static void free_server(struct sim_server *s)
{
    httpd_free(s->httpd);
    faults_free(s->faults);
    pthread_cond_destroy(&s->stop);
    pthread_mutex_destroy(&s->lock);
    free(s->authorization);
    free(s);
}

static struct sim_server *new_server(struct api *api,
                                     const struct sim_server_config *config)
{
    struct sim_server *s = xcalloc(1, sizeof *s);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->stop, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&s->lock, NULL);
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
                                             .cert_pem = config->cert_pem,
                                             .key_pem = config->key_pem,
                                             .routes = routes,
                                             .ctx = s};
    s->httpd = httpd_new(NULL);
    if (httpd_listen(s->httpd, &listener, port, err)) {
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
    s->stopping = true;
    pthread_cond_broadcast(&s->stop);
    pthread_mutex_unlock(&s->lock);
    httpd_drain(s->httpd, DRAIN_MS);
    free_server(s);
}
