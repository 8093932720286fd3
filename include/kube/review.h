/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"

/*
 * TokenReview (authentication.k8s.io/v1) and SubjectAccessReview
 * (authorization.k8s.io/v1): who a client is and what it may do, as the API server
 * decides it. Pure: writes the bodies of the calls and reads the answers.
 */

#define REVIEW_TOKEN_PATH  "/apis/authentication.k8s.io/v1/tokenreviews"
#define REVIEW_ACCESS_PATH "/apis/authorization.k8s.io/v1/subjectaccessreviews"

/* RFC 6750's b64token, and not longer than any header of the API server: other texts are
 * no tokens, and no call is needed to find out. */
enum { REVIEW_TOKEN_MAX = 16 * 1024 };
bool review_token_is_plausible(struct span token);

/* Appends the body of a TokenReview, without a copy of the token elsewhere: `out` must be
 * empty. The caller wipes it. */
void review_token_write(struct buf *out, struct span token);

/* A user as the API server names one. */
struct review_user {
    char *name; /* "system:serviceaccount:monitoring:prometheus" */
    char *spec; /* members of a SubjectAccessReview's spec: user, uid, groups, extra */
};
void review_user_fini(struct review_user *u);
/* 1: authenticated, and *user is set. 0: the token is not valid. -1: not a TokenReview.
 * `user` is to be released in any case. */
int review_token_read(struct span answer, struct review_user *user, struct err *err);
/* What a user wants to do: a verb on a path, or on a resource in all namespaces if `path` is
 * NULL. */
struct review_access {
    const char *verb;
    const char *path;
    const char *group, *version, *resource;
};
void review_access_write(struct buf *out, const char *user_spec,
                         const struct review_access *access);
/* 1: allowed. 0: not allowed. -1: not a SubjectAccessReview. */
int review_access_read(struct span answer, struct err *err);
