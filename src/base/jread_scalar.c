/* SPDX-License-Identifier: Apache-2.0 */
#include "base/jread_priv.h"

#include <endian.h>
#include <string.h>

#include "base/utf8.h"

/* Strings are scanned eight bytes at a time: most of a Kubernetes object is strings. */

void jread_set_bad(struct jread *j, const char *why)
{
    if (j->state == JREAD_OK) {
        j->state = JREAD_BAD;
        j->why = why;
    }
}

void jread_set_truncated(struct jread *j)
{
    if (j->state != JREAD_OK)
        return;
    j->pos = j->n;
    if (j->part)
        j->state = JREAD_TRUNCATED;
    else
        jread_set_bad(j, "unexpected end of input");
}

/* Index of the first of the eight bytes at p that is '"', '\\', below 0x20, or at least
 * 0x80; 8 if there is none. The borrow of a subtraction can only cause false hits after
 * the first true one. */
static unsigned first_special(const char *p)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    uint64_t v;
    memcpy(&v, p, sizeof v);
    v = le64toh(v);
    uint64_t quote = v ^ (ones * '"'), slash = v ^ (ones * '\\');
    uint64_t hit = ((v - ones * 0x20) & ~v) | ((quote - ones) & ~quote) |
                   ((slash - ones) & ~slash) | v;
    hit &= tops;
    return hit ? (unsigned)__builtin_ctzll(hit) / 8 : 8;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* The four hex digits at p as a number, or -1. */
static int hex4(const char *p)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        int d = hex_digit(p[i]);
        if (d < 0)
            return -1;
        v = v << 4 | d;
    }
    return v;
}

static bool is_high(int u)
{
    return u >= 0xd800 && u <= 0xdbff;
}

static bool is_low(int u)
{
    return u >= 0xdc00 && u <= 0xdfff;
}

static bool is_escape(char c)
{
    switch (c) {
    case '"':
    case '\\':
    case '/':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't':
        return true;
    default:
        return false;
    }
}

/* pos is at a backslash. Consumes the escape; false if it set the state. */
static bool pass_escape(struct jread *j)
{
    const char *p = j->data + j->pos;
    size_t left = j->n - j->pos;
    if (left < 2) {
        jread_set_truncated(j);
        return false;
    }
    if (p[1] != 'u') {
        if (!is_escape(p[1])) {
            jread_set_bad(j, "unknown escape in a string");
            return false;
        }
        j->pos += 2;
        return true;
    }
    for (size_t i = 2; i < 6 && i < left; i++) {
        if (hex_digit(p[i]) < 0) {
            jread_set_bad(j, "\\u without four hexadecimal digits");
            return false;
        }
    }
    if (left < 6) {
        jread_set_truncated(j);
        return false;
    }
    int u = hex4(p + 2);
    if (!is_high(u) && !is_low(u)) {
        j->pos += 6;
        return true;
    }
    if (left < 12 && is_high(u) && j->part) {
        jread_set_truncated(j);
        return false;
    }
    if (is_low(u) || left < 12 || p[6] != '\\' || p[7] != 'u' || !is_low(hex4(p + 8))) {
        jread_set_bad(j, "unpaired surrogate");
        return false;
    }
    j->pos += 12;
    return true;
}

/* pos is at a byte of 0x80 or above. */
static bool pass_utf8(struct jread *j)
{
    size_t left = j->n - j->pos;
    size_t n = utf8_len((const unsigned char *)j->data + j->pos, left);
    if (n) {
        j->pos += n;
        return true;
    }
    if (left < 4 && j->part)
        jread_set_truncated(j);
    else
        jread_set_bad(j, "invalid UTF-8 in a string");
    return false;
}

/* pos is at the opening quote. */
bool jread_pass_string(struct jread *j, struct jread_str *out)
{
    size_t start = ++j->pos;
    bool escaped = false;
    for (;;) {
        while (j->n - j->pos >= 8) {
            unsigned plain = first_special(j->data + j->pos);
            j->pos += plain;
            if (plain < 8)
                break;
        }
        if (j->pos == j->n) {
            jread_set_truncated(j);
            return false;
        }
        unsigned char c = (unsigned char)j->data[j->pos];
        if (c == '"') {
            *out = (struct jread_str){
                .p = j->data + start, .n = j->pos - start, .escaped = escaped};
            j->pos++;
            return true;
        }
        if (c == '\\') {
            escaped = true;
            if (!pass_escape(j))
                return false;
        } else if (c >= 0x80) {
            if (!pass_utf8(j))
                return false;
        } else if (c < 0x20) {
            jread_set_bad(j, "control character in a string");
            return false;
        } else {
            j->pos++; /* one of the last seven bytes */
        }
    }
}

static bool pass_digits(struct jread *j)
{
    size_t start = j->pos;
    while (j->pos < j->n && j->data[j->pos] >= '0' && j->data[j->pos] <= '9')
        j->pos++;
    if (j->pos > start)
        return true;
    if (j->pos == j->n)
        jread_set_truncated(j);
    else
        jread_set_bad(j, "not a number");
    return false;
}

/* pos is at '-' or a digit. */
bool jread_pass_number(struct jread *j, struct span *out)
{
    size_t start = j->pos;
    if (jread_at(j, '-'))
        j->pos++;
    if (jread_at(j, '0')) {
        j->pos++;
        if (j->pos < j->n && j->data[j->pos] >= '0' && j->data[j->pos] <= '9') {
            jread_set_bad(j, "number with a leading zero");
            return false;
        }
    } else if (!pass_digits(j)) {
        return false;
    }
    if (jread_at(j, '.')) {
        j->pos++;
        if (!pass_digits(j))
            return false;
    }
    if (jread_at(j, 'e') || jread_at(j, 'E')) {
        j->pos++;
        if (jread_at(j, '+') || jread_at(j, '-'))
            j->pos++;
        if (!pass_digits(j))
            return false;
    }
    if (j->pos == j->n && j->part) { /* more digits may follow */
        jread_set_truncated(j);
        return false;
    }
    *out = (struct span){j->data + start, j->pos - start};
    return true;
}

bool jread_pass_word(struct jread *j, struct span word)
{
    size_t left = j->n - j->pos;
    size_t n = left < word.n ? left : word.n;
    if (memcmp(j->data + j->pos, word.p, n)) {
        jread_set_bad(j, "not a JSON value");
        return false;
    }
    if (n < word.n) {
        jread_set_truncated(j);
        return false;
    }
    j->pos += n;
    return true;
}

/* Decodes the escape at s[0] == '\\' into out; *used is its length in the input. */
static size_t decode_escape(const char *s, size_t *used, char out[4])
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (s[1] != 'u') {
        *used = 2;
        out[0] = to[strchr(from, s[1]) - from];
        return 1;
    }
    unsigned u = (unsigned)hex4(s + 2);
    *used = 6;
    if (is_high((int)u)) {
        u = 0x10000 + ((u - 0xd800) << 10) + ((unsigned)hex4(s + 8) - 0xdc00);
        *used = 12;
    }
    return utf8_put(u, out);
}

size_t jread_decode(struct jread_str s, char *out)
{
    size_t n = 0, i = 0;
    while (i < s.n) {
        if (s.p[i] != '\\') {
            out[n++] = s.p[i++];
            continue;
        }
        char utf8[4];
        size_t used, len = decode_escape(s.p + i, &used, utf8);
        memcpy(out + n, utf8, len);
        n += len;
        i += used;
    }
    return n;
}

struct span jread_span_decoded(struct jread_str s, struct arena *a)
{
    char *out = arena_alloc(a, s.n);
    return (struct span){out, jread_decode(s, out)};
}

static bool str_eq(struct jread_str s, struct span lit,
                   bool (*eq)(struct span, struct span))
{
    if (!s.escaped)
        return eq((struct span){s.p, s.n}, lit);
    if (s.n > 12 * lit.n) /* 12 bytes is the longest escape */
        return false;
    size_t i = 0, done = 0;
    while (i < s.n) {
        char utf8[4];
        size_t used = 1, len = 1;
        utf8[0] = s.p[i];
        if (s.p[i] == '\\')
            len = decode_escape(s.p + i, &used, utf8);
        if (lit.n - done < len ||
            !eq((struct span){utf8, len}, (struct span){lit.p + done, len}))
            return false;
        done += len;
        i += used;
    }
    return done == lit.n;
}

bool jread_str_eq(struct jread_str s, struct span literal)
{
    return str_eq(s, literal, span_eq);
}

bool jread_str_eq_nocase(struct jread_str s, struct span literal)
{
    return str_eq(s, literal, span_eq_nocase);
}
