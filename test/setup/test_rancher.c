/* SPDX-License-Identifier: Apache-2.0 */
#include "lib.h"
#include "lib/mutate.h"
#include "setup/change_plan.h"
#include "setup/checks.h"
#include "setup/rancher.h"

/*
 * The settings of k3s and RKE2: how the files are merged, which kube-scheduler they
 * describe, and the file that the plan adds to them.
 */

#define K3S    "/etc/rancher/k3s/config.yaml"
#define RKE2   "/etc/rancher/rke2/config.yaml"
#define DROPIN ".d/" RANCHER_DROPIN
#define POD    "/var/lib/rancher/rke2/agent/pod-manifests/kube-scheduler.yaml"

static struct change_plan plan;
static struct findings found;
static struct err err;
static bool insecure;

static void add(struct facts *f, const char *path, const char *text)
{
    f->settings = xreallocarray(f->settings, f->n_settings + 1, sizeof *f->settings);
    f->settings[f->n_settings++] = lib_file(path, xstrdup(text));
}

/* The pod of the settings, and its configuration file (NULL: no such file). */
static void finish(struct facts *f, const char *config)
{
    struct scheduler_pod pod;
    cleanup_buf struct buf path = {0};
    bool policy;
    if (f->platform == FACTS_RKE2 && !f->applied.path)
        f->applied = lib_file(POD, lib_read("test/data/rke2/kube-scheduler.yaml"));
    f->files = xcalloc(1, sizeof *f->files);
    f->n_files = 1;
    f->files[0] =
        (struct facts_file){.path = xstrdup(rancher_config(f)), .json = rancher_pod(f)};
    if (config)
        f->config = lib_file("/c.yaml", xstrdup(config));
    else
        err_set(&f->config.why, ERR_NOT_FOUND, "not there");
    ck_assert_ptr_nonnull(facts_manifest(f, &pod));
    f->config_mounted =
        scheduler_pod_host_path(&pod, scheduler_pod_config_option(&pod, &policy), &path);
    lib_secret(f);
    err_set(&f->cluster_why, ERR_UNAVAILABLE, "not asked");
}

static int no_file(void *ctx, const char *path, struct buf *out, struct err *e)
{
    (void)ctx;
    (void)out;
    return err_set(e, ERR_NOT_FOUND, "%s: not there", path);
}

static int make(const struct facts *f)
{
    cleanup_free char *yaml = lib_read(CONFIG), *json = lib_read(POLICY);
    const struct change_plan_input in = {.facts = f,
                                         .root = "",
                                         .insecure = insecure,
                                         .config = span_of(yaml),
                                         .policy = span_of(json),
                                         .read = no_file};
    change_plan_fini(&plan);
    err = (struct err){0};
    return change_plan_make(&in, &plan, &err);
}

static const char *planned(enum change_plan_kind kind)
{
    return plan.changes[kind].path ? plan.changes[kind].bytes.p : "";
}

static const char *path_of(enum change_plan_kind kind)
{
    return plan.changes[kind].path ? plan.changes[kind].path : "";
}

/* The list as "a|b|". New. */
static char *list(const struct facts *f, const char *key)
{
    struct buf out = {0};
    json_t *all = rancher_list(f, key);
    buf_adds(&out, "");
    for (size_t i = 0; i < json_array_size(all); i++)
        buf_printf(&out, "%s|", json_string_value(json_array_get(all, i)));
    json_decref(all);
    return buf_take(&out);
}

START_TEST(files_are_merged_as_by_k3s)
{
    static const struct {
        const char *first, *second, *want;
    } cases[] = {
        {"k: [a, b]\n", "k: c\n", "c|"},
        {"k: [a, b]\n", "k+: c\n", "a|b|c|"},
        {"k: a\n", "k+:\n- b\n- c\n", "a|b|c|"},
        {"k: a\n", "other: [x]\nkk: y\nk-: z\n", "a|"},
        {"other: 1\n", "k+: [a]\n", "a|"},
        {"k: a\nk+: b\n", "k+: c\n", "a|b|c|"},
        {"k+: a\nk: b\n", "{}", "b|"}, /* in the order of the file */
        {"k: [1, true, 0.5, '1']\n", "{}", "1|true|0.5|1|"},
        {"k: [a, [b], {c: d}, null]\n", "{}", "a|"}, /* no option that k3s could use */
        {"k: [a]\n", "k:\n", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct facts f = {.platform = FACTS_K3S};
        add(&f, K3S, cases[i].first);
        add(&f, K3S ".d/a.yaml", cases[i].second);
        cleanup_free char *got = list(&f, "k");
        ck_assert_msg(!strcmp(got, cases[i].want), "%zu: %s", i, got);
        facts_fini(&f);
    }
    ck_assert(rancher_reads("a.yaml"));
    ck_assert(rancher_reads("a.b.YML"));
    ck_assert(!rancher_reads("a.yaml.bak"));
    ck_assert(!rancher_reads("yaml"));
}
END_TEST

START_TEST(k3s_gets_one_new_file)
{
    struct facts f = {.platform = FACTS_K3S};
    add(&f, K3S, "token: t # secret\nkube-scheduler-arg: 'v=2'\ndata-dir: /srv/k3s\n");
    finish(&f, NULL);
    ck_assert_done(make(&f), err);
    ck_assert_str_eq(path_of(CHANGE_PLAN_MANIFEST), K3S DROPIN);
    ck_assert_ptr_nonnull(strstr(planned(CHANGE_PLAN_MANIFEST),
                                 "\nkube-scheduler-arg+:\n- config=" CONFIG_AT "\n"));
    ck_assert_ptr_null(strstr(planned(CHANGE_PLAN_MANIFEST), "extra-mount"));
    ck_assert_str_eq(path_of(CHANGE_PLAN_CONFIG), CONFIG_AT);
    ck_assert_ptr_nonnull(
        strstr(planned(CHANGE_PLAN_CONFIG),
               "kubeconfig: /srv/k3s/server/cred/scheduler.kubeconfig"));
    ck_assert_str_eq(path_of(CHANGE_PLAN_KEY), "/etc/kubernetes/gpushare/client.key");
    /* With the new files, kube-scheduler has both arguments, and nothing is left to do. */
    struct facts after = {.platform = FACTS_K3S};
    add(&after, K3S, "kube-scheduler-arg: 'v=2'\n");
    add(&after, K3S DROPIN, planned(CHANGE_PLAN_MANIFEST));
    cleanup_free char *config = xstrdup(planned(CHANGE_PLAN_CONFIG));
    cleanup_free char *args = list(&after, RANCHER_ARGS);
    ck_assert_str_eq(args, "v=2|config=" CONFIG_AT "|");
    finish(&after, config);
    ck_assert_done(make(&after), err);
    ck_assert_str_eq(path_of(CHANGE_PLAN_MANIFEST), "");
    ck_assert_str_eq(path_of(CHANGE_PLAN_CONFIG), "");
    facts_fini(&f);
    facts_fini(&after);
}
END_TEST

START_TEST(rke2_also_gets_a_mount)
{
    struct facts f = {.platform = FACTS_RKE2};
    insecure = true;
    finish(&f, NULL);
    ck_assert_done(make(&f), err);
    insecure = false;
    ck_assert_str_eq(path_of(CHANGE_PLAN_MANIFEST), RKE2 DROPIN);
    ck_assert_ptr_null(strstr(planned(CHANGE_PLAN_MANIFEST), "extra-mount"));
    /* Later with a certificate: the file keeps its argument and gets the mount. */
    struct facts later = {.platform = FACTS_RKE2};
    add(&later, RKE2 DROPIN, planned(CHANGE_PLAN_MANIFEST));
    cleanup_free char *config = xstrdup(planned(CHANGE_PLAN_CONFIG));
    finish(&later, config);
    ck_assert_done(make(&later), err);
    const char *now = planned(CHANGE_PLAN_MANIFEST);
    ck_assert_ptr_nonnull(strstr(now, "kube-scheduler-arg+:\n- config=" CONFIG_AT "\n"));
    ck_assert_ptr_nonnull(
        strstr(now, "kube-scheduler-extra-mount+:\n- "
                    "/etc/kubernetes/gpushare:/etc/kubernetes/gpushare:ro\n"));
    ck_assert_ptr_nonnull(strstr(planned(CHANGE_PLAN_CONFIG), "enableHTTPS: true"));
    struct facts last = {.platform = FACTS_RKE2};
    add(&last, RKE2 DROPIN, now);
    config = lib_swap(config, config, planned(CHANGE_PLAN_CONFIG));
    finish(&last, config);
    ck_assert_done(make(&last), err);
    ck_assert_str_eq(path_of(CHANGE_PLAN_MANIFEST), "");
    facts_fini(&f);
    facts_fini(&later);
    facts_fini(&last);
}
END_TEST

#define USERS                                                                            \
    "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"     \
    "clientConnection: {kubeconfig: /k} # mine\n"

/* A configuration file of the user gets the entry; his arguments stay. */
START_TEST(a_configuration_of_the_user_gets_the_entry)
{
    struct facts k3s = {.platform = FACTS_K3S}, rke2 = {.platform = FACTS_RKE2};
    add(&k3s, K3S, "kube-scheduler-arg:\n- config=/opt/s.yaml\n- v=4\n");
    finish(&k3s, USERS);
    ck_assert_done(make(&k3s), err);
    ck_assert_str_eq(path_of(CHANGE_PLAN_MANIFEST), "");
    ck_assert_str_eq(path_of(CHANGE_PLAN_CONFIG), "/opt/s.yaml");
    ck_assert_int_eq(
        strncmp(planned(CHANGE_PLAN_CONFIG), USERS "extenders:\n", strlen(USERS) + 11),
        0);
    /* The last config= counts; RKE2 finds the file by the user's mount. */
    add(&rke2, RKE2,
        "kube-scheduler-arg: [config=/x, --config=/etc/sched/s.yaml]\n"
        "kube-scheduler-extra-mount: '/opt/sched:/etc/sched'\n");
    finish(&rke2, USERS);
    ck_assert_done(make(&rke2), err);
    ck_assert_str_eq(path_of(CHANGE_PLAN_CONFIG), "/opt/sched/s.yaml");
    ck_assert_ptr_null(strstr(planned(CHANGE_PLAN_MANIFEST), RANCHER_ARGS));
    ck_assert_ptr_nonnull(strstr(planned(CHANGE_PLAN_MANIFEST), RANCHER_MOUNTS "+:"));
    facts_fini(&k3s);
    facts_fini(&rke2);
}
END_TEST

static void expect_refusal(struct facts *f, const char *why)
{
    ck_assert_int_eq(make(f), -1);
    ck_assert_msg(strstr(err.msg, why) != NULL, "%s", err.msg);
    facts_fini(f);
}

START_TEST(what_is_not_safe_is_refused)
{
    struct facts edited = {.platform = FACTS_RKE2};
    add(&edited, RKE2 DROPIN, "node-label+: [a=b]\n");
    finish(&edited, NULL);
    expect_refusal(&edited, "was edited, and is not replaced");
    ck_assert_ptr_nonnull(strstr(plan.by_hand.p, RANCHER_ARGS "+:\n- config="));
    struct facts later = {.platform = FACTS_K3S};
    add(&later, K3S, "kube-scheduler-arg: [a=b]\n");
    add(&later, K3S ".d/zzz.yaml", "kube-scheduler-arg: [v=2]\n");
    finish(&later, NULL);
    expect_refusal(&later, "zzz.yaml is read after");
    struct facts malformed = {.platform = FACTS_K3S};
    add(&malformed, K3S, "a: [\n");
    finish(&malformed, NULL);
    expect_refusal(&malformed, K3S);
    struct facts unreadable = {.platform = FACTS_K3S};
    err_set(&unreadable.settings_why, ERR_UNAVAILABLE, K3S ".d: Not a directory");
    finish(&unreadable, NULL);
    expect_refusal(&unreadable, "Not a directory");
    struct facts service = {.platform = FACTS_K3S,
                            .service_option = xstrdup("/x.service: --config")};
    finish(&service, NULL);
    expect_refusal(&service, "/x.service: --config takes precedence");
    struct facts agent = {.platform = FACTS_RKE2, .is_agent = true};
    finish(&agent, NULL);
    expect_refusal(&agent,
                   "runs no kube-scheduler. Instead: scripts/install    # on each "
                   "server of RKE2");
    struct facts denied = {.platform = FACTS_K3S};
    err_set(&denied.settings_why, ERR_FORBIDDEN, K3S ".d: Permission denied");
    finish(&denied, NULL);
    expect_refusal(&denied, "Permission denied. Instead: sudo scripts/install");
    ck_assert_ptr_null(strstr(err.msg, "--check"));
    struct facts off = {.platform = FACTS_K3S};
    add(&off, K3S, "disable-scheduler: true\n");
    finish(&off, NULL);
    expect_refusal(&off, "disable-scheduler: true");
    struct facts openshift = {.platform = FACTS_OPENSHIFT};
    expect_refusal(&openshift, "helm install gpushare manifests/chart -n gpushare "
                               "--create-namespace --set platform=openshift");
}
END_TEST

/* Exactly this problem, or none. */
static void expect(const struct facts *f, const char *problem)
{
    cleanup_buf struct buf text = {0};
    findings_fini(&found);
    checks_run(f, false, &found);
    findings_write(&found, &text);
    ck_assert_msg(!problem || findings_has(&found, problem), "no %s in: %s", problem,
                  text.p);
    ck_assert_msg(findings_count(&found, FINDING_PROBLEM) == (problem ? 1 : 0), "%s",
                  text.p);
}

static void expect_text(const char *part)
{
    cleanup_buf struct buf text = {0};
    findings_write(&found, &text);
    ck_assert_msg(strstr(text.p, part) != NULL, "no %s in: %s", part, text.p);
}

static void add_process(struct facts *f, int64_t started_ns, const char *arguments,
                        size_t n)
{
    struct facts_process p = {.pid = 4711, .started_ns = started_ns};
    buf_add(&p.arguments, arguments, n);
    f->processes = xreallocarray(f->processes, f->n_processes + 1, sizeof *f->processes);
    f->processes[f->n_processes++] = p;
}

static void has_been_installed(struct facts *f)
{
    cleanup_free char *config =
        lib_swap(lib_read(CONFIG), "/etc/kubernetes/scheduler.conf", "/k");
    add(f, f->platform == FACTS_K3S ? K3S DROPIN : RKE2 DROPIN,
        "kube-scheduler-arg+: [config=" CONFIG_AT "]\nkube-scheduler-extra-mount+: ["
        "'/etc/kubernetes/gpushare:/etc/kubernetes/gpushare:ro']\n");
    finish(f, config);
    extender_entry_read_url("https://127.0.0.1:32766/gpushare-scheduler", &f->reach.url,
                            NULL);
    f->reach.answer = FACTS_REACH_OK;
}

/* Files have changed at second 1. */
START_TEST(k3s_must_be_restarted)
{
    struct facts f = {.platform = FACTS_K3S};
    has_been_installed(&f);
    expect(&f, "not-running");
    add_process(&f, 500000000, "k3s server", 11);
    f.config.changed_ns = 0; /* only the settings are newer */
    expect(&f, "older-than-file");
    f.processes[0].started_ns = 2000000000;
    expect(&f, NULL);
    ck_assert(findings_has(&found, "platform"));
    /* Other settings need no restart. */
    add(&f, K3S ".d/b.yaml", "node-label: [a=b]\n");
    f.settings[f.n_settings - 1].changed_ns = 3000000000;
    expect(&f, NULL);
    f.service_option = xstrdup("/etc/systemd/system/k3s.service: --kube-scheduler-arg");
    expect(&f, NULL);
    ck_assert(findings_has(&found, "service-option"));
    ck_assert_int_eq(findings_exit_status(&found), 2);
    facts_fini(&f);
}
END_TEST

START_TEST(rke2_must_be_restarted)
{
    struct facts f = {.platform = FACTS_RKE2};
    has_been_installed(&f);
    expect(&f, "not-applied");
    /* The pod that rke2-server writes then. */
    facts_file_fini(&f.applied);
    char *pod = lib_swap(lib_read("test/data/rke2/kube-scheduler.yaml"),
                         "    - --profiling=false\n",
                         "    - --config=" CONFIG_AT "\n    - --profiling=false\n");
    pod = lib_swap(pod, "    volumeMounts:\n",
                   "    volumeMounts:\n    - {mountPath: /etc/kubernetes/gpushare, name: "
                   "extra-mount-0}\n");
    pod = lib_swap(pod, "  volumes:\n",
                   "  volumes:\n  - {name: extra-mount-0, hostPath: {path: "
                   "/etc/kubernetes/gpushare}}\n");
    f.applied = lib_file(POD, pod);
    expect(&f, "not-running");
    expect_text("tail /var/lib/rancher/rke2/agent/logs/kubelet.log\n");
    add(&f, RKE2 ".d/zzz.yaml", "data-dir: /srv/rke2\n");
    expect(&f, "not-running");
    expect_text("tail /srv/rke2/agent/logs/kubelet.log\n");
    struct scheduler_pod read;
    cleanup_buf struct buf words = {0};
    ck_assert(scheduler_pod_read(f.applied.json, &read));
    static const char *const lists[] = {"command", "args"};
    for (size_t k = 0; k < ARRAY_LEN(lists); k++) {
        const json_t *all = jsonpath_at(read.container, lists[k]);
        for (size_t i = 0; i < json_array_size(all); i++)
            buf_add(&words, json_string_value(json_array_get(all, i)),
                    json_string_length(json_array_get(all, i)) + 1);
    }
    add_process(&f, 2000000000, words.p, words.n);
    expect(&f, NULL);
    facts_fini(&f);
}
END_TEST

/* Only the certificate changes, so options of the service do not matter. */
START_TEST(the_certificate_is_renewed)
{
    struct facts f = {.platform = FACTS_K3S,
                      .service_option = xstrdup("/x.service: --data-dir")};
    has_been_installed(&f);
    const struct change_plan_input in = {.facts = &f, .root = "", .read = no_file};
    change_plan_fini(&plan);
    ck_assert_done(change_plan_renew(&in, &plan, &err), err);
    ck_assert_str_eq(path_of(CHANGE_PLAN_KEY), "/etc/kubernetes/gpushare/client.key");
    ck_assert_str_eq(path_of(CHANGE_PLAN_MANIFEST), "");
    facts_fini(&f);
}
END_TEST

START_TEST(nodes_without_a_kube_scheduler_of_ours)
{
    struct facts agent = {.platform = FACTS_K3S, .is_agent = true};
    finish(&agent, NULL);
    expect(&agent, NULL);
    ck_assert(findings_has(&found, "agent"));
    expect_text("  fix   scripts/install --check    # on each server of k3s\n");
    struct facts off = {.platform = FACTS_K3S};
    add(&off, K3S, "disable-scheduler: true\n");
    finish(&off, NULL);
    expect(&off, NULL);
    ck_assert(findings_has(&found, "scheduler-disabled"));
    expect_text("this server of k3s runs no kube-scheduler");
    struct facts openshift = {.platform = FACTS_OPENSHIFT};
    err_set(&openshift.cluster_why, ERR_UNAVAILABLE, "not asked");
    expect(&openshift, NULL);
    ck_assert(findings_has(&found, "openshift"));
    expect_text("  fix   helm install gpushare manifests/chart -n gpushare ");
    struct facts denied = {.platform = FACTS_RKE2};
    err_set(&denied.settings_why, ERR_FORBIDDEN, RKE2 ".d: Permission denied");
    finish(&denied, NULL);
    expect(&denied, NULL);
    ck_assert(findings_has(&found, "settings-malformed"));
    expect_text("  fix   sudo scripts/install --check\n");
    facts_fini(&denied);
    struct facts malformed = {.platform = FACTS_RKE2};
    add(&malformed, RKE2, "a: {\n");
    finish(&malformed, NULL);
    expect(&malformed, "settings-malformed");
    facts_fini(&agent);
    facts_fini(&off);
    facts_fini(&openshift);
    facts_fini(&malformed);
}
END_TEST

/* No content leads to a crash, or to a plan whose files need another plan. */
START_TEST(hostile_settings)
{
    static const char text[] =
        "# mine\ntoken: secret\nkube-scheduler-arg:\n- v=2\n- config=/etc/s.yaml\n"
        "kube-scheduler-extra-mount: '/a:/b:ro'\ndata-dir: /d\n";
    static const char *const words[] = {"+",  ":",    "[",  "]", "- ", "=",  "/",
                                        "{}", "null", "\n", "'", "\"", "&a", "*a",
                                        "::", ":ro",  "--", "~", NULL};
    for (uint64_t seed = 1; seed <= 1000; seed++) {
        struct rng rng;
        struct buf changed = {0};
        struct facts f = {.platform = seed & 1 ? FACTS_K3S : FACTS_RKE2};
        rng_init(&rng, seed);
        buf_adds(&changed, text);
        mutate(&rng, words, &changed);
        buf_addc(&changed, '\n');
        add(&f, rancher_config(&f), "kube-scheduler-arg: [v=1]\n");
        add(&f, seed & 1 ? K3S ".d/m.yaml" : RKE2 ".d/m.yaml", changed.p);
        finish(&f, NULL);
        findings_fini(&found);
        checks_run(&f, false, &found);
        ck_assert_int_ne(findings_exit_status(&found), 0);
        if (make(&f) == 0 && plan.changes[CHANGE_PLAN_MANIFEST].path) {
            struct facts after = {.platform = f.platform};
            add(&after, rancher_config(&f), "kube-scheduler-arg: [v=1]\n");
            add(&after, seed & 1 ? K3S ".d/m.yaml" : RKE2 ".d/m.yaml", changed.p);
            add(&after, path_of(CHANGE_PLAN_MANIFEST), planned(CHANGE_PLAN_MANIFEST));
            cleanup_free char *config = xstrdup(planned(CHANGE_PLAN_CONFIG));
            finish(&after, *config ? config : NULL);
            ck_assert_done(make(&after), err);
            ck_assert_str_eq(path_of(CHANGE_PLAN_MANIFEST), "");
            facts_fini(&after);
        }
        facts_fini(&f);
        buf_fini(&changed);
    }
}
END_TEST

UNIT_MAIN("setup/rancher", files_are_merged_as_by_k3s, k3s_gets_one_new_file,
          rke2_also_gets_a_mount, a_configuration_of_the_user_gets_the_entry,
          what_is_not_safe_is_refused, k3s_must_be_restarted, rke2_must_be_restarted,
          the_certificate_is_renewed, nodes_without_a_kube_scheduler_of_ours,
          hostile_settings)
