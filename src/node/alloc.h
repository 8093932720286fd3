/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "node/alloc_state.h"

/*
 * The allocator: which device ids each container gets. A deterministic step function:
 * inputs are events (a pod changed, the kubelet sent a request, podresources answered,
 * time passed), outputs are actions for the caller:
 *
 *     alloc_step(alloc, now, input, outputs)
 *
 * No thread, lock, socket, clock or log is inside.
 *
 * node/identify.h finds the container of a request, node/device_ids.h its ids. A request
 * whose container stays unknown for `wait_ms` is rejected with the reason. podresources
 * List makes the kubelet drop ids that it has allocated but not yet written to its
 * checkpoint: it is called during GetPreferredAllocation, when there are none, and never
 * during Allocate.
 *
 * Allocations are recorded, and compared with the promises periodically
 * (node/reconcile.h).
 */

/* Inputs */

enum alloc_input_type {
    ALLOC_IN_RESTORE, /* `set`: allocations of the state file; those that are not known yet
                       * are added */
    ALLOC_IN_NODE, /* the Node was read: `node`, `dialect`: its label gpushare/dialect, and
                       * `cgpu_disable`: it has the label cgpu.disable.isolation=true; or `err`.
                       * Allocate waits for the first read */
    ALLOC_IN_CARDS, /* `seen` and `n` after a sample or an event; `err`, why the sample failed;
                       * and `driver`, if its files were looked at */
    ALLOC_IN_POD,          /* `pod` of this node was added or changed */
    ALLOC_IN_POD_DELETED,  /* `uid` */
    ALLOC_IN_LIST_STARTED, /* a complete list of the pods begins ... */
    ALLOC_IN_LIST_ENDED,   /* ... and ends: pods that it does not contain are deleted */
    ALLOC_IN_KUBELET_STARTED, /* what the kubelet held in memory is lost */
    ALLOC_IN_REQUEST,         /* `request` of the kubelet */
    ALLOC_IN_CANCEL,          /* the kubelet canceled the request with the token of
                               * `request`; it is answered without waiting */
    ALLOC_IN_PODRESOURCES,    /* `view`: podresources answered */
    ALLOC_IN_UNLIMITED,       /* processes of the pod `uid` ran without the limit of their
                               * containers; `text`: why. One event is written for the pod */
    ALLOC_IN_TICK,            /* time passed */
};

enum alloc_request_type { ALLOC_REQUEST_PREFERRED, ALLOC_REQUEST_ALLOCATE };
struct alloc_request {
    enum alloc_request_type type;
    uint64_t token; /* returned with the answer; each request gets exactly one */
    enum ids_resource resource;
    const struct span *ids; /* PREFERRED: the available ids; else the ids in question */
    size_t n_ids;
    const struct span *must; /* PREFERRED: must_include_deviceIDs, a subset of ids */
    size_t n_must;
    int64_t size; /* PREFERRED: allocation_size */
};

/* The step empties `set`, and takes `driver` and `pod`, which it sets to NULL. The rest is
 * borrowed. */
struct alloc_input {
    enum alloc_input_type type;
    struct allocation_set *set;
    const struct err *err; /* NULL: none */
    bool cgpu_disable;
    struct span dialect;
    struct driver_node node;
    const struct card_seen *seen;
    size_t n;
    const char *text;
    struct driver_view *driver;
    struct pod_allocation *pod;
    struct span uid;
    struct alloc_request request;
    struct alloc_kubelet_view view;
};

struct alloc;
struct alloc *alloc_new(const struct alloc_settings *settings); /* new */
void alloc_free(struct alloc *a);

/* Takes the input and appends struct alloc_output to `out`. */
void alloc_step(struct alloc *a, struct step_time now, struct alloc_input *in,
                struct step_outputs *out);

const struct alloc_state *alloc_state(const struct alloc *a); /* borrowed */
