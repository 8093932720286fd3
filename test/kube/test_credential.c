/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/credential.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "support/server.h"
#include "support/temp.h"

/* When credentials are read again. Time is an argument: `T` is some time after start. */

enum { T = 1000000 };

#define PEM(what) "-----BEGIN " what "-----\nAAAA\n-----END " what "-----\n"
#define ANSWER(status)                                                                   \
    "{\"kind\":\"ExecCredential\","                                                      \
    "\"apiVersion\":\"client.authentication.k8s.io/v1\",\"status\":" status "}"

struct world {
    char *dir;
    struct kube_config config;
    struct kube_credential *c;
    struct err err;
};

static struct world *world_new(void)
{
    struct world *w = xcalloc(1, sizeof *w);
    w->dir = temp_dir();
    return w;
}

static void world_free(struct world *w)
{
    kube_credential_free(w->c);
    kube_config_fini(&w->config);
    temp_dir_remove(w->dir);
    free(w->dir);
    free(w);
}

static void start(struct world *w)
{
    w->c = kube_credential_new(&w->config);
}

/* What is shown at this time as authorization, or the error; new. */
static char *get(struct world *w, int64_t now_ms)
{
    w->err = (struct err){0};
    struct kube_identity *id = kube_credential_get(w->c, now_ms, &w->err);
    if (!id)
        return xstrdup(w->err.msg);
    char *shown = xstrdup(id->authorization ? id->authorization : "(none)");
    kube_identity_free(id);
    return shown;
}

#define check_get(w, now_ms, want)                                                       \
    do {                                                                                 \
        cleanup_free char *shown_ = get((w), (now_ms));                                  \
        ck_assert_str_eq(shown_, want);                                                  \
    } while (0)

START_TEST(a_fixed_token_stays)
{
    struct world *w = world_new();
    w->config.token = xstrdup("abc");
    start(w);
    check_get(w, T, "Bearer abc");
    ck_assert(!kube_credential_can_change(w->c));
    kube_credential_refused(w->c, NULL);
    check_get(w, T, "Bearer abc");
    world_free(w);
}
END_TEST

START_TEST(nobody_is_somebody_too)
{
    struct world *w = world_new();
    start(w);
    check_get(w, T, "(none)");
    ck_assert(!kube_credential_can_change(w->c));
    world_free(w);
}
END_TEST

static struct world *with_token_file(const char *token)
{
    struct world *w = world_new();
    w->config.token_file = temp_path(w->dir, "token");
    if (token)
        temp_write(w->dir, "token", token);
    start(w);
    return w;
}

START_TEST(a_token_file_is_read_again_within_a_minute)
{
    struct world *w = with_token_file(" one\n");
    ck_assert(kube_credential_can_change(w->c));
    check_get(w, T, "Bearer one");
    temp_write(w->dir, "token", "two");
    check_get(w, T + 49999, "Bearer one");
    check_get(w, T + 50000, "Bearer two");
    temp_write(w->dir, "token", "three");
    check_get(w, T + 99999, "Bearer two");
    check_get(w, T + 100000, "Bearer three");
    world_free(w);
}
END_TEST

START_TEST(a_refused_token_is_read_again_at_once)
{
    struct world *w = with_token_file("one");
    struct kube_identity *old = kube_credential_get(w->c, T, &w->err);
    temp_write(w->dir, "token", "two");
    kube_credential_refused(w->c, old);
    check_get(w, T, "Bearer two");
    temp_write(w->dir, "token", "three");
    kube_credential_refused(w->c, old); /* that it was refused is old news */
    check_get(w, T + 2000, "Bearer two");
    kube_credential_refused(w->c, NULL);
    check_get(w, T + 2000, "Bearer three");
    ck_assert_str_eq(old->authorization, "Bearer one"); /* still ours */
    kube_identity_free(old);
    world_free(w);
}
END_TEST

START_TEST(a_failed_connection_makes_files_be_read_at_most_once_a_second)
{
    struct world *w = with_token_file("one");
    check_get(w, T, "Bearer one");
    temp_write(w->dir, "token", "two");
    kube_credential_doubted(w->c);
    check_get(w, T + 999, "Bearer one");
    check_get(w, T + 1000, "Bearer two");
    temp_write(w->dir, "token", "three");
    check_get(w, T + 2500, "Bearer two");
    world_free(w);
}
END_TEST

/* Catches what is written to standard error until log_caught. */
static int catch_log(const struct world *w)
{
    cleanup_free char *path = temp_path(w->dir, "log");
    int old = dup(STDERR_FILENO), fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(fd, STDERR_FILENO);
    close(fd);
    return old;
}

static char *log_caught(const struct world *w, int old)
{
    dup2(old, STDERR_FILENO);
    close(old);
    return temp_read(w->dir, "log");
}

static unsigned count(const char *text, const char *word)
{
    unsigned n = 0;
    for (text = strstr(text, word); text; text = strstr(text + 1, word))
        n++;
    return n;
}

START_TEST(a_bad_token_file_keeps_the_old_token_and_warns_once)
{
    static const char *const bad[] = {"", " \n", "SECRET SECRET", "SECRET\nX: y", NULL};
    struct world *w = with_token_file("one");
    int old = catch_log(w);
    int64_t now = T;
    check_get(w, now, "Bearer one");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (bad[i])
            temp_write(w->dir, "token", bad[i]);
        else
            temp_remove(w->dir, "token");
        now += 50000;
        check_get(w, now, "Bearer one");
    }
    temp_write(w->dir, "token", "two");
    check_get(w, now + 50000, "Bearer two");
    temp_write(w->dir, "token", "");
    check_get(w, now + 100000, "Bearer two");
    cleanup_free char *log = log_caught(w, old);
    ck_assert_msg(count(log, "level=warn") == 2, "%s", log);
    ck_assert_ptr_null(strstr(log, "SECRET"));
    world_free(w);
}
END_TEST

START_TEST(without_any_token_there_is_an_error_until_there_is_one)
{
    struct world *w = with_token_file(NULL);
    for (int i = 0; i < 3; i++) {
        cleanup_free char *said = get(w, T);
        ck_assert_msg(strstr(said, "no token: ") == said && strstr(said, "No such file"),
                      "%s", said);
        ck_assert_int_eq(w->err.code, ERR_NOT_FOUND);
    }
    temp_write(w->dir, "token", "SEC RET");
    cleanup_free char *said = get(w, T);
    ck_assert(strstr(said, "not one word") && !strstr(said, "SEC"));
    temp_write(w->dir, "token", "one");
    check_get(w, T, "Bearer one");
    world_free(w);
}
END_TEST

START_TEST(a_token_stands_in_for_a_missing_token_file)
{
    struct world *w = world_new();
    w->config.token = xstrdup("fixed");
    w->config.token_file = temp_path(w->dir, "token");
    start(w);
    int old = catch_log(w);
    check_get(w, T, "Bearer fixed");
    cleanup_free char *log = log_caught(w, old);
    temp_write(w->dir, "token", "one");
    check_get(w, T + 50000, "Bearer one");
    world_free(w);
}
END_TEST

START_TEST(certificates_are_read_again_and_counted_apart)
{
    struct world *w = world_new();
    w->config.token_file = temp_path(w->dir, "token");
    w->config.ca_file = temp_path(w->dir, "ca");
    w->config.cert_file = temp_path(w->dir, "cert");
    w->config.key_file = temp_path(w->dir, "key");
    temp_write(w->dir, "token", "one");
    temp_write(w->dir, "ca", PEM("A1"));
    temp_write(w->dir, "cert", PEM("C1"));
    temp_write(w->dir, "key", PEM("K1"));
    start(w);
    struct kube_identity *a = kube_credential_get(w->c, T, &w->err);
    ck_assert_span_eq(a->ca_pem, PEM("A1"));
    ck_assert_span_eq(a->key_pem, PEM("K1"));

    temp_write(w->dir, "token", "two");
    struct kube_identity *b = kube_credential_get(w->c, T + 50000, &w->err);
    ck_assert_str_eq(b->authorization, "Bearer two");
    ck_assert_uint_gt(b->version, a->version);
    ck_assert_uint_eq(b->tls_version, a->tls_version);

    temp_write(w->dir, "ca", PEM("A2"));
    temp_write(w->dir, "cert", PEM("C2"));
    temp_remove(w->dir, "key"); /* without its key the certificate is of no use */
    int old = catch_log(w);
    struct kube_identity *c = kube_credential_get(w->c, T + 100000, &w->err);
    cleanup_free char *log = log_caught(w, old);
    ck_assert_span_eq(c->ca_pem, PEM("A2"));
    ck_assert_span_eq(c->cert_pem, PEM("C1"));
    ck_assert_span_eq(c->key_pem, PEM("K1"));
    ck_assert_uint_gt(c->tls_version, b->tls_version);
    ck_assert_uint_eq(c->tls_version, c->version);

    temp_write(w->dir, "ca", "half written");
    temp_write(w->dir, "key", PEM("K2"));
    old = catch_log(w);
    struct kube_identity *d = kube_credential_get(w->c, T + 150000, &w->err);
    cleanup_free char *more = log_caught(w, old);
    ck_assert_span_eq(d->ca_pem, PEM("A2"));
    ck_assert_span_eq(d->cert_pem, PEM("C2"));
    ck_assert_span_eq(d->key_pem, PEM("K2"));
    ck_assert(strstr(more, "not in PEM form") != NULL);
    ck_assert_ptr_null(strstr(more, "half"));
    kube_identity_free(a);
    kube_identity_free(b);
    kube_identity_free(c);
    kube_identity_free(d);
    world_free(w);
}
END_TEST

/* A plugin that counts its runs in the file "runs" and then does `script`. */
static struct world *with_plugin(const char *script)
{
    struct world *w = world_new();
    cleanup_free char *text = xasprintf("cd %s; echo run >>runs\n%s\n", w->dir, script);
    temp_script(w->dir, "plugin", text);
    struct kube_exec *e = w->config.exec = xcalloc(1, sizeof *e);
    e->user = xstrdup("b");
    e->api_version = xstrdup("client.authentication.k8s.io/v1");
    e->argv = xcalloc(2, sizeof(char *));
    e->argv[0] = temp_path(w->dir, "plugin");
    e->env = xcalloc(1, sizeof(char *));
    e->info = xstrdup("{}");
    start(w);
    return w;
}

static unsigned runs(const struct world *w)
{
    cleanup_free char *text = temp_read(w->dir, "runs");
    return count(text, "run\n");
}

/* What the plugin prints next: a token that expires so many seconds from now. */
static void set_answer(const struct world *w, const char *token, int64_t seconds)
{
    cleanup_buf struct buf when = {0};
    clock_format_s(&when, clock_wall_ns() / 1000000000 + seconds);
    cleanup_free char *text = xasprintf(
        ANSWER("{\"token\":\"%s\",\"expirationTimestamp\":\"%s\"}"), token, when.p);
    temp_write(w->dir, "answer", text);
}

START_TEST(a_plugin_is_run_once_until_its_answer_expires)
{
    struct world *w = with_plugin("cat answer");
    ck_assert(kube_credential_can_change(w->c));
    set_answer(w, "one", 3600);
    for (int i = 0; i < 5; i++)
        check_get(w, T + i * 1000000 / 5, "Bearer one");
    ck_assert_uint_eq(runs(w), 1);
    set_answer(w, "two", 7200);
    check_get(w, T + 3570000, "Bearer one");
    check_get(w, T + 3595000, "Bearer two"); /* ten seconds before the end */
    ck_assert_uint_eq(runs(w), 2);
    world_free(w);
}
END_TEST

START_TEST(a_refusal_makes_the_plugin_run_but_not_twice_a_second)
{
    struct world *w = with_plugin("cat answer");
    temp_write(w->dir, "answer", ANSWER("{\"token\":\"one\"}"));
    check_get(w, T, "Bearer one");
    check_get(w, T + 1000000000, "Bearer one"); /* it does not expire */
    ck_assert_uint_eq(runs(w), 1);
    temp_write(w->dir, "answer", ANSWER("{\"token\":\"two\"}"));
    struct kube_identity *old = kube_credential_get(w->c, T, &w->err);
    kube_credential_refused(w->c, old);
    check_get(w, T + 500000, "Bearer two");
    kube_credential_refused(w->c, old); /* old news */
    check_get(w, T + 600000, "Bearer two");
    ck_assert_uint_eq(runs(w), 2);
    kube_credential_refused(w->c, NULL);
    check_get(w, T + 500900, "Bearer two"); /* too soon after the run */
    ck_assert_uint_eq(runs(w), 2);
    check_get(w, T + 600000, "Bearer two");
    ck_assert_uint_eq(runs(w), 3);
    kube_credential_doubted(w->c); /* does not concern plugins */
    check_get(w, T + 700000, "Bearer two");
    ck_assert_uint_eq(runs(w), 3);
    kube_identity_free(old);
    world_free(w);
}
END_TEST

START_TEST(a_failing_plugin_is_not_run_for_each_call)
{
    struct world *w = with_plugin("cat answer || { echo log in >&2; exit 1; }");
    for (int i = 0; i < 5; i++) {
        cleanup_free char *said = get(w, T + i);
        ck_assert_msg(strstr(said, "exec plugin of user \"b\": exit status 1: "), "%s",
                      said);
        ck_assert_int_eq(w->err.code, ERR_UNAVAILABLE);
    }
    ck_assert_uint_eq(runs(w), 1);
    set_answer(w, "one", 60);
    check_get(w, T + 30000, "Bearer one");
    ck_assert_uint_eq(runs(w), 2);
    temp_remove(w->dir, "answer");
    int old = catch_log(w);
    check_get(w, T + 30000 + 53000, "Bearer one"); /* renewal fails, but it still holds */
    cleanup_free char *log = log_caught(w, old);
    ck_assert_msg(count(log, "level=warn") == 1, "%s", log);
    ck_assert_uint_eq(runs(w), 3);
    cleanup_free char *said = get(w, T + 30000 + 61000);
    ck_assert(strstr(said, "exec plugin") == said);
    ck_assert_uint_eq(runs(w), 4);
    world_free(w);
}
END_TEST

START_TEST(an_answer_that_is_old_already_is_used_and_asked_for_again)
{
    struct world *w = with_plugin("cat answer");
    set_answer(w, "one", -5);
    check_get(w, T, "Bearer one");
    check_get(w, T + 100, "Bearer one");
    ck_assert_uint_eq(runs(w), 1);
    check_get(w, T + 20000, "Bearer one");
    ck_assert_uint_eq(runs(w), 2);
    world_free(w);
}
END_TEST

START_TEST(a_token_wins_over_a_plugin)
{
    struct world *w = with_plugin("cat answer");
    kube_credential_free(w->c);
    temp_write(w->dir, "runs", "");
    w->config.token = xstrdup("fixed");
    start(w);
    check_get(w, T, "Bearer fixed");
    ck_assert_uint_eq(runs(w), 0);
    ck_assert(!kube_credential_can_change(w->c));
    world_free(w);
}
END_TEST

START_TEST(a_plugin_can_give_a_certificate)
{
    struct world *w = with_plugin("cat answer");
    temp_write(w->dir, "answer",
               ANSWER("{\"clientCertificateData\":\"-----BEGIN C-----\","
                      "\"clientKeyData\":\"-----BEGIN K-----\"}"));
    struct kube_identity *id = kube_credential_get(w->c, T, &w->err);
    ck_assert_msg(id != NULL, "%s", w->err.msg);
    ck_assert_ptr_null(id->authorization);
    ck_assert_span_eq(id->cert_pem, "-----BEGIN C-----");
    ck_assert_span_eq(id->key_pem, "-----BEGIN K-----");
    ck_assert_uint_eq(id->tls_version, id->version);
    kube_identity_free(id);
    world_free(w);
}
END_TEST

struct asker {
    struct world *w;
    pthread_t thread;
    bool good;
    int64_t now_ms;
};

static void *ask(void *arg)
{
    struct asker *a = arg;
    struct kube_identity *id = kube_credential_get(a->w->c, a->now_ms, NULL);
    a->good = id && !strcmp(id->authorization, "Bearer one");
    if (id)
        kube_identity_free(id);
    return NULL;
}

START_TEST(one_run_serves_all_threads)
{
    struct world *w = with_plugin("until [ -e go ]; do sleep 0.01; done; cat answer");
    struct asker askers[8];
    set_answer(w, "one", 3600);
    for (size_t i = 0; i < ARRAY_LEN(askers); i++) {
        askers[i] = (struct asker){.w = w, .now_ms = T};
        ck_assert_int_eq(pthread_create(&askers[i].thread, NULL, ask, &askers[i]), 0);
    }
    cleanup_free char *path = temp_path(w->dir, "runs");
    wait_for(access(path, R_OK) == 0);
    temp_write(w->dir, "go", "");
    for (size_t i = 0; i < ARRAY_LEN(askers); i++) {
        pthread_join(askers[i].thread, NULL);
        ck_assert(askers[i].good);
    }
    ck_assert_uint_eq(runs(w), 1);
    world_free(w);
}
END_TEST

START_TEST(while_one_renews_the_others_use_the_old_one)
{
    struct world *w = with_plugin("[ -e first ] && until [ -e go ]; do sleep 0.01; done\n"
                                  "touch first; cat answer");
    set_answer(w, "old", 3600);
    check_get(w, T, "Bearer old");
    set_answer(w, "one", 7200);
    struct asker renewer = {.w = w, .now_ms = T + 3595000};
    ck_assert_int_eq(pthread_create(&renewer.thread, NULL, ask, &renewer), 0);
    wait_for(runs(w) == 2);
    check_get(w, T + 3595000, "Bearer old"); /* the plugin still runs */
    temp_write(w->dir, "go", "");
    pthread_join(renewer.thread, NULL);
    ck_assert(renewer.good);
    check_get(w, T + 3595000, "Bearer one");
    ck_assert_uint_eq(runs(w), 2);
    world_free(w);
}
END_TEST

UNIT_MAIN("credential", a_fixed_token_stays, nobody_is_somebody_too,
          a_token_file_is_read_again_within_a_minute,
          a_refused_token_is_read_again_at_once,
          a_failed_connection_makes_files_be_read_at_most_once_a_second,
          a_bad_token_file_keeps_the_old_token_and_warns_once,
          without_any_token_there_is_an_error_until_there_is_one,
          a_token_stands_in_for_a_missing_token_file,
          certificates_are_read_again_and_counted_apart,
          a_plugin_is_run_once_until_its_answer_expires,
          a_refusal_makes_the_plugin_run_but_not_twice_a_second,
          a_failing_plugin_is_not_run_for_each_call,
          an_answer_that_is_old_already_is_used_and_asked_for_again,
          a_token_wins_over_a_plugin, a_plugin_can_give_a_certificate,
          one_run_serves_all_threads, while_one_renews_the_others_use_the_old_one)
