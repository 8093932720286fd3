/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "lib/attempt.h"

/*
 * What our own accounts and exempt accounts may write under the admission policies of
 * manifests/, and what the policies cost. What tenants may not: test_tenant.
 */

#define PODS     CLUSTER_PODS
#define NODES    "/api/v1/nodes"
#define LEASES   "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
#define SECRETS  "/api/v1/namespaces/kube-system/secrets"
#define POLICIES "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/"
#define DURATION "apiserver_admission_controller_admission_duration_seconds"

static const char *const policies[] = {
    "gpushare-promises",         "gpushare-bindings",      "gpushare-extender",
    "gpushare-extender-secrets", "gpushare-device-plugin", "scv-agent"};

static unsigned create_promised(const struct peer *as, const char *query)
{
    cleanup_buf struct buf reply = {0};
    cleanup_free char *path = xasprintf(PODS "%s", query);
    return attempt(as, "POST", path,
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
    struct err err = {0};
    cleanup_buf struct buf text = {0};
    ck_assert_done(file_read("manifests/promise-policy.yaml", 1 << 20, &text, &err), err);
    char *at = strstr(text.p, last);
    ck_assert_ptr_nonnull(at);
    cleanup_free char *more =
        xasprintf("%.*s,\n      \"%s\"\n%s", (int)(at - text.p + (int)strlen(last) - 1),
                  text.p, account, at + strlen(last));
    temp_write(lib_dir, "policy.yaml", more);
    cleanup_free char *file = temp_path(lib_dir, "policy.yaml");
    free(cluster_kubectl(ARGV("apply", "-f", file)));
}

START_TEST(an_exempt_account_restores_pods_with_their_promises)
{
    struct peer backup;
    attempt_wait_policies();
    cluster_add_node("n1", NULL, NULL, CARDS(16384));
    attempt_user(&backup, "backup", "/O=system:masters/CN=backup");
    ck_assert_uint_eq(create_promised(&backup, ""), 403);
    ck_assert_uint_eq(create_promised(&cluster.api, ""), 403);
    exempt("backup");
    lib_wait(create_promised(&backup, "?dryRun=All") == 201);
    ck_assert_uint_eq(create_promised(&backup, ""), 201);
    cluster_wait_running("restored");
    cluster_agrees();
    ck_assert_uint_eq(create_promised(&cluster.api, "?dryRun=All"), 403);
    attempt_accepted(&backup, "MERGE", PODS "/restored",
                     "{'metadata':{'annotations':{'gpushare/card-uuid':''}}}");
    attempt_denied(&cluster.api, "gpushare-promises", "promise of GPU memory", "MERGE",
                   PODS "/restored",
                   "{'metadata':{'annotations':{'gpushare/card-uuid':null}}}");
    free(cluster_kubectl(ARGV("apply", "-f", "manifests/promise-policy.yaml")));
    lib_wait(create_promised(&backup, "?dryRun=All") == 403);
    peer_fini(&backup);
}

/* -- the device plugin -- */

START_TEST(the_device_plugin_marks_pods_of_its_node)
{
    struct peer plugin;
    attempt_wait_policies();
    cluster_create_gpu_node("n1", NULL);
    cluster_create_scv("n1", CARDS(15360, 15360));
    cluster_await_node("n1");
    cluster_create_pod("mine", 2, "", "");
    cluster_wait_running("mine");
    cleanup_free char *token = cluster_token_of("gpushare-device-plugin", "n1");
    cleanup_free char *bearer = xasprintf("Bearer %s", token);
    attempt_token(&plugin, bearer);
    attempt_accepted(
        &plugin, "MERGE", PODS "/mine",
        "{'metadata':{'annotations':{'ALIYUN_COM_GPU_MEM_ASSIGNED':'true'}}}");
    attempt_denied(&plugin, "gpushare-device-plugin", "annotations of a promise", "MERGE",
                   PODS "/mine", "{'metadata':{'annotations':{'scv/memory':'1'}}}");
    attempt_denied(&plugin, "gpushare-device-plugin", "only the annotations", "MERGE",
                   PODS "/mine", "{'metadata':{'labels':{'scv/memory':'1'}}}");
    peer_fini(&plugin);
}

/* -- the extender -- */

START_TEST(the_extender_writes_one_annotation_of_nodes_and_one_lease)
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
    struct peer extender;
    attempt_wait_policies();
    cluster_add_node("n1", "gpushare/mode", "card", CARDS(16384));
    cleanup_free char *bearer = attempt_bearer("gpushare-schd-extender");
    attempt_token(&extender, bearer);
    attempt_accepted(&extender, "MERGE", NODES "/n1",
                     "{'metadata':{'annotations':{'gpushare/room-since':'1'}}}");
    attempt_accepted(&extender, "MERGE", NODES "/n1",
                     "{'metadata':{'annotations':{'gpushare/room-since':'2'}}}");
    for (size_t i = 0; i < ARRAY_LEN(edits); i++)
        attempt_denied(&extender, "gpushare-extender",
                       "only the annotation gpushare/room-since", "MERGE", NODES "/n1",
                       edits[i]);
    attempt_denied(&extender, "gpushare-extender", "only the Lease gpushare-extender",
                   "POST", LEASES, "{'metadata':{'name':'kube-scheduler-2'}}");
    peer_fini(&extender);
}

/* With the rights that its own certificates require. A Secret of type
 * service-account-token would make it cluster administrator. */
START_TEST(the_extender_writes_no_secrets_but_its_certificates)
{
    static const char roles[] =
        "apiVersion: rbac.authorization.k8s.io/v1\n"
        "kind: Role\n"
        "metadata: {name: certificates, namespace: kube-system}\n"
        "rules: [{apiGroups: [''], resources: [secrets], verbs: [create, patch]}]\n"
        "---\n"
        "apiVersion: rbac.authorization.k8s.io/v1\n"
        "kind: RoleBinding\n"
        "metadata: {name: certificates, namespace: kube-system}\n"
        "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: certificates}\n"
        "subjects: [{kind: ServiceAccount, name: gpushare-schd-extender,"
        " namespace: kube-system}]\n";
    static const char words[] = "only Secrets of type kubernetes.io/tls";
    struct peer extender;
    temp_write(lib_dir, "roles.yaml", roles);
    cleanup_free char *file = temp_path(lib_dir, "roles.yaml");
    free(cluster_kubectl(ARGV("apply", "-f", file)));
    attempt_wait_policies();
    cleanup_free char *bearer = attempt_bearer("gpushare-schd-extender");
    attempt_token(&extender, bearer);
    attempt_denied(&extender, "gpushare-extender-secrets", words, "POST", SECRETS,
                   "{'metadata':{'name':'gpushare-extender-tls','annotations':{"
                   "'kubernetes.io/service-account.name':'namespace-controller'}},"
                   "'type':'kubernetes.io/service-account-token'}");
    attempt_denied(&extender, "gpushare-extender-secrets", words, "POST", SECRETS,
                   "{'metadata':{'name':'gpushare-extender-tls'}}");
    attempt_denied(&extender, "gpushare-extender-secrets", words, "POST", SECRETS,
                   "{'metadata':{'name':'other'},'type':'kubernetes.io/tls','data':{"
                   "'tls.crt':'','tls.key':''}}");
    attempt_accepted(&extender, "POST", SECRETS,
                     "{'metadata':{'name':'gpushare-extender-tls'},'type':"
                     "'kubernetes.io/tls','data':{'tls.crt':'','tls.key':''}}");
    attempt_accepted(&extender, "MERGE", SECRETS "/gpushare-extender-tls",
                     "{'data':{'tls.crt':'YQ=='}}");
    cluster_delete(SECRETS "/gpushare-extender-tls");
    free(cluster_kubectl(ARGV("delete", "-f", file)));
    peer_fini(&extender);
}

/* -- the policies themselves -- */

/* Sums the samples of a metric of kube-apiserver that have this label. */
static double metric(const char *name, const char *label)
{
    cleanup_buf struct buf text = {0};
    double sum = 0;
    ck_assert_uint_eq(peer_call(&cluster.api, "GET", "/metrics", NULL, &text), 200);
    for (char *rest = text.p, *line; (line = strsep(&rest, "\n"));) {
        const char *value = strrchr(line, ' ');
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == '{' &&
            strstr(line, label) && value)
            sum += strtod(value, NULL);
    }
    return sum;
}

static bool is_checked(const char *name)
{
    cleanup_free char *path = xasprintf(POLICIES "%s", name);
    cleanup_json json_t *j = peer_json(&cluster.api, "GET", path, NULL);
    json_t *checking = lib_at(j, "status.typeChecking");
    cleanup_free char *text = json_dumps(checking, JSON_ENCODE_ANY);
    ck_assert_msg(json_array_size(lib_at(checking, "expressionWarnings")) == 0, "%s: %s",
                  name, text);
    return json_integer_value(lib_at(j, "status.observedGeneration")) > 0;
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
    char name[32];
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "%s-%d", prefix, i);
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

START_TEST(the_policies_have_no_warnings_and_cost_little)
{
    attempt_wait_policies();
    cluster_add_node("n1", NULL, NULL, CARDS(65536, 65536));
    for (size_t i = 0; i < ARRAY_LEN(policies); i++)
        lib_wait(is_checked(policies[i]));
    double with = mean_us("with");
    attempt_without_policies();
    printf("measured: admission of a write: %.0f us, without the policies of promises: "
           "%.0f us\n",
           with, mean_us("without"));
    fflush(stdout);
    ck_assert(with < 50000 * LIB_SLOWER);
}

CLUSTER_MAIN("writers", 120, ARGV("--nodes", "0"),
             an_exempt_account_restores_pods_with_their_promises,
             the_device_plugin_marks_pods_of_its_node,
             the_extender_writes_one_annotation_of_nodes_and_one_lease,
             the_extender_writes_no_secrets_but_its_certificates,
             the_policies_have_no_warnings_and_cost_little)
