/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *need(void *p)
{
    if (!p) {
        static const char msg[] = "out of memory\n";
        ssize_t n = write(STDERR_FILENO, msg, sizeof msg - 1);
        (void)n;
        abort();
    }
    return p;
}

void *xmalloc(size_t size)
{
    return need(malloc(size ? size : 1));
}

void *xcalloc(size_t count, size_t size)
{
    return need(calloc(count ? count : 1, size ? size : 1));
}

void *xreallocarray(void *p, size_t count, size_t size)
{
    return need(reallocarray(p, count ? count : 1, size ? size : 1));
}

void *xzalloc_cacheline(size_t size)
{
    enum { LINE = 64 };
    size_t whole = (size + LINE - 1) / LINE * LINE;
    if (whole < size)
        whole = SIZE_MAX; /* overflow: let the allocation fail */
    void *p = need(aligned_alloc(LINE, whole));
    return memset(p, 0, whole);
}

char *xstrdup(const char *s)
{
    return need(strdup(s));
}

char *xmemdup0(const void *p, size_t n)
{
    char *copy = xmalloc(n + 1);
    if (n)
        memcpy(copy, p, n);
    copy[n] = '\0';
    return copy;
}

char *xasprintf(const char *fmt, ...)
{
    va_list ap;
    char *s = NULL;
    va_start(ap, fmt);
    int n = vasprintf(&s, fmt, ap);
    va_end(ap);
    return need(n < 0 ? NULL : s);
}

void mem_grow(void **items, size_t *cap, size_t want, size_t size)
{
    if (want <= *cap)
        return;
    size_t more = *cap + *cap / 2;
    if (more < want)
        more = want;
    if (more < 8)
        more = 8;
    *items = xreallocarray(*items, more, size);
    *cap = more;
}

void mem_wipe(char *s)
{
    if (s)
        explicit_bzero(s, strlen(s));
    free(s);
}

void mem_cleanup_wipe(char **s)
{
    mem_wipe(*s);
    *s = NULL;
}

void mem_cleanup_free(void *pp)
{
    void **p = pp;
    free(*p);
    *p = NULL;
}

void mem_cleanup_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}
