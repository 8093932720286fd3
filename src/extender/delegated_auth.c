/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/delegated_auth.h"

#include <gnutls/crypto.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

enum {
    KNOWN = 1536,  /* answers about tokens that were authenticated ... */
    UNKNOWN = 512, /* ... and about others, which replace no known one */
    HASH_BYTES = 32,
    UNKNOWN_MAX = 64, /* reviews of unknown tokens, waiting or running */
    CALL_MS = 5000,
    LOG_MS = 10 * 1000, /* between two log lines about failed reviews */
};

/* HMAC-SHA-256 of question and token with a key of this process: it cannot be guessed,
 * chosen, or compared with one of another process. */
struct hash {
    unsigned char bytes[HASH_BYTES];
};

enum count { TOKEN_REVIEWS, ACCESS_REVIEWS, FAILURES, LIMITED, COUNTS };
enum outcome { UNREVIEWED, ALLOWED, DENIED, UNAUTHORIZED, FAILED };

/* A review that waits for its worker, or runs. The worker frees it. */
struct review {
    struct answer *answer;
    const struct delegated_auth_question *question;
    struct buf body; /* of the TokenReview */
    struct httpd_deferred **waiters;
    size_t n_waiters, waiters_cap;
};

/* The answer to a question about a token. */
struct answer {
    struct hash hash;
    enum outcome outcome;
    int64_t until_ms, last_ms;
    char *user;            /* DENIED: the name, for the message */
    struct review *review; /* or NULL */
};

struct delegated_auth {
    struct delegated_auth_config conf;
    unsigned char key[HASH_BYTES];
    /* Reviews of known and of unknown tokens, so that the former never wait for the latter. */
    struct worker *workers[2];

    pthread_mutex_t lock; /* protects the members below; no call is made with it */
    struct answer answers[KNOWN + UNKNOWN]; /* first the known ones */
    size_t n_unknown;                       /* reviews */
    int64_t bucket, bucket_ms; /* thousandths of a review of an unknown token */
    int64_t logged_ms;
    uint64_t counts[COUNTS];
};

static struct hash hash_of(const struct delegated_auth *a, const char *question,
                           struct span token)
{
    gnutls_hmac_hd_t state;
    struct hash h;
    if (gnutls_hmac_init(&state, GNUTLS_MAC_SHA256, a->key, sizeof a->key))
        abort(); /* only if SHA-256 does not exist */
    gnutls_hmac(state, question, strlen(question) + 1);
    gnutls_hmac(state, token.p, token.n);
    gnutls_hmac_deinit(state, h.bytes);
    return h;
}

/* -- answers and reviews; these functions require the lock -- */

static bool is_unknown(const struct delegated_auth *a, const struct answer *k)
{
    return k >= a->answers + KNOWN;
}

static struct answer *find_answer(struct delegated_auth *a, const struct hash *hash)
{
    for (struct answer *k = a->answers; k < a->answers + KNOWN + UNKNOWN; k++)
        if (k->last_ms && memcmp(&k->hash, hash, sizeof *hash) == 0)
            return k;
    return NULL;
}

/* Replaces the least recently used answer; NULL: reviews are made for all. */
static struct answer *replace_answer(struct delegated_auth *a, bool unknown)
{
    struct answer *oldest = NULL, *k = a->answers + (unknown ? KNOWN : 0),
                  *end = a->answers + (unknown ? KNOWN + UNKNOWN : KNOWN);
    for (; k < end; k++)
        if (!k->review && (!oldest || k->last_ms < oldest->last_ms))
            oldest = k;
    if (oldest) {
        free(oldest->user);
        *oldest = (struct answer){0};
    }
    return oldest;
}

/* A token bucket. */
static bool take_from_bucket(struct delegated_auth *a, int64_t now_ms)
{
    int64_t most = DELEGATED_AUTH_TOKENS_BURST * 1000;
    a->bucket += (now_ms - a->bucket_ms) * DELEGATED_AUTH_TOKENS_PER_S;
    a->bucket = a->bucket < most ? a->bucket : most;
    a->bucket_ms = now_ms;
    if (a->bucket < 1000)
        return false;
    a->bucket -= 1000;
    return true;
}

/* Wakes who waits. */
static void review_end(struct delegated_auth *a, struct review *r)
{
    a->n_unknown -= is_unknown(a, r->answer);
    r->answer->review = NULL;
    for (size_t i = 0; i < r->n_waiters; i++)
        a->conf.wake(r->waiters[i]);
    buf_wipe(&r->body);
    free(r->waiters);
}

/* -- the calls -- */

static int post_review(struct delegated_auth *a, const char *path, const struct buf *body,
                       struct httpc_reply *reply, struct err *err)
{
    const struct kube_request request = {
        .method = "POST", .path = path, .body = buf_span(body), .timeout_ms = CALL_MS};
    return a->conf.call(a->conf.client, &request, reply, err);
}

/* Asks the API server. *user is its name, if the token is valid. */
static enum outcome ask_api_server(struct delegated_auth *a, const struct review *r,
                                   struct review_user *user, struct err *err)
{
    cleanup_reply struct httpc_reply reply = {0}, access = {0};
    int result = post_review(a, REVIEW_TOKEN_PATH, &r->body, &reply, err);
    if (result == 0)
        result = review_token_read(buf_span(&reply.body), user, err);
    buf_wipe(&reply.body); /* it repeats the token */
    if (result < 0) {
        err_wrap(err, "TokenReview");
        return FAILED;
    }
    if (result == 0)
        return UNAUTHORIZED;
    cleanup_buf struct buf body = {0};
    review_access_write(&body, user->spec, &r->question->access);
    result = post_review(a, REVIEW_ACCESS_PATH, &body, &access, err);
    if (result == 0)
        result = review_access_read(buf_span(&access.body), err);
    if (result < 0) {
        err_wrap(err, "SubjectAccessReview");
        return FAILED;
    }
    return result ? ALLOWED : DENIED;
}

/* Makes a review, in the thread of a worker. */
static void make_review(void *ctx, void *job)
{
    static const int64_t keep_ms[] = {[ALLOWED] = DELEGATED_AUTH_ALLOWED_MS,
                                      [DENIED] = DELEGATED_AUTH_DENIED_MS,
                                      [UNAUTHORIZED] = DELEGATED_AUTH_UNAUTHORIZED_MS,
                                      [FAILED] = DELEGATED_AUTH_FAILED_MS};
    struct delegated_auth *a = ctx;
    struct review *r = job;
    struct answer *k = r->answer, *known;
    bool unknown = is_unknown(a, k);
    struct review_user user = {0};
    struct err err = {0};
    enum outcome outcome = ask_api_server(a, r, &user, &err);
    int64_t now_ms = a->conf.now_ms();
    pthread_mutex_lock(&a->lock);
    a->counts[TOKEN_REVIEWS]++;
    a->counts[ACCESS_REVIEWS] += user.name != NULL;
    a->counts[FAILURES] += outcome == FAILED;
    free(k->user);
    k->outcome = outcome;
    k->until_ms = now_ms + keep_ms[outcome];
    k->user = outcome == DENIED ? steal(&user.name) : NULL;
    review_end(a, r);
    if (unknown && outcome <= DENIED && (known = replace_answer(a, false))) {
        *known = *k;
        *k = (struct answer){0};
    }
    bool logs = outcome == FAILED && (!a->logged_ms || now_ms - a->logged_ms >= LOG_MS);
    if (logs) /* every new token fails if a permission is missing */
        a->logged_ms = now_ms;
    pthread_mutex_unlock(&a->lock);
    if (logs)
        log_warn("view", "review failed; clients of views get 503", LOG_ERR(&err));
    review_user_fini(&user);
}

/* -- the question -- */

/* What the API server said is in the log: the client is not known yet. */
static enum delegated_auth_answer explain_answer(const struct answer *k,
                                                 const char *question, struct err *err)
{
    switch (k->outcome) {
    case ALLOWED:
        return DELEGATED_AUTH_YES;
    case DENIED:
        err_set(err, ERR_FORBIDDEN,
                "user \"%s\" lacks the permission %s; ClusterRole gpushare-viewer has it",
                k->user, question);
        return DELEGATED_AUTH_NO;
    case UNAUTHORIZED:
        err_set(err, ERR_UNAUTHORIZED, "the bearer token is not valid");
        return DELEGATED_AUTH_NO;
    default:
        err_set(err, ERR_UNAVAILABLE,
                "cannot check credentials now; the log of the extender says why");
        return DELEGATED_AUTH_UNAVAILABLE;
    }
}

enum delegated_auth_answer
delegated_auth_check(struct delegated_auth *a, struct span token,
                     const struct delegated_auth_question *question,
                     const struct httpd_request *request, struct err *err)
{
    enum delegated_auth_answer answer = DELEGATED_AUTH_PENDING;
    if (!review_token_is_plausible(token)) {
        err_set(err, ERR_UNAUTHORIZED, "the bearer token is malformed");
        return DELEGATED_AUTH_NO;
    }
    struct hash hash = hash_of(a, question->text, token);
    int64_t now_ms = a->conf.now_ms();
    pthread_mutex_lock(&a->lock);
    struct answer *k = find_answer(a, &hash);
    bool unknown = !k || is_unknown(a, k);
    struct review *r = k ? k->review : NULL;
    if (k && !r && k->until_ms > now_ms) {
        k->last_ms = now_ms;
        answer = explain_answer(k, question->text, err);
    } else if (!r && unknown &&
               (a->n_unknown >= UNKNOWN_MAX || !take_from_bucket(a, now_ms))) {
        a->counts[LIMITED]++;
        err_set(err, ERR_UNAVAILABLE, "too many unknown bearer tokens; retry later");
        answer = DELEGATED_AUTH_UNAVAILABLE;
    } else {
        if (!k)
            k = replace_answer(a, true);
        if (!r) {
            k->hash = hash;
            r = k->review = xcalloc(1, sizeof *r);
            r->answer = k;
            r->question = question;
            review_token_write(&r->body, token);
            a->n_unknown += unknown;
            worker_add(a->workers[unknown], r);
        }
        k->last_ms = now_ms;
        MEM_GROW(r->waiters, r->waiters_cap, r->n_waiters + 1);
        r->waiters[r->n_waiters++] = a->conf.wait(request);
    }
    pthread_mutex_unlock(&a->lock);
    return answer;
}

/* -- start and stop -- */

struct delegated_auth *delegated_auth_start(const struct delegated_auth_config *config,
                                            struct err *err)
{
    struct delegated_auth *a = xcalloc(1, sizeof *a);
    a->conf = *config;
    if (!a->conf.wait) {
        a->conf.wait = httpd_defer;
        a->conf.wake = httpd_resume;
        a->conf.now_ms = clock_mono_ms;
    }
    a->bucket = DELEGATED_AUTH_TOKENS_BURST * 1000;
    a->bucket_ms = a->conf.now_ms();
    pthread_mutex_init(&a->lock, NULL);
    int rc = gnutls_rnd(GNUTLS_RND_KEY, a->key, sizeof a->key);
    if (rc) {
        err_set(err, ERR_INTERNAL, "gnutls_rnd: %s", gnutls_strerror(rc));
        delegated_auth_free(a);
        return NULL;
    }
    for (int i = 0; i < 2; i++)
        a->workers[i] = worker_start("reviews", make_review, a);
    return a;
}

void delegated_auth_stop(struct delegated_auth *a)
{
    for (int i = 0; a && i < 2; i++)
        worker_stop(a->workers[i]);
    for (size_t i = 0; a && i < ARRAY_LEN(a->answers); i++)
        if (a->answers[i].review)
            review_end(a, a->answers[i].review);
}

void delegated_auth_free(struct delegated_auth *a)
{
    if (!a)
        return;
    for (size_t i = 0; i < ARRAY_LEN(a->answers); i++)
        free(a->answers[i].user);
    explicit_bzero(a->key, sizeof a->key);
    for (int i = 0; i < 2; i++)
        worker_free(a->workers[i]);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

void delegated_auth_write(struct delegated_auth *a, struct buf *out)
{
    static const char name[] = "gpushare_view_reviews_total";
    static const char *const kinds[COUNTS] = {"token", "access", "failed",
                                              "rate-limited"};
    uint64_t n[COUNTS] = {0};
    if (a) {
        pthread_mutex_lock(&a->lock);
        memcpy(n, a->counts, sizeof n);
        pthread_mutex_unlock(&a->lock);
    }
    prom_family(out, name, PROM_COUNTER, "Reviews of clients of views, by kind.");
    for (int i = 0; i < COUNTS; i++)
        prom_labelled(out, name, "kind", kinds[i], (int64_t)n[i]);
}
