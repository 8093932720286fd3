/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/card_uuid.h"

#include <stdlib.h>

#include "base/mem.h"

/* The first byte; after it comes the UUID, or a pointer. */
enum form { EMPTY, CANONICAL, ON_HEAP };

struct heap_text {
    size_t n;
    char text[];
};

#define PREFIX "GPU-"
enum { PREFIX_BYTES = sizeof PREFIX - 1, UUID_BYTES = 16 };
_Static_assert(CARD_UUID_BYTES == 1 + UUID_BYTES, "the form and the UUID");

/* Bytes of the UUID between two hyphens. */
static const unsigned char groups[] = {4, 2, 2, 2, 6};

/* -1: no lower-case digit. */
static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool pack(struct span text, unsigned char out[UUID_BYTES])
{
    if (text.n != CARD_UUID_TEXT || !span_starts(text, SPAN(PREFIX)))
        return false;
    const char *p = text.p + PREFIX_BYTES;
    for (size_t g = 0; g < ARRAY_LEN(groups); g++) {
        if (g && *p++ != '-')
            return false;
        for (size_t i = 0; i < groups[g]; i++, p += 2) {
            int high = digit_of(p[0]), low = digit_of(p[1]);
            if (high < 0 || low < 0)
                return false;
            *out++ = (unsigned char)(high << 4 | low);
        }
    }
    return true;
}

struct card_uuid card_uuid_of(struct span text)
{
    struct card_uuid uuid = {{EMPTY}};
    if (!text.n)
        return uuid;
    uuid.bytes[0] = CANONICAL;
    if (pack(text, uuid.bytes + 1))
        return uuid;
    struct heap_text *heap = xmalloc(sizeof *heap + text.n);
    heap->n = text.n;
    memcpy(heap->text, text.p, text.n);
    uuid.bytes[0] = ON_HEAP;
    memcpy(uuid.bytes + 1, &heap, sizeof heap);
    return uuid;
}

static struct heap_text *heap_of(const struct card_uuid *uuid)
{
    struct heap_text *heap;
    memcpy(&heap, uuid->bytes + 1, sizeof heap);
    return heap;
}

void card_uuid_fini(struct card_uuid *uuid)
{
    if (uuid->bytes[0] == ON_HEAP)
        free(heap_of(uuid));
    *uuid = (struct card_uuid){{EMPTY}};
}

struct span card_uuid_text(const struct card_uuid *uuid, char text[CARD_UUID_TEXT])
{
    static const char digits[] = "0123456789abcdef";
    if (uuid->bytes[0] == EMPTY)
        return (struct span){0};
    if (uuid->bytes[0] == ON_HEAP)
        return (struct span){heap_of(uuid)->text, heap_of(uuid)->n};
    memcpy(text, PREFIX, PREFIX_BYTES);
    char *p = text + PREFIX_BYTES;
    const unsigned char *byte = uuid->bytes + 1;
    for (size_t g = 0; g < ARRAY_LEN(groups); g++) {
        if (g)
            *p++ = '-';
        for (size_t i = 0; i < groups[g]; i++, byte++) {
            *p++ = digits[*byte >> 4];
            *p++ = digits[*byte & 15];
        }
    }
    return (struct span){text, CARD_UUID_TEXT};
}
