/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e-node/many.h"

#include <string.h>

#include "base/mem.h"
#include "e2e-node/node.h"

#define APPS "/apis/apps/v1/namespaces/default/"

/* "Deployment" is in the collection "deployments". New. */
static char *collection(const char *controller)
{
    char *path = xasprintf(APPS "%ss", controller);
    for (char *c = path + strlen(APPS); *c; c++)
        *c = *c >= 'A' && *c <= 'Z' ? (char)(*c - 'A' + 'a') : *c;
    return path;
}

void many_create(const char *controller, const char *name, const char *kind, int n)
{
    cleanup_free char *path = collection(controller), *spec = node_spec_of(kind);
    cluster_create(
        path,
        "{\"apiVersion\":\"apps/v1\",\"kind\":\"%s\",\"metadata\":{\"name\":\"%s\"},"
        "\"spec\":{\"replicas\":%d,\"selector\":{\"matchLabels\":{\"app\":\"%s\"}},"
        "\"template\":{\"metadata\":{\"labels\":{\"app\":\"%s\"}},\"spec\":{%s}}}}",
        controller, name, n, name, name, spec);
}

void many_scale(const char *controller, const char *name, int n)
{
    cleanup_free char *all = collection(controller);
    cleanup_free char *path = xasprintf("%s/%s", all, name);
    cleanup_free char *patch = xasprintf("{\"spec\":{\"replicas\":%d}}", n);
    json_decref(peer_json(&cluster.api, "PATCH", path, patch));
}

static bool all_run(int n)
{
    cleanup_json json_t *pods = cluster_items(CLUSTER_PODS);
    size_t i;
    int alive = 0;
    json_t *pod;
    json_array_foreach(pods, i, pod)
    {
        const char *phase = lib_str(pod, "status.phase");
        if (strcmp(phase, "Failed") == 0)
            continue;
        alive++;
        if (strcmp(phase, "Running") != 0 || *lib_str(pod, "metadata.deletionTimestamp"))
            return false;
    }
    return alive == n;
}

void many_wait_running(int n)
{
    int64_t end = lib_now_ms() + 2 * PROGRAM_WAIT_MS;
    while (!all_run(n)) {
        ck_assert_msg(lib_now_ms() < end, "there are not %d pods that run", n);
        lib_pause();
    }
}
