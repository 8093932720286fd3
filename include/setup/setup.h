/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/opt.h"

/*
 * gpushare-setup as a program: what scripts/install asks when it wants to know what a
 * file says, what is to be changed, and whether it worked. It changes nothing itself.
 */

struct setup_options {
    char *root, *proc;
    char *kubeconfig, *context;
    char *address, *policy, *out;
    int log_level;
    bool no_cluster;
    struct opt_list words;
};

extern const struct opt_program setup_program;

int setup_main(int argc, char **argv);
