/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/kubeconfig_priv.h"

#include "kube/client_priv.h"
#include "kube/fixture.h"

#define CERT PEM("CERTIFICATE")
#define PEM_B64                                                                          \
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo="

/* Expects the error message `want`; %s in it is the directory. */
static void check_error(const char *want)
{
    cleanup_buf struct buf full = {0};
    for (; *want; want++) {
        if (want[0] == '%' && want[1] == 's') {
            buf_adds(&full, w.dir);
            want++;
        } else {
            buf_addc(&full, *want);
        }
    }
    ck_assert_str_eq(w.err.msg, full.p);
}

TEST(a_kubeconfig_with_everything_is_read)
{
    put("ca.pem", CERT);
    int rc = load_user(
        "{server: \"https://h:6443/k8s/clusters/c1/\", certificate-authority: ca.pem,\n"
        "    tls-server-name: api, proxy-url: \"http://p:1\", disable-compression: true}",
        "{client-certificate-data: " PEM_B64 ", client-key-data: " PEM_B64 ",\n"
        "    token: \" abc \", tokenFile: sub/token, username: '', as-groups: [],\n"
        "    exec: {command: aws}}");
    ck_assert_done(rc, w.err);
    ck_assert_str_eq(w.config.server, "https://h:6443");
    ck_assert_str_eq(w.config.path_prefix, "/k8s/clusters/c1");
    ck_assert_str_eq(w.config.server_name, "api");
    ck_assert_str_eq(w.config.proxy, "http://p:1");
    ck_assert(!w.config.insecure);
    ck_assert_span_eq(buf_span(&w.config.ca_pem), CERT);
    cleanup_free char *ca = path_of("ca.pem");
    cleanup_free char *token = path_of("sub/token");
    ck_assert_str_eq(w.config.ca_file, ca);
    ck_assert_span_eq(buf_span(&w.config.cert_pem), CERT);
    ck_assert_span_eq(buf_span(&w.config.key_pem), CERT);
    ck_assert_ptr_null(w.config.cert_file);
    ck_assert_str_eq(w.config.token, "abc");
    ck_assert_str_eq(w.config.token_file, token);
    ck_assert_str_eq(w.config.ns, "default");
    cleanup_free char *source = xasprintf("context c of %s/k", w.dir);
    ck_assert_str_eq(w.config.source, source);
}

TEST(the_url_of_a_server_is_split)
{
    static const struct {
        const char *url, *server, *prefix; /* server NULL: rejected */
    } cases[] = {
        {"https://h", "https://h", ""},
        {"HTTPS://h/", "https://h", ""},
        {"http://127.0.0.1:8080", "http://127.0.0.1:8080", ""},
        {"https://[::1]:6443//a/b//", "https://[::1]:6443", "//a/b"},
        {"h:6443", NULL, NULL},
        {"ftp://h", NULL, NULL},
        {"https:/h", NULL, NULL},
        {"https://", NULL, NULL},
        {"https:///x", NULL, NULL},
        {"https://u:p@h", NULL, NULL},
        {"https://h?x", NULL, NULL},
        {"https://h/#x", NULL, NULL},
        {"https://h/a b", NULL, NULL},
    };
    array_items(p, cases) {
        struct kube_config c = {0};
        struct err err = {0};
        int rc = kube_config_server(&c, span_of(p->url), &err);
        ck_assert_msg((rc == 0) == (p->server != NULL), "%s", p->url);
        if (!rc) {
            ck_assert_str_eq(c.server, p->server);
            ck_assert_str_eq(c.path_prefix, p->prefix);
        }
        kube_config_fini(&c);
    }
}

TEST(unsupported_fields_are_errors_that_name_them)
{
    static const struct {
        const char *cluster, *user, *want;
    } cases[] = {
        {"{server: \"https://h\"}", "{auth-provider: {name: gcp}}",
         "%s/k:12: user \"b\": auth-provider: not supported"},
        {"{server: \"https://h\"}", "{username: x, password: y}",
         "%s/k:12: user \"b\": username: not supported"},
        {"{server: \"https://h\"}", "{password: y}",
         "%s/k:12: user \"b\": password: not supported"},
        {"{server: \"https://h\"}", "{token: x, as: y}",
         "%s/k:12: user \"b\": as: not supported"},
        {"{server: \"https://h\"}", "{as-groups: [y]}",
         "%s/k:12: user \"b\": as-groups: not supported"},
        {"{server: \"https://h\"}", "{as-user-extra: {a: [b]}}",
         "%s/k:12: user \"b\": as-user-extra: not supported"},
        {"{server: \"https://h\"}", "{token: \"a b\"}",
         "%s/k:12: user \"b\": token: expected printable ASCII without spaces"},
        {"{server: \"https://h\"}", "{exec: {command: aws}}",
         "%s/k:12: user \"b\": exec: only kubectl runs credential plugins"},
        {"{server: \"https://h\"}", "{token: [a]}",
         "user \"b\": %s/k:12: \"token\": expected a scalar"},
        {"{server: \"https://h\"}", "{client-certificate-data: " PEM_B64 "}",
         "%s/k:12: user \"b\": client-key: missing"},
        {"{server: \"https://h\"}", "{client-key-data: " PEM_B64 "}",
         "%s/k:12: user \"b\": client-certificate: missing"},
        {"{server: \"https://h\"}", "{client-key-data: \"%%%\"}",
         "%s/k:12: user \"b\": client-key-data: invalid base64"},
        {"{server: \"https://h\"}", "{client-key-data: QUJD}",
         "%s/k:12: user \"b\": client-key-data: expected base64 of a PEM text"},
        {"{server: \"https://h\"}", "{client-key: gone}",
         "%s/k:12: user \"b\": client-key: %s/gone: No such file or directory"},
        {"{server: \"https://h\"}", "[x]",
         "context \"c\": %s/k:12: user \"b\": expected a mapping"},
        {"{}", "{}", "%s/k:9: cluster \"a\": server: missing"},
        {"", "{}", "%s/k: cluster \"a\": server: missing"},
        {"{server: h}", "{}",
         "%s/k:9: cluster \"a\": server: expected a URL with https:// or http://"},
        {"{server: \"https://h\", proxy-url: \"ftp://p\"}", "{}",
         "%s/k:9: cluster \"a\": proxy-url: expected an http, https, socks5 or socks5h "
         "URL"},
        {"{server: \"https://h\", insecure-skip-tls-verify: maybe}", "{}",
         "%s/k:9: cluster \"a\": insecure-skip-tls-verify: expected true or false"},
        {"{server: \"https://h\", insecure-skip-tls-verify: true, "
         "certificate-authority-data: " PEM_B64 "}",
         "{}",
         "%s/k:9: cluster \"a\": insecure-skip-tls-verify: conflicts with "
         "certificate-authority"},
    };
    array_items(c, cases) {
        ck_assert_int_eq(load_user(c->cluster, c->user), -1);
        check_error(c->want);
    }
    ck_assert_done(
        load_user("{server: \"https://h\", insecure-skip-tls-verify: true}", ""), w.err);
    ck_assert(w.config.insecure);
}

#define ENTRIES(server)                                                                  \
    "clusters: [{name: a, cluster: {server: \"" server "\"}}]\n"                         \
    "users: [{name: b, user: {}}]\n"

TEST(a_wrong_reference_lists_the_existing_names)
{
    static const struct {
        const char *text, *context, *want;
    } cases[] = {
        {"current-context: x\ncontexts: [{name: a, context: {}}, {name: b}]\n", NULL,
         "context \"x\" not found in %s/k; expected one of: a, b"},
        {"current-context: a\ncontexts: [{name: a}]\n", "y",
         "context \"y\" not found in %s/k; expected one of: a"},
        {"current-context: x\n", NULL,
         "context \"x\" not found in %s/k; expected one of: (none)"},
        {"contexts: [{name: a}]\n", NULL, "no current-context in %s/k; contexts: a"},
        {"", NULL, "no current-context in %s/k; contexts: (none)"},
        {"current-context: a\ncontexts: [{name: a}]\n", NULL,
         "%s/k: context \"a\" has no cluster"},
        {"current-context: a\ncontexts: [{name: a, context: {cluster: q}}]\n", NULL,
         "context \"a\": cluster \"q\" not found in %s/k; expected one of: (none)"},
        {"current-context: a\ncontexts: [{name: a, context: {cluster: a}}]\n" ENTRIES(
             "http://h"),
         NULL, "%s/k: context \"a\" has no user"},
        {"current-context: a\ncontexts: [{name: a, context: {cluster: a, user: "
         "q}}]\n" ENTRIES("http://h"),
         NULL, "context \"a\": user \"q\" not found in %s/k; expected one of: b"},
        {"current-context: a\ncontexts:\n- {name: a}\n- {name: a}\n", NULL,
         "%s/k:4: duplicate context \"a\""},
        {"current-context: a\ncontexts: {name: a}\n", NULL,
         "%s/k:2: contexts: expected a list"},
        {"current-context: a\ncontexts: [a]\n", NULL,
         "%s/k:2: context: expected a mapping"},
        {"current-context: a\ncontexts: [{name: a, context: {cluster: a, user: b, "
         "namespace: A/b}}]\n" ENTRIES("http://h"),
         NULL, "%s/k:2: context \"a\": namespace: invalid namespace name"},
        {"- x\n", NULL, "%s/k:1: not a kubeconfig: expected a mapping"},
        {"a: 1\n---\nb: 2\n", NULL, "%s/k: expected one YAML document"},
        {"a: [\n", NULL,
         "%s/k:2: while parsing a flow node: did not find expected node content"},
    };
    array_items(c, cases) {
        w.sources.context = c->context;
        ck_assert_msg(load_text(c->text) == -1, "%s", c->text);
        check_error(c->want);
    }
}

/* KUBECONFIG is a list by habit. */
TEST(one_file_of_a_list_may_exist)
{
    put("one",
        "current-context: x\n"
        "contexts: [{name: x, context: {cluster: a, user: b, namespace: n1}},\n"
        "           {name: y, context: {cluster: a, user: b}}]\n" ENTRIES("http://h"));
    ck_assert_done(load_files(xasprintf("%s/none::%s/one:", w.dir, w.dir)), w.err);
    ck_assert_str_eq(w.config.server, "http://h");
    ck_assert_str_eq(w.config.ns, "n1");
    w.sources.context = "y";
    ck_assert_done(load(), w.err);
    ck_assert_str_eq(w.config.ns, "default");
    ck_assert_int_eq(load_files(xasprintf("%s/one:%s/one", w.dir, w.dir)), -1);
    check_error("kubeconfig %s/one:%s/one: only kubectl merges files");
}

TEST(a_list_of_missing_files_is_an_error)
{
    w.sources.home = w.dir; /* is no fallback */
    ck_assert_int_eq(load_files(xasprintf("%s/none:%s/neither", w.dir, w.dir)), -1);
    ck_assert_int_eq(w.err.code, ERR_NOT_FOUND);
    check_error("kubeconfig %s/none:%s/neither does not exist");
}

TEST(in_a_pod_the_service_account_is_used)
{
    put("token", "t\n");
    put("ca.crt", CERT);
    put("namespace", "kube-system\n");
    w.sources = (struct kube_config_sources){
        .host = "fd00::1", .port = "443", .account_dir = w.dir, .kubeconfig = ""};
    ck_assert_done(load(), w.err);
    ck_assert_str_eq(w.config.server, "https://[fd00::1]:443");
    ck_assert_str_eq(w.config.path_prefix, "");
    ck_assert_str_eq(w.config.ns, "kube-system");
    ck_assert_span_eq(buf_span(&w.config.ca_pem), CERT);
    cleanup_free char *token = path_of("token"), *ca = path_of("ca.crt");
    ck_assert_str_eq(w.config.token_file, token);
    ck_assert_str_eq(w.config.ca_file, ca);
    ck_assert_ptr_null(w.config.token);
    w.sources.host = "10.0.0.1";
    ck_assert_done(load(), w.err);
    ck_assert_str_eq(w.config.server, "https://10.0.0.1:443");

    put("namespace", "../x");
    ck_assert_int_eq(load(), -1);
    check_error("%s/namespace: invalid namespace name");
    drop("namespace");
    ck_assert_done(load(), w.err);
    ck_assert_str_eq(w.config.ns, "default");
    put("ca.crt", "nothing");
    ck_assert_int_eq(load(), -1);
    check_error("%s/ca.crt: expected a PEM file");
    drop("ca.crt");
    ck_assert_int_eq(load(), -1);
    check_error("%s/ca.crt: No such file or directory");
}

TEST(the_home_directory_is_the_last_source)
{
    w.sources = (struct kube_config_sources){
        .host = "h", .port = "1", .home = w.dir, .account_dir = w.dir};
    ck_assert_int_eq(load(), -1);
    check_error("no API server configured: --kubeconfig and KUBECONFIG are not set, "
                "%s/token does not exist, and %s/.kube/config does not exist");
    temp_mkdir(w.dir, ".kube");
    put(".kube/config", "current-context: a\ncontexts: [{name: a, context: {cluster: a, "
                        "user: b}}]\n" ENTRIES("http://home"));
    ck_assert_done(load(), w.err);
    ck_assert_str_eq(w.config.server, "http://home");
    w.sources = (struct kube_config_sources){.host = "", .port = "1"};
    ck_assert_int_eq(load(), -1);
    ck_assert_str_eq(w.err.msg, "no API server configured: --kubeconfig and KUBECONFIG "
                                "are not set, not running in a pod, and HOME is not set");
}

UNIT_MAIN_AROUND(fixture_begin, fixture_end)
