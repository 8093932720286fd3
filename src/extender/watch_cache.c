/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/watch_cache.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/mem.h"

/* One state of an object; immutable and shared with lists that are being sent. */
struct text {
    atomic_uint refs;
    size_t n, number_at, number_n; /* the number: its offset and length */
    char p[];
};

struct watch_cache_item {
    struct span name; /* owned */
    struct text *text;
    uint64_t seq, born;
};

/* A change. An entry that a later change of the item superseded has neither member. */
struct entry {
    uint64_t seq;
    struct watch_cache_item *item; /* changed */
    char *gone;                    /* deleted: its name; owned */
};

struct watch_cache {
    const struct watch_cache_kind *kind;
    size_t max_gone;
    uint64_t seq;          /* of the last change */
    uint64_t forgotten;    /* number of the last deletion that was discarded */
    struct entry *entries; /* by rising seq */
    size_t n, cap, n_gone;
    struct watch_cache_item **items; /* by name, then by age */
    size_t n_items, items_cap;
    struct watch_cache_list *list; /* of the state now; NULL: not made yet */
};

struct watch_cache *watch_cache_new(const struct watch_cache_kind *kind, size_t max_gone)
{
    struct watch_cache *w = xcalloc(1, sizeof *w);
    w->kind = kind;
    w->max_gone = max_gone;
    return w;
}

static void text_drop(struct text *text)
{
    if (atomic_fetch_sub(&text->refs, 1) == 1)
        free(text);
}

struct watch_cache_list {
    atomic_uint refs;
    size_t n;
    struct text *texts[];
};

void watch_cache_list_free(struct watch_cache_list *l)
{
    if (!l || atomic_fetch_sub(&l->refs, 1) != 1)
        return;
    for (size_t i = 0; i < l->n; i++)
        text_drop(l->texts[i]);
    free(l);
}

static void item_free(struct watch_cache_item *item)
{
    text_drop(item->text);
    free((char *)item->name.p);
    free(item);
}

void watch_cache_free(struct watch_cache *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < w->n; i++)
        free(w->entries[i].gone);
    for (size_t i = 0; i < w->n_items; i++)
        item_free(w->items[i]);
    watch_cache_list_free(w->list);
    free(w->entries);
    free(w->items);
    free(w);
}

uint64_t watch_cache_last(const struct watch_cache *w)
{
    return w->seq;
}

size_t watch_cache_count(const struct watch_cache *w)
{
    return w->n_items;
}

static struct text *text_new(struct span head, uint64_t seq, struct span tail)
{
    cleanup_buf struct buf number = {0};
    buf_add_i64(&number, (int64_t)seq);
    struct text *t = xmalloc(sizeof *t + head.n + number.n + tail.n);
    atomic_init(&t->refs, 1);
    t->n = head.n + number.n + tail.n;
    t->number_at = head.n;
    t->number_n = number.n;
    memcpy(t->p, head.p, head.n);
    memcpy(t->p + head.n, number.p, number.n);
    memcpy(t->p + head.n + number.n, tail.p, tail.n);
    return t;
}

static struct span text_head(const struct text *t)
{
    return (struct span){t->p, t->number_at};
}

static struct span text_tail(const struct text *t)
{
    size_t at = t->number_at + t->number_n;
    return (struct span){t->p + at, t->n - at};
}

/* Index of the first entry with a higher number. */
static size_t entry_after(const struct watch_cache *w, uint64_t seq)
{
    return ARRAY_LOWER_BOUND(e, w->entries, w->n, e->seq <= seq);
}

static struct entry *entry_of(const struct watch_cache *w,
                              const struct watch_cache_item *item)
{
    struct entry *e = &w->entries[entry_after(w, item->seq - 1)];
    assert(e->item == item);
    return e;
}

/* Removes superseded entries and, if there are too many deletions, the oldest ones. Half
 * of the limit stays, so that the next compaction is far. */
static void compact(struct watch_cache *w)
{
    size_t forget = w->n_gone > w->max_gone ? w->n_gone - w->max_gone / 2 : 0, n = 0;
    for (size_t i = 0; i < w->n; i++) {
        struct entry *e = &w->entries[i];
        if (e->gone && forget) {
            w->forgotten = e->seq;
            free(e->gone);
            e->gone = NULL;
            w->n_gone--;
            forget--;
        }
        if (e->item || e->gone)
            w->entries[n++] = *e;
    }
    w->n = n;
}

static void append(struct watch_cache *w, struct watch_cache_item *item, char *gone)
{
    size_t live = w->n_items + w->n_gone;
    watch_cache_list_free(w->list);
    w->list = NULL;
    if (w->n_gone > w->max_gone || (w->n > 64 && w->n > 2 * live))
        compact(w);
    MEM_GROW(w->entries, w->cap, w->n + 1);
    w->entries[w->n++] = (struct entry){++w->seq, item, gone};
    w->n_gone += gone != NULL;
    if (item)
        item->seq = w->seq;
}

/* Index of the first item of that name, or where it would be. */
static size_t name_at(const struct watch_cache *w, struct span name)
{
    return ARRAY_LOWER_BOUND(i, w->items, w->n_items, span_cmp((*i)->name, name) < 0);
}

static bool is_named(const struct watch_cache *w, size_t i, struct span name)
{
    return i < w->n_items && span_eq(w->items[i]->name, name);
}

static struct watch_cache_item *item_new(struct watch_cache *w, struct span name)
{
    struct watch_cache_item *item = xcalloc(1, sizeof *item);
    item->name = (struct span){xmemdup0(name.p, name.n), name.n};
    size_t at = name_at(w, name);
    while (is_named(w, at, name))
        at++;
    *ARRAY_INSERT(w->items, w->n_items, w->items_cap, at) = item;
    return item;
}

static void set_state(struct watch_cache *w, struct watch_cache_item *item,
                      struct span head, struct span tail)
{
    append(w, item, NULL);
    struct text *old = item->text;
    item->text = text_new(head, item->seq, tail);
    if (old)
        text_drop(old);
}

bool watch_cache_item_is(const struct watch_cache_item *item, struct span head,
                         struct span tail)
{
    return span_eq(text_head(item->text), head) && span_eq(text_tail(item->text), tail);
}

bool watch_cache_put(struct watch_cache *w, struct watch_cache_item **item,
                     struct span name, struct span head, struct span tail)
{
    struct watch_cache_item *i = *item;
    if (i && watch_cache_item_is(i, head, tail))
        return false;
    if (i)
        entry_of(w, i)->item = NULL;
    else
        i = *item = item_new(w, name);
    set_state(w, i, head, tail);
    return true;
}

void watch_cache_drop(struct watch_cache *w, struct watch_cache_item **gone)
{
    struct watch_cache_item *item = *gone;
    if (!item)
        return;
    *gone = NULL;
    size_t at = name_at(w, item->name);
    size_t i = at;
    while (w->items[i] != item)
        i++;
    ARRAY_REMOVE(w->items, w->n_items, i);
    entry_of(w, item)->item = NULL;
    append(w, NULL, xmemdup0(item->name.p, item->name.n));
    for (; is_named(w, at, item->name); at++) {
        struct watch_cache_item *twin = w->items[at];
        entry_of(w, twin)->item = NULL;
        set_state(w, twin, text_head(twin->text), text_tail(twin->text));
    }
    item_free(item);
}

static void write_line(const struct watch_cache *w, const struct entry *e,
                       struct buf *out)
{
    buf_adds(out, "{\"");
    buf_adds(out, w->kind->key);
    buf_adds(out, "\":");
    if (e->item) {
        buf_add(out, e->item->text->p, e->item->text->n);
        buf_adds(out, ",\"Type\":\"SYNCED\"}\n");
        return;
    }
    buf_adds(out, w->kind->gone_head);
    buf_add_json(out, span_of(e->gone));
    buf_adds(out, w->kind->gone_tail);
    buf_adds(out, ",\"Type\":\"DELETED\"}\n");
}

/* Whether a deletion that the reader has not seen was discarded. Deletions from before
 * its start do not matter. */
static bool is_behind(const struct watch_cache *w, const struct watch_cache_reader *r)
{
    return w->forgotten > r->at && w->forgotten > r->base;
}

bool watch_cache_read(const struct watch_cache *w, struct watch_cache_reader *r,
                      size_t max, struct buf *out)
{
    if (!r->begun || is_behind(w, r)) {
        if (r->begun)
            buf_adds(out, "{\"Type\":\"RESYNC\"}\n");
        *r = (struct watch_cache_reader){.begun = true, .base = w->seq};
    }
    for (size_t i = entry_after(w, r->at); i < w->n && out->n < max; i++) {
        const struct entry *e = &w->entries[i];
        r->at = e->seq;
        if (e->item || (e->gone && e->seq > r->base))
            write_line(w, e, out);
    }
    bool all = entry_after(w, r->at) == w->n;
    if (!r->synced && (all || w->entries[entry_after(w, r->at)].seq > r->base)) {
        r->synced = true;
        buf_addc(out, '\n');
    }
    return all;
}

struct watch_cache_list *watch_cache_list(struct watch_cache *w)
{
    struct watch_cache_list *l = w->list;
    if (!l) {
        l = w->list = xmalloc(sizeof *l + w->n_items * sizeof *l->texts);
        atomic_init(&l->refs, 1);
        l->n = w->n_items;
        for (size_t i = 0; i < l->n; i++) {
            l->texts[i] = w->items[i]->text;
            atomic_fetch_add(&l->texts[i]->refs, 1);
        }
    }
    atomic_fetch_add(&l->refs, 1);
    return l;
}

bool watch_cache_list_read(const struct watch_cache_list *l, size_t *next, size_t max,
                           struct buf *out)
{
    while (*next < l->n && out->n < max) {
        const struct text *t = l->texts[*next];
        if (*next)
            buf_addc(out, ',');
        buf_add(out, t->p, t->n);
        ++*next;
    }
    return *next == l->n;
}
