/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/client_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kube/kubeconfig_priv.h"

/* Credential plugins: runs the program of a kubeconfig and reads what it prints. */

enum {
    ERRORS_MAX = 4096, /* bytes of standard error that are kept */
    WAITPID_MS = 50,   /* interval of waitpid while the pipe is open */
};

static int spawn(char *const *argv, char *const *env, int out, int errors, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
    posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                        POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setsigmask(&attr, &none); /* our threads may block signals */
    posix_spawnattr_setsigdefault(&attr, &all);
    int rc = posix_spawnp(pid, argv[0], &actions, &attr, argv, env);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    return rc;
}

/* Reads once from the pipe, which closes at its end. */
static void read_pipe(int *fd, struct buf *out)
{
    char piece[4096];
    ssize_t n = read(*fd, piece, sizeof piece);
    if (n < 0 && errno == EINTR)
        return;
    if (n <= 0) {
        mem_cleanup_close(fd);
        return;
    }
    buf_reserve_secret(out, (size_t)n);
    buf_add(out, piece, (size_t)n);
    explicit_bzero(piece, (size_t)n);
}

/* Waits until the process has exited and its pipe is empty. It may still be open: a
 * background process that it started may hold it open forever. */
static int wait_for_exit(pid_t pid, int *out, int errors, size_t max_out,
                         int64_t limit_ms, struct kube_run *r, struct err *err)
{
    int64_t until_ms = clock_mono_ms() + limit_ms;
    bool exited = false;
    int rc = 0;
    while (!rc) {
        struct pollfd fd = {.fd = *out, .events = POLLIN};
        int wait_ms = exited ? 0 : *out < 0 ? 1 : WAITPID_MS;
        int n = poll(&fd, 1, wait_ms);
        if (n > 0)
            read_pipe(out, &r->out);
        else if (n == 0 && exited)
            return 0;
        exited = exited || waitpid(pid, &r->status, WNOHANG); /* or SIGCHLD is ignored */
        if (r->out.n > max_out || lseek(errors, 0, SEEK_END) > (off_t)max_out)
            rc = err_set(err, ERR_TOO_LARGE, "output is larger than %zu bytes", max_out);
        else if (clock_mono_ms() >= until_ms)
            rc = err_set(err, ERR_TIMEOUT, "still running after %lld ms",
                         (long long)limit_ms);
    }
    if (!exited)
        kill(-pid, SIGKILL);
    while (!exited && waitpid(pid, &r->status, 0) < 0 && errno == EINTR)
        continue;
    return rc;
}

/* Moves a descriptor above 2: a daemon may have closed the standard descriptors, which spawn
 * replaces one after the other. -1: errno. */
static int move_up(int fd)
{
    cleanup_close int low = fd;
    return low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
}

int kube_run_program(char *const *argv, char *const *env, size_t max_out,
                     int64_t limit_ms, struct kube_run *r, struct err *err)
{
    cleanup_close int errors = move_up(memfd_create("stderr", MFD_CLOEXEC)), out = -1;
    int pipe_fds[2];
    pid_t pid;
    *r = (struct kube_run){0};
    if (errors < 0 || pipe2(pipe_fds, O_CLOEXEC))
        return err_set(err, ERR_UNAVAILABLE, "pipe: %m");
    out = pipe_fds[0];
    int in = move_up(pipe_fds[1]);
    int rc = in < 0 ? errno : spawn(argv, env, in, errors, &pid);
    close(in);
    if (rc) {
        errno = rc;
        return err_set(err, rc == ENOENT ? ERR_NOT_FOUND : ERR_UNAVAILABLE,
                       "cannot run %.200s: %m", argv[0]);
    }
    rc = wait_for_exit(pid, &out, errors, max_out, limit_ms, r, err);
    buf_reserve(&r->errors, ERRORS_MAX);
    ssize_t n = pread(errors, r->errors.p, ERRORS_MAX, 0);
    r->errors.n = n > 0 ? (size_t)n : 0;
    return rc;
}

void kube_run_fini(struct kube_run *r)
{
    buf_wipe(&r->out);
    buf_fini(&r->errors);
}

enum {
    OUTPUT_MAX = 1 << 20,
    STDERR_SHOWN_MAX = 200, /* bytes of standard error in an error message */
};

void kube_exec_credential_fini(struct kube_exec_credential *a)
{
    mem_wipe(a->token);
    kube_span_free(&a->cert_pem);
    kube_span_free(&a->key_pem);
    *a = (struct kube_exec_credential){0};
}

char *kube_printable(struct span s, size_t max)
{
    struct buf out = {0};
    s = span_trim(s);
    for (size_t i = 0; i < s.n && i < max; i++) {
        unsigned char c = (unsigned char)s.p[i];
        buf_addc(&out, c < ' ' ? ' ' : c >= 0x7f ? '?' : (char)c);
    }
    if (s.n > max)
        buf_adds(&out, "...");
    return buf_take(&out);
}

/* Whether both strings, "NAME=value", set the same variable. */
static bool same_variable(const char *entry, const char *addition)
{
    size_t n = strcspn(addition, "=") + 1;
    return strncmp(entry, addition, n) == 0;
}

static bool is_replaced(const char *entry, char *const *additions, const char *info)
{
    for (; *additions; additions++)
        if (same_variable(entry, *additions))
            return true;
    return same_variable(entry, info);
}

/* Our environment, the variables of the plugin, and the variable `info`. The strings are
 * borrowed; the array is new. */
static char **environment(const struct kube_exec *e, char *info)
{
    size_t n = 0, additions = 0;
    while (environ[n])
        n++;
    while (e->env[additions])
        additions++;
    char **env = xcalloc(n + additions + 2, sizeof *env);
    size_t used = 0;
    for (size_t i = 0; i < n; i++)
        if (!is_replaced(environ[i], e->env, info))
            env[used++] = environ[i];
    for (size_t i = 0; i < additions; i++)
        env[used++] = e->env[i];
    env[used] = info;
    return env;
}

/* The string of a key, or NULL. Borrowed. */
static const char *text_in(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static int read_status(const json_t *status, struct kube_exec_credential *credential,
                       struct err *err)
{
    struct span cert = span_of(text_in(status, "clientCertificateData"));
    struct span key = span_of(text_in(status, "clientKeyData"));
    struct span token = span_trim(span_of(text_in(status, "token")));
    const json_t *expiry = json_object_get(status, "expirationTimestamp");
    if (token.n && !kube_token_ok(token))
        return err_set(err, ERR_INVALID,
                       "token: expected printable ASCII without spaces");
    if ((cert.n || key.n) && (!kube_is_pem(cert) || !kube_is_pem(key)))
        return err_set(err, ERR_INVALID,
                       "expected PEM in clientCertificateData and clientKeyData");
    if (!token.n && !cert.n)
        return err_set(err, ERR_INVALID, "status has neither a token nor a certificate");
    credential->expires = expiry && !json_is_null(expiry);
    if (credential->expires &&
        !clock_parse(span_of(json_string_value(expiry)), &credential->expires_s))
        return err_set(err, ERR_INVALID, "expirationTimestamp: expected RFC 3339");
    credential->token = token.n ? xmemdup0(token.p, token.n) : NULL;
    credential->cert_pem = kube_span_copy(cert);
    credential->key_pem = kube_span_copy(key);
    return 0;
}

int kube_exec_parse(const struct kube_exec *e, struct span text,
                    struct kube_exec_credential *credential, struct err *err)
{
    json_error_t why;
    json_t *root = json_loadb(text.p ? text.p : "", text.n, JSON_REJECT_DUPLICATES, &why);
    const char *kind = text_in(root, "kind"), *version = text_in(root, "apiVersion");
    int rc;
    if (!root)
        rc = err_set(err, ERR_INVALID, "invalid JSON in its output, line %d", why.line);
    else if (!kind || strcmp(kind, "ExecCredential"))
        rc = err_set(err, ERR_INVALID, "expected kind ExecCredential in its output");
    else if (!version || strcmp(version, e->api_version))
        rc = err_set(err, ERR_INVALID, "expected apiVersion %s in its output",
                     e->api_version);
    else
        rc = read_status(json_object_get(root, "status"), credential, err);
    json_decref(root);
    if (rc)
        kube_exec_credential_fini(credential);
    return rc;
}

int kube_exec_run(const struct kube_exec *e, int64_t limit_ms,
                  struct kube_exec_credential *credential, struct err *err)
{
    *credential = (struct kube_exec_credential){0};
    cleanup_free char *info = xasprintf("KUBERNETES_EXEC_INFO=%s", e->info);
    cleanup_free char **env = environment(e, info);
    struct kube_run r;
    struct err why = {0};
    int rc = kube_run_program(e->argv, env, OUTPUT_MAX, limit_ms, &r, &why);
    cleanup_free char *shown = kube_printable(buf_span(&r.errors), STDERR_SHOWN_MAX);
    if (rc && why.code == ERR_NOT_FOUND && e->install_hint) {
        cleanup_free char *hint =
            kube_printable(span_of(e->install_hint), STDERR_SHOWN_MAX);
        err_set(&why, ERR_NOT_FOUND, "cannot run %.100s; %s", e->argv[0], hint);
    } else if (rc && *shown) {
        struct err first = why;
        err_set(&why, why.code, "%.250s; stderr: %s", first.msg, shown);
    } else if (!rc && WIFSIGNALED(r.status)) {
        rc = err_set(&why, ERR_UNAVAILABLE, "killed by signal %d: %s", WTERMSIG(r.status),
                     shown);
    } else if (!rc && WEXITSTATUS(r.status)) {
        rc = err_set(&why, ERR_UNAVAILABLE, "exit status %d: %s", WEXITSTATUS(r.status),
                     shown);
    } else if (!rc) {
        rc = kube_exec_parse(e, buf_span(&r.out), credential, &why);
    }
    kube_run_fini(&r);
    if (rc) {
        err_set(err, why.code, "%s", why.msg);
        err_wrap(err, "exec plugin of user \"%.100s\"", e->user);
    }
    return rc;
}
