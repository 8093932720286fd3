/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "base/step.h"
#include "kube/podresources.h"
#include "node/allocation.h"
#include "plugin/cards.h"
#include "plugin/pod_allocation.h"
#include "plugin/response.h"

/*
 * The allocator: which device ids each container gets. A deterministic step function:
 * inputs are events (a pod changed, the kubelet sent a request, podresources answered,
 * time passed), outputs are actions for the caller:
 *
 *     alloc_step(alloc, now, input, outputs)
 *
 * No thread, lock, socket, clock or log is inside.
 *
 * The kubelet requests ids without naming the pod, so the allocator has to identify it.
 * It never guesses by amount. It relies on these properties of the kubelet:
 *
 * - The kubelet admits pods one at a time and adds each to its podresources answer
 *   just before admission. During GetPreferredAllocation the pod is therefore in
 *   podresources List, with fewer ids than it requests. A pod that the kubelet has
 *   just rejected for another reason can be there too, and so can a pod that the pod
 *   watch has not delivered yet. So exactly one listed pod may lack exactly this
 *   container, and no listed pod may be unknown here. Otherwise the answer waits for
 *   the pod watch.
 * - podresources List makes the kubelet drop ids that it has allocated but not yet
 *   written to its checkpoint. List is called during GetPreferredAllocation, when
 *   there are none, and never during Allocate.
 * - Allocate follows its GetPreferredAllocation and is checked again: the pod by
 *   podresources Get (kubelets since 1.34), each id by its card and its holder. Ids
 *   of a plain init container that the kubelet reuses come without
 *   GetPreferredAllocation; their holder identifies the pod.
 *
 * A request that stays ambiguous for `wait_ms` is rejected with the reason. A promise is
 * never rewritten to fit what the kubelet did.
 *
 * Allocations are recorded: ids that a container holds are never given to another one,
 * and neither is a card that is held through the other resource. Where the kubelet's view
 * shows more (the state file was lost), it is adopted. It is compared with the promises
 * periodically. Ids of the Go plugin name no card and are skipped.
 */

enum alloc_rejection {
    REJECTED_NOT_SYNCED, /* the pods of this node are not listed yet, or the Node not read */
    REJECTED_NO_PENDING_POD,  /* no pod of this node lacks these ids */
    REJECTED_AMBIGUOUS,       /* several pods lack these ids */
    REJECTED_UNKNOWN_POD,     /* the kubelet has a pod that the API server has not sent */
    REJECTED_NO_PROMISE,      /* the pod has no card: the extender did not bind it */
    REJECTED_INVALID_REQUEST, /* the pod's limits or annotations are invalid */
    REJECTED_WRONG_CARD,      /* the ids are not those of the promised card */
    REJECTED_IN_USE,          /* another container holds the ids or the card */
    REJECTED_UNHEALTHY_CARD,  /* the promised card is lost or unhealthy */
    REJECTED_NO_CDI_NAME,     /* no CDI specification names the promised card */
    REJECTED_INSUFFICIENT_IDS, /* the kubelet offers too few ids of the promised card */
    REJECTED_UNKNOWN_ID,       /* the id belongs to no card of this node */
    REJECTED_NOT_PREFERRED,    /* Allocate without a GetPreferredAllocation before */
    REJECTED_ENV_OVERRIDE,     /* --strict-env */
    REJECTED_PODRESOURCES,     /* podresources does not answer */
    REJECTIONS,
};
const char *alloc_rejection_name(enum alloc_rejection r); /* "not-synced", ... */

struct alloc_settings {
    const char *node; /* borrowed */
    int64_t unit_mib;
    int64_t wait_ms;
    int64_t node_ms;               /* between two reads of the Node */
    int64_t reconcile_interval_ms; /* per pod; 0: never */
    int64_t silent_ms;             /* as in struct cards_settings */
    struct card_health_settings health;
    bool allow_unpromised, strict_env, legacy_env;
    /* Its strings are borrowed. DRIVER_AUTO is decided here. */
    struct response_settings response;
};

/* Inputs */

enum alloc_input_type {
    ALLOC_IN_RESTORE, /* `set`: allocations of the state file; those that are not known yet
                       * are added */
    ALLOC_IN_NODE,    /* the Node was read: `node`, and `cgpu_disable`: it has the label
                       * cgpu.disable.isolation=true; or `err`. Allocate waits for the first
                       * read */
    ALLOC_IN_CARDS,   /* a sample: `seen` and `n`, or `err`, the reason why there is none;
                       * and `driver`, if its files were looked at */
    ALLOC_IN_CARD_EVENT,   /* `event`: an XID or ECC error */
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

enum alloc_request_type {
    ALLOC_REQUEST_PREFERRED,
    ALLOC_REQUEST_ALLOCATE,
    ALLOC_REQUEST_TYPES
};
const char *alloc_request_name(enum alloc_request_type type); /* "Allocate", ... */
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

/* The kubelet's view: an answer of its podresources service. */
struct alloc_kubelet_view {
    uint64_t query;
    const struct podres_pod *pods; /* GET: one, or none if there is no such pod */
    size_t n_pods;
    const struct err *err; /* NULL: as above; else the call failed */
    bool unsupported;      /* GET: the kubelet does not implement it */
};

/* The step empties `set`, and takes `driver` and `pod`, which it sets to NULL. The rest is
 * borrowed. */
struct alloc_input {
    enum alloc_input_type type;
    struct allocation_set *set;
    const struct err *err; /* NULL: none */
    bool cgpu_disable;
    struct driver_node node;
    const struct card_seen *seen;
    size_t n;
    const char *text;
    struct driver_view *driver;
    struct gpu_event event;
    struct pod_allocation *pod;
    struct span uid;
    struct alloc_request request;
    struct alloc_kubelet_view view;
};

/* Outputs (base/step.h). The order is binding: an allocation is saved before it is
 * answered. */

enum alloc_output_type {
    ALLOC_QUERY, /* call podresources Get for the pod ns/name, or List if there is none;
                      * the answer is an ALLOC_IN_PODRESOURCES */
    ALLOC_PREFERRED, /* answer request `token` with ids */
    ALLOC_ALLOCATED, /* answer request `token` of the pod ns/name with `response` */
    ALLOC_LIMIT,     /* the limits of the pod may have changed: `response` has them */
    ALLOC_REJECTED,  /* answer request `token` with an error, `text` */
    ALLOC_SAVE,      /* write the allocations to the state file */
    ALLOC_PATCH, /* patch the annotations `text` (JSON) of the pod ns/name with this uid */
    ALLOC_EVENT,     /* write a Warning event of the pod ns/name: `reason`, `text` */
    ALLOC_RELIST,    /* list the pods of this node instead of waiting for the watch */
    ALLOC_READ_NODE, /* read the Node; the answer is an ALLOC_IN_NODE */
    ALLOC_DEVICES,   /* send the device list to the open ListAndWatch streams */
};

struct alloc_output {
    enum alloc_output_type type;
    uint64_t query;
    uint64_t token;
    enum alloc_rejection rejection;
    const char *ns, *name, *uid;
    const char *reason, *text;
    const struct span *ids;
    size_t n_ids;
    const struct response *response;
};

struct alloc;
struct alloc *alloc_new(const struct alloc_settings *settings); /* new */
void alloc_free(struct alloc *a);

/* Takes the input and appends struct alloc_output to `out`. */
void alloc_step(struct alloc *a, struct step_time now, struct alloc_input *in,
                struct step_outputs *out);

bool alloc_has_pod(const struct alloc *a, struct span uid); /* is it on this node? */

struct alloc_stats {
    uint64_t allocated[IDS_CARD_RESOURCES];
    uint64_t rejected[REJECTIONS]; /* Allocate and GetPreferredAllocation together */
    uint64_t mismatches;   /* pods with a container on a card not promised to it */
    uint64_t recovered;    /* allocations learned from the kubelet */
    uint64_t reconciled;   /* pods compared with the kubelet's view */
    uint64_t not_isolated; /* containers without the isolation that their pod asks for */
};

struct alloc_state {
    struct cards cards;
    struct allocation_set allocations;
    bool listed; /* the pods of this node */
    /* Of podresources. With a reconcile interval of 0 only a container's request detects a
     * failure; its end is always detected. */
    struct step_failure podresources;
    struct step_failure node; /* of reading the Node */
    int64_t due_ms;           /* mono_ms of the next required ALLOC_IN_TICK */
    struct alloc_stats stats;
};
const struct alloc_state *alloc_state(const struct alloc *a); /* borrowed */
