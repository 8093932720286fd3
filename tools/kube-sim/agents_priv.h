/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/api_priv.h"

/* The programs of a real node, as far as the API shows them: the kubelet, which runs bound
 * pods, and scv-agent, which renews its Leases. */

/* Sets a bound pod that has not started to Running. */
void sim_agents_run(struct api *api, const struct object *o, int64_t now_ms);
/* Renews the heartbeat Leases that are due since the last call. */
void sim_agents_renew(struct api *api, int64_t now_ms);
