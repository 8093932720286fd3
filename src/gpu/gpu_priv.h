/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "gpu/gpu.h"

/* What a source brings. The sample is empty when `sample` is called. */
struct gpu_ops {
    int (*sample)(struct gpu *g, struct gpu_sample *s, struct err *err);
    int (*wait)(struct gpu *g, int timeout_ms, struct gpu_event *event, struct err *err);
    void (*reopen)(struct gpu *g);
    void (*free)(struct gpu *g);
};

/* The first member of every source. */
struct gpu {
    const struct gpu_ops *ops;
};

/* For the makers of cards. A number that cannot be one (negative, or beyond 2^60) stays
 * unknown. */
void gpu_set(struct gpu_card *c, enum gpu_metric m, uint64_t value);
/* Puts a foreign text into a field of `size` bytes: cut, trimmed, and without bytes that
 * are not UTF-8 or are control characters ('?' stands for them). */
void gpu_set_text(char *field, size_t size, struct span text);
/* The same for a uuid, which stays empty if it has any other character than allowed. */
void gpu_set_uuid(char *field, size_t size, struct span text);
/* The state, unless it is a worse one already. */
void gpu_set_state(struct gpu_card *c, enum gpu_state state, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Memory as read: free and used with or without the driver's reserve in it (see the
 * source). Without a reserve, `used` stays unknown. */
struct gpu_memory {
    uint64_t total, free, used, reserved;
    bool has_reserved;
};
void gpu_set_memory(struct gpu_card *c, const struct gpu_memory *m);
/* Works the state out from the numbers. */
void gpu_judge(struct gpu_card *c);
/* Sorts by index; of two cards with one uuid the second is out of order and has none. */
void gpu_sample_settle(struct gpu_sample *s);

/* file_read.c: pure. */
enum {
    GPU_MAX_EVENTS = 1024,
};
struct gpu_file_event {
    int64_t id, xid;
    char uuid[96];
};
struct gpu_file_data {
    struct gpu_sample sample;
    struct gpu_file_event *events; /* in the sample's arena, by rising id */
    size_t n_events;
    char error[200]; /* the sample shall fail with that; empty: it shall not */
};
/* -1 and a message that says where. */
int gpu_file_parse(struct span text, struct gpu_file_data *data, struct err *err);
