/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "node/alloc_state.h"

/*
 * Which device ids may a container hold? Those of the cards of its promise that no other
 * container holds. An id that a container holds is never given to another one, and neither
 * is a card that is held through the other resource.
 */

/* False: the id belongs to no card of this node. */
bool device_ids_read(const struct alloc_state *s, enum ids_resource r, struct span text,
                     struct device_id *id);
/* As the kubelet has it; lives as long as the outputs of the step. */
const char *device_ids_text(struct alloc_state *s, const struct device_id *id);

/* Each returns false with the rejection. */

/* Has the container a promise, and can its cards be used? A pod without a promise gets
 * untouched cards if that is allowed: the smallest that fit, so that large ones stay free. */
bool device_ids_check_promise(struct alloc_state *s, const struct alloc_target *t,
                              struct rejection *r);
/* May the container hold these ids? Sorts them. */
bool device_ids_check(struct alloc_state *s, const struct alloc_target *t,
                      struct device_id *ids, size_t n, struct rejection *r);
/* Reduces the ids that the kubelet offers to those for the container: the ones that must be
 * included, and then, for each card of the promise, the lowest ones that are still missing and
 * that nobody holds. */
bool device_ids_select(struct alloc_state *s, const struct alloc_target *t,
                       struct kubelet_request *req);

/* How many ids of the card the container may hold. */
size_t device_ids_limit(const struct alloc_state *s, const struct alloc_target *t,
                        const struct plugin_card *card);
/* The allocation that conflicts with giving the id to the container; NULL: none. */
const struct allocation *device_ids_holder(const struct alloc_state *s,
                                           const struct alloc_target *t,
                                           const struct device_id *id);
