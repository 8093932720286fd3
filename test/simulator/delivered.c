/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdio.h>

/*
 * The state of nodes as last delivered to a replica; the witness judges by it. It is
 * recorded before the core gets it, independently of the ledger.
 *
 * A node must be stale if its heartbeat would have been delivered: the watch of Leases had
 * no pause since the last heartbeat and the grace has passed, or a list that was requested
 * after the grace has no renewal of it. After a silence such a list decides only if it has a
 * renewal of some node. A failure restarts the grace of all nodes.
 */

enum { PAUSE_MS = 5000 }; /* of the watch: what arrives after it may be a backlog */

void delivered_asked(struct delivered *d, const struct core_output *o, int64_t now_ms)
{
    d->runs[o->kind] = o->run;
    if (o->kind != CORE_LEASES)
        return;
    d->heartbeats.watched = o->type == CORE_WATCH;
    d->heartbeats.asked_ms = now_ms;
}

static struct node_copy *node_copy_of(struct delivered *d, struct span node)
{
    cleanup_free char *name = xmemdup0(node.p, node.n);
    int index = oracle_index(name);
    return index < 0 ? NULL : &d->nodes[index];
}

static unsigned bit(int64_t card)
{
    return card >= 0 && card < CARDS ? 1u << card : 0;
}

static unsigned bit_of(int node, int64_t id)
{
    return bit(oracle_card(node, id));
}

static void forget_scv(struct node_copy *t)
{
    t->scv = t->damaged = false;
    t->there = t->healthy = t->held = t->in_mig_mode = 0;
    t->n_holders = 0;
    t->isolation = 0;
    t->links.known = false;
}

/* A row has a word for each card of the list; of an unknown word, -1. */
static void take_links(struct link_table *t, const struct scv *scv)
{
    t->known = scv->n_cards > 1 && scv->n_cards <= CARDS;
    for (size_t i = 0; t->known && i < scv->n_cards; i++) {
        struct span row = scv->cards[i].links;
        for (size_t k = 0; k < scv->n_cards; k++) {
            struct span word = span_cut(&row, ' ');
            int8_t link = 0;
            while (oracle_links[link] && !span_eq(word, span_of(oracle_links[link])))
                link++;
            t->row[i][k] = link;
            t->known &= i == k || oracle_links[link];
        }
    }
}

static void take_scv(struct node_copy *t, int node, const struct scv *scv, uint64_t run)
{
    forget_scv(t);
    t->scv = true;
    t->scv_run = run;
    snprintf(t->scv_version, sizeof t->scv_version, "%.*s", SPAN_ARG(scv->meta.version));
    t->damaged = scv->damaged;
    for (size_t i = 0; i < scv->n_cards; i++) {
        const struct scv_card *card = &scv->cards[i];
        t->there |= bit_of(node, card->id);
        t->healthy |= card->healthy ? bit_of(node, card->id) : 0;
        if (bit_of(node, card->id))
            t->mib[oracle_card(node, card->id)] = card->total_mib;
        for (size_t k = 0; k < scv->n_cards && card->healthy && card->parent_uuid.n; k++)
            if (span_eq(card->parent_uuid, scv->cards[k].uuid))
                t->in_mig_mode |= bit_of(node, scv->cards[k].id);
    }
    take_links(&t->links, scv);
    t->isolation = scv->isolation;
    for (size_t h = 0; h < scv->n_held && t->n_holders < CARDS; h++) {
        const struct scv_held *held = &scv->held[h];
        struct holder *holder = &t->holders[t->n_holders++];
        snprintf(holder->pod, sizeof holder->pod, "%.*s", SPAN_ARG(held->pod));
        holder->devices = (int)held->units;
        holder->cards = 0;
        for (size_t u = 0; u < held->n_uuids; u++)
            for (size_t i = 0; i < scv->n_cards; i++)
                if (span_eq(held->uuids[u], scv->cards[i].uuid))
                    holder->cards |= bit_of(node, scv->cards[i].id);
        t->held |= holder->cards;
    }
}

static void works(struct heartbeats *b, int64_t now_ms)
{
    if (b->broken)
        b->since_ms = now_ms;
    b->broken = false;
}

static void take_lease(struct delivered *d, struct node_copy *t,
                       const struct lease *lease, uint64_t run, int64_t now_ms)
{
    struct heartbeats *b = &d->heartbeats;
    if (!t->lease || !span_eq(span_of(t->renewed), lease->renew_time)) {
        snprintf(t->renewed, sizeof t->renewed, "%.*s", SPAN_ARG(lease->renew_time));
        t->renewed_ms = now_ms;
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

static void take_object(struct delivered *d, const struct core_input *in, int64_t now_ms)
{
    struct node_copy *t =
        in->kind == CORE_SCVS         ? node_copy_of(d, in->scv->meta.name)
        : in->kind == CORE_LEASES     ? node_copy_of(d, in->lease->meta.name)
        : in->kind == CORE_CONFIGMAPS ? node_copy_of(d, in->unhealthy->node)
                                      : NULL;
    if (!t)
        return;
    if (in->kind == CORE_SCVS && in->deleted)
        forget_scv(t);
    else if (in->kind == CORE_SCVS)
        take_scv(t, (int)(t - d->nodes), in->scv, in->run);
    else if (in->kind == CORE_LEASES && in->deleted)
        t->lease = t->stale = false;
    else if (in->kind == CORE_LEASES)
        take_lease(d, t, in->lease, in->run, now_ms);
    else if (in->deleted)
        t->list = false;
    else {
        t->list = true;
        t->list_run = in->run;
        t->listed = 0;
        for (size_t i = 0; i < in->unhealthy->n; i++)
            t->listed |= bit_of((int)(t - d->nodes), in->unhealthy->cards[i]);
    }
}

static void end_list(struct delivered *d, const struct core_input *in, int64_t now_ms)
{
    struct heartbeats *b = &d->heartbeats;
    if (in->kind == CORE_LEASES) {
        works(b, now_ms);
        b->decides = b->asked_ms <= b->last_ms + PAUSE_MS;
        b->last_ms = now_ms;
    }
    for (int node = 0; node < ALL_NODES; node++) {
        struct node_copy *t = &d->nodes[node];
        if (in->kind == CORE_SCVS && t->scv_run != in->run)
            forget_scv(t);
        if (in->kind == CORE_CONFIGMAPS && t->list_run != in->run)
            t->list = false;
        if (in->kind == CORE_LEASES && t->lease_run != in->run)
            t->lease = t->stale = false;
    }
}

bool delivered_take(struct delivered *d, const struct core_input *in, int64_t now_ms)
{
    bool of_run = in->type == CORE_OBJECT || in->type == CORE_LIST_ENDED ||
                  in->type == CORE_LIST_FAILED || in->type == CORE_WATCH_ENDED;
    if (!of_run || in->run != d->runs[in->kind])
        return false;
    if (in->type == CORE_OBJECT)
        take_object(d, in, now_ms);
    else if (in->type == CORE_LIST_ENDED)
        end_list(d, in, now_ms);
    else if (in->kind == CORE_LEASES && in->err && in->err->code) {
        d->heartbeats.broken = true;
        d->heartbeats.came_ms = 0;
    }
    return true;
}

void delivered_check_heartbeats(struct delivered *d, const struct core_input *in)
{
    const struct heartbeats *b = &d->heartbeats;
    bool listed = in->type == CORE_LIST_ENDED && in->kind == CORE_LEASES &&
                  in->run == d->runs[CORE_LEASES] && b->decides;
    if (in->type == CORE_OBJECT || in->type == CORE_WATCH_PROGRESS || b->broken)
        return;
    for (int node = 0; node < ALL_NODES; node++) {
        struct node_copy *t = &d->nodes[node];
        int64_t from = t->renewed_ms > b->since_ms ? t->renewed_ms : b->since_ms;
        bool watched = b->watched && b->came_ms && b->steady_ms <= t->renewed_ms &&
                       b->came_ms >= from + GRACE_MS;
        t->stale |= t->lease && (watched || (listed && b->asked_ms >= from + GRACE_MS));
    }
}

int delivered_cards(const struct node_copy *n)
{
    return n->scv && !n->damaged ? __builtin_popcount(n->there) : 0;
}

int64_t delivered_mib(const struct node_copy *n, int card)
{
    return n->there & bit(card) ? n->mib[card] : -1;
}

unsigned delivered_available(const struct node_copy *n, unsigned given_back)
{
    return n->there & n->healthy & ~n->in_mig_mode & ~(n->held & ~given_back) &
           ~(n->list ? n->listed : 0);
}

const char *delivered_scv(const struct node_copy *n)
{
    return n->scv ? n->scv_version : NULL;
}
