/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "core/core.h"
#include "kube/client.h"

/*
 * Encodes the API calls of the core as HTTP requests, and decodes the answers into
 * inputs. Pure, like apisync/apisync.h.
 */

/* Whether the output is an API call, to be answered with CORE_ANSWER. */
bool api_call_is(const struct core_output *output);

/* Sets the request of a call. Strings are in the arena. */
void api_call_request(const struct core_output *call, struct arena *a,
                      struct kube_request *request);

/* The result of a call. `status` 0: no answer; `why` is the error, and `sent` tells
 * whether the request may have reached the server. */
struct api_call_result {
    unsigned status;
    struct span body;
    const struct err *why;
    bool sent;
    int64_t retry_after_s; /* from Retry-After; 0 or less: absent */
};

/* An input and the objects that it points to. */
struct api_call_answer {
    struct core_input input;
    struct err err;
    struct pod pod;
    struct lease lease;
};

/* Decodes the result of a call. The answer borrows from the body and the arena. */
void api_call_answer(const struct core_output *call, const struct api_call_result *result,
                     struct arena *a, struct api_call_answer *answer);
