/* SPDX-License-Identifier: Apache-2.0 */

/* Judges the facts: the static pod, its configuration, the certificate, and the extender's
 * answer. */

#include "setup/checks.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/opt.h"
#include "setup/change.h"
#include "setup/edit.h"
#include "wire/x509.h"

#define CRASH_LOG   "crictl logs $(crictl ps -a --name kube-scheduler -q | head -1)"
#define KUBELET_LOG "journalctl -u kubelet --since -10min"
#define INSTALL     "scripts/install --yes"
#define RENEW       "scripts/install --renew"
#define AS_ROOT     "sudo scripts/install --check"
#define PENDING     "pods that request GPU memory stay pending"
#define NO_CARD     "kube-scheduler gives pods that request GPU memory a node, but no card"
#define CERTIFICATE                                                                      \
    INSTALL "    # or --renew, if only the files of the certificate are old"

enum {
    TIMEOUT_MIN_S =
        22, /* a held bind when its leader is killed: 10 s, 7 s, and the Binding */
    DAY_S = 24 * 3600,
    WARN_DAYS = 30,
    CAS_MAX = 64
};

/* -- findings -- */

enum kind {
    OK,
    NOTE,    /* worth knowing; nothing to repair */
    UNKNOWN, /* could not be checked */
    PROBLEM,
    KINDS
};

struct checks {
    struct buf *out;
    size_t n[KINDS];
};

/* Indents all lines by the width of the mark, which precedes the first. */
static void write_lines(struct buf *out, const char *mark, const char *text)
{
    for (struct span rest = span_of(text ? text : ""); rest.n; mark = "") {
        buf_printf(out, "%-8s", mark);
        buf_add_printable(out, span_cut(&rest, '\n'));
        buf_addc(out, '\n');
    }
}

/* Adds a finding with its effect and its repair, which may be NULL. `id` is stable; it is
 * shown unless everything is in order. */
__attribute__((format(printf, 6, 7))) static void add(struct checks *c, enum kind kind,
                                                      const char *id, const char *why,
                                                      const char *fix, const char *fmt,
                                                      ...)
{
    static const char *const marks[KINDS] = {"ok", "note", "unknown", "PROBLEM"};
    cleanup_buf struct buf what = {0};
    va_list ap;
    if (kind >= UNKNOWN)
        buf_printf(&what, "%s: ", id);
    va_start(ap, fmt);
    buf_vprintf(&what, fmt, ap);
    va_end(ap);
    write_lines(c->out, marks[kind], what.p);
    write_lines(c->out, "  why", why);
    write_lines(c->out, "  fix", fix);
    c->n[kind]++;
}

static int status_of(const struct checks *c)
{
    return c->n[PROBLEM] ? 1 : c->n[UNKNOWN] ? 2 : 0;
}

/* -- the static pod -- */

/* Adds a finding for a file that could not be read or parsed. */
static void add_file(struct checks *out, const char *id, const struct err *why,
                     const char *effect, const char *fix)
{
    bool denied = why->code == ERR_FORBIDDEN;
    add(out, denied ? UNKNOWN : PROBLEM, id, effect, denied ? AS_ROOT : fix, "%s",
        why->msg);
}

static void check_process(const struct facts *f, struct checks *out)
{
    const char *path = f->manifest.path;
    const struct facts_file *newer = facts_newer_file(f);
    cleanup_free char *restart =
        xasprintf("kill %d    # the kubelet restarts it", f->pid);
    if (newer)
        add(out, PROBLEM, "older-than-file",
            "kube-scheduler reads this file only when it starts", restart,
            "kube-scheduler (process %d) started before %s was changed", f->pid,
            newer->path);
    else if (f->pid)
        add(out, OK, "", NULL, NULL, "process %d runs with the options of %s", f->pid,
            path);
    else if (f->other_pid)
        add(out, PROBLEM, "other-arguments",
            "the kubelet has not applied the manifest: it is busy, stopped, or rejects "
            "the file",
            KUBELET_LOG,
            "kube-scheduler (process %d) does not run with the options of %s",
            f->other_pid, path);
    else
        add(out, PROBLEM, "not-running",
            "it exited, perhaps because of its configuration, or the kubelet does not "
            "start it",
            CRASH_LOG "\n" KUBELET_LOG, "kube-scheduler does not run on this node");
}

/* False: kube-scheduler reads no configuration with an entry of the extender. */
static bool check_scheduler(const struct facts *f, struct checks *out)
{
    const char *inside = facts_option(f, "config");
    const struct err *why = &f->manifest.why;
    if (why->code == ERR_NOT_FOUND)
        add(out, PROBLEM, "no-static-pod",
            "only the static pod of a control plane node of kubeadm can be configured. "
            "Everywhere else the chart runs a kube-scheduler of its own",
            "on a control plane node of kubeadm: scripts/install --check\n"
            "elsewhere: " FACTS_INSTEAD,
            "%s", why->msg);
    else if (why->code != ERR_NONE)
        add_file(out, why->code == ERR_CONFLICT ? "two-manifests" : "manifest-unreadable",
                 why,
                 "the kubelet reads every file in this folder, whatever its suffix, and "
                 "ignores manifests that it cannot parse",
                 "journalctl -u kubelet");
    if (why->code != ERR_NONE)
        return false;
    cleanup_buf struct buf removed = {0};
    facts_add_removed(&removed, f);
    if (removed.n)
        add(out, PROBLEM, "removed-flag",
            "kube-scheduler exits when it does not know an option",
            "delete these lines of the manifest of the static pod", "%s", removed.p);
    if (inside && !f->config.mounted)
        add(out, PROBLEM, "not-mounted",
            "kube-scheduler does not find the file in its container, and exits",
            INSTALL ", which adds the mount", "%s: no hostPath volume is mounted at %s",
            f->manifest.path, inside);
    else if (!inside)
        add(out, PROBLEM, "no-option", NO_CARD, INSTALL,
            "kube-scheduler (%s) has no --config", f->manifest.path);
    check_process(f, out);
    if (!inside || !f->config.mounted)
        return false;
    why = &f->config.why;
    cleanup_free char *remove =
        xasprintf("rmdir %s    # if the container runtime has made a directory\n" INSTALL,
                  f->config.path);
    if (why->code != ERR_NONE)
        add_file(out, why->code == ERR_NOT_FOUND ? "file-absent" : "config-malformed",
                 why, "kube-scheduler exits when it reads this file",
                 why->code == ERR_NOT_FOUND     ? INSTALL
                 : why->code == ERR_UNAVAILABLE ? remove
                                                : NULL);
    else if (!f->entry)
        add(out, PROBLEM, "no-extender", NO_CARD, INSTALL ", which adds the entry",
            "%s has no extender for aliyun.com/gpu-mem", f->config.path);
    return f->entry != NULL;
}

/* -- the configuration -- */

static void check_entry(const struct facts *f, struct checks *out)
{
    static const struct {
        const char *id, *name, *want, *why;
    } members[] = {
        {"no-filter", "filterVerb", "filter",
         "nodes whose cards are full are not rejected"},
        {"no-bind", "bindVerb", "bind",
         "pods are bound without a card, and their containers do not start"},
        {"no-prioritize", "prioritizeVerb", "prioritize",
         "pods are spread over the nodes, so that large pods do not fit later"},
        {"no-preempt", "preemptVerb", "preempt",
         "kube-scheduler evicts pods without knowing whether that frees a card"},
        {"ignorable", "ignorable", "false",
         "while the extender is unavailable, pods are bound without a card (since 1.30 "
         "also after a failed bind)"},
        {"no-node-cache", "nodeCacheCapable", "true",
         "each call carries whole Node objects, and all nodes look idle to prioritize"}};
    static const char *const names[] = {"aliyun.com/gpu-mem", "aliyun.com/gpu-count",
                                        "aliyun.com/gpu-share"};
    const json_t *all = jpath(f->entry, "managedResources");
    const char *path = f->config.path;
    int64_t ms = 0;
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        const json_t *v = jpath(f->entry, members[i].name);
        const char *value = json_is_true(v)    ? "true"
                            : json_is_false(v) ? "false"
                                               : jpath_string(v, "");
        cleanup_free char *fix = xasprintf("%s: %s", members[i].name, members[i].want);
        if (strcmp(value, members[i].want) && (v || strcmp(members[i].want, "false")))
            add(out, PROBLEM, members[i].id, members[i].why, fix, "%s: %s is \"%s\"",
                path, members[i].name, value);
    }
    const char *timeout = jpath_string(f->entry, "httpTimeout");
    if (!*timeout || (opt_parse_duration(span_of(timeout), &ms, NULL) == 0 &&
                      ms < TIMEOUT_MIN_S * 1000))
        add(out, PROBLEM, "timeout-short",
            "a bind may take 22 s, and is held up to 10 s for its gang; kube-scheduler "
            "would give up before",
            "httpTimeout: 30s", "%s: httpTimeout is %s", path,
            *timeout ? timeout : "not set, which means 5 s");
    /* Without managedResources, kube-scheduler calls the extender for all pods. */
    for (size_t i = 0; json_array_size(all) && i < ARRAY_LEN(names); i++) {
        bool found = false;
        for (size_t k = 0; k < json_array_size(all); k++)
            found |= !strcmp(jpath_string(json_array_get(all, k), "name"), names[i]);
        cleanup_free char *fix =
            xasprintf("- name: %s\n  ignoredByScheduler: false", names[i]);
        if (!found)
            add(out, PROBLEM, "resource-missing",
                "kube-scheduler does not call the extender for pods that request only "
                "this resource",
                fix, "%s: managedResources does not list %s", path, names[i]);
    }
    if (!*jpath_string(f->config.json, "clientConnection.kubeconfig"))
        add(out, PROBLEM, "no-kubeconfig",
            "with --config, kube-scheduler ignores --kubeconfig and does not find the "
            "API server",
            "clientConnection:\n  kubeconfig: /etc/kubernetes/scheduler.conf",
            "%s has no clientConnection.kubeconfig", path);
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

/* The files of tlsConfig against each other, the time, and the Secret. */
static void check_certificate(const struct facts *f, struct checks *out)
{
    static const char rejects[] =
        "the extender rejects the calls of kube-scheduler, and " PENDING;
    const char *path = f->named[SECRET_CERT].path;
    struct span cert = buf_span(&f->named[SECRET_CERT].bytes), ca = {0};
    size_t before = out->n[PROBLEM], unknown = out->n[UNKNOWN];
    struct x509_info info;
    struct err err;
    cleanup_buf struct buf time = {0};
    for (size_t i = 0; i < SECRET_KEYS; i++)
        if (f->named[i].why.code != ERR_NONE)
            add_file(out, "tls-file", &f->named[i].why,
                     "kube-scheduler exits without this file", INSTALL);
    if (out->n[PROBLEM] > before || out->n[UNKNOWN] > unknown)
        return;
    if (!path || !f->named[SECRET_KEY].path) {
        add(out, PROBLEM, "no-client-certificate",
            "the extender accepts the verbs only with a client certificate", INSTALL,
            "%s: tlsConfig has no certFile or no keyFile", f->config.path);
        return;
    }
    if (x509_read_pair(cert, buf_span(&f->named[SECRET_KEY].bytes), &info, &err)) {
        add(out, PROBLEM, "certificate-malformed",
            "kube-scheduler cannot connect to the extender", RENEW,
            "%s and the key beside it are not a certificate and its key: %s", path,
            err.msg);
        return;
    }
    int64_t left_s = info.expires_s - f->now_s;
    clock_format_s(&time, info.expires_s);
    if (left_s < (int64_t)WARN_DAYS * DAY_S)
        add(out, PROBLEM, left_s > 0 ? "certificate-expiring" : "certificate-expired",
            rejects, RENEW, "%s expire%s at %s", path, left_s > 0 ? "s" : "d", time.p);
    if (facts_has_our_certificate(f->entry))
        ca = buf_span(&f->secret.data[SECRET_CA]);
    if (ca.n && (!x509_is_issued_by(cert, ca) ||
                 !holds_cas(buf_span(&f->named[SECRET_CA].bytes), ca)))
        add(out, PROBLEM, "ca-outdated", rejects, RENEW,
            "%s, or the CA beside it, is not of the CA in Secret " FACTS_SECRET, path);
    else if (ca.n && !span_eq(cert, buf_span(&f->secret.data[SECRET_CERT])))
        add(out, NOTE, "", NULL, RENEW,
            "Secret " FACTS_SECRET
            " has a newer certificate than %s, which is valid until %s",
            path, time.p);
    if (out->n[PROBLEM] == before)
        add(out, OK, "", NULL, NULL, "%s is valid until %s", path, time.p);
}

/* -- the extender -- */

static void check_reach(const struct facts *f, struct checks *out)
{
    static const struct {
        const char *id, *what, *fix;
    } answers[] = {
        [FACTS_REACH_NO_ANSWER] =
            {"no-answer", "the extender does not answer",
             "kubectl get pods,services,endpointslices -A -l "
             "component=gpushare-schd-extender\n"
             "scripts/install --undo    # if the chart was uninstalled\n"
             "curl -ik https://NODE-ADDRESS:32766/readyz    # with IPv6 in brackets. If "
             "this answers, because kube-proxy serves no node ports on "
             "127.0.0.1:\n" INSTALL " --address NODE-ADDRESS:32766\n" CERTIFICATE},
        [FACTS_REACH_GO_EXTENDER] =
            {"go-extender", "another extender answers, with a ledger of its own",
             "kubectl replace -f manifests/deployment.yaml    # migration: "
             "docs/install.md\n"
             "kubectl -n kube-system get deployments,pods -o wide"},
        [FACTS_REACH_NOT_READY] =
            {"not-ready", "the extender is not ready",
             "kubectl get pods -A -l component=gpushare-schd-extender"},
        [FACTS_REACH_REJECTED] = {"rejected",
                                  "no extender, another path, or another certificate",
                                  "urlPrefix: .../gpushare-scheduler    # of the "
                                  "extender's Service\n" CERTIFICATE},
    };
    if (f->answer == FACTS_REACH_OK)
        add(out, OK, "", NULL, NULL, "the extender answers at %s", f->url);
    else if (f->answer != FACTS_REACH_NOT_TRIED)
        add(out, PROBLEM, answers[f->answer].id,
            PENDING ", with this error in their events", answers[f->answer].fix,
            "%s: %s%s%s", f->url, answers[f->answer].what, *f->detail.msg ? ": " : "",
            f->detail.msg);
}

int checks_reach(const struct facts *f, struct buf *out)
{
    struct checks c = {.out = out};
    check_reach(f, &c);
    return status_of(&c);
}

int checks_run(const struct facts *f, bool with_cluster, struct buf *out)
{
    const struct err *why = &f->secret_why;
    struct checks c = {.out = out};
    if (f->container && why->code == ERR_NOT_FOUND &&
        (!f->entry || (f->namespace && facts_has_our_certificate(f->entry))))
        add(&c, PROBLEM, "no-secret",
            "the extender writes it when it starts, unless it has --insecure",
            "helm install gpushare manifests/chart -n NAMESPACE --set "
            "image.registry=REGISTRY,scheduler.enabled=false    # comes first\n"
            "scripts/install --check --namespace NAME    # if the release is there\n"
            "scripts/install --insecure --yes    # if the extender has --insecure",
            "%s", why->msg);
    if (check_scheduler(f, &c)) {
        check_entry(f, &c);
        if (!strncmp(jpath_string(f->entry, "urlPrefix"), "https:", 6))
            check_certificate(f, &c);
        check_reach(f, &c);
    }
    const char *config = facts_option(f, "config");
    const struct err *kubeadm = &f->kubeadm.why;
    if (f->entry && config && f->kubeadm.path &&
        (kubeadm->code == ERR_NONE || kubeadm->code == ERR_INVALID)) {
        cleanup_edit struct edit e = {0};
        struct err err = {0};
        if (change_kubeadm(f, config, facts_has_our_certificate(f->entry), &e, &err) ||
            !span_eq(buf_span(&e.text), buf_span(&f->kubeadm.bytes)))
            add(&c, PROBLEM, "upgrade-undoes",
                "kubeadm upgrade writes the static pod from this ConfigMap",
                *err.msg ? "kubectl -n kube-system edit configmap kubeadm-config    # "
                           "policy/README.md"
                         : INSTALL,
                "ConfigMap %s: scheduler lacks --config or its volumes%s%s",
                f->kubeadm.path, *err.msg ? ": " : "", err.msg);
    } else if (f->entry && (why->code == ERR_NONE || why->code == ERR_NOT_FOUND)) {
        why = kubeadm;
    }
    /* An extender with --insecure has no Secret. */
    if (with_cluster && why->code != ERR_NONE && why->code != ERR_NOT_FOUND)
        add(&c, UNKNOWN, "no-api", NULL,
            "scripts/install --check --kubeconfig /etc/kubernetes/admin.conf", "%s",
            why->msg);
    return status_of(&c);
}
