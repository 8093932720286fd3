/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "cli/cluster_state.h"
#include "cli/config.h"
#include "kube/client.h"
#include "view/inspect.h"

/*
 * One run of the plugin against a cluster, as the options configure it: the API server of
 * the kubeconfig and, where its objects are not conclusive, the extender.
 */

struct session {
    const struct cli_config *config; /* borrowed */
    struct kube_client *client;
    struct session_cluster *cluster; /* what is listed and watched */
    char *ns;                        /* namespace of the kubeconfig's context */
    struct err view_error; /* session_view failed; ERR_NONE: not called, or no extender */

    /* private to session.c */
    json_t *view;
    bool view_fetched;
};

/* Lists everything, then determines the memory unit (unless configured) and the nodes whose
 * heartbeat is missing. `s` is zeroed except for its config; release it with
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

/* Watches for `ms`, or until something visible changes. */
void session_wait(struct session *s, int64_t ms);
/* The ledger for other threads, as long as the session exists. */
struct view_source session_source(struct session *s);

/*
 * The extender's view of its ledger, GET /gpushare-scheduler/inspect. `address` is
 *
 *     http://HOST:PORT          or https://
 *     NAMESPACE/SERVICE:PORT    a Service, through the API server's proxy
 *
 * The API server removes the Authorization header of a request that it proxies and has no
 * client certificate for a Service. So an extender with HTTPS, which wants credentials,
 * is read by its URL.
 */
struct session_extender {
    const char *address;
    const char *token_file; /* bearer token, for https; or NULL */
    const char *ca_file;    /* PEM, for https; NULL: the system's CAs */
};

/* New. NULL: the call failed, or the response is not JSON. */
json_t *session_call_extender(struct kube_client *client,
                              const struct session_extender *from, int64_t timeout_ms,
                              struct err *err);
/* -1: the address has neither form, or there is a token for plain HTTP. */
int session_check_extender(const struct session_extender *from, struct err *err);

/*
 * The unit of aliyun.com/gpu-mem when no option sets it: MiB if the capacity of a node has
 * more units per card than any GPU has GiB, else GiB. Works with a state of any unit.
 */
int64_t session_unit_of_cluster(const struct cluster_state *cs);
