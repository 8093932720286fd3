/* SPDX-License-Identifier: Apache-2.0 */
#include "node/program.h"

static void *start(const void *options, struct err *err)
{
    return node_program_start(options, err);
}

static bool stop(void *program)
{
    return node_program_stop(program);
}

static int print_once(const void *options, struct err *err)
{
    const struct node_options *o = options;
    cleanup_buf struct buf out = {0};
    if (!o->once)
        return 0;
    if (node_program_once(o, &out, err))
        return -1;
    buf_addc(&out, '\n');
    return entry_print(&out, err) ? -1 : 1;
}

static int verdict(void *program, struct err *err)
{
    return node_program_verdict(program, err);
}

int main(int argc, char **argv)
{
    struct node_options options = {0};
    const struct entry entry = {node_options_of(argv[0], &options), start, stop,
                                print_once, verdict};
    return entry_main(&entry, &options, argc, argv);
}
