/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/explain.h"

#include "cli/rig.h"
#include "support/program.h"

static char *explained(const struct lists *items, const char *pod, const char *object)
{
    cleanup_buf struct buf out = {0};
    struct err err = {0};
    struct world *w = rig_world(items);
    json_t *j = object ? json_loads(object, 0, NULL) : NULL;
    ck_assert(!object || j);
    ck_assert_done(explain_pod(&out, w, SPAN("ns"), span_of(pod), j, false, &err), err);
    json_decref(j);
    world_free(w);
    return buf_take(&out);
}

#define T4(id)    CARD_OF(id, "Healthy", "Tesla T4", "15360", "0")
#define TWO_NODES NODE("n1", "30", "2") "," NODE("n2", "15", "1")
#define TWO_SCVS  SCV_OF("n1", T4("0") "," T4("1")) "," SCV_OF("n2", T4("0"))
#define FULL_PODS                                                                        \
    POD_OF("a", "n1", "12", IDX("0"))                                                    \
    "," POD_OF("b", "n1", "10", IDX("1")) "," POD_OF(                                    \
        "c", "n1", "3", IDX("1")) "," POD_OF("d", "n2", "9", IDX("0"))

START_TEST(what_is_missing_and_what_would_help)
{
    cleanup_free char *text = explained(
        &(struct lists){.nodes = TWO_NODES,
                        .scvs = TWO_SCVS,
                        .pods = FULL_PODS "," POD_OF("w", "", "8", "")},
        "w",
        "{\"status\":{\"conditions\":[{\"type\":\"PodScheduled\",\"status\":\"False\","
        "\"message\":\"0/2 nodes: no\\u001b\"}]}}");
    ck_assert_says(text, "pod ns/w waits for 8 GiB (priority 0)\n");
    ck_assert_says(text,
                   "needs 8192 MiB on one card; most free: 3072 of 15360 MiB on GPU0");
    ck_assert_says(text, "GPU1  2/15             6 GiB missing; promised: ns/b 10 GiB, "
                         "ns/c 3 GiB\n");
    ck_assert_says(text, "  - it fits on node n2 if pod ns/d (9 GiB on GPU0) leaves\n");
    ck_assert_says(text, "  - it asks for 8 GiB, and would fit with 6 on node n2\n");
    ck_assert_says(text, "kube-scheduler says: 0/2 nodes: no?\n");
}
END_TEST

START_TEST(a_model_that_nobody_has)
{
    cleanup_free char *text = explained(
        &(struct lists){.nodes = TWO_NODES,
                        .scvs = TWO_SCVS,
                        .pods =
                            POD_OF("w", "", "8",
                                   "\"nvidia-gpu-scheduler/gpu.model\":\"Tesla V100\"")},
        "w", NULL);
    ck_assert_says(text, "  - no node has the model Tesla V100; there are: Tesla T4; it "
                         "would fit on node n1 if any model or clock would do\n");
}
END_TEST

START_TEST(a_card_that_is_out)
{
    cleanup_free char *text = explained(
        &(struct lists){
            .nodes = NODE("n1", "30", "2"),
            .scvs = SCV_OF("n1", CARD_OF("0", "Bad", "T4", "15360", "0") "," CARD_OF(
                                     "1", "Healthy", "T4", "15360", "12288")),
            .pods = POD_OF("w", "", "15", "")},
        "w", NULL);
    ck_assert_says(text, "  - it would fit on node n1 if GPU0 were healthy\n");
    ck_assert_says(text, "  - it would fit on node n1 if processes outside Kubernetes "
                         "gave back 11 GiB of GPU1\n");
    ck_assert_says(text, "  - it asks for 15 GiB, and would fit with 4 on node n1\n");
}
END_TEST

START_TEST(too_large_for_every_card)
{
    cleanup_free char *text =
        explained(&(struct lists){.nodes = NODE("n2", "15", "1"),
                                  .scvs = SCV_OF("n2", T4("0")),
                                  .pods = POD_OF("d", "n2", "15",
                                                 IDX("0")) "," POD_OF("w", "", "80", "")},
                  "w", NULL);
    ck_assert_says(text, "the largest card has 15360 MiB");
    ck_assert_says(text, "too small, whoever leaves");
    ck_assert_says(text, "No single change would let it fit");
}
END_TEST

START_TEST(pods_that_need_no_help)
{
    struct lists items = {
        .nodes = TWO_NODES,
        .scvs = TWO_SCVS,
        .pods = POD_OF("w", "", "8", "") "," POD_OF(
            "a", "n1", "2", IDX("1") ",\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"true\"")};
    cleanup_free char *fits = explained(&items, "w", NULL);
    ck_assert_says(fits, "It fits on 2 nodes");
    ck_assert_says(fits, "fits: GPU1"); /* which is the fuller one */
    cleanup_free char *bound = explained(&items, "a", NULL);
    ck_assert_says(bound, "pod ns/a is on node n1, not running yet; it asks for 2 GiB\n");
    ck_assert_says(bound,
                   "  GPU1  Tesla T4  GPU-1  2 GiB promised, of 15 GiB; measured in "
                   "use by all: 0 GiB; Healthy\n");
    ck_assert_says(bound,
                   "ALIYUN_COM_GPU_MEM_IDX is \"1\", as the Go extender writes it");
    ck_assert_says(bound, "the device plugin has confirmed it");
    items.pods = "{\"metadata\":{\"name\":\"plain\",\"namespace\":\"ns\",\"uid\":\"u\"},"
                 "\"spec\":{\"containers\":[]}}";
    cleanup_free char *plain = explained(&items, "plain", NULL);
    ck_assert_says(plain, "asks for no GPU memory");
    items.pods = POD_OF("bad", "", "1.5", "");
    cleanup_free char *bad = explained(&items, "bad", NULL);
    ck_assert_says(bad, "waits, and no node can take it as it is: ");
}
END_TEST

#define CARDS_OF(name, cards)                                                            \
    "{\"metadata\":{\"name\":\"" name "\",\"namespace\":\"ns\",\"uid\":\"u-" name        \
    "\"},\"spec\":{\"containers\":[{\"name\":\"c\",\"resources\":{\"limits\":{"          \
    "\"aliyun.com/gpu-count\":\"" cards "\"}}}]},\"status\":{\"phase\":\"Pending\"}}"

START_TEST(whole_cards)
{
    struct lists items = {.nodes = TWO_NODES,
                          .scvs = TWO_SCVS,
                          .pods =
                              POD_OF("a", "n1", "1", IDX("1")) "," CARDS_OF("w", "2")};
    cleanup_free char *text = explained(&items, "w", NULL);
    ck_assert_says(text, "pod ns/w waits for 2 whole cards");
    ck_assert_says(text,
                   "GPU1  14/15            not wholly free; promised: ns/a 1 GiB\n");
    ck_assert_says(text, "  - it fits on node n1 if pod ns/a (1 GiB on GPU1) leaves\n");
    ck_assert_says(text, "  - it asks for 2 cards, and would fit with 1 on node n1\n");
}
END_TEST

/* One of nvidia.com/gpu with a model; the podList says who has such a card. */
#define NVIDIA_OF(name, node)                                                            \
    "{\"metadata\":{\"name\":\"" name "\",\"namespace\":\"ns\",\"uid\":\"u-" name        \
    "\",\"annotations\":{\"nvidia-gpu-scheduler/gpu.model\":\"Tesla T4\"}},\"spec\":{"   \
    "\"nodeName\":\"" node                                                               \
    "\",\"containers\":[{\"name\":\"c\",\"resources\":{\"limits\":{"                     \
    "\"nvidia.com/gpu\":\"1\"}}}]},\"status\":{\"phase\":\"Pending\"}}"

START_TEST(who_has_the_card_through_nvidias_plugin)
{
    static const char scv[] =
        "{\"metadata\":{\"name\":\"n1\"},\"status\":{\"cardList\":[" T4(
            "0") "],\"podList\":"
                 "[{\"namespace\":\"ns\",\"name\":\"a\",\"container\":\"c\",\"resource\":"
                 "\"nvidia.com/gpu\",\"units\":1,\"cards\":[\"GPU-0\"]}]}}";
    struct lists items = {.nodes = NODE("n1", "15", "1"),
                          .scvs = scv,
                          .pods = NVIDIA_OF("a", "n1") "," NVIDIA_OF("w", "")};
    cleanup_free char *text = explained(&items, "w", NULL);
    ck_assert_says(text, "  - it fits on node n1 if pod ns/a (1 through nvidia.com/gpu) "
                         "leaves\n");
}
END_TEST

START_TEST(nodes_that_could_be_put_right)
{
    struct lists items = {
        .nodes =
            "{\"metadata\":{\"name\":\"n1\",\"labels\":{\"gpushare/mode\":\"card\"}}}",
        .scvs = SCV_OF("n1", T4("0")),
        .pods = POD_OF("w", "", "8", ""),
    };
    cleanup_free char *mode = explained(&items, "w", NULL);
    ck_assert_says(mode, "node label gpushare/mode=card: whole cards only");
    ck_assert_says(mode, "  - it would fit on node n1 without the label gpushare/mode\n");
    items.nodes = NODE("n1", "15", "1");
    items.configmaps = "{\"metadata\":{\"name\":\"unhealthy-gpu-n1\",\"namespace\":"
                       "\"kube-system\"},\"data\":{\"gpus\":\"0\"}}";
    cleanup_free char *listed = explained(&items, "w", NULL);
    ck_assert_says(listed, "taken out by ConfigMap");
    ck_assert_says(listed,
                   "  - it would fit on node n1 if GPU0 were not taken out by the "
                   "ConfigMap\n");
    items.configmaps = "{\"metadata\":{\"name\":\"unhealthy-gpu-n1\",\"namespace\":"
                       "\"kube-system\"},\"data\":{\"gpus\":\"zero\"}}";
    cleanup_free char *damaged = explained(&items, "w", NULL);
    ck_assert_says(damaged, "  - it would fit on node n1, but ConfigMap unhealthy-gpu-n1 "
                            "is not a comma-separated list of card indexes\n");
}
END_TEST

START_TEST(room_that_is_kept_for_another)
{
    struct lists items = {
        .nodes = NODE("n2", "15", "1"),
        .scvs = SCV_OF("n2", T4("0")),
        .pods = POD_OF(
            "w", "", "8",
            "") ",{\"metadata\":{\"name\":\"v\",\"namespace\":"
                "\"ns\",\"uid\":\"u-v\"},\"spec\":{\"priority\":5,\"containers\":[{"
                "\"name\":"
                "\"c\",\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":\"12\"}}}]},"
                "\"status\":{\"phase\":\"Pending\",\"nominatedNodeName\":\"n2\"}}",
    };
    cleanup_free char *text = explained(&items, "w", NULL);
    ck_assert_says(text, "free, but reserved for pods nominated to this node");
    ck_assert_says(text, "  - node n2 has the room, but keeps it for pod ns/v, nominated "
                         "to it\n");
    ck_assert_says(text, "  - it asks for 8 GiB, and would fit with 3 on node n2\n");
}
END_TEST

#define CORDONED(name)                                                                   \
    "{\"metadata\":{\"name\":\"" name "\"},\"spec\":{\"unschedulable\":true}}"
#define OFFERED "cordoned: kube-scheduler offers it only to pods that tolerate the taint"

START_TEST(room_on_cordoned_nodes_alone)
{
    struct lists items = {.nodes = NODE("n1", "30", "2") "," CORDONED("n2"),
                          .scvs = TWO_SCVS,
                          .pods = FULL_PODS "," POD_OF("w", "", "6", "")};
    cleanup_free char *text = explained(&items, "w", NULL);
    ck_assert_says(text, OFFERED "\n");
    ck_assert_says(text, "It would fit on 1 node, but only on cordoned ones.\n"
                         "The smallest changes, each enough by itself:\n"
                         "  - kubectl uncordon n2: it fits there\n"
                         "  - it fits on node n1 if pod ns/");
    ck_assert_says(text, "  - it asks for 6 GiB, and would fit with 3 on node n1\n");
    ck_assert_ptr_null(strstr(text, "It fits on"));
    items.nodes = CORDONED("n1") "," CORDONED("n2");
    items.pods = POD_OF("w", "", "6", "");
    cleanup_free char *two = explained(&items, "w", NULL);
    ck_assert_says(two, "It would fit on 2 nodes, but only on cordoned ones.\n");
    ck_assert_says(two, "  - kubectl uncordon n1: it fits there, as it does on 1 more "
                        "cordoned node\n");
    ck_assert_ptr_null(strstr(two, "it asks for"));
    items.nodes = NODE("n1", "30", "2") "," CORDONED("n2");
    cleanup_free char *other = explained(&items, "w", NULL);
    ck_assert_says(other, "It fits on 1 node, as far as GPUs are concerned");
    ck_assert_says(other, OFFERED "\n");
    ck_assert_ptr_null(strstr(other, "uncordon"));
}
END_TEST

/* Uncordoning alone would not do: another node is nearer, or none. */
START_TEST(no_room_on_a_cordoned_node)
{
    struct lists items = {.nodes = NODE("n1", "30", "2") "," CORDONED("n2"),
                          .scvs = TWO_SCVS,
                          .pods = FULL_PODS "," POD_OF("w", "", "8", "")};
    cleanup_free char *text = explained(&items, "w", NULL);
    ck_assert_says(text, OFFERED "; needs 8192 MiB on one card; most free: 6144 of 15360 "
                                 "MiB on GPU0\n");
    ck_assert_says(text, "  - it fits on node n1 if pod ns/");
    ck_assert_says(text, "  - it asks for 8 GiB, and would fit with 3 on node n1\n");
    ck_assert_ptr_null(strstr(text, "uncordon n"));
    ck_assert_ptr_null(strstr(text, "It would fit"));
    items.nodes = CORDONED("n2");
    items.scvs = SCV_OF("n2", T4("0"));
    cleanup_free char *none = explained(&items, "w", NULL);
    ck_assert_says(none, "No single change would let it fit: it needs a node that is not "
                         "cordoned, or one with more or larger cards.\n");
}
END_TEST

#define TOLERATES(members)                                                               \
    "{\"spec\":{\"tolerations\":[{\"key\":\"other\",\"operator\":\"Exists\"},{" members  \
    "}]}}"

START_TEST(pods_that_tolerate_a_cordon)
{
    static const struct {
        const char *pod;
        bool fits;
    } cases[] = {
        {TOLERATES("\"key\":\"node.kubernetes.io/unschedulable\",\"operator\":"
                   "\"Exists\",\"effect\":\"NoSchedule\""),
         true},
        {TOLERATES("\"operator\":\"Exists\""), true},
        {TOLERATES("\"key\":\"node.kubernetes.io/unschedulable\""), true},
        {TOLERATES("\"key\":\"node.kubernetes.io/unschedulable\",\"value\":\"x\""),
         false},
        {TOLERATES("\"operator\":\"Exists\",\"effect\":\"NoExecute\""), false},
        {TOLERATES("\"operator\":\"Equal\""), false},
        {"{\"spec\":{\"tolerations\":[7]}}", false},
    };
    const struct lists items = {.nodes = CORDONED("n2"),
                                .scvs = SCV_OF("n2", T4("0")),
                                .pods = POD_OF("w", "", "8", "")};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_free char *text = explained(&items, "w", cases[i].pod);
        bool fits = strstr(text, "It fits on 1 node, as far as") != NULL;
        ck_assert_msg(fits == cases[i].fits, "%s: %s", cases[i].pod, text);
        ck_assert_msg((strstr(text, OFFERED) == NULL) == fits, "%s", text);
    }
}
END_TEST

START_TEST(a_pod_that_is_not_there)
{
    struct world *w = rig_world(&(struct lists){0});
    cleanup_buf struct buf out = {0};
    struct err err = {0};
    ck_assert_int_eq(explain_pod(&out, w, SPAN("ns"), SPAN("x"), NULL, false, &err), -1);
    ck_assert_int_eq(err.code, ERR_NOT_FOUND);
    ck_assert_says(err.msg, "there is no pod ns/x");
    world_free(w);
}
END_TEST

UNIT_MAIN("explain", what_is_missing_and_what_would_help, a_model_that_nobody_has,
          a_card_that_is_out, too_large_for_every_card, pods_that_need_no_help,
          whole_cards, who_has_the_card_through_nvidias_plugin,
          nodes_that_could_be_put_right, room_that_is_kept_for_another,
          room_on_cordoned_nodes_alone, no_room_on_a_cordoned_node,
          pods_that_tolerate_a_cordon, a_pod_that_is_not_there)
