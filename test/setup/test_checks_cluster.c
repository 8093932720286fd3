/* SPDX-License-Identifier: Apache-2.0 */
#include "lib.h"
#include "setup/checks.h"

/* The extender's answer and the API server's objects: one problem at a time. */

static struct findings found;

static void set_list(struct facts *f, enum facts_kind kind, const char *items)
{
    json_error_t bad;
    cleanup_free char *text = xasprintf("{\"items\":[%s]}", items);
    json_decref(f->lists[kind].json);
    f->lists[kind].json = json_loads(text, 0, &bad);
    ck_assert_msg(f->lists[kind].json != NULL, "%s: %s", bad.text, text);
}

#define SERVICE                                                                          \
    "{\"metadata\":{\"name\":\"gpushare-schd-extender\"},\"spec\":{\"ports\":"           \
    "[{\"port\":12345,\"nodePort\":32766}]}}"
#define SLICE                                                                            \
    "{\"metadata\":{\"labels\":{\"kubernetes.io/service-name\":"                         \
    "\"gpushare-schd-extender\"}},\"endpoints\":[{\"conditions\":{\"ready\":true}}]}"
#define DEPLOYMENT "{\"metadata\":{\"name\":\"gpushare-schd-extender\"}}"
#define NODE(name, labels, memory)                                                       \
    "{\"metadata\":{\"name\":\"" name "\",\"labels\":{" labels "}},\"status\":{"         \
    "\"allocatable\":{\"aliyun.com/gpu-mem\":\"" memory "\"}}}"
#define GPU     "\"gpushare\":\"true\""
#define FEATURE "\"nvidia.com/gpu.present\":\"true\""

#define RULES(name) "{\"metadata\":{\"name\":\"" name "\"}}"
#define RULES_BINDING(name, action)                                                      \
    "{\"spec\":{\"policyName\":\"" name "\",\"validationActions\":[\"" action "\"]}}"
#define ALL_POLICIES                                                                     \
    RULES("gpushare-promises")                                                           \
    "," RULES("gpushare-bindings") "," RULES("gpushare-extender")
#define ALL_BINDINGS                                                                     \
    RULES_BINDING("gpushare-promises", "Deny")                                           \
    "," RULES_BINDING("gpushare-bindings",                                               \
                      "Deny") "," RULES_BINDING("gpushare-extender", "Deny")

/* A cluster without problems, except for the extender's answer. */
static struct facts cluster(enum facts_answer answer, const char *url)
{
    struct facts f = {.n_files = 1, .files = xcalloc(1, sizeof *f.files)};
    struct err err = {0};
    f.files[0] =
        lib_file("/m/kube-scheduler.yaml", lib_manifest("1.35", "config", CONFIG_AT));
    f.config = lib_file(CONFIG_AT, lib_read(CONFIG));
    ck_assert_done(extender_entry_read_url(url, &f.reach.url, &err), err);
    f.reach.answer = answer;
    f.lists[FACTS_VERSION].json = json_pack("{s:s}", "gitVersion", "v1.35.4");
    set_list(&f, FACTS_SYSTEM_PODS, "");
    set_list(&f, FACTS_SERVICES, SERVICE);
    set_list(&f, FACTS_SLICES, SLICE);
    set_list(&f, FACTS_DEPLOYMENTS, DEPLOYMENT);
    set_list(&f, FACTS_NODES, NODE("g1", GPU, "30") "," NODE("cp", "", "0"));
    set_list(&f, FACTS_PENDING, "");
    set_list(&f, FACTS_EVENTS, "");
    set_list(&f, FACTS_POLICIES, ALL_POLICIES);
    set_list(&f, FACTS_POLICY_BINDINGS, ALL_BINDINGS);
    return f;
}

static void add_proxy(struct facts *f, const char *config)
{
    f->lists[FACTS_PROXY].json = json_pack("{s:{s:s}}", "data", "config.conf", config);
}

/* Exactly these problems, up to NULL. Releases the facts. */
static void expect(struct facts *f, const char *const *ids)
{
    cleanup_buf struct buf text = {0};
    size_t n = 0;
    findings_fini(&found);
    checks_reach(f, &found);
    checks_cluster(f, &found);
    findings_write(&found, &text);
    for (; ids[n]; n++)
        ck_assert_msg(findings_has(&found, ids[n]), "no %s in: %s", ids[n], text.p);
    ck_assert_msg(findings_count(&found, FINDING_PROBLEM) == n, "not %zu: %s", n, text.p);
    facts_fini(f);
}
#define IDS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define LOOPBACK "http://127.0.0.1:32766/gpushare-scheduler"

START_TEST(a_correct_cluster_has_no_problems)
{
    struct facts f = cluster(FACTS_REACH_OK, LOOPBACK);
    expect(&f, IDS(NULL));
    ck_assert_int_eq(findings_exit_status(&found), 0);
    /* An extender outside the cluster needs no Service. */
    f = cluster(FACTS_REACH_OK, "http://10.0.0.1:12345/gpushare-scheduler");
    set_list(&f, FACTS_SERVICES, "");
    set_list(&f, FACTS_DEPLOYMENTS, "");
    expect(&f, IDS(NULL));
}
END_TEST

START_TEST(the_loopback_refuses_connections)
{
    static const struct {
        const char *url, *proxy, *id;
    } cases[] = {
        {LOOPBACK, "mode: nftables\n", "loopback"},
        {LOOPBACK, "mode: ipvs\n", "loopback"},
        {"http://[::1]:32766/gpushare-scheduler", "mode: iptables\n", "loopback"},
        {LOOPBACK, "mode: ''\niptables: {localhostNodePorts: false}\n", "loopback"},
        {LOOPBACK, "mode: ''\nnodePortAddresses: [10.0.0.0/8]\n", "loopback"},
        {LOOPBACK, "mode: iptables\n", NULL},
        {LOOPBACK, "mode: [", NULL},
        /* kube-proxy's mode does not matter for other addresses. */
        {"http://10.0.0.1:32766/gpushare-scheduler", "mode: nftables\n", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct facts f = cluster(FACTS_REACH_REFUSED, cases[i].url);
        add_proxy(&f, cases[i].proxy);
        expect(&f, IDS("refused", cases[i].id));
        ck_assert(i || strstr(found.items[1].what, "nftables"));
    }
    /* The Service has another port: kube-proxy's mode is not the reason. */
    struct facts f =
        cluster(FACTS_REACH_REFUSED, "http://127.0.0.1:3276/gpushare-scheduler");
    add_proxy(&f, "mode: nftables\n");
    expect(&f, IDS("refused", "node-port"));
    /* The extender answers at the node's own address. */
    f = cluster(FACTS_REACH_TIMEOUT, LOOPBACK);
    f.reachable_at = xstrdup("10.0.0.5:32766");
    expect(&f, IDS("timeout"));
    ck_assert(strstr(found.items[0].command, "--address 10.0.0.5:32766") != NULL);
}
END_TEST

START_TEST(an_unexpected_answer)
{
    static const struct {
        enum facts_answer answer;
        const char *id;
    } cases[] = {{FACTS_REACH_NO_ROUTE, "no-route"},
                 {FACTS_REACH_PROTOCOL_ERROR, "protocol-error"},
                 {FACTS_REACH_OTHER_PROGRAM, "wrong-program"},
                 {FACTS_REACH_GO_EXTENDER, "go-extender"},
                 {FACTS_REACH_WRONG_PATH, "wrong-path"},
                 {FACTS_REACH_NOT_READY, "not-ready"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct facts f = cluster(cases[i].answer, LOOPBACK);
        err_set(&f.reach.detail, ERR_UNAVAILABLE,
                "HTTP status 503: nodes are not listed");
        expect(&f, IDS(cases[i].id));
        ck_assert(strstr(found.items[0].what, "nodes are not listed") != NULL);
        ck_assert_ptr_nonnull(found.items[0].command);
    }
}
END_TEST

START_TEST(the_extenders_objects_are_missing)
{
    static const struct {
        enum facts_kind kind;
        const char *items, *id;
    } cases[] = {
        {FACTS_SERVICES, "", "no-service"},
        {FACTS_SERVICES, "{\"metadata\":{\"name\":\"s\"},\"spec\":{\"ports\":[{}]}}",
         "node-port"},
        {FACTS_SLICES, "", "no-endpoints"},
        {FACTS_SLICES,
         "{\"metadata\":{\"labels\":{\"kubernetes.io/service-name\":"
         "\"gpushare-schd-extender\"}},\"endpoints\":[{\"conditions\":{\"ready\":false}}]"
         "}",
         "no-endpoints"},
        {FACTS_DEPLOYMENTS, "", "no-deployment"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct facts f = cluster(FACTS_REACH_TIMEOUT, LOOPBACK);
        set_list(&f, cases[i].kind, cases[i].items);
        bool port = !strcmp(cases[i].id, "node-port"); /* its Service has no slice */
        expect(&f, IDS("timeout", cases[i].id, port ? "no-endpoints" : NULL));
    }
}
END_TEST

/* The chart's second Service, for the API server, sorts before the other. */
START_TEST(a_second_service_without_node_port)
{
    struct facts f = cluster(FACTS_REACH_TIMEOUT, LOOPBACK);
    set_list(&f, FACTS_SERVICES,
             "{\"metadata\":{\"name\":\"gpushare-observe\"},\"spec\":{\"ports\":"
             "[{\"port\":443}]}}," SERVICE);
    expect(&f, IDS("timeout"));
}
END_TEST

START_TEST(another_extender_runs)
{
    static const char *const images[] = {"x.io/acs/k8s-gpushare-schd-extender:1.11",
                                         "y/gpushare-scheduler-extender@sha256:0"};
    for (size_t i = 0; i < ARRAY_LEN(images); i++) {
        cleanup_free char *pod =
            xasprintf("{\"metadata\":{\"name\":\"old\",\"namespace\":\"kube-system\"},"
                      "\"spec\":{\"containers\":[{\"image\":\"%s\"}]}}",
                      images[i]);
        struct facts f = cluster(FACTS_REACH_OK, LOOPBACK);
        set_list(&f, FACTS_SYSTEM_PODS, pod);
        expect(&f, IDS("second-extender"));
    }
}
END_TEST

START_TEST(control_planes_differ)
{
    static const struct {
        const char *name, *option, *id;
    } cases[] = {{"kube-scheduler-cp2", "--v=2", "control-planes-differ"},
                 {"kube-scheduler-cp2", "--config=/other", "control-planes-differ"},
                 {"kube-scheduler-cp2", "--config=" CONFIG_AT, NULL},
                 {"yoda-scheduler-cp2", "--config=/other", NULL},
                 /* a Deployment's pod beside the static pods */
                 {"kube-scheduler-gpu-7d4b9-x", "--config=/other", NULL}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_free char *pod =
            xasprintf("{\"metadata\":{\"name\":\"%s\"},\"spec\":{\"nodeName\":\"cp2\","
                      "\"containers\":[{\"command\":[\"kube-scheduler\",\"%s\"]}]}}",
                      cases[i].name, cases[i].option);
        struct facts f = cluster(FACTS_REACH_OK, LOOPBACK);
        set_list(&f, FACTS_SYSTEM_PODS, pod);
        expect(&f, IDS(cases[i].id));
    }
}
END_TEST

START_TEST(nodes)
{
    struct facts f;
    f = cluster(FACTS_REACH_OK, LOOPBACK);
    set_list(&f, FACTS_NODES, NODE("g1", GPU, "0"));
    expect(&f, IDS("no-plugin"));
    f = cluster(FACTS_REACH_OK, LOOPBACK);
    set_list(&f, FACTS_NODES, NODE("cp", "", "0"));
    expect(&f, IDS("no-gpu-node"));
    /* The label of GPU Feature Discovery; beside NVIDIA's own device plugin. */
    f = cluster(FACTS_REACH_OK, LOOPBACK);
    set_list(&f, FACTS_NODES, NODE("g1", FEATURE, "0"));
    expect(&f, IDS("no-plugin"));
    f = cluster(FACTS_REACH_OK, LOOPBACK);
    set_list(&f, FACTS_NODES,
             NODE("g1", FEATURE, "0\",\"nvidia.com/gpu\":\"4") "," NODE("g2", GPU, "8"));
    expect(&f, IDS(NULL));
    f = cluster(FACTS_REACH_OK, LOOPBACK);
    set_list(&f, FACTS_NODES,
             NODE("g1", FEATURE ",\"gpushare\":\"false\"", "0") "," NODE("g2", GPU, "8"));
    expect(&f, IDS(NULL));
    f = cluster(FACTS_REACH_OK, LOOPBACK);
    set_list(&f, FACTS_NODES,
             NODE("a", GPU, "0") "," NODE("b", GPU, "0") "," NODE("c", GPU, "0") "," NODE(
                 "d", GPU, "0") "," NODE("e", GPU, "0"));
    expect(&f, IDS("no-plugin"));
    ck_assert(strstr(found.items[1].what, ": a, b, c and 2 more") != NULL);
}
END_TEST

START_TEST(promises_are_not_protected)
{
    static const struct {
        enum facts_kind kind;
        const char *items, *what, *command;
    } cases[] = {
        {FACTS_POLICIES, RULES("gpushare-bindings") "," RULES("gpushare-extender"),
         "no ValidatingAdmissionPolicy gpushare-promises", "promise-policy.yaml"},
        {FACTS_POLICIES, RULES("gpushare-promises") "," RULES("gpushare-extender"),
         "no ValidatingAdmissionPolicy gpushare-bindings", "promise-policy.yaml"},
        {FACTS_POLICIES, RULES("gpushare-bindings") "," RULES("gpushare-promises"),
         "no ValidatingAdmissionPolicy gpushare-extender", "extender-policy.yaml"},
        {FACTS_POLICY_BINDINGS,
         RULES_BINDING("gpushare-promises", "Warn") "," RULES_BINDING(
             "gpushare-bindings", "Deny") "," RULES_BINDING("gpushare-extender", "Deny"),
         "no ValidatingAdmissionPolicyBinding denies by the policy gpushare-promises",
         "promise-policy.yaml"},
    };
    struct facts f;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        f = cluster(FACTS_REACH_OK, LOOPBACK);
        set_list(&f, cases[i].kind, cases[i].items);
        expect(&f, IDS("policy-missing"));
        ck_assert(strstr(found.items[1].what, cases[i].what) != NULL);
        ck_assert(strstr(found.items[1].command, cases[i].command) != NULL);
        ck_assert_ptr_nonnull(found.items[1].why);
    }
    f = cluster(FACTS_REACH_OK, LOOPBACK);
    set_list(&f, FACTS_POLICIES, "");
    expect(&f, IDS("policy-missing", "policy-missing", "policy-missing"));
    /* An older API server, and one that denies the request. */
    for (int i = 0; i < 2; i++) {
        f = cluster(FACTS_REACH_OK, LOOPBACK);
        json_decref(f.lists[FACTS_POLICIES].json);
        f.lists[FACTS_POLICIES].json = NULL;
        err_set(&f.lists[FACTS_POLICIES].why, i ? ERR_FORBIDDEN : ERR_NOT_FOUND, "none");
        expect(&f, IDS(NULL));
        ck_assert(findings_has(&found, i ? "api" : "no-policies"));
        ck_assert_int_eq(findings_exit_status(&found), i ? 2 : 0);
    }
}
END_TEST

#define PENDING(name, key) PENDING_IN("d", name, key)
#define PENDING_IN(ns, name, key)                                                        \
    "{\"metadata\":{\"namespace\":\"" ns "\",\"name\":\"" name                           \
    "\"},\"spec\":{\"containers\":[{\"resources\":{"                                     \
    "\"limits\":{\"" key "\":\"1\"}}}]}}"
#define EVENT(pod, at, words)                                                            \
    "{\"involvedObject\":{\"namespace\":\"d\",\"name\":\"" pod "\"},\"lastTimestamp\":"  \
    "\"" at "\",\"message\":\"" words "\"}"

START_TEST(pending_pods)
{
    /* clang-format off */
    static const char events[] =
        EVENT("w", "2026-01-01T00:00:02Z", "Post \\\"http://127.0.0.1:32766/\\\": new") ","
        EVENT("w", "2026-01-01T00:00:01Z", "Post \\\"http://127.0.0.1:32766/\\\": old") ","
        EVENT("w", "2026-01-01T00:00:03Z", "0/3 nodes are available") ","
        EVENT("gone", "2026-01-01T00:00:04Z", "extender failed") ","
        EVENT("cpu", "2026-01-01T00:00:05Z", "extender failed");
    /* clang-format on */
    static const char pods[] =
        PENDING("w", "aliyun.com/gpu-mem") "," PENDING("cpu", "cpu");
    struct facts f = cluster(FACTS_REACH_TIMEOUT, LOOPBACK);
    set_list(&f, FACTS_PENDING, pods);
    set_list(&f, FACTS_EVENTS, events);
    expect(&f, IDS("timeout", "pod-error"));
    ck_assert(strstr(found.items[found.n - 1].what, ": new") != NULL);
    f = cluster(FACTS_REACH_OK, LOOPBACK); /* the error is in the past */
    set_list(&f, FACTS_PENDING, pods);
    set_list(&f, FACTS_EVENTS, events);
    expect(&f, IDS(NULL));
    ck_assert(findings_has(&found, "pod-error"));
    f = cluster(FACTS_REACH_OK, LOOPBACK);
    set_list(&f, FACTS_PENDING, pods);
    expect(&f, IDS(NULL));
    ck_assert(findings_has(&found, "pending-pods"));
    ck_assert(strstr(found.items[found.n - 1].what, "the extender is not the reason") !=
              NULL);
    f = cluster(FACTS_REACH_TIMEOUT, LOOPBACK); /* the extender may be the reason */
    set_list(&f, FACTS_PENDING, pods);
    expect(&f, IDS("timeout"));
    ck_assert(
        strstr(found.items[found.n - 1].what, "1 pending pod that requests GPU memory"));
    ck_assert(strstr(found.items[found.n - 1].what, "the extender is not the reason") ==
              NULL);
}
END_TEST

/* Two namespaces have a pod of this name; the one with the event requests no GPU. */
START_TEST(an_event_of_a_pod_with_the_same_name)
{
    struct facts f = cluster(FACTS_REACH_TIMEOUT, LOOPBACK);
    set_list(&f, FACTS_PENDING,
             PENDING_IN("c", "w", "aliyun.com/gpu-mem") "," PENDING("w", "cpu"));
    set_list(&f, FACTS_EVENTS, EVENT("w", "2026-01-01T00:00:01Z", "extender failed"));
    expect(&f, IDS("timeout"));
    ck_assert(!findings_has(&found, "pod-error"));
}
END_TEST

/* Messages of events are printed to root's terminal. */
START_TEST(control_characters_are_replaced)
{
    static const char words[] =
        "extender \\u001b[2J\\u009b2J\\u0085\\u007f\\u00a0\\u00e9";
    cleanup_buf struct buf text = {0};
    struct facts f = cluster(FACTS_REACH_TIMEOUT, LOOPBACK);
    set_list(&f, FACTS_PENDING, PENDING("w", "aliyun.com/gpu-mem"));
    cleanup_free char *event = xasprintf(EVENT("w", "2026-01-01T00:00:01Z", "%s"), words);
    set_list(&f, FACTS_EVENTS, event);
    expect(&f, IDS("timeout", "pod-error"));
    findings_write(&found, &text);
    ck_assert_msg(strstr(text.p, ": extender ?[2J?2J??\xc2\xa0\xc3\xa9\n"), "%s", text.p);
}
END_TEST

START_TEST(unreadable_objects_are_unknown)
{
    struct facts f;
    f = cluster(FACTS_REACH_OK, LOOPBACK);
    json_decref(f.lists[FACTS_NODES].json);
    f.lists[FACTS_NODES].json = NULL;
    err_set(&f.lists[FACTS_NODES].why, ERR_FORBIDDEN, "nodes: forbidden");
    expect(&f, IDS(NULL));
    ck_assert_int_eq(findings_exit_status(&found), 2);
    f = cluster(FACTS_REACH_NOT_TRIED, LOOPBACK);
    err_set(&f.cluster_why, ERR_UNAVAILABLE, "no API server");
    expect(&f, IDS(NULL));
    ck_assert_uint_eq(findings_count(&found, FINDING_UNKNOWN), 2);
}
END_TEST

UNIT_MAIN("setup/checks_cluster", a_correct_cluster_has_no_problems,
          the_loopback_refuses_connections, an_unexpected_answer,
          the_extenders_objects_are_missing, a_second_service_without_node_port,
          another_extender_runs, control_planes_differ, nodes, promises_are_not_protected,
          pending_pods, an_event_of_a_pod_with_the_same_name,
          control_characters_are_replaced, unreadable_objects_are_unknown)
