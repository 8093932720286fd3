/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/bound.h"

/* Did the Binding promise more than the labels request now? */
static bool is_larger(const struct promise *p, const struct request *r)
{
    if (r->kind == REQUEST_CARDS)
        return false;
    if (!p->whole && p->card_mib < 0)
        return r->kind == REQUEST_NONE && p->fills;
    return p->whole || r->kind == REQUEST_NONE ||
           r->mib_per_card * r->cards < p->card_mib * (int64_t)p->n;
}

/* The request that the labels made when the pod was bound. */
static struct request promised(const struct promise *p, int64_t unit_mib)
{
    bool whole = p->whole || p->card_mib < 0;
    struct request r = {.kind = whole ? REQUEST_CARDS : REQUEST_MEMORY,
                        .cards = (uint32_t)p->n,
                        .by_label = true};
    if (!whole) {
        r.mib_per_card = p->card_mib;
        r.units = r.cards * ((p->card_mib + unit_mib - 1) / unit_mib);
    }
    return r;
}

int bound_request(const struct pod *pod, const struct promise *promise,
                  const struct request_rules *rules, struct arena *a,
                  struct request *request, struct err *err)
{
    struct limits limits = limits_of(pod);
    int bad = request_of(pod, rules, a, request, err);
    if (limits_any(&limits)) {
        if (bad)
            request_of_limits(&limits, rules, request);
    } else if (promise->n && is_larger(promise, request)) {
        *request = promised(promise, rules->unit_mib);
    }
    return bad;
}
