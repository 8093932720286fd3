/* SPDX-License-Identifier: Apache-2.0 */
/* What disagrees about a node, and its sentences. */
#include "domain/diagnosis.h"

#include <inttypes.h>

#include "base/array.h"
#include "domain/keys.h"
#include "domain/ledger_priv.h"

/* -- cards -- */

bool diagnosis_overcommit(const struct card *card, struct disagreement *d)
{
    *d = (struct disagreement){.kind = DRIFT_OVERCOMMITTED,
                               .card = card,
                               .is = card->promised_mib,
                               .should = card->total_mib};
    return card->overcommitted;
}

/* An estimate for a card that a container holds through nvidia.com/gpu is what that container
 * uses. */
static bool has_external_use(const struct card *card)
{
    return card_external_mib(card) > 0 && (card->use_known || card->state != CARD_HELD);
}

static void diagnose_card(const struct ledger_node *node, const struct card *card,
                          disagreement_fn add, void *ctx)
{
    const struct ledger_node_facts *f = node->facts;
    struct disagreement d;
    if (diagnosis_overcommit(card, &d))
        add(ctx, &d);
    if (f->has[LEDGER_SCV] && f->duplicates >> (card - node->cards) & 1)
        add(ctx, &(struct disagreement){.kind = DRIFT_DUPLICATE_UUID, .card = card});
    if (has_external_use(card))
        add(ctx, &(struct disagreement){.kind = DRIFT_EXTERNAL_USE,
                                        .card = card,
                                        .is = card_external_mib(card)});
    if (card->overuse_mib > 0)
        add(ctx, &(struct disagreement){
                     .kind = DRIFT_OVERUSE, .card = card, .is = card->overuse_mib});
}

/* -- what the Node offers -- */

/* Does a device plugin of ours belong on the node? On a node of NVIDIA's plugin or of labels alone
 * there is none, although scv-agent runs there. */
static bool is_served(const struct ledger_node *node)
{
    const struct ledger_node_facts *f = node->facts;
    const struct node_resources *has = &f->capacity, *left = &f->allocatable;
    if (node->left_out)
        return false;
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next)
        if (!pod->request->by_label &&
            (pod->request->kind == REQUEST_MEMORY || pod->request->kind == REQUEST_CARDS))
            return true;
    /* The kubelet remembers the resource of a plugin that has ended as 0. */
    return f->included || (has->devices <= 0 && (has->mem >= 0 || has->cards >= 0)) ||
           has->mem > (left->mem > 0 ? left->mem : 0);
}

/* scv-agent lists a missing card for another day, the device plugin the cards since its start: the
 * capacity is that of all cards, or of all but the unhealthy ones. Allocatable is that of the
 * healthy ones. `unit_mib` 0: cards are counted. */
static void diagnose_resource(const struct ledger_node *node, const char *resource,
                              int64_t unit_mib, int64_t capacity, int64_t allocatable,
                              disagreement_fn add, void *ctx)
{
    int64_t healthy = 0, all = 0, good = 0, sum = 0;
    ARRAY_EACH_ITEM(const struct card, card, node->cards, node->n_cards)
    {
        int64_t whole = card->total_mib + card->kind->kept_mib;
        int64_t units = unit_mib ? card->total_mib / unit_mib : 1;
        sum += units;
        healthy += card->state == CARD_UNHEALTHY ? 0 : units;
        good +=
            card->state == CARD_UNHEALTHY || card->state == CARD_DUPLICATE ? 0 : units;
        all += unit_mib ? whole / unit_mib : 1;
    }
    const int64_t left = capacity > 0 && allocatable > 0 ? allocatable : 0;
    bool offered = capacity > 0,
         wrong = offered && (capacity < healthy || capacity > all);
    bool lacks = left < good && (!offered || allocatable >= 0) && is_served(node);
    if (wrong || lacks)
        add(ctx, &(struct disagreement){.kind = DRIFT_CAPACITY,
                                        .resource = resource,
                                        .allocatable = !wrong,
                                        .is = wrong ? capacity : left,
                                        .should = wrong ? sum : good});
}

void diagnosis_node(const struct ledger *l, const struct ledger_node *node,
                    disagreement_fn add, void *ctx)
{
    const struct ledger_node_facts *f = node->facts;
    if (node->unknown_listed_card >= 0)
        add(ctx, &(struct disagreement){.kind = DRIFT_CONFIGMAP_UNKNOWN_CARD,
                                        .is = node->unknown_listed_card});
    for (uint32_t i = 0; i < node->n_cards; i++)
        diagnose_card(node, &node->cards[i], add, ctx);
    /* kube-scheduler trusts these. */
    if (!f->has[LEDGER_NODE] || node->source != SOURCE_SCV || f->scv_damaged)
        return;
    diagnose_resource(node, KEY_GPU_MEM, l->settings.unit_mib, f->capacity.mem,
                      f->allocatable.mem, add, ctx);
    diagnose_resource(node, KEY_GPU_COUNT, 0, f->capacity.cards, f->allocatable.cards,
                      add, ctx);
}

/* -- pods -- */

/* Cards that the podList shows for the pod and no share names, even if the node no longer has
 * them. */
static int64_t wrong_cards(const struct ledger_node *node, const struct ledger_pod *pod)
{
    int64_t wrong = 0;
    size_t n;
    const struct ledger_assignment *a = ledger_facts_assigned(node->facts, pod, &n);
    for (; n && pod->n_shares; n--, a++) {
        uint32_t k = 0;
        for (; k < pod->n_shares; k++) {
            const struct ledger_share *share = &pod->shares[k];
            const struct card *card = ledger_share_card(node, share);
            if (scv_hash(card && card->uuid.n ? card->uuid : share->uuid) == a->card)
                break;
        }
        wrong += k == pod->n_shares;
    }
    return wrong;
}

enum { WRITTEN_MAX = 8 }; /* of a list of cards; an event has at most 1024 bytes */

static void write_card(struct buf *out, uint32_t number, int32_t index)
{
    if (number < WRITTEN_MAX)
        buf_printf(out, "%sGPU%d", number ? "," : "", index);
    else if (number == WRITTEN_MAX)
        buf_adds(out, ",...");
}

/* The podList shows cards that the annotations do not name, or only some of theirs. */
static bool has_other_cards(const struct ledger_node *node, const struct ledger_pod *pod)
{
    return pod->n_shares && (pod->other_cards & ledger_listed_cards(node, pod));
}

bool diagnosis_forged(struct buf *out, const struct ledger_pod *pod)
{
    if (pod->differences)
        buf_adds(out, pod->differences);
    if (!has_other_cards(pod->node, pod))
        return pod->differences != NULL;
    buf_adds(out, pod->differences ? "; the promise names " : "the promise names ");
    for (uint32_t i = 0; i < pod->n_shares; i++) {
        const struct card *card = ledger_share_card(pod->node, &pod->shares[i]);
        write_card(out, i, card ? card->index : pod->shares[i].card);
    }
    buf_adds(out, ", but the kubelet gave ");
    uint32_t n = 0;
    for (uint64_t left = pod->other_cards; left; left &= left - 1)
        write_card(out, n++, pod->node->cards[__builtin_ctzll(left)].index);
    buf_adds(out, "; it counts on both");
    return true;
}

void diagnosis_pod(const struct ledger *l, const struct ledger_pod *pod,
                   disagreement_fn add, void *ctx)
{
    const struct ledger_node *node = pod->node;
    struct disagreement d = {.kind = DRIFT_FORGED, .pod = pod};
    if (pod->differences || has_other_cards(node, pod))
        add(ctx, &d);
    if (pod->request->kind == REQUEST_DEVICES || pod->request->kind == REQUEST_NONE)
        return;
    d = (struct disagreement){.kind = DRIFT_MEMORY_UNIT,
                              .pod = pod,
                              .is = ledger_pod_other_unit(pod),
                              .should = l->settings.unit_mib};
    if (d.is > 0)
        add(ctx, &d);
    d = (struct disagreement){.kind = DRIFT_NO_CARD, .pod = pod};
    if (!pod->n_shares && (node->n_cards != 1 || pod->request->by_label))
        add(ctx, &d);
    d.kind = DRIFT_CARD_MISSING;
    for (uint32_t i = 0; i < pod->n_shares; i++) {
        d.share = &pod->shares[i];
        d.is = d.share->mib;
        if (d.share->on < 0)
            add(ctx, &d);
    }
    d = (struct disagreement){.kind = DRIFT_WRONG_CARD, .pod = pod};
    for (int64_t wrong = wrong_cards(node, pod); wrong > 0; wrong--)
        add(ctx, &d);
}

/* -- renderers -- */

static void count(void *ctx, const struct disagreement *d)
{
    ((int64_t *)ctx)[d->kind]++;
}

void diagnosis_count(const struct ledger *l, const struct ledger_node *node,
                     int64_t counts[DRIFTS])
{
    diagnosis_node(l, node, count, counts);
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next)
        diagnosis_pod(l, pod, count, counts);
}

void disagreement_write(struct buf *out, const struct ledger_node *node,
                        const struct disagreement *d)
{
    const struct card *card = d->card;
    const struct ledger_pod *pod = d->kind == DRIFT_WRONG_CARD ? NULL : d->pod;
    if (card)
        buf_printf(out, "GPU%" PRId32, card->index);
    if (pod)
        buf_printf(out, "pod %.*s/%.*s", SPAN_ARG(pod->ns), SPAN_ARG(pod->name));
    switch (d->kind) {
    case DRIFT_OVERCOMMITTED:
        if (d->is > d->should)
            buf_printf(out, " has %" PRId64 " MiB, but %" PRId64 " MiB are promised",
                       d->should, d->is);
        else if (card->compute_promised > REQUEST_CORE)
            buf_printf(out, ": %u %% of its compute are promised",
                       card->compute_promised);
        else
            buf_adds(out, " is promised as a whole card and also to other pods");
        break;
    case DRIFT_DUPLICATE_UUID:
        buf_printf(out, " has UUID %.*s, which its Scv gives to another card, too",
                   SPAN_ARG(card->uuid));
        break;
    case DRIFT_EXTERNAL_USE:
        buf_printf(out,
                   ": processes outside Kubernetes use %" PRId64
                   " MiB more than the tolerance",
                   d->is);
        break;
    case DRIFT_OVERUSE:
        buf_printf(
            out, ": pods use %" PRId64 " MiB more than their promises and the tolerance",
            d->is);
        break;
    case DRIFT_FORGED:
        buf_adds(out, ": ");
        diagnosis_forged(out, pod);
        break;
    case DRIFT_MEMORY_UNIT:
        buf_printf(out,
                   " has a promise in units of %" PRId64
                   " MiB, but one unit of " KEY_GPU_MEM " is %" PRId64 " MiB",
                   d->is, d->should);
        break;
    case DRIFT_CARD_MISSING:
    case DRIFT_NO_CARD:
        if (node->state == NODE_UNKNOWN)
            buf_adds(out, " is bound here, but this node does not exist");
        else if (d->kind == DRIFT_NO_CARD)
            buf_adds(out, " is bound here without a card");
        else {
            buf_printf(out, " has a promise of %" PRId64 " MiB on ", d->is);
            if (d->share->card >= 0)
                buf_printf(out, "GPU%" PRId32 "%s", d->share->card,
                           d->share->uuid.n ? " " : "");
            buf_printf(out, "%.*s, which the node does not have",
                       SPAN_ARG(d->share->uuid));
        }
        break;
    case DRIFT_CONFIGMAP_UNKNOWN_CARD:
        buf_printf(out,
                   "ConfigMap " KEY_UNHEALTHY_PREFIX "%.*s lists GPU%" PRId64
                   ", which the node does not have",
                   SPAN_ARG(node->name), d->is);
        break;
    case DRIFT_CAPACITY:
        if (d->allocatable)
            buf_printf(out,
                       "%" PRId64 " %s are allocatable, but its healthy cards make "
                       "%" PRId64 ": the device plugin does not run there, or does not "
                       "offer a card",
                       d->is, d->resource, d->should);
        else if (!strcmp(d->resource, KEY_GPU_COUNT))
            buf_printf(out,
                       "capacity is %" PRId64 " %s, but its Scv lists %" PRId64 " cards",
                       d->is, d->resource, d->should);
        else
            buf_printf(out,
                       "capacity is %" PRId64 " %s, but its cards make %" PRId64
                       " (check that --memory-unit is the same here, in the extender and "
                       "in the device plugin)",
                       d->is, d->resource, d->should);
        break;
    case DRIFT_WRONG_CARD:
    case DRIFTS:
        break;
    }
}
