/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/client.h"
#include "plugin/dispatcher.h"

/*
 * What the plugin has to do with the API server: the pods of its node (list and watch),
 * annotations, events, and a look at its Node now and then.
 */

struct plugin_api_settings {
    const char *node; /* borrowed */
    int64_t unit_mib;
    int64_t node_ms; /* between two looks at the Node */
};

struct plugin_api;

struct plugin_api *plugin_api_start(
    struct kube_client *client, const struct plugin_api_settings *settings,
    struct dispatcher *dispatcher); /* new; `client` and `dispatcher` are borrowed */
/* As struct dispatcher_callbacks wants it. */
void plugin_api_patch(struct plugin_api *api, const struct alloc_output *o);
void plugin_api_event(struct plugin_api *api, const struct alloc_output *o);
void plugin_api_relist(struct plugin_api *api); /* instead of waiting for the watch */
void plugin_api_stop(struct plugin_api *api);   /* joins the threads; NULL is accepted */
void plugin_api_free(struct plugin_api *api);   /* NULL is accepted */

struct plugin_api_stats {
    uint64_t patched, patch_failed, events, events_failed, lists, watch_failures;
    struct failure watch, node; /* with the pods, with the Node */
    int64_t alive_ms;           /* clock_mono_ms when the watch's thread came by last */
};
void plugin_api_stats(struct plugin_api *api, struct plugin_api_stats *stats);
