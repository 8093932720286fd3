/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/*
 * The audit log of the cluster's kube-apiserver: the requests of the extender until now,
 * as its ServiceAccount. Fails the test unless there is at least one, a role of
 * manifests/rbac.yaml allowed each of them (and not a role that every account has), and
 * none was answered with 401 or 403. (A restarting API server answers 403 until it has
 * read the roles, so tests that restart it cannot use this.)
 */
void audit_check(void);

/* The number of requests with this verb ("create") and resource ("pods/binding"). */
size_t audit_count(const char *verb, const char *resource);
