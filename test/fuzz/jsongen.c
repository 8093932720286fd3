/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Generates small JSON texts, valid, nearly valid and invalid, for fuzz_jread. A run
 * takes microseconds, so 10^8 runs take minutes. The generator makes inputs that
 * mutations of a corpus rarely reach: documents by the grammar, and strings and numbers
 * from parts of which each may be slightly invalid. (driver.c mutates half of them.)
 */

#include "fuzz/fuzz.h"

#include "base/mem.h"
#include "base/utf8.h"

/* True once in n times. */
static bool chance(struct rng *rng, uint64_t n)
{
    return rng_below(rng, n) == 0;
}

static void add_one_of(struct rng *rng, const char *const *words, size_t n, struct buf *b)
{
    buf_adds(b, words[rng_below(rng, n)]);
}
#define ADD_ONE_OF(rng, words, b) add_one_of((rng), (words), ARRAY_LEN(words), (b))

static void add_digits(struct rng *rng, struct buf *b)
{
    for (uint64_t n = chance(rng, 8) ? rng_below(rng, 24) : 1 + rng_below(rng, 3); n; n--)
        buf_addc(b, (char)('0' + rng_below(rng, 10)));
}

/* A number: sign, whole part, fraction, exponent; sometimes one of them is invalid. */
static void add_number(struct rng *rng, struct buf *b)
{
    static const char *const signs[] = {"", "", "-", "-", "+", "--"};
    static const char *const wholes[] = {
        "0", "1", "00", "", ".", "9223372036854775807", "9223372036854775808", "1e308"};
    static const char *const points[] = {".", ".", ".", "..", ",", ".-"};
    static const char *const exponents[] = {"e", "E", "e+", "E-", "ee", "e+-", "e."};
    static const char *const tails[] = {"e", ".", "-", "x", "+1", "_", "f", "0x1"};
    add_one_of(rng, signs, chance(rng, 16) ? ARRAY_LEN(signs) : 4, b);
    if (chance(rng, 3))
        add_one_of(rng, wholes, chance(rng, 4) ? ARRAY_LEN(wholes) : 2, b);
    else
        add_digits(rng, b);
    if (chance(rng, 3)) {
        add_one_of(rng, points, chance(rng, 8) ? ARRAY_LEN(points) : 1, b);
        add_digits(rng, b);
    }
    if (chance(rng, 3)) {
        add_one_of(rng, exponents, chance(rng, 8) ? ARRAY_LEN(exponents) : 4, b);
        add_digits(rng, b);
    }
    if (chance(rng, 24))
        ADD_ONE_OF(rng, tails, b);
}

/* A code point near a limit of UTF-8 lengths, surrogates or Unicode. */
static unsigned code_point(struct rng *rng)
{
    static const unsigned borders[] = {0,      0x1f,   0x22,   0x5c,    0x7f,    0x80,
                                       0x7ff,  0x800,  0xd7ff, 0xe000,  0xfffd,  0xfffe,
                                       0xffff, 0x2028, 0xfeff, 0x10000, 0x10ffff};
    unsigned u;
    if (chance(rng, 2))
        return borders[rng_below(rng, ARRAY_LEN(borders))];
    do
        u = (unsigned)rng_below(rng, 0x110000);
    while (u >= 0xd800 && u < 0xe000);
    return u;
}

/* A character of several bytes, sometimes overlong, truncated or invalid. */
static void add_high(struct rng *rng, struct buf *b)
{
    static const char *const invalid[] = {"\xc0\x80",
                                          "\xc1\xbf",
                                          "\xe0\x9f\xbf",
                                          "\xed\xa0\x80",
                                          "\xed\xbf\xbf",
                                          "\xf0\x8f\xbf\xbf",
                                          "\xf4\x90\x80\x80",
                                          "\xf5\x80\x80\x80",
                                          "\xf8\x88\x80\x80\x80",
                                          "\x80",
                                          "\xbf\xbf",
                                          "\xff\xfe"};
    char utf8[4];
    size_t n = utf8_put(code_point(rng) | 0x80, utf8);
    if (chance(rng, 12)) {
        ADD_ONE_OF(rng, invalid, b);
        return;
    }
    if (chance(rng, 12))
        n = rng_below(rng, n);
    else if (chance(rng, 12))
        utf8[rng_below(rng, n)] ^= (char)(1 << rng_below(rng, 8));
    buf_add(b, utf8, n);
}

static void add_unit(struct rng *rng, unsigned unit, struct buf *b)
{
    static const char lower[] = "0123456789abcdef", upper[] = "0123456789ABCDEF";
    const char *digits = chance(rng, 2) ? lower : upper;
    char out[6] = {'\\', 'u'};
    for (int i = 0; i < 4; i++)
        out[2 + i] = digits[unit >> (12 - 4 * i) & 15];
    if (chance(rng, 24))
        out[rng_below(rng, 6)] = "gG /:@`"[rng_below(rng, 7)];
    buf_add(b, out, chance(rng, 24) ? rng_below(rng, 6) : 6);
}

static void add_escape(struct rng *rng, struct buf *b)
{
    static const char *const simple[] = {"\\\"", "\\\\", "\\/", "\\b", "\\f", "\\n",
                                         "\\r",  "\\t",  "\\a", "\\U", "\\0", "\\x41",
                                         "\\v",  "\\'",  "\\",  "\\\n"};
    if (chance(rng, 2)) {
        add_one_of(rng, simple, chance(rng, 8) ? ARRAY_LEN(simple) : 8, b);
        return;
    }
    unsigned u = code_point(rng);
    if (chance(rng, 8)) { /* a lone surrogate, or two in the wrong order */
        add_unit(rng, 0xd800 + (unsigned)rng_below(rng, 0x800), b);
        if (chance(rng, 2))
            add_unit(rng, 0xd800 + (unsigned)rng_below(rng, 0x800), b);
    } else if (u < 0x10000) {
        add_unit(rng, u, b);
    } else {
        add_unit(rng, 0xd800 + ((u - 0x10000) >> 10), b);
        add_unit(rng, 0xdc00 + ((u - 0x10000) & 0x3ff), b);
    }
}

/* Parts of various lengths, also beyond the eight bytes that jread reads at a time. */
static void add_string(struct rng *rng, struct buf *b)
{
    static const char plain[] = "name-of.a/node with text that goes on";
    buf_addc(b, '"');
    for (uint64_t parts = rng_below(rng, 4); parts; parts--) {
        uint64_t kind = rng_below(rng, 8);
        if (kind < 3)
            buf_add(b, plain, rng_below(rng, chance(rng, 4) ? sizeof plain : 9));
        else if (kind < 5)
            add_escape(rng, b);
        else if (kind < 7)
            add_high(rng, b);
        else if (chance(rng, 8))
            buf_addc(b, (char)rng_below(rng, 256));
    }
    if (!chance(rng, 40))
        buf_addc(b, '"');
}

static void add_space(struct rng *rng, struct buf *b)
{
    static const char space[] = " \t\r\n";
    static const char unusual[] = "\v\f\0\x85\xa0/#\xef";
    while (chance(rng, 8))
        buf_addc(b, space[rng_below(rng, 4)]);
    if (chance(rng, 400))
        buf_addc(b, unusual[rng_below(rng, sizeof unusual - 1)]);
}

static void add_key(struct rng *rng, struct buf *b)
{
    static const char *const keys[] = {"\"a\"",       "\"b\"", "\"items\"",
                                       "\"\\u0061\"", "\"\"",  "\"i\\u0074ems\""};
    if (chance(rng, 4))
        add_string(rng, b);
    else
        ADD_ONE_OF(rng, keys, b);
}

static void add_value(struct rng *rng, int depth, struct buf *b);

static void add_members(struct rng *rng, bool object, int depth, struct buf *b)
{
    uint64_t n = rng_below(rng, 4);
    for (uint64_t i = 0; i < n; i++) {
        add_space(rng, b);
        if (object) {
            add_key(rng, b);
            add_space(rng, b);
            if (!chance(rng, 200))
                buf_addc(b, ':');
        }
        add_value(rng, depth - 1, b);
        if (i + 1 < n ? !chance(rng, 200) : chance(rng, 100))
            buf_addc(b, ',');
    }
}

static void add_value(struct rng *rng, int depth, struct buf *b)
{
    static const char *const words[] = {"null", "true", "false", "nul", "True", "NaN"};
    add_space(rng, b);
    uint64_t kind = rng_below(rng, depth > 0 ? 8 : 4);
    if (kind == 0) {
        add_one_of(rng, words, chance(rng, 40) ? ARRAY_LEN(words) : 3, b);
    } else if (kind == 1) {
        add_number(rng, b);
    } else if (kind < 4) {
        add_string(rng, b);
    } else {
        bool object = kind < 6;
        buf_addc(b, object ? '{' : '[');
        add_members(rng, object, depth, b);
        if (!chance(rng, 200))
            buf_addc(b, object ^ chance(rng, 400) ? '}' : ']');
    }
    add_space(rng, b);
}

void fuzz_generate(struct rng *rng, struct buf *out)
{
    uint64_t kind = rng_below(rng, 4);
    if (kind < 2)
        add_value(rng, 3, out);
    else if (kind == 2)
        add_string(rng, out);
    else
        add_number(rng, out);
}
