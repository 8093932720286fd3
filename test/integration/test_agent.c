/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/stat.h>

#include "integration/suite.h"

/*
 * scv-agent against kube-sim: the objects that it publishes, how it recovers from
 * failures, and how it reports missing prerequisites.
 */

#define SCVS "/apis/core.run-linux.com/v1/scvs"
#define LEASES                                                                           \
    "/apis/coordination.k8s.io/v1/namespaces/nvidia-gpu-scheduler-node-lease/leases"
#define CARD(n) "{'uuid':'GPU-" #n "','model':'Tesla T4','memoryTotal':16106127360}"
#define QUICK   "--update-interval", "100ms", "--late-after", "1s"

/* Two cards; `mib` MiB of the first one are in use. */
static void set_used(int mib)
{
    agent_cards("{'uuid':'GPU-0','model':'Tesla T4','memoryTotal':16106127360,"
                "'memoryUsed':%lld,'memoryReserved':0}," CARD(1),
                (long long)mib << 20);
}

static void set_up(const char *const *more)
{
    agent_setup(&sim);
    agent_cards(CARD(0) "," CARD(1));
    agent_start(&agent, &sim, NULL, more);
    lib_wait(agent_scv_is(&sim, "Healthy Healthy", ""));
}

/* Writes the Scv with the value at SECTION.NAME replaced; takes the value. */
static void edit_scv(const char *section, const char *name, json_t *value)
{
    json_t *scv = agent_scv(&sim);
    json_object_set_new(lib_at(scv, section), name, value);
    peer_do(&sim.api, "PUT", SCVS "/n1", lib_text(scv, ""));
}

TEST(scv_and_lease_are_created)
{
    set_up(ARGV(QUICK));
    const json_t *scv = agent_scv(&sim),
                 *owner = lib_at(scv, "metadata.ownerReferences.0");
    ck_assert_at(owner, "kind", "Node");
    ck_assert_at(owner, "apiVersion", "v1");
    ck_assert_at(owner, "uid", "uid-of-n1");
    ck_assert_int_eq(lib_int(scv, "spec.updateInterval"), 100);
    ck_assert_int_eq(lib_int(scv, "status.cardNumber"), 2);
    ck_assert_int_eq(lib_int(scv, "status.totalMemorySum"), 30720);
    ck_assert_at(scv, "status.driverVersion", "535.1");
    lib_wait(peer_status(&sim.api, LEASES "/n1") == 200);
    json_t *lease = peer_get(&sim.api, LEASES "/n1");
    ck_assert_at(lease, "spec.holderIdentity", "n1");
    ck_assert_int_eq(lib_int(lease, "spec.leaseDurationSeconds"), 40);
    owner = lib_at(lease, "metadata.ownerReferences.0");
    ck_assert_at(owner, "uid", "uid-of-n1");
    lib_wait(peer_status(&agent.health, "/healthz") == 200);
    ck_assert_uint_eq(peer_status(&agent.health, "/livez"), 200);
    ck_assert_uint_eq(peer_status(&agent.health, "/readyz"), 200);
}

TEST(only_changed_values_are_patched)
{
    set_up(ARGV(QUICK));
    ck_assert_int_eq(sim_count(&sim, "patch", "scvs", ""), 0);
    set_used(1);
    lib_wait(agent_number(&sim, "status.freeMemorySum") == 30719);
    ck_assert_int_eq(sim_count(&sim, "patch", "scvs", ""), 1);
    set_used(2);
    lib_wait(agent_number(&sim, "status.freeMemorySum") == 30718);
    ck_assert_int_eq(sim_count(&sim, "patch", "scvs", ""), 2);
    /* Labels and status members of other writers are preserved. */
    edit_scv("metadata", "labels", json_pack("{s:s}", "mine", "yes"));
    edit_scv("status", "theirs", json_integer(7));
    set_used(3);
    lib_wait(agent_number(&sim, "status.freeMemorySum") == 30717);
    ck_assert_int_eq(agent_number(&sim, "status.theirs"), 7);
    ck_assert_at(agent_scv(&sim), "metadata.labels.mine", "yes");
}

/* -- manual changes -- */

TEST(update_interval_takes_effect_at_once_and_is_kept)
{
    set_up(ARGV("--update-interval", "1h"));
    edit_scv("spec", "updateInterval", json_integer(150));
    ck_assert(program_wait_output(&agent.program, "sampling every 150 ms"));
    set_used(1);
    lib_wait(agent_number(&sim, "status.freeMemorySum") == 30719);
    ck_assert_int_eq(agent_number(&sim, "spec.updateInterval"), 150);
}

TEST(an_edited_status_is_restored)
{
    set_up(ARGV(QUICK));
    edit_scv("status", "freeMemorySum", json_integer(1));
    lib_wait(agent_number(&sim, "status.freeMemorySum") == 30720);
}

/* Deletes the Scv and the Lease, as Kubernetes does when their owner, the Node, is
 * deleted. */
static void collect_garbage(void)
{
    cleanup_buf struct buf reply = {0};
    peer_call(&sim.api, "DELETE", SCVS "/n1", NULL, &reply);
    peer_call(&sim.api, "DELETE", LEASES "/n1", NULL, &reply);
}

TEST(no_objects_remain_of_a_deleted_node)
{
    set_up(ARGV(QUICK, "--lease-renew", "1s", "--lease-grace", "4s"));
    lib_wait(peer_status(&sim.api, LEASES "/n1") == 200);
    peer_do(&sim.api, "DELETE", "/api/v1/nodes/n1", NULL);
    collect_garbage();
    ck_assert(program_wait_output(&agent.program, "cannot get Node n1"));
    /* The agent may have recreated them before it noticed that the Node was deleted, and
     * such a call may still be under way. */
    int gets = sim_count(&sim, "get", "nodes", "");
    lib_wait(sim_count(&sim, "get", "nodes", "") >= gets + 2);
    collect_garbage();
    lib_wait(sim_count(&sim, "get", "nodes", "") >= gets + 4);
    ck_assert_uint_eq(peer_status(&sim.api, SCVS "/n1"), 404);
    ck_assert_uint_eq(peer_status(&sim.api, LEASES "/n1"), 404);
    sim_load(&sim, "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":"
                   "\"n1\",\"uid\":\"uid-of-another\"}}");
    lib_wait(peer_status(&sim.api, SCVS "/n1") == 200);
    lib_wait(peer_status(&sim.api, LEASES "/n1") == 200);
    ck_assert_at(agent_scv(&sim), "metadata.ownerReferences.0.uid", "uid-of-another");
}

/* -- NVML -- */

#define FAKE(n)                                                                          \
    "card uuid=GPU-" #n ";name=Tesla T4;total=16106127360;free=16106127360;events=8\n"

TEST(a_fatal_xid_makes_a_card_unhealthy)
{
    agent_setup(&sim);
    agent_script("driver 535.1\ncuda 12020\n" FAKE(0) FAKE(1));
    agent_start(&agent, &sim, agent_nvml(),
                ARGV(QUICK, "--healthy-after", "200ms", "--xid-hold", "10m"));
    lib_wait(agent_scv_is(&sim, "Healthy Healthy", ""));
    agent_script("driver 535.1\ncuda 12020\n" FAKE(0) FAKE(1) "event 1 GPU-1 8 31\n");
    ck_assert(program_wait_output(&agent.program,
                                  "XID 31 of GPU-1 ignored: application error"));
    agent_script("driver 535.1\ncuda 12020\n" FAKE(0)
                     FAKE(1) "event 1 GPU-1 8 31\nevent 2 GPU-1 8 79\n");
    lib_wait(agent_scv_is(&sim, "Healthy Unhealthy", "GPU1 is Unhealthy: XID 79"));
}

TEST(a_site_says_which_xids_count)
{
    agent_setup(&sim);
    agent_script("driver 535.1\ncuda 12020\n" FAKE(0) FAKE(1));
    agent_start(&agent, &sim, agent_nvml(),
                ARGV(QUICK, "--xid-ignore", "79", "--xid-fatal=31"));
    lib_wait(agent_scv_is(&sim, "Healthy Healthy", ""));
    agent_script("driver 535.1\ncuda 12020\n" FAKE(0) FAKE(1) "event 1 GPU-1 8 79\n");
    ck_assert(program_wait_output(&agent.program, "XID 79 of GPU-1 ignored"));
    agent_script("driver 535.1\ncuda 12020\n" FAKE(0)
                     FAKE(1) "event 1 GPU-1 8 79\nevent 2 GPU-1 8 31\n");
    lib_wait(agent_scv_is(&sim, "Healthy Unhealthy", "GPU1 is Unhealthy: XID 31"));
}

TEST(a_card_whose_xids_are_not_watched_says_so)
{
    agent_setup(&sim);
    agent_script("fail nvmlDeviceRegisterEvents 3 1\n" FAKE(0) FAKE(1));
    agent_start(&agent, &sim, agent_nvml(), ARGV(QUICK));
    lib_wait(agent_scv_is(&sim, "Healthy Healthy",
                          "GPU1: its XIDs are not watched: Not Supported (3)"));
    ck_assert(program_wait_output(&agent.program, "not every check of a card can run"));
    agent_script("fail nvmlEventSetWait_v2 999\n" FAKE(0) FAKE(1));
    lib_wait(agent_scv_is(&sim, "Healthy Healthy",
                          "GPU0: its XIDs are not watched: Unknown Error (999)"));
    agent_script(FAKE(0) FAKE(1));
    lib_wait(agent_scv_is(&sim, "Healthy Healthy", ""));
}

static bool use_is_complete(void)
{
    const json_t *flag = lib_at(agent_scv(&sim), "status.cardList.0.usageComplete");
    return json_is_true(flag);
}

/* Drivers 535.43 to 535.86: _v3 has items of 32 bytes. A driver without _v2 would be read by
 * their size, and one whose lists cannot be right is not believed. */
TEST(lists_of_processes_of_another_size)
{
    static const struct {
        const char *member;
        bool complete;
    } cases[] = {{"size_v3=32", true},
                 {"size_v2=32;graphics=0:1", false},
                 {"size_v2=32", true},
                 {"size_v2=24;unset=1", false}};
    agent_setup(&sim);
    array_items(c, cases) {
        cleanup_buf struct buf list = {0};
        for (int i = 0; i < 31; i++)
            buf_printf(&list, "%s%d:1048576", i ? "," : "", 4000000 + i);
        agent_script(
            lib_fmt("driver 535.54.03\ncard uuid=GPU-0;name=T4;total=16106127360;"
                    "free=16106127360;used=0;reserved=0;events=8;%s;processes=%s\n",
                    c->member, list.p));
        agent_start(&agent, &sim, agent_nvml(), ARGV(QUICK));
        lib_wait(agent_scv_is(&sim, "Healthy", ""));
        lib_wait(use_is_complete() == c->complete);
        ck_assert(program_runs(&agent.program));
        agent_stop(&agent);
    }
}

TEST(cards_that_need_somebody_say_so)
{
    agent_setup(&sim);
    agent_script(
        "driver 550.1\n"
        "card uuid=GPU-0;name=H100;total=16106127360;free=16106127360;remap=1;events=8\n"
        "card uuid=GPU-1;name=H100;total=16106127360;free=16106127360;fabric=2;events=8\n"
        "card uuid=GPU-2;name=H100;total=16106127360;free=16106127360;mode=2;events=8\n");
    agent_start(&agent, &sim, agent_nvml(), ARGV(QUICK));
    lib_wait(agent_scv_is(
        &sim, "Healthy Unhealthy Unhealthy",
        "GPU0: row remapping is pending until the card is reset; GPU1 is Unhealthy: its "
        "registration with the NVLink fabric is in progress: CUDA cannot start. Does the "
        "fabric manager run?; GPU2 is Unhealthy: compute mode PROHIBITED: no program can "
        "use "
        "the card"));
}

TEST(missing_nvml_is_reported_in_the_scv)
{
    agent_setup(&sim);
    agent_start(&agent, &sim, "nvml:/nonexistent/libnvidia-ml.so.1", ARGV(QUICK));
    lib_wait(agent_scv_is(&sim, "", "/nonexistent/libnvidia-ml.so.1"));
    ck_assert_int_eq(agent_number(&sim, "status.cardNumber"), -1);
    lib_wait(peer_status(&agent.health, "/readyz") == 200);
    ck_assert_contains(agent_line(&agent.health, "/healthz", "cards"),
                       "no card was sampled yet: ");
    ck_assert(program_runs(&agent.program));
}

/* test/node/test_program.c has the end of the process. */
TEST(a_lost_driver_is_reported)
{
    agent_setup(&sim);
    agent_script("driver 535.1\n" FAKE(0));
    agent_start(&agent, &sim, agent_nvml(), ARGV(QUICK, "--unhealthy-after", "0s"));
    lib_wait(agent_scv_is(&sim, "Healthy", ""));
    agent_script("driver 535.1\n" FAKE(0) "fail nvmlInit_v2 999\nfail "
                                          "nvmlDeviceGetCount_v2 999\n");
    lib_wait(
        agent_scv_is(&sim, "Unhealthy", "(999): this container has lost the driver"));
    ck_assert_contains(agent_line(&agent.health, "/healthz", "cards"), "no sample for ");
    ck_assert_uint_eq(peer_status(&agent.health, "/healthz"), 503);
    ck_assert_uint_eq(peer_status(&agent.health, "/readyz"), 200);
    ck_assert(!peer_says(&agent.health, "/metrics", 200, "memory_free_bytes{card"));
}

/* -- missing prerequisites -- */

TEST(agent_recovers_from_every_api_failure)
{
    static const char *const failures[] = {"\"action\":\"answer\",\"status\":500",
                                           "\"action\":\"answer\",\"status\":403",
                                           "\"action\":\"answer\",\"status\":409",
                                           "\"action\":\"apply-answer\",\"status\":500",
                                           "\"action\":\"cut\"",
                                           "\"action\":\"apply-cut\""};
    static const char *const calls[] = {"\"verb\":\"create\",\"resource\":\"scvs\"",
                                        "\"verb\":\"patch\",\"resource\":\"scvs\"",
                                        "\"verb\":\"list\",\"resource\":\"scvs\"",
                                        "\"verb\":\"watch\",\"resource\":\"scvs\"",
                                        "\"verb\":\"get\",\"resource\":\"nodes\""};
    int used = 0;
    set_up(ARGV(QUICK));
    array_items(failure, failures)
        array_items(call, calls) {
            sim_fault(&sim, "{%s,%s,\"times\":1}", *call, *failure);
            sim_watches(&sim, "cut", "scvs");
            peer_do(&sim.api, "DELETE", SCVS "/n1", NULL);
            set_used(++used); /* a write that fails causes a list at once */
            lib_wait(agent_number(&sim, "status.freeMemorySum") == 30720 - used);
            sim_no_faults(&sim);
        }
    lib_wait(peer_status(&agent.health, "/healthz") == 200);
}

TEST(a_hanging_driver_is_reported)
{
    set_up(ARGV(QUICK, "--sampler-limit", "1s"));
    lib_wait(peer_status(&sim.api, LEASES "/n1") == 200);
    temp_remove(lib_dir, "cards.json");
    ck_assert_int_eq(mkfifo(lib_path("cards.json"), 0600),
                     0); /* without a writer, open() blocks */
    lib_wait(agent_scv_is(&sim, "Unhealthy Unhealthy", "the driver does not respond"));
    lib_wait(agent_part_is(&agent, "cards", "no response from the driver for"));
    ck_assert(program_wait_output(&agent.program, "no response from the driver for"));
    ck_assert(program_wait_output(&agent.program, "heartbeat withheld"));
    ck_assert_uint_eq(peer_status(&agent.health, "/livez"), 200);
    ck_assert_uint_eq(peer_status(&agent.health, "/healthz"), 503);
    ck_assert_uint_eq(peer_status(&agent.health, "/readyz"), 200); /* rollouts go on */
    /* The agent terminates although the driver hangs. */
}

/* -- option --once -- */

TEST(once_prints_the_scv)
{
    agent_cards(CARD(0));
    const char *said = lib_output_of(0, "scv-agent",
                                     ARGV("--once", "--node-name", "n1", "--gpu-source",
                                          lib_fmt("file:%s", lib_path("cards.json"))));
    const json_t *scv = lib_parse(said, strlen(said));
    ck_assert_at(scv, "kind", "Scv");
    ck_assert_at(scv, "metadata.name", "n1");
    ck_assert_int_eq(lib_int(scv, "status.cardNumber"), 1);
    ck_assert_contains(lib_output_of(1, "scv-agent",
                                     ARGV("--once", "--gpu-source", "file:/nonexistent")),
                       "scv-agent: /nonexistent");
}

TEST(invalid_options_are_rejected)
{
    static const char *const cases[][3] = {
        {"--gpu-source", "amd", "--gpu-source: \"amd\" is not one of nvml"},
        {"--gpu-source", "file:", "--gpu-source: \"file:\" is not one of nvml"},
        {"--node-name", "a/b", "--node-name: \"a/b\" cannot be the name of a Node"},
        {"--node-name", "", "--node-name (or NODE_NAME) is required"},
        {"--lease-grace", "5s", "--lease-grace: must be longer than --lease-renew"},
        {"--update-interval", "1ms", "--update-interval: \"1ms\" is not within"},
        {"--port", "70000", "--port: \"70000\" is not within"},
        {"--kubeconfig", "/nonexistent", "kubeconfig /nonexistent does not exist"},
    };
    array_indices(i, cases)
        ck_assert_contains(lib_output_of(1, "scv-agent",
                                         ARGV("--node-name", "n1", "--port", "0",
                                              cases[i][0], cases[i][1])),
                           cases[i][2]);
}

SUITE_MAIN(120, NULL)
