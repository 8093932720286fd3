/* SPDX-License-Identifier: Apache-2.0 */

/*
 * containerd, a real kubelet and kube-proxy in the cell.
 */

#include "e2e-node/real.h"

#include <arpa/inet.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "e2e-node/cell.h"
#include "e2e-node/dns.h"
#include "e2e-node/node.h"

enum { STEP_MS = 60 * 1000, SHOWN = 300 };

#define CONTAINERD  "/run/containerd/containerd.sock"
#define SNAPSHOTTER "native" /* works on any file system; the images are small */
#ifdef __aarch64__
#define PLATFORM "linux/arm64"
#else
#define PLATFORM "linux/amd64"
#endif

static const char *runtime;          /* instead of runc */
static const char *more_config = ""; /* of the kubelet */

void real_set_runtime(const char *program)
{
    runtime = program;
}

void real_configure(const char *lines)
{
    more_config = lines;
}

/* A file of Debian's containerd, runc and CNI plugins, which scripts/install-deps.sh has
 * unpacked. */
static char *tool(const char *name)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    return cache && *cache
               ? lib_fmt("%s/gpushare/node/usr/%s", cache, name)
               : lib_fmt("%s/.cache/gpushare/node/usr/%s", home ? home : "", name);
}

bool real_has_cdi(void)
{
    const char *k8s = cluster_release();
    return strcmp(k8s, "1.35") != 0 && strcmp(k8s, "1.31") != 0;
}

/* "containerd" or "ctr". A kubelet of 1.36 wants more than Debian's 1.6.20 has. */
static char *containerd_program(const char *name)
{
    return real_has_cdi() ? cluster_program(name) : tool(lib_fmt("bin/%s", name));
}

/* Runs it with its tools in PATH; the shim of containerd is beside containerd. 0: it is as it
 * should be. */
static int start(const char *program, const char *const *args, bool (*is_well)(void),
                 const char *sign, struct err *err)
{
    const char *path = args[0], *argv[PROGRAM_ARGS] = {"env"};
    if (access(path, X_OK))
        return err_set(err, ERR_UNAVAILABLE, "%s: there is no %s", program, path);
    const char *beside = containerd_program("");
    argv[1] = lib_fmt("PATH=%s:%s:%s:%s:/usr/sbin:/sbin", beside, tool("bin"),
                      tool("sbin"), getenv("PATH"));
    program_args(argv, 2, args);
    cluster_add_program(program, argv);
    for (int64_t end = lib_now_ms() + STEP_MS; lib_now_ms() < end; lib_pause()) {
        if (is_well())
            return 0;
        if (!cluster_runs(program))
            break;
    }
    const char *log = cluster_file(lib_fmt("log/%s.log", program));
    size_t n = strlen(log);
    return err_set(err, ERR_UNAVAILABLE, "%s: %s: %s", program, sign,
                   n > SHOWN ? log + n - SHOWN : log);
}

/* -- containerd -- */

static void write_cni(void)
{
    char *dir = lib_fmt("%s/cni", cell_dir());
    mkdir(dir, 0700);
    temp_write(
        dir, "10-node.conflist",
        "{\"cniVersion\":\"1.0.0\",\"name\":\"node\",\"plugins\":[{\"type\":"
        "\"bridge\",\"bridge\":\"node-br\",\"isDefaultGateway\":true,\"ipam\":{\"type\":"
        "\"host-local\",\"ranges\":[[{\"subnet\":\"10.78.0.0/16\"}]]}}]}");
}

static void write_containerd(void)
{
    const char *d = cell_dir();
    temp_write(
        d, "containerd.toml",
        lib_fmt(
            "version = 2\n"
            "root = \"%s/containerd\"\n"
            "state = \"/run/containerd\"\n"
            "disabled_plugins = [\"io.containerd.snapshotter.v1.aufs\", "
            "\"io.containerd.snapshotter.v1.btrfs\", "
            "\"io.containerd.snapshotter.v1.devmapper\", "
            "\"io.containerd.snapshotter.v1.zfs\", "
            "\"io.containerd.tracing.processor.v1.otlp\","
            " \"io.containerd.internal.v1.tracing\"]\n"
            "[grpc]\n  address = \"" CONTAINERD "\"\n"
            "[plugins.\"io.containerd.internal.v1.opt\"]\n  path = \"%s/opt\"\n"
            "[plugins.\"io.containerd.nri.v1.nri\"]\n  disable = true\n"
            "[plugins.\"io.containerd.grpc.v1.cri\"]\n"
            "  sandbox_image = \"localhost/pause:1\"\n"
            "  disable_apparmor = true\n"
            "  restrict_oom_score_adj = true\n"
            "  netns_mounts_under_state_dir = true\n"
            "[plugins.\"io.containerd.grpc.v1.cri\".containerd]\n"
            "  snapshotter = \"" SNAPSHOTTER "\"\n"
            "  default_runtime_name = \"runc\"\n"
            "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n"
            "  runtime_type = \"io.containerd.runc.v2\"\n"
            "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\n"
            "  BinaryName = \"%s\"\n"
            "  Root = \"/run/containerd/runc\"\n"
            "[[plugins.\"io.containerd.transfer.v1.local\".unpack_config]]\n"
            "  platform = \"" PLATFORM "\"\n" /* for ctr without options */
            "  snapshotter = \"" SNAPSHOTTER "\"\n"
            "[plugins.\"io.containerd.grpc.v1.cri\".cni]\n"
            "  bin_dir = \"%s\"\n"
            "  conf_dir = \"%s/cni\"\n",
            d, d, runtime ? runtime : tool("sbin/runc"), tool("lib/cni"), d));
}

char *real_ctr(const char *const *args, struct err *err)
{
    struct program p;
    const char *argv[PROGRAM_ARGS] = {containerd_program("ctr"), "--address", CONTAINERD,
                                      "--namespace", "k8s.io"};
    program_args(argv, 5, args);
    program_start(&p, cell_dir(), argv);
    int status = program_wait(&p);
    char *said = lib_keep(program_end(&p, -1), free);
    if (!status)
        return said;
    err_set(err, ERR_UNAVAILABLE, "ctr %s: %s", args[0], said);
    return NULL;
}

static bool containerd_answers(void)
{
    return access(CONTAINERD, F_OK) == 0 && real_ctr(ARGV("version"), NULL);
}

static int start_containerd(struct err *err)
{
    write_cni();
    write_containerd();
    if (start("containerd",
              ARGV(containerd_program("containerd"), "--config",
                   lib_fmt("%s/containerd.toml", cell_dir()), "--log-level", "warn"),
              containerd_answers, "it does not answer", err))
        return -1;
    return real_import(lib_built("test/e2e-node/images.tar"), err);
}

int real_import(const char *archive, struct err *err)
{
    return real_ctr(ARGV("images", "import", "--snapshotter", SNAPSHOTTER, archive), err)
               ? 0
               : -1;
}

void real_update(const char *id)
{
    lib_output(0, ARGV(tool("sbin/runc"), "--root", "/run/containerd/runc/k8s.io",
                       "update", "--cpu-share", "512", id));
}

/* -- the kubelet -- */

static void write_kubelet(void)
{
    const char *d = cell_dir();
    temp_write(
        d, "kubelet.yaml",
        lib_fmt(
            "apiVersion: kubelet.config.k8s.io/v1beta1\n"
            "kind: KubeletConfiguration\n"
            "authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}\n"
            "authorization: {mode: AlwaysAllow}\n"
            "address: " CELL_ADDRESS "\n" /* kube-apiserver asks it for logs */
            "clusterDNS: [" CELL_ADDRESS "]\n"
            "clusterDomain: " DNS_DOMAIN "\n"
            "containerRuntimeEndpoint: unix://" CONTAINERD "\n"
            "podLogsDir: %s/log/pods\n"
            "failCgroupV1: false\n"
            "cgroupDriver: cgroupfs\n"
            "cgroupsPerQOS: true\n"
            "cgroupRoot: /%s\n"
            "enforceNodeAllocatable: []\n"
            "failSwapOn: false\n"
            "localStorageCapacityIsolation: false\n"
            "makeIPTablesUtilChains: false\n"
            "imageGCHighThresholdPercent: 100\n"
            "evictionHard: {memory.available: 1Mi, nodefs.available: 1Mi, "
            "nodefs.inodesFree: '1', imagefs.available: 1Mi, imagefs.inodesFree: '1'}\n"
            "kubeAPIQPS: 200\n"
            "kubeAPIBurst: 400\n"
            "eventRecordQPS: 0\n"
            "maxPods: 250\n"
            "nodeStatusUpdateFrequency: 2s\n"
            "resolvConf: \"\"\n"
            "staticPodPath: " CELL_STATIC "\n"
            "fileCheckFrequency: 1s\n"
            "%s",
            cluster.dir, cell_cgroup(), more_config));
    temp_mkdir(CELL_KUBERNETES, "manifests");
}

static bool node_is_ready(void)
{
    return cluster_node_is_ready(NODE);
}

static int start_kubelet(const char *labels, struct err *err)
{
    const char *d = cell_dir();
    write_kubelet();
    cluster_add_user("kubelet", "/O=system:nodes/CN=system:node:" NODE);
    return start("kubelet",
                 ARGV(cluster_program("kubelet"), "--config",
                      lib_fmt("%s/kubelet.yaml", d), "--kubeconfig",
                      lib_fmt("%s/kubelet.kubeconfig", cluster.dir), "--root-dir",
                      "/var/lib/kubelet", "--cert-dir", lib_fmt("%s/kubelet-pki", d),
                      "--hostname-override", NODE, "--node-ip", CELL_ADDRESS,
                      "--node-labels", labels),
                 node_is_ready, "its Node is not Ready", err);
}

/* -- kube-proxy -- */

/* Service kubernetes, of scripts/cluster. */
#define SERVICE_IP "10.96.0.1"
enum { SERVICE_PORT = 443 };

/* Settings of the whole machine, such as the size of the conntrack table, stay
 * unchanged. */
static void write_proxy(void)
{
    temp_write(
        cell_dir(), "proxy.yaml",
        lib_fmt(
            "apiVersion: kubeproxy.config.k8s.io/v1alpha1\n"
            "kind: KubeProxyConfiguration\n"
            "mode: iptables\n" /* in mode nftables there are no node ports on 127.0.0.1 */
            "clientConnection: {kubeconfig: \"%s/kube-proxy.kubeconfig\"}\n"
            "hostnameOverride: " NODE "\n"
            "clusterCIDR: 10.78.0.0/16\n"
            "healthzBindAddress: 127.0.0.1:10256\n"
            "metricsBindAddress: 127.0.0.1:10249\n"
            "iptables: {localhostNodePorts: true}\n"
            "conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, "
            "tcpCloseWaitTimeout: 0s}\n",
            cluster.dir));
}

static bool service_is_reached(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(SERVICE_PORT)};
    const struct timeval limit = {.tv_sec = 1};
    cleanup_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    inet_pton(AF_INET, SERVICE_IP, &to.sin_addr);
    return connect(fd, (struct sockaddr *)&to, sizeof to) == 0;
}

int real_start_proxy(struct err *err)
{
    cluster_add_user("kube-proxy", "/CN=system:kube-proxy");
    write_proxy();
    return start("kube-proxy",
                 ARGV(cluster_program("kube-proxy"), "--config",
                      lib_fmt("%s/proxy.yaml", cell_dir())),
                 service_is_reached, "Service kubernetes is not reached", err);
}

/* -- a container -- */

static int run_first(struct err *err)
{
    const json_t *pod = NULL;
    node_create("none", "first");
    for (int64_t end = lib_now_ms() + STEP_MS; lib_now_ms() < end; lib_pause()) {
        pod = cluster_pod("first");
        if (strcmp(lib_str(pod, "status.phase"), "Running") == 0 &&
            real_log("first", lib_str(pod, "metadata.uid"), "c"))
            return 0;
    }
    const json_t *events = cluster_list(
        "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dfirst,"
        "type%3DWarning");
    const json_t *last = json_array_get(events, json_array_size(events) - 1);
    return err_set(err, ERR_UNAVAILABLE, "the first container is %s: %s",
                   lib_str(pod, "status.phase"), lib_str(last, "message"));
}

int real_start(const char *labels, struct err *err)
{
    if (start_containerd(err) || start_kubelet(labels, err) || run_first(err))
        return -1;
    cluster_delete_pods();
    return 0;
}

void real_stop(void)
{
    static const char *const programs[] = {"kubelet", "containerd"};
    for (size_t i = 0; i < ARRAY_LEN(programs); i++)
        if (cluster_runs(programs[i]))
            cluster_stop(programs[i], "KILL");
}

void real_wait_ready(void)
{
    struct peer kubelet;
    peer_init(&kubelet, 10248);
    lib_wait(peer_status(&kubelet, "/healthz") == 200 && node_is_ready());
    peer_fini(&kubelet);
}

/* -- logs -- */

/* The text of the lines "TIME stdout F text". */
static char *texts(struct span log)
{
    cleanup_buf struct buf out = {0};
    bool complete = false;
    while (log.n) {
        struct span line = span_cut(&log, '\n');
        for (int i = 0; i < 3; i++)
            span_cut(&line, ' ');
        complete = span_eq(line, SPAN("that is all"));
        if (!complete)
            buf_printf(&out, "%.*s\n", SPAN_ARG(line));
    }
    return complete && out.n ? lib_keep(buf_take(&out), free) : NULL;
}

char *real_log(const char *pod, const char *uid, const char *container)
{
    cleanup_buf struct buf log = {0};
    glob_t all = {0};
    char *text = NULL;
    if (glob(lib_fmt("%s/log/pods/default_%s_%s/%s/*.log", cluster.dir, pod, uid,
                     container),
             0, NULL, &all) == 0 &&
        file_read(all.gl_pathv[all.gl_pathc - 1], 1 << 20, &log, NULL) == 0)
        text = texts(buf_span(&log));
    globfree(&all);
    return text;
}
