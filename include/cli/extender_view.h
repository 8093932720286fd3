/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "kube/client.h"

/*
 * Fetches the extender's view of its ledger, GET /gpushare-scheduler/inspect. `address`
 * is
 *
 *     http://HOST:PORT          or https://
 *     NAMESPACE/SERVICE:PORT    a Service, through the API server's proxy
 *
 * The API server removes the Authorization header of a request that it proxies and has no
 * client certificate for a Service. So an extender with HTTPS, which wants credentials,
 * is read by its URL.
 */

struct extender_view {
    const char *address;
    const char *token_file; /* bearer token, for https; or NULL */
    const char *ca_file;    /* PEM, for https; NULL: the system's CAs */
};

/* New. NULL: the call failed, or the response is not JSON. */
json_t *extender_view_get(struct kube_client *client, const struct extender_view *from,
                          int64_t timeout_ms, struct err *err);
/* -1: the address has neither form, or there is a token for plain HTTP. */
int extender_view_check(const struct extender_view *from, struct err *err);
