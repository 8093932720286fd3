/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/call_priv.h"

/* Discovery and health: /api, /apis, /version, /healthz, /openapi. False: the path is none
 * of these. */
bool sim_discovery_handle(struct call *c);
