/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Controllers with many pods, which replace pods that the kubelet refuses.
 */

/* `controller` is Deployment or ReplicaSet, `kind` is that of the pods (node_create). */
void many_create(const char *controller, const char *name, const char *kind, int n);
/* Sets the number of replicas. */
void many_scale(const char *controller, const char *name, int n);
/* Waits until n pods run in namespace default and none is being deleted. Ignores pods that
 * the kubelet has refused. */
void many_wait_running(int n);
