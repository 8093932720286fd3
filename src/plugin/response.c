/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The answer to Allocate: how a container finds its cards, and how its promise is enforced.
 */

#include "plugin/response.h"

#include "base/array.h"
#include "base/mem.h"
#include "domain/keys.h"
#include "domain/quantity.h"

#define VOLUME_DEVICES "/var/run/nvidia-container-devices"

enum { ENVS_MAX = 16, MOUNTS_MAX = CARDS_MAX + 2 + LIMIT_DIR_CARDS + 3 };

struct work {
    const struct response_settings *settings;
    const struct cards *node; /* all cards of the node */
    const struct pod_allocation *pod;
    const struct allocation *al;
    const struct plugin_card *cards[CARDS_MAX]; /* those of `al`, in its order */
    const struct plugin_card *ring[CARDS_MAX];  /* in that of their best ring */
    size_t n;
    struct arena *a;
    struct response *r;
};

static struct response *empty(struct arena *a)
{
    struct response *r = arena_zalloc(a, sizeof *r);
    r->dp.envs = arena_zalloc(a, ENVS_MAX * sizeof *r->dp.envs);
    r->dp.mounts = arena_zalloc(a, MOUNTS_MAX * sizeof *r->dp.mounts);
    return r;
}

static void add_env(struct response *r, const char *key, const char *value)
{
    struct dp_entry *envs = (struct dp_entry *)r->dp.envs;
    envs[r->dp.n_envs++] = (struct dp_entry){span_of(key), span_of(value)};
}

static void add_number(struct response *r, struct arena *a, const char *key, int64_t n)
{
    add_env(r, key, arena_printf(a, "%lld", (long long)n));
}

static void add_mount(struct response *r, const char *at, const char *from,
                      bool read_only)
{
    struct dp_mount *mounts = (struct dp_mount *)r->dp.mounts;
    mounts[r->dp.n_mounts++] = (struct dp_mount){span_of(at), span_of(from), read_only};
}

/* The cards */

/* The order of the allocation, if the connections of its cards are unknown. */
static void find_ring(struct work *w)
{
    const size_t n = w->n <= LINKS_MAX_CARDS ? w->n : 0;
    uint8_t widths[LINKS_MAX_CARDS * LINKS_MAX_CARDS], order[LINKS_MAX_CARDS];
    int32_t numa[LINKS_MAX_CARDS];
    struct list pool;
    list_init(&pool);
    memcpy(w->ring, w->cards, sizeof w->ring);
    for (size_t i = 0; i < n; i++) {
        numa[i] = w->cards[i]->near.numa_node;
        for (size_t k = 0; k < n; k++)
            widths[i * n + k] = w->cards[i]->near.width[w->cards[k]->near.at];
    }
    const struct links *links = links_take(&pool, widths, numa, (unsigned)n);
    if (!links)
        return;
    links_ring_order(links, UINT32_MAX >> (32 - n), order);
    for (size_t i = 0; i < n; i++)
        w->ring[i] = w->cards[order[i]];
    links_release(links);
}

static void add_numa_node(const struct work *w)
{
    int32_t node = w->n ? w->cards[0]->near.numa_node : -1;
    for (size_t i = 1; i < w->n; i++)
        node = w->cards[i]->near.numa_node == node ? node : -1;
    if (node >= 0)
        add_number(w->r, w->a, KEY_NUMA_NODE, node);
}

static bool is_cdi(const struct work *w)
{
    return w->settings->strategy == DRIVER_CDI_ANNOTATIONS ||
           w->settings->strategy == DRIVER_CDI_CRI;
}

/* Of a card by its position in the ring. */
static const char *name_of(const struct work *w, size_t i)
{
    const struct plugin_card *card = w->ring[i];
    return (w->settings->by_index && !card->parent[0]) || !card->has_uuid
               ? arena_printf(w->a, "%d", card->index)
               : card->uuid;
}

enum listed { NAMES, INDEXES, SIZES };

/* NAMES with `prefix` before each. */
static const char *list(const struct work *w, enum listed what, const char *prefix)
{
    cleanup_buf struct buf b = {0};
    for (size_t i = 0; i < w->n; i++) {
        if (i)
            buf_addc(&b, ',');
        if (what == NAMES)
            buf_printf(&b, "%s%s", prefix, name_of(w, i));
        else
            buf_add_i64(&b, what == INDEXES ? w->cards[i]->index : w->cards[i]->units);
    }
    return arena_copy(w->a, buf_span(&b)).p;
}

static int check_cdi(const struct work *w, struct err *err)
{
    const struct driver_view *view = w->settings->view;
    struct driver_file nodes[DRIVER_CARD_FILES];
    if (!is_cdi(w))
        return 0;
    if (!view || !view->cdi_kind)
        return err_set(err, ERR_UNAVAILABLE, "no CDI specification names the cards: %s",
                       view ? view->reason : "no sample of the cards yet");
    for (size_t i = 0; i < w->n && view->is_ours; i++)
        if (!driver_card_files(&view->files, &w->cards[i]->place, w->a, nodes))
            return err_set(err, ERR_UNAVAILABLE,
                           "the card %s has no device node on the host, so that no CDI "
                           "specification names it",
                           w->cards[i]->uuid);
    return 0;
}

static void add_visible(const struct work *w)
{
    struct response *r = w->r;
    struct dp_entry *annotation;
    struct span *names;
    const char *cdi =
        is_cdi(w) ? arena_printf(w->a, "%s=", w->settings->view->cdi_kind) : NULL;
    switch (w->settings->strategy) {
    case DRIVER_AUTO: /* not decided yet */
    case DRIVER_ENVVAR:
        add_env(r, KEY_VISIBLE_DEVICES, list(w, NAMES, ""));
        break;
    case DRIVER_VOLUME_MOUNTS:
        add_env(r, KEY_VISIBLE_DEVICES, VOLUME_DEVICES);
        for (size_t i = 0; i < w->n; i++)
            add_mount(r, arena_printf(w->a, VOLUME_DEVICES "/%s", name_of(w, i)),
                      "/dev/null", false);
        break;
    case DRIVER_CDI_ANNOTATIONS:
        /* Runtimes read all annotations whose names begin so. A container can have an
         * allocation of each resource. */
        annotation = arena_zalloc(w->a, sizeof *annotation);
        *annotation = (struct dp_entry){w->al->resource == IDS_COUNT
                                            ? SPAN("cdi.k8s.io/gpushare_gpu-count")
                                            : SPAN("cdi.k8s.io/gpushare_gpu-mem"),
                                        span_of(list(w, NAMES, cdi))};
        r->dp.annotations = annotation;
        r->dp.n_annotations = 1;
        break;
    case DRIVER_CDI_CRI:
        names = arena_zalloc(w->a, (w->n + 1) * sizeof *names);
        for (size_t i = 0; i < w->n; i++)
            names[i] = span_of(arena_printf(w->a, "%s%s", cdi, name_of(w, i)));
        r->dp.cdi = names;
        r->dp.n_cdi = w->n;
        break;
    }
}

static void add_nodes(const struct work *w)
{
    const struct driver_view *view = w->settings->view;
    size_t n = 0;
    if (!view || is_cdi(w))
        return;
    size_t most = w->n * DRIVER_CARD_FILES + view->files.n_nodes;
    struct dp_spec *specs = arena_zalloc(w->a, (most + 1) * sizeof *specs);
    for (size_t i = 0; i <= w->n && (i < w->n || n > 0); i++) {
        struct driver_file of_card[DRIVER_CARD_FILES];
        const struct driver_file *files = i < w->n ? of_card : view->files.nodes;
        size_t n_files =
            i < w->n ? driver_card_files(&view->files, &w->cards[i]->place, w->a, of_card)
                     : view->files.n_nodes;
        for (size_t k = 0; k < n_files; k++)
            specs[n++] = (struct dp_spec){span_of(files[k].container),
                                          span_of(files[k].host), SPAN("rw")};
    }
    w->r->dp.specs = specs;
    w->r->dp.n_specs = n;
}

static int64_t units_on(const struct work *w, size_t i)
{
    return w->al->resource == IDS_COUNT ? w->cards[i]->units
                                        : (int64_t)w->al->cards[i].n_units;
}

/* The units of the whole pod. */
static int64_t pod_units(const struct work *w)
{
    const struct pod_allocation *pod = w->pod;
    int64_t sum = pod->request.units;
    for (size_t i = 0; i < pod->n_cards && pod->request.kind == REQUEST_CARDS; i++) {
        const struct plugin_card *card = pod_allocation_card(w->node, &pod->cards[i]);
        sum += card ? card->units : 0;
    }
    return sum;
}

/* MPS: the memory limit is per card, in the container's numbering. The thread percentage is
 * one number for all cards: the share of compute in the limits, else the smallest share of
 * memory. Clients and server communicate through a pipe and shared memory. */
static void add_mps(const struct work *w, int64_t core)
{
    struct response *r = w->r;
    cleanup_buf struct buf limit = {0};
    int64_t percent = 100;
    for (size_t i = 0; i < w->n; i++) {
        int64_t units = units_on(w, i), of = w->cards[i]->units;
        int64_t share = of > 0 ? units * 100 / of : 100;
        percent = share < percent ? share : percent;
        buf_printf(&limit, "%s%zu=%lldM", i ? "," : "", i,
                   (long long)(units * w->settings->unit_mib));
    }
    core /= w->n ? (int64_t)w->n : 1;
    percent = core > 0 && core <= 100 ? core : percent;
    add_env(r, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", arena_copy(w->a, buf_span(&limit)).p);
    add_number(r, w->a, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percent > 0 ? percent : 1);
    add_env(r, "CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps");
    add_mount(r, "/tmp/nvidia-mps", arena_printf(w->a, "%s/pipe", w->settings->mps_dir),
              false);
    add_mount(r, "/dev/shm", arena_printf(w->a, "%s/shm", w->settings->mps_dir), false);
}

/* The limit */

static const char *isolation_name(enum isolation i)
{
    static const char *const names[] = {"none", "mps", "limit"};
    return names[i];
}

/* The ways of loading the library that the word asks for; 0: it asks for no limit. */
static enum preload preload_of(struct span asks)
{
    return span_eq(asks, SPAN("limit"))        ? PRELOAD_BOTH
           : span_eq(asks, SPAN("limit-env"))  ? PRELOAD_ENV
           : span_eq(asks, SPAN("limit-file")) ? PRELOAD_FILE
                                               : (enum preload)0;
}

/* The MPS daemon serves full cards alone; an instance needs one of its own. */
static bool has_mps(const struct work *w)
{
    return w->settings->isolation == ISOLATION_MPS && !(w->n && w->cards[0]->parent[0]);
}

/* The isolation of the pod's containers. A pod that asks for less than the node gives, for
 * MPS where no daemon runs, or for a word that is none, gets the node's; r->not_isolated
 * says so. Sets r->preload for ISOLATION_LIMIT. */
static enum isolation choose_isolation(const struct work *w)
{
    enum isolation is = w->settings->isolation;
    const char *why = NULL;
    struct span asks = w->pod->isolation;
    enum preload preload = preload_of(asks);
    bool less = span_eq(asks, SPAN("none")) ||
                (is == ISOLATION_LIMIT && preload && preload != PRELOAD_BOTH);
    w->r->preload = PRELOAD_BOTH;
    if (!asks.n || span_eq(asks, span_of(isolation_name(is))))
        why = NULL;
    else if (less && !w->settings->less_isolation)
        why = "this node allows no less than its own";
    else if (preload) {
        is = ISOLATION_LIMIT;
        w->r->preload = preload;
    } else if (less)
        is = ISOLATION_NONE;
    else if (span_eq(asks, SPAN("mps")))
        why = "this node has no MPS daemon";
    else
        why = "expected limit, limit-env, limit-file, mps or none";
    if (is == ISOLATION_MPS && !has_mps(w)) {
        is = ISOLATION_NONE;
        why = "an instance of a card in MIG mode has no MPS daemon";
    }
    if (is == ISOLATION_LIMIT && !w->settings->limit_dir) {
        is = ISOLATION_NONE;
        why = "this node has no libgpushare-limit.so";
    }
    if (why)
        w->r->not_isolated = arena_printf(
            w->a, "annotation gpushare/isolation \"%.*s\": %s; its containers have %s",
            (int)(asks.n < 32 ? asks.n : 32), asks.n ? asks.p : "", why,
            isolation_name(is));
    return is;
}

/* The units of the card that the pod's containers hold at most at a time, which is what the
 * ledger promises: app containers and sidecars together, or a plain init
 * container and the sidecars before it. The containers are in the order of admission. */
static int64_t most_units(const struct work *w, const struct plugin_card *card)
{
    int64_t sum = 0, most = 0; /* init containers come before app containers */
    ARRAY_EACH_ITEM(const struct pod_allocation_container, c, w->pod->containers,
                    w->pod->n_containers)
    {
        for (size_t k = 0; k < c->n_shares && c->resource == IDS_MEM; k++) {
            const struct promise_share *s = &c->shares[k];
            if (pod_allocation_card(w->node, s) != card)
                continue;
            if (c->role != CONTAINER_INIT)
                sum += s->units;
            else if (sum + s->units > most)
                most = sum + s->units;
        }
    }
    return sum > most ? sum : most;
}

/* Adds the library and the pod's limits: for each card the units of its containers as
 * Kubernetes adds them up, because they share the files. */
static void add_limit(const struct work *w)
{
    static const char library[] = LIMIT_DIR_CONTAINER "/libgpushare-limit.so";
    const char *dir = w->settings->limit_dir;
    struct arena *a = w->a;
    struct response *r = w->r;
    struct limit_plan *plan = arena_zalloc(a, sizeof *plan);
    plan->uid = arena_copy(a, w->pod->uid).p;
    ARRAY_EACH_ITEM(const struct plugin_card, card, w->node->items, w->node->n)
    {
        int64_t units = most_units(w, card);
        if (units <= 0)
            continue;
        if (plan->n == LIMIT_DIR_CARDS) {
            r->not_isolated = "the pod has more cards than libgpushare-limit.so limits";
            return;
        }
        plan->cards[plan->n++] = (struct limit_card){card->has_uuid ? card->uuid : "",
                                                     units * w->settings->unit_mib};
    }
    if (!plan->n)
        return;
    size_t before = r->dp.n_mounts;
    r->limit = plan;
    add_mount(r, library, arena_printf(a, "%s/libgpushare-limit.so", dir), true);
    /* glibc reads the file, and musl only the variable. A library is loaded once. */
    if (r->preload & PRELOAD_FILE)
        add_mount(r, "/etc/ld.so.preload", arena_printf(a, "%s/ld.so.preload", dir),
                  true);
    if (r->preload & PRELOAD_ENV) {
        add_env(r, KEY_PRELOAD, library);
        r->n_limit_envs++;
    }
    add_mount(r, LIMIT_DIR_CONTAINER "/limit",
              arena_printf(a, "%s/pods/%s/limit", dir, plan->uid), true);
    for (size_t i = 0; i < plan->n; i++)
        add_mount(r, arena_printf(a, LIMIT_DIR_CONTAINER "/state/%zu", i),
                  arena_printf(a, "%s/pods/%s/state/%zu", dir, plan->uid, i), false);
    r->n_limit_mounts = r->dp.n_mounts - before;
}

/* The answers */

struct response *response_of(const struct response_settings *settings,
                             const struct cards *cards, const struct pod_allocation *pod,
                             const struct pod_allocation_container *c,
                             const struct allocation *al, struct arena *a,
                             struct err *err)
{
    struct work w = {settings, cards, pod, al, .a = a, .r = empty(a)};
    int64_t mine = 0;
    for (; w.n < al->n_cards; w.n++) {
        struct span uuid = al->cards[w.n].uuid;
        w.cards[w.n] = cards_by_uuid(cards, uuid);
        if (!w.cards[w.n]) {
            err_set(err, ERR_NOT_FOUND, "the allocated card %.*s is not on this node",
                    SPAN_ARG(uuid));
            return NULL;
        }
        mine += units_on(&w, w.n);
    }
    if (check_cdi(&w, err))
        return NULL;
    find_ring(&w);
    add_visible(&w);
    add_nodes(&w);
    add_env(w.r, KEY_MEM_IDX, list(&w, INDEXES, ""));
    add_number(w.r, a, KEY_MEM_POD, pod_units(&w));
    add_number(w.r, a, KEY_MEM_CONTAINER, mine);
    add_env(w.r, KEY_MEM_DEV, list(&w, SIZES, ""));
    add_numa_node(&w);
    if (settings->cgpu_disable)
        add_env(w.r, "CGPU_DISABLE", "true");
    enum isolation isolation = choose_isolation(&w);
    /* Where MPS runs, a program that is no client of it may find the card taken. */
    if (has_mps(&w) && isolation != ISOLATION_NONE)
        add_mps(&w, c->core);
    if (isolation != ISOLATION_LIMIT || al->resource != IDS_MEM)
        return w.r;
    add_limit(&w);
    /* A container that loads a library itself keeps ours out. */
    if (w.r->preload == PRELOAD_ENV && c->own_preload && !w.r->not_isolated)
        w.r->not_isolated =
            arena_printf(a,
                         "container %.*s sets LD_PRELOAD itself, so "
                         "gpushare/isolation: limit-env does not limit it",
                         SPAN_ARG(al->container));
    return w.r;
}

struct response *response_changed_limit(const struct response_settings *settings,
                                        const struct cards *cards,
                                        const struct pod_allocation *pod, struct arena *a)
{
    struct work w = {settings, cards, pod, .a = a, .r = empty(a)};
    if (choose_isolation(&w) == ISOLATION_LIMIT)
        add_limit(&w);
    return w.r;
}

struct response *response_without(const struct response_settings *settings, int64_t units,
                                  struct arena *a)
{
    struct response *r = empty(a);
    cleanup_buf struct buf none = {0};
    buf_printf(&none, "no-gpu-has-%lld", (long long)units);
    quantity_write_unit(&none, settings->unit_mib);
    buf_adds(&none, "-to-run");
    add_env(r, KEY_VISIBLE_DEVICES, arena_copy(a, buf_span(&none)).p);
    add_env(r, KEY_MEM_IDX, "-1");
    add_number(r, a, KEY_MEM_POD, units);
    add_number(r, a, KEY_MEM_CONTAINER, units);
    add_env(r, KEY_MEM_DEV, "0");
    return r;
}

/* The device list */

int response_list(const struct cards *cards, enum ids_resource r, struct buf *out,
                  struct err *err)
{
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf id = {0};
    size_t n = r == IDS_CORE ? cards->most_in_use * REQUEST_CORE : 0;
    for (size_t i = 0; i < cards->n && r != IDS_CORE; i++)
        n += r == IDS_MEM ? (size_t)cards->items[i].most_units : 1;
    struct dp_device *devices = arena_zalloc(&a, (n + 1) * sizeof *devices);
    struct dp_devices list = {.items = devices};
    /* Ids of compute name no card and stay healthy with an unhealthy one: an id that is
     * unhealthy while a container of another card has it makes the kubelet reject the
     * container's pod when the kubelet restarts. */
    for (; r == IDS_CORE && list.n < n; list.n++) {
        buf_clear(&id);
        buf_printf(&id, "core-%zu", list.n);
        devices[list.n] = (struct dp_device){.id = arena_copy(&a, buf_span(&id)),
                                             .health = SPAN("Healthy")};
    }
    for (size_t i = 0; i < cards->n && list.n < n; i++) {
        const struct plugin_card *c = &cards->items[i];
        int64_t units = r == IDS_MEM ? c->most_units : 1;
        for (int64_t u = 0; u < units; u++) {
            struct ids_id one = {c->tag, r == IDS_MEM ? u : -1};
            buf_clear(&id);
            ids_write(&id, &one);
            devices[list.n++] = (struct dp_device){
                .id = arena_copy(&a, buf_span(&id)),
                .health = c->health.healthy && (r == IDS_COUNT || u < c->units)
                              ? SPAN("Healthy")
                              : SPAN("Unhealthy")};
        }
    }
    return proto_encode(&dp_devices_type, &list, DP_MESSAGE_MAX, out, err);
}
