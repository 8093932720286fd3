/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "plugin/dispatcher.h"

/*
 * gRPC calls to the kubelet: podresources List and Get in one thread, Register in
 * another.
 */

struct kubelet_settings {
    const char *podresources; /* path of the socket; borrowed, as the next */
    const char *registration;
};

struct kubelet;

/* New. `dispatcher` is borrowed; it gets the answers. */
struct kubelet *kubelet_start(const struct kubelet_settings *settings,
                              struct dispatcher *dispatcher);
/* Carries out ALLOC_LIST or ALLOC_GET. */
void kubelet_query(struct kubelet *k, const struct alloc_output *o);
void kubelet_register(struct kubelet *k, enum ids_resource r, const char *endpoint);
/* Joins the threads. False: a call is still in flight at `until_ms` (clock_mono_ms), and
 * nothing may be freed. NULL is accepted. */
bool kubelet_stop(struct kubelet *k, int64_t until_ms);
void kubelet_free(struct kubelet *k); /* NULL is accepted */
