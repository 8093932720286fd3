/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/grpcd.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "lib/stub.h"
#include "lib/temp.h"
#include "lib/unit.h"
#include "wire/grpcc.h"

/*
 * The real server with the real client.
 */

struct fixture {
    char *dir, *path;
    struct grpcd *d;
    pthread_mutex_t lock;
    struct grpcd_call *waiting[64]; /* set by `park` and `watch` */
    unsigned n_waiting, n_over;
    /* What the last call of the test itself returned. */
    struct buf reply;
    enum grpc_status status;
    struct err err;
};

static void echo(void *ctx, struct grpcd_call *call, struct span request)
{
    struct buf reply = {0};
    (void)ctx;
    buf_add_span(&reply, request);
    grpcd_reply(call, &reply);
}

static void refuse(void *ctx, struct grpcd_call *call, struct span request)
{
    const struct err why = {ERR_NOT_FOUND, "no pod with 100% of card \xc3\xa4"};
    (void)ctx, (void)request;
    grpcd_fail(call, &why);
}

static void park(void *ctx, struct grpcd_call *call, struct span request)
{
    struct fixture *w = ctx;
    (void)request;
    pthread_mutex_lock(&w->lock);
    w->waiting[w->n_waiting++] = call;
    pthread_mutex_unlock(&w->lock);
}

static void on_cancel(void *ctx, struct grpcd_call *call)
{
    struct fixture *w = ctx;
    (void)call;
    pthread_mutex_lock(&w->lock);
    w->n_over++;
    pthread_mutex_unlock(&w->lock);
}

static const struct grpcd_method methods[] = {
    {.path = "/t.T/Echo", .start = echo},
    {.path = "/t.T/Refuse", .start = refuse},
    {.path = "/t.T/Park", .start = park, .on_cancel = on_cancel},
    {.path = "/t.T/Watch", .stream = true, .start = park, .on_cancel = on_cancel},
    {0},
};

static struct fixture *fixture_new(void)
{
    struct fixture *w = xcalloc(1, sizeof *w);
    pthread_mutex_init(&w->lock, NULL);
    w->dir = temp_dir();
    w->path = temp_path(w->dir, "s.sock");
    const struct grpcd_config config = {.path = w->path, .methods = methods, .ctx = w};
    w->d = grpcd_start(&config, &w->err);
    ck_assert_msg(w->d != NULL, "%s", w->err.msg);
    return w;
}

static void fixture_free(struct fixture *w)
{
    grpcd_free(w->d);
    buf_fini(&w->reply);
    temp_dir_remove(w->dir);
    pthread_mutex_destroy(&w->lock);
    free(w->dir);
    free(w->path);
    free(w);
}

static unsigned waiting(struct fixture *w)
{
    pthread_mutex_lock(&w->lock);
    unsigned n = w->n_waiting;
    pthread_mutex_unlock(&w->lock);
    return n;
}

static unsigned on_stream_cancel(struct fixture *w)
{
    pthread_mutex_lock(&w->lock);
    unsigned n = w->n_over;
    pthread_mutex_unlock(&w->lock);
    return n;
}

static struct grpcc_request request(const struct fixture *w, const char *method,
                                    const char *message)
{
    return (struct grpcc_request){.socket = w->path,
                                  .method = method,
                                  .message = span_of(message),
                                  .timeout_ms = 20000};
}

static int call(struct fixture *w, const char *method, const char *message)
{
    struct grpcc_request req = request(w, method, message);
    return grpcc_call(&req, &w->reply, &w->status, &w->err);
}

START_TEST(a_unary_call_gets_its_response)
{
    struct fixture *w = fixture_new();
    buf_adds(&w->reply, "before");
    for (int i = 0; i < 3; i++) {
        w->status = GRPC_UNKNOWN;
        ck_assert_done(call(w, "/t.T/Echo", " hello"), w->err);
        ck_assert_int_eq(w->status, GRPC_OK);
    }
    ck_assert_done(call(w, "/t.T/Echo", ""), w->err);
    ck_assert_span_eq(buf_span(&w->reply), "before hello hello hello");
    fixture_free(w);
}
END_TEST

START_TEST(a_handler_fails_a_call_with_a_message)
{
    struct fixture *w = fixture_new();
    ck_assert_int_eq(call(w, "/t.T/Refuse", ""), -1);
    ck_assert_int_eq(w->status, GRPC_NOT_FOUND);
    ck_assert_int_eq(w->err.code, ERR_NOT_FOUND);
    cleanup_free char *want = xasprintf(
        "/t.T/Refuse at %s: NOT_FOUND: no pod with 100%% of card \xc3\xa4", w->path);
    ck_assert_str_eq(w->err.msg, want);
    fixture_free(w);
}
END_TEST

START_TEST(messages_have_a_largest_size_on_both_sides)
{
    struct fixture *w = fixture_new();
    struct grpcc_request req = request(w, "/t.T/Echo", "");
    cleanup_free char *bytes = xcalloc(1, GRPC_MESSAGE_MAX + 1);
    req.message = (struct span){bytes, GRPC_MESSAGE_MAX + 1};
    ck_assert_int_eq(grpcc_call(&req, &w->reply, &w->status, &w->err), -1);
    ck_assert_int_eq(w->status, GRPC_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(w->err.code, ERR_UNAVAILABLE);
    req.message.n = GRPC_MESSAGE_MAX;
    ck_assert_done(grpcc_call(&req, &w->reply, &w->status, &w->err), w->err);
    ck_assert_uint_eq(w->reply.n, GRPC_MESSAGE_MAX);
    req.max_message = GRPC_MESSAGE_MAX - 1;
    ck_assert_int_eq(grpcc_call(&req, &w->reply, &w->status, &w->err), -1);
    ck_assert_int_eq(w->status, GRPC_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(w->err.code, ERR_TOO_LARGE);
    fixture_free(w);
}
END_TEST

struct asker {
    struct fixture *w;
    int rc;
    struct err err;
    struct buf reply;
};

static void *ask(void *arg)
{
    struct asker *a = arg;
    struct grpcc_request req = request(a->w, "/t.T/Park", "");
    a->rc = grpcc_call(&req, &a->reply, NULL, &a->err);
    return NULL;
}

static struct grpcc_stream *watch(struct fixture *w)
{
    struct err err = {0};
    struct grpcc_request req = request(w, "/t.T/Watch", "");
    struct grpcc_stream *s = grpcc_open(&req, NULL, &err);
    cleanup_buf struct buf none = {0};
    ck_assert_msg(s != NULL, "%s", err.msg);
    ck_assert_int_eq(grpcc_next(s, 0, &none, NULL, &err), GRPCC_TIMEOUT);
    return s;
}

static void say(struct grpcd_call *call, const char *text)
{
    struct buf b = {0};
    buf_adds(&b, text);
    grpcd_send(call, &b);
}

START_TEST(a_stream_has_any_number_of_messages)
{
    struct fixture *w = fixture_new();
    struct grpcc_stream *s = watch(w);
    lib_wait(waiting(w) == 1);
    for (int i = 0; i < 5; i++) {
        cleanup_free char *text = xasprintf("list %d", i);
        buf_clear(&w->reply);
        ck_assert_int_eq(grpcc_next(s, 1, &w->reply, &w->status, &w->err), GRPCC_TIMEOUT);
        say(w->waiting[0], text);
        ck_assert_int_eq(grpcc_next(s, 20000, &w->reply, &w->status, &w->err),
                         GRPCC_MESSAGE);
        ck_assert_span_eq(buf_span(&w->reply), text);
    }
    buf_clear(&w->reply);
    say(w->waiting[0], "last");
    grpcd_end(w->waiting[0], GRPC_ABORTED, "card %d is gone", 3);
    enum grpcc_next next = grpcc_next(s, 20000, &w->reply, &w->status, &w->err);
    if (next == GRPCC_MESSAGE) {
        ck_assert_span_eq(buf_span(&w->reply), "last");
        next = grpcc_next(s, 20000, &w->reply, &w->status, &w->err);
    }
    ck_assert_int_eq(next, GRPCC_FAILED);
    ck_assert_int_eq(w->status, GRPC_ABORTED);
    ck_assert_msg(strstr(w->err.msg, "card 3 is gone") != NULL, "%s", w->err.msg);
    ck_assert_int_eq(grpcc_next(s, 0, &w->reply, &w->status, &w->err), GRPCC_FAILED);
    ck_assert_uint_eq(on_stream_cancel(w), 0);
    grpcc_close(s);
    fixture_free(w);
}
END_TEST

START_TEST(a_disconnect_or_reset_cancels_the_call)
{
    struct fixture *w = fixture_new();
    struct grpcc_stream *a = watch(w);
    lib_wait(waiting(w) == 1);
    struct grpcc_stream *b = watch(w);
    lib_wait(waiting(w) == 2);
    grpcc_close(a);
    lib_wait(on_stream_cancel(w) == 1);
    say(w->waiting[0], "nobody reads this");
    grpcd_end(w->waiting[0], GRPC_OK, "%s", "");
    grpcc_close(b);
    lib_wait(on_stream_cancel(w) == 2);
    grpcd_end(w->waiting[1], GRPC_OK, "%s", "");
    fixture_free(w);
}
END_TEST

START_TEST(a_stop_ends_streams_waits_for_calls_and_removes_the_socket)
{
    struct fixture *w = fixture_new();
    struct asker asker = {.w = w};
    pthread_t thread;
    pthread_create(&thread, NULL, ask, &asker);
    lib_wait(waiting(w) == 1);
    struct grpcc_stream *s = watch(w);
    lib_wait(waiting(w) == 2);
    ck_assert(grpcd_is_reachable(w->d));
    ck_assert(!grpcd_stop(w->d, 20)); /* the call has not ended */
    ck_assert(!grpcd_is_reachable(w->d));
    ck_assert_int_eq(access(w->path, F_OK), -1);
    ck_assert_int_eq(grpcc_next(s, 20000, &w->reply, &w->status, &w->err), GRPCC_FAILED);
    ck_assert_int_eq(w->status, GRPC_UNAVAILABLE);
    ck_assert_msg(strstr(w->err.msg, "server is stopping") != NULL, "%s", w->err.msg);
    ck_assert_uint_eq(on_stream_cancel(w), 1);

    ck_assert_int_eq(call(w, "/t.T/Echo", ""), -1);
    ck_assert_int_eq(w->status, GRPC_UNAVAILABLE);
    ck_assert_msg(strstr(w->err.msg, "connect: No such file") != NULL, "%s", w->err.msg);
    struct buf reply = {0};
    grpcd_reply(w->waiting[0], &reply);
    ck_assert(grpcd_stop(w->d, 20000));
    pthread_join(thread, NULL);
    ck_assert_done(asker.rc, asker.err);
    buf_fini(&asker.reply);
    grpcc_close(s);
    grpcd_end(w->waiting[1], GRPC_OK, "%s", "");
    fixture_free(w);
}
END_TEST

START_TEST(a_handle_outlives_its_server)
{
    struct fixture *w = fixture_new();
    struct asker asker = {.w = w};
    pthread_t thread;
    struct buf reply = {0};
    pthread_create(&thread, NULL, ask, &asker);
    lib_wait(waiting(w) == 1);
    grpcd_free(w->d);
    w->d = NULL;
    pthread_join(thread, NULL);
    ck_assert_int_eq(asker.rc, -1);
    ck_assert_uint_eq(on_stream_cancel(w), 1);
    buf_adds(&reply, "nobody reads this");
    grpcd_reply(w->waiting[0], &reply);
    fixture_free(w);
}
END_TEST

/* A connection that sends nothing; -1: there is none. */
static int connect_plain(const struct fixture *w)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    strcpy(addr.sun_path, w->path);
    return connect(fd, (struct sockaddr *)&addr, sizeof addr) == 0 ? fd : -1;
}

/* Connects as an unprivileged user; exit status 0: closed without a byte. */
static void connect_unprivileged(const struct fixture *w)
{
    char byte;
    int fd = setgid(65534) || setuid(65534) ? -1 : connect_plain(w);
    if (fd < 0)
        _exit(2);
    _exit(read(fd, &byte, 1) <= 0 ? 0 : 1);
}

START_TEST(other_users_are_not_served)
{
    if (geteuid() != 0)
        return; /* not root: cannot change the user */
    struct fixture *w = fixture_new();
    int status = -1;
    ck_assert_int_eq(chmod(w->dir, 0711) | chmod(w->path, 0666), 0);
    pid_t pid = fork();
    if (pid == 0)
        connect_unprivileged(w);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
    ck_assert_done(call(w, "/t.T/Echo", ""), w->err);
    fixture_free(w);
}
END_TEST

START_TEST(a_dead_socket_is_replaced_and_nothing_else)
{
    struct fixture *w = fixture_new();
    struct stat st;
    struct grpcd_config config = {.path = w->path, .methods = methods, .ctx = w};
    ck_assert_int_eq(lstat(w->path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    ck_assert_ptr_null(grpcd_start(&config, &w->err)); /* another process is listening */
    ck_assert_int_eq(w->err.code, ERR_CONFLICT);
    ck_assert(grpcd_is_reachable(w->d));

    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    cleanup_free char *dead = temp_path(w->dir, "dead.sock");
    strcpy(addr.sun_path, dead);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&addr, sizeof addr), 0);
    close(fd);
    config.path = dead;
    struct grpcd *d = grpcd_start(&config, &w->err);
    ck_assert_msg(d != NULL, "%s", w->err.msg);
    grpcd_free(d);
    ck_assert_int_eq(access(dead, F_OK), -1);

    temp_write(w->dir, "file", "precious");
    cleanup_free char *file = temp_path(w->dir, "file");
    config.path = file;
    ck_assert_ptr_null(grpcd_start(&config, &w->err));
    ck_assert_int_eq(w->err.code, ERR_CONFLICT);
    cleanup_free char *text = temp_read(w->dir, "file");
    ck_assert_str_eq(text, "precious");

    cleanup_free char *nowhere = temp_path(w->dir, "no/such.sock");
    config.path = nowhere;
    ck_assert_ptr_null(grpcd_start(&config, &w->err));
    ck_assert_int_eq(w->err.code, ERR_UNAVAILABLE);
    fixture_free(w);
}
END_TEST

START_TEST(the_socket_of_another_server_is_not_removed)
{
    struct fixture *w = fixture_new();
    ck_assert_int_eq(unlink(w->path), 0); /* as a kubelet does when it starts */
    ck_assert(!grpcd_is_reachable(w->d));
    struct grpcd *second = grpcd_start(
        &(struct grpcd_config){.path = w->path, .methods = methods, .ctx = w}, &w->err);
    ck_assert_msg(second != NULL, "%s", w->err.msg);
    ck_assert(grpcd_stop(w->d, 20000));
    grpcd_free(w->d);
    w->d = NULL;
    ck_assert(grpcd_is_reachable(second));
    ck_assert_done(call(w, "/t.T/Echo", "x"), w->err);
    grpcd_free(second);
    fixture_free(w);
}
END_TEST

UNIT_MAIN("grpcd", a_unary_call_gets_its_response, a_handler_fails_a_call_with_a_message,
          messages_have_a_largest_size_on_both_sides,
          a_stream_has_any_number_of_messages, a_disconnect_or_reset_cancels_the_call,
          a_stop_ends_streams_waits_for_calls_and_removes_the_socket,
          a_handle_outlives_its_server,
          other_users_are_not_served,
          a_dead_socket_is_replaced_and_nothing_else,
          the_socket_of_another_server_is_not_removed)
