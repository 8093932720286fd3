/* SPDX-License-Identifier: Apache-2.0 */
#include "node/usage_history_priv.h"

#include <stdlib.h>

#include "base/mem.h"
#include "node/workload.h"

struct usage_history *usage_history_new(void)
{
    return xcalloc(1, sizeof(struct usage_history));
}

static void entry_free(struct usage_history_entry *e)
{
    free(e->strings);
    free(e);
}

void usage_history_free(struct usage_history *h)
{
    if (!h)
        return;
    for (size_t i = 0; i < h->n; i++)
        entry_free(h->entries[i]);
    free(h);
}

size_t usage_history_count(const struct usage_history *h)
{
    return h->n;
}

/* -- entries -- */

static int compare(const struct usage_history_entry *a,
                   const struct usage_history_entry *b)
{
    int order = span_cmp(a->ns, b->ns);
    if (!order)
        order = strcmp(a->kind, b->kind);
    if (!order)
        order = span_cmp(a->name, b->name);
    return order ? order : span_cmp(a->container, b->container);
}

/* The index of the entry, or where it belongs. */
static size_t place_of(const struct usage_history *h,
                       const struct usage_history_entry *key)
{
    size_t from = 0, to = h->n;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (compare(h->entries[middle], key) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static void drop(struct usage_history *h, size_t i)
{
    entry_free(h->entries[i]);
    memmove(&h->entries[i], &h->entries[i + 1], (h->n - i - 1) * sizeof *h->entries);
    h->n--;
}

/* The number of entries of the namespace, from its first one on. */
static size_t count_from(const struct usage_history *h, size_t first)
{
    size_t k = first;
    while (k < h->n && span_eq(h->entries[k]->ns, h->entries[first]->ns))
        k++;
    return k - first;
}

/* Drops the entry that was not used for the longest time, of the namespace that has the
 * most with the newcomer. Among equals that of the newcomer. */
static void drop_one(struct usage_history *h, struct span newcomer)
{
    size_t first = 0, most = 0;
    for (size_t i = 0, n; i < h->n; i += n) {
        n = count_from(h, i);
        bool its_own = span_eq(h->entries[i]->ns, newcomer);
        if (n + its_own > most || (n + its_own == most && its_own)) {
            first = i;
            most = n + its_own;
        }
    }
    size_t oldest = first, n = count_from(h, first);
    for (size_t i = first; i < first + n; i++)
        if (h->entries[i]->seen_ms < h->entries[oldest]->seen_ms)
            oldest = i;
    drop(h, oldest);
}

static struct span copy(char **at, struct span s)
{
    struct span to = {memcpy(*at, s.p, s.n), s.n};
    *at += s.n;
    return to;
}

struct usage_history_entry *usage_history_find(const struct usage_history *h,
                                               const struct usage_history_entry *key)
{
    size_t i = place_of(h, key);
    return i < h->n && compare(h->entries[i], key) == 0 ? h->entries[i] : NULL;
}

struct usage_history_entry *usage_history_add(struct usage_history *h,
                                              const struct usage_history_entry *key)
{
    if (h->n == USAGE_HISTORY_MAX)
        drop_one(h, key->ns);
    struct usage_history_entry *e = xcalloc(1, sizeof *e);
    char *at = e->strings = xmalloc(key->ns.n + key->name.n + key->container.n + 1);
    e->ns = copy(&at, key->ns);
    e->name = copy(&at, key->name);
    e->container = copy(&at, key->container);
    e->kind = key->kind;
    e->hour = -1;
    size_t i = place_of(h, e);
    memmove(&h->entries[i + 1], &h->entries[i], (h->n - i) * sizeof *h->entries);
    h->entries[i] = e;
    h->n++;
    return e;
}

/* -- marks -- */

void usage_history_mark(struct usage_history_entry *e, int64_t hour, int64_t used_mib)
{
    if (e->hour < 0 || hour - e->hour >= USAGE_HISTORY_HOURS)
        for (size_t i = 0; i < USAGE_HISTORY_HOURS; i++)
            e->marks[i] = USAGE_HISTORY_NO_MARK;
    else
        for (int64_t i = e->hour + 1; i <= hour; i++)
            e->marks[i % USAGE_HISTORY_HOURS] = USAGE_HISTORY_NO_MARK;
    if (hour > e->hour)
        e->hour = hour;
    int64_t *m = &e->marks[hour % USAGE_HISTORY_HOURS];
    *m = used_mib > *m ? used_mib : *m;
}

static void take(struct usage_history *h, const struct usage_container *c)
{
    struct workload w = workload_of(c->pod);
    struct usage_history_entry key = {
        .ns = c->ns, .name = w.name, .container = c->name, .kind = w.kind};
    struct usage_history_entry *e = usage_history_find(h, &key);
    if (!e)
        e = usage_history_add(h, &key);
    /* Of the cards in one measurement the largest promise, whatever their order. */
    if (e->seen_ms != h->now_ms || c->promised_mib > e->promised_mib)
        e->promised_mib = c->promised_mib;
    e->seen_ms = h->now_ms;
    usage_history_mark(e, h->now_ms / USAGE_HISTORY_HOUR_MS, c->used_mib);
}

static bool has_passed(const struct usage_history *h, const struct usage_history_entry *e)
{
    return h->now_ms / USAGE_HISTORY_HOUR_MS - e->hour >= USAGE_HISTORY_HOURS;
}

void usage_history_take(struct usage_history *h, int64_t now_ms, const struct usage *u)
{
    if (now_ms + USAGE_HISTORY_BASE_MS > h->now_ms)
        h->now_ms = now_ms + USAGE_HISTORY_BASE_MS;
    for (size_t i = h->n; i-- > 0;)
        if (has_passed(h, h->entries[i]))
            drop(h, i);
    for (size_t i = 0; i < u->n_containers; i++) {
        const struct usage_container *c = &u->containers[i];
        if (u->cards[c->card].complete && c->pod_uid.n && c->ns.n && c->pod.n &&
            c->name.n && c->used_mib >= 0)
            take(h, c);
    }
}

/* -- reading -- */

static int by_mark(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

struct usage_history_row usage_history_row(const struct usage_history *h, size_t i)
{
    const struct usage_history_entry *e = h->entries[i];
    struct usage_history_row row = {.ns = e->ns,
                                    .name = e->name,
                                    .container = e->container,
                                    .kind = e->kind,
                                    .promised_mib = e->promised_mib};
    int64_t sorted[USAGE_HISTORY_HOURS];
    int64_t now = h->now_ms / USAGE_HISTORY_HOUR_MS;
    for (int64_t hour = e->hour; hour >= 0 && e->hour - hour < USAGE_HISTORY_HOURS &&
                                 now - hour < USAGE_HISTORY_HOURS;
         hour--) {
        int64_t m = e->marks[hour % USAGE_HISTORY_HOURS];
        if (m == USAGE_HISTORY_NO_MARK)
            continue;
        sorted[row.hours++] = m;
        row.age_hours = now - hour;
    }
    if (row.hours == 0)
        return row;
    qsort(sorted, (size_t)row.hours, sizeof *sorted, by_mark);
    row.p95_mib = sorted[(row.hours * 95 + 99) / 100 - 1];
    row.max_mib = sorted[row.hours - 1];
    return row;
}
