/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "node/usage_history.h"

/*
 * The file that keeps what workloads use at most (node/usage_history.h) over a restart of
 * scv-agent. It is written by a thread of its own every USAGE_FILE_MS, if there is
 * something new or the last write failed, and at the end. A write is skipped while the one
 * before has not ended. A process that is killed, or that exits without waiting for its
 * threads, loses the marks since the last write. A file that cannot be read or written is
 * logged, and changes nothing else.
 */

enum { USAGE_FILE_MS = 10 * 60 * 1000 };

struct usage_file;

/* New; the strings are copied. Fills the new history from the file. */
struct usage_file *usage_file_open(const char *path, const char *node,
                                   struct usage_history *history);
/* Writes the history if it is time; `now_ms` is of the monotonic clock. Does not block.
 * NULL is accepted, here and below. */
void usage_file_take(struct usage_file *f, int64_t now_ms,
                     const struct usage_history *history);
/* False: the thread still writes; nothing may be freed. */
bool usage_file_stop(struct usage_file *f, int64_t until_ms);
/* Writes the history at once, after usage_file_stop, and frees. */
void usage_file_close(struct usage_file *f, const struct usage_history *history);
