/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "node/process_reader.h"

/*
 * Kills one process that was measured before, and never another one that got its pid since:
 * a pidfd is opened first, then the start time is compared, then the signal goes to the
 * pidfd. A pidfd refers to one process for good, so whatever ends or starts in between, the
 * process that was compared is the one that gets the signal, or none does.
 *
 * Needs CAP_KILL for processes of other users, and pids of this PID namespace: the reader
 * must be that of "/", which is the /proc that the pids of signals are of. Where the pid was
 * measured in another namespace, the start times differ, and nothing is killed.
 */

/* Sends SIGKILL. -1: it was not sent; ERR_NOT_FOUND: the process has ended; ERR_FORBIDDEN:
 * CAP_KILL is missing; ERR_INVALID: init or this process itself. */
int process_kill(const struct process_reader *r, const struct usage_pid *pid,
                 struct err *err);
