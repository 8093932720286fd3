/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A watch or list of any kind against the core. The core never makes an inconsistent
 * promise; the size of the pieces changes neither the inputs nor the ledger; a stream
 * that breaks off gives a prefix of the whole stream's inputs and then reports the
 * failure.
 *
 * The first byte is the kind. Bit 0 of the second byte selects a watch; its other bits
 * are the size of the pieces; the whole byte says where the stream breaks off.
 */

#include "fuzz/fuzz.h"

#include "apisync/apisync.h"
#include "base/mem.h"
#include "core/core.h"

struct world {
    struct core *core;
    struct step_outputs out;
    uint64_t runs[CORE_KINDS];
    struct buf seen; /* the inputs as text, to compare two runs */
    size_t objects;  /* length of `seen` before the end of the stream */
};

static void input(struct world *w, const struct core_input *in)
{
    struct step_time now = {1000000, 1700000000000000000};
    core_step(w->core, now, in, &w->out);
    STEP_EACH(struct core_output, o, &w->out)
    if (o->type == CORE_LIST || o->type == CORE_WATCH)
        w->runs[o->kind] = o->run;
    step_outputs_reset(&w->out);
}

static void note_pod(struct buf *out, const struct pod *p)
{
    buf_printf(out, " %.*s/%.*s %.*s %d %zu", SPAN_ARG(p->meta.ns), SPAN_ARG(p->meta.uid),
               SPAN_ARG(p->node), (int)p->phase, p->n_containers);
    buf_add_span(out, p->allocation);
    buf_add_span(out, p->card_uuid);
}

static void note_object(struct buf *out, const struct core_input *in)
{
    const struct object_meta *meta = NULL;
    switch (in->kind) {
    case CORE_NODES:
        meta = &in->node->meta;
        break;
    case CORE_PODS:
        meta = &in->pod->meta;
        note_pod(out, in->pod);
        break;
    case CORE_SCVS:
        meta = &in->scv->meta;
        buf_printf(out, " %zu %d", in->scv->n_cards, in->scv->damaged);
        break;
    case CORE_LEASES:
        meta = &in->lease->meta;
        buf_add_span(out, in->lease->renew_time);
        break;
    default:
        meta = &in->unhealthy->meta;
        buf_printf(out, " %zu %d", in->unhealthy->n, in->unhealthy->damaged);
    }
    buf_printf(out, " %.*s", SPAN_ARG(meta->name));
}

static void on_input(void *ctx, const struct core_input *in)
{
    struct world *w = ctx;
    buf_printf(&w->seen, "%d %d %d %.*s", (int)in->type, (int)in->kind, in->deleted,
               SPAN_ARG(in->version));
    if (in->type == CORE_OBJECT)
        note_object(&w->seen, in);
    if (in->type == CORE_LIST_FAILED || in->type == CORE_WATCH_ENDED)
        buf_printf(&w->seen, " %d", in->err ? (int)in->err->code : -1);
    buf_addc(&w->seen, '\n');
    input(w, in);
}

static void on_fault(void *ctx, const struct err *err)
{
    struct world *w = ctx;
    if (err->code != ERR_INVALID || !err->msg[0])
        fuzz_fail("an error without text");
    buf_adds(&w->seen, "fault\n");
}

static const struct apisync_sink sink = {.input = on_input, .fault = on_fault};

static void start(struct world *w)
{
    struct core_settings settings = {.ledger = {1024, 1024, false},
                                     .identity = "me",
                                     .lease_namespace = "kube-system",
                                     .lease_name = "l"};
    *w = (struct world){.core = core_new(&settings)};
    input(w, &(struct core_input){.type = CORE_TICK});
}

/* `broken` is NULL for a stream that ends normally. */
static void run(struct world *w, int kind, bool watch, struct span bytes, size_t piece,
                const struct err *broken)
{
    const char *p = bytes.p;
    size_t n = bytes.n;
    struct apisync f;
    bool go_on = true;
    apisync_start(&f, (enum core_kind)kind, watch, w->runs[kind], SPAN("1"), &sink, w);
    list_watch_begin(&f.in, 200, -1);
    for (size_t at = 0; at < n && go_on; at += piece)
        go_on = list_watch_data(&f.in, p + at, n - at < piece ? n - at : piece);
    w->objects = w->seen.n;
    if (!apisync_end(&f, broken) && w->seen.n == w->objects)
        fuzz_fail("the end of a stream is not reported");
    apisync_fini(&f);
}

/* A short form of the ledger, to compare two of them. */
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
    for (const struct ledger_pod *p = ledger_first_pod(l); p; p = ledger_next_pod(l, p))
        buf_printf(out, "%.*s %d %u\n", SPAN_ARG(p->uid), p->node != NULL, p->n_shares);
}

static void finish(struct world *w)
{
    core_free(w->core);
    step_outputs_fini(&w->out);
    buf_fini(&w->seen);
}

static void check_pieces(const struct world *whole, int kind, bool watch,
                         struct span bytes, size_t piece)
{
    struct world w;
    cleanup_buf struct buf ledger = {0}, other = {0};
    start(&w);
    run(&w, kind, watch, bytes, piece, NULL);
    digest(whole, &ledger);
    digest(&w, &other);
    if (!span_eq(buf_span(&whole->seen), buf_span(&w.seen)))
        fuzz_fail("the size of the pieces changes the inputs");
    if (!span_eq(buf_span(&ledger), buf_span(&other)))
        fuzz_fail("the size of the pieces changes the ledger");
    finish(&w);
}

static void check_broken(const struct world *whole, int kind, bool watch,
                         struct span bytes, size_t piece)
{
    static const struct err lost = {ERR_UNAVAILABLE, "the connection was lost"};
    struct world w;
    start(&w);
    run(&w, kind, watch, bytes, piece, &lost);
    if (w.objects > whole->objects || memcmp(w.seen.p, whole->seen.p, w.objects) != 0)
        fuzz_fail("the inputs of a truncated stream are no prefix");
    if (w.seen.p[w.objects] != (watch ? '0' + CORE_WATCH_ENDED : '0' + CORE_LIST_FAILED))
        fuzz_fail("a truncated stream is taken for a complete one");
    finish(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    int kind = data[0] % CORE_KINDS;
    bool watch = data[1] & 1;
    struct span bytes = {(const char *)data + 2, size - 2};
    struct span first = {bytes.p, bytes.n * data[1] / 256};
    struct world whole;
    start(&whole);
    run(&whole, kind, watch, bytes, bytes.n + 1, NULL);
    buf_reserve(&whole.seen, 0);
    check_pieces(&whole, kind, watch, bytes, 7);
    check_pieces(&whole, kind, watch, bytes, 1 + (data[1] >> 1));
    check_broken(&whole, kind, watch, first, 1 + (data[1] >> 1));
    finish(&whole);
    return 0;
}
