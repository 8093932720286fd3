/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/certs.h"
#include "extender/view_access.h"
#include "wire/httpd.h"

/*
 * Who may call which route of the extender. The server asks before each handler.
 *
 * Routes have three classes: health and version, the verbs of kube-scheduler, and views
 * of the cluster (inspect, gpupods, gpunodes, metrics, page).
 *
 * With CERTS_INSECURE everybody may call everything. Else the verbs need a client
 * certificate of kube-scheduler or another replica, and a bind that claims to be forwarded
 * needs a replica's, where the Secrets name the two. Views need a certificate, too, or a
 * bearer token: extender/view_access.h.
 */

enum access_class {
    ACCESS_HEALTH, /* /healthz, /readyz, /version: everyone */
    ACCESS_VERB,   /* filter, prioritize, preempt, bind: clients of the verbs' CAs */
    ACCESS_VIEW,   /* everything else */
};

struct access_config {
    struct certs *certs;    /* borrowed; NULL: insecure */
    struct view_auth *auth; /* borrowed; NULL: everyone may call the views */
};

struct access;

struct access *access_new(const struct access_config *config); /* New. */
void access_free(struct access *a);                            /* NULL is accepted */

/* The class of a path. */
enum access_class access_class_of(const char *path);

/* Rejects what a web page on another origin could send: a foreign Origin (403), and a POST
 * whose Content-Type is not application/json (415). */
bool access_checks_form(const struct httpd_request *req, struct httpd_reply *reply);

/* For httpd_listener_config.authorize of each port; ctx is a struct access. False: `reply`
 * holds the rejection. */
bool access_allows_main(void *ctx, const struct httpd_request *req,
                        struct httpd_reply *reply);
bool access_allows_observer(void *ctx, const struct httpd_request *req,
                            struct httpd_reply *reply);

/* What an allowed request of a view may see; to be released with view_auth_grant_fini.
 * `main`: it came on the main port. */
struct view_auth_grant access_grant(const struct access *a, bool main,
                                    const struct httpd_request *req);
