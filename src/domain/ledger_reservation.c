/* SPDX-License-Identifier: Apache-2.0 */
/* Reservations: memory and compute that filter keeps for a pending pod until a time limit.
 * They are never counted as promises. */
#include "domain/ledger_priv.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/mutant.h"

/* A pod without a known card counts for what it asks for, and half of no card is nothing. That a
 * card is whole decides its compute, and not its memory. */
struct quota_amounts ledger_quota_amounts(const struct request *r,
                                          const struct ledger_share *shares, uint32_t n,
                                          const struct ledger_node *node)
{
    int64_t sum = n ? 0 : r->mib_per_card * r->cards;
    for (uint32_t i = 0; i < n; i++) {
        const struct card *card = node ? ledger_share_card(node, &shares[i]) : NULL;
        int64_t size = card ? card->total_mib : shares[i].card_units ?: shares[i].mib,
                mib = r->kind == REQUEST_CARDS ? request_mib(r, size, INT32_MAX)
                                               : shares[i].mib,
                least = card ? request_mib_of_limits(r, size) : 0;
        sum += mib > least ? mib : least;
    }
    return quota_amounts(r, n ?: r->cards, sum);
}

static void quota_use(struct ledger *l, const struct ledger_reservation *r, int sign)
{
    quotas_use(&l->quotas, r->ns,
               ledger_quota_amounts(r->request, r->shares, r->n_shares, NULL), sign);
}

static void reservation_free(struct ledger *l, struct ledger_reservation *r)
{
    requests_release(&l->requests, r->request);
    free(r->shares);
    free(r);
}

void ledger_reservations_free(struct ledger *l)
{
    for (struct ledger_reservation *r = l->first_reservation, *next; r; r = next) {
        next = r->next;
        reservation_free(l, r);
    }
}

struct ledger_reservation *ledger_reservation_find(const struct ledger *l,
                                                   struct span uid)
{
    return map_get(&l->reservations_by_uid, uid);
}

struct ledger_reservation *ledger_first_reservation(const struct ledger *l)
{
    return l->first_reservation;
}

/* Inserts it from the end: most limits are equally long. */
static void insert(struct ledger *l, struct ledger_reservation *r)
{
    struct ledger_reservation *before = l->last_reservation;
    while (before && before->until_ms > r->until_ms)
        before = before->prev;
    r->prev = before;
    r->next = before ? before->next : l->first_reservation;
    *(before ? &before->next : &l->first_reservation) = r;
    *(r->next ? &r->next->prev : &l->last_reservation) = r;
    l->n_reservations++;
}

struct ledger_share *ledger_shares_copy(const struct ledger_share *shares, uint32_t n)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += shares[i].uuid.n;
    struct ledger_share *copy = xmalloc(n * sizeof *copy + bytes);
    char *at = (char *)(copy + n);
    for (uint32_t i = 0; i < n; i++) {
        copy[i] = shares[i];
        copy[i].on = -1;
        copy[i].uuid = span_put(shares[i].uuid, &at);
    }
    return copy;
}

void ledger_reserve(struct ledger *l, const struct ledger_reservation *from,
                    struct span node_name)
{
    struct ledger_node *node = ledger_node_need(l, node_name);
    struct ledger_reservation *r =
        xmalloc(sizeof *r + from->uid.n + from->ns.n + from->name.n + 3);
    char *at = (char *)(r + 1);
    *r = *from;
    r->uid = ledger_put_string(from->uid, &at);
    r->ns = ledger_put_string(from->ns, &at);
    r->name = ledger_put_string(from->name, &at);
    r->request = requests_take(&l->requests, from->request, &from->requests);
    r->shares = ledger_shares_copy(from->shares, from->n_shares);
    r->cordoned = node->cordoned;
    r->node = node;
    LEDGER_LINK(node->reserved, r, next_here, from_here);
    node->has_reserved = true;
    struct ledger_reservation *old = ledger_reservation_find(l, r->uid);
    if (old) /* after the node is in use: it must not be dropped */
        ledger_reservation_end(l, old);
    map_set(&l->reservations_by_uid, r);
    quota_use(l, r, 1);
    insert(l, r);
    ledger_derive(l, node);
}

void ledger_reservation_end(struct ledger *l, struct ledger_reservation *r)
{
    struct ledger_node *node = r->node;
    *(r->prev ? &r->prev->next : &l->first_reservation) = r->next;
    *(r->next ? &r->next->prev : &l->last_reservation) = r->prev;
    l->n_reservations--;
    LEDGER_UNLINK(r, next_here, from_here);
    node->has_reserved = node->reserved != NULL;
    map_remove(&l->reservations_by_uid, r->uid);
    quota_use(l, r, -1);
    reservation_free(l, r);
    ledger_derive(l, node);
    ledger_node_drop_if_unused(l, node);
}

/* Is the memory of the card given more than once? */
static bool is_given_twice(const struct card *card)
{
    if (card->whole && card->reserved_mib > 0)
        return true;
    return card->promised_mib + card->reserved_mib + card->withheld_mib > card->total_mib;
}

static bool has_lost(const struct ledger_reservation *r)
{
    for (uint32_t i = 0; i < r->n_shares; i++) {
        const struct card *card = ledger_share_card(r->node, &r->shares[i]);
        if (card && (is_given_twice(card) ||
                     (r->request->kind == REQUEST_CARDS && card->pods > 0) ||
                     (r->request->slots && card->slots_left < 0) ||
                     (r->request->compute_percent &&
                      card->compute_promised + card->compute_reserved > REQUEST_CORE)))
            return true;
    }
    return false;
}

struct ledger_reservation *ledger_reservation_lost(const struct ledger_node *node,
                                                   int64_t priority)
{
    struct ledger_reservation *lost = NULL;
    for (struct ledger_reservation *r = node->reserved; r; r = r->next_here)
        if (r->priority < priority && (!lost || r->priority < lost->priority) &&
            has_lost(r))
            lost = r; /* the latest is first in the list */
    return lost;
}

const struct ledger_node *ledger_next_changed(struct ledger *l)
{
    while (l->n_changed) {
        struct ledger_node *node = ledger_node_slot(l, l->changed[--l->n_changed]);
        bool changed = node->changed; /* not if the slot was freed */
        node->changed = false;
        if (changed && node->reserved)
            return node;
    }
    return NULL;
}

const struct ledger_reservation *ledger_reservation_on(const struct ledger_node *node,
                                                       struct span uid)
{
    const struct ledger_reservation *r = node->reserved;
    while (r && !span_eq(r->uid, uid))
        r = r->next_here;
    return r;
}

/* Frees what is reserved on copies of the node's cards. */
static void release(const struct ledger_reservation *r, struct card *cards)
{
    for (uint32_t i = 0; i < r->n_shares; i++) {
        if (r->shares[i].on < 0)
            continue;
        struct card *card = &cards[r->shares[i].on];
        card->reserved_mib -= ledger_reserved_mib(r, i);
        card_add_core(&card->compute_reserved, -(int64_t)r->request->compute_percent);
        card->slots_left += (int32_t)r->request->slots;
        card->free_mib = card_left_mib(card);
    }
}

void ledger_cards_seen(const struct ledger_node *node, int64_t priority, struct span uid,
                       struct card *cards)
{
    if (node->n_cards)
        memcpy(cards, node->cards, node->n_cards * sizeof *cards);
    for (const struct ledger_reservation *r = node->reserved; r; r = r->next_here) {
        if ((r->priority < priority && !MUTANT(reservation_blocks_higher_priority)) ||
            span_eq(r->uid, uid))
            release(r, cards);
    }
}

void ledger_cards_release(const struct ledger_node *node, int64_t from, int64_t to,
                          struct span uid, struct card *cards)
{
    for (const struct ledger_reservation *r = node->reserved; r; r = r->next_here)
        if (r->priority >= from && r->priority < to && !span_eq(r->uid, uid))
            release(r, cards);
}
