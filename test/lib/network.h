/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/*
 * A network namespace with only a loopback device, for programs that listen on documented
 * ports, and for programs without IPv4: every port is free, and nothing outside reaches it.
 */

/* Moves this thread, and the processes it starts from now on, into a new network namespace.
 * Fails without any change if the system forbids it. */
int network_own(struct err *err);

/* The same with IPv6 alone: the loopback device has ::1, NETWORK_POD and NETWORK_LINK, and no
 * address of IPv4. Fails, too, if the kernel has no IPv6. From now on, network_loopback is
 * IPv6. */
#define NETWORK_POD  "fd00:10::7"
#define NETWORK_LINK "fe80::7" /* of scope lo */
int network_own_ipv6(struct err *err);
/* The namespace gets 127.0.0.1, or loses it. */
void network_set_ipv4(bool on);

/* Where the programs of the tests listen, and where their clients connect: 127.0.0.1 or ::1. */
const char *network_loopback(void);
char *network_at(unsigned port); /* "127.0.0.1:PORT" or "[::1]:PORT", kept */
