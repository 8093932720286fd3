/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/nodewatch.h"

#include <stdlib.h>

#include "base/mem.h"

/* A card as it was seen last. It stays when it is gone: it may come back. */
struct seen_card {
    int32_t index;
    bool lost, over;
    bool shown; /* in this look */
};

struct seen_node {
    struct span name; /* owned */
    struct seen_card *cards;
    size_t n, cap;
    uint64_t look;
    struct seen_node *next;
};

/* What is told at the end of the look, when no lock is held. */
struct word {
    struct span node; /* of the seen node, which stays until then */
    bool warning;
    const char *reason;
    char *note;
};

struct nodewatch {
    struct map by_name;
    struct seen_node *nodes;
    uint64_t look;
    struct recorder *recorder;
    struct word *words;
    size_t n_words, words_cap;
};

struct nodewatch *nodewatch_new(uint64_t seed)
{
    struct nodewatch *w = xcalloc(1, sizeof *w);
    map_init(&w->by_name, seed, offsetof(struct seen_node, name));
    return w;
}

static void seen_free(struct seen_node *seen)
{
    free((char *)seen->name.p);
    free(seen->cards);
    free(seen);
}

void nodewatch_free(struct nodewatch *w)
{
    if (!w)
        return;
    for (struct seen_node *seen = w->nodes, *next; seen; seen = next) {
        next = seen->next;
        seen_free(seen);
    }
    map_fini(&w->by_name);
    free(w->words);
    free(w);
}

void nodewatch_begin(struct nodewatch *w, struct recorder *recorder)
{
    w->look++;
    w->recorder = recorder;
}

static struct seen_node *seen_of(struct nodewatch *w, struct span name)
{
    struct seen_node *seen = map_get(&w->by_name, name);
    if (seen)
        return seen;
    seen = xcalloc(1, sizeof *seen);
    seen->name = (struct span){xmemdup0(name.p, name.n), name.n};
    seen->next = w->nodes;
    w->nodes = seen;
    map_set(&w->by_name, seen);
    return seen;
}

/* NULL: the card is new. */
static struct seen_card *card_of(struct seen_node *seen, int32_t index)
{
    for (size_t i = 0; i < seen->n; i++)
        if (seen->cards[i].index == index)
            return &seen->cards[i];
    return NULL;
}

/* What there is to tell of one node; empty: nothing. */
struct news {
    struct buf lost, back, over;
};

static void add(struct buf *out, const char *separator, int32_t index, const char *what)
{
    buf_printf(out, "%sGPU%d%s", out->n ? separator : "", index, what);
}

static const char *why_lost(const struct card *card)
{
    return card->out == CARD_LISTED ? " (taken out by ConfigMap)" : " (unhealthy)";
}

static void compare_card(struct seen_node *seen, const struct card *card,
                         struct news *news)
{
    bool lost = card->out == CARD_UNHEALTHY || card->out == CARD_LISTED;
    struct seen_card *before = card_of(seen, card->index);
    if (!before) {
        MEM_GROW(seen->cards, seen->cap, seen->n + 1);
        before = &seen->cards[seen->n++];
        *before = (struct seen_card){card->index, lost, card->over, true};
        return;
    }
    if (lost && !before->lost)
        add(&news->lost, ", ", card->index, why_lost(card));
    if (!lost && before->lost)
        add(&news->back, ", ", card->index, "");
    if (card->over && !before->over)
        buf_printf(&news->over, "%sGPU%d has %lld MiB, and %lld are promised",
                   news->over.n ? "; " : "", card->index, (long long)card->total_mib,
                   (long long)card->promised_mib);
    *before = (struct seen_card){card->index, lost, card->over, true};
}

static void add_word(struct nodewatch *w, const struct seen_node *seen, bool warning,
                     const char *reason, const char *before, struct buf *what,
                     const char *after)
{
    if (what->n && w->recorder) {
        MEM_GROW(w->words, w->words_cap, w->n_words + 1);
        w->words[w->n_words++] = (struct word){
            seen->name, warning, reason, xasprintf("%s%s%s", before, what->p, after)};
    }
    buf_fini(what);
}

void nodewatch_node(struct nodewatch *w, const struct ledger_node *node)
{
    struct seen_node *seen = seen_of(w, node->name);
    struct news news = {0};
    seen->look = w->look;
    for (size_t i = 0; i < seen->n; i++)
        seen->cards[i].shown = false;
    for (uint32_t i = 0; i < node->n_cards; i++)
        compare_card(seen, &node->cards[i], &news);
    for (size_t i = 0; i < seen->n; i++) {
        struct seen_card *card = &seen->cards[i];
        if (!card->shown && !card->lost)
            add(&news.lost, ", ", card->index, " (not listed any more)");
        card->lost |= !card->shown;
    }
    add_word(w, seen, true, "GPULost", "no new pods on ", &news.lost,
             "; what is promised there stays promised");
    add_word(w, seen, false, "GPUBack", "new pods again on ", &news.back, "");
    add_word(w, seen, true, "GPUOvercommitted", "", &news.over,
             "; nothing new is promised there, and nobody is evicted");
}

static void tell(struct nodewatch *w)
{
    for (size_t i = 0; i < w->n_words; i++) {
        struct word *word = &w->words[i];
        struct event event = {.kind = EVENT_NODE,
                              .name = word->node,
                              .uid = word->node,
                              .warning = word->warning,
                              .reason = word->reason,
                              .action = "WatchingCards",
                              .note = span_of(word->note)};
        recorder_add(w->recorder, &event);
        free(word->note);
    }
    w->n_words = 0;
}

void nodewatch_end(struct nodewatch *w)
{
    tell(w);
    for (struct seen_node **at = &w->nodes; *at;) {
        struct seen_node *seen = *at;
        if (seen->look == w->look) {
            at = &seen->next;
            continue;
        }
        *at = seen->next;
        map_remove(&w->by_name, seen->name);
        seen_free(seen);
    }
}
