/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/cluster.h"

/*
 * Requests of users with few rights to the API server of the cluster, which must accept
 * or deny them.
 *
 * `how` is POST, PUT, or the type of a patch: MERGE, JSON, STRATEGIC, or APPLY (server-side
 * apply). In `body`, ' stands for ".
 */

/* The API server for a user with a client certificate of this subject, or with a token such
 * as that of cluster_token. Kept. */
struct peer *attempt_user(const char *name, const char *subject);
struct peer *attempt_token(const char *token);

/* Sends the request; returns the status. The answer replaces *reply. */
unsigned attempt(const struct peer *as, const char *how, const char *path,
                 const char *body, struct buf *reply);
/* Fails unless the request is accepted. */
void attempt_accepted(const struct peer *as, const char *how, const char *path,
                      const char *body);
/* Fails unless this ValidatingAdmissionPolicy denies the request, and its message contains
 * `words`. */
void attempt_denied(const struct peer *as, const char *policy, const char *words,
                    const char *how, const char *path, const char *body);

/* Waits until the API server applies our policies, which takes it a moment after their
 * creation. */
void attempt_wait_policies(void);
/* Deletes our bindings of the policies that protect promises, for tests of what the
 * programs do without them, and waits until they have no effect. */
void attempt_without_policies(void);
