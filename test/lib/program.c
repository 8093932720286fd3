/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "lib/unit.h"

void program_start(struct program *p, const char *home, const char *const *argv)
{
    cleanup_free char *in = xasprintf("HOME=%s", home);
    const char *words[PROGRAM_ARGS] = {"env",
                                       "-uPORT",
                                       "-uLOG_LEVEL",
                                       "-uKUBERNETES_SERVICE_HOST",
                                       "-uKUBERNETES_SERVICE_PORT",
                                       "KUBECONFIG=/dev/null",
                                       "KUBECTL=", /* none, whatever this machine has */
                                       in};
    program_args(words, 8, argv);
    *p = (struct program){.out = memfd_create("said", MFD_CLOEXEC)};
    ck_assert_int_ge(p->out, 0);
    /* Without it, two threads of the program that write at once overwrite each other:
       Linux locks the offset of regular files, but not that of a memfd. */
    ck_assert_int_eq(fcntl(p->out, F_SETFL, O_APPEND), 0);
    p->pid = fork();
    if (p->pid == 0) {
        /* After fork in a process with threads: nothing here may take a lock. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(p->out, STDOUT_FILENO);
        dup2(p->out, STDERR_FILENO);
        execvp("env", (char *const *)words);
        _exit(127);
    }
    ck_assert_int_gt(p->pid, 0);
}

size_t program_args(const char *argv[PROGRAM_ARGS], size_t n, const char *const *more)
{
    for (; more && *more; more++) {
        ck_assert_uint_lt(n, PROGRAM_ARGS - 1);
        argv[n++] = *more;
    }
    argv[n] = NULL;
    return n;
}

const char *program_output(struct program *p)
{
    enum { PIECE = 4096 };
    ssize_t n;
    buf_adds(&p->said, "");
    do {
        buf_reserve(&p->said, PIECE);
        n = pread(p->out, p->said.p + p->said.n, PIECE, (off_t)p->said.n);
        p->said.n += n > 0 ? (size_t)n : 0;
        p->said.p[p->said.n] = '\0';
    } while (n > 0);
    return p->said.p;
}

bool program_runs(struct program *p)
{
    int status = 0;
    if (p->pid && waitpid(p->pid, &status, WNOHANG) == p->pid) {
        p->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        p->pid = 0;
    }
    return p->pid != 0;
}

/* Has the program said the text, or ended? */
static bool said_or_ended(struct program *p, const char *text, bool *said)
{
    bool runs = program_runs(p);
    *said = strstr(program_output(p), text) != NULL;
    return *said || !runs;
}

bool program_wait_output(struct program *p, const char *text)
{
    bool said;
    lib_wait_saying(said_or_ended(p, text, &said), "output lacks \"%s\": %s", text,
                    p->said.p);
    return said;
}

void program_signal(const struct program *p, int number)
{
    if (p->pid)
        kill(p->pid, number);
}

int program_wait(struct program *p)
{
    lib_wait_saying(!program_runs(p), "still running: %s", program_output(p));
    program_output(p);
    return p->status;
}

char *program_end(struct program *p, int status)
{
    int got = program_wait(p);
    char *said = xstrdup(program_output(p));
    /* check's messages are limited, and the end says more */
    size_t n = strlen(said), skip = n > 2000 ? n - 2000 : 0;
    ck_assert_msg(status < 0 || got == status, "exit status %d: %s", got, said + skip);
    program_fini(p);
    return said;
}

void program_fini(struct program *p)
{
    if (p->out > 0)
        close(p->out);
    buf_fini(&p->said);
    *p = (struct program){0};
}

void program_stop(struct program *p)
{
    program_signal(p, SIGTERM);
    int status = program_wait(p);
    ck_assert_msg(status == 0, "exit status %d: %s", status, p->said.p);
    program_fini(p);
}

void program_kill(struct program *p)
{
    program_signal(p, SIGKILL);
    if (p->pid)
        program_wait(p);
    program_fini(p);
}

char *program_path(const char *name)
{
    const char *build = getenv("GPUSHARE_BUILD");
    return xasprintf("%s/%s", build ? build : "build", name);
}

/* Is the line complete, or has the program ended? */
static bool has_line(struct program *p, const char *mark, unsigned *port)
{
    bool runs = program_runs(p);
    const char *at = strstr(program_output(p), mark);
    size_t n = at ? strcspn(at, "\n") : 0;
    if (!at || at[n] != '\n')
        return !runs;
    while (n && at[n - 1] != ':')
        n--;
    *port = (unsigned)strtoul(at + n, NULL, 10);
    return true;
}

unsigned program_port(struct program *p, const char *mark)
{
    unsigned port = 0;
    lib_wait(has_line(p, mark, &port));
    ck_assert_msg(port > 0, "no port after \"%s\": %s", mark, p->said.p);
    return port;
}
