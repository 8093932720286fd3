/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "base/str.h"

/*
 * Figures in Prometheus' text format, version 0.0.4.
 *
 * A family (HELP and TYPE) comes first, then all its samples. Names follow Prometheus'
 * conventions: base units, a counter ends in _total. Values of labels may be any bytes
 * and are escaped.
 */

#define PROM_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

enum prom_type { PROM_COUNTER, PROM_GAUGE, PROM_HISTOGRAM, PROM_SUMMARY };

struct prom_label {
    const char *name;
    struct span value;
};

void prom_family(struct buf *out, const char *name, enum prom_type type,
                 const char *help);
void prom_sample(struct buf *out, const char *name, const struct prom_label *labels,
                 size_t n, int64_t value);
/* The same of nanoseconds, which become seconds. */
void prom_seconds(struct buf *out, const char *name, const struct prom_label *labels,
                  size_t n, int64_t ns);
/* A family that is one sample without labels. */
void prom_one(struct buf *out, const char *name, enum prom_type type, const char *help,
              int64_t value);

/* How long something takes. Any number of threads may observe at once; nothing is locked.
 * {0} is an empty one. */
enum { PROM_BOUNDS = 18 }; /* 25 us to 15 s */
struct prom_histogram {
    _Atomic uint64_t
        buckets[PROM_BOUNDS + 1]; /* each for itself; the last has no bound */
    _Atomic uint64_t sum_ns;
};
void prom_observe(struct prom_histogram *h, int64_t ns);
void prom_histogram(struct buf *out, const char *name, const struct prom_label *labels,
                    size_t n, const struct prom_histogram *h);

/* What every program tells of itself: processor time, memory, descriptors, start. */
void prom_process(struct buf *out);
