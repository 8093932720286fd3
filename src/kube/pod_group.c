/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/pod_group.h"

#include <jansson.h>

#include "base/mem.h"

enum { VERSIONS = 3 };

static const struct source {
    const char *group, *resource, *versions[VERSIONS];
} sources[] = {
    [GANG_POD_GROUP] = {"scheduling.k8s.io",
                        "podgroups",
                        {"v1beta1", "v1alpha3", "v1alpha2"}},
    [GANG_WORKLOAD] = {"scheduling.k8s.io", "workloads", {"v1alpha1"}},
    [GANG_COSCHEDULING] = {"scheduling.x-k8s.io", "podgroups", {"v1alpha1"}},
    [GANG_KUEUE] = {0}, /* the pod says it */
    [GANG_VOLCANO] = {"scheduling.volcano.sh", "podgroups", {"v1beta1"}},
};

/* A member on the way to the minimum. NULL: it is absent or null, or of another type, and then
 * *bad and *where are the first of those. */
static json_t *get(json_t *object, const char *key, json_type type, const json_t **bad,
                   const char **where)
{
    json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value) || json_typeof(value) == type)
        return json_is_null(value) ? NULL : value;
    if (!*bad) {
        *bad = value;
        *where = key;
    }
    return NULL;
}

/* Tenants write these objects; some APIs have no schema. */
static int read_minimum(struct span body, struct span ns, const struct gang *gang,
                        uint32_t *minimum, struct err *err)
{
    bool is_text = body.n && !memchr(body.p, '\0', body.n); /* jansson skips a NUL */
    const json_t *bad = NULL;
    const char *where = "minMember";
    json_auto_t *root =
        is_text
            ? json_loadb(body.p, body.n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL)
            : NULL;
    json_t *spec = get(root, "spec", JSON_OBJECT, &bad, &where), *policy = NULL, *group;
    json_t *number = NULL;
    size_t i;
    if (gang->kind == GANG_POD_GROUP) {
        policy = get(spec, "schedulingPolicy", JSON_OBJECT, &bad, &where);
    } else if (gang->kind == GANG_WORKLOAD) {
        json_array_foreach(get(spec, "podGroups", JSON_ARRAY, &bad, &where), i, group)
        {
            const char *name = json_string_value(json_object_get(group, "name"));
            if (name && span_eq(span_of(name), gang->group))
                policy = get(group, "policy", JSON_OBJECT, &bad, &where);
        }
    } else {
        number = get(spec, where, JSON_REAL, &bad, &where);
    }
    json_t *of_gang = get(policy, "gang", JSON_OBJECT, &bad, &where);
    bool basic = get(policy, "basic", JSON_OBJECT, &bad, &where) && !of_gang;
    if (of_gang)
        number = get(of_gang, where = "minCount", JSON_REAL, &bad, &where);
    double n = number ? json_real_value(number) : basic;
    if (number && !(n >= 1 && n <= INT32_MAX && n == (double)(int64_t)n))
        bad = number;
    bool readable = json_is_object(root);
    cleanup_free char *shown = json_is_number(bad)
                                   ? xasprintf("%.15g", json_number_value(bad))
                                   : json_dumps(bad, JSON_ENCODE_ANY);
    if (!bad && readable)
        *minimum = (uint32_t)n;
    if (bad)
        return err_set(err, ERR_INVALID,
                       "%s.%s %.*s/%.*s: %s: %.64s is not a number of members (1..%d)",
                       sources[gang->kind].resource, sources[gang->kind].group,
                       SPAN_ARG(ns), SPAN_ARG(gang->name), where, shown, INT32_MAX);
    return readable ? 0 : err_set(err, ERR_INTERNAL, "the answer is no JSON object");
}

/* *minimum: by this version of the object. */
static int read_version(const struct pod_group_reader *from, const char *path,
                        struct span ns, const struct gang *gang, int64_t timeout_ms,
                        uint32_t *minimum, struct err *err)
{
    cleanup_reply struct httpc_reply reply = {0};
    const struct kube_request request = {
        .method = "GET", .path = path, .timeout_ms = timeout_ms};
    if (timeout_ms <= 0)
        return err_set(err, ERR_TIMEOUT, "no time is left for this version");
    if (from->call(from->call_ctx, &request, &reply, err) == 0)
        return read_minimum(buf_span(&reply.body), ns, gang, minimum, err);
    if (err->code == ERR_INVALID) /* the request, not what the object says */
        err->code = ERR_INTERNAL;
    return -1;
}

int pod_group_read(const struct pod_group_reader *from, struct span ns,
                   const struct gang *gang, int64_t timeout_ms, uint32_t *minimum,
                   struct err *err)
{
    const struct source *s = &sources[gang->kind];
    int64_t until_ms = from->now_ms() + timeout_ms;
    /* Tenants write names, which must change nothing else in the path. */
    if (s->group && (!kube_is_path_part(ns) || !kube_is_path_part(gang->name)))
        return err_set(err, ERR_INVALID,
                       "%s.%s: no object can have the name \"%.*s/%.*s\"", s->resource,
                       s->group, SPAN_ARG(ns), SPAN_ARG(gang->name));
    for (size_t i = 0; i < VERSIONS && s->versions[i]; i++) { /* the newest first */
        cleanup_buf struct buf path = {0};
        buf_printf(&path, "/apis/%s/%s/namespaces/%.*s/%s/%.*s", s->group, s->versions[i],
                   SPAN_ARG(ns), s->resource, SPAN_ARG(gang->name));
        int64_t left_ms = until_ms - from->now_ms();
        if (read_version(from, path.p, ns, gang, left_ms, minimum, err) == 0)
            return 0;
        if (err->code == ERR_INVALID)
            return -1;
        /* A version that the API server does not have is not found, as is a missing object. */
        if (err->code != ERR_NOT_FOUND)
            return err_wrap(err, "%s", path.p);
    }
    *minimum = 0;
    return 0;
}
