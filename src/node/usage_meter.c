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
    struct known_pod {
        struct pod_allocation *pod;
        bool listed; /* by the list that is under way */
    } * pods;
    size_t n_pods, cap_pods;
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
    ARRAY_EACH_ITEM(struct known_pod, known, m->pods, m->n_pods)
    pod_allocation_free(known->pod);
    free(m->pods);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

/* -- promises -- */

/* -1: more than the card has, so that --memory-unit is not that of the device plugin. */
static int64_t within(int64_t mib, int64_t total_mib)
{
    return !mib || mib <= total_mib ? mib : -1;
}

/* MiB of each slot of the entry, which another process allocated: by the promise of the pod. 0: not
 * known. */
static int64_t promised_slot_mib(const struct usage_meter *m,
                                 const struct podresources_entry *e)
{
    int64_t mib = 0;
    for (size_t i = 0; i < m->n_pods; i++) {
        const struct pod_allocation *pod = m->pods[i].pod;
        bool is_of =
            !pod->terminal && span_eq(pod->ns, e->ns) && span_eq(pod->name, e->pod);
        for (size_t k = 0; k < pod->n_containers && is_of; k++)
            if (span_eq(pod->containers[k].name, e->container))
                mib = pod_allocation_slot_mib(&pod->containers[k], mib);
    }
    return mib;
}

/* MiB of the card that the entry has; -1: an unknown amount, as of a replica. */
static int64_t promised_mib(const struct usage_meter *m,
                            const struct podresources_entry *e,
                            const struct ids_card *card, int64_t total_mib)
{
    enum ids_resource ours;
    struct ids_id id;
    bool is_ours = ids_resource_read(e->resource, &ours);
    if (is_ours && ours == IDS_DIALECT) /* else it is of NVIDIA's device plugin */
        is_ours = ids_read(ours, e->ids[0], &id);
    if (is_ours && ids_are_slots(ours))
        return within(e->slot_mib ?: promised_slot_mib(m, e) ?: -1, total_mib);
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

static int64_t total_mib_of(const struct gpu_card *card)
{
    int64_t bytes = gpu_value(card, GPU_MEM_TOTAL, -1);
    return bytes < 0 ? -1 : bytes >> 20;
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
        int64_t total_mib = total_mib_of(&sample->cards[c]);
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

/* MiB of the pod's sidecars on the card. Those that start after the init container
 * count, too: the order of the allocations is lost when the plugin recovers them. */
static int64_t mib_beside(const struct allocation_set *set, const struct allocation *init,
                          struct span uuid, int64_t unit_mib)
{
    int64_t mib = 0;
    ALLOCATION_EACH(al, set)
    {
        const struct allocation_card *card = allocation_card(al, uuid);
        if (card && al->role == CONTAINER_SIDECAR && span_eq(al->uid, init->uid))
            mib += allocation_mib(al, card, unit_mib);
    }
    return mib;
}

/* The same for the plain init containers. */
static size_t init_promises(const struct podresources *devices, int64_t unit_mib,
                            const struct gpu_sample *sample, struct arena *a,
                            const struct usage_init_promise **inits)
{
    const struct allocation_set *set = &devices->allocations;
    size_t n = 0;
    struct usage_init_promise *list =
        arena_alloc(a, (set->n * sample->n_cards + 1) * sizeof *list);
    ALLOCATION_EACH(al, set)
    for (size_t c = 0; c < sample->n_cards; c++) {
        const struct ids_card card = ids_card_of(span_of(sample->cards[c].uuid));
        const struct allocation_card *part = allocation_card(al, card.uuid);
        if (al->role != CONTAINER_INIT || !part)
            continue;
        int64_t total_mib = total_mib_of(&sample->cards[c]);
        list[n++] = (struct usage_init_promise){
            .pod_uid = al->uid,
            .ns = al->ns,
            .pod = al->name,
            .container = al->container,
            .uuid = card.uuid,
            .mib = al->resource == IDS_COUNT
                       ? total_mib
                       : within(allocation_mib(al, part, unit_mib), total_mib),
            .beside_mib = within(mib_beside(set, al, card.uuid, unit_mib), total_mib)};
    }
    *inits = list;
    return n;
}

/* MiB of the container on the card; of a whole card any; -1: none. */
static int64_t share_mib(const struct pod_allocation_container *c,
                         const struct gpu_card *card, int64_t unit_mib)
{
    ARRAY_EACH_ITEM(const struct promise_share, share, c->shares, c->n_shares)
    if (share->uuid.n ? span_eq(share->uuid, span_of(card->uuid))
                      : share->card == card->index)
        return pod_allocation_mib(c, share, unit_mib);
    return -1;
}

/* The same from what annotations promise the pods. Of a sidecar with whole cards nothing counts
 * beside, as above. The strings are copied. */
static size_t pod_init_promises(const struct usage_meter *m,
                                const struct gpu_sample *sample, struct arena *a,
                                const struct usage_init_promise **inits)
{
    const int64_t unit_mib = m->settings.unit_mib;
    size_t n = 0, max = 0;
    for (size_t i = 0; i < m->n_pods; i++)
        max += m->pods[i].pod->n_containers * sample->n_cards;
    struct usage_init_promise *list = arena_alloc(a, (max + 1) * sizeof *list);
    for (size_t i = 0; i < m->n_pods; i++)
        for (size_t k = 0; k < sample->n_cards; k++) {
            const struct pod_allocation *pod = m->pods[i].pod;
            const struct gpu_card *card = &sample->cards[k];
            const int64_t total_mib = total_mib_of(card);
            int64_t beside = 0;
            ARRAY_EACH_ITEM(const struct pod_allocation_container, c, pod->containers,
                            pod->n_containers)
            if (c->role == CONTAINER_SIDECAR && c->resource != IDS_COUNT &&
                share_mib(c, card, unit_mib) > 0)
                beside += share_mib(c, card, unit_mib);
            ARRAY_EACH_ITEM(const struct pod_allocation_container, c, pod->containers,
                            pod->n_containers)
            {
                const int64_t mib = share_mib(c, card, unit_mib);
                if (c->role != CONTAINER_INIT || mib < 0)
                    continue;
                list[n++] = (struct usage_init_promise){
                    .pod_uid = arena_copy(a, pod->uid),
                    .ns = arena_copy(a, pod->ns),
                    .pod = arena_copy(a, pod->name),
                    .container = arena_copy(a, c->name),
                    .uuid = span_of(card->uuid),
                    .mib = c->resource == IDS_COUNT ? total_mib : within(mib, total_mib),
                    .beside_mib = within(beside, total_mib)};
            }
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
    size_t n = 0;
    MEM_GROW(m->pods, m->cap_pods, m->n_pods + 1);
    for (size_t i = 0; i < m->n_pods; i++) {
        struct known_pod *k = &m->pods[i];
        bool is_former = (in->type == ALLOC_IN_POD || in->type == ALLOC_IN_POD_DELETED) &&
                         span_eq(k->pod->uid, in->uid);
        if (is_former || (in->type == ALLOC_IN_LIST_ENDED && !k->listed)) {
            pod_allocation_free(k->pod);
            continue;
        }
        k->listed &= in->type != ALLOC_IN_LIST_STARTED;
        m->pods[n++] = *k;
    }
    if (in->type == ALLOC_IN_POD)
        m->pods[n++] = (struct known_pod){in->pod, true};
    m->n_pods = n;
    pthread_mutex_unlock(&m->lock);
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

/* The containers whose pods have the files of the library. */
static void find_library(const struct usage_meter *m, const struct allocation_set *set,
                         struct arena *a, struct usage_input *in)
{
    struct usage_listed *list = arena_alloc(a, (set->n + 1) * sizeof *list);
    in->library = list;
    ALLOCATION_EACH(al, set)
    if (m->settings.limit_dir && limit_dir_has(m->settings.limit_dir, al->uid.p))
        list[in->n_library++] = (struct usage_listed){al->ns, al->name, al->container};
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
        in.n_inits = devices->allocates ? init_promises(devices, m->settings.unit_mib,
                                                        sample, &a, &in.inits)
                                        : pod_init_promises(m, sample, &a, &in.inits);
        in.inits_known = devices->allocates;
    }
    pthread_mutex_unlock(&m->lock);
    if (devices) {
        in.promised_ms = devices->asked_ms;
        in.listed = devices->listed;
        in.n_listed = devices->n_listed;
        find_library(m, &devices->allocations, &a, &in);
    }
    usage_build(&in, u);
    podresources_unref(devices);
    limit_readings_unref(limits);
}
