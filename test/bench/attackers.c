/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/attackers.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KINDS = 32 };

static void get(int fd, void *p, size_t n)
{
    if (read(fd, p, n) != (ssize_t)n)
        _exit(1);
}

static void put(int fd, const void *p, size_t n)
{
    if (write(fd, p, n) != (ssize_t)n)
        _exit(1);
}

static void attack(int from, int to, const cpu_set_t *processors)
{
    struct hostile_config config;
    struct hostile_stats stats[KINDS];
    char end;
    if (CPU_COUNT(processors))
        sched_setaffinity(0, sizeof *processors, processors);
    get(from, &config, sizeof config);
    struct hostile *h = hostile_start(&config);
    put(to, &(bool){h != NULL}, sizeof(bool));
    if (!h)
        _exit(1);
    get(from, &end, 1);
    size_t n = hostile_stats(h, stats, KINDS);
    put(to, &n, sizeof n);
    put(to, stats, n * sizeof *stats);
    hostile_stop(h);
    _exit(0);
}

struct attackers attackers_fork(const cpu_set_t *processors)
{
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
        abort();
    struct attackers a = {.pid = fork(), .to = to[1], .from = from[0]};
    if (a.pid == 0) {
        close(to[1]);
        attack(to[0], from[1], processors);
    }
    close(to[0]);
    close(from[1]);
    return a;
}

bool attackers_start(const struct attackers *a, const struct hostile_config *config)
{
    bool ok = false;
    put(a->to, config, sizeof *config);
    get(a->from, &ok, sizeof ok);
    return ok;
}

/* The names of the kinds are constants of both processes, at the same addresses. */
void attackers_stop(const struct attackers *a)
{
    struct hostile_stats stats[KINDS];
    size_t n;
    put(a->to, "", 1);
    get(a->from, &n, sizeof n);
    get(a->from, stats, n * sizeof *stats);
    printf("%-16s %10s %10s %10s %10s\n", "hostile clients", "connects", "refused",
           "replies", "status 200");
    for (size_t i = 0; i < n; i++)
        printf("  %-14s %10llu %10llu %10llu %10llu\n", stats[i].kind,
               (unsigned long long)stats[i].connects,
               (unsigned long long)stats[i].refused, (unsigned long long)stats[i].replies,
               (unsigned long long)stats[i].ok);
    waitpid(a->pid, NULL, 0);
}
