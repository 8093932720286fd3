/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of the cards as inputs of the allocator, and the status of what allocates. */
#include "node/allocating.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "node/dispatcher.h"
#include "node/limit_readback.h"
#include "node/status.h"

enum {
    VIEW_MS = 60 * 1000,  /* time between two looks at the driver of unchanged cards */
    RETRY_VIEW_MS = 5000, /* after one that the driver failed to answer */
};

struct allocating {
    const struct node_options *options;
    struct alloc_settings alloc;
    struct dialect hami;
    struct kube_client *client;
    struct gpu *gpu; /* of the sampler's thread */
    struct limit_readback *limits;
    struct dispatcher *dispatcher;
    void (*saved)(void *ctx, struct span state); /* of allocating_start */
    void *saved_ctx;
    int64_t started_ms; /* clock_mono_ms */

    struct {             /* of the sampler's thread */
        uint64_t viewed; /* hash of the driver and the cards of the last view */
        int64_t viewed_ms;
        char no_limit[256]; /* as in struct driver_view, of the last view */
        bool refuses_limit, ask_failed;
        struct card_inventory *inventory;
        struct err failure; /* of the last sample; code ERR_NONE: none */
        bool mig_logged;
    } cards;
};

/* The cards. Only the sampler's thread runs these. */

/* Other programs write specifications, and device nodes come late after a boot. *changed: not for
 * that reason alone. */
static bool is_view_due(struct allocating *p, const char *driver,
                        const struct card_seen *cards, size_t n, bool *changed)
{
    uint64_t hash = hash_bytes(0, driver, strlen(driver));
    for (size_t i = 0; i < n; i++) {
        hash = hash_bytes(hash, cards[i].uuid, strlen(cards[i].uuid));
        hash = hash_bytes(hash, &cards[i].index, sizeof cards[i].index);
        hash = hash_bytes(hash, &cards[i].place, sizeof cards[i].place);
    }
    const bool read_back[] = {limit_readback_fails(p->limits),
                              limit_readback_sets(p->limits)};
    hash = hash_bytes(hash, read_back, sizeof read_back);
    *changed = hash != p->cards.viewed;
    const int64_t wait_ms = p->cards.ask_failed ? RETRY_VIEW_MS : VIEW_MS;
    if (!*changed && clock_mono_ms() < p->cards.viewed_ms + wait_ms)
        return false;
    p->cards.viewed = hash;
    p->cards.viewed_ms = clock_mono_ms();
    return true;
}

/* Asks whether the driver limits memory of these cards, for the view. A failure of an unchanged
 * driver leaves what it said before: without its limit a container would start unbounded. */
static void ask_limits(struct allocating *p, const struct card_seen *cards, size_t n,
                       bool changed, struct driver_view *view)
{
    const char *root = p->options->cgroup_root;
    cleanup_free char *v2 = xasprintf("%s/cgroup.controllers", root);
    enum gpu_limit_answer answer = GPU_LIMIT_OK;
    struct err err = {0};
    bool refuses = false;
    p->cards.ask_failed = false;
    for (size_t i = n; i-- > 0;) { /* the reason is that of the first */
        const enum gpu_limit_answer of =
            gpu_memory_limit_probe(p->gpu, cards[i].uuid, root, &err);
        answer = of == GPU_LIMIT_OK ? answer : of;
        p->cards.ask_failed |= of == GPU_LIMIT_FAILED;
        /* Instances have no hook that could refuse. */
        refuses |= !*cards[i].parent &&
                   (of == GPU_LIMIT_OLD_DRIVER || of == GPU_LIMIT_NOT_SUPPORTED);
    }
    if (!p->cards.ask_failed || changed) {
        const bool is_asked = answer == GPU_LIMIT_OK || answer == GPU_LIMIT_NO_CGROUP;
        const bool is_v1 = is_asked && access(v2, F_OK) != 0;
        if (is_v1)
            err_set(&err, ERR_NOT_FOUND, "cgroup v1: %s: %m", v2);
        else if (!n)
            err_set(&err, ERR_NOT_FOUND, "no card");
        else if (is_asked && limit_readback_fails(p->limits))
            err_set(&err, ERR_UNAVAILABLE,
                    "the limits of containers cannot be read back");
        snprintf(p->cards.no_limit, sizeof p->cards.no_limit, "%s", err.msg);
        p->cards.refuses_limit = is_v1 || refuses;
    }
    memcpy(view->no_limit, p->cards.no_limit, sizeof view->no_limit);
    view->refuses_limit = p->cards.refuses_limit;
    view->sets_limits = limit_readback_sets(p->limits);
}

/* Gives the allocator the cards of the inventory. `sample`: a new one, or NULL. */
static void post_cards(struct allocating *p, const struct gpu_sample *sample)
{
    struct dispatcher_msg *m = dispatcher_msg_input(ALLOC_IN_CARDS);
    struct card_seen *seen = arena_alloc(&m->arena, CARDS_MAX * sizeof *seen);
    size_t n_present;
    bool changed;
    m->in.seen = seen;
    m->in.n = card_inventory_seen(p->cards.inventory, seen, &n_present);
    m->err = p->cards.failure;
    m->in.err = m->err.code == ERR_NONE ? NULL : &m->err;
    if (sample && is_view_due(p, sample->driver, seen, n_present, &changed)) {
        m->in.driver =
            driver_view_new(&p->options->driver, sample->driver, seen, n_present);
        ask_limits(p, seen, n_present, changed, m->in.driver);
    }
    dispatcher_msg_post(dispatcher_queue(p->dispatcher), m);
}

void allocating_sample(struct allocating *p, const struct gpu_sample *sample,
                       const struct err *err, int64_t took_ms)
{
    struct card_inventory *inventory = p->cards.inventory;
    const int64_t now = clock_mono_ms();
    if (sample)
        limit_readback_sample(p->limits, p->gpu, sample, now);
    if (took_ms >= p->alloc.silent_ms)
        card_inventory_failed(inventory, now, "the driver does not respond", true);
    if (sample)
        card_inventory_sample(inventory, now, sample);
    else
        card_inventory_failed(inventory, now, err->msg, false);
    p->cards.failure = err ? *err : (struct err){0};
    for (size_t i = 0; sample && i < sample->n_cards && !p->cards.mig_logged; i++) {
        const struct gpu_card *card = &sample->cards[i];
        p->cards.mig_logged = card->state == GPU_MIG;
        if (p->cards.mig_logged)
            log_info("cards", "of a card in MIG mode, the instances are listed",
                     LOG_S("card", card->uuid), LOG_S("why", card->why));
    }
    post_cards(p, sample);
}

void allocating_event(struct allocating *p, const struct gpu_event *event)
{
    if (card_inventory_event(p->cards.inventory, clock_mono_ms(), event))
        post_cards(p, NULL);
}

bool allocating_any_lost(const struct allocating *p)
{
    return card_inventory_any_lost(p->cards.inventory);
}

/* Status. The server's threads run these. */

/* The server answers before the other threads are started. */
static struct status_facts facts_of(struct allocating *p)
{
    struct status_facts f = {.now_ms = clock_mono_ms(),
                             .started_ms = p->started_ms,
                             .late_ms = p->options->late_ms};
    dispatcher_stats(p->dispatcher, &f.dispatcher);
    return f;
}

bool allocating_admits(struct allocating *p)
{
    struct dispatcher_stats stats;
    dispatcher_stats(p->dispatcher, &stats);
    return stats.admits;
}

void allocating_checks(struct allocating *p, enum status_probe probe,
                       struct status_report *report)
{
    const struct status_facts f = facts_of(p);
    int n = probe == STATUS_LIVEZ ? STATUS_THREADS : STATUS_CHECKS;
    for (int i = 0; i < n; i++) {
        struct err err = {0};
        bool required;
        int rc = status_check(&f, (enum status_check)i, &required, &err);
        status_report_add(report, status_check_name((enum status_check)i), rc, &err,
                          required || probe != STATUS_READYZ);
    }
}

void allocating_metrics(struct allocating *p, struct buf *out)
{
    const struct status_facts f = facts_of(p);
    status_write_metrics(out, &f);
    limit_readback_metrics(p->limits, out);
}

struct limit_readback *allocating_limits(struct allocating *p)
{
    return p->limits;
}

/* Start and stop */

static void on_missing_limit(void *ctx, const char *pod_uid, const char *why)
{
    const struct allocating *p = ctx;
    dispatcher_msg_unlimited(dispatcher_queue(p->dispatcher), pod_uid, why);
}

/* Pods can ask for the library on a node whose default it is not. */
static int install_limit(struct allocating *p, struct err *err)
{
    struct response_settings *r = &p->alloc.response;
    struct err why;
    if (limit_dir_install(r->limit_dir, p->options->limit_library, &why) == 0)
        return 0;
    if (r->isolation == ISOLATION_LIMIT)
        return err_set(err, why.code, "--isolation=limit: %s", why.msg);
    log_info("limit", "pods that ask for the limit start without it", LOG_ERR(&why));
    r->limit_dir = NULL;
    return 0;
}

struct allocating *allocating_new(const struct node_options *options,
                                  struct kube_client *client, struct gpu *gpu,
                                  int64_t interval_ms, struct err *err)
{
    struct allocating *p = xcalloc(1, sizeof *p);
    p->options = options;
    p->client = client;
    p->gpu = gpu;
    p->limits = limit_readback_new(
        &(struct limit_readback_settings){.node = options->node_name,
                                          .host_root = options->driver.host_root,
                                          .cgroup_root = options->cgroup_root,
                                          .sets = options->set_limits,
                                          .missing = on_missing_limit,
                                          .ctx = p});
    p->started_ms = clock_mono_ms();
    p->alloc = options->alloc;
    p->alloc.node = options->node_name;
    p->alloc.unit_mib = options->unit_mib;
    p->alloc.dialect = !options->publishes ? NULL : options->requests_of ? "hami" : "";
    p->alloc.silent_ms = interval_ms + options->sampler_limit_ms;
    p->alloc.response.limit_dir = options->limit_dir;
    p->alloc.response.strategy = options->driver.strategy;
    p->alloc.response.by_index = options->driver.by_index;
    /* The kubelet's list keeps a card as long as the process lives. */
    p->cards.inventory =
        card_inventory_new(&(struct card_inventory_settings){INT64_MAX, options->health});
    p->hami = dialect_hami;
    p->alloc.hami = &p->hami;
    if (dialect_configure(&p->hami, span_of(options->hami_values), err))
        err_wrap(err, "--hami-values");
    else if (install_limit(p, err) == 0)
        p->dispatcher = dispatcher_new(options, &p->alloc, err);
    if (p->dispatcher)
        return p;
    allocating_free(p);
    return NULL;
}

uint8_t allocating_isolation(struct allocating *p, struct buf *why)
{
    const enum isolation isolation = p->alloc.response.isolation;
    struct dispatcher_stats stats;
    dispatcher_stats(p->dispatcher, &stats);
    if (stats.no_driver[0] && isolation != ISOLATION_NONE && isolation != ISOLATION_MPS)
        buf_printf(why, "the driver cannot limit the memory of containers: %s",
                   stats.no_driver);
    return stats.isolation;
}

static void on_saved(void *ctx, struct span state)
{
    struct allocating *p = ctx;
    limit_readback_allocations(p->limits, state);
    if (p->saved)
        p->saved(p->saved_ctx, state);
}

bool allocating_dialect(struct allocating *p, struct buf *dialect, bool *waits)
{
    struct dispatcher_stats stats;
    dispatcher_stats(p->dispatcher, &stats);
    const struct span is = status_dialect(&stats, waits);
    buf_add_span(dialect, is);
    return is.p;
}

/* The dispatcher's thread starts last, because it calls all other parts. */
void allocating_start(struct allocating *p, void (*saved)(void *ctx, struct span state),
                      void *ctx)
{
    p->saved = saved;
    p->saved_ctx = ctx;
    dispatcher_start(p->dispatcher, p->client, on_saved, p);
}

void allocating_stop_serving(struct allocating *p)
{
    dispatcher_stop(p->dispatcher);
}

bool allocating_stop(struct allocating *p, int64_t until_ms)
{
    return !p || dispatcher_stop_calls(p->dispatcher, until_ms);
}

void allocating_free(struct allocating *p)
{
    if (!p)
        return;
    dispatcher_free(p->dispatcher);
    card_inventory_free(p->cards.inventory);
    limit_readback_free(p->limits);
    free(p);
}
