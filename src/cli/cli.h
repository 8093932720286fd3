/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/config.h"

/*
 * kubectl-inspect-gpushare as a program: its commands and their exit status.
 */

/* The exit status: 0; 1 for an error, or a node that --classic does not find; 2 if
 * --check has found differences. */
int cli_main(int argc, char **argv);

/* Appends the names of the cluster's nodes, or of its pods, one per line. Pods are
 * NAMESPACE/NAME; those of the user's namespace are NAME unless `prefix` has a slash. */
typedef void (*cli_names_fn)(const struct cli_config *config, bool pods,
                             struct span prefix, struct buf *out);
/* Appends the possible completions of the last argument, one per line, and then ":4", the
 * directive by which kubectl offers no file names (cobra's ShellCompDirectiveNoFileComp).
 */
void cli_complete_words(int argc, char *const *argv, char *const *env, cli_names_fn names,
                        struct buf *out);
