/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base64.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                               "0123456789+/";

static int value_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    if (c == '+')
        return 62;
    return c == '/' ? 63 : -1;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* Appends a complete group of four characters: `digits` digits, the rest is padding. */
static bool add_group(struct buf *out, unsigned bits, int digits)
{
    if (digits < 2)
        return false;
    unsigned left_over = digits == 2 ? 0xffff : digits == 3 ? 0xff : 0;
    if (bits & left_over)
        return false;
    for (int i = 0; i < digits - 1; i++)
        buf_addc(out, (char)(bits >> (16 - 8 * i) & 0xff));
    return true;
}

static bool decode(struct span s, struct buf *out)
{
    unsigned bits = 0;
    int digits = 0, padding = 0;
    bool ended = false;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (is_space(c))
            continue;
        int v = value_of(c);
        if (ended || (c == '=' ? digits < 2 : v < 0 || padding))
            return false;
        if (c == '=')
            padding++;
        else
            bits |= (unsigned)v << (18 - 6 * digits++);
        if (digits + padding < 4)
            continue;
        if (!add_group(out, bits, digits))
            return false;
        ended = padding > 0;
        bits = 0;
        digits = padding = 0;
    }
    return digits + padding == 0;
}

bool base64_decode(struct span s, struct buf *out)
{
    size_t start = out->n;
    buf_reserve(out, s.n / 4 * 3);
    if (decode(s, out))
        return true;
    out->n = start;
    out->p[start] = '\0';
    return false;
}

void base64_encode(struct span s, struct buf *out)
{
    for (size_t i = 0; i < s.n; i += 3) {
        size_t n = s.n - i < 3 ? s.n - i : 3;
        unsigned bits = 0;
        for (size_t k = 0; k < n; k++)
            bits |= (unsigned)(unsigned char)s.p[i + k] << (16 - 8 * k);
        for (size_t k = 0; k < 4; k++)
            buf_addc(out, k <= n ? alphabet[bits >> (18 - 6 * k) & 63] : '=');
    }
}
