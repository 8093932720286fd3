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
#include "base/jwrite.h"
#include "view/inspect.h"

static struct {
    enum core_kind kind;
    bool watch;
    struct core *core;
    uint64_t runs[CORE_KINDS];
    struct buf *seen; /* the inputs as text */
} w;

static void input(const struct core_input *in)
{
    struct step_outputs out = {0};
    core_step(w.core, (struct step_time){1000000, 1700000000000000000}, in, &out);
    STEP_EACH(struct core_output, o, &out)
    if (o->type == CORE_LIST || o->type == CORE_WATCH)
        w.runs[o->kind] = o->run;
    step_outputs_fini(&out);
}

static void note_object(struct buf *out, const struct core_input *in)
{
    const struct object_meta *meta = NULL;
    const struct pod *p = in->pod;
    switch (in->kind) {
    case CORE_NODES:
        meta = &in->node->meta;
        break;
    case CORE_PODS:
        meta = &p->meta;
        buf_printf(out, " %.*s/%.*s %.*s %d %zu%.*s%.*s", SPAN_ARG(p->meta.ns),
                   SPAN_ARG(p->meta.uid), SPAN_ARG(p->node), (int)p->phase,
                   p->n_containers, SPAN_ARG(p->allocation), SPAN_ARG(p->card_uuid));
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
    (void)ctx;
    buf_printf(w.seen, "%d %d %d %.*s", (int)in->type, (int)in->kind, in->deleted,
               SPAN_ARG(in->version));
    if (in->type == CORE_OBJECT)
        note_object(w.seen, in);
    if (in->type == CORE_LIST_FAILED || in->type == CORE_WATCH_ENDED)
        buf_printf(w.seen, " %d", in->err ? (int)in->err->code : -1);
    buf_addc(w.seen, '\n');
    input(in);
}

static void on_fault(void *ctx, const struct err *err)
{
    (void)ctx;
    fuzz_check_error(err);
    fuzz_fail_if(err->code != ERR_INVALID, "a fault of another kind");
    buf_adds(w.seen, "fault\n");
}

/* Gives the inputs, and after them the ledger. */
static void read_stream(struct span in, size_t piece, bool broken,
                        struct fuzz_result *out)
{
    static const struct apisync_sink sink = {.input = on_input, .fault = on_fault};
    static const struct err lost = {ERR_UNAVAILABLE, "the connection was lost"};
    struct apisync f;
    bool go_on = true;
    w.core = core_new(&(struct core_settings){
        .ledger = {.unit_mib = 1024, .external_tolerance_mib = 1024},
        .identity = "me",
        .lease_namespace = "kube-system",
        .lease_name = "l"});
    w.seen = &out->text;
    buf_adds(w.seen, "");
    input(&(struct core_input){.type = CORE_TICK});
    apisync_start(&f, w.kind, w.watch, w.runs[w.kind], SPAN("1"), &sink, NULL);
    list_watch_begin(&f.in, 200, -1);
    while (in.n && go_on) {
        struct span part = fuzz_cut(&in, piece);
        go_on = list_watch_data(&f.in, part.p, part.n);
    }
    out->before_end = w.seen->n;
    bool more = apisync_end(&f, broken ? &lost : NULL);
    const char *end = w.seen->p + out->before_end;
    fuzz_fail_if(!more && !*end, "the end of a stream is not reported");
    fuzz_fail_if(broken && *end != '0' + (w.watch ? CORE_WATCH_ENDED : CORE_LIST_FAILED),
                 "a truncated stream is taken for a complete one");
    apisync_fini(&f);
    const struct ledger *l = core_ledger(w.core);
    for (uint32_t i = 0; i < ledger_node_slots(l); i++)
        if (ledger_node_at(l, i))
            view_inspect_write_node(&(struct jwrite){.out = w.seen}, l,
                                    ledger_node_at(l, i));
    for (const struct ledger_pod *p = ledger_first_pod(l); p; p = ledger_next_pod(l, p))
        buf_printf(w.seen, "%.*s %d\n", SPAN_ARG(p->uid), p->node != NULL);
    core_free(w.core);
}

void fuzz_input(struct span in)
{
    w.kind = (enum core_kind)(fuzz_take(&in) % CORE_KINDS);
    unsigned how = fuzz_take(&in);
    w.watch = how & 1;
    fuzz_stream(read_stream, in, 1 + (how >> 1), (struct span){in.p, in.n * how / 256});
}
