/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/verbs_priv.h"

#include "extender/told_priv.h"
#include "placement/placement.h"

/*
 * filter. The names of nodes that fit are written as the bytes that came, straight into
 * the reply; those that do not fit go to one of two lists, each with its reason.
 */

struct filter {
    const struct extender_args *args;
    const struct ledger *ledger;
    const struct ledger_node *promised; /* the pod has a promise on that node already */
    struct prepared_reason reasons;
    uint32_t *refused; /* how many nodes, by reason */
    struct buf *passed, *failed, *never;
};

static void add_comma(struct buf *out)
{
    if (out->n && out->p[out->n - 1] != '[' && out->p[out->n - 1] != '{')
        buf_addc(out, ',');
}

/* "<node>":" -- the reason follows, then a quote. */
static void begin_reason(const struct filter *f, struct buf *out,
                         const struct candidate *c)
{
    add_comma(out);
    if (f->args->full)
        buf_add_json(out, c->name);
    else
        buf_add_span(out, c->raw);
    buf_addc(out, ':');
}

static void refuse_text(const struct filter *f, struct buf *out,
                        const struct candidate *c, enum reason_class class,
                        const char *text)
{
    f->refused[class]++;
    begin_reason(f, out, c);
    buf_add_json(out, span_of(text));
}

static void pass(const struct filter *f, const struct candidate *c)
{
    add_comma(f->passed);
    buf_add_span(f->passed, c->raw);
}

/* A pod that holds a promise can only go where it is: its Binding may have taken effect.
 */
static void judge_promised(const struct filter *f, const struct candidate *c)
{
    if (span_eq(f->promised->name, c->name)) {
        pass(f, c);
        return;
    }
    cleanup_buf struct buf why = {0};
    buf_adds(&why, "the pod has a promise on node ");
    buf_add_span(&why, f->promised->name);
    buf_adds(&why, ", and it is not known yet whether it is bound there");
    refuse_text(f, f->failed, c, REASON_PROMISED, why.p);
}

/* `alone`: does it fit as promises stand? */
static void judge(const struct filter *f, const struct candidate *c,
                  const struct ledger_node *node, enum fit alone)
{
    const struct extender_args *args = f->args;
    const struct request *r = &args->request;
    if (!node) {
        refuse_text(f, f->failed, c, REASON_NODE,
                    "nothing is known of this node's GPUs yet");
        return;
    }
    enum fit fit = alone;
    if (alone == FIT_YES && node->has_nominated)
        fit = placement_fit_nominated(node, r, args->pod.priority, args->pod.meta.uid);
    if (fit == FIT_YES) {
        pass(f, c);
        return;
    }
    struct buf *out = fit == FIT_NEVER ? f->never : f->failed;
    f->refused[reason_class_of(node, r, alone)]++;
    begin_reason(f, out, c);
    buf_addc(out, '"');
    reason_add_prepared(out, &f->reasons, node, alone);
    buf_addc(out, '"');
}

static void judge_by_ledger(const struct filter *f)
{
    const struct extender_args *args = f->args;
    for (size_t i = 0; i < args->n; i += MAP_BATCH) {
        const struct ledger_node *nodes[MAP_BATCH];
        size_t n = candidates_find(args, i, f->ledger, nodes);
        enum fit fits[MAP_BATCH] = {FIT_YES};
        for (size_t k = 0; k < n; k++) {
            if (nodes[k])
                fits[k] = placement_fit(nodes[k], &args->request);
            if (fits[k] != FIT_YES) /* a reason is to be written soon */
                __builtin_prefetch((const char *)nodes[k] + LEDGER_LINE);
        }
        for (size_t k = 0; k < n; k++)
            judge(f, &args->nodes[i + k], nodes[k], fits[k]);
    }
}

static void judge_all(const struct filter *f)
{
    const struct extender_args *args = f->args;
    bool asks = args->bad.code == ERR_NONE && args->request.kind != REQUEST_NONE;
    if (!f->promised && !request_fits_anywhere(&args->request)) {
        judge_by_ledger(f);
        return;
    }
    for (size_t i = 0; i < args->n; i++) {
        if (args->bad.code != ERR_NONE)
            refuse_text(f, f->never, &args->nodes[i], REASON_INVALID_REQUEST, args->bad.msg);
        else if (asks && f->promised)
            judge_promised(f, &args->nodes[i]);
        else
            pass(f, &args->nodes[i]);
    }
}

/* Writes the answer up to what passed, and counts. False: nobody has room. */
static bool answer(struct verbs *v, struct work *w, const struct core *core,
                   struct buf *reply)
{
    const struct ledger *ledger = core_ledger(core);
    const struct ledger_pod *known = ledger_pod_find(ledger, w->args.pod.meta.uid);
    uint32_t refused[REASON_CLASSES] = {0};
    struct filter f = {.args = &w->args,
                       .ledger = ledger,
                       .promised = known ? known->node : NULL,
                       .refused = refused,
                       .passed = reply,
                       .failed = &w->failed,
                       .never = &w->never};
    reason_prepare(&f.reasons, &w->args.request);
    buf_adds(reply, w->args.full ? "{\"Nodes\":{\"metadata\":{},\"items\":["
                                 : "{\"Nodes\":null,\"NodeNames\":[");
    size_t before = reply->n;
    judge_all(&f);
    bool room = reply->n > before;
    tally_filter(verbs_tally(v), refused, room);
    return room || f.promised;
}

unsigned verb_filter(struct verbs *v, struct span body, struct buf *reply)
{
    struct work *w = work_take(v);
    const struct core *core;
    unsigned status = verb_begin(v, w, body, reply, &core);
    if (status == 200) {
        bool room = answer(v, w, core, reply);
        store_read_end(verbs_store(v));
        if (!room)
            told_refused(verbs_recorder(v), verbs_store(v), &w->args, w->failed.n > 0);
        buf_adds(reply, w->args.full ? "]},\"NodeNames\":null" : "]");
        buf_adds(reply, ",\"FailedNodes\":{");
        buf_add_span(reply, buf_span(&w->failed));
        buf_adds(reply, "},\"FailedAndUnresolvableNodes\":{");
        buf_add_span(reply, buf_span(&w->never));
        buf_adds(reply, "},\"Error\":\"\"}");
    }
    work_give(v, w);
    return status;
}
