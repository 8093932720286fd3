/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "plugin/dispatcher.h"

/*
 * Calls to the kubelet, each in a thread that may wait for it: podresources List and Get,
 * and Register.
 */

struct kubelet_settings {
    const char *podresources; /* path of the socket; borrowed, as the next */
    const char *registration;
};

struct kubelet;

struct kubelet *kubelet_start(const struct kubelet_settings *settings); /* new */
/* Answers go to this dispatcher, which is borrowed. Before anything is asked. */
void kubelet_set_dispatcher(struct kubelet *k, struct dispatcher *dispatcher);
/* As struct dispatcher_callbacks wants it; `k` is the context. */
void kubelet_query_pods(struct kubelet *k, uint64_t query, const char *ns,
                        const char *name);
void kubelet_register(struct kubelet *k, enum ids_resource r, const char *endpoint);
void kubelet_stop(struct kubelet *k); /* joins the threads; NULL is accepted */
void kubelet_free(struct kubelet *k); /* NULL is accepted */
