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

struct kubelet *kubelet_start(const struct kubelet_settings *settings); /* new */
/* Sets the receiver of the answers (borrowed), before the first call. */
void kubelet_set_dispatcher(struct kubelet *k, struct dispatcher *dispatcher);
/* For struct dispatcher_callbacks. */
void kubelet_query_pods(struct kubelet *k, uint64_t query, const char *ns,
                        const char *name);
void kubelet_register(struct kubelet *k, enum ids_resource r, const char *endpoint);
/* Joins the threads. False: a call is still in flight at `until_ms` (clock_mono_ms), and
 * nothing may be freed. NULL is accepted. */
bool kubelet_stop(struct kubelet *k, int64_t until_ms);
void kubelet_free(struct kubelet *k); /* NULL is accepted */
