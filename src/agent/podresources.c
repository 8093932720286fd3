/* SPDX-License-Identifier: Apache-2.0 */
/* Polls the kubelet and the device plugin's state file for the devices of containers. */
#include "agent/podresources.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "domain/scv.h"
#include "node/allocation.h"

enum {
    UNITS_EVERY = 10, /* polls; a device plugin with another --memory-unit changes them */
};

struct podresources *podresources_ref(struct podresources *p)
{
    p->refs++;
    return p;
}

void podresources_unref(struct podresources *p)
{
    if (!p || --p->refs)
        return;
    allocation_set_fini(&p->plugin);
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

/* Appends an entry for each id of the container. */
static void add_ids(const struct podres_pod *pod, const struct podres_container *c,
                    struct podresources_entry **rows, size_t *n, size_t *cap)
{
    ARRAY_EACH_ITEM(const struct podres_devices, of, c->devices, c->n_devices)
    {
        enum ids_resource ours;
        if (!ids_resource_read(of->resource, &ours) &&
            !scv_is_nvidia_resource(of->resource))
            continue;
        MEM_GROW(*rows, *cap, *n + of->n_ids);
        for (size_t i = 0; i < of->n_ids; i++)
            (*rows)[(*n)++] = (struct podresources_entry){
                pod->ns, pod->name, c->name, of->resource, &of->ids[i], 1};
    }
}

void podresources_sort(const struct podres_list *list, struct podresources *to)
{
    cleanup_free struct podresources_entry *rows = NULL;
    size_t n = 0, cap = 0;
    for (size_t i = 0; i < list->n; i++)
        for (size_t k = 0; k < list->pods[i].n_containers; k++)
            add_ids(&list->pods[i], &list->pods[i].containers[k], &rows, &n, &cap);
    if (n)
        qsort(rows, n, sizeof *rows, by_id);
    struct podresources_entry *entries =
        arena_alloc(&to->arena, (n + 1) * sizeof *entries);
    struct span *ids = arena_alloc(&to->arena, (n + 1) * sizeof *ids);
    to->entries = entries;
    to->n = 0;
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
}

size_t podresources_ids_on(const struct podresources_entry *e,
                           const struct ids_card *card)
{
    size_t n = 0;
    for (size_t i = 0; i < e->n_ids; i++)
        n += ids_match_card(e->resource, e->ids[i], card);
    return n;
}

/* -- units -- */

int64_t podresources_units_of(const struct podresources_units *units,
                              const struct ids_tag *tag)
{
    for (size_t i = 0; i < units->n; i++)
        if (!memcmp(&units->cards[i].tag, tag, sizeof *tag))
            return units->cards[i].n;
    return 0;
}

/* A node has no more cards than there is room for. */
static void add_units(struct podresources_units *units, const struct ids_tag *tag,
                      int64_t n)
{
    size_t i = 0;
    while (i < units->n && memcmp(&units->cards[i].tag, tag, sizeof *tag))
        i++;
    if (i == ARRAY_LEN(units->cards))
        return;
    units->cards[i].tag = *tag;
    units->cards[i].n += n;
    units->n += i == units->n;
}

void podresources_count_units(const struct podres_allocatable *all,
                              struct podresources_units *units)
{
    const struct podresources_units former = *units;
    *units = (struct podresources_units){0};
    ARRAY_EACH_ITEM(const struct podres_devices, d, all->devices, all->n)
    {
        enum ids_resource resource;
        struct ids_id id;
        if (!ids_resource_read(d->resource, &resource) || resource != IDS_MEM)
            continue;
        for (size_t k = 0; k < d->n_ids; k++)
            if (ids_read(IDS_MEM, d->ids[k], &id))
                add_units(units, &id.tag, 1);
    }
    for (size_t i = 0; i < former.n; i++)
        if (!podresources_units_of(units, &former.cards[i].tag))
            add_units(units, &former.cards[i].tag, former.cards[i].n);
}

int64_t podresources_unit_mib(int64_t total_mib, int64_t n)
{
    for (int64_t unit = 1; n > 0 && unit <= total_mib; unit *= 2)
        if (total_mib / unit == n)
            return unit;
    return -1;
}

/* -- the kubelet -- */

int podresources_list(const char *socket, struct podresources *to, struct err *err)
{
    struct podres_list list;
    size_t containers = 0;
    to->asked_ms = clock_mono_ms();
    if (podresources_client_list(socket, &to->arena, &list, err))
        return -1;
    podresources_sort(&list, to);
    for (size_t i = 0; i < list.n; i++)
        containers += list.pods[i].n_containers;
    struct usage_listed *listed =
        arena_alloc(&to->arena, (containers + 1) * sizeof *listed);
    to->listed = listed;
    for (size_t i = 0; i < list.n; i++)
        for (size_t k = 0; k < list.pods[i].n_containers; k++)
            listed[to->n_listed++] = (struct usage_listed){
                list.pods[i].ns, list.pods[i].name, list.pods[i].containers[k].name};
    return 0;
}

struct podresources_poller {
    struct podresources_poller_settings settings;
    pthread_t thread;
    struct stop_flag stop;
    unsigned polls;
    struct podresources_units units;
    struct buf state;                /* of the device plugin, as it was read last */
    bool state_failed, units_failed; /* it was logged */
};

/* Without the file there are no promises of init containers: another device plugin runs here,
 * or none. One that cannot be read leaves them as they were. */
static void poll_plugin(struct podresources_poller *l, struct podresources *pods)
{
    const struct podresources_poller_settings *set = &l->settings;
    cleanup_buf struct buf state = {0};
    struct err err = {0};
    int rc = file_read(set->plugin_state, ALLOCATION_SET_BYTES_MAX, &state, &err);
    if (rc == 0)
        rc = allocation_set_read(&pods->plugin, buf_span(&state), set->node, &err);
    bool failed = rc && err.code != ERR_NOT_FOUND;
    if (failed && !l->state_failed)
        log_warn("pods",
                 "cannot read the state of the device plugin; promises of init "
                 "containers stay as they were",
                 LOG_ERR(&err));
    l->state_failed = failed;
    if (failed)
        rc = allocation_set_read(&pods->plugin, buf_span(&l->state), set->node, NULL);
    else
        buf_set(&l->state, buf_span(&state));
    pods->plugin_known = rc == 0;
}

static void poll(struct podresources_poller *l)
{
    const struct podresources_poller_settings *set = &l->settings;
    struct podresources *pods = podresources_ref(xcalloc(1, sizeof *pods));
    struct podres_allocatable all = {0};
    struct err err = {0};
    if (podresources_list(set->socket, pods, &err)) {
        set->polled(set->ctx, NULL, &err);
    } else {
        if (l->polls++ % UNITS_EVERY == 0 || !l->units.n) {
            bool failed =
                podresources_client_allocatable(set->socket, &pods->arena, &all, &err);
            if (!failed)
                podresources_count_units(&all, &l->units);
            else if (!l->units_failed)
                log_warn("pods",
                         "cannot read the number of units of the cards; promises stay as "
                         "they were, or unknown, and then no overuse is reported",
                         LOG_ERR(&err));
            l->units_failed = failed;
        }
        pods->units = l->units;
        poll_plugin(l, pods);
        set->polled(set->ctx, pods, NULL);
    }
    podresources_unref(pods);
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
    buf_fini(&l->state);
    free(l);
}
