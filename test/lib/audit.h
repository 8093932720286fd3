/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/*
 * Checks the requests of our extender's ServiceAccount in the audit log of kube-apiserver.
 * Fails the test unless there are requests, a role of manifests/rbac.yaml (not one of all
 * users) allowed each of them, and none was answered with 401 or 403. Not for tests that
 * restart the API server, which answers 403 until it has read the roles.
 */
void audit_check(void);

/* How many requests of this verb ("create") and resource ("pods/binding") so far. */
size_t audit_count(const char *verb, const char *resource);
