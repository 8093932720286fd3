/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/show.h"

#include "cli/cli.h"
#include "cli/lib.h"
#include "lib/lib.h"
#include "lib/program.h"

#define TWO_CARDS                                                                        \
    CARD_OF("0", "Healthy", "Tesla T4", "15360", "5120")                                 \
    "," CARD_OF("1", "Bad", "Tesla T4", "15360", "0")

static void small(void)
{
    CLUSTER(.nodes = NODE("n1", "30", "2") "," NODE("cpu", "0", "0"),
            .scvs = SCV_OF("n1", TWO_CARDS),
            .pods = POD_OF("a", "n1", "2", IDX("0")) "," POD_OF("w", "", "20", ""));
}

static char *shown(struct show show)
{
    cleanup_buf struct buf out = {0};
    show.now_s = 1767225600 + 30; /* half a minute after the sample */
    ck_assert(show_write(&out, cs, &show));
    return buf_take(&out);
}
#define SHOWN(...) shown((struct show){__VA_ARGS__})

/* A number of the JSON. */
static json_int_t number(const json_t *j, const char *path)
{
    ck_assert_msg(json_is_integer(lib_at(j, path)), "%s", path);
    return json_integer_value(lib_at(j, path));
}

TEST(one_line_per_card)
{
    small();
    cleanup_free char *plain = SHOWN();
    /* 5120 MiB are in use, 1024 are tolerated, and the pod is not running yet. */
    ck_assert_str_eq(
        plain,
        "NODE  GPU  MODEL     HEALTH     PROMISED/TOTAL(GiB)  USED  FREE  PODS\n"
        "n1    0    Tesla T4  Healthy    2/15                 5     9     1\n"
        "n1    1    Tesla T4  Unhealthy  0/15                 0     0     0\n"
        "\n"
        "2 of 30 GiB promised (6%), 9 free, 5 in use; 2 cards (1 healthy) on 1 node; 1 "
        "pending pod\n");
    cleanup_free char *wide = SHOWN(.format = SHOW_WIDE);
    ck_assert_contains(
        wide,
        "n1    0    Tesla T4  Healthy    2/15                 5     9   "
        "  -        1     4         -        37%   41C   10.0.0.1  scv     30s       "
        "GPU-0");
    cleanup_free char *details = SHOWN(.details = true);
    ck_assert_contains(
        details,
        "n1    0    ns         a    2         -     -   -          -            bound\n");
    ck_assert_contains(details, "ns         w            20 GiB   0\n");
    ck_assert_lacks(details, "\033");
    cleanup_free char *colors = SHOWN(.colors = true);
    ck_assert_contains(colors, "\033[31mUnhealthy\033[0m  0/15");
}

/* The Scv of n1 with a pod that uses more than its promise, a pod without a promise, a
 * container of a pod that the ledger has, and two processes. */
static void measured(void)
{
    static const char lists[] =
        "\"podList\":[{\"namespace\":\"ns\",\"name\":\"a\",\"container\":\"c\","
        "\"resource\":\"aliyun.com/gpu-mem\",\"units\":2,\"cards\":[\"GPU-0\"],"
        "\"usage\":[{\"uuid\":\"GPU-0\",\"promisedMemory\":2048,\"usedMemory\":2560,"
        "\"utilization\":40,\"unlimitedMemory\":512}]}],\"processList\":["
        "{\"uuid\":\"GPU-0\",\"namespace\":\"ns\",\"name\":\"a\",\"container\":\"d\","
        "\"unlimitedMemory\":512,"
        "\"usedMemory\":512},"
        "{\"uuid\":\"GPU-1\",\"namespace\":\"other\",\"name\":\"b\",\"usedMemory\":100},"
        "{\"uuid\":\"GPU-1\",\"pid\":812,\"name\":\"Xorg\\u001b\",\"usedMemory\":1024,"
        "\"utilization\":3},"
        "{\"uuid\":\"GPU-9\",\"pid\":813,\"name\":\"sh\",\"unmapped\":true}],";
    cleanup_free char *scv = xstrdup(SCV_OF("n1", TWO_CARDS));
    char *at = strstr(scv, "\"updateTime\"");
    cleanup_free char *all = xasprintf("%.*s%s%s", (int)(at - scv), scv, lists, at);
    CLUSTER(.nodes = NODE("n1", "30", "2"), .scvs = all,
            .pods = POD_OF("a", "n1", "2", IDX("0")));
}

TEST(promised_and_used_side_by_side)
{
    measured();
    cleanup_free char *details = SHOWN(.details = true);
    ck_assert_contains(
        details,
        "\n"
        "NODE  GPU  NAMESPACE  POD  PROMISED  USED  SM  UNLIMITED  ENFORCED BY  STATE\n"
        "n1    0    ns         a    2         3     -   1          -            bound\n"
        "\n"
        "NODE  GPU  OTHER USE                       PID  SM  USED\n"
        "n1    1    pod other/b                     -    -   0.0\n"
        "n1    1    Xorg?, outside Kubernetes       812  3%  1\n"
        "n1    -    sh, not known whether in a pod  813  -   -\n");
    cleanup_free char *text = SHOWN(.format = SHOW_JSON);
    cleanup_json json_t *j = lib_json(text);
    ck_assert_int_eq(number(j, "nodes.0.devs.0.pods.0.mib"), 2048);
    ck_assert_int_eq(number(j, "nodes.0.devs.0.pods.0.usedMiB"), 3072);
    ck_assert_ptr_null(lib_at(j, "nodes.0.devs.0.pods.0.utilizationPercent"));
    ck_assert_ptr_null(lib_at(j, "nodes.0.devs.0.processes"));
    ck_assert_int_eq(number(j, "nodes.0.devs.1.processes.1.pid"), 812);
    ck_assert_int_eq(number(j, "nodes.0.devs.1.processes.1.utilizationPercent"), 3);
    ck_assert_ptr_null(lib_at(j, "nodes.0.devs.1.processes.2"));
    /* `usage` has the pods alone, of one namespace if asked. */
    cleanup_free char *used = SHOWN(.usage = true);
    ck_assert_str_eq(
        used,
        "NODE  GPU  NAMESPACE  POD  PROMISED  USED  SM  UNLIMITED  ENFORCED BY  STATE\n"
        "n1    0    ns         a    2         3     -   1          -            bound\n"
        "\n"
        "NODE  GPU  OTHER USE                       PID  SM  USED\n"
        "n1    -    sh, not known whether in a pod  813  -   -\n"
        "in units of GiB\n");
    struct show other = {.usage = true, .ns = SPAN("other")};
    cleanup_free char *none = shown(other);
    ck_assert_str_eq(
        none,
        "NODE  GPU  NAMESPACE  POD  PROMISED  USED  SM  UNLIMITED  ENFORCED BY  STATE\n"
        "in units of GiB\n");
    other.format = SHOW_JSON;
    cleanup_free char *json = shown(other);
    ck_assert_lacks(json, "\"u-a\"");
}

TEST(a_terminating_pod_is_shown_as_one)
{
#define LEAVING(phase)                                                                   \
    "{\"metadata\":{\"name\":\"a\",\"namespace\":\"ns\",\"uid\":\"u-a\","                \
    "\"deletionTimestamp\":\"2026-11-21T09:00:00Z\",\"annotations\":{" IDX(              \
        "0") "}},"                                                                       \
             "\"spec\":{\"nodeName\":\"n1\",\"containers\":[{\"resources\":{\"limits\":" \
             "{"                                                                         \
             "\"aliyun.com/gpu-mem\":\"2\"}}}]},\"status\":{\"phase\":\"" phase "\"}}"
    CLUSTER(.nodes = NODE("n1", "30", "2"), .scvs = SCV_OF("n1", TWO_CARDS),
            .pods = LEAVING("Running"));
    cleanup_free char *details = SHOWN(.details = true);
    ck_assert_contains(details, " terminating\n");
    cleanup_free char *text = SHOWN(.format = SHOW_JSON);
    cleanup_json json_t *j = lib_json(text);
    ck_assert(json_is_true(lib_at(j, "nodes.0.devs.0.pods.0.terminating")));
    ck_assert(json_is_true(lib_at(j, "nodes.0.devs.0.pods.0.running")));
}

#define WANTS(name, terms)                                                               \
    "{\"metadata\":{\"name\":\"" name "\",\"namespace\":\"ns\",\"uid\":\"u-" name        \
    "\"},\"spec\":{" terms                                                               \
    "\"containers\":[{\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":\"8\"}}}]},"     \
    "\"status\":{\"phase\":\"Pending\"}}"
#define ON(node)                                                                         \
    "\"affinity\":{\"nodeAffinity\":{"                                                   \
    "\"requiredDuringSchedulingIgnoredDuringExecution\":{\"nodeSelectorTerms\":[{"       \
    "\"matchFields\":[{\"key\":\"metadata.name\",\"operator\":\"In\",\"values\":["       \
    "\"" node "\"]}]}]}}},"

TEST(nodes_that_the_pods_own_terms_exclude_are_no_candidates)
{
    static const char tainted[] =
        "{\"metadata\":{\"name\":\"n1\"},\"spec\":{\"taints\":[{\"key\":\"k\",\"effect\":"
        "\"NoSchedule\"}]},\"status\":{\"capacity\":{\"aliyun.com/gpu-mem\":\"30\"}}}";
    static const struct {
        const char *pod, *node, *why;
        int fits;
    } cases[] = {
        {WANTS("a", ""), "n2", "needs 8192 MiB on one card; most free: 5120 of ", 0},
        {WANTS("a", "\"tolerations\":[{\"operator\":\"Exists\"}],"), "n1", NULL, 1},
        {WANTS("a", ON("n2")), "n2", "needs 8192 MiB on one card; most free: 5120 of ",
         0},
        {WANTS("a", ON("n1")), NULL, "the pod's own terms exclude every node", 0},
        {WANTS("a", "\"nodeSelector\":{\"a\":\"b\"},"), NULL,
         "the pod's own terms exclude every node", 0},
        {NULL, "n1", NULL, 1}, /* with a long text, which is not judged */
    };
    array_items(c, cases) {
        cleanup_free char *nodes = xasprintf("%s,%s", tainted, NODE("n2", "15", "1"));
        cleanup_free char *unknown =
            xasprintf(WANTS("a", "\"nodeSelector\":{\"a\":\"%070000d\"},"), 0);
        cleanup_free char *pods = xasprintf(
            "%s,%s,%s", c->pod ?: unknown,
            WANTS("z", "\"tolerations\":[{\"key\":\"k\",\"operator\":\"Exists\"}],"),
            POD_OF("b", "n2", "10", IDX("0")));
        CLUSTER(.nodes = nodes,
                .scvs = SCV_OF("n1", TWO_CARDS) "," SCV_OF(
                    "n2", CARD_OF("0", "Healthy", "T4", "15360", "0")),
                .pods = pods);
        cleanup_free char *text = SHOWN(.format = SHOW_JSON);
        cleanup_json json_t *j = lib_json(text);
        const json_t *a = lib_at(j, "pendingPods.0");
        if (c->node)
            ck_assert_at(a, "closestNode", c->node);
        else
            ck_assert_ptr_null(lib_at(a, "closestNode"));
        ck_assert_int_eq(lib_int(a, "fittingNodes"), c->fits);
        if (c->why)
            ck_assert_contains(lib_text(a, "reason"), c->why);
        ck_assert_at(lib_at(j, "pendingPods.1"), "closestNode", "n1");
    }
}

/* The kubelet's state after the device plugin's end. */
TEST(a_device_plugin_that_does_not_run_is_marked)
{
    CLUSTER(.nodes = "{\"metadata\":{\"name\":\"n1\"},\"status\":{\"capacity\":{"
                     "\"aliyun.com/gpu-mem\":\"30\",\"aliyun.com/gpu-count\":\"2\"},"
                     "\"allocatable\":{\"aliyun.com/gpu-mem\":\"0\","
                     "\"aliyun.com/gpu-count\":\"0\"}}}",
            .scvs = SCV_OF("n1", TWO_CARDS));
    cleanup_free char *text = SHOWN();
    ck_assert_contains(text,
                       "! n1: 0 aliyun.com/gpu-mem are allocatable, but its healthy "
                       "cards make 15: the device plugin does not run there");
}

TEST(a_node_that_does_not_exist_is_no_candidate)
{
    CLUSTER(.pods = WANTS("a", "") "," POD_OF("b", "nowhere", "2", IDX("0")));
    cleanup_free char *text = SHOWN(.format = SHOW_JSON);
    cleanup_json json_t *j = lib_json(text);
    ck_assert_at(j, "pendingPods.0.reason", "no nodes are known");
    ck_assert_ptr_null(lib_at(j, "pendingPods.0.closestNode"));
}

/* A pod with a share of the compute of a card. */
#define POD_CORE(name, card, core)                                                       \
    "{\"metadata\":{\"name\":\"" name "\",\"namespace\":\"ns\",\"uid\":\"u-" name        \
    "\",\"annotations\":{" IDX(                                                          \
        card) "}},\"spec\":{\"nodeName\":\"n1\",\"containers\":[{"                       \
              "\"name\":\"c\",\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":\"2\","  \
              "\"aliyun.com/gpu-core.percentage\":\"" core                               \
              "\"}}}]},\"status\":{\"phase\":\"Running\"}}"

TEST(promised_compute_stands_beside_memory)
{
    cleanup_free char *node = xstrdup(NODE("n1", "30", "2"));
    char *at = strstr(node, "},\"allocatable\"");
    cleanup_free char *offers = xasprintf(
        "%.*s,\"aliyun.com/gpu-core.percentage\":\"200\"%s", (int)(at - node), node, at);
    CLUSTER(.nodes = offers, .scvs = SCV_OF("n1", TWO_CARDS),
            .pods = POD_CORE("a", "0", "30") "," POD_CORE("b", "0", "20"));
    cleanup_free char *plain = SHOWN();
    ck_assert_lacks(plain, "COMPUTE");
    cleanup_free char *details = SHOWN(.details = true);
    ck_assert_contains(
        details,
        "NODE  GPU  MODEL     HEALTH     PROMISED/TOTAL(GiB)  USED  FREE  COMPUTE  PODS\n"
        "n1    0    Tesla T4  Healthy    4/15                 5     11    50%      2\n"
        "n1    1    Tesla T4  Unhealthy  0/15                 0     0     0%       0\n");
    ck_assert_contains(details, "n1    0    ns         a    2         -     -/30%  ");
    CLUSTER(.nodes = offers, .scvs = SCV_OF("n1", TWO_CARDS),
            .pods = POD_CORE("a", "0", "90") "," POD_CORE("b", "0", "20"));
    cleanup_free char *over = SHOWN(.format = SHOW_WIDE);
    ck_assert_contains(over, "  110%!    2     ");
}

TEST(what_a_node_can_enforce_is_a_line_of_the_details)
{
    CLUSTER(.nodes =
                NODE("n1", "15", "1") "," NODE("n2", "15", "1") "," NODE("n3", "15", "1"),
            .scvs = ISOLATING("\"isolation\":[\"mps\",\"driver\"],", "n1",
                              TWO_CARDS) "," ISOLATING("\"isolation\":[],", "n2",
                                                       TWO_CARDS) "," SCV_OF("n3",
                                                                             TWO_CARDS));
    cleanup_free char *plain = SHOWN();
    ck_assert_lacks(plain, "enforce");
    cleanup_free char *details = SHOWN(.details = true);
    ck_assert_contains(details, "\nn1 can enforce memory by: driver, mps\n");
    ck_assert_contains(details, "\nn2 can enforce memory by: nothing\n");
    ck_assert_lacks(details, "n3 can");
    cleanup_free char *text = SHOWN(.format = SHOW_JSON);
    cleanup_json json_t *j = lib_json(text);
    ck_assert_at(j, "nodes.0.isolation.0", "driver");
    ck_assert_at(j, "nodes.0.isolation.1", "mps");
    ck_assert_uint_eq(json_array_size(lib_at(j, "nodes.0.isolation")), 2);
    ck_assert_uint_eq(json_array_size(lib_at(j, "nodes.1.isolation")), 0);
    ck_assert_ptr_nonnull(lib_at(j, "nodes.1.isolation"));
    ck_assert_ptr_null(lib_at(j, "nodes.2.isolation"));
}

#define ENFORCED(by)                                                                     \
    ISOLATING("\"podList\":[{\"namespace\":\"ns\",\"name\":\"a\",\"container\":\"c\","   \
              "\"resource\":\"aliyun.com/gpu-mem\",\"units\":2,\"cards\":[\"GPU-0\"],"   \
              "\"usage\":[{\"uuid\":\"GPU-0\",\"usedMemory\":1024" by "}]}],",           \
              "n1", TWO_CARDS)

/* By several, one, nobody, and by whom the Scv of an older node program does not say. */
TEST(what_enforces_a_promise_is_a_column)
{
    static const struct {
        const char *use, *shown, *json;
    } cases[] = {
        {",\"enforcedBy\":[\"library\",\"driver\",\"later\"]", "driver,library  bound\n",
         "[\"driver\", \"library\"]"},
        {",\"enforcedBy\":[\"mps\"]", "mps          bound\n", "[\"mps\"]"},
        {",\"enforcedBy\":[]", "nobody       bound\n", "[]"},
        {"", "-            bound\n", NULL},
    };
    array_items(c, cases) {
        cleanup_free char *scv = xasprintf(ENFORCED("%s"), c->use);
        CLUSTER(.nodes = NODE("n1", "30", "2"), .scvs = scv,
                .pods = POD_OF("a", "n1", "2", IDX("0")));
        cleanup_free char *details = SHOWN(.details = true), *used = SHOWN(.usage = true);
        ck_assert_contains(details, c->shown);
        ck_assert_contains(used, c->shown);
        cleanup_free char *text = SHOWN(.format = SHOW_JSON);
        cleanup_json json_t *j = lib_json(text);
        json_t *by = lib_at(j, "nodes.0.devs.0.pods.0.enforcedBy");
        cleanup_free char *words = by ? json_dumps(by, 0) : NULL;
        ck_assert_pstr_eq(words, c->json);
    }
}

/* 3072 MiB of pod a, which was promised 2048, and 6144 of Xorg. */
TEST(overuse_is_a_column_of_its_own)
{
    CLUSTER(.nodes = NODE("n1", "15", "1"),
            .scvs = SCV_USED("n1", "15360", "9216", "u-a", "3072", "6144"),
            .pods = POD_OF("a", "n1", "2", IDX("0")));
    cleanup_free char *wide = SHOWN(.format = SHOW_WIDE);
    ck_assert_contains(wide, "PODS  WITHHELD  OVERUSE  UTIL");
    ck_assert_contains(wide, " 1     6         1        -");
    cleanup_free char *text = SHOWN(.format = SHOW_JSON);
    ck_assert_contains(text, "\"withheldMiB\": 6144");
    ck_assert_contains(text, "\"overuseMiB\": 1024");
    ck_assert_contains(text, "\"usageComplete\": true");
}

TEST(json_is_that_of_inspect_with_more)
{
    small();
    cleanup_free char *text = SHOWN(.format = SHOW_JSON);
    static const struct {
        const char *path;
        json_int_t value;
    } numbers[] = {
        {"unitMiB", 1024},
        {"nodes.0.devs.0.promisedMiB", 2048},
        {"nodes.0.devs.0.usedMiB", 5120},
        {"nodes.0.devs.0.withheldMiB", 4096},
        {"nodes.0.devs.0.freeMiB", 9216},
        {"nodes.0.devs.0.temperatureCelsius", 41},
    };
    cleanup_json json_t *j = lib_json(text);
    array_items(n, numbers)
        ck_assert_int_eq(number(j, n->path), n->value);
    ck_assert_uint_eq(json_array_size(lib_at(j, "nodes")), 1);
    ck_assert_uint_eq(json_array_size(lib_at(j, "nodes.0.devs.0.pods")), 1);
    ck_assert_uint_eq(json_array_size(lib_at(j, "pendingPods")), 1);
    ck_assert_at(j, "nodes.0.address", "10.0.0.1");
}

TEST(an_instance_names_its_card)
{
    CLUSTER(.nodes = NODE("n1", "5", "1"),
            .scvs =
                SCV_OF("n1", "{\"id\":64,\"health\":\"Healthy\",\"uuid\":\"MIG-1\","
                             "\"model\":\"A100 MIG 1g.5gb\",\"migProfile\":\"1g.5gb\","
                             "\"parentUUID\":\"GPU-1\",\"totalMemory\":5120,"
                             "\"freeMemory\":5120}"));
    cleanup_free char *wide = SHOWN(.format = SHOW_WIDE);
    ck_assert_contains(wide, "n1    64   A100 MIG 1g.5gb  Healthy  0/5 ");
    ck_assert_contains(wide, "  MIG-1 of GPU-1\n");
    cleanup_free char *text = SHOWN(.format = SHOW_JSON);
    cleanup_json json_t *j = lib_json(text);
    ck_assert_at(j, "nodes.0.devs.0.migProfile", "1g.5gb");
    ck_assert_at(j, "nodes.0.devs.0.parentUUID", "GPU-1");
}

TEST(a_cordoned_node_is_marked)
{
#define ONE_CARD "{\"aliyun.com/gpu-mem\":\"15\",\"aliyun.com/gpu-count\":\"1\"}"
#define OFFERS   "\"status\":{\"capacity\":" ONE_CARD ",\"allocatable\":" ONE_CARD "},"
#define CORDONED(status)                                                                 \
    "{" status "\"metadata\":{\"name\":\"n2\"},\"spec\":{\"unschedulable\":true}}"
    CLUSTER(.nodes = NODE("n1", "30", "2") "," CORDONED(OFFERS),
            .scvs = SCV_OF("n1", TWO_CARDS) "," SCV_OF(
                "n2", CARD_OF("0", "Healthy", "T4", "15360", "0")),
            .pods = POD_OF("a", "n2", "2", IDX("0")));
    cleanup_free char *plain = SHOWN();
    ck_assert_str_eq(
        plain,
        "NODE  GPU  MODEL     HEALTH                      PROMISED/TOTAL(GiB)  USED  "
        "FREE  PODS\n"
        "n1    0    Tesla T4  Healthy                     0/15                 5     "
        "11    0\n"
        "n1    1    Tesla T4  Unhealthy                   0/15                 0     "
        "0     0\n"
        "n2    0    T4        Healthy,SchedulingDisabled  2/15                 0     "
        "13    1\n"
        "\n"
        "2 of 45 GiB promised (4%), 24 free (13 on cordoned nodes), 5 in use; 3 cards (2 "
        "healthy) on 2 nodes\n");
    cleanup_free char *wide = SHOWN(.format = SHOW_WIDE);
    ck_assert_contains(wide, "n2    0    T4        Healthy,SchedulingDisabled  2/15");
    cleanup_free char *colors = SHOWN(.colors = true);
    ck_assert_contains(colors, "\033[33mHealthy,SchedulingDisabled\033[0m");
    cleanup_free char *json = SHOWN(.format = SHOW_JSON);
    cleanup_json json_t *j = lib_json(json);
    ck_assert_ptr_null(lib_at(j, "nodes.0.schedulingDisabled"));
    ck_assert(json_is_true(lib_at(j, "nodes.1.schedulingDisabled")));
    /* There is no line of a card that could say it. */
    CLUSTER(.nodes = CORDONED(""), .pods = POD_OF("a", "n2", "2", IDX("0")));
    cleanup_free char *bare = SHOWN();
    ck_assert_contains(bare, "! n2 (SchedulingDisabled): the node has no GPU memory");
}

TEST(a_single_node_and_an_unknown_node)
{
    small();
    cleanup_buf struct buf out = {0};
    struct show show = {.node = SPAN("nope")};
    ck_assert(!show_write(&out, cs, &show));
    show.format = SHOW_JSON;
    ck_assert(!show_write(&out, cs, &show));
    ck_assert_uint_eq(out.n, 0);
    show = (struct show){.node = SPAN("cpu")};
    ck_assert(show_write(&out, cs, &show));
    ck_assert_contains(out.p, "! cpu: the node has no GPU memory");
}

/* Objects can neither control the terminal nor break JSON. */
TEST(hostile_objects)
{
    CLUSTER(.nodes = NODE("n1", "15", "1"),
            .scvs =
                SCV_OF("n1", CARD_OF("0", "Healthy", "T4\\u001b[2J\\n: \\u0085\\u0000",
                                     "15360", "0")) ",{\"metadata\":7}",
            .pods =
                POD_OF("a", "n1", "99999999",
                       IDX("0")) ",{\"metadata\":{\"name\":\"b\","
                                 "\"namespace\":\"ns\",\"uid\":\"u-b\"},\"spec\":[]}");
    cleanup_free char *table = SHOWN(.format = SHOW_WIDE);
    ck_assert_ptr_null(strchr(table, '\033'));
    ck_assert_contains(table, "T4?[2J?: ??");
    ck_assert_contains(table, "99999999/15!");
    cleanup_free char *json = SHOWN(.format = SHOW_JSON);
    cleanup_json json_t *j = lib_json(json);
    ck_assert_ptr_nonnull(*cluster_state_errors(cs));
}

#define LINKED(id, links, more)                                                          \
    "{\"id\":" id ",\"health\":\"Healthy\",\"totalMemory\":15360,\"uuid\":\"GPU-" id     \
    "\",\"links\":\"" links "\"" more "}"
#define NUMA(node) ",\"numaNode\":" node

TEST(topology_is_that_of_nvidia_smi)
{
    CLUSTER(.nodes = NODE("n1", "45", "3") "," NODE("old", "30", "2") "," NODE("cpu", "0",
                                                                               "0"),
            .scvs = SCV_OF("n1", LINKED("0", "X NV2 SYS", NUMA("0")) "," LINKED(
                                     "1", "NV2 X PXB",
                                     NUMA("0")) "," LINKED("4", "SYS PXB X", NUMA("1"))),
            .pods = POD_OF("a", "n1", "2", IDX("0")));
    cleanup_free char *text = SHOWN(.details = true, .topology = true);
    ck_assert_contains(text, "a    2         -     -   -          -            bound\n"
                             "\n"
                             "n1    GPU0  GPU1  GPU4  NUMA NODE\n"
                             "GPU0  X     NV2   SYS   0\n"
                             "GPU1  NV2   X     PXB   0\n"
                             "GPU4  SYS   PXB   X     1\n"
                             "\n"
                             "old   GPU0  GPU1  NUMA NODE\n"
                             "GPU0  X     ?     -\n"
                             "GPU1  ?     X     -\n"
                             "! old: unknown connections, so none of them counts\n"
                             "\n"
                             "2 of 75 GiB promised");
    ck_assert_lacks(text, "! n1");
    ck_assert_lacks(text, "cpu");
    cleanup_free char *without = SHOWN(.details = true);
    ck_assert_lacks(without, "NV2");
    cleanup_free char *json = SHOWN(.format = SHOW_JSON);
    cleanup_json json_t *j = lib_json(json);
    ck_assert_str_eq(json_string_value(lib_at(j, "nodes.0.devs.1.links")), "NV2 X PXB");
    ck_assert_int_eq(number(j, "nodes.0.devs.2.numaNode"), 1);
    ck_assert_ptr_null(lib_at(j, "nodes.1.devs.0.links"));
}

TEST(words_of_a_hostile_topology_are_unknown)
{
    CLUSTER(.nodes = NODE("n1", "30", "2"),
            .scvs = SCV_OF("n1", LINKED("0", "X NV2 NV2 NV2 NV2", "") "," LINKED(
                                     "1", "\\u001b[2J\\u0000 NV2", NUMA("65535"))));
    cleanup_free char *text = SHOWN(.topology = true);
    ck_assert_contains(text, "\nn1    GPU0  GPU1  NUMA NODE\n"
                             "GPU0  X     NV2   -\n"
                             "GPU1  ?     X     65535\n"
                             "! n1: unknown connections, ");
}

TEST(a_line_without_the_cell_ends_a_column)
{
    cleanup_table struct table t = {0};
    cleanup_buf struct buf out = {0};
    static const char *const lines[][3] = {
        {"a", "", "x"}, {"b\xc3\xa9", "y"}, {NULL}, {"long cell", "z"}};
    array_indices(i, lines) {
        for (size_t k = 0; k < 3 && lines[i][k]; k++)
            table_span(&t, PLAIN, span_of(lines[i][k]));
        table_end(&t);
    }
    table_write(&t, &out);
    ck_assert_str_eq(out.p, "a     x\nb\xc3\xa9  y\n\nlong cell  z\n");
}

static void names(const struct cli_config *config, bool pods, struct span prefix,
                  struct buf *out)
{
    (void)prefix;
    ck_assert_str_eq(config->context ? config->context : "", "dev");
    buf_adds(out, pods ? "ns/a\nns/b\n" : "n1\nn2\n");
}

TEST(words_are_completed)
{
    const struct {
        const char *words[4], *want;
    } cases[] = {
        {{""}, "explain\ndefrag\nassess\nusage\nn1\nn2\n:4\n"},
        {{"n"}, "n1\nn2\n:4\n"},
        {{"explain", ""}, "pod\n:4\n"},
        {{"defrag", ""}, "pod\n:4\n"},
        {{"defrag", "pod", "ns/b"}, "ns/b\n:4\n"},
        {{"explain", "pod", "ns/b"}, "ns/b\n:4\n"},
        {{"-o", "j"}, "json\n:4\n"},
        {{"--memory-unit", ""}, "auto\nGiB\nMiB\n:4\n"},
        {{"--wa"}, "--watch\n:4\n"},
        {{"-w", "n2"}, "n2\n:4\n"},
        {{"n1", ""}, ":4\n"},
        {{"--bad", ""}, ":4\n"},
    };
    array_items(c, cases) {
        cleanup_buf struct buf got = {0};
        const char *argv[6] = {"__complete", "--context=dev"};
        int argc = 2;
        while (argc < 6 && c->words[argc - 2]) {
            argv[argc] = c->words[argc - 2];
            argc++;
        }
        cli_complete_words(argc, (char *const *)argv, NULL, names, &got);
        ck_assert_str_eq(got.p, c->want);
    }
}
