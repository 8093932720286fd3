/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "node/alloc.h"
#include "node/overuse.h"
#include "node/publisher.h"
#include "wire/entry.h"

/*
 * The options of the node program, and the modes that follow from the name that it was
 * started as:
 *
 *     gpushare-node            publishes and allocates, unless --publish or --allocate is off
 *     scv-agent                publishes, with the options that scv-agent 1.0 had
 *     gpushare-device-plugin   allocates, with the options that this program had in 1.0
 */

struct node_options {
    struct entry_options entry;
    bool publishes, allocates, once;
    char *node_name;
    char *gpu_source;
    int64_t unified_bytes;
    int64_t unit_mib;
    struct card_health_settings health;
    int64_t sampler_limit_ms, late_ms;
    char *limit_dir, *podresources;
    int64_t port, publish_port; /* publish_port -1: none */

    /* of publishing */
    struct publisher_settings publisher; /* its times */
    int64_t keep_lost_ms;
    int64_t pods_ms;
    struct overuse_settings overuse; /* without tolerance_mib */
    int64_t overuse_tolerance;       /* bytes */

    /* of allocating */
    int64_t sample_ms; /* 0: not given */
    char *plugin_dir, *state, *limit_library, *cgroup_root;
    int requests_of; /* 0: nobody's, 1: HAMi's, unless the Node's label says otherwise */
    char *hami_values;
    bool set_limits;
    struct alloc_settings alloc; /* what is not above, and response without strategy */
    /* host_root "": / for processes, too, and no look at the driver's files */
    struct driver_view_settings driver;

    /* of 1.0, without effect */
    char *plugin_state;
    bool legacy_no_gpu_env;
};

/* The program of that name, of which a path may precede; gpushare-node for any other name.
 * Sets the modes in *options that this name has no options for. */
const struct opt_program *node_options_of(const char *name, struct node_options *options);

/* Checks what the table cannot, and logs the options that have no effect. */
int node_options_check(const struct node_options *options, struct err *err);
