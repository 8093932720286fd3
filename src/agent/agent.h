/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/publisher.h"
#include "wire/entry.h"

/*
 * The program scv-agent: its options, and the start and stop order of its parts.
 */

struct agent_config {
    struct entry_options entry;
    char *node_name;
    char *gpu_source;
    char *host_root;
    int64_t interval_ms, refresh_ms;
    int64_t unhealthy_after_ms, healthy_after_ms, xid_hold_ms, keep_lost_ms;
    int64_t sampler_limit_ms, late_ms;
    char *podresources, *plugin_state;
    int64_t pods_ms;
    int on_overuse; /* enum overuse_type */
    int64_t overuse_grace_ms, overuse_tolerance;
    bool overuse_always;
    char *lease_namespace;
    int64_t renew_ms, grace_ms;
    int64_t port;
    bool once;
};

extern const struct opt_program agent_program;

struct agent;

/* New; its threads run at once. The caller must have blocked the signals that end the
 * program, so that all threads block them. */
struct agent *agent_start(const struct agent_config *config, struct err *err);
/* False: a thread hangs in the driver, and nothing was freed. The process must exit,
 * because that thread may continue at any moment. */
bool agent_stop(struct agent *agent);

/* --once: appends the Scv of this node as JSON. */
int agent_once(const struct agent_config *config, struct buf *out, struct err *err);
