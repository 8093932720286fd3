/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <sys/wait.h>

#include "integration/suite.h"
#include "lib/overuse_node.h"

/*
 * Whose memory of a card is used: from the process lists of the fake NVML, through the real
 * scv-agent and its Scv, to what the real extender promises. The node, its kubelet and its
 * /proc are those of lib/overuse_node.h. The pod `greedy` was promised 4 GiB and runs; the
 * pod `modest` was promised 8 GiB and is Pending, as while an init container runs.
 */

enum { TOTAL = 16, GIB_MIB = 1024 };

static struct overuse_node node;
static pid_t outside;

static void add_pod(const char *name, const char *uid, int gib, const char *phase)
{
    sim_load(&sim,
             "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\","
             "\"namespace\":\"default\",\"uid\":\"%s\",\"annotations\":{"
             "\"ALIYUN_COM_GPU_MEM_IDX\":\"0\"}},\"spec\":{\"nodeName\":\"n1\","
             "\"containers\":[{\"name\":\"c\",\"image\":\"i\",\"resources\":{\"limits\":{"
             "\"aliyun.com/gpu-mem\":\"%d\"}}}]},\"status\":{\"phase\":\"%s\"}}",
             name, uid, gib, phase);
}

/* What the processes use, in GiB; 0: NVML does not list the process. */
static void use(long long greedy, long long modest, long long others)
{
    const struct {
        pid_t pid;
        long long gib;
    } processes[] = {{node.greedy, greedy}, {node.modest, modest}, {outside, others}};
    long long used = greedy + modest + others;
    const char *list = "";
    array_items(process, processes)
        if (process->gib)
            list = lib_fmt("%s%s%d:%lld", list, *list ? "," : "", (int)process->pid,
                           process->gib << 30);
    agent_script(lib_fmt("driver 535.129.03\ncard uuid=GPU-0;name=Tesla T4;bus=3b;"
                         "total=%lld;free=%lld;used=%lld;reserved=0;processes=%s\n",
                         (long long)TOTAL << 30, (TOTAL - used) << 30, used << 30, list));
}

static void set_up(void)
{
    agent_setup(&sim);
    add_pod("greedy", OVERUSE_GREEDY, 4, "Running");
    add_pod("modest", OVERUSE_MODEST, 8, "Pending");
    overuse_node_start(&node, true);
    outside = overuse_node_add_outside();
    use(0, 0, 0);
    agent_start(&agent, &sim, agent_nvml(), ARGV(OVERUSE_NODE_OPTIONS));
    suite_extender(NULL);
}

static void tear_down(void)
{
    kill(outside, SIGKILL);
    waitpid(outside, NULL, 0);
    overuse_node_stop(&node);
}

/* Whether inspect shows these numbers of the card, in GiB. */
static bool is_shown(json_int_t used, json_int_t withheld, json_int_t overuse,
                     bool complete)
{
    const json_t *card =
        lib_at(peer_get(&extender.observers, "/inspect/n1"), "nodes.0.devs.0");
    return lib_int(card, "usedMiB") == used * GIB_MIB &&
           lib_int(card, "withheldMiB") == withheld * GIB_MIB &&
           lib_int(card, "overuseMiB") == overuse * GIB_MIB &&
           json_is_true(lib_at(card, "usageComplete")) == complete;
}

static int64_t drift(const char *kind)
{
    return extender_metric(&extender, lib_fmt("gpushare_drift{kind=\"%s\"}", kind));
}

/* 1 GiB is tolerated. */
TEST(other_processes_and_overuse_are_kept_apart)
{
    cleanup_buf struct buf why = {0};
    set_up();
    lib_wait(is_shown(0, 0, 0, true));
    ck_assert_int_eq(extender_filter(&extender, 4, "n1", NULL), FITS);

    /* Promises that nobody uses hide nothing. */
    use(0, 0, 5);
    lib_wait(is_shown(5, 4, 0, true));
    ck_assert_int_eq(extender_filter(&extender, 4, "n1", &why), NOT_NOW);
    ck_assert_contains(why.p, "; used outside Kubernetes: 4096 MiB on GPU0");
    ck_assert_lacks(why.p, "beyond");
    ck_assert_int_eq(drift("external-use"), 1);
    ck_assert_int_eq(drift("overuse"), 0);

    /* What a pod uses inside its promise is its own before it is Running. */
    use(4, 8, 0);
    lib_wait(is_shown(12, 0, 0, true));
    ck_assert_int_eq(extender_filter(&extender, 4, "n1", NULL), FITS);
    ck_assert_int_eq(drift("external-use"), 0);

    /* The promise of the other pod hides no overuse. */
    use(7, 0, 2);
    lib_wait(is_shown(9, 4, 3, true));
    buf_clear(&why);
    ck_assert_int_eq(extender_filter(&extender, 4, "n1", &why), NOT_NOW);
    ck_assert_contains(why.p, "; used outside Kubernetes: 1024 MiB on GPU0; used by pods "
                              "beyond their promises: 3072 MiB on GPU0");
    ck_assert_int_eq(drift("overuse"), 1);
    ck_assert_int_eq(extender_metric(&extender, "gpushare_memory_overuse_bytes"),
                     3221225472);
    ck_assert_int_eq(extender_metric(&extender, "gpushare_memory_withheld_bytes"),
                     4294967296);
    ck_assert_int_eq(extender_metric(&extender, "gpushare_cards_usage_complete"), 1);
    tear_down();
}

SUITE_MAIN(120, NULL)
