/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"
#include "base/mem.h"
#include "domain/keys.h"
#include "lib/doc.h"
#include "lib/extender.h"
#include "lib/yamlfile.h"

/*
 * The Deployment, the Service and the configurations of kube-scheduler against the
 * program: the options exist, ports and names match, and the verbs are served.
 */

/* The item of an array with this `name`; NULL if there is none. */
static json_t *named(const json_t *array, const char *name)
{
    size_t i;
    json_t *j;
    json_array_foreach(array, i, j) if (strcmp(lib_str(j, "name"), name) == 0) return j;
    return NULL;
}

/* -- the Deployment -- */

/* The line of --help for the option `--NAME`. */
static char *help_line(const char *help, const char *option)
{
    cleanup_free char *line = xasprintf("\n  %s", option);
    const char *found = strstr(help, line);
    ck_assert_msg(found && (found[strlen(line)] == ' ' || found[strlen(line)] == '\n'),
                  "the program has no option %s", option);
    return xmemdup0(found + 1, strcspn(found + 1, "\n"));
}

/* The option that this environment variable sets: new. */
static char *option_of_variable(const char *help, const char *variable)
{
    cleanup_free char *mark = xasprintf("(environment: %s)", variable);
    const char *p = strstr(help, mark);
    ck_assert_msg(p != NULL, "no option reads %s", variable);
    while (p[-1] != '\n')
        p--;
    p += strspn(p, " ");
    return xmemdup0(p, strcspn(p, " "));
}

static json_t *container(const json_t *deployment)
{
    json_t *containers = lib_at(deployment, "spec.template.spec.containers");
    ck_assert_uint_eq(json_array_size(containers), 1);
    return json_array_get(containers, 0);
}

enum { ARGS = 32 };

/* The options of the Deployment as command-line arguments, including environment
 * variables; all new. */
static size_t arguments(const json_t *deployment, const char *help, char **out)
{
    size_t n = 0, i;
    json_t *j;
    json_array_foreach(lib_at(container(deployment), "args"), i, j)
    {
        ck_assert_uint_lt(n, ARGS);
        ck_assert_msg(strchr(lib_str(j, ""), '=') != NULL, "%s", lib_str(j, ""));
        out[n++] = xstrdup(lib_str(j, ""));
    }
    json_array_foreach(lib_at(container(deployment), "env"), i, j)
    {
        cleanup_free char *option = option_of_variable(help, lib_str(j, "name"));
        ck_assert_uint_lt(n, ARGS);
        out[n++] = xasprintf("%s=%s", option, lib_str(j, "value"));
    }
    return n;
}

/* The value that the Deployment sets for an option, or its default: new. */
static char *value_of(const json_t *deployment, const char *option)
{
    char *given[ARGS], *value = NULL;
    cleanup_free char *help = doc_help("gpushare-extender");
    cleanup_free char *line = help_line(help, option);
    size_t n = arguments(deployment, help, given);
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(option);
        if (strncmp(given[i], option, length) == 0 && given[i][length] == '=')
            value = xstrdup(given[i] + length + 1);
        free(given[i]);
    }
    const char *init = strstr(line, "[default: ");
    if (!value && init)
        value = xmemdup0(init + 10, strcspn(init + 10, "]"));
    ck_assert_ptr_nonnull(value);
    return value;
}

static json_int_t number_of(const json_t *deployment, const char *option)
{
    cleanup_free char *value = value_of(deployment, option);
    return strtoll(value, NULL, 10);
}

START_TEST(the_program_accepts_the_options_of_the_deployment)
{
    cleanup_json json_t *deployment = read_one("manifests/deployment.yaml");
    cleanup_free char *help = doc_help("gpushare-extender");
    cleanup_free char *path = program_path("gpushare-extender");
    char *given[ARGS];
    const char *argv[ARGS + 4] = {path, "--kubeconfig", "/nonexistent/config"};
    size_t n = arguments(deployment, help, given);
    for (size_t i = 0; i < n; i++) {
        cleanup_free char *option = xmemdup0(given[i], strcspn(given[i], "="));
        cleanup_free char *line = help_line(help, option);
        argv[3 + i] = given[i];
    }
    argv[3 + n] = NULL;
    /* It accepts the options, then finds no API server. */
    cleanup_free char *said = lib_output(1, argv);
    ck_assert_contains(said, "/nonexistent/config");
    ck_assert_str_eq(lib_str(container(deployment), "command.0"), "gpushare-extender");
    for (size_t i = 0; i < n; i++)
        free(given[i]);
}

START_TEST(ports_agree)
{
    cleanup_json json_t *deployment = read_one("manifests/deployment.yaml");
    cleanup_json json_t *service = read_one("manifests/service.yaml");
    json_t *ports = lib_at(container(deployment), "ports"),
           *port = lib_at(service, "spec.ports.0");
    json_int_t http = json_integer_value(lib_at(named(ports, "http"), "containerPort"));
    ck_assert_int_eq(http, 12345);
    ck_assert_int_eq(http, number_of(deployment, "--port"));
    ck_assert_int_eq(json_integer_value(lib_at(named(ports, "observe"), "containerPort")),
                     number_of(deployment, "--observe-port"));
    ck_assert_uint_eq(json_array_size(lib_at(service, "spec.ports")), 1);
    ck_assert_int_eq(json_integer_value(lib_at(port, "port")), http);
    ck_assert_int_eq(json_integer_value(lib_at(port, "targetPort")), http);
    ck_assert_int_eq(json_integer_value(lib_at(port, "nodePort")), 32766);
    static const char *const probes[] = {"startupProbe", "livenessProbe",
                                         "readinessProbe"};
    for (size_t i = 0; i < ARRAY_LEN(probes); i++) {
        json_t *get = lib_at(lib_at(container(deployment), probes[i]), "httpGet");
        ck_assert_msg(named(ports, lib_str(get, "port")) != NULL, "%s", probes[i]);
        ck_assert_str_eq(lib_str(get, "scheme"), "HTTPS"); /* without --insecure */
    }
}

/* The pods have every label by which the workload selects them. */
static void check_selected(const json_t *workload)
{
    const char *key;
    json_t *value, *labels = lib_at(workload, "spec.template.metadata.labels");
    json_t *selector = lib_at(workload, "spec.selector.matchLabels");
    ck_assert_uint_gt(json_object_size(selector), 0);
    json_object_foreach(selector, key, value)
        ck_assert_msg(json_equal(value, json_object_get(labels, key)), "%s", key);
}

START_TEST(names_and_labels_agree)
{
    cleanup_json json_t *deployment = read_one("manifests/deployment.yaml");
    cleanup_json json_t *service = read_one("manifests/service.yaml");
    cleanup_json json_t *policies = json_array();
    cleanup_json json_t *lease = read_one("manifests/lease.yaml");
    cleanup_json json_t *ns = read_one("manifests/namespace.yaml");
    cleanup_free char *lease_ns = value_of(deployment, "--lease-namespace");
    json_t *labels = lib_at(deployment, "spec.selector.matchLabels");
    yamlfile_read(policies, "manifests/network-policy.yaml.example");
    ck_assert_int_eq(json_object_size(labels), 2);
    check_selected(deployment);
    ck_assert(json_equal(labels, lib_at(service, "spec.selector")));
    ck_assert(json_equal(labels, lib_at(policies, "0.spec.podSelector.matchLabels")));
    ck_assert_str_eq(lib_str(service, "metadata.namespace"),
                     lib_str(deployment, "metadata.namespace"));
    ck_assert_str_eq(lib_str(lease, "metadata.namespace"), lease_ns);
    ck_assert_str_eq(lib_str(ns, "metadata.name"), KEY_LEASE_NAMESPACE);
    /* Without a holder, so that no replica has to wait for it to expire. */
    ck_assert(json_is_object(lib_at(lease, "spec")));
    ck_assert_uint_eq(json_object_size(lib_at(lease, "spec")), 0);
}

/* Whether the file's DaemonSet has a port that the example opens for observers. */
static void check_observed(const json_t *policy, const char *path)
{
    cleanup_json json_t *all = json_array();
    size_t i;
    json_t *j, *open;
    bool selected = false, let_in = false;
    yamlfile_read(all, path);
    json_t *set = of_kind(all, "DaemonSet");
    json_t *labels = lib_at(set, "spec.template.metadata.labels");
    ck_assert_str_eq(lib_str(policy, "spec.podSelector.matchLabels.app"),
                     lib_str(labels, "app"));
    json_array_foreach(lib_at(policy, "spec.podSelector.matchExpressions.0.values"), i, j)
        selected |= strcmp(lib_str(j, ""), lib_str(labels, "component")) == 0;
    open = lib_at(named(lib_at(container(set), "ports"), "health"), "containerPort");
    ck_assert_ptr_nonnull(open);
    json_array_foreach(lib_at(policy, "spec.ingress.0.ports"), i, j) let_in |=
        json_equal(lib_at(j, "port"), open);
    ck_assert_msg(selected && let_in, "%s", path);
}

/* The default policy closes no port that a default installation needs: the verbs come from
 * any address, because kube-proxy masquerades requests through a node port, and nothing
 * limits what the pods call. */
START_TEST(the_default_network_policy_keeps_the_verbs_open)
{
    cleanup_json json_t *policies = json_array();
    cleanup_json json_t *service = read_one("manifests/service.yaml");
    yamlfile_read(policies, "manifests/network-policy.yaml");
    ck_assert_uint_eq(json_array_size(policies), 2);
    json_t *extender = json_array_get(policies, 0), *nodes = json_array_get(policies, 1);
    json_t *verbs = lib_at(extender, "spec.ingress.0");
    ck_assert_ptr_null(lib_at(verbs, "from"));
    ck_assert(
        json_equal(lib_at(verbs, "ports.0.port"), lib_at(service, "spec.ports.0.targetPort")));
    ck_assert(json_equal(lib_at(extender, "spec.ingress.1.from"),
                         lib_at(nodes, "spec.ingress.0.from")));
    ck_assert_uint_eq(json_array_size(lib_at(extender, "spec.policyTypes")), 1);
    ck_assert_str_eq(lib_str(extender, "spec.policyTypes.0"), "Ingress");
    ck_assert_uint_eq(json_array_size(lib_at(nodes, "spec.policyTypes")), 1);
    check_observed(nodes, "manifests/scv-agent.yaml");
    check_observed(nodes, "manifests/device-plugin.yaml");
    /* The strict policy replaces it: the same objects. */
    cleanup_json json_t *strict = json_array();
    yamlfile_read(strict, "manifests/network-policy.yaml.example");
    for (size_t i = 0; i < 2; i++) {
        const json_t *a = json_array_get(policies, i), *b = json_array_get(strict, i);
        ck_assert(json_equal(lib_at(a, "metadata"), lib_at(b, "metadata")));
        ck_assert(json_equal(lib_at(a, "spec.podSelector"), lib_at(b, "spec.podSelector")));
    }
}

START_TEST(the_network_policy_lets_observers_in_to_every_program)
{
    cleanup_json json_t *policies = json_array();
    cleanup_json json_t *deployment = read_one("manifests/deployment.yaml");
    json_t *ports = lib_at(container(deployment), "ports");
    yamlfile_read(policies, "manifests/network-policy.yaml.example");
    ck_assert_uint_eq(json_array_size(policies), 2);
    json_t *extender = json_array_get(policies, 0), *nodes = json_array_get(policies, 1);
    ck_assert(json_equal(lib_at(extender, "spec.ingress.2.ports.0.port"),
                         lib_at(named(ports, "observe"), "containerPort")));
    ck_assert(json_equal(lib_at(extender, "spec.ingress.2.from"),
                         lib_at(nodes, "spec.ingress.0.from")));
    check_observed(nodes, "manifests/scv-agent.yaml");
    check_observed(nodes, "manifests/device-plugin.yaml");
}

START_TEST(the_deployment_is_unprivileged_and_has_time_to_stop)
{
    cleanup_json json_t *deployment = read_one("manifests/deployment.yaml");
    json_t *pod = lib_at(deployment, "spec.template.spec");
    json_t *c = container(deployment), *safe = lib_at(c, "securityContext");
    ck_assert(json_is_true(lib_at(pod, "securityContext.runAsNonRoot")));
    ck_assert_int_gt(json_integer_value(lib_at(pod, "securityContext.runAsUser")), 0);
    ck_assert_str_eq(lib_str(pod, "securityContext.seccompProfile.type"),
                     "RuntimeDefault");
    ck_assert(json_is_false(lib_at(safe, "allowPrivilegeEscalation")));
    ck_assert(json_is_true(lib_at(safe, "readOnlyRootFilesystem")));
    ck_assert_str_eq(lib_str(safe, "capabilities.drop.0"), "ALL");
    ck_assert_ptr_null(lib_at(pod, "hostNetwork"));
    ck_assert_ptr_null(lib_at(pod, "volumes"));
    ck_assert_int_eq(json_integer_value(lib_at(deployment, "spec.replicas")), 1);
    ck_assert_str_eq(lib_str(deployment, "spec.strategy.type"), "Recreate");
    static const char *const amounts[] = {"requests.cpu", "requests.memory", "limits.cpu",
                                          "limits.memory"};
    for (size_t i = 0; i < ARRAY_LEN(amounts); i++)
        ck_assert_str_ne(lib_str(lib_at(c, "resources"), amounts[i]), "");
    /* It leaves the Service, drains and releases the Lease before it is killed. */
    cleanup_free char *drain = value_of(deployment, "--drain-timeout");
    ck_assert_int_eq(drain[strlen(drain) - 1], 's');
    enum { PROXY_S = 2, GIVE_BACK_S = 3, SPARE_S = 5 };
    json_int_t delay =
        strtoll(lib_str(named(lib_at(c, "env"), "DRAIN_DELAY"), "value"), NULL, 10);
    const json_t *ready = lib_at(c, "readinessProbe");
    ck_assert_int_ge(delay, json_integer_value(lib_at(ready, "periodSeconds")) *
                                    json_integer_value(lib_at(ready, "failureThreshold")) +
                                PROXY_S);
    ck_assert_int_ge(json_integer_value(lib_at(pod, "terminationGracePeriodSeconds")),
                     delay + number_of(deployment, "--drain-timeout") + GIVE_BACK_S +
                         SPARE_S);
    const json_t *pod_ip = named(lib_at(c, "env"), "POD_IP");
    ck_assert_str_eq(lib_str(pod_ip, "valueFrom.fieldRef.fieldPath"), "status.podIP");
}

/* -- the policies -- */

static void check_keys(const json_t *object, const char *const *keys)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)object, key, v)
    {
        size_t i = 0;
        while (keys[i] && strcmp(keys[i], key) != 0)
            i++;
        ck_assert_msg(keys[i] != NULL, "kube-scheduler has no setting %s", key);
    }
}

/* The settings that kube-scheduler decodes; the two formats differ in two keys. */
#define STANZA                                                                           \
    "urlPrefix", "filterVerb", "preemptVerb", "prioritizeVerb", "weight", "bindVerb",    \
        "tlsConfig", "httpTimeout", "nodeCacheCapable", "managedResources", "ignorable"

#define CONFIG     "policy/kube-scheduler-config.yaml"
#define CONFIG_ALL "policy/kube-scheduler-config-all-pods.yaml"

/* The members of ExtenderTLSConfig in kube-scheduler/config/v1, which both formats share
 * since Kubernetes 1.14. `insecure` would skip the verification of the extender. */
static void check_tls(const json_t *tls)
{
    static const char *const keys[] = {"caFile", "certFile", "keyFile", "serverName",
                                       NULL};
    check_keys(tls, keys);
    for (size_t i = 0; keys[i]; i++)
        ck_assert_str_ne(lib_str(tls, keys[i]), "");
}

static json_t *legacy_policy(void)
{
    static const char *const top[] = {"kind",       "apiVersion",
                                      "extenders",  "predicates",
                                      "priorities", "hardPodAffinitySymmetricWeight",
                                      NULL};
    static const char *const keys[] = {STANZA, "enableHttps", NULL};
    json_error_t why;
    json_t *j = json_load_file("policy/scheduler-policy-config.json",
                               JSON_REJECT_DUPLICATES, &why);
    ck_assert_msg(j != NULL, "%s, line %d", why.text, why.line);
    check_keys(j, top);
    check_keys(lib_at(j, "extenders.0"), keys);
    ck_assert_str_eq(lib_str(j, "kind"), "Policy");
    ck_assert_str_eq(lib_str(j, "apiVersion"), "v1");
    /* Nanoseconds, and no string. */
    ck_assert_int_eq(json_integer_value(lib_at(j, "extenders.0.httpTimeout")), 30000000000LL);
    ck_assert(json_is_true(lib_at(j, "extenders.0.enableHttps")));
    return j;
}

static json_t *scheduler_config(const char *path)
{
    static const char *const top[] = {"kind",
                                      "apiVersion",
                                      "extenders",
                                      "leaderElection",
                                      "clientConnection",
                                      "profiles",
                                      "percentageOfNodesToScore",
                                      NULL};
    static const char *const keys[] = {STANZA, "enableHTTPS", NULL};
    json_t *j = read_one(path);
    check_keys(j, top);
    check_keys(lib_at(j, "extenders.0"), keys);
    ck_assert_str_eq(lib_str(j, "kind"), "KubeSchedulerConfiguration");
    ck_assert_str_eq(lib_str(j, "apiVersion"), "kubescheduler.config.k8s.io/v1");
    ck_assert_str_eq(lib_str(j, "extenders.0.httpTimeout"), "30s");
    ck_assert(json_is_true(lib_at(j, "extenders.0.enableHTTPS")));
    check_tls(lib_at(j, "extenders.0.tlsConfig"));
    return j;
}

START_TEST(both_policies_have_the_same_settings)
{
    cleanup_json json_t *old = legacy_policy(), *new = scheduler_config(CONFIG);
    json_t *a = lib_at(old, "extenders.0"), *b = lib_at(new, "extenders.0"), *name;
    ck_assert_uint_eq(json_array_size(lib_at(old, "extenders")), 1);
    ck_assert_uint_eq(json_array_size(lib_at(new, "extenders")), 1);
    static const char *const apart[] = {"httpTimeout", "enableHttps", "enableHTTPS"};
    ck_assert(json_is_true(lib_at(a, "nodeCacheCapable")));
    ck_assert(json_is_false(lib_at(a, "ignorable")));
    ck_assert_int_gt(json_integer_value(lib_at(a, "weight")), 0);
    static const char *const resources[] = {KEY_GPU_MEM, KEY_GPU_COUNT, KEY_GPU_CORE};
    ck_assert_uint_eq(json_array_size(lib_at(a, "managedResources")), ARRAY_LEN(resources));
    for (size_t i = 0; i < ARRAY_LEN(resources); i++) {
        name = named(lib_at(a, "managedResources"), resources[i]);
        ck_assert_msg(name != NULL, "%s is not managed", resources[i]);
        ck_assert(json_is_false(lib_at(name, "ignoredByScheduler")));
    }
    for (size_t i = 0; i < ARRAY_LEN(apart); i++) {
        json_object_del(a, apart[i]);
        json_object_del(b, apart[i]);
    }
    ck_assert(json_equal(a, b));
}

/* The configuration for all pods differs from the other in two settings of the extender:
 * managedResources, and a weight with which one point outweighs the plugins that spread pods
 * (docs/placement.md). Both offer every node: a pod is rejected only if it fits on none. */
START_TEST(the_two_setups_differ_only_in_managed_resources_and_weight)
{
    cleanup_json json_t *tainted = scheduler_config(CONFIG);
    cleanup_json json_t *all = scheduler_config(CONFIG_ALL);
    json_t *a = lib_at(tainted, "extenders.0"), *b = lib_at(all, "extenders.0");
    enum { PLUGINS = 200, POINT = 10 };
    ck_assert_int_eq(json_integer_value(lib_at(tainted, "percentageOfNodesToScore")), 100);
    ck_assert_ptr_null(lib_at(b, "managedResources"));
    ck_assert_int_gt(json_integer_value(lib_at(b, "weight")) * POINT, PLUGINS);
    json_object_del(a, "managedResources");
    json_object_del(a, "weight");
    json_object_del(b, "weight");
    ck_assert(json_equal(tainted, all));
}
END_TEST

/* The second kube-scheduler calls the extender for every pod and otherwise equals the
 * first. */
START_TEST(the_yoda_scheduler_differs_only_in_managed_resources)
{
    cleanup_json json_t *first = scheduler_config(CONFIG);
    cleanup_json json_t *yoda =
        scheduler_config("policy/kube-scheduler-config-yoda.yaml");
    ck_assert_ptr_null(lib_at(yoda, "extenders.0.managedResources"));
    ck_assert_str_eq(lib_str(yoda, "profiles.0.schedulerName"), "yoda-scheduler");
    ck_assert_str_eq(lib_str(yoda, "leaderElection.resourceName"), "yoda-scheduler");
    json_object_del(lib_at(first, "extenders.0"), "managedResources");
    ck_assert(json_equal(lib_at(first, "extenders"), lib_at(yoda, "extenders")));
}

/* The kube-scheduler in a pod uses the name of the Service and otherwise equals the
 * first. */
START_TEST(the_second_scheduler_in_a_pod_has_the_same_settings)
{
    struct err err = {0};
    cleanup_json json_t *first = scheduler_config(CONFIG);
    cleanup_json json_t *service = read_one("manifests/service.yaml");
    cleanup_json json_t *all = json_array();
    yamlfile_read(all, "policy/second-scheduler.yaml.example");
    json_t *map = of_kind(all, "ConfigMap"), *deployment = of_kind(all, "Deployment");
    cleanup_free char *path = xasprintf("%s/second.yaml", lib_dir);
    ck_assert_done(file_write(path, span_of(lib_in(map, "data", "config.yaml")), &err), err);
    cleanup_json json_t *second = scheduler_config(path);
    cleanup_free char *url =
        xasprintf("https://%s.%s.svc:%lld/gpushare-scheduler",
                  lib_str(service, "metadata.name"), lib_str(service, "metadata.namespace"),
                  (long long)json_integer_value(lib_at(service, "spec.ports.0.port")));
    ck_assert_str_eq(lib_str(second, "extenders.0.urlPrefix"), url);
    json_object_set(lib_at(second, "extenders.0"), "urlPrefix",
                    lib_at(first, "extenders.0.urlPrefix"));
    ck_assert(json_equal(lib_at(first, "extenders"), lib_at(second, "extenders")));
    ck_assert(json_equal(lib_at(first, "percentageOfNodesToScore"),
                         lib_at(second, "percentageOfNodesToScore")));
    /* The Secret has the files that the configuration names. */
    const json_t *mount =
        named(lib_at(deployment, "spec.template.spec.containers.0.volumeMounts"), "tls");
    const json_t *volume = named(lib_at(deployment, "spec.template.spec.volumes"), "tls");
    static const char *const files[] = {"caFile", "certFile", "keyFile"};
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        cleanup_free char *file =
            xasprintf("%s/%s", lib_str(mount, "mountPath"),
                      lib_str(json_array_get(lib_at(volume, "secret.items"), i), "path"));
        ck_assert_str_eq(lib_str(lib_at(second, "extenders.0.tlsConfig"), files[i]), file);
    }
    cleanup_free char *host = xasprintf("%s.%s.svc", lib_str(service, "metadata.name"),
                                        lib_str(service, "metadata.namespace"));
    ck_assert_str_eq(lib_str(second, "extenders.0.tlsConfig.serverName"), host);
    const char *name = lib_str(second, "profiles.0.schedulerName");
    ck_assert_str_eq(name, "gpushare-scheduler");
    ck_assert_str_eq(lib_str(second, "leaderElection.resourceName"), name);
    ck_assert_str_eq(lib_str(deployment, "spec.template.spec.volumes.0.configMap.name"),
                     lib_str(map, "metadata.name"));
    cleanup_free char *option =
        xasprintf("--config=%s/config.yaml",
                  lib_str(deployment, "spec.template.spec.containers.0.volumeMounts.0."
                                     "mountPath"));
    ck_assert_str_eq(lib_str(deployment, "spec.template.spec.containers.0.args.0"),
                     option);
    check_selected(deployment);
}

/* The path of a URL. */
static const char *path_of(const char *url)
{
    ck_assert_msg(strncmp(url, "https://", 8) == 0, "%s", url);
    const char *path = strchr(url + 8, '/');
    ck_assert_ptr_nonnull(path);
    return path;
}

START_TEST(the_node_port_serves_the_verbs)
{
    cleanup_json json_t *config = scheduler_config(CONFIG);
    cleanup_json json_t *service = read_one("manifests/service.yaml");
    json_t *stanza = lib_at(config, "extenders.0");
    const char *prefix = lib_str(stanza, "urlPrefix");
    cleanup_free char *address =
        xasprintf("https://127.0.0.1:%lld/",
                  (long long)json_integer_value(lib_at(service, "spec.ports.0.nodePort")));
    ck_assert_msg(strncmp(prefix, address, strlen(address)) == 0, "%s", prefix);
    /* Routes answer without an API server. */
    struct extender e;
    cleanup_buf struct buf reply = {0};
    cleanup_free char *kubeconfig = lib_kubeconfig("kubeconfig", "http", 1, "", "");
    extender_start_at(&e, kubeconfig, ARGV(NULL));
    static const char *const verbs[] = {"filterVerb", "prioritizeVerb", "bindVerb",
                                        "preemptVerb"};
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        const char *verb = lib_str(stanza, verbs[i]);
        cleanup_free char *route = xasprintf("%s/%s", path_of(prefix), verb);
        ck_assert(*verb || i == 3); /* only preempt may be missing */
        if (*verb)
            ck_assert_uint_eq(peer_call(&e.verbs, "POST", route, "no JSON", &reply), 400);
    }
    /* An unknown path is 404; the configuration names every served verb. */
    cleanup_free char *preempt = xasprintf("%s/preempt", path_of(prefix));
    ck_assert_uint_eq(peer_call(&e.verbs, "POST", preempt, "no JSON", &reply),
                      *lib_str(stanza, "preemptVerb") ? 400 : 404);
    /* The paths of the probes. */
    ck_assert_uint_eq(peer_status(&e.verbs, "/healthz"), 200);
    ck_assert_uint_eq(peer_status(&e.verbs, "/readyz"), 503);
    extender_stop(&e);
}

LIB_MAIN("deployment", 120, the_program_accepts_the_options_of_the_deployment,
         ports_agree, names_and_labels_agree,
         the_default_network_policy_keeps_the_verbs_open,
         the_network_policy_lets_observers_in_to_every_program,
         the_deployment_is_unprivileged_and_has_time_to_stop,
         both_policies_have_the_same_settings,
         the_two_setups_differ_only_in_managed_resources_and_weight,
         the_yoda_scheduler_differs_only_in_managed_resources,
         the_second_scheduler_in_a_pod_has_the_same_settings,
         the_node_port_serves_the_verbs)
