/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/view_inspect_stream.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "extender/view_inspect.h"

enum {
    CHUNK = 16 * 1024,     /* bytes written at a time */
    SLOTS_MAX = 1024,      /* nodes scanned under one lock */
    NODES_MAX = 16,        /* nodes written under one lock */
    ROUND_MS = 500,        /* minimum between two scans of a reader */
    CLUSTER_MS = 1000,     /* minimum between two computations of the cluster line */
    OWN_CLUSTER_MS = 5000, /* likewise, of a reader's own */
};

struct view_inspect_stream {
    struct store *store;
    int64_t heartbeat_ms;
    atomic_uint watches, main_watches;

    pthread_mutex_t lock; /* protects the members below */
    struct buf cluster;   /* the current cluster line */
    uint64_t cluster_no;  /* its number; 0: none yet */
    int64_t cluster_ms;   /* when it was last computed */
};

/* What was sent to a reader for a slot of the ledger. */
struct sent {
    char *name; /* NULL: no node */
    uint64_t generation;
};

struct reader {
    struct view_inspect_stream *stream;
    struct view_auth_grant grant;
    bool main, synced;  /* synced: the initial state is complete */
    struct buf cluster; /* the last cluster line, of a reader with a scope */
    int64_t cluster_ms;
    struct sent *sent;
    size_t n_sent, sent_cap;
    uint32_t slot;              /* position of the scan; 0: none is running */
    uint64_t generation, began; /* of the ledger at the last and the current scan */
    uint64_t cluster_no;        /* of the last cluster line sent */
    int64_t next_ms, sent_ms;
};

struct view_inspect_stream *view_inspect_stream_new(struct store *store,
                                                    int64_t heartbeat_ms)
{
    struct view_inspect_stream *s = xcalloc(1, sizeof *s);
    s->store = store;
    s->heartbeat_ms = heartbeat_ms;
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

void view_inspect_stream_free(struct view_inspect_stream *s)
{
    if (!s)
        return;
    buf_fini(&s->cluster);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static struct sent *sent_at(struct reader *r, uint32_t slot)
{
    MEM_GROW(r->sent, r->sent_cap, slot + 1);
    while (r->n_sent <= slot)
        r->sent[r->n_sent++] = (struct sent){0};
    return &r->sent[slot];
}

/* Not for a node that moved to another slot: it is sent from there. */
static void write_deleted(const struct ledger *l, struct sent *sent, struct buf *out)
{
    if (!ledger_node_find(l, span_of(sent->name))) {
        buf_adds(out, "{\"Node\":{\"name\":");
        buf_add_json(out, span_of(sent->name));
        buf_adds(out, "},\"Type\":\"DELETED\"}\n");
    }
    free(sent->name);
    *sent = (struct sent){0};
}

/* Writes the change of a slot. False: there is none. */
static bool write_slot(struct reader *r, const struct ledger *l, uint32_t slot,
                       struct buf *out)
{
    const struct ledger_node *node = ledger_node_at(l, slot);
    struct sent *sent = sent_at(r, slot);
    size_t before = out->n;
    if (sent->name && (!node || !span_eq(span_of(sent->name), node->name)))
        write_deleted(l, sent, out);
    if (node && (!sent->name || sent->generation != node->generation)) {
        if (!sent->name)
            sent->name = xmemdup0(node->name.p, node->name.n);
        sent->generation = node->generation;
        buf_adds(out, "{\"Node\":");
        view_inspect_write_node(l, node, r->grant.scope, out);
        buf_adds(out, ",\"Type\":\"SYNCED\"}\n");
    }
    return out->n != before;
}

/* Scans up to SLOTS_MAX nodes from r->slot on. True: the scan is complete. */
static bool scan(struct reader *r, struct buf *out)
{
    const struct ledger *l = core_ledger(store_read(r->stream->store));
    uint32_t slots = ledger_node_slots(l), end = slots, written = 0;
    if (r->slot == 0)
        r->began = ledger_generation(l);
    if (r->synced && r->began == r->generation)
        r->slot = end; /* nothing has changed */
    else if (slots - r->slot > SLOTS_MAX)
        end = r->slot + SLOTS_MAX;
    while (r->slot < end && written < NODES_MAX && out->n < CHUNK)
        written += write_slot(r, l, r->slot++, out);
    bool all = r->slot >= slots;
    store_read_end(r->stream->store);
    if (!all)
        return false;
    r->generation = r->began;
    r->slot = 0;
    return true;
}

/* Computes the cluster line, unless that was done less than CLUSTER_MS ago. */
static void refresh_cluster(struct view_inspect_stream *s, int64_t now_ms)
{
    cleanup_buf struct buf text = {0};
    pthread_mutex_lock(&s->lock);
    bool due = !s->cluster_no || now_ms - s->cluster_ms >= CLUSTER_MS;
    s->cluster_ms = due ? now_ms : s->cluster_ms;
    pthread_mutex_unlock(&s->lock);
    if (!due)
        return;
    buf_adds(&text, "{\"Cluster\":{");
    view_inspect_write_cluster(s->store, NULL, &text);
    buf_adds(&text, "},\"Type\":\"SYNCED\"}\n");
    pthread_mutex_lock(&s->lock);
    if (!span_eq(buf_span(&text), buf_span(&s->cluster))) {
        struct buf old = s->cluster;
        s->cluster = text;
        text = old;
        s->cluster_no++;
    }
    pthread_mutex_unlock(&s->lock);
}

static void write_own_cluster(struct reader *r, int64_t now_ms, struct buf *out)
{
    if (r->cluster.n && now_ms - r->cluster_ms < OWN_CLUSTER_MS)
        return;
    cleanup_buf struct buf text = {0};
    r->cluster_ms = now_ms;
    buf_adds(&text, "{\"Cluster\":{");
    view_inspect_write_cluster(r->stream->store, r->grant.scope, &text);
    buf_adds(&text, "},\"Type\":\"SYNCED\"}\n");
    if (span_eq(buf_span(&text), buf_span(&r->cluster)))
        return;
    buf_clear(&r->cluster);
    buf_add_span(&r->cluster, buf_span(&text));
    buf_add_span(out, buf_span(&text));
}

static void write_cluster(struct reader *r, int64_t now_ms, struct buf *out)
{
    struct view_inspect_stream *s = r->stream;
    if (r->grant.scope) {
        write_own_cluster(r, now_ms, out);
        return;
    }
    refresh_cluster(s, now_ms);
    pthread_mutex_lock(&s->lock);
    if (r->cluster_no != s->cluster_no) {
        r->cluster_no = s->cluster_no;
        buf_add_span(out, buf_span(&s->cluster));
    }
    pthread_mutex_unlock(&s->lock);
}

static void reader_open(void *ctx, struct httpd_waker *waker)
{
    (void)ctx, (void)waker; /* the server's periodic poll is enough */
}

/* False: the client may watch no longer. With another scope, everything is sent again. */
static bool renew(struct reader *r)
{
    enum view_auth_grant_state state = view_auth_grant_renew(&r->grant);
    if (state == GRANT_CHANGED) {
        for (size_t i = 0; i < r->n_sent; i++)
            r->sent[i].generation = UINT64_MAX;
        r->generation = UINT64_MAX;
        r->slot = 0; /* a scan that is running has sent nodes with the old scope */
        r->cluster_no = 0;
        buf_clear(&r->cluster);
    }
    return state != GRANT_ENDED;
}

static enum httpd_stream_result reader_fill(void *ctx, struct buf *out)
{
    struct reader *r = ctx;
    int64_t now_ms = clock_mono_ms();
    if (!renew(r))
        return HTTPD_STREAM_END;
    if (now_ms < r->next_ms)
        return HTTPD_STREAM_WAIT;
    bool all = false;
    while (!all && out->n < CHUNK)
        all = scan(r, out);
    if (all) {
        r->next_ms = now_ms + ROUND_MS;
        write_cluster(r, now_ms, out);
        bool quiet = !out->n && r->stream->heartbeat_ms &&
                     now_ms - r->sent_ms >= r->stream->heartbeat_ms;
        if (!r->synced || quiet)
            buf_addc(out, '\n');
        r->synced = true;
    }
    if (!out->n)
        return HTTPD_STREAM_WAIT;
    r->sent_ms = now_ms;
    return HTTPD_STREAM_MORE;
}

static void reader_close(void *ctx)
{
    struct reader *r = ctx;
    atomic_fetch_sub(&r->stream->watches, 1);
    if (r->main)
        atomic_fetch_sub(&r->stream->main_watches, 1);
    for (size_t i = 0; i < r->n_sent; i++)
        free(r->sent[i].name);
    free(r->sent);
    buf_fini(&r->cluster);
    view_auth_grant_fini(&r->grant);
    free(r);
}

static const struct httpd_stream reader_stream = {reader_open, reader_fill, reader_close};

static bool is_ready(struct view_inspect_stream *s, struct httpd_reply *reply)
{
    struct err err = {0};
    int rc = core_ready(store_read(s->store), store_now(), &err);
    store_read_end(s->store);
    if (rc == 0)
        return true;
    httpd_fail(reply, 503, "%s", err.msg);
    return false;
}

/* Counts one more, up to the limit. */
static bool enter(atomic_uint *count, unsigned most)
{
    if (atomic_fetch_add(count, 1) < most)
        return true;
    atomic_fetch_sub(count, 1);
    return false;
}

static void watch(struct view_inspect_stream *s, bool main, struct view_auth_grant *grant,
                  struct httpd_reply *reply)
{
    if (!is_ready(s, reply))
        return;
    bool here = !main || enter(&s->main_watches, VIEW_INSPECT_STREAM_MAIN_WATCHES);
    if (!here || !enter(&s->watches, VIEW_INSPECT_STREAM_WATCHES)) {
        if (main && here)
            atomic_fetch_sub(&s->main_watches, 1);
        httpd_fail(reply, 503, "too many watches: %d are open%s",
                   here ? VIEW_INSPECT_STREAM_WATCHES : VIEW_INSPECT_STREAM_MAIN_WATCHES,
                   here ? "" : " on this port; use --observe-port");
        return;
    }
    struct reader *r = xcalloc(1, sizeof *r);
    r->stream = s;
    r->main = main;
    r->grant = *grant;
    *grant = (struct view_auth_grant){0};
    reply->stream = &reader_stream;
    reply->stream_ctx = r;
}

void view_inspect_stream_watch(struct view_inspect_stream *s, bool main,
                               struct view_auth_grant *grant, struct httpd_reply *reply)
{
    watch(s, main, grant, reply);
    view_auth_grant_fini(grant);
}
