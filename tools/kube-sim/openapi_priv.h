/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/call_priv.h"

/* /openapi/v2 and /openapi/v3: as much as kubectl needs to see that it may leave the
 * validation of fields to the server. There are no schemas. False: no such path. */
bool sim_openapi_handle(struct call *c);
