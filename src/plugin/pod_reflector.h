/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/client.h"
#include "kube/list_watch.h"
#include "plugin/alloc.h"

/*
 * Reflector of the pods of one node: a list, then consecutive watches. Pure: it builds
 * the requests and reads the answers; the caller has the connection.
 *
 * Terminal pods are included, because the kubelet's podresources shows them. An invalid
 * pod is passed on without containers, so that it is known.
 */

struct pod_reflector_sink {
    /* ALLOC_IN_POD, POD_DELETED, LIST_STARTED or LIST_ENDED; takes the pod. */
    void (*input)(void *ctx, const struct alloc_input *in);
    void (*invalid)(void *ctx, const struct err *err);
    void (*opened)(void *ctx); /* the watch */
};

struct pod_reflector {
    const char *node; /* borrowed, as the next three */
    const struct pod_reflector_sink *sink;
    void *ctx;
    int64_t unit_mib;
    bool watching, paging;
    struct list_watch in; /* its version: how far the watch has got */
    unsigned failures;    /* in a row */
    struct rng rng;
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
/* Pass the answer to list_watch_begin and list_watch_data of `in`. */

/* The answer has ended; `why`: the connection's error, or NULL. Returns the milliseconds
 * until the next request is due. *err: the failure, or code ERR_NONE. */
int64_t pod_reflector_end(struct pod_reflector *f, const struct err *why,
                          struct err *err);
