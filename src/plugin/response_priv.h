/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "plugin/response.h"

/* The isolation of the pod's containers. A pod that asks for less than the node gives, for
 * MPS where no daemon runs, or for a word that is none, gets the node's; r->not_isolated
 * says so. Sets r->preload for ISOLATION_LIMIT. */
enum isolation response_isolation(const struct response_settings *settings,
                                  const struct pod_allocation *pod, struct response *r,
                                  struct arena *a);
/* What keeps the library from this container of the pod; NULL: nothing that is known. */
const char *response_limit_evaded(const struct pod_allocation *pod,
                                  const struct allocation *al, const struct response *r,
                                  struct arena *a);
/* Adds the library and the pod's limits: for each card the units of its containers as
 * Kubernetes adds them up, because they share the files. */
void response_limit(const struct response_settings *settings, const struct cards *cards,
                    const struct pod_allocation *pod, struct response *r,
                    struct arena *a);
