/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/object.h"
#include "domain/terms.h"

/*
 * CPU, memory and pod slots: what pods request of a node, and what a node offers to them.
 */

/* A larger amount counts as this. No node has as much; and the sum over all pods that one
 * API server can store does not overflow. */
#define RESOURCES_MAX ((int64_t)1 << 46)

struct resources {
    int64_t cpu_milli; /* thousandths of a core */
    int64_t memory;    /* bytes */
    int64_t pods;      /* slots: 1 for a pod */
};

static inline void resources_add(struct resources *sum, const struct resources *more)
{
    sum->cpu_milli += more->cpu_milli;
    sum->memory += more->memory;
    sum->pods += more->pods;
}

static inline bool resources_equal(const struct resources *a, const struct resources *b)
{
    return a->cpu_milli == b->cpu_milli && a->memory == b->memory && a->pods == b->pods;
}

/* Decides how the requests of a container add up to those of its pod. */
enum container_role {
    CONTAINER_APP,     /* spec.containers */
    CONTAINER_SIDECAR, /* spec.initContainers with restartPolicy Always */
    CONTAINER_INIT,    /* spec.initContainers that end before the others start */
};

/* Sums of one resource over the containers of a pod, at most RESOURCES_MAX * 1000 each.
 * Sidecars and init containers are added in the order in which they start. App containers do
 * not change the peak, so their position does not matter. */
struct container_sum {
    int64_t running;  /* app containers and sidecars */
    int64_t peak;     /* maximum of the init phase */
    int64_t sidecars; /* sidecars that have started so far */
};
void container_sum_add(struct container_sum *sum, enum container_role role,
                       int64_t amount);
static inline int64_t container_sum_most(const struct container_sum *sum)
{
    return sum->running > sum->peak ? sum->running : sum->peak;
}

/* What a pod can ask for, in any words (domain/request.h, domain/dialect.h). */
enum request_placement { PLACE_BINPACK, PLACE_SPREAD };

enum {
    REQUEST_MAX_CARDS = 64,   /* per pod */
    REQUEST_MAX_MODELS = 256, /* bytes of the annotation */
    REQUEST_CORE = 100,       /* percent: the compute of a card */
};

/*
 * A pod: the fields that GPU scheduling needs. domain/request.h and domain/promise.h
 * interpret its limits and annotations.
 */

enum pod_phase { POD_PENDING, POD_RUNNING, POD_SUCCEEDED, POD_FAILED, POD_UNKNOWN };

enum { POD_LIMITS = 5 }; /* of one container */

/* A container with a limit of our resources or of nvidia.com/gpu. */
struct pod_container {
    enum container_role role;
    uint32_t index; /* in the allocation annotation: spec.containers from 0, then
                       sidecars; unused for INIT */
    uint32_t order; /* position in its own list */
    union {
        struct span limits[POD_LIMITS]; /* raw; {NULL, 0} if absent */
        struct {
            struct span mem;             /* aliyun.com/gpu-mem */
            struct span cards;           /* aliyun.com/gpu-count */
            struct span devices;         /* nvidia.com/gpu */
            struct span slots;           /* aliyun.com/gpu-share */
            struct span compute_percent; /* aliyun.com/gpu-core.percentage */
        };
    };
    struct span name;
    bool own_devices; /* its env sets NVIDIA_VISIBLE_DEVICES */
    bool own_preload; /* its env sets LD_PRELOAD */
    bool privileged;  /* it has every device of its node */
    /* When it began to run, by its status, in seconds since 1970. 0: it does not run, or the
     * status does not say since when. */
    int64_t started_s;
};

/* What names the gang of a pod, raw; domain/gang.h interprets it. Empty: absent. */
struct pod_gang {
    struct span group;                             /* spec.schedulingGroup.podGroupName */
    struct span workload, workload_group, replica; /* spec.workloadRef */
    struct span coscheduling, old_group, old_name; /* labels of the coscheduling plugin */
    struct span kueue;                             /* label */
    struct span volcano, volcano_kube;             /* annotations */
    struct span kueue_total, old_minimum, minimum; /* numbers of members */
};

struct pod {
    struct object_meta meta;
    struct span object; /* its JSON */
    struct span terms[TERMS_TEXTS];
    struct span node;           /* spec.nodeName; empty: not bound */
    struct span nominated_node; /* status.nominatedNodeName */
    struct span scheduler;      /* spec.schedulerName */
    enum pod_phase phase;
    int64_t
        bound_s; /* when it was bound, since 1970: its condition PodScheduled; 0: unknown */
    int64_t priority;
    struct resources requests; /* of CPU and memory, as kube-scheduler counts them */

    struct pod_container *containers; /* in the arena; only those with a limit */
    size_t n_containers;

    struct span count_label, count_annotation,
        placement;                                 /* further parts of the request */
    struct span memory;                            /* annotation gpushare/memory */
    struct span models;                            /* annotation gpu.model */
    struct span min_link, topology;                /* annotations gpushare/... */
    struct span isolation;                         /* annotation gpushare/isolation */
    struct span scv_number, scv_memory, scv_clock; /* Yoda's labels */
    struct span idx, allocation, card_uuid, card_memory; /* its promise */
    struct span card_units;  /* annotation ALIYUN_COM_GPU_MEM_DEV */
    struct span units;       /* annotation ALIYUN_COM_GPU_MEM_POD */
    struct span memory_unit; /* annotation gpushare/memory-unit */
    struct span assume_time; /* annotation ALIYUN_COM_GPU_MEM_ASSUME_TIME */
    struct span assigned;    /* annotation: has the device plugin allocated it? */
    bool mirror;             /* the mirror pod of a static pod */
    bool daemon;             /* a DaemonSet owns it */
    bool never_preempts;     /* spec.preemptionPolicy is Never */
    bool gated;              /* spec.schedulingGates: no scheduler tries it yet */
    bool prefers; /* has preferences among the nodes that can take it: preferred affinity,
                     or topology spread with ScheduleAnyway */
    struct pod_gang gang;
};

/* Reads a Pod. */
void pod_read(struct jread *j, struct arena *a, struct pod *pod);

/* Is the phase Succeeded or Failed: no container runs again? */
bool pod_is_terminal(const struct pod *pod);
