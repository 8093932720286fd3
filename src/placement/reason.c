/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/reason.h"

#include <assert.h>

#include "base/mem.h"
#include "domain/keys.h"

/*
 * Why a request does not fit on a node, in terms of cards; the class of the reason; and the node
 * that is nearest to fitting. A reason is written for every node that a filter call rejects, so
 * reasons are concatenated from pieces, without printf.
 */

/* The most frequent reasons, of memory alone, have these texts after what the request needs;
 * the first one if it asks for several cards. */
#define ENOUGH    "; cards with enough free memory: "
#define MOST_FREE "; most free: "

/* What is appended to `out` from `from` on may contain text that others wrote. A reason is
 * copied into JSON strings unescaped, so characters that JSON would escape become "?". */
static void make_plain(struct buf *out, size_t from)
{
    for (char *p = out->p + from; p < out->p + out->n; p++)
        if ((unsigned char)*p < ' ' || *p == '"' || *p == '\\' || *p == 0x7f)
            *p = '?';
}

void reason_add_foreign_lease(struct buf *out, const struct ledger_node *node)
{
    const struct ledger_foreign_lease *foreign = ledger_node_info(node).foreign;
    size_t from = out->n;
    if (!foreign)
        return;
    buf_adds(out, "; Lease " KEY_LEASE_NAMESPACE "/");
    buf_add_span(out, node->name);
    buf_adds(out, " does not belong to scv-agent (holder: ");
    buf_add_span(out, foreign->holder.n ? foreign->holder : SPAN("none"));
    buf_adds(out, "; last renewed: ");
    buf_add_span(out, foreign->renewed.n ? foreign->renewed : SPAN("never"));
    buf_adds(out, "): delete it if another system left it behind");
    make_plain(out, from);
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
    [NODE_ALLOCATABLE_LOW] =
        {"allocatable GPU memory is below capacity, and no ConfigMap "
         "unhealthy-gpu-",
         " names the unhealthy card"},
    [NODE_LIST_DAMAGED] = {"ConfigMap unhealthy-gpu-",
                           " is not a comma-separated list of card indexes"},
    [NODE_MISSING] = {"no Node object of this name exists, only an Scv object", NULL},
    [NODE_DAMAGED] = {"the Node object cannot be decoded", NULL},
};

static void add_number(struct buf *out, const char *before, int64_t n, const char *after)
{
    buf_adds(out, before);
    buf_add_i64(out, n);
    buf_adds(out, after);
}

/* Appends why the node is unusable for every pod. */
static void add_state(struct buf *out, const struct ledger_node *node)
{
    const struct state_text *text = &state_texts[node->state];
    buf_adds(out, text->before);
    if (text->after) {
        buf_add_span(out, node->name);
        buf_adds(out, text->after);
    }
    if (node->state == NODE_STALE)
        add_number(out, "", node->stale_s, " s");
    if (node->state == NODE_STALE || node->state == NODE_SCV_MISSING)
        reason_add_foreign_lease(out, node);
}

/* -- What a request needs: the first part of most reasons, the same for all nodes -- */

static void add_need(struct buf *out, const struct request *r)
{
    bool ours = r->kind == REQUEST_CARDS;
    if (r->kind == REQUEST_MEMORY) {
        /* In words: kube-scheduler takes the message of its event as a format. */
        add_number(out, "needs ", r->percent ? r->percent : r->mib_per_card,
                   r->percent ? " percent of the memory" : " MiB");
        if (r->core)
            add_number(out, " and ", r->core, " % of the compute");
        if (r->cards == 1)
            buf_adds(out, " on one card");
        else
            add_number(out, " on each of ", r->cards, " cards");
    } else {
        add_number(out, "needs ", r->cards, ours ? " whole card" : " card");
        buf_adds(out, r->cards == 1 ? "" : "s");
        buf_adds(out, ours ? "" : " through " KEY_NVIDIA_GPU);
        if (r->mib_per_card)
            add_number(out, " of at least ", r->mib_per_card, " MiB");
    }
    if (r->models.n) {
        buf_adds(out, ", model ");
        buf_add_span(out, r->models);
    }
    if (r->min_link) {
        char word[8];
        buf_adds(out, ", each two connected by ");
        buf_adds(out, link_word(r->min_link, word));
        buf_adds(out, " or better");
    }
    if (r->clock_mhz)
        add_number(out, r->clock_exact ? ", memory clock " : ", memory clock at least ",
                   r->clock_mhz, " MHz");
}

void reason_prepare(struct prepared_reason *r, const struct request *request)
{
    *r = (struct prepared_reason){.request = request};
    /* A filter call allocates nothing: the longest text fits into r->need. */
    struct buf need = {.p = r->need, .cap = sizeof r->need};
    add_need(&need, request);
    make_plain(&need, 0);
    r->need_n = need.n;
    if (request->kind == REQUEST_MEMORY && !request->core && !request->slots &&
        !request->min_link && !request_is_selective(request)) {
        buf_adds(&need, request->cards == 1 ? MOST_FREE : ENOUGH);
        r->plain_n = need.n;
    }
    assert(need.p == r->need);
}

/* -- The rest of the reason, by node -- */

static int64_t free_of(const struct card *card)
{
    return card->free_mib;
}

static int64_t core_of(const struct card *card)
{
    return card_core_left(card);
}

static int64_t pods_of(const struct card *card)
{
    return card->pods;
}

static int64_t whole_of(const struct card *card)
{
    return card->whole;
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

/* A list of cards: those in a state, of which an amount, unless NULL, is not 0. */
struct card_list {
    const char *what;
    enum card_state state;
    int64_t (*amount)(const struct card *);
    bool mib; /* with the amount */
};

static void add_cards(struct buf *out, const struct ledger_node *node,
                      const struct card_list *list)
{
    const char *before = list->what;
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct card *card = &node->cards[i];
        if (card->state != list->state || (list->amount && !list->amount(card)))
            continue;
        buf_adds(out, before);
        before = list->mib ? ", " : ",";
        if (list->mib)
            add_number(out, "", list->amount(card), " MiB on ");
        add_number(out, "GPU", card->index, "");
    }
}

static void add_excluded(struct buf *out, const struct ledger_node *node)
{
    static const struct card_list lists[] = {
        {"; unhealthy: ", CARD_UNHEALTHY, NULL, false},
        {"; excluded by ConfigMap: ", CARD_LISTED, NULL, false},
        {"; allocated through nvidia.com/gpu: ", CARD_HELD, NULL, false},
        {"; duplicate UUID: ", CARD_DUPLICATE, NULL, false},
        {"; promised as whole cards: ", CARD_AVAILABLE, whole_of, false},
        {"; used outside Kubernetes: ", CARD_AVAILABLE, card_external_mib, true},
        {"; used by pods beyond their promises: ", CARD_AVAILABLE, overuse_of, true},
        {"; reserved for pods that are being bound: ", CARD_AVAILABLE, reserved_of, true},
    };
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        add_cards(out, node, &lists[i]);
}

/* The number of cards that can take their part of the request. */
static uint32_t count_fitting(const struct ledger_node *node, const struct request *r)
{
    struct select_view view;
    select_view(&view, node, NULL, SELECT_AS_IS);
    return (uint32_t)__builtin_popcountll(select_mask(&view, r));
}

/* Of a node whose cards are all available, but have too little free memory: as add_later, in
 * one piece and without reading the cards. */
static void add_plain(struct buf *out, const struct prepared_reason *r,
                      const struct ledger_node *node)
{
    enum { WORDS = 64 };
    buf_reserve(out, r->plain_n + 4 * STR_U64 + WORDS);
    char *p = mempcpy(out->p + out->n, r->need, r->plain_n);
    if (r->request->cards > 1) {
        p = str_put_u64(p, count_fitting(node, r->request));
        p = mempcpy(p, MOST_FREE, strlen(MOST_FREE));
    }
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

/* Are the two cards of the same kind as far as the request is concerned? */
static bool is_same_kind(const struct card *a, const struct card *b,
                         const struct request *r)
{
    return span_eq(a->kind->model, b->kind->model) &&
           (!r->clock_mhz || a->kind->spec.clock_mhz == b->kind->spec.clock_mhz);
}

/* "2 x Tesla V100, 1 x Tesla T4": the cards of the node. */
static void add_kinds(struct buf *out, const struct ledger_node *node,
                      const struct request *r)
{
    const struct card *cards = node->cards;
    size_t from = out->n;
    buf_adds(out, "; the node has ");
    for (uint32_t i = 0; i < node->n_cards; i++) {
        uint32_t before = 0, n = 0;
        for (uint32_t k = 0; k < node->n_cards; k++) {
            n += is_same_kind(&cards[k], &cards[i], r);
            before += k < i && is_same_kind(&cards[k], &cards[i], r);
        }
        if (before)
            continue;
        add_number(out, i ? ", " : "", n, " x ");
        buf_add_span(out, cards[i].kind->model.n ? cards[i].kind->model
                                                 : SPAN("unknown model"));
        if (r->clock_mhz)
            add_number(out, " (", cards[i].kind->spec.clock_mhz, " MHz)");
    }
    make_plain(out, from);
}

/* Of the available cards that suit the request and have `least_mib` free, the one that has the
 * largest amount; NULL: none. */
static const struct card *best_card(const struct ledger_node *node,
                                    const struct request *r, int64_t least_mib,
                                    int64_t (*amount)(const struct card *))
{
    const struct card *best = NULL;
    for (const struct card *c = node->cards; c < node->cards + node->n_cards; c++)
        if (c->state == CARD_AVAILABLE && select_card_suits(c, r) &&
            c->free_mib >= least_mib && (!best || amount(c) > amount(best)))
            best = c;
    return best;
}

/* Is it the connections of the cards alone that the node lacks? */
static bool lacks_links(const struct ledger_node *node, const struct request *r,
                        enum fit alone)
{
    struct request any = *r;
    any.min_link = LINK_UNKNOWN;
    return r->min_link && (!node->has_links || select_fit(node, &any) < alone);
}

static void add_never(struct buf *out, const struct ledger_node *node,
                      const struct request *r)
{
    bool selective = request_is_selective(r);
    int64_t largest = 0;
    if (lacks_links(node, r, FIT_NEVER)) {
        add_number(out, "; no ", r->cards, " such cards of the node are so connected");
        return;
    }
    if (node->n_cards < r->cards && !selective) {
        add_number(out, "; the node has ", node->n_cards,
                   node->n_cards == 1 ? " card" : " cards");
        return;
    }
    if (count_on(node, r, select_card_suits) < r->cards) {
        add_kinds(out, node, r);
        if (!selective)
            buf_adds(out, "; instances of cards in MIG mode are taken by their profile "
                          "(" KEY_GPU_MODEL ")");
        return;
    }
    for (uint32_t i = 0; i < node->n_cards; i++)
        if (select_card_suits(&node->cards[i], r) && node->cards[i].total_mib > largest)
            largest = node->cards[i].total_mib;
    add_number(out,
               selective       ? "; the largest such card has "
               : r->cards == 1 ? "; the largest card has "
               : r->percent    ? "; too few cards of one size; the largest has "
                               : "; too few cards of that size; the largest has ",
               largest, " MiB");
}

static void add_free(struct buf *out, const struct ledger_node *node,
                     const struct request *r)
{
    static const struct card_list promised = {"; promised to pods: ", CARD_AVAILABLE,
                                              pods_of, false};
    add_number(out, "; free cards: ", count_fitting(node, r), " of ");
    buf_add_i64(out, count_on(node, r, select_card_could_fit));
    if (r->kind == REQUEST_DEVICES)
        add_cards(out, node, &promised);
}

/* Do pods of nvidia.com/gpu whose cards are not known yet leave too few? Unless they need all, they
 * leave one for a request of one card. */
static bool lacks_claimed(const struct ledger_node *node, const struct request *r)
{
    return node->claimed && (r->kind == REQUEST_DEVICES || r->cards > 1);
}

static void add_later(struct buf *out, const struct ledger_node *node,
                      const struct request *r)
{
    const struct card *best = best_card(node, r, INT64_MIN, free_of);
    bool held = false;
    for (uint32_t i = 0; i < node->n_cards; i++)
        held |= node->cards[i].state == CARD_HELD;
    if (!best) {
        buf_adds(out, held                      ? "; no card is available"
                      : request_is_selective(r) ? "; no such card is healthy"
                                                : "; no card is healthy");
    } else if (r->kind != REQUEST_MEMORY) {
        add_free(out, node, r);
    } else {
        if (r->cards > 1)
            add_number(out,
                       r->core ? "; cards with enough free memory and compute: " : ENOUGH,
                       count_fitting(node, r), "");
        add_number(out, MOST_FREE, best->free_mib, " of ");
        add_number(out, "", best->total_mib, " MiB on GPU");
        buf_add_i64(out, best->index);
        const struct card *idle =
            r->core ? best_card(node, r, request_mib(r, best->total_mib), core_of) : NULL;
        if (idle) {
            add_number(out, "; most free compute beside that memory: ", core_of(idle),
                       " % on GPU");
            buf_add_i64(out, idle->index);
        }
    }
    const char *before = "; too few free slots of " KEY_GPU_SHARE ": GPU";
    for (uint32_t i = 0; i < node->n_cards && r->slots; i++) {
        const struct card *card = &node->cards[i];
        if (card->state != CARD_AVAILABLE || card->slots_left >= (int64_t)r->slots)
            continue;
        add_number(out, before, card->index, "");
        before = ",GPU";
    }
    if (best && lacks_claimed(node, r))
        add_number(out,
                   "; requested by pods whose cards are not known yet: ", node->claimed,
                   "");
    if (lacks_links(node, r, FIT_LATER))
        add_number(out, "; no ", r->cards, " of them are so connected");
    if (!node->all_available)
        add_excluded(out, node);
}

static void add_isolation(struct buf *out, const struct ledger_node *node,
                          const struct request *r)
{
    buf_adds(out, "needs memory isolation by ");
    buf_adds(out, r->isolation == SCV_ISOLATION_MPS ? "" : "the ");
    scv_isolation_add(out, r->isolation, " or ");
    if (!(node->isolation & SCV_ISOLATION_KNOWN)) {
        buf_adds(out, "; what this node can enforce is unknown");
        return;
    }
    buf_adds(out, "; this node can enforce: ");
    scv_isolation_add(out, node->isolation, ", ");
}

/* What stands between a request and a node: the first of these. The sentence and its class follow from
 * it. */
enum obstacle {
    OBSTACLE_NODE,
    OBSTACLE_MODE,
    OBSTACLE_ISOLATION,
    OBSTACLE_NO_SCV,
    OBSTACLE_NO_LINKS,
    OBSTACLE_NO_COMPUTE,
    OBSTACLE_NO_SLOTS,
    OBSTACLE_NOMINATED,
    OBSTACLE_NEVER,
    OBSTACLE_LATER,
};

/* Asked for every node that filter rejects. What is not in the node's first cache lines is read
 * last: its source only for requests that select cards. */
static enum obstacle obstacle_of(const struct ledger_node *node, const struct request *r,
                                 enum fit alone)
{
    bool unknown = (request_is_selective(r) || r->kind == REQUEST_DEVICES) &&
                   node->source != SOURCE_SCV;
    return node->state != NODE_USABLE && !(unknown && r->kind == REQUEST_DEVICES)
               ? OBSTACLE_NODE
           : !select_mode_allows(node, r)             ? OBSTACLE_MODE
           : !select_isolation_allows(node, r)        ? OBSTACLE_ISOLATION
           : unknown                                  ? OBSTACLE_NO_SCV
           : r->min_link && !node->has_links          ? OBSTACLE_NO_LINKS
           : r->core && !node->has_core               ? OBSTACLE_NO_COMPUTE
           : r->slots && !ledger_node_offers(node, r) ? OBSTACLE_NO_SLOTS
           : alone == FIT_YES                         ? OBSTACLE_NOMINATED
           : alone == FIT_NEVER                       ? OBSTACLE_NEVER
                                                      : OBSTACLE_LATER;
}

void reason_add_prepared(struct buf *out, const struct prepared_reason *prepared,
                         const struct ledger_node *node, enum fit alone)
{
    static const char *const mode_texts[] = {
        [NODE_MODE_WRONG] = "node label gpushare/mode is neither memory nor card",
        [NODE_MEMORY] = "node label gpushare/mode=memory: no whole cards",
        [NODE_CARDS] = "node label gpushare/mode=card: whole cards only",
    };
    static const char *const texts[] = {
        [OBSTACLE_NO_SCV] =
            "; card models and clocks are unknown: the node has no Scv object",
        [OBSTACLE_NO_LINKS] = "; what connects the node's cards is unknown",
        [OBSTACLE_NO_COMPUTE] = "; the node's device plugin does not offer " KEY_GPU_CORE,
        [OBSTACLE_NO_SLOTS] = "; the node's device plugin does not offer " KEY_GPU_SHARE,
        [OBSTACLE_NOMINATED] = "; free, but reserved for pods nominated to this node",
    };
    const struct request *r = prepared->request;
    if (prepared->plain_n && alone == FIT_LATER && node->state == NODE_USABLE &&
        select_mode_allows(node, r) && node->all_available && node->best_index >= 0 &&
        !lacks_claimed(node, r)) {
        add_plain(out, prepared, node);
        return;
    }
    enum obstacle obstacle = obstacle_of(node, r, alone);
    if (obstacle > OBSTACLE_ISOLATION)
        buf_add(out, prepared->need, prepared->need_n);
    if (obstacle == OBSTACLE_NODE)
        add_state(out, node);
    else if (obstacle == OBSTACLE_MODE)
        buf_adds(out, mode_texts[node->mode]);
    else if (obstacle == OBSTACLE_ISOLATION)
        add_isolation(out, node, r);
    else if (obstacle == OBSTACLE_NEVER)
        add_never(out, node, r);
    else if (obstacle == OBSTACLE_LATER)
        add_later(out, node, r);
    else
        buf_adds(out, texts[obstacle]);
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
        [REASON_MEMORY] = "memory",       [REASON_COMPUTE] = "compute",
        [REASON_NOMINATED] = "nominated", [REASON_UNHEALTHY] = "unhealthy",
        [REASON_SIZE] = "size",           [REASON_MODEL] = "model",
        [REASON_LINKS] = "links",         [REASON_MODE] = "mode",
        [REASON_NODE] = "node",           [REASON_PROMISED] = "promised",
        [REASON_GANG] = "gang",           [REASON_INVALID_REQUEST] = "invalid-request",
        [REASON_ISOLATION] = "isolation",
    };
    return names[reason];
}

enum reason_class reason_class_of(const struct ledger_node *node, const struct request *r,
                                  enum fit alone)
{
    static const enum reason_class classes[] = {
        [OBSTACLE_NODE] = REASON_NODE,           [OBSTACLE_MODE] = REASON_MODE,
        [OBSTACLE_ISOLATION] = REASON_ISOLATION, [OBSTACLE_NO_SCV] = REASON_MODEL,
        [OBSTACLE_NO_LINKS] = REASON_LINKS,      [OBSTACLE_NO_COMPUTE] = REASON_COMPUTE,
        [OBSTACLE_NO_SLOTS] = REASON_SIZE,       [OBSTACLE_NOMINATED] = REASON_NOMINATED,
    };
    enum obstacle obstacle = node ? obstacle_of(node, r, alone) : OBSTACLE_NODE;
    if (obstacle < OBSTACLE_NEVER)
        return classes[obstacle];
    if (lacks_links(node, r, alone))
        return REASON_LINKS;
    if (obstacle == OBSTACLE_NEVER)
        return request_is_selective(r) ? REASON_MODEL : REASON_SIZE;
    if (node->best_index < 0)
        return REASON_UNHEALTHY;
    if (!r->core)
        return REASON_MEMORY;
    struct request memory = *r;
    memory.core = 0;
    return select_fit(node, &memory) == FIT_YES ? REASON_COMPUTE : REASON_MEMORY;
}

/* -- The nearest node -- */

static int64_t memory_missing(const struct ledger_node *node, const struct request *r)
{
    uint64_t counted = 0;
    int64_t missing = 0;
    for (uint32_t k = 0; k < r->cards; k++) {
        /* Of the cards that suit and are not counted yet. */
        int64_t most = 0, need = request_mib(r, node->largest_mib);
        uint64_t which = 0;
        for (uint32_t i = 0; i < node->n_cards; i++) {
            const struct card *card = &node->cards[i];
            if (counted >> i & 1 || card->free_mib <= most ||
                !select_card_suits(card, r) || card_core_left(card) < r->core)
                continue;
            most = card->free_mib;
            need = request_mib(r, card->total_mib);
            which = UINT64_C(1) << i;
        }
        counted |= which;
        missing += most < need ? need - most : 0;
    }
    return missing;
}

int64_t nearest_node_shortfall(const struct ledger_node *node, const struct request *r)
{
    if (select_fit(node, r) == FIT_YES)
        return 0;
    if (node->state != NODE_USABLE || !node->n_cards || !select_mode_allows(node, r) ||
        !select_isolation_allows(node, r) || (r->core && !node->has_core))
        return INT64_MAX;
    if (r->kind == REQUEST_MEMORY)
        return memory_missing(node, r);
    return (int64_t)r->cards + node->claimed - count_fitting(node, r);
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
