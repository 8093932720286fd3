/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "view/watch.h"

/*
 * The read-only API of nvidia-gpu-scheduler, with its paths and shapes: GpuNodes (the
 * cards of a node, and which of them are taken) and GpuPods (which container has which
 * cards). How its lists and watches behave: docs/api.md.
 */

/* `ctx` of the nodes is a const int64_t: the grace period of heartbeats in seconds; 0: not
 * checked. */
extern const struct view_watch_kind gpuapi_nodes, gpuapi_pods;
