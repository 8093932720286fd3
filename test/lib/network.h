/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"

/*
 * A network of the test's own, with nothing in it but a loopback: every port is free, and
 * nobody outside reaches it. For what has to listen on the ports that people know.
 */

/* Puts this thread, and all that it starts from now on, into one. Fails where the system
 * does not let us, and changes nothing then. */
int network_own(struct err *err);
