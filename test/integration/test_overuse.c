/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>

#include "integration/rights.h"
#include "integration/suite.h"
#include "lib/overuse_node.h"

/*
 * What the real scv-agent does about containers that use more than they were promised, with
 * kube-sim as API server, on the node of lib/overuse_node.h.
 */

static struct overuse_node node;
static struct rights rights;

static void add_pod(const char *pod, const char *uid)
{
    sim_load(&sim,
             "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\","
             "\"namespace\":\"default\",\"uid\":\"%s\"},\"spec\":{\"nodeName\":\"n1\","
             "\"containers\":[{\"name\":\"c\",\"image\":\"i\"}]}}",
             pod, uid);
}

/* The first eviction is answered with this status. */
static void set_up_refusing(int status, const char *const *files, const char *action,
                            bool mapped)
{
    rights_read(&rights, files, "DaemonSet");
    rights_count(&sim.api, &rights);
    sim_fault(&sim,
              "{\"verb\":\"create\",\"resource\":\"pods\",\"subresource\":"
              "\"eviction\",\"nth\":1,\"action\":\"answer\",\"status\":%d}",
              status);
    agent_setup(&sim);
    add_pod("greedy", OVERUSE_GREEDY);
    add_pod("modest", OVERUSE_MODEST);
    overuse_node_start(&node, mapped);
    agent_start(&agent, &sim, NULL,
                ARGV(OVERUSE_NODE_OPTIONS, "--on-overuse", action, "--lease-renew", "1s",
                     "--lease-grace", "4s"));
}

/* 429, as a PodDisruptionBudget does. */
static void set_up(const char *const *files, const char *action, bool mapped)
{
    set_up_refusing(429, files, action, mapped);
}

static const char *const usual[] = {"manifests/scv-agent.yaml.example", NULL};
static const char *const evicts[] = {"manifests/node.yaml",
                                     "manifests/rbac-overuse.yaml.example", NULL};

/* Is there an event of greedy whose note begins so? */
static void ck_note(const char *reason, const char *begin)
{
    const char *note = lib_fmt("%scontainer c uses 8192 MiB of GPU0, 4096 MiB more than "
                               "promised (4096 MiB), for ",
                               begin);
    ck_assert(sim_events(&sim, "greedy", reason, note));
    ck_assert(sim_events(&sim, "greedy", reason,
                         "; other pods on this card lack 6144 MiB of their promises"));
}

static bool is_counted(const char *sample)
{
    return peer_says(&agent.health, "/metrics", 200, lib_fmt("\n%s\n", sample));
}

static double samples(void)
{
    return peer_metric(&agent.health, "scv_agent_samples_total");
}

static bool is_terminating(const char *pod)
{
    const char *path = lib_fmt("/api/v1/namespaces/default/pods/%s", pod);
    return peer_status(&sim.api, path) == 404 ||
           peer_says(&sim.api, path, 200, "\"deletionTimestamp\"");
}

/* -- tests -- */

/* Until the rights are checked, only the agent may call the API server. */

/* All permissions of scv-agent are used here, and no others. */
TEST(the_pod_gets_an_event_and_runs_on)
{
    set_up(usual, "event", true);
    lib_wait(is_counted("scv_agent_overuse_events_total{result=\"written\"} 1"));
    overuse_node_use(&node, 7);
    lib_wait(sim_count(&sim, "patch", "leases", "") &&
             sim_count(&sim, "patch", "scvs", ""));
    rights_check(&sim.api, &rights);
    rights_used(&rights);
    ck_assert(is_counted("scv_agent_overusing_containers 1"));
    ck_note("GPUOveruse", "");
    ck_assert(!sim_events(&sim, "modest", "GPUOveruse", ""));
    ck_assert(!is_terminating("greedy"));
    /* The pod returns the memory. */
    overuse_node_use(&node, 4);
    lib_wait(is_counted("scv_agent_overusing_containers 0"));
    ck_assert_int_eq(sim_count(&sim, "create", "events", ""), 1);
    ck_assert_int_eq(overuse_node_signal(node.greedy), SIGUSR1);
    overuse_node_stop(&node);
}

TEST(the_pod_is_evicted_once_its_budget_allows_it)
{
    set_up(evicts, "evict", true);
    lib_wait(is_counted("scv_agent_overuse_evictions_total{result=\"delayed\"} 1"));
    lib_wait(is_counted("scv_agent_overuse_evictions_total{result=\"accepted\"} 1"));
    lib_wait(is_counted("scv_agent_overuse_events_total{result=\"written\"} 2"));
    rights_check(&sim.api, &rights);
    ck_assert(is_terminating("greedy"));
    ck_assert(!is_terminating("modest"));
    ck_note("GPUOveruseEvicted", "evicted: ");
    ck_assert_int_eq(sim_count(&sim, "create", "pods", "eviction"), 2);
    ck_assert_int_eq(overuse_node_signal(node.greedy), SIGUSR1);
    overuse_node_stop(&node);
}

/* Of another UID: the pod may still use the card. */
TEST(an_eviction_that_conflicts_is_repeated)
{
    set_up_refusing(409, evicts, "evict", true);
    lib_wait(is_counted("scv_agent_overuse_evictions_total{result=\"failed\"} 1"));
    lib_wait(is_counted("scv_agent_overuse_evictions_total{result=\"accepted\"} 1"));
    ck_assert(is_terminating("greedy"));
    ck_assert_int_eq(sim_count(&sim, "create", "pods", "eviction"), 2);
    overuse_node_stop(&node);
}

TEST(a_pod_that_is_gone_is_not_evicted_again)
{
    set_up_refusing(404, evicts, "evict", true);
    lib_wait(is_counted("scv_agent_overuse_evictions_total{result=\"accepted\"} 1"));
    double before = samples();
    lib_wait(samples() >= before + 25);
    ck_assert_int_eq(sim_count(&sim, "create", "pods", "eviction"), 1);
    overuse_node_stop(&node);
}

TEST(processes_are_killed_as_soon_as_all_can_be_mapped)
{
    set_up(usual, "kill", false);
    lib_wait(is_counted("scv_agent_cards_usage_incomplete 1"));
    /* Longer than the grace: a sample takes 100 ms. */
    double before = samples();
    lib_wait(samples() >= before + 15);
    ck_assert(is_counted("scv_agent_overusing_containers 0"));
    ck_assert(!peer_says(&agent.health, "/metrics", 200, "overuse_processes_total{"));
    overuse_node_map(true);
    lib_wait(is_counted("scv_agent_overuse_processes_total{result=\"killed\"} 1"));
    lib_wait(is_counted("scv_agent_overuse_events_total{result=\"written\"} 2"));
    rights_check(&sim.api, &rights);
    ck_note("GPUOveruseKilled", "killed 1 process(es): ");
    ck_assert_int_eq(overuse_node_signal(node.greedy), SIGKILL);
    ck_assert_int_eq(overuse_node_signal(node.modest), SIGUSR1);
    ck_assert(!is_terminating("greedy"));
    overuse_node_stop(&node);
}

/* stuck is the furthest beyond its promise, and its 7 GiB are all that modest lacks. */
TEST(a_process_that_cannot_be_killed_does_not_save_the_next_one)
{
    set_up(usual, "kill", false);
    add_pod("stuck", OVERUSE_STUCK);
    overuse_node_add_stuck(&node);
    overuse_node_map(true);
    lib_wait(is_counted("scv_agent_overuse_processes_total{result=\"failed\"} 1"));
    lib_wait(is_counted("scv_agent_overuse_processes_total{result=\"killed\"} 1"));
    ck_assert_int_eq(overuse_node_signal(node.greedy), SIGKILL);
    ck_assert_int_eq(overuse_node_signal(node.modest), SIGUSR1);
    overuse_node_stop(&node);
}

TEST(a_pod_without_a_promise_is_evicted)
{
    set_up(evicts, "event", true);
    add_pod("guest", OVERUSE_GUEST);
    pid_t guest = overuse_node_add_guest(&node);
    agent_stop(&agent);
    agent_start(&agent, &sim, NULL,
                ARGV(OVERUSE_NODE_OPTIONS, "--on-unpromised", "evict", "--lease-renew",
                     "1s", "--lease-grace", "4s"));
    lib_wait(is_counted("scv_agent_overuse_evictions_total{result=\"accepted\"} 1"));
    ck_assert(is_terminating("guest"));
    ck_assert(!is_terminating("greedy") && !is_terminating("modest"));
    ck_assert_int_eq(overuse_node_signal(guest), SIGUSR1);
    overuse_node_stop(&node);
}

/* A pod with a plain init container i of 4 GiB, as another process allocates it, and the options
 * of an agent that starts anew. */
static pid_t start_beside_init(long long gib)
{
    agent_setup(&sim);
    sim_load(
        &sim, "%s",
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"starter\","
        "\"namespace\":\"default\",\"uid\":\"" OVERUSE_INIT "\",\"annotations\":{"
        "\"ALIYUN_COM_GPU_MEM_IDX\":\"0\"}},\"spec\":{\"nodeName\":\"n1\","
        "\"initContainers\":[{\"name\":\"i\",\"image\":\"i\",\"resources\":{"
        "\"limits\":{\"aliyun.com/gpu-mem\":\"4\"}}}],\"containers\":[{\"name\":\"c\","
        "\"image\":\"i\",\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":\"2\"}}}]}}");
    add_pod("greedy", OVERUSE_GREEDY);
    add_pod("modest", OVERUSE_MODEST);
    overuse_node_start(&node, true);
    pid_t init = overuse_node_add_init(&node);
    overuse_node_use_init(&node, init, gib);
    agent_start(&agent, &sim, NULL, ARGV(OVERUSE_NODE_OPTIONS, "--late-after", "1s"));
    return init;
}

/* Longer than the grace. */
static void wait_for_grace(void)
{
    double before = samples();
    lib_wait(samples() >= before + 25);
}

TEST(an_init_container_has_the_promise_of_its_pod)
{
    pid_t init = start_beside_init(4);
    lib_wait(is_counted("gpushare_container_gpu_memory_promised_bytes{namespace="
                        "\"default\",pod=\"starter\",container=\"i\",card=\"0\","
                        "uuid=\"GPU-0\"} 4294967296"));
    wait_for_grace();
    ck_assert(is_counted("scv_agent_overusing_containers 0"));
    ck_assert(peer_says(&agent.health, "/healthz", 200, "\ninit-containers: ok\n"));
    overuse_node_use_init(&node, init, 8);
    lib_wait(is_counted("scv_agent_overuse_events_total{result=\"written\"} 1"));
    ck_assert(sim_events(&sim, "starter", "GPUOveruse",
                         "container i uses 8192 MiB of GPU0, 4096 MiB more than promised "
                         "(4096 MiB), for "));
    ck_assert_int_eq(overuse_node_signal(init), SIGUSR1);
    overuse_node_stop(&node);
}

/* An account of 1.0 cannot list pods: what is unknown is no overuse, and is said. */
TEST(without_the_right_to_watch_pods_promises_of_init_containers_are_unknown)
{
    sim_fault(&sim,
              "{\"resource\":\"pods\",\"verb\":\"list\",\"nth\":1,\"times\":1000000,"
              "\"action\":\"answer\",\"status\":403}");
    pid_t init = start_beside_init(8);
    lib_wait(peer_says(&agent.health, "/healthz", 200,
                       "\ninit-containers: promises of init containers are unknown: "));
    ck_assert(
        peer_says(&agent.health, "/healthz", 200, " (not required for readiness)\n"));
    ck_assert_uint_eq(peer_status(&agent.health, "/readyz"), 200);
    lib_wait(sim_count(&sim, "list", "pods", "") >= 3);
    wait_for_grace();
    ck_assert(is_counted("scv_agent_overusing_containers 0"));
    ck_assert_int_eq(sim_count(&sim, "create", "events", ""), 0);
    static const char said[] = "promises of init containers stay unknown "
                               "(manifests/scv-agent.yaml.example)";
    const char *first = strstr(program_output(&agent.program), said);
    ck_assert_ptr_nonnull(first);
    ck_assert_ptr_null(strstr(first + 1, said));
    ck_assert_int_eq(overuse_node_signal(init), SIGUSR1);
    overuse_node_stop(&node);
}

/* The pod is inside its promise, and its folder of the limit has no slot. */
TEST(a_process_without_its_limit_is_reported)
{
    lib_output(0, ARGV("mkdir", "-p", lib_path("limit/pods/" OVERUSE_GREEDY "/limit")));
    agent_setup(&sim);
    add_pod("greedy", OVERUSE_GREEDY);
    overuse_node_start(&node, true);
    overuse_node_use(&node, 2);
    agent_start(&agent, &sim, NULL,
                ARGV(OVERUSE_NODE_OPTIONS, "--limit-dir", lib_path("limit")));
    lib_wait(is_counted("scv_agent_overuse_events_total{result=\"written\"} 1"));
    ck_assert(sim_events(&sim, "greedy", "GPUOveruse",
                         "container c uses 2048 MiB of GPU0, 2048 MiB of it without the "
                         "limit of its pod, for "));
    ck_assert(peer_says(&agent.health, "/metrics", 200,
                        "gpushare_container_gpu_memory_unlimited_bytes{namespace="
                        "\"default\",pod=\"greedy\",container=\"c\",card=\"0\","
                        "uuid=\"GPU-0\"} 2147483648\n"));
    overuse_node_stop(&node);
}

SUITE_MAIN(60, ARGV("--run-pods"))
