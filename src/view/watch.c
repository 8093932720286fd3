/* SPDX-License-Identifier: Apache-2.0 */
#include "view/watch.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/jwrite.h"
#include "base/mem.h"

enum {
    GONE_MAX = 16384,  /* deletions that each cache remembers */
    OBJECTS_MAX = 128, /* rendered under one lock, and the rest of a node ... */
    SLOTS_MAX = 1024,  /* ... and slots skipped */
    FOLLOW_MS = 100,   /* watches that are read in that time share a pass, ... */
    TEXT_MS = 1000,    /* ... and a text */
    /* A port for many streams has one thread, which also answers /healthz: */
    RENDER_MS = 10, /* in the fill of one reader, and ... */
    PAUSE_MS = 2,   /* ... then in none */
};

/* What a slot of the ledger has in the cache. */
struct shown_node {
    uint64_t generation; /* of the node, when it was rendered */
    struct watch_cache_owner objects;
};

struct view_watch {
    struct view_watch_config conf;

    pthread_mutex_t lock; /* protects the members below */
    struct watch_cache *cache;
    unsigned readers;
    int64_t left_ms; /* when the last one ended */
    /* Passes over the ledger bring the cache up to it, one after the other. */
    uint64_t pass;       /* number of the last one */
    int64_t began_ms;    /* ... when it began */
    uint64_t generation; /* of the ledger then */
    bool running;        /* it has not ended ... */
    uint32_t slot;       /* ... and goes on here, ... */
    int64_t next_ms;     /* not before */
    uint64_t ended; /* number of the last one that has ended; 0: the cache is empty */
    struct shown_node **shown; /* by slot of the ledger; each owned */
    size_t n_shown, shown_cap;
    struct buf state; /* of the ledger, of which the text is; empty: there is none */
    int64_t text_ms;  /* when that was */
};

/* -- from the ledger to the cache -- */

/* Brings a slot of the cache up to its node, which may be NULL. Returns how many objects were
 * rendered. */
static size_t follow_node(struct view_watch *v, uint32_t slot, const struct ledger *l)
{
    const struct ledger_node *node = ledger_node_at(l, slot);
    MEM_GROW(v->shown, v->shown_cap, slot + 1);
    while (v->n_shown <= slot)
        v->shown[v->n_shown++] = xcalloc(1, sizeof **v->shown);
    struct shown_node *shown = v->shown[slot];
    if (node ? node->generation == shown->generation : !shown->objects.first)
        return 0;
    size_t n = 1;
    if (node) {
        shown->generation = node->generation;
        n = v->conf.kind->put_node(v->conf.ctx, v->cache, &shown->objects, l, node);
    }
    watch_cache_sweep(v->cache, &shown->objects);
    return n;
}

/* Continues the pass, or begins the next one. */
static void follow(struct view_watch *v)
{
    const struct view_source *source = v->conf.source;
    int64_t now_ms = clock_mono_ms(), until_ms = now_ms + RENDER_MS;
    if (now_ms < v->next_ms)
        return;
    if (!v->running) {
        v->pass++;
        v->began_ms = now_ms;
        v->slot = 0;
    }
    do {
        const struct ledger *l = core_ledger(source->read(source->ctx));
        uint32_t slots = v->conf.kind->put_node ? ledger_node_slots(l) : 0;
        if (v->slot == 0 && v->ended && v->generation == ledger_generation(l))
            slots = 0;
        else if (v->slot == 0)
            v->generation = ledger_generation(l);
        size_t end = (size_t)v->slot + SLOTS_MAX;
        for (size_t n = 0; v->slot < slots && v->slot < end && n < OBJECTS_MAX; v->slot++)
            n += follow_node(v, v->slot, l);
        source->read_end(source->ctx);
        v->running = v->slot < slots;
    } while (v->running && clock_mono_ms() < until_ms);
    if (!v->running)
        v->ended = v->pass;
    v->next_ms = v->running ? clock_mono_ms() + PAUSE_MS : 0;
}

/* Renders the text if the state of the ledger is another than `shared_ms` ago. */
static void follow_text(struct view_watch *v, int64_t shared_ms)
{
    int64_t now_ms = clock_mono_ms();
    cleanup_buf struct buf state = {0}, text = {0};
    if (!v->conf.kind->write_text || (v->state.n && now_ms - v->text_ms < shared_ms))
        return;
    v->text_ms = now_ms;
    view_inspect_state(v->conf.source, &state);
    if (span_eq(buf_span(&state), buf_span(&v->state)))
        return;
    v->conf.kind->write_text(v->conf.ctx, &text);
    watch_cache_set_text(v->cache, buf_span(&text));
    buf_set(&v->state, buf_span(&state));
}

/* The cache of 40,000 pods takes 50 MB, and most clusters have no reader. */
static void drop_cache(struct view_watch *v)
{
    watch_cache_clear(v->cache); /* resourceVersions keep rising */
    while (v->n_shown)
        free(v->shown[--v->n_shown]);
    free(steal(&v->shown));
    v->shown_cap = 0;
    v->ended = 0;
    v->running = false;
    buf_fini(&v->state);
}

void view_watch_trim(struct view_watch *v)
{
    if (pthread_mutex_trylock(&v->lock))
        return; /* it is being read */
    bool used = v->ended || v->running;
    if (used && !v->readers && clock_mono_ms() - v->left_ms > v->conf.idle_ms)
        drop_cache(v);
    pthread_mutex_unlock(&v->lock);
}

bool view_watch_is_filled(struct view_watch *v)
{
    pthread_mutex_lock(&v->lock);
    bool filled = v->ended;
    pthread_mutex_unlock(&v->lock);
    return filled;
}

struct view_watch *view_watch_new(const struct view_watch_config *config)
{
    struct view_watch *v = xcalloc(1, sizeof *v);
    v->conf = *config;
    v->cache = watch_cache_new(&config->kind->words, GONE_MAX, config->budget);
    pthread_mutex_init(&v->lock, NULL);
    return v;
}

void view_watch_free(struct view_watch *v)
{
    if (!v)
        return;
    drop_cache(v);
    watch_cache_free(v->cache);
    pthread_mutex_destroy(&v->lock);
    free(v);
}

/* -- lists and watches -- */

struct reader {
    struct view_watch *v;
    bool main, watch;
    int64_t end_ms, next_ms, sent_ms;
    struct watch_cache_reader at;
    uint64_t after; /* the number of a pass; it gets the ledger of a later one */
    char *
        warning; /* the ledger was not current when it began; NULL: it was, or no matter */
};

/* Brings the cache up to the ledger, for some time. False: it does not show yet what the reader
 * needs. */
static bool is_current(const struct reader *r)
{
    struct view_watch *v = r->v;
    bool due = r->watch && clock_mono_ms() - v->began_ms >= FOLLOW_MS;
    if (v->running || due || v->ended <= r->after)
        follow(v);
    return v->ended > r->after;
}

/* The value of a header Warning. New; NULL: the ledger is current, or nobody is warned. */
static char *stale_warning(const struct view_watch *v)
{
    const struct view_source *source = v->conf.source;
    struct err why;
    int64_t since_ns;
    struct buf value = {0};
    cleanup_buf struct buf text = {0};
    if (!v->conf.warns)
        return NULL;
    int rc = core_current(source->read(source->ctx), step_now(), &since_ns, &why);
    source->read_end(source->ctx);
    if (rc == 0)
        return NULL;
    buf_adds(&text, "as of ");
    clock_format_s(&text, since_ns / 1000000000);
    buf_printf(&text, ": %s", why.msg);
    buf_adds(&value, "299 - ");
    buf_add_json(&value, buf_span(&text)); /* as a quoted-string */
    return value.p;
}

static enum watch_cache_result read_cache(struct reader *r, struct buf *out)
{
    struct view_watch *v = r->v;
    enum watch_cache_result got = WATCH_CACHE_MORE;
    bool begins = r->watch && !r->at.synced;
    size_t max = out->n + (begins ? VIEW_WATCH_CHUNK / 2 : VIEW_WATCH_CHUNK);
    pthread_mutex_lock(&v->lock);
    if (!r->watch && (r->at.begun || is_current(r))) {
        if (!r->at.begun)
            follow_text(v, 0);
        got = watch_cache_list(v->cache, &r->at, max, out);
    } else if (r->watch && is_current(r)) {
        follow_text(v, TEXT_MS);
        got = watch_cache_read(v->cache, &r->at, max, out);
        if (v->running && got == WATCH_CACHE_ALL)
            got = WATCH_CACHE_MORE;
    }
    pthread_mutex_unlock(&v->lock);
    return got;
}

static enum httpd_stream_result on_fill(void *ctx, struct httpd_open_stream *stream,
                                        struct buf *out)
{
    struct reader *r = ctx;
    int64_t now_ms = clock_mono_ms(), heartbeat_ms = r->v->conf.heartbeat_ms;
    (void)stream; /* the server's poll, once a second, is enough */
    if (r->watch && now_ms >= r->end_ms)
        return HTTPD_STREAM_END;
    if (now_ms < r->next_ms)
        return HTTPD_STREAM_WAIT;
    if (r->watch && !r->warning && (r->warning = stale_warning(r->v)))
        return HTTPD_STREAM_END; /* the next one has the header */
    enum watch_cache_result got = read_cache(r, out);
    bool waits = r->watch && got == WATCH_CACHE_ALL;
    if (waits)
        r->next_ms = now_ms + VIEW_WATCH_PAUSE_MS;
    if (waits && !out->n && heartbeat_ms && now_ms - r->sent_ms >= heartbeat_ms)
        buf_addc(out, '\n');
    if (out->n)
        r->sent_ms = now_ms;
    return got == WATCH_CACHE_CUT                         ? HTTPD_STREAM_ABORT
           : got == WATCH_CACHE_MORE || (waits && out->n) ? HTTPD_STREAM_MORE
           : waits                                        ? HTTPD_STREAM_WAIT
                                                          : HTTPD_STREAM_END;
}

static void leave_limit(const struct reader *r)
{
    struct view_watch_limit *limit = r->watch ? r->v->conf.watches : r->v->conf.lists;
    atomic_fetch_sub(&limit->open, 1);
    if (r->main)
        atomic_fetch_sub(&limit->main_open, 1);
}

static void on_close(void *ctx)
{
    struct reader *r = ctx;
    struct view_watch *v = r->v;
    pthread_mutex_lock(&v->lock);
    watch_cache_reader_fini(v->cache, &r->at);
    v->readers--;
    v->left_ms = clock_mono_ms();
    pthread_mutex_unlock(&v->lock);
    leave_limit(r);
    free(r->warning);
    free(r);
}

void view_watch_answer(struct view_watch *v, bool main, bool watch, int64_t end_ms,
                       struct httpd_reply *reply)
{
    static const struct httpd_stream stream = {.fill = on_fill, .close = on_close};
    struct view_watch_limit *limit = watch ? v->conf.watches : v->conf.lists;
    struct reader reader = {.v = v, .main = main, .watch = watch, .end_ms = end_ms}, *r;
    bool fits = atomic_fetch_add(&limit->open, 1) < limit->most,
         here = !main || atomic_fetch_add(&limit->main_open, 1) < limit->main_most;
    if (!fits || !here) {
        leave_limit(&reader);
        httpd_fail(reply, 503, "too many %s: %u are open%s", limit->what,
                   here ? limit->most : limit->main_most,
                   here ? "; retry later" : " on this port; use --observe-port");
        return;
    }
    r = xcalloc(1, sizeof *r);
    *r = reader;
    r->sent_ms = clock_mono_ms();
    watch_cache_reader_init(&r->at);
    reply->stream = &stream;
    reply->stream_ctx = r;
    reply->stream_finite = !watch;
    if ((r->warning = stale_warning(v)))
        httpd_add_header(reply, "Warning", r->warning);
    pthread_mutex_lock(&v->lock);
    /* Many watches begin together when a server starts: they share a pass. */
    r->after = v->pass - (watch && r->sent_ms - v->began_ms < FOLLOW_MS && v->pass);
    v->readers++;
    pthread_mutex_unlock(&v->lock);
}

/* -- inspect -- */

static size_t put_inspected(void *ctx, struct watch_cache *cache,
                            struct watch_cache_owner *owner, const struct ledger *l,
                            const struct ledger_node *node)
{
    cleanup_buf struct buf json = {0};
    (void)ctx;
    view_inspect_write_node(&(struct jwrite){.out = &json}, l, node);
    watch_cache_put(
        cache, owner,
        &(struct watch_cache_state){.name = node->name, .json = buf_span(&json)});
    return 1;
}

static void write_inspected(void *ctx, struct buf *out)
{
    view_inspect_write_cluster(ctx, out);
}

const struct view_watch_kind view_watch_inspect = {
    .words = {.object = "{\"Node\":",
              .gone = "{\"Node\":{\"name\":",
              .gone_end = "},\"Type\":\"DELETED\"}\n",
              .text = "{\"Cluster\":{",
              .text_end = "},\"Type\":\"SYNCED\"}\n",
              .list = "{\"nodes\":[",
              .list_text = "],",
              .list_end = "}"},
    .put_node = put_inspected,
    .write_text = write_inspected,
};
