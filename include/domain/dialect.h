/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/pod.h"

/*
 * Requests in the words of another system. A dialect is a table of its resources and annotations,
 * and of what it makes of them: HAMi's is the first. The amounts are those that HAMi 2.10 itself
 * computes; dialect_join has the differences.
 *
 * request_of makes a request of it: of whole cards if the pod is `alone` there, else of memory in
 * slots, with the part of each container in MiB or percent.
 */

/* Limits of a container: different cards; on each of them MiB (times the factor), or percent of its
 * memory; and percent of its compute, where 100 leaves the card to no other pod. */
enum dialect_limit {
    DIALECT_CARDS,
    DIALECT_MEMORY,
    DIALECT_PERCENT,
    DIALECT_CORES,
    DIALECT_LIMITS,
};

/* Annotations of a pod. The first four are lists with commas: words in the name of a model, in any
 * case, and UUIDs, that a card must have or must not have. A list of more than DIALECT_LIST_MAX
 * bytes, or of words of more than DIALECT_TYPES_MAX, accepts no card. The last two are that
 * system's promise: a node and its cards. */
enum {
    DIALECT_LIST_MAX = 4096,
    DIALECT_TYPES_MAX = 256
}; /* they are searched for each card */
enum dialect_note {
    DIALECT_USE_TYPE,
    DIALECT_NOUSE_TYPE,
    DIALECT_USE_UUID,
    DIALECT_NOUSE_UUID,
    DIALECT_POLICY,
    DIALECT_NUMA,
    DIALECT_MODE,
    DIALECT_NODE,
    DIALECT_ALLOCATED,
    DIALECT_NOTES,
};

/* The options of that system are fields of its table: defaultGPUNum, defaultMemory and
 * defaultCores are `absent`, memoryFactor is `factor`, and the names are `key`. */
struct dialect {
    struct dialect_rule {
        struct span key;
        /* What counts without the limit; for MEMORY, without any part of the memory (0: all of it).
         * CARDS 0: a container without that limit asks for nothing. */
        int64_t absent;
        int64_t factor; /* of the limit, at least 1 */
        int64_t most;   /* after the factor */
        bool capped;    /* more counts as the most; else the pod is invalid */
    } limits[DIALECT_LIMITS];
    bool percent_wins; /* over MEMORY, if both are above 0; else MEMORY does */
    /* Admission sets CORES to 100 beside all of the memory, unless the container has CORES. */
    bool alone_by_default;
    struct span notes[DIALECT_NOTES];
    struct span mode; /* that of our cards: a part of DIALECT_MODE, if a pod has one */
};
extern const struct dialect dialect_hami;

/* Sets fields as the values of HAMi's chart name them: "resourceName=nvidia.com/gpu,
 * defaultMemory=4000". Also resourceMem, resourceMemPercentage, resourceCores, defaultCores,
 * defaultGPUNum, memoryFactor. Borrows the names from the text. */
int dialect_configure(struct dialect *d, struct span text, struct err *err);

struct dialect_container {
    struct dialect_container *next;
    struct span name, limits[DIALECT_LIMITS]; /* raw; {NULL, 0} if absent */
    enum container_role role;
    uint32_t index; /* as in struct pod_container */
    /* By dialect_request; valid if cards > 0. */
    uint32_t cards;
    int64_t mib; /* on each card; 0: `percent` of it, rounded down */
    uint8_t percent, cores;
    enum dialect_limit by; /* decided the memory; CARDS: the default did */
    /* What admission adds to the limits; 0: nothing. Without its limit of CARDS the kubelet
     * gives the container no card. */
    int64_t set[DIALECT_LIMITS];
};

struct dialect_pod {
    const struct dialect *d;
    struct dialect_container *containers, **end; /* in the arena; those with a limit */
    struct span notes[DIALECT_NOTES];            /* raw */
    bool certain; /* has limits or annotations that are not NVIDIA's device plugin's */
    /* By dialect_join; cards 0: it needs none. */
    uint32_t cards;
    uint8_t cores; /* percent of each card */
    bool alone;    /* with no other pod on its cards */
    bool one_numa; /* all cards on one NUMA node */
    enum request_placement placement;
};

/* Reads a Pod beside pod_read. Texts are borrowed as there. */
void dialect_read(struct jread *j, struct arena *a, const struct dialect *d,
                  struct dialect_pod *pod);

/* Computes what each container asks for. -1 if a limit is no whole number or out of range. */
int dialect_request(struct dialect_pod *pod, struct err *err);

/* Combines what the containers ask for: they share the cards of the pod, where HAMi places each
 * for itself. -1 if they cannot, or if the pod asks for a mode that our cards do not have. */
int dialect_join(struct dialect_pod *pod, struct err *err);

/* MiB that the pod needs on each of its cards, if one has total_mib, of which usable_mib can be
 * promised; above usable_mib: it does not fit. What a container asks for between the two is all
 * of usable_mib, because the rest is the driver's. Containers add up as in Kubernetes. */
int64_t dialect_mib(const struct dialect_pod *pod, int64_t usable_mib, int64_t total_mib);

/* Do the lists, which are the first four of enum dialect_note, accept a card? False if they have a
 * rule about an empty text. `model` is NVML's name; HAMi writes "NVIDIA-" before one that does not
 * begin with NVIDIA. NULL: whatever it is. */
bool dialect_accepts(const struct span *lists, const struct span *model,
                     const struct span *uuid);

/* Appends the request in both languages: "nvidia.com/gpumem 3000 on 1 card = 3000 MiB". The
 * sizes are as for dialect_mib; 0: unknown, and a percentage is not translated. */
void dialect_write(struct buf *out, const struct dialect_pod *pod, int64_t usable_mib,
                   int64_t total_mib);

/* What that system has promised to a bound pod: MiB and percent of compute on each card. The
 * share of init containers stays, as in limits_of, where HAMi takes it back. */
struct dialect_promise {
    struct dialect_share {
        struct span uuid;
        int64_t mib, cores;
        int64_t
            percent; /* of the card's memory, by the limits: at least this much counts */
        int64_t slots;                /* containers that have it at once */
        struct container_sum sums[4]; /* of these */
    } shares[REQUEST_MAX_CARDS];
    size_t n; /* 0: none */
};

/* Reads the annotations of a pod on `node`, after dialect_request. What the limits ask for counts
 * if it is more, because tenants can edit annotations. -1: they exist and cannot be read, or
 * contradict the node or the containers. The pod may then use any card: count it on all cards of
 * its node, as one with a UUID that no card of the node has. */
int dialect_promise(const struct dialect_pod *pod, struct span node,
                    struct dialect_promise *promise, struct err *err);
