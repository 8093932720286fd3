/* SPDX-License-Identifier: Apache-2.0 */

/*
 * jread_strings against jread_item: reading an array in batches of strings gives the same
 * items as reading it item by item, and ends at the same byte in the same state. The
 * first byte is the size of a batch; the rest is {"names": [...]} or just the array.
 */

#include "fuzz/fuzz.h"

#include "base/jread.h"

enum { BATCH = 32 };

/* Where the string is in the input. */
static void add(const struct jread *j, const struct jread_str *s, struct buf *found)
{
    fuzz_fail_if(s->p < j->data || s->p + s->n > j->data + j->n,
                 "a string outside the input");
    buf_printf(found, "%td %zu %d;", s->p - j->data, s->n, s->escaped);
}

/* `max` 0: item by item. */
static void read_array(struct jread *j, size_t max, struct buf *found)
{
    struct jread_str names[BATCH];
    size_t n = 0;
    jread_array(j, "array");
    do {
        while (max && (n = jread_strings(j, names, max)) > 0) {
            fuzz_fail_if(n > max, "more strings than requested");
            for (size_t i = 0; i < n; i++)
                add(j, &names[i], found);
        }
        n = jread_item(j);
        bool is_string = n && jread_peek(j) == JREAD_STRING;
        if (n && jread_string(j, "item", names))
            add(j, names, found);
        else if (n && !is_string)
            buf_addc(found, '-');
    } while (n);
}

static void read_all(struct jread *j, size_t max, struct buf *found)
{
    struct jread_str key;
    if (jread_peek(j) != JREAD_OBJECT) {
        read_array(j, max, found);
        return;
    }
    jread_object(j, "object");
    while (jread_member(j, &key))
        read_array(j, max, found);
}

static void compare(const char *p, size_t n, size_t max, bool part)
{
    struct jread one, many;
    cleanup_buf struct buf by_item = {0}, in_batches = {0};
    jread_init(&one, p, n);
    jread_continue(&one, p, n, !part);
    many = one;
    read_all(&one, 0, &by_item);
    read_all(&many, max, &in_batches);
    fuzz_fail_if(one.state != many.state || (one.fault == NULL) != (many.fault == NULL),
                 "in batches, the reader ends in a different state");
    if (one.state == JREAD_OK) {
        fuzz_fail_if(one.pos != many.pos, "in batches, the reader ends elsewhere");
        fuzz_check_same(&by_item, &in_batches, "in batches, the items differ");
    }
    fuzz_fail_if(jread_finish(&one, NULL) != jread_finish(&many, NULL),
                 "in batches, the validity differs");
}

void fuzz_input(struct span in)
{
    size_t max = 1 + fuzz_take(&in) % BATCH;
    compare(in.p, in.n, max, false);
    compare(in.p, in.n, max, true);
    compare(in.p, in.n / 2, max, true);
}
