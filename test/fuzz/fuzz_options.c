/* SPDX-License-Identifier: Apache-2.0 */

/*
 * An option file with the options of the extender. Accepted values are within the bounds
 * of the option table, and the same values on the command line give the same
 * configuration.
 */

#include "fuzz/fuzz.h"

#include "base/mem.h"
#include "extender/extender.h"
#include "fuzz/fuzz_file.h"
#include "wire/yaml.h"

enum { FLAGS_MAX = 256 };

struct flags {
    char *argv[FLAGS_MAX + 1];
    int argc;
    bool overflow;
};

static int add_flag(void *ctx, const char *key, const char *value, unsigned line,
                    struct err *err)
{
    struct flags *f = ctx;
    (void)err;
    if (!line)
        fuzz_fail("an entry without a line number");
    if (f->argc == FLAGS_MAX)
        f->overflow = true;
    else
        f->argv[f->argc++] = xasprintf("--%s=%s", key, value);
    return 0;
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

/* Compares all options by the table, and checks their bounds. */
static void compare(struct extender_config *a, struct extender_config *b)
{
    for (const struct opt *o = NULL; (o = opt_next(&extender_program, o));) {
        const void *x = (const char *)a + o->offset;
        const void *y = (const char *)b + o->offset;
        int64_t number;
        switch (o->type) {
        case OPT_STRING:
            if (!same_text(*(char *const *)x, *(char *const *)y))
                fuzz_fail("file and command line give different texts");
            break;
        case OPT_BOOL:
            if (*(const bool *)x != *(const bool *)y)
                fuzz_fail("file and command line give different booleans");
            break;
        case OPT_INT:
        case OPT_DURATION:
        case OPT_SIZE:
            number = *(const int64_t *)x;
            if (number != *(const int64_t *)y)
                fuzz_fail("file and command line give different numbers");
            if (number < o->min || ((o->min || o->max) && number > o->max))
                fuzz_fail("a number out of bounds");
            break;
        default:
            break;
        }
    }
    if (a->core.ledger.unit_mib != b->core.ledger.unit_mib ||
        a->entry.log_level != b->entry.log_level)
        fuzz_fail("file and command line give different units or levels");
    if (a->core.ledger.unit_mib < 1 || a->core.ledger.unit_mib > 1 << 20)
        fuzz_fail("a unit out of bounds");
}

static void check_flags(const char *path, struct extender_config *config)
{
    struct flags f = {.argv = {xstrdup("extender")}, .argc = 1};
    struct extender_config other = {0};
    char *const none[] = {NULL};
    struct err err = {0};
    if (yaml_read_options(path, add_flag, &f, NULL))
        fuzz_fail("an accepted file cannot be read again");
    if (!f.overflow) {
        if (opt_load(&extender_program, &other, f.argc, f.argv, none, yaml_read_options,
                     stderr, &err) != OPT_RUN)
            fuzz_fail("accepted in a file, rejected on the command line");
        compare(config, &other);
    }
    opt_free(&extender_program, &other);
    while (f.argc)
        free(f.argv[--f.argc]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file(data, size);
    cleanup_free char *flag = xasprintf("--config=%s", path);
    char name[] = "extender", *const argv[] = {name, flag, NULL}, *const none[] = {NULL};
    struct extender_config config = {0};
    struct err err = {0};
    enum opt_result r = opt_load(&extender_program, &config, 2, argv, none,
                                 yaml_read_options, stderr, &err);
    if (r == OPT_DONE)
        fuzz_fail("a file requested help");
    if (r == OPT_FAILED && (err.code == ERR_NONE || !strstr(err.msg, path)))
        fuzz_fail("an error that does not name the file");
    if (r == OPT_RUN)
        check_flags(path, &config);
    opt_free(&extender_program, &config);
    return 0;
}
