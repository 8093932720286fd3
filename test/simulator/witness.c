/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdlib.h>
#include <string.h>

/*
 * Looks over the shoulder of a core at the moment when it promises. The oracle judges by
 * the API objects, which may have changed since the core last heard of them; the witness
 * judges by what the core was told: no promise beyond the size that was delivered last,
 * none on a card that is out, and the card is the one that the pod's policy names. Pods
 * that outsiders bound count as soon as the replica has heard of them. It
 * takes sizes, health and promises from the ledger (which the oracle compares with the
 * objects at rest) and works the rest out by itself.
 */

static int64_t room(const struct card *card)
{
    return card->total_mib - card->promised_mib - card->withheld_mib;
}

static const struct card *find(const struct ledger_node *node, int32_t index)
{
    for (uint32_t i = 0; i < node->n_cards; i++)
        if (node->cards[i].index == index)
            return &node->cards[i];
    return NULL;
}

static void look_at_card(struct world *w, const struct ledger_pod *pod,
                         const struct card *card)
{
    const char *uid = pod->uid.p;
    if (card->out != CARD_IN)
        violated(w, "%s is promised GPU%d, which is out", uid, card->index);
    if (room(card) < 0)
        violated(w, "%s is promised GPU%d beyond its size: %lld of %lld MiB", uid,
                 card->index, (long long)card->promised_mib, (long long)card->total_mib);
    if ((pod->request.kind == REQUEST_CARDS || card->whole) && card->pods != 1)
        violated(w, "%s shares GPU%d, which is taken whole", uid, card->index);
}

/* Memory on one card: was there a better one? */
static void look_at_choice(struct world *w, const struct ledger_node *node,
                           const struct ledger_pod *pod, const struct card *chosen)
{
    int64_t need = pod->request.mib_per_card, had = room(chosen) + need;
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct card *other = &node->cards[i];
        int64_t has = room(other);
        if (other == chosen || other->out != CARD_IN || other->whole || has < need)
            continue;
        if (!request_suits(&pod->request, other->model, other->scv->spec.clock_mhz))
            continue;
        bool better = pod->request.placement == PLACE_SPREAD ? has > had : has < had;
        if (better || (has == had && other->index < chosen->index))
            violated(w, "%s is on GPU%d, and GPU%d was to be taken", pod->uid.p,
                     chosen->index, other->index);
    }
}

/* Nothing is promised: the kubelet chooses. */
static void look_at_devices(struct world *w, const struct replica *r,
                            const struct core_output *o)
{
    if (o->annotations)
        violated(w, "%s is to get its cards from others, and is promised some: %s",
                 o->uid, o->annotations);
    oracle_sent(w, replica_id(r), o->uid, o->node);
}

void witness_bind(struct world *w, const struct replica *r, const struct core_output *o)
{
    const struct core *core = replica_core(r);
    const struct ledger_node *node =
        ledger_node_find(core_ledger(core), span_of(o->node));
    const struct ledger_pod *pod = ledger_pod_find(core_ledger(core), span_of(o->uid));
    json_t *notes = json_loads(o->annotations ? o->annotations : "{}", 0, NULL);
    const char *at = json_string_value(json_object_get(notes, "ALIYUN_COM_GPU_MEM_IDX"));
    uint32_t n = 0;
    if (!core_is_leader(core))
        violated(w, "%s is bound by one who does not hold the lease", o->uid);
    if (pod && pod->request.kind == REQUEST_DEVICES) {
        look_at_devices(w, r, o);
        json_decref(notes);
        return;
    }
    if (!node || !pod || !at || node->state != NODE_USABLE)
        violated(w, "%s is promised cards of %s, which gives none", o->uid, o->node);
    while (node && pod && at && *at) {
        char *end;
        const struct card *card = find(node, (int32_t)strtol(at, &end, 10));
        at = *end == ',' ? end + 1 : end;
        n++;
        if (!card) {
            violated(w, "%s is promised a card that %s does not have", o->uid, o->node);
            break;
        }
        look_at_card(w, pod, card);
        oracle_promised(w, replica_id(r), o->uid, o->node, card->index);
        if (pod->request.kind == REQUEST_MEMORY && pod->request.cards == 1)
            look_at_choice(w, node, pod, card);
    }
    if (pod && n != pod->request.cards)
        violated(w, "%s is promised %u cards instead of %u", o->uid, n,
                 pod->request.cards);
    json_decref(notes);
}
