/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "setup/facts.h"

/*
 * What a control plane node says of its kube-scheduler: files and processes. Nothing is
 * changed. `root` is the node's root folder ("" for this machine's), `proc` its /proc.
 */

void host_read_facts(const char *root, const char *proc, struct facts *f);

/* The addresses of this machine but the loopback's; at most `max`. They are put into
 * texts of 64 bytes each. */
size_t host_addresses(char (*out)[64], size_t max);
