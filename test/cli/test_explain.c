/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/explain.h"

#include "cli/lib.h"
#include "lib/lib.h"
#include "lib/program.h"

#define T4(id)              CARD_OF(id, "Healthy", "Tesla T4", "15360", "0")
#define W(units)            POD_OF("w", "", units, "")
#define ISOLATED(units, by) POD_OF("w", "", units, "\"gpushare/isolation\":\"" by "\"")
#define ONE(name)           .nodes = NODE(name, "15", "1"), .scvs = SCV_OF(name, T4("0"))
#define TWO_NODES           NODE("n1", "30", "2") "," NODE("n2", "15", "1")
#define TWO_SCVS            SCV_OF("n1", T4("0") "," T4("1")) "," SCV_OF("n2", T4("0"))
#define FULL_PODS                                                                        \
    POD_OF("a", "n1", "12", IDX("0"))                                                    \
    "," POD_OF("b", "n1", "10", IDX("1")) "," POD_OF(                                    \
        "c", "n1", "3", IDX("1")) "," POD_OF("d", "n2", "9", IDX("0"))

#define ESCAPE "\"nvidia-gpu-scheduler/gpu.model\":\"V\\u001b[2J\""

#define SPACE(name, cpu, memory, pods) OFFERS(name, cpu, memory, pods, "64")
#define OFFERS(name, cpu, memory, pods, units)                                           \
    "{\"metadata\":{\"name\":\"" name "\"},\"status\":{\"allocatable\":{\"cpu\":\"" cpu  \
    "\",\"memory\":\"" memory "\",\"pods\":\"" pods "\",\"aliyun.com/gpu-mem\":\"" units \
    "\"}}}"
#define ASKS(name, node, phase, cpu, memory, limits)                                     \
    "{\"metadata\":{\"name\":\"" name "\",\"namespace\":\"ns\",\"uid\":\"u-" name        \
    "\"},\"spec\":{" node "\"containers\":[{\"resources\":{\"requests\":{\"cpu\":\"" cpu \
    "\",\"memory\":\"" memory "\"}" limits "}}]},\"status\":{\"phase\":\"" phase "\"}}"
#define GPU      ",\"limits\":{\"aliyun.com/gpu-mem\":\"8\"}"
#define ON(node) "\"nodeName\":\"" node "\","

#define GANG_POD(id) POD_OF(id, "", "12", "\"scheduling.k8s.io/group-name\":\"g\"")

#define VW  POD_OF("a", "n1", "9", IDX("0")) "," GANG_POD("v") "," GANG_POD("w")
#define ACW GANG_POD("a") "," GANG_POD("w") "," GANG_POD("c")

#define CARDS_OF(name, cards)                                                            \
    "{\"metadata\":{\"name\":\"" name "\",\"namespace\":\"ns\",\"uid\":\"u-" name        \
    "\"},\"spec\":{\"containers\":[{\"name\":\"c\",\"resources\":{\"limits\":{"          \
    "\"aliyun.com/gpu-count\":\"" cards "\"}}}]},\"status\":{\"phase\":\"Pending\"}}"

#define LINK(id, row)                                                                    \
    "{\"id\":" id ",\"health\":\"Healthy\",\"uuid\":\"GPU-" id                           \
    "\",\"totalMemory\":15360,\"freeMemory\":15360,\"links\":\"" row "\"}"
#define LINKED                                                                           \
    SCV_OF("n1", LINK("0", "X NV4 SYS SYS") "," LINK("1", "NV4 X SYS NODE") "," LINK(    \
                     "2", "SYS SYS X NV4") "," LINK("3", "SYS NODE NV4 X"))
#define NEAR                                                                             \
    "{\"metadata\":{\"name\":\"w\",\"namespace\":\"ns\",\"uid\":\"u-w\","                \
    "\"annotations\":{\"gpushare/"                                                       \
    "min-link\":\"NV\"}},\"spec\":{\"containers\":[{\"name\":"                           \
    "\"c\",\"resources\":{\"limits\":{\"aliyun.com/gpu-count\":\"2\"}}}]},\"status\":{"  \
    "\"phase\":\"Pending\"}}"

#define NVIDIA_OF(name, node)                                                            \
    "{\"metadata\":{\"name\":\"" name "\",\"namespace\":\"ns\",\"uid\":\"u-" name        \
    "\",\"annotations\":{\"nvidia-gpu-scheduler/gpu.model\":\"Tesla T4\"}},\"spec\":{"   \
    "\"nodeName\":\"" node                                                               \
    "\",\"containers\":[{\"name\":\"c\",\"resources\":{\"limits\":{"                     \
    "\"nvidia.com/gpu\":\"1\"}}}]},\"status\":{\"phase\":\"Pending\"}}"

#define LOW(name, card, priority)                                                        \
    "{\"metadata\":{\"name\":\"" name "\",\"namespace\":\"ns\",\"uid\":\"u-" name        \
    "\",\"annotations\":{" IDX(                                                          \
        card) "}},\"spec\":{\"nodeName\":\"n1\",\"priority\":" priority                  \
              ",\"containers\":[{\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":"     \
              "\"10\"}}}]},\"status\":{\"phase\":\"Running\"}}"
#define LOWS   LOW("a", "0", "5") "," LOW("b", "1", "7") ","
#define HUNGRY ASKS("w", "", "Pending", "2", "1Gi", GPU)
#define HIGH(priority, units)                                                            \
    "{\"metadata\":{\"name\":\"w\",\"namespace\":\"ns\",\"uid\":\"u-w\"},\"spec\":{"     \
    "\"priority\":" priority ",\"containers\":[{\"resources\":{\"limits\":{"             \
    "\"aliyun.com/gpu-mem\":\"" units "\"}}}]},\"status\":{\"phase\":\"Pending\"}}"

#define RESERVED(pods)                                                                   \
    "{\"nodes\":[{\"name\":\"n1\",\"devs\":[{\"id\":0},{\"id\":1,\"reservations\":"      \
    "[" pods "]}]}]}"

#define CORDONED(name)                                                                   \
    "{\"metadata\":{\"name\":\"" name "\"},\"spec\":{\"unschedulable\":true}}"
#define OFFERED "cordoned: kube-scheduler offers it only to pods that tolerate the taint"

#define N1_MODE "{\"metadata\":{\"name\":\"n1\",\"labels\":{\"gpushare/mode\":\"card\"}}}"
#define LISTED(gpus)                                                                     \
    "{\"metadata\":{\"name\":\"unhealthy-gpu-n1\",\"namespace\":\"kube-system\"},"       \
    "\"data\":{\"gpus\":\"" gpus "\"}}"
#define NOMINATED                                                                        \
    ",{\"metadata\":{\"name\":\"v\",\"namespace\":\"ns\",\"uid\":\"u-v\"},\"spec\":{"    \
    "\"priority\":5,\"containers\":[{\"name\":\"c\",\"resources\":{\"limits\":{"         \
    "\"aliyun.com/gpu-mem\":\"12\"}}}]},\"status\":{\"phase\":\"Pending\","              \
    "\"nominatedNodeName\":\"n2\"}}"
#define HELD_BY_A                                                                        \
    "{\"metadata\":{\"name\":\"n1\"},\"status\":{\"cardList\":[" T4(                     \
        "0") "],"                                                                        \
             "\"podList\":[{\"namespace\":\"ns\",\"name\":\"a\",\"container\":\"c\","    \
             "\"resource\":\"nvidia.com/gpu\",\"units\":1,\"cards\":[\"GPU-0\"]}]}}"
#define ONE_NODE .nodes = NODE("n1", "30", "2"), .scvs = SCV_OF("n1", T4("0") "," T4("1"))
#define BOTH     .nodes = TWO_NODES, .scvs = TWO_SCVS
#define TOTAL                                                                            \
    "Node n1 has enough free memory in total, so kube-scheduler evicts no pods there. "  \
    "With --preempt-after, the extender would "
#define NEVER "100,\"preemptionPolicy\":\"Never\""
#define OLD_PODS                                                                         \
    ASKS("web", ON("n1"), "Running", "2500m", "1Gi", "")                                 \
    "," ASKS("db", ON("n2"), "Running", "1", "900Mi",                                    \
             "") "," ASKS("ds", ON("n2"), "Running", "0", "0",                           \
                          "") "," ASKS("done", ON("n1"), "Succeeded", "1", "1Gi", "")
#define WITHOUT        "  - the pod fits on node "
#define CLOCKED(notes) POD_OF("w", "", "8", notes "},\"labels\":{\"scv/clock\":\"9000\"")

#define CORDON .nodes = CORDONED("n2"), .scvs = SCV_OF("n2", T4("0"))
#define TOLERATES(members)                                                               \
    TERMS("\"tolerations\":[{\"key\":\"other\",\"operator\":\"Exists\"},{" members "}]"  \
          ",")
#define LEADS "\"preemptAfterSeconds\":30,\"leader\":true"
#define VIEW(more, preemption)                                                           \
    "{" more ",\"holder\":\"b@10.0.0.7:12345\",\"pendingPods\":[{\"uid\":\"u-other\"},"  \
    "{\"uid\":\"u-w\"" preemption "}]}"
#define STATE(state) VIEW(LEADS, ",\"preemption\":{\"state\":" state "}")
#define IS_ON        "Layout preemption is on (--preempt-after 30s)"
#define WOULD        "would evict 1 pod of priority 5, "
#define FAILED(reason, message)                                                          \
    "{\"spec\":{\"nodeName\":\"n1\"},\"status\":{\"phase\":\"Failed\",\"reason\":"       \
    "\"" reason "\",\"message\":\"" message "\"}}"

#define TAINTED(name)                                                                    \
    "{\"metadata\":{\"name\":\"" name                                                    \
    "\"},\"spec\":{\"taints\":[{\"key\":\"k\",\"effect\":\"NoSchedule\"}]},\"status\":{" \
    "\"capacity\":{\"aliyun.com/gpu-mem\":\"15\"}}}"
#define FULL_N1 POD_OF("a", "n1", "12", IDX("0")) "," POD_OF("b", "n1", "10", IDX("1"))
#define ONLY_N1                                                                          \
    "\"affinity\":{\"nodeAffinity\":{"                                                   \
    "\"requiredDuringSchedulingIgnoredDuringExecution\":{\"nodeSelectorTerms\":[{"       \
    "\"matchFields\":[{\"key\":\"metadata.name\",\"operator\":\"In\",\"values\":["       \
    "\"n1\"]}]}]}}},"
#define TERMS(terms)                                                                     \
    "{\"metadata\":{\"name\":\"w\",\"namespace\":\"ns\",\"uid\":\"u-w\"},\"spec\":"      \
    "{" terms                                                                            \
    "\"containers\":[{\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":\"8\"}}}]},"     \
    "\"status\":{\"phase\":\"Pending\"}}"
#define CREATED(at, scheduler, conditions)                                               \
    "{\"metadata\":{\"creationTimestamp\":\"" at                                         \
    "\"},\"spec\":{\"schedulerName\":\"" scheduler                                       \
    "\"},\"status\":{\"phase\":\"Pending\",\"conditions\":[" conditions "]}}"
#define LEAVING                                                                          \
    "{\"metadata\":{\"name\":\"a\",\"namespace\":\"ns\",\"uid\":\"u-a\","                \
    "\"deletionTimestamp\":\"2001-09-09T01:46:05Z\",\"annotations\":{" IDX(              \
        "0") "}},"                                                                       \
             "\"spec\":{\"nodeName\":\"n1\",\"containers\":[{\"resources\":{\"limits\":" \
             "{"                                                                         \
             "\"aliyun.com/gpu-mem\":\"9\"}}}]},\"status\":{\"phase\":\"Running\"}}"
#define OF_G "\"scheduling.k8s.io/group-name\":\"g\",\"gpushare/gang-minimum\":\"3\""
#define HALF                                                                             \
    POD_OF("a", "n1", "12", IDX("0") "," OF_G)                                           \
    "," POD_OF("w", "", "12", OF_G) "," POD_OF("c", "", "12", OF_G)

#define SLOTTED                                                                          \
    "{\"metadata\":{\"name\":\"n1\"},\"status\":{\"capacity\":{\"aliyun.com/gpu-mem\":"  \
    "\"15\",\"aliyun.com/gpu-count\":\"1\",\"aliyun.com/gpu-share\":\"1\"}}}"
#define SLOT(name, node, notes)                                                          \
    "{\"metadata\":{\"name\":\"" name "\",\"namespace\":\"ns\",\"uid\":\"u-" name        \
    "\",\"annotations\":{\"gpushare/memory\":" notes "}},\"spec\":{\"nodeName\":\"" node \
    "\",\"containers\":[{\"name\":\"c\",\"resources\":{\"limits\":{"                     \
    "\"aliyun.com/gpu-share\":\"1\"}}}]},\"status\":{\"phase\":\"Pending\"}}"

/* What is said of a pod ("w", unless named) of a cluster, and what is not. */
static const struct {
    struct lists items;
    const char *pod, *object, *view, *has[6], *lacks[3];
    uint32_t minimum;
    const char *invalid, *members;
} texts[] = {
    /* A pending pod and changes that would help. */
    {{BOTH, .pods = FULL_PODS "," W("8")},
     .object =
         "{\"status\":{\"conditions\":[{\"type\":\"PodScheduled\",\"status\":\"False\","
         "\"message\":\"0/2 nodes: no\\u001b\"}]}}",
     .has = {"pod ns/w is pending; requests 8 GiB (priority 0)\n",
             "needs 8192 MiB on one card; most free: 3072 of 15360 MiB on GPU0",
             "GPU1  2/15             lacks 6 GiB; promised: ns/b 10 GiB, ns/c 3 GiB\n",
             WITHOUT "n2 without pod ns/d (9 GiB on GPU0)\n",
             "  - request 6 GiB instead of 8 GiB: the pod fits on node n2\n",
             "kube-scheduler: 0/2 nodes: no?\n"}},
    /* Users write models; an escape sequence must not reach the terminal. */
    {{BOTH, .pods = POD_OF("w", "", "8", ESCAPE)},
     .has = {"requests 8 GiB, model V?[2J (priority 0)"}},
    {{BOTH, .pods = POD_OF("v", "n1", "8", IDX("0") "," ESCAPE)},
     .pod = "v",
     .has = {"requests 8 GiB, model V?[2J\n"}},
    /* The cards are free, but pods without GPU have taken the rest of the node. */
    {{.nodes = SPACE("n1", "4", "8Gi", "110") "," SPACE("n2", "7", "1Gi", "2"),
      .scvs = TWO_SCVS,
      .pods = OLD_PODS "," ASKS("w", "", "Pending", "2", "200Mi", GPU)},
     .has =
         {"fits: GPU0; lacks CPU: the pod requests 2, free are 1.5\n",
          "fits: GPU0; lacks node memory: the pod requests 200 MiB, free are 124 MiB; "
          "no pod slot is free: 2 of 2 are taken\n",
          "The request for GPUs fits on 2 nodes, but not what the pod needs besides.\n"}},
    {{.nodes = SPACE("n1", "4", "8Gi", "110") "," SPACE("n2", "7", "1Gi", "2"),
      .scvs = TWO_SCVS,
      .pods = ASKS("w", "", "Pending", "4", "2Gi", GPU)},
     .has = {"The request fits on 1 node. kube-scheduler decides"}},
    /* The device plugin of n1 is gone. */
    {{.nodes = OFFERS("n1", "4", "8Gi", "110", "0") "," SPACE("n2", "7", "8Gi", "2"),
      .scvs = TWO_SCVS,
      .pods = ASKS("w", "", "Pending", "1", "2Gi", GPU)},
     .has = {"fits: GPU0; lacks aliyun.com/gpu-mem: no device plugin offers it on this "
             "node\n",
             "The request fits on 1 node."}},
    /* Slots, in percent and in MiB; then the one slot of the card is taken. */
    {{.nodes = SLOTTED,
      .scvs = SCV_OF("n1", T4("0")),
      .pods = POD_OF("a", "n1", "9", IDX("0")) "," SLOT("w", "", "\"80%\"")},
     .has = {"requests 80 % of the memory of a card (priority 0)\n",
             "needs 80 percent of the memory on one card; most free: 6144 of 15360 MiB "
             "on GPU0",
             "lacks 6 GiB; promised: ns/a 9 GiB\n",
             "  - request 40 % instead of 80 %: the pod fits on node n1\n"}},
    {{.nodes = SLOTTED,
      .scvs = SCV_OF("n1", T4("0")),
      .pods = POD_OF("a", "n1", "9", IDX("0")) "," SLOT("w", "", "\"6145Mi\"")},
     .has = {"requests 6145 MiB (priority 0)\n",
             "  - request 6144 MiB instead of 6145 MiB: the pod fits on node n1\n"}},
    {{.nodes = SLOTTED,
      .scvs = SCV_OF("n1", T4("0")),
      .pods = SLOT("a", "n1",
                   "\"1Gi\",\"gpushare/card-memory\":\"1024 "
                   "u-a\",\"gpushare/memory-unit\":\"1\"," IDX("0")) "," SLOT("w", "",
                                                                              "\"1Gi\"")},
     .has = {"too few free slots of aliyun.com/gpu-share: GPU0",
             "has too few free slots; promised: ns/a 1 GiB\n"}},
    /* The device plugin of n1 is of 1.0. */
    {{.nodes = OFFERS("n1", "4", "8Gi", "110", "30"),
      .scvs = SCV_OF("n1", T4("0")),
      .pods = SLOT("w", "", "\"1Gi\"")},
     .has = {"does not offer aliyun.com/gpu-share\n",
             WITHOUT "n1 once its device plugin offers aliyun.com/gpu-share\n"},
     .lacks = {"no device plugin offers it", "No single change"}},
    /* Gangs. The last two wait for so many members, by their PodGroup. */
    {{BOTH, .pods = ACW},
     .has = {"gang g: 0 of 3 members are bound; all fit together.\n"}},
    {{BOTH, .pods = ACW "," GANG_POD("d")},
     .has = {"gang g: 1 of 4 members finds no place beside the others; needs 12288 MiB "
             "on one card.\n"}},
    {{ONE_NODE, .pods = VW},
     .minimum = 3,
     .has = {"gang g: 1 of 2 members finds no place"}},
    {{ONE_NODE, .pods = VW},
     .minimum = 1,
     .has = {"The request fits on 1 node."},
     .lacks = {"gang"}},
    {{ONE_NODE, .pods = VW},
     .invalid = "minMember: -1 is not a number",
     .has = {"w is pending; request invalid: minMember: -1 is not a number"},
     .lacks = {"gang g"}},
    {{BOTH, .pods = POD_OF("w", "", "8", "\"gpushare/isolation\":\"limits\"")},
     .has = {"pod ns/w is pending; request invalid: annotation gpushare/isolation: "
             "\"limits\""}},
    {{BOTH, .pods = POD_OF("w", "", "8",
                           "\"nvidia-gpu-scheduler/gpu.model\":\"Tesla "
                           "V100\"")},
     .has =
         {"  - no node has model Tesla V100; models in the cluster: Tesla T4; with any "
          "model or clock, the pod fits on node n1\n"}},
    {{BOTH, .pods = CLOCKED("")},
     .has = {"  - no node has cards with memory clock at least 9000 MHz; models in the "
             "cluster: Tesla T4; with any model or clock, the pod fits on node n1\n"}},
    {{BOTH, .pods = CLOCKED("\"nvidia-gpu-scheduler/gpu.model\":\"Tesla T4\"")},
     .has = {"  - no node has model Tesla T4, memory clock at least 9000 MHz; models in "
             "the cluster: Tesla T4; with any"}},
    /* What no node, or only a full one, can enforce. */
    {{.nodes = TWO_NODES,
      .scvs = ISOLATING(LIBRARY, "n1", T4("0")) "," SCV_OF("n2", T4("0")),
      .pods = ISOLATED("8", "driver")},
     .has = {"requests 8 GiB, memory isolated by driver (priority 0)\n",
             "needs memory isolation by the driver; this node can enforce: library\n",
             "needs memory isolation by the driver; what this node can enforce is "
             "unknown\n",
             "  - a node whose driver is 615 or newer\n",
             "  - without annotation gpushare/isolation, the pod fits on node n1\n"}},
    {{.nodes = TWO_NODES,
      .scvs = ISOLATING(DRIVER, "n1", T4("0")) "," ISOLATING(LIBRARY, "n2", T4("0")),
      .pods = POD_OF("a", "n1", "9", IDX("0")) "," ISOLATED("8", "driver")},
     .has = {"  - a node whose driver is 615 or newer\n",
             WITHOUT "n1 without pod ns/a (9 GiB on GPU0)\n",
             "  - request 6 GiB instead of 8 GiB: the pod fits on node n1\n",
             "  - without annotation gpushare/isolation, the pod fits on node n2\n"}},
    {{.nodes = NODE("n1", "15", "1"),
      .scvs = ISOLATING(LIBRARY, "n1", T4("0")),
      .pods = POD_OF("a", "n1", "9", IDX("0")) "," ISOLATED("8", "driver")},
     .has = {"  - a node whose driver is 615 or newer\n"},
     .lacks = {"without annotation", "without pod"}},
    {{.nodes = NODE("n1", "15", "1"),
      .scvs = ISOLATING(DRIVER, "n1", T4("0")),
      .pods = ISOLATED("8", "limit-env")},
     .has = {"needs memory isolation by the library; this node can enforce: driver\n",
             "  - without annotation gpushare/isolation, the pod fits on node n1\n"},
     .lacks = {"615"}},
    {{.nodes = NODE("n1", "15", "1"),
      .scvs = ISOLATING("\"isolation\":[\"mps\"],", "n1", T4("0")),
      .pods = ISOLATED("8", "limit")},
     .has = {"needs memory isolation by the driver or library; this node can enforce: "
             "mps\n",
             "  - a node whose driver is 615 or newer\n",
             "  - without annotation gpushare/isolation, the pod fits on node n1\n"}},
    {{.nodes = NODE("n1", "15", "1"),
      .scvs = ISOLATING(DRIVER, "n1", T4("0")),
      .pods = ISOLATED("80", "driver")},
     .lacks = {"615", "without annotation"}},
    {{.nodes = NODE("n1", "30", "2"),
      .scvs = SCV_OF("n1", CARD_OF("0", "Bad", "T4", "15360", "0") "," CARD_OF(
                               "1", "Healthy", "T4", "15360", "12288")),
      .pods = W("15")},
     .has = {WITHOUT "n1 if GPU0 becomes healthy\n",
             WITHOUT "n1 if processes outside Kubernetes free 11 GiB of GPU1\n",
             "  - request 4 GiB instead of 15 GiB: the pod fits on node n1\n"}},
#define USES(used, by_pod, by_others)                                                    \
    {                                                                                    \
        .nodes = NODE("n1", "15", "1"),                                                  \
        .scvs = SCV_USED("n1", "15360", used, "u-a", by_pod, by_others),                 \
        .pods = POD_OF("a", "n1", "2", IDX("0")) "," W("13")                             \
    }
    {USES("14336", "8192", "6144"),
     .has = {WITHOUT
             "n1 if processes outside Kubernetes free 5 GiB of GPU0 and pods that "
             "use more than their promises free 6 GiB of GPU0\n",
             "; used outside Kubernetes: 5 GiB; used by pods beyond their promises: 6 "
             "GiB"}},
    {USES("8192", "8192", "0"),
     .has = {WITHOUT "n1 if pods that use more than their promises free 5 GiB of GPU0\n",
             "; used by pods beyond their promises: 5 GiB"}},
    {USES("8192", "2048", "6144"),
     .has = {WITHOUT "n1 if processes outside Kubernetes free 5 GiB of GPU0\n",
             "; used outside Kubernetes: 5 GiB"}},
    {{ONE("n2"), .pods = POD_OF("d", "n2", "15", IDX("0")) "," W("80")},
     .has = {"the largest card has 15360 MiB", "too small; promised: ns/d",
             "No single change would let the pod fit"}},
    {{BOTH, .pods = W("8") "," POD_OF("a", "n1", "2", IDX("1"))},
     .has = {"The request fits on 2 nodes. kube-scheduler decides the rest",
             "fits: GPU1" /* the fuller card */}},
    {{BOTH, .pods = POD_OF("a", "n1", "2",
                           IDX("1") ",\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"true\"")},
     .pod = "a",
     .lacks = {"enforced by"},
     .has = {"pod ns/a is bound to node n1, not running yet; requests 2 GiB\n",
             "  GPU1  Tesla T4  GPU-1  2 GiB promised of 15 GiB; in use by all "
             "processes: 0 GiB; Healthy\n",
             "  annotation ALIYUN_COM_GPU_MEM_IDX \"1\", in the form of the Go extender",
             "  confirmed by the device plugin\n"}},
    {{.nodes = NODE("n1", "15", "1"),
      .scvs = ISOLATING("\"podList\":[{\"namespace\":\"ns\",\"name\":\"a\",\"usage\":[{"
                        "\"uuid\":\"GPU-0\",\"enforcedBy\":[\"driver\"]}]}],",
                        "n1", T4("0")),
      .pods = POD_OF("a", "n1", "2", IDX("0"))},
     .pod = "a",
     .has = {"2 GiB promised of 15 GiB; enforced by driver; in use by all processes: "}},
    {{BOTH, .pods = "{\"metadata\":{\"name\":\"w\",\"namespace\":\"ns\",\"uid\":\"u\"},"
                    "\"spec\":{\"containers\":[]}}"},
     .has = {"requests no GPU memory"}},
    {{BOTH, .pods = W("1.5")}, .has = {"pod ns/w is pending; request invalid: "}},
    {{BOTH, .pods = POD_OF("a", "n1", "1", IDX("1")) "," CARDS_OF("w", "2")},
     .has = {"pod ns/w is pending; requests 2 whole cards",
             "GPU1  14/15            not entirely free; promised: ns/a 1 GiB\n",
             WITHOUT "n1 without pod ns/a (1 GiB on GPU1)\n",
             "  - request 1 card instead of 2: the pod fits on node n1\n"}},
    {{.nodes = NODE("n1", "60", "4"),
      .scvs = LINKED,
      .pods =
          POD_OF("a", "n1", "1", IDX("0")) "," POD_OF("b", "n1", "1", IDX("2")) "," NEAR},
     .has = {"pod ns/w is pending; requests 2 whole cards, each two connected by NV or "
             "better",
             "; free cards: 2 of 4; no 2 of them are so connected",
             WITHOUT "n1 without pod ns/",
             "  - request 1 card instead of 2: the pod fits on node n1\n",
             "  - annotation gpushare/min-link NODE instead of NV: the pod fits on node "
             "n1\n"}},
    {{.nodes = NODE("n1", "15", "1"),
      .scvs = HELD_BY_A,
      .pods = NVIDIA_OF("a", "n1") "," NVIDIA_OF("w", "")},
     .has = {WITHOUT "n1 without pod ns/a (1 nvidia.com/gpu)\n",
             "allocated through nvidia.com/gpu (pod ns/a)\n"}},
    /* The kubelet gives a card whatever processes of others use of it. */
    {{.nodes = NODE("n1", "15", "1"),
      .scvs = SCV_OF("n1", CARD_OF("0", "Healthy", "Tesla T4", "15360", "12288")),
      .pods = NVIDIA_OF("w", "")},
     .has = {"fits; used outside Kubernetes: 11 GiB\n"}},
    /* Nodes that could be back in service. */
    {{.nodes = N1_MODE, .scvs = SCV_OF("n1", T4("0")), .pods = W("8")},
     .has = {"node label gpushare/mode=card: whole cards only",
             WITHOUT "n1 without the label gpushare/mode\n"}},
    {{ONE("n1"), .configmaps = LISTED("0"), .pods = W("8")},
     .has = {"excluded by the ConfigMap",
             WITHOUT "n1 if GPU0 is removed from the ConfigMap\n"}},
    {{ONE("n1"), .configmaps = LISTED("zero"), .pods = W("8")},
     .has = {WITHOUT "n1 once this is resolved: ConfigMap unhealthy-gpu-n1 is not a "
                     "comma-separated list of card indexes\n"}},
    {{ONE("n2"), .pods = W("8") NOMINATED},
     .has =
         {"free, but reserved for pods nominated to this node",
          "  - node n2 has enough free memory, but reserves it for pod ns/v, nominated "
          "to this node\n",
          "  - request 3 GiB instead of 8 GiB: the pod fits on node n2\n"}},
    /* What layout preemption would do: 5 GiB are free on each of two cards. */
    {{ONE_NODE, .pods = LOWS HIGH("100", "8")},
     .has = {TOTAL "evict 1 pod of priority 5, if kube-scheduler offers this node.\n"}},
    {{ONE_NODE, .pods = LOWS HIGH("5", "8")},
     .has = {TOTAL "do so for a pod of priority 6 or higher.\n"}},
    {{ONE_NODE, .pods = LOWS HIGH("100", "11")}, .lacks = {"--preempt-after"}},
    {{ONE_NODE, .pods = LOWS HIGH(NEVER, "8")}, .lacks = {"--preempt-after"}},
    {{ONE_NODE, .pods = LOW("a", "0", "2000000000") "," LOW(
                    "b", "1", "2000000000") "," HIGH("100", "8")},
     .lacks = {"--preempt-after"}},
    /* kube-scheduler does not offer a node without CPU for the pod. */
    {{.nodes = SPACE("n1", "2", "8Gi", "110"),
      .scvs = SCV_OF("n1", T4("0") "," T4("1")),
      .pods = LOW("a", "0", "-5") "," LOW("b", "1", "-5") "," HUNGRY},
     .has = {"--preempt-after"}},
    {{.nodes = SPACE("n1", "1", "8Gi", "110"),
      .scvs = SCV_OF("n1", T4("0") "," T4("1")),
      .pods = LOW("a", "0", "-5") "," LOW("b", "1", "-5") "," HUNGRY},
     .lacks = {"--preempt-after"}},
    /* Cards that are reserved until bind. */
    {{ONE_NODE, .pods = W("8")},
     .view = RESERVED("{\"name\":\"v\\u001b[2J\",\"namespace\":\"ns\",\"uid\":\"u-v\","
                      "\"mib\":4096},{\"name\":\"u\",\"namespace\":\"ns\",\"mib\":2048}"),
     .has = {"GPU0  15/15            fits\n",
             "GPU1  15/15            fits; reserved: ns/v?[2J 4 GiB, ns/u 2 GiB\n"},
     .lacks = {"Reserved for this pod"}},
    {{ONE_NODE, .pods = W("8")},
     .view =
         RESERVED("{\"name\":\"w\",\"namespace\":\"ns\",\"uid\":\"u-w\",\"mib\":8192}"),
     .has = {"Reserved for this pod until its bind: GPU1 of node n1.\n"}},
    /* Cordoned nodes. */
    {{.nodes = NODE("n1", "30", "2") "," CORDONED("n2"),
      .scvs = TWO_SCVS,
      .pods = FULL_PODS "," W("6")},
     .has = {OFFERED "\n",
             "The request fits only on 1 cordoned node.\n"
             "Each of these changes alone would let the pod fit:\n"
             "  - kubectl uncordon n2: the pod fits there\n" WITHOUT "n1 without pod ns/",
             "  - request 3 GiB instead of 6 GiB: the pod fits on node n1\n"},
     .lacks = {". kube-scheduler decides"}},
    {{.nodes = CORDONED("n1") "," CORDONED("n2"), .scvs = TWO_SCVS, .pods = W("6")},
     .has = {"The request fits only on 2 cordoned nodes.\n",
             "  - kubectl uncordon n1: the pod fits there and on 1 more cordoned node\n"},
     .lacks = {"  - request "}},
    {{.nodes = NODE("n1", "30", "2") "," CORDONED("n2"),
      .scvs = TWO_SCVS,
      .pods = W("6")},
     .has = {"The request fits on 1 node. kube-scheduler decides", OFFERED "\n"},
     .lacks = {"uncordon"}},
    /* Uncordoning the node would not suffice. */
    {{.nodes = NODE("n1", "30", "2") "," CORDONED("n2"),
      .scvs = TWO_SCVS,
      .pods = FULL_PODS "," W("8")},
     .has = {OFFERED "; needs 8192 MiB on one card; most free: 6144 of 15360 MiB on "
                     "GPU0\n",
             WITHOUT "n1 without pod ns/",
             "  - request 3 GiB instead of 8 GiB: the pod fits on node n1\n"},
     .lacks = {"uncordon n", "The request fits"}},
    {{.nodes = CORDONED("n2"),
      .scvs = SCV_OF("n2", T4("0")),
      .pods = FULL_PODS "," W("8")},
     .has = {"No single change would let the pod fit. The pod needs a node that is not "
             "cordoned, or one with more or larger cards.\n"}},
    /* Nodes that the pod tolerates, and not. */
    {{CORDON,
      .pods = TOLERATES("\"key\":\"node.kubernetes.io/unschedulable\",\"operator\":"
                        "\"Exists\",\"effect\":\"NoSchedule\"")},
     .has = {"The request fits on 1 node."},
     .lacks = {OFFERED}},
    {{CORDON, .pods = TOLERATES("\"operator\":\"Exists\",\"effect\":\"NoExecute\"")},
     .has = {OFFERED},
     .lacks = {"The request fits on 1 node."}},
    /* What layout preemption does by the extender's view. */
    {{ONE_NODE, .pods = LOWS HIGH("100", "8")},
     .view = VIEW("\"preemptAfterSeconds\":0,\"leader\":true", ""),
     .has = {"Layout preemption is off: the extender runs without --preempt-after.\n",
             WOULD}},
    {{ONE_NODE, .pods = LOWS HIGH("100", "8")},
     .view = VIEW("\"leader\":true", ""), /* an older extender */
     .has = {"Whether it does is not known without --extender.\n", WOULD}},
    {{ONE_NODE, .pods = LOWS HIGH("100", "8")},
     .view = VIEW("\"preemptAfterSeconds\":30,\"leader\":false", ""),
     .has = {IS_ON "; the replica that answered does not lead. The leader is "
                   "b@10.0.0.7:12345.\n",
             WOULD}},
    {{ONE_NODE, .pods = LOWS HIGH("100", "8")},
     .view = VIEW(LEADS, ""),
     .has = {IS_ON
             ", but does nothing for this pod: since the extender leads, filter has "
             "not rejected it where evictions could help.\n",
             WOULD}},
    {{ONE_NODE, .pods = LOWS HIGH("100", "8")},
     .view = STATE("\"waiting\",\"since\":\"2001-09-09T01:46:20Z\",\"searchAfter\":"
                   "\"2001-09-09T01:46:50Z\",\"candidateNodes\":2"),
     .has = {IS_ON ":\n  evictions could help on 2 nodes, since 2001-09-09T01:46:20Z "
                   "(20 s ago)\n  the leader searches for victims from "
                   "2001-09-09T01:46:50Z (in 10 s) on, for one pod after the other\n",
             WOULD}},
    {{ONE_NODE, .pods = LOWS HIGH("100", "8")},
     .view = STATE("\"waiting\",\"since\":\"x\\u001b[2J\",\"lastSearch\":"
                   "\"no-victims\",\"refusedEvictions\":2,\"refusedByBudget\":true"),
     .has = {"  the last search found no victims: pods of lower priority do not suffice, "
             "or may not be evicted\n",
             "  refused evictions: 2, the last one by a PodDisruptionBudget\n",
             "since x?[2J\n", WOULD}},
    {{ONE_NODE, .pods = LOWS HIGH("100", "8")},
     .view = STATE("\"waiting\",\"lastSearch\":\"not-needed\",\"refusedEvictions\":1"),
     .has =
         {"  the last search found that the pod fits when terminating pods have left\n",
          "  refused evictions: 1, the last one by the API server\n", WOULD}},
    {{ONE_NODE, .pods = LOWS HIGH("100", "8")},
     .view = STATE("\"evicting\",\"node\":\"n1\",\"victims\":2,\"victimsLeft\":1"),
     .has = {"  the cards on node n1 are kept for the pod; victims: 2, not evicted yet: "
             "1\n"},
     .lacks = {"would evict"}},
    {{ONE_NODE, .pods = LOWS HIGH("100", "8")},
     .view = STATE("\"limited\",\"node\":\"n1\",\"victims\":1,\"victimsLeft\":0,"
                   "\"noEvictionBefore\":\"2001-09-09T01:51:40Z\""),
     .has =
         {"  the cards on node n1 are kept for the pod; victims: 1, not evicted yet: 0\n"
          "  no further pod is evicted for it before 2001-09-09T01:51:40Z (in 300 s)\n"},
     .lacks = {"would evict"}},
    {{ONE_NODE, .pods = LOWS HIGH(NEVER, "8")},
     .view = VIEW(LEADS, ""),
     .has = {IS_ON ", but evicts no pod for this one: preemptionPolicy is Never.\n"}},
    {{ONE_NODE, .pods = HIGH("100", "8")}, /* it fits */
     .view = VIEW(LEADS, ""),
     .lacks = {"preemption"}},
    /* Nodes that the pod's own terms exclude are no candidates. */
    {{.nodes = TAINTED("n2") "," NODE("n1", "30", "2"),
      .scvs = TWO_SCVS,
      .pods = FULL_N1 "," W("8")},
     .has = {"n2                           the pod does not tolerate the node's taints\n",
             "Each of these changes alone would let the pod fit:\n",
             WITHOUT "n1 without pod ns/",
             "  - request 5 GiB instead of 8 GiB: the pod fits on node n1\n"},
     .lacks = {"The request fits"}},
    {{BOTH, .pods = FULL_N1 "," TERMS("\"nodeSelector\":{\"pool\":\"a\"},")},
     .has = {"the pod's nodeSelector or required node affinity excludes the node; needs ",
             "The pod's own terms exclude every node that has cards.\n"},
     .lacks = {"Each of these"}},
    {{BOTH, .pods = FULL_N1 "," TERMS(ONLY_N1)},
     .has = {"  - request 5 GiB instead of 8 GiB: the pod fits on node n1\n"},
     .lacks = {"The request fits"}},
    {{BOTH, .pods = TERMS(ONLY_N1)},
     .has = {"The request fits on 1 node. kube-scheduler decides the rest: pod affinity, "
             "topology spread, volumes.\n"}},
    /* No scheduler has tried the pod. */
    {{BOTH, .pods = W("8")},
     .object = CREATED("2001-09-09T01:46:05Z", "gpushare-schedulr", ""),
     .has = {"! no scheduler has tried the pod for 35 s: schedulerName is "
             "gpushare-schedulr, by which no pod with a card was bound\n"}},
    {{BOTH, .pods = W("8") "," POD_OF("a", "n1", "2", IDX("1"))},
     .object = CREATED("2001-09-09T01:46:05Z", "default-scheduler", ""),
     .has = {"for 35 s: schedulerName is default-scheduler\n"}},
    {{BOTH, .pods = W("8")},
     .object = CREATED("2001-09-09T01:46:35Z", "gpushare-schedulr", ""),
     .lacks = {"no scheduler"}},
    {{BOTH, .pods = W("8")},
     .object = CREATED("2001-09-09T01:46:05Z", "gpushare-schedulr",
                       "{\"type\":\"PodScheduled\",\"status\":\"False\"}"),
     .lacks = {"no scheduler"}},
    /* Pods that terminate. */
    {{ONE("n1"), .pods = LEAVING "," W("8")},
     .has = {WITHOUT "n1 without pod ns/a (9 GiB on GPU0, terminating)\n"}},
    {{ONE("n1"), .pods = LEAVING},
     .pod = "a",
     .object = "{\"metadata\":{\"deletionTimestamp\":\"2001-09-09T01:46:05Z\"}}",
     .has = {"is bound to node n1 and running, terminating since 2001-09-09T01:46:05Z; "
             "requests 9 GiB\n"},
     .lacks = {"does not answer"}},
    /* A node that does not exist. */
    {{BOTH, .pods = POD_OF("a", "nowhere", "9", "")},
     .pod = "a",
     .has = {"requests 9 GiB\n  node nowhere does not exist\n"},
     .lacks = {"every card"}},
    {{BOTH, .pods = POD_OF("a", "nowhere", "9", "") "," W("8")},
     .has = {"The request fits on 2 nodes."},
     .lacks = {"nowhere"}},
    /* What --check says of a bound pod. */
    {{ONE("n1"), .pods = POD_OF("a", "n1", "2", IDX("7"))},
     .pod = "a",
     .has = {"  difference: pod ns/a has a promise of 2048 MiB on GPU7, which the node "
             "does not have\n"},
     .lacks = {"no card is recorded"}},
    {{ONE_NODE,
      .pods = POD_OF("a", "n1", "2", IDX("0") ",\"ALIYUN_COM_GPU_MEM_POD\":\"1\"")},
     .pod = "a",
     .has = {"  difference: pod ns/a: the annotations promise 1 units of "
             "aliyun.com/gpu-mem (1 card), but the pod asks for 2 GiB, which counts\n"}},
    /* Half of a gang runs. */
    {{BOTH, .pods = HALF},
     .members =
         "[{\"metadata\":{\"uid\":\"u-c\"},\"status\":{\"conditions\":[{\"type\":"
         "\"PodScheduled\",\"status\":\"False\",\"message\":\"0/2 nodes\"}]}},null]",
     .has = {"; 1 of 3 that must start are bound, so a part of the gang runs; pod c "
             "waits, too (kube-scheduler: 0/2 nodes)"}},
    /* A failed pod, which lists do not have. */
    {{BOTH},
     .object = FAILED("UnexpectedAdmissionError",
                      "desc = no-promise: pod ns/w has no promised card: \\u001bMake"),
     .has =
         {"pod ns/w failed with UnexpectedAdmissionError: it was bound to node n1 "
          "without a card; kube-scheduler did not ask the extender\n"
          "  status.message: desc = no-promise: pod ns/w has no promised card: ?Make\n"}},
    {{BOTH},
     .object = FAILED("Evicted", "low on memory"),
     .has = {"pod ns/w failed with Evicted\n  status.message: low on memory\n"},
     .lacks = {"extender"}},
};

TEST(the_text_about_a_pod)
{
    array_indices(i, texts) {
        cleanup_buf struct buf out = {0};
        struct err err = {0};
        cleanup_json json_t *object = lib_json(texts[i].object),
                            *view = lib_json(texts[i].view),
                            *members = lib_json(texts[i].members);
        lib_cluster(&texts[i].items);
        const struct explain_facts facts = {.object = object,
                                            .view = view,
                                            .members = members,
                                            .minimum = texts[i].minimum,
                                            .invalid = texts[i].invalid,
                                            .now_s = 1000000000};
        ck_assert_done(explain_pod(&out, cs, SPAN("ns"),
                                   span_of(texts[i].pod ? texts[i].pod : "w"), &facts,
                                   &err),
                       err);
        for (size_t k = 0; k < 6 && texts[i].has[k]; k++)
            ck_assert_msg(strstr(out.p, texts[i].has[k]) != NULL,
                          "case %zu: no %s in: %s", i, texts[i].has[k], out.p);
        for (size_t k = 0; k < 3 && texts[i].lacks[k]; k++)
            ck_assert_msg(!strstr(out.p, texts[i].lacks[k]), "case %zu: %s in: %s", i,
                          texts[i].lacks[k], out.p);
        ck_assert_ptr_null(strchr(out.p, '\x1b'));
    }
}

TEST(an_unknown_pod)
{
    cleanup_buf struct buf out = {0};
    struct err err = {0};
    /* Its containers ended: there is no reason. */
    cleanup_json json_t *ended = lib_json("{\"status\":{\"phase\":\"Failed\"}}");
    CLUSTER();
    ck_assert_int_eq(explain_pod(&out, cs, SPAN("ns"), SPAN("x"),
                                 &(struct explain_facts){.object = ended}, &err),
                     -1);
    ck_assert_int_eq(err.code, ERR_NOT_FOUND);
    ck_assert_contains(err.msg, "pod ns/x not found");
}
