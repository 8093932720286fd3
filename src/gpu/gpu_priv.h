/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "gpu/gpu.h"

struct nvml_calls;

/* The operations of a source. `sample` is called with an empty sample. */
struct gpu_ops {
    int (*sample)(struct gpu *g, struct gpu_sample *s, struct err *err);
    int (*wait)(struct gpu *g, int timeout_ms, struct gpu_event *event, struct err *err);
    void (*reopen)(struct gpu *g); /* or NULL */
    /* NVML's handle of a card that the last sample could read, and its functions; NULL: there is
     * none. NULL for a source without NVML. */
    void *(*device)(struct gpu *g, const char *uuid, const struct nvml_calls **call);
    void (*free)(struct gpu *g);
};

/* The first member of every source. */
struct gpu {
    const struct gpu_ops *ops;
};

/* Sets a metric. A value beyond 2^60 stays unknown. */
void gpu_set(struct gpu_card *c, enum gpu_metric m, uint64_t value);
/* Copies untrusted text into a field of `size` bytes: truncated, trimmed, with '?' for
 * invalid UTF-8 and control characters. */
void gpu_set_text(char *field, size_t size, struct span text);
/* Copies an untrusted UUID. The field stays empty if a character is not allowed. */
void gpu_set_uuid(char *field, size_t size, struct span text);
/* Sets the state, unless the card has a more severe one. */
void gpu_set_state(struct gpu_card *c, enum gpu_state state, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Sets the memory metrics. `used` may include the driver's reserve or not. Without a
 * reserve, used memory stays unknown. */
struct gpu_memory {
    uint64_t total, free, used, reserved;
    bool has_reserved;
};
void gpu_set_memory(struct gpu_card *c, const struct gpu_memory *m);
/* Sorts the list by pid, and copies it into the arena. */
void gpu_set_processes(struct gpu_card *c, struct gpu_process *list, size_t n,
                       struct arena *a);
/* Derives the state from the metrics. */
void gpu_derive_state(struct gpu_card *c);
/* Sorts by index. The second of two cards with the same UUID becomes unreadable, and an
 * instance without a parent in MIG mode is lost. */
void gpu_sample_settle(struct gpu_sample *s);

/* file.c: pure. -1 with the position of the error; ERR_UNAVAILABLE: the file says that a
 * sample fails. */
int gpu_file_parse(struct span text, struct gpu_sample *s, struct err *err);
