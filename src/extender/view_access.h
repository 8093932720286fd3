/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/view_auth.h"
#include "wire/httpd.h"

/*
 * Who may call a route of a view. A request is allowed with a certificate that is trusted
 * for it, or with a bearer token (RFC 6750) whose user the API server allows
 *
 *     get /metrics, get /inspect, get / (the page), get /apis/...  (nonResourceURLs)
 *     list or watch gpunodes, gpupods of group nvidia-gpu-scheduler
 *
 * The latter are the rights that the API server itself requires when it proxies these
 * routes. /inspect/NODE is covered by /inspect, and the page's files by "/".
 */

/* What the client's certificate proves. */
enum view_access_trust {
    VIEW_ACCESS_NONE,
    VIEW_ACCESS_FRONT, /* the front proxy, which names the user in X-Remote-User */
    VIEW_ACCESS_ALL,   /* may see everything */
};

/* For httpd_listener_config.authorize. False: `reply` holds the rejection, or the request
 * waits. `auth` NULL: everyone may see everything. */
bool view_access_allows(struct view_auth *auth, enum view_access_trust trust,
                        const struct httpd_request *req, struct httpd_reply *reply);
/* What an allowed request may see; to be released with view_auth_grant_fini. */
struct view_auth_grant view_access_grant(struct view_auth *auth,
                                         enum view_access_trust trust,
                                         const struct httpd_request *req);
