/* SPDX-License-Identifier: Apache-2.0 */
/* Joins NVML, /proc and the kubelet into the use and promise of each container. */
#include "node/usage.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/mem.h"

enum { MIB = 1 << 20 };

struct builder {
    struct usage_input in;
    struct usage *u;
    struct usage_card *cards;
    bool unnamed[GPU_MAX_CARDS]; /* a container on the card has no known name */
    struct usage_container *containers;
    size_t n_containers, cap_containers;
    struct usage_process *outside;
};

void usage_fini(struct usage *u)
{
    arena_fini(&u->arena);
    *u = (struct usage){0};
}

static int64_t mib_of(int64_t bytes)
{
    return bytes < 0 ? -1 : bytes / MIB + (bytes % MIB != 0);
}

/* A sum with an unknown part is unknown. */
static int64_t add(int64_t a, int64_t b)
{
    return a < 0 || b < 0 ? -1 : a + b;
}

static int by_container(const void *a, const void *b)
{
    const struct usage_container *x = a, *y = b;
    return (x->card > y->card) - (x->card < y->card)
               ?: span_cmp(x->ns, y->ns)
               ?: span_cmp(x->pod, y->pod)
               ?: span_cmp(x->name, y->name)
               ?: span_cmp(x->pod_uid, y->pod_uid)
               ?: span_cmp(x->container_id, y->container_id);
}

/* The container or (`name` empty) any container of the pod. */
static bool is_listed(const struct usage_input *in, struct span ns, struct span pod,
                      struct span name)
{
    for (size_t i = 0; i < in->n_listed; i++)
        if (span_eq(in->listed[i].ns, ns) && span_eq(in->listed[i].pod, pod) &&
            (!name.n || span_eq(in->listed[i].container, name)))
            return true;
    return false;
}

static bool is_named(const struct usage_container *c, struct span ns, struct span pod,
                     struct span name)
{
    return c->ns.n && span_eq(c->ns, ns) && span_eq(c->pod, pod) &&
           span_eq(c->name, name);
}

static struct usage_container *add_container(struct builder *b,
                                             const struct usage_container *c)
{
    MEM_GROW(b->containers, b->cap_containers, b->n_containers + 1);
    b->containers[b->n_containers] = *c;
    return &b->containers[b->n_containers++];
}

/* -- what is used -- */

/* Sets what is known of the promise of a container that uses the card: nothing, or that it
 * is an init container. Without a promise on any card, its pod may have been promised one by
 * its labels, without a device of the kubelet. The kubelet does not list an init container,
 * which has a promise all the same; a pod of the same name has another UID. */
static void begin_promise(const struct builder *b, struct usage_container *c)
{
    const struct usage_input *in = &b->in;
    struct span uuid = b->cards[c->card].uuid;
    int64_t mib = 0;
    c->promised_mib = -1;
    for (size_t i = 0; i < in->n_promises; i++)
        if (is_named(c, in->promises[i].ns, in->promises[i].pod,
                     in->promises[i].container))
            c->promised_mib = 0;
    c->promise_unclear = !uuid.n || !c->ns.n || !is_listed(in, c->ns, c->pod, c->name);
    for (size_t i = 0; i < in->n_inits && c->promise_unclear; i++) {
        const struct usage_init_promise *p = &in->inits[i];
        if (!span_eq(p->pod_uid, c->pod_uid) || !is_named(c, p->ns, p->pod, p->container))
            continue;
        c->init = true;
        mib = span_eq(p->uuid, uuid) ? p->mib : mib;
    }
    if (c->init && uuid.n) {
        c->promised_mib = mib;
        c->promise_unclear = mib < 0;
    }
    if (!c->init && uuid.n && c->ns.n && in->inits_known &&
        is_listed(in, c->ns, c->pod, (struct span){0}))
        c->promise_unclear = false; /* an ephemeral container, or one without devices */
}

/* Its name; {0}: not known. */
static struct usage_name name_at(const struct usage_input *in,
                                 const struct usage_place *place)
{
    struct usage_name best = {0};
    bool listed = false;
    for (size_t i = 0; i < in->n_names && place->container_id.n; i++) {
        const struct usage_name *n = &in->names[i];
        if (!n->pod_uid.n && span_eq(n->container_id, place->container_id))
            return *n;
        if (!n->pod_uid.n || !span_eq(n->pod_uid, place->pod_uid) ||
            !span_starts(place->container_id, n->container_id))
            continue;
        bool is = is_listed(in, n->ns, n->pod, n->container);
        if (!best.ns.n || is > listed ||
            (is == listed && span_cmp(n->container, best.container) < 0))
            best = *n;
        listed |= is;
    }
    return best;
}

/* The container in that place, found or added. */
static struct usage_container *container_at(struct builder *b, size_t card,
                                            const struct usage_place *place)
{
    struct arena *a = &b->u->arena;
    struct usage_container c = {.card = card};
    for (size_t i = 0; i < b->n_containers; i++)
        if (b->containers[i].card == card &&
            span_eq(b->containers[i].pod_uid, place->pod_uid) &&
            span_eq(b->containers[i].container_id, place->container_id))
            return &b->containers[i];
    c.pod_uid = arena_copy(a, place->pod_uid);
    c.container_id = arena_copy(a, place->container_id);
    const struct usage_name name = name_at(&b->in, place);
    c.ns = arena_copy(a, name.ns);
    c.pod = arena_copy(a, name.pod);
    c.name = arena_copy(a, name.container);
    b->unnamed[card] |= !c.ns.n;
    begin_promise(b, &c);
    return add_container(b, &c);
}

/* The process has a slot of the card, or uses it without the limit that its pod has. */
static void add_limit(struct usage_container *c, const struct usage_place *place,
                      int64_t bytes, struct span uuid)
{
    ARRAY_EACH_ITEM(const struct usage_slot, slot, place->slots, place->n_slots)
    {
        if (slot->used < 0 || (slot->uuid.n && !span_eq(slot->uuid, uuid)))
            continue;
        int64_t rest = bytes - (slot->used - slot->context);
        c->context_mib += rest > 0 ? rest : 0;
        c->n_slots++;
        return;
    }
    c->unlimited_mib += bytes;
}

/* Until all processes are added, `used_mib` and its parts are bytes. */
static void add_use(struct builder *b, size_t card, const struct gpu_process *process,
                    const struct usage_place *place)
{
    struct usage_container *c = container_at(b, card, place);
    struct usage_pid *pids = (struct usage_pid *)c->pids;
    if ((c->n_pids & (c->n_pids - 1)) == 0) { /* full */
        pids = arena_alloc(&b->u->arena, (2 * c->n_pids + 1) * sizeof *pids);
        if (c->n_pids)
            memcpy(pids, c->pids, c->n_pids * sizeof *pids);
    }
    pids[c->n_pids++] = place->pid;
    c->pids = pids;
    c->used_mib = add(c->used_mib, process->bytes);
    c->has_library |= place->slots != NULL;
    if (process->bytes > 0 && place->slots)
        add_limit(c, place, process->bytes, b->cards[card].uuid);
    c->sm_percent = add(c->sm_percent, process->sm_percent);
}

/* `place` NULL: not known. The process can choose its name. */
static void add_outside(struct builder *b, size_t card, const struct gpu_process *process,
                        const struct usage_place *place, bool unmapped)
{
    struct usage_process *p = &b->outside[b->u->n_outside++];
    struct span name = place ? place->name : (struct span){0};
    *p = (struct usage_process){
        .card = card,
        .pid = {process->pid, place ? place->pid.started : 0},
        .unmapped = unmapped,
        .used_mib = mib_of(process->bytes),
        .sm_percent = process->sm_percent,
    };
    for (size_t i = 0; i < name.n && i < USAGE_NAME - 1; i++)
        p->name[i] = name.p[i] >= ' ' && name.p[i] <= '~' ? name.p[i] : '?';
}

static void add_process(struct builder *b, size_t card, const struct gpu_process *process)
{
    const struct usage_place *const places = b->in.places;
    size_t at = ARRAY_LOWER_BOUND(p, places, b->in.n_places, p->pid.pid < process->pid);
    const struct usage_place *place =
        at < b->in.n_places && places[at].pid.pid == process->pid ? &places[at] : NULL;
    enum usage_place_kind kind = place ? place->kind : USAGE_UNMAPPED;
    if (kind == USAGE_CONTAINER && !place->pod_uid.n && !place->container_id.n)
        kind = USAGE_UNMAPPED;
    if (kind == USAGE_ENDED)
        return;
    b->cards[card].complete &= process->bytes >= 0 && kind != USAGE_UNMAPPED;
    if (kind == USAGE_CONTAINER)
        add_use(b, card, process, place);
    else
        add_outside(b, card, process, place, kind == USAGE_UNMAPPED);
}

static int64_t whole_mib(const struct gpu_card *card, enum gpu_metric metric)
{
    int64_t bytes = gpu_value(card, metric, -1);
    return bytes < 0 ? -1 : bytes / MIB;
}

static void add_cards(struct builder *b)
{
    const struct gpu_sample *s = b->in.sample;
    struct usage *u = b->u;
    size_t all = 0;
    for (size_t i = 0; i < s->n_cards; i++)
        all += s->cards[i].n_processes;
    u->cards = b->cards = arena_zalloc(&u->arena, (s->n_cards + 1) * sizeof *b->cards);
    u->outside = b->outside = arena_zalloc(&u->arena, (all + 1) * sizeof *b->outside);
    ARRAY_EACH_ITEM(const struct gpu_card, from, s->cards, s->n_cards)
    {
        struct usage_card *card = &b->cards[u->n_cards];
        if (from->state == GPU_MIG)
            continue;
        *card = (struct usage_card){
            .index = from->index,
            .uuid = arena_copy(&u->arena, span_of(from->uuid)),
            .total_mib = whole_mib(from, GPU_MEM_TOTAL),
            .free_mib = whole_mib(from, GPU_MEM_FREE),
            .processes_known = from->processes_known,
            .complete = from->processes_known,
        };
        for (size_t k = 0; k < from->n_processes; k++)
            add_process(b, u->n_cards, &from->processes[k]);
        /* What the driver measures of cgroups on the card: also without a process that NVML
         * lists, and without managed memory, which only the sum of the processes has. */
        ARRAY_EACH_ITEM(const struct usage_limit, l, b->in.limits, b->in.n_limits)
        {
            if (l->used < 0 || !span_eq(l->uuid, card->uuid))
                continue;
            struct usage_container *c =
                container_at(b, u->n_cards,
                             &(struct usage_place){.pod_uid = l->pod_uid,
                                                   .container_id = l->container_id});
            c->by_driver = true;
            c->used_mib = l->used > c->used_mib ? l->used : c->used_mib;
        }
        u->n_cards++;
    }
    /* The percentages of processes that share the SMs add up to more than 100 only by
     * rounding and by different sampling times. */
    ARRAY_EACH_ITEM(struct usage_container, c, b->containers, b->n_containers)
    {
        c->used_mib = mib_of(c->used_mib);
        c->unlimited_mib = mib_of(c->unlimited_mib);
        c->context_mib = mib_of(c->context_mib);
        c->sm_percent = c->sm_percent > 100 ? 100 : c->sm_percent;
    }
}

/* -- what is promised -- */

/* While a container restarts, two container IDs can have its name: both have its promise.
 */
static void add_promise(struct builder *b, const struct usage_promise *p, size_t card)
{
    struct arena *a = &b->u->arena;
    bool any = false;
    ARRAY_EACH_ITEM(struct usage_container, c, b->containers, b->n_containers)
    {
        if (c->card != card || !is_named(c, p->ns, p->pod, p->container))
            continue;
        c->promised_mib = add(c->promised_mib, p->mib);
        c->promise_unclear |= p->mib < 0;
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
    add_container(b, &c);
}

static void add_promises(struct builder *b)
{
    const struct usage_input *in = &b->in;
    struct usage *u = b->u;
    struct usage_init_promise *inits =
        arena_alloc(&u->arena, (in->n_inits * u->n_cards + 1) * sizeof *inits);
    u->inits = inits;
    for (size_t k = 0; k < u->n_cards; k++) {
        struct span uuid = b->cards[k].uuid;
        for (size_t i = 0; i < in->n_promises && uuid.n; i++)
            if (span_eq(uuid, in->promises[i].uuid))
                add_promise(b, &in->promises[i], k);
        for (size_t i = 0; i < in->n_inits && uuid.n; i++) {
            const struct usage_init_promise *p = &in->inits[i];
            if (!span_eq(uuid, p->uuid))
                continue;
            inits[u->n_inits++] =
                (struct usage_init_promise){arena_copy(&u->arena, p->pod_uid),
                                            arena_copy(&u->arena, p->ns),
                                            arena_copy(&u->arena, p->pod),
                                            arena_copy(&u->arena, p->container),
                                            b->cards[k].uuid,
                                            p->mib,
                                            p->beside_mib,
                                            k};
        }
    }
}

/* -- what enforces promises -- */

static uint8_t enforced_by(const struct builder *b, struct usage_container *c)
{
    const struct usage_input *in = &b->in;
    const struct usage_card *card = &b->cards[c->card];
    uint8_t bits = in->isolation & SCV_ISOLATION_MPS;
    bool unread = false;
    if (c->promised_mib <= 0 || c->promised_mib >= card->total_mib)
        return 0; /* of a whole card there is nothing to enforce */
    for (size_t i = 0; i < in->n_readable; i++)
        unread |= span_eq(in->readable[i], card->uuid);
    ARRAY_EACH_ITEM(const struct usage_limit, l, in->limits, in->n_limits)
    {
        if (!span_eq(l->uuid, card->uuid) ||
            !(c->container_id.n ? span_eq(c->container_id, l->container_id)
                                : is_named(c, l->ns, l->pod, l->container)))
            continue;
        unread = false;
        if (l->hard <= (uint64_t)c->promised_mib * MIB)
            bits |= SCV_ISOLATION_DRIVER;
    }
    for (size_t i = 0; i < in->n_library && !c->n_pids; i++)
        c->has_library |=
            is_named(c, in->library[i].ns, in->library[i].pod, in->library[i].container);
    if (c->has_library && !c->unlimited_mib)
        bits |= SCV_ISOLATION_LIBRARY;
    if (!unread)
        bits |= in->isolation & SCV_ISOLATION_KNOWN;
    return bits ? SCV_ISOLATION_KNOWN | bits : 0;
}

void usage_build(const struct usage_input *in, struct usage *u)
{
    struct builder b = {.in = *in, .u = u};
    usage_fini(u);
    u->taken_ms = in->taken_ms;
    u->promised_ms = in->promised_ms;
    if (!in->sample)
        return;
    if (!in->promises_known)
        b.in.n_promises = b.in.n_listed = b.in.n_inits = 0;
    add_cards(&b);
    add_promises(&b);
    ARRAY_EACH_ITEM(struct usage_container, c, b.containers, b.n_containers)
    c->enforced_by = enforced_by(&b, c);
    u->n_containers = b.n_containers;
    struct usage_container *kept =
        arena_alloc(&u->arena, (b.n_containers + 1) * sizeof *kept);
    if (b.n_containers) {
        qsort(b.containers, b.n_containers, sizeof *b.containers, by_container);
        memcpy(kept, b.containers, b.n_containers * sizeof *kept);
    }
    u->containers = kept;
    free(b.containers);
}
