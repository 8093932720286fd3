/* SPDX-License-Identifier: Apache-2.0 */
#include "node/usage_priv.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

enum { MIB = 1 << 20 };

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
    const struct usage_row *x = a, *y = b;
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

static void add_cards(struct usage_builder *b)
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
    size_t low = 0, high = in->n_places;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (in->places[mid].pid.pid < pid)
            low = mid + 1;
        else
            high = mid;
    }
    return low < in->n_places && in->places[low].pid.pid == pid ? &in->places[low] : NULL;
}

static const struct usage_name *name_of(const struct usage_builder *b, struct span id)
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

static void add_outside(struct usage_builder *b, size_t card,
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

static void add_process(struct usage_builder *b, size_t card,
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
        b->rows[b->n_rows++] = (struct usage_row){card, process, place, name};
        b->unnamed[card] |= !name;
    }
}

static void add_processes(struct usage_builder *b)
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

/* -- containers -- */

struct usage_container *usage_add_container(struct usage_builder *b)
{
    MEM_GROW(b->containers, b->cap_containers, b->n_containers + 1);
    return &b->containers[b->n_containers++];
}

static bool is_same(const struct usage_row *a, const struct usage_row *b)
{
    return a->card == b->card && span_eq(a->place->pod_uid, b->place->pod_uid) &&
           span_eq(a->place->container_id, b->place->container_id);
}

/* A sum with an unknown part is unknown. The percentages of processes that share the SMs
 * add up to more than 100 only by rounding and by different sampling times. */
static void add_use(struct usage_container *c, const struct usage_row *rows, size_t n)
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
static void add_rows(struct usage_builder *b, const struct usage_row *first, size_t n)
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
    usage_promises_begin(b, first, &c);
    *usage_add_container(b) = c;
}

static void add_users(struct usage_builder *b)
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

/* -- the whole -- */

static void keep_containers(struct usage_builder *b)
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
    struct usage_builder b = {.in = in, .u = u};
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
    usage_promises_take(&b);
    keep_containers(&b);
    u->complete = true;
    for (size_t i = 0; i < u->n_cards; i++)
        u->complete &= u->cards[i].complete;
    free(b.rows);
    free(b.containers);
}

int64_t usage_beyond_mib(const struct usage_container *c)
{
    if (c->used_mib < 0 || c->promised_mib < 0)
        return -1;
    return c->used_mib > c->promised_mib ? c->used_mib - c->promised_mib : 0;
}
