/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "cli/session.h"

/*
 * `explain pod`: for a pending pod, why each node and card cannot take it and the
 * smallest changes that would let it fit; for a bound pod, its cards and where that is
 * recorded.
 */

/* What the snapshot does not have; borrowed. */
struct explain_facts {
    const json_t *object; /* the Pod as the API server returns it, for its conditions; may
                             be NULL */
    const json_t *members; /* array of pending Pods of its gang; may be NULL */
    const json_t *view;    /* the extender's view (session_view); NULL: none */
    uint32_t minimum;    /* of the pod's gang, by its PodGroup or Workload; 0: unknown */
    const char *invalid; /* why that cannot be read; NULL: it can */
    const char *no_quotas; /* why its namespace's quotas cannot be read; NULL: they can */
    int64_t now_s;         /* by the wall clock */
    bool colors;
};

/* -1: no such pod, or all its containers have ended. */
int explain_pod(struct buf *out, const struct cluster_state *cs, struct span ns,
                struct span name, const struct explain_facts *facts, struct err *err);

/* Also reads what it needs beside the snapshot: the Pod, the extender's view if --extender
 * names one, and the PodGroup or Workload of the pod's gang. What cannot be read is left
 * out. */
int explain_run(struct buf *out, struct session *s, struct span ns, struct span name,
                bool colors, struct err *err);
