/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/alloc_priv.h"

#include <stdlib.h>

#include "base/mem.h"

/* A card goes by its UUID, and by its index only where it has none. */
const struct plugin_card *pick_card(const struct alloc *a, const struct plan_share *s)
{
    return s->uuid.n ? cards_by_uuid(&a->cards, s->uuid)
                     : cards_by_index(&a->cards, s->index);
}

static const struct plan_container *container_of(const struct found *f)
{
    return &f->pupil->plan->containers[f->container];
}

static bool plan_has_card(const struct alloc *a, const struct plan *plan,
                          const struct plugin_card *card)
{
    for (size_t i = 0; i < plan->n_cards; i++)
        if (pick_card(a, &plan->cards[i]) == card)
            return true;
    return false;
}

/* Which containers of the pod come at or after the one that is being handed out? If the
 * kubelet had forgotten them, what they were granted is void. */
static bool comes_later(const struct found *f, const struct grant *g)
{
    const struct plan *plan = f->pupil->plan;
    for (size_t i = f->container; i < plan->n_containers; i++)
        if (span_eq(plan->containers[i].name, g->container) &&
            plan->containers[i].resource == g->resource)
            return true;
    return false;
}

/* Does the grant leave the unit to the container? Its own and those of its pod's plain
 * init containers, which have ended, do. */
static bool leaves(const struct found *f, const struct grant *g)
{
    return span_eq(g->uid, f->pupil->plan->uid) &&
           (g->role == CONTAINER_INIT || comes_later(f, g));
}

const struct grant *pick_holder(const struct alloc *a, const struct found *f,
                                const struct unit *unit)
{
    bool whole = container_of(f)->resource == IDS_COUNT;
    struct span uuid = span_of(unit->card->uuid);
    for (size_t i = 0; i < a->grants.n; i++) {
        const struct grant *g = a->grants.items[i];
        bool whole_card = whole || g->resource == IDS_COUNT;
        if (grant_holds(g, uuid, whole_card ? -1 : unit->number) && !leaves(f, g))
            return g;
    }
    return NULL;
}

/* Another pod that may use the card although no id of ours says so: one of the Go
 * plugin's, or one whose ids are not known (any more). */
static const struct pupil *silent_user(const struct alloc *a, const struct found *f,
                                       const struct plugin_card *card)
{
    bool whole = container_of(f)->resource == IDS_COUNT;
    for (const struct pupil *p = a->pupils; p; p = p->next) {
        const struct plan *plan = p->plan;
        if (p != f->pupil && !plan->over && plan->started &&
            (whole || plan->request.kind == REQUEST_CARDS) &&
            plan_has_card(a, plan, card))
            return p;
    }
    return NULL;
}

static const char *pod_name(struct ask *ask, const struct plan *plan)
{
    cleanup_buf struct buf b = {0};
    buf_printf(&b, "%.*s/%.*s", SPAN_ARG(plan->ns), SPAN_ARG(plan->name));
    return arena_copy(&ask->arena, buf_span(&b)).p;
}

static enum verdict say_held(struct ask *ask, const struct unit *unit,
                             const struct grant *g)
{
    cleanup_buf struct buf id = {0};
    alloc_out_id(&id, unit);
    return ask_say(ask, VERDICT_WAIT, REFUSED_HELD,
                   "%s of card %s is held by container %.*s of pod %.*s/%.*s%s", id.p,
                   unit->card->uuid, SPAN_ARG(g->container), SPAN_ARG(g->ns),
                   SPAN_ARG(g->name),
                   g->resource == ask->resource ? "" : ", through the other resource");
}

/* Cards on which nothing is promised and nothing held, for a pod that nobody scheduled.
 * The smallest that fit, so that the large ones stay free. */
static bool is_untouched(const struct alloc *a, const struct plugin_card *card)
{
    for (const struct pupil *p = a->pupils; p; p = p->next)
        if (!p->plan->over && plan_has_card(a, p->plan, card))
            return false;
    for (size_t i = 0; i < a->grants.n; i++)
        if (grant_card(a->grants.items[i], span_of(card->uuid)))
            return false;
    return true;
}

static const struct plugin_card *smallest_untouched(const struct alloc *a, int64_t units,
                                                    const bool *taken)
{
    const struct plugin_card *best = NULL;
    for (size_t i = 0; i < a->cards.n; i++) {
        const struct plugin_card *c = &a->cards.items[i];
        if (!taken[i] && c->healthy && c->units >= units &&
            (!best || c->units < best->units) && is_untouched(a, c))
            best = c;
    }
    return best;
}

static enum verdict give_untouched(struct alloc *a, struct ask *ask, struct pupil *p)
{
    struct plan_share shares[CARDS_MAX];
    bool taken[CARDS_MAX] = {false};
    const struct request *r = &p->plan->request;
    int64_t units = r->kind == REQUEST_MEMORY ? r->units / r->cards : 0;
    for (uint32_t i = 0; i < r->cards && r->cards <= CARDS_MAX; i++) {
        const struct plugin_card *c = smallest_untouched(a, units, taken);
        if (!c)
            return ask_say(ask, VERDICT_WAIT, REFUSED_NO_PROMISE,
                           "pod %s was promised no card, and there are not %u cards "
                           "with %lld units on which nothing is promised",
                           pod_name(ask, p->plan), r->cards, (long long)units);
        taken[c - a->cards.items] = true;
        shares[i] = (struct plan_share){
            .uuid = span_of(c->uuid), .index = c->index, .units = units};
    }
    plan_give(p->plan, shares, r->cards);
    p->given = true;
    return p->plan->promise == PLAN_PROMISED
               ? VERDICT_YES
               : ask_say(ask, VERDICT_NO, REFUSED_UNMEANT, "pod %s: %.*s",
                         pod_name(ask, p->plan), SPAN_ARG(p->plan->why_not));
}

enum verdict pick_promise(struct alloc *a, struct ask *ask, const struct found *f)
{
    struct plan *plan = f->pupil->plan;
    const struct plan_container *c = container_of(f);
    enum verdict v = VERDICT_YES;
    if (plan->promise == PLAN_UNMEANT || plan->promise == PLAN_DAMAGED)
        return ask_say(ask, VERDICT_NO, REFUSED_UNMEANT, "pod %s: %.*s",
                       pod_name(ask, plan), SPAN_ARG(plan->why_not));
    if (c->own_devices && a->settings.strict_env)
        return ask_say(ask, VERDICT_NO, REFUSED_OWN_ENV,
                       "container %.*s of pod %s sets NVIDIA_VISIBLE_DEVICES itself",
                       SPAN_ARG(c->name), pod_name(ask, plan));
    if (plan->promise == PLAN_NONE && !a->settings.allow_unpromised && !plan->mirror)
        return ask_say(ask, VERDICT_WAIT, REFUSED_NO_PROMISE,
                       "pod %s was promised no card: it was not bound by the extender",
                       pod_name(ask, plan));
    if (plan->promise == PLAN_NONE)
        v = give_untouched(a, ask, f->pupil);
    for (size_t i = 0; i < c->n_shares && v == VERDICT_YES; i++) {
        const struct plugin_card *card = pick_card(a, &c->shares[i]);
        if (!card)
            return ask_say(ask, VERDICT_NO, REFUSED_CARD_OUT,
                           "pod %s was promised card %d %.*s, which is not on this node",
                           pod_name(ask, plan), c->shares[i].index,
                           SPAN_ARG(c->shares[i].uuid));
        if (!card->healthy)
            return ask_say(ask, VERDICT_NO, REFUSED_CARD_OUT,
                           "pod %s was promised card %s, which is out: %s",
                           pod_name(ask, plan), card->uuid, card->why);
        const struct pupil *user = silent_user(a, f, card);
        if (user)
            return ask_say(ask, VERDICT_WAIT, REFUSED_HELD, "card %s is used by pod %s",
                           card->uuid, pod_name(ask, user->plan));
    }
    return v;
}

/* Whole cards of a pod with plain init containers: the kubelet hands theirs on in no
 * order, so that any card of the pod will do for each of its containers. */
static bool any_order(const struct found *f)
{
    const struct plan *plan = f->pupil->plan;
    if (container_of(f)->resource != IDS_COUNT)
        return false;
    for (size_t i = 0; i < plan->n_containers; i++)
        if (plan->containers[i].role == CONTAINER_INIT)
            return true;
    return false;
}

static int by_unit(const void *pa, const void *pb)
{
    const struct unit *x = pa, *y = pb;
    if (x->card != y->card)
        return (x->card > y->card) - (x->card < y->card);
    return (x->number > y->number) - (x->number < y->number);
}

static void sort_units(struct unit *units, size_t n)
{
    if (n)
        qsort(units, n, sizeof *units, by_unit);
}

/* Of sorted ones. */
static bool is_among(const struct unit *units, size_t n, const struct unit *u)
{
    return n && bsearch(u, units, n, sizeof *units, by_unit);
}

static size_t on_card(const struct unit *units, size_t n, const struct plugin_card *card)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += units[i].card == card;
    return count;
}

/* `want` more units of the card, the lowest ones. Appends to picked; sets *holder when
 * one was left out because of it. */
static size_t take_units(const struct alloc *a, const struct ask *ask,
                         const struct found *f, const struct plugin_card *card,
                         size_t want, struct unit *picked, size_t n,
                         const struct grant **holder, struct unit *held)
{
    for (size_t i = 0; i < ask->n_ids && want > 0; i++) {
        const struct unit *u = &ask->ids[i];
        if (u->card != card || is_among(ask->must, ask->n_must, u) ||
            (i && by_unit(u - 1, u) == 0))
            continue;
        const struct grant *g = pick_holder(a, f, u);
        if (g) {
            *holder = g;
            *held = *u;
            continue;
        }
        picked[n++] = *u;
        want--;
    }
    return n;
}

static enum verdict short_of(struct ask *ask, const struct plugin_card *card,
                             size_t missing, const struct grant *holder,
                             const struct unit *held)
{
    if (holder)
        return say_held(ask, held, holder);
    return ask_say(ask, VERDICT_NO, REFUSED_SHORT,
                   "the kubelet has %zu ids of card %s too few to give", missing,
                   card->uuid);
}

/* What must be taken, and then of each share what is missing. */
enum verdict pick_ids(struct alloc *a, struct ask *ask, const struct found *f,
                      struct unit **ids, size_t *n)
{
    const struct plan_container *c = container_of(f);
    struct unit *picked =
        arena_alloc(&ask->arena, ((size_t)c->amount + ask->n_must) * sizeof *picked);
    const struct grant *holder = NULL;
    struct unit held = {0};
    *n = ask->n_must;
    *ids = picked;
    if (ask->n_must)
        memcpy(picked, ask->must, ask->n_must * sizeof *picked);
    sort_units(ask->ids, ask->n_ids);
    sort_units(ask->must, ask->n_must);
    for (size_t i = 0; i < c->n_shares && *n < (size_t)c->amount; i++) {
        const struct plugin_card *card = pick_card(a, &c->shares[i]);
        size_t there = on_card(ask->must, ask->n_must, card);
        size_t want = (size_t)c->shares[i].units, before = *n;
        want = there < want ? want - there : 0;
        if (any_order(f) && want > (size_t)c->amount - *n)
            want = (size_t)c->amount - *n;
        *n = take_units(a, ask, f, card, want, picked, *n, &holder, &held);
        if (*n - before < want)
            return short_of(ask, card, want - (*n - before), holder, &held);
    }
    struct unit *asked = ask->ids;
    size_t n_asked = ask->n_ids;
    ask->ids = picked;
    ask->n_ids = *n;
    enum verdict v = pick_check(a, ask, f);
    ask->ids = asked;
    ask->n_ids = n_asked;
    return v;
}

static enum verdict say_wrong(struct ask *ask, const struct found *f,
                              const struct unit *unit)
{
    const struct plan_container *c = container_of(f);
    cleanup_buf struct buf cards = {0}, id = {0};
    alloc_out_id(&id, unit);
    for (size_t i = 0; i < c->n_shares; i++)
        buf_printf(&cards, "%s%lld of %d%s%.*s", i ? ", " : "",
                   (long long)c->shares[i].units, c->shares[i].index,
                   c->shares[i].uuid.n ? " " : "", SPAN_ARG(c->shares[i].uuid));
    return ask_say(ask, VERDICT_NO, REFUSED_WRONG_CARD,
                   "id %s is of card %s; container %.*s of pod %s was promised %s", id.p,
                   unit->card->uuid, SPAN_ARG(c->name), pod_name(ask, f->pupil->plan),
                   cards.p ? cards.p : "nothing");
}

size_t pick_may_have(const struct alloc *a, const struct found *f,
                     const struct plugin_card *card)
{
    const struct plan_container *c = container_of(f);
    if (any_order(f) && plan_has_card(a, f->pupil->plan, card))
        return 1;
    for (size_t k = 0; k < c->n_shares; k++)
        if (pick_card(a, &c->shares[k]) == card)
            return (size_t)c->shares[k].units;
    return 0;
}

/* Ids come sorted: a card's are together. */
static enum verdict check_cards(struct alloc *a, struct ask *ask, const struct found *f)
{
    for (size_t i = 0, to; i < ask->n_ids; i = to) {
        for (to = i; to < ask->n_ids && ask->ids[to].card == ask->ids[i].card;)
            to++;
        if (to - i > pick_may_have(a, f, ask->ids[i].card))
            return say_wrong(ask, f, &ask->ids[i]);
    }
    return VERDICT_YES;
}

enum verdict pick_check(struct alloc *a, struct ask *ask, const struct found *f)
{
    const struct plan_container *c = container_of(f);
    if (ask->n_ids != (size_t)c->amount)
        return ask_say(ask, VERDICT_NO, REFUSED_WRONG_CARD,
                       "%zu ids for container %.*s of pod %s, which asks for %lld",
                       ask->n_ids, SPAN_ARG(c->name), pod_name(ask, f->pupil->plan),
                       (long long)c->amount);
    sort_units(ask->ids, ask->n_ids);
    enum verdict v = check_cards(a, ask, f);
    for (size_t i = 0; i < ask->n_ids && v == VERDICT_YES; i++) {
        if (i && by_unit(&ask->ids[i - 1], &ask->ids[i]) == 0)
            return ask_say(ask, VERDICT_NO, REFUSED_HELD, "an id comes twice");
        const struct grant *g = pick_holder(a, f, &ask->ids[i]);
        if (g)
            return say_held(ask, &ask->ids[i], g);
    }
    return v;
}
