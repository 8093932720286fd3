/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/publisher.h"
#include "node/overuse.h"
#include "wire/entry.h"

/*
 * The program scv-agent: its options, and the start and stop order of its parts.
 */

struct agent_config {
    struct entry_options entry;
    char *node_name;
    char *gpu_source;
    int64_t unified_bytes;
    char *host_root, *limit_dir;
    struct publisher_settings publisher; /* without names, pods and seed */
    char *podresources, *plugin_state;
    int64_t pods_ms;
    struct overuse_settings overuse; /* without tolerance_mib */
    int64_t overuse_tolerance;       /* bytes */
    int64_t port;
    bool once;
};

extern const struct opt_program agent_program;

struct agent;

/* New; its threads run at once. Borrows the configuration. The caller must have blocked the
 * signals that end the program, so that all threads block them. */
struct agent *agent_start(const struct agent_config *config, struct err *err);
/* False: a thread hangs in the driver, and nothing was freed. The process must exit,
 * because that thread may continue at any moment. */
bool agent_stop(struct agent *agent);

/* --once: appends the Scv of this node as JSON. */
int agent_once(const struct agent_config *config, struct buf *out, struct err *err);
