/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/gang.h"

#include "base/mem.h"
#include "domain/keys.h"
#include "domain/objects.h"

static struct arena arena;

static struct pod read_pod(const char *labels, const char *notes, const char *spec)
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

TEST(each_system_names_a_gang_in_its_own_way)
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
    array_items(c, cases) {
        struct pod pod = read_pod(c->labels, c->notes, c->spec);
        ck_assert_str_eq(gang_text(&pod), c->gang);
    }
    arena_fini(&arena);
}

TEST(an_empty_name_or_a_minimum_of_one_is_no_gang)
{
    static const char *const notes[] = {
        "'scheduling.k8s.io/group-name':''",
        "'gpushare/gang-minimum':'1'",
        "'gpushare/gang-minimum':' 1 '",
        "'kueue.x-k8s.io/pod-group-total-count':'1'",
        "'scheduling.k8s.io/group-name':'g','gpushare/gang-minimum':'1'",
        "'gpushare/topology':'gang','scheduling.k8s.io/group-name':'g',"
        "'gpushare/gang-minimum':'1'",
        "'gpushare/topology':'none'",
    };
    array_items(note, notes) {
        struct pod pod = read_pod("", *note, "");
        struct err err = {0};
        ck_assert_done(gang_check(&pod, &err), err);
        ck_assert_str_eq(gang_text(&pod), "none");
    }
    arena_fini(&arena);
}

/* "four" must not start one pod of a gang of four. */
TEST(a_minimum_that_cannot_be_read_is_not_an_absent_one)
{
    static const char *const numbers[] = {"",
                                          "0",
                                          "-1",
                                          "four",
                                          "1.5",
                                          "4294967297",
                                          "2147483648",
                                          "0x4",
                                          "99999999999",
                                          "1e99",
                                          "4 4",
                                          "1 or more",
                                          "9223372036854775808"};
    static const struct {
        const char *kind, *key, *labels, *notes;
    } cases[] = {
        {"annotation", KEY_GANG_MINIMUM, "'scheduling.x-k8s.io/pod-group':'g'", ""},
        {"annotation", KEY_GANG_MINIMUM, "'kueue.x-k8s.io/pod-group-name':'g'",
         "'kueue.x-k8s.io/pod-group-total-count':'4'"},
        {"annotation", KEY_GANG_MINIMUM, "", ""},
        {"label", KEY_COSCHEDULING_MINIMUM, "'" KEY_COSCHEDULING_NAME "':'g'", ""},
        {"label", KEY_COSCHEDULING_MINIMUM, "'scheduling.x-k8s.io/pod-group':'g'", ""},
        {"label", KEY_COSCHEDULING_MINIMUM, "", ""},
        {"annotation", KEY_KUEUE_TOTAL, "'kueue.x-k8s.io/pod-group-name':'g'", ""},
        {"annotation", KEY_KUEUE_TOTAL, "", ""},
    };
    array_items(c, cases) {
        array_items(number, numbers) {
            bool label = c->kind[0] == 'l';
            const char *before = label ? c->labels : c->notes;
            struct span text = quoted(&arena, "%s%s'%s':'%s'", before, *before ? "," : "",
                                      c->key, *number);
            struct pod pod =
                read_pod(label ? text.p : c->labels, label ? c->notes : text.p, "");
            struct err err = {0};
            struct gang gang;
            cleanup_free char *message =
                xasprintf("%s %s: \"%s\" is not a number of members (1..2147483647)",
                          c->kind, c->key, *number);
            ck_assert_msg(gang_check(&pod, &err), "%s: \"%s\"", c->key, *number);
            ck_assert_int_eq(err.code, ERR_INVALID);
            ck_assert_str_eq(err.msg, message);
            /* The other members count it: it makes none of them start alone. */
            if (gang_of(&pod, &gang))
                ck_assert_uint_eq(gang.minimum, 0);
        }
    }
    arena_fini(&arena);
}

/* The number that counts is what must be read. */
TEST(a_number_that_does_not_count_is_not_read)
{
    struct pod pod = read_pod("'kueue.x-k8s.io/pod-group-name':'g'",
                              "'kueue.x-k8s.io/pod-group-total-count':'four',"
                              "'gpushare/gang-minimum':' 4 '",
                              "");
    struct err err = {0};
    ck_assert_done(gang_check(&pod, &err), err);
    ck_assert_str_eq(gang_text(&pod), "4/a/g// 4");
    arena_fini(&arena);
}

TEST(a_name_that_no_object_can_have_is_not_an_absent_one)
{
    static const struct {
        const char *labels, *notes, *spec, *message;
    } cases[] = {
        {"", "'scheduling.volcano.sh/group-name':'My Job'", "",
         "annotation scheduling.volcano.sh/group-name: \"My Job\" cannot be a name"},
        {"", "'scheduling.k8s.io/group-name':'../b/g'", "",
         "annotation scheduling.k8s.io/group-name: \"../b/g\" cannot be a name"},
        {"'scheduling.x-k8s.io/pod-group':'a b'", "", "",
         "label scheduling.x-k8s.io/pod-group: \"a b\" cannot be a name"},
        {"'pod-group.scheduling.sigs.k8s.io':'g/h'", "", "",
         "label pod-group.scheduling.sigs.k8s.io: \"g/h\" cannot be a name"},
        {"'pod-group.scheduling.sigs.k8s.io/name':'g h'", "'gpushare/gang-minimum':'1'",
         "", "label pod-group.scheduling.sigs.k8s.io/name: \"g h\" cannot be a name"},
        {"'kueue.x-k8s.io/pod-group-name':' g'",
         "'kueue.x-k8s.io/pod-group-total-count':'4'", "",
         "label kueue.x-k8s.io/pod-group-name: \" g\" cannot be a name"},
        {"", "", "'schedulingGroup':{'podGroupName':'g/h'}",
         "spec.schedulingGroup.podGroupName: \"g/h\" cannot be a name"},
        {"", "", "'workloadRef':{'name':'w w','podGroup':'g'}",
         "spec.workloadRef.name: \"w w\" cannot be a name"},
        {"", "", "'workloadRef':{'name':'w','podGroup':'g g'}",
         "spec.workloadRef.podGroup: \"g g\" cannot be a name"},
        {"", "", "'workloadRef':{'name':'w','podGroup':'g','podGroupReplicaKey':'/'}",
         "spec.workloadRef.podGroupReplicaKey: \"/\" cannot be a name"},
    };
    array_items(c, cases) {
        struct pod pod = read_pod(c->labels, c->notes, c->spec);
        struct err err = {0};
        ck_assert_int_eq(gang_check(&pod, &err), -1);
        ck_assert_str_eq(err.msg, c->message);
        ck_assert_str_eq(gang_text(&pod), "none");
    }
    char name[256] = {0};
    memset(name, 'a', 254);
    struct pod pod = read_pod(
        "", "", quoted(&arena, "'schedulingGroup':{'podGroupName':'%s'}", name).p);
    ck_assert_int_eq(gang_check(&pod, NULL), -1);
    arena_fini(&arena);
}

TEST(a_pod_that_names_no_gang_has_no_other_members)
{
    static const struct {
        const char *labels, *notes, *message;
    } cases[] = {
        {"", "'gpushare/gang-minimum':'4'",
         "annotation gpushare/gang-minimum: \"4\", but the pod names no gang"},
        {"'scheduling.x-k8s.io/pod-group':''", "'gpushare/gang-minimum':'4'",
         "annotation gpushare/gang-minimum: \"4\", but the pod names no gang"},
        {"", "'gpushare/topology':' gang '",
         "annotation gpushare/topology: \"gang\", but the pod names no gang"},
        {"", "'gpushare/topology':'gang','gpushare/gang-minimum':'1'",
         "annotation gpushare/topology: \"gang\", but the pod names no gang"},
        {"", "'kueue.x-k8s.io/pod-group-total-count':'3'",
         "annotation kueue.x-k8s.io/pod-group-total-count: \"3\", but the pod names no "
         "gang"},
        {"'pod-group.scheduling.sigs.k8s.io/min-available':'2'", "",
         "label pod-group.scheduling.sigs.k8s.io/min-available: \"2\", but the pod names "
         "no gang"},
    };
    array_items(c, cases) {
        struct pod pod = read_pod(c->labels, c->notes, "");
        struct err err = {0};
        ck_assert_int_eq(gang_check(&pod, &err), -1);
        ck_assert_str_eq(err.msg, c->message);
        ck_assert_str_eq(gang_text(&pod), "none");
    }
    arena_fini(&arena);
}

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

TEST(the_ledger_knows_the_members_of_each_gang)
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
    ck_assert_uint_eq(pending_members(ledger), 4);
    ledger_pod_place(ledger, p2, SPAN("n1"), NULL, 0);
    ck_assert_str_eq(members("a", "g"), "p2 p1 "); /* bound members stay */
    ck_assert_uint_eq(pending_members(ledger), 3);
    ledger_pod_unplace(ledger, p2);
    ck_assert_uint_eq(pending_members(ledger), 4);
    ledger_pod_place(ledger, p2, SPAN("n1"), NULL, 0);
    show("a", "p1", "h");
    ck_assert_str_eq(members("a", "g"), "p2 ");
    ck_assert_str_eq(members("a", "h"), "p1 p5 ");
    show("a", "p2", "");
    ck_assert_str_eq(members("a", "g"), "");
    ledger_pod_remove(ledger, ledger_pod_find(ledger, SPAN("p1")));
    ck_assert_str_eq(members("a", "h"), "p5 ");
    ck_assert_uint_eq(pending_members(ledger), 2);
    ledger_free(ledger);
    arena_fini(&arena);
}
