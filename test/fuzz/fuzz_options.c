/* SPDX-License-Identifier: Apache-2.0 */

/*
 * An option file with the options of the extender. Accepted values are within the bounds
 * of the option table, and the same values on the command line give the same
 * configuration.
 */

#include "fuzz/fuzz.h"

#include "extender/extender.h"
#include "wire/yaml.h"

struct flags {
    char **argv;
    size_t n, cap;
};

static int add_flag(void *ctx, const char *key, const char *value, unsigned line,
                    struct err *err)
{
    struct flags *f = ctx;
    (void)err;
    fuzz_fail_if(!line, "an entry without a line number");
    MEM_GROW(f->argv, f->cap, f->n + 1);
    f->argv[f->n++] = xasprintf("--%s=%s", key, value);
    return 0;
}

/* Writes all options by the table, and checks their bounds. */
static void describe(struct extender_config *config, struct buf *out)
{
    for (const struct opt *o = NULL; (o = opt_next(&extender_program, o));) {
        const void *field = (const char *)config + o->offset;
        const char *text = o->type == OPT_STRING ? *(char *const *)field : "";
        int64_t number = 0;
        if (o->type == OPT_INT || o->type == OPT_DURATION || o->type == OPT_SIZE) {
            number = *(const int64_t *)field;
            fuzz_fail_if(number < o->min || ((o->min || o->max) && number > o->max),
                         "a number out of bounds");
        }
        buf_printf(out, "%s %s %lld %d\n", o->name, text ? text : "(none)",
                   (long long)number, o->type == OPT_BOOL && *(const bool *)field);
    }
    buf_printf(out, "%lld %d", (long long)config->core.ledger.unit_mib,
               config->entry.log_level);
    fuzz_fail_if(config->core.ledger.unit_mib < 1 ||
                     config->core.ledger.unit_mib > 1 << 20,
                 "a unit out of bounds");
}

static void check_flags(const char *path, struct extender_config *config)
{
    struct flags f = {0};
    struct extender_config other = {0};
    cleanup_buf struct buf of_file = {0}, of_flags = {0};
    char *const none[] = {NULL};
    struct err err = {0};
    add_flag(&f, "name", "of the program", 1, NULL);
    fuzz_fail_if(yaml_read_options(path, add_flag, &f, NULL),
                 "an accepted file cannot be read again");
    fuzz_fail_if(opt_load(&extender_program, &other, (int)f.n, f.argv, none,
                          yaml_read_options, stderr, &err) != OPT_RUN,
                 "accepted in a file, rejected on the command line");
    describe(config, &of_file);
    describe(&other, &of_flags);
    fuzz_check_same(&of_file, &of_flags,
                    "file and command line give different configurations");
    opt_free(&extender_program, &other);
    while (f.n)
        free(f.argv[--f.n]);
    free(f.argv);
}

void fuzz_input(struct span in)
{
    const char *path = fuzz_file(in);
    cleanup_free char *flag = xasprintf("--config=%s", path);
    char name[] = "extender", *const argv[] = {name, flag, NULL}, *const none[] = {NULL};
    struct extender_config config = {0};
    struct err err = {0};
    enum opt_result r = opt_load(&extender_program, &config, 2, argv, none,
                                 yaml_read_options, stderr, &err);
    fuzz_fail_if(r == OPT_DONE, "a file requested help");
    fuzz_fail_if(r == OPT_FAILED && (err.code == ERR_NONE || !strstr(err.msg, path)),
                 "an error that does not name the file");
    if (r == OPT_RUN)
        check_flags(path, &config);
    opt_free(&extender_program, &config);
}
