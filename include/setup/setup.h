/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/opt.h"

/*
 * gpushare-setup as a program. scripts/install runs it to check a node, to compute
 * changes and to verify them. It changes no file of the node itself.
 */

struct setup_options {
    char *root, *proc;
    char *kubeconfig, *context;
    char *address, *namespace, *policy, *out;
    int log_level;
    bool no_cluster, insecure;
    struct opt_list args; /* arguments that are not options */
};

extern const struct opt_program setup_program;

int setup_main(int argc, char **argv);
