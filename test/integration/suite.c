/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/suite.h"

struct sim sim;
struct extender extender;
struct agent agent;
struct plugin plugin;
struct kubelet kubelet;

static const char *const *sim_options;

static void begin(void)
{
    sim_start(&sim, sim_options);
}

/* A program without an output was not started, or the test has stopped it. */
static void end(void)
{
    if (extender.program.out)
        extender_stop(&extender);
    if (agent.program.out)
        agent_stop(&agent);
    if (plugin.program.out)
        plugin_stop(&plugin);
    kubelet_fini(&kubelet);
    if (sim.program.out)
        sim_stop(&sim);
}

int suite_run(double seconds, const char *const *options)
{
    sim_options = options;
    return lib_run(seconds, (struct unit_fixtures){.begin = begin, .end = end});
}

void suite_extender(const char *const *more)
{
    extender_start(&extender, &sim, more);
}

void suite_restart(const char *const *more)
{
    extender_stop(&extender);
    suite_extender(more);
}
