/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/core_driver_rig.h"

#include "base/mem.h"
#include "domain/keys.h"
#include "extender/gang_minimum.h"
#include "extender/verb.h"

/* Gangs, reports of other replicas, reservations and template Nodes. (Results for nodes:
 * test/golden/filter and test_orders.c.) */

static struct core_driver_rig rig;
static struct verbs *v;

/* With these objects, which are stolen; answers with the best node. */
static void begin(json_t *objects, bool follows, struct counters *counters)
{
    struct ledger_settings settings = {.unit_mib = 1};
    rig_start_as(&rig, &settings, false, follows);
    rig_deliver(&rig, objects);
    json_decref(objects);
    v = verbs_new(
        &(struct verbs_config){.driver = rig.driver, .answer = 1, .counters = counters});
}

static void end(void)
{
    verbs_free(v);
    rig_stop(&rig);
}

/* 'p': the node passes. 'f' or 'u', and the reason: it is in FailedNodes, or in
 * FailedAndUnresolvableNodes. */
static char *verdict(json_t *reply, const char *name)
{
    size_t i;
    json_t *passed;
    unsigned times = 0;
    json_array_foreach(json_object_get(reply, "NodeNames"), i, passed) times +=
        !strcmp(json_string_value(passed), name);
    const char *failed =
        json_string_value(json_object_get(json_object_get(reply, "FailedNodes"), name));
    const char *unresolvable = json_string_value(
        json_object_get(json_object_get(reply, "FailedAndUnresolvableNodes"), name));
    ck_assert_uint_eq(times + (failed != NULL) + (unresolvable != NULL), 1);
    return xasprintf("%c %s",
                     times    ? 'p'
                     : failed ? 'f'
                              : 'u',
                     failed         ? failed
                     : unresolvable ? unresolvable
                                    : "");
}

/* A pending pod of the gang; "": of none. */
static json_t *gang_pod(const char *uid, const char *gang, int mib)
{
    cleanup_free char *limit = xasprintf("%d", mib);
    return json_pack("{s:s,s:{s:s,s:s,s:s,s:{s:s}},s:{s:[{s:{s:{s:s}}}]}}", "kind", "Pod",
                     "metadata", "name", uid, "namespace", "default", "uid", uid,
                     "labels", "scheduling.x-k8s.io/pod-group", gang, "spec",
                     "containers", "resources", "limits", "aliyun.com/gpu-mem", limit);
}

/* With one card. */
static json_t *scv_of(const char *node, int mib)
{
    return json_pack("{s:s,s:s,s:{s:s},s:{s:[{s:i,s:s,s:i}]}}", "apiVersion",
                     "core.run-linux.com/v1", "kind", "Scv", "metadata", "name", node,
                     "status", "cardList", "id", 0, "health", "Healthy", "totalMemory",
                     mib);
}

static json_t *card_of(const char *node)
{
    return scv_of(node, 16276);
}

/* The reply for the pod, with the nodes n1, n2 and small. */
static json_t *filter_pod(json_t *pod)
{
    cleanup_buf struct buf reply = {0};
    json_t *body =
        json_pack("{s:o,s:[sss]}", "Pod", pod, "NodeNames", "n1", "n2", "small");
    char *text = json_dumps(body, JSON_COMPACT);
    ck_assert_uint_eq(rig_call(filter_answer, v, span_of(text), &reply), 200);
    free(text);
    json_decref(body);
    json_t *j = json_loadb(reply.p, reply.n, 0, NULL);
    ck_assert_ptr_nonnull(j);
    return j;
}

static void expect(json_t *pod, const char *n1, const char *n2, const char *small)
{
    const char *const names[] = {"n1", "n2", "small"}, *const want[] = {n1, n2, small};
    json_t *reply = filter_pod(pod);
    for (size_t i = 0; i < ARRAY_LEN(names) && n1; i++) {
        cleanup_free char *got = verdict(reply, names[i]);
        ck_assert_str_eq(got, want[i]);
    }
    if (!n1) /* one node; the others have no reason */
        ck_assert_uint_eq(json_array_size(json_object_get(reply, "NodeNames")), 1);
    json_decref(reply);
}

START_TEST(a_gang_is_answered_together)
{
    static const char gang[] =
        "f gang g: 1 of 3 members finds no place beside the others; "
        "needs 10850 MiB on one card; none starts before all can";
    static const char size[] =
        "u needs 10850 MiB on one card; the largest card has 100 MiB";
    begin(json_pack("[oooooo]", card_of("n1"), card_of("n2"), scv_of("small", 100),
                    gang_pod("p1", "g", 10850), gang_pod("p2", "g", 10850),
                    gang_pod("p3", "g", 10850)),
          false, NULL);
    expect(gang_pod("p1", "g", 10850), gang, gang, size);
    expect(gang_pod("p3", "g", 10850), gang, gang, size);
    expect(gang_pod("x", "", 10850), NULL, NULL, NULL); /* nothing was reserved */
    end();
}
END_TEST

/* The 100 MiB card takes a member for which kube-scheduler has not asked yet. */
START_TEST(the_members_of_a_gang_may_use_nodes_where_the_first_does_not_fit)
{
    begin(json_pack("[oooooo]", card_of("n1"), card_of("n2"), scv_of("small", 100),
                    gang_pod("p1", "g", 16276), gang_pod("p2", "g", 16276),
                    gang_pod("p3", "g", 100)),
          false, NULL);
    expect(gang_pod("p1", "g", 16276), NULL, NULL, NULL);
    expect(gang_pod("p2", "g", 16276), NULL, NULL, NULL);
    json_t *reply = filter_pod(gang_pod("p3", "g", 100)),
           *names = json_object_get(reply, "NodeNames");
    ck_assert_uint_eq(json_array_size(names), 1);
    ck_assert_str_eq(json_string_value(json_array_get(names, 0)), "small");
    json_decref(reply);
    end();
}
END_TEST

static unsigned status_of(enum verb_source source, json_t *pod, struct buf *reply)
{
    json_t *body = json_pack("{s:o,s:[ss]}", "Pod", pod, "NodeNames", "n1", "n2");
    char *text = json_dumps(body, JSON_COMPACT);
    unsigned status = filter_answer(&(struct verb_call){
        .verbs = v, .body = span_of(text), .source = source, .reply = reply});
    free(text);
    json_decref(body);
    buf_addc(reply, '\0');
    return status;
}

/* A node for one member would start half of the gang. */
START_TEST(without_a_leader_a_gang_gets_an_error)
{
    cleanup_buf struct buf member = {0}, forwarded = {0}, single = {0};
    begin(json_pack("[ooo]", card_of("n1"), card_of("n2"), gang_pod("p1", "g", 10850)),
          true, NULL);
    ck_assert_uint_eq(status_of(VERB_SCHEDULER, gang_pod("p1", "g", 10850), &member),
                      503);
    ck_assert_str_eq(member.p, "{\"Error\":\"gang g: only the leader reserves cards for "
                               "all members, and no leader answers\"}");
    ck_assert_uint_eq(status_of(VERB_REPLICA, gang_pod("p1", "g", 10850), &forwarded),
                      503);
    ck_assert_uint_eq(status_of(VERB_SCHEDULER, gang_pod("x", "", 10850), &single), 200);
    end();
}
END_TEST

static size_t reservations(void)
{
    size_t n = ledger_totals(core_ledger(core_driver_read(rig.driver))).reservations;
    core_driver_read_end(rig.driver);
    return n;
}

/* It may arrive after a later filter of the same pod. */
START_TEST(a_report_reserves_nothing)
{
    cleanup_buf struct buf report = {0}, filter = {0}, late = {0};
    begin(json_pack("[oo]", card_of("n1"), card_of("n2")), false, NULL);
    ck_assert_uint_eq(status_of(VERB_REPORT, gang_pod("x", "", 100), &report), 200);
    ck_assert_uint_eq(reservations(), 0);
    ck_assert_uint_eq(status_of(VERB_SCHEDULER, gang_pod("x", "", 16276), &filter), 200);
    ck_assert_uint_eq(reservations(), 1);
    ck_assert_uint_eq(status_of(VERB_REPORT, gang_pod("y", "", 16276), &late), 200);
    ck_assert_uint_eq(reservations(), 1);
    end();
}
END_TEST

/* An API server with one PodGroup, or without that API. */
struct group_api {
    const char *body;
    unsigned status, calls;
    char path[128];
    int64_t now_ms;
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
    *reply = (struct httpc_reply){.status = groups.status};
    if (groups.stops)
        core_driver_begin_stop(groups.stops);
    if (!groups.status)
        return err_set(err, ERR_TIMEOUT, "no answer");
    buf_adds(&reply->body, groups.body);
    return 0;
}

static struct gang_minimum *gangs;

/* Three members on two cards, with layout preemption. `more` is added to the objects. */
static void group_rig_start_with(const char *body, unsigned status, bool follows,
                                 int64_t answer, json_t *more)
{
    json_t *objects = json_array();
    groups = (struct group_api){.body = body, .status = status, .now_ms = 1};
    json_array_append_new(objects, card_of("n1"));
    json_array_append_new(objects, card_of("n2"));
    for (int i = 1; i <= 3; i++) {
        char uid[] = {'p', (char)('0' + i), 0};
        json_array_append_new(objects, gang_pod(uid, "g", 10850));
    }
    json_array_extend(objects, more);
    rig_start_core(
        &rig, (struct core_settings){.ledger = {.unit_mib = 1}, .preempt_after_ms = 1000},
        follows);
    rig_deliver(&rig, objects);
    json_decref(objects);
    json_decref(more);
    gangs = gang_minimum_new(
        &(struct pod_group_reader){.call = groups_call, .now_ms = groups_now});
    v = verbs_new(&(struct verbs_config){
        .driver = rig.driver, .answer = answer, .gangs = gangs, .preempts = true});
}

static void group_rig_start_as(const char *body, unsigned status, bool follows)
{
    group_rig_start_with(body, status, follows, 1, json_array());
}

static void group_rig_start(const char *body, unsigned status)
{
    group_rig_start_as(body, status, false);
}

static void group_rig_stop(void)
{
    end();
    gang_minimum_free(gangs);
}

/* How many nodes the member is answered with. */
static size_t answered(const char *uid)
{
    json_t *reply = filter_pod(gang_pod(uid, "g", 10850));
    size_t n = json_array_size(json_object_get(reply, "NodeNames"));
    json_decref(reply);
    return n;
}

START_TEST(a_pod_group_says_how_many_members_need_a_place)
{
    group_rig_start("{\"spec\":{\"minMember\":2}}", 200);
    ck_assert_uint_eq(answered("p1"), 1);
    ck_assert_str_eq(groups.path,
                     "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups/g");
    ck_assert_uint_eq(reservations(), 2);
    ck_assert_uint_eq(answered("p1"), 1);
    ck_assert_uint_eq(groups.calls, 1); /* the answer is kept */
    group_rig_stop();
}
END_TEST

/* Filter found this process to be the leader before it read the PodGroup. */
START_TEST(a_gang_gets_an_error_when_the_leader_stops_during_its_filter)
{
    cleanup_buf struct buf reply = {0};
    group_rig_start("{\"spec\":{\"minMember\":2}}", 200);
    groups.stops = rig.driver;
    ck_assert_uint_eq(status_of(VERB_SCHEDULER, gang_pod("p1", "g", 10850), &reply), 503);
    ck_assert_ptr_nonnull(strstr(reply.p, "only the leader reserves cards"));
    ck_assert_uint_eq(reservations(), 0);
    group_rig_stop();
}
END_TEST

START_TEST(without_a_pod_group_all_members_need_a_place)
{
    group_rig_start("404 page not found", 404);
    ck_assert_uint_eq(answered("p1"), 0);
    ck_assert_uint_eq(answered("p2"), 0);
    ck_assert_uint_eq(groups.calls, 1);
    groups.now_ms += GANG_MINIMUM_KEEP_MS; /* the API or the object appears */
    groups.body = "{\"spec\":{\"minMember\":2}}";
    groups.status = 200;
    ck_assert_uint_eq(answered("p1"), 1);
    groups.now_ms += GANG_MINIMUM_KEEP_MS; /* the last number counts meanwhile */
    groups.status = 0;
    ck_assert_uint_eq(answered("p2"), 1);
    ck_assert_uint_eq(groups.calls, 3);
    ck_assert_uint_eq(reservations(), 2);
    group_rig_stop();
}
END_TEST

/* With a minimum of 1 the members do not wait for each other, as in a PodGroup with the
 * policy basic. */
START_TEST(members_that_do_not_wait_are_single_pods)
{
    group_rig_start("{\"spec\":{\"minMember\":1}}", 200);
    ck_assert_uint_eq(answered("p1"), 1);
    ck_assert_uint_eq(reservations(), 1);
    ck_assert_uint_eq(answered("p2"), 1);
    ck_assert_uint_eq(reservations(), 2);
    ck_assert_uint_eq(answered("p3"), 0);
    ck_assert_uint_eq(reservations(), 2);
    group_rig_stop();
}
END_TEST

START_TEST(members_that_do_not_wait_need_no_leader)
{
    group_rig_start_as("{\"spec\":{\"minMember\":1}}", 200, true);
    ck_assert_uint_eq(answered("p1"), 1);
    ck_assert_uint_eq(reservations(), 0);
    group_rig_stop();
}
END_TEST

/* A pod of lower priority than the members, on the card of the node. */
static json_t *weak_pod(const char *name, const char *node)
{
    json_t *pod = gang_pod(name, "", 10850);
    json_t *metadata = json_object_get(pod, "metadata");
    json_t *spec = json_object_get(pod, "spec");
    json_object_set_new(metadata, "annotations",
                        json_pack("{s:s,s:s,s:s}", KEY_MEM_IDX, "0", KEY_MEM_POD, "10850",
                                  KEY_MEM_DEV, "16276"));
    json_object_set_new(spec, "nodeName", json_string(node));
    json_object_set_new(spec, "priority", json_integer(-1));
    return pod;
}

/* How many pods layout preemption considers after filter has rejected p1, which is in a
 * gang of that PodGroup. */
static size_t considered(const char *body, int64_t answer, bool report)
{
    cleanup_buf struct buf reply = {0};
    group_rig_start_with(body, 200, false, answer,
                         json_pack("[oo]", weak_pod("w1", "n1"), weak_pod("w2", "n2")));
    json_t *call = json_pack("{s:o,s:[s,s]}", "Pod", gang_pod("p1", "g", 10850),
                             "NodeNames", "n1", "n2");
    char *text = json_dumps(call, JSON_COMPACT);
    unsigned status =
        filter_answer(&(struct verb_call){.verbs = v,
                                          .body = span_of(text),
                                          .source = report ? VERB_REPORT : VERB_SCHEDULER,
                                          .reply = &reply});
    ck_assert_uint_eq(status, 200);
    ck_assert_ptr_nonnull(strstr(reply.p, "\"NodeNames\":[],"));
    size_t n = core_stats(core_driver_read(rig.driver)).preemptions.waiting;
    core_driver_read_end(rig.driver);
    free(text);
    json_decref(call);
    group_rig_stop();
    return n;
}

START_TEST(evictions_are_considered_for_members_that_do_not_wait)
{
    static const char one[] = "{\"spec\":{\"minMember\":1}}",
                      three[] = "{\"spec\":{\"minMember\":3}}";
    static const int64_t answers[] = {VERBS_ALL, 1, 2};
    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        for (int report = 0; report < 2; report++) {
            ck_assert_uint_eq(considered(one, answers[i], report), 1);
            ck_assert_uint_eq(considered(three, answers[i], report), 0);
            ck_assert_uint_eq(considered("{}", answers[i], report), 0);
        }
    }
}
END_TEST

/* Its gang is of no interest then: the object of the gang is not read. */
START_TEST(nothing_is_evicted_for_a_pod_that_never_preempts)
{
    static const int64_t answers[] = {VERBS_ALL, 2};
    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        group_rig_start_with(
            "{\"spec\":{\"minMember\":1}}", 200, false, answers[i],
            json_pack("[oo]", weak_pod("w1", "n1"), weak_pod("w2", "n2")));
        json_t *pod = gang_pod("p1", "g", 10850);
        json_object_set_new(json_object_get(pod, "spec"), "preemptionPolicy",
                            json_string("Never"));
        json_decref(filter_pod(pod));
        ck_assert_uint_eq(groups.calls, 0);
        ck_assert_uint_eq(core_stats(core_driver_read(rig.driver)).preemptions.waiting,
                          0);
        core_driver_read_end(rig.driver);
        group_rig_stop();
    }
}
END_TEST

static struct gang_minimum *minimum_new(unsigned status)
{
    groups = (struct group_api){
        .body = "{\"spec\":{\"minMember\":2}}", .status = status, .now_ms = 1};
    return gang_minimum_new(
        &(struct pod_group_reader){.call = groups_call, .now_ms = groups_now});
}

static uint32_t minimum_of(struct gang_minimum *g, int i)
{
    char name[16];
    snprintf(name, sizeof name, "g%d", i);
    struct gang gang = {.kind = GANG_COSCHEDULING, .name = span_of(name)};
    return gang_minimum_of(g, SPAN("ns"), &gang);
}

/* Tenants name gangs. */
START_TEST(the_kept_answers_are_limited)
{
    struct gang_minimum *g = minimum_new(404);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i <= GANG_MINIMUM_KEPT; i++, groups.now_ms++) {
            ck_assert_uint_eq(minimum_of(g, i), 0);
            ck_assert_uint_eq(minimum_of(g, i), 0);
        }
    ck_assert_uint_eq(groups.calls, 2 * (GANG_MINIMUM_KEPT + 1));
    gang_minimum_free(g);
}
END_TEST

/* Each call blocks a filter, and so kube-scheduler, for up to a second. */
START_TEST(an_api_server_that_does_not_answer_is_not_asked_for_every_gang)
{
    struct gang_minimum *g = minimum_new(200);
    ck_assert_uint_eq(minimum_of(g, 0), 2);
    groups.now_ms += GANG_MINIMUM_KEEP_MS;
    groups.status = 0;
    for (int i = 1; i <= 2 * GANG_MINIMUM_KEPT; i++)
        ck_assert_uint_eq(minimum_of(g, i), 0);
    ck_assert_uint_eq(groups.calls, 2);
    ck_assert_uint_eq(minimum_of(g, 0), 2); /* as before */
    ck_assert_uint_eq(groups.calls, 2);
    groups.now_ms += GANG_MINIMUM_PAUSE_MS;
    ck_assert_uint_eq(minimum_of(g, 0), 2);
    ck_assert_uint_eq(minimum_of(g, 1), 0);
    ck_assert_uint_eq(groups.calls, 3);
    groups.now_ms += GANG_MINIMUM_PAUSE_MS;
    groups.status = 200;
    ck_assert_uint_eq(minimum_of(g, 1), 2);
    ck_assert_uint_eq(minimum_of(g, 0), 2);
    ck_assert_uint_eq(groups.calls, 5);
    gang_minimum_free(g);
}
END_TEST

/* A CRD whose conversion webhook hangs, for example. */
START_TEST(a_kind_that_is_not_answered_does_not_pause_the_others)
{
    struct gang_minimum *g = minimum_new(0);
    struct gang native = {.kind = GANG_POD_GROUP, .name = SPAN("g")};
    struct gang volcano = {.kind = GANG_VOLCANO, .name = SPAN("g")};
    ck_assert_uint_eq(minimum_of(g, 0), 0);
    groups.status = 200;
    ck_assert_uint_eq(minimum_of(g, 1), 0); /* of the same kind */
    ck_assert_uint_eq(groups.calls, 1);
    ck_assert_uint_eq(gang_minimum_of(g, SPAN("ns"), &volcano), 2);
    ck_assert_uint_eq(groups.calls, 2);
    groups.body = "{\"spec\":{\"schedulingPolicy\":{\"gang\":{\"minCount\":3}}}}";
    ck_assert_uint_eq(gang_minimum_of(g, SPAN("ns"), &native), 3);
    gang_minimum_free(g);
}
END_TEST

/* One that answers in time, but too slowly for all versions of an object together. */
static int slow_call(void *ctx, const struct kube_request *request,
                     struct httpc_reply *reply, struct err *err)
{
    groups.now_ms += request->timeout_ms;
    return groups_call(ctx, request, reply, err);
}

START_TEST(an_api_server_without_time_for_all_versions_is_not_asked_for_every_gang)
{
    struct gang native = {.kind = GANG_POD_GROUP, .name = SPAN("g")};
    groups = (struct group_api){.body = "{}", .status = 404, .now_ms = 1};
    struct gang_minimum *g = gang_minimum_new(
        &(struct pod_group_reader){.call = slow_call, .now_ms = groups_now});
    ck_assert_uint_eq(gang_minimum_of(g, SPAN("ns"), &native), 0);
    ck_assert_uint_eq(gang_minimum_of(g, SPAN("other"), &native), 0);
    ck_assert_uint_eq(groups.calls, 1);
    gang_minimum_free(g);
}
END_TEST

static json_t *template_node(const char *name, const char *cards)
{
    return json_pack("{s:{s:s,s:{s:s}}}", "metadata", "name", name, "labels",
                     "gpushare.io/cards", cards);
}

/* The reply for the pod, with these whole Node objects, which are stolen. */
static json_t *filter_full(json_t *pod, json_t *nodes)
{
    cleanup_buf struct buf reply = {0};
    json_t *body = json_pack("{s:o,s:{s:o}}", "Pod", pod, "Nodes", "items", nodes);
    char *text = json_dumps(body, JSON_COMPACT);
    ck_assert_uint_eq(rig_call(filter_answer, v, span_of(text), &reply), 200);
    free(text);
    json_decref(body);
    json_t *j = json_loadb(reply.p, reply.n, 0, NULL);
    ck_assert_ptr_nonnull(j);
    return j;
}

static json_t *filter_template(json_t *pod, const char *cards)
{
    return filter_full(pod, json_pack("[oo]", template_node("new-1", cards),
                                      template_node("new-2", cards)));
}

/* As kube-scheduler asks when one of its Nodes has just joined. */
static json_t *filter_mixed(json_t *pod, const char *cards)
{
    return filter_full(pod, json_pack("[{s:{s:s}}o]", "metadata", "name", "n1",
                                      template_node("new", cards)));
}

static const char *failed(json_t *reply, const char *node)
{
    return json_string_value(
        json_object_get(json_object_get(reply, "FailedNodes"), node));
}

static size_t passing(json_t *reply)
{
    return json_array_size(json_object_get(json_object_get(reply, "Nodes"), "items"));
}

START_TEST(a_template_node_leaves_nothing_behind)
{
    cleanup_buf struct buf before = {0}, after = {0};
    json_t *reply;
    struct counters *counters = counters_new();
    begin(json_pack("[o]", card_of("n1")), false, counters);
    counters_write(counters, &before);
    reply = filter_template(gang_pod("x", "", 100), "1x100MiB");
    ck_assert_uint_eq(passing(reply), 2); /* not the best one alone */
    json_decref(reply);
    reply = filter_template(gang_pod("x", "", 20000), "1x100MiB");
    ck_assert_uint_eq(passing(reply), 0);
    json_decref(reply);
    ck_assert_uint_eq(reservations(), 0);
    counters_write(counters, &after);
    ck_assert_str_eq(after.p, before.p);
    end();
    counters_free(counters);
}
END_TEST

/* It carries the key as its whole node group does. The extender will watch it in a moment. */
START_TEST(a_node_that_is_not_watched_yet_makes_no_simulation)
{
    cleanup_buf struct buf before = {0}, after = {0};
    struct counters *counters = counters_new();
    begin(json_pack("[o]", card_of("n1")), false, counters);
    json_t *reply = filter_mixed(gang_pod("x", "", 100), "4x16384MiB");
    ck_assert_uint_eq(passing(reply), 1);
    ck_assert_uint_eq(reservations(), 1);
    json_decref(reply);
    counters_write(counters, &before);
    reply = filter_mixed(gang_pod("y", "", 16276), "4x16384MiB");
    ck_assert_uint_eq(passing(reply), 0);
    ck_assert_str_eq(failed(reply, "new"), "the GPUs of this node are not known yet");
    ck_assert_ptr_nonnull(failed(reply, "n1"));
    json_decref(reply);
    counters_write(counters, &after);
    ck_assert_str_ne(after.p, before.p);
    end();
    counters_free(counters);
}
END_TEST

/* The node of the pod's reservation, and its time limit; "": none. */
static void reserved_for(struct span uid, char node[8], int64_t *until_ms)
{
    const struct ledger_reservation *r =
        ledger_reservation_find(core_ledger(core_driver_read(rig.driver)), uid);
    snprintf(node, 8, "%s", r ? r->node->name.p : "");
    *until_ms = r ? r->until_ms : 0;
    core_driver_read_end(rig.driver);
}

static void expect_simulated(void)
{
    char before[8], after[8];
    int64_t until_ms, still_ms;
    for (int i = 1; i <= 2; i++) {
        char uid[] = {'p', (char)('0' + i), 0};
        reserved_for(span_of(uid), before, &until_ms);
        ck_assert_int_ne(before[0], 0);
        json_t *reply = filter_template(gang_pod(uid, "g", 10850), "2x16384MiB");
        ck_assert_uint_eq(passing(reply), 0);
        ck_assert_str_eq(failed(reply, "new-1"),
                         "gang g: its members need places on nodes that exist");
        json_decref(reply);
        reserved_for(span_of(uid), after, &still_ms);
        ck_assert_str_eq(after, before);
        ck_assert_int_eq(still_ms, until_ms);
    }
    ck_assert_uint_eq(reservations(), 2);
}

START_TEST(a_template_node_changes_no_reservation_of_a_gang)
{
    group_rig_start("{\"spec\":{\"minMember\":2}}", 200);
    ck_assert_uint_eq(answered("p1"), 1);
    expect_simulated();
    group_rig_stop();
}
END_TEST

START_TEST(members_that_do_not_wait_are_simulated_as_single_pods)
{
    group_rig_start("{\"spec\":{\"minMember\":1}}", 200);
    json_t *reply = filter_template(gang_pod("p1", "g", 10850), "2x16384MiB");
    ck_assert_uint_eq(passing(reply), 2);
    json_decref(reply);
    ck_assert_uint_eq(reservations(), 0);
    group_rig_stop();
}
END_TEST

static void expect_reserved(const char *on, int mib, int64_t *until_ms)
{
    char node[8];
    json_decref(filter_pod(gang_pod("x", "", mib)));
    reserved_for(SPAN("x"), node, until_ms);
    ck_assert_str_eq(node, on);
}

/* Its own reservation, which fills a card, does not make a node worse or full. */
START_TEST(a_pod_that_is_filtered_again_keeps_its_place_and_its_time_limit)
{
    int64_t first, again;
    begin(json_pack("[oo]", card_of("n1"), card_of("n2")), false, NULL);
    for (int policy = 0; policy < SCORE_POLICIES; policy++) {
        verbs_free(v);
        v = verbs_new(&(struct verbs_config){
            .driver = rig.driver, .answer = 1, .policy = (enum score_policy)policy});
        expect_reserved("n1", 10000, &first);
        int64_t now_ms = core_driver_now().mono_ms;
        while (core_driver_now().mono_ms <= now_ms + 1)
            ;
        expect_reserved("n1", 10000, &again);
        ck_assert_int_eq(again, first);
        expect_reserved("n1", 16276, &again);
        ck_assert_int_eq(again, first);
        expect_reserved("", 16277, &again); /* it fits nowhere */
    }
    end();
}
END_TEST

UNIT_MAIN("filter", a_template_node_leaves_nothing_behind,
          a_node_that_is_not_watched_yet_makes_no_simulation,
          a_template_node_changes_no_reservation_of_a_gang,
          members_that_do_not_wait_are_simulated_as_single_pods,
          an_api_server_that_does_not_answer_is_not_asked_for_every_gang,
          an_api_server_without_time_for_all_versions_is_not_asked_for_every_gang,
          members_that_do_not_wait_need_no_leader,
          a_kind_that_is_not_answered_does_not_pause_the_others,
          evictions_are_considered_for_members_that_do_not_wait,
          nothing_is_evicted_for_a_pod_that_never_preempts,
          a_pod_that_is_filtered_again_keeps_its_place_and_its_time_limit,
          a_gang_gets_an_error_when_the_leader_stops_during_its_filter,
          a_pod_group_says_how_many_members_need_a_place,
          without_a_pod_group_all_members_need_a_place,
          members_that_do_not_wait_are_single_pods, the_kept_answers_are_limited,
          without_a_leader_a_gang_gets_an_error, a_report_reserves_nothing,
          a_gang_is_answered_together,
          the_members_of_a_gang_may_use_nodes_where_the_first_does_not_fit)
