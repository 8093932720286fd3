/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/kubelet.h"
#include "lib/sim.h"

/*
 * gpushare-device-plugin of the node n1, with kube-sim as API server and the fake kubelet. Its cards are those of agent_cards (integration/agent.h).
 */

struct plugin {
    struct program program;
    struct peer health;
};
void plugin_start(struct plugin *p, const struct sim *s, const char *const *more);
void plugin_stop(struct plugin *p);
/* Does this health check fail with this text, in /healthz and in the metric? */
bool plugin_check_fails(const struct plugin *p, const char *part, const char *words);
bool plugin_is_healthy(const struct plugin *p); /* no check of /healthz fails */
/* The value of a metric in /metrics; -1: absent. */
double plugin_metric(const struct plugin *p, const char *name);
/* Adds a pod that is bound to the card "GPU-<card>" of n1. */
void plugin_pod(const struct sim *s, const char *name, int units, int card);
