/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/cluster.h"

#include "base/mem.h"

#define EXTENDER  "?labelSelector=component%3Dgpushare-schd-extender"
#define LEASES_OF "nvidia-gpu-scheduler-node-lease"
#define ACCOUNT   "gpushare-schd-extender"

enum { TIMEOUT_MS = 10 * 1000 };

static const char *const paths[FACTS_KINDS] = {
    [FACTS_VERSION] = "/version",
    [FACTS_SYSTEM_PODS] = "/api/v1/namespaces/kube-system/pods",
    [FACTS_SERVICES] = "/api/v1/services" EXTENDER,
    /* They have the labels of their Service. */
    [FACTS_SLICES] = "/apis/discovery.k8s.io/v1/endpointslices" EXTENDER,
    [FACTS_DEPLOYMENTS] = "/apis/apps/v1/deployments" EXTENDER,
    [FACTS_EXTENDERS] = "/api/v1/pods" EXTENDER,
    [FACTS_PROXY] = "/api/v1/namespaces/kube-system/configmaps/kube-proxy",
    [FACTS_CRD] = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
                  "scvs.core.run-linux.com",
    [FACTS_SCVS] = "/apis/core.run-linux.com/v1/scvs",
    [FACTS_NODES] = "/api/v1/nodes",
    [FACTS_PLUGINS] =
        "/apis/apps/v1/daemonsets?labelSelector=component%3Dgpushare-device-plugin",
    [FACTS_PENDING] =
        "/api/v1/pods?fieldSelector=spec.nodeName%3D,status.phase%3DPending",
    [FACTS_EVENTS] = "/api/v1/events?fieldSelector=reason%3DFailedScheduling",
};

const struct cluster_right cluster_rights[] = {
    {"get", "", "pods", NULL, NULL, NULL},
    {"list", "", "pods", NULL, NULL, NULL},
    {"watch", "", "pods", NULL, NULL, NULL},
    {"create", "", "pods", "binding", NULL, NULL},
    {"list", "", "nodes", NULL, NULL, NULL},
    {"watch", "", "nodes", NULL, NULL, NULL},
    {"patch", "", "nodes", NULL, NULL, NULL},
    {"list", "core.run-linux.com", "scvs", NULL, NULL, NULL},
    {"watch", "core.run-linux.com", "scvs", NULL, NULL, NULL},
    {"create", "events.k8s.io", "events", NULL, NULL, NULL},
    {"list", "", "configmaps", NULL, "kube-system", NULL},
    {"watch", "", "configmaps", NULL, "kube-system", NULL},
    {"get", "coordination.k8s.io", "leases", NULL, "kube-system", "gpushare-extender"},
    {"patch", "coordination.k8s.io", "leases", NULL, "kube-system", "gpushare-extender"},
    {"create", "coordination.k8s.io", "leases", NULL, "kube-system", NULL},
    {"list", "coordination.k8s.io", "leases", NULL, LEASES_OF, NULL},
    {"watch", "coordination.k8s.io", "leases", NULL, LEASES_OF, NULL},
    {0}};

static json_t *call(struct kube_client *client, const char *method, const char *path,
                    struct span body, struct err *err)
{
    struct httpc_reply reply = {0};
    json_t *j = NULL;
    json_error_t bad;
    const struct kube_request request = {.method = method,
                                         .path = path,
                                         .body = body,
                                         .gzip = true,
                                         .timeout_ms = TIMEOUT_MS};
    int rc = kube_call(client, &request, &reply, err);
    if (rc == 0)
        rc = kube_reply_check(reply.status, buf_span(&reply.body), err);
    if (rc == 0 &&
        !(j = json_loadb(reply.body.n ? reply.body.p : "", reply.body.n, 0, &bad)))
        err_set(err, ERR_INVALID, "%s: no JSON: %s", path, bad.text);
    httpc_reply_fini(&reply);
    return j;
}

static const json_t *deployment_of(const struct facts *f)
{
    return json_array_get(jsonpath_at(f->lists[FACTS_DEPLOYMENTS].json, "items"), 0);
}

bool cluster_right_is_needed(const struct facts *f, const struct cluster_right *r)
{
    const json_t *containers =
        jsonpath_at(deployment_of(f), "spec.template.spec.containers");
    const json_t *args = jsonpath_at(json_array_get(containers, 0), "args");
    if (strcmp(r->resource, "events") != 0)
        return true;
    for (size_t i = 0; i < json_array_size(args); i++) {
        const char *word = json_string_value(json_array_get(args, i));
        if (word && !strcmp(word, "--events=off"))
            return false;
    }
    return true;
}

/* As whom the extender runs. */
struct account {
    const char *ns, *name;
};

static struct account account_of(const struct facts *f)
{
    const json_t *deployment = deployment_of(f);
    const char *ns = jsonpath_str(deployment, "metadata.namespace");
    const char *name = jsonpath_str(deployment, "spec.template.spec.serviceAccountName");
    return (struct account){*ns ? ns : "kube-system", *name ? name : ACCOUNT};
}

static int ask_right(struct kube_client *client, const struct account *account,
                     const struct cluster_right *r, bool *allowed, struct err *err)
{
    cleanup_free char *user =
        xasprintf("system:serviceaccount:%s:%s", account->ns, account->name);
    cleanup_free char *group = xasprintf("system:serviceaccounts:%s", account->ns);
    json_t *review = json_pack(
        "{s:s, s:s, s:{s:s, s:[s, s, s], s:{s:s, s:s, s:s, s:s*, s:s*, s:s*}}}",
        "apiVersion", "authorization.k8s.io/v1", "kind", "SubjectAccessReview", "spec",
        "user", user, "groups", "system:serviceaccounts", group, "system:authenticated",
        "resourceAttributes", "verb", r->verb, "group", r->group, "resource", r->resource,
        "subresource", r->subresource, "namespace", r->ns, "name", r->name);
    cleanup_free char *text = json_dumps(review, JSON_COMPACT);
    json_decref(review);
    json_t *answer =
        call(client, "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews",
             span_of(text), err);
    *allowed = json_is_true(jsonpath_at(answer, "status.allowed"));
    json_decref(answer);
    return answer ? 0 : -1;
}

static void read_rights(struct kube_client *client, struct facts *f)
{
    const struct account account = account_of(f);
    f->denied = json_array();
    for (const struct cluster_right *r = cluster_rights; r->verb; r++) {
        bool allowed;
        if (!cluster_right_is_needed(f, r))
            continue;
        if (ask_right(client, &account, r, &allowed, &f->denied_why)) {
            json_decref(f->denied);
            f->denied = NULL;
            return;
        }
        if (allowed)
            continue;
        cleanup_free char *what =
            xasprintf("%s %s%s%s%s%s%s%s%s%s", r->verb, r->resource,
                      r->subresource ? "/" : "", r->subresource ? r->subresource : "",
                      *r->group ? "." : "", r->group, r->name ? " " : "",
                      r->name ? r->name : "", r->ns ? " in " : "", r->ns ? r->ns : "");
        json_array_append_new(f->denied, json_string(what));
    }
}

void cluster_read(struct kube_client *client, struct facts *f)
{
    f->lists[FACTS_VERSION].json =
        call(client, "GET", paths[FACTS_VERSION], SPAN(""), &f->cluster_why);
    if (!f->lists[FACTS_VERSION].json)
        return;
    for (int i = FACTS_VERSION + 1; i < FACTS_KINDS; i++)
        f->lists[i].json = call(client, "GET", paths[i], SPAN(""), &f->lists[i].why);
    read_rights(client, f);
}
