/* SPDX-License-Identifier: Apache-2.0 */
#include "view/watch_cache.h"

#include "base/rng.h"
#include "lib/unit.h"

enum { NAMES = 12, READERS = 8 };

static struct watch_cache *w;
static struct watch_cache_owner owners[NAMES]; /* of one object each, most of the time */

static const struct watch_cache_words words = {
    .object = "{\"Thing\":",
    .gone = "{\"Thing\":{\"metadata\":{\"name\":",
    .gone_end = "},\"x\":null},\"Type\":\"DELETED\"}\n",
    .text = "<",
    .text_end = ">\n",
    .list = "[",
    .list_text = "|",
    .list_end = "]",
    .resync = true};
static struct budget budget;

static void begin(size_t max_gone)
{
    memset(owners, 0, sizeof owners);
    budget = (struct budget){.max = 100 * 1000};
    w = watch_cache_new(&words, max_gone, &budget);
}

static void end(struct watch_cache_reader *a, struct watch_cache_reader *b)
{
    watch_cache_reader_fini(w, a);
    watch_cache_reader_fini(w, b);
    watch_cache_free(w);
    ck_assert_uint_eq(budget.used, 0);
}

static void add(int owner, const char *name, int value)
{
    cleanup_buf struct buf json = {0};
    buf_printf(&json,
               "{\"metadata\":{\"name\":\"%s\"},\"seq\":\"" WATCH_CACHE_NUMBER
               "\",\"value\":%d}",
               name, value);
    watch_cache_put(
        w, &owners[owner],
        &(struct watch_cache_state){.name = span_of(name), .json = buf_span(&json)});
}

static void put(int owner, const char *name, int value)
{
    add(owner, name, value);
    watch_cache_sweep(w, &owners[owner]);
}

static void drop(int owner)
{
    watch_cache_sweep(w, &owners[owner]);
}

static void assert_reads(struct watch_cache_reader *r, const char *want)
{
    cleanup_buf struct buf out = {0};
    buf_adds(&out, "");
    if (!r->begun)
        watch_cache_reader_init(r);
    ck_assert_int_eq(watch_cache_read(w, r, 100000, &out), WATCH_CACHE_ALL);
    ck_assert_str_eq(out.p, want);
}

#define SYNCED(name, seq, value)                                                         \
    "{\"Thing\":{\"metadata\":{\"name\":\"" name "\"},\"seq\":\"" seq                    \
    "\",\"value\":" value "},\"Type\":\"SYNCED\"}\n"
#define DELETED(name)                                                                    \
    "{\"Thing\":{\"metadata\":{\"name\":\"" name "\"},\"x\":null},\"Type\":\"DELETED\"}" \
    "\n"

TEST(a_reader_gets_the_initial_state_then_changes)
{
    struct watch_cache_reader r = {0}, late = {0};
    begin(100);
    assert_reads(&r, "\n");
    put(0, "a", 1);
    put(1, "b", 1);
    assert_reads(&r, SYNCED("a", "1", "1") SYNCED("b", "2", "1"));
    assert_reads(&r, "");
    put(0, "a", 1); /* no change */
    assert_reads(&r, "");
    put(0, "a", 2);
    put(0, "a", 3);
    drop(1);
    assert_reads(&r, SYNCED("a", "4", "3") DELETED("b"));
    assert_reads(&late, SYNCED("a", "4", "3") "\n");
    put(1, "b", 1);
    assert_reads(&r, SYNCED("b", "6", "1"));
    assert_reads(&late, SYNCED("b", "6", "1"));
    end(&r, &late);
}

TEST(deleting_one_of_two_namesakes_resends_the_other)
{
    struct watch_cache_reader r = {0};
    begin(100);
    put(0, "a-b-c", 1);
    put(1, "a-b", 1);
    put(2, "a-b-c", 2);
    assert_reads(&r, SYNCED("a-b-c", "1", "1") SYNCED("a-b", "2", "1")
                         SYNCED("a-b-c", "3", "2") "\n");
    drop(0);
    assert_reads(&r, DELETED("a-b-c") SYNCED("a-b-c", "5", "2"));
    drop(2);
    assert_reads(&r, DELETED("a-b-c"));
    for (int round = 0; round < 2; round++) { /* both of one owner */
        add(3, "x", 1);
        put(3, "x", 2);
        assert_reads(&r, round ? "" : SYNCED("x", "7", "1") SYNCED("x", "8", "2"));
    }
    put(3, "x", 1);
    assert_reads(&r, DELETED("x") SYNCED("x", "10", "1"));
    end(&r, &r);
}

TEST(times_change_only_with_the_state)
{
#define TIMES WATCH_CACHE_REPORTED "," WATCH_CACHE_RECOVERED "," WATCH_CACHE_TRANSITION
#define AT(s) "\"1970-01-01T00:00:0" s "Z\""
    static const struct {
        const char *json;
        bool healthy;
        const char *listed; /* at the time of its place */
    } states[] = {
        {"[" TIMES "]", false, "[" AT("1") ",null," AT("1") "]"},
        {"[" TIMES "]", false, "[" AT("1") ",null," AT("1") "]"},
        {"{" TIMES "}", false, "{" AT("3") ",null," AT("1") "}"},
        {"<" TIMES ">", true, "<" AT("4") "," AT("4") "," AT("4") ">"},
        {"{" TIMES "}", false, "{" AT("5") "," AT("4") "," AT("5") "}"},
    };
    begin(1);
    array_indices(i, states) {
        struct watch_cache_reader r;
        cleanup_buf struct buf out = {0};
        int64_t now_s = (int64_t)i + 1;
        watch_cache_put(w, &owners[0],
                        &(struct watch_cache_state){.name = SPAN("n"),
                                                    .json = span_of(states[i].json),
                                                    .healthy = states[i].healthy,
                                                    .now_s = now_s,
                                                    .reported_s = now_s});
        watch_cache_sweep(w, &owners[0]);
        watch_cache_reader_init(&r);
        ck_assert_int_eq(watch_cache_list(w, &r, 1000, &out), WATCH_CACHE_ALL);
        ck_assert_str_eq(out.p, lib_fmt("[%s|", states[i].listed));
        watch_cache_reader_fini(w, &r);
    }
    watch_cache_free(w);
}

TEST(a_list_has_each_object_once_by_name)
{
    struct watch_cache_reader r, text;
    cleanup_buf struct buf out = {0}, other = {0};
    begin(100);
    watch_cache_reader_init(&r);
    watch_cache_reader_init(&text);
    ck_assert_int_eq(watch_cache_list(w, &text, 10, &other), WATCH_CACHE_ALL);
    ck_assert_str_eq(other.p, "[|");
    put(1, "b", 1);
    put(0, "a", 1);
    put(2, "c", 1);
    put(4, "a", 7);
    ck_assert_int_eq(watch_cache_list(w, &r, 2, &out), WATCH_CACHE_MORE);
    put(4, "a", 8); /* was sent */
    put(2, "c", 2);
    drop(1);
    put(3, "d", 1);
    watch_cache_set_text(w, SPAN("\1 text"));
    ck_assert_int_eq(watch_cache_list(w, &r, 1000, &out), WATCH_CACHE_ALL);
#define LISTED(name, seq, value)                                                         \
    "{\"metadata\":{\"name\":\"" name "\"},\"seq\":\"" seq "\",\"value\":" value "}"
    ck_assert_str_eq(out.p,
                     "[" LISTED("a", "4", "7") "," LISTED("a", "2", "1") "," LISTED(
                         "c", "6", "2") "," LISTED("d", "8", "1") "|\1 text]");
    end(&r, &text);
}

/* -- the text, and states that are sent in parts -- */

TEST(the_text_is_a_line_among_the_changes)
{
    struct watch_cache_reader r = {0}, late = {0};
    begin(100);
    put(0, "a", 1);
    watch_cache_set_text(w, SPAN("one"));
    assert_reads(&r, SYNCED("a", "1", "1") "<one>\n\n");
    watch_cache_set_text(w, SPAN("one"));
    assert_reads(&r, "");
    watch_cache_set_text(w, SPAN("two"));
    put(0, "a", 2);
    assert_reads(&r, "<two>\n" SYNCED("a", "4", "2"));
    assert_reads(&late, "<two>\n" SYNCED("a", "4", "2") "\n");
    end(&r, &late);
}

enum { LARGE = 40 * 1000, PART = 1000 };

static void set_large(char c)
{
    cleanup_buf struct buf text = {0};
    for (int i = 0; i < LARGE; i++)
        buf_addc(&text, c);
    watch_cache_set_text(w, buf_span(&text));
}

/* Reads parts up to the end, or to the cut, and checks that they are those texts. */
static enum watch_cache_result read_large(struct watch_cache_reader *r,
                                          const char *letters)
{
    cleanup_buf struct buf out = {0};
    enum watch_cache_result got;
    size_t before, n = 0;
    do {
        before = out.n;
        got = watch_cache_read(w, r, out.n + PART, &out);
        ck_assert_uint_le(out.n - before, PART + 4);
    } while (got == WATCH_CACHE_MORE);
    for (size_t i = 0; i < out.n; i++)
        if (!strchr("<>\n", out.p[i]))
            ck_assert_int_eq(out.p[i], letters[n++ / LARGE]);
    ck_assert_uint_eq(n, LARGE * strlen(letters));
    return got;
}

static void begin_large(struct watch_cache_reader *r)
{
    cleanup_buf struct buf out = {0};
    watch_cache_reader_init(r);
    ck_assert_int_eq(watch_cache_read(w, r, 1, &out), WATCH_CACHE_MORE);
    ck_assert_str_eq(out.p, "<"); /* and it holds the state */
}

TEST(a_state_is_kept_while_it_is_being_sent)
{
    struct watch_cache_reader a, b;
    begin(100);
    set_large('1');
    begin_large(&a);
    begin_large(&b);
    ck_assert_uint_eq(budget.used, 0); /* it is the current one */
    set_large('2');
    ck_assert_uint_eq(budget.used, LARGE);
    ck_assert_int_eq(read_large(&a, "12"), WATCH_CACHE_ALL);
    ck_assert_uint_eq(budget.used, LARGE);
    watch_cache_reader_fini(w, &b);
    ck_assert_uint_eq(budget.used, 0);
    end(&a, &b);
}

TEST(readers_of_the_oldest_states_are_cut_beyond_the_budget)
{
    struct watch_cache_reader r[5];
    begin(100);
    for (int i = 0; i < 5; i++) {
        set_large((char)('a' + i));
        begin_large(&r[i]);
        ck_assert_uint_le(budget.used, 2 * LARGE);
    }
    for (int i = 0; i < 5; i++) {
        static const char *const read[] = {"", "", "ce", "de", "e"};
        ck_assert_int_eq(read_large(&r[i], read[i]),
                         *read[i] ? WATCH_CACHE_ALL : WATCH_CACHE_CUT);
        watch_cache_reader_fini(w, &r[i]);
    }
    budget.max = LARGE / 2; /* not even one */
    begin_large(&r[0]);
    set_large('f');
    ck_assert_int_eq(read_large(&r[0], ""), WATCH_CACHE_CUT);
    end(&r[0], &r[0]);
}

TEST(a_reader_that_falls_behind_is_cut_without_resync)
{
    struct watch_cache_words no_resync = words;
    struct watch_cache_reader r = {0};
    cleanup_buf struct buf out = {0};
    begin(2);
    watch_cache_free(w);
    no_resync.resync = false;
    w = watch_cache_new(&no_resync, 2, NULL);
    assert_reads(&r, "\n");
    for (int i = 0; i < 6; i++) {
        put(i, "a", 1);
        drop(i);
    }
    ck_assert_int_eq(watch_cache_read(w, &r, 1, &out), WATCH_CACHE_CUT);
    ck_assert_uint_eq(out.n, 0);
    end(&r, &r);
}

/* -- random changes -- */

/* The state of a client of a watch: the last value of each name, and its number. */
struct client {
    struct watch_cache_reader reader;
    int value[NAMES]; /* -1: none */
    long long seq[NAMES];
    bool doubtful[NAMES]; /* since a RESYNC */
    bool resyncing, begun;
    unsigned resyncs;
};

static void client_line(struct client *c, const char *line)
{
    char name;
    long long seq;
    int value, n = sscanf(line,
                          "{\"Thing\":{\"metadata\":{\"name\":\"%c\"},\"seq\":\"%lld\","
                          "\"value\":%d},\"Type\":\"SYNCED\"}",
                          &name, &seq, &value);
    if (!*line) {
        for (int i = 0; c->resyncing && i < NAMES; i++)
            if (c->doubtful[i])
                c->value[i] = -1;
        c->resyncing = false;
        c->begun = true;
    } else if (!strcmp(line, "{\"Type\":\"RESYNC\"}")) {
        c->resyncs++;
        c->resyncing = true;
        memset(c->doubtful, true, sizeof c->doubtful);
    } else {
        ck_assert_msg(n == 3 || (n == 1 && strstr(line, "\"DELETED\"}")), "%s", line);
        int i = name - 'a';
        ck_assert_msg(n == 1 || seq > c->seq[i] || c->resyncing,
                      "an old state after a newer one");
        c->doubtful[i] = false;
        c->value[i] = n == 3 ? value : -1;
        c->seq[i] = n == 3 ? seq : c->seq[i];
    }
}

/* Reads some lines, which are complete. True: up to date. */
static bool client_read(struct client *c, size_t max)
{
    cleanup_buf struct buf out = {0};
    bool all = watch_cache_read(w, &c->reader, max, &out) == WATCH_CACHE_ALL;
    for (char *line = out.p, *end; line && *line; line = end + 1) {
        end = strchr(line, '\n');
        ck_assert_ptr_nonnull(end);
        *end = '\0';
        client_line(c, line);
    }
    return all;
}

static void client_init(struct client *c)
{
    *c = (struct client){0};
    watch_cache_reader_init(&c->reader);
    memset(c->value, -1, sizeof c->value);
}

static unsigned random_run(uint64_t seed)
{
    struct rng rng;
    int value[NAMES];
    struct client clients[READERS];
    unsigned resyncs = 0;
    rng_init(&rng, seed);
    begin(1 + rng_below(&rng, 6));
    memset(value, -1, sizeof value);
    for (int i = 0; i < READERS; i++)
        client_init(&clients[i]);
    for (int step = 0; step < 400; step++) {
        int i = (int)rng_below(&rng, NAMES);
        char name[2] = {(char)('a' + i), '\0'};
        value[i] = rng_below(&rng, 3) ? (int)rng_below(&rng, 4) : -1;
        if (value[i] >= 0)
            put(i, name, value[i]);
        else
            drop(i);
        struct client *c = &clients[rng_below(&rng, READERS)];
        uint64_t what = rng_below(&rng, 20);
        if (what == 0) { /* a new client */
            watch_cache_reader_fini(w, &c->reader);
            client_init(c);
        }
        if (what < 8)
            client_read(c, 1 + rng_below(&rng, 300));
    }
    for (int r = 0; r < READERS; r++) {
        while (!client_read(&clients[r], 1 + rng_below(&rng, 300)))
            ;
        ck_assert(clients[r].begun && !clients[r].resyncing);
        resyncs += clients[r].resyncs;
        watch_cache_reader_fini(w, &clients[r].reader);
        for (int i = 0; i < NAMES; i++)
            ck_assert_msg(clients[r].value[i] == value[i],
                          "seed %llu: reader %d has %d of %c, which is %d",
                          (unsigned long long)seed, r, clients[r].value[i], 'a' + i,
                          value[i]);
    }
    watch_cache_free(w);
    return resyncs;
}

TEST(every_reader_ends_with_the_current_state)
{
    unsigned resyncs = 0;
    for (uint64_t seed = 1; seed <= 500; seed++)
        resyncs += random_run(seed);
    ck_assert_uint_gt(resyncs, 100); /* the test covers resyncs */
}

TEST(endless_changes_take_bounded_memory)
{
    cleanup_buf struct buf out = {0};
    struct watch_cache_reader r;
    begin(8);
    watch_cache_reader_init(&r);
    for (int i = 0; i < 200000; i++) {
        char name[2] = {(char)('a' + i % 10), '\0'};
        if (i % 7 == 3)
            drop(i % 10);
        else
            put(i % 10, name, i);
    }
    ck_assert_int_eq(watch_cache_read(w, &r, SIZE_MAX, &out),
                     WATCH_CACHE_ALL); /* few entries */
    ck_assert_uint_lt(out.n, 20 * 200);
    end(&r, &r);
}
