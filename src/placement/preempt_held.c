/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/preempt_priv.h"

#include "domain/keys.h"

/*
 * Cards that NVIDIA's device plugin gave out. Whose they are is said by the podList, by
 * name: then it is known what a pod leaves behind. Of a pod that the podList does not
 * show, only the number of its cards is. A node is given up only where it is certain that
 * nothing helps, so what is not known is taken for what would help.
 */

static struct tenant *find_tenant(struct look *look, const struct scv_held *held)
{
    for (size_t i = 0; i < look->n; i++) {
        const struct ledger_pod *pod = look->tenants[i].pod;
        if (span_eq(pod->name, held->pod) && span_eq(pod->ns, held->ns))
            return &look->tenants[i];
    }
    return NULL;
}

/* The bits of the cards that the container has. */
static uint64_t cards_of(const struct look *look, const struct scv_held *held)
{
    uint64_t bits = 0;
    for (size_t k = 0; k < held->n_uuids; k++)
        for (uint32_t c = 0; c < look->node->n_cards && held->uuids[k].n; c++)
            if (span_eq(held->uuids[k], look->empty[c].uuid))
                bits |= UINT64_C(1) << c;
    return bits;
}

/* He has the cards as one has whole ones: nobody else gets them before he leaves. */
static void settle_in(struct look *look, struct tenant *t, const struct scv_held *held,
                      uint64_t bits)
{
    if (span_eq(held->resource, SPAN(KEY_NVIDIA_GPU)))
        t->claims -= held->units < t->claims ? held->units : t->claims;
    for (uint32_t c = 0; c < look->node->n_cards; c++)
        if (bits >> c & 1)
            t->mib[c] = look->empty[c].total_mib;
}

void look_at_holders(struct look *look, bool unknown)
{
    struct ledger_node_info news = ledger_node_info(look->node);
    uint64_t strangers = 0;
    for (size_t i = 0; i < look->n; i++) {
        const struct request *r = &look->tenants[i].pod->request;
        look->tenants[i].claims = r->kind == REQUEST_DEVICES ? r->cards : 0;
    }
    for (size_t i = 0; i < news.n_held; i++) {
        const struct scv_held *held = &news.held[i];
        if (!scv_is_nvidia_resource(held->resource))
            continue;
        struct tenant *t = find_tenant(look, held);
        uint64_t bits = cards_of(look, held);
        look->held |= bits;
        if (t)
            settle_in(look, t, held, bits);
        else
            strangers |= bits;
    }
    for (uint32_t c = 0; c < look->node->n_cards; c++)
        if (look->empty[c].state == CARD_HELD && (unknown || !(strangers >> c & 1)))
            look->empty[c].state = CARD_AVAILABLE;
}

/* Those that stay and are not shown have cards, or get some, that nobody held when they
 * came: as long as there are any, those that would not do for the request. */
static uint64_t stayers_claims(const struct look *look, const struct card *cards)
{
    int64_t claims = 0;
    for (size_t i = 0; i < look->n; i++)
        claims += look->tenants[i].gone ? 0 : look->tenants[i].claims;
    for (uint32_t c = 0; c < look->node->n_cards; c++)
        claims -= !(look->held >> c & 1) && cards[c].state != CARD_UNHEALTHY &&
                  !card_fits(&cards[c], look->ask->request);
    return claims > 0 ? (uint64_t)claims : 0;
}

/* Who is in line is served first, as in filter, which does not hope for other cards. */
uint64_t claims_on(const struct look *look, const struct card *cards)
{
    if (look->ask->request->kind != REQUEST_DEVICES)
        return 0;
    return look->line_claims + stayers_claims(look, cards);
}
