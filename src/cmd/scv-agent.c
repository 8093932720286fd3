/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/log.h"
#include "base/signals.h"
#include "wire/yaml.h"

static int print_once(const struct agent_config *config, struct err *err)
{
    cleanup_buf struct buf out = {0};
    if (agent_once(config, &out, err))
        return EXIT_FAILURE;
    puts(out.p);
    return EXIT_SUCCESS;
}

static int serve(const struct agent_config *config, const sigset_t *signals,
                 struct err *err)
{
    int number;
    struct agent *agent = agent_start(config, err);
    if (!agent)
        return EXIT_FAILURE;
    sigwait(signals, &number);
    log_info("agent", "stopping");
    if (!agent_stop(agent))
        _exit(EXIT_SUCCESS);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    struct agent_config config = {0};
    struct err err = {0};
    int status = EXIT_FAILURE;

    sigset_t signals = signals_block();
    enum opt_result r = opt_load(&agent_program, &config, argc, argv, environ,
                                 yaml_read_options, stdout, &err);
    if (r == OPT_RUN) {
        log_set_level((enum log_level)config.log_level);
        status = config.once ? print_once(&config, &err) : serve(&config, &signals, &err);
    }
    if (r == OPT_DONE)
        status = EXIT_SUCCESS;
    else if (status != EXIT_SUCCESS)
        fprintf(stderr, "scv-agent: %s\n", err.msg);
    opt_free(&agent_program, &config);
    return status;
}
