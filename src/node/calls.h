/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>

#include "kube/informer.h"
#include "node/dispatcher.h"

/*
 * The plugin's calls, each kind in a thread of its own. To the kubelet: podresources List and
 * Get, and Register. To the API server: the pods of its node, pod annotations, events, and
 * its Node.
 */

struct calls_settings {
    /* Borrowed. podresources: its socket; plugin_dir: where the registration socket is */
    const char *node, *podresources, *plugin_dir;
    int64_t unit_mib;
};

struct calls;

/* New; `client` and `dispatcher`, which gets the answers, are borrowed. */
struct calls *calls_start(struct kube_client *client,
                          const struct calls_settings *settings,
                          struct dispatcher *dispatcher);
/* Functions of struct dispatcher_callbacks; `calls` is a struct calls. */
void calls_carry_out(void *calls, const struct alloc_output *o);
void calls_register(void *calls, enum ids_resource r, const char *endpoint);
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
