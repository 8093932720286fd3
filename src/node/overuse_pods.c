/* SPDX-License-Identifier: Apache-2.0 */
#include "node/overuse_priv.h"

bool overuse_has_name(const struct usage_container *c)
{
    return c->ns.n && c->pod.n && c->name.n;
}

int64_t overuse_promise(const struct usage_container *c)
{
    return c->promised_mib > 0 ? c->promised_mib : 0;
}

static bool same_pod(const struct usage_container *a, const struct usage_container *b)
{
    return span_eq(a->pod, b->pod) && span_eq(a->ns, b->ns);
}

/* A container that restarts can be listed twice; its promise counts once. The containers
 * of a pod on a card are neighbors. */
static bool is_first_of_its_name(const struct usage *u, size_t i)
{
    const struct usage_container *all = u->containers;
    for (size_t k = i;
         k-- > 0 && all[k].card == all[i].card && same_pod(&all[k], &all[i]);)
        if (span_eq(all[k].name, all[i].name))
            return false;
    return true;
}

/* Whether all of the card was promised, or its size is not known. */
static bool is_whole(const struct usage *u, const struct usage_container *c)
{
    int64_t total_mib = u->cards[c->card].total_mib;
    return total_mib < 0 || (c->promised_mib > 0 && c->promised_mib >= total_mib);
}

/* -- init containers -- */

/* Is the init container of the pod of `c`? A container without a process has no UID. */
static bool is_of_pod(const struct usage_init *init, const struct usage_container *c)
{
    return span_eq(init->pod, c->pod) && span_eq(init->ns, c->ns) &&
           (!c->pod_uid.n || span_eq(init->pod_uid, c->pod_uid));
}

/* What the pod is promised on the card of `c` while its init containers run, at most; -1:
 * not known. Sets *any if it has a promise for one of them. */
static int64_t init_promise(const struct usage *u, const struct usage_container *c,
                            bool *any)
{
    int64_t most = 0;
    for (size_t i = 0; i < u->n_inits; i++) {
        const struct usage_init *init = &u->inits[i];
        if (!is_of_pod(init, c))
            continue;
        *any = true;
        if (init->card != c->card)
            continue;
        if (init->mib < 0 || init->beside_mib < 0)
            return -1;
        if (init->mib + init->beside_mib > most)
            most = init->mib + init->beside_mib;
    }
    return most;
}

/* -- pods -- */

bool overuse_pod_is_over(const struct usage *u, size_t container, int64_t tolerance_mib)
{
    const struct usage_container *c = &u->containers[container];
    int64_t used = 0, promised = 0;
    bool any_promise = false;
    int64_t inits = init_promise(u, c, &any_promise);
    for (size_t k = 0; k < u->n_containers; k++) {
        const struct usage_container *o = &u->containers[k];
        if (!same_pod(o, c))
            continue;
        if (is_whole(u, o))
            return false;
        any_promise |= o->promised_mib >= 0;
        if (o->card != c->card)
            continue;
        if (o->used_mib < 0 || o->promise_unclear)
            return false;
        if (span_eq(o->pod_uid, c->pod_uid))
            used += o->used_mib;
        if (!o->init && is_first_of_its_name(u, k))
            promised += overuse_promise(o);
    }
    if (inits > promised)
        promised = inits;
    return any_promise && inits >= 0 && used - promised > tolerance_mib;
}

int64_t overuse_pod_uses(const struct usage *u, const struct usage_container *c)
{
    int64_t used = 0;
    for (size_t i = 0; i < u->n_containers; i++)
        if (u->containers[i].card == c->card &&
            span_eq(u->containers[i].pod_uid, c->pod_uid) &&
            u->containers[i].used_mib > 0)
            used += u->containers[i].used_mib;
    return used;
}

/* What the pod of the containers from *i on does not use of its promise on the card; sets
 * *i to the container after them. */
static int64_t unused_of(const struct usage *u, size_t *i)
{
    const struct usage_container *c = &u->containers[*i];
    bool any = false;
    int64_t promised = 0, used = 0, inits = init_promise(u, c, &any);
    for (; *i < u->n_containers && u->containers[*i].card == c->card &&
           same_pod(&u->containers[*i], c);
         ++*i) {
        used += u->containers[*i].used_mib;
        if (!u->containers[*i].init && is_first_of_its_name(u, *i))
            promised += overuse_promise(&u->containers[*i]);
    }
    return (inits > promised ? inits : promised) - used;
}

/* A container without a name may be one that a promise was made to, which then uses more
 * of it than it seems to. */
int64_t overuse_lacking(const struct usage *u, size_t card)
{
    int64_t unused = 0;
    for (size_t i = 0; i < u->n_containers; i++)
        if (u->containers[i].card == card && u->containers[i].used_mib < 0)
            return INT64_MIN;
    for (size_t i = 0; i < u->n_containers;) {
        const struct usage_container *c = &u->containers[i];
        int64_t left = unused_of(u, &i);
        if (c->card == card && (left > 0 || !overuse_has_name(c)))
            unused += left;
    }
    return u->cards[card].free_mib < 0 ? INT64_MIN : unused - u->cards[card].free_mib;
}
