/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/*
 * Lines on their way to a descriptor that may block: a bounded queue, and one thread that
 * writes. Whoever adds a line never waits for the reader of the descriptor. The
 * descriptor's open file description may be shared with other processes, so that it is
 * not made non-blocking.
 */

struct log_queue;

/* New; starts the thread. The queue holds `bytes` of lines. */
struct log_queue *log_queue_start(int fd, size_t bytes);

/* Adds a line, which ends with a newline. Where it finds no space, it is dropped and
 * counted; once the queue is empty again, `N log lines dropped` is written as a line of
 * its own. Safe from any thread. */
void log_queue_add(struct log_queue *q, struct span line);

/* Waits at most so long until everything has been written. False: some of it has not. */
bool log_queue_flush(struct log_queue *q, int64_t wait_ms);

/* Flushes, and stops the thread. A thread that is still blocked by the descriptor after
 * `wait_ms` stays behind, and its memory with it. */
void log_queue_stop(struct log_queue *q, int64_t wait_ms);
