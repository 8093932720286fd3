/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/gang.h"

#include "domain/objects.h"

static struct arena arena;

static struct pod read(const char *labels, const char *notes, const char *spec)
{
    return object_pod(&arena, quoted(&arena,
                                     "{'metadata':{'name':'p','namespace':'a','uid':'u',"
                                     "'labels':{%s},'annotations':{%s}},'spec':{%s}}",
                                     labels, notes, spec));
}

/* "kind/namespace/name/group/replica minimum"; "none": in no gang. */
static const char *gang_text(const struct pod *pod)
{
    static char text[512];
    struct gang gang;
    cleanup_buf struct buf key = {0};
    if (!gang_of(pod, &gang)) {
        ck_assert_int_eq(gang.kind, GANG_NONE);
        return "none";
    }
    gang_key(&key, pod->meta.ns, &gang);
    snprintf(text, sizeof text, "%.*s %u", SPAN_ARG(buf_span(&key)), gang.minimum);
    return text;
}

START_TEST(each_system_names_a_gang_in_its_own_way)
{
    static const struct {
        const char *labels, *notes, *spec, *gang;
    } cases[] = {
        {"", "", "", "none"},
        {"", "", "'schedulingGroup':{'podGroupName':'g'}", "1/a/g// 0"},
        {"", "", "'schedulingGroup':{'newField':{'x':1},'podGroupName':'g'}",
         "1/a/g// 0"},
        {"", "", "'workloadRef':{'name':'w','podGroup':'g'}", "2/a/w/g/ 0"},
        {"", "", "'workloadRef':{'name':'w','podGroup':'g','podGroupReplicaKey':'r'}",
         "2/a/w/g/r 0"},
        {"'scheduling.x-k8s.io/pod-group':'g'", "", "", "3/a/g// 0"},
        {"'pod-group.scheduling.sigs.k8s.io':'g'", "", "", "3/a/g// 0"},
        {"'pod-group.scheduling.sigs.k8s.io/name':'g',"
         "'pod-group.scheduling.sigs.k8s.io/min-available':'3'",
         "", "", "3/a/g// 3"},
        {"'kueue.x-k8s.io/pod-group-name':'g'",
         "'kueue.x-k8s.io/pod-group-total-count':'4'", "", "4/a/g// 4"},
        {"", "'scheduling.volcano.sh/group-name':'g'", "", "5/a/g// 0"},
        {"", "'scheduling.k8s.io/group-name':'g'", "", "5/a/g// 0"},
        {"'scheduling.x-k8s.io/pod-group':'g'", "'gpushare/gang-minimum':'2'", "",
         "3/a/g// 2"},
        {"'kueue.x-k8s.io/pod-group-name':'k'", "",
         "'schedulingGroup':{'podGroupName':'g'}", "1/a/g// 0"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct pod pod = read(cases[i].labels, cases[i].notes, cases[i].spec);
        ck_assert_str_eq(gang_text(&pod), cases[i].gang);
    }
    arena_fini(&arena);
}
END_TEST

START_TEST(an_impossible_name_or_a_minimum_of_one_is_no_gang)
{
    static const char *const notes[] = {
        "'scheduling.k8s.io/group-name':''",
        "'scheduling.k8s.io/group-name':'../b/g'",
        "'scheduling.k8s.io/group-name':'a b'",
        "'gpushare/gang-minimum':'3'",
        "'scheduling.k8s.io/group-name':'g','gpushare/gang-minimum':'1'",
    };
    for (size_t i = 0; i < ARRAY_LEN(notes); i++) {
        struct pod pod = read("", notes[i], "");
        ck_assert_str_eq(gang_text(&pod), "none");
    }
    char name[256] = {0};
    memset(name, 'a', 254);
    struct pod pod =
        read("", "", quoted(&arena, "'schedulingGroup':{'podGroupName':'%s'}", name).p);
    ck_assert_str_eq(gang_text(&pod), "none");
    arena_fini(&arena);
}
END_TEST

START_TEST(an_invalid_minimum_is_unknown)
{
    static const char *const numbers[] = {"",    "0",           "-1",  "x",
                                          "1.5", "99999999999", "1e99"};
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        struct pod pod = read(
            "'kueue.x-k8s.io/pod-group-name':'g'",
            quoted(&arena, "'kueue.x-k8s.io/pod-group-total-count':'%s'", numbers[i]).p,
            "");
        ck_assert_str_eq(gang_text(&pod), "4/a/g// 0");
    }
    arena_fini(&arena);
}
END_TEST

static struct ledger *ledger;

/* Shows the ledger the pod `uid` of a gang ("": none) in the namespace. */
static struct ledger_pod *show(const char *ns, const char *uid, const char *gang)
{
    struct span json = quoted(&arena,
                              "{'metadata':{'name':'%s','namespace':'%s','uid':'%s',"
                              "'labels':{'scheduling.x-k8s.io/pod-group':'%s'}}}",
                              uid, ns, uid, gang);
    struct pod pod = object_pod(&arena, json);
    struct request r = {.kind = REQUEST_CARDS, .cards = 1};
    return ledger_pod_add(ledger, &pod, &r, NULL);
}

/* The UIDs of the gang's members, newest first. */
static const char *members(const char *ns, const char *name)
{
    static char text[64];
    struct gang gang = {.kind = GANG_COSCHEDULING, .name = span_of(name)};
    const struct ledger_gang *g = ledger_gang_find(ledger, span_of(ns), &gang);
    text[0] = '\0';
    if (!g)
        return text;
    ck_assert_span_eq(g->ns, ns);
    ck_assert_span_eq(g->name, name);
    for (const struct ledger_member *m = g->members; m; m = m->next)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s ", m->pod->uid.p);
    return text;
}

START_TEST(the_ledger_knows_the_members_of_each_gang)
{
    const struct ledger_settings s = {.unit_mib = 1};
    ledger = ledger_new(&s, 1);
    show("a", "p1", "g");
    struct ledger_pod *p2 = show("a", "p2", "g");
    show("b", "p3", "g");
    show("a", "p4", "");
    show("a", "p5", "h");
    ck_assert_str_eq(members("a", "g"), "p2 p1 ");
    ck_assert_str_eq(members("b", "g"), "p3 ");
    ck_assert_str_eq(members("a", "h"), "p5 ");
    ck_assert_uint_eq(ledger_totals(ledger).pending_members, 4);
    ledger_pod_place(ledger, p2, SPAN("n1"), NULL, 0);
    ck_assert_str_eq(members("a", "g"), "p2 p1 "); /* bound members stay */
    ck_assert_uint_eq(ledger_totals(ledger).pending_members, 3);
    ledger_pod_unplace(ledger, p2);
    ck_assert_uint_eq(ledger_totals(ledger).pending_members, 4);
    ledger_pod_place(ledger, p2, SPAN("n1"), NULL, 0);
    show("a", "p1", "h");
    ck_assert_str_eq(members("a", "g"), "p2 ");
    ck_assert_str_eq(members("a", "h"), "p1 p5 ");
    show("a", "p2", "");
    ck_assert_str_eq(members("a", "g"), "");
    ledger_pod_remove(ledger, ledger_pod_find(ledger, SPAN("p1")));
    ck_assert_str_eq(members("a", "h"), "p5 ");
    ck_assert_uint_eq(ledger_totals(ledger).pending_members, 2);
    ledger_free(ledger);
    arena_fini(&arena);
}
END_TEST

UNIT_MAIN("gang", each_system_names_a_gang_in_its_own_way,
          an_impossible_name_or_a_minimum_of_one_is_no_gang,
          an_invalid_minimum_is_unknown, the_ledger_knows_the_members_of_each_gang)
