/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "kube/client.h"

/*
 * The extender, asked for its view of the ledger. `where` is
 *
 *     http://HOST:PORT          there, or https:// by an authority that the system knows
 *     NAMESPACE/SERVICE:PORT    a Service, through the API server
 */

/* The view. New; NULL: it cannot be reached, or what it says is no JSON. */
json_t *extender_view_get(struct kube_client *client, const char *where, int64_t timeout_ms,
                      struct err *err);
/* Can `where` be meant? */
int extender_view_check_address(const char *where, struct err *err);
