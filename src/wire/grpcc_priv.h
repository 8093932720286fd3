/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "wire/grpc_priv.h"
#include "wire/grpcc.h"

/* What the peer of one call says. No socket in here: bytes in, bytes out by the session.
 */
struct grpcc_response {
    nghttp2_session *session;
    int32_t id;
    struct buf request; /* head and message */
    size_t sent;

    unsigned http_status;
    bool is_grpc, has_status;
    bool is_over; /* nothing more will come, or nothing more is wanted */
    enum grpc_status status;
    struct buf words;   /* of the status */
    enum err_code code; /* ERR_NONE: that of the status */
    struct grpc_reader in;
    struct buf *messages; /* whole, from n_taken to n */
    size_t n, n_taken, cap;
};

void grpcc_response_init(struct grpcc_response *a, const struct grpcc_request *req);
void grpcc_response_fini(struct grpcc_response *a);
/* Bytes of the peer. */
void grpcc_response_feed(struct grpcc_response *a, const uint8_t *p, size_t n);
/* It is over when nothing is left to be read or written. */
void grpcc_response_check(struct grpcc_response *a);
/* It is over with this, unless it was over before. */
void grpcc_response_fail(struct grpcc_response *a, enum grpc_status status,
                         const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The oldest message that was not taken. False: there is none. */
bool grpcc_response_take(struct grpcc_response *a, struct buf *message);
