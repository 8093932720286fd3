/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "lib/cluster.h"

/*
 * docs/install.md, "From the Go gpushare": the commands of that section turn its
 * objects into ours, and none of its fields remains.
 * (Its pods: test_requests and test/e2e-node.)
 */

#define GO         "test/e2e/go-gpushare.yaml"
#define ROLES      "/apis/rbac.authorization.k8s.io/v1/clusterroles/"
#define SYSTEM     "/namespaces/kube-system/"
#define DEPLOYMENT "/apis/apps/v1" SYSTEM "deployments/gpushare-schd-extender"
#define PLUGIN     "/apis/apps/v1" SYSTEM "daemonsets/gpushare-device-plugin-ds"
#define SERVICE    "/api/v1" SYSTEM "services/gpushare-schd-extender"

/* Each object with the part that must become ours. */
static const char *const objects[][2] = {
    {DEPLOYMENT, "spec"},
    {PLUGIN, "spec"},
    {SERVICE, "spec"},
    {ROLES "gpushare-schd-extender", "rules"},
    {ROLES "gpushare-device-plugin", "rules"},
};
enum { OBJECTS = ARRAY_LEN(objects) };

/* New, one per object. */
static void remember(char *parts[OBJECTS])
{
    for (size_t i = 0; i < OBJECTS; i++) {
        cleanup_json json_t *j = peer_json(&cluster.api, "GET", objects[i][0], NULL);
        json_t *part = json_object_get(j, objects[i][1]);
        ck_assert_msg(part != NULL, "%s has no %s", objects[i][0], objects[i][1]);
        json_object_del(part, "clusterIP"); /* each Service gets another one */
        json_object_del(part, "clusterIPs");
        parts[i] = json_dumps(part, JSON_SORT_KEYS | JSON_COMPACT);
    }
}

static char *uid(const char *path)
{
    cleanup_json json_t *j = peer_json(&cluster.api, "GET", path, NULL);
    return xstrdup(lib_str(j, "metadata.uid"));
}

/* Whether the only pod of the plugin runs this image. */
static bool plugin_runs(const char *image)
{
    cleanup_json json_t *pods = cluster_items(
        "/api/v1" SYSTEM "pods?labelSelector=name%3Dgpushare-device-plugin-ds");
    if (json_array_size(pods) != 1)
        return false;
    json_t *pod = json_array_get(pods, 0);
    json_t *container = json_array_get(lib_at(pod, "spec.containers"), 0);
    return strcmp(lib_str(pod, "status.phase"), "Running") == 0 &&
           strstr(lib_str(container, "image"), image);
}

/* The deletion of the ServiceAccounts invalidates the token of the extender, so this is
 * the last test. */
START_TEST(the_go_systems_objects_become_ours)
{
    char *ours[OBJECTS], *go[OBJECTS], *after[OBJECTS];
    free(cluster_kubectl(ARGV("-n", "kube-system", "scale", "deployment",
                              "gpushare-schd-extender", "--replicas", "1")));
    remember(ours);
    free(cluster_kubectl(ARGV("delete", "-f", GO, "--timeout", "60s")));
    free(cluster_kubectl(ARGV("create", "-f", GO)));
    remember(go);
    cluster_create_bare_node("gpu", "gpushare", "true", CARDS(16384));
    lib_wait(plugin_runs("k8s-gpushare-plugin"));
    cleanup_free char *extender = uid(DEPLOYMENT), *plugin = uid(PLUGIN);

    free(cluster_kubectl(
        ARGV("apply", "-f", "manifests/rbac.yaml", "-f", "manifests/lease.yaml")));
    free(cluster_kubectl(ARGV("replace", "-f", "manifests/deployment.yaml")));
    free(cluster_kubectl(ARGV("replace", "-f", "manifests/device-plugin.yaml")));
    free(cluster_kubectl(ARGV("apply", "-f", "manifests/service.yaml", "-f",
                              "manifests/device-plugin-policy.yaml")));
    free(cluster_kubectl(ARGV("apply", "-f", "manifests/promise-policy.yaml", "-f",
                              "manifests/extender-policy.yaml")));
    remember(after);
    for (size_t i = 0; i < OBJECTS; i++) {
        if (strcmp(objects[i][0], SERVICE) != 0) /* equal in both */
            ck_assert_str_ne(go[i], ours[i]);
        ck_assert_str_eq(after[i], ours[i]);
        free(ours[i]);
        free(go[i]);
        free(after[i]);
    }
    /* The objects keep their UIDs, and the DaemonSet updated node by node. */
    cleanup_free char *extender_now = uid(DEPLOYMENT), *plugin_now = uid(PLUGIN);
    ck_assert_str_eq(extender_now, extender);
    ck_assert_str_eq(plugin_now, plugin);
    lib_wait(plugin_runs("localhost/gpushare-device-plugin"));
}
END_TEST

static const char *const up[] = {"--nodes", "0", NULL};
CLUSTER_MAIN("takeover", 120, up, the_go_systems_objects_become_ours)
