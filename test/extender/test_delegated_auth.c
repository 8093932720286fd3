/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "extender/delegated_auth.h"
#include "lib/raw.h"
#include "lib/unit.h"

/*
 * How long answers are kept, with a clock that the test moves and a played API server: the
 * token "t-NAME" is of the user NAME, and one user may do everything.
 */

static atomic_llong now = 1000000;
static atomic_int token_reviews, access_reviews, woken;
static atomic_bool down, blocked;
static _Atomic(const char *) allowed = "nobody"; /* the user that may do everything */

static int64_t fake_now(void)
{
    return atomic_load(&now);
}

static void value_of(struct span body, const char *key, char *out, size_t n)
{
    cleanup_free char *text = xmemdup0(body.p, body.n),
                      *find = xasprintf("\"%s\":\"", key);
    const char *at = strstr(text, find);
    out[0] = '\0';
    if (at)
        snprintf(out, n, "%.*s", (int)strcspn(at + strlen(find), "\""),
                 at + strlen(find));
}

static int play(void *ctx, const struct kube_request *req, struct httpc_reply *reply,
                struct err *err)
{
    char token[64], user[64];
    (void)ctx;
    bool is_token = strcmp(req->path, REVIEW_TOKEN_PATH) == 0;
    atomic_fetch_add(is_token ? &token_reviews : &access_reviews, 1);
    while (atomic_load(&blocked))
        sched_yield();
    if (atomic_load(&down))
        return err_set(err, ERR_UNAVAILABLE, "connection refused");
    value_of(req->body, "token", token, sizeof token);
    value_of(req->body, "user", user, sizeof user);
    reply->status = 201;
    if (is_token && strncmp(token, "t-", 2) == 0)
        buf_printf(&reply->body,
                   "{\"status\":{\"authenticated\":true,\"user\":{\"username\":\"%s\"}}}",
                   token + 2);
    else if (is_token)
        buf_adds(&reply->body, "{\"status\":{\"authenticated\":false}}");
    else
        buf_printf(&reply->body, "{\"status\":{\"allowed\":%s}}",
                   strcmp(user, atomic_load(&allowed)) == 0 ? "true" : "false");
    return 0;
}

static atomic_bool waits[4096];
static size_t n_waits;

static struct httpd_deferred *begin_wait(const struct httpd_request *request)
{
    (void)request;
    ck_assert_uint_lt(n_waits, ARRAY_LEN(waits));
    return (struct httpd_deferred *)&waits[n_waits++];
}

static void wake(struct httpd_deferred *waiter)
{
    atomic_store((atomic_bool *)waiter, true);
    atomic_fetch_add(&woken, 1);
}

static bool is_woken(void *waiter)
{
    return atomic_load((atomic_bool *)waiter);
}

static const struct delegated_auth_question
    pods = {"list pods in all namespaces",
            {.verb = "list", .group = "", .version = "v1", .resource = "pods"}},
    metrics = {"get nonResourceURL /metrics", {.verb = "get", .path = "/metrics"}};

static struct delegated_auth *begin(void)
{
    struct err err = {0};
    struct delegated_auth_config config = {
        .call = play, .wait = begin_wait, .wake = wake, .now_ms = fake_now};
    struct delegated_auth *a = delegated_auth_start(&config, &err);
    ck_assert_msg(a, "%s", err.msg);
    return a;
}

static void end(struct delegated_auth *a)
{
    delegated_auth_stop(a);
    ck_assert_int_eq(atomic_load(&woken), (int)n_waits);
    delegated_auth_free(a);
}

static enum delegated_auth_answer ask(struct delegated_auth *a, const char *token,
                                      const struct delegated_auth_question *question)
{
    return delegated_auth_check(a, span_of(token), question, NULL, NULL);
}

/* The answer when nothing is waited for any longer. */
static enum delegated_auth_answer may(struct delegated_auth *a, const char *token)
{
    enum delegated_auth_answer answer;
    while ((answer = ask(a, token, &pods)) == DELEGATED_AUTH_PENDING)
        ck_assert(raw_until(is_woken, &waits[n_waits - 1]));
    return answer;
}

static void expect_reviews(int tokens, int accesses)
{
    ck_assert_int_eq(atomic_load(&token_reviews), tokens);
    ck_assert_int_eq(atomic_load(&access_reviews), accesses);
}

static void pass(int64_t ms)
{
    atomic_fetch_add(&now, ms);
}

TEST(answers_are_kept_for_a_time)
{
    struct delegated_auth *a = begin();
    struct err err = {0};
    ck_assert_int_eq(may(a, "t-alice"), DELEGATED_AUTH_NO);
    ck_assert_int_eq(delegated_auth_check(a, SPAN("t-alice"), &pods, NULL, &err),
                     DELEGATED_AUTH_NO);
    ck_assert_int_eq(err.code, ERR_FORBIDDEN);
    ck_assert_contains(err.msg,
                       "\"alice\" lacks the permission list pods in all namespaces");
    expect_reviews(1, 1);
    atomic_store(&allowed, "alice");
    pass(DELEGATED_AUTH_DENIED_MS);
    ck_assert_int_eq(may(a, "t-alice"), DELEGATED_AUTH_YES);
    expect_reviews(2, 2);
    atomic_store(&allowed, "nobody");
    pass(DELEGATED_AUTH_ALLOWED_MS - 1);
    ck_assert_int_eq(may(a, "t-alice"), DELEGATED_AUTH_YES);
    pass(1);
    ck_assert_int_eq(may(a, "t-alice"), DELEGATED_AUTH_NO);
    expect_reviews(3, 3);

    ck_assert_int_eq(may(a, "bad"), DELEGATED_AUTH_NO);
    ck_assert_int_eq(may(a, "bad"), DELEGATED_AUTH_NO);
    expect_reviews(4, 3);
    pass(DELEGATED_AUTH_UNAUTHORIZED_MS);
    ck_assert_int_eq(may(a, "bad"), DELEGATED_AUTH_NO);
    expect_reviews(5, 3);
    ck_assert_int_eq(delegated_auth_check(a, SPAN("a b"), &pods, NULL, &err),
                     DELEGATED_AUTH_NO);
    ck_assert_int_eq(err.code, ERR_UNAUTHORIZED);
    expect_reviews(5, 3);
    end(a);
}

TEST(an_answer_is_of_one_question_and_one_token)
{
    struct delegated_auth *a = begin();
    atomic_store(&allowed, "carol");
    ck_assert_int_eq(may(a, "t-carol"), DELEGATED_AUTH_YES);
    ck_assert_int_eq(may(a, "t-carolX"), DELEGATED_AUTH_NO);
    ck_assert_int_eq(ask(a, "t-carol", &metrics), DELEGATED_AUTH_PENDING);
    ck_assert(raw_until(is_woken, &waits[n_waits - 1]));
    ck_assert_int_eq(ask(a, "t-carol", &metrics), DELEGATED_AUTH_YES);
    expect_reviews(3, 3);
    end(a);
}

TEST(a_failed_call_is_repeated_later)
{
    struct delegated_auth *a = begin();
    atomic_store(&allowed, "bob");
    ck_assert_int_eq(may(a, "t-bob"), DELEGATED_AUTH_YES);
    atomic_store(&down, true); /* what is known counts on */
    pass(DELEGATED_AUTH_ALLOWED_MS - 1);
    ck_assert_int_eq(may(a, "t-bob"), DELEGATED_AUTH_YES);
    pass(1);
    ck_assert_int_eq(may(a, "t-bob"), DELEGATED_AUTH_UNAVAILABLE);
    ck_assert_int_eq(may(a, "t-bob"), DELEGATED_AUTH_UNAVAILABLE);
    expect_reviews(2, 1);
    atomic_store(&down, false);
    pass(DELEGATED_AUTH_FAILED_MS);
    ck_assert_int_eq(may(a, "t-bob"), DELEGATED_AUTH_YES);
    expect_reviews(3, 2);
    end(a);
}

TEST(unknown_tokens_are_limited_and_known_ones_are_not)
{
    struct delegated_auth *a = begin();
    atomic_store(&allowed, "dave");
    ck_assert_int_eq(may(a, "t-dave"), DELEGATED_AUTH_YES);
    int limited = 0;
    for (int i = 0; i < 200; i++) {
        cleanup_free char *text = xasprintf("x-%d", i);
        limited += may(a, text) == DELEGATED_AUTH_UNAVAILABLE;
    }
    ck_assert_int_eq(limited, 200 - (DELEGATED_AUTH_TOKENS_BURST - 1));
    pass(DELEGATED_AUTH_ALLOWED_MS);
    atomic_store(&blocked, true); /* a thread hangs with an unknown token */
    for (int i = 0; i < 20; i++) {
        cleanup_free char *text = xasprintf("y-%d", i);
        ck_assert_int_eq(ask(a, text, &pods), DELEGATED_AUTH_PENDING);
    }
    ck_assert_int_eq(ask(a, "t-dave", &pods), DELEGATED_AUTH_PENDING);
    size_t daves = n_waits - 1;
    int before = DELEGATED_AUTH_TOKENS_BURST;
    int64_t until_ms = clock_mono_ms() + 60 * 1000;
    while (atomic_load(&token_reviews) < before + 2 && clock_mono_ms() < until_ms)
        sched_yield();
    ck_assert_int_eq(atomic_load(&token_reviews), before + 2); /* the other thread */
    atomic_store(&blocked, false);
    ck_assert(raw_until(is_woken, &waits[daves]));
    ck_assert_int_eq(may(a, "t-dave"), DELEGATED_AUTH_YES);
    end(a);
}

/* A ServiceAccount's token is a new one every hour. */
TEST(an_invalid_token_is_reviewed_once_after_many_valid_ones)
{
    struct delegated_auth *a = begin();
    atomic_store(&allowed, "eve");
    for (int i = 0; i < 3000; i++) {
        cleanup_free char *text = xasprintf("t-%d", i);
        pass(1000);
        ck_assert_int_eq(may(a, text), DELEGATED_AUTH_NO);
    }
    atomic_store(&token_reviews, 0);
    for (int i = 0; i < 20; i++) {
        cleanup_free char *text = xasprintf("x-%d", i);
        pass(1000);
        ck_assert_int_eq(may(a, text), DELEGATED_AUTH_NO);
        ck_assert_int_eq(may(a, text), DELEGATED_AUTH_NO);
    }
    ck_assert_int_eq(atomic_load(&token_reviews), 20);
    ck_assert_int_eq(may(a, "t-eve"), DELEGATED_AUTH_YES);
    end(a);
}
