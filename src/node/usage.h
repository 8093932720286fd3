/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "domain/scv.h"
#include "gpu/gpu.h"

/*
 * What each container uses of each card, beside what it was promised. Pure: the caller
 * reads NVML (gpu/gpu.h), /proc (node/process.h) and the kubelet, and this module
 * joins the three. The same input gives the same result, in the same order.
 *
 *     NVML       card -> processes with bytes and SM utilization
 *     /proc      process -> container ID and pod UID, or outside Kubernetes
 *     kubelet    container ID -> namespace, pod and container; container -> promise
 *
 * A number that was not measured is -1, never 0 and never a guess. Where `complete` of a card
 * is false, another process may use memory that nobody is named for: what its containers use
 * are lower bounds. A process of which it is not known where it runs is an item of its own.
 *
 * Cards in MIG mode are left out: their instances are cards.
 */

enum {
    USAGE_NAME = 64,    /* of a process; longer ones are cut */
    USAGE_MAX_IDS =
        32768, /* containers that the kubelet names; further ones are dropped */
};

/* A process. A pid alone does not identify it: the kernel reuses pids. */
struct usage_pid {
    int64_t pid;      /* as seen from the host */
    uint64_t started; /* field 22 of /proc/PID/stat: clock ticks since the boot */
};

/* One card that NVML lists. */
struct usage_card {
    int32_t index;               /* of NVML */
    struct span uuid;            /* empty: unknown */
    int64_t total_mib, free_mib; /* of the card; -1: unknown */
    bool processes_known;        /* NVML listed its processes */
    bool complete;               /* and every one was measured and mapped */
};

/* One container on one card: it uses the card, or was promised a part of it. */
struct usage_container {
    size_t card;               /* index in usage.cards */
    struct span pod_uid;       /* of the API, with '-'; empty: no process, so unknown */
    struct span container_id;  /* of the runtime; empty: no process, so unknown */
    struct span ns, pod, name; /* of the container; each empty when it is unknown */
    int64_t
        used_mib; /* of all its processes, or what the driver measures if that is more;
                         rounded up; -1: unknown */
    int64_t sm_percent;   /* 0..100, of all its processes; -1: unknown */
    int64_t promised_mib; /* on this card; 0: on other cards only; -1: unknown, as for a
                             container without a device of the kubelet */
    bool promise_unclear; /* there may be more: an unknown amount, a card without a UUID,
                             or a container that is not known to be listed */
    bool init;            /* a plain init container whose promise is known */
    const struct usage_pid *pids; /* in NVML's order; none: it uses nothing */
    size_t n_pids;
    int64_t
        unlimited_mib; /* of used_mib: by those that run without the limit of the pod */
    /* How many of them have a slot, and of used_mib: what these slots do not count, or count
     * as contexts. */
    int64_t n_slots, context_mib;
    bool by_driver; /* its cgroup has a limit, so the driver measures it, with contexts */
    bool has_library; /* its pod has the files of libgpushare-limit.so */
    uint8_t
        enforced_by; /* SCV_ISOLATION_ of domain/scv.h: what holds it to its promise */
};

/* What a plain init container was promised on one card, and the sidecars of its pod; each
 * container and card once. The pod keeps it while it exists: it is promised what its other
 * containers are promised together, or what an init container and the sidecars beside it
 * are, whichever is more (domain/request.h). */
struct usage_init_promise {
    struct span pod_uid, ns, pod, container;
    struct span uuid;   /* of the card */
    int64_t mib;        /* -1: promised, but the amount is unknown */
    int64_t beside_mib; /* of the pod's sidecars, also of those that start later; -1 */
    size_t card;        /* index in usage.cards; set by usage_build */
};

/* One process on one card that belongs to no container of Kubernetes, or (`unmapped`) of
 * which this is not known. */
struct usage_process {
    size_t card; /* index in usage.cards */
    struct usage_pid pid;
    bool unmapped;         /* may be in a container; its card is not complete */
    char name[USAGE_NAME]; /* in printable ASCII, others are '?'; may be empty */
    int64_t used_mib;      /* rounded up; -1: unknown */
    int64_t sm_percent;    /* 0..100; -1: unknown */
};

/* {0}: nothing measured. */
struct usage {
    int64_t taken_ms;               /* monotonic time of the sample */
    int64_t promised_ms;            /* when the promises were read; 0: never */
    const struct usage_card *cards; /* by rising index */
    size_t n_cards;
    /* By card, namespace, pod, name, pod UID and container ID. */
    const struct usage_container *containers;
    size_t n_containers;
    const struct usage_init_promise *inits; /* in no order */
    size_t n_inits;
    const struct usage_process *outside; /* by card and pid */
    size_t n_outside;
    struct arena arena; /* owns all of the above and their strings */
};

void usage_fini(struct usage *u);

/* -- input -- */

/* What the driver says of a container's cgroup on a card (node/limit_readback.h). */
struct usage_limit {
    struct span ns, pod, container, pod_uid, container_id;
    struct span uuid; /* of the card */
    int32_t index;
    int64_t set_mib;    /* by its allocation; 0: none */
    uint64_t hard;      /* bytes; GPU_NO_LIMIT: none */
    int64_t used;       /* bytes; -1: not measured, because it has no limit */
    int64_t missing_ms; /* since then it is not the one that was set; 0: it is */
    bool missing;       /* for a while */
};

enum usage_place_kind {
    USAGE_OUTSIDE,   /* in no container of Kubernetes */
    USAGE_CONTAINER, /* in one */
    USAGE_UNMAPPED,  /* cannot be read, or ambiguous */
    USAGE_ENDED,     /* the process ended after NVML listed it: it uses nothing */
};

/* What a process of a pod that has a limit counts of a card, as libgpushare-limit.so does. */
struct usage_slot {
    struct span uuid; /* empty: any card */
    int64_t used;     /* bytes; -1: it counts nothing, and runs without the limit */
    int64_t context;  /* of `used`: its contexts */
};

/* Where a process runs. */
struct usage_place {
    struct usage_pid pid;
    enum usage_place_kind kind;
    struct span container_id, pod_uid; /* of USAGE_CONTAINER */
    /* The base name of the executable, or comm, which the process chooses; any bytes. */
    struct span name;
    /* Of limit_slots.h. NULL: its pod has no limit. */
    struct usage_slot *slots; /* of the cards that the pod was promised */
    size_t n_slots;
    int64_t own_pid; /* in its pid namespace */
};

/* The names of a container, from the kubelet. With a UID of the pod, the ID is only the begin
 * of it: of several containers of that begin, one that the kubelet lists is taken. */
struct usage_name {
    struct span container_id, ns, pod, container;
    struct span pod_uid;
};

/* What a container was promised on a card. The promises of a container on a card add
 * up. */
struct usage_promise {
    struct span ns, pod, container;
    struct span uuid; /* of the card */
    int64_t mib;      /* -1: promised, but the amount is unknown */
};

/* A container that the kubelet lists, with devices or without. It does not list plain init
 * containers, which can have devices, too, and ephemeral containers, which cannot. */
struct usage_listed {
    struct span ns, pod, container;
};

struct usage_input {
    int64_t taken_ms;
    const struct gpu_sample *sample;  /* NULL: it failed */
    const struct usage_place *places; /* by rising pid, each pid once */
    size_t n_places;
    const struct usage_name *names; /* in any order */
    size_t n_names;
    const struct usage_promise *promises; /* in any order */
    size_t n_promises;
    const struct usage_init_promise *inits; /* in any order */
    size_t n_inits;
    bool inits_known;                  /* of all pods that are listed */
    const struct usage_listed *listed; /* in any order */
    size_t n_listed;
    bool promises_known;              /* false: what is promised to whom is unknown */
    int64_t promised_ms;              /* monotonic time when the promises were read */
    const struct usage_limit *limits; /* in any order */
    size_t n_limits;
    const struct span *readable; /* UUIDs of the cards whose driver has limits */
    size_t n_readable;
    const struct usage_listed *library; /* whose pods have the files of the library */
    size_t n_library;
    uint8_t isolation; /* of the node: bits of domain/scv.h */
};

/* Joins the input into *u, which is replaced. Everything is copied.
 *
 * A card is complete when NVML listed its processes with their bytes, and each of them has
 * a place that is not USAGE_UNMAPPED. A process that has no place counts as unmapped. The
 * names do not matter for that: the pod UID identifies the pod. */
void usage_build(const struct usage_input *in, struct usage *u);
