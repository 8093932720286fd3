/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "core/core.h"
#include "kube/client.h"
#include "kube/listwatch.h"

/*
 * Parses lists and watches of the API server into inputs of the core. Pure: it builds the
 * requests and reads the bytes of the answers; apisync/reflector.h does the I/O.
 *
 *     apisync_start ... { apisync_request, apisync_begin, apisync_data ..., apisync_end }
 *     per page
 *
 * An invalid object is reported and skipped. An invalid Node or Scv is passed on as damaged, so
 * that its node gets no pods on the strength of an older state.
 */

struct apisync_sink {
    void (*input)(void *ctx, const struct core_input *in);
    /* An object is invalid; `err` names it and the reason. */
    void (*fault)(void *ctx, const struct err *err);
    /* An Scv with all its members (scv_read_all), before the input with those that the
     * core uses. NULL: not wanted. */
    void (*scv)(void *ctx, const struct scv *scv, uint64_t run, bool gone);
};

struct apisync {
    enum core_kind kind;
    bool watch;
    uint64_t run;
    const struct apisync_sink *sink; /* borrowed */
    void *ctx;
    struct listwatch in; /* the parser; its version is where a watch starts */
    size_t objects;      /* of this run */
};

/* Begins a run, a list or a watch. `version`: the resourceVersion at which a watch
 * starts; empty for a list. */
void apisync_start(struct apisync *s, enum core_kind kind, bool watch, uint64_t run,
                   struct span version, const struct apisync_sink *sink, void *ctx);
void apisync_fini(struct apisync *s);

/* Sets the request of the watch, or of the next page of the list. Strings are in the
 * arena. */
void apisync_request(const struct apisync *s, bool gzip, struct arena *a,
                     struct kube_request *request);

/* The answer begins; a part of its body. False: discard the rest. */
bool apisync_begin(struct apisync *s, unsigned status, int64_t retry_after_s);
bool apisync_data(struct apisync *s, const char *p, size_t n);
/* The answer is complete (`why` NULL), or ended with an error. True: the list has another
 * page. False: the run has ended, and the sink has got its end. */
bool apisync_end(struct apisync *s, const struct err *why);
