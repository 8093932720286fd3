/* SPDX-License-Identifier: Apache-2.0 */
/* The node program: its shared parts, their start and stop, samples for both cores, and the
 * status of all parts. */
#include "node/program.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "node/card_sampler.h"
#include "node/driver_loss.h"
#include "node/publishing.h"

enum {
    SAMPLE_MS = 5 * 1000, /* the most between two samples for the allocator */
    /* Below terminationGracePeriodSeconds of the DaemonSets: 10 s of scv-agent's, else 15 s. */
    STOP_PUBLISHING_MS = 6 * 1000,
    STOP_MS = 10 * 1000,
    STOP_IDLE_MS = 500, /* beside a driver that hangs */
};

struct node_program {
    const struct node_options *options;
    struct kube_client *client;
    struct gpu *gpu;
    struct publishing *publishing; /* NULL: it only allocates */
    struct allocating *allocating; /* NULL: it only publishes */
    struct card_sampler *sampler;
    struct status_server *servers[2]; /* of --port and --publish-port */
    int64_t published_ms;             /* the last sample; of the sampler's thread */
    struct driver_loss loss; /* of the sampler's thread, until it ends the process */
    struct err verdict;      /* why it did */
    atomic_bool ends;
};

/* Samples. The sampler's thread runs these. */

static int64_t allocating_interval(const struct node_options *o)
{
    return o->sample_ms && !o->publishes ? o->sample_ms : SAMPLE_MS;
}

/* An updateInterval above the allocator's concerns the Scv alone. */
static void on_sample(void *ctx, struct gpu_sample *sample, const struct err *err,
                      int64_t took_ms)
{
    struct node_program *p = ctx;
    int64_t now = clock_mono_ms();
    struct err gone;
    if (err && err->code == ERR_GONE) {
        err_set(&gone, ERR_GONE,
                "%s: this container has lost the driver; unless it comes "
                "back, the program ends in minutes, to get a new one",
                err->msg);
        err = &gone;
    }
    /* The stop saves nothing that is not saved: an allocation is on the disk before its answer. */
    if (driver_loss_step(&p->loss, now, err ? err->code : ERR_NONE) &&
        !atomic_load(&p->ends)) {
        p->verdict = *err;
        err_wrap(&p->verdict,
                 "the container has lost the driver, and a new one finds it");
        atomic_store(&p->ends, true);
        kill(getpid(), SIGTERM);
    }
    if (p->allocating)
        allocating_sample(p->allocating, sample, err, took_ms);
    if (!p->publishing)
        return;
    bool ignored = false;
    int64_t every = publishing_interval(p->publishing, &ignored);
    if (p->allocating && every > SAMPLE_MS && p->published_ms &&
        now < p->published_ms + every)
        return;
    p->published_ms = now;
    publishing_sample(p->publishing, sample, err);
}

static void on_event(void *ctx, const struct gpu_event *event)
{
    struct node_program *p = ctx;
    if (p->allocating)
        allocating_event(p->allocating, event);
    if (p->publishing)
        publishing_event(p->publishing, event);
}

static int64_t interval(void *ctx, bool *reopen)
{
    struct node_program *p = ctx;
    int64_t ms = p->allocating ? allocating_interval(p->options) : INT64_MAX;
    *reopen = p->allocating && allocating_any_lost(p->allocating);
    if (!p->publishing)
        return ms;
    int64_t publish_ms = publishing_interval(p->publishing, reopen);
    return publish_ms < ms ? publish_ms : ms;
}

/* Status. The servers' threads run these, from before the other threads start. */

static void on_checks(void *ctx, enum status_probe probe, struct status_report *report)
{
    struct node_program *p = ctx;
    if (p->allocating)
        allocating_checks(p->allocating, probe, report);
    if (p->publishing && (probe != STATUS_LIVEZ || !p->allocating))
        publishing_checks(p->publishing, probe, report);
}

static void on_metrics(void *ctx, struct buf *out)
{
    struct node_program *p = ctx;
    if (p->publishing)
        publishing_metrics(p->publishing, out);
    if (p->allocating)
        allocating_metrics(p->allocating, out);
    kube_client_metrics(p->client, out);
}

/* Start and stop */

struct node_program *node_program_start(const struct node_options *options,
                                        struct err *err)
{
    if (node_options_check(options, err))
        return NULL;
    struct node_program *p = xcalloc(1, sizeof *p);
    const struct card_sampler_fns sampler = {on_sample, on_event, interval, p};
    p->options = options;
    bool good = (p->gpu = gpu_open(options->gpu_source, options->unified_bytes, err)) &&
                (p->client = kube_connect(options->entry.kubeconfig,
                                          options->entry.context, err));
    if (good && options->allocates)
        good =
            (p->allocating = allocating_new(options, p->client, p->gpu,
                                            allocating_interval(options), err)) != NULL;
    if (good && options->publishes)
        p->publishing = publishing_new(options, p->client, p->allocating);
    const struct status_server_fns fns = {on_checks, on_metrics, p};
    const struct {
        const char *option;
        int64_t port; /* -1: none */
    } ports[] = {{"--port", options->port},
                 {"--publish-port", options->publishes ? options->publish_port : -1}};
    for (size_t i = 0; i < ARRAY_LEN(ports) && good; i++) {
        if (ports[i].port < 0)
            continue;
        p->servers[i] = status_server_start(options->entry.listen,
                                            (unsigned)ports[i].port, &fns, err);
        good = p->servers[i] || !err_wrap(err, "%s", ports[i].option);
    }
    if (!good) {
        node_program_stop(p);
        return NULL;
    }
    if (p->publishing)
        publishing_start(p->publishing);
    p->sampler = card_sampler_start(p->gpu, &sampler);
    if (p->allocating)
        allocating_start(p->allocating, p->publishing ? publishing_allocations : NULL,
                         p->publishing);
    return p;
}

int node_program_verdict(struct node_program *p, struct err *err)
{
    if (!atomic_load(&p->ends))
        return 0;
    *err = p->verdict;
    return -1;
}

bool node_program_stop(struct node_program *p)
{
    const int64_t wait_ms = p->allocating ? STOP_MS : STOP_PUBLISHING_MS;
    const int64_t until_ms = clock_mono_ms() + wait_ms;
    for (size_t i = 0; i < ARRAY_LEN(p->servers); i++)
        status_server_stop(p->servers[i]);
    /* First, so that its wait is a part of the others'. Beside a driver that hangs, only threads
     * without a call have the time to end. */
    const bool sampled = card_sampler_stop(p->sampler);
    const bool stopped = allocating_stop(
        p->allocating, sampled ? until_ms : clock_mono_ms() + STOP_IDLE_MS);
    if (!sampled) {
        log_warn("cards", "the driver does not respond; exiting without waiting for it");
        return false;
    }
    /* The next process sends lost calls again. */
    if (!stopped || !publishing_stop(p->publishing, until_ms)) {
        log_warn("main", "a call does not return; exiting without waiting for it",
                 LOG_I("waited_ms", wait_ms));
        return false;
    }
    /* All threads have ended. */
    card_sampler_free(p->sampler);
    publishing_free(p->publishing);
    allocating_free(p->allocating);
    gpu_free(p->gpu);
    kube_client_free(p->client);
    free(p);
    return true;
}

int node_program_once(const struct node_options *options, struct buf *out,
                      struct err *err)
{
    char host[256] = "unknown";
    cleanup_gpu_sample struct gpu_sample sample = {0};
    cleanup_arena struct arena a = {0};
    struct gpu *gpu = gpu_open(options->gpu_source, options->unified_bytes, err);
    if (!gpu)
        return -1;
    int rc = gpu_sample(gpu, &sample, err);
    gpu_free(gpu);
    if (rc)
        return rc;
    gethostname(host, sizeof host - 1);
    struct card_inventory *inv = card_inventory_new(&options->publisher.cards);
    struct scv scv = {
        .meta.name = span_of(options->node_name ? options->node_name : host),
        .update_interval_ms = options->publisher.interval_ms,
        .has_update_time = true,
        .update_time = clock_wall_ns() / 1000000000,
    };
    card_inventory_sample(inv, clock_mono_ms(), &sample);
    card_inventory_report(inv, &a, &scv);
    scv_write(out, &scv);
    card_inventory_free(inv);
    return 0;
}
