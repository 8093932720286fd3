/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/mem.h"
#include "lib/unit.h"
#include "wire/grpc_priv.h"

/*
 * Builds HTTP/2 frames by hand, and prints frames as text.
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

/* The received frames as text, one line per frame, without SETTINGS and WINDOW_UPDATE.
 */
struct words {
    nghttp2_hd_inflater *inflater;
    struct buf text;
};

static inline void words_init(struct words *w)
{
    *w = (struct words){0};
    ck_assert_int_eq(nghttp2_hd_inflate_new(&w->inflater), 0);
}

static inline void words_fini(struct words *w)
{
    nghttp2_hd_inflate_del(w->inflater);
    buf_fini(&w->text);
}

static inline uint32_t number_at(const char *p)
{
    const unsigned char *u = (const unsigned char *)p;
    return (uint32_t)u[0] << 24 | (uint32_t)u[1] << 16 | (uint32_t)u[2] << 8 | u[3];
}

static inline void words_headers(struct words *w, struct span block)
{
    int flags = 0;
    const uint8_t *p = (const uint8_t *)block.p;
    size_t n = block.n;
    while (!(flags & NGHTTP2_HD_INFLATE_FINAL)) {
        nghttp2_nv nv;
        ssize_t used = nghttp2_hd_inflate_hd2(w->inflater, &nv, &flags, p, n, 1);
        ck_assert_int_ge((int)used, 0);
        p += used;
        n -= (size_t)used;
        if (flags & NGHTTP2_HD_INFLATE_EMIT)
            buf_printf(&w->text, " %.*s=%.*s", (int)nv.namelen, nv.name, (int)nv.valuelen,
                       nv.value);
    }
    nghttp2_hd_inflate_end_headers(w->inflater);
}

static inline void words_frame(struct words *w, unsigned type, unsigned flags,
                               uint32_t id, struct span payload)
{
    if (type == NGHTTP2_HEADERS) {
        buf_printf(&w->text, "HEADERS %u", id);
        words_headers(w, payload);
    } else if (type == NGHTTP2_DATA) {
        buf_printf(&w->text, "DATA %u %zu", id, payload.n);
    } else if (type == NGHTTP2_RST_STREAM) {
        buf_printf(&w->text, "RST %u %s", id,
                   nghttp2_http2_strerror(number_at(payload.p)));
    } else if (type == NGHTTP2_GOAWAY) {
        buf_printf(&w->text, "GOAWAY %s",
                   nghttp2_http2_strerror(number_at(payload.p + 4)));
    } else if (type == NGHTTP2_PING) {
        buf_printf(&w->text, "PING%s", flags & NGHTTP2_FLAG_ACK ? " ack" : "");
    } else {
        return;
    }
    if (type <= NGHTTP2_HEADERS && flags & NGHTTP2_FLAG_END_STREAM)
        buf_adds(&w->text, " end");
    buf_addc(&w->text, '\n');
}

static inline void words_add(struct words *w, struct span bytes)
{
    while (bytes.n) {
        ck_assert_uint_ge(bytes.n, 9);
        size_t n = number_at(bytes.p) >> 8;
        ck_assert_uint_ge(bytes.n, 9 + n);
        words_frame(w, (unsigned char)bytes.p[3], (unsigned char)bytes.p[4],
                    number_at(bytes.p + 5), (struct span){bytes.p + 9, n});
        bytes.p += 9 + n;
        bytes.n -= 9 + n;
    }
}
