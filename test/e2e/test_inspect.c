/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <sys/socket.h>

#include "lib/cluster.h"
#include "lib/network.h"
#include "lib/sim.h"
#include "lib/stub.h"

/*
 * kubectl-inspect-gpushare with the real API server and kubectl, as a user who has the
 * rights of manifests/rbac-inspect.yaml and no others.
 */

/* Runs kubectl with further variables of the environment, with itself and the plugin in PATH. */
static void start_kubectl(struct program *p, const char *const *variables,
                          const char *const *args)
{
    const char *plugin = lib_built("kubectl-inspect-gpushare"),
               *kubectl = cluster_program("kubectl");
    const char *argv[PROGRAM_ARGS] = {
        "env", "-uKUBECTL",
        lib_fmt("PATH=%.*s:%.*s:%s", (int)(strrchr(plugin, '/') - plugin), plugin,
                (int)(strrchr(kubectl, '/') - kubectl), kubectl, getenv("PATH")),
        lib_fmt("TMPDIR=%s", lib_dir)};
    size_t n = program_args(argv, 4, variables);
    n = program_args(argv, n, ARGV("kubectl", "inspect", "gpushare"));
    program_args(argv, n, args);
    program_start(p, lib_dir, argv);
}

static char *run_kubectl(int status, const char *const *variables,
                         const char *const *args)
{
    struct program p;
    start_kubectl(&p, variables, args);
    return lib_keep(program_end(&p, status), free);
}

/* As that user. */
static char *as_viewer(int status, const char *const *args)
{
    return run_kubectl(
        status, ARGV(lib_fmt("KUBECONFIG=%s/viewer.kubeconfig", cluster.dir)), args);
}

/* The extender may not have heard yet of what has just happened. */
static bool viewer_sees(const char *const *args, const char *text)
{
    return strstr(as_viewer(-1, args), text) != NULL;
}

/* The API server's own clock says how old it is. Without an owner: one that is not there
 * would have it collected. */
static void sees_a_dead_agent(const char *url)
{
    cluster_create("/apis/coordination.k8s.io/v1/namespaces/"
                   "nvidia-gpu-scheduler-node-lease/leases",
                   "{\"metadata\":{\"name\":\"n1\"},\"spec\":{\"holderIdentity\":\"n1\","
                   "\"leaseDurationSeconds\":40,"
                   "\"renewTime\":\"2020-01-01T00:00:00.000000Z\"}}");
    const char *alone = as_viewer(0, NULL);
    ck_assert_contains(alone, "! n1: no heartbeat from scv-agent on this node for ");
    ck_assert_contains(alone, " promised (66%), 0 free");
    ck_assert_contains(
        as_viewer(0, ARGV("explain", "pod", "w")),
        "\nn1                           no heartbeat from scv-agent on this");
    lib_wait(viewer_sees(ARGV(url),
                         "; the extender receives renewals: check the node's clock"));
    cluster_delete("/apis/coordination.k8s.io/v1/namespaces/"
                   "nvidia-gpu-scheduler-node-lease/leases/n1");
}

/* The page needs no other rights than the tables. */
static void serves_the_page(void)
{
    struct program p;
    lib_program(&p, "kubectl-inspect-gpushare",
                ARGV("--kubeconfig", lib_fmt("%s/viewer.kubeconfig", cluster.dir)),
                ARGV("--serve"));
    ck_assert(program_wait_output(&p, "Ctrl-C ends it.\n"));
    struct span rest = span_of(strstr(program_output(&p), "http://"));
    struct span url = span_cut(&rest, '\n');
    const char *said;
    lib_wait(strstr(said = lib_output(0, ARGV("curl", "-sS", "--noproxy", "*",
                                              lib_fmt("%.*sinspect", SPAN_ARG(url)))),
                    "needs 8192 MiB on one card"));
    ck_assert_contains(said, "\"name\":\"a\",\"namespace\":\"default\"");
    ck_assert_lacks(said, "\"error\"");
    program_stop(&p);
}

TEST(a_user_with_these_rights_alone)
{
    cluster_add_node("n1", "", CARDS(16384, 8192));
    cluster_add_user("viewer", "/CN=viewer");
    ck_assert_contains(as_viewer(1, NULL),
                       "is forbidden: User \"viewer\" cannot list resource");
    cluster_allow_inspect("viewer");
    /* RBAC follows what is written a moment later. */
    lib_wait(!viewer_sees(NULL, "is forbidden"));

    cluster_create_pod("a", 6, "", "");
    cluster_wait_running("a");
    cluster_create_pod("b", 10, "", "");
    cluster_wait_running("b");
    cluster_create_pod("w", 8, "", "");
    cluster_wait_refused("w", "needs 8192 MiB on one card");
    const char *table = as_viewer(0, ARGV("-d"));
    ck_assert_contains(table, "6/8");
    ck_assert_contains(table, "default    a");
    ck_assert_contains(as_viewer(0, ARGV("--classic", "n1")),
                       "GPU0(Allocated/Total)  GPU1(Allocated/Total)");
    const char *explained = as_viewer(0, ARGV("explain", "pod", "w"));
    ck_assert_contains(explained, "pod default/w is pending; requests 8 GiB");
    ck_assert_contains(explained, "kube-scheduler: ");

    char *url =
        lib_fmt("--extender=http://%s", network_at(cluster.extender.observers.port));
    /* The extender runs beside the cluster, so its Service has no endpoint. */
    lib_wait(viewer_sees(ARGV("--check", url),
                         "! Service gpushare-schd-extender has no ready endpoint"));
    cluster_create(
        "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices",
        "{\"metadata\":{\"name\":\"by-hand\",\"labels\":{"
        "\"kubernetes.io/service-name\":\"gpushare-schd-extender\"}},"
        "\"addressType\":\"IPv4\",\"endpoints\":[{\"addresses\":[\"10.0.0.1\"],"
        "\"conditions\":{\"ready\":true}}],\"ports\":[]}");
    lib_wait(viewer_sees(ARGV("--check", url),
                         "no differences; compared with the extender\n"));
    /* The rights are those for the objects alone. */
    ck_assert_contains(as_viewer(0, ARGV("--check")),
                       "no differences; not compared with the extender (see");
    ck_assert_contains(
        as_viewer(1,
                  ARGV("--check", "--extender=kube-system/gpushare-schd-extender:12345")),
        "forbidden");
    serves_the_page();
    sees_a_dead_agent(url);
}

/* -- the login -- */

/* A kubeconfig of the API server at this URL with further members of the user. Kept. */
static char *make_config(const char *name, const char *url, const char *user)
{
    temp_write(lib_dir, name,
               lib_fmt("apiVersion: v1\nkind: Config\ncurrent-context: c\n"
                       "contexts: [{name: c, context: {cluster: a, user: b}}]\n"
                       "clusters: [{name: a, cluster: {server: \"%s\", "
                       "tls-server-name: localhost, certificate-authority: \"%s\"}}]\n"
                       "users: [{name: b, user: {%s}}]\n",
                       url, cluster_pki("ca.crt"), user));
    return lib_path(name);
}

static const char *api_url(void)
{
    return lib_fmt("https://%s", network_at(cluster.api.port));
}

static const char *admin(void)
{
    return lib_fmt("client-certificate: \"%s\", client-key: \"%s\"",
                   cluster_pki("admin.crt"), cluster_pki("admin.key"));
}

/* A credential plugin whose credential is the token in the file `token`. */
static const char *login(const char *before)
{
    temp_script(lib_dir, "login",
                lib_fmt("cd %s\n%s\nprintf '{\"kind\":\"ExecCredential\",\"apiVersion\":"
                        "\"client.authentication.k8s.io/v1\",\"status\":{\"token\":"
                        "\"%%s\"}}' \"$(cat token)\"\n",
                        lib_dir, before));
    return lib_fmt("exec: {apiVersion: client.authentication.k8s.io/v1, command: "
                   "\"%s/login\", interactiveMode: Always}",
                   lib_dir);
}

/* A service account that may look, with its token in the file. */
static void make_account(const char *name)
{
    cluster_kubectl("-n", "kube-system", "create", "serviceaccount", name);
    cluster_allow_inspect(lib_fmt("system:serviceaccount:kube-system:%s", name));
    temp_write(lib_dir, "token", cluster_token(name, NULL));
}

/* Runs a proxy of this test? */
static bool proxy_runs(void)
{
    return *lib_output(-1, ARGV("pgrep", "-f", lib_fmt("unix-socket=%s", lib_dir)));
}

/* The plugin in a terminal, as a credential plugin of interactiveMode Always needs it. */
static void start_in_terminal(struct program *p, const char *config, const char *option)
{
    program_start(p, lib_dir,
                  ARGV(lib_fmt("KUBECTL=%s", cluster_program("kubectl")),
                       lib_fmt("TMPDIR=%s", lib_dir), "script", "-qefc",
                       lib_fmt("exec %s --kubeconfig %s %s",
                               lib_built("kubectl-inspect-gpushare"), config, option),
                       "/dev/null"));
}

TEST(a_device_code_is_entered_and_a_login_expires)
{
    struct program tables, page;
    cluster_add_node("n1", "", CARDS(16384));
    make_account("first");
    const char *config = make_config("config", api_url(),
                                     login("echo open login.example, enter ABCD >&2\n"
                                           "until [ -e entered ]; do sleep 0.1; done"));
    start_in_terminal(&tables, config, "-w");
    ck_assert(program_wait_output(&tables, "enter ABCD"));
    start_in_terminal(&page, config, "--serve");
    ck_assert(program_wait_output(&page, "enter ABCD"));
    ck_assert_lacks(program_output(&tables), "promised");
    temp_write(lib_dir, "entered", "");
    ck_assert(program_wait_output(&tables, "promised"));
    ck_assert(program_wait_output(&page, "serving the page on"));

    cluster_kubectl("-n", "kube-system", "delete", "serviceaccount", "first");
    cluster_stop("kube-apiserver", "KILL"); /* watches go on with an old login */
    ck_assert(program_wait_output(&page, "kubectl proxy: "));
    cluster_start("kube-apiserver");
    const char *said = lib_keep(program_end(&tables, 1), free);
    ck_assert_contains(said, "the login has expired");
    ck_assert_lacks(said, "proxy_server.go");
    ck_assert(program_wait_output(&page, "HTTP 401"));
    make_account("second");
    ck_assert(program_wait_output(&page, "the watches work again"));
    ck_assert(proxy_runs());
    program_kill(&page);
    lib_wait(!proxy_runs());
}

static char *with_config(int status, const char *config, const char *const *args)
{
    return run_kubectl(status, ARGV(lib_fmt("KUBECONFIG=%s", config)), args);
}

TEST(options_and_files_are_those_of_kubectl)
{
    cluster_add_node("n1", "", CARDS(16384));
    cluster_allow_inspect("jane");
    const char *good = make_config("good", api_url(), admin());
    lib_wait(strstr(with_config(-1, good, ARGV("--as=jane")), "on 1 node"));
    ck_assert_contains(with_config(1, good, ARGV("--as=nobody", "--as-group=g")),
                       "User \"nobody\" cannot list resource");
    /* The first file of a name wins, and each has half. */
    temp_write(lib_dir, "other",
               lib_fmt("current-context: o\n"
                       "contexts: [{name: o, context: {cluster: o, user: b}}]\n"
                       "clusters: [{name: o, cluster: {server: \"https://%s\"}}]\n",
                       network_at(1)));
    const char *list = lib_fmt("%s:%s", lib_path("other"), good);
    ck_assert_contains(with_config(1, list, NULL), "connection refused");
    const char *const *const chosen[] = {
        ARGV("--cluster=a"), ARGV("--context=c"),
        ARGV("--server", api_url(), "--tls-server-name=localhost",
             "--certificate-authority", cluster_pki("ca.crt"))};
    array_items(options, chosen)
        ck_assert_contains(with_config(0, list, *options), "on 1 node");
    make_account("third");
    ck_assert_contains(
        with_config(0, "/dev/null",
                    ARGV("--server", api_url(), "--certificate-authority",
                         cluster_pki("ca.crt"), "--token", lib_read("token"))),
        "on 1 node");
    ck_assert_contains(with_config(1, good, ARGV("--context=gone")),
                       lib_fmt("error: context \"gone\" does not exist\n"
                               "kubectl-inspect-gpushare: kubeconfig %s: ",
                               good));
    ck_assert_contains(with_config(1, "/dev/null", NULL),
                       "kubeconfig /dev/null: no current context: ");
    int64_t begin_ms = lib_now_ms();
    with_config(0, good, NULL);
    cluster_report("through kubectl", lib_now_ms() - begin_ms);
    begin_ms = lib_now_ms();
    lib_output_of(0, "kubectl-inspect-gpushare", ARGV("--kubeconfig", good));
    cluster_report("directly", lib_now_ms() - begin_ms);
}

TEST(a_server_can_have_a_path)
{
    struct program p;
    cluster_add_node("n1", "", CARDS(16384));
    program_start(&p, lib_dir,
                  ARGV(cluster_program("kubectl"), "proxy", "--port=0",
                       "--api-prefix=/k8s/clusters/c1/",
                       lib_fmt("--kubeconfig=%s/admin.kubeconfig", cluster.dir)));
    unsigned port = program_port(&p, "Starting to serve on ");
    const char *config =
        make_config("config", lib_fmt("http://127.0.0.1:%u/k8s/clusters/c1", port), "");
    ck_assert_contains(with_config(0, config, NULL), "on 1 node");
    program_kill(&p);
}

/* A proxy that alone knows the name of the API server. */
static void tunnel(struct stub_conn *conn, void *ctx)
{
    char bytes[65536];
    struct raw to;
    if (!stub_read(conn))
        return;
    raw_open(&to, cluster.api.port);
    stub_printf(conn, "HTTP/1.1 200 OK\r\n\r\n");
    int fds[] = {conn->fd, to.fd};
    for (ssize_t n = 1; n > 0;) {
        struct pollfd in[] = {{fds[0], POLLIN, 0}, {fds[1], POLLIN, 0}};
        poll(in, 2, -1);
        int from = in[0].revents ? 0 : 1;
        n = recv(fds[from], bytes, sizeof bytes, 0);
        for (ssize_t done = 0; done < n;)
            done += send(fds[!from], bytes + done, (size_t)(n - done), MSG_NOSIGNAL);
    }
    raw_close(&to);
    (void)ctx;
}

TEST(the_proxy_of_the_environment_is_used)
{
    cluster_add_node("n1", "", CARDS(16384));
    struct stub *proxy = stub_start(tunnel, NULL);
    const char *config = make_config("config", "https://api.example.test:6443", admin());
    ck_assert_contains(
        run_kubectl(0,
                    ARGV(lib_fmt("KUBECONFIG=%s", config),
                         lib_fmt("HTTPS_PROXY=%s", stub_url(proxy)), "NO_PROXY="),
                    NULL),
        "on 1 node");
    cleanup_free char *request = stub_request(proxy, 0);
    ck_assert_contains(request, "CONNECT api.example.test:6443 HTTP/1.1\r\n");
    stub_stop(proxy);
}

/* kube-sim says when, and kubectl passes it on. */
TEST(an_overloaded_api_server_is_asked_again)
{
    static const char *const answers[] = {"429,\"retryAfter\":1", "503,\"retryAfter\":1",
                                          "410"};
    struct sim sim;
    sim_start(&sim, NULL);
    sim_add_node(&sim, "n1", 1, 15);
    array_items(answer, answers) {
        sim_fault(&sim,
                  "{\"verb\":\"list\",\"resource\":\"nodes\",\"nth\":1,\"action\":"
                  "\"answer\",\"status\":%s}",
                  *answer);
        ck_assert_contains(with_config(0, sim_kubeconfig(&sim), NULL), "on 1 node");
        ck_assert_int_eq(sim_fired(&sim), 1);
        sim_no_faults(&sim);
    }
    sim_stop(&sim);
}

CLUSTER_MAIN(300)
