/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/agent.h"

static void *start(const void *config, struct err *err)
{
    return agent_start(config, err);
}

static bool stop(void *agent)
{
    return agent_stop(agent);
}

static int print_once(const void *config, struct err *err)
{
    const struct agent_config *c = config;
    cleanup_buf struct buf out = {0};
    if (!c->once)
        return 0;
    if (agent_once(c, &out, err))
        return -1;
    buf_addc(&out, '\n');
    return entry_print(&out, err) ? -1 : 1;
}

int main(int argc, char **argv)
{
    static const struct entry entry = {&agent_program, start, stop, print_once};
    struct agent_config config = {0};
    return entry_main(&entry, &config, argc, argv);
}
