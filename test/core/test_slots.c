/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rig.h"
#include "placement/preempt.h"

/*
 * Pods of slots: aliyun.com/gpu-share: k is a slot on each of k cards, and the annotation
 * gpushare/memory says how much of each. From the request to the Binding, and back after a restart.
 */

enum { SMALL = 15000, LARGE = 80000, UNIT = 1024, SLOTS = 4 };

/* Nodes of these cards in MiB: n1 of one small and two large ones; n2 of two small ones. Each card
 * has SLOTS slots. The ledger's unit is another than that of slots. */
static void start(void)
{
    rig_new((struct core_settings){.ledger = {.unit_mib = UNIT}});
    rig_lead();
    for (int n = 1; n <= 2; n++) {
        cleanup_free char *name = xasprintf("n%d", n);
        int cards = n == 1 ? 3 : 2;
        struct scv scv = object_scv_even(&r.arena, name, cards, SMALL);
        for (int i = 1; i < cards && n == 1; i++)
            scv.cards[i].total_mib = scv.cards[i].free_mib = LARGE;
        rig_scv(scv);
        rig_node(object_node(
            &r.arena, rig_text("{'metadata':{'name':'n%d'},'status':{'capacity':{"
                               "'aliyun.com/gpu-count':'%d','aliyun.com/gpu-mem':'99',"
                               "'aliyun.com/gpu-core.percentage':'%d',"
                               "'aliyun.com/gpu-share':'%d'}}}",
                               n, cards, 100 * cards, SLOTS * cards)));
    }
    rig_reset();
}

/* `memory`: the annotation. `more`: annotations, each with a comma before it. */
static struct pod slots_of(const char *uid, const char *memory, const char *more,
                           const char *spec)
{
    return rig_json("{'metadata':{'namespace':'default','name':'pod-%s','uid':'%s',"
                    "'annotations':{'gpushare/memory':'%s'%s}},'spec':{%s}}",
                    uid, uid, memory, more, spec);
}

#define C(limits) "{'name':'c','resources':{'limits':{" limits "}}}"
#define SLOT(k)   "'aliyun.com/gpu-share':'" k "'"
#define APP(list) "'containers':[" list "]"

static const struct card *card(const char *node, int i)
{
    return &rig_ledger_node(node)->cards[i];
}

static void bind_fails(const char *uid, const char *node, const char *why)
{
    rig_bind(1, uid, node);
    ck_count(CORE_CALL_BIND, 0);
    ck_assert_contains(rig_take(CORE_REPLY).text, why);
}

/* Binds the pod to the node, and restarts; the pod then has the annotations of its Binding, and
 * `memory` and this spec. Returns the Binding's. */
static const char *bound(const char *uid, const char *memory, const char *spec,
                         const char *node, const char *later)
{
    rig_see(slots_of(uid, memory, "", spec));
    rig_bind(1, uid, node);
    struct core_output bind = rig_take(CORE_CALL_BIND);
    cleanup_free char *notes = xstrdup(bind.annotations);
    notes[strlen(notes) - 1] = '\0'; /* the last brace */
    start();
    cleanup_free char *more = xasprintf(",%s", notes + 1);
    cleanup_free char *on = xasprintf("'nodeName':'%s',%s", node, spec);
    struct pod pod = rig_json("{'metadata':{'namespace':'default','name':'pod-%s','uid':"
                              "'%s','annotations':{%s%s}},'spec':{%s}}",
                              uid, uid, later, later[0] ? more : notes + 1, on);
    rig_see(pod);
    return arena_copy(&r.arena, span_of(notes)).p;
}

TEST(the_binding_is_in_mib_whatever_the_unit_is)
{
    start();
    const char *notes =
        bound("a", "6Gi", APP(C(SLOT("2")) "," C(SLOT("2"))), "n2", "'x':'y'");
    ck_assert_contains(notes, "\"ALIYUN_COM_GPU_MEM_IDX\":\"0,1\"");
    ck_assert_contains(notes, "\"ALIYUN_COM_GPU_MEM_DEV\":\"15000,15000\"");
    ck_assert_contains(notes, "\"ALIYUN_COM_GPU_MEM_POD\":\"12288\"");
    ck_assert_contains(notes, "\"gpushare/memory-unit\":\"1\"");
    ck_assert_contains(notes, "\"gpushare/card-memory\":\"6144 a\"");
    ck_assert_contains(notes, "{\\\"0\\\":{\\\"0\\\":3072,\\\"1\\\":3072},"
                              "\\\"1\\\":{\\\"0\\\":3072,\\\"1\\\":3072}}");
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(card("n2", i)->promised_mib, 6144);
        ck_assert_int_eq(card("n2", i)->slots_left, SLOTS - 2);
    }
}

/* Of one small and two large cards, half of one is half of the small one, and half of two is half
 * of the large ones. */
TEST(a_percentage_is_of_the_cards_that_the_pod_gets)
{
    start();
    const char *notes = bound("a", "50%", APP(C(SLOT("2"))), "n1", "'x':'y'");
    ck_assert_contains(notes, "\"ALIYUN_COM_GPU_MEM_IDX\":\"1,2\"");
    ck_assert_contains(notes, "\"gpushare/card-memory\":\"40000 a\"");
    ck_assert_int_eq(card("n1", 0)->promised_mib, 0);
    ck_assert_int_eq(card("n1", 1)->promised_mib, LARGE / 2);
    ck_assert_int_eq(card("n1", 2)->promised_mib, LARGE / 2);
    start();
    notes = bound("a", "50%", APP(C(SLOT("1"))), "n1", "'gpushare/memory':'50%'");
    ck_assert_contains(notes, "\"gpushare/card-memory\":\"7500 a\"");
    ck_assert_ptr_null(rig_ledger_pod("a")->differences);
    ck_assert_int_eq(card("n1", 0)->promised_mib, SMALL / 2);
    rig_see(slots_of("b", "51%", "", APP(C(SLOT("3")))));
    bind_fails("b", "n1",
               "needs 51 percent of the memory on each of 3 cards; too few cards of "
               "one size; the largest has 80000 MiB");
}

/* The annotation can be edited where no policy forbids it, and the limits cannot. */
TEST(after_the_bind_the_annotation_says_nothing)
{
    static const char *const later[] = {
        "'gpushare/memory':'1Mi'", "'gpushare/memory':'1%'", "'gpushare/memory':'100%'",
        "'gpushare/memory':'?'",   "'gpushare/memory':''",   "'x':'y'",
    };
    array_items(now, later) {
        start();
        bound("a", "6Gi", APP(C(SLOT("1"))), "n2", *now);
        ck_assert_msg(card("n2", 0)->promised_mib == 6144, "%s: %lld MiB", *now,
                      (long long)card("n2", 0)->promised_mib);
        ck_assert_int_eq(card("n2", 0)->slots_left, SLOTS - 1);
        ck_assert_contains(rig_ledger_pod("a")->differences,
                           "the annotations promise 6144 MiB on each card (1 card), but "
                           "the annotation gpushare/memory asks for another amount now");
    }
}

/* The bind counts before a watch shows it, also when the card shrinks meanwhile. */
TEST(a_bind_in_flight_counts_for_what_it_promised)
{
    start();
    rig_see(slots_of("a", "100%", "", APP(C(SLOT("2")))));
    rig_bind(1, "a", "n2");
    rig_cards("n2", 2, SMALL / 2);
    ck_assert_int_eq(card("n2", 0)->promised_mib, SMALL);
    ck_assert(card("n2", 1)->overcommitted);
    rig_not_sent(rig_take(CORE_CALL_BIND).call);
    ck_assert_int_eq(card("n2", 0)->promised_mib, 0);
    rig_reset();
    rig_bind(2, "a", "n2");
    ck_noted(rig_take(CORE_CALL_BIND), KEY_CARD_MEMORY, "7500 a");
}

/* A promise without a valid record was not written by a bind. */
TEST(without_a_valid_record_all_of_the_cards_counts)
{
    static const char *const records[] = {"", ",'gpushare/card-memory':'1 other'",
                                          ",'gpushare/card-memory':'0 a'",
                                          ",'gpushare/card-memory':'-5 a'"};
    array_items(record, records) {
        start();
        cleanup_free char *more = xasprintf(
            ",'ALIYUN_COM_GPU_MEM_IDX':'1','gpushare/memory-unit':'1',"
            "'scheduler.framework.gpushare.allocation':'{\\'0\\':{\\'1\\':6144}}'%s",
            *record);
        rig_see(slots_of("a", "6Gi", more, "'nodeName':'n2'," APP(C(SLOT("1")))));
        ck_assert_int_eq(card("n2", 0)->promised_mib, 0);
        ck_assert_int_eq(card("n2", 1)->promised_mib, SMALL);
        ck_assert_int_eq(card("n2", 1)->free_mib, 0);
        ck_assert(!card("n2", 1)->overcommitted);
    }
    start(); /* bound past the extender: on any card */
    rig_see(slots_of("a", "40%", "", "'nodeName':'n2'," APP(C(SLOT("1")))));
    rig_see(slots_of("b", "nonsense", "", "'nodeName':'n1'," APP(C(SLOT("1")))));
    ck_assert_int_eq(card("n2", 0)->promised_mib, SMALL * 40 / 100);
    ck_assert_int_eq(card("n2", 1)->promised_mib, SMALL * 40 / 100);
    ck_assert_int_eq(card("n1", 0)->promised_mib, SMALL);
    ck_assert_int_eq(card("n1", 2)->promised_mib, LARGE);
}

/* An edit of the record alone lowers nothing: the allocation of the bind has the amount, too. */
TEST(an_edited_record_lowers_nothing)
{
    start();
    rig_see(
        rig_json("{'metadata':{'namespace':'default','name':'pod-a','uid':'a',"
                 "'annotations':{'gpushare/memory':'1Mi','gpushare/card-memory':'1 a',"
                 "'gpushare/memory-unit':'1','ALIYUN_COM_GPU_MEM_IDX':'0',"
                 "'scheduler.framework.gpushare.allocation':'{\\'0\\':{\\'0\\':6144}}'"
                 "}},'spec':{'nodeName':'n2'," APP(C(SLOT("1"))) "}}"));
    ck_assert_int_eq(card("n2", 0)->promised_mib, 6144);
}

/* Bound past the extender, with limits that no annotation lowers. */
TEST(a_record_beside_other_limits_lowers_nothing)
{
    static const char *const limits[] = {"'aliyun.com/gpu-mem':'10'",
                                         "'aliyun.com/gpu-count':'1'"};
    array_items(limit, limits) {
        start();
        cleanup_free char *spec =
            xasprintf("'nodeName':'n2'," APP(C("%s," SLOT("1"))), *limit);
        rig_see(slots_of("a", "1Mi",
                         ",'gpushare/card-memory':'1 a','ALIYUN_COM_GPU_MEM_IDX':'1'",
                         spec));
        ck_assert_int_ge(card("n2", 1)->promised_mib, 10 * UNIT);
    }
}

TEST(a_card_has_so_many_slots)
{
    start();
    for (int i = 0; i < 2 * SLOTS; i++) {
        cleanup_free char *uid = xasprintf("a%d", i);
        rig_see(slots_of(uid, "1Mi", "", APP(C(SLOT("1")))));
        rig_bind(1, uid, "n2");
        rig_end(CORE_CALL_BIND, ERR_NONE);
        rig_reset();
    }
    ck_assert_int_eq(card("n2", 0)->slots_left, 0);
    ck_assert_int_eq(card("n2", 1)->slots_left, 0);
    rig_see(slots_of("b", "1Mi", "", APP(C(SLOT("1")))));
    bind_fails("b", "n2",
               "needs 1 MiB on one card; most free: 14996 of 15000 MiB on GPU0; too few "
               "free slots of aliyun.com/gpu-share: GPU0,GPU1");
    rig_delete(slots_of("a0", "1Mi", "", APP(C(SLOT("1")))));
    rig_see(slots_of("c", "2Mi", "", APP(C(SLOT("1")) "," C(SLOT("1")))));
    bind_fails("c", "n2", "too few free slots of aliyun.com/gpu-share: GPU0,GPU1");
    rig_pending("m", 14); /* gpu-mem needs no slot */
    rig_bind(2, "m", "n2");
    ck_count(CORE_CALL_BIND, 1);
}

/* A slot that filter keeps for a pod is no other's. */
TEST(reservations_have_slots)
{
    start();
    const struct span n2 = SPAN("n2");
    for (int i = 0; i < 2; i++) {
        cleanup_free char *uid = xasprintf("a%d", i);
        struct pod pod = slots_of(uid, "50%", "", APP(C(SLOT("2")) "," C(SLOT("2"))));
        ck_assert_int_eq(rig_reserve(pod, &n2, 1).reserve, CORE_RESERVE_DONE);
    }
    ck_reserved(2);
    ck_assert_int_eq(card("n2", 0)->reserved_mib, SMALL / 2 * 2);
    ck_assert_int_eq(card("n2", 0)->slots_left, 0);
    rig_pass(60 * 1000);
    ck_reserved(0);
    ck_assert_int_eq(card("n2", 0)->slots_left, SLOTS);
}

TEST(a_node_without_the_resource_takes_none)
{
    rig_start();
    rig_lead();
    rig_cards("n3", 1, SMALL);
    rig_node(object_node(
        &r.arena,
        rig_text("{'metadata':{'name':'n3'},'status':{'capacity':{"
                 "'aliyun.com/gpu-count':'1','aliyun.com/gpu-mem':'15000'}}}")));
    rig_see(slots_of("a", "6Gi", "", APP(C(SLOT("1")))));
    bind_fails("a", "n3", "too few free slots of aliyun.com/gpu-share: GPU0");
}

/* Slots and gpu-mem are on the same cards, and evict each other. */
TEST(slots_preempt_and_are_preempted)
{
    start();
    bound("a", "10%", APP(C(SLOT("1"))), "n2", "'x':'y'");
    struct pod high = slots_of("p", "100%", "", APP(C(SLOT("2"))));
    rig_see(rig_bound_pod("m", 4, "n2", "{'ALIYUN_COM_GPU_MEM_IDX':'1'}"));
    struct request request = object_request(&r.arena, &high, UNIT);
    const struct preemptor who = {.pod = {&request, 9, SPAN("p"), NULL}};
    struct preempt_victims set;
    ck_assert(preempt_select(&who, rig_ledger_node("n2"), NULL, 0, &r.arena, &set));
    ck_assert_uint_eq(set.n, 2);
    /* One slot too many: its pod leaves, although the memory is enough. */
    struct pod many =
        slots_of("p", "1Gi", "",
                 APP(C(SLOT("2")) "," C(SLOT("2")) "," C(SLOT("2")) "," C(SLOT("2"))));
    request = object_request(&r.arena, &many, UNIT);
    ck_assert(preempt_select(&who, rig_ledger_node("n2"), NULL, 0, &r.arena, &set));
    ck_assert_uint_eq(set.n, 1);
    ck_assert_span_eq(set.pods[0]->uid, "a");
}
