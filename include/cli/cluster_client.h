/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/cluster_state.h"
#include "kube/client.h"

/*
 * A world and the API server: lists everything, and then watches, in the caller's thread.
 */

struct cluster_client;

/* New. The client is borrowed. */
struct cluster_client *cluster_client_new(const struct cluster_state_config *config, struct kube_client *client);
void cluster_client_free(struct cluster_client *l);
struct cluster_state *cluster_client_world(struct cluster_client *l); /* borrowed */

/* Lists everything, in so many ms at most, and judges heartbeats by the Date of the API
 * server's answer. */
int cluster_client_load(struct cluster_client *l, int64_t timeout_ms, struct err *err);
/* Watches for so long, or until something can be seen. */
void cluster_client_wait(struct cluster_client *l, int64_t ms);
