/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/yaml.h"

#include "base/mem.h"

/*
 * Converts a tree to JSON. The type of a plain scalar follows from its form, as in
 * sigs.k8s.io/yaml. yaml_parse has bounded the depth of the recursion.
 */

static size_t digits(struct span s, size_t at)
{
    size_t n = 0;
    while (at + n < s.n && s.p[at + n] >= '0' && s.p[at + n] <= '9')
        n++;
    return n;
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return 99;
}

/* Parses s, without sign and prefix, in base 8 or 16. */
static bool based(struct span s, unsigned base, uint64_t *v)
{
    *v = 0;
    for (size_t i = 0; i < s.n; i++) {
        int d = digit_value(s.p[i]);
        if (d >= (int)base || *v > (INT64_MAX - 15) / 16)
            return false;
        *v = *v * base + (unsigned)d;
    }
    return s.n > 0;
}

static bool add_based(struct buf *out, bool negative, struct span s)
{
    unsigned base = 8;
    size_t prefix = 1;
    uint64_t v;
    if (s.n < 2 || s.p[0] != '0')
        return false;
    if (s.p[1] == 'x' || s.p[1] == 'o') {
        base = s.p[1] == 'x' ? 16 : 8;
        prefix = 2;
    }
    if (!based((struct span){s.p + prefix, s.n - prefix}, base, &v))
        return false;
    buf_add_i64(out, negative ? -(int64_t)v : (int64_t)v);
    return true;
}

/* Decimal, with an optional fraction and exponent. JSON requires a digit on both sides of
 * the point, YAML does not. */
static bool add_decimal(struct buf *out, bool negative, struct span s)
{
    size_t whole = digits(s, 0), at = whole, fraction = 0;
    if (at < s.n && s.p[at] == '.') {
        fraction = digits(s, at + 1);
        at += 1 + fraction;
    }
    if (!whole && !fraction)
        return false;
    if (whole > 1 && s.p[0] == '0')
        return false;
    size_t exponent = at;
    if (at < s.n && (s.p[at] == 'e' || s.p[at] == 'E')) {
        at++;
        if (at < s.n && (s.p[at] == '+' || s.p[at] == '-'))
            at++;
        size_t n = digits(s, at);
        if (!n)
            return false;
        at += n;
    }
    if (at != s.n)
        return false;
    if (negative)
        buf_addc(out, '-');
    buf_add_span(out, whole ? (struct span){s.p, whole} : SPAN("0"));
    if (fraction)
        buf_add(out, s.p + whole, fraction + 1);
    buf_add(out, s.p + exponent, s.n - exponent);
    return true;
}

static bool add_number(struct buf *out, struct span s)
{
    bool negative = s.n && s.p[0] == '-';
    if (negative || (s.n && s.p[0] == '+')) {
        s.p++;
        s.n--;
    }
    return add_decimal(out, negative, s) || add_based(out, negative, s);
}

static bool add_bool(struct buf *out, struct span s)
{
    static const char *const words[][2] = {
        {"true", "false"}, {"True", "False"}, {"TRUE", "FALSE"}};
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        for (int no = 0; no < 2; no++) {
            if (span_eq(s, span_of(words[i][no]))) {
                buf_adds(out, words[0][no]);
                return true;
            }
        }
    }
    return false;
}

static void add_scalar(struct buf *out, const struct yaml_node *node)
{
    if (node->plain && (add_bool(out, node->text) || add_number(out, node->text)))
        return;
    buf_add_json(out, node->text);
}

void yaml_json(const struct yaml_node *node, struct buf *out)
{
    if (yaml_is_null(node)) {
        buf_adds(out, "null");
        return;
    }
    if (node->type == YAML_SCALAR) {
        add_scalar(out, node);
        return;
    }
    bool mapping = node->type == YAML_MAPPING;
    buf_addc(out, mapping ? '{' : '[');
    for (size_t i = 0; i < node->n; i++) {
        if (i)
            buf_addc(out, ',');
        if (mapping) {
            buf_add_json(out, node->keys[i]);
            buf_addc(out, ':');
        }
        yaml_json(node->items[i], out);
    }
    buf_addc(out, mapping ? '}' : ']');
}
