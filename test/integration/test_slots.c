/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/stat.h>

#include "integration/suite.h"

/*
 * Memory in MiB and percent, from filter to the container: the extender and gpushare-node between
 * kube-sim and a simulated kubelet.
 */

#define CARD(n) "{'uuid':'GPU-" #n "','model':'Tesla T4','memoryTotal':17179869184}"

static const char *requests_of = "none";

static void start_node(void)
{
    plugin_start_node(&plugin, &sim,
                      ARGV("--pods-interval", "1s", "--requests-of", requests_of));
    kubelet_wait_registered(&kubelet, -1);
}

/* What the kubelet writes: the capacity is the number of ids. */
static void set_up(void)
{
    agent_setup(&sim);
    agent_cards(CARD(0) "," CARD(1));
    kubelet_start(&kubelet);
    start_node();
    ck_assert_uint_eq(kubelet_devices(&kubelet, SHARE, true), 2 * 32);
    peer_do(&sim.api, "PATCH", "/api/v1/nodes/n1/status",
            "{\"status\":{\"capacity\":{\"aliyun.com/gpu-share\":\"64\"},"
            "\"allocatable\":{\"aliyun.com/gpu-share\":\"64\"}}}");
    lib_wait(lib_size(agent_scv(&sim), "status.cardList") == 2);
    suite_extender(NULL);
    lib_wait(lib_size(extender_node(&extender, "n1"), "devs") == 2);
}

#define CONTAINER(name)                                                                  \
    "{\"name\":\"" name "\",\"image\":\"i\",\"resources\":{\"limits\":{"                 \
    "\"aliyun.com/gpu-share\":\"%d\"}}}"

/* Containers "a" and "b" with slots on so many cards. */
static void add_pod(const char *name, int cards, const char *memory)
{
    sim_load(&sim,
             "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\","
             "\"namespace\":\"default\",\"uid\":\"uid-%s\",\"annotations\":{"
             "\"gpushare/memory\":\"%s\"}},\"spec\":{\"containers\":[" CONTAINER(
                 "a") "," CONTAINER("b") "]}}",
             name, name, memory, cards, cards);
}

/* The pod is bound, and its containers get these cards and MiB. Returns the cards. */
static const char *gets(const char *name, int cards, const char *memory, const char *mib,
                        const char *mib_of_pod)
{
    cleanup_buf struct buf why = {0};
    const char *where = NULL;
    bool bound = false;
    add_pod(name, cards, memory);
    lib_wait((buf_clear(&why), bound = extender_bind(&extender, name, "n1", &why)));
    ck_assert_msg(bound, "%s: %s", name, why.p);
    kubelet_add(&kubelet, name, ARGV("a", "b"));
    for (const char *c = "ab"; *c; c++) {
        cleanup_answer struct kubelet_answer a = {0};
        kubelet_admit(&kubelet, name, (const char[]){*c, '\0'}, SHARE, cards, &a);
        ck_assert_msg(a.status == GRPC_OK, "%s: %s", name, a.words);
        ck_assert_at(a.env, "ALIYUN_COM_GPU_MEM_CONTAINER", mib);
        ck_assert_at(a.env, "ALIYUN_COM_GPU_MEM_POD", mib_of_pod);
        const char *visible = lib_str(a.env, "NVIDIA_VISIBLE_DEVICES");
        ck_assert(!where || strcmp(where, visible) == 0);
        where = lib_fmt("%s", visible);
    }
    return where;
}

/* Of the allocations in the state file, how many containers have so many MiB of each card? */
static int recorded(int mib)
{
    const char *mark = lib_fmt("\"slotMiB\":%d,", mib);
    int n = 0;
    for (const char *at = lib_file(lib_path("state.json")); (at = strstr(at, mark)); at++)
        n++;
    return n;
}

static void restart(bool state_lost)
{
    peer_fini(&plugin.health);
    program_kill(&plugin.program);
    if (state_lost)
        temp_remove(lib_dir, "state.json");
    start_node();
}

TEST(from_filter_to_the_container_and_after_a_restart)
{
    cleanup_buf struct buf why = {0};
    set_up();
    const char *first = gets("p", 1, "6144Mi", "3072", "6144");
    ck_assert_str_eq(gets("two", 2, "50%", "8192", "16384"), "GPU-0,GPU-1");
    add_pod("r", 2, "3Gi");
    ck_assert(!extender_bind(&extender, "r", "n1", &why));
    ck_assert_contains(why.p, "needs 3072 MiB");
    /* Nobody may do this to a bound pod; the record of the bind counts in any case. */
    peer_do(&sim.api, "PATCH", "/api/v1/namespaces/default/pods/p",
            "{\"metadata\":{\"annotations\":{\"gpushare/memory\":\"1Gi\"}}}");
    for (int lost = 0; lost < 2; lost++) {
        restart(lost);
        lib_wait(plugin_metric(&plugin, "container_allocations") == 4);
        lib_wait(recorded(3072) == 2 && recorded(4096) == 2);
        lib_wait(peer_status(&plugin.health, "/healthz") == 200);
        ck_assert(plugin_metric(&plugin, "mismatches_total") == 0);
    }
    /* 2 GiB are left of the first card. */
    ck_assert_str_ne(gets("q", 1, "4Gi", "2048", "4096"), first);
}

TEST(slots_can_be_switched_off)
{
    cleanup_buf struct buf metrics = {0};
    agent_setup(&sim);
    agent_cards(CARD(0));
    kubelet_start(&kubelet);
    plugin_start_node(&plugin, &sim, ARGV("--slots", "0"));
    kubelet_wait_registered(&kubelet, MEM);
    kubelet_wait_registered(&kubelet, CORE);
    lib_wait(peer_status(&plugin.health, "/readyz") == 200);
    ck_assert_contains(agent_line(&plugin.health, "/healthz", "aliyun.com/gpu-share"),
                       "--slots is 0");
    peer_call(&plugin.health, "GET", "/metrics", NULL, &metrics);
    ck_assert_contains(metrics.p, "registered{resource=\"aliyun.com/gpu-mem\"} 1");
    ck_assert_lacks(metrics.p, "registered{resource=\"aliyun.com/gpu-share\"}");
    ck_assert_ptr_null(kubelet.plugins[SHARE].socket);
}

static bool dialect_is(const char *word)
{
    const json_t *is = lib_at(agent_scv(&sim), "status.dialect");
    return word ? is && strcmp(json_string_value(is), word) == 0 : !is;
}

static void label_node(const char *value)
{
    peer_do(&sim.api, "PATCH", "/api/v1/nodes/n1",
            lib_fmt("{\"metadata\":{\"labels\":{\"gpushare/dialect\":%s}}}", value));
}

/* nvidia.com/gpu is served while the Node's label says so, and NVIDIA's plugin may serve it before and
 * after. */
TEST(the_label_of_the_node_says_who_serves_nvidia_gpu)
{
    agent_setup(&sim);
    agent_cards(CARD(0) "," CARD(1));
    kubelet_start(&kubelet);
    plugin_start_node(&plugin, &sim, ARGV("--node-interval", "100ms"));
    kubelet_wait_registered(&kubelet, -1);
    lib_wait(peer_status(&plugin.health, "/readyz") == 200);
    ck_assert(peer_status(&plugin.health, "/healthz") == 200);
    cleanup_buf struct buf metrics = {0};
    peer_call(&plugin.health, "GET", "/metrics", NULL, &metrics);
    ck_assert_lacks(metrics.p, "resource=\"nvidia.com/gpu\"");
    ck_assert_ptr_null(kubelet.plugins[NVIDIA].socket);
    ck_assert(dialect_is(NULL));
    for (int again = 0; again < 2; again++) {
        label_node("\"hami\"");
        kubelet_wait_registered(&kubelet, NVIDIA);
        ck_assert_uint_eq(kubelet_devices(&kubelet, NVIDIA, true), 2 * 32);
        lib_wait(dialect_is("hami"));
        lib_wait(plugin_metric(&plugin, "registered{resource=\"nvidia.com/gpu\"}") == 1);
        label_node("\"kai\"");
        lib_wait((kubelet_serve(&kubelet), !kubelet.plugins[NVIDIA].stream));
        lib_wait(dialect_is("kai"));
        ck_assert(peer_status(&plugin.health, "/readyz") == 200);
        label_node("null");
        lib_wait(dialect_is(NULL));
    }
    ck_assert_ptr_nonnull(kubelet.plugins[SHARE].stream);
}

/* The program itself cannot serve, which is no takeover. */
TEST(a_path_that_cannot_be_served_is_no_other_plugin)
{
    static const char name[] = "nvidia.com/gpu";
    agent_setup(&sim);
    agent_cards(CARD(0));
    label_node("\"hami\"");
    kubelet_start(&kubelet);
    plugin_start_node(&plugin, &sim, NULL);
    kubelet_wait_registered(&kubelet, NVIDIA);
    lib_wait(peer_status(&plugin.health, "/readyz") == 200);
    const char *path = lib_fmt("%s", kubelet.plugins[NVIDIA].socket);
    ck_assert_int_eq(rename(path, lib_fmt("%s.away", path)), 0);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    lib_wait(strstr(agent_line(&plugin.health, "/healthz", name), "not a socket"));
    ck_assert_lacks(agent_line(&plugin.health, "/healthz", name), "another plugin");
    ck_assert_int_eq(peer_status(&plugin.health, "/readyz"), 503);
    ck_assert(plugin_metric(&plugin, lib_fmt("other_plugin{resource=\"%s\"}", name)) ==
              0);
    ck_assert_int_eq(rmdir(path), 0);
    lib_wait((kubelet_serve(&kubelet), peer_status(&plugin.health, "/readyz") == 200));
}

/* The first Scv, too: a kubelet that does not run says nothing. */
TEST(a_dialect_is_unserved_until_the_kubelet_answers)
{
    agent_setup(&sim);
    agent_cards(CARD(0));
    label_node("\"hami\"");
    kubelet_start(&kubelet);
    kubelet_stop(&kubelet);
    plugin_start_node(&plugin, &sim, NULL);
    lib_wait(lib_size(agent_scv(&sim), "status.cardList") == 1);
    lib_wait(dialect_is("unserved"));
    kubelet_start(&kubelet);
    kubelet_wait_registered(&kubelet, NVIDIA);
    lib_wait(dialect_is("hami"));
}

/* Its Scv, which another program publishes, would not say so. */
TEST(the_device_plugin_alone_serves_no_dialect)
{
    agent_setup(&sim);
    agent_cards(CARD(0));
    label_node("\"hami\"");
    kubelet_start(&kubelet);
    plugin_start(&plugin, &sim, ARGV("--node-interval", "100ms"));
    kubelet_wait_registered(&kubelet, -1);
    lib_wait(peer_status(&plugin.health, "/readyz") == 200);
    kubelet_serve(&kubelet);
    ck_assert_ptr_null(kubelet.plugins[NVIDIA].socket);
}

#define HAMI(name)                                                                       \
    "{\"name\":\"" name "\",\"image\":\"i\",\"resources\":{\"limits\":{"                 \
    "\"nvidia.com/gpu\":\"2\",\"nvidia.com/gpumem\":\"3k\"}}}"

/* A bound pod of HAMi: gpumem 3000 and 2500 on both cards. */
static void add_hami_pod(const char *name, const char *record)
{
    sim_load(&sim,
             "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\","
             "\"namespace\":\"default\",\"uid\":\"uid-%s\",\"annotations\":{%s}},"
             "\"spec\":{\"nodeName\":\"n1\",\"containers\":[" HAMI("a") "," HAMI(
                 "b") "]},\"status\":{\"phase\":\"Pending\"}}",
             name, name, record);
    kubelet_add(&kubelet, name, ARGV("a", "b"));
}

TEST(a_pod_of_hami_gets_its_parts)
{
    cleanup_answer struct kubelet_answer a = {0}, b = {0}, c = {0};
    agent_setup(&sim);
    agent_cards(CARD(0) "," CARD(1));
    kubelet_start(&kubelet);
    requests_of = "hami";
    start_node();
    kubelet_wait_registered(&kubelet, NVIDIA);
    lib_wait(dialect_is("hami"));
    add_hami_pod("p", "\"ALIYUN_COM_GPU_MEM_IDX\":\"0,1\",\"gpushare/card-uuid\":"
                      "\"GPU-0,GPU-1\",\"gpushare/card-memory\":\"5500 uid-p\","
                      "\"scheduler.framework.gpushare.allocation\":"
                      "\"{\\\"0\\\":{\\\"0\\\":3000,\\\"1\\\":3000},"
                      "\\\"1\\\":{\\\"0\\\":2500,\\\"1\\\":2500}}\"");
    kubelet_admit(&kubelet, "p", "a", NVIDIA, 2, &a);
    ck_assert_msg(a.status == GRPC_OK, "%s", a.words);
    ck_assert_at(a.env, "NVIDIA_VISIBLE_DEVICES", "GPU-0,GPU-1");
    ck_assert_at(a.env, "ALIYUN_COM_GPU_MEM_CONTAINER", "6000");
    kubelet_admit(&kubelet, "p", "b", NVIDIA, 2, &b);
    ck_assert_msg(b.status == GRPC_OK, "%s", b.words);
    ck_assert_at(b.env, "ALIYUN_COM_GPU_MEM_CONTAINER", "5000");
    restart(true);
    kubelet_wait_registered(&kubelet, NVIDIA);
    lib_wait(plugin_metric(&plugin, "container_allocations") == 2);
    ck_assert(plugin_metric(&plugin, "mismatches_total") == 0);
    /* kube-scheduler bound it past the extender. */
    add_hami_pod("q", "");
    kubelet_admit(&kubelet, "q", "a", NVIDIA, 2, &c);
    ck_assert_uint_eq(c.status, GRPC_FAILED_PRECONDITION);
    ck_assert_contains(c.words, "has no promised card");
}

/* Its request is HAMi's: 3000 MiB, and 25% of what the card can promise. Nobody binds it while HAMi's
 * plugin runs, which would refuse it. */
TEST(a_pod_of_hami_from_filter_to_the_container)
{
    cleanup_answer struct kubelet_answer a = {0}, b = {0};
    cleanup_buf struct buf why = {0};
    bool bound = false;
    requests_of = "hami";
    agent_setup(&sim);
    agent_cards(CARD(0) "," CARD(1));
    kubelet_start(&kubelet);
    kubelet_set_allocatable(&kubelet, json_pack("{s:[s]}", "nvidia.com/gpu", "GPU-0-1"));
    start_node();
    peer_do(&sim.api, "PATCH", "/api/v1/nodes/n1/status",
            "{\"status\":{\"capacity\":{\"nvidia.com/gpu\":\"64\"},"
            "\"allocatable\":{\"nvidia.com/gpu\":\"64\"}}}");
    lib_wait(lib_size(agent_scv(&sim), "status.cardList") == 2 && dialect_is("unserved"));
    lib_wait(peer_status(&plugin.health, "/readyz") == 200);
    ck_assert_contains(agent_line(&plugin.health, "/readyz", "nvidia.com/gpu"),
                       "another plugin of this node serves it");
    suite_extender(ARGV("--requests-of", "hami"));
    lib_wait(lib_size(extender_node(&extender, "n1"), "devs") == 2);
    sim_load(&sim,
             "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"h\","
             "\"namespace\":\"default\",\"uid\":\"uid-h\"},\"spec\":{\"containers\":["
             "{\"name\":\"a\",\"image\":\"i\",\"resources\":{\"limits\":{"
             "\"nvidia.com/gpu\":\"1\",\"nvidia.com/gpumem\":\"3k\"}}},"
             "{\"name\":\"b\",\"image\":\"i\",\"resources\":{\"limits\":{"
             "\"nvidia.com/gpu\":\"1\",\"nvidia.com/gpumem-percentage\":\"25\"}}}]}}");
    sim_load(&sim,
             "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"plain\","
             "\"namespace\":\"default\",\"uid\":\"uid-plain\"},\"spec\":{"
             "\"containers\":[{\"name\":\"a\",\"image\":\"i\",\"resources\":{"
             "\"limits\":{\"nvidia.com/gpu\":\"1\"}}}]}}");
    static const char *const pods[] = {"h", "plain"};
    array_items(pod, pods) {
        buf_clear(&why);
        ck_assert(!extender_bind(&extender, *pod, "n1", &why));
        ck_assert_contains(
            why.p,
            "this node serves no requests of HAMi yet: its Scv's dialect is unserved");
    }
    kubelet_set_allocatable(&kubelet, json_object());
    kubelet_wait_registered(&kubelet, NVIDIA);
    lib_wait(dialect_is("hami"));
    lib_wait((buf_clear(&why), bound = extender_bind(&extender, "h", "n1", &why)));
    ck_assert_msg(bound, "%s", why.p);
    kubelet_add(&kubelet, "h", ARGV("a", "b"));
    kubelet_admit(&kubelet, "h", "a", NVIDIA, 1, &a);
    ck_assert_msg(a.status == GRPC_OK, "%s", a.words);
    ck_assert_at(a.env, "ALIYUN_COM_GPU_MEM_CONTAINER", "3000");
    ck_assert_at(a.env, "ALIYUN_COM_GPU_MEM_POD", "7096");
    kubelet_admit(&kubelet, "h", "b", NVIDIA, 1, &b);
    ck_assert_msg(b.status == GRPC_OK, "%s", b.words);
    ck_assert_at(b.env, "ALIYUN_COM_GPU_MEM_CONTAINER", "4096");
    ck_assert_str_eq(lib_str(a.env, "NVIDIA_VISIBLE_DEVICES"),
                     lib_str(b.env, "NVIDIA_VISIBLE_DEVICES"));
}

SUITE_MAIN(60, NULL)
