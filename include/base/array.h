/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <string.h>

#include "base/mem.h"

/*
 * Arrays: visit; sorted ones: search, insert, remove. The macros take the array, its length
 * and its capacity as the caller has them, and evaluate each argument once or more.
 */

/* Visits the n items, in order. The body must neither move the items nor change n.
 *
 *     ARRAY_EACH_ITEM(const struct card, card, node->cards, node->n_cards)
 */
#define ARRAY_EACH_ITEM(type, item, items, n)                                            \
    for (type *item = (items), *item##_end = (n) ? item + (n) : item; item < item##_end; \
         item++)

/* The index of the first of n items for which `is_less`, an expression in terms of the
 * pointer `item`, is false; n: true for all. The items are sorted so that those with true
 * come first.
 *
 *     size_t at = ARRAY_LOWER_BOUND(u, card->units, card->n_units, *u < unit);
 */
#define ARRAY_LOWER_BOUND(item, items, n, is_less)                                       \
    __extension__({                                                                      \
        size_t array_low_ = 0, array_high_ = (n);                                        \
        while (array_low_ < array_high_) {                                               \
            size_t array_mid_ = array_low_ + (array_high_ - array_low_) / 2;             \
            const __typeof__(*(items)) *item = &(items)[array_mid_];                     \
            if (is_less)                                                                 \
                array_low_ = array_mid_ + 1;                                             \
            else                                                                         \
                array_high_ = array_mid_;                                                \
        }                                                                                \
        array_low_;                                                                      \
    })

/* Makes a gap at index `at`, 0 to n, and increments n. Returns a pointer to the new item,
 * which is uninitialized. Pointers to items become invalid. */
#define ARRAY_INSERT(items, n, cap, at)                                                  \
    __extension__({                                                                      \
        size_t array_at_ = (at);                                                         \
        MEM_GROW(items, cap, (n) + 1);                                                   \
        memmove((items) + array_at_ + 1, (items) + array_at_,                            \
                ((n)-array_at_) * sizeof *(items));                                      \
        (n)++;                                                                           \
        &(items)[array_at_];                                                             \
    })

/* Removes the item at index `at` and decrements n. The order stays. */
#define ARRAY_REMOVE(items, n, at)                                                       \
    do {                                                                                 \
        size_t array_at_ = (at);                                                         \
        (n)--;                                                                           \
        memmove((items) + array_at_, (items) + array_at_ + 1,                            \
                ((n)-array_at_) * sizeof *(items));                                      \
    } while (0)
