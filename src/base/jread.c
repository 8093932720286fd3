/* SPDX-License-Identifier: Apache-2.0 */
#include "base/jread_priv.h"

/*
 * The state of the parser is a position in the input and one bit per nesting level:
 * object or array.
 */

void jread_init(struct jread *j, const char *data, size_t n)
{
    *j = (struct jread){.data = data, .n = n};
}

void jread_init_partial(struct jread *j, const char *data, size_t n)
{
    *j = (struct jread){.data = data, .n = n, .part = true};
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
    jread_set_truncated(j);
    return -1;
}

static bool push(struct jread *j, bool object)
{
    if (j->depth == JREAD_MAX_DEPTH) {
        jread_set_bad(j, "nested too deeply");
        return false;
    }
    uint64_t bit = (uint64_t)1 << (j->depth % 64), *word = &j->objects[j->depth / 64];
    *word = object ? *word | bit : *word & ~bit;
    j->depth++;
    j->pos++;
    j->at_first = true;
    return true;
}

static void pop(struct jread *j)
{
    j->depth--;
    j->pos++;
    j->at_first = false;
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
        jread_set_bad(j, "not a JSON value");
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

/* Whether the next value has this type. Consumes null and values of other types. */
static bool want(struct jread *j, enum jread_type type, const char *where)
{
    enum jread_type got = jread_peek(j);
    if (got == type)
        return true;
    if (got == JREAD_NULL) {
        jread_pass_word(j, SPAN("null"));
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
        j->is_null = true;
}

void jread_array(struct jread *j, const char *where)
{
    if (want(j, JREAD_ARRAY, where))
        push(j, false);
    else
        j->is_null = true;
}

/* Whether another member or item follows. Consumes the comma or the closing bracket. */
static bool advance(struct jread *j, bool object)
{
    if (j->is_null) {
        j->is_null = false;
        return false;
    }
    int c = next(j);
    if (c < 0 || j->depth == 0 || jread_in_object(j) != object)
        return false;
    if (c == (object ? '}' : ']')) {
        pop(j);
        return false;
    }
    if (j->at_first) {
        j->at_first = false;
        return true;
    }
    if (c != ',') {
        jread_set_bad(j, object ? "expected ',' or '}'" : "expected ',' or ']'");
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
        jread_set_bad(j, "expected a key in quotes");
        return false;
    }
    if (!jread_pass_string(j, key))
        return false;
    c = next(j);
    if (c < 0)
        return false;
    if (c != ':') {
        jread_set_bad(j, "expected ':'");
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
    if (j->state == JREAD_OK && jread_at(j, '"'))
        return jread_pass_string(j, out);
    return want(j, JREAD_STRING, where) && jread_pass_string(j, out);
}

bool jread_bool(struct jread *j, const char *where, bool *out)
{
    if (!want(j, JREAD_BOOL, where))
        return false;
    bool value = jread_at(j, 't');
    if (!jread_pass_word(j, value ? SPAN("true") : SPAN("false")))
        return false;
    *out = value;
    return true;
}

bool jread_i64(struct jread *j, const char *where, int64_t *out)
{
    struct span digits;
    if (!want(j, JREAD_NUMBER, where) || !jread_pass_number(j, &digits))
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
        return jread_pass_string(j, &s);
    case 't':
        return jread_pass_word(j, SPAN("true"));
    case 'f':
        return jread_pass_word(j, SPAN("false"));
    case 'n':
        return jread_pass_word(j, SPAN("null"));
    case '-':
    case '0' ... '9':
        return jread_pass_number(j, &digits);
    default:
        jread_set_bad(j, "not a JSON value");
        return false;
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
            if (jread_in_object(j) ? jread_member(j, &key) : jread_item(j))
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
        jread_set_bad(j, "unclosed array or object");
    } else if (j->state == JREAD_OK) {
        skip_space(j);
        if (j->pos < j->n)
            jread_set_bad(j, "unexpected data after the value");
    }
    return jread_check(j, err) || jread_fault(j, err) ? -1 : 0;
}
