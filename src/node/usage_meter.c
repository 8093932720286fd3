/* SPDX-License-Identifier: Apache-2.0 */
/* From the kubelet's devices to promises, and from a sample to the use of containers. */
#include "node/usage_meter.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/mem.h"
#include "node/limit_dir.h"
#include "node/limit_slots.h"
#include "node/process.h"

struct usage_meter {
    struct usage_meter_settings settings;
    pthread_mutex_t lock;         /* protects the rest */
    struct podresources *devices; /* or NULL */
    /* What the annotations of pods promise, as if it were allocated. `pod_deleted`: the list that
     * is under way has not yet shown the pod. */
    struct allocation_set promised;
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
    allocation_set_fini(&m->promised);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

/* -- promises -- */

/* -1: more than the card has, so that --memory-unit is not that of the device plugin. */
static int64_t within(int64_t mib, int64_t total_mib)
{
    return !mib || mib <= total_mib ? mib : -1;
}

/* MiB of the card that the entry has; -1: an unknown amount, as of a replica. */
static int64_t promised_mib(const struct usage_meter *m,
                            const struct podresources_entry *e,
                            const struct ids_card *card, int64_t total_mib)
{
    enum ids_resource ours;
    struct ids_id id;
    bool is_ours = ids_resource_read(e->resource, &ours);
    if (is_ours && ours == IDS_DIALECT && e->n_ids) /* else it is of NVIDIA's plugin */
        is_ours = ids_read(ours, e->ids[0], &id);
    if (is_ours && ids_are_slots(ours)) {
        int64_t mib = e->slot_mib;
        ALLOCATION_EACH(al,
                        &m->promised) /* another process allocated it, by the promise */
        if (!e->slot_mib && span_eq(al->ns, e->ns) && span_eq(al->name, e->pod) &&
            span_eq(al->container, e->container))
            mib = al->slot_mib ?: mib;
        return within(mib ?: -1, total_mib);
    }
    if (is_ours)
        return ours == IDS_COUNT
                   ? total_mib
                   : within((int64_t)podresources_ids_on(e, card) * m->settings.unit_mib,
                            total_mib);
    for (size_t i = 0; i < e->n_ids; i++)
        if (ids_match_card(e->resource, e->ids[i], card) &&
            !span_eq(e->ids[i], card->uuid))
            return -1;
    return total_mib;
}

/* Ids of the Go plugin and of HAMi's name no card: the container may have a promise on any. */
static bool is_anywhere(const struct podresources_entry *e)
{
    enum ids_resource ours;
    struct ids_id parsed;
    bool is_ours = ids_resource_read(e->resource, &ours);
    for (size_t i = 0; i < e->n_ids; i++) {
        struct span id = e->ids[i];
        bool of_card = span_starts(id, SPAN("GPU-")) || span_starts(id, SPAN("MIG-"));
        if (!(is_ours && ids_read(ours, id, &parsed)) &&
            (!of_card || ids_name_no_card(id)))
            return true;
    }
    return false;
}

size_t usage_meter_promises(const struct usage_meter *m,
                            const struct podresources *devices,
                            const struct gpu_sample *sample, struct arena *a,
                            const struct usage_promise **promises)
{
    size_t n = 0;
    struct usage_promise *list =
        arena_alloc(a, (devices->n * sample->n_cards + 1) * sizeof *list);
    for (size_t c = 0; c < sample->n_cards; c++) {
        const struct ids_card card = ids_card_of(span_of(sample->cards[c].uuid));
        int64_t total_mib = gpu_mib(&sample->cards[c], GPU_MEM_TOTAL, -1);
        ARRAY_EACH_ITEM(const struct podresources_entry, e, devices->entries, devices->n)
        {
            bool anywhere = is_anywhere(e);
            if (anywhere || podresources_ids_on(e, &card))
                list[n++] = (struct usage_promise){
                    e->ns, e->pod, e->container, card.uuid,
                    anywhere ? -1 : promised_mib(m, e, &card, total_mib)};
        }
    }
    *promises = list;
    return n;
}

static const struct allocation_card *part_of(const struct allocation *al,
                                             const struct gpu_card *card)
{
    cleanup_free char *index = xasprintf("index-%d", card->index);
    return allocation_card(al, span_of(card->uuid))
               ?: allocation_card(al, span_of(index));
}

/* The same for the plain init containers. The strings are copied. */
static size_t init_promises(const struct allocation_set *set, int64_t unit_mib,
                            const struct gpu_sample *sample, struct arena *a,
                            const struct usage_init_promise **inits)
{
    size_t n = 0;
    struct usage_init_promise *list =
        arena_alloc(a, (set->n * sample->n_cards + 1) * sizeof *list);
    ALLOCATION_EACH(al, set)
    ARRAY_EACH_ITEM(const struct gpu_card, card, sample->cards, sample->n_cards)
    {
        const struct allocation_card *part =
            al->role == CONTAINER_INIT ? part_of(al, card) : NULL;
        if (!part)
            continue;
        int64_t total_mib = gpu_mib(card, GPU_MEM_TOTAL, -1), beside_mib = 0;
        /* The pod's sidecars on the card. Those that start after the init container count, too: the
         * order of the allocations is lost when the plugin recovers them. */
        ALLOCATION_EACH(other, set)
        {
            const struct allocation_card *its =
                other->role == CONTAINER_SIDECAR && span_eq(other->uid, al->uid)
                    ? part_of(other, card)
                    : NULL;
            beside_mib += its ? allocation_mib(other, its, unit_mib) : 0;
        }
        list[n++] = (struct usage_init_promise){
            .pod_uid = arena_copy(a, al->uid),
            .ns = arena_copy(a, al->ns),
            .pod = arena_copy(a, al->name),
            .container = arena_copy(a, al->container),
            .uuid = span_of(card->uuid),
            .mib = al->resource == IDS_COUNT
                       ? total_mib
                       : within(allocation_mib(al, part, unit_mib), total_mib),
            .beside_mib = within(beside_mib, total_mib)};
    }
    *inits = list;
    return n;
}

/* -- inputs -- */

void usage_meter_pods(struct usage_meter *m, struct podresources *devices)
{
    struct podresources *former;
    pthread_mutex_lock(&m->lock);
    former = m->devices;
    m->devices = podresources_ref(devices);
    pthread_mutex_unlock(&m->lock);
    podresources_unref(former);
}

void usage_meter_pod(void *meter, const struct alloc_input *in)
{
    struct usage_meter *m = meter;
    pthread_mutex_lock(&m->lock);
    for (size_t i = m->promised.n; i-- > 0;) {
        struct allocation *al = m->promised.items[i];
        if (span_eq(al->uid, in->uid) ||
            (in->type == ALLOC_IN_LIST_ENDED && al->pod_deleted))
            allocation_set_drop(&m->promised, al);
        else
            al->pod_deleted |= in->type == ALLOC_IN_LIST_STARTED;
    }
    struct pod_allocation *pod = in->pod;
    for (size_t i = 0; pod && !pod->terminal && i < pod->n_containers; i++) {
        const struct pod_allocation_container *c = &pod->containers[i];
        struct allocation *al =
            allocation_new(pod->uid, pod->ns, pod->name, c->name, c->role, c->resource);
        al->slot_mib = pod_allocation_slot_mib(c, 0);
        /* Only the amounts are known. A card without a UUID has its name in an allocation. */
        ARRAY_EACH_ITEM(const struct promise_share, share, c->shares, c->n_shares)
        {
            cleanup_free char *index = xasprintf("index-%d", share->card);
            if (allocation_add(al, share->uuid.n ? share->uuid : span_of(index),
                               share->card, -1) &&
                c->resource != IDS_COUNT)
                al->cards[al->n_cards - 1].n_units = (size_t)share->units;
        }
        allocation_set_put(&m->promised, al);
    }
    pthread_mutex_unlock(&m->lock);
    pod_allocation_free(pod);
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
    bool any = in->n_limits > 0;
    for (size_t i = 0; i < in->n_places && !any; i++)
        any = in->places[i].kind == USAGE_CONTAINER;
    if (any)
        process_names_read(m->settings.host_root, a, &in->names, &in->n_names, err);
}

void usage_meter_measure(struct usage_meter *m, int64_t now_ms,
                         const struct gpu_sample *sample, uint8_t isolation,
                         struct usage *u, struct err *err)
{
    cleanup_arena struct arena a = {0};
    struct usage_input in = {
        .taken_ms = now_ms, .sample = sample, .isolation = isolation};
    struct limit_readings *limits =
        m->settings.limits ? limit_readback_readings(m->settings.limits) : NULL;
    if (limits) {
        in.limits = limits->limits;
        in.n_limits = limits->n;
        in.readable = limits->readable;
        in.n_readable = limits->n_readable;
    }
    *err = (struct err){0};
    if (sample)
        read_host(m, &in, &a, err);
    pthread_mutex_lock(&m->lock);
    struct podresources *devices = m->devices ? podresources_ref(m->devices) : NULL;
    in.promises_known =
        devices && now_ms - devices->asked_ms <= m->settings.pods_limit_ms;
    if (sample && in.promises_known) {
        in.n_promises = usage_meter_promises(m, devices, sample, &a, &in.promises);
        in.n_inits =
            init_promises(devices->allocates ? &devices->allocations : &m->promised,
                          m->settings.unit_mib, sample, &a, &in.inits);
        in.inits_known = devices->allocates;
    }
    pthread_mutex_unlock(&m->lock);
    if (devices) {
        in.promised_ms = devices->asked_ms;
        in.listed = devices->listed;
        in.n_listed = devices->n_listed;
        const char *dir = m->settings.limit_dir;
        struct usage_listed *library =
            arena_alloc(&a, (devices->allocations.n + 1) * sizeof *library);
        in.library = library;
        ALLOCATION_EACH(al, &devices->allocations)
        if (dir && limit_dir_has(dir, al->uid.p))
            library[in.n_library++] =
                (struct usage_listed){al->ns, al->name, al->container};
    }
    usage_build(&in, u);
    podresources_unref(devices);
    limit_readings_unref(limits);
}
