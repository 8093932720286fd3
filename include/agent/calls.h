/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/publisher.h"
#include "kube/client.h"

/*
 * From the publisher's outputs to requests, and from what comes back to its inputs. Pure.
 */

struct calls_names {
    const char *node, *lease_namespace; /* borrowed */
};

/* Of a call, or of a watch. Strings are in the arena. */
void calls_request(const struct calls_names *names, const struct publisher_output *o,
                   struct arena *a, struct kube_request *request);

/* What became of a call. */
struct calls_answer {
    struct publisher_input input; /* points into the rest */
    struct api_object object;
    struct err err;
};
/* `reply` is what came; NULL: nothing, and `why` says why not. The answer borrows from
 * the reply's body and the arena. */
void calls_answer(const struct publisher_output *o, const struct httpc_reply *reply,
                  const struct err *why, struct arena *a, struct calls_answer *answer);
