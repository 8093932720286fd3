/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/attempt.h"

/*
 * What our own accounts and exempt accounts may write under the admission policies of
 * manifests/, and what the policies cost. What tenants may not: test_tenant.
 */

#define PODS        CLUSTER_PODS
#define NODES       "/api/v1/nodes"
#define LEASES      "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
#define SECRETS     "/api/v1/namespaces/kube-system/secrets"
#define DEPLOYMENTS "/apis/apps/v1/namespaces/kube-system/deployments"
#define POLICIES    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/"
#define DURATION    "apiserver_admission_controller_admission_duration_seconds"

static const char *const policies[] = {
    "gpushare-promises",         "gpushare-bindings",      "gpushare-extender",
    "gpushare-extender-secrets", "gpushare-device-plugin", "gpushare-hami-promises",
    "gpushare-hami-bindings"};

static unsigned create_promised(const struct peer *as, const char *query)
{
    cleanup_buf struct buf reply = {0};
    return attempt(as, "POST", lib_fmt(PODS "%s", query),
                   "{'metadata':{'name':'restored','annotations':{"
                   "'ALIYUN_COM_GPU_MEM_IDX':'0','ALIYUN_COM_GPU_MEM_POD':'2'}},'spec':{'"
                   "nodeName':'n1','containers':["
                   "{'name':'c','image':'i','resources':{'limits':{'aliyun.com/gpu-mem':"
                   "'2'}}}]}}",
                   &reply);
}

/* -- exempt accounts -- */

/* manifests/promise-policy.yaml with one more account, as its comment says. */
static void exempt(const char *account)
{
    static const char last[] =
        "\"system:serviceaccount:kube-system:gpushare-device-plugin\"\n";
    temp_write(
        lib_dir, "policy.yaml",
        lib_swap(lib_file("manifests/promise-policy.yaml"), last,
                 lib_fmt("%.*s,\n      \"%s\"\n", (int)strlen(last) - 1, last, account)));
    cluster_kubectl("apply", "-f", lib_path("policy.yaml"));
}

TEST(an_exempt_account_restores_pods_with_their_promises)
{
    attempt_wait_policies();
    cluster_add_node("n1", "", CARDS(16384));
    const struct peer *backup = attempt_user("backup", "/O=system:masters/CN=backup");
    ck_assert_uint_eq(create_promised(backup, ""), 403);
    ck_assert_uint_eq(create_promised(&cluster.api, ""), 403);
    exempt("backup");
    lib_wait(create_promised(backup, "?dryRun=All") == 201);
    ck_assert_uint_eq(create_promised(backup, ""), 201);
    cluster_wait_running("restored");
    cluster_agrees();
    ck_assert_uint_eq(create_promised(&cluster.api, "?dryRun=All"), 403);
    attempt_accepted(backup, "MERGE", PODS "/restored",
                     "{'metadata':{'annotations':{'gpushare/card-uuid':''}}}");
    attempt_denied(&cluster.api, "gpushare-promises", "promise of GPU memory", "MERGE",
                   PODS "/restored",
                   "{'metadata':{'annotations':{'gpushare/card-uuid':null}}}");
    cluster_kubectl("apply", "-f", "manifests/promise-policy.yaml");
    lib_wait(create_promised(backup, "?dryRun=All") == 403);
}

/* -- the device plugin -- */

TEST(the_device_plugin_marks_pods_of_its_node)
{
    attempt_wait_policies();
    cluster_create_node("n1", GPU_NODE, CARDS(15360, 15360));
    cluster_create_scv("n1", CARDS(15360, 15360));
    cluster_await_node("n1");
    cluster_create_pod("mine", 2, "", "");
    cluster_wait_running("mine");
    const struct peer *plugin =
        attempt_token(cluster_token_of("gpushare-device-plugin", "n1"));
    attempt_accepted(
        plugin, "MERGE", PODS "/mine",
        "{'metadata':{'annotations':{'ALIYUN_COM_GPU_MEM_ASSIGNED':'true'}}}");
    attempt_denied(plugin, "gpushare-device-plugin", "annotations of a promise", "MERGE",
                   PODS "/mine", "{'metadata':{'annotations':{'scv/memory':'1'}}}");
    attempt_denied(plugin, "gpushare-device-plugin", "only the annotations", "MERGE",
                   PODS "/mine", "{'metadata':{'labels':{'scv/memory':'1'}}}");
}

/* -- the extender -- */

TEST(the_extender_writes_one_annotation_of_nodes_and_one_lease)
{
    static const char *const edits[] = {
        "{'metadata':{'annotations':{'a':'b'}}}",
        "{'metadata':{'annotations':{'kwok.x-k8s.io/node':null}}}",
        "{'metadata':{'annotations':{'gpushare/room-since':'1','a':'b'}}}",
        "{'metadata':{'annotations':null}}",
        "{'metadata':{'labels':{'gpushare':'false'}}}",
        "{'metadata':{'labels':null}}",
        "{'metadata':{'finalizers':['a/b']}}",
        "{'spec':{'unschedulable':true}}",
        "{'spec':{'taints':[{'key':'a','effect':'NoSchedule'}]}}",
    };
    attempt_wait_policies();
    cluster_add_node("n1", ",\"gpushare/mode\":\"card\"", CARDS(16384));
    const struct peer *extender =
        attempt_token(cluster_token("gpushare-schd-extender", NULL));
    attempt_accepted(extender, "MERGE", NODES "/n1",
                     "{'metadata':{'annotations':{'gpushare/room-since':'1'}}}");
    attempt_accepted(extender, "MERGE", NODES "/n1",
                     "{'metadata':{'annotations':{'gpushare/room-since':'2'}}}");
    array_items(edit, edits)
        attempt_denied(extender, "gpushare-extender",
                       "only the annotation gpushare/room-since", "MERGE", NODES "/n1",
                       *edit);
    attempt_denied(extender, "gpushare-extender", "only the Lease gpushare-extender",
                   "POST", LEASES, "{'metadata':{'name':'kube-scheduler-2'}}");
}

/* A Secret of type service-account-token would make it cluster administrator. */
TEST(the_extender_writes_no_secrets_but_its_certificates)
{
    static const char words[] = "only Secrets of type kubernetes.io/tls";
    attempt_wait_policies();
    const struct peer *extender =
        attempt_token(cluster_token("gpushare-schd-extender", NULL));
    attempt_denied(extender, "gpushare-extender-secrets", words, "POST", SECRETS,
                   "{'metadata':{'name':'gpushare-extender-tls','annotations':{"
                   "'kubernetes.io/service-account.name':'namespace-controller'}},"
                   "'type':'kubernetes.io/service-account-token'}");
    attempt_denied(extender, "gpushare-extender-secrets", words, "POST", SECRETS,
                   "{'metadata':{'name':'gpushare-extender-tls'}}");
    attempt_denied(extender, "gpushare-extender-secrets", words, "POST", SECRETS,
                   "{'metadata':{'name':'other'},'type':'kubernetes.io/tls','data':{"
                   "'tls.crt':'','tls.key':''}}");
    attempt_accepted(extender, "POST", SECRETS,
                     "{'metadata':{'name':'gpushare-extender-tls'},'type':"
                     "'kubernetes.io/tls','data':{'tls.crt':'','tls.key':''}}");
    cluster_delete(SECRETS "/gpushare-extender-tls");
}

/* The chart's kube-scheduler. The right to change its pods would be one to run any program with
 * any account of the namespace; the role here grants even more than that of the chart. */
TEST(the_extender_writes_one_annotation_of_the_pods_of_one_deployment)
{
    static const char words[] = "only the annotation gpushare/ca-checksum";
    static const char *const names[] = {"gpushare-scheduler", "other"};
    static const char *const edits[] = {
        "{'spec':{'template':{'spec':{'serviceAccountName':'default'}}}}",
        "{'spec':{'template':{'spec':{'containers':[{'name':'c','image':'other'}]}}}}",
        "{'spec':{'template':{'spec':{'hostPID':true}}}}",
        "{'spec':{'template':{'metadata':{'labels':{'a':'b'}}}}}",
        "{'spec':{'template':{'metadata':{'finalizers':['a/b']}}}}",
        "{'spec':{'template':{'metadata':{'annotations':{'a':'b'}}}}}",
        "{'spec':{'template':{'metadata':{'annotations':{'mine':null}}}}}",
        "{'spec':{'template':{'metadata':{'annotations':{'gpushare/ca-checksum':'2',"
        "'mine':'2'}}}}}",
        "{'spec':{'template':{'metadata':{'annotations':null}}}}",
        "{'spec':{'replicas':0}}",
        "{'spec':{'paused':true}}",
        "{'spec':{'minReadySeconds':9}}",
        "{'spec':{'strategy':{'type':'Recreate','rollingUpdate':null}}}",
        "{'metadata':{'annotations':{'gpushare/ca-checksum':'2'}}}",
        "{'metadata':{'labels':{'a':'b'}}}",
        "{'metadata':{'finalizers':['a/b']}}",
    };
    attempt_wait_policies();
    array_items(name, names)
        cluster_create(
            DEPLOYMENTS,
            "{\"apiVersion\":\"apps/v1\",\"kind\":\"Deployment\",\"metadata\":{"
            "\"name\":\"%s\"},\"spec\":{\"replicas\":1,\"selector\":{"
            "\"matchLabels\":{\"app\":\"d\"}},\"template\":{\"metadata\":{"
            "\"labels\":{\"app\":\"d\"},\"annotations\":{\"mine\":\"1\"}},"
            "\"spec\":{\"containers\":[{\"name\":\"c\",\"image\":\"i\"}]}}}}",
            *name);
    cluster_kubectl("-n", "kube-system", "create", "role", "deployments", "--verb",
                    "get,create,update,patch", "--resource", "deployments.apps");
    cluster_kubectl("-n", "kube-system", "create", "rolebinding", "deployments", "--role",
                    "deployments", "--serviceaccount",
                    "kube-system:gpushare-schd-extender");
    const struct peer *extender =
        attempt_token(cluster_token("gpushare-schd-extender", NULL));
    static const char checksum[] =
        "{'spec':{'template':{'metadata':{'annotations':{'gpushare/ca-checksum':'1'}}}}}";
    attempt_accepted(extender, "MERGE", DEPLOYMENTS "/gpushare-scheduler", checksum);
    attempt_accepted(extender, "MERGE", DEPLOYMENTS "/gpushare-scheduler",
                     "{'spec':{'template':{'metadata':{'annotations':{'gpushare/"
                     "ca-checksum':'3'}}}}}");
    array_items(edit, edits)
        attempt_denied(extender, "gpushare-extender", words, "MERGE",
                       DEPLOYMENTS "/gpushare-scheduler", *edit);
    attempt_denied(extender, "gpushare-extender", words, "MERGE", DEPLOYMENTS "/other",
                   checksum);
    attempt_denied(
        extender, "gpushare-extender", words, "POST", DEPLOYMENTS,
        "{'metadata':{'name':'third'},'spec':{'selector':{'matchLabels':{'app':"
        "'d'}},'template':{'metadata':{'labels':{'app':'d'}},'spec':{"
        "'containers':[{'name':'c','image':'i'}]}}}}");
    array_items(n, names)
        cluster_delete(lib_fmt(DEPLOYMENTS "/%s", *n));
    cluster_kubectl("-n", "kube-system", "delete", "role,rolebinding", "deployments");
}

/* -- the policies themselves -- */

/* Sums the samples of a metric of kube-apiserver that have this label. */
static double metric(const char *name, const char *label)
{
    cleanup_buf struct buf text = {0};
    double sum = 0;
    ck_assert_uint_eq(peer_call(&cluster.api, "GET", "/metrics", NULL, &text), 200);
    for (char *rest = text.p, *line; (line = strsep(&rest, "\n"));)
        if (strncmp(line, lib_fmt("%s{", name), strlen(name) + 1) == 0 &&
            strstr(line, label))
            sum += strtod(strrchr(line, ' '), NULL);
    return sum;
}

static bool is_checked(const char *name)
{
    const json_t *j = peer_get(&cluster.api, lib_fmt(POLICIES "%s", name));
    ck_assert_msg(lib_size(j, "status.typeChecking.expressionWarnings") == 0, "%s: %s",
                  name, lib_text(j, "status.typeChecking"));
    return lib_int(j, "status.observedGeneration") > 0;
}

struct cost {
    double n, seconds;
};

/* The requests so far, and the time of all policies together. */
static struct cost cost(void)
{
    static const char label[] = "name=\"ValidatingAdmissionPolicy\"";
    return (struct cost){metric(DURATION "_count", label),
                         metric(DURATION "_sum", label)};
}

/* Creates pods with a request and without, and returns the mean time of all policies in
 * microseconds for each write of any client meanwhile. */
static double mean_us(const char *prefix)
{
    enum { MANY = 100 };
    struct cost before = cost();
    const char *name = NULL;
    for (int i = 0; i < MANY; i++) {
        name = lib_fmt("%s-%d", prefix, i);
        if (i % 2)
            cluster_create_pod(name, 1, "", "");
        else
            cluster_create(PODS,
                           "{\"metadata\":{\"name\":\"%s\"},\"spec\":{"
                           "\"containers\":[{\"name\":\"c\",\"image\":\"i\"}]}}",
                           name);
    }
    cluster_wait_running(name);
    struct cost after = cost();
    ck_assert(after.n - before.n > MANY);
    return (after.seconds - before.seconds) / (after.n - before.n) * 1e6;
}

TEST(the_policies_have_no_warnings_and_cost_little)
{
    attempt_wait_policies();
    cluster_kubectl("apply", "-f", "manifests/hami-policy.yaml.example");
    cluster_add_node("n1", "", CARDS(65536, 65536));
    array_items(policy, policies)
        lib_wait(is_checked(*policy));
    double with = mean_us("with");
    attempt_without_policies();
    printf("measured: admission of a write: %.0f us, without the policies of promises: "
           "%.0f us\n",
           with, mean_us("without"));
    fflush(stdout);
    ck_assert(with < 50000 * LIB_SLOWER);
}

CLUSTER_MAIN(120)
