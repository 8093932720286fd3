/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/reason.h"

#include <assert.h>
#include <inttypes.h>

#include "base/mem.h"
#include "domain/keys.h"

/*
 * Why a request does not fit on a node, in terms of cards; the class of the reason; and the node
 * that is nearest to fitting. A reason is written for every node that a filter call rejects, so
 * reasons are concatenated from pieces.
 *
 * Filter's path is reason_add_prepared: what the request needs, then for most nodes add_plain,
 * which asks for no obstacle; for others obstacle_of and the words for it. Lists of obstacles
 * (reason_list, reason_write) are of explain and inspect, the nearest node of Events and inspect.
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

/* Why a node is unusable for every pod, by its state; % is the name of the node. */
static const char *const state_texts[] = {
    [NODE_UNKNOWN] = "the GPUs of this node are not known yet",
    [NODE_SCV_MISSING] = "the node's Scv object is missing, so its cards are unknown",
    [NODE_SCV_DAMAGED] = "the node's Scv object is invalid; see the extender's log",
    [NODE_SCV_EMPTY] = "the node's Scv object lists no cards",
    [NODE_STALE] = REASON_NO_HEARTBEAT, /* N s */
    [NODE_NO_GPU] = "the node has no GPU memory (no Scv object, no capacity)",
    [NODE_NO_COUNT] = "the node's capacity has aliyun.com/gpu-mem but no "
                      "aliyun.com/gpu-count",
    [NODE_ALLOCATABLE_LOW] = "allocatable GPU memory is below capacity, and no ConfigMap "
                             "unhealthy-gpu-% names the unhealthy card",
    [NODE_LIST_DAMAGED] =
        "ConfigMap unhealthy-gpu-% is not a comma-separated list of card indexes",
    [NODE_MISSING] = "no Node object of this name exists, only an Scv object",
    [NODE_DAMAGED] = "the Node object cannot be decoded",
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
    struct span after = span_of(state_texts[node->state]);
    buf_add_span(out, span_cut(&after, '%'));
    if (after.p) {
        buf_add_span(out, node->name);
        buf_add_span(out, after);
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
    if (r->dialect) {
        buf_adds(out, r->kind == REQUEST_NONE ? "" : "needs ");
        buf_add_span(out, r->words);
    } else if (r->kind == REQUEST_MEMORY) {
        /* In words: kube-scheduler takes the message of its event as a format. */
        add_number(out, "needs ", r->percent ? r->percent : r->mib_per_card,
                   r->percent ? " percent of the memory" : " MiB");
        if (r->compute_percent)
            add_number(out, " and ", r->compute_percent, " % of the compute");
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
    request_write_card(out, r);
    if (r->min_link) {
        char word[8];
        buf_adds(out, ", each two connected by ");
        buf_adds(out, link_word(r->min_link, word));
        buf_adds(out, " or better");
    }
}

void reason_prepare(struct prepared_reason *r, const struct request *request)
{
    *r = (struct prepared_reason){.request = request};
    /* A filter call allocates nothing: the longest text fits into r->need. */
    struct buf need = {.p = r->need, .cap = sizeof r->need};
    add_need(&need, request);
    make_plain(&need, 0);
    r->need_n = need.n;
    if (request->kind == REQUEST_MEMORY && !request->compute_percent && !request->slots &&
        !request->min_link && !request_is_selective(request)) {
        buf_adds(&need, request->cards == 1 ? MOST_FREE : ENOUGH);
        r->plain_n = need.n;
    }
    assert(need.p == r->need);
}

/* -- The rest of the reason, by node -- */

/* The lists of cards in a reason: those promised to pods, with too few slots, and that take no pods
 * or not all that is left. Reservations end within seconds: the pod is likely to fit soon. */
enum card_list {
    LIST_PROMISED,
    LIST_SLOTS,
    LIST_CORDONED,
    LIST_EXCLUDED,
    LIST_EXTERNAL = LIST_EXCLUDED + CARD_STATES, /* from here on with the amount */
    LISTS = LIST_EXTERNAL + 3,
};

static void add_cards(struct buf *out, const struct ledger_node *node,
                      const struct request *r, enum card_list from, enum card_list to)
{
    static const char *const texts[LISTS] = {
        "; promised to pods: ",
        "; too few free slots of " KEY_GPU_SHARE ": ",
        "; in the Node's annotation " KEY_HAMI_CORDON ": ",
        "; unhealthy: ",
        "; excluded by ConfigMap: ",
        "; allocated through nvidia.com/gpu: ",
        "; duplicate UUID: ",
        "; promised as whole cards: ",
        "; used outside Kubernetes: ",
        "; used by pods beyond their promises: ",
        "; reserved for pods that are being bound: "};
    int64_t amounts[SCV_MAX_CARDS][LISTS];
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct card *c = &node->cards[i];
        const bool on = c->state == CARD_AVAILABLE;
        const int64_t of_card[LISTS] = {on ? c->pods : 0,
                                        on && c->slots_left < (int64_t)r->slots,
                                        r->dialect && c->cordoned,
                                        c->state == CARD_UNHEALTHY,
                                        c->state == CARD_EXCLUDED,
                                        c->state == CARD_HELD,
                                        c->state == CARD_DUPLICATE,
                                        on && c->whole,
                                        on ? card_external_mib(c) : 0,
                                        on ? c->overuse_mib : 0,
                                        on ? c->reserved_mib : 0};
        memcpy(amounts[i], of_card, sizeof of_card);
    }
    for (enum card_list list = from; list < to; list++) {
        const char *before = list == LIST_SLOTS && r->dialect
                                 ? "; too few free slots of " KEY_NVIDIA_GPU ": "
                                 : texts[list];
        for (uint32_t i = 0; i < node->n_cards; i++) {
            if (!amounts[i][list])
                continue;
            buf_adds(out, before);
            before = list < LIST_EXTERNAL ? "," : ", ";
            if (list >= LIST_EXTERNAL)
                add_number(out, "", amounts[i][list], " MiB on ");
            add_number(out, "GPU", node->cards[i].index, "");
        }
    }
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

/* Is the same written of cards of the two kinds? Compares the texts at the end of `out`, which a
 * steady load keeps, and takes them back. */
static bool is_same_text(struct buf *out, const struct request *r,
                         const struct card_kind *a, const struct card_kind *b)
{
    const size_t from = out->n;
    if (a == b || !span_eq(a->model, b->model))
        return a == b;
    request_write_kind(out, r, a);
    const size_t middle = out->n;
    request_write_kind(out, r, b);
    const bool same = span_eq((struct span){out->p + from, middle - from},
                              (struct span){out->p + middle, out->n - middle});
    out->n = from;
    out->p[from] = '\0';
    return same;
}

/* "2 x Tesla V100, 1 x Tesla T4": the cards of the node, counted by what is written of them. */
static void add_kinds(struct buf *out, const struct ledger_node *node,
                      const struct request *r)
{
    const struct card *cards = node->cards;
    size_t from = out->n;
    buf_adds(out, "; the node has ");
    for (uint32_t i = 0; i < node->n_cards; i++) {
        uint32_t before = 0, n = 0;
        for (uint32_t k = 0; k < node->n_cards; k++) {
            bool same = is_same_text(out, r, cards[k].kind, cards[i].kind);
            n += same;
            before += k < i && same;
        }
        if (before)
            continue;
        add_number(out, i ? ", " : "", n, " x ");
        request_write_kind(out, r, cards[i].kind);
    }
    make_plain(out, from);
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

/* Do pods of nvidia.com/gpu whose cards are not known yet leave too few? Unless they need all, they
 * leave one for a request of one card. */
static bool lacks_claimed(const struct ledger_node *node, const struct request *r)
{
    return node->claimed && (r->kind == REQUEST_DEVICES || r->cards > 1);
}

static void add_later(struct buf *out, const struct ledger_node *node,
                      const struct request *r, bool unlinked)
{
    const struct card *best = NULL, *idle = NULL; /* most memory; then most compute */
    bool held = false;
    for (const struct card *c = node->cards; c < node->cards + node->n_cards; c++) {
        held |= c->state == CARD_HELD;
        if (c->state != CARD_AVAILABLE || !select_card_suits(c, r) ||
            (r->dialect && c->cordoned))
            continue;
        if (!best || c->free_mib > best->free_mib)
            best = c;
        if (c->free_mib >= request_mib(r, c->total_mib, c->kind->kept_mib) &&
            (!idle || card_core_left(c) > card_core_left(idle)))
            idle = c;
    }
    if (!best) {
        buf_adds(out, held                      ? "; no card is available"
                      : request_is_selective(r) ? "; no such card is healthy"
                                                : "; no card is healthy");
    } else if (r->kind != REQUEST_MEMORY) {
        add_number(out, "; free cards: ", count_fitting(node, r), " of ");
        buf_add_i64(out, count_on(node, r, select_card_could_fit));
        if (r->kind == REQUEST_DEVICES)
            add_cards(out, node, r, LIST_PROMISED, LIST_SLOTS);
    } else {
        if (r->cards > 1)
            add_number(out,
                       r->compute_percent
                           ? "; cards with enough free memory and compute: "
                           : ENOUGH,
                       count_fitting(node, r), "");
        add_number(out, MOST_FREE, best->free_mib, " of ");
        add_number(out, "", best->total_mib, " MiB on GPU");
        buf_add_i64(out, best->index);
        if (idle && r->compute_percent) {
            add_number(out,
                       "; most free compute beside that memory: ", card_core_left(idle),
                       " % on GPU");
            buf_add_i64(out, idle->index);
        }
    }
    if (r->slots || r->dialect)
        add_cards(out, node, r, LIST_SLOTS, LIST_EXCLUDED);
    if (best && lacks_claimed(node, r))
        add_number(out,
                   "; requested by pods whose cards are not known yet: ", node->claimed,
                   "");
    if (unlinked)
        add_number(out, "; no ", r->cards, " of them are so connected");
    if (!node->all_available)
        add_cards(out, node, r, LIST_EXCLUDED, LISTS);
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

/* -- What stands between a pending pod and a node -- */

/* The first one of the node, as far as cards decide. Filter does not ask it where memory alone is
 * missing (add_plain). */
static enum obstacle_kind obstacle_of(const struct ledger_node *node,
                                      const struct request *r, enum fit alone)
{
    return select_obstacle(node, r)
               ?: (r->slots && !ledger_node_offers(node, r) ? OBSTACLE_NO_SLOTS
                   : alone == FIT_YES                       ? OBSTACLE_NOMINATED
                   : lacks_links(node, r, alone)            ? OBSTACLE_LINKS
                                                            : OBSTACLE_CARDS);
}

/* The first one of the card; OBSTACLE_NONE: it can take its part of the request. */
static struct obstacle obstacle_of_card(const struct card *card, const struct request *r)
{
    const int64_t mib = request_mib(r, card->total_mib, card->kind->kept_mib),
                  least = mib > 0 ? mib : 1;
    const bool shares = r->kind == REQUEST_MEMORY;
    const bool taken =
        r->kind == REQUEST_CARDS ? !card_is_free(card) : !card_is_unpromised(card);
    const struct obstacle all[] = {
        {card, OBSTACLE_MODEL, !select_card_suits(card, r), 0},
        {card, OBSTACLE_SIZE, mib < r->slots ? r->slots : least,
         mib < r->slots ? mib : card->total_mib},
        {card, OBSTACLE_UNHEALTHY - CARD_UNHEALTHY + card->state,
         card->state != CARD_AVAILABLE, 0},
        {card, OBSTACLE_EXCLUDED, r->dialect && card->cordoned, 0},
        {card, OBSTACLE_WHOLE, card->whole, 0},
        {card, OBSTACLE_MEMORY, shares ? least : 0, card->free_mib},
        {card, OBSTACLE_SLOTS, r->slots, r->slots ? card->slots_left : 0},
        {card, OBSTACLE_COMPUTE, r->compute_percent, card_core_left(card)},
        {card, OBSTACLE_SHARED, !shares && taken ? card->total_mib : 0,
         card->free_mib < card->total_mib ? card->free_mib : 0}, /* a promise of 0 MiB */
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (all[i].needed > all[i].there)
            return all[i];
    return (struct obstacle){card, OBSTACLE_NONE, 0, 0};
}

/* Of what a node can offer, 0 being unknown. */
static int64_t left_of(int64_t offered, int64_t requested)
{
    return !offered ? INT64_MAX : offered > requested ? offered - requested : 0;
}

size_t reason_list(const struct ledger_node *node, const struct reason_ask *ask,
                   struct obstacle list[OBSTACLES_MAX])
{
    const struct request *r = request_on(ask->pod.request, node->dialect);
    const struct resources has = ledger_node_allocatable(node),
                           used = ledger_node_requested(node),
                           wants = ask->requests ? *ask->requests : (struct resources){0};
    const enum fit alone = select_fit(node, r);
    const enum obstacle_kind first = select_fit_pod(node, &ask->pod) == FIT_YES
                                         ? OBSTACLE_NONE
                                         : obstacle_of(node, r, alone);
    const bool counts = first == OBSTACLE_LINKS || first == OBSTACLE_CARDS;
    const struct obstacle all[] = {
        {NULL, ask->terms, ask->terms != OBSTACLE_NONE, 0},
        {NULL, OBSTACLE_CORDON, node->cordoned && !ask->tolerates, 0},
        {NULL, first,
         counts ? r->cards + (lacks_claimed(node, r) ? node->claimed : 0)
                : first != OBSTACLE_NONE,
         !counts              ? 0
         : alone == FIT_NEVER ? count_on(node, r, select_card_could_fit)
                              : count_fitting(node, r)},
        {NULL, OBSTACLE_OFFER, !r->by_label && !r->slots, ledger_node_offers(node, r)},
        {NULL, OBSTACLE_CPU, wants.cpu_milli, left_of(has.cpu_milli, used.cpu_milli)},
        {NULL, OBSTACLE_NODE_MEMORY, wants.memory, left_of(has.memory, used.memory)},
        {NULL, OBSTACLE_PODS, used.pods + 1, has.pods ? has.pods : INT64_MAX},
    };
    size_t n = 0;
    for (const struct obstacle *o = all; o < all + ARRAY_LEN(all); o++)
        if (o->kind < OBSTACLE_OFFER ? o->needed : ask->requests && o->needed > o->there)
            list[n++] = *o;
    for (uint32_t i = 0; i < node->n_cards; i++) {
        struct obstacle o = obstacle_of_card(&node->cards[i], r);
        if (o.kind)
            list[n++] = o;
    }
    return n;
}

/* -- The words -- */

const struct obstacle_words obstacle_words[] = {
    [OBSTACLE_NONE] = {"", 0, "fits", NULL},
    [OBSTACLE_SELECTOR] =
        {"node-affinity", 0,
         "the pod's nodeSelector or required node affinity excludes the node", NULL},
    [OBSTACLE_TAINTS] = {"taints", 0, "the pod does not tolerate the node's taints",
                         NULL},
    [OBSTACLE_CORDON] =
        {"cordoned", 0,
         "cordoned: kube-scheduler offers it only to pods that tolerate the taint", NULL},
    [OBSTACLE_NODE] = {"node", REASON_NODE, NULL, " once this is resolved: "},
    [OBSTACLE_DIALECT] = {"dialect", REASON_MODE, NULL, NULL},
    [OBSTACLE_MODE] = {"mode", REASON_MODE, NULL, " without the label gpushare/mode"},
    [OBSTACLE_ISOLATION] = {"isolation", REASON_ISOLATION, NULL, NULL},
    [OBSTACLE_NO_SCV] =
        {"models-unknown", REASON_MODEL,
         "; card models and clocks are unknown: the node has no Scv object", NULL},
    [OBSTACLE_NO_LINKS] = {"links-unknown", REASON_LINKS,
                           "; what connects the node's cards is unknown", NULL},
    [OBSTACLE_NO_COMPUTE] = {"compute-not-offered", REASON_COMPUTE,
                             "; the node's device plugin does not offer " KEY_GPU_CORE,
                             NULL},
    [OBSTACLE_NO_SLOTS] = {"slots-not-offered", REASON_SIZE,
                           "; the node's device plugin does not offer " KEY_GPU_SHARE,
                           " once its device plugin offers " KEY_GPU_SHARE},
    [OBSTACLE_NOMINATED] = {"nominated", REASON_NOMINATED,
                            "; free, but reserved for pods nominated to this node", NULL},
    [OBSTACLE_LINKS] = {"links", REASON_LINKS, NULL, NULL},
    [OBSTACLE_CARDS] = {"cards", REASON_MEMORY, NULL, NULL},
    [OBSTACLE_OFFER] = {"not-offered", 0, NULL, NULL},
    [OBSTACLE_CPU] = {"cpu", 0, NULL, NULL},
    [OBSTACLE_NODE_MEMORY] = {"node-memory", 0, NULL, NULL},
    [OBSTACLE_PODS] = {"pod-slots", 0, NULL, NULL},
    /* Of a card, in explain alone: */
    [OBSTACLE_MODEL] = {"model", 0, "model or clock does not match",
                        "with any model or clock, "},
    [OBSTACLE_SIZE] = {"size", 0, "too small", NULL},
    [OBSTACLE_UNHEALTHY] = {"unhealthy", 0, "unhealthy", " becomes healthy"},
    [OBSTACLE_EXCLUDED] = {"excluded", 0, "excluded by the ConfigMap",
                           " is removed from the ConfigMap"},
    [OBSTACLE_HELD] = {"other-plugin", 0, "allocated through nvidia.com/gpu",
                       " is released by the pod that has nvidia.com/gpu"},
    [OBSTACLE_DUPLICATE] = {"duplicate-uuid", 0, "has the same UUID as another card",
                            " gets a UUID of its own in the Scv"},
    [OBSTACLE_WHOLE] = {"whole-card", 0, "promised as a whole card", NULL},
    [OBSTACLE_MEMORY] = {"memory", 0, "lacks ", NULL},
    [OBSTACLE_SLOTS] = {"slots", 0, "has too few free slots", NULL},
    [OBSTACLE_COMPUTE] = {"compute", 0, "lacks ", NULL},
    [OBSTACLE_SHARED] = {"promised", 0, "not entirely free", NULL},
};
_Static_assert(ARRAY_LEN(obstacle_words) == OBSTACLES, "obstacle_kind");

/* -- Its sentence -- */

void reason_add_prepared(struct buf *out, const struct prepared_reason *prepared,
                         const struct ledger_node *node, enum fit alone)
{
    static const char *const mode_texts[] = {
        [NODE_MODE_WRONG] = "node label gpushare/mode is neither memory nor card",
        [NODE_MEMORY] = "node label gpushare/mode=memory: no whole cards",
        [NODE_CARDS] = "node label gpushare/mode=card: whole cards only",
    };
    static const char *const dialect_texts[] = {
        [SCV_DIALECT_NONE] = "; this node serves no requests of HAMi: its Scv has no "
                             "dialect, which the CRD "
                             "of 1.0 drops",
        [SCV_DIALECT_UNSERVED] =
            "; this node serves no requests of HAMi yet: its Scv's dialect is unserved",
        [SCV_DIALECT_OTHER] = "; this node's dialect is unknown to the extender",
    };
    const struct request *r = request_on(prepared->request, node->dialect);
    if (r != prepared->request) {
        reason_add(out, node, r, alone);
        return;
    }
    if (prepared->plain_n && alone == FIT_LATER && !select_obstacle(node, r) &&
        node->all_available && node->best_index >= 0 && !lacks_claimed(node, r)) {
        add_plain(out, prepared, node);
        return;
    }
    enum obstacle_kind first = obstacle_of(node, r, alone);
    if (first > OBSTACLE_ISOLATION || first == OBSTACLE_DIALECT)
        buf_add(out, prepared->need, prepared->need_n);
    if (first == OBSTACLE_NODE)
        add_state(out, node);
    else if (first == OBSTACLE_DIALECT)
        buf_adds(out, r->kind == REQUEST_NONE ? ", as " KEY_NVIDIA_GPU
                                                " is a request of HAMi on this node"
                                              : dialect_texts[node->dialect]);
    else if (first == OBSTACLE_NO_SLOTS && r->dialect)
        buf_adds(out, "; the node's device plugin does not offer " KEY_NVIDIA_GPU);
    else if (first == OBSTACLE_MODE)
        buf_adds(out, mode_texts[node->mode]);
    else if (first == OBSTACLE_ISOLATION)
        add_isolation(out, node, r);
    else if (first < OBSTACLE_LINKS)
        buf_adds(out, obstacle_words[first].text);
    else if (alone != FIT_NEVER)
        add_later(out, node, r, first == OBSTACLE_LINKS);
    else if (first == OBSTACLE_LINKS)
        add_number(out, "; no ", r->cards, " such cards of the node are so connected");
    else
        add_never(out, node, r);
}

void reason_add(struct buf *out, const struct ledger_node *node,
                const struct request *request, enum fit alone)
{
    struct prepared_reason prepared;
    reason_prepare(&prepared, request);
    reason_add_prepared(out, &prepared, node, alone);
}

void reason_write(struct buf *out, const struct ledger_node *node,
                  const struct request *r, const struct obstacle *list, size_t n)
{
    for (const struct obstacle *o = list; o < list + n && !o->card; o++) {
        buf_adds(out, o > list ? "; " : "");
        if (o->kind <= OBSTACLE_CORDON)
            buf_adds(out, obstacle_words[o->kind].text);
        else if (o->kind <= OBSTACLE_CARDS)
            reason_add(out, node, r, select_fit(node, r));
        else if (o->kind == OBSTACLE_OFFER)
            buf_printf(out, "lacks %s: no device plugin offers it on this node",
                       r->kind == REQUEST_MEMORY  ? KEY_GPU_MEM
                       : r->kind == REQUEST_CARDS ? KEY_GPU_COUNT
                                                  : KEY_NVIDIA_GPU);
        else if (o->kind == OBSTACLE_CPU)
            buf_printf(out, "lacks CPU: the pod requests %.10g, free are %.10g",
                       (double)o->needed / 1000, (double)o->there / 1000);
        else if (o->kind == OBSTACLE_NODE_MEMORY)
            buf_printf(out,
                       "lacks node memory: the pod requests %" PRId64
                       " MiB, free are %" PRId64 " MiB",
                       (o->needed >> 20) + (o->needed % (1 << 20) != 0), o->there >> 20);
        else
            buf_printf(out, "no pod slot is free: %" PRId64 " of %" PRId64 " are taken",
                       o->needed - 1, o->there);
    }
}

void reason_add_unusable(struct buf *out, const struct ledger_node *node)
{
    const struct request any = {.kind = REQUEST_MEMORY, .cards = 1};
    if (node->state != NODE_USABLE || node->mode == NODE_MODE_WRONG)
        reason_add(out, node, &any, FIT_LATER);
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
        [REASON_ISOLATION] = "isolation", [REASON_QUOTA] = "quota",
    };
    return names[reason];
}

enum reason_class reason_class_of(const struct ledger_node *node, const struct request *r,
                                  enum fit alone)
{
    r = request_on(r, node ? node->dialect : SCV_DIALECT_NONE);
    enum obstacle_kind first = node ? obstacle_of(node, r, alone) : OBSTACLE_NODE;
    if (first < OBSTACLE_CARDS)
        return obstacle_words[first].class;
    if (alone == FIT_NEVER)
        return request_is_selective(r) ? REASON_MODEL : REASON_SIZE;
    if (node->best_index < 0)
        return REASON_UNHEALTHY;
    if (!r->compute_percent)
        return REASON_MEMORY;
    struct request memory = *r;
    memory.compute_percent = 0;
    return select_fit(node, &memory) == FIT_YES ? REASON_COMPUTE : REASON_MEMORY;
}

/* -- The nearest node -- */

static int64_t memory_missing(const struct ledger_node *node, const struct request *r)
{
    uint64_t counted = 0;
    int64_t missing = 0;
    for (uint32_t k = 0; k < r->cards; k++) {
        /* Of the cards that suit and are not counted yet. */
        int64_t most = 0, need = request_mib(r, node->largest_mib, 0);
        uint64_t which = 0;
        for (uint32_t i = 0; i < node->n_cards; i++) {
            const struct card *card = &node->cards[i];
            if (counted >> i & 1 || card->free_mib <= most ||
                !select_card_suits(card, r) || card_core_left(card) < r->compute_percent)
                continue;
            most = card->free_mib;
            need = request_mib(r, card->total_mib, card->kind->kept_mib);
            which = UINT64_C(1) << i;
        }
        counted |= which;
        missing += most < need ? need - most : 0;
    }
    return missing;
}

int64_t nearest_node_shortfall(const struct ledger_node *node, const struct request *r)
{
    r = request_on(r, node->dialect);
    if (select_fit(node, r) == FIT_YES)
        return 0;
    if (!node->n_cards || obstacle_of(node, r, FIT_YES) != OBSTACLE_NOMINATED)
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

void nearest_node_visit(struct nearest_node *n, const struct ledger_node *node)
{
    if (!n->offered && node->state == NODE_UNKNOWN)
        return; /* pods can name nodes that do not exist */
    if (n->own_terms && ledger_node_judge(node, n->terms) > TERMS_UNKNOWN) {
        n->excluded++;
        return;
    }
    enum fit fit = select_fit_pod(node, &n->pod);
    if (fit == FIT_YES && node->cordoned && !n->offered)
        fit = FIT_LATER; /* kube-scheduler removes the node before filter */
    n->seen++;
    n->fits += fit == FIT_YES;
    int64_t missing = nearest_node_shortfall(node, n->pod.request);
    if (!is_closer(n, node, fit, missing))
        return;
    n->node = node;
    n->fit = fit;
    n->missing = missing;
}
