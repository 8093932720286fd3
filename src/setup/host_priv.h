/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "setup/host.h"

/* Reads the processes named kube-scheduler. */
void host_read_processes(const char *proc, struct facts *f);
