/* SPDX-License-Identifier: Apache-2.0 */
/* Starts and stops the threads of scv-agent, carries the publisher's outputs out, and
 * answers probes. */
#include "agent/agent.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/api.h"
#include "agent/metrics.h"
#include "agent/overuse_actor.h"
#include "agent/podresources.h"
#include "agent/usage_meter.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"
#include "domain/node.h"
#include "kube/client.h"
#include "node/card_sampler.h"
#include "node/status_server.h"

enum {
    STOP_MS = 6 * 1000, /* below terminationGracePeriodSeconds of the DaemonSet (10 s) */
};

struct agent {
    const struct agent_config *config;
    struct kube_client *client;
    pthread_mutex_t lock; /* protects publisher */
    struct publisher *publisher;
    struct metrics metrics;
    struct gpu *gpu;
    struct usage_meter *usage_meter;
    struct overuse_actor *overuse_actor;
    struct worker *lanes[PUBLISHER_LANES];
    struct api_feed *feed; /* of the watch */
    struct list_watch_loop *watch;
    struct card_sampler *card_sampler;
    struct podresources_poller *poller; /* or NULL */
    struct ticker *ticker;
    struct status_server *status_server;
};

/* -- the publisher and its lock -- */

/* A copy that owns its body. Calls have no other strings. */
static struct publisher_output *copy_of(const struct publisher_output *o)
{
    size_t n = o->body ? strlen(o->body) + 1 : 0;
    struct publisher_output *copy = xmalloc(sizeof *copy + n);
    *copy = *o;
    if (n)
        copy->body = memcpy(copy + 1, o->body, n);
    return copy;
}

static void carry_out(struct agent *agent, const struct step_outputs *outputs)
{
    const struct publisher_output *o = outputs->items;
    step_write_logs(outputs);
    for (size_t i = 0; i < outputs->n; i++, o++)
        if (o->type == PUBLISHER_WATCH)
            list_watch_loop_start(agent->watch, 0,
                                  &(struct list_watch_run){o->run, true, o->version});
        else
            worker_add(agent->lanes[o->lane], copy_of(o));
}

static void take_input(void *ctx, const struct publisher_input *in)
{
    struct agent *agent = ctx;
    struct step_outputs outputs = {0};
    pthread_mutex_lock(&agent->lock);
    int64_t before = publisher_due(agent->publisher);
    publisher_step(agent->publisher, step_now(), in, &outputs);
    bool sooner = publisher_due(agent->publisher) < before;
    pthread_mutex_unlock(&agent->lock);
    carry_out(agent, &outputs);
    step_outputs_fini(&outputs);
    if (sooner)
        ticker_wake(agent->ticker);
}

/* An input that is not an answer. */
static void take_event(struct agent *agent, struct publisher_input in)
{
    in.retry_after_ms = -1;
    take_input(agent, &in);
}

/* -- time and samples -- */

static void tick(void *ctx)
{
    take_event(ctx, (struct publisher_input){.type = PUBLISHER_TICK});
}

static int64_t due(void *ctx)
{
    struct agent *agent = ctx;
    pthread_mutex_lock(&agent->lock);
    int64_t ms = publisher_due(agent->publisher);
    pthread_mutex_unlock(&agent->lock);
    return ms;
}

static const struct ticker_fns ticker_fns = {tick, due};

/* The use goes before the sample, so that a write which the sample causes has it. */
static void on_sample(void *ctx, const struct gpu_sample *sample, const struct err *err)
{
    struct agent *agent = ctx;
    struct usage usage = {0};
    struct err unknown = {0};
    if (err)
        agent->metrics.failed_samples++;
    else
        agent->metrics.samples++;
    usage_meter_measure(agent->usage_meter, clock_mono_ms(), sample, &usage, &unknown);
    overuse_actor_take(agent->overuse_actor, &usage);
    take_event(agent, (struct publisher_input){
                          .type = PUBLISHER_USAGE, .usage = &usage, .err = &unknown});
    usage_fini(&usage);
    take_event(agent, (struct publisher_input){
                          .type = PUBLISHER_SAMPLED, .sample = sample, .err = err});
}

static void on_event(void *ctx, const struct gpu_event *event)
{
    take_event(ctx, (struct publisher_input){.type = PUBLISHER_EVENT, .event = event});
}

static int64_t interval(void *ctx, bool *reopen)
{
    struct agent *agent = ctx;
    pthread_mutex_lock(&agent->lock);
    int64_t ms = publisher_interval(agent->publisher);
    *reopen = publisher_any_lost(agent->publisher);
    pthread_mutex_unlock(&agent->lock);
    return ms;
}

static void on_pods(void *ctx, struct podresources *pods, const struct err *err)
{
    struct agent *agent = ctx;
    if (!err)
        usage_meter_pods(agent->usage_meter, clock_mono_ms(), pods);
    take_event(agent, (struct publisher_input){
                          .type = PUBLISHER_PODS, .pods = pods, .err = err});
}

/* -- probes and metrics -- */

static void add_check(struct agent *agent, enum status_probe probe,
                      enum publisher_check check, struct status_report *report)
{
    struct err err = {0};
    bool required = true;
    int rc = probe == STATUS_READYZ
                 ? publisher_ready(agent->publisher, step_now(), check, &required, &err)
                 : publisher_check(agent->publisher, step_now(), check, &err);
    status_report_add(report, publisher_check_name(check), rc, &err, required);
}

static void checks(void *ctx, enum status_probe probe, struct status_report *report)
{
    struct agent *agent = ctx;
    struct err err = {0};
    pthread_mutex_lock(&agent->lock);
    int rc = publisher_live(agent->publisher, step_now(), &err);
    status_report_add(report, "threads", rc, &err, true);
    for (int i = 0; i < PUBLISHER_CHECKS && probe != STATUS_LIVEZ; i++)
        add_check(agent, probe, (enum publisher_check)i, report);
    pthread_mutex_unlock(&agent->lock);
}

static void metrics(void *ctx, struct buf *out)
{
    struct agent *agent = ctx;
    pthread_mutex_lock(&agent->lock);
    metrics_write_agent(&agent->metrics, agent->publisher, step_now(), out);
    pthread_mutex_unlock(&agent->lock);
    overuse_actor_metrics(agent->overuse_actor, out);
    kube_client_metrics(agent->client, out);
}

/* -- calls -- */

static void perform(void *ctx, void *job)
{
    struct agent *agent = ctx;
    const struct publisher_output *o = job;
    struct kube_request request;
    cleanup_reply struct httpc_reply reply = {0};
    struct api_answer answer;
    struct err err = {0};
    cleanup_arena struct arena a = {0};
    api_request(agent->config->node_name, o, &a, &request);
    int rc = kube_call(agent->client, &request, &reply, &err);
    log_debug("call", request.path, LOG_S("method", request.method),
              LOG_I("status", reply.status));
    api_answer(o, rc ? NULL : &reply, &err, &a, &answer);
    agent->metrics.calls[answer.err.code]++;
    take_input(agent, &answer.input);
}

/* -- start and stop -- */

static int check_name(const struct agent_config *config, struct err *err)
{
    if (node_name_check(config->node_name, err))
        return -1;
    if (config->publisher.grace_ms <= config->publisher.renew_ms)
        return err_set(err, ERR_INVALID,
                       "--lease-grace: must be longer than --lease-renew");
    return 0;
}

static bool polls_pods(const struct agent_config *config)
{
    return config->podresources && *config->podresources;
}

static int64_t pods_limit_ms(const struct agent_config *config)
{
    return 3 * config->pods_ms + 30 * 1000;
}

static void start_threads(struct agent *agent)
{
    const struct agent_config *config = agent->config;
    struct card_sampler_fns fns = {on_sample, on_event, interval, agent};
    struct podresources_poller_settings poller = {.socket = config->podresources,
                                                  .interval_ms = config->pods_ms,
                                                  .plugin_state = config->plugin_state,
                                                  .node = span_of(config->node_name),
                                                  .polled = on_pods,
                                                  .ctx = agent};
    for (int i = 0; i < PUBLISHER_LANES; i++)
        agent->lanes[i] = worker_start(publisher_lane_names[i], perform, agent);
    agent->feed = api_feed_new(config->node_name, take_input, agent);
    agent->watch = list_watch_loop_new(agent->client, 1, &api_feed_fns, agent->feed);
    list_watch_loop_thread(agent->watch, "watch");
    ticker_start(agent->ticker, &ticker_fns, agent);
    agent->card_sampler = card_sampler_start(agent->gpu, &fns);
    if (polls_pods(config))
        agent->poller = podresources_poller_start(&poller);
}

struct agent *agent_start(const struct agent_config *config, struct err *err)
{
    if (check_name(config, err))
        return NULL;
    struct agent *agent = xcalloc(1, sizeof *agent);
    struct status_server_fns status = {checks, metrics, agent};
    agent->config = config;
    pthread_mutex_init(&agent->lock, NULL);
    agent->ticker = ticker_new();
    agent->usage_meter = usage_meter_new(&(struct usage_meter_settings){
        config->host_root, config->limit_dir, pods_limit_ms(config)});
    agent->gpu = gpu_open(config->gpu_source, config->unified_bytes, err);
    if (agent->gpu)
        agent->client =
            kube_connect(config->entry.kubeconfig, config->entry.context, err);
    if (agent->client) {
        struct publisher_settings publisher = config->publisher;
        struct overuse_actor_settings overuse = {config->overuse, config->node_name,
                                                 agent->client};
        publisher.node = config->node_name;
        publisher.with_pods = polls_pods(config);
        publisher.pods_limit_ms = pods_limit_ms(config);
        publisher.seed = rng_entropy();
        agent->publisher = publisher_new(&publisher, step_now());
        overuse.decide.tolerance_mib = config->overuse_tolerance >> 20;
        agent->overuse_actor = overuse_actor_start(&overuse);
        agent->status_server = status_server_start(config->entry.listen,
                                                   (unsigned)config->port, &status, err);
    }
    if (!agent->status_server) {
        agent_stop(agent);
        return NULL;
    }
    start_threads(agent);
    return agent;
}

/* A lane sends the Scv or the Lease. The next process sends a lost one again. */
static bool stop_lanes(struct agent *agent, int64_t until_ms)
{
    for (int i = 0; i < PUBLISHER_LANES; i++)
        if (!worker_stop_until(agent->lanes[i], until_ms))
            return false;
    return overuse_actor_stop(agent->overuse_actor, until_ms);
}

bool agent_stop(struct agent *agent)
{
    int64_t until_ms = clock_mono_ms() + STOP_MS;
    status_server_stop(agent->status_server);
    if (!card_sampler_stop(agent->card_sampler)) {
        log_warn("cards", "the driver does not respond; exiting without waiting for it");
        return false;
    }
    ticker_stop(agent->ticker);
    list_watch_loop_stop(agent->watch);
    podresources_poller_stop(agent->poller);
    if (!stop_lanes(agent, until_ms)) {
        log_warn("main", "a call does not return; exiting without waiting for it",
                 LOG_I("waited_ms", STOP_MS));
        return false;
    }
    /* All threads have ended. */
    for (int i = 0; i < PUBLISHER_LANES; i++)
        worker_free(agent->lanes[i]);
    list_watch_loop_free(agent->watch);
    api_feed_free(agent->feed);
    podresources_poller_free(agent->poller);
    card_sampler_free(agent->card_sampler);
    ticker_free(agent->ticker);
    publisher_free(agent->publisher);
    usage_meter_free(agent->usage_meter);
    overuse_actor_free(agent->overuse_actor);
    gpu_free(agent->gpu);
    kube_client_free(agent->client);
    pthread_mutex_destroy(&agent->lock);
    free(agent);
    return true;
}

int agent_once(const struct agent_config *config, struct buf *out, struct err *err)
{
    char host[256] = "unknown";
    cleanup_gpu_sample struct gpu_sample sample = {0};
    cleanup_arena struct arena a = {0};
    struct gpu *gpu = gpu_open(config->gpu_source, config->unified_bytes, err);
    if (!gpu)
        return -1;
    gethostname(host, sizeof host - 1);
    int rc = gpu_sample(gpu, &sample, err);
    if (rc == 0) {
        struct card_inventory *inv = card_inventory_new(&config->publisher.cards);
        struct scv scv = {
            .meta.name = span_of(config->node_name ? config->node_name : host),
            .update_interval_ms = config->publisher.interval_ms,
            .has_update_time = true,
            .update_time = clock_wall_ns() / 1000000000,
        };
        card_inventory_sample(inv, clock_mono_ms(), &sample);
        card_inventory_report(inv, &a, &scv);
        scv_write(out, &scv);
        card_inventory_free(inv);
    }
    gpu_free(gpu);
    return rc;
}
