/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/event_recorder.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

enum {
    CALL_MS = 5000,
    LOG_MS = 10 * 60 * 1000, /* between two log lines about the same error */
};

struct event_recorder {
    struct event_recorder_settings settings;
    char *instance;
    struct worker *worker;
    enum err_code logged; /* the last error in the log; of the worker's thread */
    int64_t logged_ms;
    pthread_mutex_t lock; /* protects the members below */
    struct events *events;
    uint64_t written, failed;
    int64_t last_wall_ns; /* unique per event, because it is part of the name */
};

/* A queued request. Path and body are stored after the struct. */
struct job {
    char *path;
    struct span body;
};

static struct job *job_new(const struct buf *path, const struct buf *body)
{
    struct job *job = xmalloc(sizeof *job + path->n + 1 + body->n);
    job->path = (char *)(job + 1);
    memcpy(job->path, path->p, path->n + 1);
    memcpy(job->path + path->n + 1, body->p, body->n);
    job->body = (struct span){job->path + path->n + 1, body->n};
    return job;
}

/* A missing permission fails every event, so the same error is logged once per LOG_MS. */
static void log_failure(struct event_recorder *r, const struct job *job,
                        const struct err *err)
{
    int64_t now_ms = clock_mono_ms();
    if (err->code == r->logged && now_ms - r->logged_ms < LOG_MS)
        return;
    r->logged = err->code;
    r->logged_ms = now_ms;
    log_warn("event", "cannot write an event; not retried", LOG_S("path", job->path),
             LOG_ERR(err));
}

static void post(void *ctx, void *work)
{
    struct event_recorder *r = ctx;
    const struct job *job = work;
    struct err err = {0};
    struct kube_request request = {
        .method = "POST", .path = job->path, .body = job->body, .timeout_ms = CALL_MS};
    int rc = r->settings.post(r->settings.ctx, &request, &err);
    counters_api_call(r->settings.counters, COUNTERS_API_EVENT, rc ? err.code : ERR_NONE);
    pthread_mutex_lock(&r->lock);
    events_written(r->events);
    r->written += rc == 0;
    r->failed += rc != 0;
    pthread_mutex_unlock(&r->lock);
    if (rc)
        log_failure(r, job, &err);
}

struct event_recorder *
event_recorder_start(const struct event_recorder_settings *settings)
{
    struct event_recorder *r = xcalloc(1, sizeof *r);
    r->settings = *settings;
    r->instance = xstrdup(settings->instance);
    r->events = events_new(settings->seed);
    pthread_mutex_init(&r->lock, NULL);
    r->worker = worker_start("events", post, r);
    return r;
}

void event_recorder_stop(struct event_recorder *r)
{
    if (r)
        worker_stop(r->worker);
}

void event_recorder_free(struct event_recorder *r)
{
    if (!r)
        return;
    worker_free(r->worker);
    events_free(r->events);
    pthread_mutex_destroy(&r->lock);
    free(r->instance);
    free(r);
}

bool event_recorder_wants(struct event_recorder *r, struct span uid, const char *reason)
{
    if (!r)
        return false;
    pthread_mutex_lock(&r->lock);
    bool wanted = events_should_write(r->events, clock_mono_ms(), uid, reason);
    pthread_mutex_unlock(&r->lock);
    return wanted;
}

/* The number of occurrences that the event stands for; 0: not to be written. */
static uint32_t take(struct event_recorder *r, const struct event *event,
                     int64_t *wall_ns)
{
    pthread_mutex_lock(&r->lock);
    int64_t now_ms = clock_mono_ms();
    uint32_t count = event->kind == EVENT_NODE
                         ? events_admit_unique(r->events, now_ms)
                         : events_admit(r->events, now_ms, event->uid, event->reason);
    *wall_ns = clock_wall_ns();
    if (*wall_ns <= r->last_wall_ns)
        *wall_ns = r->last_wall_ns + 1;
    r->last_wall_ns = *wall_ns;
    pthread_mutex_unlock(&r->lock);
    return count;
}

bool event_recorder_add(struct event_recorder *r, const struct event *event)
{
    cleanup_buf struct buf path = {0}, body = {0};
    int64_t wall_ns;
    uint32_t count = r ? take(r, event, &wall_ns) : 0;
    if (!count)
        return false;
    struct event_source source = {"gpushare-extender", r->instance};
    if (event_write(&source, event, wall_ns, count, &path, &body)) {
        worker_add(r->worker, job_new(&path, &body));
        return true;
    }
    pthread_mutex_lock(&r->lock);
    events_written(r->events);
    r->failed++;
    pthread_mutex_unlock(&r->lock);
    return true; /* a retry would fail too */
}

void event_recorder_write(struct event_recorder *r, struct buf *out)
{
    static const char name[] = "gpushare_events_total";
    pthread_mutex_lock(&r->lock);
    struct events_stats stats = events_stats(r->events);
    struct {
        const char *result;
        uint64_t n;
    } all[] = {{"written", r->written},
               {"failed", r->failed},
               {"deduplicated", stats.repeated},
               {"rate-limited", stats.dropped}};
    pthread_mutex_unlock(&r->lock);
    prom_family(out, name, PROM_COUNTER, "Events, by result.");
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        prom_sample(out, name, &(struct prom_label){"result", span_of(all[i].result)}, 1,
                    (int64_t)all[i].n);
    prom_one(out, "gpushare_events_queued", PROM_GAUGE, "Events in the queue.",
             stats.queued);
}
