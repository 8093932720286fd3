/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * What the API server has told a replica of nodes, last: by it the witness judges. It is
 * taken down as it is delivered, before the core sees it, and kept in other words than
 * the ledger's: an Scv or a ConfigMap counts from its delivery until the next one, until
 * it is deleted, or until a list ends that does not show it.
 */

enum { CARDS = 8 };

/* A container that has cards through nvidia.com/gpu. */
struct holder {
    char pod[64];
    int devices;
};

struct told {
    bool scv, list;             /* there is one */
    uint64_t scv_run, list_run; /* the list or watch that showed it last */
    bool damaged;
    unsigned there, healthy, held, listed; /* bits of cards */
    int64_t mib[CARDS];
    struct holder holders[CARDS];
    int n_holders;
};

struct heard {
    uint64_t runs[CORE_KINDS]; /* asked for last */
    struct told nodes[NODES];
};

struct heard *heard_new(void)
{
    return xcalloc(1, sizeof(struct heard));
}

void heard_free(struct heard *h)
{
    free(h);
}

void heard_forget(struct heard *h)
{
    *h = (struct heard){0};
}

void heard_asked(struct heard *h, const struct core_output *o)
{
    h->runs[o->kind] = o->run;
}

static struct told *told_of(struct heard *h, struct span node)
{
    cleanup_free char *name = xmemdup0(node.p, node.n);
    int index = oracle_index(name);
    return index < 0 ? NULL : &h->nodes[index];
}

static unsigned bit(int64_t card)
{
    return card >= 0 && card < CARDS ? 1u << card : 0;
}

static void forget_scv(struct told *t)
{
    t->scv = t->damaged = false;
    t->there = t->healthy = t->held = 0;
    t->n_holders = 0;
}

static void take_holder(struct told *t, const struct scv *scv,
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

static void take_scv(struct told *t, const struct scv *scv, uint64_t run)
{
    forget_scv(t);
    t->scv = true;
    t->scv_run = run;
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

static void take_list(struct told *t, const struct unhealthy_cards *u, uint64_t run)
{
    t->list = true;
    t->list_run = run;
    t->listed = 0;
    for (size_t i = 0; i < u->n; i++)
        t->listed |= bit(u->cards[i]);
}

static void take_object(struct heard *h, const struct core_input *in)
{
    struct told *t = in->kind == CORE_SCVS         ? told_of(h, in->scv->meta.name)
                     : in->kind == CORE_CONFIGMAPS ? told_of(h, in->unhealthy->node)
                                                   : NULL;
    if (!t)
        return;
    if (in->kind == CORE_SCVS && in->gone)
        forget_scv(t);
    else if (in->kind == CORE_SCVS)
        take_scv(t, in->scv, in->run);
    else if (in->gone)
        t->list = false;
    else
        take_list(t, in->unhealthy, in->run);
}

static void end_list(struct heard *h, const struct core_input *in)
{
    for (int node = 0; node < NODES; node++) {
        struct told *t = &h->nodes[node];
        if (in->kind == CORE_SCVS && t->scv_run != in->run)
            forget_scv(t);
        if (in->kind == CORE_CONFIGMAPS && t->list_run != in->run)
            t->list = false;
    }
}

bool heard_take(struct heard *h, const struct core_input *in)
{
    bool object = in->type == CORE_OBJECT, end = in->type == CORE_LIST_ENDED;
    if ((!object && !end) || in->run != h->runs[in->kind])
        return false;
    if (object)
        take_object(h, in);
    else
        end_list(h, in);
    return true;
}

int heard_cards(const struct heard *h, int node)
{
    const struct told *t = &h->nodes[node];
    return t->scv && !t->damaged ? __builtin_popcount(t->there) : 0;
}

int64_t heard_mib(const struct heard *h, int node, int card)
{
    const struct told *t = &h->nodes[node];
    return t->there & bit(card) ? t->mib[card] : -1;
}

unsigned heard_in(const struct heard *h, int node)
{
    const struct told *t = &h->nodes[node];
    return t->there & t->healthy & ~t->held & ~(t->list ? t->listed : 0);
}

int heard_devices(const struct heard *h, int node, struct span pod)
{
    const struct told *t = &h->nodes[node];
    int n = 0;
    for (int i = 0; i < t->n_holders; i++)
        n += span_eq(span_of(t->holders[i].pod), pod) ? t->holders[i].devices : 0;
    return n;
}
