/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/defrag.h"

#include "domain/objects.h"

/*
 * Which pods may be moved, and where to. JSON is written with ' for ".
 */

static struct arena arena;
static struct ledger *ledger;
static struct defrag_rules *rules;

static void start(void)
{
    const struct ledger_settings s = {.unit_mib = 1};
    ledger = ledger_new(&s, 1);
    rules = defrag_rules_new();
    struct pod pod = object_pod_mem(&arena, "p", 1);
    struct request r = object_request(&arena, &pod, 1);
    ledger_pod_add(ledger, &pod, &r, NULL);
}

static void stop(void)
{
    defrag_rules_free(rules);
    ledger_free(ledger);
    arena_fini(&arena);
}

static json_t *parse(const char *text)
{
    struct span s = quoted(&arena, "%s", text);
    json_error_t error;
    json_t *j = json_loadb(s.p, s.n, 0, &error);
    ck_assert_msg(j != NULL, "%s: %s", error.text, text);
    return j;
}

static void add(void (*fn)(const json_t *items), const char *item)
{
    json_t *j = parse(item), *items = json_pack("[O]", j);
    fn(items);
    json_decref(items);
    json_decref(j);
}

static void add_pod_items(const json_t *items)
{
    defrag_rules_add_pods(rules, ledger, items);
}

static void add_node_items(const json_t *items)
{
    defrag_rules_add_nodes(rules, items);
}

#define OWNED(kind)                                                                      \
    "'ownerReferences':[{'kind':'X','uid':'x'},{'kind':'" kind                           \
    "','uid':'c','controller':true}]"
#define SAFE(value)                                                                      \
    "'annotations':{'cluster-autoscaler.kubernetes.io/safe-to-evict':'" value "'}"

/* The reason for which a pod with these members of metadata and spec stays; "" if it may
 * move. */
static const char *stays(const char *meta, const char *spec)
{
    cleanup_buf struct buf pod = {0};
    buf_printf(&pod, "{'metadata':{'uid':'p'%s%s},'spec':{%s}}", *meta ? "," : "", meta,
               spec);
    add(add_pod_items, pod.p);
    const char *why = defrag_rules_stays(rules, SPAN("p"));
    return why ? why : "";
}

START_TEST(the_controller_decides)
{
    static const struct {
        const char *meta, *want; /* want "": the pod may move */
    } cases[] = {
        {OWNED("ReplicaSet"), ""},
        {OWNED("StatefulSet"), ""},
        {OWNED("ReplicationController"), ""},
        {OWNED("DaemonSet") "," SAFE("true"), "belongs to a DaemonSet"},
        {OWNED("Job"), "belongs to a Job, which would lose its work"},
        {OWNED("Job") "," SAFE("true"), ""},
        {OWNED("PyTorchJob"), "has a controller of an unknown kind"},
        {OWNED("ReplicaSet") "," SAFE("false"), "has the annotation safe-to-evict: false"},
        {OWNED("ReplicaSet") ",'annotations':{'kubernetes.io/config.mirror':'h'}",
         "is the mirror pod of a static pod"},
        {OWNED("ReplicaSet") ",'deletionTimestamp':'t'", "is being deleted"},
    };
    start();
    ck_assert_str_eq(defrag_rules_stays(rules, SPAN("p")), "has just been created");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *got = stays(cases[i].meta, "");
        ck_assert_msg(*cases[i].want ? strstr(got, cases[i].want) == got : !*got,
                      "%s: \"%s\"", cases[i].meta, got);
        ck_assert_span_eq(defrag_rules_controller(rules, SPAN("p")), "c");
    }
    ck_assert_str_eq(stays("'ownerReferences':[{'kind':'ReplicaSet','uid':'x'}]", ""),
                     "has no controller that would replace it");
    ck_assert_str_eq(stays("", ""), "has no controller that would replace it");
    ck_assert_uint_eq(defrag_rules_controller(rules, SPAN("p")).n, 0);
    stop();
}
END_TEST

START_TEST(members_of_gangs_stay)
{
    static const char *const metas[] = {
        "'labels':{'pod-group.scheduling.sigs.k8s.io':'g'},"
        "'annotations':{'gpushare/gang-minimum':'1'}",
        "'labels':{'scheduling.x-k8s.io/pod-group':'g'}",
        "'labels':{'kueue.x-k8s.io/pod-group-name':'g'}",
        "'labels':{'volcano.sh/job-name':'g'}",
        "'annotations':{'scheduling.k8s.io/group-name':'g'}"};
    start();
    for (size_t i = 0; i < ARRAY_LEN(metas); i++) {
        cleanup_buf struct buf meta = {0};
        buf_printf(&meta, OWNED("ReplicaSet") ",%s", metas[i]);
        ck_assert_str_eq(stays(meta.p, ""), "is a member of a gang");
    }
    ck_assert_str_eq(stays(OWNED("ReplicaSet"), "'workloadRef':{'name':'w'}"),
                     "is a member of a gang");
    stop();
}
END_TEST

START_TEST(what_is_not_checked_stays)
{
    static const char required[] = "requiredDuringSchedulingIgnoredDuringExecution";
    static const struct {
        const char *spec, *want;
    } cases[] = {
        {"'volumes':[{'emptyDir':{'medium':'Memory'}},{'configMap':{}}]", ""},
        {"'volumes':[{'emptyDir':{}}]", "has local data"},
        {"'volumes':[{'hostPath':{'path':'/x'}}]", "has local data"},
        {"'volumes':[{'persistentVolumeClaim':{}}]", "has a volume claim"},
        {"'volumes':[{'ephemeral':{}}]", "has a volume claim"},
        {"'affinity':{'podAntiAffinity':{'%s':[{}]}}", "has required pod affinity"},
        {"'affinity':{'podAffinity':{'%s':[{}]}}", "has required pod affinity"},
        {"'affinity':{'podAffinity':{'preferredX':[{}]}}", ""},
        {"'topologySpreadConstraints':[{'whenUnsatisfiable':'DoNotSchedule'}]",
         "has a topology spread"},
        {"'topologySpreadConstraints':[{'whenUnsatisfiable':'ScheduleAnyway'}]", ""},
        {"'resourceClaims':[{'name':'x'}]", "has resource claims"},
        {"'containers':[{'ports':[{'containerPort':80}]}]", ""},
        {"'containers':[{'ports':[{'hostPort':80}]}]", "uses a port"},
        {"'containers':[{'resources':{'limits':{'aliyun.com/gpu-mem':'1','cpu':'2'}}}]",
         ""},
        {"'containers':[{'resources':{'limits':{'rdma/hca':'1'}}}]",
         "requests a resource"},
        {"'initContainers':[{'resources':{'requests':{'hugepages-2Mi':'1'}}}]",
         "requests a resource"},
        /* Of other types than the API server sends. */
        {"'volumes':{},'containers':7,'affinity':[],'tolerations':'x'", ""},
    };
    start();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_buf struct buf spec = {0};
        const char *at = strstr(cases[i].spec, "%s");
        if (at)
            buf_printf(&spec, "%.*s%s%s", (int)(at - cases[i].spec), cases[i].spec,
                       required, at + 2);
        else
            buf_adds(&spec, cases[i].spec);
        const char *got = stays(OWNED("ReplicaSet"), spec.p);
        ck_assert_msg(cases[i].want[0] ? strstr(got, cases[i].want) != NULL : !*got,
                      "%s: \"%s\"", cases[i].spec, got);
    }
    ck_assert_str_eq(
        stays(OWNED("ReplicaSet") "," SAFE("true"), "'volumes':[{'emptyDir':{}}]"), "");
    stop();
}
END_TEST

static bool allows(const char *spec, const char *node)
{
    cleanup_buf struct buf n = {0};
    stays(OWNED("ReplicaSet"), spec);
    buf_printf(&n,
               "{'metadata':{'name':'n','labels':{'zone':'a','size':'8'}},'spec':{%s}}",
               node);
    add(add_node_items, n.p);
    return defrag_rules_allow(rules, SPAN("p"), SPAN("n"), true);
}

#define AFFINITY(term)                                                                   \
    "'affinity':{'nodeAffinity':{'requiredDuringSchedulingIgnoredDuringExecution':{"     \
    "'nodeSelectorTerms':[" term "]}}}"
#define EXPRESSION(key, operator, values)                                                \
    "{'matchExpressions':[{'key':'" key "','operator':'" operator"','values':[" values   \
                                                                 "]}]}"

START_TEST(node_affinity_is_that_of_kube_scheduler)
{
    start();
    ck_assert(!defrag_rules_allow(rules, SPAN("p"), SPAN("n"), true));
    ck_assert(allows("", ""));
    ck_assert(allows("'nodeSelector':{'zone':'a'}", ""));
    ck_assert(!allows("'nodeSelector':{'zone':'b'}", ""));
    ck_assert(!allows("'nodeSelector':{'none':''}", ""));
    ck_assert(allows(AFFINITY(EXPRESSION("zone", "In", "'b','a'")), ""));
    ck_assert(!allows(AFFINITY(EXPRESSION("zone", "In", "'b'")), ""));
    ck_assert(allows(AFFINITY(EXPRESSION("zone", "NotIn", "'b'")), ""));
    ck_assert(allows(AFFINITY(EXPRESSION("none", "NotIn", "'b'")), ""));
    ck_assert(!allows(AFFINITY(EXPRESSION("none", "Exists", "")), ""));
    ck_assert(allows(AFFINITY(EXPRESSION("none", "DoesNotExist", "")), ""));
    ck_assert(allows(AFFINITY(EXPRESSION("size", "Gt", "'7'")), ""));
    ck_assert(!allows(AFFINITY(EXPRESSION("size", "Gt", "'8'")), ""));
    ck_assert(allows(AFFINITY(EXPRESSION("size", "Lt", "'9'")), ""));
    ck_assert(!allows(AFFINITY(EXPRESSION("zone", "Gt", "'1'")), ""));
    ck_assert(!allows(AFFINITY(EXPRESSION("zone", "Near", "'a'")), ""));
    ck_assert(allows(
        AFFINITY(EXPRESSION("zone", "In", "'b'") "," EXPRESSION("zone", "In", "'a'")),
        ""));
    ck_assert(!allows(AFFINITY("{}"), ""));
    ck_assert(!allows(AFFINITY(""), ""));
    ck_assert(allows(AFFINITY("{'matchFields':[{'key':'metadata.name','operator':'In',"
                              "'values':['n']}]}"),
                     ""));
    ck_assert(!allows(AFFINITY("{'matchFields':[{'key':'spec.x','operator':'In',"
                               "'values':['n']}]}"),
                      ""));
    stop();
}
END_TEST

#define TAINT(key, value, effect)                                                        \
    "'taints':[{'key':'" key "','value':'" value "','effect':'" effect "'}]"
#define TOLERATION(members) "'tolerations':[{" members "}]"

START_TEST(taints_are_those_of_kube_scheduler)
{
    start();
    ck_assert(!allows("", TAINT("k", "v", "NoSchedule")));
    ck_assert(!allows("", TAINT("k", "v", "NoExecute")));
    ck_assert(allows("", TAINT("k", "v", "PreferNoSchedule")));
    ck_assert(allows(TOLERATION("'key':'k','value':'v'"), TAINT("k", "v", "NoSchedule")));
    ck_assert(
        !allows(TOLERATION("'key':'k','value':'w'"), TAINT("k", "v", "NoSchedule")));
    ck_assert(allows(TOLERATION("'key':'k','operator':'Exists'"),
                     TAINT("k", "v", "NoSchedule")));
    ck_assert(allows(TOLERATION("'operator':'Exists'"), TAINT("k", "v", "NoExecute")));
    ck_assert(!allows(TOLERATION("'operator':'Exists','effect':'NoExecute'"),
                      TAINT("k", "v", "NoSchedule")));
    ck_assert(!allows(TOLERATION("'value':'v'"), TAINT("k", "v", "NoSchedule")));
    ck_assert(!allows("", "'unschedulable':true"));
    ck_assert(defrag_rules_allow(rules, SPAN("p"), SPAN("n"), false));
    ck_assert(!defrag_rules_allow(rules, (struct span){0}, SPAN("n"), true));
    ck_assert(defrag_rules_allow(rules, (struct span){0}, SPAN("n"), false));
    ck_assert(allows(TOLERATION("'operator':'Exists'"), "'unschedulable':true"));
    ck_assert(allows("", "'taints':{}"));
    stop();
}
END_TEST

UNIT_MAIN("defrag_rules", the_controller_decides, members_of_gangs_stay,
          what_is_not_checked_stays, node_affinity_is_that_of_kube_scheduler,
          taints_are_those_of_kube_scheduler)
