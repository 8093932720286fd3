/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The DNS of the cell's cluster, as CoreDNS serves it to pods: the names
 * SERVICE.NAMESPACE.svc.cluster.local of Services with a cluster IP. It asks kube-apiserver
 * for each query. Every other name does not exist; there is no network outside of the cell.
 */

#define DNS_DOMAIN "cluster.local"

/* Listens on UDP port 53 of CELL_ADDRESS, and answers in a thread until the process ends. An
 * error fails the test. */
void dns_start(void);
