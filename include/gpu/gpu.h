/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * Where card data comes from: NVML, or a file for demo and tests.
 *
 * A source is asked for samples, again and again, and for events in between. It is opened
 * lazily: to make one never fails, and after an error the next sample tries anew, so a
 * driver that is loaded later, or unloaded and back, needs nobody to restart anything.
 *
 * A source is used by one thread at a time. (NVML allows more, but not a set of events,
 * and not while it is shut down.) The caller samples, waits for events until the next
 * sample is due, and so on.
 *
 * What a card does not support is unknown and no error. A card that is in trouble is in
 * the sample all the same, with its state and the reason.
 *
 * No call into NVML can be given a time limit: if the driver hangs in the kernel, so does
 * the thread. Whoever watches over that thread must live in another one.
 */

enum {
    GPU_MAX_CARDS = 64,
    GPU_MAX_PROCESSES = 16384, /* per card */
};

enum gpu_state {
    GPU_OK,
    GPU_LOST,       /* fell off the bus, or cannot be opened */
    GPU_UNREADABLE, /* its memory cannot be read, or the figures cannot be true */
    GPU_MIG,        /* split into MIG instances: not ours to give out */
    GPU_RESET,      /* the driver says that it needs a reset, or the node a reboot */
    GPU_ECC,        /* a row could not be remapped, or a page waits to be retired */
};

/* Numbers of a card. The word is how the file source names them. */
#define GPU_METRICS(X)                                                                   \
    X(GPU_MINOR, "minor")           /* of /dev/nvidia<minor> */                          \
    X(GPU_MEM_TOTAL, "memoryTotal") /* bytes, as the next three */                       \
    X(GPU_MEM_FREE, "memoryFree")                                                        \
    X(GPU_MEM_USED, "memoryUsed")                 /* without the driver's reserve */     \
    X(GPU_MEM_RESERVED, "memoryReserved")         /* by driver and firmware */           \
    X(GPU_CLOCK_GRAPHICS_MAX, "clockGraphicsMax") /* MHz, as the next five */            \
    X(GPU_CLOCK_SM_MAX, "clockSmMax")                                                    \
    X(GPU_CLOCK_MEM_MAX, "clockMemoryMax")                                               \
    X(GPU_CLOCK_GRAPHICS, "clockGraphics")                                               \
    X(GPU_CLOCK_SM, "clockSm")                                                           \
    X(GPU_CLOCK_MEM, "clockMemory")                                                      \
    X(GPU_PCIE_GEN_MAX, "pcieGenerationMax")    /* of card and slot together */          \
    X(GPU_PCIE_WIDTH_MAX, "pcieWidthMax")       /* lanes */                              \
    X(GPU_POWER_LIMIT, "powerLimit")            /* milliwatts */                         \
    X(GPU_POWER, "power")                       /* milliwatts drawn */                   \
    X(GPU_UTILIZATION, "utilization")           /* percent of time with a kernel */      \
    X(GPU_UTILIZATION_MEM, "utilizationMemory") /* percent of time */                    \
    X(GPU_TEMPERATURE, "temperature")           /* degrees Celsius */                    \
    X(GPU_ECC_CORRECTED, "eccCorrected")        /* since the driver was loaded */        \
    X(GPU_ECC_UNCORRECTED, "eccUncorrected")    /* since the driver was loaded */        \
    X(GPU_PAGES_PENDING, "retiredPagesPending") /* 0 or 1 */                             \
    X(GPU_REMAP_PENDING, "remapPending")        /* 0 or 1; harmless until a reset */     \
    X(GPU_REMAP_FAILED, "remapFailed")          /* 0 or 1 */                             \
    X(GPU_RECOVERY, "recoveryAction")           /* what the driver asks for: 0 none */   \
    X(GPU_MIG_MODE, "migMode")                  /* 0 or 1 */                             \
    X(GPU_MIG_PENDING, "migModePending")        /* 0 or 1: after the next reset */

#define GPU_METRIC_ID(id, word) id,
enum gpu_metric { GPU_METRICS(GPU_METRIC_ID) GPU_N_METRICS };
#undef GPU_METRIC_ID

const char *gpu_metric_name(enum gpu_metric m);
const char *gpu_state_name(enum gpu_state s); /* "ok", "lost", ... */

struct gpu_process {
    int64_t pid;   /* as seen from the host */
    int64_t bytes; /* of this card; -1: not known */
};

struct gpu_card {
    int32_t index; /* as NVML counts; no two cards of a sample share one */
    enum gpu_state state;
    char why[200]; /* in words; empty when the state is GPU_OK */
    /* Empty when unknown. UTF-8 without control characters. A uuid has but letters,
     * digits and hyphens, and no two cards of a sample share one. */
    char uuid[96], model[96];
    char bus_id[32]; /* as 00000000:3B:00.0 */
    bool events;     /* XIDs of this card come out of gpu_wait */
    uint32_t known;  /* bit m: value[m] is valid */
    int64_t value[GPU_N_METRICS];
    bool processes_known;
    const struct gpu_process *processes; /* by rising pid */
    size_t n_processes;
};

static inline bool gpu_knows(const struct gpu_card *c, enum gpu_metric m)
{
    return c->known >> m & 1;
}

/* The value, or `otherwise` when it is not known. */
static inline int64_t gpu_value(const struct gpu_card *c, enum gpu_metric m,
                                int64_t otherwise)
{
    return gpu_knows(c, m) ? c->value[m] : otherwise;
}

/* The cards of a node at one moment. {0} is an empty one. */
struct gpu_sample {
    char driver[80];            /* version, empty when unknown */
    int cuda_major, cuda_minor; /* newest that the driver supports; 0.0: unknown */
    struct gpu_card *cards;     /* by rising index */
    size_t n_cards;
    struct arena arena;
};

void gpu_sample_fini(struct gpu_sample *s);
#define cleanup_gpu_sample __attribute__((cleanup(gpu_sample_fini)))

/* Appends the sample as JSON, in the form that the file source reads: what was recorded
 * on one machine can be shown on another. One card per line. */
void gpu_sample_write(struct buf *out, const struct gpu_sample *s);

enum gpu_event_kind {
    GPU_EVENT_NONE, /* the time is over */
    GPU_EVENT_XID,
    GPU_EVENT_ECC, /* an error that could not be corrected */
};

struct gpu_event {
    enum gpu_event_kind kind;
    int64_t xid; /* 999: one that the driver has no number for */
    /* The card; an empty uuid and index -1 mean that it cannot be told which. */
    char uuid[96];
    int32_t index;
};

/* Does this XID speak of the program on the card, and not of the card? The list is that
 * of NVIDIA's own device plugin (13, 31, 43, 45, 68, 109); any other one is a reason to
 * look upon the card as ill. */
bool gpu_xid_is_application_error(int64_t xid);

struct gpu;

/* NVML through dlopen. `library`: a name or path; NULL: libnvidia-ml.so.1. New. */
struct gpu *gpu_nvml_new(const char *library);

/*
 * A JSON file, read anew each time (replace it with a rename). New.
 *
 *     {"driverVersion": "535.129.03", "cudaVersion": "12.2",
 *      "cards": [{"index": 0, "uuid": "GPU-0", "model": "Tesla T4",
 *                 "busId": "00000000:3B:00.0", "state": "ok", "why": "",
 *                 "memoryTotal": 16106127360, "memoryFree": 16106127360,
 *                 "processes": [{"pid": 7, "bytes": 1048576}]}],
 *      "events": [{"id": 1, "uuid": "GPU-0", "xid": 79}]}
 *
 * Numbers are called as in GPU_METRICS; what is left out is unknown. An index that is
 * left out is the place in the list, a memoryFree is what used and reserve leave. The
 * state is worked out from the numbers as with NVML, unless the file says one. Unknown
 * members are skipped.
 *
 * An event is told once: those whose id is above all that were seen before, by rising id.
 * What is there when the file is read first is old. Without an xid it is one of ECC,
 * without a uuid it cannot be told which card it was. {"error": "words"} makes the sample
 * fail.
 */
struct gpu *gpu_file_new(const char *path);

/* What --gpu-source names: "nvml", "nvml:LIBRARY" or "file:PATH". New. */
struct gpu *gpu_open(const char *source, struct err *err);

void gpu_free(struct gpu *g); /* NULL is fine */

/* Reads all cards into *s, whose former content is lost; after an error it is empty.
 * ERR_NOT_FOUND: no NVML, or no such file; ERR_UNAVAILABLE: the driver is not loaded, or
 * another passing trouble; ERR_INVALID: the file is not as above. */
int gpu_sample(struct gpu *g, struct gpu_sample *s, struct err *err);

/* Waits for an event, at most that long; GPU_EVENT_NONE when there was none (perhaps
 * early). -1 at once when events cannot be waited for: nothing was sampled yet, no card
 * tells events, the driver is gone. Then the caller has to let the time pass by itself.
 */
int gpu_wait(struct gpu *g, int timeout_ms, struct gpu_event *event, struct err *err);

/* Forgets the library or the file, so that the next sample begins anew. A card that was
 * lost and reset, or plugged in, is seen only after that: NVML looks for cards when it is
 * initialised. Not for every sample: on a card that nothing else holds open, without
 * persistence mode, it may take seconds. */
void gpu_reopen(struct gpu *g);
