/* SPDX-License-Identifier: Apache-2.0 */
#include <gnutls/x509.h>

#include "wire/x509.h"

enum { CHAIN_MAX = 32 };

struct chain {
    gnutls_x509_crt_t crts[CHAIN_MAX];
    unsigned n;
};

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

/* Whether the extended key usage has the purpose; a certificate without that extension
 * has every purpose. */
static bool has_purpose(gnutls_x509_crt_t crt, const char *wanted)
{
    for (unsigned i = 0;; i++) {
        char oid[128];
        size_t n = sizeof oid;
        int rc = gnutls_x509_crt_get_key_purpose_oid(crt, i, oid, &n, NULL);
        if (rc == GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE)
            return i == 0;
        if (rc == 0 && (strcmp(oid, wanted) == 0 || strcmp(oid, GNUTLS_KP_ANY) == 0))
            return true;
        if (rc < 0 && rc != GNUTLS_E_SHORT_MEMORY_BUFFER)
            return false;
    }
}

static bool is_ca(gnutls_x509_crt_t crt)
{
    unsigned critical;
    return gnutls_x509_crt_get_ca_status(crt, &critical) > 0;
}

static void describe(gnutls_x509_crt_t crt, struct x509_info *info)
{
    size_t n = sizeof info->common_name;
    *info = (struct x509_info){
        .begins_s = gnutls_x509_crt_get_activation_time(crt),
        .expires_s = gnutls_x509_crt_get_expiration_time(crt),
        .ca = is_ca(crt),
        .server = has_purpose(crt, GNUTLS_KP_TLS_WWW_SERVER),
        .client = has_purpose(crt, GNUTLS_KP_TLS_WWW_CLIENT),
    };
    if (gnutls_x509_crt_get_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, 0,
                                      info->common_name, &n) < 0)
        info->common_name[0] = '\0';
}

int x509_read(struct span cert_pem, struct x509_info *info, struct err *err)
{
    cleanup_chain struct chain c;
    int rc = chain_read(&c, cert_pem);
    if (rc < 0)
        return err_set(err, ERR_INVALID, "certificate: %s", gnutls_strerror(rc));
    describe(c.crts[0], info);
    return 0;
}

/* The key's identifier, which depends on its public half only. */
static bool same_key(gnutls_x509_crt_t crt, gnutls_x509_privkey_t key)
{
    unsigned char a[64], b[64];
    size_t a_n = sizeof a, b_n = sizeof b;
    return gnutls_x509_crt_get_key_id(crt, GNUTLS_KEYID_USE_SHA256, a, &a_n) == 0 &&
           gnutls_x509_privkey_get_key_id(key, GNUTLS_KEYID_USE_SHA256, b, &b_n) == 0 &&
           a_n == b_n && memcmp(a, b, a_n) == 0;
}

int x509_read_pair(struct span cert_pem, struct span key_pem, struct x509_info *info,
                   struct err *err)
{
    cleanup_chain struct chain c;
    gnutls_x509_privkey_t key;
    gnutls_datum_t data = datum(key_pem);
    int rc = chain_read(&c, cert_pem);
    if (rc < 0)
        return err_set(err, ERR_INVALID, "certificate: %s", gnutls_strerror(rc));
    gnutls_x509_privkey_init(&key);
    rc = key_pem.n ? gnutls_x509_privkey_import2(key, &data, GNUTLS_X509_FMT_PEM, NULL, 0)
                   : GNUTLS_E_BASE64_DECODING_ERROR;
    bool same = rc >= 0 && same_key(c.crts[0], key);
    gnutls_x509_privkey_deinit(key);
    if (rc < 0)
        return err_set(err, ERR_INVALID, "private key: %s", gnutls_strerror(rc));
    if (!same)
        return err_set(err, ERR_INVALID,
                       "the private key belongs to another certificate");
    if (info)
        describe(c.crts[0], info);
    return 0;
}

bool x509_has_name(struct span cert_pem, const char *name)
{
    cleanup_chain struct chain c;
    return chain_read(&c, cert_pem) > 0 &&
           gnutls_x509_crt_check_hostname(c.crts[0], name) != 0;
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

int64_t x509_newest_ca_s(struct span pem)
{
    cleanup_chain struct chain all;
    int64_t newest_s = 0;
    chain_read(&all, pem);
    for (unsigned i = 0; i < all.n; i++) {
        int64_t begins_s = gnutls_x509_crt_get_activation_time(all.crts[i]);
        if (is_ca(all.crts[i]) && begins_s > newest_s)
            newest_s = begins_s;
    }
    return newest_s;
}
