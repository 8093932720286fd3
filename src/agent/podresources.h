/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>

#include "domain/ids.h"
#include "gpu/gpu.h"
#include "kube/podresources.h"
#include "node/allocation.h"
#include "node/usage.h"

/*
 * The devices of each container: what the kubelet's podresources API lists, and for plain
 * init containers, which it does not list, what our device plugin allocated. The plugin
 * writes every allocation to its state file (node/allocation.h) before the container starts,
 * with the pod's UID.
 */

struct podresources_entry {
    struct span ns, pod, container, resource;
    const struct span *ids; /* device ids */
    size_t n_ids;
};

/* How many devices of aliyun.com/gpu-mem the kubelet can allocate on each card. */
struct podresources_units {
    struct {
        struct ids_tag tag; /* of the card */
        int64_t n;
    } cards[GPU_MAX_CARDS];
    size_t n;
};

/* One answer of the kubelet, with the state of the device plugin. It does not change, and
 * its owners share it. */
struct podresources {
    atomic_uint refs;
    struct arena arena; /* has the arrays and strings */
    /* The devices of GPU resources, sorted by namespace, pod, container and resource, one
     * entry for each. */
    const struct podresources_entry *entries;
    size_t n;
    struct podresources_units units;
    /* Every container that the kubelet lists, also without devices. */
    const struct usage_listed *listed;
    size_t n_listed;
    struct allocation_set plugin; /* of our device plugin */
    bool plugin_known;
    int64_t asked_ms;             /* monotonic time when the kubelet was asked */
};

/* Adds a reference. Returns p. */
struct podresources *podresources_ref(struct podresources *p);
void podresources_unref(struct podresources *p); /* NULL is accepted */

/* Fills `to` from one List. */
int podresources_list(const char *socket, struct podresources *to, struct err *err);
/* Sets the entries of `to` from a list. A kubelet returns an entry for each id and NUMA
 * node, in no fixed order: without sorting, the same state would differ in each answer. */
void podresources_sort(const struct podres_list *list, struct podresources *to);

/* How many ids of the entry are on the card. */
size_t podresources_ids_on(const struct podresources_entry *e,
                           const struct ids_card *card);

/* Replaces the units of the cards that the kubelet names. Other cards keep theirs: it
 * leaves out cards that are not healthy. */
void podresources_count_units(const struct podres_allocatable *all,
                              struct podresources_units *units);
/* The units of a card; 0: not known. */
int64_t podresources_units_of(const struct podresources_units *units,
                              const struct ids_tag *tag);
/* The size of a unit on a card of `total_mib`: the power of two of which the card has `n`;
 * -1: none. */
int64_t podresources_unit_mib(int64_t total_mib, int64_t n);

/*
 * The thread that polls all of this.
 *
 * The interval is long: a kubelet that answers List during an allocation forgets which
 * ids it is about to allocate. Our device plugin detects that; other device plugins may
 * not.
 */

struct podresources_poller;

struct podresources_poller_settings {
    const char *socket; /* of podresources; borrowed */
    int64_t interval_ms;
    const char *plugin_state; /* state file of our device plugin; borrowed */
    struct span node;         /* its name; borrowed */
    /* `err`: the kubelet did not answer; NULL: `pods` is its answer. */
    void (*polled)(void *ctx, struct podresources *pods, const struct err *err);
    void *ctx;
};

/* New; the thread runs at once. `settings` is copied. */
struct podresources_poller *
podresources_poller_start(const struct podresources_poller_settings *settings);
/* Joins the thread. NULL is accepted. */
void podresources_poller_stop(struct podresources_poller *p);
void podresources_poller_free(struct podresources_poller *p); /* NULL is accepted */
