/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/overuse_node.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"

#define GIB   1073741824LL
#define ID(c) "4f797c539e6c745de61a93ca3ff892358ecbcaccd8414d5db545c38428142" c

static pid_t start_process(void)
{
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    while (pid == 0)
        pause();
    return pid;
}

/* The process in the made-up /proc, in this cgroup. */
static void add_process(pid_t pid, const char *cgroup_path)
{
    cleanup_free char *proc = xasprintf("/proc/%d", (int)pid);
    cleanup_free char *folder = xasprintf("root/proc/%d", (int)pid);
    cleanup_free char *stat = xasprintf("%s/stat", folder);
    cleanup_free char *cgroup = xasprintf("%s/cgroup", folder);
    cleanup_free char *text = temp_read(proc, "stat");
    cleanup_free char *in = xasprintf("0::%s\n", cgroup_path);
    temp_mkdir(lib_dir, folder);
    temp_write(lib_dir, stat, text);
    temp_write(lib_dir, cgroup, in);
}

static void add_container(struct overuse_node *n, const char *pod, const char *uid,
                          const char *id, pid_t pid, int from, int to)
{
    cleanup_free char *link =
        xasprintf("root/var/log/containers/%s_default_c-%s.log", pod, id);
    cleanup_free char *cgroup = xasprintf("/kubepods/pod%s/%s", uid, id);
    cleanup_json json_t *ids = kubelet_units("GPU-0", from, to);
    temp_write(lib_dir, link, "");
    add_process(pid, cgroup);
    kubelet_add(&n->kubelet, pod, ARGV("c"));
    kubelet_give(&n->kubelet, pod, "c", MEM, ids);
}

void overuse_node_use(const struct overuse_node *n, long long gib)
{
    agent_cards("{'uuid':'GPU-0','model':'Tesla T4','memoryTotal':%lld,'memoryUsed':%lld,"
                "'memoryReserved':0,'processes':[{'pid':%d,'bytes':%lld},"
                "{'pid':%d,'bytes':%lld}]}",
                16 * GIB, (7 + gib) * GIB, (int)n->greedy, gib * GIB, (int)n->modest,
                GIB);
}

void overuse_node_add_stuck(struct overuse_node *n)
{
    add_container(n, "stuck", OVERUSE_STUCK, ID("003"), 1, 12, 13);
    agent_cards("{'uuid':'GPU-0','model':'Tesla T4','memoryTotal':%lld,'memoryUsed':%lld,"
                "'memoryReserved':0,'processes':[{'pid':1,'bytes':%lld},"
                "{'pid':%d,'bytes':%lld},{'pid':%d,'bytes':%lld}]}",
                16 * GIB, 15 * GIB, 7 * GIB, (int)n->greedy, 5 * GIB, (int)n->modest,
                GIB);
}

pid_t overuse_node_add_outside(void)
{
    pid_t pid = start_process();
    add_process(pid, "/system.slice/display.service");
    return pid;
}

/* The second process of the host is kthreadd. */
void overuse_node_map(bool mapped)
{
    cleanup_free char *text =
        xasprintf("2 (%s) S 0 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 20 0 0\n",
                  mapped ? "kthreadd" : "sh");
    temp_write(lib_dir, "root/proc/2/stat", text);
}

void overuse_node_start(struct overuse_node *n, bool mapped)
{
    static const char *const folders[] = {"root",         "root/proc",
                                          "root/proc/2",  "root/var",
                                          "root/var/log", "root/var/log/containers"};
    n->source = agent_file();
    n->podresources = temp_path(lib_dir, "podresources.sock");
    n->root = temp_path(lib_dir, "root");
    for (size_t i = 0; i < ARRAY_LEN(folders); i++)
        temp_mkdir(lib_dir, folders[i]);
    overuse_node_map(mapped);
    kubelet_start(&n->kubelet);
    kubelet_add_units(&n->kubelet, "GPU-0", 16);
    n->greedy = start_process();
    n->modest = start_process();
    add_container(n, "greedy", OVERUSE_GREEDY, ID("001"), n->greedy, 0, 4);
    add_container(n, "modest", OVERUSE_MODEST, ID("002"), n->modest, 4, 12);
    overuse_node_use(n, 8);
}

int overuse_node_signal(pid_t pid)
{
    int status;
    kill(pid, SIGUSR1); /* SIGKILL comes first if it is pending */
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

void overuse_node_stop(struct overuse_node *n)
{
    kill(n->greedy, SIGKILL);
    kill(n->modest, SIGKILL);
    kubelet_fini(&n->kubelet);
    free(n->source);
    free(n->podresources);
    free(n->root);
}
