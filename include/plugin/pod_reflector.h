/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/client.h"
#include "kube/watchfeed.h"
#include "plugin/pod_allocation.h"

/*
 * The pods of one node: a list, and then one watch after the other from where it ended.
 * Pure: it makes the requests and reads what comes back; whoever has the connection
 * carries the bytes.
 *
 * All pods are read, those that are over too: the kubelet shows them, and what it shows
 * must be known. A pod with a fault is handed on without containers, so that it is known.
 */

struct pod_reflector_sink {
    void (*seen)(void *ctx, struct pod_allocation *pod); /* takes it over */
    void (*gone)(void *ctx, struct span uid);
    void (*list)(void *ctx, bool ended); /* a list begins, or has ended */
    void (*fault)(void *ctx, const struct err *err);
};

struct pod_reflector {
    const char *node; /* borrowed, as the next three */
    const struct pod_reflector_sink *sink;
    void *ctx;
    int64_t unit_mib;
    bool watching, paging;
    struct watchfeed in; /* its version: how far the watch has come */
    int64_t failures;
    uint64_t runs; /* spreads the ends of watches */
};

void pod_reflector_init(struct pod_reflector *f, const char *node, int64_t unit_mib,
                        const struct pod_reflector_sink *sink, void *ctx);
void pod_reflector_fini(struct pod_reflector *f);

/* Gives the request up that is under way, if any: the next one is a list. */
void pod_reflector_relist(struct pod_reflector *f);
/* The next request. Strings are in the arena. */
void pod_reflector_request(struct pod_reflector *f, struct arena *a,
                           struct kube_request *request);
/* The answer begins; a piece of its body. False: the rest is not wanted. */
bool pod_reflector_begin(struct pod_reflector *f, unsigned status, int64_t retry_after_s);
bool pod_reflector_data(struct pod_reflector *f, const char *p, size_t n);
/* The answer has ended; `why` NULL: as announced. Returns after how many milliseconds the
 * next request is due. *err is why it went wrong (code ERR_NONE: it did not). */
int64_t pod_reflector_end(struct pod_reflector *f, const struct err *why,
                          struct err *err);
