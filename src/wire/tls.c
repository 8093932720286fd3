/* SPDX-License-Identifier: Apache-2.0 */

/*
 * TLS of a listener: loads and reloads its files, and verifies the client of a connection.
 *
 * libmicrohttpd sets its own, constant credentials in every session; tls_client_init
 * replaces them before the handshake.
 */

#include <arpa/inet.h>
#include <gnutls/x509.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "wire/tls_priv.h"

/* -- Files -- */

/* What is configured: the certificate, its key, and the authorities of each group. */
enum { CERT, KEY, CA, CONTENTS = CA + TLS_GROUPS };

/* Contents that come from files and are reloaded together: a part ends where the next one
 * begins. */
enum { PAIR, AUTHORITIES, PARTS };
static const int part_begin[PARTS + 1] = {CERT, CA, CA + TLS_OWN};

/* Credentials, shared by the sessions that began with them. */
struct tls_material {
    atomic_uint refs;
    gnutls_certificate_credentials_t cred;
    gnutls_x509_trust_list_t lists[TLS_GROUPS]; /* the CAs of each group, or NULL */
};

struct tls {
    const char *name;           /* strings are borrowed */
    const char *file[CONTENTS]; /* NULL: in memory, or there is none */
    struct tls_names groups[TLS_GROUPS];
    struct err last[PARTS]; /* of the last check; tls_refresh only */

    pthread_mutex_t lock; /* protects the fields below; held for a copy or a reading */
    int64_t rejected_ms;  /* time of the last log line about a rejected client */
    unsigned rejected;    /* clients rejected since then */
    struct tls_material *material;
    struct buf used[CONTENTS]; /* written by tls_refresh and tls_set only */
    struct err problem[PARTS]; /* of two checks; ERR_NONE: none */
    int64_t expires_s;         /* the certificate in use */
};

enum { FILE_MAX = 1 << 20, CHAIN_MAX = 16 };

static gnutls_datum_t datum(struct span s)
{
    return (gnutls_datum_t){(unsigned char *)(uintptr_t)s.p, (unsigned)s.n};
}

/* For messages. */
static const char *origin(const struct tls *t, int content)
{
    return t->file[content] ? t->file[content] : "in memory";
}

int tls_read_ca(const char *file, struct buf *pem, struct err *err)
{
    struct x509_info info;
    if (file_read(file, FILE_MAX, pem, err))
        return err_wrap(err, "CA file");
    if (x509_read(buf_span(pem), &info, err))
        return err_wrap(err, "CA file %s", file);
    return 0;
}

static void material_unref(struct tls_material *m)
{
    if (!m || atomic_fetch_sub(&m->refs, 1) > 1)
        return;
    gnutls_certificate_free_credentials(m->cred);
    for (int i = 0; i < TLS_GROUPS; i++)
        if (m->lists[i])
            gnutls_x509_trust_list_deinit(m->lists[i], 1);
    free(m);
}

/* The credentials name the authorities to the client; the list verifies it. */
static int add_group(struct tls_material *m, int group, struct span pem)
{
    gnutls_datum_t ca = datum(pem);
    int rc = gnutls_certificate_set_x509_trust_mem(m->cred, &ca, GNUTLS_X509_FMT_PEM);
    if (rc <= 0)
        return rc ? rc : GNUTLS_E_NO_CERTIFICATE_FOUND;
    if (gnutls_x509_trust_list_init(&m->lists[group], 0))
        abort();
    return gnutls_x509_trust_list_add_trust_mem(m->lists[group], &ca, NULL,
                                                GNUTLS_X509_FMT_PEM, 0, 0);
}

/* Makes the credentials of later connections, and keeps the contents. -1: something is
 * invalid, or has expired while the certificate in use has not; nothing changes. */
static int use(struct tls *t, const struct span now[CONTENTS], struct err *err)
{
    gnutls_datum_t cert = datum(now[CERT]), key = datum(now[KEY]);
    struct x509_info info;
    if (x509_read(now[CERT], &info, err))
        return err_wrap(err, "certificate %s", origin(t, CERT));
    int64_t now_s = clock_wall_ns() / 1000000000;
    if (info.expires_s <= now_s && t->expires_s > now_s)
        return err_set(err, ERR_INVALID, "certificate %s: has expired", origin(t, CERT));
    struct tls_material *m = xcalloc(1, sizeof *m), *old = m;
    atomic_init(&m->refs, 1);
    if (gnutls_certificate_allocate_credentials(&m->cred))
        abort();
    int rc = gnutls_certificate_set_x509_key_mem2(m->cred, &cert, &key,
                                                  GNUTLS_X509_FMT_PEM, NULL, 0);
    if (rc < 0)
        err_set(err, ERR_INVALID, "certificate %s with key %s: %s", origin(t, CERT),
                origin(t, KEY), gnutls_strerror(rc));
    for (int i = 0; rc >= 0 && i < TLS_GROUPS; i++)
        if (t->file[CA + i] || now[CA + i].n) {
            rc = add_group(m, i, now[CA + i]);
            if (rc < 0)
                err_set(err, ERR_INVALID, "CA file %s: %s", origin(t, CA + i),
                        gnutls_strerror(rc));
        }
    if (rc >= 0) {
        pthread_mutex_lock(&t->lock);
        old = t->material;
        t->material = m;
        t->expires_s = info.expires_s;
        for (int i = 0; i < CONTENTS; i++) {
            if (now[i].p == t->used[i].p)
                continue;
            buf_wipe(&t->used[i]);
            buf_reserve(&t->used[i],
                        now[i].n); /* a realloc would leave a copy of a key */
            buf_add_span(&t->used[i], now[i]);
        }
        pthread_mutex_unlock(&t->lock);
    }
    material_unref(old);
    return rc < 0 ? -1 : 0;
}

/* Checks the files of a part, and uses them if they have changed and are valid. */
static void refresh_part(struct tls *t, int part)
{
    struct buf read[CONTENTS] = {{0}};
    struct span now[CONTENTS];
    struct err why = {0};
    bool changed = false;
    int rc = 0;
    for (int i = 0; i < CONTENTS; i++)
        now[i] = buf_span(&t->used[i]);
    for (int i = part_begin[part]; i < part_begin[part + 1] && rc == 0; i++) {
        if (!t->file[i])
            continue;
        rc = file_read(t->file[i], FILE_MAX, &read[i], &why);
        now[i] = buf_span(&read[i]);
        changed |= !span_eq(now[i], buf_span(&t->used[i]));
    }
    if (rc == 0 && changed)
        rc = use(t, now, &why);
    if (!rc || !strcmp(t->last[part].msg, why.msg)) { /* the other file may follow */
        struct err *old = &t->problem[part];
        pthread_mutex_lock(&t->lock);
        bool is_new = why.code != old->code || strcmp(why.msg, old->msg);
        *old = why;
        pthread_mutex_unlock(&t->lock);
        if (is_new && why.code)
            log_error("tls", "reload: rejected the new files; still using the old ones",
                      LOG_S("listener", t->name), LOG_ERR(&why));
    }
    t->last[part] = why;
    if (rc == 0 && changed) {
        cleanup_buf struct buf until = {0};
        clock_format_s(&until, t->expires_s);
        log_info("tls", part == PAIR ? "certificate: reloaded" : "CA files: reloaded",
                 LOG_S("listener", t->name), LOG_SPAN("valid-until", buf_span(&until)));
    }
    for (int i = 0; i < CONTENTS; i++)
        buf_wipe(&read[i]);
}

void tls_refresh(struct tls *t)
{
    for (int i = 0; i < PARTS; i++)
        refresh_part(t, i);
}

int tls_set(struct tls *t, struct span cert_pem, struct span key_pem, struct span own_ca,
            struct err *err)
{
    struct span now[CONTENTS];
    for (int i = 0; i < CONTENTS; i++)
        now[i] = buf_span(&t->used[i]);
    now[CERT] = cert_pem;
    now[KEY] = key_pem;
    now[CA + TLS_OWN] = own_ca;
    return use(t, now, err);
}

void tls_report(struct tls *t, struct buf *out)
{
    int64_t now = clock_wall_ns() / 1000000000;
    pthread_mutex_lock(&t->lock);
    for (int i = 0; i < PARTS; i++)
        if (t->problem[i].code)
            buf_printf(out, "tls of %s: %s; still using the old files\n", t->name,
                       t->problem[i].msg);
    if (t->expires_s <= now) {
        buf_printf(out, "tls of %s: the certificate has expired at ", t->name);
        clock_format_s(out, t->expires_s);
        buf_addc(out, '\n');
    }
    pthread_mutex_unlock(&t->lock);
}

void tls_samples(struct tls *t, enum x509_metric metric,
                 const char *const names[1 + TLS_GROUPS], struct buf *out)
{
    pthread_mutex_lock(&t->lock);
    for (int i = 0; i <= TLS_GROUPS; i++)
        if (names[i])
            x509_sample(out, metric, names[i], buf_span(&t->used[i ? CA + i - 1 : CERT]),
                        i > 0);
    pthread_mutex_unlock(&t->lock);
}

void tls_copy_pair(struct tls *t, struct buf *cert_pem, struct buf *key_pem)
{
    pthread_mutex_lock(&t->lock);
    buf_add_span(cert_pem, buf_span(&t->used[CERT]));
    buf_reserve(key_pem, t->used[KEY].n); /* a later realloc would leave a copy */
    buf_add_span(key_pem, buf_span(&t->used[KEY]));
    pthread_mutex_unlock(&t->lock);
}

void tls_copy_own_ca(struct tls *t, struct buf *pem)
{
    pthread_mutex_lock(&t->lock);
    buf_add_span(pem, buf_span(&t->used[CA + TLS_OWN]));
    pthread_mutex_unlock(&t->lock);
}

struct tls *tls_new(const struct tls_config *config, struct err *err)
{
    struct tls *t = xcalloc(1, sizeof *t);
    struct span now[CONTENTS] = {{0}};
    int rc = 0;
    pthread_mutex_init(&t->lock, NULL);
    t->name = config->name;
    t->file[CERT] = config->cert_file;
    t->file[KEY] = config->key_file;
    for (int i = 0; i < TLS_GROUPS; i++) {
        t->groups[i] = config->groups[i];
        t->file[CA + i] = t->groups[i].ca_file;
    }
    now[CERT] = config->cert_pem;
    now[KEY] = config->key_pem;
    for (int i = 0; i < CONTENTS && rc == 0; i++)
        if (t->file[i]) {
            rc = file_read(t->file[i], FILE_MAX, &t->used[i], err);
            now[i] = buf_span(&t->used[i]);
        }
    if (rc || use(t, now, err)) {
        tls_free(t);
        return NULL;
    }
    return t;
}

void tls_free(struct tls *t)
{
    if (!t)
        return;
    material_unref(t->material);
    for (int i = 0; i < CONTENTS; i++)
        buf_wipe(&t->used[i]);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

void tls_client_fini(struct tls_client *client)
{
    material_unref(client->material);
    free(client->name);
    *client = (struct tls_client){0};
}

/* -- The client of a connection -- */

enum {
    NAME_MAX_BYTES = 512,
    REJECTED_LOG_MS = 10 * 1000,
    VERIFY = GNUTLS_PROFILE_TO_VFLAGS(GNUTLS_PROFILE_LOW), /* as for NORMAL sessions */
};

/* Gets a name of the certificate: 0 is its common name, the others are its alternative
 * names; empty for names that cannot be compared. False: there are no more. */
static bool get_name(gnutls_x509_crt_t crt, unsigned i, char name[NAME_MAX_BYTES + 1],
                     struct span *out)
{
    unsigned char ip[16];
    size_t n = NAME_MAX_BYTES;
    *out = (struct span){name, 0};
    if (i == 0) {
        if (gnutls_x509_crt_get_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, 0, name,
                                          &n) == 0 &&
            !memchr(name, '\0', n))
            out->n = n;
        return true;
    }
    int type = gnutls_x509_crt_get_subject_alt_name(crt, i - 1, name, &n, NULL);
    if (type == GNUTLS_SAN_DNSNAME || type == GNUTLS_SAN_URI ||
        type == GNUTLS_SAN_RFC822NAME) {
        out->n = n;
    } else if (type == GNUTLS_SAN_IPADDRESS && (n == 4 || n == 16)) {
        memcpy(ip, name, n);
        if (inet_ntop(n == 4 ? AF_INET : AF_INET6, ip, name, NAME_MAX_BYTES))
            out->n = strlen(name);
    }
    return type >= 0 || type == GNUTLS_E_SHORT_MEMORY_BUFFER;
}

static bool allows(const struct tls_names *group, gnutls_x509_crt_t crt)
{
    char bytes[NAME_MAX_BYTES + 1];
    struct span name;
    for (unsigned i = 0;
         (i == 0 || !group->common_name_only) && get_name(crt, i, bytes, &name); i++)
        for (size_t k = 0; k < group->n && name.n; k++)
            if (span_eq(span_of(group->names[k]), name))
                return true;
    return group->n == 0;
}

/* Verifies the client's certificate, and sets its name and the groups that trust it. NULL,
 * or the reason why it is rejected, new. */
static char *verify(struct tls_client *c, gnutls_x509_crt_t *chain, unsigned n)
{
    gnutls_typed_vdata_st for_clients = {.type = GNUTLS_DT_KEY_PURPOSE_OID,
                                         .data =
                                             (unsigned char *)GNUTLS_KP_TLS_WWW_CLIENT};
    bool is_trusted = false;
    unsigned status = GNUTLS_CERT_INVALID | GNUTLS_CERT_SIGNER_NOT_FOUND;
    for (int i = 0; i < TLS_GROUPS; i++) {
        unsigned wrong = 0;
        if (!c->material->lists[i] ||
            gnutls_x509_trust_list_verify_crt2(c->material->lists[i], chain, n,
                                               &for_clients, 1, VERIFY, &wrong, NULL) < 0)
            continue;
        if (!wrong && !c->name) {
            char bytes[NAME_MAX_BYTES + 1];
            struct span name = {0};
            for (unsigned k = 0; !name.n && get_name(chain[0], k, bytes, &name);)
                k++;
            c->name = name.n ? xmemdup0(name.p, name.n) : xstrdup("(no name)");
        }
        if (!(wrong & GNUTLS_CERT_SIGNER_NOT_FOUND))
            status = wrong;
        c->trusted[i] = !wrong && allows(&c->tls->groups[i], chain[0]);
        is_trusted |= c->trusted[i];
    }
    if (c->name)
        return is_trusted ? NULL : xstrdup("name is not allowed");
    gnutls_datum_t text = {0};
    gnutls_certificate_verification_status_print(status, GNUTLS_CRT_X509, &text, 0);
    struct span reason = span_trim((struct span){(char *)text.data, text.size});
    char *why = xmemdup0(reason.p, reason.n);
    gnutls_free(text.data);
    return why;
}

/* Called in the handshake, also without a client certificate. Never fails: a client
 * without a valid certificate is unauthenticated. */
static int on_verify(gnutls_session_t session)
{
    struct tls_client *c = gnutls_session_get_ptr(session);
    gnutls_x509_crt_t chain[CHAIN_MAX];
    unsigned n = 0, all = 0;
    int rc = 0;
    const gnutls_datum_t *certs = gnutls_certificate_get_peers(session, &all);
    for (; certs && n < all && n < CHAIN_MAX && rc == 0; n++) {
        gnutls_x509_crt_init(&chain[n]);
        rc = gnutls_x509_crt_import(chain[n], &certs[n], GNUTLS_X509_FMT_DER);
    }
    cleanup_free char *wrong = rc  ? xstrdup(gnutls_strerror(rc))
                               : n ? verify(c, chain, n)
                                   : NULL;
    if (wrong) {
        /* Rate-limited, because any client on the network can cause this line. */
        struct tls *t = c->tls;
        int64_t now = clock_mono_ms();
        pthread_mutex_lock(&t->lock);
        unsigned rejected = ++t->rejected;
        bool is_due = !t->rejected_ms || now - t->rejected_ms >= REJECTED_LOG_MS;
        if (is_due) {
            t->rejected_ms = now;
            t->rejected = 0;
        }
        pthread_mutex_unlock(&t->lock);
        if (is_due)
            log_warn("tls", "client certificate: rejected", LOG_S("listener", t->name),
                     LOG_S("reason", wrong), LOG_S("client", c->name ? c->name : ""),
                     LOG_I("rejected", rejected));
    }
    while (n)
        gnutls_x509_crt_deinit(chain[--n]);
    return 0;
}

/* Before each message of the handshake is sent. */
static int on_message(gnutls_session_t session, unsigned type, unsigned when,
                      unsigned incoming, const gnutls_datum_t *message)
{
    (void)when, (void)message;
    struct tls_client *c = gnutls_session_get_ptr(session);
    if (!incoming && (type == GNUTLS_HANDSHAKE_FINISHED ||
                      type == GNUTLS_HANDSHAKE_SERVER_HELLO_DONE ||
                      type == GNUTLS_HANDSHAKE_HELLO_RETRY_REQUEST))
        c->on_flight(c);
    return 0;
}

void tls_client_init(struct tls_client *c, struct tls *t, gnutls_session_t session,
                     void (*on_flight)(struct tls_client *client))
{
    bool requests = false;
    *c = (struct tls_client){.tls = t, .on_flight = on_flight};
    pthread_mutex_lock(&t->lock);
    c->material = t->material;
    atomic_fetch_add(&c->material->refs, 1);
    pthread_mutex_unlock(&t->lock);
    gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, c->material->cred);
    gnutls_session_set_ptr(session, c);
    gnutls_handshake_set_hook_function(session, GNUTLS_HANDSHAKE_ANY, GNUTLS_HOOK_PRE,
                                       on_message);
    for (int i = 0; i < TLS_GROUPS; i++)
        requests |= t->file[CA + i] || t->groups[i].n;
    if (!requests)
        return;
    gnutls_session_set_verify_function(session, on_verify);
    gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUEST);
}
