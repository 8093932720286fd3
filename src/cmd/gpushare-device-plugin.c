/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "plugin/plugin.h"
#include "wire/yaml.h"

/* The signals that end the program; blocked in every thread and waited for in main. */
static sigset_t end_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    return set;
}

static int serve(const struct plugin_config *config, const sigset_t *signals,
                 struct err *err)
{
    int number;
    struct plugin *plugin = plugin_start(config, err);
    if (!plugin)
        return EXIT_FAILURE;
    sigwait(signals, &number);
    log_info("plugin", "stopping");
    if (!plugin_stop(plugin))
        _exit(EXIT_SUCCESS);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    struct plugin_config config = {0};
    struct err err = {0};
    int status = EXIT_FAILURE;

    sigset_t signals = end_signals();
    enum opt_result r = opt_load(&plugin_program, &config, argc, argv, environ,
                                 yaml_read_options, stdout, &err);
    if (r == OPT_RUN) {
        log_set_level((enum log_level)config.log_level);
        status = serve(&config, &signals, &err);
    }
    if (r == OPT_DONE)
        status = EXIT_SUCCESS;
    else if (status != EXIT_SUCCESS)
        fprintf(stderr, "gpushare-device-plugin: %s\n", err.msg);
    opt_free(&plugin_program, &config);
    return status;
}
