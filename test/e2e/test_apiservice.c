/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "lib/cluster.h"
#include "lib/tls.h"

/*
 * gpunodes and gpupods through the aggregation layer of a real API server, with the
 * objects of manifests/apiservice.yaml.example: kubectl reads them, RBAC authorizes the
 * user, and the extender trusts only the front proxy.
 */

#define API      "/apis/nvidia-gpu-scheduler/v1"
#define SERVICE  "gpushare-observe"
#define MANIFEST "manifests/apiservice.yaml.example"

static char *pki(const char *name)
{
    cleanup_free char *part = xasprintf("pki/%s", name);
    return temp_path(cluster.dir, part);
}

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
    cleanup_free char *cert = pki("server.crt"), *key = pki("server.key"),
                      *front = pki("front.crt"), *ca = pki("ca.crt");
    unsigned verbs = cluster.extender.verbs.port, look = cluster.extender.observers.port;
    cluster_start_with("gpushare-extender",
                       ARGV("--tls-cert", cert, "--tls-key", key, "--insecure",
                            "--requestheader-client-ca", front,
                            "--requestheader-allowed-names", "front-proxy", "--log-level",
                            "debug"));
    peer_fini(&cluster.extender.verbs);
    peer_fini(&cluster.extender.observers);
    peer_init_tls(&cluster.extender.verbs, verbs, ca);
    peer_init_tls(&cluster.extender.observers, look, ca);
    extender_wait_answers(&cluster.extender);
}

/* No pod of this cluster can back a Service, so the Service points to the name of this
 * machine, at the port of the APIService. */
static void apply_manifest(void)
{
    cleanup_free char *ca = pki("ca.crt");
    cleanup_free char *encode = xasprintf("base64 -w0 %s", ca);
    struct program p;
    program_start(&p, lib_dir, ARGV("sh", "-c", encode));
    ck_assert_int_eq(program_wait(&p), 0);
    cleanup_free char *service =
        xasprintf("{\"spec\":{\"type\":\"ExternalName\",\"externalName\":\"localhost\","
                  "\"selector\":null,\"clusterIP\":\"\",\"clusterIPs\":null}}");
    cleanup_free char *api =
        xasprintf("{\"spec\":{\"caBundle\":\"%s\",\"service\":{\"port\":%u}}}",
                  program_output(&p), cluster.extender.observers.port);
    program_fini(&p);
    free(cluster_kubectl(ARGV("apply", "-f", MANIFEST)));
    free(cluster_kubectl(ARGV("patch", "service", "-n", "kube-system", SERVICE, "--type",
                              "merge", "-p", service)));
    free(cluster_kubectl(ARGV("patch", "apiservice", "v1.nvidia-gpu-scheduler", "--type",
                              "merge", "-p", api)));
    lib_wait(peer_status(&cluster.api, API "/gpunodes") == 200);
}

/* curl through the API server as admin, who can impersonate another user. */
static void curl_start(struct program *p, const char *as, const char *path)
{
    cleanup_free char *ca = pki("ca.crt"), *crt = pki("admin.crt"),
                      *key = pki("admin.key"),
                      *url = xasprintf("https://127.0.0.1:%u%s", cluster.api.port, path),
                      *header = xasprintf("Impersonate-User: %s", as ? as : "admin");
    program_start(p, lib_dir,
                  ARGV("curl", "-sSN", "--noproxy", "*", "--cacert", ca, "--cert", crt,
                       "--key", key, "-w", "\nstatus %{http_code}\n", as ? "-H" : "-sSN",
                       as ? header : "-sSN", url));
}

static void assert_gets(const char *as, const char *status)
{
    struct program p;
    curl_start(&p, as, API "/gpunodes");
    ck_assert_int_eq(program_wait(&p), 0);
    ck_assert_contains(program_output(&p), status);
    program_fini(&p);
}

START_TEST(kubectl_reads_gpunodes_and_rbac_authorizes)
{
    cleanup_free char *dir = temp_path(cluster.dir, "pki");
    tls_make_ca(dir, "front");
    tls_make_cert(dir, "front", "front-proxy", "DNS:front-proxy.test");
    tls_make_cert(dir, "ca", "server", "IP:127.0.0.1,DNS:" SERVICE ".kube-system.svc");
    give_the_api_server_a_front_proxy();
    start_extender();
    cluster_create_scv("n1", CARDS(16384, 16384));
    apply_manifest();

    cleanup_free char *nodes = cluster_kubectl(ARGV("get", "--raw", API "/gpunodes"));
    ck_assert_contains(nodes, "{\"metadata\":{},\"items\":[{\"kind\":\"GpuNode\",");
    ck_assert_contains(nodes, "\"device_id\":\"GPU-n1-0\"");
    cleanup_free char *resources = cluster_kubectl(
        ARGV("api-resources", "--api-group", "nvidia-gpu-scheduler", "-o", "name"));
    ck_assert_contains(resources, "gpunodes.nvidia-gpu-scheduler");
    ck_assert_contains(resources, "gpupods.nvidia-gpu-scheduler");

    assert_gets("alice", "status 403");
    free(cluster_kubectl(ARGV("create", "clusterrolebinding", "alice", "--clusterrole",
                              "gpushare-observer", "--user", "alice")));
    lib_wait(({
        struct program p;
        curl_start(&p, "alice", API "/gpunodes");
        ck_assert_int_eq(program_wait(&p), 0);
        bool good = strstr(program_output(&p), "status 200") != NULL;
        program_fini(&p);
        good;
    }));
    ck_assert_uint_gt(cluster_logged("user=alice proxy=front-proxy"), 0);

    /* A watch streams its events. */
    struct program watch;
    curl_start(&watch, NULL, API "/gpunodes?watch=true");
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
END_TEST

static const char *const up[] = {"--nodes", "0", NULL};
CLUSTER_MAIN("apiservice", 180, up, kubectl_reads_gpunodes_and_rbac_authorizes)
