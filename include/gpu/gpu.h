/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * A source of card data: NVML, or a file for demo and tests.
 *
 * The caller takes a sample, waits for events until the next sample is due, and so on. A
 * source is opened lazily: creating it never fails, and after an error the next sample
 * opens it again. A driver that is loaded later, or reloaded, needs no restart.
 *
 * One thread at a time uses a source. (NVML allows several, but not for an event set, and
 * not during a shutdown.)
 *
 * A property that a card does not support is unknown; that is no error. A failed card is
 * in the sample, with its state and the reason.
 *
 * Calls into NVML have no timeout: if the driver hangs in the kernel, so does the thread.
 * Only another thread can notice that.
 */

enum {
    GPU_MAX_CARDS = 64,    /* of a node, with the instances of cards in MIG mode */
    GPU_MAX_INSTANCES = 8, /* of a card */
    GPU_INDEXES = GPU_MAX_CARDS * (1 + GPU_MAX_INSTANCES), /* above any index */
    GPU_MAX_PROCESSES = 16384,                             /* per card */
    GPU_MAX_LINKED = 32, /* cards of a node; of more, the connections are unknown */
};

enum gpu_state { /* by rising severity: a card has the most severe one */
                 GPU_OK,
                 GPU_WARN, /* healthy, with a reason to act */
                 GPU_NOT_READY, /* CUDA cannot start on it, by its compute mode or NVLink fabric */
                 GPU_ECC,   /* row remapping failed, or a page retirement is pending */
                 GPU_RESET, /* the driver asks for a reset, or a reboot of the node */
                 GPU_UNREADABLE, /* its memory cannot be read, or its values are implausible */
                 GPU_MIG,  /* in MIG mode: its instances are cards, and it is none */
                 GPU_LOST, /* fell off the bus, or cannot be opened */
};

/* Metrics of a card, with their names in the file source. */
#define GPU_METRICS(X)                                                                   \
    X(GPU_MINOR, "minor")           /* of /dev/nvidia<minor> */                          \
    X(GPU_MEM_TOTAL, "memoryTotal") /* bytes, as the next three */                       \
    X(GPU_MEM_FREE, "memoryFree")                                                        \
    X(GPU_MEM_USED, "memoryUsed")         /* without the driver's reserve */             \
    X(GPU_MEM_RESERVED, "memoryReserved") /* by driver and firmware */                   \
    X(GPU_CLOCK_SM_MAX, "clockSmMax")     /* MHz, as the next one */                     \
    X(GPU_CLOCK_MEM_MAX, "clockMemoryMax")                                               \
    X(GPU_PCIE_GEN_MAX, "pcieGenerationMax")    /* of card and slot together */          \
    X(GPU_PCIE_WIDTH_MAX, "pcieWidthMax")       /* lanes */                              \
    X(GPU_POWER_LIMIT, "powerLimit")            /* milliwatts */                         \
    X(GPU_UTILIZATION, "utilization")           /* percent of time with a kernel */      \
    X(GPU_TEMPERATURE, "temperature")           /* degrees Celsius */                    \
    X(GPU_PAGES_PENDING, "retiredPagesPending") /* 0 or 1 */                             \
    X(GPU_REMAP_FAILED, "remapFailed")          /* 0 or 1 */                             \
    X(GPU_REMAP_PENDING, "remapPending")        /* 0 or 1 */                             \
    X(GPU_COMPUTE_MODE, "computeMode")          /* nvmlComputeMode_t; 0: default */      \
    X(GPU_FABRIC_STATE, "fabricState")   /* NVML_GPU_FABRIC_STATE_*; 0: no fabric */     \
    X(GPU_FABRIC_STATUS, "fabricStatus") /* of state 3, an nvmlReturn_t */               \
    X(GPU_RECOVERY, "recoveryAction")    /* recovery action; 0: none */                  \
    X(GPU_MIG_MODE, "migMode")           /* 0 or 1 */                                    \
    X(GPU_NUMA_NODE, "numaNode")         /* that the card is attached to */              \
    X(GPU_LINKS_DOWN,                                                                    \
      "linksDown") /* NVLinks that are down, of a card that had one up */                \
    X(GPU_INSTANCE, "gpuInstance") /* of an instance: its numbers on the card */         \
    X(GPU_COMPUTE_INSTANCE, "computeInstance")

#define GPU_METRIC_ID(id, word) id,
enum gpu_metric { GPU_METRICS(GPU_METRIC_ID) GPU_N_METRICS };
#undef GPU_METRIC_ID

/* The bits, as in struct gpu_card.known, of the metrics that do not change while the card is
 * there. A card that is lost keeps them. */
enum {
    GPU_CONSTANT = 1 << GPU_MINOR | 1 << GPU_MEM_TOTAL | 1 << GPU_MEM_RESERVED |
                   1 << GPU_CLOCK_SM_MAX | 1 << GPU_CLOCK_MEM_MAX |
                   1 << GPU_PCIE_GEN_MAX | 1 << GPU_PCIE_WIDTH_MAX |
                   1 << GPU_POWER_LIMIT | 1 << GPU_NUMA_NODE | 1 << GPU_INSTANCE |
                   1 << GPU_COMPUTE_INSTANCE
};

const char *gpu_metric_name(enum gpu_metric m);
const char *gpu_state_name(enum gpu_state s); /* "ok", "lost", ... */

struct gpu_process {
    int64_t pid;        /* as seen from the host, if this process is in its namespace */
    int64_t bytes;      /* of this card; -1: not known */
    int32_t sm_percent; /* 0..100, in the last seconds; -1: not known */
};

struct gpu_card {
    /* Of NVML; unique in a sample. Instance n of card i has GPU_MAX_CARDS +
     * GPU_MAX_INSTANCES * i + n. */
    int32_t index;
    enum gpu_state state;
    char why[200]; /* the reason; empty when the state is GPU_OK */
    /* Empty when unknown. UTF-8 without control characters. A UUID has only letters,
     * digits and hyphens, and is unique in a sample. */
    char uuid[96], model[96];
    char bus_id[32]; /* as 00000000:3B:00.0 */
    /* Of an instance, whose UUID is MIG-...: the card, and as "1g.10gb". Empty: a full card. */
    char parent_uuid[96], profile[32];
    /* Its row of `nvidia-smi topo -m`: a word for each card of the sample, with one space
     * between them, as "X NV2 SYS". Empty: unknown. */
    struct span links;
    bool events; /* gpu_wait returns XIDs of this card */
    /* The checks of its health that NVML should make and cannot, with the reasons; empty: none.
     * A source without events and checks, as a file, has no reason. */
    char unchecked[200];
    uint32_t known; /* bit m: value[m] is valid */
    int64_t value[GPU_N_METRICS];
    bool processes_known;                /* false: some may be missing */
    const struct gpu_process *processes; /* compute, graphics and MPS; by rising pid */
    size_t n_processes;
};

static inline bool gpu_knows(const struct gpu_card *c, enum gpu_metric m)
{
    return c->known >> m & 1;
}

/* The value; `otherwise` when it is unknown. */
static inline int64_t gpu_value(const struct gpu_card *c, enum gpu_metric m,
                                int64_t otherwise)
{
    return gpu_knows(c, m) ? c->value[m] : otherwise;
}

/* The same of bytes, in MiB, rounded down. */
static inline int64_t gpu_mib(const struct gpu_card *c, enum gpu_metric m,
                              int64_t otherwise)
{
    return gpu_knows(c, m) ? c->value[m] >> 20 : otherwise;
}

/* The cards of a node at one time. {0} is an empty sample. */
struct gpu_sample {
    char driver[80];        /* version, empty when unknown */
    char cuda[16];          /* newest version that it supports, empty when unknown */
    struct gpu_card *cards; /* by rising index */
    size_t n_cards;
    struct arena arena;
};

void gpu_sample_fini(struct gpu_sample *s);
#define cleanup_gpu_sample __attribute__((cleanup(gpu_sample_fini)))

enum gpu_event_kind {
    GPU_EVENT_NONE, /* the timeout expired */
    GPU_EVENT_XID,
    GPU_EVENT_ECC, /* an uncorrectable ECC error */
};

struct gpu_event {
    enum gpu_event_kind kind;
    int64_t xid; /* 999: an unknown XID */
    /* The card; empty and -1 when unknown. */
    char uuid[96];
    int32_t index;
};

struct gpu;

/* The library directories of a driver's root, in the order of search. On a merged /usr several
 * are the same directory. */
enum { GPU_LIBRARY_DIRS = 12 };
extern const char *const gpu_library_dirs[GPU_LIBRARY_DIRS];

/* NVML, opened by dlopen. `library`: a name or path; a directory, the root of a driver, in
 * whose library directories libnvidia-ml.so.1 is; NULL: libnvidia-ml.so.1. `unified_bytes`: see
 * gpu_open. New. */
struct gpu *gpu_nvml_new(const char *library, int64_t unified_bytes);

/*
 * A JSON file, read for every sample (replace it with rename). New.
 *
 *     {"driverVersion": "535.129.03", "cudaVersion": "12.2",
 *      "cards": [{"index": 0, "uuid": "GPU-0", "model": "Tesla T4",
 *                 "busId": "00000000:3B:00.0", "state": "ok", "why": "",
 *                 "memoryTotal": 16106127360, "memoryFree": 16106127360,
 *                 "processes": [{"pid": 7, "bytes": 1048576, "sm": 40}]}]}
 *
 * Metrics have the names of GPU_METRICS; an absent metric is unknown. The default of
 * index is the position in the list, that of memoryFree is total less used and reserved.
 * The state is derived from the metrics as with NVML, unless the file has one. "links" is the
 * row of `nvidia-smi topo -m`. An instance has "parentUUID" and "migProfile", and an index of
 * 64 or more. Unknown members are skipped.
 *
 * There are no events. {"error": "reason"} makes the sample fail.
 */
struct gpu *gpu_file_new(const char *path);

/* The source of --gpu-source: "nvml", "nvml:LIBRARY", "nvml:DIR" or "file:PATH". New.
 * `unified_bytes`: what --unified-memory says, 0 if nothing. NVML has no size for a card whose
 * memory is that of the system, as of GB10; then this is its size, and what its processes use is
 * their sum. */
struct gpu *gpu_open(const char *source, int64_t unified_bytes, struct err *err);

void gpu_free(struct gpu *g); /* NULL is accepted */

/* Reads all cards into *s and drops its previous content; after an error it is empty.
 * ERR_NOT_FOUND: no NVML, or no such file; ERR_GONE: NVML answers 999 or 18, as for ever in a
 * container that has lost the driver; ERR_UNAVAILABLE: the driver is not loaded, or another
 * temporary failure; ERR_INVALID: the file is not as above. */
int gpu_sample(struct gpu *g, struct gpu_sample *s, struct err *err);

/* Waits for an event, at most `timeout_ms`; GPU_EVENT_NONE when there was none, possibly
 * early. -1 at once when there are no events to wait for: no sample yet, no card with
 * events, no driver. The caller must wait itself then. */
int gpu_wait(struct gpu *g, int timeout_ms, struct gpu_event *event, struct err *err);

/*
 * The driver's own limit of the memory of a card that the processes of a cgroup use, whatever
 * API they take it by; it does not count managed memory. Driver 615 and newer have it, with
 * cgroup v2, for full cards alone.
 *
 * `uuid`: of a card of the last sample. `cgroup`: the absolute path of the cgroup's folder as
 * this process sees it. A limit holds also for the cgroups below it, and ends with the folder.
 * A cgroup whose soft limit is above 0 leaves its reservation behind in its ancestors: set 0
 * before it ends.
 *
 * These calls have no timeout, either. The thread that samples makes them. What was set counts
 * once it is read back: others set limits too.
 */
#define GPU_NO_LIMIT UINT64_MAX

struct gpu_memory_limit { /* bytes */
    uint64_t soft;        /* guaranteed; 0: none */
    uint64_t hard;        /* beyond it an allocation fails; GPU_NO_LIMIT: none */
    uint64_t used;        /* by the cgroup and those below; set does not read it */
};

enum gpu_limit_answer {
    GPU_LIMIT_OK,
    GPU_LIMIT_NONE,       /* get: this cgroup has no limit on this card */
    GPU_LIMIT_OLD_DRIVER, /* the library or the driver lacks the function */
    GPU_LIMIT_NOT_SUPPORTED, /* not for this card: an instance, or switched off in the driver */
    GPU_LIMIT_NO_PERMISSION, /* set needs root */
    GPU_LIMIT_INVALID, /* `soft` is above `hard`, or one of them above the card's memory */
    GPU_LIMIT_NO_CGROUP, /* the driver cannot open the folder, or it is not of cgroup v2 */
    GPU_LIMIT_FAILED,    /* else, as a lost card; a retry may succeed */
};

/* Each sets `err` with the reason unless the answer is GPU_LIMIT_OK. Without a limit, *out has
 * no soft one, GPU_NO_LIMIT, and 0 for what is used, which is unknown. */
enum gpu_limit_answer gpu_memory_limit_get(struct gpu *g, const char *uuid,
                                           const char *cgroup,
                                           struct gpu_memory_limit *out, struct err *err);
/* {0, GPU_NO_LIMIT} removes the limit. */
enum gpu_limit_answer gpu_memory_limit_set(struct gpu *g, const char *uuid,
                                           const char *cgroup,
                                           const struct gpu_memory_limit *limit,
                                           struct err *err);
/* Whether the driver limits this card: GPU_LIMIT_OK, or why not, as "driver 580.95.05: needs
 * 615". `cgroup`: any, as the root. It changes nothing. */
enum gpu_limit_answer gpu_memory_limit_probe(struct gpu *g, const char *uuid,
                                             const char *cgroup, struct err *err);

/* Closes the library, so that the next sample opens it again. NVML finds a card that was
 * reset or plugged in only when it is initialized. Do not reopen for every sample:
 * without persistence mode, initializing an idle card takes seconds. */
void gpu_reopen(struct gpu *g);
