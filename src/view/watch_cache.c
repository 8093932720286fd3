/* SPDX-License-Identifier: Apache-2.0 */
#include "view/watch_cache.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/mem.h"

enum { REPORTED, RECOVERED, TRANSITION, TIMES }; /* in the order of their marks */

/* A state of an object, or of the text. */
struct watch_cache_bytes {
    struct list link;    /* among those that are kept for their readers */
    struct list readers; /* to which it is being sent */
    uint64_t seq;
    int64_t times[TIMES]; /* 0: unknown */
    bool marked;          /* marks in it stand for the number and the times */
    size_t n;
    char p[];
};

/* An object, or the text; or a deletion, which is only among the changes. */
struct watch_cache_object {
    struct watch_cache_place place;
    const struct watch_cache_owner *owner;
    struct watch_cache_object *next; /* of the owner */
    struct span name;                /* owned; empty: the text */
    struct watch_cache_bytes *bytes; /* owned; NULL: deleted */
    bool healthy;
    bool put; /* since the owner's last run */
};

struct watch_cache {
    const struct watch_cache_words *words;
    struct budget *budget; /* of `kept` */
    struct list kept;      /* states of the past, by age */
    size_t max_gone, n_gone;
    uint64_t seq;                        /* of the last change */
    uint64_t forgotten;                  /* of the last deletion that was discarded */
    struct list changes;                 /* places, of objects by rising seq */
    struct watch_cache_object **objects; /* by name */
    size_t n, cap;
    struct watch_cache_object *text; /* NULL: none */
};

struct watch_cache *watch_cache_new(const struct watch_cache_words *words,
                                    size_t max_gone, struct budget *budget)
{
    struct watch_cache *w = xcalloc(1, sizeof *w);
    w->words = words;
    w->max_gone = max_gone;
    w->budget = budget;
    list_init(&w->kept);
    list_init(&w->changes);
    return w;
}

static struct watch_cache_object *object_at(struct watch_cache_place *place)
{
    return (struct watch_cache_object *)place; /* its first member */
}

/* -- states -- */

/* `old`: the state before, whose times go on; NULL: none. */
static struct watch_cache_bytes *bytes_new(struct span s,
                                           const struct watch_cache_bytes *old)
{
    struct watch_cache_bytes *b = xmalloc(sizeof *b + s.n);
    char *at = b->p;
    *b = (struct watch_cache_bytes){.n = s.n};
    if (old)
        memcpy(b->times, old->times, sizeof b->times);
    list_init(&b->link);
    list_init(&b->readers);
    span_put(s, &at);
    return b;
}

static void bytes_free(struct watch_cache *w, struct watch_cache_bytes *b)
{
    LIST_EACH(struct watch_cache_reader, r, &b->readers, link)
    {
        r->cut = true;
        r->bytes = NULL;
        list_remove(&r->link);
    }
    if (!list_is_empty(&b->link)) {
        list_remove(&b->link);
        budget_give(w->budget, b->n);
    }
    free(b);
}

/* The state is of the past. It is kept for its readers, if need be instead of older ones. */
static void bytes_end(struct watch_cache *w, struct watch_cache_bytes *b)
{
    bool taken = false;
    while (b && !list_is_empty(&b->readers) && !(taken = budget_take(w->budget, b->n)) &&
           !list_is_empty(&w->kept))
        bytes_free(w, LIST_FIRST(&w->kept, struct watch_cache_bytes, link));
    if (taken)
        list_append(&w->kept, &b->link);
    else if (b)
        bytes_free(w, b);
}

/* The reader does not read the state any more, to its end or at all. */
static void bytes_leave(struct watch_cache *w, struct watch_cache_reader *r)
{
    struct watch_cache_bytes *b = steal(&r->bytes);
    list_remove(&r->link);
    if (b && list_is_empty(&b->readers) && !list_is_empty(&b->link))
        bytes_free(w, b);
}

static void object_free(struct watch_cache *w, struct watch_cache_object *o)
{
    list_remove(&o->place.link);
    bytes_end(w, o->bytes);
    free((char *)o->name.p);
    free(o);
}

void watch_cache_clear(struct watch_cache *w)
{
    LIST_EACH(struct watch_cache_place, place, &w->changes, link)
    object_free(w, object_at(place));
    w->n = w->n_gone = 0;
    w->text = NULL;
}

void watch_cache_free(struct watch_cache *w)
{
    watch_cache_clear(w);
    free(w->objects);
    free(w);
}

/* -- changes -- */

/* Index of the first object of that name, or where it would be. */
static size_t index_of(const struct watch_cache *w, struct span name)
{
    return ARRAY_LOWER_BOUND(o, w->objects, w->n, span_cmp((*o)->name, name) < 0);
}

static struct watch_cache_object *object_new(struct span name)
{
    struct watch_cache_object *o = xcalloc(1, sizeof *o);
    list_init(&o->place.link);
    if (name.n)
        o->name = (struct span){xmemdup0(name.p, name.n), name.n};
    return o;
}

static void move_to_end(struct watch_cache *w, struct watch_cache_object *o)
{
    list_remove(&o->place.link);
    list_append(&w->changes, &o->place.link);
    o->place.seq = ++w->seq;
}

/* The index of the next mark, or `to`. */
static size_t next_mark(const char *p, size_t i, size_t to)
{
    while (i < to && (unsigned char)p[i] > *WATCH_CACHE_TRANSITION)
        i++;
    return i;
}

/* Gives the object its next state, whose number is that of the change. */
static void set_bytes(struct watch_cache *w, struct watch_cache_object *o,
                      struct watch_cache_bytes *b)
{
    bytes_end(w, o->bytes);
    o->bytes = b;
    move_to_end(w, o);
    b->seq = o->place.seq;
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
        o = object_new(state->name);
        o->owner = owner;
        o->next = owner->first;
        owner->first = o;
        *ARRAY_INSERT(w->objects, w->n, w->cap, i) = o;
    }
    o->put = true;
    const struct watch_cache_bytes *old = o->bytes;
    if (old && span_eq((struct span){old->p, old->n}, state->json))
        return;
    struct watch_cache_bytes *b = bytes_new(state->json, old);
    b->marked = next_mark(b->p, 0, b->n) < b->n;
    if (!old || o->healthy != state->healthy) {
        b->times[TRANSITION] = state->now_s;
        if (state->healthy)
            b->times[RECOVERED] = state->now_s;
    }
    o->healthy = state->healthy;
    b->times[REPORTED] = state->reported_s;
    set_bytes(w, o, b);
}

void watch_cache_set_text(struct watch_cache *w, struct span text)
{
    struct watch_cache_object *o = w->text;
    if (!o)
        o = w->text = object_new((struct span){0});
    if (!o->bytes || !span_eq((struct span){o->bytes->p, o->bytes->n}, text))
        set_bytes(w, o, bytes_new(text, NULL));
}

/* Forgets the oldest deletions. Half of the limit stays, so that the next time is far. */
static void forget_deletions(struct watch_cache *w)
{
    LIST_EACH(struct watch_cache_place, place, &w->changes, link)
    {
        if (!place->seq || object_at(place)->bytes)
            continue;
        if (w->n_gone <= w->max_gone / 2)
            return;
        w->n_gone--;
        w->forgotten = place->seq;
        object_free(w, object_at(place));
    }
}

/* Deletes an object that its owner has given up. */
static void delete_object(struct watch_cache *w, struct watch_cache_object *o)
{
    size_t first = index_of(w, o->name), i = first;
    while (w->objects[i] != o)
        i++;
    ARRAY_REMOVE(w->objects, w->n, i);
    bytes_end(w, steal(&o->bytes));
    move_to_end(w, o);
    for (i = first; i < w->n && span_eq(w->objects[i]->name, o->name); i++) {
        const struct watch_cache_bytes *old = w->objects[i]->bytes;
        struct watch_cache_bytes *b = bytes_new((struct span){old->p, old->n}, old);
        b->marked = old->marked;
        set_bytes(w, w->objects[i], b);
    }
    if (++w->n_gone > w->max_gone)
        forget_deletions(w);
}

void watch_cache_sweep(struct watch_cache *w, struct watch_cache_owner *owner)
{
    for (struct watch_cache_object **at = &owner->first, *o; (o = *at);) {
        if (o->put) {
            o->put = false;
            at = &o->next;
        } else {
            *at = o->next;
            delete_object(w, o);
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

/* -- readers -- */

void watch_cache_reader_init(struct watch_cache_reader *r)
{
    *r = (struct watch_cache_reader){0};
    list_init(&r->place.link);
    list_init(&r->link);
}

void watch_cache_reader_fini(struct watch_cache *w, struct watch_cache_reader *r)
{
    bytes_leave(w, r);
    list_remove(&r->place.link);
    buf_fini(&r->last);
}

/* Sends the state, which is followed by `end`, as read_on says. */
static void begin_bytes(struct watch_cache_reader *r, struct watch_cache_bytes *b,
                        const char *end)
{
    list_append(&b->readers, &r->link);
    r->bytes = b;
    r->sent = 0;
    r->end = end;
}

/* Sends more of the state that is sent in parts, if any. False: there is more. */
static bool read_on(struct watch_cache *w, struct watch_cache_reader *r, size_t max,
                    struct buf *out)
{
    const struct watch_cache_bytes *b = r->bytes;
    if (!b)
        return true;
    size_t left = max > out->n ? max - out->n : 0,
           to =
               b->n <= WATCH_CACHE_WHOLE || b->n - r->sent < left ? b->n : r->sent + left;
    while (r->sent < to) {
        size_t i = b->marked ? next_mark(b->p, r->sent, to) : to;
        buf_add(out, b->p + r->sent, i - r->sent);
        r->sent = i;
        if (i == to)
            break;
        if (b->p[i] == *WATCH_CACHE_NUMBER)
            buf_add_i64(out, (int64_t)b->seq);
        else
            watch_cache_write_time(out, b->times[b->p[i] - *WATCH_CACHE_REPORTED]);
        r->sent++;
    }
    if (r->sent < b->n)
        return false;
    buf_adds(out, r->end);
    bytes_leave(w, r);
    return true;
}

/* Begins the line of an object, the text or a deletion. */
static void begin_line(struct watch_cache *w, struct watch_cache_reader *r,
                       const struct watch_cache_object *o, struct buf *out)
{
    if (!o->bytes) {
        buf_adds(out, w->words->gone);
        buf_add_json(out, o->name);
        buf_adds(out, w->words->gone_end);
    } else {
        buf_adds(out, o == w->text ? w->words->text : w->words->object);
        begin_bytes(r, o->bytes,
                    o == w->text ? w->words->text_end : ",\"Type\":\"SYNCED\"}\n");
    }
}

enum watch_cache_result watch_cache_read(struct watch_cache *w,
                                         struct watch_cache_reader *r, size_t max,
                                         struct buf *out)
{
    struct list *at = r->place.link.next;
    /* Deletions from before its start do not matter. */
    bool behind = r->begun && w->forgotten > r->at && w->forgotten > r->base;
    if (r->cut || (behind && !w->words->resync))
        return WATCH_CACHE_CUT;
    if (!read_on(w, r, max, out))
        return WATCH_CACHE_MORE;
    if (!r->begun || behind) {
        if (r->begun)
            buf_adds(out, "{\"Type\":\"RESYNC\"}\n");
        r->begun = true;
        r->synced = false;
        r->base = w->seq;
        r->at = 0;
        at = w->changes.next;
    }
    bool whole = true;
    for (; whole && at != &w->changes && out->n < max; at = at->next) {
        struct watch_cache_place *place = LIST_ITEM(at, struct watch_cache_place, link);
        if (!place->seq)
            continue;
        if (!r->synced && place->seq > r->base)
            buf_addc(out, '\n');
        r->synced |= place->seq > r->base;
        r->at = place->seq;
        if (object_at(place)->bytes || r->synced)
            begin_line(w, r, object_at(place), out);
        whole = read_on(w, r, max, out);
    }
    if (at != &r->place.link) {
        list_remove(&r->place.link);
        list_insert(at, &r->place.link);
    }
    if (!whole || at != &w->changes)
        return WATCH_CACHE_MORE;
    if (!r->synced)
        buf_addc(out, '\n');
    r->synced = true;
    return WATCH_CACHE_ALL;
}

enum watch_cache_result watch_cache_list(struct watch_cache *w,
                                         struct watch_cache_reader *r, size_t max,
                                         struct buf *out)
{
    if (!r->begun)
        buf_adds(out, w->words->list);
    r->begun = true;
    struct span last = buf_span(&r->last);
    size_t i = index_of(w, last) + r->namesakes,
           end = ARRAY_LOWER_BOUND(o, w->objects, w->n, span_cmp((*o)->name, last) <= 0);
    i = i < end ? i : end;
    while (!r->cut && read_on(w, r, max, out)) {
        if (!r->listed && i < w->n) {
            struct watch_cache_object *o = w->objects[i++];
            if (out->n >= max)
                return WATCH_CACHE_MORE;
            if (r->last.n)
                buf_addc(out, ',');
            r->namesakes = span_eq(o->name, buf_span(&r->last)) ? r->namesakes + 1 : 1;
            buf_set(&r->last, o->name);
            begin_bytes(r, o->bytes, "");
        } else if (!r->listed) {
            buf_adds(out, w->words->list_text);
            r->listed = true;
            if (w->text)
                begin_bytes(r, w->text->bytes, w->words->list_end);
        } else {
            return WATCH_CACHE_ALL;
        }
    }
    return r->cut ? WATCH_CACHE_CUT : WATCH_CACHE_MORE;
}
