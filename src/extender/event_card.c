/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/event_card.h"

#include <stdlib.h>

#include "base/mem.h"

/*
 * Keeps for each card its state and the state that the last Event reported. While the two
 * differ, an Event is due. So no Event is lost while there is no leader or while a rate
 * limit is in force, and a state that returns to the reported one needs none.
 */

enum { CARDS_MAX = 2 * SCV_MAX_CARDS, NOTE_BYTES = 768 };

/* A card is identified by its UUID, or by its index if the UUID is not known. It stays
 * when the node does not list it any more, because it may come back. */
struct known_card {
    int64_t since_ms; /* last change of `lost` or `overcommitted` */
    int32_t index;
    struct card_uuid uuid;            /* empty: not known */
    uint32_t total_mib, promised_mib; /* capped, to save memory per card */
    uint16_t core_promised;
    bool seen : 1;  /* in this scan */
    bool fresh : 1; /* first scan of the card */
    bool lost : 1, overcommitted : 1, reported_lost : 1, reported_overcommitted : 1;
    bool listed : 1; /* by ConfigMap */
    bool in_note : 1;
};

struct known_node {
    struct span name; /* owned */
    struct known_card *cards;
    size_t n, cap;
    int64_t budget_ms; /* see within_limit() */
    uint64_t scan;
    struct known_node *next;
};

struct event_card {
    struct map by_name;
    struct known_node *nodes;
    uint64_t scan; /* number of the current one */
    struct event_card_scan now;
};

struct event_card *event_card_new(uint64_t seed)
{
    struct event_card *w = xcalloc(1, sizeof *w);
    map_init(&w->by_name, seed, offsetof(struct known_node, name));
    return w;
}

static void node_free(struct known_node *node)
{
    for (size_t i = 0; i < node->n; i++)
        card_uuid_fini(&node->cards[i].uuid);
    free((char *)node->name.p);
    free(node->cards);
    free(node);
}

void event_card_free(struct event_card *w)
{
    if (!w)
        return;
    for (struct known_node *node = w->nodes, *next; node; node = next) {
        next = node->next;
        node_free(node);
    }
    map_fini(&w->by_name);
    free(w);
}

void event_card_begin(struct event_card *w, const struct event_card_scan *scan)
{
    w->scan++;
    w->now = *scan;
}

/* -- state -- */

static struct known_node *node_of(struct event_card *w, struct span name)
{
    struct known_node *node = map_get(&w->by_name, name);
    if (node)
        return node;
    node = xcalloc(1, sizeof *node);
    node->name = (struct span){xmemdup0(name.p, name.n), name.n};
    node->budget_ms = INT64_MIN;
    node->next = w->nodes;
    w->nodes = node;
    map_set(&w->by_name, node);
    return node;
}

/* By the rule that finds the card of a promise in the ledger: UUID first, then index. Of
 * several with the index, the last one; NULL: the card is new. */
static struct known_card *card_of(struct known_node *node, const struct card *card)
{
    struct known_card *by_index = NULL;
    for (size_t i = 0; i < node->n; i++) {
        struct known_card *before = &node->cards[i];
        if (before->seen)
            continue;
        char text[CARD_UUID_TEXT];
        struct span uuid = card_uuid_text(&before->uuid, text);
        if (card->uuid.n && span_eq(uuid, card->uuid))
            return before;
        if (before->index == card->index && !(uuid.n && card->uuid.n))
            by_index = before;
    }
    return by_index;
}

static struct known_card *card_add(struct known_node *node, int64_t now_ms)
{
    MEM_GROW(node->cards, node->cap, node->n + 1);
    node->cards[node->n] = (struct known_card){.fresh = true, .since_ms = now_ms};
    return &node->cards[node->n++];
}

static void set_state(struct known_card *known, bool lost, bool overcommitted,
                      int64_t now_ms)
{
    if (known->lost != lost || known->overcommitted != overcommitted)
        known->since_ms = now_ms;
    known->lost = lost;
    known->overcommitted = overcommitted;
    /* The end of an overcommit is not reported. */
    known->reported_overcommitted &= overcommitted;
}

static uint32_t capped(int64_t mib)
{
    return mib < 0 ? 0 : mib > UINT32_MAX ? UINT32_MAX : (uint32_t)mib;
}

static void take_card(struct event_card *w, struct known_node *node,
                      const struct card *card)
{
    struct known_card *known = card_of(node, card);
    if (!known)
        known = card_add(node, w->now.now_ms);
    if (card_uuid_is_empty(&known->uuid))
        known->uuid = card_uuid_of(card->uuid);
    known->seen = true;
    known->index = card->index;
    known->listed = card->state == CARD_LISTED;
    known->total_mib = capped(card->total_mib);
    known->promised_mib = capped(card->promised_mib);
    known->core_promised = card->core_promised;
    set_state(known, card->state == CARD_UNHEALTHY || card->state == CARD_LISTED,
              card->overcommitted, w->now.now_ms);
}

/* The other card with the same index, in this scan or not; NULL: none. */
static const struct known_card *other_at(const struct known_node *node,
                                         const struct known_card *card, bool seen)
{
    for (size_t i = 0; i < node->n; i++) {
        const struct known_card *other = &node->cards[i];
        if (other != card && other->index == card->index && other->seen == seen)
            return other;
    }
    return NULL;
}

/* A new card is not reported, unless it replaces another one at its index, whose loss was
 * or will be reported. */
static void init_reported(const struct known_node *node, struct known_card *card)
{
    bool replaces = other_at(node, card, false) != NULL;
    card->reported_lost = card->lost || replaces;
    card->reported_overcommitted = card->overcommitted;
}

/* Bounds the memory of a node that reports ever new UUIDs. */
static void forget_cards(struct known_node *node)
{
    for (size_t i = 0; node->n > CARDS_MAX && i < node->n;) {
        if (node->cards[i].seen) {
            i++;
            continue;
        }
        card_uuid_fini(&node->cards[i].uuid);
        memmove(&node->cards[i], &node->cards[i + 1],
                (--node->n - i) * sizeof *node->cards);
    }
}

void event_card_node(struct event_card *w, const struct ledger_node *node)
{
    struct known_node *known = node_of(w, node->name);
    known->scan = w->scan;
    for (size_t i = 0; i < known->n; i++)
        known->cards[i].seen = known->cards[i].fresh = false;
    for (uint32_t i = 0; i < node->n_cards; i++)
        take_card(w, known, &node->cards[i]);
    for (size_t i = 0; i < known->n; i++) {
        struct known_card *card = &known->cards[i];
        if (card->fresh)
            init_reported(known, card);
        if (!card->seen)
            set_state(card, true, false, w->now.now_ms);
    }
    forget_cards(known);
}

/* -- events -- */

enum topic { LOST, BACK, OVER };

static bool is_due(const struct known_card *card, enum topic topic)
{
    if (topic == OVER)
        return card->overcommitted && !card->reported_overcommitted;
    return card->lost != card->reported_lost && card->lost == (topic == LOST);
}

static void write_lost(const struct known_node *node, const struct known_card *card,
                       struct buf *out)
{
    char text[CARD_UUID_TEXT];
    struct span uuid = card_uuid_text(&card->uuid, text);
    buf_printf(out, "GPU%d", card->index);
    if (card->seen)
        buf_adds(out, card->listed ? " (excluded by ConfigMap)" : " (unhealthy)");
    else if (uuid.n && other_at(node, card, true))
        buf_printf(out, " (%.*s was replaced by another card)", SPAN_ARG(uuid));
    else
        buf_adds(out, " (no longer listed)");
}

static void write_back(const struct known_node *node, const struct known_card *card,
                       struct buf *out)
{
    char text[CARD_UUID_TEXT];
    struct span uuid = card_uuid_text(&card->uuid, text);
    buf_printf(out, "GPU%d", card->index);
    if (uuid.n && other_at(node, card, false))
        buf_printf(out, " (now %.*s)", SPAN_ARG(uuid));
}

static void write_over(const struct known_card *card, struct buf *out)
{
    if (card->promised_mib <= card->total_mib && card->core_promised > REQUEST_CORE)
        buf_printf(out, "GPU%d: %u %% of its compute are promised", card->index,
                   card->core_promised);
    else
        buf_printf(out, "GPU%d has %u MiB, but %u MiB are promised", card->index,
                   card->total_mib, card->promised_mib);
}

/* Writes as many cards as a note takes; the others go into the next event. */
static void write_cards(struct known_node *node, enum topic topic, struct buf *out)
{
    for (size_t i = 0; i < node->n; i++) {
        struct known_card *card = &node->cards[i];
        card->in_note = is_due(card, topic) && out->n < NOTE_BYTES;
        if (!card->in_note)
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

static void mark_reported(struct known_node *node, enum topic topic)
{
    for (size_t i = 0; i < node->n; i++) {
        struct known_card *card = &node->cards[i];
        if (card->in_note && topic == OVER)
            card->reported_overcommitted = true;
        else if (card->in_note)
            card->reported_lost = topic == LOST;
    }
}

/* Rate limit per node: EVENT_CARD_BURST events at once, then one per
 * EVENT_CARD_EVERY_MS. */
static bool within_limit(struct known_node *node, int64_t now_ms)
{
    int64_t from = now_ms - (int64_t)EVENT_CARD_BURST * EVENT_CARD_EVERY_MS;
    if (node->budget_ms < from)
        node->budget_ms = from;
    return node->budget_ms + EVENT_CARD_EVERY_MS <= now_ms;
}

static void report_topic(const struct event_card *w, struct known_node *node,
                         enum topic topic)
{
    static const struct {
        const char *reason, *before, *after;
    } words[] = {
        [LOST] = {"GPULost", "no new pods are placed on ", "; existing promises stay"},
        [BACK] = {"GPUBack", "new pods are placed again on ", ""},
        [OVER] = {"GPUOvercommitted", "",
                  "; no new pods are placed there, and no pod is evicted"},
    };
    cleanup_buf struct buf cards = {0}, note = {0};
    write_cards(node, topic, &cards);
    if (!cards.n || !within_limit(node, w->now.now_ms))
        return;
    buf_adds(&note, words[topic].before);
    buf_add_span(&note, buf_span(&cards));
    buf_adds(&note, words[topic].after);
    struct event event = {.kind = EVENT_NODE,
                          .unique = true,
                          .name = node->name,
                          .uid = node->name,
                          .warning = topic != BACK,
                          .reason = words[topic].reason,
                          .action = "WatchingCards",
                          .note = buf_span(&note)};
    if (!event_recorder_add(w->now.recorder, &event))
        return;
    node->budget_ms += EVENT_CARD_EVERY_MS;
    mark_reported(node, topic);
}

/* Takes changes as reported that another leader has had time to report. */
static void assume_reported(const struct event_card *w, struct known_node *node)
{
    for (size_t i = 0; i < node->n; i++) {
        struct known_card *card = &node->cards[i];
        if (w->now.led_ms - EVENT_CARD_OTHER_MS < card->since_ms)
            continue;
        card->reported_lost = card->lost;
        card->reported_overcommitted = card->overcommitted;
    }
}

/* True: an event of the node is left to write. */
static bool report_node(const struct event_card *w, struct known_node *node)
{
    bool left = false;
    if (w->now.recorder) {
        report_topic(w, node, LOST);
        report_topic(w, node, BACK);
        report_topic(w, node, OVER);
    } else if (w->now.led_ms > 0) {
        assume_reported(w, node);
    }
    for (size_t i = 0; i < node->n; i++)
        left |= is_due(&node->cards[i], LOST) || is_due(&node->cards[i], BACK) ||
                is_due(&node->cards[i], OVER);
    return left;
}

bool event_card_end(struct event_card *w)
{
    bool left = false;
    for (struct known_node **at = &w->nodes; *at;) {
        struct known_node *node = *at;
        if (node->scan == w->scan) {
            left |= report_node(w, node);
            at = &node->next;
            continue;
        }
        *at = node->next;
        map_remove(&w->by_name, node->name);
        node_free(node);
    }
    return left;
}
