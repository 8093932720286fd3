/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/mem.h"
#include "setup/checks.h"
#include "wire/yaml.h"

/* What speaks against node ports on the loopback, in the order in which it is looked at.
 */
enum obstacle { NO_OBSTACLE, OF_MODE, OF_IPV6, OF_ADDRESSES, OF_SWITCH, OF_KERNEL };

struct proxy {
    bool known;
    char mode[32];
    bool localhost_off; /* iptables.localhostNodePorts: false */
    bool addresses;     /* nodePortAddresses are set */
};

static bool is_loopback(const char *host)
{
    return !strncmp(host, "127.", 4) || !strcmp(host, "localhost") ||
           !strcmp(host, "::1");
}

/* kube-proxy's own configuration is YAML inside its ConfigMap. */
static struct proxy read_proxy(const struct facts *f)
{
    struct proxy p = {0};
    const json_t *data = jsonpath_at(f->lists[FACTS_PROXY].json, "data");
    const char *text = json_string_value(json_object_get(data, "config.conf"));
    cleanup_yaml struct yaml *y =
        text ? yaml_parse("config.conf", text, strlen(text), NULL) : NULL;
    cleanup_buf struct buf json = {0};
    if (!y)
        return p;
    yaml_json(yaml_document(y, 0), &json);
    json_t *j = json_loadb(json.p, json.n, 0, NULL);
    snprintf(p.mode, sizeof p.mode, "%s", jsonpath_str(j, "mode"));
    p.known = j != NULL;
    p.localhost_off = json_is_false(jsonpath_at(j, "iptables.localhostNodePorts"));
    p.addresses = json_array_size(jsonpath_at(j, "nodePortAddresses")) > 0;
    json_decref(j);
    return p;
}

static enum obstacle obstacle_of(const struct facts *f, const struct proxy *p)
{
    if (!strcmp(p->mode, "nftables") || !strcmp(p->mode, "ipvs"))
        return OF_MODE;
    if (!strcmp(f->reach.url.host, "::1"))
        return OF_IPV6;
    if (p->addresses)
        return OF_ADDRESSES;
    if (p->localhost_off)
        return OF_SWITCH;
    return f->loopback.route_localnet == 0 ? OF_KERNEL : NO_OBSTACLE;
}

static void say_obstacle(struct findings *out, enum obstacle o, const struct proxy *p)
{
    struct finding *it;
    const char *why =
        "so nothing takes the port on 127.0.0.1, and kube-scheduler, which runs "
        "on the host's network, does not reach the extender there";
    switch (o) {
    case OF_MODE:
        it = findings_add(out, FINDING_PROBLEM, "loopback-mode",
                       "kube-proxy runs in mode %s, which serves no node ports on the "
                       "loopback",
                       p->mode);
        break;
    case OF_IPV6:
        it = findings_add(out, FINDING_PROBLEM, "loopback-ipv6",
                       "kube-proxy serves no node ports on ::1, in any mode");
        break;
    case OF_ADDRESSES:
        it = findings_add(out, FINDING_PROBLEM, "loopback-addresses",
                       "kube-proxy serves node ports on its nodePortAddresses only");
        break;
    case OF_SWITCH:
        it = findings_add(out, FINDING_PROBLEM, "loopback-switch",
                       "kube-proxy has iptables.localhostNodePorts: false");
        break;
    case OF_KERNEL:
        it = findings_add(out, FINDING_PROBLEM, "loopback-route-localnet",
                       "route_localnet is 0 on every interface "
                       "(/proc/sys/net/ipv4/conf/*/route_localnet)");
        break;
    default:
        return;
    }
    findings_set_reason(out, it, "%s", why);
}

/* The Service's port on the nodes; 0: there is no such. */
static int node_port(const struct facts *f)
{
    const json_t *all = jsonpath_at(f->lists[FACTS_SERVICES].json, "items");
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *ports = jsonpath_at(json_array_get(all, i), "spec.ports");
        for (size_t k = 0; k < json_array_size(ports); k++) {
            const json_t *p = jsonpath_at(json_array_get(ports, k), "nodePort");
            if (json_integer_value(p))
                return (int)json_integer_value(p);
        }
    }
    return 0;
}

static void checks_loopback(const struct facts *f, struct findings *out)
{
    const struct proxy p = read_proxy(f);
    enum obstacle o = obstacle_of(f, &p);
    if (f->reach.answer != REACH_REFUSED && f->reach.answer != REACH_TIMEOUT)
        return;
    if (!is_loopback(f->reach.url.host))
        return;
    int port = node_port(f);
    if (f->lists[FACTS_SERVICES].json && port != (int)f->reach.url.port)
        return; /* it cannot be the loopback: checks_cluster says what it is */
    say_obstacle(out, o, &p);
    if (o == NO_OBSTACLE && !p.known)
        findings_add(
            out, FINDING_NOTE, "proxy-unknown",
            "kube-proxy's mode is not known: with nftables or ipvs, node ports are not "
            "served on the loopback");
}

/* What stands in the way, and what to do about it where the address is at fault. */
static const struct saying {
    const char *id, *what, *why;
} sayings[] = {
    [REACH_REFUSED] = {"refused", "nothing listens there (connection refused)", NULL},
    [REACH_TIMEOUT] = {"silent", "no answer in time",
                      "a firewall or NetworkPolicy drops it, or the node is down"},
    [REACH_NO_ROUTE] = {"no-route", "it cannot be reached", NULL},
    [REACH_PROTOCOL_ERROR] = {"no-http", "what answers there does not speak as urlPrefix says",
                      NULL},
    [REACH_OTHER_PROGRAM] = {"wrong-program", "what answers there is no extender", NULL},
    [REACH_GO_EXTENDER] = {"go-extender", "an extender answers there that is not this project's",
                  "it holds its own ledger; with both, cards are promised twice"},
    [REACH_WRONG_PATH] = {"wrong-path", "the extender is there, but not under this path",
                       "kube-scheduler adds the verb to urlPrefix"},
    [REACH_NOT_READY] = {"not-ready", "the extender is there, and is not ready", NULL},
};

static void say_repair(const struct facts *f, struct findings *out, struct finding *it)
{
    const struct reach_result *r = &f->reach;
    switch (r->answer) {
    case REACH_WRONG_PATH:
        findings_set_command(out, it, "urlPrefix: .../gpushare-scheduler");
        return;
    case REACH_NOT_READY:
        findings_set_command(out, it,
                 "kubectl -n kube-system logs deployment/gpushare-schd-extender");
        return;
    case REACH_GO_EXTENDER:
        findings_set_command(out, it,
                 "kubectl replace -f manifests/deployment.yaml    # and what else "
                 "docs/operations.md says\n"
                 "kubectl -n kube-system get deployments,pods -o wide");
        return;
    default:
        break;
    }
    if (f->elsewhere)
        findings_set_command(out, it, "scripts/install --yes --address %s    # it answers there",
                 f->elsewhere);
    else
        findings_set_command(out, it,
                 "curl -i http://NODE-ADDRESS:%u/readyz    # where it answers, then:\n"
                 "scripts/install --yes --address NODE-ADDRESS:%u",
                 r->url.port, r->url.port);
}

void checks_reach(const struct facts *f, struct findings *out)
{
    const struct reach_result *r = &f->reach;
    cleanup_buf struct buf base = {0};
    extender_entry_url_base(&r->url, &base);
    buf_adds(&base, r->url.path);
    if (r->answer == REACH_NOT_TRIED) {
        findings_add(out, FINDING_UNKNOWN, "not-asked", "%s was not asked: %s", base.p,
                  r->words.msg);
        return;
    }
    if (r->answer == REACH_OK) {
        findings_add(out, FINDING_OK, "reach", "the extender answers at %s", base.p);
        return;
    }
    const struct saying *s = &sayings[r->answer];
    struct finding *it = findings_add(out, FINDING_PROBLEM, s->id, "%s: %s%s%s", base.p, s->what,
                                   *r->words.msg ? ": " : "", r->words.msg);
    findings_set_reason(out, it,
              "%s%spods that ask for GPU memory stay pending, with this error in "
              "their events",
              s->why ? s->why : "", s->why ? "; " : "");
    say_repair(f, out, it);
    checks_loopback(f, out);
}
