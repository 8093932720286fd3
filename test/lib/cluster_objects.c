/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cluster.h"

#include <stdarg.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "lib/expect.h"

enum { AGREE_MS = 10000 };

#define PODS CLUSTER_PODS
#define SCVS "/apis/core.run-linux.com/v1/scvs"

json_t *cluster_list(const char *path)
{
    return lib_at(peer_get(&cluster.api, path), "items");
}

json_t *cluster_items(const char *path)
{
    return json_incref(cluster_list(path));
}

char *cluster_everything(void)
{
    char *rest = cluster_kubectl("api-resources", "--verbs=list,delete", "-o", "name");
    const char *list = "pods";
    for (const char *kind; (kind = strsep(&rest, "\n"));)
        if (*kind && strncmp(kind, "events", 6) != 0 && strcmp(kind, "pods") != 0)
            list = lib_fmt("%s,%s", list, kind);
    return cluster_kubectl("get", list, "-A", "-o",
                           "jsonpath={range .items[*]}{.kind} "
                           "{.metadata.namespace}/{.metadata.name} "
                           "{.metadata.uid}{\"\\n\"}{end}");
}

const char *cluster_only_in(const char *a, const char *b)
{
    const char *out = "";
    for (char *rest = lib_fmt("%s", a), *line; (line = strsep(&rest, "\n"));)
        if (*line && !strstr(lib_fmt("\n%s", b), lib_fmt("\n%s\n", line)))
            out = lib_fmt("%s%s\n", out, line);
    return out;
}

static const char *left_over(const char *before, const char *const *stay)
{
    char *left = lib_fmt("\n%s", cluster_only_in(cluster_everything(), before));
    for (; *stay; stay++) {
        const char *begin = lib_fmt("\n%s", *stay);
        char *line = strstr(left, begin);
        ck_assert_msg(line != NULL, "no %s in: %s", *stay, left);
        for (; line; line = strstr(left, begin))
            left = lib_fmt("%.*s%s", (int)(line - left), left,
                           line + 1 + strcspn(line + 1, "\n"));
    }
    return left + 1;
}

void cluster_wait_gone(const char *before, const char *const *stay)
{
    const char *left;
    lib_wait_saying(!*(left = left_over(before, stay)), "these objects remain: %s", left);
}

#define SYSTEM_PODS "/api/v1/namespaces/kube-system/pods?labelSelector=component%%3D"

char *cluster_token_of(const char *component, const char *node)
{
    const json_t *pods;
    const char *path =
        lib_fmt(SYSTEM_PODS "%s&fieldSelector=spec.nodeName%%3D%s", component, node);
    lib_wait(json_array_size(pods = cluster_list(path)) > 0);
    return cluster_token(component, lib_str(pods, "0.metadata.name"));
}

char *cluster_token(const char *account, const char *pod)
{
    char *token = cluster_kubectl("-n", "kube-system", "create", "token", account,
                                  pod ? "--bound-object-kind=Pod" : NULL,
                                  "--bound-object-name", pod);
    token[strcspn(token, "\n")] = '\0';
    return token;
}

double cluster_pod_metric(const char *component, unsigned port, const char *sample)
{
    const json_t *pod = lib_find(cluster_list(lib_fmt(SYSTEM_PODS "%s", component)),
                                 "metadata.deletionTimestamp", "");
    return peer_metric_at(
        &cluster.api,
        lib_fmt("/api/v1/namespaces/kube-system/pods/%s:%u/proxy/metrics",
                lib_str(pod, "metadata.name"), port),
        sample);
}

void cluster_create(const char *path, const char *fmt, ...)
{
    cleanup_buf struct buf body = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&body, fmt, ap);
    va_end(ap);
    peer_do(&cluster.api, "POST", path, body.p);
}

void cluster_delete(const char *path)
{
    peer_do(&cluster.api, "DELETE", lib_fmt("%s?gracePeriodSeconds=0", path), NULL);
}

bool cluster_node_is_ready(const char *name)
{
    const json_t *node = lib_find(cluster_list("/api/v1/nodes"), "metadata.name", name);
    return lib_size(node, "spec.taints") == 0 &&
           strcmp(lib_str(lib_find(lib_at(node, "status.conditions"), "type", "Ready"),
                          "status"),
                  "True") == 0;
}

/* Does the extender know the node and its Scv? */
static bool node_is_known(const char *name)
{
    const json_t *all = peer_get(&cluster.extender.observers, "/inspect");
    return strcmp(lib_str(lib_find(lib_at(all, "nodes"), "name", name), "source"),
                  "scv") == 0;
}

/* The list of cards for an Scv. */
static char *cards_of(const char *name, const int *mib, const char *health)
{
    char *list = lib_fmt("%s", "");
    for (int n = 0; mib[n]; n++)
        list = lib_fmt("%s%s{\"id\":%d,\"uuid\":\"GPU-%s-%d\",\"health\":\"%s\","
                       "\"model\":\"Tesla T4\",\"totalMemory\":%d,\"freeMemory\":%d}",
                       list, n ? "," : "", n, name, n, health, mib[n], mib[n]);
    return list;
}

void cluster_create_scv(const char *name, const int *mib)
{
    int n = 0;
    while (mib[n])
        n++;
    cluster_create(SCVS,
                   "{\"apiVersion\":\"core.run-linux.com/v1\",\"kind\":\"Scv\","
                   "\"metadata\":{\"name\":\"%s\"},\"spec\":{\"updateInterval\":1000},"
                   "\"status\":{\"cardNumber\":%d,\"cardList\":[%s],"
                   "\"updateTime\":\"2026-11-21T09:00:00Z\"}}",
                   name, n, cards_of(name, mib, "Healthy"));
}

void cluster_set_health(const char *name, const int *mib, const char *health)
{
    peer_do(&cluster.api, "PATCH", lib_fmt(SCVS "/%s", name),
            lib_fmt("{\"status\":{\"cardList\":[%s]}}", cards_of(name, mib, health)));
}

void cluster_create_node(const char *name, const char *labels, const int *mib)
{
    int n = 0, units = 0;
    for (; mib[n]; n++)
        units += mib[n] / 1024;
    const char *amounts =
        lib_fmt("{\"cpu\":\"64\",\"memory\":\"256Gi\",\"pods\":\"250\","
                "\"aliyun.com/gpu-mem\":\"%d\",\"aliyun.com/gpu-count\":\"%d\"}",
                units, n);
    cluster_create(
        "/api/v1/nodes",
        "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"%s\","
        "\"labels\":{\"kubernetes.io/hostname\":\"%s\"%s},"
        "\"annotations\":{\"kwok.x-k8s.io/node\":\"fake\"}},"
        "\"status\":{\"capacity\":%s,\"allocatable\":%s}}",
        name, name, labels, amounts, amounts);
}

void cluster_await_node(const char *name)
{
    lib_wait(cluster_node_is_ready(name) && node_is_known(name));
}

void cluster_add_node(const char *name, const char *labels, const int *mib)
{
    cluster_create_scv(name, mib);
    cluster_create_node(name, labels, mib);
    cluster_await_node(name);
}

void cluster_create_asking(const char *name, const char *resource, int amount,
                           const char *metadata, const char *spec)
{
    cluster_create(PODS,
                   "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\""
                   "%s},\"spec\":{\"containers\":[{\"name\":\"c\",\"image\":\"i\","
                   "\"resources\":{\"limits\":{\"%s\":\"%d\"}}}]%s}}",
                   name, metadata, resource, amount, spec);
}

void cluster_create_pod(const char *name, int units, const char *metadata,
                        const char *spec)
{
    cluster_create_asking(name, "aliyun.com/gpu-mem", units, metadata, spec);
}

json_t *cluster_pod(const char *name)
{
    return peer_get(&cluster.api, lib_fmt(PODS "/%s", name));
}

bool cluster_bound(const char *name)
{
    return *lib_str(cluster_pod(name), "spec.nodeName");
}

const char *cluster_condition(const json_t *pod)
{
    return lib_str(lib_find(lib_at(pod, "status.conditions"), "type", "PodScheduled"),
                   "message");
}

bool cluster_is_gone(const char *name)
{
    const char *path = lib_fmt(PODS "/%s", name);
    unsigned status = peer_status(&cluster.api, path);
    ck_assert_msg(status == 200 || status == 404, "GET %s: %u", path, status);
    return status == 404;
}

void cluster_create_priority(const char *name, int value, const char *more)
{
    static const char classes[] = "/apis/scheduling.k8s.io/v1/priorityclasses";
    if (peer_status(&cluster.api, lib_fmt("%s/%s", classes, name)) != 200)
        cluster_create(classes,
                       "{\"apiVersion\":\"scheduling.k8s.io/v1\",\"kind\":"
                       "\"PriorityClass\",\"metadata\":{\"name\":\"%s\"},\"value\":%d%s}",
                       name, value, more);
}

void cluster_wait_running(const char *name)
{
    const json_t *pod;
    lib_wait_saying(
        (pod = cluster_pod(name), strcmp(lib_str(pod, "status.phase"), "Running") == 0),
        "pod %s is %s on \"%s\": %s", name, lib_str(pod, "status.phase"),
        lib_str(pod, "spec.nodeName"), cluster_condition(pod));
}

size_t cluster_events(const char *selector, const char *text)
{
    const char *path = "/api/v1/namespaces/default/events?fieldSelector=";
    size_t n = 0;
    json_t *e;
    for (struct span rest = span_of(selector); rest.n;) { /* nothing else to escape */
        struct span part = span_cut(&rest, '=');
        path = lib_fmt("%s%.*s%s", path, SPAN_ARG(part), rest.n ? "%3D" : "");
    }
    lib_each(e, cluster_list(path))
        n += strstr(lib_str(e, "message"), text) != NULL;
    return n;
}

bool cluster_is_refused(const char *name, const char *text)
{
    const json_t *pod = cluster_pod(name);
    ck_assert_str_eq(lib_str(pod, "spec.nodeName"), "");
    return strstr(cluster_condition(pod), text) &&
           cluster_events(lib_fmt("involvedObject.name=%s,reason=FailedScheduling", name),
                          text) > 0;
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
    const json_t *waiting = lib_at(peer_get(&cluster.extender.observers, "/inspect"),
                                   "pendingPods"),
                 *pods = cluster_list(PODS "?fieldSelector=spec.nodeName%3D");
    json_t *pod;
    lib_each(pod, pods)
        if (!lib_find(waiting, "uid", lib_str(pod, "metadata.uid")))
            return false;
    return json_array_size(pods) == json_array_size(waiting);
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
    int64_t begun = clock_wall_ns();
    cluster_agrees();
    lib_wait(cluster_knows_pending());
    cluster_create_pod("afterwards", 1, "", "");
    expect_placed("afterwards", begun);
    cluster_agrees();
    cluster_delete_pods();
    cluster_agrees();
    ck_assert_str_eq(lib_text(oracle_promised(&cluster.api, NULL), ""), "{}");
}

char *cluster_viewer(void)
{
    static const char *const roles[] = {"gpushare-viewer", "gpushare-inspect"};
    cluster_kubectl("apply", "-f", "manifests/rbac-inspect.yaml");
    cluster_kubectl("create", "serviceaccount", "viewer", "-n", "kube-system");
    for (size_t i = 0; i < ARRAY_LEN(roles); i++)
        cluster_kubectl("create", "clusterrolebinding", lib_fmt("viewer-%zu", i),
                        "--clusterrole", roles[i], "--serviceaccount",
                        "kube-system:viewer");
    return lib_fmt("Bearer %s", cluster_token("viewer", NULL));
}

void cluster_allow_inspect(const char *user)
{
    static const char *const namespaces[] = {"kube-system",
                                             "nvidia-gpu-scheduler-node-lease"};
    const char *option = lib_fmt("--user=%s", user);
    cluster_kubectl("apply", "-f", "manifests/rbac-inspect.yaml");
    cluster_kubectl("create", "clusterrolebinding", user,
                    "--clusterrole=gpushare-inspect", option);
    for (size_t i = 0; i < ARRAY_LEN(namespaces); i++)
        cluster_kubectl("-n", namespaces[i], "create", "rolebinding", user,
                        "--role=gpushare-inspect", option);
}
