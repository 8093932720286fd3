/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

/*
 * What the manifests grant a program, against what kube-sim was asked for: nothing may be
 * asked that is not granted, and nothing granted that is never asked.
 */

struct right {
    const char *verb, *group, *resource; /* pods/binding: with the subresource */
    const char *ns, *name;               /* NULL: all */
};

enum { RIGHTS = 64 };
struct rights {
    struct right r[RIGHTS];
    json_int_t covered[RIGHTS]; /* how many requests, so far */
    size_t n, roles;
    json_t *all; /* the strings are here */
};

/* Reads the roles of these manifests (which end with NULL), each bound to the account of
 * the only workload of that kind. */
void rights_read(struct rights *rights, const char *const *files, const char *workload);
void rights_fini(struct rights *rights);

/* Before anything is asked: kube-sim at that port is to count what each right covers. */
void rights_count(unsigned port, const struct rights *rights);
/* When all has been asked: each request is covered. Adds up what each right covered. */
void rights_check(unsigned port, struct rights *rights);
/* Each right has covered something. */
void rights_used(const struct rights *rights);
