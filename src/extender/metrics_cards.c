/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "extender/metrics_priv.h"
#include "extender/walk.h"
#include "placement/frag.h"

enum { STATES = NODE_MISSING + 1, OUTS = CARD_DUPLICATE + 1, DIGITS = 12 };

/* Memory, in MiB. */
enum amount { CAPACITY, PROMISED, USED, WITHHELD, FREE, CORDONED, STRANDED, AMOUNTS };

static const struct {
    const char *cluster, *node, *card, *help; /* NULL: not told there */
} amounts[AMOUNTS] = {
    [CAPACITY] = {"gpushare_memory_capacity_bytes", "gpushare_node_memory_capacity_bytes",
                  "gpushare_card_memory_capacity_bytes", "Memory of all cards."},
    [PROMISED] = {"gpushare_memory_promised_bytes", "gpushare_node_memory_promised_bytes",
                  "gpushare_card_memory_promised_bytes", "What is promised to pods."},
    [USED] = {"gpushare_memory_used_bytes", "gpushare_node_memory_used_bytes",
              "gpushare_card_memory_used_bytes",
              "What is in use, of cards where that was measured."},
    [WITHHELD] = {"gpushare_memory_withheld_bytes", NULL, NULL,
                  "What is withheld because something outside Kubernetes uses it."},
    [FREE] = {"gpushare_memory_free_bytes", "gpushare_node_memory_free_bytes",
              "gpushare_card_memory_free_bytes",
              "What can still be promised, on usable nodes."},
    [CORDONED] = {"gpushare_memory_free_cordoned_bytes", NULL, NULL,
                  "What of that is on nodes that are cordoned."},
    [STRANDED] = {"gpushare_memory_stranded_bytes", "gpushare_node_memory_stranded_bytes",
                  NULL,
                  "What is free and too small a piece for the pods that come here, in "
                  "the mean over what they ask for."},
};

static const char *const states[STATES] = {
    [NODE_USABLE] = "usable",           [NODE_UNKNOWN] = "unknown",
    [NODE_SCV_MISSING] = "scv-missing", [NODE_SCV_DAMAGED] = "scv-damaged",
    [NODE_SCV_EMPTY] = "scv-empty",     [NODE_NO_GPU] = "no-gpu",
    [NODE_NO_COUNT] = "no-count",       [NODE_ALLOCATABLE_LOW] = "allocatable-low",
    [NODE_STALE] = "silent",           [NODE_LIST_DAMAGED] = "list-damaged",
    [NODE_MISSING] = "node-missing",
};

static const char *const outs[OUTS] = {[CARD_AVAILABLE] = "healthy",
                                       [CARD_UNHEALTHY] = "unhealthy",
                                       [CARD_LISTED] = "taken-out",
                                       [CARD_HELD] = "held",
                                       [CARD_DUPLICATE] = "duplicate-uuid"};

static const char *const drifts[DRIFTS] = {
    [DRIFT_OVERCOMMITTED] = "overcommitted", [DRIFT_OUTSIDE] = "outside",
    [DRIFT_UNPLACED] = "unplaced",           [DRIFT_CARDLESS] = "cardless",
    [DRIFT_WRONG_CARD] = "wrong-card",       [DRIFT_CAPACITY] = "capacity",
    [DRIFT_LISTED] = "listed-nowhere",       [DRIFT_DUPLICATE] = "duplicate-uuid",
};

/* What is told of a node, or of a card. */
struct row {
    struct span node, uuid, model; /* copied */
    char index[DIGITS];
    int64_t mib[AMOUNTS];
    int64_t cards, healthy;
    bool measured, cordoned;
};

struct table {
    struct row *rows;
    size_t n, cap;
};

struct count {
    enum metrics_detail detail;
    struct frag frag;
    struct arena arena;
    int64_t mib[AMOUNTS];
    int64_t states[STATES], outs[OUTS], drifts[DRIFTS];
    int64_t cordoned, promises, cardless, measured;
    struct table nodes, cards;
};

static struct row *row_add(struct table *t)
{
    MEM_GROW(t->rows, t->cap, t->n + 1);
    t->rows[t->n] = (struct row){0};
    return &t->rows[t->n++];
}

static void add_card(struct count *c, const struct ledger_node *node,
                     const struct card *card, int64_t mib[AMOUNTS])
{
    int64_t amount[AMOUNTS] = {
        [CAPACITY] = card->total_mib,
        [PROMISED] = card->promised_mib,
        [USED] = card->used_mib > 0 ? card->used_mib : 0,
        [WITHHELD] = card->withheld_mib,
        [FREE] = node->state == NODE_USABLE ? card->free_mib : 0,
    };
    amount[CORDONED] = node->cordoned ? amount[FREE] : 0;
    for (int i = 0; i < AMOUNTS; i++)
        mib[i] += amount[i] = frag_tame(amount[i]);
    c->outs[card->state]++;
    c->promises += card->pods;
    c->measured += card->used_mib >= 0;
    if (c->detail < METRICS_CARD)
        return;
    struct row *row = row_add(&c->cards);
    row->node = arena_copy(&c->arena, node->name);
    row->uuid = arena_copy(&c->arena, card->uuid);
    row->model = arena_copy(&c->arena, card->model);
    row->healthy = card->state == CARD_AVAILABLE;
    row->measured = card->used_mib >= 0;
    memcpy(row->mib, amount, sizeof amount);
    snprintf(row->index, sizeof row->index, "%d", card->index);
}

/* Pods that were bound without us; where there is just one card that is no drift. */
static void add_pods(struct count *c, const struct ledger_node *node)
{
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next)
        c->cardless += pod->n_shares == 0 && pod->request.kind != REQUEST_DEVICES;
}

static void add_node(void *ctx, const struct ledger *l, const struct ledger_node *node)
{
    struct count *c = ctx;
    struct frag_node now;
    int64_t mib[AMOUNTS] = {0}, healthy = 0;
    for (uint32_t i = 0; i < node->n_cards; i++) {
        add_card(c, node, &node->cards[i], mib);
        healthy += node->cards[i].state == CARD_AVAILABLE;
    }
    if (node->state == NODE_USABLE) {
        frag_look(node, 0, &now);
        mib[STRANDED] = frag_of(&c->frag, &now) >> FRAG_SHIFT;
    }
    for (int i = 0; i < AMOUNTS; i++)
        c->mib[i] += mib[i];
    c->states[node->state]++;
    c->cordoned += node->cordoned && node->state == NODE_USABLE;
    add_pods(c, node);
    ledger_node_drift(l, node, c->drifts);
    if (c->detail < METRICS_NODE)
        return;
    struct row *row = row_add(&c->nodes);
    row->node = arena_copy(&c->arena, node->name);
    row->cards = node->n_cards;
    row->healthy = healthy;
    row->cordoned = node->cordoned;
    row->measured = true;
    memcpy(row->mib, mib, sizeof mib);
}

/* -- the text -- */

static int64_t bytes(int64_t mib)
{
    return mib > INT64_MAX >> 20 ? INT64_MAX : mib << 20;
}

static void by_word(struct buf *out, const char *name, const char *help,
                    const char *label, const char *const *words, const int64_t *n,
                    size_t count)
{
    prom_family(out, name, PROM_GAUGE, help);
    for (size_t i = 0; i < count; i++)
        prom_sample(out, name, &(struct prom_label){label, span_of(words[i])}, 1, n[i]);
}

static void write_sums(const struct count *c, struct buf *out)
{
    by_word(out, "gpushare_nodes", "Nodes, by whether they get new pods.", "state",
            states, c->states, STATES);
    prom_one(out, "gpushare_nodes_cordoned", PROM_GAUGE,
             "Usable nodes that kube-scheduler offers only to pods that tolerate a "
             "cordoned one.",
             c->cordoned);
    by_word(out, "gpushare_cards", "Cards, by whether they get new pods.", "state", outs,
            c->outs, OUTS);
    prom_one(out, "gpushare_cards_measured", PROM_GAUGE,
             "Cards whose use of memory was measured.", c->measured);
    for (int i = 0; i < AMOUNTS; i++)
        prom_one(out, amounts[i].cluster, PROM_GAUGE, amounts[i].help, bytes(c->mib[i]));
    prom_one(out, "gpushare_promises", PROM_GAUGE,
             "Promises on cards: a pod on two cards has two.", c->promises);
    prom_one(out, "gpushare_promises_unplaced", PROM_GAUGE,
             "Promises on cards that are not there.", c->drifts[DRIFT_UNPLACED]);
    prom_one(out, "gpushare_pods_without_card", PROM_GAUGE,
             "Pods that were bound without the extender and have no card.", c->cardless);
    by_word(out, "gpushare_drift",
            "Where ledger, annotations, Node and Scv do not agree.", "kind", drifts,
            c->drifts, DRIFTS);
}

static void per_node(const struct table *t, struct buf *out)
{
    for (int k = 0; k < AMOUNTS; k++) {
        if (!amounts[k].node)
            continue;
        prom_family(out, amounts[k].node, PROM_GAUGE, amounts[k].help);
        for (size_t i = 0; i < t->n; i++)
            prom_sample(out, amounts[k].node,
                        &(struct prom_label){"node", t->rows[i].node}, 1,
                        bytes(t->rows[i].mib[k]));
    }
    prom_family(out, "gpushare_node_cards", PROM_GAUGE, "Cards of a node.");
    for (size_t i = 0; i < t->n; i++)
        prom_sample(out, "gpushare_node_cards",
                    &(struct prom_label){"node", t->rows[i].node}, 1, t->rows[i].cards);
    prom_family(out, "gpushare_node_cards_healthy", PROM_GAUGE,
                "Those of them that get new pods.");
    for (size_t i = 0; i < t->n; i++)
        prom_sample(out, "gpushare_node_cards_healthy",
                    &(struct prom_label){"node", t->rows[i].node}, 1, t->rows[i].healthy);
    prom_family(out, "gpushare_node_cordoned", PROM_GAUGE, "Whether it is cordoned.");
    for (size_t i = 0; i < t->n; i++)
        prom_sample(out, "gpushare_node_cordoned",
                    &(struct prom_label){"node", t->rows[i].node}, 1,
                    t->rows[i].cordoned);
}

static void per_card(const struct table *t, struct buf *out)
{
    for (int k = 0; k < AMOUNTS; k++) {
        if (!amounts[k].card)
            continue;
        prom_family(out, amounts[k].card, PROM_GAUGE, amounts[k].help);
        for (size_t i = 0; i < t->n; i++) {
            struct prom_label l[] = {{"node", t->rows[i].node},
                                     {"card", span_of(t->rows[i].index)}};
            if (k != USED || t->rows[i].measured)
                prom_sample(out, amounts[k].card, l, 2, bytes(t->rows[i].mib[k]));
        }
    }
    prom_family(out, "gpushare_card_healthy", PROM_GAUGE,
                "Whether the card gets new pods.");
    for (size_t i = 0; i < t->n; i++) {
        struct prom_label l[] = {{"node", t->rows[i].node},
                                 {"card", span_of(t->rows[i].index)}};
        prom_sample(out, "gpushare_card_healthy", l, 2, t->rows[i].healthy);
    }
    prom_family(out, "gpushare_card_info", PROM_GAUGE, "Which card that is.");
    for (size_t i = 0; i < t->n; i++) {
        struct prom_label l[] = {{"node", t->rows[i].node},
                                 {"card", span_of(t->rows[i].index)},
                                 {"uuid", t->rows[i].uuid},
                                 {"model", t->rows[i].model}};
        prom_sample(out, "gpushare_card_info", l, 4, 1);
    }
}

void metrics_cards_write(struct store *store, const struct mix *mix,
                         enum metrics_detail detail, struct buf *out)
{
    struct count c = {.detail = detail};
    frag_prepare(&c.frag, mix);
    walk_nodes(store, add_node, &c);
    write_sums(&c, out);
    if (detail >= METRICS_NODE)
        per_node(&c.nodes, out);
    if (detail >= METRICS_CARD)
        per_card(&c.cards, out);
    free(c.nodes.rows);
    free(c.cards.rows);
    arena_fini(&c.arena);
    frag_fini(&c.frag);
}
