/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/list_watch.h"
#include "plugin/alloc.h"

/*
 * Reflector of the pods of one node: a list, then consecutive watches, in a thread.
 *
 * Terminal pods are included, because the kubelet's podresources shows them. An invalid
 * pod is passed on without containers, so that it is known.
 */

struct pod_reflector_settings {
    const char *node; /* borrowed */
    int64_t unit_mib;
    /* ALLOC_IN_POD, POD_DELETED, LIST_STARTED or LIST_ENDED; takes the pod. */
    void (*input)(void *ctx, const struct alloc_input *in);
    void *ctx;
};

struct pod_reflector;

struct pod_reflector *pod_reflector_new(const struct pod_reflector_settings *settings);
/* What the thread drives, with the reflector as `ctx` and one slot. */
extern const struct list_watch_fns pod_reflector_fns;
void pod_reflector_start(struct pod_reflector *f, struct kube_client *client);
/* Lists instead of waiting for the watch. From any thread. */
void pod_reflector_relist(struct pod_reflector *f);
void pod_reflector_stop(struct pod_reflector *f); /* joins the thread */
void pod_reflector_free(struct pod_reflector *f);

struct pod_reflector_status {
    struct step_failure failure; /* of the list or watch */
    int64_t alive_ms;            /* clock_mono_ms of the thread's last iteration */
    int64_t due_ms;              /* of the next request */
};
struct pod_reflector_status pod_reflector_status(struct pod_reflector *f);
