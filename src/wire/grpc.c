/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the gRPC server and client share: the framing of messages, header fields, and the
 * sockets of nghttp2's sessions.
 */

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "wire/grpc_priv.h"

enum grpc_read grpc_message_read(struct span in, size_t max, struct span *message,
                                 enum grpc_status *status, struct err *err)
{
    const unsigned char *p = (const unsigned char *)in.p;
    if (in.n < GRPC_HEAD)
        return GRPC_READ_MORE;
    *message = (struct span){in.p + GRPC_HEAD, (size_t)p[1] << 24 | (size_t)p[2] << 16 |
                                                   (size_t)p[3] << 8 | p[4]};
    *status = GRPC_INTERNAL;
    if (p[0] == 1) {
        *status = GRPC_UNIMPLEMENTED;
        err_set(err, ERR_INVALID, "compressed messages are not supported");
    } else if (p[0]) {
        err_set(err, ERR_INVALID, "invalid flag of a message");
    } else if (message->n > max) {
        *status = GRPC_RESOURCE_EXHAUSTED;
        err_set(err, ERR_TOO_LARGE, "message has %zu bytes, at most %zu are accepted",
                message->n, max);
    } else if (in.n - GRPC_HEAD > message->n) {
        err_set(err, ERR_INVALID, "more than one message");
    } else {
        return in.n - GRPC_HEAD < message->n ? GRPC_READ_MORE : GRPC_READ_MESSAGE;
    }
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

static ssize_t result(ssize_t n)
{
    if (n >= 0)
        return n;
    return errno == EAGAIN || errno == EINTR ? NGHTTP2_ERR_WOULDBLOCK
                                             : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static ssize_t on_send(nghttp2_session *session, const uint8_t *p, size_t n, int flags,
                       void *ctx)
{
    struct grpc_socket *s = ctx;
    (void)session, (void)flags;
    ssize_t sent = send(s->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    s->moved |= sent > 0;
    return result(sent);
}

static ssize_t on_recv(nghttp2_session *session, uint8_t *p, size_t n, int flags,
                       void *ctx)
{
    struct grpc_socket *s = ctx;
    (void)session, (void)flags;
    if (!s->reads)
        return NGHTTP2_ERR_WOULDBLOCK;
    s->reads--;
    ssize_t got = recv(s->fd, p, n, MSG_DONTWAIT);
    return got ? result(got) : NGHTTP2_ERR_EOF;
}

nghttp2_session_callbacks *grpc_callbacks(void)
{
    nghttp2_session_callbacks *cb = NULL;
    if (nghttp2_session_callbacks_new(&cb))
        abort(); /* out of memory */
    nghttp2_session_callbacks_set_send_callback(cb, on_send);
    nghttp2_session_callbacks_set_recv_callback(cb, on_recv);
    return cb;
}
