/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "core/core.h"
#include "kube/client.h"
#include "kube/listwatch.h"

/*
 * From the bytes of a list or watch to inputs of the core. Pure: it makes the requests
 * and reads what comes back; whoever has the connection carries the bytes.
 *
 *     feed_start ... { feed_request, feed_begin, feed_data ..., feed_end } per page
 *
 * An object that has a fault is reported and left out; an Scv with a fault is handed on
 * as damaged, so that its node gives nothing out on the strength of older news.
 */

struct feed_sink {
    void (*input)(void *ctx, const struct core_input *in);
    /* An object could not be used; `err` says which and why. */
    void (*fault)(void *ctx, const struct err *err);
    /* An Scv with all that it says (scv_read_all), before the input with what counts.
     * NULL: not wanted. */
    void (*scv)(void *ctx, const struct scv *scv, uint64_t run, bool gone);
};

struct feed {
    enum core_kind kind;
    bool watch;
    uint64_t run;
    const struct feed_sink *sink; /* borrowed */
    void *ctx;
    struct listwatch in; /* its version: where a watch starts */
    size_t objects;      /* of the run */
};

/* Begins a run. `version` is where a watch starts; empty for a list. */
void feed_start(struct feed *f, enum core_kind kind, bool watch, uint64_t run,
                struct span version, const struct feed_sink *sink, void *ctx);
void feed_fini(struct feed *f);

/* The request of the watch, or of the list's next page. Strings are in the arena. */
void feed_request(const struct feed *f, bool gzip, struct arena *a,
                  struct kube_request *request);

/* The answer begins; a piece of its body. False: the rest is not wanted. */
bool feed_begin(struct feed *f, unsigned status, int64_t retry_after_s);
bool feed_data(struct feed *f, const char *p, size_t n);
/* The answer has ended; `why` is NULL if as announced. Delivers the end of the run to the
 * sink. True: the list goes on with another page instead. */
bool feed_end(struct feed *f, const struct err *why);
