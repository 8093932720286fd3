/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/verb_filter_priv.h"

/*
 * The reply of filter. Each name and each reason is followed by a comma;
 * verb_filter_end_reply drops the last one of a list.
 */

enum { BLOCK = 32 }; /* bytes that are copied at once; most names are shorter */

/* Writes "<node>": and leaves the reason to the caller. */
static void begin_reason(const struct verb_filter *f, struct buf *out,
                         const struct verb_candidate *c)
{
    if (f->args->full)
        buf_add_json(out, c->name);
    else
        buf_add_span(out, c->raw);
}

void verb_filter_explain(struct verb_filter *f, struct buf *out,
                         const struct verb_candidate *c, const struct ledger_node *node,
                         enum fit alone)
{
    begin_reason(f, out, c);
    buf_add_span(out, SPAN(":\""));
    reason_add_prepared(out, &f->reasons, node, alone);
    buf_add_span(out, SPAN("\","));
}

void verb_filter_reject(struct verb_filter *f, struct buf *out,
                        const struct verb_candidate *c, enum reason_class class,
                        const char *text)
{
    f->rejected[class]++;
    if (f->n_fitting)
        return;
    begin_reason(f, out, c);
    buf_addc(out, ':');
    buf_add_json(out, span_of(text));
    buf_addc(out, ',');
}

void verb_filter_answer(struct verb_filter *f, const struct verb_candidate *c)
{
    buf_add_span(f->passed, c->raw);
    buf_addc(f->passed, ',');
}

/* As verb_filter_answer for those that fit, without a branch on that: a name that does not
 * fit is overwritten by the next one. What is longer, such as a whole Node, is not copied in
 * vain. */
static void copy_names(struct verb_filter *f, const struct verb_candidate *c,
                       const bool *fits, size_t n)
{
    struct buf *out = f->passed;
    size_t most = BLOCK;
    for (size_t k = 0; k < n; k++)
        most += c[k].raw.n + 1;
    buf_reserve(out, most);
    char *to = out->p + out->n;
    for (size_t k = 0; k < n; k++) {
        struct span raw = c[k].raw;
        if (raw.n <= BLOCK && f->args->end - raw.p >= BLOCK)
            memcpy(to, raw.p, BLOCK);
        else if (fits[k])
            memcpy(to, raw.p, raw.n);
        to[raw.n] = ',';
        to += (raw.n + 1) & -(size_t)fits[k];
    }
    *to = '\0';
    out->n = (size_t)(to - out->p);
}

/* Without a branch on what fits, too. */
static void collect(struct verb_filter *f, const struct verb_candidate *c,
                    const struct ledger_node *const *nodes, const bool *fits, size_t n)
{
    uint32_t at = (uint32_t)(c - f->args->nodes);
    for (size_t k = 0; k < n; k++) {
        f->nodes[f->n_fitting] = (struct score_node){.node = nodes[k]};
        f->fitting[f->n_fitting] = at + (uint32_t)k;
        f->n_fitting += fits[k];
        f->found &= nodes[k] || !fits[k];
    }
}

void verb_filter_pass(struct verb_filter *f, const struct verb_candidate *c,
                      const struct ledger_node *const *nodes, const bool *fits, size_t n)
{
    if (f->fitting)
        collect(f, c, nodes, fits, n);
    else if (!f->gang)
        copy_names(f, c, fits, n);
    for (size_t k = 0; f->gang && k < n; k++)
        if (fits[k])
            verb_filter_reject(f, f->failed, &c[k], REASON_GANG, f->gang);
}

void verb_filter_begin_reply(const struct verbs_work *w, struct buf *reply)
{
    buf_adds(reply, w->args.full ? "{\"Nodes\":{\"metadata\":{},\"items\":["
                                 : "{\"Nodes\":null,\"NodeNames\":[");
}

static void add_list(struct buf *reply, const struct buf *list)
{
    buf_add(reply, list->p, list->n - (list->n > 0));
}

void verb_filter_end_reply(const struct verbs_work *w, struct buf *reply)
{
    reply->n -= reply->p[reply->n - 1] == ',';
    buf_adds(reply, w->args.full ? "]},\"NodeNames\":null" : "]");
    buf_adds(reply, ",\"FailedNodes\":{");
    add_list(reply, &w->failed);
    buf_adds(reply, "},\"FailedAndUnresolvableNodes\":{");
    add_list(reply, &w->never);
    buf_adds(reply, "},\"Error\":\"\"}");
}
