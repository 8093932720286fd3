/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/mem.h"
#include "extender/view_auth.h"
#include "lib/raw.h"
#include "lib/unit.h"

/*
 * How long answers are kept, with a clock that the test moves and a played API server:
 * the token "t-NAME" is of the user NAME, and a list of rights decides.
 */

static atomic_llong now = 1000000;
static atomic_int token_reviews, access_reviews;
static atomic_bool down, blocked;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char rights[1024]; /* "alice get /inspect;..."; protected by lock */

static int64_t fake_now(void)
{
    return atomic_load(&now);
}

static void set_rights(const char *text)
{
    pthread_mutex_lock(&lock);
    snprintf(rights, sizeof rights, "%s", text);
    pthread_mutex_unlock(&lock);
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
    char token[64], user[64], path[64], ns[64];
    (void)ctx;
    bool is_token = strcmp(req->path, REVIEW_TOKEN_PATH) == 0;
    atomic_fetch_add(is_token ? &token_reviews : &access_reviews, 1);
    while (atomic_load(&blocked))
        sched_yield();
    if (atomic_load(&down))
        return err_set(err, ERR_UNAVAILABLE, "connection refused");
    value_of(req->body, "token", token, sizeof token);
    value_of(req->body, "user", user, sizeof user);
    value_of(req->body, "path", path, sizeof path);
    value_of(req->body, "namespace", ns, sizeof ns);
    reply->status = 201;
    if (is_token && strncmp(token, "t-", 2) == 0)
        buf_printf(&reply->body,
                   "{\"status\":{\"authenticated\":true,\"user\":{\"username\":\"%s\"}}}",
                   token + 2);
    else if (is_token)
        buf_adds(&reply->body, "{\"status\":{\"authenticated\":false}}");
    if (is_token)
        return 0;
    cleanup_free char *right = xasprintf("%s %s;", user, path[0] ? path : ns);
    pthread_mutex_lock(&lock);
    bool may = strstr(rights, right);
    pthread_mutex_unlock(&lock);
    buf_printf(&reply->body, "{\"status\":{\"allowed\":%s}}", may ? "true" : "false");
    return 0;
}

static size_t namespaces(void *ctx, struct arena *a, struct span *out, size_t max)
{
    (void)ctx, (void)max;
    out[0] = arena_copy(a, SPAN("ns-a"));
    out[1] = arena_copy(a, SPAN("ns-b"));
    return 2;
}

static atomic_int woken;

static void wake(void *waiter)
{
    atomic_store((atomic_bool *)waiter, true);
    atomic_fetch_add(&woken, 1);
}

static atomic_bool waits[256];
static size_t n_waits;

static void *begin_wait(void *ctx)
{
    (void)ctx;
    ck_assert_uint_lt(n_waits, ARRAY_LEN(waits));
    return &waits[n_waits++];
}

static const struct view_auth_waiter waiter = {begin_wait, NULL};
static const struct review_access inspect = {.verb = "get", .path = "/inspect"};

static struct view_auth *begin(void)
{
    struct err err = {0};
    struct view_auth_config config = {
        .call = play, .namespaces = namespaces, .wake = wake, .now_ms = fake_now};
    struct view_auth *a = view_auth_start(&config, &err);
    ck_assert_msg(a, "%s", err.msg);
    return a;
}

static void end(struct view_auth *a)
{
    view_auth_stop(a);
    ck_assert_int_eq(atomic_load(&woken), (int)n_waits);
    view_auth_free(a);
}

static bool is_woken(void *ctx)
{
    return atomic_load((atomic_bool *)ctx);
}

static void await(void)
{
    ck_assert(raw_until(is_woken, &waits[n_waits - 1]));
}

/* The results when nothing is waited for any longer. */

static enum view_auth_result token(struct view_auth *a, const char *text,
                                   struct view_auth_user **user)
{
    enum view_auth_result r;
    *user = NULL;
    while ((r = view_auth_token(a, span_of(text), &waiter, user, NULL)) == VIEW_AUTH_WAIT)
        await();
    return r;
}

static enum view_auth_result may(struct view_auth *a, struct view_auth_user *u)
{
    enum view_auth_result r;
    while ((r = view_auth_may(a, u, &inspect, &waiter, NULL)) == VIEW_AUTH_WAIT)
        await();
    return r;
}

static struct view_scope *scope_of(struct view_auth *a, struct view_auth_user *u)
{
    enum view_auth_result r;
    struct view_scope *scope;
    while ((r = view_auth_scope(a, u, &waiter, &scope, NULL)) == VIEW_AUTH_WAIT)
        await();
    ck_assert_int_eq(r, VIEW_AUTH_YES);
    return scope;
}

static void expect_reviews(int tokens, int accesses)
{
    ck_assert_int_eq(atomic_load(&token_reviews), tokens);
    ck_assert_int_eq(atomic_load(&access_reviews), accesses);
}

START_TEST(answers_are_kept_for_a_time)
{
    struct view_auth *a = begin();
    struct view_auth_user *u;
    ck_assert_int_eq(token(a, "t-alice", &u), VIEW_AUTH_YES);
    ck_assert_str_eq(view_auth_user_name(u), "alice");
    ck_assert_int_eq(may(a, u), VIEW_AUTH_NO);
    ck_assert_int_eq(may(a, u), VIEW_AUTH_NO);
    expect_reviews(1, 1);
    set_rights("alice /inspect;");
    atomic_fetch_add(&now, VIEW_AUTH_DENIED_MS);
    ck_assert_int_eq(may(a, u), VIEW_AUTH_YES);
    view_auth_user_free(u);
    atomic_fetch_add(&now, VIEW_AUTH_AUTHENTICATED_MS - VIEW_AUTH_DENIED_MS - 1);
    ck_assert_int_eq(token(a, "t-alice", &u), VIEW_AUTH_YES);
    expect_reviews(1, 2);
    view_auth_user_free(u);
    atomic_fetch_add(&now, 1);
    ck_assert_int_eq(token(a, "t-alice", &u), VIEW_AUTH_YES);
    expect_reviews(2, 2);
    set_rights("");
    atomic_fetch_add(&now, VIEW_AUTH_ALLOWED_MS);
    ck_assert_int_eq(may(a, u), VIEW_AUTH_NO);
    view_auth_user_free(u);

    ck_assert_int_eq(token(a, "bad", &u), VIEW_AUTH_NO);
    ck_assert_int_eq(token(a, "bad", &u), VIEW_AUTH_NO);
    expect_reviews(3, 3);
    atomic_fetch_add(&now, VIEW_AUTH_REJECTED_MS);
    ck_assert_int_eq(token(a, "bad", &u), VIEW_AUTH_NO);
    expect_reviews(4, 3);
    end(a);
}
END_TEST

/* The handler runs a moment after the request was allowed. */
START_TEST(answers_outlive_the_request_that_they_allowed)
{
    struct view_auth *a = begin();
    struct view_auth_user *u;
    struct view_scope *scope = NULL;
    set_rights("erin ns-a;");
    ck_assert_int_eq(token(a, "t-erin", &u), VIEW_AUTH_YES);
    view_scope_free(scope_of(a, u));
    view_auth_user_free(u);
    atomic_fetch_add(&now, VIEW_AUTH_AUTHENTICATED_MS - 1);
    ck_assert_int_eq(token(a, "t-erin", &u), VIEW_AUTH_YES);
    view_scope_free(scope_of(a, u));
    view_auth_user_free(u);
    atomic_fetch_add(&now, VIEW_AUTH_GRACE_MS);
    u = NULL;
    ck_assert_int_eq(view_auth_token(a, SPAN("t-erin"), NULL, &u, NULL), VIEW_AUTH_YES);
    ck_assert_int_eq(view_auth_scope(a, u, NULL, &scope, NULL), VIEW_AUTH_YES);
    ck_assert(view_scope_shows(scope, SPAN("ns-a")));
    view_scope_free(scope);
    view_auth_user_free(u);
    expect_reviews(1, access_reviews);
    atomic_fetch_add(&now, VIEW_AUTH_GRACE_MS);
    ck_assert_int_eq(view_auth_token(a, SPAN("t-erin"), NULL, &u, NULL), VIEW_AUTH_WAIT);
    end(a);
}
END_TEST

START_TEST(a_failed_call_is_repeated_later)
{
    struct view_auth *a = begin();
    struct view_auth_user *u;
    atomic_store(&down, true);
    ck_assert_int_eq(token(a, "t-bob", &u), VIEW_AUTH_UNAVAILABLE);
    ck_assert_int_eq(token(a, "t-bob", &u), VIEW_AUTH_UNAVAILABLE);
    expect_reviews(1, 0);
    atomic_store(&down, false);
    atomic_fetch_add(&now, VIEW_AUTH_FAILED_MS);
    ck_assert_int_eq(token(a, "t-bob", &u), VIEW_AUTH_YES);
    set_rights("bob /inspect;");
    ck_assert_int_eq(may(a, u), VIEW_AUTH_YES);
    atomic_store(&down, true);
    ck_assert_int_eq(may(a, u), VIEW_AUTH_YES); /* as long as the answer is valid */
    atomic_fetch_add(&now, VIEW_AUTH_ALLOWED_MS);
    ck_assert_int_eq(may(a, u), VIEW_AUTH_UNAVAILABLE);
    view_auth_user_free(u);
    end(a);
}
END_TEST

/* Asks until the API server has answered. */
static enum view_auth_grant_state renew(struct view_auth_grant *g)
{
    enum view_auth_grant_state state = GRANT_KEPT;
    /* A minute for the thread that asks; for the grant two, which does not end it. */
    for (int i = 0; i < 6000 && state == GRANT_KEPT; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
        atomic_fetch_add(&now, 20);
        state = view_auth_grant_renew(g);
    }
    return state;
}

START_TEST(a_stream_follows_the_rights_of_its_user)
{
    struct view_auth *a = begin();
    struct view_auth_user *u;
    set_rights("carol /inspect;carol ns-a;");
    ck_assert_int_eq(token(a, "t-carol", &u), VIEW_AUTH_YES);
    ck_assert_int_eq(may(a, u), VIEW_AUTH_YES);
    struct view_auth_grant g = {
        .auth = a, .user = u, .access = inspect, .has_scope = true};
    g.scope = scope_of(a, u);
    view_auth_grant_begin(&g);
    ck_assert(view_scope_shows(g.scope, SPAN("ns-a")));
    ck_assert(!view_scope_shows(g.scope, SPAN("ns-b")));
    ck_assert_int_eq(view_auth_grant_renew(&g), GRANT_KEPT);
    expect_reviews(1, 4);

    set_rights("carol /inspect;carol ns-a;carol ns-b;");
    atomic_fetch_add(&now, VIEW_AUTH_ALLOWED_MS);
    ck_assert_int_eq(renew(&g), GRANT_CHANGED);
    ck_assert(view_scope_shows(g.scope, SPAN("ns-b")));

    set_rights("carol /inspect;carol ;"); /* all namespaces */
    atomic_fetch_add(&now, VIEW_AUTH_ALLOWED_MS);
    ck_assert_int_eq(renew(&g), GRANT_CHANGED);
    ck_assert(view_scope_shows(g.scope, SPAN("ns-c")));

    atomic_store(&down, true); /* the stream stays */
    atomic_fetch_add(&now, VIEW_AUTH_ALLOWED_MS);
    ck_assert_int_eq(view_auth_grant_renew(&g), GRANT_KEPT);
    atomic_store(&down, false);
    set_rights("");
    atomic_fetch_add(&now, VIEW_AUTH_ALLOWED_MS);
    ck_assert_int_eq(renew(&g), GRANT_ENDED);
    set_rights("carol /inspect;carol ;");
    atomic_fetch_add(&now, VIEW_AUTH_STREAM_MS);
    ck_assert_int_eq(view_auth_grant_renew(&g), GRANT_ENDED);
    view_auth_grant_fini(&g);
    end(a);
}
END_TEST

START_TEST(unknown_tokens_are_limited_and_known_ones_are_not)
{
    struct view_auth *a = begin();
    struct view_auth_user *u;
    ck_assert_int_eq(token(a, "t-dave", &u), VIEW_AUTH_YES);
    view_auth_user_free(u);
    int limited = 0;
    for (int i = 0; i < 200; i++) {
        cleanup_free char *text = xasprintf("x-%d", i);
        limited += token(a, text, &u) == VIEW_AUTH_UNAVAILABLE;
    }
    ck_assert_int_eq(limited, 200 - (VIEW_AUTH_TOKENS_BURST - 1));
    atomic_fetch_add(&now, VIEW_AUTH_AUTHENTICATED_MS);
    atomic_store(&blocked, true); /* two threads hang with unknown tokens */
    for (int i = 0; i < 20; i++) {
        cleanup_free char *text = xasprintf("y-%d", i);
        ck_assert_int_eq(view_auth_token(a, span_of(text), NULL, &u, NULL),
                         VIEW_AUTH_WAIT);
    }
    ck_assert_int_eq(view_auth_token(a, SPAN("t-dave"), &waiter, &u, NULL),
                     VIEW_AUTH_WAIT);
    int before = VIEW_AUTH_TOKENS_BURST;
    int64_t until_ms = clock_mono_ms() + 60 * 1000;
    while (atomic_load(&token_reviews) < before + 3 && clock_mono_ms() < until_ms)
        sched_yield();
    ck_assert_int_eq(atomic_load(&token_reviews), before + 3);
    atomic_store(&blocked, false);
    await();
    ck_assert_int_eq(token(a, "t-dave", &u), VIEW_AUTH_YES);
    view_auth_user_free(u);
    end(a);
}
END_TEST

UNIT_MAIN("view_auth", answers_are_kept_for_a_time,
          answers_outlive_the_request_that_they_allowed, a_failed_call_is_repeated_later,
          a_stream_follows_the_rights_of_its_user,
          unknown_tokens_are_limited_and_known_ones_are_not)
