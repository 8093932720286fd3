/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/hash.h"
#include "base/list.h"
#include "domain/dialect.h"
#include "domain/request.h"

/*
 * ResourceQuotas of what another system counts. The API server accepts limits.nvidia.com/gpumem
 * and limits.nvidia.com/gpucores in a ResourceQuota, and never counts them. HAMi does, and so does
 * the ledger, for pods with a request in HAMi's words:
 *
 *   - MiB and percent of compute on each card, times the cards, of the pods of the namespace with a
 *     promise or a reservation. A percentage counts with the MiB that it takes on the cards that
 *     the pod gets.
 *   - Each ResourceQuota of the namespace holds, by spec.hard. As for HAMi, scopes do not restrict
 *     it to some of the pods, so that no pod escapes a quota: it rather counts too many.
 *   - limits.nvidia.com/gpu and names without "limits." mean nothing here. status.used is not
 *     written.
 */

enum quota_resource { QUOTA_MEMORY, QUOTA_CORES, QUOTA_RESOURCES };

/* On all cards of a pod: MiB, and percent of compute. */
struct quota_amounts {
    int64_t of[QUOTA_RESOURCES];
};

/* Do quotas count the request? */
static inline bool quota_counts(const struct request *r)
{
    return r->dialect != SCV_DIALECT_NONE;
}
/* What a request takes of so many cards, of which it has so many MiB in all. Nothing if quotas do
 * not count it. */
struct quota_amounts quota_amounts(const struct request *request, uint32_t cards,
                                   int64_t mib);

/* An object ResourceQuota. */
struct quota {
    struct object_meta meta;
    struct span hard; /* spec.hard, raw; {NULL, 0}: absent */
};
void quota_read(struct jread *j, struct arena *a, struct quota *quota);

/* The quotas of all namespaces, and what is used there. Read-only for others, except `freed`. */
struct quota_limit {
    struct quota_limit *next;
    struct span name;              /* of the object */
    int64_t hard[QUOTA_RESOURCES]; /* MiB, percent; -1: not limited */
    uint64_t list;                 /* the last one that had it */
};
struct quota_namespace {
    struct list link;
    struct span name;
    struct quota_limit *limits; /* NULL: none */
    int64_t used[QUOTA_RESOURCES];
};
struct quotas {
    const struct dialect *dialect;
    struct map by_name;
    struct list namespaces;
    uint64_t generation; /* changes with every limit */
    bool
        freed; /* set when pods that were rejected may fit: less is used, or a limit has changed */
};

/* `dialect` is borrowed: its keys follow "limits.", and its factor is that of a quota, too. `seed`
 * keys the hash table. */
void quotas_init(struct quotas *q, const struct dialect *dialect, uint64_t seed);
void quotas_fini(struct quotas *q);
/* An object replaces that of its name; one that limits nothing is as none, and one that cannot be
 * read allows nothing. `list`: for quotas_sweep, which deletes those that the list lacked. */
void quotas_seen(struct quotas *q, const struct quota *quota, uint64_t list);
void quotas_sweep(struct quotas *q, uint64_t list);
/* So much more is used, or less with `sign` -1. */
void quotas_use(struct quotas *q, struct span ns, struct quota_amounts amounts, int sign);
/* May a pod of the namespace use so much more, if what it has already (`own`) is counted? False:
 * appends the reason, in the words of Kubernetes, unless `why` is NULL. Only resources that it asks
 * for count, so a pod can start where another resource is used up. */
bool quotas_allow(const struct quotas *q, struct span ns, struct quota_amounts asked,
                  struct quota_amounts own, struct buf *why);
/* Appends "limits.nvidia.com/gpumem", and returns the amount as a ResourceQuota has it. */
int64_t quotas_write(struct buf *out, const struct quotas *q,
                     enum quota_resource resource, int64_t amount);
