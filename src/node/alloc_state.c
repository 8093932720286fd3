/* SPDX-License-Identifier: Apache-2.0 */

#include "node/alloc_state.h"

#include "base/array.h"
#include "base/jwrite.h"
#include "base/mem.h"
#include "domain/keys.h"

enum {
    /* If the pod watch has not shown the patch: the first repeat and later ones. */
    PATCH_REPEAT_MS = 1000,
    PATCH_RETRY_MS = 30 * 1000,
};

_Static_assert((int)REQUEST_MAX_CARDS <= (int)CARDS_MAX, "cards of a promise");

struct local_pod *alloc_state_pod(const struct alloc_state *s, struct span uid)
{
    LIST_EACH(struct local_pod, p, &s->pods, link)
    if (span_eq(p->pod->uid, uid))
        return p;
    return NULL;
}

struct local_pod *alloc_state_pod_by_name(const struct alloc_state *s, struct span ns,
                                          struct span name)
{
    struct local_pod *found = NULL;
    LIST_EACH(struct local_pod, p, &s->pods, link)
    if (span_eq(p->pod->name, name) && span_eq(p->pod->ns, ns) &&
        (!found || !p->pod->terminal))
        found = p;
    return found;
}

char *alloc_state_static_uid(struct span ns, struct span name)
{
    return xasprintf("static:%.*s/%.*s", SPAN_ARG(ns), SPAN_ARG(name));
}

bool alloc_state_is_static(struct span uid)
{
    return span_starts(uid, SPAN("static:"));
}

struct allocation *alloc_state_allocation(const struct alloc_state *s,
                                          const struct pod_allocation *pod,
                                          const struct pod_allocation_container *c)
{
    return allocation_set_find(&s->allocations, pod->uid, c->name, c->resource);
}

bool alloc_state_is_complete(const struct alloc_state *s,
                             const struct pod_allocation *pod)
{
    for (size_t i = 0; i < pod->n_containers; i++)
        if (!alloc_state_allocation(s, pod, &pod->containers[i]))
            return false;
    return pod->n_containers > 0;
}

void alloc_state_drop(struct alloc_state *s, struct allocation *al)
{
    allocation_set_drop(&s->allocations, al);
    s->dirty = true;
}

size_t alloc_state_cards_of(const struct alloc_state *s, struct span uid,
                            struct promise_share cards[CARDS_MAX])
{
    size_t n = 0;
    ALLOCATION_EACH(al, &s->allocations)
    {
        for (size_t k = 0; k < al->n_cards && (!uid.p || span_eq(al->uid, uid)); k++) {
            size_t at = 0;
            while (at < n && !span_eq(cards[at].uuid, al->cards[k].uuid))
                at++;
            if (at == n && n < CARDS_MAX)
                cards[n++] = (struct promise_share){.uuid = al->cards[k].uuid,
                                                    .card = al->cards[k].index};
        }
    }
    return n;
}

/* What the kubelet shows by name may be of a former pod, until this one has started. */
void alloc_state_assign_held(struct alloc_state *s, struct pod_allocation *pod)
{
    struct promise_share cards[CARDS_MAX];
    bool may = !pod->request.slots &&
               (pod->started || pod->mirror || s->settings.allow_unpromised);
    size_t n = pod->promise == POD_ALLOCATION_UNPROMISED && may
                   ? alloc_state_cards_of(s, pod->uid, cards)
                   : 0;
    if (n)
        pod_allocation_assign(pod, cards, n);
}

/* Outputs */

struct alloc_output *alloc_state_output(struct alloc_state *s,
                                        enum alloc_output_type type)
{
    struct alloc_output *o = step_add(s->out, sizeof *o);
    o->type = type;
    return o;
}

struct alloc_output *alloc_state_output_of(struct alloc_state *s,
                                           enum alloc_output_type type,
                                           const struct pod_allocation *pod)
{
    struct alloc_output *o = alloc_state_output(s, type);
    o->ns = step_text(s->out, pod->ns);
    o->name = step_text(s->out, pod->name);
    o->uid = step_text(s->out, pod->uid);
    return o;
}

void alloc_state_relist(struct alloc_state *s)
{
    alloc_state_output(s, ALLOC_RELIST)->dialect = s->cards.settings.dialect;
}

uint64_t alloc_state_query(struct alloc_state *s, const struct pod_allocation *pod)
{
    struct alloc_output *o = pod ? alloc_state_output_of(s, ALLOC_QUERY, pod)
                                 : alloc_state_output(s, ALLOC_QUERY);
    return o->query = ++s->queries;
}

void alloc_state_event(struct alloc_state *s, const struct pod_allocation *pod,
                       const char *reason, const char *fmt, ...)
{
    va_list ap;
    struct alloc_output *o = alloc_state_output_of(s, ALLOC_EVENT, pod);
    va_start(ap, fmt);
    o->reason = reason;
    o->text = arena_vprintf(&s->out->arena, fmt, ap);
    va_end(ap);
}

void alloc_state_save(struct alloc_state *s)
{
    if (s->dirty)
        alloc_state_output(s, ALLOC_SAVE);
    s->dirty = false;
}

/* Annotations */

/* Returns whether the annotations are due, and counts them as sent. */
static bool take_patch_turn(const struct alloc_state *s, struct pod_patch *patch)
{
    int64_t wait_ms = patch->n == 1 ? PATCH_REPEAT_MS : PATCH_RETRY_MS;
    if (patch->n && s->now.mono_ms - patch->sent_ms < wait_ms)
        return false;
    *patch = (struct pod_patch){s->now.mono_ms, patch->n + 1};
    return true;
}

void alloc_state_annotate(struct alloc_state *s, struct local_pod *p)
{
    const struct pod_allocation *pod = p->pod;
    struct promise_share shares[CARDS_MAX];
    cleanup_buf struct buf uuids = {0}, text = {0}, chosen = {0};
    struct jwrite w = {.out = &text};
    bool lacks_uuids = pod->lacks_uuids;
    if (pod->terminal || alloc_state_is_static(pod->uid) || !pod->n_containers)
        return;
    const struct allocation *first = alloc_state_allocation(s, pod, &pod->containers[0]);
    if (first && first->n_others) /* it has its cards from another plugin */
        return;
    for (size_t i = 0; i < pod->n_cards; i++) {
        const struct plugin_card *card = pod_allocation_card(&s->cards, &pod->cards[i]);
        const bool has_uuid = card && card->has_uuid;
        shares[i] = pod->cards[i];
        shares[i].card_units = card ? card->units : 0;
        if (!has_uuid)
            shares[i].uuid = (struct span){0};
        lacks_uuids &= has_uuid; /* else they cannot be said */
        buf_printf(&uuids, "%s%s", i ? "," : "", has_uuid ? card->uuid : "");
    }
    if (pod->is_chosen && first && take_patch_turn(s, &p->cards)) {
        const struct promise promise = {.shares = shares,
                                        .n = pod->n_cards,
                                        .unit_mib = s->settings.response.unit_mib};
        promise_write(&chosen, &promise, &pod->request, pod->uid, s->now.wall_ns);
        alloc_state_output_of(s, ALLOC_PATCH, pod)->text =
            step_text(s->out, buf_span(&chosen));
        p->assigned = (struct pod_patch){0}; /* the promise has it as false */
    }
    if ((pod->assigned && !lacks_uuids) || pod->promise != POD_ALLOCATION_PROMISED ||
        !alloc_state_is_complete(s, pod) || !take_patch_turn(s, &p->assigned))
        return;
    jwrite_object(&w, NULL);
    jwrite_str(&w, KEY_MEM_ASSIGNED, SPAN("true"));
    if (lacks_uuids)
        jwrite_str(&w, KEY_CARD_UUID, buf_span(&uuids));
    jwrite_object_end(&w);
    alloc_state_output_of(s, ALLOC_PATCH, pod)->text = step_text(s->out, buf_span(&text));
}
