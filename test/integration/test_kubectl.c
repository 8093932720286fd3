/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/mem.h"
#include "integration/suite.h"
#include "lib/stub.h"

/*
 * kubectl-inspect-gpushare with a kubectl that is less polite than the real one, which
 * test/e2e/test_inspect has. It is a shell script without exec, so that what it starts has to
 * be ended, too; the test serves its socket, and forwards it to kube-sim or to a stub.
 */

/* -- the socket of the proxy -- */

enum { PAIRS = 32 };

static struct relay {
    pthread_t thread;
    int listener, end[2];
    unsigned port;       /* of the server behind it */
    int pairs[PAIRS][2]; /* -1: free */
} relay;

static void forward(int from, int to, int *pair)
{
    char bytes[65536];
    ssize_t n = recv(from, bytes, sizeof bytes, 0);
    for (ssize_t done = 0, sent; done < n; done += sent)
        if ((sent = send(to, bytes + done, (size_t)(n - done), MSG_NOSIGNAL)) <= 0)
            n = 0;
    if (n > 0)
        return;
    close(pair[0]);
    close(pair[1]);
    pair[0] = pair[1] = -1;
}

static void *serve_relay(void *arg)
{
    (void)arg;
    for (;;) {
        struct pollfd fds[2 + 2 * PAIRS] = {{relay.listener, POLLIN, 0},
                                            {relay.end[0], POLLIN, 0}};
        for (int i = 0; i < 2 * PAIRS; i++)
            fds[2 + i] = (struct pollfd){relay.pairs[i / 2][i % 2], POLLIN, 0};
        poll(fds, ARRAY_LEN(fds), -1);
        if (fds[1].revents)
            return NULL;
        for (int i = 0; i < 2 * PAIRS; i++) {
            int *pair = relay.pairs[i / 2];
            if (fds[2 + i].revents && pair[0] >= 0)
                forward(pair[i % 2], pair[!(i % 2)], pair);
        }
        for (int i = 0; fds[0].revents && i < PAIRS; i++) {
            struct raw to;
            if (relay.pairs[i][0] >= 0)
                continue;
            raw_open(&to, relay.port);
            relay.pairs[i][0] = accept(relay.listener, NULL, NULL);
            relay.pairs[i][1] = to.fd;
            break;
        }
    }
}

/* The option with this begin of the proxy that was started, behind it; "": none. Kept. */
static const char *option(const char *begin)
{
    const char *at = strstr(lib_read("args"), lib_fmt("\n%s", begin));
    return at ? lib_fmt("%.*s", (int)strcspn(at + 1 + strlen(begin), "\n"),
                        at + 1 + strlen(begin))
              : "";
}

static void await_kubectl(void)
{
    const char *args = lib_path("args");
    lib_wait(access(args, R_OK) == 0);
}

/* Serves the socket that kubectl was asked for, in front of this port. */
static void listen_for(unsigned port)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    await_kubectl();
    snprintf(at.sun_path, sizeof at.sun_path, "%s", option("--unix-socket="));
    relay.port = port;
    memset(relay.pairs, -1, sizeof relay.pairs);
    relay.listener = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(relay.listener, (struct sockaddr *)&at, sizeof at), 0);
    ck_assert_int_eq(listen(relay.listener, 8), 0);
    ck_assert_int_eq(pipe(relay.end), 0);
    ck_assert_int_eq(pthread_create(&relay.thread, NULL, serve_relay, NULL), 0);
}

static void stop_relay(void)
{
    ck_assert_int_eq(write(relay.end[1], "", 1), 1);
    pthread_join(relay.thread, NULL);
    close(relay.listener);
    for (int i = 0; i < 2 * PAIRS; i++)
        if (relay.pairs[i / 2][i % 2] >= 0)
            close(relay.pairs[i / 2][i % 2]);
}

/* -- kubectl -- */

/* After `behavior`, the script tells its arguments and waits; "namespace" is that of the
 * context. */
static void make_kubectl(const char *behavior)
{
    temp_script(
        lib_dir, "kubectl",
        lib_fmt("cd %s\n"
                "if [ $1 = config ]; then\n"
                "    cat namespace && exit\n"
                "    echo 'error: current-context must exist' >&2; exit 1\n"
                "fi\n"
                "%s\n"
                "sleep 1000 &\n"
                "echo $$ $! >pids\n"
                "printf '%%s\\n' \"KUBECONFIG=$KUBECONFIG\" \"$@\" >new; mv new args\n"
                "wait\n",
                lib_dir, behavior));
}

static struct program inspect;

/* `variables` of the environment. */
static void start(const char *const *variables, const char *const *options)
{
    const char *words[PROGRAM_ARGS] = {lib_fmt("KUBECTL=%s", lib_path("kubectl")),
                                       lib_fmt("TMPDIR=%s", lib_dir)};
    size_t n = program_args(words, 2, variables);
    words[n] = lib_built("kubectl-inspect-gpushare");
    program_args(words, n + 1, options);
    program_start(&inspect, lib_dir, words);
}

static void start_simple(const char *const *options)
{
    const char *words[PROGRAM_ARGS] = {"--kubeconfig", sim_kubeconfig(&sim)};
    program_args(words, 2, options);
    start(NULL, words);
}

/* A process without a parent stays a zombie where nobody reaps it. */
static bool is_gone(int pid)
{
    char state = 'X';
    FILE *f = fopen(lib_fmt("/proc/%d/stat", pid), "r");
    if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
        state = 'X';
    if (f)
        fclose(f);
    return state == 'X' || state == 'Z';
}

static bool has_socket(void)
{
    glob_t found;
    bool any = glob(lib_fmt("%s/gpushare-??????", lib_dir), 0, NULL, &found) == 0;
    globfree(&found);
    return any;
}

/* No proxy survives, nor its socket. */
static void check_nothing_left(void)
{
    int pids[2];
    ck_assert_int_eq(sscanf(lib_read("pids"), "%d %d", &pids[0], &pids[1]), 2);
    lib_wait(is_gone(pids[0]) && is_gone(pids[1]));
    lib_wait(!has_socket());
}

/* The end of the plugin; returns its output, kept. */
static const char *end_of(int status)
{
    const char *said = lib_keep(program_end(&inspect, status), free);
    check_nothing_left();
    return said;
}

TEST(kubectl_gets_the_options_of_the_connection)
{
    struct stat dir;
    sim_add_node(&sim, "n1", 2, 15);
    make_kubectl("kill -INT $$"); /* as Ctrl-C does */
    start_simple(ARGV("--context=c", "--as=jane", "--as-group=a b", "--as-group", "c",
                      "--as-uid=7", "--as-user-extra=k=v", "--cluster=other", "--user=me",
                      "-s", "https://h/path", "--token=t", "--tls-server-name=h",
                      "--insecure-skip-tls-verify", "--certificate-authority=ca",
                      "--client-certificate=crt", "--client-key=key", "--username=u",
                      "--password=p", "-w"));
    listen_for(sim.api.port);
    ck_assert(program_wait_output(&inspect, "0 of 30 GiB promised"));
    const char *socket = option("--unix-socket=");
    ck_assert_int_eq(stat(lib_fmt("%.*s", (int)strlen(socket) - 2, socket), &dir), 0);
    ck_assert_int_eq(dir.st_mode & 0777, 0700);
    ck_assert_str_eq(
        strstr(lib_read("args"), "\n--append"),
        lib_fmt("\n--append-server-path\n--reject-paths=^$\n--as=jane\n--as-group=a b\n"
                "--as-group=c\n--as-uid=7\n--as-user-extra=k=v\n"
                "--certificate-authority=ca\n--client-certificate=crt\n--client-key=key\n"
                "--cluster=other\n--insecure-skip-tls-verify=true\n--password=p\n"
                "--server=https://h/path\n--tls-server-name=h\n--token=t\n--user=me\n"
                "--username=u\n--kubeconfig=%s\n--context=c\n",
                sim_kubeconfig(&sim)));
    program_signal(&inspect, SIGINT);
    end_of(128 + SIGINT);
    stop_relay();
}

TEST(several_files_are_merged_by_kubectl)
{
    make_kubectl("");
    const char *one = sim_kubeconfig(&sim);
    const char *list = lib_fmt("/none:%s:%s", one, one);
    start(ARGV(lib_fmt("KUBECONFIG=%s", list)), NULL);
    listen_for(sim.api.port);
    end_of(0);
    ck_assert_str_eq(option("--kubeconfig="), "");
    ck_assert(strstr(lib_read("args"), lib_fmt("KUBECONFIG=%s\n", list)));
    stop_relay();
}

TEST(the_namespace_is_that_of_the_context)
{
    static const char *const names[] = {"n7", "", "Not a name", NULL};
    static const char *const said[] = {
        "pod n7/x not found", "pod default/x not found",
        "the namespace is unknown, see --namespace: ", "config view: exit status 1"};
    array_indices(i, names) {
        make_kubectl("");
        if (names[i])
            temp_write(lib_dir, "namespace", names[i]);
        else
            temp_remove(lib_dir, "namespace");
        start_simple(ARGV("explain", "x"));
        listen_for(sim.api.port);
        ck_assert_contains(end_of(1), said[i]);
        stop_relay();
        temp_remove(lib_dir, "args");
    }
}

/* The code of a login comes before any answer, also without the end of a line, and again when
 * the login has expired. The lines of the log repeat what the proxy answers. */
TEST(a_device_code_is_shown_at_once)
{
    sim_add_node(&sim, "n1", 1, 15);
    make_kubectl("printf 'W1129 07:07:36.2 1 loader.go:1] first\\nenter ABCD: ' >&2\n"
                 "(until [ -e again ]; do sleep 0.02; done\n"
                 "printf '\\nE1129 07:07:36.2 1 round.go:1] refreshing\\n' >&2\n"
                 "echo '2026/11/29 07:39:28 httputil: unexpected EOF' >&2\n"
                 "echo 'E1129 is no log line; enter EFGH' >&2) &");
    start_simple(ARGV("-w"));
    ck_assert(program_wait_output(&inspect, "loader.go:1] first\nenter ABCD: "));
    listen_for(sim.api.port);
    ck_assert(program_wait_output(&inspect, "0 of 15 GiB promised"));
    temp_write(lib_dir, "again", "");
    ck_assert(program_wait_output(&inspect, "E1129 is no log line; enter EFGH\n"));
    ck_assert_lacks(program_output(&inspect), "refreshing");
    ck_assert_lacks(program_output(&inspect), "httputil");
    program_signal(&inspect, SIGTERM);
    end_of(128 + SIGTERM);
    stop_relay();
}

/* -w clears a terminal, but not the code of a new login. */
TEST(a_new_code_stays_on_the_screen)
{
    static const char clear[] = "\033[H\033[2J";
    sim_add_node(&sim, "n1", 1, 15);
    make_kubectl("(until [ -e again ]; do sleep 0.02; done; echo enter EFGH >&2) &");
    program_start(
        &inspect, lib_dir,
        ARGV(lib_fmt("KUBECTL=%s", lib_path("kubectl")), lib_fmt("TMPDIR=%s", lib_dir),
             "script", "-qefc",
             lib_fmt("exec %s --kubeconfig %s -w", lib_built("kubectl-inspect-gpushare"),
                     sim_kubeconfig(&sim)),
             "/dev/null"));
    listen_for(sim.api.port);
    ck_assert(program_wait_output(&inspect, "0 of 15 GiB promised"));
    sim_add_bound_pod(&sim, "a", 3, "n1", "{\"ALIYUN_COM_GPU_MEM_IDX\":\"0\"}");
    ck_assert(program_wait_output(&inspect, "3 of 15 GiB promised"));
    temp_write(lib_dir, "again", "");
    ck_assert(program_wait_output(&inspect, "enter EFGH"));
    const char *shown = strstr(strstr(program_output(&inspect), clear) + 1, clear);
    ck_assert_ptr_nonnull(shown);
    sim_delete_pod(&sim, "a");
    sim_add_bound_pod(&sim, "b", 7, "n1", "{\"ALIYUN_COM_GPU_MEM_IDX\":\"0\"}");
    ck_assert(program_wait_output(&inspect, "7 of 15 GiB promised"));
    ck_assert_lacks(strstr(program_output(&inspect), "enter EFGH"), clear);
    program_kill(&inspect); /* hangs up */
    check_nothing_left();
    stop_relay();
}

static void lose(struct stub_conn *conn, void *ctx)
{
    while (stub_read(conn))
        stub_printf(conn,
                    "HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain\r\n"
                    "Content-Length: %zu\r\n\r\n%s",
                    strlen(ctx), (const char *)ctx);
}

TEST(a_plain_500_is_a_lost_api_server)
{
    struct stub *api = stub_start(lose, (void *)"dial tcp 10.0.0.1:443: no route\n");
    temp_write(lib_dir, "namespace", "default");
    make_kubectl("echo 'E1129 07:07:36.2 18066 proxy_server.go:147] Error' >&2");
    const char *const *const commands[] = {NULL, ARGV("assess")};
    array_items(command, commands) {
        start_simple(*command);
        listen_for(stub_port(api));
        const char *said = end_of(1);
        ck_assert_contains(said, ": kubectl proxy: dial tcp 10.0.0.1:443: no route\n");
        ck_assert_lacks(said, "proxy_server");
        ck_assert_lacks(said, "no current context");
        stop_relay();
        temp_remove(lib_dir, "args");
    }
    cleanup_free char *request = stub_request(api, 0);
    ck_assert_contains(request, "\r\nHost: localhost\r\n");
    ck_assert_lacks(request, "Authorization");
    temp_remove(lib_dir, "namespace");
    start_simple(NULL);
    listen_for(stub_port(api));
    ck_assert_contains(end_of(1), lib_fmt("kubeconfig %s: no current context: list of ",
                                          sim_kubeconfig(&sim)));
    stop_relay();
    stub_stop(api);
}

static void say_nothing(struct stub_conn *conn, void *ctx)
{
    bool reset;
    (void)ctx;
    stub_drain(conn, &reset);
}

static void say_garbage(struct stub_conn *conn, void *ctx)
{
    static const char garbage[] = "\0\1\xff HTTP/1.1 200";
    (void)ctx;
    stub_read(conn);
    stub_send(conn, garbage, sizeof garbage);
}

TEST(a_proxy_that_answers_nothing_or_garbage_is_an_error)
{
    make_kubectl(
        "head -c 3000 /dev/urandom; head -c 3000 /dev/urandom | tr -d '\\0' >&2");
    struct stub *silent = stub_start(say_nothing, NULL);
    start_simple(ARGV("--request-timeout=1"));
    listen_for(stub_port(silent));
    ck_assert_contains(end_of(1),
                       "did not list all objects within --request-timeout 1 s");
    stop_relay();
    stub_stop(silent);
    temp_remove(lib_dir, "args");
    temp_write(lib_dir, "namespace", "default");
    struct stub *garbage = stub_start(say_garbage, NULL);
    start_simple(NULL);
    listen_for(stub_port(garbage));
    ck_assert_contains(end_of(1), "kubectl-inspect-gpushare: list of ");
    stop_relay();
    stub_stop(garbage);
}

TEST(a_kubectl_that_does_not_serve_is_an_error)
{
    make_kubectl(
        "echo $$ $$ >pids; echo 'error: context \"x\" does not exist' >&2; exit 3");
    start_simple(NULL);
    ck_assert_contains(end_of(1),
                       lib_fmt("error: context \"x\" does not exist\n"
                               "kubectl-inspect-gpushare: kubeconfig %s: %s proxy: exit "
                               "status 3\n",
                               sim_kubeconfig(&sim), lib_path("kubectl")));
    make_kubectl("");
    start_simple(ARGV("--request-timeout", "500ms"));
    ck_assert_contains(end_of(1), "does not listen within --request-timeout");
    temp_remove(lib_dir, "kubectl");
    start_simple(NULL);
    ck_assert_contains(end_of(1), "KUBECTL: there is no program /");
}

static void kill_kubectl(void)
{
    int pid;
    ck_assert_int_eq(sscanf(lib_read("pids"), "%d", &pid), 1);
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
}

TEST(the_end_of_kubectl_ends_what_needs_it)
{
    static const char *const modes[][2] = {{"-w", "0 of 15 GiB promised"},
                                           {"--serve", "serving the page on "}};
    sim_add_node(&sim, "n1", 1, 15);
    array_items(mode, modes) {
        make_kubectl("");
        start_simple(ARGV((*mode)[0]));
        listen_for(sim.api.port);
        ck_assert(program_wait_output(&inspect, (*mode)[1]));
        kill_kubectl();
        ck_assert_contains(end_of(1), "kubectl proxy: killed by signal 9\n");
        stop_relay();
        temp_remove(lib_dir, "args");
    }
}

TEST(no_proxy_survives_a_killed_plugin)
{
    sim_add_node(&sim, "n1", 1, 15);
    make_kubectl("");
    start_simple(ARGV("-w"));
    await_kubectl(); /* while it waits for the socket */
    program_kill(&inspect);
    check_nothing_left();
    temp_remove(lib_dir, "args");
    start_simple(ARGV("-w"));
    listen_for(sim.api.port);
    ck_assert(program_wait_output(&inspect, "0 of 15 GiB promised"));
    program_kill(&inspect);
    check_nothing_left();
    stop_relay();
}

/* timeout(1) sends SIGTERM to the process group, and kubectl ends before the node is uncordoned. */
TEST(defrag_uncordons_with_another_kubectl)
{
    make_kubectl("");
    sim_add_node(&sim, "n1", 1, 15);
    sim_add_node(&sim, "n2", 1, 15);
    sim_load(&sim,
             "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"namespace\":"
             "\"default\",\"name\":\"a\",\"uid\":\"uid-a\",\"annotations\":{"
             "\"ALIYUN_COM_GPU_MEM_IDX\":\"0\"},\"ownerReferences\":[{"
             "\"apiVersion\":\"apps/v1\",\"kind\":\"ReplicaSet\",\"name\":\"s\","
             "\"uid\":\"uid-s\",\"controller\":true}]},\"spec\":{\"nodeName\":\"n1\","
             "\"containers\":[{\"name\":\"c\",\"image\":\"i\",\"resources\":{"
             "\"limits\":{\"aliyun.com/gpu-mem\":\"8\"}}}]}}");
    start_simple(ARGV("defrag", "--cards=1", "--node=n1", "--apply"));
    listen_for(sim.api.port);
    ck_assert(program_wait_output(&inspect, "evicting pod default/a from node n1\n"));
    stop_relay();
    temp_remove(lib_dir, "args");
    kill_kubectl();
    program_signal(&inspect, SIGTERM);
    listen_for(sim.api.port);
    ck_assert_contains(end_of(1), "node n1 uncordoned\n");
    stop_relay();
    ck_assert(!json_is_true(
        lib_at(peer_get(&sim.api, "/api/v1/nodes/n1"), "spec.unschedulable")));
}

TEST(a_lost_standard_error_ends_nothing)
{
    sim_add_node(&sim, "n1", 1, 15);
    make_kubectl("(until [ -e again ]; do sleep 0.02; done\n"
                 "head -c 200000 /dev/zero >&2 && touch done) &");
    program_start(
        &inspect, lib_dir,
        ARGV(lib_fmt("KUBECTL=%s", lib_path("kubectl")), lib_fmt("TMPDIR=%s", lib_dir),
             "env", "--default-signal=PIPE", "bash", "-c",
             lib_fmt("exec %s --kubeconfig %s -w 2> >(exit)",
                     lib_built("kubectl-inspect-gpushare"), sim_kubeconfig(&sim))));
    listen_for(sim.api.port);
    ck_assert(program_wait_output(&inspect, "0 of 15 GiB promised"));
    temp_write(lib_dir, "again", "");
    const char *done = lib_path("done");
    lib_wait(access(done, R_OK) == 0);
    sim_add_bound_pod(&sim, "a", 3, "n1", "{\"ALIYUN_COM_GPU_MEM_IDX\":\"0\"}");
    ck_assert(program_wait_output(&inspect, "3 of 15 GiB promised"));
    program_signal(&inspect, SIGINT);
    end_of(128 + SIGINT);
    stop_relay();
}

/* What nobody reads must not hold up the end of kubectl. */
TEST(no_proxy_survives_behind_a_full_standard_error)
{
    int fds[2], full;
    make_kubectl("(head -c 200000 /dev/zero | tr '\\0' '\\n' >&2) &");
    ck_assert_int_eq(mkfifo(lib_path("errors"), 0600), 0);
    fds[0] = open(lib_path("errors"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    fds[1] = open(lib_path("errors"), O_WRONLY | O_CLOEXEC);
    ck_assert_int_gt(full = fcntl(fds[1], F_SETPIPE_SZ, 4096), 0);
    program_start(&inspect, lib_dir,
                  ARGV(lib_fmt("KUBECTL=%s", lib_path("kubectl")),
                       lib_fmt("TMPDIR=%s", lib_dir), "bash", "-c",
                       lib_fmt("exec %s --kubeconfig %s -w 2>%s",
                               lib_built("kubectl-inspect-gpushare"),
                               sim_kubeconfig(&sim), lib_path("errors"))));
    await_kubectl();
    lib_wait(poll(&(struct pollfd){fds[1], POLLOUT, 0}, 1, 0) == 0);
    program_kill(&inspect);
    check_nothing_left();
    close(fds[0]);
    close(fds[1]);
}

/* A directory in PATH is no program, and a parent can ignore the end of its children. */
TEST(kubectl_is_found_and_started_as_by_a_shell)
{
    make_kubectl("");
    temp_write(lib_dir, "namespace", "n7");
    const char *bin = lib_path("bin");
    ck_assert_int_eq(mkdir(bin, 0700) | mkdir(lib_path("bin/kubectl"), 0700), 0);
    program_start(&inspect, lib_dir,
                  ARGV(lib_fmt("PATH=%s:%s:%s", bin, lib_dir, getenv("PATH")),
                       lib_fmt("TMPDIR=%s", lib_dir), "env", "-u", "KUBECTL",
                       "--ignore-signal=CHLD", lib_built("kubectl-inspect-gpushare"),
                       "--kubeconfig", sim_kubeconfig(&sim), "explain", "x"));
    listen_for(sim.api.port);
    ck_assert_contains(end_of(1), "pod n7/x not found");
    stop_relay();
}

/* -- without kubectl -- */

TEST(what_needs_kubectl_is_named)
{
    const char *file = lib_keep(
        lib_kubeconfig("exec", "http", sim.api.port, "", "exec: {command: aws}"), free);
    ck_assert_contains(
        lib_output_of(1, "kubectl-inspect-gpushare", ARGV("--kubeconfig", file)),
        lib_fmt("kubectl-inspect-gpushare: without kubectl: %s:", file));
    ck_assert_contains(lib_output_of(1, "kubectl-inspect-gpushare",
                                     ARGV("--kubeconfig", file, "--as=jane")),
                       "--as needs kubectl, which is not in PATH\n");
}

/* -- as kubectl does -- */

static const char *run(int status, const char *const *options)
{
    const char *words[PROGRAM_ARGS] = {"--kubeconfig", sim_kubeconfig(&sim)};
    program_args(words, 2, options);
    return lib_output_of(status, "kubectl-inspect-gpushare", words);
}

TEST(lists_wait_out_retry_after_and_begin_again)
{
    static const char *const answers[] = {"429,\"retryAfter\":1", "503,\"retryAfter\":1",
                                          "410"};
    const char *const *const commands[] = {NULL, ARGV("assess")};
    for (int i = 0; i < 501; i++) /* two pages */
        sim_add_node(&sim, lib_fmt("n%d", i), 1, 15);
    array_items(answer, answers)
        array_items(command, commands) {
            sim_fault(&sim,
                      "{\"verb\":\"list\",\"resource\":\"nodes\",\"nth\":2,"
                      "\"action\":\"answer\",\"status\":%s}",
                      *answer);
            ck_assert_contains(run(0, *command),
                               *command ? "Tesla T4  501" : "on 501 nodes");
            ck_assert_int_eq(sim_fired(&sim), 1);
            sim_no_faults(&sim);
        }
    sim_fault(&sim, "{\"verb\":\"list\",\"resource\":\"nodes\",\"action\":"
                    "\"answer\",\"status\":429,\"retryAfter\":1}");
    ck_assert_contains(run(1, ARGV("--request-timeout", "1500ms")),
                       "did not list all objects within --request-timeout 1 s: list of "
                       "nodes: HTTP 429");
    ck_assert_contains(run(1, ARGV("assess", "--request-timeout=1500ms")), "HTTP 429");
}

TEST(the_time_limit_has_the_forms_of_kubectl)
{
    static const char *const good[] = {"5", "5s", "0", "0s", "500ms", "2m", "1h"},
                             *const bad[] = {"-1", "50ms", "5x", "", "25h"};
    sim_add_node(&sim, "n1", 1, 15);
    array_items(form, good)
        ck_assert_contains(run(0, ARGV("--request-timeout", *form)), "on 1 node");
    array_items(form, bad)
        ck_assert_contains(run(1, ARGV("--request-timeout", *form)),
                           lib_fmt("--request-timeout: \"%s\" is n", *form));
}

SUITE_MAIN(120, NULL)
