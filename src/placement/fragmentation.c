/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/fragmentation.h"

#include <stdlib.h>

#include "base/mem.h"

/*
 * For a shape on one card the measure is a sum over the cards: the free memory of each
 * card that has less than the shape needs. (If no card has enough, this sum is all free
 * memory, as required.) So the weights of the shapes that need more than a given size are
 * summed in advance, and measuring a card takes one search. Only shapes on several cards
 * are visited one by one.
 */

__extension__ typedef __int128 wide;

enum {
    SCARCITY_SHIFT = 8,
    SCARCITY_MAX = 64, /* weights add up to no more than SCARCITY_MAX << FRAG_SHIFT */
};

int64_t frag_read(const struct select_view *view, int64_t cpu_free, struct frag_node *now)
{
    const struct ledger_rows *rows = view->rows;
    now->n = view->node->n_cards;
    now->cpu_free = cpu_free > 0 ? frag_clamp(cpu_free) : 0;
    now->whole = select_whole(view);
    if (rows)
        memcpy(now->kind, rows->kind, sizeof rows->kind);
    for (uint32_t i = 0; rows && i < LEDGER_ROWS; i++)
        now->free_mib[i] = rows->free_mib[i];
    int64_t size = rows ? rows->available_mib : 0;
    for (uint32_t i = 0; !rows && i < now->n; i++) {
        now->free_mib[i] = frag_clamp(view->cards[i].free_mib);
        now->kind[i] = view->cards[i].kind->id;
        size += view->cards[i].state == CARD_AVAILABLE
                    ? frag_clamp(view->cards[i].total_mib)
                    : 0;
    }
    return size;
}

void frag_fini(struct frag *f)
{
    free(f->tails);
    *f = (struct frag){0};
}

/* How many of the rising values are `x` or less. */
static inline uint32_t count_up_to(const int64_t *values, uint32_t n, int64_t x)
{
    const int64_t *from = values;
    /* Without a branch on the values, which nothing could predict. */
    while (n > 1) {
        uint32_t half = n / 2;
        from += half & -(size_t)(from[half - 1] <= x);
        n -= half;
    }
    return (uint32_t)(from - values) + (n && *from <= x);
}

/* Inserts a value into rising ones, unless it is present. */
static void insert(int64_t *values, uint32_t *n, int64_t x)
{
    uint32_t at = count_up_to(values, *n, x);
    if (at > 0 && values[at - 1] == x)
        return;
    memmove(values + at + 1, values + at, (*n - at) * sizeof *values);
    values[at] = x;
    (*n)++;
}

/* count_up_to of the sizes. */
static inline uint32_t count_sizes(const struct frag *f, int64_t mib)
{
    int64_t range = mib > 0 ? mib >> f->shift : 0;
    uint32_t before = f->before[range < FRAG_RANGES ? range : FRAG_RANGES - 1];
    return before + count_up_to(f->sizes + before, f->widest, mib);
}

/* Does each shape take the same of cards of either kind? */
static bool is_one_class(const struct requests *mix, uint8_t a, uint8_t b)
{
    uint32_t i = 0;
    while (i < mix->n_shapes && mix->shapes[i].amounts[a] == mix->shapes[i].amounts[b])
        i++;
    return i == mix->n_shapes;
}

static int64_t *tails_of(const struct frag *f, uint32_t class, uint32_t level)
{
    return f->tails + ((size_t) class * f->n_levels + level) * (f->n_sizes + 2);
}

/* Stores the weight at the shape's own level and size; sum_weights adds them up. */
static void add_shape(struct frag *f, const struct request_shape *s, int64_t weight,
                      const uint8_t *firsts)
{
    const bool memory = s->request->kind == REQUEST_MEMORY;
    uint32_t level = count_up_to(f->levels, f->n_levels, s->cpu_milli) - 1;
    f->starved[level] += weight;
    if (s->request->cards > 1) {
        struct frag_shape *several = &f->several[f->n_several++];
        *several =
            (struct frag_shape){memory, s->request->cards, s->cpu_milli, weight, {0}};
        memcpy(several->amounts, s->amounts, sizeof s->amounts);
        return;
    }
    for (uint32_t class = 0; class < f->n_classes; class ++) {
        int64_t amount = s->amounts[firsts[class]];
        if (amount < 0)
            tails_of(f, class, level)[f->n_sizes] += weight;
        else if (memory)
            tails_of(f, class, level)[count_sizes(f, amount) - 1] += weight;
        else
            tails_of(f, class, level)[f->n_sizes + 1] += weight;
    }
}

static void sum_weights(struct frag *f)
{
    int64_t above = 0;
    for (uint32_t class = 0; class < f->n_classes; class ++) {
        for (uint32_t level = 0; level < f->n_levels; level++) {
            int64_t *tails = tails_of(f, class, level);
            for (uint32_t i = f->n_sizes; i-- > 0;)
                tails[i] += tails[i + 1];
            for (uint32_t i = 0; level > 0 && i < f->n_sizes + 2; i++)
                tails[i] += tails_of(f, class, level - 1)[i];
        }
    }
    for (uint32_t level = f->n_levels; level-- > 0;) {
        int64_t own = f->starved[level];
        f->starved[level] = above;
        above += own;
    }
}

/* How much scarcer the cards that a shape accepts are than cards in general, <<
 * SCARCITY_SHIFT. `free_mib`: of each class. */
static int64_t scarcity_of(const struct frag *f, const struct request_shape *s,
                           const uint8_t *firsts, const int64_t *free_mib)
{
    int64_t all = 0, own = 0;
    for (uint32_t class = 0; class < f->n_classes; class ++) {
        all += free_mib[class];
        own += s->amounts[firsts[class]] < 0 ? 0 : free_mib[class];
    }
    if (own <= 0) /* none: no placement makes a difference */
        return 1 << SCARCITY_SHIFT;
    wide scarcity = ((wide)all << SCARCITY_SHIFT) / own;
    return scarcity < SCARCITY_MAX << SCARCITY_SHIFT ? (int64_t)scarcity
                                                     : SCARCITY_MAX << SCARCITY_SHIFT;
}

void frag_prepare(struct frag *f, const struct requests *mix, bool by_scarcity)
{
    uint8_t firsts[MIX_KINDS];
    int64_t total = 0, free_mib[MIX_KINDS] = {0};
    /* Kinds without cards may be of any class. `firsts`: a kind of each class. */
    f->n_classes = 0;
    memset(f->class_of, 0, sizeof f->class_of);
    for (uint8_t kind = 0; kind < MIX_KINDS; kind++) {
        uint8_t class = 0;
        if (kind > 0 && !mix->kinds[kind].kind)
            continue;
        while (class < f->n_classes && !is_one_class(mix, firsts[class], kind))
            class ++;
        firsts[class] = class == f->n_classes ? kind : firsts[class];
        f->n_classes += class == f->n_classes;
        f->class_of[kind] = class;
    }
    for (uint32_t kind = 0; kind < MIX_KINDS; kind++)
        free_mib[f->class_of[kind]] += mix->kinds[kind].free_mib;
    f->n_levels = f->n_sizes = f->n_several = 0;
    insert(f->levels, &f->n_levels, 0);
    for (size_t i = 0; i < mix->n_shapes; i++) {
        const struct request_shape *s = &mix->shapes[i];
        insert(f->levels, &f->n_levels, s->cpu_milli);
        int64_t least =
            s->request->mib_per_card; /* of a percentage: on the smallest kind */
        for (uint32_t k = 0; s->request->percent && k < MIX_KINDS; k++)
            if (s->amounts[k] > 0 && (!least || s->amounts[k] < least))
                least = s->amounts[k];
        if (s->request->kind == REQUEST_MEMORY && s->request->cards == 1)
            insert(f->sizes, &f->n_sizes, least);
    }
    /* The sizes are divided into ranges of equal width. `widest` is the largest number of sizes
     * in one range, one or two as a rule. If one size is far beyond the others, all others are in
     * the first range, and each search is a binary search among all sizes. */
    uint32_t n_sizes = f->n_sizes, at = 0, before[FRAG_RANGES];
    f->shift = f->widest = 0;
    while (n_sizes && f->sizes[n_sizes - 1] >> f->shift >= FRAG_RANGES)
        f->shift++;
    for (int64_t range = 0; range < FRAG_RANGES; range++) {
        before[range] = at;
        while (at < n_sizes && f->sizes[at] >> f->shift <= range)
            at++;
        f->widest = at - before[range] > f->widest ? at - before[range] : f->widest;
    }
    for (uint32_t range = 0; range < FRAG_RANGES; range++)
        f->before[range] = (uint8_t)quantity_at_most(before[range], n_sizes - f->widest);
    size_t n = (size_t)f->n_classes * f->n_levels * (f->n_sizes + 2);
    MEM_GROW(f->tails, f->tails_cap, n);
    memset(f->tails, 0, n * sizeof *f->tails);
    memset(f->starved, 0, f->n_levels * sizeof *f->starved);
    for (size_t i = 0; i < mix->n_shapes; i++)
        total += mix->shapes[i].weight;
    for (size_t i = 0; i < mix->n_shapes; i++) {
        const struct request_shape *s = &mix->shapes[i];
        int64_t weight = (s->weight << FRAG_SHIFT) / total;
        if (by_scarcity)
            weight = weight * scarcity_of(f, s, firsts, free_mib) >> SCARCITY_SHIFT;
        add_shape(f, s, weight, firsts);
    }
    sum_weights(f);
}

/* The free memory that a shape on several cards cannot use. */
static int64_t unused_by(const struct frag_shape *s, const struct frag_node *node)
{
    uint32_t usable = 0;
    int64_t unusable = 0, free = 0;
    for (uint32_t i = 0; i < node->n; i++) {
        int64_t amount = s->amounts[node->kind[i]];
        bool fits = s->memory ? node->free_mib[i] >= amount : node->whole >> i & 1;
        fits &= amount >= 0;
        usable += fits;
        free += node->free_mib[i];
        unusable += fits ? 0 : node->free_mib[i];
    }
    return usable < s->cards ? free : unusable;
}

static uint32_t level_of(const struct frag *f, int64_t cpu)
{
    return f->n_levels == 1 ? 0 : count_up_to(f->levels, f->n_levels, cpu) - 1;
}

/* The free memory of a card that shapes on one card cannot use, weighted. `tails` are of the
 * card's class. */
static inline int64_t measure_card(const struct frag *f, const int64_t *tails,
                                   int64_t mib, bool whole)
{
    return mib * (tails[count_sizes(f, mib)] + (whole ? 0 : tails[f->n_sizes + 1]));
}

/* The free memory that shapes on several cards cannot use, weighted. */
static inline int64_t measure_several(const struct frag *f, const struct frag_node *node)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < f->n_several; i++)
        if (f->several[i].cpu_milli <= node->cpu_free)
            sum += f->several[i].weight * unused_by(&f->several[i], node);
    return sum;
}

int64_t frag_measure(const struct frag *f, const struct frag_node *node)
{
    uint32_t level = level_of(f, node->cpu_free);
    int64_t sum = measure_several(f, node);
    for (uint32_t i = 0; i < node->n; i++)
        sum += measure_card(f, tails_of(f, f->class_of[node->kind[i]], level),
                            node->free_mib[i], node->whole >> i & 1) +
               node->free_mib[i] * f->starved[level];
    return sum;
}

int64_t frag_take(const struct frag *f, struct frag_node *node, uint64_t cards,
                  int64_t mib, int64_t cpu)
{
    uint32_t level = level_of(f, node->cpu_free);
    cpu = cpu < node->cpu_free ? cpu : node->cpu_free;
    /* At the same level, other cards do not change. */
    bool same = f->levels[level] <= node->cpu_free - cpu;
    int64_t drop = same ? measure_several(f, node) : frag_measure(f, node);
    for (; cards; cards &= cards - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(cards);
        const int64_t *tails = tails_of(f, f->class_of[node->kind[i]], level);
        int64_t has = node->free_mib[i], left = has - (mib < has ? mib : has);
        if (same)
            drop += measure_card(f, tails, has, node->whole >> i & 1) -
                    measure_card(f, tails, left, false) +
                    (has - left) * f->starved[level];
        node->free_mib[i] = left;
        node->whole &= ~(UINT64_C(1) << i);
    }
    node->cpu_free -= cpu;
    return drop - (same ? measure_several(f, node) : frag_measure(f, node));
}
