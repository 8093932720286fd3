/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/api_priv.h"

/* Who would be running on the nodes of a real cluster, played as far as it shows in the
 * API: the kubelet (bound pods run) and scv-agent (its Leases are renewed). */

/* Starts the pod, if it is bound and has not been started. */
void sim_agents_run(struct api *api, const struct object *o, int64_t now_ms);
/* Renews as many of the heartbeat Leases as the time that has passed demands. */
void sim_agents_renew(struct api *api, int64_t now_ms);
