/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "setup/checks_priv.h"

/*
 * kubeadm copies its own HTTP_PROXY into the static pods. kube-scheduler's client for
 * extenders uses it like every Go program: all hosts except the loopback and those of
 * NO_PROXY are called through the proxy (golang.org/x/net/http/httpproxy).
 */

/* An environment variable of the container, by its name or its lower-case name; "": not
 * set. */
static const char *variable(const json_t *container, const char *name, const char *lower)
{
    const char *const names[] = {name, lower};
    const json_t *all = jsonpath_at(container, "env");
    for (size_t k = 0; k < ARRAY_LEN(names); k++) {
        const char *value = "";
        for (size_t i = 0; i < json_array_size(all); i++)
            if (!strcmp(jsonpath_str(json_array_get(all, i), "name"), names[k]))
                value = jsonpath_str(json_array_get(all, i), "value");
        if (*value)
            return value;
    }
    return "";
}

struct address {
    int family; /* AF_UNSPEC: not an address, but a name */
    unsigned char bytes[16];
};

static struct address address_of(const char *text)
{
    struct address a = {.family = AF_INET};
    if (inet_pton(AF_INET, text, a.bytes) == 1)
        return a;
    a.family = inet_pton(AF_INET6, text, a.bytes) == 1 ? AF_INET6 : AF_UNSPEC;
    return a;
}

bool checks_is_loopback(const char *host)
{
    struct address a = address_of(host);
    return !strcasecmp(host, "localhost") || (a.family == AF_INET && a.bytes[0] == 127) ||
           (a.family == AF_INET6 && !strcmp(host, "::1"));
}

/* Is the address in the CIDR block NETWORK/BITS? */
static bool is_within(const struct address *a, const char *network, struct span bits)
{
    struct address of = address_of(network);
    int64_t n, max = of.family == AF_INET ? 32 : 128;
    if (of.family == AF_UNSPEC || of.family != a->family || !span_i64(bits, &n) ||
        n < 0 || n > max)
        return false;
    size_t whole = (size_t)n / 8;
    unsigned rest = (unsigned)n % 8, mask = 0xffu << (8 - rest) & 0xff;
    return memcmp(a->bytes, of.bytes, whole) == 0 &&
           (!rest || ((a->bytes[whole] ^ of.bytes[whole]) & mask) == 0);
}

/* "d.test" matches this domain and its subdomains; ".d.test" and "*.d.test" match only
 * the subdomains. */
static bool is_in_domain(const char *host, const char *rule)
{
    rule += *rule == '*' && rule[1] == '.';
    size_t n = strlen(host), m = strlen(rule);
    if (!m || n < m || strcasecmp(host + n - m, rule) != 0)
        return false;
    return *rule == '.' ? n > m : n == m || host[n - m - 1] == '.';
}

/* Does an entry of NO_PROXY match the URL? */
static bool matches(struct span entry, const struct extender_entry_url *url)
{
    struct span rest = span_trim(entry), host;
    struct address a = address_of(url->host);
    cleanup_free char *whole = xmemdup0(rest.p ? rest.p : "", rest.n);
    if (!strcmp(whole, "*"))
        return true;
    host = span_cut(&rest, '/');
    if (rest.p) {
        cleanup_free char *network = xmemdup0(host.p ? host.p : "", host.n);
        return a.family != AF_UNSPEC && is_within(&a, network, rest);
    }
    struct address of = address_of(whole);
    if (of.family != AF_UNSPEC)
        return of.family == a.family && !memcmp(of.bytes, a.bytes, sizeof a.bytes);
    struct extender_entry_url named = {0};
    cleanup_free char *text = xasprintf("http://%s", whole);
    if (extender_entry_read_url(text, &named, NULL))
        return false;
    if (strrchr(whole, ':') && named.port != url->port)
        return false;
    return a.family == AF_UNSPEC ? is_in_domain(url->host, named.host)
                                 : !strcmp(url->host, named.host);
}

void checks_proxy(const struct facts *f, const struct extender_entry_url *url,
                  struct findings *out)
{
    struct scheduler_pod pod;
    const struct facts_file *manifest = facts_manifest(f, &pod);
    if (!manifest || checks_is_loopback(url->host))
        return;
    const char *proxy = url->tls ? variable(pod.container, "HTTPS_PROXY", "https_proxy")
                                 : variable(pod.container, "HTTP_PROXY", "http_proxy");
    struct span rest = span_of(variable(pod.container, "NO_PROXY", "no_proxy"));
    if (!*proxy)
        return;
    while (rest.n)
        if (matches(span_cut(&rest, ','), url))
            return;
    struct finding *it = findings_add(
        out, FINDING_PROBLEM, "proxy",
        "%s sets %s for kube-scheduler, and its NO_PROXY does not include %s",
        manifest->path, url->tls ? "HTTPS_PROXY" : "HTTP_PROXY", url->host);
    findings_why(
        out, it,
        "kube-scheduler calls the extender through the proxy, although this node "
        "may reach it directly; only loopback addresses never use the proxy");
    findings_fix(out, it, "add %s to NO_PROXY in %s", url->host, manifest->path);
}
