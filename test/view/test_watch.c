/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/unit.h"

#include "base/clock.h"
#include "core/rig.h"
#include "view/watch.h"

/*
 * inspect as a list and as a watch: each node once, then its changes, all rendered once for
 * any number of readers, and not without one.
 */

static unsigned reads; /* how often the lock is held now */
static unsigned rendered_nodes, rendered_texts;
static bool slow; /* a node takes longer than the turn of a reader */
enum { MOST = 4, MAIN_MOST = 2, HEARTBEAT_MS = 30 };
static struct view_watch_limit streams;
static struct view_watch *view;

static const struct core *read_core(void *ctx)
{
    ck_assert_uint_eq(reads++, 0);
    return ((struct rig *)ctx)->core;
}

static void end_read(void *ctx)
{
    (void)ctx;
    reads--;
}

static struct view_source source = {
    .read = read_core, .read_end = end_read, .ctx = &r, .observer = true};

static size_t count_node(void *ctx, struct watch_cache *cache,
                         struct watch_cache_owner *owner, const struct ledger *l,
                         const struct ledger_node *node)
{
    int64_t until_ms = clock_mono_ms() + (slow ? 20 : 0);
    rendered_nodes++;
    while (clock_mono_ms() < until_ms)
        ;
    return view_watch_inspect.put_node(ctx, cache, owner, l, node) + (slow ? 1000 : 0);
}

static void count_text(void *ctx, struct buf *out)
{
    rendered_texts++;
    view_watch_inspect.write_text(ctx, out);
}

static void set_node(const char *name, bool cordoned, bool deleted)
{
    struct node node = {.meta = {.name = span_of(name)}, .cordoned = cordoned};
    rig_step((struct core_input){.type = CORE_OBJECT,
                                 .kind = CORE_NODES,
                                 .run = r.runs[CORE_NODES],
                                 .node = &node,
                                 .deleted = deleted});
}

static void begin(void)
{
    static struct view_watch_kind kind;
    kind = view_watch_inspect;
    kind.put_node = count_node;
    kind.write_text = count_text;
    streams =
        (struct view_watch_limit){.what = "tests", .most = MOST, .main_most = MAIN_MOST};
    rendered_nodes = rendered_texts = 0;
    rig_new((struct core_settings){.observer = true});
    set_node("n1", false, false);
    set_node("n2", false, false);
    for (int i = 0; i < CORE_KINDS; i++)
        rig_list_end((enum core_kind)i);
    view = view_watch_new(&(struct view_watch_config){.kind = &kind,
                                                      .ctx = &source,
                                                      .source = &source,
                                                      .lists = &streams,
                                                      .watches = &streams,
                                                      .heartbeat_ms = HEARTBEAT_MS});
}

static void end(void)
{
    ck_assert_uint_eq(reads, 0);
    ck_assert_uint_eq(atomic_load(&streams.open), 0);
    view_watch_free(view);
    rig_free();
}

static struct httpd_reply open_on(bool main, bool watch, int64_t end_ms)
{
    struct httpd_reply reply = {.status = 200};
    view_watch_answer(view, main, watch, end_ms, &reply);
    return reply;
}

static struct httpd_reply open_reply(bool watch)
{
    return open_on(false, watch, INT64_MAX);
}

static void close_reply(struct httpd_reply *reply)
{
    reply->stream->close(reply->stream_ctx);
}

/* Waits until the watch has `text`, and returns all that it got. */
static const char *expect(struct httpd_reply *watch, const char *text)
{
    cleanup_buf struct buf all = {0};
    buf_adds(&all, "");
    lib_wait(({
        watch->stream->fill(watch->stream_ctx, NULL, &all);
        strstr(all.p, text);
    }));
    return lib_fmt("%s", all.p);
}

static const char *list(void)
{
    struct httpd_reply reply = open_reply(false);
    cleanup_buf struct buf all = {0};
    enum httpd_stream_result got;
    do
        got = reply.stream->fill(reply.stream_ctx, NULL, &all);
    while (got == HTTPD_STREAM_MORE);
    ck_assert_int_eq(got, HTTPD_STREAM_END);
    close_reply(&reply);
    return lib_fmt("%s", all.p);
}

static size_t count(const char *text, const char *part)
{
    size_t n = 0;
    while ((text = strstr(text, part)))
        n++, text++;
    return n;
}

TEST(every_node_once_then_its_changes)
{
    begin();
    struct httpd_reply a = open_reply(true), b = open_reply(true);
    const char *first = expect(&a, "\n\n");
    ck_assert_uint_eq(count(first, "{\"Node\":"), 2);
    ck_assert_uint_eq(count(first, "{\"Cluster\":{\"unit\""), 1);
    ck_assert_str_eq(expect(&b, "\n\n"), first);
    set_node("n2", true, false);
    set_node("n3", false, false);
    const char *next = expect(&a, "\"name\":\"n3\"");
    ck_assert_uint_eq(count(next, "\"name\":\"n2\""), 1);
    ck_assert_contains(next, "\"schedulingDisabled\":true");
    ck_assert_lacks(next, "\"name\":\"n1\"");
    ck_assert_str_eq(expect(&b, "\"name\":\"n3\""), next);
    ck_assert_uint_eq(rendered_nodes, 4); /* once for both */
    close_reply(&a);
    close_reply(&b);
    end();
}

TEST(a_deleted_node_is_named_once)
{
    begin();
    struct httpd_reply w = open_reply(true);
    expect(&w, "\n\n");
    set_node("n1", false, true);
    set_node("n4", false, false); /* may take its slot */
    const char *next = expect(&w, "\"name\":\"n4\"");
    ck_assert_contains(next, "{\"Node\":{\"name\":\"n1\"},\"Type\":\"DELETED\"}\n");
    ck_assert_uint_eq(count(next, "{\"Node\":"), 2);
    close_reply(&w);
    end();
}

TEST(the_list_is_that_of_inspect)
{
    cleanup_buf struct buf all = {0};
    begin();
    view_inspect_all(&source, &all);
    ck_assert_str_eq(list(), all.p);
    set_node("n0", true, false); /* comes first */
    buf_clear(&all);
    view_inspect_all(&source, &all);
    ck_assert_str_eq(list(), all.p);
    ck_assert_uint_eq(rendered_nodes, 3);
    ck_assert_uint_eq(rendered_texts, 2);
    end();
}

TEST(nothing_is_rendered_without_a_reader)
{
    begin();
    for (int i = 0; i < 10; i++)
        set_node("n1", i % 2 == 0, false);
    ck_assert_uint_eq(rendered_nodes + rendered_texts, 0);
    ck_assert(!view_watch_is_filled(view));
    list();
    list();
    ck_assert_uint_eq(rendered_nodes, 2);
    ck_assert_uint_eq(rendered_texts, 1); /* the ledger is the same */
    ck_assert(view_watch_is_filled(view));
    lib_wait(({
        view_watch_trim(view);
        !view_watch_is_filled(view);
    }));
    set_node("n1", true, false);
    ck_assert_uint_eq(rendered_nodes, 2);
    list();
    ck_assert_uint_eq(rendered_nodes, 4);
    end();
}

TEST(what_a_reader_that_left_early_has_rendered_is_dropped)
{
    cleanup_buf struct buf out = {0};
    begin();
    slow = true;
    struct httpd_reply early = open_reply(false);
    early.stream->fill(early.stream_ctx, NULL, &out);
    close_reply(&early);
    slow = false;
    ck_assert_uint_eq(rendered_nodes, 1); /* of two */
    int64_t left_ms = clock_mono_ms();
    while (clock_mono_ms() < left_ms + 2)
        ;
    view_watch_trim(view);
    list();
    ck_assert_uint_eq(rendered_nodes, 3);
    end();
}

/* -- hostile readers -- */

enum { TEXT_BYTES = 1 << 20, STALLED = 1000, STATES = 20 };

static void large_text(void *ctx, struct buf *out)
{
    (void)ctx;
    rendered_texts++;
    buf_reserve(out, TEXT_BYTES);
    for (int i = 0; i < TEXT_BYTES; i++)
        buf_addc(out, (char)('a' + rendered_texts % 26));
}

/* Each holds the text of the time at which it began. */
TEST(a_thousand_stalled_readers_take_one_budget)
{
    static const struct view_watch_kind kind = {
        .words = {.list = "", .list_text = "", .list_end = ""}, .write_text = large_text};
    struct budget budget = {.max = 3 * TEXT_BYTES};
    struct httpd_reply stalled[STALLED];
    unsigned cut = 0;
    begin();
    view_watch_free(view);
    streams.most = STALLED + 1;
    view = view_watch_new(&(struct view_watch_config){
        .kind = &kind, .source = &source, .lists = &streams, .budget = &budget});
    for (int i = 0; i < STALLED; i++) {
        cleanup_buf struct buf out = {0};
        if (i % (STALLED / STATES) == 0)
            set_node("n1", i / (STALLED / STATES) % 2, false);
        stalled[i] = open_reply(false);
        ck_assert_int_eq(stalled[i].stream->fill(stalled[i].stream_ctx, NULL, &out),
                         HTTPD_STREAM_MORE);
        ck_assert_uint_le(out.n, VIEW_WATCH_CHUNK);
        ck_assert_uint_le(budget.used, budget.max);
    }
    ck_assert_uint_eq(rendered_texts, STATES);
    ck_assert_uint_eq(strlen(list()), TEXT_BYTES); /* others are served */
    for (int i = 0; i < STALLED; i++) {
        cleanup_buf struct buf out = {0};
        enum httpd_stream_result got =
            stalled[i].stream->fill(stalled[i].stream_ctx, NULL, &out);
        cut += got == HTTPD_STREAM_ABORT;
        ck_assert(got == HTTPD_STREAM_MORE || out.n == 0);
        close_reply(&stalled[i]);
    }
    ck_assert_uint_eq(cut, STALLED / STATES *
                               (STATES - 4)); /* three old texts, and the last */
    ck_assert_uint_eq(budget.used, 0);
    end();
}

/* -- limits, heartbeats and the end -- */

static void ck_refused(struct httpd_reply reply, const char *why)
{
    ck_assert_uint_eq(reply.status, 503);
    ck_assert_ptr_null(reply.stream);
    ck_assert_str_eq(reply.header[0][0], "Retry-After");
    ck_assert_contains(reply.body.p, why);
    buf_fini(&reply.body);
}

TEST(open_replies_are_limited)
{
    struct httpd_reply open[MOST];
    begin();
    for (int i = 0; i < MOST; i++)
        open[i] = open_on(i < MAIN_MOST, i % 2, INT64_MAX);
    ck_refused(open_reply(true), "too many tests: 4 are open; retry later");
    close_reply(&open[MOST - 1]);
    ck_refused(open_on(true, true, INT64_MAX),
               "2 are open on this port; use --observe-port");
    open[MOST - 1] = open_reply(true);
    for (int i = 0; i < MOST; i++)
        close_reply(&open[i]);
    ck_assert_uint_eq(atomic_load(&streams.main_open), 0);
    end();
}

TEST(an_idle_watch_is_read_at_intervals_and_sends_heartbeats)
{
    begin();
    struct httpd_reply w = open_reply(true);
    expect(&w, "\n\n");
    for (int i = 0; i < 2; i++) {
        cleanup_buf struct buf out = {0};
        int64_t since_ms = clock_mono_ms();
        lib_wait(w.stream->fill(w.stream_ctx, NULL, &out) == HTTPD_STREAM_MORE);
        ck_assert_str_eq(out.p, "\n");
        ck_assert_int_ge(clock_mono_ms() - since_ms, VIEW_WATCH_PAUSE_MS - 20);
    }
    close_reply(&w);
    end();
}

TEST(a_watch_ends_when_it_must_be_authorized_again)
{
    cleanup_buf struct buf out = {0};
    begin();
    struct httpd_reply w = open_on(false, true, clock_mono_ms());
    ck_assert_int_eq(w.stream->fill(w.stream_ctx, NULL, &out), HTTPD_STREAM_END);
    ck_assert_uint_eq(out.n, 0);
    close_reply(&w);
    end();
}
