/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "cli/cluster_client.h"
#include "cli/config.h"

/*
 * One run of the plugin against a cluster, as the options configure it: the API server of
 * the kubeconfig and, where its objects are not conclusive, the extender.
 */

struct session {
    const struct cli_config *config; /* borrowed */
    struct kube_client *client;
    struct cluster_client *cluster;
    char *ns;              /* namespace of the kubeconfig's context */
    bool unit_assumed;     /* the memory unit could not be determined */
    struct err view_error; /* session_view failed; ERR_NONE: not called, or no extender */

    /* private to session.c */
    json_t *view;
    bool view_fetched;
};

/* Lists everything, then determines the memory unit (unless configured) and the
 * nodes whose heartbeat is missing. `s` is zeroed except for its config; release it with
 * session_fini, also after -1. */
int session_load(struct session *s, struct err *err);
void session_fini(struct session *s);
const struct cluster_state *session_state(const struct session *s); /* borrowed */
/* Appends the API server's path of the pod. */
void session_pod_path(struct buf *path, struct span ns, struct span name);

/* Fetches the extender's current view; new. NULL: --extender names none (`err` is left
 * alone), or the call failed. */
json_t *session_fetch_view(struct session *s, int64_t timeout_ms, struct err *err);
/* The same, fetched once. NULL: not available, see view_error. Borrowed. */
const json_t *session_view(struct session *s);
