/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e-node/real_priv.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "e2e-node/cell.h"
#include "e2e-node/node.h"

enum { STEP_MS = 60 * 1000 };

/* Service kubernetes, of scripts/cluster. */
#define SERVICE_IP "10.96.0.1"
enum { SERVICE_PORT = 443 };

/* Settings of the whole machine, such as the size of the conntrack table, stay
 * unchanged. */
static void write_config(void)
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
    write_config();
    cluster_add_program("kube-proxy", ARGV("env", path, program, "--config", config));
    if (!real_soon(service_is_reached, "kube-proxy")) {
        cleanup_free char *why = real_last_words("kube-proxy");
        return err_set(err, ERR_UNAVAILABLE,
                       "kube-proxy: Service kubernetes is not reached: %s", why);
    }
    return 0;
}
