/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rig.h"
#include "domain/dialect.h"

/*
 * HAMi's requests from filter to bind, and after a restart. Node h is of HAMi's dialect, node n has
 * NVIDIA's device plugin. Both have two cards of 16000 MiB. A pod with nvidia.com/gpu alone has a
 * meaning on each.
 */

enum { CARD_MIB = 16000, AFTER_MS = 1000 };

static const struct core_settings settings = {
    .ledger = {.unit_mib = 1024, .dialect = &dialect_hami}, .preempt_after_ms = AFTER_MS};

static void see_node(const char *name, const char *dialect)
{
    struct scv scv = object_scv_even(&r.arena, name, 2, CARD_MIB);
    scv.dialect = span_of(dialect);
    rig_scv(scv);
}

static void see_object(const char *name)
{
    rig_node(
        object_node(&r.arena, rig_text("{'metadata':{'name':'%s'},'status':{'capacity':{"
                                       "'nvidia.com/gpu':'20'}}}",
                                       name)));
}

static void start(void)
{
    rig_new(settings);
    rig_lead();
    see_object("h");
    see_object("n");
    see_node("h", "hami");
    see_node("n", "");
    rig_reset();
}

/* Without Nodes, so a card has slots without limit. */
static void start_without_slots(void)
{
    rig_new(settings);
    rig_lead();
    see_node("h", "hami");
    rig_reset();
}

#define C(limits)    "{'name':'c','resources':{'limits':{" limits "}}}"
#define GPU(n)       "'nvidia.com/gpu':'" n "'"
#define MEM(n)       "'nvidia.com/gpumem':'" n "'"
#define APP(list)    "'containers':[" list "]"
#define CARDS_OF(n)  APP(C(GPU(n)))
#define MEMORY_OF(n) APP(C(GPU("1") "," MEM(n)))

static struct pod make(const char *uid, int priority, const char *notes, const char *spec)
{
    return rig_json("{'metadata':{'namespace':'default','name':'pod-%s','uid':'%s',"
                    "'annotations':{%s}},'spec':{'priority':%d,%s}}",
                    uid, uid, notes, priority, spec);
}

static const struct card *card(const char *node, int i)
{
    return &rig_ledger_node(node)->cards[i];
}

/* Binds it; the annotations of the Binding without their braces, or "". */
static const char *bind(const char *uid, const char *spec, const char *node)
{
    rig_see(make(uid, 0, "", spec));
    rig_bind(1, uid, node);
    struct core_output o = rig_take(CORE_CALL_BIND);
    size_t n = o.annotations ? strlen(o.annotations) : 2;
    const char *notes =
        arena_printf(&r.arena, "%.*s", (int)n - 2, n > 2 ? o.annotations + 1 : "");
    rig_answer(o.call, ERR_NONE);
    rig_reset();
    return notes;
}

TEST(a_pod_has_one_promise_by_the_meaning_of_its_node)
{
    start();
    ck_assert_str_ne(bind("a", CARDS_OF("1"), "h"), "");
    ck_assert(card("h", 0)->whole && card("h", 0)->promised_mib == CARD_MIB);
    ck_assert_uint_eq(rig_ledger_node("h")->claimed, 0);
    ck_assert_str_eq(bind("b", CARDS_OF("1"), "n"), "");
    ck_assert_int_eq(card("n", 0)->promised_mib, 0);
    ck_assert_uint_eq(rig_ledger_node("n")->claimed, 1);
    ck_assert_str_ne(bind("c", MEMORY_OF("3k"), "h"), "");
    ck_assert_int_eq(card("h", 1)->promised_mib, 3000);
    rig_see(make("d", 0, "", MEMORY_OF("1")));
    rig_bind(1, "d", "n");
    ck_count(CORE_CALL_BIND, 0);
    ck_assert_contains(rig_take(CORE_REPLY).text,
                       "its Scv has no dialect, which the CRD of 1.0 drops");
}

/* Promises stay, and no pod comes, not even one that has a meaning without the dialect. */
TEST(another_plugin_serves_the_node_again)
{
    static const char *const specs[] = {CARDS_OF("1"), MEMORY_OF("1")};
    start();
    bind("a", CARDS_OF("1"), "h");
    bind("b", MEMORY_OF("3k"), "h");
    see_node("h", "unserved");
    ck_assert(card("h", 0)->whole && card("h", 0)->promised_mib == CARD_MIB);
    ck_assert_int_eq(card("h", 1)->promised_mib, 3000);
    ck_assert_uint_eq(rig_ledger_node("h")->claimed, 0);
    array_items(spec, specs) {
        rig_see(make("c", 0, "", *spec));
        rig_bind(1, "c", "h");
        ck_count(CORE_CALL_BIND, 0);
        ck_assert_contains(rig_take(CORE_REPLY).text, "serves no requests of HAMi yet");
        rig_reset();
    }
    see_node("h", "hami");
    ck_assert_str_ne(bind("d", MEMORY_OF("1000"), "h"), "");
    ck_assert_int_eq(card("h", 1)->promised_mib, 4000);
}

static void see_bound(const char *uid, const char *notes, const char *spec)
{
    struct span json =
        rig_text("'spec':{'nodeName':'h',%s},'status':{'phase':'Running'}", spec);
    rig_see(object_pod(&r.arena,
                       span_of(arena_printf(
                           &r.arena,
                           "{\"metadata\":{\"namespace\":\"default\",\"name\":\"pod-%s\","
                           "\"uid\":\"%s\",\"annotations\":{%s}},%.*s}",
                           uid, uid, notes, SPAN_ARG(json)))));
}

/* Whichever object comes first after a restart, also a Scv that says later what the node is. */
TEST(the_promise_counts_in_any_order_of_arrival)
{
    start();
    cleanup_free char *first = xstrdup(bind("a", CARDS_OF("1"), "h"));
    cleanup_free char *second = xstrdup(bind("b", MEMORY_OF("5000"), "h"));
    for (int order = 0; order < 3; order++) {
        rig_new(settings);
        rig_lead();
        see_object("h");
        if (order != 1)
            see_node("h", order ? "" : "hami");
        see_bound("a", first, CARDS_OF("1"));
        see_bound("b", second, MEMORY_OF("5000"));
        if (order == 2) /* devices of NVIDIA's plugin, so far */
            ck_assert_uint_eq(rig_ledger_node("h")->claimed, 2);
        see_node("h", "hami");
        ck_assert_msg(card("h", 0)->whole && card("h", 0)->pods == 1 &&
                          card("h", 1)->promised_mib == 5000 && card("h", 1)->pods == 1,
                      "order %d", order);
        ck_assert_uint_eq(rig_ledger_node("h")->claimed, 0);
        ck_assert_ptr_null(rig_ledger_pod("b")->differences);
    }
}

/* What a card of h counts: "MiB/percent/slots", and ! if it is whole. */
static const char *counted(int i)
{
    const struct card *c = card("h", i);
    return arena_printf(&r.arena, "%lld/%u/%d%s", (long long)c->promised_mib,
                        c->compute_promised, UINT16_MAX - c->slots_left,
                        c->whole ? "!" : "");
}

static void ck_counted(int i, const char *expected)
{
    ck_assert_str_eq(counted(i), expected);
}

#define SHARE_OF(mib, cores)                                                             \
    APP(C(GPU("1") "," MEM(mib) ",'nvidia.com/gpucores':'" cores "'"))

/* The label of the node goes while the pods run. */
TEST(promises_count_in_full_when_the_node_leaves_the_dialect)
{
    start_without_slots();
    cleanup_free char *first = xstrdup(bind("a", SHARE_OF("5000", "30"), "h"));
    cleanup_free char *second = xstrdup(bind("b", CARDS_OF("1"), "h"));
    for (int restarted = 0; restarted < 2; restarted++) {
        if (restarted)
            start_without_slots();
        see_bound("a", first, SHARE_OF("5000", "30"));
        see_bound("b", second, CARDS_OF("1"));
        see_node("h", "");
        ck_counted(0, "5000/30/1");
        ck_counted(1, "16000/0/0!");
        see_node("h", "hami");
        ck_counted(0, "5000/30/1");
        ck_counted(1, "16000/0/0!");
    }
}

/* The limits of a pod cannot be edited, so an edit that makes the rest of it invalid frees nothing. */
TEST(no_edit_of_a_bound_pod_frees_compute_or_slots)
{
    static const char *const edits[] = {
        "\"nvidia-gpu-scheduler/gpu.model\":\" , \"",
        "\"gpushare/placement\":\"best\"",
        "\"gpushare/min-link\":\"x\"",
    };
    start_without_slots();
    cleanup_free char *notes = xstrdup(bind("a", SHARE_OF("5000", "30"), "h"));
    for (size_t i = 0; i < ARRAY_LEN(edits); i++) {
        cleanup_free char *edited = xasprintf("%s,%s", notes, edits[i]);
        start_without_slots();
        see_bound("a", edited, SHARE_OF("5000", "30"));
        ck_counted(0, "5000/30/1");
        ck_assert_ptr_nonnull(rig_ledger_pod("a")->invalid_reason);
        start_without_slots(); /* ... nor without the record of the bind */
        see_bound("a", edits[i], SHARE_OF("5000", "30"));
        ck_counted(0, "5000/30/1");
    }
}

/* The binder knows what it has sent, whatever becomes of the card. */
TEST(a_percentage_keeps_its_amount_from_the_bind_on)
{
    start();
    struct scv scv = object_scv_even(&r.arena, "h", 2, CARD_MIB / 2);
    scv.dialect = SPAN("hami");
    rig_see(make("a", 0, "", APP(C(GPU("1") ",'nvidia.com/gpumem-percentage':'50'"))));
    rig_bind(1, "a", "h");
    struct core_output o = rig_take(CORE_CALL_BIND);
    rig_scv(scv);
    ck_assert_int_eq(card("h", 0)->promised_mib, CARD_MIB / 2);
    rig_answer(o.call, ERR_NONE);
    ck_assert_int_eq(card("h", 0)->promised_mib, CARD_MIB / 2);
}

static void see_created(const char *spec, const char *status)
{
    rig_see(rig_json(
        "{'metadata':{'namespace':'default','name':'a','uid':'a'},'spec':{'nodeName':"
        "'h',%s},'status':{%s}}",
        spec, status));
}

/* A tenant can name the node, and the device plugin refuses the pod, because no Binding has recorded a
 * promise for it: so it counts for no card. One that a Binding has bound can have a card. */
TEST(a_pod_that_was_created_on_the_node_counts_when_the_kubelet_has_seen_it)
{
    static const char *const specs[] = {CARDS_OF("1"), MEMORY_OF("16000")};
    static const char *const seen[] = {
        "'conditions':[{'type':'PodScheduled','status':'True','lastTransitionTime':"
        "'2026-11-29T10:00:00Z'}]",
        "'phase':'Running'",
    };
    for (size_t i = 0; i < 4; i++) {
        start();
        see_created(specs[i / 2], "'phase':'Pending'");
        for (int k = 0; k < 2; k++)
            ck_assert_uint_eq(card("h", k)->pods, 0);
        see_created(specs[i / 2], seen[i % 2]);
        for (int k = 0; k < 2; k++)
            ck_assert_int_eq(card("h", k)->promised_mib, CARD_MIB);
        see_created(specs[i / 2], "'phase':'Pending'"); /* older */
        ck_assert_int_eq(card("h", 0)->promised_mib, CARD_MIB);
    }
}

/* A tenant can edit the record of a bind, and not the limits: it raises what the pod counts for. */
TEST(the_record_of_a_bind_lowers_no_pod_below_its_limits)
{
    static const struct {
        const char *spec, *record, *counted, *says;
    } cases[] = {
        {MEMORY_OF("8000"), "1", "8000/0/1",
         "1 MiB on each card (1 card), but the pod asks for nvidia.com/gpumem 8000"},
        {MEMORY_OF("8000"), "9000", "9000/0/1",
         "9000 MiB on each card (1 card), but its limits and HAMi's defaults ask for "
         "another amount; the annotations count"},
        {MEMORY_OF("8000"), "whole", "16000/0/0!", "promise whole cards"},
        {MEMORY_OF("16200"), "1", "16000/0/1", "which counts"},
        {APP(C(GPU("1") ",'nvidia.com/gpumem-percentage':'50'")), "1", "7999/0/1",
         "but the pod asks for nvidia.com/gpumem-percentage 50"},
        {CARDS_OF("1"), "1", "16000/0/0!", "but the pod asks for nvidia.com/gpu 1"},
        {APP(C(GPU("1") ",'nvidia.com/gpucores':'100'")), "1", "16000/0/0!", "counts"},
        /* An amount by HAMi's defaults can have changed since. */
        {APP(C(GPU("1") ",'nvidia.com/gpucores':'30'")), "4000", "4000/30/1",
         "HAMi's defaults"},
    };
    array_items(c, cases) {
        cleanup_free char *notes = xasprintf(
            "\"ALIYUN_COM_GPU_MEM_IDX\":\"0\",\"ALIYUN_COM_GPU_MEM_DEV\":\"%d\","
            "\"gpushare/memory-unit\":\"1\",\"gpushare/card-memory\":\"%s a\","
            "\"scheduler.framework.gpushare.allocation\":"
            "\"{\\\"0\\\":{\\\"0\\\":1}}\"",
            CARD_MIB, c->record);
        start_without_slots();
        see_bound("a", notes, c->spec);
        ck_counted(0, c->counted);
        ck_counted(1, "0/0/0");
        ck_assert_contains(rig_ledger_pod("a")->differences ?: "", c->says);
    }
}

static void see_card(int mib)
{
    struct scv scv = object_scv_even(&r.arena, "h", 1, mib);
    scv.dialect = SPAN("hami");
    rig_scv(scv);
}

/* Percentages of a full card take no more than it has when the driver keeps less. */
TEST(rounding_overcommits_no_card_that_grows)
{
    enum { SIZE = 16033, PODS = 33 }; /* 3 percent are 480.99 MiB */
    start_without_slots();
    see_card(SIZE);
    for (int i = 0; i < PODS; i++)
        bind(arena_printf(&r.arena, "p%d", i),
             APP(C(GPU("1") ",'nvidia.com/gpumem-percentage':'3'")), "h");
    bind("a", MEMORY_OF("193"), "h");
    ck_assert_int_eq(card("h", 0)->promised_mib, SIZE);
    for (int mib = SIZE; mib < SIZE + 200; mib++) {
        see_card(mib);
        ck_assert_msg(!card("h", 0)->overcommitted, "%d MiB", mib);
    }
    ck_assert_int_gt(card("h", 0)->promised_mib, SIZE);
}

/* -- reservations, gangs, layout preemption -- */

static const char *reserve(const char *uid, const char *spec, const char *node)
{
    const struct request_rules rules = {.unit_mib = 1024, .dialect = &dialect_hami};
    const struct pod pod = make(uid, 0, "", spec);
    const struct span name = span_of(node);
    struct request request;
    struct err err = {0};
    ck_assert_done(request_of(&pod, &rules, &r.arena, &request, &err), err);
    rig_step((struct core_input){.type = CORE_RESERVE,
                                 .token = 9,
                                 .ns = SPAN("default"),
                                 .name = pod.meta.name,
                                 .uid = pod.meta.uid,
                                 .request = &request,
                                 .nodes = &name,
                                 .n_nodes = 1});
    struct core_output o = rig_take(CORE_RESERVED);
    return o.reserve == CORE_RESERVE_DONE ? o.node : "";
}

TEST(cards_are_reserved_where_they_are_ours)
{
    start();
    ck_assert_str_eq(reserve("a", CARDS_OF("1"), "h"), "h");
    ck_assert_str_eq(reserve("b", MEMORY_OF("9000"), "h"), "h");
    ck_reserved(2);
    ck_assert_int_eq(card("h", 0)->reserved_mib + card("h", 1)->reserved_mib,
                     CARD_MIB + 9000);
    ck_assert_str_eq(reserve("c", MEMORY_OF("9000"), "h"), "");
    ck_assert_str_eq(reserve("c", MEMORY_OF("9000"), "n"), "");
    ck_assert_str_eq(reserve("d", CARDS_OF("1"), "n"), "n"); /* the kubelet chooses */
    ck_reserved(2);
    /* What the node is has changed. */
    see_node("h", "");
    rig_pass(1);
    ck_reserved(0);
}

TEST(layout_preemption_frees_a_card_of_a_node_in_the_dialect)
{
    start();
    bind("a", MEMORY_OF("9000"), "h");
    bind("b", MEMORY_OF("9000"), "h");
    rig_see(make("p", 10, "", CARDS_OF("1")));
    rig_reset();
    const struct span h = SPAN("h");
    rig_step((struct core_input){
        .type = CORE_REJECTED, .uid = SPAN("p"), .nodes = &h, .n_nodes = 1});
    rig_pass(AFTER_MS + 2000);
    struct core_output o = rig_take(CORE_CALL_NOMINATE);
    ck_assert_str_eq(o.uid, "p");
    ck_assert_str_eq(o.node, "h");
    rig_answer(o.call, ERR_NONE);
    ck_count(CORE_CALL_EVICT, 1);
}
