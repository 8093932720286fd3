/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/publisher.h"
#include "wire/entry.h"

/*
 * scv-agent as a program: its options, and the order in which its parts start and stop.
 */

struct agent_config {
    struct entry_options entry;
    char *node_name;
    char *gpu_source;
    int64_t interval_ms, refresh_ms;
    int64_t unhealthy_after_ms, healthy_after_ms, xid_hold_ms, keep_lost_ms;
    int64_t sampler_limit_ms, late_ms;
    char *podresources;
    int64_t pods_ms;
    char *lease_namespace;
    int64_t renew_ms, grace_ms;
    int64_t port;
    bool once;
};

extern const struct opt_program agent_program;

struct agent;

/* New; publishes as soon as it can. The signals that end the program must be blocked
 * before, so that all threads block them. */
struct agent *agent_start(const struct agent_config *config, struct err *err);
/* False: a thread hangs in the driver. The process has to be ended as it is then, because
 * that thread may go on at any moment. */
bool agent_stop(struct agent *agent);

/* --once: appends the Scv object of this node, as JSON. */
int agent_once(const struct agent_config *config, struct buf *out, struct err *err);
