/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

/*
 * The functions that gcc calls by itself, also in freestanding code. They are hidden: the
 * program keeps those of its C library.
 */

void *memcpy(void *restrict to, const void *restrict from, size_t n);
void *memmove(void *to, const void *from, size_t n);
void *memset(void *p, int byte, size_t n);
int memcmp(const void *a, const void *b, size_t n);

void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((char *)to)[i] = ((const char *)from)[i];
    return to;
}

void *memmove(void *to, const void *from, size_t n)
{
    if ((char *)to < (const char *)from)
        return memcpy(to, from, n);
    while (n--)
        ((char *)to)[n] = ((const char *)from)[n];
    return to;
}

void *memset(void *p, int byte, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((char *)p)[i] = (char)byte;
    return p;
}

int memcmp(const void *a, const void *b, size_t n)
{
    const unsigned char *x = a, *y = b;
    for (size_t i = 0; i < n; i++)
        if (x[i] != y[i])
            return x[i] - y[i];
    return 0;
}
