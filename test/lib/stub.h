/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/str.h"
#include "lib/raw.h"

/*
 * A stub server on a free loopback port, for tests of clients: raw sockets, a thread per
 * connection, and a function of the test that handles the connection. It records the
 * requests that it has read.
 */

struct stub;

struct stub_conn {
    struct stub *server;
    unsigned index; /* 0 is the first connection */
    union {
        struct raw raw;
        struct {
            int fd;
            struct buf in; /* bytes received but not consumed */
        };
    };
};

/* Handles a connection, which is closed when it returns. */
typedef void (*stub_fn)(struct stub_conn *conn, void *ctx);

struct stub *stub_start(stub_fn serve, void *ctx);
/* With a small receive buffer, so that the client's send soon blocks. */
struct stub *stub_start_narrow(stub_fn serve, void *ctx);
void stub_stop(struct stub *s); /* closes all connections and joins their threads */
unsigned stub_port(const struct stub *s);
const char *stub_url(const struct stub *s);     /* "http://127.0.0.1:port" */
unsigned stub_connections(struct stub *s);      /* so far */
unsigned stub_requests(struct stub *s);         /* complete requests so far */
char *stub_request(struct stub *s, unsigned i); /* head and body; new */

/* Reads one request with a body of Content-Length bytes. False: the connection ended. */
bool stub_read(struct stub_conn *conn);
void stub_send(struct stub_conn *conn, const char *p, size_t n);
/* Sends the text unchanged. */
void stub_printf(struct stub_conn *conn, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Makes the close of the connection a reset. */
void stub_reset_at_close(struct stub_conn *conn);
/* Sends a complete reply; `headers`: lines that end with "\r\n", or "". */
void stub_reply(struct stub_conn *conn, unsigned status, const char *headers,
                const char *body);
/* A stub_fn that answers each request with 200 and the string `ctx`. */
void stub_echo(struct stub_conn *conn, void *ctx);
/* Waits until the client has closed or reset the connection. Returns the number of bytes
 * received meanwhile. *was_reset: it was a reset. */
size_t stub_drain(struct stub_conn *conn, bool *was_reset);

/* A gate that starts closed. gate_wait fails the test after 60 s. */
struct gate *gate_new(void);
void gate_open(struct gate *g);
void gate_wait(struct gate *g);
void gate_free(struct gate *g);
