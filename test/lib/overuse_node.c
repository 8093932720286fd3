/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/overuse_node.h"

#include <signal.h>
#include <sys/wait.h>

#include "domain/ids.h"

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
static void add_process(pid_t pid, const char *cgroup)
{
    const char *folder = lib_fmt("root/proc/%d", (int)pid);
    temp_mkdir(lib_dir, folder);
    temp_write(lib_dir, lib_fmt("%s/stat", folder),
               lib_file(lib_fmt("/proc/%d/stat", (int)pid)));
    temp_write(lib_dir, lib_fmt("%s/status", folder),
               lib_file(lib_fmt("/proc/%d/status", (int)pid)));
    temp_write(lib_dir, lib_fmt("%s/cgroup", folder), lib_fmt("0::%s\n", cgroup));
}

/* The ids of units of the card. */
static json_t *units(int from, int to)
{
    json_t *ids = lib_own(json_array());
    for (int i = from; i < to; i++) {
        cleanup_buf struct buf id = {0};
        ids_write(&id, IDS_MEM, &(struct ids_id){ids_tag_of(SPAN("GPU-0")), i});
        json_array_append_new(ids, json_string(id.p));
    }
    return ids;
}

static void add_container(struct overuse_node *n, const char *pod, const char *uid,
                          const char *id, pid_t pid, int from, int to)
{
    temp_write(lib_dir, lib_fmt("root/var/log/containers/%s_default_c-%s.log", pod, id),
               "");
    add_process(pid, lib_fmt("/kubepods/pod%s/%s", uid, id));
    kubelet_add(&n->kubelet, pod, ARGV("c"));
    if (from < to)
        kubelet_give(&n->kubelet, pod, "c", MEM, units(from, to));
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

pid_t overuse_node_add_guest(struct overuse_node *n)
{
    pid_t pid = start_process();
    add_container(n, "guest", OVERUSE_GUEST, ID("004"), pid, 0, 0);
    agent_cards("{'uuid':'GPU-0','model':'Tesla T4','memoryTotal':%lld,'memoryUsed':%lld,"
                "'memoryReserved':0,'processes':[{'pid':%d,'bytes':%lld},"
                "{'pid':%d,'bytes':%lld},{'pid':%d,'bytes':%lld}]}",
                16 * GIB, 15 * GIB, (int)pid, 6 * GIB, (int)n->greedy, 4 * GIB,
                (int)n->modest, GIB);
    return pid;
}

pid_t overuse_node_add_init(struct overuse_node *n)
{
    pid_t pid = start_process();
    temp_write(lib_dir, "root/var/log/containers/starter_default_i-" ID("005") ".log",
               "");
    add_process(pid, "/kubepods/pod" OVERUSE_INIT "/" ID("005"));
    kubelet_add(&n->kubelet, "starter", ARGV("c"));
    kubelet_give(&n->kubelet, "starter", "c", MEM, units(12, 14));
    return pid;
}

void overuse_node_use_init(const struct overuse_node *n, pid_t init, long long gib)
{
    agent_cards("{'uuid':'GPU-0','model':'Tesla T4','memoryTotal':%lld,'memoryUsed':%lld,"
                "'memoryReserved':0,'processes':[{'pid':%d,'bytes':%lld},"
                "{'pid':%d,'bytes':%lld},{'pid':%d,'bytes':%lld}]}",
                16 * GIB, 15 * GIB, (int)init, gib * GIB, (int)n->greedy, 4 * GIB,
                (int)n->modest, GIB);
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
    temp_write(lib_dir, "root/proc/2/stat",
               lib_fmt("2 (%s) S 0 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 20 0 0\n",
                       mapped ? "kthreadd" : "sh"));
}

void overuse_node_start(struct overuse_node *n, bool mapped)
{
    lib_output(0, ARGV("mkdir", "-p", lib_path("root/proc/2"),
                       lib_path("root/var/log/containers")));
    overuse_node_map(mapped);
    kubelet_start(&n->kubelet);
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
}
