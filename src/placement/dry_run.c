/* SPDX-License-Identifier: Apache-2.0 */
/* A node without some of its pods. */
#include "placement/dry_run.h"

void dry_run_begin(struct dry_run *run, const struct ledger_node *node,
                   const struct select_pod *pod, bool held, struct arena *a)
{
    size_t n = 0, bytes = node->n_cards * sizeof *run->cards;
    for (const struct ledger_pod *p = node->pods; p; p = p->next)
        n++;
    *run = (struct dry_run){.node = node, .pods = arena_alloc(a, n * sizeof *run->pods)};
    run->empty = arena_alloc(a, bytes);
    run->cards = arena_alloc(a, bytes);
    run->after = arena_alloc(a, bytes);
    run->claimed = held ? 0 : node->claimed;
    ledger_cards_seen(node, pod->priority, pod->uid, run->empty);
    uint64_t shown = ledger_node_info(node).held_cards;
    for (uint32_t c = 0; c < node->n_cards; c++) {
        struct card *card = &run->empty[c];
        card_discharge(card);
        if (card->state == CARD_HELD &&
            !(shown >> c & 1)) /* by claims, which count below */
            card->state = CARD_AVAILABLE;
        card->free_mib = card_left_mib(card);
    }
    for (const struct ledger_pod *there = node->pods; there; there = there->next) {
        struct dry_pod *p = &run->pods[run->n++];
        uint64_t whole = held ? ledger_pod_holds(node, there, NULL) : 0;
        *p = (struct dry_pod){.pod = there};
        p->mib = arena_alloc(a, node->n_cards * sizeof *p->mib);
        p->core = arena_alloc(a, node->n_cards * sizeof *p->core);
        for (uint32_t c = 0; c < node->n_cards; c++) {
            const struct card *card = &node->cards[c];
            p->mib[c] = whole >> c & 1 ? card->total_mib : ledger_pod_mib(there, card);
            p->core[c] = (uint16_t)ledger_pod_core(there, card);
            p->cards += p->mib[c] >= 0;
            run->empty[c].slots_left +=
                p->mib[c] >= 0 ? (int32_t)there->request->slots : 0;
            p->all_mib += p->mib[c] > 0 ? p->mib[c] : 0;
        }
    }
}

/* Adds the pods that are not removed to the empty cards; `staying`: those alone that do not
 * terminate. */
static void fill(const struct dry_run *run, bool staying, struct card *cards)
{
    uint32_t n_cards = run->node->n_cards;
    if (n_cards)
        memcpy(cards, run->empty, n_cards * sizeof *cards);
    for (const struct dry_pod *p = run->pods; p < run->pods + run->n; p++)
        for (uint32_t c = 0;
             c < n_cards && !p->removed && !(staying && p->pod->terminating); c++)
            if (p->mib[c] >= 0)
                card_charge(&cards[c], p->pod->request, p->mib[c], p->core[c]);
    for (uint32_t c = 0; c < n_cards; c++)
        cards[c].free_mib = card_left_mib(&cards[c]);
}

void dry_run_view(struct dry_run *run, const struct select_pod *pod,
                  struct select_view *view)
{
    uint32_t n_cards = run->node->n_cards;
    fill(run, false, run->cards);
    if (n_cards)
        memcpy(run->after, run->cards, n_cards * sizeof *run->after);
    select_view_cards(view, run->node, run->after, run->claimed);
    if (!run->node->has_nominated)
        return;
    struct select_view later;
    select_view_cards(&later, run->node, later.own, run->claimed);
    fill(run, true, later.own);
    select_take_nominated(view, &later, pod);
}
