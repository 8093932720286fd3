/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/preempt_priv.h"

#include <stdlib.h>

/*
 * For one card: the fewest pods whose memory on the card covers what is missing, and of
 * those sets the one that frees the least memory overall. The largest pods give the number
 * of victims. Which victims is a branch-and-bound search. Pods of equal size are tried
 * once, and there are few different sizes, so the search is short; STEPS_MAX bounds it.
 */

enum { STEPS_MAX = 5000 };

/* An eligible pod on the card. */
struct item {
    size_t index; /* into the state's pods */
    int64_t here_mib, all_mib;
};

struct search {
    const struct item *items; /* largest first */
    size_t n, want;           /* number of items, and of victims */
    int64_t missing_mib;
    int64_t *first_mib;   /* here_mib of the first i items together */
    size_t *taken, *best; /* the current and the best set */
    int64_t best_mib;     /* what the best set frees overall; -1: no set yet */
    int64_t least_mib;    /* the smallest all_mib of an item */
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
            return; /* the following items are even smaller */
        if (s->best_mib >= 0 && all + (int64_t)left * s->least_mib >= s->best_mib)
            return;
        if (i > from && item->here_mib == item[-1].here_mib &&
            item->all_mib == item[-1].all_mib)
            continue; /* equal to the item before, which was tried */
        if (++s->steps > STEPS_MAX)
            return; /* a set was found: the first one tried has the largest items */
        s->taken[n] = i;
        search(s, i + 1, n + 1, here + item->here_mib, all + item->all_mib);
    }
}

/* How many of the largest items cover what is missing; 0: not even all of them. */
static size_t fewest(const struct search *s)
{
    for (size_t n = 1; n <= s->n; n++)
        if (s->first_mib[n] >= s->missing_mib)
            return n;
    return 0;
}

static bool search_all(struct preempt_state *state, struct search *s,
                       struct preempt_choice *choice)
{
    s->first_mib = arena_alloc(state->arena, (s->n + 1) * sizeof *s->first_mib);
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
    s->taken = arena_alloc(state->arena, s->want * sizeof *s->taken);
    s->best = arena_alloc(state->arena, s->want * sizeof *s->best);
    s->best_mib = -1;
    search(s, 0, 0, 0, 0);
    for (size_t i = 0; i < s->want; i++)
        choice->indexes[choice->n++] = s->items[s->best[i]].index;
    choice->beyond_mib += s->best_mib;
    return true;
}

static int compare_items(const void *a, const void *b, void *ctx)
{
    const struct item *x = a, *y = b;
    const struct preempt_state *state = ctx;
    const struct ledger_pod *p = state->pods[x->index].pod;
    const struct ledger_pod *q = state->pods[y->index].pod;
    if (x->here_mib != y->here_mib)
        return x->here_mib > y->here_mib ? -1 : 1;
    if (x->all_mib != y->all_mib)
        return x->all_mib < y->all_mib ? -1 : 1;
    if (p->priority != q->priority)
        return p->priority < q->priority ? -1 : 1;
    return span_cmp(p->uid, q->uid);
}

/* Would the card fit the request if it were empty? */
static bool fits_when_empty(const struct preempt_state *state, uint32_t c)
{
    struct card card = state->cards[c];
    card.promised_mib = 0;
    card.pods = 0;
    card.whole = false;
    card.free_mib = card_left_mib(&card);
    return placement_card_fits(&card, state->preemptor->request);
}

/* Splits the pods of the card: those that must be removed in any case go into `choice`,
 * the other eligible pods into `items`. False: a pod that must be removed is not
 * eligible. */
static bool split_pods(struct preempt_state *state, uint32_t c, int64_t limit,
                       struct item *items, size_t *n, struct preempt_choice *choice)
{
    bool all = state->preemptor->request->kind != REQUEST_MEMORY;
    for (size_t i = 0; i < state->n; i++) {
        const struct preempt_pod *p = &state->pods[i];
        if (p->removed || p->mib[c] < 0)
            continue;
        bool eligible = p->eligible && p->pod->priority <= limit;
        if (all || p->pod->request->kind == REQUEST_CARDS) {
            if (!eligible)
                return false;
            choice->indexes[choice->n++] = i;
            choice->beyond_mib += p->all_mib - p->mib[c];
        } else if (eligible) {
            items[(*n)++] = (struct item){i, p->mib[c], p->all_mib};
        }
    }
    return true;
}

bool preempt_card_select(struct preempt_state *state, uint32_t c, int64_t limit,
                         struct preempt_choice *choice)
{
    const struct request *r = state->preemptor->request;
    const struct card *card = &state->cards[c];
    struct item *items = arena_alloc(state->arena, state->n * sizeof *items);
    size_t n = 0;
    *choice = (struct preempt_choice){
        .indexes = arena_alloc(state->arena, state->n * sizeof(size_t))};
    if (!fits_when_empty(state, c) || !split_pods(state, c, limit, items, &n, choice))
        return false;
    if (r->kind != REQUEST_MEMORY)
        return state->nominated_pods[c] == 0;
    int64_t left = card->total_mib - card->withheld_mib - card->promised_mib -
                   card->reserved_mib - state->nominated_mib[c];
    int64_t missing = r->mib_per_card - left;
    for (size_t i = 0; i < choice->n; i++)
        missing -= state->pods[choice->indexes[i]].mib[c];
    if (missing <= 0) { /* the choice frees that much more than needed */
        choice->beyond_mib -= choice->n ? missing : 0;
        return true;
    }
    qsort_r(items, n, sizeof *items, compare_items, state);
    struct search s = {.items = items, .n = n, .missing_mib = missing};
    choice->beyond_mib -= missing;
    return search_all(state, &s, choice);
}
