/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/events.h"

#include <jansson.h>

#include "base/mem.h"
#include "lib/unit.h"

static const struct event_source source = {"gpushare-extender", "host_1"};
static const int64_t wall_ns = INT64_C(1795338000123456789);

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

static const char *str(json_t *j, const char *outer, const char *key)
{
    json_t *o = outer ? json_object_get(j, outer) : j;
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* New. */
static json_t *written(const struct event *e, uint32_t count, const char *want_path)
{
    cleanup_buf struct buf path = {0}, body = {0};
    json_error_t error;
    ck_assert(event_write(&source, e, wall_ns, count, &path, &body));
    ck_assert_str_eq(path.p, want_path);
    json_t *j = json_loadb(body.p, body.n, 0, &error);
    ck_assert_msg(j != NULL, "%s: %s", error.text, body.p);
    return j;
}

START_TEST(an_event_of_a_pod_has_all_required_fields)
{
    struct event e = pod_event("ns-1", "p.1", "say \"no\"\n\xff");
    json_t *j = written(&e, 1, "/apis/events.k8s.io/v1/namespaces/ns-1/events");
    ck_assert_str_eq(str(j, NULL, "apiVersion"), "events.k8s.io/v1");
    ck_assert_str_eq(str(j, "metadata", "name"), "p.1.18ea5266251e6d15");
    ck_assert_str_eq(str(j, "metadata", "namespace"), "ns-1");
    ck_assert_str_eq(str(j, "regarding", "kind"), "Pod");
    ck_assert_str_eq(str(j, "regarding", "namespace"), "ns-1");
    ck_assert_str_eq(str(j, "regarding", "name"), "p.1");
    ck_assert_str_eq(str(j, "regarding", "uid"), "u1");
    ck_assert_str_eq(str(j, NULL, "type"), "Warning");
    ck_assert_str_eq(str(j, NULL, "reason"), "GPUNoRoom");
    ck_assert_str_eq(str(j, NULL, "action"), "Filtering");
    ck_assert_str_eq(str(j, NULL, "note"), "say \"no\"\n\xef\xbf\xbd");
    ck_assert_str_eq(str(j, NULL, "reportingController"), "gpushare-extender");
    ck_assert_str_eq(str(j, NULL, "reportingInstance"), "host_1");
    ck_assert_str_eq(str(j, NULL, "eventTime"), "2026-11-22T09:00:00.123456Z");
    ck_assert_ptr_null(json_object_get(j, "series"));
    json_decref(j);
}
END_TEST

START_TEST(an_event_of_a_node_is_in_default)
{
    struct event e = {.kind = EVENT_NODE,
                      .name = SPAN("n1"),
                      .uid = SPAN("n1"),
                      .reason = "GPUBack",
                      .action = "WatchingCards",
                      .note = SPAN("x")};
    json_t *j = written(&e, 3, "/apis/events.k8s.io/v1/namespaces/default/events");
    ck_assert_str_eq(str(j, "metadata", "namespace"), "default");
    ck_assert_str_eq(str(j, "regarding", "kind"), "Node");
    ck_assert_ptr_null(json_object_get(json_object_get(j, "regarding"), "namespace"));
    ck_assert_str_eq(str(j, NULL, "type"), "Normal");
    json_t *series = json_object_get(j, "series");
    ck_assert_int_eq(json_integer_value(json_object_get(series, "count")), 3);
    ck_assert_str_eq(str(j, "series", "lastObservedTime"), "2026-11-22T09:00:00.123456Z");
    json_decref(j);
}
END_TEST

/* Names become part of a path: invalid names are not written. */
START_TEST(hostile_names_are_not_written)
{
    static const char *const bad[] = {"",    "a/b",  "a?x=1", "a%2fb", "..", "A",
                                      "a b", "a\nb", "a#",    "a\"b",  ".a"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct event name = pod_event("ns", bad[i], "n"),
                     ns = pod_event(bad[i], "p", "n");
        cleanup_buf struct buf path = {0}, body = {0};
        ck_assert_msg(!event_write(&source, &name, 1, 1, &path, &body), "%s", bad[i]);
        ck_assert_msg(!event_write(&source, &ns, 1, 1, &path, &body), "%s", bad[i]);
        ck_assert_uint_eq(path.n + body.n, 0);
    }
}
END_TEST

START_TEST(long_notes_are_truncated_between_characters)
{
    char note[2 * EVENTS_NOTE_MAX + 1] = {0}, name[251] = {0};
    for (size_t i = 0; i + 2 < sizeof note; i += 2)
        memcpy(note + i, "\xc3\xa9", 2);
    note[0] = note[1] = 'a'; /* so that the limit is inside a character */
    memmove(note + 1, note + 2, sizeof note - 2);
    memset(name, 'x', sizeof name - 1);
    memset(name + 190, '-', 20);
    struct event e = pod_event("ns", name, note);
    json_t *j = written(&e, 1, "/apis/events.k8s.io/v1/namespaces/ns/events");
    size_t n = strlen(str(j, NULL, "note"));
    ck_assert_uint_eq(n, EVENTS_NOTE_MAX - 1);
    const char *full = str(j, "metadata", "name");
    ck_assert_uint_le(strlen(full), 253);
    ck_assert_ptr_nonnull(strstr(full, "xxx.18ea5266251e6d15"));
    ck_assert_str_eq(str(j, "regarding", "name"), name);
    json_decref(j);
}
END_TEST

/* -- rate limits -- */

static struct events *events;

static uint32_t take(int64_t now_ms, const char *uid, const char *reason)
{
    uint32_t count = events_admit(events, now_ms, span_of(uid), reason);
    if (count)
        events_written(events);
    return count;
}

START_TEST(repetitions_are_counted_for_the_next_event)
{
    events = events_new(1);
    ck_assert_uint_eq(take(0, "u1", "A"), 1);
    for (int i = 0; i < 5; i++)
        ck_assert_uint_eq(take(i, "u1", "A"), 0);
    ck_assert(!events_should_write(events, EVENTS_AGAIN_MS - 1, SPAN("u1"), "A"));
    ck_assert_uint_eq(take(5, "u1", "B"), 1); /* another reason */
    ck_assert_uint_eq(take(6, "u2", "A"), 1); /* another pod */
    ck_assert(events_should_write(events, EVENTS_AGAIN_MS, SPAN("u1"), "A"));
    ck_assert_uint_eq(take(EVENTS_AGAIN_MS, "u1", "A"), 7);
    ck_assert_uint_eq(take(EVENTS_AGAIN_MS + 1, "u1", "A"), 0);
    ck_assert_uint_eq(events_stats(events).repeated, 7);
    ck_assert_uint_eq(events_stats(events).dropped, 0);
    events_free(events);
}
END_TEST

static int burst_at(int64_t now_ms, int from, int n)
{
    int written = 0;
    for (int i = from; i < from + n; i++) {
        cleanup_free char *uid = xasprintf("uid-%d", i);
        written += take(now_ms, uid, "A") == 1;
    }
    return written;
}

START_TEST(bursts_and_rate_are_limited)
{
    events = events_new(1);
    ck_assert_int_eq(burst_at(0, 0, 1000), EVENTS_BURST);
    ck_assert_uint_eq(events_stats(events).dropped, 1000 - EVENTS_BURST);
    ck_assert_int_eq(burst_at(1000, 1000, 1000), EVENTS_PER_S);
    ck_assert_int_eq(burst_at(1000, 2000, 10), 0);
    /* A dropped event is written once the queue has space. */
    ck_assert_int_eq(burst_at(2000, 2000, 10), 10);
    ck_assert_int_eq(burst_at(1000 * 1000, 3000, 1000), EVENTS_BURST);
    ck_assert_int_eq(burst_at(0, 5000, 10),
                     0); /* a clock that is set back adds no tokens */
    events_free(events);
}
END_TEST

START_TEST(the_queue_is_bounded)
{
    int64_t now_ms = 0;
    events = events_new(1);
    for (int i = 0; i < EVENTS_QUEUE; i++, now_ms += 1000) {
        cleanup_free char *uid = xasprintf("uid-%d", i);
        ck_assert_uint_eq(events_admit(events, now_ms, span_of(uid), "A"), 1);
    }
    ck_assert_uint_eq(events_admit(events, now_ms, SPAN("one more"), "A"), 0);
    ck_assert_uint_eq(events_stats(events).queued, EVENTS_QUEUE);
    ck_assert_uint_eq(events_stats(events).dropped, 1);
    events_written(events);
    ck_assert_uint_eq(events_admit(events, now_ms, SPAN("one more"), "A"), 1);
    events_free(events);
}
END_TEST

/* The caller knows that the events are no repetitions, and retries later. */
START_TEST(unique_events_are_limited_but_not_deduplicated)
{
    events = events_new(1);
    int n = 0;
    for (; events_admit_unique(events, 0); n++)
        events_written(events);
    ck_assert_int_eq(n, EVENTS_BURST * 3 / 4 + 1);
    /* A quarter of the burst is reserved for other events. */
    ck_assert_uint_eq(events_admit(events, 0, SPAN("a pod"), "A"), 1);
    ck_assert(!events_admit_unique(events, 50));
    ck_assert(events_admit_unique(events, 1000));
    ck_assert_uint_eq(events_stats(events).queued, 2);
    ck_assert_uint_eq(events_stats(events).dropped, 0);
    ck_assert_uint_eq(events_stats(events).repeated, 0);
    events_free(events);
}
END_TEST

/* The table has a fixed size and keeps the most recent events. */
START_TEST(a_full_table_evicts_old_objects)
{
    enum { MANY = 100000, LAST = 500 };
    int written = 0, remembered = 0;
    events = events_new(7);
    for (int i = 0; i < MANY; i++)
        written += burst_at((int64_t)i * 50, i, 1);
    ck_assert_int_eq(written, MANY);
    for (int i = MANY - LAST; i < MANY; i++)
        remembered += !burst_at((int64_t)MANY * 50, i, 1);
    ck_assert_int_ge(remembered, LAST * 9 / 10);
    events_free(events);
}
END_TEST

UNIT_MAIN("events", an_event_of_a_pod_has_all_required_fields,
          an_event_of_a_node_is_in_default, hostile_names_are_not_written,
          long_notes_are_truncated_between_characters,
          repetitions_are_counted_for_the_next_event, bursts_and_rate_are_limited,
          the_queue_is_bounded, unique_events_are_limited_but_not_deduplicated,
          a_full_table_evicts_old_objects)
