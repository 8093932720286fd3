/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"
#include "kube-sim/object_priv.h"

/*
 * The selection of a list or watch: namespace, label selector, field selector.
 */

struct selector_term;

struct selector {
    char *text; /* the selectors' text; the terms point into it */
    struct selector_term *terms;
    size_t n, cap;
    struct span ns; /* {NULL, 0}: every namespace; borrowed from text */
};

/* Spans may be {NULL, 0}. Returns -1 with ERR_INVALID if a selector is malformed or names
 * a field that is not selectable for the kind. */
int sim_selector_init(struct selector *s, const struct kind *kind, struct span ns,
                      struct span labels, struct span fields, struct err *err);
void sim_selector_fini(struct selector *s);
bool sim_selector_match(const struct selector *s, const struct object *o);
