/* SPDX-License-Identifier: Apache-2.0 */

/* kubectl as a child process: the proxy that carries the login, and the context's namespace. */

#include "cli/kubectl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "domain/object.h"
#include "kube/client.h"

/*
 * Between us and kubectl is a keeper, a fork of this process. When our end of its control
 * socket closes, also because we were killed, it kills kubectl with all that kubectl has
 * started (what a wrapper script runs, a login that waits), and removes the folder. If the
 * keeper is killed, the kernel kills kubectl (PR_SET_PDEATHSIG).
 */
struct keeper {
    pid_t pid;
    int control; /* a byte to it: kubectl_answered. From it: a byte, kubectl_spoke; and the
                    wait status of kubectl */
};

struct kubectl {
    struct arena arena;      /* has the strings */
    const char *program;     /* path */
    struct opt_list options; /* of the connection, "--name=value" */
    const char *kubeconfig;  /* NULL: none, or only kubectl knows */
    bool needs_context;
    const char *socket;
    struct keeper proxy;
    bool spoke;
};

/* -- the keeper -- */

/* kubectl's standard error. */
struct errors {
    char text[4096 + 1]; /* not written yet: begins with a line; the last byte is NUL */
    size_t n;
    bool answered, spoke; /* in this order */
    int control;
};

/* Is the begin a line of kubectl's log that says nothing new? It looks so, or so:
 * "E1129 07:07:36.211739   18066 proxy_server.go:147] Error while proxying request: …"
 * "2026/11/29 07:39:28 httputil: ReverseProxy read error during body copy: unexpected EOF" */
static bool is_folded(const struct errors *e, size_t n)
{
    static const char proxy[] = " proxy_server.go:", digits[] = "0123456789/:.";
    bool klog = *e->text && strchr("IWEF", *e->text);
    size_t date = klog + strspn(e->text + klog, digits);
    return n > date && date == (klog ? 5 : 10) && e->text[date] == ' ' &&
           strspn(e->text + date + 1, digits) >= 8 &&
           (e->answered || memmem(e->text, n, proxy, strlen(proxy)));
}

/* Writes the complete lines, or all, while standard error takes them: a pipe that nobody reads, or
 * a terminal after Ctrl-S, must not hold up the end of kubectl. */
static void pass_on(struct errors *e, bool all)
{
    struct pollfd out = {STDERR_FILENO, POLLOUT, 0};
    while (e->n && poll(&out, 1, 0) > 0) {
        const char *end = memchr(e->text, '\n', e->n);
        size_t n = end ? (size_t)(end + 1 - e->text) : e->n;
        if (!end && !all && n < sizeof e->text - 1)
            return;
        bool shown = !is_folded(e, n);
        if (shown)
            fwrite(e->text, 1, n, stderr);
        if (shown && e->answered && !e->spoke)
            e->spoke = send(e->control, "", 1, MSG_NOSIGNAL) == 1;
        e->n -= n;
        memmove(e->text, e->text + n, e->n);
    }
}

/* False: the pipe has ended. */
static bool read_errors(struct errors *e, int fd)
{
    ssize_t n = read(fd, e->text + e->n, sizeof e->text - 1 - e->n);
    e->n += n > 0 ? (size_t)n : 0;
    return n > 0;
}

/* A child of this process; `known` where the kernel does not list them. 0: none. */
static pid_t a_child(pid_t known)
{
    FILE *f = fopen("/proc/thread-self/children", "re");
    int pid = known;
    if (f && fscanf(f, "%d", &pid) != 1)
        pid = 0;
    if (f)
        fclose(f);
    return pid;
}

static pid_t run(char *const *argv, int out, int errors)
{
    pid_t keeper = getpid(), pid = fork();
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != keeper)
        _exit(EXIT_FAILURE);
    dup2(out, STDOUT_FILENO);
    dup2(errors, STDERR_FILENO);
    close_range(STDERR_FILENO + 1, ~0U, 0);
    execvp(argv[0], argv);
    fprintf(stderr, "%s: %m\n", argv[0]);
    _exit(127);
}

/* `dir`, with `socket`: to be removed at the end, unless NULL. */
static _Noreturn void keep(char *const *argv, int out, int control, const char *dir,
                           const char *socket)
{
    enum { LOOK_MS = 100 };
    struct errors errors = {.control = control};
    int fds[2], status = -1;
    char byte;
    /* Also of kubectl: after Ctrl-C, defrag --apply still uncordons the node. */
    signal(SIGINT, SIG_IGN);
    signal(SIGCHLD, SIG_DFL); /* ignored, as a parent can leave it, it loses the status */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (pipe2(fds, O_CLOEXEC))
        _exit(EXIT_FAILURE);
    pid_t pid = run(argv, out, fds[1]), child;
    close(out);
    close(fds[1]);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    signal(SIGPIPE, SIG_IGN); /* standard error can be a pipe that nobody reads */
    int from = fds[0];        /* -1: has ended */
    struct pollfd in[] = {{control, POLLIN, 0}, {from, POLLIN, 0}};
    while (waitpid(pid, &status, WNOHANG) == 0) {
        in[1].fd = errors.n < sizeof errors.text - 1 ? from : -1;
        poll(in, ARRAY_LEN(in), LOOK_MS);
        if (in[0].revents && read(control, &byte, 1) <= 0)
            break;
        errors.answered |= in[0].revents;
        if (in[1].revents && !read_errors(&errors, from))
            from = -1;
        pass_on(&errors, !in[1].revents);
    }
    while ((child = a_child(status < 0 ? pid : 0)) > 0 && kill(child, SIGKILL) == 0)
        waitpid(child, NULL, 0);
    in[1].fd = fds[0];
    while (poll(&in[1], 1, 0) > 0 && read_errors(&errors, fds[0]))
        pass_on(&errors, false);
    pass_on(&errors, true);
    if (dir) {
        unlink(socket);
        rmdir(dir);
    }
    if (status >= 0)
        send(control, &status, sizeof status, MSG_NOSIGNAL);
    _exit(EXIT_SUCCESS);
}

static void keeper_stop(struct keeper *keeper)
{
    close(keeper->control);
    while (keeper->pid > 0 && waitpid(keeper->pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

/* -- kubectl -- */

/* The path of a program that is given by its name, or by a path. NULL: there is none. */
static const char *find_program(struct arena *a, const char *name)
{
    const char *list = getenv("PATH");
    struct span rest = span_of(strchr(name, '/') ? "" : list);
    const char *path = name;
    struct stat file;
    while (!strchr(path, '/') || stat(path, &file) || !S_ISREG(file.st_mode) ||
           access(path, X_OK)) {
        if (!rest.n)
            return NULL;
        struct span dir = span_cut(&rest, ':');
        path = arena_printf(a, "%.*s/%s", SPAN_ARG(dir.n ? dir : SPAN(".")), name);
    }
    return path;
}

static void add_option(struct kubectl *k, const char *name, const char *value)
{
    MEM_GROW(k->options.items, k->options.cap, k->options.n + 1);
    k->options.items[k->options.n++] =
        (char *)arena_printf(&k->arena, "--%s=%s", name, value);
}

/* Runs kubectl with these words, which end with NULL, and the options of the connection,
 * and its keeper. */
static int start(struct kubectl *k, struct keeper *keeper, const char *const *words,
                 int out, const char *dir, struct err *err)
{
    int ends[2];
    char **argv = arena_zalloc(&k->arena, (k->options.n + 8) * sizeof *argv);
    size_t n = 0;
    argv[n++] = (char *)k->program;
    while (*words)
        argv[n++] = (char *)*words++;
    for (size_t i = 0; i < k->options.n; i++)
        argv[n++] = k->options.items[i];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return err_set(err, ERR_UNAVAILABLE, "%s: socketpair: %m", k->program);
    *keeper = (struct keeper){fork(), ends[0]};
    if (keeper->pid == 0) {
        close(ends[0]);
        keep(argv, out, ends[1], dir, k->socket);
    }
    close(ends[1]);
    return keeper->pid > 0 ? 0
                           : err_set(err, ERR_UNAVAILABLE, "%s: fork: %m", k->program);
}

/* Chooses the program (NULL: the caller connects directly) and its options. */
static int configure(struct kubectl *k, const struct cli_config *c, struct err *err)
{
    const char *name = getenv("KUBECTL");
    cleanup_free char *files = NULL;
    bool unknown = kube_config_path(c->kubeconfig, &files, err) != 0;
    for (const struct opt *o = config_kubectl; o->name; o++) {
        const void *field = (const char *)c + o->offset;
        const struct opt_list *list = field;
        char *const *text = field;
        if (o->type == OPT_BOOL && *(const bool *)field)
            add_option(k, o->name, "true");
        if (o->type == OPT_STRING && *text && **text)
            add_option(k, o->name, *text);
        for (size_t i = 0; o->type == OPT_LIST && i < list->n; i++)
            add_option(k, o->name, list->items[i]);
    }
    if (unknown && !c->kubectl.server)
        return -1;
    if (!unknown && !files && !k->options.n)
        return 0; /* in a pod, by its service account */
    k->program = !name   ? find_program(&k->arena, "kubectl")
                 : *name ? find_program(&k->arena, name)
                         : NULL;
    if (!k->program && name && *name)
        return err_set(err, ERR_NOT_FOUND, "KUBECTL: there is no program %s", name);
    if (!k->program && k->options.n)
        return err_set(err, ERR_NOT_FOUND, "%.*s needs kubectl, which is not in PATH",
                       (int)strcspn(k->options.items[0], "="), k->options.items[0]);
    k->kubeconfig = files ? arena_copy(&k->arena, span_of(files)).p : NULL;
    k->needs_context = !c->kubectl.server && !c->kubectl.cluster;
    if (files && strchr(files, ':'))
        setenv("KUBECONFIG", files, 1);
    else if (files)
        add_option(k, "kubeconfig", files);
    if (c->context && *c->context)
        add_option(k, "context", c->context);
    return 0;
}

static bool listens(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    strncpy(to.sun_path, path, sizeof to.sun_path - 1);
    return fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0;
}

/* Has kubectl ended by itself, at the latest in `wait_ms`? err has its status. */
static bool has_ended(struct kubectl *k, const struct keeper *keeper, int wait_ms,
                      int *status, struct err *err)
{
    struct pollfd fd = {keeper->control, POLLIN, 0};
    ssize_t n = 1;
    while (n == 1 && poll(&fd, 1, wait_ms) > 0) {
        n = recv(fd.fd, status, sizeof *status, MSG_PEEK);
        if (n == 1)
            k->spoke = recv(fd.fd, status, 1, 0) == 1;
    }
    if (n == 1)
        return false;
    if (n != sizeof *status)
        *status = SIGKILL; /* with its keeper */
    err_set(err, ERR_UNAVAILABLE, "%s %s: %s %d", k->program,
            keeper == &k->proxy ? "proxy" : "config view",
            WIFSIGNALED(*status) ? "killed by signal" : "exit status",
            WIFSIGNALED(*status) ? WTERMSIG(*status) : WEXITSTATUS(*status));
    return true;
}

int kubectl_check(struct kubectl *k, int wait_ms, struct err *err)
{
    int status;
    return has_ended(k, &k->proxy, wait_ms, &status, err) ? -1 : 0;
}

static int start_proxy(struct kubectl *k, int64_t until_ms, struct err *err)
{
    enum { LOOK_MS = 5, TMPDIR_MAX = 80 }; /* a socket's path has 107 bytes */
    const char *tmp = getenv("TMPDIR");
    tmp = tmp && *tmp && strlen(tmp) < TMPDIR_MAX ? tmp : "/tmp";
    char *dir = (char *)arena_printf(&k->arena, "%s/gpushare-XXXXXX", tmp);
    if (!mkdtemp(dir))
        return err_set(err, ERR_UNAVAILABLE, "%s: %m", dir);
    k->socket = arena_printf(&k->arena, "%s/s", dir);
    cleanup_close int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    /* A path of the server's URL counts, and every path of the API. */
    const char *const words[] = {"proxy",
                                 arena_printf(&k->arena, "--unix-socket=%s", k->socket),
                                 "--append-server-path", "--reject-paths=^$", NULL};
    if (start(k, &k->proxy, words, null, dir, err)) {
        rmdir(dir);
        return -1;
    }
    while (!listens(k->socket)) {
        if (kubectl_check(k, LOOK_MS, err))
            return -1;
        if (clock_mono_ms() >= until_ms)
            return err_set(err, ERR_TIMEOUT,
                           "%s proxy does not listen within --request-timeout",
                           k->program);
    }
    return 0;
}

int kubectl_start(const struct cli_config *config, int64_t until_ms, struct kubectl **k,
                  struct err *err)
{
    struct kubectl *new = xcalloc(1, sizeof *new);
    new->proxy.control = -1;
    int rc = configure(new, config, err);
    if (rc == 0 && new->program)
        rc = start_proxy(new, until_ms, err);
    if (rc && new->kubeconfig)
        err_wrap(err, "kubeconfig %s", new->kubeconfig);
    *k = rc == 0 && new->program ? steal(&new) : NULL;
    kubectl_free(new);
    return rc;
}

void kubectl_free(struct kubectl *k)
{
    if (!k)
        return;
    keeper_stop(&k->proxy);
    free(k->options.items);
    arena_fini(&k->arena);
    free(k);
}

const char *kubectl_socket(const struct kubectl *k)
{
    return k->socket;
}

void kubectl_answered(struct kubectl *k)
{
    send(k->proxy.control, "", 1, MSG_NOSIGNAL);
}

bool kubectl_spoke(const struct kubectl *k)
{
    return k->spoke;
}

void kubectl_explain(struct kubectl *k, struct err *err)
{
    enum { WAIT_MS = 200 };
    if (kubectl_check(k, WAIT_MS, err) || !k->kubeconfig || !k->needs_context)
        return;
    cleanup_free char *ns = kubectl_namespace(k, NULL);
    if (!ns)
        err_wrap(err, "kubeconfig %s: no current context", k->kubeconfig);
}

char *kubectl_namespace(struct kubectl *k, struct err *err)
{
    static const char *const words[] = {
        "config", "view", "--minify", "-o", "jsonpath={.contexts[0].context.namespace}",
        NULL};
    enum { LIMIT_S = 10, MAX = 255 };
    cleanup_close int out = memfd_create("namespace", MFD_CLOEXEC);
    struct keeper keeper = {-1, -1};
    char name[MAX + 1] = "";
    int status = 0;
    int rc = start(k, &keeper, words, out, NULL, err);
    if (rc == 0 && !has_ended(k, &keeper, LIMIT_S * 1000, &status, err))
        rc = err_set(err, ERR_TIMEOUT, "%s config view: still running after %d s",
                     k->program, LIMIT_S);
    keeper_stop(&keeper);
    if (rc || status || pread(out, name, MAX, 0) < 0)
        return NULL;
    if (!*name || object_is_namespace(name))
        return xstrdup(*name ? name : "default");
    err_set(err, ERR_INVALID, "%s config view: expected a namespace", k->program);
    return NULL;
}
