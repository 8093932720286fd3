/* SPDX-License-Identifier: Apache-2.0 */

/* The simulated kubelet. */

#include "e2e-node/played.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "e2e-node/node.h"
#include "lib/kubelet.h"

enum { LEASE_MS = 5000 };

#define LEASES "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

static const char *const resources[KUBELET_RESOURCES] = {
    [MEM] = "aliyun.com/gpu-mem",
    [COUNT] = "aliyun.com/gpu-count",
    [CORE] = "aliyun.com/gpu-core.percentage"};

static struct {
    struct kubelet kubelet;
    pthread_t thread;
    pthread_mutex_t
        lock; /* protects all members except the kubelet, which has its own lock */
    bool stopped;
    json_t *had;  /* {uid: name}: admitted or refused pods */
    json_t *envs; /* {uid/container: text} */
    int64_t leased_ms;
    size_t published[KUBELET_RESOURCES]; /* the Node's capacity */
    char *plugins, *podresources;
} played;

const char *played_plugin_dir(void)
{
    return played.plugins;
}

const char *played_podresources(void)
{
    return played.podresources;
}

char *played_log(const char *uid, const char *container)
{
    cleanup_free char *key = xasprintf("%s/%s", uid, container);
    pthread_mutex_lock(&played.lock);
    const char *text = json_string_value(json_object_get(played.envs, key));
    char *copy = text ? xstrdup(text) : NULL;
    pthread_mutex_unlock(&played.lock);
    return copy;
}

static unsigned patch(const char *path, const char *body)
{
    cleanup_buf struct buf reply = {0};
    return peer_call(&cluster.api, "PATCH", path, body, &reply);
}

/* -- the Node -- */

static void now_text(char *out, size_t n)
{
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(out, n, "%Y-%m-%dT%H:%M:%S", &tm);
}

static void renew(void)
{
    char now[32];
    if (lib_now_ms() - played.leased_ms < LEASE_MS)
        return;
    now_text(now, sizeof now);
    cleanup_free char *body = xasprintf("{\"spec\":{\"renewTime\":\"%s.000000Z\"}}", now);
    if (patch(LEASES "/" NODE, body) == 404)
        cluster_create(LEASES,
                       "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\","
                       "\"metadata\":{\"name\":\"" NODE
                       "\"},\"spec\":{\"holderIdentity\":"
                       "\"" NODE "\",\"leaseDurationSeconds\":40,\"renewTime\":"
                       "\"%s.000000Z\"}}",
                       now);
    played.leased_ms = lib_now_ms();
}

/* Publishes the healthy devices as the Node's capacity; 0 for a plugin that is away. */
static void publish_resources(void)
{
    size_t has[KUBELET_RESOURCES];
    bool same = true;
    for (int r = 0; r < KUBELET_RESOURCES; r++) {
        bool lost = !played.kubelet.plugins[r].stream;
        has[r] = lost ? 0 : kubelet_devices(&played.kubelet, r, true);
        same &= has[r] == played.published[r];
    }
    if (same)
        return;
    cleanup_free char *body =
        xasprintf("{\"status\":{\"capacity\":{\"%s\":\"%d\",\"%s\":\"%d\",\"%s\":\"%d\"},"
                  "\"allocatable\":{\"%s\":\"%zu\",\"%s\":\"%zu\",\"%s\":\"%zu\"}}}",
                  resources[MEM], NODE_UNITS, resources[COUNT], NODE_CARDS,
                  resources[CORE], 100 * NODE_CARDS, resources[MEM], has[MEM],
                  resources[COUNT], has[COUNT], resources[CORE], has[CORE]);
    if (patch("/api/v1/nodes/" NODE "/status", body) == 200)
        memcpy(played.published, has, sizeof has);
}

static void make_node(void)
{
    char now[32];
    now_text(now, sizeof now);
    if (peer_status(&cluster.api, "/api/v1/nodes/" NODE) != 200)
        cluster_create("/api/v1/nodes",
                       "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":"
                       "\"" NODE "\",\"labels\":{\"kubernetes.io/hostname\":\"" NODE
                       "\",\"gpushare\":\"true\"}}}");
    cleanup_free char *body = xasprintf(
        "{\"status\":{\"capacity\":{\"cpu\":\"64\",\"memory\":\"256Gi\",\"pods\":"
        "\"250\"},\"allocatable\":{\"cpu\":\"64\",\"memory\":\"256Gi\",\"pods\":"
        "\"250\"},\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\","
        "\"reason\":\"KubeletReady\",\"message\":\"\",\"lastHeartbeatTime\":"
        "\"%sZ\",\"lastTransitionTime\":\"%sZ\"}]}}",
        now, now);
    ck_assert_uint_eq(patch("/api/v1/nodes/" NODE "/status", body), 200);
}

/* -- pods -- */

static bool asks(const json_t *container, int *resource, int *amount)
{
    json_t *limits = lib_at(container, "resources.limits");
    for (*resource = MEM; *resource <= COUNT; ++*resource) {
        const char *n = json_string_value(json_object_get(limits, resources[*resource]));
        if (n) {
            *amount = atoi(n);
            return true;
        }
    }
    return false;
}

static void note_env(const char *uid, const char *container, json_t *env)
{
    cleanup_free char *key = xasprintf("%s/%s", uid, container);
    cleanup_buf struct buf text = {0};
    const char *name;
    json_t *value;
    buf_adds(&text, "");
    json_object_foreach(env, name, value)
        buf_printf(&text, "%s=%s\n", name, json_string_value(value));
    json_object_set_new(played.envs, key, json_string(text.p));
}

/* `reuse`: ids of an init container, which the next container gets; or NULL. */
static void admit_container(const char *pod, const char *uid, const json_t *container,
                            bool init, json_t **reuse, struct kubelet_answer *a)
{
    struct kubelet *k = &played.kubelet;
    const char *name = lib_str(container, "name");
    int r, n;
    if (!asks(container, &r, &n)) {
        note_env(uid, name, NULL);
        return;
    }
    bool away = !k->plugins[r].stream;
    if (away || kubelet_devices(k, r, true) < (size_t)n) {
        a->status = GRPC_UNAVAILABLE;
        snprintf(a->words, sizeof a->words,
                 "no healthy devices present; cannot allocate "
                 "unhealthy devices %s",
                 resources[r]);
        return;
    }
    if (*reuse) {
        ck_assert_uint_eq(json_array_size(*reuse), n);
        kubelet_allocate(k, r, *reuse, a);
        if (a->status == GRPC_OK && !init)
            kubelet_give(k, pod, name, r, *reuse);
    } else {
        kubelet_prefer(k, r, n, a);
        if (a->status == GRPC_OK)
            kubelet_allocate(k, r, a->ids, a);
        if (a->status == GRPC_OK && !init)
            kubelet_give(k, pod, name, r, a->ids);
    }
    if (a->status != GRPC_OK)
        return;
    note_env(uid, name, a->env);
    json_decref(*reuse);
    *reuse = init ? json_incref(a->ids) : NULL;
}

static void tell_status(const char *name, const struct kubelet_answer *a)
{
    cleanup_free char *path = xasprintf(CLUSTER_PODS "/%s/status", name);
    bool from_plugin = a->status != GRPC_UNAVAILABLE;
    cleanup_free char *words = xasprintf(
        "Pod was rejected: Allocate failed due to %s%s%s%s, which is unexpected",
        from_plugin ? "rpc error: code = " : "",
        from_plugin ? grpc_status_name(a->status) : "", from_plugin ? " desc = " : "",
        a->words);
    cleanup_json json_t *status =
        a->status == GRPC_OK
            ? json_pack("{s:{s:s,s:[{s:s,s:s}]}}", "status", "phase", "Running",
                        "conditions", "type", "Ready", "status", "True")
            : json_pack("{s:{s:s,s:s,s:s}}", "status", "phase", "Failed", "reason",
                        "UnexpectedAdmissionError", "message", words);
    cleanup_free char *body = json_dumps(status, 0);
    patch(path, body);
}

static bool is_sidecar(const json_t *container)
{
    return strcmp(lib_str(container, "restartPolicy"), "Always") == 0;
}

static void admit(const json_t *pod)
{
    static const char *const lists[] = {"spec.containers", "spec.initContainers"};
    const char *names[KUBELET_CONTAINERS + 1] = {0},
                                           *name = lib_str(pod, "metadata.name");
    const char *uid = lib_str(pod, "metadata.uid");
    struct kubelet_answer a = {0};
    cleanup_json json_t *reuse = NULL;
    size_t i, n = 0;
    json_t *c;
    for (int init = 1; init >= 0; init--) {
        json_array_foreach(lib_at(pod, lists[init]), i, c)
        {
            ck_assert_uint_lt(n, KUBELET_CONTAINERS);
            if (!init || is_sidecar(c))
                names[n++] = lib_str(c, "name");
        }
    }
    kubelet_add(&played.kubelet, name, names);
    json_object_set_new(played.had, uid, json_string(name));
    for (int init = 1; init >= 0; init--) {
        json_array_foreach(lib_at(pod, lists[init]), i, c)
        {
            if (a.status != GRPC_OK)
                break;
            kubelet_answer_fini(&a);
            admit_container(name, uid, c, init && !is_sidecar(c), &reuse, &a);
        }
    }
    if (a.status != GRPC_OK)
        kubelet_remove(&played.kubelet, name);
    tell_status(name, &a);
    kubelet_answer_fini(&a);
}

static void look_at_pods(void)
{
    cleanup_buf struct buf reply = {0};
    if (peer_call(&cluster.api, "GET",
                  CLUSTER_PODS "?fieldSelector=spec.nodeName%3D" NODE, NULL,
                  &reply) != 200)
        return;
    cleanup_json json_t *list = json_loadb(reply.p, reply.n, 0, NULL);
    cleanup_json json_t *there = json_object();
    size_t i;
    json_t *pod, *name;
    json_array_foreach(lib_at(list, "items"), i, pod)
        json_object_set(there, lib_str(pod, "metadata.uid"), pod);
    const char *uid;
    void *next;
    json_object_foreach_safe(played.had, next, uid, name)
    {
        pod = json_object_get(there, uid);
        if (pod && !*lib_str(pod, "metadata.deletionTimestamp"))
            continue;
        if (kubelet_knows(&played.kubelet, json_string_value(name)))
            kubelet_remove(&played.kubelet, json_string_value(name));
        json_object_del(played.had, uid);
    }
    json_object_foreach(there, uid, pod)
    {
        cleanup_free char *path = xasprintf(CLUSTER_PODS "/%s?gracePeriodSeconds=0",
                                            lib_str(pod, "metadata.name"));
        cleanup_buf struct buf said = {0};
        if (*lib_str(pod, "metadata.deletionTimestamp"))
            peer_call(&cluster.api, "DELETE", path, NULL, &said);
        else if (!json_object_get(played.had, uid))
            admit(pod);
    }
}

static void *play(void *arg)
{
    for (;;) {
        pthread_mutex_lock(&played.lock);
        bool stopped = played.stopped;
        if (!stopped) {
            kubelet_serve(&played.kubelet);
            publish_resources();
            renew();
            look_at_pods();
        }
        pthread_mutex_unlock(&played.lock);
        if (stopped)
            return arg;
        lib_pause();
    }
}

void played_start(void)
{
    pthread_mutex_init(&played.lock, NULL);
    played.plugins = temp_path(lib_dir, "plugins");
    played.podresources = temp_path(lib_dir, "podresources.sock");
    played.had = json_object();
    played.envs = json_object();
    kubelet_start(&played.kubelet);
    make_node();
    ck_assert_int_eq(pthread_create(&played.thread, NULL, play, NULL), 0);
}

void played_stop(void)
{
    pthread_mutex_lock(&played.lock);
    played.stopped = true;
    pthread_mutex_unlock(&played.lock);
    pthread_join(played.thread, NULL);
    kubelet_fini(&played.kubelet);
    json_decref(played.had);
    json_decref(played.envs);
    free(played.plugins);
    free(played.podresources);
    pthread_mutex_destroy(&played.lock);
}

void played_restart(void)
{
    pthread_mutex_lock(&played.lock);
    kubelet_stop(&played.kubelet);
    kubelet_start(&played.kubelet);
    pthread_mutex_unlock(&played.lock);
}
