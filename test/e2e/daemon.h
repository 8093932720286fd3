/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * scv-agent and the device plugin as processes of this machine, with the rights of their
 * DaemonSet's pod on a node.
 */

/* Writes the kubeconfig lib_dir/NODE with a token of the pod of this component. Returns its
 * path, new. `authorization`, if not NULL, gets "Bearer ...", new. */
char *daemon_kubeconfig(const char *component, const char *node, char **authorization);
