/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/cert_plan.h"

#include "base/mem.h"
#include "lib/program.h"
#include "lib/unit.h"
#include "wire/tls.h"
#include "wire/x509.h"

/*
 * The plan of the Secrets: a small world of three Secrets in which the leader's writes take
 * effect, and a clock that the test sets.
 */

enum { T0 = 1800000000, DAY_S = 86400, YEAR_S = 365 * DAY_S };

struct world {
    struct kube_tls_secret secrets[CERT_PLAN_SECRETS];
    int64_t now_s;
    unsigned version;
    struct buf problem; /* of the last round */
    const char *why[CERT_PLAN_SECRETS];
};

static void world_fini(struct world *w)
{
    for (int i = 0; i < CERT_PLAN_SECRETS; i++)
        kube_tls_secret_fini(&w->secrets[i]);
    buf_fini(&w->problem);
}

/* One round of the leader. Returns the number of Secrets that it writes. */
static unsigned lead(struct world *w)
{
    struct cert_plan plan = {0};
    unsigned n = 0;
    cert_plan_make(w->secrets, "kube-system", w->now_s, &plan);
    buf_clear(&w->problem);
    buf_add_span(&w->problem, buf_span(&plan.problem));
    for (int i = 0; i < CERT_PLAN_SECRETS; i++) {
        w->why[i] = plan.secrets[i].write ? plan.secrets[i].why : NULL;
        if (!plan.secrets[i].write)
            continue;
        n++;
        kube_tls_secret_fini(&w->secrets[i]);
        kube_tls_secret_copy(&w->secrets[i], &plan.secrets[i].to);
        w->secrets[i].exists = true;
        w->version++;
    }
    cert_plan_fini(&plan);
    return n;
}

static struct span part(const struct world *w, int secret, int key)
{
    return buf_span(&w->secrets[secret].data[key]);
}

static struct x509_info info_of(const struct world *w, int secret)
{
    struct x509_info info;
    struct err err = {0};
    ck_assert_msg(x509_read_pair(part(w, secret, KUBE_TLS_CERT),
                                 part(w, secret, KUBE_TLS_KEY), &info, &err) == 0,
                  "%s: %s", cert_plan_name(secret), err.msg);
    return info;
}

static char *copy_of(struct span s)
{
    return xmemdup0(s.p ? s.p : "", s.n);
}

static void set(struct world *w, int secret, int key, const char *text)
{
    struct buf *b = &w->secrets[secret].data[key];
    buf_clear(b);
    buf_adds(b, text);
}

static void delete (struct world *w, int secret)
{
    kube_tls_secret_fini(&w->secrets[secret]);
}

/* Makes all three, at T0. */
static void begin(struct world *w)
{
    *w = (struct world){.now_s = T0};
    ck_assert_uint_eq(lead(w), 3);
    ck_assert_uint_eq(lead(w), 0);
    ck_assert_uint_eq(w->problem.n, 0);
}

/* What every client and replica must find at any time: certificates that are valid now, of
 * a CA in every ca.crt. */
static void check_served(const struct world *w)
{
    struct x509_info server = info_of(w, CERT_PLAN_SERVER),
                     client = info_of(w, CERT_PLAN_CLIENT);
    ck_assert(server.begins_s <= w->now_s && w->now_s < server.expires_s);
    ck_assert(client.begins_s <= w->now_s && w->now_s < client.expires_s);
    for (int i = 0; i < CERT_PLAN_SECRETS; i++) {
        ck_assert(x509_is_issued_by(part(w, CERT_PLAN_SERVER, KUBE_TLS_CERT),
                                    part(w, i, KUBE_TLS_CA)));
        ck_assert(x509_is_issued_by(part(w, CERT_PLAN_CLIENT, KUBE_TLS_CERT),
                                    part(w, i, KUBE_TLS_CA)));
    }
}

START_TEST(a_fresh_cluster_gets_three_secrets)
{
    struct world w;
    begin(&w);
    check_served(&w);
    struct x509_info ca = info_of(&w, CERT_PLAN_CA),
                     server = info_of(&w, CERT_PLAN_SERVER),
                     client = info_of(&w, CERT_PLAN_CLIENT);
    ck_assert(ca.ca && !server.ca && !client.ca);
    ck_assert_int_eq(ca.expires_s, T0 + CERT_PLAN_CA_S);
    ck_assert_int_eq(server.expires_s, T0 + CERT_PLAN_SERVER_S);
    ck_assert_int_eq(client.expires_s, T0 + CERT_PLAN_CLIENT_S);
    ck_assert_int_lt(server.begins_s, T0);
    ck_assert(server.server && server.client);
    ck_assert(!client.server && client.client);
    ck_assert_str_eq(server.common_name, "gpushare-extender");
    ck_assert_str_eq(client.common_name, "gpushare-scheduler");
    static const char *const names[] = {
        "gpushare-schd-extender", "gpushare-schd-extender.kube-system",
        "gpushare-schd-extender.kube-system.svc", "localhost", "127.0.0.1"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        ck_assert(x509_has_name(part(&w, CERT_PLAN_SERVER, KUBE_TLS_CERT), names[i]));
    ck_assert(!x509_has_name(part(&w, CERT_PLAN_CLIENT, KUBE_TLS_CERT), names[0]));
    world_fini(&w);
}
END_TEST

/* Days after T0 at which something is written, and what. */
START_TEST(certificates_are_renewed_in_time)
{
    static const struct {
        int secret, quiet_day, due_day;
    } cases[] = {{CERT_PLAN_SERVER, 59, 60}, {CERT_PLAN_CLIENT, 243, 244}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world w;
        int secret = cases[i].secret;
        begin(&w);
        if (secret == CERT_PLAN_CLIENT) /* the server's would be due, too */
            w.secrets[CERT_PLAN_SERVER].has_controller = true;
        w.now_s = T0 + cases[i].quiet_day * DAY_S;
        cleanup_free char *old = copy_of(part(&w, secret, KUBE_TLS_CERT));
        lead(&w); /* the server's Secret now counts as foreign */
        ck_assert_ptr_null(w.why[secret]);
        w.now_s = T0 + cases[i].due_day * DAY_S;
        ck_assert_uint_eq(lead(&w), 1);
        ck_assert_str_eq(w.why[secret], "renewed the certificate");
        struct span now = part(&w, secret, KUBE_TLS_CERT);
        ck_assert(!span_eq(now, span_of(old)));
        /* The old one is of a CA that is still trusted. */
        ck_assert(x509_is_issued_by(span_of(old), part(&w, secret, KUBE_TLS_CA)));
        ck_assert_uint_eq(lead(&w), 0);
        world_fini(&w);
    }
}
END_TEST

/* 21 years, a round every ten days: no day without valid certificates, and a client that takes its
 * certificate once in 90 days, and ca.crt once in 18 months, always fits. */
START_TEST(nothing_expires_in_21_years)
{
    struct world w;
    unsigned written = 0, authorities = 0;
    cleanup_buf struct buf ca = {0}, cert = {0};
    begin(&w);
    for (int day = 0; day < 21 * 365; day += 10) {
        w.now_s = T0 + (int64_t)day * DAY_S;
        if (day % 540 == 0) {
            buf_clear(&ca);
            buf_add_span(&ca, part(&w, CERT_PLAN_CLIENT, KUBE_TLS_CA));
        }
        if (day % 90 == 0) {
            buf_clear(&cert);
            buf_add_span(&cert, part(&w, CERT_PLAN_CLIENT, KUBE_TLS_CERT));
        }
        unsigned n = lead(&w);
        written += n;
        authorities += w.why[CERT_PLAN_CA] &&
                       strcmp(w.why[CERT_PLAN_CA], "made a successor of the CA") == 0;
        ck_assert_uint_eq(w.problem.n, 0);
        check_served(&w);
        struct x509_info mine;
        ck_assert_int_eq(x509_read(buf_span(&cert), &mine, NULL), 0);
        ck_assert_int_lt(w.now_s, mine.expires_s);
        /* The client accepts the server, and the server the client. */
        ck_assert_msg(
            x509_is_issued_by(part(&w, CERT_PLAN_SERVER, KUBE_TLS_CERT), buf_span(&ca)),
            "day %d: the client does not know the server's CA", day);
        ck_assert_msg(
            x509_is_issued_by(buf_span(&cert), part(&w, CERT_PLAN_SERVER, KUBE_TLS_CA)),
            "day %d: the server does not know the client's CA", day);
    }
    ck_assert_uint_ge(authorities, 3);
    ck_assert_uint_lt(written, 315); /* no more than renewals need */
    ck_assert_uint_eq(lead(&w), 0);
    world_fini(&w);
}
END_TEST

START_TEST(a_ca_gets_a_successor_that_signs_later)
{
    struct world w;
    begin(&w);
    cleanup_free char *first = copy_of(part(&w, CERT_PLAN_CA, KUBE_TLS_CERT));
    w.now_s = T0 + CERT_PLAN_CA_S / 3 * 2;
    lead(&w);
    ck_assert_str_eq(w.why[CERT_PLAN_CA], "made a successor of the CA");
    ck_assert_span_eq(part(&w, CERT_PLAN_CA, KUBE_TLS_CERT), first);
    cleanup_free char *next = copy_of(part(&w, CERT_PLAN_CA, KUBE_TLS_NEXT_CERT));
    ck_assert(*next);
    /* A kube-scheduler that started before does not know it: alert GPUShareSchedulerOldCA. */
    struct x509_info info;
    ck_assert_int_eq(x509_read(span_of(next), &info, NULL), 0);
    ck_assert_int_eq(info.begins_s, w.now_s);
    w.now_s -= 60; /* the next leader, whose clock is behind, makes no other one */
    ck_assert_uint_eq(lead(&w), 0);
    ck_assert_span_eq(part(&w, CERT_PLAN_CA, KUBE_TLS_NEXT_CERT), next);
    w.now_s += 60;
    /* Both are trusted, the first one signs. */
    ck_assert_ptr_nonnull(strstr(w.secrets[CERT_PLAN_CLIENT].data[KUBE_TLS_CA].p, next));
    ck_assert_ptr_nonnull(strstr(w.secrets[CERT_PLAN_CLIENT].data[KUBE_TLS_CA].p, first));
    ck_assert(
        x509_is_issued_by(part(&w, CERT_PLAN_CLIENT, KUBE_TLS_CERT), span_of(first)));
    ck_assert_uint_eq(lead(&w), 0);

    w.now_s = T0 + CERT_PLAN_CA_S / 6 * 5;
    lead(&w);
    ck_assert_str_eq(w.why[CERT_PLAN_CA], "the successor of the CA signs from now on");
    ck_assert_span_eq(part(&w, CERT_PLAN_CA, KUBE_TLS_CERT), next);
    ck_assert_uint_eq(part(&w, CERT_PLAN_CA, KUBE_TLS_NEXT_CERT).n, 0);
    ck_assert_ptr_nonnull(strstr(w.secrets[CERT_PLAN_CLIENT].data[KUBE_TLS_CA].p, first));
    ck_assert(
        x509_is_issued_by(part(&w, CERT_PLAN_SERVER, KUBE_TLS_CERT), span_of(next)));
    lead(&w);
    ck_assert_uint_eq(lead(&w), 0);
    world_fini(&w);
}
END_TEST

START_TEST(what_is_damaged_is_replaced)
{
    static const struct {
        int secret, key;
        const char *text, *why;
        unsigned writes; /* at least */
    } cases[] = {
        {CERT_PLAN_SERVER, KUBE_TLS_CERT, "x", "replaced a damaged certificate", 1},
        {CERT_PLAN_SERVER, KUBE_TLS_KEY, "", "replaced a damaged certificate", 1},
        {CERT_PLAN_SERVER, KUBE_TLS_CA, "", "updated ca.crt", 1},
        {CERT_PLAN_CLIENT, KUBE_TLS_CERT, "", "replaced a damaged certificate", 1},
        {CERT_PLAN_CLIENT, KUBE_TLS_KEY, "x", "replaced a damaged certificate", 1},
        {CERT_PLAN_CLIENT, KUBE_TLS_CA, "garbage", "updated ca.crt", 1},
        {CERT_PLAN_CA, KUBE_TLS_CERT, "x", "replaced a damaged certificate authority", 3},
        {CERT_PLAN_CA, KUBE_TLS_KEY, "x", "replaced a damaged certificate authority", 3},
        {CERT_PLAN_CA, KUBE_TLS_CA, "", "updated ca.crt", 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world w;
        begin(&w);
        cleanup_free char *client = copy_of(part(&w, CERT_PLAN_CLIENT, KUBE_TLS_CERT));
        cleanup_free char *server = copy_of(part(&w, CERT_PLAN_SERVER, KUBE_TLS_CERT));
        set(&w, cases[i].secret, cases[i].key, cases[i].text);
        ck_assert_uint_ge(lead(&w), cases[i].writes);
        ck_assert_str_eq(w.why[cases[i].secret], cases[i].why);
        ck_assert_uint_eq(lead(&w), 0);
        ck_assert_uint_eq(w.problem.n, 0);
        check_served(&w);
        /* What was handed out keeps working. */
        for (int s = 0; s < CERT_PLAN_SECRETS; s++) {
            ck_assert(x509_is_issued_by(span_of(client), part(&w, s, KUBE_TLS_CA)));
            ck_assert(x509_is_issued_by(span_of(server), part(&w, s, KUBE_TLS_CA)));
        }
        world_fini(&w);
    }
}
END_TEST

/* A new CA does not sign at once: its certificate must reach the clients first. */
START_TEST(a_lost_ca_locks_no_client_out)
{
    struct world w;
    begin(&w);
    w.now_s = T0 + 55 * DAY_S;
    cleanup_free char *ca = copy_of(part(&w, CERT_PLAN_CLIENT, KUBE_TLS_CA));
    delete (&w, CERT_PLAN_CA);
    ck_assert_uint_eq(lead(&w), 3);
    ck_assert_str_eq(w.why[CERT_PLAN_CA], "made a certificate authority");
    ck_assert_str_eq(w.why[CERT_PLAN_SERVER], "updated ca.crt");
    w.now_s = T0 + 70 * DAY_S; /* the server's certificate would be due */
    ck_assert_uint_eq(lead(&w), 0);
    ck_assert(x509_is_issued_by(part(&w, CERT_PLAN_SERVER, KUBE_TLS_CERT), span_of(ca)));
    w.now_s = T0 + 82 * DAY_S; /* in time before it expires */
    ck_assert_uint_eq(lead(&w), 1);
    ck_assert_str_eq(w.why[CERT_PLAN_SERVER], "renewed the certificate");
    check_served(&w);
    world_fini(&w);
}
END_TEST

START_TEST(deleted_secrets_come_back)
{
    for (unsigned set_of = 1; set_of < 8; set_of++) {
        struct world w;
        begin(&w);
        for (int i = 0; i < CERT_PLAN_SECRETS; i++)
            if (set_of & 1u << i)
                delete (&w, i);
        ck_assert_uint_ge(lead(&w), 1);
        ck_assert_uint_eq(lead(&w), 0);
        ck_assert_uint_eq(w.problem.n, 0);
        check_served(&w);
        world_fini(&w);
    }
}
END_TEST

/* Where a plan is only half executed, the next one completes it. */
START_TEST(a_half_written_plan_is_completed)
{
    for (int written = 0; written < CERT_PLAN_SECRETS; written++) {
        struct world w, half = {.now_s = T0};
        begin(&w);
        for (int i = 0; i < written; i++)
            kube_tls_secret_copy(&half.secrets[i], &w.secrets[i]);
        ck_assert_uint_eq(lead(&half), 3 - (unsigned)written);
        ck_assert_uint_eq(lead(&half), 0);
        check_served(&half);
        world_fini(&half);
        world_fini(&w);
    }
}
END_TEST

static void make(const struct x509_spec *spec, const struct x509_pair *ca,
                 struct x509_pair *out)
{
    *out = (struct x509_pair){{0}, {0}};
    ck_assert_int_eq(x509_make(spec, ca, out, NULL), 0);
}

/* The Secret of an administrator, or of cert-manager. */
static void put(struct world *w, int secret, const struct x509_pair *pair,
                const struct x509_pair *ca)
{
    set(w, secret, KUBE_TLS_CERT, pair->cert.p);
    set(w, secret, KUBE_TLS_KEY, pair->key.p);
    set(w, secret, KUBE_TLS_CA, ca->cert.p);
    w->secrets[secret].exists = true;
}

START_TEST(foreign_secrets_are_respected)
{
    struct x509_pair ca, server, client;
    struct x509_spec spec = {
        .common_name = "corporate", .ca = true, .begins_s = T0, .expires_s = T0 + YEAR_S};
    make(&spec, NULL, &ca);
    spec = (struct x509_spec){
        .common_name = "x", .server = true, .begins_s = T0, .expires_s = T0 + DAY_S};
    make(&spec, &ca, &server);
    spec.client = true;
    make(&spec, &ca, &client);

    struct world w = {.now_s = T0 + 1}; /* all but the CA, as with cert-manager */
    put(&w, CERT_PLAN_SERVER, &server, &ca);
    put(&w, CERT_PLAN_CLIENT, &client, &ca);
    ck_assert_uint_eq(lead(&w), 0);
    ck_assert_uint_eq(w.problem.n, 0);
    w.now_s = T0 + 2 * DAY_S; /* expired: reported, not replaced */
    ck_assert_uint_eq(lead(&w), 0);
    ck_assert_contains(w.problem.p, "Secret kube-system/gpushare-extender-tls: the "
                                    "certificate has expired\n");
    w.now_s = T0 - 5;
    ck_assert_uint_eq(lead(&w), 0);
    ck_assert_contains(w.problem.p,
                       "gpushare-scheduler-tls: the certificate is not valid "
                       "yet\n");
    world_fini(&w);

    /* Over ours: the mark stays with kubectl apply, but fits no more. */
    begin(&w);
    put(&w, CERT_PLAN_SERVER, &server, &ca);
    ck_assert_uint_eq(lead(&w), 1); /* kube-scheduler must know the server's CA */
    ck_assert_str_eq(w.why[CERT_PLAN_CLIENT], "updated ca.crt");
    ck_assert_contains(w.secrets[CERT_PLAN_CLIENT].data[KUBE_TLS_CA].p, ca.cert.p);
    ck_assert_span_eq(part(&w, CERT_PLAN_SERVER, KUBE_TLS_CERT), server.cert.p);
    ck_assert_uint_eq(lead(&w), 0);
    /* Deleted by the administrator: ours again, and that CA is trusted no more. */
    delete (&w, CERT_PLAN_SERVER);
    ck_assert_uint_eq(lead(&w), 2);
    ck_assert_ptr_null(
        strstr(w.secrets[CERT_PLAN_CLIENT].data[KUBE_TLS_CA].p, ca.cert.p));
    check_served(&w);
    world_fini(&w);
    x509_pair_fini(&ca);
    x509_pair_fini(&server);
    x509_pair_fini(&client);
}
END_TEST

/* An administrator who replaces tls.crt first and tls.key later, and leaves the mark. */
START_TEST(a_half_replaced_pair_is_respected)
{
    static const int secrets[] = {CERT_PLAN_SERVER, CERT_PLAN_CLIENT, CERT_PLAN_CA};
    for (size_t i = 0; i < ARRAY_LEN(secrets); i++) {
        struct world w, other;
        int secret = secrets[i];
        begin(&w);
        begin(&other);
        cleanup_free char *cert = copy_of(part(&other, secret, KUBE_TLS_CERT)),
                          *key = copy_of(part(&other, secret, KUBE_TLS_KEY));
        set(&w, secret, KUBE_TLS_CERT, cert);
        lead(&w);
        ck_assert_ptr_null(w.why[secret]);
        ck_assert_span_eq(part(&w, secret, KUBE_TLS_CERT), cert);
        ck_assert_uint_gt(w.problem.n, 0);
        set(&w, secret, KUBE_TLS_KEY, key);
        lead(&w);
        ck_assert_ptr_null(w.why[secret]);
        ck_assert_uint_eq(w.problem.n, 0);
        world_fini(&w);
        world_fini(&other);
    }
}
END_TEST

START_TEST(a_foreign_ca_signs_and_is_never_changed)
{
    struct x509_pair ca;
    struct x509_spec spec = {
        .common_name = "corporate", .ca = true, .begins_s = T0, .expires_s = T0 + YEAR_S};
    make(&spec, NULL, &ca);
    struct world w = {.now_s = T0 + 1};
    put(&w, CERT_PLAN_CA, &ca, &ca);
    ck_assert_uint_eq(lead(&w), 2);
    ck_assert_ptr_null(w.why[CERT_PLAN_CA]);
    check_served(&w);
    struct x509_info client = info_of(&w, CERT_PLAN_CLIENT);
    ck_assert_int_eq(client.expires_s, T0 + YEAR_S); /* not longer than its CA */
    ck_assert_uint_eq(lead(&w), 0);
    /* Near the end of the CA there is nothing to gain by a renewal. */
    w.now_s = T0 + YEAR_S - DAY_S;
    lead(&w);
    ck_assert_uint_eq(lead(&w), 0);
    ck_assert_ptr_null(w.why[CERT_PLAN_CA]);
    w.now_s = T0 + YEAR_S + 1;
    ck_assert_uint_eq(lead(&w), 0);
    ck_assert_contains(w.problem.p,
                       "Secret kube-system/gpushare-extender-ca: not written "
                       "by the extender, and not a valid certificate");
    world_fini(&w);

    w = (struct world){.now_s = T0}; /* an empty Secret that somebody has created */
    w.secrets[CERT_PLAN_CA].exists = true;
    ck_assert_uint_eq(lead(&w), 0);
    ck_assert_contains(w.problem.p, "its tls.crt and tls.key are not readable");
    world_fini(&w);
    x509_pair_fini(&ca);
}
END_TEST

START_TEST(clocks_jump)
{
    struct world w;
    begin(&w);
    cleanup_free char *client = copy_of(part(&w, CERT_PLAN_CLIENT, KUBE_TLS_CERT));
    w.now_s = T0 - 1800; /* within the margin for clocks that differ */
    ck_assert_uint_eq(lead(&w), 0);
    w.now_s = T0 + 20LL * YEAR_S; /* a wrong clock, for a while */
    ck_assert_uint_eq(lead(&w), 3);
    check_served(&w);
    ck_assert_uint_eq(lead(&w), 0);
    w.now_s = T0 + 60;
    ck_assert_uint_eq(lead(&w), 3);
    check_served(&w);
    ck_assert_uint_eq(lead(&w), 0);
    /* The certificate from before the jump is accepted again. */
    ck_assert(
        x509_is_issued_by(span_of(client), part(&w, CERT_PLAN_SERVER, KUBE_TLS_CA)));
    /* However often that happens, ca.crt does not grow without bounds. */
    for (int i = 0; i < 10; i++) {
        w.now_s = i % 2 ? T0 + i : T0 + (20LL + i) * YEAR_S;
        lead(&w);
        ck_assert_uint_eq(lead(&w), 0);
        ck_assert_uint_lt(part(&w, CERT_PLAN_SERVER, KUBE_TLS_CA).n, 6 * 1024);
    }
    world_fini(&w);
}
END_TEST

/* Certificates of an older version, or of another namespace. */
START_TEST(certificates_of_another_kind_are_replaced)
{
    struct world w;
    struct cert_plan plan = {0};
    begin(&w);
    cert_plan_make(w.secrets, "gpu", w.now_s, &plan);
    ck_assert(!plan.secrets[CERT_PLAN_CA].write);
    ck_assert(plan.secrets[CERT_PLAN_SERVER].write);
    ck_assert_str_eq(plan.secrets[CERT_PLAN_SERVER].why,
                     "replaced a certificate that lacks a name");
    ck_assert(!plan.secrets[CERT_PLAN_CLIENT].write);
    cert_plan_fini(&plan);

    /* The pair of the one in the Secret of the other, with a mark that fits. */
    kube_tls_secret_fini(&w.secrets[CERT_PLAN_SERVER]);
    kube_tls_secret_copy(&w.secrets[CERT_PLAN_SERVER], &w.secrets[CERT_PLAN_CLIENT]);
    ck_assert_uint_eq(lead(&w), 1);
    ck_assert_str_eq(w.why[CERT_PLAN_SERVER],
                     "replaced a certificate of another purpose");
    check_served(&w);
    world_fini(&w);
}
END_TEST

UNIT_MAIN_SECONDS("cert_plan", 120, a_fresh_cluster_gets_three_secrets,
                  certificates_are_renewed_in_time, nothing_expires_in_21_years,
                  a_ca_gets_a_successor_that_signs_later, what_is_damaged_is_replaced,
                  a_lost_ca_locks_no_client_out, deleted_secrets_come_back,
                  a_half_written_plan_is_completed, foreign_secrets_are_respected,
                  a_half_replaced_pair_is_respected,
                  a_foreign_ca_signs_and_is_never_changed, clocks_jump,
                  certificates_of_another_kind_are_replaced)
