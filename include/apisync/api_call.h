/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "core/core.h"
#include "kube/client.h"

/*
 * From the core's calls to requests of the Kubernetes API, and from the answers back to
 * inputs. Pure, like feed/feed.h.
 */

/* Is the output a call, to be answered with CORE_ANSWER? */
bool api_call_is(const struct core_output *output);

/* The request of a call. Strings are in the arena. */
void api_call_request(const struct core_output *call, struct arena *a,
                      struct kube_request *request);

/* What came back. `status` 0: no answer; `why` says why, and `sent` whether the request
 * may have reached the server. */
struct api_call_result {
    unsigned status;
    struct span body;
    const struct err *why;
    bool sent;
};

/* An input together with what it points to. */
struct api_call_answer {
    struct core_input input;
    struct err err;
    struct pod pod;
    struct lease lease;
};

/* Reads the result of a call. The answer borrows from the body and the arena. */
void api_call_answer(const struct core_output *call, const struct api_call_result *result,
                     struct arena *a, struct api_call_answer *answer);
