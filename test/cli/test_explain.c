/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/explain.h"

#include "cli/lib.h"
#include "lib/program.h"

static char *explained_by(const struct lists *items, const char *pod,
                          struct explain_facts facts)
{
    cleanup_buf struct buf out = {0};
    struct err err = {0};
    struct cluster_state *cs = lib_cluster_state(items);
    ck_assert_done(explain_pod(&out, cs, SPAN("ns"), span_of(pod), &facts, &err), err);
    cluster_state_free(cs);
    return buf_take(&out);
}

static char *explained(const struct lists *items, const char *pod, const char *object)
{
    json_t *j = object ? json_loads(object, 0, NULL) : NULL;
    ck_assert(!object || j);
    char *text = explained_by(items, pod, (struct explain_facts){.object = j});
    json_decref(j);
    return text;
}

#define T4(id)    CARD_OF(id, "Healthy", "Tesla T4", "15360", "0")
#define TWO_NODES NODE("n1", "30", "2") "," NODE("n2", "15", "1")
#define TWO_SCVS  SCV_OF("n1", T4("0") "," T4("1")) "," SCV_OF("n2", T4("0"))
#define FULL_PODS                                                                        \
    POD_OF("a", "n1", "12", IDX("0"))                                                    \
    "," POD_OF("b", "n1", "10", IDX("1")) "," POD_OF(                                    \
        "c", "n1", "3", IDX("1")) "," POD_OF("d", "n2", "9", IDX("0"))

START_TEST(a_pending_pod_and_changes_that_would_help)
{
    cleanup_free char *text = explained(
        &(struct lists){.nodes = TWO_NODES,
                        .scvs = TWO_SCVS,
                        .pods = FULL_PODS "," POD_OF("w", "", "8", "")},
        "w",
        "{\"status\":{\"conditions\":[{\"type\":\"PodScheduled\",\"status\":\"False\","
        "\"message\":\"0/2 nodes: no\\u001b\"}]}}");
    ck_assert_contains(text, "pod ns/w is pending; requests 8 GiB (priority 0)\n");
    ck_assert_contains(
        text, "needs 8192 MiB on one card; most free: 3072 of 15360 MiB on GPU0");
    ck_assert_contains(text, "GPU1  2/15             lacks 6 GiB; promised: ns/b 10 GiB, "
                             "ns/c 3 GiB\n");
    ck_assert_contains(text,
                       "  - the pod fits on node n2 without pod ns/d (9 GiB on GPU0)\n");
    ck_assert_contains(text,
                       "  - request 6 GiB instead of 8 GiB: the pod fits on node n2\n");
    ck_assert_contains(text, "kube-scheduler: 0/2 nodes: no?\n");
}
END_TEST

#define ESCAPE "\"nvidia-gpu-scheduler/gpu.model\":\"V\\u001b[2J\""

/* Users write models; an escape sequence must not reach the terminal. */
START_TEST(a_model_with_an_escape_sequence)
{
    const struct lists items = {.nodes = TWO_NODES,
                                .scvs = TWO_SCVS,
                                .pods = POD_OF("w", "", "8", ESCAPE) "," POD_OF(
                                    "v", "n1", "8", IDX("0") "," ESCAPE)};
    cleanup_free char *pending_text = explained(&items, "w", NULL);
    cleanup_free char *bound_text = explained(&items, "v", NULL);
    ck_assert_contains(pending_text, "requests 8 GiB, model V?[2J (priority 0)");
    ck_assert_contains(bound_text, "requests 8 GiB, model V?[2J\n");
    ck_assert_ptr_null(strchr(pending_text, '\x1b'));
    ck_assert_ptr_null(strchr(bound_text, '\x1b'));
}
END_TEST

#define SPACE(name, cpu, memory, pods)                                                   \
    "{\"metadata\":{\"name\":\"" name "\"},\"status\":{\"allocatable\":{\"cpu\":\"" cpu  \
    "\",\"memory\":\"" memory "\",\"pods\":\"" pods "\"}}}"
#define ASKS(name, node, phase, cpu, memory, limits)                                     \
    "{\"metadata\":{\"name\":\"" name "\",\"namespace\":\"ns\",\"uid\":\"u-" name        \
    "\"},\"spec\":{" node "\"containers\":[{\"resources\":{\"requests\":{\"cpu\":\"" cpu \
    "\",\"memory\":\"" memory "\"}" limits "}}]},\"status\":{\"phase\":\"" phase "\"}}"
#define GPU      ",\"limits\":{\"aliyun.com/gpu-mem\":\"8\"}"
#define ON(node) "\"nodeName\":\"" node "\","

/* The cards are free, but pods without GPU have taken the rest of the node. */
START_TEST(a_node_without_cpu_memory_or_pod_slots)
{
    struct lists items = {
        .nodes = SPACE("n1", "4", "8Gi", "110") "," SPACE("n2", "7", "1Gi", "2"),
        .scvs = TWO_SCVS,
        .pods = ASKS("web", ON("n1"), "Running", "2500m", "1Gi", "") "," ASKS(
            "db", ON("n2"), "Running", "1", "900Mi",
            "") "," ASKS("ds", ON("n2"), "Running", "0", "0",
                         "") "," ASKS("done", ON("n1"), "Succeeded", "1", "1Gi",
                                      "") "," ASKS("w", "", "Pending", "2", "200Mi",
                                                   GPU)};
    cleanup_free char *text = explained(&items, "w", NULL);
    ck_assert_contains(text, "fits: GPU0; lacks CPU: the pod requests 2, free are 1.5\n");
    ck_assert_contains(text, "fits: GPU0; lacks node memory: the pod requests 200 MiB, "
                             "free are 124 MiB; no pod slot is free: 2 of 2 are taken\n");
    ck_assert_contains(text, "The request for GPUs fits on 2 nodes, but not the pod's "
                             "CPU, memory or slot.\n");

    items.pods = ASKS("w", "", "Pending", "4", "2Gi", GPU);
    cleanup_free char *fits = explained(&items, "w", NULL);
    ck_assert_contains(fits, "The request fits on 1 node. kube-scheduler decides");
}
END_TEST

#define GANG_POD(id) POD_OF(id, "", "12", "\"scheduling.k8s.io/group-name\":\"g\"")

START_TEST(a_gang_that_does_not_fit_together)
{
    struct lists items = {.nodes = TWO_NODES,
                          .scvs = TWO_SCVS,
                          .pods = GANG_POD("a") "," GANG_POD("b") "," GANG_POD("c")};
    cleanup_free char *fits = explained(&items, "b", NULL);
    ck_assert_contains(fits,
                       "gang g: 0 of 3 members are bound; the others fit together.\n");
    items.pods = GANG_POD("a") "," GANG_POD("b") "," GANG_POD("c") "," GANG_POD("d");
    cleanup_free char *too_many = explained(&items, "b", NULL);
    ck_assert_contains(too_many,
                       "gang g: 1 of 4 members finds no place beside the others; "
                       "needs 12288 MiB on one card.\n");
}
END_TEST

START_TEST(a_model_that_no_node_has)
{
    cleanup_free char *text = explained(
        &(struct lists){.nodes = TWO_NODES,
                        .scvs = TWO_SCVS,
                        .pods =
                            POD_OF("w", "", "8",
                                   "\"nvidia-gpu-scheduler/gpu.model\":\"Tesla V100\"")},
        "w", NULL);
    ck_assert_contains(
        text, "  - no node has model Tesla V100; models in the cluster: Tesla T4; "
              "with any model or clock, the pod fits on node n1\n");
}
END_TEST

START_TEST(unhealthy_cards_and_external_use)
{
    cleanup_free char *text = explained(
        &(struct lists){
            .nodes = NODE("n1", "30", "2"),
            .scvs = SCV_OF("n1", CARD_OF("0", "Bad", "T4", "15360", "0") "," CARD_OF(
                                     "1", "Healthy", "T4", "15360", "12288")),
            .pods = POD_OF("w", "", "15", "")},
        "w", NULL);
    ck_assert_contains(text, "  - the pod fits on node n1 if GPU0 becomes healthy\n");
    ck_assert_contains(
        text, "  - the pod fits on node n1 if processes outside Kubernetes free 11 "
              "GiB of GPU1\n");
    ck_assert_contains(text,
                       "  - request 4 GiB instead of 15 GiB: the pod fits on node n1\n");
}
END_TEST

START_TEST(overuse_and_external_use)
{
    static const struct {
        const char *scv, *change, *card;
    } cases[] = {
        {SCV_USED("n1", "15360", "14336", "u-a", "8192", "6144"),
         "the pod fits on node n1 if processes outside Kubernetes free 5 GiB of GPU0 and "
         "pods that use more than their promises free 6 GiB of GPU0\n",
         "; used outside Kubernetes: 5 GiB; used by pods beyond their promises: 6 GiB"},
        {SCV_USED("n1", "15360", "8192", "u-a", "8192", "0"),
         "the pod fits on node n1 if pods that use more than their promises free 5 GiB "
         "of "
         "GPU0\n",
         "; used by pods beyond their promises: 5 GiB"},
        {SCV_USED("n1", "15360", "8192", "u-a", "2048", "6144"),
         "the pod fits on node n1 if processes outside Kubernetes free 5 GiB of GPU0\n",
         "; used outside Kubernetes: 5 GiB"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_free char *text =
            explained(&(struct lists){.nodes = NODE("n1", "15", "1"),
                                      .scvs = cases[i].scv,
                                      .pods = POD_OF("a", "n1", "2", IDX("0")) "," POD_OF(
                                          "w", "", "13", "")},
                      "w", NULL);
        ck_assert_contains(text, cases[i].change);
        ck_assert_contains(text, cases[i].card);
    }
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
    ck_assert_contains(text, "the largest card has 15360 MiB");
    ck_assert_contains(text, "too small; promised: ns/d");
    ck_assert_contains(text, "No single change would let the pod fit");
}
END_TEST

START_TEST(pods_that_fit_or_are_bound)
{
    struct lists items = {
        .nodes = TWO_NODES,
        .scvs = TWO_SCVS,
        .pods = POD_OF("w", "", "8", "") "," POD_OF(
            "a", "n1", "2", IDX("1") ",\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"true\"")};
    cleanup_free char *fits = explained(&items, "w", NULL);
    ck_assert_contains(fits,
                       "The request fits on 2 nodes. kube-scheduler decides the rest");
    ck_assert_contains(fits, "fits: GPU1"); /* the fuller card */
    cleanup_free char *bound = explained(&items, "a", NULL);
    ck_assert_contains(bound,
                       "pod ns/a is bound to node n1, not running yet; requests 2 GiB\n");
    ck_assert_contains(bound,
                       "  GPU1  Tesla T4  GPU-1  2 GiB promised of 15 GiB; in use by all "
                       "processes: 0 GiB; Healthy\n");
    ck_assert_contains(
        bound,
        "  annotation ALIYUN_COM_GPU_MEM_IDX \"1\", in the form of the Go extender");
    ck_assert_contains(bound, "  confirmed by the device plugin\n");
    items.pods = "{\"metadata\":{\"name\":\"plain\",\"namespace\":\"ns\",\"uid\":\"u\"},"
                 "\"spec\":{\"containers\":[]}}";
    cleanup_free char *plain = explained(&items, "plain", NULL);
    ck_assert_contains(plain, "requests no GPU memory");
    items.pods = POD_OF("bad", "", "1.5", "");
    cleanup_free char *bad = explained(&items, "bad", NULL);
    ck_assert_contains(bad, "pod ns/bad is pending; request invalid: ");
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
    ck_assert_contains(text, "pod ns/w is pending; requests 2 whole cards");
    ck_assert_contains(
        text, "GPU1  14/15            not entirely free; promised: ns/a 1 GiB\n");
    ck_assert_contains(text,
                       "  - the pod fits on node n1 without pod ns/a (1 GiB on GPU1)\n");
    ck_assert_contains(text,
                       "  - request 1 card instead of 2: the pod fits on node n1\n");
}
END_TEST

/* A pod of nvidia.com/gpu with a model; the podList names the pod that has the card. */
#define NVIDIA_OF(name, node)                                                            \
    "{\"metadata\":{\"name\":\"" name "\",\"namespace\":\"ns\",\"uid\":\"u-" name        \
    "\",\"annotations\":{\"nvidia-gpu-scheduler/gpu.model\":\"Tesla T4\"}},\"spec\":{"   \
    "\"nodeName\":\"" node                                                               \
    "\",\"containers\":[{\"name\":\"c\",\"resources\":{\"limits\":{"                     \
    "\"nvidia.com/gpu\":\"1\"}}}]},\"status\":{\"phase\":\"Pending\"}}"

START_TEST(the_card_is_allocated_by_nvidias_plugin)
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
    ck_assert_contains(
        text, "  - the pod fits on node n1 without pod ns/a (1 nvidia.com/gpu)\n");
}
END_TEST

START_TEST(nodes_that_could_be_back_in_service)
{
    struct lists items = {
        .nodes =
            "{\"metadata\":{\"name\":\"n1\",\"labels\":{\"gpushare/mode\":\"card\"}}}",
        .scvs = SCV_OF("n1", T4("0")),
        .pods = POD_OF("w", "", "8", ""),
    };
    cleanup_free char *mode = explained(&items, "w", NULL);
    ck_assert_contains(mode, "node label gpushare/mode=card: whole cards only");
    ck_assert_contains(mode,
                       "  - the pod fits on node n1 without the label gpushare/mode\n");
    items.nodes = NODE("n1", "15", "1");
    items.configmaps = "{\"metadata\":{\"name\":\"unhealthy-gpu-n1\",\"namespace\":"
                       "\"kube-system\"},\"data\":{\"gpus\":\"0\"}}";
    cleanup_free char *listed = explained(&items, "w", NULL);
    ck_assert_contains(listed, "excluded by the ConfigMap");
    ck_assert_contains(
        listed, "  - the pod fits on node n1 if GPU0 is removed from the ConfigMap\n");
    items.configmaps = "{\"metadata\":{\"name\":\"unhealthy-gpu-n1\",\"namespace\":"
                       "\"kube-system\"},\"data\":{\"gpus\":\"zero\"}}";
    cleanup_free char *damaged = explained(&items, "w", NULL);
    ck_assert_contains(
        damaged, "  - the pod fits on node n1 once this is resolved: ConfigMap "
                 "unhealthy-gpu-n1 is not a comma-separated list of card indexes\n");
}
END_TEST

START_TEST(memory_reserved_for_a_nominated_pod)
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
    ck_assert_contains(text, "free, but reserved for pods nominated to this node");
    ck_assert_contains(
        text, "  - node n2 has enough free memory, but reserves it for pod ns/v, "
              "nominated to this node\n");
    ck_assert_contains(text,
                       "  - request 3 GiB instead of 8 GiB: the pod fits on node n2\n");
}
END_TEST

#define LOW(name, card, priority)                                                        \
    "{\"metadata\":{\"name\":\"" name "\",\"namespace\":\"ns\",\"uid\":\"u-" name        \
    "\",\"annotations\":{" IDX(                                                          \
        card) "}},\"spec\":{\"nodeName\":\"n1\",\"priority\":" priority                  \
              ",\"containers\":[{\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":"     \
              "\"10\"}}}]},\"status\":{\"phase\":\"Running\"}}"
#define HIGH(priority, units)                                                            \
    "{\"metadata\":{\"name\":\"w\",\"namespace\":\"ns\",\"uid\":\"u-w\"},\"spec\":{"     \
    "\"priority\":" priority ",\"containers\":[{\"resources\":{\"limits\":{"             \
    "\"aliyun.com/gpu-mem\":\"" units "\"}}}]},\"status\":{\"phase\":\"Pending\"}}"

/* 5 GiB are free on each of two cards. */
START_TEST(what_layout_preemption_would_do)
{
    static const char total[] = "Node n1 has enough free memory in total, so "
                                "kube-scheduler evicts no pods there. "
                                "With --preempt-after, the extender would ";
    struct lists items = {
        .nodes = NODE("n1", "30", "2"),
        .scvs = SCV_OF("n1", T4("0") "," T4("1")),
        .pods = LOW("a", "0", "5") "," LOW("b", "1", "7") "," HIGH("100", "8")};
    cleanup_free char *high = explained(&items, "w", NULL);
    ck_assert_contains(high, total);
    ck_assert_contains(high, "would evict 1 pod of priority 5, if "
                             "kube-scheduler offers this node.\n");
    items.pods = LOW("a", "0", "5") "," LOW("b", "1", "7") "," HIGH("5", "8");
    cleanup_free char *equal = explained(&items, "w", NULL);
    ck_assert_contains(equal, total);
    ck_assert_contains(equal, "would do so for a pod of priority 6 or higher.\n");
    items.pods = LOW("a", "0", "5") "," LOW("b", "1", "7") "," HIGH("100", "11");
    cleanup_free char *large = explained(&items, "w", NULL);
    ck_assert_ptr_null(strstr(large, "--preempt-after"));
    items.pods = LOW("a", "0", "5") "," LOW("b", "1", "7") "," HIGH(
        "100,\"preemptionPolicy\":\"Never\"", "8");
    cleanup_free char *never = explained(&items, "w", NULL);
    ck_assert_ptr_null(strstr(never, "--preempt-after"));
    items.pods =
        LOW("a", "0", "2000000000") "," LOW("b", "1", "2000000000") "," HIGH("100", "8");
    cleanup_free char *critical = explained(&items, "w", NULL);
    ck_assert_ptr_null(strstr(critical, "--preempt-after"));
    /* kube-scheduler does not offer a node without CPU for the pod. */
    items.pods = LOW("a", "0", "-5") "," LOW("b", "1", "-5") "," ASKS("w", "", "Pending",
                                                                      "2", "1Gi", GPU);
    items.nodes = SPACE("n1", "2", "8Gi", "110");
    cleanup_free char *offered = explained(&items, "w", NULL);
    ck_assert_contains(offered, "--preempt-after");
    items.nodes = SPACE("n1", "1", "8Gi", "110");
    cleanup_free char *crowded = explained(&items, "w", NULL);
    ck_assert_ptr_null(strstr(crowded, "--preempt-after"));
}
END_TEST

/* With the extender's view: its members after the given ones are those of a leader. */
static char *viewed(const struct lists *items, const char *more, const char *preemption)
{
    cleanup_free char *text = xasprintf(
        "{%s,\"holder\":\"b@10.0.0.7:12345\",\"pendingPods\":[{\"uid\":\"u-other\"},"
        "{\"uid\":\"u-w\"%s%s%s}]}",
        more, preemption[0] ? ",\"preemption\":{" : "", preemption,
        preemption[0] ? "}" : "");
    json_t *view = json_loads(text, 0, NULL);
    ck_assert_msg(view, "%s", text);
    char *out = explained_by(items, "w",
                             (struct explain_facts){.view = view, .now_s = 1000000000});
    json_decref(view);
    return out;
}

#define LEADS "\"preemptAfterSeconds\":30,\"leader\":true"
#define IS_ON "Layout preemption is on (--preempt-after 30s)"

START_TEST(what_layout_preemption_does_by_the_extenders_view)
{
    static const struct {
        const char *view, *preemption, *texts[4];
    } cases[] = {
        {"\"preemptAfterSeconds\":0,\"leader\":true",
         "",
         {"Layout preemption is off: the extender runs without --preempt-after.\n",
          "would evict 1 pod of priority 5, "}},
        {"\"leader\":true", /* an older extender */
         "",
         {"Whether it does is not known without --extender.\n"}},
        {"\"preemptAfterSeconds\":30,\"leader\":false",
         "",
         {IS_ON "; the replica that answered does not lead. The leader is "
                "b@10.0.0.7:12345.\n"}},
        {LEADS,
         "",
         {IS_ON ", but does nothing for this pod: since the extender leads, filter has "
                "not rejected it where evictions could help.\n"}},
        {LEADS,
         "\"state\":\"waiting\",\"since\":\"2001-09-09T01:46:20Z\",\"searchAfter\":"
         "\"2001-09-09T01:46:50Z\",\"candidateNodes\":2",
         {IS_ON ":\n  evictions could help on 2 nodes, since 2001-09-09T01:46:20Z "
                "(20 s ago)\n  the leader searches for victims from "
                "2001-09-09T01:46:50Z (in 10 s) on, for one pod after the other\n",
          "would evict 1 pod of priority 5, "}},
        {LEADS,
         "\"state\":\"waiting\",\"since\":\"x\\u001b[2J\",\"lastSearch\":"
         "\"no-victims\",\"refusedEvictions\":2,\"refusedByBudget\":true",
         {"  the last search found no victims: pods of lower priority do not suffice, or "
          "may not be evicted\n",
          "  refused evictions: 2, the last one by a PodDisruptionBudget\n",
          "since x?[2J\n"}},
        {LEADS,
         "\"state\":\"waiting\",\"lastSearch\":\"not-needed\",\"refusedEvictions\":1",
         {"  the last search found that the pod fits when terminating pods have left\n",
          "  refused evictions: 1, the last one by the API server\n"}},
        {LEADS,
         "\"state\":\"evicting\",\"node\":\"n1\",\"victims\":2,\"victimsLeft\":1",
         {"  the cards on node n1 are kept for the pod; victims: 2, not evicted yet: "
          "1\n"}},
        {LEADS,
         "\"state\":\"limited\",\"node\":\"n1\",\"victims\":1,\"victimsLeft\":0,"
         "\"noEvictionBefore\":\"2001-09-09T01:51:40Z\"",
         {"  the cards on node n1 are kept for the pod; victims: 1, not evicted yet: 0\n"
          "  no further pod is evicted for it before 2001-09-09T01:51:40Z (in 300 s)\n"}},
    };
    struct lists items = {
        .nodes = NODE("n1", "30", "2"),
        .scvs = SCV_OF("n1", T4("0") "," T4("1")),
        .pods = LOW("a", "0", "5") "," LOW("b", "1", "7") "," HIGH("100", "8")};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_free char *text = viewed(&items, cases[i].view, cases[i].preemption);
        for (size_t k = 0; k < 4 && cases[i].texts[k]; k++)
            ck_assert_contains(text, cases[i].texts[k]);
        bool acts = strstr(cases[i].preemption, "evicting") ||
                    strstr(cases[i].preemption, "limited");
        ck_assert_msg(acts == !strstr(text, "would evict"), "%s", text);
    }
    items.pods = LOW("a", "0", "5") "," LOW("b", "1", "7") "," HIGH(
        "100,\"preemptionPolicy\":\"Never\"", "8");
    cleanup_free char *never = viewed(&items, LEADS, "");
    ck_assert_contains(never,
                       IS_ON ", but evicts no pod for this one: preemptionPolicy is "
                             "Never.\n");
    items.pods = HIGH("100", "8"); /* it fits */
    cleanup_free char *fits = viewed(&items, LEADS, "");
    ck_assert_ptr_null(strstr(fits, "preemption"));
}
END_TEST

#define RESERVED(pods)                                                                   \
    "{\"nodes\":[{\"name\":\"n1\",\"devs\":[{\"id\":0},{\"id\":1,\"reservations\":"      \
    "[" pods "]}]}]}"

START_TEST(cards_that_are_reserved_until_bind)
{
    static const char view[] =
        RESERVED("{\"name\":\"v\\u001b[2J\",\"namespace\":\"ns\",\"uid\":\"u-v\",\"mib\":"
                 "4096},{\"name\":\"u\",\"namespace\":\"ns\",\"mib\":2048}");
    static const char own[] =
        RESERVED("{\"name\":\"w\",\"namespace\":\"ns\",\"uid\":\"u-w\",\"mib\":8192}");
    const struct lists items = {.nodes = NODE("n1", "30", "2"),
                                .scvs = SCV_OF("n1", T4("0") "," T4("1")),
                                .pods = POD_OF("w", "", "8", "")};
    json_t *j = json_loads(view, 0, NULL), *k = json_loads(own, 0, NULL);
    ck_assert(j && k);
    cleanup_free char *others =
        explained_by(&items, "w", (struct explain_facts){.view = j});
    ck_assert_contains(others, "GPU0  15/15            fits\n");
    ck_assert_contains(others,
                       "GPU1  15/15            fits; reserved: ns/v?[2J 4 GiB, ns/u "
                       "2 GiB\n");
    ck_assert_ptr_null(strstr(others, "Reserved for this pod"));
    cleanup_free char *mine =
        explained_by(&items, "w", (struct explain_facts){.view = k});
    ck_assert_contains(mine, "Reserved for this pod until its bind: GPU1 of node n1.\n");
    json_decref(j);
    json_decref(k);
}
END_TEST

/* The gang of w needs a place for so many members, by its PodGroup. */
START_TEST(a_member_that_does_not_wait_for_its_gang)
{
    const struct lists items = {
        .nodes = NODE("n1", "30", "2"),
        .scvs = SCV_OF("n1", T4("0") "," T4("1")),
        .pods = POD_OF("a", "n1", "9", IDX("0")) "," GANG_POD("v") "," GANG_POD("w")};
    cleanup_free char *unknown = explained_by(&items, "w", (struct explain_facts){0});
    ck_assert_contains(unknown, "gang g: 1 of 2 members finds no place");
    cleanup_free char *waits =
        explained_by(&items, "w", (struct explain_facts){.minimum = 3});
    ck_assert_contains(waits, "gang g: 1 of 2 members finds no place");
    cleanup_free char *alone =
        explained_by(&items, "w", (struct explain_facts){.minimum = 1});
    ck_assert_ptr_null(strstr(alone, "gang"));
    ck_assert_contains(alone, "The request fits on 1 node.");
}
END_TEST

#define CORDONED(name)                                                                   \
    "{\"metadata\":{\"name\":\"" name "\"},\"spec\":{\"unschedulable\":true}}"
#define OFFERED "cordoned: kube-scheduler offers it only to pods that tolerate the taint"

START_TEST(a_pod_that_fits_only_on_cordoned_nodes)
{
    struct lists items = {.nodes = NODE("n1", "30", "2") "," CORDONED("n2"),
                          .scvs = TWO_SCVS,
                          .pods = FULL_PODS "," POD_OF("w", "", "6", "")};
    cleanup_free char *text = explained(&items, "w", NULL);
    ck_assert_contains(text, OFFERED "\n");
    ck_assert_contains(text, "The request fits only on 1 cordoned node.\n"
                             "Each of these changes alone would let the pod fit:\n"
                             "  - kubectl uncordon n2: the pod fits there\n"
                             "  - the pod fits on node n1 without pod ns/");
    ck_assert_contains(text,
                       "  - request 3 GiB instead of 6 GiB: the pod fits on node n1\n");
    ck_assert_ptr_null(strstr(text, ". kube-scheduler decides"));
    items.nodes = CORDONED("n1") "," CORDONED("n2");
    items.pods = POD_OF("w", "", "6", "");
    cleanup_free char *two = explained(&items, "w", NULL);
    ck_assert_contains(two, "The request fits only on 2 cordoned nodes.\n");
    ck_assert_contains(
        two, "  - kubectl uncordon n1: the pod fits there and on 1 more cordoned "
             "node\n");
    ck_assert_ptr_null(strstr(two, "  - request "));
    items.nodes = NODE("n1", "30", "2") "," CORDONED("n2");
    cleanup_free char *other = explained(&items, "w", NULL);
    ck_assert_contains(other, "The request fits on 1 node. kube-scheduler decides");
    ck_assert_contains(other, OFFERED "\n");
    ck_assert_ptr_null(strstr(other, "uncordon"));
}
END_TEST

/* Uncordoning the node would not suffice. */
START_TEST(a_cordoned_node_without_enough_memory)
{
    struct lists items = {.nodes = NODE("n1", "30", "2") "," CORDONED("n2"),
                          .scvs = TWO_SCVS,
                          .pods = FULL_PODS "," POD_OF("w", "", "8", "")};
    cleanup_free char *text = explained(&items, "w", NULL);
    ck_assert_contains(text,
                       OFFERED "; needs 8192 MiB on one card; most free: 6144 of 15360 "
                               "MiB on GPU0\n");
    ck_assert_contains(text, "  - the pod fits on node n1 without pod ns/");
    ck_assert_contains(text,
                       "  - request 3 GiB instead of 8 GiB: the pod fits on node n1\n");
    ck_assert_ptr_null(strstr(text, "uncordon n"));
    ck_assert_ptr_null(strstr(text, "The request fits"));
    items.nodes = CORDONED("n2");
    items.scvs = SCV_OF("n2", T4("0"));
    cleanup_free char *none = explained(&items, "w", NULL);
    ck_assert_contains(
        none, "No single change would let the pod fit. The pod needs a node that is "
              "not cordoned, or one with more or larger cards.\n");
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
        bool fits = strstr(text, "The request fits on 1 node.") != NULL;
        ck_assert_msg(fits == cases[i].fits, "%s: %s", cases[i].pod, text);
        ck_assert_msg((strstr(text, OFFERED) == NULL) == fits, "%s", text);
    }
}
END_TEST

START_TEST(an_unknown_pod)
{
    struct cluster_state *cs = lib_cluster_state(&(struct lists){0});
    cleanup_buf struct buf out = {0};
    struct err err = {0};
    ck_assert_int_eq(
        explain_pod(&out, cs, SPAN("ns"), SPAN("x"), &(struct explain_facts){0}, &err),
        -1);
    ck_assert_int_eq(err.code, ERR_NOT_FOUND);
    ck_assert_contains(err.msg, "pod ns/x not found");
    cluster_state_free(cs);
}
END_TEST

UNIT_MAIN("explain", a_pending_pod_and_changes_that_would_help,
          a_model_with_an_escape_sequence, a_node_without_cpu_memory_or_pod_slots,
          a_gang_that_does_not_fit_together, a_model_that_no_node_has,
          unhealthy_cards_and_external_use, overuse_and_external_use,
          too_large_for_every_card, pods_that_fit_or_are_bound, whole_cards,
          the_card_is_allocated_by_nvidias_plugin, nodes_that_could_be_back_in_service,
          memory_reserved_for_a_nominated_pod, what_layout_preemption_would_do,
          what_layout_preemption_does_by_the_extenders_view,
          a_member_that_does_not_wait_for_its_gang, cards_that_are_reserved_until_bind,
          a_pod_that_fits_only_on_cordoned_nodes, a_cordoned_node_without_enough_memory,
          pods_that_tolerate_a_cordon, an_unknown_pod)
