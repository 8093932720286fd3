/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/client.h"
#include "kube/list_watch.h"
#include "plugin/pod_allocation.h"

/*
 * Reflector of the pods of one node: a list, then consecutive watches. Pure: it builds
 * the requests and reads the answers; the caller has the connection.
 *
 * Terminal pods are included, because the kubelet's podresources shows them. An invalid
 * pod is passed on without containers, so that it is known.
 */

struct pod_reflector_sink {
    void (*seen)(void *ctx, struct pod_allocation *pod); /* takes `pod` */
    void (*deleted)(void *ctx, struct span uid);
    void (*list)(void *ctx, bool ended); /* a list has started or ended */
    void (*invalid)(void *ctx, const struct err *err);
};

struct pod_reflector {
    const char *node; /* borrowed, as the next three */
    const struct pod_reflector_sink *sink;
    void *ctx;
    int64_t unit_mib;
    bool watching, paging;
    struct list_watch in; /* its version: how far the watch has got */
    int64_t failures;
    uint64_t runs; /* number of watches; spreads their timeouts */
};

void pod_reflector_init(struct pod_reflector *f, const char *node, int64_t unit_mib,
                        const struct pod_reflector_sink *sink, void *ctx);
void pod_reflector_fini(struct pod_reflector *f);

/* Abandons the request in flight, if any: the next request is a list. */
void pod_reflector_relist(struct pod_reflector *f);
/* The next request. Strings are in the arena. */
void pod_reflector_request(struct pod_reflector *f, struct arena *a,
                           struct kube_request *request);
/* The answer's header has arrived; a piece of its body. False: ignore the rest. */
bool pod_reflector_begin(struct pod_reflector *f, unsigned status, int64_t retry_after_s);
bool pod_reflector_data(struct pod_reflector *f, const char *p, size_t n);
/* The answer has ended; `why`: the connection's error, or NULL. Returns the milliseconds
 * until the next request is due. *err: the failure, or code ERR_NONE. */
int64_t pod_reflector_end(struct pod_reflector *f, const struct err *why,
                          struct err *err);
