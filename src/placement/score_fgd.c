/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/placement.h"
#include "placement/score_priv.h"

/*
 * The fragmentation gradient: how much less of the node's memory the mix could use if the
 * pod were placed there. Alone it does not distinguish similar nodes and does not prefer
 * a node in use. So two more terms are added, both small compared to a card:
 *
 *   fullness  the share of the node that is in use after the placement
 *   balance   the difference between the free shares of CPU and memory, squared: a node
 *             without free CPU strands its memory, and vice versa (only if CPU is known).
 *             Pods that request no CPU do not use up that of a node, so they would be
 *             spread over empty nodes: for them CPU counts only in the fragmentation
 *
 * Their weights were measured (docs/placement.md).
 */

enum {
    FULLNESS = 20, /* a full node gains 1/20 of a card over an empty one */
    BALANCE = 8,   /* a node with only memory or only CPU left loses 1/8 of a card */
};

/* part / whole, << FRAG_SHIFT. */
static int64_t share(int64_t part, int64_t whole)
{
    return whole > 0 ? (part << FRAG_SHIFT) / whole : 0;
}

void score_survey_cards(const struct score_call *call, struct score_survey *survey)
{
    for (size_t i = 0; i < call->n; i++) {
        const struct ledger_node *node = call->nodes[i].node;
        if (!node || node->largest_mib <= 0)
            continue;
        survey->card_sum += frag_clamp(node->largest_mib);
        survey->cards++;
    }
}

/* The mean over the candidate nodes of the size of the largest card. */
static int64_t mean_card(const struct score_survey *survey)
{
    return survey->cards ? survey->card_sum / survey->cards : 0;
}

static int64_t size_of(const struct ledger_node *node)
{
    int64_t size = 0;
    if (node->brief.valid)
        return node->brief.available_mib;
    for (uint32_t i = 0; i < node->n_cards; i++)
        size += node->cards[i].state == CARD_AVAILABLE
                    ? frag_clamp(node->cards[i].total_mib)
                    : 0;
    return size;
}

/* Fullness and balance when that much is left, in MiB << FRAG_SHIFT. */
static int64_t shape_of(const struct score_pod *pod, const struct score_node *at,
                        int64_t free, int64_t cpu_free, int64_t size, int64_t card)
{
    int64_t memory = share(free, size);
    if (!at->cpu_milli || !pod->cpu_milli)
        return -(card * memory / FULLNESS);
    int64_t cpu = share(cpu_free, frag_clamp(at->cpu_milli));
    int64_t apart = size > 0 ? cpu - memory : 0;
    return -(card * (cpu + memory) / 2 / FULLNESS) -
           card * (apart * apart >> FRAG_SHIFT) / BALANCE;
}

static int64_t cpu_free_of(const struct score_node *at)
{
    return at->cpu_milli ? at->cpu_free : FRAG_CPU_UNKNOWN;
}

static int64_t value_of(const struct score_call *call, const struct score_node *at,
                        int64_t card)
{
    const struct request *r = call->pod->request;
    uint32_t picks[REQUEST_MAX_CARDS];
    struct frag_node node;
    int64_t mib = r->kind == REQUEST_MEMORY ? r->mib_per_card : INT64_MAX;
    uint32_t n = r->kind == REQUEST_NONE ? 0 : r->cards;
    if (!at->node || (n ? !score_picks(at->node, r, picks) : !at->cpu_milli))
        return SCORE_NO_FIT;
    frag_read_node(at->node, cpu_free_of(at), &node);
    int64_t drop =
        frag_take(call->frag, &node, picks, n, mib, frag_clamp(call->pod->cpu_milli));
    int64_t free = 0;
    for (uint32_t i = 0; i < node.n; i++)
        free += node.free_mib[i];
    return drop + shape_of(call->pod, at, free, node.cpu_free, size_of(at->node), card);
}

/* value_of for a request that `quick` decides about, from the node's brief. */
static bool value_of_brief(const struct score_call *call,
                           const struct placement_quick *quick,
                           const struct score_node *at, int64_t card, int64_t *value)
{
    const struct request *r = call->pod->request;
    const struct ledger_node *node = at->node;
    int64_t cpu = frag_clamp(call->pod->cpu_milli), drop;
    int64_t cpu_free = frag_cpu(cpu_free_of(at));
    if (!node || !node->brief.valid || !placement_fits_at_once(quick, node))
        return false;
    uint32_t pick = score_pick_one(&node->brief, r);
    if (!frag_take_one(call->frag, node, pick, r->mib_per_card, cpu_free, cpu, &drop))
        return false;
    int64_t free = -r->mib_per_card;
    for (uint32_t i = 0; i < LEDGER_BRIEF_CARDS; i++)
        free += node->brief.free_mib[i];
    cpu_free -= cpu < cpu_free ? cpu : cpu_free;
    *value =
        drop + shape_of(call->pod, at, free, cpu_free, node->brief.available_mib, card);
    return true;
}

void score_fgd(const struct score_call *call, int64_t *values)
{
    int64_t card = mean_card(call->survey);
    const struct placement_quick quick = placement_quick(call->pod->request);
    for (size_t i = 0; i < call->n; i++) {
        score_prefetch_brief(call, i);
        if (!value_of_brief(call, &quick, &call->nodes[i], card, &values[i]))
            values[i] = value_of(call, &call->nodes[i], card);
    }
}

/* Differences smaller than that between a full and an empty node are not stretched over
 * all points: there, kube-scheduler's own plugins decide. */
int64_t score_fgd_least(const struct score_survey *survey)
{
    return (mean_card(survey) << FRAG_SHIFT) / FULLNESS;
}
