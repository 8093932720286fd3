/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/agent.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/figures.h"
#include "agent/lister.h"
#include "agent/probes.h"
#include "agent/sampler.h"
#include "agent/watch.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/ticker.h"
#include "base/worker.h"
#include "domain/node.h"
#include "kube/connect.h"

struct agent {
    char *node, *lease_namespace;
    struct calls_names names;
    struct kube_client *client;
    pthread_mutex_t lock; /* protects machine */
    struct machine *machine;
    struct figures figures;
    struct gpu *gpu;
    struct worker *lanes[MACHINE_LANES];
    struct watch *watch;
    struct sampler *sampler;
    char *podresources;    /* or NULL */
    struct lister *lister; /* or NULL */
    struct ticker *ticker;
    struct probes *probes;
};

static struct machine_time time_now(void)
{
    return (struct machine_time){clock_mono_ms(), clock_wall_ns() / 1000000};
}

/* -- the machine and its lock -- */

static void note(const struct machine_output *o)
{
    if (o->code == ERR_NONE)
        log_info("agent", o->text);
    else
        log_warn("agent", o->text, LOG_S("code", err_code_name(o->code)));
}

/* A copy that stands alone. Calls have no strings but the body. */
static struct machine_output *copy_of(const struct machine_output *o)
{
    size_t n = o->body ? strlen(o->body) + 1 : 0;
    struct machine_output *copy = xmalloc(sizeof *copy + n);
    *copy = *o;
    if (n)
        copy->body = memcpy(copy + 1, o->body, n);
    return copy;
}

static void carry_out(struct agent *agent, const struct machine_outputs *outputs)
{
    for (size_t i = 0; i < outputs->n; i++) {
        const struct machine_output *o = &outputs->items[i];
        if (o->type == MACHINE_NOTE)
            note(o);
        else if (o->type == MACHINE_WATCH)
            watch_begin(agent->watch, o);
        else
            worker_add(agent->lanes[o->lane], copy_of(o));
    }
}

static void take_input(void *ctx, const struct machine_input *in)
{
    struct agent *agent = ctx;
    struct machine_outputs outputs = {0};
    figures_input(&agent->figures, in);
    pthread_mutex_lock(&agent->lock);
    int64_t before = machine_due(agent->machine);
    machine_step(agent->machine, time_now(), in, &outputs);
    bool sooner = machine_due(agent->machine) < before;
    pthread_mutex_unlock(&agent->lock);
    carry_out(agent, &outputs);
    machine_outputs_fini(&outputs);
    if (sooner)
        ticker_wake(agent->ticker);
}

static void tick(void *ctx)
{
    take_input(ctx, &(struct machine_input){.type = MACHINE_TICK, .retry_after_ms = -1});
}

static int64_t due(void *ctx)
{
    struct agent *agent = ctx;
    pthread_mutex_lock(&agent->lock);
    int64_t ms = machine_due(agent->machine);
    pthread_mutex_unlock(&agent->lock);
    return ms;
}

static const struct ticker_fns ticker_fns = {tick, due};

static int64_t interval(void *ctx, bool *lost)
{
    struct agent *agent = ctx;
    pthread_mutex_lock(&agent->lock);
    int64_t ms = machine_interval(agent->machine);
    *lost = machine_any_lost(agent->machine);
    pthread_mutex_unlock(&agent->lock);
    return ms;
}

static int check(void *ctx, int part, struct err *err)
{
    struct agent *agent = ctx;
    pthread_mutex_lock(&agent->lock);
    int rc = part < 0 ? machine_alive(agent->machine, time_now(), err)
                      : machine_check(agent->machine, time_now(), (enum machine_part)part,
                                      err);
    pthread_mutex_unlock(&agent->lock);
    return rc;
}

static int ready(void *ctx, int part, struct err *err)
{
    struct agent *agent = ctx;
    pthread_mutex_lock(&agent->lock);
    int rc = machine_ready(agent->machine, time_now(), (enum machine_part)part, err);
    pthread_mutex_unlock(&agent->lock);
    return rc;
}

static void metrics(void *ctx, struct buf *out)
{
    struct agent *agent = ctx;
    pthread_mutex_lock(&agent->lock);
    figures_write(&agent->figures, agent->machine, time_now(), out);
    pthread_mutex_unlock(&agent->lock);
}

/* -- calls -- */

static void perform(void *ctx, void *job)
{
    struct agent *agent = ctx;
    const struct machine_output *o = job;
    struct kube_request request;
    struct httpc_reply reply;
    struct calls_answer answer;
    struct err err = {0};
    cleanup_arena struct arena a = {0};
    calls_request(&agent->names, o, &a, &request);
    int rc = kube_call(agent->client, &request, &reply, &err);
    log_debug("call", request.path, LOG_S("method", request.method),
              LOG_I("status", reply.status));
    calls_answer(o, rc ? NULL : &reply, &err, &a, &answer);
    figures_call(&agent->figures, o->type,
                 answer.input.err ? answer.input.err->code : ERR_NONE);
    take_input(agent, &answer.input);
    httpc_reply_fini(&reply);
}

/* -- start and stop -- */

static int check_name(const struct agent_config *config, struct err *err)
{
    if (node_name_check(config->node_name, err))
        return -1;
    if (!object_is_name(span_of(config->lease_namespace)) ||
        strpbrk(config->lease_namespace, "%?#&"))
        return err_set(err, ERR_INVALID,
                       "--lease-namespace: \"%s\" cannot be the name of a namespace",
                       config->lease_namespace);
    if (config->grace_ms <= config->renew_ms)
        return err_set(err, ERR_INVALID,
                       "--lease-grace must be longer than --lease-renew");
    return 0;
}

static struct inventory_settings inventory_of(const struct agent_config *config)
{
    return (struct inventory_settings){
        .unhealthy_after_ms = config->unhealthy_after_ms,
        .keep_lost_ms = config->keep_lost_ms,
        .health = {.recover_ms = config->healthy_after_ms,
                   .hold_ms = config->xid_hold_ms},
    };
}

static struct machine *make_machine(struct agent *agent,
                                    const struct agent_config *config)
{
    struct machine_settings settings = {
        .node = agent->node,
        .lease_namespace = agent->lease_namespace,
        .interval_ms = config->interval_ms,
        .refresh_ms = config->refresh_ms,
        .renew_ms = config->renew_ms,
        .grace_ms = config->grace_ms,
        .late_ms = config->late_ms,
        .sampler_limit_ms = config->sampler_limit_ms,
        .with_pods = agent->podresources != NULL,
        .pods_limit_ms = 3 * config->pods_ms + 30 * 1000,
        .cards = inventory_of(config),
        .seed = rng_entropy(),
    };
    return machine_new(&settings, time_now());
}

static void start_threads(struct agent *agent, int64_t pods_ms)
{
    static const char *const names[MACHINE_LANES] = {"scv", "lease", "node"};
    struct watch_sink sink = {take_input, agent};
    struct sampler_fns fns = {take_input, interval, agent};
    struct lister_settings lister = {agent->podresources, pods_ms, take_input, agent};
    for (int i = 0; i < MACHINE_LANES; i++)
        agent->lanes[i] = worker_start(names[i], perform, agent);
    agent->watch = watch_start(agent->client, &agent->names, &sink);
    ticker_start(agent->ticker, &ticker_fns, agent);
    agent->sampler = sampler_start(agent->gpu, &fns);
    if (agent->podresources)
        agent->lister = lister_start(&lister);
}

struct agent *agent_start(const struct agent_config *config, struct err *err)
{
    if (check_name(config, err))
        return NULL;
    struct agent *agent = xcalloc(1, sizeof *agent);
    struct probes_checks checks = {check, ready, metrics, agent};
    agent->node = xstrdup(config->node_name);
    agent->lease_namespace = xstrdup(config->lease_namespace);
    if (config->podresources && config->podresources[0])
        agent->podresources = xstrdup(config->podresources);
    agent->names = (struct calls_names){agent->node, agent->lease_namespace};
    pthread_mutex_init(&agent->lock, NULL);
    agent->ticker = ticker_new();
    agent->gpu = gpu_open(config->gpu_source, err);
    if (agent->gpu)
        agent->client =
            kube_connect(config->entry.kubeconfig, config->entry.context, err);
    if (agent->client) {
        agent->machine = make_machine(agent, config);
        agent->probes =
            probes_start(config->entry.listen, (unsigned)config->port, &checks, err);
    }
    if (!agent->probes) {
        agent_stop(agent);
        return NULL;
    }
    start_threads(agent, config->pods_ms);
    return agent;
}

bool agent_stop(struct agent *agent)
{
    probes_stop(agent->probes);
    if (!sampler_stop(agent->sampler)) {
        log_warn("agent", "the driver does not answer; ending without it");
        return false;
    }
    ticker_stop(agent->ticker);
    watch_stop(agent->watch);
    lister_stop(agent->lister);
    for (int i = 0; i < MACHINE_LANES; i++)
        worker_stop(agent->lanes[i]);
    /* No thread is left. */
    for (int i = 0; i < MACHINE_LANES; i++)
        worker_free(agent->lanes[i]);
    watch_free(agent->watch);
    lister_free(agent->lister);
    sampler_free(agent->sampler);
    ticker_free(agent->ticker);
    machine_free(agent->machine);
    gpu_free(agent->gpu);
    kube_client_free(agent->client);
    pthread_mutex_destroy(&agent->lock);
    free(agent->podresources);
    free(agent->node);
    free(agent->lease_namespace);
    free(agent);
    return true;
}

int agent_once(const struct agent_config *config, struct buf *out, struct err *err)
{
    char host[256] = "unknown";
    struct inventory_settings settings = inventory_of(config);
    cleanup_gpu_sample struct gpu_sample sample = {0};
    cleanup_arena struct arena a = {0};
    struct gpu *gpu = gpu_open(config->gpu_source, err);
    if (!gpu)
        return -1;
    gethostname(host, sizeof host - 1);
    int rc = gpu_sample(gpu, &sample, err);
    if (rc == 0) {
        struct inventory *inv = inventory_new(&settings);
        struct scv scv = {
            .meta.name = span_of(config->node_name ? config->node_name : host),
            .update_interval_ms = config->interval_ms,
            .has_update_time = true,
            .update_time = clock_wall_ns() / 1000000000,
        };
        inventory_sample(inv, clock_mono_ms(), &sample);
        inventory_report(inv, &a, &scv);
        scv_write(out, &scv);
        inventory_free(inv);
    }
    gpu_free(gpu);
    return rc;
}
