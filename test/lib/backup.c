/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/backup.h"

#include "lib/cluster.h"

static char etcd[4096]; /* its path: scripts/cluster may take it from the cache */

/* In the folder of the cluster. The tool lies beside etcd. */
static void etcdctl(const char *const *args)
{
    const char *argv[PROGRAM_ARGS] = {"env", "-C", cluster.dir, "ETCDCTL_API=3",
                                      lib_fmt("%sctl", etcd)};
    program_args(argv, 5, args);
    lib_output(0, argv);
}

static char *address(int which)
{
    unsigned ports[2];
    ck_assert_int_eq(sscanf(cluster_file("run/etcd.port"), "%u %u", &ports[0], &ports[1]),
                     2);
    return lib_fmt("127.0.0.1:%u", ports[which]);
}

void backup_save(void)
{
    const char *link = lib_fmt("/proc/%d/exe", (int)cluster_pid("etcd"));
    ssize_t n = readlink(link, etcd, sizeof etcd - 1);
    ck_assert_msg(n > 0, "cannot read %s", link);
    etcd[n] = '\0';
    etcdctl(ARGV("--endpoints", lib_fmt("https://%s", address(0)), "--cacert",
                 "pki/etcd-ca.crt", "--cert", "pki/etcd-client.crt", "--key",
                 "pki/etcd-client.key", "snapshot", "save", "snapshot"));
}

/* Replaces the folder of etcd by one of the snapshot, with the options of scripts/cluster. */
static void replace_data(void)
{
    const char *url = lib_fmt("http://%s", address(1)),
               *data = lib_fmt("%s/etcd", cluster.dir);
    etcdctl(ARGV("snapshot", "restore", "snapshot", "--data-dir", "restored", "--name",
                 "gpushare", "--initial-cluster", lib_fmt("gpushare=%s", url),
                 "--initial-advertise-peer-urls", url));
    lib_output(0, ARGV("rm", "-r", data));
    ck_assert_int_eq(rename(lib_fmt("%s/restored", cluster.dir), data), 0);
}

void backup_restore(void)
{
    static const char *const clients[] = {"kube-controller-manager", "kwok",
                                          "kube-scheduler"};
    cluster_stop("etcd", "KILL");
    cluster_stop("kube-apiserver", "KILL");
    replace_data();
    cluster_start("etcd");
    cluster_start("kube-apiserver");
    lib_wait(peer_status(&cluster.api, "/readyz") == 200);
    array_items(client, clients) {
        cluster_stop(*client, "TERM");
        cluster_start(*client);
    }
}
