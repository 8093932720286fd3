/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * One line per event on standard error, in logfmt:
 *
 *     time=2026-11-21T09:00:00.123Z level=info module=watch msg="list complete" n=40000
 *
 * The level says who has to act: error, an operator now; warn, an operator soon; info, no
 * one (a state has changed once); debug, no one (each request). Tokens, keys and whole
 * objects are never logged. Every function is safe from any thread; no line is in two writes.
 * A program that serves calls log_start, so that a slow reader of standard error blocks
 * no other thread.
 *
 *     log_info("watch", "list complete", LOG_S("kind", name), LOG_I("n", n));
 */

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

struct log_field {
    const char *key;
    struct span text; /* used when is_number is false */
    int64_t number;
    bool is_number;
};

#define LOG_S(k, s)    ((struct log_field){.key = (k), .text = span_of(s)})
#define LOG_SPAN(k, s) ((struct log_field){.key = (k), .text = (s)})
#define LOG_I(k, i)                                                                      \
    ((struct log_field){.key = (k), .number = (int64_t)(i), .is_number = true})
#define LOG_ERR(err) LOG_S("err", (err)->msg)

void log_write(enum log_level level, const char *module, const char *msg,
               const struct log_field *fields); /* fields end with a NULL key */

#define LOG_AT(level, module, msg, ...)                                                  \
    do {                                                                                 \
        if (log_enabled(level))                                                          \
            log_write((level), (module), (msg),                                          \
                      (const struct log_field[]){__VA_ARGS__ __VA_OPT__(, ){0}});        \
    } while (0)
#define log_error(module, msg, ...) LOG_AT(LOG_ERROR, module, msg, __VA_ARGS__)
#define log_warn(module, msg, ...)  LOG_AT(LOG_WARN, module, msg, __VA_ARGS__)
#define log_info(module, msg, ...)  LOG_AT(LOG_INFO, module, msg, __VA_ARGS__)
#define log_debug(module, msg, ...) LOG_AT(LOG_DEBUG, module, msg, __VA_ARGS__)

/* Starts a thread, until the process ends, that writes all later lines, so that an unread pipe
 * blocks no other thread. Up to 256 KiB of lines are queued; further lines are dropped and counted.
 * A crash loses the queued lines. */
void log_start(void);
/* Waits until the queue is written, for at most one second. To be called before the process
 * ends. */
void log_flush(void);

/* The level is the one mutable setting of a running program. It starts at info. */
void log_set_level(enum log_level level);
bool log_enabled(enum log_level level);

/* The line that log_write would write, without the newline; `time_ms` is milliseconds
 * since 1970. For tests. */
void log_format(struct buf *out, int64_t time_ms, enum log_level level,
                const char *module, const char *msg, const struct log_field *fields);
