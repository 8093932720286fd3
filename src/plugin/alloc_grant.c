/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "plugin/alloc_priv.h"

/* What the kubelet has forgotten of the pod is void; see who_lacks. */
static void forget_later(struct alloc *a, const struct found *f)
{
    const struct plan *plan = f->pupil->plan;
    for (size_t i = f->container; i < plan->n_containers; i++) {
        const struct plan_container *c = &plan->containers[i];
        struct grant *g = grants_find(&a->grants, plan->uid, c->name, c->resource);
        if (g)
            grants_drop(&a->grants, g);
    }
}

/* Cards in the order of the promise, so that the container sees them in that order. */
static struct grant *grant_of(const struct alloc *a, struct alloc_time now,
                              const struct ask *ask, const struct found *f)
{
    const struct plan *plan = f->pupil->plan;
    const struct plan_container *c = &plan->containers[f->container];
    struct grant *g =
        grant_new(plan->uid, plan->ns, plan->name, c->name, c->role, c->resource);
    g->time_ns = now.wall_ns;
    for (size_t k = 0; k <= c->n_shares; k++) {
        const struct plugin_card *card =
            k < c->n_shares ? pick_card(a, &c->shares[k]) : NULL;
        for (size_t i = 0; i < ask->n_ids; i++) {
            const struct unit *u = &ask->ids[i];
            if (!card || u->card == card)
                grant_add(g, span_of(u->card->uuid), u->card->index, u->number);
        }
    }
    return g;
}

static void tell_own_env(struct alloc *a, const struct found *f,
                         struct alloc_outputs *out)
{
    const struct plan_container *c = &f->pupil->plan->containers[f->container];
    if (!c->own_devices || f->pupil->own_env_told ||
        a->settings.response.strategy != RESPONSE_ENVVAR)
        return;
    f->pupil->own_env_told = true;
    alloc_out_event(
        out, f->pupil->plan, "GPUEnvOverridden",
        alloc_out_printf(out,
                         "container %.*s sets NVIDIA_VISIBLE_DEVICES itself, which "
                         "takes the place of the card that it was given",
                         SPAN_ARG(c->name)));
}

void grant_ask(struct alloc *a, struct alloc_time now, struct ask *ask,
               const struct found *f, struct alloc_outputs *out)
{
    struct pupil *p = f->pupil;
    forget_later(a, f);
    struct grant *g = grant_of(a, now, ask, f);
    grants_put(&a->grants, g);
    a->dirty = true;
    a->stats.granted[ask->resource]++;
    alloc_out_save(a, out);
    const struct response *r =
        response_of(&a->settings.response, &a->cards, p->plan, g, &out->arena);
    struct alloc_output *o = alloc_out_add(out, ALLOC_GRANTED);
    o->token = ask->token;
    o->response = r;
    alloc_out_note(out, LOG_INFO, "%.*s/%.*s, container %.*s: %lld %s of %s%s",
                   SPAN_ARG(p->plan->ns), SPAN_ARG(p->plan->name), SPAN_ARG(g->container),
                   (long long)ask->size, ids_resource_name(ask->resource),
                   g->cards[0].uuid.p, g->n_cards > 1 ? " and others" : "");
    tell_own_env(a, f, out);
    pupil_write_given(a, now, p, out);
    pupil_mark(a, now, p, out);
}
