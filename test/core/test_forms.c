/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rig.h"

/*
 * Requests other than limits of our resources: Yoda's labels, NVIDIA's device plugin, card
 * models.
 */

static void start(int cards)
{
    rig_new((struct core_settings){.ledger = {.unit_mib = 1024}});
    rig_lead();
    rig_cards("n1", cards, 16000);
    rig_reset();
}

/* `meta`: additional members of metadata; `resources`: of its container; `node`: "": none. */
static struct pod pod_of(const char *uid, const char *meta, const char *resources,
                         const char *node)
{
    return rig_json("{'metadata':{'namespace':'default','name':'pod-%s','uid':"
                    "'%s'%s},'spec':{'nodeName':'%s','containers':[{"
                    "'resources':{'limits':{%s}}}]}}",
                    uid, uid, meta, node, resources);
}

#define LABELS(text) ",'labels':{" text "}"
#define GPU(n)       "'nvidia.com/gpu':'" n "'"
#define MODEL(text)  ",'annotations':{'" KEY_GPU_MODEL "':'" text "'}"

static const struct ledger_node *node(void)
{
    return rig_ledger_node("n1");
}

static void see(const char *uid, const char *meta, const char *resources)
{
    rig_see(pod_of(uid, meta, resources, ""));
}

static struct core_output bind(const char *uid)
{
    rig_bind(1, uid, "n1");
    return rig_take(CORE_CALL_BIND);
}

static void refused(const char *uid, const char *part)
{
    rig_bind(1, uid, "n1");
    struct core_output o = rig_take(CORE_REPLY);
    ck_assert_int_ne(o.code, ERR_NONE);
    ck_assert_msg(strstr(o.text, part) != NULL, "\"%s\" has no \"%s\"", o.text, part);
    ck_count(CORE_CALL_BIND, 0);
}

TEST(a_pod_of_nvidias_plugin_is_bound_unannotated_and_counted)
{
    start(2);
    see("a", MODEL("tesla t4"), GPU("1"));
    see("b", "", GPU("1"));
    see("c", MODEL("Tesla T4"), GPU("1"));
    struct core_output o = bind("a");
    ck_assert_ptr_null(o.annotations);
    ck_assert_uint_eq(node()->claimed, 1);
    rig_answer(o.call, ERR_NONE);
    ck_assert_int_eq(rig_take(CORE_REPLY).code, ERR_NONE);
    ck_assert_ptr_null(bind("b").annotations); /* no model: no annotations */
    ck_assert_uint_eq(node()->claimed, 2);
    refused("c", "no card of node n1 fits: needs 1 card through nvidia.com/gpu, model "
                 "Tesla T4; no card is available");
}

TEST(an_unsent_binding_for_nvidias_plugin_claims_nothing)
{
    start(2);
    see("a", MODEL("Tesla T4"), GPU("2"));
    struct core_output o = bind("a");
    ck_assert_uint_eq(node()->claimed, 2);
    rig_not_sent(o.call);
    ck_assert_uint_eq(node()->claimed, 0);
    o = bind("a");
    rig_answer(o.call, ERR_TIMEOUT);
    rig_show_pod(pod_of("a", MODEL("Tesla T4"), GPU("2"), ""));
    ck_assert_uint_eq(node()->claimed, 2); /* it may still take effect */
    rig_delete(pod_of("a", "", GPU("2"), ""));
    ck_assert_uint_eq(node()->claimed, 0);
}

TEST(annotations_of_a_pod_of_nvidias_plugin_are_no_promise)
{
    start(2);
    rig_see(pod_of("a", ",'annotations':{'" KEY_MEM_IDX "':'0','" KEY_MEM_POD "':'8'}",
                   GPU("1"), "n1"));
    ck_assert_int_eq(node()->cards[0].promised_mib, 0);
    ck_assert_uint_eq(node()->claimed, 1);
    see("b", MODEL("Tesla T4"), GPU("1"));
    ck_total(pending, 1);
}

TEST(number_alone_reserves_nothing_with_number_shares)
{
    rig_new((struct core_settings){.ledger = {.number_shares = true}});
    rig_lead();
    rig_cards("n1", 1, 16000);
    see("a", LABELS("'scv/number':'1'"), "");
    struct core_output o = bind("a");
    ck_noted(o, KEY_CARD_UUID, "n1-u0");
    ck_assert_int_eq(node()->cards[0].free_mib, 16000);
    ck_assert_uint_eq(node()->cards[0].pods, 1);
}

/* No device plugin gives such a pod a card. What it uses counts as external use. */
TEST(a_pod_bound_by_yoda_counts_nowhere)
{
    for (int cards = 1; cards <= 2; cards++) {
        start(cards);
        rig_see(pod_of("a", LABELS("'scv/memory':'5000'"), "", "n1"));
        rig_see(pod_of("b", LABELS("'scv/memory':'8Gi'"), "", "n1"));
        rig_see(pod_of("c", LABELS("'scv/number':'1'"), "", "n1"));
        for (int i = 0; i < cards; i++)
            ck_assert_int_eq(node()->cards[i].free_mib, 16000);
    }
}

TEST(models_and_clocks_count_at_bind)
{
    start(1);
    see("a", MODEL("Tesla V100"), "'" KEY_GPU_MEM "':'4'");
    refused("a",
            "needs 4096 MiB on one card, model Tesla V100; the node has 1 x Tesla T4");
    see("b", LABELS("'scv/clock':'5000'"), "'" KEY_GPU_COUNT "':'1'");
    refused("b", "the node has 1 x Tesla T4 (0 MHz)");
    see("c", LABELS("'scv/memory':'8Gi'"), "");
    refused("c", "label scv/memory: \"8Gi\" is not a number of MiB");
}

/* Two requests that differ only in the model wake up for different nodes. */
TEST(a_freed_card_of_the_model_wakes_up_the_scheduler)
{
    start(1);
    static const char held[] =
        "{'metadata':{'name':'n1'},'status':{'cardList':[{'id':0,'health':'Healthy',"
        "'totalMemory':16000,'freeMemory':16000,'uuid':'u','model':'%s'}],'podList':["
        "{'namespace':'x','name':'y','resource':'nvidia.com/gpu','units':1,'cards':["
        "'%s']}]}}";
    rig_scv(object_scv(&r.arena, rig_text(held, "Tesla T4", "u")));
    see("a", MODEL("Tesla V100"), "'" KEY_GPU_MEM "':'4'");
    rig_reset();
    rig_scv(object_scv(&r.arena, rig_text(held, "Tesla T4", "")));
    rig_tick(0);
    ck_count(CORE_CALL_WAKEUP, 0);
    rig_scv(object_scv(&r.arena, rig_text(held, "Tesla T4", "u")));
    see("b", MODEL("Tesla T4"), "'" KEY_GPU_MEM "':'4'");
    rig_scv(object_scv(&r.arena, rig_text(held, "Tesla T4", "")));
    rig_tick(0);
    ck_count(CORE_CALL_WAKEUP, 1);
}
