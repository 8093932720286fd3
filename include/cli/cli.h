/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * kubectl-inspect-gpushare as a program: its commands and their exit status.
 */

/* The exit status: 0; 1 for an error, or a node that --classic does not find; 2 if
 * --check has found differences. */
int cli_main(int argc, char **argv);
