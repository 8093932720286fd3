/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/grpcc.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "lib/temp.h"
#include "wire/grpc_fixture.h"

/*
 * The client with misbehaving peers.
 */

enum { END = NGHTTP2_FLAG_END_STREAM };

#define GRPC_200 ":status: 200\ncontent-type: application/grpc\n"

/* The call ends so when it gets the frames, which are released. */
static void expect(struct buf *frames, enum grpc_status status, const char *words)
{
    const struct grpcc_request req = {
        .method = "/t.T/M", .message = SPAN("hi"), .max_message = 100};
    struct grpcc_response a;
    cleanup_buf struct buf all = {0};
    const uint8_t *p;
    grpcc_response_init(&a, &req);
    while (nghttp2_session_mem_send(a.session, &p) > 0)
        ;
    frame(&all, NGHTTP2_SETTINGS, 0, 0, SPAN(""));
    buf_add_span(&all, buf_span(frames));
    grpcc_response_feed(&a, (const uint8_t *)all.p, all.n);
    ck_assert_msg(a.is_done, "\"%s\" is not the end", words);
    ck_assert_msg(a.status == status, "%s: %s", grpc_status_name(a.status),
                  a.text.p ? a.text.p : "");
    ck_assert_span_eq(a.text.n ? buf_span(&a.text) : SPAN(""), words);
    grpcc_response_fini(&a);
    buf_fini(frames);
}

START_TEST(a_response_has_a_status)
{
    static const struct {
        const char *head;
        struct span data; /* empty: none */
        const char *trailers;
        enum grpc_status status;
        const char *words;
    } cases[] = {
        {GRPC_200 "grpc-status: 5\ngrpc-message: no%20pod%3f\n", {0}, NULL,
         GRPC_NOT_FOUND, "no pod?"},
        {":status: 503\ngrpc-status: 7\n", {0}, NULL, GRPC_PERMISSION_DENIED, ""},
        {GRPC_200 "grpc-status: 17\n", {0}, NULL, GRPC_UNKNOWN, ""},
        {GRPC_200 "grpc-status: -1\n", {0}, NULL, GRPC_UNKNOWN, ""},
        {GRPC_200 "grpc-status: x\n", {0}, NULL, GRPC_UNKNOWN, ""},
        {GRPC_200 "grpc-status: \n", {0}, NULL, GRPC_UNKNOWN, ""},
        {GRPC_200, SPAN("\0\0\0\0\2hi"), NULL, GRPC_INTERNAL,
         "the response has no grpc-status, HTTP status 200"},
        {":status: 404\ncontent-type: text/html\n", SPAN("<p>no"), NULL, GRPC_UNKNOWN,
         "the response has no grpc-status, HTTP status 404"},
        {GRPC_200, SPAN("\1\0\0\0\2hi"), NULL, GRPC_INTERNAL,
         "compressed messages are not supported"},
        {GRPC_200, SPAN("\5\0\0\0\2hi"), NULL, GRPC_INTERNAL,
         "invalid flag of a message"},
        {GRPC_200, SPAN("\0\0\0\0\145"), "grpc-status: 0\n", /* the first error wins */
         GRPC_RESOURCE_EXHAUSTED, "message has 101 bytes, at most 100 are accepted"},
        {GRPC_200, {0}, "grpc-status: 0\n", GRPC_OK, ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf b = {0};
        unsigned end = cases[i].trailers ? 0 : END;
        headers(&b, cases[i].data.n ? 0 : end, 1, cases[i].head);
        if (cases[i].data.n)
            frame(&b, NGHTTP2_DATA, end, 1, cases[i].data);
        if (cases[i].trailers)
            headers(&b, END, 1, cases[i].trailers);
        expect(&b, cases[i].status, cases[i].words);
    }
}
END_TEST

START_TEST(resets_have_a_status)
{
    static const struct {
        const char code[5];
        enum grpc_status status;
        const char *name;
    } cases[] = {
        {"\0\0\0\7", GRPC_UNAVAILABLE, "REFUSED_STREAM"},
        {"\0\0\0\10", GRPC_CANCELLED, "CANCEL"},
        {"\0\0\0\0", GRPC_INTERNAL, "NO_ERROR"},
        {"\0\0\0\1", GRPC_INTERNAL, "PROTOCOL_ERROR"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf b = {0};
        cleanup_free char *words =
            xasprintf("stream reset by the peer: %s", cases[i].name);
        frame(&b, NGHTTP2_RST_STREAM, 0, 1, (struct span){cases[i].code, 4});
        expect(&b, cases[i].status, words);
    }
    struct buf b = {0};
    frame(&b, NGHTTP2_GOAWAY, 0, 0, SPAN("\0\0\0\0\0\0\0\0"));
    expect(&b, GRPC_UNAVAILABLE, "stream reset by the peer: REFUSED_STREAM");
}
END_TEST

/* A peer on a real socket that sends the same bytes to every client. */
struct peer {
    char *dir, *path;
    int fd;
    struct buf says;
    bool stays; /* does not close until the client does */
    pthread_t thread;
};

static void *serve(void *arg)
{
    struct peer *p = arg;
    char bytes[4096];
    cleanup_close int fd = accept(p->fd, NULL, NULL);
    if (fd < 0)
        return NULL;
    if (read(fd, bytes, sizeof bytes) <= 0)
        return NULL; /* of the blocked connections */
    ck_assert_int_eq(send(fd, p->says.p, p->says.n, MSG_NOSIGNAL), (ssize_t)p->says.n);
    while (p->stays && read(fd, bytes, sizeof bytes) > 0)
        ;
    return NULL;
}

static void peer_begin(struct peer *p, bool stays)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    *p = (struct peer){.dir = temp_dir(), .stays = stays};
    p->path = temp_path(p->dir, "s");
    strcpy(addr.sun_path, p->path);
    p->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(p->fd, (struct sockaddr *)&addr, sizeof addr), 0);
    ck_assert_int_eq(listen(p->fd, 1), 0);
    frame(&p->says, NGHTTP2_SETTINGS, 0, 0, SPAN(""));
}

static void peer_run(struct peer *p)
{
    pthread_create(&p->thread, NULL, serve, p);
}

static void peer_end(struct peer *p)
{
    pthread_join(p->thread, NULL);
    close(p->fd);
    temp_dir_remove(p->dir);
    free(p->dir);
    free(p->path);
    buf_fini(&p->says);
}

static int call(const char *path, int64_t timeout_ms, enum grpc_status *status,
                struct err *err)
{
    cleanup_buf struct buf reply = {0};
    const struct grpcc_request req = {.socket = path,
                                      .method = "/t.T/M",
                                      .message = SPAN("hi"),
                                      .timeout_ms = timeout_ms};
    int rc = grpcc_call(&req, &reply, status, err);
    ck_assert(rc == 0 || reply.n == 0);
    return rc;
}

static void expect_call(struct peer *p, enum grpc_status status, enum err_code code,
                        const char *words)
{
    enum grpc_status got = GRPC_OK;
    struct err err = {0};
    peer_run(p);
    ck_assert_int_eq(call(p->path, 20000, &got, &err), -1);
    cleanup_free char *want =
        xasprintf("/t.T/M at %s: %s: %s", p->path, grpc_status_name(status), words);
    ck_assert_str_eq(err.msg, want);
    ck_assert_int_eq(got, status);
    ck_assert_int_eq(err.code, code);
    peer_end(p);
}

START_TEST(a_missing_socket_or_listener_is_unavailable)
{
    struct peer p;
    struct err err = {0};
    enum grpc_status status = GRPC_OK;
    peer_begin(&p, false);
    close(p.fd);
    p.fd = -1;
    peer_run(&p);
    ck_assert_int_eq(call(p.path, 1000, &status, &err), -1);
    ck_assert_int_eq(status, GRPC_UNAVAILABLE);
    ck_assert_int_eq(err.code, ERR_UNAVAILABLE);
    ck_assert_msg(strstr(err.msg, "connect: Connection refused") != NULL, "%s", err.msg);
    ck_assert_int_eq(unlink(p.path), 0);
    status = GRPC_OK;
    ck_assert_int_eq(call(p.path, 1000, &status, &err), -1);
    ck_assert_int_eq(status, GRPC_UNAVAILABLE);
    ck_assert_msg(strstr(err.msg, "connect: No such file") != NULL, "%s", err.msg);
    char path[200];
    memset(path, 'x', sizeof path);
    path[sizeof path - 1] = '\0';
    ck_assert_int_eq(call(path, 1000, NULL, &err), -1);
    ck_assert_int_eq(err.code, ERR_INVALID);
    peer_end(&p);
}
END_TEST

START_TEST(a_peer_that_closes_is_unavailable)
{
    struct peer p;
    peer_begin(&p, false);
    expect_call(&p, GRPC_UNAVAILABLE, ERR_UNAVAILABLE, "connection closed");
    peer_begin(&p, false);
    headers(&p.says, 0, 1, GRPC_200);
    message(&p.says, 0, 1, SPAN("hi")); /* and no status */
    expect_call(&p, GRPC_UNAVAILABLE, ERR_UNAVAILABLE, "connection closed");
}
END_TEST

START_TEST(a_response_before_the_close_counts)
{
    struct peer p;
    peer_begin(&p, false);
    headers(&p.says, END, 1, GRPC_200 "grpc-status: 8\ngrpc-message: too often\n");
    expect_call(&p, GRPC_RESOURCE_EXHAUSTED, ERR_UNAVAILABLE, "too often");
}
END_TEST

START_TEST(a_unary_response_has_exactly_one_message)
{
    struct peer p;
    peer_begin(&p, true);
    headers(&p.says, 0, 1, GRPC_200);
    headers(&p.says, END, 1, "grpc-status: 0\n");
    expect_call(&p, GRPC_INTERNAL, ERR_INTERNAL, "the response has no message");
    peer_begin(&p, true);
    headers(&p.says, 0, 1, GRPC_200);
    message(&p.says, 0, 1, SPAN("a"));
    message(&p.says, 0, 1, SPAN("b"));
    headers(&p.says, END, 1, "grpc-status: 0\n");
    expect_call(&p, GRPC_INTERNAL, ERR_INTERNAL, "the response has two messages");
    peer_begin(&p, true);
    headers(&p.says, 0, 1, GRPC_200);
    frame(&p.says, NGHTTP2_DATA, 0, 1, SPAN("\0\0\0\0\3hi"));
    headers(&p.says, END, 1, "grpc-status: 0\n");
    expect_call(&p, GRPC_INTERNAL, ERR_INTERNAL, "truncated message");
}
END_TEST

START_TEST(other_protocols_than_http2_end_the_call)
{
    struct peer p;
    peer_begin(&p, true);
    headers(&p.says, END, 1, "grpc-status: 0\n");
    expect_call(&p, GRPC_INTERNAL, ERR_INTERNAL,
                "stream reset by the peer: PROTOCOL_ERROR");
    peer_begin(&p, true);
    buf_clear(&p.says);
    buf_adds(&p.says, "HTTP/1.1 400 Bad Request\r\n\r\n");
    struct err err = {0};
    enum grpc_status status = GRPC_OK;
    peer_run(&p);
    ck_assert_int_eq(call(p.path, 20000, &status, &err), -1);
    ck_assert_int_eq(status, GRPC_UNAVAILABLE);
    ck_assert_msg(strstr(err.msg, "HTTP/2 session ended") != NULL, "%s", err.msg);
    peer_end(&p);
}
END_TEST

START_TEST(a_peer_without_a_response_times_out_at_the_deadline)
{
    struct peer p;
    enum grpc_status status = GRPC_OK;
    struct err err = {0};
    peer_begin(&p, true);
    peer_run(&p);
    int64_t before = clock_mono_ms();
    ck_assert_int_eq(call(p.path, 50, &status, &err), -1);
    ck_assert_int_eq(status, GRPC_DEADLINE_EXCEEDED);
    ck_assert_int_eq(err.code, ERR_TIMEOUT);
    ck_assert_int_ge(clock_mono_ms() - before, 50);
    peer_end(&p);
}
END_TEST

START_TEST(a_peer_that_does_not_accept_times_out_at_the_deadline)
{
    struct peer p;
    enum grpc_status status = GRPC_OK;
    struct err err = {0};
    int held[8];
    peer_begin(&p, true);
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    strcpy(addr.sun_path, p.path);
    for (size_t i = 0; i < ARRAY_LEN(held); i++) { /* its backlog is full */
        held[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)!connect(held[i], (struct sockaddr *)&addr, sizeof addr);
    }
    ck_assert_int_eq(call(p.path, 50, &status, &err), -1);
    ck_assert_int_eq(status, GRPC_DEADLINE_EXCEEDED);
    ck_assert_int_eq(err.code, ERR_TIMEOUT);
    for (size_t i = 0; i < ARRAY_LEN(held); i++)
        close(held[i]);
    shutdown(p.fd, SHUT_RDWR);
    peer_run(&p);
    peer_end(&p);
}
END_TEST

UNIT_MAIN("grpcc", a_response_has_a_status, resets_have_a_status,
          a_missing_socket_or_listener_is_unavailable, a_peer_that_closes_is_unavailable,
          a_response_before_the_close_counts, a_unary_response_has_exactly_one_message,
          other_protocols_than_http2_end_the_call,
          a_peer_without_a_response_times_out_at_the_deadline,
          a_peer_that_does_not_accept_times_out_at_the_deadline)
