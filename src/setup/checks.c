/* SPDX-License-Identifier: Apache-2.0 */

/* Judges the facts: the static pod, its configuration, the certificate, the extender's
 * answer, and the other pods of kube-system. */

#include "setup/checks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "base/mem.h"
#include "base/opt.h"
#include "setup/edit.h"
#include "wire/x509.h"

#define CRASH_LOG   "crictl logs $(crictl ps -a --name kube-scheduler -q | head -1)"
#define KUBELET_LOG "journalctl -u kubelet --since -10min"
#define INSTALL     "scripts/install --yes"
#define RENEW       "scripts/install --renew"
#define AS_ROOT     "sudo scripts/install --check"
#define PENDING     "pods that request GPU memory stay pending"
#define NO_CARD     "kube-scheduler gives pods that request GPU memory a node, but no card"

enum {
    TIMEOUT_MIN_S = 22, /* a bind takes at most 15 s, and 7 s more without a leader */
    DAY_S = 24 * 3600,
    WARN_DAYS = 30,
    CAS_MAX = 64
};

/* -- findings -- */

static const char *format(struct checks *c, const char *fmt, va_list ap)
{
    cleanup_buf struct buf b = {0};
    buf_vprintf(&b, fmt, ap);
    return arena_copy(&c->texts, b.n ? buf_span(&b) : SPAN("")).p;
}

/* Adds a finding with its effect and its repair, which may be NULL. */
__attribute__((format(printf, 6, 7))) static void
add(struct checks *c, enum checks_kind kind, const char *id, const char *why,
    const char *fix, const char *fmt, ...)
{
    va_list ap;
    MEM_GROW(c->items, c->cap, c->n + 1);
    va_start(ap, fmt);
    c->items[c->n++] = (struct checks_finding){
        .kind = kind,
        .id = id,
        .what = format(c, fmt, ap),
        .why = why ? arena_copy(&c->texts, span_of(why)).p : NULL,
        .fix = fix ? arena_copy(&c->texts, span_of(fix)).p : NULL};
    va_end(ap);
}

void checks_fini(struct checks *c)
{
    free(c->items);
    arena_fini(&c->texts);
    *c = (struct checks){0};
}

size_t checks_count(const struct checks *c, enum checks_kind kind)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++)
        n += c->items[i].kind == kind;
    return n;
}

int checks_exit_status(const struct checks *c)
{
    return checks_count(c, CHECKS_PROBLEM) ? 1 : checks_count(c, CHECKS_UNKNOWN) ? 2 : 0;
}

/* Indents all lines by the width of the mark, which precedes the first. Terminals also
 * interpret U+0080 to U+009F, which are two bytes. */
static void write_lines(struct buf *out, const char *mark, const char *s)
{
    if (!s)
        return;
    buf_printf(out, "%-8s", mark);
    for (; *s; s++) {
        unsigned char c = (unsigned char)s[0], next = (unsigned char)s[1];
        bool wide = c == 0xc2 && next >= 0x80 && next < 0xa0;
        if (c == '\n')
            buf_adds(out, "\n        ");
        else
            buf_addc(out, wide || c < ' ' || c == 127 ? '?' : *s);
        s += wide;
    }
    buf_addc(out, '\n');
}

void checks_write(const struct checks *c, struct buf *out)
{
    static const char *const marks[] = {"ok", "note", "unknown", "PROBLEM"};
    for (size_t i = 0; i < c->n; i++) {
        const struct checks_finding *it = &c->items[i];
        cleanup_buf struct buf first = {0};
        if (it->kind == CHECKS_PROBLEM || it->kind == CHECKS_UNKNOWN)
            buf_printf(&first, "%s: ", it->id);
        buf_adds(&first, it->what);
        write_lines(out, marks[it->kind], first.p);
        write_lines(out, "  why", it->why);
        write_lines(out, "  fix", it->fix);
    }
}

/* -- the static pod -- */

static const char managed[] = "only the static pod of a control plane node of kubeadm "
                              "can be configured. Everywhere "
                              "else the chart runs a kube-scheduler of its own";
static const char managed_fix[] = "on a control plane node: scripts/install --check\n"
                                  "elsewhere: " FACTS_INSTEAD;

/* False: there is no folder of static pods to be checked. */
static bool check_folder(const struct facts *f, struct checks *out)
{
    if (f->distribution) {
        add(out, CHECKS_UNKNOWN, "other-distribution", managed,
            FACTS_INSTEAD "\nor by hand: policy/README.md",
            "this is a node of %s, without a static pod of kubeadm", f->distribution);
        return false;
    }
    if (f->manifests_why.code == ERR_NOT_FOUND)
        add(out, CHECKS_PROBLEM, "no-static-pods", managed, managed_fix,
            "no folder of static pods: %s", f->manifests_why.msg);
    else if (f->manifests_why.code != ERR_NONE)
        add(out, CHECKS_UNKNOWN, "manifests-unreadable", NULL, AS_ROOT, "%s",
            f->manifests_why.msg);
    return f->manifests_why.code == ERR_NONE;
}

/* The kubelet runs every manifest in the folder, also a backup copy. */
static void check_manifests(const struct facts *f, const struct facts_file *manifest,
                            const struct scheduler_config_pod *pod, struct checks *out)
{
    for (size_t i = 0; i < f->n_files; i++) {
        const struct facts_file *file = &f->files[i];
        struct scheduler_config_pod other;
        cleanup_free char *move = xasprintf("mv %s /root/", file->path);
        bool denied = file->why.code == ERR_FORBIDDEN;
        if (!file->json)
            add(out, denied ? CHECKS_UNKNOWN : CHECKS_PROBLEM, "manifest-malformed",
                "the kubelet ignores manifests that it cannot parse, and reads only the "
                "first of several documents",
                denied ? AS_ROOT : "journalctl -u kubelet", "%s", file->why.msg);
        else if (manifest && file != manifest &&
                 scheduler_config_read_pod(file->json, &other) &&
                 !strcmp(other.name, pod->name))
            add(out, CHECKS_PROBLEM, "two-manifests",
                "the kubelet reads every file in this folder, whatever its suffix, and "
                "runs one of the two, perhaps the old one",
                move, "%s and %s are the same static pod, %s", manifest->path, file->path,
                pod->name);
    }
}

/* False: kube-scheduler reads no configuration file that can be checked. */
static bool check_option(const struct facts *f, const struct scheduler_config_pod *pod,
                         const char *path, struct checks *out)
{
    const char *inside = scheduler_config_option(pod, "config");
    const struct facts_file *file = &f->config;
    if (scheduler_config_option(pod, "policy-config-file")) {
        add(out, CHECKS_PROBLEM, "policy-refused",
            "since Kubernetes 1.23, kube-scheduler exits with \"unknown flag\"; the "
            "Policy of earlier versions is not checked",
            "remove the option, then " INSTALL
            ", which adds --config\nup to 1.22, or keep it, by hand: policy/README.md",
            "%s has --policy-config-file", path);
        return false;
    }
    if (!inside) {
        add(out, CHECKS_PROBLEM, "no-option",
            "kube-scheduler does not call the extender: it gives pods that request GPU "
            "memory a node, but no card",
            INSTALL, "kube-scheduler (%s) has no --config", path);
        return false;
    }
    cleanup_free char *copy =
        xasprintf("cp policy/kube-scheduler-config.yaml %s", file->path);
    cleanup_free char *exits = xasprintf(
        "%s names this file as %s; kube-scheduler exits without it", path, inside);
    if (!f->config_mounted)
        add(out, CHECKS_PROBLEM, "not-mounted",
            "kube-scheduler does not find the file in its container, and exits",
            INSTALL ", which adds the mount", "%s: no hostPath volume is mounted at %s",
            path, inside);
    else if (file->why.code == ERR_FORBIDDEN)
        add(out, CHECKS_UNKNOWN, "file-unreadable", NULL, AS_ROOT, "%s", file->why.msg);
    else if (file->why.code == ERR_NOT_FOUND || file->why.code == ERR_UNAVAILABLE)
        add(out, CHECKS_PROBLEM, "file-absent", exits, copy, "%s", file->why.msg);
    else
        return true;
    return false;
}

static void check_process(const struct facts *f, const struct scheduler_config_pod *pod,
                          const char *path, struct checks *out)
{
    const struct facts_process *p = facts_scheduler(f, pod);
    const struct facts_file *newer = p ? facts_newer_file(f, p) : NULL;
    cleanup_free char *restart =
        xasprintf("kill %d    # the kubelet restarts it", p ? p->pid : 0);
    if (newer)
        add(out, CHECKS_PROBLEM, "older-than-file",
            "kube-scheduler reads this file only when it starts", restart,
            "kube-scheduler (process %d) started before %s was changed", p->pid,
            newer->path);
    else if (p)
        add(out, CHECKS_OK, "process", NULL, NULL,
            "process %d runs with the options of %s", p->pid, path);
    else if (f->processes_why.code != ERR_NONE)
        add(out, CHECKS_UNKNOWN, "processes", NULL, NULL, "%s", f->processes_why.msg);
    else if (f->n_processes)
        add(out, CHECKS_PROBLEM, "other-arguments",
            "the kubelet has not applied the manifest: it is busy, stopped, or rejects "
            "the file",
            KUBELET_LOG,
            "kube-scheduler (process %d) does not run with the options of %s",
            f->processes[0].pid, path);
    else
        add(out, CHECKS_PROBLEM, "not-running",
            "it exited, perhaps because of its configuration, or the kubelet does not "
            "start it",
            CRASH_LOG "\n" KUBELET_LOG, "kube-scheduler does not run on this node");
}

/* False: the configuration cannot be checked. */
static bool check_scheduler(const struct facts *f, struct checks *out)
{
    struct scheduler_config_pod pod;
    if (!check_folder(f, out))
        return false;
    const struct facts_file *manifest = facts_manifest(f, &pod);
    if (manifest) {
        int minor = facts_minor(f, &pod);
        add(out, CHECKS_OK, "manifest", NULL, NULL, "%s: kube-scheduler%s%.0d",
            manifest->path, minor ? " 1." : ", version unknown", minor);
    }
    check_manifests(f, manifest, &pod, out);
    if (!manifest) {
        if (!f->n_files)
            add(out, CHECKS_PROBLEM, "no-static-pod", managed, managed_fix,
                "%s has no static pod of kube-scheduler", f->manifests);
        return false;
    }
    bool usable = check_option(f, &pod, manifest->path, out);
    check_process(f, &pod, manifest->path, out);
    return usable;
}

/* -- the configuration -- */

/* False: the file has no entry that can be checked. */
static bool check_form(const struct facts *f, struct checks *out)
{
    static const char exits[] = "kube-scheduler exits when it reads this file";
    const json_t *json = f->config.json;
    const char *path = f->config.path, *api = edit_string(json, "apiVersion");
    struct scheduler_config_pod pod;
    facts_manifest(f, &pod);
    int minor = facts_minor(f, &pod);
    const char *kubeconfig = scheduler_config_option(&pod, "kubeconfig");
    cleanup_free char *version =
        xasprintf("apiVersion: %s", scheduler_config_newest_api(minor));
    cleanup_free char *client = xasprintf(
        "add:\nclientConnection:\n  kubeconfig: %s",
        kubeconfig && *kubeconfig ? kubeconfig : "/etc/kubernetes/scheduler.conf");
    if (!json)
        add(out, CHECKS_PROBLEM, "config-malformed", exits, NULL, "%s",
            f->config.why.msg);
    else if (strcmp(edit_string(json, "kind"), "KubeSchedulerConfiguration"))
        add(out, CHECKS_PROBLEM, "config-kind", exits, NULL,
            "%s has kind \"%s\" instead of KubeSchedulerConfiguration", path,
            edit_string(json, "kind"));
    else if (minor && !scheduler_config_reads_api(api, minor))
        add(out, CHECKS_PROBLEM, "api-version",
            "kube-scheduler exits with \"no kind KubeSchedulerConfiguration is "
            "registered\"",
            version, "%s has apiVersion \"%s\", which kube-scheduler 1.%d does not read",
            path, api, minor);
    else {
        if (!*edit_string(json, "clientConnection.kubeconfig"))
            add(out, CHECKS_PROBLEM, "no-kubeconfig",
                "with --config, kube-scheduler ignores --kubeconfig and does not find "
                "the "
                "API server",
                client, "%s has no clientConnection.kubeconfig", path);
        if (scheduler_config_extender(json))
            return true;
        add(out, CHECKS_PROBLEM, "no-extender", NO_CARD, INSTALL ", which adds the entry",
            "%s has no extender for aliyun.com/gpu-mem", path);
    }
    return false;
}

static const struct {
    const char *id, *name, *want, *why;
} members[] = {
    {"no-filter", "filterVerb", "filter", "nodes whose cards are full are not rejected"},
    {"no-bind", "bindVerb", "bind",
     "pods are bound without a card, and their containers do not start"},
    {"no-prioritize", "prioritizeVerb", "prioritize",
     "pods are spread over the nodes, so that large pods do not fit later"},
    {"no-preempt", "preemptVerb", "preempt",
     "kube-scheduler evicts pods without knowing whether that frees a card"},
    {"ignorable", "ignorable", "false",
     "while the extender is unavailable, pods are bound without a card (since 1.30 also "
     "after a failed bind)"},
    {"no-node-cache", "nodeCacheCapable", "true",
     "each call carries whole Node objects, and all nodes look idle to prioritize"}};

static void check_members(const char *path, const json_t *entry, struct checks *out)
{
    int64_t ms = 0;
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        const json_t *v = edit_value(entry, members[i].name);
        const char *value = json_is_true(v)    ? "true"
                            : json_is_false(v) ? "false"
                                               : edit_string(v, "");
        cleanup_free char *fix = xasprintf("%s: %s", members[i].name, members[i].want);
        if (strcmp(value, members[i].want) && (v || strcmp(members[i].want, "false")))
            add(out, CHECKS_PROBLEM, members[i].id, members[i].why, fix,
                "%s: %s is \"%s\"", path, members[i].name, value);
    }
    const char *timeout = edit_string(entry, "httpTimeout");
    if (!*timeout || (opt_parse_duration(span_of(timeout), &ms, NULL) == 0 &&
                      ms < TIMEOUT_MIN_S * 1000))
        add(out, CHECKS_PROBLEM, "timeout-short",
            "a bind may take 22 s; kube-scheduler would give up before",
            "httpTimeout: 30s", "%s: httpTimeout is %s", path,
            *timeout ? timeout : "not set, which means 5 s");
}

/* A request of compute needs memory as well, so the extender gets every valid pod without
 * that resource, too. */
static void check_resources(const char *path, const json_t *entry, struct checks *out)
{
    static const char *const names[] = {"aliyun.com/gpu-mem", "aliyun.com/gpu-count",
                                        "aliyun.com/gpu-core.percentage"};
    const json_t *all = edit_value(entry, "managedResources");
    if (!json_array_size(all)) {
        add(out, CHECKS_UNKNOWN, "all-pods",
            "kube-scheduler calls the extender for every pod, also to bind it: without "
            "the extender no pod of the cluster starts. That is intended only for an "
            "extender with --bind-any and at least two replicas, which is not checked",
            "kubectl get deployments -A -l component=gpushare-schd-extender -o yaml\n"
            "else: managedResources as in policy/kube-scheduler-config.yaml",
            "%s: no managedResources", path);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const json_t *found = NULL;
        bool compute = i == 2;
        cleanup_free char *fix =
            xasprintf("- name: %s\n  ignoredByScheduler: false", names[i]);
        for (size_t k = 0; k < json_array_size(all); k++)
            if (!strcmp(edit_string(json_array_get(all, k), "name"), names[i]))
                found = json_array_get(all, k);
        if (!found)
            add(out, compute ? CHECKS_NOTE : CHECKS_PROBLEM,
                compute ? "compute-unmanaged" : "resource-missing",
                "kube-scheduler does not call the extender for pods that request only "
                "this resource",
                fix, "%s: managedResources does not list %s", path, names[i]);
        else if (json_is_true(edit_value(found, "ignoredByScheduler")))
            add(out, CHECKS_PROBLEM, "ignored-by-scheduler",
                "kube-scheduler does not count this resource: it never preempts for it, "
                "and calls the extender for full nodes, too",
                "ignoredByScheduler: false", "%s: %s has ignoredByScheduler: true", path,
                names[i]);
    }
}

/* kube-scheduler uses tlsConfig in any case. enableHTTPS matters where tlsConfig names no
 * authority: with it, the certificate is not verified. */
static void check_https(const struct facts *f, const json_t *entry, bool tls,
                        struct checks *out)
{
    bool on = json_is_true(edit_value(entry, "enableHTTPS"));
    bool trusts = json_is_true(edit_value(entry, "tlsConfig.insecure")) ||
                  *edit_string(entry, "tlsConfig.caFile") ||
                  *edit_string(entry, "tlsConfig.caData");
    if (tls != on && !(tls && trusts))
        add(out, CHECKS_PROBLEM, "https",
            tls ? "without a caFile in tlsConfig, kube-scheduler trusts only public "
                  "authorities"
                : "kube-scheduler does not encrypt the calls",
            tls ? "enableHTTPS: true" : "enableHTTPS: false",
            "%s: urlPrefix begins with %s, but enableHTTPS is %s", f->config.path,
            tls ? "https://" : "http://", on ? "true" : "not true");
    for (size_t i = 0; i < FACTS_TLS_FILES; i++) {
        const struct facts_file *file = &f->tls[i];
        if (file->path && file->why.code != ERR_NONE)
            add(out, file->why.code == ERR_FORBIDDEN ? CHECKS_UNKNOWN : CHECKS_PROBLEM,
                "tls-file", "kube-scheduler exits without this file", NULL,
                "tlsConfig of %s: %s", f->config.path, file->why.msg);
    }
}

/* -- the certificate -- */

/* Does `bundle` hold every CA of `ca`? */
static bool holds_cas(struct span bundle, struct span ca)
{
    cleanup_buf struct buf all = {0};
    x509_add_cas(&all, bundle, CAS_MAX);
    size_t n = all.n;
    x509_add_cas(&all, ca, CAS_MAX);
    return n && all.n == n;
}

/* The files against each other, the time, and the Secret. */
static void check_files(const struct facts *f, bool of_secret, struct checks *out)
{
    static const char rejects[] = "the extender rejects the calls of kube-scheduler";
    static const char broken[] = "kube-scheduler cannot connect to the extender";
    const char *path = f->tls[FACTS_CERT].path;
    struct span cert = buf_span(&f->tls[FACTS_CERT].bytes),
                key = buf_span(&f->tls[FACTS_KEY].bytes),
                ca = buf_span(&f->secret[FACTS_CA]);
    size_t before = checks_count(out, CHECKS_PROBLEM);
    struct x509_info info;
    char until[32];
    struct tm tm;
    if (x509_read(cert, &info, NULL)) {
        add(out, CHECKS_PROBLEM, "certificate-malformed", broken, RENEW,
            "%s is not a certificate", path);
        return;
    }
    time_t at = (time_t)info.expires_s;
    int64_t left_s = info.expires_s - f->now_s;
    strftime(until, sizeof until, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &tm));
    if (x509_read_pair(cert, key, NULL, NULL))
        add(out, CHECKS_PROBLEM, "certificate-key", broken, RENEW,
            "%s does not belong to the key in keyFile", path);
    if (left_s <= 0)
        add(out, CHECKS_PROBLEM, "certificate-expired",
            "the extender rejects the calls of kube-scheduler, and " PENDING, RENEW,
            "%s expired at %s", path, until);
    else if (left_s < (int64_t)WARN_DAYS * DAY_S)
        add(out, CHECKS_PROBLEM, "certificate-expiring", "after that, " PENDING, RENEW,
            "%s expires in %" PRId64 " days, at %s", path, left_s / DAY_S, until);
    if (ca.n && of_secret && !x509_is_issued_by(cert, ca))
        add(out, CHECKS_PROBLEM, "certificate-other-ca", rejects, RENEW,
            "%s is not signed by the CA in Secret " FACTS_SECRET, path);
    else if (ca.n && of_secret && !holds_cas(buf_span(&f->tls[FACTS_CA].bytes), ca))
        add(out, CHECKS_PROBLEM, "ca-outdated",
            "kube-scheduler will not trust the extender's next certificate", RENEW,
            "%s stands beside a caFile without the CA in Secret " FACTS_SECRET, path);
    else if (ca.n && of_secret && !span_eq(cert, buf_span(&f->secret[FACTS_CERT])))
        add(out, CHECKS_NOTE, "certificate-renewed", NULL, RENEW,
            "Secret " FACTS_SECRET
            " has a newer certificate than %s, which is valid until %s",
            path, until);
    if (checks_count(out, CHECKS_PROBLEM) == before)
        add(out, CHECKS_OK, "certificate", NULL, NULL, "%s is valid until %s", path,
            until);
}

static void check_certificate(const struct facts *f, const json_t *entry,
                              struct checks *out)
{
    const char *named = edit_string(entry, "tlsConfig.certFile");
    if (*edit_string(entry, "tlsConfig.certData"))
        return;
    if (!*named) {
        add(out, CHECKS_PROBLEM, "no-client-certificate",
            "the extender accepts the verbs only with a client certificate", INSTALL,
            "%s: tlsConfig has no certFile", f->config.path);
        return;
    }
    for (int i = FACTS_CERT; i <= FACTS_KEY; i++)
        if (!f->tls[i].path || f->tls[i].why.code != ERR_NONE)
            return; /* reported with the other files */
    check_files(f, !strcmp(named, facts_tls_path(FACTS_CERT)), out);
}

/* False: there is no usable entry. */
static bool check_config(const struct facts *f, struct checks *out)
{
    struct scheduler_config_url url;
    struct err err = {0};
    const char *path = f->config.path;
    size_t before = checks_count(out, CHECKS_PROBLEM);
    if (!check_form(f, out))
        return false;
    const json_t *entry = scheduler_config_extender(f->config.json);
    const char *prefix = edit_string(entry, "urlPrefix");
    if (scheduler_config_read_url(prefix, &url, &err)) {
        add(out, CHECKS_PROBLEM, "bad-url", NULL,
            "urlPrefix: https://127.0.0.1:32766/gpushare-scheduler",
            "%s: invalid urlPrefix \"%s\": %s", path, prefix, err.msg);
        return false;
    }
    check_members(path, entry, out);
    check_resources(path, entry, out);
    check_https(f, entry, url.tls, out);
    if (url.tls)
        check_certificate(f, entry, out);
    if (checks_count(out, CHECKS_PROBLEM) == before)
        add(out, CHECKS_OK, "config", NULL, NULL, "%s configures the extender correctly",
            path);
    return true;
}

/* -- the extender -- */

static const struct {
    const char *id, *what, *fix;
} answers[] = {
    [FACTS_REACH_NO_ANSWER] = {"no-answer", "the extender does not answer", NULL},
    [FACTS_REACH_OTHER_PROGRAM] = {"wrong-program", "the server is not an extender",
                                   NULL},
    [FACTS_REACH_GO_EXTENDER] =
        {"go-extender", "another extender answers, with a ledger of its own",
         "kubectl replace -f manifests/deployment.yaml    # migration: "
         "docs/install.md\n"
         "kubectl -n kube-system get deployments,pods -o wide"},
    [FACTS_REACH_WRONG_PATH] = {"wrong-path",
                                "the extender does not serve this path, to which "
                                "kube-scheduler appends the verb",
                                "urlPrefix: .../gpushare-scheduler"},
    [FACTS_REACH_NOT_READY] = {"not-ready", "the extender is not ready",
                               "kubectl get pods -A -l component=gpushare-schd-extender"},
    [FACTS_REACH_WANTS_HTTPS] = {"plain-http",
                                 "the extender accepts only HTTPS, and kube-scheduler "
                                 "has http://",
                                 INSTALL},
    [FACTS_REACH_WANTS_HTTP] = {"insecure-extender",
                                "the extender runs with --insecure, and kube-scheduler "
                                "has https://",
                                INSTALL " --insecure    # or remove --insecure of the "
                                        "extender"},
    [FACTS_REACH_UNTRUSTED] = {"untrusted",
                               "the extender's certificate is not signed by the CA in "
                               "tlsConfig, or has another name",
                               INSTALL "    # or --renew, if only the files are old"},
    [FACTS_REACH_NO_CREDENTIALS] = {"no-certificate",
                                    "the extender rejects calls without a valid client "
                                    "certificate",
                                    INSTALL
                                    "    # or --renew, if only the files are old"},
    [FACTS_REACH_FORBIDDEN] = {"certificate-name",
                               "the extender rejects this client certificate",
                               INSTALL "    # or --renew, if only the files are old"},
};

void checks_reach(const struct facts *f, struct checks *out)
{
    const struct facts_reach *r = &f->reach;
    cleanup_buf struct buf url = {0}, fix = {0};
    scheduler_config_url_base(&r->url, &url);
    buf_adds(&url, r->url.path);
    if (r->answer == FACTS_REACH_NOT_TRIED) {
        add(out, CHECKS_UNKNOWN, "not-called", NULL, NULL, "%s was not called: %s", url.p,
            r->detail.msg);
        return;
    }
    if (r->answer == FACTS_REACH_OK) {
        add(out, CHECKS_OK, "reach", NULL, NULL, "the extender answers at %s", url.p);
        return;
    }
    if (answers[r->answer].fix)
        buf_adds(&fix, answers[r->answer].fix);
    else
        buf_printf(&fix,
                   "kubectl get pods,services,endpointslices -A -l "
                   "component=gpushare-schd-extender\n"
                   "curl -ik https://NODE-ADDRESS:%u/readyz    # if it answers, because "
                   "kube-proxy serves no node ports on 127.0.0.1:\n" INSTALL
                   " --address NODE-ADDRESS:%u",
                   r->url.port, r->url.port);
    add(out, CHECKS_PROBLEM, answers[r->answer].id,
        PENDING ", with this error in their events", fix.p, "%s: %s%s%s", url.p,
        answers[r->answer].what, *r->detail.msg ? ": " : "", r->detail.msg);
}

/* -- the cluster -- */

/* The images of other extenders, such as k8s-gpushare-schd-extender; the name of ours is
 * gpushare-extender. */
static bool is_other_extender(const char *image)
{
    const char *slash = strrchr(image, '/');
    struct span rest = span_of(slash ? slash + 1 : image), name = span_cut(&rest, ':');
    cleanup_free char *text = xmemdup0(name.p ? name.p : "", name.n);
    return strstr(text, "gpushare") && strstr(text, "extender") &&
           strcmp(text, "gpushare-extender") != 0;
}

static void check_cluster(const struct facts *f, struct checks *out)
{
    struct scheduler_config_pod mine, other;
    const json_t *pods = edit_value(f->pods, "items");
    bool known = facts_manifest(f, &mine);
    if (f->cluster_why.code != ERR_NONE || !f->pods) {
        add(out, CHECKS_UNKNOWN, "no-api", NULL,
            "scripts/install --check --kubeconfig /etc/kubernetes/admin.conf",
            "the API server was not checked: %s", f->cluster_why.msg);
        return;
    }
    for (size_t i = 0; i < json_array_size(pods); i++) {
        const json_t *pod = json_array_get(pods, i);
        const char *node = edit_string(pod, "spec.nodeName");
        const char *image = edit_string(pod, "spec.containers.0.image");
        cleanup_free char *mirror = xasprintf("%s-%s", known ? mine.name : "", node);
        cleanup_free char *fix = xasprintf(INSTALL "    # on node %s", node);
        if (known && scheduler_config_read_pod(pod, &other) &&
            !strcmp(other.name, mirror) &&
            !span_eq(span_of(scheduler_config_option(&mine, "config")),
                     span_of(scheduler_config_option(&other, "config"))))
            add(out, CHECKS_PROBLEM, "control-planes-differ",
                "when that control plane node leads, pods that request GPU memory are "
                "scheduled differently. (On this node: the kubelet has not applied the "
                "manifest.)",
                fix, "on node %s, kube-scheduler has another configuration file", node);
        if (is_other_extender(image))
            add(out, CHECKS_PROBLEM, "second-extender",
                "it has its own ledger: if any kube-scheduler calls it, cards are "
                "overcommitted",
                "delete its Deployment, or, if it has the same name:\n"
                "kubectl replace -f manifests/deployment.yaml    # migration: "
                "docs/install.md",
                "pod kube-system/%s runs another extender: %s",
                edit_string(pod, "metadata.name"), image);
    }
}

void checks_run(const struct facts *f, bool with_cluster, struct checks *out)
{
    if (check_scheduler(f, out) && check_config(f, out))
        checks_reach(f, out);
    if (with_cluster)
        check_cluster(f, out);
}
