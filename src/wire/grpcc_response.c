/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdlib.h>

#include "base/mem.h"
#include "wire/grpcc_priv.h"

enum {
    WINDOW = 4 << 20,
    HEADER_BYTES_MAX = 32 * 1024,
    TEXT_MAX = 4096, /* bytes of grpc-message that are decoded */
};

void grpcc_response_fail(struct grpcc_response *a, enum grpc_status status,
                         const char *fmt, ...)
{
    if (a->is_done)
        return;
    va_list ap;
    va_start(ap, fmt);
    buf_clear(&a->text);
    buf_vprintf(&a->text, fmt, ap);
    va_end(ap);
    a->status = status;
    a->is_done = true;
}

static enum grpc_status status_of_http(unsigned http)
{
    switch (http) {
    case 400:
        return GRPC_INTERNAL;
    case 401:
        return GRPC_UNAUTHENTICATED;
    case 403:
        return GRPC_PERMISSION_DENIED;
    case 404:
        return GRPC_UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504:
        return GRPC_UNAVAILABLE;
    default:
        return GRPC_UNKNOWN;
    }
}

static enum grpc_status status_of_reset(uint32_t code)
{
    switch (code) {
    case NGHTTP2_REFUSED_STREAM:
        return GRPC_UNAVAILABLE;
    case NGHTTP2_CANCEL:
        return GRPC_CANCELLED;
    case NGHTTP2_ENHANCE_YOUR_CALM:
        return GRPC_RESOURCE_EXHAUSTED;
    case NGHTTP2_INADEQUATE_SECURITY:
        return GRPC_PERMISSION_DENIED;
    default:
        return GRPC_INTERNAL;
    }
}

static void on_grpc_status(struct grpcc_response *a, struct span value)
{
    int64_t n;
    a->has_status = true;
    a->status = span_i64(value, &n) && n >= GRPC_OK && n <= GRPC_UNAUTHENTICATED
                    ? (enum grpc_status)n
                    : GRPC_UNKNOWN;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame,
                     const uint8_t *name_p, size_t name_n, const uint8_t *value_p,
                     size_t value_n, uint8_t flags, void *ctx)
{
    struct grpcc_response *a = ctx;
    struct span name = {(const char *)name_p, name_n},
                value = {(const char *)value_p, value_n};
    int64_t http;
    (void)session, (void)flags;
    if (frame->hd.stream_id != a->id || a->is_done)
        return 0;
    if (span_eq(name, SPAN(":status"))) {
        a->http_status = span_i64(value, &http) ? (unsigned)http : 0;
    } else if (span_eq(name, SPAN("content-type"))) {
        a->is_grpc = grpc_content_type_ok(value);
    } else if (span_eq(name, SPAN("grpc-status"))) {
        on_grpc_status(a, value);
    } else if (span_eq(name, SPAN("grpc-message"))) {
        buf_clear(&a->text);
        grpc_percent_decode(
            &a->text, (struct span){value.p, value.n < TEXT_MAX ? value.n : TEXT_MAX});
    }
    return 0;
}

static void keep_message(struct grpcc_response *a)
{
    MEM_GROW(a->messages, a->cap, a->n + 1);
    a->messages[a->n++] = a->in.body;
    a->in.body = (struct buf){0};
    grpc_reader_next(&a->in);
}

static void reject_message(struct grpcc_response *a, enum grpc_read why)
{
    if (why == GRPC_READ_COMPRESSED) {
        grpcc_response_fail(a, GRPC_INTERNAL, "the response is compressed");
    } else if (why == GRPC_READ_BAD_FLAG) {
        grpcc_response_fail(a, GRPC_INTERNAL, "invalid flag of a message");
    } else {
        a->code = ERR_TOO_LARGE;
        grpcc_response_fail(a, GRPC_RESOURCE_EXHAUSTED,
                            "message has %zu bytes, at most %zu are accepted",
                            grpc_reader_length(&a->in), a->in.max);
    }
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p,
                   size_t n, void *ctx)
{
    struct grpcc_response *a = ctx;
    struct span rest = {(const char *)p, n};
    (void)session, (void)flags;
    if (id != a->id || a->http_status != 200 || !a->is_grpc)
        return 0;
    while (rest.n && !a->is_done) {
        enum grpc_read got = grpc_reader_take(&a->in, &rest);
        if (got == GRPC_READ_MESSAGE)
            keep_message(a);
        else if (got != GRPC_READ_MORE)
            reject_message(a, got);
    }
    return 0;
}

/* The peer has ended the stream, with or without a status. */
static void on_end(struct grpcc_response *a)
{
    if (a->is_done)
        return;
    if (!a->has_status && (a->http_status != 200 || !a->is_grpc))
        grpcc_response_fail(a, status_of_http(a->http_status),
                            "not a gRPC response, HTTP status %u", a->http_status);
    else if (!a->has_status)
        grpcc_response_fail(a, GRPC_INTERNAL, "the response has no grpc-status");
    else if (a->status == GRPC_OK && !grpc_reader_is_empty(&a->in))
        grpcc_response_fail(a, GRPC_INTERNAL, "truncated message");
    a->is_done = true;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    struct grpcc_response *a = ctx;
    (void)session;
    if (frame->hd.stream_id == a->id && frame->hd.flags & NGHTTP2_FLAG_END_STREAM &&
        (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA))
        on_end(a);
    return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *ctx)
{
    (void)session;
    if (id == ((struct grpcc_response *)ctx)->id)
        grpcc_response_fail(ctx, status_of_reset(code), "stream reset by the peer: %s",
                            nghttp2_http2_strerror(code));
    return 0;
}

static ssize_t on_read(nghttp2_session *session, int32_t id, uint8_t *to, size_t room,
                       uint32_t *flags, nghttp2_data_source *source, void *ctx)
{
    struct grpcc_response *a = source->ptr;
    size_t n = a->request.n - a->sent;
    (void)session, (void)id, (void)ctx;
    if (n > room)
        n = room;
    memcpy(to, a->request.p + a->sent, n);
    a->sent += n;
    if (a->sent == a->request.n)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

static nghttp2_session *session_new(struct grpcc_response *a)
{
    nghttp2_session *session = NULL;
    nghttp2_session_callbacks *cb = NULL;
    if (nghttp2_session_callbacks_new(&cb))
        abort(); /* out of memory */
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_close);
    if (nghttp2_session_client_new(&session, cb, a))
        abort();
    nghttp2_session_callbacks_del(cb);
    return session;
}

static void submit(struct grpcc_response *a, const struct grpcc_request *req)
{
    cleanup_buf struct buf timeout = {0};
    nghttp2_nv nva[8] = {
        grpc_field(SPAN(":method"), SPAN("POST")),
        grpc_field(SPAN(":scheme"), SPAN("http")),
        grpc_field(SPAN(":path"), span_of(req->method)),
        grpc_field(SPAN(":authority"), SPAN("localhost")),
        grpc_field(SPAN("te"), SPAN("trailers")),
        grpc_field(SPAN("content-type"), SPAN("application/grpc")),
        grpc_field(SPAN("user-agent"), SPAN("gpushare/" GPUSHARE_VERSION)),
    };
    size_t n = 7;
    if (req->timeout_ms > 0) {
        grpc_timeout_format(&timeout, req->timeout_ms);
        nva[n++] = grpc_field(SPAN("grpc-timeout"), buf_span(&timeout));
    }
    nghttp2_data_provider provider = {.source.ptr = a, .read_callback = on_read};
    a->id = nghttp2_submit_request(a->session, NULL, nva, n, &provider, NULL);
    if (a->id < 0)
        grpcc_response_fail(a, GRPC_INTERNAL, "%s", nghttp2_strerror(a->id));
}

void grpcc_response_init(struct grpcc_response *a, const struct grpcc_request *req)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HEADER_BYTES_MAX},
    };
    unsigned char head[GRPC_HEAD];
    *a = (struct grpcc_response){.code = ERR_NONE};
    a->in.max = req->max_message ? req->max_message : GRPC_MESSAGE_MAX;
    grpc_message_head(head, req->message.n);
    buf_add(&a->request, head, sizeof head);
    buf_add_span(&a->request, req->message);
    a->session = session_new(a);
    nghttp2_submit_settings(a->session, NGHTTP2_FLAG_NONE, settings, ARRAY_LEN(settings));
    nghttp2_session_set_local_window_size(a->session, NGHTTP2_FLAG_NONE, 0, WINDOW);
    submit(a, req);
}

void grpcc_response_fini(struct grpcc_response *a)
{
    nghttp2_session_del(a->session);
    for (size_t i = 0; i < a->n; i++)
        buf_fini(&a->messages[i]);
    free(a->messages);
    buf_fini(&a->request);
    buf_fini(&a->text);
    grpc_reader_fini(&a->in);
}

void grpcc_response_feed(struct grpcc_response *a, const uint8_t *p, size_t n)
{
    ssize_t rc = nghttp2_session_mem_recv(a->session, p, n);
    if (rc < 0)
        grpcc_response_fail(a, GRPC_INTERNAL, "%s", nghttp2_strerror((int)rc));
}

void grpcc_response_check(struct grpcc_response *a)
{
    if (!nghttp2_session_want_read(a->session) && !nghttp2_session_want_write(a->session))
        grpcc_response_fail(a, GRPC_UNAVAILABLE, "HTTP/2 session ended");
}

bool grpcc_response_take(struct grpcc_response *a, struct buf *message)
{
    if (a->n_taken == a->n)
        return false;
    struct buf *from = &a->messages[a->n_taken++];
    if (message->n) {
        buf_add_span(message, buf_span(from));
        buf_fini(from);
    } else {
        buf_fini(message);
        *message = *from;
        *from = (struct buf){0};
    }
    if (a->n_taken == a->n)
        a->n = a->n_taken = 0;
    return true;
}
