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

/* What a reader finds in the input p. */
struct seen {
    const char *p;
    size_t n;
    struct buf text;
};

static void add(struct seen *seen, const struct jread_str *s)
{
    if (s && (s->p < seen->p || s->p + s->n > seen->p + seen->n))
        fuzz_fail("a string outside the input");
    buf_printf(&seen->text, "%td %zu %d;", s ? s->p - seen->p : -1, s ? s->n : 0,
               s && s->escaped);
}

static void add_value(struct jread *j, struct seen *seen)
{
    struct jread_str s;
    bool is_string = jread_peek(j) == JREAD_STRING;
    if (jread_string(j, "item", &s))
        add(seen, &s);
    else if (!is_string)
        add(seen, NULL);
}

/* `max` 0: item by item. */
static void read_array(struct jread *j, size_t max, struct seen *seen)
{
    struct jread_str names[BATCH];
    size_t n = 0;
    jread_array(j, "array");
    do {
        while (max && (n = jread_strings(j, names, max)) > 0) {
            if (n > max)
                fuzz_fail("more strings than requested");
            for (size_t i = 0; i < n; i++)
                add(seen, &names[i]);
        }
        n = jread_item(j);
        if (n)
            add_value(j, seen);
    } while (n);
}

static void read_all(struct jread *j, size_t max, struct seen *seen)
{
    struct jread_str key;
    if (jread_peek(j) != JREAD_OBJECT) {
        read_array(j, max, seen);
        return;
    }
    jread_object(j, "object");
    while (jread_member(j, &key))
        read_array(j, max, seen);
}

static void compare(const char *p, size_t n, size_t max, bool part)
{
    struct jread one, many;
    struct seen by_item = {.p = p, .n = n}, by_many = by_item;
    jread_init(&one, p, n);
    jread_continue(&one, p, n, !part);
    many = one;
    read_all(&one, 0, &by_item);
    read_all(&many, max, &by_many);
    if (one.state != many.state || (one.fault == NULL) != (many.fault == NULL))
        fuzz_fail("in batches, the reader ends in a different state");
    if (one.state == JREAD_OK &&
        (one.pos != many.pos ||
         !span_eq(buf_span(&by_item.text), buf_span(&by_many.text))))
        fuzz_fail("in batches, the items differ");
    if (jread_finish(&one, NULL) != jread_finish(&many, NULL))
        fuzz_fail("in batches, the validity differs");
    buf_fini(&by_item.text);
    buf_fini(&by_many.text);
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
