/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "core/core.h"
#include "kube/client.h"
#include "kube/watchfeed.h"

/*
 * From the bytes of a list or watch to inputs of the core. Pure: it makes the requests
 * and reads what comes back; whoever has the connection carries the bytes.
 *
 *     apisync_start ... { apisync_request, apisync_begin, apisync_data ..., apisync_end }
 * per page
 *
 * An object that has a fault is reported and left out; an Scv with a fault is handed on
 * as damaged, so that its node gives nothing out on the strength of older news.
 */

struct apisync_sink {
    void (*input)(void *ctx, const struct core_input *in);
    /* An object could not be used; `err` says which and why. */
    void (*fault)(void *ctx, const struct err *err);
    /* An Scv with all that it says (scv_read_all), before the input with what counts.
     * NULL: not wanted. */
    void (*scv)(void *ctx, const struct scv *scv, uint64_t run, bool gone);
};

struct apisync {
    enum core_kind kind;
    bool watch;
    uint64_t run;
    const struct apisync_sink *sink; /* borrowed */
    void *ctx;
    struct watchfeed in; /* its version: where a watch starts */
    size_t objects;      /* of the run */
};

/* Begins a run. `version` is where a watch starts; empty for a list. */
void apisync_start(struct apisync *f, enum core_kind kind, bool watch, uint64_t run,
                   struct span version, const struct apisync_sink *sink, void *ctx);
void apisync_fini(struct apisync *f);

/* The request of the watch, or of the list's next page. Strings are in the arena. */
void apisync_request(const struct apisync *f, bool gzip, struct arena *a,
                     struct kube_request *request);

/* The answer begins; a piece of its body. False: the rest is not wanted. */
bool apisync_begin(struct apisync *f, unsigned status, int64_t retry_after_s);
bool apisync_data(struct apisync *f, const char *p, size_t n);
/* The answer has ended; `why` is NULL if as announced. Delivers the end of the run to the
 * sink. True: the list goes on with another page instead. */
bool apisync_end(struct apisync *f, const struct err *why);
