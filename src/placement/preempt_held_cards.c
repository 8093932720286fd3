/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/preempt_priv.h"

#include "domain/keys.h"

/*
 * Cards that NVIDIA's device plugin allocated. The podList names the pod of each, so the
 * cards that a pod frees are known. For a pod that the podList does not show, only the
 * number of its cards is known. A node is rejected only if certainly nothing helps, so
 * unknown cards count in favor of the request.
 */

static struct preempt_pod *find_pod(struct preempt_state *state,
                                    const struct scv_held *held)
{
    for (size_t i = 0; i < state->n; i++) {
        const struct ledger_pod *pod = state->pods[i].pod;
        if (span_eq(pod->name, held->pod) && span_eq(pod->ns, held->ns))
            return &state->pods[i];
    }
    return NULL;
}

/* The cards of the container, as bits. */
static uint64_t cards_of(const struct preempt_state *state, const struct scv_held *held)
{
    uint64_t bits = 0;
    for (size_t k = 0; k < held->n_uuids; k++)
        for (uint32_t c = 0; c < state->node->n_cards && held->uuids[k].n; c++)
            if (span_eq(held->uuids[k], state->empty[c].uuid))
                bits |= UINT64_C(1) << c;
    return bits;
}

/* The pod counts as if it had these cards whole: they are not free before it leaves. */
static void assign_cards(struct preempt_state *state, struct preempt_pod *p,
                         const struct scv_held *held, uint64_t bits)
{
    if (span_eq(held->resource, SPAN(KEY_NVIDIA_GPU)))
        p->claims -= held->units < p->claims ? held->units : p->claims;
    for (uint32_t c = 0; c < state->node->n_cards; c++)
        if (bits >> c & 1)
            p->mib[c] = state->empty[c].total_mib;
}

void preempt_held_cards_read(struct preempt_state *state, bool unknown)
{
    struct ledger_node_info info = ledger_node_info(state->node);
    uint64_t unmatched = 0;
    for (size_t i = 0; i < state->n; i++)
        state->pods[i].claims = request_devices(state->pods[i].pod->request);
    for (size_t i = 0; i < info.n_held; i++) {
        const struct scv_held *held = &info.held[i];
        if (!scv_is_nvidia_resource(held->resource))
            continue;
        struct preempt_pod *p = find_pod(state, held);
        uint64_t bits = cards_of(state, held);
        state->held |= bits;
        if (p)
            assign_cards(state, p, held, bits);
        else
            unmatched |= bits;
    }
    for (uint32_t c = 0; c < state->node->n_cards; c++)
        if (state->empty[c].state == CARD_HELD && (unknown || !(unmatched >> c & 1)))
            state->empty[c].state = CARD_AVAILABLE;
}

/* Pods that stay and that the podList does not show get cards that are not allocated.
 * Cards that do not fit the request count first. */
static uint64_t remaining_claims(const struct preempt_state *state,
                                 const struct card *cards)
{
    int64_t claims = 0;
    for (size_t i = 0; i < state->n; i++)
        claims += state->pods[i].removed ? 0 : state->pods[i].claims;
    for (uint32_t c = 0; c < state->node->n_cards; c++)
        claims -= !(state->held >> c & 1) && cards[c].state != CARD_UNHEALTHY &&
                  !placement_card_fits(&cards[c], state->preemptor->request);
    return claims > 0 ? (uint64_t)claims : 0;
}

/* Nominated pods come first and count in full, as in filter. */
uint64_t preempt_held_cards_claimed(const struct preempt_state *state,
                                    const struct card *cards)
{
    if (state->preemptor->request->kind != REQUEST_DEVICES)
        return 0;
    return state->nominated_claims + remaining_claims(state, cards);
}
