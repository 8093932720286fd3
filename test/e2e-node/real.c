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

enum { STEP_MS = 60 * 1000, LOG_MAX = 64 << 20 };

#define CONTAINERD "/run/containerd/containerd.sock"

static const char *runtime; /* instead of runc */

void real_set_runtime(const char *program)
{
    runtime = program;
}

/* The folder in which scripts/install-deps.sh has unpacked Debian's containerd, runc and
 * CNI plugins. */
static char *tools(void)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    return cache && *cache ? xasprintf("%s/gpushare/node/usr", cache)
                           : xasprintf("%s/.cache/gpushare/node/usr", home ? home : "");
}

bool real_has_cdi(void)
{
    const char *k8s = cluster_release();
    return strcmp(k8s, "1.35") != 0 && strcmp(k8s, "1.31") != 0;
}

/* "containerd" or "ctr", new. A kubelet of 1.36 wants more than Debian's 1.6.20 has. */
static char *containerd_program(const char *name)
{
    cleanup_free char *usr = tools();
    return real_has_cdi() ? cluster_program(name) : xasprintf("%s/bin/%s", usr, name);
}

/* PATH=..., new: the shim of containerd is beside it. */
static char *path_of_tools(void)
{
    cleanup_free char *usr = tools(), *own = containerd_program("containerd");
    *strrchr(own, '/') = '\0';
    return xasprintf("PATH=%s:%s/bin:%s/sbin:%s:/usr/sbin:/sbin", own, usr, usr,
                     getenv("PATH"));
}

static char *last_words(const char *program)
{
    cleanup_free char *path = xasprintf("%s/log/%s.log", cluster.dir, program);
    cleanup_buf struct buf log = {0};
    if (file_read(path, LOG_MAX, &log, NULL) || !log.n)
        return xstrdup("it said nothing");
    while (log.n && log.p[log.n - 1] == '\n')
        log.p[--log.n] = '\0';
    const char *line = strrchr(log.p, '\n');
    return xasprintf("%.300s", line ? line + 1 : log.p);
}

static bool happens_soon(bool (*is_true)(void), const char *program)
{
    for (int64_t end = lib_now_ms() + STEP_MS; lib_now_ms() < end; lib_pause()) {
        if (is_true())
            return true;
        if (!cluster_runs(program))
            return false;
    }
    return false;
}

/* -- containerd -- */

static void write_cni(void)
{
    cleanup_free char *dir = xasprintf("%s/cni", cell_dir());
    mkdir(dir, 0700);
    temp_write(
        dir, "10-node.conflist",
        "{\"cniVersion\":\"1.0.0\",\"name\":\"node\",\"plugins\":[{\"type\":"
        "\"bridge\",\"bridge\":\"node-br\",\"isDefaultGateway\":true,\"ipam\":{\"type\":"
        "\"host-local\",\"ranges\":[[{\"subnet\":\"10.78.0.0/16\"}]]}}]}");
}

static void write_containerd(const char *usr)
{
    const char *d = cell_dir();
    cleanup_free char *runc = xasprintf("%s/sbin/runc", usr);
    cleanup_free char *text = xasprintf(
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
        "  snapshotter = \"native\"\n" /* works on any file system; the images are small */
        "  default_runtime_name = \"runc\"\n"
        "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n"
        "  runtime_type = \"io.containerd.runc.v2\"\n"
        "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\n"
        "  BinaryName = \"%s\"\n"
        "  Root = \"/run/containerd/runc\"\n"
        "[plugins.\"io.containerd.grpc.v1.cri\".cni]\n"
        "  bin_dir = \"%s/lib/cni\"\n"
        "  conf_dir = \"%s/cni\"\n",
        d, d, runtime ? runtime : runc, usr, d);
    temp_write(d, "containerd.toml", text);
}

int real_ctr(const char *const *args, struct buf *out, struct err *err)
{
    struct program p;
    cleanup_free char *path = containerd_program("ctr");
    const char *argv[16] = {path, "--address", CONTAINERD, "--namespace", "k8s.io"};
    for (size_t n = 5; *args; n++)
        argv[n] = *args++;
    program_start(&p, cell_dir(), argv);
    int status = program_wait(&p);
    if (status)
        err_set(err, ERR_UNAVAILABLE, "ctr %s: %s", argv[5], program_output(&p));
    else if (out)
        buf_adds(out, program_output(&p));
    program_fini(&p);
    return status ? -1 : 0;
}

static bool containerd_answers(void)
{
    return access(CONTAINERD, F_OK) == 0 && real_ctr(ARGV("version"), NULL, NULL) == 0;
}

static int start_containerd(struct err *err)
{
    cleanup_free char *usr = tools(), *program = containerd_program("containerd");
    cleanup_free char *path = path_of_tools();
    cleanup_free char *config = xasprintf("%s/containerd.toml", cell_dir());
    cleanup_free char *images = program_path("test/e2e-node/images.tar");
    if (access(program, X_OK))
        return err_set(err, ERR_UNAVAILABLE, "containerd: there is no %s; %s brings it",
                       program,
                       real_has_cdi() ? "scripts/e2e-programs containerd"
                                      : "scripts/install-deps.sh --e2e-node");
    write_cni();
    write_containerd(usr);
    cluster_add_program("containerd", ARGV("env", path, program, "--config", config,
                                           "--log-level", "warn"));
    if (!happens_soon(containerd_answers, "containerd")) {
        cleanup_free char *why = last_words("containerd");
        return err_set(err, ERR_UNAVAILABLE, "containerd does not answer: %s", why);
    }
    return real_import(images, err);
}

int real_import(const char *archive, struct err *err)
{
    /* The transfer service of containerd 2 is configured for another snapshotter. */
    if (real_has_cdi())
        return real_ctr(
            ARGV("images", "import", "--local", "--snapshotter", "native", archive), NULL,
            err);
    return real_ctr(ARGV("images", "import", "--snapshotter", "native", archive), NULL,
                    err);
}

int real_update(const char *id, struct err *err)
{
    struct program p;
    cleanup_free char *usr = tools(), *runc = xasprintf("%s/sbin/runc", usr);
    program_start(&p, cell_dir(),
                  ARGV(runc, "--root", "/run/containerd/runc/k8s.io", "update",
                       "--cpu-share", "512", id));
    int status = program_wait(&p);
    if (status)
        err_set(err, ERR_UNAVAILABLE, "runc update: %s", program_output(&p));
    program_fini(&p);
    return status ? -1 : 0;
}

int real_kill(const char *container, struct err *err)
{
    const char *id = strstr(container, "://");
    return real_ctr(
        ARGV("tasks", "kill", "--signal", "SIGKILL", id ? id + 3 : container), NULL, err);
}

/* -- the kubelet -- */

static void write_kubelet(void)
{
    const char *d = cell_dir();
    cleanup_free char *text = xasprintf(
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
        "staticPodPath: %s/" CELL_STATIC "\n"
        "fileCheckFrequency: 1s\n",
        cluster.dir, cell_cgroup(), d);
    temp_write(d, "kubelet.yaml", text);
    temp_mkdir(d, CELL_STATIC);
}

static bool node_is_ready(void)
{
    cleanup_buf struct buf reply = {0};
    if (peer_call(&cluster.api, "GET", "/api/v1/nodes/" NODE, NULL, &reply) != 200)
        return false;
    cleanup_json json_t *node = json_loadb(reply.p, reply.n, 0, NULL);
    size_t i;
    json_t *c;
    bool ready = false;
    json_array_foreach(lib_at(node, "status.conditions"), i, c)
    {
        if (strcmp(lib_str(c, "type"), "Ready") == 0)
            ready = strcmp(lib_str(c, "status"), "True") == 0;
    }
    return ready && json_array_size(lib_at(node, "spec.taints")) == 0;
}

static int start_kubelet(const char *labels, struct err *err)
{
    const char *d = cell_dir();
    cleanup_free char *program = cluster_program("kubelet");
    cleanup_free char *path = path_of_tools();
    cleanup_free char *config = xasprintf("%s/kubelet.yaml", d);
    cleanup_free char *keys = xasprintf("%s/kubelet-pki", d);
    cleanup_free char *kubeconfig = temp_path(cluster.dir, "kubelet.kubeconfig");
    if (access(program, X_OK))
        return err_set(err, ERR_UNAVAILABLE,
                       "kubelet: there is no %s; scripts/e2e-programs kubelet builds it",
                       program);
    write_kubelet();
    cluster_add_user("kubelet", "/O=system:nodes/CN=system:node:" NODE);
    cluster_add_program("kubelet",
                        ARGV("env", path, program, "--config", config, "--kubeconfig",
                             kubeconfig, "--root-dir", "/var/lib/kubelet", "--cert-dir",
                             keys, "--hostname-override", NODE, "--node-ip", CELL_ADDRESS,
                             "--node-labels", labels));
    if (!happens_soon(node_is_ready, "kubelet")) {
        cleanup_free char *why = last_words("kubelet");
        return err_set(err, ERR_UNAVAILABLE, "kubelet: its Node is not Ready: %s", why);
    }
    return 0;
}

/* -- kube-proxy -- */

/* Service kubernetes, of scripts/cluster. */
#define SERVICE_IP "10.96.0.1"
enum { SERVICE_PORT = 443 };

/* Settings of the whole machine, such as the size of the conntrack table, stay
 * unchanged. */
static void write_proxy(void)
{
    cleanup_free char *kubeconfig = temp_path(cluster.dir, "kube-proxy.kubeconfig");
    cleanup_free char *text = xasprintf(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\n"
        "kind: KubeProxyConfiguration\n"
        "mode: iptables\n" /* in mode nftables there are no node ports on 127.0.0.1 */
        "clientConnection: {kubeconfig: \"%s\"}\n"
        "hostnameOverride: " NODE "\n"
        "clusterCIDR: 10.78.0.0/16\n"
        "healthzBindAddress: 127.0.0.1:10256\n"
        "metricsBindAddress: 127.0.0.1:10249\n"
        "iptables: {localhostNodePorts: true}\n"
        "conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, "
        "tcpCloseWaitTimeout: 0s}\n",
        kubeconfig);
    temp_write(cell_dir(), "proxy.yaml", text);
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
    cleanup_free char *program = cluster_program("kube-proxy");
    cleanup_free char *config = xasprintf("%s/proxy.yaml", cell_dir());
    cleanup_free char *path = xasprintf("PATH=%s:/usr/sbin:/sbin", getenv("PATH"));
    if (access(program, X_OK))
        return err_set(err, ERR_UNAVAILABLE,
                       "kube-proxy: there is no %s; scripts/e2e-programs kube-proxy "
                       "builds it",
                       program);
    cluster_add_user("kube-proxy", "/CN=system:kube-proxy");
    write_proxy();
    cluster_add_program("kube-proxy", ARGV("env", path, program, "--config", config));
    if (!happens_soon(service_is_reached, "kube-proxy")) {
        cleanup_free char *why = last_words("kube-proxy");
        return err_set(err, ERR_UNAVAILABLE,
                       "kube-proxy: Service kubernetes is not reached: %s", why);
    }
    return 0;
}

/* -- a container -- */

static const char *waiting_for(const json_t *pod)
{
    const json_t *status = lib_at(pod, "status.containerStatuses.0");
    const char *text = lib_str(status, "state.waiting.message");
    return *text ? text : lib_str(status, "state.waiting.reason");
}

/* Why the container has not started: the newest Warning about the pod. */
static char *warning(const char *pod)
{
    cleanup_free char *path = xasprintf("/api/v1/namespaces/default/events?fieldSelector="
                                        "involvedObject.name%%3D%s,type%%3DWarning",
                                        pod);
    cleanup_json json_t *events = cluster_items(path);
    const json_t *last = json_array_get(events, json_array_size(events) - 1);
    return xstrdup(lib_str(last, "message"));
}

static int run_first(struct err *err)
{
    node_create("none", "first");
    for (int64_t end = lib_now_ms() + STEP_MS; lib_now_ms() < end; lib_pause()) {
        cleanup_json json_t *pod = cluster_pod("first");
        cleanup_free char *log = real_log("first", lib_str(pod, "metadata.uid"), "c");
        if (strcmp(lib_str(pod, "status.phase"), "Running") == 0 && log)
            return 0;
    }
    cleanup_json json_t *pod = cluster_pod("first");
    cleanup_free char *why = warning("first");
    return err_set(err, ERR_UNAVAILABLE, "the first container is %s: %s %s",
                   lib_str(pod, "status.phase"), waiting_for(pod), why);
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

static bool kubelet_answers(void)
{
    cleanup_buf struct buf reply = {0};
    struct peer health;
    peer_init(&health, 10248);
    bool well = peer_call(&health, "GET", "/healthz", NULL, &reply) == 200;
    peer_fini(&health);
    return well;
}

void real_wait_ready(void)
{
    lib_wait(kubelet_answers() && node_is_ready());
}

/* -- logs -- */

/* The text of the lines "TIME stdout F text". */
static char *texts(struct span log)
{
    struct buf out = {0};
    bool complete = false;
    while (log.n) {
        struct span line = span_cut(&log, '\n');
        for (int i = 0; i < 3; i++)
            span_cut(&line, ' ');
        complete = span_eq(line, SPAN("that is all"));
        if (!complete)
            buf_printf(&out, "%.*s\n", SPAN_ARG(line));
    }
    if (complete && out.n)
        return buf_take(&out);
    buf_fini(&out);
    return NULL;
}

char *real_log(const char *pod, const char *uid, const char *container)
{
    cleanup_free char *pattern =
        xasprintf("%s/log/pods/default_%s_%s/%s/*.log", cluster.dir, pod, uid, container);
    cleanup_buf struct buf log = {0};
    glob_t all;
    char *text = NULL;
    if (glob(pattern, 0, NULL, &all) == 0) {
        if (file_read(all.gl_pathv[all.gl_pathc - 1], 1 << 20, &log, NULL) == 0)
            text = texts(buf_span(&log));
        globfree(&all);
    }
    return text;
}
