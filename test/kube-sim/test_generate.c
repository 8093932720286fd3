/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include "kube-sim/pure.h"

static const int64_t now_ms = 1763715600000;

static struct api *generate(const char *parameters)
{
    struct api_config config = {.seed = 1};
    struct api *api = api_new(&config);
    struct generate g = generate_defaults;
    struct err err = {0};
    ck_assert_done(generate_parse(span_of(parameters), &g, &err), err);
    ck_assert_done(generate_run(&g, api, now_ms, &err), err);
    return api;
}

static json_t *items(struct api *api, const char *path)
{
    return lib_at(pure_get(api, now_ms, path), "items");
}

static int number(const char *text)
{
    return (int)strtol(text, NULL, 10);
}

static int node_of(const json_t *pod)
{
    return number(lib_str(pod, "spec.nodeName") + strlen("node-"));
}

/* Adds the promises on each card, from the allocation annotations. */
static int64_t used[64][16];

static void add_pods(const json_t *pods, int64_t of_card)
{
    json_t *pod, *v;
    memset(used, 0, sizeof used);
    lib_each(pod, pods) {
        const char *text = lib_annotation(pod, "scheduler.framework.gpushare.allocation"),
                   *card;
        json_t *first = lib_at(lib_parse(text, strlen(text)), "0");
        int node = node_of(pod);
        int64_t sum = 0;
        json_object_foreach(first, card, v)
        {
            int64_t units = json_integer_value(v);
            ck_assert_int_gt(units, 0);
            used[node][number(card)] += units;
            sum += units;
        }
        const char *want = lib_fmt("%lld", (long long)sum);
        ck_assert_str_eq(lib_annotation(pod, "ALIYUN_COM_GPU_MEM_POD"), want);
        ck_assert_int_eq(number(lib_annotation(pod, "ALIYUN_COM_GPU_MEM_DEV")), of_card);
        ck_assert_str_eq(
            lib_in(pod, "spec.containers.0.resources.limits", "aliyun.com/gpu-mem"),
            want);
    }
}

static void check_cluster(const char *parameters, int nodes, int cards, int64_t units,
                          int full_wanted)
{
    struct api *api = generate(parameters);
    int full = 0;
    add_pods(items(api, "/api/v1/pods"), units);
    for (int n = 0; n < nodes; n++) {
        bool all = true;
        for (int c = 0; c < cards; c++) {
            ck_assert_int_le(used[n][c], units);
            all &= used[n][c] == units;
        }
        full += all;
    }
    ck_assert_int_eq(full, full_wanted);
    api_free(api);
}

TEST(no_card_is_overcommitted_and_full_nodes_are_full)
{
    check_cluster("nodes=50,cards=8,pods=8,mib=81920,full=30", 50, 8, 80, 15);
    check_cluster("nodes=50,cards=8,pods=20,mib=81920,full=10", 50, 8, 80, 5);
    check_cluster("nodes=20,cards=8,pods=3,mib=16384,full=50", 20, 8, 16, 10);
    check_cluster("nodes=20,cards=3,pods=2,mib=16384,full=100", 20, 3, 16, 20);
    check_cluster("nodes=20,cards=2,pods=4,mib=16384,full=0", 20, 2, 16, 0);
    check_cluster("nodes=10,cards=1,pods=5,mib=3072,full=100", 10, 1, 3, 10);
}

TEST(uuids_are_the_same_in_scv_and_pod)
{
    struct api *api = generate("nodes=5,cards=4,pods=2,uuid=1,full=100");
    json_t *pod, *scvs = items(api, "/apis/core.run-linux.com/v1/scvs");
    lib_each(pod, items(api, "/api/v1/pods")) {
        int card = number(lib_annotation(pod, "ALIYUN_COM_GPU_MEM_IDX"));
        const char *uuid =
            lib_str(scvs, lib_fmt("%d.status.cardList.%d.uuid", node_of(pod), card));
        ck_assert_str_ne(uuid, "");
        ck_assert(span_starts(span_of(lib_annotation(pod, "gpushare/card-uuid")),
                              span_of(uuid)));
    }
    api_free(api);
}

TEST(scvs_have_the_members_of_yodas_scv)
{
    struct api *api = generate("nodes=1,cards=1,pods=0,mib=12194,leases=1");
    const json_t *status =
        lib_at(items(api, "/apis/core.run-linux.com/v1/scvs"), "0.status");
    const json_t *card = lib_at(status, "cardList.0");
    static const char *const members[] = {"id",         "health",      "model",
                                          "power",      "totalMemory", "clock",
                                          "freeMemory", "core",        "bandwidth"};
    ck_assert_uint_eq(json_object_size(card), ARRAY_LEN(members));
    array_items(member, members)
        ck_assert_msg(json_object_get(card, *member) != NULL, "%s", *member);
    ck_assert_int_eq(lib_int(status, "freeMemorySum"), 12194);
    ck_assert_at(card, "model", "NVIDIA A100-SXM4-80GB");
    const json_t *leases = items(
        api,
        "/apis/coordination.k8s.io/v1/namespaces/nvidia-gpu-scheduler-node-lease/leases");
    ck_assert_uint_eq(json_array_size(leases), 1);
    /* Like a Lease of scv-agent, it is owned by its Node. */
    const json_t *owner = lib_at(leases, "0.metadata.ownerReferences.0");
    ck_assert_at(owner, "kind", "Node");
    ck_assert_at(owner, "uid", lib_str(items(api, "/api/v1/nodes"), "0.metadata.uid"));
    api_free(api);
}

TEST(bad_parameters_are_refused)
{
    static const char *const bad[] = {"nodes",      "nodes=",    "nodes=x", "nodes=-1",
                                      "color=red",  "full=101",  "uuid=2",  "model=x",
                                      "cards=1000", "nodes=1,,", "=1"};
    array_items(c, bad) {
        struct generate g = generate_defaults;
        struct err err = {0};
        ck_assert_msg(generate_parse(span_of(*c), &g, &err) == -1, "%s", *c);
    }
}
