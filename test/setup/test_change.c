/* SPDX-License-Identifier: Apache-2.0 */
#include "lib.h"
#include "setup/change.h"

/* The changes for each form that a node's files can have. (test/fuzz/fuzz_setup.c has
 * malformed files.) */

static struct change plan;
static struct facts f; /* of the last plan, which borrows its paths */
static struct err err;
static bool insecure, without_secret;

/* Takes both texts; NULL: no such file. */
static int make(char *manifest, char *config, const char *address)
{
    cleanup_free char *policy = temp_read(".", CONFIG);
    lib_write(MANIFEST_AT, manifest);
    lib_write(CONFIG_AT, config);
    change_fini(&plan);
    lib_read_node(&f);
    for (int i = 0; i < SECRET_KEYS; i++)
        buf_printf(&f.secret.data[i], "pem of %s\n", facts_tls_names[i].member);
    if (without_secret)
        err_set(&f.secret_why, ERR_NOT_FOUND, "secrets \"x\" not found");
    f.address = address;
    f.insecure = insecure;
    err = (struct err){0};
    return change_make(&f, span_of(policy), &plan, &err);
}

static void made(char *manifest, char *config, const char *address)
{
    ck_assert_done(make(manifest, config, address), err);
}

static void refused(char *manifest, char *config, const char *address, const char *why)
{
    ck_assert_msg(make(manifest, config, address) == -1 && strstr(err.msg, why), "%s: %s",
                  why, err.msg);
}

/* The path of the file; NULL: no change. */
static const char *path(int kind)
{
    return plan.files[kind].path;
}

/* The new content; "": no change. */
static const char *bytes(int kind)
{
    return path(kind) ? plan.files[kind].bytes.p : "";
}

static bool has(int kind, const char *text)
{
    return strstr(bytes(kind), text) != NULL;
}

/* Writes the planned files of the certificate to the node, or removes them. */
static void write_certificate(bool present)
{
    for (int i = 0; i < SECRET_KEYS; i++) {
        cleanup_free char *name = xasprintf("root%s", facts_tls_names[i].path);
        lib_write(name,
                  present ? xasprintf("pem of %s\n", facts_tls_names[i].member) : NULL);
    }
}

/* Checks that `now` has all lines of `old` in order; returns how many it has besides. */
static size_t count_added(const char *old, const char *now)
{
    struct span a = span_of(old), b = span_of(now);
    size_t more = 0;
    while (a.n) {
        struct span line = span_cut(&a, '\n');
        for (;; more++) {
            ck_assert_msg(b.n > 0, "\"%.*s\" is gone", SPAN_ARG(line));
            if (span_eq(span_cut(&b, '\n'), line))
                break;
        }
    }
    for (; b.n; more++)
        span_cut(&b, '\n');
    return more;
}

TEST(the_files_of_kubeadm)
{
    static const char *const versions[] = {"1.25", "1.37"};
    for (size_t i = 0; i < ARRAY_LEN(versions); i++) {
        cleanup_free char *before = lib_kubeadm(versions[i]);
        made(xstrdup(before), NULL, NULL);
        for (int k = 0; k < CHANGE_FILES; k++)
            ck_assert(path(k) || k == CHANGE_KUBEADM);
        ck_assert_uint_eq(count_added(before, bytes(CHANGE_MANIFEST)), 15);
        ck_assert(has(CHANGE_MANIFEST, "    - mountPath: /etc/kubernetes/gpushare\n"));
        ck_assert(strstr(path(SECRET_KEY), "/etc/kubernetes/gpushare/client.key"));
        ck_assert_str_eq(bytes(SECRET_KEY), "pem of tlsConfig.keyFile\n");
        /* A second plan, for the new files, is empty. */
        char *manifest = xstrdup(bytes(CHANGE_MANIFEST)),
             *config = xstrdup(bytes(CHANGE_CONFIG));
        write_certificate(true);
        made(manifest, config, NULL);
        for (int k = 0; k < CHANGE_FILES; k++)
            ck_assert(!path(k));
        write_certificate(false);
    }
}

TEST(the_file_has_the_nodes_values)
{
    char *manifest =
        lib_swap(lib_kubeadm("1.25"), "--kubeconfig=/etc/kubernetes/scheduler.conf",
                 "--kubeconfig=/etc/k/s.conf");
    made(manifest, NULL, "[fd00::1]:32766");
    cleanup_free char *want = lib_swap(
        temp_read(".", CONFIG), ": /etc/kubernetes/scheduler.conf", ": /etc/k/s.conf");
    want = lib_swap(want, ": https://127.0.0.1:", ": https://[fd00::1]:");
    ck_assert_str_eq(bytes(CHANGE_CONFIG), want);
}

#define USER                                                                             \
    "# mine\napiVersion: kubescheduler.config.k8s.io/v1\nkind: "                         \
    "KubeSchedulerConfiguration\nclientConnection: {kubeconfig: /k}\nprofiles:\n"        \
    "  - schedulerName: default-scheduler\n    plugins: {score: {disabled: []}}\n"

TEST(plain_http_for_an_insecure_extender)
{
    insecure = without_secret = true;
    made(lib_kubeadm("1.35"), NULL, "10.0.0.1:12345");
    const char *now = bytes(CHANGE_CONFIG);
    ck_assert(strstr(now, "http://10.0.0.1:12345/gpushare-scheduler"));
    ck_assert_ptr_null(strstr(now, "tlsConfig"));
    ck_assert(strstr(now, "enableHTTPS: false"));
    ck_assert(!path(SECRET_KEY));
    ck_assert(!has(CHANGE_MANIFEST, "kubernetes/gpushare"));
}

TEST(an_entry_with_http_gets_https_and_the_certificate)
{
    /* The file of an earlier release: plain HTTP without tlsConfig. */
    struct edit old = {0};
    cleanup_free char *text = lib_swap(temp_read(".", CONFIG), "https://", "http://");
    text = lib_swap(text, "enableHTTPS: true", "enableHTTPS: false");
    ck_assert_done(edit_open("text", span_of(text), &old, &err), err);
    ck_assert_done(edit_remove(&old, "extenders.0.tlsConfig", &err), err);
    char *manifest = lib_manifest("1.35");
    made(xstrdup(manifest), buf_take(&old.text), NULL);
    cleanup_free char *policy = temp_read(".", CONFIG);
    edit_close(&old);
    json_t *now = edit_parse("now", span_of(bytes(CHANGE_CONFIG)), &err),
           *want = edit_parse("want", span_of(policy), &err);
    ck_assert(json_equal(now, want));
    ck_assert(path(SECRET_KEY));
    ck_assert(has(CHANGE_MANIFEST, "path: /etc/kubernetes/gpushare\n"));
    json_decref(now);
    json_decref(want);
    /* Back to plain HTTP, at the same address and at another one. */
    static const char *const addresses[] = {NULL, "h:1"};
    for (size_t i = 0; i < ARRAY_LEN(addresses); i++) {
        insecure = true;
        made(xstrdup(manifest), temp_read(".", CONFIG), addresses[i]);
        insecure = false;
        ck_assert(has(CHANGE_CONFIG, i ? "http://h:1/gpushare-scheduler"
                                       : "http://127.0.0.1:32766/gpushare-sche"));
        ck_assert(has(CHANGE_CONFIG, "enableHTTPS: false"));
    }
    free(manifest);
    /* In the middle of a user's list, and in a form that cannot be edited. */
    cleanup_free char *list = xasprintf(
        USER "extenders:\n- urlPrefix: http://127.0.0.1:32766/gpushare-scheduler\n"
             "  bindVerb: bind # ours\n"
             "- urlPrefix: http://x/y\n  filterVerb: f\n");
    made(lib_manifest("1.35"), xstrdup(list), NULL);
    ck_assert(has(CHANGE_CONFIG,
                  "  bindVerb: bind # ours\n  enableHTTPS: true\n  tlsConfig:\n"
                  "    caFile: /etc/kubernetes/gpushare/ca.crt\n"
                  "    certFile: /etc/kubernetes/gpushare/client.crt\n"
                  "    keyFile: /etc/kubernetes/gpushare/client.key\n"
                  "    serverName: gpushare-schd-extender.kube-system.svc\n"
                  "- urlPrefix: http://x/y\n"));
    refused(lib_manifest("1.35"),
            xstrdup(USER "extenders: [{urlPrefix: 'http://h:1/gpushare-scheduler'}]\n"),
            NULL, "policy/README.md");
}

TEST(a_certificate_of_the_administrator_stays)
{
    char *config =
        lib_swap(temp_read(".", CONFIG), "/etc/kubernetes/gpushare/client", "/own/c");
    cleanup_free char *copy = xstrdup(config);
    made(lib_manifest("1.35"), config, NULL);
    for (int k = 0; k < CHANGE_FILES; k++)
        ck_assert(!path(k));
    refused(lib_manifest("1.35"), xstrdup(copy), "h:1", "a certFile of its own");
}

TEST(without_a_secret_the_node_must_have_the_files)
{
    without_secret = true;
    refused(lib_kubeadm("1.35"), NULL, NULL, "secrets \"x\" not found. The extender");
    ck_assert(strstr(err.msg, "scripts/install --insecure"));
    write_certificate(true);
    made(lib_kubeadm("1.35"), NULL, NULL);
    ck_assert(!path(SECRET_KEY));
    ck_assert(path(CHANGE_MANIFEST));
}

TEST(an_existing_file_that_no_option_names)
{
    made(lib_kubeadm("1.35"), temp_read(".", CONFIG), NULL);
    ck_assert(!path(CHANGE_CONFIG));
    ck_assert(path(CHANGE_MANIFEST));
    made(lib_kubeadm("1.35"), xstrdup("old: ["), NULL);
    ck_assert(path(CHANGE_CONFIG));
}

TEST(an_entry_is_added_to_the_users_file)
{
    static const char other[] =
        "extenders:\n  - urlPrefix: http://x/y\n    filterVerb: f\n"
        "    # of x\n";
    made(lib_manifest("1.31"), xstrdup(USER), NULL);
    ck_assert(!has(CHANGE_MANIFEST, "gpushare-scheduler-config"));
    ck_assert_int_eq(strncmp(bytes(CHANGE_CONFIG),
                             USER "extenders:\n- urlPrefix: ", strlen(USER) + 12),
                     0);
    cleanup_free char *text = xasprintf("%s%s", USER, other);
    made(lib_manifest("1.31"), xstrdup(text), NULL);
    ck_assert_uint_gt(count_added(text, bytes(CHANGE_CONFIG)), 20);
    ck_assert(has(CHANGE_CONFIG, "\n  - urlPrefix: https://127.0.0.1"));
    ck_assert(has(CHANGE_CONFIG, "\n    ignorable: false\n"));
}

TEST(an_existing_entry_stays)
{
    char *config =
        lib_swap(temp_read(".", CONFIG), "httpTimeout: 30s", "httpTimeout: 5s");
    cleanup_free char *before = xstrdup(config);
    made(lib_manifest("1.35"), config, NULL);
    ck_assert(!path(CHANGE_CONFIG));
    made(lib_manifest("1.35"), xstrdup(before), "h:1");
    before = lib_swap(before, "//127.0.0.1:32766/", "//h:1/");
    ck_assert_str_eq(bytes(CHANGE_CONFIG), before);
    made(lib_manifest("1.35"), xstrdup(before), "h:1");
    ck_assert(!path(CHANGE_CONFIG));
}

TEST(a_mount_is_added_to_an_option_without_one)
{
    char *manifest = lib_swap(lib_kubeadm("1.31"), "    - --leader-elect=true\n",
                              "    - --leader-elect=true\n    - --config=/x/c.yaml\n");
    cleanup_free char *before = xstrdup(manifest);
    made(manifest, NULL, NULL);
    ck_assert_uint_eq(count_added(before, bytes(CHANGE_MANIFEST)), 14);
    ck_assert(strstr(path(CHANGE_CONFIG), "/x/c.yaml"));
    /* A mounted folder suffices. */
    manifest = lib_swap(lib_kubeadm("1.31"), "mountPath: /etc/kubernetes/scheduler.conf",
                        "mountPath: /etc/kubernetes");
    manifest = lib_swap(manifest, "      path: /etc/kubernetes/scheduler.conf",
                        "      path: /srv/k");
    made(manifest, NULL, NULL);
    ck_assert(strstr(path(CHANGE_CONFIG), "/srv/k/kube-scheduler-config.yaml"));
    ck_assert(!has(CHANGE_MANIFEST, "gpushare-scheduler-config"));
    /* kubeadm's volume has the path on the node. */
    cleanup_edit struct edit text = {0};
    buf_adds(&f.kubeadm.bytes, "apiVersion: kubeadm.k8s.io/v1beta4\n");
    f.kubeadm.path = xstrdup("c");
    f.kubeadm.json = edit_parse("c", buf_span(&f.kubeadm.bytes), &err);
    ck_assert_done(change_kubeadm(&f, FACTS_CONFIG, false, &text, &err), err);
    ck_assert(strstr(text.text.p, "  hostPath: /srv/k/kube-scheduler-config.yaml\n"));
    /* Without volumeMounts and volumes. */
    manifest =
        xstrdup("kind: Pod\nmetadata: {name: kube-scheduler}\nspec:\n  containers:\n"
                "  - image: x/kube-scheduler:v1.31.0\n    command:\n"
                "    - kube-scheduler\n  hostNetwork: true\n");
    made(manifest, NULL, NULL);
    ck_assert(has(CHANGE_MANIFEST, "    volumeMounts:\n    - mountPath: "));
    ck_assert(has(CHANGE_MANIFEST, "\n  volumes:\n  - hostPath:\n"));
}

static const struct {
    const char *from, *to, *why;
} unsafe_manifests[] = {
    {"v1.35.4", "latest", "not a version of Kubernetes"},
    {"v1.35.4", "v1.24.17", "not a version of Kubernetes from 1.25 on"},
    {"    - --leader-elect=true\n", "    - --config=c\n", "not an absolute path"},
    {"name: kube-scheduler\n  names", "name: &n x\n  names", "anchors"},
    {"name: kube-scheduler\n  names", "name: openshift-kube-scheduler\n  names",
     "helm install gpushare manifests/chart"},
    {"    volumeMounts:\n    - mountPath: /etc/kubernetes/scheduler.conf\n      name: "
     "kubeconfig\n      readOnly: true\n",
     "    volumeMounts: [{mountPath: /k, name: kubeconfig}]\n", "edited safely"},
};

static const struct {
    const char *text, *why;
} unsafe_configs[] = {
    {USER "extenders: []\n", "edited safely"},
    {USER "extenders:\n- {urlPrefix: 'http://x', bindVerb: b}\n",
     "another extender has a bindVerb"},
    {"kind: Policy\n", "is not a KubeSchedulerConfiguration"},
    {USER "extenders:\n- urlPrefix: https://h/gpushare-scheduler\n"
          "  tlsConfig: {caData: QQ==}\n",
     "remove it"},
    {"a: [", "flow node"},
};

TEST(unsafe_changes_are_refused)
{
    for (size_t i = 0; i < ARRAY_LEN(unsafe_manifests); i++)
        refused(lib_swap(lib_kubeadm("1.35"), unsafe_manifests[i].from,
                         unsafe_manifests[i].to),
                NULL, NULL, unsafe_manifests[i].why);
    for (size_t i = 0; i < ARRAY_LEN(unsafe_configs); i++)
        refused(lib_manifest("1.31"), xstrdup(unsafe_configs[i].text), NULL,
                unsafe_configs[i].why);
    /* Safe. */
    made(lib_swap(lib_kubeadm("1.35"), "  - command:\n", "  -\n    command:\n"), NULL,
         NULL);
}

TEST(an_option_that_kube_scheduler_no_longer_has_is_refused)
{
    refused(lib_swap(lib_kubeadm("1.35"), "--leader-elect=true",
                     "--policy-config-file=/etc/policy.json"),
            NULL, NULL,
            "kube-scheduler.yaml: kube-scheduler 1.35 has no --policy-config-file (from "
            "1.23 on): delete it first");
    refused(lib_swap(lib_manifest("1.31"), "--leader-elect=true", "--port=0"), NULL, NULL,
            "kube-scheduler 1.31 has no --port (from 1.24 on)");
}

TEST(the_option_is_added_to_the_existing_list)
{
    static const char spec[] = "kind: Pod\nmetadata: {name: kube-scheduler}\nspec:\n"
                               "  hostNetwork: true\n  containers:\n"
                               "  - image: x/kube-scheduler:v1.31.0\n";
    cleanup_free char *args =
        xasprintf("%s    command: [kube-scheduler]\n    args:\n    - --v=2\n", spec);
    made(xstrdup(args), NULL, NULL);
    ck_assert(has(CHANGE_MANIFEST, "    - --v=2\n    - --config="));
    /* The image's entrypoint stays. */
    made(xstrdup(spec), NULL, NULL);
    ck_assert(has(CHANGE_MANIFEST, "    args:\n    - --config="));
    ck_assert(!has(CHANGE_MANIFEST, "command"));
}

/* What change_kubeadm makes of a ClusterConfiguration with this version and `scheduler`. */
static json_t *kubeadm(const char *version, const char *scheduler, const char *option)
{
    struct facts in = {.kubeadm.path = (char[]){"c"}};
    cleanup_edit struct edit out = {0}, again = {0};
    buf_printf(
        &in.kubeadm.bytes,
        "apiVersion: kubeadm.k8s.io/%s\ndns: {} # ours\nkind: ClusterConfiguration\n"
        "%snetworking:\n  dnsDomain: x\n",
        version, scheduler);
    in.kubeadm.json = edit_parse("c", buf_span(&in.kubeadm.bytes), &err);
    ck_assert_done(change_kubeadm(&in, option, true, &out, &err), err);
    ck_assert_ptr_nonnull(strstr(out.text.p, "dns: {} # ours\n"));
    json_decref(in.kubeadm.json);
    buf_fini(&in.kubeadm.bytes);
    in.kubeadm.bytes = out.text;
    in.kubeadm.json = out.json;
    ck_assert_msg(!change_kubeadm(&in, option, true, &again, &err), "%s: %s", err.msg,
                  out.text.p);
    ck_assert_str_eq(again.text.p, out.text.p);
    return json_incref(in.kubeadm.json);
}

/* A folder of the user is mounted at the configuration, from another path of the node. */
TEST(a_mounted_folder_of_the_user_stays)
{
    json_t *j = kubeadm("v1beta4",
                        "scheduler:\n  extraVolumes:\n  - {name: a, hostPath: /srv, "
                        "mountPath: /x/}\n",
                        "/x/c.yaml");
    ck_assert_uint_eq(json_array_size(jpath(j, "scheduler.extraVolumes")), 2);
    json_decref(j);
}

static void ck_kubeadm(const char *version, const char *scheduler, const char *args,
                       size_t volumes)
{
    json_t *j = kubeadm(version, scheduler, "/x/c.yaml");
    cleanup_free char *text = json_dumps(jpath(j, "scheduler.extraArgs"), JSON_COMPACT);
    const json_t *all = jpath(j, "scheduler.extraVolumes");
    ck_assert_str_eq(text, args);
    ck_assert_uint_eq(json_array_size(all), volumes);
    const json_t *last = json_array_get(all, volumes - 1);
    ck_assert_str_eq(jpath_string(last, "hostPath"), FACTS_TLS_DIR);
    ck_assert_str_eq(jpath_string(last, "mountPath"), FACTS_TLS_DIR);
    ck_assert_str_eq(jpath_string(last, "pathType"), "Directory");
    json_decref(j);
}

/* What would be written back is the whole text, and only over the version that was
 * read. */
TEST(kubeadms_configmap_is_read_whole_or_not_at_all)
{
#define MAP(version, tail)                                                               \
    SPAN("{\"metadata\":{\"resourceVersion\":\"" version "\"},"                          \
         "\"data\":{\"ClusterConfiguration\":\"a: 1\\n" tail "\"}}")
    facts_decode_kubeadm(MAP("7", "b: 2\\n"), &f);
    ck_assert_msg(f.kubeadm.why.code == ERR_NONE, "%s", f.kubeadm.why.msg);
    ck_assert(span_eq(buf_span(&f.kubeadm.bytes), SPAN("a: 1\nb: 2\n")));
    ck_assert_str_eq(f.kubeadm_version, "7");
    const struct span refused[] = {MAP("7", "\\u0000b: 2\\n"),
                                   MAP("7", "\\u0000"),
                                   MAP("7\\u0000", ""),
                                   MAP("", ""),
                                   SPAN("{}"),
                                   SPAN("")};
    array_items(map, refused) {
        facts_fini(&f);
        facts_decode_kubeadm(*map, &f);
        ck_assert_msg(f.kubeadm.why.code == ERR_INVALID, "%.*s", SPAN_ARG(*map));
        ck_assert_contains(f.kubeadm.why.msg, "kube-system/kubeadm-config");
    }
}

TEST(kubeadm_keeps_the_option_and_the_volumes)
{
#define OLD_VOLUME "  extraVolumes:\n  - {name: a, hostPath: /a, mountPath: /a}\n"
    static const char map[] = "{\"config\":\"/x/c.yaml\"}",
                      list[] = "[{\"name\":\"config\",\"value\":\"/x/c.yaml\"}]";
    ck_kubeadm("v1beta3", "scheduler: {}\n", map, 2);
    ck_kubeadm("v1beta3", "", map, 2);
    ck_kubeadm("v1beta3", "scheduler:\n" OLD_VOLUME, map, 3);
    ck_kubeadm("v1beta3", "scheduler:\n  extraArgs:\n    v: \"2\"\n" OLD_VOLUME,
               "{\"v\":\"2\",\"config\":\"/x/c.yaml\"}", 3);
    ck_kubeadm("v1beta4", "scheduler: {}\n", list, 2);
    ck_kubeadm("v1beta4", "", list, 2);
    ck_kubeadm("v1beta4",
               "scheduler:\n  extraArgs:\n  - name: v\n    value: \"2\"\n" OLD_VOLUME,
               "[{\"name\":\"v\",\"value\":\"2\"},{\"name\":\"config\",\"value\":\"/x/"
               "c.yaml\"}]",
               3);
}

/* The static pod gets the option all the same, and `check` reports what is left to do. */
TEST(a_cluster_configuration_that_cannot_be_edited_stays)
{
    static const char *const texts[] = {
        "apiVersion: kubeadm.k8s.io/v1beta2\nscheduler: {}\n",
        "apiVersion: kubeadm.k8s.io/v1beta4\nscheduler: {extraArgs: [{name: v, value: "
        "x}]}\n",
        "apiVersion: kubeadm.k8s.io/v1beta3\nscheduler: {extraArgs: {v: x}}\n",
        /* Of another file than the static pod. */
        "apiVersion: kubeadm.k8s.io/v1beta3\nscheduler:\n  extraArgs:\n    config: /y\n",
        "apiVersion: kubeadm.k8s.io/v1beta4\nscheduler:\n  extraArgs:\n  - name: config\n"
        "    value: /y\n"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct facts in = {.kubeadm.path = (char[]){"c"}};
        cleanup_edit struct edit out = {0};
        buf_adds(&in.kubeadm.bytes, texts[i]);
        in.kubeadm.json = edit_parse("c", span_of(texts[i]), &err);
        ck_assert_int_eq(change_kubeadm(&in, "/x/c.yaml", true, &out, &err), -1);
        json_decref(in.kubeadm.json);
        buf_fini(&in.kubeadm.bytes);
    }
}

/* What others have written since: NULL: it stays as it is, because only some of it is there. */
TEST(only_what_was_added_is_removed)
{
#define POD(command, mounts)                                                             \
    "spec:\n  containers:\n  - command:\n" command "    volumeMounts:\n" mounts
#define ARG(name)   "    - --" name "\n"
#define MOUNT(name) "    - mountPath: /" name "\n      name: " name "\n"
#define ENTRY(timeout)                                                                   \
    "extenders:\n- urlPrefix: https://a/gpushare-scheduler\n  httpTimeout: " timeout "\n"
#define ARGS                                                                             \
    "apiVersion: v1beta4\nscheduler:\n  extraArgs:\n  - name: config\n    value: /c\n"
    static const char pod[] = POD(ARG("v=2"), MOUNT("a")),
                      with[] = POD(ARG("v=2") ARG("c"), MOUNT("a") MOUNT("c"));
    static const struct {
        const char *old, *with, *now, *want;
    } cases[] = {
        /* In another order, and with more. */
        {pod, with,
         "# x\n" POD(ARG("c") ARG("v=4") ARG("w"), MOUNT("c") MOUNT("b") MOUNT("a")),
         "# x\n" POD(ARG("v=4") ARG("w"), MOUNT("b") MOUNT("a"))},
        {pod, with, POD(ARG("v=3"), MOUNT("b")), POD(ARG("v=3"), MOUNT("b"))},
        {pod, with, POD(ARG("c"), MOUNT("a")), NULL},
        {pod, with, POD("    - {--c}\n", MOUNT("c")), NULL},
        {pod, with, "a: [", NULL},
        /* A value was replaced: it would have to be restored. */
        {"extenders:\n- a: 1\n", "extenders:\n- a: 2\n", "extenders:\n- a: 2\n- b: 1\n",
         NULL},
        {"x: 1\n", "x: 2\n", "x: 3\n", NULL},
        {"x: 1\n", "x: 1\n" ENTRY("30s"), "x: 1\n" ENTRY("10s"), NULL},
        {"x: 1\n", "x: 1\n" ENTRY("30s"), "x: 1\nextenders:\n- b: 1\n",
         "x: 1\nextenders:\n- b: 1\n"},
        {"x: 1\n", "x: 1\nextenders:\n- a: 1\n", "extenders:\n- b: 1\n- a: 1\nx: 2\n",
         "extenders:\n- b: 1\nx: 2\n"},
        /* kubeadm converts it. */
        {"scheduler: {}\n", "scheduler:\n  extraArgs:\n    config: /c\n", ARGS,
         "apiVersion: v1beta4\n"},
        {"scheduler: {}\n", "scheduler:\n  extraArgs:\n    config: /c\n",
         ARGS "  - name: v\n    value: \"2\"\n",
         "apiVersion: v1beta4\nscheduler:\n  extraArgs:\n  - name: v\n    value: "
         "\"2\"\n"},
        {"scheduler: {}\n", "scheduler:\n  extraArgs:\n    config: /c\n",
         "scheduler:\n  extraArgs:\n    config: /c\n    v: \"2\"\n",
         "scheduler:\n  extraArgs:\n    v: \"2\"\n"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_edit struct edit e = {0};
        int rc = edit_open("c", span_of(cases[i].now), &e, &err);
        rc = rc ? rc
                : change_revert(span_of(cases[i].old), span_of(cases[i].with), &e, &err);
        ck_assert_msg((rc == 0) == (cases[i].want != NULL), "%zu: %s", i, e.text.p);
        if (rc == 0)
            ck_assert_str_eq(e.text.p, cases[i].want);
    }
}

UNIT_MAIN_AROUND(begin, end)
