/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The gRPC client: first the response without the socket, then the socket.
 */

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "wire/grpc_priv.h"
#include "wire/grpcc.h"

enum {
    WINDOW = 4 << 20,
    TEXT_MAX = 4096, /* bytes of grpc-message that are decoded */
    READ_BYTES = 64 * 1024,
    CONNECT_RETRY_MS = 5, /* while the peer's backlog is full */
    TIMEOUT_MAX_MS = 99999999, /* a grpc-timeout has at most 8 digits */
};

enum { STATUSES = GRPC_UNAUTHENTICATED + 1 };

static const struct {
    const char *name;
    enum err_code code;
} statuses[STATUSES] = {
    [GRPC_OK] = {"OK", ERR_NONE},
    [GRPC_CANCELLED] = {"CANCELLED", ERR_UNAVAILABLE},
    [GRPC_UNKNOWN] = {"UNKNOWN", ERR_INTERNAL},
    [GRPC_INVALID_ARGUMENT] = {"INVALID_ARGUMENT", ERR_INVALID},
    [GRPC_DEADLINE_EXCEEDED] = {"DEADLINE_EXCEEDED", ERR_TIMEOUT},
    [GRPC_NOT_FOUND] = {"NOT_FOUND", ERR_NOT_FOUND},
    [GRPC_ALREADY_EXISTS] = {"ALREADY_EXISTS", ERR_CONFLICT},
    [GRPC_PERMISSION_DENIED] = {"PERMISSION_DENIED", ERR_FORBIDDEN},
    [GRPC_RESOURCE_EXHAUSTED] = {"RESOURCE_EXHAUSTED", ERR_UNAVAILABLE},
    [GRPC_FAILED_PRECONDITION] = {"FAILED_PRECONDITION", ERR_CONFLICT},
    [GRPC_ABORTED] = {"ABORTED", ERR_CONFLICT},
    [GRPC_OUT_OF_RANGE] = {"OUT_OF_RANGE", ERR_INVALID},
    [GRPC_UNIMPLEMENTED] = {"UNIMPLEMENTED", ERR_INVALID},
    [GRPC_INTERNAL] = {"INTERNAL", ERR_INTERNAL},
    [GRPC_UNAVAILABLE] = {"UNAVAILABLE", ERR_UNAVAILABLE},
    [GRPC_DATA_LOSS] = {"DATA_LOSS", ERR_INTERNAL},
    [GRPC_UNAUTHENTICATED] = {"UNAUTHENTICATED", ERR_UNAUTHORIZED},
};

const char *grpc_status_name(enum grpc_status status)
{
    return (unsigned)status < STATUSES ? statuses[status].name : "unknown status";
}

enum err_code grpc_status_err(enum grpc_status status)
{
    return (unsigned)status < STATUSES ? statuses[status].code : ERR_INTERNAL;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The text ends up in logs and status pages. */
static void make_printable(char *p, size_t n)
{
    for (size_t i = 0, len; i < n; i += len) {
        len = utf8_len((unsigned char *)p + i, n - i);
        if (!len || (unsigned char)p[i] < ' ' || p[i] == 0x7f) {
            p[i] = '?';
            len = 1;
        }
    }
}

void grpc_percent_decode(struct buf *out, struct span s)
{
    size_t from = out->n;
    for (size_t i = 0; i < s.n; i++) {
        int high = s.p[i] == '%' && s.n - i > 2 ? hex_value(s.p[i + 1]) : -1;
        int low = high >= 0 ? hex_value(s.p[i + 2]) : -1;
        if (low < 0) {
            buf_addc(out, s.p[i]);
            continue;
        }
        buf_addc(out, (char)(high << 4 | low));
        i += 2;
    }
    if (out->n > from)
        make_printable(out->p + from, out->n - from);
}

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

static int on_header(nghttp2_session *session, const nghttp2_frame *frame,
                     const uint8_t *name_p, size_t name_n, const uint8_t *value_p,
                     size_t value_n, uint8_t flags, void *ctx)
{
    struct grpcc_response *a = ctx;
    struct span name = {(const char *)name_p, name_n},
                value = {(const char *)value_p, value_n};
    int64_t n;
    (void)session, (void)flags;
    if (frame->hd.stream_id != a->id || a->is_done)
        return 0;
    if (span_eq(name, SPAN(":status"))) {
        a->http_status = span_i64(value, &n) ? (unsigned)n : 0;
    } else if (span_eq(name, SPAN("grpc-status"))) {
        a->has_status = true;
        a->status = span_i64(value, &n) && n >= GRPC_OK && n <= GRPC_UNAUTHENTICATED
                        ? (enum grpc_status)n
                        : GRPC_UNKNOWN;
    } else if (span_eq(name, SPAN("grpc-message"))) {
        buf_clear(&a->text);
        grpc_percent_decode(
            &a->text, (struct span){value.p, value.n < TEXT_MAX ? value.n : TEXT_MAX});
    }
    return 0;
}

/* Whether a message is complete, from a->taken on. Fails the call if it never will be. */
static bool find_message(struct grpcc_response *a, struct span *message)
{
    const struct span left = {a->in.p ? a->in.p + a->taken : NULL, a->in.n - a->taken};
    enum grpc_status status;
    struct err err;
    enum grpc_read got = grpc_message_read(left, a->max_message, message, &status, &err);
    if (got == GRPC_READ_INVALID) {
        bool is_large = err.code == ERR_TOO_LARGE;
        a->code = is_large ? ERR_TOO_LARGE : ERR_NONE;
        grpcc_response_fail(a, is_large ? status : GRPC_INTERNAL, "%s", err.msg);
    } else if (got == GRPC_READ_MORE && left.n && a->is_done && a->status == GRPC_OK) {
        a->is_done = false;
        grpcc_response_fail(a, GRPC_INTERNAL, "truncated message");
    }
    return got == GRPC_READ_MESSAGE;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p,
                   size_t n, void *ctx)
{
    struct grpcc_response *a = ctx;
    struct span message;
    (void)session, (void)flags;
    if (id != a->id || a->http_status != 200 || a->is_done)
        return 0;
    buf_add(&a->in, p, n);
    find_message(a, &message);
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    struct grpcc_response *a = ctx;
    (void)session;
    if (frame->hd.stream_id == a->id && frame->hd.flags & NGHTTP2_FLAG_END_STREAM &&
        (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
        !a->is_done) {
        if (!a->has_status)
            grpcc_response_fail(a,
                                a->http_status == 200 ? GRPC_INTERNAL : GRPC_UNKNOWN,
                                "the response has no grpc-status, HTTP status %u",
                                a->http_status);
        a->is_done = true;
    }
    return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *ctx)
{
    (void)session;
    if (id == ((struct grpcc_response *)ctx)->id)
        grpcc_response_fail(ctx,
                            code == NGHTTP2_REFUSED_STREAM ? GRPC_UNAVAILABLE
                            : code == NGHTTP2_CANCEL       ? GRPC_CANCELLED
                                                           : GRPC_INTERNAL,
                            "stream reset by the peer: %s", nghttp2_http2_strerror(code));
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

void grpcc_response_init(struct grpcc_response *a, const struct grpcc_request *req)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW},
    };
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
    cleanup_buf struct buf timeout = {0};
    nghttp2_session_callbacks *cb = NULL;
    *a = (struct grpcc_response){.code = ERR_NONE};
    a->max_message = req->max_message ? req->max_message : GRPC_MESSAGE_MAX;
    grpc_message_add(&a->request, req->message);
    if (nghttp2_session_callbacks_new(&cb))
        abort(); /* out of memory */
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_close);
    if (nghttp2_session_client_new(&a->session, cb, a))
        abort();
    nghttp2_session_callbacks_del(cb);
    nghttp2_submit_settings(a->session, NGHTTP2_FLAG_NONE, settings, ARRAY_LEN(settings));
    nghttp2_session_set_local_window_size(a->session, NGHTTP2_FLAG_NONE, 0, WINDOW);
    if (req->timeout_ms > 0) {
        buf_add_i64(&timeout, req->timeout_ms < TIMEOUT_MAX_MS ? req->timeout_ms
                                                               : TIMEOUT_MAX_MS);
        buf_addc(&timeout, 'm');
        nva[n++] = grpc_field(SPAN("grpc-timeout"), buf_span(&timeout));
    }
    nghttp2_data_provider provider = {.source.ptr = a, .read_callback = on_read};
    a->id = nghttp2_submit_request(a->session, NULL, nva, n, &provider, NULL);
    if (a->id < 0)
        grpcc_response_fail(a, GRPC_INTERNAL, "%s", nghttp2_strerror(a->id));
}

void grpcc_response_fini(struct grpcc_response *a)
{
    nghttp2_session_del(a->session);
    buf_fini(&a->request);
    buf_fini(&a->text);
    buf_fini(&a->in);
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
    struct span found;
    if (!find_message(a, &found))
        return false;
    buf_add_span(message, found);
    a->taken += GRPC_HEAD + found.n;
    if (a->taken == a->in.n) {
        buf_clear(&a->in);
        a->taken = 0;
    }
    return true;
}

/* -- The socket -- */

struct grpcc_stream {
    struct grpcc_response response;
    int fd;
    struct grpc_out out;
    int64_t deadline_ms;
    char *what; /* method and socket, for error messages */
    uint8_t bytes[READ_BYTES];
};

/* The timeout for poll in milliseconds; -1: infinite. */
static int poll_ms(int64_t now, int64_t until)
{
    if (until == INT64_MAX)
        return -1;
    if (until <= now)
        return 0;
    return until - now > INT32_MAX ? INT32_MAX : (int)(until - now);
}

static int64_t later(int64_t now, int64_t ms)
{
    return ms > INT64_MAX - now ? INT64_MAX : now + ms;
}

/* A connected socket, or -1 with errno; ETIMEDOUT if the backlog stays full. */
static int connect_to(const struct sockaddr_un *addr, int64_t deadline_ms)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    while (connect(fd, (const struct sockaddr *)addr, sizeof *addr) != 0) {
        int error = errno;
        if (error == EINTR)
            continue;
        if (error == EAGAIN && clock_mono_ms() < deadline_ms) {
            poll(NULL, 0, CONNECT_RETRY_MS);
            continue;
        }
        close(fd);
        errno = error == EAGAIN ? ETIMEDOUT : error;
        return -1;
    }
    return fd;
}

struct grpcc_stream *grpcc_open(const struct grpcc_request *req, enum grpc_status *status,
                                struct err *err)
{
    int64_t deadline_ms =
        req->timeout_ms > 0 ? later(clock_mono_ms(), req->timeout_ms) : INT64_MAX;
    cleanup_free char *what = xasprintf("%s at %s", req->method, req->socket);
    struct sockaddr_un addr;
    enum grpc_status failed = GRPC_UNAVAILABLE;
    int fd = grpc_address(req->socket, &addr, err) ? connect_to(&addr, deadline_ms) : -2;
    if (fd < 0) {
        if (fd == -1 && errno == ETIMEDOUT) {
            failed = GRPC_DEADLINE_EXCEEDED;
            err_set(err, ERR_TIMEOUT, "DEADLINE_EXCEEDED: connect timed out");
        } else if (fd == -1) {
            err_set(err, ERR_UNAVAILABLE, "UNAVAILABLE: connect: %s",
                    strerrordesc_np(errno));
        }
        if (status)
            *status = failed;
        err_wrap(err, "%s", what);
        return NULL;
    }
    struct grpcc_stream *s = xmalloc(sizeof *s);
    s->fd = fd;
    s->out = (struct grpc_out){0};
    s->deadline_ms = deadline_ms;
    s->what = steal(&what);
    grpcc_response_init(&s->response, req);
    return s;
}

/* Performs the pending I/O. Returns the events to poll for; 0: more to read. */
static short do_io(struct grpcc_stream *s)
{
    bool moved = false;
    size_t n = 0;
    enum grpc_io wrote = grpc_io_write(&s->out, s->response.session, s->fd, &moved);
    /* Read also after a failed write: the peer may have responded before it closed. */
    enum grpc_io got = grpc_io_read(s->fd, s->bytes, sizeof s->bytes, &n);
    if (got == GRPC_IO_DONE)
        grpcc_response_feed(&s->response, s->bytes, n);
    else if (got == GRPC_IO_BROKEN || wrote == GRPC_IO_BROKEN)
        grpcc_response_fail(&s->response, GRPC_UNAVAILABLE, "connection closed");
    grpcc_response_check(&s->response);
    if (got == GRPC_IO_DONE)
        return 0;
    return wrote == GRPC_IO_BLOCKED ? POLLIN | POLLOUT : POLLIN;
}

enum grpcc_next grpcc_next(struct grpcc_stream *s, int64_t wait_ms, struct buf *message,
                           enum grpc_status *status, struct err *err)
{
    struct grpcc_response *a = &s->response;
    int64_t until_ms = later(clock_mono_ms(), wait_ms);
    int64_t poll_until_ms = until_ms < s->deadline_ms ? until_ms : s->deadline_ms;
    while (!grpcc_response_take(a, message)) {
        if (a->is_done) {
            if (status)
                *status = a->status;
            if (a->status == GRPC_OK)
                return GRPCC_END;
            err_set(err, a->code == ERR_NONE ? grpc_status_err(a->status) : a->code,
                    "%s: %s%s%.*s", s->what, grpc_status_name(a->status),
                    a->text.n ? ": " : "", SPAN_ARG(a->text));
            return GRPCC_FAILED;
        }
        short events = do_io(s);
        int64_t now = clock_mono_ms();
        struct pollfd p = {.fd = s->fd, .events = events};
        if (now >= s->deadline_ms)
            grpcc_response_fail(a, GRPC_DEADLINE_EXCEEDED, "no response in time");
        else if (events && !a->is_done && now >= until_ms)
            return grpcc_response_take(a, message) ? GRPCC_MESSAGE : GRPCC_TIMEOUT;
        else if (events && !a->is_done)
            poll(&p, 1, poll_ms(now, poll_until_ms));
    }
    return GRPCC_MESSAGE;
}

void grpcc_close(struct grpcc_stream *s)
{
    bool moved;
    if (!s)
        return;
    if (!s->response.is_done) {
        /* If the socket blocks, the peer only sees the close. */
        nghttp2_submit_rst_stream(s->response.session, NGHTTP2_FLAG_NONE, s->response.id,
                                  NGHTTP2_CANCEL);
        grpc_io_write(&s->out, s->response.session, s->fd, &moved);
    }
    close(s->fd);
    grpcc_response_fini(&s->response);
    buf_fini(&s->out.bytes);
    free(s->what);
    free(s);
}

int grpcc_call(const struct grpcc_request *req, struct buf *reply,
               enum grpc_status *status, struct err *err)
{
    cleanup_buf struct buf message = {0};
    unsigned n = 0;
    enum grpcc_next next;
    struct grpcc_stream *s = grpcc_open(req, status, err);
    if (!s)
        return -1;
    while ((next = grpcc_next(s, INT64_MAX, &message, status, err)) == GRPCC_MESSAGE &&
           n < 2)
        n++;
    int rc = next == GRPCC_FAILED ? -1 : 0;
    if (rc == 0 && n != 1) {
        rc = err_set(err, ERR_INTERNAL, "%s: INTERNAL: the response has %s", s->what,
                     n ? "two messages" : "no message");
        if (status)
            *status = GRPC_INTERNAL;
    }
    if (rc == 0)
        buf_add_span(reply, buf_span(&message));
    grpcc_close(s);
    return rc;
}
