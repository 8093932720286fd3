/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/inspect_stream.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "extender/seats.h"
#include "view/changes.h"
#include "view/inspect.h"

enum {
    CHUNK = 16 * 1024, /* bytes written at a time */
    ROUND_MS = 500,    /* minimum between two scans of a reader */
    CLUSTER_MS = 1000, /* minimum between two computations of the cluster line */
};

struct inspect_stream {
    struct core_driver *driver;
    struct view_source source; /* the driver */
    int64_t heartbeat_ms;
    struct seats watches;

    pthread_mutex_t lock; /* protects the members below */
    struct buf cluster;   /* the current cluster line */
    uint64_t cluster_no;  /* its number; 0: none yet */
    int64_t cluster_ms;   /* when it was last computed */
};

struct reader {
    struct inspect_stream *stream;
    int64_t end_ms;
    bool main, synced; /* synced: the initial state is complete */
    struct view_changes *changes;
    uint64_t cluster_no; /* of the last cluster line sent */
    int64_t next_ms, sent_ms;
};

struct inspect_stream *inspect_stream_new(struct core_driver *driver,
                                          int64_t heartbeat_ms)
{
    struct inspect_stream *s = xcalloc(1, sizeof *s);
    s->driver = driver;
    s->source = core_driver_source(driver);
    s->heartbeat_ms = heartbeat_ms;
    s->watches = (struct seats){.what = "watches",
                                .most = INSPECT_STREAM_WATCHES,
                                .main_most = INSPECT_STREAM_MAIN_WATCHES};
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

void inspect_stream_free(struct inspect_stream *s)
{
    if (!s)
        return;
    buf_fini(&s->cluster);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* Appends the cluster line, if the reader has another one. One reader computes it again after
 * CLUSTER_MS, without the lock; the others have the last one meanwhile. */
static void write_cluster(struct reader *r, int64_t now_ms, struct buf *out)
{
    struct inspect_stream *s = r->stream;
    cleanup_buf struct buf text = {0};
    pthread_mutex_lock(&s->lock);
    if (!s->cluster_no || now_ms - s->cluster_ms >= CLUSTER_MS) {
        s->cluster_ms = now_ms;
        pthread_mutex_unlock(&s->lock);
        buf_adds(&text, "{\"Cluster\":{");
        view_inspect_write_cluster(&s->source, &text);
        buf_adds(&text, "},\"Type\":\"SYNCED\"}\n");
        pthread_mutex_lock(&s->lock);
        if (!span_eq(buf_span(&text), buf_span(&s->cluster))) {
            struct buf old = s->cluster;
            s->cluster = text;
            text = old;
            s->cluster_no++;
        }
    }
    if (r->cluster_no != s->cluster_no) {
        r->cluster_no = s->cluster_no;
        buf_add_span(out, buf_span(&s->cluster));
    }
    pthread_mutex_unlock(&s->lock);
}

static enum httpd_stream_result reader_fill(void *ctx, struct httpd_open_stream *stream,
                                            struct buf *out)
{
    struct reader *r = ctx;
    (void)stream; /* the server's periodic poll is enough */
    int64_t now_ms = clock_mono_ms();
    if (now_ms >= r->end_ms)
        return HTTPD_STREAM_END;
    if (now_ms < r->next_ms)
        return HTTPD_STREAM_WAIT;
    if (view_changes_write(r->changes, CHUNK, out)) {
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
    seats_give(&r->stream->watches, r->main);
    view_changes_free(r->changes);
    free(r);
}

static const struct httpd_stream reader_stream = {.fill = reader_fill,
                                                  .close = reader_close};

void inspect_stream_watch(struct inspect_stream *s, bool main, int64_t end_ms,
                          struct httpd_reply *reply)
{
    struct err err = {0};
    int rc = core_ready(core_driver_read(s->driver), core_driver_now(), &err);
    core_driver_read_end(s->driver);
    if (rc)
        httpd_fail(reply, 503, "%s", err.msg);
    if (rc || !seats_take(&s->watches, main, reply))
        return;
    struct reader *r = xcalloc(1, sizeof *r);
    *r = (struct reader){.stream = s,
                         .end_ms = end_ms,
                         .main = main,
                         .changes = view_changes_new(&s->source)};
    reply->stream = &reader_stream;
    reply->stream_ctx = r;
}
