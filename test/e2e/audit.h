/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/*
 * The audit log of the cluster's kube-apiserver: what our extender has asked for until
 * now, as its ServiceAccount. Fails the test unless there is something, all of it was
 * allowed by a role of manifests/rbac.yaml (and not by one that everybody has), and
 * nothing was answered with 401 or 403. (An API server that starts again answers 403
 * until it has read the roles, so this is not for tests that restart it.)
 */
void audit_check(void);

/* How many requests of this verb ("create") and resource ("pods/binding") there were. */
size_t audit_count(const char *verb, const char *resource);
