/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/call_priv.h"
#include "kube-sim/select_priv.h"

/* GET of a collection. */
void sim_list_handle(struct call *c);

/* Parses the selectors of the query. -1: the request has been refused. */
int sim_list_selector(struct call *c, struct selector *s);

/* The objects that match `s` at version rv, shared: the initial events of a watch. */
struct object **sim_list_collect(struct store *store, const struct selector *s,
                                 uint64_t rv, size_t *n);