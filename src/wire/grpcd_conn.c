/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "wire/grpcd_priv.h"

enum {
    STREAM_WINDOW = 1 << 20,
    CONN_WINDOW = 4 << 20,
    ACKS_MAX = 200, /* queued acknowledgements of pings and settings */
};

static struct grpcd_stream *stream_of(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame,
                            void *ctx)
{
    (void)session;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        grpcd_stream_new(ctx, frame->hd.stream_id);
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame,
                     const uint8_t *name, size_t name_n, const uint8_t *value,
                     size_t value_n, uint8_t flags, void *ctx)
{
    struct grpcd_stream *s = stream_of(session, frame->hd.stream_id);
    (void)flags, (void)ctx;
    if (s && !s->has_head)
        grpcd_headers_add(&s->head, (struct span){(const char *)name, name_n},
                          (struct span){(const char *)value, value_n});
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p,
                   size_t n, void *ctx)
{
    struct grpcd_stream *s = stream_of(session, id);
    (void)flags, (void)ctx;
    if (s)
        grpcd_stream_data(s, (struct span){(const char *)p, n});
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    struct grpcd_conn *c = ctx;
    bool end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    struct grpcd_stream *s = NULL;
    if (frame->hd.type == NGHTTP2_SETTINGS)
        c->has_peer = true;
    if (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA)
        s = stream_of(session, frame->hd.stream_id);
    if (s && frame->hd.type == NGHTTP2_HEADERS)
        grpcd_stream_headers(s, end);
    else if (s && end)
        grpcd_stream_request_end(s);
    return 0;
}

static int on_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame,
                            int error, void *ctx)
{
    (void)session, (void)frame, (void)error;
    grpcd_conn_count_malformed(ctx);
    return 0;
}

static int on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    struct grpcd_stream *s = NULL;
    (void)ctx;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        s = stream_of(session, frame->hd.stream_id);
    if (s)
        grpcd_stream_sent_last(s);
    return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *ctx)
{
    struct grpcd_stream *s = stream_of(session, id);
    (void)code, (void)ctx;
    if (s)
        grpcd_stream_free(s);
    return 0;
}

static nghttp2_session *session_new(struct grpcd_conn *c)
{
    nghttp2_session *session = NULL;
    nghttp2_session_callbacks *cb = NULL;
    nghttp2_option *opt = NULL;
    if (nghttp2_session_callbacks_new(&cb) || nghttp2_option_new(&opt))
        abort(); /* out of memory */
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(cb, on_invalid_frame);
    nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_close);
    nghttp2_option_set_no_http_messaging(opt, 1);
    nghttp2_option_set_max_outbound_ack(opt, ACKS_MAX);
    nghttp2_option_set_stream_reset_rate_limit(opt, GRPCD_RESET_BURST, GRPCD_RESET_RATE);
    if (nghttp2_session_server_new2(&session, cb, c, opt))
        abort();
    nghttp2_option_del(opt);
    nghttp2_session_callbacks_del(cb);
    return session;
}

struct grpcd_conn *grpcd_conn_new(struct grpcd *d, int64_t now_ms)
{
    struct grpcd_conn *c = xcalloc(1, sizeof *c);
    c->d = d;
    c->fd = -1;
    c->now_ms = c->quiet_ms = c->moved_ms = now_ms;
    c->session = session_new(c);
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, d->limits.calls},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, GRPCD_HEADER_BYTES_MAX},
    };
    nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, settings, ARRAY_LEN(settings));
    nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE, 0, CONN_WINDOW);
    return c;
}

void grpcd_conn_free(struct grpcd_conn *c)
{
    while (c->streams)
        grpcd_stream_free(c->streams);
    nghttp2_session_del(c->session);
    buf_fini(&c->out.bytes);
    free(c);
}

void grpcd_conn_count_malformed(struct grpcd_conn *c)
{
    if (++c->faults == GRPCD_FAULTS_MAX) {
        log_warn("grpcd", "connection: too many malformed requests; closing it",
                 LOG_I("requests", c->faults));
        grpcd_conn_go_away(c, NGHTTP2_ENHANCE_YOUR_CALM);
    }
}

void grpcd_conn_go_away(struct grpcd_conn *c, uint32_t code)
{
    c->is_closing = true;
    nghttp2_session_terminate_session(c->session, code);
}

void grpcd_conn_feed(struct grpcd_conn *c, const uint8_t *p, size_t n, int64_t now_ms)
{
    c->now_ms = now_ms;
    ssize_t rc = nghttp2_session_mem_recv(c->session, p, n);
    if (rc < 0) {
        log_warn("grpcd", "connection: HTTP/2 error; closing it",
                 LOG_S("err", nghttp2_strerror((int)rc)));
        c->is_broken = true;
    }
}

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t grpcd_conn_tick(struct grpcd_conn *c, int64_t now_ms)
{
    const struct grpcd_limits *limits = &c->d->limits;
    int64_t at = INT64_MAX;
    c->now_ms = now_ms;
    for (struct grpcd_stream *s = c->streams; s; s = s->next)
        at = sooner(at, grpcd_stream_tick(s));
    if (c->n_streams || c->is_closing)
        return at;
    int64_t until = c->quiet_ms + (c->has_peer ? limits->idle_ms : limits->request_ms);
    if (now_ms < until)
        return sooner(at, until);
    grpcd_conn_go_away(c, NGHTTP2_NO_ERROR);
    return at;
}

void grpcd_conn_drain(struct grpcd_conn *c, int64_t now_ms)
{
    c->now_ms = now_ms;
    if (!c->is_closing)
        nghttp2_submit_goaway(c->session, NGHTTP2_FLAG_NONE,
                              nghttp2_session_get_last_proc_stream_id(c->session),
                              NGHTTP2_NO_ERROR, NULL, 0);
    c->is_closing = true;
    for (struct grpcd_stream *s = c->streams; s; s = s->next)
        if (!s->call ? !s->ignores_input : s->call->method->stream)
            grpcd_stream_reject(s, GRPC_UNAVAILABLE, "server is stopping");
}

bool grpcd_conn_is_done(const struct grpcd_conn *c)
{
    bool is_quiet = !nghttp2_session_want_write(c->session);
    return c->is_broken || (is_quiet && !nghttp2_session_want_read(c->session)) ||
           (is_quiet && c->is_closing && !c->n_streams);
}
