/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/signals.h"
#include "plugin/plugin.h"
#include "wire/yaml.h"

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

    sigset_t signals = signals_block();
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
