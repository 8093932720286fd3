/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/extender_entry.h"

#include "base/mem.h"

#define GROUP "kubescheduler.config.k8s.io/"

/* The minor versions of Kubernetes that read each apiVersion; `to` 0: no end yet. */
static const struct {
    const char *api;
    int from, to;
} apis[] = {{GROUP "v1", 25, 0},        {GROUP "v1beta3", 23, 28},
            {GROUP "v1beta2", 22, 27},  {GROUP "v1beta1", 19, 22},
            {GROUP "v1alpha2", 18, 18}, {GROUP "v1alpha1", 11, 18}};

bool extender_entry_supports_api(const char *api, int minor)
{
    for (size_t i = 0; i < ARRAY_LEN(apis); i++)
        if (!strcmp(api, apis[i].api))
            return minor >= apis[i].from && (!apis[i].to || minor <= apis[i].to);
    return false;
}

const char *extender_entry_newest_api(int minor)
{
    for (size_t i = 0; i < ARRAY_LEN(apis); i++)
        if (extender_entry_supports_api(apis[i].api, minor))
            return apis[i].api;
    return GROUP "v1";
}

static int copy(struct span from, char *to, size_t size, const char *what,
                struct err *err)
{
    if (from.n >= size)
        return err_set(err, ERR_INVALID, "the %s is too long", what);
    for (size_t i = 0; i < from.n; i++)
        if ((unsigned char)from.p[i] <= ' ' || (unsigned char)from.p[i] >= 127)
            return err_set(err, ERR_INVALID, "a URL cannot contain this character");
    if (from.n)
        memcpy(to, from.p, from.n);
    to[from.n] = '\0';
    return 0;
}

/* HOST, HOST:PORT or [HOST]:PORT. out->port 0: no port. */
static int read_authority(struct span s, struct extender_entry_url *out, struct err *err)
{
    struct span host = s, port = {NULL, 0};
    const char *end = s.n && *s.p == '[' ? memchr(s.p, ']', s.n) : NULL;
    if (end) {
        host = (struct span){s.p + 1, (size_t)(end - s.p) - 1};
        port = (struct span){end + 1, s.n - host.n - 2};
        if (port.n && *port.p++ != ':')
            return err_set(err, ERR_INVALID, "\"]\" must be followed by \":PORT\"");
        port.n -= port.n > 0;
    } else {
        struct span rest = s;
        host = span_cut(&rest, ':');
        port = rest;
        if (memchr(port.p ? port.p : "", ':', port.n))
            return err_set(err, ERR_INVALID, "an IPv6 address needs brackets");
    }
    int64_t number = 0;
    if (!host.n)
        return err_set(err, ERR_INVALID, "the host is missing");
    if (port.p && (!span_i64(port, &number) || number < 1 || number > 65535))
        return err_set(err, ERR_INVALID, "\"%.*s\" is not a port number", SPAN_ARG(port));
    out->port = (unsigned)number;
    return copy(host, out->host, sizeof out->host, "host", err);
}

int extender_entry_read_url(const char *text, struct extender_entry_url *out,
                            struct err *err)
{
    struct span rest = span_of(text), authority;
    *out = (struct extender_entry_url){0};
    if (span_starts(rest, SPAN("https://")))
        out->tls = true;
    else if (!span_starts(rest, SPAN("http://")))
        return err_set(err, ERR_INVALID, "expected http:// or https://");
    rest.p += out->tls ? 8 : 7;
    rest.n -= out->tls ? 8 : 7;
    authority = rest;
    const char *slash = memchr(rest.p, '/', rest.n);
    if (slash)
        authority.n = (size_t)(slash - rest.p);
    rest.p += authority.n;
    rest.n -= authority.n;
    while (rest.n && rest.p[rest.n - 1] == '/')
        rest.n--;
    if (read_authority(authority, out, err) ||
        copy(rest, out->path, sizeof out->path, "path", err))
        return -1;
    if (!out->port)
        out->port = out->tls ? 443 : 80;
    return 0;
}

void extender_entry_url_base(const struct extender_entry_url *u, struct buf *out)
{
    bool six = strchr(u->host, ':') != NULL;
    buf_printf(out, "%s://%s%s%s:%u", u->tls ? "https" : "http", six ? "[" : "", u->host,
               six ? "]" : "", u->port);
}

int extender_entry_check_address(const char *address, struct err *err)
{
    struct extender_entry_url u = {0};
    if (strpbrk(address, "/?#@ ") || read_authority(span_of(address), &u, err) || !u.port)
        return err_set(err, ERR_INVALID, "invalid address \"%s\"; expected HOST:PORT",
                       address);
    return 0;
}

const json_t *extender_entry_list(const json_t *json)
{
    const json_t *list = jsonpath_at(json, "extenders");
    return json_is_array(list) ? list : NULL;
}

static bool manages_ours(const json_t *extender)
{
    const json_t *all = jsonpath_at(extender, "managedResources");
    for (size_t i = 0; i < json_array_size(all); i++)
        if (!strncmp(jsonpath_str(json_array_get(all, i), "name"), "aliyun.com/gpu-",
                     strlen("aliyun.com/gpu-")))
            return true;
    return false;
}

const json_t *extender_entry_find(const json_t *json)
{
    const json_t *list = extender_entry_list(json), *second = NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *extender = json_array_get(list, i);
        const char *url = json_string_value(jsonpath_at(extender, "urlPrefix"));
        if (url && strstr(url, "/gpushare-scheduler"))
            return extender;
        if (!second && (manages_ours(extender) || (url && strstr(url, ":32766"))))
            second = extender;
    }
    return second;
}

size_t extender_entry_count_binders(const json_t *json)
{
    const json_t *list = extender_entry_list(json);
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *verb =
            json_string_value(jsonpath_at(json_array_get(list, i), "bindVerb"));
        n += verb && *verb;
    }
    return n;
}

static int64_t unit_ns(struct span unit)
{
    static const struct {
        const char *name;
        int64_t ns;
    } units[] = {{"ns", 1},
                 {"us", 1000},
                 {"ms", 1000000},
                 {"s", 1000000000},
                 {"m", INT64_C(60000000000)},
                 {"h", INT64_C(3600000000000)}};
    for (size_t i = 0; i < ARRAY_LEN(units); i++)
        if (span_eq(unit, span_of(units[i].name)))
            return units[i].ns;
    return 0;
}

/* A Go duration of whole numbers: "1m30s", "500ms". */
static bool parse_duration(struct span s, int64_t *ms)
{
    int64_t sum_ns = 0;
    while (s.n) {
        struct span number = s, unit;
        int64_t n, ns;
        while (s.n && *s.p >= '0' && *s.p <= '9')
            s = (struct span){s.p + 1, s.n - 1};
        number.n -= s.n;
        unit = s;
        while (s.n && (*s.p < '0' || *s.p > '9'))
            s = (struct span){s.p + 1, s.n - 1};
        unit.n -= s.n;
        if (!span_i64(number, &n) || !(ns = unit_ns(unit)) ||
            __builtin_mul_overflow(n, ns, &n) ||
            __builtin_add_overflow(sum_ns, n, &sum_ns))
            return false;
    }
    *ms = sum_ns / 1000000 + (sum_ns % 1000000 != 0);
    return true;
}

bool extender_entry_timeout(const json_t *entry, bool policy, int64_t *ms)
{
    const json_t *value = jsonpath_at(entry, "httpTimeout");
    *ms = 0;
    if (!value || json_is_null(value))
        return true;
    *ms = (json_integer_value(value) + 999999) / 1000000;
    if (policy)
        return json_is_integer(value);
    struct span text = span_of(json_string_value(value));
    return text.n && parse_duration(text, ms);
}
