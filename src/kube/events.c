/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/events.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/utf8.h"

/* The table of recent events is a 4-way set-associative cache. */
enum { SETS = 2048, WAYS = 4, NAME_MAX_BYTES = 200, INSTANCE_MAX = 128 };

/* -- encoding -- */

/* Lower case letters, digits, '-' and '.': the name becomes part of a path. */
static bool is_plain_name(struct span s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.'))
            return false;
    }
    return s.n > 0 && s.n <= 253 && s.p[0] != '.';
}

/* Truncates to `max` bytes at a character boundary. */
static struct span cut(struct span s, size_t max)
{
    if (s.n > max) {
        s.n = max;
        while (s.n && ((unsigned char)s.p[s.n] & 0xc0) == 0x80)
            s.n--;
    }
    return s;
}

/* The object's name and the time, as client-go names events. Two events of an object can
 * have the same name only if the clock is set back; then the API server responds with
 * 409. */
static void add_name(struct buf *out, struct span object, int64_t wall_ns)
{
    struct span name = cut(object, NAME_MAX_BYTES);
    while (name.n && (name.p[name.n - 1] == '-' || name.p[name.n - 1] == '.'))
        name.n--;
    buf_add_span(out, name);
    buf_printf(out, ".%llx", (unsigned long long)wall_ns);
}

static void member(struct buf *out, const char *key, struct span value)
{
    buf_adds(out, key);
    buf_add_json(out, value);
}

static void add_regarding(struct buf *out, const struct event *e)
{
    bool pod = e->kind == EVENT_POD;
    member(out, "},\"regarding\":{\"apiVersion\":\"v1\",\"kind\":",
           pod ? SPAN("Pod") : SPAN("Node"));
    if (pod)
        member(out, ",\"namespace\":", e->ns);
    member(out, ",\"name\":", e->name);
    member(out, ",\"uid\":", e->uid);
}

static void add_series(struct buf *out, uint32_t count, struct span now)
{
    if (count < 2)
        return;
    buf_printf(out, ",\"series\":{\"count\":%u", count);
    member(out, ",\"lastObservedTime\":", now);
    buf_addc(out, '}');
}

bool event_write(const struct event_source *source, const struct event *e,
                 int64_t wall_ns, uint32_t count, struct buf *path, struct buf *body)
{
    cleanup_buf struct buf name = {0}, now = {0};
    struct span ns = e->kind == EVENT_POD ? e->ns : SPAN("default");
    if (!is_plain_name(ns) || !is_plain_name(e->name))
        return false;
    add_name(&name, e->name, wall_ns);
    clock_format_us(&now, wall_ns / 1000);
    buf_adds(path, "/apis/events.k8s.io/v1/namespaces/");
    buf_add_span(path, ns);
    buf_adds(path, "/events");
    member(body,
           "{\"apiVersion\":\"events.k8s.io/v1\",\"kind\":\"Event\",\"metadata\":{"
           "\"name\":",
           buf_span(&name));
    member(body, ",\"namespace\":", ns);
    add_regarding(body, e);
    member(body, "},\"eventTime\":", buf_span(&now));
    member(body, ",\"reportingController\":", span_of(source->controller));
    member(body, ",\"reportingInstance\":", cut(span_of(source->instance), INSTANCE_MAX));
    member(body, ",\"type\":", e->warning ? SPAN("Warning") : SPAN("Normal"));
    member(body, ",\"reason\":", span_of(e->reason));
    member(body, ",\"action\":", span_of(e->action));
    member(body, ",\"note\":", cut(e->note, EVENTS_NOTE_MAX));
    add_series(body, count, buf_span(&now));
    buf_addc(body, '}');
    return true;
}

/* -- rate limits -- */

/* The last event of an object and reason. */
struct recent {
    uint64_t key; /* hash of uid and reason; 0: the entry is free */
    int64_t written_ms;
    uint32_t repeated; /* occurrences since then */
};

struct events {
    uint64_t seed;
    struct recent recent[SETS][WAYS];
    int64_t tokens_ms; /* token bucket; an event costs TOKEN_MS */
    int64_t refilled_ms;
    struct events_stats stats;
};

enum { TOKEN_MS = 1000 / EVENTS_PER_S, FULL_MS = EVENTS_BURST * TOKEN_MS };

struct events *events_new(uint64_t seed)
{
    struct events *e = xcalloc(1, sizeof *e);
    e->seed = seed;
    e->tokens_ms = FULL_MS;
    e->refilled_ms = INT64_MIN;
    return e;
}

void events_free(struct events *e)
{
    free(e);
}

static uint64_t key_of(const struct events *e, struct span uid, const char *reason)
{
    uint64_t key = hash_bytes(hash_bytes(e->seed, uid.p, uid.n), reason, strlen(reason));
    return key ? key : 1;
}

static struct recent *find(struct events *e, uint64_t key)
{
    for (int i = 0; i < WAYS; i++)
        if (e->recent[key % SETS][i].key == key)
            return &e->recent[key % SETS][i];
    return NULL;
}

/* Replaces a free entry of the set, or the oldest one. */
static struct recent *insert(struct events *e, uint64_t key)
{
    struct recent *set = e->recent[key % SETS], *entry = set;
    for (int i = 0; i < WAYS && entry->key; i++)
        if (!set[i].key || set[i].written_ms < entry->written_ms)
            entry = &set[i];
    *entry = (struct recent){.key = key};
    return entry;
}

bool events_should_write(struct events *e, int64_t now_ms, struct span uid,
                         const char *reason)
{
    struct recent *recent = find(e, key_of(e, uid, reason));
    if (!recent || now_ms - recent->written_ms >= EVENTS_AGAIN_MS)
        return true;
    recent->repeated += recent->repeated < UINT32_MAX;
    e->stats.repeated++;
    return false;
}

static void refill(struct events *e, int64_t now_ms)
{
    if (e->refilled_ms != INT64_MIN && now_ms > e->refilled_ms)
        e->tokens_ms += now_ms - e->refilled_ms;
    e->refilled_ms = now_ms;
    if (e->tokens_ms > FULL_MS)
        e->tokens_ms = FULL_MS;
}

static bool take_token(struct events *e, int64_t now_ms)
{
    refill(e, now_ms);
    if (e->tokens_ms < TOKEN_MS)
        return false;
    e->tokens_ms -= TOKEN_MS;
    return true;
}

static bool enqueue(struct events *e, int64_t now_ms)
{
    if (e->stats.queued >= EVENTS_QUEUE || !take_token(e, now_ms))
        return false;
    e->stats.queued++;
    return true;
}

/* Thousands of unique events may be pending; a quarter of the burst is reserved for the
 * others. */
bool events_admit_unique(struct events *e, int64_t now_ms)
{
    refill(e, now_ms);
    return e->tokens_ms >= FULL_MS / 4 && enqueue(e, now_ms);
}

uint32_t events_admit(struct events *e, int64_t now_ms, struct span uid,
                      const char *reason)
{
    uint64_t key = key_of(e, uid, reason);
    if (!events_should_write(e, now_ms, uid, reason))
        return 0;
    if (!enqueue(e, now_ms)) {
        e->stats.dropped++;
        return 0;
    }
    struct recent *recent = find(e, key);
    if (!recent)
        recent = insert(e, key);
    uint32_t count = recent->repeated + (recent->repeated < UINT32_MAX);
    recent->written_ms = now_ms;
    recent->repeated = 0;
    return count;
}

void events_written(struct events *e)
{
    e->stats.queued -= e->stats.queued > 0;
}

struct events_stats events_stats(const struct events *e)
{
    return e->stats;
}
