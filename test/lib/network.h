/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"

/*
 * A network namespace with only a loopback device, for programs that listen on documented
 * ports: every port is free, and nothing outside reaches it.
 */

/* Moves this thread, and the processes it starts from now on, into a new network namespace.
 * Fails without any change if the system forbids it. */
int network_own(struct err *err);
