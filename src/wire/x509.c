/* SPDX-License-Identifier: Apache-2.0 */

/*
 * X.509 certificates: made with new keys, and read.
 */

#include <arpa/inet.h>
#include <gnutls/crypto.h>
#include <gnutls/x509.h>
#include <stdlib.h>

#include "base/prom.h"
#include "wire/x509.h"

/* -- Read -- */

enum { CHAIN_MAX = 32 };

struct chain {
    gnutls_x509_crt_t crts[CHAIN_MAX];
    unsigned n;
};

static void must(int rc)
{
    if (rc < 0)
        abort(); /* out of memory, or of random bytes */
}

static gnutls_datum_t datum(struct span s)
{
    return (gnutls_datum_t){(unsigned char *)s.p, (unsigned)s.n};
}

/* At least one certificate, or a GnuTLS error. */
static int chain_read(struct chain *c, struct span pem)
{
    gnutls_datum_t data = datum(pem);
    c->n = CHAIN_MAX;
    int rc =
        pem.n ? gnutls_x509_crt_list_import(c->crts, &c->n, &data, GNUTLS_X509_FMT_PEM, 0)
              : GNUTLS_E_NO_CERTIFICATE_FOUND;
    c->n = rc > 0 ? (unsigned)rc : 0;
    return rc == 0 ? GNUTLS_E_NO_CERTIFICATE_FOUND : rc;
}

static void chain_fini(struct chain *c)
{
    while (c->n)
        gnutls_x509_crt_deinit(c->crts[--c->n]);
}

#define cleanup_chain __attribute__((cleanup(chain_fini)))

static bool is_ca(gnutls_x509_crt_t crt)
{
    unsigned critical;
    return gnutls_x509_crt_get_ca_status(crt, &critical) > 0;
}

static void describe(gnutls_x509_crt_t crt, struct x509_info *info)
{
    *info = (struct x509_info){
        .begins_s = gnutls_x509_crt_get_activation_time(crt),
        .expires_s = gnutls_x509_crt_get_expiration_time(crt),
        .ca = is_ca(crt),
    };
}

int x509_read(struct span cert_pem, struct x509_info *info, struct err *err)
{
    cleanup_chain struct chain c;
    int rc = chain_read(&c, cert_pem);
    if (rc < 0)
        return err_set(err, ERR_INVALID, "%s", gnutls_strerror(rc));
    describe(c.crts[0], info);
    return 0;
}

static const struct {
    const char *name, *help;
} x509_metrics[X509_N_METRICS] = {
    [X509_EXPIRY] = {"gpushare_certificate_expiry_timestamp_seconds",
                     "When a certificate that this process uses ends."},
    [X509_LIFETIME] = {"gpushare_certificate_lifetime_seconds",
                       "How long that certificate is valid in all."}};

void x509_family(struct buf *out, enum x509_metric metric)
{
    prom_family(out, x509_metrics[metric].name, PROM_GAUGE, x509_metrics[metric].help);
}

void x509_sample(struct buf *out, enum x509_metric metric, const char *certificate,
                 struct span pem, bool ca)
{
    cleanup_chain struct chain c;
    struct x509_info is, of;
    if (chain_read(&c, pem) < 0)
        return;
    describe(c.crts[0], &of);
    for (unsigned i = 1; i < c.n; i++) {
        describe(c.crts[i], &is);
        of = (is.expires_s > of.expires_s) == ca ? is : of;
    }
    prom_labelled(out, x509_metrics[metric].name, "certificate", certificate,
                  metric == X509_EXPIRY ? of.expires_s : of.expires_s - of.begins_s);
}

int x509_read_pair(struct span cert_pem, struct span key_pem, struct x509_info *info,
                   struct err *err)
{
    cleanup_chain struct chain c;
    gnutls_certificate_credentials_t pair;
    gnutls_datum_t cert = datum(cert_pem), key = datum(key_pem);
    int rc = chain_read(&c, cert_pem);
    if (rc < 0)
        return err_set(err, ERR_INVALID, "certificate: %s", gnutls_strerror(rc));
    must(gnutls_certificate_allocate_credentials(&pair));
    rc = gnutls_certificate_set_x509_key_mem(pair, &cert, &key, GNUTLS_X509_FMT_PEM);
    gnutls_certificate_free_credentials(pair);
    if (rc == GNUTLS_E_CERTIFICATE_KEY_MISMATCH)
        return err_set(err, ERR_INVALID,
                       "the private key belongs to another certificate");
    if (rc < 0)
        return err_set(err, ERR_INVALID, "private key: %s", gnutls_strerror(rc));
    if (info)
        describe(c.crts[0], info);
    return 0;
}

bool x509_is_issued_by(struct span cert_pem, struct span ca_pem)
{
    cleanup_chain struct chain leaf, cas = {0};
    gnutls_x509_trust_list_t list;
    unsigned status = GNUTLS_CERT_INVALID;
    if (chain_read(&leaf, cert_pem) < 0 || chain_read(&cas, ca_pem) < 0 ||
        gnutls_x509_trust_list_init(&list, 0))
        return false;
    gnutls_x509_trust_list_add_cas(list, cas.crts, cas.n, 0);
    int rc = gnutls_x509_trust_list_verify_crt(
        list, leaf.crts, leaf.n,
        GNUTLS_VERIFY_DISABLE_TIME_CHECKS | GNUTLS_VERIFY_DISABLE_TRUSTED_TIME_CHECKS,
        &status, NULL);
    gnutls_x509_trust_list_deinit(list, 0);
    return rc >= 0 && status == 0;
}

static bool contains(const struct chain *c, gnutls_x509_crt_t crt)
{
    for (unsigned i = 0; i < c->n; i++)
        if (gnutls_x509_crt_equals(c->crts[i], crt))
            return true;
    return false;
}

void x509_add_cas(struct buf *out, struct span pem, size_t max)
{
    cleanup_chain struct chain from;
    if (chain_read(&from, pem) < 0)
        return;
    for (unsigned i = 0; i < from.n; i++) {
        cleanup_chain struct chain known;
        gnutls_datum_t text = {0};
        chain_read(&known, buf_span(out));
        if (known.n >= max || !is_ca(from.crts[i]) || contains(&known, from.crts[i]) ||
            gnutls_x509_crt_export2(from.crts[i], GNUTLS_X509_FMT_PEM, &text) < 0)
            continue;
        buf_add(out, text.data, text.size);
        gnutls_free(text.data);
    }
}

/* -- Make -- */

enum { SERIAL_BYTES = 16, KEY_ID_BYTES = 64 };

void x509_pair_fini(struct x509_pair *pair)
{
    buf_fini(&pair->cert);
    buf_wipe(&pair->key);
}

static int add_name(gnutls_x509_crt_t crt, const char *name)
{
    unsigned char ip[16];
    unsigned n = inet_pton(AF_INET, name, ip) == 1    ? 4
                 : inet_pton(AF_INET6, name, ip) == 1 ? 16
                                                      : 0;
    return n ? gnutls_x509_crt_set_subject_alt_name(crt, GNUTLS_SAN_IPADDRESS, ip, n,
                                                    GNUTLS_FSAN_APPEND)
             : gnutls_x509_crt_set_subject_alt_name(crt, GNUTLS_SAN_DNSNAME, name,
                                                    (unsigned)strlen(name),
                                                    GNUTLS_FSAN_APPEND);
}

static int set_fields(gnutls_x509_crt_t crt, gnutls_x509_privkey_t key,
                      const struct x509_spec *spec)
{
    unsigned char serial[SERIAL_BYTES], id[KEY_ID_BYTES];
    size_t id_n = sizeof id;
    const unsigned usage = spec->ca ? GNUTLS_KEY_KEY_CERT_SIGN | GNUTLS_KEY_CRL_SIGN
                                    : GNUTLS_KEY_DIGITAL_SIGNATURE;
    must(gnutls_rnd(GNUTLS_RND_NONCE, serial, sizeof serial));
    serial[0] = (serial[0] & 0x3f) | 0x40; /* positive, and of constant length */
    must(gnutls_x509_crt_set_version(crt, 3));
    must(gnutls_x509_crt_set_serial(crt, serial, sizeof serial));
    must(gnutls_x509_crt_set_activation_time(crt, (time_t)spec->begins_s));
    must(gnutls_x509_crt_set_expiration_time(crt, (time_t)spec->expires_s));
    must(gnutls_x509_crt_set_key(crt, key));
    must(gnutls_x509_crt_get_key_id(crt, GNUTLS_KEYID_USE_SHA1, id, &id_n));
    must(gnutls_x509_crt_set_subject_key_id(crt, id, id_n));
    must(gnutls_x509_crt_set_basic_constraints(crt, spec->ca, spec->ca ? 0 : -1));
    must(gnutls_x509_crt_set_key_usage(crt, usage));
    if (spec->server)
        must(gnutls_x509_crt_set_key_purpose_oid(crt, GNUTLS_KP_TLS_WWW_SERVER, 0));
    if (spec->client)
        must(gnutls_x509_crt_set_key_purpose_oid(crt, GNUTLS_KP_TLS_WWW_CLIENT, 0));
    int rc = gnutls_x509_crt_set_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0,
                                           spec->common_name,
                                           (unsigned)strlen(spec->common_name));
    for (size_t i = 0; rc >= 0 && spec->names && spec->names[i]; i++)
        rc = add_name(crt, spec->names[i]);
    return rc;
}

/* `with` is the key of `by`, which may be `crt` itself. */
static int sign(gnutls_x509_crt_t crt, gnutls_x509_crt_t by, gnutls_x509_privkey_t with)
{
    unsigned char id[KEY_ID_BYTES];
    size_t n = sizeof id;
    int rc = gnutls_x509_crt_get_subject_key_id(by, id, &n, NULL);
    if (rc >= 0)
        rc = gnutls_x509_crt_set_authority_key_id(crt, id, n);
    else if (rc == GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE)
        rc = 0; /* an administrator's authority may have none */
    return rc < 0 ? rc : gnutls_x509_crt_sign2(crt, by, with, GNUTLS_DIG_SHA256, 0);
}

static int sign_by(gnutls_x509_crt_t crt, const struct x509_pair *issuer)
{
    gnutls_x509_crt_t by;
    gnutls_x509_privkey_t with;
    gnutls_datum_t cert = datum(buf_span(&issuer->cert)),
                   key = datum(buf_span(&issuer->key));
    must(gnutls_x509_crt_init(&by));
    must(gnutls_x509_privkey_init(&with));
    int rc = gnutls_x509_crt_import(by, &cert, GNUTLS_X509_FMT_PEM);
    if (rc >= 0)
        rc = gnutls_x509_privkey_import2(with, &key, GNUTLS_X509_FMT_PEM, NULL, 0);
    if (rc >= 0)
        rc = sign(crt, by, with);
    gnutls_x509_crt_deinit(by);
    gnutls_x509_privkey_deinit(with);
    return rc;
}

int x509_make(const struct x509_spec *spec, const struct x509_pair *issuer,
              struct x509_pair *out, struct err *err)
{
    gnutls_x509_crt_t crt;
    gnutls_x509_privkey_t key;
    must(gnutls_x509_crt_init(&crt));
    must(gnutls_x509_privkey_init(&key));
    must(gnutls_x509_privkey_generate(
        key, GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0));
    int rc = set_fields(crt, key, spec);
    if (rc >= 0)
        rc = issuer ? sign_by(crt, issuer) : sign(crt, crt, key);
    if (rc >= 0) {
        gnutls_datum_t c, k;
        must(gnutls_x509_crt_export2(crt, GNUTLS_X509_FMT_PEM, &c));
        must(gnutls_x509_privkey_export2_pkcs8(key, GNUTLS_X509_FMT_PEM, NULL,
                                               GNUTLS_PKCS_PLAIN, &k));
        buf_add(&out->cert, c.data, c.size);
        buf_reserve(&out->key, k.size); /* a later realloc would leave a copy */
        buf_add(&out->key, k.data, k.size);
        explicit_bzero(k.data, k.size);
        gnutls_free(k.data);
        gnutls_free(c.data);
    }
    gnutls_x509_crt_deinit(crt);
    gnutls_x509_privkey_deinit(key);
    return rc < 0 ? err_set(err, ERR_INVALID, "cannot make a certificate: %s",
                            gnutls_strerror(rc))
                  : 0;
}
