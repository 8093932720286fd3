/* SPDX-License-Identifier: Apache-2.0 */
#include "base/budget.h"

bool budget_take(struct budget *b, uint64_t n)
{
    if (!b || !n)
        return true;
    if (n > b->max)
        return false;
    if (atomic_fetch_add(&b->used, n) <= b->max - n)
        return true;
    atomic_fetch_sub(&b->used, n);
    return false;
}

void budget_give(struct budget *b, uint64_t n)
{
    if (b && n)
        atomic_fetch_sub(&b->used, n);
}

bool budget_change(struct budget *b, uint64_t *taken, uint64_t n)
{
    if (n > *taken && !budget_take(b, n - *taken))
        return false;
    if (n < *taken)
        budget_give(b, *taken - n);
    *taken = n;
    return true;
}
