/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "base/str.h"

/*
 * Metrics in Prometheus' text exposition format, version 0.0.4.
 *
 * The caller writes a family (HELP and TYPE), then all its samples. Names follow
 * Prometheus' conventions: base units, counters end in _total. Label values may be any
 * bytes; they are escaped.
 */

#define PROM_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

enum prom_type { PROM_COUNTER, PROM_GAUGE, PROM_HISTOGRAM };

struct prom_label {
    const char *name;
    struct span value;
};

void prom_family(struct buf *out, const char *name, enum prom_type type,
                 const char *help);
void prom_sample(struct buf *out, const char *name, const struct prom_label *labels,
                 size_t n, int64_t value);
/* A sample with one label. */
void prom_labelled(struct buf *out, const char *name, const char *label, const char *of,
                   int64_t value);
/* A sample in billionths: nanoseconds of a time in seconds. Negative ones count as 0. */
void prom_nano(struct buf *out, const char *name, const struct prom_label *labels,
               size_t n, int64_t value);
/* A family with one sample without labels; of the type that its name tells. */
void prom_one(struct buf *out, const char *name, const char *help, int64_t value);

/* A histogram of durations. Any number of threads may call prom_observe at the same time;
 * there is no lock. {0} is an empty histogram. */
enum { PROM_BOUNDS = 18 }; /* 25 us to 15 s */
struct prom_histogram {
    _Atomic uint64_t buckets[PROM_BOUNDS + 1]; /* not cumulative; the last one is +Inf */
    _Atomic uint64_t sum_ns;
};
void prom_observe(struct prom_histogram *h, int64_t ns);
void prom_histogram(struct buf *out, const char *name, const struct prom_label *labels,
                    size_t n, const struct prom_histogram *h);

/* The process_* metrics of Prometheus' client libraries: CPU time, memory, file
 * descriptors, start time. */
void prom_process(struct buf *out);
