/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"

/* Watches: initial events, history, bookmarks, 410. */

enum {
    BOOKMARK_MS = 60 * 1000,
    LAST_BOOKMARK_MS = 2000, /* before the end */
    MIN_TIMEOUT_S = 300,     /* if the client sets none: up to twice this value */
};

struct api_watch {
    struct api *api;
    size_t kind; /* index */
    struct list link;
    struct selector selector;
    struct object **initial; /* shared: the initial state, sent first */
    size_t n_initial, at_initial;
    uint64_t next_seq; /* position in the store's history */
    uint64_t after;    /* skip events up to this version */
    int64_t end_ms, bookmark_ms;
    bool bookmarks;
    bool last_bookmark_sent;
    bool expired; /* the history was discarded: deliver 410, then end */
    bool over;
    api_wake_fn wake;
    void *wake_ctx;
    bool woken;
};

/* -- opening -- */

static int read_times(struct call *c, struct api_watch *w)
{
    struct err err;
    int64_t seconds;
    if (sim_query_int(&c->query, "timeoutSeconds", 0, &seconds, &err))
        return sim_refuse(c, 400, "%s", err.msg);
    if (seconds <= 0)
        seconds = MIN_TIMEOUT_S + (int64_t)rng_below(&c->api->rng, MIN_TIMEOUT_S);
    if (seconds > INT32_MAX)
        seconds = INT32_MAX;
    w->end_ms = c->now_ms + seconds * 1000;
    w->bookmark_ms = c->now_ms + BOOKMARK_MS;
    w->bookmarks = sim_query_bool(&c->query, "allowWatchBookmarks");
    w->last_bookmark_sent =
        seconds * 1000 <= LAST_BOOKMARK_MS; /* too short for a bookmark */
    return 0;
}

/* Reads the resourceVersion from which the watch starts. */
static int read_version(struct call *c, struct api_watch *w)
{
    struct span text = sim_query_get(&c->query, "resourceVersion");
    int64_t rv = 0;
    if (text.p && (!span_i64(text, &rv) || rv < 0))
        return sim_refuse_unknown(c,
                                  "resourceVersion: Invalid value: \"%.*s\": "
                                  "strconv.ParseUint: parsing \"%.*s\": invalid syntax",
                                  SPAN_ARG(text), SPAN_ARG(text));
    if (rv == 0) {
        w->initial = sim_list_collect(c->store, &w->selector, c->api->rv, &w->n_initial);
        rv = (int64_t)c->api->rv;
    }
    w->after = (uint64_t)rv;
    w->expired = w->after < c->store->floor_rv;
    w->next_seq = sim_store_seq_after(c->store, w->after);
    return 0;
}

void sim_watch_handle(struct call *c)
{
    struct api_watch *w = xcalloc(1, sizeof *w);
    w->api = c->api;
    w->kind = sim_kind_index(c->route.kind);
    list_append(&c->api->watches[w->kind], &w->link);
    if (read_times(c, w) || sim_list_selector(c, &w->selector) || read_version(c, w)) {
        api_watch_free(w);
        return;
    }
    c->reply->status = 200;
    c->reply->watch = w;
}

void api_watch_free(struct api_watch *w)
{
    if (!w)
        return;
    list_remove(&w->link);
    for (size_t i = w->at_initial; i < w->n_initial; i++)
        sim_object_unref(w->initial[i]);
    free(w->initial);
    sim_selector_fini(&w->selector);
    free(w);
}

const char *api_watch_resource(const struct api_watch *w)
{
    return sim_kinds[w->kind].plural;
}

/* -- waking -- */

/* The change as this watch sees it; false: the watch does not deliver it. An object that
 * starts or stops matching the selectors is ADDED or DELETED. */
static bool seen_as(const struct api_watch *w, const struct sim_event *e,
                    enum change *change)
{
    bool before = e->prev && sim_selector_match(&w->selector, e->prev);
    bool after = e->change != CHANGE_DELETED && sim_selector_match(&w->selector, e->now);
    if (!before && !after)
        return false;
    *change = !before ? CHANGE_ADDED : !after ? CHANGE_DELETED : CHANGE_MODIFIED;
    return true;
}

void api_watch_on_ready(struct api_watch *w, api_wake_fn wake, void *ctx)
{
    w->wake = wake;
    w->wake_ctx = ctx;
}

void sim_watch_notify(struct api *api, size_t kind, const struct sim_event *e)
{
    enum change change;
    LIST_EACH(struct api_watch, w, &api->watches[kind], link)
    {
        if (!w->wake || w->woken || !seen_as(w, e, &change))
            continue;
        w->woken = true;
        w->wake(w->wake_ctx);
    }
}

/* -- delivery -- */

static void add_event(enum change change, const struct object *o, uint64_t rv,
                      struct buf *out)
{
    static const char *const names[] = {"ADDED", "MODIFIED", "DELETED"};
    buf_printf(out, "{\"type\":\"%s\",\"object\":", names[change]);
    sim_object_add_bytes(o, rv, out);
    buf_adds(out, "}\n");
}

static void add_expired(struct api_watch *w, struct buf *out)
{
    cleanup_buf struct buf text = {0};
    buf_printf(&text, "too old resource version: %llu (%llu)",
               (unsigned long long)w->after,
               (unsigned long long)w->api->stores[w->kind].floor_rv);
    buf_adds(out, "{\"type\":\"ERROR\",\"object\":");
    sim_status_write(out, 410, "Expired", text.p, NULL);
    out->n--; /* without the newline */
    buf_adds(out, "}\n");
    w->over = true;
}

static void add_bookmark(struct api_watch *w, struct buf *out)
{
    const struct kind *kind = &sim_kinds[w->kind];
    buf_printf(out,
               "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"%s\",\"apiVersion\":\"",
               kind->kind);
    sim_kind_add_group_version(kind, out);
    buf_printf(out,
               "\",\"metadata\":{\"resourceVersion\":\"%llu\","
               "\"creationTimestamp\":null}}}\n",
               (unsigned long long)(w->api->rv > w->after ? w->api->rv : w->after));
}

static bool next_initial(struct api_watch *w, struct buf *out)
{
    if (w->at_initial == w->n_initial)
        return false;
    struct object *o = w->initial[w->at_initial++];
    add_event(CHANGE_ADDED, o, o->rv, out);
    sim_object_unref(o);
    return true;
}

static bool next_change(struct api_watch *w, struct buf *out)
{
    const struct store *store = &w->api->stores[w->kind];
    enum change change;
    while (w->next_seq < store->next_seq) {
        const struct sim_event *e = sim_store_event(store, w->next_seq++);
        if (e->rv <= w->after || !seen_as(w, e, &change))
            continue;
        /* An object that stops matching is sent in the last state that matched. */
        bool left = change == CHANGE_DELETED && e->change != CHANGE_DELETED;
        add_event(change, left ? e->prev : e->now, e->rv, out);
        return true;
    }
    return false;
}

static bool next_bookmark(struct api_watch *w, int64_t now_ms, struct buf *out)
{
    bool last = now_ms >= w->end_ms - LAST_BOOKMARK_MS && !w->last_bookmark_sent;
    if (!w->bookmarks || (now_ms < w->bookmark_ms && !last))
        return false;
    w->last_bookmark_sent |= last;
    w->bookmark_ms = now_ms + BOOKMARK_MS;
    add_bookmark(w, out);
    return true;
}

int api_watch_next(struct api_watch *w, int64_t now_ms, struct buf *out)
{
    w->woken = false;
    if (w->over)
        return -1;
    if (next_initial(w, out))
        return 1;
    /* A reader that is slower than the history expires must start again. */
    w->expired |= w->next_seq < w->api->stores[w->kind].first_seq;
    if (w->expired) {
        add_expired(w, out);
        return 1;
    }
    if (next_change(w, out) || next_bookmark(w, now_ms, out))
        return 1;
    if (now_ms < w->end_ms)
        return 0;
    w->over = true;
    return -1;
}
