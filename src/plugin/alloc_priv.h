/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/list.h"
#include "plugin/alloc.h"

/*
 * The allocator's parts:
 *
 *   alloc.c               the step; cards, pods, outputs
 *   alloc_request.c       the life cycle of a kubelet request: ids, record, answer
 *   alloc_podresources.c  the kubelet's view: which pod a request is for, comparison with
 *                         the promises
 */

/* Annotations that are sent until the pod watch shows them. */
struct pod_patch {
    int64_t sent_ms; /* the last time */
    unsigned n;      /* how often */
};

/* A pod of this node, as the API server has it. */
struct local_pod {
    struct list link;
    struct pod_allocation *pod;
    uint64_t list;           /* number of the newest list that contained it */
    uint64_t rejected_epoch; /* kubelet_epoch in which it was rejected; 0: it was not */
    bool env_override_reported, mismatch_reported, isolation_reported;
    struct pod_patch cards;    /* that were chosen here */
    struct pod_patch assigned; /* the ASSIGNED annotation */
    int64_t reconciled_ms;
    int64_t first_seen_ms;
};

/* A device id of the kubelet, decoded. */
struct device_id {
    const struct plugin_card *card;
    int64_t number; /* of the unit; -1: the whole card */
};

/* A request of the kubelet that is not answered yet. */
struct pending_request {
    struct list link;
    enum alloc_request_type type;
    enum ids_resource resource;
    uint64_t token, serial;
    int64_t size;
    struct device_id *ids, *must;
    size_t n_ids, n_must;
    bool canceled, get_confirmed, relist_sent;
    int64_t began_ms, until_ms;
    uint64_t query;   /* outstanding podresources call; 0: it waits for a change ... */
    int64_t retry_ms; /* ... until then */
    enum alloc_rejection why;
    char text[400];  /* read by those who may see the pod */
    char names[800]; /* of two pods that they may not see; for the log */
    struct arena arena;
};

/* The container that a request is for. */
struct alloc_target {
    struct local_pod *local;
    size_t container; /* index in local->pod->containers */
};

/* A pod in the kubelet's view that is not in local_pods. */
struct unknown_pod {
    struct list link;
    char *ns, *name;
    uint64_t serial; /* of the first request that met it; 0: none yet */
    bool former;     /* the API server has sent this name before, and its deletion */
};

struct alloc {
    /* Of the step that runs. */
    struct step_time now;
    struct step_outputs *out;

    struct alloc_settings settings;
    enum driver_strategy wanted_strategy;
    struct driver_view *driver; /* of the newest sample; NULL: none yet */
    struct driver_node driver_node;
    struct alloc_state state;
    struct list local_pods;   /* in order of arrival */
    uint64_t list;            /* number of pod lists */
    uint64_t kubelet_epoch;   /* number of kubelet starts */
    uint64_t serial, queries; /* number of requests, of podresources calls */
    bool node_read;
    int64_t node_due_ms;
    bool no_get;          /* the kubelet does not implement Get */
    struct list requests; /* oldest first */
    /* Of the last GetPreferredAllocation answer, which Allocate must follow; local NULL: none */
    struct alloc_target preferred;
    enum ids_resource preferred_resource;
    struct list unknown_pods;  /* newest first */
    uint64_t reconcile_query;  /* outstanding podresources call; 0: none */
    uint64_t reconcile_serial; /* `serial` when it was sent */
    bool reconcile_all;        /* it is a List */
    int64_t reconcile_next_ms;
    int64_t answered_ms; /* last answer of podresources, an error included */
    bool dirty;          /* allocations have changed since the last ALLOC_SAVE */
};

/* alloc.c */

struct alloc_output *alloc_add(struct alloc *a, enum alloc_output_type type);
struct alloc_output *alloc_add_of_pod(struct alloc *a, enum alloc_output_type type,
                                      const struct pod_allocation *pod);
/* Adds ALLOC_QUERY for the pod; NULL: a List. Returns its number. */
uint64_t alloc_query(struct alloc *a, const struct pod_allocation *pod);
#define alloc_log(a, level, ...)                                                         \
    step_log((a)->out, level, "allocator", ERR_NONE, __VA_ARGS__)
/* Warning event of the pod. */
void alloc_event(struct alloc *a, const struct pod_allocation *pod, const char *reason,
                 const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void alloc_save(struct alloc *a); /* adds ALLOC_SAVE if allocations have changed */
void alloc_drop(struct alloc *a, struct allocation *al); /* an allocation of the state */

/* False: the id belongs to no card of this node. */
bool alloc_read_id(const struct alloc *a, enum ids_resource r, struct span text,
                   struct device_id *id);
/* The allocation of a container; NULL: none. */
struct allocation *alloc_of_container(const struct alloc *a,
                                      const struct pod_allocation *pod,
                                      const struct pod_allocation_container *c);

struct local_pod *alloc_pod_find(const struct alloc *a, struct span uid);
struct local_pod *alloc_pod_by_name(const struct alloc *a, struct span ns,
                                    struct span name);
/* Assigns an unpromised pod the cards that its containers hold already. */
void alloc_pod_assign_from_allocations(struct alloc *a, struct pod_allocation *pod);
/* Sends the annotations that are due: the cards that were chosen here, and ASSIGNED once each
 * container has an allocation. */
void alloc_pod_annotate(struct alloc *a, struct local_pod *p);

/* alloc_request.c */

void alloc_request_take(struct alloc *a, const struct alloc_request *in);
void alloc_request_cancel(struct alloc *a, uint64_t token);
/* Tries the waiting requests again: `all`, or those whose time has come. */
void alloc_request_retry(struct alloc *a, bool all);
void alloc_request_kubelet_answered(struct alloc *a, struct pending_request *req,
                                    const struct alloc_kubelet_view *view);
void alloc_request_free(struct pending_request *req);

/* Sets the reason and text of a rejection, and clears `names`. Returns false. Functions that
 * take a request return false with its reason. */
bool alloc_request_explain(struct pending_request *req, enum alloc_rejection why,
                           const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* How many ids of the card the container may hold. */
size_t alloc_request_limit(const struct alloc *a, const struct alloc_target *t,
                           const struct plugin_card *card);
/* The allocation that conflicts with giving the id to the container; NULL: none. */
const struct allocation *alloc_request_holder(const struct alloc *a,
                                              const struct alloc_target *t,
                                              const struct device_id *id);

/* alloc_podresources.c */

/* Identifies the container by a podresources List. */
bool alloc_podresources_identify(struct alloc *a, struct pending_request *req,
                                 const struct alloc_kubelet_view *view,
                                 struct alloc_target *target);
/* Identifies the container by ids that a plain init container of its pod holds. */
bool alloc_podresources_identify_reuse(const struct alloc *a,
                                       const struct pending_request *req,
                                       struct alloc_target *target);
/* Does what identified the container still hold, in an answer to Get? The kubelet has the pod,
 * and this container is the next one without ids. */
bool alloc_podresources_confirm(const struct alloc *a, struct pending_request *req,
                                const struct alloc_target *t,
                                const struct alloc_kubelet_view *view);
/* The pod has left local_pods, or its request was answered: requests after the one with
 * this serial are not for it. */
void alloc_podresources_rule_out(struct alloc *a, const struct pod_allocation *pod,
                                 uint64_t serial);
void alloc_podresources_forget(struct alloc *a); /* the pods that only the kubelet has */
/* Adopts and checks what the kubelet shows of some pods, or of `all`. */
void alloc_podresources_reconcile(struct alloc *a, const struct alloc_kubelet_view *view,
                                  bool all);
void alloc_podresources_tick(struct alloc *a);
void alloc_podresources_answered(struct alloc *a, const struct alloc_kubelet_view *view);
