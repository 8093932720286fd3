/* SPDX-License-Identifier: Apache-2.0 */
#include "lib.h"
#include "setup/cluster.h"
#include "setup/checks.h"
#include "wire/yaml.h"

/* The way to the extender, and what the API server knows: one thing at a time. */

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
#define DEPLOYMENT(args)                                                                 \
    "{\"metadata\":{\"name\":\"gpushare-schd-extender\"},\"spec\":{\"template\":{"       \
    "\"spec\":{\"containers\":[{\"args\":[" args "]}]}}}}"
#define PLUGIN(args)                                                                     \
    "{\"metadata\":{\"name\":\"plugin\"},\"spec\":{\"template\":{\"spec\":{"             \
    "\"containers\":[{\"args\":[" args "]}]}}}}"
#define POD(image, spec, status)                                                         \
    "{\"metadata\":{\"name\":\"e-1\",\"namespace\":\"kube-system\",\"labels\":{"         \
    "\"component\":\"gpushare-schd-extender\"}},\"spec\":{" spec "\"containers\":[{"     \
    "\"image\":\"" image "\"}]},\"status\":{" status "}}"
#define OURS  "localhost/gpushare-extender:0.1.0"
#define READY "\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]"
#define NODE(name, labels, memory)                                                       \
    "{\"metadata\":{\"name\":\"" name "\",\"labels\":{" labels "}},\"status\":{"         \
    "\"allocatable\":{\"aliyun.com/gpu-mem\":\"" memory "\"}}}"
#define GPU       "\"gpushare\":\"true\""
#define SCV(name) "{\"metadata\":{\"name\":\"" name "\"}}"

/* A cluster on which all is well, before the extender was asked. */
static struct facts cluster(enum reach_answer answer, const char *url)
{
    struct facts f = {.n_files = 1, .files = xcalloc(1, sizeof *f.files)};
    struct err err = {0};
    f.files[0] =
        lib_file("/m/kube-scheduler.yaml", lib_manifest("1.35", "config", CONFIG_AT));
    f.config = lib_file(CONFIG_AT, lib_read(CONFIG));
    ck_assert_done(extender_entry_read_url(url, &f.reach.url, &err), err);
    f.reach.answer = answer;
    f.loopback.route_localnet = 1;
    f.lists[FACTS_VERSION].json = json_pack("{s:s}", "gitVersion", "v1.35.4");
    f.lists[FACTS_CRD].json = json_object();
    f.denied = json_array();
    set_list(&f, FACTS_SYSTEM_PODS, "");
    set_list(&f, FACTS_SERVICES, SERVICE);
    set_list(&f, FACTS_SLICES, SLICE);
    set_list(&f, FACTS_DEPLOYMENTS, DEPLOYMENT(""));
    set_list(&f, FACTS_EXTENDERS, POD(OURS, "\"nodeName\":\"cp\",", READY));
    set_list(&f, FACTS_SCVS, SCV("g1"));
    set_list(&f, FACTS_NODES, NODE("g1", GPU, "30") "," NODE("cp", "", "0"));
    set_list(&f, FACTS_PLUGINS, PLUGIN("\"--memory-unit=GiB\""));
    set_list(&f, FACTS_PENDING, "");
    set_list(&f, FACTS_EVENTS, "");
    return f;
}

static void add_proxy(struct facts *f, const char *config)
{
    f->lists[FACTS_PROXY].json = json_pack("{s:{s:s}}", "data", "config.conf", config);
}

/* Just these, ending with NULL; frees the facts. */
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

START_TEST(all_is_well)
{
    struct facts f = cluster(REACH_OK, LOOPBACK);
    expect(&f, IDS(NULL));
    ck_assert_int_eq(findings_exit_status(&found), 0);
    /* Who is reached in another way needs no Service. */
    f = cluster(REACH_OK, "http://10.0.0.1:12345/gpushare-scheduler");
    set_list(&f, FACTS_SERVICES, "");
    set_list(&f, FACTS_DEPLOYMENTS, "");
    set_list(&f, FACTS_EXTENDERS, "");
    expect(&f, IDS(NULL));
}
END_TEST

START_TEST(the_loopback_is_refused)
{
    static const struct {
        const char *url, *proxy;
        int route_localnet;
        const char *id;
    } cases[] = {
        {LOOPBACK, "mode: nftables\n", 1, "loopback-mode"},
        {LOOPBACK, "mode: ipvs\n", 1, "loopback-mode"},
        {"http://[::1]:32766/gpushare-scheduler", "mode: iptables\n", 1, "loopback-ipv6"},
        {LOOPBACK, "mode: ''\niptables: {localhostNodePorts: false}\n", 1,
         "loopback-switch"},
        {LOOPBACK, "mode: ''\nnodePortAddresses: [10.0.0.0/8]\n", 1,
         "loopback-addresses"},
        {LOOPBACK, "mode: iptables\n", 0, "loopback-route-localnet"},
        {LOOPBACK, "mode: iptables\n", 1, NULL},
        {LOOPBACK, "mode: [", 1, NULL},
        /* Of another address none of that says anything. */
        {"http://10.0.0.1:32766/gpushare-scheduler", "mode: nftables\n", 0, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct facts f = cluster(REACH_REFUSED, cases[i].url);
        add_proxy(&f, cases[i].proxy);
        f.loopback.route_localnet = cases[i].route_localnet;
        expect(&f, IDS("refused", cases[i].id));
        ck_assert(i || strstr(found.items[1].what, "nftables"));
    }
    /* The Service has another port: then it is not the loopback's fault. */
    struct facts f =
        cluster(REACH_REFUSED, "http://127.0.0.1:3276/gpushare-scheduler");
    add_proxy(&f, "mode: nftables\n");
    expect(&f, IDS("refused", "other-node-port"));
    /* It answers on the node's own address. */
    f = cluster(REACH_TIMEOUT, LOOPBACK);
    f.elsewhere = xstrdup("10.0.0.5:32766");
    expect(&f, IDS("silent"));
    ck_assert(strstr(found.items[0].command, "--address 10.0.0.5:32766") != NULL);
}
END_TEST

START_TEST(something_else_answers)
{
    static const struct {
        enum reach_answer answer;
        const char *id;
    } cases[] = {{REACH_NO_ROUTE, "no-route"},      {REACH_PROTOCOL_ERROR, "no-http"},
                 {REACH_OTHER_PROGRAM, "wrong-program"}, {REACH_GO_EXTENDER, "go-extender"},
                 {REACH_WRONG_PATH, "wrong-path"},     {REACH_NOT_READY, "not-ready"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct facts f = cluster(cases[i].answer, LOOPBACK);
        err_set(&f.reach.words, ERR_UNAVAILABLE, "HTTP status 503: nodes are not listed");
        expect(&f, IDS(cases[i].id));
        ck_assert(strstr(found.items[0].what, "nodes are not listed") != NULL);
        ck_assert_ptr_nonnull(found.items[0].command);
    }
}
END_TEST

START_TEST(the_extenders_objects)
{
    static const struct {
        enum facts_kind kind;
        const char *items, *id;
    } cases[] = {
        {FACTS_SERVICES, "", "no-service"},
        {FACTS_SERVICES, "{\"metadata\":{\"name\":\"s\"},\"spec\":{\"ports\":[{}]}}",
         "no-node-port"},
        {FACTS_SLICES, "", "no-endpoints"},
        {FACTS_SLICES,
         "{\"metadata\":{\"labels\":{\"kubernetes.io/service-name\":"
         "\"gpushare-schd-extender\"}},\"endpoints\":[{\"conditions\":{\"ready\":false}}]"
         "}",
         "no-endpoints"},
        {FACTS_DEPLOYMENTS, "", "no-deployment"},
        {FACTS_EXTENDERS, "", "no-pod"},
        {FACTS_EXTENDERS,
         POD(OURS, "",
             "\"phase\":\"Pending\",\"conditions\":[{\"type\":\"PodScheduled\","
             "\"status\":\"False\",\"message\":\"0/1 nodes are available\"}]"),
         "extender-pending"},
        {FACTS_EXTENDERS,
         POD(OURS, "\"nodeName\":\"cp\",",
             "\"phase\":\"Pending\",\"containerStatuses\":[{\"state\":{\"waiting\":{"
             "\"reason\":\"ImagePullBackOff\",\"message\":\"Back-off\"}}}]"),
         "extender-waiting"},
        {FACTS_EXTENDERS, POD(OURS, "\"nodeName\":\"cp\",", "\"phase\":\"Running\""),
         "extender-not-ready"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct facts f = cluster(REACH_TIMEOUT, LOOPBACK);
        set_list(&f, cases[i].kind, cases[i].items);
        bool port =
            !strcmp(cases[i].id, "no-node-port"); /* and so no slice of its name */
        if (port)
            set_list(&f, FACTS_SLICES, "");
        expect(&f, IDS("silent", cases[i].id, port ? "no-endpoints" : NULL));
    }
}
END_TEST

/* The chart makes a second one for the API server, whose name is before the other's. */
START_TEST(a_service_for_the_api_server_is_beside_it)
{
    struct facts f = cluster(REACH_TIMEOUT, LOOPBACK);
    set_list(&f, FACTS_SERVICES,
             "{\"metadata\":{\"name\":\"gpushare-observe\"},\"spec\":{\"ports\":"
             "[{\"port\":443}]}}," SERVICE);
    expect(&f, IDS("silent"));
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
        struct facts f = cluster(REACH_OK, LOOPBACK);
        set_list(&f, FACTS_SYSTEM_PODS, pod);
        expect(&f, IDS("second-extender"));
    }
    struct facts f =
        cluster(REACH_OK, LOOPBACK); /* the same name and labels */
    set_list(&f, FACTS_EXTENDERS, POD("a/k8s-gpushare-schd-extender:1.11", "", READY));
    expect(&f, IDS("second-extender"));
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
                 /* of a Deployment, beside the static pods */
                 {"kube-scheduler-gpu-7d4b9-x", "--config=/other", NULL}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_free char *pod =
            xasprintf("{\"metadata\":{\"name\":\"%s\"},\"spec\":{\"nodeName\":\"cp2\","
                      "\"containers\":[{\"command\":[\"kube-scheduler\",\"%s\"]}]}}",
                      cases[i].name, cases[i].option);
        struct facts f = cluster(REACH_OK, LOOPBACK);
        set_list(&f, FACTS_SYSTEM_PODS, pod);
        expect(&f, IDS(cases[i].id));
    }
}
END_TEST

/* Of the others only the options are known. */
START_TEST(there_are_other_control_planes)
{
    static const char mirror[] =
        "{\"metadata\":{\"name\":\"kube-scheduler-%s\"},\"spec\":{\"nodeName\":\"%s\","
        "\"containers\":[{\"command\":[\"kube-scheduler\",\"--config=" CONFIG_AT
        "\"]}]}}";
    cleanup_free char *one = xasprintf(mirror, "cp1", "cp1"),
                      *two = xasprintf(mirror, "cp2", "cp2"),
                      *both = xasprintf("%s,%s", one, two);
    struct facts f = cluster(REACH_OK, LOOPBACK);
    set_list(&f, FACTS_SYSTEM_PODS, one);
    expect(&f, IDS(NULL));
    ck_assert(!findings_has(&found, "control-planes"));
    f = cluster(REACH_OK, LOOPBACK);
    set_list(&f, FACTS_SYSTEM_PODS, both);
    expect(&f, IDS(NULL));
    ck_assert(findings_has(&found, "control-planes"));
    ck_assert_int_eq(findings_exit_status(&found), 0);
}
END_TEST

START_TEST(nodes_and_cards)
{
    struct facts f = cluster(REACH_OK, LOOPBACK);
    json_decref(f.lists[FACTS_CRD].json);
    f.lists[FACTS_CRD].json = NULL;
    err_set(&f.lists[FACTS_CRD].why, ERR_NOT_FOUND, "no");
    json_decref(f.lists[FACTS_SCVS].json);
    f.lists[FACTS_SCVS].json = NULL;
    expect(&f, IDS("no-crd"));
    f = cluster(REACH_OK, LOOPBACK);
    set_list(&f, FACTS_SCVS, SCV("another"));
    expect(&f, IDS("no-scv"));
    f = cluster(REACH_OK, LOOPBACK);
    set_list(&f, FACTS_NODES, NODE("g1", GPU, "0"));
    expect(&f, IDS("no-plugin"));
    f = cluster(REACH_OK, LOOPBACK);
    set_list(&f, FACTS_NODES, NODE("cp", "", "0"));
    expect(&f, IDS("no-gpu-node"));
    f = cluster(REACH_OK, LOOPBACK);
    set_list(&f, FACTS_NODES,
             NODE("a", GPU, "0") "," NODE("b", GPU, "0") "," NODE("c", GPU, "0") "," NODE(
                 "d", GPU, "0") "," NODE("e", GPU, "0"));
    set_list(&f, FACTS_SCVS,
             SCV("a") "," SCV("b") "," SCV("c") "," SCV("d") "," SCV("e"));
    expect(&f, IDS("no-plugin"));
    ck_assert(strstr(found.items[1].what, ": a, b, c and 2 more") != NULL);
    f = cluster(REACH_OK, LOOPBACK);
    set_list(&f, FACTS_PLUGINS, PLUGIN("\"--memory-unit=MiB\""));
    expect(&f, IDS("units"));
    f = cluster(REACH_OK, LOOPBACK);
    set_list(&f, FACTS_DEPLOYMENTS, DEPLOYMENT("\"--memory-unit=MiB\""));
    set_list(&f, FACTS_PLUGINS, PLUGIN("\"--memory-unit=MiB\""));
    expect(&f, IDS(NULL));
}
END_TEST

#define WAITING(name, key) WAITING_IN("d", name, key)
#define WAITING_IN(ns, name, key)                                                        \
    "{\"metadata\":{\"namespace\":\"" ns "\",\"name\":\"" name                           \
    "\"},\"spec\":{\"containers\":[{\"resources\":{"                                     \
    "\"limits\":{\"" key "\":\"1\"}}}]}}"
#define EVENT(pod, at, words)                                                            \
    "{\"involvedObject\":{\"namespace\":\"d\",\"name\":\"" pod "\"},\"lastTimestamp\":"  \
    "\"" at "\",\"message\":\"" words "\"}"

START_TEST(pods_that_wait)
{
    static const char events[] = EVENT("w", "2026-01-01T00:00:02Z", "Post \\\"http://127.0.0.1:32766/\\\": new") "," EVENT(
        "w", "2026-01-01T00:00:01Z",
        "Post \\\"http://127.0.0.1:32766/\\\": old") "," EVENT("w",
                                                               "2026-01-01T00:00:03Z",
                                                               "0/3 nodes are "
                                                               "available") "," EVENT("go"
                                                                                      "n"
                                                                                      "e",
                                                                                      "20"
                                                                                      "26"
                                                                                      "-0"
                                                                                      "1-"
                                                                                      "01"
                                                                                      "T0"
                                                                                      "0:"
                                                                                      "00"
                                                                                      ":0"
                                                                                      "4"
                                                                                      "Z",
                                                                                      "ex"
                                                                                      "te"
                                                                                      "nd"
                                                                                      "er"
                                                                                      " f"
                                                                                      "ai"
                                                                                      "le"
                                                                                      "d") "," EVENT("cpu",
                                                                                                     "2026-01-01T00:00:05Z",
                                                                                                     "extender failed");
    static const char pods[] =
        WAITING("w", "aliyun.com/gpu-mem") "," WAITING("cpu", "cpu");
    struct facts f = cluster(REACH_TIMEOUT, LOOPBACK);
    set_list(&f, FACTS_PENDING, pods);
    set_list(&f, FACTS_EVENTS, events);
    expect(&f, IDS("silent", "pod-error"));
    ck_assert(strstr(found.items[found.n - 1].what, ": new") != NULL);
    f = cluster(REACH_OK, LOOPBACK); /* it is over */
    set_list(&f, FACTS_PENDING, pods);
    set_list(&f, FACTS_EVENTS, events);
    expect(&f, IDS(NULL));
    ck_assert(findings_has(&found, "pod-error"));
    f = cluster(REACH_OK, LOOPBACK);
    set_list(&f, FACTS_PENDING, pods);
    expect(&f, IDS(NULL));
    ck_assert(findings_has(&found, "pods-wait"));
    ck_assert(strstr(found.items[found.n - 1].what, "about room") != NULL);
    f = cluster(REACH_TIMEOUT, LOOPBACK); /* that it is about room is not known */
    set_list(&f, FACTS_PENDING, pods);
    expect(&f, IDS("silent"));
    ck_assert(strstr(found.items[found.n - 1].what, "1 pod waits for GPU memory"));
    ck_assert(strstr(found.items[found.n - 1].what, "about room") == NULL);
}
END_TEST

/* A pod of that name is in two namespaces, and the one with the event wants no GPU. */
START_TEST(an_event_is_of_a_pod_in_its_namespace)
{
    struct facts f = cluster(REACH_TIMEOUT, LOOPBACK);
    set_list(&f, FACTS_PENDING,
             WAITING_IN("c", "w", "aliyun.com/gpu-mem") "," WAITING("w", "cpu"));
    set_list(&f, FACTS_EVENTS, EVENT("w", "2026-01-01T00:00:01Z", "extender failed"));
    expect(&f, IDS("silent"));
    ck_assert(!findings_has(&found, "pod-error"));
}
END_TEST

/* What users write into events goes to a terminal of root's. */
START_TEST(no_control_character_gets_through)
{
    static const char words[] =
        "extender \\u001b[2J\\u009b2J\\u0085\\u007f\\u00a0\\u00e9";
    cleanup_buf struct buf text = {0};
    struct facts f = cluster(REACH_TIMEOUT, LOOPBACK);
    set_list(&f, FACTS_PENDING, WAITING("w", "aliyun.com/gpu-mem"));
    cleanup_free char *event = xasprintf(EVENT("w", "2026-01-01T00:00:01Z", "%s"), words);
    set_list(&f, FACTS_EVENTS, event);
    expect(&f, IDS("silent", "pod-error"));
    findings_write(&found, &text);
    ck_assert_msg(strstr(text.p, ": extender ?[2J?2J??\xc2\xa0\xc3\xa9\n"), "%s", text.p);
}
END_TEST

START_TEST(what_was_not_told_is_unknown)
{
    struct facts f = cluster(REACH_TIMEOUT, LOOPBACK);
    json_array_append_new(f.denied, json_string("create pods/binding"));
    expect(&f, IDS("silent", "right-missing"));
    f = cluster(REACH_OK, LOOPBACK);
    json_decref(f.lists[FACTS_NODES].json);
    f.lists[FACTS_NODES].json = NULL;
    err_set(&f.lists[FACTS_NODES].why, ERR_FORBIDDEN, "nodes: forbidden");
    expect(&f, IDS(NULL));
    ck_assert_int_eq(findings_exit_status(&found), 2);
    f = cluster(REACH_NOT_TRIED, LOOPBACK);
    err_set(&f.cluster_why, ERR_UNAVAILABLE, "no API server");
    expect(&f, IDS(NULL));
    ck_assert_uint_eq(findings_count(&found, FINDING_UNKNOWN), 2);
}
END_TEST

/* -- the rights are those of manifests/rbac.yaml ---------------------------------------
 */

static bool has_word(const json_t *list, const char *word)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!strcmp(json_string_value(json_array_get(list, i)), word))
            return true;
    return false;
}

static size_t count_of(const json_t *role, json_t *left)
{
    const json_t *rules = jsonpath_at(role, "rules");
    const char *ns = jsonpath_str(role, "metadata.namespace");
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(rules); i++) {
        const json_t *rule = json_array_get(rules, i);
        n += json_array_size(jsonpath_at(rule, "verbs")) *
             json_array_size(jsonpath_at(rule, "resources"));
        for (size_t k = 0; cluster_rights[k].verb; k++) {
            const struct cluster_right *r = &cluster_rights[k];
            cleanup_free char *resource =
                xasprintf("%s%s%s", r->resource, r->subresource ? "/" : "",
                          r->subresource ? r->subresource : "");
            const json_t *names = jsonpath_at(rule, "resourceNames");
            if (!strcmp(ns, r->ns ? r->ns : "") &&
                has_word(jsonpath_at(rule, "apiGroups"), r->group) &&
                has_word(jsonpath_at(rule, "resources"), resource) &&
                has_word(jsonpath_at(rule, "verbs"), r->verb) &&
                (json_array_size(names) ? r->name && has_word(names, r->name) : !r->name))
                json_array_set_new(left, k, json_null());
        }
    }
    return n;
}

START_TEST(the_rights_are_those_of_the_manifest)
{
    struct err err = {0};
    cleanup_yaml struct yaml *y = yaml_load("manifests/rbac.yaml", &err);
    ck_assert_msg(y != NULL, "%s", err.msg);
    json_t *left = json_array();
    size_t n = 0, rights = 0;
    for (; cluster_rights[rights].verb; rights++)
        json_array_append_new(left, json_true());
    for (size_t i = 0; i < yaml_count(y); i++) {
        cleanup_buf struct buf text = {0};
        yaml_json(yaml_document(y, i), &text);
        json_t *role = json_loads(text.p, 0, NULL);
        n += count_of(role, left);
        json_decref(role);
    }
    for (size_t i = 0; i < rights; i++)
        ck_assert_msg(json_is_null(json_array_get(left, i)), "%s %s is not granted",
                      cluster_rights[i].verb, cluster_rights[i].resource);
    ck_assert_uint_eq(n, rights);
    json_decref(left);
}
END_TEST

static size_t rights_needed(const char *deployment)
{
    struct facts f = cluster(REACH_OK, LOOPBACK);
    size_t n = 0;
    set_list(&f, FACTS_DEPLOYMENTS, deployment);
    for (size_t i = 0; cluster_rights[i].verb; i++)
        n += cluster_right_is_needed(&f, &cluster_rights[i]);
    facts_fini(&f);
    return n;
}

START_TEST(no_right_is_missed_that_is_not_used)
{
    size_t all = rights_needed("");
    ck_assert_uint_eq(rights_needed(DEPLOYMENT("\"--events=on\",1")), all);
    ck_assert_uint_eq(rights_needed(DEPLOYMENT("\"--events=off\"")), all - 1);
}
END_TEST

UNIT_MAIN("setup/cluster", all_is_well, the_loopback_is_refused, something_else_answers,
          the_extenders_objects, a_service_for_the_api_server_is_beside_it,
          another_extender_runs, control_planes_differ, there_are_other_control_planes,
          nodes_and_cards, pods_that_wait, an_event_is_of_a_pod_in_its_namespace,
          no_control_character_gets_through, what_was_not_told_is_unknown,
          the_rights_are_those_of_the_manifest, no_right_is_missed_that_is_not_used)
