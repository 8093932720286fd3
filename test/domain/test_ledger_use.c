/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/ledger.h"

#include "base/clock.h"
#include "base/rng.h"
#include "domain/objects.h"

/*
 * Whose memory of a card is used: processes without a promise, pods inside their promises,
 * and pods beyond them. The Scv is that of scv-agent, with cards GPU-0 and GPU-1.
 */

enum { TOTAL = 16000, TOLERANCE = 1000 };

static struct arena arena;
static struct ledger *ledger;
static int64_t sample_s;

/* -- the Scv -- */

struct sample {
    struct buf held, processes; /* items of podList and processList */
    long used[2];
    bool incomplete; /* the cards are not marked */
};

static void start(void)
{
    const struct ledger_settings s = {.unit_mib = 1, .external_tolerance_mib = TOLERANCE};
    ledger = ledger_new(&s, 1);
    sample_s = 1000;
}

/* A container without a device has its use in processList. */
static void uses(struct sample *s, const char *pod, int card, long mib)
{
    buf_printf(&s->held,
               "%s{'namespace':'default','name':'pod-%s','container':'c','units':1,"
               "'resource':'aliyun.com/gpu-mem','cards':['GPU-%d'],'usage':[{'uuid':"
               "'GPU-%d','podUID':'%s','promisedMemory':1,'usedMemory':%ld}]}",
               s->held.n ? "," : "", pod, card, card, pod, mib);
    s->used[card] += mib;
}

static void uses_without_device(struct sample *s, const char *pod, int card, long mib)
{
    buf_printf(&s->processes,
               "%s{'namespace':'default','name':'pod-%s','container':'i','uuid':'GPU-%d',"
               "'podUID':'%s','usedMemory':%ld}",
               s->processes.n ? "," : "", pod, card, pod, mib);
    s->used[card] += mib;
}

static void other_process(struct sample *s, int card, long mib)
{
    buf_printf(&s->processes,
               "%s{'pid':7,'name':'Xorg','uuid':'GPU-%d','usedMemory':%ld}",
               s->processes.n ? "," : "", card, mib);
    s->used[card] += mib;
}

/* The ledger gets it, as a new sample. */
static void see(struct sample *s)
{
    cleanup_buf struct buf time = {0};
    const char *mark = s->incomplete ? "" : "'usageComplete':true,";
    clock_format_s(&time, sample_s++);
    struct span text = quoted(
        &arena,
        "{'metadata':{'name':'n1'},'status':{'cardList':[{'id':0,'health':'Healthy',"
        "'uuid':'GPU-0',%s'totalMemory':%d,'freeMemory':%ld},{'id':1,'health':'Healthy',"
        "'uuid':'GPU-1',%s'totalMemory':%d,'freeMemory':%ld}],'updateTime':'%s',"
        "'podList':[%s],'processList':[%s]}}",
        mark, TOTAL, TOTAL - s->used[0], mark, TOTAL, TOTAL - s->used[1], time.p,
        s->held.n ? s->held.p : "", s->processes.n ? s->processes.p : "");
    struct scv scv = object_scv(&arena, text);
    ledger_scv_seen(ledger, &scv, 0);
    buf_fini(&s->held);
    buf_fini(&s->processes);
    *s = (struct sample){0};
}

/* -- pods -- */

static struct ledger_pod *place(const char *uid, int mib, int card)
{
    struct pod pod = object_pod_mem(&arena, uid, mib);
    struct request r = object_request(&arena, &pod, 1);
    struct ledger_pod *p = ledger_pod_add(ledger, &pod, &r, NULL);
    char uuid[] = "GPU-0";
    uuid[4] = (char)('0' + card);
    const struct ledger_share share = {
        .card = card, .mib = mib, .uuid = {uuid, sizeof uuid - 1}};
    ledger_pod_place(ledger, p, SPAN("n1"), &share, 1);
    return p;
}

static const struct card *card_of(int i)
{
    return &ledger_node_find(ledger, SPAN("n1"))->cards[i];
}

/* The parts of what is withheld. */
static void ck_card(int i, long outside, long overuse)
{
    const struct card *card = card_of(i);
    ck_assert_int_eq(card_external_mib(card), outside);
    ck_assert_int_eq(card->overuse_mib, overuse);
    ck_assert_int_eq(card->withheld_mib, outside + overuse);
}

static int64_t drift(enum ledger_drift kind)
{
    int64_t counts[DRIFTS] = {0};
    ledger_node_drift(ledger, ledger_node_find(ledger, SPAN("n1")), counts);
    return counts[kind];
}

/* -- both errors of an estimate -- */

/* The estimate takes the memory of another process for the pod's. */
START_TEST(an_unused_promise_hides_no_other_process)
{
    struct sample s = {0};
    start();
    see(&s);
    ledger_pod_running(ledger, place("a", 8000, 0), true);
    other_process(&s, 0, 8000);
    s.incomplete = true;
    see(&s);
    ck_card(0, 0, 0);
    ck_assert_int_eq(card_of(0)->free_mib, 8000); /* of which nothing is free */
    ck_assert(!card_of(0)->use_known);

    other_process(&s, 0, 8000);
    see(&s);
    ck_card(0, 7000, 0);
    ck_assert_int_eq(card_of(0)->free_mib, 1000); /* the tolerance */
    ck_assert(card_of(0)->use_known);
    ck_assert_int_eq(drift(DRIFT_OUTSIDE), 1);
    ck_assert_int_eq(drift(DRIFT_OVERUSE), 0);

    /* A context of the pod hides no more than that of the process outside. */
    uses(&s, "a", 0, 300);
    other_process(&s, 0, 8000);
    see(&s);
    ck_card(0, 7000, 0);
    ledger_free(ledger);
}
END_TEST

/* The estimate takes the memory of a pod for that of another process. */
START_TEST(memory_inside_a_promise_is_not_used_from_outside)
{
    struct sample s = {0};
    start();
    see(&s);
    struct ledger_pod *a = place("a", 8000, 0);
    uses_without_device(&s, "a", 0, 7000); /* an init container: the pod is Pending */
    s.incomplete = true;
    see(&s);
    ck_card(0, 6000, 0);
    uses_without_device(&s, "a", 0, 7000);
    see(&s);
    ck_card(0, 0, 0);
    ck_assert_int_eq(card_of(0)->free_mib, 8000);
    ck_assert_int_eq(drift(DRIFT_OUTSIDE), 0);
    /* The API shows that it runs, after the sample. */
    ledger_pod_running(ledger, a, false);
    ck_card(0, 0, 0);
    ledger_free(ledger);
}
END_TEST

START_TEST(overuse_is_no_external_use)
{
    struct sample s = {0};
    start();
    see(&s);
    place("a", 4000, 0);
    place("b", 4000, 0);
    uses(&s, "a", 0, 0);
    uses(&s, "b", 0, 6000); /* the promise of a does not hide it */
    other_process(&s, 0, 1500);
    see(&s);
    ck_card(0, 500, 2000);
    ck_assert_int_eq(card_of(0)->free_mib, TOTAL - 8000 - 2500);
    ck_assert_int_eq(drift(DRIFT_OUTSIDE), 1);
    ck_assert_int_eq(drift(DRIFT_OVERUSE), 1);
    /* One tolerance for both. */
    uses(&s, "b", 0, 4700);
    other_process(&s, 0, 400);
    see(&s);
    ck_card(0, 0, 100);
    uses(&s, "b", 0, 4500);
    other_process(&s, 0, 500);
    see(&s);
    ck_card(0, 0, 0);
    /* What a container without a device uses is the pod's, too. */
    uses(&s, "b", 0, 3000);
    uses_without_device(&s, "b", 0, 3000);
    see(&s);
    ck_card(0, 0, 1000);
    ledger_free(ledger);
}
END_TEST

START_TEST(use_of_another_card_than_the_promised_one)
{
    struct sample s = {0};
    start();
    see(&s);
    place("a", 4000, 0);
    uses(&s, "a", 0, 3000);
    uses_without_device(&s, "a", 1, 5000);
    see(&s);
    ck_card(0, 0, 0);
    ck_card(1, 0, 4000);
    ck_assert_int_eq(card_of(1)->free_mib, TOTAL - 4000);
    ledger_free(ledger);
}
END_TEST

/* A monitoring pod, or one that the watch has not shown yet. */
START_TEST(pods_without_a_promise_count_as_outside)
{
    struct sample s = {0};
    start();
    see(&s);
    uses_without_device(&s, "unknown", 0, 5000);
    see(&s);
    ck_card(0, 4000, 0);
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
    see(&s);
    ck_card(0, 2000, 0);
    ledger_free(ledger);
}
END_TEST

/* Managed memory is in no process's list. */
START_TEST(memory_of_no_process_fills_promises_of_pods_that_use_the_card)
{
    struct sample s = {0};
    start();
    see(&s);
    place("a", 8000, 0);
    uses(&s, "a", 0, 300);
    s.used[0] += 7000;
    see(&s);
    ck_card(0, 0, 0);
    uses(&s, "a", 0, 300);
    s.used[0] += 7700 + 1500;
    see(&s);
    ck_card(0, 500, 0);
    /* A pod without a process has none. */
    s.used[0] += 7000;
    see(&s);
    ck_card(0, 6000, 0);
    /* It does not cover what other processes use. */
    uses(&s, "a", 0, 300);
    other_process(&s, 0, 5000);
    s.used[0] += 2000;
    see(&s);
    ck_card(0, 4000, 0);
    ledger_free(ledger);
}
END_TEST

/* -- time -- */

START_TEST(a_pod_that_left_frees_its_promise_before_the_next_sample)
{
    struct sample s = {0};
    start();
    see(&s);
    struct ledger_pod *a = place("a", 4000, 0);
    uses(&s, "a", 0, 6000);
    see(&s);
    ck_card(0, 0, 1000);
    ledger_pod_remove(ledger, a);
    ck_card(0, 1000, 0); /* beyond its promise nothing is known to be free */
    ck_assert_int_eq(card_of(0)->free_mib, TOTAL - 1000);
    /* Its name comes back with another UID, and uses nothing yet. */
    place("b", 4000, 0);
    ck_assert_int_eq(card_of(0)->free_mib, TOTAL - 5000);
    /* The next sample shows that its processes still run. */
    uses(&s, "a", 0, 6000);
    see(&s);
    ck_card(0, 5000, 0);
    see(&s);
    ck_card(0, 0, 0);
    ledger_free(ledger);
}
END_TEST

/* The processes of a pod that was deleted by force run on; a new pod has its name. */
START_TEST(a_pod_does_not_take_over_the_use_of_one_with_its_name)
{
    struct sample s = {0};
    start();
    see(&s);
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
    see(&s);
    ck_card(0, 3000, 0);
    ck_assert_int_eq(card_of(0)->free_mib, TOTAL - 4000 - 3000);
    ledger_free(ledger);
}
END_TEST

START_TEST(a_departed_pod_that_is_back_counts_once)
{
    struct sample s = {0};
    start();
    see(&s);
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
END_TEST

/* -- nvidia.com/gpu -- */

#define NVIDIA_SCV                                                                       \
    "{'metadata':{'name':'n1'},'status':{'updateTime':'2026-11-23T09:00:00Z',"           \
    "'cardList':[{'id':0,'health':'Healthy','uuid':'GPU-0','usageComplete':true,"        \
    "'totalMemory':16000,'freeMemory':9000},{'id':1,'health':'Healthy','uuid':"          \
    "'GPU-1','usageComplete':true,'totalMemory':16000,'freeMemory':12000}],'podList':["  \
    "{'namespace':'default','name':'nv','container':'c','resource':'nvidia.com/gpu',"    \
    "'units':1,'cards':['GPU-0'],'usage':[{'uuid':'GPU-0','podUID':'u','usedMemory':"    \
    "7000},{'uuid':'GPU-1','podUID':'u','usedMemory':4000}]}]}}"

START_TEST(a_pod_of_another_device_plugin_is_measured)
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
    ck_assert_int_eq(drift(DRIFT_OUTSIDE), 0);
    ck_assert_int_eq(drift(DRIFT_OVERUSE), 1);
    ledger_pod_remove(ledger, p);
    ck_card(0, 0, 0);
    ledger_free(ledger);
}
END_TEST

/* -- measurements that prove nothing -- */

/* Each of these lists, with 9000 MiB used of GPU-0, must give the estimate. */
START_TEST(a_measurement_that_contradicts_itself_counts_as_none)
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
        {ON_0 "},{'id':1,'health':'Healthy','totalMemory':16000,'freeMemory':7000," ON_0,
         USE(",'podUID':'a','usedMemory':3000")}, /* whose card is it? */
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
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
END_TEST

/* Without the time of the sample, nothing is known of the used memory. */
START_TEST(without_a_sample_nothing_is_withheld)
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
END_TEST

/* -- a model -- */

enum { PODS = 6, CARDS = 2, ROUNDS = 4000 };

struct model_pod {
    char uid[8];
    struct ledger_pod *pod; /* NULL: not in the ledger */
    int card, promise;
    bool running;
    long used[CARDS]; /* as the newest sample shows it */
};

static struct model {
    struct rng rng;
    struct model_pod pods[PODS];
    long outside[CARDS], unlisted[CARDS];
    /* Of pods that left since the sample: used beyond their promises, and not used. */
    long left_beyond[CARDS], left_unused[CARDS];
    bool exact;
    int next;
} model;

static long below(uint64_t n)
{
    return (long)rng_below(&model.rng, n);
}

static void model_place(struct model_pod *p)
{
    snprintf(p->uid, sizeof p->uid, "p%d", model.next++ % 100000);
    p->card = (int)below(CARDS);
    p->promise = 500 + (int)below(3000);
    p->pod = place(p->uid, p->promise, p->card);
    p->running = false;
    p->used[0] = p->used[1] = 0;
}

static long at_most(long a, long b)
{
    return a < b ? a : b;
}

static void model_remove(struct model_pod *p)
{
    for (int c = 0; c < CARDS; c++) {
        long promise = c == p->card ? p->promise : 0;
        model.left_beyond[c] += p->used[c] - at_most(p->used[c], promise);
        if (p->used[c])
            model.left_unused[c] += promise - at_most(p->used[c], promise);
    }
    ledger_pod_remove(ledger, p->pod);
    p->pod = NULL;
}

static long some_use(void)
{
    return below(3) ? below(3) * (100 + below(1500)) : 0;
}

static void model_sample(void)
{
    struct sample s = {.incomplete = below(4) == 0};
    model.exact = !s.incomplete;
    for (int c = 0; c < CARDS; c++) {
        long processes = 1 + below(3);
        model.outside[c] = model.left_beyond[c] = model.left_unused[c] = 0;
        for (long i = 0; i < processes; i++) {
            long mib = some_use();
            other_process(&s, c, mib);
            model.outside[c] += mib;
        }
        model.unlisted[c] = below(2) ? below(800) : 0;
        s.used[c] += model.unlisted[c];
    }
    for (int i = 0; i < PODS; i++)
        for (int c = 0; c < CARDS && model.pods[i].pod; c++) {
            struct model_pod *p = &model.pods[i];
            p->used[c] = c == p->card || !below(8) ? some_use() : 0;
            if (p->used[c] && c == p->card && below(2))
                uses(&s, p->uid, c, p->used[c]);
            else if (p->used[c])
                uses_without_device(&s, p->uid, c, p->used[c]);
        }
    see(&s);
}

/* Computed from what is true, not from what the Scv says. */
static void model_check(int c)
{
    long outside = model.outside[c] + model.left_beyond[c], overuse = 0;
    long unused = model.left_unused[c];
    long promised = 0, must = model.outside[c] + model.unlisted[c];
    const struct card *card = card_of(c);
    for (int i = 0; i < PODS; i++) {
        const struct model_pod *p = &model.pods[i];
        long promise = p->pod && p->card == c ? p->promise : 0;
        if (!p->pod)
            continue;
        promised += promise;
        must += p->used[c] > promise ? p->used[c] : promise;
        overuse += p->used[c] > promise ? p->used[c] - promise : 0;
        unused += p->used[c] && p->used[c] < promise ? promise - p->used[c] : 0;
    }
    ck_assert_int_eq(card->promised_mib, promised);
    /* No new pod can make the card overcommitted in fact: each pod gets its promise or
     * what it uses. Managed memory may be inside a promise. */
    long hidden = at_most(model.unlisted[c], unused);
    if (model.exact && card->free_mib)
        ck_assert_int_le(card->free_mib, TOTAL - must + TOLERANCE + hidden);
    ck_assert_int_eq(card->use_known, model.exact);
    if (!model.exact) {
        ck_assert_int_eq(card->overuse_mib, 0);
        return;
    }
    outside += model.unlisted[c] - hidden;
    long withheld = outside + overuse - TOLERANCE;
    withheld = withheld < 0 ? 0 : at_most(withheld, TOTAL);
    ck_assert_int_eq(card->withheld_mib, withheld);
    ck_assert_int_eq(card->overuse_mib, at_most(overuse, withheld));
}

START_TEST(the_measured_parts_are_those_of_a_model)
{
    start();
    rng_init(&model.rng, 20261123);
    model_sample();
    for (int round = 0; round < ROUNDS; round++) {
        struct model_pod *p = &model.pods[below(PODS)];
        long what = below(4);
        if (what == 0 && !p->pod) {
            model_place(p);
        } else if (what == 1 && p->pod) {
            model_remove(p);
        } else if (what == 2 && p->pod) {
            ledger_pod_running(ledger, p->pod, below(2));
        } else if (what == 3) {
            model_sample();
        }
        for (int c = 0; c < CARDS; c++)
            model_check(c);
        arena_reset(&arena);
    }
    ledger_free(ledger);
}
END_TEST

/* Whatever a node's credentials write: the card gives new pods no more than what NVML
 * showed as free, and the tolerance; and what pods were promised stays theirs. */
START_TEST(a_lying_podlist_frees_nothing_that_is_used)
{
    static const char *const lies[] = {"p0", "p1", "p2", "other", "p0", ""};
    rng_init(&model.rng, 7);
    for (int round = 0; round < 3000; round++) {
        struct sample s = {0};
        long used = below(TOTAL + 1), promised = 0;
        start();
        see(&s);
        for (int i = 0; i < 3; i++) {
            static const char *const uids[] = {"p0", "p1", "p2"};
            int mib = 1 + (int)below(4000);
            struct ledger_pod *p = place(uids[i], mib, 0);
            promised += mib;
            if (below(2))
                ledger_pod_running(ledger, p, below(2));
        }
        for (long n = below(8); n > 0; n--) {
            long mib = below(3) ? below(4000) : below(INT64_C(1) << 41);
            if (below(3))
                uses(&s, lies[below(ARRAY_LEN(lies))], (int)below(2), mib);
            else
                other_process(&s, (int)below(2), mib);
        }
        s.used[0] = used; /* NVML's */
        s.used[1] = below(TOTAL);
        see(&s);
        const struct card *card = card_of(0);
        ck_assert_int_eq(card->promised_mib, promised);
        ck_assert_int_le(card->free_mib, TOTAL - promised);
        ck_assert_int_ge(card->withheld_mib, 0);
        ck_assert_int_ge(card_external_mib(card), 0);
        ck_assert_int_le(card->withheld_mib, TOTAL);
        if (card->use_known && card->free_mib)
            ck_assert_int_le(card->free_mib, TOTAL - used + TOLERANCE);
        ledger_free(ledger);
        arena_reset(&arena);
    }
}
END_TEST

UNIT_MAIN("ledger_use", an_unused_promise_hides_no_other_process,
          memory_inside_a_promise_is_not_used_from_outside, overuse_is_no_external_use,
          use_of_another_card_than_the_promised_one,
          pods_without_a_promise_count_as_outside,
          memory_of_no_process_fills_promises_of_pods_that_use_the_card,
          a_pod_that_left_frees_its_promise_before_the_next_sample,
          a_pod_does_not_take_over_the_use_of_one_with_its_name,
          a_departed_pod_that_is_back_counts_once,
          a_pod_of_another_device_plugin_is_measured,
          a_measurement_that_contradicts_itself_counts_as_none,
          without_a_sample_nothing_is_withheld, the_measured_parts_are_those_of_a_model,
          a_lying_podlist_frees_nothing_that_is_used)
