/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/cluster_state.h"
#include "kube/client.h"
#include "view/inspect.h"

/*
 * Lists and then watches the API server's objects into a cluster_state, in the caller's
 * thread. Other threads may read its ledger through cluster_client_source.
 */

struct cluster_client;

/* New. The client is borrowed. */
struct cluster_client *cluster_client_new(const struct cluster_state_config *config,
                                          struct kube_client *client);
void cluster_client_free(struct cluster_client *c);
struct cluster_state *cluster_client_state(struct cluster_client *c); /* borrowed */

/* Lists everything within `timeout_ms`, then checks heartbeats against the Date of the
 * API server's response. */
int cluster_client_load(struct cluster_client *c, int64_t timeout_ms, struct err *err);
/* Watches for `ms`, or until something visible changes. */
void cluster_client_wait(struct cluster_client *c, int64_t ms);
/* The ledger for other threads, as long as the client exists. */
struct view_source cluster_client_source(struct cluster_client *c);
