/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/*
 * Strict UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF.
 */

/* Length (1..4) of the sequence at p, which has n >= 1 readable bytes; 0 if the sequence
 * is invalid or truncated. */
static inline size_t utf8_len(const unsigned char *p, size_t n)
{
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t len = p[0] < 0x80   ? 1
                 : p[0] < 0xc0 ? 0
                 : p[0] < 0xe0 ? 2
                 : p[0] < 0xf0 ? 3
                 : p[0] < 0xf8 ? 4
                               : 0;
    unsigned code = p[0] & (0x7fu >> len);
    if (len < 2 || n < len)
        return len == 1;
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (p[i] & 0x3f);
    }
    return code < least[len] || code >> 11 == 0xd800 >> 11 || code > 0x10ffff ? 0 : len;
}

/* Encodes the code point, below U+110000, into `out`; returns the length, 1..4. */
static inline size_t utf8_put(unsigned code, char out[4])
{
    size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    unsigned lead = n == 1 ? 0 : 0xf0 << (4 - n) & 0xff;
    for (size_t i = n; --i; code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(lead | code);
    return n;
}
