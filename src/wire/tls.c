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
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "wire/tls_priv.h"
#include "wire/x509.h"

/* -- Files -- */

/* Credentials, shared by the sessions that began with them. */
struct tls_material {
    atomic_uint refs;
    gnutls_certificate_credentials_t cred;
    gnutls_x509_trust_list_t lists[TLS_GROUPS]; /* the CAs of each group, or NULL */
};

/* Two files that are reloaded together. */
struct tls_part {
    struct buf used[2]; /* content in use */
    struct buf seen[2]; /* content at the last check, if it is invalid */
    unsigned checks;    /* consecutive checks that found `seen` */
    struct err problem; /* code ERR_NONE: none, or not confirmed */
};

struct tls {
    struct tls_config conf; /* its strings are in `texts` */
    struct arena texts;

    pthread_mutex_t lock; /* protects the fields below; held for a copy */
    int64_t rejected_ms;  /* time of the last log line about a rejected client */
    unsigned rejected;    /* clients rejected since then */
    struct tls_material *material;
    struct tls_part pair, ca; /* written by tls_refresh and tls_set only */
    struct buf own_ca;        /* written by tls_set only */
    int64_t expires_s;        /* the certificate in use */
};

enum {
    FILE_MAX = 1 << 20,
    CHAIN_MAX = 16,
    CONFIRMATIONS = 2, /* checks that find the same invalid files before it is reported */
};

static gnutls_datum_t datum(const struct buf *b)
{
    return (gnutls_datum_t){(unsigned char *)b->p, (unsigned)b->n};
}

/* For messages. */
static const char *origin(const char *file)
{
    return file ? file : "in memory";
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

/* The credentials verify a client; the list tells which group has verified it. */
static int add_group(struct tls_material *m, int group, const char *file,
                     const struct buf *pem, struct err *err)
{
    gnutls_datum_t ca = datum(pem);
    int rc = gnutls_certificate_set_x509_trust_mem(m->cred, &ca, GNUTLS_X509_FMT_PEM);
    if (rc <= 0)
        return err_set(err, ERR_INVALID, "CA file %s: %s", file,
                       rc ? gnutls_strerror(rc) : "no certificate found");
    if (gnutls_x509_trust_list_init(&m->lists[group], 0))
        abort();
    gnutls_x509_trust_list_add_trust_mem(m->lists[group], &ca, NULL, GNUTLS_X509_FMT_PEM,
                                         0, 0);
    return 0;
}

/* Makes the credentials of later connections. -1: something is invalid, or has expired
 * while the certificate in use has not; nothing changes. */
static int use(struct tls *t, const struct buf pair[2], const struct buf ca[2],
               const struct buf *own_ca, struct err *err)
{
    const struct tls_config *c = &t->conf;
    const char *cert_file = origin(c->cert_file);
    int64_t now = clock_wall_ns() / 1000000000;
    gnutls_datum_t cert = datum(&pair[0]), key = datum(&pair[1]);
    struct x509_info info;
    if (x509_read(buf_span(&pair[0]), &info, err))
        return err_wrap(err, "certificate %s", cert_file);
    if (info.expires_s <= now && t->expires_s > now)
        return err_set(err, ERR_INVALID, "certificate %s: has expired", cert_file);
    struct tls_material *m = xcalloc(1, sizeof *m), *old = m;
    atomic_init(&m->refs, 1);
    if (gnutls_certificate_allocate_credentials(&m->cred))
        abort();
    int rc = gnutls_certificate_set_x509_key_mem2(m->cred, &cert, &key,
                                                  GNUTLS_X509_FMT_PEM, NULL, 0);
    if (rc < 0)
        err_set(err, ERR_INVALID, "certificate %s with key %s: %s", cert_file,
                origin(c->key_file), gnutls_strerror(rc));
    if (rc >= 0 && c->client_ca_file)
        rc = add_group(m, TLS_FIRST, c->client_ca_file, &ca[0], err);
    if (rc >= 0 && c->secondary_ca_file)
        rc = add_group(m, TLS_SECOND, c->secondary_ca_file, &ca[1], err);
    if (rc >= 0 && own_ca->n)
        rc = add_group(m, TLS_OWN, origin(NULL), own_ca, err);
    if (rc >= 0) {
        pthread_mutex_lock(&t->lock);
        old = t->material;
        t->material = m;
        t->expires_s = info.expires_s;
        pthread_mutex_unlock(&t->lock);
    }
    material_unref(old);
    return rc < 0 ? -1 : 0;
}

static int read_part(const struct tls *t, bool pair, struct buf now[2], struct err *err)
{
    const struct tls_config *c = &t->conf;
    const char *files[2] = {pair ? c->cert_file : c->client_ca_file,
                            pair ? c->key_file : c->secondary_ca_file};
    for (int i = 0; i < 2; i++)
        if (files[i] && file_read(files[i], FILE_MAX, &now[i], err))
            return -1;
    return 0;
}

static bool same(const struct buf a[2], const struct buf b[2])
{
    return span_eq(buf_span(&a[0]), buf_span(&b[0])) &&
           span_eq(buf_span(&a[1]), buf_span(&b[1]));
}

static void move(struct buf to[2], struct buf from[2])
{
    for (int i = 0; i < 2; i++) {
        buf_wipe(&to[i]);
        to[i] = from[i];
        from[i] = (struct buf){0};
    }
}

static void set_problem(struct tls *t, struct tls_part *part, const struct err *why)
{
    pthread_mutex_lock(&t->lock);
    bool changed = why->code != part->problem.code || strcmp(why->msg, part->problem.msg);
    part->problem = *why;
    pthread_mutex_unlock(&t->lock);
    if (changed && why->code)
        log_error("tls", "reload: rejected the new files; still using the old ones",
                  LOG_S("listener", t->conf.name), LOG_ERR(why));
}

/* Checks the files of a part, and uses them if they have changed and are valid. */
static void refresh_part(struct tls *t, struct tls_part *part)
{
    bool is_pair = part == &t->pair;
    struct buf now[2] = {0};
    struct err why = {0};
    int rc = read_part(t, is_pair, now, &why);
    if (rc) { /* compare the error message instead of the bytes */
        buf_wipe(&now[1]);
        buf_clear(&now[0]);
        buf_adds(&now[0], why.msg);
    } else if (!same(now, part->used)) {
        rc = use(t, is_pair ? now : t->pair.used, is_pair ? t->ca.used : now, &t->own_ca,
                 &why);
    }
    if (rc) {
        part->checks = part->checks && same(now, part->seen) ? part->checks + 1 : 1;
        move(part->seen, now);
        if (part->checks >= CONFIRMATIONS)
            set_problem(t, part, &why);
        return;
    }
    set_problem(t, part, &why);
    part->checks = 0;
    if (!same(now, part->used)) {
        cleanup_buf struct buf until = {0};
        clock_format_s(&until, t->expires_s);
        log_info("tls", is_pair ? "certificate: reloaded" : "CA files: reloaded",
                 LOG_S("listener", t->conf.name),
                 LOG_SPAN("valid-until", buf_span(&until)));
    }
    pthread_mutex_lock(&t->lock);
    move(part->used, now);
    pthread_mutex_unlock(&t->lock);
}

void tls_refresh(struct tls *t)
{
    if (t->conf.cert_file)
        refresh_part(t, &t->pair);
    if (t->conf.client_ca_file || t->conf.secondary_ca_file)
        refresh_part(t, &t->ca);
}

int tls_set(struct tls *t, struct span cert_pem, struct span key_pem, struct span own_ca,
            struct err *err)
{
    struct buf pair[2] = {{0}}, ca = {0};
    buf_reserve(&pair[1], key_pem.n); /* a later realloc would leave a copy */
    buf_add_span(&pair[0], cert_pem);
    buf_add_span(&pair[1], key_pem);
    buf_add_span(&ca, own_ca);
    int rc = use(t, pair, t->ca.used, &ca, err);
    if (rc == 0) {
        pthread_mutex_lock(&t->lock);
        move(t->pair.used, pair);
        buf_fini(&t->own_ca);
        t->own_ca = ca;
        ca = (struct buf){0};
        pthread_mutex_unlock(&t->lock);
    }
    buf_wipe(&pair[0]);
    buf_wipe(&pair[1]);
    buf_fini(&ca);
    return rc;
}

void tls_report(struct tls *t, struct buf *out)
{
    int64_t now = clock_wall_ns() / 1000000000;
    pthread_mutex_lock(&t->lock);
    const struct tls_part *parts[] = {&t->pair, &t->ca};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (parts[i]->problem.code)
            buf_printf(out, "tls of %s: %s; still using the old files\n", t->conf.name,
                       parts[i]->problem.msg);
    if (t->expires_s <= now) {
        buf_printf(out, "tls of %s: the certificate has expired at ", t->conf.name);
        clock_format_s(out, t->expires_s);
        buf_addc(out, '\n');
    }
    pthread_mutex_unlock(&t->lock);
}

void tls_copy_pair(struct tls *t, struct buf *cert_pem, struct buf *key_pem)
{
    pthread_mutex_lock(&t->lock);
    buf_add_span(cert_pem, buf_span(&t->pair.used[0]));
    buf_reserve(key_pem, t->pair.used[1].n); /* a later realloc would leave a copy */
    buf_add_span(key_pem, buf_span(&t->pair.used[1]));
    pthread_mutex_unlock(&t->lock);
}

void tls_copy_own_ca(struct tls *t, struct buf *pem)
{
    pthread_mutex_lock(&t->lock);
    buf_add_span(pem, buf_span(&t->own_ca));
    pthread_mutex_unlock(&t->lock);
}

static const char *copy(struct tls *t, const char *s)
{
    return s ? arena_copy(&t->texts, span_of(s)).p : NULL;
}

static const char *const *names_copy(struct tls *t, const char *const *from, size_t n)
{
    const char **names = arena_alloc(&t->texts, (n + 1) * sizeof *names);
    for (size_t i = 0; i < n; i++)
        names[i] = copy(t, from[i]);
    return names;
}

struct tls *tls_new(const struct tls_config *config, struct err *err)
{
    struct tls *t = xcalloc(1, sizeof *t);
    struct tls_config *c = &t->conf;
    pthread_mutex_init(&t->lock, NULL);
    *c = *config;
    c->name = copy(t, c->name);
    c->cert_file = copy(t, c->cert_file);
    c->key_file = copy(t, c->key_file);
    c->client_ca_file = copy(t, c->client_ca_file);
    c->secondary_ca_file = copy(t, c->secondary_ca_file);
    c->client_names = names_copy(t, c->client_names, c->n_client_names);
    c->own_names = names_copy(t, c->own_names, c->n_own_names);
    c->cert_pem = c->key_pem = (struct span){0}; /* in tls.pair */
    int rc = read_part(t, false, t->ca.used, err);
    if (rc == 0 && !c->cert_file)
        rc = tls_set(t, config->cert_pem, config->key_pem, (struct span){0}, err);
    else if (rc == 0)
        rc = read_part(t, true, t->pair.used, err) ||
             use(t, t->pair.used, t->ca.used, &t->own_ca, err);
    if (rc) {
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
    for (int i = 0; i < 2; i++) {
        buf_wipe(&t->pair.used[i]);
        buf_wipe(&t->pair.seen[i]);
        buf_wipe(&t->ca.used[i]);
        buf_wipe(&t->ca.seen[i]);
    }
    buf_fini(&t->own_ca);
    arena_fini(&t->texts);
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

/* Whether the server requests a client certificate. */
static bool tls_requests_cert(const struct tls_config *conf)
{
    return conf->client_ca_file || conf->secondary_ca_file || conf->n_own_names;
}

enum {
    NAME_MAX_BYTES = 512,
    REJECTED_LOG_MS = 10 * 1000,
};

/* Rate-limited, because any client on the network can cause this line. */
static void log_rejected(struct tls *t, const char *why, const char *name)
{
    int64_t now = clock_mono_ms();
    pthread_mutex_lock(&t->lock);
    unsigned n = ++t->rejected;
    bool is_due = !t->rejected_ms || now - t->rejected_ms >= REJECTED_LOG_MS;
    if (is_due) {
        t->rejected_ms = now;
        t->rejected = 0;
    }
    pthread_mutex_unlock(&t->lock);
    if (is_due)
        log_warn("tls", "client certificate: rejected", LOG_S("listener", t->conf.name),
                 LOG_S("reason", why), LOG_S("client", name ? name : ""),
                 LOG_I("rejected", n));
}

static bool is_listed(const char *const *names, size_t n, struct span name)
{
    for (size_t i = 0; i < n; i++)
        if (span_eq(span_of(names[i]), name))
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
        listed |= is_listed(conf->client_names, conf->n_client_names,
                            (struct span){name, n});
    }
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
        const struct span common = {name, n};
        listed |= is_listed(conf->client_names, conf->n_client_names, common);
        *own = is_listed(conf->own_names, conf->n_own_names, common);
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
