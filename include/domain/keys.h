/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Names that other programs and the users' objects depend on. None of them may change.
 */

/* Extended resources, and the label or annotation that splits memory over cards. */
#define KEY_GPU_MEM   "aliyun.com/gpu-mem"
#define KEY_GPU_COUNT "aliyun.com/gpu-count"
/* Share of a card's compute, in percent. The name is that of Alibaba Cloud's ACK. */
#define KEY_GPU_CORE "aliyun.com/gpu-core.percentage"

/* Slots, each on another card; the annotation of the pod says how much memory of each card. */
#define KEY_GPU_SHARE "aliyun.com/gpu-share"
#define KEY_MEMORY    "gpushare/memory"

/* Whole cards, allocated by NVIDIA's device plugin. */
#define KEY_NVIDIA_GPU "nvidia.com/gpu"

/* Annotation of a pod: only cards of these models (comma-separated). */
#define KEY_GPU_MODEL "nvidia-gpu-scheduler/gpu.model"

/* Annotations of a pod: how each two of its cards are connected at least, and whether what connects
 * them decides which it gets. */
#define KEY_MIN_LINK "gpushare/min-link"
#define KEY_TOPOLOGY "gpushare/topology"

/* Labels of a pod: its request to Yoda-Scheduler. */
#define KEY_SCV_NUMBER "scv/number"
#define KEY_SCV_MEMORY "scv/memory"
#define KEY_SCV_CLOCK  "scv/clock"

/* Annotations of a pod, written in the Binding. The first five are the Go extender's. */
#define KEY_MEM_IDX         "ALIYUN_COM_GPU_MEM_IDX"
#define KEY_MEM_DEV         "ALIYUN_COM_GPU_MEM_DEV"
#define KEY_MEM_POD         "ALIYUN_COM_GPU_MEM_POD"
#define KEY_MEM_ASSIGNED    "ALIYUN_COM_GPU_MEM_ASSIGNED"
#define KEY_MEM_ASSUME_TIME "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
#define KEY_ALLOCATION      "scheduler.framework.gpushare.allocation"
#define KEY_CARD_UUID       "gpushare/card-uuid"
#define KEY_CARD_MEMORY     "gpushare/card-memory" /* of a pod of labels or slots */
#define KEY_MEMORY_UNIT     "gpushare/memory-unit" /* MiB of one unit of gpu-mem */

/* Annotation of a pod: its placement policy. Label of a node: the kind of pods it
 * accepts. Annotation of a node: changed when it gained free memory for pending pods. */
#define KEY_PLACEMENT  "gpushare/placement"
#define KEY_NODES      "gpushare" /* label: "false" leaves a node out */
#define KEY_MODE       "gpushare/mode"
#define KEY_ROOM_SINCE "gpushare/room-since"

/* Annotation of the pods of the chart's kube-scheduler: the hash of the ca.crt that they read. */
#define KEY_CA_CHECKSUM "gpushare/ca-checksum"

/* Label or annotation of a template Node, which an autoscaler sends: its cards. */
#define KEY_CARDS "gpushare.io/cards"
/* Annotation of a Node, by HAMi: cards that get no new request in its words. */
#define KEY_HAMI_CORDON "hami.io/device-cordon"

/* Of the device plugin's rejection, in an Event's note and a pod's status.message. */
#define KEY_NO_PROMISE "has no promised card"

/* ConfigMaps of the Go extender that make cards unavailable: <prefix><node>, key "gpus". */
#define KEY_UNHEALTHY_NAMESPACE "kube-system"
#define KEY_UNHEALTHY_PREFIX    "unhealthy-gpu-"
#define KEY_UNHEALTHY_DATA      "gpus"

/* ConfigMap of that namespace: HAMi's annotations count on pods bound until its creation. */
#define KEY_TAKEOVER "gpushare-takeover-hami"

/* Annotation of a pod: how its promise is enforced in its containers. */
#define KEY_ISOLATION "gpushare/isolation"
#define KEY_PRELOAD   "LD_PRELOAD" /* variable of the dynamic linker */

/* Label of a node: its containers get CGPU_DISABLE=true. */
#define KEY_CGPU_DISABLE "cgpu.disable.isolation"

/* Label of a node: what nvidia.com/gpu means there, whatever --requests-of says: hami or none. */
#define KEY_DIALECT "gpushare/dialect"

/* Annotation of a mirror pod: the API object of a static pod. */
#define KEY_MIRROR "kubernetes.io/config.mirror"

/* Environment variable that names a container's cards to its runtime. */
#define KEY_VISIBLE_DEVICES "NVIDIA_VISIBLE_DEVICES"

/* Environment variable: the units of this container on all its cards. */
#define KEY_MEM_CONTAINER "ALIYUN_COM_GPU_MEM_CONTAINER"

/* Environment variable: the NUMA node of all cards of the container. */
#define KEY_NUMA_NODE "GPUSHARE_NUMA_NODE"

/* Heartbeat Leases of scv-agent, named like the node. */
#define KEY_LEASE_NAMESPACE "nvidia-gpu-scheduler-node-lease"

/* Labels and annotations that make a pod a member of a gang (domain/gang.h). The first three
 * are labels of the coscheduling plugin (sigs.k8s.io/scheduler-plugins), newest first; the
 * minimum is a label of the oldest. */
#define KEY_COSCHEDULING         "scheduling.x-k8s.io/pod-group"
#define KEY_COSCHEDULING_GROUP   "pod-group.scheduling.sigs.k8s.io"
#define KEY_COSCHEDULING_NAME    "pod-group.scheduling.sigs.k8s.io/name"
#define KEY_COSCHEDULING_MINIMUM "pod-group.scheduling.sigs.k8s.io/min-available"
#define KEY_KUEUE_GROUP          "kueue.x-k8s.io/pod-group-name"        /* label */
#define KEY_KUEUE_TOTAL          "kueue.x-k8s.io/pod-group-total-count" /* annotation */
#define KEY_VOLCANO_GROUP        "scheduling.volcano.sh/group-name"     /* annotation */
#define KEY_VOLCANO_KUBE_GROUP   "scheduling.k8s.io/group-name"         /* annotation */
#define KEY_GANG_MINIMUM         "gpushare/gang-minimum" /* annotation; ours */
