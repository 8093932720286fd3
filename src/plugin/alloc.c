/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/alloc.h"

#include <stdlib.h>

#include "base/mem.h"
#include "domain/keys.h"
#include "domain/promise.h"
#include "plugin/alloc_priv.h"

enum {
    MARK_AGAIN_MS = 30 * 1000, /* a patch that has not shown by then is sent again */
    TICK_MS = 1000,
};

struct alloc *alloc_new(const struct alloc_settings *settings)
{
    struct alloc *a = xcalloc(1, sizeof *a);
    a->settings = *settings;
    a->node = xstrdup(settings->node);
    a->settings.node = a->node;
    a->era = 1;
    a->settings.response.unit_mib = settings->unit_mib;
    cards_init(&a->cards, settings->unit_mib, settings->well_ms, settings->hold_ms);
    return a;
}

static void free_pupil(struct pupil *p)
{
    plan_free(p->plan);
    free(p);
}

void alloc_free(struct alloc *a)
{
    if (!a)
        return;
    for (struct pupil *p = a->pupils, *next; p; p = next) {
        next = p->next;
        free_pupil(p);
    }
    for (struct ask *ask = a->asks, *next; ask; ask = next) {
        next = ask->next;
        ask_free(ask);
    }
    who_forget_strangers(a);
    grants_fini(&a->grants);
    free(a->node);
    free(a);
}

void alloc_adopt(struct alloc *a, struct grants *from)
{
    for (size_t i = 0; i < from->n; i++) {
        struct grant *g = from->items[i];
        if (grants_find(&a->grants, g->uid, g->container, g->resource))
            grant_free(g);
        else
            grants_put(&a->grants, g);
    }
    from->n = 0;
    grants_fini(from);
}

void alloc_cgpu_disable(struct alloc *a, bool on)
{
    a->settings.response.cgpu_disable = on;
}

void alloc_hurry(struct alloc *a, int64_t at_ms)
{
    if (at_ms < a->due_ms)
        a->due_ms = at_ms;
}

bool read_unit(const struct alloc *a, enum ids_resource r, struct span text,
               struct unit *unit)
{
    struct ids_id id;
    if (!ids_read(text, &id) || (id.unit < 0) != (r == IDS_COUNT))
        return false;
    *unit = (struct unit){cards_by_tag(&a->cards, &id.tag), id.unit};
    return unit->card && id.unit < unit->card->most_units;
}

/* Cards */

static void note_cards(const struct alloc *a, struct alloc_outputs *out)
{
    for (size_t i = 0; i < a->cards.n; i++) {
        const struct plugin_card *c = &a->cards.items[i];
        out_note(out, c->healthy ? LOG_INFO : LOG_WARN, "card %s%s%s: %lld units%s%s",
                 out_card(out, c), c->model[0] ? ", " : "", c->model, (long long)c->units,
                 c->healthy ? "" : ", out: ", c->why);
    }
}

bool alloc_cards(struct alloc *a, struct alloc_time now, const struct card_seen *seen,
                 size_t n, const char *failed, struct alloc_outputs *out)
{
    struct err err = {0};
    bool changed = failed ? cards_unseen(&a->cards, now.mono_ms, failed)
                          : cards_seen(&a->cards, now.mono_ms, seen, n, &err);
    if (err.code != ERR_NONE && changed)
        out_note(out, LOG_ERROR, "%s", err.msg);
    if (changed)
        note_cards(a, out);
    return changed;
}

bool alloc_card_struck(struct alloc *a, struct alloc_time now, struct span uuid,
                       const char *what, struct alloc_outputs *out)
{
    bool changed = cards_struck(&a->cards, now.mono_ms, uuid, what);
    if (changed)
        note_cards(a, out);
    return changed;
}

/* Pods */

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
    out_patch(out, p->plan, "{\"" KEY_MEM_ASSIGNED "\":\"true\"}");
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
    out_patch(out, plan, b.p);
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
    out_save(a, out);
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
    free_pupil(gone);
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
    out_save(a, out);
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
    out_save(a, out);
    ask_retry_all(a, now, out);
    alloc_hurry(a, now.mono_ms);
}

void alloc_kubelet_started(struct alloc *a, struct alloc_time now,
                           struct alloc_outputs *out)
{
    a->era++;
    a->offer.valid = false;
    a->no_get = false;
    who_forget_strangers(a);
    for (struct pupil *p = a->pupils; p; p = p->next)
        p->audited_ms = 0;
    alloc_hurry(a, now.mono_ms);
    (void)out;
}

/* The kubelet shows */

void alloc_shown(struct alloc *a, struct alloc_time now, const struct alloc_shown *shown,
                 struct alloc_outputs *out)
{
    for (struct ask *ask = a->asks; ask; ask = ask->next)
        if (ask->query == shown->query && ask->state == ASK_LOOKING) {
            ask_shown(a, now, ask, shown, out);
            return;
        }
    if (shown->query == a->audit_query)
        audit_answer(a, now, shown, out);
    out_save(a, out);
}

/* Time */

void alloc_tick(struct alloc *a, struct alloc_time now, struct alloc_outputs *out)
{
    a->due_ms = now.mono_ms + TICK_MS;
    ask_tick(a, now, out);
    for (struct pupil *p = a->pupils; p; p = p->next)
        pupil_mark(a, now, p, out);
    audit_tick(a, now, out);
    out_save(a, out);
}

int64_t alloc_due(const struct alloc *a)
{
    return a->due_ms;
}

const struct cards *alloc_cards_of(const struct alloc *a)
{
    return &a->cards;
}

const struct grants *alloc_grants(const struct alloc *a)
{
    return &a->grants;
}

bool alloc_listed(const struct alloc *a)
{
    return a->listed;
}

const struct alloc_stats *alloc_stats(const struct alloc *a)
{
    return &a->stats;
}
