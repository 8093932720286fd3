/* SPDX-License-Identifier: Apache-2.0 */
#include "base/jread.h"

#include <endian.h>
#include <string.h>

#include "base/utf8.h"

/*
 * One position moves through the bytes. The only memory is a bit per level that says
 * whether the level is an object. Strings, which are most of what Kubernetes sends, are
 * passed eight bytes at a time.
 */

static void fail(struct jread *j, const char *why)
{
    if (j->state == JREAD_OK) {
        j->state = JREAD_BAD;
        j->why = why;
    }
}

/* The input ended inside a value. */
static void cut(struct jread *j)
{
    if (j->state != JREAD_OK)
        return;
    j->pos = j->n;
    if (j->part)
        j->state = JREAD_CUT;
    else
        fail(j, "the input ends too early");
}

void jread_init(struct jread *j, const char *data, size_t n)
{
    *j = (struct jread){.data = data, .n = n};
}

void jread_init_part(struct jread *j, const char *data, size_t n)
{
    *j = (struct jread){.data = data, .n = n, .part = true};
}

void jread_more(struct jread *j, const char *data, size_t n, bool last)
{
    j->data = data;
    j->n = n;
    j->part = !last;
}

void jread_fail(struct jread *j, const char *where, const char *why)
{
    if (j->state != JREAD_OK || j->fault)
        return;
    j->fault = why;
    j->where = where;
    j->fault_pos = j->pos;
}

static void skip_space(struct jread *j)
{
    while (j->pos < j->n) {
        char c = j->data[j->pos];
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t')
            return;
        j->pos++;
    }
}

/* The next byte that is not space, or -1 (with the state set). */
static int next(struct jread *j)
{
    if (j->state != JREAD_OK)
        return -1;
    if (j->pos < j->n && (unsigned char)j->data[j->pos] > ' ')
        return (unsigned char)j->data[j->pos];
    skip_space(j);
    if (j->pos < j->n)
        return (unsigned char)j->data[j->pos];
    cut(j);
    return -1;
}

/* Which of the eight bytes at p is the first that is '"', '\\', below 0x20, or 0x80 and
 * up; 8: none. A borrow makes false alarms only behind the first hit. */
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

/* pos is at a backslash. Passes the escape; false when the state was set. */
static bool pass_escape(struct jread *j)
{
    const char *p = j->data + j->pos;
    size_t left = j->n - j->pos;
    if (left < 2) {
        cut(j);
        return false;
    }
    if (p[1] != 'u') {
        if (!is_escape(p[1])) {
            fail(j, "unknown escape in a string");
            return false;
        }
        j->pos += 2;
        return true;
    }
    for (size_t i = 2; i < 6 && i < left; i++) {
        if (hex_digit(p[i]) < 0) {
            fail(j, "\\u without four hex digits");
            return false;
        }
    }
    if (left < 6) {
        cut(j);
        return false;
    }
    int u = hex4(p + 2);
    if (!is_high(u) && !is_low(u)) {
        j->pos += 6;
        return true;
    }
    if (left < 12 && is_high(u) && j->part) {
        cut(j);
        return false;
    }
    if (is_low(u) || left < 12 || p[6] != '\\' || p[7] != 'u' || !is_low(hex4(p + 8))) {
        fail(j, "half of a surrogate pair");
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
        cut(j);
    else
        fail(j, "a string is not UTF-8");
    return false;
}

/* pos is at the opening quote. Passes the string. */
static bool pass_string(struct jread *j, struct jread_str *out)
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
            cut(j);
            return false;
        }
        unsigned char c = (unsigned char)j->data[j->pos];
        if (c == '"') {
            *out = (struct jread_str){j->data + start, j->pos - start, escaped};
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
            fail(j, "a control character in a string");
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
        cut(j);
    else
        fail(j, "not a number");
    return false;
}

static bool at(const struct jread *j, char c)
{
    return j->pos < j->n && j->data[j->pos] == c;
}

/* pos is at '-' or a digit. */
static bool pass_number(struct jread *j, struct span *out)
{
    size_t start = j->pos;
    if (at(j, '-'))
        j->pos++;
    if (at(j, '0')) {
        j->pos++;
        if (j->pos < j->n && j->data[j->pos] >= '0' && j->data[j->pos] <= '9') {
            fail(j, "a number with a zero in front");
            return false;
        }
    } else if (!pass_digits(j)) {
        return false;
    }
    if (at(j, '.')) {
        j->pos++;
        if (!pass_digits(j))
            return false;
    }
    if (at(j, 'e') || at(j, 'E')) {
        j->pos++;
        if (at(j, '+') || at(j, '-'))
            j->pos++;
        if (!pass_digits(j))
            return false;
    }
    if (j->pos == j->n && j->part) { /* its next digit may follow */
        cut(j);
        return false;
    }
    *out = (struct span){j->data + start, j->pos - start};
    return true;
}

static bool pass_word(struct jread *j, struct span word)
{
    size_t left = j->n - j->pos;
    size_t n = left < word.n ? left : word.n;
    if (memcmp(j->data + j->pos, word.p, n)) {
        fail(j, "not a JSON value");
        return false;
    }
    if (n < word.n) {
        cut(j);
        return false;
    }
    j->pos += n;
    return true;
}

static bool push(struct jread *j, bool object)
{
    if (j->depth == JREAD_MAX_DEPTH) {
        fail(j, "nested too deeply");
        return false;
    }
    uint64_t bit = (uint64_t)1 << (j->depth % 64), *word = &j->objects[j->depth / 64];
    *word = object ? *word | bit : *word & ~bit;
    j->depth++;
    j->pos++;
    j->fresh = true;
    return true;
}

static bool in_object(const struct jread *j)
{
    unsigned d = (unsigned)j->depth - 1;
    return j->objects[d / 64] >> (d % 64) & 1;
}

static void pop(struct jread *j)
{
    j->depth--;
    j->pos++;
    j->fresh = false;
}

enum jread_type jread_peek(struct jread *j)
{
    switch (next(j)) {
    case -1:
        return JREAD_NONE;
    case '{':
        return JREAD_OBJECT;
    case '[':
        return JREAD_ARRAY;
    case '"':
        return JREAD_STRING;
    case 't':
    case 'f':
        return JREAD_BOOL;
    case 'n':
        return JREAD_NULL;
    case '-':
    case '0' ... '9':
        return JREAD_NUMBER;
    default:
        fail(j, "not a JSON value");
        return JREAD_NONE;
    }
}

static const char *expected(enum jread_type type)
{
    switch (type) {
    case JREAD_BOOL:
        return "expected true or false";
    case JREAD_NUMBER:
        return "expected a number";
    case JREAD_STRING:
        return "expected a string";
    case JREAD_ARRAY:
        return "expected an array";
    default:
        return "expected an object";
    }
}

/* Is a value of this type next? null is read and answered with false. */
static bool want(struct jread *j, enum jread_type type, const char *where)
{
    enum jread_type got = jread_peek(j);
    if (got == type)
        return true;
    if (got == JREAD_NULL) {
        pass_word(j, SPAN("null"));
    } else if (got != JREAD_NONE) {
        jread_fail(j, where, expected(type));
        jread_skip(j);
    }
    return false;
}

void jread_object(struct jread *j, const char *where)
{
    if (want(j, JREAD_OBJECT, where))
        push(j, true);
    else
        j->hollow = true;
}

void jread_array(struct jread *j, const char *where)
{
    if (want(j, JREAD_ARRAY, where))
        push(j, false);
    else
        j->hollow = true;
}

/* Is there another member or item? Passes the comma or the closing bracket. */
static bool advance(struct jread *j, bool object)
{
    if (j->hollow) {
        j->hollow = false;
        return false;
    }
    int c = next(j);
    if (c < 0 || j->depth == 0 || in_object(j) != object)
        return false;
    if (c == (object ? '}' : ']')) {
        pop(j);
        return false;
    }
    if (j->fresh) {
        j->fresh = false;
        return true;
    }
    if (c != ',') {
        fail(j, object ? "expected ',' or '}'" : "expected ',' or ']'");
        return false;
    }
    j->pos++;
    c = next(j);
    return c >= 0;
}

static bool pass_key(struct jread *j, struct jread_str *key)
{
    int c = next(j);
    if (c < 0)
        return false;
    if (c != '"') {
        fail(j, "expected a key in quotes");
        return false;
    }
    if (!pass_string(j, key))
        return false;
    c = next(j);
    if (c < 0)
        return false;
    if (c != ':') {
        fail(j, "expected ':'");
        return false;
    }
    j->pos++;
    return true;
}

bool jread_member(struct jread *j, struct jread_str *key)
{
    return advance(j, true) && pass_key(j, key);
}

bool jread_item(struct jread *j)
{
    return advance(j, false);
}

bool jread_string(struct jread *j, const char *where, struct jread_str *out)
{
    if (j->state == JREAD_OK && at(j, '"'))
        return pass_string(j, out);
    return want(j, JREAD_STRING, where) && pass_string(j, out);
}

size_t jread_strings(struct jread *j, struct jread_str *out, size_t max)
{
    size_t n = 0;
    if (j->state != JREAD_OK || j->hollow || j->depth == 0 || in_object(j))
        return 0;
    while (n < max) {
        size_t quote = j->pos + !j->fresh;
        if (quote >= j->n || j->data[quote] != '"' || (!j->fresh && !at(j, ',')))
            break;
        j->fresh = false;
        j->pos = quote;
        if (!pass_string(j, &out[n]))
            break;
        n++;
    }
    return n;
}

bool jread_bool(struct jread *j, const char *where, bool *out)
{
    if (!want(j, JREAD_BOOL, where))
        return false;
    bool value = at(j, 't');
    if (!pass_word(j, value ? SPAN("true") : SPAN("false")))
        return false;
    *out = value;
    return true;
}

bool jread_i64(struct jread *j, const char *where, int64_t *out)
{
    struct span digits;
    if (!want(j, JREAD_NUMBER, where) || !pass_number(j, &digits))
        return false;
    if (span_i64(digits, out))
        return true;
    jread_fail(j, where, "expected an integer that fits in 64 bits");
    return false;
}

bool jread_text(struct jread *j, const char *where, struct arena *a, struct span *out)
{
    struct jread_str s;
    if (!jread_string(j, where, &s))
        return false;
    *out = jread_span(s, a);
    return true;
}

/* One value that is neither array nor object. */
static bool pass_scalar(struct jread *j, int c)
{
    struct jread_str s;
    struct span digits;
    switch (c) {
    case '"':
        return pass_string(j, &s);
    case 't':
        return pass_word(j, SPAN("true"));
    case 'f':
        return pass_word(j, SPAN("false"));
    case 'n':
        return pass_word(j, SPAN("null"));
    case '-':
    case '0' ... '9':
        return pass_number(j, &digits);
    default:
        fail(j, "not a JSON value");
        return false;
    }
}

bool jread_skip(struct jread *j)
{
    unsigned base = j->depth;
    struct jread_str key;
    for (;;) {
        /* A value stands here. */
        int c = next(j);
        if (c < 0)
            return false;
        if (c == '{' || c == '[') {
            if (!push(j, c == '{'))
                return false;
        } else if (!pass_scalar(j, c)) {
            return false;
        }
        /* Go on to the next value, leaving what ends here. */
        for (;;) {
            if (j->depth == base)
                return true;
            if (in_object(j) ? jread_member(j, &key) : jread_item(j))
                break;
            if (j->state != JREAD_OK)
                return false;
        }
    }
}

bool jread_raw(struct jread *j, struct span *raw)
{
    if (next(j) < 0)
        return false;
    size_t start = j->pos;
    if (!jread_skip(j))
        return false;
    *raw = (struct span){j->data + start, j->pos - start};
    return true;
}

/* Decodes the escape at s[0] == '\\' to out; sets *used to its length in the input. */
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
    if (s.n > 12 * lit.n) /* no escape is longer for one byte */
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

int jread_check(const struct jread *j, struct err *err)
{
    if (j->state == JREAD_OK)
        return 0;
    return err_set(err, ERR_INVALID, "invalid JSON at byte %zu: %s", j->pos,
                   j->state == JREAD_CUT ? "the input ends too early" : j->why);
}

int jread_fault(struct jread *j, struct err *err)
{
    if (!j->fault)
        return 0;
    err_set(err, ERR_INVALID, "%s: %s, at byte %zu", j->where, j->fault, j->fault_pos);
    j->fault = j->where = NULL;
    return -1;
}

int jread_finish(struct jread *j, struct err *err)
{
    if (j->state == JREAD_OK && j->depth) {
        fail(j, "an array or object is not closed");
    } else if (j->state == JREAD_OK) {
        skip_space(j);
        if (j->pos < j->n)
            fail(j, "something follows the value");
    }
    return jread_check(j, err) || jread_fault(j, err) ? -1 : 0;
}
