/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/call_priv.h"

/* The paths that tell clients what there is: /api, /apis, /version, /healthz, /openapi.
 * False when the path is none of them. */
bool sim_discovery_handle(struct call *c);
