/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/check.h"

#include "cli/rig.h"
#include "support/program.h"

#define CARDS                                                                            \
    CARD_OF("0", "Healthy", "T4", "15360", "0")                                          \
    "," CARD_OF("1", "Healthy", "T4", "15360", "0")

/* What /metrics would say of all nodes, each kind a digit. */
static void ck_drift(const struct world *w, const char *want)
{
    const struct ledger *l = world_ledger(w);
    int64_t counts[DRIFTS] = {0};
    char got[DRIFTS + 1] = {0};
    for (uint32_t i = 0; i < ledger_node_slots(l); i++)
        if (ledger_node_at(l, i))
            ledger_node_drift(l, ledger_node_at(l, i), counts);
    for (int i = 0; i < DRIFTS; i++)
        got[i] = (char)('0' + counts[i]);
    ck_assert_str_eq(got, want);
}

static void expect(const struct lists *items, const char *drift, const char *want)
{
    cleanup_buf struct buf out = {0};
    struct world *w = rig_world(items);
    size_t n = check_world(&out, w, (struct span){0}), lines = 0;
    ck_drift(w, drift);
    for (const char *p = want; (p = strchr(p, '\n')); p++)
        lines++;
    ck_assert_str_eq(out.n ? out.p : "", want);
    ck_assert_uint_eq(n, lines);
    world_free(w);
}

START_TEST(agreement_has_no_line)
{
    expect(&(struct lists){.nodes = NODE("n1", "30", "2") "," NODE("cpu", "0", "0"),
                           .scvs = SCV_OF("n1", CARDS),
                           .pods = POD_OF("a", "n1", "15",
                                          IDX("0")) "," POD_OF("w", "", "20", "")},
           "00000000", "");
}
END_TEST

#define SAME_UUID(id)                                                                    \
    "{\"id\":" id ",\"health\":\"Healthy\",\"totalMemory\":7680,\"freeMemory\":7680,"    \
    "\"uuid\":\"GPU-x\"}"

START_TEST(each_difference_has_one)
{
    expect(&(struct lists){.nodes = NODE("n1", "30", "2"),
                           .scvs = SCV_OF("n1", CARDS),
                           .pods = POD_OF("a", "n1", "10",
                                          IDX("0")) "," POD_OF("b", "n1", "6", IDX("0"))},
           "10000000", "node n1: GPU0 has 15360 MiB, and 16384 are promised\n");
    expect(&(struct lists){.nodes = NODE("n1", "30", "2"),
                           .scvs = SCV_OF("n1", CARDS),
                           .pods = POD_OF("a", "n1", "1", "") "," POD_OF(
                               "b", "n1", "1", IDX("7")) "," POD_OF("c", "n1", "1",
                                                                    IDX("x"))},
           "00120000",
           "node n1: pod ns/a is bound here without a card\n"
           "node n1: pod ns/b has a promise of 1024 MiB on GPU7 , which is not there\n"
           "node n1: pod ns/c is bound here without a card\n"
           "pod ns/c: its annotations name no card: ALIYUN_COM_GPU_MEM_IDX \"x\"\n");
    expect(&(struct lists){.nodes = NODE("n1", "28", "1"), .scvs = SCV_OF("n1", CARDS)},
           "00000200",
           "node n1: its capacity is 28 of aliyun.com/gpu-mem, and its cards make 30 (is "
           "--memory-unit the same here, in the extender and in the device plugin?)\n"
           "node n1: its capacity is 1 of aliyun.com/gpu-count, and its Scv lists 2 "
           "cards\n");
    expect(&(struct lists){.nodes = NODE("n1", "15", "1"),
                           .scvs = SCV_OF(
                               "n1", CARD_OF("0", "Healthy", "T4", "15360", "3072"))},
           "01000000",
           "node n1: GPU0: 2048 MiB are in use from outside Kubernetes, beyond the "
           "tolerance\n");
    expect(&(struct lists){.nodes = NODE("n1", "30", "2"),
                           .scvs = SCV_OF("n1", CARDS),
                           .configmaps =
                               "{\"metadata\":{\"name\":\"unhealthy-gpu-n1\","
                               "\"namespace\":\"kube-system\"},\"data\":{\"gpus\":"
                               "\"7\"}}"},
           "00000010",
           "node n1: ConfigMap unhealthy-gpu-n1 takes out GPU7, which is not there\n");
    expect(&(struct lists){.nodes = NODE("n1", "14", "2"),
                           .scvs =
                               "{\"metadata\":{\"name\":\"n1\"},\"status\":{"
                               "\"cardList\":[" SAME_UUID("0") "," SAME_UUID("1") "]}}"},
           "00000002",
           "node n1: GPU0 has UUID GPU-x, which its Scv gives to another card, too\n"
           "node n1: GPU1 has UUID GPU-x, which its Scv gives to another card, too\n");
}
END_TEST

/* What the kubelet gave out beside what was promised. */
START_TEST(the_kubelets_cards)
{
#define HELD(pod, uuid)                                                                  \
    "{\"namespace\":\"ns\",\"name\":\"" pod "\",\"container\":\"c\",\"resource\":"       \
    "\"aliyun.com/gpu-mem\",\"units\":2,\"cards\":[\"" uuid "\"]}"
#define SCV_HELD                                                                         \
    "{\"metadata\":{\"name\":\"n1\"},\"status\":{\"podList\":[" HELD(                    \
        "a", "GPU-1") "," HELD("b", "GPU-1") "," HELD("gone",                            \
                                                      "GPU-1") "],\"cardList\":[" CARDS  \
                                                               "]}}"
    struct world *w = rig_world(&(struct lists){
        .nodes = NODE("n1", "30", "2"),
        .scvs = SCV_HELD,
        .pods = POD_OF("a", "n1", "2", IDX("0")) "," POD_OF("b", "n1", "2", IDX("1"))});
    cleanup_buf struct buf out = {0};
    ck_assert_uint_eq(check_world(&out, w, (struct span){0}), 1);
    ck_drift(w, "00001000");
    ck_assert_says(out.p, "node n1: container c of pod ns/a has card GPU-1, which its "
                          "annotations do not name\n");
    ck_assert_says(out.p, "note: node n1: container c of pod ns/gone holds 2 of "
                          "aliyun.com/gpu-mem, and no such pod is bound here");
    world_free(w);
}
END_TEST

static size_t against(const struct world *w, const char *view, struct buf *out)
{
    json_t *j = json_loads(view, 0, NULL);
    ck_assert_ptr_nonnull(j);
    buf_clear(out);
    size_t n = check_extender(out, w, j, (struct span){0}, "the extender");
    json_decref(j);
    return n;
}

START_TEST(the_extenders_view)
{
    cleanup_buf struct buf out = {0};
    struct world *w = rig_world(&(struct lists){
        .nodes = NODE("n1", "30", "2"), .pods = POD_OF("a", "n1", "2", IDX("0"))});
    ck_assert_uint_eq(
        against(w,
                "{\"nodes\":[{\"name\":\"n1\",\"devs\":[{\"id\":0,\"totalGPU\":15,"
                "\"usedGPU\":2,\"pods\":[{\"name\":\"a\",\"namespace\":\"ns\"}]},{\"id\":"
                "1,\"totalGPU\":15,\"usedGPU\":0,\"pods\":[]}]}]}",
                &out),
        0);
    ck_assert_uint_eq(
        against(w,
                "{\"nodes\":[{\"name\":\"n1\",\"devs\":[{\"id\":0,\"totalMiB\":15360,"
                "\"promisedMiB\":0,\"health\":\"Unhealthy\",\"pods\":[]},{\"id\":1,"
                "\"totalMiB\":1,\"promisedMiB\":0,\"pods\":[{\"name\":\"\\u001b\","
                "\"namespace\":\"ns\"}]}]},{\"name\":\"n9\",\"devs\":[{}]}]}",
                &out),
        6);
    ck_assert_str_eq(out.p,
                     "node n1: GPU0: 2048 MiB are promised, and 0 for the extender\n"
                     "node n1: GPU0 is Healthy, and Unhealthy for the extender\n"
                     "node n1: GPU0: pod ns/a is not there for the extender\n"
                     "node n1: GPU1 has 15360 MiB, and 1 for the extender\n"
                     "node n1: GPU1: the extender counts pod ns/?, which is not on it\n"
                     "the extender knows a node n9, which is not there\n");
    /* What it knows of heartbeats, which who looks for a moment cannot. */
    ck_assert_uint_eq(
        against(w,
                "{\"nodes\":[{\"name\":\"n1\",\"reason\":\"silent\",\"devs\":[{\"id\":0,"
                "\"totalGPU\":15,\"usedGPU\":2,\"pods\":[{\"name\":\"a\",\"namespace\":"
                "\"other\"}]},{\"id\":1,\"totalGPU\":15,\"usedGPU\":0,\"pods\":[]}]}]}",
                &out),
        3);
    ck_assert_str_eq(out.p,
                     "node n1: it gives nothing out, for the extender: silent\n"
                     "node n1: GPU0: pod ns/a is not there for the extender\n"
                     "node n1: GPU0: the extender counts pod other/a, which is not on "
                     "it\n");
    ck_assert_uint_eq(against(w, "{\"nodes\":[]}", &out), 1);
    ck_assert_uint_eq(against(w, "[1]", &out), 1);
    ck_assert_uint_eq(against(w, "{\"nodes\":[1,{\"name\":3}],\"error\":\"no\"}", &out),
                      1);
    world_free(w);
}
END_TEST

UNIT_MAIN("check", agreement_has_no_line, each_difference_has_one, the_kubelets_cards,
          the_extenders_view)
