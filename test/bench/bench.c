/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/bench.h"

#include <curl/curl.h>
#include <dirent.h>
#include <time.h>

#include "lib/cluster.h"

/*
 * bench COMMAND [OPTION...]: the benchmarks of docs/benchmarks.md, and the soak test. This
 * process makes the load; what it measures are processes of their own.
 */

enum { LIMIT_S = 48 * 3600 };

static const struct bench_command *const commands[] = {
    &bench_serve,   &bench_watchers, &bench_hostile, &bench_soak,
    &bench_cluster, &bench_openb,    &bench_floor,
};
static const struct bench_command *command;
static void *config;

void series_note(struct series *s, double value)
{
    MEM_GROW(s->of, s->cap, s->n + 1);
    s->of[s->n++] = value;
}

double series_quantile(struct series *s, double share)
{
    if (!s->n)
        return 0;
    lib_sort(s->of, s->n);
    size_t i = (size_t)(share * (double)s->n);
    return s->of[i < s->n ? i : s->n - 1];
}

double rounds_median(double *values, size_t n)
{
    lib_sort(values, n);
    return values[n / 2];
}

void rounds_print(const char *what, struct rounds *r)
{
    double ratio[BENCH_ROUNDS];
    for (size_t i = 0; i < r->n; i++)
        ratio[i] = r->of[0][i] / r->of[1][i];
    double middle = rounds_median(ratio, r->n);
    printf("  %-22s %8.3f /%8.3f  %5.3f (%.3f-%.3f)", what, rounds_median(r->of[0], r->n),
           rounds_median(r->of[1], r->n), middle, ratio[0], ratio[r->n - 1]);
}

struct vitals vitals_now(const struct program *p)
{
    struct vitals v = {0};
    cleanup_free char *fds = xasprintf("/proc/%d/fd", p->pid);
    cleanup_free char *status = xasprintf("/proc/%d/status", p->pid);
    char line[256];
    DIR *dir = opendir(fds);
    for (struct dirent *e; (e = readdir(dir));)
        v.fds += e->d_name[0] != '.';
    closedir(dir);
    FILE *f = fopen(status, "r");
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, "VmRSS:", 6) == 0)
            v.mib = strtod(line + 6, NULL) / 1024;
        if (strncmp(line, "Threads:", 8) == 0)
            v.threads = (unsigned)strtoul(line + 8, NULL, 10);
    }
    fclose(f);
    return v;
}

struct vitals vitals_peak(struct vitals a, struct vitals b)
{
    return (struct vitals){a.mib > b.mib ? a.mib : b.mib, a.fds > b.fds ? a.fds : b.fds,
                           a.threads > b.threads ? a.threads : b.threads};
}

double vitals_cpu_ms(pid_t pid)
{
    clockid_t clock;
    struct timespec t = {0};
    if (clock_getcpuclockid(pid, &clock) == 0)
        clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int missed; /* aims */

void bench_aim(const char *what, bool reached)
{
    printf("  %-8s %s\n", reached ? "ok" : "MISSED", what);
    missed += !reached;
}

TEST(benchmark)
{
    command->run(config);
    ck_assert_int_eq(missed, 0);
}

int main(int argc, char **argv)
{
    struct err err = {0};
    for (size_t i = 0; argc > 1 && i < ARRAY_LEN(commands); i++)
        if (strcmp(commands[i]->name, argv[1]) == 0)
            command = commands[i];
    if (!command) {
        printf("bench COMMAND [OPTION...]; bench COMMAND --help explains:\n");
        array_indices(i, commands)
            printf("  %-9s %s\n", commands[i]->name, commands[i]->summary);
        return argc == 2 && strcmp(argv[1], "--help") == 0 ? 0 : 2;
    }
    cleanup_free char *name = xasprintf("bench-%s", command->name);
    const struct opt_program program = {name, command->summary, GPUSHARE_VERSION,
                                        .table = command->options};
    config = xcalloc(1, command->size);
    setvbuf(stdout, NULL, _IOLBF, 0);
    enum opt_result r =
        opt_load(&program, config, argc - 1, argv + 1, environ, NULL, stdout, &err);
    int status = r == OPT_FAILED ? 2 : 0;
    if (r == OPT_FAILED)
        fprintf(stderr, "%s: %s\n", name, err.msg);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    if (command == &bench_floor) /* a program, which gets SIGTERM */
        setenv("CK_FORK", "no", 1);
    if (r == OPT_RUN)
        status = command->cluster ? cluster_run(LIMIT_S, ARGV("--nodes", "0"))
                                  : lib_run(LIMIT_S, (struct unit_fixtures){0});
    opt_free(&program, config);
    free(config);
    return status;
}
