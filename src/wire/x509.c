/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/x509.h"

#include <arpa/inet.h>
#include <gnutls/crypto.h>
#include <gnutls/x509.h>

#include "wire/tls.h"

enum { SERIAL_BYTES = 16, KEY_ID_BYTES = 64 };

void x509_pair_fini(struct x509_pair *pair)
{
    buf_fini(&pair->cert);
    tls_wipe(&pair->key);
}

static int fail(struct err *err, const char *what, int rc)
{
    return err_set(err, ERR_INVALID, "%s: %s", what, gnutls_strerror(rc));
}

static gnutls_datum_t datum(struct span s)
{
    return (gnutls_datum_t){(unsigned char *)s.p, (unsigned)s.n};
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

static int set_purposes(gnutls_x509_crt_t crt, const struct x509_spec *spec)
{
    int rc = spec->ca ? gnutls_x509_crt_set_basic_constraints(crt, 1, 0)
                      : gnutls_x509_crt_set_basic_constraints(crt, 0, -1);
    if (rc >= 0)
        rc = gnutls_x509_crt_set_key_usage(crt, spec->ca ? GNUTLS_KEY_KEY_CERT_SIGN |
                                                               GNUTLS_KEY_CRL_SIGN
                                                         : GNUTLS_KEY_DIGITAL_SIGNATURE);
    if (rc >= 0 && spec->server)
        rc = gnutls_x509_crt_set_key_purpose_oid(crt, GNUTLS_KP_TLS_WWW_SERVER, 0);
    if (rc >= 0 && spec->client)
        rc = gnutls_x509_crt_set_key_purpose_oid(crt, GNUTLS_KP_TLS_WWW_CLIENT, 0);
    return rc;
}

static int set_fields(gnutls_x509_crt_t crt, gnutls_x509_privkey_t key,
                      const struct x509_spec *spec)
{
    unsigned char serial[SERIAL_BYTES], id[KEY_ID_BYTES];
    size_t id_n = sizeof id;
    int rc = gnutls_rnd(GNUTLS_RND_NONCE, serial, sizeof serial);
    serial[0] = (serial[0] & 0x3f) | 0x40; /* positive, and of constant length */
    if (rc >= 0)
        rc = gnutls_x509_crt_set_version(crt, 3);
    if (rc >= 0)
        rc = gnutls_x509_crt_set_serial(crt, serial, sizeof serial);
    if (rc >= 0)
        rc = gnutls_x509_crt_set_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0,
                                           spec->common_name,
                                           (unsigned)strlen(spec->common_name));
    if (rc >= 0)
        rc = gnutls_x509_crt_set_activation_time(crt, (time_t)spec->begins_s);
    if (rc >= 0)
        rc = gnutls_x509_crt_set_expiration_time(crt, (time_t)spec->expires_s);
    if (rc >= 0)
        rc = gnutls_x509_crt_set_key(crt, key);
    if (rc >= 0)
        rc = gnutls_x509_crt_get_key_id(crt, GNUTLS_KEYID_USE_SHA1, id, &id_n);
    if (rc >= 0)
        rc = gnutls_x509_crt_set_subject_key_id(crt, id, id_n);
    for (size_t i = 0; rc >= 0 && spec->names && spec->names[i]; i++)
        rc = add_name(crt, spec->names[i]);
    return rc < 0 ? rc : set_purposes(crt, spec);
}

static int import_pair(struct span cert_pem, struct span key_pem, gnutls_x509_crt_t crt,
                       gnutls_x509_privkey_t key)
{
    gnutls_datum_t c = datum(cert_pem), k = datum(key_pem);
    int rc = gnutls_x509_crt_import(crt, &c, GNUTLS_X509_FMT_PEM);
    return rc < 0 ? rc
                  : gnutls_x509_privkey_import2(key, &k, GNUTLS_X509_FMT_PEM, NULL, 0);
}

static int set_authority(gnutls_x509_crt_t crt, gnutls_x509_crt_t issuer)
{
    unsigned char id[KEY_ID_BYTES];
    size_t n = sizeof id;
    int rc = gnutls_x509_crt_get_subject_key_id(issuer, id, &n, NULL);
    if (rc == GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE)
        return 0; /* an administrator's authority may have none */
    return rc < 0 ? rc : gnutls_x509_crt_set_authority_key_id(crt, id, n);
}

static int sign(gnutls_x509_crt_t crt, gnutls_x509_privkey_t key,
                const struct x509_pair *issuer)
{
    gnutls_x509_crt_t by = crt;
    gnutls_x509_privkey_t with = key;
    int rc = 0;
    if (issuer) {
        gnutls_x509_crt_init(&by);
        gnutls_x509_privkey_init(&with);
        rc = import_pair(buf_span(&issuer->cert), buf_span(&issuer->key), by, with);
    }
    if (rc >= 0)
        rc = set_authority(crt, by);
    if (rc >= 0)
        rc = gnutls_x509_crt_sign2(crt, by, with, GNUTLS_DIG_SHA256, 0);
    if (issuer) {
        gnutls_x509_crt_deinit(by);
        gnutls_x509_privkey_deinit(with);
    }
    return rc;
}

static int export_pair(gnutls_x509_crt_t crt, gnutls_x509_privkey_t key,
                       struct x509_pair *out)
{
    gnutls_datum_t c = {0}, k = {0};
    int rc = gnutls_x509_crt_export2(crt, GNUTLS_X509_FMT_PEM, &c);
    if (rc >= 0)
        rc = gnutls_x509_privkey_export2_pkcs8(key, GNUTLS_X509_FMT_PEM, NULL,
                                               GNUTLS_PKCS_PLAIN, &k);
    if (rc >= 0) {
        buf_add(&out->cert, c.data, c.size);
        buf_reserve(&out->key, k.size); /* a later realloc would leave a copy */
        buf_add(&out->key, k.data, k.size);
    }
    if (k.data)
        explicit_bzero(k.data, k.size);
    gnutls_free(k.data);
    gnutls_free(c.data);
    return rc;
}

int x509_make(const struct x509_spec *spec, const struct x509_pair *issuer,
              struct x509_pair *out, struct err *err)
{
    gnutls_x509_crt_t crt;
    gnutls_x509_privkey_t key;
    gnutls_x509_crt_init(&crt);
    gnutls_x509_privkey_init(&key);
    int rc = gnutls_x509_privkey_generate(
        key, GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0);
    if (rc >= 0)
        rc = set_fields(crt, key, spec);
    if (rc >= 0)
        rc = sign(crt, key, issuer);
    if (rc >= 0)
        rc = export_pair(crt, key, out);
    gnutls_x509_crt_deinit(crt);
    gnutls_x509_privkey_deinit(key);
    return rc < 0 ? fail(err, "cannot make a certificate", rc) : 0;
}

void x509_fingerprint(struct span bytes, char out[X509_FINGERPRINT])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char sum[32] = {0};
    gnutls_hash_fast(GNUTLS_DIG_SHA256, bytes.p ? bytes.p : "", bytes.n, sum);
    for (size_t i = 0; i < sizeof sum; i++) {
        out[2 * i] = digits[sum[i] >> 4];
        out[2 * i + 1] = digits[sum[i] & 15];
    }
    out[2 * sizeof sum] = '\0';
}
