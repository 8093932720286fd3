/* SPDX-License-Identifier: Apache-2.0 */
/* From the kubelet's devices to promises, and from a sample to the use of containers. */
#include "agent/usage_meter.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/mem.h"
#include "node/limit_slots.h"
#include "node/process.h"

struct usage_meter {
    struct usage_meter_settings settings;
    pthread_mutex_t lock;         /* protects the rest */
    struct podresources *devices; /* or NULL */
    int64_t devices_ms;
};

struct usage_meter *usage_meter_new(const struct usage_meter_settings *settings)
{
    struct usage_meter *m = xcalloc(1, sizeof *m);
    m->settings = *settings;
    pthread_mutex_init(&m->lock, NULL);
    return m;
}

void usage_meter_free(struct usage_meter *m)
{
    if (!m)
        return;
    podresources_unref(m->devices);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

/* -- promises -- */

static int64_t unit_mib_of(const struct podresources *devices,
                           const struct ids_card *card, int64_t total_mib)
{
    return podresources_unit_mib(total_mib,
                                 podresources_units_of(&devices->units, &card->tag));
}

/* MiB of the card that the entry has; -1: an unknown amount, as of a replica. */
static int64_t promised_mib(const struct podresources *devices,
                            const struct podresources_entry *e,
                            const struct ids_card *card, int64_t total_mib)
{
    enum ids_resource ours;
    if (ids_resource_read(e->resource, &ours)) {
        int64_t unit_mib = unit_mib_of(devices, card, total_mib);
        return ours == IDS_COUNT ? total_mib
               : unit_mib > 0    ? (int64_t)podresources_ids_on(e, card) * unit_mib
                                 : -1;
    }
    for (size_t i = 0; i < e->n_ids; i++)
        if (ids_match_card(e->resource, e->ids[i], card) &&
            !span_eq(e->ids[i], card->uuid))
            return -1;
    return total_mib;
}

/* Ids of the Go plugin name no card: the container may have a promise on any. */
static bool is_anywhere(const struct podresources_entry *e)
{
    enum ids_resource ours;
    struct ids_id parsed;
    bool is_ours = ids_resource_read(e->resource, &ours);
    for (size_t i = 0; i < e->n_ids; i++) {
        struct span id = e->ids[i];
        bool of_card = span_starts(id, SPAN("GPU-")) || span_starts(id, SPAN("MIG-"));
        if (!(is_ours && ids_read(ours, id, &parsed)) &&
            (!of_card || ids_is_of_go_plugin(id)))
            return true;
    }
    return false;
}

static int64_t total_mib_of(const struct gpu_card *card)
{
    int64_t bytes = gpu_value(card, GPU_MEM_TOTAL, -1);
    return bytes < 0 ? -1 : bytes >> 20;
}

size_t usage_meter_promises(const struct podresources *devices,
                            const struct gpu_sample *sample, struct arena *a,
                            const struct usage_promise **promises)
{
    size_t n = 0;
    struct usage_promise *list =
        arena_alloc(a, (devices->n * sample->n_cards + 1) * sizeof *list);
    for (size_t c = 0; c < sample->n_cards; c++) {
        const struct ids_card card = ids_card_of(span_of(sample->cards[c].uuid));
        int64_t total_mib = total_mib_of(&sample->cards[c]);
        ARRAY_EACH_ITEM(const struct podresources_entry, e, devices->entries, devices->n)
        {
            bool anywhere = is_anywhere(e);
            if (anywhere || podresources_ids_on(e, &card))
                list[n++] = (struct usage_promise){
                    e->ns, e->pod, e->container, card.uuid,
                    anywhere ? -1 : promised_mib(devices, e, &card, total_mib)};
        }
    }
    *promises = list;
    return n;
}

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

/* The same for the plain init containers. */
static size_t init_promises(const struct podresources *devices,
                            const struct gpu_sample *sample, struct arena *a,
                            const struct usage_init_promise **inits)
{
    const struct allocation_set *set = &devices->plugin;
    size_t n = 0;
    struct usage_init_promise *list =
        arena_alloc(a, (set->n * sample->n_cards + 1) * sizeof *list);
    for (size_t i = 0; i < set->n; i++)
        for (size_t c = 0; c < sample->n_cards; c++) {
            const struct allocation *al = set->items[i];
            const struct ids_card card = ids_card_of(span_of(sample->cards[c].uuid));
            const struct allocation_card *part = allocation_card(al, card.uuid);
            if (al->role != CONTAINER_INIT || !part)
                continue;
            int64_t total_mib = total_mib_of(&sample->cards[c]);
            int64_t unit_mib = unit_mib_of(devices, &card, total_mib);
            int64_t beside = units_beside(set, al, card.uuid);
            list[n++] = (struct usage_init_promise){
                .pod_uid = al->uid,
                .ns = al->ns,
                .pod = al->name,
                .container = al->container,
                .uuid = card.uuid,
                .mib = al->resource == IDS_COUNT ? total_mib
                       : unit_mib > 0            ? (int64_t)part->n_units * unit_mib
                                                 : -1,
                .beside_mib = unit_mib > 0 ? beside * unit_mib
                              : beside     ? -1
                                           : 0};
        }
    *inits = list;
    return n;
}

/* -- inputs -- */

void usage_meter_pods(struct usage_meter *m, int64_t now_ms, struct podresources *devices)
{
    struct podresources *former;
    pthread_mutex_lock(&m->lock);
    former = m->devices;
    m->devices = podresources_ref(devices);
    m->devices_ms = now_ms;
    pthread_mutex_unlock(&m->lock);
    podresources_unref(former);
}

static void read_host(struct usage_meter *m, struct usage_input *in, struct arena *a,
                      struct err *err)
{
    struct usage_place *places;
    process_places(m->settings.host_root, in->sample, a, &places, &in->n_places);
    in->places = places;
    if (in->n_places && process_check_host(m->settings.host_root, err))
        return;
    limit_slots_read(m->settings.limit_dir, m->settings.host_root, in->sample, places,
                     in->n_places, a, err);
    for (size_t i = 0; i < in->n_places; i++)
        if (in->places[i].kind == USAGE_CONTAINER) {
            process_names_read(m->settings.host_root, a, &in->names, &in->n_names, err);
            return;
        }
}

void usage_meter_measure(struct usage_meter *m, int64_t now_ms,
                         const struct gpu_sample *sample, struct usage *u,
                         struct err *err)
{
    cleanup_arena struct arena a = {0};
    struct usage_input in = {.taken_ms = now_ms, .sample = sample};
    *err = (struct err){0};
    if (sample)
        read_host(m, &in, &a, err);
    pthread_mutex_lock(&m->lock);
    struct podresources *devices = m->devices ? podresources_ref(m->devices) : NULL;
    in.promises_known = devices && now_ms - m->devices_ms <= m->settings.pods_limit_ms;
    pthread_mutex_unlock(&m->lock);
    if (sample && in.promises_known) {
        in.n_promises = usage_meter_promises(devices, sample, &a, &in.promises);
        in.n_inits = init_promises(devices, sample, &a, &in.inits);
        in.inits_known = devices->plugin_known;
    }
    if (devices) {
        in.promised_ms = devices->asked_ms;
        in.listed = devices->listed;
        in.n_listed = devices->n_listed;
    }
    usage_build(&in, u);
    podresources_unref(devices);
}
