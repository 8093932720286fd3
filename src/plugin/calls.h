/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/client.h"
#include "plugin/dispatcher.h"
#include "plugin/pod_reflector.h"

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
struct pod_reflector_status calls_watch_status(struct calls *c);
