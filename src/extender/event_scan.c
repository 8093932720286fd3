/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/event_scan.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "domain/diagnosis.h"

/*
 * Keeps for each card, and for each pod whose annotations are forged, its state and what the
 * last Event reported. While the two differ, an Event is due. So no Event is lost while there
 * is no leader or while a rate limit is in force, and a state that returns to the reported one
 * needs none.
 */

enum { CARDS_MAX = 2 * SCV_MAX_CARDS, NOTE_BYTES = 768, SCAN_MS = 1000, FIRST_MS = 50 };

/* A card is identified by its UUID, or by its index if the UUID is not known. It stays
 * when the node does not list it any more, because it may come back. */
struct known_card {
    int64_t since_ms; /* last change of `lost` or `over` */
    char *uuid;       /* owned, without a NUL; NULL: not known */
    uint32_t uuid_n;
    int32_t index;
    const struct card *now; /* of the node that is scanned; NULL: not listed */
    bool fresh : 1;         /* first scan of the card */
    bool lost : 1, over : 1, reported_lost : 1, reported_over : 1;
    bool in_note : 1;
};

/* A node with its cards, or a pod with a difference. */
struct known {
    struct span key; /* its name, or UID; owned */
    uint64_t scan;   /* the last one with it; then it is forgotten */

    struct known_card *cards;
    size_t n, cap;
    int64_t budget_ms;   /* see within_limit() */
    uint64_t generation; /* of the node at its last scan, */
    bool settled;        /* ... which left nothing to report of it and its pods */

    struct buf text;  /* what differs */
    int64_t since_ms; /* last change of the text */
    int64_t wait_ms;  /* the text is reported this long after `since_ms` */
    int64_t again_ms; /* earliest next attempt */
    bool reported;
};

enum { NODES, PODS, KINDS };

struct event_scan {
    struct known_table {
        struct known **all; /* by key */
        size_t n, cap;
        size_t
            next; /* after the one that was last asked for: a scan asks for nodes in order */
    } known[KINDS];
    uint64_t scan; /* number of the current one */
    bool left;     /* an event is left to write */
    struct event_scan_settings now;
    struct buf text; /* of the pod being scanned */

    /* The thread. */
    struct core_driver *driver;
    struct event_recorder *recorder;
    struct worker *ticker;
    bool scanned;
    uint64_t generation; /* of the ledger at the last scan */
};

struct event_scan *event_scan_new(void)
{
    return xcalloc(1, sizeof(struct event_scan));
}

static void known_free(struct known *k)
{
    for (size_t i = 0; i < k->n; i++)
        free(k->cards[i].uuid);
    free(k->cards);
    buf_fini(&k->text);
    free((char *)k->key.p);
    free(k);
}

/* Forgets what is not in the last scan, or all. */
static void forget_known(struct event_scan *s, bool all)
{
    ARRAY_EACH_ITEM(struct known_table, t, s->known, KINDS)
    {
        size_t kept = 0;
        for (size_t i = 0; i < t->n; i++)
            if (!all && t->all[i]->scan == s->scan)
                t->all[kept++] = t->all[i];
            else
                known_free(t->all[i]);
        t->n = kept;
    }
}

void event_scan_free(struct event_scan *s)
{
    if (!s)
        return;
    forget_known(s, true);
    for (int kind = 0; kind < KINDS; kind++)
        free(s->known[kind].all);
    buf_fini(&s->text);
    worker_free(s->ticker);
    free(s);
}

static struct span uuid_of(const struct known_card *card)
{
    return (struct span){card->uuid, card->uuid_n};
}

static struct known *known_get(struct event_scan *s, int kind, struct span key)
{
    struct known_table *t = &s->known[kind];
    size_t at = t->next;
    if (at >= t->n || !span_eq(t->all[at]->key, key))
        at = ARRAY_LOWER_BOUND(k, t->all, t->n, span_cmp((*k)->key, key) < 0);
    if (at == t->n || !span_eq(t->all[at]->key, key)) {
        struct known *k = xcalloc(1, sizeof *k);
        k->key = (struct span){xmemdup0(key.p, key.n), key.n};
        k->budget_ms = INT64_MIN;
        *ARRAY_INSERT(t->all, t->n, t->cap, at) = k;
    }
    t->all[at]->scan = s->scan;
    t->next = at + 1;
    return t->all[at];
}

/* -- cards -- */

/* By the rule that finds the card of a promise in the ledger: UUID first, then index. Of
 * several with the index, the last one; NULL: the card is new. */
static struct known_card *card_of(struct known *node, const struct card *card)
{
    struct known_card *by_index = NULL;
    ARRAY_EACH_ITEM(struct known_card, before, node->cards, node->n)
    {
        if (before->now)
            continue;
        struct span uuid = uuid_of(before);
        if (card->uuid.n && span_eq(uuid, card->uuid))
            return before;
        if (before->index == card->index && !(uuid.n && card->uuid.n))
            by_index = before;
    }
    return by_index;
}

/* The other card with the same index, in this scan or not; NULL: none. */
static const struct known_card *other_at(const struct known *node,
                                         const struct known_card *card, bool listed)
{
    ARRAY_EACH_ITEM(const struct known_card, other, node->cards, node->n)
    {
        if (other != card && other->index == card->index && !other->now == !listed)
            return other;
    }
    return NULL;
}

static void set_state(struct known_card *card, bool lost, bool over, int64_t now_ms)
{
    if (card->lost != lost || card->over != over)
        card->since_ms = now_ms;
    card->lost = lost;
    card->over = over;
    card->reported_over &= over; /* the end of an overcommit is not reported */
}

static void take_cards(struct event_scan *s, struct known *known,
                       const struct ledger_node *node)
{
    const int64_t now_ms = s->now.now_ms;
    for (size_t i = 0; i < known->n; i++) {
        known->cards[i].now = NULL;
        known->cards[i].fresh = false;
    }
    ARRAY_EACH_ITEM(const struct card, card, node->cards, node->n_cards)
    {
        struct known_card *k = card_of(known, card);
        if (!k) {
            MEM_GROW(known->cards, known->cap, known->n + 1);
            k = &known->cards[known->n++];
            *k = (struct known_card){.fresh = true, .since_ms = now_ms};
        }
        if (!k->uuid && card->uuid.n) {
            k->uuid = memcpy(xmalloc(card->uuid.n), card->uuid.p, card->uuid.n);
            k->uuid_n = (uint32_t)card->uuid.n;
        }
        k->now = card;
        k->index = card->index;
        set_state(k, card->state == CARD_UNHEALTHY || card->state == CARD_EXCLUDED,
                  card->overcommitted, now_ms);
    }
    ARRAY_EACH_ITEM(struct known_card, k, known->cards, known->n)
    {
        /* A new card is not reported, unless it replaces another one at its index, whose
         * loss was or will be reported. */
        if (k->fresh) {
            k->reported_lost = k->lost || other_at(known, k, false);
            k->reported_over = k->over;
        } else if (!k->now) {
            set_state(k, true, false, now_ms);
        }
    }
    /* Bounds the memory of a node that reports ever new UUIDs. */
    for (size_t i = 0; known->n > CARDS_MAX && i < known->n;)
        if (known->cards[i].now) {
            i++;
        } else {
            free(known->cards[i].uuid);
            ARRAY_REMOVE(known->cards, known->n, i);
        }
}

/* -- events -- */

enum topic { LOST, BACK, OVER, TOPICS };

static bool is_due(const struct known_card *card, enum topic topic)
{
    if (topic == OVER)
        return card->over && !card->reported_over;
    return card->lost != card->reported_lost && card->lost == (topic == LOST);
}

static void write_card(const struct known *node, const struct known_card *card,
                       enum topic topic, struct buf *out)
{
    const struct card *now = card->now;
    const struct span uuid = uuid_of(card);
    struct disagreement over;
    if (out->n)
        buf_adds(out, topic == OVER ? "; " : ", ");
    if (topic == OVER && diagnosis_overcommit(now, &over)) {
        disagreement_write(out, NULL, &over);
        return;
    }
    buf_printf(out, "GPU%d", card->index);
    if (topic == BACK && uuid.n && other_at(node, card, false))
        buf_printf(out, " (now %.*s)", SPAN_ARG(uuid));
    else if (topic == LOST && now)
        buf_adds(out, now->state == CARD_EXCLUDED ? " (excluded by ConfigMap)"
                                                  : " (unhealthy)");
    else if (topic == LOST && uuid.n && other_at(node, card, true))
        buf_printf(out, " (%.*s was replaced by another card)", SPAN_ARG(uuid));
    else if (topic == LOST)
        buf_adds(out, " (no longer listed)");
}

/* Rate limit per node: EVENT_SCAN_BURST events at once, then one per
 * EVENT_SCAN_EVERY_MS. */
static bool within_limit(struct known *node, int64_t now_ms)
{
    int64_t from = now_ms - (int64_t)EVENT_SCAN_BURST * EVENT_SCAN_EVERY_MS;
    if (node->budget_ms < from)
        node->budget_ms = from;
    return node->budget_ms + EVENT_SCAN_EVERY_MS <= now_ms;
}

/* Writes as many cards as a note takes; the others go into the next event. */
static void report_topic(const struct event_scan *s, struct known *node, enum topic topic)
{
    static const struct {
        const char *reason, *before, *after;
    } words[TOPICS] = {
        [LOST] = {"GPULost", "no new pods are placed on ", "; existing promises stay"},
        [BACK] = {"GPUBack", "new pods are placed again on ", ""},
        [OVER] = {"GPUOvercommitted", "",
                  "; no new pods are placed there, and no pod is evicted"},
    };
    cleanup_buf struct buf cards = {0}, note = {0};
    ARRAY_EACH_ITEM(struct known_card, card, node->cards, node->n)
    {
        card->in_note = is_due(card, topic) && cards.n < NOTE_BYTES;
        if (card->in_note)
            write_card(node, card, topic, &cards);
    }
    if (!cards.n || !within_limit(node, s->now.now_ms))
        return;
    buf_adds(&note, words[topic].before);
    buf_add_span(&note, buf_span(&cards));
    buf_adds(&note, words[topic].after);
    struct event event = {.kind = EVENT_NODE,
                          .unique = true,
                          .name = node->key,
                          .uid = node->key,
                          .warning = topic != BACK,
                          .reason = words[topic].reason,
                          .action = "WatchingCards",
                          .note = buf_span(&note)};
    if (!event_recorder_add(s->now.recorder, &event))
        return;
    node->budget_ms += EVENT_SCAN_EVERY_MS;
    ARRAY_EACH_ITEM(struct known_card, card, node->cards, node->n)
    {
        if (card->in_note && topic == OVER)
            card->reported_over = true;
        else if (card->in_note)
            card->reported_lost = topic == LOST;
    }
}

/* Has another leader had the time to report a change? */
static bool is_told(const struct event_scan *s, int64_t since_ms)
{
    return !s->now.recorder && s->now.led_ms > 0 &&
           since_ms <= s->now.led_ms - EVENT_SCAN_OTHER_MS;
}

static void report_node(struct event_scan *s, struct known *node)
{
    for (enum topic topic = LOST; s->now.recorder && topic < TOPICS; topic++)
        report_topic(s, node, topic);
    ARRAY_EACH_ITEM(struct known_card, card, node->cards, node->n)
    {
        if (is_told(s, card->since_ms)) {
            card->reported_lost = card->lost;
            card->reported_over = card->over;
        }
        for (enum topic topic = LOST; topic < TOPICS; topic++)
            s->left |= is_due(card, topic);
    }
}

/* False: its annotations are forged. */
static bool scan_pod(struct event_scan *s, const struct ledger_pod *pod)
{
    const int64_t now_ms = s->now.now_ms;
    buf_clear(&s->text);
    if (!diagnosis_forged(&s->text, pod))
        return true;
    struct known *k = known_get(s, PODS, pod->uid);
    if (!span_eq(buf_span(&k->text), buf_span(&s->text))) {
        buf_set(&k->text, buf_span(&s->text));
        k->since_ms = now_ms;
        k->wait_ms = pod->differences ? 0 : EVENT_SCAN_CARDS_MS;
        k->again_ms = INT64_MIN;
        k->reported = false;
    }
    k->reported |= is_told(s, k->since_ms + k->wait_ms);
    if (!k->reported && s->now.recorder && now_ms >= k->since_ms + k->wait_ms &&
        now_ms >= k->again_ms) {
        struct event event = {.kind = EVENT_POD,
                              .ns = pod->ns,
                              .name = pod->name,
                              .uid = pod->uid,
                              .warning = true,
                              .reason = "GPUPromiseDiffers",
                              .action = "WatchingPromises",
                              .note = buf_span(&k->text)};
        k->reported = event_recorder_add(s->now.recorder, &event);
        k->again_ms = now_ms + EVENT_SCAN_AGAIN_MS;
    }
    s->left |= !k->reported;
    return false;
}

/* -- a scan -- */

void event_scan_begin(struct event_scan *s, const struct event_scan_settings *settings)
{
    s->scan++;
    s->left = false;
    s->now = *settings;
}

void event_scan_node(struct event_scan *s, const struct ledger_node *node)
{
    struct known *known = known_get(s, NODES, node->name);
    bool left = s->left;
    if (known->settled && known->generation == node->generation)
        return;
    s->left = false;
    take_cards(s, known, node);
    report_node(s, known);
    known->settled = !s->left;
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next)
        known->settled &= scan_pod(s, pod);
    known->generation = node->generation;
    s->left |= left;
}

bool event_scan_end(struct event_scan *s)
{
    forget_known(s, false);
    return s->left;
}

/* -- the thread -- */

static void scan_node(void *ctx, const struct ledger *l, const struct ledger_node *node)
{
    (void)l;
    event_scan_node(ctx, node);
}

/* Not before every kind of object has been listed: cards would seem to be lost. */
static void scan_ledger(void *ctx, void *job)
{
    struct event_scan *s = ctx;
    (void)job;
    const struct core *core = core_driver_read(s->driver);
    uint64_t generation = ledger_generation(core_ledger(core));
    struct step_time now = core_driver_now();
    bool ready = core_ready(core, now, NULL) == 0;
    struct event_scan_settings settings = {.now_ms = now.mono_ms,
                                           .recorder =
                                               core_is_leader(core) ? s->recorder : NULL,
                                           .led_ms = core_other_leader_ms(core)};
    core_driver_read_end(s->driver);
    if (!ready || (s->scanned && !s->left && generation == s->generation))
        return;
    event_scan_begin(s, &settings);
    view_source_each_node(core_driver_source(s->driver), scan_node, s);
    event_scan_end(s);
    if (!s->scanned)
        log_info("events",
                 "first scan of all cards complete; later changes are reported as "
                 "events");
    s->scanned = true;
    s->generation = generation;
}

static int64_t next_scan(void *ctx)
{
    const struct event_scan *s = ctx;
    return clock_mono_ms() + (s->scanned ? SCAN_MS : FIRST_MS);
}

void event_scan_start(struct event_scan *s, struct core_driver *driver,
                      struct event_recorder *recorder)
{
    s->driver = driver;
    s->recorder = recorder;
    s->ticker = worker_start("ticker", scan_ledger, s);
    worker_tick(s->ticker, next_scan);
}

void event_scan_stop(struct event_scan *s)
{
    if (s)
        worker_stop(s->ticker);
}
