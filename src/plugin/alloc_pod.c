/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/mem.h"
#include "domain/keys.h"
#include "domain/promise.h"
#include "plugin/alloc_priv.h"

enum {
    MARK_AGAIN_MS = 30 * 1000, /* a patch that has not shown by then is sent again */
};

void pupil_free(struct pupil *p)
{
    plan_free(p->plan);
    free(p);
}

struct pupil *pupil_find(const struct alloc *a, struct span uid)
{
    for (struct pupil *p = a->pupils; p; p = p->next)
        if (span_eq(p->plan->uid, uid))
            return p;
    return NULL;
}

/* Of two with the same name, the one that is not over, or that came last. */
struct pupil *pupil_named(const struct alloc *a, struct span ns, struct span name)
{
    struct pupil *found = NULL;
    for (struct pupil *p = a->pupils; p; p = p->next)
        if (span_eq(p->plan->name, name) && span_eq(p->plan->ns, ns) &&
            (!found || !p->plan->over))
            found = p;
    return found;
}

bool pupil_is_complete(const struct alloc *a, const struct pupil *p)
{
    const struct plan *plan = p->plan;
    for (size_t i = 0; i < plan->n_containers; i++) {
        const struct plan_container *c = &plan->containers[i];
        if (!grants_find(&a->grants, plan->uid, c->name, c->resource))
            return false;
    }
    return plan->n_containers > 0;
}

void pupil_mark(struct alloc *a, struct alloc_time now, struct pupil *p,
                struct alloc_outputs *out)
{
    if (p->plan->assigned || p->plan->over || p->plan->promise != PLAN_PROMISED ||
        span_starts(p->plan->uid, SPAN("static:")) || !pupil_is_complete(a, p) ||
        (p->patched_ms && now.mono_ms - p->patched_ms < MARK_AGAIN_MS))
        return;
    p->patched_ms = now.mono_ms;
    alloc_out_patch(out, p->plan, "{\"" KEY_MEM_ASSIGNED "\":\"true\"}");
}

void pupil_give_from_grants(struct alloc *a, struct pupil *p)
{
    struct plan_share shares[CARDS_MAX];
    struct plan *plan = p->plan;
    size_t n = 0;
    if (plan->promise != PLAN_NONE)
        return;
    for (size_t i = 0; i < a->grants.n; i++) {
        const struct grant *g = a->grants.items[i];
        for (size_t k = 0; k < g->n_cards && span_eq(g->uid, plan->uid); k++) {
            size_t at = 0;
            while (at < n && !span_eq(shares[at].uuid, g->cards[k].uuid))
                at++;
            if (at == n && n < CARDS_MAX)
                shares[n++] = (struct plan_share){.uuid = g->cards[k].uuid,
                                                  .index = g->cards[k].index};
        }
    }
    if (n == 0)
        return;
    plan_give(plan, shares, n);
    p->given = true;
    p->written = false;
}

void pupil_write_given(struct alloc *a, struct alloc_time now, struct pupil *p,
                       struct alloc_outputs *out)
{
    struct promise_share shares[CARDS_MAX];
    const struct plan *plan = p->plan;
    cleanup_buf struct buf b = {0};
    if (!p->given || p->written || span_starts(plan->uid, SPAN("static:")))
        return;
    for (size_t i = 0; i < plan->n_cards; i++) {
        const struct plugin_card *card = pick_card(a, &plan->cards[i]);
        shares[i] = (struct promise_share){
            .card = plan->cards[i].index,
            .card_units = card ? card->units : 0,
            .uuid = card && card->has_uuid ? span_of(card->uuid) : (struct span){0}};
    }
    struct promise promise = {.shares = shares, .n = plan->n_cards};
    promise_write(&b, &promise, &plan->request, now.wall_ns);
    alloc_out_patch(out, plan, b.p);
    p->written = true;
}

static void drop_grants(struct alloc *a, struct span uid)
{
    if (grants_drop_pod(&a->grants, uid))
        a->dirty = true;
}

/* The pod is gone, but nobody said that its containers are: the kubelet will not show
 * them any more when they are. */
static void let_go(struct alloc *a, struct span uid)
{
    for (size_t i = 0; i < a->grants.n; i++)
        if (span_eq(a->grants.items[i]->uid, uid))
            a->grants.items[i]->leaving = true;
}

/* A static pod that was admitted before the API had anything of it: what it was given is
 * its mirror pod's now. */
static struct pupil *adopt_static(struct alloc *a, const struct plan *plan)
{
    struct pupil *p = pupil_named(a, plan->ns, plan->name);
    if (!plan->mirror || !p || !span_starts(p->plan->uid, SPAN("static:")))
        return NULL;
    for (size_t i = 0; i < a->grants.n; i++) {
        struct grant *g = a->grants.items[i];
        if (span_eq(g->uid, p->plan->uid)) {
            g->uid = arena_copy(&g->arena, plan->uid);
            a->dirty = true;
        }
    }
    p->written = false;
    return p;
}

static struct pupil *new_pupil(struct alloc *a)
{
    struct pupil **at = &a->pupils;
    while (*at)
        at = &(*at)->next;
    return *at = xcalloc(1, sizeof **at);
}

/* What we chose for a pod that nobody had promised anything stays, until the API says the
 * same. */
static void keep_given(struct pupil *p, struct plan *plan)
{
    bool still = p->given && plan->promise == PLAN_NONE;
    if (still)
        plan_give(plan, p->plan->cards, p->plan->n_cards);
    p->given = still;
}

void alloc_pod_seen(struct alloc *a, struct alloc_time now, struct plan *plan,
                    struct alloc_outputs *out)
{
    struct pupil *p = pupil_find(a, plan->uid);
    if (!p)
        p = adopt_static(a, plan);
    if (!p) {
        p = new_pupil(a);
        p->since_ms = now.mono_ms;
    }
    if (p->plan)
        keep_given(p, plan);
    plan_free(p->plan);
    p->plan = plan;
    p->list = a->list;
    a->news++;
    if (plan->over)
        drop_grants(a, plan->uid);
    pupil_give_from_grants(a, p);
    if (pupil_is_complete(a, p))
        pupil_write_given(a, now, p, out);
    pupil_mark(a, now, p, out);
    alloc_out_save(a, out);
    ask_retry_all(a, now, out);
}

static void remove_pupil(struct alloc *a, struct pupil *gone)
{
    struct pupil **at = &a->pupils;
    while (*at != gone)
        at = &(*at)->next;
    *at = gone->next;
    let_go(a, gone->plan->uid);
    who_add_stranger(a, gone->plan->ns, gone->plan->name)->former = true;
    pupil_free(gone);
}

void alloc_pod_gone(struct alloc *a, struct alloc_time now, struct span uid,
                    struct alloc_outputs *out)
{
    struct pupil *p = pupil_find(a, uid);
    a->news++;
    if (p)
        remove_pupil(a, p);
    else
        let_go(a, uid);
    alloc_out_save(a, out);
    ask_retry_all(a, now, out);
}

void alloc_list_begins(struct alloc *a)
{
    a->list++;
}

/* Grants of pods that are not there any more; those of static pods that the API does not
 * know yet stay. */
static void sweep_grants(struct alloc *a)
{
    for (size_t i = 0; i < a->grants.n; i++) {
        struct grant *g = a->grants.items[i];
        if (!pupil_find(a, g->uid) && !span_starts(g->uid, SPAN("static:")))
            g->leaving = true;
    }
}

void alloc_list_ended(struct alloc *a, struct alloc_time now, struct alloc_outputs *out)
{
    for (struct pupil *p = a->pupils, *next; p; p = next) {
        next = p->next;
        if (p->list != a->list && !span_starts(p->plan->uid, SPAN("static:")))
            remove_pupil(a, p);
    }
    a->listed = true;
    a->news++;
    sweep_grants(a);
    alloc_out_save(a, out);
    ask_retry_all(a, now, out);
    alloc_hurry(a, now.mono_ms);
}
