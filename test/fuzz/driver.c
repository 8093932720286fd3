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
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"

enum {
    RUNS = 200000,
    LIMIT_MS = 10000,
    SIZE_MAX_BYTES = 1 << 16,
};

struct corpus {
    struct buf *items;
    size_t n, cap;
};

static const char *current_name = "";
static struct buf current; /* the input of the current run, for the report */

static void report(void)
{
    fprintf(stderr, "input from %s, %zu bytes: ", current_name, current.n);
    for (size_t i = 0; i < current.n && i < 2000; i++)
        fprintf(stderr, "%02x", (unsigned char)current.p[i]);
    fputc('\n', stderr);
}

void fuzz_fail(const char *why)
{
    fprintf(stderr, "%s\n", why);
    report();
    abort();
}

static void run(const struct buf *input)
{
    /* A copy of the exact size, so that a sanitizer detects every overread. */
    uint8_t *copy = xmalloc(input->n);
    if (input->n)
        memcpy(copy, input->p, input->n);
    LLVMFuzzerTestOneInput(copy, input->n);
    free(copy);
}

static void load(struct corpus *c, const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return;
    struct buf b = {0};
    char piece[4096];
    size_t n;
    while ((n = fread(piece, 1, sizeof piece, f)) > 0)
        buf_add(&b, piece, n);
    fclose(f);
    MEM_GROW(c->items, c->cap, c->n + 1);
    c->items[c->n++] = b;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void load_dir(struct corpus *c, const char *dir)
{
    struct dirent **names = NULL;
    int n = scandir(dir, &names, NULL, by_name);
    for (int i = 0; i < n; i++) {
        cleanup_free char *path = xasprintf("%s/%s", dir, names[i]->d_name);
        if (names[i]->d_name[0] != '.')
            load(c, path);
        free(names[i]);
    }
    free(names);
}

static void splice(struct rng *rng, const struct buf *other, struct buf *b)
{
    if (!other->n)
        return;
    size_t from = rng_below(rng, other->n);
    size_t n = 1 + rng_below(rng, other->n - from < 64 ? other->n - from : 64);
    size_t at = rng_below(rng, b->n + 1);
    buf_reserve(b, n);
    memmove(b->p + at + n, b->p + at, b->n - at);
    memcpy(b->p + at, other->p + from, n);
    b->n += n;
}

static void cut(struct rng *rng, struct buf *b)
{
    size_t at = rng_below(rng, b->n);
    size_t n = 1 + rng_below(rng, b->n - at < 32 ? b->n - at : 32);
    memmove(b->p + at, b->p + at + n, b->n - at - n);
    b->n -= n;
}

static void mutate(struct rng *rng, const struct corpus *c, struct buf *b)
{
    static const char interesting[] = "{}[]\":,\\u0019eE+-. \n\t\x7f\x80\xc3\xed\xff";
    int changes = 1 + (int)rng_below(rng, 4);
    for (int i = 0; i < changes; i++) {
        uint64_t kind = rng_below(rng, 6);
        if (kind == 0 || b->n == 0)
            splice(rng, &c->items[rng_below(rng, c->n)], b);
        else if (kind == 1)
            cut(rng, b);
        else if (kind == 2)
            b->p[rng_below(rng, b->n)] = (char)rng_below(rng, 256);
        else if (kind == 3)
            b->p[rng_below(rng, b->n)] ^= (char)(1 << rng_below(rng, 8));
        else if (kind == 4)
            b->p[rng_below(rng, b->n)] = interesting[rng_below(rng, sizeof interesting)];
        else
            splice(rng, &(struct buf){.p = (char *)interesting, .n = sizeof interesting},
                   b);
    }
    if (b->n > SIZE_MAX_BYTES)
        b->n = SIZE_MAX_BYTES;
}

/* Makes the next input. */
static void make(struct rng *rng, const struct corpus *c, const char *dir, struct buf *b)
{
    buf_clear(b);
    if (fuzz_generate && rng_below(rng, 16)) {
        current_name = "fuzz_generate";
        fuzz_generate(rng, b);
        if (rng_below(rng, 2))
            return;
    } else {
        const struct buf *from = &c->items[rng_below(rng, c->n)];
        current_name = dir;
        buf_add(b, from->p, from->n);
    }
    mutate(rng, c, b);
}

static long run_all(struct corpus *c, const char *dir, long runs, uint64_t seed,
                    int64_t until_ms)
{
    struct rng rng;
    rng_init(&rng, seed);
    for (size_t i = 0; i < c->n; i++) {
        buf_clear(&current);
        buf_add(&current, c->items[i].p, c->items[i].n);
        current_name = dir;
        run(&current);
    }
    long done = 0;
    for (; done < runs && (done % 64 || clock_mono_ms() < until_ms); done++) {
        make(&rng, c, dir, &current);
        run(&current);
    }
    return done;
}

int main(int argc, char **argv)
{
    long runs = argc > 1 ? strtol(argv[1], NULL, 10) : RUNS;
    int64_t start = clock_mono_ms();
    int64_t until_ms = argc > 1 ? INT64_MAX : start + LIMIT_MS;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    const char *base = strrchr(argv[0], '/');
    base = base ? base + 1 : argv[0];
    cleanup_free char *dir = xasprintf("test/fuzz/corpus/%s", base + strlen("fuzz_"));
    struct corpus corpus = {0};

    load_dir(&corpus, dir);
    if (!corpus.n) {
        fprintf(stderr, "no corpus in %s\n", dir);
        return 1;
    }
    long done = run_all(&corpus, dir, runs, seed, until_ms);
    printf("%s: %zu inputs of the corpus, %ld others, %.1f s\n", base, corpus.n, done,
           (double)(clock_mono_ms() - start) / 1000);
    printf("counted: %ld fuzz inputs\n1 passed, 0 failed\n", done + (long)corpus.n);
    for (size_t i = 0; i < corpus.n; i++)
        buf_fini(&corpus.items[i]);
    free(corpus.items);
    buf_fini(&current);
    return 0;
}
