/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "integration/kit.h"
#include "kit/kubelet.h"

/*
 * gpushare-device-plugin on the node n1, between kube-sim and a kubelet that the test
 * plays. Its cards are those of agent_cards (integration/agent.h).
 */

struct plugin {
    struct program program;
    struct peer health;
};
void plugin_start(struct plugin *p, const struct sim *s, const char *const *more);
void plugin_stop(struct plugin *p);
/* The number behind the name in /metrics; -1: there is none. */
/* Is there trouble with that part, by /healthz and the metric, in these words? */
bool plugin_check_fails(const struct plugin *p, const char *part, const char *words);
bool plugin_is_healthy(const struct plugin *p); /* /healthz: with no part at all */
double plugin_metric(const struct plugin *p, const char *name);
/* A pod of n1, bound to that card: "GPU-<card>". */
void plugin_pod(const struct sim *s, const char *name, int units, int card);
