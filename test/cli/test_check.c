/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/check.h"

#include "cli/lib.h"
#include "domain/diagnosis.h"
#include "lib/lib.h"
#include "lib/program.h"

#define CARDS                                                                            \
    CARD_OF("0", "Healthy", "T4", "15360", "0")                                          \
    "," CARD_OF("1", "Healthy", "T4", "15360", "0")

/* The drift of all nodes as /metrics counts it: one digit per kind. */
static void ck_drift(const char *want)
{
    const struct ledger *l = cluster_state_ledger(cs);
    int64_t counts[DRIFTS] = {0};
    char got[DRIFTS + 1] = {0};
    for (uint32_t i = 0; i < ledger_node_slots(l); i++)
        if (ledger_node_at(l, i))
            diagnosis_count(l, ledger_node_at(l, i), counts);
    for (int i = 0; i < DRIFTS; i++)
        got[i] = (char)('0' + counts[i]);
    ck_assert_str_eq(got, want);
}

static void expect(const struct lists *items, const char *drift, const char *want)
{
    cleanup_buf struct buf out = {0};
    lib_cluster(items);
    size_t n = check_cluster(&out, cs, (struct span){0}), lines = 0;
    ck_drift(drift);
    for (const char *p = want; (p = strchr(p, '\n')); p++)
        lines++;
    ck_assert_str_eq(out.n ? out.p : "", want);
    ck_assert_uint_eq(n, lines);
}

TEST(a_consistent_cluster_has_no_differences)
{
    expect(&(struct lists){.nodes = NODE("n1", "30", "2") "," NODE("cpu", "0", "0"),
                           .scvs = SCV_OF("n1", CARDS),
                           .pods = POD_OF("a", "n1", "15",
                                          IDX("0")) "," POD_OF("w", "", "20", "")},
           "00000000000", "");
}

#define SAME_UUID(id)                                                                    \
    "{\"id\":" id ",\"health\":\"Healthy\",\"totalMemory\":7680,\"freeMemory\":7680,"    \
    "\"uuid\":\"GPU-x\"}"

TEST(each_difference_has_one_line)
{
    expect(&(struct lists){.nodes = NODE("n1", "30", "2"),
                           .scvs = SCV_OF("n1", CARDS),
                           .pods = POD_OF("a", "n1", "10",
                                          IDX("0")) "," POD_OF("b", "n1", "6", IDX("0"))},
           "10000000000", "node n1: GPU0 has 15360 MiB, but 16384 MiB are promised\n");
    expect(&(struct lists){.nodes = NODE("n1", "30", "2"),
                           .scvs = SCV_OF("n1", CARDS),
                           .pods = POD_OF("a", "n1", "1", "") "," POD_OF(
                               "b", "n1", "1", IDX("7")) "," POD_OF("c", "n1", "1",
                                                                    IDX("x"))},
           "00012000000",
           "node n1: pod ns/a is bound here without a card\n"
           "node n1: pod ns/b has a promise of 1024 MiB on GPU7, which the node does not "
           "have\n"
           "node n1: pod ns/c is bound here without a card\n"
           "pod ns/c: annotations name no card: ALIYUN_COM_GPU_MEM_IDX \"x\"\n");
    expect(
        &(struct lists){.nodes = NODE("n1", "28", "1"), .scvs = SCV_OF("n1", CARDS)},
        "00000020000",
        "node n1: capacity is 28 aliyun.com/gpu-mem, but its cards make 30 (check that "
        "--memory-unit is the same here, in the extender and in the device plugin)\n"
        "node n1: capacity is 1 aliyun.com/gpu-count, but its Scv lists 2 cards\n");
    expect(&(struct lists){.nodes = NODE("n1", "15", "1"),
                           .scvs = SCV_OF(
                               "n1", CARD_OF("0", "Healthy", "T4", "15360", "3072"))},
           "01000000000",
           "node n1: GPU0: processes outside Kubernetes use 2048 MiB more than the "
           "tolerance\n");
    /* 6 GiB of Xorg, and 8 GiB of a pod that was promised 2. */
    expect(
        &(struct lists){.nodes = NODE("n1", "15", "1"),
                        .scvs = SCV_USED("n1", "15360", "14336", "u-a", "8192", "6144"),
                        .pods = POD_OF("a", "n1", "2", IDX("0"))},
        "01100000000",
        "node n1: GPU0: processes outside Kubernetes use 5120 MiB more than the "
        "tolerance\n"
        "node n1: GPU0: pods use 6144 MiB more than their promises and the tolerance\n");
    expect(
        &(struct lists){.nodes = NODE("n1", "30", "2"),
                        .scvs = SCV_OF("n1", CARDS),
                        .configmaps = "{\"metadata\":{\"name\":\"unhealthy-gpu-n1\","
                                      "\"namespace\":\"kube-system\"},\"data\":{\"gpus\":"
                                      "\"7\"}}"},
        "00000001000",
        "node n1: ConfigMap unhealthy-gpu-n1 lists GPU7, which the node does not have\n");
    expect(&(struct lists){.nodes = NODE("n1", "14", "2"),
                           .scvs =
                               "{\"metadata\":{\"name\":\"n1\"},\"status\":{"
                               "\"cardList\":[" SAME_UUID("0") "," SAME_UUID("1") "]}}"},
           "00000000200",
           "node n1: GPU0 has UUID GPU-x, which its Scv gives to another card, too\n"
           "node n1: GPU1 has UUID GPU-x, which its Scv gives to another card, too\n");
}

/* The kubelet allocated cards that were not promised. */
TEST(allocations_that_differ_from_promises)
{
#define HELD(pod, uuid)                                                                  \
    "{\"namespace\":\"ns\",\"name\":\"" pod "\",\"container\":\"c\",\"resource\":"       \
    "\"aliyun.com/gpu-mem\",\"units\":2,\"cards\":[\"" uuid "\"]}"
#define SCV_HELD                                                                         \
    "{\"metadata\":{\"name\":\"n1\"},\"status\":{\"podList\":[" HELD(                    \
        "a", "GPU-1") "," HELD("b", "GPU-1") "," HELD("gone",                            \
                                                      "GPU-1") "],\"cardList\":[" CARDS  \
                                                               "]}}"
    CLUSTER(.nodes = NODE("n1", "30", "2"), .scvs = SCV_HELD,
            .pods =
                POD_OF("a", "n1", "2", IDX("0")) "," POD_OF("b", "n1", "2", IDX("1")));
    cleanup_buf struct buf out = {0};
    ck_assert_uint_eq(check_cluster(&out, cs, (struct span){0}), 2);
    ck_drift("00000100010");
    ck_assert_contains(out.p,
                       "node n1: pod ns/a: the promise names GPU0, but the kubelet gave "
                       "GPU1; it counts on both\n");
    ck_assert_contains(out.p,
                       "node n1: container c of pod ns/a has card GPU-1, which the pod's "
                       "annotations do not name\n");
    ck_assert_contains(out.p, "note: node n1: container c of pod ns/gone holds 2 "
                              "aliyun.com/gpu-mem, but no such pod is bound here");
}

#define ALLOCATION(card, units)                                                          \
    "\"scheduler.framework.gpushare.allocation\":\"{\\\"0\\\":{\\\"" card "\\\":" units  \
    "}}\""

/* Annotations that claim another amount than the pod asks for. */
TEST(annotations_that_differ_from_requests)
{
    expect(
        &(struct lists){
            .nodes = NODE("n1", "30", "2"),
            .scvs = SCV_OF("n1", CARDS),
            .pods =
                POD_OF("a", "n1", "2", IDX("0") "," ALLOCATION("0", "999")) "," POD_OF(
                    "b", "n1", "0", IDX("1") "," ALLOCATION("1", "12"))},
        "00000000020",
        "node n1: pod ns/a: the annotations promise 999 units of aliyun.com/gpu-mem "
        "(1 card), but the pod asks for 2 GiB, which counts\n"
        "node n1: pod ns/b: the annotations promise 12 units of aliyun.com/gpu-mem "
        "(1 card), but the pod asks for nothing; it counts for nothing\n");
}

#define OFFER(label, capacity, allocatable)                                              \
    "{\"metadata\":{\"name\":\"n1\",\"labels\":{" label                                  \
    "}},\"status\":{\"capacity\":{" capacity "},\"allocatable\":{" allocatable "}}}"
#define UNITS(mem, cards)                                                                \
    "\"aliyun.com/gpu-mem\":\"" mem "\",\"aliyun.com/gpu-count\":\"" cards "\""
#define INCLUDED  "\"gpushare\":\"true\""
#define NVIDIA_2  "\"nvidia.com/gpu\":\"2\""
#define NOT_THERE ": the device plugin does not run there, or does not offer a card\n"
#define DEAD_MEM(is, of)                                                                 \
    "node n1: " is                                                                       \
    " aliyun.com/gpu-mem are allocatable, but its healthy cards make " of NOT_THERE
#define DEAD_CARDS                                                                       \
    "node n1: 0 aliyun.com/gpu-count are allocatable, but its healthy cards make "       \
    "2" NOT_THERE
#define ALL_DEAD DEAD_MEM("0", "30") DEAD_CARDS

/* A node of another plugin, or of labels alone, offers nothing of ours on purpose. */
TEST(a_device_plugin_that_does_not_run_is_named)
{
    static const struct {
        const char *node, *pods, *drift, *want;
    } cases[] = {
        {OFFER("", UNITS("0", "0"), UNITS("0", "0")), "", "2", ALL_DEAD},
        {OFFER("", UNITS("30", "2"), UNITS("0", "0")), "", "2", ALL_DEAD},
        {OFFER("", UNITS("30", "2"), UNITS("15", "2")), "", "1", DEAD_MEM("15", "30")},
        {OFFER(INCLUDED, "", ""), "", "2", ALL_DEAD},
        {OFFER(INCLUDED, NVIDIA_2, NVIDIA_2), "", "2", ALL_DEAD},
        {OFFER("", "", ""), POD_OF("a", "n1", "2", IDX("0")), "2", ALL_DEAD},
        {OFFER("", "", ""), "", "0", ""},
        {OFFER("", NVIDIA_2, NVIDIA_2), "", "0", ""},
        {OFFER("", NVIDIA_2 "," UNITS("0", "0"), NVIDIA_2), "", "0", ""},
        {OFFER("\"gpushare\":\"false\"", UNITS("0", "0"), ""), "", "0", ""},
    };
    array_items(c, cases) {
        cleanup_buf struct buf drift = {0};
        buf_printf(&drift, "000000%s0000", c->drift);
        expect(&(struct lists){.nodes = c->node,
                               .scvs = SCV_OF("n1", CARDS),
                               .pods = c->pods},
               drift.p, c->want);
    }
    /* Of an unhealthy card nothing is allocatable. */
    expect(&(struct lists){.nodes = OFFER(INCLUDED, UNITS("30", "2"), UNITS("15", "1")),
                           .scvs = SCV_OF(
                               "n1", CARD_OF("0", "Bad", "T4", "15360", "0") "," CARD_OF(
                                         "1", "Healthy", "T4", "15360", "0"))},
           "00000000000", "");
}

/* The Go extender counts app containers alone. */
TEST(an_annotation_below_the_request_is_a_difference)
{
#define POD_UNITS(n) "\"ALIYUN_COM_GPU_MEM_POD\":\"" n "\""
#define DIFFERS(n)                                                                       \
    "node n1: pod ns/a: the annotations promise " n " units of aliyun.com/gpu-mem (1 "   \
    "card), but the pod asks for 6 GiB, which counts\n"
#define WITH_INIT                                                                        \
    "{\"metadata\":{\"name\":\"a\",\"namespace\":\"ns\",\"uid\":\"u-a\","                \
    "\"annotations\":{" IDX("0") "," POD_UNITS(                                          \
        "2") "}},\"spec\":{\"nodeName\":\"n1\",\"initContainers\":[{"                    \
             "\"resources\":{\"limits\":{\"aliyun.com/"                                  \
             "gpu-mem\":\"6\"}}}],\"containers\":[{"                                     \
             "\"resources\":{\"limits\":{\"aliyun.com/"                                  \
             "gpu-mem\":\"2\"}}}]},\"status\":{\"phase\":"                               \
             "\"Pending\"}}"
    static const struct {
        const char *pod, *drift, *want;
    } cases[] = {
        {POD_OF("a", "n1", "6", IDX("0") "," POD_UNITS("1")), "00000000010",
         DIFFERS("1")},
        {POD_OF("a", "n1", "6", IDX("0") "," POD_UNITS("0")), "00000000010",
         DIFFERS("0")},
        {POD_OF("a", "n1", "6", IDX("0") "," POD_UNITS("16")), "00000000010",
         DIFFERS("16")},
        {POD_OF("a", "n1", "6", IDX("0") "," POD_UNITS("6")), "00000000000", ""},
        {POD_OF("a", "n1", "6", IDX("0")), "00000000000", ""},
        {WITH_INIT, "00000000000", ""},
    };
    array_items(c, cases)
        expect(&(struct lists){.nodes = NODE("n1", "30", "2"),
                               .scvs = SCV_OF("n1", CARDS),
                               .pods = c->pod},
               c->drift, c->want);
}

TEST(a_pod_on_a_node_that_does_not_exist)
{
    expect(&(struct lists){.nodes = NODE("n1", "30", "2"),
                           .scvs = SCV_OF("n1", CARDS),
                           .pods = POD_OF("a", "nowhere", "2",
                                          IDX("0")) "," POD_OF("b", "nowhere", "2", "")},
           "00011000000",
           "node nowhere: pod ns/a is bound here, but this node does not exist\n"
           "node nowhere: pod ns/b is bound here, but this node does not exist\n");
}

TEST(comparison_with_the_extender)
{
    static const struct {
        const char *view, *want; /* NULL: one difference */
    } cases[] = {
        {"{\"nodes\":[{\"name\":\"n1\",\"devs\":[{\"id\":0,\"totalGPU\":15,\"usedGPU\":2,"
         "\"pods\":[{\"name\":\"a\",\"namespace\":\"ns\"}]},{\"id\":1,\"totalGPU\":15,"
         "\"usedGPU\":0,\"pods\":[]}]}]}",
         ""},
        {"{\"nodes\":[{\"name\":\"n1\",\"devs\":[{\"id\":0,\"totalMiB\":15360,"
         "\"promisedMiB\":0,\"health\":\"Unhealthy\",\"pods\":[]},{\"id\":1,"
         "\"totalMiB\":1,\"promisedMiB\":0,\"pods\":[{\"name\":\"\\u001b\","
         "\"namespace\":\"ns\"}]}]},{\"name\":\"n9\",\"devs\":[{}]}]}",
         "node n1: GPU0: 2048 MiB are promised, but 0 for the extender\n"
         "node n1: GPU0 is Healthy, but Unhealthy for the extender\n"
         "node n1: GPU0: the extender does not count pod ns/a\n"
         "node n1: GPU1 has 15360 MiB, but 1 for the extender\n"
         "node n1: GPU1: the extender counts pod ns/?, which is not on this card\n"
         "the extender lists node n9, which does not exist\n"},
        /* The extender knows of a silent node; the snapshot does not. */
        {"{\"nodes\":[{\"name\":\"n1\",\"reason\":\"silent\",\"devs\":[{\"id\":0,"
         "\"totalGPU\":15,\"usedGPU\":2,\"pods\":[{\"name\":\"a\",\"namespace\":"
         "\"other\"}]},{\"id\":1,\"totalGPU\":15,\"usedGPU\":0,\"pods\":[]}]}]}",
         "node n1: the extender rejects all pods here: silent\n"
         "node n1: GPU0: the extender does not count pod ns/a\n"
         "node n1: GPU0: the extender counts pod other/a, which is not on this card\n"},
        {"{\"nodes\":[],\"unit\":\"MiB\"}",
         "one unit of aliyun.com/gpu-mem is 1024 MiB, but 1 MiB for the extender\n"
         "node n1: the extender does not list this node\n"},
        {"{\"nodes\":[]}", NULL},
        {"[1]", NULL},
        {"{\"nodes\":[1,{\"name\":3}],\"error\":\"no\"}", NULL},
    };
    CLUSTER(.nodes = NODE("n1", "30", "2"), .pods = POD_OF("a", "n1", "2", IDX("0")));
    array_items(c, cases) {
        cleanup_buf struct buf out = {0};
        cleanup_json json_t *view = lib_json(c->view);
        size_t lines = c->want ? 0 : 1;
        for (const char *p = c->want; p && (p = strchr(p, '\n')); p++)
            lines++;
        ck_assert_uint_eq(check_extender(&out, cs, view, (struct span){0}), lines);
        if (c->want)
            ck_assert_str_eq(out.n ? out.p : "", c->want);
    }
}

#define NAMED(labels, notes)                                                             \
    "{\"metadata\":{\"name\":\"n1\",\"labels\":{" labels "},\"annotations\":{" notes     \
    "}},\"status\":{\"capacity\":{\"aliyun.com/gpu-mem\":\"30\",\"aliyun.com/"           \
    "gpu-count\":\"2\"},\"allocatable\":{\"aliyun.com/gpu-mem\":\"30\",\"aliyun.com/"    \
    "gpu-count\":\"2\"}}}"
#define CARDS_KEY(text) "\"gpushare.io/cards\":\"" text "\""

/* The next node of its group would not be what the autoscaler expects. */
TEST(nodes_that_have_other_cards_than_they_name)
{
    static const struct {
        const char *node, *want;
    } cases[] = {
        {NAMED(CARDS_KEY("2x15360MiB"), ""), ""},
        {NAMED("", CARDS_KEY("2x16384MiB")),
         "node n1: gpushare.io/cards is 2x16384MiB, but its Scv lists 2 cards, GPU0 with "
         "15360 MiB\n"},
        {NAMED(CARDS_KEY("4x15360MiB"), ""),
         "node n1: gpushare.io/cards is 4x15360MiB, but its Scv lists 2 cards, GPU0 with "
         "15360 MiB\n"},
        {NAMED(CARDS_KEY("2x15360MiB"), CARDS_KEY("4x15360MiB")),
         "node n1: gpushare.io/cards is not of the form 4x16384MiB, or label and "
         "annotation differ\n"},
        {NAMED(CARDS_KEY("2x15GiB"), ""),
         "node n1: gpushare.io/cards is not of the form 4x16384MiB, or label and "
         "annotation differ\n"},
    };
    array_items(c, cases)
        expect(&(struct lists){.nodes = c->node, .scvs = SCV_OF("n1", CARDS)},
               "00000000000", c->want);
}

/* A pod that is gone needs no line. */
TEST(a_limit_that_fails_is_named)
{
#define EVENT_OF(pod, note)                                                              \
    "{\"regarding\":{\"uid\":\"u-" pod "\"},\"note\":\"" note "\"}"
    static const struct {
        const char *events, *node, *want;
        size_t n;
    } cases[] = {
        {"{\"items\":[]}", "", "", 0},
        {"{\"items\":[" EVENT_OF("a", "unknown\\u001bversion") "," EVENT_OF(
             "gone", "x") "," EVENT_OF("w", "x") "]}",
         "", "node n1: pod ns/a: unknown?version\n", 1},
        {"{\"items\":[" EVENT_OF("a", "x") "]}", "n2", "", 0},
        {"{\"items\":[" EVENT_OF("a", "x") "]}", "n1", "node n1: pod ns/a: x\n", 1},
        {"", "", "note: Events cannot be read: it is not known whether limits fail\n", 0},
    };
    CLUSTER(.nodes = NODE("n1", "30", "2"),
            .pods = POD_OF("a", "n1", "2", IDX("0")) "," POD_OF("w", "", "2", ""));
    array_items(c, cases) {
        cleanup_buf struct buf out = {0};
        json_t *events = json_loads(c->events, 0, NULL);
        ck_assert_uint_eq(check_isolation(&out, cs, events, span_of(c->node)), c->n);
        ck_assert_str_eq(out.n ? out.p : "", c->want);
        json_decref(events);
    }
}

/* What a forgotten scv-agent of 1.0 looks like. */
TEST(two_programs_that_write_one_scv_are_named)
{
#define PROGRAM_ON(node, name, component, command, more)                                 \
    "{\"metadata\":{\"namespace\":\"kube-system\",\"name\":\"" name                      \
    "\",\"labels\":{\"component\":\"" component "\"}" more                               \
    "},\"spec\":{\"nodeName\":\"" node "\",\"containers\":[{\"command\":[\"" command     \
    "\"]"
#define END     "}]}}"
#define AGENT   PROGRAM_ON("n1", "a-1", "scv-agent", "scv-agent", "")
#define NEW(of) PROGRAM_ON(of, "d-1", "gpushare-device-plugin", "gpushare-node", "")
#define PLUGIN                                                                           \
    PROGRAM_ON("n1", "d-1", "gpushare-device-plugin", "gpushare-device-plugin", "")
    static const char both[] =
        "node n1: pod kube-system/a-1 writes the Scv, as gpushare-node does: delete "
        "DaemonSet scv-agent of the older release (docs/install.md)\n";
    static const char may[] =
        "note: node n1: pod kube-system/a-1 writes the Scv, as gpushare-node may, whose "
        "command or --config cannot be read here: delete DaemonSet scv-agent of the "
        "older "
        "release (docs/install.md)\n";
#define ARGS(args) AGENT END "," NEW("n1") ",\"args\":[" args "]" END
#define RUN(command)                                                                     \
    AGENT END "," PROGRAM_ON("n1", "d-1", "gpushare-device-plugin", command, "") END
    static const struct {
        const char *pods, *node, *want;
    } cases[] = {
        {ARGS("\"--publish=false\""), "", ""},
        {ARGS("\"--publish=No\",\"--config=f\""), "", ""},
        {ARGS("\"--publish=off\",\"--publish\""), "", both},
        {ARGS("\"--publish\",3,\"--publish=off\""), "", ""},
        {ARGS("\"--publish=on\",\"--config\",\"f\""), "", both},
        {ARGS("\"--memory-unit=GiB\",\"--config\",\"f\""), "", may},
        {ARGS("\"--config=f\",\"--publish=off\""), "", ""},
        {ARGS("\"--publish=$(PUBLISH)\""), "", may},
        {RUN("/usr/local/bin/gpushare-node"), "", both},
        {RUN("/usr/local/bin/gpushare-device-plugin"), "", ""},
        {RUN("gpushare-node\",\"--publish=off"), "", ""},
        {RUN("sh\",\"-c\",\"exec gpushare-node"), "", may},
        {AGENT END
         "," /* the program of the image */
         "{\"metadata\":{\"labels\":{\"component\":\"gpushare-device-plugin\"}},\"spec\":"
         "{\"nodeName\":\"n1\",\"containers\":[{\"args\":[\"--publish=on\"]" END,
         "", may},
        {AGENT END "," NEW("n1") END, "", both},
        {NEW("n1") END "," AGENT END, "n1", both},
        {AGENT END "," NEW("n1") END, "n2", ""},
        {AGENT END "," PLUGIN END, "", ""}, /* 1.0, or two modes */
        {AGENT END "," NEW("n2") END, "", ""},
        {AGENT END, "", ""},
        {NEW("n1") END, "", ""},
        {AGENT END "," NEW("n1") ",\"args\":[\"--publish=off\"]" END, "", ""},
        {PROGRAM_ON("n1", "a-1", "scv-agent", "scv-agent",
                    ",\"deletionTimestamp\":\"2023-11-14T22:13:20Z\"") END "," NEW("n1")
             END,
         "", ""},
        {AGENT "}]},\"status\":{\"phase\":\"Failed\"}}," NEW("n1") END, "", ""},
        {"1,{},{\"spec\":3,\"metadata\":[]}," AGENT END, "", ""},
        {NULL, "",
         "note: pods cannot be read: it is not known whether two programs write an "
         "Scv\n"},
    };
    CLUSTER(.nodes = NODE("n1", "30", "2"), .pods = POD_OF("a", "n1", "2", IDX("0")));
    array_items(c, cases) {
        cleanup_buf struct buf out = {0};
        cleanup_free char *list = c->pods ? xasprintf("{\"items\":[%s]}", c->pods) : NULL;
        cleanup_json json_t *pods = list ? lib_json(list) : NULL;
        ck_assert_uint_eq(check_publishers(&out, cs, pods, span_of(c->node)),
                          c->want == both);
        ck_assert_str_eq(out.n ? out.p : "", c->want);
    }
}

enum { NOW_S = 1700000000 }; /* 2023-11-14T22:13:20Z */

/* What the API server and the extender say, and the lines. */
TEST(an_extender_that_is_missing_is_named)
{
#define LEASE_OF(holder, renewed)                                                        \
    "{\"spec\":{\"holderIdentity\":\"" holder "\",\"renewTime\":\"" renewed "\"}}"
#define SLICE_OF(ready)                                                                  \
    "{\"items\":[{\"endpoints\":[{\"conditions\":{\"ready\":" ready "}}]}]}"
    static const struct {
        const char *lease, *slices, *view, *want;
    } cases[] = {
        {LEASE_OF("me", "2023-11-14T22:13:19.500000Z"), SLICE_OF("true"),
         "{\"leader\":true,\"filterIdleMinutes\":9}", ""},
        {"", NULL, NULL, "! no extender runs: there is no Lease gpushare-extender\n"},
        {NULL, NULL, NULL, ""}, /* not allowed */
        {LEASE_OF("", ""), NULL, NULL,
         "! no extender leads: nobody holds Lease kube-system/gpushare-extender\n"},
        {LEASE_OF("me", "2023-11-14T22:12:20.500000Z"), SLICE_OF("false"), NULL,
         "! Service gpushare-schd-extender has no ready endpoint: kube-scheduler reaches "
         "no extender\n"
         "! no extender leads: Lease kube-system/gpushare-extender was renewed 60 s "
         "ago\n"},
        {LEASE_OF("me", "2023-11-14T22:13:19Z"), SLICE_OF("true"),
         "{\"leader\":true,\"filterIdleMinutes\":10}",
         "! kube-scheduler has not called filter for 10 minutes, although pods are "
         "pending: its own filters leave no node, or it does not know the extender\n"},
        {LEASE_OF("me", "2023-11-14T22:13:19Z"), SLICE_OF("true"),
         "{\"leader\":false,\"filterIdleMinutes\":10}", ""},
        /* No Service, because the extender runs on the control plane nodes. */
        {LEASE_OF("me", "2023-11-14T22:13:19Z"), "{\"items\":[]}", NULL, ""}};
    CLUSTER(.nodes = NODE("n1", "15", "1"), .pods = POD_OF("w", "", "2", ""));
    array_items(c, cases) {
        cleanup_buf struct buf out = {0};
        const char *lease = c->lease;
        struct session_extender e = {.ns = SPAN("kube-system")};
        json_t *own[] = {lease && *lease ? json_loads(lease, 0, NULL) : NULL,
                         c->slices ? json_loads(c->slices, 0, NULL) : NULL,
                         c->view ? json_loads(c->view, 0, NULL) : NULL};
        e.no_lease = lease && !*lease;
        e.lease = own[0];
        e.slices = own[1];
        e.view = own[2];
        bool outage = cluster_state_write_outage(&out, cs, &e, NOW_S);
        ck_assert_str_eq(out.n ? out.p : "", c->want);
        ck_assert(outage == (out.n && !strstr(out.p, "called filter")));
        array_items(o, own)
            json_decref(*o);
    }
    /* Nobody waits for kube-scheduler. */
    CLUSTER(.nodes = NODE("n1", "15", "1"));
    cleanup_buf struct buf out = {0};
    json_t *idle = json_loads(cases[5].view, 0, NULL);
    struct session_extender e = {.view = idle};
    cluster_state_write_outage(&out, cs, &e, NOW_S);
    ck_assert_uint_eq(out.n, 0);
    json_decref(idle);
}

/* kube-scheduler bound a pod and did not ask. A promise that is newer shows that it asks now. */
TEST(an_extender_that_is_not_asked_is_named)
{
#define REJECTED_AT(time, why)                                                           \
    "{\"eventTime\":\"2023-11-14T" time "Z\",\"note\":\"pod ns/n has no " why "\"}"
#define ASSUMED(ns)                                                                      \
    POD_OF("a", "n1", "2", IDX("0") ",\"ALIYUN_COM_GPU_MEM_ASSUME_TIME\":\"" ns "\"")
#define OLD_NEW                                                                          \
    REJECTED_AT("22:03:20.5", "promised card: old")                                      \
    "," REJECTED_AT("22:12:20.5", "promised card: \\u001bMake")
    static const char want[] =
        "! the extender was not asked at 2023-11-14T22:12:20.5Z: pod "
        "ns/n has no promised card: ?Make\n";
    static const struct {
        const char *events, *pods, *want;
    } cases[] = {
        {OLD_NEW, NULL, want},
        {OLD_NEW, ASSUMED("1699999939000000000"), want}, /* 22:12:19 */
        {OLD_NEW, ASSUMED("1699999940000000000"), ""},
        {REJECTED_AT("21:13:19", "promised card"), NULL, ""}, /* more than an hour ago */
        {REJECTED_AT("22:12:20", "healthy card"), NULL, ""},
        {"{\"eventTime\":null,\"note\":\"has no promised card\"},{\"note\":1}", NULL, ""},
        {"", NULL, ""},
    };
    array_items(c, cases) {
        cleanup_buf struct buf out = {0};
        cleanup_free char *list = xasprintf("{\"items\":[%s]}", c->events);
        cleanup_json json_t *rejected = lib_json(list);
        const struct session_extender e = {.rejected = rejected};
        CLUSTER(.nodes = NODE("n1", "15", "1"), .pods = c->pods);
        ck_assert(cluster_state_write_outage(&out, cs, &e, NOW_S) == (*c->want != 0));
        ck_assert_str_eq(out.n ? out.p : "", c->want);
    }
}
