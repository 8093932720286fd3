/* SPDX-License-Identifier: Apache-2.0 */
#include "node/usage_priv.h"

/* -- one container -- */

/* Whether the container has a promise on any card. Without one, its pod may have been
 * promised a card by its labels, without a device of the kubelet. */
static bool has_promise(const struct usage_input *in, const struct usage_name *name)
{
    for (size_t i = 0; name && in->promises_known && i < in->n_promises; i++)
        if (span_eq(in->promises[i].ns, name->ns) &&
            span_eq(in->promises[i].pod, name->pod) &&
            span_eq(in->promises[i].container, name->container))
            return true;
    return false;
}

static bool is_listed(const struct usage_input *in, const struct usage_name *name)
{
    for (size_t i = 0; name && in->promises_known && i < in->n_listed; i++)
        if (span_eq(in->listed[i].ns, name->ns) &&
            span_eq(in->listed[i].pod, name->pod) &&
            span_eq(in->listed[i].container, name->container))
            return true;
    return false;
}

/* What the init container was promised on the card; NULL: nothing. *known: it was
 * promised a part of some card. A pod of the same name has another UID. */
static const struct usage_init_promise *init_of(const struct usage_builder *b,
                                                const struct usage_row *row, bool *known)
{
    const struct usage_name *name = row->name;
    *known = false;
    for (size_t i = 0; name && b->in->promises_known && i < b->in->n_inits; i++) {
        const struct usage_init_promise *p = &b->in->inits[i];
        if (!span_eq(p->pod_uid, row->place->pod_uid) || !span_eq(p->ns, name->ns) ||
            !span_eq(p->pod, name->pod) || !span_eq(p->container, name->container))
            continue;
        *known = true;
        if (span_eq(p->uuid, b->cards[row->card].uuid))
            return p;
    }
    return NULL;
}

/* An init container, which the kubelet does not list, has a promise all the same. */
static void take_init(const struct usage_builder *b, const struct usage_row *row,
                      struct usage_container *c)
{
    const struct usage_init_promise *p = init_of(b, row, &c->init);
    if (!c->init || !b->cards[row->card].uuid.n)
        return;
    c->promised_mib = p ? p->mib : 0;
    c->promise_unclear = c->promised_mib < 0;
}

void usage_promises_begin(const struct usage_builder *b, const struct usage_row *row,
                          struct usage_container *c)
{
    c->promised_mib = has_promise(b->in, row->name) ? 0 : -1;
    c->promise_unclear = !b->cards[row->card].uuid.n || !is_listed(b->in, row->name);
    if (c->promise_unclear)
        take_init(b, row, c);
}

/* -- all containers -- */

static bool is_of(const struct usage_container *c, const struct usage_promise *p,
                  size_t card)
{
    return c->card == card && c->ns.n && span_eq(c->ns, p->ns) &&
           span_eq(c->pod, p->pod) && span_eq(c->name, p->container);
}

static void add_promise(struct usage_container *c, int64_t mib)
{
    c->promised_mib = c->promised_mib < 0 || mib < 0 ? -1 : c->promised_mib + mib;
    c->promise_unclear |= mib < 0;
}

/* While a container restarts, two container IDs can have its name: both have its promise.
 */
static void take_promise(struct usage_builder *b, const struct usage_promise *p,
                         size_t card)
{
    struct arena *a = &b->u->arena;
    bool any = false;
    for (size_t i = 0; i < b->n_containers; i++)
        if (is_of(&b->containers[i], p, card)) {
            add_promise(&b->containers[i], p->mib);
            any = true;
        }
    if (any)
        return;
    struct usage_container c = {
        .card = card,
        .ns = arena_copy(a, p->ns),
        .pod = arena_copy(a, p->pod),
        .name = arena_copy(a, p->container),
        .promised_mib = p->mib < 0 ? -1 : p->mib,
        .promise_unclear = p->mib < 0,
    };
    /* A process without a place, or a container without a name, may be of it. */
    if (b->unnamed[card] || !b->cards[card].complete)
        c.used_mib = c.sm_percent = -1;
    *usage_add_container(b) = c;
}

static void take_promises(struct usage_builder *b)
{
    for (size_t i = 0; b->in->promises_known && i < b->in->n_promises; i++)
        for (size_t k = 0; k < b->u->n_cards; k++)
            if (b->cards[k].uuid.n && span_eq(b->cards[k].uuid, b->in->promises[i].uuid))
                take_promise(b, &b->in->promises[i], k);
}

static void add_inits(struct usage_builder *b)
{
    const struct usage_input *in = b->in;
    struct arena *a = &b->u->arena;
    struct usage_init *inits = arena_alloc(a, (in->n_inits + 1) * sizeof *inits);
    for (size_t i = 0; in->promises_known && i < in->n_inits; i++)
        for (size_t k = 0; k < b->u->n_cards; k++) {
            const struct usage_init_promise *p = &in->inits[i];
            if (!b->cards[k].uuid.n || !span_eq(b->cards[k].uuid, p->uuid))
                continue;
            inits[b->u->n_inits++] = (struct usage_init){k,
                                                         arena_copy(a, p->pod_uid),
                                                         arena_copy(a, p->ns),
                                                         arena_copy(a, p->pod),
                                                         arena_copy(a, p->container),
                                                         p->mib,
                                                         p->beside_mib};
            break; /* cards of one UUID: the first */
        }
    b->u->inits = inits;
}

void usage_promises_take(struct usage_builder *b)
{
    take_promises(b);
    add_inits(b);
}
