/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/un.h>

#include "base/str.h"
#include "wire/grpc.h"

struct grpcc_request; /* wire/grpcc.h */
struct grpcd_config;  /* wire/grpcd.h */

/*
 *   grpc.c   what server and client share: messages, header fields, sockets
 *   grpcc.c  the client
 *   grpcd.c  the server: calls, connections, thread, socket
 */

/* gRPC's Length-Prefixed-Message: a flag (1: compressed), the length in 4 bytes, the
 * message. */
enum { GRPC_HEAD = 5 };
enum grpc_read {
    GRPC_READ_MORE,    /* the message is incomplete */
    GRPC_READ_MESSAGE, /* `in` begins with the prefix and *message */
    GRPC_READ_INVALID, /* compressed, larger than `max`, with an unknown flag, or with
                          bytes after it: *status and *err say which */
};
enum grpc_read grpc_message_read(struct span in, size_t max, struct span *message,
                                 enum grpc_status *status, struct err *err);
/* Appends prefix and message. */
void grpc_message_add(struct buf *out, struct span message);

/* False, with ERR_INVALID, if the path is empty or too long. */
bool grpc_address(const char *path, struct sockaddr_un *addr, struct err *err);

/* A header field; the bytes are borrowed until it is submitted. */
nghttp2_nv grpc_field(struct span name, struct span value);

/* The socket of a session: the first member of the session's user data. */
struct grpc_socket {
    int fd;
    unsigned reads; /* how often it is still read before nghttp2_session_recv returns */
    bool moved;     /* bytes were written since the owner has cleared it */
};
/* The callbacks by which nghttp2_session_send and _recv use the socket, without blocking.
 * New. */
nghttp2_session_callbacks *grpc_callbacks(void);

/* A call on a connected socket, which stays open, until clock_mono_ms is `until_ms`. The
 * texts of errors name the status alone. */
int grpcc_exchange(int fd, const struct grpcc_request *req, int64_t until_ms,
                   struct buf *reply, enum grpc_status *status, struct err *err);

/* A server without a socket and a thread. */
struct grpcd *grpcd_new(const struct grpcd_config *config);
/* Adds a connection, whose socket it takes. */
void grpcd_add(struct grpcd *d, int fd, int64_t now_ms);
/* Reads, runs handlers, writes, and closes the connections that are finished or whose
 * client does not read. Returns when the next call is due. */
int64_t grpcd_turn(struct grpcd *d, int64_t now_ms);
