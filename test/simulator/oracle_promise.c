/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/oracle_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The annotations that a Binding of the extender writes, against the request. */

/* The annotations of a Binding must match the request. */
static void check_amount(struct world *w, const struct oracle_pod *p, json_t *meta)
{
    const char *pod = ask_text(meta, "annotations", "ALIYUN_COM_GPU_MEM_POD");
    const char *text =
        ask_text(meta, "annotations", "scheduler.framework.gpushare.allocation");
    if (!pod || !text) {
        violated(w, "pod %s is bound without amounts", p->uid);
        return;
    }
    if (!p->whole && strtoll(pod, NULL, 10) != p->units * p->cards)
        violated(w, "pod %s has %s units written instead of %lld", p->uid, pod,
                 (long long)(p->units * p->cards));
    json_t *allocation = json_loads(text, 0, NULL), *cards, *units;
    const char *container, *card;
    if (!json_is_object(allocation))
        violated(w, "pod %s has an invalid allocation: %s", p->uid, text);
    json_object_foreach(allocation, container, cards)
        json_object_foreach(cards, card, units)
    {
        bool known = false;
        for (int i = 0; i < p->n_cards; i++)
            known |= p->card[i] == atoi(card);
        if (!known || !json_is_integer(units))
            violated(w, "pod %s has an allocation of other cards: %s", p->uid, text);
    }
    json_decref(allocation);
}

/* Do the annotations of the Binding match the request? */
static bool is_answer(const struct oracle_pod *p, json_t *meta)
{
    int node = oracle_index(p->node);
    const char *pod = ask_text(meta, "annotations", "ALIYUN_COM_GPU_MEM_POD");
    const char *exact = ask_text(meta, "annotations", "gpushare/card-memory");
    char mib[32];
    snprintf(mib, sizeof mib, "%lld", (long long)p->mib);
    bool good = !p->invalid && !p->nothing && p->n_cards == p->cards && pod;
    good = good && (p->whole || strtoll(pod, NULL, 10) == p->units * p->cards);
    if (p->labeled && exact)
        good = good && !strcmp(exact, p->whole ? "whole" : mib);
    for (int i = 0; good && i < p->n_cards; i++)
        good = p->card[i] >= 0 && p->card[i] < oracle_cards(node) &&
               oracle_card_matches(p, node, p->card[i]);
    return good;
}

/* The pod may have been edited while its Binding was in flight: any version since the bind
 * request may match. */
void oracle_check_promise(struct world *w, struct oracle_pod *p, json_t *meta)
{
    bool good = is_answer(p, meta);
    for (const struct oracle_ask *a = p->asks; a && !good; a = a->next) {
        free(p->models);
        ask_take(p, a);
        good = is_answer(p, meta);
    }
    if (!good)
        violated(w,
                 "pod %s is bound to %s with %d cards, which matches no version of its "
                 "request (now: %d "
                 "cards, %lld MiB on each, %s, %d MHz%s)",
                 p->uid, p->node, p->n_cards, p->cards, (long long)p->mib,
                 p->models ? p->models : "any", p->clock, p->invalid ? ", invalid" : "");
    check_amount(w, p, meta);
}
