/* SPDX-License-Identifier: Apache-2.0 */
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

static void remember(const char *parts[OBJECTS])
{
    for (size_t i = 0; i < OBJECTS; i++) {
        json_t *j = peer_get(&cluster.api, objects[i][0]);
        json_object_del(lib_at(j, "spec"), "clusterIP"); /* each Service has another */
        json_object_del(lib_at(j, "spec"), "clusterIPs");
        parts[i] = lib_text(j, objects[i][1]);
        ck_assert_msg(*parts[i], "%s has no %s", objects[i][0], objects[i][1]);
    }
}

static const char *uid(const char *path)
{
    return lib_str(peer_get(&cluster.api, path), "metadata.uid");
}

/* Whether the only pod of the plugin runs this image. */
static bool plugin_runs(const char *image)
{
    const json_t *pods = cluster_list(
        "/api/v1" SYSTEM "pods?labelSelector=name%3Dgpushare-device-plugin-ds");
    return json_array_size(pods) == 1 &&
           strcmp(lib_str(pods, "0.status.phase"), "Running") == 0 &&
           strstr(lib_str(pods, "0.spec.containers.0.image"), image);
}

/* The deletion of the ServiceAccounts invalidates the token of the extender, so this is
 * the last test. */
TEST(the_go_systems_objects_become_ours)
{
    const char *ours[OBJECTS], *go[OBJECTS], *after[OBJECTS];
    cluster_kubectl("-n", "kube-system", "scale", "deployment", "gpushare-schd-extender",
                    "--replicas", "1");
    remember(ours);
    cluster_kubectl("delete", "-f", GO, "--timeout", "60s");
    cluster_kubectl("create", "-f", GO);
    remember(go);
    cluster_create_node("gpu", ",\"gpushare\":\"true\"", CARDS(16384));
    lib_wait(plugin_runs("k8s-gpushare-plugin"));
    const char *extender = uid(DEPLOYMENT), *plugin = uid(PLUGIN);

    cluster_kubectl("apply", "-f", "manifests/rbac.yaml", "-f", "manifests/lease.yaml");
    cluster_kubectl("replace", "-f", "manifests/deployment.yaml");
    cluster_kubectl("replace", "-f", "manifests/node.yaml");
    cluster_kubectl("apply", "-f", "manifests/service.yaml", "-f",
                    "manifests/node-policy.yaml");
    cluster_kubectl("apply", "-f", "manifests/promise-policy.yaml", "-f",
                    "manifests/extender-policy.yaml");
    remember(after);
    for (size_t i = 0; i < OBJECTS; i++) {
        if (strcmp(objects[i][0], SERVICE) != 0) /* equal in both */
            ck_assert_str_ne(go[i], ours[i]);
        ck_assert_str_eq(after[i], ours[i]);
    }
    /* The objects keep their UIDs, and the DaemonSet updated node by node. */
    ck_assert_str_eq(uid(DEPLOYMENT), extender);
    ck_assert_str_eq(uid(PLUGIN), plugin);
    lib_wait(plugin_runs("localhost/gpushare-node"));
}

CLUSTER_MAIN(120)
