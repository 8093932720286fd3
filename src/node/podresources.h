/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>

#include "domain/ids.h"
#include "gpu/gpu.h"
#include "kube/podresources.h"
#include "node/allocation.h"
#include "node/usage.h"

/*
 * The devices of each container: what the kubelet's podresources API lists, and what this
 * process allocated. The latter is there before the container starts, also while the kubelet is
 * not asked, and has the plain init containers, which the kubelet does not list.
 */

struct podresources_entry {
    struct span ns, pod, container, resource;
    const struct span
        *ids; /* device ids, as the kubelet lists them, or `others` of `al` */
    size_t n_ids;
    int64_t slot_mib;            /* as in struct allocation, from that of the container */
    const struct allocation *al; /* NULL: the kubelet lists it; borrowed */
};

/* It does not change, and its owners share it. */
struct podresources {
    atomic_uint refs;
    struct arena arena; /* has the arrays and strings, but for those of the list */
    struct podresources *asked; /* a reference to what has the list; NULL: this has it */
    struct podres_list list;    /* the kubelet's answer */
    int64_t asked_ms;           /* monotonic time when the kubelet was asked */
    /* The devices of GPU resources, sorted by namespace, pod, container and resource, one
     * entry for each. */
    const struct podresources_entry *entries;
    size_t n;
    /* Every container that the kubelet lists, also without devices. */
    const struct usage_listed *listed;
    size_t n_listed;
    struct allocation_set allocations; /* of this process */
    bool allocates;                    /* they are all */
};

/* Adds a reference. Returns p. */
struct podresources *podresources_ref(struct podresources *p);
void podresources_unref(struct podresources *p); /* NULL is accepted */

/* Fills the list of `to` from one List. */
int podresources_list(const char *socket, struct podresources *to, struct err *err);
/* Sets the entries and the listed containers of `to` from its list, and adds an entry for each of
 * its allocations that the list lacks. A kubelet returns an entry for each id and NUMA node, in
 * no fixed order: without sorting, the same state would differ in each answer. */
void podresources_sort(struct podresources *to);

/* How many ids of the entry are on the card. */
size_t podresources_ids_on(const struct podresources_entry *e,
                           const struct ids_card *card);

/*
 * The thread that asks the kubelet.
 *
 * The interval is long: a kubelet that answers List during an allocation forgets which
 * ids it is about to allocate. Our device plugin detects that; other device plugins may
 * not. While this process admits a pod, List waits, for one more interval at most.
 */

struct podresources_poller;

struct podresources_poller_settings {
    const char *socket; /* of podresources; borrowed */
    int64_t interval_ms;
    struct span node; /* its name; borrowed */
    /* `err`: the kubelet did not answer; NULL: `pods` is its answer, or was and has other
     * allocations now. */
    void (*polled)(void *ctx, struct podresources *pods, const struct err *err);
    bool (*admits)(void *ctx); /* NULL: it never does */
    void *ctx;
};

/* New; the thread runs at once. `settings` is copied. */
struct podresources_poller *
podresources_poller_start(const struct podresources_poller_settings *settings);
/* Takes the allocations of this process, in the format of the state file. From any thread; never
 * blocks. NULL is accepted. */
void podresources_poller_allocations(struct podresources_poller *p, struct span state);
/* Joins the thread. False: a call is still in flight at `until_ms` (clock_mono_ms), and nothing may
 * be freed. NULL is accepted. */
bool podresources_poller_stop(struct podresources_poller *p, int64_t until_ms);
/* Joins the thread, if it runs. NULL is accepted. */
void podresources_poller_free(struct podresources_poller *p);
