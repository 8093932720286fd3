/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/assess.h"

#include "base/rng.h"
#include "lib/lib.h"

/*
 * How many cards pods need if they share them, against every way to pack small clusters; and what
 * each object means. JSON is written with ' for ".
 */

static json_t *documents;

__attribute__((format(printf, 1, 2))) static void add(const char *fmt, ...)
{
    cleanup_buf struct buf text = {0};
    json_error_t why;
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] == '\'')
            text.p[i] = '"';
    json_t *j = json_loads(text.p, 0, &why);
    ck_assert_msg(j != NULL, "%s: %s", why.text, text.p);
    documents = documents ? documents : json_array();
    if (json_object_get(j, "metadata"))
        j = json_pack("{s:s,s:[o]}", "kind", "List", "items", j);
    json_array_append_new(documents, j);
}

static void add_node(const char *name, int cards, int mib, const char *labels)
{
    add("{'kind':'Node','metadata':{'name':'%s','labels':{'host':'%s','nvidia.com/"
        "gpu.product':'NVIDIA-A10','nvidia.com/gpu.count':'%d','nvidia.com/"
        "gpu.memory':'%d'"
        "%s}},'status':{'allocatable':{'cpu':'16','memory':'64Gi','pods':'100'}}}",
        name, name, cards, mib, labels);
}

static void add_pod(const char *name, const char *node, const char *limits,
                    const char *spec)
{
    add("{'kind':'Pod','metadata':{'namespace':'d','name':'%s','uid':'uid-%s'},'spec':{"
        "'nodeName':'%s','containers':[{'name':'c','resources':{'limits':{%s},'requests':"
        "{'cpu':'1'}}}]%s},'status':{'phase':'Running'}}",
        name, name, node, limits, spec);
}

/* On n1, with annotations. */
static void add_noted(const char *name, const char *limits, const char *annotations)
{
    add("{'kind':'Pod','metadata':{'namespace':'d','name':'%s','uid':'uid-%s',"
        "'annotations':{%s}},'spec':{'nodeName':'n1','containers':[{'resources':{"
        "'limits':{%s}}}]},'status':{'phase':'Running'}}",
        name, name, annotations, limits);
}

static void add_used(const char *name, int mib)
{
    add("{'status':'success','data':{'resultType':'vector','result':[{'metric':{'"
        "namespace'"
        ":'d','pod':'%s','of':'card'},'value':[1,'%lld']}]}}",
        name, (long long)mib << 20);
}

/* Ends the assessment; new. */
static json_t *result(int64_t headroom)
{
    cleanup_buf struct buf out = {0};
    struct err err = {0};
    const struct cli_config c = {.headroom = headroom, .format = SHOW_JSON};
    ck_assert_msg(!assess_write(&out, documents, &c, false, &err), "%s", err.msg);
    json_decref(documents);
    documents = NULL;
    return json_loadb(out.p, out.n, 0, NULL);
}

static int64_t number(const json_t *j, const char *key)
{
    void *first = json_object_iter(json_object_get(j, "models"));
    return json_integer_value(json_object_get(json_object_iter_value(first), key));
}

static struct span of_pod(const json_t *j, const char *name, const char *key)
{
    char path[64];
    snprintf(path, sizeof path, "d/%s", name);
    const json_t *p = json_object_get(json_object_get(j, "pods"), path);
    ck_assert_msg(p != NULL, "no pod %s", name);
    return jpath_text(p, key);
}

/* -- every way -- */

enum { PODS = 6, CARDS = 6, SIZE = 16 };
struct packing {
    int need[PODS], node[PODS], only[PODS]; /* only: on its node */
    int of_card[CARDS], n_pods, n_cards;
    int left[CARDS], best;
};

static void pack(struct packing *p, int k, int used)
{
    if (used >= p->best)
        return;
    if (k == p->n_pods) {
        p->best = used;
        return;
    }
    for (int c = 0; c < p->n_cards; c++) {
        if (p->left[c] < p->need[k] || (p->only[k] && p->of_card[c] != p->node[k]))
            continue;
        bool empty = p->left[c] == SIZE;
        p->left[c] -= p->need[k];
        pack(p, k + 1, used + empty);
        p->left[c] += p->need[k];
    }
}

TEST(small_clusters_need_few_cards)
{
    struct rng rng;
    rng_init(&rng, 27);
    int fewest = 0, rounds = 0;
    for (int round = 0; round < 60; round++) {
        struct packing p = {.n_pods = 1 + (int)rng_below(&rng, PODS), .best = CARDS + 1};
        bool bound = round % 2;
        for (int n = 0; n < 3; n++) {
            int cards = 1 + (int)rng_below(&rng, 2);
            char name[8];
            snprintf(name, sizeof name, "n%d", n);
            add_node(name, cards, SIZE, "");
            for (; cards; cards--)
                p.of_card[p.n_cards++] = n;
        }
        for (int i = 0; i < p.n_pods; i++) {
            char name[8], node[8], spec[64] = "";
            p.need[i] = 3 + (int)rng_below(&rng, SIZE - 3);
            p.node[i] = (int)rng_below(&rng, 3);
            p.only[i] = bound && rng_below(&rng, 3) == 0;
            snprintf(name, sizeof name, "p%d", i);
            snprintf(node, sizeof node, "n%d", p.node[i]);
            if (p.only[i])
                snprintf(spec, sizeof spec, ",'nodeSelector':{'host':'%s'}", node);
            add_pod(name, node, "'nvidia.com/gpu':'1'", spec);
            add_used(name, p.need[i]);
        }
        for (int c = 0; c < p.n_cards; c++)
            p.left[c] = SIZE;
        pack(&p, 0, 0);
        cleanup_json json_t *j = result(0);
        int64_t needed = number(j, "cardsNeeded");
        if (p.best > number(j, "cardsHeld")) /* more pods than their nodes have cards */
            continue;
        ck_assert_int_ge(needed, p.best);
        ck_assert_int_le(needed, p.best + 1);
        fewest += needed == p.best;
        rounds++;
    }
    ck_assert_int_gt(rounds, 30);
    ck_assert_int_ge(fewest, rounds * 9 / 10);
}

/* Each pod and why it shares or not. */
TEST(pods_share_unless)
{
    add_node("n1", 8, 10000, "");
    add_node("n2", 2, 0, "");
    add_pod("free", "n1", "'nvidia.com/gpu':'1'", "");
    add_pod("claim", "n1", "'nvidia.com/gpu':'1'",
            ",'volumes':[{'persistentVolumeClaim':{}}]");
    add_pod("two", "n1", "'nvidia.com/gpu':'2'", "");
    add_pod("large", "n1", "'nvidia.com/gpu':'1'", "");
    add_pod("unmeasured", "n1", "'nvidia.com/gpu':'1'", "");
    add_noted("hami", "'nvidia.com/gpu':'1','nvidia.com/gpumem-percentage':'30'",
              "'hami.io/vgpu-node':'n1','hami.io/"
              "vgpu-devices-allocated':'GPU-a,NVIDIA,3000,0:;'");
    add_pod("ours", "n1", "'aliyun.com/gpu-mem':'2'", "");
    add_pod("dark", "n2", "'nvidia.com/gpu':'1'", "");
    add_pod(
        "init", "n1", "'cpu':'1'",
        ",'initContainers':[{'name':'i','resources':{'limits':{'nvidia.com/gpu':'1'}}}]");
    add_pod("none", "n1", "'cpu':'1'", "");
    add("{'kind':'Pod','metadata':{'namespace':'d','name':'done','uid':'x'},'spec':{'"
        "nodeName'"
        ":'n1','containers':[{'resources':{'limits':{'nvidia.com/gpu':'1'}}}]},'status':{"
        "'phase':'Succeeded'}}");
    add_pod("free", "n1", "'nvidia.com/gpu':'1'", ""); /* once more */
    add_used("free", 1000);
    add_used("claim", 2000);
    add_used("large", 9000);
    add_used("hami", 9999); /* of all pods on its card */
    cleanup_json json_t *j = result(20);
    static const char *const why[][2] = {
        {"free", ""},
        {"claim", "has a volume claim, whose volume may be tied to nodes"},
        {"two", "uses several cards"},
        {"large", "needs more than a card with the head room"},
        {"unmeasured", "its memory was not measured"},
        {"hami", "nvidia.com/gpumem-percentage 30 on 1 card = 3000 MiB"},
        {"ours", ""},
        {"dark", "the memory of its node's cards is unknown"},
        {"init", "its memory was not measured"},
    };
    ck_assert_uint_eq(json_object_size(json_object_get(j, "pods")), ARRAY_LEN(why));
    array_indices(i, why)
        ck_assert_msg(span_eq(of_pod(j, why[i][0], "reason"), span_of(why[i][1])), "%s",
                      why[i][0]);
    /* A pod of two cards, four of one, and four that share a card. */
    ck_assert_int_eq(number(j, "cardsHeld"), 8 + 1);
    ck_assert_int_eq(number(j, "cardsNeeded"), 2 + 4 + 1);
    ck_assert(span_eq(of_pod(j, "claim", "couldShare"), SPAN("on its node")));
    ck_assert(span_eq(of_pod(j, "free", "couldShare"), SPAN("yes")));
    ck_assert(span_eq(of_pod(j, "two", "couldShare"), SPAN("no")));
}

/* The limits of pods that were not measured, in the unit that a node's capacity shows. */
TEST(limits_have_the_unit_of_the_cluster)
{
    for (int64_t mib = 0; mib < 2; mib++) {
        add("{'kind':'Node','metadata':{'name':'n1','labels':{'nvidia.com/gpu.count':'2',"
            "'nvidia.com/gpu.memory':'16276'}},'status':{'capacity':{'aliyun.com/"
            "gpu-count':'2','aliyun.com/gpu-mem':'%d'}}}",
            mib ? 32552 : 30);
        add_pod("ours", "n1",
                mib ? "'aliyun.com/gpu-mem':'4069'" : "'aliyun.com/gpu-mem':'4'", "");
        add_noted("half", "'aliyun.com/gpu-share':'1'", "'gpushare/memory':'50%'");
        cleanup_json json_t *j = result(20);
        const json_t *pods = json_object_get(j, "pods");
        ck_assert_int_eq(json_integer_value(json_object_get(
                             json_object_get(pods, "d/ours"), "neededMiB")),
                         mib ? 4069 : 4096);
        ck_assert_int_eq(json_integer_value(json_object_get(
                             json_object_get(pods, "d/half"), "neededMiB")),
                         8138);
        ck_assert_int_eq(number(j, "podsThatCouldShare"), 2);
    }
}

/* Nobody labels the node or writes its Scv: of such cards the capacity says how many and how large. */
TEST(the_capacity_says_what_no_label_does)
{
    for (int mib = -1; mib < 2; mib++) {
        add("{'kind':'Node','metadata':{'name':'n1'},'status':{'capacity':{%s}}}",
            mib < 0 ? ""
            : mib   ? "'aliyun.com/gpu-count':'2','aliyun.com/gpu-mem':'32768',"
                      "'nvidia.com/gpu':'20'"
                    : "'aliyun.com/gpu-count':'2','aliyun.com/gpu-mem':'32'");
        for (int i = 0; i < 4; i++) {
            char name[2] = {(char)('a' + i), '\0'};
            add_pod(name, "n1",
                    mib > 0 ? "'aliyun.com/gpu-mem':'8192'" : "'aliyun.com/gpu-mem':'8'",
                    "");
        }
        cleanup_json json_t *j = result(0);
        int64_t cards = mib < 0 ? 0 : 2; /* nobody knows */
        ck_assert_int_eq(number(j, "pods"), 4);
        ck_assert_int_eq(number(j, "cards"), cards);
        ck_assert_int_eq(number(j, "cardsHeld"), cards);
        ck_assert_int_eq(number(j, "cardsNeeded"), cards);
        ck_assert(span_eq(of_pod(j, "a", "couldShare"), span_of(cards ? "yes" : "no")));
    }
    add("{'kind':'Node','metadata':{'name':'n1'},'status':{'capacity':{'nvidia.com/gpu':"
        "'2'}}}");
    add_pod("a", "n1", "'nvidia.com/gpu':'1'", "");
    cleanup_json json_t *j = result(0);
    ck_assert_int_eq(number(j, "cardsHeld"), 1);
    ck_assert_int_eq(number(j, "cardsNeeded"), 1);
}

/* HAMi's and our annotations name the cards, so pods that share one hold one; and HAMi's limit. */
TEST(cards_that_are_shared_today_count_once)
{
    static const char *const pods[][2] = {
        {"'nvidia.com/gpu':'1','nvidia.com/gpumem':'3000'",
         "'hami.io/vgpu-node':'n1','hami.io/"
         "vgpu-devices-allocated':'GPU-a,NVIDIA,3000,0:;'"},
        {"'nvidia.com/gpu':'1','nvidia.com/gpumem':'9'",
         "'hami.io/vgpu-node':'n1','hami.io/"
         "vgpu-devices-allocated':';;GPU-a,NVIDIA,3000,0:;'"},
        {"'aliyun.com/gpu-mem':'3'", "'ALIYUN_COM_GPU_MEM_IDX':'1'"},
        {"'aliyun.com/gpu-count':'1'", "'ALIYUN_COM_GPU_MEM_IDX':'2'"},
    };
    add_node("n1", 5, 10000, "");
    array_indices(i, pods) {
        char name[] = {'p', (char)('0' + i), '\0'};
        add_noted(name, pods[i][0], pods[i][1]);
        if (i < 3)
            add_used(name, 9000); /* of all pods on the card */
    }
    cleanup_json json_t *j = result(20);
    ck_assert_int_eq(number(j, "cardsHeld"), 3);
    ck_assert_int_eq(number(j, "cardsNeeded"), 2);
    ck_assert_int_eq(number(j, "podsThatCouldShare"), 3);
    ck_assert_int_eq(
        json_integer_value(json_object_get(
            json_object_get(json_object_get(j, "pods"), "d/p1"), "neededMiB")),
        3000);
}

/* Pods of HAMi: what each asks of us is its reason, unless something else keeps it from sharing. */
TEST(pods_of_hami_ask_in_its_words)
{
#define GPU      "'nvidia.com/gpu':'1'"
#define GIVEN(s) "'hami.io/vgpu-node':'n1','hami.io/vgpu-devices-allocated':'" s "'"
    static const char *const pods[][5] = {
        /* limits, annotations, could share, MiB that it needs, reason */
        {GPU ",'nvidia.com/gpumem':'3k'", GIVEN("GPU-a,NVIDIA,3000,0:;"), "yes", "3000",
         "nvidia.com/gpumem 3000 on 1 card = 3000 MiB"},
        /* At least what the limits ask for. */
        {GPU ",'nvidia.com/gpumem':'3k'", GIVEN("GPU-a,NVIDIA,2000,0:;"), "yes", "3000",
         "nvidia.com/gpumem 3000 on 1 card = 3000 MiB"},
        {GPU ",'nvidia.com/gpumem-percentage':'50'", "'a':'b'", "yes", "7500",
         "nvidia.com/gpumem-percentage 50 on 1 card = 7500 MiB"},
        /* Unreadable: it may use any card. */
        {GPU ",'nvidia.com/gpumem':'10'", GIVEN("GPU-b,NVIDIA,10:;"), "yes", "10",
         "nvidia.com/gpumem 10 on 1 card = 10 MiB"},
        /* The driver's part is not given out, so it is a whole card. */
        {GPU ",'nvidia.com/gpumem':'15360'", GIVEN("GPU-c,NVIDIA,15360,0:;"), "no", "0",
         "its memory was not measured"},
        {GPU ",'nvidia.com/gpucores':'100'", GIVEN("GPU-d,NVIDIA,15360,100:;"), "yes",
         "1200",
         "nvidia.com/gpu 1 on 1 card = 15000 MiB, 100 percent of nvidia.com/gpucores"},
        {"'nvidia.com/gpu':'2','nvidia.com/gpumem':'10'",
         GIVEN("GPU-e,NVIDIA,10,0:GPU-f,NVIDIA,10,0:;"), "no", "10",
         "uses several cards"},
        {GPU ",'nvidia.com/gpumem':'10Gi'", GIVEN(";"), "no", "0",
         "container : limit nvidia.com/gpumem: 10737418240 exceeds 2147483647"},
    };
    cleanup_buf struct buf cards = {0};
    for (int i = 0; i < 12; i++)
        buf_printf(&cards, "%s{'totalMemory':15360,'reservedMemory':360}", i ? "," : "");
    add("{'kind':'Scv','metadata':{'name':'n1'},'status':{'cardList':[%s]}}", cards.p);
    add_node("n1", 12, 0, "");
    array_indices(i, pods) {
        char name[] = {'p', (char)('0' + i), '\0'};
        add_noted(name, pods[i][0], pods[i][1]);
        add_used(name, i == 5 ? 1000 : 9000); /* of all pods on its card */
    }
    add("{'kind':'Pod','metadata':{'namespace':'d','name':'w','uid':'w'},'spec':{"
        "'containers':[{'resources':{'limits':{'nvidia.com/gpumem-percentage':'50'}}},"
        "{'resources':{'limits':{'nvidia.com/gpumem':'1000'}}}]}}");
    add("{'kind':'Pod','metadata':{'namespace':'d','name':'x','uid':'x'},'spec':{"
        "'containers':[{'resources':{'limits':{'nvidia.com/gpucores':'100'}}}]}}");
    add("{'kind':'Pod','metadata':{'namespace':'d','name':'y','uid':'y'},'spec':{"
        "'containers':[{'resources':{'limits':{'nvidia.com/gpu':'1'}}}]}}");
    add("{'kind':'Pod','metadata':{'namespace':'d','name':'z','uid':'z'},'spec':{"
        "'containers':[{'resources':{'limits':{'nvidia.com/gpu':'2','nvidia.com/"
        "gpumem':'10'}}}]}}");
    cleanup_json json_t *j = result(20);
    array_indices(i, pods) {
        char name[] = {'p', (char)('0' + i), '\0'}, path[8];
        ck_assert_span_eq(of_pod(j, name, "couldShare"), pods[i][2]);
        ck_assert_span_eq(of_pod(j, name, "reason"), pods[i][4]);
        snprintf(path, sizeof path, "d/%s", name);
        ck_assert_int_eq(
            json_integer_value(json_object_get(
                json_object_get(json_object_get(j, "pods"), path), "neededMiB")),
            atoll(pods[i][3]));
    }
    /* Pending ones; of NVIDIA's plugin, none is shown. */
    ck_assert_span_eq(of_pod(j, "w", "couldShare"), "yes");
    ck_assert_span_eq(
        of_pod(j, "w", "asks"),
        "nvidia.com/gpumem-percentage 50, nvidia.com/gpumem 1000 on 1 card");
    ck_assert_span_eq(of_pod(j, "x", "couldShare"), "no");
    ck_assert_span_eq(of_pod(j, "z", "couldShare"), "no");
    ck_assert_span_eq(of_pod(j, "z", "reason"), "uses several cards");
    ck_assert_span_eq(of_pod(j, "z", "asks"),
                      "nvidia.com/gpumem 10 on 2 cards = 10 MiB each");
    ck_assert_uint_eq(json_object_size(json_object_get(j, "pods")), ARRAY_LEN(pods) + 3);
    ck_assert_int_eq(number(j, "pods"), ARRAY_LEN(pods));
    /* GPU-a, c to f, and one each of the third, fourth and last pod. */
    ck_assert_int_eq(number(j, "cardsHeld"), 5 + 3);
#undef GPU
#undef GIVEN
}

/* Of a node with an Scv, each card has its own memory. */
/* The names that the extender was given are in its view. */
TEST(names_of_hami_are_those_of_the_cluster)
{
    add("{'nodes':[],'hamiValues':'resourceMem=example.com/mem,memoryFactor=2'}");
    add_node("n1", 1, 16000, "");
    add_noted("a", "'nvidia.com/gpu':'1','example.com/mem':'100'", "");
    json_t *j = result(0);
    ck_assert_str_eq(of_pod(j, "a", "asks").p, "example.com/mem 100 on 1 card = 200 MiB");
    json_decref(j);
}

TEST(cards_of_a_node_differ)
{
    add("{'kind':'Scv','metadata':{'name':'n1'},'status':{'cardList':[{'model':'A','"
        "totalMemory'"
        ":4000},{'model':'B','totalMemory':9000,'reservedMemory':1000}]}}");
    add_node("n1", 2, 10000, "");
    add_pod("a", "n1", "'nvidia.com/gpu':'1'", "");
    add_pod("b", "n1", "'nvidia.com/gpu':'1'", "");
    add_used("a", 7000);
    add_used("b", 8001);
    cleanup_json json_t *j = result(0);
    ck_assert(span_eq(of_pod(j, "a", "couldShare"), SPAN("yes")));
    ck_assert(span_eq(of_pod(j, "b", "couldShare"), SPAN("no")));
    ck_assert_int_eq(number(j, "cards"), 2);
}

/* CPU is a limit, too: 16 cores, of which a pod without GPU has 15. */
TEST(pods_keep_their_cpu_and_tolerations)
{
    add_node("n1", 1, 10000, "");
    add_node("n2", 1, 10000, "");
    add("{'kind':'PodList','items':[{'metadata':{'name':'o','namespace':'d','uid':'o'},'"
        "spec'"
        ":{'nodeName':'n1','containers':[{'resources':{'requests':{'cpu':'15'}}}]},'"
        "status'"
        ":{'phase':'Running'}}]}");
    add("{'kind':'Node','metadata':{'name':'n2','labels':{'nvidia.com/gpu.product':'A10',"
        "'nvidia.com/gpu.count':'1','nvidia.com/gpu.memory':'10000'}},'spec':{'taints':["
        "{'key':'k','effect':'NoSchedule'}]}}");
    add_pod("a", "n1", "'nvidia.com/gpu':'1'", "");
    add_pod("b", "n2", "'nvidia.com/gpu':'1'", "");
    add_used("a", 1000);
    add_used("b", 1000);
    cleanup_json json_t *j = result(0);
    ck_assert_int_eq(number(j, "cardsNeeded"), 2);
}
