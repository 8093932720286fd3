/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/object.h"

/*
 * A Lease (coordination.k8s.io/v1): scv-agent's heartbeat for a node, and the lock that
 * says which extender may bind.
 */

struct lease {
    struct object_meta meta;
    struct span holder;     /* spec.holderIdentity */
    int64_t duration_s;     /* spec.leaseDurationSeconds */
    struct span renew_time; /* as written; only compared, never read as a time */
    struct span acquire_time;
    int64_t transitions;
    struct span node; /* the Node that owns it; empty: none does */
};

void lease_read(struct jread *j, struct arena *a, struct lease *lease);

/* Is it a heartbeat as scv-agent writes it: held by the node that it is named after, and
 * owned by that Node? Agents of other systems use the same names in the same namespace.
 */
bool lease_is_of_scv_agent(const struct lease *lease);

/* Appends a Lease object as JSON. An empty `meta.version` makes a create or an
 * unconditional update of it, else the update fails when the object has moved on. */
void lease_write(struct buf *out, const struct lease *lease);
