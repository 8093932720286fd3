/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

/*
 * Checks the requests of our service accounts in the audit log of kube-apiserver.
 * `account`: in kube-system.
 */

#define AUDIT_EXTENDER "gpushare-schd-extender"

/* The requests of the account so far, kept. */
json_t *audit_requests(const char *account);
/* Fails the test unless the account has sent requests, a role that is bound to the account
 * itself (not to all users) allowed each of them, and none was answered with 401 or 403.
 * Not for tests that restart the API server, which answers 403 until it has read the
 * roles. */
void audit_check(const char *account);
