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
 * Common parts of server and client.
 *
 *   grpc.c            status codes, percent encoding, timeouts, message framing
 *   grpc_io.c         I/O between an nghttp2 session and a socket
 *   grpcd.c           the server: start, stop
 *   grpcd_loop.c      its thread: accepts, reads, writes, enforces deadlines
 *   grpcd_socket.c    its socket file
 *   grpcd_conn.c      a connection without its socket: bytes and time in, bytes out
 *   grpcd_headers.c   the headers of a request
 *   grpcd_stream.c    a request and its response in a connection
 *   grpcd_call.c      the handle by which a handler responds, from any thread
 *   grpcc.c           the client
 *   grpcc_response.c  the response in the client, without the socket
 */

/* Decodes gRPC's Length-Prefixed-Message: a flag (1: compressed), the length in 4 bytes,
 * the message. */
enum { GRPC_HEAD = 5 };
struct grpc_reader {
    size_t max; /* largest message, bytes */
    unsigned char head[GRPC_HEAD];
    size_t head_n;
    struct buf body;
};
enum grpc_read {
    GRPC_READ_MORE,    /* the input is consumed; the message is incomplete */
    GRPC_READ_MESSAGE, /* reader.body is complete; call grpc_reader_next before going on
                        */
    GRPC_READ_COMPRESSED,
    GRPC_READ_BAD_FLAG,
    GRPC_READ_TOO_LARGE,
};
enum grpc_read grpc_reader_take(struct grpc_reader *r, struct span *in);
size_t grpc_reader_length(const struct grpc_reader *r); /* of the current message */
bool grpc_reader_is_empty(const struct grpc_reader *r); /* not inside a message */
void grpc_reader_next(struct grpc_reader *r);
void grpc_reader_fini(struct grpc_reader *r);

/* The prefix of a message of n bytes. */
void grpc_message_head(unsigned char head[GRPC_HEAD], size_t n);

/* grpc-message: printable ASCII; '%' and other bytes are encoded as %XX. Decoding keeps
 * invalid escapes, and replaces control characters and invalid UTF-8 by '?', so that the
 * text can be logged. */
void grpc_percent_encode(struct buf *out, struct span s);
void grpc_percent_decode(struct buf *out, struct span s);

/* grpc-timeout: at most 8 digits and a unit; rounded up to milliseconds. */
bool grpc_timeout_parse(struct span s, int64_t *ms);
void grpc_timeout_format(struct buf *out, int64_t ms);

/* application/grpc, application/grpc+proto, application/grpc;... */
bool grpc_content_type_ok(struct span s);

/* False, with ERR_INVALID, if the path is empty or too long. */
bool grpc_address(const char *path, struct sockaddr_un *addr, struct err *err);

/* A header field; the bytes are borrowed until it is submitted. */
nghttp2_nv grpc_field(struct span name, struct span value);

/* Output buffer. */
struct grpc_out {
    struct buf bytes;
    size_t at; /* bytes already sent */
};
enum grpc_io { GRPC_IO_DONE, GRPC_IO_BLOCKED, GRPC_IO_BROKEN };
/* Writes the session's output until nothing is left or the socket would block. Sets
 * *moved if any byte was written. */
enum grpc_io grpc_io_write(struct grpc_out *out, nghttp2_session *session, int fd,
                           bool *moved);
/* Reads up to n bytes. GRPC_IO_DONE: *got bytes were read; GRPC_IO_BROKEN: end of file or
 * an error. */
enum grpc_io grpc_io_read(int fd, uint8_t *p, size_t n, size_t *got);
