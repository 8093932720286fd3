/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/peer.h"

/*
 * Compares the RBAC rules of the manifests with the requests that kube-sim received: every
 * request must be granted, and every rule must be used.
 */

struct right {
    const char *verb, *group, *resource; /* pods/binding: with the subresource */
    const char *ns, *name;               /* NULL: all */
    json_int_t covered;                  /* number of requests so far */
};

enum { RIGHTS = 64 };
struct rights {
    struct right r[RIGHTS];
    size_t n, roles;
};

/* Reads the roles of the manifests `files` (ends with NULL). Each must be bound to the
 * service account of the only workload of that kind. The strings are kept. */
void rights_read(struct rights *rights, const char *const *files, const char *workload);

/* Makes that kube-sim count the requests of each rule. Call first. */
void rights_count(const struct peer *api, const struct rights *rights);
/* Fails unless every request is covered. Adds the counts of each rule. Call last. */
void rights_check(const struct peer *api, struct rights *rights);
/* Fails unless every rule has covered a request. */
void rights_used(const struct rights *rights);
