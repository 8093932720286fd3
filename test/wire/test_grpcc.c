/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/grpcc.h"

#include <sys/socket.h>

#include "base/clock.h"
#include "lib/http2.h"
#include "lib/temp.h"
#include "lib/unit.h"

/*
 * The client with misbehaving peers.
 */

enum { END = NGHTTP2_FLAG_END_STREAM };

#define GRPC_200 ":status: 200\ncontent-type: application/grpc\n"

/* A peer sends the frames, which are released, and then closes or stays silent. The call
 * ends with the status, the code and the text "STATUS: text". */
static void expect_after(struct buf *frames, bool stays, enum grpc_status want,
                         enum err_code code, const char *text)
{
    const struct grpcc_request req = {
        .method = "/t.T/M", .message = SPAN("hi"), .max_message = 100};
    cleanup_buf struct buf all = {0}, reply = {0};
    struct err err = {0};
    enum grpc_status status = GRPC_UNKNOWN;
    int fds[2];
    int64_t limit_ms = stays && code == ERR_TIMEOUT ? 50 : LIB_WAIT_MS;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    frame(&all, NGHTTP2_SETTINGS, 0, 0, SPAN(""));
    buf_add_span(&all, buf_span(frames));
    buf_fini(frames);
    ck_assert_int_eq(send(fds[1], all.p, all.n, 0), (ssize_t)all.n);
    if (!stays)
        shutdown(fds[1], SHUT_WR);
    int64_t begin = clock_mono_ms();
    int rc = grpcc_exchange(fds[0], &req, begin + limit_ms, &reply, &status, &err);
    ck_assert_int_eq(rc, want == GRPC_OK ? 0 : -1);
    ck_assert_str_eq(rc ? err.msg : reply.p, text);
    ck_assert_int_eq(status, want);
    ck_assert_int_eq(err.code, code);
    ck_assert(code != ERR_TIMEOUT || clock_mono_ms() - begin >= limit_ms);
    close(fds[0]);
    close(fds[1]);
}

TEST(a_response_has_a_status_and_one_message)
{
    static const struct {
        const char *head;
        struct span data; /* empty: none */
        const char *trailers;
        enum grpc_status status;
        const char *text;
    } cases[] = {
        {GRPC_200, SPAN("\0\0\0\0\3yes"), "grpc-status: 0\n", GRPC_OK, "yes"},
        {GRPC_200 "grpc-status: 5\ngrpc-message: %41%%34%zz%c3%bc%0Alog: ok%ff%7f%\n",
         {0},
         NULL,
         GRPC_NOT_FOUND,
         "NOT_FOUND: A%4%zz\xc3\xbc?log: ok??%"},
        {":status: 503\ngrpc-status: 7\n",
         {0},
         NULL,
         GRPC_PERMISSION_DENIED,
         "PERMISSION_DENIED"},
        {GRPC_200 "grpc-status: 17\n", {0}, NULL, GRPC_UNKNOWN, "UNKNOWN"},
        {GRPC_200 "grpc-status: -1\n", {0}, NULL, GRPC_UNKNOWN, "UNKNOWN"},
        {GRPC_200 "grpc-status: x\n", {0}, NULL, GRPC_UNKNOWN, "UNKNOWN"},
        {GRPC_200 "grpc-status: \n", {0}, NULL, GRPC_UNKNOWN, "UNKNOWN"},
        {GRPC_200, SPAN("\0\0\0\0\2hi"), NULL, GRPC_INTERNAL,
         "INTERNAL: the response has no grpc-status, HTTP status 200"},
        {":status: 404\ncontent-type: text/html\n", SPAN("<p>no"), NULL, GRPC_UNKNOWN,
         "UNKNOWN: the response has no grpc-status, HTTP status 404"},
        {GRPC_200, SPAN("\1\0\0\0\2hi"), NULL, GRPC_INTERNAL,
         "INTERNAL: compressed messages are not supported"},
        {GRPC_200, SPAN("\5\0\0\0\2hi"), NULL, GRPC_INTERNAL,
         "INTERNAL: invalid flag of a message"},
        {GRPC_200, SPAN("\0\0\0\0\145"), "grpc-status: 0\n", /* the first error wins */
         GRPC_RESOURCE_EXHAUSTED,
         "RESOURCE_EXHAUSTED: message has 101 bytes, at most 100 are accepted"},
        {GRPC_200,
         {0},
         "grpc-status: 0\n",
         GRPC_INTERNAL,
         "INTERNAL: the response has no message"},
        {GRPC_200, SPAN("\0\0\0\0\1a\0\0\0\0\1b"), "grpc-status: 0\n", GRPC_INTERNAL,
         "INTERNAL: more than one message"},
        {GRPC_200, SPAN("\0\0\0\0\3hi"), "grpc-status: 0\n", GRPC_INTERNAL,
         "INTERNAL: truncated message"},
        {"grpc-status: 0\n",
         {0},
         NULL,
         GRPC_INTERNAL,
         "INTERNAL: stream reset by the peer: PROTOCOL_ERROR"},
    };
    array_indices(i, cases) {
        struct buf b = {0};
        unsigned end = cases[i].trailers ? 0 : END;
        headers(&b, cases[i].data.n ? 0 : end, 1, cases[i].head);
        if (cases[i].data.n)
            frame(&b, NGHTTP2_DATA, end, 1, cases[i].data);
        if (cases[i].trailers)
            headers(&b, END, 1, cases[i].trailers);
        expect_after(&b, i % 2, cases[i].status,
                     !cases[i].status                             ? ERR_NONE
                     : cases[i].status == GRPC_RESOURCE_EXHAUSTED ? ERR_TOO_LARGE
                                                                  : ERR_UNAVAILABLE,
                     cases[i].text);
    }
}

TEST(a_call_without_a_response_fails)
{
    static const struct {
        unsigned type;
        struct span payload;
        bool stays;
        enum grpc_status status;
        const char *text;
    } cases[] = {
        {NGHTTP2_RST_STREAM, SPAN("\0\0\0\7"), true, GRPC_UNAVAILABLE,
         "UNAVAILABLE: stream reset by the peer: REFUSED_STREAM"},
        {NGHTTP2_RST_STREAM, SPAN("\0\0\0\10"), true, GRPC_CANCELLED,
         "CANCELLED: stream reset by the peer: CANCEL"},
        {NGHTTP2_RST_STREAM, SPAN("\0\0\0\0"), true, GRPC_INTERNAL,
         "INTERNAL: stream reset by the peer: NO_ERROR"},
        {NGHTTP2_GOAWAY, SPAN("\0\0\0\0\0\0\0\0"), true, GRPC_UNAVAILABLE,
         "UNAVAILABLE: stream reset by the peer: REFUSED_STREAM"},
        {NGHTTP2_PING, SPAN("not 8"), true, GRPC_UNAVAILABLE,
         "UNAVAILABLE: HTTP/2 session ended"},
        {NGHTTP2_PING, SPAN("8 bytes."), false, GRPC_UNAVAILABLE,
         "UNAVAILABLE: connection closed"},
        {NGHTTP2_PING, SPAN("8 bytes."), true, GRPC_DEADLINE_EXCEEDED,
         "DEADLINE_EXCEEDED: no response in time"},
    };
    array_items(c, cases) {
        struct buf b = {0};
        bool is_of_stream = c->type == NGHTTP2_RST_STREAM;
        frame(&b, c->type, 0, is_of_stream, c->payload);
        expect_after(&b, c->stays, c->status,
                     c->status == GRPC_DEADLINE_EXCEEDED ? ERR_TIMEOUT : ERR_UNAVAILABLE,
                     c->text);
    }
}

/* A call to the path, which must fail. */
static void expect_failure(const char *path, enum grpc_status want, enum err_code code,
                           const char *text)
{
    cleanup_buf struct buf reply = {0};
    enum grpc_status status = GRPC_OK;
    struct err err = {0};
    const struct grpcc_request req = {
        .socket = path, .method = "/t.T/M", .timeout_ms = 50};
    ck_assert_int_eq(grpcc_call(&req, &reply, &status, &err), -1);
    ck_assert_int_eq(status, want);
    ck_assert_int_eq(err.code, code);
    ck_assert_contains(err.msg, text);
}

TEST(a_socket_that_accepts_no_connection_is_an_error)
{
    char *dir = temp_dir();
    cleanup_free char *path = temp_path(dir, "s");
    struct sockaddr_un addr;
    struct err err;
    int held[8], fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    expect_failure(path, GRPC_UNAVAILABLE, ERR_UNAVAILABLE, "connect: No such file");
    ck_assert(grpc_address(path, &addr, &err));
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&addr, sizeof addr), 0);
    expect_failure(path, GRPC_UNAVAILABLE, ERR_UNAVAILABLE,
                   "connect: Connection refused");
    ck_assert_int_eq(listen(fd, 1), 0);
    array_items(h, held) { /* its backlog is full */
        *h = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)!connect(*h, (struct sockaddr *)&addr, sizeof addr);
    }
    expect_failure(path, GRPC_DEADLINE_EXCEEDED, ERR_TIMEOUT, "connect timed out");
    array_items(c, held)
        close(*c);
    char longest[200];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    expect_failure(longest, GRPC_INVALID_ARGUMENT, ERR_INVALID, "expected 1 to 107");
    close(fd);
    temp_dir_remove(dir);
    free(dir);
}
