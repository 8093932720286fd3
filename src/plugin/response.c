/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/response.h"

#include "base/mem.h"
#include "domain/keys.h"
#include "domain/quantity.h"
#include "plugin/response_priv.h"

#define VOLUME_DEVICES "/var/run/nvidia-container-devices"

enum { PAIRS_MAX = 16, MOUNTS_MAX = CARDS_MAX + 2 + LIMIT_DIR_CARDS + 3 };

static const char *keep(struct arena *a, const struct buf *b)
{
    return arena_copy(a, buf_span(b)).p;
}

static void add_env(struct response *r, const char *key, const char *value)
{
    r->envs[r->n_envs++] = (struct response_pair){.key = key, .value = value};
}

static void add_number(struct response *r, struct arena *a, const char *key, int64_t n)
{
    cleanup_buf struct buf b = {0};
    buf_add_i64(&b, n);
    add_env(r, key, keep(a, &b));
}

/* Appends the text that stands for a card in a list. */
typedef void (*card_fn)(struct buf *out, const struct response_settings *settings,
                        const struct plugin_card *card);

static void by_name(struct buf *out, const struct response_settings *settings,
                    const struct plugin_card *card)
{
    if (settings->by_index || !card->has_uuid)
        buf_add_i64(out, card->index);
    else
        buf_adds(out, card->uuid);
}

static void by_index(struct buf *out, const struct response_settings *settings,
                     const struct plugin_card *card)
{
    (void)settings;
    buf_add_i64(out, card->index);
}

static void by_size(struct buf *out, const struct response_settings *settings,
                    const struct plugin_card *card)
{
    (void)settings;
    buf_add_i64(out, card->units);
}

struct work {
    const struct response_settings *settings;
    const struct plugin_card
        *cards[CARDS_MAX]; /* those of the allocation, in its order */
    size_t n;
    const struct allocation *al;
    struct arena *a;
    struct response *r;
};

static const char *list(const struct work *w, card_fn one)
{
    cleanup_buf struct buf b = {0};
    for (size_t i = 0; i < w->n; i++) {
        if (i)
            buf_addc(&b, ',');
        one(&b, w->settings, w->cards[i]);
    }
    return keep(w->a, &b);
}

/* `before`, then the card's name. */
static const char *named(const struct work *w, const char *before, size_t i)
{
    cleanup_buf struct buf b = {0};
    buf_adds(&b, before);
    by_name(&b, w->settings, w->cards[i]);
    return keep(w->a, &b);
}

static const char *cdi_name(const struct work *w, size_t i)
{
    cleanup_buf struct buf kind = {0};
    buf_printf(&kind, "%s=", w->settings->view->cdi_kind);
    return named(w, kind.p, i);
}

/* Runtimes read all annotations whose names begin so. A container can have an allocation
 * of each resource. */
static void add_cdi_annotation(const struct work *w)
{
    cleanup_buf struct buf names = {0};
    for (size_t i = 0; i < w->n; i++)
        buf_printf(&names, "%s%s", i ? "," : "", cdi_name(w, i));
    w->r->annotations[w->r->n_annotations++] = (struct response_pair){
        w->al->resource == IDS_COUNT ? "cdi.k8s.io/gpushare_gpu-count"
                                     : "cdi.k8s.io/gpushare_gpu-mem",
        keep(w->a, &names), false};
}

static void add_visible(const struct work *w)
{
    struct response *r = w->r;
    switch (w->settings->strategy) {
    case DRIVER_AUTO: /* not decided yet */
    case DRIVER_ENVVAR:
        add_env(r, KEY_VISIBLE_DEVICES, list(w, by_name));
        break;
    case DRIVER_VOLUME_MOUNTS:
        add_env(r, KEY_VISIBLE_DEVICES, VOLUME_DEVICES);
        for (size_t i = 0; i < w->n; i++)
            r->mounts[r->n_mounts++] = (struct response_pair){
                named(w, VOLUME_DEVICES "/", i), "/dev/null", false};
        break;
    case DRIVER_CDI_ANNOTATIONS:
        add_cdi_annotation(w);
        break;
    case DRIVER_CDI_CRI:
        for (size_t i = 0; i < w->n; i++)
            r->cdi[r->n_cdi++] = cdi_name(w, i);
        break;
    }
}

static bool is_cdi(const struct work *w)
{
    return w->settings->strategy == DRIVER_CDI_ANNOTATIONS ||
           w->settings->strategy == DRIVER_CDI_CRI;
}

static int check_cdi(const struct work *w, struct err *err)
{
    const struct driver_view *view = w->settings->view;
    struct driver_file node;
    if (!is_cdi(w))
        return 0;
    if (!view || !view->cdi_kind)
        return err_set(err, ERR_UNAVAILABLE, "no CDI specification names the cards: %s",
                       view ? view->reason : "no sample of the cards yet");
    for (size_t i = 0; i < w->n && view->is_ours; i++)
        if (!driver_files_card(&view->files, w->cards[i]->minor, w->a, &node))
            return err_set(err, ERR_UNAVAILABLE,
                           "the card %s has no device node on the host, so that no CDI "
                           "specification names it",
                           w->cards[i]->uuid);
    return 0;
}

static void add_nodes(const struct work *w)
{
    const struct driver_view *view = w->settings->view;
    struct response *r = w->r;
    size_t before = r->n_nodes;
    if (!view || is_cdi(w))
        return;
    for (size_t i = 0; i < w->n; i++)
        if (driver_files_card(&view->files, w->cards[i]->minor, w->a,
                              &r->nodes[r->n_nodes]))
            r->n_nodes++;
    for (size_t i = 0; i < view->files.n_nodes && r->n_nodes > before; i++)
        r->nodes[r->n_nodes++] = view->files.nodes[i];
}

static int64_t units_on(const struct work *w, size_t i)
{
    if (w->al->resource == IDS_COUNT)
        return w->cards[i]->units;
    return (int64_t)w->al->cards[i].n_units;
}

/* MPS clients and server communicate through a pipe and shared memory. */
static void add_mps_mount(const struct work *w, const char *at, const char *what)
{
    cleanup_buf struct buf host = {0};
    buf_printf(&host, "%s/%s", w->settings->mps_dir, what);
    w->r->mounts[w->r->n_mounts++] = (struct response_pair){at, keep(w->a, &host), false};
}

/* The container's share of the compute of each of its cards; 0: its limits name none. */
static int64_t core_of(const struct work *w, const struct pod_allocation *pod)
{
    for (size_t i = 0; i < pod->n_containers; i++) {
        const struct pod_allocation_container *c = &pod->containers[i];
        if (w->n && c->resource == w->al->resource && span_eq(c->name, w->al->container))
            return c->core / (int64_t)w->n;
    }
    return 0;
}

/* The memory limit is per card, in the container's numbering. The thread percentage is
 * one number for all cards: the share of compute in the limits, else the smallest share of
 * memory. */
static void add_mps(const struct work *w, const struct pod_allocation *pod)
{
    struct response *r = w->r;
    cleanup_buf struct buf limit = {0};
    int64_t percent = 100, core = core_of(w, pod);
    for (size_t i = 0; i < w->n; i++) {
        int64_t units = units_on(w, i), of = w->cards[i]->units;
        int64_t share = of > 0 ? units * 100 / of : 100;
        percent = share < percent ? share : percent;
        buf_printf(&limit, "%s%zu=%lldM", i ? "," : "", i,
                   (long long)(units * w->settings->unit_mib));
    }
    percent = core > 0 && core <= 100 ? core : percent;
    add_env(r, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", keep(w->a, &limit));
    add_number(r, w->a, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percent > 0 ? percent : 1);
    add_env(r, "CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps");
    add_mps_mount(w, "/tmp/nvidia-mps", "pipe");
    add_mps_mount(w, "/dev/shm", "shm");
}

static struct response *empty(struct arena *a)
{
    struct response *r = arena_zalloc(a, sizeof *r);
    r->envs = arena_zalloc(a, PAIRS_MAX * sizeof *r->envs);
    r->mounts = arena_zalloc(a, MOUNTS_MAX * sizeof *r->mounts);
    r->cdi = arena_zalloc(a, CARDS_MAX * sizeof *r->cdi);
    r->annotations = arena_zalloc(a, sizeof *r->annotations);
    r->nodes = arena_zalloc(a, (CARDS_MAX + DRIVER_NODES_MAX) * sizeof *r->nodes);
    return r;
}

static int find_cards(struct work *w, const struct cards *cards, struct err *err)
{
    for (size_t i = 0; i < w->al->n_cards; i++) {
        struct span uuid = w->al->cards[i].uuid;
        const struct plugin_card *card =
            i < CARDS_MAX ? cards_by_uuid(cards, uuid) : NULL;
        if (!card)
            return err_set(err, ERR_NOT_FOUND,
                           "the allocated card %.*s is not on this node", SPAN_ARG(uuid));
        w->cards[w->n++] = card;
    }
    return 0;
}

/* The units of the whole pod. */
static int64_t pod_units(const struct cards *cards, const struct pod_allocation *pod)
{
    int64_t sum = pod->request.units;
    for (size_t i = 0; i < pod->n_cards && pod->request.kind == REQUEST_CARDS; i++) {
        const struct plugin_card *card = cards_by_uuid(cards, pod->cards[i].uuid);
        if (!card)
            card = cards_by_index(cards, pod->cards[i].index);
        sum += card ? card->units : 0;
    }
    return sum;
}

struct response *response_of(const struct response_settings *settings,
                             const struct cards *cards, const struct pod_allocation *pod,
                             const struct allocation *al, struct arena *a,
                             struct err *err)
{
    struct work w = {.settings = settings, .al = al, .a = a, .r = empty(a)};
    int64_t mine = 0;
    if (find_cards(&w, cards, err) || check_cdi(&w, err))
        return NULL;
    for (size_t i = 0; i < w.n; i++)
        mine += units_on(&w, i);
    add_visible(&w);
    add_nodes(&w);
    add_env(w.r, KEY_MEM_IDX, list(&w, by_index));
    add_number(w.r, a, KEY_MEM_POD, pod_units(cards, pod));
    add_number(w.r, a, "ALIYUN_COM_GPU_MEM_CONTAINER", mine);
    add_env(w.r, KEY_MEM_DEV, list(&w, by_size));
    if (settings->cgpu_disable)
        add_env(w.r, "CGPU_DISABLE", "true");
    enum isolation isolation = response_isolation(settings, pod, w.r, a);
    /* Where MPS runs, a program that is no client of it may find the card taken. */
    if (settings->isolation == ISOLATION_MPS && isolation != ISOLATION_NONE)
        add_mps(&w, pod);
    if (isolation == ISOLATION_LIMIT && al->resource == IDS_MEM) {
        response_limit(settings, cards, pod, w.r, a);
        const char *evaded = response_limit_evaded(pod, al, w.r, a);
        if (!w.r->not_isolated)
            w.r->not_isolated = evaded;
    }
    return w.r;
}

struct response *response_changed_limit(const struct response_settings *settings,
                                        const struct cards *cards,
                                        const struct pod_allocation *pod, struct arena *a)
{
    struct response *r = empty(a);
    if (response_isolation(settings, pod, r, a) == ISOLATION_LIMIT)
        response_limit(settings, cards, pod, r, a);
    return r;
}

struct response *response_without(const struct response_settings *settings, int64_t units,
                                  struct arena *a)
{
    struct response *r = empty(a);
    cleanup_buf struct buf none = {0};
    buf_printf(&none, "no-gpu-has-%lld", (long long)units);
    quantity_write_unit(&none, settings->unit_mib);
    buf_adds(&none, "-to-run");
    add_env(r, KEY_VISIBLE_DEVICES, keep(a, &none));
    add_env(r, KEY_MEM_IDX, "-1");
    add_number(r, a, KEY_MEM_POD, units);
    add_number(r, a, "ALIYUN_COM_GPU_MEM_CONTAINER", units);
    add_env(r, KEY_MEM_DEV, "0");
    return r;
}
