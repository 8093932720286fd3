/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Runs a fuzz target without a fuzzing engine: first its corpus, then mutations of the
 * corpus and, if the target has fuzz_generate, generated inputs, from a fixed seed. A
 * target aborts when it finds an error. (With clang, `make fuzz` links the same target to
 * libFuzzer instead of this file.)
 *
 *     fuzz_x [RUNS [SEED]]
 *
 * Without RUNS the limit is 200,000 inputs or 10 seconds, whichever comes first, so that
 * slow targets and sanitizers do not delay `make check`. The n-th input is the same in
 * every run.
 */

#include "fuzz/fuzz.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "base/file.h"
#include "lib/mutate.h"

enum {
    RUNS = 200000,
    LIMIT_MS = 10000,
    CORPUS_MAX = 1 << 24,
    BYTES_MAX = 1 << 16,
};

static struct buf *corpus;
static size_t n_corpus;
static struct buf current; /* the input of the current run */

static void report(int number)
{
    fprintf(stderr, "an input of %zu bytes: ", current.n);
    for (size_t i = 0; i < current.n && i < 2000; i++)
        fprintf(stderr, "%02x", (unsigned char)current.p[i]);
    fputc('\n', stderr);
    signal(number, SIG_DFL);
}

static void run(void)
{
    cleanup_free char *copy = xmalloc(current.n);
    if (current.n)
        memcpy(copy, current.p, current.n);
    fuzz_input((struct span){copy, current.n});
}

static void load(const char *dir)
{
    struct dirent **names = NULL;
    int n = scandir(dir, &names, NULL, alphasort);
    corpus = xcalloc(n > 0 ? (size_t)n : 0, sizeof *corpus);
    for (int i = 0; i < n; i++) {
        cleanup_free char *path = xasprintf("%s/%s", dir, names[i]->d_name);
        if (names[i]->d_name[0] != '.')
            n_corpus += !file_read(path, CORPUS_MAX, &corpus[n_corpus], NULL);
        free(names[i]);
    }
    free(names);
}

/* Makes the next input. */
static void make(struct rng *rng)
{
    static const char *const words[] = {
        "{\"", "}",   "[",     "]",        "\":",          ",", "\\u0019",
        "1e+", "-0.", " \n\t", "\x7f\x80", "\xc3\xed\xff", NULL};
    const struct buf *from = &corpus[rng_below(rng, n_corpus)];
    buf_clear(&current);
    if (!fuzz_generate || !rng_below(rng, 16)) {
        buf_add(&current, from->p, from->n);
    } else {
        fuzz_generate(rng, &current);
        if (rng_below(rng, 2))
            return;
    }
    if (!rng_below(rng, 4)) { /* the end of another one */
        const struct buf *other = &corpus[rng_below(rng, n_corpus)];
        size_t at = rng_below(rng, other->n + 1);
        current.n = rng_below(rng, current.n + 1);
        buf_add(&current, other->p + at, other->n - at);
    }
    mutate(rng, words, &current);
    if (current.n > BYTES_MAX)
        current.n = BYTES_MAX;
}

/* Not clock_mono_ms, which some targets replace. */
static int64_t driver_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int main(int argc, char **argv)
{
    struct rng rng;
    long runs = argc > 1 ? strtol(argv[1], NULL, 10) : RUNS, done = 0;
    int64_t start = driver_ms();
    int64_t until_ms = argc > 1 ? INT64_MAX : start + LIMIT_MS;
    cleanup_free char *dir =
        xasprintf("test/fuzz/corpus/%s", strstr(argv[0], "fuzz_") + strlen("fuzz_"));
    load(dir);
    if (!n_corpus) {
        fprintf(stderr, "no corpus in %s\n", dir);
        return 1;
    }
    signal(SIGABRT, report);
    rng_init(&rng, argc > 2 ? strtoull(argv[2], NULL, 10) : 1);
    for (size_t i = 0; i < n_corpus; i++) {
        buf_set(&current, buf_span(&corpus[i]));
        run();
    }
    for (; done < runs && (done % 64 || driver_ms() < until_ms); done++) {
        make(&rng);
        run();
    }
    printf("%s: %zu inputs of the corpus, %ld others, %.1f s\n", argv[0], n_corpus, done,
           (double)(driver_ms() - start) / 1000);
    printf("counted: %ld fuzz inputs\n1 passed, 0 failed\n", done + (long)n_corpus);
    return 0;
}
