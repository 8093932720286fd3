/* SPDX-License-Identifier: Apache-2.0 */
/* The threads of publishing: they feed the publisher, carry its outputs out, and measure. */
#include "node/publishing.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"
#include "node/api.h"
#include "node/calls.h"
#include "node/metrics.h"
#include "node/overuse_actor.h"
#include "node/podresources.h"
#include "node/usage_meter.h"

struct publishing {
    const struct node_options *options;
    struct kube_client *client;
    pthread_mutex_t lock; /* protects publisher, lanes and abandoned */
    struct publisher *publisher;
    struct metrics metrics;
    struct usage_meter *usage_meter;
    struct overuse_actor *overuse_actor;
    struct worker *lanes[PUBLISHER_LANES];
    struct worker
        *abandoned[PUBLISHER_LANES]; /* a former worker that hangs; NULL: none */
    struct informer *scv;
    struct pods_settings pods_settings;
    struct informer
        *pods; /* NULL: this process allocates, or promises are not asked for */
    struct podresources_poller *poller; /* or NULL */
    struct allocating *allocating;      /* or NULL */
    struct worker *ticker;

    struct worker *measurer;
    pthread_mutex_t sample_lock; /* protects `waiting` */
    struct {
        bool present, failed;
        struct gpu_sample sample;
        struct err err;
    } waiting; /* to be measured */
};

/* -- the publisher and its lock -- */

static void perform(void *ctx, void *job);

static void take_input(struct publishing *p, struct publisher_input in)
{
    struct step_outputs outputs = {0};
    pthread_mutex_lock(&p->lock);
    const struct informer_status watch = informer_status(p->scv);
    in.watch = &watch;
    int64_t before = publisher_due(p->publisher);
    publisher_step(p->publisher, step_now(), &in, &outputs);
    bool sooner = publisher_due(p->publisher) < before;
    /* With the lock, so that the calls of a lane are in the order of the steps. */
    step_write_logs(&outputs);
    STEP_EACH(struct publisher_output, o, &outputs)
    {
        const size_t n = o->body ? strlen(o->body) + 1 : 0;
        if (o->type == PUBLISHER_RELIST) {
            informer_relist(p->scv);
        } else if (o->type == PUBLISHER_ABANDON) {
            /* The lane gets another worker, unless it has a former one that still hangs. */
            struct worker **lane = &p->lanes[o->lane], **former = &p->abandoned[o->lane];
            if (!worker_stop_until(*former, 0))
                continue;
            worker_free(*former);
            *former = *lane;
            if (worker_stop_until(*lane, 0))
                worker_free(steal(former));
            *lane = worker_start(publisher_lane_names[o->lane], perform, p);
        } else { /* a copy that owns its body; calls have no other strings */
            struct publisher_output *job = xmalloc(sizeof *job + n);
            *job = *o;
            job->body = n ? memcpy(job + 1, o->body, n) : NULL;
            worker_add(p->lanes[o->lane], job);
        }
    }
    pthread_mutex_unlock(&p->lock);
    step_outputs_fini(&outputs);
    if (sooner)
        worker_wake(p->ticker);
}

/* -- the Scv -- */

static int on_scv(void *ctx, struct jread *j, struct arena *a, bool gone,
                  struct span *version, struct err *err)
{
    struct api_object object;
    struct span raw;
    if (!jread_raw(j, &raw))
        return 0;
    if (api_object_read(raw, a, &object, err))
        return -1;
    *version = object.meta.version;
    take_input(ctx, (struct publisher_input){
                        .type = PUBLISHER_OBJECT, .gone = gone, .object = &object});
    return 0;
}

static void on_scv_listed(void *ctx, bool complete)
{
    take_input(ctx, (struct publisher_input){.type = complete ? PUBLISHER_LIST_ENDED
                                                              : PUBLISHER_LIST_STARTED});
}

/* -- time and samples -- */

static void pass_time(void *ctx)
{
    take_input(ctx, (struct publisher_input){.type = PUBLISHER_TICK});
}

static int64_t due(void *ctx)
{
    struct publishing *p = ctx;
    pthread_mutex_lock(&p->lock);
    int64_t ms = publisher_due(p->publisher);
    pthread_mutex_unlock(&p->lock);
    return ms;
}

static void tick(void *ctx, void *job)
{
    (void)job;
    pass_time(ctx);
}

static void measure(void *ctx, void *job)
{
    struct publishing *p = ctx;
    cleanup_gpu_sample struct gpu_sample taken = {0};
    struct usage usage = {0};
    cleanup_arena struct arena a = {0};
    struct err err, unknown = {0};
    (void)job;
    pthread_mutex_lock(&p->sample_lock);
    bool failed = p->waiting.failed;
    taken = p->waiting.sample;
    err = p->waiting.err;
    p->waiting.sample = (struct gpu_sample){0};
    p->waiting.present = false;
    pthread_mutex_unlock(&p->sample_lock);
    const struct gpu_sample *sample = failed ? NULL : &taken;
    ++*(failed ? &p->metrics.failed_samples : &p->metrics.samples);
    /* Without allocating, the Scv has no dialect. */
    struct publisher_input sampled = {.type = PUBLISHER_SAMPLED,
                                      .sample = sample,
                                      .dialect = SPAN(""),
                                      .err = failed ? &err : NULL};
    if (p->allocating)
        allocating_describe(p->allocating, &a, &sampled);
    usage_meter_measure(p->usage_meter, clock_mono_ms(), sample, sampled.isolation,
                        &usage, &unknown);
    overuse_actor_take(p->overuse_actor, &usage);
    /* The use goes before the sample, so that a write which the sample causes has it. */
    take_input(p, (struct publisher_input){
                      .type = PUBLISHER_USAGE, .usage = &usage, .err = &unknown});
    usage_fini(&usage);
    take_input(p, sampled);
}

void publishing_sample(struct publishing *p, struct gpu_sample *sample,
                       const struct err *err)
{
    pthread_mutex_lock(&p->sample_lock);
    bool was_present = p->waiting.present;
    gpu_sample_fini(&p->waiting.sample);
    p->waiting.present = true;
    p->waiting.failed = !sample;
    p->waiting.err = err ? *err : (struct err){0};
    if (sample) {
        p->waiting.sample = *sample;
        *sample = (struct gpu_sample){0};
    }
    pthread_mutex_unlock(&p->sample_lock);
    if (!was_present)
        worker_add(p->measurer, xcalloc(1, 1));
}

void publishing_event(struct publishing *p, const struct gpu_event *event)
{
    take_input(p, (struct publisher_input){.type = PUBLISHER_EVENT, .event = event});
}

int64_t publishing_interval(struct publishing *p, bool *reopen)
{
    pthread_mutex_lock(&p->lock);
    int64_t ms = publisher_interval(p->publisher);
    *reopen |= publisher_any_lost(p->publisher);
    pthread_mutex_unlock(&p->lock);
    return ms;
}

static void on_pods(void *ctx, struct podresources *pods, const struct err *err)
{
    struct publishing *p = ctx;
    if (!err)
        usage_meter_pods(p->usage_meter, pods);
    take_input(
        p, (struct publisher_input){.type = PUBLISHER_PODS, .pods = pods, .err = err});
}

/* -- probes and metrics -- */

void publishing_checks(struct publishing *p, enum status_probe probe,
                       struct status_report *report)
{
    struct err err = {0};
    pass_time(p);
    pthread_mutex_lock(&p->lock);
    int rc = publisher_live(p->publisher, step_now(), &err);
    status_report_add(report, "threads", rc, &err, true);
    for (int i = 0; i < PUBLISHER_CHECKS && probe != STATUS_LIVEZ; i++) {
        const enum publisher_check check = i;
        bool required = true;
        rc = publisher_check(p->publisher, step_now(), check,
                             probe == STATUS_READYZ ? &required : NULL, &err);
        status_report_add(report, publisher_check_name(check), rc, &err, required);
    }
    pthread_mutex_unlock(&p->lock);
    if (!p->pods)
        return;
    const struct informer_status watch = informer_status(p->pods);
    const struct step_failure *f = &watch.failure;
    const int64_t now = clock_mono_ms();
    const bool fails = f->failures && now - f->since_ms >= p->options->publisher.late_ms;
    if (now - watch.alive_ms >= PUBLISHER_HANGS_MS)
        status_report_add(
            report, "threads",
            err_set(&err, ERR_TIMEOUT, "the thread of the pods' watch hangs"), &err,
            true);
    if (probe == STATUS_LIVEZ)
        return;
    if (fails)
        err_set(&err, f->err.code, "promises of init containers are unknown: %s",
                f->err.msg);
    status_report_add(report, "init-containers", fails, &err, false);
}

void publishing_metrics(struct publishing *p, struct buf *out)
{
    pass_time(p);
    pthread_mutex_lock(&p->lock);
    metrics_write_agent(&p->metrics, p->publisher, step_now(), out);
    pthread_mutex_unlock(&p->lock);
    overuse_actor_metrics(p->overuse_actor, out);
}

/* -- calls -- */

static void perform(void *ctx, void *job)
{
    struct publishing *p = ctx;
    const struct publisher_output *o = job;
    struct kube_request request;
    cleanup_reply struct httpc_reply reply = {0};
    struct api_answer answer;
    struct err err = {0};
    cleanup_arena struct arena a = {0};
    pthread_mutex_lock(&p->lock);
    bool awaited = publisher_awaits(p->publisher, o->call);
    pthread_mutex_unlock(&p->lock);
    if (!awaited)
        return;
    api_request(p->options->node_name, o, &a, &request);
    int rc = kube_call(p->client, &request, &reply, &err);
    log_debug("call", request.path, LOG_S("method", request.method),
              LOG_I("status", reply.status));
    api_answer(o, rc ? NULL : &reply, &err, &a, &answer);
    p->metrics.calls[answer.err.code]++;
    take_input(p, answer.input);
}

/* -- start and stop -- */

static bool polls_pods(const struct node_options *o)
{
    return o->podresources && *o->podresources;
}

struct publishing *publishing_new(const struct node_options *options,
                                  struct kube_client *client,
                                  struct allocating *allocating)
{
    struct publishing *p = xcalloc(1, sizeof *p);
    const int64_t pods_limit_ms = 3 * options->pods_ms + 30 * 1000;
    struct publisher_settings publisher = options->publisher;
    struct overuse_actor_settings overuse = {options->overuse, options->node_name,
                                             client};
    overuse.decide.tolerance_mib = options->overuse_tolerance >> 20;
    p->overuse_actor = overuse_actor_start(&overuse);
    p->options = options;
    p->client = client;
    p->allocating = allocating;
    pthread_mutex_init(&p->lock, NULL);
    pthread_mutex_init(&p->sample_lock, NULL);
    p->ticker = worker_start("ticker", tick, p);
    p->usage_meter = usage_meter_new(&(struct usage_meter_settings){
        *options->driver.host_root ? options->driver.host_root : "/", options->limit_dir,
        options->alloc.cards.unit_mib, pods_limit_ms,
        allocating ? allocating_limits(allocating) : NULL});
    publisher.node = options->node_name;
    publisher.with_pods = polls_pods(options);
    publisher.pods_limit_ms = pods_limit_ms;
    publisher.seed = rng_entropy();
    p->publisher = publisher_new(&publisher, step_now());
    for (int i = 0; i < PUBLISHER_LANES; i++)
        p->lanes[i] = worker_start(publisher_lane_names[i], perform, p);
    /* Of our own object only: with 1,000 nodes that watch every Scv, each change would be sent
     * 1,000 times. */
    p->scv = informer_new(&(struct informer_settings){
        .client = client,
        .path = "/apis/core.run-linux.com/v1/scvs?fieldSelector=metadata.name%3D",
        .value = options->node_name,
        .name = "scvs",
        .not_served = "; the CRD scvs.core.run-linux.com is not installed "
                      "(manifests/crd.yaml)",
        .kind = {.watch_s = REFLECTOR_WATCH_S, .spread_ms = REFLECTOR_SPREAD_MS},
        .seed = publisher.seed,
        .object = on_scv,
        .listed = on_scv_listed,
        .recovered = pass_time,
        .ctx = p});
    p->pods_settings =
        (struct pods_settings){.node = options->node_name,
                               .unit_mib = options->alloc.cards.unit_mib,
                               .denied = "; promises of init containers stay unknown "
                                         "(manifests/scv-agent.yaml.example)",
                               .input = usage_meter_pod,
                               .ctx = p->usage_meter};
    if (polls_pods(options) && !options->allocates)
        p->pods = pods_informer_new(&p->pods_settings, client);
    return p;
}

/* `admits` of the poller. */
static bool admits(void *ctx)
{
    const struct publishing *p = ctx;
    return allocating_admits(p->allocating);
}

void publishing_allocations(void *publishing, struct span state)
{
    struct publishing *p = publishing;
    podresources_poller_allocations(p->poller, state);
}

void publishing_start(struct publishing *p)
{
    const struct node_options *o = p->options;
    struct podresources_poller_settings poller = {.socket = o->podresources,
                                                  .interval_ms = o->pods_ms,
                                                  .node = span_of(o->node_name),
                                                  .polled = on_pods,
                                                  .admits = p->allocating ? admits : NULL,
                                                  .ctx = p};
    p->measurer = worker_start("usage", measure, p);
    informer_start(p->scv, "watch");
    if (p->pods)
        informer_start(p->pods, "pod-watch");
    worker_tick(p->ticker, due);
    if (polls_pods(o))
        p->poller = podresources_poller_start(&poller);
}

/* A lane sends the Scv or the Lease. The next process sends a lost one again. */
bool publishing_stop(struct publishing *p, int64_t until_ms)
{
    if (!p)
        return true;
    if (!worker_stop_until(p->measurer, until_ms))
        return false;
    worker_stop(p->ticker);
    informer_stop(p->scv);
    informer_stop(p->pods);
    if (!podresources_poller_stop(p->poller, until_ms))
        return false;
    for (int i = 0; i < PUBLISHER_LANES; i++)
        if (!worker_stop_until(p->lanes[i], until_ms) ||
            !worker_stop_until(p->abandoned[i], until_ms))
            return false;
    return overuse_actor_stop(p->overuse_actor, until_ms);
}

void publishing_free(struct publishing *p)
{
    if (!p)
        return;
    for (int i = 0; i < PUBLISHER_LANES; i++) {
        worker_free(p->lanes[i]);
        worker_free(p->abandoned[i]);
    }
    worker_free(p->measurer);
    gpu_sample_fini(&p->waiting.sample);
    informer_free(p->scv);
    informer_free(p->pods);
    podresources_poller_free(p->poller);
    worker_free(p->ticker);
    publisher_free(p->publisher);
    usage_meter_free(p->usage_meter);
    overuse_actor_free(p->overuse_actor);
    pthread_mutex_destroy(&p->sample_lock);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
