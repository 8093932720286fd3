/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/serve_priv.h"
#include "view/changes.h"
#include "view/inspect.h"

enum {
    CHUNK = 16 * 1024, /* bytes written at a time */
    ROUND_MS = 1000,   /* minimum between two scans of a reader */
    HEARTBEAT_MS = 15 * 1000,
};

struct reader {
    struct view_source source;
    struct view_changes *changes;
    struct buf state; /* of the last line about the cluster */
    int64_t next_ms, sent_ms;
    bool synced; /* the initial state is complete */
};

static void reader_open(void *ctx, struct httpd_waker *waker)
{
    (void)ctx, (void)waker; /* the server's periodic poll is enough */
}

/* The reasons of pending pods take a scan of all nodes for each request. */
static void write_cluster(struct reader *r, struct buf *out)
{
    struct buf state = {0};
    view_inspect_state(&r->source, &state);
    if (!span_eq(buf_span(&state), buf_span(&r->state))) {
        buf_adds(out, "{\"Cluster\":{");
        view_inspect_write_cluster(&r->source, out);
        buf_adds(out, "},\"Type\":\"SYNCED\"}\n");
    }
    buf_fini(&r->state);
    r->state = state;
}

static enum httpd_stream_result reader_fill(void *ctx, struct buf *out)
{
    struct reader *r = ctx;
    int64_t now_ms = clock_mono_ms();
    if (now_ms < r->next_ms)
        return HTTPD_STREAM_WAIT;
    if (view_changes_write(r->changes, CHUNK, out)) {
        r->next_ms = now_ms + ROUND_MS;
        write_cluster(r, out);
        if (!r->synced || (!out->n && now_ms - r->sent_ms >= HEARTBEAT_MS))
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
    view_changes_free(r->changes);
    buf_fini(&r->state);
    free(r);
}

void serve_stream(const struct view_source *source, struct httpd_reply *reply)
{
    static const struct httpd_stream stream = {
        .open = reader_open, .fill = reader_fill, .close = reader_close};
    struct reader *r = xcalloc(1, sizeof *r);
    r->source = *source;
    r->changes = view_changes_new(source);
    reply->stream = &stream;
    reply->stream_ctx = r;
}
