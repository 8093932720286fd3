/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/pod_group.h"

#include <jansson.h>

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

/* Appends the path of the object in the `i`-th API version that may have it, the newest
 * first. False: there is no further one, or a name is none that an object can have: tenants
 * write names, which must change nothing else in the path. */
static bool add_path(struct buf *out, struct span ns, const struct gang *gang, size_t i)
{
    const struct source *s = &sources[gang->kind];
    if (i >= VERSIONS || !s->versions[i] || !kube_is_path_part(ns) ||
        !kube_is_path_part(gang->name))
        return false;
    buf_printf(out, "/apis/%s/%s/namespaces/%.*s/%s/%.*s", s->group, s->versions[i],
               SPAN_ARG(ns), s->resource, SPAN_ARG(gang->name));
    return true;
}

static uint32_t number_of(const json_t *value)
{
    json_int_t n = json_integer_value(value);
    return n > 0 && n <= INT32_MAX ? (uint32_t)n : 0;
}

static uint32_t policy_of(const json_t *policy)
{
    const json_t *gang = json_object_get(policy, "gang");
    if (json_is_object(gang))
        return number_of(json_object_get(gang, "minCount"));
    return json_is_object(json_object_get(policy, "basic"));
}

static uint32_t minimum_of(struct span body, const struct gang *gang)
{
    bool is_text = body.n && !memchr(body.p, '\0', body.n); /* jansson skips a NUL */
    json_t *root = is_text ? json_loadb(body.p, body.n, JSON_ALLOW_NUL, NULL) : NULL;
    json_t *spec = json_object_get(root, "spec"), *group;
    uint32_t minimum = 0;
    size_t i;
    if (gang->kind == GANG_POD_GROUP) {
        minimum = policy_of(json_object_get(spec, "schedulingPolicy"));
    } else if (gang->kind == GANG_WORKLOAD) {
        json_array_foreach(json_object_get(spec, "podGroups"), i, group)
        {
            const char *name = json_string_value(json_object_get(group, "name"));
            if (name && span_eq(span_of(name), gang->group))
                minimum = policy_of(json_object_get(group, "policy"));
        }
    } else {
        minimum = number_of(json_object_get(spec, "minMember"));
    }
    json_decref(root);
    return minimum;
}

/* *minimum: by this version of the object. */
static int read_version(const struct pod_group_reader *from, const char *path,
                        const struct gang *gang, int64_t timeout_ms, uint32_t *minimum,
                        struct err *err)
{
    cleanup_reply struct httpc_reply reply = {0};
    const struct kube_request request = {
        .method = "GET", .path = path, .timeout_ms = timeout_ms};
    if (timeout_ms <= 0)
        return err_set(err, ERR_TIMEOUT, "no time is left for this version");
    if (from->call(from->call_ctx, &request, &reply, err))
        return -1;
    *minimum = minimum_of(buf_span(&reply.body), gang);
    return 0;
}

/* A version that the API server does not have is not found, as is a missing object. */
int pod_group_read(const struct pod_group_reader *from, struct span ns,
                   const struct gang *gang, int64_t timeout_ms, uint32_t *minimum,
                   struct err *err)
{
    cleanup_buf struct buf path = {0};
    int64_t until_ms = from->now_ms() + timeout_ms;
    for (size_t i = 0; add_path(&path, ns, gang, i); i++) {
        int64_t left_ms = until_ms - from->now_ms();
        if (read_version(from, path.p, gang, left_ms, minimum, err) == 0)
            return 0;
        if (err->code != ERR_NOT_FOUND)
            return err_wrap(err, "%s", path.p);
        buf_clear(&path);
    }
    *minimum = 0;
    return 0;
}
