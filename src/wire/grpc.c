/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the gRPC server and client share: status codes, the framing of messages, the texts
 * of errors, timeouts, and the I/O between an nghttp2 session and its socket.
 */

#include <errno.h>

#include "base/mem.h"
#include "wire/grpc_priv.h"

enum { STATUSES = GRPC_UNAUTHENTICATED + 1 };

static const struct {
    const char *name;
    enum err_code code;
} statuses[STATUSES] = {
    [GRPC_OK] = {"OK", ERR_NONE},
    [GRPC_CANCELLED] = {"CANCELLED", ERR_UNAVAILABLE},
    [GRPC_UNKNOWN] = {"UNKNOWN", ERR_INTERNAL},
    [GRPC_INVALID_ARGUMENT] = {"INVALID_ARGUMENT", ERR_INVALID},
    [GRPC_DEADLINE_EXCEEDED] = {"DEADLINE_EXCEEDED", ERR_TIMEOUT},
    [GRPC_NOT_FOUND] = {"NOT_FOUND", ERR_NOT_FOUND},
    [GRPC_ALREADY_EXISTS] = {"ALREADY_EXISTS", ERR_CONFLICT},
    [GRPC_PERMISSION_DENIED] = {"PERMISSION_DENIED", ERR_FORBIDDEN},
    [GRPC_RESOURCE_EXHAUSTED] = {"RESOURCE_EXHAUSTED", ERR_UNAVAILABLE},
    [GRPC_FAILED_PRECONDITION] = {"FAILED_PRECONDITION", ERR_CONFLICT},
    [GRPC_ABORTED] = {"ABORTED", ERR_CONFLICT},
    [GRPC_OUT_OF_RANGE] = {"OUT_OF_RANGE", ERR_INVALID},
    [GRPC_UNIMPLEMENTED] = {"UNIMPLEMENTED", ERR_INVALID},
    [GRPC_INTERNAL] = {"INTERNAL", ERR_INTERNAL},
    [GRPC_UNAVAILABLE] = {"UNAVAILABLE", ERR_UNAVAILABLE},
    [GRPC_DATA_LOSS] = {"DATA_LOSS", ERR_INTERNAL},
    [GRPC_UNAUTHENTICATED] = {"UNAUTHENTICATED", ERR_UNAUTHORIZED},
};

const char *grpc_status_name(enum grpc_status status)
{
    return (unsigned)status < STATUSES ? statuses[status].name : "unknown status";
}

enum err_code grpc_status_err(enum grpc_status status)
{
    return (unsigned)status < STATUSES ? statuses[status].code : ERR_INTERNAL;
}

enum grpc_status grpc_status_of(enum err_code code)
{
    switch (code) {
    case ERR_NONE:
        return GRPC_OK;
    case ERR_INVALID:
        return GRPC_INVALID_ARGUMENT;
    case ERR_NOT_FOUND:
        return GRPC_NOT_FOUND;
    case ERR_CONFLICT:
    case ERR_GONE:
        return GRPC_FAILED_PRECONDITION;
    case ERR_UNAUTHORIZED:
        return GRPC_UNAUTHENTICATED;
    case ERR_FORBIDDEN:
        return GRPC_PERMISSION_DENIED;
    case ERR_TOO_LARGE:
        return GRPC_RESOURCE_EXHAUSTED;
    case ERR_UNAVAILABLE:
        return GRPC_UNAVAILABLE;
    case ERR_TIMEOUT:
        return GRPC_DEADLINE_EXCEEDED;
    case ERR_INTERNAL:
        break;
    }
    return GRPC_INTERNAL;
}

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

void grpc_percent_encode(struct buf *out, struct span s)
{
    static const char hex[] = "0123456789ABCDEF";
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c >= ' ' && c <= '~' && c != '%') {
            buf_addc(out, (char)c);
            continue;
        }
        buf_addc(out, '%');
        buf_addc(out, hex[c >> 4]);
        buf_addc(out, hex[c & 15]);
    }
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void grpc_percent_decode(struct buf *out, struct span s)
{
    for (size_t i = 0; i < s.n; i++) {
        int high = s.p[i] == '%' && s.n - i > 2 ? hex_value(s.p[i + 1]) : -1;
        int low = high >= 0 ? hex_value(s.p[i + 2]) : -1;
        if (low < 0) {
            buf_addc(out, s.p[i]);
            continue;
        }
        buf_addc(out, (char)(high << 4 | low));
        i += 2;
    }
}

bool grpc_timeout_parse(struct span s, int64_t *ms)
{
    static const struct {
        char name;
        int64_t ms, parts; /* the unit is ms / parts milliseconds */
    } units[] = {{'H', 3600000, 1}, {'M', 60000, 1}, {'S', 1000, 1},
                 {'m', 1, 1},       {'u', 1, 1000},  {'n', 1, 1000000}};
    enum { DIGITS = 8 };
    int64_t value;
    if (s.n < 2 || s.n > DIGITS + 1 || s.p[0] == '-' ||
        !span_i64((struct span){s.p, s.n - 1}, &value))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(units); i++)
        if (units[i].name == s.p[s.n - 1]) {
            *ms = (value * units[i].ms + units[i].parts - 1) / units[i].parts;
            return true;
        }
    return false;
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
