/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/watch_cache.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/mem.h"

enum { REPORTED, RECOVERED, TRANSITION, TIMES }; /* in the order of their marks */

/* An object; or a deletion, which is only among the changes. */
struct watch_cache_object {
    struct watch_cache_place place;
    struct watch_cache *in;
    const struct watch_cache_owner *owner;
    struct watch_cache_object *next; /* of the owner */
    struct span name;                /* owned */
    char *json;                      /* owned; NULL: deleted */
    int64_t times[TIMES];            /* 0: unknown */
    bool healthy;
    bool put; /* since the owner's last run */
};

struct watch_cache {
    const char *key, *gone_tail;
    size_t max_gone, n_gone;
    uint64_t seq;                        /* of the last change */
    uint64_t forgotten;                  /* of the last deletion that was discarded */
    struct list changes;                 /* places, of objects by rising seq */
    struct watch_cache_object **objects; /* by name */
    size_t n, cap;
};

struct watch_cache *watch_cache_new(const char *key, const char *gone_tail,
                                    size_t max_gone)
{
    struct watch_cache *w = xcalloc(1, sizeof *w);
    w->key = key;
    w->gone_tail = gone_tail;
    w->max_gone = max_gone;
    list_init(&w->changes);
    return w;
}

static struct watch_cache_object *object_at(struct watch_cache_place *place)
{
    return (struct watch_cache_object *)place; /* its first member */
}

static void object_free(struct watch_cache_object *o)
{
    list_remove(&o->place.link);
    free((char *)o->name.p);
    free(o->json);
    free(o);
}

void watch_cache_clear(struct watch_cache *w)
{
    LIST_EACH(struct watch_cache_place, place, &w->changes, link)
    object_free(object_at(place));
    w->n = w->n_gone = 0;
}

void watch_cache_free(struct watch_cache *w)
{
    watch_cache_clear(w);
    free(w->objects);
    free(w);
}

/* Index of the first object of that name, or where it would be. */
static size_t index_of(const struct watch_cache *w, struct span name)
{
    return ARRAY_LOWER_BOUND(o, w->objects, w->n, span_cmp((*o)->name, name) < 0);
}

static void move_to_end(struct watch_cache_object *o)
{
    list_remove(&o->place.link);
    list_append(&o->in->changes, &o->place.link);
    o->place.seq = ++o->in->seq;
}

void watch_cache_put(struct watch_cache *w, struct watch_cache_owner *owner,
                     const struct watch_cache_state *state)
{
    struct watch_cache_object *o = NULL;
    size_t i = ARRAY_LOWER_BOUND(x, w->objects, w->n, /* behind its namesakes */
                                 span_cmp((*x)->name, state->name) <= 0);
    while (i > 0 && span_eq((o = w->objects[i - 1])->name, state->name) &&
           (o->put || o->owner != owner))
        i--;
    if (i == 0 || !span_eq(o->name, state->name)) {
        o = xcalloc(1, sizeof *o);
        list_init(&o->place.link);
        o->in = w;
        o->owner = owner;
        o->next = owner->first;
        owner->first = o;
        o->name = (struct span){xmemdup0(state->name.p, state->name.n), state->name.n};
        *ARRAY_INSERT(w->objects, w->n, w->cap, i) = o;
    }
    o->put = true;
    if (span_eq(span_of(o->json), state->json))
        return;
    if (!o->json || o->healthy != state->healthy) {
        o->healthy = state->healthy;
        o->times[TRANSITION] = state->now_s;
        if (o->healthy)
            o->times[RECOVERED] = state->now_s;
    }
    o->times[REPORTED] = state->reported_s;
    free(o->json);
    o->json = xmemdup0(state->json.p, state->json.n);
    move_to_end(o);
}

/* Forgets the oldest deletions. Half of the limit stays, so that the next time is far. */
static void forget_deletions(struct watch_cache *w)
{
    LIST_EACH(struct watch_cache_place, place, &w->changes, link)
    {
        if (!place->seq || object_at(place)->json)
            continue;
        if (w->n_gone <= w->max_gone / 2)
            return;
        w->n_gone--;
        w->forgotten = place->seq;
        object_free(object_at(place));
    }
}

/* Deletes an object that its owner has given up. */
static void delete_object(struct watch_cache_object *o)
{
    struct watch_cache *w = o->in;
    size_t first = index_of(w, o->name), i = first;
    while (w->objects[i] != o)
        i++;
    ARRAY_REMOVE(w->objects, w->n, i);
    free(steal(&o->json));
    move_to_end(o);
    for (i = first; i < w->n && span_eq(w->objects[i]->name, o->name); i++)
        move_to_end(w->objects[i]);
    if (++w->n_gone > w->max_gone)
        forget_deletions(w);
}

void watch_cache_sweep(struct watch_cache_owner *owner)
{
    for (struct watch_cache_object **at = &owner->first, *o; (o = *at);) {
        if (o->put) {
            o->put = false;
            at = &o->next;
        } else {
            *at = o->next;
            delete_object(o);
        }
    }
}

void watch_cache_write_time(struct buf *out, int64_t seconds)
{
    if (!seconds) {
        buf_adds(out, "null");
        return;
    }
    buf_addc(out, '"');
    clock_format_s(out, seconds);
    buf_addc(out, '"');
}

static void write_json(const struct watch_cache_object *o, struct buf *out)
{
    for (const char *p = o->json;; p++) {
        size_t n = strcspn(p, WATCH_CACHE_NUMBER WATCH_CACHE_REPORTED
                                  WATCH_CACHE_RECOVERED WATCH_CACHE_TRANSITION);
        buf_add(out, p, n);
        p += n;
        if (!*p)
            return;
        if (*p == *WATCH_CACHE_NUMBER)
            buf_add_i64(out, (int64_t)o->place.seq);
        else
            watch_cache_write_time(out, o->times[*p - *WATCH_CACHE_REPORTED]);
    }
}

static void write_line(const struct watch_cache_object *o, struct buf *out)
{
    buf_adds(out, "{\"");
    buf_adds(out, o->in->key);
    buf_adds(out, "\":");
    if (o->json) {
        write_json(o, out);
    } else {
        buf_adds(out, "{\"metadata\":{\"name\":");
        buf_add_json(out, o->name);
        buf_adds(out, o->in->gone_tail);
    }
    buf_adds(out, o->json ? ",\"Type\":\"SYNCED\"}\n" : ",\"Type\":\"DELETED\"}\n");
}

bool watch_cache_read(struct watch_cache *w, struct watch_cache_reader *r, size_t max,
                      struct buf *out)
{
    struct list *at = r->place.link.next;
    /* Deletions from before its start do not matter. */
    if (!r->begun || (w->forgotten > r->at && w->forgotten > r->base)) {
        if (r->begun)
            buf_adds(out, "{\"Type\":\"RESYNC\"}\n");
        r->begun = true;
        r->synced = false;
        r->base = w->seq;
        r->at = 0;
        at = w->changes.next;
    }
    for (; at != &w->changes && out->n < max; at = at->next) {
        struct watch_cache_place *place = LIST_ITEM(at, struct watch_cache_place, link);
        if (!place->seq)
            continue;
        if (!r->synced && place->seq > r->base)
            buf_addc(out, '\n');
        r->synced |= place->seq > r->base;
        r->at = place->seq;
        if (object_at(place)->json || r->synced)
            write_line(object_at(place), out);
    }
    if (at != &r->place.link) {
        list_remove(&r->place.link);
        list_insert(at, &r->place.link);
    }
    if (at != &w->changes)
        return false;
    if (!r->synced)
        buf_addc(out, '\n');
    r->synced = true;
    return true;
}

bool watch_cache_list(const struct watch_cache *w, struct buf *last, size_t max,
                      struct buf *out)
{
    size_t i = !last->n ? 0
                        : ARRAY_LOWER_BOUND(o, w->objects, w->n,
                                            span_cmp((*o)->name, buf_span(last)) <= 0);
    for (; i < w->n; i++) {
        const struct watch_cache_object *o = w->objects[i];
        if (out->n >= max && !span_eq(o->name, buf_span(last)))
            return false;
        if (last->n)
            buf_addc(out, ',');
        write_json(o, out);
        buf_set(last, o->name);
    }
    return true;
}
