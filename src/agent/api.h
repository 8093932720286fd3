/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/publisher.h"
#include "kube/client.h"
#include "kube/list_watch.h"

/*
 * Between the publisher and the API server: from its outputs to HTTP requests, from answers
 * and watch events to its inputs, and the thread of the watch.
 */

struct api_names {
    const char *node, *lease_namespace; /* borrowed */
};

/* The request of a call or a watch. Strings are in the arena. */
void api_request(const struct api_names *names, const struct publisher_output *o,
                 struct arena *a, struct kube_request *request);

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
 * Decodes the watch of the Scv into inputs of the publisher. Pure.
 *
 * An event that cannot be decoded ends the watch, because it may be a change. The list
 * that follows returns the object.
 */

struct api_feed {
    struct list_watch in;
    uint64_t run; /* number of the watch, in every input */
    void (*input)(void *ctx, const struct publisher_input *in);
    void *ctx;
};

void api_feed_init(struct api_feed *f,
                   void (*input)(void *ctx, const struct publisher_input *in),
                   void *ctx);
void api_feed_fini(struct api_feed *f);

void api_feed_start(struct api_feed *f, uint64_t run);
/* The headers of the response, then pieces of its body. False: cancel the stream. */
bool api_feed_begin(struct api_feed *f, unsigned status, int64_t retry_after_s);
bool api_feed_data(struct api_feed *f, const char *p, size_t n);
/* The response ended, or there was none: passes PUBLISHER_WATCH_ENDED on. `why` is NULL
 * when the server ended the watch regularly. */
void api_feed_end(struct api_feed *f, const struct err *why);

/*
 * The thread that watches the Scv: one watch at a time, the last one requested.
 */

struct api_watch;

/* New; the thread runs at once. `client` and `names` are borrowed. */
struct api_watch *api_watch_start(struct kube_client *client,
                                  const struct api_names *names,
                                  void (*input)(void *ctx,
                                                const struct publisher_input *in),
                                  void *ctx);
/* PUBLISHER_WATCH. From any thread; never blocks for long. */
void api_watch_begin(struct api_watch *w, const struct publisher_output *output);
void api_watch_stop(struct api_watch *w); /* joins the thread; NULL is accepted */
void api_watch_end(struct api_watch *w); /* NULL is accepted */
