/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/certificate.h"

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>

#include "base/mem.h"

enum { ID_MAX = 64 };

/* The certificates of a PEM text. */
struct list {
    gnutls_x509_crt_t *items;
    unsigned n;
};

static gnutls_datum_t datum(struct span s)
{
    return (gnutls_datum_t){(unsigned char *)s.p, (unsigned)s.n};
}

static void list_fini(struct list *l)
{
    for (unsigned i = 0; i < l->n; i++)
        gnutls_x509_crt_deinit(l->items[i]);
    gnutls_free(l->items);
    *l = (struct list){0};
}
#define cleanup_list __attribute__((cleanup(list_fini)))

/* The result of gnutls; on failure the list is empty. */
static int list_read(struct span pem, struct list *out)
{
    gnutls_datum_t data = datum(pem);
    int rc = pem.n ? gnutls_x509_crt_list_import2(&out->items, &out->n, &data,
                                                  GNUTLS_X509_FMT_PEM, 0)
                   : GNUTLS_E_NO_CERTIFICATE_FOUND;
    if (rc < 0)
        *out = (struct list){0};
    return rc;
}

int certificate_expiry(struct span cert, int64_t *expires_s, struct err *err)
{
    cleanup_list struct list chain = {0};
    int rc = list_read(cert, &chain);
    if (rc < 0)
        return err_set(err, ERR_INVALID, "not a certificate: %s", gnutls_strerror(rc));
    *expires_s = gnutls_x509_crt_get_expiration_time(chain.items[0]);
    return 0;
}

bool certificate_is_signed_by(struct span cert, struct span ca)
{
    cleanup_list struct list chain = {0}, authorities = {0};
    gnutls_x509_trust_list_t trusted;
    unsigned status = GNUTLS_CERT_INVALID;
    if (list_read(cert, &chain) < 0 || list_read(ca, &authorities) < 0 ||
        gnutls_x509_trust_list_init(&trusted, 0) < 0)
        return false;
    /* The list borrows the authorities. */
    int rc = gnutls_x509_trust_list_add_cas(trusted, authorities.items, authorities.n, 0);
    if (rc >= 0)
        rc = gnutls_x509_trust_list_verify_crt(
            trusted, chain.items, chain.n,
            GNUTLS_VERIFY_DISABLE_TIME_CHECKS | GNUTLS_VERIFY_DISABLE_TRUSTED_TIME_CHECKS,
            &status, NULL);
    gnutls_x509_trust_list_deinit(trusted, 0);
    return rc >= 0 && status == 0;
}

bool certificate_has_key(struct span cert, struct span key)
{
    cleanup_list struct list chain = {0};
    gnutls_datum_t data = datum(key);
    gnutls_x509_privkey_t private;
    unsigned char of_key[ID_MAX], of_cert[ID_MAX];
    size_t n = sizeof of_key, m = sizeof of_cert;
    if (!key.n || list_read(cert, &chain) < 0 || gnutls_x509_privkey_init(&private) < 0)
        return false;
    bool same =
        gnutls_x509_privkey_import2(private, &data, GNUTLS_X509_FMT_PEM, NULL, 0) >= 0 &&
        gnutls_x509_privkey_get_key_id(private, GNUTLS_KEYID_USE_SHA256, of_key, &n) >=
            0 &&
        gnutls_x509_crt_get_key_id(chain.items[0], GNUTLS_KEYID_USE_SHA256, of_cert,
                                   &m) >= 0 &&
        n == m && memcmp(of_key, of_cert, n) == 0;
    gnutls_x509_privkey_deinit(private);
    return same;
}

bool certificate_bundle_holds(struct span bundle, struct span ca)
{
    cleanup_list struct list in = {0}, wanted = {0};
    if (list_read(ca, &wanted) < 0 || list_read(bundle, &in) < 0)
        return false;
    for (unsigned i = 0; i < wanted.n; i++) {
        unsigned k = 0;
        while (k < in.n && !gnutls_x509_crt_equals(in.items[k], wanted.items[i]))
            k++;
        if (k == in.n)
            return false;
    }
    return true;
}
