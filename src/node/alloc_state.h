/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/list.h"
#include "base/step.h"
#include "kube/podresources.h"
#include "node/allocation.h"
#include "node/cards.h"
#include "node/pod_allocation.h"
#include "node/rejection.h"
#include "node/response.h"

/*
 * What the allocator knows of its node: the cards, the pods, and which container holds which
 * ids. The allocator (node/alloc.h) alone changes it, in its steps; others read it.
 */

struct alloc_settings {
    const char *node;            /* borrowed */
    struct cards_settings cards; /* slots 0: aliyun.com/gpu-share is not offered */
    /* Borrowed: where the Node has no label gpushare/dialect. NULL: the label does not count,
     * because another program publishes the Scv, which would not say so. */
    const char *dialect;
    const struct dialect *hami; /* borrowed: what pods of HAMi mean */
    int64_t wait_ms;
    int64_t node_ms;               /* between two reads of the Node */
    int64_t reconcile_interval_ms; /* per pod; 0: never */
    bool allow_unpromised, strict_env;
    /* Its strings are borrowed. DRIVER_AUTO is decided here. */
    struct response_settings response;
};

struct alloc_stats {
    uint64_t allocated[IDS_CARD_RESOURCES];
    uint64_t rejected[REJECTIONS]; /* Allocate and GetPreferredAllocation together */
    uint64_t mismatches;   /* pods with a container on a card not promised to it */
    uint64_t recovered;    /* allocations learned from the kubelet */
    uint64_t reconciled;   /* pods compared with the kubelet's view */
    uint64_t not_isolated; /* containers without the isolation that their pod asks for */
};

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
    uint64_t rejected_epoch; /* number of the kubelet's start in which it was rejected */
    bool env_override_reported, mismatch_reported, isolation_reported;
    struct pod_patch cards;    /* that were chosen here */
    struct pod_patch assigned; /* the ASSIGNED annotation */
    int64_t reconciled_ms;
    int64_t first_seen_ms;
};

/* One of its containers. */
struct alloc_target {
    struct local_pod *local;
    size_t container; /* index in local->pod->containers */
};

static inline const struct pod_allocation_container *
alloc_target_container(const struct alloc_target *t)
{
    return &t->local->pod->containers[t->container];
}

/* A device id of the kubelet, decoded. */
struct device_id {
    const struct plugin_card *card;
    int64_t number; /* of the unit or slot; -1: the whole card */
    enum ids_resource resource;
};

/* A request of the kubelet, decoded. Functions that take one return false with the
 * rejection. */
struct kubelet_request {
    enum ids_resource resource;
    uint64_t serial; /* they are numbered from 1 */
    int64_t began_ms;
    int64_t size; /* how many ids the container gets */
    struct device_id *ids, *must;
    size_t n_ids, n_must;
    struct rejection rejection;
    struct arena arena;
};

/* The kubelet's view: an answer of its podresources service. */
struct alloc_kubelet_view {
    uint64_t query;
    const struct podres_pod *pods; /* GET: one, or none if there is no such pod */
    size_t n_pods;
    const struct err *err; /* NULL: as above; else the call failed */
    bool unsupported;      /* GET: the kubelet does not implement it */
};

/* Outputs (base/step.h). The order is binding: an allocation is saved before it is
 * answered. One that cannot be saved is answered too. */

enum alloc_output_type {
    ALLOC_QUERY, /* call podresources Get for the pod ns/name, or List if there is none;
                      * the answer is an ALLOC_IN_PODRESOURCES */
    ALLOC_PREFERRED, /* answer request `token` with ids */
    ALLOC_ALLOCATED, /* answer request `token` of the pod ns/name with `response` */
    ALLOC_LIMIT,     /* the limits of the pod may have changed: `response` has them */
    ALLOC_REJECTED,  /* answer request `token` with an error, `text` */
    ALLOC_SAVE,      /* write the allocations to the state file */
    ALLOC_PATCH, /* patch the annotations `text` (JSON) of the pod ns/name with this uid */
    ALLOC_EVENT,  /* write a Warning event of the pod ns/name: `reason`, `text` */
    ALLOC_RELIST, /* list the pods of this node instead of waiting for the watch, those of
                         * HAMi by `dialect`, or NULL */
    ALLOC_READ_NODE,    /* read the Node; the answer is an ALLOC_IN_NODE */
    ALLOC_CHECK_LIMITS, /* check the files of the limits; a pod without its limit is an
                         * ALLOC_IN_UNLIMITED */
    ALLOC_LIMIT_DEVICES, /* define the CDI devices of the driver's limits as the allocations
                          * and the driver now say: of the pod `uid`, or of all, and no others */
    ALLOC_DEVICES,       /* send the device list to the open ListAndWatch streams */
};

struct alloc_output {
    enum alloc_output_type type;
    uint64_t query;
    uint64_t token;
    enum rejection_reason rejection;
    const struct dialect *dialect;
    const char *ns, *name, *uid;
    const char *reason, *text;
    const struct span *ids;
    size_t n_ids;
    const struct response *response;
};

struct alloc_state {
    /* Of the step that runs. */
    struct step_time now;
    struct step_outputs *out;

    struct alloc_settings settings;
    struct cards cards;
    struct allocation_set allocations;
    bool dirty;       /* they have changed since the last ALLOC_SAVE */
    struct list pods; /* struct local_pod, in order of arrival */
    bool listed;      /* the pods of this node */
    /* podresources has listed what all containers hold: slots are not registered before, so that
     * ids of another plugin are never missing. */
    bool surveyed;
    bool admits;      /* a request is under way, or an Allocate must follow */
    uint64_t list;    /* number of pod lists */
    uint64_t queries; /* number of podresources calls */
    bool no_get;      /* the kubelet does not implement Get */
    struct driver_node driver_node;
    bool node_read;
    char dialect[64]; /* of this node, after that; as in struct scv */
    bool
        driver_known; /* the Node and the driver were read: whether the driver can limit */
    char no_driver[256]; /* why not; empty: it can */
    /* Of podresources. With a reconcile interval of 0 only a container's request detects a
     * failure; its end is always detected. */
    struct step_failure podresources;
    struct step_failure node; /* of reading the Node */
    int64_t due_ms;           /* mono_ms of the next required ALLOC_IN_TICK */
    struct alloc_stats stats;
};

struct local_pod *alloc_state_pod(const struct alloc_state *s, struct span uid);
/* Of several pods with this name: the one that is not terminal, else the newest. */
struct local_pod *alloc_state_pod_by_name(const struct alloc_state *s, struct span ns,
                                          struct span name);
/* The allocation of a container; NULL: none. */
struct allocation *alloc_state_allocation(const struct alloc_state *s,
                                          const struct pod_allocation *pod,
                                          const struct pod_allocation_container *c);
/* Has every container of the pod an allocation? */
bool alloc_state_is_complete(const struct alloc_state *s,
                             const struct pod_allocation *pod);
/* Lists the pods, as those of the dialect that is served. */
void alloc_state_relist(struct alloc_state *s);
void alloc_state_drop(struct alloc_state *s, struct allocation *al);
/* The cards that allocations of the pod have, each once; without a UID those of all pods.
 * Returns their number. */
size_t alloc_state_cards_of(const struct alloc_state *s, struct span uid,
                            struct promise_share cards[CARDS_MAX]);
/* Assigns an unpromised pod the cards that its containers hold already. */
void alloc_state_assign_held(struct alloc_state *s, struct pod_allocation *pod);

/* Outputs and log lines of the step that runs. */
struct alloc_output *alloc_state_output(struct alloc_state *s,
                                        enum alloc_output_type type);
struct alloc_output *alloc_state_output_of(struct alloc_state *s,
                                           enum alloc_output_type type,
                                           const struct pod_allocation *pod);
/* ALLOC_QUERY for the pod; NULL: a List. Returns its number. */
uint64_t alloc_state_query(struct alloc_state *s, const struct pod_allocation *pod);
/* ALLOC_EVENT */
void alloc_state_event(struct alloc_state *s, const struct pod_allocation *pod,
                       const char *reason, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
#define alloc_state_log(s, level, ...)                                                   \
    step_log((s)->out, level, "allocator", ERR_NONE, __VA_ARGS__)
/* ALLOC_SAVE, if allocations have changed */
void alloc_state_save(struct alloc_state *s);
/* ALLOC_PATCH of the annotations that are due: the cards that were chosen here, and ASSIGNED
 * once each container has an allocation. */
void alloc_state_annotate(struct alloc_state *s, struct local_pod *p);
/* Stands for the UID of a static pod, which has no mirror pod yet that could be annotated or
 * listed. To free. */
char *alloc_state_static_uid(struct span ns, struct span name);
bool alloc_state_is_static(struct span uid);
