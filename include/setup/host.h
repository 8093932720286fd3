/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "setup/facts.h"

/*
 * Reads the files and processes of kube-scheduler on a control plane node. `root` is the
 * node's root folder ("" for this machine), `proc` its /proc.
 */

void host_read(const char *root, const char *proc, struct facts *f);

/* The IPv4 addresses of this machine except the loopback's, at most `max`. Returns their
 * number. */
size_t host_addresses(char (*out)[64], size_t max);
