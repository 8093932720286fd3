/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/client.h"
#include "node/publisher.h"

/*
 * Between the publisher and the API server: from its outputs to HTTP requests, and from
 * answers to its inputs. Without a thread.
 */

/* The request of a call, of the node with that name. Strings are in the arena. */
void api_request(const char *node, const struct publisher_output *o, struct arena *a,
                 struct kube_request *request);

/* Reads one object. Strings are borrowed from the bytes and the arena. -1: malformed, or
 * without a name. */
int api_object_read(struct span bytes, struct arena *a, struct api_object *o,
                    struct err *err);

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
