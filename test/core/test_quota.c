/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rig.h"

/*
 * ResourceQuotas of limits.nvidia.com/gpumem and gpucores: what counts in a namespace, and that no
 * bind, reservation or eviction goes beyond.
 */

enum { MIB = 16000 };

static void quota_event(const char *name, const char *hard, bool gone)
{
    struct quota quota;
    struct jread j;
    struct span json =
        rig_text("{'metadata':{'namespace':'default','name':'%s'},'spec':{'hard':{%s}}}",
                 name, hard);
    jread_init(&j, json.p, json.n);
    quota_read(&j, &r.arena, &quota);
    ck_assert_int_eq(jread_finish(&j, NULL), 0);
    rig_step((struct core_input){.type = CORE_OBJECT,
                                 .kind = CORE_QUOTAS,
                                 .run = r.runs[CORE_QUOTAS],
                                 .quota = &quota,
                                 .deleted = gone});
}

#define GPUMEM(n)   "'limits.nvidia.com/gpumem':'" #n "'"
#define GPUCORES(n) "'limits.nvidia.com/gpucores':'" #n "'"

static void add_node(const char *name, int cards, const char *model)
{
    struct scv scv = object_scv_even(&r.arena, name, cards, MIB);
    for (int i = 0; i < cards; i++)
        scv.cards[i].model = span_of(model);
    scv.dialect = SPAN("hami");
    rig_scv(scv);
    rig_node(
        object_node(&r.arena, rig_text("{'metadata':{'name':'%s'},'status':{'capacity':{"
                                       "'nvidia.com/gpu':'%d'}}}",
                                       name, 10 * cards)));
}

/* This process may bind; the quotas are not listed yet. Node n1 has two cards, n2 one. */
static void start_unlisted(void)
{
    rig_new((struct core_settings){
        .quotas = true, .preempt_after_ms = 1000, .ledger = {.dialect = &dialect_hami}});
    rig_lead();
    add_node("n1", 2, "Tesla T4");
    add_node("n2", 1, "Tesla T4");
    rig_reset();
}

/* The same with this list of quotas: one with these members, unless there are none. */
static void start(const char *hard)
{
    start_unlisted();
    if (*hard)
        quota_event("q", hard, false);
    rig_list_end(CORE_QUOTAS);
    rig_reset();
}

/* A pod of so many cards, on each of them 10 percent and `memory`: MiB, or "50%". `meta`: members of
 * metadata, each with a comma before it. */
static struct pod pod_of(const char *ns, const char *uid, int cards, const char *memory,
                         const char *meta, const char *node, const char *phase)
{
    bool percent = strchr(memory, '%');
    return rig_json("{'metadata':{'namespace':'%s','name':'pod-%s','uid':'%s'%s},'spec':{"
                    "'nodeName':'%s','containers':[{'name':'c','resources':{'limits':{"
                    "'nvidia.com/gpu':'%d','nvidia.com/gpucores':'10',"
                    "'nvidia.com/gpumem%s':'%d'}}}]},'status':{'phase':'%s'}}",
                    ns, uid, uid, meta, node, cards, percent ? "-percentage" : "",
                    atoi(memory), phase);
}

static struct pod pending(const char *uid, int cards, const char *memory)
{
    return pod_of("default", uid, cards, memory, "", "", "Pending");
}

/* Binds, and returns the annotations of the Binding; NULL: it was rejected, with `reason`. */
static const char *reason;
static const char *bind(const char *uid, const char *node)
{
    reason = "";
    rig_bind(1, uid, node);
    if (rig_count(CORE_CALL_BIND))
        return rig_take(CORE_CALL_BIND).annotations;
    reason = rig_take(CORE_REPLY).text;
    return NULL;
}

static const int64_t *used(void)
{
    static const int64_t none[QUOTA_RESOURCES];
    const struct quota_namespace *n =
        map_get(&core_quotas(r.core)->by_name, SPAN("default"));
    return n ? n->used : none;
}

#define ck_used(mib, cores)                                                              \
    do {                                                                                 \
        ck_assert_int_eq(used()[QUOTA_MEMORY], mib);                                     \
        ck_assert_int_eq(used()[QUOTA_CORES], cores);                                    \
    } while (0)

TEST(a_bind_beyond_the_quota_is_rejected)
{
    start(GPUMEM(10000));
    rig_see(pending("a", 2, "4000"));
    rig_see(pending("b", 1, "3000"));
    rig_see(pending("c", 1, "2000"));
    ck_assert_ptr_nonnull(bind("a", "n1"));
    ck_used(8000, 20);
    ck_assert_ptr_null(bind("b", "n2"));
    ck_assert_str_eq(
        reason,
        "exceeded quota: q, requested: limits.nvidia.com/gpumem=3000, "
        "used: limits.nvidia.com/gpumem=8000, limited: limits.nvidia.com/gpumem=10000");
    ck_assert_ptr_nonnull(bind("c", "n2"));
    ck_used(10000, 30);
}

TEST(compute_counts_times_the_cards)
{
    start(GPUCORES(29));
    rig_see(pending("a", 2, "1000"));
    rig_see(pending("b", 1, "1000"));
    ck_assert_ptr_nonnull(bind("a", "n1"));
    ck_assert_ptr_null(bind("b", "n2"));
    ck_assert_contains(reason, "requested: limits.nvidia.com/gpucores=10, "
                               "used: limits.nvidia.com/gpucores=20, limited: "
                               "limits.nvidia.com/gpucores=29");
}

/* A percentage counts with what it is of the card. */
TEST(a_percentage_counts_in_mib)
{
    start(GPUMEM(12000));
    rig_see(pending("a", 1, "50%"));
    rig_see(pending("b", 1, "50%"));
    rig_see(pending("c", 1, "25%"));
    ck_assert_ptr_nonnull(bind("a", "n1"));
    ck_used(8000, 10);
    ck_assert_ptr_null(bind("b", "n2"));
    ck_assert_contains(reason, "requested: limits.nvidia.com/gpumem=8000, used: "
                               "limits.nvidia.com/gpumem=8000");
    ck_assert_ptr_nonnull(bind("c", "n2"));
    ck_used(12000, 20);
}

/* Two filters at once: the second sees what the first has reserved. */
TEST(a_reservation_counts_and_becomes_the_promise)
{
    const struct span nodes[] = {SPAN("n2"), SPAN("n1")};
    start(GPUMEM(10000));
    struct pod a = pending("a", 1, "6000"), b = pending("b", 1, "6000");
    rig_see(a);
    rig_see(b);
    ck_assert_int_eq(rig_reserve(a, nodes, 2).reserve, CORE_RESERVE_DONE);
    ck_used(6000, 10);
    ck_assert_int_eq(rig_reserve(b, nodes, 2).reserve, CORE_RESERVE_NO_NODE);
    ck_assert_ptr_null(bind("b", "n1"));
    /* It has its own part twice at no time. */
    ck_assert_int_eq(rig_reserve(a, nodes + 1, 1).reserve, CORE_RESERVE_DONE);
    ck_used(6000, 10);
    ck_assert_ptr_nonnull(bind("a", "n1"));
    ck_used(6000, 10);
    rig_pass(CORE_RESERVATION_MS + 1000);
    ck_used(6000, 10);
}

TEST(an_expired_reservation_counts_no_longer)
{
    const struct span nodes[] = {SPAN("n1")};
    start(GPUMEM(10000));
    struct pod a = pending("a", 1, "6000");
    rig_see(a);
    rig_reserve(a, nodes, 1);
    rig_pass(CORE_RESERVATION_MS + 1000);
    ck_used(0, 0);
}

/* The pod after the Binding with these annotations. `more`: members of metadata, each with a comma
 * before it. */
static struct pod bound(const char *uid, int cards, const char *memory, const char *node,
                        const char *notes, const char *more, const char *phase)
{
    cleanup_free char *meta = xasprintf(",'annotations':%s%s", notes, more);
    return pod_of("default", uid, cards, memory, meta, node, phase);
}

TEST(a_restart_counts_the_same)
{
    start(GPUMEM(30000));
    rig_see(pending("a", 2, "50%"));
    rig_see(pending("b", 1, "3000"));
    cleanup_free char *a = xstrdup(bind("a", "n1")), *b = xstrdup(bind("b", "n2"));
    for (int restarts = 0; restarts < 2; restarts++) {
        ck_used(19000, 30);
        rig_see(bound("a", 2, "50%", "n1", a, "", "Running"));
        rig_see(bound("b", 1, "3000", "n2", b, "", "Pending"));
        ck_used(19000, 30);
        start_unlisted();
        ck_used(0, 0);
        rig_see(bound("a", 2, "50%", "n1", a, "", "Running"));
        rig_see(bound("b", 1, "3000", "n2", b, "", "Pending"));
    }
    quota_event("q", GPUMEM(20000), false);
    rig_list_end(CORE_QUOTAS);
    rig_reset();
    rig_see(pending("c", 1, "2000"));
    ck_assert_ptr_null(bind("c", "n2"));
    ck_assert_contains(reason, "used: limits.nvidia.com/gpumem=19000");
}

/* Until its containers have ended, a terminating pod has its memory. */
TEST(a_pod_counts_until_it_has_ended)
{
    static const char *const ends[] = {"Succeeded", "Failed", "deleted"};
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        start(GPUMEM(10000));
        rig_see(pending("a", 1, "8000"));
        rig_see(pending("b", 1, "8000"));
        cleanup_free char *a = xstrdup(bind("a", "n1"));
        rig_see(bound("a", 1, "8000", "n1", a, "", "Running"));
        rig_see(bound("a", 1, "8000", "n1", a,
                      ",'deletionTimestamp':'2026-01-01T00:00:00Z'", "Running"));
        ck_used(8000, 10);
        ck_assert_ptr_null(bind("b", "n2"));
        rig_pod(
            bound("a", 1, "8000", "n1", a, "", ends[i][0] == 'd' ? "Running" : ends[i]),
            ends[i][0] == 'd');
        ck_used(0, 0);
        ck_assert_ptr_nonnull(bind("b", "n2"));
    }
}

/* A bind whose outcome is unknown keeps its part, and one that has failed does not. */
TEST(a_bind_in_flight_counts)
{
    start(GPUMEM(10000));
    rig_see(pending("a", 1, "8000"));
    rig_see(pending("b", 1, "8000"));
    rig_bind(1, "a", "n1");
    struct core_output sent = rig_take(CORE_CALL_BIND);
    rig_answer(sent.call, ERR_TIMEOUT);
    ck_assert_ptr_null(bind("b", "n2"));
    rig_show_pod(pending("a", 1, "8000")); /* not proof: it may still take effect */
    ck_assert_ptr_null(bind("b", "n2"));
    ck_used(8000, 10);
}

TEST(a_bind_that_was_not_sent_counts_no_longer)
{
    start(GPUMEM(10000));
    rig_see(pending("a", 1, "8000"));
    rig_see(pending("b", 1, "8000"));
    rig_bind(1, "a", "n1");
    rig_not_sent(rig_take(CORE_CALL_BIND).call);
    rig_reset();
    ck_used(0, 0);
    ck_assert_ptr_nonnull(bind("b", "n2"));
}

/* Quotas that were never read allow nothing to the pods that they count, and stop no others. */
TEST(unknown_quotas_stop_only_pods_that_they_count)
{
    const struct span nodes[] = {SPAN("n1")};
    struct err err;
    start_unlisted();
    rig_list_failed(CORE_QUOTAS, ERR_FORBIDDEN, -1);
    ck_assert_int_eq(core_ready(r.core, r.now, NULL), 0);
    ck_assert_int_eq(core_check_may_bind(r.core, r.now, NULL), 0);
    ck_assert_int_eq(core_quotas_ready(r.core, r.now, &err), -1);
    ck_assert_str_eq(err.msg,
                     "not ready: the first list of resourcequotas has not finished: why");
    ck_assert_str_eq(rig_log(), "list of resourcequotas failed: why");
    struct pod a = pending("a", 1, "1000");
    rig_see(a);
    rig_pending("m", 1000);
    ck_assert_int_eq(rig_reserve(a, nodes, 1).reserve, CORE_RESERVE_NO_NODE);
    ck_assert_ptr_null(bind("a", "n1"));
    ck_assert_str_eq(reason, err.msg);
    ck_assert_ptr_nonnull(bind("m", "n1"));
    rig_pass(5000); /* it is listed again */
    rig_list_end(CORE_QUOTAS);
    ck_assert_int_eq(core_quotas_ready(r.core, r.now, NULL), 0);
    rig_reset();
    ck_assert_ptr_nonnull(bind("a", "n1"));
}

TEST(a_watch_that_delivers_nothing_is_not_trusted_for_long)
{
    struct err err;
    start("");
    for (int64_t ms = 0; ms <= CORE_STALE_MS; ms += 10000) {
        rig_pass(10000);
        for (int kind = 0; kind < CORE_KINDS; kind++)
            rig_progress(kind);
        rig_reset();
    }
    ck_assert_int_eq(core_ready(r.core, r.now, NULL), 0);
    ck_assert_int_eq(core_quotas_ready(r.core, r.now, &err), -1);
    ck_assert_contains(err.msg, "the watch of resourcequotas has delivered nothing");
    rig_see(pending("a", 1, "1000"));
    ck_assert_ptr_null(bind("a", "n1"));
}

/* Without the option nothing is listed, and nothing is limited. */
TEST(without_the_option_there_are_no_quotas)
{
    rig_start();
    rig_acquire();
    STEP_EACH(struct core_output, o, &r.out)
    ck_assert_int_lt(o->kind, CORE_KINDS);
    ck_assert_ptr_null(core_quotas(r.core));
    ck_assert_int_eq(core_quotas_ready(r.core, r.now, NULL), 0);
}

/* kube-scheduler does not retry a pod because a quota was raised or another pod has left it. */
TEST(pods_are_retried_when_their_quota_allows_them)
{
    start(GPUMEM(10000));
    rig_see(pending("a", 1, "8000"));
    rig_see(pending("b", 1, "8000"));
    cleanup_free char *a = xstrdup(bind("a", "n1"));
    rig_see(bound("a", 1, "8000", "n1", a, "", "Running"));
    rig_pass(2000);
    rig_reset();
    quota_event("q", GPUMEM(12000), false); /* still too small */
    rig_pass(2000);
    ck_count(CORE_CALL_WAKEUP, 0);
    quota_event("q", GPUMEM(16000), false);
    rig_pass(2000);
    ck_assert_int_gt(rig_count(CORE_CALL_WAKEUP), 0);
    while (rig_count(CORE_CALL_WAKEUP))
        rig_end(CORE_CALL_WAKEUP, ERR_NONE);
    quota_event("q", GPUMEM(16000), false); /* of its status */
    rig_pass(2000);
    ck_count(CORE_CALL_WAKEUP, 0);
    quota_event("q", GPUMEM(10000), false);
    rig_pass(2000);
    while (rig_count(CORE_CALL_WAKEUP))
        rig_end(CORE_CALL_WAKEUP, ERR_NONE);
    quota_event("q", GPUMEM(10000), true);
    rig_pass(2000);
    ck_assert_int_gt(rig_count(CORE_CALL_WAKEUP), 0);
}

/* A quota is raised for 300 different requests, each for the model of one node, but for the last one,
 * which asks for more. A step compares few requests with all nodes. */
TEST(few_requests_at_once_are_retried_of_those_that_their_quota_allows)
{
    enum { REQUESTS = 300, AT_ONCE = (1 << 16) / (REQUESTS + 2 + 1) + 1 };
    start(GPUMEM(100));
    for (int i = 0; i < REQUESTS; i++) {
        char name[16], model[16];
        snprintf(name, sizeof name, "m%03d", i);
        snprintf(model, sizeof model, "MODEL-%03d", i);
        add_node(name, 1, model);
        rig_see(
            pod_of("default", name, 1, i == REQUESTS - 1 ? "8001" : "8000",
                   rig_text(",'annotations':{'nvidia.com/use-gputype':'%s'}", model).p,
                   "", "Pending"));
    }
    ck_assert_uint_eq(ledger_requests(core_ledger(r.core))->n_classes, REQUESTS);
    rig_pass(2000);
    while (rig_count(CORE_CALL_WAKEUP))
        rig_end(CORE_CALL_WAKEUP, ERR_NONE);
    rig_pass(2000);
    ck_count(CORE_CALL_WAKEUP, 0);
    quota_event("q", GPUMEM(8000), false);
    rig_tick(0);
    ck_count(CORE_CALL_WAKEUP, AT_ONCE);
    rig_tick(0);
    ck_count(CORE_CALL_WAKEUP, REQUESTS - 1);
    rig_pass(2000);
    ck_count(CORE_CALL_WAKEUP, REQUESTS - 1);
}

/* Requests in our own words, which Kubernetes' own quotas count, and pods of other namespaces. */
TEST(other_pods_are_free)
{
    start(GPUMEM(1000));
    rig_pending("m", 8000);
    ck_assert_ptr_nonnull(bind("m", "n1"));
    ck_used(0, 0);
    rig_see(pod_of("other", "o", 1, "8000", "", "", "Pending"));
    rig_step((struct core_input){.type = CORE_BIND,
                                 .token = 1,
                                 .ns = SPAN("other"),
                                 .name = SPAN("pod-o"),
                                 .uid = SPAN("o"),
                                 .node_name = SPAN("n2")});
    ck_count(CORE_CALL_BIND, 1);
}

/* All members together are within the quota, or none is reserved for. */
TEST(a_gang_starts_within_the_quota_or_not_at_all)
{
    const struct span nodes[] = {SPAN("n1"), SPAN("n2")};
    for (int enough = 0; enough < 2; enough++) {
        start(enough ? GPUMEM(12000) : GPUMEM(11999));
        struct pod p[3];
        for (int i = 0; i < 3; i++) {
            const char uid[] = {(char)('a' + i), 0};
            p[i] =
                pod_of("default", uid, 1, "4000",
                       ",'labels':{'scheduling.x-k8s.io/pod-group':'g'}", "", "Pending");
            rig_see(p[i]);
        }
        struct core_output o = rig_reserve(p[0], nodes, 2);
        ck_reserved(enough ? 3 : 0);
        ck_used(enough ? 12000 : 0, enough ? 30 : 0);
        ck_assert_int_eq(o.reserve,
                         enough ? CORE_RESERVE_DONE : CORE_RESERVE_GANG_REJECTED);
        if (!enough)
            ck_assert_str_eq(o.text, "gang g: exceeded quota: q, requested: "
                                     "limits.nvidia.com/gpumem=12000, used: "
                                     "limits.nvidia.com/gpumem=0, limited: "
                                     "limits.nvidia.com/gpumem=11999");
    }
}

/* Nobody is evicted for a pod that its quota does not allow afterwards. */
TEST(a_quota_allows_no_layout_preemption)
{
    const struct span nodes[] = {SPAN("n2")};
    for (int allowed = 0; allowed < 2; allowed++) {
        start_unlisted();
        quota_event("q", allowed ? GPUMEM(12000) : GPUMEM(11999), false);
        rig_list_end(CORE_QUOTAS);
        rig_pending("victim", 10000);
        rig_bind(1, "victim", "n2");
        rig_end(CORE_CALL_BIND, ERR_NONE);
        struct pod a = pending("a", 1, "12000");
        a.priority = 10;
        rig_see(a);
        rig_step((struct core_input){
            .type = CORE_REJECTED, .uid = SPAN("a"), .nodes = nodes, .n_nodes = 1});
        rig_pass(5000);
        ck_count(CORE_CALL_NOMINATE, allowed);
    }
}

/* A card alone counts with what is asked for of its memory, and all of its compute. */
TEST(a_pod_alone_on_its_cards_counts_for_its_memory)
{
    static const struct {
        const char *limits;
        int mib;
    } cases[] = {{"", MIB},
                 {",'nvidia.com/gpumem':'1000'", 1000},
                 {",'nvidia.com/gpumem-percentage':'50'", MIB / 2},
                 {",'nvidia.com/gpumem-percentage':'100'", MIB}};
    static const char json[] =
        "{'metadata':{'namespace':'default','name':'pod-a','uid':'a'%s},'spec':{%s"
        "'containers':[{'name':'c','resources':{'limits':{'nvidia.com/gpu':'2',"
        "'nvidia.com/gpucores':'100'%s}}}]}}";
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct span nodes[] = {SPAN("n1")};
        start(GPUMEM(32000));
        struct pod a = rig_json(json, "", "", cases[i].limits);
        rig_see(a);
        ck_assert_int_eq(rig_reserve(a, nodes, 1).reserve, CORE_RESERVE_DONE);
        ck_used(2 * cases[i].mib, 200);
        cleanup_free char *notes = xstrdup(bind("a", "n1"));
        ck_used(2 * cases[i].mib, 200);
        for (int restarts = 0; restarts < 2; restarts++) {
            cleanup_free char *meta = xasprintf(",'annotations':%s", notes);
            rig_see(rig_json(json, meta, "'nodeName':'n1',", cases[i].limits));
            ck_used(2 * cases[i].mib, 200);
            start_unlisted();
            ck_used(0, 0);
        }
    }
}

/* A tenant can edit the annotations of a bind, and not the limits. */
TEST(edited_annotations_lower_no_use)
{
    static const char notes[] =
        ",'annotations':{'" KEY_MEM_IDX "':'0','" KEY_MEM_DEV "':'1','" KEY_MEMORY_UNIT
        "':'1','" KEY_CARD_MEMORY "':'%s','" KEY_ALLOCATION "':''}";
    static const struct {
        const char *memory, *record;
        int mib;
    } cases[] = {{"8000", "1 a", 8000},
                 {"50%", "1 a", MIB / 2 - 1},
                 {"100%", "1 a", MIB - 1},
                 {"100%", "whole a", MIB},
                 {"8000", "9000 a", 9000}};
    for (size_t i = 0; i < 2 * ARRAY_LEN(cases); i++) {
        cleanup_free char *meta = xasprintf(notes, cases[i / 2].record);
        start(GPUMEM(32000));
        struct pod a =
            pod_of("default", "a", 1, cases[i / 2].memory, meta, "n1", "Running");
        if (i % 2) { /* the cards are known later */
            rig_cards("n1", 0, 0);
            rig_see(a);
            add_node("n1", 2, "Tesla T4");
        } else {
            rig_see(a);
        }
        ck_assert_int_eq(used()[0], cases[i / 2].mib);
        rig_cards("n1", 2, MIB / 2);
        rig_see(rig_json("{'metadata':{'namespace':'default','name':'pod-a','uid':'a'},"
                         "'spec':{'nodeName':'n1'},'status':{'phase':'Failed'}}"));
        ck_assert_int_eq(used()[0], 0);
    }
}

/* nvidia.com/gpu alone is HAMi's only on its nodes. */
TEST(devices_of_another_plugin_do_not_count)
{
    start(GPUMEM(1000));
    rig_cards("nv", 1, MIB);
    rig_node(
        object_node(&r.arena, rig_text("{'metadata':{'name':'nv'},'status':{'capacity':{"
                                       "'nvidia.com/gpu':'1'}}}")));
    rig_see(rig_json("{'metadata':{'namespace':'default','name':'pod-a','uid':'a'},"
                     "'spec':{'containers':[{'name':'c','resources':{'limits':{"
                     "'nvidia.com/gpu':'1'}}}]}}"));
    ck_assert_ptr_null(bind("a", "n2"));
    ck_assert_contains(reason, "requested: limits.nvidia.com/gpumem=16000");
    rig_bind(1, "a", "nv");
    ck_count(CORE_CALL_BIND, 1);
    ck_used(0, 0);
}

/* What HAMi itself answered to these pods on an empty node of two cards of 24576 MiB, with this quota
 * in the namespace: the lines quota-1 to quota-14 of its answers (test/data/hami.jsonl has the rest of
 * them). Left out: pods without nvidia.com/gpu, which its webhook adds, and with containers of other
 * numbers of cards. */
TEST(hamis_own_answers)
{
#define GPU(n) "'nvidia.com/gpu':'" #n "'"
#define MEM    ",'nvidia.com/gpumem':"
    static const struct {
        const char *limits, *hard;
        bool placed;
    } lines[] = {
        {GPU(1) MEM "'8000'", "'limits.nvidia.com/gpu':'1'", true},
        {GPU(1) ",'nvidia.com/gpucores':'100'", "'limits.nvidia.com/gpu':'1'", true},
        {GPU(2) MEM "'8000'", "'limits.nvidia.com/gpu':'0'", true},
        {GPU(1) MEM "'8000'", GPUMEM(10000), true},
        {GPU(1) ",'nvidia.com/gpucores':'100'", GPUMEM(10000), false},
        {GPU(1) MEM "'0'", GPUMEM(10000), false},
        {GPU(1) ",'nvidia.com/gpumem-percentage':'50'", GPUMEM(0), false},
        {GPU(1) ",'nvidia.com/gpucores':'100'", GPUMEM(0), false},
        {GPU(1) MEM "'1000','nvidia.com/gpucores':'60'", GPUCORES(0), false},
        {GPU(2) MEM "'8000'", "'requests.nvidia.com/gpumem':'10'", true},
        {GPU(2) MEM "'8000'", "'nvidia.com/gpumem':'10'", true},
        {GPU(1) ",'nvidia.com/gpucores':'100'", "'nvidia.com/gpumem':'10'", true},
    };
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        start(lines[i].hard);
        struct scv scv = object_scv_even(&r.arena, "n1", 2, 24576);
        scv.dialect = SPAN("hami");
        rig_scv(scv);
        rig_see(
            rig_json("{'metadata':{'namespace':'default','name':'pod-a','uid':'a'},"
                     "'spec':{'containers':[{'name':'c','resources':{'limits':{%s}}}]}}",
                     lines[i].limits));
        bool placed = bind("a", "n1") != NULL;
        ck_assert_msg(placed == lines[i].placed, "line %zu: %s", i, reason);
        ck_assert(placed || strstr(reason, "exceeded quota: q, "));
    }
}
