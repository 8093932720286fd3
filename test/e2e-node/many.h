/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Controllers of many pods, which replace those that the kubelet refuses.
 */

/* `controller` is Deployment or ReplicaSet, `kind` is that of the pods (node_create). */
void many_create(const char *controller, const char *name, const char *kind, int n);
/* So many from now on. */
void many_scale(const char *controller, const char *name, int n);
/* Waits until so many pods run in namespace default and none is leaving. Those that the
 * kubelet has refused are not counted. */
void many_wait_running(int n);
