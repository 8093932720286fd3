/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/ledger_priv.h"

/*
 * Counts disagreements between ledger, annotations, Node and Scv; `kubectl inspect gpushare
 * --check` describes them.
 */

bool card_has_external_use(const struct card *card)
{
    return card_external_mib(card) > 0 && (card->use_known || card->state != CARD_HELD);
}

bool card_is_duplicate(const struct ledger_node *node, uint32_t i)
{
    return node->facts->has[LEDGER_SCV] && node->facts->duplicates >> i & 1;
}

bool ledger_mem_matches(const struct ledger_node *node, int64_t unit_mib, int64_t mem)
{
    int64_t healthy = 0, all = 0;
    for (uint32_t i = 0; i < node->n_cards; i++) {
        int64_t units = node->cards[i].total_mib / unit_mib;
        healthy += node->cards[i].state == CARD_UNHEALTHY ? 0 : units;
        all += units;
    }
    return mem <= 0 || (mem >= healthy && mem <= all);
}

bool ledger_count_matches(const struct ledger_node *node, int64_t cards)
{
    int64_t unhealthy = 0;
    for (uint32_t i = 0; i < node->n_cards; i++)
        unhealthy += node->cards[i].state == CARD_UNHEALTHY;
    return cards <= 0 || (cards >= node->n_cards - unhealthy && cards <= node->n_cards);
}

static void count_cards(const struct ledger_node *node, int64_t counts[DRIFTS])
{
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct card *card = &node->cards[i];
        counts[DRIFT_OVERCOMMITTED] += card->overcommitted;
        counts[DRIFT_OUTSIDE] += card_has_external_use(card);
        counts[DRIFT_OVERUSE] += card->overuse_mib > 0;
        counts[DRIFT_DUPLICATE] += card_is_duplicate(node, i);
    }
}

/* kube-scheduler trusts the capacity. */
static void count_capacity(const struct ledger *l, const struct ledger_node *node,
                           int64_t counts[DRIFTS])
{
    const struct ledger_node_facts *f = node->facts;
    if (!f->has[LEDGER_NODE] || node->source != SOURCE_SCV || f->scv_damaged)
        return;
    counts[DRIFT_CAPACITY] +=
        !ledger_mem_matches(node, l->settings.unit_mib, f->capacity.mem);
    counts[DRIFT_CAPACITY] += !ledger_count_matches(node, f->capacity.cards);
}

/* Does a share name the card, even if the node no longer has it? */
static bool is_promised(const struct ledger_pod *pod, const struct ledger_assignment *a)
{
    for (uint32_t i = 0; i < pod->n_shares; i++) {
        const struct ledger_pod_share *share = &pod->shares[i];
        char text[CARD_UUID_TEXT];
        bool known = share->on && share->on->uuid.n;
        if (scv_hash(known ? share->on->uuid : card_uuid_text(&share->uuid, text)) ==
            a->card)
            return true;
    }
    return false;
}

static int64_t wrong_cards(const struct ledger_node *node, const struct ledger_pod *pod)
{
    size_t assigned;
    const struct ledger_assignment *a =
        ledger_facts_assigned(node->facts, pod, &assigned);
    int64_t n = 0;
    for (size_t i = 0; i < assigned && pod->n_shares; i++)
        n += !is_promised(pod, &a[i]);
    return n;
}

enum { WRITTEN_MAX = 8 }; /* of a list of cards; an event has at most 1024 bytes */

static void write_card(struct buf *out, uint32_t number, int32_t index)
{
    if (number < WRITTEN_MAX)
        buf_printf(out, "%sGPU%d", number ? "," : "", index);
    else if (number == WRITTEN_MAX)
        buf_adds(out, ",...");
}

static void write_cards(struct buf *out, const struct ledger_node *node, uint64_t cards)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < node->n_cards; i++)
        if (cards >> i & 1)
            write_card(out, n++, node->cards[i].index);
}

static void write_shares(struct buf *out, const struct ledger_pod *pod)
{
    for (uint32_t i = 0; i < pod->n_shares; i++)
        write_card(out, i, pod->shares[i].card);
}

/* Does it count in full on a card that a share names for a part? */
static bool has_fewer_cards(const struct ledger_node *node, const struct ledger_pod *pod)
{
    bool fewer = false;
    for (uint32_t i = 0; i < pod->n_shares; i++) {
        const struct card *on = pod->shares[i].on;
        fewer |= on && pod->other_cards >> (on - node->cards) & 1;
    }
    return fewer;
}

/* The podList shows cards that the annotations do not name, or only some of theirs. */
static bool has_other_cards(const struct ledger_node *node, const struct ledger_pod *pod)
{
    return pod->n_shares && pod->other_cards &&
           (wrong_cards(node, pod) > 0 || has_fewer_cards(node, pod));
}

bool ledger_pod_is_forged(const struct ledger_node *node, const struct ledger_pod *pod,
                          struct buf *why, bool *only_cards)
{
    bool cards = has_other_cards(node, pod);
    *only_cards = cards && !pod->differences;
    if (pod->differences)
        buf_adds(why, pod->differences);
    if (!cards)
        return pod->differences != NULL;
    buf_adds(why, pod->differences ? "; the promise names " : "the promise names ");
    write_shares(why, pod);
    buf_adds(why, ", but the kubelet gave ");
    write_cards(why, node, pod->other_cards);
    buf_adds(why, "; it counts on both");
    return true;
}

void ledger_node_drift(const struct ledger *l, const struct ledger_node *node,
                       int64_t counts[DRIFTS])
{
    count_cards(node, counts);
    count_capacity(l, node, counts);
    counts[DRIFT_LISTED] += node->unknown_listed_card >= 0;
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next) {
        counts[DRIFT_FORGED] += pod->differences || has_other_cards(node, pod);
        if (pod->request->kind == REQUEST_DEVICES || pod->request->kind == REQUEST_NONE)
            continue;
        counts[DRIFT_CARDLESS] +=
            !pod->n_shares && (node->n_cards != 1 || pod->request->by_label);
        for (uint32_t i = 0; i < pod->n_shares; i++)
            counts[DRIFT_UNPLACED] += !pod->shares[i].on;
        counts[DRIFT_WRONG_CARD] += wrong_cards(node, pod);
    }
}
