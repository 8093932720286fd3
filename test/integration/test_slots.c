/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/suite.h"

/*
 * Memory in MiB and percent, from filter to the container: the extender and gpushare-node between
 * kube-sim and a simulated kubelet.
 */

#define CARD(n) "{'uuid':'GPU-" #n "','model':'Tesla T4','memoryTotal':17179869184}"

static void start_node(void)
{
    plugin_start_node(&plugin, &sim, ARGV("--pods-interval", "1s"));
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

SUITE_MAIN(60, NULL)
