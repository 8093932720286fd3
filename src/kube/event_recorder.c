/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/event_recorder.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/prom.h"
#include "base/step.h"
#include "base/thread.h"
#include "kube/body.h"

/* Writes Events: what is written, how it is encoded, and the thread that posts it. */

enum {
    CALL_MS = 5000,
    /* The table of recent events is a set-associative cache. */
    SETS = 2048,
    WAYS = 4,
    NAME_MAX_BYTES = 200,
    INSTANCE_MAX = 128,
    TOKEN_MS = 1000 / EVENTS_PER_S,
    FULL_MS = EVENTS_BURST * TOKEN_MS,
};

/* The last event of an object and reason. */
struct recent {
    uint64_t key; /* hash of uid and reason; 0: the entry is free */
    int64_t written_ms;
    uint32_t repeated; /* occurrences since then */
};

struct event_recorder {
    struct event_recorder_settings settings;
    char *instance;
    struct worker *worker;
    struct step_failure failure; /* of the worker's thread */
    pthread_mutex_t lock;        /* protects the members below */
    struct recent recent[SETS][WAYS];
    int64_t
        empty_ms; /* token bucket: it filled since then, and an event costs TOKEN_MS */
    struct event_recorder_stats stats;
    int64_t last_wall_ns; /* unique per event, because it is part of the name */
};

/* -- encoding -- */

/* Appends the path and the body of the POST request. `count` is the number of occurrences;
 * more than 1 adds a series. `wall_ns` is the event's time and part of its name. False, and
 * nothing is appended, if a name or namespace is invalid: names become part of a path. */
static bool encode(const struct event_recorder *r, const struct event *e, int64_t wall_ns,
                   uint32_t count, struct buf *path, struct buf *body)
{
    cleanup_buf struct buf name = {0}, now = {0};
    struct span ns = e->kind == EVENT_POD ? e->ns : SPAN("default");
    if (!kube_is_path_part(ns) || !kube_is_path_part(e->name))
        return false;
    /* The object's name and the time, as client-go names events. Two events of an object can
     * have the same name only if the clock is set back; then the API server responds with
     * 409. */
    struct span object = span_clip(e->name, NAME_MAX_BYTES);
    while (object.n && (object.p[object.n - 1] == '-' || object.p[object.n - 1] == '.'))
        object.n--;
    buf_printf(&name, "%.*s.%llx", SPAN_ARG(object), (unsigned long long)wall_ns);
    clock_format_us(&now, wall_ns / 1000);
    buf_adds(path, "/apis/events.k8s.io/v1/namespaces/");
    buf_add_span(path, ns);
    buf_adds(path, "/events");
    body_member(body,
                "{\"apiVersion\":\"events.k8s.io/v1\",\"kind\":\"Event\",\"metadata\":{"
                "\"name\":",
                buf_span(&name));
    body_member(body, ",\"namespace\":", ns);
    bool pod = e->kind == EVENT_POD;
    body_member(body, "},\"regarding\":{\"apiVersion\":\"v1\",\"kind\":",
                pod ? SPAN("Pod") : SPAN("Node"));
    if (pod)
        body_member(body, ",\"namespace\":", e->ns);
    body_member(body, ",\"name\":", e->name);
    body_member(body, ",\"uid\":", e->uid);
    body_member(body, "},\"eventTime\":", buf_span(&now));
    body_member(body, ",\"reportingController\":", span_of(r->settings.controller));
    body_member(body,
                ",\"reportingInstance\":", span_clip(span_of(r->instance), INSTANCE_MAX));
    body_member(body, ",\"type\":", e->warning ? SPAN("Warning") : SPAN("Normal"));
    body_member(body, ",\"reason\":", span_of(e->reason));
    body_member(body, ",\"action\":", span_of(e->action));
    body_member(body, ",\"note\":", span_clip(e->note, EVENTS_NOTE_MAX));
    if (count > 1) {
        buf_printf(body, ",\"series\":{\"count\":%u", count);
        body_member(body, ",\"lastObservedTime\":", buf_span(&now));
        buf_addc(body, '}');
    }
    buf_addc(body, '}');
    return true;
}

/* -- limits; under the lock -- */

static uint64_t key_of(const struct event_recorder *r, struct span uid,
                       const char *reason)
{
    uint64_t key =
        hash_bytes(hash_bytes(r->settings.seed, uid.p, uid.n), reason, strlen(reason));
    return key ? key : 1;
}

static struct recent *recent_find(struct event_recorder *r, uint64_t key)
{
    for (int i = 0; i < WAYS; i++)
        if (r->recent[key % SETS][i].key == key)
            return &r->recent[key % SETS][i];
    return NULL;
}

/* If not, this occurrence is counted. */
static bool is_due(struct event_recorder *r, int64_t now_ms, uint64_t key)
{
    struct recent *recent = recent_find(r, key);
    if (!recent || now_ms - recent->written_ms >= EVENTS_AGAIN_MS)
        return true;
    recent->repeated += recent->repeated < UINT32_MAX;
    r->stats.repeated++;
    return false;
}

/* Takes a token of a bucket that has at least so many milliseconds' worth of them. */
static bool enqueue(struct event_recorder *r, int64_t now_ms, int64_t least_ms)
{
    int64_t empty_ms = r->empty_ms;
    if (empty_ms < now_ms - FULL_MS)
        empty_ms = now_ms - FULL_MS;
    if (r->stats.queued >= EVENTS_QUEUE || now_ms - empty_ms < least_ms)
        return false;
    r->empty_ms = empty_ms + TOKEN_MS;
    r->stats.queued++;
    return true;
}

/* The number of occurrences that the event stands for; 0: not to be written. */
static uint32_t admit(struct event_recorder *r, int64_t now_ms, uint64_t key)
{
    if (!is_due(r, now_ms, key))
        return 0;
    if (!enqueue(r, now_ms, TOKEN_MS)) {
        r->stats.dropped++;
        return 0;
    }
    struct recent *recent = recent_find(r, key), *set = r->recent[key % SETS];
    if (!recent) { /* a free entry of the set, or the oldest one */
        recent = set;
        for (int i = 0; i < WAYS && recent->key; i++)
            if (!set[i].key || set[i].written_ms < recent->written_ms)
                recent = &set[i];
        *recent = (struct recent){.key = key};
    }
    uint32_t count = recent->repeated + (recent->repeated < UINT32_MAX);
    recent->written_ms = now_ms;
    recent->repeated = 0;
    return count;
}

/* -- the thread -- */

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

/* The event is not queued any more. */
static void ended(struct event_recorder *r, bool written)
{
    pthread_mutex_lock(&r->lock);
    r->stats.queued--;
    r->stats.written += written;
    r->stats.failed += !written;
    pthread_mutex_unlock(&r->lock);
}

static void post(void *ctx, void *work)
{
    struct event_recorder *r = ctx;
    const struct job *job = work;
    struct err err = {0};
    struct kube_request request = {
        .method = "POST", .path = job->path, .body = job->body, .timeout_ms = CALL_MS};
    int rc = r->settings.post(r->settings.ctx, &request, &err);
    ended(r, rc == 0);
    /* A missing permission fails every event: logged once a minute. */
    if (rc && step_failed(&r->failure, clock_mono_ms(), &err))
        log_warn("event", "cannot write an event; not retried", LOG_S("path", job->path),
                 LOG_ERR(&err));
}

struct event_recorder *
event_recorder_start(const struct event_recorder_settings *settings)
{
    struct event_recorder *r = xcalloc(1, sizeof *r);
    r->settings = *settings;
    if (!settings->now_ms)
        r->settings.now_ms = clock_mono_ms;
    r->instance = xstrdup(settings->instance);
    r->empty_ms = INT64_MIN;
    pthread_mutex_init(&r->lock, NULL);
    r->worker = worker_start("events", post, r);
    return r;
}

bool event_recorder_stop(struct event_recorder *r, int64_t until_ms)
{
    return !r || worker_stop_until(r->worker, until_ms);
}

void event_recorder_free(struct event_recorder *r)
{
    if (!r)
        return;
    worker_free(r->worker);
    pthread_mutex_destroy(&r->lock);
    free(r->instance);
    free(r);
}

bool event_recorder_wants(struct event_recorder *r, struct span uid, const char *reason)
{
    if (!r)
        return false;
    pthread_mutex_lock(&r->lock);
    bool wanted = is_due(r, r->settings.now_ms(), key_of(r, uid, reason));
    pthread_mutex_unlock(&r->lock);
    return wanted;
}

bool event_recorder_add(struct event_recorder *r, const struct event *event)
{
    cleanup_buf struct buf path = {0}, body = {0};
    if (!r)
        return false;
    pthread_mutex_lock(&r->lock);
    int64_t now_ms = r->settings.now_ms();
    /* Thousands of unique events may be pending; they leave a quarter of the burst. */
    uint32_t count = event->unique
                         ? enqueue(r, now_ms, FULL_MS / 4)
                         : admit(r, now_ms, key_of(r, event->uid, event->reason));
    int64_t wall_ns = clock_wall_ns();
    if (wall_ns <= r->last_wall_ns)
        wall_ns = r->last_wall_ns + 1;
    r->last_wall_ns = wall_ns;
    pthread_mutex_unlock(&r->lock);
    if (!count)
        return false;
    if (encode(r, event, wall_ns, count, &path, &body))
        worker_add(r->worker, job_new(&path, &body));
    else
        ended(r, false); /* a retry would fail too */
    return true;
}

struct event_recorder_stats event_recorder_stats(struct event_recorder *r)
{
    pthread_mutex_lock(&r->lock);
    struct event_recorder_stats stats = r->stats;
    pthread_mutex_unlock(&r->lock);
    return stats;
}

void event_recorder_write(struct event_recorder *r, struct buf *out)
{
    static const char name[] = "gpushare_events_total";
    struct event_recorder_stats stats = event_recorder_stats(r);
    struct {
        const char *result;
        uint64_t n;
    } all[] = {{"written", stats.written},
               {"failed", stats.failed},
               {"deduplicated", stats.repeated},
               {"rate-limited", stats.dropped}};
    prom_family(out, name, PROM_COUNTER, "Events, by result.");
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        prom_labelled(out, name, "result", all[i].result, (int64_t)all[i].n);
    prom_one(out, "gpushare_events_queued", "Events in the queue.", stats.queued);
}
