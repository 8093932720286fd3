/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The device plugin's state file: what is refused changes nothing, and says why; what is
 * accepted holds together (no container twice, units rising and within bounds, whole
 * cards without units, no more of it than a node can have), and written and read again it
 * is the same.
 */

#include "fuzz/fuzz.h"

#include "base/mem.h"
#include "plugin/grants.h"

static const struct span node = SPAN("n1");

static void check_card(const struct grant *g, const struct grant_card *c)
{
    if (!c->uuid.n)
        fuzz_fail("a card without a name");
    if (g->resource == IDS_COUNT && c->n_units)
        fuzz_fail("a whole card with units");
    for (size_t i = 0; i < c->n_units; i++)
        if (c->units[i] >= IDS_UNITS_MAX || (i && c->units[i] <= c->units[i - 1]))
            fuzz_fail("units that do not rise, or too large");
}

static void check(const struct grants *gs)
{
    int64_t units = 0;
    if (gs->n > GRANTS_MAX)
        fuzz_fail("too many grants");
    for (size_t i = 0; i < gs->n; i++) {
        const struct grant *g = gs->items[i];
        if (!g->uid.n)
            fuzz_fail("a grant to no pod");
        if (grants_find(gs, g->uid, g->container, g->resource) != g)
            fuzz_fail("a container has two grants");
        for (size_t k = 0; k < g->n_cards; k++) {
            check_card(g, &g->cards[k]);
            if (grant_card(g, g->cards[k].uuid) != &g->cards[k])
                fuzz_fail("a card comes twice");
        }
        units += grant_amount(g);
    }
    if (units > GRANTS_UNITS_MAX)
        fuzz_fail("too many units");
}

static void check_again(const struct grants *gs)
{
    cleanup_buf struct buf text = {0}, again = {0};
    struct grants back = {0};
    struct err err;
    grants_write(&text, gs, node);
    if (grants_read(&back, buf_span(&text), node, &err))
        fuzz_fail("what was written cannot be read");
    grants_write(&again, &back, node);
    if (!span_eq(buf_span(&text), buf_span(&again)))
        fuzz_fail("written and read again it is not the same");
    /* What is known already is left alone. */
    size_t n = back.n;
    if (grants_read(&back, buf_span(&text), node, &err) || back.n != n)
        fuzz_fail("read twice, it is more");
    grants_fini(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct grants gs = {0};
    struct err err = {0};
    if (grants_read(&gs, (struct span){(const char *)data, size}, node, &err)) {
        if (gs.n)
            fuzz_fail("a file that is refused has left something behind");
        if (!err.msg[0] || (err.code != ERR_INVALID && err.code != ERR_CONFLICT))
            fuzz_fail("an error without words, or of another kind");
    } else {
        check(&gs);
        check_again(&gs);
    }
    grants_fini(&gs);
    return 0;
}
