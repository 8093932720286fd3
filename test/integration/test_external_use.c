/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/mem.h"
#include "lib/overuse_node.h"

/*
 * Whose memory of a card is used: from the process lists of the fake NVML, through the real
 * scv-agent and its Scv, to what the real extender promises. The node, its kubelet and its
 * /proc are those of lib/overuse_node.h. The pod `greedy` was promised 4 GiB and runs; the
 * pod `modest` was promised 8 GiB and is Pending, as while an init container runs.
 */

enum { TOTAL = 16, GIB_MIB = 1024 };

static struct sim sim;
static struct agent agent;
static struct extender extender;
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
    cleanup_buf struct buf script = {0};
    long long used = greedy + modest + others;
    const char *before = ";processes=";
    buf_printf(&script,
               "driver 535.129.03\ncard uuid=GPU-0;name=Tesla T4;bus=3b;total=%lld;"
               "free=%lld;used=%lld;reserved=0",
               (long long)TOTAL << 30, (TOTAL - used) << 30, used << 30);
    for (size_t i = 0; i < ARRAY_LEN(processes); i++) {
        if (!processes[i].gib)
            continue;
        buf_printf(&script, "%s%d:%lld", before, (int)processes[i].pid,
                   processes[i].gib << 30);
        before = ",";
    }
    buf_adds(&script, *before == ';' ? ";processes=\n" : "\n");
    agent_script(script.p);
}

static void set_up(void)
{
    sim_start(&sim, ARGV(NULL));
    agent_setup(&sim);
    add_pod("greedy", OVERUSE_GREEDY, 4, "Running");
    add_pod("modest", OVERUSE_MODEST, 8, "Pending");
    overuse_node_start(&node, true);
    outside = overuse_node_add_outside();
    use(0, 0, 0);
    cleanup_free char *source = agent_nvml();
    agent_start(&agent, &sim, source, ARGV(OVERUSE_NODE_OPTIONS(&node)));
    extender_start(&extender, &sim, ARGV(NULL));
}

static void tear_down(void)
{
    extender_stop(&extender);
    agent_stop(&agent);
    kill(outside, SIGKILL);
    waitpid(outside, NULL, 0);
    overuse_node_stop(&node);
    sim_stop(&sim);
}

/* Whether inspect shows these numbers of the card, in GiB. */
static bool is_shown(json_int_t used, json_int_t withheld, json_int_t overuse,
                     bool complete)
{
    cleanup_json json_t *j = extender_inspect(&extender, "n1");
    const json_t *card = json_array_get(lib_at(j, "devs"), 0);
    return json_integer_value(json_object_get(card, "usedMiB")) == used * GIB_MIB &&
           json_integer_value(json_object_get(card, "withheldMiB")) ==
               withheld * GIB_MIB &&
           json_integer_value(json_object_get(card, "overuseMiB")) == overuse * GIB_MIB &&
           json_is_true(json_object_get(card, "usageComplete")) == complete;
}

static int64_t drift(const char *kind)
{
    cleanup_free char *sample = xasprintf("gpushare_drift{kind=\"%s\"}", kind);
    return extender_metric(&extender, sample);
}

/* 1 GiB is tolerated. */
START_TEST(other_processes_and_overuse_are_kept_apart)
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
    ck_assert_ptr_null(strstr(why.p, "beyond"));
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
END_TEST

/* The estimate: the promise of greedy, which runs, is subtracted, that of modest is not. */
START_TEST(without_a_complete_measurement_the_estimate_stays)
{
    set_up();
    lib_wait(is_shown(0, 0, 0, true));
    overuse_node_map(false); /* which process runs where is not known */
    use(7, 1, 2);
    lib_wait(is_shown(10, 5, 0, false));
    overuse_node_map(true);
    use(7, 1, 3);
    lib_wait(is_shown(11, 5, 3, true));
    tear_down();
}
END_TEST

LIB_MAIN("external_use", 120, other_processes_and_overuse_are_kept_apart,
         without_a_complete_measurement_the_estimate_stays)
