/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/str.h"
#include "wire/grpc.h"

/*
 * What server and client share.
 *
 *   grpc.c           status codes, percent coding, timeouts, messages in a byte stream
 *   grpc_io.c        between an nghttp2 session and a socket
 *   grpcd.c          the server: start, stop
 *   grpcd_loop.c     its thread: accepts, reads, writes, watches deadlines
 *   grpcd_socket.c   its socket file
 *   grpcd_conn.c     a connection without its socket: bytes and time in, bytes out
 *   grpcd_headers.c     the headers of a request
 *   grpcd_stream.c   a request and its answer inside a connection
 *   grpcd_call.c     the handle that a handler answers with, from any thread
 *   grpcc.c          the client
 *   grpcc_response.c   what its peer sends
 */

/* Takes messages out of the bytes of a stream: each has a flag (1: compressed) and its
 * length, 4 bytes, in front. */
enum { GRPC_HEAD = 5 };
struct grpc_reader {
    size_t max; /* bytes a message may have */
    unsigned char head[GRPC_HEAD];
    size_t head_n;
    struct buf body;
};
enum grpc_read {
    GRPC_READ_MORE,    /* all of the input was taken, and no message is whole */
    GRPC_READ_MESSAGE, /* one is: reader.body; grpc_reader_next before the next bytes */
    GRPC_READ_COMPRESSED,
    GRPC_READ_BAD_FLAG,
    GRPC_READ_TOO_LARGE,
};
enum grpc_read grpc_reader_take(struct grpc_reader *r, struct span *in);
size_t grpc_reader_length(const struct grpc_reader *r); /* that the head announces */
bool grpc_reader_is_empty(
    const struct grpc_reader *r); /* messages, or before the first */
void grpc_reader_next(struct grpc_reader *r);
void grpc_reader_fini(struct grpc_reader *r);

/* The head of a message of n bytes. */
void grpc_message_head(unsigned char head[GRPC_HEAD], size_t n);

/* grpc-message: printable ASCII, anything else and '%' as %XX. Decoding takes what is no
 * escape as it is; what must not stand in a log line becomes '?'. */
void grpc_percent_encode(struct buf *out, struct span s);
void grpc_percent_decode(struct buf *out, struct span s);

/* grpc-timeout: at most 8 digits and a unit; rounded up to milliseconds. */
bool grpc_timeout_parse(struct span s, int64_t *ms);
void grpc_timeout_format(struct buf *out, int64_t ms);

/* application/grpc, application/grpc+proto, application/grpc;... */
bool grpc_content_type_ok(struct span s);

/* False when the path is too long or empty. */
bool grpc_address(const char *path, struct sockaddr_un *addr, struct err *err);

/* A header field of bytes that live until it is submitted. */
nghttp2_nv grpc_field(struct span name, struct span value);

/* Bytes on their way out. */
struct grpc_out {
    struct buf bytes;
    size_t at; /* so many are sent */
};
enum grpc_io { GRPC_IO_DONE, GRPC_IO_BLOCKED, GRPC_IO_BROKEN };
/* Writes all that the session has to send, or as much as the socket takes. `moved`: bytes
 * were taken. */
enum grpc_io grpc_io_write(struct grpc_out *out, nghttp2_session *session, int fd,
                           bool *moved);
/* Up to n bytes. DONE: *got of them came; BROKEN: the peer has closed, or worse. */
enum grpc_io grpc_io_read(int fd, uint8_t *p, size_t n, size_t *got);
