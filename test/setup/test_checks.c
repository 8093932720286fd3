/* SPDX-License-Identifier: Apache-2.0 */
#include "lib.h"
#include "setup/checks.h"

/*
 * A node without problems, and then with one problem at a time: the matching finding is
 * the only one.
 */

#define MANIFEST_AT "/etc/kubernetes/manifests/kube-scheduler.yaml"

struct swap {
    const char *from, *to;
};

static struct findings found;

static void add_manifest(struct facts *f, const char *path, char *text)
{
    f->files = xreallocarray(f->files, f->n_files + 1, sizeof *f->files);
    f->files[f->n_files++] = lib_file(path, text);
}

/* Adds the process of the manifest's command, started after all files were written. */
static void add_process(struct facts *f)
{
    struct scheduler_pod pod;
    struct facts_process p = {.pid = 4711, .started_ns = 2000000000};
    ck_assert_ptr_nonnull(facts_manifest(f, &pod));
    const json_t *words = jsonpath_at(pod.container, "command");
    for (size_t i = 0; i < json_array_size(words); i++) {
        buf_adds(&p.arguments, json_string_value(json_array_get(words, i)));
        buf_addc(&p.arguments, '\0');
    }
    f->processes = xreallocarray(f->processes, f->n_processes + 1, sizeof *f->processes);
    f->processes[f->n_processes++] = p;
}

static struct facts node(const char *version, struct swap manifest, struct swap config)
{
    bool old = !strcmp(version, "1.22");
    struct facts f = {.manifests = xstrdup("/etc/kubernetes/manifests")};
    char *pod = old ? lib_manifest(version, "policy-config-file", POLICY_AT)
                    : lib_manifest(version, "config", CONFIG_AT);
    char *text = lib_read(old ? POLICY : CONFIG);
    if (manifest.from)
        pod = lib_swap(pod, manifest.from, manifest.to);
    if (config.from)
        text = lib_swap(text, config.from, config.to);
    add_manifest(&f, MANIFEST_AT, pod);
    f.config = lib_file(old ? POLICY_AT : CONFIG_AT, text);
    struct scheduler_pod p;
    cleanup_buf struct buf path = {0};
    bool policy;
    if (facts_manifest(&f, &p)) {
        f.config_mounted =
            scheduler_pod_host_path(&p, scheduler_pod_config_option(&p, &policy), &path);
        add_process(&f);
    }
    extender_entry_read_url("https://127.0.0.1:32766/gpushare-scheduler", &f.reach.url,
                            NULL);
    f.reach.answer = FACTS_REACH_OK;
    err_set(&f.cluster_why, ERR_UNAVAILABLE, "not asked");
    return f;
}

static void run_checks(struct facts *f)
{
    findings_fini(&found);
    checks_run(f, false, &found);
}

/* `id` (NULL: none) is the only problem. */
static void expect(const char *id)
{
    cleanup_buf struct buf text = {0};
    findings_write(&found, &text);
    const char *said = text.p ? text.p : "";
    ck_assert_msg(!id || findings_has(&found, id), "no %s in: %s", id, said);
    ck_assert_msg(findings_count(&found, FINDING_PROBLEM) == (id ? 1 : 0), "%s: %s",
                  id ? id : "no problem", said);
    ck_assert_uint_eq(findings_count(&found, FINDING_UNKNOWN), 0);
    ck_assert_int_eq(findings_exit_status(&found), id ? 1 : 0);
}

static void expect_of(struct facts *f, const char *id)
{
    run_checks(f);
    expect(id);
    facts_fini(f);
    findings_fini(&found);
}

START_TEST(a_correct_node_has_no_problems)
{
    static const char *const versions[] = {"1.22", "1.25", "1.31", "1.35"};
    for (size_t i = 0; i < ARRAY_LEN(versions); i++) {
        struct facts f = node(versions[i], (struct swap){0}, (struct swap){0});
        expect_of(&f, NULL);
    }
}
END_TEST

static const struct one {
    const char *id, *version;
    struct swap manifest, config;
} ones[] = {
    {"no-option", "1.31", {"--config=", "--v="}, {0}},
    {"policy-refused", "1.25", {"--config=", "--policy-config-file="}, {0}},
    {"not-mounted", "1.31", {"--config=/etc", "--config=etc"}, {0}},
    {"not-mounted", "1.35", {"mountPath: " CONFIG_AT, "mountPath: /elsewhere"}, {0}},
    {"not-mounted",
     "1.35",
     {"    name: added\n  - hostPath", "    name: other\n  - hostPath"},
     {0}},
    {"config-malformed", "1.35", {0}, {"extenders:", "extenders: ["}},
    {"config-malformed", "1.35", {0}, {"ignorable: false", "ignorable: &a false"}},
    {"config-malformed", "1.35", {0}, {"weight: 3", "ignorable: true"}},
    {"config-kind", "1.35", {0}, {"kind: KubeSchedulerConfiguration", "kind: Policy"}},
    {"config-kind", "1.22", {"--policy-config-file", "--config"}, {0}},
    {"api-version", "1.31", {0}, {"k8s.io/v1\n", "k8s.io/v1beta3\n"}},
    {"no-kubeconfig", "1.35", {0}, {"  kubeconfig: /etc", "  #kubeconfig: /etc"}},
    {"no-extender", "1.35", {0}, {"extenders:", "profiles:"}},
    {"bad-url", "1.35", {0}, {"https://127", "127"}},
    {"bad-url", "1.35", {0}, {":32766", ":327660"}},
    {"no-filter", "1.35", {0}, {"filterVerb: filter", "filterVerb: ''"}},
    {"no-bind", "1.31", {0}, {"bindVerb: bind", "#"}},
    {"no-prioritize", "1.31", {0}, {"prioritizeVerb: prioritize", "#"}},
    {"no-preempt", "1.25", {0}, {"preemptVerb: preempt", "#"}},
    {"ignorable", "1.35", {0}, {"ignorable: false", "ignorable: true"}},
    {"no-node-cache", "1.35", {0}, {"nodeCacheCapable: true", "nodeCacheCapable: false"}},
    {"no-node-cache", "1.22", {0}, {"\"nodeCacheCapable\": true,", ""}},
    {"resource-missing", "1.35", {0}, {"name: aliyun.com/gpu-mem", "name: x"}},
    {"resource-missing", "1.35", {0}, {"name: aliyun.com/gpu-count", "name: x"}},
    {"ignored-by-scheduler",
     "1.35",
     {0},
     {"  - name: aliyun.com/gpu-mem\n    ignoredByScheduler: false",
      "  - name: aliyun.com/gpu-mem\n    ignoredByScheduler: true"}},
    {"no-resources",
     "1.35",
     {0},
     {"managedResources:", "managedResources: []\n  other:"}},
    {"timeout-short", "1.35", {0}, {"httpTimeout: 30s", "#"}},
    {"timeout-short", "1.35", {0}, {"httpTimeout: 30s", "httpTimeout: 5s"}},
    {"timeout-short", "1.35", {0}, {"httpTimeout: 30s", "httpTimeout: 30ns"}},
    {"timeout-short", "1.22", {0}, {"30000000000", "30"}},
    {"https", "1.35", {0}, {"https://", "http://"}},
    {"https", "1.22", {0}, {"https://", "http://"}},
    {"no-client-certificate", "1.35", {0}, {"certFile:", "other:"}},
};

/* Ours answers with one node, so a later filter can only accept or reject that. */
START_TEST(an_extender_that_filters_after_ours_is_noted)
{
    static const struct {
        const char *verb;
        bool first, noted;
    } cases[] = {{"filterVerb: f", false, true},
                 {"filterVerb: f", true, false},
                 {"filterVerb: ''", false, false},
                 {"prioritizeVerb: p", false, false}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_free char *other = xasprintf("- urlPrefix: http://127.0.0.1:1/other\n"
                                             "  httpTimeout: 30s\n  %s\n",
                                             cases[i].verb);
        cleanup_free char *first = xasprintf("extenders:\n%s", other);
        cleanup_free char *last = xasprintf("  ignorable: false\n%s", other);
        struct swap swap = cases[i].first ? (struct swap){"extenders:", first}
                                          : (struct swap){"  ignorable: false\n", last};
        struct facts f = node("1.35", (struct swap){0}, swap);
        run_checks(&f);
        expect(NULL);
        ck_assert_int_eq(findings_has(&found, "not-last"), cases[i].noted);
        facts_fini(&f);
        findings_fini(&found);
    }
}
END_TEST

START_TEST(a_configuration_without_compute_is_noted)
{
    static const char name[] = "  - name: aliyun.com/gpu-core.percentage\n"
                               "    ignoredByScheduler: ";
    cleanup_free char *counted = xasprintf("%sfalse", name);
    cleanup_free char *ignored = xasprintf("%strue", name);
    const struct {
        struct swap swap;
        const char *problem;
        bool noted;
    } cases[] = {{{0}, NULL, false},
                 {{counted, ""}, NULL, true},
                 {{counted, ignored}, "ignored-by-scheduler", false}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct facts f = node("1.35", (struct swap){0}, cases[i].swap);
        run_checks(&f);
        expect(cases[i].problem);
        ck_assert_int_eq(findings_has(&found, "compute-unmanaged"), cases[i].noted);
        facts_fini(&f);
        findings_fini(&found);
    }
}
END_TEST

/* The configuration for all pods needs an extender that binds them, and whose pods are
 * bound while one of them is replaced. */
START_TEST(the_configuration_for_all_pods_needs_an_extender_that_binds_them)
{
    static const struct {
        const char *deployment; /* its spec, without the braces */
        const char *args;
        const char *id; /* the only problem */
    } cases[] = {
        {"\"replicas\":3,", "\"--memory-unit=GiB\",\"--bind-any\"", NULL},
        {"\"replicas\":2,", "\"--bind-any=on\"", NULL},
        {"\"replicas\":1,", "\"--bind-any\"", "no-resources"},
        {"", "\"--bind-any\"", "no-resources"},
        {"\"replicas\":3,", "\"--bind-any=off\"", "no-resources"},
        {"\"replicas\":3,", "", "no-resources"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct facts f = node("1.35", (struct swap){0}, (struct swap){0});
        json_error_t bad;
        cleanup_free char *list =
            xasprintf("{\"items\":[{\"spec\":{%s\"template\":{\"spec\":{\"containers\":"
                      "[{\"args\":[%s]}]}}}}]}",
                      cases[i].deployment, cases[i].args);
        f.lists[FACTS_DEPLOYMENTS].json = json_loads(list, 0, &bad);
        ck_assert_msg(f.lists[FACTS_DEPLOYMENTS].json != NULL, "%s: %s", bad.text, list);
        facts_file_fini(&f.config);
        f.config = lib_file(CONFIG_AT, lib_read(CONFIG_ALL));
        run_checks(&f);
        expect(cases[i].id);
        ck_assert_int_eq(findings_has(&found, "all-pods"), cases[i].id == NULL);
        facts_fini(&f);
        findings_fini(&found);
    }
}
END_TEST

/* kube-scheduler uses tlsConfig whatever enableHTTPS is. */
START_TEST(tls_config_without_enable_https)
{
    static const struct {
        struct swap swap;
        const char *id;
    } cases[] = {{{"enableHTTPS: true", "enableHTTPS: false"}, NULL},
                 {{"enableHTTPS: true\n", "#\n"}, NULL},
                 {{"    caFile:", "    insecure: true\n    other:"}, NULL}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct facts f = node("1.35", (struct swap){0}, cases[i].swap);
        expect_of(&f, cases[i].id);
    }
}
END_TEST

START_TEST(one_problem_at_a_time)
{
    for (size_t i = 0; i < ARRAY_LEN(ones); i++) {
        const struct one *o = &ones[i];
        struct facts f = node(o->version, o->manifest, o->config);
        expect_of(&f, o->id);
    }
}
END_TEST

/* -- problems outside the two files -- */

START_TEST(no_static_pod)
{
    struct facts f = {.manifests = xstrdup("/etc/kubernetes/manifests")};
    expect_of(&f, "no-static-pod");
    err_set(&f.manifests_why, ERR_NOT_FOUND, "/etc/kubernetes/manifests: no such file");
    expect_of(&f, "no-static-pods");
    err_set(&f.manifests_why, ERR_FORBIDDEN, "/etc/kubernetes/manifests: no");
    run_checks(&f);
    ck_assert_int_eq(findings_exit_status(&found), 2);
    facts_fini(&f);
    add_manifest(&f, MANIFEST_AT, xstrdup("spec: ["));
    expect_of(&f, "manifest-malformed");
}
END_TEST

START_TEST(a_copy_beside_the_manifest)
{
    struct facts f = node("1.31", (struct swap){0}, (struct swap){0});
    add_manifest(&f, MANIFEST_AT ".bak", lib_read(KUBEADM "1.31.yaml"));
    expect_of(&f, "two-manifests");
    f = node("1.31", (struct swap){0}, (struct swap){0});
    add_manifest(&f, "/m/yoda.yaml",
                 lib_swap(lib_read(KUBEADM "1.31.yaml"),
                          "  name: kube-scheduler\n  names", "  name: yoda\n  names"));
    expect_of(&f, NULL);
}
END_TEST

/* kubeadm's pod is checked, wherever it is in the folder. */
START_TEST(another_scheduler_in_the_folder)
{
    struct facts f = node("1.31", (struct swap){0}, (struct swap){0});
    add_manifest(&f, "/m/a.yaml",
                 lib_swap(lib_read(KUBEADM "1.31.yaml"),
                          "  name: kube-scheduler\n  names", "  name: gpu\n  names"));
    struct facts_file second = f.files[0];
    f.files[0] = f.files[1];
    f.files[1] = second;
    expect_of(&f, NULL);
}
END_TEST

START_TEST(kube_scheduler_behind_a_proxy)
{
    static const struct {
        const char *url, *no_proxy;
        bool found;
    } cases[] = {
        {"http://10.0.0.7:32766", "", true},
        {"http://127.0.0.1:32766", "", false},
        {"http://localhost:32766", "", false},
        {"http://[::1]:32766", "", false},
        {"http://10.0.0.7:32766", "localhost,10.0.0.8", true},
        {"http://10.0.0.7:32766", "localhost, 10.0.0.7", false},
        {"http://10.0.0.7:32766", "10.0.0.7:32766", false},
        {"http://10.0.0.7:32766", "10.0.0.7:80", true},
        {"http://10.0.0.7:32766", "10.0.0.0/29", false},
        {"http://10.0.0.8:32766", "10.0.0.0/29", true},
        {"http://10.0.0.8:32766", "0.0.0.0/0", false},
        {"http://10.0.0.8:32766", "::/0,10.0.0.8/33,/8,a/8", true},
        {"http://10.0.0.8:32766", "*", false},
        {"http://[fd00::7]:32766", "fd00::/64", false},
        {"http://[fd00::7]:32766", "fd00:0::7", false},
        {"http://[fd00::7]:32766", "[fd00::7]:32766", false},
        {"http://[fd00:1::7]:32766", "fd00::/64", true},
        {"http://e.x.test:32766", "x.test", false},
        {"http://e.x.test:32766", "*.x.test", false},
        {"http://x.test:32766", ".x.test", true},
        {"http://x.test:32766", "X.TEST", false},
        {"http://ax.test:32766", "x.test", true},
        {"http://ax.test:32766", "10.0.0.0/8,,:,[", true},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_free char *env =
            xasprintf("    env:\n    - name: http_proxy\n      value: "
                      "http://proxy:3128\n    - name: NO_PROXY\n      value: '%s'\n",
                      cases[i].no_proxy);
        cleanup_free char *url = xasprintf("%s/gpushare-scheduler", cases[i].url);
        struct facts f =
            node("1.35", (struct swap){"    imagePullPolicy: IfNotPresent\n", env},
                 (struct swap){"https://127.0.0.1:32766/gpushare-scheduler", url});
        run_checks(&f);
        ck_assert_msg(findings_has(&found, "proxy") == cases[i].found, "%s, NO_PROXY %s",
                      cases[i].url, cases[i].no_proxy);
        facts_fini(&f);
        findings_fini(&found);
    }
}
END_TEST

START_TEST(the_configuration_file_is_missing)
{
    static const struct {
        enum err_code code;
        const char *id;
    } kinds[] = {{ERR_NOT_FOUND, "file-absent"}, {ERR_UNAVAILABLE, "file-absent"}};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct facts f = node("1.35", (struct swap){0}, (struct swap){0});
        err_set(&f.config.why, kinds[i].code, "/x: why");
        expect_of(&f, kinds[i].id);
    }
}
END_TEST

START_TEST(the_process_does_not_match)
{
    struct facts f = node("1.35", (struct swap){0}, (struct swap){0});
    f.processes[0].started_ns = 900000000;
    expect_of(&f, "older-than-file");
    f = node("1.35", (struct swap){0}, (struct swap){0});
    buf_add(&f.processes[0].arguments, "--v=9", 6);
    expect_of(&f, "other-arguments");
    f = node("1.35", (struct swap){0}, (struct swap){0});
    buf_fini(&f.processes[0].arguments);
    f.n_processes = 0;
    expect_of(&f, "not-running");
    /* A younger process of another scheduler beside the pod's. */
    f = node("1.35", (struct swap){0}, (struct swap){0});
    add_process(&f);
    f.processes[1].started_ns = 3000000000;
    buf_add(&f.processes[1].arguments, "--v=9", 6);
    expect_of(&f, NULL);
}
END_TEST

START_TEST(a_tls_file_is_missing)
{
    struct facts f = node("1.35", (struct swap){0}, (struct swap){0});
    facts_file_fini(&f.tls[0]);
    f.tls[0] = (struct facts_file){.path = xstrdup("/ca.crt")};
    err_set(&f.tls[0].why, ERR_NOT_FOUND, "/ca.crt: no such file");
    expect_of(&f, "tls-file");
}
END_TEST

UNIT_MAIN("setup/checks", a_correct_node_has_no_problems,
          an_extender_that_filters_after_ours_is_noted,
          a_configuration_without_compute_is_noted, one_problem_at_a_time,
          the_configuration_for_all_pods_needs_an_extender_that_binds_them,
          tls_config_without_enable_https, no_static_pod, a_copy_beside_the_manifest,
          another_scheduler_in_the_folder, kube_scheduler_behind_a_proxy,
          the_configuration_file_is_missing, the_process_does_not_match,
          a_tls_file_is_missing)
