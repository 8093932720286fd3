/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/rng.h"
#include "kube/fixture.h"
#include "lib/stub.h"

/* Exec plugins: their configuration, how they are run, their output. */

#define V1      "client.authentication.k8s.io/v1"
#define V1BETA1 "client.authentication.k8s.io/v1beta1"

/* Loads a kubeconfig whose user has this exec plugin. */
static int load_exec(const char *exec)
{
    cleanup_free char *user = xasprintf("{exec: %s}", exec);
    return load_user("{server: https://h:1/p, tls-server-name: \"n\\\"x\", "
                     "insecure-skip-tls-verify: true, extensions: ["
                     "{name: other, extension: 1}, "
                     "{name: client.authentication.k8s.io/exec, "
                     "extension: {audience: x, level: 3, \"on\": true}}]}",
                     user);
}

TEST(a_plugin_is_read_from_a_kubeconfig)
{
    ck_assert_done(load_exec("{apiVersion: " V1
                             ", command: bin/login, args: [-x, 7, ''],\n"
                             "  env: [{name: A, value: b=c}], installHint: get it,\n"
                             "  provideClusterInfo: true, interactiveMode: IfAvailable}"),
                   w.err);
    struct kube_exec *e = w.config.exec;
    cleanup_free char *command = path_of("bin/login");
    ck_assert_str_eq(e->user, "b");
    ck_assert_str_eq(e->argv[0], command);
    ck_assert_str_eq(e->argv[1], "-x");
    ck_assert_str_eq(e->argv[2], "7");
    ck_assert_str_eq(e->argv[3], "");
    ck_assert_ptr_null(e->argv[4]);
    ck_assert_str_eq(e->env[0], "A=b=c");
    ck_assert_ptr_null(e->env[1]);
    ck_assert_str_eq(e->install_hint, "get it");

    ck_assert_str_eq(
        e->info,
        "{\"kind\":\"ExecCredential\",\"apiVersion\":\"" V1
        "\",\"spec\":{\"interactive\":false,\"cluster\":{\"server\":\"https://h:1/p\","
        "\"tls-server-name\":\"n\\\"x\",\"insecure-skip-tls-verify\":true,"
        "\"config\":{\"audience\":\"x\",\"level\":3,\"on\":true}}}}");
}

TEST(a_plugin_gets_cluster_info_only_if_configured)
{
    ck_assert_done(load_exec("{apiVersion: " V1BETA1 ", command: login}"), w.err);
    ck_assert_str_eq(w.config.exec->argv[0], "login"); /* searched in PATH */
    ck_assert_str_eq(w.config.exec->info,
                     "{\"kind\":\"ExecCredential\",\"apiVersion\":\"" V1BETA1
                     "\",\"spec\":{\"interactive\":false}}");
}

TEST(a_missing_plugin_is_an_error)
{
    static const struct {
        const char *exec, *want;
    } cases[] = {
        {"{command: x}", "apiVersion: expected " V1 " or " V1BETA1},
        {"{apiVersion: client.authentication.k8s.io/v1alpha1, command: x}",
         "apiVersion: expected " V1 " or " V1BETA1},
        {"{apiVersion: " V1 "}", "command: missing"},
        {"{apiVersion: " V1 ", command: x, args: y}", "args: expected a list of strings"},
        {"{apiVersion: " V1 ", command: x, args: [[y]]}",
         "args: expected a list of strings"},
        {"{apiVersion: " V1 ", command: x, env: {A: b}}",
         "env: expected a list of name and value"},
        {"{apiVersion: " V1 ", command: x, env: [{name: A}]}",
         "env: expected a list of name and value"},
        {"{apiVersion: " V1 ", command: x, env: [{name: A=B, value: c}]}",
         "env: expected a list of name and value"},
        {"{apiVersion: " V1 ", command: x, interactiveMode: Always}",
         "interactiveMode: Always is not supported: there is no terminal"},
        {"{apiVersion: " V1 ", command: x, interactiveMode: Often}",
         "interactiveMode: expected Never, IfAvailable or Always"},
        {"{apiVersion: " V1 ", command: x, provideClusterInfo: 1}",
         "provideClusterInfo: expected true or false"},
    };
    array_items(c, cases) {
        ck_assert_int_eq(load_exec(c->exec), -1);
        cleanup_free char *want =
            xasprintf("%s/k:12: exec plugin of user \"b\": %s", w.dir, c->want);
        ck_assert_str_eq(w.err.msg, want);
    }
}

static struct kube_run r;

/* Runs the shell script. */
static int run(const char *script, size_t max_out, int64_t limit_ms)
{
    char sh[] = "sh", c[] = "-c", *argv[] = {sh, c, (char *)script, NULL};
    kube_run_fini(&r);
    return kube_run_program(argv, environ, max_out, limit_ms, &r, &w.err);
}

static void end(void)
{
    kube_run_fini(&r);
    fixture_end();
}

TEST(a_program_is_run_and_its_output_read)
{
    ck_assert_done(run("echo out; cat; echo err >&2; exit 3", 100, 20000), w.err);
    ck_assert_span_eq(buf_span(&r.out), "out\n");
    ck_assert_span_eq(buf_span(&r.errors), "err\n");
    ck_assert_int_eq(WEXITSTATUS(r.status), 3);
    ck_assert_done(
        run("head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero", 300000, 20000),
        w.err);
    ck_assert_uint_eq(r.out.n, 300000);
    ck_assert_uint_eq(r.errors.n, 4096);
    kube_run_fini(&r);
    char none[] = "no-such-program-anywhere", *argv[] = {none, NULL};
    ck_assert_int_eq(kube_run_program(argv, environ, 1, 1000, &r, &w.err), -1);
    ck_assert_int_eq(w.err.code, ERR_NOT_FOUND);
}

/* Whether the process has exited; it may be a zombie. */
static bool is_over(const char *pid_file)
{
    cleanup_free char *pid = temp_read(w.dir, pid_file);
    cleanup_free char *path = xasprintf("/proc/%.*s/stat", (int)strcspn(pid, "\n"), pid);
    cleanup_buf struct buf stat = {0};
    if (file_read(path, 4096, &stat, NULL))
        return true;
    const char *state = strrchr(stat.p, ')');
    return state && (state[2] == 'Z' || state[2] == 'X');
}

TEST(a_program_is_killed_with_its_children_after_the_limit)
{
    cleanup_free char *script = xasprintf(
        "cd %s; sleep 1000 & echo $! >child; mv child ready; sleep 1000", w.dir);
    int64_t start = clock_mono_ms();
    ck_assert_int_eq(run(script, 100, 1500), -1);
    ck_assert_int_eq(w.err.code, ERR_TIMEOUT);
    ck_assert_int_ge(clock_mono_ms() - start, 1500);
    lib_wait(is_over("ready"));
    ck_assert_int_eq(run("yes", 1 << 20, 20000), -1);
    ck_assert_int_eq(w.err.code, ERR_TOO_LARGE);
    ck_assert_int_lt(clock_mono_ms() - start, 30000);
}

TEST(background_children_of_a_program_do_not_block)
{
    int64_t start = clock_mono_ms();
    ck_assert_done(run("sleep 100 & echo $!", 100, 60000), w.err);
    ck_assert_int_lt(clock_mono_ms() - start, 20000);
    kill((pid_t)strtol(r.out.p, NULL, 10), SIGKILL);
    /* A program that closes its output before it exits is not killed. */
    ck_assert_done(run("exec >&- 2>&-; sleep 0.2; exit 5", 100, 60000), w.err);
    ck_assert_int_eq(WEXITSTATUS(r.status), 5);
}

TEST(a_program_inherits_neither_files_nor_signal_masks)
{
    sigset_t term, old;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, &old);
    ck_assert_int_eq(dup2(STDIN_FILENO, 9), 9);
    ck_assert_done(run("[ -e /proc/self/fd/9 ] && echo leak; [ -t 0 ] && echo terminal;"
                       "kill -TERM $$; echo alive",
                       100, 20000),
                   w.err);
    ck_assert_uint_eq(r.out.n, 0);
    ck_assert(WIFSIGNALED(r.status) && WTERMSIG(r.status) == SIGTERM);
    sigprocmask(SIG_SETMASK, &old, NULL);
    close(9);
}

/* A daemon may have closed its standard descriptors. */
TEST(output_is_read_without_standard_descriptors)
{
    int saved[3];
    for (int fd = 0; fd < 3; fd++) {
        saved[fd] = fcntl(fd, F_DUPFD_CLOEXEC, 10);
        close(fd);
    }
    int rc = run("echo out; echo err >&2", 100, 20000);
    for (int fd = 0; fd < 3; fd++) {
        dup2(saved[fd], fd);
        close(saved[fd]);
    }
    ck_assert_done(rc, w.err);
    ck_assert_span_eq(buf_span(&r.out), "out\n");
    ck_assert_span_eq(buf_span(&r.errors), "err\n");
}

#define ESCAPED "-----BEGIN X-----\\nAAAA\\n-----END X-----\\n"

static struct kube_exec exec_of(char **argv)
{
    static char user[] = "b", version[] = V1, info[] = "{}", foo[] = "FOO=bar",
                *env[] = {foo, NULL};
    return (struct kube_exec){
        .user = user, .api_version = version, .argv = argv, .env = env, .info = info};
}

TEST(a_credential_is_a_token_or_a_certificate)
{
    struct kube_exec e = exec_of(NULL);
    struct kube_exec_credential a = {0};
    ck_assert_done(
        kube_exec_parse(&e,
                        SPAN(ANSWER("{\"token\":\" abc\\n\",\"expirationTimestamp\":"
                                    "\"2026-11-21T10:00:00+01:00\"}")),
                        &a, &w.err),
        w.err);
    ck_assert_str_eq(a.token, "abc");
    ck_assert(a.expires);
    ck_assert_int_eq(a.expires_s, 1795251600);
    kube_exec_credential_fini(&a);
    ck_assert_done(kube_exec_parse(&e,
                                   SPAN(ANSWER("{\"clientCertificateData\":\"" ESCAPED
                                               "\",\"clientKeyData\":\"" ESCAPED "\","
                                               "\"expirationTimestamp\":null}")),
                                   &a, &w.err),
                   w.err);
    ck_assert_ptr_null(a.token);
    ck_assert(!a.expires);
    ck_assert_span_eq(a.cert_pem, PEM("X"));
    ck_assert_span_eq(a.key_pem, PEM("X"));
    kube_exec_credential_fini(&a);
}

TEST(other_output_is_rejected_without_being_shown)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"", "invalid JSON in its output, line 1"},
        {"SECRET", "invalid JSON in its output, line 1"},
        {"[\"SECRET\"]", "expected kind ExecCredential in its output"},
        {"{\"kind\":\"SECRET\"}", "expected kind ExecCredential in its output"},
        {"{\"kind\":\"ExecCredential\",\"apiVersion\":\"" V1BETA1 "\",\"status\":{}}",
         "expected apiVersion " V1 " in its output"},
        {"{\"kind\":\"ExecCredential\"}", "expected apiVersion " V1 " in its output"},
        {ANSWER("{}"), "status has neither a token nor a certificate"},
        {ANSWER("null"), "status has neither a token nor a certificate"},
        {ANSWER("{\"token\":7}"), "status has neither a token nor a certificate"},
        {ANSWER("{\"token\":\"SEC RET\"}"),
         "token: expected printable ASCII without spaces"},
        {ANSWER("{\"token\":\"SEC\\r\\nX: y\"}"),
         "token: expected printable ASCII without spaces"},
        {ANSWER("{\"clientCertificateData\":\"" ESCAPED "\"}"),
         "expected PEM in clientCertificateData and clientKeyData"},
        {ANSWER("{\"token\":\"a\",\"clientKeyData\":\"SECRET\"}"),
         "expected PEM in clientCertificateData and clientKeyData"},
        {ANSWER("{\"token\":\"SECRET\",\"expirationTimestamp\":\"soon\"}"),
         "expirationTimestamp: expected RFC 3339"},
        {ANSWER("{\"token\":\"SECRET\",\"expirationTimestamp\":7}"),
         "expirationTimestamp: expected RFC 3339"},
    };
    struct kube_exec e = exec_of(NULL);
    array_items(c, cases) {
        struct kube_exec_credential a = {0};
        ck_assert_int_eq(kube_exec_parse(&e, span_of(c->text), &a, &w.err), -1);
        ck_assert_str_eq(w.err.msg, c->want);
        ck_assert_ptr_null(a.token);
    }
}

TEST(a_plugin_gets_its_environment_and_its_error_is_passed_on)
{
    cleanup_free char *path = path_of("plugin");
    char *argv[] = {path, NULL};
    struct kube_exec e = exec_of(argv);
    char hint[] = "get it\nfrom there";
    struct kube_exec_credential a;
    setenv("FOO", "mine", 1);
    setenv("KUBERNETES_EXEC_INFO", "mine", 1);
    setenv("OTHER", "kept", 1);
    temp_script(w.dir, "plugin",
                "[ \"$FOO$OTHER$KUBERNETES_EXEC_INFO\" = 'barkept{}' ] || exit 1\n"
                "cat <<END\n" ANSWER("{\"token\":\"abc\"}") "\nEND\n");
    ck_assert_done(kube_exec_run(&e, 20000, &a, &w.err), w.err);
    ck_assert_str_eq(a.token, "abc");
    kube_exec_credential_fini(&a);

    temp_script(w.dir, "plugin",
                "echo SECRET\nprintf 'log in\\n\\033first\\n' >&2\nexit 4\n");
    ck_assert_int_eq(kube_exec_run(&e, 20000, &a, &w.err), -1);
    ck_assert_str_eq(w.err.msg,
                     "exec plugin of user \"b\": exit status 4: log in  first");
    temp_script(w.dir, "plugin", "kill -9 $$\n");
    ck_assert_int_eq(kube_exec_run(&e, 20000, &a, &w.err), -1);
    ck_assert_str_eq(w.err.msg, "exec plugin of user \"b\": killed by signal 9: ");
    temp_script(w.dir, "plugin", "echo waiting >&2; sleep 1000\n");
    ck_assert_int_eq(kube_exec_run(&e, 300, &a, &w.err), -1);
    ck_assert_str_eq(
        w.err.msg,
        "exec plugin of user \"b\": still running after 300 ms; stderr: waiting");
    drop("plugin");
    ck_assert_int_eq(kube_exec_run(&e, 20000, &a, &w.err), -1);
    ck_assert_msg(strstr(w.err.msg, ": cannot run ") && strstr(w.err.msg, "No such file"),
                  "%s", w.err.msg);
    e.install_hint = hint;
    ck_assert_int_eq(kube_exec_run(&e, 20000, &a, &w.err), -1);
    ck_assert_contains(w.err.msg, "; get it from there");
}

UNIT_MAIN_AROUND(fixture_begin, end)
