/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/scheduler_pod.h"

#include "base/mem.h"

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
    const json_t *command = jsonpath_at(container, "command");
    size_t n = json_array_size(command);
    for (size_t i = 0; i < n; i++) {
        const char *word = json_string_value(json_array_get(command, i));
        if (word && !strcmp(last_part(word), "kube-scheduler"))
            return true;
    }
    return !n && is_image(jsonpath_str(container, "image"));
}

int scheduler_pod_parse_minor(const char *version)
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
    return strchr(last_part(tagged), ':') ? scheduler_pod_parse_minor(last_part(tagged))
                                          : 0;
}

bool scheduler_pod_read(const json_t *pod, struct scheduler_pod *out)
{
    const json_t *all = jsonpath_at(pod, "spec.containers");
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *container = json_array_get(all, i);
        if (!is_kube_scheduler(container))
            continue;
        *out = (struct scheduler_pod){
            .pod = pod,
            .container = container,
            .name = jsonpath_str(pod, "metadata.name"),
            .minor = minor_of_image(jsonpath_str(container, "image"))};
        return true;
    }
    return false;
}

/* The i-th word of command and args; NULL after the last. */
static const char *word_at(const struct scheduler_pod *p, size_t i)
{
    const json_t *command = jsonpath_at(p->container, "command");
    size_t n = json_array_size(command);
    const json_t *word = i < n ? json_array_get(command, i)
                               : json_array_get(jsonpath_at(p->container, "args"), i - n);
    return !word ? NULL : json_is_string(word) ? json_string_value(word) : "";
}

const char *scheduler_pod_option(const struct scheduler_pod *p, const char *name)
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

bool scheduler_pod_is_process(const struct scheduler_pod *p, struct span arguments)
{
    const char *word;
    for (size_t i = 0; (word = word_at(p, i)); i++) {
        struct span argument = span_cut(&arguments, '\0');
        if (!argument.p || !span_eq(argument, span_of(word)))
            return false;
    }
    return !arguments.n;
}

const char *scheduler_pod_config_option(const struct scheduler_pod *p, bool *policy)
{
    const char *config = scheduler_pod_option(p, "config");
    const char *file = scheduler_pod_option(p, "policy-config-file");
    *policy = !config && file;
    return config ? config : file ? file : "";
}

/* The hostPath of a volume; NULL: not a hostPath volume. */
static const char *volume_path(const struct scheduler_pod *p, const char *name)
{
    const json_t *all = jsonpath_at(p->pod, "spec.volumes");
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *volume = json_array_get(all, i);
        if (!strcmp(jsonpath_str(volume, "name"), name))
            return json_string_value(jsonpath_at(volume, "hostPath.path"));
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

bool scheduler_pod_host_path(const struct scheduler_pod *p, const char *path,
                             struct buf *out)
{
    const json_t *all = jsonpath_at(p->container, "volumeMounts"), *best = NULL;
    const char *rest = NULL;
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *mount = json_array_get(all, i);
        const char *r = below(path, jsonpath_str(mount, "mountPath"));
        if (r && (!rest || strlen(r) <= strlen(rest))) {
            rest = r;
            best = mount;
        }
    }
    const char *from = best ? volume_path(p, jsonpath_str(best, "name")) : NULL;
    if (!from)
        return false;
    const char *sub = jsonpath_str(best, "subPath");
    buf_printf(out, "%s%s%s%s", from, *sub ? "/" : "", sub, rest);
    return true;
}
