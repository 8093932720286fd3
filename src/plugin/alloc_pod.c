/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/mem.h"
#include "domain/keys.h"
#include "domain/promise.h"
#include "plugin/alloc_priv.h"

enum {
    PATCH_RETRY_MS = 30 * 1000, /* if the pod watch has not shown the patch */
};

void alloc_pod_free(struct local_pod *p)
{
    pod_allocation_free(p->pod);
    free(p);
}

struct local_pod *alloc_pod_find(const struct alloc *a, struct span uid)
{
    for (struct local_pod *p = a->local_pods; p; p = p->next)
        if (span_eq(p->pod->uid, uid))
            return p;
    return NULL;
}

/* Of several pods with this name: the one that is not terminal, else the newest. */
struct local_pod *alloc_pod_by_name(const struct alloc *a, struct span ns,
                                    struct span name)
{
    struct local_pod *found = NULL;
    for (struct local_pod *p = a->local_pods; p; p = p->next)
        if (span_eq(p->pod->name, name) && span_eq(p->pod->ns, ns) &&
            (!found || !p->pod->terminal))
            found = p;
    return found;
}

bool alloc_pod_is_complete(const struct alloc *a, const struct local_pod *p)
{
    const struct pod_allocation *pod = p->pod;
    for (size_t i = 0; i < pod->n_containers; i++) {
        const struct pod_allocation_container *c = &pod->containers[i];
        if (!allocation_set_find(&a->allocations, pod->uid, c->name, c->resource))
            return false;
    }
    return pod->n_containers > 0;
}

void alloc_pod_mark_assigned(struct alloc *a, struct alloc_time now, struct local_pod *p,
                             struct alloc_outputs *out)
{
    if (p->pod->assigned || p->pod->terminal ||
        p->pod->promise != POD_ALLOCATION_PROMISED ||
        span_starts(p->pod->uid, SPAN("static:")) || !alloc_pod_is_complete(a, p) ||
        (p->patched_ms && now.mono_ms - p->patched_ms < PATCH_RETRY_MS))
        return;
    p->patched_ms = now.mono_ms;
    alloc_output_patch(out, p->pod, "{\"" KEY_MEM_ASSIGNED "\":\"true\"}");
}

void alloc_pod_assign_from_allocations(struct alloc *a, struct local_pod *p)
{
    struct pod_allocation_share shares[CARDS_MAX];
    struct pod_allocation *pod = p->pod;
    size_t n = 0;
    if (pod->promise != POD_ALLOCATION_UNPROMISED)
        return;
    for (size_t i = 0; i < a->allocations.n; i++) {
        const struct allocation *al = a->allocations.items[i];
        for (size_t k = 0; k < al->n_cards && span_eq(al->uid, pod->uid); k++) {
            size_t at = 0;
            while (at < n && !span_eq(shares[at].uuid, al->cards[k].uuid))
                at++;
            if (at == n && n < CARDS_MAX)
                shares[n++] = (struct pod_allocation_share){.uuid = al->cards[k].uuid,
                                                            .index = al->cards[k].index};
        }
    }
    if (n == 0)
        return;
    pod_allocation_assign(pod, shares, n);
    p->assigned_here = true;
    p->annotated = false;
}

void alloc_pod_annotate_assigned(struct alloc *a, struct alloc_time now,
                                 struct local_pod *p, struct alloc_outputs *out)
{
    struct promise_share shares[CARDS_MAX];
    const struct pod_allocation *pod = p->pod;
    cleanup_buf struct buf b = {0};
    if (!p->assigned_here || p->annotated || span_starts(pod->uid, SPAN("static:")))
        return;
    for (size_t i = 0; i < pod->n_cards; i++) {
        const struct plugin_card *card = alloc_select_card(a, &pod->cards[i]);
        shares[i] = (struct promise_share){
            .card = pod->cards[i].index,
            .card_units = card ? card->units : 0,
            .uuid = card && card->has_uuid ? span_of(card->uuid) : (struct span){0}};
    }
    struct promise promise = {.shares = shares, .n = pod->n_cards};
    promise_write(&b, &promise, &pod->request, now.wall_ns);
    alloc_output_patch(out, pod, b.p);
    p->annotated = true;
}

static void drop_grants(struct alloc *a, struct span uid)
{
    if (allocation_set_drop_pod(&a->allocations, uid))
        a->dirty = true;
}

/* Containers can outlive their deleted pod: their ids stay held until they leave the
 * kubelet's view. */
static void mark_deleted(struct alloc *a, struct span uid)
{
    for (size_t i = 0; i < a->allocations.n; i++)
        if (span_eq(a->allocations.items[i]->uid, uid))
            a->allocations.items[i]->pod_deleted = true;
}

/* A static pod is admitted before its mirror pod exists. The mirror pod inherits its
 * allocations. */
static struct local_pod *adopt_static(struct alloc *a, const struct pod_allocation *pod)
{
    struct local_pod *p = alloc_pod_by_name(a, pod->ns, pod->name);
    if (!pod->mirror || !p || !span_starts(p->pod->uid, SPAN("static:")))
        return NULL;
    for (size_t i = 0; i < a->allocations.n; i++) {
        struct allocation *al = a->allocations.items[i];
        if (span_eq(al->uid, p->pod->uid)) {
            al->uid = arena_copy(&al->arena, pod->uid);
            a->dirty = true;
        }
    }
    p->annotated = false;
    return p;
}

static struct local_pod *new_local_pod(struct alloc *a)
{
    struct local_pod **at = &a->local_pods;
    while (*at)
        at = &(*at)->next;
    return *at = xcalloc(1, sizeof **at);
}

/* Cards chosen here for an unpromised pod stay until its annotations name them. */
static void keep_assigned(struct local_pod *p, struct pod_allocation *pod)
{
    bool still = p->assigned_here && pod->promise == POD_ALLOCATION_UNPROMISED;
    if (still)
        pod_allocation_assign(pod, p->pod->cards, p->pod->n_cards);
    p->assigned_here = still;
}

/* A promise that changed is the limit from now on. */
static void update_limit(struct alloc *a, const struct local_pod *p,
                         struct alloc_outputs *out)
{
    const struct response *r =
        response_changed_limit(&a->settings.response, &a->cards, p->pod, &out->arena);
    if (r->limit)
        alloc_output_of_pod(out, ALLOC_LIMIT, p->pod)->response = r;
}

void alloc_pod_seen(struct alloc *a, struct alloc_time now, struct pod_allocation *pod,
                    struct alloc_outputs *out)
{
    struct local_pod *p = alloc_pod_find(a, pod->uid);
    if (!p)
        p = adopt_static(a, pod);
    if (!p) {
        p = new_local_pod(a);
        p->first_seen_ms = now.mono_ms;
    }
    if (p->pod)
        keep_assigned(p, pod);
    pod_allocation_free(p->pod);
    p->pod = pod;
    p->list = a->list;
    if (pod->terminal)
        drop_grants(a, pod->uid);
    alloc_pod_assign_from_allocations(a, p);
    if (alloc_pod_is_complete(a, p))
        update_limit(a, p, out);
    if (alloc_pod_is_complete(a, p))
        alloc_pod_annotate_assigned(a, now, p, out);
    alloc_pod_mark_assigned(a, now, p, out);
    alloc_output_save(a, out);
    alloc_request_retry_all(a, now, out);
}

static void remove_local_pod(struct alloc *a, struct local_pod *p)
{
    struct local_pod **at = &a->local_pods;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    mark_deleted(a, p->pod->uid);
    alloc_identify_add_unknown(a, p->pod->ns, p->pod->name)->former = true;
    alloc_pod_free(p);
}

void alloc_pod_deleted(struct alloc *a, struct alloc_time now, struct span uid,
                       struct alloc_outputs *out)
{
    struct local_pod *p = alloc_pod_find(a, uid);
    if (p)
        remove_local_pod(a, p);
    else
        mark_deleted(a, uid);
    alloc_output_save(a, out);
    alloc_request_retry_all(a, now, out);
}

void alloc_list_started(struct alloc *a)
{
    a->list++;
}

/* Marks allocations of deleted pods, except those of static pods that have no mirror pod
 * yet. */
static void sweep_allocations(struct alloc *a)
{
    for (size_t i = 0; i < a->allocations.n; i++) {
        struct allocation *al = a->allocations.items[i];
        if (!alloc_pod_find(a, al->uid) && !span_starts(al->uid, SPAN("static:")))
            al->pod_deleted = true;
    }
}

void alloc_list_ended(struct alloc *a, struct alloc_time now, struct alloc_outputs *out)
{
    for (struct local_pod *p = a->local_pods, *next; p; p = next) {
        next = p->next;
        if (p->list != a->list && !span_starts(p->pod->uid, SPAN("static:")))
            remove_local_pod(a, p);
    }
    a->listed = true;
    sweep_allocations(a);
    alloc_output_save(a, out);
    alloc_request_retry_all(a, now, out);
    alloc_wake_at(a, now.mono_ms);
}
