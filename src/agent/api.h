/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/publisher.h"
#include "kube/client.h"
#include "kube/list_watch.h"

/*
 * Between the publisher and the API server: from its outputs to HTTP requests, and from
 * answers and watch events to its inputs. Without a thread.
 */

/* The request of a call or a watch, of the node with that name. Strings are in the arena. */
void api_request(const char *node, const struct publisher_output *o, struct arena *a,
                 struct kube_request *request);

/* Reads one object. Strings are borrowed from the bytes and the arena. -1: malformed, or
 * without a name. */
int api_object_read(struct span bytes, struct arena *a, struct api_object *o,
                    struct err *err);

/* Reads the last item of a list; *found: whether there is one. *version is the list's
 * resourceVersion. */
int api_object_read_list(struct span bytes, struct arena *a, struct api_object *o,
                         bool *found, struct span *version, struct err *err);

/* The result of a call. */
struct api_answer {
    struct publisher_input input; /* points into the rest */
    struct api_object object;
    struct err err;
};
/* `reply` is the answer; NULL: there was none, for the reason `why`. The result borrows
 * from the reply's body and the arena. */
void api_answer(const struct publisher_output *o, const struct httpc_reply *reply,
                const struct err *why, struct arena *a, struct api_answer *answer);

/*
 * The watch of the Scv: its responses become inputs of the publisher. The ctx of
 * api_feed_fns, for a list_watch_loop with one slot, whose runs are those of
 * PUBLISHER_WATCH.
 *
 * An event that cannot be decoded ends the watch, because it may be a change. The list
 * that follows returns the object.
 */

struct api_feed;

/* New. `node`, its name, is borrowed. */
struct api_feed *api_feed_new(const char *node,
                              void (*input)(void *ctx, const struct publisher_input *in),
                              void *ctx);
void api_feed_free(struct api_feed *w); /* NULL is accepted */
extern const struct list_watch_fns api_feed_fns;
