/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/defrag.h"

#include "domain/objects.h"
#include "lib/lib.h"

/*
 * Which pods may be moved, and where to. JSON is written with ' for ".
 */

static struct arena arena;
static struct ledger *ledger;
static json_t *rules;

static void start(void)
{
    const struct ledger_settings s = {.unit_mib = 1};
    ledger = ledger_new(&s, 1);
    rules = json_object();
    struct pod pod = object_pod_mem(&arena, "p", 1);
    struct request r = object_request(&arena, &pod, 1);
    ledger_pod_add(ledger, &pod, &r, NULL);
}

static void stop(void)
{
    json_decref(rules);
    ledger_free(ledger);
    arena_fini(&arena);
}

/* A list of one item; new. */
static json_t *list_of(const char *item)
{
    struct span s = quoted(&arena, "[%s]", item);
    json_error_t error;
    json_t *j = json_loadb(s.p, s.n, 0, &error);
    ck_assert_msg(j != NULL, "%s: %s", error.text, item);
    return j;
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
    cleanup_json json_t *items = list_of(pod.p);
    defrag_rules_add_pods(rules, ledger, items);
    const char *why = defrag_rules_stays(rules, SPAN("p"));
    return why ? why : "";
}

#define GANG "is a member of a gang"

TEST(the_controller_decides)
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
        {OWNED("ReplicaSet") "," SAFE("false"),
         "has the annotation safe-to-evict: false"},
        {OWNED("ReplicaSet") ",'annotations':{'kubernetes.io/config.mirror':'h'}",
         "is the mirror pod of a static pod"},
        {OWNED("ReplicaSet") ",'deletionTimestamp':'t'", "is being deleted"},
        {OWNED("ReplicaSet") ",'labels':{'pod-group.scheduling.sigs.k8s.io':'g'},"
                             "'annotations':{'gpushare/gang-minimum':'1'}",
         GANG},
        {OWNED("ReplicaSet") ",'labels':{'scheduling.x-k8s.io/pod-group':'g'}", GANG},
        {OWNED("ReplicaSet") ",'labels':{'kueue.x-k8s.io/pod-group-name':'g'}", GANG},
        {OWNED("ReplicaSet") ",'labels':{'volcano.sh/job-name':'g'}", GANG},
        {OWNED("ReplicaSet") ",'annotations':{'scheduling.k8s.io/group-name':'g'}", GANG},
    };
    start();
    ck_assert_str_eq(defrag_rules_stays(rules, SPAN("p")), "has just been created");
    array_items(c, cases) {
        const char *got = stays(c->meta, "");
        ck_assert_msg(*c->want ? strstr(got, c->want) == got : !*got, "%s: \"%s\"",
                      c->meta, got);
        ck_assert_span_eq(defrag_rules_controller(rules, SPAN("p")), "c");
    }
    ck_assert_str_eq(stays("'ownerReferences':[{'kind':'ReplicaSet','uid':'x'}]", ""),
                     "has no controller that would replace it");
    ck_assert_str_eq(stays("", ""), "has no controller that would replace it");
    ck_assert_uint_eq(defrag_rules_controller(rules, SPAN("p")).n, 0);
    stop();
}

#define REQUIRED "requiredDuringSchedulingIgnoredDuringExecution"

TEST(what_is_not_checked_stays)
{
    static const struct {
        const char *spec, *want;
    } cases[] = {
        {"'volumes':[{'emptyDir':{'medium':'Memory'}},{'configMap':{}}]", ""},
        {"'volumes':[{'emptyDir':{}}]", "has local data"},
        {"'volumes':[{'hostPath':{'path':'/x'}}]", "has local data"},
        {"'volumes':[{'persistentVolumeClaim':{}}]", "has a volume claim"},
        {"'volumes':[{'ephemeral':{}}]", "has a volume claim"},
        {"'workloadRef':{'name':'w'}", GANG},
        {"'affinity':{'podAntiAffinity':{'" REQUIRED "':[{}]}}",
         "has required pod affinity"},
        {"'affinity':{'podAffinity':{'" REQUIRED "':[{}]}}", "has required pod affinity"},
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
    array_items(c, cases) {
        const char *got = stays(OWNED("ReplicaSet"), c->spec);
        ck_assert_msg(c->want[0] ? strstr(got, c->want) != NULL : !*got, "%s: \"%s\"",
                      c->spec, got);
    }
    ck_assert_str_eq(
        stays(OWNED("ReplicaSet") "," SAFE("true"), "'volumes':[{'emptyDir':{}}]"), "");
    stop();
}

#define AFFINITY(term)                                                                   \
    "'affinity':{'nodeAffinity':{'" REQUIRED "':{'nodeSelectorTerms':[" term "]}}}"
#define EXPRESSION(key, operator, values)                                                \
    "{'matchExpressions':[{'key':'" key "','operator':'" operator"','values':[" values   \
                                                                 "]}]}"
#define IS(key, operator, values) AFFINITY(EXPRESSION(key, operator, values))
#define FIELDS(key)                                                                      \
    AFFINITY("{'matchFields':[{'key':'" key "','operator':'In','values':['n']}]}")
#define TAINT(effect)       "'taints':[{'key':'k','value':'v','effect':'" effect "'}]"
#define TOLERATION(members) "'tolerations':[{" members "}]"

TEST(nodes_are_allowed_as_by_kube_scheduler)
{
    static const struct {
        bool allowed;
        const char *pod, *node; /* specs */
    } cases[] = {
        {true, "", ""},
        {true, "'nodeSelector':{'zone':'a'}", ""},
        {false, "'nodeSelector':{'zone':'b'}", ""},
        {false, "'nodeSelector':{'none':''}", ""},
        {true, IS("zone", "In", "'b','a'"), ""},
        {false, IS("zone", "In", "'b'"), ""},
        {true, IS("zone", "NotIn", "'b'"), ""},
        {true, IS("none", "NotIn", "'b'"), ""},
        {false, IS("none", "Exists", ""), ""},
        {true, IS("none", "DoesNotExist", ""), ""},
        {true, IS("size", "Gt", "'7'"), ""},
        {false, IS("size", "Gt", "'8'"), ""},
        {true, IS("size", "Lt", "'9'"), ""},
        {false, IS("zone", "Gt", "'1'"), ""},
        {false, IS("size", "Gt", "'1','2'"), ""},
        {true, IS("size", "Gt", "'-9'"), ""},
        {true, IS("size", "In", "'8'"), ""},
        {false, IS("size", "In", "'08'"), ""},
        {false, "'nodeSelector':{'zone':'b'}," IS("zone", "In", "'a'"), ""},
        {false, IS("zone", "In", "'a'") ",'nodeSelector':{'zone':'b'}", ""},
        {false, IS("zone", "In", "'b'") ",'nodeSelector':{'zone':'a'}", ""},
        {false, IS("zone", "Near", "'a'"), ""},
        {true,
         AFFINITY(EXPRESSION("zone", "In", "'b'") "," EXPRESSION("zone", "In", "'a'")),
         ""},
        {false, AFFINITY("{}"), ""},
        {false, AFFINITY(""), ""},
        {true, FIELDS("metadata.name"), ""},
        {false, FIELDS("spec.x"), ""},
        {false, "", TAINT("NoSchedule")},
        {false, "", TAINT("NoExecute")},
        {true, "", TAINT("PreferNoSchedule")},
        {true, TOLERATION("'key':'k','value':'v'"), TAINT("NoSchedule")},
        {false, TOLERATION("'key':'k','value':'w'"), TAINT("NoSchedule")},
        {true, TOLERATION("'key':'k','operator':'Exists'"), TAINT("NoSchedule")},
        {true, TOLERATION("'operator':'Exists'"), TAINT("NoExecute")},
        {false, TOLERATION("'operator':'Exists','effect':'NoExecute'"),
         TAINT("NoSchedule")},
        {false, TOLERATION("'value':'v'"), TAINT("NoSchedule")},
        {false, TOLERATION("'operator':'Equal'"), TAINT("NoSchedule")},
        {false, "'tolerations':[7]", TAINT("NoSchedule")},
        {true, "", "'taints':{}"},
        {true, TOLERATION("'operator':'Exists'"), "'unschedulable':true"},
        {true, TOLERATION("'key':'node.kubernetes.io/unschedulable'"),
         "'unschedulable':true"},
        {false, TOLERATION("'key':'node.kubernetes.io/unschedulable','value':'x'"),
         "'unschedulable':true"},
        {false, "", "'unschedulable':true"},
    };
    const struct ledger_pod *pod = NULL;
    const struct ledger_node *node = NULL;
    start();
    array_items(c, cases) {
        struct pod p = object_pod(
            &arena, quoted(&arena,
                           "{'metadata':{'namespace':'default','name':'p','uid':'p'},"
                           "'spec':{%s}}",
                           c->pod));
        struct node n = object_node(
            &arena, quoted(&arena,
                           "{'metadata':{'name':'n','labels':{'zone':'a','size':'8'}},"
                           "'spec':{%s}}",
                           c->node));
        struct request r = object_request(&arena, &p, 1);
        pod = ledger_pod_add(ledger, &p, &r, NULL);
        ledger_node_seen(ledger, &n, 1);
        node = ledger_node_find(ledger, SPAN("n"));
        ck_assert_msg(defrag_rules_allow(pod, node, true) == c->allowed, "%s on %s",
                      c->pod, c->node);
    }
    /* The last node is cordoned. */
    ck_assert(defrag_rules_allow(pod, node, false));
    ck_assert(!defrag_rules_allow(NULL, node, true));
    ck_assert(defrag_rules_allow(NULL, node, false));
    stop();
}

/* So many times the text, with commas. */
static const char *times(int n, const char *text)
{
    struct buf all = {0};
    for (int i = 0; i < n; i++)
        buf_printf(&all, "%s%s", i ? "," : "", text);
    const char *copy = arena_copy(&arena, buf_span(&all)).p;
    buf_fini(&all);
    return copy;
}

#define X50  "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define LONG "{'key':'" X50 X50 X50 X50 X50 X50 "','operator':'DoesNotExist'}"

/* They exclude no node where that is only shown, and defrag moves nothing by them. */
TEST(terms_that_are_too_many_are_not_judged)
{
    static const struct {
        enum terms_verdict verdict;
        int expressions;
        const char *expression;
        int labels;
    } cases[] = {
        {TERMS_ALLOW, 250, "{'key':'none','operator':'DoesNotExist'}", 500},
        {TERMS_SELECTOR, 250, "{'key':'none','operator':'Exists'}", 500},
        {TERMS_UNKNOWN, 260, "{'key':'none','operator':'DoesNotExist'}", 1},
        {TERMS_UNKNOWN, 260, "{'key':'none','operator':'Exists'}", 1},
        {TERMS_UNKNOWN, 45000, "{'key':'none','operator':'DoesNotExist'}", 1},
        {TERMS_ALLOW, 150, LONG, 1},
        {TERMS_UNKNOWN, 250, LONG, 1},
        {TERMS_UNKNOWN, 1, LONG, 520},
    };
    start();
    array_items(c, cases) {
        struct pod p = object_pod(
            &arena,
            quoted(&arena,
                   "{'metadata':{'namespace':'default','name':'p','uid':'p'},'spec':"
                   "{" AFFINITY("{'matchExpressions':[%s]}") "}}",
                   times(c->expressions, c->expression)));
        struct node n =
            object_node(&arena, quoted(&arena, "{'metadata':{'name':'n','labels':{%s}}}",
                                       times(c->labels, "'a':'b'")));
        struct request r = object_request(&arena, &p, 1);
        const struct ledger_pod *pod = ledger_pod_add(ledger, &p, &r, NULL);
        ledger_node_seen(ledger, &n, 1);
        const struct ledger_node *node = ledger_node_find(ledger, SPAN("n"));
        ck_assert_int_eq(ledger_node_judge(node, pod->terms), c->verdict);
        ck_assert(defrag_rules_allow(pod, node, true) == (c->verdict == TERMS_ALLOW));
        ck_assert_uint_lt(terms_size(pod->terms), 9000);
    }
    stop();
}
