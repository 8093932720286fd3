/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/prom.h"
#include "kube/client.h"
#include "kube/review.h"
#include "view/scope.h"

/*
 * Who may see views, as the API server decides it: a TokenReview finds the user of a
 * bearer token, and SubjectAccessReviews find what the user may do. This is delegated
 * authentication and authorization as in k8s.io/apiserver and kube-rbac-proxy.
 *
 * Answers are kept for VIEW_AUTH_..._MS (controller-runtime keeps identities for as long).
 * While they are kept, an unreachable API server changes nothing. A token is kept as a
 * keyed hash; its text is wiped when its review has ended.
 *
 * Reviews of unknown tokens are limited in rate and number, so that invented tokens
 * neither reach the API server in numbers nor replace known ones: those have a table of
 * their own, into which only authenticated tokens come, and are reviewed again without a
 * limit.
 *
 * No function blocks. A result that needs a call is VIEW_AUTH_WAIT, and the caller asks
 * again when its waiter is woken.
 */

enum {
    VIEW_AUTH_AUTHENTICATED_MS = 60 * 1000,
    VIEW_AUTH_REJECTED_MS = 10 * 1000,
    VIEW_AUTH_ALLOWED_MS = 60 * 1000,
    VIEW_AUTH_DENIED_MS = 30 * 1000,
    VIEW_AUTH_GRACE_MS = 10 * 1000, /* longer, for a request that was allowed */
    VIEW_AUTH_FAILED_MS = 1000,     /* a call that failed is not repeated sooner */
    VIEW_AUTH_TOKENS_PER_S = 10,
    VIEW_AUTH_TOKENS_BURST = 50,
    VIEW_AUTH_NAMESPACES = 512, /* of a user who may not list all pods; more are hidden */
    VIEW_AUTH_STREAM_MS = 10 * 60 * 1000, /* a stream ends after this time */
};

struct view_auth;

struct view_auth_config {
    /* A call to the API server, like kube_call. From a thread of view_auth. */
    int (*call)(void *ctx, const struct kube_request *request, struct httpc_reply *reply,
                struct err *err);
    void *call_ctx;
    /* The namespaces that have pods, each once, at most `max`; allocated in the arena.
     * Called without a lock. */
    size_t (*namespaces)(void *ctx, struct arena *a, struct span *out, size_t max);
    void *namespaces_ctx;
    void (*wake)(void *waiter); /* never blocks */
    int64_t (*now_ms)(void);    /* NULL: clock_mono_ms */
};

/* New; starts its threads. NULL: no random numbers. */
struct view_auth *view_auth_start(const struct view_auth_config *config, struct err *err);
/* Joins the threads, and wakes all waiters. NULL is accepted. */
void view_auth_stop(struct view_auth *a);
/* No user and no grant may be left. NULL is accepted. */
void view_auth_free(struct view_auth *a);

enum view_auth_result {
    VIEW_AUTH_YES,
    VIEW_AUTH_NO,          /* not authenticated, or not allowed */
    VIEW_AUTH_WAIT,        /* the waiter is woken when there is more to know */
    VIEW_AUTH_UNAVAILABLE, /* the API server does not answer, or too many ask */
};

/* Makes a waiter; called only if the result is VIEW_AUTH_WAIT. */
struct view_auth_waiter {
    void *(*begin)(void *ctx);
    void *ctx;
};

struct view_auth_user;                              /* reference-counted */
void view_auth_user_free(struct view_auth_user *u); /* NULL is accepted */
const char *view_auth_user_name(const struct view_auth_user *u);

/* The user of a token; *user is a new reference with VIEW_AUTH_YES. `waiter` NULL, here
 * and for view_auth_scope: the caller was allowed a moment ago and cannot wait, so answers
 * are used for VIEW_AUTH_GRACE_MS more. */
enum view_auth_result view_auth_token(struct view_auth *a, struct span token,
                                      const struct view_auth_waiter *waiter,
                                      struct view_auth_user **user, struct err *err);
/* The user for whom another program vouches; a new reference. */
struct view_auth_user *view_auth_vouched(struct view_auth *a,
                                         const struct review_user *user);
/* May the user do this? The strings of `access` are static, but for ns. */
enum view_auth_result view_auth_may(struct view_auth *a, struct view_auth_user *u,
                                    const struct review_access *access,
                                    const struct view_auth_waiter *waiter,
                                    struct err *err);
/* What the user may see of pods; *scope is a new reference (NULL: all) with
 * VIEW_AUTH_YES. */
enum view_auth_result view_auth_scope(struct view_auth *a, struct view_auth_user *u,
                                      const struct view_auth_waiter *waiter,
                                      struct view_scope **scope, struct err *err);

/* The right to a stream: who, to what, with which scope, until when. */
struct view_auth_grant {
    struct view_auth *auth; /* NULL: without a limit, and everything is shown */
    struct view_auth_user *user;
    struct review_access access; /* {0}: the front proxy has checked it */
    bool has_scope;              /* the view names pods */
    struct view_scope *scope;
    int64_t renew_ms, until_ms;
};
/* Sets the times. */
void view_auth_grant_begin(struct view_auth_grant *g);
void view_auth_grant_fini(struct view_auth_grant *g);
/* To be called often. Asks again when answers have become old. GRANT_ENDED: the stream
 * must end. GRANT_CHANGED: g->scope is another one. While the API server does not answer,
 * the grant stays until its end. */
enum view_auth_grant_state { GRANT_KEPT, GRANT_CHANGED, GRANT_ENDED };
enum view_auth_grant_state view_auth_grant_renew(struct view_auth_grant *g);

/* When view_auth_grant_renew is to be called at the latest; INT64_MAX: never. */
int64_t view_auth_grant_due(const struct view_auth_grant *g);

/* Appends metrics. NULL: there are no reviews. */
void view_auth_write(struct view_auth *a, struct buf *out);
