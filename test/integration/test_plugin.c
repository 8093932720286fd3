/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "domain/keys.h"
#include "integration/suite.h"
#include "kube/deviceplugin.h"
#include "lib/grpc_watch.h"

/*
 * gpushare-device-plugin between kube-sim and a simulated kubelet.
 */

#define CARD(n, mib)                                                                     \
    "{'uuid':'GPU-" #n "','model':'Tesla T4','memoryTotal':" #mib "048576}"
#define CARDS                                                                            \
    "{'uuid':'GPU-0','model':'Tesla T4','memoryTotal':8592048576,'memoryReserved':"      \
    "400000000}," CARD(1, 16384)

/* 8592048576 and 16384048576 bytes are 8 and 15 GiB. What the driver keeps has ids, too: running
 * pods can have them. */
enum { UNITS = 8 + 15 };

#define NODE "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"n1\"}}"

/* The node, its cards, the kubelet, and the plugin. */
static void set_up_with(const char *const *more)
{
    sim_load(&sim, NODE);
    agent_cards(CARDS);
    kubelet_start(&kubelet);
    plugin_start(&plugin, &sim, more);
    kubelet_wait_registered(&kubelet, -1);
}

static void set_up(void)
{
    set_up_with(NULL);
}

/* Does the health check fail, according to /healthz (with this text) and the metric? */
static bool check_fails(const char *part, const char *words)
{
    return strstr(agent_line(&plugin.health, "/healthz", part), words) &&
           peer_status(&plugin.health, "/healthz") == 503 &&
           plugin_metric(&plugin, lib_fmt("healthcheck{name=\"%s\"}", part)) == 0;
}

static bool is_healthy(void)
{
    return peer_status(&plugin.health, "/healthz") == 200 &&
           peer_status(&plugin.health, "/readyz") == 200;
}

/* Has the plugin ended the stream of that resource? */
static bool lost(int resource)
{
    kubelet_serve(&kubelet);
    return !kubelet.plugins[resource].stream;
}

static bool annotation_is(const char *pod, const char *key, const char *value)
{
    const json_t *j =
        peer_get(&sim.api, lib_fmt("/api/v1/namespaces/default/pods/%s", pod));
    return strcmp(lib_annotation(j, key), value) == 0;
}

/* A pod with one container "c", known to the API server and the kubelet. */
static void add_pod(const char *name, int units, int card)
{
    plugin_pod(&sim, name, units, card);
    kubelet_add(&kubelet, name, ARGV("c"));
}

static void check_card(struct kubelet_answer *a, const char *uuid)
{
    ck_assert_msg(a->status == GRPC_OK, "%d: %s", a->status, a->words);
    ck_assert_at(a->env, "NVIDIA_VISIBLE_DEVICES", uuid);
}

/* A new pod, whose container gets 3 units of the card GPU-1. */
static void add_and_admit(const char *pod)
{
    cleanup_answer struct kubelet_answer a = {0};
    add_pod(pod, 3, 1);
    kubelet_admit(&kubelet, pod, "c", MEM, 3, &a);
    check_card(&a, "GPU-1");
}

TEST(both_resources_are_registered)
{
    set_up();
    ck_assert_uint_eq(kubelet_devices(&kubelet, MEM, true), UNITS);
    ck_assert_uint_eq(kubelet_devices(&kubelet, COUNT, true), 2);
    lib_wait(peer_status(&plugin.health, "/healthz") == 200);
    ck_assert_uint_eq(peer_status(&plugin.health, "/livez"), 200);
    ck_assert(plugin_metric(&plugin, "cards_healthy") == 2);
}

/* The kubelet counts the percents, and any of them are good for any card. */
TEST(compute_is_counted)
{
    cleanup_answer struct kubelet_answer a = {0}, b = {0}, c = {0};
    cleanup_json json_t *ids = json_pack("[s,s]", "core-7", "core-199");
    set_up_with(ARGV("--isolation", "mps"));
    ck_assert_uint_eq(kubelet_devices(&kubelet, CORE, true), 200);
    kubelet_prefer(&kubelet, CORE, 2, &a);
    ck_assert(a.status != GRPC_OK);
    kubelet_allocate(&kubelet, CORE, ids, &b);
    ck_assert_int_eq(b.status, GRPC_OK);
    ck_assert_uint_eq(json_object_size(b.env), 0);
    ck_assert_str_eq(b.mounts, "");
    sim_load(
        &sim,
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"p\","
        "\"namespace\":\"default\",\"uid\":\"u-p\",\"annotations\":{"
        "\"ALIYUN_COM_GPU_MEM_IDX\":\"1\"}},\"spec\":{\"nodeName\":\"n1\","
        "\"containers\":[{\"name\":\"c\",\"image\":\"i\",\"resources\":{\"limits\":{"
        "\"aliyun.com/gpu-mem\":\"3\",\"aliyun.com/gpu-core.percentage\":\"35\"}}}]},"
        "\"status\":{\"phase\":\"Pending\"}}");
    kubelet_add(&kubelet, "p", ARGV("c"));
    kubelet_give(&kubelet, "p", "c", CORE, ids);
    kubelet_admit(&kubelet, "p", "c", MEM, 3, &c);
    check_card(&c, "GPU-1");
    ck_assert_at(c.env, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "35");
}

TEST(a_container_gets_the_card_of_its_pod)
{
    cleanup_answer struct kubelet_answer a = {0};
    set_up();
    add_pod("p", 3, 1);
    kubelet_admit(&kubelet, "p", "c", MEM, 3, &a);
    check_card(&a, "GPU-1");
    ck_assert_at(a.env, "ALIYUN_COM_GPU_MEM_IDX", "1");
    ck_assert_at(a.env, "ALIYUN_COM_GPU_MEM_POD", "3");
    ck_assert_at(a.env, "ALIYUN_COM_GPU_MEM_CONTAINER", "3");
    ck_assert_at(a.env, "ALIYUN_COM_GPU_MEM_DEV", "15");
    lib_wait(annotation_is("p", "ALIYUN_COM_GPU_MEM_ASSIGNED", "true"));
    ck_assert(annotation_is("p", "gpushare/card-uuid", "GPU-1"));
}

TEST(ids_of_another_card_are_rejected)
{
    cleanup_answer struct kubelet_answer a = {0}, b = {0};
    set_up();
    add_pod("p", 3, 1);
    kubelet_prefer(&kubelet, MEM, 3, &a);
    ck_assert_int_eq(a.status, GRPC_OK);
    json_t *wrong = kubelet_pick(&kubelet, MEM, 3, a.ids, false);
    kubelet_allocate(&kubelet, MEM, wrong, &b);
    ck_assert_int_eq(b.status, GRPC_FAILED_PRECONDITION);
    ck_assert_contains(b.words, "wrong-card");
    ck_assert_contains(b.words,
                       "container c of pod default/p is promised 3 of card 1 GPU-1");
    lib_wait(
        sim_events(&sim, NULL, "GPUAllocationFailed", "is promised 3 of card 1 GPU-1"));
    lib_wait(plugin_metric(&plugin, "rejected_requests_total{reason=\"wrong-card\"}") ==
             1);
    ck_assert(plugin_metric(&plugin, "container_allocations") == 0);
}

TEST(an_unpromised_pod_is_admitted_and_annotated)
{
    cleanup_answer struct kubelet_answer a = {0};
    set_up_with(ARGV("--allow-unpromised"));
    add_pod("p", 1, 0);
    lib_wait(plugin_metric(&plugin, "registered{resource=\"aliyun.com/gpu-mem\"}") == 1);
    sim_add_bound_pod(&sim, "n", 2, "n1", "{}");
    kubelet_remove(&kubelet, "p");
    kubelet_add(&kubelet, "n", ARGV("c"));
    kubelet_admit(&kubelet, "n", "c", MEM, 2, &a);
    check_card(&a, "GPU-1"); /* card 0 is promised */
    lib_wait(annotation_is("n", "ALIYUN_COM_GPU_MEM_IDX", "1"));
    lib_wait(annotation_is("n", "ALIYUN_COM_GPU_MEM_ASSIGNED", "true"));
    ck_assert(annotation_is("n", "gpushare/card-uuid", "GPU-1"));
}

TEST(a_dead_watch_is_replaced_by_a_list)
{
    set_up();
    lib_wait(sim_watching(&sim, "pods") == 1);
    sim_watches(&sim, "stall", "pods"); /* and never resumed */
    add_and_admit("p");
}

/* The list that follows a broken watch can wait ten seconds, and a request five. */
TEST(a_broken_watch_delays_no_container)
{
    set_up();
    for (int i = 0; i < 4; i++) {
        lib_wait(sim_watching(&sim, "pods") == 1);
        sim_watches(&sim, "cut", "pods");
        add_and_admit(lib_fmt("p%d", i));
    }
}

/* Opening the fifo blocks. */
static void hang_driver(void)
{
    temp_remove(lib_dir, "cards.json");
    ck_assert_int_eq(mkfifo(lib_path("cards.json"), 0600), 0);
}

static void resume_driver(void)
{
    int fd = open(lib_path("cards.json"), O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    temp_remove(lib_dir, "cards.json");
    agent_cards(CARDS);
    close(fd);
}

TEST(a_driver_that_hangs_makes_all_cards_unhealthy)
{
    cleanup_answer struct kubelet_answer a = {0};
    set_up_with(ARGV("--sampler-limit", "1s", "--healthy-after", "1s"));
    hang_driver();
    lib_wait(kubelet_devices(&kubelet, MEM, false) == UNITS);
    lib_wait(kubelet_devices(&kubelet, COUNT, false) == 2);
    ck_assert(
        program_wait_output(&plugin.program, "unhealthy: the driver does not respond"));
    lib_wait(check_fails("cards", "the driver does not respond"));
    /* Neither a restart nor an update would help. */
    ck_assert_uint_eq(peer_status(&plugin.health, "/livez"), 200);
    ck_assert_uint_eq(peer_status(&plugin.health, "/readyz"), 200);
    add_pod("p", 3, 1);
    kubelet_admit(&kubelet, "p", "c", MEM, 3, &a);
    ck_assert_int_eq(a.status, GRPC_FAILED_PRECONDITION);
    ck_assert_contains(a.words,
                       "card GPU-1, which is unhealthy: the driver does not respond");
    resume_driver();
    lib_wait(kubelet_devices(&kubelet, MEM, true) == UNITS);
    lib_wait(kubelet_devices(&kubelet, COUNT, true) == 2);
    lib_wait(is_healthy());
    kubelet_remove(&kubelet, "p");
    add_and_admit("q");
}

TEST(a_missing_driver_is_reported)
{
    temp_write(lib_dir, "cards.json", "{\"error\":\"NVML: no driver\"}");
    kubelet_start(&kubelet);
    plugin_start(&plugin, &sim, ARGV("--healthy-after", "1s"));
    lib_wait(check_fails("cards", "no card was sampled yet: "));
    lib_wait(check_fails("cards", "NVML: no driver"));
    ck_assert_str_eq(agent_line(&plugin.health, "/healthz", KEY_GPU_MEM),
                     "not registered: no card found yet");
    /* An update waits for two minutes: the new version can be the cause. */
    ck_assert_uint_eq(peer_status(&plugin.health, "/readyz"), 503);
    ck_assert_uint_eq(peer_status(&plugin.health, "/livez"), 200);
    agent_cards(CARDS);
    kubelet_wait_registered(&kubelet, -1);
    lib_wait(is_healthy());
    agent_cards("%s", "");
    lib_wait(check_fails("cards", "none of 2 cards is healthy; GPU-0: "));
    ck_assert_uint_eq(peer_status(&plugin.health, "/readyz"), 200);
    agent_cards(CARDS);
    lib_wait(is_healthy());
}

TEST(a_missing_api_server_is_reported)
{
    set_up_with(ARGV("--late-after", "1s", "--node-interval", "100ms"));
    lib_wait(is_healthy());
    sim_fault(&sim, "{\"resource\":\"pods\",\"action\":\"answer\",\"status\":503}");
    sim_watches(&sim, "cut", "pods");
    lib_wait(check_fails("pods", "the pod watch fails"));
    lib_wait(plugin_metric(&plugin, "healthcheck{name=\"node\"}") == 1);
    sim_no_faults(&sim);
    lib_wait(is_healthy());
    lib_wait(plugin_metric(&plugin, "healthcheck{name=\"pods\"}") == 1);
    sim_stop(&sim);
    lib_wait(check_fails("pods", "the pod watch fails"));
    lib_wait(check_fails("node", "GET of the Node fails"));
    ck_assert_uint_eq(peer_status(&plugin.health, "/livez"), 200);
}

TEST(reading_the_node_is_retried_soon)
{
    agent_cards(CARDS); /* kube-sim has no Node yet */
    kubelet_start(&kubelet);
    plugin_start(&plugin, &sim, ARGV("--late-after", "1s", "--node-interval", "10m"));
    kubelet_wait_registered(&kubelet, -1);
    lib_wait(check_fails("node", "GET of the Node fails"));
    sim_load(&sim, NODE);
    lib_wait(is_healthy());
}

#define DRIVER                                                                           \
    "driver 535.129.03\ncard "                                                           \
    "uuid=GPU-0;name=T4;bus=3b;total=8589934592;free=8589934592;"                        \
    "used=0;reserved=0;events=15\ncard uuid=GPU-1;name=T4;bus=3c;total=17179869184;"     \
    "free=17179869184;used=0;reserved=0;events=15\n"

TEST(an_xid_makes_a_card_unhealthy)
{
    agent_script(DRIVER);
    set_up_with(ARGV("--gpu-source", agent_nvml()));
    ck_assert_uint_eq(kubelet_devices(&kubelet, COUNT, true), 2);
    ck_assert_uint_eq(kubelet_devices(&kubelet, MEM, true), 8 + 16);
    agent_script(DRIVER "event 1 GPU-1 8 79\n");
    lib_wait(kubelet_devices(&kubelet, COUNT, false) == 1);
    lib_wait(kubelet_devices(&kubelet, MEM, false) == 16);
    ck_assert(program_wait_output(&plugin.program, "unhealthy: XID 79"));
}

TEST(a_site_says_which_xids_count)
{
    agent_script("fail nvmlDeviceGetRemappedRows 999 0\n" DRIVER);
    set_up_with(ARGV("--gpu-source", agent_nvml(), "--xid-ignore=79", "--xid-fatal=all"));
    agent_script(DRIVER "event 1 GPU-1 8 31\n");
    lib_wait(kubelet_devices(&kubelet, COUNT, false) == 1);
    ck_assert(program_wait_output(&plugin.program, "unhealthy: XID 31"));
    ck_assert(program_wait_output(
        &plugin.program, "its remapped rows cannot be read: Unknown Error (999)"));
}

/* The kubelet kills a pod that runs longer than terminationGracePeriodSeconds (15 s). Here it
 * does not answer Register, and a patch hangs. */
TEST(a_hanging_call_does_not_delay_the_stop)
{
    set_up();
    sim_fault(&sim, "{\"verb\":\"patch\",\"resource\":\"pods\",\"action\":\"hang\"}");
    add_and_admit("p");
    kubelet_stop(&kubelet);
    kubelet_start(&kubelet);
    lib_wait(kubelet_is_asked(&kubelet));
    program_signal(&plugin.program, SIGTERM);
    ck_assert(program_wait_output(&plugin.program, "exiting without waiting for it"));
    ck_assert_contains(program_output(&plugin.program), "waited_ms=10000");
    ck_assert_int_eq(program_wait(&plugin.program), 0);
    plugin_stop(&plugin);
    /* The next plugin sends the patch again. */
    sim_no_faults(&sim);
    plugin_start(&plugin, &sim, NULL);
    lib_wait(annotation_is("p", KEY_MEM_ASSIGNED, "true"));
}

/* The two waits do not add up. */
TEST(a_driver_that_hangs_beside_a_call_does_not_delay_the_stop)
{
    set_up_with(ARGV("--sampler-limit", "1s"));
    sim_fault(&sim, "{\"verb\":\"patch\",\"resource\":\"pods\",\"action\":\"hang\"}");
    add_and_admit("p");
    hang_driver();
    lib_wait(check_fails("cards", "the driver does not respond"));
    kubelet_stop(&kubelet);
    kubelet_start(&kubelet);
    lib_wait(kubelet_is_asked(&kubelet));
    const int64_t from_ms = clock_mono_ms();
    program_signal(&plugin.program, SIGTERM);
    ck_assert_int_eq(program_wait(&plugin.program), 0);
    ck_assert_int_lt(clock_mono_ms() - from_ms, 10000);
    ck_assert_contains(program_output(&plugin.program),
                       "the driver does not respond; exiting");
    plugin_stop(&plugin);
}

TEST(a_restarted_kubelet_is_registered_with)
{
    set_up();
    for (int round = 0; round < 3; round++) {
        cleanup_answer struct kubelet_answer a = {0};
        char *name = lib_fmt("p%d", round);
        kubelet_stop(&kubelet);
        kubelet_start(&kubelet);
        kubelet_wait_registered(&kubelet, -1);
        add_pod(name, 3, 1);
        kubelet_admit(&kubelet, name, "c", MEM, 3, &a);
        check_card(&a, "GPU-1");
    }
    lib_wait(plugin_metric(&plugin, "container_allocations") == 3);
}

/* Since 1.27 it allocates nothing for containers that run when it starts. */
TEST(a_kubelet_without_its_checkpoint_admits_new_pods)
{
    set_up();
    sim_load(&sim,
             "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"n1\"},"
             "\"status\":{\"nodeInfo\":{\"kubeletVersion\":\"v1.33.2\"}}}");
    plugin_stop(&plugin);
    plugin_start(&plugin, &sim, NULL);
    kubelet_wait_registered(&kubelet, -1);
    add_and_admit("p");
    lib_wait(annotation_is("p", KEY_MEM_ASSIGNED, "true"));
    cleanup_buf struct buf now = {0};
    clock_format_s(&now, clock_wall_ns() / 1000000000);
    peer_do(
        &sim.api, "PATCH", "/api/v1/namespaces/default/pods/p/status",
        lib_fmt(
            "{\"status\":{\"phase\":\"Running\",\"containerStatuses\":[{\"name\":\"c\","
            "\"state\":{\"running\":{\"startedAt\":\"%.*s\"}}}]}}",
            SPAN_ARG(buf_span(&now))));
    kubelet_remove(&kubelet, "p");
    kubelet_stop(&kubelet);
    kubelet_start(&kubelet);
    kubelet_wait_registered(&kubelet, -1);
    kubelet_add(&kubelet, "p", ARGV("c")); /* without ids */
    for (int i = 0; i < 3; i++) {
        cleanup_answer struct kubelet_answer a = {0};
        const char *name = lib_fmt("q%d", i);
        add_pod(name, 3, 0);
        kubelet_admit(&kubelet, name, "c", MEM, 3, &a);
        if (i < 2) {
            check_card(&a, "GPU-0");
            continue;
        }
        ck_assert_contains(a.words, "too few free ids of card GPU-0");
    }
}

TEST(a_privileged_container_is_reported)
{
    cleanup_answer struct kubelet_answer a = {0};
    set_up();
    sim_load(&sim,
             "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"p\","
             "\"namespace\":\"default\",\"uid\":\"uid-p\",\"annotations\":{"
             "\"ALIYUN_COM_GPU_MEM_IDX\":\"1\",\"scheduler.framework.gpushare."
             "allocation\":\"{}\",\"gpushare/card-uuid\":\"GPU-1\"}},\"spec\":{"
             "\"nodeName\":\"n1\",\"containers\":[{\"name\":\"c\",\"image\":\"i\","
             "\"securityContext\":{\"privileged\":true},\"resources\":{\"limits\":{"
             "\"aliyun.com/gpu-mem\":\"3\"}}}]},\"status\":{\"phase\":\"Pending\"}}");
    kubelet_add(&kubelet, "p", ARGV("c"));
    kubelet_admit(&kubelet, "p", "c", MEM, 3, &a);
    check_card(&a, "GPU-1");
    ck_assert_at(a.env, "CUDA_VISIBLE_DEVICES", "GPU-1");
    lib_wait(sim_events(&sim, "p", "GPUEnvOverridden", "is privileged") == 1);
}

TEST(a_removed_endpoint_is_served_again)
{
    set_up();
    int before = kubelet.registrations;
    ck_assert_int_eq(unlink(kubelet.plugins[MEM].socket), 0);
    lib_wait((kubelet_serve(&kubelet), kubelet.registrations > before));
    kubelet_wait_registered(&kubelet, -1);
    add_and_admit("p");
}

TEST(two_containers_and_a_stop_have_their_status)
{
    static const struct dp_ids containers[2];
    cleanup_buf struct buf request = {0}, none = {0};
    struct err err = {0};
    set_up();
    ck_assert_done(proto_encode(&dp_groups_type, &(struct dp_groups){containers, 2},
                                DP_MESSAGE_MAX, &request, &err),
                   err);
    struct grpcc_request req = {.socket = kubelet.plugins[MEM].socket,
                                .method = DP_ALLOCATE,
                                .message = buf_span(&request),
                                .timeout_ms = LIB_WAIT_MS};
    ck_assert_int_eq(grpcc_call(&req, &none, NULL, &err), -1);
    ck_assert_contains(err.msg, "INVALID_ARGUMENT: 2 containers in one request");
    program_signal(&plugin.program, SIGTERM);
    lib_wait(grpc_watch_next(kubelet.plugins[MEM].stream, 10, &none) < 0);
    ck_assert_str_eq(grpc_watch_status(kubelet.plugins[MEM].stream),
                     "14 the device plugin is stopping");
}

TEST(allocations_survive_a_killed_plugin)
{
    cleanup_answer struct kubelet_answer a = {0}, b = {0};
    set_up();
    sim_load(
        &sim,
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"p\","
        "\"namespace\":\"default\",\"uid\":\"uid-p\",\"annotations\":{"
        "\"ALIYUN_COM_GPU_MEM_IDX\":\"1\",\"gpushare/card-uuid\":\"GPU-1\"}},"
        "\"spec\":{\"nodeName\":\"n1\",\"initContainers\":[{\"name\":\"i\",\"image\":"
        "\"i\",\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":\"3\"}}}],"
        "\"containers\":[{\"name\":\"c\",\"image\":\"i\",\"resources\":{\"limits\":{"
        "\"aliyun.com/gpu-mem\":\"3\"}}}]},\"status\":{\"phase\":\"Pending\"}}");
    kubelet_add(&kubelet, "p", ARGV("c"));
    kubelet_admit(&kubelet, "p", "i", MEM, 3, &a); /* never shown by podresources */
    check_card(&a, "GPU-1");
    peer_fini(&plugin.health);
    program_kill(&plugin.program);
    lib_wait(lost(MEM) && lost(COUNT));
    plugin_start(&plugin, &sim, NULL);
    kubelet_wait_registered(&kubelet, -1);
    lib_wait(peer_status(&plugin.health, "/healthz") == 200);
    ck_assert(plugin_metric(&plugin, "container_allocations") == 1);
    /* Reused ids come without GetPreferredAllocation; only the state file has their
     * holder. */
    kubelet_allocate(&kubelet, MEM, a.ids, &b);
    check_card(&b, "GPU-1");
    lib_wait(annotation_is("p", "ALIYUN_COM_GPU_MEM_ASSIGNED", "true"));
}

TEST(a_damaged_state_file_is_recovered)
{
    set_up();
    add_and_admit("p");
    plugin_stop(&plugin);
    temp_write(lib_dir, "state.json", "{\"version\": 1, \"grants\": [{");
    plugin_start(&plugin, &sim, NULL);
    ck_assert(program_wait_output(&plugin.program, "cannot use the state file"));
    lib_wait(lost(MEM) || kubelet.plugins[MEM].stream);
    kubelet_wait_registered(&kubelet, -1);
    add_and_admit("q");
    /* p's allocation is recovered from podresources. */
    lib_wait(plugin_metric(&plugin, "container_allocations") == 2);
    ck_assert(plugin_metric(&plugin, "recovered_allocations_total") >= 1);
    ck_assert_contains(lib_read("state.json.damaged"), "grants");
}

/* What the file lacks, the next process has from podresources. */
TEST(a_state_file_that_cannot_be_written_keeps_no_container_waiting)
{
    set_up();
    add_and_admit("p");
    ck_assert_int_eq(unlink(lib_path("state.json")), 0);
    ck_assert_int_eq(mkdir(lib_path("state.json"), 0700), 0);
    add_and_admit("q");
    ck_assert(program_wait_output(&plugin.program, "cannot save the allocation state"));
    lib_wait(plugin_metric(&plugin, "state_write_failures_total") >= 1);
    plugin_stop(&plugin);
    plugin_start(&plugin, &sim, NULL);
    kubelet_wait_registered(&kubelet, -1);
    lib_wait(plugin_metric(&plugin, "container_allocations") == 2);
}

TEST(of_two_plugins_the_newer_one_serves)
{
    struct plugin newer = {0};
    set_up();
    add_and_admit("p");
    int before = kubelet.registrations;
    plugin_start(&newer, &sim, NULL);
    lib_wait((kubelet_serve(&kubelet), kubelet.registrations >= before + 4));
    kubelet_wait_registered(&kubelet, -1);
    ck_assert(
        program_wait_output(&plugin.program, "a newer plugin of this node serves it"));
    /* The older plugin yields; the newer one has read its allocations. */
    lib_wait(plugin_metric(&newer, "registered{resource=\"aliyun.com/gpu-mem\"}") == 1 &&
             plugin_metric(&newer, "registered{resource=\"aliyun.com/gpu-count\"}") == 1);
    ck_assert(plugin_metric(&newer, "container_allocations") == 1);
    add_and_admit("q");
    ck_assert_int_eq(kubelet.registrations, before + 4);
    /* The older one registers again when the newer one is gone, and reads its
     * allocations. */
    plugin_stop(&newer);
    lib_wait((kubelet_serve(&kubelet), kubelet.registrations >= before + 8));
    kubelet_wait_registered(&kubelet, -1);
    lib_wait(plugin_metric(&plugin, "container_allocations") == 2);
}

/* Its ids are healthy as long as it runs. */
TEST(the_plugin_of_another_system_is_waited_for)
{
    static const char name[] = "aliyun.com/gpu-share";
    sim_load(&sim, NODE);
    agent_cards(CARDS);
    kubelet_start(&kubelet);
    kubelet_set_allocatable(&kubelet,
                            json_pack("{s:[s,s],s:[s]}", name, "GPU-0-1", "GPU-0-2",
                                      "aliyun.com/gpu-mem", "0000000-0"));
    plugin_start(&plugin, &sim, NULL);
    kubelet_wait_registered(&kubelet, MEM);
    ck_assert(program_wait_output(&plugin.program, "another plugin of this node"));
    lib_wait(
        strstr(agent_line(&plugin.health, "/healthz", name),
               "another plugin of this node serves it: the kubelet has its id GPU-0-"));
    lib_wait(plugin_metric(&plugin, lib_fmt("other_plugin{resource=\"%s\"}", name)) == 1);
    ck_assert_ptr_null(kubelet.plugins[SHARE].socket);
    kubelet_set_allocatable(&kubelet, json_object());
    kubelet_wait_registered(&kubelet, -1);
    lib_wait(is_healthy());
    ck_assert(plugin_metric(&plugin, lib_fmt("other_plugin{resource=\"%s\"}", name)) ==
              0);
    ck_assert(plugin_metric(&plugin, "other_plugin{resource=\"aliyun.com/gpu-mem\"}") ==
              0);
}

/* It looks twice a minute. */
TEST(a_plugin_of_another_system_that_comes_later_is_left_the_resource)
{
    set_up();
    kubelet_set_allocatable(&kubelet,
                            json_pack("{s:[s]}", "aliyun.com/gpu-share", "GPU-0-1"));
    lib_wait_within(2 * LIB_WAIT_MS, lost(SHARE), "it still serves");
    lib_wait(plugin_metric(&plugin, "other_plugin{resource=\"aliyun.com/gpu-share\"}") ==
             1);
    ck_assert_ptr_nonnull(kubelet.plugins[MEM].stream);
    kubelet_set_allocatable(&kubelet, json_object());
    kubelet_wait_registered(&kubelet, -1);
}

/* The kubelet asks for them when it restarts. */
TEST(ids_of_a_plugin_before_are_in_the_first_list)
{
    cleanup_json json_t *ids = json_pack("[s]", "GPU-0-2");
    sim_load(&sim, NODE);
    agent_cards(CARDS);
    kubelet_start(&kubelet);
    kubelet_add(&kubelet, "p", ARGV("c"));
    kubelet_give(&kubelet, "p", "c", SHARE, ids);
    plugin_start(&plugin, &sim, ARGV("--slots", "4"));
    kubelet_wait_registered(&kubelet, -1);
    ck_assert_uint_eq(kubelet_devices(&kubelet, SHARE, true), 2 * 4 + 1);
    ck_assert(json_is_true(json_object_get(kubelet.plugins[SHARE].devices, "GPU-0-2")));
    ck_assert_uint_eq(kubelet_devices(&kubelet, MEM, true), UNITS);
}

TEST(too_small_a_unit_leaves_whole_cards)
{
    cleanup_buf struct buf cards = {0};
    sim_load(&sim, NODE);
    for (int i = 0; i < 8; i++)
        buf_printf(&cards,
                   "%s{'uuid':'GPU-%d','model':'H200','memoryTotal':150754820096}",
                   i ? "," : "", i);
    agent_cards("%s", cards.p);
    kubelet_start(&kubelet);
    plugin_start(&plugin, &sim, ARGV("--memory-unit", "MiB"));
    kubelet_wait_registered(&kubelet, COUNT);
    lib_wait(kubelet_devices(&kubelet, CORE, true) == 8 * 100);
    ck_assert(
        program_wait_output(&plugin.program, "aliyun.com/gpu-mem is not registered"));
    ck_assert(program_wait_output(&plugin.program, "--memory-unit=8MiB"));
    ck_assert_ptr_null(kubelet.plugins[MEM].socket);
    lib_wait(plugin_metric(&plugin, "registered{resource=\"aliyun.com/gpu-count\"}") ==
             1);
}

TEST(invalid_options_are_rejected)
{
    static const char *const cases[][3] = {
        {"--port", "0", "--node-name (or NODE_NAME) is required"},
        {"--node-name", "a/b", "\"a/b\" cannot be the name of a Node"},
        {"--memory-unit", "GB", "memory-unit"},
        {"--device-list-strategy", "x",
         "\"x\" is not one of auto|envvar|volume-mounts|cdi-annotations|cdi-cri"},
        {"--isolation", "cgpu", "\"cgpu\" is not one of none|mps"},
        {"--node-name=n1", "--kubeconfig=/nowhere/at/all", "/nowhere/at/all"},
    };
    array_indices(i, cases)
        ck_assert_contains(lib_output_of(1, "gpushare-device-plugin",
                                         ARGV("--plugin-dir", "/nowhere/at/all",
                                              cases[i][0], cases[i][1])),
                           cases[i][2]);
}

/* Duration of admissions while a node fills up; printed for docs/device-plugin.md. */
TEST(admissions_are_fast)
{
    enum { N = 200 };
    static double prefer[N], allocate[N];
    sim_load(&sim, NODE);
    agent_cards("{'uuid':'GPU-0','memoryTotal':150754820096},{'uuid':'GPU-1',"
                "'memoryTotal':150754820096}");
    kubelet_start(&kubelet);
    plugin_start(&plugin, &sim, NULL);
    kubelet_wait_registered(&kubelet, -1);
    for (int i = 0; i < N; i++)
        plugin_pod(&sim, lib_fmt("p%d", i), 1, i % 2);
    lib_wait(peer_status(&plugin.health, "/healthz") == 200);
    for (int i = 0; i < N; i++) {
        cleanup_answer struct kubelet_answer a = {0};
        const char *pod = lib_fmt("p%d", i);
        kubelet_add(&kubelet, pod, ARGV("c"));
        double began = lib_now_exact_ms();
        kubelet_prefer(&kubelet, MEM, 1, &a);
        ck_assert_msg(a.status == GRPC_OK, "%s", a.words);
        double middle = lib_now_exact_ms();
        kubelet_allocate(&kubelet, MEM, a.ids, &a);
        check_card(&a, i % 2 ? "GPU-1" : "GPU-0");
        allocate[i] = lib_now_exact_ms() - middle;
        prefer[i] = middle - began;
        kubelet_give(&kubelet, pod, "c", MEM, a.ids);
    }
    lib_sort(prefer, N);
    lib_sort(allocate, N);
    printf("measured: GetPreferredAllocation: p50 %.3f ms, p99 %.3f ms; Allocate: p50 "
           "%.3f ms, p99 %.3f ms, of %d\n",
           prefer[N / 2], prefer[N * 99 / 100], allocate[N / 2], allocate[N * 99 / 100],
           N);
    ck_assert_double_lt(prefer[N / 2] + allocate[N / 2], 2000.0 * LIB_SLOWER);
}

SUITE_MAIN(120, NULL)
