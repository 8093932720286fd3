/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/nodewatch.h"

#include <stdlib.h>

#include "base/mem.h"

/*
 * Of each card is kept what is so and what was told. What differs is news, and stays so
 * until it is told or is over: so nothing is lost while nobody leads, while a limit holds
 * it back, or because something alike was told a moment ago.
 */

enum { CARDS_MAX = 2 * SCV_MAX_CARDS, WORD_BYTES = 768 };

/* A card, which is its UUID, or its index where that is not known. It stays when it is
 * gone: it may come back. */
struct seen_card {
    char *uuid;       /* owned; NULL: not known */
    int64_t since_ms; /* `lost` and `over` are so since then */
    int32_t index;
    uint32_t uuid_n;
    uint32_t total_mib, promised_mib; /* as far as they go: there are many of these */
    bool shown : 1;                   /* in this look */
    bool fresh : 1;                   /* for the first time */
    bool lost : 1, over : 1, told_lost : 1, told_over : 1;
    bool listed : 1; /* by ConfigMap */
    bool in_word : 1;
};

struct seen_node {
    struct span name; /* owned */
    struct seen_card *cards;
    size_t n, cap;
    int64_t paid_ms; /* see may_tell() */
    uint64_t look;
    struct seen_node *next;
};

struct nodewatch {
    struct map by_name;
    struct seen_node *nodes;
    uint64_t look;
    struct nodewatch_look now;
};

struct nodewatch *nodewatch_new(uint64_t seed)
{
    struct nodewatch *w = xcalloc(1, sizeof *w);
    map_init(&w->by_name, seed, offsetof(struct seen_node, name));
    return w;
}

static void seen_free(struct seen_node *seen)
{
    for (size_t i = 0; i < seen->n; i++)
        free(seen->cards[i].uuid);
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
    free(w);
}

void nodewatch_begin(struct nodewatch *w, const struct nodewatch_look *look)
{
    w->look++;
    w->now = *look;
}

/* -- what is so -- */

static struct seen_node *seen_of(struct nodewatch *w, struct span name)
{
    struct seen_node *seen = map_get(&w->by_name, name);
    if (seen)
        return seen;
    seen = xcalloc(1, sizeof *seen);
    seen->name = (struct span){xmemdup0(name.p, name.n), name.n};
    seen->paid_ms = INT64_MIN;
    seen->next = w->nodes;
    w->nodes = seen;
    map_set(&w->by_name, seen);
    return seen;
}

static struct span uuid_of(const struct seen_card *card)
{
    return (struct span){card->uuid, card->uuid_n};
}

/* As the ledger finds the card of a promise. Of several that had the index, the one that
 * came last; NULL: the card is new. */
static struct seen_card *card_of(struct seen_node *seen, const struct card *card)
{
    struct seen_card *by_index = NULL;
    for (size_t i = 0; i < seen->n; i++) {
        struct seen_card *before = &seen->cards[i];
        if (before->shown)
            continue;
        if (card->uuid.n && span_eq(uuid_of(before), card->uuid))
            return before;
        if (before->index == card->index && !(before->uuid && card->uuid.n))
            by_index = before;
    }
    return by_index;
}

static struct seen_card *card_add(struct seen_node *seen, int64_t now_ms)
{
    MEM_GROW(seen->cards, seen->cap, seen->n + 1);
    seen->cards[seen->n] = (struct seen_card){.fresh = true, .since_ms = now_ms};
    return &seen->cards[seen->n++];
}

static void settle(struct seen_card *seen, bool lost, bool over, int64_t now_ms)
{
    if (seen->lost != lost || seen->over != over)
        seen->since_ms = now_ms;
    seen->lost = lost;
    seen->over = over;
    seen->told_over &= over; /* that it has ended is not told */
}

static uint32_t capped(int64_t mib)
{
    return mib < 0 ? 0 : mib > UINT32_MAX ? UINT32_MAX : (uint32_t)mib;
}

static void take_card(struct nodewatch *w, struct seen_node *node,
                      const struct card *card)
{
    struct seen_card *seen = card_of(node, card);
    if (!seen)
        seen = card_add(node, w->now.now_ms);
    if (!seen->uuid && card->uuid.n)
        seen->uuid = xmemdup0(card->uuid.p, seen->uuid_n = (uint32_t)card->uuid.n);
    seen->shown = true;
    seen->index = card->index;
    seen->listed = card->state == CARD_LISTED;
    seen->total_mib = capped(card->total_mib);
    seen->promised_mib = capped(card->promised_mib);
    settle(seen, card->state == CARD_UNHEALTHY || card->state == CARD_LISTED, card->overcommitted,
           w->now.now_ms);
}

/* The other card that has the index, shown or not; NULL: there is none. */
static const struct seen_card *other_at(const struct seen_node *node,
                                        const struct seen_card *card, bool shown)
{
    for (size_t i = 0; i < node->n; i++) {
        const struct seen_card *other = &node->cards[i];
        if (other != card && other->index == card->index && other->shown == shown)
            return other;
    }
    return NULL;
}

/* A card that was not there before is no news, unless it is in the place of another of
 * which people have been told, or are about to be, that it is lost. */
static void welcome(const struct seen_node *node, struct seen_card *card)
{
    bool replaces = other_at(node, card, false) != NULL;
    card->told_lost = card->lost || replaces;
    card->told_over = card->over;
}

/* Who makes UUIDs up has an end of it. */
static void forget_cards(struct seen_node *node)
{
    for (size_t i = 0; node->n > CARDS_MAX && i < node->n;) {
        if (node->cards[i].shown) {
            i++;
            continue;
        }
        free(node->cards[i].uuid);
        memmove(&node->cards[i], &node->cards[i + 1],
                (--node->n - i) * sizeof *node->cards);
    }
}

void nodewatch_node(struct nodewatch *w, const struct ledger_node *node)
{
    struct seen_node *seen = seen_of(w, node->name);
    seen->look = w->look;
    for (size_t i = 0; i < seen->n; i++)
        seen->cards[i].shown = seen->cards[i].fresh = false;
    for (uint32_t i = 0; i < node->n_cards; i++)
        take_card(w, seen, &node->cards[i]);
    for (size_t i = 0; i < seen->n; i++) {
        struct seen_card *card = &seen->cards[i];
        if (card->fresh)
            welcome(seen, card);
        if (!card->shown)
            settle(card, true, false, w->now.now_ms);
    }
    forget_cards(seen);
}

/* -- what is told -- */

enum topic { LOST, BACK, OVER };

static bool is_news(const struct seen_card *card, enum topic topic)
{
    if (topic == OVER)
        return card->over && !card->told_over;
    return card->lost != card->told_lost && card->lost == (topic == LOST);
}

static void write_lost(const struct seen_node *node, const struct seen_card *card,
                       struct buf *out)
{
    buf_printf(out, "GPU%d", card->index);
    if (card->shown)
        buf_adds(out, card->listed ? " (taken out by ConfigMap)" : " (unhealthy)");
    else if (card->uuid && other_at(node, card, true))
        buf_printf(out, " (%.*s is gone, another card has its place)",
                   SPAN_ARG(uuid_of(card)));
    else
        buf_adds(out, " (not listed any more)");
}

static void write_back(const struct seen_node *node, const struct seen_card *card,
                       struct buf *out)
{
    buf_printf(out, "GPU%d", card->index);
    if (card->uuid && other_at(node, card, false))
        buf_printf(out, " (now %.*s)", SPAN_ARG(uuid_of(card)));
}

static void write_over(const struct seen_card *card, struct buf *out)
{
    buf_printf(out, "GPU%d has %u MiB, and %u are promised", card->index, card->total_mib,
               card->promised_mib);
}

/* As many cards as a note takes; the others make the next one. */
static void write_cards(struct seen_node *node, enum topic topic, struct buf *out)
{
    for (size_t i = 0; i < node->n; i++) {
        struct seen_card *card = &node->cards[i];
        card->in_word = is_news(card, topic) && out->n < WORD_BYTES;
        if (!card->in_word)
            continue;
        if (out->n)
            buf_adds(out, topic == OVER ? "; " : ", ");
        if (topic == LOST)
            write_lost(node, card, out);
        else if (topic == BACK)
            write_back(node, card, out);
        else
            write_over(card, out);
    }
}

static void mark_told(struct seen_node *node, enum topic topic)
{
    for (size_t i = 0; i < node->n; i++) {
        struct seen_card *card = &node->cards[i];
        if (card->in_word && topic == OVER)
            card->told_over = true;
        else if (card->in_word)
            card->told_lost = topic == LOST;
    }
}

/* A card that comes and goes all the time is told of NODEWATCH_BURST times, and then once
 * in NODEWATCH_EVERY_MS, by what is so then. */
static bool may_tell(struct seen_node *node, int64_t now_ms)
{
    int64_t from = now_ms - (int64_t)NODEWATCH_BURST * NODEWATCH_EVERY_MS;
    if (node->paid_ms < from)
        node->paid_ms = from;
    return node->paid_ms + NODEWATCH_EVERY_MS <= now_ms;
}

static void tell_topic(const struct nodewatch *w, struct seen_node *node,
                       enum topic topic)
{
    static const struct {
        const char *reason, *before, *after;
    } words[] = {
        [LOST] = {"GPULost", "no new pods on ",
                  "; what is promised there stays promised"},
        [BACK] = {"GPUBack", "new pods again on ", ""},
        [OVER] = {"GPUOvercommitted", "",
                  "; nothing new is promised there, and nobody is evicted"},
    };
    cleanup_buf struct buf cards = {0}, note = {0};
    write_cards(node, topic, &cards);
    if (!cards.n || !may_tell(node, w->now.now_ms))
        return;
    buf_adds(&note, words[topic].before);
    buf_add_span(&note, buf_span(&cards));
    buf_adds(&note, words[topic].after);
    struct event event = {.kind = EVENT_NODE,
                          .name = node->name,
                          .uid = node->name,
                          .warning = topic != BACK,
                          .reason = words[topic].reason,
                          .action = "WatchingCards",
                          .note = buf_span(&note)};
    if (!recorder_add(w->now.recorder, &event))
        return;
    node->paid_ms += NODEWATCH_EVERY_MS;
    mark_told(node, topic);
}

/* What another process has told, which has led for long enough after it was so. */
static void leave_to_other(const struct nodewatch *w, struct seen_node *node)
{
    for (size_t i = 0; i < node->n; i++) {
        struct seen_card *card = &node->cards[i];
        if (w->now.led_ms - NODEWATCH_OTHER_MS < card->since_ms)
            continue;
        card->told_lost = card->lost;
        card->told_over = card->over;
    }
}

/* Is something of it left to tell? */
static bool tell_node(const struct nodewatch *w, struct seen_node *node)
{
    bool left = false;
    if (w->now.recorder) {
        tell_topic(w, node, LOST);
        tell_topic(w, node, BACK);
        tell_topic(w, node, OVER);
    } else if (w->now.led_ms > 0) {
        leave_to_other(w, node);
    }
    for (size_t i = 0; i < node->n; i++)
        left |= is_news(&node->cards[i], LOST) || is_news(&node->cards[i], BACK) ||
                is_news(&node->cards[i], OVER);
    return left;
}

bool nodewatch_end(struct nodewatch *w)
{
    bool left = false;
    for (struct seen_node **at = &w->nodes; *at;) {
        struct seen_node *seen = *at;
        if (seen->look == w->look) {
            left |= tell_node(w, seen);
            at = &seen->next;
            continue;
        }
        *at = seen->next;
        map_remove(&w->by_name, seen->name);
        seen_free(seen);
    }
    return left;
}
