/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cluster.h"

#include <stdarg.h>
#include <string.h>

#include "base/mem.h"
#include "lib/expect.h"

enum { AGREE_MS = 10000 };

#define PODS CLUSTER_PODS
#define SCVS "/apis/core.run-linux.com/v1/scvs"

json_t *cluster_items(const char *path)
{
    cleanup_json json_t *j = peer_json(&cluster.api, "GET", path, NULL);
    return json_incref(lib_at(j, "items"));
}

/* The DaemonSet's pod on the node; NULL: none yet. New. */
static char *daemon_on(const char *component, const char *node)
{
    cleanup_free char *path =
        xasprintf("/api/v1/namespaces/kube-system/pods?labelSelector=component%%3D%s"
                  "&fieldSelector=spec.nodeName%%3D%s",
                  component, node);
    cleanup_json json_t *pods = cluster_items(path);
    const json_t *pod = json_array_get(pods, 0);
    return pod ? xstrdup(lib_str(pod, "metadata.name")) : NULL;
}

char *cluster_token_of(const char *component, const char *node)
{
    cleanup_free char *pod = NULL;
    lib_wait((pod = daemon_on(component, node)) != NULL);
    char *token =
        cluster_kubectl(ARGV("-n", "kube-system", "create", "token", component,
                             "--bound-object-kind", "Pod", "--bound-object-name", pod));
    token[strcspn(token, "\n")] = '\0';
    return token;
}

/* The newest pod of the component that is not being deleted; NULL: none. New. */
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
        const char *at = lib_str(pod, "metadata.creationTimestamp");
        if (*lib_str(pod, "metadata.deletionTimestamp") || strcmp(at, born) < 0)
            continue;
        born = at;
        name = lib_str(pod, "metadata.name");
    }
    return name ? xstrdup(name) : NULL;
}

bool cluster_pod_answers(const char *component, unsigned port, const char *path,
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

/* Is the node Ready and schedulable? */
static bool node_is_ready(const char *name)
{
    cleanup_free char *path = xasprintf("/api/v1/nodes/%s", name);
    cleanup_json json_t *node = peer_json(&cluster.api, "GET", path, NULL);
    bool ready = false;
    size_t i;
    json_t *c;
    json_array_foreach(lib_at(node, "status.conditions"), i, c)
    {
        if (strcmp(lib_str(c, "type"), "Ready") == 0)
            ready = strcmp(lib_str(c, "status"), "True") == 0;
    }
    return ready && json_array_size(lib_at(node, "spec.taints")) == 0;
}

/* Does the extender know the node and its Scv? */
static bool node_is_known(const char *name)
{
    cleanup_json json_t *all =
        peer_json(&cluster.extender.observers, "GET", "/inspect", NULL);
    size_t i;
    json_t *node;
    json_array_foreach(lib_at(all, "nodes"), i, node)
    {
        if (strcmp(lib_str(node, "name"), name) == 0)
            return strcmp(lib_str(node, "source"), "scv") == 0;
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

#define GPU_UNITS                                                                        \
    "{\"cpu\":\"64\",\"memory\":\"256Gi\",\"pods\":\"250\","                             \
    "\"aliyun.com/gpu-mem\":\"30\",\"aliyun.com/gpu-count\":\"2\"}"
void cluster_create_gpu_node(const char *name, const char *label)
{
    cleanup_free char *more = label ? xasprintf(",\"%s\":\"true\"", label) : xstrdup("");
    cluster_create("/api/v1/nodes",
                   "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":"
                   "\"%s\",\"labels\":{\"kubernetes.io/hostname\":\"%s\",\"gpushare\":"
                   "\"true\"%s},\"annotations\":{\"kwok.x-k8s.io/node\":\"fake\"}},"
                   "\"status\":{\"capacity\":" GPU_UNITS ",\"allocatable\":" GPU_UNITS
                   "}}",
                   name, name, more);
}

void cluster_await_node(const char *name)
{
    lib_wait(node_is_ready(name) && node_is_known(name));
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
    return *lib_str(pod, "spec.nodeName");
}

const char *cluster_condition(const json_t *pod)
{
    size_t i;
    json_t *c;
    json_array_foreach(lib_at(pod, "status.conditions"), i, c)
    {
        if (strcmp(lib_str(c, "type"), "PodScheduled") == 0)
            return lib_str(c, "message");
    }
    return "";
}

bool cluster_is_gone(const char *name)
{
    cleanup_free char *path = xasprintf(PODS "/%s", name);
    unsigned status = peer_status(&cluster.api, path);
    ck_assert_msg(status == 200 || status == 404, "GET %s: %u", path, status);
    return status == 404;
}

void cluster_create_priority(const char *name, int value, const char *more)
{
    static const char classes[] = "/apis/scheduling.k8s.io/v1/priorityclasses";
    cleanup_free char *path = xasprintf("%s/%s", classes, name);
    if (peer_status(&cluster.api, path) != 200)
        cluster_create(classes,
                       "{\"apiVersion\":\"scheduling.k8s.io/v1\",\"kind\":"
                       "\"PriorityClass\",\"metadata\":{\"name\":\"%s\"},\"value\":%d%s}",
                       name, value, more);
}

void cluster_wait_running(const char *name)
{
    int64_t end = lib_now_ms() + LIB_WAIT_MS;
    for (;;) {
        cleanup_json json_t *pod = cluster_pod(name);
        const char *phase = lib_str(pod, "status.phase");
        if (strcmp(phase, "Running") == 0)
            return;
        ck_assert_msg(lib_now_ms() < end, "pod %s is %s on \"%s\": %s", name, phase,
                      lib_str(pod, "spec.nodeName"), cluster_condition(pod));
        lib_pause();
    }
}

size_t cluster_events(const char *selector, const char *text)
{
    cleanup_buf struct buf path = {0};
    buf_adds(&path, "/api/v1/namespaces/default/events?fieldSelector=");
    for (const char *c = selector; *c; c++) { /* it has no other characters to escape */
        if (*c == '=')
            buf_adds(&path, "%3D");
        else
            buf_addc(&path, *c);
    }
    cleanup_json json_t *events = cluster_items(path.p);
    size_t i, n = 0;
    json_t *e;
    json_array_foreach(events, i, e) n += strstr(lib_str(e, "message"), text) != NULL;
    return n;
}

bool cluster_is_refused(const char *name, const char *text)
{
    cleanup_json json_t *pod = cluster_pod(name);
    ck_assert_str_eq(lib_str(pod, "spec.nodeName"), "");
    cleanup_free char *selector =
        xasprintf("involvedObject.name=%s,reason=FailedScheduling", name);
    return strstr(cluster_condition(pod), text) && cluster_events(selector, text) > 0;
}

void cluster_wait_refused(const char *name, const char *text)
{
    lib_wait_saying(cluster_is_refused(name, text), "pod %s is not refused with \"%s\"",
                    name, text);
}

void cluster_report(const char *what, int64_t ms)
{
    printf("measured: %s: %.1f s\n", what, (double)ms / 1000);
    fflush(stdout);
}

void cluster_agrees(void)
{
    oracle_agrees_within(&cluster.api, &cluster.extender, AGREE_MS * LIB_SLOWER);
}

bool cluster_knows_pending(void)
{
    cleanup_json json_t *j =
        peer_json(&cluster.extender.observers, "GET", "/inspect", NULL);
    cleanup_json json_t *pods = cluster_items(PODS "?fieldSelector=spec.nodeName%3D");
    json_t *waiting = lib_at(j, "pendingPods"), *pod, *w;
    size_t i, k, found = 0;
    json_array_foreach(pods, i, pod)
    {
        json_array_foreach(waiting, k, w)
        {
            found += strcmp(lib_str(pod, "metadata.uid"), lib_str(w, "uid")) == 0;
        }
    }
    return found == json_array_size(pods) && found == json_array_size(waiting);
}

void cluster_check_free(const char *node, int units)
{
    cleanup_buf struct buf why = {0};
    ck_assert_msg(extender_filter(&cluster.extender, units, node, &why) == FITS, "%s",
                  why.p);
    enum filter_result more = extender_filter(&cluster.extender, units + 1, node, &why);
    ck_assert_msg(more == NOT_NOW || more == NEVER, "%d on %s: %s", units + 1, node,
                  why.p);
}

void cluster_settle(void)
{
    int64_t begun = expect_now_ns();
    cluster_agrees();
    lib_wait(cluster_knows_pending());
    cluster_create_pod("afterwards", 1, "", "");
    expect_placed("afterwards", begun);
    cluster_agrees();
    cluster_delete_pods();
    cluster_agrees();
    cleanup_json json_t *promised = oracle_promised(&cluster.api);
    ck_assert_uint_eq(json_object_size(promised), 0);
}

char *cluster_viewer(void)
{
    static const char *const roles[] = {"gpushare-viewer", "gpushare-inspect"};
    free(cluster_kubectl(ARGV("apply", "-f", "manifests/rbac-inspect.yaml")));
    free(
        cluster_kubectl(ARGV("create", "serviceaccount", "viewer", "-n", "kube-system")));
    for (size_t i = 0; i < ARRAY_LEN(roles); i++) {
        cleanup_free char *name = xasprintf("viewer-%zu", i);
        free(cluster_kubectl(ARGV("create", "clusterrolebinding", name, "--clusterrole",
                                  roles[i], "--serviceaccount", "kube-system:viewer")));
    }
    cleanup_free char *said =
        cluster_kubectl(ARGV("create", "token", "viewer", "-n", "kube-system"));
    said[strcspn(said, "\n")] = '\0';
    return xasprintf("Bearer %s", said);
}
