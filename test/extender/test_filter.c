/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/core_driver_rig.h"

#include "domain/keys.h"
#include "extender/gang_minimum.h"

/* Gangs, reports of other replicas, reservations and template Nodes. (Results for nodes:
 * test/golden/filter and test_orders.c.) */

static struct core_driver_rig rig;
static struct verbs *v;
static struct gang_minimum *gangs; /* NULL: no API of gangs */
static struct counters *counters;

/* An API server with one PodGroup, or without that API. */
struct group_api {
    const char *body;
    unsigned status, calls; /* status 0: no answer in time */
    char path[128];
    int64_t now_ms, slow_ms;   /* slow_ms: a call takes that long */
    struct core_driver *stops; /* the replica stops while this is answered */
};
static struct group_api groups;

static int64_t groups_now(void)
{
    return groups.now_ms;
}

static int groups_call(void *ctx, const struct kube_request *request,
                       struct httpc_reply *reply, struct err *err)
{
    (void)ctx;
    ck_assert_str_eq(request->method, "GET");
    snprintf(groups.path, sizeof groups.path, "%s", request->path);
    groups.calls++;
    groups.now_ms += groups.slow_ms;
    *reply = (struct httpc_reply){.status = groups.status};
    if (groups.stops)
        core_driver_begin_stop(groups.stops);
    if (!groups.status)
        return err_set(err, ERR_TIMEOUT, "no answer");
    buf_adds(&reply->body, groups.body);
    return kube_reply_check(groups.status, buf_span(&reply->body), err);
}

static void begin_groups(const char *body, unsigned status)
{
    groups = (struct group_api){.body = body, .status = status, .now_ms = 1};
    gangs = gang_minimum_new(
        &(struct pod_group_reader){.call = groups_call, .now_ms = groups_now});
}

#define MINIMUM(n) "{\"spec\":{\"minMember\":" #n "}}"

/* Takes the objects. `answer`: as in the configuration; with layout preemption. */
static void begin_as(json_t *objects, bool follows, int64_t answer)
{
    rig_start_core(&rig,
                   (struct core_settings){.ledger = {.unit_mib = 1},
                                          .gang_wait_ms = 60000,
                                          .preempt_after_ms = 1000},
                   follows);
    rig_deliver(&rig, objects);
    counters = counters_new();
    v = verbs_new(&(struct verbs_config){.driver = rig.driver,
                                         .answer = answer,
                                         .gangs = gangs,
                                         .preempts = true,
                                         .counters = counters});
}

static void begin(json_t *objects)
{
    begin_as(objects, false, 1);
}

static void end(void)
{
    verbs_free(v);
    counters_free(counters);
    rig_stop(&rig);
    gang_minimum_free(gangs);
    gangs = NULL;
}

/* -- objects -- */

/* A pending pod of the gang. */
static json_t *member(const char *uid, const char *gang, int mib)
{
    json_t *pod = rig_pod(uid, mib);
    json_object_set_new(json_object_get(pod, "metadata"), "labels",
                        json_pack("{s:s}", "scheduling.x-k8s.io/pod-group", gang));
    return pod;
}

/* With one card. */
static json_t *scv_of(const char *node, int mib)
{
    cleanup_free char *card =
        xasprintf("{\"id\":0,\"health\":\"Healthy\",\"totalMemory\":%d}", mib);
    return rig_scv(node, card, "");
}

static json_t *card_of(const char *node)
{
    return scv_of(node, 16276);
}

/* Three members of a gang on two cards. */
static json_t *three_members(int mib)
{
    return json_pack("[ooooo]", card_of("n1"), card_of("n2"), member("p1", "g", mib),
                     member("p2", "g", mib), member("p3", "g", mib));
}

/* -- calls -- */

static json_t *ask(enum verb_source source, json_t *pod, unsigned status)
{
    return rig_ask_as(v, filter_answer, source, pod, json_pack("[ss]", "n1", "n2"),
                      status);
}

/* How many nodes the pod is answered with. */
static size_t answered(json_t *pod)
{
    json_t *reply = ask(VERB_SCHEDULER, pod, 200);
    size_t n = json_array_size(json_object_get(reply, "NodeNames"));
    json_decref(reply);
    return n;
}

static const char *failed(json_t *reply, const char *list, const char *node)
{
    const char *why =
        json_string_value(json_object_get(json_object_get(reply, list), node));
    return why ? why : "";
}

static size_t reservations(void)
{
    size_t n = ledger_totals(core_ledger(core_driver_read(rig.driver))).reservations;
    core_driver_read_end(rig.driver);
    return n;
}

/* The node of the pod's reservation, and its time limit; "": none. */
static void reserved_for(const char *uid, char node[8], int64_t *until_ms)
{
    const struct ledger_reservation *r =
        ledger_reservation_find(core_ledger(core_driver_read(rig.driver)), span_of(uid));
    snprintf(node, 8, "%s", r ? r->node->name.p : "");
    *until_ms = r ? r->until_ms : 0;
    core_driver_read_end(rig.driver);
}

/* So many filters were answered without a reservation for this reason. */
static void ck_unreserved(const char *reason, int n)
{
    cleanup_buf struct buf out = {0};
    cleanup_free char *sample =
        xasprintf("\ngpushare_filter_unreserved_total{reason=\"%s\"} %d\n", reason, n);
    counters_write(counters, &out);
    ck_assert_contains(out.p, sample);
}

/* -- gangs -- */

TEST(a_gang_is_answered_together)
{
    json_t *objects = three_members(10850);
    json_array_append_new(objects, scv_of("small", 100));
    begin(objects);
    for (int i = 0; i < 2; i++) {
        json_t *reply = rig_ask(v, filter_answer, member(i ? "p3" : "p1", "g", 10850),
                                json_pack("[sss]", "n1", "n2", "small"));
        ck_assert_uint_eq(json_array_size(json_object_get(reply, "NodeNames")), 0);
        for (int n = 0; n < 2; n++)
            ck_assert_str_eq(failed(reply, "FailedNodes", n ? "n2" : "n1"),
                             "gang g: 1 of 3 members finds no place beside the others; "
                             "needs 10850 MiB on one card; none starts before all can");
        ck_assert_str_eq(failed(reply, "FailedAndUnresolvableNodes", "small"),
                         "needs 10850 MiB on one card; the largest card has 100 MiB");
        json_decref(reply);
    }
    ck_assert_uint_eq(answered(rig_pod("x", 10850)), 1); /* nothing was reserved */
    end();
}

/* The 100 MiB card takes a member for which kube-scheduler has not asked yet. */
TEST(the_members_of_a_gang_may_use_nodes_where_the_first_does_not_fit)
{
    begin(json_pack("[oooooo]", card_of("n1"), card_of("n2"), scv_of("small", 100),
                    member("p1", "g", 16276), member("p2", "g", 16276),
                    member("p3", "g", 100)));
    static const char *const uids[] = {"p1", "p2", "p3"};
    array_indices(i, uids) {
        json_t *reply =
                   rig_ask(v, filter_answer, member(uids[i], "g", i < 2 ? 16276 : 100),
                           json_pack("[sss]", "n1", "n2", "small")),
               *names = json_object_get(reply, "NodeNames");
        ck_assert_uint_eq(json_array_size(names), 1);
        ck_assert_int_eq(i == 2,
                         !strcmp(json_string_value(json_array_get(names, 0)), "small"));
        json_decref(reply);
    }
    end();
}

/* kube-scheduler shows the text of an error that comes with status 200. */
TEST(a_member_is_held_while_others_do_not_exist)
{
    begin_groups(MINIMUM(3), 200);
    begin(json_pack("[oo]", card_of("n1"), card_of("n2")));
    json_t *reply = ask(VERB_SCHEDULER, member("p1", "g", 1000), 200);
    ck_assert_uint_eq(json_object_size(reply), 1);
    ck_assert_str_eq(json_string_value(json_object_get(reply, "Error")),
                     "gang g: waits for 2 more members: 1 of 3 exist");
    json_decref(reply);
    ck_assert_uint_eq(reservations(), 0);
    end();
}

/* A node for one member would start half of the gang. */
TEST(without_a_leader_a_gang_gets_an_error)
{
    begin_as(three_members(10850), true, 1);
    for (enum verb_source source = VERB_SCHEDULER; source <= VERB_REPLICA; source++) {
        json_t *reply = ask(source, member("p1", "g", 10850), 503);
        ck_assert_str_eq(json_string_value(json_object_get(reply, "Error")),
                         "gang g: only the leader reserves cards for all members, and no "
                         "leader answers");
        json_decref(reply);
    }
    ck_assert_uint_eq(answered(rig_pod("x", 10850)), 1);
    ck_unreserved("no-leader", 1);
    end();
}

/* Filter found this process to be the leader before it read the PodGroup. */
TEST(a_gang_gets_an_error_when_the_leader_stops_during_its_filter)
{
    begin_groups(MINIMUM(2), 200);
    begin(three_members(10850));
    groups.stops = rig.driver;
    json_t *reply = ask(VERB_SCHEDULER, member("p1", "g", 10850), 503);
    ck_assert_contains(json_string_value(json_object_get(reply, "Error")),
                       "only the leader reserves cards");
    ck_assert_uint_eq(reservations(), 0);
    json_decref(reply);
    end();
}

/* With a minimum of 1 the members do not wait for each other, as in a PodGroup with the
 * policy basic. */
TEST(a_pod_group_says_how_many_members_need_a_place)
{
    static const struct {
        const char *group;
        bool follows;
        size_t answered[3], reserved[3]; /* after a filter of each member */
    } cases[] = {
        {MINIMUM(2), false, {1, 1, 0}, {2, 2, 2}},
        {MINIMUM(1), false, {1, 1, 0}, {1, 2, 2}},
        {MINIMUM(1), true, {1, 1, 1}, {0, 0, 0}}, /* needs no leader */
        {"{}", false, {0, 0, 0}, {0, 0, 0}},
    };
    array_items(p, cases) {
        begin_groups(p->group, 200);
        begin_as(three_members(10850), p->follows, 1);
        for (int i = 0; i < 3; i++) {
            char uid[] = {'p', (char)('1' + i), 0};
            ck_assert_uint_eq(answered(member(uid, "g", 10850)), p->answered[i]);
            ck_assert_uint_eq(reservations(), p->reserved[i]);
        }
        ck_assert_str_eq(
            groups.path,
            "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups/g");
        ck_assert_uint_eq(groups.calls, 1); /* the answer is kept */
        end();
    }
}

TEST(without_a_pod_group_all_members_need_a_place)
{
    begin_groups("404 page not found", 404);
    begin(three_members(10850));
    ck_assert_uint_eq(answered(member("p1", "g", 10850)), 0);
    ck_assert_uint_eq(answered(member("p2", "g", 10850)), 0);
    ck_assert_uint_eq(groups.calls, 1);
    groups.now_ms += GANG_MINIMUM_KEEP_MS; /* the API or the object appears */
    groups.body = MINIMUM(2);
    groups.status = 200;
    ck_assert_uint_eq(answered(member("p1", "g", 10850)), 1);
    groups.now_ms += GANG_MINIMUM_KEEP_MS; /* the last number counts meanwhile */
    groups.status = 0;
    ck_assert_uint_eq(answered(member("p2", "g", 10850)), 1);
    ck_assert_uint_eq(groups.calls, 3);
    ck_assert_uint_eq(reservations(), 2);
    end();
}

/* "four" must not start one pod of a gang of four. */
TEST(a_pod_group_that_cannot_be_read_makes_the_request_invalid)
{
    static const struct {
        bool follows;
        int64_t answer;
    } cases[] = {{false, 1}, {true, 1}, {false, VERBS_ALL}};
    static const char why[] =
        "podgroups.scheduling.x-k8s.io default/g: minMember: \"four\" "
        "is not a number of members (1..2147483647)";
    array_items(c, cases) {
        begin_groups(MINIMUM("four"), 200);
        begin_as(three_members(100), c->follows, c->answer);
        for (int i = 0; i < 2; i++) {
            json_t *reply = ask(VERB_SCHEDULER, member("p1", "g", 100), 200);
            ck_assert_uint_eq(json_array_size(json_object_get(reply, "NodeNames")), 0);
            for (int n = 0; n < 2; n++)
                ck_assert_str_eq(
                    failed(reply, "FailedAndUnresolvableNodes", n ? "n2" : "n1"), why);
            json_decref(reply);
        }
        ck_assert_uint_eq(groups.calls, 1); /* the answer is kept */
        ck_assert_uint_eq(reservations(), 0);
        groups.now_ms += GANG_MINIMUM_KEEP_MS;
        groups.status = 0; /* the last answer counts meanwhile */
        ck_assert_uint_eq(answered(member("p2", "g", 100)), 0);
        groups.now_ms += GANG_MINIMUM_PAUSE_MS;
        groups.body = MINIMUM(1); /* corrected */
        groups.status = 200;
        ck_assert_uint_ge(answered(member("p2", "g", 100)), 1);
        end();
    }
}

/* -- layout preemption -- */

/* A pod of lower priority than the members, on the card of the node. */
static json_t *weak_pod(const char *name, const char *node)
{
    json_t *pod = rig_pod(name, 10850), *spec = json_object_get(pod, "spec");
    json_object_set_new(json_object_get(pod, "metadata"), "annotations",
                        json_pack("{s:s,s:s,s:s}", KEY_MEM_IDX, "0", KEY_MEM_POD, "10850",
                                  KEY_MEM_DEV, "16276"));
    json_object_set_new(spec, "nodeName", json_string(node));
    json_object_set_new(spec, "priority", json_integer(-1));
    return pod;
}

/* How many pods layout preemption considers after filter has rejected p1, which is in a
 * gang of that PodGroup. */
static size_t considered(const char *group, int64_t answer, enum verb_source source,
                         const char *policy)
{
    json_t *objects = three_members(10850), *pod = member("p1", "g", 10850);
    json_object_set_new(json_object_get(pod, "spec"), "preemptionPolicy",
                        json_string(policy));
    json_array_append_new(objects, weak_pod("w1", "n1"));
    json_array_append_new(objects, weak_pod("w2", "n2"));
    begin_groups(group, 200);
    begin_as(objects, false, answer);
    json_t *reply = ask(source, pod, 200);
    ck_assert_uint_eq(json_array_size(json_object_get(reply, "NodeNames")), 0);
    json_decref(reply);
    size_t n = core_stats(core_driver_read(rig.driver)).preemptions.waiting;
    core_driver_read_end(rig.driver);
    end();
    return n;
}

TEST(evictions_are_considered_for_members_that_do_not_wait)
{
    static const int64_t answers[] = {VERBS_ALL, 1, 2};
    for (size_t i = 0; i < 2 * ARRAY_LEN(answers); i++) {
        int64_t answer = answers[i / 2];
        enum verb_source source = i % 2 ? VERB_REPORT : VERB_SCHEDULER;
        ck_assert_uint_eq(considered(MINIMUM(1), answer, source, ""), 1);
        ck_assert_uint_eq(considered(MINIMUM(3), answer, source, ""), 0);
        ck_assert_uint_eq(considered("{}", answer, source, ""), 0);
        ck_assert_uint_eq(considered(MINIMUM(1), answer, source, "Never"), 0);
        /* Its gang is of no interest then: the object of the gang is not read. */
        ck_assert(groups.calls == 0 || answer == 1);
    }
}

/* -- the object of a gang -- */

static uint32_t minimum_of(enum gang_kind kind, int i)
{
    char name[16];
    snprintf(name, sizeof name, "g%d", i);
    struct gang gang = {.kind = kind, .name = span_of(name)};
    uint32_t minimum = 99;
    struct err err = {0};
    ck_assert_done(gang_minimum_of(gangs, SPAN("ns"), &gang, &minimum, &err), err);
    return minimum;
}

/* Tenants name gangs. */
TEST(the_kept_answers_are_limited)
{
    begin_groups(MINIMUM(2), 404);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i <= GANG_MINIMUM_KEPT; i++, groups.now_ms++) {
            ck_assert_uint_eq(minimum_of(GANG_COSCHEDULING, i), 0);
            ck_assert_uint_eq(minimum_of(GANG_COSCHEDULING, i), 0);
        }
    ck_assert_uint_eq(groups.calls, 2 * (GANG_MINIMUM_KEPT + 1));
    gang_minimum_free(gangs);
}

/* Each call blocks a filter, and so kube-scheduler, for up to a second. The kinds do not
 * pause each other: a CRD can have a conversion webhook that hangs. */
TEST(an_api_server_that_does_not_answer_is_not_asked_for_every_gang)
{
    begin_groups(MINIMUM(2), 200);
    ck_assert_uint_eq(minimum_of(GANG_COSCHEDULING, 0), 2);
    groups.now_ms += GANG_MINIMUM_KEEP_MS;
    groups.status = 0;
    for (int i = 1; i <= 2 * GANG_MINIMUM_KEPT; i++)
        ck_assert_uint_eq(minimum_of(GANG_COSCHEDULING, i), 0);
    ck_assert_uint_eq(groups.calls, 2);
    ck_assert_uint_eq(minimum_of(GANG_COSCHEDULING, 0), 2); /* as before */
    ck_assert_uint_eq(groups.calls, 2);
    groups.status = 200;
    ck_assert_uint_eq(minimum_of(GANG_VOLCANO, 1), 2);
    ck_assert_uint_eq(minimum_of(GANG_COSCHEDULING, 1), 0);
    ck_assert_uint_eq(groups.calls, 3);
    groups.status = 0;
    groups.now_ms += GANG_MINIMUM_PAUSE_MS;
    ck_assert_uint_eq(minimum_of(GANG_COSCHEDULING, 0), 2);
    ck_assert_uint_eq(minimum_of(GANG_COSCHEDULING, 1), 0);
    ck_assert_uint_eq(groups.calls, 4);
    groups.now_ms += GANG_MINIMUM_PAUSE_MS;
    groups.status = 200;
    ck_assert_uint_eq(minimum_of(GANG_COSCHEDULING, 1), 2);
    ck_assert_uint_eq(minimum_of(GANG_COSCHEDULING, 0), 2);
    ck_assert_uint_eq(groups.calls, 6);
    groups.body = "{\"spec\":{\"schedulingPolicy\":{\"gang\":{\"minCount\":3}}}}";
    ck_assert_uint_eq(minimum_of(GANG_POD_GROUP, 0), 3);
    gang_minimum_free(gangs);
}

/* One that answers in time, but too slowly for all versions of an object together. */
TEST(an_api_server_without_time_for_all_versions_is_not_asked_for_every_gang)
{
    begin_groups("{}", 404);
    groups.slow_ms = GANG_MINIMUM_CALL_MS;
    ck_assert_uint_eq(minimum_of(GANG_POD_GROUP, 0), 0);
    ck_assert_uint_eq(minimum_of(GANG_POD_GROUP, 1), 0);
    ck_assert_uint_eq(groups.calls, 1);
    gang_minimum_free(gangs);
}

/* -- template Nodes -- */

/* The reply about two template Nodes, or a node that is watched and one that has just
 * joined. */
static json_t *ask_templates(json_t *pod, const char *cards, bool mixed)
{
    json_t *nodes = json_array();
    for (int i = 1; i <= 2; i++) {
        cleanup_free char *name = xasprintf(mixed && i == 1 ? "n%d" : "new-%d", i);
        json_array_append_new(nodes, json_pack("{s:{s:s,s:{s:s*}}}", "metadata", "name",
                                               name, "labels", "gpushare.io/cards",
                                               mixed && i == 1 ? NULL : cards));
    }
    return rig_ask(v, filter_answer, pod, nodes);
}

static size_t passing(json_t *reply)
{
    return json_array_size(json_object_get(json_object_get(reply, "Nodes"), "items"));
}

static void expect_passing(json_t *pod, const char *cards, bool mixed, size_t n,
                           const char *why)
{
    json_t *reply = ask_templates(pod, cards, mixed);
    ck_assert_uint_eq(passing(reply), n);
    if (why)
        ck_assert_str_eq(failed(reply, "FailedNodes", "new-2"), why);
    json_decref(reply);
}

TEST(a_template_node_leaves_nothing_behind)
{
    cleanup_buf struct buf before = {0}, after = {0};
    begin(json_pack("[o]", card_of("n1")));
    counters_write(counters, &before);
    expect_passing(rig_pod("x", 100), "1x100MiB", false, 2,
                   NULL); /* not the best alone */
    expect_passing(rig_pod("x", 20000), "1x100MiB", false, 0, NULL);
    ck_assert_uint_eq(reservations(), 0);
    counters_write(counters, &after);
    ck_assert_str_eq(after.p, before.p);
    end();
}

/* It carries the key as its whole node group does. The extender will watch it in a moment. */
TEST(a_node_that_is_not_watched_yet_makes_no_simulation)
{
    cleanup_buf struct buf before = {0}, after = {0};
    begin(json_pack("[o]", card_of("n1")));
    expect_passing(rig_pod("x", 100), "4x16384MiB", true, 1, NULL);
    ck_assert_uint_eq(reservations(), 1);
    counters_write(counters, &before);
    expect_passing(rig_pod("y", 16276), "4x16384MiB", true, 0,
                   "the GPUs of this node are not known yet");
    counters_write(counters, &after);
    ck_assert_str_ne(after.p, before.p);
    end();
}

TEST(a_template_node_changes_no_reservation_of_a_gang)
{
    char before[8], after[8];
    int64_t until_ms, still_ms;
    begin_groups(MINIMUM(2), 200);
    begin(three_members(10850));
    ck_assert_uint_eq(answered(member("p1", "g", 10850)), 1);
    for (int i = 1; i <= 2; i++) {
        char uid[] = {'p', (char)('0' + i), 0};
        reserved_for(uid, before, &until_ms);
        ck_assert_int_ne(before[0], 0);
        expect_passing(member(uid, "g", 10850), "2x16384MiB", false, 0,
                       "gang g: its members need places on nodes that exist");
        reserved_for(uid, after, &still_ms);
        ck_assert_str_eq(after, before);
        ck_assert_int_eq(still_ms, until_ms);
    }
    ck_assert_uint_eq(reservations(), 2);
    end();
    begin_groups(MINIMUM(1), 200); /* members that do not wait are single pods */
    begin(three_members(10850));
    expect_passing(member("p1", "g", 10850), "2x16384MiB", false, 2, NULL);
    ck_assert_uint_eq(reservations(), 0);
    end();
}

/* -- reservations -- */

/* How many retries the core has for the pod, after a call with so many nodes beside n1. */
static uint32_t retries_of(json_t *asks, int others)
{
    cleanup_free char *uid = xstrdup(
        json_string_value(json_object_get(json_object_get(asks, "metadata"), "uid")));
    json_t *nodes = json_pack("[s]", "n1");
    for (int i = 0; i < others; i++)
        json_array_append_new(nodes, json_sprintf("x%d", i));
    rig_renew(&rig);
    json_decref(rig_ask_as(v, filter_answer, VERB_SCHEDULER, asks, nodes, 200));
    const struct ledger_pod *pod =
        ledger_pod_find(core_ledger(core_driver_read(rig.driver)), span_of(uid));
    core_driver_read_end(rig.driver);
    return pod ? pod->retries : 0;
}

static uint32_t retries(const char *uid, int mib, int others)
{
    return retries_of(rig_pod(uid, mib), others);
}

/* kube-scheduler offers fewer than 100 nodes only if it offers all that its plugins accept. */
TEST(a_pod_that_fits_where_it_was_not_offered_is_retried)
{
    json_t *cordoned = rig_json("{\"kind\":\"Node\",\"metadata\":{\"name\":\"n3\"},"
                                "\"spec\":{\"unschedulable\":true}}");
    begin(json_pack("[ooooooooo]", scv_of("n1", 100), card_of("n2"), scv_of("n3", 20000),
                    cordoned, rig_pod("p1", 8000), rig_pod("p2", 20000),
                    rig_pod("p3", 90), member("p4", "g", 60), member("p6", "g", 60)));
    ck_assert_uint_eq(retries("p1", 8000, 98), 0);
    ck_assert_uint_eq(retries("p1", 8000, 99), 1);
    ck_assert_uint_eq(retries("p1", 8000, 99), 1);  /* the first is not due */
    ck_assert_uint_eq(retries("p2", 20000, 99), 0); /* only on a cordoned node */
    ck_assert_uint_eq(retries("p5", 8000, 99), 0);  /* no list has shown it */
    /* n1 takes one of them, and the other one finds a node that this one is not offered. */
    ck_assert_uint_eq(retries_of(member("p4", "g", 60), 99), 0);
    ck_assert_uint_eq(retries("p3", 90, 99), 1); /* n1 is reserved now */
    end();
}

/* Room that is reserved for a pod of lower priority is room for this one. */
TEST(a_node_elsewhere_may_be_reserved_for_a_weaker_pod)
{
    static const char *const uids[] = {"p2", "p3"};
    begin(json_pack("[oo]", scv_of("n1", 100), card_of("n2")));
    ck_assert_uint_eq(answered(rig_pod("p1", 16276)), 1);
    ck_assert_uint_eq(reservations(), 1);
    array_indices(i, uids) {
        json_t *pod = rig_pod(uids[i], 16276);
        json_object_set_new(json_object_get(pod, "spec"), "priority",
                            json_integer((int)i));
        rig_deliver(&rig, json_pack("[O]", pod));
        ck_assert_uint_eq(retries_of(pod, 99), i);
    }
    end();
}

/* It may arrive after a later filter of the same pod. */
TEST(a_report_reserves_nothing)
{
    begin(json_pack("[oo]", card_of("n1"), card_of("n2")));
    for (int i = 0; i < 3; i++) {
        json_decref(ask(i == 1 ? VERB_SCHEDULER : VERB_REPORT,
                        rig_pod(i < 2 ? "x" : "y", i ? 16276 : 100), 200));
        ck_assert_uint_eq(reservations(), i > 0);
    }
    end();
}

/* Has reservations made on the nodes m0, m1 ... until the core has no place for more. */
static void fill_reservations(int nodes)
{
    struct request request = {
        .kind = REQUEST_MEMORY, .cards = 1, .units = 1, .mib_per_card = 1};
    enum core_reserve_outcome outcome = CORE_RESERVE_DONE;
    for (int i = 0; outcome == CORE_RESERVE_DONE; i++) {
        char uid[16], node[16];
        size_t at;
        snprintf(uid, sizeof uid, "u%d", i);
        snprintf(node, sizeof node, "m%d", i % nodes);
        if (i % 64 == 0) /* on a loaded machine, more take longer than the lease */
            rig_renew(&rig);
        struct span on = span_of(node);
        outcome = core_driver_reserve(rig.driver,
                                      &(struct core_input){.type = CORE_RESERVE,
                                                           .ns = SPAN("default"),
                                                           .name = span_of(uid),
                                                           .uid = span_of(uid),
                                                           .request = &request,
                                                           .nodes = &on,
                                                           .n_nodes = 1},
                                      NULL, &at);
    }
    ck_assert_int_eq(outcome, CORE_RESERVE_FULL);
}

/* The other members would have nothing: the gang would start in part. */
TEST(without_space_for_reservations_a_gang_gets_an_error)
{
    enum { NODES = 512 };
    json_t *objects = three_members(100);
    for (int i = 0; i < NODES; i++) {
        char node[16];
        snprintf(node, sizeof node, "m%d", i);
        json_array_append_new(objects, card_of(node));
    }
    begin(objects);
    fill_reservations(NODES);
    for (enum verb_source source = VERB_SCHEDULER; source <= VERB_REPLICA; source++) {
        json_t *reply = ask(source, member("p1", "g", 100), 503);
        ck_assert_str_eq(json_string_value(json_object_get(reply, "Error")),
                         "gang g: too many pods have reservations");
        ck_assert_ptr_null(json_object_get(reply, "NodeNames"));
        json_decref(reply);
    }
    ck_unreserved("full", 0);
    ck_assert_uint_eq(answered(rig_pod("x", 100)), 1);
    ck_unreserved("full", 1);
    ck_assert_uint_eq(reservations(), CORE_RESERVATIONS_MAX);
    end();
}

static void expect_reserved(const char *on, int mib, int64_t *until_ms)
{
    char node[8];
    json_decref(ask(VERB_SCHEDULER, rig_pod("x", mib), 200));
    reserved_for("x", node, until_ms);
    ck_assert_str_eq(node, on);
}

static void wait_a_millisecond(void)
{
    int64_t now_ms = core_driver_now().mono_ms;
    while (core_driver_now().mono_ms <= now_ms + 1)
        ;
}

/* Its own reservation, which fills a card, does not make the only node full. */
TEST(a_pod_that_is_filtered_again_keeps_its_place_and_its_time_limit)
{
    int64_t first, again;
    begin(json_pack("[o]", card_of("n1")));
    for (int policy = 0; policy < SCORE_POLICIES; policy++) {
        verbs_free(v);
        v = verbs_new(&(struct verbs_config){
            .driver = rig.driver, .answer = 1, .policy = (enum score_policy)policy});
        expect_reserved("n1", 10000, &first);
        wait_a_millisecond();
        expect_reserved("n1", 10000, &again);
        ck_assert_int_eq(again, first);
        expect_reserved("n1", 16276, &again);
        ck_assert_int_eq(again, first);
        expect_reserved("", 16277, &again); /* it fits nowhere */
    }
    end();
}

/* The reservation moves with the answer (test_tried.c). */
TEST(a_pod_that_gets_another_node_keeps_its_time_limit)
{
    int64_t first, again;
    begin(json_pack("[oo]", card_of("n1"), card_of("n2")));
    for (int policy = 0; policy < SCORE_POLICIES; policy++) {
        verbs_free(v);
        v = verbs_new(&(struct verbs_config){
            .driver = rig.driver, .answer = 1, .policy = (enum score_policy)policy});
        expect_reserved("n1", 10000, &first);
        wait_a_millisecond();
        for (int i = 0; i < 4; i++) {
            expect_reserved(i % 2 ? "n1" : "n2", 16276, &again);
            ck_assert_int_eq(again, first);
            ck_assert_uint_eq(reservations(), 1);
        }
        expect_reserved("", 16277, &again);
    }
    end();
}
