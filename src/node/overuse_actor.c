/* SPDX-License-Identifier: Apache-2.0 */
/* Reports, evicts and kills what overuses a card. */
#include "node/overuse_actor.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/prom.h"
#include "base/rng.h"
#include "base/thread.h"
#include "domain/object.h"
#include "kube/body.h"
#include "kube/event_recorder.h"
#include "node/process.h"

enum {
    CALL_MS = 5000,
    /* Bounds what a pod can ask for with terminationGracePeriodSeconds. It is Kubernetes'
     * own default. */
    EVICTION_GRACE_S = 30,
    RETRY_AFTER_MAX_S = 300,
};

enum count {
    EVENT_WRITTEN, /* this and the next one are the recorder's */
    EVENT_FAILED,
    EVENT_DROPPED,
    EVICTION_ACCEPTED,
    EVICTION_DELAYED, /* by a PodDisruptionBudget */
    EVICTION_FAILED,
    PROCESS_KILLED,
    PROCESS_ENDED,
    PROCESS_FAILED,
    COUNTS
};

struct overuse_actor {
    struct overuse_actor_settings settings;
    struct worker *worker;
    struct event_recorder *events;
    pthread_mutex_t lock; /* protects overuse */
    struct overuse *overuse;
    _Atomic int64_t counts[COUNTS];
    _Atomic size_t overusing; /* containers */
};

/* The pod of an action, and what happens to it. A longer name is none of the API server. */
struct job {
    char ns[256], pod[256], uid[64], note[512];
};

static void describe(const struct usage *u, const struct overuse_action *action,
                     const char *what, struct job *job)
{
    const struct usage_container *c = &u->containers[action->container];
    int64_t promised_mib = c->promised_mib > 0 ? c->promised_mib : 0;
    cleanup_buf struct buf note = {0};
    buf_printf(&note, "%scontainer %.*s uses %lld MiB of GPU%d, ", what,
               SPAN_ARG(c->name), (long long)action->used_mib, u->cards[c->card].index);
    if (c->unlimited_mib)
        buf_printf(&note, "%lld MiB of it without the limit of its pod",
                   (long long)c->unlimited_mib);
    else
        buf_printf(&note, "%lld MiB more than promised (%lld MiB)",
                   (long long)(action->used_mib - promised_mib), (long long)promised_mib);
    buf_printf(&note, ", for %lld s", (long long)(action->over_ms / 1000));
    if (c->enforced_by & SCV_ISOLATION_MPS)
        buf_adds(&note, "; MPS does not limit it");
    if (action->lacking_mib)
        buf_printf(&note, "; other pods on this card lack %lld MiB of their promises",
                   (long long)action->lacking_mib);
    snprintf(job->ns, sizeof job->ns, "%.*s", SPAN_ARG(c->ns));
    snprintf(job->pod, sizeof job->pod, "%.*s", SPAN_ARG(c->pod));
    snprintf(job->uid, sizeof job->uid, "%.*s", SPAN_ARG(c->pod_uid));
    snprintf(job->note, sizeof job->note, "%s", note.p);
}

/* Logs it, and adds an event. */
static void report(struct overuse_actor *a, const struct job *job, const char *reason,
                   const char *action)
{
    log_warn("overuse", job->note, LOG_S("namespace", job->ns), LOG_S("pod", job->pod));
    if (!event_recorder_add(a->events, &(struct event){.kind = EVENT_POD,
                                                       .ns = span_of(job->ns),
                                                       .name = span_of(job->pod),
                                                       .uid = span_of(job->uid),
                                                       .warning = true,
                                                       .unique = true,
                                                       .reason = reason,
                                                       .action = action,
                                                       .note = span_of(job->note)}))
        a->counts[EVENT_DROPPED]++;
}

/* -- evictions -- */

/* A pod that was deleted counts as evicted. A conflict (409) does not: the UID in the cgroup
 * of a static pod is never that of the API. */
static void evict(void *ctx, void *work)
{
    struct overuse_actor *a = ctx;
    const struct job *job = work;
    cleanup_buf struct buf path = {0}, body = {0};
    cleanup_reply struct httpc_reply reply = {.retry_after_s = -1};
    struct err err = {0};
    buf_printf(&path, "/api/v1/namespaces/%s/pods/%s/eviction", job->ns, job->pod);
    body_eviction(&body, span_of(job->ns), span_of(job->pod), span_of(job->uid),
                  EVICTION_GRACE_S);
    const struct kube_request request = {
        .method = "POST", .path = path.p, .body = buf_span(&body), .timeout_ms = CALL_MS};
    if (!object_is_name(span_of(job->ns)) || !object_is_name(span_of(job->pod)))
        err_set(&err, ERR_INVALID, "the name of the pod is not a valid name");
    else
        kube_ask(a->settings.client, &request, &reply, &err);
    int64_t s =
        reply.retry_after_s < RETRY_AFTER_MAX_S ? reply.retry_after_s : RETRY_AFTER_MAX_S;
    bool accepted = err.code == ERR_NONE || err.code == ERR_NOT_FOUND;
    pthread_mutex_lock(&a->lock);
    overuse_evicted(a->overuse, clock_mono_ms(), span_of(job->uid), accepted,
                    s < 0 ? -1 : s * 1000);
    pthread_mutex_unlock(&a->lock);
    a->counts[accepted                      ? EVICTION_ACCEPTED
              : err.code == ERR_UNAVAILABLE ? EVICTION_DELAYED
                                            : EVICTION_FAILED]++;
    if (err.code == ERR_NONE)
        report(a, job, "GPUOveruseEvicted", "Evicting");
    else
        log_warn("overuse",
                 accepted ? "the pod to evict no longer exists"
                          : "cannot evict the pod; retrying while it overuses the card",
                 LOG_S("namespace", job->ns), LOG_S("pod", job->pod), LOG_ERR(&err));
}

/* -- actions -- */

void overuse_actor_take(struct overuse_actor *a, const struct usage *u)
{
    cleanup_overuse_actions struct overuse_actions actions = {0};
    pthread_mutex_lock(&a->lock);
    overuse_step(a->overuse, clock_mono_ms(), u, &actions);
    a->overusing = overuse_count(a->overuse);
    pthread_mutex_unlock(&a->lock);
    ARRAY_EACH_ITEM(const struct overuse_action, action, actions.items, actions.n)
    {
        struct job job;
        if (action->type == OVERUSE_REPORT) {
            describe(u, action, "", &job);
            report(a, &job, "GPUOveruse", "Measuring");
        } else if (action->type == OVERUSE_EVICT) {
            describe(u, action, "evicted: ", &job);
            worker_add(a->worker, memcpy(xmalloc(sizeof job), &job, sizeof job));
        } else {
            const struct usage_container *c = &u->containers[action->container];
            char what[64];
            size_t n = 0;
            for (size_t i = 0; i < c->n_pids; i++) {
                struct err err = {0};
                int rc = process_kill(&c->pids[i], &err);
                n += rc == 0;
                a->counts[rc == 0                     ? PROCESS_KILLED
                          : err.code == ERR_NOT_FOUND ? PROCESS_ENDED
                                                      : PROCESS_FAILED]++;
                if (rc && err.code != ERR_NOT_FOUND)
                    log_warn("overuse", "cannot kill a process", LOG_ERR(&err));
            }
            if (n) {
                snprintf(what, sizeof what, "killed %zu process(es): ", n);
                describe(u, action, what, &job);
                report(a, &job, "GPUOveruseKilled", "Killing");
                continue;
            }
            pthread_mutex_lock(&a->lock);
            overuse_kill_failed(a->overuse, u, action->container);
            pthread_mutex_unlock(&a->lock);
        }
    }
}

/* -- start and stop -- */

struct overuse_actor *overuse_actor_start(const struct overuse_actor_settings *settings)
{
    struct overuse_actor *a = xcalloc(1, sizeof *a);
    a->settings = *settings;
    a->overuse = overuse_new(&settings->decide);
    pthread_mutex_init(&a->lock, NULL);
    a->worker = worker_start("overuse", evict, a);
    a->events =
        event_recorder_start(&(struct event_recorder_settings){.post = kube_send,
                                                               .ctx = a->settings.client,
                                                               .controller = "scv-agent",
                                                               .instance = settings->node,
                                                               .seed = rng_entropy()});
    return a;
}

bool overuse_actor_stop(struct overuse_actor *a, int64_t until_ms)
{
    return !a || (worker_stop_until(a->worker, until_ms) &&
                  event_recorder_stop(a->events, until_ms));
}

void overuse_actor_free(struct overuse_actor *a)
{
    if (!a)
        return;
    worker_free(a->worker);
    event_recorder_free(a->events);
    overuse_free(a->overuse);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

/* -- metrics -- */

void overuse_actor_metrics(struct overuse_actor *a, struct buf *out)
{
    static const struct {
        const char *name, *help, *results[3];
    } families[] = {
        /* of enum count, in its order */
        {"scv_agent_overuse_events_total",
         "Events about overuse, by result.",
         {"written", "failed", "dropped"}},
        {"scv_agent_overuse_evictions_total",
         "Evictions of pods that overuse a card, by result.",
         {"accepted", "delayed", "failed"}},
        {"scv_agent_overuse_processes_total",
         "Processes of containers that overuse a card, by result of the kill.",
         {"killed", "ended", "failed"}},
    };
    const struct event_recorder_stats stats = event_recorder_stats(a->events);
    a->counts[EVENT_WRITTEN] = (int64_t)stats.written;
    a->counts[EVENT_FAILED] = (int64_t)stats.failed;
    prom_one(out, "scv_agent_overusing_containers",
             "Containers that use more of a card than their promise and the tolerance.",
             (int64_t)atomic_load(&a->overusing));
    for (int i = 0; i < COUNTS; i++) {
        if (i % 3 == 0)
            prom_family(out, families[i / 3].name, PROM_COUNTER, families[i / 3].help);
        if (a->counts[i] || i == 0)
            prom_labelled(out, families[i / 3].name, "result",
                          families[i / 3].results[i % 3], a->counts[i]);
    }
}
