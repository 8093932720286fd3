/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/response.h"

#include "domain/objects.h"

static struct arena arena;
static struct cards cards;

/* Cards GPU-0 of 8 GiB and GPU-1 of 16 GiB. */
static void set_up(void)
{
    struct err err;
    const struct cards_settings settings = {.unit_mib = 1024};
    struct card_seen seen[] = {{.uuid = "GPU-0", .index = 0, .mib = 8192},
                               {.uuid = "GPU-1", .index = 1, .mib = 16384}};
    cards_init(&cards, &settings);
    ck_assert(cards_sampled(&cards, 1, seen, ARRAY_LEN(seen), &err));
}

/* The pod "p" of UID "u-1" on cards with these annotations and containers. */
static struct pod_allocation *pod_of(const char *annotations, const char *containers)
{
    struct pod pod = object_pod(
        &arena,
        quoted(&arena,
               "{'metadata':{'name':'p','namespace':'ns','uid':'u-1','annotations':{%s}},"
               "'spec':{'nodeName':'n1',%s},'status':{'phase':'Pending'}}",
               annotations, containers));
    return pod_allocation_new(&pod, 1024);
}

#define OF(units) "'resources':{'limits':{'" KEY_GPU_MEM "':'" #units "'}}"

/* The answer for container "a", which holds four units of each of these cards. */
static const struct response *respond(struct response_settings settings,
                                      struct pod_allocation *pod, const char *first,
                                      const char *second, struct err *err)
{
    struct allocation *al = allocation_new(SPAN("u-1"), SPAN("ns"), SPAN("p"), SPAN("a"),
                                           CONTAINER_APP, IDS_MEM);
    settings.mps_dir = "/run/mps";
    settings.limit_dir = "/l";
    settings.unit_mib = 1024;
    set_up();
    for (int i = 0; i < 4; i++) {
        allocation_add(al, span_of(first), 0, i);
        if (second)
            allocation_add(al, span_of(second), 1, i);
    }
    const struct response *r =
        response_of(&settings, &cards, pod, pod->containers, al, &arena, err);
    allocation_free(al);
    return r;
}

static const char *env(const struct response *r, const char *key)
{
    for (size_t i = 0; i < r->dp.n_envs; i++)
        if (strcmp(r->dp.envs[i].key.p, key) == 0)
            return r->dp.envs[i].value.p;
    return "";
}

static const char *mount_at(const struct response *r, const char *at)
{
    for (size_t i = 0; i < r->dp.n_mounts; i++)
        if (strcmp(r->dp.mounts[i].container_path.p, at) == 0)
            return r->dp.mounts[i].host_path.p;
    return "";
}

/* A response without one of the cards would start the container on fewer cards than promised. */
START_TEST(each_card_has_its_own_share)
{
    struct pod_allocation *pod = pod_of("'" KEY_GPU_COUNT "':'2','" KEY_MEM_IDX "':'0,1'",
                                        "'containers':[{'name':'a'," OF(8) "}]");
    struct response_settings settings = {.isolation = ISOLATION_MPS};
    struct err err;
    const struct response *r = respond(settings, pod, "GPU-1", "GPU-0", &err);
    ck_assert_ptr_nonnull(r);
    ck_assert_str_eq(env(r, KEY_VISIBLE_DEVICES), "GPU-1,GPU-0");
    ck_assert_str_eq(env(r, "ALIYUN_COM_GPU_MEM_CONTAINER"), "8");
    ck_assert_str_eq(env(r, KEY_MEM_DEV), "16,8");
    ck_assert_str_eq(env(r, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), "0=4096M,1=4096M");
    ck_assert_str_eq(env(r, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "25");
    for (int i = 0; i < 2; i++) {
        ck_assert_ptr_null(
            respond(settings, pod, i ? "GPU-1" : "GPU-9", i ? "GPU-9" : "GPU-1", &err));
        ck_assert_str_eq(err.msg, "the allocated card GPU-9 is not on this node");
        ck_assert_int_eq(err.code, ERR_NOT_FOUND);
    }
    pod_allocation_free(pod);
}
END_TEST

/* What a pod asks for, what its node gives by default, and what it gets: more isolation and not
 * less. An image can have its own preload file, or its own variable. */
START_TEST(a_pod_says_how_it_is_isolated)
{
    enum { NO, MPS = 1, FILE_ = 2, VARIABLE = 4, BOTH = FILE_ | VARIABLE };
    static const char own[] = "'env':[{'name':'LD_PRELOAD','value':'x'}],";
    static const struct {
        const char *asks;
        enum isolation node;
        bool less;
        const char *env;
        int gets;
        const char *why;
    } cases[] = {
        {"", ISOLATION_NONE, false, "", NO, NULL},
        {"none", ISOLATION_NONE, false, "", NO, NULL},
        {"limit", ISOLATION_NONE, false, "", BOTH, NULL},
        {"mps", ISOLATION_NONE, false, "", NO, "this node has no MPS daemon"},
        {"x", ISOLATION_NONE, false, "", NO, "expected limit, limit-env"},
        {"", ISOLATION_MPS, false, "", MPS, NULL},
        {"mps", ISOLATION_MPS, false, "", MPS, NULL},
        {"limit", ISOLATION_MPS, false, "", MPS | BOTH, NULL},
        {"none", ISOLATION_MPS, false, "", MPS, "this node allows no less than its own"},
        {"none", ISOLATION_MPS, true, "", NO, NULL},
        {"", ISOLATION_LIMIT, false, "", BOTH, NULL},
        {"none", ISOLATION_LIMIT, false, "", BOTH, "this node allows no less"},
        {"none", ISOLATION_LIMIT, true, "", NO, NULL},
        {"mps", ISOLATION_LIMIT, true, "", BOTH, "this node has no MPS daemon"},
        {"limit-env", ISOLATION_NONE, false, "", VARIABLE, NULL},
        {"limit-file", ISOLATION_MPS, false, "", MPS | FILE_, NULL},
        {"limit-env", ISOLATION_LIMIT, false, "", BOTH, "this node allows no less"},
        {"limit-file", ISOLATION_LIMIT, false, "", BOTH, "this node allows no less"},
        {"limit-env", ISOLATION_LIMIT, true, "", VARIABLE, NULL},
        {"limit", ISOLATION_NONE, false, own, BOTH, NULL},
        {"limit-file", ISOLATION_NONE, false, own, FILE_, NULL},
        {"limit-env", ISOLATION_NONE, false, own, VARIABLE,
         "container a sets LD_PRELOAD itself"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_free char *asks =
            xasprintf("'gpushare/isolation':'%s','" KEY_MEM_IDX "':'1'", cases[i].asks);
        cleanup_free char *containers =
            xasprintf("'containers':[{'name':'a',%s" OF(4) "}]", cases[i].env);
        struct pod_allocation *pod = pod_of(asks, containers);
        struct err err;
        const struct response *r =
            respond((struct response_settings){.isolation = cases[i].node,
                                               .less_isolation = cases[i].less},
                    pod, "GPU-1", NULL, &err);
        ck_assert_ptr_nonnull(r);
        int gets = (env(r, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")[0] ? MPS : NO) |
                   (mount_at(r, "/etc/ld.so.preload")[0] ? FILE_ : NO) |
                   (env(r, "LD_PRELOAD")[0] ? VARIABLE : NO);
        ck_assert_msg(gets == cases[i].gets, "case %zu: %d", i, gets);
        ck_assert_msg(!r->not_isolated == !cases[i].why &&
                          (!cases[i].why || strstr(r->not_isolated, cases[i].why)),
                      "case %zu: %s", i, r->not_isolated ? r->not_isolated : "");
        ck_assert_uint_eq(r->n_limit_mounts, !r->limit ? 0 : gets & FILE_ ? 4 : 3);
        ck_assert_uint_eq(r->n_limit_envs, (gets & VARIABLE) != 0);
        ck_assert_str_eq(mount_at(r, "/usr/local/gpushare/limit"),
                         r->limit ? "/l/pods/u-1/limit" : "");
        pod_allocation_free(pod);
    }
}
END_TEST

/* The containers share the limit: app containers and sidecars add up, and an init
 * container runs before them. */
START_TEST(the_limit_is_that_of_the_pod)
{
    static const struct {
        const char *containers;
        int64_t mib;
    } cases[] = {
        {"'containers':[{'name':'a'," OF(4) "},{'name':'b'," OF(2) "}]", 6144},
        {"'initContainers':[{'name':'i'," OF(9) "}],'containers':[{'name':'a'," OF(
             4) "}]",
         9216},
        {"'initContainers':[{'name':'s','restartPolicy':'Always'," OF(
             3) "}],'containers':[{'name':'a'," OF(4) "}]",
         7168},
        /* beside the sidecar that started before it, as the ledger counts */
        {"'initContainers':[{'name':'s','restartPolicy':'Always'," OF(
             3) "},{'name':'i'," OF(6) "},{'name':'t','restartPolicy':'Always'"
                                       "," OF(1) "}],'containers':[{'name':'a'"
                                                 "," OF(4) "}]",
         9216},
    };
    const struct response_settings settings = {
        .isolation = ISOLATION_LIMIT, .limit_dir = "/l", .unit_mib = 1024};
    set_up();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct pod_allocation *pod = pod_of("'" KEY_MEM_IDX "':'1'", cases[i].containers);
        const struct response *r = response_changed_limit(&settings, &cards, pod, &arena);
        ck_assert_ptr_nonnull(r->limit);
        ck_assert_str_eq(r->limit->uid, "u-1");
        ck_assert_uint_eq(r->limit->n, 1);
        ck_assert_str_eq(r->limit->cards[0].uuid, "GPU-1");
        ck_assert_int_eq(r->limit->cards[0].mib, cases[i].mib);
        pod_allocation_free(pod);
    }
}
END_TEST

UNIT_MAIN("response", a_pod_says_how_it_is_isolated, the_limit_is_that_of_the_pod,
          each_card_has_its_own_share)
