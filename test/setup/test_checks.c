/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include "kube/tls_secret.h"
#include "lib.h"
#include "lib/temp.h"
#include "lib/tls.h"
#include "setup/checks.h"
#include "setup/edit.h"

/*
 * A node without problems, and then with one problem at a time: the matching finding is
 * the only one.
 */

struct swap {
    const char *from, *to;
};

enum { DAY_S = 24 * 3600 };

static struct checks found;
static char *dir; /* of certificates, made by openssl */

static void add_manifest(struct facts *f, const char *path, char *text)
{
    f->files = xreallocarray(f->files, f->n_files + 1, sizeof *f->files);
    f->files[f->n_files++] = lib_file(path, text);
}

/* Adds the process of the manifest's command, started after all files were written. */
static void add_process(struct facts *f)
{
    struct scheduler_config_pod pod;
    struct facts_process p = {.pid = 4711, .started_ns = 2000000000};
    ck_assert_ptr_nonnull(facts_manifest(f, &pod));
    const json_t *words = edit_value(pod.container, "command");
    for (size_t i = 0; i < json_array_size(words); i++) {
        buf_adds(&p.arguments, json_string_value(json_array_get(words, i)));
        buf_addc(&p.arguments, '\0');
    }
    f->processes = xreallocarray(f->processes, f->n_processes + 1, sizeof *f->processes);
    f->processes[f->n_processes++] = p;
}

/* A node of kubeadm after an installation, with a change of one of its two files. */
static struct facts node(const char *version, struct swap manifest, struct swap config)
{
    char *pod = lib_manifest(version), *text = lib_read(CONFIG);
    if (!strcmp(version, "1.22"))
        text = lib_swap(text, "k8s.io/v1\n", "k8s.io/v1beta2\n");
    if (manifest.from)
        pod = lib_swap(pod, manifest.from, manifest.to);
    if (config.from)
        text = lib_swap(text, config.from, config.to);
    struct facts f = lib_node(pod, text);
    struct scheduler_config_pod p;
    if (facts_manifest(&f, &p))
        add_process(&f);
    scheduler_config_read_url("https://127.0.0.1:32766/gpushare-scheduler", &f.reach.url,
                              NULL);
    f.reach.answer = FACTS_REACH_OK;
    return f;
}

static struct facts plain(void)
{
    return node("1.35", (struct swap){0}, (struct swap){0});
}

static bool has(const char *id)
{
    for (size_t i = 0; i < found.n; i++)
        if (!strcmp(found.items[i].id, id))
            return true;
    return false;
}

/* `id` (NULL: none) is the only problem; of another kind if `status` is not 1. Releases
 * the facts. */
static void expect_status(struct facts *f, const char *id, int status)
{
    cleanup_buf struct buf text = {0};
    checks_fini(&found);
    checks_run(f, f->pods != NULL, &found);
    checks_write(&found, &text);
    ck_assert_msg(!id || has(id), "no %s in: %s", id, text.p);
    ck_assert_msg(checks_count(&found, CHECKS_PROBLEM) == (id && status == 1), "%s: %s",
                  id ? id : "no problem", text.p);
    ck_assert_msg(checks_exit_status(&found) == status, "%s: %s", id, text.p);
    facts_fini(f);
}

static void expect(struct facts *f, const char *id)
{
    expect_status(f, id, id != NULL);
}

START_TEST(a_correct_node_has_no_problems)
{
    static const char *const versions[] = {"1.22", "1.25", "1.31", "1.35"};
    for (size_t i = 0; i < ARRAY_LEN(versions); i++) {
        struct facts f = node(versions[i], (struct swap){0}, (struct swap){0});
        expect(&f, NULL);
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
    {"no-node-cache", "1.22", {0}, {"nodeCacheCapable: true", "#"}},
    {"resource-missing", "1.35", {0}, {"name: aliyun.com/gpu-mem", "name: x"}},
    {"resource-missing", "1.35", {0}, {"name: aliyun.com/gpu-count", "name: x"}},
    {"ignored-by-scheduler",
     "1.35",
     {0},
     {"  - name: aliyun.com/gpu-mem\n    ignoredByScheduler: false",
      "  - name: aliyun.com/gpu-mem\n    ignoredByScheduler: true"}},
    {"timeout-short", "1.35", {0}, {"httpTimeout: 30s", "#"}},
    {"timeout-short", "1.35", {0}, {"httpTimeout: 30s", "httpTimeout: 21999ms"}},
    {"https", "1.35", {0}, {"https://", "http://"}},
    {"no-client-certificate", "1.35", {0}, {"certFile:", "other:"}},
    {NULL, "1.35", {0}, {"httpTimeout: 30s", "httpTimeout: 1m"}},
    {NULL, "1.35", {0}, {"name: aliyun.com/gpu-core.percentage", "name: x"}},
    /* kube-scheduler uses tlsConfig whatever enableHTTPS is. */
    {NULL, "1.35", {0}, {"enableHTTPS: true", "enableHTTPS: false"}},
    {NULL, "1.35", {0}, {"enableHTTPS: true\n", "#\n"}},
    {NULL, "1.35", {0}, {"    caFile:", "    insecure: true\n    other:"}},
};

START_TEST(one_problem_at_a_time)
{
    for (size_t i = 0; i < ARRAY_LEN(ones); i++) {
        struct facts f = node(ones[i].version, ones[i].manifest, ones[i].config);
        expect(&f, ones[i].id);
    }
    struct facts f = lib_node(lib_manifest("1.35"), lib_read(CONFIG_ALL));
    add_process(&f);
    f.reach.answer = FACTS_REACH_OK;
    expect_status(&f, "all-pods", 2);
}
END_TEST

START_TEST(the_folder_of_static_pods)
{
    struct facts f = {.manifests = xstrdup("/etc/kubernetes/manifests")};
    expect(&f, "no-static-pod");
    f.distribution = "RKE2";
    expect_status(&f, "other-distribution", 2);
    err_set(&f.manifests_why, ERR_NOT_FOUND, "/etc/kubernetes/manifests: no such file");
    expect(&f, "no-static-pods");
    err_set(&f.manifests_why, ERR_FORBIDDEN, "/etc/kubernetes/manifests: no");
    expect_status(&f, "manifests-unreadable", 2);
    add_manifest(&f, "/m/a.yaml", xstrdup("spec: ["));
    expect(&f, "manifest-malformed");
    f = plain();
    add_manifest(&f, "/m/a.yaml.bak", lib_read(KUBEADM "1.31.yaml"));
    expect(&f, "two-manifests");
    /* kubeadm's pod is checked, wherever it is in the folder. */
    f = plain();
    add_manifest(&f, "/m/a.yaml",
                 lib_swap(lib_read(KUBEADM "1.31.yaml"),
                          "  name: kube-scheduler\n  names", "  name: gpu\n  names"));
    struct facts_file second = f.files[0];
    f.files[0] = f.files[1];
    f.files[1] = second;
    expect(&f, NULL);
}
END_TEST

START_TEST(files_and_processes)
{
    static const enum err_code codes[] = {ERR_NOT_FOUND, ERR_UNAVAILABLE};
    struct facts f;
    for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
        f = plain();
        err_set(&f.config.why, codes[i], "/x: why");
        expect(&f, "file-absent");
    }
    f = plain();
    err_set(&f.config.why, ERR_FORBIDDEN, "/x: why");
    expect_status(&f, "file-unreadable", 2);
    f = plain();
    f.tls[0].path = xstrdup("/ca.crt");
    err_set(&f.tls[0].why, ERR_NOT_FOUND, "/ca.crt: no such file");
    expect(&f, "tls-file");
    f = plain();
    f.processes[0].started_ns = 900000000;
    expect(&f, "older-than-file");
    f = plain();
    buf_add(&f.processes[0].arguments, "--v=9", 6);
    expect(&f, "other-arguments");
    f = plain();
    buf_fini(&f.processes[0].arguments);
    f.n_processes = 0;
    expect(&f, "not-running");
    /* A younger process of another scheduler beside the pod's. */
    f = plain();
    add_process(&f);
    f.processes[1].started_ns = 3000000000;
    buf_add(&f.processes[1].arguments, "--v=9", 6);
    expect(&f, NULL);
}
END_TEST

START_TEST(the_extender_does_not_answer_well)
{
    static const struct {
        enum facts_answer answer;
        const char *id;
    } cases[] = {{FACTS_REACH_NO_ANSWER, "no-answer"},
                 {FACTS_REACH_OTHER_PROGRAM, "wrong-program"},
                 {FACTS_REACH_GO_EXTENDER, "go-extender"},
                 {FACTS_REACH_WRONG_PATH, "wrong-path"},
                 {FACTS_REACH_NOT_READY, "not-ready"},
                 {FACTS_REACH_WANTS_HTTPS, "plain-http"},
                 {FACTS_REACH_WANTS_HTTP, "insecure-extender"},
                 {FACTS_REACH_UNTRUSTED, "untrusted"},
                 {FACTS_REACH_NO_CREDENTIALS, "no-certificate"},
                 {FACTS_REACH_FORBIDDEN, "certificate-name"}};
    struct facts f;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        f = plain();
        f.reach.answer = cases[i].answer;
        err_set(&f.reach.detail, ERR_UNAVAILABLE, "\x1b[2J\xc2\x9b");
        expect(&f, cases[i].id);
        cleanup_buf struct buf text = {0};
        checks_write(&found, &text);
        ck_assert_ptr_null(strchr(text.p, '\x1b'));
        ck_assert_ptr_null(strchr(text.p, '\xc2'));
        ck_assert_ptr_nonnull(strstr(text.p, "\n  fix   "));
    }
    f = plain();
    f.reach.answer = FACTS_REACH_NOT_TRIED;
    expect_status(&f, "not-called", 2);
}
END_TEST

#define POD(name, node, more)                                                            \
    "{\"metadata\":{\"name\":\"" name "\"},\"spec\":{\"nodeName\":\"" node               \
    "\",\"containers\":[{" more "}]}}"
#define SCHEDULER(option)                                                                \
    "\"image\":\"r/kube-scheduler:v1.35.4\",\"command\":[\"kube-scheduler\"" option "]"

START_TEST(the_pods_of_the_cluster)
{
    static const struct {
        const char *pod, *id;
    } cases[] = {
        {POD("kube-scheduler-b", "b", SCHEDULER(",\"--config=" CONFIG_AT "\"")), NULL},
        {POD("kube-scheduler-b", "b", SCHEDULER("")), "control-planes-differ"},
        {POD("other-b", "b", SCHEDULER("")), NULL},
        {POD("e", "b", "\"image\":\"r:5/x/k8s-gpushare-schd-extender:1\""),
         "second-extender"},
        {POD("e", "b", "\"image\":\"r:5/x/gpushare-extender:1\""), NULL},
    };
    struct facts f;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_free char *list = xasprintf("{\"items\":[%s]}", cases[i].pod);
        f = plain();
        f.pods = json_loads(list, 0, NULL);
        ck_assert_ptr_nonnull(f.pods);
        expect(&f, cases[i].id);
    }
    f = plain();
    f.pods = json_object();
    err_set(&f.cluster_why, ERR_UNAVAILABLE, "refused");
    expect_status(&f, "no-api", 2);
}
END_TEST

/* -- certificates -- */

static void begin(void)
{
    dir = temp_dir();
    tls_make_ca(dir, "ca");
    tls_make_ca(dir, "next");
    tls_make_cert(dir, "ca", "client", "DNS:gpushare-scheduler");
    tls_make_cert(dir, "ca", "newer", "DNS:gpushare-scheduler");
    tls_make_cert(dir, "next", "other", "DNS:gpushare-scheduler");
}

static void end(void)
{
    temp_dir_remove(dir);
    free(dir);
}

/* Reads a Secret of these files (NULL: without that key) into f->secret. */
static int read_secret(struct facts *f, const char *ca, const char *cert, const char *key,
                       struct err *err)
{
    struct kube_tls_secret s = {0};
    static const enum kube_tls_key keys[] = {KUBE_TLS_CA, KUBE_TLS_CERT, KUBE_TLS_KEY};
    const char *const names[] = {ca, cert, key};
    cleanup_buf struct buf out = {0};
    for (int i = 0; i < FACTS_TLS_FILES; i++) {
        cleanup_free char *text = names[i] ? temp_read(dir, names[i]) : NULL;
        buf_adds(&s.data[keys[i]], text ? text : "");
    }
    kube_tls_secret_encode(&s, "kube-system", FACTS_SECRET, &out);
    kube_tls_secret_fini(&s);
    return facts_read_secret(buf_span(&out), f, err);
}

START_TEST(a_secret_is_complete_and_consistent)
{
    static const struct {
        const char *ca, *cert, *key, *why;
    } cases[] = {
        {"ca.crt", "client.crt", "client.key", NULL},
        {NULL, "client.crt", "client.key", "has no ca.crt"},
        {"ca.crt", NULL, "client.key", "has no tls.crt"},
        {"ca.crt", "client.crt", NULL, "has no tls.key"},
        {"ca.crt", "client.crt", "other.key", "gpushare-scheduler-tls: "},
        {"next.crt", "client.crt", "client.key", "tls.crt is not signed by ca.crt"},
    };
    struct err err = {0};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct facts f = {0};
        int rc = read_secret(&f, cases[i].ca, cases[i].cert, cases[i].key, &err);
        ck_assert_msg((rc == 0) == !cases[i].why, "%zu: %s", i, err.msg);
        ck_assert_msg(!rc || strstr(err.msg, cases[i].why), "%s", err.msg);
        cleanup_free char *cert = temp_read(dir, "client.crt");
        ck_assert_span_eq(buf_span(&f.secret[FACTS_CERT]), rc ? "" : cert);
        facts_fini(&f);
    }
    struct facts f = {0};
    ck_assert_int_eq(facts_read_secret(SPAN("{\"data\":{\"ca.crt\":\"!!\"}}"), &f, &err),
                     -1);
    ck_assert_int_eq(facts_read_secret(SPAN("[]"), &f, &err), -1);
    ck_assert_int_eq(facts_read_secret(SPAN(""), &f, &err), -1);
}
END_TEST

START_TEST(the_certificate_of_the_node)
{
    static const struct {
        const char *id, *ca, *cert, *key, *in_secret;
        int days; /* later */
    } cases[] = {
        {NULL, "ca.crt", "client.crt", "client.key", "client", 0},
        {NULL, "ca.crt", "client.crt", "client.key", NULL, 0},
        {"certificate-expiring", "ca.crt", "client.crt", "client.key", NULL, 40},
        {"certificate-expired", "ca.crt", "client.crt", "client.key", NULL, 61},
        {"certificate-key", "ca.crt", "client.crt", "newer.key", NULL, 0},
        {"certificate-malformed", "ca.crt", "client.key", "client.key", NULL, 0},
        {"certificate-other-ca", "ca.crt", "client.crt", "client.key", "other", 0},
        {"ca-outdated", "next.crt", "client.crt", "client.key", "client", 0},
        {"certificate-renewed", "ca.crt", "client.crt", "client.key", "newer", 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *const names[] = {cases[i].ca, cases[i].cert, cases[i].key};
        const char *id = cases[i].id, *of = cases[i].in_secret;
        struct facts f = plain();
        f.now_s = time(NULL) + (int64_t)cases[i].days * DAY_S;
        for (int k = 0; k < FACTS_TLS_FILES; k++) {
            cleanup_free char *text = temp_read(dir, names[k]);
            f.tls[k].path = xstrdup(facts_tls_path(k));
            buf_adds(&f.tls[k].bytes, text);
        }
        if (of) {
            struct err err = {0};
            cleanup_free char *crt = xasprintf("%s.crt", of),
                              *key = xasprintf("%s.key", of);
            ck_assert_done(read_secret(&f, strcmp(of, "other") ? "ca.crt" : "next.crt",
                                       crt, key, &err),
                           err);
        }
        bool note = id && !strcmp(id, "certificate-renewed");
        expect_status(&f, id, id && !note);
        cleanup_buf struct buf text = {0};
        checks_write(&found, &text);
        ck_assert_msg(!id || strstr(text.p, "scripts/install --renew"), "%s", text.p);
        ck_assert_msg(id || strstr(text.p, "client.crt is valid until 20"), "%s", text.p);
    }
    checks_fini(&found);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        a_correct_node_has_no_problems,      one_problem_at_a_time,
        the_folder_of_static_pods,           files_and_processes,
        the_extender_does_not_answer_well,   the_pods_of_the_cluster,
        a_secret_is_complete_and_consistent, the_certificate_of_the_node};
    return unit_run_with("setup/checks", tests, ARRAY_LEN(tests), 60,
                         &(struct unit_fixtures){.begin = begin, .end = end});
}
