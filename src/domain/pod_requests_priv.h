/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/jread.h"
#include "domain/resources.h"

/*
 * The effective requests of a pod, from the parts of its spec and status: what
 * kube-scheduler's NodeInfo counts on the pod's node. Source: PodRequests in
 * k8s.io/component-helpers/resource (v0.37), with the feature gates that Kubernetes 1.37
 * enables by default:
 *
 *   - app containers and sidecars add up; a plain init container runs only beside the
 *     sidecars that started before it; the larger sum counts
 *   - while a pod is resized in place, the maximum of three sums counts: of the spec, of
 *     what the kubelet allocated, and of what the containers have. Without the spec if the
 *     node cannot ever grant the resize
 *   - requests of the pod as a whole (spec.resources) replace those of its containers
 *   - the overhead of the pod is added
 *
 * Before 1.37 the maximum is taken per container: a difference only while containers of
 * one pod are resized in opposite directions. CPU and memory that a ResourceClaim takes from
 * the node (an alpha feature in 1.37) are not counted.
 *
 * {0} is the state before anything was read. The parts may come in any order.
 */

/* One ResourceList, in thousandths of a core or a byte. */
struct resource_list {
    int64_t cpu, memory;
    bool has_cpu, has_memory;
    bool has_any; /* another resource that a pod as a whole may request */
    bool present; /* the list is not null */
};

/* Sums over containers. */
struct container_sum {
    int64_t running;  /* app containers and sidecars */
    int64_t peak;     /* maximum of the init phase */
    int64_t sidecars; /* sidecars that have started so far */
};

struct container_sums {
    struct container_sum cpu, memory;
};

/* A container of the spec, or its status. */
struct container_entry {
    struct container_entry *next;
    struct span name;
    enum container_role role;       /* of the spec */
    struct resource_list spec;      /* of the spec */
    struct resource_list allocated; /* of the status */
    struct resource_list actuated;  /* of the status: resources.requests */
};

struct container_list {
    struct container_entry *first, **end;
    size_t n;
};

struct pod_requests_reader {
    struct container_sums spec; /* of all containers, however many */
    struct container_list containers, inits;
    struct container_list statuses, init_statuses; /* those with resources */
    struct resource_list overhead;
    struct resource_list pod_spec, pod_allocated,
        pod_actuated;    /* of the pod as a whole */
    bool has_pod_status; /* status.resources is not null */
    bool has_resize;     /* a condition PodResizePending ... */
    bool infeasible;     /* ... whose first one has this reason */
};

/* Reads a ResourceList. */
void resource_list_read(struct jread *j, struct arena *a, const char *where,
                        struct resource_list *list);
/* Adds a container of the spec. Those of one kind come in their order. */
void pod_requests_add_container(struct pod_requests_reader *r, struct arena *a,
                                enum container_role role, struct span name,
                                const struct resource_list *spec);
/* Each reads the value of a member: spec.resources; status.containerStatuses or
 * status.initContainerStatuses; status.resources; status.conditions. */
void pod_requests_read_pod_level(struct jread *j, struct arena *a,
                                 struct pod_requests_reader *r);
void pod_requests_read_statuses(struct jread *j, struct arena *a,
                                struct pod_requests_reader *r, bool init);
void pod_requests_read_pod_status(struct jread *j, struct arena *a,
                                  struct pod_requests_reader *r);
void pod_requests_read_conditions(struct jread *j, struct pod_requests_reader *r);
/* When all is read. */
struct resources pod_requests_of(const struct pod_requests_reader *r);
