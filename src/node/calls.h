/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>

#include "kube/informer.h"
#include "node/dispatcher_msg.h"
#include "node/options.h"

/*
 * The plugin's calls, each kind in a thread of its own. To the kubelet: podresources List and
 * Get, and Register. To the API server: the pods of its node, pod annotations, events, and
 * its Node.
 */

struct calls;

/* New; all are borrowed. `queue` gets the answers. */
struct calls *calls_start(const struct node_options *options, struct kube_client *client,
                          struct dispatcher_msg_queue *queue);
/* ALLOC_QUERY, ALLOC_PATCH, ALLOC_EVENT, ALLOC_RELIST or ALLOC_READ_NODE. Does not block. */
void calls_carry_out(struct calls *c, const struct alloc_output *o);
/* Registers the resource; the answer is a DISPATCHER_REGISTERED. `endpoint` NULL: only looks for
 * another plugin of it. Does not block. */
void calls_register(struct calls *c, enum ids_resource r, const char *endpoint);
/* Joins the threads. False: a call is still in flight at `until_ms` (clock_mono_ms), and
 * nothing may be freed. NULL is accepted. */
bool calls_stop(struct calls *c, int64_t until_ms);
void calls_free(struct calls *c); /* NULL is accepted */
struct informer_status calls_watch_status(struct calls *c);

/* The node's pods as inputs of the allocator. Terminal pods are included, because the kubelet's
 * podresources shows them. An invalid pod is passed on without containers, so that it is known. */
struct pods_settings {
    const char *node; /* borrowed */
    int64_t unit_mib;
    /* As of pod_allocation_new; may change while the informer runs. */
    const struct dialect *_Atomic dialect;
    const char *denied; /* of informer_settings */
    /* ALLOC_IN_POD, POD_DELETED, LIST_STARTED or LIST_ENDED; takes the pod. */
    void (*input)(void *ctx, const struct alloc_input *in);
    void *ctx;
};
/* New; `settings` and `client` are borrowed. */
struct informer *pods_informer_new(struct pods_settings *settings,
                                   struct kube_client *client);
