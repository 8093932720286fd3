/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "apisync/apisync.h"

/*
 * The list or watch of one kind, on a loop: what the core asks for with CORE_LIST and
 * CORE_WATCH. A list's pages are asked for one after the other.
 */

struct reflector {
    struct kube_client *client; /* these five are the owner's to set, and borrowed */
    struct httpc_loop *loop;
    bool gzip; /* let lists be compressed */
    const struct apisync_sink *sink;
    void *ctx;

    int64_t date_s; /* to be read: the server's clock when it began to answer the last
                       list, as httpc_stream_date_s */

    /* of stream.c alone */
    struct apisync feed;
    struct httpc_stream *stream; /* NULL: none */
    bool fed;                    /* feed is in use */
    int64_t since_ms;
};

/* Starts what the output asks for; what ran before is cancelled. In the loop's thread,
 * not from the sink. The stream must stay where it is. */
void reflector_start(struct reflector *s, const struct core_output *wish);
/* Ends it without a word to the sink. */
void reflector_cancel(struct reflector *s);
