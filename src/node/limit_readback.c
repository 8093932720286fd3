/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the driver's limits of containers back, and sets them. */
#include "node/limit_readback.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/prom.h"
#include "node/allocation.h"
#include "node/process.h"

enum {
    LOOK_MS = 5 * 1000, /* between two looks at the cgroups, unless one has gone */
    BUDGET_MS = 1000,   /* of a sample's calls for containers */
    TRY_MS = 60 * 1000, /* between two trials to set a limit */
    CUT_ID_MIN = 8, /* of an ID that is cut; a shorter one can be of several containers */
};
#define UNMEASURED UINT64_MAX /* bytes in use */

struct limit_readback {
    struct limit_readback_settings settings;

    /* of the sampler's thread */
    struct gpu *gpu;
    int64_t now_ms;
    struct allocation_set set;
    struct arena looked;                  /* owns the next two */
    const struct process_cgroup *cgroups; /* of the pods that have allocations */
    const struct usage_name *names;
    size_t n_cgroups, n_names;
    int64_t looked_ms; /* 0: they must be looked for */
    enum err_code look_failed;
    struct limit_readback_card cards[GPU_MAX_CARDS];
    size_t n_cards;
    size_t next; /* the allocation that the next sample begins with */
    struct limit_readings *out;

    atomic_bool fails, sets;

    pthread_mutex_t lock; /* protects the rest */
    struct buf state;
    bool changed;
    struct limit_readings *readings; /* the last; NULL: none */
};

struct limit_readback *limit_readback_new(const struct limit_readback_settings *settings)
{
    struct limit_readback *r = xcalloc(1, sizeof *r);
    r->settings = *settings;
    pthread_mutex_init(&r->lock, NULL);
    return r;
}

void limit_readings_unref(struct limit_readings *l)
{
    if (!l || --l->refs)
        return;
    arena_fini(&l->arena);
    free(l->limits);
    free(l);
}

void limit_readback_free(struct limit_readback *r)
{
    if (!r)
        return;
    allocation_set_fini(&r->set);
    arena_fini(&r->looked);
    limit_readings_unref(r->readings);
    buf_fini(&r->state);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

void limit_readback_allocations(struct limit_readback *r, struct span state)
{
    pthread_mutex_lock(&r->lock);
    buf_set(&r->state, state);
    r->changed = true;
    pthread_mutex_unlock(&r->lock);
}

/* -- cards -- */

void limit_readback_judge(struct limit_readback_card *card, enum gpu_limit_answer answer,
                          int64_t now_ms)
{
    switch (answer) {
    case GPU_LIMIT_OK:
    case GPU_LIMIT_NONE:
        card->failing_ms = 0;
        card->fails = false;
        break;
    case GPU_LIMIT_OLD_DRIVER:
    case GPU_LIMIT_NOT_SUPPORTED:
    case GPU_LIMIT_NO_PERMISSION:
    case GPU_LIMIT_NO_CGROUP: /* of the root: those of containers end */
        card->fails = true;
        break;
    case GPU_LIMIT_INVALID:
    case GPU_LIMIT_FAILED:
        card->failing_ms = card->failing_ms ?: now_ms;
        card->fails |= now_ms - card->failing_ms >= LIMIT_READBACK_FAILING_MS;
        break;
    }
}

/* Sets a limit on a cgroup of our own and reads it back: then the process has the rights, and the
 * cgroups are the host's. */
static bool try_setting(struct limit_readback *r, const char *uuid)
{
    struct gpu_memory_limit limit = {0, 1 << 20, 0}, is = {0};
    struct err err = {0};
    cleanup_free char *path = xasprintf("%s/gpushare-trial", r->settings.cgroup_root);
    if (mkdir(path, 0700) && errno != EEXIST)
        err_set(&err, ERR_FORBIDDEN, "%s: %m", path);
    else if (gpu_memory_limit_set(r->gpu, uuid, path, &limit, &err) == GPU_LIMIT_OK)
        gpu_memory_limit_get(r->gpu, uuid, path, &is, &err);
    rmdir(path);
    if (is.hard != limit.hard)
        log_warn("limits", "--set-limits: this process cannot set the driver's limits",
                 LOG_S("card", uuid), LOG_ERR(&err));
    return is.hard == limit.hard;
}

/* Asks each full card that works. */
static void begin_cards(struct limit_readback *r, const struct gpu_sample *sample)
{
    struct limit_readback_card cards[GPU_MAX_CARDS];
    size_t n = 0;
    ARRAY_EACH_ITEM(const struct gpu_card, from, sample->cards, sample->n_cards)
    {
        if (from->state >= GPU_UNREADABLE || !*from->uuid || *from->parent_uuid)
            continue;
        struct limit_readback_card *card = &cards[n++];
        *card = (struct limit_readback_card){0};
        for (size_t i = 0; i < r->n_cards; i++)
            if (!strcmp(r->cards[i].uuid, from->uuid))
                *card = r->cards[i];
        snprintf(card->uuid, sizeof card->uuid, "%s", from->uuid);
        card->index = from->index;
        card->asked = false;
        enum gpu_limit_answer answer = gpu_memory_limit_probe(
            r->gpu, card->uuid, r->settings.cgroup_root, &(struct err){0});
        card->readable = answer == GPU_LIMIT_OK;
        if (!card->readable) {
            limit_readback_judge(card, answer, r->now_ms);
            card->can_set &= !card->fails;
        } else if (r->settings.sets && !card->can_set &&
                   (!card->tried_ms || r->now_ms >= card->tried_ms + TRY_MS)) {
            card->tried_ms = r->now_ms;
            card->can_set = try_setting(r, card->uuid);
        }
    }
    r->n_cards = n;
    memcpy(r->cards, cards, n * sizeof *cards);
}

/* -- cgroups -- */

static bool has_allocation(void *readback, struct span pod_uid)
{
    const struct limit_readback *r = readback;
    ALLOCATION_EACH(al, &r->set)
    if (span_eq(al->uid, pod_uid))
        return true;
    return false;
}

/* Looks for the cgroups of the pods that have allocations. */
static void look(struct limit_readback *r)
{
    struct err err = {0};
    if (r->looked_ms && r->now_ms < r->looked_ms + LOOK_MS)
        return;
    arena_reset(&r->looked);
    r->looked_ms = r->now_ms;
    r->n_names = 0;
    if (process_cgroups(r->settings.cgroup_root, has_allocation, r, &r->looked,
                        &r->cgroups, &r->n_cgroups, &err) == 0)
        process_names_read(r->settings.host_root, &r->looked, &r->names, &r->n_names,
                           &err);
    if (err.code != ERR_NONE && err.code != r->look_failed)
        log_warn("limits", "the driver's limits of containers are not read back",
                 LOG_ERR(&err));
    r->look_failed = err.code;
}

/* Is it the cgroup of the container with that name? */
static bool is_of(const struct limit_readback *r, const struct process_cgroup *g,
                  struct span container)
{
    const struct usage_name *name = NULL;
    ARRAY_EACH_ITEM(const struct usage_name, each, r->names, r->n_names)
    if (each->pod_uid.n
            ? span_eq(each->pod_uid, g->pod_uid) && each->container_id.n >= CUT_ID_MIN &&
                  span_starts(g->container_id, each->container_id)
            : span_eq(each->container_id, g->container_id))
        name = each;
    return g->leaf && name && span_eq(name->container, container);
}

/* -- limits -- */

/* Reads the limit of a folder. False: it is not known. With --set-limits sets `wanted_mib`, unless
 * 0; only the next sample says whether that holds. */
static bool read_folder(struct limit_readback *r, struct limit_readback_card *card,
                        const char *path, int64_t wanted_mib, struct gpu_memory_limit *is)
{
    const struct gpu_memory_limit wanted = {0, (uint64_t)wanted_mib << 20, 0};
    struct err err;
    enum gpu_limit_answer answer =
        gpu_memory_limit_get(r->gpu, card->uuid, path, is, &err);
    if (answer == GPU_LIMIT_NO_CGROUP) {
        r->looked_ms = 0;
        if (access(path, F_OK)) /* the container has ended */
            return false;
        answer = GPU_LIMIT_FAILED;
    }
    card->asked = true;
    limit_readback_judge(card, answer, r->now_ms);
    if (answer == GPU_LIMIT_NONE)
        is->used = UNMEASURED;
    else if (answer != GPU_LIMIT_OK)
        return false;
    if (!card->can_set || !wanted_mib || (!is->soft && is->hard == wanted.hard))
        return true;
    answer = gpu_memory_limit_set(r->gpu, card->uuid, path, &wanted, &err);
    if (answer == GPU_LIMIT_NO_PERMISSION)
        card->can_set = false;
    if (answer != GPU_LIMIT_OK)
        log_debug("limits", "cannot set a limit", LOG_S("card", card->uuid),
                  LOG_ERR(&err));
    return true;
}

/* What the pod may use of the card in all; 0: one of its containers there has no limit. */
static int64_t pod_total(const struct allocation_set *set, const struct allocation *of,
                         struct span uuid)
{
    int64_t apps = 0, sidecars = 0, init = 0;
    ALLOCATION_EACH(al, set)
    {
        const int64_t mib = al->driver_limit_mib;
        if (!span_eq(al->uid, of->uid) || !allocation_card(al, uuid))
            continue;
        if (!mib)
            return 0;
        if (al->role == CONTAINER_INIT)
            init = mib > init ? mib : init;
        else
            *(al->role == CONTAINER_SIDECAR ? &sidecars : &apps) += mib;
    }
    return sidecars + (apps > init ? apps : init);
}

static const struct usage_limit *find_limit(const struct limit_readings *in,
                                            const struct usage_limit *of)
{
    for (size_t i = 0; in && i < in->n; i++)
        if (span_eq(in->limits[i].uuid, of->uuid) &&
            span_eq(in->limits[i].container_id, of->container_id))
            return &in->limits[i];
    return NULL;
}

/* Sets since when the limit is not the one that was set, which the last reading knows. Reports it
 * once. */
static void check_limit(struct limit_readback *r, struct usage_limit *l)
{
    const struct usage_limit *last = find_limit(r->readings, l);
    if (!l->set_mib || l->hard <= (uint64_t)l->set_mib << 20)
        return;
    l->missing_ms = last && last->missing_ms ? last->missing_ms : r->now_ms;
    l->missing = last && last->missing;
    if (l->missing || r->now_ms - l->missing_ms < LIMIT_READBACK_MISSING_MS)
        return;
    l->missing = true;
    struct arena *a = &r->out->arena;
    const char *is = l->hard == GPU_NO_LIMIT
                         ? "no limit"
                         : arena_printf(a, "a limit of %" PRIu64 " MiB", l->hard >> 20);
    r->settings.missing(
        r->settings.ctx, l->pod_uid.p,
        arena_printf(a,
                     "container %.*s has %s of the driver on GPU%d; it should "
                     "have %" PRId64 " MiB",
                     SPAN_ARG(l->container), is, l->index, l->set_mib));
}

/* The texts are copied. */
static void add_reading(struct limit_readings *out, struct usage_limit l)
{
    struct span *const texts[] = {&l.ns,      &l.pod,          &l.container,
                                  &l.pod_uid, &l.container_id, &l.uuid};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        *texts[i] = arena_copy(&out->arena, *texts[i]);
    MEM_GROW(out->limits, out->cap, out->n + 1);
    out->limits[out->n++] = l;
}

/* Reads the limits of the container's cgroups on the card. */
static void read_allocation(struct limit_readback *r, const struct allocation *al,
                            struct limit_readback_card *card)
{
    const struct span uuid = span_of(card->uuid);
    struct gpu_memory_limit is, pod = {.hard = GPU_NO_LIMIT};
    ARRAY_EACH_ITEM(const struct process_cgroup, g, r->cgroups, r->n_cgroups)
    if (r->settings.sets && !g->leaf && span_eq(g->pod_uid, al->uid))
        read_folder(r, card, g->path, pod_total(&r->set, al, uuid), &pod);
    ARRAY_EACH_ITEM(const struct process_cgroup, g, r->cgroups, r->n_cgroups)
    {
        if (!span_eq(g->pod_uid, al->uid) || !is_of(r, g, al->container))
            continue;
        struct usage_limit l = {
            .ns = al->ns,
            .pod = al->name,
            .container = al->container,
            .pod_uid = al->uid,
            .container_id = g->container_id,
            .uuid = uuid,
            .index = card->index,
            .set_mib = al->driver_limit_mib,
            .hard = pod.hard,
            .used = -1,
        };
        const char *const folders[] = {g->leaf, g->path};
        const size_t n = strcmp(g->leaf, g->path) ? 2 : 1;
        size_t i = 0;
        for (; i < n && read_folder(r, card, folders[i], l.set_mib, &is); i++) {
            l.hard = is.hard < l.hard ? is.hard : l.hard;
            if (is.used != UNMEASURED && (int64_t)is.used > l.used)
                l.used = (int64_t)is.used;
        }
        if (i < n)
            continue;
        check_limit(r, &l);
        add_reading(r->out, l);
    }
}

/* Whether the container of a reading runs on a card that has limits. */
static bool is_there(struct limit_readback *r, const struct usage_limit *l)
{
    bool runs = false, has_limits = false;
    for (size_t i = 0; i < r->n_cgroups && !runs; i++)
        runs = span_eq(r->cgroups[i].container_id, l->container_id);
    for (size_t i = 0; i < r->n_cards && !has_limits; i++)
        has_limits = !r->cards[i].fails && span_eq(span_of(r->cards[i].uuid), l->uuid);
    return runs && has_limits && has_allocation(r, l->pod_uid);
}

void limit_readback_sample(struct limit_readback *r, struct gpu *gpu,
                           const struct gpu_sample *sample, int64_t now_ms)
{
    struct limit_readings *out = xcalloc(1, sizeof *out);
    size_t n = 0;
    out->refs = 1;
    r->out = out;
    r->gpu = gpu;
    r->now_ms = now_ms;
    pthread_mutex_lock(&r->lock);
    cleanup_buf struct buf state = r->state;
    const bool changed = r->changed;
    r->state = (struct buf){0};
    r->changed = false;
    pthread_mutex_unlock(&r->lock);
    if (changed) {
        struct err err;
        allocation_set_fini(&r->set);
        r->looked_ms = 0;
        if (allocation_set_read(&r->set, buf_span(&state), span_of(r->settings.node),
                                &err))
            log_warn("limits", "cannot read the allocations", LOG_ERR(&err));
    }
    begin_cards(r, sample);
    out->readable = arena_alloc(&out->arena, (r->n_cards + 1) * sizeof *out->readable);
    for (size_t i = 0; i < r->n_cards; i++)
        if (r->cards[i].readable)
            out->readable[out->n_readable++] =
                arena_copy(&out->arena, span_of(r->cards[i].uuid));
    if (out->n_readable && r->set.n)
        look(r);
    const int64_t until_ms = clock_mono_ms() + BUDGET_MS;
    for (; n < r->set.n && clock_mono_ms() < until_ms; n++) {
        const struct allocation *al = r->set.items[(r->next + n) % r->set.n];
        for (size_t i = 0; i < r->n_cards && al->resource != IDS_COUNT; i++)
            if (r->cards[i].readable && allocation_card(al, span_of(r->cards[i].uuid)))
                read_allocation(r, al, &r->cards[i]);
    }
    r->next = n < r->set.n ? (r->next + n) % r->set.n : 0;
    /* A limit that was missing is missing until it is read again. */
    for (size_t i = 0; r->readings && i < r->readings->n; i++) {
        struct usage_limit l = r->readings->limits[i];
        l.used = -1;
        if (l.missing_ms && !find_limit(r->out, &l) && is_there(r, &l))
            add_reading(r->out, l);
    }
    bool fails = false, sets = r->n_cards > 0;
    ARRAY_EACH_ITEM(struct limit_readback_card, card, r->cards, r->n_cards)
    {
        if (card->readable && !card->asked)
            limit_readback_judge(card, GPU_LIMIT_OK, r->now_ms);
        fails |= card->fails;
        sets &= card->can_set;
    }
    atomic_store(&r->fails, fails);
    atomic_store(&r->sets, sets);
    pthread_mutex_lock(&r->lock);
    struct limit_readings *last = r->readings;
    r->readings = out;
    pthread_mutex_unlock(&r->lock);
    limit_readings_unref(last);
}

/* -- for other threads -- */

bool limit_readback_fails(const struct limit_readback *r)
{
    return atomic_load(&r->fails);
}

bool limit_readback_sets(const struct limit_readback *r)
{
    return atomic_load(&r->sets);
}

struct limit_readings *limit_readback_readings(struct limit_readback *r)
{
    pthread_mutex_lock(&r->lock);
    struct limit_readings *l = r->readings;
    if (l)
        l->refs++;
    pthread_mutex_unlock(&r->lock);
    return l;
}

void limit_readback_metrics(struct limit_readback *r, struct buf *out)
{
    static const char missing[] = "gpushare_container_gpu_memory_limit_missing";
    struct limit_readings *l = limit_readback_readings(r);
    prom_family(out, missing, PROM_GAUGE,
                "1: the driver's limit of a container is missing or too high.");
    for (size_t i = 0; l && i < l->n; i++) {
        const struct usage_limit *at = &l->limits[i];
        char index[12];
        snprintf(index, sizeof index, "%d", (int)at->index);
        const struct prom_label labels[] = {{"namespace", at->ns},
                                            {"pod", at->pod},
                                            {"container", at->container},
                                            {"card", span_of(index)},
                                            {"uuid", at->uuid}};
        /* While a container restarts, two that follow each other have its names. */
        if (at->missing && !(i && at[-1].missing && span_eq(at[-1].uuid, at->uuid) &&
                             span_eq(at[-1].pod_uid, at->pod_uid) &&
                             span_eq(at[-1].container, at->container)))
            prom_sample(out, missing, labels, ARRAY_LEN(labels), 1);
    }
    limit_readings_unref(l);
}
