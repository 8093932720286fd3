/* SPDX-License-Identifier: Apache-2.0 */
#include <glob.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "lib/cluster.h"
#include "lib/tools.h"

/*
 * manifests/chart: it renders the same objects as the plain files, and a real API server
 * accepts them without unknown fields. (helm in a cluster: test_helm.)
 */

/* test/e2e/chart/NAME.yaml. The last one has kinds that the API server does not serve. */
static const char *const sets[] = {
    NULL,   "host-nvml", "everything",    "node",     "little",       "files",
    "host", "managed",   "any-scheduler", "loopback", "cert-manager", "monitoring"};
enum { SERVED = 11 }; /* sets without such kinds */

/* -- the plain files -- */

static json_t *objects_of(const char *pattern)
{
    json_t *all = json_array();
    glob_t files;
    ck_assert_msg(glob(pattern, 0, NULL, &files) == 0, "%s", pattern);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        cleanup_json json_t *more = tools_objects(files.gl_pathv[i]);
        json_array_extend(all, more);
    }
    globfree(&files);
    return all;
}

static json_t *rendered(const char *set)
{
    cleanup_free char *file = tools_render(set);
    return tools_objects(file);
}

START_TEST(the_default_values_give_the_objects_of_the_plain_files)
{
    cleanup_json json_t *plain = objects_of("manifests/*.yaml"), *chart = rendered(NULL);
    tools_assert_same(plain, chart, false);
}
END_TEST

/* The object of that kind and name in an array; NULL: there is none. */
static json_t *find_object(const json_t *all, const char *kind, const char *name)
{
    size_t i;
    json_t *j;
    json_array_foreach(all, i,
                       j) if (strcmp(lib_str(j, "kind"), kind) == 0 &&
                              strcmp(lib_str(j, "metadata.name"), name) == 0) return j;
    return NULL;
}

static json_t *object_of(const json_t *all, const char *kind, const char *name)
{
    json_t *j = find_object(all, kind, name);
    ck_assert_msg(j != NULL, "there is no %s %s", kind, name);
    return j;
}

static json_t *pod_of(const json_t *all, const char *kind, const char *name)
{
    return lib_at(object_of(all, kind, name), "spec.template.spec");
}

/* The first container of a workload. */
static json_t *container_of(const json_t *all, const char *kind, const char *name)
{
    return json_array_get(json_object_get(pod_of(all, kind, name), "containers"), 0);
}

static void check_has(const json_t *list, const char *word)
{
    size_t i;
    json_t *j;
    json_array_foreach(list, i, j) if (json_string_value(j) &&
                                       strcmp(json_string_value(j), word) == 0) return;
    cleanup_free char *text = json_dumps(list, 0);
    ck_abort_msg("no \"%s\" in %s", word, text);
}

static const json_t *extender_of(const json_t *all)
{
    return container_of(all, "Deployment", "gpushare-schd-extender");
}

/* Every option that the comments of a file name is set. */
static void check_options_of(const char *path, const json_t *extender)
{
    struct err err = {0};
    cleanup_buf struct buf text = {0};
    const json_t *args = json_object_get(extender, "args");
    ck_assert_done(file_read(path, 1 << 16, &text, &err), err);
    char *rest = text.p, *line;
    size_t n = 0, i;
    while ((line = strsep(&rest, "\n"))) {
        if (strncmp(line, "#   - --", 8) != 0)
            continue;
        json_t *arg;
        bool given = false;
        json_array_foreach(args, i, arg) given |=
            strcmp(json_string_value(arg), line + strlen("#   - ")) == 0;
        ck_assert_msg(given, "no %s", line);
        n++;
    }
    ck_assert_uint_gt(n, 0);
}

START_TEST(options_give_the_objects_of_the_examples)
{
    cleanup_json json_t *chart = rendered("everything");
    cleanup_json json_t *api = objects_of("manifests/apiservice.yaml.example");
    static const char *const files[] = {
        "manifests/network-policy.yaml.example", "manifests/pdb.yaml.example",
        "manifests/mps-daemon.yaml.example", "manifests/rbac-overuse.yaml.example",
        "manifests/rbac-preemption.yaml.example"};
    json_t *service = object_of(api, "APIService", "v1.nvidia-gpu-scheduler");
    ck_assert_str_eq(lib_str(service, "spec.caBundle"),
                     ""); /* every cluster has its own */
    json_object_set_new(json_object_get(service, "spec"), "caBundle",
                        json_string("eA=="));
    tools_assert_same(api, chart, true);
    check_options_of("manifests/apiservice.yaml.example", extender_of(chart));
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        cleanup_json json_t *wanted = objects_of(files[i]);
        if (i == 0) { /* with the APIService, the API server may connect, too */
            json_t *policy = object_of(wanted, "NetworkPolicy", "gpushare-schd-extender");
            json_array_insert_new(lib_at(policy, "spec.ingress"), 1,
                                  json_pack("{s[{s{ss}}]s[{sssi}]}", "from", "ipBlock",
                                            "cidr", "192.0.2.0/28", "ports", "protocol",
                                            "TCP", "port", 12346));
        }
        tools_assert_same(wanted, chart, true);
    }
}
END_TEST

/* The chart's kube-scheduler is the one of policy/, but for the checksum that restarts it. */
START_TEST(the_second_scheduler_equals_the_one_of_policy)
{
    cleanup_json json_t *chart = rendered("managed");
    cleanup_json json_t *wanted = objects_of("policy/second-scheduler.yaml.example");
    json_t *meta = lib_at(object_of(chart, "Deployment", "gpushare-scheduler"),
                          "spec.template.metadata");
    ck_assert_uint_eq(json_object_size(json_object_get(meta, "annotations")), 1);
    json_object_del(meta, "annotations");
    json_object_set_new(container_of(wanted, "Deployment", "gpushare-scheduler"), "image",
                        json_string("registry.k8s.io/kube-scheduler:v1.35.0"));
    tools_assert_same(wanted, chart, true);
}
END_TEST

/* Renders the chart for a namespace with further options (ends with NULL). */
static json_t *rendered_in(const char *namespace, const char *const *more)
{
    const char *argv[16] = {"template", "gpushare",       CHART, "-n",
                            namespace,  "--kube-version", "1.35"};
    for (size_t n = 7; *more; n++, more++) {
        ck_assert_uint_lt(n, ARRAY_LEN(argv) - 1);
        argv[n] = *more;
    }
    cleanup_free char *said = tools_run("helm", 0, argv);
    cleanup_free char *file = temp_path(lib_dir, "rendered.yaml");
    temp_write(lib_dir, "rendered.yaml", said);
    return tools_objects(file);
}

/* The configuration of the chart's kube-scheduler. New. */
static json_t *scheduler_config(const json_t *all)
{
    cleanup_free char *file = temp_path(lib_dir, "config.yaml");
    const json_t *map = object_of(all, "ConfigMap", "gpushare-scheduler");
    temp_write(lib_dir, "config.yaml",
               json_string_value(json_object_get(lib_at(map, "data"), "config.yaml")));
    cleanup_json json_t *documents = tools_objects(file);
    return json_incref(json_array_get(documents, 0));
}

START_TEST(the_second_scheduler_follows_the_values_of_the_extender)
{
    cleanup_json json_t *all =
        rendered_in("gpu", ARGV("-f", "test/e2e/chart/any-scheduler.yaml", "--set",
                             "extender.service.clusterIP=fd00::7"));
    cleanup_json json_t *config = scheduler_config(all);
    const json_t *extender = json_array_get(json_object_get(config, "extenders"), 0);
    const json_t *pod = pod_of(all, "Deployment", "gpushare-scheduler");
    const json_t *tls = json_array_get(json_object_get(pod, "volumes"), 1);
    ck_assert_str_eq(lib_str(extender, "urlPrefix"),
                     "https://[fd00::7]:12345/gpushare-scheduler");
    ck_assert_str_eq(lib_str(extender, "tlsConfig.serverName"), "extender.test");
    ck_assert_int_eq(json_integer_value(json_object_get(extender, "weight")), 21);
    ck_assert_ptr_null(json_object_get(extender, "managedResources"));
    ck_assert_str_eq(lib_str(tls, "secret.secretName"), "client");
    ck_assert_str_eq(
        lib_str(container_of(all, "Deployment", "gpushare-scheduler"), "image"),
        "registry.example:5000/kube-scheduler:v1.35.9");
    ck_assert_str_eq(
        lib_str(object_of(all, "Service", "gpushare-schd-extender"), "spec.clusterIP"),
        "fd00::7");
    ck_assert(!find_object(all, "PodDisruptionBudget", "gpushare-scheduler"));
    /* DNS, also that of OpenShift. */
    const json_t *egress =
        lib_at(object_of(all, "NetworkPolicy", "gpushare-scheduler"), "spec.egress");
    cleanup_free char *dns = json_dumps(json_array_get(egress, 2), JSON_SORT_KEYS);
    ck_assert_str_eq(dns, "{\"ports\": [{\"port\": 53, \"protocol\": \"UDP\"}, "
                          "{\"port\": 53, \"protocol\": \"TCP\"}, "
                          "{\"port\": 5353, \"protocol\": \"UDP\"}, "
                          "{\"port\": 5353, \"protocol\": \"TCP\"}]}");
    /* On a cluster whose control plane is the administrator's, the extender stays there. */
    const json_t *terms = lib_at(pod_of(all, "Deployment", "gpushare-schd-extender"),
                                 "affinity.nodeAffinity."
                                 "requiredDuringSchedulingIgnoredDuringExecution."
                                 "nodeSelectorTerms");
    ck_assert_uint_eq(json_array_size(terms), 2);
}
END_TEST

/* manifests/chart/README.md lists what stays in kube-system, with the reasons. */
static bool stays(const json_t *j)
{
    static const char *const there[][2] = {
        {"Role", "gpushare-schd-extender"},
        {"RoleBinding", "gpushare-schd-extender"},
        {"RoleBinding", "gpushare-scheduler-authentication"},
        {"Role", "gpushare-inspect"}};
    for (size_t i = 0; i < ARRAY_LEN(there); i++)
        if (strcmp(lib_str(j, "kind"), there[i][0]) == 0 &&
            strcmp(lib_str(j, "metadata.name"), there[i][1]) == 0)
            return true;
    return false;
}

START_TEST(another_namespace_has_everything_but_four_objects)
{
    cleanup_json json_t *all = rendered_in("gpu", ARGV("--set", "platform=managed"));
    size_t i, kept = 0;
    json_t *j;
    json_array_foreach(all, i, j)
    {
        const char *ns = lib_str(j, "metadata.namespace");
        cleanup_free char *text = json_dumps(j, 0);
        bool outside = strcmp(ns, "kube-system") == 0;
        kept += outside;
        ck_assert_msg(!outside || stays(j), "%s", text);
        ck_assert_msg(outside || !strstr(text, "kube-system") ||
                          strcmp(lib_str(j, "kind"), "Pod") == 0,
                      "%s", text);
    }
    ck_assert_uint_eq(kept, 4);
    check_has(json_object_get(extender_of(all), "args"), "--lease-namespace=gpu");
    json_t *lease = object_of(all, "Lease", "gpushare-extender");
    ck_assert_str_eq(lib_str(lease, "metadata.namespace"), "gpu");
    /* GKE: pods with the priority classes of the system need a quota there. */
    ck_assert(find_object(all, "ResourceQuota", "gpushare-critical-pods"));
}
END_TEST

/* What the account of a program may use. */
static bool is_bound(const json_t *all, const char *binding, const char *account)
{
    const json_t *subjects =
        json_object_get(object_of(all, "RoleBinding", binding), "subjects");
    size_t i;
    json_t *j;
    json_array_foreach(subjects, i,
                       j) if (strcmp(lib_str(j, "name"), account) == 0) return true;
    return false;
}

START_TEST(openshift_is_found_out_and_gets_its_constraints)
{
    cleanup_json json_t *all = rendered_in(
        "gpu", ARGV("-a", "config.openshift.io/v1", "--set",
                    "mps.enabled=true,mps.image=cuda,devicePlugin.isolation=mps"));
    ck_assert(find_object(all, "Deployment", "gpushare-scheduler"));
    ck_assert(is_bound(all, "gpushare-scc-nonroot-v2", "gpushare-schd-extender"));
    ck_assert(is_bound(all, "gpushare-scc-nonroot-v2", "gpushare-scheduler"));
    ck_assert(is_bound(all, "gpushare-scc-privileged", "scv-agent"));
    ck_assert(is_bound(all, "gpushare-scc-privileged", "gpushare-device-plugin"));
    ck_assert(is_bound(all, "gpushare-scc-privileged", "gpushare-mps"));
    ck_assert(find_object(all, "ServiceAccount", "gpushare-mps"));
    ck_assert_str_eq(lib_str(object_of(all, "DaemonSet", "gpushare-mps"),
                             "spec.template.spec.serviceAccountName"),
                     "gpushare-mps");
    static const char *const sets_of_nodes[] = {"scv-agent", "gpushare-device-plugin-ds",
                                                "gpushare-mps"};
    for (size_t i = 0; i < ARRAY_LEN(sets_of_nodes); i++) {
        const json_t *c = container_of(all, "DaemonSet", sets_of_nodes[i]);
        ck_assert_str_eq(lib_str(c, "securityContext.seLinuxOptions.type"), "spc_t");
    }
}
END_TEST

/* A copy of the chart that believes in an API server of this version and shows what it
 * finds. Returns what it shows, new. */
static char *shown_on(const char *version)
{
    struct program p;
    cleanup_free char *chart = temp_path(lib_dir, "copy"),
                      *helpers = temp_path(lib_dir, "copy/templates/_helpers.tpl"),
                      *edit = xasprintf(
                          "s/[.]Capabilities[.]KubeVersion[.]Version/\"%s\"/", version);
    program_start(&p, lib_dir, ARGV("cp", "-rT", CHART, chart));
    ck_assert_msg(program_wait(&p) == 0, "%s", program_output(&p));
    program_fini(&p);
    program_start(&p, lib_dir, ARGV("sed", "-i", edit, helpers));
    ck_assert_msg(program_wait(&p) == 0, "%s", program_output(&p));
    program_fini(&p);
    temp_write(lib_dir, "copy/templates/shown.yaml",
               "shown: {{ include \"gpushare.platform\" . }} "
               "{{ include \"gpushare.schedulerImage\" . }}\n");
    return tools_run("helm", 0,
                     ARGV("template", "x", chart, "-s", "templates/shown.yaml",
                          "--kube-version", "1.35"));
}

START_TEST(the_version_of_the_api_server_names_distributions)
{
    static const char *const cases[][2] = {{"v1.33.5-eks-113cf36", "managed"},
                                           {"v1.33.5-gke.1080000", "managed"},
                                           {"v1.33.5+k3s1", "k3s"},
                                           {"v1.33.5+rke2r1", "rke2"},
                                           {"v1.33.5", "kubeadm"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_free char *said = shown_on(cases[i][0]);
        cleanup_free char *wanted =
            xasprintf("shown: %s registry.k8s.io/kube-scheduler:v1.33.5\n", cases[i][1]);
        ck_assert_contains(said, wanted);
    }
}
END_TEST

START_TEST(pods_get_their_defaults_only_where_the_api_server_can_set_them)
{
#define POLICIES(version)                                                                \
    "admissionregistration.k8s.io/" version "/MutatingAdmissionPolicy"
    static const struct {
        const char *set, *api, *wanted; /* NULL: no policy */
    } cases[] = {
        {"platform=managed", POLICIES("v1"), "v1"},
        {"platform=managed", POLICIES("v1beta1"), "v1beta1"},
        {"platform=managed", POLICIES("v1alpha1"), NULL},
        {"platform=managed,podDefaults.schedulerName=false", POLICIES("v1"), NULL},
        {"platform=kubeadm", POLICIES("v1"), NULL},
        {"platform=kubeadm,podDefaults.runtimeClassName=nvidia", POLICIES("v1"), "v1"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_json json_t *all =
            rendered_in("gpu", ARGV("--set", cases[i].set, "-a", cases[i].api));
        if (!cases[i].wanted) {
            ck_assert(!find_object(all, "MutatingAdmissionPolicy", "gpushare-pods"));
            continue;
        }
        cleanup_free char *api =
            xasprintf("admissionregistration.k8s.io/%s", cases[i].wanted);
        ck_assert_str_eq(
            lib_str(object_of(all, "MutatingAdmissionPolicy", "gpushare-pods"),
                    "apiVersion"),
            api);
        ck_assert_str_eq(
            lib_str(object_of(all, "MutatingAdmissionPolicyBinding", "gpushare-pods"),
                    "apiVersion"),
            api);
    }
}
END_TEST

/* https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/ */
static void check_labels(const json_t *object, const json_t *metadata)
{
    static const char *const wanted[][2] = {{"name", "gpushare"},
                                            {"instance", "gpushare"},
                                            {"component", NULL},
                                            {"part-of", "gpushare"}};
    const json_t *labels = json_object_get(metadata, "labels");
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
        cleanup_free char *key = xasprintf("app.kubernetes.io/%s", wanted[i][0]);
        const char *is = json_string_value(json_object_get(labels, key));
        ck_assert_msg(is && *is && (!wanted[i][1] || !strcmp(is, wanted[i][1])),
                      "%s %s: label %s is %s", lib_str(object, "kind"),
                      lib_str(object, "metadata.name"), key, is ? is : "absent");
    }
}

START_TEST(workloads_pods_and_services_have_the_common_labels)
{
    cleanup_json json_t *all = rendered_in("gpu", ARGV("--set", "platform=managed"));
    size_t i, n = 0;
    json_t *o;
    json_array_foreach(all, i, o)
    {
        const char *kind = lib_str(o, "kind");
        if (strcmp(kind, "Deployment") && strcmp(kind, "DaemonSet") &&
            strcmp(kind, "Service") && strcmp(kind, "Pod"))
            continue;
        n++;
        check_labels(o, json_object_get(o, "metadata"));
        const json_t *template = lib_at(o, "spec.template.metadata");
        if (template)
            check_labels(o, template);
        /* Selectors cannot change in an upgrade. */
        cleanup_free char *selector = json_dumps(lib_at(o, "spec.selector"), 0);
        ck_assert_ptr_null(selector ? strstr(selector, "app.kubernetes.io/") : NULL);
    }
    ck_assert_uint_ge(n, 7);
}
END_TEST

START_TEST(several_replicas_equal_the_patched_deployment)
{
    cleanup_free char *json = cluster_kubectl(
        ARGV("patch", "--local", "-f", "manifests/deployment.yaml", "--patch-file",
             "manifests/replicas.patch.yaml.example", "-o", "json"));
    cleanup_json json_t *patched = json_pack("[o]", json_loads(json, 0, NULL));
    cleanup_json json_t *chart =
        rendered_in("kube-system", ARGV("--set", "extender.replicas=3"));
    tools_assert_same(patched, chart, true);
}
END_TEST

START_TEST(rules_dashboard_and_version_equal_those_of_the_project)
{
    cleanup_json json_t *chart = rendered("monitoring");
    cleanup_json json_t *rules =
        tools_objects("manifests/monitoring/prometheus-rules.yaml");
    cleanup_json json_t *meta = tools_objects(CHART "/Chart.yaml");
    ck_assert(json_equal(
        json_object_get(object_of(chart, "PrometheusRule", "gpushare"), "spec"),
        json_array_get(rules, 0)));
    const json_t *dashboards =
        lib_at(object_of(chart, "ConfigMap", "gpushare-dashboard"), "data");
    cleanup_json json_t *dashboard = json_loads(
        json_string_value(json_object_get(dashboards, "gpushare.json")), 0, NULL);
    cleanup_json json_t *wanted =
        json_load_file("manifests/monitoring/grafana-dashboard.json", 0, NULL);
    ck_assert(wanted && json_equal(dashboard, wanted));
    static const char *const programs[] = {"gpushare-schd-extender", "scv-agent",
                                           "gpushare-device-plugin"};
    for (size_t i = 0; i < ARRAY_LEN(programs); i++)
        ck_assert_str_eq(lib_str(object_of(chart, "PodMonitor", programs[i]),
                                 "spec.selector.matchLabels.component"),
                         programs[i]);
    ck_assert_str_eq(lib_str(json_array_get(meta, 0), "version"), GPUSHARE_VERSION);
    ck_assert_str_eq(lib_str(json_array_get(meta, 0), "appVersion"), GPUSHARE_VERSION);
}
END_TEST

/* -- values -- */

/* Every value of the schema has a description and is in values.yaml, where users look
 * for it. */
static void check_described(const json_t *schema, const json_t *values, const char *where)
{
    const char *key;
    json_t *v;
    ck_assert_msg(*lib_str(schema, "description") || !*where, "%s has no description",
                  where);
    json_object_foreach(json_object_get(schema, "properties"), key, v)
    {
        cleanup_free char *inner = xasprintf("%s.%s", where, key);
        json_t *value = json_object_get(values, key);
        if (strcmp(inner, ".global") == 0)
            continue;
        ck_assert_msg(value != NULL, "values.yaml has no %s", inner);
        check_described(v, value, inner);
    }
}

START_TEST(every_value_of_the_schema_is_in_values_yaml)
{
    struct err err = {0};
    cleanup_buf struct buf text = {0};
    cleanup_json json_t *values = tools_objects(CHART "/values.yaml");
    ck_assert_done(file_read(CHART "/values.schema.json", 1 << 20, &text, &err), err);
    cleanup_json json_t *schema = json_loads(text.p, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_ptr_nonnull(schema);
    check_described(schema, json_array_get(values, 0), "");
}
END_TEST

START_TEST(invalid_values_are_rejected_with_a_reason)
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
        {"extender.allPods=true", "set extender.replicas to 2 or more"},
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
        {"devicePlugin.extraArgs={--memory-unit=MiB}",
         "devicePlugin.extraArgs: --memory-unit is not allowed: set memoryUnit"},
        {"scvAgent.extraArgs={--port=1}",
         "scvAgent.extraArgs: --port is not allowed: the probes"},
        {"extender.extraEnv[0].name=PORT",
         "extender.extraEnv: PORT is not allowed: the Service"},
        {"devicePlugin.podLabels.app=x",
         "devicePlugin.podLabels: app is not allowed: the chart"},
        {"extender.pdb.enabled=true", "a PodDisruptionBudget blocks every drain"},
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
        {"extender.hostNetwork=true,extender.tls.secretName=a",
         "one replica listens on 127.0.0.1 without certificates"},
        {"extender.hostNetwork=true,monitoring.podMonitors.enabled=true",
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
        {"exemptAccounts=a", "at '/exemptAccounts': got string, want array"},
        {"extender.tls.secretName=a,monitoring.podMonitors.enabled=true",
         "Prometheus scrapes pods by their address"},
        {"platform=eks", "at '/platform': value must be one of"},
        {"scheduler.enabled=yes", "at '/scheduler/enabled': value must be one of"},
        {"extender.service.clusterIP=None",
         "at '/extender/service/clusterIP': 'None' does not match"},
        {"platform=openshift,extender.hostNetwork=true,extender.replicas=3",
         "extender.hostNetwork: on OpenShift the constraint nonroot-v2"},
        {"scheduler.enabled=true,extender.enabled=false",
         "scheduler.enabled: there is no extender"},
        {"scheduler.enabled=true,extender.hostNetwork=true",
         "scheduler.enabled: with extender.hostNetwork one replica listens"},
        {"scheduler.enabled=true,extender.tls.secretName=a",
         "scheduler.tlsSecretName: with extender.tls.secretName nobody makes"},
        {"scheduler.tlsSecretName=a", "scheduler.tlsSecretName: it has no effect"},
        {"scheduler.extraArgs={--config=a}",
         "scheduler.extraArgs: --config is not allowed"},
        {"scheduler.podLabels.component=x",
         "scheduler.podLabels: component is not allowed"},
        {"mps.enabled=true", "mps.enabled: no container would use the MPS daemon"},
        {"mps.enabled=true,devicePlugin.isolation=mps", "mps.image: it has no default"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_free char *said =
            tools_run("helm", 1,
                      ARGV("template", "x", CHART, "-n", "kube-system", "--kube-version",
                           "1.35", "--set", cases[i].set));
        ck_assert_contains(said, cases[i].reason);
    }
    cleanup_free char *elsewhere = tools_run(
        "helm", 1,
        ARGV("template", "x", CHART, "--kube-version", "1.35", "--set",
             "extender.apiService.enabled=true,extender.apiService.caBundle=eA=="));
    ck_assert_contains(elsewhere, "which is in kube-system; use helm -n kube-system");
    cleanup_free char *old = tools_run(
        "helm", 1,
        ARGV("template", "x", CHART, "-n", "kube-system", "--kube-version", "1.29"));
    ck_assert_contains(old, "requires Kubernetes 1.30, and the cluster has v1.29");
    cleanup_free char *older =
        tools_run("helm", 1,
                  ARGV("template", "x", CHART, "-n", "kube-system", "--kube-version",
                       "1.24", "--set", "admissionPolicies=false,platform=managed"));
    ck_assert_contains(older, "requires Kubernetes 1.25, and the cluster has v1.24");
}
END_TEST

/* CEL has the escapes of JSON. (The API server compiles the one of everything.yaml.) */
START_TEST(exempt_accounts_are_in_the_policy)
{
    static const char accounts[] = "exemptAccounts=[\"a:b\",\"it's \\\"c\\\"\"]";
    cleanup_json json_t *all = rendered_in("kube-system", ARGV("--set-json", accounts));
    cleanup_free char *file = temp_path(lib_dir, "rendered.yaml");
    const json_t *policy =
        object_of(all, "ValidatingAdmissionPolicy", "gpushare-promises");
    const json_t *condition = json_array_get(lib_at(policy, "spec.matchConditions"), 0);
    ck_assert_str_eq(lib_str(condition, "expression"),
                     "!(request.userInfo.username in [ "
                     "\"system:serviceaccount:kube-system:gpushare-schd-extender\", "
                     "\"system:serviceaccount:kube-system:gpushare-device-plugin\", "
                     "\"a:b\", \"it's \\\"c\\\"\" ])");
    free(cluster_kubectl(ARGV("apply", "--dry-run=server", "-f", file)));
}
END_TEST

/* Strings that YAML would read as another type stay strings, and a map that is set to
 * null is empty. */
START_TEST(values_stay_strings)
{
    cleanup_json json_t *all = rendered_in(
        "kube-system",
        ARGV("--set-json",
             "extender.tls={\"secretName\":\"1\",\"serverName\":\"s #\","
             "\"clientNames\":[\"a #b\",\"c: d\"]}",
             "--set-json", "extender.affinity=null,extender.podLabels=null", "--set-json",
             "kubeletDir=\"/k, l\",extender.priorityClassName=\"1\","
             "gpuNodes.runtimeClassName=\"1\",monitoring.podMonitors.enabled=true"));
    const json_t *pod = pod_of(all, "Deployment", "gpushare-schd-extender");
    const json_t *args = json_object_get(extender_of(all), "args");
    const json_t *plugin = pod_of(all, "DaemonSet", "gpushare-device-plugin-ds");
    const json_t *monitor = object_of(all, "PodMonitor", "gpushare-schd-extender");
    const json_t *tls = lib_at(
        json_array_get(lib_at(monitor, "spec.podMetricsEndpoints"), 0), "tlsConfig");
    check_has(args, "--client-name=a #b");
    check_has(args, "--client-name=c: d");
    check_has(args, "--replica-name=s #");
    ck_assert_ptr_nonnull(lib_at(pod, "affinity.nodeAffinity"));
    ck_assert_str_eq(lib_str(pod, "priorityClassName"), "1");
    ck_assert_str_eq(lib_str(plugin, "runtimeClassName"), "1");
    ck_assert_str_eq(
        lib_str(json_array_get(json_object_get(plugin, "volumes"), 0), "hostPath.path"),
        "/k, l/device-plugins");
    ck_assert_str_eq(lib_str(tls, "serverName"), "s #");
    ck_assert_str_eq(lib_str(tls, "ca.secret.name"), "1");
}
END_TEST

/* -- how kube-scheduler reaches the extender -- */

START_TEST(the_host_network_needs_no_node_port)
{
    cleanup_json json_t *one = rendered("loopback"), *three = rendered("host");
    const json_t *c = extender_of(one);
    check_has(json_object_get(c, "args"), "--listen=127.0.0.1");
    ck_assert_str_eq(lib_str(c, "readinessProbe.httpGet.host"), "127.0.0.1");
    ck_assert_str_eq(lib_str(c, "readinessProbe.httpGet.scheme"), "");
    ck_assert(!find_object(one, "Service", "gpushare-schd-extender"));
    c = extender_of(three);
    ck_assert_str_eq(lib_str(c, "readinessProbe.httpGet.scheme"), "HTTPS");
    json_t *service = object_of(three, "Service", "gpushare-schd-extender");
    json_t *pod = pod_of(three, "Deployment", "gpushare-schd-extender");
    ck_assert_str_eq(lib_str(service, "spec.type"), "ClusterIP");
    ck_assert(json_is_true(json_object_get(pod, "hostNetwork")));
    ck_assert_uint_eq(
        json_array_size(lib_at(pod, "affinity.podAntiAffinity."
                                    "requiredDuringSchedulingIgnoredDuringExecution")),
        1);
}
END_TEST

/* The Secrets of cert-manager have the names that the extender reads. */
START_TEST(cert_manager_makes_the_secrets_that_the_extender_reads)
{
    cleanup_json json_t *all = rendered("cert-manager");
    static const char *const names[] = {"gpushare-extender-ca", "gpushare-extender-tls",
                                        "gpushare-scheduler-tls"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        json_t *certificate = object_of(all, "Certificate", names[i]);
        ck_assert_str_eq(lib_str(certificate, "spec.secretName"), names[i]);
        ck_assert(
            find_object(all, "Issuer", lib_str(certificate, "spec.issuerRef.name")));
    }
    /* Clients have the CA of this key. */
    ck_assert_str_eq(lib_str(object_of(all, "Certificate", names[0]),
                             "spec.privateKey.rotationPolicy"),
                     "Never");
    check_has(lib_at(object_of(all, "Certificate", names[1]), "spec.dnsNames"),
              "gpushare-schd-extender.kube-system.svc");
    json_t *service = object_of(all, "APIService", "v1.nvidia-gpu-scheduler");
    json_t *notes = lib_at(service, "metadata.annotations");
    ck_assert_str_eq(
        json_string_value(json_object_get(notes, "cert-manager.io/inject-ca-from")),
        "kube-system/gpushare-extender-tls");
}
END_TEST

/* The administrator's files: the client's CA is always checked, unless all may call. */
START_TEST(own_certificates_always_ask_for_a_client_certificate)
{
    cleanup_json json_t *all = rendered("files");
    check_has(json_object_get(extender_of(all), "args"),
              "--client-ca=/etc/gpushare/tls/ca.crt");
    cleanup_free char *said =
        tools_run("helm", 0,
                  ARGV("template", "x", CHART, "-n", "kube-system", "--kube-version",
                       "1.35", "--set", "extender.insecure=true"));
    ck_assert_contains(said, "        - --insecure\n");
    ck_assert_ptr_null(strstr(said, "observe, scheme: HTTPS"));
}
END_TEST

/* -- helm lint and schemas -- */

START_TEST(helm_lints_and_packages_the_chart)
{
    for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
        cleanup_free char *values =
            sets[i] ? xasprintf("test/e2e/chart/%s.yaml", sets[i]) : NULL;
        free(tools_run("helm", 0,
                       ARGV("lint", "--strict", "-n", "kube-system", "--kube-version",
                            "1.35", CHART, values ? "-f" : NULL, values)));
    }
    cleanup_free char *packed =
        tools_run("helm", 0, ARGV("package", CHART, "-d", lib_dir));
    ck_assert_contains(packed, "gpushare-" GPUSHARE_VERSION ".tgz");
}
END_TEST

#define CERT_MANAGER "/apis/cert-manager.io/v1/"

/* Installs the CRDs of cert-manager and waits until the API server serves them. */
static void install_crds(void)
{
    cleanup_free char *crds = cluster_program("cert-manager-crds");
    free(cluster_kubectl(ARGV("apply", "--server-side", "-f", crds)));
    lib_wait(peer_status(&cluster.api, CERT_MANAGER "certificates") == 200);
    lib_wait(peer_status(&cluster.api, CERT_MANAGER "issuers") == 200);
}

START_TEST(the_api_server_accepts_the_objects)
{
    install_crds();
    for (size_t i = 0; i < SERVED; i++) {
        cleanup_free char *file = tools_render(sets[i]);
        free(cluster_kubectl(
            ARGV("apply", "--dry-run=server", "--validate=strict", "-f", file)));
    }
    static const char *const plain[] = {"manifests/",
                                        "manifests/samples/",
                                        "manifests/samples/frameworks/",
                                        "manifests/samples/model/",
                                        "manifests/samples/quota/",
                                        "manifests/samples/yoda/",
                                        "manifests/apiservice.yaml.example",
                                        "manifests/mps-daemon.yaml.example",
                                        "manifests/network-policy.yaml.example",
                                        "manifests/pdb.yaml.example",
                                        "manifests/rbac-overuse.yaml.example",
                                        "manifests/rbac-preemption.yaml.example"};
    for (size_t i = 0; i < ARRAY_LEN(plain); i++)
        free(cluster_kubectl(
            ARGV("apply", "--dry-run=server", "--validate=strict", "-f", plain[i])));
}
END_TEST

/* The driver manager of the Operator ends the pods of DaemonSets with this node selector. */
START_TEST(the_profile_of_the_gpu_operator_releases_the_driver)
{
    static const char *const names[] = {"scv-agent", "gpushare-device-plugin-ds"};
    cleanup_json json_t *all = rendered_in(
        "kube-system", ARGV("-f", CHART "/profiles/gpu-operator.yaml"));
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const json_t *spec = pod_of(all, "DaemonSet", names[i]);
        const json_t *selector = json_object_get(spec, "nodeSelector");
        ck_assert_str_eq(
            json_string_value(json_object_get(selector, "nvidia.com/gpu.deploy.client")),
            "true");
        ck_assert_uint_eq(json_object_size(selector), 1);
        ck_assert_str_eq(lib_str(spec, "runtimeClassName"), "nvidia");
    }
}
END_TEST

/* Without NVIDIA's runtime, NVML is below a mount of the driver's root, and no container
 * opens device nodes without privileges. */
START_TEST(nvml_of_the_host_needs_privileges)
{
    static const char *const names[] = {"scv-agent", "gpushare-device-plugin-ds"};
    cleanup_json json_t *all = rendered("host-nvml");
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const json_t *c = container_of(all, "DaemonSet", names[i]);
        const json_t *security = json_object_get(c, "securityContext");
        cleanup_free char *text = json_dumps(c, 0);
        ck_assert_contains(text, "\"--gpu-source=nvml:/host/run/nvidia/driver\"");
        ck_assert_contains(text, "\"/host/run/nvidia/driver\"");
        ck_assert_contains(text, "\"HostToContainer\"");
        ck_assert(json_is_true(json_object_get(security, "privileged")));
        /* The API server rejects both together. */
        ck_assert_ptr_null(json_object_get(security, "allowPrivilegeEscalation"));
    }
}
END_TEST

static const char *const up[] = {"--nodes", "0", NULL};
CLUSTER_MAIN("chart", 120, up, the_default_values_give_the_objects_of_the_plain_files,
             options_give_the_objects_of_the_examples,
             the_second_scheduler_equals_the_one_of_policy,
             the_second_scheduler_follows_the_values_of_the_extender,
             another_namespace_has_everything_but_four_objects,
             openshift_is_found_out_and_gets_its_constraints,
             the_version_of_the_api_server_names_distributions,
             pods_get_their_defaults_only_where_the_api_server_can_set_them,
             workloads_pods_and_services_have_the_common_labels,
             several_replicas_equal_the_patched_deployment,
             rules_dashboard_and_version_equal_those_of_the_project,
             every_value_of_the_schema_is_in_values_yaml,
             invalid_values_are_rejected_with_a_reason, exempt_accounts_are_in_the_policy,
             values_stay_strings, the_host_network_needs_no_node_port,
             cert_manager_makes_the_secrets_that_the_extender_reads,
             own_certificates_always_ask_for_a_client_certificate,
             the_profile_of_the_gpu_operator_releases_the_driver,
             nvml_of_the_host_needs_privileges, helm_lints_and_packages_the_chart,
             the_api_server_accepts_the_objects)
