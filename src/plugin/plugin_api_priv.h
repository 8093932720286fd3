/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/worker.h"
#include "plugin/plugin_api.h"
#include "plugin/pod_reflector.h"

/*
 * plugin_api.c: the watch thread. plugin_api_jobs.c: patches, events and reads of the
 * Node, which workers carry out one at a time.
 */

struct plugin_api {
    struct kube_client *client;
    struct plugin_api_settings settings;
    struct dispatcher *dispatcher;
    struct worker *patches, *events;
    struct httpc_loop *loop;
    struct pod_reflector reflector;
    pthread_t thread;
    int64_t node_due_ms;
    atomic_bool node_failed; /* read it again soon */

    /* used by the watch thread only */
    struct httpc_stream *stream;
    int64_t due_ms;

    pthread_mutex_t lock; /* protects the members below */
    bool stop, relist;
    struct plugin_api_stats stats;
};

/* plugin_api_jobs.c */
void plugin_api_on_job(void *api, void *job);
void plugin_api_read_node(struct plugin_api *api); /* asynchronous */

/* plugin_api.c */
void plugin_api_count(struct plugin_api *api, uint64_t *counter);
/* Records the failure, or clears it if `why` is NULL or of code ERR_NONE. */
void plugin_api_set_failure(struct plugin_api *api, struct failure *f,
                            const struct err *why);
