/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/peer.h"
#include "lib/program.h"

/*
 * Programs of a cluster as processes of this machine: scv-agent and the device plugin with the
 * rights of their DaemonSet's pod on the node n1.
 */

/* Writes a kubeconfig with a token of the pod of this component. Returns its path, kept.
 * `api`, if not NULL, gets the API server with this token. */
char *daemon_kubeconfig(const char *component, struct peer **api);
/* Fails unless RBAC or a policy refuses the request with these words. */
void daemon_refused(const struct peer *as, const char *method, const char *path,
                    const char *body, const char *words);
/* Fails if the API server has denied a request of the program. */
void daemon_was_allowed(struct program *p);
