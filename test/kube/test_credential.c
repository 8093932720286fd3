/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/client_priv.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kube/fixture.h"
#include "lib/stub.h"

/* When tokens and certificates are reloaded, and when a plugin runs again. */

START_TEST(credentials_without_files_do_not_change)
{
    start();
    check_get(T, "(none)");
    ck_assert(!kube_credential_can_change(w.c));
    kube_credential_free(w.c);
    w.config.token = xstrdup("abc");
    start();
    kube_credential_rejected(w.c, NULL);
    check_get(T, "Bearer abc");
    ck_assert(!kube_credential_can_change(w.c));
}
END_TEST

static void with_token_file(const char *token)
{
    w.config.token_file = path_of("token");
    if (token)
        put("token", token);
    start();
}

START_TEST(a_token_file_is_reloaded_within_a_minute)
{
    with_token_file(" one\n");
    ck_assert(kube_credential_can_change(w.c));
    check_get(T, "Bearer one");
    put("token", "two");
    check_get(T + 49999, "Bearer one");
    check_get(T + 50000, "Bearer two");
    put("token", "three");
    check_get(T + 99999, "Bearer two");
    check_get(T + 100000, "Bearer three");
}
END_TEST

START_TEST(a_bad_token_file_keeps_the_old_token_and_warns_once)
{
    static const char *const bad[] = {"", " \n", "SECRET SECRET", "SECRET\nX: y", NULL};
    with_token_file("one");
    int old = catch_log();
    int64_t now = T;
    check_get(now, "Bearer one");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (bad[i])
            put("token", bad[i]);
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
    ck_assert_ptr_null(strstr(log, "SECRET"));
}
END_TEST

START_TEST(a_missing_token_is_an_error_until_the_file_exists)
{
    with_token_file(NULL);
    for (int i = 0; i < 3; i++) {
        cleanup_free char *said = get(T);
        ck_assert_msg(strstr(said, "no token: ") == said && strstr(said, "No such file"),
                      "%s", said);
        ck_assert_int_eq(w.err.code, ERR_NOT_FOUND);
    }
    put("token", "SEC RET");
    cleanup_free char *said = get(T);
    ck_assert(strstr(said, "expected printable ASCII") && !strstr(said, "SEC"));
    put("token", "one");
    check_get(T, "Bearer one");
}
END_TEST

START_TEST(a_token_replaces_a_missing_token_file)
{
    w.config.token = xstrdup("fixed");
    w.config.token_file = path_of("token");
    start();
    int old = catch_log();
    check_get(T, "Bearer fixed");
    cleanup_free char *log = log_caught(old);
    put("token", "one");
    check_get(T + 50000, "Bearer one");
}
END_TEST

/* The identity at that time, which has these certificates. */
static struct kube_identity *identity_at(int64_t now_ms, const char *ca, const char *cert,
                                         const char *key)
{
    struct kube_identity *id = kube_credential_get(w.c, now_ms, &w.err);
    ck_assert(span_eq(id->ca_pem, span_of(ca)));
    ck_assert(span_eq(id->cert_pem, span_of(cert)));
    ck_assert(span_eq(id->key_pem, span_of(key)));
    return id;
}

START_TEST(certificates_are_reloaded_with_their_own_version)
{
    static const char a1[] = PEM("A1"), a2[] = PEM("A2"), c1[] = PEM("C1"),
                      c2[] = PEM("C2"), k1[] = PEM("K1"), k2[] = PEM("K2");
    struct kube_identity *ids[4];
    w.config.token_file = path_of("token");
    w.config.ca_file = path_of("ca");
    w.config.cert_file = path_of("cert");
    w.config.key_file = path_of("key");
    put("token", "one");
    put("ca", a1);
    put("cert", c1);
    put("key", k1);
    start();
    ids[0] = identity_at(T, a1, c1, k1);
    put("token", "two");
    ids[1] = identity_at(T + 50000, a1, c1, k1);
    ck_assert_str_eq(ids[1]->authorization, "Bearer two");
    ck_assert_str_eq(ids[0]->authorization, "Bearer one"); /* still ours */
    ck_assert_uint_gt(ids[1]->version, ids[0]->version);
    ck_assert_uint_eq(ids[1]->tls_version, ids[0]->tls_version);

    int old = catch_log();
    put("ca", a2);
    put("cert", c2);
    drop("key"); /* without its key the certificate is of no use */
    ids[2] = identity_at(T + 100000, a2, c1, k1);
    ck_assert_uint_gt(ids[2]->tls_version, ids[1]->tls_version);
    ck_assert_uint_eq(ids[2]->tls_version, ids[2]->version);
    put("ca", "half written");
    put("key", k2);
    ids[3] = identity_at(T + 150000, a2, c2, k2);
    cleanup_free char *log = log_caught(old);
    ck_assert(strstr(log, "expected a PEM file") && !strstr(log, "half"));
    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        kube_identity_free(ids[i]);
}
END_TEST

/* -- when a plugin runs again -- */

/* A plugin that counts its runs in the file "runs" and then does `script`. */
static void with_plugin(const char *script)
{
    cleanup_free char *text = xasprintf("cd %s; echo run >>runs\n%s\n", w.dir, script);
    temp_script(w.dir, "plugin", text);
    struct kube_exec *e = w.config.exec = xcalloc(1, sizeof *e);
    e->user = xstrdup("b");
    e->api_version = xstrdup("client.authentication.k8s.io/v1");
    e->argv = xcalloc(2, sizeof(char *));
    e->argv[0] = path_of("plugin");
    e->env = xcalloc(1, sizeof(char *));
    e->info = xstrdup("{}");
    start();
}

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

START_TEST(a_plugin_runs_once_until_its_credential_expires)
{
    with_plugin("cat answer");
    ck_assert(kube_credential_can_change(w.c));
    set_answer("one", 3600);
    for (int i = 0; i < 5; i++)
        check_get(T + i * 1000000 / 5, "Bearer one");
    ck_assert_uint_eq(runs(), 1);
    set_answer("two", 7200);
    check_get(T + 3570000, "Bearer one");
    check_get(T + 3595000, "Bearer two"); /* ten seconds before it expires */
    ck_assert_uint_eq(runs(), 2);
}
END_TEST

START_TEST(a_401_runs_the_plugin_at_most_once_a_second)
{
    with_plugin("cat answer");
    put("answer", ANSWER("{\"token\":\"one\"}"));
    check_get(T, "Bearer one");
    check_get(T + 1000000000, "Bearer one"); /* it does not expire */
    ck_assert_uint_eq(runs(), 1);
    put("answer", ANSWER("{\"token\":\"two\"}"));
    struct kube_identity *old = kube_credential_get(w.c, T, &w.err);
    kube_credential_rejected(w.c, old);
    check_get(T + 500000, "Bearer two");
    kube_credential_rejected(w.c, old); /* not the latest version */
    check_get(T + 600000, "Bearer two");
    ck_assert_uint_eq(runs(), 2);
    kube_credential_rejected(w.c, NULL);
    check_get(T + 500900, "Bearer two"); /* too soon after the run */
    ck_assert_uint_eq(runs(), 2);
    check_get(T + 600000, "Bearer two");
    ck_assert_uint_eq(runs(), 3);
    kube_credential_connect_failed(w.c); /* does not affect plugins */
    check_get(T + 700000, "Bearer two");
    ck_assert_uint_eq(runs(), 3);
    kube_identity_free(old);
}
END_TEST

START_TEST(a_failing_plugin_is_not_run_for_each_call)
{
    with_plugin("cat answer || { echo log in >&2; exit 1; }");
    for (int i = 0; i < 5; i++) {
        cleanup_free char *said = get(T + i);
        ck_assert_msg(strstr(said, "exec plugin of user \"b\": exit status 1: "), "%s",
                      said);
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
    ck_assert(strstr(said, "exec plugin") == said);
    ck_assert_uint_eq(runs(), 4);
}
END_TEST

START_TEST(a_token_has_precedence_over_a_plugin)
{
    with_plugin("cat answer");
    kube_credential_free(w.c);
    put("runs", "");
    w.config.token = xstrdup("fixed");
    start();
    check_get(T, "Bearer fixed");
    ck_assert_uint_eq(runs(), 0);
    ck_assert(!kube_credential_can_change(w.c));
}
END_TEST

struct asker {
    pthread_t thread;
    bool good;
    int64_t now_ms;
};

static void *ask(void *arg)
{
    struct asker *a = arg;
    struct kube_identity *id = kube_credential_get(w.c, a->now_ms, NULL);
    a->good = id && !strcmp(id->authorization, "Bearer one");
    if (id)
        kube_identity_free(id);
    return NULL;
}

START_TEST(one_run_serves_all_threads)
{
    with_plugin("until [ -e go ]; do sleep 0.01; done; cat answer");
    struct asker askers[8];
    set_answer("one", 3600);
    for (size_t i = 0; i < ARRAY_LEN(askers); i++) {
        askers[i] = (struct asker){.now_ms = T};
        ck_assert_int_eq(pthread_create(&askers[i].thread, NULL, ask, &askers[i]), 0);
    }
    cleanup_free char *path = path_of("runs");
    lib_wait(access(path, R_OK) == 0);
    put("go", "");
    for (size_t i = 0; i < ARRAY_LEN(askers); i++) {
        pthread_join(askers[i].thread, NULL);
        ck_assert(askers[i].good);
    }
    ck_assert_uint_eq(runs(), 1);
}
END_TEST

START_TEST(during_a_run_other_threads_use_the_old_credential)
{
    with_plugin("[ -e first ] && until [ -e go ]; do sleep 0.01; done\n"
                "touch first; cat answer");
    set_answer("old", 3600);
    check_get(T, "Bearer old");
    set_answer("one", 7200);
    struct asker renewer = {.now_ms = T + 3595000};
    ck_assert_int_eq(pthread_create(&renewer.thread, NULL, ask, &renewer), 0);
    lib_wait(runs() == 2);
    check_get(T + 3595000, "Bearer old"); /* the plugin still runs */
    put("go", "");
    pthread_join(renewer.thread, NULL);
    ck_assert(renewer.good);
    check_get(T + 3595000, "Bearer one");
    ck_assert_uint_eq(runs(), 2);
}
END_TEST

UNIT_MAIN_AROUND("credential", fixture_begin, fixture_end,
                 credentials_without_files_do_not_change,
                 a_token_file_is_reloaded_within_a_minute,
                 a_bad_token_file_keeps_the_old_token_and_warns_once,
                 a_missing_token_is_an_error_until_the_file_exists,
                 a_token_replaces_a_missing_token_file,
                 certificates_are_reloaded_with_their_own_version,
                 a_plugin_runs_once_until_its_credential_expires,
                 a_401_runs_the_plugin_at_most_once_a_second,
                 a_failing_plugin_is_not_run_for_each_call,
                 a_token_has_precedence_over_a_plugin, one_run_serves_all_threads,
                 during_a_run_other_threads_use_the_old_credential)
