/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/call_priv.h"

/*
 * TokenReview and SubjectAccessReview, answered by rules that a test sets
 * (docs/testing.md). A review is not stored.
 */

/* The resource of a path, such as "tokenreviews", and its group; NULL: not a review. */
const char *sim_review_resource(const char *path, const char **group);
void sim_review_handle(struct call *c);
