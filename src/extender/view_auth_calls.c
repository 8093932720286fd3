/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "extender/view_auth_priv.h"

static void push(struct calls *q, struct call *c)
{
    c->next = NULL;
    *(q->first ? q->last : &q->first) = c;
    q->last = &c->next;
}

static struct call *pop(struct calls *q)
{
    struct call *c = q->first;
    if (c)
        q->first = c->next;
    return c;
}

static void wipe(struct buf *b)
{
    if (b->p)
        explicit_bzero(b->p, b->cap);
    buf_fini(b);
}

void view_auth_calls_free(struct call *c)
{
    wipe(&c->body);
    view_auth_user_free(c->user);
    free(c->decision);
    free(c);
}

/* A token bucket. */
static bool take_from_bucket(struct view_auth *a)
{
    int64_t now_ms = a->conf.now_ms(), most = VIEW_AUTH_TOKENS_BURST * 1000;
    a->bucket += (now_ms - a->bucket_ms) * VIEW_AUTH_TOKENS_PER_S;
    a->bucket = a->bucket < most ? a->bucket : most;
    a->bucket_ms = now_ms;
    if (a->bucket < 1000)
        return false;
    a->bucket -= 1000;
    return true;
}

struct call *view_auth_calls_review(struct view_auth *a, const struct digest *key,
                                    struct span token, bool unknown)
{
    for (struct call *c = a->reviews; c; c = c->next_review)
        if (digest_equal(&c->key, key))
            return c;
    if (unknown && (a->n_unknown >= UNKNOWN_MAX || !take_from_bucket(a))) {
        a->limited++;
        return NULL;
    }
    struct call *c = xcalloc(1, sizeof *c);
    c->key = *key;
    c->unknown = unknown;
    review_token_write(&c->body, token);
    c->next_review = a->reviews;
    a->reviews = c;
    a->n_unknown += unknown;
    push(unknown ? &a->unknown : &a->urgent, c);
    pthread_cond_signal(&a->cond);
    return c;
}

bool view_auth_calls_access(struct view_auth *a, struct view_auth_user *u,
                            const struct review_access *access, const char *decision)
{
    if (a->n_access >= ACCESS_CALLS_MAX)
        return false;
    struct call *c = xcalloc(1, sizeof *c);
    atomic_fetch_add(&u->refs, 1);
    c->user = u;
    c->decision = xstrdup(decision);
    review_access_write(&c->body, u->id.spec, access);
    a->n_access++;
    push(&a->urgent, c);
    pthread_cond_signal(&a->cond);
    return true;
}

/* Requires the lock. Unknown tokens have a share of the threads only. */
static struct call *take(struct view_auth *a)
{
    struct call *c = pop(&a->urgent);
    if (!c && a->n_unknown_running < UNKNOWN_THREADS) {
        c = pop(&a->unknown);
        a->n_unknown_running += c != NULL;
    }
    return c;
}

/* 0: *reply has a body to read. */
static int call(struct view_auth *a, const struct call *c, struct httpc_reply *reply,
                struct err *err)
{
    const struct kube_request request = {
        .method = "POST",
        .path = c->user ? REVIEW_ACCESS_PATH : REVIEW_TOKEN_PATH,
        .body = buf_span(&c->body),
        .timeout_ms = CALL_MS,
    };
    int rc = a->conf.call(a->conf.call_ctx, &request, reply, err);
    if (rc == 0)
        rc = kube_reply_check(reply->status, buf_span(&reply->body), err);
    return rc ? err_wrap(err, c->user ? "SubjectAccessReview" : "TokenReview") : 0;
}

static void drop_review(struct view_auth *a, const struct call *c)
{
    struct call **at = &a->reviews;
    while (*at != c)
        at = &(*at)->next_review;
    *at = c->next_review;
    a->n_unknown -= c->unknown;
    a->n_unknown_running -= c->unknown;
}

/* Every new token fails if a permission is missing. */
static bool may_log(struct view_auth *a)
{
    int64_t now_ms = a->conf.now_ms();
    if (a->logged_ms && now_ms - a->logged_ms < LOG_MS)
        return false;
    a->logged_ms = now_ms;
    return true;
}

static void perform(struct view_auth *a, struct call *c)
{
    struct httpc_reply reply = {0};
    struct review_user user = {0};
    struct err err = {0};
    int result = call(a, c, &reply, &err);
    if (result == 0)
        result = c->user ? review_access_read(buf_span(&reply.body), &err)
                         : review_token_read(buf_span(&reply.body), &user, &err);
    wipe(&reply.body); /* a TokenReview repeats the token */
    httpc_reply_fini(&reply);
    pthread_mutex_lock(&a->lock);
    bool logs = result < 0 && may_log(a);
    a->failed_reviews += result < 0;
    if (c->user) {
        a->access_reviews++;
        a->n_access--;
        view_auth_decided(a, c, result);
    } else {
        a->token_reviews++;
        drop_review(a, c);
        view_auth_reviewed(a, c, result, &user);
        view_auth_wake(a, &c->waiters);
        pthread_cond_signal(&a->cond); /* the next unknown token may be reviewed */
    }
    view_auth_calls_free(c); /* with the lock: the user's last reference may be here */
    pthread_mutex_unlock(&a->lock);
    review_user_fini(&user);
    if (logs)
        log_warn("view", "review failed; clients of views get 503", LOG_ERR(&err));
}

static void *run(void *arg)
{
    struct view_auth *a = arg;
    pthread_mutex_lock(&a->lock);
    while (!a->stop) {
        struct call *c = take(a);
        if (!c) {
            pthread_cond_wait(&a->cond, &a->lock);
            continue;
        }
        pthread_mutex_unlock(&a->lock);
        perform(a, c);
        pthread_mutex_lock(&a->lock);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

int view_auth_calls_start(struct view_auth *a, struct err *err)
{
    a->key = digest_key_new(err);
    if (!a->key)
        return -1;
    a->bucket = VIEW_AUTH_TOKENS_BURST * 1000;
    a->bucket_ms = a->conf.now_ms();
    for (size_t i = 0; i < CALL_THREADS; i++) {
        if (pthread_create(&a->threads[i], NULL, run, a))
            abort();
        pthread_setname_np(a->threads[i], "reviews");
    }
    return 0;
}

static void drop_queue(struct view_auth *a, struct calls *q)
{
    for (struct call *c; (c = pop(q));) {
        view_auth_wake(a, &c->waiters);
        view_auth_calls_free(c);
    }
}

void view_auth_calls_stop(struct view_auth *a)
{
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_broadcast(&a->cond);
    pthread_mutex_unlock(&a->lock);
    for (size_t i = 0; i < CALL_THREADS && a->key; i++)
        pthread_join(a->threads[i], NULL);
    drop_queue(a, &a->urgent);
    drop_queue(a, &a->unknown);
    a->reviews = NULL;
}
