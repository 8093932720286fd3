/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "node/usage_history.h"

enum {
    USAGE_HISTORY_NO_MARK = -1,
    /* Added to every time, so that hours before the boot of the node are not negative. */
    USAGE_HISTORY_BASE_MS = USAGE_HISTORY_HOURS * USAGE_HISTORY_HOUR_MS,
};

struct usage_history_entry {
    struct span ns, name, container;
    const char *kind;
    char *strings; /* owned */
    int64_t promised_mib;
    int64_t seen_ms;
    int64_t hour;                       /* of the last mark; -1: none */
    int64_t marks[USAGE_HISTORY_HOURS]; /* of an hour: at its number modulo the size */
};

struct usage_history {
    struct usage_history_entry *entries[USAGE_HISTORY_MAX]; /* in order */
    size_t n;
    int64_t now_ms; /* never goes back */
};

/* The entry of the workload; NULL: none. */
struct usage_history_entry *usage_history_find(const struct usage_history *h,
                                               const struct usage_history_entry *key);
/* New; for the rules about how many there are see usage_history.h. */
struct usage_history_entry *usage_history_add(struct usage_history *h,
                                              const struct usage_history_entry *key);
/* Raises the mark of an hour that is at most USAGE_HISTORY_HOURS - 1 before the last one. */
void usage_history_mark(struct usage_history_entry *e, int64_t hour, int64_t used_mib);
