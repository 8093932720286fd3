/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/str.h"
#include "lib/unit.h"

/*
 * A minimal HTTP client for tests that send invalid or partial requests and check the exact
 * bytes of the reply.
 */

struct raw {
    int fd;
    struct buf in; /* bytes received but not consumed */
};

enum raw_result {
    RAW_OK,
    RAW_CLOSED,  /* the connection ended early; the reply has the body so far */
    RAW_TIMEOUT, /* no bytes for LIB_WAIT_MS */
};

struct raw_reply {
    unsigned status;
    struct buf head; /* including the status line */
    struct buf body; /* without chunk headers */
};

void raw_open(struct raw *c, unsigned port);            /* on 127.0.0.1; fails the test */
bool raw_connect(struct raw *c, int fd, unsigned port); /* takes the TCP socket */
bool raw_try_open(struct raw *c, unsigned port);
/* From a loopback address of the client, such as "127.0.0.2". */
bool raw_try_open_from(struct raw *c, const char *address, unsigned port);
void raw_close(struct raw *c);
void raw_reset(struct raw *c); /* closes with RST */
bool raw_send(struct raw *c, const void *p, size_t n);
bool raw_sendf(struct raw *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Reads one reply, without a body after a HEAD request. Frees the previous *r. */
enum raw_result raw_read(struct raw *c, struct raw_reply *r);
enum raw_result raw_read_head(struct raw *c, struct raw_reply *r);
/* After raw_read_head: appends the next chunk to r->body. *last: the empty last chunk. */
enum raw_result raw_read_chunk(struct raw *c, struct raw_reply *r, bool *last);
/* Sends a request and reads the reply; an incomplete reply fails the test. */
void raw_call(struct raw *c, struct raw_reply *r, const char *request);
/* The value of a header; {NULL, 0} if absent. */
struct span raw_header(const struct raw_reply *r, const char *name);
void raw_reply_fini(struct raw_reply *r);
#define cleanup_raw_reply __attribute__((cleanup(raw_reply_fini)))
/* Reads n bytes, or fewer if the connection ends. */
enum raw_result raw_take(struct raw *c, struct buf *out, size_t n);
/* Reads until the connection ends. */
enum raw_result raw_read_all(struct raw *c, struct buf *out);
/* Waits until the server closes the connection. False: bytes arrived, or LIB_WAIT_MS
 * passed. */
bool raw_ended(struct raw *c);

/* Calls is_true until it returns true. False after LIB_WAIT_MS. */
bool raw_until(bool (*is_true)(void *ctx), void *ctx);
unsigned raw_count_fds(void); /* open descriptors of this process */
