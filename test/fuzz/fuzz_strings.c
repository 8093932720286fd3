/* SPDX-License-Identifier: Apache-2.0 */

/*
 * jread_strings against jread_item: reading an array in batches of strings gives the same
 * items as reading it item by item, and ends at the same byte in the same state. The
 * first byte is the size of a batch; the rest is {"names": [...]} or just the array.
 */

#include "fuzz/fuzz.h"

#include <stdlib.h>

#include "base/jread.h"
#include "base/mem.h"

enum { BATCH = 32 };

struct item {
    const char *p; /* NULL: not a string */
    size_t n;
    bool escaped;
};

struct items {
    struct item *items;
    size_t n, cap;
};

static void add(struct items *list, const struct jread_str *s)
{
    MEM_GROW(list->items, list->cap, list->n + 1);
    list->items[list->n++] = s ? (struct item){s->p, s->n, s->escaped} : (struct item){0};
}

static void add_value(struct jread *j, struct items *list)
{
    struct jread_str s;
    bool is_string = jread_peek(j) == JREAD_STRING;
    if (jread_string(j, "item", &s))
        add(list, &s);
    else if (!is_string)
        add(list, NULL);
}

static void read_by_item(struct jread *j, struct items *list)
{
    jread_array(j, "array");
    while (jread_item(j))
        add_value(j, list);
}

static void read_many(struct jread *j, size_t max, struct items *list)
{
    struct jread_str names[BATCH];
    bool more;
    jread_array(j, "array");
    do {
        size_t n;
        while ((n = jread_strings(j, names, max)) > 0) {
            if (n > max)
                fuzz_fail("more strings than requested");
            for (size_t i = 0; i < n; i++)
                add(list, &names[i]);
        }
        more = jread_item(j);
        if (more)
            add_value(j, list);
    } while (more);
}

static void read_all(struct jread *j, size_t max, struct items *list)
{
    struct jread_str key;
    if (jread_peek(j) != JREAD_OBJECT) {
        max ? read_many(j, max, list) : read_by_item(j, list);
        return;
    }
    jread_object(j, "object");
    while (jread_member(j, &key))
        max ? read_many(j, max, list) : read_by_item(j, list);
}

static void compare(const char *p, size_t n, size_t max, bool part)
{
    struct jread one, many;
    struct items by_item = {0}, by_many = {0};
    part ? jread_init_partial(&one, p, n) : jread_init(&one, p, n);
    many = one;
    read_all(&one, 0, &by_item);
    read_all(&many, max, &by_many);
    if (one.state != many.state || (one.fault == NULL) != (many.fault == NULL))
        fuzz_fail("in batches, the reader ends in a different state");
    if (one.state == JREAD_OK && one.pos != many.pos)
        fuzz_fail("in batches, the reader ends at a different byte");
    if (one.state == JREAD_OK && by_item.n != by_many.n)
        fuzz_fail("in batches, the number of items differs");
    for (size_t i = 0; i < by_item.n && i < by_many.n; i++) {
        struct item a = by_item.items[i], b = by_many.items[i];
        if (a.p != b.p || a.n != b.n || a.escaped != b.escaped)
            fuzz_fail("in batches, an item differs");
        if (a.p && (a.p < p || a.p + a.n > p + n))
            fuzz_fail("a string outside the input");
    }
    if (jread_finish(&one, NULL) != jread_finish(&many, NULL))
        fuzz_fail("in batches, the validity differs");
    free(by_item.items);
    free(by_many.items);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    size_t max = 1 + data[0] % BATCH;
    const char *p = (const char *)data + 1;
    compare(p, size - 1, max, false);
    compare(p, size - 1, max, true);
    compare(p, (size - 1) / 2, max, true);
    return 0;
}
