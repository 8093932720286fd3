/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/reason.h"

#include <assert.h>
#include <stdlib.h>

#include "domain/keys.h"

/*
 * Why a request does not fit on a node, in terms of cards; the class of the reason; and the node
 * that is nearest to fitting. A reason is written for every node that a filter call rejects, so
 * reasons are concatenated from pieces, without printf.
 */

/* The most frequent reason has this text after what the request needs. */
#define MOST_FREE "; most free: "

/* Appends text that others wrote. A reason is copied into JSON strings unescaped, so
 * characters that JSON would escape become "?". */
static void add_plain(struct buf *out, struct span text)
{
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        buf_addc(out, c < ' ' || c == '"' || c == '\\' || c == 0x7f ? '?' : (char)c);
    }
}

void reason_add_foreign_lease(struct buf *out, const struct ledger_node *node)
{
    const struct ledger_foreign_lease *foreign = ledger_node_info(node).foreign;
    if (!foreign)
        return;
    buf_adds(out, "; Lease " KEY_LEASE_NAMESPACE "/");
    buf_add_span(out, node->name);
    buf_adds(out, " does not belong to scv-agent (holder: ");
    add_plain(out, foreign->holder.n ? foreign->holder : SPAN("none"));
    buf_adds(out, "; last renewed: ");
    add_plain(out, foreign->renewed.n ? foreign->renewed : SPAN("never"));
    buf_adds(out, "): delete it if another system left it behind");
}

/* Why a node is unusable for every pod, by its state: the text before and after the name of the
 * node, or before its seconds without a heartbeat. */
static const struct state_text {
    const char *before, *after;
} state_texts[] = {
    [NODE_UNKNOWN] = {"the GPUs of this node are not known yet", NULL},
    [NODE_SCV_MISSING] = {"the node's Scv object is missing, so its cards are unknown",
                          NULL},
    [NODE_SCV_DAMAGED] = {"the node's Scv object is invalid; see the extender's log",
                          NULL},
    [NODE_SCV_EMPTY] = {"the node's Scv object lists no cards", NULL},
    [NODE_STALE] = {REASON_NO_HEARTBEAT, NULL},
    [NODE_NO_GPU] = {"the node has no GPU memory (no Scv object, no capacity)", NULL},
    [NODE_NO_COUNT] = {"the node's capacity has aliyun.com/gpu-mem but no "
                       "aliyun.com/gpu-count",
                       NULL},
    [NODE_ALLOCATABLE_LOW] = {"allocatable GPU memory is below capacity, and no ConfigMap "
                              "unhealthy-gpu-",
                              " names the unhealthy card"},
    [NODE_LIST_DAMAGED] = {"ConfigMap unhealthy-gpu-",
                           " is not a comma-separated list of card indexes"},
    [NODE_MISSING] = {"no Node object of this name exists, only an Scv object", NULL},
    [NODE_DAMAGED] = {"the Node object cannot be decoded", NULL},
};

/* Appends why the node is unusable for every pod. False: it is usable. */
static bool add_state(struct buf *out, const struct ledger_node *node)
{
    const struct state_text *text = &state_texts[node->state];
    if (node->state == NODE_USABLE)
        return false;
    buf_adds(out, text->before);
    if (text->after) {
        buf_add_span(out, node->name);
        buf_adds(out, text->after);
    }
    if (node->state == NODE_STALE) {
        buf_add_i64(out, node->stale_s);
        buf_adds(out, " s");
    }
    if (node->state == NODE_STALE || node->state == NODE_SCV_MISSING)
        reason_add_foreign_lease(out, node);
    return true;
}

/* -- What a request needs: the first part of most reasons, the same for all nodes -- */

static void add_mib(struct buf *out, int64_t mib)
{
    buf_add_i64(out, mib);
    buf_adds(out, " MiB");
}

static void add_whole(struct buf *out, const struct request *r)
{
    bool ours = r->kind == REQUEST_CARDS;
    buf_add_i64(out, r->cards);
    buf_adds(out, ours ? " whole card" : " card");
    buf_adds(out, r->cards == 1 ? "" : "s");
    buf_adds(out, ours ? "" : " through " KEY_NVIDIA_GPU);
    if (r->mib_per_card) {
        buf_adds(out, " of at least ");
        add_mib(out, r->mib_per_card);
    }
}

static void add_percent(struct buf *out, uint32_t percent)
{
    buf_add_i64(out, percent);
    buf_adds(out, " %");
}

static void add_shared(struct buf *out, const struct request *r)
{
    add_mib(out, r->mib_per_card);
    if (r->core) {
        buf_adds(out, " and ");
        add_percent(out, r->core);
        buf_adds(out, " of the compute");
    }
    if (r->cards == 1) {
        buf_adds(out, " on one card");
        return;
    }
    buf_adds(out, " on each of ");
    buf_add_i64(out, r->cards);
    buf_adds(out, " cards");
}

static void add_need(struct buf *out, const struct request *r)
{
    buf_adds(out, "needs ");
    if (r->kind == REQUEST_MEMORY)
        add_shared(out, r);
    else
        add_whole(out, r);
    if (r->models.n) {
        buf_adds(out, ", model ");
        add_plain(out, r->models);
    }
    if (r->clock_mhz) {
        buf_adds(out, ", memory clock ");
        buf_adds(out, r->clock_exact ? "" : "at least ");
        buf_add_i64(out, r->clock_mhz);
        buf_adds(out, " MHz");
    }
}

void reason_prepare(struct prepared_reason *r, const struct request *request)
{
    *r = (struct prepared_reason){.request = request};
    /* A filter call allocates nothing: the longest text fits into r->need. */
    struct buf need = {.p = r->need, .cap = sizeof r->need};
    add_need(&need, request);
    r->need_n = need.n;
    if (request->kind == REQUEST_MEMORY && request->cards == 1 && !request->core &&
        !request_is_selective(request)) {
        buf_adds(&need, MOST_FREE);
        r->most_free_n = need.n;
    }
    assert(need.p == r->need);
}

/* -- The rest of the reason, by node -- */

static void add_card_name(struct buf *out, int32_t index)
{
    buf_adds(out, "GPU");
    buf_add_i64(out, index);
}

/* The cards in that state; `test`, unless NULL: those that pass it. */
static void add_cards(struct buf *out, const struct ledger_node *node, const char *what,
                      enum card_state state, bool (*test)(const struct card *))
{
    bool any = false;
    for (uint32_t i = 0; i < node->n_cards; i++) {
        if (node->cards[i].state != state || (test && !test(&node->cards[i])))
            continue;
        buf_adds(out, any ? "," : what);
        add_card_name(out, node->cards[i].index);
        any = true;
    }
}

static bool is_promised(const struct card *card)
{
    return card->pods > 0;
}

static bool is_whole(const struct card *card)
{
    return card->whole;
}

static bool any_held(const struct ledger_node *node)
{
    bool any = false;
    for (uint32_t i = 0; i < node->n_cards; i++)
        any |= node->cards[i].state == CARD_HELD;
    return any;
}

static int64_t overuse_of(const struct card *card)
{
    return card->overuse_mib;
}

/* Reservations end within seconds: the pod is likely to fit soon. */
static int64_t reserved_of(const struct card *card)
{
    return card->reserved_mib;
}

/* The available cards that have such an amount. */
static void add_amounts(struct buf *out, const struct ledger_node *node, const char *what,
                        int64_t (*amount)(const struct card *))
{
    bool any = false;
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct card *card = &node->cards[i];
        if (card->state != CARD_AVAILABLE || amount(card) == 0)
            continue;
        buf_adds(out, any ? ", " : what);
        add_mib(out, amount(card));
        buf_adds(out, " on ");
        add_card_name(out, card->index);
        any = true;
    }
}

static void add_excluded(struct buf *out, const struct ledger_node *node)
{
    add_cards(out, node, "; unhealthy: ", CARD_UNHEALTHY, NULL);
    add_cards(out, node, "; excluded by ConfigMap: ", CARD_LISTED, NULL);
    add_cards(out, node, "; allocated through nvidia.com/gpu: ", CARD_HELD, NULL);
    add_cards(out, node, "; duplicate UUID: ", CARD_DUPLICATE, NULL);
    add_cards(out, node, "; promised as whole cards: ", CARD_AVAILABLE, is_whole);
    add_amounts(out, node, "; used outside Kubernetes: ", card_external_mib);
    add_amounts(out, node, "; used by pods beyond their promises: ", overuse_of);
    add_amounts(out, node, "; reserved for pods that are being bound: ", reserved_of);
}

/* Of a node whose cards are all available, but have too little free memory: as add_later,
 * in one piece. */
static void add_most_free(struct buf *out, const struct prepared_reason *r,
                          const struct ledger_node *node)
{
    enum { WORDS = 32 };
    buf_reserve(out, r->most_free_n + 3 * STR_U64 + WORDS);
    char *p = mempcpy(out->p + out->n, r->need, r->most_free_n);
    p = str_put_u64(p, (uint64_t)node->best_free_mib);
    p = mempcpy(p, " of ", 4);
    p = str_put_u64(p, (uint64_t)node->best_total_mib);
    p = mempcpy(p, " MiB on GPU", 11);
    p = str_put_u64(p, (uint64_t)node->best_index);
    *p = '\0';
    out->n = (size_t)(p - out->p);
}

static uint32_t count_on(const struct ledger_node *node, const struct request *r,
                         bool (*test)(const struct card *, const struct request *))
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < node->n_cards; i++)
        n += test(&node->cards[i], r);
    return n;
}

/* The number of cards that can take their part of the request. */
static uint32_t count_fitting(const struct ledger_node *node, const struct request *r)
{
    struct select_view view;
    select_view(&view, node, NULL, SELECT_AS_IS);
    return (uint32_t)__builtin_popcountll(select_mask(&view, r));
}

/* Are the two cards of the same kind as far as the request is concerned? */
static bool is_same_kind(const struct card *a, const struct card *b,
                         const struct request *r)
{
    return span_eq(a->model, b->model) &&
           (!r->clock_mhz || card_clock_mhz(a) == card_clock_mhz(b));
}

static void add_kind(struct buf *out, const struct card *card, const struct request *r)
{
    if (card->model.n)
        add_plain(out, card->model);
    else
        buf_adds(out, "unknown model");
    if (!r->clock_mhz)
        return;
    buf_adds(out, " (");
    buf_add_i64(out, card_clock_mhz(card));
    buf_adds(out, " MHz)");
}

/* "2 x Tesla V100, 1 x Tesla T4": the cards of the node. */
static void add_kinds(struct buf *out, const struct ledger_node *node,
                      const struct request *r)
{
    const struct card *cards = node->cards;
    buf_adds(out, "; the node has ");
    for (uint32_t i = 0; i < node->n_cards; i++) {
        uint32_t before = 0, n = 0;
        for (uint32_t k = 0; k < node->n_cards; k++) {
            n += is_same_kind(&cards[k], &cards[i], r);
            before += k < i && is_same_kind(&cards[k], &cards[i], r);
        }
        if (before)
            continue;
        buf_adds(out, i ? ", " : "");
        buf_add_i64(out, n);
        buf_adds(out, " x ");
        add_kind(out, &cards[i], r);
    }
}

/* Of the cards that suit the request: the size of the largest, and the healthy one with most
 * free memory. */
struct best {
    int64_t largest_mib;
    int32_t index; /* -1: none is healthy */
    int64_t free_mib, total_mib;
};

static struct best best_of(const struct ledger_node *node, const struct request *r)
{
    struct best best = {node->largest_mib, node->best_index, node->best_free_mib,
                        node->best_total_mib};
    if (!request_is_selective(r)) /* without reading the cards */
        return best;
    best = (struct best){.index = -1};
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct card *card = &node->cards[i];
        if (!select_card_suits(card, r))
            continue;
        if (card->total_mib > best.largest_mib)
            best.largest_mib = card->total_mib;
        if (card->state == CARD_AVAILABLE &&
            (best.index < 0 || card->free_mib > best.free_mib))
            best = (struct best){best.largest_mib, card->index, card->free_mib,
                                 card->total_mib};
    }
    return best;
}

static void add_never(struct buf *out, const struct ledger_node *node,
                      const struct request *r)
{
    if (node->n_cards < r->cards && !request_is_selective(r)) {
        buf_adds(out, "; the node has ");
        buf_add_i64(out, node->n_cards);
        buf_adds(out, node->n_cards == 1 ? " card" : " cards");
        return;
    }
    if (request_is_selective(r) && count_on(node, r, select_card_suits) < r->cards) {
        add_kinds(out, node, r);
        return;
    }
    /* One call per literal: the compiler copies a literal of known length faster. */
    if (request_is_selective(r))
        buf_adds(out, "; the largest such card has ");
    else if (r->cards == 1)
        buf_adds(out, "; the largest card has ");
    else
        buf_adds(out, "; too few cards of that size; the largest has ");
    add_mib(out, best_of(node, r).largest_mib);
}

static void add_free(struct buf *out, const struct ledger_node *node,
                     const struct request *r)
{
    buf_adds(out, "; free cards: ");
    buf_add_i64(out, count_fitting(node, r));
    buf_adds(out, " of ");
    buf_add_i64(out, count_on(node, r, select_card_could_fit));
    if (r->kind != REQUEST_DEVICES)
        return;
    add_cards(out, node, "; promised to pods: ", CARD_AVAILABLE, is_promised);
    if (node->claimed) {
        buf_adds(out, "; requested by pods whose cards are not known yet: ");
        buf_add_i64(out, node->claimed);
    }
}

/* Of the cards with enough memory, the one with most free compute. */
static void add_core(struct buf *out, const struct ledger_node *node,
                     const struct request *r)
{
    const struct card *best = NULL;
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct card *card = &node->cards[i];
        if (card->state == CARD_AVAILABLE && card->free_mib >= r->mib_per_card &&
            select_card_suits(card, r) &&
            (!best || card_core_left(card) > card_core_left(best)))
            best = card;
    }
    if (!best)
        return;
    buf_adds(out, "; most free compute beside that memory: ");
    add_percent(out, card_core_left(best));
    buf_adds(out, " on ");
    add_card_name(out, best->index);
}

static void add_later(struct buf *out, const struct ledger_node *node,
                      const struct request *r)
{
    struct best best = best_of(node, r);
    if (best.index < 0) {
        buf_adds(out, any_held(node)   ? "; no card is available"
                      : request_is_selective(r) ? "; no such card is healthy"
                                                : "; no card is healthy");
    } else if (r->kind != REQUEST_MEMORY) {
        add_free(out, node, r);
    } else {
        if (r->cards > 1) {
            buf_adds(out, r->core ? "; cards with enough free memory and compute: "
                                  : "; cards with enough free memory: ");
            buf_add_i64(out, count_fitting(node, r));
        }
        buf_adds(out, MOST_FREE);
        buf_add_i64(out, best.free_mib);
        buf_adds(out, " of ");
        add_mib(out, best.total_mib);
        buf_adds(out, " on ");
        add_card_name(out, best.index);
        if (r->core)
            add_core(out, node, r);
    }
    if (!node->all_available)
        add_excluded(out, node);
}

void reason_add_prepared(struct buf *out, const struct prepared_reason *prepared,
                         const struct ledger_node *node, enum fit alone)
{
    const struct request *r = prepared->request;
    const char *why = NULL;
    if (prepared->most_free_n && alone == FIT_LATER && node->state == NODE_USABLE &&
        select_mode_allows(node, r) && node->all_available && node->best_index >= 0) {
        add_most_free(out, prepared, node);
        return;
    }
    /* In this order, because node->source is not in the node's first cache lines. */
    bool unknown = (request_is_selective(r) || r->kind == REQUEST_DEVICES) &&
                   node->source != SOURCE_SCV;
    if (!(unknown && r->kind == REQUEST_DEVICES) && add_state(out, node))
        return;
    if (node->mode == NODE_MODE_WRONG)
        why = "node label gpushare/mode is neither memory nor card";
    else if (node->mode == NODE_MEMORY && r->kind == REQUEST_CARDS)
        why = "node label gpushare/mode=memory: no whole cards";
    else if (node->mode == NODE_CARDS && r->kind == REQUEST_MEMORY)
        why = "node label gpushare/mode=card: whole cards only";
    if (why && r->kind != REQUEST_DEVICES) {
        buf_adds(out, why);
        return;
    }
    buf_add(out, prepared->need, prepared->need_n);
    if (unknown) {
        buf_adds(out, "; card models and clocks are unknown: the node has no Scv "
                      "object");
        return;
    }
    if (r->core && !node->has_core) {
        buf_adds(out, "; the node's device plugin does not offer " KEY_GPU_CORE);
        return;
    }
    if (alone == FIT_YES)
        buf_adds(out, "; free, but reserved for pods nominated to this node");
    else if (alone == FIT_NEVER)
        add_never(out, node, r);
    else
        add_later(out, node, r);
}

void reason_add(struct buf *out, const struct ledger_node *node,
                const struct request *request, enum fit alone)
{
    struct prepared_reason prepared;
    reason_prepare(&prepared, request);
    reason_add_prepared(out, &prepared, node, alone);
}

void reason_add_schedulable(struct buf *out, const struct ledger_node *node,
                            const struct select_pod *pod)
{
    bool fits = select_fit_pod(node, pod) == FIT_YES;
    if (node->cordoned)
        buf_adds(out, "cordoned: kube-scheduler offers it only to pods that tolerate "
                      "the taint");
    if (node->cordoned && !fits)
        buf_adds(out, "; ");
    if (!fits)
        reason_add(out, node, pod->request, select_fit(node, pod->request));
}

const char *reason_class_name(enum reason_class reason)
{
    static const char *const names[REASON_CLASSES] = {
        [REASON_MEMORY] = "memory",
        [REASON_COMPUTE] = "compute",
        [REASON_NOMINATED] = "nominated",
        [REASON_UNHEALTHY] = "unhealthy",
        [REASON_SIZE] = "size",
        [REASON_MODEL] = "model",
        [REASON_MODE] = "mode",
        [REASON_NODE] = "node",
        [REASON_PROMISED] = "promised",
        [REASON_GANG] = "gang",
        [REASON_INVALID_REQUEST] = "invalid-request",
    };
    return names[reason];
}

/* Is it compute alone that the node has too little of, or does not offer? */
static bool lacks_compute(const struct ledger_node *node, const struct request *r)
{
    if (!r->core)
        return false;
    if (!node->has_core)
        return true;
    struct request memory = *r;
    memory.core = 0;
    return select_fit(node, &memory) == FIT_YES;
}

/* Called for every node that filter rejects. What is not in the node's first cache lines
 * is read last: its source only for requests that select cards, the cards only for requests
 * with compute. */
enum reason_class reason_class_of(const struct ledger_node *node, const struct request *r,
                                  enum fit alone)
{
    if (!node || (node->state != NODE_USABLE && r->kind != REQUEST_DEVICES))
        return REASON_NODE;
    if (!select_mode_allows(node, r))
        return REASON_MODE;
    if (alone == FIT_YES)
        return REASON_NOMINATED;
    if (alone == FIT_NEVER)
        return request_is_selective(r) ? REASON_MODEL : REASON_SIZE;
    if (request_is_selective(r) && node->source != SOURCE_SCV)
        return REASON_MODEL;
    if (node->best_index < 0)
        return REASON_UNHEALTHY;
    return lacks_compute(node, r) ? REASON_COMPUTE : REASON_MEMORY;
}

/* -- The nearest node -- */

static int most_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

static int64_t memory_missing(const struct ledger_node *node, const struct request *r)
{
    int64_t free_mib[SCV_MAX_CARDS] = {0}, missing = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < node->n_cards; i++)
        if (select_card_suits(&node->cards[i], r) &&
            card_core_left(&node->cards[i]) >= r->core)
            free_mib[n++] = node->cards[i].free_mib;
    if (r->cards > 1)
        qsort(free_mib, n, sizeof *free_mib, most_first);
    for (uint32_t i = 1; r->cards == 1 && i < n; i++)
        if (free_mib[i] > free_mib[0])
            free_mib[0] = free_mib[i];
    for (uint32_t i = 0; i < r->cards; i++) {
        int64_t has = i < n ? free_mib[i] : 0;
        missing += has < r->mib_per_card ? r->mib_per_card - has : 0;
    }
    return missing;
}

int64_t nearest_node_shortfall(const struct ledger_node *node, const struct request *r)
{
    if (select_fit(node, r) == FIT_YES)
        return 0;
    if (node->state != NODE_USABLE || !node->n_cards || !select_mode_allows(node, r) ||
        (r->core && !node->has_core))
        return INT64_MAX;
    if (r->kind == REQUEST_MEMORY)
        return memory_missing(node, r);
    int64_t claimed = r->kind == REQUEST_DEVICES ? node->claimed : 0;
    return r->cards + claimed - count_fitting(node, r);
}

/* Is the node closer than the closest one so far? */
static bool is_closer(const struct nearest_node *n, const struct ledger_node *node,
                      enum fit fit, int64_t missing)
{
    if (!n->node)
        return true;
    if (fit != n->fit)
        return fit < n->fit;
    if (!n->offered && node->cordoned != n->node->cordoned)
        return n->node->cordoned;
    if (missing != n->missing)
        return missing < n->missing;
    return span_cmp(node->name, n->node->name) < 0;
}

void nearest_node_init(struct nearest_node *n, const struct select_pod *pod)
{
    *n = (struct nearest_node){.pod = *pod};
}

void nearest_node_visit(struct nearest_node *n, const struct ledger_node *node)
{
    enum fit fit = n->offered ? select_fit_pod(node, &n->pod)
                              : select_fit_schedulable(node, &n->pod);
    n->seen++;
    n->fits += fit == FIT_YES;
    int64_t missing = nearest_node_shortfall(node, n->pod.request);
    if (!is_closer(n, node, fit, missing))
        return;
    n->node = node;
    n->fit = fit;
    n->missing = missing;
}
