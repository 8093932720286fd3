/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/suite.h"

/*
 * Pods that HAMi has bound, as HAMi's code describes them (test/data/hami.jsonl), beside ours: what is
 * promised on each card, before and after a restart, in two replicas, and once the takeover is done.
 */

enum { TOTAL = 24576, CARDS = 2 };

static void start(void)
{
    suite_extender(ARGV("--requests-of", "hami"));
    lib_wait(lib_size(extender_node(&extender, "node-a"), "devs") == CARDS);
}

static void set_up(void)
{
    sim_load_quoted(
        &sim,
        "{'apiVersion':'v1','kind':'Node','metadata':{'name':'node-a'},'status':{'"
        "capacity':{"
        "'nvidia.com/gpu':'20','aliyun.com/gpu-mem':'48','aliyun.com/gpu-count':'2'},"
        "'allocatable':{'nvidia.com/gpu':'20','aliyun.com/gpu-mem':'48',"
        "'aliyun.com/gpu-count':'2'}}}");
    sim_load_quoted(
        &sim,
        "{'apiVersion':'core.run-linux.com/v1','kind':'Scv','metadata':{'name':'node-a'},"
        "'spec':{'updateInterval':1000},'status':{'cardList':["
        "{'id':0,'health':'Healthy','model':'Tesla T4','uuid':'GPU-00','totalMemory':%d,"
        "'freeMemory':%d},{'id':1,'health':'Healthy','model':'Tesla T4','uuid':'GPU-01',"
        "'totalMemory':%d,'freeMemory':%d}],'updateTime':'2026-11-21T09:00:00Z'}}",
        TOTAL, TOTAL, TOTAL, TOTAL);
    start();
}

/* What is promised on the two cards: "MiB MiB". */
static const char *promised_by(const struct extender *e)
{
    const json_t *devs = lib_at(extender_node(e, "node-a"), "devs");
    return lib_fmt("%lld %lld",
                   (long long)json_integer_value(lib_at(devs, "0.promisedMiB")),
                   (long long)json_integer_value(lib_at(devs, "1.promisedMiB")));
}

static bool promises(const char *mib)
{
    return strcmp(promised_by(&extender), mib) == 0;
}

static void ck_promised(const char *mib, const char *of)
{
    lib_wait(promises(mib));
    ck_assert_msg(promises(mib), "%s: %s, not %s", of, promised_by(&extender), mib);
}

/* A pod that HAMi has bound to node-a. */
static void add(const char *name, const char *allocated, const char *limits)
{
    sim_load_quoted(
        &sim,
        "{'apiVersion':'v1','kind':'Pod','metadata':{'name':'%s','namespace':'default',"
        "'annotations':{'hami.io/vgpu-node':'node-a','hami.io/"
        "vgpu-devices-allocated':'%s'}},"
        "'spec':{'nodeName':'node-a','containers':[{'name':'c','image':'i','resources':{"
        "'limits':{%s}}}]},'status':{'phase':'Running'}}",
        name, allocated, limits);
}

#define MEM(m) "'nvidia.com/gpu':'1','nvidia.com/gpumem':'" m "'"

/* Of each line of the file, HAMi's answer is what is promised: "GPU-00 8000 MiB 30 %; GPU-01 ...". Where
 * it counts nothing, although a container may use the card, all cards are promised. */
TEST(each_shape_of_hami_counts_on_its_cards)
{
    static const char all[] = "24576 24576";
    static const struct {
        const char *name, *mib;
    } others[] = {
        /* A UUID of no card, in part or in all. */
        {"running-9", "8000 8000"},
        {"running-10", "16000 16000"},
        {"running-16", "8000 8000"},
        /* Nothing that can be read: all of each card. */
        {"running-7", all},
        {"running-8", all},
        {"running-11", all},
        {"running-13", all},
        {"running-14", all},
        {"running-17", all},
        {"running-18", "8000 8000"},
        {"running-19", "8000 8000"},
        /* The limits ask for more. */
        {"running-25", "8000 0"},
    };
    set_up();
    int n = 0;
    for (const char *at = lib_file("test/data/hami.jsonl"); *at;
         at += strcspn(at, "\n") + 1) {
        json_t *line = lib_own(json_loadb(at, strcspn(at, "\n"), 0, NULL)), *pod;
        const char *name = lib_str(line, "name"), *want = NULL;
        if (strncmp(name, "running-", 8) != 0)
            continue;
        pod = json_object_get(line, "pod");
        json_object_set_new(pod, "apiVersion", json_string("v1"));
        json_object_set_new(pod, "kind", json_string("Pod"));
        json_object_set_new(json_object_get(pod, "metadata"), "namespace",
                            json_string("default"));
        json_object_set_new(json_object_get(pod, "metadata"), "name", json_string("p"));
        long long mib[CARDS] = {0};
        for (int card = 0; card < CARDS; card++) {
            const char *of = strstr(lib_str(line, "used"), card ? "GPU-01 " : "GPU-00 ");
            mib[card] = of ? strtoll(of + 7, NULL, 10) : 0;
        }
        want = lib_fmt("%lld %lld", mib[0], mib[1]);
        array_items(o, others)
            if (strcmp(o->name, name) == 0)
                want = o->mib;
        json_t *container;
        static const char *const lists[] = {"spec.containers", "spec.initContainers"};
        array_items(list, lists)
            lib_each(container, lib_at(pod, *list))
                json_object_set_new(container, "image", json_string("i"));
        char *text = json_dumps(pod, 0);
        sim_load(&sim, "%s", text);
        free(text);
        /* What comes later is seen later, also of a pod that counts nothing. */
        add("last", "GPU-00,NVIDIA,1,0:;", MEM("1"));
        long long a = 0, b = 0;
        sscanf(want, "%lld %lld", &a, &b);
        ck_promised(lib_fmt("%lld %lld", a + 1, b), name);
        sim_delete_pod(&sim, "p");
        sim_delete_pod(&sim, "last");
        ck_promised("0 0", name);
        n++;
    }
    ck_assert_int_gt(n, 30);
}

/* Ours get what is left. */
TEST(no_card_is_promised_twice)
{
    set_up();
    add("a", "GPU-00,NVIDIA,20000,0:;", MEM("20000"));
    add("b", "GPU-01,NVIDIA,24576,100:;", "'nvidia.com/gpu':'1'");
    ck_promised("20000 24576", "both");
    ck_assert_int_ne(extender_filter(&extender, 5, "node-a", NULL), FITS);
    ck_assert_int_eq(extender_filter(&extender, 4, "node-a", NULL), FITS);
    sim_add_pod(&sim, "ours", 4);
    lib_wait(extender_metric(&extender, "gpushare_pending_pods") == 1);
    ck_assert(extender_bind(&extender, "ours", "node-a", NULL));
    ck_promised("24096 24576", "all three");
    suite_restart(ARGV("--requests-of", "hami"));
    ck_promised("24096 24576", "all three after a restart");
    ck_assert_int_eq(extender_metric(&extender, "gpushare_cards_overcommitted"), 0);
    sim_delete_pod(&sim, "a");
    ck_promised("4096 24576", "two");
}

TEST(without_the_option_nothing_is_taken_over)
{
    set_up();
    add("a", "GPU-00,NVIDIA,20000,0:;", MEM("20000"));
    ck_promised("20000 0", "a");
    suite_restart(NULL);
    sim_add_bound_pod(&sim, "b", 1, "node-a", "{\"ALIYUN_COM_GPU_MEM_IDX\":\"1\"}");
    ck_promised("0 1024", "without --requests-of");
}

/* kube-sim's times are in seconds: the next one is another one. */
static void wait_for_the_next_second(void)
{
    time_t now = time(NULL);
    lib_wait(time(NULL) > now);
}

TEST(once_it_is_done_only_earlier_pods_count_by_their_annotations)
{
    set_up();
    add("before", "GPU-01,NVIDIA,3000,0:;", MEM("3000"));
    ck_promised("0 3000", "before");
    wait_for_the_next_second();
    sim_load_quoted(
        &sim,
        "{'apiVersion':'v1','kind':'ConfigMap','metadata':{'name':'gpushare-takeover-"
        "hami',"
        "'namespace':'kube-system'}}");
    ck_assert(
        program_wait_output(&extender.program, "count on pods that were bound until"));
    wait_for_the_next_second();
    /* A tenant without HAMi's limits, then with them, past every scheduler. */
    add("forger", "GPU-00,NVIDIA,24576,100:;", "'cpu':'1'");
    add("after", "GPU-00,NVIDIA,24576,100:;", MEM("1000"));
    ck_promised("1000 4000", "after");
    /* A restart, and another replica, know the same. */
    struct extender other;
    extender_start(&other, &sim, ARGV("--requests-of", "hami"));
    extender_wait_ready(&other);
    ck_assert_str_eq(promised_by(&other), "1000 4000");
    extender_stop(&other);
    suite_restart(ARGV("--requests-of", "hami"));
    ck_promised("1000 4000", "after a restart");
    /* Without it, HAMi's annotations count again. */
    peer_do(&sim.api, "DELETE",
            "/api/v1/namespaces/kube-system/configmaps/gpushare-takeover-hami", "{}");
    ck_assert(program_wait_output(&extender.program, "count on all pods"));
    suite_restart(ARGV("--requests-of", "hami"));
    ck_promised("24576 3000", "without the ConfigMap");
}

SUITE_MAIN(120, NULL)
