/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/http2.h"
#include "lib/unit.h"

/*
 * Prints HTTP/2 frames as text.
 */

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
