/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "core/core.h"
#include "kube/list_watch.h"

/*
 * Translates between the core and the API server: objects of lists and watches become
 * inputs, outputs become API calls, and their answers inputs. Pure: it builds requests and
 * reads the bytes of answers; kube/list_watch.h and kube/client.h do the I/O.
 *
 * Lists and watches
 *
 *     apisync_start ... { apisync_request, list_watch_begin, list_watch_data ...,
 *     apisync_end } per page
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
    struct list_watch in; /* decodes the answer; its version is where a watch starts */
    size_t objects;       /* of this run */
    int64_t since_ms;     /* when it began; on a loop only */
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

/* The answer is complete (`why` NULL), or ended with an error. True: the list has another
 * page. False: the run has ended, and the sink has got its end. */
bool apisync_end(struct apisync *s, const struct err *why);

/*
 * The lists and watches of all kinds on a loop (kube/list_watch.h): new with CORE_ALL_KINDS
 * slots, apisync_streams_fns and the apisync_streams as ctx.
 */
struct apisync_streams {
    const struct apisync_sink *sink; /* these three are set by the owner, and borrowed */
    void *ctx;
    bool gzip; /* request compressed lists */

    struct apisync kinds[CORE_ALL_KINDS]; /* private */
};
extern const struct list_watch_fns apisync_streams_fns;
/* Starts a CORE_LIST or CORE_WATCH. From any thread; never blocks. */
void apisync_streams_start(struct list_watch_loop *loop,
                           const struct core_output *output);
/* After the loop has stopped. */
void apisync_streams_fini(struct apisync_streams *streams);

/*
 * Calls
 */

/* Whether the output is an API call, to be answered with CORE_ANSWER. */
bool apisync_is_call(const struct core_output *output);

/* Sets the request of a call. Strings are in the arena. */
void apisync_call(const struct core_output *call, struct arena *a,
                  struct kube_request *request);

/* The result of a call. `status` 0: no answer; `why` is the error, and `sent` tells
 * whether the request may have reached the server. */
struct apisync_result {
    unsigned status;
    struct span body;
    const struct err *why;
    bool sent;
    int64_t retry_after_s; /* from Retry-After; 0 or less: absent */
};

/* An input and the objects that it points to. */
struct apisync_answer {
    struct core_input input;
    struct err err;
    struct pod pod;
    struct lease lease;
};

/* Decodes the result of a call. The answer borrows from the body and the arena. */
void apisync_answer(const struct core_output *call, const struct apisync_result *result,
                    struct arena *a, struct apisync_answer *answer);
