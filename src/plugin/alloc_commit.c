/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "plugin/alloc_priv.h"

/* If the kubelet lost its checkpoint it admits the pod's containers again from the first:
 * allocations of this container and later ones are void. */
static void drop_later(struct alloc *a, const struct alloc_target *t)
{
    const struct pod_allocation *pod = t->local->pod;
    for (size_t i = t->container; i < pod->n_containers; i++) {
        const struct pod_allocation_container *c = &pod->containers[i];
        struct allocation *al =
            allocation_set_find(&a->allocations, pod->uid, c->name, c->resource);
        if (al)
            allocation_set_drop(&a->allocations, al);
    }
}

/* The container sees its cards in the order of the promise. */
static struct allocation *new_allocation(const struct alloc *a, struct alloc_time now,
                                         const struct pending_request *req,
                                         const struct alloc_target *t)
{
    const struct pod_allocation *pod = t->local->pod;
    const struct pod_allocation_container *c = &pod->containers[t->container];
    struct allocation *al =
        allocation_new(pod->uid, pod->ns, pod->name, c->name, c->role, c->resource);
    al->time_ns = now.wall_ns;
    for (size_t k = 0; k <= c->n_shares; k++) {
        const struct plugin_card *card =
            k < c->n_shares ? alloc_select_card(a, &c->shares[k]) : NULL;
        for (size_t i = 0; i < req->n_ids; i++) {
            const struct device_id *u = &req->ids[i];
            if (!card || u->card == card)
                allocation_add(al, span_of(u->card->uuid), u->card->index, u->number);
        }
    }
    return al;
}

static void report_env_override(struct alloc *a, const struct alloc_target *t,
                                struct alloc_outputs *out)
{
    const struct pod_allocation_container *c = &t->local->pod->containers[t->container];
    if (!c->own_devices || t->local->env_override_reported ||
        a->settings.response.strategy > DRIVER_ENVVAR)
        return;
    t->local->env_override_reported = true;
    alloc_output_event(
        out, t->local->pod, "GPUEnvOverridden",
        alloc_output_printf(out,
                            "container %.*s sets NVIDIA_VISIBLE_DEVICES itself, which "
                            "overrides the card allocated to it",
                            SPAN_ARG(c->name)));
}

enum verdict alloc_commit(struct alloc *a, struct alloc_time now,
                          struct pending_request *req, const struct alloc_target *t,
                          struct alloc_outputs *out)
{
    struct local_pod *p = t->local;
    struct err err;
    struct allocation *al = new_allocation(a, now, req, t);
    const struct response *r =
        response_of(&a->settings.response, &a->cards, p->pod, al, &out->arena, &err);
    if (!r) {
        allocation_free(al);
        return alloc_request_explain(
            req, VERDICT_NO,
            err.code == ERR_UNAVAILABLE ? REJECTED_NO_CDI_NAME : REJECTED_UNHEALTHY_CARD,
            "%s", err.msg);
    }
    drop_later(a, t);
    allocation_set_put(&a->allocations, al);
    a->dirty = true;
    a->stats.allocated[req->resource]++;
    alloc_output_save(a, out);
    struct alloc_output *o = alloc_output_of_pod(out, ALLOC_ALLOCATED, p->pod);
    o->token = req->token;
    o->response = r;
    alloc_output_log(out, LOG_INFO, "pod %.*s/%.*s: container %.*s got %lld %s of %s%s",
                     SPAN_ARG(p->pod->ns), SPAN_ARG(p->pod->name),
                     SPAN_ARG(al->container), (long long)req->size,
                     ids_resource_name(req->resource), al->cards[0].uuid.p,
                     al->n_cards > 1 ? " and others" : "");
    report_env_override(a, t, out);
    if (r->not_isolated && !p->isolation_reported)
        alloc_output_event(out, p->pod, "GPUIsolationFailed", r->not_isolated);
    p->isolation_reported |= r->not_isolated != NULL;
    a->stats.not_isolated += r->not_isolated != NULL;
    alloc_pod_annotate_assigned(a, now, p, out);
    alloc_pod_mark_assigned(a, now, p, out);
    return VERDICT_YES;
}
