/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connections of a node's cards. For each set of the cards of a node, the best ring is computed
 * once: 2^n sets, for each width that occurs. On nodes for which that is too much (is_bounded),
 * rings are found when they are asked for.
 */
#include "domain/links.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { LARGE_MAX = 8, WIDTHS_MAX = 12 };

struct links {
    struct list link;
    size_t refs;
    unsigned n;
    uint8_t width[LINKS_MAX_CARDS][LINKS_MAX_CARDS];
    int32_t numa[LINKS_MAX_CARDS];
    uint32_t same_numa[LINKS_MAX_CARDS]; /* of each card: the others on its NUMA node */
    /* By set; NULL unless is_bounded. */
    uint8_t *ring;
    uint16_t *worth;
    struct links_set *sets; /* by their number of cards, then as links_sets has them */
    uint32_t from[LINKS_EXACT + 2]; /* of each number of cards, the first of sets */
};

/* -- words -- */

static const char *const words[] = {
    [LINK_UNKNOWN] = "", [LINK_SYS] = "SYS", [LINK_NODE] = "NODE", [LINK_PHB] = "PHB",
    [LINK_PXB] = "PXB",  [LINK_PIX] = "PIX", [LINK_NV] = "NV"};

uint8_t link_width(struct span word)
{
    unsigned number = 0;
    if (span_eq(word, SPAN("X")))
        return LINK_MAX;
    for (uint8_t i = LINK_SYS; i < LINK_NV; i++)
        if (span_eq(word, span_of(words[i])))
            return i;
    if (word.n < 3 || word.n > 5 || word.p[0] != 'N' || word.p[1] != 'V' ||
        word.p[2] == '0')
        return LINK_UNKNOWN;
    for (size_t i = 2; i < word.n; i++) {
        if (word.p[i] < '0' || word.p[i] > '9')
            return LINK_UNKNOWN;
        number = number * 10 + (unsigned)(word.p[i] - '0');
    }
    return number < LINK_MAX - LINK_NV ? (uint8_t)(LINK_NV + number) : LINK_UNKNOWN;
}

const char *link_word(uint8_t width, char text[static 8])
{
    if (width == LINK_MAX)
        snprintf(text, 8, "X");
    else if (width > LINK_NV)
        snprintf(text, 8, "NV%d", width - LINK_NV);
    else
        snprintf(text, 8, "%s", words[width]);
    return text;
}

/* -- rings -- */

/* Cards 0..n-1, of which some pairs are connected. ends[set]: where a path can end that visits
 * the set and begins with its lowest card. */
static void find_paths(const uint16_t *connected, unsigned n, uint16_t *ends)
{
    for (uint32_t set = 1; set < UINT32_C(1) << n; set++) {
        uint32_t rest = set & (set - 1);
        ends[set] = rest ? 0 : (uint16_t)set;
        for (uint32_t left = rest; left; left &= left - 1) {
            uint32_t last = left & -left;
            if (ends[set ^ last] & connected[__builtin_ctz(last)])
                ends[set] |= (uint16_t)last;
        }
    }
}

/* Where the last card of a ring can be: connected to the lowest card of the set. */
static uint32_t ring_ends(const uint16_t *connected, const uint16_t *ends, uint32_t set)
{
    return ends[set] & connected[__builtin_ctz(set)];
}

/* The cards of a set, of at most LINKS_EXACT, by their position in it. */
struct subset {
    unsigned n;
    uint8_t card[LINKS_EXACT];
    bool occurs[LINK_MAX + 1]; /* the width of a pair */
};

static void take_subset(const struct links *l, uint32_t set, struct subset *s)
{
    *s = (struct subset){0};
    for (; set; set &= set - 1)
        s->card[s->n++] = (uint8_t)__builtin_ctz(set);
    for (unsigned i = 0; i < s->n; i++)
        for (unsigned k = 0; k < i; k++)
            s->occurs[l->width[s->card[i]][s->card[k]]] = true;
}

static void connect(const struct links *l, const struct subset *s, int least,
                    uint16_t connected[LINKS_EXACT])
{
    for (unsigned i = 0; i < s->n; i++) {
        connected[i] = 0;
        for (unsigned k = 0; k < s->n; k++)
            if (i != k && l->width[s->card[i]][s->card[k]] >= least)
                connected[i] |= (uint16_t)(1 << k);
    }
}

/* From each card to the one that is connected best. */
static uint8_t greedy_ring(const struct links *l, uint32_t set, uint8_t *order)
{
    unsigned first = (unsigned)__builtin_ctz(set), at = first, n = 0;
    uint8_t narrowest = LINK_MAX;
    for (set &= set - 1;; set &= ~(UINT32_C(1) << at)) {
        unsigned next = first;
        if (order)
            order[n++] = (uint8_t)at;
        for (uint32_t left = set; left; left &= left - 1) {
            unsigned card = (unsigned)__builtin_ctz(left);
            if (next == first || l->width[at][card] > l->width[at][next])
                next = card;
        }
        narrowest = l->width[at][next] < narrowest ? l->width[at][next] : narrowest;
        if (!set)
            return narrowest;
        at = next;
    }
}

uint8_t links_ring_order(const struct links *l, uint32_t set, uint8_t *order)
{
    if (__builtin_popcount(set) > (l->ring ? LINKS_EXACT : LINKS_SMALL))
        return greedy_ring(l, set, order);
    struct subset s;
    take_subset(l, set, &s);
    if (s.n < 2) {
        if (order && s.n)
            order[0] = s.card[0];
        return LINK_MAX;
    }
    uint16_t connected[LINKS_EXACT];
    cleanup_free uint16_t *ends = xcalloc(UINT32_C(1) << s.n, sizeof *ends);
    uint32_t all = (UINT32_C(1) << s.n) - 1, last = 0;
    int width = LINK_MAX;
    while (!last) { /* SYS connects all */
        while (!s.occurs[--width])
            ;
        connect(l, &s, width, connected);
        find_paths(connected, s.n, ends);
        last = ring_ends(connected, ends, all);
    }
    /* Backwards: before `last`, the path ended at a card that is connected to it. The highest of
     * several leaves the cards in their order where all are connected alike. */
    for (unsigned i = s.n; order && i--;) {
        unsigned card = 31 - (unsigned)__builtin_clz(last);
        order[i] = s.card[card];
        all ^= UINT32_C(1) << card;
        last = all ? ends[all] & connected[card] : 0;
    }
    return (uint8_t)width;
}

/* -- every set of a node -- */

static void find_rings(struct links *l)
{
    struct subset all;
    const uint32_t sets = UINT32_C(1) << l->n;
    uint16_t connected[LINKS_EXACT];
    cleanup_free uint16_t *ends = xcalloc(sets, sizeof *ends);
    take_subset(l, sets - 1, &all);
    l->ring = xcalloc(sets, sizeof *l->ring);
    for (int width = LINK_MAX - 1; width > LINK_UNKNOWN; width--) {
        if (!all.occurs[width])
            continue;
        connect(l, &all, width, connected);
        find_paths(connected, l->n, ends);
        for (uint32_t set = 1; set < sets; set++)
            if (!l->ring[set] && ring_ends(connected, ends, set))
                l->ring[set] = (uint8_t)width;
    }
    for (unsigned i = 0; i < l->n; i++)
        l->ring[UINT32_C(1) << i] = LINK_MAX;
}

static void find_worth(struct links *l)
{
    const uint32_t sets = UINT32_C(1) << l->n;
    const unsigned sizes = l->n + 1;
    /* The best ring of each size in a set: its own, or one without one of its cards. */
    cleanup_free uint8_t *best = xcalloc((size_t)sets * sizes, 1);
    l->worth = xcalloc(sets, sizeof *l->worth);
    for (uint32_t set = 1; set < sets; set++) {
        uint8_t *own = best + (size_t)set * sizes;
        unsigned size = (unsigned)__builtin_popcount(set);
        for (uint32_t left = set; left; left &= left - 1) {
            const uint8_t *less = best + (size_t)(set ^ (left & -left)) * sizes;
            for (unsigned k = 2; k < size; k++)
                own[k] = less[k] > own[k] ? less[k] : own[k];
        }
        own[size] = l->ring[set];
        for (unsigned k = 2; k <= size; k *= 2)
            l->worth[set] = (uint16_t)(l->worth[set] + own[k]);
    }
}

static int compare_sets(const void *a, const void *b)
{
    const struct links_set *x = a, *y = b;
    uint32_t differ = x->cards ^ y->cards;
    int by_size = __builtin_popcount(x->cards) - __builtin_popcount(y->cards);
    if (by_size || x->rank != y->rank)
        return by_size ?: x->rank < y->rank ? 1 : -1;
    return x->cards & (differ & -differ) ? -1 : 1;
}

static void find_sets(struct links *l)
{
    const uint32_t n = UINT32_C(1) << l->n;
    l->sets = xcalloc(n, sizeof *l->sets);
    for (uint32_t set = 1; set < n; set++) {
        l->sets[set] = (struct links_set){links_rank(l, set), set};
        l->from[__builtin_popcount(set) + 1]++;
    }
    l->from[1] = 1; /* behind the empty set */
    for (unsigned k = 1; k <= l->n; k++)
        l->from[k + 1] += l->from[k];
    qsort(l->sets, n, sizeof *l->sets, compare_sets);
}

/* May every set of the cards be worked out? That takes up to 0.1 s and 0.8 MB with more than
 * LINKS_SMALL cards, and the words are written on the node. */
static bool is_bounded(const struct list *pool, const struct links *new)
{
    unsigned large = 0, widths = 0;
    struct subset all;
    if (new->n <= LINKS_SMALL || new->n > LINKS_EXACT)
        return new->n <= LINKS_SMALL;
    take_subset(new, (UINT32_C(1) << new->n) - 1, &all);
    for (int i = 0; i < LINK_MAX; i++)
        widths += all.occurs[i];
    LIST_EACH(const struct links, l, pool, link)
    large += l->ring && l->n > LINKS_SMALL;
    return widths <= WIDTHS_MAX && large < LARGE_MAX;
}

static bool is_equal(const struct links *a, const struct links *b)
{
    return a->n == b->n && !memcmp(a->width, b->width, sizeof a->width) &&
           !memcmp(a->numa, b->numa, sizeof a->numa);
}

const struct links *links_take(struct list *pool, const uint8_t *widths,
                               const int32_t *numa, unsigned n)
{
    struct links new = {.refs = 1, .n = n};
    if (n < 2 || n > LINKS_MAX_CARDS)
        return NULL;
    memcpy(new.numa, numa, n * sizeof *numa);
    for (unsigned i = 0; i < n; i++)
        for (unsigned k = 0; k < n; k++) {
            uint8_t there = widths[i * n + k], back = widths[k * n + i];
            new.width[i][k] = i == k ? LINK_MAX : there < back ? there : back;
            if (!new.width[i][k] || (i != k && new.width[i][k] == LINK_MAX))
                return NULL;
            if (i != k && numa[i] >= 0 && numa[i] == numa[k])
                new.same_numa[i] |= UINT32_C(1) << k;
        }
    LIST_EACH(struct links, l, pool, link)
    if (is_equal(l, &new)) {
        l->refs++;
        return l;
    }
    struct links *l = xmalloc(sizeof *l);
    *l = new;
    bool bounded = is_bounded(pool, l);
    list_append(pool, &l->link);
    if (bounded) {
        find_rings(l);
        find_worth(l);
        find_sets(l);
    }
    return l;
}

void links_release(const struct links *links)
{
    struct links *l = (struct links *)links;
    if (!l || --l->refs)
        return;
    list_remove(&l->link);
    free(l->ring);
    free(l->worth);
    free(l->sets);
    free(l);
}

unsigned links_cards(const struct links *l)
{
    return l->n;
}

uint8_t links_pair(const struct links *l, unsigned a, unsigned b)
{
    return l->width[a][b];
}

int32_t links_numa(const struct links *l, unsigned card)
{
    return l->numa[card];
}

uint8_t links_ring(const struct links *l, uint32_t set)
{
    return l->ring ? l->ring[set] : links_ring_order(l, set, NULL);
}

const struct links_set *links_sets(const struct links *l, unsigned k, uint32_t *n)
{
    if (!l->sets)
        return NULL;
    *n = k <= l->n ? l->from[k + 1] - l->from[k] : 0;
    return l->sets + l->from[k <= l->n ? k : 0];
}

uint32_t links_worth(const struct links *l, uint32_t free)
{
    return l->worth ? l->worth[free] : 0;
}

uint8_t links_narrowest(const struct links *l, uint32_t set)
{
    uint8_t least = LINK_MAX;
    for (; set; set &= set - 1)
        for (uint32_t rest = set & (set - 1); rest; rest &= rest - 1) {
            uint8_t w = l->width[__builtin_ctz(set)][__builtin_ctz(rest)];
            least = w < least ? w : least;
        }
    return least;
}

uint32_t links_sum(const struct links *l, uint32_t set)
{
    enum { PAIRS = 1 << 9 }; /* more than a set has */
    uint32_t sum = 0;
    for (; set; set &= set - 1) {
        unsigned card = (unsigned)__builtin_ctz(set);
        uint32_t rest = set & (set - 1);
        sum += (uint32_t)__builtin_popcount(rest & l->same_numa[card]);
        for (; rest; rest &= rest - 1)
            sum += PAIRS * l->width[card][__builtin_ctz(rest)];
    }
    return sum;
}

uint32_t links_rank(const struct links *l, uint32_t set)
{
    enum { SUM_BITS = 24 }; /* any set of LINKS_EXACT cards has less */
    uint32_t sum = links_sum(l, set), most = (1 << SUM_BITS) - 1;
    return (uint32_t)links_ring(l, set) << SUM_BITS | (sum < most ? sum : most);
}
