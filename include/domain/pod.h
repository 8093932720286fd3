/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/object.h"

/*
 * A pod as the API server sends it, cut down to what GPU scheduling needs. What its
 * container limits and annotations mean: domain/request.h and domain/promise.h.
 */

enum pod_phase { POD_PENDING, POD_RUNNING, POD_SUCCEEDED, POD_FAILED, POD_UNKNOWN };

enum container_role {
    CONTAINER_APP,     /* spec.containers */
    CONTAINER_SIDECAR, /* spec.initContainers with restartPolicy Always */
    CONTAINER_INIT,    /* spec.initContainers that end before the others start */
};

/* A container that asks for one of our resources, or for nvidia.com/gpu. */
struct pod_container {
    enum container_role role;
    uint32_t index;      /* in the allocation annotation: spec.containers count from 0,
                            sidecars follow after them; of no meaning for INIT */
    uint32_t order;      /* position in its own list */
    struct span mem;     /* limit of aliyun.com/gpu-mem, raw; {NULL, 0} if absent */
    struct span cards;   /* limit of aliyun.com/gpu-count */
    struct span devices; /* limit of nvidia.com/gpu */
    struct span name;
    bool own_devices; /* its env sets NVIDIA_VISIBLE_DEVICES */
};

struct pod {
    struct object_meta meta;
    struct span node;           /* spec.nodeName; empty while not bound */
    struct span nominated_node; /* status.nominatedNodeName */
    enum pod_phase phase;
    int64_t priority;

    struct pod_container *containers; /* in the arena; only those that ask */
    size_t n_containers;

    struct span count_label, count_annotation, placement; /* what it asks besides */
    struct span models;                                   /* annotation gpu.model */
    struct span scv_number, scv_memory, scv_clock;        /* Yoda's labels */
    struct span idx, allocation, card_uuid, card_memory;  /* what it was promised */
    struct span card_units; /* annotation ALIYUN_COM_GPU_MEM_DEV */
    struct span assigned; /* annotation that says whether it got it, "true" or "false" */
    bool mirror;          /* it stands for a static pod of its node */
};

/* Reads a Pod. */
void pod_read(struct jread *j, struct arena *a, struct pod *pod);

/* Has the pod ended: will none of its containers ever run again? */
bool pod_is_terminal(const struct pod *pod);
