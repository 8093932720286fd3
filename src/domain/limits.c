/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/limits.h"

#include "base/mutant.h"
#include "domain/quantity.h"

/* One resource, added up over the containers of a pod. */
struct sum {
    int64_t running;  /* app containers and sidecars */
    int64_t peak;     /* maximum of the init phase */
    int64_t sidecars; /* sidecars that have started so far */
};

static int64_t add(int64_t a, int64_t b)
{
    int64_t sum = a + b; /* both are at most LIMITS_MAX */
    return sum < LIMITS_MAX ? sum : LIMITS_MAX;
}

static int64_t amount(struct span limit)
{
    int64_t value = limit.p ? quantity_ceil(limit) : 0;
    return value < LIMITS_MAX ? value : LIMITS_MAX;
}

/* Sidecars and init containers come in the order in which they start. App containers do
 * not change the peak, so their position does not matter. */
static void sum_add(struct sum *sum, enum container_role role, int64_t n)
{
    int64_t init = add(sum->sidecars, n);
    if (role != CONTAINER_APP && init > sum->peak)
        sum->peak = init;
    if (role == CONTAINER_SIDECAR)
        sum->sidecars = init;
    if (role != CONTAINER_INIT)
        sum->running = add(sum->running, n);
}

static int64_t sum_total(const struct sum *sum)
{
    return sum->running > sum->peak || MUTANT(init_containers_forgotten) ? sum->running
                                                                         : sum->peak;
}

struct limits limits_of(const struct pod *pod)
{
    struct sum mem = {0}, cards = {0}, devices = {0}, core = {0};
    bool mem_in_init = false;
    for (size_t i = 0; i < pod->n_containers; i++) {
        const struct pod_container *c = &pod->containers[i];
        sum_add(&mem, c->role, amount(c->mem));
        sum_add(&cards, c->role, amount(c->cards));
        sum_add(&devices, c->role, amount(c->devices));
        sum_add(&core, c->role, amount(c->core));
        mem_in_init |= c->role == CONTAINER_INIT && amount(c->mem) > 0;
    }
    return (struct limits){sum_total(&mem), sum_total(&cards), sum_total(&devices),
                           sum_total(&core), mem_in_init};
}
