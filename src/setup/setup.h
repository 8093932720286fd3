/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/opt.h"

/*
 * gpushare-setup as a program. scripts/install runs it to check a control plane node of
 * kubeadm, to compute changes and to verify them. It changes no file of the node itself.
 */

extern const struct opt_program setup_program;

int setup_main(int argc, char **argv);
