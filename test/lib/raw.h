/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/*
 * An HTTP client that does what it is told and nothing else: for tests that need broken
 * requests, half requests, and to see exactly what comes back.
 */

enum { RAW_WAIT_MS = 20 * 1000 }; /* what takes longer has failed */

struct raw {
    int fd;
    struct buf in; /* received, not yet read */
};

enum raw_result {
    RAW_OK,
    RAW_CLOSED,  /* the connection ended first; what came of the body is there */
    RAW_TIMEOUT, /* nothing for RAW_WAIT_MS */
};

struct raw_reply {
    unsigned status;
    struct buf head; /* with the status line */
    struct buf body; /* chunks joined */
};

void raw_open(struct raw *c, unsigned port);            /* on 127.0.0.1; fails the test */
bool raw_connect(struct raw *c, int fd, unsigned port); /* takes the TCP socket fd */
bool raw_try_open(struct raw *c, unsigned port);
void raw_close(struct raw *c);
void raw_reset(struct raw *c); /* closes with RST */
bool raw_send(struct raw *c, const void *p, size_t n);
bool raw_sendf(struct raw *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Reads one reply; to a HEAD request without its body. Frees what *r held before. */
enum raw_result raw_read(struct raw *c, struct raw_reply *r);
enum raw_result raw_read_head(struct raw *c, struct raw_reply *r);
/* After raw_read_head: the next chunk, appended to r->body. *last: it was the empty one
 * that ends the body. */
enum raw_result raw_read_chunk(struct raw *c, struct raw_reply *r, bool *last);
/* Sends and reads. Fails the test unless a whole reply comes. */
void raw_call(struct raw *c, struct raw_reply *r, const char *request);
/* The value of a header of r (absent: {NULL, 0}). */
struct span raw_header(const struct raw_reply *r, const char *name);
void raw_reply_fini(struct raw_reply *r);
/* n bytes, or what comes of them. */
enum raw_result raw_take(struct raw *c, struct buf *out, size_t n);
/* All that comes until the connection ends. */
enum raw_result raw_read_all(struct raw *c, struct buf *out);
/* Waits until the other side has ended the connection. False when bytes come, or nothing
 * for RAW_WAIT_MS. */
bool raw_ended(struct raw *c);

/* Calls until it is true, for at most RAW_WAIT_MS. */
bool raw_until(bool (*is_true)(void *ctx), void *ctx);
int64_t raw_now_ms(void);
unsigned raw_count_fds(void); /* of this process */
