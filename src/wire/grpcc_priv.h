/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "wire/grpc_priv.h"
#include "wire/grpcc.h"

/* The state of one call, without the socket: bytes in, bytes out through the session. */
struct grpcc_response {
    nghttp2_session *session;
    int32_t id;
    struct buf request; /* head and message */
    size_t sent;

    unsigned http_status;
    bool is_grpc, has_status;
    bool is_done; /* the stream has ended or failed */
    enum grpc_status status;
    struct buf text;    /* error message of the status */
    enum err_code code; /* ERR_NONE: grpc_status_err of the status */
    struct grpc_reader in;
    struct buf *messages; /* complete, from n_taken to n */
    size_t n, n_taken, cap;
};

void grpcc_response_init(struct grpcc_response *a, const struct grpcc_request *req);
void grpcc_response_fini(struct grpcc_response *a);
/* Processes bytes from the peer. */
void grpcc_response_feed(struct grpcc_response *a, const uint8_t *p, size_t n);
/* Fails the call if the session has neither input nor output left. */
void grpcc_response_check(struct grpcc_response *a);
/* Fails the call, unless it is done. */
void grpcc_response_fail(struct grpcc_response *a, enum grpc_status status,
                         const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Takes the oldest message. False: there is none. */
bool grpcc_response_take(struct grpcc_response *a, struct buf *message);
