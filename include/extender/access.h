/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/certs.h"
#include "wire/httpd.h"

/*
 * Who may call which route of the extender. The server asks before each handler.
 *
 * Routes have three classes: health and version, the verbs of kube-scheduler, and views
 * of the cluster (inspect, gpupods, gpunodes, metrics, page).
 *
 * With CERTS_INSECURE everybody may call everything. Else the verbs need a client
 * certificate of kube-scheduler or another replica, and a bind that claims to be forwarded
 * needs a replica's, where the Secrets name the two.
 */

enum access_class {
    ACCESS_HEALTH, /* /healthz, /readyz, /version: everyone */
    ACCESS_VERB,   /* filter, prioritize, preempt, bind: clients of the verbs' CAs */
    ACCESS_VIEW,   /* everything else */
};

struct access_config {
    struct certs *certs; /* borrowed; NULL: insecure */
};

struct access;

struct access *access_new(const struct access_config *config); /* New. */
void access_free(struct access *a);                            /* NULL is accepted */

/* The class of a path. */
enum access_class access_class_of(const char *path);

/* For httpd_listener_config.authorize of each port; ctx is a struct access. False: `reply`
 * holds the rejection. */
bool access_allows_main(void *ctx, const struct httpd_request *req,
                        struct httpd_reply *reply);
bool access_allows_observer(void *ctx, const struct httpd_request *req,
                            struct httpd_reply *reply);
