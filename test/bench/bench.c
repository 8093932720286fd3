/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/bench.h"
#include "lib/lib.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

/*
 * bench COMMAND [OPTION...]: the benchmarks of docs/benchmarks.md, and the soak test. This
 * process makes the load; what it measures are processes of their own.
 */

static const struct bench_command *const commands[] = {
    &bench_serve,
    &bench_watchers,
    &bench_hostile,
    &bench_soak,
    &bench_cluster,
    &bench_openb,
    &bench_floor,
};

void bench_die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("bench: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

int64_t bench_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

void bench_get(int fd, void *p, size_t n)
{
    if (read(fd, p, n) != (ssize_t)n)
        _exit(1);
}

void bench_put(int fd, const void *p, size_t n)
{
    if (write(fd, p, n) != (ssize_t)n)
        _exit(1);
}

void bench_fork(struct bench_child *c, void (*run)(int from, int to, const void *ctx),
                const void *ctx)
{
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC) || (c->pid = fork()) < 0)
        bench_die("cannot start a process");
    if (c->pid == 0) {
        close(to[1]);
        run(to[0], from[1], ctx);
    }
    close(to[0]);
    close(from[1]);
    c->to = to[1];
    c->from = from[0];
}

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

struct series series_ratio(const struct series *a, const struct series *b)
{
    struct series ratio = {0};
    for (size_t i = 0; i < a->n; i++)
        series_note(&ratio, a->of[i] / b->of[i]);
    return ratio;
}

void series_fini(struct series *s)
{
    free(s->of);
    *s = (struct series){0};
}

int main(int argc, char **argv)
{
    struct err err = {0};
    const struct bench_command *c = NULL;
    for (size_t i = 0; argc > 1 && i < ARRAY_LEN(commands); i++)
        if (strcmp(commands[i]->name, argv[1]) == 0)
            c = commands[i];
    if (!c) {
        printf("bench COMMAND [OPTION...]; bench COMMAND --help explains:\n");
        for (size_t i = 0; i < ARRAY_LEN(commands); i++)
            printf("  %-9s %s\n", commands[i]->name, commands[i]->summary);
        return argc == 2 && strcmp(argv[1], "--help") == 0 ? 0 : 2;
    }
    cleanup_free char *name = xasprintf("bench %s", c->name);
    const struct opt_program program = {.name = name,
                                        .summary = c->summary,
                                        .version = GPUSHARE_VERSION,
                                        .table = c->options};
    cleanup_free void *config = xcalloc(1, c->size);
    setvbuf(stdout, NULL, _IOLBF, 0);
    enum opt_result r = opt_load(&program, config, argc - 1, argv + 1, environ,
                                 NULL, stdout, &err);
    int status = r == OPT_FAILED ? 2 : 0;
    if (r == OPT_FAILED)
        fprintf(stderr, "%s: %s\n", name, err.msg);
    if (r == OPT_RUN) {
        curl_global_init(CURL_GLOBAL_DEFAULT);
        status = c->run(config);
    }
    opt_free(&program, config);
    return status;
}
