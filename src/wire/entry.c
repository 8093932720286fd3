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

static int run(const struct entry *e, const void *config, const sigset_t *signals,
               struct err *err)
{
    const struct entry_options *options = config;
    int number;
    log_set_level((enum log_level)options->log_level);
    int rc = e->once ? e->once(config, err) : 0;
    if (rc)
        return rc;
    log_start();
    void *started = e->start(config, err);
    if (started) {
        sigwait(signals, &number);
        rc = e->verdict ? e->verdict(started, err) : 0;
        if (rc)
            log_error("main", "stopping", LOG_ERR(err));
        else
            log_info("main", "stopping: received a signal", LOG_I("signal", number));
    }
    bool stopped = !started || e->stop(started);
    log_flush();
    if (!stopped)
        _exit(rc ? EXIT_FAILURE : EXIT_SUCCESS);
    return started ? rc : -1;
}

int entry_main(const struct entry *e, void *config, int argc, char **argv)
{
    struct err err = {0};
    int rc = -1;
    sigset_t signals = signals_block();
    file_raise_limit();
    enum opt_result r = opt_load(e->program, config, argc, argv, environ,
                                 yaml_read_options, stdout, &err);
    if (r == OPT_RUN)
        rc = run(e, config, &signals, &err);
    else if (r == OPT_DONE)
        rc = 0;
    if (rc < 0)
        fprintf(stderr, "%s: %s\n", e->program->name, err.msg);
    opt_free(e->program, config);
    return rc < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

int entry_print(struct buf *text, struct err *err)
{
    size_t n = text->n ? fwrite(text->p, 1, text->n, stdout) : 0;
    bool good = n == text->n && fflush(stdout) == 0;
    buf_clear(text);
    return good ? 0 : err_set(err, ERR_UNAVAILABLE, "standard output: %m");
}
