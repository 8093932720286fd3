/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <signal.h>

/* Blocks the signals that end a program, SIGTERM and SIGINT, in this thread and those it
 * starts later, and ignores SIGPIPE. Call it first in main, and sigwait for what it
 * returns. */
sigset_t signals_block(void);
