/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e/cluster.h"

#include <stdarg.h>
#include <string.h>

#include "base/mem.h"
#include "e2e/expect.h"

enum { AGREE_MS = 1000 };

#define PODS CLUSTER_PODS
#define SCVS "/apis/core.run-linux.com/v1/scvs"

json_t *cluster_items(const char *path)
{
    cleanup_json json_t *j = peer_json(&cluster.api, "GET", path, NULL);
    return json_incref(kit_at(j, "items"));
}

/* The pod of the DaemonSet on that node, new; NULL: there is none yet. */
static char *daemon_on(const char *component, const char *node)
{
    cleanup_free char *path =
        xasprintf("/api/v1/namespaces/kube-system/pods?labelSelector=component%%3D%s"
                  "&fieldSelector=spec.nodeName%%3D%s",
                  component, node);
    cleanup_json json_t *pods = cluster_items(path);
    const json_t *pod = json_array_get(pods, 0);
    return pod ? xstrdup(kit_str(pod, "metadata.name")) : NULL;
}

char *cluster_token_of(const char *component, const char *node)
{
    cleanup_free char *pod = NULL;
    kit_wait((pod = daemon_on(component, node)) != NULL);
    char *token =
        cluster_kubectl(ARGV("-n", "kube-system", "create", "token", component,
                             "--bound-object-kind", "Pod", "--bound-object-name", pod));
    token[strcspn(token, "\n")] = '\0';
    return token;
}

/* The newest of the component that stays, new; NULL: there is none. */
static char *pod_of(const char *component)
{
    cleanup_free char *path = xasprintf(
        "/api/v1/namespaces/kube-system/pods?labelSelector=component%%3D%s", component);
    cleanup_json json_t *pods = cluster_items(path);
    const char *name = NULL, *born = "";
    size_t i;
    json_t *pod;
    json_array_foreach(pods, i, pod)
    {
        const char *at = kit_str(pod, "metadata.creationTimestamp");
        if (*kit_str(pod, "metadata.deletionTimestamp") || strcmp(at, born) < 0)
            continue;
        born = at;
        name = kit_str(pod, "metadata.name");
    }
    return name ? xstrdup(name) : NULL;
}

bool cluster_pod_says(const char *component, unsigned port, const char *path,
                      struct buf *reply)
{
    cleanup_free char *pod = pod_of(component);
    if (!pod)
        return false;
    cleanup_free char *url =
        xasprintf("/api/v1/namespaces/kube-system/pods/%s:%u/proxy%s", pod, port, path);
    return peer_call(&cluster.api, "GET", url, NULL, reply) == 200;
}

void cluster_create(const char *path, const char *fmt, ...)
{
    cleanup_buf struct buf body = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&body, fmt, ap);
    va_end(ap);
    json_decref(peer_json(&cluster.api, "POST", path, body.p));
}

void cluster_delete(const char *path)
{
    cleanup_free char *now = xasprintf("%s?gracePeriodSeconds=0", path);
    json_decref(peer_json(&cluster.api, "DELETE", now, NULL));
}

/* Is the node Ready, so that pods may go there? */
static bool node_is_ready(const char *name)
{
    cleanup_free char *path = xasprintf("/api/v1/nodes/%s", name);
    cleanup_json json_t *node = peer_json(&cluster.api, "GET", path, NULL);
    bool ready = false;
    size_t i;
    json_t *c;
    json_array_foreach(kit_at(node, "status.conditions"), i, c)
    {
        if (strcmp(kit_str(c, "type"), "Ready") == 0)
            ready = strcmp(kit_str(c, "status"), "True") == 0;
    }
    return ready && json_array_size(kit_at(node, "spec.taints")) == 0;
}

/* Does the extender know it, and its Scv? */
static bool node_is_known(const char *name)
{
    cleanup_json json_t *all =
        peer_json(&cluster.extender.observers, "GET", "/inspect", NULL);
    size_t i;
    json_t *node;
    json_array_foreach(kit_at(all, "nodes"), i, node)
    {
        if (strcmp(kit_str(node, "name"), name) == 0)
            return strcmp(kit_str(node, "source"), "scv") == 0;
    }
    return false;
}

void cluster_create_scv(const char *name, const int *mib)
{
    cleanup_buf struct buf list = {0};
    int n = 0;
    for (; mib[n]; n++)
        buf_printf(&list,
                   "%s{\"id\":%d,\"uuid\":\"GPU-%s-%d\",\"health\":\"Healthy\",\"model\":"
                   "\"Tesla T4\",\"totalMemory\":%d,\"freeMemory\":%d}",
                   n ? "," : "", n, name, n, mib[n], mib[n]);
    cluster_create(SCVS,
                   "{\"apiVersion\":\"core.run-linux.com/v1\",\"kind\":\"Scv\","
                   "\"metadata\":{\"name\":\"%s\"},\"spec\":{\"updateInterval\":1000},"
                   "\"status\":{\"cardNumber\":%d,\"cardList\":[%s],"
                   "\"updateTime\":\"2026-11-21T09:00:00Z\"}}",
                   name, n, list.p ? list.p : "");
}

void cluster_create_bare_node(const char *name, const char *label, const char *value,
                              const int *mib)
{
    cleanup_buf struct buf amounts = {0};
    int n = 0, units = 0;
    for (; mib[n]; n++)
        units += mib[n] / 1024;
    buf_printf(&amounts,
               "{\"cpu\":\"64\",\"memory\":\"256Gi\",\"pods\":\"250\","
               "\"aliyun.com/gpu-mem\":\"%d\",\"aliyun.com/gpu-count\":\"%d\"}",
               units, n);
    cluster_create(
        "/api/v1/nodes",
        "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"%s\","
        "\"labels\":{\"kubernetes.io/hostname\":\"%s\"%s%s%s%s%s},"
        "\"annotations\":{\"kwok.x-k8s.io/node\":\"fake\"}},"
        "\"status\":{\"capacity\":%s,\"allocatable\":%s}}",
        name, name, label ? ",\"" : "", label ? label : "", label ? "\":\"" : "",
        label ? value : "", label ? "\"" : "", amounts.p, amounts.p);
}

void cluster_create_node(const char *name, const char *label, const char *value,
                         const int *mib)
{
    cluster_create_scv(name, mib);
    cluster_create_bare_node(name, label, value, mib);
}

void cluster_await_node(const char *name)
{
    kit_wait(node_is_ready(name) && node_is_known(name));
}

void cluster_add_node(const char *name, const char *label, const char *value,
                      const int *mib)
{
    cluster_create_node(name, label, value, mib);
    cluster_await_node(name);
}

void cluster_create_pod(const char *name, int units, const char *metadata,
                        const char *spec)
{
    cluster_create(PODS,
                   "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\""
                   "%s},\"spec\":{\"containers\":[{\"name\":\"c\",\"image\":\"i\","
                   "\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":\"%d\"}}}]%s}}",
                   name, metadata, units, spec);
}

json_t *cluster_pod(const char *name)
{
    cleanup_free char *path = xasprintf(PODS "/%s", name);
    return peer_json(&cluster.api, "GET", path, NULL);
}

bool cluster_bound(const char *name)
{
    cleanup_json json_t *pod = cluster_pod(name);
    return *kit_str(pod, "spec.nodeName");
}

/* What kube-scheduler said of the pod. */
static const char *condition(const json_t *pod)
{
    size_t i;
    json_t *c;
    json_array_foreach(kit_at(pod, "status.conditions"), i, c)
    {
        if (strcmp(kit_str(c, "type"), "PodScheduled") == 0)
            return kit_str(c, "message");
    }
    return "";
}

void cluster_wait_running(const char *name)
{
    int64_t end = kit_now_ms() + PROGRAM_WAIT_MS;
    for (;;) {
        cleanup_json json_t *pod = cluster_pod(name);
        const char *phase = kit_str(pod, "status.phase");
        if (strcmp(phase, "Running") == 0)
            return;
        ck_assert_msg(kit_now_ms() < end, "pod %s is %s on \"%s\": %s", name, phase,
                      kit_str(pod, "spec.nodeName"), condition(pod));
        kit_pause();
    }
}

static bool has_event(const char *name, const char *text)
{
    cleanup_free char *path =
        xasprintf("/api/v1/namespaces/default/events?fieldSelector="
                  "involvedObject.name%%3D%s,reason%%3DFailedScheduling",
                  name);
    cleanup_json json_t *events = cluster_items(path);
    size_t i;
    json_t *e;
    json_array_foreach(events, i, e)
    {
        if (strstr(kit_str(e, "message"), text))
            return true;
    }
    return false;
}

void cluster_wait_refused(const char *name, const char *text)
{
    int64_t end = kit_now_ms() + PROGRAM_WAIT_MS;
    for (;;) {
        cleanup_json json_t *pod = cluster_pod(name);
        ck_assert_str_eq(kit_str(pod, "spec.nodeName"), "");
        if (strstr(condition(pod), text) && has_event(name, text))
            return;
        ck_assert_msg(kit_now_ms() < end, "pod %s is not refused with \"%s\": %s", name,
                      text, condition(pod));
        kit_pause();
    }
}

void cluster_measured(const char *what, int64_t ms)
{
    printf("measured: %s: %.1f s\n", what, (double)ms / 1000);
    fflush(stdout);
}

void cluster_agrees(void)
{
    oracle_agrees_within(&cluster.api, &cluster.extender, AGREE_MS * KIT_SLOWER);
}

bool cluster_knows_who_waits(void)
{
    cleanup_json json_t *j =
        peer_json(&cluster.extender.observers, "GET", "/inspect", NULL);
    cleanup_json json_t *pods = cluster_items(PODS "?fieldSelector=spec.nodeName%3D");
    json_t *waiting = kit_at(j, "waiting"), *pod, *w;
    size_t i, k, found = 0;
    json_array_foreach(pods, i, pod)
    {
        json_array_foreach(waiting, k, w)
        {
            found += strcmp(kit_str(pod, "metadata.uid"), kit_str(w, "uid")) == 0;
        }
    }
    return found == json_array_size(pods) && found == json_array_size(waiting);
}

void cluster_check_room(const char *node, int units)
{
    cleanup_buf struct buf why = {0};
    ck_assert_msg(extender_filter(&cluster.extender, units, node, &why) == FITS, "%s",
                  why.p);
    enum fit more = extender_filter(&cluster.extender, units + 1, node, &why);
    ck_assert_msg(more == NOT_NOW || more == NEVER, "%d on %s: %s", units + 1, node,
                  why.p);
}

void cluster_settle(void)
{
    int64_t begun = expect_now_ns();
    cluster_agrees();
    kit_wait(cluster_knows_who_waits());
    cluster_create_pod("afterwards", 1, "", "");
    expect_placed("afterwards", begun);
    cluster_agrees();
    cluster_delete_pods();
    cluster_agrees();
    cleanup_json json_t *promised = oracle_promised(&cluster.api);
    ck_assert_uint_eq(json_object_size(promised), 0);
}
