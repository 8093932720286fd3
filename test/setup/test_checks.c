/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/secret.h"
#include "lib.h"
#include "lib/tls.h"
#include "setup/checks.h"
#include "wire/base64.h"

/*
 * A node without problems, and then with one problem at a time: the matching finding is
 * the only one.
 */

enum file { NONE, POD, CONF };

enum { DAY_S = 24 * 3600, SOON_S = 3600 };

static struct facts f;
static struct buf found;
static char *certs; /* made by openssl */

static void begin_all(void)
{
    certs = temp_dir();
    tls_make_ca(certs, "ca");
    tls_make_ca(certs, "next");
    tls_make_cert(certs, "ca", "client", "DNS:gpushare-scheduler");
    tls_make_cert(certs, "ca", "newer", "DNS:gpushare-scheduler");
    tls_make_cert(certs, "next", "other", "DNS:gpushare-scheduler");
}

static void end_all(void)
{
    temp_dir_remove(certs);
    free(certs);
}

static void write_certificate(const char *ca, const char *cert, const char *key)
{
    const char *const names[] = {
        [SECRET_CA] = ca, [SECRET_CERT] = cert, [SECRET_KEY] = key};
    for (int i = 0; i < SECRET_KEYS; i++) {
        cleanup_free char *name = xasprintf("root%s", facts_tls_names[i].path);
        lib_write(name, temp_read(certs, names[i]));
    }
}

/* A node of kubeadm after an installation, with a change of one of its two files. */
static void make_node(const char *version, enum file file, const char *from,
                      const char *to)
{
    char *pod = lib_swap(lib_manifest(version), "    volumeMounts:\n",
                         "    volumeMounts:\n    - mountPath: " FACTS_TLS_DIR
                         "\n      name: tls\n");
    pod = lib_swap(pod, "  volumes:\n",
                   "  volumes:\n  - hostPath:\n      path: " FACTS_TLS_DIR
                   "\n    name: tls\n");
    lib_write(MANIFEST_AT, file == POD ? lib_swap(pod, from, to) : pod);
    lib_write(CONFIG_AT, file == CONF ? lib_swap(temp_read(".", CONFIG), from, to)
                                      : temp_read(".", CONFIG));
    write_certificate("ca.crt", "client.crt", "client.key");
    lib_add_process(PROCESS, SOON_S, "");
}

/* Checks the facts: `id` (NULL: none) is the only problem; of another kind if `status` is
 * not 1. */
static void expect_found(const char *id, int status)
{
    cleanup_free char *line =
        xasprintf("%-8s%s: ", status == 2 ? "unknown" : "PROBLEM", id ? id : "");
    size_t problems = 0;
    buf_fini(&found);
    int rc = checks_run(&f, true, &found);
    for (const char *at = found.p; (at = strstr(at, "PROBLEM ")); at++)
        problems++;
    ck_assert_msg((!id || strstr(found.p, line)) && problems == (id && status == 1) &&
                      rc == status,
                  "%s: %s", id ? id : "no problem", found.p);
}

/* The same of the node's files, with an extender that answers. */
static void expect(const char *id)
{
    lib_read_node(&f);
    f.url = xstrdup("https://127.0.0.1:32766/gpushare-scheduler");
    f.answer = FACTS_REACH_OK;
    expect_found(id, id != NULL);
}

static const struct {
    const char *id; /* NULL: no problem */
    enum file file;
    const char *from, *to;
} ones[] = {
    {"no-option", POD, "--config=", "--v="},
    {"removed-flag", POD, "--leader-elect=true", "--policy-config-file=/x"},
    {"removed-flag", POD, "- --leader-elect=true", "- --policy-configmap\n    - x"},
    {"removed-flag", POD, "--leader-elect=true", "--port=0\n    - --address=::1"},
    {"removed-flag", POD, "--leader-elect=true", "--lock-object-name=x"},
    {"removed-flag", POD, "--leader-elect=true", "--logtostderr"},
    {"removed-flag", POD, "--leader-elect=true", "--config-file=/x"},
    {NULL, POD, "--leader-elect=true", "--address2=x"},
    {NULL, POD, "--leader-elect=true", "--leader-elect-resource-name=port"},
    {"not-mounted", POD, "--config=/etc", "--config=etc"},
    {"not-mounted", POD, "mountPath: " FACTS_CONFIG, "mountPath: /elsewhere"},
    {"not-mounted", POD, "    name: added\n  - hostPath",
     "    name: other\n  - hostPath"},
    {"config-malformed", CONF, "extenders:", "extenders: ["},
    {"config-malformed", CONF, "ignorable: false", "ignorable: &a false"},
    {"config-malformed", CONF, "weight: 3", "ignorable: true"},
    {"config-malformed", CONF, "kind: KubeSchedulerConfiguration", "kind: Policy"},
    {"no-kubeconfig", CONF, "  kubeconfig: /etc", "  #kubeconfig: /etc"},
    {"no-extender", CONF, "extenders:", "profiles:"},
    {"no-filter", CONF, "filterVerb: filter", "filterVerb: ''"},
    {"no-bind", CONF, "bindVerb: bind", "#"},
    {"no-prioritize", CONF, "prioritizeVerb: prioritize", "#"},
    {"no-preempt", CONF, "preemptVerb: preempt", "#"},
    {"ignorable", CONF, "ignorable: false", "ignorable: true"},
    {"no-node-cache", CONF, "nodeCacheCapable: true", "nodeCacheCapable: false"},
    {"no-node-cache", CONF, "nodeCacheCapable: true", "#"},
    {"resource-missing", CONF, "name: aliyun.com/gpu-mem", "name: x"},
    {"resource-missing", CONF, "name: aliyun.com/gpu-count", "name: x"},
    {"resource-missing", CONF, "name: aliyun.com/gpu-share", "name: x"},
    {"timeout-short", CONF, "httpTimeout: 30s", "#"},
    {"timeout-short", CONF, "httpTimeout: 30s", "httpTimeout: 21999ms"},
    {"tls-file", CONF, "client.crt", "none.crt"},
    {"no-client-certificate", CONF, "certFile:", "other:"},
    {NULL, CONF, "httpTimeout: 30s", "httpTimeout: 1m"},
    {NULL, CONF, "name: aliyun.com/gpu-core.percentage", "name: x"},
};

TEST(one_problem_at_a_time)
{
    make_node("1.22", NONE, NULL, NULL);
    expect(NULL);
    make_node("1.37", NONE, NULL, NULL);
    expect(NULL);
    for (size_t i = 0; i < ARRAY_LEN(ones); i++) {
        make_node("1.35", ones[i].file, ones[i].from, ones[i].to);
        expect(ones[i].id);
    }
}

/* Each version has the options that it has. */
TEST(options_that_this_version_has_stay)
{
    static const struct {
        const char *version, *option;
        bool removed;
    } cases[] = {
        {"1.22", "--policy-config-file=/x", false}, {"1.22", "--port=0", false},
        {"1.22", "--algorithm-provider=x", true},   {"1.35", "--port=0", true},
        {"1.22", "--config-file=/x", true},
    };
    array_items(c, cases) {
        make_node(c->version, POD, "--leader-elect=true", c->option);
        expect(c->removed ? "removed-flag" : NULL);
    }
    ck_assert_contains(found.p, "PROBLEM removed-flag: kube-scheduler has no option "
                                "--config-file\n"); /* nor ever had one */
    ck_assert_contains(found.p, "  fix   delete these lines of the manifest");
    make_node("1.35", POD, "--leader-elect=true", "--port=0\n    - --address=::1");
    expect("removed-flag");
    ck_assert_contains(found.p, "kube-scheduler 1.35 has no --port (from 1.24 on)\n"
                                "        kube-scheduler 1.35 has no --address (from ");
    /* Of an image without a version nothing is known. */
    make_node("1.35", POD, ":v1.35", "@sha256:35");
    expect(NULL);
}

TEST(the_folder_of_static_pods)
{
    expect("no-static-pod");
    lib_write(MANIFESTS "/a.yaml", xstrdup("spec: [ # kube-scheduler"));
    expect("manifest-unreadable");
    make_node("1.35", NONE, NULL, NULL);
    expect("manifest-unreadable");
    lib_write(MANIFESTS "/a.yaml", lib_kubeadm("1.31"));
    expect("two-manifests");
    /* kubeadm's pod is checked, wherever it is in the folder. */
    lib_write(MANIFESTS "/a.yaml",
              lib_swap(lib_kubeadm("1.31"), "  name: kube-scheduler\n  names",
                       "  name: gpu\n  names"));
    expect(NULL);
    err_set(&f.manifest.why, ERR_FORBIDDEN, "/etc/kubernetes/manifests: no");
    expect_found("manifest-unreadable", 2);
}

TEST(files_and_processes)
{
    make_node("1.35", NONE, NULL, NULL);
    lib_write(CONFIG_AT, NULL);
    expect("file-absent");
    err_set(&f.config.why, ERR_FORBIDDEN, "/x: why");
    expect_found("config-malformed", 2);
    /* containerd has made the source of a bind mount. */
    temp_mkdir(dir, CONFIG_AT);
    expect("config-malformed");
    ck_assert_msg(strstr(found.p, "  fix   rmdir ") &&
                      strstr(found.p, "\n        scripts/install --yes\n"),
                  "%s", found.p);
    cleanup_free char *made = temp_path(dir, CONFIG_AT);
    ck_assert_int_eq(rmdir(made), 0);
    make_node("1.35", NONE, NULL, NULL);
    lib_add_process(PROCESS, -SOON_S, "");
    expect("older-than-file");
    lib_add_process(PROCESS, SOON_S, "--v=9");
    expect("other-arguments");
    /* A younger process of another scheduler beside the pod's. */
    temp_mkdir(dir, "root/proc/4712");
    lib_add_process("root/proc/4712", SOON_S, "");
    expect(NULL);
    lib_write(PROCESS "/cmdline", NULL);
    lib_write("root/proc/4712/comm", xstrdup("other"));
    expect("not-running");
}

TEST(the_extender_does_not_answer_well)
{
    static const char *const ids[] = {[FACTS_REACH_NO_ANSWER] = "no-answer",
                                      [FACTS_REACH_GO_EXTENDER] = "go-extender",
                                      [FACTS_REACH_NOT_READY] = "not-ready",
                                      [FACTS_REACH_REJECTED] = "rejected"};
    make_node("1.35", NONE, NULL, NULL);
    expect(NULL);
    for (size_t i = FACTS_REACH_NO_ANSWER; i < ARRAY_LEN(ids); i++) {
        f.answer = (enum facts_answer)i;
        err_set(&f.detail, ERR_UNAVAILABLE, "\x1b[2J\xc2\x9b");
        expect_found(ids[i], 1);
        ck_assert_ptr_null(strchr(found.p, '\x1b'));
        ck_assert_ptr_null(strchr(found.p, '\xc2'));
        ck_assert_ptr_nonnull(strstr(found.p, "\n  fix   "));
        ck_assert(i != FACTS_REACH_NO_ANSWER ||
                  strstr(found.p, "scripts/install --undo"));
    }
    f.answer = FACTS_REACH_OK;
    err_set(&f.secret_why, ERR_NOT_FOUND, "no Secret: an extender with --insecure");
    expect_found(NULL, 0);
    f.namespace = "gpus"; /* named by the user */
    expect_found("no-secret", 1);
    f.namespace = NULL;
    err_set(&f.secret_why, ERR_UNAVAILABLE, "refused");
    expect_found("no-api", 2);
}

/* -- certificates -- */

/* Reads a Secret of these files (NULL: without that key) into f->secret. */
static int read_secret(const char *ca, const char *cert, const char *key, struct err *err)
{
    struct secret s = {0};
    const char *const names[] = {
        [SECRET_CA] = ca, [SECRET_CERT] = cert, [SECRET_KEY] = key};
    cleanup_buf struct buf out = {0};
    for (int i = 0; i < SECRET_KEYS; i++) {
        cleanup_free char *text = names[i] ? temp_read(certs, names[i]) : NULL;
        buf_adds(&s.data[i], text ? text : "");
    }
    secret_encode(&s, "kube-system", FACTS_SECRET, &out);
    secret_fini(&s);
    return facts_decode_secret(buf_span(&out), &f, err);
}

TEST(a_secret_is_complete_and_consistent)
{
    static const struct {
        const char *ca, *cert, *key, *why;
    } cases[] = {
        {"ca.crt", "client.crt", "client.key", NULL},
        {NULL, "client.crt", "client.key", "not all of ca.crt, tls.crt and tls.key"},
        {"ca.crt", NULL, "client.key", "not all of"},
        {"ca.crt", "client.crt", NULL, "not all of"},
        {"ca.crt", "client.crt", "other.key", "key"},
        {"next.crt", "client.crt", "client.key", "tls.crt is not signed by ca.crt"},
    };
    struct err err = {0};
    cleanup_free char *cert = temp_read(certs, "client.crt");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        facts_fini(&f);
        int rc = read_secret(cases[i].ca, cases[i].cert, cases[i].key, &err);
        ck_assert_msg((rc == 0) == !cases[i].why, "%zu: %s", i, err.msg);
        ck_assert_msg(!rc || strstr(err.msg, cases[i].why), "%s", err.msg);
        ck_assert_span_eq(buf_span(&f.secret.data[SECRET_CERT]), rc ? "" : cert);
    }
    ck_assert_int_eq(
        facts_decode_secret(SPAN("{\"data\":{\"ca.crt\":\"!!\"}}"), &f, &err), -1);
    ck_assert_int_eq(facts_decode_secret(SPAN("[]"), &f, &err), -1);
    ck_assert_int_eq(facts_decode_secret(SPAN(""), &f, &err), -1);
}

TEST(the_certificate_of_the_node)
{
    static const struct {
        const char *id, *ca, *cert, *key, *in_secret;
        int days; /* later */
    } cases[] = {
        {NULL, "ca.crt", "client.crt", "client.key", "client", 0},
        {NULL, "ca.crt", "client.crt", "client.key", NULL, 0},
        {"certificate-expiring", "ca.crt", "client.crt", "client.key", NULL, 40},
        {"certificate-expired", "ca.crt", "client.crt", "client.key", NULL, 61},
        {"certificate-malformed", "ca.crt", "client.crt", "newer.key", NULL, 0},
        {"certificate-malformed", "ca.crt", "client.key", "client.key", NULL, 0},
        {"ca-outdated", "ca.crt", "client.crt", "client.key", "other", 0},
        {"ca-outdated", "next.crt", "client.crt", "client.key", "client", 0},
        {"", "ca.crt", "client.crt", "client.key", "newer", 0}, /* a note */
    };
    make_node("1.35", NONE, NULL, NULL);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *id = cases[i].id, *of = cases[i].in_secret;
        write_certificate(cases[i].ca, cases[i].cert, cases[i].key);
        lib_add_process(PROCESS, SOON_S, "");
        lib_read_node(&f);
        f.answer = FACTS_REACH_OK;
        f.now_s += (int64_t)cases[i].days * DAY_S;
        if (of) {
            struct err err = {0};
            cleanup_free char *crt = xasprintf("%s.crt", of),
                              *key = xasprintf("%s.key", of);
            ck_assert_done(
                read_secret(strcmp(of, "other") ? "ca.crt" : "next.crt", crt, key, &err),
                err);
        }
        expect_found(id && *id ? id : NULL, id && *id);
        ck_assert_msg(!id || strstr(found.p, "scripts/install --renew"), "%s", found.p);
        ck_assert_msg((id && *id) || strstr(found.p, "client.crt is valid until 20") ||
                          strstr(found.p, "client.crt, which is valid until 20"),
                      "%s", found.p);
    }
}

/* The certificate is in the configuration itself. */
TEST(the_data_of_the_entry)
{
    cleanup_free char *cert = temp_read(certs, "client.crt"),
                      *key = temp_read(certs, "client.key"),
                      *ca = temp_read(certs, "ca.crt");
    cleanup_buf struct buf data = {0};
    buf_adds(&data, "tlsConfig: {caData: ");
    base64_encode(span_of(ca), &data);
    buf_adds(&data, ", certData: ");
    base64_encode(span_of(cert), &data);
    buf_adds(&data, ", keyData: ");
    base64_encode(span_of(key), &data);
    buf_adds(&data, "}\n  other:");
    make_node("1.35", CONF, "tlsConfig:", data.p);
    expect(NULL);
    ck_assert_msg(strstr(found.p, "tlsConfig.certData is valid until 20"), "%s", found.p);
    facts_fini(&f);
    make_node("1.35", CONF, "tlsConfig:", "tlsConfig: {certData: '!'}\n  other:");
    expect("tls-file");
    ck_assert_msg(strstr(found.p, "tlsConfig.certData is not base64"), "%s", found.p);
}

UNIT_MAIN_WITH(60, begin_all, end_all, begin, end)
