/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include "kube/tls_secret.h"
#include "lib.h"
#include "lib/temp.h"
#include "lib/tls.h"
#include "setup/checks.h"

/*
 * The Secret of kube-scheduler's client certificate, and the findings about the files of
 * a node: one case each, with certificates of openssl.
 */

static char *dir;

static void begin(void)
{
    dir = temp_dir();
    tls_make_ca(dir, "ca");
    tls_make_ca(dir, "next");
    tls_make_cert(dir, "ca", "client", "DNS:gpushare-scheduler");
    tls_make_cert(dir, "ca", "newer", "DNS:gpushare-scheduler");
    tls_make_cert(dir, "next", "other", "DNS:gpushare-scheduler");
}

static void end(void)
{
    temp_dir_remove(dir);
    free(dir);
}

static char *pem(const char *name)
{
    return temp_read(dir, name);
}

/* A Secret of these files; NULL: without that key. New. */
static char *secret_of(const char *ca, const char *cert, const char *key)
{
    struct kube_tls_secret s = {0};
    static const enum kube_tls_key keys[] = {KUBE_TLS_CA, KUBE_TLS_CERT, KUBE_TLS_KEY};
    const char *const names[] = {ca, cert, key};
    struct buf out = {0};
    for (int i = 0; i < CLIENT_SECRET_FILES; i++) {
        cleanup_free char *text = names[i] ? pem(names[i]) : NULL;
        buf_adds(&s.data[keys[i]], text ? text : "");
    }
    kube_tls_secret_encode(&s, "kube-system", CLIENT_SECRET_NAME, &out);
    kube_tls_secret_fini(&s);
    return buf_take(&out);
}

START_TEST(a_secret_is_complete_and_consistent)
{
    static const struct {
        const char *ca, *cert, *key, *why;
    } cases[] = {
        {"ca.crt", "client.crt", "client.key", NULL},
        {NULL, "client.crt", "client.key", "has no ca.crt"},
        {"ca.crt", NULL, "client.key", "has no tls.crt"},
        {"ca.crt", "client.crt", NULL, "has no tls.key"},
        {"ca.crt", "client.crt", "other.key", "gpushare-scheduler-tls: "},
        {"next.crt", "client.crt", "client.key", "tls.crt is not signed by ca.crt"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_free char *j = secret_of(cases[i].ca, cases[i].cert, cases[i].key);
        struct client_secret s;
        struct err err = {0};
        int rc = client_secret_read(span_of(j), &s, &err);
        ck_assert_msg((rc == 0) == !cases[i].why, "%zu: %s", i, err.msg);
        ck_assert_msg(!rc || strstr(err.msg, cases[i].why), "%s", err.msg);
        cleanup_free char *cert = pem("client.crt");
        if (rc == 0)
            ck_assert(span_eq(buf_span(&s.pem[CLIENT_SECRET_CERT]), span_of(cert)));
        client_secret_fini(&s);
    }
    struct client_secret s;
    struct err err = {0};
    ck_assert_int_eq(client_secret_read(SPAN("{\"data\":{\"ca.crt\":\"!!\"}}"), &s, &err),
                     -1);
    ck_assert_ptr_nonnull(strstr(err.msg, "has no ca.crt"));
    ck_assert_int_eq(client_secret_read(SPAN("[]"), &s, &err), -1);
    ck_assert_int_eq(client_secret_read(SPAN(""), &s, &err), -1);
}
END_TEST

/* -- findings -- */

/* A node with these files, and the Secret of `in_secret` (a certificate of "ca"). */
static struct facts node(const char *ca, const char *cert, const char *key,
                         const char *in_secret)
{
    const char *const names[] = {ca, cert, key};
    struct facts f = {.now_s = time(NULL)};
    f.files = xcalloc(1, sizeof *f.files);
    f.n_files = 1;
    f.files[0] = lib_file("/m", lib_manifest("1.35", "config", CONFIG_AT));
    f.config = lib_file(CONFIG_AT, lib_read(CONFIG));
    for (int i = 0; i < CLIENT_SECRET_FILES; i++) {
        cleanup_free char *text = pem(names[i]);
        f.tls[i].path = xstrdup(client_secret_path((enum client_secret_file)i));
        buf_adds(&f.tls[i].bytes, text);
    }
    if (in_secret) {
        cleanup_free char *crt = xasprintf("%s.crt", in_secret),
                          *of = xasprintf("%s.key", in_secret);
        const char *of_ca = strcmp(in_secret, "other") ? "ca.crt" : "next.crt";
        struct err err = {0};
        cleanup_free char *j = secret_of(of_ca, crt, of);
        f.secret_read = true;
        ck_assert_done(client_secret_read(span_of(j), &f.secret, &err), err);
    }
    return f;
}

enum { DAY_S = 24 * 3600 };

START_TEST(findings_about_the_files_of_the_node)
{
    static const struct {
        const char *id, *ca, *cert, *key, *in_secret;
        int days; /* later */
    } cases[] = {
        {NULL, "ca.crt", "client.crt", "client.key", "client", 0},
        {NULL, "ca.crt", "client.crt", "client.key", NULL, 0},
        {"certificate-expiring", "ca.crt", "client.crt", "client.key", NULL, 40},
        {"certificate-expired", "ca.crt", "client.crt", "client.key", NULL, 61},
        {"certificate-key", "ca.crt", "client.crt", "newer.key", NULL, 0},
        {"certificate-malformed", "ca.crt", "client.key", "client.key", NULL, 0},
        {"certificate-other-ca", "ca.crt", "client.crt", "client.key", "other", 0},
        {"ca-outdated", "next.crt", "client.crt", "client.key", "client", 0},
        {"certificate-renewed", "ca.crt", "client.crt", "client.key", "newer", 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct facts f =
            node(cases[i].ca, cases[i].cert, cases[i].key, cases[i].in_secret);
        struct findings found = {0};
        cleanup_buf struct buf text = {0};
        const char *id = cases[i].id;
        f.now_s += (int64_t)cases[i].days * DAY_S;
        checks_config(&f, &found);
        findings_write(&found, &text);
        ck_assert_msg(!id || findings_has(&found, id), "no %s in: %s", id, text.p);
        bool note = id && !strcmp(id, "certificate-renewed");
        ck_assert_msg(findings_count(&found, FINDING_PROBLEM) == (id && !note), "%s: %s",
                      id ? id : "no problem", text.p);
        ck_assert_msg(!id || strstr(text.p, "scripts/install --renew"), "%s", text.p);
        ck_assert_msg(id || strstr(text.p, "client.crt is valid until 20"), "%s", text.p);
        findings_fini(&found);
        facts_fini(&f);
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {a_secret_is_complete_and_consistent,
                                  findings_about_the_files_of_the_node};
    return unit_run_with("setup/checks_certificate", tests, ARRAY_LEN(tests), 60,
                         &(struct unit_fixtures){.begin = begin, .end = end});
}
