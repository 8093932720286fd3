/* SPDX-License-Identifier: Apache-2.0 */

/* Reads what configures kube-scheduler: its Pod, and the extenders of its configuration. */

#include "setup/scheduler_config.h"

#include <stdio.h>

#include "base/mem.h"
#include "setup/edit.h"

/* -- the Pod -- */

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* "registry/kube-scheduler:v1.31.0@sha256:..." */
static bool is_image(const char *image)
{
    struct span name = span_of(last_part(image)), rest = name;
    return span_eq(span_cut(&rest, ':'), SPAN("kube-scheduler"));
}

static bool is_kube_scheduler(const json_t *container)
{
    const json_t *command = edit_value(container, "command");
    size_t n = json_array_size(command);
    for (size_t i = 0; i < n; i++) {
        const char *word = json_string_value(json_array_get(command, i));
        if (word && !strcmp(last_part(word), "kube-scheduler"))
            return true;
    }
    return !n && is_image(edit_string(container, "image"));
}

int scheduler_config_minor(const char *version)
{
    const char *v = strrchr(version, ':');
    int64_t minor;
    v = v ? v + 1 : version;
    struct span rest = span_of(v[0] == 'v' ? v + 1 : v);
    if (!span_eq(span_cut(&rest, '.'), SPAN("1")) ||
        !span_i64(span_cut(&rest, '.'), &minor) || minor < 0 || minor > 999)
        return 0;
    return (int)minor;
}

static int minor_of_image(const char *image)
{
    struct span rest = span_of(image), name = span_cut(&rest, '@');
    cleanup_free char *tagged = xmemdup0(name.p ? name.p : "", name.n);
    return strchr(last_part(tagged), ':') ? scheduler_config_minor(last_part(tagged)) : 0;
}

bool scheduler_config_read_pod(const json_t *pod, struct scheduler_config_pod *out)
{
    const json_t *all = edit_value(pod, "spec.containers");
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *container = json_array_get(all, i);
        if (!is_kube_scheduler(container))
            continue;
        *out = (struct scheduler_config_pod){
            .pod = pod,
            .container = container,
            .name = edit_string(pod, "metadata.name"),
            .minor = minor_of_image(edit_string(container, "image"))};
        return true;
    }
    return false;
}

/* The i-th word of command and args; NULL after the last. */
static const char *word_at(const struct scheduler_config_pod *p, size_t i)
{
    const json_t *command = edit_value(p->container, "command");
    size_t n = json_array_size(command);
    const json_t *word = i < n ? json_array_get(command, i)
                               : json_array_get(edit_value(p->container, "args"), i - n);
    return !word ? NULL : json_is_string(word) ? json_string_value(word) : "";
}

const char *scheduler_config_option(const struct scheduler_config_pod *p,
                                    const char *name)
{
    const char *value = NULL, *word, *next;
    size_t n = strlen(name);
    for (size_t i = 0; (word = word_at(p, i)); i++) {
        size_t dashes = strspn(word, "-");
        if (dashes != 2 || strncmp(word + 2, name, n) != 0)
            continue;
        if (word[2 + n] == '=')
            value = word + 3 + n;
        else if (!word[2 + n])
            value = (next = word_at(p, i + 1)) && *next != '-' ? next : "";
    }
    return value;
}

bool scheduler_config_is_process(const struct scheduler_config_pod *p,
                                 struct span arguments)
{
    const char *word;
    for (size_t i = 0; (word = word_at(p, i)); i++) {
        struct span argument = span_cut(&arguments, '\0');
        if (!argument.p || !span_eq(argument, span_of(word)))
            return false;
    }
    return !arguments.n;
}

/* The hostPath of a volume; NULL: not a hostPath volume. */
static const char *volume_path(const struct scheduler_config_pod *p, const char *name)
{
    const json_t *all = edit_value(p->pod, "spec.volumes");
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *volume = json_array_get(all, i);
        if (!strcmp(edit_string(volume, "name"), name))
            return json_string_value(edit_value(volume, "hostPath.path"));
    }
    return NULL;
}

/* The rest of `path` below `mount`, a folder or the file itself; NULL: not below it. */
static const char *below(const char *path, const char *mount)
{
    size_t n = strlen(mount);
    while (n > 1 && mount[n - 1] == '/')
        n--;
    if (n == 1 && *mount == '/')
        return path;
    if (!n || strncmp(path, mount, n) != 0 || (path[n] && path[n] != '/'))
        return NULL;
    return path + n;
}

bool scheduler_config_host_path(const struct scheduler_config_pod *p, const char *path,
                                struct buf *out)
{
    const json_t *all = edit_value(p->container, "volumeMounts"), *best = NULL;
    const char *rest = NULL;
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *mount = json_array_get(all, i);
        const char *r = below(path, edit_string(mount, "mountPath"));
        if (r && (!rest || strlen(r) <= strlen(rest))) {
            rest = r;
            best = mount;
        }
    }
    const char *from = best ? volume_path(p, edit_string(best, "name")) : NULL;
    if (!from)
        return false;
    const char *sub = edit_string(best, "subPath");
    buf_printf(out, "%s%s%s%s", from, *sub ? "/" : "", sub, rest);
    return true;
}

/* -- the extenders -- */

#define GROUP "kubescheduler.config.k8s.io/"

/* The minor versions of Kubernetes that read each apiVersion; `to` 0: no end yet. */
static const struct {
    const char *api;
    int from, to;
} apis[] = {{GROUP "v1", 25, 0},
            {GROUP "v1beta3", 23, 28},
            {GROUP "v1beta2", 22, 27},
            {GROUP "v1beta1", 19, 22}};

bool scheduler_config_reads_api(const char *api, int minor)
{
    for (size_t i = 0; i < ARRAY_LEN(apis); i++)
        if (!strcmp(api, apis[i].api))
            return minor >= apis[i].from && (!apis[i].to || minor <= apis[i].to);
    return false;
}

const char *scheduler_config_newest_api(int minor)
{
    for (size_t i = 0; i < ARRAY_LEN(apis); i++)
        if (scheduler_config_reads_api(apis[i].api, minor))
            return apis[i].api;
    return GROUP "v1";
}

static bool is_graphic(const char *text)
{
    while ((unsigned char)*text > ' ' && (unsigned char)*text < 127)
        text++;
    return !*text;
}

/* HOST, HOST:PORT or [HOST]:PORT. out->port 0: no port. */
static int read_authority(struct span s, struct scheduler_config_url *out,
                          struct err *err)
{
    bool six = s.n && *s.p == '[';
    const char *end = six ? memchr(s.p, ']', s.n) : NULL;
    struct span rest = six ? (struct span){s.p + 1, s.n - 1} : s;
    struct span host = span_cut(&rest, six ? ']' : ':'), port = rest;
    int64_t number = 0;
    if (six && port.n && *port.p == ':')
        port = (struct span){port.p + 1, port.n - 1};
    else if (six)
        number = end && !port.n ? 0 : -1;
    if (!host.n || host.n >= sizeof out->host || number < 0)
        return err_set(err, ERR_INVALID, "the host is missing, too long or malformed");
    if (!six && memchr(port.p ? port.p : "", ':', port.n))
        return err_set(err, ERR_INVALID, "an IPv6 address needs brackets");
    if ((port.n || (port.p && !six)) &&
        (!span_i64(port, &number) || number < 1 || number > 65535))
        return err_set(err, ERR_INVALID, "\"%.*s\" is not a port number", SPAN_ARG(port));
    out->port = (unsigned)number;
    snprintf(out->host, sizeof out->host, "%.*s", SPAN_ARG(host));
    return 0;
}

int scheduler_config_read_url(const char *text, struct scheduler_config_url *out,
                              struct err *err)
{
    *out = (struct scheduler_config_url){.tls = !strncmp(text, "https://", 8)};
    if (!out->tls && strncmp(text, "http://", 7) != 0)
        return err_set(err, ERR_INVALID, "expected http:// or https://");
    if (!is_graphic(text))
        return err_set(err, ERR_INVALID, "a URL cannot contain this character");
    text += out->tls ? 8 : 7;
    size_t n = strcspn(text, "/");
    struct span path = span_of(text + n);
    while (path.n && path.p[path.n - 1] == '/')
        path.n--;
    if (path.n >= sizeof out->path)
        return err_set(err, ERR_INVALID, "the path is too long");
    if (read_authority((struct span){text, n}, out, err))
        return -1;
    snprintf(out->path, sizeof out->path, "%.*s", SPAN_ARG(path));
    if (!out->port)
        out->port = out->tls ? 443 : 80;
    return 0;
}

void scheduler_config_url_base(const struct scheduler_config_url *u, struct buf *out)
{
    bool six = strchr(u->host, ':') != NULL;
    buf_printf(out, "%s://%s%s%s:%u", u->tls ? "https" : "http", six ? "[" : "", u->host,
               six ? "]" : "", u->port);
}

int scheduler_config_check_address(const char *address, struct err *err)
{
    struct scheduler_config_url u = {0};
    if (!is_graphic(address) || strpbrk(address, "/?#@") ||
        read_authority(span_of(address), &u, err) || !u.port)
        return err_set(err, ERR_INVALID, "invalid address \"%s\"; expected HOST:PORT",
                       address);
    return 0;
}

static bool manages_ours(const json_t *extender)
{
    const json_t *all = edit_value(extender, "managedResources");
    for (size_t i = 0; i < json_array_size(all); i++)
        if (!strncmp(edit_string(json_array_get(all, i), "name"), "aliyun.com/gpu-",
                     strlen("aliyun.com/gpu-")))
            return true;
    return false;
}

const json_t *scheduler_config_extender(const json_t *json)
{
    const json_t *list = edit_value(json, "extenders"), *second = NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *extender = json_array_get(list, i);
        const char *url = json_string_value(edit_value(extender, "urlPrefix"));
        if (url && strstr(url, "/gpushare-scheduler"))
            return extender;
        if (!second && (manages_ours(extender) || (url && strstr(url, ":32766"))))
            second = extender;
    }
    return second;
}

size_t scheduler_config_binders(const json_t *json)
{
    const json_t *list = edit_value(json, "extenders");
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *verb =
            json_string_value(edit_value(json_array_get(list, i), "bindVerb"));
        n += verb && *verb;
    }
    return n;
}
