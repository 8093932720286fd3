/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rig.h"
#include "domain/dialect.h"

/*
 * Containers of the podList whose pod the core does not know. Its lists and watches leave out pods
 * that have ended, so a GET tells these from pods that were deleted while their containers run.
 */

#define GPU(name, card)                                                                  \
    "{'namespace':'default','name':'" name                                               \
    "','container':'c','resource':'" KEY_NVIDIA_GPU "','units':1,'cards':['" card "']}"

/* The Scv of n1, with two cards, this dialect and podList. */
static void see_dialect(const char *dialect, const char *pod_list)
{
    rig_scv(object_scv(&r.arena,
                       rig_text("{'metadata':{'name':'n1'},'status':{'cardList':["
                                "{'id':0,'health':'Healthy','totalMemory':16000,"
                                "'freeMemory':16000,'uuid':'U0','model':'Tesla T4'},"
                                "{'id':1,'health':'Healthy','totalMemory':16000,"
                                "'freeMemory':16000,'uuid':'U1','model':'Tesla T4'}],"
                                "'dialect':'%s','podList':[%s]}}",
                                dialect, pod_list)));
}

static void see_scv(const char *pod_list)
{
    see_dialect("", pod_list);
}

static struct pod job(const char *uid, const char *node, const char *phase)
{
    return rig_json("{'metadata':{'namespace':'default','name':'job','uid':'%s'},"
                    "'spec':{'nodeName':'%s','containers':[{'name':'c','resources':{"
                    "'limits':{'" KEY_NVIDIA_GPU "':'1'}}}]},'status':{'phase':'%s'}}",
                    uid, node, phase);
}

static void start(void)
{
    rig_new((struct core_settings){0});
    rig_lead();
    see_scv(GPU("job", "U0"));
    rig_reset();
}

static void ck_held(bool held)
{
    const struct ledger_node *node = rig_ledger_node("n1");
    ck_assert_int_eq(node->cards[0].state, held ? CARD_HELD : CARD_AVAILABLE);
    ck_assert_int_eq(node->cards[1].state, CARD_AVAILABLE);
}

/* The GET of the pod `job`, after this time. */
static uint64_t asked(int64_t ms)
{
    rig_tick(ms);
    struct core_output o = rig_take(CORE_CALL_GET_POD);
    ck_assert_str_eq(o.ns, "default");
    ck_assert_str_eq(o.name, "job");
    return o.call;
}

static void ck_silent(int64_t ms)
{
    rig_tick(ms);
    ck_count(CORE_CALL_GET_POD, 0);
}

TEST(a_pod_that_has_ended_has_no_card)
{
    start();
    rig_answer_pod(asked(0), job("A", "n1", "Succeeded"));
    ck_held(false);
    see_scv(GPU("job", "U0")); /* the next sample shows the same */
    ck_held(false);
    ck_silent(200);
    see_scv(GPU("job", "U0") "," GPU("other", "U1"));
    ck_assert_int_eq(rig_ledger_node("n1")->cards[0].state, CARD_AVAILABLE);
    ck_assert_int_eq(rig_ledger_node("n1")->cards[1].state, CARD_HELD);
    see_scv("");
    see_scv(GPU("job", "U0"));
    ck_held(true);
    rig_answer_pod(asked(200), job("A", "n1", "Failed"));
    ck_held(false);
}

TEST(what_is_not_known_to_have_ended_counts)
{
    const struct {
        const char *name, *node, *phase; /* NULL: `code` */
        enum err_code code;
    } cases[] = {
        {"deleted", NULL, NULL, ERR_NOT_FOUND},
        {"forbidden", NULL, NULL, ERR_FORBIDDEN},
        {"cannot be decoded", NULL, NULL, ERR_INTERNAL},
        {"runs", "n1", "Running", ERR_NONE},
        {"unknown phase", "n1", "Unknown", ERR_NONE},
        {"ended on another node", "n2", "Succeeded", ERR_NONE},
        {"never bound", "", "Failed", ERR_NONE},
    };
    array_items(c, cases) {
        start();
        uint64_t call = asked(0);
        if (c->phase)
            rig_answer_pod(call, job("A", c->node, c->phase));
        else
            rig_answer(call, c->code);
        ck_held(true);
        ck_silent(500);
        see_scv(GPU("job", "U0"));
        ck_silent(100);
        rig_answer_pod(asked(5 * 60 * 1000), job("A", "n1", "Succeeded"));
        ck_held(false);
        rig_free();
    }
    start();
}

/* No answer says nothing of the pod: it is asked about soon. */
TEST(a_lost_answer_is_repeated)
{
    start();
    rig_answer(asked(0), ERR_UNAVAILABLE);
    ck_silent(500);
    rig_answer(asked(500), ERR_TIMEOUT);
    ck_held(true);
    ck_silent(1500);
    rig_answer_pod(asked(500), job("A", "n1", "Succeeded"));
    ck_held(false);
}

TEST(known_pods_are_not_asked_about)
{
    start();
    uint64_t call = asked(0);
    rig_see(job("A", "n1", "Running")); /* seen before the answer, which is older */
    rig_answer_pod(call, job("A", "n1", "Succeeded"));
    ck_held(true);
    ck_silent(10 * 60 * 1000);
    rig_delete(job("A", "n1", "Succeeded"));
    ck_held(true);
    rig_answer_pod(asked(1000), job("A", "n1", "Succeeded"));
    ck_held(false);
}

TEST(a_later_pod_of_the_same_name_holds_the_card)
{
    start();
    rig_answer_pod(asked(0), job("A", "n1", "Succeeded"));
    rig_delete(job("A", "n1", "Succeeded"));
    ck_held(false);
    rig_see(job("B", "", "Pending"));
    ck_held(false);
    rig_see(job("B", "n1", "Pending"));
    ck_held(true);
    rig_delete(job("B", "n1", "Running")); /* by force */
    rig_answer(asked(1000), ERR_NOT_FOUND);
    ck_held(true);
}

/* The other pod asks for no whole GPU, and the core knows of it only that it is there. */
TEST(an_answer_of_a_former_pod_says_nothing_of_a_later_one)
{
    start();
    uint64_t call = asked(0);
    rig_see(rig_json("{'metadata':{'namespace':'default','name':'job','uid':'B'},'spec':{"
                     "'nodeName':'n1','containers':[{'name':'c'}]},'status':{"
                     "'phase':'Running'}}"));
    rig_answer_pod(call, job("A", "n1", "Succeeded"));
    ck_held(true);
    rig_answer_pod(asked(1000), job("B", "n1", "Running"));
    ck_held(true);
}

/* Three containers, of which the API server is slow to tell. */
TEST(one_is_asked_about_at_a_time)
{
    rig_new((struct core_settings){0});
    rig_lead();
    see_scv(GPU("a", "U0") "," GPU("b", "U1") "," GPU("none", "U2"));
    rig_reset();
    rig_tick(0);
    struct core_output o = rig_take(CORE_CALL_GET_POD);
    ck_assert_str_eq(o.name, "a");
    ck_silent(5000);
    rig_answer(o.call, ERR_NOT_FOUND);
    rig_tick(50);
    ck_count(CORE_CALL_GET_POD, 0);
    rig_tick(50);
    o = rig_take(CORE_CALL_GET_POD);
    ck_assert_str_eq(o.name, "b");
    rig_answer(o.call, ERR_NOT_FOUND);
    ck_silent(1000);
}

/* The names of a podList are foreign text, and become a part of the path of a request. */
TEST(what_is_no_name_is_not_asked_about)
{
    static const char *const names[] = {"..", ".", "", "a/../b", "a?b", "a%2fb", "a b"};
    start();
    array_items(name, names) {
        see_scv(rig_text(GPU("%s", "U0"), *name).p);
        ck_silent(1000);
        ck_held(true);
        see_scv("");
    }
}

TEST(pending_pods_are_woken)
{
    start();
    see_scv(GPU("job", "U0") "," GPU("job", "U1"));
    rig_pending("P", 1000);
    rig_reset();
    rig_answer_pod(asked(0), job("A", "n1", "Succeeded"));
    rig_tick(100);
    ck_assert_str_eq(rig_take(CORE_CALL_WAKEUP).node, "n1");
}

TEST(an_observer_asks_nothing)
{
    rig_new((struct core_settings){.observer = true});
    rig_lists_end();
    see_scv(GPU("job", "U0"));
    ck_silent(1000);
    ck_assert_int_eq(core_due(r.core) < r.now.mono_ms, false);
}

/* -- in a dialect -- */

/* What the Scv says, and whether the extender reads HAMi's requests. */
static const struct dialect_case {
    const char *word;
    const struct dialect *dialect;
} others[] = {
    {"unserved", NULL},          {"kai", NULL},          {"hami", NULL},
    {"unserved", &dialect_hami}, {"kai", &dialect_hami},
};

static void start_in(const struct dialect_case *c)
{
    rig_new((struct core_settings){.ledger = {.dialect = c->dialect}});
    rig_lead();
    see_dialect(c->word, GPU("job", "U0"));
    rig_reset();
}

TEST(another_plugin_of_a_dialect_holds_its_cards)
{
    array_items(c, others) {
        start_in(c);
        ck_held(true);
        uint64_t call = asked(0);
        rig_pending("A", 15000);
        rig_bind(1, "A", "n1");
        rig_pending("B", 15000);
        rig_bind(2, "B", "n1");
        ck_count(CORE_CALL_BIND, 1);
        ck_assert_int_eq(rig_ledger_node("n1")->cards[1].promised_mib, 15000);
        rig_answer_pod(call, job("A", "n1", "Succeeded"));
        ck_held(false);
    }
}

TEST(a_known_pod_of_another_plugin_holds_its_card)
{
    array_items(c, others) {
        start_in(c);
        rig_see(job("A", "n1", "Running"));
        ck_held(true);
        ck_assert_uint_eq(rig_ledger_node("n1")->claimed, 0);
        rig_delete(job("A", "n1", "Running"));
        ck_held(true);
    }
}

/* Ours serves it: a pod that the ledger does not know has left. */
TEST(a_pod_of_our_plugin_holds_its_slot_only)
{
    start_in(&(struct dialect_case){"hami", &dialect_hami});
    ck_held(false);
    ck_silent(1000);
    see_dialect("unserved", GPU("job", "U0"));
    ck_held(true);
    see_dialect("hami", GPU("job", "U0"));
    ck_held(false);
}

static struct pod of_hami(const char *uid, const char *notes)
{
    return rig_json("{'metadata':{'namespace':'default','name':'job','uid':'%s',"
                    "'annotations':{%s}},'spec':{'nodeName':'n1','containers':[{"
                    "'name':'c','resources':{'limits':{'" KEY_NVIDIA_GPU "':'1',"
                    "'nvidia.com/gpumem':'6000'}}}]},'status':{'phase':'Running'}}",
                    uid, notes);
}

/* While HAMi still runs on the node. The kubelet's choice of the card is not HAMi's. */
TEST(a_pod_that_was_taken_over_counts_by_its_promise)
{
    static const char *const cards[] = {"U0", "U1"};
    array_items(card, cards) {
        start_in(&(struct dialect_case){"unserved", &dialect_hami});
        struct pod pod = of_hami(
            "A", rig_text("'hami.io/vgpu-node':'n1','hami.io/vgpu-devices-allocated':"
                          "'%s,NVIDIA,6000,0:;'",
                          *card)
                     .p);
        rig_see(pod);
        ck_held(false);
        ck_assert_int_eq(rig_ledger_node("n1")->cards[0].free_mib, 10000);
        see_dialect("unserved", GPU("job", "U0"));
        ck_held(false);
        rig_delete(pod);
        ck_held(true);
    }
    start_in(&(struct dialect_case){"unserved", &dialect_hami});
    rig_see(of_hami("A", ""));
    ck_held(true);
}

#define TAKEN_OVER                                                                       \
    "'hami.io/vgpu-node':'n1','hami.io/vgpu-devices-allocated':'U1,NVIDIA,6000,0:;'"

/* Only what its system gave it by nvidia.com/gpu, and ours by our record, is not held. */
TEST(a_promise_on_one_card_releases_no_other)
{
    static const char *const words[] = {"hami", "unserved"};
    array_items(word, words) {
        start_in(&(struct dialect_case){*word, &dialect_hami});
        rig_see(of_hami("A", TAKEN_OVER));
        see_dialect(*word,
                    "{'namespace':'default','name':'job','container':'c',"
                    "'resource':'nvidia.com/gpu.shared','units':1,'cards':['U0']}");
        ck_held(true);
    }
    static const char ours[] =
        "'ALIYUN_COM_GPU_MEM_IDX':'%s','gpushare/card-uuid':'U%s',"
        "'gpushare/card-memory':'6000 A','gpushare/memory-unit':'1',"
        "'scheduler.framework.gpushare.allocation':"
        "'{\\\"0\\\":{\\\"%s\\\":6000}}'";
    static const char *const cards[] = {"0", "1"};
    for (int i = 0; i < 2; i++) {
        const char *card = cards[i];
        start_in(&(struct dialect_case){"unserved", &dialect_hami});
        rig_see(of_hami("A", rig_text(ours, card, card, card).p));
        ck_held(i != 0);
    }
    /* A pod of the same name, whose containers cannot be the ones that are listed. */
    start_in(&(struct dialect_case){"unserved", &dialect_hami});
    struct pod later = of_hami("B", TAKEN_OVER);
    later.phase = POD_PENDING;
    rig_see(later);
    ck_held(true);
}

TEST(nvidia_gpu_is_not_bound_where_its_meaning_is_unknown)
{
    array_items(c, others) {
        start_in(c);
        see_dialect(c->word, "");
        rig_see(rig_json(
            "{'metadata':{'namespace':'default','name':'pod-A','uid':'A'},"
            "'spec':{'containers':[{'name':'c','resources':{'limits':{'" KEY_NVIDIA_GPU
            "':'1'}}}]}}"));
        rig_bind(1, "A", "n1");
        ck_count(CORE_CALL_BIND, 0);
        ck_assert_contains(rig_take(CORE_REPLY).text, c->dialect && *c->word == 'u'
                                                          ? "dialect is unserved"
                                                          : "dialect is unknown");
        rig_tick(0);
        see_dialect("", "");
        rig_tick(100);
        ck_assert_str_eq(rig_take(CORE_CALL_WAKEUP).node, "n1");
    }
}
