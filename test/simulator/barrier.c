/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Checks that no gang starts in part, after each step of a replica. A gang's members and its
 * minimum come from the names of pods, as in scheduler.c; what has arrived of them, from the
 * replica's ledger.
 *
 * - With each Binding of a member, at least the minimum is bound: before, or by this step.
 * - A bind is answered, or its Binding sent, within 10 s of its arrival.
 * - A member that was deleted or terminates is not held, nor is any other of its gang in that
 *   step.
 * - No cards are reserved for a member with gates, and none for one of another scheduler than the
 *   asker's.
 * - Filter answers an error for a member only while others are missing.
 * - While a gang waits, each of its members gets the same text, each time.
 */

enum { HOLD_MS = 10000 };

/* A bind at a replica without an answer. */
struct held {
    uint64_t token;
    char uid[64], name[64];
    int replica;
    int64_t arrived_ms; /* by the replica's clock */
    struct held *next;
};

/* The text for members of a gang while so many of them are there. */
struct gang_text {
    char gang[16];
    struct gang_count count;
    char text[512];
    struct gang_text *next;
};

struct gang_count gang_count(const struct world *w, const struct replica *r,
                             const char *name, const char *uid)
{
    const struct oracle_pod *asker = uid ? oracle_find(w, uid) : NULL;
    struct gang_count c = {.needed = gangs_minimum(w, name)};
    int64_t age_ms = 0;
    bool seen = !uid || !*uid;
    for (const struct ledger_pod *pod = ledger_first_pod(core_ledger(r->core)); pod;
         pod = ledger_next_pod(core_ledger(r->core), pod)) {
        if (!gangs_same(name, pod->name.p) || pod->terminating)
            continue;
        const struct oracle_pod *p = oracle_find(w, pod->uid.p);
        int64_t ms = wall_ms(w) - (int64_t)pod->created_s * 1000;
        age_ms = ms > age_ms ? ms : age_ms;
        c.total++;
        seen |= uid && !strcmp(uid, pod->uid.p);
        if (pod->node)
            c.bound++;
        else if (pod->gated)
            c.gated++;
        else if (p && asker && p->terms.scheduler != asker->terms.scheduler)
            c.foreign++;
    }
    c.total += !seen;
    /* A replica that has just started compares creationTimestamp with its own clock. */
    age_ms += r->wall_off_ms > 0 ? r->wall_off_ms : 0;
    if (age_ms >= GANG_WAIT_MS && c.needed > c.total && !c.gated)
        c.needed = c.total;
    return c;
}

static void forget(struct held **at)
{
    struct held *h = *at;
    *at = h->next;
    free(h);
}

void barrier_crashed(struct world *w, const struct replica *r)
{
    for (struct held **at = &w->held; *at;) {
        uint64_t token = (*at)->token;
        if ((*at)->replica != r->id) {
            at = &(*at)->next;
            continue;
        }
        forget(at);
        if (w->yard) /* the connection of its caller breaks */
            scheduler_lost(w, token);
    }
}

void barrier_free(struct world *w)
{
    while (w->held)
        forget(&w->held);
    for (struct gang_text *t = w->gang_texts, *next; t; t = next) {
        next = t->next;
        free(t);
    }
    w->gang_texts = NULL;
}

bool barrier_holds(const struct world *w, const struct replica *r, const char *uid)
{
    const struct ledger_pod *pod = replica_pod(r, uid);
    const struct held *h = w->held;
    while (h && (h->replica != r->id || strcmp(h->uid, uid) != 0))
        h = h->next;
    return h && gangs_has(h->name) && !(pod && pod->node);
}

/* A pod as the replica knows it. */
static bool is_pending(const struct replica *r, struct span uid)
{
    const struct ledger_pod *pod = ledger_pod_find(core_ledger(r->core), uid);
    return pod && !pod->node && !pod->terminating;
}

void barrier_before(struct world *w, const struct replica *r, const struct core_input *in)
{
    w->was_pending = in->type == CORE_OBJECT && in->kind == CORE_PODS && !in->invalid &&
                     is_pending(r, in->pod->meta.uid);
    if (in->type != CORE_BIND)
        return;
    struct held *h = xcalloc(1, sizeof *h);
    h->token = in->token;
    h->replica = r->id;
    h->arrived_ms = replica_time(w, r).mono_ms;
    snprintf(h->uid, sizeof h->uid, "%.*s", SPAN_ARG(in->uid));
    snprintf(h->name, sizeof h->name, "%.*s", SPAN_ARG(in->name));
    h->next = w->held;
    w->held = h;
}

static void check_binding(struct world *w, const struct replica *r,
                          const struct core_output *o)
{
    const struct ledger_pod *pod = replica_pod(r, o->uid);
    if (!gangs_has(o->name) || !gangs_minimum(w, o->name))
        return;
    struct gang_count c = gang_count(w, r, o->name, NULL);
    w->stats.gangs_started += c.bound == c.needed;
    if (c.bound < c.needed)
        violated(w,
                 "r%d binds %s, and its gang starts in part: %u of %u members are bound, "
                 "%u exist, %u of them with gates",
                 r->id, o->name, c.bound, c.needed, c.total, c.gated);
    if (pod && pod->gated)
        violated(w, "r%d binds %s, which has gates", r->id, o->name);
}

/* The texts of one gang are equal while its members are the same ones. */
static void check_text(struct world *w, const struct replica *r, const char *name,
                       const char *text)
{
    size_t n = strcspn(name, ".");
    struct gang_count c = gang_count(w, r, name, NULL);
    struct gang_text *t = w->gang_texts;
    while (t && (strlen(t->gang) != n || strncmp(t->gang, name, n) != 0))
        t = t->next;
    if (!t) {
        t = xcalloc(1, sizeof *t);
        snprintf(t->gang, sizeof t->gang, "%.*s", (int)n, name);
        t->next = w->gang_texts;
        w->gang_texts = t;
    } else if (!memcmp(&c, &t->count, sizeof c) && strcmp(t->text, text) != 0) {
        violated(w, "r%d answers %s: %s; it answered its gang: %s", r->id, name, text,
                 t->text);
    }
    t->count = c;
    snprintf(t->text, sizeof t->text, "%s", text);
}

/* Filter answers an error while members are missing, and never for another reason that a change
 * can end: kube-scheduler's back-off ignores wakeups. */
static void check_error(struct world *w, const struct replica *r,
                        const struct core_input *in, const struct core_output *o)
{
    cleanup_free char *name = xmemdup0(in->name.p, in->name.n);
    cleanup_free char *uid = xmemdup0(in->uid.p, in->uid.n);
    if (o->reserve != CORE_RESERVE_GANG_WAITS || !gangs_has(name))
        return;
    struct gang_count c = gang_count(w, r, name, uid);
    uint32_t minimum = gangs_minimum(w, name);
    if (minimum && c.total - c.gated >= minimum)
        violated(w, "r%d answers an error for %s, but %u of %u members are there: %s",
                 r->id, name, c.total - c.gated, minimum, o->text ? o->text : "");
}

/* The bind of `h` was answered: is that for its gang, and not for its pod, or its process? */
static bool is_of_gang(const struct world *w, const struct replica *r,
                       const struct held *h, const struct core_input *in,
                       const struct core_output *o)
{
    bool asked_again = (in->type == CORE_RESERVE || in->type == CORE_BIND) &&
                       span_eq(in->uid, span_of(h->uid));
    const struct ledger_pod *pod = replica_pod(r, h->uid);
    return o->code != ERR_NONE && o->code != ERR_NOT_FOUND &&
           o->bind == CORE_BIND_REJECTED && replica_leads(w, r) && !asked_again && pod &&
           !pod->node && !pod->terminating && gangs_has(h->name) &&
           gangs_minimum(w, h->name) && o->token == h->token;
}

static void check_held(struct world *w, const struct replica *r,
                       const struct core_input *in)
{
    int64_t now_ms = replica_time(w, r).mono_ms;
    cleanup_free char *ended = NULL;
    /* It was pending before the step. */
    if (w->was_pending && !is_pending(r, in->pod->meta.uid) && !in->pod->node.n)
        ended = xmemdup0(in->pod->meta.name.p, in->pod->meta.name.n);
    for (const struct held *h = w->held; h; h = h->next) {
        const struct ledger_pod *pod = replica_pod(r, h->uid);
        if (h->replica != r->id || (pod && pod->node) || !gangs_has(h->name))
            continue; /* its Binding is in flight */
        if (pod && pod->terminating)
            violated(w, "r%d holds the bind of %s, which terminates", r->id, h->name);
        if (w->was_pending && in->deleted && span_eq(in->pod->meta.uid, span_of(h->uid)))
            violated(w, "r%d holds the bind of %s, which was deleted", r->id, h->name);
        if (!pod)
            continue; /* it is read first */
        if (now_ms - h->arrived_ms > HOLD_MS ||
            (in->type == CORE_TICK && now_ms - h->arrived_ms == HOLD_MS))
            violated(w, "r%d has held the bind of %s for %lld ms", r->id, h->name,
                     (long long)(now_ms - h->arrived_ms));
        if (ended && gangs_same(h->name, ended))
            violated(w, "r%d still holds the bind of %s, but %s of its gang has ended",
                     r->id, h->name, ended);
    }
}

static void check_reservations(struct world *w, const struct replica *r,
                               const struct core_input *in)
{
    cleanup_free char *uid =
        in->type == CORE_RESERVE ? xmemdup0(in->uid.p, in->uid.n) : NULL;
    const struct oracle_pod *asker = uid ? oracle_find(w, uid) : NULL;
    for (const struct ledger_reservation *at =
             ledger_first_reservation(core_ledger(r->core));
         at; at = at->next) {
        const struct oracle_pod *p = oracle_find(w, at->uid.p);
        if (!p)
            continue;
        if (p->terms.gated)
            violated(w, "r%d reserves cards for %s, which has gates", r->id, p->name);
        if (p->terms.scheduler == SCHEDULERS ||
            (asker && gangs_same(asker->name, p->name) &&
             asker->terms.scheduler != p->terms.scheduler &&
             at->until_ms >= replica_time(w, r).mono_ms + CORE_GANG_RESERVATION_MS))
            violated(w, "r%d reserves cards for %s, which has another scheduler", r->id,
                     p->name);
    }
}

void barrier_after(struct world *w, const struct replica *r, const struct core_input *in,
                   const struct step_outputs *out)
{
    STEP_EACH(struct core_output, o, out)
    {
        if (o->type == CORE_CALL_BIND)
            check_binding(w, r, o);
        if (o->type == CORE_RESERVED)
            check_error(w, r, in, o);
        for (struct held **at = &w->held; o->type == CORE_REPLY && *at;) {
            if ((*at)->token != o->token || (*at)->replica != r->id) {
                at = &(*at)->next;
                continue;
            }
            if (is_of_gang(w, r, *at, in, o))
                check_text(w, r, (*at)->name, o->text);
            forget(at);
        }
    }
    check_held(w, r, in);
    if (w->yard)
        check_reservations(w, r, in);
}
