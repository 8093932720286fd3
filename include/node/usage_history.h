/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "node/usage.h"

/*
 * The most that each workload used in each hour of the last seven days, to find the right
 * size of its request. Pure.
 *
 * A workload is namespace, kind and name (node/workload.h) and the name of a container.
 * Its pods count together: the mark of an hour is the most that one of them used of one
 * card, and the promise is that of one card, too.
 *
 * Only measurements of complete cards count: in others the use is a lower bound. The hours
 * in which a workload does not run have no mark.
 *
 * Memory is bounded: USAGE_HISTORY_MAX workloads of about 1 KiB. When another one comes,
 * the namespace with the most workloads loses the one that it has not used for the longest
 * time; so a tenant that starts pods of ever new names loses his own history and not that
 * of others.
 */

enum {
    USAGE_HISTORY_MAX = 128,
    USAGE_HISTORY_HOURS = 7 * 24,
    USAGE_HISTORY_HOUR_MS = 3600 * 1000,
};

struct usage_history;

struct usage_history *usage_history_new(void);    /* new */
void usage_history_free(struct usage_history *h); /* NULL is accepted */

/* Takes a measurement. `now_ms` is of a monotonic clock. */
void usage_history_take(struct usage_history *h, int64_t now_ms, const struct usage *u);

/* -- over a restart --
 *
 * As JSON. Times are hours since 1970, so that the history survives a boot of the node. A
 * wall clock that went back makes the marks as old as the time of the read, at most. */

enum { USAGE_HISTORY_FILE_MAX = 1 << 20, USAGE_HISTORY_MARK_MAX = 1 << 30 };

void usage_history_write(const struct usage_history *h, struct span node, int64_t now_ms,
                         int64_t wall_ms, struct buf *out);
/* Fills a new history. Marks of more than seven days ago are dropped, and workloads that
 * cannot be read. ERR_INVALID: the text is damaged, or of another version. ERR_CONFLICT: it
 * belongs to another node. On error the history is unchanged. */
int usage_history_read(struct usage_history *h, struct span text, struct span node,
                       int64_t now_ms, int64_t wall_ms, struct err *err);

/* -- reading -- */

/* One workload. Borrowed, until the next usage_history_take. */
struct usage_history_row {
    struct span ns, name, container;
    const char *kind;
    int64_t promised_mib; /* at last, on one card; 0: nothing; -1: unknown */
    int64_t p95_mib;      /* 95 of 100 hours had at most this mark */
    int64_t max_mib;      /* the highest mark */
    int64_t hours;        /* with a mark */
    int64_t age_hours;    /* since the first mark that counts, rounded down */
};

size_t usage_history_count(const struct usage_history *h);
/* By namespace, kind, name and container. */
struct usage_history_row usage_history_row(const struct usage_history *h, size_t i);
