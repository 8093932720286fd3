/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/mem.h"
#include "wire/grpc_priv.h"

/*
 * Builds HTTP/2 frames by hand.
 */

/* A frame; the length may differ from the payload's on purpose. */
static inline void frame(struct buf *out, unsigned type, unsigned flags, uint32_t id,
                         struct span payload)
{
    const unsigned char head[9] = {(unsigned char)(payload.n >> 16),
                                   (unsigned char)(payload.n >> 8),
                                   (unsigned char)payload.n,
                                   (unsigned char)type,
                                   (unsigned char)flags,
                                   (unsigned char)(id >> 24),
                                   (unsigned char)(id >> 16),
                                   (unsigned char)(id >> 8),
                                   (unsigned char)id};
    buf_add(out, head, sizeof head);
    buf_add_span(out, payload);
}

/* A header field as a literal that is not indexed; lengths below 127 take one byte. */
static inline void literal_length(struct buf *out, size_t n)
{
    if (n < 127) {
        buf_addc(out, (char)n);
        return;
    }
    buf_addc(out, 127);
    for (n -= 127; n >= 128; n >>= 7)
        buf_addc(out, (char)(0x80 | (n & 127)));
    buf_addc(out, (char)n);
}

static inline void field(struct buf *out, const char *name, const char *value)
{
    buf_addc(out, 0);
    literal_length(out, strlen(name));
    buf_adds(out, name);
    literal_length(out, strlen(value));
    buf_adds(out, value);
}

/* "name: value" lines, as HEADERS with END_HEADERS. */
static inline void headers(struct buf *out, unsigned flags, uint32_t id,
                           const char *lines)
{
    cleanup_buf struct buf block = {0};
    struct span rest = span_of(lines);
    while (rest.n) {
        struct span line = span_cut(&rest, '\n');
        const char *colon = memchr(line.p + 1, ':', line.n - 1);
        size_t n = (size_t)(colon - line.p);
        cleanup_free char *name = xmemdup0(line.p, n);
        cleanup_free char *value = xmemdup0(line.p + n + 2, line.n - n - 2);
        field(&block, name, value);
    }
    frame(out, NGHTTP2_HEADERS, flags | NGHTTP2_FLAG_END_HEADERS, id, buf_span(&block));
}

/* A message with its prefix, in one DATA frame. */
static inline void message(struct buf *out, unsigned flags, uint32_t id,
                           struct span bytes)
{
    cleanup_buf struct buf payload = {0};
    grpc_message_add(&payload, bytes);
    frame(out, NGHTTP2_DATA, flags, id, buf_span(&payload));
}

static inline uint32_t number_at(const char *p)
{
    const unsigned char *u = (const unsigned char *)p;
    return (uint32_t)u[0] << 24 | (uint32_t)u[1] << 16 | (uint32_t)u[2] << 8 | u[3];
}
