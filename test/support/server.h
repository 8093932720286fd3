/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/str.h"
#include "support/unit.h"

/*
 * A server on a free port of the loopback for tests of clients: raw sockets, a thread per
 * connection, and a function of the test's that does with the connection what it likes.
 * It keeps a record of the requests that it read.
 */

struct server;

struct server_conn {
    struct server *server;
    int fd;
    unsigned index; /* 0 is the first connection */
    struct buf in;  /* bytes read and not used yet */
};

/* The connection is closed when it returns. */
typedef void (*server_fn)(struct server_conn *conn, void *ctx);

struct server *server_start(server_fn serve, void *ctx);
/* With a small receive buffer, so that a client's bytes get stuck soon. */
struct server *server_start_narrow(server_fn serve, void *ctx);
void server_stop(struct server *s); /* cuts all connections, waits for their threads */
unsigned server_port(const struct server *s);
const char *server_url(const struct server *s);     /* "http://127.0.0.1:port" */
unsigned server_connections(struct server *s);      /* so far */
unsigned server_requests(struct server *s);         /* complete ones, so far */
char *server_request(struct server *s, unsigned i); /* head and body; new */

/* Reads one request, with its body by Content-Length. False when there is none. */
bool server_read(struct server_conn *conn);
void server_send(struct server_conn *conn, const char *p, size_t n);
/* Writes the text as it is. */
void server_say(struct server_conn *conn, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The connection will be ended by a reset. */
void server_reset_at_close(struct server_conn *conn);
/* A whole answer; `headers` are lines that end with "\r\n", or "". */
void server_reply(struct server_conn *conn, unsigned status, const char *headers,
                  const char *body);
/* Answers each request with 200 and what `ctx`, a string, says. */
void server_echo(struct server_conn *conn, void *ctx);
/* Waits until the client has closed or reset; the bytes that still came, and whether it
 * ended with a reset. */
size_t server_drain(struct server_conn *conn, bool *was_reset);

/* Waits until the condition holds, at most 20 s: the test fails then. */
#define wait_for(condition)                                                              \
    do {                                                                                 \
        for (int wait_i_ = 0; !(condition); wait_i_++) {                                 \
            ck_assert_msg(wait_i_ < 20000, "never true: %s", #condition);                \
            server_pause();                                                              \
        }                                                                                \
    } while (0)
void server_pause(void); /* a millisecond */

/* A door that starts closed. Waiting gives up after 20 s: the test fails then. */
struct gate *gate_new(void);
void gate_open(struct gate *g);
void gate_wait(struct gate *g);
void gate_free(struct gate *g);
