/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The device plugin's state file. Rejected input has an error text and changes nothing.
 * Accepted input is consistent (no container twice, units ascending and within bounds,
 * whole cards without units, within the size limits) and survives a write and a read.
 */

#include "fuzz/fuzz.h"

#include "base/mem.h"
#include "node/allocation.h"

static const struct span node = SPAN("n1");

static void check_card(const struct allocation *al, const struct allocation_card *c)
{
    if (!c->uuid.n)
        fuzz_fail("a card without a name");
    if (al->resource == IDS_COUNT && c->n_units)
        fuzz_fail("a whole card with units");
    for (size_t i = 0; i < c->n_units; i++)
        if (c->units[i] >= IDS_UNITS_MAX || (i && c->units[i] <= c->units[i - 1]))
            fuzz_fail("units that do not rise, or too large");
}

static void check(const struct allocation_set *set)
{
    int64_t units = 0;
    if (set->n > ALLOCATION_SET_MAX)
        fuzz_fail("too many allocations");
    for (size_t i = 0; i < set->n; i++) {
        const struct allocation *al = set->items[i];
        if (!al->uid.n)
            fuzz_fail("an allocation without a pod");
        if (allocation_set_find(set, al->uid, al->container, al->resource) != al)
            fuzz_fail("a container has two allocations");
        for (size_t k = 0; k < al->n_cards; k++) {
            check_card(al, &al->cards[k]);
            if (allocation_card(al, al->cards[k].uuid) != &al->cards[k])
                fuzz_fail("a duplicate card");
        }
        units += allocation_amount(al);
    }
    if (units > ALLOCATION_SET_UNITS_MAX)
        fuzz_fail("too many units");
}

static void check_again(const struct allocation_set *set)
{
    cleanup_buf struct buf text = {0}, again = {0};
    struct allocation_set back = {0};
    struct err err;
    allocation_set_write(&text, set, node);
    if (allocation_set_read(&back, buf_span(&text), node, &err))
        fuzz_fail("what was written cannot be read");
    allocation_set_write(&again, &back, node);
    if (!span_eq(buf_span(&text), buf_span(&again)))
        fuzz_fail("written and read again it is not the same");
    allocation_set_fini(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct allocation_set set = {0};
    struct err err = {0};
    if (allocation_set_read(&set, (struct span){(const char *)data, size}, node, &err)) {
        if (set.n)
            fuzz_fail("a rejected file has changed the set");
        if (!err.msg[0] || (err.code != ERR_INVALID && err.code != ERR_CONFLICT))
            fuzz_fail("an error without text, or of another kind");
    } else {
        check(&set);
        check_again(&set);
    }
    allocation_set_fini(&set);
    return 0;
}
