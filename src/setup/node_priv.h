/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "setup/node.h"

/* The processes named kube-scheduler. */
void setup_node_read_processes(const char *proc, struct setup_facts *f);
