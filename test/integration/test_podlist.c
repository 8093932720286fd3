/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "lib/agent.h"
#include "lib/plugin.h"

/*
 * status.podList: scv-agent and gpushare-device-plugin on one node, with kube-sim and a
 * kubelet that the test simulates. The Scv lists the cards that the plugin allocated.
 */

static struct sim sim;
static struct kubelet kubelet;
static struct plugin plugin;
static struct agent agent;

#define CARD(n) "{'uuid':'GPU-" #n "','model':'Tesla T4','memoryTotal':17179869184}"

/* A made-up root of the node, with no process. */
static char *host_root(void)
{
    static const char *const folders[] = {"root",         "root/proc",
                                          "root/proc/2",  "root/var",
                                          "root/var/log", "root/var/log/containers"};
    for (size_t i = 0; i < ARRAY_LEN(folders); i++)
        temp_mkdir(lib_dir, folders[i]);
    temp_write(lib_dir, "root/proc/2/stat",
               "2 (kthreadd) S 0 0 0 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 1 9 8\n");
    return temp_path(lib_dir, "root");
}

/* `refresh`: of --refresh-interval. */
static void set_up_with(const char *refresh)
{
    cleanup_free char *root = host_root();
    cleanup_free char *source = agent_file();
    cleanup_free char *podresources = temp_path(lib_dir, "podresources.sock");
    sim_start(&sim, ARGV(NULL));
    agent_setup(&sim);
    agent_cards(CARD(0) "," CARD(1));
    kubelet_start(&kubelet);
    plugin_start(&plugin, &sim, ARGV(NULL));
    kubelet_wait_registered(&kubelet, -1);
    agent_start(&agent, &sim, source,
                ARGV("--update-interval", "100ms", "--podresources-socket", podresources,
                     "--pods-interval", "1s", "--refresh-interval", refresh,
                     "--host-root", root));
    lib_wait(agent_scv_is(&sim, "Healthy Healthy", ""));
}

static void set_up(void)
{
    set_up_with("1m");
}

static void tear_down(void)
{
    agent_stop(&agent);
    plugin_stop(&plugin);
    kubelet_fini(&kubelet);
    sim_stop(&sim);
}

static void admit(const char *name, int units, int card)
{
    cleanup_answer struct kubelet_answer a = {0};
    plugin_pod(&sim, name, units, card);
    kubelet_add(&kubelet, name, ARGV("c"));
    kubelet_admit(&kubelet, name, "c", MEM, units, &a);
    ck_assert_msg(a.status == GRPC_OK, "%s: %s", name, a.words);
}

/* One line per item: "POD RESOURCE UNITS CARD,CARD\n". */
static char *pod_list(void)
{
    cleanup_json json_t *scv = agent_scv(&sim);
    struct buf out = {0};
    size_t i, k;
    json_t *item, *card;
    buf_adds(&out, "");
    json_array_foreach(scv ? lib_at(scv, "status.podList") : NULL, i, item)
    {
        buf_printf(&out, "%s %s %lld ", lib_str(item, "name"), lib_str(item, "resource"),
                   (long long)json_integer_value(lib_at(item, "units")));
        json_array_foreach(lib_at(item, "cards"), k, card)
            buf_printf(&out, "%s%s", k ? "," : "", json_string_value(card));
        buf_addc(&out, '\n');
    }
    return buf_take(&out);
}

static bool pod_list_is(const char *expected)
{
    cleanup_free char *is = pod_list();
    return strcmp(is, expected) == 0;
}

#define P_AND_Q                                                                          \
    "p aliyun.com/gpu-mem 3 GPU-1\n"                                                     \
    "q aliyun.com/gpu-mem 5 GPU-0\n"

START_TEST(allocations_of_the_plugin_are_in_the_scv)
{
    set_up();
    admit("p", 3, 1);
    admit("q", 5, 0);
    lib_wait(pod_list_is(P_AND_Q));
    kubelet_remove(&kubelet, "p");
    sim_delete_pod(&sim, "p");
    lib_wait(pod_list_is("q aliyun.com/gpu-mem 5 GPU-0\n"));
    tear_down();
}

/* -- what containers use -- */

#define ID "4f797c539e6c745de61a93ca3ff892358ecbcaccd8414d5db545c38428142970"

static void run_process(int pid, const char *comm, const char *cgroup)
{
    cleanup_free char *folder = xasprintf("root/proc/%d", pid);
    cleanup_free char *stat = xasprintf("root/proc/%d/stat", pid);
    cleanup_free char *group = xasprintf("root/proc/%d/cgroup", pid);
    cleanup_free char *text = xasprintf(
        "%d (%s) S 1 1 1 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 %d 9 8\n", pid, comm, pid);
    temp_mkdir(lib_dir, folder);
    temp_write(lib_dir, stat, text);
    temp_write(lib_dir, group, cgroup);
}

#define USING(bytes, sm)                                                                 \
    "{'uuid':'GPU-0','model':'Tesla T4','memoryTotal':17179869184,'processes':["         \
    "{'pid':11,'bytes':" bytes ",'sm':" sm "},{'pid':12,'bytes':314572800,'sm':0}]}"

/* The use of the first item of podList: "PROMISED USED SM UUID". */
static bool use_is(const char *expected)
{
    cleanup_json json_t *scv = agent_scv(&sim);
    json_t *item = scv ? json_array_get(lib_at(scv, "status.podList"), 0) : NULL;
    json_t *use = json_array_get(json_object_get(item, "usage"), 0);
    cleanup_free char *is =
        xasprintf("%lld %lld %lld %s",
                  (long long)json_integer_value(json_object_get(use, "promisedMemory")),
                  (long long)json_integer_value(json_object_get(use, "usedMemory")),
                  (long long)json_integer_value(json_object_get(use, "utilization")),
                  use ? lib_str(use, "uuid") : "");
    return strcmp(is, expected) == 0;
}

static bool has_metric(const char *line)
{
    cleanup_buf struct buf reply = {0};
    unsigned status = peer_call(&agent.health, "GET", "/metrics", NULL, &reply);
    return status == 200 && strstr(reply.p, line) != NULL;
}

START_TEST(the_use_of_a_container_is_in_the_scv_and_the_metrics)
{
    set_up_with("1s");
    admit("p", 3, 0);
    run_process(11, "python",
                "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod"
                "5d0c1f6e_8a2b_4c3d_9e4f_0123456789ab.slice/cri-containerd-" ID
                ".scope\n");
    run_process(12, "Xorg", "0::/user.slice/user-1000.slice/session-2.scope\n");
    temp_write(lib_dir, "root/var/log/containers/p_default_c-" ID ".log", "");
    agent_cards(USING("4294967296", "40") "," CARD(1));
    lib_wait(use_is("3072 4096 40 GPU-0"));
    cleanup_json json_t *scv = agent_scv(&sim);
    json_t *list = lib_at(scv, "status.processList");
    ck_assert_uint_eq(json_array_size(list), 1);
    ck_assert_str_eq(lib_str(json_array_get(list, 0), "name"), "Xorg");
    ck_assert_int_eq(json_integer_value(lib_at(json_array_get(list, 0), "pid")), 12);
#define OF_C                                                                             \
    "{namespace=\"default\",pod=\"p\",container=\"c\",card=\"0\",uuid=\"GPU-0\"} "
    lib_wait(has_metric("gpushare_container_gpu_memory_used_bytes" OF_C "4294967296\n"));
    lib_wait(
        has_metric("gpushare_container_gpu_memory_promised_bytes" OF_C "3221225472\n"));
    lib_wait(has_metric("gpushare_container_gpu_sm_utilization_ratio" OF_C "0.4\n"));
    lib_wait(has_metric("scv_agent_card_usage_complete{card=\"0\",uuid=\"GPU-0\"} 1\n"));
    /* The process ends; then the container has a promise and uses nothing. */
    agent_cards(CARD(0) "," CARD(1));
    lib_wait(use_is("3072 0 0 GPU-0"));
    lib_wait(agent_number(&sim, "status.processList") == -1);
    tear_down();
}

LIB_MAIN("podlist", 120, the_use_of_a_container_is_in_the_scv_and_the_metrics,
         allocations_of_the_plugin_are_in_the_scv)
