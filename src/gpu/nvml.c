/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "gpu/nvml_priv.h"

/* The card at this index. */
struct slot {
    void *device; /* handle of the last open, also of a lost card */
    bool tried;   /* to register its events */
    bool watched; /* events are registered */
    bool known;   /* `last` is valid: the last readable state */
    struct gpu_card last;
};

struct nvml {
    struct gpu base;
    char *library;
    void *handle; /* of dlopen; NULL: not loaded */
    struct nvml_calls call;
    void *set; /* the event set, or NULL */
    size_t n_watched;
    struct slot slots[GPU_MAX_CARDS];
};

static struct nvml *of(struct gpu *g)
{
    return (struct nvml *)(void *)g;
}

static int fail(struct err *err, const char *what, int rc)
{
    return err_set(err, ERR_UNAVAILABLE, "NVML: %s: %s (%d)", what, nvml_strerror(rc),
                   rc);
}

static void drop_set(struct nvml *n)
{
    if (n->set)
        n->call.set_free(n->set);
    n->set = NULL;
    n->n_watched = 0;
    for (size_t i = 0; i < GPU_MAX_CARDS; i++)
        n->slots[i].tried = n->slots[i].watched = false;
}

/* Closes the library, too: a driver update replaces its file. */
static void unload(struct nvml *n)
{
    if (!n->handle)
        return;
    drop_set(n);
    n->call.shutdown(); /* fails only if the driver is gone */
    dlclose(n->handle);
    n->handle = NULL;
    for (size_t i = 0; i < GPU_MAX_CARDS; i++)
        n->slots[i].device = NULL;
}

static int load(struct nvml *n, struct err *err)
{
    if (n->handle)
        return 0;
    cleanup_free char *path = NULL;
    void *handle;
    if (nvml_find(n->library, &path, err) || nvml_load(path, &handle, &n->call, err))
        return -1;
    int rc = n->call.init();
    if (rc) {
        dlclose(handle);
        return fail(err, "initializing", rc);
    }
    n->handle = handle;
    return 0;
}

static void create_set(struct nvml *n)
{
    const struct nvml_calls *c = &n->call;
    if (!n->set && c->set_create && c->set_free && c->set_wait && c->watch &&
        c->set_create(&n->set))
        n->set = NULL;
}

/* Registers the events of a card, once per event set. One unsupported event type makes
 * NVML reject all of them. (After another rejection the set may be broken, says nvml.h;
 * the wait returns an error then.) */
static void watch(struct nvml *n, struct slot *slot)
{
    unsigned long long want = NVML_EVENT_XID | NVML_EVENT_DOUBLE_BIT, has = 0;
    if (!n->set || slot->tried)
        return;
    slot->tried = true;
    if (n->call.event_types && n->call.event_types(slot->device, &has) == NVML_OK)
        want &= has;
    slot->watched = want && n->call.watch(slot->device, want, n->set) == NVML_OK;
    n->n_watched += slot->watched;
}

/* For an unreachable card: restores the constant properties. */
static void restore(const struct slot *slot, struct gpu_card *card)
{
    static const enum gpu_metric constant[] = {
        GPU_MINOR,         GPU_MEM_TOTAL,    GPU_CLOCK_GRAPHICS_MAX, GPU_CLOCK_SM_MAX,
        GPU_CLOCK_MEM_MAX, GPU_PCIE_GEN_MAX, GPU_PCIE_WIDTH_MAX,     GPU_POWER_LIMIT,
    };
    struct gpu_card lost = {.index = card->index, .state = card->state};
    memcpy(lost.why, card->why, sizeof lost.why);
    *card = lost;
    if (!slot->known)
        return;
    memcpy(card->uuid, slot->last.uuid, sizeof card->uuid);
    memcpy(card->model, slot->last.model, sizeof card->model);
    memcpy(card->bus_id, slot->last.bus_id, sizeof card->bus_id);
    for (size_t i = 0; i < ARRAY_LEN(constant); i++)
        if (gpu_knows(&slot->last, constant[i]))
            gpu_set(card, constant[i], (uint64_t)slot->last.value[constant[i]]);
}

static int read_card(struct nvml *n, struct gpu_card *card, struct arena *a)
{
    struct slot *slot = &n->slots[card->index];
    void *device = NULL;
    int rc = n->call.by_index((unsigned)card->index, &device);
    if (nvml_is_gone(rc))
        return rc;
    if (rc) {
        gpu_set_state(card, GPU_LOST, "%s (%d)", nvml_strerror(rc), rc);
        return NVML_OK;
    }
    slot->device = device;
    rc = nvml_read_card(&n->call, device, a, card);
    if (rc)
        return rc;
    if (card->state != GPU_LOST) {
        watch(n, slot);
        slot->last = *card;
        slot->known = true;
    }
    card->events = slot->watched;
    return NVML_OK;
}

/* Restores the UUIDs of lost cards, unless another card of the sample has them. */
static void restore_lost(struct nvml *n, struct gpu_sample *s)
{
    for (size_t i = 0; i < s->n_cards; i++) {
        struct gpu_card *card = &s->cards[i];
        if (card->state != GPU_LOST)
            continue;
        struct slot *slot = &n->slots[i];
        for (size_t k = 0; k < s->n_cards; k++)
            if (s->cards[k].state != GPU_LOST && *slot->last.uuid &&
                !strcmp(s->cards[k].uuid, slot->last.uuid))
                slot->known = false;
        restore(slot, card);
    }
}

static void read_versions(struct nvml *n, struct gpu_sample *s)
{
    char text[NVML_VERSION_TEXT] = {0};
    int cuda = 0;
    if (n->call.driver_version && !n->call.driver_version(text, sizeof text))
        gpu_set_text(s->driver, sizeof s->driver,
                     (struct span){text, strnlen(text, sizeof text)});
    if (n->call.cuda_version && !n->call.cuda_version(&cuda) && cuda > 0) {
        s->cuda_major = cuda / 1000; /* NVML_CUDA_DRIVER_VERSION_MAJOR and _MINOR */
        s->cuda_minor = cuda % 1000 / 10;
    }
}

static int sample(struct gpu *g, struct gpu_sample *s, struct err *err)
{
    struct nvml *n = of(g);
    unsigned count = 0;
    if (load(n, err))
        return -1;
    int rc = n->call.count(&count);
    if (rc) {
        unload(n);
        return fail(err, "counting the cards", rc);
    }
    if (count > GPU_MAX_CARDS)
        return err_set(err, ERR_UNAVAILABLE, "NVML: %u cards, more than the limit of %d",
                       count, GPU_MAX_CARDS);
    read_versions(n, s);
    create_set(n);
    for (size_t i = count; i < GPU_MAX_CARDS; i++)
        n->slots[i].device = NULL;
    s->cards = arena_zalloc(&s->arena, count * sizeof *s->cards);
    for (s->n_cards = 0; s->n_cards < count; s->n_cards++) {
        struct gpu_card *card = &s->cards[s->n_cards];
        card->index = (int32_t)s->n_cards;
        rc = read_card(n, card, &s->arena);
        if (rc) {
            unload(n);
            return fail(err, "reading a card", rc);
        }
    }
    restore_lost(n, s);
    gpu_sample_settle(s);
    return 0;
}

/* Finds the card by its handle. A call on a lost card would fail. */
static void identify(const struct nvml *n, void *device, struct gpu_event *event)
{
    for (int32_t i = 0; device && i < GPU_MAX_CARDS; i++) {
        const struct slot *slot = &n->slots[i];
        if (slot->device != device)
            continue;
        event->index = i;
        if (slot->known)
            memcpy(event->uuid, slot->last.uuid, sizeof event->uuid);
    }
}

static int wait_event(struct gpu *g, int timeout_ms, struct gpu_event *event,
                      struct err *err)
{
    struct nvml *n = of(g);
    struct nvml_event data = {0};
    if (!n->handle)
        return err_set(err, ERR_UNAVAILABLE, "NVML: not initialized");
    if (!n->n_watched)
        return err_set(err, ERR_UNAVAILABLE, "NVML: no card supports events");
    int rc = n->call.set_wait(n->set, &data, timeout_ms > 0 ? (unsigned)timeout_ms : 0);
    if (rc == NVML_TIMEOUT)
        return 0;
    if (rc) {
        /* An event set with a lost card returns no more events. The next sample creates
         * a set with the present cards. */
        if (nvml_is_gone(rc))
            unload(n);
        else
            drop_set(n);
        return fail(err, "waiting for events", rc);
    }
    event->kind = data.type == NVML_EVENT_XID          ? GPU_EVENT_XID
                  : data.type == NVML_EVENT_DOUBLE_BIT ? GPU_EVENT_ECC
                                                       : GPU_EVENT_NONE;
    if (event->kind == GPU_EVENT_XID)
        event->xid = data.data <= INT64_MAX ? (int64_t)data.data : 999;
    identify(n, data.device, event);
    return 0;
}

static void reopen(struct gpu *g)
{
    unload(of(g));
}

static void free_nvml(struct gpu *g)
{
    struct nvml *n = of(g);
    unload(n);
    free(n->library);
    free(n);
}

struct gpu *gpu_nvml_new(const char *library)
{
    static const struct gpu_ops ops = {sample, wait_event, reopen, free_nvml};
    struct nvml *n = xcalloc(1, sizeof *n);
    n->base.ops = &ops;
    n->library = xstrdup(library ? library : "libnvidia-ml.so.1");
    return &n->base;
}
