/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <time.h>

#include "base/mem.h"
#include "setup/checks_priv.h"
#include "wire/x509.h"

enum { DAY_S = 24 * 3600, WARN_DAYS = 30, CAS_MAX = 64 };

#define RENEW  "scripts/install --renew"
#define SECRET "Secret " CLIENT_SECRET_NAME

/* The certificate of kube-scheduler's entry. */
struct subject {
    const struct facts *facts;
    const char *path;
    struct span ca, cert, key;
    char until[32]; /* the end of its validity */
    struct x509_info info;
    struct findings *out;
};

static void report(const struct subject *s, const char *id, const char *what,
                   const char *why)
{
    struct finding *it =
        findings_add(s->out, FINDING_PROBLEM, id, "%s %s", s->path, what);
    findings_why(s->out, it, "%s", why);
    findings_fix(s->out, it, RENEW);
}

static void check_time(const struct subject *s)
{
    int64_t left_s = s->info.expires_s - s->facts->now_s;
    if (left_s <= 0) {
        cleanup_free char *what = xasprintf("expired at %s", s->until);
        report(s, "certificate-expired", what,
               "the extender rejects the calls of kube-scheduler, and pods that request "
               "GPU memory stay pending");
    } else if (left_s < (int64_t)WARN_DAYS * DAY_S) {
        cleanup_free char *what =
            xasprintf("expires in %" PRId64 " days, at %s", left_s / DAY_S, s->until);
        report(s, "certificate-expiring", what,
               "after that, pods that request GPU memory stay pending. The Secret has a "
               "new certificate long before");
    }
}

/* Is the Secret the source of these files? */
static bool is_of_secret(const struct subject *s)
{
    const char *named =
        jsonpath_str(extender_entry_find(s->facts->config.json), "tlsConfig.certFile");
    return !strcmp(named, client_secret_path(CLIENT_SECRET_CERT));
}

/* Does `bundle` hold every CA of `ca`? */
static bool holds(struct span bundle, struct span ca)
{
    cleanup_buf struct buf all = {0};
    x509_add_cas(&all, bundle, CAS_MAX);
    size_t n = all.n;
    x509_add_cas(&all, ca, CAS_MAX);
    return n && all.n == n;
}

static void check_secret(const struct subject *s)
{
    const struct buf *pem = s->facts->secret.pem;
    struct span ca = buf_span(&pem[CLIENT_SECRET_CA]);
    if (!ca.n || !is_of_secret(s))
        return;
    if (!x509_is_issued_by(s->cert, ca)) {
        report(s, "certificate-other-ca", "is not signed by the CA in " SECRET,
               "the extender rejects the calls of kube-scheduler");
    } else if (!holds(s->ca, ca)) {
        report(s, "ca-outdated", "stands beside a caFile without the CA in " SECRET,
               "kube-scheduler will not trust the extender's next certificate");
    } else if (!span_eq(s->cert, buf_span(&pem[CLIENT_SECRET_CERT]))) {
        struct finding *it = findings_add(
            s->out, FINDING_NOTE, "certificate-renewed",
            SECRET " has a newer certificate than %s, which is valid until %s", s->path,
            s->until);
        findings_fix(s->out, it, RENEW);
    }
}

static void check_files(struct subject *s)
{
    struct err err = {0};
    size_t before = findings_count(s->out, FINDING_PROBLEM);
    if (x509_read(s->cert, &s->info, &err)) {
        report(s, "certificate-malformed", "is not a certificate",
               "kube-scheduler cannot connect to the extender");
        return;
    }
    struct tm tm;
    time_t at = (time_t)s->info.expires_s;
    strftime(s->until, sizeof s->until, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &tm));
    if (x509_read_pair(s->cert, s->key, NULL, &err))
        report(s, "certificate-key", "does not belong to the key in keyFile",
               "kube-scheduler cannot connect to the extender");
    check_time(s);
    check_secret(s);
    if (findings_count(s->out, FINDING_PROBLEM) == before)
        findings_add(s->out, FINDING_OK, "certificate", "%s is valid until %s", s->path,
                     s->until);
}

void checks_certificate(const struct facts *f, const struct extender_entry_url *url,
                        struct findings *out)
{
    const json_t *ours = extender_entry_find(f->config.json);
    const struct facts_file *file = f->tls;
    if (!url->tls || *jsonpath_str(ours, "tlsConfig.certData"))
        return;
    if (!*jsonpath_str(ours, "tlsConfig.certFile")) {
        struct finding *it =
            findings_add(out, FINDING_PROBLEM, "no-client-certificate",
                         "%s: tlsConfig has no certFile", f->config.path);
        findings_why(out, it,
                     "the extender accepts the verbs only with a client certificate");
        findings_fix(out, it, "scripts/install --yes");
        return;
    }
    for (int i = 0; i < CLIENT_SECRET_FILES; i++)
        if (i != CLIENT_SECRET_CA && (!file[i].path || file[i].why.code != ERR_NONE))
            return; /* reported with the other files */
    struct subject s = {.facts = f,
                        .path = file[CLIENT_SECRET_CERT].path,
                        .ca = buf_span(&file[CLIENT_SECRET_CA].bytes),
                        .cert = buf_span(&file[CLIENT_SECRET_CERT].bytes),
                        .key = buf_span(&file[CLIENT_SECRET_KEY].bytes),
                        .out = out};
    check_files(&s);
}
