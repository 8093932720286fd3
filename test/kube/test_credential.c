/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/credential_priv.h"

#include <stdlib.h>

#include "base/mem.h"
#include "kube/credential_fixture.h"

/* When tokens and certificates are reloaded. */

START_TEST(a_static_token_does_not_change)
{
    struct fixture *w = fixture_new();
    w->config.token = xstrdup("abc");
    start(w);
    check_get(w, T, "Bearer abc");
    ck_assert(!kube_credential_can_change(w->c));
    kube_credential_rejected(w->c, NULL);
    check_get(w, T, "Bearer abc");
    fixture_free(w);
}
END_TEST

START_TEST(no_credentials_are_an_identity_too)
{
    struct fixture *w = fixture_new();
    start(w);
    check_get(w, T, "(none)");
    ck_assert(!kube_credential_can_change(w->c));
    fixture_free(w);
}
END_TEST

static struct fixture *with_token_file(const char *token)
{
    struct fixture *w = fixture_new();
    w->config.token_file = temp_path(w->dir, "token");
    if (token)
        temp_write(w->dir, "token", token);
    start(w);
    return w;
}

START_TEST(a_token_file_is_reloaded_within_a_minute)
{
    struct fixture *w = with_token_file(" one\n");
    ck_assert(kube_credential_can_change(w->c));
    check_get(w, T, "Bearer one");
    temp_write(w->dir, "token", "two");
    check_get(w, T + 49999, "Bearer one");
    check_get(w, T + 50000, "Bearer two");
    temp_write(w->dir, "token", "three");
    check_get(w, T + 99999, "Bearer two");
    check_get(w, T + 100000, "Bearer three");
    fixture_free(w);
}
END_TEST

START_TEST(a_rejected_token_is_reloaded_at_once)
{
    struct fixture *w = with_token_file("one");
    struct kube_identity *old = kube_credential_get(w->c, T, &w->err);
    temp_write(w->dir, "token", "two");
    kube_credential_rejected(w->c, old);
    check_get(w, T, "Bearer two");
    temp_write(w->dir, "token", "three");
    kube_credential_rejected(w->c, old); /* the rejected version is not the latest */
    check_get(w, T + 2000, "Bearer two");
    kube_credential_rejected(w->c, NULL);
    check_get(w, T + 2000, "Bearer three");
    ck_assert_str_eq(old->authorization, "Bearer one"); /* still ours */
    kube_identity_free(old);
    fixture_free(w);
}
END_TEST

START_TEST(a_failed_connection_reloads_files_at_most_once_a_second)
{
    struct fixture *w = with_token_file("one");
    check_get(w, T, "Bearer one");
    temp_write(w->dir, "token", "two");
    kube_credential_connect_failed(w->c);
    check_get(w, T + 999, "Bearer one");
    check_get(w, T + 1000, "Bearer two");
    temp_write(w->dir, "token", "three");
    check_get(w, T + 2500, "Bearer two");
    fixture_free(w);
}
END_TEST

START_TEST(a_bad_token_file_keeps_the_old_token_and_warns_once)
{
    static const char *const bad[] = {"", " \n", "SECRET SECRET", "SECRET\nX: y", NULL};
    struct fixture *w = with_token_file("one");
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
    fixture_free(w);
}
END_TEST

START_TEST(a_missing_token_is_an_error_until_the_file_exists)
{
    struct fixture *w = with_token_file(NULL);
    for (int i = 0; i < 3; i++) {
        cleanup_free char *said = get(w, T);
        ck_assert_msg(strstr(said, "no token: ") == said && strstr(said, "No such file"),
                      "%s", said);
        ck_assert_int_eq(w->err.code, ERR_NOT_FOUND);
    }
    temp_write(w->dir, "token", "SEC RET");
    cleanup_free char *said = get(w, T);
    ck_assert(strstr(said, "expected printable ASCII") && !strstr(said, "SEC"));
    temp_write(w->dir, "token", "one");
    check_get(w, T, "Bearer one");
    fixture_free(w);
}
END_TEST

START_TEST(a_token_replaces_a_missing_token_file)
{
    struct fixture *w = fixture_new();
    w->config.token = xstrdup("fixed");
    w->config.token_file = temp_path(w->dir, "token");
    start(w);
    int old = catch_log(w);
    check_get(w, T, "Bearer fixed");
    cleanup_free char *log = log_caught(w, old);
    temp_write(w->dir, "token", "one");
    check_get(w, T + 50000, "Bearer one");
    fixture_free(w);
}
END_TEST

START_TEST(certificates_are_reloaded_with_their_own_version)
{
    struct fixture *w = fixture_new();
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
    ck_assert(strstr(more, "expected a PEM file") != NULL);
    ck_assert_ptr_null(strstr(more, "half"));
    kube_identity_free(a);
    kube_identity_free(b);
    kube_identity_free(c);
    kube_identity_free(d);
    fixture_free(w);
}
END_TEST

UNIT_MAIN("credential", a_static_token_does_not_change,
          no_credentials_are_an_identity_too, a_token_file_is_reloaded_within_a_minute,
          a_rejected_token_is_reloaded_at_once,
          a_failed_connection_reloads_files_at_most_once_a_second,
          a_bad_token_file_keeps_the_old_token_and_warns_once,
          a_missing_token_is_an_error_until_the_file_exists,
          a_token_replaces_a_missing_token_file,
          certificates_are_reloaded_with_their_own_version)
