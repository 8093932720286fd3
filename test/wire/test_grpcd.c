/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/grpcd.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "lib/grpc_watch.h"
#include "lib/http2.h"
#include "lib/temp.h"
#include "lib/unit.h"
#include "wire/grpcc.h"

/* -- Methods: w.lock protects what they share -- */

static struct {
    pthread_mutex_t lock;
    struct grpcd_call *parked[64]; /* calls of Park */
    unsigned n_parked, n_cancelled;

    /* A server with a thread. */
    char *dir, *path;
    struct grpcd *d;
    /* What the last call of the test itself returned. */
    struct buf reply;
    enum grpc_status status;
    struct err err;
} w = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void echo(void *ctx, struct grpcd_call *call, struct span request)
{
    struct buf reply = {0};
    (void)ctx;
    buf_add_span(&reply, request);
    grpcd_reply(call, &reply);
}

static void refuse(void *ctx, struct grpcd_call *call, struct span request)
{
    (void)ctx, (void)request;
    grpcd_end(call, GRPC_NOT_FOUND, "no pod with 100%% of card \xc3\xa4\n");
}

static void park(void *ctx, struct grpcd_call *call, struct span request)
{
    (void)ctx, (void)request;
    pthread_mutex_lock(&w.lock);
    w.parked[w.n_parked++] = call;
    pthread_mutex_unlock(&w.lock);
}

static void on_cancel(void *ctx, struct grpcd_call *call)
{
    (void)ctx, (void)call;
    pthread_mutex_lock(&w.lock);
    w.n_cancelled++;
    pthread_mutex_unlock(&w.lock);
}

static const struct grpcd_method methods[] = {
    {.path = "/t.T/Echo", .start = echo},
    {.path = "/t.T/Refuse", .start = refuse},
    {.path = "/t.T/Park", .start = park, .on_cancel = on_cancel},
    {0},
};

static unsigned count(const unsigned *n)
{
    pthread_mutex_lock(&w.lock);
    unsigned got = *n;
    pthread_mutex_unlock(&w.lock);
    return got;
}

static void say(struct grpcd_call *call, const char *text)
{
    struct buf b = {0};
    buf_adds(&b, text);
    grpcd_send(call, &b);
}

/* -- A connection without a thread: the test makes the frames and sets the time -- */

struct peer {
    struct grpcd *d;
    int fd; /* of the client */
    nghttp2_hd_inflater *inflater;
    struct buf out, text;
    int64_t now_ms, next_ms;
};

static void peer_begin(struct peer *p, size_t max_message)
{
    int fds[2];
    *p = (struct peer){.now_ms = 1000000};
    w.n_parked = w.n_cancelled = 0;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    p->d = grpcd_new(&(struct grpcd_config){
        .path = "none", .methods = methods, .max_message = max_message});
    p->fd = fds[0];
    grpcd_add(p->d, fds[1], p->now_ms);
    ck_assert_int_eq(nghttp2_hd_inflate_new(&p->inflater), 0);
    buf_adds(&p->out, NGHTTP2_CLIENT_MAGIC);
    frame(&p->out, NGHTTP2_SETTINGS, 0, 0, SPAN(""));
}

static void peer_end(struct peer *p)
{
    grpcd_free(p->d);
    for (unsigned i = 0; i < w.n_parked; i++)
        grpcd_end(w.parked[i], GRPC_CANCELLED, "%s", "");
    close(p->fd);
    nghttp2_hd_inflate_del(p->inflater);
    buf_fini(&p->out);
    buf_fini(&p->text);
}

/* The body runs with a peer `p`. */
#define FOR_PEER(max_message)                                                            \
    for (struct peer p, *p_ = (peer_begin(&p, max_message), &p); p_;                     \
         peer_end(&p), p_ = NULL)

static void add_fields(struct peer *p, struct span block)
{
    for (int flags = 0; !(flags & NGHTTP2_HD_INFLATE_FINAL);) {
        nghttp2_nv nv;
        ssize_t used = nghttp2_hd_inflate_hd2(p->inflater, &nv, &flags,
                                              (const uint8_t *)block.p, block.n, 1);
        ck_assert_int_ge((int)used, 0);
        block.p += used;
        block.n -= (size_t)used;
        if (flags & NGHTTP2_HD_INFLATE_EMIT)
            buf_printf(&p->text, " %.*s=%.*s", (int)nv.namelen, nv.name, (int)nv.valuelen,
                       nv.value);
    }
    nghttp2_hd_inflate_end_headers(p->inflater);
}

/* Sends p->out, and returns the server's frames as text without SETTINGS and
 * WINDOW_UPDATE; "closed" at the end of the connection. */
static const char *exchange(struct peer *p)
{
    static char bytes[1 << 16];
    send(p->fd, p->out.p, p->out.n, MSG_NOSIGNAL);
    buf_clear(&p->out);
    p->next_ms = grpcd_turn(p->d, p->now_ms);
    ssize_t got = recv(p->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    buf_set(&p->text, got == 0 ? SPAN("closed") : SPAN(""));
    for (struct span in = {bytes, got > 0 ? (size_t)got : 0}; in.n;) {
        struct span body = {in.p + 9, number_at(in.p) >> 8};
        ck_assert_uint_ge(in.n, 9 + body.n);
        uint32_t id = number_at(in.p + 5);
        bool is_headers = in.p[3] == NGHTTP2_HEADERS, is_data = in.p[3] == NGHTTP2_DATA;
        if (is_headers)
            buf_printf(&p->text, "HEADERS %u", id);
        else if (is_data)
            buf_printf(&p->text, "DATA %u %zu", id, body.n);
        if (is_headers)
            add_fields(p, body);
        if (is_headers || is_data)
            buf_adds(&p->text, in.p[4] & NGHTTP2_FLAG_END_STREAM ? " end\n" : "\n");
        in.p += 9 + body.n;
        in.n -= 9 + body.n;
    }
    return p->text.p;
}

#define END       NGHTTP2_FLAG_END_STREAM
#define POST      ":method: POST\n:scheme: http\n:path: "
#define GRPC_TYPE "\ncontent-type: application/grpc\n"
#define ECHO      POST "/t.T/Echo" GRPC_TYPE
#define PARK      POST "/t.T/Park" GRPC_TYPE
#define OPEN      "HEADERS 1 :status=200 content-type=application/grpc\n"
#define HI        SPAN("\0\0\0\0\2hi")
#define OK        OPEN "DATA 1 7\nHEADERS 1 grpc-status=0 end\n"
#define STATUS(s) OPEN "HEADERS 1 grpc-status=" s " end\n"

TEST(a_request_gets_its_status)
{
    static const struct {
        const char *head;
        struct span data;
        const char *answer;
    } cases[] = {
        /* any printable authority */
        {ECHO ":authority: localhost:1\n", HI, OK},
        {ECHO ":authority: /var/lib/kubelet/device-plugins/gpushare.sock\n", HI, OK},
        {ECHO ":authority: %2Fvar%2Flib%2Fx.sock\n", HI, OK},
        {ECHO, HI, OK},
        {POST "/t.T/Echo\ncontent-type: application/grpc+proto\n", HI, OK},
        {ECHO "grpc-timeout: soon\n", HI, OK},
        {POST "/t.T/Other" GRPC_TYPE, HI,
         STATUS("12 grpc-message=unknown method /t.T/Other")},
        {":method: POST\n:scheme: http" GRPC_TYPE, HI,
         STATUS("12 grpc-message=unknown method ")},
        {ECHO, SPAN("\1\0\0\0\2hi"),
         STATUS("12 grpc-message=compressed messages are not supported")},
        {ECHO, SPAN("\7\0\0\0\2hi"), STATUS("13 grpc-message=invalid flag of a message")},
        {ECHO, SPAN("\0\0\0\0\3hi"), STATUS("13 grpc-message=truncated request message")},
        {ECHO, SPAN("\0\0\0"), STATUS("13 grpc-message=truncated request message")},
        {ECHO, SPAN(""), STATUS("13 grpc-message=request without a message")},
        {ECHO, SPAN("\0\0\0\0\2hi\0"), STATUS("13 grpc-message=more than one message")},
        {ECHO, SPAN("\0\1\0\0\0"),
         STATUS("8 grpc-message=message has 16777216 bytes, at most 100 "
                "are accepted")},
    };
    array_indices(i, cases) {
        FOR_PEER(100)
        {
            bool has_trailers = i % 2; /* of the client */
            headers(&p.out, 0, 1, cases[i].head);
            frame(&p.out, NGHTTP2_DATA, has_trailers ? 0 : END, 1, cases[i].data);
            if (has_trailers)
                headers(&p.out, END, 1, "x-trailer: 1\n");
            ck_assert_str_eq(exchange(&p), cases[i].answer);
            headers(&p.out, 0, 3, ECHO); /* the connection stays open */
            frame(&p.out, NGHTTP2_DATA, END, 3, HI);
            ck_assert_contains(exchange(&p), "HEADERS 3 grpc-status=0 end\n");
        }
    }
}

TEST(an_incomplete_request_times_out)
{
    FOR_PEER(100)
    {
        headers(&p.out, 0, 1, ECHO);
        ck_assert_str_eq(exchange(&p), "");
        ck_assert_int_eq(p.next_ms, p.now_ms + 10000);
        p.now_ms += 9999;
        ck_assert_str_eq(exchange(&p), "");
        p.now_ms++;
        ck_assert_str_eq(exchange(&p),
                         STATUS("4 grpc-message=request not complete in time"));
    }
}

static void park_with_window(struct peer *p, struct span window)
{
    frame(&p->out, NGHTTP2_SETTINGS, 0, 0, window);
    headers(&p->out, 0, 1, PARK);
    message(&p->out, END, 1, SPAN(""));
    ck_assert_str_eq(exchange(p), "");
    ck_assert_uint_eq(w.n_parked, 1);
    ck_assert_int_eq(p->next_ms, INT64_MAX); /* without a deadline */
}

TEST(a_client_that_does_not_read_is_disconnected)
{
    FOR_PEER(100)
    {
        park_with_window(&p, SPAN("\0\4\0\0\0\12")); /* ten bytes */
        p.now_ms += 100000;
        say(w.parked[0], "0123456789");
        ck_assert_str_eq(exchange(&p), OPEN "DATA 1 10\n");
        p.now_ms += 20000;
        frame(&p.out, NGHTTP2_WINDOW_UPDATE, 0, 1, SPAN("\0\0\0\1"));
        ck_assert_str_eq(exchange(&p), "DATA 1 1\n");
        ck_assert_int_eq(p.next_ms, p.now_ms + 30000);
        p.now_ms += 29999;
        ck_assert_str_eq(exchange(&p), "");
        ck_assert_uint_eq(w.n_cancelled, 0);
        p.now_ms++;
        ck_assert_str_eq(exchange(&p), "closed");
        ck_assert_uint_eq(w.n_cancelled, 1);
    }
}

TEST(a_newer_message_replaces_the_queued_one)
{
    FOR_PEER(100)
    {
        park_with_window(&p, SPAN("\0\4\0\0\0\0"));
        static const char *const texts[] = {"x", "xx", "xxx"};
        for (int i = 0; i < 3; i++) {
            say(w.parked[0], texts[i]);
            ck_assert_str_eq(exchange(&p), i ? "" : OPEN);
        }
        frame(&p.out, NGHTTP2_WINDOW_UPDATE, 0, 1, SPAN("\0\0\0\144"));
        ck_assert_str_eq(exchange(&p), "DATA 1 8\n"); /* the third alone */
        say(w.parked[0], "x");
        grpcd_end(w.parked[--w.n_parked], GRPC_OK, "%s", "not sent");
        ck_assert_str_eq(exchange(&p), "DATA 1 6\nHEADERS 1 grpc-status=0 end\n");
    }
}

TEST(another_protocol_is_disconnected)
{
    FOR_PEER(100)
    {
        buf_set(&p.out, SPAN("GET / HTTP/1.1\r\nHost: x\r\n\r\n"));
        exchange(&p);
        ck_assert_str_eq(exchange(&p), "closed");
    }
}

/* -- The real server and the real client -- */

static struct grpcd *start_at(const char *path)
{
    return grpcd_start(&(struct grpcd_config){.path = path, .methods = methods}, &w.err);
}

static void begin(void)
{
    w.dir = temp_dir();
    w.path = temp_path(w.dir, "s.sock");
    w.d = start_at(w.path);
    ck_assert_msg(w.d != NULL, "%s", w.err.msg);
}

static void end(void)
{
    grpcd_free(w.d);
    buf_fini(&w.reply);
    temp_dir_remove(w.dir);
    free(w.dir);
    free(w.path);
}

static int call_of(const char *method, struct span message, size_t max_message)
{
    const struct grpcc_request req = {.socket = w.path,
                                      .method = method,
                                      .message = message,
                                      .timeout_ms = LIB_WAIT_MS,
                                      .max_message = max_message};
    return grpcc_call(&req, &w.reply, &w.status, &w.err);
}

static int call(const char *method, const char *message)
{
    return call_of(method, span_of(message), 0);
}

TEST(a_call_gets_its_response)
{
    buf_adds(&w.reply, "before");
    for (int i = 0; i < 3; i++) {
        w.status = GRPC_UNKNOWN;
        ck_assert_done(call("/t.T/Echo", i ? " hello" : ""), w.err);
        ck_assert_int_eq(w.status, GRPC_OK);
    }
    ck_assert_span_eq(buf_span(&w.reply), "before hello hello");
    ck_assert_int_eq(call("/t.T/Refuse", ""), -1);
    ck_assert_int_eq(w.status, GRPC_NOT_FOUND);
    cleanup_free char *want = xasprintf(
        "/t.T/Refuse at %s: NOT_FOUND: no pod with 100%% of card \xc3\xa4?", w.path);
    ck_assert_str_eq(w.err.msg, want); /* nothing forges a line */
}

TEST(messages_have_a_largest_size_on_both_sides)
{
    cleanup_free char *bytes = xcalloc(1, GRPC_MESSAGE_MAX + 1);
    static const struct {
        size_t n, max_message;
        enum grpc_status status;
        enum err_code code;
    } cases[] = {
        {GRPC_MESSAGE_MAX + 1, 0, GRPC_RESOURCE_EXHAUSTED, ERR_UNAVAILABLE},
        {GRPC_MESSAGE_MAX, 0, GRPC_OK, ERR_NONE},
        {GRPC_MESSAGE_MAX, GRPC_MESSAGE_MAX - 1, GRPC_RESOURCE_EXHAUSTED, ERR_TOO_LARGE},
    };
    array_items(c, cases) {
        buf_clear(&w.reply);
        w.err = (struct err){0};
        int rc = call_of("/t.T/Echo", (struct span){bytes, c->n}, c->max_message);
        ck_assert_int_eq(rc, c->status ? -1 : 0);
        ck_assert_int_eq(w.status, c->status);
        ck_assert_int_eq(w.err.code, c->code);
        ck_assert_uint_eq(w.reply.n, rc ? 0 : c->n);
    }
}

static struct grpc_watch *watch(unsigned n)
{
    struct grpc_watch *s = grpc_watch_open(w.path, "/t.T/Park");
    lib_wait(count(&w.n_parked) == n);
    return s;
}

static void expect_next(struct grpc_watch *s, const char *text)
{
    ck_assert_int_eq(grpc_watch_next(s, LIB_WAIT_MS, &w.reply), 1);
    ck_assert_span_eq(buf_span(&w.reply), text);
}

TEST(a_stream_has_any_number_of_messages)
{
    struct grpc_watch *s = watch(1);
    for (int i = 0; i < 5; i++) {
        cleanup_free char *text = xasprintf("list %d", i);
        ck_assert_int_eq(grpc_watch_next(s, 1, &w.reply), 0);
        say(w.parked[0], text);
        expect_next(s, text);
    }
    say(w.parked[0], "last");
    grpcd_end(w.parked[0], GRPC_ABORTED, "card %d is gone", 3);
    expect_next(s, "last");
    ck_assert_int_eq(grpc_watch_next(s, LIB_WAIT_MS, &w.reply), -1);
    ck_assert_str_eq(grpc_watch_status(s), "10 card 3 is gone");
    grpc_watch_close(s);
    ck_assert_uint_eq(count(&w.n_cancelled), 0);
}

TEST(a_disconnect_cancels_the_call)
{
    struct grpc_watch *a = watch(1), *b = watch(2);
    grpc_watch_close(a);
    lib_wait(count(&w.n_cancelled) == 1);
    say(w.parked[0], "nobody reads this");
    grpcd_end(w.parked[0], GRPC_OK, "%s", "");
    say(w.parked[1], "the other goes on");
    expect_next(b, "the other goes on");
    grpc_watch_close(b);
    lib_wait(count(&w.n_cancelled) == 2);
    grpcd_end(w.parked[1], GRPC_OK, "%s", "");
}

TEST(a_stop_sends_what_was_posted_and_cancels_other_calls)
{
    struct grpc_watch *a = watch(1), *b = watch(2);
    ck_assert(grpcd_is_reachable(w.d));
    say(w.parked[0], "last");
    grpcd_end(w.parked[0], GRPC_UNAVAILABLE, "stopping");
    grpcd_free(steal(&w.d));
    expect_next(a, "last");
    ck_assert_int_eq(grpc_watch_next(a, LIB_WAIT_MS, &w.reply), -1);
    ck_assert_str_eq(grpc_watch_status(a), "14 stopping");
    ck_assert_int_eq(grpc_watch_next(b, LIB_WAIT_MS, &w.reply), -1);
    ck_assert_uint_eq(w.n_cancelled, 1);
    ck_assert_int_eq(access(w.path, F_OK), -1);
    say(w.parked[1], "nobody reads this"); /* the handle outlives its server */
    grpcd_end(w.parked[1], GRPC_OK, "%s", "");
    grpc_watch_close(a);
    grpc_watch_close(b);
}

/* Connects as an unprivileged user; exit status 0: closed without a byte. */
static void connect_unprivileged(void)
{
    char byte;
    struct sockaddr_un addr;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!grpc_address(w.path, &addr, &w.err) || setgid(65534) || setuid(65534) ||
        connect(fd, (struct sockaddr *)&addr, sizeof addr))
        _exit(2);
    _exit(read(fd, &byte, 1) <= 0 ? 0 : 1);
}

TEST(other_users_are_not_served)
{
    if (geteuid() != 0)
        return; /* not root: cannot change the user */
    int status = -1;
    ck_assert_int_eq(chmod(w.dir, 0711) | chmod(w.path, 0666), 0);
    pid_t pid = fork();
    if (pid == 0)
        connect_unprivileged();
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
    ck_assert_done(call("/t.T/Echo", ""), w.err);
}

TEST(a_dead_socket_is_replaced_and_nothing_else)
{
    struct stat st;
    ck_assert_int_eq(lstat(w.path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);

    cleanup_free char *dead = temp_path(w.dir, "dead.sock"),
                      *file = temp_path(w.dir, "file"),
                      *nowhere = temp_path(w.dir, "no/such.sock");
    struct sockaddr_un addr;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert(grpc_address(dead, &addr, &w.err));
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&addr, sizeof addr), 0);
    close(fd);
    struct grpcd *d = start_at(dead);
    ck_assert_msg(d != NULL, "%s", w.err.msg);
    grpcd_free(d);
    ck_assert_int_eq(access(dead, F_OK), -1);

    const struct {
        const char *path;
        enum err_code code;
    } cases[] = {
        {w.path, ERR_CONFLICT}, /* the other server listens */
        {file, ERR_CONFLICT},
        {nowhere, ERR_UNAVAILABLE},
        {"", ERR_INVALID},
    };
    temp_write(w.dir, "file", "precious");
    array_items(c, cases) {
        ck_assert_ptr_null(start_at(c->path));
        ck_assert_int_eq(w.err.code, c->code);
    }
    cleanup_free char *text = temp_read(w.dir, "file");
    ck_assert_str_eq(text, "precious");
    ck_assert(grpcd_is_reachable(w.d));
}

TEST(the_socket_of_another_server_is_not_removed)
{
    ck_assert_int_eq(unlink(w.path), 0); /* as a kubelet does when it starts */
    ck_assert(!grpcd_is_reachable(w.d));
    struct grpcd *second = start_at(w.path);
    ck_assert_msg(second != NULL, "%s", w.err.msg);
    grpcd_free(w.d);
    w.d = second;
    ck_assert(grpcd_is_reachable(second));
    ck_assert_done(call("/t.T/Echo", "x"), w.err);
}

UNIT_MAIN_AROUND(begin, end)
