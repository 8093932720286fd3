/* SPDX-License-Identifier: Apache-2.0 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/signals.h"
#include "extender/extender.h"
#include "wire/yaml.h"

/* Bodies of requests can be large and are rare then. glibc would keep what each thread
 * once held (measured: 465 MiB after sixty bodies of 20 MiB, six at a time; 10 MiB so).
 */
static void give_large_memory_back(void)
{
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
}

int main(int argc, char **argv)
{
    struct extender_config config = {0};
    struct err err = {0};
    int status = EXIT_FAILURE, signal_number;

    give_large_memory_back();
    sigset_t signals = signals_block();
    enum opt_result r = opt_load(&extender_program, &config, argc, argv, environ,
                                 yaml_read_options, stdout, &err);
    if (r == OPT_RUN) {
        log_set_level((enum log_level)config.log_level);
        struct extender *e = extender_start(&config, &err);
        if (e) {
            sigwait(&signals, &signal_number);
            extender_stop(e);
            status = EXIT_SUCCESS;
        }
    }
    if (r == OPT_DONE)
        status = EXIT_SUCCESS;
    else if (status != EXIT_SUCCESS)
        fprintf(stderr, "gpushare-extender: %s\n", err.msg);
    opt_free(&extender_program, &config);
    return status;
}
