/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/keys.h"
#include "lib/doc.h"
#include "lib/extender.h"
#include "lib/yamlfile.h"

/*
 * The Deployment, the Service and the configurations of kube-scheduler against the
 * program: the options exist, ports and names match, and the verbs are served.
 */

static const json_t *deployment, *service, *container, *ports;

static void begin(void)
{
    deployment = yamlfile_one("manifests/deployment.yaml");
    service = yamlfile_one("manifests/service.yaml");
    ck_assert_uint_eq(lib_size(deployment, "spec.template.spec.containers"), 1);
    container = lib_at(deployment, "spec.template.spec.containers.0");
    ports = lib_at(container, "ports");
}

/* -- the Deployment -- */

static const char *variable(const char *name)
{
    return lib_str(lib_find(lib_at(container, "env"), "name", name), "value");
}

/* The value of an option of the Deployment, or its default, which --help names so. */
static const char *option(const char *name, const char *value, const char *initial)
{
    json_t *j;
    const char *set = lib_fmt("%s=", name);
    ck_assert_contains(doc_help("gpushare-extender"),
                       lib_fmt("\n  %s %s  [default: %s]", name, value, initial));
    lib_each(j, lib_at(container, "args")) {
        if (strncmp(lib_str(j, ""), set, strlen(set)) == 0)
            return lib_str(j, "") + strlen(set);
    }
    return initial;
}

TEST(the_program_accepts_the_options_of_the_deployment)
{
    const char *argv[PROGRAM_ARGS] = {"env"};
    size_t n = 1;
    json_t *j;
    lib_each(j, lib_at(container, "env")) {
        ck_assert_contains(doc_help("gpushare-extender"),
                           lib_fmt("(environment: %s)", lib_str(j, "name")));
        n = program_args(argv, n,
                         ARGV(lib_fmt("%s=%s", lib_str(j, "name"), lib_str(j, "value"))));
    }
    n = program_args(
        argv, n,
        ARGV(lib_built("gpushare-extender"), "--kubeconfig", "/nonexistent/config"));
    lib_each(j, lib_at(container, "args"))
        n = program_args(argv, n, ARGV(lib_str(j, "")));
    /* It accepts the options, then finds no API server. */
    ck_assert_contains(lib_output(1, argv), "/nonexistent/config");
    ck_assert_at(container, "command.0", "gpushare-extender");
}

TEST(ports_agree)
{
    ck_assert_str_eq(lib_text(service, "spec.ports"),
                     "[{\"name\":\"http\",\"nodePort\":32766,\"port\":12345,"
                     "\"targetPort\":12345}]");
    ck_assert_str_eq(variable("PORT"), "12345");
    ck_assert_int_eq(lib_int(lib_find(ports, "name", "http"), "containerPort"), 12345);
    ck_assert_str_eq(lib_text(lib_find(ports, "name", "observe"), "containerPort"),
                     option("--observe-port", "N", "12346"));
    static const char *const probes[] = {"startupProbe", "livenessProbe",
                                         "readinessProbe"};
    array_items(probe, probes) {
        json_t *get = lib_at(lib_at(container, *probe), "httpGet");
        ck_assert_msg(lib_find(ports, "name", lib_str(get, "port")) != NULL, "%s",
                      *probe);
        ck_assert_at(get, "scheme", "HTTPS"); /* without --insecure */
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

TEST(names_and_labels_agree)
{
    const json_t *lease = yamlfile_one("manifests/lease.yaml");
    json_t *labels = lib_at(deployment, "spec.selector.matchLabels");
    ck_assert_int_eq(json_object_size(labels), 2);
    check_selected(deployment);
    ck_assert(json_equal(labels, lib_at(service, "spec.selector")));
    ck_assert(
        json_equal(labels, lib_at(yamlfile_all("manifests/network-policy.yaml.example"),
                                  "0.spec.podSelector.matchLabels")));
    ck_assert_at(service, "metadata.namespace",
                 lib_str(deployment, "metadata.namespace"));
    ck_assert_at(lease, "metadata.namespace",
                 option("--lease-namespace", "NAME", "kube-system"));
    ck_assert_at(yamlfile_one("manifests/namespace.yaml"), "metadata.name",
                 KEY_LEASE_NAMESPACE);
    /* Without a holder, so that no replica has to wait for it to expire. */
    ck_assert_str_eq(lib_text(lease, "spec"), "{}");
}

/* Does the policy open the port that the file's DaemonSet has for observers? */
static void check_observed(const json_t *policy, const char *path)
{
    const json_t *set = of_kind(yamlfile_all(path), "DaemonSet");
    const json_t *labels = lib_at(set, "spec.template.metadata.labels");
    ck_assert_at(policy, "spec.podSelector.matchLabels.app", lib_str(labels, "app"));
    ck_assert_ptr_nonnull(
        lib_find(lib_at(policy, "spec.podSelector.matchExpressions.0.values"), "",
                 lib_str(labels, "component")));
    const json_t *open =
        lib_find(lib_at(set, "spec.template.spec.containers.0.ports"), "name", "health");
    ck_assert_int_gt(lib_int(open, "containerPort"), 0);
    ck_assert_contains(lib_text(policy, "spec.ingress.0.ports"),
                       lib_fmt("\"port\":%s,", lib_text(open, "containerPort")));
}

/* The default policy closes no port that a default installation needs: the verbs come from
 * any address, because kube-proxy masquerades requests through a node port, and nothing
 * limits what the pods call. The strict policy replaces it: the same objects. */
TEST(the_network_policies_let_observers_in_to_every_program)
{
    static const char *const files[] = {"manifests/network-policy.yaml",
                                        "manifests/network-policy.yaml.example"};
    const json_t *policies[ARRAY_LEN(files)];
    array_indices(i, files) {
        const json_t *all = policies[i] = yamlfile_all(files[i]);
        const json_t *observers =
            lib_at(all, i ? "0.spec.ingress.2" : "0.spec.ingress.1");
        ck_assert_uint_eq(json_array_size(all), 2);
        ck_assert_str_eq(lib_text(observers, "from"),
                         lib_text(all, "1.spec.ingress.0.from"));
        ck_assert_str_eq(lib_text(observers, "ports.0.port"),
                         lib_text(lib_find(ports, "name", "observe"), "containerPort"));
        check_observed(lib_at(all, "1"), "manifests/scv-agent.yaml.example");
        check_observed(lib_at(all, "1"), "manifests/node.yaml");
        static const char *const same[] = {"0.metadata", "1.metadata",
                                           "0.spec.podSelector", "1.spec.podSelector"};
        array_items(c, same)
            ck_assert_str_eq(lib_text(all, *c), lib_text(policies[0], *c));
    }
    ck_assert_ptr_null(lib_at(policies[0], "0.spec.ingress.0.from"));
    ck_assert_str_eq(lib_text(policies[0], "0.spec.ingress.0.ports.0.port"),
                     lib_text(service, "spec.ports.0.targetPort"));
    ck_assert_str_eq(lib_text(policies[0], "0.spec.policyTypes"), "[\"Ingress\"]");
    ck_assert_str_eq(lib_text(policies[0], "1.spec.policyTypes"), "[\"Ingress\"]");
}

TEST(the_deployment_is_unprivileged_and_has_time_to_stop)
{
    static const struct {
        const char *path, *is;
    } facts[] = {
        {"spec.replicas", "1"},
        {"spec.strategy.type", "\"Recreate\""},
        {"spec.template.spec.hostNetwork", ""},
        {"spec.template.spec.volumes", ""},
        {"spec.template.spec.securityContext",
         "{\"runAsGroup\":65532,\"runAsNonRoot\":true,\"runAsUser\":65532,"
         "\"seccompProfile\":{\"type\":\"RuntimeDefault\"}}"},
        {"spec.template.spec.containers.0.securityContext",
         "{\"allowPrivilegeEscalation\":false,\"capabilities\":{\"drop\":[\"ALL\"]},"
         "\"readOnlyRootFilesystem\":true}"},
    };
    array_items(fact, facts)
        ck_assert_str_eq(lib_text(deployment, fact->path), fact->is);
    static const char *const amounts[] = {"requests.cpu", "requests.memory", "limits.cpu",
                                          "limits.memory"};
    array_items(amount, amounts)
        ck_assert_str_ne(lib_str(lib_at(container, "resources"), *amount), "");
    /* It leaves the Service, drains and releases the Lease before it is killed. */
    const char *drain = option("--drain-timeout", "TIME", "20s");
    ck_assert_int_eq(drain[strlen(drain) - 1], 's');
    enum { PROXY_S = 2, GIVE_BACK_S = 3, SPARE_S = 5 };
    json_int_t delay = strtoll(variable("DRAIN_DELAY"), NULL, 10);
    const json_t *ready = lib_at(container, "readinessProbe");
    ck_assert_int_ge(
        delay,
        lib_int(ready, "periodSeconds") * lib_int(ready, "failureThreshold") + PROXY_S);
    ck_assert_int_ge(
        lib_int(deployment, "spec.template.spec.terminationGracePeriodSeconds"),
        delay + strtoll(drain, NULL, 10) + GIVE_BACK_S + SPARE_S);
    ck_assert_at(lib_find(lib_at(container, "env"), "name", "POD_IP"),
                 "valueFrom.fieldRef.fieldPath", "status.podIP");
}

/* -- the policies -- */

static void check_keys(const json_t *object, const char *keys)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)object, key, v)
        ck_assert_contains(keys, lib_fmt(" %s ", key));
}

/* The settings that kube-scheduler decodes; the two formats differ in two keys. */
#define STANZA                                                                           \
    " urlPrefix filterVerb preemptVerb prioritizeVerb weight bindVerb tlsConfig "        \
    "httpTimeout nodeCacheCapable managedResources ignorable "

#define CONFIG     "policy/kube-scheduler-config.yaml"
#define CONFIG_ALL "policy/kube-scheduler-config-all-pods.yaml"

static json_t *legacy_policy(void)
{
    json_t *j = lib_own(json_load_file("policy/scheduler-policy-config.json",
                                       JSON_REJECT_DUPLICATES, NULL));
    check_keys(j, " kind apiVersion extenders predicates priorities "
                  "hardPodAffinitySymmetricWeight ");
    check_keys(lib_at(j, "extenders.0"), STANZA "enableHttps ");
    ck_assert_at(j, "kind", "Policy");
    ck_assert_at(j, "apiVersion", "v1");
    /* Nanoseconds, and no string. */
    ck_assert_int_eq(lib_int(j, "extenders.0.httpTimeout"), 30000000000LL);
    ck_assert(json_is_true(lib_at(j, "extenders.0.enableHttps")));
    return j;
}

static json_t *scheduler_config(const char *path)
{
    json_t *j = yamlfile_one(path), *tls = lib_at(j, "extenders.0.tlsConfig");
    check_keys(j, " kind apiVersion extenders leaderElection clientConnection profiles ");
    check_keys(lib_at(j, "extenders.0"), STANZA "enableHTTPS ");
    ck_assert_at(j, "kind", "KubeSchedulerConfiguration");
    ck_assert_at(j, "apiVersion", "kubescheduler.config.k8s.io/v1");
    ck_assert_at(j, "extenders.0.httpTimeout", "30s");
    ck_assert(json_is_true(lib_at(j, "extenders.0.enableHTTPS")));
    /* ExtenderTLSConfig of kube-scheduler/config/v1, which both formats share since
     * Kubernetes 1.14. `insecure` would skip the verification of the extender. */
    check_keys(tls, " caFile certFile keyFile serverName ");
    ck_assert_uint_eq(json_object_size(tls), 4);
    return j;
}

/* The extenders of both are the same but for the members of `apart`, which ends with NULL. */
static void compare(const json_t *one, const json_t *other, const char *const *apart)
{
    json_t *a = lib_own(json_deep_copy(lib_at(one, "extenders"))),
           *b = lib_own(json_deep_copy(lib_at(other, "extenders")));
    ck_assert_uint_eq(json_array_size(a), 1);
    for (; *apart; apart++) {
        json_object_del(json_array_get(a, 0), *apart);
        json_object_del(json_array_get(b, 0), *apart);
    }
    ck_assert_str_eq(lib_text(a, ""), lib_text(b, ""));
}

TEST(both_policies_have_the_same_settings)
{
    const json_t *old = legacy_policy(), *config = scheduler_config(CONFIG);
    compare(old, config, ARGV("httpTimeout", "enableHttps", "enableHTTPS"));
    ck_assert(json_is_true(lib_at(old, "extenders.0.nodeCacheCapable")));
    ck_assert(json_is_false(lib_at(old, "extenders.0.ignorable")));
    ck_assert_int_gt(lib_int(old, "extenders.0.weight"), 0);
    static const char *const resources[] = {KEY_GPU_MEM, KEY_GPU_COUNT, KEY_GPU_SHARE,
                                            KEY_GPU_CORE};
    const json_t *managed = lib_at(old, "extenders.0.managedResources");
    ck_assert_uint_eq(json_array_size(managed), ARRAY_LEN(resources));
    array_items(resource, resources)
        ck_assert(json_is_false(
            lib_at(lib_find(managed, "name", *resource), "ignoredByScheduler")));
}

/* The configuration for all pods differs from the other in two settings of the extender:
 * managedResources, and a weight with which one point outweighs the plugins that spread pods
 * (docs/placement.md). */
TEST(the_setups_differ_only_in_managed_resources_and_weight)
{
    json_t *tainted = scheduler_config(CONFIG), *all = scheduler_config(CONFIG_ALL);
    enum { PLUGINS = 200, POINT = 10 };
    ck_assert_ptr_null(lib_at(all, "extenders.0.managedResources"));
    ck_assert_int_gt(lib_int(all, "extenders.0.weight") * POINT, PLUGINS);
    compare(tainted, all, ARGV("managedResources", "weight"));
    /* The second kube-scheduler calls the extender for every pod. */
    const json_t *yoda = scheduler_config("policy/kube-scheduler-config-yoda.yaml");
    ck_assert_ptr_null(lib_at(yoda, "extenders.0.managedResources"));
    ck_assert_at(yoda, "profiles.0.schedulerName", "yoda-scheduler");
    ck_assert_at(yoda, "leaderElection.resourceName", "yoda-scheduler");
    compare(tainted, yoda, ARGV("managedResources"));
    json_object_del(tainted, "extenders");
    json_object_del(all, "extenders");
    ck_assert(json_equal(tainted, all));
}

/* The kube-scheduler in a pod uses the name of the Service and otherwise equals the
 * first. */
TEST(the_second_scheduler_in_a_pod_has_the_same_settings)
{
    const json_t *first = scheduler_config(CONFIG),
                 *all = yamlfile_all("policy/second-scheduler.yaml.example"),
                 *map = of_kind(all, "ConfigMap"), *second = of_kind(all, "Deployment"),
                 *pod = lib_at(second, "spec.template.spec");
    temp_write(lib_dir, "second.yaml", lib_in(map, "data", "config.yaml"));
    const json_t *config = scheduler_config(lib_path("second.yaml"));
    const char *host = lib_fmt("%s.%s.svc", lib_str(service, "metadata.name"),
                               lib_str(service, "metadata.namespace"));
    ck_assert_at(config, "extenders.0.urlPrefix",
                 lib_fmt("https://%s:%lld/gpushare-scheduler", host,
                         (long long)lib_int(service, "spec.ports.0.port")));
    ck_assert_at(config, "extenders.0.tlsConfig.serverName", host);
    compare(first, config, ARGV("urlPrefix"));
    /* The Secret has the files that the configuration names. */
    const char *folder = lib_str(
        lib_find(lib_at(pod, "containers.0.volumeMounts"), "name", "tls"), "mountPath");
    const json_t *items =
        lib_at(lib_find(lib_at(pod, "volumes"), "name", "tls"), "secret.items");
    static const char *const files[] = {"caFile", "certFile", "keyFile"};
    array_indices(i, files)
        ck_assert_at(lib_at(config, "extenders.0.tlsConfig"), files[i],
                     lib_fmt("%s/%s", folder, lib_str(json_array_get(items, i), "path")));
    ck_assert_at(config, "profiles.0.schedulerName", "gpushare-scheduler");
    ck_assert_at(config, "leaderElection.resourceName", "gpushare-scheduler");
    ck_assert_at(pod, "volumes.0.configMap.name", lib_str(map, "metadata.name"));
    ck_assert_at(pod, "containers.0.args.0",
                 lib_fmt("--config=%s/config.yaml",
                         lib_str(pod, "containers.0.volumeMounts.0.mountPath")));
    check_selected(second);
}

TEST(the_node_port_serves_the_verbs)
{
    const json_t *stanza = lib_at(scheduler_config(CONFIG), "extenders.0");
    const char *address = lib_fmt("https://127.0.0.1:%lld/",
                                  (long long)lib_int(service, "spec.ports.0.nodePort")),
               *prefix = lib_str(stanza, "urlPrefix");
    ck_assert_msg(strncmp(prefix, address, strlen(address)) == 0, "%s", prefix);
    prefix += strlen(address) - 1;
    /* Routes answer without an API server. */
    struct extender e;
    cleanup_buf struct buf reply = {0};
    cleanup_free char *kubeconfig = lib_kubeconfig("kubeconfig", "http", 1, "", "");
    extender_start_at(&e, kubeconfig, NULL);
    static const char *const verbs[] = {"filterVerb", "prioritizeVerb", "bindVerb",
                                        "preemptVerb"};
    array_items(v, verbs) {
        const char *verb = lib_str(stanza, *v);
        ck_assert_str_ne(verb, "");
        ck_assert_uint_eq(peer_call(&e.verbs, "POST", lib_fmt("%s/%s", prefix, verb),
                                    "no JSON", &reply),
                          400);
    }
    /* The paths of the probes. */
    ck_assert_uint_eq(peer_status(&e.verbs, "/healthz"), 200);
    ck_assert_uint_eq(peer_status(&e.verbs, "/readyz"), 503);
    extender_stop(&e);
}

LIB_MAIN_AROUND(120, begin, NULL)
