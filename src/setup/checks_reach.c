/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/mem.h"
#include "setup/checks_priv.h"
#include "wire/yaml.h"

/* kube-proxy's configuration: YAML inside its ConfigMap. NULL: unknown. New. */
static json_t *proxy_config(const struct facts *f)
{
    const json_t *data = jsonpath_at(f->lists[FACTS_PROXY].json, "data");
    const char *text = json_string_value(json_object_get(data, "config.conf"));
    cleanup_yaml struct yaml *y =
        text ? yaml_parse("config.conf", text, strlen(text), NULL) : NULL;
    cleanup_buf struct buf json = {0};
    if (!y)
        return NULL;
    yaml_json(yaml_document(y, 0), &json);
    return json_loadb(json.p, json.n, 0, NULL);
}

/* Appends why kube-proxy serves no node ports on the loopback; nothing if it does. */
static void explain_proxy(const char *host, const json_t *proxy, struct buf *out)
{
    const char *mode = jsonpath_str(proxy, "mode");
    if (!strcmp(mode, "nftables") || !strcmp(mode, "ipvs"))
        buf_printf(out, "kube-proxy runs in mode %s", mode);
    else if (!strcmp(host, "::1"))
        buf_adds(out, "kube-proxy serves no node ports on ::1, in any mode");
    else if (json_array_size(jsonpath_at(proxy, "nodePortAddresses")))
        buf_adds(out, "kube-proxy serves node ports only on its nodePortAddresses");
    else if (json_is_false(jsonpath_at(proxy, "iptables.localhostNodePorts")))
        buf_adds(out, "kube-proxy has iptables.localhostNodePorts: false");
}

static int64_t node_port(const struct facts *f)
{
    const json_t *all = checks_items(f, FACTS_SERVICES);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *ports = jsonpath_at(json_array_get(all, i), "spec.ports");
        for (size_t k = 0; k < json_array_size(ports); k++) {
            const json_t *port = jsonpath_at(json_array_get(ports, k), "nodePort");
            if (json_integer_value(port))
                return json_integer_value(port);
        }
    }
    return 0;
}

static void check_loopback(const struct facts *f, struct findings *out)
{
    cleanup_buf struct buf why = {0};
    const struct extender_entry_url *url = &f->reach.url;
    if (f->reach.answer != FACTS_REACH_REFUSED && f->reach.answer != FACTS_REACH_TIMEOUT)
        return;
    if (!checks_is_loopback(url->host))
        return;
    if (f->lists[FACTS_SERVICES].json && node_port(f) != url->port)
        return; /* urlPrefix and Service differ in the port: checks_cluster reports it */
    json_t *proxy = proxy_config(f);
    explain_proxy(url->host, proxy, &why);
    if (why.n) {
        struct finding *it = findings_add(out, FINDING_PROBLEM, "loopback", "%s", why.p);
        findings_why(out, it,
                     "node ports are not served on 127.0.0.1, where kube-scheduler, "
                     "which runs on the host's network, looks for the extender");
    }
    json_decref(proxy);
}

static const struct {
    const char *id, *what, *why;
} answers[] = {
    [FACTS_REACH_REFUSED] = {"refused", "connection refused", NULL},
    [FACTS_REACH_TIMEOUT] =
        {"timeout", "no answer in time",
         "a firewall or NetworkPolicy drops packets, or the node is down"},
    [FACTS_REACH_NO_ROUTE] = {"no-route", "unreachable", NULL},
    [FACTS_REACH_PROTOCOL_ERROR] = {"protocol-error",
                                    "the server does not speak the protocol of urlPrefix",
                                    NULL},
    [FACTS_REACH_OTHER_PROGRAM] = {"wrong-program", "the server is not an extender",
                                   NULL},
    [FACTS_REACH_GO_EXTENDER] = {"go-extender", "another extender answers",
                                 "it has its own ledger; two extenders overcommit cards"},
    [FACTS_REACH_WRONG_PATH] = {"wrong-path", "the extender does not serve this path",
                                "kube-scheduler appends the verb to urlPrefix"},
    [FACTS_REACH_WANTS_HTTPS] = {"plain-http",
                                 "the extender accepts only HTTPS, and kube-scheduler "
                                 "has http://",
                                 NULL},
    [FACTS_REACH_WANTS_HTTP] = {"insecure-extender",
                                "the extender runs with --insecure, and kube-scheduler "
                                "has https://",
                                NULL},
    [FACTS_REACH_UNTRUSTED] = {"untrusted",
                               "the extender's certificate is not signed by the CA in "
                               "tlsConfig, or has another name",
                               NULL},
    [FACTS_REACH_NO_CREDENTIALS] = {"no-certificate",
                                    "the extender rejects calls without a valid client "
                                    "certificate",
                                    NULL},
    [FACTS_REACH_FORBIDDEN] = {"certificate-name",
                               "the extender rejects this client certificate", NULL},
    [FACTS_REACH_NOT_READY] = {"not-ready", "the extender is not ready", NULL},
};

static void suggest_fix(const struct facts *f, struct findings *out, struct finding *it)
{
    switch (f->reach.answer) {
    case FACTS_REACH_WRONG_PATH:
        findings_fix(out, it, "urlPrefix: .../gpushare-scheduler");
        return;
    case FACTS_REACH_NOT_READY:
        findings_fix(out, it, "kubectl -n %s logs deployment/gpushare-schd-extender",
                     facts_namespace(f));
        return;
    case FACTS_REACH_WANTS_HTTPS:
        findings_fix(out, it, "scripts/install --yes");
        return;
    case FACTS_REACH_WANTS_HTTP:
        findings_fix(out, it,
                     "scripts/install --yes --insecure    # or remove --insecure of the "
                     "extender");
        return;
    case FACTS_REACH_UNTRUSTED:
    case FACTS_REACH_NO_CREDENTIALS:
    case FACTS_REACH_FORBIDDEN:
        findings_fix(out, it,
                     "scripts/install --yes    # or --renew, if only the files are old");
        return;
    case FACTS_REACH_GO_EXTENDER:
        findings_fix(out, it,
                     "kubectl replace -f manifests/deployment.yaml    # migration: "
                     "docs/operations.md\n"
                     "kubectl -n kube-system get deployments,pods -o wide");
        return;
    default:
        break;
    }
    if (f->reachable_at)
        findings_fix(out, it,
                     "scripts/install --yes --address %s    # the extender answers there",
                     f->reachable_at);
    else
        findings_fix(out, it,
                     "curl -i http://NODE-ADDRESS:%u/readyz    # if it answers:\n"
                     "scripts/install --yes --address NODE-ADDRESS:%u",
                     f->reach.url.port, f->reach.url.port);
}

void checks_reach(const struct facts *f, struct findings *out)
{
    const struct facts_reach *r = &f->reach;
    cleanup_buf struct buf url = {0};
    extender_entry_url_base(&r->url, &url);
    buf_adds(&url, r->url.path);
    if (r->answer == FACTS_REACH_NOT_TRIED) {
        findings_add(out, FINDING_UNKNOWN, "not-called", "%s was not called: %s", url.p,
                     r->detail.msg);
        return;
    }
    if (r->answer == FACTS_REACH_OK) {
        findings_add(out, FINDING_OK, "reach", "the extender answers at %s", url.p);
        return;
    }
    const char *why = answers[r->answer].why;
    struct finding *it =
        findings_add(out, FINDING_PROBLEM, answers[r->answer].id, "%s: %s%s%s", url.p,
                     answers[r->answer].what, *r->detail.msg ? ": " : "", r->detail.msg);
    findings_why(out, it,
                 "%s%spods that request GPU memory stay pending, with this error in "
                 "their events",
                 why ? why : "", why ? "; " : "");
    suggest_fix(f, out, it);
    check_loopback(f, out);
}
