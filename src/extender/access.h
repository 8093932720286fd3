/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/certs.h"
#include "extender/delegated_auth.h"
#include "wire/httpd.h"

/*
 * Who may call which route of the extender. The server asks before each handler.
 *
 * Routes have three classes: those that everybody may call (health, version, the webhook), the
 * verbs of kube-scheduler, and views of the cluster (inspect, gpupods, gpunodes, metrics, page).
 *
 * With CERTS_INSECURE everybody may call everything; on a loopback address, no web page whose
 * name resolves to it (DNS rebinding): its requests have that name as Host. Else the verbs need a
 * client certificate of kube-scheduler or another replica, and a bind that claims to be forwarded
 * needs a replica's, where the Secrets name the two.
 *
 * Views need a certificate, too (on the observers' port, of --observe-client-ca or of the
 * API server's front proxy, which has checked its user), or a bearer token (RFC 6750) whose
 * owner has the permission for the view, by the table in access.c. Who may see a view sees
 * all of it.
 */

/* A stream is authorized when it begins. One of a token, or behind the front proxy, ends
 * after this time; the client connects again. */
enum { ACCESS_STREAM_MS = 5 * 60 * 1000 };

/* Both are borrowed. */
struct access {
    struct certs *certs; /* NULL: insecure; else there is an `auth` */
    struct delegated_auth *auth;
};

/* For httpd_listener_config.authorize of each port; ctx is a struct access. False: `reply`
 * holds the rejection, or the request waits. */
bool access_allows_main(void *ctx, const struct httpd_request *req,
                        struct httpd_reply *reply);
bool access_allows_observer(void *ctx, const struct httpd_request *req,
                            struct httpd_reply *reply);

/* When a stream that is allowed now must end, on clock_mono_ms; INT64_MAX: never. `main`: it
 * came on the main port. */
int64_t access_stream_end_ms(const struct access *a, bool main,
                             const struct httpd_request *req);
