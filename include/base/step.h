/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/array.h"
#include "base/err.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/str.h"

/*
 * What deterministic step machines share: the time that a step is given, its outputs, log
 * lines as outputs, and retries. Inputs, queues and state are the machine's own.
 */

struct step_time {
    int64_t mono_ms; /* clock_mono_ms */
    int64_t wall_ns; /* clock_wall_ns */
};

struct step_time step_now(void);

struct step_line {
    enum log_level level;
    const char *subject; /* static: the module of the log line */
    const char *text;
    enum err_code code; /* ERR_NONE: none */
};

/* The outputs of steps: items of one type, in the order in which the driver must carry
 * them out, and log lines. {0} is empty. Strings live until step_outputs_reset. */
struct step_outputs {
    void *items; /* n items of `size` bytes; assign to a pointer of their type */
    size_t n, cap, size;
    struct step_line *lines;
    size_t n_lines, cap_lines;
    struct arena arena;
};

void step_outputs_reset(struct step_outputs *out);
void step_outputs_fini(struct step_outputs *out);

/* Appends a zeroed item; always of the same size. Valid until the next one is added. */
void *step_add(struct step_outputs *out, size_t size);
/* Visits the items. No step may add to the outputs meanwhile. */
#define STEP_EACH(type, item, out)                                                       \
    ARRAY_EACH_ITEM(const type, item, (out)->items, (out)->n)
/* Copies, NUL-terminated, that live as long as the outputs. */
const char *step_text(struct step_outputs *out, struct span text);
const char *step_printf(struct step_outputs *out, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Appends a log line; `subject` is a static string. */
void step_log(struct step_outputs *out, enum log_level level, const char *subject,
              enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* For drivers: writes the log lines. */
void step_write_logs(const struct step_outputs *out);

/* Lowers *due_ms to `ms` if that is earlier. */
static inline void step_due(int64_t *due_ms, int64_t ms)
{
    if (ms < *due_ms)
        *due_ms = ms;
}

/* Milliseconds to wait after the given number of failures in a row, 1 or more: doubles
 * from first_ms to max_ms, of which half is random; at least retry_after_ms. */
int64_t step_backoff(struct rng *rng, unsigned failures, int64_t first_ms, int64_t max_ms,
                     int64_t retry_after_ms);

/* A failure that lasts until it is cleared. {0}: none. */
struct step_failure {
    unsigned failures; /* in a row */
    int64_t since_ms;  /* of the first one; valid if failures > 0 */
    int64_t logged_ms;
    struct err err; /* the last one */
};
/* Records a failure. Returns whether to log it: it is the first one in a row, its code has
 * changed, or the last log line is a minute old. */
bool step_failed(struct step_failure *f, int64_t now_ms, const struct err *err);
/* Clears it. Returns whether there was a failure. */
bool step_succeeded(struct step_failure *f);
