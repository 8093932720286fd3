/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/preempt_priv.h"

#include <stdlib.h>

/*
 * One card: the fewest pods whose memory there reaches what is missing, and of those sets
 * the one that gives up least. How many are needed is told by the largest; which ones is
 * a search, cut off where it cannot become better. Pods of equal size are tried once, and
 * there are few different sizes, so that it ends soon; a limit sees to it.
 */

enum { STEPS_MAX = 5000 };

/* A pod that can be taken from the card. */
struct item {
    size_t who;
    int64_t here_mib, all_mib;
};

struct search {
    const struct item *items; /* largest first */
    size_t n, want;           /* so many of them are taken */
    int64_t missing_mib;
    int64_t *first_mib; /* of the first i items together */
    size_t *taken, *best;
    int64_t best_mib; /* what the best set gives up; -1: there is none yet */
    int64_t least_mib;
    unsigned steps;
};

static void search(struct search *s, size_t from, size_t n, int64_t here, int64_t all)
{
    size_t left = s->want - n;
    if (left == 0) {
        if (here < s->missing_mib || (s->best_mib >= 0 && all >= s->best_mib))
            return;
        s->best_mib = all;
        memcpy(s->best, s->taken, n * sizeof *s->best);
        return;
    }
    for (size_t i = from; i + left <= s->n; i++) {
        const struct item *item = &s->items[i];
        if (here + s->first_mib[i + left] - s->first_mib[i] < s->missing_mib)
            return; /* those behind are smaller still */
        if (s->best_mib >= 0 && all + (int64_t)left * s->least_mib >= s->best_mib)
            return;
        if (i > from && item->here_mib == item[-1].here_mib &&
            item->all_mib == item[-1].all_mib)
            continue; /* the one before was tried in its place */
        if (++s->steps > STEPS_MAX)
            return; /* the first set found is the one of the largest */
        s->taken[n] = i;
        search(s, i + 1, n + 1, here + item->here_mib, all + item->all_mib);
    }
}

/* How many of the largest reach what is missing; 0: not even all. */
static size_t fewest(const struct search *s)
{
    for (size_t n = 1; n <= s->n; n++)
        if (s->first_mib[n] >= s->missing_mib)
            return n;
    return 0;
}

static bool search_all(struct look *look, struct search *s, struct choice *choice)
{
    s->first_mib = arena_alloc(look->arena, (s->n + 1) * sizeof *s->first_mib);
    s->first_mib[0] = 0;
    s->least_mib = s->n ? s->items[0].all_mib : 0;
    for (size_t i = 0; i < s->n; i++) {
        s->first_mib[i + 1] = s->first_mib[i] + s->items[i].here_mib;
        if (s->items[i].all_mib < s->least_mib)
            s->least_mib = s->items[i].all_mib;
    }
    s->want = fewest(s);
    if (!s->want)
        return false;
    s->taken = arena_alloc(look->arena, s->want * sizeof *s->taken);
    s->best = arena_alloc(look->arena, s->want * sizeof *s->best);
    s->best_mib = -1;
    search(s, 0, 0, 0, 0);
    for (size_t i = 0; i < s->want; i++)
        choice->who[choice->n++] = s->items[s->best[i]].who;
    choice->beyond_mib += s->best_mib;
    return true;
}

static int compare_items(const void *a, const void *b, void *ctx)
{
    const struct item *x = a, *y = b;
    const struct look *look = ctx;
    const struct ledger_pod *p = look->tenants[x->who].pod;
    const struct ledger_pod *q = look->tenants[y->who].pod;
    if (x->here_mib != y->here_mib)
        return x->here_mib > y->here_mib ? -1 : 1;
    if (x->all_mib != y->all_mib)
        return x->all_mib < y->all_mib ? -1 : 1;
    if (p->priority != q->priority)
        return p->priority < q->priority ? -1 : 1;
    return span_cmp(p->uid, q->uid);
}

/* Would the request like the card if nobody were on it? */
static bool good_when_empty(const struct look *look, uint32_t c)
{
    struct card card = look->cards[c];
    int64_t left = card.total_mib - card.withheld_mib;
    card.promised_mib = 0;
    card.pods = 0;
    card.whole = false;
    card.free_mib = card.state == CARD_AVAILABLE && left > 0 ? left : 0;
    return card_fits(&card, look->ask->request);
}

/* Sorts the tenants of the card: who has to leave in any case goes into the choice, who
 * may into the items. False: one of the former cannot be taken. */
static bool sort_tenants(struct look *look, uint32_t c, int64_t limit, struct item *items,
                         size_t *n, struct choice *choice)
{
    bool all = look->ask->request->kind != REQUEST_MEMORY;
    for (size_t i = 0; i < look->n; i++) {
        const struct tenant *t = &look->tenants[i];
        if (t->gone || t->mib[c] < 0)
            continue;
        bool may = t->may && t->pod->priority <= limit;
        if (all || t->pod->request.kind == REQUEST_CARDS) {
            if (!may)
                return false;
            choice->who[choice->n++] = i;
            choice->beyond_mib += t->all_mib - t->mib[c];
        } else if (may) {
            items[(*n)++] = (struct item){i, t->mib[c], t->all_mib};
        }
    }
    return true;
}

bool card_choose(struct look *look, uint32_t c, int64_t limit, struct choice *choice)
{
    const struct request *r = look->ask->request;
    const struct card *card = &look->cards[c];
    struct item *items = arena_alloc(look->arena, look->n * sizeof *items);
    size_t n = 0;
    *choice = (struct choice){.who = arena_alloc(look->arena, look->n * sizeof(size_t))};
    if (!good_when_empty(look, c) || !sort_tenants(look, c, limit, items, &n, choice))
        return false;
    if (r->kind != REQUEST_MEMORY)
        return look->line_pods[c] == 0;
    int64_t left =
        card->total_mib - card->withheld_mib - card->promised_mib - look->line_mib[c];
    int64_t missing = r->mib_per_card - left;
    for (size_t i = 0; i < choice->n; i++)
        missing -= look->tenants[choice->who[i]].mib[c];
    if (missing <= 0) { /* what those gave up beyond it */
        choice->beyond_mib -= choice->n ? missing : 0;
        return true;
    }
    qsort_r(items, n, sizeof *items, compare_items, look);
    struct search s = {.items = items, .n = n, .missing_mib = missing};
    choice->beyond_mib -= missing;
    return search_all(look, &s, choice);
}
