/* SPDX-License-Identifier: Apache-2.0 */
/* From facts to cards: the cards of a node, the promises on each, the free memory, the
 * disagreements between its objects. After each change of a node all of it is computed from
 * scratch; with few cards and pods per node that is cheap, and simpler than incremental
 * updates. */
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
    if (f->has[LEDGER_LEASE] || l->settings.require_scv)
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
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct ledger_scv_card *from = &f->scv_cards[i];
        bool held = f->held >> i & 1, duplicate = f->duplicates >> i & 1;
        node->cards[i] = (struct card){
            .index = from->id,
            .state = duplicate                               ? CARD_DUPLICATE
                     : !from->healthy                        ? CARD_UNHEALTHY
                     : held && !MUTANT(held_cards_available) ? CARD_HELD
                                                             : CARD_AVAILABLE,
            .total_mib = from->total_mib,
            .used_mib = f->has_sample ? from->used_mib : -1,
            .model = from->model->name,
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

/* What the pod counts for on the card, of which `mib` are its part. Forged annotations of a
 * larger unit count for no more than the card. */
static int64_t part_mib(const struct ledger_pod *pod, const struct card *card,
                        const struct ledger_share *share, int64_t mib)
{
    const struct request *r = pod->request;
    int64_t own = 0, unit = share ? unit_of(pod, share, card, mib, &own) : 0;
    if (r->kind == REQUEST_CARDS || (r->recorded && mib > card->total_mib))
        return card->total_mib;
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
                        r->cards * r->mib_per_card);
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
    for (uint32_t i = 0; i < pod->n_shares; i++)
        if (ledger_share_card(pod->node, &pod->shares[i]) == card)
            sum += pod->n_shares == r->cards ? r->core : request_full_core(r);
    return sum;
}

/* The bits of the cards that the podList shows for the pod. A UUID of two cards names
 * neither, and both get no new pods. */
static uint64_t listed_cards(const struct ledger_node *node, const struct ledger_pod *pod)
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
        if (pod->shares[i].uuid.n)
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
    if (named || names_missing_card(pod) || (listed && pod->running))
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
    uint64_t listed = listed_cards(node, pod), used = listed;
    for (uint32_t i = 0; i < pod->n_shares && !listed; i++)
        used |= pod->shares[i].on >= 0 ? UINT64_C(1) << pod->shares[i].on : 0;
    return used | (node->n_cards == 1 ? pod->other_cards : 0);
}

/* Adds up the promises of a pod; own[i]: the part of card i's sample that belongs to
 * promises. */
static void charge_pod(struct ledger_node *node, struct ledger_pod *pod, int64_t *own)
{
    uint64_t named = find_shares(node, pod->shares, pod->n_shares),
             listed = listed_cards(node, pod);
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
        add_mib(&card->promised_mib, mib);
        card->pods++;
        card->whole |= pod->request->kind == REQUEST_CARDS;
        if (!MUTANT(compute_forgotten) || !by_share || !pod->final)
            card_add_core(&card->compute_promised, ledger_pod_core(pod, card));
        add_mib(&own[i], used >> i & 1 ? mib : 0);
    }
}

static void charge_pods(struct ledger_node *node, int64_t *own)
{
    for (struct ledger_pod *pod = node->pods; pod; pod = pod->next)
        charge_pod(node, pod, own);
    const struct ledger_node_facts *f = node->facts;
    ARRAY_EACH_ITEM(const struct departure, d, f->departures, f->n_departures)
    {
        for (uint32_t c = 0; c < node->n_cards; c++)
            add_mib(&own[c], ledger_departure_is_of(d, &node->cards[c]) ? d->mib : 0);
    }
}

int64_t ledger_reserved_mib(const struct ledger_reservation *r, uint32_t i)
{
    return r->whole ? ledger_share_card(r->node, &r->shares[i])->total_mib
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
            card_add_core(&card->compute_reserved, r->core);
        }
    }
}

/* Can it be a card of nvidia.com/gpu? That is no instance. */
static bool is_claimable(const struct card *card)
{
    return card->state == CARD_AVAILABLE && !card_profile(card).n;
}

/* Cards that pods request through nvidia.com/gpu and the podList does not show yet. Which
 * cards the kubelet allocates is unknown, unless it needs all that are left. */
static void claim_cards(struct ledger_node *node)
{
    const struct ledger_node_facts *f = node->facts;
    /* The kubelet ignores limits of a resource that no device plugin of its node has, and the
     * pod runs without a card. */
    int64_t claimed = 0,
            capacity = f->has[LEDGER_NODE] ? f->capacity.devices : UINT32_MAX;
    uint32_t left = 0;
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next) {
        int64_t asked = request_devices(pod->request), has = 0;
        if (asked)
            ledger_pod_holds(node, pod, &has);
        int64_t more = asked - has;
        claimed += more > 0 && !MUTANT(claims_forgotten) ? more : 0;
    }
    claimed = quantity_at_most(claimed,
                               quantity_at_most(capacity > 0 ? capacity : 0, UINT16_MAX));
    node->claimed = (uint16_t)claimed;
    for (uint32_t i = 0; i < node->n_cards; i++)
        left += is_claimable(&node->cards[i]);
    for (uint32_t i = 0; i < node->n_cards && claimed && claimed >= left; i++)
        if (is_claimable(&node->cards[i]))
            node->cards[i].state = CARD_HELD;
}

/* A pod without a card that has not started uses none: it was bound past the extender, and the
 * device plugin rejects it. So it counts, but overcommits no card. */
static bool is_overcommitted(const struct ledger_node *node, const struct card *card)
{
    struct card sum = {.total_mib = card->total_mib};
    if (card->promised_mib <= card->total_mib && card->compute_promised <= REQUEST_CORE &&
        !(card->whole && card->pods > 1))
        return false;
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next) {
        int64_t mib = pod->n_shares || pod->running ? ledger_pod_mib(pod, card) : -1;
        if (mib < 0)
            continue;
        add_mib(&sum.promised_mib, mib);
        card_add_core(&sum.compute_promised, ledger_pod_core(pod, card));
        sum.whole |= pod->request->kind == REQUEST_CARDS;
        sum.pods++;
    }
    return sum.promised_mib > sum.total_mib || sum.compute_promised > REQUEST_CORE ||
           (sum.whole && sum.pods > 1);
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
            request_mix_add_free(
                &l->mix, card->kind,
                sign * quantity_at_most(card->free_mib, INT64_C(1) << FREE_BITS));
        if (sign < 0)
            request_mix_remove_card(&l->mix, card->kind);
    }
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
        bool instance = card_profile(card).n;
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
            rows->kind[i] = card->kind;
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

void ledger_derive(struct ledger *l, struct ledger_node *node)
{
    count_cards(l, node, -1);
    int64_t own[SCV_MAX_CARDS] = {0};
    struct ledger_measured measured[SCV_MAX_CARDS] = {0};
    const struct ledger_node_facts *f = node->facts;

    node->state = state_of(l, node);
    node->mode = f->has[LEDGER_NODE] ? f->mode : NODE_ANY;
    node->cordoned = f->has[LEDGER_NODE] && f->cordoned;
    node->has_core = !f->has[LEDGER_NODE] || f->capacity.core > 0;
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
        card->kind = request_mix_add_card(&l->mix, card->model, card_profile(card),
                                          card_clock_mhz(card), card->total_mib);
        if (lists_card(f, card->index, card->index + INT64_C(1)))
            card->state = MUTANT(listed_cards_available) ? CARD_AVAILABLE : CARD_LISTED;
    }
    node->unknown_listed_card = unknown_listed_card(node);
    charge_pods(node, own);
    charge_reservations(node);
    claim_cards(node);
    ledger_use_measure(node, measured);
    for (uint32_t i = 0; i < node->n_cards; i++)
        settle_card(l, node, &node->cards[i], own[i], &measured[i]);
    count_cards(l, node, 1);
    ledger_requests_settle(node);
    sum_up(node);
    node->generation = ++l->generation;
}

/* -- disagreements between the objects of a node -- */

bool card_has_external_use(const struct card *card)
{
    return card_external_mib(card) > 0 && (card->use_known || card->state != CARD_HELD);
}

bool card_is_duplicate(const struct ledger_node *node, uint32_t i)
{
    return node->facts->has[LEDGER_SCV] && node->facts->duplicates >> i & 1;
}

bool ledger_capacity_matches(const struct ledger_node *node, int64_t unit_mib,
                             int64_t capacity)
{
    int64_t healthy = 0, all = 0;
    ARRAY_EACH_ITEM(const struct card, card, node->cards, node->n_cards)
    {
        int64_t whole = card->total_mib + (card->scv ? card->scv->kept_mib : 0);
        int64_t units = unit_mib ? card->total_mib / unit_mib : 1;
        healthy += card->state == CARD_UNHEALTHY ? 0 : units;
        all += unit_mib ? whole / unit_mib : 1;
    }
    return capacity <= 0 || (capacity >= healthy && capacity <= all);
}

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
    return pod->n_shares && (pod->other_cards & listed_cards(node, pod));
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
    for (uint32_t i = 0; i < pod->n_shares; i++)
        write_card(why, i, pod->shares[i].card);
    buf_adds(why, ", but the kubelet gave ");
    uint32_t n = 0;
    for (uint64_t left = pod->other_cards; left; left &= left - 1)
        write_card(why, n++, node->cards[__builtin_ctzll(left)].index);
    buf_adds(why, "; it counts on both");
    return true;
}

void ledger_node_drift(const struct ledger *l, const struct ledger_node *node,
                       int64_t counts[DRIFTS])
{
    const struct ledger_node_facts *f = node->facts;
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct card *card = &node->cards[i];
        counts[DRIFT_OVERCOMMITTED] += card->overcommitted;
        counts[DRIFT_OUTSIDE] += card_has_external_use(card);
        counts[DRIFT_OVERUSE] += card->overuse_mib > 0;
        counts[DRIFT_DUPLICATE] += card_is_duplicate(node, i);
    }
    /* kube-scheduler trusts the capacity. */
    if (f->has[LEDGER_NODE] && node->source == SOURCE_SCV && !f->scv_damaged)
        counts[DRIFT_CAPACITY] +=
            !ledger_capacity_matches(node, l->settings.unit_mib, f->capacity.mem) +
            !ledger_capacity_matches(node, 0, f->capacity.cards);
    counts[DRIFT_LISTED] += node->unknown_listed_card >= 0;
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next) {
        counts[DRIFT_FORGED] += pod->differences || has_other_cards(node, pod);
        if (pod->request->kind == REQUEST_DEVICES || pod->request->kind == REQUEST_NONE)
            continue;
        counts[DRIFT_CARDLESS] +=
            !pod->n_shares && (node->n_cards != 1 || pod->request->by_label);
        for (uint32_t i = 0; i < pod->n_shares; i++)
            counts[DRIFT_UNPLACED] += pod->shares[i].on < 0;
        counts[DRIFT_WRONG_CARD] += wrong_cards(node, pod);
        counts[DRIFT_UNIT] += ledger_pod_other_unit(pod) > 0;
    }
}
