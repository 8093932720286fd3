/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The HTTP client: its configuration, one request with the headers of its response,
 * blocking calls, and streams.
 */

#include <curl/curl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "wire/httpc.h"

enum { PATH_SHOWN = 200 }; /* bytes of a path in an error */

static void must(CURLcode rc, const char *option)
{
    if (rc == CURLE_OK)
        return;
    fprintf(stderr, "libcurl: %s: %s\n", option, curl_easy_strerror(rc));
    abort();
}

/* Aborts on failure: an option fails only without memory, or if libcurl lacks it. */
#define HTTPC_SET(easy, option, value)                                                   \
    must(curl_easy_setopt((easy), (option), (value)), #option)

static void global_init(void)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        abort();
    struct sigaction now;
    sigaction(SIGPIPE, NULL, &now);
    if (!(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_DFL)
        signal(SIGPIPE, SIG_IGN);
}

static void init_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT; /* libcurl's own state is global */
    pthread_once(&once, global_init);
}

/* -- One request -- */

/* One request on one easy handle. The first member of struct call and of struct
 * httpc_stream; libcurl's callbacks get its address. */
struct httpc_exchange {
    struct httpc *c; /* borrowed */
    CURL *easy;      /* owned */
    char *what;      /* "GET https://host:port/path", for errors; owned */
    struct curl_slist *headers;
    struct clock_deadline send_by;
    int64_t tcp_user_timeout_ms;
    int64_t last_byte_ms; /* time of the last byte, or of the start of the request */
    unsigned attempts;    /* how often libcurl began to write the request */
    unsigned max_attempts;
    /* Why we stopped it. */
    enum { STOP_NOT, STOP_REPEAT, STOP_LATE, STOP_SINK, STOP_LARGE, STOP_GONE } stopped;
    unsigned status; /* of the final response, once its headers are complete */
    int64_t retry_after_s;
    int64_t date_s;
    bool (*begin)(struct httpc_exchange *x); /* called after the headers; may be NULL */
    char why[CURL_ERROR_SIZE];
};

struct httpc {
    atomic_uint users;
    char *url;    /* as configured, for messages */
    char *origin; /* prefix of all URLs: scheme, server name, port */
    char *host;   /* Host header line if the server name is not the host, else NULL */
    struct curl_slist *connect_to; /* the real host and port, in that case */
    char *proxy, *unix_socket, *user_agent;
    struct curl_blob ca, cert, key;
    bool insecure;
    int64_t connect_ms;
    size_t idle_max;
    int64_t idle_ms;
    pthread_mutex_t lock; /* protects the fields below */
    struct call **idle;   /* the pool; the most recently used handle is the last */
    size_t n_idle, idle_cap;
};

/*
 * One request and the headers of its response, for calls and streams.
 *
 * Two callbacks control retries. libcurl calls PREREQ after the TLS handshake, each time
 * before it writes the request: there attempts are counted, so that `sent` is exact. It
 * calls OPENSOCKET before it opens a connection, so that an unwanted retry does not even
 * connect.
 *
 * TCP_USER_TIMEOUT and SO_LINGER are set when a socket is created, so a handle is reused
 * only for requests with the same tcp_user_timeout_ms: in the callbacks libcurl does not
 * tell which socket a reused connection has, and it closes some sockets without a
 * callback. SO_LINGER also applies if the process is killed: the kernel then resets the
 * connection, too.
 */

static bool may_attempt(struct httpc_exchange *x)
{
    if (x->attempts < x->max_attempts)
        return true;
    x->stopped = STOP_REPEAT;
    return false;
}

static int on_prereq(void *ctx, char *remote, char *local, int remote_port,
                     int local_port)
{
    (void)remote;
    (void)local;
    (void)remote_port;
    (void)local_port;
    struct httpc_exchange *x = ctx;
    int64_t now = clock_mono_ms();
    if (!may_attempt(x))
        return CURL_PREREQFUNC_ABORT;
    if (clock_deadline_passed(&x->send_by, now, clock_wall_ns())) {
        x->stopped = STOP_LATE;
        return CURL_PREREQFUNC_ABORT;
    }
    x->attempts++;
    x->last_byte_ms = now;
    return CURL_PREREQFUNC_OK;
}

static curl_socket_t on_open(void *ctx, curlsocktype purpose, struct curl_sockaddr *a)
{
    (void)purpose;
    struct httpc_exchange *x = ctx;
    if (!may_attempt(x))
        return CURL_SOCKET_BAD;
    const unsigned ms =
        x->tcp_user_timeout_ms < INT32_MAX ? (unsigned)x->tcp_user_timeout_ms : INT32_MAX;
    const struct linger reset = {.l_onoff = 1, .l_linger = 0};
    int fd = socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
    if (fd < 0 || !ms ||
        (!setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms) &&
         !setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset)))
        return fd;
    close(fd);
    return CURL_SOCKET_BAD;
}

static void reset_headers(struct httpc_exchange *x)
{
    x->retry_after_s = -1;
    x->date_s = 0;
}

/* A header line, also of 1xx responses, or a trailer of a chunked body. */
static size_t on_header(char *p, size_t size, size_t n, void *ctx)
{
    struct httpc_exchange *x = ctx;
    struct span line = span_trim((struct span){p, size * n});
    x->last_byte_ms = clock_mono_ms();
    if (x->status)
        return size * n;
    if (span_starts(line, SPAN("HTTP/")))
        reset_headers(x);
    if (line.n) {
        struct span name = span_cut(&line, ':');
        int64_t seconds;
        if (span_eq_nocase(name, SPAN("Retry-After")) &&
            span_i64(span_trim(line), &seconds) && seconds >= 0)
            x->retry_after_s = seconds;
        if (span_eq_nocase(name, SPAN("Date"))) {
            cleanup_free char *text = xmemdup0(line.p, line.n);
            time_t date = curl_getdate(text, NULL);
            x->date_s = date > 0 ? date : 0;
        }
        return size * n;
    }
    long status = 0;
    curl_easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200)
        return size * n;
    x->status = (unsigned)status;
    if (x->begin && !x->begin(x)) {
        x->stopped = STOP_SINK;
        return 0;
    }
    return size * n;
}

static void exchange_init(struct httpc_exchange *x, struct httpc *c)
{
    CURL *easy = curl_easy_init();
    if (!easy)
        abort();
    x->c = c;
    x->easy = easy;
    enum { IDLE_MAX_S = 60 }; /* API servers close idle connections after 90 s */
    HTTPC_SET(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    HTTPC_SET(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    HTTPC_SET(easy, CURLOPT_FOLLOWLOCATION, 0L);
    HTTPC_SET(easy, CURLOPT_NOSIGNAL, 1L);
    HTTPC_SET(easy, CURLOPT_QUICK_EXIT,
              1L); /* a timeout does not wait for the resolver thread */
    HTTPC_SET(easy, CURLOPT_PATH_AS_IS, 1L);
    HTTPC_SET(easy, CURLOPT_PROXY, c->proxy);
    HTTPC_SET(easy, CURLOPT_NOPROXY, ""); /* ignore the environment */
    HTTPC_SET(easy, CURLOPT_UNIX_SOCKET_PATH, c->unix_socket);
    HTTPC_SET(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    HTTPC_SET(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)c->connect_ms);
    HTTPC_SET(easy, CURLOPT_MAXAGE_CONN, (long)IDLE_MAX_S);
    HTTPC_SET(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    HTTPC_SET(easy, CURLOPT_TCP_KEEPIDLE, 30L);
    HTTPC_SET(easy, CURLOPT_TCP_KEEPINTVL, 10L);
    HTTPC_SET(easy, CURLOPT_USERAGENT, c->user_agent);
    if (c->connect_to)
        HTTPC_SET(easy, CURLOPT_CONNECT_TO, c->connect_to);
    HTTPC_SET(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    HTTPC_SET(easy, CURLOPT_SSL_VERIFYPEER, c->insecure ? 0L : 1L);
    HTTPC_SET(easy, CURLOPT_SSL_VERIFYHOST, c->insecure ? 0L : 2L);
    /* Otherwise OpenSSL prompts on the terminal for the passphrase of an encrypted key.
     */
    HTTPC_SET(easy, CURLOPT_KEYPASSWD, "");
    if (c->ca.len) {
        /* Without these two lines, the CAs of the system would be trusted, too. */
        HTTPC_SET(easy, CURLOPT_CAPATH, NULL);
        HTTPC_SET(easy, CURLOPT_CAINFO, NULL);
        HTTPC_SET(easy, CURLOPT_CAINFO_BLOB, &c->ca);
    }
    if (c->cert.len) {
        HTTPC_SET(easy, CURLOPT_SSLCERT_BLOB, &c->cert);
        HTTPC_SET(easy, CURLOPT_SSLKEY_BLOB, &c->key);
    }
    HTTPC_SET(easy, CURLOPT_ERRORBUFFER, x->why);
    HTTPC_SET(easy, CURLOPT_PREREQFUNCTION, on_prereq);
    HTTPC_SET(easy, CURLOPT_PREREQDATA, x);
    HTTPC_SET(easy, CURLOPT_OPENSOCKETFUNCTION, on_open);
    HTTPC_SET(easy, CURLOPT_OPENSOCKETDATA, x);
    HTTPC_SET(easy, CURLOPT_HEADERFUNCTION, on_header);
    HTTPC_SET(easy, CURLOPT_HEADERDATA, x);
}

static void free_headers(struct httpc_exchange *x)
{
    for (struct curl_slist *l = x->headers; l; l = l->next)
        explicit_bzero(l->data, strlen(l->data));
    curl_slist_free_all(x->headers);
    x->headers = NULL;
}

static void exchange_fini(struct httpc_exchange *x)
{
    curl_easy_cleanup(x->easy);
    free_headers(x);
    free(x->what);
}

static void add_line(struct httpc_exchange *x, const char *line)
{
    struct curl_slist *longer = curl_slist_append(x->headers, line);
    if (!longer)
        abort();
    x->headers = longer;
}

static void add_header(struct httpc_exchange *x, const char *name, const char *value)
{
    cleanup_wipe char *line = xasprintf("%s: %s", name, value); /* may be a token */
    add_line(x, line);
}

static int exchange_prepare(struct httpc_exchange *x, const struct httpc_request *req,
                            struct err *err)
{
    struct span rest = span_of(req->path), path = span_cut(&rest, '?');
    free(x->what);
    x->what = xasprintf("%.20s %.200s%.*s", req->method, x->c->url,
                        path.n < PATH_SHOWN ? (int)path.n : PATH_SHOWN, path.p);
    x->status = 0;
    reset_headers(x);
    x->attempts = 0;
    x->stopped = STOP_NOT;
    x->why[0] = '\0';
    x->send_by = req->send_by;
    x->tcp_user_timeout_ms = req->tcp_user_timeout_ms > 0 ? req->tcp_user_timeout_ms : 0;
    /* What comes from outside the program. */
    const char *p = req->path;
    bool is_escaped = *p == '/';
    for (; *p; p++)
        is_escaped &= (unsigned char)*p > ' ' && (unsigned char)*p < 0x7f && *p != '#';
    if (!is_escaped)
        return err_set(err, ERR_INVALID, "invalid path: not escaped");
    for (p = req->authorization; p && *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            return err_set(err, ERR_INVALID, "invalid credentials: control characters");
    cleanup_free char *url = xasprintf("%s%s", x->c->origin, req->path);
    HTTPC_SET(x->easy, CURLOPT_URL, url);
    HTTPC_SET(x->easy, CURLOPT_ACCEPT_ENCODING, req->gzip ? "gzip" : NULL);
    HTTPC_SET(x->easy, CURLOPT_TIMEOUT_MS,
              (long)(req->timeout_ms > 0 ? req->timeout_ms : 0));
    free_headers(x);
    add_line(x, "Accept: application/json");
    if (req->authorization)
        add_header(x, "Authorization", req->authorization);
    if (req->content_type)
        add_header(x, "Content-Type", req->content_type);
    else
        add_line(x, "Content-Type:"); /* removes libcurl's default */
    if (req->flag_header)
        add_header(x, req->flag_header, "1");
    add_line(x, "Expect:"); /* no "100-continue" */
    if (x->c->host)
        add_line(x, x->c->host);
    HTTPC_SET(x->easy, CURLOPT_HTTPHEADER, x->headers);
    bool get = !strcmp(req->method, "GET"), head = !strcmp(req->method, "HEAD");
    bool bodyless = !req->body.n && strcmp(req->method, "POST") &&
                    strcmp(req->method, "PUT") && strcmp(req->method, "PATCH");
    HTTPC_SET(x->easy, CURLOPT_HTTPGET, 1L); /* resets the previous method */
    HTTPC_SET(x->easy, CURLOPT_CUSTOMREQUEST, get || head ? NULL : req->method);
    if (head)
        HTTPC_SET(x->easy, CURLOPT_NOBODY, 1L);
    if (!bodyless) {
        HTTPC_SET(x->easy, CURLOPT_POST, 1L);
        HTTPC_SET(x->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)req->body.n);
        HTTPC_SET(x->easy, CURLOPT_POSTFIELDS, req->body.n ? req->body.p : "");
    }
    x->max_attempts = bodyless && (get || head) ? 2 : 1;
    x->last_byte_ms = clock_mono_ms();
    return 0;
}

static int exchange_result(const struct httpc_exchange *x, CURLcode rc, struct err *err)
{
    static const struct {
        enum err_code code;
        const char *text;
    } stops[] = {
        [STOP_REPEAT] = {ERR_UNAVAILABLE,
                         "connection closed before a response; not retried"},
        [STOP_LATE] = {ERR_UNAVAILABLE, "not sent: deadline passed"},
        [STOP_SINK] = {ERR_INVALID, "stopped by the caller"},
        [STOP_LARGE] = {ERR_TOO_LARGE, "response is larger than the limit"},
        [STOP_GONE] = {ERR_UNAVAILABLE, "given up: nobody waits for the response"},
    };
    const char *to = NULL;
    curl_easy_getinfo(x->easy, CURLINFO_REDIRECT_URL, &to);
    if (rc == CURLE_OK && to) { /* without its query, which can have secrets */
        cleanup_buf struct buf url = {0};
        buf_add_printable(&url, (struct span){to, strcspn(to, "?#")});
        return err_set(err, ERR_INTERNAL, "HTTP %u redirects to %s", x->status, url.p);
    }
    if (rc == CURLE_OK && x->status)
        return 0;
    if (x->stopped)
        return err_set(err, stops[x->stopped].code, "%s", stops[x->stopped].text);
    bool is_late = rc == CURLE_OPERATION_TIMEDOUT && x->attempts;
    return err_set(err, is_late ? ERR_TIMEOUT : ERR_UNAVAILABLE, "%s",
                   rc == CURLE_OK ? "response without a status"
                   : x->why[0]    ? x->why
                                  : curl_easy_strerror(rc));
}

/* -- Blocking calls -- */

/*
 * Blocking calls. A call takes a handle from the pool and puts it back only if there is a
 * response; otherwise it frees the handle, which closes its connection. The pool is a
 * stack, so that unused handles sink to the bottom and expire there.
 *
 * Before a connection is reused, poll checks it: if there is anything to read (end of
 * file, an error, unexpected bytes), the handle is freed. libcurl checks, too, but takes
 * the close_notify of a TLS server for data, writes the request, and would send it again.
 * As that is disabled, the first request on each connection after a server restart would
 * fail.
 *
 * Each handle has TLS sessions of its own: a CURLSH that shares them lets two threads write
 * the same SSL_SESSION of OpenSSL (curl #14751).
 */

struct call {
    struct httpc_exchange x; /* first */
    struct buf *body;        /* of the reply; borrowed during a call */
    size_t max_body;
    const struct httpc_request *request; /* borrowed during a call */
    int64_t idle_since_ms;
};

static void call_free(struct call *call)
{
    if (!call)
        return;
    exchange_fini(&call->x);
    free(call);
}

static size_t on_body(char *p, size_t size, size_t n, void *ctx)
{
    struct call *call = ctx;
    size_t room = call->max_body - call->body->n, got = size * n;
    call->x.last_byte_ms = clock_mono_ms();
    if (got > room) {
        call->x.stopped = STOP_LARGE;
        buf_add(call->body, p, room);
        return 0;
    }
    buf_add(call->body, p, got);
    return got;
}

static int on_progress(void *ctx, curl_off_t get_n, curl_off_t got, curl_off_t put_n,
                       curl_off_t put)
{
    (void)get_n, (void)got, (void)put_n, (void)put;
    struct call *call = ctx;
    if (!call->request->gone(call->request->gone_ctx))
        return 0;
    call->x.stopped = STOP_GONE;
    return 1;
}

/* Removes the i-th idle handle. The lock is held. */
static struct call *idle_remove(struct httpc *c, size_t i)
{
    struct call *call = c->idle[i];
    c->n_idle--;
    memmove(c->idle + i, c->idle + i + 1, (c->n_idle - i) * sizeof *c->idle);
    return call;
}

/* The most recently used idle handle with the same TCP_USER_TIMEOUT. NULL: none. */
static struct call *idle_take(struct httpc *c, int64_t tcp_user_timeout_ms)
{
    struct call *call = NULL;
    pthread_mutex_lock(&c->lock);
    for (size_t i = c->n_idle; i-- > 0 && !call;)
        if (c->idle[i]->x.tcp_user_timeout_ms == tcp_user_timeout_ms)
            call = idle_remove(c, i);
    pthread_mutex_unlock(&c->lock);
    return call;
}

/* Whether the handle's connection, if any, has nothing to read. */
static bool is_quiet(const struct call *call)
{
    curl_socket_t fd = CURL_SOCKET_BAD;
    curl_easy_getinfo(call->x.easy, CURLINFO_ACTIVESOCKET, &fd);
    struct pollfd p = {.fd = fd, .events = POLLIN | POLLRDHUP};
    return fd == CURL_SOCKET_BAD || poll(&p, 1, 0) == 0;
}

/* Frees the least recently used idle handles, if there are too many or they expired. */
void httpc_close_idle(struct httpc *c)
{
    int64_t now_ms = clock_mono_ms();
    for (struct call *old = NULL;; old = NULL) {
        pthread_mutex_lock(&c->lock);
        if (c->n_idle > c->idle_max ||
            (c->n_idle && now_ms - c->idle[0]->idle_since_ms > c->idle_ms))
            old = idle_remove(c, 0);
        pthread_mutex_unlock(&c->lock);
        if (!old)
            return;
        call_free(old);
    }
}

static void pool_put(struct httpc *c, struct call *call)
{
    call->body = NULL;
    call->idle_since_ms = clock_mono_ms();
    pthread_mutex_lock(&c->lock);
    MEM_GROW(c->idle, c->idle_cap, c->n_idle + 1);
    c->idle[c->n_idle++] = call;
    pthread_mutex_unlock(&c->lock);
    httpc_close_idle(c);
}

int httpc_call(struct httpc *c, const struct httpc_request *req, size_t max_body,
               struct httpc_reply *reply, struct err *err)
{
    *reply = (struct httpc_reply){.retry_after_s = -1};
    int64_t unacked_ms = req->tcp_user_timeout_ms > 0 ? req->tcp_user_timeout_ms : 0;
    struct call *call;
    while ((call = idle_take(c, unacked_ms)) && !is_quiet(call))
        call_free(call);
    if (!call) {
        call = xcalloc(1, sizeof *call);
        exchange_init(&call->x, c);
        HTTPC_SET(call->x.easy, CURLOPT_MAXCONNECTS, 1L);
        HTTPC_SET(call->x.easy, CURLOPT_WRITEFUNCTION, on_body);
        HTTPC_SET(call->x.easy, CURLOPT_WRITEDATA, call);
        HTTPC_SET(call->x.easy, CURLOPT_XFERINFOFUNCTION, on_progress);
        HTTPC_SET(call->x.easy, CURLOPT_XFERINFODATA, call);
    }
    call->body = &reply->body;
    call->max_body = max_body;
    call->request = req;
    HTTPC_SET(call->x.easy, CURLOPT_NOPROGRESS, req->gone ? 0L : 1L);
    if (exchange_prepare(&call->x, req, err)) {
        err_wrap(err, "%s", call->x.what);
        pool_put(c, call); /* from now on another thread may free it */
        return -1;
    }
    CURLcode rc = curl_easy_perform(call->x.easy);
    bool failed = exchange_result(&call->x, rc, err);
    reply->sent = call->x.attempts > 0;
    reply->retry_after_s = call->x.retry_after_s;
    if (!failed || call->x.stopped == STOP_LARGE)
        reply->status = call->x.status;
    else
        buf_fini(&reply->body);
    if (failed) {
        err_wrap(err, "%s", call->x.what);
        call_free(call);
        return -1;
    }
    pool_put(c, call);
    return 0;
}

void httpc_reply_fini(struct httpc_reply *r)
{
    buf_fini(&r->body);
}

/* -- Streams -- */

/*
 * Streams on a curl multi handle. A new stream is added to the multi handle by the next
 * run of the loop, so that callbacks of libcurl may start streams. It is removed before
 * its `end` is called, so that `end` may start and cancel streams.
 *
 * libcurl's own stall detection uses averages and is late by seconds. Here the time of
 * the last byte is checked after all received bytes are read, so that a delay of this
 * loop does not count as a stall of the peer.
 */

struct httpc_stream {
    struct httpc_exchange x; /* first */
    struct httpc_loop *loop;
    const struct httpc_sink *sink; /* borrowed */
    void *ctx;                     /* borrowed */
    struct buf body;
    int64_t stall_ms;
    bool is_added;    /* to the multi handle */
    struct err bad;   /* why the request is invalid */
    struct list link; /* of loop.streams */
};

struct httpc_loop {
    CURLM *multi;
    struct list streams;
    unsigned sink_calls;
};

static void must_multi(CURLMcode rc)
{
    if (rc == CURLM_OK)
        return;
    fprintf(stderr, "libcurl: %s\n", curl_multi_strerror(rc));
    abort();
}

struct httpc_loop *httpc_loop_new(void)
{
    init_once();
    struct httpc_loop *loop = xcalloc(1, sizeof *loop);
    list_init(&loop->streams);
    loop->multi = curl_multi_init();
    if (!loop->multi)
        abort();
    return loop;
}

/* Removes the stream from the multi handle and the list; the caller frees it. */
static void detach(struct httpc_stream *s)
{
    if (s->is_added)
        must_multi(curl_multi_remove_handle(s->loop->multi, s->x.easy));
    s->is_added = false;
    list_remove(&s->link);
}

static void stream_free(struct httpc_stream *s)
{
    struct httpc *c = s->x.c;
    exchange_fini(&s->x);
    httpc_free(c);
    buf_fini(&s->body);
    free(s);
}

static bool on_begin(struct httpc_exchange *x)
{
    struct httpc_stream *s = (struct httpc_stream *)x;
    s->loop->sink_calls++;
    return s->sink->begin(s->ctx, x->status, x->retry_after_s, x->date_s);
}

static size_t on_data(char *p, size_t size, size_t n, void *ctx)
{
    struct httpc_stream *s = ctx;
    s->x.last_byte_ms = clock_mono_ms();
    s->loop->sink_calls++;
    if (s->sink->data(s->ctx, p, size * n))
        return size * n;
    s->x.stopped = STOP_SINK;
    return 0;
}

struct httpc_stream *httpc_stream_start(struct httpc_loop *loop, struct httpc *c,
                                        const struct httpc_request *req,
                                        const struct httpc_sink *sink, void *ctx)
{
    enum { PIECE = 512 * 1024 };
    struct httpc_stream *s = xcalloc(1, sizeof *s);
    s->loop = loop;
    s->sink = sink;
    s->ctx = ctx;
    exchange_init(&s->x, httpc_ref(c));
    s->x.begin = on_begin;
    HTTPC_SET(s->x.easy, CURLOPT_BUFFERSIZE, (long)PIECE);
    HTTPC_SET(s->x.easy, CURLOPT_WRITEFUNCTION, on_data);
    HTTPC_SET(s->x.easy, CURLOPT_WRITEDATA, s);
    HTTPC_SET(s->x.easy, CURLOPT_PRIVATE, s);
    struct httpc_request copy = *req;
    buf_add_span(&s->body, req->body);
    copy.body = buf_span(&s->body);
    s->stall_ms = req->stall_ms;
    exchange_prepare(&s->x, &copy, &s->bad);
    list_prepend(&loop->streams, &s->link);
    return s;
}

static void finish(struct httpc_stream *s, struct err *why)
{
    detach(s);
    if (why)
        err_wrap(why, "%s", s->x.what);
    s->loop->sink_calls++;
    s->sink->end(s->ctx, why);
    stream_free(s);
}

/* Milliseconds until the stream counts as stalled. Before its request is written, the
 * limit is connect_ms. */
static int64_t stall_left(const struct httpc_stream *s, int64_t now)
{
    if (s->stall_ms <= 0 || !s->x.attempts)
        return INT64_MAX;
    return s->x.last_byte_ms + s->stall_ms - now;
}

/* The first stream with an invalid request, or a stalled one; NULL: none. */
static struct httpc_stream *next_failed(struct httpc_loop *loop, struct err *why)
{
    LIST_EACH(struct httpc_stream, s, &loop->streams, link)
    {
        if (s->bad.code) {
            *why = s->bad;
            return s;
        }
        if (stall_left(s, clock_mono_ms()) <= 0) {
            err_set(why, ERR_TIMEOUT, "no data for %lld ms", (long long)s->stall_ms);
            return s;
        }
    }
    return NULL;
}

/* From the first again after each, because `end` may change the list. */
static void end_failed(struct httpc_loop *loop)
{
    struct err why = {0};
    struct httpc_stream *s;
    while ((s = next_failed(loop, &why)))
        finish(s, &why);
}

/* Processes all pending I/O without waiting. Returns whether a sink was called. */
static bool advance(struct httpc_loop *loop)
{
    unsigned before = loop->sink_calls;
    int running;
    end_failed(loop);
    LIST_EACH(struct httpc_stream, s, &loop->streams, link)
    {
        if (s->is_added)
            continue;
        s->x.last_byte_ms = clock_mono_ms();
        must_multi(curl_multi_add_handle(loop->multi, s->x.easy));
        s->is_added = true;
    }
    must_multi(curl_multi_perform(loop->multi, &running));
    int left;
    CURLMsg *msg = curl_multi_info_read(loop->multi, &left);
    for (; msg; msg = curl_multi_info_read(loop->multi, &left)) {
        struct httpc_stream *s = NULL;
        struct err why = {0};
        curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&s);
        bool failed = exchange_result(&s->x, msg->data.result, &why);
        finish(s, failed ? &why : NULL);
    }
    end_failed(loop);
    return loop->sink_calls != before;
}

/* Without a new stream nothing is left to do before the wait: libcurl has read all that came, or
 * its own timer ends the wait at once. */
void httpc_loop_run(struct httpc_loop *loop, int64_t wait_ms)
{
    const struct httpc_stream *newest =
        LIST_FIRST(&loop->streams, struct httpc_stream, link);
    if (newest && !newest->is_added && advance(loop))
        return;
    int64_t limit = wait_ms < INT_MAX ? wait_ms : INT_MAX, now = clock_mono_ms();
    LIST_EACH(struct httpc_stream, s, &loop->streams, link)
    {
        int64_t left = stall_left(s, now);
        if (left < limit)
            limit = left;
    }
    must_multi(curl_multi_poll(loop->multi, NULL, 0, limit > 0 ? (int)limit : 0, NULL));
    advance(loop);
}

void httpc_loop_wake(struct httpc_loop *loop)
{
    must_multi(curl_multi_wakeup(loop->multi));
}

void httpc_stream_cancel(struct httpc_stream *s)
{
    if (!s)
        return;
    detach(s);
    stream_free(s);
}

void httpc_loop_free(struct httpc_loop *loop)
{
    if (!loop)
        return;
    LIST_EACH(struct httpc_stream, s, &loop->streams, link)
    httpc_stream_cancel(s);
    must_multi(curl_multi_cleanup(loop->multi));
    free(loop);
}

/* -- Configuration -- */

enum { /* defaults */
       IDLE_MAX = 128,
       IDLE_MS = 120 * 1000,
};

static void blob_set(struct curl_blob *blob, struct span s)
{
    if (!s.n)
        return;
    /* The memory outlives all handles, so they need no copy. */
    *blob = (struct curl_blob){xmemdup0(s.p, s.n), s.n, CURL_BLOB_NOCOPY};
}

static int url_part(CURLU *u, CURLUPart part, char **out)
{
    char *s = NULL;
    *out = NULL;
    if (curl_url_get(u, part, &s, 0) != CURLUE_OK)
        return -1;
    *out = xstrdup(s);
    curl_free(s);
    return 0;
}

static int read_url(struct httpc *c, CURLU *u, const struct httpc_config *config,
                    struct err *err)
{
    cleanup_free char *scheme = NULL, *host = NULL, *port = NULL, *zone = NULL,
                      *whole = NULL;
    if (curl_url_set(u, CURLUPART_URL, config->url, 0) != CURLUE_OK ||
        url_part(u, CURLUPART_SCHEME, &scheme) || url_part(u, CURLUPART_HOST, &host))
        return err_set(err, ERR_INVALID, "invalid URL \"%s\"", config->url);
    bool tls = !strcmp(scheme, "https");
    if (!tls && strcmp(scheme, "http"))
        return err_set(err, ERR_INVALID, "%s: expected https or http", config->url);
    bool has_port = url_part(u, CURLUPART_PORT, &port) == 0;
    const char *colon = has_port ? ":" : "", *number = has_port ? port : "";
    bool has_zone = url_part(u, CURLUPART_ZONEID, &zone) == 0; /* [fe80::1%25eth0] */
    cleanup_free char *address =
        has_zone ? xasprintf("%.*s%%%s]", (int)strlen(host) - 1, host, zone)
                 : xstrdup(host);
    cleanup_free char *plain = xasprintf("%s://%s%s%s/", scheme, host, colon, number);
    c->origin = xasprintf("%s://%s%s%s", scheme, address, colon, number);
    curl_url_set(u, CURLUPART_ZONEID, NULL, 0);
    if (url_part(u, CURLUPART_URL, &whole) || strcmp(whole, plain)) /* user, path, … */
        return err_set(err, ERR_INVALID, "expected a URL of the form https://host:port");
    const char *name = config->server_name;
    if (!tls || !name)
        return 0;
    /* The server name is the host of all URLs, so that libcurl uses it for SNI and for the
     * verification of the certificate; CONNECT_TO and the Host header have the real host. */
    if (!*name || !span_has_only(span_of(name), ".-_:"))
        return err_set(err, ERR_INVALID, "invalid server name \"%s\"", name);
    number = has_port ? port : "443";
    free(c->origin);
    c->origin = xasprintf("https://" STR_HOST ":%s", STR_HOST_ARG(name), number);
    cleanup_free char *to =
        xasprintf(STR_HOST ":%s:%s:%s", STR_HOST_ARG(name), number, address, number);
    c->connect_to = curl_slist_append(NULL, to);
    c->host = xasprintf("Host: %s%s%s", host, colon, has_port ? port : "");
    if (!c->connect_to)
        abort();
    return 0;
}

static int configure(struct httpc *c, const struct httpc_config *config, struct err *err)
{
    if (!config->cert_pem.n != !config->key_pem.n)
        return err_set(err, ERR_INVALID,
                       "expected both a client certificate and its key");
    CURLU *u = curl_url();
    if (!u)
        abort();
    int rc = read_url(c, u, config, err);
    curl_url_cleanup(u);
    if (rc)
        return -1;
    c->url = xstrdup(config->url);
    c->proxy = xstrdup(config->proxy ? config->proxy : "");
    c->unix_socket = config->unix_socket ? xstrdup(config->unix_socket) : NULL;
    c->user_agent = config->user_agent ? xstrdup(config->user_agent) : NULL;
    c->insecure = config->insecure;
    c->connect_ms = config->connect_ms;
    c->idle_max = config->idle_max ? config->idle_max : IDLE_MAX;
    c->idle_ms = config->idle_ms ? config->idle_ms : IDLE_MS;
    blob_set(&c->ca, config->ca_pem);
    blob_set(&c->cert, config->cert_pem);
    blob_set(&c->key, config->key_pem);
    return 0;
}

struct httpc *httpc_new(const struct httpc_config *config, struct err *err)
{
    init_once();
    struct httpc *c = xcalloc(1, sizeof *c);
    atomic_init(&c->users, 1);
    pthread_mutex_init(&c->lock, NULL);
    if (configure(c, config, err)) {
        httpc_free(c);
        return NULL;
    }
    return c;
}

struct httpc *httpc_ref(struct httpc *c)
{
    atomic_fetch_add(&c->users, 1);
    return c;
}

void httpc_free(struct httpc *c)
{
    if (!c || atomic_fetch_sub(&c->users, 1) > 1)
        return;
    while (c->n_idle)
        call_free(c->idle[--c->n_idle]);
    free(c->idle);
    pthread_mutex_destroy(&c->lock);
    curl_slist_free_all(c->connect_to);
    free(c->url);
    free(c->origin);
    free(c->host);
    free(c->proxy);
    free(c->unix_socket);
    free(c->user_agent);
    free(c->ca.data);
    free(c->cert.data);
    if (c->key.data)
        explicit_bzero(c->key.data, c->key.len);
    free(c->key.data);
    free(c);
}
