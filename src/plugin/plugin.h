/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "plugin/response.h"
#include "wire/entry.h"

/*
 * The program gpushare-device-plugin: its options, and the start and stop order of its
 * parts.
 */

struct plugin_config {
    struct entry_options entry;
    char *node_name;
    char *gpu_source;
    int64_t interval_ms, unhealthy_after_ms, healthy_after_ms, xid_hold_ms,
        sampler_limit_ms, late_ms;
    int64_t unit_mib;
    char *plugin_dir, *podresources, *state;
    bool allow_unpromised, strict_env, legacy_env;
    int strategy; /* enum driver_strategy */
    int by_index;
    char *host_root, *driver_root, *cdi_dir, *cdi_kind;
    int isolation; /* enum isolation */
    bool less_isolation;
    char *mps_dir, *limit_dir, *limit_library;
    int64_t wait_ms, reconcile_interval_ms, node_ms;
    int64_t port;
};

extern const struct opt_program plugin_program;

struct plugin;

/* New; registers as soon as there are cards and a kubelet. The caller must have blocked
 * the signals that end the program, so that all threads block them. */
struct plugin *plugin_start(const struct plugin_config *config, struct err *err);
/* False: a thread hangs in the driver, and nothing was freed; the process must exit. */
bool plugin_stop(struct plugin *p);
