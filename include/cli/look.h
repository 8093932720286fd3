/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/world.h"
#include "kube/client.h"

/*
 * A world and the API server: lists everything, and then watches, in the caller's thread.
 */

struct look;

/* New. The client is borrowed. */
struct look *look_new(const struct world_config *config, struct kube_client *client);
void look_free(struct look *l);
struct world *look_world(struct look *l); /* borrowed */

/* Lists everything, in so many ms at most, and judges heartbeats by the Date of the API
 * server's answer. */
int look_load(struct look *l, int64_t timeout_ms, struct err *err);
/* Watches for so long, or until something can be seen. */
void look_wait(struct look *l, int64_t ms);
