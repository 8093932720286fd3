/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/view_inspect_stream.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "extender/view_inspect.h"

enum {
    PIECE = 16 * 1024, /* what a reader is given at a time */
    SLOTS_MAX = 1024,  /* nodes that are passed over under one lock */
    SPEAK_MAX = 16,    /* and that are written out */
    ROUND_MS = 500,    /* between two looks of a reader, at least */
    CLUSTER_MS = 1000, /* between two looks at the cluster */
};

struct view_inspect_stream {
    struct store *store;
    int64_t heartbeat_ms;
    atomic_uint watches, main_watches;

    pthread_mutex_t lock; /* protects what follows */
    struct buf cluster;   /* what was said last */
    uint64_t cluster_no;  /* counts what was said; 0: nothing yet */
    int64_t cluster_ms;   /* when it was looked at */
};

/* What a reader was told of a slot of the ledger. */
struct told {
    char *name; /* NULL: nothing is there */
    uint64_t generation;
};

struct reader {
    struct view_inspect_stream *live;
    bool main, synced; /* synced: was told all there was at the start */
    struct told *told;
    size_t n_told, told_cap;
    uint32_t slot;              /* where the round is; 0: none is under way */
    uint64_t generation, began; /* of the ledger, when the last rounds began */
    uint64_t cluster_no;        /* that it was told */
    int64_t next_ms, said_ms;
};

struct view_inspect_stream *view_inspect_stream_new(struct store *store,
                                                    int64_t heartbeat_ms)
{
    struct view_inspect_stream *live = xcalloc(1, sizeof *live);
    live->store = store;
    live->heartbeat_ms = heartbeat_ms;
    pthread_mutex_init(&live->lock, NULL);
    return live;
}

void view_inspect_stream_free(struct view_inspect_stream *live)
{
    if (!live)
        return;
    buf_fini(&live->cluster);
    pthread_mutex_destroy(&live->lock);
    free(live);
}

static struct told *told_at(struct reader *r, uint32_t slot)
{
    MEM_GROW(r->told, r->told_cap, slot + 1);
    while (r->n_told <= slot)
        r->told[r->n_told++] = (struct told){0};
    return &r->told[slot];
}

/* A node that has another slot now is told of there, so it is not gone. */
static void say_gone(const struct ledger *l, struct told *told, struct buf *out)
{
    if (!ledger_node_find(l, span_of(told->name))) {
        buf_adds(out, "{\"Node\":{\"name\":");
        buf_add_json(out, span_of(told->name));
        buf_adds(out, "},\"Type\":\"DELETED\"}\n");
    }
    free(told->name);
    *told = (struct told){0};
}

/* Says what is new in a slot; whether anything was. */
static bool say(struct reader *r, const struct ledger *l, uint32_t slot, struct buf *out)
{
    const struct ledger_node *node = ledger_node_at(l, slot);
    struct told *told = told_at(r, slot);
    size_t before = out->n;
    if (told->name && (!node || !span_eq(span_of(told->name), node->name)))
        say_gone(l, told, out);
    if (node && (!told->name || told->generation != node->generation)) {
        if (!told->name)
            told->name = xmemdup0(node->name.p, node->name.n);
        told->generation = node->generation;
        buf_adds(out, "{\"Node\":");
        view_inspect_write_node(l, node, out);
        buf_adds(out, ",\"Type\":\"SYNCED\"}\n");
    }
    return out->n != before;
}

/* From where the round is, a few nodes. True: that was the end of it. */
static bool look(struct reader *r, struct buf *out)
{
    const struct ledger *l = core_ledger(store_read(r->live->store));
    uint32_t slots = ledger_node_slots(l), end = slots, said = 0;
    if (r->slot == 0)
        r->began = ledger_generation(l);
    if (r->synced && r->began == r->generation)
        r->slot = end; /* nothing has changed */
    else if (slots - r->slot > SLOTS_MAX)
        end = r->slot + SLOTS_MAX;
    while (r->slot < end && said < SPEAK_MAX && out->n < PIECE)
        said += say(r, l, r->slot++, out);
    bool all = r->slot >= slots;
    store_read_end(r->live->store);
    if (!all)
        return false;
    r->generation = r->began;
    r->slot = 0;
    return true;
}

/* Looks at the cluster, unless somebody has done so just now. */
static void look_at_cluster(struct view_inspect_stream *live, int64_t now_ms)
{
    cleanup_buf struct buf text = {0};
    pthread_mutex_lock(&live->lock);
    bool due = !live->cluster_no || now_ms - live->cluster_ms >= CLUSTER_MS;
    live->cluster_ms = due ? now_ms : live->cluster_ms;
    pthread_mutex_unlock(&live->lock);
    if (!due)
        return;
    buf_adds(&text, "{\"Cluster\":{");
    view_inspect_write_cluster(live->store, &text);
    buf_adds(&text, "},\"Type\":\"SYNCED\"}\n");
    pthread_mutex_lock(&live->lock);
    if (!span_eq(buf_span(&text), buf_span(&live->cluster))) {
        struct buf old = live->cluster;
        live->cluster = text;
        text = old;
        live->cluster_no++;
    }
    pthread_mutex_unlock(&live->lock);
}

static void say_cluster(struct reader *r, int64_t now_ms, struct buf *out)
{
    struct view_inspect_stream *live = r->live;
    look_at_cluster(live, now_ms);
    pthread_mutex_lock(&live->lock);
    if (r->cluster_no != live->cluster_no) {
        r->cluster_no = live->cluster_no;
        buf_add_span(out, buf_span(&live->cluster));
    }
    pthread_mutex_unlock(&live->lock);
}

static void reader_open(void *ctx, struct httpd_waker *waker)
{
    (void)ctx, (void)waker; /* it is asked once a second, and that will do */
}

static enum httpd_more reader_fill(void *ctx, struct buf *out)
{
    struct reader *r = ctx;
    int64_t now_ms = clock_mono_ms();
    if (now_ms < r->next_ms)
        return HTTPD_SLEEP;
    bool all = false;
    while (!all && out->n < PIECE)
        all = look(r, out);
    if (all) {
        r->next_ms = now_ms + ROUND_MS;
        say_cluster(r, now_ms, out);
        bool quiet = !out->n && r->live->heartbeat_ms &&
                     now_ms - r->said_ms >= r->live->heartbeat_ms;
        if (!r->synced || quiet)
            buf_addc(out, '\n');
        r->synced = true;
    }
    if (!out->n)
        return HTTPD_SLEEP;
    r->said_ms = now_ms;
    return HTTPD_AGAIN;
}

static void reader_close(void *ctx)
{
    struct reader *r = ctx;
    atomic_fetch_sub(&r->live->watches, 1);
    if (r->main)
        atomic_fetch_sub(&r->live->main_watches, 1);
    for (size_t i = 0; i < r->n_told; i++)
        free(r->told[i].name);
    free(r->told);
    free(r);
}

static const struct httpd_stream reader_stream = {reader_open, reader_fill, reader_close};

static bool is_ready(struct view_inspect_stream *live, struct httpd_reply *reply)
{
    struct err err = {0};
    int rc = core_ready(store_read(live->store), store_now(), &err);
    store_read_end(live->store);
    if (rc == 0)
        return true;
    httpd_fail(reply, 503, "%s", err.msg);
    return false;
}

/* One more of those that there may be so many of? */
static bool enter(atomic_uint *count, unsigned most)
{
    if (atomic_fetch_add(count, 1) < most)
        return true;
    atomic_fetch_sub(count, 1);
    return false;
}

void view_inspect_stream_watch(struct view_inspect_stream *live, bool main,
                               struct httpd_reply *reply)
{
    if (!is_ready(live, reply))
        return;
    bool here = !main || enter(&live->main_watches, VIEW_INSPECT_STREAM_MAIN_WATCHES);
    if (!here || !enter(&live->watches, VIEW_INSPECT_STREAM_WATCHES)) {
        if (main && here)
            atomic_fetch_sub(&live->main_watches, 1);
        httpd_fail(reply, 503, "%d others watch already%s",
                   here ? VIEW_INSPECT_STREAM_WATCHES : VIEW_INSPECT_STREAM_MAIN_WATCHES,
                   here ? "" : "; --observe-port serves more");
        return;
    }
    struct reader *r = xcalloc(1, sizeof *r);
    r->live = live;
    r->main = main;
    reply->stream = &reader_stream;
    reply->stream_ctx = r;
}
