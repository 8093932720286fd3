/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "extender/view_auth.h"
#include "wire/digest.h"

/*
 * view_auth.c         users, decisions, scopes
 * view_auth_grant.c   the right to a stream
 * view_auth_tokens.c  the tables of tokens (not locked)
 * view_auth_calls.c   the threads that make the calls
 *
 * One lock protects everything. No call is made with it.
 */

enum {
    TOKEN_SETS = 128,
    TOKEN_WAYS = 8,
    DECISIONS_MAX = VIEW_AUTH_NAMESPACES + 32, /* of a user */
    UNKNOWN_MAX = 64,        /* unknown tokens that are being reviewed */
    ACCESS_CALLS_MAX = 4096, /* SubjectAccessReviews in the queue */
    CALL_THREADS = 4,
    UNKNOWN_THREADS = 2, /* of them, for unknown tokens */
    CALL_MS = 5000,
    LOG_MS = 10 * 1000, /* between two log lines about failed reviews */
};

struct waiters {
    void **items;
    size_t n, cap;
};

enum decision_state { DECISION_OLD, DECISION_PENDING, DECISION_MADE, DECISION_FAILED };

struct decision {
    char *key;
    enum decision_state state;
    bool allowed;
    int64_t until_ms;
};

struct view_auth_user {
    atomic_uint refs;
    struct view_auth_user *next;
    struct review_user id;
    struct decision *decisions;
    size_t n, cap;
    unsigned pending; /* decisions */
    struct waiters waiters;
    struct view_scope *scope; /* valid if has_scope */
    bool has_scope;
    int64_t scope_ms; /* when it was computed */
};

/* A token that was reviewed. */
struct token {
    struct digest key;
    bool used;
    bool failed; /* the review failed */
    int64_t until_ms, last_ms;
    struct view_auth_user *user; /* NULL: rejected, or failed */
};

/* Set-associative, with the least recently used one of a set replaced. The key of the
 * hash is secret, so nobody can aim at a set. */
struct tokens {
    struct token sets[TOKEN_SETS][TOKEN_WAYS];
};
struct token *view_auth_tokens_find(struct tokens *t, const struct digest *key,
                                    int64_t now_ms);
/* The place for a new token; releases what was there. */
struct token *view_auth_tokens_add(struct tokens *t, const struct digest *key,
                                   int64_t now_ms);
void view_auth_tokens_drop(struct token *t); /* NULL is accepted */
void view_auth_tokens_fini(struct tokens *t);

/* A call to make. */
struct call {
    struct call *next;           /* in a queue */
    struct call *next_review;    /* in view_auth.reviews */
    struct digest key;           /* of a token ... */
    struct buf body;             /* ... whose text is wiped after the call */
    struct view_auth_user *user; /* of a SubjectAccessReview; NULL: a TokenReview */
    char *decision;              /* its key */
    bool unknown;                /* an unknown token */
    struct waiters waiters;      /* of a TokenReview */
};

struct calls {
    struct call *first, **last;
};

/* view_auth_calls.c; all but start and stop require the lock. */
int view_auth_calls_start(struct view_auth *a, struct err *err);
void view_auth_calls_stop(struct view_auth *a);
/* The running or queued review of a token; starts one if there is none. NULL: too many
 * unknown tokens are being reviewed. */
struct call *view_auth_calls_review(struct view_auth *a, const struct digest *key,
                                    struct span token, bool unknown);
/* Queues a SubjectAccessReview. False: too many are queued. */
bool view_auth_calls_access(struct view_auth *a, struct view_auth_user *u,
                            const struct review_access *access, const char *decision);
void view_auth_calls_free(struct call *c);

/* As view_auth_scope, without the scope of a moment ago. Not locked. */
enum view_auth_result view_auth_compute_scope(struct view_auth *a,
                                              struct view_auth_user *u,
                                              const struct view_auth_waiter *waiter,
                                              struct view_scope **scope, struct err *err);

/* view_auth.c; these require the lock. */
/* The result of a call: as of review_token_read and review_access_read. */
void view_auth_reviewed(struct view_auth *a, const struct call *c, int result,
                        const struct review_user *user);
void view_auth_decided(struct view_auth *a, const struct call *c, int result);
void view_auth_wake(struct view_auth *a, struct waiters *w); /* and frees them */

struct view_auth {
    struct view_auth_config conf;
    struct digest_key *key;

    pthread_mutex_t lock;
    pthread_cond_t cond; /* there is a call to make, or `stop` */
    bool stop;
    pthread_t threads[CALL_THREADS];
    struct calls urgent, unknown; /* queues */
    struct call *reviews;         /* TokenReviews queued or running, by `next_review` */
    size_t n_unknown, n_unknown_running, n_access;
    struct tokens *known, *rejected;
    struct view_auth_user *users;
    int64_t bucket, bucket_ms; /* thousandths of a review of an unknown token */
    int64_t logged_ms;
    uint64_t token_reviews, access_reviews, failed_reviews, limited;
};
