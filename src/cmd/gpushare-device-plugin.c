/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/plugin.h"

static void *start(const void *config, struct err *err)
{
    return plugin_start(config, err);
}

static bool stop(void *plugin)
{
    return plugin_stop(plugin);
}

int main(int argc, char **argv)
{
    static const struct entry entry = {&plugin_program, start, stop, NULL};
    struct plugin_config config = {0};
    return entry_main(&entry, &config, argc, argv);
}
