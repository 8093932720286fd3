/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/mem.h"
#include "lib/agent.h"

/*
 * scv-agent against kube-sim: what it publishes, that it comes back, and what it says
 * when something is missing.
 */

static struct sim sim;
static struct agent agent;

#define SCVS "/apis/core.run-linux.com/v1/scvs"
#define LEASES                                                                           \
    "/apis/coordination.k8s.io/v1/namespaces/nvidia-gpu-scheduler-node-lease/leases"
#define CARD(n) "{'uuid':'GPU-" #n "','model':'Tesla T4','memoryTotal':16106127360}"
#define QUICK   "--update-interval", "100ms", "--late-after", "1s"

/* Two cards; so much of the first is in use. */
static void set_used(int mib)
{
    agent_cards("{'uuid':'GPU-0','model':'Tesla T4','memoryTotal':16106127360,"
                "'memoryUsed':%lld,'memoryReserved':0}," CARD(1),
                (long long)mib << 20);
}

static void set_up(const char *const *more)
{
    sim_start(&sim, ARGV(NULL));
    agent_setup(&sim);
    agent_cards(CARD(0) "," CARD(1));
    cleanup_free char *source = agent_file();
    agent_start(&agent, &sim, source, more);
    lib_wait(agent_scv_is(&sim, "Healthy Healthy", ""));
}

static void tear_down(void)
{
    agent_stop(&agent);
    sim_stop(&sim);
}

static char *text_at(const char *path, const char *member)
{
    cleanup_json json_t *j = peer_json(&sim.api, "GET", path, NULL);
    return xstrdup(lib_str(j, member));
}

START_TEST(the_scv_and_the_lease_appear)
{
    set_up(ARGV(QUICK));
    cleanup_json json_t *scv = agent_scv(&sim);
    const json_t *owner = json_array_get(lib_at(scv, "metadata.ownerReferences"), 0);
    ck_assert_str_eq(lib_str(owner, "kind"), "Node");
    ck_assert_str_eq(lib_str(owner, "apiVersion"), "v1");
    ck_assert_str_eq(lib_str(owner, "uid"), "uid-of-n1");
    ck_assert_int_eq(json_integer_value(lib_at(scv, "spec.updateInterval")), 100);
    ck_assert_int_eq(json_integer_value(lib_at(scv, "status.cardNumber")), 2);
    ck_assert_int_eq(json_integer_value(lib_at(scv, "status.totalMemorySum")), 30720);
    ck_assert_str_eq(lib_str(scv, "status.driverVersion"), "535.1");
    lib_wait(peer_status(&sim.api, LEASES "/n1") == 200);
    cleanup_json json_t *lease = peer_json(&sim.api, "GET", LEASES "/n1", NULL);
    ck_assert_str_eq(lib_str(lease, "spec.holderIdentity"), "n1");
    ck_assert_int_eq(json_integer_value(lib_at(lease, "spec.leaseDurationSeconds")), 40);
    owner = json_array_get(lib_at(lease, "metadata.ownerReferences"), 0);
    ck_assert_str_eq(lib_str(owner, "uid"), "uid-of-n1");
    lib_wait(peer_status(&agent.health, "/healthz") == 200);
    ck_assert_uint_eq(peer_status(&agent.health, "/livez"), 200);
    ck_assert_uint_eq(peer_status(&agent.health, "/readyz"), 200);
    tear_down();
}

START_TEST(what_changes_is_written_and_nothing_else)
{
    set_up(ARGV(QUICK));
    ck_assert_int_eq(sim_count(&sim, "patch", "scvs", ""), 0);
    set_used(1);
    lib_wait(agent_number(&sim, "status.freeMemorySum") == 30719);
    ck_assert_int_eq(sim_count(&sim, "patch", "scvs", ""), 1);
    /* Temperature alone does not count; what comes behind it tells when it was read. */
    agent_cards("{'uuid':'GPU-0','model':'Tesla T4','memoryTotal':16106127360,"
                "'memoryUsed':1048576,'memoryReserved':0,'temperature':99}," CARD(1));
    set_used(2);
    lib_wait(agent_number(&sim, "status.freeMemorySum") == 30718);
    ck_assert_int_eq(sim_count(&sim, "patch", "scvs", ""), 2);
    /* Labels, and members of a status that are not ours, are left alone. */
    cleanup_buf struct buf reply = {0};
    cleanup_json json_t *scv = agent_scv(&sim);
    json_object_set_new(json_object_get(scv, "metadata"), "labels",
                        json_pack("{s:s}", "mine", "yes"));
    json_object_set_new(json_object_get(scv, "status"), "theirs", json_integer(7));
    cleanup_free char *text = json_dumps(scv, 0);
    ck_assert_uint_eq(peer_call(&sim.api, "PUT", SCVS "/n1", text, &reply), 200);
    set_used(3);
    lib_wait(agent_number(&sim, "status.freeMemorySum") == 30717);
    ck_assert_int_eq(agent_number(&sim, "status.theirs"), 7);
    cleanup_free char *label = text_at(SCVS "/n1", "metadata.labels.mine");
    ck_assert_str_eq(label, "yes");
    tear_down();
}

/* -- by hand -- */

static bool is_back(const char *old_uid)
{
    cleanup_json json_t *scv = agent_scv(&sim);
    return scv && strcmp(lib_str(scv, "metadata.uid"), old_uid) != 0;
}

enum { DELETIONS = 100 };

START_TEST(a_deleted_scv_is_back_within_milliseconds)
{
    double took[DELETIONS];
    set_up(ARGV(NULL));
    for (int i = 0; i < DELETIONS; i++) {
        cleanup_free char *uid = text_at(SCVS "/n1", "metadata.uid");
        double start = lib_now_exact_ms(); /* before it is deleted */
        json_decref(peer_json(&sim.api, "DELETE", SCVS "/n1", NULL));
        while (!is_back(uid))
            ck_assert(lib_now_exact_ms() - start < PROGRAM_WAIT_MS);
        took[i] = lib_now_exact_ms() - start;
    }
    lib_sort(took, DELETIONS);
    printf("deleted by hand, back after: p50 %.2f ms, p99 %.2f ms, longest %.2f ms\n",
           took[DELETIONS / 2], took[DELETIONS * 99 / 100 - 1], took[DELETIONS - 1]);
    ck_assert(took[DELETIONS / 2] < 50 * LIB_SLOWER);
    cleanup_json json_t *scv = agent_scv(&sim);
    ck_assert_str_eq(
        lib_str(json_array_get(lib_at(scv, "metadata.ownerReferences"), 0), "uid"),
        "uid-of-n1");
    ck_assert_int_eq(json_integer_value(lib_at(scv, "status.cardNumber")), 2);
    tear_down();
}

START_TEST(the_interval_is_honoured_at_once_and_left_alone)
{
    set_up(ARGV("--update-interval", "1h"));
    cleanup_buf struct buf reply = {0};
    cleanup_json json_t *scv = agent_scv(&sim);
    json_object_set_new(json_object_get(scv, "spec"), "updateInterval",
                        json_integer(150));
    cleanup_free char *text = json_dumps(scv, 0);
    ck_assert_uint_eq(peer_call(&sim.api, "PUT", SCVS "/n1", text, &reply), 200);
    ck_assert(program_wait_output(&agent.program, "sampling every 150 ms"));
    set_used(1);
    lib_wait(agent_number(&sim, "status.freeMemorySum") == 30719);
    ck_assert_int_eq(agent_number(&sim, "spec.updateInterval"), 150);
    tear_down();
}

START_TEST(an_edited_status_is_put_right)
{
    set_up(ARGV(QUICK));
    cleanup_buf struct buf reply = {0};
    cleanup_json json_t *scv = agent_scv(&sim);
    json_object_set_new(json_object_get(scv, "status"), "freeMemorySum", json_integer(1));
    cleanup_free char *text = json_dumps(scv, 0);
    ck_assert_uint_eq(peer_call(&sim.api, "PUT", SCVS "/n1", text, &reply), 200);
    lib_wait(agent_number(&sim, "status.freeMemorySum") == 30720);
    tear_down();
}

/* What Kubernetes does with objects whose Node is gone. */
static void collect_garbage(void)
{
    cleanup_buf struct buf reply = {0};
    peer_call(&sim.api, "DELETE", SCVS "/n1", NULL, &reply);
    peer_call(&sim.api, "DELETE", LEASES "/n1", NULL, &reply);
}

START_TEST(a_removed_node_leaves_nothing_behind)
{
    set_up(ARGV(QUICK, "--lease-renew", "1s", "--lease-grace", "4s"));
    lib_wait(peer_status(&sim.api, LEASES "/n1") == 200);
    json_decref(peer_json(&sim.api, "DELETE", "/api/v1/nodes/n1", NULL));
    collect_garbage();
    ck_assert(program_wait_output(&agent.program, "Node n1 not found"));
    collect_garbage(); /* what was made anew before that was heard of has no owner either
                        */
    int looks = sim_count(&sim, "get", "nodes", "");
    lib_wait(sim_count(&sim, "get", "nodes", "") >= looks + 2);
    ck_assert_uint_eq(peer_status(&sim.api, SCVS "/n1"), 404);
    ck_assert_uint_eq(peer_status(&sim.api, LEASES "/n1"), 404);
    sim_load(&sim, "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":"
                   "\"n1\",\"uid\":\"uid-of-another\"}}");
    lib_wait(peer_status(&sim.api, SCVS "/n1") == 200);
    lib_wait(peer_status(&sim.api, LEASES "/n1") == 200);
    cleanup_json json_t *scv = agent_scv(&sim);
    ck_assert_str_eq(
        lib_str(json_array_get(lib_at(scv, "metadata.ownerReferences"), 0), "uid"),
        "uid-of-another");
    tear_down();
}

/* -- NVML -- */

#define FAKE(n)                                                                          \
    "card uuid=GPU-" #n ";name=Tesla T4;total=16106127360;free=16106127360;events=8\n"

START_TEST(nvml_is_lost_and_comes_back)
{
    cleanup_free char *source = agent_nvml();
    sim_start(&sim, ARGV(NULL));
    agent_setup(&sim);
    agent_script("driver 535.1\ncuda 12020\n" FAKE(0) FAKE(1));
    agent_start(&agent, &sim, source,
                ARGV(QUICK, "--unhealthy-after", "200ms", "--healthy-after", "300ms",
                     "--xid-hold", "1s"));
    lib_wait(agent_scv_is(&sim, "Healthy Healthy", ""));
    /* The driver is unloaded. */
    agent_script("driver 535.1\ncuda 12020\ndown 9\n" FAKE(0) FAKE(1));
    lib_wait(agent_scv_is(&sim, "Unhealthy Unhealthy", "not loaded"));
    agent_script("driver 535.1\ncuda 12020\n" FAKE(0) FAKE(1));
    lib_wait(agent_scv_is(&sim, "Healthy Healthy", ""));
    /* A card falls off the bus. */
    agent_script("driver 535.1\ncuda 12020\n" FAKE(0) "card uuid=GPU-1;open=15\n");
    lib_wait(agent_scv_is(&sim, "Healthy Unhealthy", "GPU1 is Unhealthy"));
    ck_assert_int_eq(agent_number(&sim, "status.cardNumber"), 2);
    agent_script("driver 535.1\ncuda 12020\n" FAKE(0) FAKE(1));
    lib_wait(agent_scv_is(&sim, "Healthy Healthy", ""));
    /* It is gone for good. */
    agent_script("driver 535.1\ncuda 12020\n" FAKE(0));
    lib_wait(agent_scv_is(&sim, "Healthy Unhealthy", "NVML no longer lists the card"));
    ck_assert_int_eq(agent_number(&sim, "status.totalMemorySum"), 30720);
    tear_down();
}

START_TEST(an_xid_makes_a_card_unhealthy_for_a_while)
{
    cleanup_free char *source = agent_nvml();
    sim_start(&sim, ARGV(NULL));
    agent_setup(&sim);
    agent_script("driver 535.1\ncuda 12020\n" FAKE(0) FAKE(1));
    agent_start(&agent, &sim, source,
                ARGV(QUICK, "--healthy-after", "200ms", "--xid-hold", "1s"));
    lib_wait(agent_scv_is(&sim, "Healthy Healthy", ""));
    agent_script("driver 535.1\ncuda 12020\n" FAKE(0) FAKE(1) "event 1 GPU-1 8 31\n");
    ck_assert(program_wait_output(&agent.program,
                                  "XID 31 of GPU-1 ignored: application error"));
    agent_script("driver 535.1\ncuda 12020\n" FAKE(0)
                     FAKE(1) "event 1 GPU-1 8 31\nevent 2 GPU-1 8 79\n");
    lib_wait(agent_scv_is(&sim, "Healthy Unhealthy", "GPU1 is Unhealthy: XID 79"));
    lib_wait(agent_scv_is(&sim, "Healthy Healthy", ""));
    tear_down();
}

START_TEST(a_node_without_nvml_says_so)
{
    sim_start(&sim, ARGV(NULL));
    agent_setup(&sim);
    agent_start(&agent, &sim, "nvml:/nonexistent/libnvidia-ml.so.1", ARGV(QUICK));
    lib_wait(agent_scv_is(&sim, "", "/nonexistent/libnvidia-ml.so.1"));
    ck_assert_int_eq(agent_number(&sim, "status.cardNumber"), -1);
    lib_wait(peer_status(&agent.health, "/healthz") == 200);
    ck_assert(program_runs(&agent.program));
    tear_down();
}

/* -- when something is missing -- */

START_TEST(the_kind_is_missing)
{
    sim_start(&sim, ARGV(NULL));
    agent_setup(&sim);
    sim_fault(&sim, "{\"resource\":\"scvs\",\"action\":\"answer\",\"status\":404}");
    agent_cards(CARD(0));
    cleanup_free char *source = agent_file();
    agent_start(&agent, &sim, source, ARGV(QUICK));
    ck_assert(program_wait_output(&agent.program,
                                  "the CRD scvs.core.run-linux.com is not installed"));
    lib_wait(agent_part_is(&agent, "watch", "not installed"));
    lib_wait(agent_part_is(&agent, "scv", "a write of the Scv is pending"));
    ck_assert_uint_eq(peer_status(&agent.health, "/healthz"), 503);
    ck_assert_uint_eq(peer_status(&agent.health, "/livez"), 200);
    ck_assert_uint_eq(peer_status(&sim.api, LEASES "/n1"), 404);
    sim_no_faults(&sim);
    lib_wait(agent_scv_is(&sim, "Healthy", ""));
    lib_wait(peer_status(&agent.health, "/healthz") == 200);
    tear_down();
}

START_TEST(the_namespace_of_the_lease_is_missing)
{
    sim_start(&sim, ARGV(NULL));
    sim_load(&sim, "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":"
                   "\"n1\"}}");
    sim_fault(&sim, "{\"resource\":\"leases\",\"namespace\":\"nvidia-gpu-scheduler-node-"
                    "lease\",\"action\":\"answer\",\"status\":404}");
    agent_cards(CARD(0));
    cleanup_free char *source = agent_file();
    agent_start(&agent, &sim, source, ARGV(QUICK));
    lib_wait(agent_scv_is(&sim, "Healthy", "")); /* all the same */
    ck_assert(program_wait_output(
        &agent.program, "namespace nvidia-gpu-scheduler-node-lease is missing"));
    sim_no_faults(&sim);
    agent_setup(&sim);
    lib_wait(peer_status(&sim.api, LEASES "/n1") == 200);
    tear_down();
}

START_TEST(each_call_fails_in_each_way)
{
    static const char *const ways[] = {"\"action\":\"answer\",\"status\":500",
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
    for (size_t i = 0; i < ARRAY_LEN(ways); i++)
        for (size_t k = 0; k < ARRAY_LEN(calls); k++) {
            cleanup_free char *uid = text_at(SCVS "/n1", "metadata.uid");
            sim_fault(&sim, "{%s,%s,\"times\":1}", calls[k], ways[i]);
            sim_watches(&sim, "cut", "scvs");
            json_decref(peer_json(&sim.api, "DELETE", SCVS "/n1", NULL));
            lib_wait(is_back(uid));
            set_used(++used);
            lib_wait(agent_number(&sim, "status.freeMemorySum") == 30720 - used);
            sim_no_faults(&sim);
        }
    lib_wait(peer_status(&agent.health, "/healthz") == 200);
    tear_down();
}

START_TEST(the_api_server_goes_away_and_comes_back)
{
    set_up(ARGV(QUICK));
    unsigned port = sim.api.port;
    cleanup_free char *number = xasprintf("%u", port);
    sim_stop(&sim);
    set_used(5);
    lib_wait(!agent_part_is(&agent, "scv", "ok"));
    lib_wait(!agent_part_is(&agent, "watch", "ok"));
    ck_assert_uint_eq(peer_status(&agent.health, "/livez"), 200);
    sim_start(&sim, ARGV("--port", number));
    agent_setup(&sim);
    lib_wait(agent_number(&sim, "status.freeMemorySum") == 30715);
    lib_wait(peer_status(&agent.health, "/healthz") == 200);
    tear_down();
}

START_TEST(a_call_without_an_answer_is_shown)
{
    set_up(ARGV(QUICK));
    sim_fault(&sim, "{\"verb\":\"patch\",\"resource\":\"scvs\",\"action\":\"hang\"}");
    set_used(5);
    lib_wait(agent_part_is(&agent, "scv", "a write of the Scv is pending"));
    sim_no_faults(&sim);
    lib_wait(agent_number(&sim, "status.freeMemorySum") == 30715);
    lib_wait(agent_part_is(&agent, "scv", "ok"));
    tear_down();
}

START_TEST(a_driver_that_hangs_is_shown_everywhere)
{
    cleanup_free char *fifo = temp_path(lib_dir, "cards.json");
    set_up(ARGV(QUICK, "--sampler-limit", "1s"));
    lib_wait(peer_status(&sim.api, LEASES "/n1") == 200);
    temp_remove(lib_dir, "cards.json");
    ck_assert_int_eq(mkfifo(fifo, 0600), 0); /* to open it takes as long as one likes */
    lib_wait(agent_scv_is(&sim, "Unhealthy Unhealthy", "the driver does not respond"));
    ck_assert(agent_part_is(&agent, "cards", "no response from the driver for"));
    ck_assert(program_wait_output(&agent.program, "no response from the driver for"));
    ck_assert(program_wait_output(&agent.program, "heartbeat withheld"));
    ck_assert_uint_eq(peer_status(&agent.health, "/livez"), 200);
    ck_assert_uint_eq(peer_status(&agent.health, "/healthz"), 503);
    ck_assert_uint_eq(peer_status(&agent.health, "/readyz"), 200); /* rollouts go on */
    /* It ends all the same. */
    agent_stop(&agent);
    sim_stop(&sim);
}

/* -- once -- */

START_TEST(once_prints_the_object)
{
    struct program p;
    agent_cards(CARD(0));
    cleanup_free char *source = agent_file();
    lib_program(&p, "scv-agent",
                ARGV("--once", "--node-name", "n1", "--gpu-source", source), ARGV(NULL));
    ck_assert_int_eq(program_wait(&p), 0);
    cleanup_json json_t *scv = json_loads(program_output(&p), 0, NULL);
    ck_assert_str_eq(lib_str(scv, "kind"), "Scv");
    ck_assert_str_eq(lib_str(scv, "metadata.name"), "n1");
    ck_assert_int_eq(json_integer_value(lib_at(scv, "status.cardNumber")), 1);
    program_fini(&p);
    lib_program(&p, "scv-agent", ARGV("--once", "--gpu-source", "file:/nonexistent"),
                ARGV(NULL));
    ck_assert_int_eq(program_wait(&p), 1);
    ck_assert_contains(program_output(&p), "scv-agent: /nonexistent");
    program_fini(&p);
}

START_TEST(bad_options_end_it)
{
    static const char *const cases[][3] = {
        {"--gpu-source", "amd", "--gpu-source: \"amd\" is not one of nvml"},
        {"--gpu-source", "file:", "--gpu-source: \"file:\" is not one of nvml"},
        {"--node-name", "a/b", "--node-name: \"a/b\" cannot be the name of a Node"},
        {"--node-name", "", "--node-name (or NODE_NAME) is missing"},
        {"--lease-grace", "5s", "--lease-grace: must be longer than --lease-renew"},
        {"--update-interval", "1ms", "--update-interval: \"1ms\" is not within"},
        {"--port", "70000", "--port: \"70000\" is not within"},
        {"--kubeconfig", "/nonexistent", "kubeconfig /nonexistent does not exist"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct program p;
        lib_program(&p, "scv-agent",
                    ARGV("--node-name", "n1", "--port", "0", cases[i][0], cases[i][1]),
                    ARGV(NULL));
        ck_assert_int_eq(program_wait(&p), 1);
        ck_assert_contains(program_output(&p), cases[i][2]);
        program_fini(&p);
    }
}

LIB_MAIN("agent", 120, the_scv_and_the_lease_appear,
         what_changes_is_written_and_nothing_else,
         a_deleted_scv_is_back_within_milliseconds,
         the_interval_is_honoured_at_once_and_left_alone, an_edited_status_is_put_right,
         a_removed_node_leaves_nothing_behind, nvml_is_lost_and_comes_back,
         an_xid_makes_a_card_unhealthy_for_a_while, a_node_without_nvml_says_so,
         the_kind_is_missing, the_namespace_of_the_lease_is_missing,
         each_call_fails_in_each_way, the_api_server_goes_away_and_comes_back,
         a_call_without_an_answer_is_shown, a_driver_that_hangs_is_shown_everywhere,
         once_prints_the_object, bad_options_end_it)
