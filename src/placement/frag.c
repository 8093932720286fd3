/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/frag.h"

#include <stdlib.h>

#include "base/mem.h"

/*
 * For a shape on one card the measure is a sum over the cards: the free memory of each
 * card that has less than the shape needs. (If no card has enough, this sum is all free
 * memory, as required.) So the weights of the shapes that need more than a given size are
 * summed in advance, and measuring a card takes one binary search. Only shapes on several
 * cards are visited one by one.
 */

/* API objects can contain any size. */
int64_t frag_clamp(int64_t amount)
{
    static const int64_t most = (int64_t)1 << 40;
    return amount < most ? amount : most;
}

void frag_read_node(const struct ledger_node *node, int64_t cpu_free,
                    struct frag_node *now)
{
    now->n = node->n_cards;
    now->cpu_free = cpu_free > 0 ? frag_clamp(cpu_free) : 0;
    for (uint32_t i = 0; i < node->n_cards; i++) {
        now->free_mib[i] = frag_clamp(node->cards[i].free_mib);
        now->whole[i] = card_is_free(&node->cards[i]);
    }
}

void frag_fini(struct frag *f)
{
    free(f->tails);
    *f = (struct frag){0};
}

/* How many of the rising values are `x` or less. */
static uint32_t count_up_to(const int64_t *values, uint32_t n, int64_t x)
{
    uint32_t low = 0;
    while (low < n) {
        uint32_t middle = low + (n - low) / 2;
        if (values[middle] <= x)
            low = middle + 1;
        else
            n = middle;
    }
    return low;
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

static void find_levels_and_sizes(struct frag *f, const struct mix *mix)
{
    f->n_levels = f->n_sizes = f->n_several = 0;
    insert(f->levels, &f->n_levels, 0);
    for (uint32_t i = 0; i < mix->n; i++) {
        const struct mix_shape *s = &mix->shapes[i];
        if (s->kind == REQUEST_NONE)
            continue;
        insert(f->levels, &f->n_levels, s->cpu_milli);
        if (s->kind == REQUEST_MEMORY && s->cards == 1)
            insert(f->sizes, &f->n_sizes, s->mib_per_card);
    }
}

static int64_t *tails_of(const struct frag *f, uint32_t level)
{
    return f->tails + (size_t)level * (f->n_sizes + 1);
}

/* Stores the weight at the shape's own level and size; sum_weights adds them up. */
static void add_shape(struct frag *f, const struct mix_shape *s, int64_t weight)
{
    uint32_t level = count_up_to(f->levels, f->n_levels, s->cpu_milli) - 1;
    f->starved[level] += weight;
    if (s->cards > 1) {
        f->several[f->n_several] = *s;
        f->several[f->n_several++].weight = weight;
    } else if (s->kind != REQUEST_MEMORY) {
        f->whole[level] += weight;
    } else {
        uint32_t at = count_up_to(f->sizes, f->n_sizes, s->mib_per_card) - 1;
        tails_of(f, level)[at] += weight;
    }
}

static void sum_weights(struct frag *f)
{
    int64_t above = 0;
    for (uint32_t level = 0; level < f->n_levels; level++) {
        int64_t *tails = tails_of(f, level);
        for (uint32_t i = f->n_sizes; i-- > 0;)
            tails[i] += tails[i + 1];
        for (uint32_t i = 0; level > 0 && i < f->n_sizes; i++)
            tails[i] += tails_of(f, level - 1)[i];
        if (level > 0)
            f->whole[level] += f->whole[level - 1];
    }
    for (uint32_t level = f->n_levels; level-- > 0;) {
        int64_t own = f->starved[level];
        f->starved[level] = above;
        above += own;
    }
}

void frag_prepare(struct frag *f, const struct mix *mix)
{
    int64_t total = 0;
    find_levels_and_sizes(f, mix);
    size_t n = (size_t)f->n_levels * (f->n_sizes + 1);
    MEM_GROW(f->tails, f->tails_cap, n);
    memset(f->tails, 0, n * sizeof *f->tails);
    memset(f->starved, 0, f->n_levels * sizeof *f->starved);
    memset(f->whole, 0, f->n_levels * sizeof *f->whole);
    for (uint32_t i = 0; i < mix->n; i++)
        total += mix->shapes[i].weight;
    for (uint32_t i = 0; i < mix->n; i++)
        if (mix->shapes[i].kind != REQUEST_NONE)
            add_shape(f, &mix->shapes[i], (mix->shapes[i].weight << FRAG_SHIFT) / total);
    sum_weights(f);
}

/* The free memory that a shape on several cards cannot use. */
static int64_t unused_by(const struct mix_shape *s, const struct frag_node *node,
                         int64_t free)
{
    uint32_t usable = 0;
    int64_t unusable = 0;
    for (uint32_t i = 0; i < node->n; i++) {
        bool fits = s->kind == REQUEST_MEMORY ? node->free_mib[i] >= s->mib_per_card
                                              : node->whole[i];
        usable += fits;
        unusable += fits ? 0 : node->free_mib[i];
    }
    return usable < s->cards ? free : unusable;
}

static uint32_t level_of(const struct frag *f, int64_t cpu)
{
    return f->n_levels == 1 ? 0 : count_up_to(f->levels, f->n_levels, cpu) - 1;
}

/* The free memory of a card that shapes on one card cannot use, weighted. */
static int64_t measure_card(const struct frag *f, uint32_t level,
                            const struct frag_node *node, uint32_t i)
{
    int64_t mib = node->free_mib[i];
    int64_t weight = tails_of(f, level)[count_up_to(f->sizes, f->n_sizes, mib)];
    return mib * (weight + (node->whole[i] ? 0 : f->whole[level]));
}

/* The free memory that shapes on several cards cannot use, weighted. */
static int64_t measure_several(const struct frag *f, const struct frag_node *node)
{
    int64_t free = 0, sum = 0;
    for (uint32_t i = 0; i < node->n && f->n_several; i++)
        free += node->free_mib[i];
    for (uint32_t i = 0; i < f->n_several; i++)
        if (f->several[i].cpu_milli <= node->cpu_free)
            sum += f->several[i].weight * unused_by(&f->several[i], node, free);
    return sum;
}

int64_t frag_measure(const struct frag *f, const struct frag_node *node)
{
    uint32_t level = level_of(f, node->cpu_free);
    int64_t sum = measure_several(f, node);
    for (uint32_t i = 0; i < node->n; i++)
        sum += measure_card(f, level, node, i) + node->free_mib[i] * f->starved[level];
    return sum;
}

static int64_t take_from(struct frag_node *node, uint32_t i, int64_t mib)
{
    int64_t taken = mib < node->free_mib[i] ? mib : node->free_mib[i];
    node->free_mib[i] -= taken;
    node->whole[i] = false;
    return taken;
}

int64_t frag_take(const struct frag *f, struct frag_node *node, const uint32_t *cards,
                  uint32_t n, int64_t mib, int64_t cpu)
{
    uint32_t level = level_of(f, node->cpu_free);
    cpu = cpu < node->cpu_free ? cpu : node->cpu_free;
    if (level_of(f, node->cpu_free - cpu) != level) {
        int64_t before = frag_measure(f, node);
        for (uint32_t k = 0; k < n; k++)
            take_from(node, cards[k], mib);
        node->cpu_free -= cpu;
        return before - frag_measure(f, node);
    }
    int64_t drop = measure_several(f, node);
    for (uint32_t k = 0; k < n; k++) { /* other cards do not change */
        drop += measure_card(f, level, node, cards[k]);
        drop += take_from(node, cards[k], mib) * f->starved[level];
        drop -= measure_card(f, level, node, cards[k]);
    }
    node->cpu_free -= cpu;
    return drop - measure_several(f, node);
}
