/* SPDX-License-Identifier: Apache-2.0 */
/* From facts to cards: the cards of a node, the promises on each, the free memory. After each
 * change of a node all of it is computed from scratch; with few cards and pods per node that is
 * cheap, and simpler than incremental updates. */
#include "domain/ledger_priv.h"

#include "base/array.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "domain/quantity.h"

/* Does the ConfigMap name a card with an index from `from` on, below `to`? */
static bool lists_card(const struct ledger_node_facts *f, int64_t from, int64_t to)
{
    for (size_t i = 0; f->has[LEDGER_UNHEALTHY] && i < f->n_listed; i++)
        if (f->listed[i] >= from && f->listed[i] < to)
            return true;
    return false;
}

static enum node_state state_of(const struct ledger *l, const struct ledger_node *node)
{
    const struct ledger_node_facts *f = node->facts;
    if (l->settings.require_node && !f->has[LEDGER_NODE] && f->has[LEDGER_SCV])
        return NODE_MISSING;
    if (f->has[LEDGER_NODE] && f->node_damaged)
        return NODE_DAMAGED;
    if (f->has[LEDGER_UNHEALTHY] && f->list_damaged)
        return NODE_LIST_DAMAGED;
    if (f->has[LEDGER_SCV]) {
        if (f->scv_damaged)
            return NODE_SCV_DAMAGED;
        if (!f->n_scv_cards)
            return NODE_SCV_EMPTY;
        return node->stale_s && !MUTANT(stale_heartbeat_ignored) ? NODE_STALE
                                                                 : NODE_USABLE;
    }
    if (f->has[LEDGER_LEASE] || (l->settings.require_scv && f->has[LEDGER_NODE]))
        return NODE_SCV_MISSING;
    if (!f->has[LEDGER_NODE])
        return NODE_UNKNOWN;
    if (f->capacity.mem <= 0)
        return NODE_NO_GPU;
    if (f->capacity.cards <= 0)
        return NODE_NO_COUNT;
    if ((f->allocatable.mem < f->capacity.mem ||
         f->allocatable.cards < f->capacity.cards) &&
        !lists_card(f, 0, f->capacity.cards))
        return NODE_ALLOCATABLE_LOW;
    return NODE_USABLE;
}

/* A card that the ConfigMap names and the node does not have, or -1. */
static int32_t unknown_listed_card(const struct ledger_node *node)
{
    const struct ledger_node_facts *f = node->facts;
    for (size_t i = 0; f->has[LEDGER_UNHEALTHY] && i < f->n_listed; i++) {
        bool found = false;
        for (uint32_t k = 0; k < node->n_cards; k++)
            found |= node->cards[k].index == f->listed[i];
        if (!found)
            return f->listed[i];
    }
    return -1;
}

static void resize_cards(struct ledger_node *node, size_t n)
{
    if (node->n_cards != n)
        node->cards = xreallocarray(node->cards, n, sizeof *node->cards);
    node->n_cards = (uint8_t)n;
}

static void cards_from_scv(struct ledger_node *node)
{
    const struct ledger_node_facts *f = node->facts;
    resize_cards(node, f->n_scv_cards);
    ledger_facts_sum_up_held(node);
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct ledger_scv_card *from = &f->scv_cards[i];
        bool held = f->held >> i & 1, duplicate = f->duplicates >> i & 1;
        node->cards[i] = (struct card){
            .index = from->id,
            .state = duplicate                               ? CARD_DUPLICATE
                     : !from->healthy                        ? CARD_UNHEALTHY
                     : held && !MUTANT(held_cards_available) ? CARD_HELD
                                                             : CARD_AVAILABLE,
            .total_mib = from->kind->total_mib,
            .used_mib = f->has_sample ? from->used_mib : -1,
            .kind = from->kind,
            .uuid = from->uuid,
            .scv = from,
        };
    }
}

static void cards_from_capacity(const struct ledger *l, struct ledger_node *node)
{
    const struct node_resources *c = &node->facts->capacity;
    size_t n = 0;
    if (c->cards > 0 && c->mem > 0)
        n = c->cards < SCV_MAX_CARDS ? (size_t)c->cards : SCV_MAX_CARDS;
    resize_cards(node, n);
    for (uint32_t i = 0; i < node->n_cards; i++)
        node->cards[i] = (struct card){
            .index = (int32_t)i,
            .total_mib = c->mem / c->cards * l->settings.unit_mib,
            .used_mib = -1,
            .kind = &card_kind_unknown,
        };
}

/* The position of the card of a promise; -1: missing. The UUID decides if both sides have one,
 * even if the index now belongs to another card. Among cards with the same UUID the index
 * decides. */
static int8_t find_card(const struct ledger_node *node, const struct ledger_share *share)
{
    int8_t by_index = -1, by_uuid = -1;
    for (int8_t i = 0; i < node->n_cards; i++) {
        const struct card *card = &node->cards[i];
        bool same_index = card->index == share->card;
        if (same_index)
            by_index = i;
        if (share->uuid.n && span_eq(card->uuid, share->uuid) &&
            (by_uuid < 0 || same_index))
            by_uuid = i;
    }
    if (by_uuid >= 0)
        return by_uuid;
    return by_index >= 0 && share->uuid.n && node->cards[by_index].uuid.n ? -1 : by_index;
}

/* Finds the cards of the shares, and returns their bits. */
static uint64_t find_shares(const struct ledger_node *node, struct ledger_share *shares,
                            uint32_t n)
{
    uint64_t named = 0;
    for (uint32_t i = 0; i < n; i++) {
        shares[i].on = find_card(node, &shares[i]);
        named |= shares[i].on >= 0 ? UINT64_C(1) << shares[i].on : 0;
    }
    return named;
}

/* Annotations of other programs can claim anything; the sum must not overflow. */
static void add_mib(int64_t *sum, int64_t mib)
{
    if (*sum < (int64_t)1 << 60)
        *sum += mib;
}

/* The unit of the promise, of which `mib` are on the card, and the ledger's. Labels are in
 * MiB, and whole cards have the size of the card. */
static int64_t unit_of(const struct ledger_pod *pod, const struct ledger_share *share,
                       const struct card *card, int64_t mib, int64_t *own)
{
    const struct request *r = pod->request;
    *own = r->kind == REQUEST_MEMORY && !r->by_label && r->units > 0
               ? r->mib_per_card * r->cards / r->units
               : 0;
    return *own > 0 ? promise_unit_mib(*own, share->unit_mib, share->card_units,
                                       mib / *own, card->total_mib)
                    : 0;
}

/* No record of a bind, which users can edit, is less than what the limits ask for. */
static int64_t mib_by_limits(const struct request *r, const struct card *card,
                             int64_t mib)
{
    int64_t least = request_mib_of_limits(r, card->total_mib);
    return mib > least ? mib : least;
}

/* What the pod counts for on the card, of which `mib` are its part; 0 of a percentage: no bind has
 * recorded its part. Forged annotations of a
 * larger unit count for no more than the card. */
static int64_t part_mib(const struct ledger_pod *pod, const struct card *card,
                        const struct ledger_share *share, int64_t mib)
{
    const struct request *r = pod->request;
    int64_t own = 0, unit = share ? unit_of(pod, share, card, mib, &own) : 0;
    if (r->kind == REQUEST_CARDS || (r->percent && !mib && !r->dialect) ||
        (r->recorded && r->by_label && mib > card->total_mib))
        return card->total_mib;
    if (share && share->card < 0) { /* HAMi's total has what the driver keeps, and more */
        int64_t least = card->total_mib * share->percent / 100;
        return quantity_at_most(mib > least ? mib : least, card->total_mib);
    }
    if (request_is_unsettled(r) && !share) /* by the limits, which cannot be edited */
        return request_mib(r, card->total_mib, card->kind->kept_mib);
    mib = share ? mib_by_limits(r, card, mib) : mib;
    if (!unit || unit == own)
        return mib;
    if (__builtin_mul_overflow(mib / own, unit, &mib))
        mib = INT64_MAX;
    return unit > own && mib > card->total_mib ? card->total_mib : mib;
}

/* Is the whole pod on this card, whatever its shares say? */
static bool is_full(const struct ledger_pod *pod, const struct card *card)
{
    return pod->other_cards && pod->other_cards >> (card - pod->node->cards) & 1;
}

int64_t ledger_pod_mib(const struct ledger_pod *pod, const struct card *card)
{
    const struct request *r = pod->request;
    int64_t mib = -1;
    if (is_full(pod, card))
        return part_mib(pod, card, pod->n_shares ? pod->shares : NULL,
                        r->cards * mib_by_limits(r, card,
                                                 request_mib(r, card->total_mib,
                                                             card->kind->kept_mib)));
    for (uint32_t i = 0; i < pod->n_shares; i++) {
        if (ledger_share_card(pod->node, &pod->shares[i]) != card)
            continue;
        mib = mib < 0 ? 0 : mib;
        add_mib(&mib, part_mib(pod, card, &pod->shares[i], pod->shares[i].mib));
    }
    return mib;
}

int64_t ledger_pod_other_unit(const struct ledger_pod *pod)
{
    ARRAY_EACH_ITEM(const struct ledger_share, share, pod->shares, pod->n_shares)
    {
        const struct card *card = ledger_share_card(pod->node, share);
        int64_t own = 0, unit = card ? unit_of(pod, share, card, share->mib, &own) : 0;
        if (card)
            return unit == own ? 0 : unit;
    }
    return 0;
}

uint32_t ledger_pod_core(const struct ledger_pod *pod, const struct card *card)
{
    const struct request *r = pod->request;
    uint32_t sum = 0; /* an edit of the Scv can make two shares one card */
    if (is_full(pod, card))
        return request_full_core(r);
    /* If the annotations name another number of cards, any of them may have all of it. */
    ARRAY_EACH_ITEM(const struct ledger_share, share, pod->shares, pod->n_shares)
    {
        if (ledger_share_card(pod->node, share) == card)
            sum += share->card < 0 ? (r->compute_percent ? share->compute_percent : 0)
                   : pod->n_shares == r->cards ? r->compute_percent
                                               : request_full_core(r);
    }
    return sum;
}

/* The bits of the cards that the podList shows for the pod. A UUID of two cards names
 * neither, and both get no new pods. */
uint64_t ledger_listed_cards(const struct ledger_node *node, const struct ledger_pod *pod)
{
    const struct ledger_node_facts *f = node->facts;
    uint64_t bits = 0;
    size_t n;
    const struct ledger_assignment *a = ledger_facts_assigned(f, pod, &n);
    for (; n && node->source == SOURCE_SCV; n--, a++)
        bits |= a->at >= 0 ? UINT64_C(1) << a->at : 0;
    return MUTANT(pod_list_ignored) ? 0 : bits & ~f->duplicates;
}

/* A share with a UUID names a card that has left the node; an index alone does not say
 * which card it meant. */
static bool names_missing_card(const struct ledger_pod *pod)
{
    for (uint32_t i = 0; i < pod->n_shares; i++)
        if (pod->shares[i].uuid.n && pod->shares[i].card >= 0)
            return true;
    return false;
}

/* HAMi gives what has no UUID of a card of ours, too, such as instances. */
static bool names_unknown_card(const struct ledger_pod *pod)
{
    for (uint32_t i = 0; i < pod->n_shares; i++)
        if (pod->shares[i].card < 0 && pod->shares[i].on < 0)
            return true;
    return false;
}

/* The cards on which the pod counts in full, whatever its shares say. If the podList shows
 * fewer cards than they name, the pod has all of it there: it was moved after the bind.
 * Before it runs, the podList may still show a former pod with its name.
 *
 * No device plugin gives a card to a pod that asks by labels alone. Without a card in its
 * annotations it counts nowhere, or one label, which no quota sees, would block a node. */
static uint64_t other_cards(const struct ledger_node *node, const struct ledger_pod *pod,
                            uint64_t named, uint64_t listed)
{
    bool memory = pod->request->kind == REQUEST_MEMORY;
    if (!memory && pod->request->kind != REQUEST_CARDS)
        return 0;
    if (pod->request->by_label && !named && !MUTANT(labeled_cardless_everywhere))
        return 0;
    /* Without the record of a Binding the device plugin refuses it: nobody can block cards with
     * it. */
    if (pod->unseen && !pod->n_shares && pod->request->dialect &&
        node->dialect == SCV_DIALECT_HAMI)
        return listed;
    if (!names_unknown_card(pod) &&
        (named || names_missing_card(pod) || (listed && pod->running)))
        return memory && named & ~listed && !MUTANT(part_of_fewer_cards)
                   ? listed
                   : listed & ~named;
    if (MUTANT(pod_without_card) && node->n_cards == 1)
        return 0;
    if (MUTANT(cardless_nowhere))
        return node->n_cards == 1;
    return node->n_cards < 64 ? (UINT64_C(1) << node->n_cards) - 1 : UINT64_MAX;
}

/* The cards whose sample shows the pod's memory. If the podList names other cards, the pod
 * uses those. A pod on unknown cards uses none for sure. */
uint64_t ledger_pod_used_cards(const struct ledger_node *node,
                               const struct ledger_pod *pod)
{
    const struct ledger_node_facts *f = node->facts;
    if (!pod->running || !f->has_sample || pod->first_sample > f->samples)
        return 0;
    uint64_t listed = ledger_listed_cards(node, pod), used = listed;
    for (uint32_t i = 0; i < pod->n_shares && !listed; i++)
        used |= pod->shares[i].on >= 0 ? UINT64_C(1) << pod->shares[i].on : 0;
    return used | (node->n_cards == 1 ? pod->other_cards : 0);
}

/* Adds up the promises of a pod; own[i]: the part of card i's sample that belongs to
 * promises. */
static void charge_pod(struct ledger *l, struct ledger_node *node, struct ledger_pod *pod,
                       int64_t *own)
{
    uint64_t named = find_shares(node, pod->shares, pod->n_shares),
             listed = ledger_listed_cards(node, pod);
    ledger_pod_settle(l, pod);
    uint64_t others = pod->other_cards = other_cards(node, pod, named, listed);
    uint64_t used = ledger_pod_used_cards(node, pod);
    for (uint32_t i = 0; i < node->n_cards; i++) {
        struct card *card = &node->cards[i];
        int64_t mib = ledger_pod_mib(pod, card);
        bool by_share = !(others >> i & 1);
        if (mib < 0 ||
            (MUTANT(pod_list_replaces_promise) && by_share && listed &&
             !(listed >> i & 1)) ||
            (MUTANT(stale_pod_list_frees) && by_share && !listed &&
             node->facts->n_assignments))
            continue;
        bool forgotten = MUTANT(compute_forgotten) && by_share && pod->final;
        card_charge(card, pod->request, mib, forgotten ? 0 : ledger_pod_core(pod, card));
        add_mib(&own[i], used >> i & 1 ? mib : 0);
    }
}

static void charge_pods(struct ledger *l, struct ledger_node *node, int64_t *own)
{
    for (struct ledger_pod *pod = node->pods; pod; pod = pod->next)
        charge_pod(l, node, pod, own);
    const struct ledger_node_facts *f = node->facts;
    ARRAY_EACH_ITEM(const struct departure, d, f->departures, f->n_departures)
    {
        for (uint32_t c = 0; c < node->n_cards; c++)
            add_mib(&own[c], ledger_departure_is_of(d, &node->cards[c]) ? d->mib : 0);
    }
}

int64_t ledger_reserved_mib(const struct ledger_reservation *r, uint32_t i)
{
    return r->request->kind == REQUEST_CARDS
               ? ledger_share_card(r->node, &r->shares[i])->total_mib
               : r->shares[i].mib;
}

static void charge_reservations(struct ledger_node *node)
{
    for (struct ledger_reservation *r = node->reserved; r; r = r->next_here) {
        find_shares(node, r->shares, r->n_shares);
        for (uint32_t i = 0; i < r->n_shares; i++) {
            struct card *card = (struct card *)ledger_share_card(node, &r->shares[i]);
            if (!card)
                continue;
            add_mib(&card->reserved_mib, ledger_reserved_mib(r, i));
            card_add_core(&card->compute_reserved, r->request->compute_percent);
            card->slots_left -= (int32_t)r->request->slots;
        }
    }
}

/* Can it be a card of nvidia.com/gpu? That is no instance. */
static bool is_claimable(const struct card *card)
{
    return card->state == CARD_AVAILABLE && !card->kind->profile.n;
}

/* Cards that pods request through nvidia.com/gpu and the podList does not show yet. */
static int64_t claims_of(const struct ledger_node *node, bool terminating)
{
    const struct ledger_node_facts *f = node->facts;
    /* The kubelet ignores limits of a resource that no device plugin of its node has, and the
     * pod runs without a card. */
    int64_t claimed = 0, capacity = node->dialect == SCV_DIALECT_HAMI
                                        ? 0 /* ours serves it */
                                    : f->has[LEDGER_NODE] ? f->capacity.devices
                                                          : UINT32_MAX;
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next) {
        int64_t asked = ledger_pod_devices(node, pod), has = 0;
        if (asked)
            ledger_pod_holds(node, pod, &has);
        int64_t more = pod->terminating && !terminating ? 0 : asked - has;
        claimed += more > 0 && !MUTANT(claims_forgotten) ? more : 0;
    }
    return quantity_at_most(claimed,
                            quantity_at_most(capacity > 0 ? capacity : 0, UINT16_MAX));
}

/* Which cards the kubelet allocates for these claims is unknown, unless it needs all that are
 * left. */
static void claim_cards(struct ledger_node *node)
{
    int64_t claimed = claims_of(node, true);
    uint32_t left = 0, empty = 0;
    node->claimed = (uint16_t)claimed;
    ARRAY_EACH_ITEM(const struct card, card, node->cards, node->n_cards)
    {
        left += is_claimable(card);
        empty += is_claimable(card) && card_is_unpromised(card);
    }
    for (uint32_t i = 0; i < node->n_cards && claimed && claimed >= empty; i++) {
        struct card *card = &node->cards[i];
        if (is_claimable(card) && (claimed >= left || card_is_unpromised(card)))
            card->state = CARD_HELD;
    }
}

uint64_t ledger_cards_left(const struct ledger_node *node, struct card *cards)
{
    const struct ledger_node_facts *f = node->facts;
    const struct ledger_pod *pod = node->pods;
    uint64_t held = 0; /* by containers of pods that stay */
    while (pod && !pod->terminating)
        pod = pod->next;
    if (!pod)
        return node->claimed;
    ARRAY_EACH_ITEM(const struct scv_held, h, f->holders, f->n_holders)
    {
        for (pod = node->pods; pod; pod = pod->next)
            if (pod->terminating && span_eq(h->pod, pod->name) && span_eq(h->ns, pod->ns))
                break;
        held |= pod ? 0 : ledger_held_cards(node, h);
    }
    for (uint32_t i = 0; i < node->n_cards; i++) {
        struct card *card = &cards[i];
        card_discharge(card);
        if (card->state == CARD_HELD && !(held >> i & 1))
            card->state = CARD_AVAILABLE;
        for (pod = node->pods; pod; pod = pod->next) {
            int64_t mib = ledger_pod_mib(pod, &node->cards[i]);
            if (mib < 0)
                continue;
            card->slots_left += (int32_t)pod->request->slots;
            if (!pod->terminating)
                card_charge(card, pod->request, mib,
                            ledger_pod_core(pod, &node->cards[i]));
        }
        card->free_mib = card_left_mib(card);
    }
    return (uint64_t)claims_of(node, false);
}

static bool has_too_much(const struct card *card)
{
    return card->promised_mib > card->total_mib ||
           card->compute_promised > REQUEST_CORE || (card->whole && card->pods > 1);
}

/* A pod without a card that has not started uses none: it was bound past the extender, and the
 * device plugin rejects it. So it counts, but overcommits no card. */
static bool is_overcommitted(const struct ledger_node *node, const struct card *card)
{
    struct card sum = {.total_mib = card->total_mib};
    if (!has_too_much(card))
        return false;
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next) {
        int64_t mib = pod->n_shares || pod->running ? ledger_pod_mib(pod, card) : -1;
        if (mib >= 0)
            card_charge(&sum, pod->request, mib, ledger_pod_core(pod, card));
    }
    return has_too_much(&sum);
}

static void settle_card(const struct ledger *l, const struct ledger_node *node,
                        struct card *card, int64_t own, const struct ledger_measured *m)
{
    card->overcommitted = is_overcommitted(node, card);
    /* The tolerance covers external use first. */
    int64_t both = (m->exact ? m->outside_mib + m->overuse_mib : card->used_mib - own) -
                   l->settings.external_tolerance_mib;
    if (card->used_mib >= 0 && both > 0)
        card->withheld_mib = quantity_at_most(both, card->total_mib);
    card->use_known = m->exact;
    card->overuse_mib =
        ledger_saturated(quantity_at_most(m->overuse_mib, card->withheld_mib));
    card->free_mib = card_left_mib(card);
    if (MUTANT(health_ignored)) {
        struct card any = *card;
        any.state = CARD_AVAILABLE;
        card->free_mib = card_left_mib(&any);
    }
    if (MUTANT(whole_card_is_shared) && card->whole && card->state == CARD_AVAILABLE)
        card->free_mib = 2048;
}

enum { FREE_BITS = 40 }; /* a sum over all cards does not overflow */

/* Counts the node's cards in the sums of the ledger; sign -1: no longer. */
static void count_cards(struct ledger *l, const struct ledger_node *node, int sign)
{
    ARRAY_EACH_ITEM(const struct card, card, node->cards, node->n_cards)
    {
        l->n_overcommitted += (size_t)(sign * card->overcommitted);
        if (node->state == NODE_USABLE)
            l->requests.kinds[card->kind->id].free_mib +=
                sign * quantity_at_most(card->free_mib, INT64_C(1) << FREE_BITS);
    }
}

void ledger_forget_cards(struct ledger *l, struct ledger_node *node)
{
    count_cards(l, node, -1);
    node->n_cards = 0;
}

/* What is derived from the cards alone: sums, and the rows. */
static void sum_up(struct ledger_node *node)
{
    struct ledger_rows *rows = &node->rows;
    const struct card *best = NULL;
    int64_t available_mib = 0;
    bool instances = false;
    node->free_cards = 0;
    node->largest_mib = 0;
    node->all_available = true;
    *rows = (struct ledger_rows){0};
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct card *card = &node->cards[i];
        bool available = card->state == CARD_AVAILABLE, free = card_is_free(card);
        bool instance = card->kind->profile.n;
        instances |= instance;
        node->free_cards += free && !instance;
        node->all_available &= available && !card->whole && card->withheld_mib <= 0 &&
                               card->reserved_mib <= 0;
        if (available && (!best || card->free_mib > best->free_mib))
            best = card;
        if (card->total_mib > node->largest_mib)
            node->largest_mib = card->total_mib;
        available_mib += available ? ledger_saturated(card->total_mib) : 0;
        if (i < LEDGER_ROWS) {
            rows->free_mib[i] = ledger_saturated(card->free_mib);
            rows->kind[i] = card->kind->id;
            rows->whole |= (uint8_t)(free << i);
        }
    }
    node->best_free_mib = best ? best->free_mib : 0;
    node->best_total_mib = best ? best->total_mib : 0;
    node->best_index = best ? best->index : -1;
    rows->available_mib = ledger_saturated(available_mib);
    rows->valid = !instances && node->n_cards <= LEDGER_ROWS &&
                  node->largest_mib <= INT32_MAX / LEDGER_ROWS;
}

/* The device plugin lists as many slots of each card that it lists. */
static int64_t slots_of_card(const struct ledger_node *node)
{
    const struct node_resources *c = &node->facts->capacity;
    int64_t cards = c->cards > 0 ? c->cards : node->n_cards, slots = c->slots;
    if (slots <= 0 && node->dialect == SCV_DIALECT_HAMI)
        slots = c->devices;
    return slots > 0 && cards > 0 ? slots / cards : 0;
}

static bool is_cordoned(const struct ledger_node_facts *f, struct span uuid)
{
    struct span rest = f->cordon;
    while (uuid.n && rest.p)
        if (span_eq(span_trim(span_cut(&rest, ',')), uuid))
            return true;
    return false;
}

void ledger_derive(struct ledger *l, struct ledger_node *node)
{
    count_cards(l, node, -1);
    int64_t own[SCV_MAX_CARDS] = {0};
    struct ledger_measured measured[SCV_MAX_CARDS] = {0};
    const struct ledger_node_facts *f = node->facts;

    node->state = state_of(l, node);
    node->mode = f->has[LEDGER_NODE] ? f->mode : NODE_ANY;
    node->cordoned = f->has[LEDGER_NODE] && f->cordoned;
    node->has_core = !f->has[LEDGER_NODE] || f->capacity.compute_percent > 0;
    /* Without the list, the node program may be one of version 1.0. */
    node->isolation = f->isolation ?: SCV_ISOLATION_LIBRARY | SCV_ISOLATION_MPS;
    /* Of a node that was ours, the meaning is unknown without the Scv; others are NVIDIA's. */
    bool ours = f->has[LEDGER_LEASE] || f->capacity.mem > 0 || f->capacity.slots > 0;
    node->dialect = node->state == NODE_SCV_MISSING && ours && l->settings.dialect
                        ? SCV_DIALECT_OTHER
                        : f->dialect;
    node->links = f->links;
    node->has_links = f->links;
    if (f->has[LEDGER_SCV]) {
        node->source = SOURCE_SCV;
        cards_from_scv(node);
    } else if (f->has[LEDGER_NODE] && node->state != NODE_SCV_MISSING) {
        node->source = SOURCE_CAPACITY;
        cards_from_capacity(l, node);
    } else {
        node->source = SOURCE_NONE;
        resize_cards(node, 0);
    }
    ARRAY_EACH_ITEM(struct card, card, node->cards, node->n_cards)
    {
        if (lists_card(f, card->index, card->index + INT64_C(1)))
            card->state = MUTANT(listed_cards_available) ? CARD_AVAILABLE : CARD_EXCLUDED;
    }
    int64_t slots = f->has[LEDGER_NODE] ? slots_of_card(node) : UINT16_MAX;
    for (uint32_t i = 0; i < node->n_cards; i++)
        node->cards[i].slots_left = ledger_saturated(slots);
    for (uint32_t i = 0; i < node->n_cards && f->has[LEDGER_NODE]; i++)
        node->cards[i].cordoned = is_cordoned(f, node->cards[i].uuid);
    node->unknown_listed_card = unknown_listed_card(node);
    charge_pods(l, node, own);
    charge_reservations(node);
    claim_cards(node);
    ledger_use_measure(node, measured);
    for (uint32_t i = 0; i < node->n_cards; i++)
        settle_card(l, node, &node->cards[i], own[i], &measured[i]);
    count_cards(l, node, 1);
    ledger_requests_settle(node);
    sum_up(node);
    node->generation = ++l->generation;
    if (node->reserved && !node->changed) {
        MEM_GROW(l->changed, l->changed_cap, l->n_changed + 1);
        l->changed[l->n_changed++] = node->id;
        node->changed = true;
    }
}
