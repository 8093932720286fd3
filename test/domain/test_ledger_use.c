/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/diagnosis.h"
#include "domain/use_sample.h"

/*
 * Whose memory of a card is used: processes without a promise, pods inside their promises,
 * and pods beyond them.
 */

/* The parts of what is withheld. */
static void ck_card(int i, long outside, long overuse)
{
    const struct card *card = card_of(i);
    ck_assert_int_eq(card_external_mib(card), outside);
    ck_assert_int_eq(card->overuse_mib, overuse);
    ck_assert_int_eq(card->withheld_mib, outside + overuse);
}

/* With a first sample, which shows no use. */
static void start_idle(void)
{
    struct sample s = {0};
    start();
    see(&s);
}

static void ck_seen(struct sample *s, int i, long outside, long overuse)
{
    see(s);
    ck_card(i, outside, overuse);
}

static int64_t drift(enum drift kind)
{
    int64_t counts[DRIFTS] = {0};
    diagnosis_count(ledger, ledger_node_find(ledger, SPAN("n1")), counts);
    return counts[kind];
}

/* A monitoring pod, or one that the watch has not shown yet. */
TEST(pods_without_a_promise_count_as_outside)
{
    struct sample s = {0};
    start_idle();
    uses_without_device(&s, "unknown", 0, 5000);
    ck_seen(&s, 0, 4000, 0);
    place("unknown", 6000, 0);
    ck_card(0, 0, 0);
    /* Bound without limits that the device plugin knows. */
    struct pod pod = object_pod_mem(&arena, "label", 1);
    struct request r = {.kind = REQUEST_MEMORY,
                        .cards = 1,
                        .mib_per_card = 3000,
                        .units = 3000,
                        .by_label = true};
    ledger_pod_place(ledger, ledger_pod_add(ledger, &pod, &r, NULL), SPAN("n1"), NULL, 0);
    uses_without_device(&s, "label", 0, 3000);
    ck_seen(&s, 0, 2000, 0);
    ledger_free(ledger);
}

/* -- time -- */

/* The processes of a pod that was deleted by force run on; a new pod has its name. */
TEST(a_pod_does_not_take_over_the_use_of_one_with_its_name)
{
    struct sample s = {0};
    start_idle();
    struct pod pod = object_pod(
        &arena, quoted(&arena, "{'metadata':{'namespace':'default','name':'pod-old',"
                               "'uid':'new'},'spec':{'containers':[{'resources':{"
                               "'limits':{'" KEY_GPU_MEM "':'4000'}}}]}}"));
    struct request r = object_request(&arena, &pod, 1);
    struct ledger_pod *p = ledger_pod_add(ledger, &pod, &r, NULL);
    const struct ledger_share share = {.card = 0, .mib = 4000, .uuid = SPAN("GPU-0")};
    ledger_pod_place(ledger, p, SPAN("n1"), &share, 1);
    ledger_pod_running(ledger, p, true);
    uses(&s, "old", 0, 4000);
    ck_seen(&s, 0, 3000, 0);
    ck_assert_int_eq(card_of(0)->free_mib, TOTAL - 4000 - 3000);
    ledger_free(ledger);
}

TEST(a_departed_pod_that_is_back_counts_once)
{
    struct sample s = {0};
    start_idle();
    for (int i = 0; i < 3; i++) {
        struct ledger_pod *a = place("a", 4000, 0);
        uses(&s, "a", 0, 4000);
        other_process(&s, 0, 8000);
        if (i == 0)
            see(&s);
        buf_fini(&s.held);
        buf_fini(&s.processes);
        s = (struct sample){0};
        ck_card(0, 7000, 0);
        ledger_pod_remove(ledger, a);
        ck_card(0, 7000, 0);
    }
    ledger_free(ledger);
}

/* -- nvidia.com/gpu -- */

#define NVIDIA_SCV                                                                       \
    "{'metadata':{'name':'n1'},'status':{'updateTime':'2026-11-23T09:00:00Z',"           \
    "'cardList':[{'id':0,'health':'Healthy','uuid':'GPU-0','usageComplete':true,"        \
    "'totalMemory':16000,'freeMemory':9000},{'id':1,'health':'Healthy','uuid':"          \
    "'GPU-1','usageComplete':true,'totalMemory':16000,'freeMemory':12000}],'podList':["  \
    "{'namespace':'default','name':'nv','container':'c','resource':'nvidia.com/gpu',"    \
    "'units':1,'cards':['GPU-0'],'usage':[{'uuid':'GPU-0','podUID':'u','usedMemory':"    \
    "7000},{'uuid':'GPU-1','podUID':'u','usedMemory':4000}]}]}}"

TEST(a_pod_of_another_device_plugin_is_measured)
{
    start();
    struct scv scv = object_scv(&arena, quoted(&arena, NVIDIA_SCV));
    ledger_scv_seen(ledger, &scv, 0);
    ck_card(0, 6000, 0); /* the watch has not shown the pod */
    struct pod pod = object_pod(
        &arena, quoted(&arena, "{'metadata':{'namespace':'default','name':'nv','uid':'u'}"
                               ",'spec':{'containers':[{'resources':{'limits':{"
                               "'nvidia.com/gpu':'1'}}}]}}"));
    struct request r = object_request(&arena, &pod, 1);
    ck_assert_int_eq(r.kind, REQUEST_DEVICES);
    struct ledger_pod *p = ledger_pod_add(ledger, &pod, &r, NULL);
    ledger_pod_place(ledger, p, SPAN("n1"), NULL, 0);
    ck_assert_int_eq(card_of(0)->state, CARD_HELD);
    ck_card(0, 0, 0);
    ck_card(1, 0, 3000); /* of a card that it does not hold */
    ck_assert_int_eq(drift(DRIFT_EXTERNAL_USE), 0);
    ck_assert_int_eq(drift(DRIFT_OVERUSE), 1);
    ledger_pod_remove(ledger, p);
    ck_card(0, 0, 0);
    ledger_free(ledger);
}

/* -- measurements that prove nothing -- */

/* Each of these lists, with 9000 MiB used of GPU-0, must give the estimate. */
TEST(a_measurement_that_contradicts_itself_counts_as_none)
{
#define USE(more)                                                                        \
    "'podList':[{'namespace':'default','name':'pod-a','usage':[{'uuid':'GPU-0'" more     \
    "}]}]"
#define ON_0 "'usageComplete':true,'uuid':'GPU-0'"
    static const struct {
        const char *card, *lists;
    } cases[] = {
        {"'uuid':'GPU-0'", USE(",'podUID':'a','usedMemory':3000")}, /* no mark */
        {"'usageComplete':false,'uuid':'GPU-0'", USE(",'podUID':'a','usedMemory':3000")},
        {"'usageComplete':true", USE(",'podUID':'a','usedMemory':3000")}, /* no UUID */
        {ON_0, USE(",'podUID':'a','usedMemory':9100")}, /* more than is used */
        {ON_0, USE(",'podUID':'a','usedMemory':1099511627776")},
        {ON_0, USE(",'podUID':'a','usedMemory':-4")},
        {ON_0, USE(",'podUID':'a'")},
        {ON_0, USE(",'usedMemory':3000")}, /* of a pod that cannot be known */
        {ON_0, USE(",'podUID':'a','usedMemory':5000},{'uuid':'GPU-0','podUID':'a',"
                   "'usedMemory':5000")}, /* a duplicate */
        {ON_0, "'processList':[{'uuid':'GPU-0','pid':4}]"},
        {ON_0, "'processList':[{'uuid':'GPU-0','pid':4,'usedMemory':5000},"
               "{'uuid':'GPU-0','pid':4,'usedMemory':5000}]"},
        {ON_0, "'processList':[{'uuid':'GPU-0','usedMemory':3000}]"}, /* of nobody */
        {ON_0 "},{'id':1,'health':'Healthy','totalMemory':16000,'freeMemory':7000," ON_0,
         USE(",'podUID':'a','usedMemory':3000")}, /* whose card is it? */
    };
    array_indices(i, cases) {
        start();
        struct scv scv = object_scv(
            &arena,
            quoted(&arena,
                   "{'metadata':{'name':'n1'},'status':{'cardList':[{'id':0,'health':"
                   "'Healthy','totalMemory':16000,'freeMemory':7000,%s}],'updateTime':"
                   "'2026-11-23T09:00:00Z',%s}}",
                   cases[i].card, cases[i].lists));
        ledger_scv_seen(ledger, &scv, 0);
        struct ledger_pod *a = place("a", 2000, 0);
        ck_assert_msg(!card_of(0)->use_known, "case %zu", i);
        ck_card(0, 8000, 0);
        ledger_pod_running(ledger, a, true);
        ck_card(0, 6000, 0);
        ledger_free(ledger);
    }
#undef USE
#undef ON_0
}

/* Without the time of the sample, nothing is known of the used memory. */
TEST(without_a_sample_nothing_is_withheld)
{
    start();
    struct scv scv = object_scv(
        &arena, quoted(&arena, "{'metadata':{'name':'n1'},'status':{'cardList':[{'id':0,"
                               "'health':'Healthy','uuid':'GPU-0','usageComplete':true,"
                               "'totalMemory':16000,'freeMemory':7000}],'processList':[{"
                               "'uuid':'GPU-0','pid':4,'usedMemory':9000}]}}"));
    ledger_scv_seen(ledger, &scv, 0);
    ck_assert(!card_of(0)->use_known);
    ck_card(0, 0, 0);
    ledger_free(ledger);
}
