/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/kubelet.h"
#include "lib/sim.h"

/*
 * gpushare-device-plugin on the node n1, between kube-sim and a simulated kubelet. Its
 * cards are those of agent_cards (lib/agent.h).
 */

struct plugin {
    struct program program;
    struct peer health;
};
void plugin_start(struct plugin *p, const struct sim *s, const char *const *more);
void plugin_start_at(struct plugin *p, const char *kubeconfig, const char *const *more);
/* gpushare-node in both modes. */
void plugin_start_node(struct plugin *p, const struct sim *s, const char *const *more);
void plugin_stop(struct plugin *p);
/* The value of gpushare_plugin_<name> in /metrics; -1: there is no such metric. */
double plugin_metric(const struct plugin *p, const char *name);
/* A pod bound to n1, promised units of the card "GPU-<card>"; from 64 on, "MIG-<card>". */
void plugin_pod(const struct sim *s, const char *name, int units, int card);
