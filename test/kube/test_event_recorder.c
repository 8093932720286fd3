/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/event_recorder.h"

#include <fnmatch.h>
#include <jansson.h>
#include <pthread.h>

#include "lib/stub.h"
#include "lib/unit.h"

static int64_t now_ms;
static struct event_recorder *recorder;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects the members below */
static char path[512];
static char text[4096]; /* of the last post */
static json_t *body;
static bool fails;
static struct gate *gate; /* a post waits for it; NULL: none */

static int64_t read_now(void)
{
    return now_ms;
}

static int post(void *ctx, const struct kube_request *request, struct err *err)
{
    (void)ctx;
    if (gate)
        gate_wait(gate);
    pthread_mutex_lock(&lock);
    ck_assert_str_eq(request->method, "POST");
    snprintf(path, sizeof path, "%s", request->path);
    snprintf(text, sizeof text, "%.*s", SPAN_ARG(request->body));
    json_decref(body);
    body = json_loadb(request->body.p, request->body.n, 0, NULL);
    int rc = fails ? err_set(err, ERR_FORBIDDEN, "no") : 0;
    pthread_mutex_unlock(&lock);
    return rc;
}

static void start(void)
{
    now_ms = 0;
    recorder =
        event_recorder_start(&(struct event_recorder_settings){.post = post,
                                                               .controller = "test",
                                                               .instance = "host_1",
                                                               .now_ms = read_now,
                                                               .seed = 7});
}

static void stop(void)
{
    event_recorder_stop(recorder, INT64_MAX);
    event_recorder_free(recorder);
    json_decref(steal(&body));
    if (gate)
        gate_free(steal(&gate));
}

static struct event pod_event(const char *ns, const char *name, const char *note)
{
    return (struct event){.kind = EVENT_POD,
                          .ns = span_of(ns),
                          .name = span_of(name),
                          .uid = SPAN("u1"),
                          .warning = true,
                          .reason = "GPUNoRoom",
                          .action = "Filtering",
                          .note = span_of(note)};
}

/* The member at the path, whose keys are separated by '/'; NULL: none. */
static const char *text_at(const char *keys)
{
    cleanup_free char *copy = xstrdup(keys);
    json_t *at = body;
    for (char *save, *key = strtok_r(copy, "/", &save); key;
         key = strtok_r(NULL, "/", &save))
        at = json_object_get(at, key);
    return json_string_value(at);
}

#define TIME "20*-*-*T??:??:??.??????Z"
static void ck_body(const char *pattern)
{
    ck_assert_ptr_nonnull(body);
    ck_assert_msg(fnmatch(pattern, text, FNM_NOESCAPE) == 0, "%s", text);
}

/* The event is posted at that path. */
static void add(const struct event *e, const char *want_path)
{
    ck_assert(event_recorder_add(recorder, e));
    lib_wait(event_recorder_stats(recorder).queued == 0);
    ck_assert_ptr_nonnull(body);
    ck_assert_str_eq(path, want_path);
}

TEST(an_event_of_a_pod_has_all_required_fields)
{
    struct event e = pod_event("ns-1", "p.1", "say \"no\"\n\xff");
    add(&e, "/apis/events.k8s.io/v1/namespaces/ns-1/events");
    ck_body("{\"apiVersion\":\"events.k8s.io/v1\",\"kind\":\"Event\",\"metadata\":{"
            "\"name\":\"p.1.????????????????\",\"namespace\":\"ns-1\"},\"regarding\":{"
            "\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"namespace\":\"ns-1\",\"name\":"
            "\"p.1\",\"uid\":\"u1\"},\"eventTime\":\"" TIME "\",\"reportingController\":"
            "\"test\",\"reportingInstance\":\"host_1\",\"type\":\"Warning\",\"reason\":"
            "\"GPUNoRoom\",\"action\":\"Filtering\",\"note\":\"say \\\"no\\\"\\n*\"}");
    ck_assert_str_eq(text_at("note"), "say \"no\"\n\xef\xbf\xbd");
}

TEST(an_event_of_a_node_is_in_default)
{
    const struct event e = {.kind = EVENT_NODE,
                            .name = SPAN("n1"),
                            .uid = SPAN("n1"),
                            .reason = "GPUBack",
                            .action = "WatchingCards",
                            .note = SPAN("x")};
    add(&e, "/apis/events.k8s.io/v1/namespaces/default/events");
    ck_body("*,\"namespace\":\"default\"},\"regarding\":{\"apiVersion\":\"v1\",\"kind\":"
            "\"Node\",\"name\":\"n1\",\"uid\":\"n1\"},*,\"type\":\"Normal\",*");
}

/* Names become part of a path: invalid names are not written. */
TEST(hostile_names_are_not_written)
{
    static const char *const bad[] = {"",    "a/b",  "a?x=1", "a%2fb", "..",
                                      "a b", "a\nb", "a#",    "a\"b",  ".a"};
    array_items(c, bad) {
        struct event name = pod_event("ns", *c, "n"), ns = pod_event(*c, "p", "n");
        name.unique = ns.unique = true;
        ck_assert(event_recorder_add(recorder, &name));
        ck_assert(event_recorder_add(recorder, &ns));
    }
    struct event_recorder_stats stats = event_recorder_stats(recorder);
    ck_assert_uint_eq(stats.failed, 2 * ARRAY_LEN(bad));
    ck_assert_uint_eq(stats.written + stats.queued, 0);
    ck_assert_ptr_null(body);
}

TEST(long_notes_are_truncated_between_characters)
{
    char note[2 * EVENTS_NOTE_MAX + 1] = {0}, name[251] = {0};
    for (size_t i = 0; i + 2 < sizeof note; i += 2)
        memcpy(note + i, "\xc3\xa9", 2);
    note[0] = note[1] = 'a'; /* so that the limit is inside a character */
    memmove(note + 1, note + 2, sizeof note - 2);
    memset(name, 'x', sizeof name - 1);
    memset(name + 190, '-', 20);
    struct event e = pod_event("ns", name, note);
    add(&e, "/apis/events.k8s.io/v1/namespaces/ns/events");
    ck_assert_uint_eq(strlen(text_at("note")), EVENTS_NOTE_MAX - 1);
    ck_assert_uint_le(strlen(text_at("metadata/name")), 253);
    ck_assert_contains(text_at("metadata/name"), "xxx.");
    ck_assert_str_eq(text_at("regarding/name"), name);
}

TEST(a_failed_post_is_counted_and_not_retried)
{
    fails = true;
    struct event e = pod_event("ns", "p", "n");
    add(&e, "/apis/events.k8s.io/v1/namespaces/ns/events");
    fails = false;
    ck_assert_uint_eq(event_recorder_stats(recorder).failed, 1);
    ck_assert_uint_eq(event_recorder_stats(recorder).written, 0);
}

/* -- limits -- */

static bool add_at(int64_t ms, const char *uid, const char *reason)
{
    struct event e = pod_event("ns", "p", "n");
    e.uid = span_of(uid);
    e.reason = reason;
    now_ms = ms;
    return event_recorder_add(recorder, &e);
}

/* The same when there is a place in the queue. */
static bool take(int64_t ms, const char *uid, const char *reason)
{
    lib_wait(event_recorder_stats(recorder).queued < EVENTS_QUEUE);
    return add_at(ms, uid, reason);
}

TEST(repetitions_are_counted_for_the_next_event)
{
    ck_assert(take(0, "u1", "A"));
    for (int i = 0; i < 5; i++)
        ck_assert(!take(i, "u1", "A"));
    now_ms = EVENTS_AGAIN_MS - 1;
    ck_assert(!event_recorder_wants(recorder, SPAN("u1"), "A"));
    ck_assert(take(5, "u1", "B")); /* another reason */
    ck_assert(take(6, "u2", "A")); /* another pod */
    now_ms = EVENTS_AGAIN_MS;
    ck_assert(event_recorder_wants(recorder, SPAN("u1"), "A"));
    ck_assert(take(EVENTS_AGAIN_MS, "u1", "A"));
    lib_wait(event_recorder_stats(recorder).queued == 0);
    json_t *count = json_object_get(json_object_get(body, "series"), "count");
    ck_assert_int_eq(json_integer_value(count), 7);
    ck_assert_str_eq(text_at("series/lastObservedTime"), text_at("eventTime"));
    ck_assert(!take(EVENTS_AGAIN_MS + 1, "u1", "A"));
    ck_assert_uint_eq(event_recorder_stats(recorder).repeated, 7);
    ck_assert_uint_eq(event_recorder_stats(recorder).dropped, 0);
}

static int burst_at(int64_t ms, int from, int n)
{
    int written = 0;
    for (int i = from; i < from + n; i++) {
        cleanup_free char *uid = xasprintf("uid-%d", i);
        written += take(ms, uid, "A");
    }
    return written;
}

TEST(bursts_and_rate_are_limited)
{
    ck_assert_int_eq(burst_at(0, 0, 1000), EVENTS_BURST);
    ck_assert_uint_eq(event_recorder_stats(recorder).dropped, 1000 - EVENTS_BURST);
    ck_assert_int_eq(burst_at(1000, 1000, 1000), EVENTS_PER_S);
    ck_assert_int_eq(burst_at(1000, 2000, 10), 0);
    /* A dropped event is written once the bucket has tokens. */
    ck_assert_int_eq(burst_at(2000, 2000, 10), 10);
    ck_assert_int_eq(burst_at(1000 * 1000, 3000, 1000), EVENTS_BURST);
    /* A clock that is set back adds no tokens. */
    ck_assert_int_eq(burst_at(0, 5000, 10), 0);
}

TEST(the_queue_is_bounded)
{
    gate = gate_new();
    for (int i = 0; i < EVENTS_QUEUE; i++) {
        cleanup_free char *uid = xasprintf("uid-%d", i);
        ck_assert(add_at((int64_t)i * 1000, uid, "A"));
    }
    ck_assert(!add_at(EVENTS_QUEUE * 1000, "one more", "A"));
    ck_assert_uint_eq(event_recorder_stats(recorder).queued, EVENTS_QUEUE);
    ck_assert_uint_eq(event_recorder_stats(recorder).dropped, 1);
    gate_open(gate);
    lib_wait(event_recorder_stats(recorder).written > 0);
    ck_assert(add_at(EVENTS_QUEUE * 1000, "one more", "A"));
}

/* The caller knows that the events are no repetitions, and retries later. */
TEST(unique_events_are_limited_but_not_deduplicated)
{
    struct event e = pod_event("ns", "p", "n");
    e.unique = true;
    int n = 0;
    for (; event_recorder_add(recorder, &e); n++)
        ;
    ck_assert_int_eq(n, EVENTS_BURST * 3 / 4 + 1);
    /* A quarter of the burst is reserved for other events. */
    ck_assert(add_at(0, "a pod", "A"));
    now_ms = 50;
    ck_assert(!event_recorder_add(recorder, &e));
    now_ms = 1000;
    ck_assert(event_recorder_add(recorder, &e));
    ck_assert_uint_eq(event_recorder_stats(recorder).dropped, 0);
    ck_assert_uint_eq(event_recorder_stats(recorder).repeated, 0);
}

/* The table has a fixed size and keeps the most recent events. */
TEST(a_full_table_evicts_old_objects)
{
    enum { MANY = 20000, LAST = 500 };
    int written = 0, remembered = 0;
    for (int i = 0; i < MANY; i++)
        written += burst_at((int64_t)i * 50, i, 1);
    ck_assert_int_eq(written, MANY);
    for (int i = MANY - LAST; i < MANY; i++)
        remembered += !burst_at((int64_t)MANY * 50, i, 1);
    ck_assert_int_ge(remembered, LAST * 9 / 10);
}

UNIT_MAIN_AROUND(start, stop)
