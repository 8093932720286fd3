/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/client.h"
#include "plugin/dispatcher.h"

/*
 * The plugin's API server client: the pods of its node (list and watch), pod annotations,
 * events, and a periodic read of its Node.
 */

struct plugin_api_settings {
    const char *node; /* borrowed */
    int64_t unit_mib;
    int64_t node_ms; /* between two reads of the Node */
};

struct plugin_api;

/* New; `client` and `dispatcher` are borrowed. */
struct plugin_api *plugin_api_start(struct kube_client *client,
                                    const struct plugin_api_settings *settings,
                                    struct dispatcher *dispatcher);
/* Carries out ALLOC_PATCH, ALLOC_EVENT or ALLOC_RELIST. */
void plugin_api_carry_out(struct plugin_api *api, const struct alloc_output *o);
/* Joins the threads. False: a call is still in flight at `until_ms` (clock_mono_ms), and
 * nothing may be freed. NULL is accepted. */
bool plugin_api_stop(struct plugin_api *api, int64_t until_ms);
void plugin_api_free(struct plugin_api *api); /* NULL is accepted */

struct plugin_api_stats {
    uint64_t patched, patch_failed, events, events_failed, watch_failures;
    struct step_failure watch, node; /* of the pod watch, of reading the Node */
    int64_t alive_ms;           /* clock_mono_ms of the watch thread's last iteration */
};
void plugin_api_stats(struct plugin_api *api, struct plugin_api_stats *stats);
