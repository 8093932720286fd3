/* SPDX-License-Identifier: Apache-2.0 */
/* Joins NVML, /proc and the kubelet into the use and promise of each container. */
#include "node/usage.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/mem.h"

enum { MIB = 1 << 20 };

/* One process on one card. */
struct row {
    size_t card;
    const struct gpu_process *process;
    const struct usage_place *place; /* NULL: it has none */
    const struct usage_name *name;   /* NULL: its container has no known name */
};

struct builder {
    const struct usage_input *in;
    struct usage *u;
    struct usage_card *cards;
    const struct usage_name *names; /* sorted by container ID */
    struct row *rows;         /* of processes in containers */
    size_t n_rows;
    bool unnamed[GPU_MAX_CARDS]; /* a container on the card has no known name */
    struct usage_container *containers;
    size_t n_containers, cap_containers;
    struct usage_process *outside;
    size_t n_outside;
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

/* -- order -- */

static int compare(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int by_container_id(const void *a, const void *b)
{
    return span_cmp(((const struct usage_name *)a)->container_id,
                    ((const struct usage_name *)b)->container_id);
}

static int by_row(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    int order = compare((int64_t)x->card, (int64_t)y->card);
    if (!order)
        order = span_cmp(x->place->pod_uid, y->place->pod_uid);
    if (!order)
        order = span_cmp(x->place->container_id, y->place->container_id);
    return order ? order : compare(x->process->pid, y->process->pid);
}

static int by_container(const void *a, const void *b)
{
    const struct usage_container *x = a, *y = b;
    int order = compare((int64_t)x->card, (int64_t)y->card);
    order = order ? order : span_cmp(x->ns, y->ns);
    order = order ? order : span_cmp(x->pod, y->pod);
    order = order ? order : span_cmp(x->name, y->name);
    order = order ? order : span_cmp(x->pod_uid, y->pod_uid);
    return order ? order : span_cmp(x->container_id, y->container_id);
}

/* -- cards -- */

static void set_incomplete(struct usage_card *card, const char *why)
{
    card->complete = false;
    if (!card->incomplete[0])
        snprintf(card->incomplete, sizeof card->incomplete, "%s", why);
}

static void add_cards(struct builder *b)
{
    const struct gpu_sample *s = b->in->sample;
    b->cards = arena_zalloc(&b->u->arena, (s->n_cards + 1) * sizeof *b->cards);
    for (size_t i = 0; i < s->n_cards; i++) {
        const struct gpu_card *from = &s->cards[i];
        struct usage_card *card = &b->cards[b->u->n_cards];
        if (from->state == GPU_MIG)
            continue;
        *card = (struct usage_card){
            .index = from->index,
            .uuid = arena_copy(&b->u->arena, span_of(from->uuid)),
            .total_mib = gpu_value(from, GPU_MEM_TOTAL, -1),
            .free_mib = gpu_value(from, GPU_MEM_FREE, -1),
            .complete = true,
        };
        card->total_mib = card->total_mib < 0 ? -1 : card->total_mib / MIB;
        card->free_mib = card->free_mib < 0 ? -1 : card->free_mib / MIB;
        if (!from->processes_known)
            set_incomplete(card, "NVML does not list its processes");
        b->u->n_cards++;
    }
    b->u->cards = b->cards;
}

/* -- processes -- */

static const struct usage_place *place_of(const struct usage_input *in, int64_t pid)
{
    size_t at = ARRAY_LOWER_BOUND(p, in->places, in->n_places, p->pid.pid < pid);
    return at < in->n_places && in->places[at].pid.pid == pid ? &in->places[at] : NULL;
}

static const struct usage_name *name_of(const struct builder *b, struct span id)
{
    struct usage_name key = {.container_id = id};
    if (!id.n || !b->in->n_names)
        return NULL;
    return bsearch(&key, b->names, b->in->n_names, sizeof key, by_container_id);
}

/* The process chooses its name. */
static void copy_name(char out[USAGE_NAME], struct span name)
{
    size_t n = name.n < USAGE_NAME ? name.n : USAGE_NAME - 1;
    for (size_t i = 0; i < n; i++)
        out[i] = name.p[i] >= ' ' && name.p[i] <= '~' ? name.p[i] : '?';
    out[n] = '\0';
}

static void add_outside(struct builder *b, size_t card,
                        const struct gpu_process *process,
                        const struct usage_place *place, bool unmapped)
{
    struct usage_process *p = &b->outside[b->n_outside++];
    *p = (struct usage_process){
        .card = card,
        .pid = {process->pid, place ? place->pid.started : 0},
        .unmapped = unmapped,
        .used_mib = mib_of(process->bytes),
        .sm_percent = process->sm_percent,
    };
    if (place)
        copy_name(p->name, place->name);
}

static void add_process(struct builder *b, size_t card,
                        const struct gpu_process *process)
{
    const struct usage_place *place = place_of(b->in, process->pid);
    enum usage_place_kind kind = place ? place->kind : USAGE_UNMAPPED;
    bool nowhere = kind == USAGE_CONTAINER && !place->pod_uid.n && !place->container_id.n;
    if (kind == USAGE_ENDED)
        return;
    if (process->bytes < 0)
        set_incomplete(&b->cards[card], "NVML does not know what a process uses");
    if (kind == USAGE_UNMAPPED || nowhere) {
        set_incomplete(&b->cards[card], "it is not known where a process runs");
        add_outside(b, card, process, place, true);
    } else if (kind == USAGE_OUTSIDE) {
        add_outside(b, card, process, place, false);
    } else {
        const struct usage_name *name = name_of(b, place->container_id);
        b->rows[b->n_rows++] = (struct row){card, process, place, name};
        b->unnamed[card] |= !name;
    }
}

static void add_processes(struct builder *b)
{
    const struct gpu_sample *s = b->in->sample;
    size_t all = 0, card = 0;
    for (size_t i = 0; i < s->n_cards; i++)
        all += s->cards[i].n_processes;
    b->rows = xcalloc(all + 1, sizeof *b->rows);
    b->outside = arena_alloc(&b->u->arena, (all + 1) * sizeof *b->outside);
    for (size_t i = 0; i < s->n_cards; i++) {
        if (s->cards[i].state == GPU_MIG)
            continue;
        for (size_t k = 0; k < s->cards[i].n_processes; k++)
            add_process(b, card, &s->cards[i].processes[k]);
        card++;
    }
    b->u->outside = b->outside;
    b->u->n_outside = b->n_outside;
}

/* -- promises -- */

/* Is it the container of that name? */
static bool is_named(const struct usage_name *name, struct span ns, struct span pod,
                     struct span container)
{
    return name && span_eq(name->ns, ns) && span_eq(name->pod, pod) &&
           span_eq(name->container, container);
}

/* Whether the container has a promise on any card. Without one, its pod may have been
 * promised a card by its labels, without a device of the kubelet. */
static bool has_promise(const struct usage_input *in, const struct usage_name *name)
{
    for (size_t i = 0; in->promises_known && i < in->n_promises; i++)
        if (is_named(name, in->promises[i].ns, in->promises[i].pod,
                     in->promises[i].container))
            return true;
    return false;
}

static bool is_listed(const struct usage_input *in, const struct usage_name *name)
{
    for (size_t i = 0; in->promises_known && i < in->n_listed; i++)
        if (is_named(name, in->listed[i].ns, in->listed[i].pod, in->listed[i].container))
            return true;
    return false;
}

/* What the init container was promised on the card; NULL: nothing. *known: it was
 * promised a part of some card. A pod of the same name has another UID. */
static const struct usage_init_promise *init_of(const struct builder *b,
                                                const struct row *row, bool *known)
{
    *known = false;
    for (size_t i = 0; b->in->promises_known && i < b->in->n_inits; i++) {
        const struct usage_init_promise *p = &b->in->inits[i];
        if (!span_eq(p->pod_uid, row->place->pod_uid) ||
            !is_named(row->name, p->ns, p->pod, p->container))
            continue;
        *known = true;
        if (span_eq(p->uuid, b->cards[row->card].uuid))
            return p;
    }
    return NULL;
}

/* An init container, which the kubelet does not list, has a promise all the same. */
static void begin_init(const struct builder *b, const struct row *row,
                      struct usage_container *c)
{
    const struct usage_init_promise *p = init_of(b, row, &c->init);
    if (!c->init || !b->cards[row->card].uuid.n)
        return;
    c->promised_mib = p ? p->mib : 0;
    c->promise_unclear = c->promised_mib < 0;
}

/* Sets what is known of the promise of a container that uses the card: nothing, or that it
 * is an init container. */
static void begin_promise(const struct builder *b, const struct row *row,
                          struct usage_container *c)
{
    c->promised_mib = has_promise(b->in, row->name) ? 0 : -1;
    c->promise_unclear = !b->cards[row->card].uuid.n || !is_listed(b->in, row->name);
    if (c->promise_unclear)
        begin_init(b, row, c);
}

/* -- containers -- */

static struct usage_container *add_container(struct builder *b)
{
    MEM_GROW(b->containers, b->cap_containers, b->n_containers + 1);
    return &b->containers[b->n_containers++];
}

static bool is_same(const struct row *a, const struct row *b)
{
    return a->card == b->card && span_eq(a->place->pod_uid, b->place->pod_uid) &&
           span_eq(a->place->container_id, b->place->container_id);
}

/* A sum with an unknown part is unknown. The percentages of processes that share the SMs
 * add up to more than 100 only by rounding and by different sampling times. */
static void add_use(struct usage_container *c, const struct row *rows, size_t n)
{
    int64_t bytes = 0, percent = 0;
    for (size_t i = 0; i < n; i++) {
        const struct gpu_process *p = rows[i].process;
        bytes = bytes < 0 || p->bytes < 0 ? -1 : bytes + p->bytes;
        percent = percent < 0 || p->sm_percent < 0 ? -1 : percent + p->sm_percent;
    }
    c->used_mib = mib_of(bytes);
    c->sm_percent = percent > 100 ? 100 : percent;
}

/* The container of n rows. */
static void add_rows(struct builder *b, const struct row *first, size_t n)
{
    struct arena *a = &b->u->arena;
    struct usage_pid *pids = arena_alloc(a, n * sizeof *pids);
    struct usage_container c = {
        .card = first->card,
        .pod_uid = arena_copy(a, first->place->pod_uid),
        .container_id = arena_copy(a, first->place->container_id),
        .pids = pids,
        .n_pids = n,
    };
    if (first->name) {
        c.ns = arena_copy(a, first->name->ns);
        c.pod = arena_copy(a, first->name->pod);
        c.name = arena_copy(a, first->name->container);
    }
    for (size_t i = 0; i < n; i++)
        pids[i] = first[i].place->pid;
    add_use(&c, first, n);
    begin_promise(b, first, &c);
    *add_container(b) = c;
}

static void add_users(struct builder *b)
{
    size_t first = 0;
    if (b->n_rows)
        qsort(b->rows, b->n_rows, sizeof *b->rows, by_row);
    for (size_t i = 1; i <= b->n_rows; i++)
        if (i == b->n_rows || !is_same(&b->rows[first], &b->rows[i])) {
            add_rows(b, &b->rows[first], i - first);
            first = i;
        }
}

/* -- the promises of all containers -- */

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
static void add_promise_on(struct builder *b, const struct usage_promise *p,
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
    *add_container(b) = c;
}

static void add_promises(struct builder *b)
{
    for (size_t i = 0; b->in->promises_known && i < b->in->n_promises; i++)
        for (size_t k = 0; k < b->u->n_cards; k++)
            if (b->cards[k].uuid.n && span_eq(b->cards[k].uuid, b->in->promises[i].uuid))
                add_promise_on(b, &b->in->promises[i], k);
}

static void add_inits(struct builder *b)
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

/* -- the whole -- */

static void keep_containers(struct builder *b)
{
    struct usage_container *kept =
        arena_alloc(&b->u->arena, (b->n_containers + 1) * sizeof *kept);
    if (b->n_containers) {
        qsort(b->containers, b->n_containers, sizeof *b->containers, by_container);
        memcpy(kept, b->containers, b->n_containers * sizeof *kept);
    }
    b->u->containers = kept;
    b->u->n_containers = b->n_containers;
}

void usage_build(const struct usage_input *in, struct usage *u)
{
    struct builder b = {.in = in, .u = u};
    usage_fini(u);
    u->taken_ms = in->taken_ms;
    u->promised_ms = in->promised_ms;
    if (!in->sample)
        return;
    cleanup_free struct usage_name *names = xcalloc(in->n_names + 1, sizeof *names);
    if (in->n_names) {
        memcpy(names, in->names, in->n_names * sizeof *names);
        qsort(names, in->n_names, sizeof *names, by_container_id);
    }
    b.names = names;
    add_cards(&b);
    add_processes(&b);
    add_users(&b);
    add_promises(&b);
    add_inits(&b);
    keep_containers(&b);
    u->complete = true;
    for (size_t i = 0; i < u->n_cards; i++)
        u->complete &= u->cards[i].complete;
    free(b.rows);
    free(b.containers);
}
