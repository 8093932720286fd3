/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/gang.h"
#include "kube/pod_group.h"

/*
 * How many members of a gang need a place at once, by the PodGroup or Workload that its
 * pods name (kube/pod_group.h). The object is read when a member is filtered, and not
 * watched: the API may be absent or appear later, each watch of a cluster-wide resource
 * would need more permissions, and few gangs are filtered at one time. An answer counts for
 * GANG_MINIMUM_KEEP_MS, also that there is no object. If the API server does not answer in
 * time, no object of that kind (enum gang_kind) is read for GANG_MINIMUM_PAUSE_MS: a filter
 * waits for each read, and kube-scheduler for each filter. Thread-safe.
 */

struct gang_minimum;

enum {
    GANG_MINIMUM_KEEP_MS = 10 * 1000,
    GANG_MINIMUM_CALL_MS = 1000, /* for all versions of one object together */
    GANG_MINIMUM_PAUSE_MS =
        10 * 1000,           /* of all reads of a kind, after one without an answer */
    GANG_MINIMUM_KEPT = 256, /* answers; tenants name gangs */
};

/* New. Copies `from`. */
struct gang_minimum *gang_minimum_new(const struct pod_group_reader *from);
void gang_minimum_free(struct gang_minimum *g); /* NULL is accepted */

/* *minimum: 1: the members do not wait for each other. 0: unknown, also if the object could not be
 * read: all members, or the last answer that is kept. -1: what the object says cannot be read, as
 * of pod_group_read with ERR_INVALID. Blocks for GANG_MINIMUM_CALL_MS at most. */
int gang_minimum_of(struct gang_minimum *g, struct span ns, const struct gang *gang,
                    uint32_t *minimum, struct err *err);
