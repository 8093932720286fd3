/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The gRPC server: its calls, its connections, its thread, its socket.
 *
 * Connections, and the streams of calls, belong to the server's thread (or to a test
 * without one). Handlers post to calls from any thread, under grpcd.lock; each turn of the
 * thread brings that to the HTTP/2 sessions. No handler is called with the lock held. A
 * connection whose socket blocks is not read, so that a client that does not read cannot
 * queue more output.
 */

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "wire/grpc_priv.h"
#include "wire/grpcd.h"

enum {
    REQUEST_MS = 10 * 1000, /* from a call's headers to the end of its request */
    STALL_MS = 30 * 1000,
    CONNS_MAX = 64,
    CALLS_MAX = 64, /* concurrent, per connection */
    STREAM_WINDOW = 1 << 20,
    CONN_WINDOW = 4 << 20,
    READS = 64, /* of a connection in one turn */
    BACKLOG = 64,
    ACCEPT_RETRY_MS = 100,
    PATH_KEPT = 200, /* bytes of :path; no method is longer */
    WHY_MAX = 512,   /* bytes of grpc-message */
};

struct grpcd {
    const struct grpcd_method *methods;
    void *ctx;
    size_t max_message;
    char *path;    /* of the socket; new */
    int listen_fd; /* -1: there is none */
    dev_t dev;     /* the file of the socket */
    ino_t ino;
    int wake_fd; /* eventfd */
    pthread_t thread;
    bool has_thread;
    atomic_bool is_stopping;
    struct list conns; /* struct conn; owned by the server's thread */
    unsigned n_conns;
    atomic_uint refs;     /* of the owner, and of each call */
    pthread_mutex_t lock; /* protects the members of calls that say so */
};

struct conn {
    struct grpc_socket socket; /* first */
    struct grpcd *d;
    struct list link;  /* of grpcd.conns */
    struct list calls; /* struct grpcd_call */
    nghttp2_session *session;
    int64_t now_ms;   /* of the current turn */
    bool is_waiting;  /* at the end of the last turn, output waited for the client */
    int64_t moved_ms; /* when output last moved, or began to wait */
};

/* The request, the handle by which a handler responds from any thread, and the response.
 * It has two owners, its HTTP/2 stream and the handle. */
struct grpcd_call {
    struct grpcd *d;
    atomic_uint owners;
    struct conn *conn;
    struct list link; /* of conn.calls */
    int32_t id;       /* of the stream */
    char path[PATH_KEPT + 1];
    const struct grpcd_method *method; /* NULL: the headers are incomplete */
    int64_t until_ms;                  /* deadline of the request */
    struct buf in;                     /* the request message with its prefix */
    bool is_started;
    bool is_open;       /* the response's headers are submitted */
    bool is_sending;    /* the session asks on_read for more when the client takes it */
    bool is_complete;   /* all of the response is in the session */
    struct buf sending; /* a message with its prefix */
    size_t sent;

    /* under d->lock */
    struct buf posted; /* the next message, with its prefix; empty: none */
    bool is_ended;     /* with `status` and `why`, after the messages */
    enum grpc_status status;
    struct buf why;
};

static void release(struct grpcd *d)
{
    if (atomic_fetch_sub(&d->refs, 1) != 1)
        return;
    close(d->wake_fd);
    pthread_mutex_destroy(&d->lock);
    free(d->path);
    free(d);
}

static void release_call(struct grpcd_call *call)
{
    if (atomic_fetch_sub(&call->owners, 1) != 1)
        return;
    buf_fini(&call->in);
    buf_fini(&call->sending);
    buf_fini(&call->posted);
    buf_fini(&call->why);
    release(call->d);
    free(call);
}

/* -- The handler's side, from any thread -- */

/* Has no effect on a call that has ended. */
static void finish(struct grpcd_call *call, enum grpc_status status, const char *fmt,
                   va_list ap)
{
    cleanup_buf struct buf why = {0};
    buf_vprintf(&why, fmt, ap);
    pthread_mutex_lock(&call->d->lock);
    if (!call->is_ended) {
        call->is_ended = true;
        call->status = status;
        call->why = why;
        why = (struct buf){0};
    }
    pthread_mutex_unlock(&call->d->lock);
}

void grpcd_send(struct grpcd_call *call, struct buf *message)
{
    pthread_mutex_lock(&call->d->lock);
    if (!call->is_ended) {
        buf_clear(&call->posted);
        grpc_message_add(&call->posted, buf_span(message));
    }
    pthread_mutex_unlock(&call->d->lock);
    buf_fini(message);
    eventfd_write(call->d->wake_fd, 1);
}

void grpcd_reply(struct grpcd_call *call, struct buf *message)
{
    grpcd_send(call, message);
    grpcd_end(call, GRPC_OK, "%s", "");
}

void grpcd_end(struct grpcd_call *call, enum grpc_status status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    finish(call, status, fmt, ap);
    va_end(ap);
    eventfd_write(call->d->wake_fd, 1);
    release_call(call);
}

/* -- The response, on the server's thread -- */

/* Ends a call that no handler has. */
static void reject(struct grpcd_call *call, enum grpc_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void reject(struct grpcd_call *call, enum grpc_status status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    finish(call, status, fmt, ap);
    va_end(ap);
    buf_fini(&call->in);
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
    if (n)
        memcpy(to, call->sending.p + call->sent, n);
    call->sent += n;
    if (is_last && call->sent == call->sending.n) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        call->is_complete = true;
        call->is_sending = false;
        /* Of grpc-message, the bytes that are not printable ASCII are percent-encoded (no
         * others: not every client decodes them). */
        char status[12];
        cleanup_buf struct buf text = {0};
        for (size_t i = 0; i < call->why.n && i < WHY_MAX; i++) {
            unsigned char c = (unsigned char)call->why.p[i];
            buf_printf(&text, c < ' ' || c > '~' || c == '%' ? "%%%02X" : "%c", c);
        }
        snprintf(status, sizeof status, "%d", (int)call->status);
        const nghttp2_nv nva[] = {
            grpc_field(SPAN("grpc-status"), span_of(status)),
            grpc_field(SPAN("grpc-message"), buf_span(&text)),
        };
        bool has_text = text.n && call->status != GRPC_OK;
        nghttp2_submit_trailer(call->conn->session, call->id, nva, has_text ? 2 : 1);
    } else if (!n) {
        call->is_sending = false;
        return NGHTTP2_ERR_DEFERRED;
    }
    return (ssize_t)n;
}

/* Brings what was posted to the session. */
static void flush(struct grpcd_call *call)
{
    const nghttp2_nv nva[] = {
        grpc_field(SPAN(":status"), SPAN("200")),
        grpc_field(SPAN("content-type"), SPAN("application/grpc")),
    };
    const nghttp2_data_provider provider = {.source.ptr = call, .read_callback = on_read};
    pthread_mutex_lock(&call->d->lock);
    bool has_output = call->posted.n || call->is_ended;
    pthread_mutex_unlock(&call->d->lock);
    if (!has_output || call->is_sending || call->is_complete)
        return;
    if (call->is_open)
        nghttp2_session_resume_data(call->conn->session, call->id);
    else
        nghttp2_submit_response(call->conn->session, call->id, nva, ARRAY_LEN(nva),
                                &provider);
    call->is_open = call->is_sending = true;
}

/* -- A connection -- */

static struct grpcd_call *call_of(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame,
                            void *ctx)
{
    struct conn *c = ctx;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct grpcd_call *call = xcalloc(1, sizeof *call);
    call->d = c->d;
    atomic_fetch_add(&c->d->refs, 1);
    atomic_init(&call->owners, 1);
    call->conn = c;
    call->id = frame->hd.stream_id;
    call->until_ms = c->now_ms + REQUEST_MS;
    list_append(&c->calls, &call->link);
    nghttp2_session_set_stream_user_data(session, call->id, call);
    return 0;
}

/* nghttp2 checks no headers here (see grpcd_add), so any :authority is accepted. */
static int on_header(nghttp2_session *session, const nghttp2_frame *frame,
                     const uint8_t *name, size_t name_n, const uint8_t *value,
                     size_t value_n, uint8_t flags, void *ctx)
{
    struct grpcd_call *call = call_of(session, frame->hd.stream_id);
    (void)flags, (void)ctx;
    if (call && !call->method && /* else a trailer */
        span_eq((struct span){(const char *)name, name_n}, SPAN(":path")))
        snprintf(call->path, sizeof call->path, "%.*s", (int)value_n,
                 (const char *)value);
    return 0;
}

/* Rejects a request whose message is invalid. */
static enum grpc_read read_message(struct grpcd_call *call, struct span *message)
{
    struct err err;
    enum grpc_status status;
    enum grpc_read got = grpc_message_read(buf_span(&call->in), call->d->max_message,
                                           message, &status, &err);
    if (got == GRPC_READ_INVALID)
        reject(call, status, "%s", err.msg);
    return got;
}

/* A call without a handler is ended by this thread alone. */
static bool is_reading(const struct grpcd_call *call)
{
    return call && call->method && !call->is_started && !call->is_ended;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p,
                   size_t n, void *ctx)
{
    struct grpcd_call *call = call_of(session, id);
    struct span message;
    (void)flags, (void)ctx;
    if (!is_reading(call))
        return 0;
    buf_add(&call->in, p, n);
    read_message(call, &message);
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    bool is_headers = frame->hd.type == NGHTTP2_HEADERS;
    struct grpcd_call *call = is_headers || frame->hd.type == NGHTTP2_DATA
                                  ? call_of(session, frame->hd.stream_id)
                                  : NULL;
    (void)ctx;
    if (call && is_headers && !call->method) {
        const struct grpcd_method *m = call->d->methods;
        while (m->path && strcmp(m->path, call->path) != 0)
            m++;
        call->method = m;
        if (!m->path)
            reject(call, GRPC_UNIMPLEMENTED, "unknown method %s", call->path);
    }
    if (!is_reading(call) || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    struct span message;
    if (read_message(call, &message) != GRPC_READ_MESSAGE) {
        reject(call, GRPC_INTERNAL,
               call->in.n ? "truncated request message" : "request without a message");
        return 0;
    }
    call->is_started = true;
    atomic_fetch_add(&call->owners, 1);
    call->method->start(call->d->ctx, call, message);
    buf_fini(&call->in);
    return 0;
}

/* The stream is closed. */
static void close_call(struct grpcd_call *call)
{
    pthread_mutex_lock(&call->d->lock);
    bool is_cancelled = call->is_started && !call->is_ended;
    call->is_ended = true;
    pthread_mutex_unlock(&call->d->lock);
    if (is_cancelled && call->method->on_cancel)
        call->method->on_cancel(call->d->ctx, call);
    list_remove(&call->link);
    release_call(call);
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *ctx)
{
    struct grpcd_call *call = call_of(session, id);
    (void)code, (void)ctx;
    if (call)
        close_call(call);
    return 0;
}

void grpcd_add(struct grpcd *d, int fd, int64_t now_ms)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, CALLS_MAX},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW},
    };
    struct conn *c = xcalloc(1, sizeof *c);
    nghttp2_session_callbacks *cb = grpc_callbacks();
    nghttp2_option *opt = NULL;
    *c = (struct conn){.socket.fd = fd, .d = d, .moved_ms = now_ms};
    list_init(&c->calls);
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_close);
    if (nghttp2_option_new(&opt))
        abort(); /* out of memory */
    /* Kubelets before 1.26 send an :authority that nghttp2's own checks reject. */
    nghttp2_option_set_no_http_messaging(opt, 1);
    if (nghttp2_session_server_new2(&c->session, cb, c, opt))
        abort();
    nghttp2_option_del(opt);
    nghttp2_session_callbacks_del(cb);
    nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, settings, ARRAY_LEN(settings));
    nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE, 0, CONN_WINDOW);
    list_append(&d->conns, &c->link);
    d->n_conns++;
}

static void close_conn(struct conn *c)
{
    LIST_EACH(struct grpcd_call, call, &c->calls, link)
    close_call(call);
    list_remove(&c->link);
    c->d->n_conns--;
    nghttp2_session_del(c->session);
    close(c->socket.fd);
    free(c);
}

static bool is_late(const struct grpcd_call *call)
{
    return !call->is_started && call->conn->now_ms >= call->until_ms;
}

int64_t grpcd_turn(struct grpcd *d, int64_t now_ms)
{
    int64_t next_ms = INT64_MAX;
    LIST_EACH(struct conn, c, &d->conns, link)
    {
        c->now_ms = now_ms;
        int rc = nghttp2_session_send(c->session);
        if (rc == 0 && !nghttp2_session_want_write(c->session)) {
            c->socket.reads = READS;
            rc = nghttp2_session_recv(c->session);
        }
        LIST_EACH(struct grpcd_call, call, &c->calls, link)
        {
            if (is_late(call))
                reject(call, GRPC_DEADLINE_EXCEEDED, "request not complete in time");
            flush(call);
        }
        rc = rc ? rc : nghttp2_session_send(c->session);
        int64_t at = INT64_MAX; /* the next deadline of the connection */
        bool is_waiting = nghttp2_session_want_write(c->session);
        LIST_EACH(struct grpcd_call, call, &c->calls, link)
        {
            is_waiting |= call->is_sending;
            if (!call->is_started && !is_late(call) && call->until_ms < at)
                at = call->until_ms;
        }
        if (c->socket.moved || !is_waiting || !c->is_waiting)
            c->moved_ms = c->now_ms;
        c->is_waiting = is_waiting;
        c->socket.moved = false;
        if (is_waiting && c->moved_ms + STALL_MS < at)
            at = c->moved_ms + STALL_MS;
        bool is_over = !nghttp2_session_want_read(c->session) &&
                       !nghttp2_session_want_write(c->session);
        bool has_left = rc == NGHTTP2_ERR_EOF || rc == NGHTTP2_ERR_CALLBACK_FAILURE;
        if (!has_left && (rc || at <= now_ms))
            log_warn(
                "grpcd", "connection: closed", LOG_S("socket", d->path),
                LOG_S("err", rc ? nghttp2_strerror(rc) : "the client reads nothing"));
        if (rc || at <= now_ms || is_over)
            close_conn(c);
        else if (at < next_ms)
            next_ms = at;
    }
    return next_ms;
}

/* -- The thread -- */

static void accept_conn(struct grpcd *d, int64_t now_ms)
{
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t n = sizeof peer;
    cleanup_close int fd =
        accept4(d->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            poll(NULL, 0, ACCEPT_RETRY_MS); /* without descriptors, for example */
        return;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) != 0 ||
        (peer.uid != 0 && peer.uid != geteuid())) {
        log_warn("grpcd", "connection: rejected, the peer is another user",
                 LOG_S("socket", d->path), LOG_I("uid", peer.uid));
        return;
    }
    grpcd_add(d, fd, now_ms);
    fd = -1;
}

static void *run_server(void *arg)
{
    struct grpcd *d = arg;
    int64_t next_ms = INT64_MAX;
    for (bool is_stopping = false; !is_stopping;) {
        struct pollfd fds[2 + CONNS_MAX] = {
            {.fd = d->wake_fd, .events = POLLIN},
            {.fd = d->n_conns < CONNS_MAX ? d->listen_fd : -1, .events = POLLIN}};
        nfds_t n = 2;
        LIST_EACH(struct conn, c, &d->conns, link)
        fds[n++] = (struct pollfd){
            .fd = c->socket.fd,
            .events = nghttp2_session_want_write(c->session) ? POLLOUT : POLLIN};
        int64_t now_ms = clock_mono_ms();
        int64_t wait_ms = next_ms > now_ms ? next_ms - now_ms : 0;
        poll(fds, n, wait_ms > INT32_MAX ? -1 : (int)wait_ms);
        eventfd_read(d->wake_fd, &(eventfd_t){0});
        is_stopping = atomic_load(&d->is_stopping);
        if (fds[1].revents)
            accept_conn(d, clock_mono_ms());
        next_ms = grpcd_turn(d, clock_mono_ms());
    }
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

/* A client can connect once the socket listens, when it has its mode. */
static int open_socket(struct grpcd *d, struct err *err)
{
    struct sockaddr_un addr;
    struct stat st;
    if (!grpc_address(d->path, &addr, err) || check_path(d->path, &addr, err))
        return -1;
    unlink(d->path);
    d->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (d->listen_fd < 0 ||
        bind(d->listen_fd, (struct sockaddr *)&addr, sizeof addr) != 0 ||
        chmod(d->path, 0600) != 0 || lstat(d->path, &st) != 0 ||
        listen(d->listen_fd, BACKLOG) != 0)
        return err_set(err, ERR_UNAVAILABLE, "%s: %s", d->path, strerrordesc_np(errno));
    d->dev = st.st_dev;
    d->ino = st.st_ino;
    return 0;
}

struct grpcd *grpcd_new(const struct grpcd_config *config)
{
    struct grpcd *d = xcalloc(1, sizeof *d);
    d->methods = config->methods;
    d->ctx = config->ctx;
    d->max_message = config->max_message ? config->max_message : GRPC_MESSAGE_MAX;
    d->path = xstrdup(config->path);
    d->listen_fd = -1;
    d->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    atomic_init(&d->refs, 1);
    list_init(&d->conns);
    pthread_mutex_init(&d->lock, NULL);
    return d;
}

struct grpcd *grpcd_start(const struct grpcd_config *config, struct err *err)
{
    struct grpcd *d = grpcd_new(config);
    if (d->wake_fd < 0) {
        err_set(err, ERR_UNAVAILABLE, "eventfd: %s", strerrordesc_np(errno));
    } else if (open_socket(d, err) == 0) {
        int rc = pthread_create(&d->thread, NULL, run_server, d);
        if (rc == 0) {
            d->has_thread = true;
            pthread_setname_np(d->thread, "grpcd");
            return d;
        }
        err_set(err, ERR_UNAVAILABLE, "pthread_create: %s", strerrordesc_np(rc));
    }
    grpcd_free(d);
    return NULL;
}

bool grpcd_is_reachable(const struct grpcd *d)
{
    struct stat st;
    return lstat(d->path, &st) == 0 && st.st_dev == d->dev && st.st_ino == d->ino;
}

void grpcd_free(struct grpcd *d)
{
    if (!d)
        return;
    atomic_store(&d->is_stopping, true);
    eventfd_write(d->wake_fd, 1);
    if (d->has_thread)
        pthread_join(d->thread, NULL);
    LIST_EACH(struct conn, c, &d->conns, link)
    close_conn(c);
    /* While the socket is open, its inode number is not reused. */
    if (grpcd_is_reachable(d))
        unlink(d->path);
    if (d->listen_fd >= 0)
        close(d->listen_fd);
    release(d);
}
