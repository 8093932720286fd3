/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/entry.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/thread.h"
#include "wire/yaml.h"

#define OPT_CONFIG struct entry_options

const struct opt entry_table[] = {
    ENTRY_KUBECONFIG,
    ENTRY_CONTEXT,
    OPT_STRING(
        "listen", listen, "ADDRESS", "::",
        "IPv4 or IPv6 address to listen on; :: is all of both, 0.0.0.0 all of IPv4."),
    ENTRY_LOG_LEVEL("info"),
    {0},
};

struct running {
    const struct entry *e;
    const struct entry_options *config; /* the first member of the program's */
    sigset_t signals;
};

static int serve(const struct running *r, struct err *err)
{
    const struct entry *e = r->e;
    int number;
    void *started = e->start(r->config, err);
    if (!started)
        return -1;
    sigwait(&r->signals, &number);
    int rc = e->verdict ? e->verdict(started, err) : 0;
    if (rc)
        log_error("main", "stopping", LOG_ERR(err));
    else
        log_info("main", "stopping: received a signal", LOG_I("signal", number));
    if (!e->stop(started)) {
        log_flush();
        _exit(rc ? EXIT_FAILURE : EXIT_SUCCESS);
    }
    return rc;
}

static int run(void *ctx, struct err *err)
{
    const struct running *r = ctx;
    log_set_level((enum log_level)r->config->log_level);
    int rc = r->e->once ? r->e->once(r->config, err) : 0;
    if (rc)
        return rc;
    log_start();
    rc = serve(r, err);
    log_flush();
    return rc;
}

int entry_command(const struct opt_program *program, void *config, int argc, char **argv,
                  int (*run_it)(void *ctx, struct err *err), void *ctx)
{
    struct err err = {0};
    enum opt_result r =
        opt_load(program, config, argc, argv, environ, yaml_read_options, stdout, &err);
    int rc = r == OPT_RUN ? run_it(ctx, &err) : r == OPT_DONE ? 0 : -1;
    if (rc < 0)
        fprintf(stderr, "%s: %s\n", program->name, err.msg);
    opt_free(program, config);
    return rc;
}

int entry_main(const struct entry *e, void *config, int argc, char **argv)
{
    struct running r = {e, config, signals_block()};
    file_raise_limit();
    return entry_command(e->program, config, argc, argv, run, &r) < 0 ? EXIT_FAILURE
                                                                      : EXIT_SUCCESS;
}

int entry_print(struct buf *text, struct err *err)
{
    size_t n = text->n ? fwrite(text->p, 1, text->n, stdout) : 0;
    bool good = n == text->n && fflush(stdout) == 0;
    buf_clear(text);
    return good ? 0 : err_set(err, ERR_UNAVAILABLE, "standard output: %m");
}
