/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/extender_entry.h"

#include "base/mem.h"
#include "setup/scheduler_pod.h"

#define GROUP "kubescheduler.config.k8s.io/"

/* From which minor version of Kubernetes to which it is read; 0: still. */
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
        return err_set(err, ERR_INVALID, "its %s is too long", what);
    for (size_t i = 0; i < from.n; i++)
        if ((unsigned char)from.p[i] <= ' ' || (unsigned char)from.p[i] >= 127)
            return err_set(err, ERR_INVALID, "a character that no URL has");
    if (from.n)
        memcpy(to, from.p, from.n);
    to[from.n] = '\0';
    return 0;
}

/* HOST, HOST:PORT, [HOST]:PORT. A port of 0: none is there. */
static int read_authority(struct span s, struct extender_entry_url *out, struct err *err)
{
    struct span host = s, port = {NULL, 0};
    const char *end = s.n && *s.p == '[' ? memchr(s.p, ']', s.n) : NULL;
    if (end) {
        host = (struct span){s.p + 1, (size_t)(end - s.p) - 1};
        port = (struct span){end + 1, s.n - host.n - 2};
        if (port.n && *port.p++ != ':')
            return err_set(err, ERR_INVALID, "what is behind \"]\" is no port");
        port.n -= port.n > 0;
    } else {
        struct span rest = s;
        host = span_cut(&rest, ':');
        port = rest;
        if (memchr(port.p ? port.p : "", ':', port.n))
            return err_set(err, ERR_INVALID, "an address of IPv6 wants brackets");
    }
    int64_t number = 0;
    if (!host.n)
        return err_set(err, ERR_INVALID, "it names no host");
    if (port.p && (!span_i64(port, &number) || number < 1 || number > 65535))
        return err_set(err, ERR_INVALID, "\"%.*s\" is no port", SPAN_ARG(port));
    out->port = (unsigned)number;
    return copy(host, out->host, sizeof out->host, "host", err);
}

int extender_entry_read_url(const char *text, struct extender_entry_url *out, struct err *err)
{
    struct span rest = span_of(text), authority;
    *out = (struct extender_entry_url){0};
    if (span_starts(rest, SPAN("https://")))
        out->tls = true;
    else if (!span_starts(rest, SPAN("http://")))
        return err_set(err, ERR_INVALID, "it begins with neither http:// nor https://");
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
        return err_set(err, ERR_INVALID, "\"%s\" is not of the form HOST:PORT", address);
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

/* Of Go: "1m30s", "500ms", "1.5h". Sums up; false: it is none. */
static bool go_duration(const char *s, int64_t *ms)
{
    static const struct {
        const char *unit;
        double ms;
    } units[] = {{"ns", 1e-6}, {"us", 1e-3}, {"ms", 1},
                 {"s", 1e3},   {"m", 6e4},   {"h", 3.6e6}};
    double sum = 0;
    if (!*s)
        return false;
    while (*s) {
        size_t digits = strspn(s, "0123456789."), i;
        if (!digits || digits > 15)
            return false;
        double v = 0, scale = 0;
        for (; digits; digits--, s++) {
            if (*s == '.')
                scale = 1;
            else if (!scale)
                v = v * 10 + (*s - '0');
            else
                v += (*s - '0') * (scale /= 10);
        }
        size_t letters = strspn(s, "nusmh");
        for (i = 0; i < ARRAY_LEN(units); i++)
            if (strlen(units[i].unit) == letters && !strncmp(s, units[i].unit, letters))
                break;
        if (i == ARRAY_LEN(units))
            return false;
        sum += v * units[i].ms;
        s += letters;
    }
    *ms = sum >= 1e15 ? (int64_t)1e15 : sum > 0 && sum < 1 ? 1 : (int64_t)sum;
    return true;
}

int extender_entry_timeout(const json_t *extender, bool policy, int64_t *ms,
                           struct err *err)
{
    const json_t *value = jsonpath_at(extender, "httpTimeout");
    *ms = 0;
    if (!value || json_is_null(value))
        return 0;
    if (policy) {
        if (!json_is_integer(value))
            return err_set(err, ERR_INVALID,
                           "in a Policy it is a number of nanoseconds, as 30000000000");
        *ms = json_integer_value(value) / 1000000;
        *ms += !*ms && json_integer_value(value) > 0;
        return 0;
    }
    if (!json_is_string(value) || !go_duration(json_string_value(value), ms))
        return err_set(err, ERR_INVALID, "here it is a text such as 30s");
    return 0;
}

const char *setup_extender_stranger(const json_t *extender, bool policy)
{
    static const char *const known[] = {"urlPrefix",        "filterVerb", "preemptVerb",
                                        "prioritizeVerb",   "weight",     "bindVerb",
                                        "nodeCacheCapable", "tlsConfig",  "httpTimeout",
                                        "managedResources", "ignorable"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)extender, key, value)
    {
        size_t i = 0;
        while (i < ARRAY_LEN(known) && strcmp(key, known[i]) != 0)
            i++;
        if (i == ARRAY_LEN(known) && strcmp(key, policy ? "enableHttps" : "enableHTTPS"))
            return key;
    }
    return NULL;
}
