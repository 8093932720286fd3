/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/client_priv.h"

#include "kube/fixture.h"

/* When tokens and certificates are reloaded. */

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
        ck_assert_int_eq(w.err.code, ERR_UNAVAILABLE); /* and no 404 */
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
    ck_assert_span_eq(buf_span(&w.c->config.ca_pem), ca);
    ck_assert_span_eq(buf_span(&w.c->config.cert_pem), cert);
    ck_assert_span_eq(buf_span(&w.c->config.key_pem), key);
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

UNIT_MAIN_AROUND(fixture_begin, fixture_end)
