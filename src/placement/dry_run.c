/* SPDX-License-Identifier: Apache-2.0 */
/* A node without some of its pods. */
#include "placement/dry_run.h"

static void add_pod(struct dry_run *run, const struct ledger_pod *pod, bool held,
                    struct arena *a)
{
    const struct ledger_node *node = run->node;
    struct dry_pod *p = &run->pods[run->n++];
    uint64_t whole = held ? ledger_pod_holds(node, pod, NULL) : 0;
    *p = (struct dry_pod){.pod = pod};
    p->mib = arena_alloc(a, node->n_cards * sizeof *p->mib);
    p->core = arena_alloc(a, node->n_cards * sizeof *p->core);
    for (uint32_t c = 0; c < node->n_cards; c++) {
        const struct card *card = &node->cards[c];
        p->mib[c] = whole >> c & 1 ? card->total_mib : ledger_pod_mib(pod, card);
        p->core[c] = (uint16_t)ledger_pod_core(pod, card);
        p->cards += p->mib[c] >= 0;
        p->all_mib += p->mib[c] > 0 ? p->mib[c] : 0;
    }
}

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
    ledger_cards_seen(node, pod->priority, pod->uid, run->empty);
    for (uint32_t c = 0; c < node->n_cards; c++) {
        struct card *card = &run->empty[c];
        card->promised_mib = 0;
        card->compute_promised = 0;
        card->pods = 0;
        card->whole = false;
        card->free_mib = card_left_mib(card);
    }
    for (const struct ledger_pod *p = node->pods; p; p = p->next)
        add_pod(run, p, held, a);
}

void dry_run_view(struct dry_run *run, const struct select_pod *pod,
                  struct select_view *view)
{
    uint32_t n_cards = run->node->n_cards;
    if (n_cards)
        memcpy(run->cards, run->empty, n_cards * sizeof *run->cards);
    for (const struct dry_pod *p = run->pods; p < run->pods + run->n; p++)
        for (uint32_t c = 0; c < n_cards && !p->removed; c++) {
            struct card *card = &run->cards[c];
            if (p->mib[c] < 0)
                continue;
            card->promised_mib += p->mib[c];
            card_add_core(&card->compute_promised, p->core[c]);
            card->pods++;
            card->whole |= p->pod->request->kind == REQUEST_CARDS;
        }
    for (uint32_t c = 0; c < n_cards; c++) {
        run->cards[c].free_mib = card_left_mib(&run->cards[c]);
        run->after[c] = run->cards[c];
    }
    select_view_cards(view, run->node, run->after, 0);
    select_take_nominated(view, pod);
}
