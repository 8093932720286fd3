/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/mem.h"
#include "setup/judge.h"
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
static struct proxy read_proxy(const struct setup_facts *f)
{
    struct proxy p = {0};
    const json_t *data = setup_at(f->lists[SETUP_PROXY].json, "data");
    const char *text = json_string_value(json_object_get(data, "config.conf"));
    cleanup_yaml struct yaml *y =
        text ? yaml_parse("config.conf", text, strlen(text), NULL) : NULL;
    cleanup_buf struct buf json = {0};
    if (!y)
        return p;
    yaml_json(yaml_document(y, 0), &json);
    json_t *j = json_loadb(json.p, json.n, 0, NULL);
    snprintf(p.mode, sizeof p.mode, "%s", setup_str(j, "mode"));
    p.known = j != NULL;
    p.localhost_off = json_is_false(setup_at(j, "iptables.localhostNodePorts"));
    p.addresses = json_array_size(setup_at(j, "nodePortAddresses")) > 0;
    json_decref(j);
    return p;
}

static enum obstacle obstacle_of(const struct setup_facts *f, const struct proxy *p)
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

static void say_obstacle(struct found *out, enum obstacle o, const struct proxy *p)
{
    struct finding *it;
    const char *why =
        "so nothing takes the port on 127.0.0.1, and kube-scheduler, which runs "
        "on the host's network, does not reach the extender there";
    switch (o) {
    case OF_MODE:
        it = found_add(out, FOUND_WRONG, "loopback-mode",
                       "kube-proxy runs in mode %s, which serves no node ports on the "
                       "loopback",
                       p->mode);
        break;
    case OF_IPV6:
        it = found_add(out, FOUND_WRONG, "loopback-ipv6",
                       "kube-proxy serves no node ports on ::1, in any mode");
        break;
    case OF_ADDRESSES:
        it = found_add(out, FOUND_WRONG, "loopback-addresses",
                       "kube-proxy serves node ports on its nodePortAddresses only");
        break;
    case OF_SWITCH:
        it = found_add(out, FOUND_WRONG, "loopback-switch",
                       "kube-proxy has iptables.localhostNodePorts: false");
        break;
    case OF_KERNEL:
        it = found_add(out, FOUND_WRONG, "loopback-route-localnet",
                       "route_localnet is 0 on every interface "
                       "(/proc/sys/net/ipv4/conf/*/route_localnet)");
        break;
    default:
        return;
    }
    found_why(out, it, "%s", why);
}

/* The Service's port on the nodes; 0: there is no such. */
static int node_port(const struct setup_facts *f)
{
    const json_t *all = setup_at(f->lists[SETUP_SERVICES].json, "items");
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *ports = setup_at(json_array_get(all, i), "spec.ports");
        for (size_t k = 0; k < json_array_size(ports); k++) {
            const json_t *p = setup_at(json_array_get(ports, k), "nodePort");
            if (json_integer_value(p))
                return (int)json_integer_value(p);
        }
    }
    return 0;
}

static void judge_loopback(const struct setup_facts *f, struct found *out)
{
    const struct proxy p = read_proxy(f);
    enum obstacle o = obstacle_of(f, &p);
    if (f->reach.answer != SETUP_REFUSED && f->reach.answer != SETUP_SILENT)
        return;
    if (!is_loopback(f->reach.url.host))
        return;
    int port = node_port(f);
    if (f->lists[SETUP_SERVICES].json && port != (int)f->reach.url.port)
        return; /* it cannot be the loopback: judge_cluster says what it is */
    say_obstacle(out, o, &p);
    if (o == NO_OBSTACLE && !p.known)
        found_add(
            out, FOUND_NOTE, "proxy-unknown",
            "kube-proxy's mode is not known: with nftables or ipvs, node ports are not "
            "served on the loopback");
}

/* What stands in the way, and what to do about it where the address is at fault. */
static const struct saying {
    const char *id, *what, *why;
} sayings[] = {
    [SETUP_REFUSED] = {"refused", "nothing listens there (connection refused)", NULL},
    [SETUP_SILENT] = {"silent", "no answer in time",
                      "a firewall or NetworkPolicy drops it, or the node is down"},
    [SETUP_NO_ROUTE] = {"no-route", "it cannot be reached", NULL},
    [SETUP_BROKEN] = {"no-http", "what answers there does not speak as urlPrefix says",
                      NULL},
    [SETUP_NOT_OURS] = {"wrong-program", "what answers there is no extender", NULL},
    [SETUP_GO] = {"go-extender", "an extender answers there that is not this project's",
                  "it holds its own ledger; with both, cards are promised twice"},
    [SETUP_NO_PATH] = {"wrong-path", "the extender is there, but not under this path",
                       "kube-scheduler adds the verb to urlPrefix"},
    [SETUP_NOT_READY] = {"not-ready", "the extender is there, and is not ready", NULL},
};

static void say_repair(const struct setup_facts *f, struct found *out, struct finding *it)
{
    const struct setup_reach *r = &f->reach;
    switch (r->answer) {
    case SETUP_NO_PATH:
        found_do(out, it, "urlPrefix: .../gpushare-scheduler");
        return;
    case SETUP_NOT_READY:
        found_do(out, it,
                 "kubectl -n kube-system logs deployment/gpushare-schd-extender");
        return;
    case SETUP_GO:
        found_do(out, it,
                 "kubectl replace -f manifests/deployment.yaml    # and what else "
                 "docs/operations.md says\n"
                 "kubectl -n kube-system get deployments,pods -o wide");
        return;
    default:
        break;
    }
    if (f->elsewhere)
        found_do(out, it, "scripts/install --yes --address %s    # it answers there",
                 f->elsewhere);
    else
        found_do(out, it,
                 "curl -i http://NODE-ADDRESS:%u/readyz    # where it answers, then:\n"
                 "scripts/install --yes --address NODE-ADDRESS:%u",
                 r->url.port, r->url.port);
}

void judge_reach(const struct setup_facts *f, struct found *out)
{
    const struct setup_reach *r = &f->reach;
    cleanup_buf struct buf base = {0};
    setup_url_base(&r->url, &base);
    buf_adds(&base, r->url.path);
    if (r->answer == SETUP_UNASKED) {
        found_add(out, FOUND_UNKNOWN, "not-asked", "%s was not asked: %s", base.p,
                  r->words.msg);
        return;
    }
    if (r->answer == SETUP_ANSWERS) {
        found_add(out, FOUND_GOOD, "reach", "the extender answers at %s", base.p);
        return;
    }
    const struct saying *s = &sayings[r->answer];
    struct finding *it = found_add(out, FOUND_WRONG, s->id, "%s: %s%s%s", base.p, s->what,
                                   *r->words.msg ? ": " : "", r->words.msg);
    found_why(out, it,
              "%s%spods that ask for GPU memory stay pending, with this error in "
              "their events",
              s->why ? s->why : "", s->why ? "; " : "");
    say_repair(f, out, it);
    judge_loopback(f, out);
}
