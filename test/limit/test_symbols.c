/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/program.h"

#include "card-check/symbols.h"
#include "lib/unit.h"

/*
 * What libgpushare-limit.so needs and exports: nothing that a C library of any version or kind
 * lacks, and every function of CUDA that makes or frees device memory, or says how much there is.
 */

static char *said_by(const char *const *argv)
{
    struct program p;
    program_start(&p, "/nonexistent", argv);
    ck_assert_msg(program_wait(&p) == 0, "%s: %s", argv[0], program_output(&p));
    char *text = strdup(program_output(&p));
    program_fini(&p);
    return text;
}

TEST(the_library_needs_nothing)
{
    cleanup_free char *library = program_path("libgpushare-limit.so");
    cleanup_free char *dynamic = said_by(ARGV("readelf", "-dW", library));
    ck_assert_contains(dynamic, "GNU_HASH");
    ck_assert_lacks(dynamic, "NEEDED");
    ck_assert_lacks(dynamic, "TEXTREL");
    /* One constructor, which records the root; each runs in every program. */
    ck_assert_contains(dynamic, "(INIT_ARRAYSZ)       8 (bytes)");
    ck_assert_lacks(dynamic, "(INIT)");
    cleanup_free char *versions = said_by(ARGV("readelf", "-VW", library));
    ck_assert_lacks(versions, "GLIBC");
    cleanup_free char *headers = said_by(ARGV("readelf", "-lW", library));
    ck_assert_contains(headers, "GNU_RELRO");
    ck_assert_lacks(headers, "RWE");
}

/* Every undefined symbol is weak: the library also loads where there is none of it. */
TEST(the_library_has_one_weak_import)
{
    cleanup_free char *library = program_path("libgpushare-limit.so");
    cleanup_free char *symbols = said_by(ARGV("nm", "-D", "--undefined-only", library));
    const char *w = strchr(symbols, 'w');
    ck_assert_msg(w && strcmp(w, "w dl_iterate_phdr\n") == 0, "%s", symbols);
}

/* The line of nm for an exported function. */
static bool exports(const char *symbols, const char *name)
{
    struct buf line = {0};
    buf_printf(&line, " T %s\n", name);
    bool found = strstr(symbols, line.p) != NULL;
    free(line.p);
    return found;
}

TEST(each_function_of_device_memory_is_intercepted_or_has_a_reason)
{
    cleanup_free char *library = program_path("libgpushare-limit.so");
    cleanup_free char *symbols = said_by(ARGV("nm", "-D", "--defined-only", library));
    size_t exported = 0, lines = 0;
    array_items(c, limit_symbols) {
        bool is = exports(symbols, c->symbol);
        ck_assert_msg(is == !c->reason, "%s: %s, but %s", c->symbol,
                      c->reason ? c->reason : "to be intercepted",
                      is ? "exported" : "not exported");
        exported += is;
    }
    for (const char *p = symbols; (p = strchr(p, '\n')); p++)
        lines++;
    ck_assert_uint_eq(exported, lines); /* nothing else is exported */
}

/* A folder `limit` beside the library is that of a pod, so the build has none there. */
TEST(a_library_that_is_preloaded_from_the_build_limits_nothing)
{
    cleanup_free char *library = program_path("libgpushare-limit.so");
    cleanup_free char *guest = program_path("gpushare-card-guest");
    cleanup_free char *fake = program_path("fake-cuda/libcuda.so.1");
    cleanup_free char *whole = realpath(library, NULL), *driver = realpath(fake, NULL);
    ck_assert(whole && driver);
    *strrchr(driver, '/') = '\0';
    cleanup_free char *preload = xasprintf("LD_PRELOAD=%s", whole);
    cleanup_free char *path = xasprintf("LD_LIBRARY_PATH=%s", driver);
    free(said_by(ARGV("env", preload, path, guest, "1")));
}
