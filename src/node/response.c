/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The answer to Allocate: how a container finds its cards, and how its promise is enforced.
 */

#include "node/response.h"

#include "base/array.h"
#include "base/mem.h"
#include "domain/keys.h"
#include "domain/quantity.h"
#include "domain/scv.h"
#include "node/limit_cdi.h"

#define VOLUME_DEVICES "/var/run/nvidia-container-devices"

enum { ENVS_MAX = 16, MOUNTS_MAX = CARDS_MAX + 2 + LIMIT_DIR_CARDS + 3 };

struct work {
    const struct response_settings *settings;
    const struct cards *node; /* all cards of the node */
    const struct pod_allocation *pod;
    const struct pod_allocation_container *container; /* NULL: any of the pod */
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

static bool is_cdi(const struct response_settings *s)
{
    return s->strategy == DRIVER_CDI_ANNOTATIONS || s->strategy == DRIVER_CDI_CRI;
}

/* Of a card by its position in the ring. */
static const char *name_of(const struct work *w, size_t i)
{
    const struct plugin_card *card = w->ring[i];
    return (w->settings->by_index && !card->parent[0]) || !card->has_uuid
               ? arena_printf(w->a, "%d", card->index)
               : card->uuid;
}

/* MiB of a unit in what the container is told: of slots, all amounts are in MiB. */
static int64_t unit_mib(const struct work *w)
{
    return ids_are_slots(w->al->resource) ? 1 : w->settings->unit_mib;
}

static int64_t card_units(const struct work *w, const struct plugin_card *card)
{
    return ids_are_slots(w->al->resource) ? card->mib : card->units;
}

enum listed { NAMES, UUIDS, INDEXES, SIZES };

/* NAMES with `prefix` before each. */
static const char *list(const struct work *w, enum listed what, const char *prefix)
{
    cleanup_buf struct buf b = {0};
    for (size_t i = 0; i < w->n; i++) {
        if (i)
            buf_addc(&b, ',');
        if (what == NAMES)
            buf_printf(&b, "%s%s", prefix, name_of(w, i));
        else if (what == UUIDS && w->ring[i]->has_uuid)
            buf_adds(&b, w->ring[i]->uuid);
        else if (what == UUIDS)
            buf_add_i64(&b, w->ring[i]->index);
        else
            buf_add_i64(&b, what == INDEXES ? w->cards[i]->index
                                            : card_units(w, w->cards[i]));
    }
    return arena_copy(w->a, buf_span(&b)).p;
}

static void add_files(struct response *r, const struct driver_file *files, size_t n)
{
    struct dp_spec *specs = (struct dp_spec *)r->dp.specs;
    for (size_t i = 0; i < n; i++)
        specs[r->dp.n_specs++] = (struct dp_spec){span_of(files[i].container),
                                                  span_of(files[i].host), SPAN("rw")};
}

/* The names of the cards. Without CDI, also their device nodes, and then those that all cards
 * need. */
static int give_cards(const struct work *w, struct err *err)
{
    const struct driver_view *view = w->settings->view;
    struct driver_file nodes[DRIVER_CARD_FILES];
    struct response *r = w->r;
    struct dp_entry *annotation;
    struct span *names;
    const bool cdi = is_cdi(w->settings);
    if (cdi && (!view || !view->cdi_kind))
        return err_set(err, ERR_UNAVAILABLE, "no CDI specification names the cards: %s",
                       view ? view->reason : "no sample of the cards yet");
    for (size_t i = 0; i < w->n && cdi && view->is_ours; i++)
        if (!driver_card_files(&view->files, &w->cards[i]->place, w->a, nodes))
            return err_set(err, ERR_UNAVAILABLE,
                           "the card %s has no device node on the host, so that no CDI "
                           "specification names it",
                           w->cards[i]->uuid);
    const char *prefix = cdi ? arena_printf(w->a, "%s=", view->cdi_kind) : "";
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
        *annotation = (struct dp_entry){
            span_of(arena_printf(w->a, "cdi.k8s.io/gpushare_%s",
                                 strchr(ids_resource_name(w->al->resource), '/') + 1)),
            span_of(list(w, NAMES, prefix))};
        r->dp.annotations = annotation;
        r->dp.n_annotations = 1;
        break;
    case DRIVER_CDI_CRI:
        names = arena_zalloc(w->a, (w->n + 1) * sizeof *names);
        for (size_t i = 0; i < w->n; i++)
            names[i] = span_of(arena_printf(w->a, "%s%s", prefix, name_of(w, i)));
        r->dp.cdi = names;
        r->dp.n_cdi = w->n;
        break;
    }
    if (!view || cdi)
        return 0;
    size_t most = w->n * DRIVER_CARD_FILES + view->files.n_nodes + 1;
    r->dp.specs = arena_zalloc(w->a, most * sizeof *r->dp.specs);
    for (size_t i = 0; i < w->n; i++)
        add_files(r, nodes,
                  driver_card_files(&view->files, &w->cards[i]->place, w->a, nodes));
    if (r->dp.n_specs)
        add_files(r, view->files.nodes, view->files.n_nodes);
    return 0;
}

static int64_t units_on(const struct work *w, size_t i)
{
    return w->al->resource == IDS_COUNT ? w->cards[i]->units
                                        : allocation_mib(w->al, &w->al->cards[i], 1);
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
        int64_t units = units_on(w, i), of = card_units(w, w->cards[i]);
        int64_t share = of > 0 ? units * 100 / of : 100;
        percent = share < percent ? share : percent;
        buf_printf(&limit, "%s%zu=%lldM", i ? "," : "", i,
                   (long long)(units * unit_mib(w)));
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

/* How the hook learns the limit; it runs with the names of the cards, or in NVIDIA's runtime. */
static bool gives_device(const struct response_settings *s)
{
    return is_cdi(s) && !s->view->no_hook[0];
}

static bool gives_variables(const struct response_settings *s)
{
    return !is_cdi(s) && s->limit_env && s->view->files.hook_limits;
}

const char *response_no_driver(const struct response_settings *s)
{
    const struct driver_view *view = s->view;
    if (s->isolation == ISOLATION_MPS) /* its server may be who is charged */
        return "the driver's limit is not known to hold for clients of MPS";
    if (!view || view->no_limit[0])
        return view ? view->no_limit : "no sample of the cards yet";
    if (view->sets_limits || gives_device(s) || gives_variables(s))
        return NULL;
    return is_cdi(s)      ? view->no_hook
           : s->limit_env ? "the host has no nvidia-container-toolkit of 1.20.1 or newer"
                          : "containers get no CDI names, and --limit-env is off";
}

uint8_t response_isolation(const struct response_settings *s)
{
    return (uint8_t)(SCV_ISOLATION_KNOWN | (s->limit_dir ? SCV_ISOLATION_LIBRARY : 0) |
                     (s->isolation == ISOLATION_MPS ? SCV_ISOLATION_MPS : 0) |
                     (response_no_driver(s) ? 0 : SCV_ISOLATION_DRIVER));
}

/* What --isolation, and a word of gpushare/isolation, give where the node has it. What a node must
 * have to get the pod is in domain/request.c. */
static const struct isolation_word {
    const char *word;
    uint8_t by;
    enum preload preload; /* how the library is loaded; 0: it is not asked for */
} isolation_words[] = {
    [ISOLATION_NONE] = {"none", 0, 0},
    [ISOLATION_MPS] = {"mps", SCV_ISOLATION_MPS, 0},
    [ISOLATION_LIMIT] = {"limit", SCV_ISOLATION_LIBRARY | SCV_ISOLATION_DRIVER,
                         PRELOAD_BOTH},
    [ISOLATION_DRIVER] = {"driver", SCV_ISOLATION_DRIVER, 0},
    [ISOLATION_AUTO] = {"", SCV_ISOLATION_DRIVER, 0}, /* a pod cannot ask for it */
    {"limit-env", SCV_ISOLATION_LIBRARY | SCV_ISOLATION_DRIVER, PRELOAD_ENV},
    {"limit-file", SCV_ISOLATION_LIBRARY | SCV_ISOLATION_DRIVER, PRELOAD_FILE},
};

/* The MPS daemon serves full cards alone; an instance needs one of its own. */
static bool has_mps(const struct work *w)
{
    return w->settings->isolation == ISOLATION_MPS && !(w->n && w->cards[0]->parent[0]);
}

/* What the pod's containers are held by, as bits of domain/scv.h, where the node can use those of
 * `can`. A pod that asks for less than the node gives, for MPS where no daemon runs, or for a word
 * that is none, gets the node's; r->not_isolated says so. Sets r->preload. */
static uint8_t choose_isolation(const struct work *w, uint8_t can)
{
    const struct response_settings *s = w->settings;
    const struct isolation_word *asked = NULL;
    uint8_t is = isolation_words[s->isolation].by & can;
    const char *why = NULL;
    struct span asks = w->pod->isolation;
    for (size_t i = 0; i < ARRAY_LEN(isolation_words) && asks.n; i++)
        if (span_eq(asks, span_of(isolation_words[i].word)))
            asked = &isolation_words[i];
    bool none = asked && !asked->by, driver = asked == &isolation_words[ISOLATION_DRIVER];
    bool less = (none && is) || (s->isolation == ISOLATION_LIMIT && asked &&
                                 (driver || asked->preload != PRELOAD_BOTH));
    w->r->preload = PRELOAD_BOTH;
    if (asks.n && !asked) {
        why = "expected driver, limit, limit-env, limit-file, mps or none";
    } else if (asked && asked->by == SCV_ISOLATION_MPS && !(can & SCV_ISOLATION_MPS)) {
        why = "this node has no MPS daemon";
    } else if (less && !s->less_isolation && !driver) {
        why = "this node allows no less than its own";
    } else if (asked) {
        is = (less && s->less_isolation ? 0 : is) | (asked->by & can);
        w->r->preload = asked->preload ?: PRELOAD_BOTH;
        if (asked->preload && !(is & SCV_ISOLATION_LIBRARY) &&
            (asked->preload != PRELOAD_BOTH || !(is & SCV_ISOLATION_DRIVER)))
            why = "this node has no libgpushare-limit.so";
    }
    if (is == SCV_ISOLATION_MPS && !has_mps(w)) {
        is = 0;
        why = "an instance of a card in MIG mode has no MPS daemon";
    }
    cleanup_buf struct buf has = {0};
    for (size_t i = 0; i <= ISOLATION_DRIVER && why; i++)
        if (isolation_words[i].by & is &
            ~(i == ISOLATION_LIMIT ? SCV_ISOLATION_DRIVER : 0))
            buf_printf(&has, "%s%s", has.n ? " and " : "", isolation_words[i].word);
    if (why)
        w->r->not_isolated = arena_printf(
            w->a, "annotation gpushare/isolation \"%.*s\": %s; its containers have %s",
            (int)(asks.n < 32 ? asks.n : 32), asks.n ? asks.p : "", why,
            has.n ? has.p : "none");
    return is;
}

/* What the promise gives the container on each of its cards. 0: not the same on all of them, which
 * the hook's one value cannot say. */
static int64_t mib_on_each(const struct work *w)
{
    const struct pod_allocation_container *c = w->container;
    int64_t mib = 0;
    for (size_t i = 0; i < w->n; i++) {
        int64_t here = 0;
        for (size_t k = 0; k < c->n_shares; k++)
            if (pod_allocation_card(w->node, &c->shares[k]) == w->cards[i])
                here = pod_allocation_mib(c, &c->shares[k], w->settings->unit_mib);
        if (!here || (i && here != mib))
            return 0;
        mib = here;
    }
    return mib;
}

static void add_driver_limit(const struct work *w)
{
    struct response *r = w->r;
    r->driver_limit_mib = mib_on_each(w);
    r->limit_device = gives_device(w->settings);
    const char *name = arena_printf(w->a, LIMIT_CDI_KIND "=%.*s-%.*s",
                                    SPAN_ARG(w->pod->uid), SPAN_ARG(w->al->container));
    if (r->limit_device && r->dp.n_annotations) {
        struct dp_entry *annotation = (struct dp_entry *)r->dp.annotations;
        annotation->value =
            span_of(arena_printf(w->a, "%.*s,%s", SPAN_ARG(annotation->value), name));
    } else if (r->limit_device) {
        ((struct span *)r->dp.cdi)[r->dp.n_cdi++] = span_of(name);
    } else if (gives_variables(w->settings)) {
        add_number(r, w->a, "NVIDIA_GPU_MEMORY_LIMIT", r->driver_limit_mib);
        add_env(r, "NVIDIA_GPU_MEMORY_REQUEST", "0");
    }
}

/* Adds the library and the pod's limits: for each card the memory of its containers as
 * Kubernetes adds them up, because they share the files. */
static void add_limit(const struct work *w)
{
    static const char library[] = LIMIT_DIR_CONTAINER "/libgpushare-limit.so";
    const char *dir = w->settings->limit_dir;
    struct arena *a = w->a;
    struct response *r = w->r;
    struct limit_plan *plan = arena_zalloc(a, sizeof *plan);
    if (!limit_dir_is_uid(w->pod->uid)) {
        r->not_isolated = RESPONSE_STATIC_POD;
        return;
    }
    plan->uid = arena_copy(a, w->pod->uid).p;
    ARRAY_EACH_ITEM(const struct plugin_card, card, w->node->items, w->node->n)
    {
        /* At most at a time, as the ledger promises. Containers are in the order of admission. */
        struct container_sum sum = {0};
        ARRAY_EACH_ITEM(const struct pod_allocation_container, c, w->pod->containers,
                        w->pod->n_containers)
        for (size_t k = 0; k < c->n_shares && c->resource != IDS_COUNT; k++)
            if (pod_allocation_card(w->node, &c->shares[k]) == card)
                container_sum_add(
                    &sum, c->role,
                    pod_allocation_mib(c, &c->shares[k], w->settings->unit_mib));
        int64_t mib = sum.running > sum.peak ? sum.running : sum.peak;
        if (mib <= 0)
            continue;
        if (plan->n == LIMIT_DIR_CARDS) {
            r->not_isolated = "the pod has more cards than libgpushare-limit.so limits";
            return;
        }
        plan->cards[plan->n++] =
            (struct limit_card){card->has_uuid ? card->uuid : "", mib};
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

static int find_cards(struct work *w, struct err *err)
{
    for (; w->n < w->al->n_cards; w->n++) {
        struct span uuid = w->al->cards[w->n].uuid;
        w->cards[w->n] = cards_by_uuid(w->node, uuid);
        if (!w->cards[w->n])
            return err_set(err, ERR_NOT_FOUND,
                           "the allocated card %.*s is not on this node", SPAN_ARG(uuid));
    }
    return 0;
}

struct response *response_of(const struct response_settings *settings,
                             const struct cards *cards, const struct pod_allocation *pod,
                             const struct pod_allocation_container *c,
                             const struct allocation *al, struct arena *a,
                             struct err *err)
{
    struct work w = {settings, cards, pod, c, al, .a = a, .r = empty(a)};
    int64_t mine = 0, of_pod = pod->request.units;
    if (find_cards(&w, err))
        return NULL;
    for (size_t i = 0; i < w.n; i++)
        mine += units_on(&w, i);
    for (size_t i = 0; i < pod->n_cards && pod->request.kind == REQUEST_CARDS; i++) {
        const struct plugin_card *card = pod_allocation_card(cards, &pod->cards[i]);
        of_pod += card ? card_units(&w, card) : 0;
    }
    find_ring(&w);
    if (give_cards(&w, err))
        return NULL;
    /* It has the device nodes of all cards, so that CUDA would see them all. */
    if (c->privileged)
        add_env(w.r, "CUDA_VISIBLE_DEVICES", list(&w, UUIDS, ""));
    add_env(w.r, KEY_MEM_IDX, list(&w, INDEXES, ""));
    add_number(w.r, a, KEY_MEM_POD, of_pod);
    add_number(w.r, a, KEY_MEM_CONTAINER, mine);
    add_env(w.r, KEY_MEM_DEV, list(&w, SIZES, ""));
    int32_t numa = w.n ? w.cards[0]->near.numa_node : -1;
    for (size_t i = 1; i < w.n; i++)
        numa = w.cards[i]->near.numa_node == numa ? numa : -1;
    if (numa >= 0)
        add_number(w.r, a, KEY_NUMA_NODE, numa);
    if (settings->cgpu_disable)
        add_env(w.r, "CGPU_DISABLE", "true");
    uint8_t isolation = choose_isolation(&w, response_isolation(settings));
    /* Where MPS runs, a program that is no client of it may find the card taken. */
    if (has_mps(&w) && isolation)
        add_mps(&w, c->compute_percent);
    if (al->resource == IDS_COUNT)
        return w.r;
    const bool none = span_eq(pod->isolation, SPAN("none")) && settings->less_isolation;
    w.r->limit_needed = span_eq(pod->isolation, SPAN("driver")) ||
                        (settings->isolation == ISOLATION_DRIVER && !none);
    const char *no_driver =
        !(isolation & SCV_ISOLATION_DRIVER)
            ? (w.r->limit_needed ? response_no_driver(settings) : NULL)
        : !limit_cdi_is_name(pod->uid, al->container) ? RESPONSE_STATIC_POD
        : !mib_on_each(&w) ? "the driver's limit is the same on each card of a "
                             "container, and its promise is not"
                           : NULL;
    if (no_driver && w.r->limit_needed) {
        err_set(err, ERR_FORBIDDEN,
                "container %.*s may not start without the driver's limit of memory: %s",
                SPAN_ARG(al->container), no_driver);
        return NULL;
    }
    if (no_driver)
        w.r->not_isolated = no_driver;
    else if (isolation & SCV_ISOLATION_DRIVER)
        add_driver_limit(&w);
    if (!(isolation & SCV_ISOLATION_LIBRARY))
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
    if (choose_isolation(&w, response_isolation(settings)) & SCV_ISOLATION_LIBRARY)
        add_limit(&w);
    return w.r;
}

int64_t response_driver_limit(const struct response_settings *settings,
                              const struct cards *cards, const struct pod_allocation *pod,
                              const struct pod_allocation_container *c,
                              const struct allocation *al)
{
    cleanup_arena struct arena a = {0};
    struct work w = {settings, cards, pod, c, al, .a = &a, .r = empty(&a)};
    struct err ignored;
    uint8_t is =
        choose_isolation(&w, response_isolation(settings) | SCV_ISOLATION_DRIVER);
    if (!(is & SCV_ISOLATION_DRIVER))
        return 0;
    int64_t mib = find_cards(&w, &ignored) ? 0 : mib_on_each(&w);
    return mib > 0 ? mib : -1;
}

/* The device list */

static void add_device(struct dp_devices *list, struct span id, bool healthy)
{
    ((struct dp_device *)list->items)[list->n++] = (struct dp_device){
        .id = id, .health = healthy ? SPAN("Healthy") : SPAN("Unhealthy")};
}

int response_list(const struct cards *cards, const struct allocation_set *allocations,
                  enum ids_resource r, struct buf *out, struct err *err)
{
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf id = {0};
    const size_t each = ids_are_slots(r) ? (size_t)cards->settings.slots : 1;
    size_t n = r == IDS_CORE ? cards->most_in_use * REQUEST_CORE : 0;
    for (size_t i = 0; i < cards->n && r != IDS_CORE; i++)
        n += r == IDS_MEM ? (size_t)cards->items[i].most_units : each;
    const size_t ours = n;
    ALLOCATION_EACH(al, allocations)
    n += al->resource == r ? al->n_others : 0;
    struct dp_devices list = {.items = arena_zalloc(&a, (n + 1) * sizeof *list.items)};
    /* Ids of compute name no card and stay healthy with an unhealthy one: an id that is
     * unhealthy while a container of another card has it makes the kubelet reject the
     * container's pod when the kubelet restarts. */
    while (r == IDS_CORE && list.n < ours)
        add_device(&list, span_of(arena_printf(&a, "core-%zu", list.n)), true);
    for (size_t i = 0; i < cards->n && list.n < ours; i++) {
        const struct plugin_card *c = &cards->items[i];
        int64_t units = r == IDS_MEM ? c->most_units : (int64_t)each;
        for (int64_t u = 0; u < units; u++) {
            buf_clear(&id);
            ids_write(&id, r, &(struct ids_id){c->tag, r == IDS_COUNT ? -1 : u});
            add_device(&list, arena_copy(&a, buf_span(&id)),
                       c->health.healthy && (r != IDS_MEM || u < c->units));
        }
    }
    /* Two pods of one name can have been shown with the same ids. */
    ALLOCATION_EACH(al, allocations)
    for (size_t i = 0; i < al->n_others && al->resource == r; i++) {
        size_t k = list.n;
        while (k > 0 && !span_eq(list.items[k - 1].id, al->others[i]))
            k--;
        if (k == 0)
            add_device(&list, al->others[i], true);
    }
    return proto_encode(&dp_devices_type, &list, DP_MESSAGE_MAX, out, err);
}
