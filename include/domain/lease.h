/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/object.h"

/*
 * A Lease (coordination.k8s.io/v1): scv-agent's heartbeat for a node, or the leader lease
 * of the extender.
 */

struct lease {
    struct object_meta meta;
    struct span holder;     /* spec.holderIdentity */
    int64_t duration_s;     /* spec.leaseDurationSeconds */
    struct span renew_time; /* raw: compared, never parsed */
    struct span acquire_time;
    int64_t transitions;   /* lease_write: -1: unchanged */
    struct span node;      /* the Node that owns it; empty: none */
    struct span owner_uid; /* for lease_write: of the Node of its name; never read */
};

void lease_read(struct jread *j, struct arena *a, struct lease *lease);

/* Is it a heartbeat of scv-agent: name, holder and owner are the same Node? Agents of
 * other systems use the same names in the same namespace. */
bool lease_is_of_scv_agent(const struct lease *lease);

/* Appends a Lease object as JSON: for a create or an unconditional update if `meta.version`
 * is empty, else for an update that fails if the object has changed. */
void lease_write(struct buf *out, const struct lease *lease);
