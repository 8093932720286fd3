/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Backups of the etcd of the suite's cluster (lib/cluster.h). */

/* Saves a snapshot, which replaces the one before. */
void backup_save(void);
/* Kills etcd and kube-apiserver, unless they have ended, and starts them with the snapshot and
 * their options. Waits until the API server is ready, and restarts the programs of Kubernetes
 * but the kubelet, as its documents ask for. */
void backup_restore(void);
