/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * A limit on the bytes that any number of threads take together. It counts; it does not
 * allocate. NULL is accepted as a budget without a limit.
 */

struct budget {
    _Atomic uint64_t used;
    uint64_t max; /* set before the first use */
};

/* Takes n bytes. False, without effect: they would exceed the limit. */
bool budget_take(struct budget *b, uint64_t n);
/* Gives back n bytes that were taken. */
void budget_give(struct budget *b, uint64_t n);
/* Changes the bytes that a caller has taken, *taken, to n. False, without effect: they
 * would exceed the limit. */
bool budget_change(struct budget *b, uint64_t *taken, uint64_t n);
