/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "kube/client.h"

/*
 * Fetches the extender's view of its ledger, GET /gpushare-scheduler/inspect. `address`
 * is
 *
 *     http://HOST:PORT          or https://, with a certificate that the system trusts
 *     NAMESPACE/SERVICE:PORT    a Service, through the API server's proxy
 */

/* New. NULL: the call failed, or the response is not JSON. */
json_t *extender_view_get(struct kube_client *client, const char *address,
                          int64_t timeout_ms, struct err *err);
/* -1: `address` has neither form. */
int extender_view_check_address(const char *address, struct err *err);
