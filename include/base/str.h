/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * Byte strings: borrowed (span), growing (buf), and allocated in an arena.
 */

/* Borrowed bytes, not NUL-terminated. {NULL, 0} means absent. */
struct span {
    const char *p;
    size_t n;
};

#define SPAN(literal) ((struct span){"" literal, sizeof(literal) - 1})
/* For printf: "%.*s", SPAN_ARG(s). */
#define SPAN_ARG(s) (int)(s).n, (s).p
/* For printf, the host of an URL or HOST:PORT: STR_HOST ":%u", STR_HOST_ARG(host), port. Puts
 * an IPv6 address in brackets. */
#define STR_HOST        "%s%s%s"
#define STR_HOST_ARG(s) strchr(s, ':') ? "[" : "", s, strchr(s, ':') ? "]" : ""

struct span span_of(const char *s); /* borrowed; NULL gives {NULL, 0} */

static inline bool span_eq(struct span a, struct span b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

/* Ignores the case of ASCII letters. */
bool span_eq_nocase(struct span a, struct span b);
bool span_starts(struct span s, struct span prefix);
bool span_ends(struct span s, struct span suffix);
/* Has s only ASCII letters, digits and the `other` characters? */
bool span_has_only(struct span s, const char *other);
int span_cmp(struct span a, struct span b);     /* byte order, like strcmp */
int span_compare(const void *a, const void *b); /* the same of struct span, for qsort */
struct span span_trim(struct span s); /* without leading and trailing white space */
struct span span_clip(struct span s,
                      size_t max); /* at most max bytes, whole characters */
/* Cuts *rest at the first `sep`: returns the part before it and sets *rest to the part
 * after it. Without a `sep`, returns all and sets *rest to {NULL, 0}. */
struct span span_cut(struct span *rest, char sep);
/* Parses all of s as a decimal integer with an optional '-'. False if it is not one, or
 * out of range. */
bool span_i64(struct span s, int64_t *value);

/* Copies s to *at, without a NUL, and sets *at to the end of the copy, which it returns:
 * for texts in one block with the struct that names them. */
static inline struct span span_put(struct span s, char **at)
{
    struct span copy = {*at, s.n};
    if (s.n)
        memcpy(*at, s.p, s.n);
    *at += s.n;
    return copy;
}

/* Writes a number in decimal, at most STR_U64 bytes, without a NUL. Returns its end. */
enum { STR_U64 = 20 };
char *str_put_u64(char *to, uint64_t value);

/* A growing byte string. {0} is an empty one; buf_fini releases it. */
struct buf {
    char *p; /* NUL-terminated after the first append; NULL before */
    size_t n;
    size_t cap;
};

void buf_fini(struct buf *b);
void buf_grow(struct buf *b, size_t more); /* for buf_reserve only */
/* As buf_reserve, without leaving a copy of the content in released memory. */
void buf_reserve_secret(struct buf *b, size_t more);
void buf_wipe(struct buf *b); /* overwrites and releases it */
#define cleanup_buf_wipe __attribute__((cleanup(buf_wipe)))

/* Makes room for `more` bytes and a NUL. */
static inline void buf_reserve(struct buf *b, size_t more)
{
    if (b->cap - b->n <= more)
        buf_grow(b, more);
}

static inline void buf_add(struct buf *b, const void *p, size_t n)
{
    buf_reserve(b, n);
    if (n)
        memcpy(b->p + b->n, p, n);
    b->n += n;
    b->p[b->n] = '\0';
}

static inline void buf_addc(struct buf *b, char c)
{
    buf_reserve(b, 1);
    b->p[b->n++] = c;
    b->p[b->n] = '\0';
}

static inline void buf_adds(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}

static inline void buf_add_span(struct buf *b, struct span s)
{
    buf_add(b, s.p, s.n);
}

/* Replaces the content. */
static inline void buf_set(struct buf *b, struct span s)
{
    b->n = 0;
    buf_add_span(b, s);
}

void buf_add_i64(struct buf *b, int64_t v); /* decimal, without printf */
void buf_printf(struct buf *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *b, const char *fmt, va_list ap);
/* Appends s as a JSON string with quotes; invalid UTF-8 becomes U+FFFD. */
void buf_add_json(struct buf *b, struct span s);
/* Foreign text for a terminal or a log: '?' for each C0 and C1 control character, DEL, and
 * byte that is not UTF-8. */
void buf_add_printable(struct buf *b, struct span s);
char *buf_take(struct buf *b); /* the content as a new string, never NULL; empties b */

static inline void buf_clear(struct buf *b)
{
    b->n = 0;
    if (b->p)
        b->p[0] = '\0';
}

static inline struct span buf_span(const struct buf *b)
{
    return (struct span){b->p, b->n};
}

#define cleanup_buf __attribute__((cleanup(buf_fini)))

/* An arena: allocations are released together. Addresses stay valid until arena_reset,
 * which keeps the blocks for reuse, so that a steady load does not call malloc. {0} is an
 * empty arena. */
struct arena {
    struct arena_block *first, *current;
};

void *arena_alloc(struct arena *a, size_t n); /* aligned for any type; not zeroed */
void *arena_zalloc(struct arena *a, size_t n);
struct span arena_copy(struct arena *a, struct span s); /* NUL-terminated */
const char *arena_vprintf(struct arena *a, const char *fmt, va_list ap);
const char *arena_printf(struct arena *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void arena_reset(struct arena *a);
size_t arena_bytes(const struct arena *a); /* total size of its blocks */
void arena_fini(struct arena *a);
void arena_wipe(struct arena *a); /* overwrites and releases it */
#define cleanup_arena __attribute__((cleanup(arena_fini)))
