/* SPDX-License-Identifier: Apache-2.0 */
#include "base/signals.h"

#include <pthread.h>

sigset_t signals_block(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    return set;
}
