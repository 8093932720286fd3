/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/cluster.h"

#include "base/mem.h"
#include "wire/tls.h"

#define ADMISSION "/apis/admissionregistration.k8s.io/v1/"
#define EXTENDER  "?labelSelector=component%3Dgpushare-schd-extender"

enum { TIMEOUT_MS = 10 * 1000 };

static const char *const paths[FACTS_KINDS] = {
    [FACTS_VERSION] = "/version",
    [FACTS_SYSTEM_PODS] = "/api/v1/namespaces/kube-system/pods",
    [FACTS_SERVICES] = "/api/v1/services" EXTENDER,
    /* EndpointSlices have the labels of their Service. */
    [FACTS_SLICES] = "/apis/discovery.k8s.io/v1/endpointslices" EXTENDER,
    [FACTS_DEPLOYMENTS] = "/apis/apps/v1/deployments" EXTENDER,
    [FACTS_PROXY] = "/api/v1/namespaces/kube-system/configmaps/kube-proxy",
    [FACTS_NODES] = "/api/v1/nodes",
    [FACTS_PENDING] =
        "/api/v1/pods?fieldSelector=spec.nodeName%3D,status.phase%3DPending",
    [FACTS_EVENTS] = "/api/v1/events?fieldSelector=reason%3DFailedScheduling",
    [FACTS_POLICIES] = ADMISSION "validatingadmissionpolicies",
    [FACTS_POLICY_BINDINGS] = ADMISSION "validatingadmissionpolicybindings",
};

/* The body of a successful answer. */
static int get(struct kube_client *client, const char *path, struct httpc_reply *reply,
               struct err *err)
{
    const struct kube_request request = {
        .method = "GET", .path = path, .gzip = true, .timeout_ms = TIMEOUT_MS};
    if (kube_call(client, &request, reply, err))
        return -1;
    return kube_reply_check(reply->status, buf_span(&reply->body), err);
}

static json_t *get_json(struct kube_client *client, const char *path, struct err *err)
{
    struct httpc_reply reply = {0};
    json_t *j = NULL;
    json_error_t bad;
    if (get(client, path, &reply, err) == 0 &&
        !(j = json_loadb(reply.body.n ? reply.body.p : "", reply.body.n, 0, &bad)))
        err_set(err, ERR_INVALID, "%s: the response is not JSON: %s", path, bad.text);
    httpc_reply_fini(&reply);
    return j;
}

void cluster_read_secret(struct kube_client *client, struct facts *f)
{
    struct httpc_reply reply = {0};
    client_secret_fini(&f->secret);
    f->secret_why = (struct err){0};
    f->secret_read = true;
    cleanup_free char *path = xasprintf(
        "/api/v1/namespaces/%s/secrets/" CLIENT_SECRET_NAME, facts_namespace(f));
    if (get(client, path, &reply, &f->secret_why) == 0)
        client_secret_read(buf_span(&reply.body), &f->secret, &f->secret_why);
    tls_wipe(&reply.body);
    httpc_reply_fini(&reply);
}

void cluster_read(struct kube_client *client, struct facts *f)
{
    f->lists[FACTS_VERSION].json =
        get_json(client, paths[FACTS_VERSION], &f->cluster_why);
    if (!f->lists[FACTS_VERSION].json)
        return;
    for (int i = FACTS_VERSION + 1; i < FACTS_KINDS; i++)
        f->lists[i].json = get_json(client, paths[i], &f->lists[i].why);
}
