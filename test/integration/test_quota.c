/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/suite.h"

/*
 * ResourceQuotas of HAMi's resources: from the object in the API to what filter, bind and /metrics
 * say. One node of HAMi's dialect has two cards of 16000 MiB.
 */

static void load(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void load(const char *fmt, ...)
{
    va_list ap;
    cleanup_buf struct buf text = {0};
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    for (char *p = text.p; *p; p++)
        *p = *p == '\'' ? '"' : *p;
    sim_load(&sim, "%s", text.p);
}

static void add_node(void)
{
    load("{'apiVersion':'v1','kind':'Node','metadata':{'name':'h'},'status':{'capacity':{"
         "'nvidia.com/gpu':'20'},'allocatable':{'nvidia.com/gpu':'20'}}}");
    load("{'apiVersion':'core.run-linux.com/v1','kind':'Scv','metadata':{'name':'h'},"
         "'spec':{'updateInterval':1000},'status':{'dialect':'hami','cardList':["
         "{'id':0,'health':'Healthy','uuid':'GPU-0','totalMemory':16000,'freeMemory':"
         "16000},"
         "{'id':1,'health':'Healthy','uuid':'GPU-1','totalMemory':16000,'freeMemory':"
         "16000}],"
         "'updateTime':'2026-11-21T09:00:00Z'}}");
}

static void set_quota(const char *mib)
{
    load("{'apiVersion':'v1','kind':'ResourceQuota','metadata':{'name':'q','namespace':"
         "'default'},'spec':{'hard':{'limits.nvidia.com/gpumem':'%s','pods':'9'}}}",
         mib);
}

static void start_extender(void)
{
    suite_extender(ARGV("--requests-of", "hami"));
    lib_wait(lib_size(extender_node(&extender, "h"), "devs") == 2);
}

static void add_pod(const char *name, int cards, int mib)
{
    load("{'apiVersion':'v1','kind':'Pod','metadata':{'name':'%s','namespace':'default',"
         "'uid':'uid-%s'},'spec':{'containers':[{'name':'c','image':'i','resources':{"
         "'limits':{'nvidia.com/gpu':'%d','nvidia.com/gpumem':'%d'}}}]},'status':{"
         "'phase':'Pending'}}",
         name, name, cards, mib);
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
