/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/certificate.h"

#include <time.h>

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

static json_t *encoded(const char *text)
{
    char *out = xcalloc(1, strlen(text) * 2 + 8);
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = (const unsigned char *)text;
    size_t n = strlen(text), at = 0;
    for (size_t i = 0; i < n; i += 3) {
        unsigned v = (unsigned)p[i] << 16 | (i + 1 < n ? (unsigned)p[i + 1] << 8 : 0) |
                     (i + 2 < n ? p[i + 2] : 0u);
        out[at++] = digits[v >> 18 & 63];
        out[at++] = digits[v >> 12 & 63];
        out[at++] = i + 1 < n ? digits[v >> 6 & 63] : '=';
        out[at++] = i + 2 < n ? digits[v & 63] : '=';
    }
    json_t *j = json_string(out);
    free(out);
    return j;
}

/* A Secret of these files; NULL: without that key. */
static json_t *secret_of(const char *ca, const char *cert, const char *key)
{
    static const char *const keys[] = {"ca.crt", "tls.crt", "tls.key"};
    const char *const names[] = {ca, cert, key};
    json_t *data = json_object();
    for (int i = 0; i < CLIENT_SECRET_FILES; i++) {
        cleanup_free char *text = names[i] ? pem(names[i]) : NULL;
        if (text)
            json_object_set_new(data, keys[i], encoded(text));
    }
    return json_pack("{so}", "data", data);
}

START_TEST(facts_of_certificates)
{
    cleanup_free char *ca = pem("ca.crt"), *next = pem("next.crt"),
                      *cert = pem("client.crt"), *key = pem("client.key"),
                      *other = pem("other.key");
    cleanup_free char *both = xasprintf("%s%s", ca, next);
    int64_t expires_s = 0;
    struct err err = {0};
    ck_assert_done(certificate_expiry(span_of(cert), &expires_s, &err), err);
    ck_assert_int_gt(expires_s, time(NULL));
    ck_assert_int_eq(certificate_expiry(SPAN("nonsense"), &expires_s, &err), -1);
    ck_assert_int_eq(certificate_expiry(SPAN(""), &expires_s, &err), -1);
    ck_assert(certificate_is_signed_by(span_of(cert), span_of(ca)));
    ck_assert(certificate_is_signed_by(span_of(cert), span_of(both)));
    ck_assert(!certificate_is_signed_by(span_of(cert), span_of(next)));
    ck_assert(!certificate_is_signed_by(span_of(cert), SPAN("")));
    ck_assert(certificate_has_key(span_of(cert), span_of(key)));
    ck_assert(!certificate_has_key(span_of(cert), span_of(other)));
    ck_assert(!certificate_has_key(span_of(cert), span_of(cert)));
    ck_assert(certificate_bundle_holds(span_of(both), span_of(ca)));
    ck_assert(!certificate_bundle_holds(span_of(ca), span_of(both)));
    ck_assert(!certificate_bundle_holds(span_of(ca), SPAN("")));
}
END_TEST

START_TEST(a_secret_is_complete_and_consistent)
{
    static const struct {
        const char *ca, *cert, *key, *why;
    } cases[] = {
        {"ca.crt", "client.crt", "client.key", NULL},
        {NULL, "client.crt", "client.key", "has no ca.crt"},
        {"ca.crt", NULL, "client.key", "has no tls.crt"},
        {"ca.crt", "client.crt", NULL, "has no tls.key"},
        {"ca.crt", "client.crt", "other.key", "tls.key is not the key of tls.crt"},
        {"next.crt", "client.crt", "client.key", "tls.crt is not signed by ca.crt"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_t *j = secret_of(cases[i].ca, cases[i].cert, cases[i].key);
        struct client_secret s;
        struct err err = {0};
        int rc = client_secret_read(j, &s, &err);
        ck_assert_msg((rc == 0) == !cases[i].why, "%zu: %s", i, err.msg);
        ck_assert_msg(!rc || strstr(err.msg, cases[i].why), "%s", err.msg);
        cleanup_free char *cert = pem("client.crt");
        if (rc == 0)
            ck_assert(span_eq(buf_span(&s.pem[CLIENT_SECRET_CERT]), span_of(cert)));
        client_secret_fini(&s);
        json_decref(j);
    }
    json_t *bad = json_pack("{s{ss}}", "data", "ca.crt", "!!");
    struct client_secret s;
    struct err err = {0};
    ck_assert_int_eq(client_secret_read(bad, &s, &err), -1);
    ck_assert_ptr_nonnull(strstr(err.msg, "ca.crt is not base64"));
    ck_assert_int_eq(client_secret_read(NULL, &s, &err), -1);
    json_decref(bad);
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
        json_t *j = secret_of(of_ca, crt, of);
        f.secret_read = true;
        ck_assert_done(client_secret_read(j, &f.secret, &err), err);
        json_decref(j);
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
    const TTest *const tests[] = {facts_of_certificates,
                                  a_secret_is_complete_and_consistent,
                                  findings_about_the_files_of_the_node};
    return unit_run_with("setup/certificate", tests, ARRAY_LEN(tests), 60,
                         &(struct unit_fixtures){.begin = begin, .end = end});
}
