/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <signal.h>

/* Blocks SIGTERM and SIGINT in this thread and in the threads that it starts later, and
 * ignores SIGPIPE. To be called first in main. Returns the set for sigwait. */
sigset_t signals_block(void);
