/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/ids.h"
#include "node/allocation.h"
#include "kube/podresources.h"
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

/* How many devices the kubelet can allocate on a card. */
struct podresources_units {
    struct ids_tag tag; /* of the card */
    int64_t n;
};

/* What a plain init container has of a card, and the sidecars of its pod: units of
 * aliyun.com/gpu-mem. */
struct podresources_init {
    struct span pod_uid, ns, pod, container;
    struct span uuid; /* of the card */
    bool whole;       /* aliyun.com/gpu-count: all of it */
    int64_t units, beside;
};

/* One answer of the kubelet, with the state of the device plugin. */
struct podresources {
    const struct podresources_entry *entries;
    size_t n;
    /* aliyun.com/gpu-mem, one for each card; none: not asked, or not known. */
    const struct podresources_units *units;
    size_t n_units;
    /* Every container that the kubelet lists, also without devices. */
    const struct usage_listed *listed;
    size_t n_listed;
    const struct podresources_init *inits;
    size_t n_inits;
    bool inits_known; /* false: they could not be read */
    int64_t asked_ms; /* monotonic time when the kubelet was asked */
};

/* Copies the entries of GPU resources, and nothing else, sorted by namespace, pod, container
 * and resource, one entry for each. A kubelet returns an entry for each id and NUMA node, in
 * no fixed order: without this, the same state would differ in each answer. Everything is in
 * the arena. */
void podresources_normalize(const struct podresources *from, struct arena *a,
                            struct podresources *to);

/* Counts the ids of aliyun.com/gpu-mem that the kubelet can allocate, by card; in the
 * arena. */
void podresources_count_units(const struct podres_allocatable *all, struct arena *a,
                              struct podresources *to);
/* The size of a unit on a card of `total_mib`: the power of two of which the card has `n`;
 * -1: none. */
int64_t podresources_unit_mib(int64_t total_mib, int64_t n);

/* One List. Fills *to; strings and arrays are in the arena. */
int podresources_list(const char *socket, struct arena *a, struct podresources *to,
                      struct err *err);

/* Sets the inits of `to`, in the arena, from the state file of the node. Without the file
 * there are none: another device plugin runs here, or none. On error they are not known. */
int podresources_read_inits(const char *path, struct span node, struct arena *a,
                            struct podresources *to, struct err *err);

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
    /* `err`: the kubelet did not answer; NULL: *pods is its answer. */
    void (*polled)(void *ctx, const struct podresources *pods, const struct err *err);
    void *ctx;
};

/* New; the thread runs at once. `settings` is copied. */
struct podresources_poller *
podresources_poller_start(const struct podresources_poller_settings *settings);
/* Joins the thread. NULL is accepted. */
void podresources_poller_stop(struct podresources_poller *p);
void podresources_poller_free(struct podresources_poller *p); /* NULL is accepted */
