/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/client_priv.h"

#include <pthread.h>

#include "base/clock.h"
#include "kube/fixture.h"
#include "lib/stub.h"

/* When tokens and certificates are reloaded, and when a plugin runs again. */

TEST(credentials_without_files_do_not_change)
{
    start();
    check_get(T, "(none)");
    w.config.token = "abc";
    start();
    kube_client_unauthorized(w.c);
    check_get(T, "Bearer abc");
}

static void with_token_file(const char *token)
{
    w.config.token_file = file_in_config("token");
    if (token)
        put("token", token);
    start();
}

TEST(a_token_file_is_reloaded_within_a_minute)
{
    with_token_file(" one\n");
    check_get(T, "Bearer one");
    put("token", "two");
    check_get(T + 49999, "Bearer one");
    check_get(T + 50000, "Bearer two");
    put("token", "three");
    check_get(T + 99999, "Bearer two");
    check_get(T + 100000, "Bearer three");
}

TEST(a_bad_token_file_keeps_the_old_token_and_warns_once)
{
    static const char *const bad[] = {"", " \n", "SECRET SECRET", "SECRET\nX: y", NULL};
    with_token_file("one");
    int old = catch_log();
    int64_t now = T;
    check_get(now, "Bearer one");
    array_items(c, bad) {
        if (*c)
            put("token", *c);
        else
            drop("token");
        now += 50000;
        check_get(now, "Bearer one");
    }
    put("token", "two");
    check_get(now + 50000, "Bearer two");
    put("token", "");
    check_get(now + 100000, "Bearer two");
    cleanup_free char *log = log_caught(old);
    ck_assert_msg(count(log, "level=warn") == 2, "%s", log);
    ck_assert_lacks(log, "SECRET");
}

TEST(a_missing_token_is_an_error_until_the_file_exists)
{
    with_token_file(NULL);
    for (int i = 0; i < 3; i++) {
        cleanup_free char *said = get(T);
        ck_assert_msg(strstr(said, ": no token: ") && strstr(said, "No such file"), "%s",
                      said);
        ck_assert_int_eq(w.err.code, ERR_NOT_FOUND);
    }
    put("token", "SEC RET");
    cleanup_free char *said = get(T);
    ck_assert(strstr(said, "expected printable ASCII") && !strstr(said, "SEC"));
    put("token", "one");
    check_get(T, "Bearer one");
}

TEST(a_token_replaces_a_missing_token_file)
{
    w.config.token = "fixed";
    w.config.token_file = file_in_config("token");
    start();
    int old = catch_log();
    check_get(T, "Bearer fixed");
    cleanup_free char *log = log_caught(old);
    put("token", "one");
    check_get(T + 50000, "Bearer one");
}

/* The client of that time, for comparison only: it has these certificates. */
static struct httpc *http_at(int64_t now_ms, const char *ca, const char *cert,
                             const char *key)
{
    struct kube_session s;
    w.now_ms = now_ms;
    ck_assert_done(kube_session_begin(w.c, &s, &w.err), w.err);
    ck_assert_span_eq(w.c->config.ca_pem, ca);
    ck_assert_span_eq(w.c->config.cert_pem, cert);
    ck_assert_span_eq(w.c->config.key_pem, key);
    kube_session_fini(&s);
    return s.http;
}

TEST(new_certificates_need_new_connections)
{
    static const char a1[] = PEM("A1"), a2[] = PEM("A2"), c1[] = PEM("C1"),
                      c2[] = PEM("C2"), k1[] = PEM("K1"), k2[] = PEM("K2");
    struct kube_session first;
    w.config.token_file = file_in_config("token");
    w.config.ca_file = file_in_config("ca");
    w.config.cert_file = file_in_config("cert");
    w.config.key_file = file_in_config("key");
    put("token", "one");
    put("ca", a1);
    put("cert", c1);
    put("key", k1);
    start();
    w.now_ms = T;
    ck_assert_done(kube_session_begin(w.c, &first, &w.err), w.err);
    put("token", "two");
    ck_assert_ptr_eq(http_at(T + 50000, a1, c1, k1), first.http);
    check_get(T + 50000, "Bearer two");
    ck_assert_str_eq(first.authorization, "Bearer one"); /* still ours */

    int old = catch_log();
    put("ca", a2);
    put("cert", c2);
    drop("key"); /* without its key the certificate is of no use */
    struct httpc *second = http_at(T + 100000, a2, c1, k1);
    ck_assert_ptr_ne(second, first.http);
    put("ca", "half written");
    put("key", k2);
    http_at(T + 150000, a2, c2, k2);
    cleanup_free char *log = log_caught(old);
    ck_assert(strstr(log, "expected a PEM file") && !strstr(log, "half"));
    kube_session_fini(&first);
}

/* -- when a plugin runs again -- */

static unsigned runs(void)
{
    cleanup_free char *text = temp_read(w.dir, "runs");
    return count(text, "run\n");
}

/* Sets the plugin's output: a token that expires in this many seconds. */
static void set_answer(const char *token, int64_t seconds)
{
    cleanup_buf struct buf when = {0};
    clock_format_s(&when, clock_wall_ns() / 1000000000 + seconds);
    cleanup_free char *text = xasprintf(
        ANSWER("{\"token\":\"%s\",\"expirationTimestamp\":\"%s\"}"), token, when.p);
    put("answer", text);
}

TEST(a_plugin_runs_once_until_its_credential_expires)
{
    with_plugin("cat answer");
    set_answer("one", 3600);
    for (int i = 0; i < 5; i++)
        check_get(T + i * 1000000 / 5, "Bearer one");
    ck_assert_uint_eq(runs(), 1);
    set_answer("two", 7200);
    check_get(T + 3570000, "Bearer one");
    check_get(T + 3595000, "Bearer two"); /* ten seconds before it expires */
    ck_assert_uint_eq(runs(), 2);
}

TEST(a_401_runs_the_plugin_at_most_once_a_second)
{
    with_plugin("cat answer");
    put("answer", ANSWER("{\"token\":\"one\"}"));
    check_get(T, "Bearer one");
    check_get(T + 1000000000, "Bearer one"); /* it does not expire */
    ck_assert_uint_eq(runs(), 1);
    put("answer", ANSWER("{\"token\":\"two\"}"));
    uint64_t old = w.c->version;
    kube_session_rejected(w.c, old);
    check_get(T + 500000, "Bearer two");
    kube_session_rejected(w.c, old); /* not the latest version */
    check_get(T + 600000, "Bearer two");
    ck_assert_uint_eq(runs(), 2);
    kube_client_unauthorized(w.c);
    check_get(T + 500900, "Bearer two"); /* too soon after the run */
    ck_assert_uint_eq(runs(), 2);
    check_get(T + 600000, "Bearer two");
    ck_assert_uint_eq(runs(), 3);
    w.c->is_connect_failed = true; /* does not affect plugins */
    check_get(T + 700000, "Bearer two");
    ck_assert_uint_eq(runs(), 3);
}

TEST(a_failing_plugin_is_not_run_for_each_call)
{
    with_plugin("cat answer || { echo log in >&2; exit 1; }");
    for (int i = 0; i < 5; i++) {
        cleanup_free char *said = get(T + i);
        ck_assert_contains(said, "exec plugin of user \"b\": exit status 1: ");
        ck_assert_int_eq(w.err.code, ERR_UNAVAILABLE);
    }
    ck_assert_uint_eq(runs(), 1);
    set_answer("one", 60);
    check_get(T + 30000, "Bearer one");
    ck_assert_uint_eq(runs(), 2);
    drop("answer");
    int old = catch_log();
    check_get(T + 30000 + 53000,
              "Bearer one"); /* the run fails, but the credential has not expired */
    cleanup_free char *log = log_caught(old);
    ck_assert_msg(count(log, "level=warn") == 1, "%s", log);
    ck_assert_uint_eq(runs(), 3);
    cleanup_free char *said = get(T + 30000 + 61000);
    ck_assert_contains(said, "exec plugin");
    ck_assert_uint_eq(runs(), 4);
}

TEST(a_token_has_precedence_over_a_plugin)
{
    put("runs", "");
    w.config.token = "fixed";
    with_plugin("cat answer");
    check_get(T, "Bearer fixed");
    ck_assert_uint_eq(runs(), 0);
}

struct asker {
    pthread_t thread;
    bool good;
};

static void *ask(void *arg)
{
    struct asker *a = arg;
    struct kube_session s;
    a->good =
        !kube_session_begin(w.c, &s, NULL) && !strcmp(s.authorization, "Bearer one");
    kube_session_fini(&s);
    return NULL;
}

TEST(one_run_serves_all_threads)
{
    with_plugin("until [ -e go ]; do sleep 0.01; done; cat answer");
    struct asker askers[8];
    w.now_ms = T;
    set_answer("one", 3600);
    array_items(a, askers) {
        ck_assert_int_eq(pthread_create(&a->thread, NULL, ask, a), 0);
    }
    cleanup_free char *path = path_of("runs");
    lib_wait(access(path, R_OK) == 0);
    put("go", "");
    array_items(c, askers) {
        pthread_join(c->thread, NULL);
        ck_assert(c->good);
    }
    ck_assert_uint_eq(runs(), 1);
}

TEST(during_a_run_other_threads_use_the_old_credential)
{
    with_plugin("[ -e first ] && until [ -e go ]; do sleep 0.01; done\n"
                "touch first; cat answer");
    set_answer("old", 3600);
    check_get(T, "Bearer old");
    set_answer("one", 7200);
    struct asker renewer;
    w.now_ms = T + 3595000;
    ck_assert_int_eq(pthread_create(&renewer.thread, NULL, ask, &renewer), 0);
    lib_wait(runs() == 2);
    check_get(T + 3595000, "Bearer old"); /* the plugin still runs */
    put("go", "");
    pthread_join(renewer.thread, NULL);
    ck_assert(renewer.good);
    check_get(T + 3595000, "Bearer one");
    ck_assert_uint_eq(runs(), 2);
}

UNIT_MAIN_AROUND(fixture_begin, fixture_end)
