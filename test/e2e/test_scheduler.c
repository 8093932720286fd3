/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e/daemon.h"
#include "lib/attempt.h"
#include "lib/cluster.h"
#include "lib/expect.h"
#include "lib/yamlfile.h"

/*
 * The chart's own kube-scheduler, and the policy or webhook that gives pods its name: which pods
 * the API server changes, and what two kube-schedulers do to each other on one node. Kubernetes
 * 1.31 has no such policies: there the pods name the scheduler themselves.
 */

#define NAME "gpushare-scheduler"
#define PODS CLUSTER_PODS

static bool has_policies(void)
{
    return strcmp(cluster_release(), "1.31") != 0;
}

/* -- the policy -- */

/* Renders one template with more values (helm's --set). Returns the file, kept. */
static char *render_template(const char *template, const char *values)
{
    bool ga = peer_status(&cluster.api, "/apis/admissionregistration.k8s.io/v1/"
                                        "mutatingadmissionpolicies") == 200;
    bool is_test = strstr(template, "/tests/"); /* `kubectl apply` cannot change a Job */
    temp_write(lib_dir, "template.yaml",
               cluster_tool(
                   "helm", 0,
                   ARGV("template", "gpushare", CHART,
                        lib_fmt("--no-hooks=%s", is_test ? "false" : "true"), "-n",
                        "kube-system", "--kube-version", "1.35", "-a",
                        lib_fmt("admissionregistration.k8s.io/%s/MutatingAdmissionPolicy",
                                ga ? "v1" : "v1beta1"),
                        "--set", lib_fmt("logLevel=info%s", values), "-s", template)));
    return lib_path("template.yaml");
}

/* What the API server would store for a pod with these members of metadata and spec. */
static json_t *dry_run(const char *metadata, const char *spec)
{
    return peer_post(
        &cluster.api, PODS "?dryRun=All",
        lib_fmt("{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"p\"%s},"
                "\"spec\":{%s}}",
                metadata, spec));
}

#define IMAGE       "\"name\":\"c\",\"image\":\"i\""
#define ONE(more)   "\"containers\":[{" IMAGE more "}]"
#define LIMIT(name) ",\"resources\":{\"limits\":{\"" name "\":\"1\"}}"
#define INIT(more)  "\"initContainers\":[{\"name\":\"i\",\"image\":\"i\"" more "}]"
#define GPU         ONE(LIMIT("aliyun.com/gpu-mem"))
#define DEFAULT     "default-scheduler"

static const struct pod {
    const char *metadata, *spec, *scheduler, *class;
} pods[] = {
    {"", GPU, NAME, "nvidia"},
    {"", ONE(LIMIT("aliyun.com/gpu-count")), NAME, "nvidia"},
    {"",
     ONE(",\"resources\":{\"limits\":{\"cpu\":\"1\",\"aliyun.com/gpu-mem\":\"2\"},"
         "\"requests\":{\"cpu\":\"1\",\"aliyun.com/gpu-mem\":\"2\"}}"),
     NAME, "nvidia"},
    {"", ONE("") "," INIT(LIMIT("aliyun.com/gpu-mem")), NAME, "nvidia"},
    {"", ONE("") "," INIT(",\"restartPolicy\":\"Always\"" LIMIT("aliyun.com/gpu-mem")),
     NAME, "nvidia"},
    {"", GPU ",\"schedulerName\":\"\"", NAME, "nvidia"},
    {"", GPU ",\"schedulerName\":null,\"runtimeClassName\":null", NAME, "nvidia"},
    /* What a pod names stays. */
    {"", GPU ",\"schedulerName\":\"mine\"", "mine", "nvidia"},
    {"", GPU ",\"runtimeClassName\":\"other\"", NAME, "other"},
    /* Pods without a request. */
    {"", ONE(""), DEFAULT, ""},
    {"", ONE(",\"resources\":null"), DEFAULT, ""},
    {"", ONE(",\"resources\":{}"), DEFAULT, ""},
    {"", ONE(",\"resources\":{\"limits\":null,\"requests\":null}"), DEFAULT, ""},
    {"", ONE(",\"resources\":{\"requests\":{\"cpu\":\"1\"}}"), DEFAULT, ""},
    {"", ONE(LIMIT("nvidia.com/gpu")), DEFAULT, ""},
    {"", ONE("") ",\"initContainers\":null", DEFAULT, ""},
    {"", ONE("") ",\"initContainers\":[]", DEFAULT, ""},
    {"", ONE("") "," INIT(",\"resources\":{\"limits\":null}"), DEFAULT, ""},
    {",\"labels\":null,\"annotations\":null", ONE(""), DEFAULT, ""},
    /* An annotation or label alone requests no extended resource. */
    {",\"labels\":{\"scv/memory\":\"1024\"}", ONE(""), DEFAULT, ""},
};

static void check_pod(const struct pod *p)
{
    const json_t *stored = dry_run(p->metadata, p->spec);
    const char *scheduler = lib_str(stored, "spec.schedulerName"),
               *class = lib_str(stored, "spec.runtimeClassName");
    ck_assert_msg(strcmp(scheduler, p->scheduler) == 0 && strcmp(class, p->class) == 0,
                  "%s %s: schedulerName \"%s\", runtimeClassName \"%s\"", p->metadata,
                  p->spec, scheduler, class);
}

/* Does the API server apply the policy? It reads policies through a watch. */
static bool is_changed(const char *metadata, const char *spec, const char *scheduler)
{
    return strcmp(lib_str(dry_run(metadata, spec), "spec.schedulerName"), scheduler) == 0;
}

static void create_classes(void)
{
    static const char *const names[] = {"nvidia", "other"};
    array_indices(i, names)
        cluster_create("/apis/node.k8s.io/v1/runtimeclasses",
                       "{\"apiVersion\":\"node.k8s.io/v1\",\"kind\":\"RuntimeClass\","
                       "\"metadata\":{\"name\":\"%s\"},\"handler\":\"h\","
                       "\"overhead\":{\"podFixed\":{\"memory\":\"%dMi\"}}}",
                       names[i], i ? 7 : 5);
}

/* With failurePolicy Fail, so that an error of the expressions is a rejection. */
static char *apply_policy(const char *values)
{
    char *file = render_template("templates/pod-defaults.yaml", values);
    lib_edit("template.yaml", "failurePolicy: Ignore", "failurePolicy: Fail");
    cluster_kubectl("apply", "-f", file);
    return file;
}

TEST(pods_that_ask_for_gpu_memory_get_the_scheduler_and_the_class)
{
    if (!has_policies())
        return;
    create_classes();
    char *file = apply_policy(",podDefaults.runtimeClassName=nvidia");
    lib_wait(is_changed("", GPU, NAME));
    array_items(c, pods)
        check_pod(c);
    /* The plugin of the API server that adds the overhead of a RuntimeClass sees it, too. */
    ck_assert_at(dry_run("", GPU), "spec.overhead.memory", "5Mi");
    /* The largest pod: its last container asks. */
    cleanup_buf struct buf many = {0};
    buf_printf(&many, "\"containers\":[");
    for (int i = 0; i < 1500; i++)
        buf_printf(&many,
                   "{\"name\":\"c%d\",\"image\":\"i\",\"resources\":{\"limits\":"
                   "{\"cpu\":\"1\"}}},",
                   i);
    buf_printf(&many, "{" IMAGE LIMIT("aliyun.com/gpu-mem") "}]");
    check_pod(&(struct pod){"", many.p, NAME, "nvidia"});
    cluster_kubectl("delete", "-f", file);
    cluster_kubectl("delete", "runtimeclass", "nvidia", "other");
}

/* Without the limit the kubelet would give the container no card. Pods of NVIDIA's plugin get the
 * scheduler, which knows what nodes mean by it, and nothing else. */
TEST(containers_of_hami_get_a_limit_of_one_card)
{
    if (!has_policies())
        return;
    static const struct {
        const char *spec, *list, *cards;
    } cases[] = {
        {ONE(LIMIT("nvidia.com/gpumem")), "containers", "1"},
        {ONE(LIMIT("nvidia.com/gpumem-percentage")), "containers", "1"},
        {ONE(LIMIT("nvidia.com/gpucores")), "containers", "1"},
        {ONE("") "," INIT(LIMIT("nvidia.com/gpumem")), "initContainers", "1"},
        {ONE(",\"ports\":[{\"containerPort\":80}],\"resources\":{\"limits\":{"
             "\"nvidia.com/gpu\":\"2\",\"nvidia.com/gpumem\":\"3k\"}}"),
         "containers", "2"},
        {ONE(LIMIT("nvidia.com/gpu")), "containers", "1"},
    };
    char *file = apply_policy(",requestsOf=hami");
    lib_wait(is_changed("", ONE(LIMIT("nvidia.com/gpumem")), NAME));
    array_items(c, cases) {
        const json_t *stored = dry_run("", c->spec);
        ck_assert_at(stored, "spec.schedulerName", NAME);
        static const char *const kinds[] = {"limits", "requests"};
        array_items(kind, kinds) {
            const char *path = lib_fmt("spec.%s.0.resources.%s", c->list, *kind);
            ck_assert_str_eq(lib_in(stored, path, "nvidia.com/gpu"), c->cards);
        }
        ck_assert_at(stored, lib_fmt("spec.%s.0.image", c->list), "i");
    }
    ck_assert(is_changed("", ONE(LIMIT("example.com/fpga")), DEFAULT));
    cluster_kubectl("delete", "-f", file);
    lib_wait(is_changed("", GPU, DEFAULT));
}

/* extender.allPods: the chart's kube-scheduler calls the extender for every pod, so a request
 * by Yoda's labels alone reaches it. */
TEST(with_all_pods_labels_of_yoda_count_as_a_request)
{
    if (!has_policies())
        return;
    char *file = apply_policy(",extender.allPods=true,extender.replicas=2");
    lib_wait(is_changed(",\"labels\":{\"scv/memory\":\"1024\"}", ONE(""), NAME));
    ck_assert(is_changed("", GPU, NAME));
    ck_assert(is_changed(",\"labels\":{\"scv\":\"1\"}", ONE(""), DEFAULT));
    cluster_kubectl("delete", "-f", file);
    lib_wait(is_changed("", GPU, DEFAULT));
}

/* -- the webhook: the same without policies -- */

#define SECRETS "/api/v1/namespaces/kube-system/secrets/"
#define WEBHOOK                                                                          \
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/gpushare-pods"
#define ACCOUNT "system:serviceaccount:kube-system:gpushare-pod-defaults"

/* A replica over HTTPS, as the chart starts it; waits until its certificate is made. */
static void start_replica(struct extender *e)
{
    extender_start_at(e, lib_fmt("%s/extender.kubeconfig", cluster.dir),
                      ARGV("--insecure=off", "--pod-scheduler", NAME,
                           "--pod-runtime-class", "nvidia", "--pod-webhook",
                           "gpushare-pods"));
    lib_wait(peer_status(&cluster.api, SECRETS "gpushare-extender-tls") == 200);
}

/* The API server asks this replica: no pod of the cluster can back the Service. */
static char *apply_webhook(const struct extender *e)
{
    char *file =
        render_template("templates/pod-defaults.yaml",
                        ",podDefaults.webhook=true,podDefaults.runtimeClassName=nvidia");
    lib_edit(
        "template.yaml",
        "service: {namespace: \"kube-system\", name: gpushare-schd-extender, port: 12345, "
        "path: /pod-defaults}",
        lib_fmt("url: https://127.0.0.1:%u/pod-defaults", e->verbs.port));
    cluster_kubectl("apply", "-f", file);
    return file;
}

static unsigned try_gpu_pod(struct buf *reply)
{
    return attempt(&cluster.api, "POST", PODS "?dryRun=All",
                   "{'metadata':{'name':'p'},'spec':{'containers':[{'name':'c','image':"
                   "'i','resources':{'limits':{'aliyun.com/gpu-mem':'1'}}}]}}",
                   reply);
}

/* Does the API server know the webhook? */
static bool is_known(void)
{
    cleanup_buf struct buf reply = {0};
    return try_gpu_pod(&reply) != 201 || strstr(reply.p, NAME);
}

/* Does a pod get its scheduler? Else it must be refused. */
static bool is_set_or_refused(void)
{
    cleanup_buf struct buf reply = {0};
    unsigned status = try_gpu_pod(&reply);
    bool set = strstr(reply.p, "\"schedulerName\":\"" NAME "\"");
    ck_assert_msg(set ? status == 201
                      : status == 500 && strstr(reply.p, "failed calling webhook"),
                  "%u: %s", status, reply.p);
    return set;
}

/* Runs the command of the chart's hook, as its account. */
static char *await(int status, const char *scheduler, const char *limit)
{
    return lib_output(status, ARGV(lib_built("gpushare-extender"), "--kubeconfig",
                                   lib_fmt("%s/dry-run.kubeconfig", cluster.dir),
                                   "--await-pod-defaults", limit, "--pod-scheduler",
                                   scheduler, "--pod-runtime-class", "nvidia"));
}

TEST(the_webhook_gives_pods_the_same_and_refuses_them_while_it_is_down)
{
    struct extender first, second;
    create_classes();
    cluster_add_user("dry-run", "/CN=" ACCOUNT);
    cluster_stop("gpushare-extender", "TERM");
    start_replica(&first);
    start_replica(&second);
    char *file = apply_webhook(&second);
    lib_wait(is_known());
    lib_wait(is_set_or_refused()); /* by the second, with the caBundle of the first */
    array_items(pod, pods)
        check_pod(pod);
    ck_assert_at(dry_run("", GPU), "spec.overhead.memory", "5Mi");

    await(0, NAME, "60s");
    ck_assert_contains(await(1, "other", "1s"),
                       "a dry run leaves schedulerName \"" NAME "\"");
    attempt_denied(attempt_user("a", "/CN=" ACCOUNT), "gpushare-pod-defaults",
                   "only as a dry run", "POST", "/api/v1/namespaces/kube-system/pods",
                   "{'metadata':{'name':'p'},'spec':{'containers':[{'name':'c','image':"
                   "'i'}]}}");

    static const char *const edits[][2] = {
        {"failurePolicy", "'Ignore'"},
        {"matchConditions", "[]"},
        {"rules/0/resources", "['secrets']"},
        {"clientConfig/url", "'https://127.0.0.2/pod-defaults'"}};
    const struct peer *extender =
        attempt_token(cluster_token("gpushare-schd-extender", NULL));
    array_indices(i, edits)
        attempt_denied(extender, "gpushare-extender", "only the caBundle", "JSON",
                       WEBHOOK,
                       lib_fmt("[{'op':'add','path':'/webhooks/0/%s','value':%s}]",
                               edits[i][0], edits[i][1]));

    /* New certificates, of another authority and another leader. */
    extender_stop(&first);
    const char *bundle =
        lib_str(peer_get(&cluster.api, WEBHOOK), "webhooks.0.clientConfig.caBundle");
    cluster_kubectl("-n", "kube-system", "delete", "secret", "gpushare-extender-ca",
                    "gpushare-extender-tls", "gpushare-scheduler-tls");
    lib_wait(is_set_or_refused() && strcmp(lib_str(peer_get(&cluster.api, WEBHOOK),
                                                   "webhooks.0.clientConfig.caBundle"),
                                           bundle) != 0);
    lib_wait(is_set_or_refused());

    extender_stop(&second);
    ck_assert(!is_set_or_refused());
    dry_run("", ONE(""));
    dry_run("", ONE(LIMIT("nvidia.com/gpu")));
    ck_assert_contains(await(1, NAME, "1s"), "failed calling webhook");
    cluster_kubectl("delete", "-f", file);
    cluster_kubectl("delete", "runtimeclass", "nvidia", "other");
}

/* -- two kube-schedulers -- */

/* The chart's kube-scheduler as a process of this machine: its own account and configuration,
 * but for the address of the extender, which listens on 127.0.0.1 without certificates. */
static void start_scheduler(struct program *p)
{
    cluster_kubectl("apply", "-f",
                    render_template("templates/scheduler.yaml",
                                    ",extender.insecure=true,scheduler.replicas=1"));
    cluster_add_user("second", "/CN=system:serviceaccount:kube-system:" NAME);
    temp_write(
        lib_dir, "second.yaml",
        lib_in(peer_get(&cluster.api, "/api/v1/namespaces/kube-system/configmaps/" NAME),
               "data", "config.yaml"));
    cluster_scheduler(p, lib_path("second.yaml"), "second");
}

/* A pod with this CPU, and GPU memory if `units` is not 0. `more`: further members of spec. */
static void create(const char *name, int cpu, int units, const char *more)
{
    if (units && !*more && !has_policies())
        more = SCHEDULER(NAME);
    cluster_create(
        PODS,
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\"},"
        "\"spec\":{\"containers\":[{" IMAGE ",\"resources\":{\"limits\":{"
        "\"cpu\":\"%d\"%s}}}]%s}}",
        name, cpu, units ? lib_fmt(",\"aliyun.com/gpu-mem\":\"%d\"", units) : "", more);
}

/* Starts the chart's kube-scheduler on a cluster with a node of 64 CPU. */
static void begin_two(struct program *second)
{
    cluster_add_node("n1", "", CARDS(16 * 1024));
    if (has_policies())
        apply_policy("");
    start_scheduler(second);
    lib_wait(!has_policies() || is_changed("", GPU, NAME));
}

static void end_two(struct program *second)
{
    ck_assert_lacks(program_output(second), "forbidden");
    program_stop(second);
    if (!has_policies())
        return;
    cluster_kubectl("delete",
                    "mutatingadmissionpolicy,"
                    "mutatingadmissionpolicybinding",
                    "gpushare-pods");
}

/* What the first kube-scheduler does that has not heard yet of the second one's bind. */
static void bind_by_an_old_view(const char *name, int cpu)
{
    create(name, cpu, 0, SCHEDULER("nobody"));
    cluster_create(lib_fmt(PODS "/%s/binding", name),
                   "{\"apiVersion\":\"v1\",\"kind\":\"Binding\",\"metadata\":{\"name\":"
                   "\"%s\"},\"target\":{\"kind\":\"Node\",\"name\":\"n1\"}}",
                   name);
    cluster_wait_running(name);
}

/* The kubelet's answer to a pod that does not fit. */
static void reject_as_the_kubelet(const char *name)
{
    cluster_kubectl("patch", "pod", name, "--subresource", "status", "--type", "merge",
                    "-p", "{\"status\":{\"phase\":\"Failed\",\"reason\":\"OutOfcpu\"}}");
}

/* Both kube-schedulers gave the CPU of the node away, so the kubelet rejects the pod that came
 * second. Its GPU memory is free for the next pod, which is bound by what both have bound. */
TEST(a_pod_that_the_kubelet_rejects_for_cpu_gives_its_card_back)
{
    struct program second;
    begin_two(&second);
    create("gpu", 40, 10, "");
    cluster_wait_running("gpu");
    expect_on("gpu", "n1", "0");
    ck_assert_at(cluster_pod("gpu"), "spec.schedulerName", NAME);
    bind_by_an_old_view("plain", 40);
    create("no-card", 1, 10, ""); /* the card has 6 GiB */
    cluster_wait_refused("no-card", "Insufficient");
    reject_as_the_kubelet("gpu");
    cluster_wait_running("no-card");
    expect_on("no-card", "n1", "0");
    create("no-cpu", 40, 1, ""); /* the node has 23 CPU */
    cluster_wait_refused("no-cpu", "Insufficient cpu");
    end_two(&second);
}

/* -- helm test -- */

/* Runs the command of the pod that asks the extender, with another address. */
static char *ask_as_helm_test(int status, const char *path)
{
    const json_t *c = lib_at(yamlfile_one(render_template("templates/tests/extender.yaml",
                                                          ",extender.insecure=true")),
                             "spec.containers.0");
    json_t *arg;
    const char *argv[PROGRAM_ARGS] = {lib_str(c, "command.0")};
    size_t n = 1;
    lib_each(arg, lib_at(c, "args"))
        n = program_args(argv, n, ARGV(json_string_value(arg)));
    ck_assert_str_eq(argv[n - 1], "http://gpushare-schd-extender.kube-system.svc:12345/"
                                  "gpushare-scheduler/filter");
    argv[n - 1] = lib_fmt("http://127.0.0.1:%u%s", cluster.extender.verbs.port, path);
    return lib_output(status, argv);
}

TEST(the_pod_of_helm_test_asks_the_extender)
{
    ck_assert_contains(ask_as_helm_test(0, "/gpushare-scheduler/filter"),
                       "\"NodeNames\":");
    ck_assert_contains(ask_as_helm_test(22, "/gpushare-scheduler/nothing"), "404");
}

int main(void)
{
    return cluster_run(120, has_policies() ? ARGV("--nodes", "0", "--gates",
                                                  "MutatingAdmissionPolicy=true")
                                           : ARGV("--nodes", "0"));
}
