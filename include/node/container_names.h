/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "node/usage.h"

/*
 * The names of the containers of a node, from the names of the links that the kubelet
 * makes in /var/log/containers when it starts a container:
 *
 *     <pod>_<namespace>_<container>-<container ID>.log
 *
 * (pkg/kubelet/kuberuntime/legacy.go.) Only root writes there, and no part but the ID has
 * hex digits after its last '-' that could be taken for one. A name of more than 255
 * bytes is cut at its end and lacks the ID: such a container stays without a name. The
 * kubelet removes the link with the container.
 */

#define CONTAINER_NAMES_FOLDER "var/log/containers"

/* Reads the name of one link. False: it is none of a container. Borrowed from `link`. */
bool container_names_parse(struct span link, struct usage_name *name);

/* Reads the folder in `host_root`, at most USAGE_MAX_IDS links. Strings and the array are
 * in the arena. */
int container_names_read(const char *host_root, struct arena *a,
                         const struct usage_name **names, size_t *n, struct err *err);
