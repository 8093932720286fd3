/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cluster.h"
#include "lib/network.h"
#include "lib/tls.h"

/*
 * gpunodes and gpupods through the aggregation layer of a real API server, with the
 * objects of manifests/apiservice.yaml.example: kubectl reads them, RBAC authorizes the
 * user, and the extender trusts only the front proxy.
 */

#define API      "/apis/nvidia-gpu-scheduler/v1"
#define SERVICE  "gpushare-observe"
#define MANIFEST "manifests/apiservice.yaml.example"

/* kubeadm creates such a pair; this API server starts without one. */
static void give_the_api_server_a_front_proxy(void)
{
    cluster_start_with("kube-apiserver",
                       ARGV("--requestheader-client-ca-file", "pki/front.crt",
                            "--requestheader-allowed-names", "front-proxy",
                            "--requestheader-username-headers", "X-Remote-User",
                            "--requestheader-group-headers", "X-Remote-Group",
                            "--requestheader-extra-headers-prefix", "X-Remote-Extra-",
                            "--proxy-client-cert-file", "pki/front-proxy.crt",
                            "--proxy-client-key-file", "pki/front-proxy.key"));
    lib_wait(peer_status(&cluster.api, "/readyz") == 200);
}

static void start_extender(void)
{
    cluster_start_with("gpushare-extender",
                       ARGV("--tls-cert", cluster_pki("server.crt"), "--tls-key",
                            cluster_pki("server.key"), "--insecure",
                            "--requestheader-client-ca", cluster_pki("front.crt"),
                            "--requestheader-allowed-names", "front-proxy", "--log-level",
                            "debug"));
    extender_connect(&cluster.extender, cluster_pki("ca.crt"), NULL, NULL);
    extender_wait_answers(&cluster.extender);
}

/* No pod of this cluster can back a Service, so the Service points to the name of this
 * machine, at the port of the APIService. */
static void apply_manifest(void)
{
    cluster_kubectl("apply", "-f", MANIFEST);
    cluster_kubectl("patch", "service", "-n", "kube-system", SERVICE, "--type", "merge",
                    "-p",
                    "{\"spec\":{\"type\":\"ExternalName\",\"externalName\":\"localhost\","
                    "\"selector\":null,\"clusterIP\":\"\",\"clusterIPs\":null}}");
    cluster_kubectl("patch", "apiservice", "v1.nvidia-gpu-scheduler", "--type", "merge",
                    "-p",
                    lib_fmt("{\"spec\":{\"caBundle\":\"%s\",\"service\":{\"port\":%u}}}",
                            lib_output(0, ARGV("base64", "-w0", cluster_pki("ca.crt"))),
                            cluster.extender.observers.port));
    lib_wait(peer_status(&cluster.api, API "/gpunodes") == 200);
}

/* curl through the API server as admin, who can impersonate another user. */
#define CURL(path, ...)                                                                  \
    ARGV("curl", "-sSN", "--noproxy", "*", "--cacert", cluster_pki("ca.crt"), "--cert",  \
         cluster_pki("admin.crt"), "--key", cluster_pki("admin.key"),                    \
         lib_fmt("https://%s%s", network_at(cluster.api.port), path), __VA_ARGS__)

/* What alice gets, and the status. */
static char *of_alice(void)
{
    return lib_output(0, CURL(API "/gpunodes", "-H", "Impersonate-User: alice", "-w",
                              "\nstatus %{http_code}\n"));
}

TEST(kubectl_reads_gpunodes_and_rbac_authorizes)
{
    const char *dir = cluster_pki("");
    tls_make_ca(dir, "front");
    tls_make_cert(dir, "front", "front-proxy", "DNS:front-proxy.test");
    tls_make_cert(dir, "ca", "server",
                  "IP:127.0.0.1,IP:::1,DNS:" SERVICE ".kube-system.svc");
    give_the_api_server_a_front_proxy();
    start_extender();
    cluster_create_scv("n1", CARDS(16384, 16384));
    apply_manifest();

    /* The watch of the extender, and the discovery of the API server, come a moment later. */
    lib_wait(strstr(cluster_kubectl("get", "--raw", API "/gpunodes"),
                    "\"device_id\":\"GPU-n1-0\""));
    ck_assert_contains(cluster_kubectl("get", "--raw", API "/gpunodes"),
                       "{\"metadata\":{},\"items\":[{\"kind\":\"GpuNode\",");
    static const char *const resources[] = {"gpunodes.nvidia-gpu-scheduler",
                                            "gpupods.nvidia-gpu-scheduler"};
    array_items(resource, resources)
        lib_wait(strstr(cluster_kubectl("api-resources", "--api-group",
                                        "nvidia-gpu-scheduler", "-o", "name"),
                        *resource));

    ck_assert_contains(of_alice(), "status 403");
    cluster_kubectl("create", "clusterrolebinding", "alice", "--clusterrole",
                    "gpushare-observer", "--user", "alice");
    lib_wait(strstr(of_alice(), "status 200"));
    lib_wait(cluster_logged("user=alice proxy=front-proxy"));

    /* A watch streams its events. */
    struct program watch;
    program_start(&watch, lib_dir, CURL(API "/gpunodes?watch=true", NULL));
    ck_assert(program_wait_output(&watch, "\"device_busy\":[],"));
    int64_t begun = lib_now_ms();
    cluster_create_scv("n2", CARDS(16384));
    ck_assert(program_wait_output(&watch, "GPU-n2-0"));
    cluster_report("from an Scv to its line in a watch through the API server",
                   lib_now_ms() - begun);
    cluster_delete("/apis/core.run-linux.com/v1/scvs/n2");
    ck_assert(program_wait_output(&watch, "\"Type\":\"DELETED\"}"));
    program_kill(&watch);
}

CLUSTER_MAIN(180)
