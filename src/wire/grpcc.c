/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The gRPC client: one call on a connection of its own.
 */

#include <curl/curl.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "wire/grpc_priv.h"
#include "wire/grpcc.h"

enum {
    WINDOW = 4 << 20,
    TEXT_MAX = 4096, /* bytes of grpc-message that are decoded */
    READS = 64,      /* before the deadline is checked */
};

static const char *const statuses[] = {
    [GRPC_OK] = "OK",
    [GRPC_CANCELLED] = "CANCELLED",
    [GRPC_UNKNOWN] = "UNKNOWN",
    [GRPC_INVALID_ARGUMENT] = "INVALID_ARGUMENT",
    [GRPC_DEADLINE_EXCEEDED] = "DEADLINE_EXCEEDED",
    [GRPC_NOT_FOUND] = "NOT_FOUND",
    [GRPC_ALREADY_EXISTS] = "ALREADY_EXISTS",
    [GRPC_PERMISSION_DENIED] = "PERMISSION_DENIED",
    [GRPC_RESOURCE_EXHAUSTED] = "RESOURCE_EXHAUSTED",
    [GRPC_FAILED_PRECONDITION] = "FAILED_PRECONDITION",
    [GRPC_ABORTED] = "ABORTED",
    [GRPC_OUT_OF_RANGE] = "OUT_OF_RANGE",
    [GRPC_UNIMPLEMENTED] = "UNIMPLEMENTED",
    [GRPC_INTERNAL] = "INTERNAL",
    [GRPC_UNAVAILABLE] = "UNAVAILABLE",
    [GRPC_DATA_LOSS] = "DATA_LOSS",
    [GRPC_UNAUTHENTICATED] = "UNAUTHENTICATED",
};

struct call {
    struct grpc_socket socket; /* first */
    int32_t id;                /* of the stream */
    struct buf request;        /* prefix and message */
    size_t sent;
    size_t max_message;

    unsigned http_status;
    bool has_status;
    bool is_done; /* the stream has ended or failed */
    enum grpc_status status;
    enum err_code code;
    struct buf text; /* of the status */
    struct buf in;   /* the response message with its prefix */
};

static void call_fini(struct call *call)
{
    buf_fini(&call->request);
    buf_fini(&call->text);
    buf_fini(&call->in);
}

/* Fails the call, unless it is done. */
static void fail(struct call *call, enum grpc_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void fail(struct call *call, enum grpc_status status, const char *fmt, ...)
{
    if (call->is_done)
        return;
    va_list ap;
    va_start(ap, fmt);
    buf_clear(&call->text);
    buf_vprintf(&call->text, fmt, ap);
    va_end(ap);
    call->status = status;
    call->is_done = true;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame,
                     const uint8_t *name_p, size_t name_n, const uint8_t *value_p,
                     size_t value_n, uint8_t flags, void *ctx)
{
    struct call *call = ctx;
    struct span name = {(const char *)name_p, name_n},
                value = {(const char *)value_p, value_n};
    int64_t n = -1;
    (void)session, (void)flags;
    if (frame->hd.stream_id != call->id || call->is_done)
        return 0;
    if (span_eq(name, SPAN(":status"))) {
        call->http_status = span_i64(value, &n) ? (unsigned)n : 0;
    } else if (span_eq(name, SPAN("grpc-status"))) {
        call->has_status = true;
        call->status = span_i64(value, &n) && n >= 0 && n < (int64_t)ARRAY_LEN(statuses)
                           ? (enum grpc_status)n
                           : GRPC_UNKNOWN;
    } else if (span_eq(name, SPAN("grpc-message"))) {
        /* grpc-message is percent-encoded. The text ends up in logs and status pages. */
        int size = 0;
        if (value.n > TEXT_MAX)
            value.n = TEXT_MAX;
        char *text =
            value.n ? curl_easy_unescape(NULL, value.p, (int)value.n, &size) : NULL;
        buf_clear(&call->text);
        buf_add_printable(&call->text, (struct span){text, (size_t)size});
        curl_free(text);
    }
    return 0;
}

static enum grpc_read read_message(struct call *call, struct span *message)
{
    struct err err = {0};
    enum grpc_status status;
    enum grpc_read got =
        grpc_message_read(buf_span(&call->in), call->max_message, message, &status, &err);
    if (got == GRPC_READ_INVALID) {
        bool is_large = err.code == ERR_TOO_LARGE;
        fail(call, is_large ? status : GRPC_INTERNAL, "%s", err.msg);
        call->code = is_large ? ERR_TOO_LARGE : ERR_UNAVAILABLE;
    }
    return got;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p,
                   size_t n, void *ctx)
{
    struct call *call = ctx;
    struct span message;
    (void)session, (void)flags;
    if (id != call->id || call->http_status != 200 || call->is_done)
        return 0;
    buf_add(&call->in, p, n);
    read_message(call, &message);
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    struct call *call = ctx;
    (void)session;
    if (frame->hd.stream_id != call->id || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM) ||
        (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA))
        return 0;
    if (!call->has_status)
        fail(call, call->http_status == 200 ? GRPC_INTERNAL : GRPC_UNKNOWN,
             "the response has no grpc-status, HTTP status %u", call->http_status);
    call->is_done = true;
    return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *ctx)
{
    struct call *call = ctx;
    (void)session;
    if (id == call->id)
        fail(call,
             code == NGHTTP2_REFUSED_STREAM ? GRPC_UNAVAILABLE
             : code == NGHTTP2_CANCEL       ? GRPC_CANCELLED
                                            : GRPC_INTERNAL,
             "stream reset by the peer: %s", nghttp2_http2_strerror(code));
    return 0;
}

static ssize_t on_read(nghttp2_session *session, int32_t id, uint8_t *to, size_t room,
                       uint32_t *flags, nghttp2_data_source *source, void *ctx)
{
    struct call *call = ctx;
    size_t n = call->request.n - call->sent;
    (void)session, (void)id, (void)source;
    if (n > room)
        n = room;
    memcpy(to, call->request.p + call->sent, n);
    call->sent += n;
    if (call->sent == call->request.n)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

int grpcc_exchange(int fd, const struct grpcc_request *req, int64_t until_ms,
                   struct buf *reply, enum grpc_status *status, struct err *err)
{
    __attribute__((cleanup(call_fini))) struct call call = {
        .socket.fd = fd,
        .max_message = req->max_message ? req->max_message : GRPC_MESSAGE_MAX,
        .code = ERR_UNAVAILABLE};
    struct span message = {0};
    grpc_message_add(&call.request, req->message);
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW},
    };
    const nghttp2_nv nva[] = {
        grpc_field(SPAN(":method"), SPAN("POST")),
        grpc_field(SPAN(":scheme"), SPAN("http")),
        grpc_field(SPAN(":path"), span_of(req->method)),
        grpc_field(SPAN(":authority"), SPAN("localhost")),
        grpc_field(SPAN("te"), SPAN("trailers")),
        grpc_field(SPAN("content-type"), SPAN("application/grpc")),
        grpc_field(SPAN("user-agent"), SPAN("gpushare/" GPUSHARE_VERSION)),
    };
    nghttp2_session *session = NULL;
    nghttp2_session_callbacks *cb = grpc_callbacks();
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_close);
    if (nghttp2_session_client_new(&session, cb, &call))
        abort(); /* out of memory */
    nghttp2_session_callbacks_del(cb);
    nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings, ARRAY_LEN(settings));
    nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0, WINDOW);
    nghttp2_data_provider provider = {.read_callback = on_read};
    call.id = nghttp2_submit_request(session, NULL, nva, ARRAY_LEN(nva), &provider, NULL);
    if (call.id < 0)
        fail(&call, GRPC_INTERNAL, "%s", nghttp2_strerror(call.id));
    while (!call.is_done) {
        /* Read also after a failed write: the peer may have responded before it
         * closed. */
        int sent = nghttp2_session_send(session);
        call.socket.reads = READS;
        int received = nghttp2_session_recv(session);
        int64_t left_ms = until_ms - clock_mono_ms();
        bool wants = nghttp2_session_want_write(session);
        if (sent || received)
            fail(&call, GRPC_UNAVAILABLE, "connection closed");
        else if (!wants && !nghttp2_session_want_read(session))
            fail(&call, GRPC_UNAVAILABLE, "HTTP/2 session ended");
        else if (left_ms <= 0 && !call.is_done)
            fail(&call, GRPC_DEADLINE_EXCEEDED, "no response in time");
        struct pollfd at = {.fd = call.socket.fd,
                            .events = wants ? POLLIN | POLLOUT : POLLIN};
        if (!call.is_done)
            poll(&at, 1, left_ms < INT32_MAX ? (int)left_ms : INT32_MAX);
    }
    nghttp2_session_del(session);
    if (call.status == GRPC_OK && read_message(&call, &message) == GRPC_READ_MORE) {
        call.is_done = false;
        fail(&call, GRPC_INTERNAL,
             call.in.n ? "truncated message" : "the response has no message");
    }
    *status = call.status;
    if (call.status == GRPC_OK) {
        buf_add_span(reply, message);
        return 0;
    }
    if (call.status == GRPC_DEADLINE_EXCEEDED)
        call.code = ERR_TIMEOUT;
    return err_set(err, call.code, "%s%s%.*s", statuses[call.status],
                   call.text.n ? ": " : "", SPAN_ARG(call.text));
}

int grpcc_call(const struct grpcc_request *req, struct buf *reply,
               enum grpc_status *status, struct err *err)
{
    int64_t until_ms = clock_mono_ms() + req->timeout_ms;
    const struct timeval limit = {.tv_sec = req->timeout_ms / 1000,
                                  .tv_usec = req->timeout_ms % 1000 * 1000};
    enum grpc_status got = GRPC_UNAVAILABLE;
    struct sockaddr_un addr;
    int rc = -1;
    cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!grpc_address(req->socket, &addr, err)) {
        got = GRPC_INVALID_ARGUMENT;
    } else if (fd >= 0 &&
               setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0 &&
               connect(fd, (const struct sockaddr *)&addr, sizeof addr) == 0) {
        rc = grpcc_exchange(fd, req, until_ms, reply, &got, err);
    } else if (errno == EAGAIN) { /* the peer's backlog was full all the time */
        got = GRPC_DEADLINE_EXCEEDED;
        err_set(err, ERR_TIMEOUT, "DEADLINE_EXCEEDED: connect timed out");
    } else {
        err_set(err, ERR_UNAVAILABLE, "UNAVAILABLE: connect: %s", strerrordesc_np(errno));
    }
    if (status)
        *status = got;
    return rc ? err_wrap(err, "%s at %s", req->method, req->socket) : 0;
}
