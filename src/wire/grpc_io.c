/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "wire/grpc_priv.h"

/*
 * Frames are collected, so that a response (headers, message, trailers) is one write.
 */

enum { GATHER = 64 * 1024 };

/* False if the session has failed. */
static bool gather(struct grpc_out *out, nghttp2_session *session)
{
    buf_clear(&out->bytes);
    out->at = 0;
    while (out->bytes.n < GATHER) {
        const uint8_t *p = NULL;
        ssize_t n = nghttp2_session_mem_send(session, &p);
        if (n < 0)
            return false;
        if (n == 0)
            break;
        buf_add(&out->bytes, p, (size_t)n);
    }
    return true;
}

enum grpc_io grpc_io_write(struct grpc_out *out, nghttp2_session *session, int fd,
                           bool *moved)
{
    for (;;) {
        if (out->at == out->bytes.n && !gather(out, session))
            return GRPC_IO_BROKEN;
        if (out->bytes.n == 0)
            return GRPC_IO_DONE;
        ssize_t n = send(fd, out->bytes.p + out->at, out->bytes.n - out->at,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            out->at += (size_t)n;
            *moved = true;
        } else if (errno == EAGAIN) {
            return GRPC_IO_BLOCKED;
        } else if (errno != EINTR) {
            return GRPC_IO_BROKEN;
        }
    }
}

enum grpc_io grpc_io_read(int fd, uint8_t *p, size_t n, size_t *got)
{
    for (;;) {
        ssize_t rc = recv(fd, p, n, MSG_DONTWAIT);
        if (rc > 0) {
            *got = (size_t)rc;
            return GRPC_IO_DONE;
        }
        if (rc == 0)
            return GRPC_IO_BROKEN;
        if (errno == EAGAIN)
            return GRPC_IO_BLOCKED;
        if (errno != EINTR)
            return GRPC_IO_BROKEN;
    }
}
