/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cluster.h"
#include "lib/yamlfile.h"

/*
 * manifests/chart: it renders the same objects as the plain files, and a real API server
 * accepts them without unknown fields. (helm in a cluster: test_helm.)
 */

#define AGENT          "scv-agent"
#define PLUGIN         "gpushare-device-plugin-ds"
#define PLUGIN_ACCOUNT "gpushare-device-plugin"

/* test/e2e/chart/NAME.yaml. The last one has kinds that the API server does not serve. */
static const char *const sets[] = {
    NULL,   "host-nvml",     "everything", "node",         "little",    "files",
    "host", "any-scheduler", "loopback",   "cert-manager", "monitoring"};
enum { SERVED = 10 }; /* sets without such kinds */

/* `helm template` for a namespace with further options (ends with NULL). */
static char *template(int status, const char *namespace, const char *const *more)
{
    const char *argv[PROGRAM_ARGS] = {"template", "gpushare",       CHART, "-n",
                                      namespace,  "--kube-version", "1.35"};
    program_args(argv, 7, more);
    return cluster_tool("helm", status, argv);
}

/* Its objects, which are also in the file rendered.yaml. */
static json_t *rendered_in(const char *namespace, const char *const *more)
{
    temp_write(lib_dir, "rendered.yaml", template(0, namespace, more));
    return yamlfile_all(lib_path("rendered.yaml"));
}

static char *values_of(const char *set)
{
    return lib_fmt("test/e2e/chart/%s.yaml", set);
}

static json_t *rendered(const char *set)
{
    /* The pods of `helm test` belong to no installation with kubectl. */
    return rendered_in("kube-system",
                       set ? ARGV("-f", values_of(set)) : ARGV("--skip-tests"));
}

/* -- the plain files -- */

/* The labels of the chart and its version, and the Lease, which the extender creates. */
static bool is_of_chart(json_t *j)
{
    const char *key;
    void *next;
    json_t *meta = lib_at(j, "metadata"), *labels = lib_at(meta, "labels"), *v;
    json_object_foreach_safe(labels, next, key,
                             v) if (strncmp(key, "app.kubernetes.io/", 18) == 0 ||
                                    strncmp(key, "helm.sh/", 8) == 0)
        json_object_del(labels, key);
    if (labels && json_object_size(labels) == 0)
        json_object_del(meta, "labels");
    return strcmp(lib_str(j, "kind"), "Lease") == 0;
}

/* Objects by kind, namespace and name: all, or those that are in `of`. */
static json_t *by_title(const json_t *all, const json_t *of)
{
    json_t *j, *map = lib_own(json_object());
    lib_each(j, all) {
        const char *title =
            lib_fmt("%s %s/%s", lib_str(j, "kind"), lib_str(j, "metadata.namespace"),
                    lib_str(j, "metadata.name"));
        ck_assert_msg(!json_object_get(map, title), "duplicate %s", title);
        if (!is_of_chart(j) && (!of || json_object_get(of, title)))
            json_object_set(map, title, j);
    }
    return map;
}

/* The chart has the wanted objects, and no others unless they are allowed. */
static void check_same(const json_t *wanted, const json_t *chart, bool others)
{
    json_t *want = by_title(wanted, NULL), *got = by_title(chart, others ? want : NULL);
    ck_assert_uint_gt(json_object_size(want), 0);
    json_dump_file(want, lib_path("wanted"), JSON_SORT_KEYS | JSON_INDENT(1));
    json_dump_file(got, lib_path("got"), JSON_SORT_KEYS | JSON_INDENT(1));
    lib_output(0, ARGV("diff", "-u", lib_path("wanted"), lib_path("got")));
}

/* The object of that kind and name in an array; NULL: there is none. */
static json_t *find_object(const json_t *all, const char *kind, const char *name)
{
    json_t *j;
    lib_each(j, all)
        if (strcmp(lib_str(j, "kind"), kind) == 0 &&
            strcmp(lib_str(j, "metadata.name"), name) == 0)
            return j;
    return NULL;
}

static json_t *object_of(const json_t *all, const char *kind, const char *name)
{
    json_t *j = find_object(all, kind, name);
    ck_assert_msg(j != NULL, "there is no %s %s", kind, name);
    return j;
}

/* The rule of the extender's role that HAMi's quotas need; -1: it has none. */
static int quota_rule(const json_t *all)
{
    const json_t *rules =
        lib_at(object_of(all, "ClusterRole", "gpushare-schd-extender"), "rules");
    for (int i = 0; i < (int)json_array_size(rules); i++)
        if (strcmp(lib_text(json_array_get(rules, (size_t)i), "resources"),
                   "[\"resourcequotas\"]") == 0)
            return i;
    return -1;
}

/* The role of the plain files is for HAMi's requests, too. */
TEST(the_other_way_gives_the_objects_of_the_plain_files)
{
    json_t *wanted = yamlfile_all("manifests/*.yaml");
    int quotas = quota_rule(wanted);
    ck_assert_int_ge(quotas, 0);
    json_array_remove(
        lib_at(object_of(wanted, "ClusterRole", "gpushare-schd-extender"), "rules"),
        (size_t)quotas);
    check_same(
        wanted,
        rendered_in("kube-system", ARGV("--skip-tests", "--set",
                                        "scheduler.enabled=false,extender.replicas=1")),
        false);
}

static json_t *pod_of(const json_t *all, const char *kind, const char *name)
{
    return lib_at(object_of(all, kind, name), "spec.template.spec");
}

/* The first container of a workload. */
static json_t *container_of(const json_t *all, const char *kind, const char *name)
{
    return lib_at(pod_of(all, kind, name), "containers.0");
}

static void check_has(const json_t *list, const char *word)
{
    ck_assert_msg(lib_find(list, "", word) != NULL, "no \"%s\" in %s", word,
                  lib_text(list, ""));
}

static const json_t *extender_of(const json_t *all)
{
    return container_of(all, "Deployment", "gpushare-schd-extender");
}

/* Every option that the comments of a file name is set. */
static void check_options_of(const char *path, const json_t *extender)
{
    char *rest = lib_file(path), *line;
    size_t n = 0;
    while ((line = strsep(&rest, "\n"))) {
        if (strncmp(line, "#   - --", 8) != 0)
            continue;
        check_has(lib_at(extender, "args"), line + strlen("#   - "));
        n++;
    }
    ck_assert_uint_gt(n, 0);
}

TEST(options_give_the_objects_of_the_examples)
{
    json_t *chart = rendered("everything");
    json_t *api = yamlfile_all("manifests/apiservice.yaml.example");
    static const char *const files[] = {
        "manifests/network-policy.yaml.example",  "manifests/pdb.yaml.example",
        "manifests/mps-daemon.yaml.example",      "manifests/rbac-overuse.yaml.example",
        "manifests/rbac-preemption.yaml.example", "manifests/hami-policy.yaml.example"};
    json_t *service = object_of(api, "APIService", "v1.nvidia-gpu-scheduler");
    /* Every cluster has its own. */
    ck_assert_at(service, "spec.caBundle", "");
    json_object_set_new(lib_at(service, "spec"), "caBundle", json_string("eA=="));
    check_same(api, chart, true);
    check_options_of("manifests/apiservice.yaml.example", extender_of(chart));
    array_indices(i, files) {
        json_t *wanted = yamlfile_all(files[i]);
        if (i == 0) { /* with the APIService, the API server may connect, too */
            json_t *policy = object_of(wanted, "NetworkPolicy", "gpushare-schd-extender");
            json_array_insert_new(lib_at(policy, "spec.ingress"), 1,
                                  json_pack("{s[{s{ss}}]s[{sssi}]}", "from", "ipBlock",
                                            "cidr", "192.0.2.0/28", "ports", "protocol",
                                            "TCP", "port", 12346));
        }
        check_same(wanted, chart, true);
    }
}

/* The chart's kube-scheduler is the one of policy/, but for the checksum that restarts it. */
TEST(the_second_scheduler_equals_the_one_of_policy)
{
    json_t *chart = rendered(NULL);
    json_t *wanted = yamlfile_all("policy/second-scheduler.yaml.example");
    json_t *meta = lib_at(object_of(chart, "Deployment", "gpushare-scheduler"),
                          "spec.template.metadata");
    ck_assert_uint_eq(json_object_size(lib_at(meta, "annotations")), 1);
    json_object_del(meta, "annotations");
    json_object_set_new(container_of(wanted, "Deployment", "gpushare-scheduler"), "image",
                        json_string("registry.k8s.io/kube-scheduler:v1.35.0"));
    check_same(wanted, chart, true);
}

TEST(the_second_scheduler_follows_the_values_of_the_extender)
{
    json_t *all = rendered_in("gpu", ARGV("-f", "test/e2e/chart/any-scheduler.yaml",
                                          "--set", "extender.service.clusterIP=fd00::7"));
    temp_write(
        lib_dir, "config.yaml",
        lib_in(object_of(all, "ConfigMap", "gpushare-scheduler"), "data", "config.yaml"));
    const json_t *extender = lib_at(yamlfile_one(lib_path("config.yaml")), "extenders.0");
    const json_t *pod = pod_of(all, "Deployment", "gpushare-scheduler");
    const json_t *tls = lib_at(pod, "volumes.1");
    ck_assert_at(extender, "urlPrefix", "https://[fd00::7]:12345/gpushare-scheduler");
    ck_assert_at(extender, "tlsConfig.serverName", "extender.test");
    ck_assert_int_eq(lib_int(extender, "weight"), 21);
    ck_assert_ptr_null(json_object_get(extender, "managedResources"));
    ck_assert_at(tls, "secret.secretName", "client");
    ck_assert_at(container_of(all, "Deployment", "gpushare-scheduler"), "image",
                 "registry.example:5000/kube-scheduler:v1.35.9");
    const json_t *service =
        lib_at(object_of(all, "Service", "gpushare-schd-extender"), "spec");
    ck_assert_at(service, "clusterIP", "fd00::7");
    ck_assert_at(service, "ipFamilyPolicy", "PreferDualStack");
    ck_assert(!find_object(all, "PodDisruptionBudget", "gpushare-scheduler"));
    /* DNS, also that of OpenShift. */
    ck_assert_str_eq(
        lib_text(object_of(all, "NetworkPolicy", "gpushare-scheduler"), "spec.egress.2"),
        "{\"ports\":[{\"port\":53,\"protocol\":\"UDP\"},"
        "{\"port\":53,\"protocol\":\"TCP\"},"
        "{\"port\":5353,\"protocol\":\"UDP\"},"
        "{\"port\":5353,\"protocol\":\"TCP\"}]}");
    /* On a cluster whose control plane is the administrator's, the extender stays there. */
    const json_t *terms = lib_at(pod_of(all, "Deployment", "gpushare-schd-extender"),
                                 "affinity.nodeAffinity."
                                 "requiredDuringSchedulingIgnoredDuringExecution."
                                 "nodeSelectorTerms");
    ck_assert_uint_eq(json_array_size(terms), 2);
}

/* Only with the chart's kube-scheduler, certificates of the extender's own, and the policy that
 * limits the right. */
TEST(the_extender_may_restart_the_kube_scheduler_of_the_chart_alone)
{
    static const struct {
        const char *set;
        bool wanted;
    } cases[] = {
        {"logLevel=info", true},
        {"scheduler.enabled=,platform=kubeadm", true}, /* values of 0.1 */
        {"extender.tls.certManager.enabled=true", true},
        {"scheduler.enabled=false", false},
        {"admissionPolicies=false", false},
        {"extender.insecure=true", false},
        {"extender.tls.secretName=a,extender.replicas=1,scheduler.tlsSecretName=b",
         false},
    };
    static const char rule[] =
        "{\"apiGroups\":[\"apps\"],\"resourceNames\":[\"gpushare-scheduler\"],"
        "\"resources\":[\"deployments\"],\"verbs\":[\"get\",\"patch\"]}";
    array_items(c, cases) {
        json_t *j, *r, *all = rendered_in("gpu", ARGV("--set", c->set));
        int rules = 0;
        lib_each(j, all) {
            lib_each(r, lib_at(j, "rules")) {
                if (!strstr(lib_text(r, ""), "deployments"))
                    continue;
                rules++;
                ck_assert_str_eq(lib_text(r, ""), rule);
                ck_assert_at(j, "kind", "Role");
                ck_assert_at(j, "metadata.namespace", "gpu");
            }
        }
        ck_assert_msg(rules == c->wanted, "%s: %d rules", c->set, rules);
        ck_assert_msg(!strstr(lib_text(extender_of(all), ""),
                              "\"--scheduler-deployment=gpushare-scheduler\"") !=
                          c->wanted,
                      "%s", c->set);
    }
}

/* manifests/chart/README.md lists what stays in kube-system, with the reasons. */
static bool stays(const json_t *j)
{
    static const char *const there[][2] = {
        {"Role", "gpushare-schd-extender"},
        {"RoleBinding", "gpushare-schd-extender"},
        {"RoleBinding", "gpushare-scheduler-authentication"},
        {"Role", "gpushare-inspect"}};
    array_indices(i, there)
        if (strcmp(lib_str(j, "kind"), there[i][0]) == 0 &&
            strcmp(lib_str(j, "metadata.name"), there[i][1]) == 0)
            return true;
    return false;
}

TEST(another_namespace_has_everything_but_four_objects)
{
    json_t *all = rendered_in("gpu", NULL);
    size_t kept = 0;
    json_t *j;
    lib_each(j, all) {
        const char *ns = lib_str(j, "metadata.namespace"), *text = lib_text(j, "");
        bool outside = strcmp(ns, "kube-system") == 0;
        kept += outside;
        ck_assert_msg(!outside || stays(j), "%s", text);
        ck_assert_msg(outside || !strstr(text, "kube-system") ||
                          strcmp(lib_str(j, "kind"), "Pod") == 0,
                      "%s", text);
    }
    ck_assert_uint_eq(kept, 4);
    check_has(lib_at(extender_of(all), "args"), "--lease-namespace=gpu");
    /* GKE: pods with the priority classes of the system need a quota there. */
    ck_assert(find_object(all, "ResourceQuota", "gpushare-critical-pods"));
}

/* What the account of a program may use. */
static bool is_bound(const json_t *all, const char *binding, const char *account)
{
    return lib_find(lib_at(object_of(all, "RoleBinding", binding), "subjects"), "name",
                    account);
}

TEST(openshift_is_found_out_and_gets_its_constraints)
{
    json_t *all = rendered_in(
        "gpu", ARGV("-a", "security.openshift.io/v1", "--set",
                    "mps.enabled=true,mps.image=cuda,devicePlugin.isolation=mps"));
    ck_assert(find_object(all, "Deployment", "gpushare-scheduler"));
    ck_assert(is_bound(all, "gpushare-scc-nonroot-v2", "gpushare-schd-extender"));
    ck_assert(is_bound(all, "gpushare-scc-nonroot-v2", "gpushare-scheduler"));
    ck_assert(!is_bound(all, "gpushare-scc-privileged", "scv-agent"));
    ck_assert(is_bound(all, "gpushare-scc-privileged", "gpushare-device-plugin"));
    ck_assert(is_bound(all, "gpushare-scc-privileged", "gpushare-mps"));
    ck_assert(find_object(all, "ServiceAccount", "gpushare-mps"));
    ck_assert_at(object_of(all, "DaemonSet", "gpushare-mps"),
                 "spec.template.spec.serviceAccountName", "gpushare-mps");
    static const char *const sets_of_nodes[] = {"gpushare-device-plugin-ds",
                                                "gpushare-mps"};
    array_items(p, sets_of_nodes) {
        const json_t *c = container_of(all, "DaemonSet", *p);
        ck_assert_at(c, "securityContext.seLinuxOptions.type", "spc_t");
    }
}

/* A copy of the chart that believes in an API server of this version and shows what it
 * finds. Returns what it shows. */
static char *shown_on(const char *version)
{
    char *chart = lib_path("copy");
    lib_output(0, ARGV("cp", "-rT", CHART, chart));
    lib_output(0,
               ARGV("sed", "-i",
                    lib_fmt("s/[.]Capabilities[.]KubeVersion[.]Version/\"%s\"/", version),
                    lib_path("copy/templates/_helpers.tpl")));
    temp_write(lib_dir, "copy/templates/shown.yaml",
               "shown: {{ include \"gpushare.schedulerImage\" . }}\n");
    return cluster_tool("helm", 0,
                        ARGV("template", "x", chart, "-s", "templates/shown.yaml",
                             "--kube-version", "1.35"));
}

TEST(the_image_of_kube_scheduler_is_one_that_exists)
{
    static const char *const cases[][2] = {{"v1.33.5-eks-113cf36", "v1.33.5"},
                                           {"v1.33.5-gke.1080000", "v1.33.5"},
                                           {"v1.33.5+rke2r1", "v1.33.5"},
                                           {"v1.33", "v1.33.0"}};
    array_indices(i, cases)
        ck_assert_contains(
            shown_on(cases[i][0]),
            lib_fmt("shown: registry.k8s.io/kube-scheduler:%s\n", cases[i][1]));
    /* Without a version, helm takes that of its client library. */
    const char *said = cluster_tool("helm", 1, ARGV("template", "x", CHART));
    static const char named[] =
        "set scheduler.image.tag to the version of the API server, which may be ";
    const char *at = strstr(said, named);
    ck_assert_msg(at != NULL, "%s", said);
    at += strlen(named);
    /* That version given as an option looks the same to the chart: the value that the message
     * names is the way. */
    const char *assumed = lib_fmt("%.*s", (int)strcspn(at, ","), at);
    ck_assert_contains(
        cluster_tool("helm", 1, ARGV("template", "x", CHART, "--kube-version", assumed)),
        named);
    ck_assert_contains(
        cluster_tool("helm", 0,
                     ARGV("template", "x", CHART, "--kube-version", assumed, "--set",
                          lib_fmt("scheduler.image.tag=%s", assumed))),
        lib_fmt("registry.k8s.io/kube-scheduler:%s\"\n", assumed));
    static const struct {
        const char *version, *set, *tag;
        bool exists;
    } tags[] = {
        {"1.35", "scheduler.image.tag=v1.36.1", "v1.36.1", true},
        {"1.35", "scheduler.image.tag=v1.36.0-rc.1", "v1.36.0-rc.1", true},
        {"v1.30.101", "scheduler.image.tag=v1.30.14", "v1.30.14", true},
        {"v1.30.101", "scheduler.image.registry=own,scheduler.image.tag=v1.30.101",
         "v1.30.101", true}, /* of the administrator */
        {"1.35", "scheduler.image.registry=own,scheduler.image.tag=1.35.0", "1.35.0",
         true},
        {"1.35", "scheduler.image.tag=1.35.0", "1.35.0", false},
        {"1.35", "scheduler.image.tag=v1.35", "v1.35", false},
        {"1.35", "scheduler.image.tag=v1.33.5-eks-113cf36", "v1.33.5-eks-113cf36", false},
        {"1.35", "scheduler.image.tag=v1.30.100", "v1.30.100", false},
        {"v1.30.101", "logLevel=info", "v1.30.101", false},
        {"v1.30.100+aks", "scheduler.image.registry=own", "v1.30.100", false},
    };
    array_items(c, tags) {
        said = template(c->exists ? 0 : 1, "kube-system",
                        ARGV("--kube-version", c->version, "--set", c->set));
        ck_assert_contains(said, lib_fmt("kube-scheduler:%s%s", c->tag,
                                         c->exists ? "\"\n" : "; set the tag of"));
    }
}

/* By a policy of an API version, by the webhook, or not at all; and helm waits only where there is
 * something to wait for. */
TEST(pods_get_their_defaults_only_where_the_api_server_can_set_them)
{
#define POLICIES(version)                                                                \
    "admissionregistration.k8s.io/" version "/MutatingAdmissionPolicy"
#define FILES                                                                            \
    "extender.tls.secretName=s,extender.tls.serverName=n,scheduler.tlsSecretName=t"
#define CLASS "scheduler.enabled=false,podDefaults.runtimeClassName=nvidia"
    static const char webhook[] = "webhook";
    static const struct {
        const char *version, *set, *api, *wanted; /* NULL: nothing */
    } cases[] = {
        {"1.35", "logLevel=info", POLICIES("v1"), "v1"},
        {"1.35", "logLevel=info", POLICIES("v1beta1"), "v1beta1"},
        {"1.36", "logLevel=info", POLICIES("v1beta1"), "v1"},
        {"1.37", "logLevel=info", "v1", "v1"},
        {"1.35", "logLevel=info", POLICIES("v1alpha1"), webhook},
        {"1.30", "logLevel=info", "v1", webhook},
        {"1.37", "podDefaults.webhook=true", POLICIES("v1"), webhook},
        {"1.35", FILES ",podDefaults.caBundle=Cg==", "v1", webhook},
        {"1.35", FILES, "v1", NULL},
        {"1.35", "extender.insecure=true", "v1", NULL},
        {"1.35", "admissionPolicies=false", "v1", NULL},
        {"1.29", "admissionPolicies=false", "v1", NULL},
        {"1.37", "admissionPolicies=false", "v1", "v1"},
        {"1.37", "podDefaults.schedulerName=false", "v1", NULL},
        {"1.35", "podDefaults.schedulerName=false", "v1", NULL},
        {"1.37", "scheduler.enabled=false", "v1", NULL},
        {"1.37", CLASS, "v1", "v1"},
        {"1.35", CLASS, "v1", webhook},
    };
    static const char *const kinds[] = {"MutatingAdmissionPolicy",
                                        "MutatingAdmissionPolicyBinding",
                                        "MutatingWebhookConfiguration"};
    array_items(c, cases) {
        const char *wanted = c->wanted;
        json_t *all = rendered_in(
            "gpu", ARGV("--set", c->set, "-a", c->api, "--kube-version", c->version));
        array_indices(k, kinds) {
            const json_t *object = find_object(all, kinds[k], "gpushare-pods");
            bool is_webhook = k == 2;
            ck_assert_msg(!!object == (wanted && is_webhook == (wanted == webhook)),
                          "%s %s: %s", c->version, c->set, kinds[k]);
            if (object)
                ck_assert_at(object, "apiVersion",
                             lib_fmt("admissionregistration.k8s.io/%s",
                                     is_webhook ? "v1" : wanted));
        }
        /* Without the policy its account could run any pod. */
        bool waits = wanted && !strstr(c->set, "admissionPolicies=false");
        ck_assert(!!find_object(all, "Job", "gpushare-pod-defaults") == waits);
        ck_assert(!!find_object(all, "Role", "gpushare-pod-defaults") == waits);
        /* Only an extender that makes its certificates writes the caBundle. */
        ck_assert(!!find_object(all, "ClusterRole", "gpushare-pod-webhook") ==
                  (wanted == webhook && !strstr(c->set, "secretName")));
    }
}

/* Where sidecars, quotas or taints need values of the extender, the pods that run once need them, too. */
TEST(pods_that_run_once_have_what_those_of_the_extender_have)
{
    static const char values[] =
        "extender={\"podAnnotations\":{\"inject\":\"no\"},\"podLabels\":{\"team\":\"1\"},"
        "\"nodeSelector\":{\"pool\":\"a\"},\"tolerations\":[{\"operator\":\"Exists\"}],"
        "\"resources\":{\"limits\":{\"cpu\":\"2\"}},\"priorityClassName\":\"high\","
        "\"onControlPlane\":true,\"affinity\":{\"podAffinity\":{\"a\":1},"
        "\"podAntiAffinity\":{\"b\":1}}},image.pullSecrets=[{\"name\":\"mine\"}],"
        "devicePlugin.podAnnotations={\"inject\":\"no\"}";
    static const char *const same[] = {"nodeSelector",          "tolerations",
                                       "affinity.nodeAffinity", "affinity.podAffinity",
                                       "imagePullSecrets",      "containers.0.resources"};
    json_t *all = rendered_in("gpu", ARGV("--set-json", values));
    const json_t *job = object_of(all, "Job", "gpushare-pod-defaults"),
                 *test = object_of(all, "Pod", "gpushare-test-extender"),
                 *card = object_of(all, "Pod", "gpushare-test-card"),
                 *extender = pod_of(all, "Deployment", "gpushare-schd-extender");
    const json_t *const specs[] = {lib_at(job, "spec.template.spec"),
                                   lib_at(test, "spec")};
    ck_assert_ptr_nonnull(lib_at(extender, "affinity.podAntiAffinity"));
    array_items(spec, specs) {
        array_items(part, same) {
            ck_assert_str_ne(lib_text(extender, *part), "");
            ck_assert_str_eq(lib_text(*spec, *part), lib_text(extender, *part));
        }
        /* Replicas on all nodes must not keep it from running. */
        ck_assert_ptr_null(lib_at(*spec, "affinity.podAntiAffinity"));
    }
    ck_assert_at(specs[0], "priorityClassName", "high");
    ck_assert_at(job, "spec.template.metadata.annotations.inject", "no");
    ck_assert_at(job, "spec.template.metadata.labels.team", "1");
    ck_assert_at(test, "metadata.annotations.inject", "no");
    ck_assert_at(test, "metadata.labels.team", "1");
    ck_assert_at(card, "metadata.annotations.inject", "no");
}

/* https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/ */
static void check_labels(const json_t *object, const json_t *metadata)
{
    static const char *const wanted[][2] = {{"name", "gpushare"},
                                            {"instance", "gpushare"},
                                            {"component", NULL},
                                            {"part-of", "gpushare"}};
    array_indices(i, wanted) {
        const char *key = lib_fmt("app.kubernetes.io/%s", wanted[i][0]);
        const char *is = lib_in(metadata, "labels", key);
        ck_assert_msg(*is && (!wanted[i][1] || !strcmp(is, wanted[i][1])),
                      "%s %s: label %s is \"%s\"", lib_str(object, "kind"),
                      lib_str(object, "metadata.name"), key, is);
    }
}

TEST(workloads_pods_and_services_have_the_common_labels)
{
    json_t *all = rendered_in("gpu", ARGV("--set", "monitoring.podMonitors.enabled=true,"
                                                   "monitoring.rules.enabled=true,"
                                                   "monitoring.dashboards.enabled=true"));
    size_t n = 0;
    json_t *o;
    lib_each(o, all) {
        const char *kind = lib_str(o, "kind"),
                   *chart = lib_in(o, "metadata.labels", "helm.sh/chart");
        ck_assert_msg(strcmp(chart, "gpushare-" GPUSHARE_VERSION) == 0, "%s %s: \"%s\"",
                      kind, lib_str(o, "metadata.name"), chart);
        ck_assert_str_eq(lib_in(o, "metadata.labels", "app.kubernetes.io/managed-by"),
                         "Helm");
        if (strcmp(kind, "Deployment") && strcmp(kind, "DaemonSet") &&
            strcmp(kind, "Service") && strcmp(kind, "Pod"))
            continue;
        n++;
        check_labels(o, lib_at(o, "metadata"));
        const json_t *template = lib_at(o, "spec.template.metadata");
        if (template)
            check_labels(o, template);
        /* Selectors cannot change in an upgrade. */
        ck_assert_lacks(lib_text(o, "spec.selector"), "app.kubernetes.io/");
    }
    ck_assert_uint_ge(n, 6);
}

TEST(several_replicas_equal_the_patched_deployment)
{
    temp_write(lib_dir, "patched.yaml",
               cluster_kubectl("patch", "--local", "-f", "manifests/deployment.yaml",
                               "--patch-file", "manifests/replicas.patch.yaml.example",
                               "-o", "yaml"));
    check_same(yamlfile_all(lib_path("patched.yaml")),
               rendered_in("kube-system",
                           ARGV("--set", "scheduler.enabled=false,extender.replicas=3")),
               true);
}

/* Only scv-agent knows the cards; the capacity of a fresh node is a guess. */
TEST(nodes_without_an_scv_get_no_pods_where_the_chart_installs_scv_agent)
{
    static const struct {
        const char *set, *has, *lacks;
    } cases[] = {{"scvAgent.enabled=true", "\"--require-scv\"", "--require-scv=off"},
                 {"scvAgent.enabled=false", "\"--memory-unit=GiB\"", "--require-scv"},
                 {"extender.extraArgs={--require-scv=off}", "\"--require-scv=off\"",
                  "\"--require-scv\""}};
    array_items(c, cases) {
        json_t *all = rendered_in("kube-system", ARGV("--set", c->set));
        const char *args =
            lib_text(object_of(all, "Deployment", "gpushare-schd-extender"),
                     "spec.template.spec.containers.0.args");
        ck_assert_contains(args, c->has);
        ck_assert_lacks(args, c->lacks);
    }
}

/* HAMi's limits, which no node offers, reach the extender and are not counted; with a name that HAMi's
 * pods have; and nodes serve nvidia.com/gpu only where a value says so. */
TEST(pods_of_hami_are_scheduled_where_the_values_say_so)
{
    static const char ignored[] =
        "  - name: nvidia.com/gpu\n    ignoredByScheduler: false\n"
        "  - name: nvidia.com/gpumem\n    ignoredByScheduler: true\n"
        "  - name: nvidia.com/gpumem-percentage\n    ignoredByScheduler: true\n"
        "  - name: nvidia.com/gpucores\n    ignoredByScheduler: true\n"
        "  - name: nvidia.com/priority\n    ignoredByScheduler: true\n";
    for (int k = 0; k < 4; k++) {
        const bool hami = k > 0, named = k > 1, all_pods = k == 3;
        json_t *all = rendered_in(
            "gpu",
            ARGV("--kube-version", "1.37", "--set",
                 lib_fmt("requestsOf=%s,gpuNodes.dialect=%s,scheduler.secondName=%s,"
                         "extender.allPods=%s,"
                         "extender.extraArgs={--hami-values=defaultCores=5}",
                         hami ? "hami" : "", named ? "hami" : "",
                         named ? "hami-scheduler" : "", all_pods ? "true" : "false")));
        const char *config = lib_in(object_of(all, "ConfigMap", "gpushare-scheduler"),
                                    "data", "config.yaml");
        ck_assert(!!strstr(config, ignored) == (hami && !all_pods));
        ck_assert(!!strstr(config, "\n- schedulerName: hami-scheduler\n") == named);
        ck_assert(!!strstr(config, "ignoredResources: [nvidia.com/gpumem,") == all_pods);
        const char *args =
            lib_text(container_of(all, "Deployment", "gpushare-schd-extender"), "args");
        ck_assert(!!strstr(args, "--requests-of=hami") == hami);
        ck_assert(!!strstr(args, "--preempt-after=30s") == hami);
        ck_assert(!!find_object(all, "ClusterRole",
                                "gpushare-schd-extender-preemption") == hami);
        ck_assert((quota_rule(all) >= 0) == hami);
        args = lib_text(container_of(all, "DaemonSet", PLUGIN), "args");
        ck_assert(!!strstr(args, "--requests-of=hami") == named);
        ck_assert_contains(args, "--hami-values=defaultCores=5");
        const char *policy =
            lib_text(object_of(all, "MutatingAdmissionPolicy", "gpushare-pods"), "spec");
        ck_assert(!!strstr(policy, "'nvidia.com/gpumem'") == hami);
        ck_assert(!!strstr(policy, "ApplyConfiguration") == hami);
    }
}

TEST(rules_dashboard_and_version_equal_those_of_the_project)
{
    json_t *chart = rendered("monitoring"), *meta = yamlfile_one(CHART "/Chart.yaml");
    ck_assert(json_equal(lib_at(object_of(chart, "PrometheusRule", "gpushare"), "spec"),
                         yamlfile_one("manifests/monitoring/prometheus-rules.yaml")));
    ck_assert(json_equal(
        lib_at(object_of(chart, "PrometheusRule", "gpushare-hami-names"), "spec"),
        yamlfile_one("manifests/monitoring/hami-names.yaml")));
    const char *dashboard = lib_in(object_of(chart, "ConfigMap", "gpushare-dashboard"),
                                   "data", "gpushare.json");
    ck_assert_str_eq(dashboard, lib_file("manifests/monitoring/grafana-dashboard.json"));
    static const char *const programs[] = {
        "gpushare-schd-extender", "gpushare-device-plugin", "gpushare-scheduler"};
    array_items(program, programs)
        ck_assert_at(object_of(chart, "PodMonitor", *program),
                     "spec.selector.matchLabels.component", *program);
    ck_assert_at(meta, "version", GPUSHARE_VERSION);
    ck_assert_at(meta, "appVersion", GPUSHARE_VERSION);
}

/* The permission of the chart's token reads what its PodMonitor keeps, after an attempt. */
TEST(few_metrics_of_kube_scheduler_are_kept)
{
    const json_t *monitor =
        object_of(rendered("monitoring"), "PodMonitor", "gpushare-scheduler");
    const char *port = cluster_file("run/kube-scheduler.port");
    temp_write(lib_dir, "keep",
               lib_fmt("^(%s)[{ ]\n",
                       lib_str(monitor,
                               "spec.podMetricsEndpoints.0.metricRelabelings.0.regex")));
    cluster_kubectl("create", "clusterrolebinding", "metrics",
                    "--clusterrole=gpushare-metrics-reader",
                    "--serviceaccount=kube-system:default");
    cluster_create_pod("p", 1, "", "");
    lib_wait(*cluster_condition(cluster_pod("p")));
    lib_output(
        0,
        ARGV("curl", "-skf", "--retry", "9", "--retry-all-errors", "-H",
             lib_fmt("Authorization: Bearer %s", cluster_token("default", NULL)), "-o",
             lib_path("metrics"),
             lib_fmt("https://127.0.0.1:%.*s/metrics", (int)strcspn(port, "\n"), port)));
    const char *kept =
        lib_output(0, ARGV("grep", "-Ef", lib_path("keep"), lib_path("metrics")));
    size_t n = 0;
    for (const char *c = kept; *c; c++)
        n += *c == '\n';
    ck_assert_contains(kept, "scheduler_pending_pods{queue=\"unschedulable\"}");
    ck_assert_contains(kept, "scheduler_schedule_attempts_total{");
    ck_assert_contains(kept, "scheduler_scheduling_attempt_duration_seconds_bucket{");
    ck_assert_uint_le(n, 100);
}

/* -- values -- */

/* Every value of the schema has a description and is in values.yaml, where users look
 * for it. */
static void check_described(const json_t *schema, const json_t *values, const char *where)
{
    const char *key;
    json_t *v;
    ck_assert_msg(*lib_str(schema, "description") || !*where, "%s has no description",
                  where);
    json_object_foreach(lib_at(schema, "properties"), key, v)
    {
        char *inner = lib_fmt("%s.%s", where, key);
        const json_t *value = json_object_get(values, key);
        if (strstr(lib_str(v, "description"), "Not used; "))
            continue; /* helm's own, and one of 0.1 */
        ck_assert_msg(value != NULL, "values.yaml has no %s", inner);
        check_described(v, value, inner);
    }
}

TEST(every_value_of_the_schema_is_in_values_yaml)
{
    const char *schema = lib_file(CHART "/values.schema.json");
    check_described(lib_parse(schema, strlen(schema)), yamlfile_one(CHART "/values.yaml"),
                    "");
}

#define REUSE "--reset-then-reuse-values\n"

/* Without the value, as with `helm upgrade --reuse-values` from a chart that had no such value. */
static void check_lacks(const json_t *values, const char *where, const char *stable)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)values, key, v)
    {
        const char *path = lib_fmt("%s%s", where, key);
        bool is_new = !strstr(stable, lib_fmt("\nvalue %s\n", path)) &&
                      strchr(path, '.') == strrchr(path, '.');
        if (!is_new && !json_is_object(v))
            continue;
        const char *said = template(is_new ? 1 : -1, "kube-system",
                                    ARGV("--set", lib_fmt("%s=null", path)));
        bool fails = strncmp(said, "Error:", 6) == 0;
        ck_assert_msg(fails ? strstr(said, REUSE) != NULL : !is_new, "%s: %.300s", path,
                      said);
        check_lacks(v, lib_fmt("%s.", path), stable);
    }
}

TEST(an_upgrade_that_reuses_old_values_is_refused_with_the_option_that_works)
{
    check_lacks(yamlfile_one(CHART "/values.yaml"), "",
                lib_file("test/golden/stable.txt"));
}

/* What 1.0 rendered without a value, or without a whole map, is rendered still. */
TEST(null_is_what_it_was_in_1_0)
{
    json_t *all = rendered_in("gpu", ARGV("--set", "extender.service.clusterIP=null"));
    ck_assert_contains(
        lib_text(object_of(all, "ConfigMap", "gpushare-scheduler"), "data"),
        "https://gpushare-schd-extender.gpu.svc:12345/");
    all = rendered_in("gpu", ARGV("--set", "networkPolicy=null,monitoring=null"));
    object_of(all, "DaemonSet", PLUGIN);
    ck_assert(!find_object(all, "NetworkPolicy", "gpushare-schd-extender"));
}

TEST(invalid_values_are_rejected_with_a_reason)
{
    static const struct {
        const char *set, *reason;
    } cases[] = {
        {"memoryUnit=GB", "at '/memoryUnit': 'GB' does not match pattern"},
        {"memoryUnit=0MiB", "at '/memoryUnit': '0MiB' does not match pattern"},
        {"logLevel=trace", "at '/logLevel': value must be one of 'error', 'warn'"},
        {"replicas=3", "additional properties 'replicas' not allowed"},
        {"extender.replicas=0", "at '/extender/replicas': minimum: got 0, want 1"},
        {"extender.replicas=two", "at '/extender/replicas': got string, want integer"},
        {"extender.allPods=true,extender.replicas=1",
         "set extender.replicas to 2 or more"},
        {"extender.nodeScore=best", "at '/extender/nodeScore': value must be one of"},
        {"extender.resources.limit.cpu=2", "additional properties 'limit' not allowed"},
        {"image.registry=a/", "at '/image/registry': 'a/' does not match pattern"},
        {"image.pullPolicy=Sometimes", "at '/image/pullPolicy': value must be one of"},
        {"extender.image.digest=sha256:1",
         "at '/extender/image/digest': 'sha256:1' does"},
        {"kubeletDir=/var/lib/kubelet/",
         "at '/kubeletDir': '/var/lib/kubelet/' does not"},
        {"gpuNodes.nodeSelector.gpushare=true",
         "nodeSelector/gpushare': got boolean, want"},
        {"devicePlugin.isolation=mig",
         "at '/devicePlugin/isolation': value must be one of"},
        {"devicePlugin.maxUnavailable=0", "maxUnavailable': minimum: got 0, want 1"},
        {"scvAgent.extraArgs={once}",
         "at '/scvAgent/extraArgs/0': 'once' does not match"},
        {"extender.extraEnv[0].name=A,extender.extraEnv[0].value=1",
         "at '/extender/extraEnv/0/value': got number, want string"},
        {"extender.extraArgs={--memory-unit=MiB}",
         "extender.extraArgs: --memory-unit is not allowed: set memoryUnit"},
        {"requestsOf=hami,extender.extraArgs={--hami-values}",
         "extender.extraArgs: --hami-values has no value"},
        {"requestsOf=hami,extender.extraArgs={--hami-values,defaultCores=5}",
         "at '/extender/extraArgs/1': 'defaultCores=5' does not match"},
        {"devicePlugin.extraArgs={--memory-unit=MiB}",
         "devicePlugin.extraArgs: --memory-unit is not allowed: set memoryUnit"},
        {"scvAgent.extraArgs={--port=1}",
         "scvAgent.extraArgs: --port is not allowed: the probes"},
        {"extender.extraEnv[0].name=PORT",
         "extender.extraEnv: PORT is not allowed: the Service"},
        {"devicePlugin.podLabels.app=x",
         "devicePlugin.podLabels: app is not allowed: the chart"},
        {"extender.tls.clientCA=true", "additional properties 'clientCA' not allowed"},
        {"extender.tls.serverName=a", "clientNames and serverName require"},
        {"extender.tls.secretName=a,extender.tls.certManager.enabled=true",
         "set only one of the three"},
        {"extender.insecure=true,extender.tls.certManager.enabled=true",
         "set only one of the three"},
        {"extender.tls.certManager.issuerRef.name=a", "has no effect without"},
        {"extender.tls.certManager.issuerRef.nam=a", "'nam' not allowed"},
        {"extender.extraArgs={--insecure}",
         "extender.extraArgs: --insecure is not allowed: set extender.insecure"},
        {"extender.hostNetwork=true,extender.replicas=1,extender.tls.secretName=a",
         "one replica listens on 127.0.0.1 without certificates"},
        {"extender.hostNetwork=true,extender.replicas=1,monitoring.podMonitors.enabled="
         "true",
         "nor Prometheus"},
        {"extender.tls.secretName=a,extender.replicas=2", "all replicas share one"},
        {"extender.tls.secretName=a,extender.replicas=2,extender.tls.serverName=x,"
         "extender.tls.clientNames={b}",
         "add the name in extender.tls.serverName"},
        {"extender.apiService.enabled=true,extender.insecure=true",
         "the API server requires HTTPS"},
        {"extender.apiService.enabled=true",
         "extender.apiService.caBundle: without it the API server trusts only public"},
        {"admissionPolicies=false,exemptAccounts={a}",
         "exemptAccounts: without admissionPolicies every account"},
        {"takeover=done", "takeover: without requestsOf"},
        {"exemptAccounts=a", "at '/exemptAccounts': got string, want array"},
        {"extender.tls.secretName=a,extender.replicas=1,monitoring.podMonitors.enabled="
         "true",
         "Prometheus scrapes pods by their address"},
        {"platform=7", "at '/platform': got number, want"},
        {"scheduler.enabled=yes", "at '/scheduler/enabled': value must be one of"},
        {"extender.service.clusterIP=None",
         "at '/extender/service/clusterIP': 'None' does not match"},
        {"extender.hostNetwork=true,extender.replicas=1",
         "scheduler.enabled: with extender.hostNetwork one replica listens"},
        {"extender.tls.secretName=a,extender.replicas=1",
         "scheduler.tlsSecretName: with extender.tls.secretName nobody makes"},
        {"scheduler.tlsSecretName=a", "scheduler.tlsSecretName: it has no effect"},
        {"scheduler.extraArgs={--config=a}",
         "scheduler.extraArgs: --config is not allowed"},
        {"scheduler.podLabels.component=x",
         "scheduler.podLabels: component is not allowed"},
        {"gpuNodes.xidIgnore=94 95", "at '/gpuNodes/xidIgnore': '94 95' does not match"},
        {"devicePlugin.extraArgs={--xid-fatal=31}",
         "--xid-fatal is not allowed: set gpuNodes.xidFatal instead"},
        {"requestsOf=kai", "at '/requestsOf': value must be one of"},
        {"gpuNodes.dialect=hami", "set requestsOf to hami"},
        {"requestsOf=hami,gpuNodes.dialect=hami,scvAgent.enabled=false",
         "gpuNodes.dialect: scvAgent publishes what devicePlugin serves"},
        {"devicePlugin.extraArgs={--requests-of=hami}",
         "--requests-of is not allowed: set gpuNodes.dialect instead"},
        {"extender.extraArgs={--requests-of=hami}",
         "--requests-of is not allowed: set requestsOf instead"},
        {"scheduler.enabled=false,scheduler.secondName=hami-scheduler",
         "scheduler.secondName: the chart installs no kube-scheduler"},
        {"mps.enabled=true", "mps.enabled: no container would use the MPS daemon"},
        {"mps.enabled=true,devicePlugin.isolation=mps", "mps.image: it has no default"},
    };
    array_items(c, cases)
        ck_assert_contains(template(1, "kube-system", ARGV("--set", c->set)), c->reason);
    ck_assert_contains(
        template(
            1, "default",
            ARGV("--set",
                 "extender.apiService.enabled=true,extender.apiService.caBundle=eA==")),
        "which is in kube-system; use helm -n kube-system");
    ck_assert_contains(template(1, "kube-system", ARGV("--kube-version", "1.29")),
                       "requires Kubernetes 1.30, and the cluster has v1.29");
    ck_assert_contains(
        template(1, "kube-system",
                 ARGV("--kube-version", "1.24", "--set", "admissionPolicies=false")),
        "requires Kubernetes 1.25, and the cluster has v1.24");
    ck_assert_contains(template(1, "gpu",
                                ARGV("-a", "security.openshift.io/v1", "--set",
                                     "extender.hostNetwork=true")),
                       "extender.hostNetwork: on OpenShift the constraint nonroot-v2");
}

/* CEL has the escapes of JSON. (The API server compiles the one of everything.yaml.) */
TEST(exempt_accounts_are_in_the_policy)
{
    static const char accounts[] = "exemptAccounts=[\"a:b\",\"it's \\\"c\\\"\"]";
    json_t *all = rendered_in("kube-system", ARGV("--set-json", accounts));
    ck_assert_at(object_of(all, "ValidatingAdmissionPolicy", "gpushare-promises"),
                 "spec.matchConditions.0.expression",
                 "!(request.userInfo.username in [ "
                 "\"system:serviceaccount:kube-system:gpushare-schd-extender\", "
                 "\"system:serviceaccount:kube-system:gpushare-device-plugin\", "
                 "\"a:b\", \"it's \\\"c\\\"\" ])");
    cluster_kubectl("apply", "--dry-run=server", "-f", lib_path("rendered.yaml"));
}

/* HAMi's accounts write its annotations until the takeover is done. */
TEST(the_end_of_a_takeover_is_in_the_policy_and_an_object)
{
    static const char set[] = "requestsOf=hami,exemptAccounts={a:b}";
    json_t *all = rendered_in("kube-system", ARGV("--set", set));
    const char *condition =
        lib_text(object_of(all, "ValidatingAdmissionPolicy", "gpushare-hami-promises"),
                 "spec.matchConditions.0.expression");
    ck_assert_contains(condition, "kube-system:hami-scheduler");
    ck_assert_contains(condition, "a:b");
    ck_assert_ptr_null(find_object(all, "ConfigMap", "gpushare-takeover-hami"));
    all = rendered_in("gpu", ARGV("--set", lib_fmt("takeover=done,%s", set)));
    condition =
        lib_text(object_of(all, "ValidatingAdmissionPolicy", "gpushare-hami-promises"),
                 "spec.matchConditions.0.expression");
    ck_assert_lacks(condition, "hami-scheduler");
    ck_assert_contains(condition, "a:b");
    ck_assert_at(object_of(all, "ConfigMap", "gpushare-takeover-hami"),
                 "metadata.namespace", "kube-system");
    all = rendered_in("kube-system", ARGV("--set", "takeover=done,requestsOf=hami"));
    cluster_kubectl("apply", "--dry-run=server", "-f", lib_path("rendered.yaml"));
}

/* Strings that YAML would read as another type stay strings, and a map that is set to
 * null is empty. */
TEST(values_stay_strings)
{
    json_t *all = rendered_in(
        "kube-system",
        ARGV("--set-json",
             "scheduler.enabled=false,extender.replicas=1,"
             "extender.tls={\"secretName\":\"1\",\"serverName\":\"s #\","
             "\"clientNames\":[\"a #b\",\"c: d\"]}",
             "--set-json", "extender.affinity=null,extender.podLabels=null", "--set-json",
             "kubeletDir=\"/k, l\",extender.priorityClassName=\"1\","
             "gpuNodes.runtimeClassName=\"1\",monitoring.podMonitors.enabled=true"));
    const json_t *pod = pod_of(all, "Deployment", "gpushare-schd-extender");
    const json_t *args = lib_at(extender_of(all), "args");
    const json_t *plugin = pod_of(all, "DaemonSet", "gpushare-device-plugin-ds");
    const json_t *monitor = object_of(all, "PodMonitor", "gpushare-schd-extender");
    const json_t *tls = lib_at(monitor, "spec.podMetricsEndpoints.0.tlsConfig");
    check_has(args, "--client-name=a #b");
    check_has(args, "--client-name=c: d");
    check_has(args, "--replica-name=s #");
    ck_assert_ptr_nonnull(lib_at(pod, "affinity.nodeAffinity"));
    ck_assert_at(pod, "priorityClassName", "1");
    ck_assert_at(plugin, "runtimeClassName", "1");
    ck_assert_at(plugin, "volumes.0.hostPath.path", "/k, l/device-plugins");
    ck_assert_at(tls, "serverName", "s #");
    ck_assert_at(tls, "ca.secret.name", "1");
}

/* The objects of a release, and as parts of them the files of its ConfigMaps. */
static json_t *objects_of(const char *release, const char *namespace,
                          const char *const *more)
{
    const char *argv[PROGRAM_ARGS] = {"template", release,          CHART, "-n",
                                      namespace,  "--kube-version", "1.35"};
    const char *key;
    json_t *j, *v, *all;
    program_args(argv, 7, more);
    temp_write(lib_dir, "rendered.yaml", cluster_tool("helm", 0, argv));
    all = yamlfile_all(lib_path("rendered.yaml"));
    lib_each(j, all) {
        if (strcmp(lib_str(j, "kind"), "ConfigMap") != 0)
            continue;
        json_object_foreach(lib_at(j, "data"), key, v)
        {
            temp_write(lib_dir, "part.yaml", json_string_value(v));
            json_object_set(lib_at(j, "data"), key, yamlfile_one(lib_path("part.yaml")));
        }
    }
    return all;
}

/* Every value has the type of the other. */
static void check_types(const json_t *a, const json_t *b, const char *where)
{
    const char *key;
    size_t i;
    json_t *v;
    ck_assert_msg(b && json_typeof(a) == json_typeof(b), "%s is %s", where,
                  lib_text(b, ""));
    ck_assert_msg(json_array_size(a) == json_array_size(b) &&
                      json_object_size(a) == json_object_size(b),
                  "%s: %s and %s", where, lib_text(a, ""), lib_text(b, ""));
    json_array_foreach(a, i, v)
        check_types(v, json_array_get(b, i), lib_fmt("%s.%zu", where, i));
    json_object_foreach((json_t *)a, key, v)
        check_types(v, json_object_get(b, key), lib_fmt("%s.%s", where, key));
}

/* YAML reads these names as numbers, booleans or nothing. */
static const char *const no_strings[] = {"9991103", "true", "null", "1e3",
                                         "0x10",    "010",  "1.5"};

/* `more`: further values, in which NAME is a name, too. */
static json_t *objects_with(const char *name, const char *release, const char *namespace,
                            const char *more)
{
    temp_write(lib_dir, "names.yaml",
               lib_output(0, ARGV("sed", lib_fmt("s/NAME/%s/g", name),
                                  "test/e2e/chart/names.yaml")));
    if (strstr(more, "NAME"))
        more = lib_swap(more, "NAME", name);
    return objects_of(release, namespace,
                      ARGV("-f", lib_path("names.yaml"), "--set-json", more));
}

TEST(a_name_is_a_string_whatever_yaml_reads_in_it)
{
    /* Instead of the Secrets of names.yaml. */
    static const char issuer[] =
        "scheduler.tlsSecretName=\"\",extender.tls={\"secretName\":\"\",\"serverName\":"
        "\"\",\"clientNames\":[],\"certManager\":{\"enabled\":true,\"issuerRef\":"
        "{\"name\":\"NAME\"}}}";
    static const char *const more[] = {"scheduler.image.digest=\"\"", issuer};
    array_items(set, more) {
        const json_t *wanted = objects_with("name", "name", "name", *set);
        ck_assert_uint_gt(json_array_size(wanted), 40);
        array_items(name, no_strings) {
            /* Only releases may have a dot. */
            const char *namespace = strchr(*name, '.') ? "name" : *name;
            check_types(wanted, objects_with(*name, *name, namespace, *set), *name);
        }
    }
}

/* The API server's own opinion, of what it serves. */
TEST(the_api_server_accepts_names_of_digits)
{
    array_items(name, no_strings) {
        if (strchr(*name, '.'))
            continue;
        cluster_kubectl("create", "namespace", *name);
        objects_of(*name, *name, ARGV("--skip-tests"));
        cluster_kubectl("apply", "--dry-run=server", "--validate=strict", "-f",
                        lib_path("rendered.yaml"));
    }
}

/* A chart that depends on this one, with its values and those that helm adds. */
TEST(the_chart_can_be_a_part_of_another_one)
{
    static const struct {
        const char *alias, *set;
        bool wanted;
    } cases[] = {
        {"gpushare", "gpushare.enabled=true", true},
        {"gpushare", "gpushare.enabled=true,gpushare.logLevel=warn,global.a=b", true},
        {"gpushare", "gpushare.enabled=null,tags.gpu=true", true},
        {"gpushare", "gpushare.enabled=false", false},
        {"gpushare", "tags.gpu=false", false},
        {"cards", "cards.enabled=true,tags.gpu=false", true},
    };
    char *chart = lib_path("umbrella");
    lib_output(0, ARGV("mkdir", "-p", lib_path("umbrella/charts")));
    lib_output(0, ARGV("cp", "-r", CHART, lib_path("umbrella/charts/gpushare")));
    array_items(c, cases) {
        temp_write(lib_dir, "umbrella/Chart.yaml",
                   lib_fmt("apiVersion: v2\nname: umbrella\nversion: 1.0.0\n"
                           "dependencies:\n- {name: gpushare, version: %s, alias: %s,"
                           " condition: %s.enabled, tags: [gpu]}\n",
                           GPUSHARE_VERSION, c->alias, c->alias));
        const char *said = cluster_tool("helm", 0,
                                        ARGV("template", "x", chart, "-n", "kube-system",
                                             "--kube-version", "1.35", "--set", c->set));
        ck_assert_msg(!strstr(said, "\n  name: gpushare-schd-extender\n") != c->wanted,
                      "%s: %s", c->set, said);
    }
    /* The same words for the chart itself mean nothing. */
    json_t *same = rendered_in("kube-system", ARGV("--set", "enabled=false,tags.a=true,"
                                                            "global.b.c=1"));
    check_same(rendered_in("kube-system", NULL), same, false);
}

/* -- how kube-scheduler reaches the extender -- */

TEST(the_host_network_needs_no_node_port)
{
    json_t *one = rendered("loopback"), *three = rendered("host");
    const json_t *c = extender_of(one);
    check_has(json_object_get(c, "args"), "--listen=127.0.0.1");
    ck_assert_at(c, "readinessProbe.httpGet.host", "127.0.0.1");
    ck_assert_at(c, "readinessProbe.httpGet.scheme", "");
    ck_assert(!find_object(one, "Service", "gpushare-schd-extender"));
    c = extender_of(three);
    ck_assert_at(c, "readinessProbe.httpGet.scheme", "HTTPS");
    json_t *service = object_of(three, "Service", "gpushare-schd-extender");
    json_t *pod = pod_of(three, "Deployment", "gpushare-schd-extender");
    ck_assert_at(service, "spec.type", "ClusterIP");
    ck_assert(json_is_true(json_object_get(pod, "hostNetwork")));
    ck_assert_uint_eq(lib_size(pod, "affinity.podAntiAffinity."
                                    "requiredDuringSchedulingIgnoredDuringExecution"),
                      1);
}

/* The Secrets of cert-manager have the names that the extender reads. */
TEST(cert_manager_makes_the_secrets_that_the_extender_reads)
{
    json_t *all = rendered("cert-manager");
    static const char *const names[] = {"gpushare-extender-ca", "gpushare-extender-tls",
                                        "gpushare-scheduler-tls"};
    array_items(name, names) {
        json_t *certificate = object_of(all, "Certificate", *name);
        ck_assert_at(certificate, "spec.secretName", *name);
        ck_assert(
            find_object(all, "Issuer", lib_str(certificate, "spec.issuerRef.name")));
    }
    /* Clients have the CA of this key. */
    ck_assert_at(object_of(all, "Certificate", names[0]),
                 "spec.privateKey.rotationPolicy", "Never");
    check_has(lib_at(object_of(all, "Certificate", names[1]), "spec.dnsNames"),
              "gpushare-schd-extender.kube-system.svc");
    ck_assert_str_eq(
        lib_annotation(object_of(all, "APIService", "v1.nvidia-gpu-scheduler"),
                       "cert-manager.io/inject-ca-from"),
        "kube-system/gpushare-extender-tls");
}

/* The administrator's files: the client's CA is always checked, unless all may call. */
TEST(own_certificates_always_ask_for_a_client_certificate)
{
    json_t *all = rendered("files");
    check_has(lib_at(extender_of(all), "args"), "--client-ca=/etc/gpushare/tls/ca.crt");
    char *said = template(0, "kube-system", ARGV("--set", "extender.insecure=true"));
    ck_assert_contains(said, "        - --insecure\n");
    ck_assert_lacks(said, "observe, scheme: HTTPS");
}

/* -- helm lint and schemas -- */

TEST(helm_lints_and_packages_the_chart)
{
    array_items(set, sets)
        cluster_tool("helm", 0,
                     ARGV("lint", "--strict", "-n", "kube-system", "--kube-version",
                          "1.35", CHART, *set ? "-f" : NULL, values_of(*set)));
    ck_assert_contains(cluster_tool("helm", 0, ARGV("package", CHART, "-d", lib_dir)),
                       "gpushare-" GPUSHARE_VERSION ".tgz");
}

/* Does kubectl find the kind? The API server collects what it discovers a moment later. */
static bool discovers(const char *resource)
{
    return strstr(cluster_kubectl("api-resources", "--api-group", "cert-manager.io", "-o",
                                  "name"),
                  resource) != NULL;
}

#define CERT_MANAGER "/apis/cert-manager.io/v1/"

/* Installs the CRDs of cert-manager and waits until the API server serves them. */
static void install_crds(void)
{
    cluster_kubectl("apply", "--server-side", "-f", cluster_program("cert-manager-crds"));
    lib_wait(peer_status(&cluster.api, CERT_MANAGER "certificates") == 200);
    lib_wait(peer_status(&cluster.api, CERT_MANAGER "issuers") == 200);
    lib_wait(discovers("certificates.") && discovers("issuers."));
}

static void check_accepted(const char *path)
{
    cluster_kubectl("apply", "--dry-run=server", "--validate=strict", "-f", path);
}

TEST(the_api_server_accepts_the_objects)
{
    install_crds();
    for (size_t i = 0; i < SERVED; i++) {
        rendered(sets[i]);
        check_accepted(lib_path("rendered.yaml"));
    }
    check_accepted("manifests/");
    for (const char *const *plain = lib_glob(
             "manifests/{samples/{,*/}*.yaml,*[!h].yaml.example}"); /* not the patch */
         *plain; plain++)
        check_accepted(*plain);
}

/* -- without helm install -- */

/* The versions and kinds of the API server, as Argo CD gives them to helm. */
static char *api_versions(void)
{
    temp_write(lib_dir, "kinds", cluster_kubectl("api-resources", "--no-headers"));
    return lib_output(0, ARGV("awk",
                              "{v = $(NF-2); printf \"%s%s,%s/%s\", n++ ? \",\" : \"\", "
                              "v, v, $NF}",
                              lib_path("kinds")));
}

/* The values of the two samples give what helm would install, byte by byte; Argo CD passes no
 * hook of `helm test`. */
TEST(argo_cd_and_flux_make_the_objects_of_helm_install)
{
    json_t *all = yamlfile_all("manifests/samples/gitops/*.yaml.example");
    const char *server = lib_str(peer_get(&cluster.api, "/version"), "gitVersion"),
               *versions = api_versions();
    static const char *const values[][2] = {
        {"Application", "spec.source.helm.valuesObject"}, {"HelmRelease", "spec.values"}};
    array_indices(i, values) {
        temp_write(lib_dir, "values.yaml",
                   lib_text(of_kind(all, values[i][0]), values[i][1]));
        /* This cluster has the Service of the plain files. */
        const char *const same[] = {"-f", lib_path("values.yaml"), "--set",
                                    "extender.service.type=ClusterIP", NULL};
        const char *argv[PROGRAM_ARGS] = {
            "install",          "gpushare",        CHART, "-n", "kube-system",
            "--take-ownership", "--dry-run=server"};
        program_args(argv, 7, same);
        char *manifest = strstr(cluster_tool("helm", 0, argv), "\nMANIFEST:\n"),
             *notes = manifest ? strstr(manifest, "\nNOTES:\n") : NULL;
        ck_assert_ptr_nonnull(notes);
        notes[1] = '\0';
        const char *more[PROGRAM_ARGS] = {"template",
                                          "gpushare",
                                          CHART,
                                          "-n",
                                          "kube-system",
                                          "--no-hooks",
                                          "--kube-version",
                                          server,
                                          "--api-versions",
                                          versions};
        program_args(more, 10, same);
        temp_write(lib_dir, "installed", manifest + strlen("\nMANIFEST:\n"));
        temp_write(lib_dir, "applied", cluster_tool("helm", 0, more));
        lib_output(0, ARGV("diff", "-uB", lib_path("installed"), lib_path("applied")));
    }
}

/* The driver manager of the Operator ends the pods of DaemonSets with this node selector. */
TEST(the_profile_of_the_gpu_operator_releases_the_driver)
{
    json_t *all =
        rendered_in("kube-system", ARGV("-f", CHART "/profiles/gpu-operator.yaml"));
    const json_t *spec = pod_of(all, "DaemonSet", "gpushare-device-plugin-ds");
    ck_assert_str_eq(lib_text(spec, "nodeSelector"),
                     "{\"nvidia.com/gpu.deploy.client\":\"true\"}");
    ck_assert_at(spec, "runtimeClassName", "nvidia");
    ck_assert(!find_object(all, "DaemonSet", "scv-agent"));
}

/* NVIDIA's runtime shows all instances of cards to containers with SYS_ADMIN alone. */
TEST(the_profile_of_mig_shows_all_instances)
{
    json_t *all = rendered_in("kube-system", ARGV("-f", CHART "/profiles/mig.yaml"));
    const json_t *c = container_of(all, "DaemonSet", "gpushare-device-plugin-ds");
    ck_assert_contains(lib_text(c, "env"), "NVIDIA_MIG_MONITOR_DEVICES");
    ck_assert_str_eq(lib_text(c, "securityContext.capabilities"),
                     "{\"add\":[\"SYS_ADMIN\"],\"drop\":[\"ALL\"]}");
    ck_assert(json_is_true(lib_at(c, "securityContext.allowPrivilegeEscalation")));
    ck_assert(!find_object(all, "DaemonSet", "scv-agent"));
}

/* Without NVIDIA's runtime, NVML is below a mount of the driver's root, and no container
 * opens device nodes without privileges. */
static void check_nvml_of_the_host(const json_t *all, const char *name)
{
    const json_t *c = container_of(all, "DaemonSet", name);
    const char *text = lib_text(c, "");
    ck_assert_contains(text, "\"--gpu-source=nvml:/host/run/nvidia/driver\"");
    ck_assert_contains(text, "\"/host/run/nvidia/driver\"");
    ck_assert_contains(text, "\"HostToContainer\"");
    ck_assert(json_is_true(lib_at(c, "securityContext.privileged")));
    /* The API server rejects both together. */
    ck_assert_ptr_null(lib_at(c, "securityContext.allowPrivilegeEscalation"));
}

TEST(nvml_of_the_host_needs_privileges)
{
    check_nvml_of_the_host(rendered("host-nvml"), PLUGIN);
    json_t *all = rendered_in(
        "gpu", ARGV("-f", values_of("host-nvml"), "--set", "scvAgent.nodeSelector.a=b"));
    check_nvml_of_the_host(all, PLUGIN);
    check_nvml_of_the_host(all, "scv-agent");
}

/* -- gpushare-node: scv-agent and the device plugin -- */

#define VOLUME(of)                                                                       \
    of ".extraVolumes[0].name=v," of ".extraVolumes[0].emptyDir.medium=Memory," of       \
       ".extraVolumeMounts[0].name=v," of ".extraVolumeMounts[0].mountPath=/v"
#define BOTH(value) "scvAgent." value ",devicePlugin." value

/* What one pod can have but once makes two DaemonSets, with the names and accounts of 1.0. */
TEST(there_are_two_daemonsets_only_where_the_values_need_them)
{
    static const char *const one[] = {
        "logLevel=debug",
        "scvAgent.logLevel=debug",
        "scvAgent.maxUnavailable=3",
        "scvAgent.resources.limits.memory=1Gi",
        "scvAgent.overuse.action=evict,scvAgent.overuse.grace=1m",
        "scvAgent.podAnnotations.a=x,devicePlugin.podAnnotations.b=y",
        "scvAgent.podLabels.a=x,devicePlugin.podLabels.b=y",
        "scvAgent.extraArgs={--lease-renew=5s,--xid-hold=1m},"
        "devicePlugin.extraArgs={--strict-env,--xid-hold=1m}",
        "scvAgent.extraArgs={--lease-renew=5s}",
        "devicePlugin.extraArgs={--strict-env}",
        "scvAgent.extraEnv[0].name=A,devicePlugin.extraEnv[0].name=B",
        VOLUME("scvAgent"),
        VOLUME("devicePlugin"),
        BOTH("nodeSelector.a=b"),
        BOTH("runtimeClassName=x"),
        BOTH("image.tag=seven"),
        BOTH("priorityClassName=high"),
        BOTH("securityContext.runAsGroup=7"),
        BOTH("podSecurityContext.fsGroup=7"),
        BOTH("serviceAccount.annotations.a=b"),
        BOTH("affinity.podAffinity.a=b"),
        BOTH("podLabels.a=b"),
        /* As gpuNodes has it for the other. */
        "gpuNodes.nodeSelector.a=b,scvAgent.nodeSelector.a=b",
        "gpuNodes.runtimeClassName=x,scvAgent.runtimeClassName=x",
        "scvAgent.runtimeClassName=none",
    };
    static const char *const two[] = {
        "scvAgent.nodeSelector.a=b",
        "devicePlugin.nodeSelector.a=b",
        "devicePlugin.affinity.podAffinity.a=b",
        "scvAgent.tolerations[0].key=a",
        "scvAgent.runtimeClassName=x",
        "gpuNodes.runtimeClassName=x,scvAgent.runtimeClassName=none",
        "scvAgent.image.repository=scv-agent,"
        "devicePlugin.image.repository=gpushare-device-plugin",
        "scvAgent.image.tag=0.9.0",
        "scvAgent.priorityClassName=high",
        "scvAgent.securityContext.runAsGroup=7",
        "devicePlugin.podSecurityContext.fsGroup=7",
        "scvAgent.serviceAccount.annotations.a=b",
        "scvAgent.podAnnotations.a=x,devicePlugin.podAnnotations.a=y",
        "scvAgent.podLabels.a=x,devicePlugin.podLabels.a=y",
        "scvAgent.extraArgs={--xid-hold=1m},devicePlugin.extraArgs={--xid-hold=2m}",
        "scvAgent.extraArgs={--host-root=/other}",
        "devicePlugin.extraArgs={--host-root=/other}",
        BOTH("extraArgs={--host-root=/other}"),
        "scvAgent.extraEnv[0].name=KUBERNETES_SERVICE_HOST,scvAgent.extraEnv[0].value=x",
        "devicePlugin.extraEnv[0].name=NVIDIA_VISIBLE_DEVICES,"
        "devicePlugin.extraEnv[0].value=all",
        "scvAgent.extraEnv[0].name=A,scvAgent.extraEnv[0].value=x,"
        "devicePlugin.extraEnv[0].name=A,devicePlugin.extraEnv[0].value=y",
        "scvAgent.extraVolumes[0].name=state",
        "scvAgent.extraVolumeMounts[0].name=v,"
        "scvAgent.extraVolumeMounts[0].mountPath=/host/usr",
        VOLUME("scvAgent") ",devicePlugin.extraVolumes[0].name=v",
        /* What the one DaemonSet mounts besides. */
        "devicePlugin.extraVolumes[0].name=container-names",
        "devicePlugin.extraVolumeMounts[0].name=v,"
        "devicePlugin.extraVolumeMounts[0].mountPath=/host/var/log/containers",
        "scvAgent.extraVolumeMounts[0].name=v,"
        "scvAgent.extraVolumeMounts[0].mountPath=/host/var/log/containers",
        "devicePlugin.extraVolumes[0].name=cgroups",
        "scvAgent.extraVolumes[0].name=cgroups",
        "devicePlugin.extraVolumeMounts[0].name=v,"
        "devicePlugin.extraVolumeMounts[0].mountPath=/sys/fs/cgroup",
        "gpuNodes.driverRoot=/run/nvidia/driver,scvAgent.extraVolumeMounts[0].name=v,"
        "scvAgent.extraVolumeMounts[0].mountPath=/host/run/nvidia/driver",
    };
    array_items(set, one) {
        json_t *all = rendered_in("gpu", ARGV("--set", *set));
        ck_assert_msg(!find_object(all, "DaemonSet", AGENT), "%s", *set);
        ck_assert(!find_object(all, "ServiceAccount", AGENT));
        ck_assert(!find_object(all, "ValidatingAdmissionPolicy", AGENT));
        ck_assert_str_eq(lib_text(container_of(all, "DaemonSet", PLUGIN), "command"),
                         "[\"gpushare-node\"]");
    }
    array_items(set, two) {
        json_t *all = rendered_in("gpu", ARGV("--set", *set));
        ck_assert_msg(find_object(all, "DaemonSet", AGENT) != NULL, "%s", *set);
        object_of(all, "ServiceAccount", AGENT);
        object_of(all, "ValidatingAdmissionPolicy", AGENT);
        ck_assert_str_eq(lib_text(container_of(all, "DaemonSet", AGENT), "command"),
                         "[\"scv-agent\"]");
        ck_assert_str_eq(lib_text(container_of(all, "DaemonSet", PLUGIN), "command"),
                         "[\"gpushare-device-plugin\"]");
        ck_assert_ptr_null(lib_at(pod_of(all, "DaemonSet", PLUGIN), "hostPID"));
        /* Neither account has the rights of the other: scv-agent reads pods and writes none. */
        ck_assert_lacks(lib_text(object_of(all, "ClusterRole", PLUGIN_ACCOUNT), ""),
                        "scvs");
        ck_assert_contains(lib_text(object_of(all, "ClusterRole", AGENT), ""),
                           "\"resources\":[\"pods\"],\"verbs\":[\"list\",\"watch\"]");
    }
}

/* An option that both programs have is one of the other, too, in one program. */
TEST(a_common_option_of_one_program_alone_makes_two_daemonsets)
{
    char *rest = lib_output(0, ARGV(program_path(AGENT), "--help")), *line;
    const char *plugin = lib_output(0, ARGV(program_path(PLUGIN_ACCOUNT), "--help"));
    size_t common = 0;
    while ((line = strsep(&rest, "\n"))) {
        if (strncmp(line + strspn(line, " "), "--", 2) != 0)
            continue;
        line += strspn(line, " ");
        const char *option = lib_fmt("%.*s", (int)strcspn(line, "= ["), line);
        /* Those that the chart sets itself are refused. */
        if (!strstr(plugin, lib_fmt(" %s ", option)) &&
            !strstr(plugin, lib_fmt(" %s=", option)))
            continue;
        static const char *const sides[] = {"scvAgent", "devicePlugin"};
        array_items(side, sides) {
            const char *said = template(
                -1, "gpu", ARGV("--set", lib_fmt("%s.extraArgs={%s=1}", *side, option)));
            if (strstr(said, "is not allowed"))
                continue;
            common++;
            ck_assert_msg(strstr(said, "command: [scv-agent]") != NULL, "%s %s", *side,
                          option);
        }
    }
    ck_assert_uint_gt(common, 10);
}

/* The device plugin alone has the rights. */
TEST(who_sets_limits_has_the_capability)
{
    static const struct {
        const char *set, *add; /* NULL: it is privileged */
    } cases[] = {
        {"gpuNodes.setLimits=true", "[\"SYS_ADMIN\"]"},
        {"gpuNodes.setLimits=true,scvAgent.image.tag=x", "[\"SYS_ADMIN\"]"},
        {"gpuNodes.setLimits=true,scvAgent.overuse.action=kill",
         "[\"KILL\",\"SYS_ADMIN\"]"},
        {"gpuNodes.setLimits=true,gpuNodes.nvml=host", NULL},
    };
    static const char mount[] =
        "\"mountPath\":\"/sys/fs/cgroup\",\"name\":\"cgroups\",\"readOnly\":";
    array_items(c, cases) {
        json_t *all = rendered_in("gpu", ARGV("--set", c->set)),
               *plugin = container_of(all, "DaemonSet", PLUGIN);
        ck_assert_contains(lib_text(plugin, "args"), "\"--set-limits\"");
        ck_assert_contains(lib_text(plugin, "volumeMounts"), lib_fmt("%sfalse", mount));
        if (c->add)
            ck_assert_str_eq(lib_text(plugin, "securityContext.capabilities.add"),
                             c->add);
        else
            ck_assert(json_is_true(lib_at(plugin, "securityContext.privileged")));
        /* The API server denies both together. */
        ck_assert(!lib_at(plugin, "securityContext.allowPrivilegeEscalation"));
        if (find_object(all, "DaemonSet", AGENT))
            ck_assert_lacks(lib_text(container_of(all, "DaemonSet", AGENT), ""),
                            "SYS_ADMIN");
    }
    json_t *plugin = container_of(rendered_in("gpu", NULL), "DaemonSet", PLUGIN);
    ck_assert_contains(lib_text(plugin, "volumeMounts"), lib_fmt("%strue", mount));
    ck_assert_lacks(lib_text(plugin, ""), "--set-limits");
    ck_assert_contains(
        template(-1, "gpu", ARGV("--set", "devicePlugin.extraArgs={--set-limits}")),
        "--set-limits is not allowed: set gpuNodes.setLimits instead");
}

/* Both modes judge the health of the cards. */
TEST(xids_are_for_one_daemonset_and_for_two)
{
    static const char set[] = "gpuNodes.xidIgnore=94\\,95,gpuNodes.xidFatal=all,"
                              "gpuNodes.unifiedMemory=96Gi";
    static const char args[] =
        "\"--unified-memory=96Gi\",\"--xid-ignore=94,95\",\"--xid-fatal=all\"";
    json_t *one = rendered_in("gpu", ARGV("--set", set)),
           *two = rendered_in("gpu", ARGV("--set", set, "--set", "scvAgent.image.tag=x"));
    ck_assert_contains(lib_text(container_of(one, "DaemonSet", PLUGIN), "args"), args);
    ck_assert_contains(lib_text(container_of(two, "DaemonSet", PLUGIN), "args"), args);
    ck_assert_contains(lib_text(container_of(two, "DaemonSet", AGENT), "args"), args);
}

/* scv-agent reads promises, too: alone, beside the device plugin, and in one program with it. */
TEST(every_program_has_the_unit)
{
    static const char *const more[] = {"logLevel=info", "scvAgent.image.tag=x",
                                       "devicePlugin.enabled=false",
                                       "scvAgent.enabled=false"};
    array_items(set, more) {
        json_t *all =
            rendered_in("gpu", ARGV("--set", "memoryUnit=256MiB", "--set", *set));
        static const char *const names[] = {PLUGIN, AGENT};
        int found = 0;
        array_items(name, names) {
            if (!find_object(all, "DaemonSet", *name))
                continue;
            found++;
            ck_assert_contains(lib_text(container_of(all, "DaemonSet", *name), "args"),
                               "\"--memory-unit=256MiB\"");
        }
        ck_assert_msg(found, "%s", *set);
    }
}

/* A program that the chart installs alone is a mode, too. */
TEST(one_of_the_two_can_be_installed_alone)
{
    static const char *const names[][2] = {{"scvAgent", PLUGIN}, {"devicePlugin", AGENT}};
    array_indices(i, names) {
        json_t *all =
            rendered_in("gpu", ARGV("--set", lib_fmt("%s.enabled=false", names[i][0])));
        object_of(all, "DaemonSet", names[i][1]);
        ck_assert(!find_object(all, "DaemonSet", names[1 - i][1]));
    }
    /* manifests/scv-agent.yaml.example. */
    check_same(yamlfile_all("manifests/scv-agent.yaml.example"),
               rendered_in("kube-system", ARGV("--set", "devicePlugin.enabled=false")),
               true);
}

TEST(the_one_daemonset_has_what_both_had)
{
    json_t *all = rendered_in(
        "gpu",
        ARGV("--set",
             "scvAgent.overuse.action=kill,scvAgent.overuse.unpromised=evict,"
             "scvAgent.overuse.tolerance=1Gi,scvAgent.overuse.always=true,"
             "scvAgent.extraArgs={--lease-renew=5s,--xid-hold=1m},"
             "devicePlugin.extraArgs={--strict-env,--xid-hold=1m},"
             "scvAgent.logLevel=debug,devicePlugin.logLevel=warn,"
             "scvAgent.podAnnotations.a=x,devicePlugin.podAnnotations.b=y,"
             "scvAgent.podLabels.a=x,devicePlugin.podLabels.b=y,"
             "scvAgent.extraEnv[0].name=A,devicePlugin.extraEnv[0].name=B," VOLUME(
                 "scvAgent") ",devicePlugin.stateDir=/opt/"
                             "gpushare,monitoring.podMonitors.enabled=true,"
                             "scvAgent.maxUnavailable=3,devicePlugin.maxUnavailable=2"));
    const json_t *set = object_of(all, "DaemonSet", PLUGIN),
                 *pod = pod_of(all, "DaemonSet", PLUGIN),
                 *c = lib_at(pod, "containers.0");
    const char *mounts = lib_text(c, "volumeMounts"), *env = lib_text(c, "env");
    ck_assert_str_eq(
        lib_text(c, "args"),
        "[\"--memory-unit=GiB\",\"--host-root=/host\","
        "\"--state-file=/opt/gpushare/device-plugin.json\","
        "\"--limit-dir=/opt/gpushare/limit\",\"--on-overuse=kill\","
        "\"--on-unpromised=evict\",\"--overuse-tolerance=1Gi\",\"--overuse-always\","
        "\"--lease-renew=5s\",\"--xid-hold=1m\",\"--strict-env\"]");
    ck_assert(json_is_true(lib_at(pod, "hostPID")));
    ck_assert_str_eq(lib_text(c, "securityContext.capabilities"),
                     "{\"add\":[\"KILL\"],\"drop\":[\"ALL\"]}");
    ck_assert_str_eq(lib_text(c, "ports"),
                     "[{\"containerPort\":12348,\"name\":\"health\"},"
                     "{\"containerPort\":12347,\"name\":\"publish\"}]");
    static const char *const paths[] = {"/v\"",
                                        "/opt/gpushare\"",
                                        "/host/var/log/containers\"",
                                        "/var/lib/kubelet/pod-resources\"",
                                        "/var/lib/kubelet/device-plugins\"",
                                        "/host/dev\"",
                                        "/host/usr\"",
                                        "/host/etc/cdi\"",
                                        "/var/run/cdi\""};
    array_items(path, paths)
        ck_assert_contains(mounts, lib_fmt("\"mountPath\":\"%s", *path));
    ck_assert_contains(env, "{\"name\":\"A\"},{\"name\":\"B\"}");
    ck_assert_contains(env, "{\"name\":\"LOG_LEVEL\",\"value\":\"debug\"}");
    ck_assert_str_eq(lib_text(set, "spec.template.metadata.annotations"),
                     "{\"a\":\"x\",\"b\":\"y\"}");
    ck_assert_str_eq(lib_in(set, "spec.template.metadata.labels", "a"), "x");
    ck_assert_str_eq(lib_in(set, "spec.template.metadata.labels", "b"), "y");
    ck_assert_int_eq(lib_int(set, "spec.updateStrategy.rollingUpdate.maxUnavailable"), 2);
    ck_assert_at(object_of(all, "ClusterRoleBinding", "scv-agent-overuse"),
                 "subjects.0.name", PLUGIN_ACCOUNT);
    ck_assert_contains(lib_text(object_of(all, "PodMonitor", PLUGIN_ACCOUNT), ""),
                       "\"honorLabels\":true");
    ck_assert(!find_object(all, "PodMonitor", AGENT));
    /* A limit that one does not have would be one of the other. */
    static const struct {
        const char *agent, *plugin, *sum;
    } sums[] = {
        {"requests: {cpu: 10m, memory: 32Mi}", "requests: {cpu: 1, memory: 0.5Gi}",
         "{\"requests\":{\"cpu\":\"1010m\",\"memory\":\"544Mi\"}}"},
        {"limits: {cpu: 500m, memory: 1G}", "limits: {cpu: 1.5, memory: 1000k}",
         "{\"limits\":{\"cpu\":\"2\",\"memory\":\"1001000000\"}}"},
        {"limits: {cpu: 1, memory: 1e6}", "limits: {memory: 1M}",
         "{\"limits\":{\"memory\":\"2000000\"}}"},
        {"requests: {memory: 1Ki}", "requests: {cpu: 1}",
         "{\"requests\":{\"cpu\":\"1\",\"memory\":\"1Ki\"}}"},
        {"requests: {}", "requests: {}", ""},
    };
    array_items(one, sums) {
        static const char none[] = "{resources: {requests: {cpu: null, memory: null}, "
                                   "limits: {memory: null}}}";
        temp_write(lib_dir, "none.yaml",
                   lib_fmt("scvAgent: %s\ndevicePlugin: %s\n", none, none));
        temp_write(lib_dir, "some.yaml",
                   lib_fmt("scvAgent: {resources: {%s}}\n"
                           "devicePlugin: {resources: {%s}}\n",
                           one->agent, one->plugin));
        all = rendered_in("gpu",
                          ARGV("-f", lib_path("none.yaml"), "-f", lib_path("some.yaml")));
        ck_assert_str_eq(lib_text(container_of(all, "DaemonSet", PLUGIN), "resources"),
                         one->sum);
    }
}

CLUSTER_MAIN(120)
