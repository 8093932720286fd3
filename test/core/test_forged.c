/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "core/rig.h"
#include "domain/diagnosis.h"

/*
 * Promises that users write or edit, at a restart: the core first sees the pod when it is
 * already bound. What its spec asks for decides the amount; annotations and podList name
 * the cards.
 */

enum { CARDS = 4, CARD = 16384, UNIT = 1024, ROUNDS = 20000 };

static void start(void)
{
    rig_new((struct core_settings){.ledger = {.unit_mib = UNIT}});
    rig_lead();
}

/* The Scv of n1; `pod_list`: NULL: none. */
static void see_scv(const char *pod_list)
{
    cleanup_buf struct buf cards = {0};
    for (int i = 0; i < CARDS; i++)
        buf_printf(&cards,
                   "%s{'id':%d,'health':'Healthy','totalMemory':%d,'freeMemory':%d,"
                   "'uuid':'U%d'}",
                   i ? "," : "", i, CARD, CARD, i);
    rig_scv(object_scv(
        &r.arena, rig_text("{'metadata':{'name':'n1'},'status':{'cardList':[%s]%s%s%s}}",
                           cards.p, pod_list ? ",'podList':[" : "",
                           pod_list ? pod_list : "", pod_list ? "]" : "")));
}

#define HELD(name, resource, cards)                                                      \
    "{'namespace':'default','name':'" name "','container':'c','resource':'" resource     \
    "','units':8,'cards':[" cards "]}"

static void see_pod(const char *uid, const char *phase, const char *annotations,
                    const char *spec)
{
    rig_see(rig_json("{'metadata':{'namespace':'default','name':'p','uid':'%s',"
                     "'annotations':{%s}},'spec':{'nodeName':'n1',%s},'status':{"
                     "'phase':'%s'}}",
                     uid, annotations, spec, phase));
}

static const struct ledger_node *node(void)
{
    return rig_ledger_node("n1");
}

static int64_t mib(int card)
{
    return node()->cards[card].promised_mib;
}

static void ck_promised(int64_t a, int64_t b, int64_t c, int64_t d)
{
    ck_assert_int_eq(mib(0), a);
    ck_assert_int_eq(mib(1), b);
    ck_assert_int_eq(mib(2), c);
    ck_assert_int_eq(mib(3), d);
}

static int64_t forged(void)
{
    int64_t counts[DRIFTS] = {0};
    diagnosis_count(core_ledger(r.core), node(), counts);
    return counts[DRIFT_FORGED];
}

#define LIMIT(n)   "'containers':[{'resources':{'limits':{'" KEY_GPU_MEM "':'" n "'}}}]"
#define WHOLE(n)   "'containers':[{'resources':{'limits':{'" KEY_GPU_COUNT "':'" n "'}}}]"
#define NOTHING    "'containers':[{}]"
#define ON(i)      "'" KEY_MEM_IDX "':'" i "'"
#define ALLOC(map) "'" KEY_ALLOCATION "':'{\\\"0\\\":{" map "}}'"

TEST(the_pod_list_and_the_annotations_both_count_until_they_agree)
{
    for (int order = 0; order < 2; order++) {
        start();
        if (order)
            see_scv(HELD("p", KEY_GPU_MEM, "'U2'"));
        see_pod("a", "Pending", ON("1"), LIMIT("8"));
        if (!order)
            see_scv(HELD("p", KEY_GPU_MEM, "'U2'"));
        ck_promised(0, 8192, 8192, 0);
        ck_assert_int_eq(forged(), 1);
        see_scv(HELD("p", KEY_GPU_MEM, "'U1'"));
        ck_promised(0, 8192, 0, 0);
        ck_assert_int_eq(forged(), 0);
    }
}

/* The tenant moved the promise to one of its cards before the pod started. */
TEST(a_pod_that_holds_fewer_cards_than_promised_has_all_of_it_there)
{
    start();
    see_scv(NULL);
    see_pod("a", "Pending",
            "'" KEY_GPU_COUNT "':'2'," ON("0,1") "," ALLOC("\\\"0\\\":4,\\\"1\\\":4"),
            LIMIT("8"));
    ck_promised(4096, 4096, 0, 0);
    see_scv(HELD("p", KEY_GPU_MEM, "'U1'"));
    ck_promised(4096, 8192, 0, 0);
    ck_assert_int_eq(forged(), 1);
    see_scv(HELD("p", KEY_GPU_MEM, "'U1','U2'"));
    ck_promised(4096, 8192, 8192, 0);
    see_scv(HELD("p", KEY_GPU_MEM, "'U0','U1'"));
    ck_promised(4096, 4096, 0, 0);
    ck_assert_int_eq(forged(), 0);
}

TEST(an_unknown_card_is_any_card_until_the_pod_list_shows_the_running_pod)
{
    start();
    see_scv(NULL);
    see_pod("a", "Pending", ON("x"), LIMIT("8"));
    ck_promised(8192, 8192, 8192, 8192);
    see_scv(HELD("p", KEY_GPU_MEM, "'U2'")); /* of a former pod with this name? */
    ck_promised(8192, 8192, 8192, 8192);
    see_pod("a", "Running", ON("x"), LIMIT("8"));
    ck_promised(0, 0, 8192, 0);
    see_scv(HELD("p", KEY_GPU_MEM, "")); /* ids of the Go plugin name no card */
    ck_promised(0, 0, 8192, 0);
    rig_delete(rig_mem("a", 8));
    ck_promised(0, 0, 0, 0);
    see_pod("b", "Running", "", LIMIT("8"));
    ck_promised(8192, 8192, 8192, 8192);
    start();
    see_scv(NULL);
    see_pod("a", "Running", "", WHOLE("1"));
    ck_assert_uint_eq(node()->free_cards, 0);
    ck_assert_int_eq(node()->best_free_mib, 0);
}

TEST(the_last_pod_list_stays_while_the_agent_has_none)
{
    start();
    see_scv(HELD("p", KEY_GPU_MEM, "'U2'"));
    see_pod("a", "Running", ON("1"), LIMIT("8"));
    see_scv(NULL); /* the kubelet does not answer */
    see_scv(NULL);
    ck_promised(0, 8192, 8192, 0);
    see_scv(HELD("q", KEY_GPU_MEM, "'U0'"));
    ck_promised(0, 8192, 0, 0);
    see_scv(HELD("p", KEY_GPU_MEM, "'U2'"));
    see_scv(NULL);
    /* A pod of the same name, after the podList was lost. */
    rig_delete(rig_mem("a", 8));
    see_pod("b", "Running", ON("3"), LIMIT("8"));
    ck_promised(0, 0, 0, 8192);
}

TEST(a_missing_card_with_a_uuid_stays_missing)
{
    start();
    see_scv(NULL);
    see_pod("a", "Running", ON("7") ",'" KEY_CARD_UUID "':'GONE'," ALLOC("\\\"7\\\":8"),
            LIMIT("8"));
    ck_promised(0, 0, 0, 0);
    see_scv(HELD("p", KEY_GPU_MEM, "'U3'")); /* the podList knows better */
    ck_promised(0, 0, 0, 8192);
    start();
    see_scv(NULL);
    see_pod("a", "Running", ON("7"), LIMIT("8")); /* an index alone */
    ck_promised(8192, 8192, 8192, 8192);
}

/* Memory that the pod uses on the card of the podList is no external use. */
TEST(the_sample_of_a_listed_card_belongs_to_the_pod)
{
    start();
    see_scv(NULL);
    see_pod("a", "Running", ON("0"), LIMIT("8"));
    rig_scv(
        object_scv(&r.arena, rig_text("{'metadata':{'name':'n1'},'status':{'updateTime':"
                                      "'2026-11-21T09:00:00Z','cardList':["
                                      "{'id':0,'health':'Healthy','totalMemory':16384,"
                                      "'usedMemory':8000,'uuid':'U0'},"
                                      "{'id':1,'health':'Healthy','totalMemory':16384,"
                                      "'usedMemory':8000,'uuid':'U1'}],'podList':[" HELD(
                                          "p", KEY_GPU_MEM, "'U1'") "]}}")));
    ck_assert_int_eq(node()->cards[1].withheld_mib, 0);
    /* Another process uses the card that only the annotation names. */
    ck_assert_int_eq(node()->cards[0].withheld_mib, 8000 - 1024);
}

/* A pod without limits, in phase Running, with the record of a bind on card 0. */
static void see_record(const char *uid, const char *labels, const char *record)
{
    start();
    see_scv(NULL);
    rig_see(rig_json(
        "{'metadata':{'namespace':'default','name':'p','uid':'%s',"
        "'labels':{%s},'annotations':{'" KEY_CARD_MEMORY "':'%s'," ON("0") "," ALLOC(
            "\\\"0\\\":999") "}},'spec':{'nodeName':"
                             "'n1'," NOTHING "},'status':{'phase':'Running'}}",
        uid, labels, record));
}

TEST(a_record_of_a_bind_never_counts_for_more_than_a_card)
{
    see_record("a", "", "999999 a");
    ck_promised(CARD, 0, 0, 0);
    ck_assert(!node()->cards[0].overcommitted);
    ck_assert_int_eq(forged(), 1);
}

/* The UID of a pod is not known before the API server has created it. */
TEST(a_record_counts_only_for_the_pod_that_it_names)
{
    static const char *const others[] = {
        "999999",    "whole",   "999999 ", "999999 b", "whole b", "whole ab", "whole a b",
        "whole b a", "a whole", "a",       "",         " a",      "x a",      "-1 a",
    };
    array_items(other, others) {
        see_record("a", "", *other);
        ck_assert_msg(mib(0) == 0, "%s: %lld MiB", *other, (long long)mib(0));
        ck_assert_int_eq(forged(), 1);
        see_record("a", "'scv/memory':'100'", *other);
        ck_promised(100, 0, 0, 0);
        ck_assert_int_eq(forged(), 1);
    }
    see_record("a", "'scv/memory':'100'", "whole a");
    ck_promised(CARD, 0, 0, 0);
    see_record("a", "'scv/memory':'9000'", "5000 a");
    ck_promised(9000, 0, 0, 0);
}

/* A pod that asks honestly, and its annotations if the Go extender bound it; NULL: bound
 * by this core. */
static const struct {
    const char *meta, *spec, *go;
} honest[] = {
    {"", LIMIT("8"), NULL},
    {"", WHOLE("2"), NULL},
    {",'labels':{'aliyun.com/gpu-count':'2'}", LIMIT("8"), NULL},
    {",'labels':{'scv/memory':'5033'}", NOTHING, NULL},
    {",'labels':{'scv/number':'2','scv/memory':'5033'}", NOTHING, NULL},
    {",'labels':{'scv/number':'2'}", NOTHING, NULL},
    {"",
     LIMIT("5") ",'initContainers':[{'resources':{'limits':{'" KEY_GPU_MEM "':'8'}}}]",
     NULL},
    {"",
     LIMIT("5") ",'initContainers':[{'restartPolicy':'Always','resources':{'limits':{"
                "'" KEY_GPU_MEM "':'2'}}}]",
     NULL},
    {"", LIMIT("8"), "'" KEY_MEM_IDX "':'1','" KEY_MEM_POD "':'8'"},
    {",'labels':{'aliyun.com/gpu-count':'2'}", LIMIT("8"),
     "'" KEY_MEM_IDX "':'1','" KEY_MEM_POD "':'8'"},
    {",'labels':{'aliyun.com/gpu-count':'3'}", LIMIT("8"),
     "'" KEY_MEM_IDX "':'1','" KEY_MEM_POD "':'8'"},
    {"",
     LIMIT("5") ",'initContainers':[{'resources':{'limits':{'" KEY_GPU_MEM "':'8'}}}]",
     "'" KEY_MEM_IDX "':'1','" KEY_MEM_POD "':'5'"},
};

static struct pod honest_pod(size_t i, const char *annotations, const char *node_name)
{
    return rig_json("{'metadata':{'namespace':'default','name':'pod-a','uid':'a'"
                    "%s,'annotations':%s},'spec':{%s%s}}",
                    honest[i].meta, annotations, node_name, honest[i].spec);
}

TEST(honest_pods_have_no_difference)
{
    array_indices(i, honest) {
        int64_t before[CARDS];
        cleanup_free char *annotations = NULL;
        start();
        see_scv(NULL);
        if (honest[i].go) {
            annotations = xasprintf("{%s}", honest[i].go);
        } else {
            rig_see(honest_pod(i, "{}", ""));
            rig_bind(1, "a", "n1");
            annotations = xstrdup(rig_take(CORE_CALL_BIND).annotations);
        }
        for (int card = 0; card < CARDS; card++)
            before[card] = honest[i].go ? (card == 1 ? 8192 : 0) : mib(card);
        start();
        see_scv(NULL);
        rig_see(honest_pod(i, annotations, "'nodeName':'n1',"));
        ck_promised(before[0], before[1], before[2], before[3]);
        ck_assert_msg(forged() == 0, "%s: %s: %s", honest[i].spec, annotations,
                      node()->pods->differences);
    }
}

/* -- random annotations -- */

struct odd {
    struct rng rng;
    int64_t alloc[CARDS + 2]; /* units per card; -1: not in the allocation */
    bool index[CARDS + 2];    /* of a valid index annotation */
    bool allocated, indexed;
    struct buf text;
};

static int64_t below(struct odd *o, uint64_t n)
{
    return (int64_t)rng_below(&o->rng, n);
}

/* Cards 0 to 3 exist; 4 and 5 are missing. */
static void add_index(struct odd *o)
{
    static const char *const damaged[] = {"", "x", "0,", "-1", "0;1", "99999999999999"};
    o->indexed = below(o, 4) > 0;
    if (!o->indexed && below(o, 2))
        buf_printf(&o->text, "'" KEY_MEM_IDX "':'%s'", damaged[below(o, 6)]);
    if (!o->indexed)
        return;
    buf_adds(&o->text, "'" KEY_MEM_IDX "':'");
    for (int64_t n = 1 + below(o, 3), i = 0; i < n; i++) {
        int64_t card = below(o, CARDS + 2);
        o->index[card] = true;
        buf_printf(&o->text, "%s%lld", i ? "," : "", (long long)card);
    }
    buf_adds(&o->text, "'");
}

static void add_allocation(struct odd *o, int64_t units)
{
    static const char *const damaged[] = {"", "{", "[]", "{\\\"0\\\":{\\\"x\\\":1}}"};
    o->allocated = below(o, 4) > 0;
    if (!o->allocated && below(o, 2))
        buf_printf(&o->text, "%s'" KEY_ALLOCATION "':'%s'", o->text.n ? "," : "",
                   damaged[below(o, 4)]);
    if (!o->allocated)
        return;
    buf_printf(&o->text, "%s'" KEY_ALLOCATION "':'{\\\"0\\\":{", o->text.n ? "," : "");
    bool any = false;
    for (int card = 0; card < CARDS + 2; card++) {
        if (below(o, 3))
            continue;
        int64_t some[] = {0, 1, units / 2, units, units + 1, 999999};
        o->alloc[card] = some[below(o, 6)];
        buf_printf(&o->text, "%s\\\"%d\\\":%lld", any ? "," : "", card,
                   (long long)o->alloc[card]);
        any = true;
    }
    buf_adds(&o->text, "}}'");
}

/* Checks one pod that asks for `units` over `k` cards. A device plugin gives a container at
 * most its limit: our plugin on the cards of the allocation, up to the units there, the Go
 * plugin on the card of an index. */
static void ck_odd(const struct odd *o, int64_t units, int k)
{
    bool known = false;
    int n = 0;
    for (int card = 0; card < CARDS + 2; card++) {
        bool named = o->index[card] || o->alloc[card] >= 0;
        n += named;
        known |= named && card < CARDS;
    }
    int64_t total = 0;
    for (int card = 0; card < CARDS; card++) {
        bool named = o->index[card] || o->alloc[card] >= 0 || !known;
        int64_t granted = o->alloc[card] < units ? o->alloc[card] : units;
        if (o->index[card] && o->alloc[card] < 0)
            granted = units / k;
        if (!known)
            granted = units;
        int64_t got = mib(card) / UNIT;
        ck_assert_msg(got <= (named ? units : 0) && got >= (named ? granted : 0),
                      "%s: card %d has %lld of %lld units on %d cards", o->text.p, card,
                      (long long)got, (long long)units, k);
        total += got;
    }
    /* A pod all of whose named cards exist counts for at least what it asks for. */
    bool missing = false;
    for (int card = CARDS; card < CARDS + 2; card++)
        missing |= o->index[card] || o->alloc[card] >= 0;
    if (!missing)
        ck_assert_msg(total >= units, "%s: %lld of %lld units", o->text.p,
                      (long long)total, (long long)units);
}

TEST(any_annotations_count_for_what_a_plugin_can_have_given)
{
    struct odd o = {0};
    rng_init(&o.rng, 15);
    start();
    see_scv(NULL);
    for (int round = 0; round < ROUNDS; round++) {
        int k = 1 + (int)below(&o, 2);
        int64_t units = k * (1 + below(&o, 8));
        char spec[128], uid[16];
        for (int i = 0; i < CARDS + 2; i++) {
            o.alloc[i] = -1;
            o.index[i] = false;
        }
        buf_clear(&o.text);
        buf_adds(&o.text, "");
        add_index(&o);
        add_allocation(&o, units);
        if (k == 2)
            buf_printf(&o.text, "%s'" KEY_GPU_COUNT "':'2'", o.text.n ? "," : "");
        snprintf(spec, sizeof spec, LIMIT("%lld"), (long long)units);
        snprintf(uid, sizeof uid, "u%d", round);
        see_pod(uid, "Running", o.text.p, spec);
        ck_odd(&o, units, k);
        rig_delete(rig_mem(uid, 1));
        rig_reset();
        arena_reset(&r.arena);
    }
    buf_fini(&o.text);
}
