/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"
#include "support/raw.h"
#include "support/temp.h"
#include "support/tls.h"
#include "support/unit.h"

/* The program kube-sim as people start it, and kubectl in front of it. */

enum { LIMIT_MS = 60 * 1000, ARGS = 16 };

struct child {
    pid_t pid;
    int out; /* its standard output and error */
    struct buf said;
};

static char *dir; /* of this test */

static void child_start(struct child *c, const char *const *argv)
{
    int fds[2];
    *c = (struct child){0};
    ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
    c->pid = fork();
    ck_assert_int_ge(c->pid, 0);
    if (c->pid == 0) {
        dup2(fds[1], STDOUT_FILENO);
        dup2(fds[1], STDERR_FILENO);
        setenv("HOME", dir, 1);
        setenv("KUBECONFIG", "/dev/null", 1);
        unsetenv("LOG_LEVEL");
        unsetenv("PORT");
        execvp(argv[0], (char *const *)argv);
        _exit(127);
    }
    close(fds[1]);
    c->out = fds[0];
}

/* Reads on until the text has been said (NULL: to the end). False when it never is. */
static bool child_says(struct child *c, const char *text)
{
    char piece[4096];
    struct pollfd fd = {.fd = c->out, .events = POLLIN};
    buf_adds(&c->said, "");
    while (!text || !strstr(c->said.p, text)) {
        ck_assert_msg(poll(&fd, 1, LIMIT_MS) > 0, "nothing more after: %s", c->said.p);
        ssize_t n = read(c->out, piece, sizeof piece);
        if (n <= 0)
            return !text;
        buf_add(&c->said, piece, (size_t)n);
    }
    return true;
}

static int child_end(struct child *c)
{
    int status = 0;
    child_says(c, NULL);
    ck_assert_int_eq(waitpid(c->pid, &status, 0), c->pid);
    close(c->out);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void child_fini(struct child *c)
{
    buf_fini(&c->said);
}

/* -- kube-sim -- */

struct sim {
    struct child child;
    unsigned port;
};

static char *program(void)
{
    const char *build = getenv("GPUSHARE_BUILD");
    return xasprintf("%s/kube-sim", build ? build : "build");
}

/* The further arguments end with a NULL. */
static void sim_args(const char **argv, char *path, const char *const *more)
{
    size_t n = 0;
    argv[n++] = path;
    for (; *more; more++) {
        ck_assert_uint_lt(n, ARGS - 1);
        argv[n++] = *more;
    }
    argv[n] = NULL;
}

static void sim_start(struct sim *s, const char *const *more)
{
    static const char mark[] = "listening on 127.0.0.1:";
    const char *argv[ARGS];
    cleanup_free char *path = program();
    sim_args(argv, path, more);
    child_start(&s->child, argv);
    ck_assert_msg(child_says(&s->child, mark), "%s", s->child.said.p);
    ck_assert(child_says(&s->child, "\n"));
    s->port =
        (unsigned)strtoul(strstr(s->child.said.p, mark) + sizeof mark - 1, NULL, 10);
    ck_assert_uint_gt(s->port, 0);
}

static void sim_stop(struct sim *s)
{
    kill(s->child.pid, SIGTERM);
    int rc = child_end(&s->child);
    ck_assert_msg(rc == 0, "exit status %d: %s", rc, s->child.said.p);
    child_fini(&s->child);
}

/* Starts it for failing; returns the exit status. */
static int sim_fails(struct child *c, const char *const *more)
{
    const char *argv[ARGS];
    cleanup_free char *path = program();
    sim_args(argv, path, more);
    child_start(c, argv);
    return child_end(c);
}

static unsigned ask(const struct sim *s, const char *request, struct raw_reply *reply)
{
    struct raw c;
    raw_open(&c, s->port);
    raw_call(&c, reply, request);
    raw_close(&c);
    return reply->status;
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\n\r\n"

/* -- kubectl -- */

static bool have_kubectl(void)
{
    struct child c;
    child_start(&c, (const char *const[]){"kubectl", "version", "--client", NULL});
    int rc = child_end(&c);
    if (rc)
        printf("skipped, there is no kubectl that runs here: %s\n", c.said.p);
    child_fini(&c);
    return rc == 0;
}

/* Runs kubectl against the server; what it says stays in *said. Returns its status. */
static int kubectl(const struct sim *s, struct buf *said, const char *const *more)
{
    char server[64];
    const char *argv[ARGS] = {"kubectl", "--server", server};
    size_t n = 3;
    snprintf(server, sizeof server, "http://127.0.0.1:%u", s->port);
    for (; *more; more++)
        argv[n++] = *more;
    argv[n] = NULL;
    struct child c;
    child_start(&c, argv);
    int rc = child_end(&c);
    buf_fini(said);
    *said = c.said;
    return rc;
}

#define KUBECTL(s, said, ...) kubectl(s, said, (const char *const[]){__VA_ARGS__, NULL})
#define ARGV(...)             ((const char *const[]){__VA_ARGS__, NULL})

#define ck_assert_says(said, text)                                                       \
    ck_assert_msg(strstr((said).p, text) != NULL, "no \"%s\" in: %s", text, (said).p)

/* -- tests -- */

static void begin(void)
{
    dir = temp_dir();
}

static void end(void)
{
    temp_dir_remove(dir);
    free(dir);
}

START_TEST(it_listens_on_a_free_port_and_ends_cleanly)
{
    struct sim s;
    struct raw_reply reply = {0};
    sim_start(&s, ARGV("--port", "0"));
    ck_assert_uint_eq(ask(&s, GET("/healthz"), &reply), 200);
    ck_assert_str_eq(reply.body.p, "ok");
    raw_reply_fini(&reply);
    sim_stop(&s);
}

START_TEST(help_and_bad_options_do_not_start_it)
{
    struct child c;
    ck_assert_int_eq(sim_fails(&c, ARGV("--help")), 0);
    ck_assert_says(c.said, "--generate PARAMETERS");
    child_fini(&c);
    static const char *const bad[][3] = {{"--unknown", NULL, "unknown"},
                                         {"--port", "70000", "port"},
                                         {"--generate", "nodes=x", "nodes"},
                                         {"--load", "/nonexistent.yaml", "nonexistent"},
                                         {"--cert", "x.pem", "--key"},
                                         {"--log-level", "loud", "loud"}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        ck_assert_int_eq(sim_fails(&c, ARGV(bad[i][0], bad[i][1])), 1);
        ck_assert_says(c.said, bad[i][2]);
        child_fini(&c);
    }
}

static const char manifest[] = "apiVersion: v1\n"
                               "kind: Namespace\n"
                               "metadata: {name: team}\n"
                               "---\n"
                               "# nothing\n"
                               "---\n"
                               "apiVersion: apps/v1\n"
                               "kind: Deployment\n"
                               "metadata: {name: skipped}\n"
                               "---\n"
                               "apiVersion: v1\n"
                               "kind: List\n"
                               "items:\n"
                               "- apiVersion: v1\n"
                               "  kind: Node\n"
                               "  metadata: {name: n1}\n"
                               "  status:\n"
                               "    capacity: {aliyun.com/gpu-mem: 16, cpu: 0.5}\n"
                               "- apiVersion: v1\n"
                               "  kind: Pod\n"
                               "  metadata: {name: p, namespace: team}\n"
                               "  spec:\n"
                               "    containers:\n"
                               "    - {name: c, image: i}\n";

START_TEST(manifests_are_loaded_and_what_is_not_served_is_named)
{
    struct sim s;
    struct raw_reply reply = {0};
    temp_write(dir, "m.yaml", manifest);
    cleanup_free char *path = temp_path(dir, "m.yaml");
    sim_start(&s, ARGV("--port", "0", "--load", path));
    ck_assert_uint_eq(ask(&s, GET("/api/v1/nodes/n1"), &reply), 200);
    ck_assert_says(reply.body, "\"aliyun.com/gpu-mem\":\"16\"");
    ck_assert_says(reply.body, "\"cpu\":\"500m\"");
    ck_assert_uint_eq(ask(&s, GET("/api/v1/namespaces/team/pods/p"), &reply), 200);
    ck_assert_says(s.child.said, "Deployment");
    raw_reply_fini(&reply);
    sim_stop(&s);
    temp_write(dir, "bad.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: NO}\n");
    cleanup_free char *bad = temp_path(dir, "bad.yaml");
    struct child c;
    ck_assert_int_eq(sim_fails(&c, ARGV("--load", bad)), 1);
    ck_assert_says(c.said, "bad.yaml, document 1");
    ck_assert_says(c.said, "metadata.name");
    child_fini(&c);
}

START_TEST(kubectl_shows_what_there_is)
{
    struct sim s;
    struct buf said = {0};
    if (!have_kubectl())
        return;
    sim_start(&s, ARGV("--port", "0", "--generate", "nodes=3,cards=2,pods=2,leases=1"));
    ck_assert_int_eq(KUBECTL(&s, &said, "get",
                             "nodes,pods,scvs,leases,events,configmaps,namespaces", "-A"),
                     0);
    static const char *const lines[] = {"node/node-00000",
                                        "Ready",
                                        "v1.35.4",
                                        "pod/gpu-00002-001",
                                        "1/1",
                                        "Running",
                                        "scv.core.run-linux.com/node-00001",
                                        "lease.coordination.k8s.io/node-00002",
                                        "namespace/kube-system"};
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        ck_assert_says(said, lines[i]);
    ck_assert_int_eq(KUBECTL(&s, &said, "get", "pods", "-o", "wide"), 0);
    ck_assert_says(said, "NODE");
    ck_assert_says(said, "node-00002");
    ck_assert_int_eq(KUBECTL(&s, &said, "get", "pods", "--field-selector",
                             "spec.nodeName=node-00001", "-o", "name"),
                     0);
    ck_assert_str_eq(said.p, "pod/gpu-00001-000\npod/gpu-00001-001\n");
    ck_assert_int_eq(
        KUBECTL(&s, &said, "get", "nodes", "--chunk-size", "1", "-o", "name"), 0);
    ck_assert_str_eq(said.p, "node/node-00000\nnode/node-00001\nnode/node-00002\n");
    ck_assert_int_eq(KUBECTL(&s, &said, "describe", "node", "node-00000"), 0);
    ck_assert_says(said, "aliyun.com/gpu-mem");
    ck_assert_says(said, "gpu-00000-000");
    ck_assert_int_eq(KUBECTL(&s, &said, "describe", "pod", "gpu-00000-000"), 0);
    ck_assert_says(said, "ALIYUN_COM_GPU_MEM_IDX");
    ck_assert_int_eq(KUBECTL(&s, &said, "get", "pod", "none"), 1);
    ck_assert_says(said, "Error from server (NotFound): pods \"none\" not found");
    buf_fini(&said);
    sim_stop(&s);
}

START_TEST(kubectl_makes_changes_and_deletes)
{
    struct sim s;
    struct buf said = {0};
    if (!have_kubectl())
        return;
    temp_write(dir, "pod.yaml",
               "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n"
               "  containers: [{name: c, image: i}]\n---\n"
               "apiVersion: core.run-linux.com/v1\nkind: Scv\n"
               "metadata: {name: n1}\nspec: {updateInterval: 1000}\n");
    cleanup_free char *path = temp_path(dir, "pod.yaml");
    sim_start(&s, ARGV("--port", "0"));
    ck_assert_int_eq(KUBECTL(&s, &said, "apply", "-f", path), 0);
    ck_assert_says(said, "pod/p created");
    ck_assert_says(said, "scv.core.run-linux.com/n1 created");
    ck_assert_int_eq(KUBECTL(&s, &said, "apply", "--validate=false", "-f", path), 0);
    ck_assert_says(said, "pod/p unchanged");
    ck_assert_int_eq(KUBECTL(&s, &said, "create", "namespace", "team"), 0);
    ck_assert_int_eq(KUBECTL(&s, &said, "create", "configmap", "m", "-n", "team",
                             "--from-literal=a=b"),
                     0);
    ck_assert_int_eq(KUBECTL(&s, &said, "get", "configmap", "m", "-n", "team", "-o",
                             "jsonpath={.data.a}"),
                     0);
    ck_assert_str_eq(said.p, "b");
    ck_assert_int_eq(KUBECTL(&s, &said, "label", "pod", "p", "a=b"), 0);
    ck_assert_int_eq(KUBECTL(&s, &said, "annotate", "scv", "n1", "x=y"), 0);
    ck_assert_int_eq(
        KUBECTL(&s, &said, "get", "pod", "p", "-o", "jsonpath={.metadata.labels.a}"), 0);
    ck_assert_str_eq(said.p, "b");
    ck_assert_int_eq(KUBECTL(&s, &said, "delete", "-f", path, "--timeout=30s"), 0);
    ck_assert_int_eq(KUBECTL(&s, &said, "get", "pods,scvs"), 0);
    ck_assert_says(said, "No resources found");
    buf_fini(&said);
    sim_stop(&s);
}

START_TEST(kubectl_sees_changes_as_they_come)
{
    struct sim s;
    struct child watch;
    struct buf said = {0};
    char server[64];
    if (!have_kubectl())
        return;
    sim_start(&s, ARGV("--port", "0", "--generate", "nodes=2,cards=1,pods=1"));
    snprintf(server, sizeof server, "http://127.0.0.1:%u", s.port);
    child_start(&watch, ARGV("kubectl", "--server", server, "get", "nodes", "-w"));
    ck_assert(child_says(&watch, "node-00001"));
    ck_assert_int_eq(KUBECTL(&s, &said, "cordon", "node-00001"), 0);
    ck_assert(child_says(&watch, "Ready,SchedulingDisabled"));
    kill(watch.pid, SIGKILL);
    child_end(&watch);
    child_fini(&watch);
    buf_fini(&said);
    sim_stop(&s);
}

struct wait_running {
    const struct sim *s;
    struct raw_reply reply;
};

static bool is_running(void *ctx)
{
    struct wait_running *w = ctx;
    ask(w->s, GET("/api/v1/namespaces/default/pods/p"), &w->reply);
    return strstr(w->reply.body.p, "\"phase\":\"Running\"");
}

START_TEST(with_run_pods_a_bound_pod_runs)
{
    static const char pod[] =
        "{\"metadata\":{\"name\":\"p\"},\"spec\":{\"nodeName\":\"n\","
        "\"containers\":[{\"name\":\"c\",\"image\":\"i\"}]}}";
    struct sim s;
    struct wait_running w = {&s, {0}};
    cleanup_buf struct buf post = {0};
    sim_start(&s, ARGV("--port", "0", "--run-pods", "--tick", "10ms"));
    buf_printf(&post,
               "POST /api/v1/namespaces/default/pods HTTP/1.1\r\nHost: x\r\n"
               "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
               strlen(pod), pod);
    ck_assert_uint_eq(ask(&s, post.p, &w.reply), 201);
    ck_assert(raw_until(is_running, &w));
    raw_reply_fini(&w.reply);
    sim_stop(&s);
}

START_TEST(it_asks_for_the_token_and_speaks_tls)
{
    struct sim s;
    struct buf said = {0};
    if (!have_kubectl())
        return;
    tls_make_ca(dir, "ca");
    tls_make_cert(dir, "ca", "api", "IP:127.0.0.1");
    cleanup_free char *ca = temp_path(dir, "ca.crt");
    cleanup_free char *cert = temp_path(dir, "api.crt");
    cleanup_free char *key = temp_path(dir, "api.key");
    sim_start(&s, ARGV("--port", "0", "--cert", cert, "--key", key, "--token", "secret"));
    cleanup_free char *server = xasprintf("--server=https://127.0.0.1:%u", s.port);
    cleanup_free char *authority = xasprintf("--certificate-authority=%s", ca);
    ck_assert_int_eq(
        KUBECTL(&s, &said, server, authority, "--token=secret", "get", "namespaces"), 0);
    ck_assert_says(said, "kube-system");
    ck_assert_int_ne(
        KUBECTL(&s, &said, server, authority, "--token=wrong", "get", "namespaces"), 0);
    ck_assert_says(said, "nauthorized");
    buf_fini(&said);
    sim_stop(&s);
}

int main(void)
{
    Suite *suite = suite_create("kube-sim");
    TCase *tcase = tcase_create("kube-sim");
    tcase_set_timeout(tcase, 180);
    tcase_add_checked_fixture(tcase, begin, end);
    tcase_add_test(tcase, it_listens_on_a_free_port_and_ends_cleanly);
    tcase_add_test(tcase, help_and_bad_options_do_not_start_it);
    tcase_add_test(tcase, manifests_are_loaded_and_what_is_not_served_is_named);
    tcase_add_test(tcase, kubectl_shows_what_there_is);
    tcase_add_test(tcase, kubectl_makes_changes_and_deletes);
    tcase_add_test(tcase, kubectl_sees_changes_as_they_come);
    tcase_add_test(tcase, with_run_pods_a_bound_pod_runs);
    tcase_add_test(tcase, it_asks_for_the_token_and_speaks_tls);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
