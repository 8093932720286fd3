/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/alloc_priv.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

enum {
    RETRY_MS = 100, /* between two looks at the kubelet while news are waited for */
    PRESS_MS = 1000,
};

enum verdict ask_say(struct ask *ask, enum verdict verdict, enum alloc_refusal why,
                     const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(ask->text, sizeof ask->text, fmt, ap);
    va_end(ap);
    ask->why = why;
    return verdict;
}

void ask_free(struct ask *ask)
{
    struct arena arena = ask->arena;
    free(ask);
    arena_fini(&arena);
}

/* The answer was given. */
static void finish(struct alloc *a, struct ask *ask)
{
    struct ask **at = &a->asks;
    while (*at != ask)
        at = &(*at)->next;
    *at = ask->next;
    ask_free(ask);
}

static struct alloc_output *answer(struct alloc_outputs *out, const struct ask *ask,
                                   enum alloc_output_type type)
{
    struct alloc_output *o = alloc_out_add(out, type);
    o->token = ask->token;
    return o;
}

const char *alloc_ask_name(enum alloc_ask_type type)
{
    static const char *const names[ALLOC_ASKS] = {"GetPreferredAllocation", "Allocate",
                                                  "PreStartContainer"};
    return names[type];
}

/* With --legacy-no-gpu-env a refusal is a success that names no card, and a preference
 * for nothing in particular. */
static void answer_refusal(struct alloc *a, const struct ask *ask,
                           struct alloc_outputs *out)
{
    bool legacy = a->settings.legacy_env && ask->type != ALLOC_ASK_START;
    if (!legacy) {
        const char *text = alloc_out_text(out, span_of(ask->text));
        struct alloc_output *o = answer(out, ask, ALLOC_REFUSED);
        o->refusal = ask->why;
        o->text = text;
    } else if (ask->type == ALLOC_ASK_PREFER) {
        answer(out, ask, ALLOC_PREFERRED);
    } else {
        const struct response *r =
            response_without(&a->settings.response, ask->size, &out->arena);
        answer(out, ask, ALLOC_GRANTED)->response = r;
    }
}

static void refuse(struct alloc *a, struct ask *ask, struct pupil *p,
                   struct alloc_outputs *out)
{
    a->stats.refused[ask->why]++;
    alloc_out_note(out, LOG_WARN, "%s of %lld %s refused (%s): %s",
                   alloc_ask_name(ask->type), (long long)ask->size,
                   ids_resource_name(ask->resource), alloc_refusal_name(ask->why),
                   ask->text);
    if (p) {
        p->refused_era = a->era;
        who_met(a, p->plan, ask->serial);
        alloc_out_event(out, p->plan, "GPURefused",
                        alloc_out_text(out, span_of(ask->text)));
    }
    answer_refusal(a, ask, out);
    if (ask->type == ALLOC_ASK_ALLOCATE)
        a->offer.valid = false;
    finish(a, ask);
}

/* A watch whose connection has died is silent for a long time: a list is a new one. */
static void wait_for_news(struct alloc *a, struct alloc_time now, struct ask *ask,
                          struct alloc_outputs *out)
{
    if (!ask->waited)
        a->stats.waited++;
    ask->waited = true;
    if (!ask->pressed && now.mono_ms - ask->began_ms >= PRESS_MS &&
        ask->why != REFUSED_KUBELET) {
        ask->pressed = true;
        alloc_out_add(out, ALLOC_NEWS);
    }
    ask->state = ASK_WAITING;
    ask->retry_ms = now.mono_ms + RETRY_MS;
    alloc_hurry(a, ask->retry_ms);
}

/* Waits, or refuses when it has waited for long enough. */
static void conclude(struct alloc *a, struct alloc_time now, struct ask *ask,
                     enum verdict v, struct pupil *p, struct alloc_outputs *out)
{
    if (v == VERDICT_WAIT && now.mono_ms < ask->until_ms && !ask->cancelled)
        wait_for_news(a, now, ask, out);
    else
        refuse(a, ask, p, out);
}

static void prefer(struct alloc *a, struct alloc_time now, struct ask *ask,
                   const struct found *f, struct alloc_outputs *out)
{
    struct unit *ids = NULL;
    size_t n = 0;
    enum verdict v = pick_promise(a, ask, f);
    if (v == VERDICT_YES)
        v = pick_ids(a, ask, f, &ids, &n);
    if (v != VERDICT_YES) {
        conclude(a, now, ask, v, f->pupil, out);
        return;
    }
    const char **texts = arena_alloc(&out->arena, n * sizeof *texts);
    for (size_t i = 0; i < n; i++) {
        cleanup_buf struct buf b = {0};
        alloc_out_id(&b, &ids[i]);
        texts[i] = alloc_out_text(out, buf_span(&b));
    }
    struct alloc_output *o = answer(out, ask, ALLOC_PREFERRED);
    o->ids = texts;
    o->n_ids = n;
    a->offer = (struct offer){
        .valid = true, .resource = ask->resource, .container = f->container};
    snprintf(a->offer.uid, sizeof a->offer.uid, "%.*s", SPAN_ARG(f->pupil->plan->uid));
    finish(a, ask);
}

static void allocate(struct alloc *a, struct alloc_time now, struct ask *ask,
                     const struct found *f, struct alloc_outputs *out)
{
    enum verdict v = pick_promise(a, ask, f);
    if (v == VERDICT_YES)
        v = pick_check(a, ask, f);
    if (v != VERDICT_YES) {
        conclude(a, now, ask, v, f->pupil, out);
        return;
    }
    a->offer.valid = false;
    grant_ask(a, now, ask, f, out);
    finish(a, ask);
}

/* What was offered just before. Only without an offer may it be ids that an init
 * container of the pod had. */
static bool find_for_allocate(struct alloc *a, const struct ask *ask, struct found *f)
{
    const struct offer *o = &a->offer;
    if (!o->valid)
        return who_reuses(a, ask, f);
    if (o->resource != ask->resource)
        return false;
    f->pupil = pupil_find(a, span_of(o->uid));
    f->container = o->container;
    return f->pupil && f->container < f->pupil->plan->n_containers;
}

static void look(struct alloc *a, struct ask *ask, struct alloc_output *o)
{
    o->query = ask->query = ++a->queries;
    ask->state = ASK_LOOKING;
}

static void try_prefer(struct alloc *a, struct ask *ask, struct alloc_outputs *out)
{
    look(a, ask, alloc_out_add(out, ALLOC_LIST));
}

static void try_allocate(struct alloc *a, struct alloc_time now, struct ask *ask,
                         struct alloc_outputs *out)
{
    struct found f = {0};
    enum verdict v = VERDICT_NO;
    if (!find_for_allocate(a, ask, &f)) {
        ask_say(ask, v, REFUSED_NOT_OFFERED,
                "the kubelet did not ask for a preference before, so that it cannot be "
                "told for which pod this is");
        conclude(a, now, ask, v, NULL, out);
    } else if (a->no_get || ask->get_done) {
        allocate(a, now, ask, &f, out);
    } else {
        const char *ns = alloc_out_text(out, f.pupil->plan->ns);
        const char *name = alloc_out_text(out, f.pupil->plan->name);
        struct alloc_output *o = alloc_out_add(out, ALLOC_GET);
        o->ns = ns;
        o->name = name;
        look(a, ask, o);
    }
}

/* A container may start when somebody was granted all of its ids. */
static void try_start(struct alloc *a, struct alloc_time now, struct ask *ask,
                      struct alloc_outputs *out)
{
    for (size_t i = 0; i < a->grants.n; i++) {
        const struct grant *g = a->grants.items[i];
        size_t k = 0;
        while (k < ask->n_ids &&
               grant_holds(g, span_of(ask->ids[k].card->uuid), ask->ids[k].number))
            k++;
        if (g->resource == ask->resource && k == ask->n_ids && !ask->n_unknown) {
            answer(out, ask, ALLOC_STARTED);
            finish(a, ask);
            return;
        }
    }
    ask_say(ask, VERDICT_NO, REFUSED_NOT_OFFERED, "these ids were granted to nobody");
    conclude(a, now, ask, VERDICT_NO, NULL, out);
}

static void try(struct alloc *a, struct alloc_time now, struct ask *ask,
                struct alloc_outputs *out)
{
    ask->news = a->news;
    if (ask->type == ALLOC_ASK_START) {
        try_start(a, now, ask, out);
    } else if (ask->n_unknown) {
        ask_say(ask, VERDICT_NO, REFUSED_UNKNOWN_ID, "%s is no id of this node's cards",
                ask->unknown);
        conclude(a, now, ask, VERDICT_NO, NULL, out);
    } else if (ask->type == ALLOC_ASK_PREFER) {
        try_prefer(a, ask, out);
    } else {
        try_allocate(a, now, ask, out);
    }
}

/* The pod must be there, and lack this container: what was true when the preference was
 * given is true still. */
static void shown_to_allocate(struct alloc *a, struct alloc_time now, struct ask *ask,
                              const struct alloc_shown *shown, struct alloc_outputs *out)
{
    struct found f;
    size_t next = 0;
    enum verdict v = VERDICT_YES;
    if (!find_for_allocate(a, ask, &f)) {
        try_allocate(a, now, ask, out); /* the pod has gone meanwhile */
        return;
    }
    const struct plan *plan = f.pupil->plan;
    if (shown->n_pods == 0)
        v = ask_say(ask, VERDICT_WAIT, REFUSED_NO_POD,
                    "the kubelet does not have pod %.*s/%.*s any more",
                    SPAN_ARG(plan->ns), SPAN_ARG(plan->name));
    else if (!who_lacks(a, f.pupil, shown->pods, &next) || next != f.container)
        v = ask_say(ask, VERDICT_WAIT, REFUSED_NO_POD,
                    "it is not container %.*s of pod %.*s/%.*s that the kubelet shows "
                    "without ids",
                    SPAN_ARG(plan->containers[f.container].name), SPAN_ARG(plan->ns),
                    SPAN_ARG(plan->name));
    if (v != VERDICT_YES) {
        conclude(a, now, ask, v, NULL, out);
        return;
    }
    ask->get_done = true;
    allocate(a, now, ask, &f, out);
}

void ask_shown(struct alloc *a, struct alloc_time now, struct ask *ask,
               const struct alloc_shown *shown, struct alloc_outputs *out)
{
    struct found f = {0};
    ask->query = 0;
    if (shown->err && shown->unsupported && ask->type == ALLOC_ASK_ALLOCATE) {
        a->no_get = true;
        try_allocate(a, now, ask, out);
    } else if (shown->err) {
        enum verdict v =
            ask_say(ask, VERDICT_WAIT, REFUSED_KUBELET,
                    "the kubelet's podresources service: %s", shown->err->msg);
        conclude(a, now, ask, v, NULL, out);
    } else if (ask->type == ALLOC_ASK_ALLOCATE) {
        shown_to_allocate(a, now, ask, shown, out);
    } else {
        audit_shown(a, now, shown, true, out);
        enum verdict v = who_of_list(a, now.mono_ms, ask, shown, &f);
        if (v == VERDICT_YES)
            prefer(a, now, ask, &f, out);
        else
            conclude(a, now, ask, v, NULL, out);
    }
    alloc_out_save(a, out);
}

/* Something was heard that those who wait may have waited for. */
void ask_retry_all(struct alloc *a, struct alloc_time now, struct alloc_outputs *out)
{
    for (struct ask *ask = a->asks, *next; ask; ask = next) {
        next = ask->next;
        if (ask->state == ASK_WAITING)
            try(a, now, ask, out);
    }
}

void ask_tick(struct alloc *a, struct alloc_time now, struct alloc_outputs *out)
{
    for (struct ask *ask = a->asks, *next; ask; ask = next) {
        next = ask->next;
        if (ask->state == ASK_WAITING && now.mono_ms >= ask->retry_ms)
            try(a, now, ask, out);
        else if (ask->state == ASK_WAITING)
            alloc_hurry(a, ask->retry_ms);
    }
}

static void read_ids(struct alloc *a, struct ask *to, const struct span *ids, size_t n,
                     struct unit **units, size_t *n_units)
{
    *units = arena_alloc(&to->arena, n * sizeof **units);
    for (size_t i = 0; i < n; i++) {
        if (read_unit(a, to->resource, ids[i], &(*units)[*n_units])) {
            ++*n_units;
        } else if (to->n_unknown++ == 0) {
            snprintf(to->unknown, sizeof to->unknown, "\"%.*s\"",
                     ids[i].n < 60 ? (int)ids[i].n : 60, ids[i].p);
        }
    }
}

void alloc_ask(struct alloc *a, struct alloc_time now, const struct alloc_ask *in,
               struct alloc_outputs *out)
{
    struct ask *ask = xcalloc(1, sizeof *ask), **at = &a->asks;
    ask->type = in->type;
    ask->resource = in->resource;
    ask->token = in->token;
    ask->serial = ++a->serial;
    ask->began_ms = now.mono_ms;
    ask->until_ms = now.mono_ms + a->settings.wait_ms;
    read_ids(a, ask, in->ids, in->n_ids, &ask->ids, &ask->n_ids);
    /* Free ids that are not ours (of a card that is not there any more) do not matter;
     * ids that must be taken do. */
    if (in->type == ALLOC_ASK_PREFER)
        ask->n_unknown = 0;
    read_ids(a, ask, in->must, in->n_must, &ask->must, &ask->n_must);
    ask->size = in->type == ALLOC_ASK_PREFER ? in->size : (int64_t)in->n_ids;
    while (*at)
        at = &(*at)->next;
    *at = ask;
    /* One Allocate, and then the next preference: what was offered before is over. */
    if (in->type == ALLOC_ASK_PREFER)
        a->offer.valid = false;
    try(a, now, ask, out);
}

void alloc_cancel(struct alloc *a, struct alloc_time now, uint64_t token,
                  struct alloc_outputs *out)
{
    for (struct ask *ask = a->asks; ask; ask = ask->next) {
        if (ask->token != token)
            continue;
        ask->cancelled = true;
        if (ask->state == ASK_WAITING)
            try(a, now, ask, out);
        return;
    }
}
