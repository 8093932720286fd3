/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/front_priv.h"

/* Streamed bodies: watches and long lists. */

/* Makes the watch, or the list, the body of the reply. Takes it. The caller of
 * sim_stream_watch holds the lock. */
void sim_stream_watch(struct sim_server *s, struct api_watch *w,
                      struct httpd_reply *reply);
void sim_stream_list(struct api_list *list, struct httpd_reply *reply);
/* Compresses the body if it is large enough and not a watch. */
void sim_stream_compress(struct sim_server *s, struct httpd_reply *reply);

/* Applies the order to the watches of a resource, NULL for all. Returns their number. The
 * caller holds the lock. */
enum stream_order {
    STREAM_CUT,   /* reset the connections */
    STREAM_END,   /* end the watches cleanly, like a server that shuts down */
    STREAM_COUNT, /* count only */
    STREAM_WAKE,  /* check for events to send */
};
size_t sim_stream_order(struct sim_server *s, const char *resource,
                        enum stream_order order);
