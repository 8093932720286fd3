/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/cert_plan.h"

#include "base/clock.h"
#include "base/mem.h"
#include "wire/tls.h"
#include "wire/x509.h"

enum {
    DAY_S = 86400,
    SETTLE_S = 30 * DAY_S, /* a new CA that no client knows yet signs no renewal */
};

const char *cert_plan_name(enum cert_plan_secret secret)
{
    static const char *const names[] = {"gpushare-extender-ca", "gpushare-extender-tls",
                                        "gpushare-scheduler-tls"};
    return names[secret];
}

enum owner {
    ABSENT,
    OURS,
    DAMAGED, /* ours, but certificate and key are not readable */
    FOREIGN, /* of an administrator or another program */
};

/* One Secret, and what its certificate says. */
struct view {
    const struct kube_tls_secret *secret;
    enum owner owner;
    bool readable;
    struct x509_info info; /* if readable */
    struct err wrong;      /* if not */
};

struct job {
    const char *ns;
    int64_t now_s;
    struct view seen[CERT_PLAN_SECRETS];
    struct cert_plan *plan;
    bool has_signer;
    struct x509_pair signer; /* the CA that signs, if has_signer */
    struct x509_info signer_info;
    struct buf bundle; /* ca.crt of all Secrets */
};

static struct span part(const struct kube_tls_secret *s, enum kube_tls_key key)
{
    return buf_span(&s->data[key]);
}

static struct view view_of(const struct kube_tls_secret *s)
{
    struct view v = {.secret = s};
    char hash[X509_FINGERPRINT];
    x509_fingerprint(part(s, KUBE_TLS_CERT), hash);
    v.readable =
        s->exists && x509_read_pair(part(s, KUBE_TLS_CERT), part(s, KUBE_TLS_KEY),
                                    &v.info, &v.wrong) == 0;
    bool fits = span_eq(buf_span(&s->mark), span_of(hash));
    bool another = !fits && x509_read(part(s, KUBE_TLS_CERT), &(struct x509_info){0},
                                      NULL) == 0; /* its key may be about to follow */
    if (!s->exists)
        v.owner = ABSENT;
    else if (s->has_controller || !s->mark.n || another)
        v.owner = FOREIGN;
    else
        v.owner = v.readable ? OURS : DAMAGED;
    return v;
}

static bool is_current(const struct x509_info *info, int64_t now_s)
{
    return info->begins_s <= now_s && now_s < info->expires_s;
}

static void problem(struct job *j, enum cert_plan_secret secret, const char *what)
{
    buf_printf(&j->plan->problem, "Secret %s/%s: %s\n", j->ns, cert_plan_name(secret),
               what);
}

static void set_part(struct kube_tls_secret *s, enum kube_tls_key key, struct span bytes)
{
    tls_wipe(&s->data[key]);
    buf_reserve(&s->data[key], bytes.n);
    buf_add_span(&s->data[key], bytes);
}

/* Begins the new content of a Secret with its present one. */
static struct kube_tls_secret *change(struct job *j, enum cert_plan_secret secret,
                                      const char *why)
{
    struct kube_tls_secret *to = &j->plan->secrets[secret].to;
    if (!j->plan->secrets[secret].write) {
        kube_tls_secret_copy(to, j->seen[secret].secret);
        j->plan->secrets[secret].write = true;
        j->plan->secrets[secret].why = why;
    }
    return to;
}

/* The mark follows the certificate. */
static void set_pair(struct kube_tls_secret *to, const struct x509_pair *pair)
{
    char hash[X509_FINGERPRINT];
    set_part(to, KUBE_TLS_CERT, buf_span(&pair->cert));
    set_part(to, KUBE_TLS_KEY, buf_span(&pair->key));
    x509_fingerprint(buf_span(&pair->cert), hash);
    buf_clear(&to->mark);
    buf_adds(&to->mark, hash);
}

/* -- The certificate authority -- */

/* Each CA has a name of its own, so that a verifier never takes one for another. */
static void make_ca(struct job *j, int64_t begins_s, struct x509_pair *out)
{
    cleanup_buf struct buf since = {0};
    clock_format_s(&since, j->now_s);
    cleanup_free char *name = xasprintf("gpushare-extender-ca %s", since.p);
    struct x509_spec spec = {.common_name = name,
                             .ca = true,
                             .begins_s = begins_s,
                             .expires_s = j->now_s + CERT_PLAN_CA_S};
    struct err err = {0};
    if (x509_make(&spec, NULL, out, &err))
        problem(j, CERT_PLAN_CA, err.msg);
}

static void use_signer(struct job *j, struct span cert, struct span key)
{
    x509_pair_fini(&j->signer);
    buf_add_span(&j->signer.cert, cert);
    buf_reserve(&j->signer.key, key.n);
    buf_add_span(&j->signer.key, key);
    j->has_signer = x509_read(cert, &j->signer_info, NULL) == 0;
}

static void replace_ca(struct job *j, const char *why)
{
    struct x509_pair made = {{0}, {0}};
    make_ca(j, j->now_s - CERT_PLAN_BACKDATE_S, &made);
    if (made.cert.n) {
        struct kube_tls_secret *to = change(j, CERT_PLAN_CA, why);
        set_pair(to, &made);
        set_part(to, KUBE_TLS_NEXT_CERT, (struct span){0});
        set_part(to, KUBE_TLS_NEXT_KEY, (struct span){0});
        use_signer(j, buf_span(&made.cert), buf_span(&made.key));
    }
    x509_pair_fini(&made);
}

/* Whether the Secret has a usable successor; *info describes it. One that begins soon was
 * made by a leader whose clock is ahead. */
static bool has_next(const struct job *j, const struct kube_tls_secret *s,
                     struct x509_info *info)
{
    return x509_read_pair(part(s, KUBE_TLS_NEXT_CERT), part(s, KUBE_TLS_NEXT_KEY), info,
                          NULL) == 0 &&
           info->ca && info->begins_s - CERT_PLAN_BACKDATE_S <= j->now_s &&
           j->now_s < info->expires_s;
}

/* The date tells which kube-scheduler started too early to know it. It signs months later,
 * so clocks that differ do not matter. */
static void add_next(struct job *j)
{
    struct x509_pair made = {{0}, {0}};
    make_ca(j, j->now_s, &made);
    if (made.cert.n) {
        struct kube_tls_secret *to =
            change(j, CERT_PLAN_CA, "made a successor of the CA");
        set_part(to, KUBE_TLS_NEXT_CERT, buf_span(&made.cert));
        set_part(to, KUBE_TLS_NEXT_KEY, buf_span(&made.key));
    }
    x509_pair_fini(&made);
}

static void promote(struct job *j, const struct kube_tls_secret *s)
{
    struct x509_pair next = {{0}, {0}};
    buf_add_span(&next.cert, part(s, KUBE_TLS_NEXT_CERT));
    buf_reserve(&next.key, s->data[KUBE_TLS_NEXT_KEY].n);
    buf_add_span(&next.key, part(s, KUBE_TLS_NEXT_KEY));
    struct kube_tls_secret *to =
        change(j, CERT_PLAN_CA, "the successor of the CA signs from now on");
    set_pair(to, &next);
    set_part(to, KUBE_TLS_NEXT_CERT, (struct span){0});
    set_part(to, KUBE_TLS_NEXT_KEY, (struct span){0});
    use_signer(j, buf_span(&next.cert), buf_span(&next.key));
    x509_pair_fini(&next);
}

/* Our CA is usable: makes its successor, or lets the successor sign, in time. */
static void rotate_ca(struct job *j)
{
    const struct view *v = &j->seen[CERT_PLAN_CA];
    struct x509_info next;
    int64_t life_s = v->info.expires_s - v->info.begins_s,
            age_s = j->now_s - v->info.begins_s;
    bool late = age_s >= life_s / 12 * 11;
    use_signer(j, part(v->secret, KUBE_TLS_CERT), part(v->secret, KUBE_TLS_KEY));
    if (age_s < life_s / 3 * 2)
        return;
    if (!has_next(j, v->secret, &next)) {
        add_next(j);
        return;
    }
    if (age_s >= life_s / 6 * 5 && next.begins_s + (late ? 0 : SETTLE_S) <= j->now_s)
        promote(j, v->secret);
}

static void plan_ca(struct job *j)
{
    const struct view *v = &j->seen[CERT_PLAN_CA];
    bool usable = v->readable && v->info.ca && is_current(&v->info, j->now_s);
    if (v->owner == FOREIGN && usable)
        use_signer(j, part(v->secret, KUBE_TLS_CERT), part(v->secret, KUBE_TLS_KEY));
    else if (v->owner == FOREIGN)
        problem(j, CERT_PLAN_CA,
                v->readable ? "not written by the extender, and not a valid certificate "
                              "authority: correct or delete it"
                            : "not written by the extender, and its tls.crt and tls.key "
                              "are not readable: correct or delete it");
    else if (v->owner == OURS && usable)
        rotate_ca(j);
    else
        replace_ca(j, v->owner == ABSENT    ? "made a certificate authority"
                      : v->owner == DAMAGED ? "replaced a damaged certificate authority"
                                            : "replaced a certificate authority that is "
                                              "not valid now");
}

/* ca.crt: the signing CA, its successor, and the previous ones. The previous ones stay
 * when they have expired, because a clock that is wrong for a while must not lock clients
 * out; an expired CA verifies nothing. */
static void make_bundle(struct job *j)
{
    const struct kube_tls_secret *now = j->plan->secrets[CERT_PLAN_CA].write
                                            ? &j->plan->secrets[CERT_PLAN_CA].to
                                            : j->seen[CERT_PLAN_CA].secret;
    x509_add_cas(&j->bundle, part(now, KUBE_TLS_CERT), CERT_PLAN_CAS_MAX);
    x509_add_cas(&j->bundle, part(now, KUBE_TLS_NEXT_CERT), CERT_PLAN_CAS_MAX);
    x509_add_cas(&j->bundle, part(j->seen[CERT_PLAN_CA].secret, KUBE_TLS_CERT),
                 CERT_PLAN_CAS_MAX);
    x509_add_cas(&j->bundle, part(j->seen[CERT_PLAN_CA].secret, KUBE_TLS_CA),
                 CERT_PLAN_CAS_MAX);
    /* The Secret of the CA is lost: its certificates are still in the others. */
    if (!j->seen[CERT_PLAN_CA].secret->data[KUBE_TLS_CA].n)
        for (int i = CERT_PLAN_SERVER; i < CERT_PLAN_SECRETS; i++)
            if (j->seen[i].owner == OURS)
                x509_add_cas(&j->bundle, part(j->seen[i].secret, KUBE_TLS_CA),
                             CERT_PLAN_CAS_MAX);
    if (j->seen[CERT_PLAN_CA].owner != FOREIGN && j->has_signer &&
        !span_eq(buf_span(&j->bundle), part(now, KUBE_TLS_CA)))
        set_part(change(j, CERT_PLAN_CA, "updated ca.crt"), KUBE_TLS_CA,
                 buf_span(&j->bundle));
    /* An administrator's certificates have authorities of their own. */
    for (int i = CERT_PLAN_SERVER; i < CERT_PLAN_SECRETS; i++)
        if (j->seen[i].owner == FOREIGN)
            x509_add_cas(&j->bundle, part(j->seen[i].secret, KUBE_TLS_CA),
                         2 * CERT_PLAN_CAS_MAX);
}

/* -- The two certificates that it signs -- */

struct leaf {
    enum cert_plan_secret secret;
    const char *common_name;
    const char *const *names;
    bool server;
    int64_t life_s;
};

static int64_t expiry_of_new(const struct job *j, const struct leaf *leaf)
{
    int64_t expires_s = j->now_s + leaf->life_s;
    return expires_s < j->signer_info.expires_s ? expires_s : j->signer_info.expires_s;
}

/* Whether the certificate is to be renewed although it is valid. */
static bool is_due(const struct job *j, const struct leaf *leaf, const struct view *v)
{
    int64_t life_s = v->info.expires_s - v->info.begins_s;
    int64_t due_s = v->info.begins_s + life_s / 3 * 2;
    if (!x509_is_issued_by(part(v->secret, KUBE_TLS_CERT), buf_span(&j->signer.cert))) {
        int64_t settled_s = j->signer_info.begins_s + SETTLE_S,
                last_s = v->info.expires_s - life_s / 10;
        int64_t later_s = settled_s < last_s ? settled_s : last_s;
        due_s = later_s > due_s ? later_s : due_s;
    }
    /* Near the end of its CA, a new certificate would not be valid for longer. */
    return j->now_s >= due_s && expiry_of_new(j, leaf) - v->info.expires_s >= DAY_S;
}

/* Why the certificate must be replaced; NULL: it is fine. */
static const char *reason_to_renew(const struct job *j, const struct leaf *leaf,
                                   const struct view *v)
{
    struct span cert = part(v->secret, KUBE_TLS_CERT);
    if (v->owner == ABSENT)
        return "made a certificate";
    if (v->owner == DAMAGED)
        return "replaced a damaged certificate";
    if (!is_current(&v->info, j->now_s))
        return "replaced a certificate that is not valid now";
    if (strcmp(v->info.common_name, leaf->common_name) != 0 || !v->info.client ||
        (leaf->server && !v->info.server))
        return "replaced a certificate of another purpose";
    for (size_t i = 0; leaf->names && leaf->names[i]; i++)
        if (!x509_has_name(cert, leaf->names[i]))
            return "replaced a certificate that lacks a name";
    if (!x509_is_issued_by(cert, buf_span(&j->bundle)))
        return "replaced a certificate of an unknown authority";
    return is_due(j, leaf, v) ? "renewed the certificate" : NULL;
}

static void sign_leaf(struct job *j, const struct leaf *leaf, const char *why)
{
    struct x509_pair made = {{0}, {0}};
    struct err err = {0};
    struct x509_spec spec = {.common_name = leaf->common_name,
                             .names = leaf->names,
                             .server = leaf->server,
                             .client = true,
                             .begins_s = j->now_s - CERT_PLAN_BACKDATE_S,
                             .expires_s = expiry_of_new(j, leaf)};
    if (!x509_make(&spec, &j->signer, &made, &err))
        set_pair(change(j, leaf->secret, why), &made);
    else
        problem(j, leaf->secret, err.msg);
    x509_pair_fini(&made);
}

static void check_foreign(struct job *j, enum cert_plan_secret secret)
{
    const struct view *v = &j->seen[secret];
    if (!v->readable)
        problem(j, secret, v->wrong.msg);
    else if (!is_current(&v->info, j->now_s))
        problem(j, secret,
                j->now_s < v->info.begins_s ? "the certificate is not valid yet"
                                            : "the certificate has expired");
}

static void plan_leaf(struct job *j, const struct leaf *leaf)
{
    const struct view *v = &j->seen[leaf->secret];
    if (v->owner == FOREIGN) {
        check_foreign(j, leaf->secret);
        return;
    }
    if (!j->has_signer)
        return;
    const char *why = reason_to_renew(j, leaf, v);
    if (why)
        sign_leaf(j, leaf, why);
    if (!span_eq(buf_span(&j->bundle), part(v->secret, KUBE_TLS_CA)) ||
        j->plan->secrets[leaf->secret].write)
        set_part(change(j, leaf->secret, "updated ca.crt"), KUBE_TLS_CA,
                 buf_span(&j->bundle));
}

void cert_plan_make(const struct kube_tls_secret seen[CERT_PLAN_SECRETS], const char *ns,
                    int64_t now_s, struct cert_plan *plan)
{
    struct job j = {.ns = ns, .now_s = now_s, .plan = plan};
    cleanup_free char *in_ns = xasprintf(CERT_PLAN_HOST ".%s", ns),
                      *service = xasprintf(CERT_PLAN_HOST ".%s.svc", ns);
    /* The second Service is that of the API server (manifests/apiservice.yaml.example). */
    cleanup_free char *observe = xasprintf("gpushare-observe.%s.svc", ns);
    const char *const names[] = {CERT_PLAN_HOST, in_ns,       service, observe,
                                 "localhost",    "127.0.0.1", NULL};
    for (int i = 0; i < CERT_PLAN_SECRETS; i++)
        j.seen[i] = view_of(&seen[i]);
    /* With both certificates from elsewhere, there is nothing to sign. */
    if (j.seen[CERT_PLAN_SERVER].owner != FOREIGN ||
        j.seen[CERT_PLAN_CLIENT].owner != FOREIGN) {
        plan_ca(&j);
        make_bundle(&j);
    }
    plan_leaf(&j, &(struct leaf){CERT_PLAN_SERVER, CERT_PLAN_SERVER_NAME, names, true,
                                 CERT_PLAN_SERVER_S});
    plan_leaf(&j, &(struct leaf){CERT_PLAN_CLIENT, CERT_PLAN_CLIENT_NAME, NULL, false,
                                 CERT_PLAN_CLIENT_S});
    x509_pair_fini(&j.signer);
    buf_fini(&j.bundle);
}

void cert_plan_fini(struct cert_plan *plan)
{
    for (int i = 0; i < CERT_PLAN_SECRETS; i++)
        kube_tls_secret_fini(&plan->secrets[i].to);
    buf_fini(&plan->problem);
    *plan = (struct cert_plan){0};
}
