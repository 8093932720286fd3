/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The parts of the device plugin, their start and stop; samples of the cards as inputs of the
 * allocator; the status of all parts.
 */

#include "plugin/plugin.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "domain/node.h"
#include "kube/client.h"
#include "node/card_sampler.h"
#include "node/status_server.h"
#include "plugin/calls.h"
#include "plugin/dispatcher.h"
#include "plugin/status.h"

enum {
    VIEW_MS = 60 * 1000, /* time between two looks at the driver of unchanged cards */
    STOP_MS = 10 * 1000, /* below terminationGracePeriodSeconds of the DaemonSet (15 s) */
};

struct plugin {
    struct plugin_config config; /* strings borrowed */
    struct kube_client *client;
    struct gpu *gpu;
    struct dispatcher *dispatcher;
    struct calls *calls;
    struct card_sampler *sampler;
    struct status_server *status;
    int64_t started_ms;     /* clock_mono_ms */
    atomic_bool is_started; /* dispatcher and calls can be asked for statistics */

    struct {             /* of the sampler's thread */
        uint64_t viewed; /* hash of the driver and the cards of the last view */
        int64_t viewed_ms;
        size_t most; /* cards, without instances, in any sample */
        bool any_lost, mig_logged;
    } cards;
};

/* The cards. Only the sampler's thread runs these. */

static void convert(const struct gpu_card *card, size_t at, struct card_seen *seen)
{
    const char *reason;
    struct span words = card->links;
    const int64_t none = *card->parent_uuid ? INT32_MAX : -1;
    *seen = (struct card_seen){
        .index = card->index,
        .place = {(int32_t)gpu_value(card, GPU_MINOR, -1),
                  (int32_t)gpu_value(card, GPU_INSTANCE, none),
                  (int32_t)gpu_value(card, GPU_COMPUTE_INSTANCE, none)},
        /* Its reserve is no unit to promise, but ids of running pods stay. */
        .mib = gpu_value(card, GPU_MEM_TOTAL, 0) >> 20,
        .reading = card_health_read(card, &reason)};
    snprintf(seen->uuid, sizeof seen->uuid, "%s", card->uuid);
    memcpy(seen->parent, card->parent_uuid, sizeof seen->parent);
    snprintf(seen->reason, sizeof seen->reason, "%s", reason);
    seen->near.at = (uint8_t)at;
    seen->near.numa_node = (int32_t)gpu_value(card, GPU_NUMA_NODE, -1);
    for (size_t i = 0; i < CARDS_MAX && words.n; i++)
        seen->near.width[i] = link_width(span_cut(&words, ' '));
}

/* Other programs write specifications, and device nodes come late after a boot. */
static bool is_view_due(struct plugin *p, const char *driver,
                        const struct card_seen *cards, size_t n)
{
    uint64_t hash = hash_bytes(0, driver, strlen(driver));
    for (size_t i = 0; i < n; i++) {
        hash = hash_bytes(hash, cards[i].uuid, strlen(cards[i].uuid));
        hash = hash_bytes(hash, &cards[i].index, sizeof cards[i].index);
        hash = hash_bytes(hash, &cards[i].place, sizeof cards[i].place);
    }
    if (hash == p->cards.viewed && clock_mono_ms() < p->cards.viewed_ms + VIEW_MS)
        return false;
    p->cards.viewed = hash;
    p->cards.viewed_ms = clock_mono_ms();
    return true;
}

static void on_sample(void *ctx, const struct gpu_sample *sample, const struct err *err)
{
    struct plugin *p = ctx;
    struct dispatcher_msg *m = dispatcher_input_new(ALLOC_IN_CARDS);
    size_t n = sample ? sample->n_cards : 0, full = 0;
    struct card_seen *seen = arena_zalloc(&m->arena, (n + 1) * sizeof *seen);
    m->in.seen = seen;
    if (err) {
        m->err = *err;
        m->in.err = &m->err;
    }
    bool lost = false;
    for (size_t i = 0; i < n; i++) {
        const struct gpu_card *card = &sample->cards[i];
        bool instance = *card->parent_uuid;
        lost |= card->state == GPU_LOST && !instance;
        full += !instance;
        if (card->state != GPU_MIG) {
            convert(card, i, &seen[m->in.n++]);
            continue;
        }
        if (!p->cards.mig_logged)
            log_info("cards", "of a card in MIG mode, the instances are listed",
                     LOG_S("card", card->uuid), LOG_S("why", card->why));
        p->cards.mig_logged = true;
    }
    if (sample) {
        p->cards.any_lost = lost || full < p->cards.most;
        p->cards.most = full > p->cards.most ? full : p->cards.most;
    }
    if (sample && is_view_due(p, sample->driver, seen, m->in.n))
        m->in.driver = driver_view_new(&p->config.driver, sample->driver, seen, m->in.n);
    dispatcher_post(p->dispatcher, m);
}

static void on_event(void *ctx, const struct gpu_event *event)
{
    struct plugin *p = ctx;
    struct dispatcher_msg *m = dispatcher_input_new(ALLOC_IN_CARD_EVENT);
    m->in.event = *event;
    dispatcher_post(p->dispatcher, m);
}

static int64_t interval(void *ctx, bool *reopen)
{
    const struct plugin *p = ctx;
    *reopen = p->cards.any_lost;
    return p->config.interval_ms;
}

/* Status. The server's threads run these. */

/* The statistics of all parts at one moment. The server answers before the other threads
 * are started. */
static struct status_facts facts_of(struct plugin *p)
{
    struct status_facts f = {.now_ms = clock_mono_ms(),
                             .started_ms = p->started_ms,
                             .late_ms = p->config.late_ms};
    f.watch.alive_ms = f.now_ms;
    dispatcher_stats(p->dispatcher, &f.dispatcher);
    if (atomic_load(&p->is_started))
        f.watch = calls_watch_status(p->calls);
    return f;
}

static void on_checks(void *ctx, enum status_probe probe, struct status_report *report)
{
    const struct status_facts f = facts_of(ctx);
    int n = probe == STATUS_LIVEZ ? STATUS_THREADS : STATUS_CHECKS;
    for (int i = 0; i < n; i++) {
        struct err err = {0};
        bool required;
        int rc = status_check(&f, (enum status_check)i, &required, &err);
        status_report_add(report, status_check_name((enum status_check)i), rc, &err,
                          required || probe != STATUS_READYZ);
    }
}

static void on_metrics(void *ctx, struct buf *out)
{
    const struct status_facts f = facts_of(ctx);
    status_write_metrics(out, &f);
    kube_client_metrics(((struct plugin *)ctx)->client, out);
}

/* Start and stop */

static int check(const struct plugin_config *c, struct err *err)
{
    const char *kind = c->driver.cdi_kind;
    if (node_name_check(c->alloc.node, err))
        return -1;
    if (kind[0] && (!strchr(kind, '/') || strpbrk(kind, "= ")))
        return err_set(err, ERR_INVALID, "--cdi-kind: \"%s\" is not VENDOR/CLASS", kind);
    return 0;
}

/* Pods can ask for the library on a node whose default it is not. */
static int install_limit(struct plugin *p, struct err *err)
{
    struct response_settings *r = &p->config.alloc.response;
    struct err why;
    if (limit_dir_install(r->limit_dir, p->config.limit_library, &why) == 0)
        return 0;
    if (r->isolation == ISOLATION_LIMIT)
        return err_set(err, why.code, "--isolation=limit: %s", why.msg);
    log_info("limit", "pods that ask for the limit start without it", LOG_ERR(&why));
    r->limit_dir = NULL;
    return 0;
}

static int make_dispatcher(struct plugin *p, struct err *err)
{
    struct plugin_config *c = &p->config;
    c->alloc.silent_ms = c->interval_ms + c->sampler_limit_ms;
    c->alloc.response.strategy = c->driver.strategy;
    c->alloc.response.by_index = c->driver.by_index = c->by_index != 0;
    p->dispatcher = dispatcher_new(&c->alloc, c->plugin_dir, c->state, err);
    return p->dispatcher ? 0 : -1;
}

/* The dispatcher's thread starts last, because it calls all other parts. */
static void start_threads(struct plugin *p)
{
    const struct plugin_config *config = &p->config;
    const struct calls_settings calls = {.node = config->alloc.node,
                                         .podresources = config->podresources,
                                         .plugin_dir = config->plugin_dir,
                                         .unit_mib = config->alloc.unit_mib};
    const struct card_sampler_fns sampler = {on_sample, on_event, interval, p};
    p->calls = calls_start(p->client, &calls, p->dispatcher);
    p->sampler = card_sampler_start(p->gpu, &sampler);
    dispatcher_start(p->dispatcher, &(struct dispatcher_callbacks){
                                        calls_register, calls_carry_out, p->calls});
    atomic_store(&p->is_started, true);
}

struct plugin *plugin_start(const struct plugin_config *config, struct err *err)
{
    if (check(config, err))
        return NULL;
    struct plugin *p = xcalloc(1, sizeof *p);
    p->config = *config;
    p->started_ms = clock_mono_ms();
    p->gpu = gpu_open(config->gpu_source, config->unified_bytes, err);
    if (p->gpu)
        p->client = kube_connect(config->entry.kubeconfig, config->entry.context, err);
    const struct status_server_fns status = {on_checks, on_metrics, p};
    if (p->client && install_limit(p, err) == 0 && make_dispatcher(p, err) == 0)
        p->status = status_server_start(config->entry.listen, (unsigned)config->port,
                                        &status, err);
    if (!p->status) {
        plugin_stop(p);
        return NULL;
    }
    start_threads(p);
    return p;
}

bool plugin_stop(struct plugin *p)
{
    int64_t until_ms = clock_mono_ms() + STOP_MS;
    status_server_stop(p->status);
    dispatcher_stop(p->dispatcher);
    if (!card_sampler_stop(p->sampler)) {
        log_warn("cards", "the driver does not respond; exiting without waiting for it");
        return false;
    }
    /* The next process sends lost calls again. */
    if (!calls_stop(p->calls, until_ms)) {
        log_warn("main", "a call does not return; exiting without waiting for it",
                 LOG_I("waited_ms", STOP_MS));
        return false;
    }
    /* All threads have ended. */
    card_sampler_free(p->sampler);
    dispatcher_free(p->dispatcher);
    calls_free(p->calls);
    gpu_free(p->gpu);
    kube_client_free(p->client);
    free(p);
    return true;
}
