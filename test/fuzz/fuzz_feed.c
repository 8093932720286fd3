/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A watch or list of any kind, cut anywhere, against the core: whatever comes, the core
 * keeps its promises in order, and the same bytes in other pieces give the same ledger.
 */

#include "fuzz/fuzz.h"

#include "base/mem.h"
#include "core/core.h"
#include "extender/feed.h"

struct world {
    struct core *core;
    struct core_outputs out;
    uint64_t runs[CORE_KINDS];
};

static void input(struct world *w, const struct core_input *in)
{
    struct core_time now = {1000000, 1700000000000000000};
    core_step(w->core, now, in, &w->out);
    for (size_t i = 0; i < w->out.n; i++)
        if (w->out.items[i].type == CORE_LIST || w->out.items[i].type == CORE_WATCH)
            w->runs[w->out.items[i].kind] = w->out.items[i].run;
    core_outputs_reset(&w->out);
}

static void on_input(void *ctx, const struct core_input *in)
{
    input(ctx, in);
}

static void on_fault(void *ctx, const struct err *err)
{
    (void)ctx;
    if (err->code != ERR_INVALID || !err->msg[0])
        fuzz_fail("a fault without words");
}

static const struct feed_sink sink = {on_input, on_fault};

static void start(struct world *w)
{
    struct core_settings settings = {.ledger = {1024, 1024, false},
                                     .identity = "me",
                                     .lease_namespace = "kube-system",
                                     .lease_name = "l"};
    *w = (struct world){.core = core_new(&settings)};
    input(w, &(struct core_input){.type = CORE_TICK});
}

static void run(struct world *w, int kind, bool watch, const char *p, size_t n,
                size_t piece)
{
    struct feed f;
    bool go_on = true;
    feed_start(&f, (enum core_kind)kind, watch, w->runs[kind], SPAN("1"), &sink, w);
    feed_begin(&f, 200, -1);
    for (size_t at = 0; at < n && go_on; at += piece)
        go_on = feed_data(&f, p + at, n - at < piece ? n - at : piece);
    feed_end(&f, NULL);
    feed_fini(&f);
}

/* A short form of what the ledger says, to compare two. */
static void digest(const struct world *w, struct buf *out)
{
    const struct ledger *l = core_ledger(w->core);
    for (uint32_t i = 0; i < ledger_node_slots(l); i++) {
        const struct ledger_node *node = ledger_node_at(l, i);
        if (!node)
            continue;
        buf_add_span(out, node->name);
        buf_printf(out, " %d %u %lld\n", (int)node->state, node->n_cards,
                   (long long)node->best_free_mib);
    }
    for (const struct ledger_pod *p = ledger_first_pod(l); p; p = p->next_all)
        buf_printf(out, "%.*s %d %u\n", SPAN_ARG(p->uid), p->node != NULL, p->n_shares);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    int kind = data[0] % CORE_KINDS;
    bool watch = data[1] & 1;
    const char *p = (const char *)data + 2;
    size_t n = size - 2;
    cleanup_buf struct buf whole = {0}, pieces = {0};
    for (int round = 0; round < 2; round++) {
        struct world w;
        start(&w);
        run(&w, kind, watch, p, n, round ? 7 : n + 1);
        digest(&w, round ? &pieces : &whole);
        core_free(w.core);
        core_outputs_fini(&w.out);
    }
    if (!span_eq(buf_span(&whole), buf_span(&pieces)))
        fuzz_fail("in other pieces, the same bytes give another ledger");
    return 0;
}
