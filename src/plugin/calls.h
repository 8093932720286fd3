/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/client.h"
#include "plugin/dispatcher.h"

/*
 * The plugin's calls. To the kubelet: podresources List and Get, and Register. To the API
 * server: the pods of its node (list and watch), pod annotations, events, and a periodic
 * read of its Node.
 */

struct calls_settings {
    /* Borrowed; paths of the kubelet's sockets. */
    const char *node, *podresources, *registration;
    int64_t unit_mib;
    int64_t node_ms; /* between two reads of the Node */
};

struct calls;

/* New; `client` and `dispatcher`, which gets the answers, are borrowed. */
struct calls *calls_start(struct kube_client *client,
                          const struct calls_settings *settings,
                          struct dispatcher *dispatcher);
/* Carries out ALLOC_LIST, ALLOC_GET, ALLOC_PATCH, ALLOC_EVENT or ALLOC_RELIST. */
void calls_carry_out(struct calls *c, const struct alloc_output *o);
void calls_register(struct calls *c, enum ids_resource r, const char *endpoint);
/* Joins the threads. False: a call is still in flight at `until_ms` (clock_mono_ms), and
 * nothing may be freed. NULL is accepted. */
bool calls_stop(struct calls *c, int64_t until_ms);
void calls_free(struct calls *c); /* NULL is accepted */

struct calls_stats {
    uint64_t patched, patch_failed, events, events_failed, watch_failures;
    struct step_failure watch, node; /* of the pod watch, of reading the Node */
    int64_t alive_ms; /* clock_mono_ms of the watch thread's last iteration */
};
void calls_stats(struct calls *c, struct calls_stats *stats);
