/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/install_node.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "lib/node_files.h"

char *install_node_root;

void install_node_change(const char *path, const char *from, const char *to)
{
    cleanup_free char *text =
        node_files_swap(temp_read(install_node_root, path), from, to);
    temp_write(install_node_root, path, text);
}

char *install_node_command(int status, const char *const *argv)
{
    struct program p;
    program_start(&p, lib_dir, argv);
    return program_end(&p, status);
}

char *install_node_run(int status, const char *const *options)
{
    cleanup_free char *build = xasprintf("BUILD=%s", getenv("GPUSHARE_BUILD"));
    cleanup_free char *admin = temp_path(cluster.dir, "admin.kubeconfig");
    const char *argv[24] = {
        "env",    build,   "scripts/install", "--root", install_node_root,
        "--proc", "/proc", "--kubeconfig",    admin};
    for (size_t n = 9; *options; n++, options++) {
        ck_assert_uint_lt(n, ARRAY_LEN(argv) - 1);
        argv[n] = *options;
    }
    return install_node_command(status, argv);
}

unsigned install_node_port(void)
{
    cleanup_free char *said = install_node_command(
        0, ARGV("bash", "-c",
                "while :; do p=$((10000 + SRANDOM % 20000)); "
                "! (: </dev/tcp/127.0.0.1/$p) 2>/dev/null && break; done; echo $p"));
    return (unsigned)strtoul(said, NULL, 10);
}

bool install_node_has_card(const char *pod)
{
    cleanup_json json_t *j = cluster_pod(pod);
    return json_object_get(lib_at(j, "metadata.annotations"), "ALIYUN_COM_GPU_MEM_IDX");
}

static bool is_clean(char **said)
{
    free(*said);
    *said = install_node_run(-1, ARGV("--check"));
    return !strstr(*said, "PROBLEM") && !strstr(*said, "unknown ");
}

/* The kubelet applies changes a moment later. */
void install_node_wait_clean(void)
{
    char *said = NULL;
    int64_t until = lib_now_ms() + PROGRAM_WAIT_MS;
    while (!is_clean(&said))
        ck_assert_msg(lib_now_ms() < until, "never clean: %s", said);
    free(said);
}

bool install_node_has_secret(void)
{
    cleanup_buf struct buf reply = {0};
    return peer_call(&cluster.api, "GET",
                     "/api/v1/namespaces/kube-system/secrets/gpushare-scheduler-tls",
                     NULL, &reply) == 200;
}

/* Writes a key of the Secret to cluster.dir/FILE; returns the path, new. */
static char *secret_file(const char *key, const char *file)
{
    cleanup_free char *path =
        xasprintf("go-template={{index .data \"%s\" | base64decode}}", key);
    cleanup_free char *text = cluster_kubectl(
        ARGV("-n", "kube-system", "get", "secret", "gpushare-scheduler-tls", "-o", path));
    temp_write(cluster.dir, file, text);
    return temp_path(cluster.dir, file);
}

void install_node_connect(bool kube_scheduler)
{
    unsigned verbs = cluster.extender.verbs.port, look = cluster.extender.observers.port;
    cleanup_free char *ca = secret_file("ca.crt", "ca.crt"),
                      *crt = secret_file("tls.crt", "client.crt"),
                      *key = secret_file("tls.key", "client.key");
    peer_fini(&cluster.extender.verbs);
    peer_fini(&cluster.extender.observers);
    if (kube_scheduler) {
        peer_init_cert(&cluster.extender.verbs, verbs, ca, crt, key);
        peer_init_cert(&cluster.extender.observers, look, ca, crt, key);
    } else {
        peer_init_tls(&cluster.extender.verbs, verbs, ca);
        peer_init_tls(&cluster.extender.observers, look, ca);
    }
}
