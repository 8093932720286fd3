/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "apisync/apisync.h"

/*
 * Lists and watches one kind of object on an event loop, as the core asks with CORE_LIST
 * and CORE_WATCH. The pages of a list are requested one after the other.
 */

struct reflector {
    struct kube_client *client; /* these five are set by the owner, and borrowed */
    struct httpc_loop *loop;
    bool gzip; /* request compressed lists */
    const struct apisync_sink *sink;
    void *ctx;

    int64_t date_s; /* read-only: the server's clock when the answer to the last list
                       began, as httpc_stream_date_s */

    /* private */
    struct apisync sync;
    struct httpc_stream *stream; /* NULL: none */
    bool active;                 /* sync is in use */
    int64_t since_ms;
};

/* Starts the list or watch of the output; one that is running is canceled. To be called
 * in the loop's thread, not from the sink. The reflector must not move. */
void reflector_start(struct reflector *r, const struct core_output *output);
/* Cancels the running list or watch, if any. The sink gets no input about its end. */
void reflector_cancel(struct reflector *r);
