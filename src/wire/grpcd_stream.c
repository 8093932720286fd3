/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "wire/grpcd_priv.h"

enum { NUMBER = 12 }; /* a status in decimal */

void grpcd_stream_new(struct grpcd_conn *c, int32_t id)
{
    struct grpcd_stream *s = xcalloc(1, sizeof *s);
    s->conn = c;
    s->id = id;
    s->head.timeout_ms = -1;
    s->in.max = c->d->limits.max_message;
    s->deadline_ms = c->now_ms + c->d->limits.request_ms;
    s->next = c->streams;
    s->link = &c->streams;
    if (s->next)
        s->next->link = &s->next;
    c->streams = s;
    c->n_streams++;
    nghttp2_session_set_stream_user_data(c->session, id, s);
    pthread_mutex_lock(&c->d->lock);
    c->d->stats.calls++;
    pthread_mutex_unlock(&c->d->lock);
}

static void drop_call(struct grpcd_stream *s)
{
    struct grpcd_call *call = s->call;
    s->call = NULL;
    if (call)
        grpcd_call_detach(call, true);
}

static void drop_request(struct grpcd_stream *s)
{
    s->conn->d->request_bytes -= s->in.body.n;
    grpc_reader_fini(&s->in);
}

static void drop_queued(struct grpcd_stream *s)
{
    if (s->has_queued)
        s->conn->output -= GRPC_HEAD + s->queued.n;
    buf_fini(&s->queued);
    s->has_queued = false;
}

void grpcd_stream_free(struct grpcd_stream *s)
{
    struct grpcd_conn *c = s->conn;
    drop_call(s);
    drop_request(s);
    drop_queued(s);
    c->output -= s->left;
    buf_fini(&s->message);
    buf_fini(&s->why);
    *s->link = s->next;
    if (s->next)
        s->next->link = s->link;
    if (!--c->n_streams)
        c->quiet_ms = c->now_ms;
    pthread_mutex_lock(&c->d->lock);
    c->d->stats.calls--;
    pthread_mutex_unlock(&c->d->lock);
    free(s);
}

static void reset(struct grpcd_stream *s, uint32_t code)
{
    s->ignores_input = s->is_ending = true;
    s->moved_ms = s->conn->now_ms;
    nghttp2_submit_rst_stream(s->conn->session, NGHTTP2_FLAG_NONE, s->id, code);
}

/* Appends grpc-status and grpc-message to nva. */
static size_t add_status(struct grpcd_stream *s, nghttp2_nv *nva, size_t n,
                         char number[NUMBER], struct buf *text)
{
    struct span why = buf_span(&s->why);
    snprintf(number, NUMBER, "%u", (unsigned)s->status);
    nva[n++] = grpc_field(SPAN("grpc-status"), span_of(number));
    if (why.n && s->status != GRPC_OK) {
        if (why.n > GRPCD_WHY_MAX)
            why.n = GRPCD_WHY_MAX;
        grpc_percent_encode(text, why);
        nva[n++] = grpc_field(SPAN("grpc-message"), buf_span(text));
    }
    return n;
}

static void submit_trailers(struct grpcd_stream *s)
{
    char number[NUMBER];
    cleanup_buf struct buf text = {0};
    nghttp2_nv nva[2];
    size_t n = add_status(s, nva, 0, number, &text);
    nghttp2_submit_trailer(s->conn->session, s->id, nva, n);
}

/* Starts to send the queued message. False: there is none. */
static bool load_next(struct grpcd_stream *s)
{
    if (!s->has_queued)
        return false;
    buf_fini(&s->message);
    s->message = s->queued;
    s->queued = (struct buf){0};
    s->has_queued = false;
    s->left = GRPC_HEAD + s->message.n;
    grpc_message_head(s->message_head, s->message.n);
    return true;
}

/* Copies at most `room` bytes of the prefix or of the message. */
static size_t copy_out(struct grpcd_stream *s, uint8_t *to, size_t room)
{
    size_t n = s->message.n;
    bool in_head = s->left > n;
    const void *from = in_head ? (const char *)s->message_head + GRPC_HEAD + n - s->left
                               : s->message.p + n - s->left;
    size_t part = in_head ? s->left - n : s->left;
    if (part > room)
        part = room;
    memcpy(to, from, part);
    s->left -= part;
    if (!s->left)
        buf_fini(&s->message);
    return part;
}

static ssize_t on_read(nghttp2_session *session, int32_t id, uint8_t *to, size_t room,
                       uint32_t *flags, nghttp2_data_source *source, void *ctx)
{
    struct grpcd_stream *s = source->ptr;
    size_t n = 0;
    (void)session, (void)id, (void)ctx;
    while (n < room && (s->left || load_next(s)))
        n += copy_out(s, to + n, room - n);
    s->conn->output -= n;
    if (n)
        s->moved_ms = s->conn->now_ms;
    if (!s->left && !s->has_queued && s->is_ending) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        submit_trailers(s);
    } else if (n == 0) {
        return NGHTTP2_ERR_DEFERRED;
    }
    return (ssize_t)n;
}

/* Submits the response: headers followed by messages, or, without a message, headers and
 * status in one frame. */
static void open_response(struct grpcd_stream *s)
{
    char number[NUMBER];
    cleanup_buf struct buf text = {0};
    nghttp2_nv nva[4] = {
        grpc_field(SPAN(":status"), SPAN("200")),
        grpc_field(SPAN("content-type"), SPAN("application/grpc")),
    };
    size_t n = 2;
    nghttp2_data_provider provider = {.source.ptr = s, .read_callback = on_read};
    if (!s->has_queued)
        n = add_status(s, nva, n, number, &text);
    s->is_open = true;
    nghttp2_submit_response(s->conn->session, s->id, nva, n,
                            s->has_queued ? &provider : NULL);
}

static void resume(struct grpcd_stream *s)
{
    if (s->is_open)
        nghttp2_session_resume_data(s->conn->session, s->id);
    else
        open_response(s);
}

static bool is_waiting(const struct grpcd_stream *s)
{
    return s->left || s->has_queued || s->is_ending;
}

void grpcd_stream_message(struct grpcd_stream *s, struct buf *message)
{
    struct grpcd_conn *c = s->conn;
    if (s->is_ending)
        return;
    if (!is_waiting(s))
        s->moved_ms = c->now_ms;
    drop_queued(s);
    s->queued = *message;
    s->has_queued = true;
    *message = (struct buf){0};
    c->output += GRPC_HEAD + s->queued.n;
    if (c->output > c->d->limits.max_output) {
        log_warn("grpcd", "send queue full; closing the connection",
                 LOG_I("bytes", c->output));
        c->is_broken = true;
    }
    resume(s);
}

void grpcd_stream_end(struct grpcd_stream *s, enum grpc_status status, struct buf *why)
{
    if (s->is_ending)
        return;
    if (!is_waiting(s))
        s->moved_ms = s->conn->now_ms;
    s->ignores_input = s->is_ending = true;
    s->status = status;
    s->why = *why;
    *why = (struct buf){0};
    resume(s);
}

void grpcd_stream_reject(struct grpcd_stream *s, enum grpc_status status, const char *fmt,
                         ...)
{
    cleanup_buf struct buf why = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&why, fmt, ap);
    va_end(ap);
    drop_call(s);
    drop_request(s);
    drop_queued(s);
    s->ignores_input = true;
    if (s->left || s->is_ending)
        reset(s, NGHTTP2_CANCEL); /* no status can be sent inside a message */
    else
        grpcd_stream_end(s, status, &why);
}

/* A plain HTTP response, to a request that is not a gRPC call. */
static void reject_http(struct grpcd_stream *s, unsigned status)
{
    char number[NUMBER];
    snprintf(number, sizeof number, "%u", status);
    nghttp2_nv nva[] = {grpc_field(SPAN(":status"), span_of(number))};
    s->ignores_input = s->is_ending = s->is_open = true;
    s->moved_ms = s->conn->now_ms;
    nghttp2_submit_response(s->conn->session, s->id, nva, ARRAY_LEN(nva), NULL);
}

static const struct grpcd_method *find_method(const struct grpcd_stream *s)
{
    const struct grpcd_method *m = s->conn->d->methods;
    struct span path = {s->head.path, s->head.path_n};
    if (path.n > sizeof s->head.path)
        return NULL;
    while (m->path && !span_eq(path, span_of(m->path)))
        m++;
    return m->path ? m : NULL;
}

static void reject_unknown(struct grpcd_stream *s)
{
    bool is_truncated = s->head.path_n > sizeof s->head.path;
    grpcd_stream_reject(s, GRPC_UNIMPLEMENTED, "unknown method %.*s%s",
                        (int)(is_truncated ? sizeof s->head.path : s->head.path_n),
                        s->head.path, is_truncated ? "..." : "");
}

/* Rejects a request that is not a gRPC call. */
static void reject_headers(struct grpcd_stream *s, unsigned status)
{
    if (status == GRPCD_HEADERS_RESET)
        reset(s, NGHTTP2_PROTOCOL_ERROR);
    else
        reject_http(s, status);
    grpcd_count_rejected(s->conn->d);
    grpcd_conn_count_malformed(s->conn);
}

static void check_head(struct grpcd_stream *s)
{
    unsigned status = grpcd_headers_check(&s->head);
    int64_t timeout = s->head.timeout_ms;
    if (status) {
        reject_headers(s, status);
        return;
    }
    s->method = find_method(s);
    s->call_until_ms = timeout < 0 ? INT64_MAX : s->conn->now_ms + timeout;
    if (s->deadline_ms > s->call_until_ms)
        s->deadline_ms = s->call_until_ms;
    if (s->method && !s->head.has_bad_timeout)
        return;
    grpcd_count_rejected(s->conn->d);
    if (!s->method)
        reject_unknown(s);
    else
        grpcd_stream_reject(s, GRPC_INTERNAL, "malformed grpc-timeout");
}

void grpcd_stream_headers(struct grpcd_stream *s, bool end)
{
    if (!s->has_head) {
        s->has_head = true;
        if (!s->ignores_input)
            check_head(s);
    } else if (!end) {
        reset(s, NGHTTP2_PROTOCOL_ERROR);
        grpcd_conn_count_malformed(s->conn);
    }
    if (end)
        grpcd_stream_request_end(s);
}

static void reject_message(struct grpcd_stream *s, enum grpc_read why)
{
    size_t max = s->in.max;
    grpcd_count_rejected(s->conn->d);
    if (why == GRPC_READ_COMPRESSED)
        grpcd_stream_reject(s, GRPC_UNIMPLEMENTED,
                            "compressed messages are not supported");
    else if (why == GRPC_READ_BAD_FLAG)
        grpcd_stream_reject(s, GRPC_INTERNAL, "invalid flag of a message");
    else
        grpcd_stream_reject(s, GRPC_RESOURCE_EXHAUSTED,
                            "message has %zu bytes, at most %zu are accepted",
                            grpc_reader_length(&s->in), max);
}

void grpcd_stream_data(struct grpcd_stream *s, struct span bytes)
{
    struct grpcd *d = s->conn->d;
    if (!s->has_head || s->ignores_input || !bytes.n)
        return;
    if (s->has_request) {
        grpcd_count_rejected(d);
        grpcd_stream_reject(s, GRPC_INTERNAL,
                            "unexpected data after the request message");
        return;
    }
    size_t held = s->in.body.n;
    enum grpc_read got = grpc_reader_take(&s->in, &bytes);
    d->request_bytes += s->in.body.n - held;
    if (got > GRPC_READ_MESSAGE) {
        reject_message(s, got);
    } else if (d->request_bytes > d->limits.max_requests) {
        grpcd_count_rejected(d);
        grpcd_stream_reject(s, GRPC_RESOURCE_EXHAUSTED,
                            "too many bytes of requests in memory");
    } else if (got == GRPC_READ_MESSAGE) {
        s->has_request = true;
        grpcd_stream_data(s, bytes);
    }
}

static void start(struct grpcd_stream *s)
{
    s->deadline_ms = s->call_until_ms;
    s->ignores_input = true;
    s->call = grpcd_call_new(s);
    s->method->start(s->conn->d->ctx, s->call, buf_span(&s->in.body));
    drop_request(s);
}

void grpcd_stream_request_end(struct grpcd_stream *s)
{
    if (!s->has_head || s->ignores_input)
        return;
    if (s->has_request) {
        start(s);
        return;
    }
    bool is_empty = grpc_reader_is_empty(&s->in);
    grpcd_count_rejected(s->conn->d);
    grpcd_stream_reject(s, GRPC_INTERNAL,
                        is_empty ? "request without a message"
                                 : "truncated request message");
}

/* The response is sent, so the client need not send the rest of its request. */
void grpcd_stream_sent_last(struct grpcd_stream *s)
{
    if (!nghttp2_session_get_stream_remote_close(s->conn->session, s->id))
        reset(s, NGHTTP2_NO_ERROR);
}

int64_t grpcd_stream_tick(struct grpcd_stream *s)
{
    struct grpcd_conn *c = s->conn;
    int64_t stalled_ms = s->moved_ms + c->d->limits.stall_ms;
    if (is_waiting(s)) {
        if (c->now_ms < stalled_ms)
            return stalled_ms;
        drop_call(s);
        reset(s, NGHTTP2_CANCEL);
    } else if (c->now_ms < s->deadline_ms) {
        return s->deadline_ms;
    } else if (s->call) {
        grpcd_stream_reject(s, GRPC_DEADLINE_EXCEEDED, "client deadline exceeded");
    } else {
        grpcd_count_rejected(c->d);
        grpcd_stream_reject(s, GRPC_DEADLINE_EXCEEDED, "request not complete in time");
    }
    return c->now_ms + c->d->limits.stall_ms;
}
