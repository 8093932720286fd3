/* SPDX-License-Identifier: Apache-2.0 */
/* The devices of containers, from the kubelet and from what this process allocated. */
#include "node/podresources.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "domain/scv.h"
#include "node/allocation.h"

enum { ADMITTING_MS = 100 }; /* between two looks whether an admission has ended */

struct podresources *podresources_ref(struct podresources *p)
{
    p->refs++;
    return p;
}

void podresources_unref(struct podresources *p)
{
    if (!p || --p->refs)
        return;
    podresources_unref(p->asked);
    allocation_set_fini(&p->allocations);
    arena_fini(&p->arena);
    free(p);
}

/* -- sorted entries -- */

static int by_holder(const struct podresources_entry *a,
                     const struct podresources_entry *b)
{
    return span_cmp(a->ns, b->ns)
               ?: span_cmp(a->pod, b->pod)
               ?: span_cmp(a->container, b->container)
               ?: span_cmp(a->resource, b->resource);
}

/* Of entries with one id each. */
static int by_id(const void *a, const void *b)
{
    const struct podresources_entry *x = a, *y = b;
    return by_holder(x, y) ?: span_cmp(*x->ids, *y->ids);
}

static int by_entry(const void *a, const void *b)
{
    return by_holder(a, b);
}

void podresources_sort(struct podresources *to)
{
    const struct podres_list *list = &to->list;
    const struct allocation_set *set = &to->allocations;
    cleanup_free struct podresources_entry *rows = NULL;
    size_t n = 0, cap = 0, containers = 0;
    for (size_t i = 0; i < list->n; i++)
        containers += list->pods[i].n_containers;
    struct usage_listed *listed =
        arena_alloc(&to->arena, (containers + 1) * sizeof *listed);
    to->listed = listed;
    to->n = to->n_listed = 0;
    for (size_t i = 0; i < list->n; i++)
        for (size_t k = 0; k < list->pods[i].n_containers; k++) {
            const struct podres_pod *pod = &list->pods[i];
            const struct podres_container *c = &pod->containers[k];
            ARRAY_EACH_ITEM(const struct podres_devices, of, c->devices, c->n_devices)
            {
                enum ids_resource ours;
                if (!ids_resource_read(of->resource, &ours) &&
                    !scv_is_nvidia_resource(of->resource))
                    continue;
                MEM_GROW(rows, cap, n + of->n_ids);
                for (size_t at = 0; at < of->n_ids; at++)
                    rows[n++] = (struct podresources_entry){
                        pod->ns,      pod->name, c->name, of->resource,
                        &of->ids[at], 1,         0,       NULL};
            }
            listed[to->n_listed++] =
                (struct usage_listed){pod->ns, pod->name, pod->containers[k].name};
        }
    if (n)
        qsort(rows, n, sizeof *rows, by_id);
    struct podresources_entry *entries =
        arena_alloc(&to->arena, (n + set->n + 1) * sizeof *entries);
    struct span *ids = arena_alloc(&to->arena, (n + 1) * sizeof *ids);
    to->entries = entries;
    for (size_t i = 0; i < n; i++) {
        bool same = i && by_holder(&rows[i - 1], &rows[i]) == 0;
        if (same && span_eq(*rows[i - 1].ids, *rows[i].ids))
            continue;
        *ids = *rows[i].ids;
        if (same) {
            entries[to->n - 1].n_ids++;
        } else {
            entries[to->n] = rows[i];
            entries[to->n++].ids = ids;
        }
        ids++;
    }
    const size_t n_listed = to->n;
    ALLOCATION_EACH(al, set)
    {
        struct podresources_entry *e = &entries[to->n];
        if (al->role == CONTAINER_INIT)
            continue;
        *e = (struct podresources_entry){
            al->ns,        al->name,
            al->container, span_of(ids_resource_name(al->resource)),
            al->others,    al->n_others,
            al->slot_mib,  al};
        struct podresources_entry *shown =
            n_listed ? bsearch(e, entries, n_listed, sizeof *e, by_entry) : NULL;
        if (shown)
            shown->slot_mib = e->slot_mib;
        else
            to->n++;
    }
    qsort(entries, to->n, sizeof *entries, by_entry);
}

size_t podresources_ids_on(const struct podresources_entry *e,
                           const struct ids_card *card)
{
    const struct allocation_card *its = e->al ? allocation_card(e->al, card->uuid) : NULL;
    size_t n = its ? its->n_units + (e->al->resource == IDS_COUNT) : 0;
    for (size_t i = 0; i < e->n_ids; i++)
        n += ids_match_card(e->resource, e->ids[i], card);
    return n;
}

/* -- the kubelet -- */

int podresources_list(const char *socket, struct podresources *to, struct err *err)
{
    to->asked_ms = clock_mono_ms();
    return podresources_client_list(socket, &to->arena, &to->list, err);
}

struct podresources_poller {
    struct podresources_poller_settings settings;
    struct worker *thread;
    struct podresources *asked; /* the last answer; NULL: the last call failed */
    int64_t ask_ms, due_ms;     /* the next call; the next look */

    pthread_mutex_t lock; /* protects the rest */
    struct buf state;     /* the allocations */
    bool allocates, changed;
};

static void tick(void *poller, void *no_job)
{
    (void)no_job;
    struct podresources_poller *l = poller;
    const struct podresources_poller_settings *set = &l->settings;
    const int64_t now = clock_mono_ms();
    struct err err = {0};
    pthread_mutex_lock(&l->lock);
    bool changed = l->changed;
    pthread_mutex_unlock(&l->lock);
    const bool waits =
        set->admits && now < l->ask_ms + set->interval_ms && set->admits(set->ctx);
    if (now >= l->ask_ms && !waits) {
        podresources_unref(l->asked);
        l->asked = podresources_ref(xcalloc(1, sizeof *l->asked));
        if (podresources_list(set->socket, l->asked, &err)) {
            podresources_unref(steal(&l->asked));
            set->polled(set->ctx, NULL, &err);
        }
        changed = true;
        l->ask_ms = clock_mono_ms() + set->interval_ms;
    }
    l->due_ms = now >= l->ask_ms ? now + ADMITTING_MS : l->ask_ms;
    if (!l->asked || !changed)
        return;
    /* After the call, which lasts: what was allocated meanwhile belongs to the answer. */
    cleanup_buf struct buf state = {0};
    pthread_mutex_lock(&l->lock);
    const bool allocates = l->allocates;
    l->changed = false;
    buf_set(&state, buf_span(&l->state));
    pthread_mutex_unlock(&l->lock);
    struct podresources *pods = podresources_ref(xcalloc(1, sizeof *pods));
    pods->asked = podresources_ref(l->asked);
    pods->list = l->asked->list;
    pods->asked_ms = l->asked->asked_ms;
    pods->allocates =
        allocates &&
        allocation_set_read(&pods->allocations, buf_span(&state), set->node, NULL) == 0;
    podresources_sort(pods);
    set->polled(set->ctx, pods, NULL);
    podresources_unref(pods);
}

static int64_t due(void *poller)
{
    return ((const struct podresources_poller *)poller)->due_ms;
}

struct podresources_poller *
podresources_poller_start(const struct podresources_poller_settings *settings)
{
    struct podresources_poller *l = xcalloc(1, sizeof *l);
    l->settings = *settings;
    l->ask_ms = clock_mono_ms();
    pthread_mutex_init(&l->lock, NULL);
    l->thread = worker_start("pods", tick, l);
    worker_tick(l->thread, due);
    return l;
}

void podresources_poller_allocations(struct podresources_poller *l, struct span state)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    buf_set(&l->state, state);
    l->allocates = l->changed = true;
    pthread_mutex_unlock(&l->lock);
    worker_wake(l->thread);
}

bool podresources_poller_stop(struct podresources_poller *l, int64_t until_ms)
{
    return !l || worker_stop_until(l->thread, until_ms);
}

void podresources_poller_free(struct podresources_poller *l)
{
    if (!l)
        return;
    worker_free(l->thread);
    podresources_unref(l->asked);
    pthread_mutex_destroy(&l->lock);
    buf_fini(&l->state);
    free(l);
}
