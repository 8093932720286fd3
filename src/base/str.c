/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/utf8.h"

struct span span_of(const char *s)
{
    return (struct span){s, s ? strlen(s) : 0};
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

bool span_eq_nocase(struct span a, struct span b)
{
    if (a.n != b.n)
        return false;
    for (size_t i = 0; i < a.n; i++)
        if (lower(a.p[i]) != lower(b.p[i]))
            return false;
    return true;
}

bool span_ends(struct span s, struct span suffix)
{
    return s.n >= suffix.n &&
           span_eq((struct span){s.p + s.n - suffix.n, suffix.n}, suffix);
}

bool span_starts(struct span s, struct span prefix)
{
    return s.n >= prefix.n && span_eq((struct span){s.p, prefix.n}, prefix);
}

bool span_has_only(struct span s, const char *other)
{
    for (size_t i = 0; i < s.n; i++)
        if (!isalnum((unsigned char)s.p[i]) && !memchr(other, s.p[i], strlen(other)))
            return false;
    return true;
}

int span_cmp(struct span a, struct span b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int c = n ? memcmp(a.p, b.p, n) : 0;
    if (c)
        return c;
    return (a.n > b.n) - (a.n < b.n);
}

int span_compare(const void *a, const void *b)
{
    return span_cmp(*(const struct span *)a, *(const struct span *)b);
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

struct span span_trim(struct span s)
{
    while (s.n && is_space(s.p[0])) {
        s.p++;
        s.n--;
    }
    while (s.n && is_space(s.p[s.n - 1]))
        s.n--;
    return s;
}

struct span span_clip(struct span s, size_t max)
{
    if (s.n > max) {
        s.n = max;
        while (s.n && ((unsigned char)s.p[s.n] & 0xc0) == 0x80)
            s.n--;
    }
    return s;
}

struct span span_cut(struct span *rest, char sep)
{
    const char *at = rest->n ? memchr(rest->p, sep, rest->n) : NULL;
    struct span head = *rest;
    if (!at) {
        *rest = (struct span){NULL, 0};
        return head;
    }
    head.n = (size_t)(at - head.p);
    rest->p += head.n + 1;
    rest->n -= head.n + 1;
    return head;
}

bool span_i64(struct span s, int64_t *value)
{
    bool neg = s.n && s.p[0] == '-';
    size_t i = neg;
    if (i == s.n)
        return false;
    int64_t v = 0;
    for (; i < s.n; i++) {
        int digit = s.p[i] - '0';
        if (digit < 0 || digit > 9)
            return false;
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_sub_overflow(v, digit, &v)) /* negative, so that INT64_MIN fits */
            return false;
    }
    if (!neg && v == INT64_MIN)
        return false;
    *value = neg ? v : -v;
    return true;
}

void buf_fini(struct buf *b)
{
    free(b->p);
    *b = (struct buf){0};
}

void buf_grow(struct buf *b, size_t more)
{
    size_t want;
    if (__builtin_add_overflow(b->n, more, &want) || want == SIZE_MAX)
        abort();
    MEM_GROW(b->p, b->cap, want + 1);
}

void buf_reserve_secret(struct buf *b, size_t more)
{
    struct buf wider = {0};
    if (b->cap - b->n > more)
        return;
    buf_reserve(&wider, b->n + more + b->cap / 2);
    buf_add_span(&wider, buf_span(b));
    buf_wipe(b);
    *b = wider;
}

void buf_wipe(struct buf *b)
{
    if (b->p)
        explicit_bzero(b->p, b->cap);
    buf_fini(b);
}

char *str_put_u64(char *to, uint64_t value)
{
    char digits[STR_U64], *p = digits + sizeof digits;
    do
        *--p = (char)('0' + value % 10);
    while (value /= 10);
    size_t n = (size_t)(digits + sizeof digits - p);
    return (char *)memcpy(to, p, n) + n;
}

void buf_add_i64(struct buf *b, int64_t v)
{
    buf_reserve(b, STR_U64 + 1);
    char *p = b->p + b->n;
    if (v < 0)
        *p++ = '-';
    p = str_put_u64(p, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
    *p = '\0';
    b->n = (size_t)(p - b->p);
}

void buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    assert(n >= 0);
    buf_reserve(b, (size_t)n);
    vsnprintf(b->p + b->n, (size_t)n + 1, fmt, again);
    va_end(again);
    b->n += (size_t)n;
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(b, fmt, ap);
    va_end(ap);
}

void buf_add_printable(struct buf *b, struct span s)
{
    for (size_t i = 0, n; i < s.n; i += n ? n : 1) {
        const unsigned char *p = (const unsigned char *)s.p + i;
        n = utf8_len(p, s.n - i);
        if (!n || *p < ' ' || *p == 0x7f || (*p == 0xc2 && p[1] < 0xa0))
            buf_addc(b, '?');
        else
            buf_add(b, p, n);
    }
}

void buf_add_json(struct buf *b, struct span s)
{
    static const char hex[] = "0123456789abcdef";
    const unsigned char *p = (const unsigned char *)s.p;
    size_t i = 0;
    buf_addc(b, '"');
    while (i < s.n) {
        size_t plain = i;
        while (plain < s.n && p[plain] >= 0x20 && p[plain] < 0x80 && p[plain] != '"' &&
               p[plain] != '\\')
            plain++;
        buf_add(b, s.p + i, plain - i);
        i = plain;
        if (i == s.n)
            break;
        unsigned char c = p[i];
        if (c == '"' || c == '\\') {
            buf_addc(b, '\\');
            buf_addc(b, (char)c);
            i++;
        } else if (c == '\n') {
            buf_adds(b, "\\n");
            i++;
        } else if (c < 0x20) {
            buf_adds(b, "\\u00");
            buf_addc(b, hex[c >> 4]);
            buf_addc(b, hex[c & 15]);
            i++;
        } else {
            size_t n = utf8_len(p + i, s.n - i);
            if (n)
                buf_add(b, s.p + i, n);
            else
                buf_adds(b, "\xef\xbf\xbd");
            i += n ? n : 1;
        }
    }
    buf_addc(b, '"');
}

char *buf_take(struct buf *b)
{
    buf_reserve(b, 0);
    b->p[b->n] = '\0';
    char *p = b->p;
    *b = (struct buf){0};
    return p;
}

struct arena_block {
    struct arena_block *next;
    size_t used, size;
    _Alignas(max_align_t) char bytes[];
};

enum { ARENA_BLOCK = 16 * 1024 };

static struct arena_block *arena_block_new(size_t n)
{
    size_t size = n > ARENA_BLOCK ? n : ARENA_BLOCK;
    struct arena_block *block = xmalloc(sizeof *block + size);
    *block = (struct arena_block){.size = size};
    return block;
}

void *arena_alloc(struct arena *a, size_t n)
{
    enum { ALIGN = _Alignof(max_align_t) };
    assert(n < SIZE_MAX / 2);
    n = (n + ALIGN - 1) / ALIGN * ALIGN;
    if (!a->first)
        a->first = a->current = arena_block_new(n);
    while (a->current->size - a->current->used < n) {
        if (!a->current->next)
            a->current->next = arena_block_new(n);
        a->current = a->current->next;
        a->current->used = 0;
    }
    void *p = a->current->bytes + a->current->used;
    a->current->used += n;
    return p;
}

void *arena_zalloc(struct arena *a, size_t n)
{
    void *p = arena_alloc(a, n);
    memset(p, 0, n);
    return p;
}

struct span arena_copy(struct arena *a, struct span s)
{
    char *p = arena_alloc(a, s.n + 1);
    if (s.n)
        memcpy(p, s.p, s.n);
    p[s.n] = '\0';
    return (struct span){p, s.n};
}

const char *arena_vprintf(struct arena *a, const char *fmt, va_list ap)
{
    cleanup_buf struct buf b = {0};
    buf_vprintf(&b, fmt, ap);
    return arena_copy(a, buf_span(&b)).p;
}

const char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const char *text = arena_vprintf(a, fmt, ap);
    va_end(ap);
    return text;
}

size_t arena_bytes(const struct arena *a)
{
    size_t n = 0;
    for (const struct arena_block *block = a->first; block; block = block->next)
        n += block->size;
    return n;
}

void arena_reset(struct arena *a)
{
    a->current = a->first;
    if (a->first)
        a->first->used = 0;
}

void arena_wipe(struct arena *a)
{
    for (struct arena_block *block = a->first; block; block = block->next)
        explicit_bzero(block->bytes, block->size);
    arena_fini(a);
}

void arena_fini(struct arena *a)
{
    struct arena_block *next;
    for (struct arena_block *block = a->first; block; block = next) {
        next = block->next;
        free(block);
    }
    *a = (struct arena){0};
}
