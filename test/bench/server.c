/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "bench/load.h"

enum { START_MS = 120 * 1000 };

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* The port in the log after `words`, or 0. */
static unsigned port_in(const char *path, const char *words)
{
    char line[4096];
    unsigned port = 0;
    FILE *f = fopen(path, "r");
    while (f && !port && fgets(line, sizeof line, f)) {
        const char *at = strstr(line, words), *colon = at ? strrchr(at, ':') : NULL;
        if (colon && strchr(line, '\n')) /* the line is complete */
            port = (unsigned)strtoul(colon + 1, NULL, 10);
    }
    if (f)
        fclose(f);
    return port;
}

static void give_up(const struct server *s, const char *name)
{
    fprintf(stderr, "bench: %s does not start; see %s\n", name, s->log);
    exit(1);
}

void server_start(struct server *s, const char *log, const char *const *argv)
{
    *s = (struct server){.log = xstrdup(log), .started_ns = now_ns()};
    unlink(log); /* an older log names an older port */
    s->pid = fork();
    if (s->pid == 0) {
        int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(fd, STDERR_FILENO);
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    while (!(s->port = port_in(log, "listening on "))) {
        if (s->pid < 0 || waitpid(s->pid, NULL, WNOHANG) ||
            now_ns() - s->started_ns > START_MS * 1000000LL)
            give_up(s, argv[0]);
        pause_ms(1);
    }
}

unsigned server_observe_port(const struct server *s)
{
    return port_in(s->log, "observing on ");
}

static void end(struct server *s, int signal)
{
    kill(s->pid, signal);
    while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    free(s->log);
    *s = (struct server){0};
}

void server_stop(struct server *s)
{
    end(s, SIGTERM);
}

void server_kill(struct server *s)
{
    end(s, SIGKILL);
}

double server_cpu_ms(const struct server *s)
{
    clockid_t clock;
    struct timespec t = {0};
    if (clock_getcpuclockid(s->pid, &clock) == 0)
        clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

double server_mib(const struct server *s)
{
    char path[64], line[256];
    double kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", s->pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "VmRSS:", 6) == 0)
            kib = strtod(line + 6, NULL);
    if (f)
        fclose(f);
    return kib / 1024;
}

double server_wait(const struct server *s, const char *path)
{
    struct span request = load_request("GET", path, (struct span){0});
    while (load_once(s->port, request) != 200) {
        if (now_ns() - s->started_ns > START_MS * 1000000LL)
            give_up(s, path);
        pause_ms(1);
    }
    free((char *)request.p);
    return (double)(now_ns() - s->started_ns) / 1e6;
}
