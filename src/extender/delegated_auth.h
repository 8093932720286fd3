/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/prom.h"
#include "kube/client.h"
#include "kube/review.h"
#include "wire/httpd.h"

/*
 * Whether the owner of a bearer token may do something, as the API server decides it: a
 * TokenReview finds the user, then one SubjectAccessReview what the user may do. This is
 * delegated authentication and authorization as in k8s.io/apiserver and kube-rbac-proxy.
 *
 * Answers are kept for DELEGATED_AUTH_..._MS, by a keyed hash of question and token; the
 * text of a token is wiped when its review has ended. While they are kept, an unreachable
 * API server changes nothing.
 *
 * Reviews of unknown tokens are limited in rate and number, so that invented tokens neither
 * reach the API server in numbers nor replace known ones: those were authenticated before, and
 * are reviewed again without a limit.
 */

enum {
    DELEGATED_AUTH_ALLOWED_MS = 60 * 1000,
    DELEGATED_AUTH_DENIED_MS = 30 * 1000,       /* the user lacks the permission */
    DELEGATED_AUTH_UNAUTHORIZED_MS = 10 * 1000, /* the token is not valid */
    DELEGATED_AUTH_FAILED_MS = 1000, /* a call that failed is not repeated sooner */
    DELEGATED_AUTH_TOKENS_PER_S = 10,
    DELEGATED_AUTH_TOKENS_BURST = 50,
};

struct delegated_auth;

struct delegated_auth_config {
    /* A call to the API server, like kube_ask. From a thread of this module. */
    int (*call)(void *client, const struct kube_request *request,
                struct httpc_reply *reply, struct err *err);
    void *client;
    /* Lets a request wait, and wakes it; neither blocks. NULL: httpd_defer, httpd_resume,
     * and clock_mono_ms. */
    struct httpd_deferred *(*wait)(const struct httpd_request *request);
    void (*wake)(struct httpd_deferred *waiter);
    int64_t (*now_ms)(void);
};

/* New; starts its threads. NULL: no random numbers. */
struct delegated_auth *delegated_auth_start(const struct delegated_auth_config *config,
                                            struct err *err);
/* Joins the threads, and wakes all waiters. NULL is accepted. */
void delegated_auth_stop(struct delegated_auth *a);
void delegated_auth_free(struct delegated_auth *a); /* NULL is accepted */

/* What is asked. Everything is static. */
struct delegated_auth_question {
    const char *text; /* "list pods in all namespaces"; tells questions apart */
    struct review_access access;
};

enum delegated_auth_answer {
    DELEGATED_AUTH_YES,
    DELEGATED_AUTH_NO,          /* ERR_UNAUTHORIZED or ERR_FORBIDDEN */
    DELEGATED_AUTH_PENDING,     /* ask again when the waiter of the request is woken */
    DELEGATED_AUTH_UNAVAILABLE, /* the API server does not answer, or too many ask */
};

/* May the owner of the token do it? Never blocks. err is set with NO and UNAVAILABLE. */
enum delegated_auth_answer
delegated_auth_check(struct delegated_auth *a, struct span token,
                     const struct delegated_auth_question *question,
                     const struct httpd_request *request, struct err *err);

/* Appends metrics. NULL: there are no reviews. */
void delegated_auth_write(struct delegated_auth *a, struct buf *out);
