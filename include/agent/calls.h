/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/publisher.h"
#include "kube/client.h"

/*
 * From the publisher's outputs to HTTP requests, and from answers to its inputs. Pure.
 */

struct calls_names {
    const char *node, *lease_namespace; /* borrowed */
};

/* The request of a call or a watch. Strings are in the arena. */
void calls_request(const struct calls_names *names, const struct publisher_output *o,
                   struct arena *a, struct kube_request *request);

/* The result of a call. */
struct calls_answer {
    struct publisher_input input; /* points into the rest */
    struct api_object object;
    struct err err;
};
/* `reply` is the answer; NULL: there was none, for the reason `why`. The result borrows
 * from the reply's body and the arena. */
void calls_answer(const struct publisher_output *o, const struct httpc_reply *reply,
                  const struct err *why, struct arena *a, struct calls_answer *answer);
