/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rig.h"
#include "domain/dialect.h"

/*
 * Pods that HAMi has bound: their annotations are promises, until the administrator says that the
 * takeover is done, and of the pods that were bound before for as long as they run.
 */

enum { SIZE = 16000, USABLE = 15500 };

/* A node with three cards of USABLE MiB, of which the driver keeps the rest of SIZE. */
static void begin(void)
{
    rig_new((struct core_settings){.ledger = {.dialect = &dialect_hami}});
    rig_acquire();
    rig_list_end(CORE_CONFIGMAPS);
    rig_tick(0);
}

static void cards(void)
{
    struct scv scv = object_scv_even(&r.arena, "n1", 3, SIZE);
    for (size_t i = 0; i < scv.n_cards; i++)
        scv.cards[i].reserved_mib = SIZE - USABLE;
    rig_scv(scv);
}

static void start(void)
{
    begin();
    rig_lists_end();
    cards();
    rig_reset();
}

/* A pod of HAMi on n1. `notes`: more annotations, with a comma before them. */
static struct pod hami_pod(const char *uid, const char *allocated, const char *limits,
                           const char *notes)
{
    return rig_json(
        "{'metadata':{'namespace':'default','name':'pod-%s','uid':'%s','"
        "creationTimestamp':"
        "'2026-11-29T10:00:00Z','annotations':{'hami.io/vgpu-node':'n1',"
        "'hami.io/"
        "vgpu-devices-allocated':'%s'%s}},'spec':{'nodeName':'n1','containers':[{"
        "'name':'c','resources':{'limits':{%s}}}]},'status':{'phase':'Running'}}",
        uid, uid, allocated, notes, limits);
}

#define GPU(n)   "'nvidia.com/gpu':'" n "'"
#define MEM(m)   ",'nvidia.com/gpumem':'" m "'"
#define CORES(c) ",'nvidia.com/gpucores':'" c "'"

/* What is promised on the cards: "MiB/percent/pods ...", with ! for a card that is whole. */
static const char *promised(void)
{
    const struct ledger_node *node = rig_ledger_node("n1");
    cleanup_buf struct buf b = {0};
    ARRAY_EACH_ITEM(const struct card, card, node->cards, node->n_cards)
    buf_printf(&b, "%s%lld/%u/%u%s", b.n ? " " : "", (long long)card->promised_mib,
               card->compute_promised, card->pods, card->whole ? "!" : "");
    return arena_copy(&r.arena, buf_span(&b)).p;
}

TEST(annotations_of_hami_are_a_promise)
{
    static const struct {
        const char *allocated, *limits, *promised;
    } cases[] = {
        {"n1-u1,NVIDIA,6000,30:;", GPU("1") MEM("6000") CORES("30"),
         "0/0/0 6000/30/1 0/0/0"},
        {"n1-u0,NVIDIA,4000,0:n1-u2,NVIDIA,4000,0:;", GPU("2") MEM("4k"),
         "4000/0/1 0/0/0 4000/0/1"},
        /* HAMi counts what the driver keeps: all of the card. And more, with deviceMemoryScaling. */
        {"n1-u0,NVIDIA,16000,0:;", GPU("1") MEM("16000"), "15500/0/1 0/0/0 0/0/0"},
        {"n1-u0,NVIDIA,32000,0:;",
         GPU("1") ",'nvidia.com/gpumem-percentage':'100'" CORES("0"),
         "15500/0/1 0/0/0 0/0/0"},
        /* All of the compute: no other pod. */
        {"n1-u0,NVIDIA,1000,100:;", GPU("1") MEM("1000") CORES("100"),
         "15500/0/1! 0/0/0 0/0/0"},
        {"n1-u0,NVIDIA,16000,100:;", GPU("1"), "15500/0/1! 0/0/0 0/0/0"},
        /* A tenant can edit the annotation, and not the limit. */
        {"n1-u1,NVIDIA,1,0:;", GPU("1") MEM("6000") CORES("30"), "0/0/0 6000/30/1 0/0/0"},
        {"n1-u1,NVIDIA,1,0:;", GPU("1") ",'nvidia.com/gpumem-percentage':'50'",
         "0/0/0 7750/0/1 0/0/0"},
        {"n1-u1,NVIDIA,1,0:;", GPU("1"), "0/0/0 15500/0/1! 0/0/0"},
        /* Then any card may be it. */
        {"n1-u7,NVIDIA,6000,30:;", GPU("1") MEM("6000"), "6000/30/1 6000/30/1 6000/30/1"},
        {"n1-u0,NVIDIA,6000,0:n1-u7,NVIDIA,6000,0:;", GPU("2") MEM("6000"),
         "12000/0/1 12000/0/1 12000/0/1"},
        {"", GPU("1") MEM("6000"), "15500/0/1 15500/0/1 15500/0/1"},
        {"n1-u0,NVIDIA,6000", GPU("1") MEM("6000"), "15500/0/1 15500/0/1 15500/0/1"},
        {"n1-u0,NVIDIA,6000,0:;n1-u1,NVIDIA,6000,0:;", GPU("1") MEM("6000"),
         "15500/0/1 15500/0/1 15500/0/1"},
        /* Without a limit, annotations promise nothing. */
        {"n1-u0,NVIDIA,6000,0:;", "'cpu':'1'", "0/0/0 0/0/0 0/0/0"},
        {"n1-u0,NVIDIA,6000,0:;", GPU("0") MEM("6000"), "0/0/0 0/0/0 0/0/0"},
    };
    array_items(c, cases) {
        start();
        rig_see(hami_pod("a", c->allocated, c->limits, ""));
        ck_assert_msg(!strcmp(promised(), c->promised), "%s of %s: %s, not %s",
                      c->allocated, c->limits, promised(), c->promised);
    }
}

/* Of both, ours is of the bind. */
TEST(our_promise_counts_alone)
{
    start();
    rig_see(hami_pod("a", "n1-u0,NVIDIA,6000,0:;", GPU("1") MEM("6000"), ""));
    struct pod pod = hami_pod("b", "n1-u0,NVIDIA,6000,0:;", "'aliyun.com/gpu-mem':'3000'",
                              ",'ALIYUN_COM_GPU_MEM_IDX':'2','gpushare/memory-unit':'1'");
    rig_see(pod);
    ck_assert_str_eq(promised(), "6000/0/1 0/0/0 3000/0/1");
}

TEST(without_the_option_the_annotations_mean_nothing)
{
    rig_start();
    rig_lead();
    cards();
    rig_see(hami_pod("a", "n1-u0,NVIDIA,6000,0:;", GPU("1") MEM("6000"), ""));
    ck_assert_str_eq(promised(), "0/0/0 0/0/0 0/0/0");
}

/* The card may be known later than the pod. */
TEST(a_card_that_comes_back_has_its_promise)
{
    start();
    rig_scv_gone("n1");
    rig_see(hami_pod("a", "n1-u1,NVIDIA,6000,0:;", GPU("1") MEM("6000"), ""));
    cards();
    ck_assert_str_eq(promised(), "0/0/0 6000/0/1 0/0/0");
    struct pod over = hami_pod("a", "n1-u1,NVIDIA,6000,0:;", GPU("1") MEM("6000"), "");
    over.phase = POD_SUCCEEDED;
    rig_see(over);
    ck_assert_str_eq(promised(), "0/0/0 0/0/0 0/0/0");
}

TEST(no_card_is_promised_twice_beside_it)
{
    start();
    rig_see(hami_pod("a", "n1-u0,NVIDIA,10000,0:;", GPU("1") MEM("10000"), ""));
    rig_see(
        hami_pod("b", "n1-u1,NVIDIA,1000,100:;", GPU("1") MEM("1000") CORES("100"), ""));
    for (int i = 0; i < 3; i++) {
        cleanup_free char *uid = xasprintf("p%d", i);
        rig_pending(uid, 6000);
        rig_bind(1, uid, "n1");
    }
    /* Two of them on the third card. */
    ck_count(CORE_CALL_BIND, 2);
    ck_assert_str_eq(promised(), "10000/0/1 15500/0/1! 12000/0/2");
}

TEST(a_damaged_annotation_is_a_difference)
{
    start();
    rig_see(hami_pod("a", "n1-u0", GPU("1") MEM("6000"), ""));
    ck_assert_contains(rig_ledger_pod("a")->differences, "cannot be read");
    ck_assert_contains(
        rig_ledger_pod("a")->invalid_reason,
        "annotation hami.io/vgpu-devices-allocated is not of this node and "
        "these containers: \"n1-u0\"");
    rig_see(hami_pod("b", "n1-u0,NVIDIA,6000,0:;", GPU("1") MEM("6000"), ""));
    ck_assert_ptr_null(rig_ledger_pod("b")->differences);
    rig_see(hami_pod("b", "n1-u1,NVIDIA,6000,0:;", GPU("1") MEM("6000"), ""));
    ck_assert_contains(rig_ledger_pod("b")->differences, "edited after the bind");
}

/* -- the end of the takeover -- */

/* The ConfigMap that says it; gone: it was deleted. */
static void say_done(const char *time, bool gone)
{
    struct unhealthy_cards map = object_unhealthy_cards(
        &r.arena, rig_text("{'metadata':{'name':'gpushare-takeover-hami','namespace':"
                           "'kube-system','creationTimestamp':'%s'}}",
                           time));
    rig_step((struct core_input){.type = CORE_OBJECT,
                                 .kind = CORE_CONFIGMAPS,
                                 .run = r.runs[CORE_CONFIGMAPS],
                                 .unhealthy = &map,
                                 .deleted = gone});
}

/* hami_pod, bound at that time; "": by nobody whom a condition shows. */
static struct pod bound_at(const char *uid, const char *time)
{
    struct pod pod = hami_pod(uid, "n1-u1,NVIDIA,6000,0:;", GPU("1") MEM("6000"), "");
    struct pod dated = rig_json(
        "{'metadata':{'name':'p'},'status':{'conditions':[{'type':'PodScheduled',"
        "'status':'True','lastTransitionTime':'%s'}]}}",
        time);
    pod.bound_s = dated.bound_s;
    return pod;
}

static const char named[] = "0/0/0 6000/0/1 0/0/0",
                  everywhere[] = "6000/0/1 6000/0/1 6000/0/1";

TEST(later_annotations_are_ignored_once_it_is_done)
{
    static const struct {
        const char *bound, *promised;
    } cases[] = {{"2026-11-29T11:59:59Z", named},
                 {"2026-11-29T12:00:00Z", named},
                 {"2026-11-29T12:00:01Z", everywhere},
                 /* Its creation counts, which is before. */
                 {"", named},
                 {"now", named}};
    array_items(c, cases) {
        start();
        say_done("2026-11-29T12:00:00Z", false);
        ck_assert_str_eq(rig_log(),
                         "ConfigMap gpushare-takeover-hami: annotations of HAMi "
                         "count on pods that were bound until "
                         "2026-11-29T12:00:00Z");
        rig_see(bound_at("a", c->bound));
        ck_assert_msg(!strcmp(promised(), c->promised), "%s: %s", c->bound, promised());
    }
    /* A condition can be forged by whoever may write the status, and creation by nobody. */
    start();
    say_done("2026-11-29T09:00:00Z", false);
    rig_see(bound_at("a", "2026-11-29T08:00:00Z"));
    ck_assert_str_eq(promised(), everywhere);
}

/* A tenant cannot block cards: without HAMi's limits nothing is said, and with them and our promise
 * ours counts. */
TEST(annotations_alone_block_no_card_once_it_is_done)
{
    start();
    say_done("2026-11-29T09:00:00Z", false);
    rig_see(hami_pod("a", "n1-u0,NVIDIA,6000,100:;", "'cpu':'1'", ""));
    rig_see(hami_pod("b", "n1-u0,NVIDIA,16000,100:;", "'aliyun.com/gpu-mem':'1000'",
                     ",'ALIYUN_COM_GPU_MEM_IDX':'1','gpushare/memory-unit':'1'"));
    ck_assert_str_eq(promised(), "0/0/0 1000/0/1 0/0/0");
    /* One card that NVIDIA's device plugin chooses. */
    rig_see(hami_pod("c", "n1-u0,NVIDIA,16000,100:;", GPU("1"), ""));
    ck_assert_str_eq(promised(), "0/0/0 1000/0/1 0/0/0");
    ck_assert_int_eq(rig_ledger_node("n1")->claimed, 1);
}

/* What it says is known before the first pod. */
TEST(a_restart_changes_nothing)
{
    rig_new((struct core_settings){.ledger = {.dialect = &dialect_hami}});
    rig_acquire();
    rig_tick(10000);
    STEP_EACH(struct core_output, o, &r.out)
    ck_assert(o->type != CORE_LIST || o->kind != CORE_PODS);
    ck_assert_int_gt(core_due(r.core), r.now.mono_ms);
    say_done("2026-11-29T12:00:00Z", false);
    rig_list_end(CORE_CONFIGMAPS);
    rig_tick(0);
    ck_assert_uint_gt(r.runs[CORE_PODS], 0);
    cards();
    rig_see(bound_at("a", "2026-11-29T11:59:59Z"));
    ck_assert_str_eq(promised(), named);
    rig_see(bound_at("b", "2026-11-29T12:00:01Z"));
    ck_assert_str_eq(promised(), "6000/0/1 12000/0/2 6000/0/1");
}

/* As does what is bound later again, when nobody says it any more. */
TEST(without_the_configmap_all_count)
{
    start();
    say_done("2026-11-29T12:00:00Z", false);
    say_done("2026-11-29T12:00:00Z", true);
    ck_assert_contains(rig_log(), "count on all pods");
    rig_see(bound_at("a", "2026-11-29T13:00:00Z"));
    ck_assert_str_eq(promised(), named);
    start();
    say_done("2026-11-29T12:00:00Z", false);
    rig_watch_ended(CORE_CONFIGMAPS, ERR_NOT_FOUND);
    rig_tick(60000);
    rig_list_end(CORE_CONFIGMAPS);
    rig_see(bound_at("a", "2026-11-29T13:00:00Z"));
    ck_assert_str_eq(promised(), named);
    start();
    say_done("a time", false);
    rig_see(bound_at("a", "2026-11-29T13:00:00Z"));
    ck_assert_str_eq(promised(), named);
}
