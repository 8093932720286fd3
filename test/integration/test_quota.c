/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/suite.h"
#include "lib/watch.h"

/*
 * ResourceQuotas of HAMi's resources: from the object in the API to what filter, bind and /metrics
 * say. One node of HAMi's dialect has two cards of 16000 MiB.
 */

static void add_node(void)
{
    sim_load_quoted(
        &sim,
        "{'apiVersion':'v1','kind':'Node','metadata':{'name':'h'},'status':{'capacity':{"
        "'nvidia.com/gpu':'20'},'allocatable':{'nvidia.com/gpu':'20'}}}");
    sim_load_quoted(
        &sim,
        "{'apiVersion':'core.run-linux.com/v1','kind':'Scv','metadata':{'name':'h'},"
        "'spec':{'updateInterval':1000},'status':{'dialect':'hami','cardList':["
        "{'id':0,'health':'Healthy','uuid':'GPU-0','totalMemory':16000,'freeMemory':"
        "16000},"
        "{'id':1,'health':'Healthy','uuid':'GPU-1','totalMemory':16000,'freeMemory':"
        "16000}],"
        "'updateTime':'2026-11-21T09:00:00Z'}}");
}

static void set_quota(const char *mib)
{
    sim_load_quoted(
        &sim,
        "{'apiVersion':'v1','kind':'ResourceQuota','metadata':{'name':'q','namespace':"
        "'default'},'spec':{'hard':{'limits.nvidia.com/gpumem':'%s','pods':'9'}}}",
        mib);
}

static void start_extender(void)
{
    suite_extender(ARGV("--requests-of", "hami"));
    lib_wait(lib_size(extender_node(&extender, "h"), "devs") == 2);
}

static void add_pod_of(const char *name, const char *limits)
{
    sim_load_quoted(
        &sim,
        "{'apiVersion':'v1','kind':'Pod','metadata':{'name':'%s','namespace':'default',"
        "'uid':'uid-%s'},'spec':{'containers':[{'name':'c','image':'i','resources':{"
        "'limits':{%s}}}]},'status':{'phase':'Pending'}}",
        name, name, limits);
}

static void add_pod(const char *name, int cards, int mib)
{
    add_pod_of(name,
               lib_fmt("'nvidia.com/gpu':'%d','nvidia.com/gpumem':'%d'", cards, mib));
}

/* NULL: bound. Else why not. */
static const char *bind(const char *pod)
{
    cleanup_buf struct buf why = {0};
    bool bound = false;
    /* The pod may be unknown yet. */
    lib_wait((buf_clear(&why), bound = extender_bind(&extender, pod, "h", &why)) ||
             !strstr(why.p, "requests no GPU"));
    return bound ? NULL : lib_fmt("%s", why.p);
}

#define USED                                                                             \
    "gpushare_resourcequota{namespace=\"default\",resourcequota=\"q\",resource="         \
    "\"limits."                                                                          \
    "nvidia.com/gpumem\",type=\"used\"}"

static const char exceeded[] =
    "exceeded quota: q, requested: limits.nvidia.com/gpumem=3000, used: "
    "limits.nvidia.com/gpumem=8000, limited: limits.nvidia.com/gpumem=10000";

/* The use is that of the pods, whatever process counts it; the quota can be raised. */
TEST(a_quota_holds_across_a_restart)
{
    add_node();
    set_quota("10k");
    start_extender();
    add_pod("a", 2, 4000);
    add_pod("b", 1, 3000);
    ck_assert_ptr_null(bind("a"));
    for (int restarts = 0; restarts < 2; restarts++) {
        ck_assert_contains(bind("b") ?: "", exceeded);
        lib_wait(peer_metric(&extender.observers, USED) == 8000);
        if (!restarts)
            suite_restart(ARGV("--requests-of", "hami"));
    }
    set_quota("11000");
    lib_wait(!bind("b"));
    lib_wait(peer_metric(&extender.observers, USED) == 11000);
    sim_delete_pod(&sim, "a");
    lib_wait(peer_metric(&extender.observers, USED) == 3000);
}

static const char *inspect(const char *const *options)
{
    const char *words[PROGRAM_ARGS] = {"--kubeconfig", sim_kubeconfig(&sim)};
    program_args(words, 2, options);
    return lib_output_of(0, "kubectl-inspect-gpushare", words);
}

/* Beside the cards that are free; a percentage is limited by the node's cards alone. */
TEST(explain_and_inspect_say_what_is_used)
{
    static const char limited[] = "! namespace default: ";
    add_node();
    set_quota("10k");
    start_extender();
    add_pod("a", 2, 4000);
    add_pod("b", 1, 3000);
    add_pod("c", 1, 2000);
    add_pod_of("d", "'nvidia.com/gpu':'1','nvidia.com/gpumem-percentage':'20'");
    ck_assert_ptr_null(bind("a"));
    const char *said = inspect(ARGV("explain", "b"));
    ck_assert_contains(said, "fits: GPU0; exceeded quota: q, requested: ");
    ck_assert_contains(said, lib_fmt("%s%s\n", limited, exceeded));
    said = inspect(ARGV("explain", "d"));
    ck_assert_contains(said, lib_fmt("%sexceeded quota: q, requested: limits.nvidia.com/"
                                     "gpumem=3200, used: ",
                                     limited));
    ck_assert_contains(said, "The request for GPUs fits on 1 node, but not what");
    add_pod("e", 2, 13000);
    said = inspect(ARGV("explain", "e"));
    ck_assert_contains(said, "used: limits.nvidia.com/gpumem=8000, limited: ");
    ck_assert_contains(said, "Each of these changes alone would let the pod fit:\n");
    ck_assert_contains(inspect(ARGV("explain", "c")), "The request fits on 1 node.");
    const json_t *pods = lib_at(
        peer_get(&extender.observers, "/gpushare-scheduler/inspect"), "pendingPods");
    ck_assert_at(pods, "0.name", "b");
    ck_assert_at(pods, "0.quota", exceeded);
    ck_assert_ptr_null(lib_at(pods, "1.quota"));
    struct watch w = {0}; /* nothing but the limit changes */
    sim_delete_pod(&sim, "c");
    sim_delete_pod(&sim, "d");
    lib_wait(lib_size(peer_get(&extender.observers, "/gpushare-scheduler/inspect"),
                      "pendingPods") == 2);
    watch_open(&w, extender.observers.port, "/inspect?watch=true");
    watch_until(&w, exceeded);
    set_quota("10500");
    watch_until(&w, "limited: limits.nvidia.com/gpumem=10500");
    watch_close(&w);
    set_quota("11000");
    ck_assert_contains(inspect(ARGV("explain", "b")), "The request fits on 1 node.");
    /* Who may not read quotas. */
    sim_fault(&sim,
              "{\"resource\":\"resourcequotas\",\"action\":\"answer\",\"status\":403}");
    add_pod("f", 1, 3001);
    add_pod_of("g", "'aliyun.com/gpu-mem':'1'");
    said = inspect(ARGV("explain", "f"));
    ck_assert_contains(said, "! namespace default: quotas cannot be read: ");
    ck_assert_contains(said, "403");
    ck_assert_contains(said, "The request fits on 1 node.");
    ck_assert_lacks(inspect(ARGV("explain", "g")), "quotas cannot be read");
}

/* A cluster where the extender may not read quotas: /readyz stays 200, so other pods are placed. */
TEST(unreadable_quotas_stop_only_hamis_pods)
{
    static const char why[] =
        "not ready: the first list of resourcequotas has not finished";
    sim_fault(&sim,
              "{\"resource\":\"resourcequotas\",\"action\":\"answer\",\"status\":403}");
    add_node();
    sim_add_node(&sim, "h2", 1, 16);
    start_extender();
    lib_wait(peer_says(&extender.observers, "/readyz", 200, "403"));
    ck_assert(peer_says(&extender.observers, "/readyz", 200, why));
    add_pod("a", 1, 1000);
    ck_assert_contains(bind("a") ?: "", why);
    ck_assert_int_eq(extender_filter(&extender, 1, "h2", NULL), FITS);
    sim_no_faults(&sim);
    lib_wait(!bind("a"));
}

SUITE_MAIN(30, NULL)
