/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/call_priv.h"

/* /openapi/v2 and /openapi/v3: the minimum from which kubectl concludes that the server
 * validates fields. There are no schemas. False: no such path. */
bool sim_openapi_handle(struct call *c);
