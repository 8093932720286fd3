/* SPDX-License-Identifier: Apache-2.0 */
/* From the kubelet's devices to promises, and from a sample to the use of containers. */
#include "agent/usage_meter.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/mem.h"
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

/* The id of a whole card is its UUID, or our tag. */
static bool is_whole(struct span resource, struct span id, const struct ids_card *card)
{
    enum ids_resource ours;
    return ids_resource_read(resource, &ours) ? ours == IDS_COUNT
                                              : span_eq(id, card->uuid);
}

/* What the entry has of the card; false: nothing. */
static bool promised_of(const struct podresources *devices,
                        const struct podresources_entry *e, const struct ids_card *card,
                        int64_t total_mib, int64_t *mib)
{
    int64_t units = 0;
    bool whole = false, other = false;
    enum ids_resource ours;
    bool memory = ids_resource_read(e->resource, &ours) && ours == IDS_MEM;
    for (size_t i = 0; i < e->n_ids; i++) {
        if (!ids_match_card(e->resource, e->ids[i], card))
            continue;
        units++;
        whole |= !memory && is_whole(e->resource, e->ids[i], card);
        other |= !memory && !is_whole(e->resource, e->ids[i], card);
    }
    int64_t unit_mib = memory ? unit_mib_of(devices, card, total_mib) : -1;
    *mib = memory && unit_mib > 0 ? units * unit_mib : whole && !other ? total_mib : -1;
    return units > 0;
}

/* Such a card that is not in the sample is lost. */
static bool names_a_card(struct span resource, struct span id)
{
    enum ids_resource ours;
    struct ids_id parsed;
    if (ids_resource_read(resource, &ours) && ids_read(ours, id, &parsed))
        return true;
    return (span_starts(id, SPAN("GPU-")) || span_starts(id, SPAN("MIG-GPU-"))) &&
           !ids_is_of_go_plugin(id);
}

/* Ids of the Go plugin and MIG instances name no card: the container may have a promise on
 * any of them. */
static bool is_anywhere(const struct podresources_entry *e, const struct ids_card *cards,
                        size_t n)
{
    for (size_t i = 0; i < e->n_ids; i++) {
        size_t c = 0;
        while (c < n && !ids_match_card(e->resource, e->ids[i], &cards[c]))
            c++;
        if (c == n && !names_a_card(e->resource, e->ids[i]))
            return true;
    }
    return false;
}

size_t usage_meter_promises(const struct podresources *devices,
                            const struct gpu_sample *sample, struct arena *a,
                            const struct usage_promise **promises)
{
    size_t n = 0;
    struct usage_promise *list =
        arena_alloc(a, (devices->n * sample->n_cards + 1) * sizeof *list);
    struct ids_card *cards = arena_alloc(a, (sample->n_cards + 1) * sizeof *cards);
    for (size_t c = 0; c < sample->n_cards; c++)
        cards[c] = ids_card_of(span_of(sample->cards[c].uuid));
    for (size_t i = 0; i < devices->n; i++) {
        const struct podresources_entry *e = &devices->entries[i];
        bool anywhere = is_anywhere(e, cards, sample->n_cards);
        for (size_t c = 0; c < sample->n_cards; c++) {
            int64_t bytes = gpu_value(&sample->cards[c], GPU_MEM_TOTAL, -1), mib = -1;
            bool here =
                cards[c].uuid.n &&
                promised_of(devices, e, &cards[c], bytes < 0 ? -1 : bytes >> 20, &mib);
            if (here || anywhere)
                list[n++] = (struct usage_promise){e->ns, e->pod, e->container,
                                                   cards[c].uuid, anywhere ? -1 : mib};
        }
    }
    *promises = list;
    return n;
}

/* The same for the plain init containers. */
static size_t init_promises(const struct podresources *devices,
                            const struct gpu_sample *sample, struct arena *a,
                            const struct usage_init_promise **inits)
{
    size_t n = 0;
    struct usage_init_promise *list =
        arena_alloc(a, (devices->n_inits + 1) * sizeof *list);
    for (size_t i = 0; i < devices->n_inits; i++) {
        const struct podresources_init *from = &devices->inits[i];
        size_t c = 0;
        while (c < sample->n_cards &&
               !span_eq(span_of(sample->cards[c].uuid), from->uuid))
            c++;
        if (c == sample->n_cards)
            continue;
        const struct ids_card card = ids_card_of(from->uuid);
        int64_t bytes = gpu_value(&sample->cards[c], GPU_MEM_TOTAL, -1);
        int64_t total_mib = bytes < 0 ? -1 : bytes >> 20;
        int64_t unit_mib = unit_mib_of(devices, &card, total_mib);
        list[n++] = (struct usage_init_promise){
            .pod_uid = from->pod_uid,
            .ns = from->ns,
            .pod = from->pod,
            .container = from->container,
            .uuid = from->uuid,
            .mib = from->whole    ? total_mib
                   : unit_mib > 0 ? from->units * unit_mib
                                  : -1,
            .beside_mib = unit_mib > 0   ? from->beside * unit_mib
                          : from->beside ? -1
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
    process_places(m->settings.host_root, in->sample, a, &in->places, &in->n_places);
    if (in->n_places && process_check_host(m->settings.host_root, err))
        return;
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
    }
    if (devices) {
        in.promised_ms = devices->asked_ms;
        in.listed = devices->listed;
        in.n_listed = devices->n_listed;
    }
    usage_build(&in, u);
    podresources_unref(devices);
}
