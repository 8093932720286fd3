/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/str.h"
#include "lib/unit.h"

/*
 * A server on a free port of the loopback for tests of clients: raw sockets, a thread per
 * connection, and a function of the test's that does with the connection what it likes.
 * It keeps a record of the requests that it read.
 */

struct stub;

struct stub_conn {
    struct stub *server;
    int fd;
    unsigned index; /* 0 is the first connection */
    struct buf in;  /* bytes read and not used yet */
};

/* The connection is closed when it returns. */
typedef void (*stub_fn)(struct stub_conn *conn, void *ctx);

struct stub *stub_start(stub_fn serve, void *ctx);
/* With a small receive buffer, so that a client's bytes get stuck soon. */
struct stub *stub_start_narrow(stub_fn serve, void *ctx);
void stub_stop(struct stub *s); /* cuts all connections, waits for their threads */
unsigned stub_port(const struct stub *s);
const char *stub_url(const struct stub *s);     /* "http://127.0.0.1:port" */
unsigned stub_connections(struct stub *s);      /* so far */
unsigned stub_requests(struct stub *s);         /* complete ones, so far */
char *stub_request(struct stub *s, unsigned i); /* head and body; new */

/* Reads one request, with its body by Content-Length. False when there is none. */
bool stub_read(struct stub_conn *conn);
void stub_send(struct stub_conn *conn, const char *p, size_t n);
/* Writes the text as it is. */
void stub_printf(struct stub_conn *conn, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The connection will be ended by a reset. */
void stub_reset_at_close(struct stub_conn *conn);
/* A whole answer; `headers` are lines that end with "\r\n", or "". */
void stub_reply(struct stub_conn *conn, unsigned status, const char *headers,
                  const char *body);
/* Answers each request with 200 and what `ctx`, a string, says. */
void stub_echo(struct stub_conn *conn, void *ctx);
/* Waits until the client has closed or reset; the bytes that still came, and whether it
 * ended with a reset. */
size_t stub_drain(struct stub_conn *conn, bool *was_reset);

/* Waits until the condition holds, at most 20 s: the test fails then. */
#define wait_for(condition)                                                              \
    do {                                                                                 \
        for (int wait_i_ = 0; !(condition); wait_i_++) {                                 \
            ck_assert_msg(wait_i_ < 20000, "never true: %s", #condition);                \
            stub_pause();                                                              \
        }                                                                                \
    } while (0)
void stub_pause(void); /* a millisecond */

/* A door that starts closed. Waiting gives up after 20 s: the test fails then. */
struct gate *gate_new(void);
void gate_open(struct gate *g);
void gate_wait(struct gate *g);
void gate_free(struct gate *g);
