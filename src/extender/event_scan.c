/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/event_scan.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

/*
 * Keeps for each card, and for each pod whose annotations are forged, its state and what the
 * last Event reported. While the two differ, an Event is due. So no Event is lost while there
 * is no leader or while a rate limit is in force, and a state that returns to the reported one
 * needs none.
 */

enum { CARDS_MAX = 2 * SCV_MAX_CARDS, NOTE_BYTES = 768 };

/* A card is identified by its UUID, or by its index if the UUID is not known. It stays
 * when the node does not list it any more, because it may come back. */
struct known_card {
    int64_t since_ms; /* last change of `lost` or `overcommitted` */
    int32_t index;
    char *uuid;                       /* owned; NULL: not known */
    uint32_t total_mib, promised_mib; /* capped, to save memory per card */
    uint16_t compute_promised;
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
};

/* A pod with a difference. Pods without one are forgotten at the end of a scan. */
struct known_pod {
    struct span uid, ns, name; /* in `strings` */
    char *strings;             /* owned */
    struct buf text;           /* what differs */
    int64_t since_ms;          /* last change of the text */
    int64_t wait_ms;           /* the text is reported this long after `since_ms` */
    int64_t again_ms;          /* earliest next attempt */
    uint64_t scan;
    bool reported;
};

struct event_scan {
    struct known_node **nodes; /* by name */
    struct known_pod **pods;   /* by UID */
    size_t n_nodes, nodes_cap, n_pods, pods_cap;
    struct buf text; /* of the pod being scanned */
    uint64_t scan;   /* number of the current one */
    struct event_scan_settings now;
};

struct event_scan *event_scan_new(void)
{
    return xcalloc(1, sizeof(struct event_scan));
}

static void node_free(struct known_node *node)
{
    for (size_t i = 0; i < node->n; i++)
        free(node->cards[i].uuid);
    free((char *)node->name.p);
    free(node->cards);
    free(node);
}

static void pod_free(struct known_pod *pod)
{
    free(pod->strings);
    buf_fini(&pod->text);
    free(pod);
}

void event_scan_free(struct event_scan *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n_nodes; i++)
        node_free(s->nodes[i]);
    for (size_t i = 0; i < s->n_pods; i++)
        pod_free(s->pods[i]);
    free(s->nodes);
    free(s->pods);
    buf_fini(&s->text);
    free(s);
}

/* -- cards -- */

static struct known_node *node_of(struct event_scan *s, struct span name)
{
    size_t at =
        ARRAY_LOWER_BOUND(k, s->nodes, s->n_nodes, span_cmp((*k)->name, name) < 0);
    if (at < s->n_nodes && span_eq(s->nodes[at]->name, name))
        return s->nodes[at];
    struct known_node *node = xcalloc(1, sizeof *node);
    node->name = (struct span){xmemdup0(name.p, name.n), name.n};
    node->budget_ms = INT64_MIN;
    *ARRAY_INSERT(s->nodes, s->n_nodes, s->nodes_cap, at) = node;
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
        struct span uuid = span_of(before->uuid);
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

static void take_card(struct event_scan *s, struct known_node *node,
                      const struct card *card)
{
    struct known_card *known = card_of(node, card);
    if (!known)
        known = card_add(node, s->now.now_ms);
    if (!known->uuid && card->uuid.n)
        known->uuid = xmemdup0(card->uuid.p, card->uuid.n);
    known->seen = true;
    known->index = card->index;
    known->listed = card->state == CARD_LISTED;
    known->total_mib = capped(card->total_mib);
    known->promised_mib = capped(card->promised_mib);
    known->compute_promised = card->compute_promised;
    set_state(known, card->state == CARD_UNHEALTHY || card->state == CARD_LISTED,
              card->overcommitted, s->now.now_ms);
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
        free(node->cards[i].uuid);
        memmove(&node->cards[i], &node->cards[i + 1],
                (--node->n - i) * sizeof *node->cards);
    }
}

static void take_cards(struct event_scan *s, const struct ledger_node *node)
{
    struct known_node *known = node_of(s, node->name);
    known->scan = s->scan;
    for (size_t i = 0; i < known->n; i++)
        known->cards[i].seen = known->cards[i].fresh = false;
    for (uint32_t i = 0; i < node->n_cards; i++)
        take_card(s, known, &node->cards[i]);
    for (size_t i = 0; i < known->n; i++) {
        struct known_card *card = &known->cards[i];
        if (card->fresh)
            init_reported(known, card);
        if (!card->seen)
            set_state(card, true, false, s->now.now_ms);
    }
    forget_cards(known);
}

/* -- pods -- */

static struct known_pod *pod_of(struct event_scan *s, const struct ledger_pod *pod)
{
    size_t at =
        ARRAY_LOWER_BOUND(k, s->pods, s->n_pods, span_cmp((*k)->uid, pod->uid) < 0);
    cleanup_buf struct buf strings = {0};
    if (at < s->n_pods && span_eq(s->pods[at]->uid, pod->uid))
        return s->pods[at];
    buf_add_span(&strings, pod->uid);
    buf_add_span(&strings, pod->ns);
    buf_add_span(&strings, pod->name);
    struct known_pod *known = xcalloc(1, sizeof *known);
    known->strings = xmemdup0(strings.p, strings.n);
    known->uid = (struct span){known->strings, pod->uid.n};
    known->ns = (struct span){known->uid.p + pod->uid.n, pod->ns.n};
    known->name = (struct span){known->ns.p + pod->ns.n, pod->name.n};
    *ARRAY_INSERT(s->pods, s->n_pods, s->pods_cap, at) = known;
    return known;
}

static void take_pod(struct event_scan *s, const struct ledger_node *node,
                     const struct ledger_pod *pod)
{
    bool only_cards;
    buf_clear(&s->text);
    if (!ledger_pod_is_forged(node, pod, &s->text, &only_cards))
        return;
    struct known_pod *known = pod_of(s, pod);
    known->scan = s->scan;
    if (span_eq(buf_span(&known->text), buf_span(&s->text)))
        return;
    buf_clear(&known->text);
    buf_add_span(&known->text, buf_span(&s->text));
    known->since_ms = s->now.now_ms;
    known->wait_ms = only_cards ? EVENT_SCAN_CARDS_MS : 0;
    known->again_ms = INT64_MIN;
    known->reported = false;
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
    struct span uuid = span_of(card->uuid);
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
    struct span uuid = span_of(card->uuid);
    buf_printf(out, "GPU%d", card->index);
    if (uuid.n && other_at(node, card, false))
        buf_printf(out, " (now %.*s)", SPAN_ARG(uuid));
}

static void write_over(const struct known_card *card, struct buf *out)
{
    if (card->promised_mib <= card->total_mib && card->compute_promised > REQUEST_CORE)
        buf_printf(out, "GPU%d: %u %% of its compute are promised", card->index,
                   card->compute_promised);
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

/* Rate limit per node: EVENT_SCAN_BURST events at once, then one per
 * EVENT_SCAN_EVERY_MS. */
static bool within_limit(struct known_node *node, int64_t now_ms)
{
    int64_t from = now_ms - (int64_t)EVENT_SCAN_BURST * EVENT_SCAN_EVERY_MS;
    if (node->budget_ms < from)
        node->budget_ms = from;
    return node->budget_ms + EVENT_SCAN_EVERY_MS <= now_ms;
}

static void report_topic(const struct event_scan *s, struct known_node *node,
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
    if (!cards.n || !within_limit(node, s->now.now_ms))
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
    if (!event_recorder_add(s->now.recorder, &event))
        return;
    node->budget_ms += EVENT_SCAN_EVERY_MS;
    mark_reported(node, topic);
}

/* Takes changes as reported that another leader has had time to report. */
static void assume_reported(const struct event_scan *s, struct known_node *node)
{
    for (size_t i = 0; i < node->n; i++) {
        struct known_card *card = &node->cards[i];
        if (s->now.led_ms - EVENT_SCAN_OTHER_MS < card->since_ms)
            continue;
        card->reported_lost = card->lost;
        card->reported_overcommitted = card->overcommitted;
    }
}

/* True: an event of the node is left to write. */
static bool report_node(const struct event_scan *s, struct known_node *node)
{
    bool left = false;
    if (s->now.recorder) {
        report_topic(s, node, LOST);
        report_topic(s, node, BACK);
        report_topic(s, node, OVER);
    } else if (s->now.led_ms > 0) {
        assume_reported(s, node);
    }
    for (size_t i = 0; i < node->n; i++)
        left |= is_due(&node->cards[i], LOST) || is_due(&node->cards[i], BACK) ||
                is_due(&node->cards[i], OVER);
    return left;
}

static void report_pod(const struct event_scan *s, struct known_pod *pod)
{
    struct event event = {.kind = EVENT_POD,
                          .ns = pod->ns,
                          .name = pod->name,
                          .uid = pod->uid,
                          .warning = true,
                          .reason = "GPUPromiseDiffers",
                          .action = "WatchingPromises",
                          .note = buf_span(&pod->text)};
    if (pod->reported)
        return;
    if (!s->now.recorder) {
        pod->reported = s->now.led_ms > 0 && pod->since_ms + pod->wait_ms <=
                                                 s->now.led_ms - EVENT_SCAN_OTHER_MS;
        return;
    }
    if (s->now.now_ms < pod->since_ms + pod->wait_ms || s->now.now_ms < pod->again_ms)
        return;
    pod->reported = event_recorder_add(s->now.recorder, &event);
    pod->again_ms = s->now.now_ms + EVENT_SCAN_AGAIN_MS;
}

/* -- a scan -- */

void event_scan_begin(struct event_scan *s, const struct event_scan_settings *settings)
{
    s->scan++;
    s->now = *settings;
}

void event_scan_node(struct event_scan *s, const struct ledger_node *node)
{
    take_cards(s, node);
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next)
        take_pod(s, node, pod);
}

bool event_scan_end(struct event_scan *s)
{
    bool left = false;
    size_t n_nodes = 0, n_pods = 0;
    for (size_t i = 0; i < s->n_nodes; i++) {
        struct known_node *node = s->nodes[i];
        if (node->scan != s->scan) {
            node_free(node);
            continue;
        }
        left |= report_node(s, node);
        s->nodes[n_nodes++] = node;
    }
    for (size_t i = 0; i < s->n_pods; i++) {
        struct known_pod *pod = s->pods[i];
        if (pod->scan != s->scan) {
            pod_free(pod);
            continue;
        }
        report_pod(s, pod);
        left |= !pod->reported;
        s->pods[n_pods++] = pod;
    }
    s->n_nodes = n_nodes;
    s->n_pods = n_pods;
    return left;
}

/* -- the thread -- */

enum { SCAN_MS = 1000, FIRST_MS = 50 };

struct event_scan_thread {
    struct core_driver *driver;
    struct event_recorder *recorder;
    struct event_scan *scan;
    struct ticker *ticker;
    bool scanned, left;  /* left: an event is left to write */
    uint64_t generation; /* of the ledger at the last scan */
};

static void scan_node(void *ctx, const struct ledger *l, const struct ledger_node *node)
{
    (void)l;
    event_scan_node(ctx, node);
}

/* Not before every kind of object has been listed: cards would seem to be lost. */
static void scan_ledger(void *ctx)
{
    struct event_scan_thread *t = ctx;
    const struct core *core = core_driver_read(t->driver);
    uint64_t generation = ledger_generation(core_ledger(core));
    struct step_time now = core_driver_now();
    bool ready = core_ready(core, now, NULL) == 0;
    struct event_scan_settings settings = {.now_ms = now.mono_ms,
                                           .recorder =
                                               core_is_leader(core) ? t->recorder : NULL,
                                           .led_ms = core_other_leader_ms(core)};
    core_driver_read_end(t->driver);
    if (!ready || (t->scanned && !t->left && generation == t->generation))
        return;
    event_scan_begin(t->scan, &settings);
    view_source_each_node(core_driver_source(t->driver), scan_node, t->scan);
    t->left = event_scan_end(t->scan);
    if (!t->scanned)
        log_info("events",
                 "first scan of all cards complete; later changes are reported as "
                 "events");
    t->scanned = true;
    t->generation = generation;
}

static int64_t next_scan(void *ctx)
{
    const struct event_scan_thread *t = ctx;
    return clock_mono_ms() + (t->scanned ? SCAN_MS : FIRST_MS);
}

static const struct ticker_fns ticker_fns = {scan_ledger, next_scan};

struct event_scan_thread *event_scan_start(struct core_driver *driver,
                                           struct event_recorder *recorder)
{
    struct event_scan_thread *t = xcalloc(1, sizeof *t);
    t->driver = driver;
    t->recorder = recorder;
    t->scan = event_scan_new();
    t->ticker = ticker_new();
    ticker_start(t->ticker, &ticker_fns, t);
    return t;
}

void event_scan_stop(struct event_scan_thread *t)
{
    if (t)
        ticker_stop(t->ticker);
}

void event_scan_thread_free(struct event_scan_thread *t)
{
    if (!t)
        return;
    ticker_free(t->ticker);
    event_scan_free(t->scan);
    free(t);
}
