/* SPDX-License-Identifier: Apache-2.0 */
/* Polls the kubelet and the device plugin's state file for the devices of containers. */
#include "agent/podresources.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "domain/scv.h"
#include "node/allocation.h"
#include "node/podresources_client.h"

enum {
    STATE_MAX = 16 << 20, /* bytes of the device plugin's state file */
    UNITS_EVERY = 10,     /* polls; a device plugin with another --memory-unit changes them */
};

/* -- sorted entries -- */

/* One id of one container. */
struct row {
    const struct podresources_entry *of;
    struct span id;
};

static int by_holder(const struct podresources_entry *a,
                     const struct podresources_entry *b)
{
    int order = span_cmp(a->ns, b->ns);
    if (!order)
        order = span_cmp(a->pod, b->pod);
    if (!order)
        order = span_cmp(a->container, b->container);
    return order ? order : span_cmp(a->resource, b->resource);
}

static int by_row(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    int order = x->of == y->of ? 0 : by_holder(x->of, y->of);
    return order ? order : span_cmp(x->id, y->id);
}

static size_t gpu_ids_of(const struct podresources_entry *e)
{
    enum ids_resource ours;
    return ids_resource_read(e->resource, &ours) || scv_is_nvidia_resource(e->resource)
               ? e->n_ids
               : 0;
}

void podresources_normalize(const struct podresources *from, struct arena *a,
                            struct podresources *to)
{
    cleanup_arena struct arena scratch = {0};
    size_t n = 0, all = 0;
    for (size_t i = 0; i < from->n; i++)
        all += gpu_ids_of(&from->entries[i]);
    struct row *rows = arena_alloc(&scratch, (all + 1) * sizeof *rows);
    for (size_t i = 0; i < from->n; i++)
        for (size_t k = 0; k < gpu_ids_of(&from->entries[i]); k++)
            rows[n++] = (struct row){&from->entries[i], from->entries[i].ids[k]};
    qsort(rows, n, sizeof *rows, by_row);
    struct podresources_entry *entries = arena_alloc(a, (n + 1) * sizeof *entries);
    struct span *ids = arena_alloc(a, (n + 1) * sizeof *ids);
    *to = (struct podresources){.entries = entries};
    for (size_t i = 0; i < n; i++) {
        const struct row *row = &rows[i];
        bool same = i && by_holder(rows[i - 1].of, row->of) == 0;
        if (same && span_eq(rows[i - 1].id, row->id))
            continue;
        if (!same)
            entries[to->n++] =
                (struct podresources_entry){.ns = arena_copy(a, row->of->ns),
                                            .pod = arena_copy(a, row->of->pod),
                                            .container = arena_copy(a, row->of->container),
                                            .resource = arena_copy(a, row->of->resource),
                                            .ids = ids};
        *ids++ = arena_copy(a, row->id);
        entries[to->n - 1].n_ids++;
    }
}

/* -- units -- */

static int by_tag(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct ids_tag));
}

void podresources_count_units(const struct podres_allocatable *all, struct arena *a,
                              struct podresources *to)
{
    size_t max = 0, found = 0, kept = 0;
    for (size_t i = 0; i < all->n; i++)
        max += all->devices[i].n_ids;
    struct podresources_units *units = arena_zalloc(a, (max + 1) * sizeof *units);
    for (size_t i = 0; i < all->n; i++) {
        const struct podres_devices *d = &all->devices[i];
        enum ids_resource resource;
        struct ids_id id;
        if (!ids_resource_read(d->resource, &resource) || resource != IDS_MEM)
            continue;
        for (size_t k = 0; k < d->n_ids; k++)
            if (ids_read(IDS_MEM, d->ids[k], &id))
                units[found++].tag = id.tag;
    }
    qsort(units, found, sizeof *units, by_tag);
    for (size_t i = 0; i < found; i++) {
        if (!kept || by_tag(&units[kept - 1], &units[i]))
            units[kept++] = (struct podresources_units){units[i].tag, 0};
        units[kept - 1].n++;
    }
    to->units = units;
    to->n_units = kept;
}

int64_t podresources_unit_mib(int64_t total_mib, int64_t n)
{
    for (int64_t unit = 1; n > 0 && unit <= total_mib; unit *= 2)
        if (total_mib / unit == n)
            return unit;
    return -1;
}

/* -- init containers -- */

/* The units of the pod's sidecars on the card. Those that start after the init container
 * count, too: the order of the allocations is lost when the plugin recovers them. */
static int64_t units_beside(const struct allocation_set *set,
                            const struct allocation *init, struct span uuid)
{
    int64_t units = 0;
    for (size_t i = 0; i < set->n; i++) {
        const struct allocation *al = set->items[i];
        const struct allocation_card *card = allocation_card(al, uuid);
        if (card && al->role == CONTAINER_SIDECAR && span_eq(al->uid, init->uid))
            units += (int64_t)card->n_units;
    }
    return units;
}

static void add_inits(const struct allocation_set *set, struct arena *a,
                      struct podresources *to)
{
    size_t n = 0;
    for (size_t i = 0; i < set->n; i++)
        n += set->items[i]->n_cards;
    struct podresources_init *inits = arena_alloc(a, (n + 1) * sizeof *inits);
    to->inits = inits;
    to->n_inits = 0;
    to->inits_known = true;
    for (size_t i = 0; i < set->n; i++) {
        const struct allocation *al = set->items[i];
        for (size_t c = 0; c < al->n_cards && al->role == CONTAINER_INIT; c++)
            inits[to->n_inits++] = (struct podresources_init){
                .pod_uid = arena_copy(a, al->uid),
                .ns = arena_copy(a, al->ns),
                .pod = arena_copy(a, al->name),
                .container = arena_copy(a, al->container),
                .uuid = arena_copy(a, al->cards[c].uuid),
                .whole = al->resource == IDS_COUNT,
                .units = (int64_t)al->cards[c].n_units,
                .beside = units_beside(set, al, al->cards[c].uuid)};
    }
}

int podresources_read_inits(const char *path, struct span node, struct arena *a,
                            struct podresources *to, struct err *err)
{
    cleanup_buf struct buf text = {0};
    struct allocation_set set = {0};
    *err = (struct err){0};
    int rc = file_read(path, STATE_MAX, &text, err);
    if (rc && err->code == ERR_NOT_FOUND)
        rc = 0;
    else if (rc == 0)
        rc = allocation_set_read(&set, buf_span(&text), node, err);
    if (rc == 0)
        add_inits(&set, a, to);
    allocation_set_fini(&set);
    return rc;
}

/* -- the kubelet -- */

int podresources_list(const char *socket, struct arena *a, struct podresources *to,
                      struct err *err)
{
    struct podres_list list;
    size_t devices = 0, containers = 0;
    int64_t asked_ms = clock_mono_ms();
    if (podresources_client_list(socket, a, &list, err))
        return -1;
    for (size_t i = 0; i < list.n; i++) {
        containers += list.pods[i].n_containers;
        for (size_t k = 0; k < list.pods[i].n_containers; k++)
            devices += list.pods[i].containers[k].n_devices;
    }
    struct podresources_entry *entries = arena_alloc(a, (devices + 1) * sizeof *entries);
    struct usage_listed *listed = arena_alloc(a, (containers + 1) * sizeof *listed);
    *to = (struct podresources){
        .entries = entries, .listed = listed, .asked_ms = asked_ms};
    for (size_t i = 0; i < list.n; i++)
        for (size_t k = 0; k < list.pods[i].n_containers; k++) {
            const struct podres_pod *pod = &list.pods[i];
            const struct podres_container *c = &pod->containers[k];
            listed[to->n_listed++] = (struct usage_listed){pod->ns, pod->name, c->name};
            for (size_t d = 0; d < c->n_devices; d++)
                entries[to->n++] = (struct podresources_entry){
                    pod->ns,          pod->name, c->name, c->devices[d].resource,
                    c->devices[d].ids, c->devices[d].n_ids};
        }
    return 0;
}

struct podresources_poller {
    struct podresources_poller_settings settings;
    pthread_t thread;
    struct stop_flag stop;
    unsigned polls;
    bool units_known;
    bool state_failed; /* it was logged */
};

/* The units of the cards. A kubelet that does not answer leaves them unknown. */
static void poll_units(struct podresources_poller *l, struct arena *a,
                       struct podresources *pods)
{
    struct podres_allocatable all = {0};
    struct err err = {0};
    if (l->polls++ % UNITS_EVERY && l->units_known)
        return;
    if (podresources_client_allocatable(l->settings.socket, a, &all, &err) == 0)
        podresources_count_units(&all, a, pods);
    l->units_known = pods->n_units > 0;
}

static void poll(struct podresources_poller *l)
{
    const struct podresources_poller_settings *set = &l->settings;
    cleanup_arena struct arena a = {0};
    struct podresources pods = {0};
    struct err err = {0}, state = {0};
    if (podresources_list(set->socket, &a, &pods, &err)) {
        set->polled(set->ctx, &pods, &err);
        return;
    }
    poll_units(l, &a, &pods);
    int rc = podresources_read_inits(set->plugin_state, set->node, &a, &pods, &state);
    if (rc && !l->state_failed)
        log_warn("pods",
                 "cannot read the state of the device plugin; promises of init "
                 "containers stay as they were",
                 LOG_ERR(&state));
    l->state_failed = rc != 0;
    set->polled(set->ctx, &pods, NULL);
}

static void *run_poller(void *arg)
{
    struct podresources_poller *l = arg;
    do
        poll(l);
    while (!stop_flag_wait(&l->stop, l->settings.interval_ms));
    return NULL;
}

struct podresources_poller *
podresources_poller_start(const struct podresources_poller_settings *settings)
{
    struct podresources_poller *l = xcalloc(1, sizeof *l);
    l->settings = *settings;
    stop_flag_init(&l->stop);
    if (pthread_create(&l->thread, NULL, run_poller, l))
        abort();
    pthread_setname_np(l->thread, "pods");
    return l;
}

void podresources_poller_stop(struct podresources_poller *l)
{
    if (!l)
        return;
    stop_flag_set(&l->stop);
    pthread_join(l->thread, NULL);
}

void podresources_poller_free(struct podresources_poller *l)
{
    if (!l)
        return;
    stop_flag_fini(&l->stop);
    free(l);
}
