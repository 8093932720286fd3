/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/container_devices.h"
#include "base/err.h"
#include "node/allocation.h"

/*
 * The devices of plain init containers. The kubelet's podresources API does not list them,
 * but our device plugin writes every allocation to its state file before the container
 * starts (node/checkpoint.h), with the pod's UID.
 */

/* Sets the inits of `devices`, in the arena, from the state file of the node. Without the
 * file there are none: another device plugin runs here, or none. On error they are not
 * known. */
int init_devices_read(const char *path, struct span node, struct arena *a,
                      struct container_devices *devices, struct err *err);

/* The same from allocations. Pure. */
void init_devices_of(const struct allocation_set *set, struct arena *a,
                     struct container_devices *devices);
