/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON reader: scalars, then arrays and objects, then long lists of strings. */
#include "base/jread.h"

#include <ctype.h>
#include <endian.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

/* Whether c is the next byte. */
static inline bool is_at(const struct jread *j, char c)
{
    return j->pos < j->n && j->data[j->pos] == c;
}

/* Is the innermost level an object? Not for depth 0. */
static inline bool in_object(const struct jread *j)
{
    unsigned d = (unsigned)j->depth - 1;
    return j->objects[d / 64] >> (d % 64) & 1;
}

/* Strings are scanned eight bytes at a time: most of a Kubernetes object is strings. */

/* Always false, so that a caller fails in one statement. */
static bool set_bad(struct jread *j, const char *why)
{
    if (j->state == JREAD_OK) {
        j->state = JREAD_BAD;
        j->why = why;
    }
    return false;
}

static bool set_truncated(struct jread *j)
{
    if (j->state != JREAD_OK)
        return false;
    j->pos = j->n;
    if (!j->part)
        return set_bad(j, "unexpected end of input");
    j->state = JREAD_TRUNCATED;
    return false;
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

/* Reads "\\uXXXX" at p. Returns 6, or 0 if the n bytes end before, or SIZE_MAX if it is
 * something else. */
static size_t read_unit(const char *p, size_t n, unsigned *unit)
{
    *unit = 0;
    for (size_t i = 0; i < 6; i++) {
        if (i == n)
            return 0;
        if (i < 2 ? p[i] != "\\u"[i] : !isxdigit((unsigned char)p[i]))
            return SIZE_MAX;
        unsigned digit = (unsigned)(p[i] <= '9' ? p[i] - '0' : (p[i] | 0x20) - 'a' + 10);
        *unit = *unit << 4 | (i < 2 ? 0 : digit);
    }
    return 6;
}

/* Reads the escape at p and the code point that it stands for. Returns its length; 0: the n
 * bytes end before, or it is invalid, and *why is set. */
static size_t read_escape(const char *p, size_t n, unsigned *code, const char **why)
{
    static const char letters[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    unsigned low;
    if (n < 2)
        return 0;
    if (p[1] != 'u') {
        const char *at = p[1] ? strchr(letters, p[1]) : NULL;
        *code = at ? (unsigned)bytes[at - letters] : 0;
        *why = at ? NULL : "unknown escape in a string";
        return at ? 2 : 0;
    }
    size_t len = read_unit(p, n, code);
    if (len == SIZE_MAX)
        *why = "\\u without four hexadecimal digits";
    if (len != 6 || *code >> 11 != 0xd800 >> 11)
        return len == 6 ? 6 : 0;
    len = read_unit(p + 6, n - 6, &low);
    if (*code >= 0xdc00 || len == SIZE_MAX || (len && low >> 10 != 0xdc00 >> 10))
        *why = "unpaired surrogate";
    *code = 0x10000 + ((*code & 0x3ff) << 10) + (low & 0x3ff);
    return len && !*why ? 12 : 0;
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
    return left < 4 && j->part ? set_truncated(j)
                               : set_bad(j, "invalid UTF-8 in a string");
}

/* pos is at the opening quote. */
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
        if (j->pos == j->n)
            return set_truncated(j);
        unsigned char c = (unsigned char)j->data[j->pos];
        if (c == '"') {
            *out = (struct jread_str){
                .p = j->data + start, .n = j->pos - start, .escaped = escaped};
            j->pos++;
            return true;
        }
        if (c == '\\') {
            const char *why = NULL;
            unsigned code;
            size_t n = read_escape(j->data + j->pos, j->n - j->pos, &code, &why);
            escaped = true;
            j->pos += n;
            if (!n)
                return why ? set_bad(j, why) : set_truncated(j);
        } else if (c >= 0x80) {
            if (!pass_utf8(j))
                return false;
        } else if (c < 0x20) {
            return set_bad(j, "control character in a string");
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
    return j->pos == j->n ? set_truncated(j) : set_bad(j, "not a number");
}

/* pos is at '-' or a digit. */
static bool pass_number(struct jread *j, struct span *out)
{
    size_t start = j->pos;
    if (is_at(j, '-'))
        j->pos++;
    if (is_at(j, '0')) {
        j->pos++;
        if (j->pos < j->n && j->data[j->pos] >= '0' && j->data[j->pos] <= '9')
            return set_bad(j, "number with a leading zero");
    } else if (!pass_digits(j)) {
        return false;
    }
    if (is_at(j, '.')) {
        j->pos++;
        if (!pass_digits(j))
            return false;
    }
    if (is_at(j, 'e') || is_at(j, 'E')) {
        j->pos++;
        if (is_at(j, '+') || is_at(j, '-'))
            j->pos++;
        if (!pass_digits(j))
            return false;
    }
    if (j->pos == j->n && j->part) /* more digits may follow */
        return set_truncated(j);
    *out = (struct span){j->data + start, j->pos - start};
    return true;
}

static bool pass_word(struct jread *j, struct span word)
{
    size_t left = j->n - j->pos;
    size_t n = left < word.n ? left : word.n;
    if (memcmp(j->data + j->pos, word.p, n))
        return set_bad(j, "not a JSON value");
    if (n < word.n)
        return set_truncated(j);
    j->pos += n;
    return true;
}

/* Decodes s, which the parser has validated, into out, which is as long: the decoded form is
 * never longer. */
static struct span decode(struct jread_str s, char *out)
{
    const char *why = NULL;
    char *end = out;
    for (size_t i = 0, used; i < s.n; i += used) {
        unsigned code;
        if (s.p[i] == '\\') {
            used = read_escape(s.p + i, s.n - i, &code, &why);
            end += utf8_put(code, end);
        } else {
            *end++ = s.p[i];
            used = 1;
        }
    }
    return (struct span){out, (size_t)(end - out)};
}

struct span jread_span_decoded(struct jread_str s, struct arena *a)
{
    return decode(s, arena_alloc(a, s.n));
}

static bool str_eq(struct jread_str s, struct span lit,
                   bool (*eq)(struct span, struct span))
{
    if (!s.escaped)
        return eq((struct span){s.p, s.n}, lit);
    if (s.n > 12 * lit.n) /* 12 bytes is the longest escape */
        return false;
    cleanup_free char *out = xmalloc(s.n);
    return eq(decode(s, out), lit);
}

bool jread_str_eq(struct jread_str s, struct span literal)
{
    return str_eq(s, literal, span_eq);
}

bool jread_str_eq_nocase(struct jread_str s, struct span literal)
{
    return str_eq(s, literal, span_eq_nocase);
}

/* -- arrays and objects -- */

/*
 * The state of the parser is a position in the input and one bit per nesting level:
 * object or array.
 */

void jread_init(struct jread *j, const char *data, size_t n)
{
    *j = (struct jread){.data = data, .n = n};
}

void jread_continue(struct jread *j, const char *data, size_t n, bool last)
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

/* The next byte that is not white space, or -1 with the state set. */
static int next(struct jread *j)
{
    if (j->state != JREAD_OK)
        return -1;
    if (j->pos < j->n && (unsigned char)j->data[j->pos] > ' ')
        return (unsigned char)j->data[j->pos];
    skip_space(j);
    if (j->pos < j->n)
        return (unsigned char)j->data[j->pos];
    set_truncated(j);
    return -1;
}

static bool push(struct jread *j, bool object)
{
    if (j->depth == JREAD_MAX_DEPTH)
        return set_bad(j, "nested too deeply");
    uint64_t bit = (uint64_t)1 << (j->depth % 64), *word = &j->objects[j->depth / 64];
    *word = object ? *word | bit : *word & ~bit;
    j->depth++;
    j->pos++;
    j->at_first = true;
    return true;
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
        set_bad(j, "not a JSON value");
        return JREAD_NONE;
    }
}

/* Whether the next value has this type. Consumes null and values of other types. */
static bool want(struct jread *j, enum jread_type type, const char *where)
{
    static const char *const expected[] = {[JREAD_BOOL] = "expected true or false",
                                           [JREAD_NUMBER] = "expected a number",
                                           [JREAD_STRING] = "expected a string",
                                           [JREAD_ARRAY] = "expected an array",
                                           [JREAD_OBJECT] = "expected an object"};
    enum jread_type got = jread_peek(j);
    if (got == type)
        return true;
    if (got == JREAD_NULL) {
        pass_word(j, SPAN("null"));
    } else if (got != JREAD_NONE) {
        jread_fail(j, where, expected[type]);
        jread_skip(j);
    }
    return false;
}

void jread_object(struct jread *j, const char *where)
{
    j->is_null = !want(j, JREAD_OBJECT, where);
    if (!j->is_null)
        push(j, true);
}

void jread_array(struct jread *j, const char *where)
{
    j->is_null = !want(j, JREAD_ARRAY, where);
    if (!j->is_null)
        push(j, false);
}

/* Whether another member or item follows. Consumes the comma or the closing bracket. */
static bool advance(struct jread *j, bool object)
{
    if (j->is_null) {
        j->is_null = false;
        return false;
    }
    int c = next(j);
    if (c < 0 || j->depth == 0 || in_object(j) != object)
        return false;
    if (c == (object ? '}' : ']')) {
        j->depth--;
        j->pos++;
        j->at_first = false;
        return false;
    }
    if (j->at_first) {
        j->at_first = false;
        return true;
    }
    if (c != ',')
        return set_bad(j, object ? "expected ',' or '}'" : "expected ',' or ']'");
    j->pos++;
    return next(j) >= 0;
}

bool jread_member(struct jread *j, struct jread_str *key)
{
    int c = advance(j, true) ? next(j) : -1;
    if (c < 0)
        return false;
    if (c != '"')
        return set_bad(j, "expected a key in quotes");
    if (!pass_string(j, key) || (c = next(j)) < 0)
        return false;
    if (c != ':')
        return set_bad(j, "expected ':'");
    j->pos++;
    return true;
}

bool jread_item(struct jread *j)
{
    return advance(j, false);
}

bool jread_string(struct jread *j, const char *where, struct jread_str *out)
{
    if (j->state == JREAD_OK && is_at(j, '"'))
        return pass_string(j, out);
    return want(j, JREAD_STRING, where) && pass_string(j, out);
}

bool jread_bool(struct jread *j, const char *where, bool *out)
{
    if (!want(j, JREAD_BOOL, where))
        return false;
    bool value = is_at(j, 't');
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
        return set_bad(j, "not a JSON value");
    }
}

bool jread_skip(struct jread *j)
{
    unsigned base = j->depth;
    struct jread_str key;
    for (;;) {
        /* j->pos is at a value. */
        int c = next(j);
        if (c < 0)
            return false;
        if (c == '{' || c == '[') {
            if (!push(j, c == '{'))
                return false;
        } else if (!pass_scalar(j, c)) {
            return false;
        }
        /* Advance to the next value, leaving the arrays and objects that end here. */
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

int jread_check(const struct jread *j, struct err *err)
{
    if (j->state == JREAD_OK)
        return 0;
    return err_set(err, ERR_INVALID, "invalid JSON at byte %zu: %s", j->pos,
                   j->state == JREAD_TRUNCATED ? "unexpected end of input" : j->why);
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
        set_bad(j, "unclosed array or object");
    } else if (j->state == JREAD_OK) {
        skip_space(j);
        if (j->pos < j->n)
            set_bad(j, "unexpected data after the value");
    }
    return jread_check(j, err) || jread_fault(j, err) ? -1 : 0;
}

/* -- lists of strings -- */

/* kube-scheduler sends thousands of names of nodes per call, so they are scanned sixteen
 * bytes at a time. */

typedef unsigned char bytes16 __attribute__((vector_size(16)));
typedef uint64_t words2 __attribute__((vector_size(16)));

/* Index of the first of sixteen bytes that is not 0; 16 if there is none. */
static inline unsigned first_of(words2 v)
{
    uint64_t low = le64toh(v[0]), high = le64toh(v[1]);
    if (low)
        return (unsigned)__builtin_ctzll(low) / 8;
    return high ? 8 + (unsigned)__builtin_ctzll(high) / 8 : 16;
}

/* The length of the plain string at p, or `left` if it is not plain, or too close to the end
 * of the input to be read in blocks. The next string begins where this one ends, so the
 * search for its end is what takes the time; the other bytes are compared meanwhile. */
static inline size_t plain_length(const char *p, size_t left)
{
    for (size_t i = 0; left - i >= 16; i += 16) {
        bytes16 v;
        memcpy(&v, p + i, sizeof v);
        unsigned quote = first_of((words2)(v == '"'));
        if (first_of((words2)((v <= ' ') | (v > '~') | (v == '/') | (v == '\\'))) < quote)
            return left;
        if (quote < 16)
            return i + quote;
    }
    return left;
}

size_t jread_strings(struct jread *j, struct jread_str *out, size_t max)
{
    size_t n = 0;
    if (j->state != JREAD_OK || j->is_null || j->depth == 0 || in_object(j))
        return 0;
    while (n < max) {
        size_t quote = j->pos + !j->at_first;
        if (quote >= j->n || j->data[quote] != '"' || (!j->at_first && !is_at(j, ',')))
            break;
        const char *p = j->data + quote + 1;
        size_t left = j->n - quote - 1, plain = plain_length(p, left);
        j->at_first = false;
        if (plain < left) {
            out[n++] = (struct jread_str){.p = p, .n = plain, .plain = true};
            j->pos = quote + 1 + plain + 1;
            continue;
        }
        j->pos = quote;
        if (!pass_string(j, &out[n]))
            break;
        n++;
    }
    return n;
}
