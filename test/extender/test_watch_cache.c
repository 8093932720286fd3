/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/gpuapi_priv.h"

#include <jansson.h>

#include "base/mem.h"
#include "base/rng.h"
#include "lib/unit.h"

static const struct watch_cache_kind kind = {"Thing", "{\"name\":", ",\"x\":null}"};

static struct watch_cache *w;

static void put(struct watch_cache_item **item, const char *name, int value)
{
    cleanup_buf struct buf head = {0}, tail = {0};
    buf_printf(&head, "{\"name\":\"%s\",\"seq\":\"", name);
    buf_printf(&tail, "\",\"value\":%d}", value);
    watch_cache_put(w, item, span_of(name), buf_span(&head), buf_span(&tail));
}

static void assert_reads(struct watch_cache_reader *r, const char *want)
{
    cleanup_buf struct buf out = {0};
    buf_adds(&out, "");
    ck_assert(watch_cache_read(w, r, 100000, &out));
    ck_assert_str_eq(out.p, want);
}

#define SYNCED(name, seq, value)                                                         \
    "{\"Thing\":{\"name\":\"" name "\",\"seq\":\"" seq "\",\"value\":" value             \
    "},\"Type\":\"SYNCED\"}\n"
#define DELETED(name)                                                                    \
    "{\"Thing\":{\"name\":\"" name "\",\"x\":null},\"Type\":\"DELETED\"}\n"

START_TEST(a_reader_gets_the_initial_state_then_changes)
{
    struct watch_cache_item *a = NULL, *b = NULL;
    struct watch_cache_reader r = {0}, late = {0};
    w = watch_cache_new(&kind, 100);
    assert_reads(&r, "\n");
    put(&a, "a", 1);
    put(&b, "b", 1);
    assert_reads(&r, SYNCED("a", "1", "1") SYNCED("b", "2", "1"));
    assert_reads(&r, "");
    put(&a, "a", 1); /* no change */
    assert_reads(&r, "");
    put(&a, "a", 2);
    put(&a, "a", 3);
    watch_cache_drop(w, &b);
    ck_assert_ptr_null(b);
    assert_reads(&r, SYNCED("a", "4", "3") DELETED("b"));
    assert_reads(&late, SYNCED("a", "4", "3") "\n");
    put(&b, "b", 1);
    assert_reads(&r, SYNCED("b", "6", "1"));
    assert_reads(&late, SYNCED("b", "6", "1"));
    ck_assert_uint_eq(watch_cache_count(w), 2);
    watch_cache_free(w);
}
END_TEST

START_TEST(deleting_one_of_two_namesakes_resends_the_other)
{
    struct watch_cache_item *a = NULL, *twin = NULL, *other = NULL;
    struct watch_cache_reader r = {0};
    w = watch_cache_new(&kind, 100);
    put(&a, "a-b-c", 1);
    put(&other, "a-b", 1);
    put(&twin, "a-b-c", 2);
    assert_reads(&r, SYNCED("a-b-c", "1", "1") SYNCED("a-b", "2", "1")
                         SYNCED("a-b-c", "3", "2") "\n");
    watch_cache_drop(w, &a);
    assert_reads(&r, DELETED("a-b-c") SYNCED("a-b-c", "5", "2"));
    watch_cache_drop(w, &twin);
    assert_reads(&r, DELETED("a-b-c"));
    watch_cache_free(w);
}
END_TEST

START_TEST(a_list_is_a_snapshot)
{
    struct watch_cache_item *b = NULL, *a = NULL, *c = NULL;
    cleanup_buf struct buf out = {0};
    w = watch_cache_new(&kind, 100);
    size_t next = 0;
    struct watch_cache_list *empty = watch_cache_list(w);
    ck_assert(watch_cache_list_read(empty, &next, 10, &out));
    ck_assert_uint_eq(out.n, 0);
    watch_cache_list_free(empty);
    put(&b, "b", 1);
    put(&a, "a", 1);
    put(&c, "c", 1);
    struct watch_cache_list *l = watch_cache_list(w), *unread = watch_cache_list(w);
    ck_assert_ptr_eq(l, unread); /* shared until the next change */
    put(&a, "a", 2);
    watch_cache_drop(w, &b);
    ck_assert(!watch_cache_list_read(l, &next, 1, &out));
    watch_cache_drop(w, &c);
    ck_assert(watch_cache_list_read(l, &next, 1000, &out));
    ck_assert_str_eq(out.p, "{\"name\":\"a\",\"seq\":\"2\",\"value\":1},"
                            "{\"name\":\"b\",\"seq\":\"1\",\"value\":1},"
                            "{\"name\":\"c\",\"seq\":\"3\",\"value\":1}");
    struct watch_cache_list *later = watch_cache_list(w);
    ck_assert_ptr_ne(l, later);
    watch_cache_free(w);
    watch_cache_list_free(l);
    watch_cache_list_free(later);
    watch_cache_list_free(unread); /* a reader that disconnected */
}
END_TEST

/* The state of a client of a watch: the last value of each name, and the snapshot in
 * which it was seen. */
enum { NAMES = 12, READERS = 8 };

struct client {
    struct watch_cache_reader reader;
    struct buf partial;
    int value[NAMES]; /* -1: none */
    long long seq[NAMES];
    bool doubtful[NAMES]; /* since a RESYNC */
    bool resyncing, begun;
    unsigned resyncs;
};

static void client_line(struct client *c, struct span line)
{
    if (!line.n) {
        for (int i = 0; c->resyncing && i < NAMES; i++)
            if (c->doubtful[i])
                c->value[i] = -1;
        c->resyncing = false;
        c->begun = true;
        return;
    }
    json_t *j = json_loadb(line.p, line.n, 0, NULL);
    ck_assert_msg(j, "%.*s", SPAN_ARG(line));
    const char *type = json_string_value(json_object_get(j, "Type"));
    json_t *thing = json_object_get(j, "Thing");
    if (!strcmp(type, "RESYNC")) {
        c->resyncs++;
        c->resyncing = true;
        for (int i = 0; i < NAMES; i++)
            c->doubtful[i] = true;
        json_decref(j);
        return;
    }
    int i = json_string_value(json_object_get(thing, "name"))[0] - 'a';
    c->doubtful[i] = false;
    if (!strcmp(type, "DELETED")) {
        c->value[i] = -1;
    } else {
        long long seq =
            strtoll(json_string_value(json_object_get(thing, "seq")), NULL, 10);
        ck_assert_msg(seq > c->seq[i] || c->resyncing, "an old state after a newer one");
        c->seq[i] = seq;
        c->value[i] = (int)json_integer_value(json_object_get(thing, "value"));
    }
    json_decref(j);
}

/* Reads some lines. True: up to date. */
static bool client_read(struct client *c, size_t max)
{
    cleanup_buf struct buf out = {0};
    bool all = watch_cache_read(w, &c->reader, max, &out);
    struct span rest = buf_span(&out);
    while (rest.n) {
        bool last = !memchr(rest.p, '\n', rest.n);
        ck_assert(!last); /* only complete lines */
        struct span line = {rest.p,
                            (size_t)((char *)memchr(rest.p, '\n', rest.n) - rest.p)};
        client_line(c, line);
        rest.p += line.n + 1;
        rest.n -= line.n + 1;
    }
    return all;
}

static void client_init(struct client *c)
{
    *c = (struct client){0};
    for (int i = 0; i < NAMES; i++)
        c->value[i] = -1;
}

static unsigned random_run(uint64_t seed)
{
    struct rng rng;
    struct watch_cache_item *items[NAMES] = {0};
    int value[NAMES];
    struct client clients[READERS];
    unsigned resyncs = 0;
    rng_init(&rng, seed);
    w = watch_cache_new(&kind, 1 + rng_below(&rng, 6));
    for (int i = 0; i < NAMES; i++)
        value[i] = -1;
    for (int i = 0; i < READERS; i++)
        client_init(&clients[i]);
    for (int step = 0; step < 400; step++) {
        int i = (int)rng_below(&rng, NAMES);
        char name[2] = {(char)('a' + i), '\0'};
        if (rng_below(&rng, 3)) {
            value[i] = (int)rng_below(&rng, 4);
            put(&items[i], name, value[i]);
        } else {
            watch_cache_drop(w, &items[i]);
            value[i] = -1;
        }
        struct client *c = &clients[rng_below(&rng, READERS)];
        uint64_t what = rng_below(&rng, 20);
        if (what == 0)
            client_init(c); /* a new client */
        else if (what < 8)
            client_read(c, 1 + rng_below(&rng, 300));
    }
    for (int r = 0; r < READERS; r++) {
        while (!client_read(&clients[r], 1 + rng_below(&rng, 300)))
            ;
        ck_assert(clients[r].begun && !clients[r].resyncing);
        resyncs += clients[r].resyncs;
        for (int i = 0; i < NAMES; i++)
            ck_assert_msg(clients[r].value[i] == value[i],
                          "seed %llu: reader %d has %d of %c, which is %d",
                          (unsigned long long)seed, r, clients[r].value[i], 'a' + i,
                          value[i]);
    }
    watch_cache_free(w);
    return resyncs;
}

START_TEST(every_reader_ends_with_the_current_state)
{
    unsigned resyncs = 0;
    for (uint64_t seed = 1; seed <= 1500; seed++)
        resyncs += random_run(seed);
    ck_assert_uint_gt(resyncs, 100); /* the test covers resyncs */
}
END_TEST

START_TEST(endless_changes_take_bounded_memory)
{
    struct watch_cache_item *items[10] = {0};
    cleanup_buf struct buf out = {0};
    struct watch_cache_reader r = {0};
    w = watch_cache_new(&kind, 8);
    for (int i = 0; i < 200000; i++) {
        char name[2] = {(char)('a' + i % 10), '\0'};
        if (i % 7 == 3)
            watch_cache_drop(w, &items[i % 10]);
        else
            put(&items[i % 10], name, i);
    }
    ck_assert(watch_cache_read(w, &r, SIZE_MAX, &out)); /* few entries */
    ck_assert_uint_lt(out.n, 20 * 200);
    watch_cache_free(w);
}
END_TEST

UNIT_MAIN("watch_cache", a_reader_gets_the_initial_state_then_changes,
          deleting_one_of_two_namesakes_resends_the_other, a_list_is_a_snapshot,
          every_reader_ends_with_the_current_state, endless_changes_take_bounded_memory)
