/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/*
 * A bounded queue of lines for a descriptor that can block, and the thread that writes
 * them. A thread that adds a line never waits for the reader of the descriptor. Other
 * processes can share the descriptor's open file description, so it is not set to
 * O_NONBLOCK.
 */

struct log_queue;

/* Appends the line that reports `dropped` lines. Called by the thread of the queue. */
typedef void log_queue_report_fn(struct buf *out, uint64_t dropped);

/* New; starts the thread. The queue holds `bytes` of lines. */
struct log_queue *log_queue_start(int fd, size_t bytes, log_queue_report_fn *report);

/* Adds a line, which ends with a newline. A line that exceeds the free space is dropped
 * and counted; when the queue is empty again, the thread writes the line `N log lines
 * dropped`. Safe from any thread. */
void log_queue_add(struct log_queue *q, struct span line);

/* Waits until all lines are written, for at most `wait_ms`. False: some are not. */
bool log_queue_flush(struct log_queue *q, int64_t wait_ms);

/* Flushes and stops the thread. If the descriptor still blocks the thread after `wait_ms`,
 * the thread and its memory are leaked. */
void log_queue_stop(struct log_queue *q, int64_t wait_ms);
