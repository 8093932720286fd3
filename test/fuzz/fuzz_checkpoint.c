/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The device plugin's state file. Rejected input has an error text and changes nothing.
 * Accepted input is consistent (no container twice, units ascending and within bounds,
 * whole cards without units, within the size limits) and survives a write and a read.
 */

#include "fuzz/fuzz.h"

#include "node/allocation.h"

static const struct span node = SPAN("n1");

static void check_card(const struct allocation *al, const struct allocation_card *c)
{
    fuzz_fail_if(!c->uuid.n, "a card without a name");
    fuzz_fail_if(al->resource == IDS_COUNT && c->n_units, "a whole card with units");
    for (size_t i = 0; i < c->n_units; i++)
        fuzz_fail_if(c->units[i] >= IDS_UNITS_MAX ||
                         (i && c->units[i] <= c->units[i - 1]),
                     "units that do not rise, or too large");
}

static void check(const struct allocation_set *set)
{
    int64_t units = 0;
    fuzz_fail_if(set->n > ALLOCATION_SET_MAX, "too many allocations");
    for (size_t i = 0; i < set->n; i++) {
        const struct allocation *al = set->items[i];
        fuzz_fail_if(!al->uid.n, "an allocation without a pod");
        fuzz_fail_if(allocation_set_find(set, al->uid, al->container, al->resource) != al,
                     "a container has two allocations");
        for (size_t k = 0; k < al->n_cards; k++) {
            check_card(al, &al->cards[k]);
            fuzz_fail_if(allocation_card(al, al->cards[k].uuid) != &al->cards[k],
                         "a duplicate card");
        }
        units += allocation_amount(al);
    }
    fuzz_fail_if(units > ALLOCATION_SET_UNITS_MAX, "too many units");
}

static void check_again(const struct allocation_set *set)
{
    cleanup_buf struct buf text = {0}, again = {0};
    struct allocation_set back = {0};
    struct err err;
    allocation_set_write(&text, set, node);
    fuzz_fail_if(allocation_set_read(&back, buf_span(&text), node, &err),
                 "what was written cannot be read");
    allocation_set_write(&again, &back, node);
    fuzz_check_same(&text, &again, "written and read again it is not the same");
    allocation_set_fini(&back);
}

void fuzz_input(struct span in)
{
    struct allocation_set set = {0};
    struct err err = {0};
    if (allocation_set_read(&set, in, node, &err)) {
        fuzz_fail_if(set.n, "a rejected file has changed the set");
        fuzz_check_error(&err);
        fuzz_fail_if(err.code != ERR_INVALID && err.code != ERR_CONFLICT,
                     "an error of another kind");
    } else {
        check(&set);
        check_again(&set);
    }
    allocation_set_fini(&set);
}
