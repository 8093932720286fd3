/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/ledger_priv.h"

/* What is derived of a node from its cards alone. */

static bool is_restricted(const struct card *card)
{
    return card->state != CARD_AVAILABLE || card->whole || card->withheld_mib > 0 ||
           card->reserved_mib > 0;
}

static void write_brief(struct ledger_node *node)
{
    struct ledger_brief *b = &node->brief;
    int64_t available = 0, most = 0;
    *b = (struct ledger_brief){0};
    if (node->n_cards > LEDGER_BRIEF_CARDS)
        return;
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct card *card = &node->cards[i];
        most = card->total_mib > most ? card->total_mib : most;
        available +=
            card->state == CARD_AVAILABLE ? ledger_saturated(card->total_mib) : 0;
        b->free_mib[i] = ledger_saturated(card->free_mib);
        b->kind[i] = card->kind;
        b->whole[i] = card_is_free(card);
    }
    b->available_mib = ledger_saturated(available);
    b->valid = most <= INT32_MAX / LEDGER_BRIEF_CARDS;
}

void ledger_sum_up(struct ledger_node *node)
{
    node->free_cards = node->healthy_cards = 0;
    node->largest_mib = 0;
    node->all_available = true;
    const struct card *best = NULL;
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct card *card = &node->cards[i];
        node->free_cards += card_is_free(card);
        node->healthy_cards += card->state == CARD_AVAILABLE;
        node->all_available &= !is_restricted(card);
        if (card->state == CARD_AVAILABLE && (!best || card->free_mib > best->free_mib))
            best = card;
        if (card->total_mib > node->largest_mib)
            node->largest_mib = card->total_mib;
    }
    node->best_free_mib = best ? best->free_mib : 0;
    node->best_total_mib = best ? best->total_mib : 0;
    node->best_index = best ? best->index : -1;
    write_brief(node);
}
