/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/reason.h"

/*
 * Gangs: a model of kube-scheduler's Permit plugins, and the checks of gangs. The gang of a
 * pod is the part of its name before the dot, so the checks do not depend on the code that
 * reads labels. It begins with g; in a gang whose name begins with b the members do not wait
 * for each other (policy basic), and are single pods here.
 *
 * A member that filter gave a node waits at Permit until every live member waits or is
 * bound; then all are bound. After a timeout those that wait give up together. They are also
 * tried again when kube-scheduler restarts.
 */

struct waiting {
    char uid[64];
    int node;
    struct waiting *next;
};

struct permit {
    struct waiting *first;
};

struct permit *permit_new(void)
{
    return xcalloc(1, sizeof(struct permit));
}

void permit_free(struct permit *p)
{
    for (struct waiting *x = p->first, *next; x; x = next) {
        next = x->next;
        free(x);
    }
    free(p);
}

/* The length of the gang's name; 0: the pod is in no gang. */
static size_t gang_n(const char *name)
{
    const char *dot = name[0] == 'g' ? strchr(name, '.') : NULL;
    return dot ? (size_t)(dot - name) : 0;
}

bool gangs_has(const char *name)
{
    return gang_n(name) > 0;
}

static bool same_gang(const char *a, const char *b)
{
    size_t n = gang_n(a);
    return n && n == gang_n(b) && !strncmp(a, b, n);
}

static struct waiting *find(const struct world *w, const char *uid)
{
    struct waiting *x = w->permit->first;
    while (x && strcmp(x->uid, uid) != 0)
        x = x->next;
    return x;
}

bool permit_waits(const struct world *w, const char *uid)
{
    return find(w, uid);
}

struct oracle_pod *permit_first(struct world *w)
{
    return w->permit->first ? oracle_find(w, w->permit->first->uid) : NULL;
}

static int take(struct world *w, const char *uid)
{
    struct waiting **at = &w->permit->first;
    while (*at && strcmp((*at)->uid, uid) != 0)
        at = &(*at)->next;
    if (!*at)
        return -1;
    struct waiting *x = *at;
    int node = x->node;
    *at = x->next;
    free(x);
    return node;
}

static bool is_live(const struct oracle_pod *p)
{
    return !p->over && !p->deleting;
}

/* Does every live member wait, or is it bound? */
static bool is_complete(const struct world *w, const char *name)
{
    for (const struct oracle_pod *p = oracle_first(w); p; p = p->next)
        if (is_live(p) && same_gang(p->name, name) && !p->node && !find(w, p->uid))
            return false;
    return true;
}

static void on_timeout(struct world *w, void *arg)
{
    struct oracle_pod *late = oracle_find(w, arg), *p;
    int gave_up = 0;
    for (p = oracle_first(w); p && late; p = p->next)
        if (same_gang(p->name, late->name))
            gave_up += take(w, p->uid) >= 0;
    take(w, arg); /* its pod was deleted */
    trace(w, "scheduler: %d members wait no longer with %s", gave_up, (char *)arg);
    if (gave_up)
        scheduler_forget_backoff(w); /* they are tried again */
    free(arg);
}

static void on_restart(struct world *w, void *arg)
{
    (void)arg;
    struct oracle_pod *first = permit_first(w);
    trace(w, "scheduler: restarts; no member waits any more");
    while (w->permit->first)
        take(w, w->permit->first->uid);
    scheduler_forget_backoff(w);
    if (first) /* its queue can have any order */
        scheduler_try(w, first);
}

void permit_restart(struct world *w)
{
    at(w, w->now_ms + between(w, 0, 100), on_restart, NULL, NULL);
}

void permit_add(struct world *w, const struct oracle_pod *p, int node)
{
    struct waiting *x = xcalloc(1, sizeof *x);
    snprintf(x->uid, sizeof x->uid, "%s", p->uid);
    x->node = node;
    x->next = w->permit->first;
    w->permit->first = x;
    if (!is_complete(w, p->name)) {
        at(w, w->now_ms + between(w, 5000, 70000), on_timeout, xstrdup(p->uid), free);
        return;
    }
    w->stats.gangs_bound++;
    for (const struct oracle_pod *q = oracle_first(w), *next; q; q = next) {
        next = q->next;
        int where = same_gang(q->name, p->name) ? take(w, q->uid) : -1;
        if (where >= 0 && is_live(q))
            scheduler_bind(w, q, where);
    }
}

/* -- checks -- */

/* A pending member whose cards can be reserved. */
static bool is_reservable(const struct ledger_pod *pod)
{
    return !pod->node && !pod->invalid_reason &&
           (pod->request->kind == REQUEST_MEMORY || pod->request->kind == REQUEST_CARDS);
}

void gangs_check(struct world *w, const struct replica *r, const struct core_input *in,
                 const struct core_output *o)
{
    const struct ledger *l = core_ledger(replica_core(r));
    cleanup_free char *name = xmemdup0(in->name.p, in->name.n);
    int with = 0, without = 0;
    if (in->type != CORE_RESERVE || o->type != CORE_RESERVED || !in->gang ||
        core_may_bind(replica_core(r), replica_time(w, r), NULL))
        return;
    cleanup_free char *uid = xmemdup0(in->uid.p, in->uid.n);
    const struct ledger_pod *asker = ledger_pod_find(l, in->uid);
    /* Its cards are promised, also while the outcome of its Binding is unknown. */
    if (scheduler_binds(w, uid) || (asker && asker->node))
        return;
    for (const struct ledger_pod *pod = ledger_first_pod(l); pod;
         pod = ledger_next_pod(l, pod)) {
        cleanup_free char *other = xmemdup0(pod->name.p, pod->name.n);
        if (!same_gang(name, other) || !is_reservable(pod))
            continue;
        if (ledger_reservation_find(l, pod->uid))
            with++;
        else
            without++;
    }
    w->stats.gangs_rejected += !o->node;
    w->stats.gangs_reserved += with > 1;
    if (with && (without || !o->node))
        violated(w, "r%d reserves cards for %d members of the gang of %s and none for %d",
                 replica_id(r), with, name, without);
}

bool gangs_may_wait(const struct world *w, const struct oracle_pod *p)
{
    if (!gangs_has(p->name))
        return false;
    for (const struct oracle_pod *q = oracle_first(w); q; q = q->next)
        if (q != p && same_gang(q->name, p->name) && is_live(q) && !q->node)
            return true;
    return false;
}
