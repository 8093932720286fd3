/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <gnutls/x509.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "wire/tls_priv.h"

enum {
    NAME_MAX_BYTES = 512,
    CHAIN_MAX = 16,
    REJECTED_LOG_MS = 10 * 1000,
};

/* Rate-limited, because any client on the network can cause this line. */
static void log_rejected(struct tls *t, const char *why, const char *name)
{
    int64_t now = clock_mono_ms();
    long long before = atomic_load(&t->rejected_ms);
    unsigned n = atomic_fetch_add(&t->rejected, 1) + 1;
    if (before && now - before < REJECTED_LOG_MS)
        return;
    if (!atomic_compare_exchange_strong(&t->rejected_ms, &before, now))
        return;
    atomic_fetch_sub(&t->rejected, n);
    log_warn("tls", "client certificate: rejected", LOG_S("listener", t->conf.name),
             LOG_S("reason", why), LOG_S("client", name ? name : ""),
             LOG_I("rejected", n));
}

static bool is_listed(const struct tls_config *conf, const char *name, size_t n)
{
    for (size_t i = 0; i < conf->n_client_names; i++)
        if (span_eq(span_of(conf->client_names[i]), (struct span){name, n}))
            return true;
    return false;
}

/* Converts an IP address of 4 or 16 bytes to text, in place; keeps other values. */
static size_t ip_text(char *name, size_t n)
{
    unsigned char ip[16];
    if (n != 4 && n != 16)
        return n;
    memcpy(ip, name, n);
    return inet_ntop(n == 4 ? AF_INET : AF_INET6, ip, name, NAME_MAX_BYTES) ? strlen(name)
                                                                            : n;
}

/* Whether a subject alternative name is allowed; *first is set to the first one if it is
 * NULL. */
static bool alternative_is_listed(const struct tls_config *conf, gnutls_x509_crt_t crt,
                                  char **first)
{
    bool listed = false;
    for (unsigned i = 0;; i++) {
        char name[NAME_MAX_BYTES + 1];
        size_t n = NAME_MAX_BYTES;
        int type = gnutls_x509_crt_get_subject_alt_name(crt, i, name, &n, NULL);
        if (type == GNUTLS_E_SHORT_MEMORY_BUFFER)
            continue;
        if (type < 0)
            return listed;
        if (type == GNUTLS_SAN_IPADDRESS)
            n = ip_text(name, n);
        else if (type != GNUTLS_SAN_DNSNAME && type != GNUTLS_SAN_URI &&
                 type != GNUTLS_SAN_RFC822NAME)
            continue;
        if (!*first)
            *first = xmemdup0(name, n);
        listed |= is_listed(conf, name, n);
    }
}

static bool is_own_name(const struct tls_config *conf, const char *name)
{
    for (size_t i = 0; i < conf->n_own_names; i++)
        if (strcmp(conf->own_names[i], name) == 0)
            return true;
    return false;
}

/* Sets the client's name. A common name with a NUL is ignored. *own: whether the common
 * name is one of own_names. Returns whether a name is one of client_names. */
static bool set_name(struct tls_client *c, gnutls_x509_crt_t crt, bool *own)
{
    const struct tls_config *conf = &c->tls->conf;
    char name[NAME_MAX_BYTES + 1];
    size_t n = NAME_MAX_BYTES;
    bool listed = conf->n_client_names == 0;
    if (gnutls_x509_crt_get_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, 0, name, &n) ==
            0 &&
        !memchr(name, '\0', n)) {
        c->name = xmemdup0(name, n);
        listed |= is_listed(conf, name, n);
        *own = is_own_name(conf, c->name);
    }
    if (!conf->common_name_only)
        listed |= alternative_is_listed(conf, crt, &c->name);
    if (!c->name)
        c->name = xstrdup("(no name)");
    return listed;
}

/* Whether a CA of the list verifies the chain. */
static bool is_of(gnutls_x509_trust_list_t list, gnutls_x509_crt_t *chain, unsigned n)
{
    unsigned status = 0;
    return list &&
           gnutls_x509_trust_list_verify_crt(list, chain, n, 0, &status, NULL) >= 0 &&
           status == 0;
}

/* Finds the groups that verify the valid certificate and allow its name. */
static void set_trust(struct tls_client *c, gnutls_x509_crt_t *chain, unsigned n)
{
    bool allowed[TLS_GROUPS] = {[TLS_SECOND] = true};
    allowed[TLS_FIRST] = set_name(c, chain[0], &allowed[TLS_OWN]);
    for (int i = 0; i < TLS_GROUPS; i++)
        c->trusted[i] = allowed[i] && is_of(c->material->lists[i], chain, n);
}

/* Verifies the client's certificate. NULL: it is valid, and name and trust are set; else
 * the reason, new. */
static char *verify(struct tls_client *c, gnutls_session_t session)
{
    gnutls_typed_vdata_st for_clients = {.type = GNUTLS_DT_KEY_PURPOSE_OID,
                                         .data =
                                             (unsigned char *)GNUTLS_KP_TLS_WWW_CLIENT};
    unsigned status = 0, n = 0;
    const gnutls_datum_t *chain = gnutls_certificate_get_peers(session, &n);
    if (!chain || !n)
        return xstrdup("no certificate");
    int rc = gnutls_certificate_verify_peers(session, &for_clients, 1, &status);
    if (rc < 0)
        return xstrdup(gnutls_strerror(rc));
    if (status) {
        gnutls_datum_t text = {0};
        gnutls_certificate_verification_status_print(status, GNUTLS_CRT_X509, &text, 0);
        struct span reason = span_trim((struct span){(char *)text.data, text.size});
        char *why = xmemdup0(reason.p, reason.n);
        gnutls_free(text.data);
        return why;
    }
    gnutls_x509_crt_t crts[CHAIN_MAX];
    unsigned known = 0;
    for (rc = 0; known < n && known < CHAIN_MAX && rc == 0; known += rc == 0) {
        gnutls_x509_crt_init(&crts[known]);
        rc = gnutls_x509_crt_import(crts[known], &chain[known], GNUTLS_X509_FMT_DER);
        if (rc)
            gnutls_x509_crt_deinit(crts[known]);
    }
    if (rc == 0)
        set_trust(c, crts, known);
    while (known)
        gnutls_x509_crt_deinit(crts[--known]);
    return rc == 0 ? NULL : xstrdup(gnutls_strerror(rc));
}

/* Called in the handshake, also without a client certificate. Never fails: a client
 * without a valid certificate is unauthenticated. */
static int on_verify(gnutls_session_t session)
{
    struct tls_client *c = gnutls_session_get_ptr(session);
    if (!gnutls_certificate_get_peers(session, &(unsigned){0}))
        return 0;
    cleanup_free char *wrong = verify(c, session);
    if (wrong)
        log_rejected(c->tls, wrong, c->name);
    else if (!c->trusted[TLS_FIRST] && !c->trusted[TLS_SECOND] && !c->trusted[TLS_OWN])
        log_rejected(c->tls, "name is not allowed", c->name);
    return 0;
}

void tls_client_init(struct tls_client *c, struct tls *t, gnutls_session_t session)
{
    *c = (struct tls_client){.tls = t};
    pthread_mutex_lock(&t->lock);
    c->material = t->material;
    atomic_fetch_add(&c->material->refs, 1);
    pthread_mutex_unlock(&t->lock);
    gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, c->material->cred);
    gnutls_session_set_ptr(session, c);
    if (!tls_requests_cert(&t->conf))
        return;
    gnutls_session_set_verify_function(session, on_verify);
    gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUEST);
}
