/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the gRPC server and client share: the framing of messages, the address of a socket,
 * and the I/O between an nghttp2 session and its socket.
 */

#include <errno.h>

#include "base/mem.h"
#include "wire/grpc_priv.h"

enum grpc_read grpc_message_read(struct span in, size_t max, struct span *message,
                                 enum grpc_status *status, struct err *err)
{
    const unsigned char *p = (const unsigned char *)in.p;
    enum grpc_status why;
    if (in.n < GRPC_HEAD)
        return GRPC_READ_MORE;
    *message = (struct span){in.p + GRPC_HEAD, (size_t)p[1] << 24 | (size_t)p[2] << 16 |
                                                   (size_t)p[3] << 8 | p[4]};
    if (p[0] == 1) {
        why = GRPC_UNIMPLEMENTED;
        err_set(err, ERR_INVALID, "compressed messages are not supported");
    } else if (p[0]) {
        why = GRPC_INTERNAL;
        err_set(err, ERR_INVALID, "invalid flag of a message");
    } else if (message->n > max) {
        why = GRPC_RESOURCE_EXHAUSTED;
        err_set(err, ERR_TOO_LARGE, "message has %zu bytes, at most %zu are accepted",
                message->n, max);
    } else {
        return in.n - GRPC_HEAD < message->n ? GRPC_READ_MORE : GRPC_READ_MESSAGE;
    }
    if (status)
        *status = why;
    return GRPC_READ_INVALID;
}

void grpc_message_add(struct buf *out, struct span message)
{
    const unsigned char head[GRPC_HEAD] = {
        0, (unsigned char)(message.n >> 24), (unsigned char)(message.n >> 16),
        (unsigned char)(message.n >> 8), (unsigned char)message.n};
    buf_reserve(out, sizeof head + message.n);
    buf_add(out, head, sizeof head);
    buf_add_span(out, message);
}

bool grpc_address(const char *path, struct sockaddr_un *addr, struct err *err)
{
    size_t n = strlen(path);
    if (!n || n > GRPC_PATH_MAX) {
        err_set(err, ERR_INVALID, "%s: socket path has %zu bytes, expected 1 to %d", path,
                n, GRPC_PATH_MAX);
        return false;
    }
    *addr = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(addr->sun_path, path, n);
    return true;
}

nghttp2_nv grpc_field(struct span name, struct span value)
{
    return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name.p,
                        .namelen = name.n,
                        .value = (uint8_t *)(uintptr_t)(value.p ? value.p : ""),
                        .valuelen = value.n};
}

/* I/O between a session and its socket. Frames are collected, so that a response (headers,
 * message, trailers) is one write. */

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
