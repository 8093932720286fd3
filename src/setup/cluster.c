/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/cluster.h"

#define EXTENDER "?labelSelector=component%3Dgpushare-schd-extender"

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
};

static json_t *get(struct kube_client *client, const char *path, struct err *err)
{
    struct httpc_reply reply = {0};
    json_t *j = NULL;
    json_error_t bad;
    const struct kube_request request = {
        .method = "GET", .path = path, .gzip = true, .timeout_ms = TIMEOUT_MS};
    int rc = kube_call(client, &request, &reply, err);
    if (rc == 0)
        rc = kube_reply_check(reply.status, buf_span(&reply.body), err);
    if (rc == 0 &&
        !(j = json_loadb(reply.body.n ? reply.body.p : "", reply.body.n, 0, &bad)))
        err_set(err, ERR_INVALID, "%s: the response is not JSON: %s", path, bad.text);
    httpc_reply_fini(&reply);
    return j;
}

void cluster_read_secret(struct kube_client *client, struct facts *f)
{
    client_secret_fini(&f->secret);
    f->secret_why = (struct err){0};
    f->secret_read = true;
    json_t *secret =
        get(client, "/api/v1/namespaces/kube-system/secrets/" CLIENT_SECRET_NAME,
            &f->secret_why);
    if (secret)
        client_secret_read(secret, &f->secret, &f->secret_why);
    json_decref(secret);
}

void cluster_read(struct kube_client *client, struct facts *f)
{
    f->lists[FACTS_VERSION].json = get(client, paths[FACTS_VERSION], &f->cluster_why);
    if (!f->lists[FACTS_VERSION].json)
        return;
    for (int i = FACTS_VERSION + 1; i < FACTS_KINDS; i++)
        f->lists[i].json = get(client, paths[i], &f->lists[i].why);
}
