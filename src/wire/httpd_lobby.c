/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/httpd_lobby.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { BATCH = 32 }; /* one of so many goes at once: finding them costs a sort */

void httpd_lobby_add(struct httpd_lobby *l, struct httpd_guest *g,
                     const struct httpd_address *address, int64_t now_ms)
{
    *g = (struct httpd_guest){.address = *address, .since_ms = now_ms, .prev = l->last};
    *(l->last ? &l->last->next : &l->first) = g;
    l->last = g;
    l->n++;
}

void httpd_lobby_remove(struct httpd_lobby *l, struct httpd_guest *g)
{
    *(g->prev ? &g->prev->next : &l->first) = g->next;
    *(g->next ? &g->next->prev : &l->last) = g->prev;
    g->prev = g->next = NULL;
    l->n--;
    l->ready -= g->tag > 0;
}

static bool same_address(const struct httpd_guest *a, const struct httpd_guest *b)
{
    return memcmp(&a->address, &b->address, sizeof a->address) == 0;
}

void httpd_lobby_ready(struct httpd_lobby *l, struct httpd_guest *g)
{
    uint64_t after = l->now;
    if (g->tag)
        return;
    for (const struct httpd_guest *q = l->first; q; q = q->next)
        if (q->tag > after && same_address(q, g))
            after = q->tag;
    g->tag = after + 1;
    l->ready++;
}

/* Of equal tags, the guest that came first. */
struct httpd_guest *httpd_lobby_next(struct httpd_lobby *l)
{
    struct httpd_guest *least = NULL;
    for (struct httpd_guest *q = l->first; q; q = q->next)
        if (q->tag && (!least || q->tag < least->tag))
            least = q;
    if (!least)
        return NULL;
    l->now = least->tag;
    httpd_lobby_remove(l, least);
    return least;
}

struct httpd_guest *httpd_lobby_expired(struct httpd_lobby *l, int64_t now_ms, int64_t ms)
{
    struct httpd_guest *g = l->first;
    if (!g || now_ms - g->since_ms <= ms)
        return NULL;
    httpd_lobby_remove(l, g);
    return g;
}

static int by_address(const void *a, const void *b)
{
    const struct httpd_guest *x = *(struct httpd_guest *const *)a,
                             *y = *(struct httpd_guest *const *)b;
    return memcmp(&x->address, &y->address, sizeof x->address);
}

static int by_excess(const void *a, const void *b)
{
    const struct httpd_guest *x = *(struct httpd_guest *const *)a,
                             *y = *(struct httpd_guest *const *)b;
    if (x->siblings != y->siblings)
        return x->siblings > y->siblings ? -1 : 1;
    if (!x->tag != !y->tag)
        return x->tag ? 1 : -1;
    int order = (x->since_ms > y->since_ms) - (x->since_ms < y->since_ms);
    return x->tag ? -order : order;
}

struct httpd_guest *httpd_lobby_excess(struct httpd_lobby *l)
{
    if (l->n <= l->max)
        return NULL;
    size_t n = 0, excess = l->n - l->max + l->max / BATCH;
    cleanup_free struct httpd_guest **all = xcalloc(l->n, sizeof *all);
    for (struct httpd_guest *q = l->first; q; q = q->next)
        all[n++] = q;
    qsort(all, n, sizeof(struct httpd_guest *), by_address);
    for (size_t from = 0, to; from < n; from = to) {
        for (to = from; to < n && same_address(all[from], all[to]);)
            to++;
        for (size_t i = from; i < to; i++)
            all[i]->siblings = (unsigned)(to - from);
    }
    qsort(all, n, sizeof(struct httpd_guest *), by_excess);
    struct httpd_guest *out = NULL;
    for (size_t i = 0; i < excess; i++) {
        httpd_lobby_remove(l, all[i]);
        all[i]->next = out;
        out = all[i];
    }
    return out;
}
