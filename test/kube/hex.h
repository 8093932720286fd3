/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdio.h>

#include "base/mem.h"
#include "lib/unit.h"

/* Bytes of messages as text, for tests. A test has one error, arena, input and output. */

static struct err err;
static struct arena a;
static struct buf in, out;

/* The bytes; valid until the next call. */
static inline struct span hex_in(const char *hex)
{
    unsigned byte;
    buf_clear(&in);
    for (; sscanf(hex, "%2x", &byte) == 1; hex += 2)
        buf_addc(&in, (char)byte);
    ck_assert_int_eq(*hex, '\0');
    return buf_span(&in);
}

/* `out` has these bytes. */
static inline void hex_expect(const char *want)
{
    cleanup_buf struct buf got = {0};
    for (size_t i = 0; i < out.n; i++)
        buf_printf(&got, "%02x", (unsigned char)out.p[i]);
    ck_assert_str_eq(got.p, want);
}

/* The call writes these bytes to `out`. */
#define ck_encodes(call, hex)                                                            \
    do {                                                                                 \
        buf_clear(&out);                                                                 \
        ck_assert_done(call, err);                                                       \
        hex_expect(hex);                                                                 \
    } while (0)

/* `out` is decoded to the same struct that it was encoded from: it gives the same bytes. */
#define ck_decodes(decode, encode, hex)                                                  \
    do {                                                                                 \
        ck_assert_done(decode, err);                                                     \
        ck_encodes(encode, hex);                                                         \
    } while (0)

/* The call fails with this code and message. */
#define ck_rejects(call, want, text)                                                     \
    do {                                                                                 \
        ck_assert_int_eq(call, -1);                                                      \
        ck_assert_int_eq(err.code, want);                                                \
        ck_assert_str_eq(err.msg, text);                                                 \
    } while (0)

static inline void hex_end(void)
{
    arena_fini(&a);
    buf_fini(&in);
    buf_fini(&out);
}
