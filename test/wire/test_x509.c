/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/x509.h"

#include "lib/temp.h"
#include "lib/tls.h"
#include "lib/unit.h"

/* Certificates that x509_make makes, read by x509_read and by the openssl program. */

enum { NOW_S = 1800000000, DAY_S = 86400 };

static const char *const server_names[] = {"a.test", "127.0.0.1", "::1", NULL};

static void make(const struct x509_spec *spec, const struct x509_pair *issuer,
                 struct x509_pair *out)
{
    struct err err = {0};
    *out = (struct x509_pair){{0}, {0}};
    ck_assert_msg(x509_make(spec, issuer, out, &err) == 0, "%s", err.msg);
}

static void make_ca(const char *name, struct x509_pair *out)
{
    make(&(struct x509_spec){.common_name = name,
                             .ca = true,
                             .begins_s = NOW_S,
                             .expires_s = NOW_S + 10 * DAY_S},
         NULL, out);
}

/* Two authorities of the same name, and a certificate of the first. */
static struct x509_pair ca, twin, leaf;

static void begin(void)
{
    make_ca("ca", &ca);
    make_ca("ca", &twin);
    make(&(struct x509_spec){.common_name = "leaf",
                             .names = server_names,
                             .server = true,
                             .begins_s = NOW_S - 5,
                             .expires_s = NOW_S + DAY_S},
         &ca, &leaf);
}

static void end(void)
{
    x509_pair_fini(&ca);
    x509_pair_fini(&twin);
    x509_pair_fini(&leaf);
}

static int read_pair(const struct x509_pair *pair, struct x509_info *info)
{
    return x509_read_pair(buf_span(&pair->cert), buf_span(&pair->key), info, NULL);
}

TEST(what_is_made_is_read)
{
    struct x509_info info;
    ck_assert_int_eq(read_pair(&ca, &info), 0);
    ck_assert(info.ca);
    ck_assert_int_eq(info.begins_s, NOW_S);
    ck_assert_int_eq(info.expires_s, NOW_S + 10 * DAY_S);
    ck_assert_int_eq(read_pair(&leaf, &info), 0);
    ck_assert(!info.ca);
    ck_assert_int_eq(info.begins_s, NOW_S - 5);
}

/* Of a chain the certificate that ends first, of authorities the last one. */
TEST(a_metric_has_the_end_and_the_lifetime_of_the_same_certificate)
{
    cleanup_buf struct buf chain = {0}, out = {0};
    buf_add_span(&chain, buf_span(&leaf.cert));
    buf_add_span(&chain, buf_span(&ca.cert));
    for (int i = 0; i < X509_N_METRICS; i++) {
        x509_sample(&out, i, "serving", buf_span(&chain), false);
        x509_sample(&out, i, "client-ca", buf_span(&chain), true);
        x509_sample(&out, i, "none", SPAN("x"), false);
    }
    ck_assert_str_eq(
        out.p,
        "gpushare_certificate_expiry_timestamp_seconds{certificate=\"serving\"} "
        "1800086400\n"
        "gpushare_certificate_expiry_timestamp_seconds{certificate=\"client-ca\"} "
        "1800864000\n"
        "gpushare_certificate_lifetime_seconds{certificate=\"serving\"} 86405\n"
        "gpushare_certificate_lifetime_seconds{certificate=\"client-ca\"} 864000\n");
}

TEST(issuers_are_told_apart)
{
    cleanup_buf struct buf both = {0};
    struct span pem = buf_span(&leaf.cert);
    x509_add_cas(&both, buf_span(&twin.cert), 9);
    x509_add_cas(&both, buf_span(&ca.cert), 9);
    ck_assert(x509_is_issued_by(pem, buf_span(&ca.cert)));
    ck_assert(x509_is_issued_by(pem, buf_span(&both)));
    ck_assert(!x509_is_issued_by(pem, buf_span(&twin.cert)));
    ck_assert(!x509_is_issued_by(pem, SPAN("")));
    ck_assert(!x509_is_issued_by(SPAN("x"), buf_span(&ca.cert)));
}

TEST(bundles_have_each_authority_once)
{
    cleanup_buf struct buf bundle = {0}, all = {0};
    buf_printf(&all, "%s%sa comment\n%s", leaf.cert.p, twin.cert.p, ca.cert.p);
    x509_add_cas(&bundle, SPAN("garbage"), 9);
    x509_add_cas(&bundle, (struct span){0}, 9);
    ck_assert_uint_eq(bundle.n, 0);
    x509_add_cas(&bundle, buf_span(&ca.cert), 9);
    x509_add_cas(&bundle, buf_span(&all), 9); /* no leaf, and the first once */
    ck_assert_uint_eq(bundle.n, ca.cert.n + twin.cert.n);
    ck_assert(span_starts(buf_span(&bundle), buf_span(&ca.cert)));
    buf_clear(&bundle);
    x509_add_cas(&bundle, buf_span(&all), 1);
    ck_assert_span_eq(buf_span(&bundle), twin.cert.p);
}

TEST(invalid_text_is_an_error)
{
    struct err err = {0};
    struct span pem = buf_span(&leaf.cert), key = buf_span(&leaf.key);
    const struct {
        struct span cert, key;
        const char *says;
    } cases[] = {
        {SPAN(""), key, "certificate: "},
        {SPAN("x"), key, "certificate: "},
        {{pem.p, pem.n / 2}, key, "certificate: "},
        {pem, SPAN(""), "private key: "},
        {pem, {0}, "private key: "},
        {pem, {key.p, key.n / 2}, "private key: "},
        {pem, pem, "private key: "},
        {pem, buf_span(&ca.key), "the private key belongs to another certificate"},
    };
    array_indices(i, cases) {
        ck_assert_int_eq(x509_read_pair(cases[i].cert, cases[i].key, NULL, &err), -1);
        ck_assert_msg(strstr(err.msg, cases[i].says) == err.msg, "%zu: %s", i, err.msg);
    }
    struct x509_pair none = {{0}, {0}};
    buf_clear(&ca.key);
    ck_assert_int_eq(x509_make(&(struct x509_spec){.common_name = "x"}, &ca, &none, &err),
                     -1);
    ck_assert_uint_eq(none.cert.n, 0);
}

/* Another implementation verifies them: the chain, the purposes, the time. */
TEST(openssl_accepts_them)
{
    char *dir = temp_dir();
    temp_write(dir, "made-ca.crt", ca.cert.p);
    temp_write(dir, "made.crt", leaf.cert.p);
    temp_write(dir, "made.key", leaf.key.p);
    static const char *const good[] = {"-purpose sslserver -verify_hostname a.test",
                                       "-purpose sslserver -verify_ip ::1"};
    static const char *const bad[] = {"-purpose sslclient",
                                      "-purpose sslserver -verify_hostname b.test"};
    for (size_t i = 0; i < 4; i++) {
        cleanup_free char *line = xasprintf(
            "cd %s && openssl verify -x509_strict -attime %d -CAfile made-ca.crt %s "
            "made.crt >openssl.log 2>&1",
            dir, NOW_S + 1, i < 2 ? good[i] : bad[i - 2]);
        ck_assert_msg((system(line) == 0) == (i < 2), "%s", line);
    }
    cleanup_free char *key =
        xasprintf("cd %s && openssl pkey -in made.key -noout -check >/dev/null", dir);
    ck_assert_int_eq(system(key), 0);
    temp_dir_remove(dir);
    free(dir);
}

UNIT_MAIN_AROUND(begin, end)
