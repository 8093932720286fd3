/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/front_priv.h"

/* Bodies that are sent bit by bit: watches, and long lists. */

/* Lets the reply go on with the watch, or the list. Takes it. For a watch the lock is
 * held. */
void sim_stream_watch(struct sim_server *s, struct api_watch *w,
                      struct httpd_reply *reply);
void sim_stream_list(struct api_list *list, struct httpd_reply *reply);
/* Compresses the answer if it is large enough, and no watch. */
void sim_stream_compress(struct sim_server *s, struct httpd_reply *reply);

/* For the watches of a resource, or of all when it is NULL; the lock is held. Answers how
 * many there are. */
enum stream_order {
    STREAM_CUT,   /* break the connection off */
    STREAM_END,   /* end the watch as a server does that restarts */
    STREAM_COUNT, /* nothing */
    STREAM_WAKE,  /* look again whether there is something to send */
};
size_t sim_stream_order(struct sim_server *s, const char *resource,
                        enum stream_order order);
