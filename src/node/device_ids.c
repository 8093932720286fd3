/* SPDX-License-Identifier: Apache-2.0 */

#include "node/device_ids.h"

#include <stdlib.h>

#include "base/array.h"
#include "domain/keys.h"

bool device_ids_read(const struct alloc_state *s, enum ids_resource r, struct span text,
                     struct device_id *unit)
{
    struct ids_id id;
    if (!ids_read(r, text, &id))
        return false;
    *unit = (struct device_id){cards_by_tag(&s->cards, &id.tag), id.unit, r};
    return unit->card && id.unit < (ids_are_slots(r) ? s->cards.settings.slots
                                                     : unit->card->most_units);
}

const char *device_ids_text(struct alloc_state *s, const struct device_id *unit)
{
    cleanup_buf struct buf b = {0};
    ids_write(&b, unit->resource, &(struct ids_id){unit->card->tag, unit->number});
    return step_text(s->out, buf_span(&b));
}

/* NULL: none of the shares is of the card. */
static const struct promise_share *share_of(const struct alloc_state *s,
                                            const struct promise_share *shares, size_t n,
                                            const struct plugin_card *card)
{
    for (size_t i = 0; i < n; i++)
        if (pod_allocation_card(&s->cards, &shares[i]) == card)
            return &shares[i];
    return NULL;
}

/* May the target take over ids of the allocation? It may those of its pod's plain init
 * containers, which have ended, and its own and those of later containers: if there are any,
 * the kubelet has lost its checkpoint, and they are void. */
static bool may_take_over(const struct alloc_target *t, const struct allocation *al)
{
    const struct pod_allocation *pod = t->local->pod;
    bool may = al->role == CONTAINER_INIT;
    for (size_t i = t->container; i < pod->n_containers; i++)
        may |= span_eq(pod->containers[i].name, al->container) &&
               pod->containers[i].resource == al->resource;
    return may && span_eq(al->uid, pod->uid);
}

const struct allocation *device_ids_holder(const struct alloc_state *s,
                                           const struct alloc_target *t,
                                           const struct device_id *unit)
{
    enum ids_resource resource = alloc_target_container(t)->resource;
    bool whole = resource == IDS_COUNT;
    struct span uuid = span_of(unit->card->uuid);
    ALLOCATION_EACH(al, &s->allocations)
    {
        bool whole_card = whole || al->resource == IDS_COUNT;
        if ((whole_card || al->resource == resource) &&
            allocation_holds(al, uuid, whole_card ? -1 : unit->number) &&
            !may_take_over(t, al))
            return al;
    }
    return NULL;
}

/* Users who can read the pod's events may have no access to other namespaces. */
static const char *user_name(struct alloc_state *s, const struct alloc_target *t,
                             struct span ns, struct span name)
{
    if (!span_eq(ns, t->local->pod->ns))
        return "a pod of another namespace";
    return step_printf(s->out, "pod %.*s/%.*s", SPAN_ARG(ns), SPAN_ARG(name));
}

static bool reject_held(struct alloc_state *s, const struct alloc_target *t,
                        const struct device_id *unit, const struct allocation *al,
                        struct rejection *r)
{
    bool other = al->resource != alloc_target_container(t)->resource;
    return rejection_set(r, REJECTED_IN_USE, "id %s of card %s is held by %s%s%s",
                         device_ids_text(s, unit), unit->card->uuid,
                         user_name(s, t, al->ns, al->name), other ? ", through " : "",
                         other ? ids_resource_name(al->resource) : "");
}

/* No promise and no allocation is on the card. */
static bool is_untouched(const struct alloc_state *s, const struct plugin_card *card)
{
    LIST_EACH(const struct local_pod, p, &s->pods, link)
    if (!p->pod->terminal && share_of(s, p->pod->cards, p->pod->n_cards, card))
        return false;
    ALLOCATION_EACH(al, &s->allocations)
    if (allocation_card(al, span_of(card->uuid)))
        return false;
    return true;
}

static bool assign_untouched(const struct alloc_state *s, struct pod_allocation *pod,
                             struct rejection *r)
{
    struct promise_share shares[CARDS_MAX];
    bool taken[CARDS_MAX] = {false};
    const struct cards *cards = &s->cards;
    const struct request *asks = &pod->request;
    bool memory = asks->kind == REQUEST_MEMORY;
    int64_t units = memory ? asks->units / asks->cards : 0;
    for (uint32_t i = 0; i < asks->cards; i++) {
        const struct plugin_card *best = NULL;
        for (size_t k = 0; k < cards->n; k++) {
            const struct plugin_card *c = &cards->items[k];
            if (!taken[k] && c->health.healthy && c->units >= units &&
                (!c->parent[0] || (memory && asks->cards == 1)) &&
                (!best || c->units < best->units) && is_untouched(s, c))
                best = c;
        }
        if (!best)
            return rejection_set(r, REJECTED_NO_PROMISE,
                                 "pod %s has no promised card, and fewer than %u "
                                 "cards of %lld units have no promises",
                                 pod->full_name, asks->cards, (long long)units);
        taken[best - cards->items] = true;
        shares[i] = (struct promise_share){
            .uuid = span_of(best->uuid), .card = best->index, .units = units};
    }
    pod_allocation_assign(pod, shares, asks->cards);
    return pod->promise == POD_ALLOCATION_PROMISED ||
           rejection_set(r, REJECTED_INVALID_REQUEST, "pod %s: %.*s", pod->full_name,
                         SPAN_ARG(pod->why_not));
}

bool device_ids_check_promise(struct alloc_state *s, const struct alloc_target *t,
                              struct rejection *r)
{
    struct pod_allocation *pod = t->local->pod;
    const struct pod_allocation_container *c = alloc_target_container(t);
    const char *name = pod->full_name;
    if (ids_are_slots(c->resource) && pod->mirror)
        return rejection_set(
            r, REJECTED_INVALID_REQUEST,
            "pod %s is static: the kubelet asks for its slots of %s before %s can be "
            "read. Let it ask for " KEY_GPU_MEM,
            name, ids_resource_name(c->resource),
            c->resource == IDS_SHARE ? "its annotation " KEY_MEMORY
                                     : "what it says of them");
    if (pod->promise == POD_ALLOCATION_INVALID)
        return rejection_set(r, REJECTED_INVALID_REQUEST, "pod %s: %.*s", name,
                             SPAN_ARG(pod->why_not));
    if ((c->own_devices || c->privileged) && s->settings.strict_env)
        return rejection_set(r, REJECTED_ENV_OVERRIDE, "container %.*s of pod %s %s",
                             SPAN_ARG(c->name), name,
                             c->own_devices
                                 ? "sets NVIDIA_VISIBLE_DEVICES itself"
                                 : "is privileged, and has every card of the node");
    if (pod->promise == POD_ALLOCATION_UNPROMISED &&
        ((!s->settings.allow_unpromised && !pod->mirror) || ids_are_slots(c->resource)))
        return rejection_set(
            r, REJECTED_NO_PROMISE,
            "pod %s " KEY_NO_PROMISE ": the extender did not bind it. Make its "
            "kube-scheduler call the extender (scripts/install --check), or set "
            "schedulerName to one that does, and create the pod again",
            name);
    if (pod->promise == POD_ALLOCATION_UNPROMISED && !assign_untouched(s, pod, r))
        return false;
    for (size_t i = 0; i < c->n_shares; i++) {
        const struct plugin_card *card = pod_allocation_card(&s->cards, &c->shares[i]);
        if (!card)
            return rejection_set(
                r, REJECTED_UNHEALTHY_CARD,
                "pod %s is promised card %d %.*s, which is not on this node", name,
                c->shares[i].card, SPAN_ARG(c->shares[i].uuid));
        if (!card->health.healthy)
            return rejection_set(r, REJECTED_UNHEALTHY_CARD,
                                 "pod %s is promised card %s, which is unhealthy: %s",
                                 name, card->uuid, card->health.reason);
        /* Another pod that can use the card without a recorded allocation: one started by the Go
         * plugin, or one whose allocation is not known. */
        const struct pod_allocation *user = NULL;
        LIST_EACH(const struct local_pod, p, &s->pods, link)
        if (!user && p != t->local && !p->pod->terminal && p->pod->started &&
            (c->resource == IDS_COUNT || p->pod->request.kind == REQUEST_CARDS) &&
            share_of(s, p->pod->cards, p->pod->n_cards, card))
            user = p->pod;
        if (user)
            return rejection_set(r, REJECTED_IN_USE, "card %s is used by %s", card->uuid,
                                 user_name(s, t, user->ns, user->name));
    }
    return true;
}

size_t device_ids_limit(const struct alloc_state *s, const struct alloc_target *t,
                        const struct plugin_card *card)
{
    const struct pod_allocation_container *c = alloc_target_container(t);
    const struct promise_share *share = share_of(s, c->shares, c->n_shares, card);
    return share ? (size_t)pod_allocation_ids(c, share) : 0;
}

static int by_unit(const void *pa, const void *pb)
{
    const struct device_id *x = pa, *y = pb;
    if (x->card != y->card)
        return (x->card > y->card) - (x->card < y->card);
    return (x->number > y->number) - (x->number < y->number);
}

static void sort_units(struct device_id *units, size_t n)
{
    if (n)
        qsort(units, n, sizeof *units, by_unit);
}

bool device_ids_check(struct alloc_state *s, const struct alloc_target *t,
                      struct device_id *ids, size_t n, struct rejection *r)
{
    const struct pod_allocation_container *c = alloc_target_container(t);
    if (n != (size_t)c->amount)
        return rejection_set(r, REJECTED_WRONG_CARD,
                             "%zu ids for container %.*s of pod %s, which requests %lld",
                             n, SPAN_ARG(c->name), t->local->pod->full_name,
                             (long long)c->amount);
    sort_units(ids, n);
    for (size_t i = 0, on_card = 0; i < n; i++) {
        on_card = i && ids[i - 1].card == ids[i].card ? on_card + 1 : 1;
        if (on_card > device_ids_limit(s, t, ids[i].card)) {
            cleanup_buf struct buf cards = {0};
            ARRAY_EACH_ITEM(const struct promise_share, share, c->shares, c->n_shares)
            buf_printf(&cards, "%s%lld of card %d%s%.*s", cards.n ? ", " : "",
                       (long long)pod_allocation_ids(c, share), share->card,
                       share->uuid.n ? " " : "", SPAN_ARG(share->uuid));
            return rejection_set(
                r, REJECTED_WRONG_CARD,
                "id %s belongs to card %s; container %.*s of pod %s is promised %s",
                device_ids_text(s, &ids[i]), ids[i].card->uuid, SPAN_ARG(c->name),
                t->local->pod->full_name, cards.p ? cards.p : "nothing");
        }
        if (i && by_unit(&ids[i - 1], &ids[i]) == 0)
            return rejection_set(r, REJECTED_WRONG_CARD, "duplicate id");
        const struct allocation *al = device_ids_holder(s, t, &ids[i]);
        if (al)
            return reject_held(s, t, &ids[i], al, r);
    }
    return true;
}

bool device_ids_select(struct alloc_state *s, const struct alloc_target *t,
                       struct kubelet_request *req)
{
    const struct pod_allocation_container *c = alloc_target_container(t);
    size_t amount = (size_t)c->amount, n = req->n_must;
    struct device_id *picked = arena_alloc(&req->arena, (amount + n) * sizeof *picked);
    const struct allocation *holder = NULL;
    const struct device_id *held = NULL;
    const struct plugin_card *lacking = NULL;
    sort_units(req->ids, req->n_ids);
    sort_units(req->must, n);
    if (n)
        memcpy(picked, req->must, n * sizeof *picked);
    for (size_t i = 0; i < c->n_shares && n < amount; i++) {
        const struct plugin_card *card = pod_allocation_card(&s->cards, &c->shares[i]);
        size_t want = (size_t)pod_allocation_ids(c, &c->shares[i]);
        for (size_t k = 0; k < req->n_must; k++)
            want -= want > 0 && req->must[k].card == card;
        for (size_t k = 0; k < req->n_ids && want > 0 && n < amount; k++) {
            const struct device_id *u = &req->ids[k];
            if (u->card != card || (k && by_unit(u - 1, u) == 0) ||
                (req->n_must && bsearch(u, req->must, req->n_must, sizeof *u, by_unit)))
                continue;
            const struct allocation *al = device_ids_holder(s, t, u);
            if (al) {
                holder = al;
                held = u;
                continue;
            }
            picked[n++] = *u;
            want--;
        }
        lacking = want ? card : lacking;
    }
    if (n < amount && holder)
        return reject_held(s, t, held, holder, &req->rejection);
    if (n < amount)
        return rejection_set(
            &req->rejection, REJECTED_INSUFFICIENT_IDS,
            "the kubelet offers too few free ids of card %s: %zu missing", lacking->uuid,
            amount - n);
    if (!device_ids_check(s, t, picked, n, &req->rejection))
        return false;
    req->ids = picked;
    req->n_ids = n;
    return true;
}
