/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The state of nodes as last delivered to a replica; the witness judges by it. It is
 * recorded before the core gets it, independently of the ledger: an Scv or a ConfigMap
 * counts from its delivery until the next version, its deletion, or the end of a list that
 * lacks it.
 *
 * A node must be stale if its heartbeat would have been delivered: the watch of Leases had
 * no pause since the last heartbeat and the grace has passed, or a list that was requested
 * after the grace has no renewal of it. After a silence such a list decides only if it has a
 * renewal of some node. A failure restarts the grace of all nodes.
 */

enum {
    CARDS = 8,
    PAUSE_MS = 5000, /* of the watch: what arrives after it may be a backlog */
};

/* A pod that has cards through nvidia.com/gpu. */
struct holder {
    char pod[64];
    int devices;
};

struct node_copy {
    bool scv, list;             /* it exists */
    uint64_t scv_run, list_run; /* the last list or watch that had it */
    char scv_version[32];
    bool damaged;
    unsigned there, healthy, held, listed; /* bits of cards */
    int64_t mib[CARDS];
    struct holder holders[CARDS];
    int n_holders;
    bool lease, stale;
    uint64_t lease_run;
    char renewed[40];
    int64_t renewed_ms; /* when that was delivered */
};

/* The heartbeats of all nodes. */
struct heartbeats {
    bool watched, broken;
    int64_t asked_ms;  /* when the list or watch was requested */
    int64_t since_ms;  /* no failure since then */
    int64_t steady_ms; /* no pause of the watch since then */
    int64_t came_ms;   /* last event of the watch; 0: none since it failed */
    int64_t last_ms;   /* last event of a watch, or end of a list */
    int64_t new_ms;    /* last renewal of any node */
    bool decides;      /* the last list */
};

struct delivered {
    uint64_t runs[CORE_KINDS]; /* of the current list or watch */
    struct node_copy nodes[NODES];
    struct heartbeats heartbeats;
};

struct delivered *delivered_new(void)
{
    return xcalloc(1, sizeof(struct delivered));
}

void delivered_free(struct delivered *h)
{
    free(h);
}

void delivered_forget(struct delivered *h)
{
    *h = (struct delivered){0};
}

void delivered_asked(struct delivered *h, const struct core_output *o, int64_t now_ms)
{
    h->runs[o->kind] = o->run;
    if (o->kind != CORE_LEASES)
        return;
    h->heartbeats.watched = o->type == CORE_WATCH;
    h->heartbeats.asked_ms = now_ms;
}

static struct node_copy *node_copy_of(struct delivered *h, struct span node)
{
    cleanup_free char *name = xmemdup0(node.p, node.n);
    int index = oracle_index(name);
    return index < 0 ? NULL : &h->nodes[index];
}

static unsigned bit(int64_t card)
{
    return card >= 0 && card < CARDS ? 1u << card : 0;
}

static void forget_scv(struct node_copy *t)
{
    t->scv = t->damaged = false;
    t->there = t->healthy = t->held = 0;
    t->n_holders = 0;
}

static void take_holder(struct node_copy *t, const struct scv *scv,
                        const struct scv_held *held)
{
    struct holder *holder = &t->holders[t->n_holders++];
    snprintf(holder->pod, sizeof holder->pod, "%.*s", SPAN_ARG(held->pod));
    holder->devices = (int)held->units;
    for (size_t u = 0; u < held->n_uuids; u++)
        for (size_t i = 0; i < scv->n_cards; i++)
            if (span_eq(held->uuids[u], scv->cards[i].uuid))
                t->held |= bit(scv->cards[i].id);
}

static void take_scv(struct node_copy *t, const struct scv *scv, uint64_t run)
{
    forget_scv(t);
    t->scv = true;
    t->scv_run = run;
    snprintf(t->scv_version, sizeof t->scv_version, "%.*s", SPAN_ARG(scv->meta.version));
    t->damaged = scv->damaged;
    for (size_t i = 0; i < scv->n_cards; i++) {
        const struct scv_card *card = &scv->cards[i];
        t->there |= bit(card->id);
        t->healthy |= card->healthy ? bit(card->id) : 0;
        if (bit(card->id))
            t->mib[card->id] = card->total_mib;
    }
    for (size_t i = 0; i < scv->n_held && t->n_holders < CARDS; i++)
        take_holder(t, scv, &scv->held[i]);
}

static void take_list(struct node_copy *t, const struct unhealthy_cards *u, uint64_t run)
{
    t->list = true;
    t->list_run = run;
    t->listed = 0;
    for (size_t i = 0; i < u->n; i++)
        t->listed |= bit(u->cards[i]);
}

static void works(struct heartbeats *b, int64_t now_ms)
{
    if (b->broken)
        b->since_ms = now_ms;
    b->broken = false;
}

static void take_lease(struct delivered *h, struct node_copy *t,
                       const struct lease *lease, uint64_t run, int64_t now_ms)
{
    struct heartbeats *b = &h->heartbeats;
    if (!t->lease || !span_eq(span_of(t->renewed), lease->renew_time)) {
        snprintf(t->renewed, sizeof t->renewed, "%.*s", SPAN_ARG(lease->renew_time));
        t->renewed_ms = b->new_ms = now_ms;
        t->stale = false;
    }
    t->lease = true;
    t->lease_run = run;
    if (!b->watched)
        return;
    works(b, now_ms);
    if (!b->came_ms || now_ms > b->came_ms + PAUSE_MS)
        b->steady_ms = now_ms;
    b->came_ms = b->last_ms = now_ms;
}

static void take_object(struct delivered *h, const struct core_input *in, int64_t now_ms)
{
    struct node_copy *t =
        in->kind == CORE_SCVS         ? node_copy_of(h, in->scv->meta.name)
        : in->kind == CORE_LEASES     ? node_copy_of(h, in->lease->meta.name)
        : in->kind == CORE_CONFIGMAPS ? node_copy_of(h, in->unhealthy->node)
                                      : NULL;
    if (!t)
        return;
    if (in->kind == CORE_SCVS && in->deleted)
        forget_scv(t);
    else if (in->kind == CORE_SCVS)
        take_scv(t, in->scv, in->run);
    else if (in->kind == CORE_LEASES && in->deleted)
        t->lease = t->stale = false;
    else if (in->kind == CORE_LEASES)
        take_lease(h, t, in->lease, in->run, now_ms);
    else if (in->deleted)
        t->list = false;
    else
        take_list(t, in->unhealthy, in->run);
}

static void end_list(struct delivered *h, const struct core_input *in, int64_t now_ms)
{
    struct heartbeats *b = &h->heartbeats;
    if (in->kind == CORE_LEASES) {
        works(b, now_ms);
        b->decides = b->asked_ms <= b->last_ms + PAUSE_MS || b->new_ms >= b->asked_ms;
        b->last_ms = now_ms;
    }
    for (int node = 0; node < NODES; node++) {
        struct node_copy *t = &h->nodes[node];
        if (in->kind == CORE_SCVS && t->scv_run != in->run)
            forget_scv(t);
        if (in->kind == CORE_CONFIGMAPS && t->list_run != in->run)
            t->list = false;
        if (in->kind == CORE_LEASES && t->lease_run != in->run)
            t->lease = t->stale = false;
    }
}

bool delivered_take(struct delivered *h, const struct core_input *in, int64_t now_ms)
{
    bool of_run = in->type == CORE_OBJECT || in->type == CORE_LIST_ENDED ||
                  in->type == CORE_LIST_FAILED || in->type == CORE_WATCH_ENDED;
    if (!of_run || in->run != h->runs[in->kind])
        return false;
    if (in->type == CORE_OBJECT)
        take_object(h, in, now_ms);
    else if (in->type == CORE_LIST_ENDED)
        end_list(h, in, now_ms);
    else if (in->kind == CORE_LEASES && in->err && in->err->code) {
        h->heartbeats.broken = true;
        h->heartbeats.came_ms = 0;
    }
    return true;
}

void delivered_check_heartbeats(struct delivered *h, const struct core_input *in)
{
    const struct heartbeats *b = &h->heartbeats;
    bool listed = in->type == CORE_LIST_ENDED && in->kind == CORE_LEASES &&
                  in->run == h->runs[CORE_LEASES] && b->decides;
    if (in->type == CORE_OBJECT || in->type == CORE_WATCH_PROGRESS || b->broken)
        return;
    for (int node = 0; node < NODES; node++) {
        struct node_copy *t = &h->nodes[node];
        int64_t from = t->renewed_ms > b->since_ms ? t->renewed_ms : b->since_ms;
        bool watched = b->watched && b->came_ms && b->steady_ms <= t->renewed_ms &&
                       b->came_ms >= from + GRACE_MS;
        t->stale |= t->lease && (watched || (listed && b->asked_ms >= from + GRACE_MS));
    }
}

bool delivered_stale(const struct delivered *h, int node)
{
    return h->nodes[node].stale;
}

int delivered_cards(const struct delivered *h, int node)
{
    const struct node_copy *t = &h->nodes[node];
    return t->scv && !t->damaged ? __builtin_popcount(t->there) : 0;
}

int64_t delivered_mib(const struct delivered *h, int node, int card)
{
    const struct node_copy *t = &h->nodes[node];
    return t->there & bit(card) ? t->mib[card] : -1;
}

unsigned delivered_available(const struct delivered *h, int node)
{
    const struct node_copy *t = &h->nodes[node];
    return t->there & t->healthy & ~t->held & ~(t->list ? t->listed : 0);
}

const char *delivered_scv(const struct delivered *h, int node)
{
    return h->nodes[node].scv ? h->nodes[node].scv_version : NULL;
}

int delivered_devices(const struct delivered *h, int node, struct span pod)
{
    const struct node_copy *t = &h->nodes[node];
    int n = 0;
    for (int i = 0; i < t->n_holders; i++)
        n += span_eq(span_of(t->holders[i].pod), pod) ? t->holders[i].devices : 0;
    return n;
}
