/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Quantities, memory units and the cards of template Nodes, one per line. An accepted value is unchanged by a write
 * and a read with any suffix that divides it. kube-sim, which has a parser of its own,
 * reads the same value and writes it in a form that the extender reads.
 *
 * The permitted differences: the extender rejects fractions, negative values, more digits
 * than 63 bits hold, and exponents beyond 30; kube-sim caps and rounds as an API server
 * does.
 */

#include "fuzz/fuzz.h"

#include "domain/ledger.h"
#include "domain/quantity.h"
#include "kube-sim/sim.h"

static void expect(const struct buf *text, int64_t want)
{
    int64_t value = -1;
    fuzz_fail_if(quantity_read(buf_span(text), &value, NULL) || value != want,
                 "the value changes when written and read");
}

static void check_forms(int64_t value)
{
    static const struct {
        int64_t size;
        const char *suffix;
    } forms[] = {{1, ""},         {1, ".000"},     {1, "e0"},
                 {1000, "k"},     {1000000, "M"},  {1000000000, "G"},
                 {1024, "Ki"},    {1048576, "Mi"}, {1073741824, "Gi"},
                 {1000000, "e6"}, {1000, "000e0"}, {100, "e+2"}};
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        cleanup_buf struct buf text = {0};
        if (value % forms[i].size ||
            (forms[i].suffix[0] == '.' && value > INT64_MAX / 1000))
            continue;
        buf_add_i64(&text, value / forms[i].size);
        buf_adds(&text, forms[i].suffix);
        expect(&text, value);
    }
}

static void check_quantity(struct span text)
{
    static const int64_t billion = 1000000000;
    struct quantity theirs, again;
    cleanup_buf struct buf canonical = {0};
    struct err err = {0};
    int64_t value = -1;
    bool good = quantity_read(text, &value, &err) == 0;
    bool known = sim_quantity_parse(text, &theirs);
    if (!good)
        fuzz_check_error(&err);
    fuzz_fail_if(good ? err.code || value < 0 : value != -1,
                 "neither a value nor an error, or a negative quantity");
    fuzz_fail_if(good && text.n <= 256 && !known,
                 "only the extender accepts the quantity");
    if (good)
        check_forms(value);
    if (!known)
        return;
    bool whole = sim_quantity_is_whole(theirs);
    int64_t theirs_whole = (int64_t)(theirs.nano / billion);
    fuzz_fail_if(good && (!whole || theirs_whole != value),
                 "kube-sim reads a different value");
    sim_quantity_format(theirs, &canonical);
    fuzz_fail_if(!sim_quantity_parse(buf_span(&canonical), &again) ||
                     theirs.nano != again.nano,
                 "kube-sim writes a different value than it has read");
    if (whole && theirs.nano >= 0)
        expect(&canonical, theirs_whole);
}

static void check_unit(struct span text)
{
    cleanup_buf struct buf out = {0};
    int64_t mib, again;
    if (quantity_read_unit(text, &mib, NULL))
        return;
    fuzz_fail_if(mib < 1 || mib > 1 << 20, "a unit out of bounds");
    quantity_write_unit(&out, mib);
    fuzz_fail_if(quantity_read_unit(buf_span(&out), &again, NULL) || again != mib,
                 "the unit changes when written and read");
}

/* There is one way to write them. */
static void check_cards(struct span text)
{
    cleanup_buf struct buf out = {0};
    struct node_cards cards;
    if (node_cards_parse(text, &cards, NULL))
        return;
    buf_printf(&out, "%ux%lldMiB", cards.n, (long long)cards.mib);
    fuzz_fail_if(!span_eq(buf_span(&out), text), "another text names the same cards");
}

void fuzz_input(struct span in)
{
    while (in.n) {
        struct span line = span_cut(&in, '\n');
        check_quantity(line);
        check_unit(line);
        check_cards(line);
    }
}
