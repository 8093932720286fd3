/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The gRPC server: its calls, its connections, its thread, its socket.
 *
 * Each round of the thread reads input and runs handlers, brings what handlers have posted
 * to the sessions, checks deadlines, and writes. A connection whose socket blocks is not
 * read, so that a client that does not read cannot queue more output.
 */

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"
#include "wire/grpc_priv.h"
#include "wire/grpcd.h"

enum {
    REQUEST_MS = 10 * 1000, /* from a call's first byte to the end of its request */
    STALL_MS = 30 * 1000,
    CALLS_MAX = 64, /* concurrent, per connection */
    STREAM_WINDOW = 1 << 20,
    CONN_WINDOW = 4 << 20,
    READ_BYTES = 64 * 1024,
    BACKLOG = 64,
    ACCEPT_RETRY_MS = 100,
    WHY_MAX = 512, /* bytes of grpc-message */
};

/* -- Headers: errors and timeouts -- */

enum grpc_status grpc_status_of(enum err_code code)
{
    switch (code) {
    case ERR_NONE:
        return GRPC_OK;
    case ERR_INVALID:
        return GRPC_INVALID_ARGUMENT;
    case ERR_NOT_FOUND:
        return GRPC_NOT_FOUND;
    case ERR_CONFLICT:
    case ERR_GONE:
        return GRPC_FAILED_PRECONDITION;
    case ERR_UNAUTHORIZED:
        return GRPC_UNAUTHENTICATED;
    case ERR_FORBIDDEN:
        return GRPC_PERMISSION_DENIED;
    case ERR_TOO_LARGE:
        return GRPC_RESOURCE_EXHAUSTED;
    case ERR_UNAVAILABLE:
        return GRPC_UNAVAILABLE;
    case ERR_TIMEOUT:
        return GRPC_DEADLINE_EXCEEDED;
    case ERR_INTERNAL:
        break;
    }
    return GRPC_INTERNAL;
}

void grpc_percent_encode(struct buf *out, struct span s)
{
    static const char hex[] = "0123456789ABCDEF";
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c >= ' ' && c <= '~' && c != '%') {
            buf_addc(out, (char)c);
            continue;
        }
        buf_addc(out, '%');
        buf_addc(out, hex[c >> 4]);
        buf_addc(out, hex[c & 15]);
    }
}

bool grpc_timeout_parse(struct span s, int64_t *ms)
{
    static const struct {
        char name;
        int64_t ms, parts; /* the unit is ms / parts milliseconds */
    } units[] = {{'H', 3600000, 1}, {'M', 60000, 1}, {'S', 1000, 1},
                 {'m', 1, 1},       {'u', 1, 1000},  {'n', 1, 1000000}};
    enum { DIGITS = 8 };
    int64_t value;
    if (s.n < 2 || s.n > DIGITS + 1 || s.p[0] == '-' ||
        !span_i64((struct span){s.p, s.n - 1}, &value))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(units); i++)
        if (units[i].name == s.p[s.n - 1]) {
            *ms = (value * units[i].ms + units[i].parts - 1) / units[i].parts;
            return true;
        }
    return false;
}

/* -- A call: the request, the handle by which a handler responds from any thread, and the
 * response. It has two owners: its HTTP/2 stream, on the server's thread, and the handler's
 * handle. The last one frees it. -- */

static void unref_locked(struct grpcd *d)
{
    bool is_last = --d->refs == 0;
    pthread_mutex_unlock(&d->lock);
    if (!is_last)
        return;
    if (d->wake_fd >= 0)
        close(d->wake_fd);
    pthread_cond_destroy(&d->drained);
    pthread_mutex_destroy(&d->lock);
    free(d->path);
    free(d);
}

static void wake(struct grpcd *d)
{
    if (d->wake_fd >= 0)
        (void)eventfd_write(d->wake_fd, 1);
}

static void free_call(struct grpcd_call *call)
{
    buf_fini(&call->in);
    buf_fini(&call->sending);
    buf_fini(&call->posted);
    buf_fini(&call->why);
    free(call);
}

/* -- The handler's side, from any thread -- */

static void post_locked(struct grpcd_call *call, struct buf *message)
{
    buf_clear(&call->posted);
    if (!call->is_cancelled)
        grpc_message_add(&call->posted, buf_span(message));
    buf_fini(message);
}

void grpcd_send(struct grpcd_call *call, struct buf *message)
{
    assert(call->method->stream);
    pthread_mutex_lock(&call->d->lock);
    post_locked(call, message);
    wake(call->d);
    pthread_mutex_unlock(&call->d->lock);
}

/* Ends the call, unless it is cancelled, and gives the handle back. Takes *why and
 * releases the lock. */
static void end_locked(struct grpcd_call *call, enum grpc_status status, struct buf *why)
{
    struct grpcd *d = call->d;
    if (!call->is_cancelled) {
        call->is_ended = true;
        call->status = status;
        call->why = *why;
        *why = (struct buf){0};
    }
    buf_fini(why);
    call->has_handle = false;
    if (call->has_stream)
        wake(d);
    else
        free_call(call);
    unref_locked(d);
}

void grpcd_reply(struct grpcd_call *call, struct buf *message)
{
    struct buf why = {0};
    pthread_mutex_lock(&call->d->lock);
    post_locked(call, message);
    end_locked(call, GRPC_OK, &why);
}

void grpcd_end(struct grpcd_call *call, enum grpc_status status, const char *fmt, ...)
{
    struct buf why = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&why, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&call->d->lock);
    end_locked(call, status, &why);
}

void grpcd_fail(struct grpcd_call *call, const struct err *why)
{
    grpcd_end(call, grpc_status_of(why->code), "%s", why->msg);
}

/* -- The response, on the server's thread -- */

/* From now on the handler's output is dropped; tells the handler. */
static void cancel_handler(struct grpcd_call *call)
{
    pthread_mutex_lock(&call->d->lock);
    bool tell = call->has_handle && !call->is_cancelled && call->method->on_cancel;
    call->is_cancelled = true;
    pthread_mutex_unlock(&call->d->lock);
    if (tell)
        call->method->on_cancel(call->d->ctx, call);
}

/* Submits grpc-status and grpc-message, after `n` fields in `nva`: as the trailers, or in
 * one frame with the headers. */
static void submit_status(struct grpcd_call *call, nghttp2_nv *nva, size_t n)
{
    char number[12];
    cleanup_buf struct buf text = {0};
    struct span why = buf_span(&call->why);
    nghttp2_session *session = call->conn->session;
    size_t first = n;
    snprintf(number, sizeof number, "%u", (unsigned)call->status);
    nva[n++] = grpc_field(SPAN("grpc-status"), span_of(number));
    if (why.n && call->status != GRPC_OK) {
        why.n = why.n < WHY_MAX ? why.n : WHY_MAX;
        grpc_percent_encode(&text, why);
        nva[n++] = grpc_field(SPAN("grpc-message"), buf_span(&text));
    }
    call->is_complete = true;
    if (first)
        nghttp2_submit_response(session, call->id, nva, n, NULL);
    else
        nghttp2_submit_trailer(session, call->id, nva, n);
}

/* Gives the session bytes of the message, and the trailers after the last one. */
static ssize_t on_read(nghttp2_session *session, int32_t id, uint8_t *to, size_t room,
                       uint32_t *flags, nghttp2_data_source *source, void *ctx)
{
    struct grpcd_call *call = source->ptr;
    (void)session, (void)id, (void)ctx;
    pthread_mutex_lock(&call->d->lock);
    if (call->sent == call->sending.n) {
        buf_fini(&call->sending);
        call->sending = call->posted;
        call->posted = (struct buf){0};
        call->sent = 0;
    }
    bool is_last = call->is_ended && !call->posted.n;
    pthread_mutex_unlock(&call->d->lock);

    size_t n = call->sending.n - call->sent;
    n = n < room ? n : room;
    if (n) {
        memcpy(to, call->sending.p + call->sent, n);
        call->conn->moved_ms = call->conn->now_ms;
    }
    call->sent += n;
    if (is_last && call->sent == call->sending.n) {
        nghttp2_nv nva[2];
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        submit_status(call, nva, 0);
    } else if (!n) {
        return NGHTTP2_ERR_DEFERRED;
    }
    return (ssize_t)n;
}

static void call_flush(struct grpcd_call *call)
{
    nghttp2_session *session = call->conn->session;
    nghttp2_nv nva[4] = {
        grpc_field(SPAN(":status"), SPAN("200")),
        grpc_field(SPAN("content-type"), SPAN("application/grpc")),
    };
    pthread_mutex_lock(&call->d->lock);
    bool has_message = call->posted.n, is_ended = call->is_ended;
    pthread_mutex_unlock(&call->d->lock);
    if (call->is_complete || (!has_message && !is_ended))
        return;
    if (call->is_open) {
        nghttp2_session_resume_data(session, call->id);
        return;
    }
    call->is_open = true;
    nghttp2_data_provider provider = {.source.ptr = call, .read_callback = on_read};
    if (has_message)
        nghttp2_submit_response(session, call->id, nva, 2, &provider);
    else
        submit_status(call, nva, 2);
}

/* Cancels the handler, and ends the call with a status instead of what it has posted. */
static void reject(struct grpcd_call *call, enum grpc_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void reject(struct grpcd_call *call, enum grpc_status status, const char *fmt, ...)
{
    cleanup_buf struct buf why = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&why, fmt, ap);
    va_end(ap);
    cancel_handler(call);
    buf_fini(&call->in);
    pthread_mutex_lock(&call->d->lock);
    buf_clear(&call->posted);
    buf_fini(&call->why);
    call->is_ended = true;
    call->status = status;
    call->why = why;
    why = (struct buf){0};
    pthread_mutex_unlock(&call->d->lock);
    if (call->sent == call->sending.n) {
        call_flush(call);
        return;
    }
    call->is_complete = true; /* no status can be sent inside a message */
    nghttp2_submit_rst_stream(call->conn->session, NGHTTP2_FLAG_NONE, call->id,
                              NGHTTP2_CANCEL);
}

/* Whether the response is decided: further input is discarded. */
static bool is_answered(struct grpcd_call *call)
{
    pthread_mutex_lock(&call->d->lock);
    bool is_ended = call->is_ended;
    pthread_mutex_unlock(&call->d->lock);
    return is_ended;
}

/* -- A connection without its socket -- */

static struct grpcd_call *call_of(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame,
                            void *ctx)
{
    struct grpcd_conn *c = ctx;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct grpcd_call *call = xcalloc(1, sizeof *call);
    call->d = c->d;
    call->conn = c;
    call->id = frame->hd.stream_id;
    call->request_until_ms = c->now_ms + c->d->request_ms;
    call->until_ms = INT64_MAX;
    call->has_stream = true;
    list_append(&c->calls, &call->link);
    nghttp2_session_set_stream_user_data(session, call->id, call);
    return 0;
}

/* nghttp2 checks no headers here (see grpcd_conn_new), so any :authority is accepted. */
static int on_header(nghttp2_session *session, const nghttp2_frame *frame,
                     const uint8_t *name_p, size_t name_n, const uint8_t *value_p,
                     size_t value_n, uint8_t flags, void *ctx)
{
    struct grpcd_call *call = call_of(session, frame->hd.stream_id);
    struct span name = {(const char *)name_p, name_n},
                value = {(const char *)value_p, value_n};
    int64_t ms;
    (void)flags, (void)ctx;
    if (!call || call->has_headers) /* the latter: a trailer */
        return 0;
    if (span_eq(name, SPAN(":path"))) {
        snprintf(call->path, sizeof call->path, "%.*s", SPAN_ARG(value));
    } else if (span_eq(name, SPAN("grpc-timeout"))) {
        call->has_bad_timeout = !grpc_timeout_parse(value, &ms);
        if (!call->has_bad_timeout)
            call->until_ms = call->conn->now_ms + ms;
    }
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p,
                   size_t n, void *ctx)
{
    struct grpcd_call *call = call_of(session, id);
    struct span message;
    struct err err;
    enum grpc_status status;
    (void)flags, (void)ctx;
    if (!call || !call->has_headers || is_answered(call))
        return 0;
    buf_add(&call->in, p, n);
    enum grpc_read got = grpc_message_read(buf_span(&call->in), call->d->max_message,
                                           &message, &status, &err);
    if (got == GRPC_READ_INVALID)
        reject(call, status, "%s", err.msg);
    else if (got == GRPC_READ_MESSAGE && call->in.n > GRPC_HEAD + message.n)
        reject(call, GRPC_INTERNAL, "unexpected data after the request message");
    return 0;
}

static void find_method(struct grpcd_call *call)
{
    const struct grpcd_method *m = call->d->methods;
    call->has_headers = true;
    while (m->path && strcmp(m->path, call->path) != 0)
        m++;
    call->method = m;
    if (!m->path)
        reject(call, GRPC_UNIMPLEMENTED, "unknown method %s", call->path);
    else if (call->has_bad_timeout)
        reject(call, GRPC_INTERNAL, "malformed grpc-timeout");
}

/* The request is complete: calls the handler. */
static void start_call(struct grpcd_call *call)
{
    struct span message;
    if (!call->has_headers || call->is_started || is_answered(call))
        return;
    if (grpc_message_read(buf_span(&call->in), call->d->max_message, &message, NULL,
                          NULL) != GRPC_READ_MESSAGE) {
        reject(call, GRPC_INTERNAL,
               call->in.n ? "truncated request message" : "request without a message");
        return;
    }
    call->is_started = true;
    pthread_mutex_lock(&call->d->lock);
    call->d->refs++;
    call->has_handle = true;
    pthread_mutex_unlock(&call->d->lock);
    call->method->start(call->d->ctx, call, message);
    buf_fini(&call->in);
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    bool is_headers = frame->hd.type == NGHTTP2_HEADERS;
    struct grpcd_call *call = is_headers || frame->hd.type == NGHTTP2_DATA
                                  ? call_of(session, frame->hd.stream_id)
                                  : NULL;
    (void)ctx;
    if (call && is_headers && !call->has_headers)
        find_method(call);
    if (call && frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        start_call(call);
    return 0;
}

/* The stream is closed: cancels the handler, and frees the call if it has no handle. */
static void close_call(struct grpcd_call *call)
{
    cancel_handler(call);
    list_remove(&call->link);
    pthread_mutex_lock(&call->d->lock);
    call->has_stream = false;
    bool is_last = !call->has_handle;
    pthread_mutex_unlock(&call->d->lock);
    if (is_last)
        free_call(call);
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *ctx)
{
    struct grpcd_call *call = call_of(session, id);
    (void)code, (void)ctx;
    if (call)
        close_call(call);
    return 0;
}

struct grpcd_conn *grpcd_conn_new(struct grpcd *d, int64_t now_ms)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, CALLS_MAX},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW},
    };
    struct grpcd_conn *c = xcalloc(1, sizeof *c);
    nghttp2_session_callbacks *cb = NULL;
    nghttp2_option *opt = NULL;
    c->d = d;
    list_init(&c->calls);
    c->fd = -1;
    c->now_ms = c->moved_ms = now_ms;
    if (nghttp2_session_callbacks_new(&cb) || nghttp2_option_new(&opt))
        abort(); /* out of memory */
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_close);
    /* Kubelets before 1.26 send an :authority that nghttp2's own checks reject. */
    nghttp2_option_set_no_http_messaging(opt, 1);
    if (nghttp2_session_server_new2(&c->session, cb, c, opt))
        abort();
    nghttp2_option_del(opt);
    nghttp2_session_callbacks_del(cb);
    nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, settings, ARRAY_LEN(settings));
    nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE, 0, CONN_WINDOW);
    return c;
}

void grpcd_conn_free(struct grpcd_conn *c)
{
    LIST_EACH (struct grpcd_call, call, &c->calls, link)
        close_call(call);
    nghttp2_session_del(c->session);
    buf_fini(&c->out.bytes);
    free(c);
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

int64_t grpcd_conn_tick(struct grpcd_conn *c, int64_t now_ms)
{
    int64_t at = INT64_MAX;
    bool is_waiting = c->is_blocked;
    c->now_ms = now_ms;
    LIST_EACH (struct grpcd_call, call, &c->calls, link) {
        int64_t until = call->until_ms;
        if (!call->is_started && call->request_until_ms < until)
            until = call->request_until_ms;
        if (!is_answered(call) && now_ms >= until)
            reject(call, GRPC_DEADLINE_EXCEEDED,
                   call->is_started ? "client deadline exceeded"
                                    : "request not complete in time");
        pthread_mutex_lock(&c->d->lock);
        if (!call->is_ended && until < at)
            at = until;
        is_waiting |= !call->is_complete && (call->sent < call->sending.n ||
                                             call->posted.n || call->is_ended);
        pthread_mutex_unlock(&c->d->lock);
    }
    if (!is_waiting || !c->is_waiting)
        c->moved_ms = now_ms;
    c->is_waiting = is_waiting;
    int64_t stalled_ms = c->moved_ms + c->d->stall_ms;
    if (is_waiting && now_ms >= stalled_ms) {
        log_warn("grpcd", "connection: the client reads nothing; closing it");
        c->is_broken = true;
        return now_ms + c->d->stall_ms;
    }
    return is_waiting && stalled_ms < at ? stalled_ms : at;
}

void grpcd_conn_drain(struct grpcd_conn *c)
{
    if (!c->is_closing)
        nghttp2_submit_goaway(c->session, NGHTTP2_FLAG_NONE,
                              nghttp2_session_get_last_proc_stream_id(c->session),
                              NGHTTP2_NO_ERROR, NULL, 0);
    c->is_closing = true;
    LIST_EACH (struct grpcd_call, call, &c->calls, link)
        if (!is_answered(call) && (!call->is_started || call->method->stream))
            reject(call, GRPC_UNAVAILABLE, "server is stopping");
}

bool grpcd_conn_is_done(const struct grpcd_conn *c)
{
    bool has_calls = false;
    LIST_EACH (struct grpcd_call, call, &c->calls, link)
        has_calls |= !call->is_complete;
    return c->is_broken || (!nghttp2_session_want_write(c->session) &&
                            (!nghttp2_session_want_read(c->session) ||
                             (c->is_closing && !has_calls)));
}

/* -- The thread -- */

static void close_conn(struct grpcd_conn **link)
{
    struct grpcd_conn *c = *link;
    *link = c->next;
    close(c->fd);
    grpcd_conn_free(c);
}

static void write_conn(struct grpcd_conn *c, int64_t now)
{
    bool moved = false;
    c->now_ms = now;
    enum grpc_io rc = grpc_io_write(&c->out, c->session, c->fd, &moved);
    if (moved)
        c->moved_ms = now;
    c->is_blocked = rc == GRPC_IO_BLOCKED;
    if (rc == GRPC_IO_BROKEN)
        c->is_broken = true;
}

static void read_conn(struct grpcd_conn *c, int64_t now)
{
    uint8_t bytes[READ_BYTES];
    size_t n = 0;
    enum grpc_io rc = grpc_io_read(c->fd, bytes, sizeof bytes, &n);
    if (rc == GRPC_IO_BROKEN)
        c->is_broken = true;
    else if (rc == GRPC_IO_DONE)
        grpcd_conn_feed(c, bytes, n, now);
}

/* False: no connection can be accepted now. */
static bool accept_conn(struct grpcd *d, int64_t now)
{
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t n = sizeof peer;
    cleanup_close int fd =
        accept4(d->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) != 0 ||
        (peer.uid != 0 && peer.uid != geteuid())) {
        log_warn("grpcd", "connection: rejected, the peer is another user",
                 LOG_S("socket", d->path), LOG_I("uid", peer.uid));
        return true;
    }
    struct grpcd_conn *c = grpcd_conn_new(d, now);
    c->fd = fd;
    fd = -1;
    c->next = d->conns;
    d->conns = c;
    return true;
}

bool grpcd_is_reachable(const struct grpcd *d)
{
    struct stat st;
    return lstat(d->path, &st) == 0 && st.st_dev == d->dev && st.st_ino == d->ino;
}

/* Removes the socket's file only if it is ours: while the socket is open, its inode
 * number is not reused. */
static void close_socket(struct grpcd *d)
{
    if (d->listen_fd < 0)
        return;
    if (grpcd_is_reachable(d))
        unlink(d->path);
    close(d->listen_fd);
    d->listen_fd = -1;
}

void grpcd_flush(struct grpcd *d)
{
    for (struct grpcd_conn *c = d->conns; c; c = c->next)
        LIST_EACH (struct grpcd_call, call, &c->calls, link)
            call_flush(call);
}

/* Checks deadlines, writes output, and closes connections that are finished. Returns the
 * next deadline. */
static int64_t update_conns(struct grpcd *d, int64_t now)
{
    int64_t next_ms = INT64_MAX;
    for (struct grpcd_conn **link = &d->conns; *link;) {
        struct grpcd_conn *c = *link;
        int64_t at = grpcd_conn_tick(c, now);
        if (!c->is_broken && !c->is_blocked)
            write_conn(c, now);
        if (c->is_broken || (!c->is_blocked && grpcd_conn_is_done(c))) {
            close_conn(link);
            continue;
        }
        if (c->is_blocked && c->moved_ms + d->stall_ms < at)
            at = c->moved_ms + d->stall_ms;
        next_ms = at < next_ms ? at : next_ms;
        link = &c->next;
    }
    return next_ms;
}

static void wait_for_events(struct grpcd *d, struct pollfd **fds, size_t *cap,
                            int64_t until_ms, int64_t accept_ms)
{
    size_t n = 2, want = 2;
    int64_t now = clock_mono_ms();
    for (struct grpcd_conn *c = d->conns; c; c = c->next)
        want++;
    MEM_GROW(*fds, *cap, want);
    (*fds)[0] = (struct pollfd){.fd = d->wake_fd, .events = POLLIN};
    (*fds)[1] =
        (struct pollfd){.fd = now < accept_ms ? -1 : d->listen_fd, .events = POLLIN};
    for (struct grpcd_conn *c = d->conns; c; c = c->next)
        (*fds)[n++] =
            (struct pollfd){.fd = c->fd, .events = c->is_blocked ? POLLOUT : POLLIN};
    if (now < accept_ms && accept_ms < until_ms)
        until_ms = accept_ms;
    int64_t wait = until_ms > now ? until_ms - now : 0;
    if (poll(*fds, (nfds_t)n, wait > INT32_MAX ? -1 : (int)wait) < 0)
        for (size_t i = 0; i < n; i++)
            (*fds)[i].revents = 0;
    eventfd_t wakes;
    if ((*fds)[0].revents)
        (void)eventfd_read(d->wake_fd, &wakes);
}

static void *run_server(void *arg)
{
    struct grpcd *d = arg;
    struct pollfd *fds = NULL;
    size_t cap = 0;
    int64_t next_ms = INT64_MAX, accept_ms = 0; /* none before, after a failure */
    for (;;) {
        size_t i = 2;
        wait_for_events(d, &fds, &cap, next_ms, accept_ms);
        int64_t now = clock_mono_ms();
        pthread_mutex_lock(&d->lock);
        int state = d->state;
        pthread_mutex_unlock(&d->lock);
        if (state == GRPCD_STOPPING)
            break;
        for (struct grpcd_conn *c = d->conns; c; c = c->next, i++) {
            if (fds[i].revents && c->is_blocked)
                write_conn(c, now);
            else if (fds[i].revents)
                read_conn(c, now);
        }
        if (fds[1].revents && !accept_conn(d, now))
            accept_ms = now + ACCEPT_RETRY_MS;
        grpcd_flush(d);
        if (state == GRPCD_DRAINING) {
            close_socket(d);
            for (struct grpcd_conn *c = d->conns; c; c = c->next)
                grpcd_conn_drain(c);
        }
        next_ms = update_conns(d, now);
        if (state == GRPCD_DRAINING && !d->conns) {
            pthread_mutex_lock(&d->lock);
            d->is_drained = true;
            pthread_cond_broadcast(&d->drained);
            pthread_mutex_unlock(&d->lock);
        }
    }
    while (d->conns)
        close_conn(&d->conns);
    free(fds);
    return NULL;
}

/* -- Start and stop -- */

/* ERR_CONFLICT if the path exists and is not a socket without a listener. */
static int check_path(const char *path, const struct sockaddr_un *addr, struct err *err)
{
    struct stat st;
    if (lstat(path, &st) != 0) {
        if (errno == ENOENT)
            return 0;
        return err_set(err, ERR_UNAVAILABLE, "%s: %s", path, strerrordesc_np(errno));
    }
    if (!S_ISSOCK(st.st_mode))
        return err_set(err, ERR_CONFLICT, "%s: not a socket, will not be replaced", path);
    cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_set(err, ERR_UNAVAILABLE, "%s: socket: %s", path,
                       strerrordesc_np(errno));
    if (connect(fd, (const struct sockaddr *)addr, sizeof *addr) == 0 || errno == EAGAIN)
        return err_set(err, ERR_CONFLICT, "%s: another process is listening", path);
    return 0;
}

/* The socket is created under a temporary name in the same directory, gets its mode and
 * listens, and is then renamed. So a client that finds the path can connect, and
 * replacing a socket is atomic. */
static int open_socket(struct grpcd *d, const char *path, struct err *err)
{
    struct sockaddr_un addr;
    struct stat st;
    if (!grpc_address(path, &addr, err) || check_path(path, &addr, err))
        return -1;
    const char *slash = strrchr(path, '/');
    cleanup_free char *temporary =
        xasprintf("%.*s.%08x", slash ? (int)(slash + 1 - path) : 0, path,
                  (unsigned)rng_entropy());
    if (!grpc_address(temporary, &addr, err))
        return -1;
    cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof addr) != 0)
        return err_set(err, ERR_UNAVAILABLE, "%s: %s", path, strerrordesc_np(errno));
    if (chmod(temporary, 0600) != 0 || listen(fd, BACKLOG) != 0 ||
        lstat(temporary, &st) != 0 || rename(temporary, path) != 0) {
        err_set(err, ERR_UNAVAILABLE, "%s: %s", path, strerrordesc_np(errno));
        unlink(temporary);
        return -1;
    }
    d->path = xstrdup(path);
    d->dev = st.st_dev;
    d->ino = st.st_ino;
    d->listen_fd = fd;
    fd = -1;
    return 0;
}

struct grpcd *grpcd_new(const struct grpcd_config *config)
{
    struct grpcd *d = xcalloc(1, sizeof *d);
    d->methods = config->methods;
    d->ctx = config->ctx;
    d->max_message = config->max_message ? config->max_message : GRPC_MESSAGE_MAX;
    d->request_ms = config->request_ms ? config->request_ms : REQUEST_MS;
    d->stall_ms = config->stall_ms ? config->stall_ms : STALL_MS;
    d->listen_fd = d->wake_fd = -1;
    d->refs = 1;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->drained, NULL);
    return d;
}

struct grpcd *grpcd_start(const struct grpcd_config *config, struct err *err)
{
    struct grpcd *d = grpcd_new(config);
    sigset_t all, before;
    d->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (d->wake_fd < 0) {
        err_set(err, ERR_UNAVAILABLE, "eventfd: %s", strerrordesc_np(errno));
    } else if (open_socket(d, config->path, err) == 0) {
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        int rc = pthread_create(&d->thread, NULL, run_server, d);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        d->has_thread = rc == 0;
        if (rc == 0) {
            pthread_setname_np(d->thread, "grpcd");
            return d;
        }
        err_set(err, ERR_UNAVAILABLE, "pthread_create: %s", strerrordesc_np(rc));
    }
    grpcd_free(d);
    return NULL;
}

bool grpcd_stop(struct grpcd *d, int64_t timeout_ms)
{
    int64_t until_ms = clock_mono_ms() + timeout_ms;
    pthread_mutex_lock(&d->lock);
    if (d->state == GRPCD_RUNNING)
        d->state = GRPCD_DRAINING;
    wake(d);
    while (!d->is_drained && thread_wait_until(&d->drained, &d->lock, until_ms))
        ;
    bool is_drained = d->is_drained;
    pthread_mutex_unlock(&d->lock);
    return is_drained;
}

void grpcd_free(struct grpcd *d)
{
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    d->state = GRPCD_STOPPING;
    wake(d);
    pthread_mutex_unlock(&d->lock);
    if (d->has_thread)
        pthread_join(d->thread, NULL);
    close_socket(d);
    pthread_mutex_lock(&d->lock);
    unref_locked(d);
}
