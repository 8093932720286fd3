/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/delegated_auth.h"

#include <gnutls/crypto.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

enum {
    SETS = 256,
    WAYS = 8,
    KNOWN_WAYS =
        6, /* of a set; the others are for unknown tokens, which flush no known one */
    HASH_BYTES = 32,
    THREADS = 2,      /* at most one of them reviews an unknown token */
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
enum outcome { UNUSED, ALLOWED, DENIED, UNAUTHORIZED, FAILED };

struct kept {
    struct hash hash;
    enum outcome outcome;
    bool known; /* the token was authenticated, here or before a review that failed */
    int64_t until_ms, last_ms;
    char *user; /* DENIED: the name, for the message */
};

/* A review that waits for a thread, or runs. */
struct review {
    struct review *next;
    struct hash hash;
    const struct delegated_auth_question *question;
    struct buf body; /* of the TokenReview; wiped */
    bool unknown, running;
    void **waiters;
    size_t n_waiters, waiters_cap;
};

struct delegated_auth {
    struct delegated_auth_config conf;
    unsigned char key[HASH_BYTES];
    pthread_t threads[THREADS];
    size_t n_threads;

    pthread_mutex_t lock; /* protects the members below; no call is made with it */
    pthread_cond_t cond;  /* there is a review to make, or `stop` */
    bool stop;
    struct review *reviews; /* the oldest first */
    size_t n_unknown;
    bool unknown_runs;
    /* Set-associative. The key of the hash is secret, so nobody can aim at a set. */
    struct kept kept[SETS][WAYS];
    int64_t bucket, bucket_ms; /* thousandths of a review of an unknown token */
    int64_t logged_ms;
    uint64_t counts[COUNTS];
};

static void wipe(struct buf *b)
{
    if (b->p)
        explicit_bzero(b->p, b->cap);
    buf_fini(b);
}

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

static bool same_hash(const struct hash *a, const struct hash *b)
{
    return gnutls_memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

/* -- answers that are kept; these functions require the lock -- */

static struct kept *kept_find(struct delegated_auth *a, const struct hash *hash,
                              int64_t now_ms)
{
    struct kept *set = a->kept[hash->bytes[0] % SETS];
    for (size_t i = 0; i < WAYS; i++)
        if (set[i].outcome != UNUSED && same_hash(&set[i].hash, hash)) {
            set[i].last_ms = now_ms;
            return &set[i];
        }
    return NULL;
}

/* Takes new->user. It replaces the least recently used answer of its set, known or not. */
static void kept_set(struct delegated_auth *a, const struct kept *new)
{
    struct kept *set = a->kept[new->hash.bytes[0] % SETS],
                *old = kept_find(a, &new->hash, new->last_ms);
    if (old) {
        free(old->user);
        *old = (struct kept){0};
    }
    struct kept *at = new->known ? set : set + KNOWN_WAYS,
                *end = new->known ? set + KNOWN_WAYS : set + WAYS;
    for (struct kept *k = at + 1; k < end; k++)
        if (at->outcome != UNUSED && (k->outcome == UNUSED || k->last_ms < at->last_ms))
            at = k;
    free(at->user);
    *at = *new;
}

/* -- reviews -- */

/* A token bucket. Requires the lock, as the next two. */
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

/* The review of a question, which begins if there is none. NULL: too many tokens are
 * unknown. (Of known ones there are at most as many as the table has answers.) */
static struct review *review_of(struct delegated_auth *a, const struct hash *hash,
                                struct span token,
                                const struct delegated_auth_question *question,
                                bool unknown, int64_t now_ms)
{
    struct review **at = &a->reviews;
    for (; *at; at = &(*at)->next)
        if (same_hash(&(*at)->hash, hash))
            return *at;
    if (unknown && (a->n_unknown >= UNKNOWN_MAX || !take_from_bucket(a, now_ms))) {
        a->counts[LIMITED]++;
        return NULL;
    }
    struct review *r = *at = xcalloc(1, sizeof *r);
    r->hash = *hash;
    r->question = question;
    r->unknown = unknown;
    review_token_write(&r->body, token);
    a->n_unknown += unknown;
    pthread_cond_signal(&a->cond);
    return r;
}

/* The next one to make: known tokens first. NULL: none. */
static struct review *next_review(struct delegated_auth *a)
{
    struct review *unknown = NULL;
    for (struct review *r = a->reviews; r; r = r->next) {
        if (!r->running && !r->unknown)
            return r;
        if (!r->running && !unknown)
            unknown = r;
    }
    return a->unknown_runs ? NULL : unknown;
}

/* Wakes who waits, and frees it. */
static void review_end(struct delegated_auth *a, struct review *r)
{
    struct review **at = &a->reviews;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    a->n_unknown -= r->unknown;
    for (size_t i = 0; i < r->n_waiters; i++)
        a->conf.wake(r->waiters[i]);
    wipe(&r->body);
    free(r->waiters);
    free(r);
}

/* One POST. 0: *reply has an answer to read. */
static int post(struct delegated_auth *a, const char *path, const struct buf *body,
                struct httpc_reply *reply, struct err *err)
{
    const struct kube_request request = {
        .method = "POST", .path = path, .body = buf_span(body), .timeout_ms = CALL_MS};
    int rc = a->conf.call(a->conf.call_ctx, &request, reply, err);
    return rc ? rc : kube_reply_check(reply->status, buf_span(&reply->body), err);
}

/* Asks the API server. *user is its name, if the token is valid. */
static enum outcome ask(struct delegated_auth *a, const struct review *r,
                        struct review_user *user, struct err *err)
{
    struct httpc_reply reply = {0};
    int result = post(a, REVIEW_TOKEN_PATH, &r->body, &reply, err);
    if (result == 0)
        result = review_token_read(buf_span(&reply.body), user, err);
    wipe(&reply.body); /* it repeats the token */
    httpc_reply_fini(&reply);
    if (result < 0) {
        err_wrap(err, "TokenReview");
        return FAILED;
    }
    if (result == 0)
        return UNAUTHORIZED;
    cleanup_buf struct buf body = {0};
    review_access_write(&body, user->spec, &r->question->access);
    reply = (struct httpc_reply){0};
    result = post(a, REVIEW_ACCESS_PATH, &body, &reply, err);
    if (result == 0)
        result = review_access_read(buf_span(&reply.body), err);
    httpc_reply_fini(&reply);
    if (result < 0) {
        err_wrap(err, "SubjectAccessReview");
        return FAILED;
    }
    return result ? ALLOWED : DENIED;
}

/* Makes a review. Called with the lock, which it releases during the calls. */
static void perform(struct delegated_auth *a, struct review *r)
{
    static const int64_t keep_ms[] = {[ALLOWED] = DELEGATED_AUTH_ALLOWED_MS,
                                      [DENIED] = DELEGATED_AUTH_DENIED_MS,
                                      [UNAUTHORIZED] = DELEGATED_AUTH_UNAUTHORIZED_MS,
                                      [FAILED] = DELEGATED_AUTH_FAILED_MS};
    struct review_user user = {0};
    struct err err = {0};
    r->running = true;
    a->unknown_runs |= r->unknown;
    pthread_mutex_unlock(&a->lock);
    enum outcome outcome = ask(a, r, &user, &err);
    int64_t now_ms = a->conf.now_ms();
    pthread_mutex_lock(&a->lock);
    a->counts[TOKEN_REVIEWS]++;
    a->counts[ACCESS_REVIEWS] += user.name != NULL;
    a->counts[FAILURES] += outcome == FAILED;
    kept_set(a, &(struct kept){
                    .hash = r->hash,
                    .outcome = outcome,
                    .known = outcome == ALLOWED || outcome == DENIED ||
                             (outcome == FAILED && !r->unknown),
                    .until_ms = now_ms + keep_ms[outcome],
                    .last_ms = now_ms,
                    .user = outcome == DENIED ? steal(&user.name) : NULL,
                });
    /* Every new token fails if a permission is missing. */
    bool logs = outcome == FAILED && (!a->logged_ms || now_ms - a->logged_ms >= LOG_MS);
    if (logs)
        a->logged_ms = now_ms;
    if (r->unknown) {
        a->unknown_runs = false;
        pthread_cond_signal(&a->cond); /* the next unknown one may be reviewed */
    }
    review_end(a, r);
    if (logs) {
        pthread_mutex_unlock(&a->lock);
        log_warn("view", "review failed; clients of views get 503", LOG_ERR(&err));
        pthread_mutex_lock(&a->lock);
    }
    review_user_fini(&user);
}

static void *make_reviews(void *arg)
{
    struct delegated_auth *a = arg;
    pthread_mutex_lock(&a->lock);
    while (!a->stop) {
        struct review *r = next_review(a);
        if (r)
            perform(a, r);
        else
            pthread_cond_wait(&a->cond, &a->lock);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* -- the question -- */

/* What the API server said is in the log: the client is not known yet. */
static enum delegated_auth_answer say(const struct kept *k, const char *question,
                                      struct err *err)
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
                     const struct delegated_auth_question *question, void *request,
                     struct err *err)
{
    enum delegated_auth_answer answer = DELEGATED_AUTH_PENDING;
    if (!review_token_is_plausible(token)) {
        err_set(err, ERR_UNAUTHORIZED, "the bearer token is malformed");
        return DELEGATED_AUTH_NO;
    }
    struct hash hash = hash_of(a, question->text, token);
    int64_t now_ms = a->conf.now_ms();
    pthread_mutex_lock(&a->lock);
    const struct kept *k = kept_find(a, &hash, now_ms);
    if (k && k->until_ms > now_ms) {
        answer = say(k, question->text, err);
    } else {
        struct review *r = review_of(a, &hash, token, question, !(k && k->known), now_ms);
        if (r) {
            MEM_GROW(r->waiters, r->waiters_cap, r->n_waiters + 1);
            r->waiters[r->n_waiters++] = a->conf.wait(request);
        } else {
            err_set(err, ERR_UNAVAILABLE, "too many unknown bearer tokens; retry later");
            answer = DELEGATED_AUTH_UNAVAILABLE;
        }
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
    if (!a->conf.now_ms)
        a->conf.now_ms = clock_mono_ms;
    a->bucket = DELEGATED_AUTH_TOKENS_BURST * 1000;
    a->bucket_ms = a->conf.now_ms();
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->cond, NULL);
    int rc = gnutls_rnd(GNUTLS_RND_KEY, a->key, sizeof a->key);
    if (rc) {
        err_set(err, ERR_INTERNAL, "gnutls_rnd: %s", gnutls_strerror(rc));
        delegated_auth_free(a);
        return NULL;
    }
    for (; a->n_threads < THREADS; a->n_threads++) {
        if (pthread_create(&a->threads[a->n_threads], NULL, make_reviews, a))
            abort();
        pthread_setname_np(a->threads[a->n_threads], "reviews");
    }
    return a;
}

void delegated_auth_stop(struct delegated_auth *a)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_broadcast(&a->cond);
    pthread_mutex_unlock(&a->lock);
    for (; a->n_threads; a->n_threads--)
        pthread_join(a->threads[a->n_threads - 1], NULL);
    while (a->reviews)
        review_end(a, a->reviews);
}

void delegated_auth_free(struct delegated_auth *a)
{
    if (!a)
        return;
    for (size_t i = 0; i < SETS * WAYS; i++)
        free(a->kept[i / WAYS][i % WAYS].user);
    explicit_bzero(a->key, sizeof a->key);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->cond);
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
        prom_sample(out, name, &(struct prom_label){"kind", span_of(kinds[i])}, 1,
                    (int64_t)n[i]);
}
