/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include <assert.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/mem.h"

/* The objects of one resource with their history, by key and by resourceVersion. */

void sim_store_init(struct store *s, const struct kind *kind, size_t max_events,
                    size_t max_bytes)
{
    *s = (struct store){.kind = kind, .max_events = max_events, .max_bytes = max_bytes};
}

static struct sim_event *slot(const struct store *s, uint64_t seq)
{
    return &s->ring[seq & (s->ring_cap - 1)];
}

static void drop_first(struct store *s)
{
    struct sim_event *e = slot(s, s->first_seq++);
    s->floor_rv = e->rv;
    if (e->prev)
        s->bytes -= e->prev->bytes.n;
    sim_object_unref(e->now);
    sim_object_unref(e->prev);
}

void sim_store_fini(struct store *s)
{
    while (s->first_seq < s->next_seq)
        drop_first(s);
    for (size_t i = 0; i < s->n; i++)
        sim_object_unref(s->items[i]);
    free(s->items);
    free(s->ring);
    *s = (struct store){0};
}

size_t sim_store_lower(const struct store *s, struct span key)
{
    return ARRAY_LOWER_BOUND(o, s->items, s->n, span_cmp((*o)->key, key) < 0);
}

static bool is_at(const struct store *s, size_t i, struct span key)
{
    return i < s->n && span_eq(s->items[i]->key, key);
}

struct object *sim_store_find(const struct store *s, struct span key)
{
    size_t i = sim_store_lower(s, key);
    return is_at(s, i, key) ? s->items[i] : NULL;
}

static void grow_ring(struct store *s)
{
    size_t cap = s->ring_cap ? s->ring_cap * 2 : 64;
    struct sim_event *ring = xcalloc(cap, sizeof *ring);
    for (uint64_t seq = s->first_seq; seq < s->next_seq; seq++)
        ring[seq & (cap - 1)] = *slot(s, seq);
    free(s->ring);
    s->ring = ring;
    s->ring_cap = cap;
}

/* Takes prev, not now. */
static void record(struct store *s, enum change change, struct object *now,
                   struct object *prev)
{
    if (s->next_seq - s->first_seq == s->max_events)
        drop_first(s);
    if (s->next_seq - s->first_seq == s->ring_cap)
        grow_ring(s);
    *slot(s, s->next_seq++) =
        (struct sim_event){change, now->rv, sim_object_ref(now), prev};
    if (prev)
        s->bytes += prev->bytes.n;
    while (s->bytes > s->max_bytes && s->first_seq < s->next_seq)
        drop_first(s);
}

void sim_store_put(struct store *s, struct object *o)
{
    size_t i = sim_store_lower(s, o->key);
    if (is_at(s, i, o->key)) {
        struct object *prev = s->items[i];
        s->items[i] = o;
        record(s, CHANGE_MODIFIED, o, prev);
        return;
    }
    *ARRAY_INSERT(s->items, s->n, s->cap, i) = o;
    record(s, CHANGE_ADDED, o, NULL);
}

void sim_store_remove(struct store *s, struct object *last)
{
    size_t i = sim_store_lower(s, last->key);
    assert(is_at(s, i, last->key));
    struct object *prev = s->items[i];
    ARRAY_REMOVE(s->items, s->n, i);
    record(s, CHANGE_DELETED, last, prev);
    sim_object_unref(last);
}

const struct sim_event *sim_store_event(const struct store *s, uint64_t seq)
{
    assert(seq >= s->first_seq && seq < s->next_seq);
    return slot(s, seq);
}

uint64_t sim_store_seq_after(const struct store *s, uint64_t rv)
{
    uint64_t lo = s->first_seq, hi = s->next_seq;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        if (slot(s, mid)->rv <= rv)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

void sim_store_compact(struct store *s, uint64_t rv)
{
    while (s->first_seq < s->next_seq)
        drop_first(s);
    s->floor_rv = rv;
}

/* The changes since a version: for each key, in key order, the first event after the
 * version. The event's `prev` is the state at the version. */
struct undo {
    const struct sim_event **events;
    size_t n;
    struct map by_key;
};

static int by_key(const void *a, const void *b)
{
    const struct sim_event *const *x = a, *const *y = b;
    return span_cmp((*x)->now->key, (*y)->now->key);
}

static void undo_init(struct undo *u, const struct store *s, uint64_t rv,
                      struct span from)
{
    *u = (struct undo){0};
    map_init(&u->by_key, 0, offsetof(struct object, key));
    uint64_t first = sim_store_seq_after(s, rv);
    if (first < s->next_seq)
        u->events = xcalloc(s->next_seq - first, sizeof *u->events);
    for (uint64_t seq = first; seq < s->next_seq; seq++) {
        struct sim_event *e = slot(s, seq);
        if (span_cmp(e->now->key, from) < 0 || map_get(&u->by_key, e->now->key))
            continue;
        map_set(&u->by_key, e->now);
        u->events[u->n++] = e;
    }
    if (u->n)
        qsort(u->events, u->n, sizeof *u->events, by_key);
}

static void undo_fini(struct undo *u)
{
    free(u->events);
    map_fini(&u->by_key);
}

void sim_store_walk(const struct store *s, uint64_t rv, struct span from,
                    store_each_fn each, void *ctx)
{
    struct undo u;
    undo_init(&u, s, rv, from);
    size_t i = sim_store_lower(s, from), k = 0;
    bool go_on = true;
    while (go_on && (i < s->n || k < u.n)) {
        bool old = k < u.n &&
                   (i == s->n || span_cmp(u.events[k]->now->key, s->items[i]->key) <= 0);
        struct object *o = old ? u.events[k++]->prev : s->items[i];
        if (!old && u.n && map_get(&u.by_key, o->key))
            o = NULL; /* newer than the version; u.events has the old state */
        i += !old;
        if (o)
            go_on = each(ctx, o);
    }
    undo_fini(&u);
}
