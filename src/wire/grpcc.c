/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "wire/grpcc_priv.h"

enum {
    READ_BYTES = 64 * 1024,
    CONNECT_RETRY_MS = 5, /* while the peer's backlog is full */
};

struct grpcc_stream {
    struct grpcc_response response;
    int fd; /* -1: closed */
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

static enum grpc_status set_status(enum grpc_status got, enum grpc_status *status)
{
    if (status)
        *status = got;
    return got;
}

static int open_socket(const struct grpcc_request *req, int64_t deadline_ms,
                       enum grpc_status *status, struct err *err)
{
    struct sockaddr_un addr;
    set_status(GRPC_UNAVAILABLE, status);
    if (!grpc_address(req->socket, &addr, err))
        return -1;
    int fd = connect_to(&addr, deadline_ms);
    if (fd < 0 && errno == ETIMEDOUT)
        err_set(err, ERR_TIMEOUT, "%s: connect timed out",
                grpc_status_name(set_status(GRPC_DEADLINE_EXCEEDED, status)));
    else if (fd < 0)
        err_set(err, ERR_UNAVAILABLE, "UNAVAILABLE: connect: %s", strerrordesc_np(errno));
    return fd;
}

struct grpcc_stream *grpcc_open(const struct grpcc_request *req, enum grpc_status *status,
                                struct err *err)
{
    int64_t deadline_ms =
        req->timeout_ms > 0 ? later(clock_mono_ms(), req->timeout_ms) : INT64_MAX;
    cleanup_free char *what = xasprintf("%s at %s", req->method, req->socket);
    int fd = open_socket(req, deadline_ms, status, err);
    if (fd < 0) {
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

/* Waits for a message or the end of the stream, at most until `until_ms`. */
static void wait_for_message(struct grpcc_stream *s, int64_t until_ms)
{
    struct grpcc_response *a = &s->response;
    while (a->n_taken == a->n && !a->is_done) {
        short events = do_io(s);
        int64_t now = clock_mono_ms();
        struct pollfd p = {.fd = s->fd, .events = events};
        if (now >= s->deadline_ms)
            grpcc_response_fail(a, GRPC_DEADLINE_EXCEEDED, "no response in time");
        else if (events && now >= until_ms)
            return;
        else if (events && !a->is_done)
            poll(&p, 1,
                 poll_ms(now, until_ms < s->deadline_ms ? until_ms : s->deadline_ms));
    }
}

static enum grpcc_next finish(struct grpcc_stream *s, enum grpc_status *status,
                              struct err *err)
{
    const struct grpcc_response *a = &s->response;
    if (set_status(a->status, status) == GRPC_OK)
        return GRPCC_END;
    err_set(err, a->code == ERR_NONE ? grpc_status_err(a->status) : a->code,
            "%s: %s%s%.*s", s->what, grpc_status_name(a->status), a->text.n ? ": " : "",
            SPAN_ARG(a->text));
    return GRPCC_FAILED;
}

enum grpcc_next grpcc_next(struct grpcc_stream *s, int64_t wait_ms, struct buf *message,
                           enum grpc_status *status, struct err *err)
{
    wait_for_message(s, later(clock_mono_ms(), wait_ms));
    if (grpcc_response_take(&s->response, message))
        return GRPCC_MESSAGE;
    return s->response.is_done ? finish(s, status, err) : GRPCC_TIMEOUT;
}

/* Sends RST_STREAM if the socket does not block; otherwise the peer only sees the close.
 */
static void cancel(struct grpcc_stream *s)
{
    bool moved;
    nghttp2_submit_rst_stream(s->response.session, NGHTTP2_FLAG_NONE, s->response.id,
                              NGHTTP2_CANCEL);
    grpc_io_write(&s->out, s->response.session, s->fd, &moved);
}

void grpcc_close(struct grpcc_stream *s)
{
    if (!s)
        return;
    if (!s->response.is_done)
        cancel(s);
    close(s->fd);
    grpcc_response_fini(&s->response);
    buf_fini(&s->out.bytes);
    free(s->what);
    free(s);
}

static int fail_call(struct grpcc_stream *s, const char *why, enum grpc_status *status,
                     struct err *err)
{
    return err_set(err, ERR_INTERNAL, "%s: %s: %s", s->what,
                   grpc_status_name(set_status(GRPC_INTERNAL, status)), why);
}

/* Reads the end of a unary response, after its message. */
static int end_call(struct grpcc_stream *s, enum grpc_status *status, struct err *err)
{
    cleanup_buf struct buf second = {0};
    enum grpcc_next next = grpcc_next(s, INT64_MAX, &second, status, err);
    if (next == GRPCC_MESSAGE)
        return fail_call(s, "the response has two messages", status, err);
    return next == GRPCC_END ? 0 : -1;
}

int grpcc_call(const struct grpcc_request *req, struct buf *reply,
               enum grpc_status *status, struct err *err)
{
    cleanup_buf struct buf message = {0};
    struct grpcc_stream *s = grpcc_open(req, status, err);
    if (!s)
        return -1;
    enum grpcc_next next = grpcc_next(s, INT64_MAX, &message, status, err);
    int rc = -1;
    if (next == GRPCC_MESSAGE)
        rc = end_call(s, status, err);
    else if (next == GRPCC_END)
        rc = fail_call(s, "the response has no message", status, err);
    if (rc == 0)
        buf_add_span(reply, buf_span(&message));
    grpcc_close(s);
    return rc;
}
