/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "plugin/alloc.h"

/*
 * The allocator's parts:
 *
 *   alloc.c            cards, the kubelet's answers, time
 *   alloc_pod.c        the pods of this node
 *   alloc_request.c    the life cycle of a kubelet request
 *   alloc_identify.c   which pod and container a request is for
 *   alloc_select.c     which ids the container gets
 *   alloc_commit.c     recording an allocation and answering
 *   alloc_reconcile.c  comparing the kubelet's view with the promises
 *   alloc_output.c     outputs
 */

/* A pod of this node, as the API server has it. */
struct local_pod {
    struct pod_allocation *pod;
    uint64_t list;           /* number of the newest list that contained it */
    uint64_t rejected_epoch; /* kubelet_epoch in which it was rejected; 0: it was not */
    bool assigned_here;      /* unpromised: its cards were chosen here */
    bool annotated;          /* the annotations for those cards were sent */
    bool env_override_reported, mismatch_reported, isolation_reported;
    int64_t patched_ms; /* when the ASSIGNED annotation was sent last; 0: never */
    int64_t reconciled_ms;
    int64_t first_seen_ms;
    struct local_pod *next;
};

/* A device id of the kubelet, decoded. */
struct device_id {
    const struct plugin_card *card;
    int64_t number; /* of the unit; -1: the whole card */
};

enum pending_state {
    PENDING_NEW,
    PENDING_QUERY, /* waits for podresources */
    PENDING_RETRY, /* waits for the pod watch, or until retry_ms */
};

/* A request of the kubelet that is not answered yet. */
struct pending_request {
    enum alloc_request_type type;
    enum ids_resource resource;
    uint64_t token, serial;
    int64_t size;
    struct device_id *ids, *must;
    size_t n_ids, n_must;
    size_t n_unknown; /* ids that belong to no card of this node */
    char unknown[64]; /* the first of them */
    enum pending_state state;
    bool waited, canceled, get_confirmed;
    bool relist_sent;
    int64_t began_ms, until_ms, retry_ms;
    uint64_t query;
    enum alloc_rejection why;
    char text[400];  /* read by those who may see the pod */
    char names[800]; /* of two pods that they may not see; for the log */
    struct arena arena;
    struct pending_request *next;
};

/* The container that a request is for. */
struct alloc_target {
    struct local_pod *local;
    size_t container; /* index in local->pod->containers */
};

/* The container of the last GetPreferredAllocation answer; Allocate must follow it. */
struct preference {
    bool valid;
    enum ids_resource resource;
    char uid[80];
    size_t container;
};

/* A pod in the kubelet's view that is not in local_pods. */
struct unknown_pod {
    char *ns, *name;
    uint64_t serial; /* of the first request that met it; 0: none yet */
    bool former;     /* the API server has sent this name before, and its deletion */
    struct unknown_pod *next;
};

struct alloc {
    struct alloc_settings settings;
    char *node;
    enum driver_strategy wanted_strategy;
    struct driver_view *driver; /* of the newest sample; NULL: none yet */
    struct driver_node driver_node;
    struct cards cards;
    struct allocation_set allocations;
    struct local_pod *local_pods; /* in order of arrival */
    uint64_t list;                /* number of pod lists */
    uint64_t kubelet_epoch;       /* number of kubelet starts */
    uint64_t serial, queries;     /* number of requests, of podresources calls */
    bool listed, node_read;
    bool no_get;                      /* the kubelet does not implement Get */
    struct pending_request *requests; /* oldest first */
    struct preference preference;
    struct unknown_pod *unknown_pods; /* newest first */
    int64_t due_ms;
    uint64_t reconcile_query;  /* outstanding podresources call; 0: none */
    uint64_t reconcile_serial; /* `serial` when it was sent */
    bool reconcile_all;        /* it is a List */
    int64_t reconcile_asked_ms, reconcile_next_ms;
    int64_t answered_ms; /* last answer of podresources, an error included */
    struct failure podresources_failure;
    bool dirty; /* allocations have changed since the last ALLOC_SAVE */
    struct alloc_stats stats;
};

/* alloc_output.c */
struct alloc_output *alloc_output_add(struct alloc_outputs *out,
                                      enum alloc_output_type type);
const char *alloc_output_text(struct alloc_outputs *out, struct span s);
const char *alloc_output_printf(struct alloc_outputs *out, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void alloc_output_log(struct alloc_outputs *out, enum log_level level, const char *fmt,
                      ...) __attribute__((format(printf, 3, 4)));
/* An output that names the pod. */
struct alloc_output *alloc_output_of_pod(struct alloc_outputs *out,
                                         enum alloc_output_type type,
                                         const struct pod_allocation *pod);
void alloc_output_event(struct alloc_outputs *out, const struct pod_allocation *pod,
                        const char *reason, const char *text);
void alloc_output_patch(struct alloc_outputs *out, const struct pod_allocation *pod,
                        const char *annotations);
/* Adds ALLOC_SAVE if allocations have changed. */
void alloc_output_save(struct alloc *a, struct alloc_outputs *out);
void alloc_output_id(struct buf *out, const struct device_id *id);
/* "GPU-... (index 0)", in the arena of `out`. */
const char *alloc_output_card(struct alloc_outputs *out, const struct plugin_card *card);

/* alloc_pod.c */
void alloc_pod_free(struct local_pod *p);
struct local_pod *alloc_pod_find(const struct alloc *a, struct span uid);
struct local_pod *alloc_pod_by_name(const struct alloc *a, struct span ns,
                                    struct span name);
/* Has every container of the pod an allocation? */
bool alloc_pod_is_complete(const struct alloc *a, const struct local_pod *p);
/* Sets the pod's ASSIGNED annotation once the pod is complete. */
void alloc_pod_mark_assigned(struct alloc *a, struct alloc_time now, struct local_pod *p,
                             struct alloc_outputs *out);
/* Assigns an unpromised pod the cards that its containers hold already, from before a
 * restart. */
void alloc_pod_assign_from_allocations(struct alloc *a, struct local_pod *p);
/* Writes the annotations of a pod whose cards were chosen here. */
void alloc_pod_annotate_assigned(struct alloc *a, struct alloc_time now,
                                 struct local_pod *p, struct alloc_outputs *out);

/* alloc.c */
/* False: the id belongs to no card of this node. */
bool alloc_read_id(const struct alloc *a, enum ids_resource r, struct span text,
                   struct device_id *id);
void alloc_wake_at(struct alloc *a, int64_t at_ms); /* tick at this time at the latest */

/* alloc_request.c */
void alloc_request_retry_all(struct alloc *a, struct alloc_time now,
                             struct alloc_outputs *out);
void alloc_request_tick(struct alloc *a, struct alloc_time now,
                        struct alloc_outputs *out);
void alloc_request_kubelet_answered(struct alloc *a, struct alloc_time now,
                                    struct pending_request *req,
                                    const struct alloc_kubelet_view *view,
                                    struct alloc_outputs *out);
void alloc_request_free(struct pending_request *req);

/* WAIT: not now, but a later event can change it. */
enum verdict { VERDICT_YES, VERDICT_WAIT, VERDICT_NO };
/* Sets the reason and text of a rejection, and clears `names`. Returns `verdict`. */
enum verdict alloc_request_explain(struct pending_request *req, enum verdict verdict,
                                   enum alloc_rejection why, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* alloc_commit.c */
/* Records that the container holds the ids of the request, and answers it. Other verdicts
 * than VERDICT_YES: nothing is recorded or answered. */
enum verdict alloc_commit(struct alloc *a, struct alloc_time now,
                          struct pending_request *req, const struct alloc_target *t,
                          struct alloc_outputs *out);

/* alloc_identify.c */
/* Identifies the container by a podresources List. */
enum verdict alloc_identify_from_list(struct alloc *a, int64_t now_ms,
                                      struct pending_request *req,
                                      const struct alloc_kubelet_view *view,
                                      struct alloc_target *target);
/* Bounded; the oldest entry is dropped. Returns the new entry. */
struct unknown_pod *alloc_identify_add_unknown(struct alloc *a, struct span ns,
                                               struct span name);
void alloc_identify_forget_unknown(struct alloc *a);
/* The pod's request was answered: later requests are not for it. */
void alloc_identify_answered(struct alloc *a, const struct pod_allocation *pod,
                             uint64_t serial);
/* Identifies the container by ids that a plain init container of its pod holds. */
bool alloc_identify_reuse(const struct alloc *a, const struct pending_request *req,
                          struct alloc_target *target);
/* Does the pod lack ids in the kubelet's view? *next is its first such container. */
bool alloc_identify_next_container(const struct alloc *a, const struct local_pod *p,
                                   const struct alloc_kubelet_pod *view, size_t *next);

/* alloc_select.c */
/* Selects ids of the container's cards that nobody holds. */
enum verdict alloc_select_ids(struct alloc *a, struct pending_request *req,
                              const struct alloc_target *t, struct device_id **ids,
                              size_t *n);
/* May the container hold the ids of the request? */
enum verdict alloc_select_check(struct alloc *a, struct pending_request *req,
                                const struct alloc_target *t);
/* Has the container a promise, and can its cards be used? */
enum verdict alloc_select_check_promise(struct alloc *a, struct pending_request *req,
                                        const struct alloc_target *t);
const struct plugin_card *alloc_select_card(const struct alloc *a,
                                            const struct pod_allocation_share *s);
/* How many ids of the card the container may hold. */
size_t alloc_select_limit(const struct alloc *a, const struct alloc_target *t,
                          const struct plugin_card *card);
/* The allocation that conflicts with giving the id to the container; NULL: none. */
const struct allocation *alloc_select_holder(const struct alloc *a,
                                             const struct alloc_target *t,
                                             const struct device_id *id);

/* alloc_reconcile.c */
/* Adopts and checks what the kubelet shows of some pods, or of `all`. */
void alloc_reconcile_view(struct alloc *a, struct alloc_time now,
                          const struct alloc_kubelet_view *view, bool all,
                          struct alloc_outputs *out);
void alloc_reconcile_tick(struct alloc *a, struct alloc_time now,
                          struct alloc_outputs *out);
void alloc_reconcile_answered(struct alloc *a, struct alloc_time now,
                              const struct alloc_kubelet_view *view,
                              struct alloc_outputs *out);
